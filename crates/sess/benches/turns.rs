//! What a turn costs beside its model: time, tools per second, memory.
//!
//! `cargo bench -p sess --bench turns`; `SESS_BENCH_SCALE=0.1` makes fewer rounds. The
//! model answers at once, so that all the time is ours. The bound is the bare
//! durable commits that a turn has to make, one after another, on a store of the
//! same kind; rounds of both are interleaved, and the median round counts.

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod instant;

use std::{
    fs,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use sess_app::agents::{Agents, Request as Say};
use sess_core::{
    SessionId, Source, Timestamp,
    rules::SessionRules,
    run::{Run, RunState},
    session::NewSession,
};
use tokio::{sync::Semaphore, task::JoinSet};
use tokio_util::sync::CancellationToken;

use self::instant::{COMMITS, Scripted, agents, commit, median, ms, rounds};

const TURNS_PER_SESSION: usize = 20;
const TOOLS: usize = 50;
const IDLE_SESSIONS: usize = 100;
const TURNS_AT_ONCE: usize = 50;

fn main() {
    println!("{:<54} {:>12} {:>12} {:>7}   to reach", "figure", "ours", "bound", "ratio");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        memory().await;
        let rounds = rounds();
        turn("turn beside the model, text alone", 0, 1, rounds, "under 2 ms").await;
        turn("turn beside the model, one harmless tool call", 1, 1, rounds, "").await;
        tools(&format!("{TOOLS} harmless tools, one after another"), TOOLS, 1, rounds / 10).await;
        tools(&format!("{TOOLS} harmless tools in one reply"), 1, TOOLS, rounds / 10).await;
    });
}

async fn turn(figure: &str, replies: usize, calls: usize, rounds: usize, to_reach: &str) {
    let (ours, bound) = measure(replies, calls, rounds).await;
    let ratio = ours.as_secs_f64() / bound.as_secs_f64();
    println!("{figure:<54} {:>12} {:>12} {ratio:>6.2}x   {to_reach}", ms(ours), ms(bound));
}

async fn tools(figure: &str, replies: usize, calls: usize, rounds: usize) {
    let (ours, bound) = measure(replies, calls, rounds.max(3)).await;
    let rate = |took: Duration| format!("{:.0} /s", (replies * calls) as f64 / took.as_secs_f64());
    let ratio = ours.as_secs_f64() / bound.as_secs_f64();
    println!("{figure:<54} {:>12} {:>12} {ratio:>6.2}x", rate(ours), rate(bound));
}

/// Returns the median of turns in which the model makes `calls` calls in each of `replies`
/// replies, and of the bare commits that these turns have to make.
async fn measure(replies: usize, calls: usize, rounds: usize) -> (Duration, Duration) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let model = Arc::new(Scripted { replies, calls, ..Scripted::default() });
    let agents = agents(&dir.path().join("ours"), model, SessionRules::default());
    let bare = sess_store::open(&dir.path().join("bare")).expect("a store");
    // Nothing is ahead of the request, so it is queued and leased in one. A reply that calls tools is one
    // more, and so is the result of each call.
    let commits = COMMITS - 1 + replies * (1 + calls);
    let (mut ours, mut bound) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let id: SessionId = format!("bench-{}", round / TURNS_PER_SESSION).parse().expect("an id");
        let session = NewSession::chat(id.clone(), Source::Native, Timestamp::default());
        bare.ensure_session(session).await.expect("it is stored");
        let begun = Instant::now();
        commit(&*bare, &id, commits).await;
        bound.push(begun.elapsed());
        let begun = Instant::now();
        let run = say(&agents, id).await;
        ours.push(begun.elapsed());
        assert_eq!(run.state, RunState::Done, "{:?}", run.error);
    }
    (median(ours), median(bound))
}

async fn memory() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let gate = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
    let model = Arc::new(Scripted { gate: Some(Arc::clone(&gate)), ..Scripted::default() });
    let agents = agents(dir.path(), Arc::clone(&model), SessionRules::default());
    say(&agents, "first".parse().expect("an id")).await;
    let before = rss_kib();
    for n in 0..IDLE_SESSIONS {
        say(&agents, format!("idle-{n}").parse().expect("an id")).await;
    }
    let idle = rss_kib();
    memory_row(&format!("memory of {IDLE_SESSIONS} idle sessions"), idle, before);

    gate.forget_permits(Semaphore::MAX_PERMITS);
    model.asked.store(0, Ordering::Relaxed);
    let mut turns = JoinSet::new();
    for n in 0..TURNS_AT_ONCE {
        let agents = agents.clone();
        turns.spawn(async move { say(&agents, format!("busy-{n}").parse().expect("an id")).await });
    }
    while model.asked.load(Ordering::Relaxed) < TURNS_AT_ONCE {
        tokio::task::yield_now().await;
    }
    memory_row(&format!("memory of {TURNS_AT_ONCE} turns at once"), rss_kib(), idle);
    gate.add_permits(TURNS_AT_ONCE);
    while let Some(run) = turns.join_next().await {
        assert_eq!(run.expect("a turn").state, RunState::Done);
    }
}

/// Prints what was added to what the process had before.
fn memory_row(figure: &str, with_kib: u64, without_kib: u64) {
    let mb = |kib: u64| kib as f64 / 1024.0;
    let added = mb(with_kib.saturating_sub(without_kib));
    println!(
        "{figure:<54} {:>12} {:>12} {:>6.2}x",
        format!("+{added:.1} MB"),
        format!("{:.1} MB", mb(without_kib)),
        mb(with_kib) / mb(without_kib)
    );
}

fn rss_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line of that name");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
}

async fn say(agents: &Agents, id: SessionId) -> Run {
    let agent = agents.agent(None).expect("an agent").name.clone();
    let request = Say {
        session: NewSession::chat(id, Source::Native, Timestamp::default()),
        agent,
        text: "hello".to_owned(),
        from: None,
        note: None,
        idempotency_key: None,
    };
    agents.say(request, &CancellationToken::new()).await.expect("it ends")
}
