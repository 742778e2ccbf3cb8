//! What comes into the open session from other sessions, and this process as the one that executes it.
//!
//! A node works in the background. The runs of the open session are executed here and nowhere else; while the
//! person types they are shown above the line that is being typed, and nobody is asked anything.

use console::Style;
use serde_json::Value;
use sess_app::{
    ListRuns, ReadEvents, Redaction,
    agents::{Agents, Work},
};
use sess_core::{SessionId, exchange::is_control_word};
use tokio::{sync::oneshot, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use super::{chat::Chat, markdown::Markdown, screen::Last};
use crate::output::{one_line, visible};

/// How many events are read at once.
const EVENTS_PER_PAGE: usize = 200;
/// How many runs of the session are looked through for what they led to.
const RUNS_LOOKED_AT: usize = 50;

/// Which messages of the session are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Those from other sessions; a turn shows its own words itself.
    Incoming,
    /// Also what the person said elsewhere, and what the agent says to all of them.
    All,
}

/// The node in the background.
pub struct Background {
    stop: CancellationToken,
    work: JoinHandle<sess_app::Result<()>>,
}

impl Background {
    pub fn start(agents: &Agents) -> Self {
        let stop = CancellationToken::new();
        let (agents, stopped) = (agents.clone(), stop.clone());
        Self { stop, work: tokio::spawn(async move { agents.work(Work::All, &stopped).await }) }
    }

    /// Stops it: what it executes is given up.
    pub async fn stop(self) {
        self.stop.cancel();
        match self.work.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the work in the background ended badly"),
            Err(_) => tracing::error!("the work in the background broke"),
        }
    }
}

/// The seat in the open session, kept by a task.
pub struct Seat {
    session: SessionId,
    kept: JoinHandle<sess_app::Result<()>>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.kept.abort();
    }
}

impl Chat {
    /// Gives the seat up.
    pub async fn stand_up(&mut self) {
        let Some(mut seat) = self.seat.take() else { return };
        seat.kept.abort();
        // That it was ended is what was wanted.
        let _ended = (&mut seat.kept).await;
    }

    /// Takes the seat in the open session once it is stored; fails when another process has it.
    pub async fn sit(&mut self) -> anyhow::Result<()> {
        if self.seat.as_ref().is_some_and(|seat| seat.session == self.session.id) {
            return Ok(());
        }
        self.stand_up().await;
        if self.stored().await?.is_none() {
            return Ok(());
        }
        let (agents, session) = (self.agents.clone(), self.session.id.clone());
        let (seated, is_seated) = oneshot::channel();
        let of = session.clone();
        let mut kept = tokio::spawn(async move {
            let told = || {
                // Whoever waits for it is this very chat.
                let _heard = seated.send(());
            };
            agents.sit_told(&of, told).await
        });
        tokio::select! {
            ended = &mut kept => ended??,
            Ok(()) = is_seated => {}
        }
        self.seat = Some(Seat { session, kept });
        Ok(())
    }

    /// Returns what has come into the session since the last look, ready to be shown.
    pub async fn visits(&mut self, shown: Shown) -> anyhow::Result<Vec<String>> {
        let app = self.agents.app().clone();
        let mut ask = ReadEvents {
            after: self.cursor,
            limit: EVENTS_PER_PAGE,
            only: Some(self.session.id.clone()),
            redaction: Redaction::Masked,
        };
        let mut rows = Vec::new();
        loop {
            let page = app.events(&self.caller, &ask).await?;
            for event in &page.events {
                if event.fields.get("type").and_then(Value::as_str) == Some("message") {
                    rows.extend(self.visit(&event.fields["message"], shown));
                }
            }
            if page.cursor == ask.after {
                self.cursor = page.cursor;
                return Ok(rows);
            }
            ask.after = page.cursor;
        }
    }

