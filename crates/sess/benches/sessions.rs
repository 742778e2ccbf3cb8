//! What sessions cost among themselves: sends, spawns, lists and histories.
//!
//! `cargo bench -p sess --bench sessions`; `SESS_BENCH_SCALE=0.1` makes fewer rounds. The
//! model answers at once. Bounds are bare commits or bare reads on a store of the same
//! kind, interleaved with ours; the median round counts.

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod instant;

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use sess_app::{App, Caller, ListRows, ReadHistory, SendMessage, Signals, SpawnTask, agents::Work};
use sess_core::{
    MessageId, SessionId, Source, Timestamp,
    message::{Body, Role},
    rules::{SessionLimits, SessionRules, Visibility},
    run::RunState,
    session::NewSession,
};
use sess_store::{ImportedSession, NewMessage, Span, Store};
use tokio_util::sync::CancellationToken;

use self::instant::{COMMITS, Scripted, agents, commit, median, ms, random, rounds, scale};

const SENDS: f64 = 1_000.0;
const TARGETS: usize = 50;
const SESSIONS: f64 = 10_000.0;
const MESSAGES: f64 = 100_000.0;

fn main() {
    println!("{:<54} {:>12} {:>12} {:>7}   to reach", "figure", "ours", "bound", "ratio");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let rounds = rounds();
        woken(rounds).await;
        let sends = ((SENDS * scale()) as usize).max(50);
        throughput("sends through one session, run and settled", sends, 1).await;
        throughput(&format!("sends through {TARGETS} sessions, run and settled"), sends, TARGETS).await;
        spawned(rounds / 3).await;
        reading(rounds).await;
    });
}

fn row(figure: &str, ours: Duration, bound: Duration, to_reach: &str) {
    let ratio = ours.as_secs_f64() / bound.as_secs_f64();
    println!("{figure:<54} {:>12} {:>12} {ratio:>6.2}x   {to_reach}", ms(ours), ms(bound));
}

/// Nothing is in the way of a thousand messages.
fn rules() -> SessionRules {
    let limits = SessionLimits {
        children: u32::MAX,
        queue: u32::MAX,
        tree_runs: u32::MAX,
        ..SessionLimits::default()
    };
    SessionRules { limits, visibility: Visibility::All, ..SessionRules::default() }
}

fn caller(app: &App, session: &str) -> Caller {
    app.caller(&Signals { explicit: Some(session.to_owned()), ..Signals::default() })
}

fn send(to: &str) -> SendMessage {
    let message = "hello".to_owned();
    SendMessage { to: to.to_owned(), message, timeout_seconds: Some(0), ..SendMessage::default() }
}

async fn chat(store: &dyn Store, name: &str) -> SessionId {
    let id: SessionId = name.parse().expect("an id");
    let mut new = NewSession::chat(id.clone(), Source::Native, Timestamp::default());
    new.agent = "root".parse().expect("a name");
    new.key = sess_core::SessionKey::chat(&new.agent, &new.id);
    store.ensure_session(new).await.expect("it is stored");
    id
}

/// A message is sent, durably queued, and somebody who waits for it has seen it.
async fn woken(rounds: usize) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let agents = agents(&dir.path().join("ours"), Arc::new(Scripted::default()), rules());
    let store = sess_store::open(&dir.path().join("ours")).expect("a store");
    let bare = sess_store::open(&dir.path().join("bare")).expect("a store");
    let here = chat(&*bare, "bare").await;
    chat(&*store, "requester").await;
    let caller = caller(agents.app(), "requester");
    let (mut ours, mut bound) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let to = format!("target-{round}");
        let id = chat(&*store, &to).await;
        let begun = Instant::now();
        commit(&*bare, &here, 1).await;
        bound.push(begun.elapsed());
        let mut changes = agents.app().changes().expect("a store");
        let begun = Instant::now();
        let waiting = async {
            while store.runs(Some(&id), 1).await.expect("an answer").is_empty() {
                changes.changed().await.expect("the store is open");
            }
            begun.elapsed()
        };
        let (took, sent) = tokio::join!(waiting, agents.app().send(&caller, send(&to)));
        sent.expect("it is accepted");
        ours.push(took);
    }
    row("send, queued, waiter woken", median(ours), median(bound), "under 1.5 ms");
}

/// Every message is a run: queued, executed with a model that answers at once, and settled.
async fn throughput(figure: &str, sends: usize, targets: usize) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let home = dir.path().join("ours");
    let agents = agents(&home, Arc::new(Scripted::default()), rules());
    let store = sess_store::open(&home).expect("a store");
    let owner = agents.app().cli_caller(&Signals::default());
    for target in 0..targets {
        chat(&*store, &format!("target-{target:03}")).await;
    }
    let stop = CancellationToken::new();
    let begun = Instant::now();
    let working = tokio::spawn({
        let (agents, stop) = (agents.clone(), stop.clone());
        async move { agents.work(Work::All, &stop).await }
    });
    let mut last = Vec::new();
    for n in 0..sends {
        let to = format!("target-{:03}", n % targets);
        let sent = agents.app().send(&owner, send(&to)).await.expect("it is accepted");
        if n + targets >= sends {
            last.push(sent.run_id.parse().expect("a run"));
        }
    }
    for run in &last {
        let ended =
            agents.app().wait_for(&owner, run, None, sess_app::Redaction::Masked).await.expect("it ends");
        assert_eq!(ended.state, RunState::Done, "{:?}", ended.error);
    }
    let ours = begun.elapsed();
    stop.cancel();
    working.await.expect("it ends").expect("it ends well");

    let bare = sess_store::open(&dir.path().join("bare")).expect("a store");
    let here = chat(&*bare, "bare").await;
    let begun = Instant::now();
    commit(&*bare, &here, sends * COMMITS).await;
    let bound = begun.elapsed();
    let rate = |took: Duration| format!("{:.0} /s", sends as f64 / took.as_secs_f64());
    let ratio = ours.as_secs_f64() / bound.as_secs_f64();
    println!("{figure:<54} {:>12} {:>12} {ratio:>6.2}x", rate(ours), rate(bound));
}

