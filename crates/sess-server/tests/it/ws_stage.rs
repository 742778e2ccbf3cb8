//! A gateway with agents that do what they are told, and clients of its WebSocket.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    ops::{Deref, DerefMut},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use sess_agent::model::{Model, ModelError, Piece, Reply, Request as Question};
use sess_app::{
    App, Configured, NewToken,
    agents::{Agents, AgentsSetup, Nobody},
};
use sess_core::{
    RunId, Source,
    agent::{Agent, Limits as AgentLimits, ModelSpec, Provider, Team, Thinking},
    message::{Block, Role, Usage},
    permission::{Permissions, Trust},
    run::{Errand, Send},
    session::{Channel, NewSession, Session},
};
use sess_protocol::tokens::Scope;
use sess_server::gateway::Limits;
use sess_store::{NewRun, Store};
use tokio::net::TcpStream;
use tokio_tungstenite::{WebSocketStream, tungstenite::Message};
use tokio_util::sync::CancellationToken;

use crate::gateway::{Cast, Gateway, message, now, random};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Says what it is told to: `say …`, `stream …` in words, `slow …` after a while, `fail`, or `hang` until it is stopped.
#[derive(Clone)]
struct Obedient;

#[async_trait]
impl Model for Obedient {
    async fn reply(
        &self,
        question: &Question,
        told: &mut (dyn FnMut(Piece) + std::marker::Send),
        cancel: &CancellationToken,
    ) -> Result<Reply, ModelError> {
        let asked = question.messages.last().expect("a message").plain_text();
        let (word, rest) = asked.split_once(' ').unwrap_or((asked.as_str(), ""));
        let text = match word {
            "hang" => {
                cancel.cancelled().await;
                return Err(ModelError::Cancelled { partial: Box::default() });
            }
            "slow" => {
                tokio::time::sleep(Duration::from_millis(700)).await;
                rest.to_owned()
            }
            "fail" => return Err(ModelError::Refused("the model said no".to_owned())),
            "stream" => {
                for word in rest.split_inclusive(' ') {
                    told(Piece::Text(word.to_owned()));
                }
                rest.to_owned()
            }
            "Agent-to-agent" => "announced words".to_owned(),
            _ => format!("you said: {asked}"),
        };
        let usage = Usage { input: 10, output: 2, cost: Some(0.01), ..Usage::default() };
        Ok(Reply {
            content: vec![Block::Text { text }],
            model: "obedient".to_owned(),
            usage,
            ..Reply::default()
        })
    }
}

fn agent(name: &str) -> Agent {
    Agent {
        name: name.parse().expect(name),
        description: format!("does what {name} does"),
        instruction: String::new(),
        model: "obedient".to_owned(),
        toolsets: Vec::new(),
        commands: Vec::new(),
        handoffs: Vec::new(),
        sub_agents: Vec::new(),
        sandbox: None,
        allow_agents: Vec::new(),
        limits: AgentLimits::default(),
    }
}

fn team() -> Team {
    let model = |name: &str| ModelSpec {
        name: name.to_owned(),
        provider: Provider::Scripted,
        model: String::new(),
        base_url: None,
        token_key: None,
        max_tokens: None,
        temperature: None,
        thinking: Thinking::Unset,
        context_window: None,
        price: None,
    };
    let (agents, models) = (vec![agent("a"), agent("b")], vec![model("obedient"), model("other")]);
    Team::new(agents, models, Permissions::default(), None).expect("a team")
}

fn agents(app: &App) -> Agents {
    app.agents(AgentsSetup {
        team: team(),
        open_model: Box::new(|_| Ok(Arc::new(Obedient))),
        open_tools: Box::new(|_| Err("there are no tools".to_owned())),
        person: Arc::new(Nobody),
        trust: Trust::All,
        lease: Duration::from_secs(5),
    })
}

/// A gateway in which agents work.
pub(crate) struct Stage(Gateway);

impl Deref for Stage {
    type Target = Gateway;

    fn deref(&self) -> &Gateway {
        &self.0
    }
}

impl DerefMut for Stage {
    fn deref_mut(&mut self) -> &mut Gateway {
        &mut self.0
    }
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Self::limited(|_| {}).await
    }

    pub(crate) async fn limited(change: impl FnOnce(&mut Limits)) -> Self {
        let cast = Cast {
            configured: || Configured { team: Some(team()), ..Configured::default() },
            agents: |app| Some(agents(app)),
        };
        Self(Gateway::start_cast(cast, |options| change(&mut options.limits)).await)
    }

    pub(crate) async fn new_token(&self, scopes: &[Scope], agent: Option<&str>) -> String {
        let agent = agent.map(|agent| agent.parse().expect(agent));
        self.0.new_token(NewToken { scopes: scopes.to_vec(), agent, ..NewToken::default() }).await
    }

    /// Makes a session of an agent.
    pub(crate) async fn session(&self, key: &str) -> Session {
        let mut new = NewSession::chat(sess_core::id::uuid(random()), Source::Native, now());
        new.key = key.parse().expect(key);
        new.agent = new.key.agent().expect("an agent");
        self.store().ensure_session(new).await.expect("a session")
    }

    /// Returns a client that was let in with the owner's token.
    pub(crate) async fn client(&self) -> Client {
        self.client_with(&self.token).await
    }

    pub(crate) async fn client_with(&self, token: &str) -> Client {
        let mut client = Client::open(self.address).await;
        let hello = client.connect(token).await.expect("let in");
        assert_eq!(hello["type"], "hello-ok");
        client
    }
}