    fn visit(&self, message: &Value, shown: Shown) -> Vec<String> {
        let provenance = &message["provenance"];
        let blocks = message["content"].as_array().into_iter().flatten();
        let text: String = blocks.filter_map(|block| block["text"].as_str()).collect();
        let width = self.terminal.width().saturating_sub(2);
        match (message["role"].as_str(), provenance["kind"].as_str()) {
            (Some("user"), Some("inter_session")) => {
                let from = provenance["sourceSessionKey"].as_str().map(one_line).unwrap_or_default();
                let style = Style::new().magenta();
                let mut rows = vec![style.clone().bold().apply_to(format!("↪ from {from}")).to_string()];
                let gutter = style.apply_to("│").to_string();
                rows.extend(visible(&text).trim_end().lines().map(|line| format!("{gutter} {line}")));
                rows
            }
            (Some("user"), Some("internal_system")) => {
                let text = visible(&text);
                text.trim_end().lines().map(|line| Style::new().dim().apply_to(line).to_string()).collect()
            }
            (Some("user"), _) if shown == Shown::All => {
                let style = Style::new().cyan();
                let mut rows = vec![style.apply_to("› you, elsewhere").to_string()];
                rows.extend(visible(&text).trim_end().lines().map(|line| format!("  {line}")));
                rows
            }
            (Some("assistant"), _) if shown == Shown::All && !text.trim().is_empty() => {
                if is_control_word(&text) {
                    return vec![Style::new().dim().apply_to("  nothing more to say").to_string()];
                }
                let agent = message["agentId"].as_str().map(one_line).unwrap_or_default();
                let mut markdown = Markdown::default();
                let mut said = markdown.push(&text, width);
                said.extend(markdown.finish(width));
                let mut rows = vec![Style::new().cyan().apply_to(format!("  {agent} replies")).to_string()];
                rows.extend(said.into_iter().map(|row| format!("  {row}")));
                rows
            }
            _ => Vec::new(),
        }
    }

    /// Returns how many runs that this session led to have not ended.
    async fn open_runs(&self) -> anyhow::Result<Vec<sess_core::RunId>> {
        if self.stored().await?.is_none() {
            return Ok(Vec::new());
        }
        let ask = ListRuns {
            session: Some(self.session.id.to_string()),
            limit: Some(RUNS_LOOKED_AT),
            as_tree: true,
            redaction: Redaction::Masked,
        };
        let rows = self.agents.app().runs(&self.caller, &ask).await?;
        Ok(rows.into_iter().filter(|row| !row.state.has_ended()).map(|row| row.run_id).collect())
    }

    /// Waits for what the session has led to; Ctrl-C cancels it, and leaves when it comes again.
    pub async fn wait_for_open_runs(&mut self) -> anyhow::Result<()> {
        let mut changes = self.agents.app().changes()?;
        let mut was_told = false;
        let mut is_cancelled = false;
        loop {
            changes.mark_unchanged();
            let mut open = self.open_runs().await?;
            if open.is_empty() {
                // The report on a task that has just ended may not be queued yet.
                self.agents.app().settle().await?;
                open = self.open_runs().await?;
            }
            let rows = self.visits(Shown::All).await?;
            self.print(Last::Talk, rows);
            if open.is_empty() {
                return Ok(());
            }
            if !was_told {
                was_told = true;
                let runs = if open.len() == 1 { "run goes" } else { "runs go" };
                self.note(&format!("{} {runs} on for this session: waiting; Ctrl-C cancels", open.len()));
            }
            tokio::select! {
                _ = changes.changed() => {}
                () = tokio::time::sleep(std::time::Duration::from_secs(1)) => {}
                _ = self.interrupts.recv() => {
                    if is_cancelled {
                        return Ok(());
                    }
                    is_cancelled = true;
                    for run in open {
                        self.agents.app().cancel(&self.caller, &run, Redaction::Masked).await?;
                    }
                    self.note("cancelled; Ctrl-C again leaves at once");
                }
                _ = self.terminations.recv() => return Ok(()),
            }
        }
    }
}
