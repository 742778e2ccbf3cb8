//! The driver of a turn: carries out what `sess_core::turn` decides.

mod compact;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use async_trait::async_trait;
use serde_json::{Map, Value};
use sess_core::{
    AgentId, Timestamp,
    conversation::{estimate_tokens, since_compaction, size_bytes},
    message::{Block, Body, Role, Usage},
    run::RunState,
    turn::{self, Call, Effect, Ending, Failure, Input, Next, Permit, Rules, StopCause, Turn, Verdict},
};
use tokio::{
    task::{AbortHandle, JoinHandle, JoinSet},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    model::{Model, ModelError, Piece, Reply, Request, Stop},
    tool::{ToolDef, ToolOutput, Toolbox, capped},
};

/// How long a model may take to answer before it is recorded that it was asked.
const BEGUN_AFTER: Duration = Duration::from_millis(10);

/// What a turn needs from whoever runs it.
#[async_trait]
pub trait Host: Send + Sync + 'static {
    /// Returns what this agent is and may use.
    async fn cast(&self, agent: &AgentId) -> Result<Cast, HostError>;

    /// Returns the messages that a model may have to know: from the newest compaction on.
    async fn transcript(&self) -> Result<Vec<Body>, HostError>;

    /// Records that the model is asked for the first time. The model does not wait for it, and one
    /// that has answered by then leaves it to its answer.
    async fn begin(&self) -> Result<(), HostError>;

    /// Makes messages part of the transcript; durable when it returns.
    async fn record(&self, messages: Vec<Body>) -> Result<(), HostError>;

    /// Makes another agent the active one of the session.
    async fn switch(&self, agent: &AgentId) -> Result<(), HostError>;

    /// Asks the person about a call. May be dropped when the turn is stopped.
    async fn permit(&self, call: &Call) -> Permit;

    /// Tells whoever looks on.
    fn tell(&self, news: News);

    fn now(&self) -> Timestamp;
}

/// An agent, ready to act.
pub struct Cast {
    pub system: String,
    pub model: Arc<dyn Model>,
    pub tools: Vec<(ToolDef, Arc<dyn Toolbox>)>,
    pub rules: Rules,
}

/// Why a turn cannot go on: nothing more can be recorded, so nothing more may be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HostError(pub String);

/// What happens in a turn, for those who look on.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    Text(String),
    Thinking(String),
    /// A tool is about to be called; its arguments are still coming.
    Calling {
        name: String,
    },
    /// The model is asked again: forget its pieces so far.
    Retry {
        why: String,
        after_ms: u64,
    },
    ToolStarted {
        id: String,
        name: String,
        arguments: Map<String, Value>,
    },
    ToolEnded {
        id: String,
        name: String,
        text: String,
        is_error: bool,
    },
    /// One reply is complete; what it took, and how full the window is now.
    Replied {
        usage: Usage,
        context_tokens: u64,
        context_window: Option<u32>,
    },
    Compacting,
    Compacted,
    Switched(AgentId),
    /// The run has not begun: the one before it in the session is not over.
    Waiting {
        why: String,
    },
}

/// How a turn ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    pub verdict: Verdict,
    pub usage: Usage,
    /// What the agent said last.
    pub result: Option<String>,
    /// What is still to be recorded, together with the outcome.
    pub messages: Vec<Body>,
}

impl Ended {
    /// The end of a turn that was stopped before it began.
    fn cancelled() -> Self {
        Self {
            verdict: Verdict { state: RunState::Cancelled, error: Some("cancelled".to_owned()) },
            usage: Usage::default(),
            result: None,
            messages: Vec::new(),
        }
    }
}

/// Runs a turn of `agent` to its end. The request is in the transcript already.
pub async fn drive(
    host: Arc<dyn Host>,
    agent: AgentId,
    cancel: &CancellationToken,
) -> Result<Ended, HostError> {
    let started = Instant::now();
    // Servers of tools may take long to start. Its time limit is part of what is not known yet.
    let cast = tokio::select! {
        biased;
        () = cancel.cancelled() => return Ok(Ended::cancelled()),
        cast = host.cast(&agent) => cast?,
    };
    let turn = Turn::new(cast.rules.clone());
    let messages = since_compaction(host.transcript().await?);
    let mut driver = Driver {
        host,
        agent,
        cast,
        turn,
        messages,
        unrecorded: Vec::new(),
        request: Arc::default(),
        result: None,
        beginning: Beginning::Ahead,
        work: JoinSet::new(),
        asking: None,
        interrupt: CancellationToken::new(),
        cancel: cancel.clone(),
        started,
        partial: Usage::default(),
    };
    let ended = driver.run().await?;
    driver.begun().await?;
    Ok(ended)
}

