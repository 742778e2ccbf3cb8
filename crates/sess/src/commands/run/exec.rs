//! `sess run --exec`: one message, no questions, an exit code by the outcome.

use std::{
    collections::HashMap,
    process::ExitCode,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use console::Style;
use serde_json::{Value, json};
use sess_app::{
    App, Caller, ReadEvents, Redaction,
    agents::{Agents, Line, News, Person, Place, Request, split_command},
};
use sess_core::{
    RunId,
    agent::Provider,
    exchange::is_control_word,
    redact::{redact, redact_json},
    run::{Errand, Run, RunState},
    session::{NewSession, Session},
};
use tokio_util::sync::CancellationToken;

use crate::output::{Output, Usage, visible};

/// How many events are read at once.
const EVENTS_PER_PAGE: usize = 200;

/// A program, or a person who only looks on: told, never asked.
pub struct Onlooker {
    output: Output,
    redaction: Redaction,
    /// Text whose line is not complete yet, of each run: a secret is only recognised whole, and tasks
    /// speak at the same time.
    unfinished: Mutex<HashMap<RunId, String>>,
}

impl Onlooker {
    pub fn new(json: bool, redaction: Redaction) -> Self {
        Self { output: Output::new(json), redaction, unfinished: Mutex::default() }
    }

    fn print(&self, place: &Place, mut event: Value) {
        event["session_id"] = place.session.as_str().into();
        event["run_id"] = place.run.as_str().into();
        event["agent"] = place.agent.as_str().into();
        self.line(event);
    }

    fn line(&self, mut event: Value) {
        if self.redaction == Redaction::Masked {
            redact_json(&mut event);
        }
        // Whoever no longer reads does not keep the agent from its work.
        if let Err(error) = self.output.data_line(&event) {
            tracing::debug!(%error, "an event was not printed");
        }
    }

    fn unfinished(&self) -> MutexGuard<'_, HashMap<RunId, String>> {
        self.unfinished.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells text in whole lines.
    fn text(&self, place: &Place, text: &str) {
        let mut unfinished = self.unfinished();
        let line = unfinished.entry(place.run.clone()).or_default();
        line.push_str(text);
        let end = whole_lines(line);
        if end > 0 {
            let rest = line.split_off(end);
            let whole = std::mem::replace(line, rest);
            drop(unfinished);
            self.print(place, json!({ "type": "text", "text": whole }));
        }
    }

    fn finish_line(&self, place: &Place) {
        let rest = self.unfinished().remove(&place.run).unwrap_or_default();
        if !rest.is_empty() {
            self.print(place, json!({ "type": "text", "text": rest }));
        }
    }

    fn talk(&self, text: &str) {
        let shown = masked(text, self.redaction);
        self.output.say(&Style::new().dim().for_stderr().apply_to(visible(&shown)).to_string());
    }
}

impl Person for Onlooker {
    fn tell(&self, place: &Place, news: &News) {
        if !self.output.json {
            match news {
                News::ToolStarted { name, arguments, .. } => {
                    self.talk(&super::call_line(name, arguments, place.depth));
                }
                News::ToolEnded { name, text, is_error: true, .. } => self.talk(&format!("  {name}: {text}")),
                News::Retry { why, after_ms } => {
                    self.talk(&format!("  {why}; again in {:.1} s", *after_ms as f64 / 1_000.0));
                }
                News::Switched(agent) => self.talk(&format!("  now {agent}")),
                News::Waiting { why } => self.talk(&format!("  waiting: {why}")),
                News::Compacting => self.talk("  the context is nearly full: summarising"),
                News::Text(_)
                | News::Thinking(_)
                | News::Calling { .. }
                | News::ToolEnded { .. }
                | News::Replied { .. }
                | News::Compacted => {}
            }
            return;
        }
        match news {
            News::Text(text) => self.text(place, text),
            News::Thinking(_) | News::Calling { .. } | News::Compacting => {}
            News::Retry { why, after_ms } => {
                self.unfinished().remove(&place.run);
                self.print(place, json!({ "type": "retry", "why": why, "after_ms": after_ms }));
            }
            News::ToolStarted { id, name, arguments } => {
                self.print(
                    place,
                    json!({ "type": "tool_call", "id": id, "name": name, "arguments": arguments }),
                );
            }
            News::ToolEnded { id, name, text, is_error } => self.print(
                place,
                json!({ "type": "tool_result", "id": id, "name": name, "text": text, "is_error": is_error }),
            ),
            News::Replied { usage, context_tokens, context_window } => {
                self.finish_line(place);
                self.print(
                    place,
                    json!({
                        "type": "usage", "usage": usage, "context_tokens": context_tokens,
                        "context_window": context_window
                    }),
                );
            }
            News::Waiting { why } => self.print(place, json!({ "type": "waiting", "why": why })),
            News::Compacted => self.print(place, json!({ "type": "compacted" })),
            News::Switched(agent) => self.print(place, json!({ "type": "agent_switched", "to": agent })),
        }
    }
}

/// Says one message and waits for its end.
pub async fn run(
    agents: &Agents,
    onlooker: &Arc<Onlooker>,
    caller: &Caller,
    session: NewSession,
    chosen: Option<&str>,
    line: &str,
    cancel: &CancellationToken,
) -> anyhow::Result<ExitCode> {
    let app = agents.app();
    let active = agents.agent(Some(session.agent.as_str()))?;
    let id = session.id.clone();
    let review = match app.find_session(&id).await? {
        Some(stored) => agents.reviewed(&stored).await?,
        None => None,
    };
    if let Some((word, rest)) = split_command(line)
        && !word.contains('/')
        && agents.command(active, word).is_none()
    {
        if word == "send" {
            let stored = app.find_session(&id).await?;
            let none = || Usage("this session is not stored yet: say something first".to_owned());
            let (_, said) = super::send_policy(app, caller, stored.ok_or_else(none)?, rest).await?;
            onlooker.talk(&said);
            return Ok(ExitCode::SUCCESS);
        }
        return Err(Usage(format!("there is no command /{word}; nothing was sent")).into());
    }
    if agents.team().model_of(active).provider == Provider::Scripted {
        onlooker.talk("the model is a script: prepared replies");
    }
    let is_command = split_command(line).is_some_and(|(word, _)| agents.command(active, word).is_some());
    let (agent, text) = match (agents.read_line(active, line), &review) {
        // Who says nothing else speaks to whoever executes the plan, or changes it.
        (_, Some(told)) if chosen.is_none() && !is_command => (told.agent.clone(), line.to_owned()),
        (Line::Say { agent, text }, _) => (agent, text),
        (Line::Switch(agent), _) => {
            let command = line.trim();
            let said = format!(
                "{command} switches to {agent}, which is told nothing: add a message after {command}"
            );
            return Err(Usage(said).into());
        }
    };
    let mut cursor = app.events_head().await?;
    let review = review.filter(|told| told.agent == agent);
    let is_executing = review.as_ref().is_some_and(|told| told.is_approval);
    let note = review.map(|told| told.note);
    let from = agents.speaker(caller).await?;
    let request = Request { session, agent, text, from, note, idempotency_key: None };
    let (queued, known) = tokio::sync::oneshot::channel::<RunId>();
    let saying = agents.say_told(request, cancel, |run| {
        // Whoever listens does so until the end.
        let _heard = queued.send(run.id.clone());
    });
    // What it leads to goes on beside it: the message may wait for that, and this process for both.
    let leading = async {
        match known.await {
            Ok(root) => agents.finish_tree(&root, cancel).await,
            Err(_) => Ok(()),
        }
    };
    tokio::pin!(saying, leading);
    let mut changes = app.changes()?;
    let (mut said, mut led) = (None, None);
    let run = loop {
        tokio::select! {
            ended = &mut saying, if said.is_none() => said = Some(ended?),
            ended = &mut leading, if led.is_none() => led = Some(ended?),
            _ = changes.changed(), if onlooker.output.json => {
                match follow(app, onlooker, caller, &id, cursor).await {
                    Ok(read) => cursor = read,
                    // Who cannot be told does not keep the agent from its work.
                    Err(error) => tracing::warn!(%error, "events were not printed"),
                }
            }
        }
        if led.is_some()
            && let Some(run) = said.take()
        {
            break run;
        }
    };
    if let Some(stored) = app.find_session(&id).await?
        && is_executing
    {
        agents.executed(caller, &stored, &run).await?;
    }
    if onlooker.output.json {
        follow(app, onlooker, caller, &id, cursor).await?;
        for later in later_runs(app, &run).await? {
            onlooker.line(ended_event(&later));
        }
        onlooker.line(ended_event(&run));
    } else {
        show_end(agents, onlooker, &run, app.find_session(&id).await?.as_ref()).await?;
        for later in later_runs(app, &run).await? {
            show_later(onlooker, &later)?;
        }
    }
    Ok(exit_code(&run))
}

/// Returns the runs of the same session that this one led to: reports on its tasks, replies of others.
async fn later_runs(app: &App, run: &Run) -> anyhow::Result<Vec<Run>> {
    let led_to = app.led_to(&run.lineage.root).await?;
    Ok(led_to.into_iter().filter(|later| later.session == run.session && later.id != run.id).collect())
}

fn show_later(onlooker: &Onlooker, run: &Run) -> anyhow::Result<()> {
    let why = match &run.errand {
        Errand::Report { child, .. } => format!("↪ report of {child}"),
        Errand::Round(round) => format!("↪ reply of {}", round.from),
        Errand::Send(send) => format!("↪ from {}", send.requester),
        Errand::LateReply { .. } => "↪ a late reply".to_owned(),
        Errand::Message | Errand::Announce(_) | Errand::Spawn(_) => return Ok(()),
    };
    onlooker.talk(&why);
    let result = run.result.as_deref().filter(|result| !is_control_word(result) && !result.trim().is_empty());
    if let Some(result) = result {
        onlooker.output.foreign(&(masked(result, onlooker.redaction).trim_end().to_owned() + "\n"))?;
    }
    if let Some(error) = &run.error {
        onlooker.talk(&format!("{}: {error}", run.state));
    }
    Ok(())
}

/// Returns how much of a text can be told: its lines, up to a private key that is still coming.
fn whole_lines(text: &str) -> usize {
    let end = text.rfind('\n').map_or(0, |at| at + 1);
    match text.rfind("-----BEGIN ") {
        Some(key) if key < end && !text[key..end].contains("-----END ") => key,
        _ => end,
    }
}

async fn follow(
    app: &App,
    onlooker: &Onlooker,
    caller: &Caller,
    session: &sess_core::SessionId,
    after: u64,
) -> anyhow::Result<u64> {
    let mut ask = ReadEvents {
        after,
        limit: EVENTS_PER_PAGE,
        only: Some(session.clone()),
        redaction: onlooker.redaction,
    };
    loop {
        let page = app.events(caller, &ask).await?;
        for event in page.events {
            onlooker.line(serde_json::to_value(event)?);
        }
        if page.cursor == ask.after {
            return Ok(page.cursor);
        }
        ask.after = page.cursor;
    }
}

fn ended_event(run: &Run) -> Value {
    json!({
        "type": "run_ended", "session_id": run.session, "run_id": run.id, "agent": run.agent,
        "state": run.state, "result": run.result, "error": run.error, "usage": run.usage
    })
}

async fn show_end(
    agents: &Agents,
    onlooker: &Onlooker,
    run: &Run,
    session: Option<&Session>,
) -> anyhow::Result<()> {
    if let Some(result) = &run.result {
        onlooker.output.foreign(&(masked(result, onlooker.redaction).trim_end().to_owned() + "\n"))?;
    }
    if let Some(error) = &run.error {
        onlooker.talk(&format!("{}: {error}", run.state));
    }
    if let Some(session) = session
        && let Some(plan) = agents.plan_to_review(session).await?
    {
        onlooker.talk(&format!(
            "plan revision {} is ready: `sess plan show --session {id}`, then `sess plan approve --session {id}`",
            plan.plan.revision,
            id = session.id
        ));
    }
    Ok(())
}

fn masked(text: &str, redaction: Redaction) -> String {
    match redaction {
        Redaction::Masked => redact(text).0.into_owned(),
        Redaction::None => text.to_owned(),
    }
}

/// Returns the exit code of an outcome.
pub fn exit_code(run: &Run) -> ExitCode {
    ExitCode::from(match run.state {
        RunState::Done => 0,
        RunState::TimedOut => 124,
        RunState::Cancelled => 130,
        RunState::Queued | RunState::Running | RunState::Failed | RunState::Aborted => 1,
    })
}
