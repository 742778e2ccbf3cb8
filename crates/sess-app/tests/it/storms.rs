//! Agents that answer for ever, and senders that never stop: it ends, and everybody sees why.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::json;
use sess_app::{SendMessage, SpawnTask, agents::Agents};
use sess_core::{
    RunId,
    message::Role,
    rules::{SessionRules, Visibility},
    run::{Errand, Run},
    session::Session,
};
use sess_store::{Span, Store};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    stage::{Act, Asked, AtWork, Stage, caller_of, has_ended, main_of, node, say, world},
    world::{World, new_session},
};

/// However busy the machine is.
const OVER_WITHIN: Duration = Duration::from_secs(60);
const MEMORY_MAX_KB: u64 = 400 * 1024;

pub(crate) fn all_reach_all(rules: &mut SessionRules) {
    rules.visibility = Visibility::All;
    rules.agent_to_agent.is_enabled = true;
}

/// Sends to `to` whenever it is spoken to, and answers as well.
fn sending(to: &str, timeout_seconds: u64) -> Act {
    let ask = json!({"sessionKey": to, "message": "and you?", "timeoutSeconds": timeout_seconds});
    Act::Call("sessions_send".to_owned(), ask)
}

async fn told_by_owner(world: &World, to: &str, message: &str) -> RunId {
    let ask = SendMessage {
        to: to.to_owned(),
        message: message.to_owned(),
        timeout_seconds: Some(0),
        ..SendMessage::default()
    };
    let answer = world.app.send(&world.owner(), ask).await.expect("sent");
    answer.run_id.parse().expect("a run")
}