struct Driver {
    host: Arc<dyn Host>,
    agent: AgentId,
    cast: Cast,
    turn: Turn,
    /// The transcript, as far as a model may have to know it.
    messages: Vec<Body>,
    /// The last of them, which wait to be recorded.
    unrecorded: Vec<Body>,
    request: Arc<Request>,
    result: Option<String>,
    beginning: Beginning,
    work: JoinSet<Done>,
    asking: Option<AbortHandle>,
    /// Stops the model and the tools.
    interrupt: CancellationToken,
    /// The person wants the turn to end.
    cancel: CancellationToken,
    started: Instant,
    /// What a reply took that broke off.
    partial: Usage,
}

/// Whether it is recorded that the model was asked.
enum Beginning {
    Ahead,
    /// On its way, beside the first question to the model; needless once that is answered.
    Recording {
        recording: JoinHandle<Result<(), HostError>>,
        answered: CancellationToken,
    },
    Recorded,
}

/// Something that was at work has ended.
enum Done {
    Model(Result<Reply, ModelError>),
    Compacted { summary: Option<String>, usage: Usage },
    Tool { call: usize, output: ToolOutput },
    Permit { call: usize, permit: Permit },
}

impl Driver {
    async fn run(&mut self) -> Result<Ended, HostError> {
        let mut inputs = VecDeque::from([Input::Begin]);
        let mut is_stopping = false;
        loop {
            while let Some(input) = inputs.pop_front() {
                is_stopping |= matches!(input, Input::Stop(_));
                for effect in self.turn.step(input) {
                    if let Effect::End(verdict) = effect {
                        return Ok(self.ended(verdict));
                    }
                    inputs.extend(self.carry_out(effect).await?);
                }
            }
            let stop = self.stop();
            let input = tokio::select! {
                cause = stop, if !is_stopping => Some(Input::Stop(cause)),
                Some(done) = self.work.join_next() => match done {
                    Ok(done) => self.done(done).await?,
                    // The question about a call was dropped with the turn's stop.
                    Err(error) if error.is_cancelled() => None,
                    // A panic told of itself when it happened; what it says may quote a secret.
                    Err(_) => return Err(HostError("a part of the turn broke; the log says why".to_owned())),
                },
                else => return Err(HostError("the turn has nothing left to wait for".to_owned())),
            };
            inputs.extend(input);
        }
    }

