//! Agents that act as a test tells them, on nodes of one store.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use serde_json::{Map, Value};
use sess_agent::{
    model::{Model, ModelError, Piece, Reply, Request as Question},
    tool::{ToolDef, ToolOutput, Toolbox},
};
use sess_app::{
    App, Caller, ConfigSource, Configured,
    agents::{Agents, AgentsSetup, Nobody, OpenModel, Work},
};
use sess_core::{
    MessageId, RunId, SessionKey,
    agent::{Agent, Team, ToolsetKind, ToolsetSpec},
    identity::Claim,
    message::{Block, Body, Provenance, Role, Usage},
    permission::{Reach, Trust},
    rules::SessionRules,
    run::{Errand, Lineage, Run, RunState, Send},
    session::{Channel, NewSession, Session},
};
use sess_store::{NewMessage, NewRun, Store};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{
    teams,
    world::{World, now, random},
};

/// What a model does when it is asked.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Say(String),
    Fail(String),
    /// Calls a tool, and is asked again with its result.
    Call(String, Value),
    /// Says it after a while.
    Later(Duration, String),
    /// Until it is stopped.
    Hang,
}

pub(crate) fn say(text: &str) -> Act {
    Act::Say(text.to_owned())
}

/// One question to the model.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) agent: String,
    pub(crate) system: String,
    pub(crate) last: String,
    pub(crate) role: Role,
    pub(crate) tools: Vec<String>,
}

type Script = dyn Fn(&Asked) -> Act + std::marker::Send + Sync;

/// What all agents of a test do, and what they were asked.
#[derive(Clone)]
pub(crate) struct Stage {
    script: Arc<Script>,
    pub(crate) asked: Arc<Mutex<Vec<Asked>>>,
}

impl Stage {
    pub(crate) fn new(script: impl Fn(&Asked) -> Act + std::marker::Send + Sync + 'static) -> Self {
        Self { script: Arc::new(script), asked: Arc::default() }
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("whole").clone()
    }

    /// Returns the last words that were asked, as `agent: words`.
    pub(crate) fn heard(&self) -> Vec<String> {
        self.asked().iter().map(|asked| format!("{}: {}", asked.agent, asked.last)).collect()
    }
}

#[async_trait]
impl Model for Stage {
    async fn reply(
        &self,
        question: &Question,
        _: &mut (dyn FnMut(Piece) + std::marker::Send),
        cancel: &CancellationToken,
    ) -> Result<Reply, ModelError> {
        let last = question.messages.last().expect("a message");
        let asked = Asked {
            agent: question.agent.as_ref().map(ToString::to_string).unwrap_or_default(),
            system: question.system.clone(),
            last: last.plain_text(),
            role: last.role,
            tools: question.tools.iter().map(|tool| tool.name.clone()).collect(),
        };
        let act = (self.script)(&asked);
        self.asked.lock().expect("whole").push(asked);
        let mut reply = Reply { model: "stage".to_owned(), ..Reply::default() };
        reply.usage = Usage { input: 10, output: 2, cost: Some(0.01), ..Usage::default() };
        match act {
            Act::Say(text) => reply.content = vec![Block::Text { text }],
            Act::Later(wait, text) => {
                tokio::time::sleep(wait).await;
                reply.content = vec![Block::Text { text }];
            }
            Act::Fail(reason) => return Err(ModelError::Refused(reason)),
            Act::Call(name, arguments) => {
                let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
                reply.content = vec![Block::ToolCall { id: format!("c{:x}", random()), name, arguments }];
            }
            Act::Hang => {
                cancel.cancelled().await;
                return Err(ModelError::Cancelled { partial: Box::default() });
            }
        }
        Ok(reply)
    }
}

/// A tool that says what it is told.
struct Parrot;

#[async_trait]
impl Toolbox for Parrot {
    async fn tools(&self) -> Vec<ToolDef> {
        vec![ToolDef {
            name: "parrot".to_owned(),
            description: String::new(),
            input_schema: Map::new(),
            reach: Reach::Harmless,
        }]
    }

    async fn call(&self, _: &str, arguments: Map<String, Value>, _: &CancellationToken) -> ToolOutput {
        ToolOutput::ok(arguments["say"].as_str().unwrap_or_default())
    }
}

pub(crate) fn agent(name: &str) -> Agent {
    let toolset = |kind| ToolsetSpec { kind, tools: None };
    Agent {
        instruction: format!("You are {name}."),
        toolsets: vec![toolset(ToolsetKind::Shell { timeout_seconds: None }), toolset(ToolsetKind::Sessions)],
        allow_agents: vec!["*".to_owned()],
        ..teams::agent(name, "stage")
    }
}

pub(crate) fn team(names: &[&str]) -> Team {
    teams::team_of(names.iter().map(|name| agent(name)).collect(), &["stage", "other"])
}

/// A world whose configuration has agents `a`, `b` and `c`.
pub(crate) fn world(change: impl FnOnce(&mut SessionRules)) -> World {
    let mut rules = SessionRules::default();
    change(&mut rules);
    let configured = Configured { team: Some(team(&["a", "b", "c"])), rules, ..Configured::default() };
    World::with(|settings| {
        settings.configured = ConfigSource::fixed(configured);
        settings.cwd = Some(std::env::temp_dir().display().to_string());
    })
}

