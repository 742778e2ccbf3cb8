//! A scratch store, and short ways to say what goes in and what came out.

use std::{path::Path, sync::Arc, time::Duration};

use sess_core::{
    AgentId, MessageId, RunId, SessionId, Source, Timestamp,
    message::{Body, Role, Usage},
    run::{BootTime, Errand, Lineage, Outcome, RunState, Send},
    session::{Channel, Facts, NewSession, Runner},
};
use sess_store::{
    Error, FeedItem, Happening, Lease, MessagePage, NewMessage, NewRun, PlanWrite, Position, RequestKey,
    Store,
};
use tempfile::TempDir;

/// How long anything may take before a test says that it will never come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A directory that goes away, and the way to open a store in it.
pub(crate) struct Scratch {
    dir: TempDir,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a temporary directory") }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn open(&self) -> Arc<dyn Store> {
        sess_store::open(self.path()).expect("the store opens")
    }

    pub(crate) fn try_open(&self) -> Result<Arc<dyn Store>, Error> {
        sess_store::open(self.path())
    }

    pub(crate) fn file(&self) -> std::path::PathBuf {
        self.path().join("sess.db")
    }
}

/// Runs a story to its end.
pub(crate) fn run<T>(story: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build();
    runtime.expect("a runtime").block_on(story)
}

pub(crate) fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms).expect("a time in range")
}

pub(crate) fn id(text: &str) -> SessionId {
    text.parse().expect(text)
}

pub(crate) fn chat(text: &str) -> NewSession {
    NewSession::chat(id(text), Source::Native, at(1_000))
}

/// A message whose id follows from its text and time, as an import's does.
pub(crate) fn say(text: &str) -> NewMessage {
    say_at(text, 2_000)
}

pub(crate) fn say_at(text: &str, ms: i64) -> NewMessage {
    say_as(Role::User, text, ms)
}

pub(crate) fn say_as(role: Role, text: &str, ms: i64) -> NewMessage {
    let digest = text.bytes().fold(0xcbf2_9ce4_8422_2325_u128, |hash, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(0x1000_0000_01b3) & ((1 << 80) - 1)
    });
    NewMessage { id: MessageId::new(at(ms), digest), body: Body::text(role, text, at(ms)) }
}

pub(crate) fn key(key: &str, fingerprint: &str) -> Option<RequestKey> {
    Some(RequestKey { key: key.to_owned(), fingerprint: fingerprint.to_owned() })
}

pub(crate) fn agent(name: &str) -> AgentId {
    name.parse().expect(name)
}

/// The `n`-th run of a test, shown as its last four digits.
pub(crate) fn run_id(n: u64) -> RunId {
    RunId::new(u128::from(n))
}

/// A run of `main` that was asked for with one message.
pub(crate) fn ask(n: u64, session: &str) -> NewRun {
    let asked = NewRun::message(run_id(n), chat(session), agent("main"), at(4_000));
    NewRun { messages: vec![say(&format!("ask {n}"))], ..asked }
}

/// A message from the chat `from`, whose sender waits.
pub(crate) fn send(from: &str) -> Errand {
    Errand::Send(Send {
        requester: chat(from).key,
        channel: Channel::Internal,
        request: "please".to_owned(),
        rounds_max: 5,
        awaited_by: Some(sess_store::this_process().expect("a process")),
    })
}

/// The lineage of a run that the `n`-th one asked for, which is a root.
pub(crate) fn below(n: u64) -> Lineage {
    Lineage { root: run_id(n), parent: Some(run_id(n)), hops: 1 }
}

/// A session that another program runs.
pub(crate) fn hosted(text: &str) -> NewSession {
    let facts = Facts { runner: Runner::Host, ..Facts::default() };
    NewSession { facts, ..chat(text) }
}

pub(crate) fn boot(boot_id: &str, millis: u64) -> BootTime {
    BootTime { boot_id: boot_id.to_owned(), millis }
}