    /// Ends when the turn should: the person wants it, or the time of the active agent is up.
    fn stop(&self) -> impl Future<Output = StopCause> + Send + use<> {
        let cancel = self.cancel.clone();
        let seconds = self.cast.rules.limits.seconds;
        // A time that no clock reaches is none.
        let deadline = seconds.and_then(|seconds| self.started.checked_add(Duration::from_secs(seconds)));
        async move {
            let time_is_up = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = cancel.cancelled() => StopCause::Cancelled,
                () = time_is_up => StopCause::TimeUp,
            }
        }
    }

    fn ended(&mut self, verdict: Verdict) -> Ended {
        let mut usage = self.turn.usage().clone();
        turn::add(&mut usage, &self.partial);
        Ended { verdict, usage, result: self.result.take(), messages: std::mem::take(&mut self.unrecorded) }
    }

    /// Does what the machine decided; returns what it has to know at once.
    async fn carry_out(&mut self, effect: Effect) -> Result<Option<Input>, HostError> {
        match effect {
            Effect::Prepare => {
                self.flush().await?;
                return Ok(Some(Input::Prepared { tokens: self.prepare() }));
            }
            Effect::AskModel => {
                self.begin();
                self.ask_model();
            }
            Effect::Compact => {
                self.begin();
                self.compact();
            }
            Effect::Run(call) => {
                self.flush().await?;
                self.run_tool(call);
            }
            Effect::Ask(call) => {
                self.flush().await?;
                let (host, asked) = (Arc::clone(&self.host), self.turn.calls()[call].clone());
                self.asking = Some(
                    self.work.spawn(async move { Done::Permit { call, permit: host.permit(&asked).await } }),
                );
            }
            Effect::Refuse { call, reason } => self.result_of(call, ToolOutput::error(reason)),
            Effect::Interrupt => {
                self.interrupt.cancel();
                if let Some(asking) = self.asking.take() {
                    asking.abort();
                }
            }
            Effect::Switch(agent) => return Ok(self.switch(agent).await?.map(Input::Stop)),
            Effect::End(_) => {}
        }
        Ok(None)
    }

    async fn done(&mut self, done: Done) -> Result<Option<Input>, HostError> {
        Ok(Some(match done {
            Done::Model(Ok(reply)) => self.replied(reply),
            Done::Model(Err(error)) => self.failed(error),
            // Interrupted: the conversation stays as it was.
            Done::Compacted { summary: None, usage } => Input::Compacted { usage },
            Done::Compacted { summary: Some(summary), usage } => {
                let mut mark = Body::text(Role::System, "", self.host.now());
                mark.content = vec![Block::Compaction { summary }];
                mark.agent_id = Some(self.agent.clone());
                mark.usage = Some(usage.clone());
                self.add(mark);
                self.messages = since_compaction(std::mem::take(&mut self.messages));
                self.flush().await?;
                self.host.tell(News::Compacted);
                Input::Compacted { usage }
            }
            Done::Tool { call, output } => {
                let next = output.hand_off.clone().map_or(Next::GoOn, Next::HandOff);
                self.result_of(call, output);
                self.flush().await?;
                Input::ToolEnded { call, next }
            }
            Done::Permit { call, permit } => {
                self.asking = None;
                Input::Permitted { call, permit }
            }
        }))
    }

    /// Puts the next question together; returns about how large it is.
    fn prepare(&mut self) -> u64 {
        let request = Request {
            agent: Some(self.agent.clone()),
            system: self.cast.system.clone(),
            messages: self.messages.clone(),
            tools: self.cast.tools.iter().map(|(tool, _)| tool.clone()).collect(),
        };
        let tools = request.tools.iter().map(|tool| {
            let schema = serde_json::to_string(&tool.input_schema).map_or(0, |text| text.len());
            tool.name.len() + tool.description.len() + schema
        });
        let bytes = request.system.len()
            + tools.sum::<usize>()
            + request.messages.iter().map(size_bytes).sum::<usize>();
        self.request = Arc::new(request);
        estimate_tokens(bytes)
    }

    /// Has it recorded that the model is asked, once and beside the asking: a turn costs no flush for it.
    fn begin(&mut self) {
        if matches!(self.beginning, Beginning::Ahead) {
            let (host, answered) = (Arc::clone(&self.host), CancellationToken::new());
            let is_quick = answered.clone();
            let recording = tokio::spawn(async move {
                tokio::select! {
                    () = tokio::time::sleep(BEGUN_AFTER) => host.begin().await,
                    () = is_quick.cancelled() => Ok(()),
                }
            });
            self.beginning = Beginning::Recording { recording, answered };
        }
    }

    async fn begun(&mut self) -> Result<(), HostError> {
        let former = std::mem::replace(&mut self.beginning, Beginning::Recorded);
        let Beginning::Recording { recording, answered } = former else { return Ok(()) };
        answered.cancel();
        recording.await.map_err(|error| HostError(format!("a part of the turn broke: {error}")))?
    }

    fn ask_model(&mut self) {
        let (host, model) = (Arc::clone(&self.host), Arc::clone(&self.cast.model));
        let (request, interrupt) = (Arc::clone(&self.request), self.interrupt.clone());
        self.work.spawn(async move {
            let mut told = |piece| {
                host.tell(match piece {
                    Piece::Text(text) => News::Text(text),
                    Piece::Thinking(text) => News::Thinking(text),
                    Piece::ToolCall { name } => News::Calling { name },
                    Piece::Retry { why, after_ms } => News::Retry { why, after_ms },
                });
            };
            Done::Model(model.reply(&request, &mut told, &interrupt).await)
        });
    }

    fn compact(&mut self) {
        self.host.tell(News::Compacting);
        let (model, request) = (Arc::clone(&self.cast.model), Arc::clone(&self.request));
        let (context_window, interrupt) = (self.cast.rules.context_window, self.interrupt.clone());
        self.work.spawn(async move {
            let (summary, usage) = compact::summary(&*model, &request, context_window, &interrupt).await;
            Done::Compacted { summary, usage }
        });
    }

    fn run_tool(&mut self, call: usize) {
        let Call { id, name, arguments, .. } = self.turn.calls()[call].clone();
        self.host.tell(News::ToolStarted { id, name: name.clone(), arguments: arguments.clone() });
        let tool = self.cast.tools.iter().find(|(tool, _)| tool.name == name);
        let Some(toolbox) = tool.map(|(_, toolbox)| Arc::clone(toolbox)) else {
            unreachable!("the machine runs tools that it was told about")
        };
        let interrupt = self.interrupt.clone();
        self.work.spawn(async move {
            Done::Tool { call, output: toolbox.call(&name, arguments, &interrupt).await }
        });
    }

    fn replied(&mut self, reply: Reply) -> Input {
        let calls = calls_of(&reply);
        let (text, usage) = (text_of(&reply.content), reply.usage.clone());
        let ending = match reply.stop {
            Stop::Length => Ending::Length,
            Stop::Refused => Ending::Refused,
            Stop::End | Stop::ToolCalls | Stop::Other(_) => Ending::Complete,
        };
        let context_tokens = usage.input + usage.cache_read + usage.cache_write + usage.output;
        let context_window = self.cast.rules.context_window;
        self.host.tell(News::Replied { usage: usage.clone(), context_tokens, context_window });
        self.add_reply(reply, None);
        Input::Replied { text, calls, usage, ending }
    }

    /// Keeps what came before the model failed, without calls that nobody will carry out.
    fn failed(&mut self, error: ModelError) -> Input {
        let (failure, partial, stop) = match error {
            ModelError::Refused(reason) => (Failure::Other(reason), None, "failed"),
            ModelError::TooLong(reason) => (Failure::TooLong(reason), None, "failed"),
            ModelError::Unavailable { reason, partial } => (Failure::Other(reason), Some(partial), "failed"),
            ModelError::Cancelled { partial } => (Failure::Cancelled, Some(partial), "cancelled"),
        };
        if let Some(mut partial) = partial {
            turn::add(&mut self.partial, &partial.usage);
            partial.content.retain(|block| matches!(block, Block::Text { .. }));
            self.add_reply(*partial, Some(stop));
        }
        Input::ModelFailed(failure)
    }

    fn add_reply(&mut self, reply: Reply, stop: Option<&str>) {
        let text = text_of(&reply.content);
        if reply.content.is_empty() || (text.trim().is_empty() && stop.is_some()) {
            return;
        }
        if !text.trim().is_empty() {
            self.result = Some(text);
        }
        let mut body = Body::text(Role::Assistant, "", self.host.now());
        body.stop_reason = Some(stop.unwrap_or(reply.stop.as_str()).to_owned());
        (body.content, body.model, body.usage) = (reply.content, Some(reply.model), Some(reply.usage));
        body.agent_id = Some(self.agent.clone());
        self.add(body);
    }

    fn result_of(&mut self, call: usize, output: ToolOutput) {
        let Call { id, name, .. } = self.turn.calls()[call].clone();
        let (text, is_error) = (capped(output.text), output.is_error);
        let shown = News::ToolEnded { id: id.clone(), name: name.clone(), text: text.clone(), is_error };
        self.host.tell(shown);
        let mut body = Body::text(Role::ToolResult, text, self.host.now());
        (body.tool_call_id, body.tool_name, body.is_error) = (Some(id), Some(name), is_error.then_some(true));
        body.agent_id = Some(self.agent.clone());
        self.add(body);
    }

    /// Goes on with another agent; returns why the turn should rather end.
    async fn switch(&mut self, agent: AgentId) -> Result<Option<StopCause>, HostError> {
        self.flush().await?;
        let cast = tokio::select! {
            biased;
            cause = self.stop() => Err(cause),
            cast = self.host.cast(&agent) => Ok(cast?),
        };
        // The transcript says already who goes on, also when that is in another turn.
        self.host.switch(&agent).await?;
        self.agent = agent.clone();
        self.host.tell(News::Switched(agent));
        match cast {
            Ok(cast) => {
                self.turn.set_rules(cast.rules.clone());
                self.cast = cast;
                Ok(None)
            }
            Err(cause) => Ok(Some(cause)),
        }
    }

    fn add(&mut self, body: Body) {
        self.messages.push(body.clone());
        self.unrecorded.push(body);
    }

    /// Nothing is done before what led to it is durable.
    async fn flush(&mut self) -> Result<(), HostError> {
        if self.unrecorded.is_empty() {
            return Ok(());
        }
        self.begun().await?;
        self.host.record(std::mem::take(&mut self.unrecorded)).await
    }
}

fn text_of(content: &[Block]) -> String {
    let texts = content.iter().filter_map(|block| match block {
        Block::Text { text } => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

fn calls_of(reply: &Reply) -> Vec<Call> {
    let call = |block: &Block| match block {
        Block::ToolCall { id, name, arguments } => {
            let malformed = reply.malformed.iter().find(|malformed| malformed.id == *id);
            let problem = malformed
                .map(|malformed| format!("{}; what came: {}", malformed.reason, malformed.arguments));
            Some(Call { id: id.clone(), name: name.clone(), arguments: arguments.clone(), problem })
        }
        _ => None,
    };
    reply.content.iter().filter_map(call).collect()
}