/// Waits until nothing is open or unsettled.
pub(crate) async fn calm(store: &dyn Store) -> Vec<Run> {
    let calm = async {
        loop {
            let runs = store.runs(None, 100_000).await.expect("readable");
            let is_settled = store.unsettled_runs(1).await.expect("readable").is_empty();
            let again = store.runs(None, 100_000).await.expect("readable");
            if is_settled && runs.iter().all(has_ended) && again.len() == runs.len() {
                return runs;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(OVER_WITHIN, calm).await.expect("it ends by itself")
}

async fn finish(agents: &Agents, root: &RunId) {
    let stop = CancellationToken::new();
    let finished = agents.finish_tree(root, &stop);
    tokio::time::timeout(OVER_WITHIN, finished).await.expect("it ends by itself").expect("finished");
}

/// Returns the texts of a session that have this role.
pub(crate) async fn texts(store: &dyn Store, session: &Session, role: Role) -> Vec<String> {
    let mut texts = Vec::new();
    let mut span = Span::After(0);
    loop {
        let page = store.messages(&session.id, span, 500).await.expect("readable");
        let Some(last) = page.newest_seq() else { return texts };
        span = Span::After(last);
        let bodies = page.messages.iter().map(|message| message.parse().expect("readable"));
        texts.extend(bodies.filter(|body| body.role == role).map(|body| body.plain_text()));
    }
}

/// A tree has as many runs as it may, and besides those only what brings an answer home.
fn check_tree(runs: &[Run], root: &RunId, most: usize, hops: u32) {
    let below: Vec<&Run> = runs.iter().filter(|run| run.lineage.root == *root).collect();
    let is_delivery = |run: &&&Run| matches!(run.errand, Errand::LateReply { .. } | Errand::Report { .. });
    let deliveries = below.iter().filter(is_delivery).count();
    let asked = below.iter().filter(|run| matches!(run.errand, Errand::Send(_) | Errand::Spawn(_))).count();
    assert!(below.len() - deliveries <= most, "{} runs of at most {most}", below.len() - deliveries);
    assert!(deliveries <= asked, "{deliveries} answers to {asked} questions");
    let sent_from = below.iter().filter(|run| matches!(run.errand, Errand::Send(_) | Errand::Spawn(_)));
    let furthest = sent_from.map(|run| run.lineage.hops).max().unwrap_or(0);
    assert!(furthest <= hops, "{furthest} hops of at most {hops}");
}

fn check_memory() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak_kb: Option<u64> = peak.and_then(|peak| peak.trim().trim_end_matches(" kB").parse().ok());
    if let Some(peak_kb) = peak_kb {
        assert!(peak_kb < MEMORY_MAX_KB, "{peak_kb} kB at the peak");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_agents_that_send_to_each_other_for_ever_are_stopped_by_the_limits() {
    const TREE: u32 = 60;
    let world = world(|rules| {
        all_reach_all(rules);
        rules.limits.tree_runs = TREE;
    });
    let stage = Stage::new(|asked: &Asked| match (asked.role, asked.agent.as_str()) {
        (Role::ToolResult, _) => say("again"),
        (_, "a") => sending("agent:b:main", 0),
        _ => sending("agent:a:main", 0),
    });
    let store = world.store();
    let (a, b) = (main_of(&*store, "a").await, main_of(&*store, "b").await);
    let root = told_by_owner(&world, "agent:a:main", "go").await;
    let agents = node(&world.app, &stage, 5_000);
    finish(&agents, &root).await;
    let runs = calm(&*store).await;
    check_tree(&runs, &root, TREE as usize, SessionRules::default().limits.hops);
    // It was the limits that ended it, and both were told.
    for session in [a, b] {
        let told = texts(&*store, &session, Role::ToolResult).await;
        let refused = told.iter().filter(|text| text.contains("sessions_send stops here")).count();
        assert!(refused > 0, "{told:?}");
        assert!(told.iter().any(|text| text.contains("accepted")), "{told:?}");
    }
    check_memory();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_that_wait_for_each_other_do_not_wait_for_ever() {
    let world = world(|rules| {
        all_reach_all(rules);
        (rules.limits.hops, rules.limits.tree_runs, rules.rounds_max) = (3, 12, 1);
    });
    let stage = Stage::new(|asked: &Asked| match (asked.role, asked.agent.as_str()) {
        (Role::ToolResult, _) => say("again"),
        (_, "a") => sending("agent:b:main", 1),
        _ => sending("agent:a:main", 1),
    });
    let store = world.store();
    let (a, b) = (main_of(&*store, "a").await, main_of(&*store, "b").await);
    let at_work = AtWork::new(&node(&world.app, &stage, 5_000));
    let root = told_by_owner(&world, "agent:a:main", "go").await;
    let runs = calm(&*store).await;
    check_tree(&runs, &root, 12, 3);
    let mut told = texts(&*store, &a, Role::ToolResult).await;
    told.extend(texts(&*store, &b, Role::ToolResult).await);
    assert!(told.iter().any(|text| text.contains("no reply within 1 s")), "{told:?}");
    assert!(told.iter().any(|text| text.contains("sessions_send stops here")), "{told:?}");
    at_work.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_sessions_told_to_reply_for_ever_end_within_the_limits() {
    const SESSIONS: usize = 50;
    let world = world(|rules| {
        all_reach_all(rules);
        rules.limits.tree_runs = 4;
    });
    let asked = Arc::new(AtomicUsize::new(0));
    // Two messages to others in each turn, and a reply.
    let stage = Stage::new(move |_| {
        let n = asked.fetch_add(1, Ordering::Relaxed);
        let other = format!("s{:02}", n.wrapping_mul(17) % SESSIONS);
        if n % 3 == 2 { say("go on") } else { sending(&other, 0) }
    });
    let store = world.store();
    let mut sessions = Vec::new();
    for n in 0..SESSIONS {
        let agent = ["a", "b", "c"][n % 3];
        sessions
            .push(store.ensure_session(new_session(&format!("s{n:02} agent={agent}"))).await.expect("made"));
    }
    let begun = Instant::now();
    let at_work = AtWork::new(&node(&world.app, &stage, 5_000));
    let mut roots = Vec::new();
    for session in &sessions {
        roots.push(told_by_owner(&world, session.id.as_str(), "reply for ever").await);
    }
    let runs = calm(&*store).await;
    assert!(begun.elapsed() < OVER_WITHIN);
    for root in &roots {
        check_tree(&runs, root, 4, SessionRules::default().limits.hops);
    }
    assert!(runs.iter().all(|run| roots.contains(&run.lineage.root)), "a run that nobody's message led to");
    let mut refused = 0;
    for session in &sessions {
        let told = texts(&*store, session, Role::ToolResult).await;
        refused += told
            .iter()
            .filter(|text| text.contains("stops here") || text.contains("try again later"))
            .count();
    }
    assert!(refused >= SESSIONS, "{refused} refusals were seen");
    check_memory();
    at_work.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parent_that_spawns_at_every_report_is_stopped_by_the_limits() {
    let world = world(|_| {});
    let stage = Stage::new(|asked: &Asked| match asked.role {
        Role::ToolResult => say("spawned"),
        _ if asked.tools.iter().any(|tool| tool == "sessions_spawn") => {
            Act::Call("sessions_spawn".to_owned(), json!({"task": "part"}))
        }
        _ => say("did my part"),
    });
    let store = world.store();
    let a = main_of(&*store, "a").await;
    let answer = world
        .app
        .spawn(&caller_of(&world.app, &a), SpawnTask { task: "part".to_owned(), ..SpawnTask::default() })
        .await
        .expect("spawned");
    let root = answer.run_id.parse().expect("a run");
    let agents = node(&world.app, &stage, 5_000);
    finish(&agents, &root).await;
    let runs = calm(&*store).await;
    let limits = SessionRules::default().limits;
    check_tree(&runs, &root, limits.tree_runs as usize, limits.hops);
    let told = texts(&*store, &a, Role::ToolResult).await;
    assert!(told.iter().any(|text| text.contains("of at most 12: end this turn")), "{told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_messages_to_one_session_are_refused_or_answered_and_none_is_lost() {
    const QUEUE: usize = 40;
    let world = world(|rules| {
        all_reach_all(rules);
        rules.rounds_max = 0;
        rules.limits.queue = QUEUE as u32;
    });
    let stage = Stage::new(|_| say("ANNOUNCE_SKIP"));
    let store = world.store();
    let (a, b) = (main_of(&*store, "a").await, main_of(&*store, "b").await);
    let burst = async |from: usize, count: usize| {
        let mut senders = JoinSet::new();
        for n in from..from + count {
            let (app, caller) = (world.app.clone(), caller_of(&world.app, &a));
            let ask = SendMessage {
                to: "agent:b:main".to_owned(),
                message: format!("message {n}"),
                timeout_seconds: Some(0),
                ..SendMessage::default()
            };
            senders.spawn(async move { (n, app.send(&caller, ask).await) });
        }
        let (mut accepted, mut refused) = (HashSet::new(), 0);
        while let Some(sent) = senders.join_next().await {
            match sent.expect("no panic") {
                (n, Ok(answer)) => {
                    assert_eq!(answer.status, "accepted");
                    accepted.insert(format!("message {n}"));
                }
                (_, Err(error)) => {
                    let text = format!(
                        "{QUEUE} messages wait in this session already, of at most {QUEUE}; try again later"
                    );
                    assert_eq!(error.to_string(), text);
                    refused += 1;
                }
            }
        }
        (accepted, refused)
    };
    // Nobody works yet: exactly as many as there is room for.
    let begun = Instant::now();
    let (mut accepted, refused) = burst(0, 500).await;
    assert_eq!((accepted.len(), refused), (QUEUE, 500 - QUEUE));
    let at_work = AtWork::new(&node(&world.app, &stage, 5_000));
    let (more, _) = burst(500, 500).await;
    let took = begun.elapsed();
    accepted.extend(more);
    let runs = calm(&*store).await;
    assert!(took < Duration::from_secs(20), "a thousand answers took {took:?}");
    assert!(runs.iter().all(|run| run.state == sess_core::run::RunState::Done), "{runs:?}");
    let heard = texts(&*store, &b, Role::User).await;
    let mut once: Vec<&String> = heard.iter().filter(|text| text.starts_with("message ")).collect();
    assert_eq!(once.len(), accepted.len());
    once.sort();
    once.dedup();
    assert_eq!(once.len(), accepted.len(), "a message was heard twice");
    assert!(once.into_iter().all(|text| accepted.contains(text)), "a refused message was heard");
    check_memory();
    at_work.stop().await;
}