pub(crate) fn node(app: &App, stage: &Stage, lease_ms: u64) -> Agents {
    let stage = stage.clone();
    node_with(app, Box::new(move |_| Ok(Arc::new(stage.clone()))), lease_ms)
}

pub(crate) fn node_with(app: &App, open_model: Box<OpenModel>, lease_ms: u64) -> Agents {
    app.agents(AgentsSetup {
        team: team(&["a", "b", "c"]),
        open_model,
        open_tools: Box::new(|_| Ok(Arc::new(Parrot))),
        person: Arc::new(Nobody),
        trust: Trust::All,
        lease: Duration::from_millis(lease_ms),
    })
}

/// A node at work, which can be stopped or killed.
pub(crate) struct AtWork {
    pub(crate) stop: CancellationToken,
    task: JoinHandle<()>,
}

impl AtWork {
    pub(crate) fn new(agents: &Agents) -> Self {
        let (stop, agents) = (CancellationToken::new(), agents.clone());
        let until = stop.clone();
        let task = tokio::spawn(async move { agents.work(Work::All, &until).await.expect("works") });
        Self { stop, task }
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.task.await.expect("ended");
    }

    /// Ends it at once, without a word to anybody.
    pub(crate) async fn kill(self) {
        self.task.abort();
        let _killed = self.task.await;
    }
}

/// Makes the session of an agent that has the key `agent:<name>:main`.
pub(crate) async fn main_of(store: &dyn Store, name: &str) -> Session {
    let id = sess_core::id::uuid(random());
    let mut new = NewSession::chat(id, sess_core::Source::Native, now());
    new.agent = name.parse().expect(name);
    new.key = SessionKey::main(&new.agent);
    new.cwd = Some(std::env::temp_dir().display().to_string());
    if let Some(known) = store.session_by_key(&new.key).await.expect("readable") {
        return known;
    }
    store.ensure_session(new).await.expect("made")
}

/// What an agent's tools act as.
pub(crate) fn caller_of(app: &App, session: &Session) -> Caller {
    let mut caller = app.caller(&sess_app::Signals::default());
    caller.identity.session = Claim::Id(session.id.clone(), session.source);
    caller.agent = session.agent.clone();
    caller
}

/// Queues a message from one session to another, as `sessions_send` does.
pub(crate) async fn send(
    store: &dyn Store,
    from: &Session,
    to: &Session,
    text: &str,
    rounds_max: u8,
    is_awaited: bool,
) -> Run {
    store.queue_run(new_send(from, to, text, rounds_max, is_awaited)).await.expect("queued")
}

pub(crate) fn new_send(from: &Session, to: &Session, text: &str, rounds_max: u8, is_awaited: bool) -> NewRun {
    let id = RunId::new(random());
    let mut body = Body::text(Role::User, text, now());
    body.provenance = Some(Provenance::InterSession {
        source_session_key: from.key.clone(),
        source_channel: None,
        source_tool: Some("sessions_send".to_owned()),
    });
    NewRun {
        session: to.clone().into(),
        agent: to.agent.clone(),
        at: now(),
        messages: vec![NewMessage { id: MessageId::new(now(), random()), body }],
        key: None,
        errand: Errand::Send(Send {
            requester: from.key.clone(),
            channel: Channel::Unknown,
            request: text.to_owned(),
            rounds_max,
            awaited_by: is_awaited.then(|| sess_store::this_process().expect("a process")),
        }),
        lineage: Lineage::first(&id),
        caps: Vec::new(),
        id,
    }
}

/// Returns the runs of a tree as `agent kind state`, oldest first.
pub(crate) async fn tree(store: &dyn Store, root: &RunId) -> Vec<String> {
    let runs = store.runs_below(root, 1_000).await.expect("readable");
    let line = |run: &Run| format!("{} {} {}", run.agent, kind(&run.errand), run.state);
    runs.iter().map(line).collect()
}

pub(crate) fn kind(errand: &Errand) -> String {
    match errand {
        Errand::Message => "message".to_owned(),
        Errand::Send(_) => "send".to_owned(),
        Errand::Round(round) => format!("round{}", round.number),
        Errand::Announce(_) => "announce".to_owned(),
        Errand::LateReply { .. } => "late".to_owned(),
        Errand::Spawn(_) => "spawn".to_owned(),
        Errand::Report { .. } => "report".to_owned(),
    }
}

/// Waits until a run has ended.
pub(crate) async fn ended(store: &dyn Store, run: &RunId) -> Run {
    let mut changes = store.changes();
    loop {
        changes.mark_unchanged();
        let run = store.run(run).await.expect("readable").expect("stored");
        if run.state.has_ended() {
            return run;
        }
        let _again = tokio::time::timeout(Duration::from_millis(100), changes.changed()).await;
    }
}

pub(crate) fn has_ended(run: &Run) -> bool {
    run.state != RunState::Queued && run.state != RunState::Running
}
