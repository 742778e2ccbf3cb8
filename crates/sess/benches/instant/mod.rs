//! Agents whose model answers at once, so that all the time is ours.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use serde_json::Map;
use sess_agent::model::{Model, ModelError, Piece, Reply, Request, Stop};
use sess_app::{
    App, ConfigSource, Configured, Settings,
    agents::{Agents, AgentsSetup, LEASE, Nobody},
};
use sess_core::{
    MessageId, SessionId, Timestamp,
    agent::{Agent, Limits, ModelSpec, Provider, Team, Thinking, ToolsetKind, ToolsetSpec},
    message::{Block, Body, Role},
    permission::{Permissions, Trust},
    policy::ContextVisibility,
    rules::SessionRules,
};
use sess_store::{NewMessage, Store};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Commits of a run: queued, leased with the request, ended with the reply.
pub const COMMITS: usize = 3;
const ROUNDS: f64 = 300.0;

/// A model that answers at once, or when it may.
#[derive(Default)]
pub struct Scripted {
    /// How many replies call tools before the one that says something.
    pub replies: usize,
    pub calls: usize,
    pub asked: AtomicUsize,
    pub gate: Option<Arc<Semaphore>>,
}

#[async_trait]
impl Model for Scripted {
    async fn reply(
        &self,
        request: &Request,
        _: &mut (dyn FnMut(Piece) + Send),
        _: &CancellationToken,
    ) -> Result<Reply, ModelError> {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        if let Some(gate) = &self.gate {
            gate.acquire().await.expect("the gate is never closed").forget();
        }
        let is_person = |body: &Body| body.role == Role::User;
        let since = request.messages.iter().rev().take_while(|body| !is_person(body));
        if since.filter(|body| body.role == Role::Assistant).count() < self.replies {
            let call = |n: usize| Block::ToolCall {
                id: format!("call-{asked}-{n}"),
                name: "read_session_plan".to_owned(),
                arguments: Map::new(),
            };
            let content = (0..self.calls).map(call).collect();
            return Ok(Reply { content, stop: Stop::ToolCalls, ..Reply::default() });
        }
        let content = vec![Block::Text { text: "That was all.".to_owned() }];
        Ok(Reply { content, ..Reply::default() })
    }
}

pub fn agents(home: &Path, model: Arc<Scripted>, rules: SessionRules) -> Agents {
    let configured = Configured { team: Some(team()), rules, ..Configured::default() };
    let app = App::new(Settings {
        home: Some(home.to_owned()),
        plans_dir: None,
        plans_keep_days: 0,
        context_visibility: ContextVisibility::All,
        configured: ConfigSource::fixed(configured),
        cwd: None,
        repo: None,
        homes: None,
        host: "here".to_owned(),
        now: Timestamp::default,
        random,
    });
    app.agents(AgentsSetup {
        team: team(),
        open_model: Box::new(move |_| Ok(Arc::clone(&model) as Arc<dyn Model>)),
        open_tools: Box::new(|_| Err("nothing outside is measured".to_owned())),
        person: Arc::new(Nobody),
        trust: Trust::Ask,
        lease: LEASE,
    })
}

fn team() -> Team {
    let agent = Agent {
        name: "root".parse().expect("a name"),
        description: String::new(),
        instruction: "You are measured.".to_owned(),
        model: "instant".to_owned(),
        toolsets: vec![ToolsetSpec { kind: ToolsetKind::SessionPlan, tools: None }],
        commands: Vec::new(),
        handoffs: Vec::new(),
        sub_agents: Vec::new(),
        sandbox: None,
        allow_agents: Vec::new(),
        limits: Limits { turns: Limits::TURNS, tokens: None, cost: None, seconds: None },
    };
    let model = ModelSpec {
        name: "instant".to_owned(),
        provider: Provider::Scripted,
        model: String::new(),
        base_url: None,
        token_key: None,
        max_tokens: None,
        temperature: None,
        thinking: Thinking::default(),
        context_window: None,
        price: None,
    };
    Team::new(vec![agent], vec![model], Permissions::default(), None).expect("a team")
}

/// Makes `count` bare durable commits, one after another.
pub async fn commit(store: &dyn Store, session: &SessionId, count: usize) {
    for _ in 0..count {
        let at = Timestamp::default();
        let message =
            NewMessage { id: MessageId::new(at, random()), body: Body::text(Role::User, "hello", at) };
        store.append(session, vec![message], None).await.expect("it is stored");
    }
}

pub fn random() -> u128 {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system has random bytes");
    u128::from_ne_bytes(bytes)
}

#[expect(clippy::disallowed_methods, reason = "a benchmark reads its one setting here")]
pub fn scale() -> f64 {
    std::env::var("SESS_BENCH_SCALE").ok().and_then(|text| text.parse().ok()).unwrap_or(1.0)
}

pub fn rounds() -> usize {
    ((ROUNDS * scale()) as usize).max(10)
}

pub fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

pub fn ms(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1_000.0)
}
