//! Nodes that are stopped, turns that are cancelled, and what tasks leave behind.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use sess_agent::tool::{ToolDef, ToolOutput, Toolbox};
use sess_app::{
    App, Redaction, SendMessage, SpawnTask,
    agents::{Agents, AgentsSetup, Nobody, OpenTools},
};
use sess_core::{
    agent::{Agent, ToolsetKind, ToolsetSpec},
    message::Role,
    permission::Trust,
    run::{Errand, RunState},
};
use tokio_util::sync::CancellationToken;

use crate::{
    stage::{Act, Asked, AtWork, Stage, agent, caller_of, ended, main_of, node, say, send, tree, world},
    storms::{all_reach_all, calm, texts},
    teams::team_of,
    world::new_session,
};

/// Tools that nobody gets to see before they are ready.
struct Slow {
    is_asked: Arc<AtomicBool>,
}

#[async_trait]
impl Toolbox for Slow {
    async fn tools(&self) -> Vec<ToolDef> {
        self.is_asked.store(true, Ordering::SeqCst);
        std::future::pending().await
    }

    async fn call(&self, _: &str, _: Map<String, Value>, _: &CancellationToken) -> ToolOutput {
        ToolOutput::error("never ready")
    }
}

/// A node with agents and tools of its own, and a lease that no test waits for.
fn node_of(app: &App, stage: &Stage, agents: Vec<Agent>, open_tools: Box<OpenTools>) -> Agents {
    let stage = stage.clone();
    app.agents(AgentsSetup {
        team: team_of(agents, &["stage"]),
        open_model: Box::new(move |_| Ok(Arc::new(stage.clone()))),
        open_tools,
        person: Arc::new(Nobody),
        trust: Trust::All,
        lease: Duration::from_secs(60),
    })
}

struct NoTools;

#[async_trait]
impl Toolbox for NoTools {
    async fn tools(&self) -> Vec<ToolDef> {
        Vec::new()
    }

    async fn call(&self, _: &str, _: Map<String, Value>, _: &CancellationToken) -> ToolOutput {
        ToolOutput::error("there are none")
    }
}

fn no_tools() -> Box<OpenTools> {
    Box::new(|_| Ok(Arc::new(NoTools)))
}

async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let so = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), so).await.unwrap_or_else(|_| panic!("never {what}"));
}

#[tokio::test]
async fn a_run_that_had_not_begun_is_handed_back_by_a_node_that_stops() {
    let (world, stage) = (world(|_| {}), Stage::new(|_| say("done")));
    let store = world.store();
    let (a, b) = (main_of(&*store, "a").await, main_of(&*store, "b").await);
    let is_asked = Arc::new(AtomicBool::new(false));
    let slow = Arc::clone(&is_asked);
    let open: Box<OpenTools> = Box::new(move |_| Ok(Arc::new(Slow { is_asked: Arc::clone(&slow) })));
    let first = AtWork::new(&node_of(&world.other_process(), &stage, vec![agent("b")], open));
    let run = send(&*store, &a, &b, "hello", 0, true).await;
    until("taken", async || is_asked.load(Ordering::SeqCst)).await;
    let begun = Instant::now();
    first.stop().await;
    // Long before the lease would have ended.
    let second = AtWork::new(&node(&world.app, &stage, 60_000));
    let run = ended(&*store, &run.id).await;
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!((run.state, run.result.as_deref()), (RunState::Done, Some("done")));
    calm(&*store).await;
    second.stop().await;
    let heard = texts(&*store, &b, Role::User).await;
    assert_eq!(heard.iter().filter(|text| *text == "hello").count(), 1, "{heard:?}");
}

