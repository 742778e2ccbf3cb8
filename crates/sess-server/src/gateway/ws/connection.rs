//! One client that was let in.

use std::{panic::AssertUnwindSafe, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use sess_app::{Access, Caller};
use sess_protocol::{
    errors::ErrorType,
    events::Tick,
    frames::{HelloOk, PROTOCOL, Policy, RequestFrame, ServerInfo},
    tokens::Scope,
};
use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinSet,
    time::Instant,
};
use tokio_tungstenite::tungstenite::{
    self, Message,
    protocol::frame::{
        Frame,
        coding::{Data, OpCode},
    },
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    super::{errors::Problem, state::State},
    Connected, NO_TEXT, Refusal, Socket, error_frame,
    events::{EVENTS, Event},
    methods::{self, Ask, Does, METHODS},
    read_request, refuse,
    subscriptions::Subscriptions,
};

/// How much may wait to be written.
const QUEUE_LEN: usize = 32;
/// After how many ticks without a sign a client counts as gone: each tick asks it for one.
const SILENT_TICKS: u32 = 3;
/// Larger frames are written in pieces of this size: what a frame needed once is kept for as long as the
/// connection lasts.
const PIECE_BYTES: usize = 8 * 1024;

/// Something to be written.
#[derive(Debug)]
pub(super) enum Out {
    /// A whole frame.
    Answer(String),
    /// Gets its number when it is written, and so every number is sent.
    Event(Event),
}

pub(super) struct Connection {
    state: Arc<State>,
    socket: Socket,
    access: Access,
    caller: Caller,
    out: mpsc::Sender<Out>,
    waiting: mpsc::Receiver<Out>,
    subscriptions: Subscriptions,
    /// What it has asked for and was not answered yet.
    asked: JoinSet<()>,
    in_flight: Arc<Semaphore>,
    /// Cancelled when the token counts no longer.
    cut: CancellationToken,
    /// The number of the last event.
    seq: u64,
    heard_at: Instant,
    request: String,
    /// Whatever is done for the client hears when it is gone.
    _gone: DropGuard,
}

impl Connection {
    pub(super) fn new(state: Arc<State>, socket: Socket, connected: Connected) -> Self {
        let Connected { request, access, client } = connected;
        let mut caller = state.app.door_caller(&access, Some(&client.id));
        let gone = CancellationToken::new();
        caller.gone = gone.clone();
        let (out, waiting) = mpsc::channel(QUEUE_LEN);
        Self {
            cut: state.while_counts(&access),
            subscriptions: Subscriptions::new(Arc::clone(&state), caller.clone(), out.clone()),
            in_flight: Arc::new(Semaphore::new(state.limits.in_flight)),
            state,
            socket,
            access,
            caller,
            out,
            waiting,
            asked: JoinSet::new(),
            seq: 0,
            heard_at: Instant::now(),
            request,
            _gone: gone.drop_guard(),
        }
    }

    /// Serves the client until it goes or is sent away.
    pub(super) async fn run(mut self) {
        let end = match self.converse().await {
            Ok(()) => Refusal::Gone,
            Err(end) => end,
        };
        refuse(self.socket, end).await;
    }

    async fn converse(&mut self) -> Result<(), Refusal> {
        let request = std::mem::take(&mut self.request);
        let hello = methods::answer_frame(request, Ok(methods::json(&self.hello())));
        self.say(hello).await?;
        let every = self.state.limits.keepalive;
        let mut tick_at = Instant::now() + every;
        loop {
            tokio::select! {
                biased;
                () = self.cut.cancelled() => return Err(Refusal::Cut),
                () = self.state.stop.cancelled() => {
                    // What was asked for is answered, and said before the goodbye.
                    while let Ok(out) = self.waiting.try_recv() {
                        self.write(out).await?;
                    }
                    return Err(Refusal::Gone);
                }
                () = tokio::time::sleep_until(tick_at) => {
                    tick_at = Instant::now() + every;
                    self.tick(every).await?;
                }
                heard = self.socket.next() => self.hear(heard).await?,
                Some(out) = self.waiting.recv() => self.write(out).await?,
                Some(_) = self.asked.join_next(), if !self.asked.is_empty() => {}
            }
        }
    }

    fn hello(&self) -> HelloOk {
        let limits = &self.state.limits;
        let number = |limit: usize| u32::try_from(limit).unwrap_or(u32::MAX);
        let allowed = METHODS.iter().filter(|method| self.access.allows(method.scope));
        HelloOk {
            r#type: "hello-ok".to_owned(),
            protocol: PROTOCOL,
            server: ServerInfo { version: env!("CARGO_PKG_VERSION").to_owned() },
            methods: allowed.map(|method| method.name.to_owned()).collect(),
            events: EVENTS.map(str::to_owned).to_vec(),
            policy: Policy {
                scopes: Scope::ALL.into_iter().filter(|scope| self.access.allows(*scope)).collect(),
                agent: self.access.agent.as_ref().map(ToString::to_string),
                max_frame_bytes: limits.frame_bytes as u64,
                max_subscriptions: number(limits.subscriptions),
                max_in_flight: number(limits.in_flight),
                tick_seconds: u32::try_from(limits.keepalive.as_secs().max(1)).unwrap_or(u32::MAX),
            },
        }
    }