/// From the call to the report in the requester's session, with a model that answers at once.
async fn spawned(rounds: usize) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let home = dir.path().join("ours");
    let agents = agents(&home, Arc::new(Scripted::default()), rules());
    let store = sess_store::open(&home).expect("a store");
    let bare = sess_store::open(&dir.path().join("bare")).expect("a store");
    let here = chat(&*bare, "bare").await;
    let parent = chat(&*store, "requester").await;
    let caller = caller(agents.app(), "requester");
    let stop = CancellationToken::new();
    let working = tokio::spawn({
        let (agents, stop) = (agents.clone(), stop.clone());
        async move { agents.work(Work::All, &stop).await }
    });
    let (mut ours, mut bound) = (Vec::new(), Vec::new());
    for round in 0..rounds.max(5) {
        let begun = Instant::now();
        // Those of the child's run, and the report's.
        commit(&*bare, &here, COMMITS + 1).await;
        bound.push(begun.elapsed());
        let mut changes = agents.app().changes().expect("a store");
        let begun = Instant::now();
        let ask = SpawnTask { task: "a task".to_owned(), ..SpawnTask::default() };
        agents.app().spawn(&caller, ask).await.expect("it is accepted");
        while store.runs(Some(&parent), rounds + 5).await.expect("an answer").len() <= round {
            changes.changed().await.expect("the store is open");
        }
        ours.push(begun.elapsed());
    }
    stop.cancel();
    working.await.expect("it ends").expect("it ends well");
    row("spawn, run, reported", median(ours), median(bound), "");
}

async fn reading(rounds: usize) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let home = dir.path().join("ours");
    let sessions = ((SESSIONS * scale()) as usize).max(500);
    let messages = ((MESSAGES * scale()) as usize).max(1_000);
    fill(&home, sessions, messages).await;
    let agents = agents(&home, Arc::new(Scripted::default()), rules());
    let app = agents.app();
    let store = sess_store::open(&home).expect("a store");
    let caller = caller(app, "long");
    let owner = app.cli_caller(&Signals::default());
    let (mut list, mut rows) = (Vec::new(), Vec::new());
    let (mut last, mut history) = (Vec::new(), Vec::new());
    let long: SessionId = "long".parse().expect("an id");
    for _ in 0..rounds {
        let begun = Instant::now();
        let bare = store.list_sessions(&sess_store::SessionFilter::default(), 0, 50).await;
        list.push(begun.elapsed());
        assert_eq!(bare.expect("a list").len(), 50);
        let begun = Instant::now();
        let listed = app.session_rows(&owner, &ListRows::default()).await;
        rows.push(begun.elapsed());
        assert_eq!(listed.expect("a list").count, 50);
        let begun = Instant::now();
        let bare = store.messages(&long, Span::Last, 100).await;
        last.push(begun.elapsed());
        assert_eq!(bare.expect("a page").messages.len(), 100);
        let begun = Instant::now();
        let ask = ReadHistory { session: "current".to_owned(), ..ReadHistory::default() };
        let read = app.history(&caller, &ask).await;
        history.push(begun.elapsed());
        assert_eq!(read.expect("a history").messages.len(), 100);
    }
    row(&format!("sessions_list, 50 of {sessions}"), median(rows), median(list), "");
    row(&format!("sessions_history, 100 of {messages}"), median(history), median(last), "");
}

async fn fill(home: &Path, sessions: usize, messages: usize) {
    let store = sess_store::open(home).expect("a store");
    let at = |n: usize| Timestamp::from_millis_clamped(1_700_000_000_000 + i64::try_from(n).unwrap_or(0));
    let message = |n: usize| NewMessage {
        id: MessageId::new(at(n), random()),
        body: Body::text(Role::User, format!("message {n}: what was said about the parser"), at(n)),
    };
    for n in 0..sessions {
        let mut session = NewSession::chat(format!("s{n:06}").parse().expect("an id"), Source::Native, at(n));
        session.title = format!("session {n}");
        let imported = ImportedSession { session, starred: false, messages: vec![message(n)] };
        store.import(imported).await.expect("it is stored");
    }
    let long = chat(&*store, "long").await;
    for first in (0..messages).step_by(1_000) {
        store.append(&long, (first..first + 1_000).map(message).collect(), None).await.expect("stored");
    }
}