/// The lease of one holder, on the boot `b`.
pub(crate) fn lease(token: &str, until_ms: u64) -> Lease {
    Lease { token: token.to_owned(), node: token.to_owned(), until: boot("b", until_ms) }
}

pub(crate) fn done(result: &str) -> Outcome {
    Outcome {
        state: RunState::Done,
        result: Some(result.to_owned()),
        error: None,
        usage: Usage { input: 3, output: 4, cost: Some(0.1), ..Usage::default() },
    }
}

pub(crate) fn plan(content: &str) -> PlanWrite {
    PlanWrite {
        content: content.to_owned(),
        agent: "ann".to_owned(),
        at: at(3_000),
        expect_revision: None,
        key: None,
    }
}

/// Writes a page as `seq text` a line; what is damaged as `seq ! reason`.
pub(crate) fn shown(page: &MessagePage) -> Vec<String> {
    let mut lines: Vec<(u64, String)> = page
        .messages
        .iter()
        .map(|message| (message.seq, message.parse().expect("a whole body").plain_text()))
        .chain(page.damaged.iter().map(|message| (message.seq, format!("! {}", message.reason))))
        .collect();
    lines.sort();
    lines.into_iter().map(|(seq, text)| format!("{seq} {text}")).collect()
}

pub(crate) async fn transcript(store: &dyn Store, session: &str) -> Vec<String> {
    let page = store.messages(&id(session), sess_store::Span::After(0), usize::MAX >> 1).await;
    shown(&page.expect("a transcript"))
}

/// Writes what happened as one line.
pub(crate) fn told(item: &FeedItem) -> String {
    let session = &item.session;
    match &item.what {
        Happening::Message(message) => {
            format!("{session} {} {}", message.seq, message.parse().expect("a whole body").plain_text())
        }
        Happening::SessionCreated { key, .. } => format!("{session} created as {key}"),
        Happening::SessionChanged { change, .. } => format!("{session} {change}"),
        Happening::PlanUpdated { revision, path, agent, content, .. } => {
            format!("{session} plan {revision} by {agent} in {path}: {content}")
        }
        Happening::PlanState { revision, state, by, note, .. } => {
            format!("{session} plan {revision} {state} by {by} {}", note.as_deref().unwrap_or("-"))
        }
        Happening::RunState { run, agent, state, error, .. } => {
            let run = &run.as_str()[32..];
            format!("{session} run {run} of {agent} {state} {}", error.as_deref().unwrap_or("-"))
        }
        Happening::SessionDeleted { key, by, messages, .. } => {
            format!("{session} deleted as {key} by {by} with {messages}")
        }
        Happening::Damaged { reason } => format!("{session} ! {reason}"),
    }
}

/// Reads the feed after a position to its end, `step` items at a time.
pub(crate) async fn follow(store: &dyn Store, mut after: Position, step: usize) -> Vec<FeedItem> {
    let mut all = Vec::new();
    loop {
        let items = store.feed(after, step).await.expect("the feed");
        let Some(last) = items.last() else { return all };
        assert!(items.len() <= step, "a page is never longer than asked for");
        after = last.position;
        all.extend(items);
    }
}

pub(crate) async fn story_so_far(store: &dyn Store) -> Vec<String> {
    follow(store, Position(0), 1_000).await.iter().map(told).collect()
}

/// Waits until `holds` does, woken by the store's own notices.
pub(crate) async fn wait_until(store: &dyn Store, what: &str, holds: impl AsyncFn() -> bool) {
    let mut changes = store.changes();
    let waiting = async {
        while !holds().await {
            changes.changed().await.expect("the store is open");
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("waited in vain: {what}"));
}

/// How many random lives a model is given.
#[expect(clippy::disallowed_methods, reason = "`just test-faults` asks for more cases this way")]
pub(crate) fn cases() -> u32 {
    std::env::var("SESS_PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(40)
}