#[tokio::test]
async fn a_run_that_is_handed_back_for_ever_is_aborted_in_the_end() {
    let (world, stage) = (world(|_| {}), Stage::new(|_| say("done")));
    let store = world.store();
    let (a, b) = (main_of(&*store, "a").await, main_of(&*store, "b").await);
    let run = send(&*store, &a, &b, "hello", 0, false).await;
    for _ in 0..10 {
        let is_asked = Arc::new(AtomicBool::new(false));
        let slow = Arc::clone(&is_asked);
        let open: Box<OpenTools> = Box::new(move |_| Ok(Arc::new(Slow { is_asked: Arc::clone(&slow) })));
        let at_work = AtWork::new(&node_of(&world.other_process(), &stage, vec![agent("b")], open));
        until("taken or over", async || {
            let now = store.run(&run.id).await.expect("readable").expect("stored");
            is_asked.load(Ordering::SeqCst) || now.state.has_ended()
        })
        .await;
        at_work.stop().await;
    }
    let run = store.run(&run.id).await.expect("readable").expect("stored");
    assert_eq!(run.state, RunState::Aborted);
    // Its sender hears of that.
    let agents = node(&world.app, &stage, 5_000);
    agents.finish_tree(&run.id, &CancellationToken::new()).await.expect("finished");
    assert_eq!(tree(&*store, &run.id).await, ["b send aborted", "a late done"]);
}

#[tokio::test]
async fn a_task_within_a_task_goes_only_so_deep() {
    let world = world(|rules| rules.limits.depth = 3);
    // Each agent passes its task on to the next one.
    const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    let next = |name: &str| NAMES[1 + NAMES.iter().position(|known| *known == name).expect("one of them")];
    let stage = Stage::new(move |asked: &Asked| match asked.role {
        Role::ToolResult => say(&asked.last),
        _ => {
            let task = json!({"agent": next(&asked.agent), "task": "deeper"});
            Act::Call("transfer_task".to_owned(), task)
        }
    });
    let chain = NAMES.map(|name| Agent {
        sub_agents: if name == "f" { Vec::new() } else { vec![next(name).parse().expect("a name")] },
        ..agent(name)
    });
    let store = world.store();
    let a = main_of(&*store, "a").await;
    let agents = node_of(&world.app, &stage, chain.to_vec(), no_tools());
    let ask = SendMessage {
        to: a.key.to_string(),
        message: "go".to_owned(),
        timeout_seconds: Some(0),
        ..SendMessage::default()
    };
    let answer = world.app.send(&world.owner(), ask).await.expect("sent");
    let run = answer.run_id.parse().expect("a run");
    agents.finish_tree(&run, &CancellationToken::new()).await.expect("finished");
    let run = store.run(&run).await.expect("readable").expect("stored");
    let told = run.result.expect("a result");
    assert!(told.contains("this task is 3 sessions deep, of at most 3: do the work yourself"), "{told}");
    assert_eq!(store.runs(None, 100).await.expect("readable").len(), 4);
}

#[tokio::test]
async fn the_plan_of_a_deleted_child_goes_with_it() {
    let world = world(|_| {});
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (noted, plans) = (Arc::clone(&seen), world.plans());
    let stage = Stage::new(move |asked: &Asked| match (asked.role, asked.last.as_str()) {
        (Role::User, "look") => Act::Call("write_session_plan".to_owned(), json!({"content": "# Look"})),
        (Role::ToolResult, _) => {
            let files = std::fs::read_dir(&plans).expect("a directory");
            let names = files.map(|file| file.expect("a file").file_name().to_string_lossy().into_owned());
            noted.lock().expect("whole").extend(names.filter(|name| name.ends_with(".md")));
            say("found it")
        }
        _ => say("thanks"),
    });
    let planner = || {
        let mut agent = agent("a");
        agent.toolsets.push(ToolsetSpec { kind: ToolsetKind::SessionPlan, tools: None });
        agent
    };
    let store = world.store();
    let a = main_of(&*store, "a").await;
    for (cleanup, left) in [("delete", 0), ("keep", 1)] {
        let ask =
            SpawnTask { task: "look".to_owned(), cleanup: Some(cleanup.to_owned()), ..SpawnTask::default() };
        let answer = world.app.spawn(&caller_of(&world.app, &a), ask).await.expect("spawned");
        let run = answer.run_id.parse().expect("a run");
        let agents = node_of(&world.app, &stage, vec![planner()], no_tools());
        agents.finish_tree(&run, &CancellationToken::new()).await.expect("finished");
        assert_eq!(tree(&*store, &run).await, ["a spawn done", "a report done"]);
        assert_eq!(seen.lock().expect("whole").drain(..).count(), 1, "the child had a plan");
        assert_eq!(world.plan_names().len(), left, "{cleanup}: {:?}", world.plan_names());
    }
}

