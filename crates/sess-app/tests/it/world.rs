//! A home of its own for each test, with a clock and random bits that are known.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use serde_json::{Value, json};
use sess_app::{
    App, Caller, Settings, Signals,
    tools::{ToolAnswer, ToolCall},
};
use sess_core::{
    MessageId, SessionId, SessionKey, Timestamp,
    message::Body,
    policy::{Confinement, ContextVisibility},
    session::{NewSession, Session},
};
use sess_store::{NewMessage, Store};
use tempfile::TempDir;

/// When every test takes place.
pub(crate) const NOW: &str = "2026-11-15T12:00:00Z";

pub(crate) struct World {
    dir: TempDir,
    pub(crate) app: App,
}

pub(crate) fn at(text: &str) -> Timestamp {
    Timestamp::parse_rfc3339(text).expect(text)
}

pub(crate) fn id(text: &str) -> SessionId {
    text.parse().expect(text)
}

pub(crate) fn now() -> Timestamp {
    at(NOW)
}

/// Different at each call, in every process and run the same.
pub(crate) fn random() -> u128 {
    static CALLS: AtomicU64 = AtomicU64::new(1);
    let n = CALLS.fetch_add(1, Ordering::Relaxed);
    u128::from(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 64 | u128::from(n)
}

pub(crate) fn settings(home: &Path) -> Settings {
    Settings {
        home: Some(home.to_owned()),
        plans_dir: None,
        plans_keep_days: 30,
        context_visibility: ContextVisibility::All,
        configured: sess_app::ConfigSource::fixed(sess_app::Configured::default()),
        cwd: None,
        repo: None,
        homes: None,
        host: "here".to_owned(),
        now,
        random,
    }
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut settings = settings(dir.path());
        change(&mut settings);
        Self { dir, app: App::new(settings) }
    }

    pub(crate) fn home(&self) -> &Path {
        self.dir.path()
    }

    /// Returns what another process on the same home would have.
    pub(crate) fn other_process(&self) -> App {
        App::new(self.app.settings().clone())
    }

    pub(crate) fn plans(&self) -> PathBuf {
        self.home().join("session_plans")
    }

    pub(crate) fn plan_path(&self, session: &str) -> PathBuf {
        self.plans().join(format!("{session}.md"))
    }

    /// Returns the names in the plan directory, but for the lock.
    pub(crate) fn plan_names(&self) -> Vec<String> {
        let Ok(dir) = std::fs::read_dir(self.plans()) else { return Vec::new() };
        let names = dir.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"));
        let mut names: Vec<String> = names.filter(|name| name != ".lock").collect();
        names.sort();
        names
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        sess_store::open(self.home()).expect("a store")
    }

    /// Writes to the database behind the store's back.
    pub(crate) fn sql(&self, sql: &str) -> usize {
        let database = rusqlite::Connection::open(self.home().join("sess.db")).expect("a database");
        database.busy_timeout(std::time::Duration::from_secs(10)).expect("a time-out");
        database.execute(sql, []).expect(sql)
    }

    /// Makes a session from `id [name=value]…`; values have no spaces but `title`, which is last.
    pub(crate) async fn session(&self, line: &str) -> Session {
        self.store().ensure_session(new_session(line)).await.expect(line)
    }

    /// Appends messages; each is a line of JSON without the time, which counts minutes from the session's start.
    pub(crate) async fn messages(&self, session: &Session, lines: &[&str]) {
        let messages = lines.iter().zip(1..).map(|(line, minute)| {
            let mut body: Value = serde_json::from_str(line).expect(line);
            if body.get("timestamp").is_none() {
                body["timestamp"] = json!(session.created_at.as_millis() + minute * 60_000);
            }
            let body: Body = serde_json::from_value(body).expect(line);
            NewMessage { id: MessageId::new(body.timestamp, random()), body }
        });
        self.store().append(&session.id, messages.collect(), None).await.expect("appended");
    }

    /// Makes a session with one message, last active at `at`.
    pub(crate) async fn said(&self, line: &str, text: &str, when: &str) -> Session {
        let session = self.session(line).await;
        let at = at(when).as_millis();
        self.messages(
            &session,
            &[&json!({"role": "user", "content": [{"type": "text", "text": text}], "timestamp": at})
                .to_string()],
        )
        .await;
        session
    }

    pub(crate) fn agent(&self, session: &str) -> Caller {
        self.app.caller(&Signals { explicit: Some(session.to_owned()), ..Signals::default() })
    }

    pub(crate) fn sandboxed(&self, session: &str) -> Caller {
        Caller { confinement: Confinement::Sandboxed, ..self.agent(session) }
    }

    pub(crate) fn owner(&self) -> Caller {
        self.app.cli_caller(&Signals::default())
    }

    /// Calls a tool as the agent of `session`; errors are marked as such.
    pub(crate) async fn call(&self, session: &str, tool: &str, arguments: Value) -> String {
        told(&self.answer(&self.agent(session), tool, arguments).await)
    }

    pub(crate) async fn answer(&self, caller: &Caller, tool: &str, arguments: Value) -> ToolAnswer {
        answer(&self.app, caller, tool, arguments).await
    }

    pub(crate) async fn write(&self, session: &str, content: &str) -> String {
        self.call(session, "write_session_plan", json!({"content": content})).await
    }

    pub(crate) async fn read(&self, session: &str) -> String {
        self.call(session, "read_session_plan", json!({})).await
    }

    pub(crate) async fn exit(&self, session: &str) -> String {
        self.call(session, "exit_plan_mode", json!({})).await
    }

    pub(crate) async fn stored(&self, session: &str) -> Session {
        self.store().session(&id(session)).await.expect("readable").expect("stored")
    }

    /// Returns the revisions as `number agent bytes`.
    pub(crate) async fn log(&self, session: &str) -> Vec<String> {
        let log = self.app.plan_log(&self.stored(session).await, 1_000).await.expect("a log");
        log.iter().map(|entry| format!("{} {} {}", entry.revision, entry.agent, entry.bytes)).collect()
    }

    /// Returns everything that happened after a cursor.
    pub(crate) async fn events(&self, after: u64) -> Vec<sess_app::Event> {
        let ask = sess_app::ReadEvents { after, limit: 10_000, ..sess_app::ReadEvents::default() };
        self.app.events(&self.owner(), &ask).await.expect("events").events
    }

    /// Returns the events about plans, as `type revision …`.
    pub(crate) async fn plan_events(&self) -> Vec<String> {
        let events = self.events(0).await;
        let plans = events.iter().filter_map(|event| match event.fields["type"].as_str()? {
            "session_plan_updated" => Some(format!(
                "updated {} {} by {}",
                event.fields["session_id"].as_str()?,
                event.fields["revision"],
                event.fields["agent_name"].as_str()?
            )),
            "session_plan_state" => Some(format!(
                "state {} {} {} by {}{}",
                event.fields["session_id"].as_str()?,
                event.fields["revision"],
                event.fields["state"].as_str()?,
                event.fields["by"].as_str()?,
                event.fields.get("note").map_or_else(String::new, |note| format!(" {note}"))
            )),
            _ => None,
        });
        plans.collect()
    }
}

