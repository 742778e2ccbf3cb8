//! A turn that waits for an agent to get ready can still be stopped.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use serde_json::Map;
use sess_agent::{
    model::{Model, ModelError, Piece, Reply, Request},
    tool::{ToolDef, ToolOutput, Toolbox},
    turn::{Cast, Ended, Host, HostError, News, drive},
};
use sess_core::{
    AgentId, Timestamp,
    agent::Limits,
    message::{Block, Body, Usage},
    permission::{Permissions, Reach, Trust},
    run::RunState,
    turn::{Asking, Call, Permit, Rules},
};
use tokio_util::sync::CancellationToken;

/// `quick` is ready at once and hands over to `slow`, which never is.
struct Stage {
    cancel: CancellationToken,
    limits: Limits,
    /// Whether the person stops the turn as soon as it waits for `slow`.
    is_stopped: bool,
    /// What the model takes before it breaks off; it hands over if there is nothing.
    partial: Option<Usage>,
    switched: Mutex<Vec<AgentId>>,
}

struct HandsOver(Option<Usage>);

#[async_trait]
impl Model for HandsOver {
    async fn reply(
        &self,
        _request: &Request,
        _told: &mut (dyn FnMut(Piece) + Send),
        _cancel: &CancellationToken,
    ) -> Result<Reply, ModelError> {
        if let Some(usage) = &self.0 {
            let partial = Box::new(Reply { usage: usage.clone(), ..Reply::default() });
            return Err(ModelError::Unavailable { reason: "it broke off".to_owned(), partial });
        }
        let call = Block::ToolCall { id: "1".to_owned(), name: "go".to_owned(), arguments: Map::new() };
        Ok(Reply { content: vec![call], ..Reply::default() })
    }
}

#[async_trait]
impl Toolbox for HandsOver {
    async fn tools(&self) -> Vec<ToolDef> {
        Vec::new()
    }

    async fn call(
        &self,
        _name: &str,
        _arguments: Map<String, serde_json::Value>,
        _cancel: &CancellationToken,
    ) -> ToolOutput {
        ToolOutput { hand_off: Some(agent("slow")), ..ToolOutput::ok("gone") }
    }
}

#[async_trait]
impl Host for Stage {
    async fn cast(&self, wanted: &AgentId) -> Result<Cast, HostError> {
        if *wanted == agent("slow") {
            if self.is_stopped {
                self.cancel.cancel();
            }
            std::future::pending::<()>().await;
        }
        let go = ToolDef {
            name: "go".to_owned(),
            description: String::new(),
            input_schema: Map::new(),
            reach: Reach::Harmless,
        };
        let rules = Rules {
            permissions: Permissions::default(),
            trust: Trust::All,
            asking: Asking::Nobody,
            limits: self.limits,
            context_window: None,
            tools: vec![("go".to_owned(), Reach::Harmless)],
        };
        let model = Arc::new(HandsOver(self.partial.clone()));
        Ok(Cast { system: String::new(), model, tools: vec![(go, Arc::new(HandsOver(None)))], rules })
    }

    async fn transcript(&self) -> Result<Vec<Body>, HostError> {
        Ok(Vec::new())
    }

    async fn begin(&self) -> Result<(), HostError> {
        Ok(())
    }

    async fn record(&self, _messages: Vec<Body>) -> Result<(), HostError> {
        Ok(())
    }

    async fn switch(&self, agent: &AgentId) -> Result<(), HostError> {
        self.switched.lock().expect("whole").push(agent.clone());
        Ok(())
    }

    async fn permit(&self, _call: &Call) -> Permit {
        Permit::Granted
    }

    fn tell(&self, _news: News) {}

    fn now(&self) -> Timestamp {
        Timestamp::default()
    }
}

fn agent(name: &str) -> AgentId {
    name.parse().expect("a name")
}

async fn run(first: &str, limits: Limits, is_stopped: bool, partial: Option<Usage>) -> (Ended, Vec<AgentId>) {
    let cancel = CancellationToken::new();
    let switched = Mutex::default();
    let stage = Arc::new(Stage { cancel: cancel.clone(), limits, is_stopped, partial, switched });
    let driven = drive(Arc::clone(&stage) as Arc<dyn Host>, agent(first), &cancel);
    let ended = tokio::time::timeout(Duration::from_secs(1_000), driven).await.expect("it ends");
    let switched = stage.switched.lock().expect("whole").clone();
    (ended.expect("no failure"), switched)
}

#[tokio::test(start_paused = true)]
async fn a_turn_is_cancelled_while_its_agent_gets_ready() {
    let (ended, _) = run("slow", Limits::default(), true, None).await;
    assert_eq!(ended.verdict.state, RunState::Cancelled);
    let (ended, switched) = run("quick", Limits::default(), true, None).await;
    assert_eq!(ended.verdict.state, RunState::Cancelled);
    assert_eq!(switched, [agent("slow")]);
}

#[tokio::test(start_paused = true)]
async fn time_ends_a_handoff_to_an_agent_that_does_not_get_ready() {
    let limits = Limits { seconds: Some(5), ..Limits::default() };
    let (ended, _) = run("quick", limits, false, None).await;
    assert_eq!(
        ended.verdict.error.as_deref(),
        Some("stopped after 5 s (limits.seconds or runTimeoutSeconds)")
    );
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_broke_off_is_paid_for() {
    let usage = Usage { input: 7, output: 2, ..Usage::default() };
    let (ended, _) = run("quick", Limits::default(), false, Some(usage.clone())).await;
    assert_eq!((ended.verdict.state, ended.usage), (RunState::Failed, usage));
}