#[tokio::test]
async fn tools_work_where_their_session_does_whatever_node_executes_it() {
    let (world, stage) = (world(all_reach_all), Stage::new(|_| say("done")));
    let store = world.store();
    let a = main_of(&*store, "a").await;
    let elsewhere = tempfile::tempdir().expect("a directory");
    let mut new = new_session("elsewhere agent=b");
    new.cwd = Some(elsewhere.path().display().to_string());
    let b = store.ensure_session(new).await.expect("made");
    let opened: Arc<Mutex<Vec<Option<String>>>> = Arc::default();
    let noted = Arc::clone(&opened);
    let open: Box<OpenTools> = Box::new(move |wanted| {
        noted.lock().expect("whole").push(wanted.workspace.map(str::to_owned));
        Ok(Arc::new(NoTools))
    });
    let run = send(&*store, &a, &b, "hello", 0, true).await;
    let agents = node_of(&world.app, &stage, vec![agent("a"), agent("b")], open);
    agents.finish_tree(&run.id, &CancellationToken::new()).await.expect("finished");
    let opened = opened.lock().expect("whole").clone();
    assert!(!opened.is_empty() && opened.iter().all(|place| *place == b.cwd), "{opened:?}");
    let system = &stage.asked()[0].system;
    assert!(system.contains(&elsewhere.path().display().to_string()), "{system}");
    // A child works where its parent does.
    let child = world
        .app
        .spawn(&caller_of(&world.app, &b), SpawnTask { task: "x".to_owned(), ..SpawnTask::default() })
        .await
        .expect("spawned");
    let key = child.child_session_key.parse().expect("a key");
    assert_eq!(store.session_by_key(&key).await.expect("readable").expect("stored").cwd, b.cwd);
}

#[tokio::test]
async fn a_turn_that_is_cancelled_while_it_waits_lets_the_reply_find_it() {
    let world = world(|rules| {
        all_reach_all(rules);
        rules.rounds_max = 0;
    });
    let ask = json!({"sessionKey": "agent:b:main", "message": "question", "timeoutSeconds": 600});
    let stage = Stage::new(move |asked: &Asked| match asked.last.as_str() {
        "go" => Act::Call("sessions_send".to_owned(), ask.clone()),
        "question" => Act::Later(Duration::from_millis(600), "the answer".to_owned()),
        _ => say("ANNOUNCE_SKIP"),
    });
    let store = world.store();
    let (a, _b) = (main_of(&*store, "a").await, main_of(&*store, "b").await);
    let at_work = AtWork::new(&node(&world.app, &stage, 900));
    let ask = SendMessage {
        to: a.key.to_string(),
        message: "go".to_owned(),
        timeout_seconds: Some(0),
        ..SendMessage::default()
    };
    let asked = world.app.send(&world.owner(), ask).await.expect("sent");
    let asked = asked.run_id.parse().expect("a run");
    until("asked", async || stage.heard().iter().any(|line| line == "b: question")).await;
    world.app.cancel(&world.owner(), &asked, Redaction::None).await.expect("cancelled");
    assert_eq!(ended(&*store, &asked).await.state, RunState::Cancelled);
    let sent = store.runs_below(&asked, 10).await.expect("readable").remove(1);
    assert!(!sent.state.has_ended(), "it goes on");
    assert!(matches!(&sent.errand, Errand::Send(send) if send.awaited_by.is_none()), "{sent:?}");
    calm(&*store).await;
    at_work.stop().await;
    assert_eq!(
        tree(&*store, &asked).await,
        ["a message cancelled", "b send done", "a late done", "b announce done"]
    );
    assert!(stage.heard().contains(&"a: the answer".to_owned()), "{:?}", stage.heard());
}