pub(crate) async fn answer(app: &App, caller: &Caller, tool: &str, arguments: Value) -> ToolAnswer {
    let call = ToolCall { name: tool.to_owned(), arguments, idempotency_key: None };
    app.call_tool(caller, call).await.expect(tool)
}

pub(crate) fn told(answer: &ToolAnswer) -> String {
    assert_eq!(answer.structured.is_none(), answer.is_error, "{answer:?}");
    if answer.is_error { format!("error: {}", answer.text) } else { answer.text.clone() }
}

pub(crate) fn new_session(line: &str) -> NewSession {
    let (fields, title) = match line.split_once(" title=") {
        Some((fields, title)) => (fields, title),
        None => (line, ""),
    };
    let mut fields = fields.split(' ');
    let session = id(fields.next().expect("an id"));
    let mut source = sess_core::Source::Native;
    let mut rest = Vec::new();
    for field in fields {
        match field.split_once('=').expect(field) {
            ("source", name) => source = name.parse().expect(name),
            field => rest.push(field),
        }
    }
    let mut new = NewSession::chat(session, source, at("2026-11-01T12:00:00Z"));
    new.title = title.to_owned();
    for (name, value) in rest {
        match name {
            "agent" => {
                new.agent = value.parse().expect(value);
                new.key = SessionKey::chat(&new.agent, &new.id);
            }
            "key" => new.key = value.parse().expect(value),
            "parent" => new.parent = Some(value.parse().expect(value)),
            "cwd" => new.cwd = Some(value.to_owned()),
            "at" => new.created_at = at(value),
            _ => panic!("{name} is no field of a session"),
        }
    }
    new
}

/// Writes a user's or an assistant's text as a message.
pub(crate) fn text(role: &str, text: &str) -> String {
    json!({"role": role, "content": [{"type": "text", "text": text}]}).to_string()
}