pub(crate) async fn append(store: &dyn Store, session: &Session, text: &str) {
    store.append(&session.id, vec![message(Role::User, text)], None).await.expect("appended");
}

pub(crate) struct Client {
    pub(crate) socket: WebSocketStream<TcpStream>,
    next_id: u64,
    /// The number of the last event.
    seq: u64,
    events: VecDeque<Value>,
}

impl Client {
    pub(crate) async fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("it listens");
        let (socket, _) =
            tokio_tungstenite::client_async(format!("ws://{address}/ws"), stream).await.expect("a WebSocket");
        Self { socket, next_id: 1, seq: 0, events: VecDeque::new() }
    }

    pub(crate) async fn connect(&mut self, token: &str) -> Result<Value, String> {
        let client = json!({ "id": "test", "version": "1" });
        let auth = json!({ "token": token });
        let params = json!({ "minProtocol": 1, "maxProtocol": 1, "client": client, "auth": auth });
        self.ask("connect", params).await
    }

    pub(crate) async fn send(&mut self, method: &str, params: Value) -> String {
        let id = self.next_id.to_string();
        self.next_id += 1;
        let frame = json!({ "type": "req", "id": id, "method": method, "params": params });
        self.socket.send(Message::text(frame.to_string())).await.expect("sent");
        id
    }

    /// Asks, and returns the payload, or `code: message`.
    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> Result<Value, String> {
        let id = self.send(method, params).await;
        self.answer(&id).await
    }

    pub(crate) async fn answer(&mut self, id: &str) -> Result<Value, String> {
        loop {
            let frame = self.frame().await.expect("an answer");
            if frame["type"] == "res" {
                assert_eq!(frame["id"], id, "{frame}");
                return result(frame);
            }
            self.events.push_back(frame);
        }
    }

    /// Returns the next event as name and payload.
    pub(crate) async fn event(&mut self) -> (String, Value) {
        let mut frame = match self.events.pop_front() {
            Some(frame) => frame,
            None => self.frame().await.expect("an event"),
        };
        assert_eq!(frame["type"], "event", "{frame}");
        (frame["event"].as_str().expect("a name").to_owned(), frame["payload"].take())
    }

    /// Returns the payload of the next event of this name.
    pub(crate) async fn event_of(&mut self, name: &str) -> Value {
        loop {
            let (found, payload) = self.event().await;
            if found == name {
                return payload;
            }
        }
    }

    /// Returns the next `sessions.changed` with this phase.
    pub(crate) async fn changed(&mut self, phase: &str) -> Value {
        loop {
            let changed = self.event_of("sessions.changed").await;
            if changed["phase"] == phase {
                return changed;
            }
        }
    }

    /// Returns the next frame, after it checked the numbers of events; `None` when the connection is over.
    pub(crate) async fn frame(&mut self) -> Option<Value> {
        loop {
            let next = tokio::time::timeout(PATIENCE, self.socket.next()).await.expect("in time");
            match next {
                Some(Ok(Message::Text(text))) => {
                    let frame: Value = serde_json::from_str(text.as_str()).expect("JSON");
                    if frame["type"] == "event" {
                        assert_eq!(frame["seq"], self.seq + 1, "{frame}");
                        self.seq += 1;
                    }
                    return Some(frame);
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                _ => return None,
            }
        }
    }

    /// Reads to the end; returns the last error as `code: message`, and the code of the close frame.
    pub(crate) async fn end(&mut self) -> (Option<String>, Option<u16>) {
        let mut last = None;
        loop {
            let next = tokio::time::timeout(PATIENCE, self.socket.next()).await.expect("in time");
            match next {
                Some(Ok(Message::Text(text))) => {
                    let frame: Value = serde_json::from_str(text.as_str()).expect("JSON");
                    last = (frame["type"] == "res").then(|| result(frame)).and_then(Result::err);
                }
                Some(Ok(Message::Close(close))) => return (last, close.map(|close| close.code.into())),
                Some(Ok(_)) => {}
                None | Some(Err(_)) => return (last, None),
            }
        }
    }
}

fn result(mut frame: Value) -> Result<Value, String> {
    if frame["ok"] == true {
        assert!(frame.get("error").is_none(), "{frame}");
        return Ok(frame["payload"].take());
    }
    assert_eq!(frame["ok"], false, "{frame}");
    let part = |name: &str| frame["error"][name].as_str().expect("a text").to_owned();
    Err(format!("{}: {}", part("code"), part("message")))
}

/// Queues a message from one session to another, as `sessions_send` does.
pub(crate) async fn send(store: &dyn Store, from: &Session, to: &Session, text: &str) {
    let id = RunId::new(random());
    let mut run = NewRun::message(id, to.clone().into(), to.agent.clone(), now());
    run.messages = vec![message(Role::User, text)];
    run.errand = Errand::Send(Send {
        requester: from.key.clone(),
        channel: Channel::Unknown,
        request: text.to_owned(),
        rounds_max: 0,
        awaited_by: None,
    });
    store.queue_run(run).await.expect("queued");
}