    /// Says that the gateway is there, and asks whether the client is.
    async fn tick(&mut self, every: Duration) -> Result<(), Refusal> {
        if self.heard_at.elapsed() > every * SILENT_TICKS {
            tracing::debug!("a WebSocket's client is gone without a word");
            return Err(Refusal::Gone);
        }
        let at = self.state.app.time().as_millis();
        self.write(Out::Event(Event::new("tick", &Tick { at }))).await?;
        self.send(Message::Ping(Bytes::new())).await
    }

    async fn hear(&mut self, heard: Option<Result<Message, tungstenite::Error>>) -> Result<(), Refusal> {
        self.heard_at = Instant::now();
        match heard {
            Some(Ok(Message::Text(text))) => self.take(read_request(text.as_str())?).await,
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(()),
            Some(Ok(Message::Binary(_) | Message::Frame(_))) => {
                Err(Refusal::to("", Problem::invalid(NO_TEXT)))
            }
            Some(Ok(Message::Close(_))) => Err(Refusal::Leaves),
            None => Err(Refusal::Gone),
            Some(Err(error)) => Err(Refusal::unreadable(&error, self.state.limits.frame_bytes)),
        }
    }

    /// Takes a request: what concerns this connection is done in its order, the rest beside it.
    async fn take(&mut self, request: RequestFrame) -> Result<(), Refusal> {
        let RequestFrame { id, method: name, params, .. } = request;
        let method = match methods::find(&name) {
            Err(problem) => return self.say(error_frame(id, &problem)).await,
            Ok(method) => method,
        };
        let allowed = State::check_scope(&self.access, method.scope).and_then(|()| self.state.check_open());
        if let Err(problem) = allowed {
            return self.say(error_frame(id, &problem)).await;
        }
        match method.does {
            Does::Subscription(change) => {
                let answer = self.subscriptions.change(change, method.name, params.as_deref()).await;
                self.say(methods::answer_frame(id, answer)).await
            }
            Does::Task(task) => {
                let Ok(permit) = Arc::clone(&self.in_flight).try_acquire_owned() else {
                    let most = self.state.limits.in_flight;
                    let text =
                        format!("{most} requests of this connection are not answered yet: wait for one");
                    return self.say(error_frame(id, &Problem::new(ErrorType::RateLimited, text))).await;
                };
                let ask = Ask {
                    state: Arc::clone(&self.state),
                    access: self.access.clone(),
                    caller: self.caller.clone(),
                    method: method.name,
                    params,
                    out: self.out.clone(),
                };
                let (out, busy) = (self.out.clone(), self.state.busy.token());
                self.asked.spawn(async move {
                    let _busy = busy;
                    // A panic told of itself when it happened, and costs this request alone.
                    let done = AssertUnwindSafe(task(ask)).catch_unwind().await;
                    let (answer, after) = done.unwrap_or_else(|_| (Err(Problem::internal()), None));
                    // Nobody reads it when the connection has ended.
                    let _sent = out.send(Out::Answer(methods::answer_frame(id, answer))).await;
                    if let Some(after) = after {
                        after.await;
                    }
                    drop(permit);
                });
                Ok(())
            }
        }
    }

    async fn write(&mut self, out: Out) -> Result<(), Refusal> {
        match out {
            Out::Answer(frame) => self.say(frame).await,
            Out::Event(event) => {
                self.seq += 1;
                self.state.metrics.deliveries.add(1);
                self.say(event.frame(self.seq)).await
            }
        }
    }

    async fn say(&mut self, frame: String) -> Result<(), Refusal> {
        if frame.len() <= PIECE_BYTES {
            return self.send(Message::text(frame)).await;
        }
        let mut rest = Bytes::from(frame);
        let mut code = OpCode::Data(Data::Text);
        while !rest.is_empty() {
            let piece = rest.split_to(rest.len().min(PIECE_BYTES));
            let is_last = rest.is_empty();
            self.send(Message::Frame(Frame::message(piece, code, is_last))).await?;
            code = OpCode::Data(Data::Continue);
        }
        Ok(())
    }

    async fn send(&mut self, message: Message) -> Result<(), Refusal> {
        let sent = pin!(tokio::time::timeout(self.state.limits.take_within, self.socket.send(message)));
        tokio::select! {
            biased;
            () = self.cut.cancelled() => Err(Refusal::Cut),
            sent = sent => match sent {
                Ok(Ok(())) => Ok(()),
                Ok(Err(_)) | Err(_) => Err(Refusal::Gone),
            },
        }
    }
}
