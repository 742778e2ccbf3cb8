//! The conversation: a line of the person's, the turn it leads to, the plan that comes of it.

use std::{
    collections::HashMap,
    process::ExitCode,
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use console::Style;
use sess_app::{
    Caller, ReadSession,
    agents::{Agents, Line, Request, split_command},
};
use sess_core::{
    AgentId, SessionId,
    agent::{Agent, Provider},
    run::{Run, RunState},
    session::{NewSession, Session},
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::MissedTickBehavior,
};
use tokio_util::sync::CancellationToken;

use super::{
    Terminal,
    editor::{Kind, Prompt, Typed},
    markdown::Markdown,
    screen::{Last, taken},
    visits::{Background, Seat, Shown},
    words::{self, Word},
};
use crate::output::{one_line, visible};

/// How often what moves is drawn when nothing comes.
const TICK: Duration = Duration::from_millis(80);
/// How much of a session is shown when it is taken up again.
const RECALLED_BYTES: i64 = 1_500;

/// Talks with the person until they leave.
///
/// `first` is said at once, as if it had been typed.
pub async fn chat(
    agents: Agents,
    terminal: Arc<Terminal>,
    caller: Caller,
    session: NewSession,
    first: Option<String>,
) -> anyhow::Result<ExitCode> {
    let active = agents.agent(Some(session.agent.as_str())).or_else(|_| agents.agent(None))?.name.clone();
    let mut chat = Chat {
        agents,
        terminal,
        caller,
        session,
        active,
        shown: HashMap::new(),
        put_off: HashMap::new(),
        seat: None,
        cursor: 0,
        is_terminated: false,
        interrupts: signal(SignalKind::interrupt())?,
        terminations: signal(SignalKind::terminate())?,
    };
    // Whoever has it open already answers there.
    chat.sit().await?;
    chat.cursor = chat.agents.app().events_head().await?;
    let background = Background::start(&chat.agents);
    chat.terminal.lines.set_words(words::all(&chat.agents));
    let terminal = Arc::clone(&chat.terminal);
    terminal.set_quiet(true);
    let outcome = chat.talk(first).await;
    if outcome.is_ok()
        && !chat.is_terminated
        && let Err(error) = chat.wait_for_open_runs().await
    {
        chat.complain(&format!("{error:#}"));
    }
    background.stop().await;
    chat.stand_up().await;
    terminal.set_quiet(false);
    outcome
}

pub(super) struct Chat {
    pub agents: Agents,
    pub terminal: Arc<Terminal>,
    pub caller: Caller,
    pub session: NewSession,
    /// Who gets the next message.
    pub active: AgentId,
    /// The revision of a plan that the person saw last.
    pub shown: HashMap<SessionId, u64>,
    /// The revision that they want to look at later.
    pub put_off: HashMap<SessionId, u64>,
    pub seat: Option<Seat>,
    /// How far what happened in the session was looked at.
    pub cursor: u64,
    /// Somebody wants this process to end, now.
    is_terminated: bool,
    pub interrupts: Signal,
    pub terminations: Signal,
}

#[derive(Debug)]
pub(super) enum Flow {
    GoOn,
    Leave(ExitCode),
}

/// How a turn ended for the chat.
pub(super) enum Ended {
    Run(Box<Run>),
    /// The person did not wait for it.
    Left(ExitCode),
}

impl Chat {
    /// Takes line after line.
    async fn talk(&mut self, first: Option<String>) -> anyhow::Result<ExitCode> {
        self.greet().await?;
        let mut next = first;
        loop {
            let line = match next.take() {
                Some(line) => {
                    let rest = visible(&line).replace('\n', "\r\n");
                    self.terminal.screen().gap();
                    self.print(Last::Line, [format!("{}{rest}", self.prompt().styled)]);
                    line
                }
                None => match self.read().await {
                    Some(line) => line,
                    None => return Ok(ExitCode::SUCCESS),
                },
            };
            match self.take(&line).await {
                Ok(Flow::GoOn) => {}
                Ok(Flow::Leave(code)) => return Ok(code),
                // Whatever went wrong with one line, the next may do.
                Err(error) => self.complain(&format!("{error:#}")),
            }
        }
    }

    pub fn print(&self, kind: Last, rows: impl IntoIterator<Item = String>) {
        self.terminal.screen().print(kind, rows);
    }

    pub fn note(&self, text: &str) {
        self.print(Last::Talk, [Style::new().dim().apply_to(text).to_string()]);
    }

    pub fn complain(&self, text: &str) {
        let text = visible(text).replace('\n', "\r\n");
        self.print(Last::Talk, [Style::new().red().apply_to(format!("✗ {text}")).to_string()]);
    }

    pub async fn stored(&self) -> anyhow::Result<Option<Session>> {
        Ok(self.agents.app().find_session(&self.session.id).await?)
    }

    pub fn agent(&self) -> anyhow::Result<&Agent> {
        Ok(self.agents.agent(Some(self.active.as_str()))?)
    }

    fn prompt(&self) -> Prompt {
        let name = self.active.as_str();
        let arrow = Style::new().cyan().apply_to("›");
        Prompt {
            plain: format!("{name} › "),
            styled: format!("{} {arrow} ", Style::new().cyan().bold().apply_to(name)),
        }
    }

    async fn greet(&mut self) -> anyhow::Result<()> {
        let agent = self.agent()?;
        let model = self.agents.team().model_of(agent);
        let model = match model.provider {
            Provider::Scripted => "prepared replies, no model".to_owned(),
            Provider::OpenAi(_) | Provider::Anthropic => one_line(&model.model),
        };
        let short: String = self.session.id.as_str().chars().take(8).collect();
        let name = Style::new().bold().apply_to("sess").to_string();
        let rest = format!(" · {} · {model} · session {short} · /help", self.active);
        self.print(Last::Talk, [format!("{name}{}", Style::new().dim().apply_to(rest))]);
        if self.stored().await?.is_some() {
            self.recall().await?;
        }
        Ok(())
    }

    /// Shows how the session ended, and what waits in it.
    pub async fn recall(&mut self) -> anyhow::Result<()> {
        let ask = ReadSession {
            session_id: self.session.id.to_string(),
            without_tools: true,
            max_bytes: Some(RECALLED_BYTES),
            ..ReadSession::default()
        };
        let transcript = self.agents.app().read_session(&self.caller, &ask).await?;
        self.print(Last::Text, words::last_exchange(&transcript.transcript, self.terminal.width()));
        if let Some(stored) = self.stored().await?
            && let Some(plan) = self.agents.plan_to_review(&stored).await?
        {
            self.note(&format!("plan revision {} waits for your review: /review", plan.plan.revision));
        }
        Ok(())
    }

    /// Returns the next line; `None` when the person leaves.
    async fn read(&mut self) -> Option<String> {
        let mut is_leaving = false;
        loop {
            self.terminal.screen().gap();
            self.terminal.screen().pause();
            let typed = self.read_beside_visits().await;
            self.terminal.screen().resume();
            match typed {
                Typed::Line(line) if line.trim().is_empty() => is_leaving = false,
                Typed::Line(line) => return Some(line),
                Typed::Interrupted if is_leaving => return None,
                Typed::Interrupted => {
                    is_leaving = true;
                    self.note("Ctrl-C again to leave");
                }
                Typed::Ended => return None,
            }
        }
    }

    /// Reads a line; what comes into the session meanwhile is shown above it.
    async fn read_beside_visits(&mut self) -> Typed {
        let terminal = Arc::clone(&self.terminal);
        let mut changes = match self.agents.app().changes() {
            Ok(changes) => changes,
            Err(error) => {
                self.complain(&error.to_string());
                return Typed::Ended;
            }
        };
        terminal.set_typing(true);
        let reading = terminal.lines.read(Kind::Message, self.prompt());
        tokio::pin!(reading);
        let typed = loop {
            match self.visits(Shown::All).await {
                Ok(rows) if rows.is_empty() => {}
                Ok(rows) => terminal.lines.print_above(&rows),
                // Who cannot be told can still type.
                Err(error) => tracing::warn!(%error, "what came into the session was not shown"),
            }
            tokio::select! {
                typed = &mut reading => break typed,
                _ = self.terminations.recv() => {
                    self.is_terminated = true;
                    break Typed::Ended;
                }
                _ = changes.changed() => {}
            }
        };
        terminal.set_typing(false);
        typed
    }

    /// Does what a line says.
    async fn take(&mut self, line: &str) -> anyhow::Result<Flow> {
        let active = self.agent()?;
        if let Some((word, rest)) = split_command(line)
            && self.agents.command(active, word).is_none()
            // A path is no command.
            && !word.contains('/')
        {
            return match Word::parse(word) {
                Some(word) => self.obey(word, rest).await,
                None => {
                    let known = words::all(&self.agents);
                    let nearest = crate::config::nearest(word, known.iter().map(String::as_str));
                    self.complain(&format!("there is no command /{}{nearest}", one_line(word)));
                    self.note("nothing was sent; /help lists the commands");
                    Ok(Flow::GoOn)
                }
            };
        }
        match self.agents.read_line(active, line) {
            Line::Switch(agent) => {
                self.switch(agent);
                Ok(Flow::GoOn)
            }
            Line::Say { agent, text } => self.say(agent, text).await,
        }
    }

    pub fn switch(&mut self, agent: AgentId) {
        self.active = agent;
        let about = self.agent().map(|agent| one_line(agent.description.trim())).unwrap_or_default();
        let about = if about.is_empty() { about } else { format!(" · {about}") };
        let text =
            format!("→ {}{}", Style::new().bold().apply_to(&self.active), Style::new().dim().apply_to(about));
        self.print(Last::Talk, [text]);
    }

    /// Says something to an agent, and goes on with the plan that comes of it.
    pub async fn say(&mut self, agent: AgentId, text: String) -> anyhow::Result<Flow> {
        // What was said elsewhere about the plan is told to whom it is for, with the next message.
        let review = match self.stored().await? {
            Some(stored) => self.agents.reviewed(&stored).await?.filter(|told| told.agent == agent),
            None => None,
        };
        let is_executing = review.as_ref().is_some_and(|told| told.is_approval);
        let note = review.map(|told| told.note);
        let from = self.agents.speaker(&self.caller).await?;
        let session = self.session.clone();
        let request = Request { session, agent, text, from, note, idempotency_key: None };
        let run = match self.turn(request).await? {
            Ended::Run(run) => run,
            Ended::Left(code) => return Ok(Flow::Leave(code)),
        };
        if is_executing {
            self.executed(&run).await?;
        }
        self.review().await
    }

    /// Runs one turn, and shows it.
    pub async fn turn(&mut self, request: Request) -> anyhow::Result<Ended> {
        let cancel = CancellationToken::new();
        *self.terminal.turn.lock().unwrap_or_else(PoisonError::into_inner) = cancel.clone();
        let started = Instant::now();
        // Again: whoever had the terminal meanwhile may have left it otherwise.
        self.terminal.set_quiet(true);
        self.terminal.screen().begin(&request.agent);
        let ended = self.drive(request, &cancel).await;
        let context = self.terminal.screen().end();
        let ended = ended?;
        let run = match &ended {
            Ended::Run(run) => run,
            Ended::Left(_) => {
                self.note("left while the turn was stopping: the session goes on where it stood");
                return Ok(ended);
            }
        };
        if let Some(stored) = self.stored().await? {
            if self.agents.team().agent(&stored.agent).is_some() {
                self.active = stored.agent.clone();
            }
            self.session = stored.into();
        }
        match (&run.state, &run.error) {
            (RunState::Done, _) => {}
            (RunState::Cancelled, _) => {
                self.print(Last::Talk, [Style::new().yellow().apply_to("■ stopped").to_string()]);
            }
            (state, Some(error)) => self.complain(&format!("{}: {error}", state.as_str().replace('_', " "))),
            (state, None) => self.complain(&state.as_str().replace('_', " ")),
        }
        self.print(Last::Talk, [taken(&self.active, &run.usage, context, started.elapsed())]);
        self.sit().await?;
        Ok(ended)
    }

    async fn drive(&mut self, request: Request, cancel: &CancellationToken) -> anyhow::Result<Ended> {
        let agents = self.agents.clone();
        let mut saying = Box::pin(agents.say(request, cancel));
        // A Ctrl-C that came too late for the last turn is not meant for this one.
        while tokio::select! {
            biased;
            late = self.interrupts.recv() => late.is_some(),
            () = std::future::ready(()) => false,
        } {}
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut changes = agents.app().changes()?;
        loop {
            tokio::select! {
                ended = &mut saying => {
                    let rows = self.visits(Shown::Incoming).await?;
                    self.print(Last::Line, rows);
                    return Ok(Ended::Run(Box::new(ended?)));
                }
                _ = changes.changed() => {
                    let rows = self.visits(Shown::Incoming).await?;
                    self.print(Last::Line, rows);
                }
                // Left like this, the run is settled by whoever looks next, once its lease is over.
                _ = self.interrupts.recv() => {
                    if cancel.is_cancelled() {
                        return Ok(Ended::Left(ExitCode::from(130)));
                    }
                    self.terminal.stop_turn();
                }
                _ = self.terminations.recv() => {
                    if cancel.is_cancelled() {
                        return Ok(Ended::Left(ExitCode::from(143)));
                    }
                    self.terminal.stop_turn();
                }
                _ = ticks.tick() => self.terminal.screen().tick(),
            }
        }
    }

    /// Shows Markdown as a whole.
    pub fn show(&self, text: &str, gutter: &str) {
        let width = self.terminal.width().saturating_sub(console::measure_text_width(gutter));
        let mut markdown = Markdown::default();
        let mut rows = markdown.push(text, width);
        rows.extend(markdown.finish(width));
        self.print(Last::Text, rows.into_iter().map(|row| format!("{gutter}{row}")));
    }
}
