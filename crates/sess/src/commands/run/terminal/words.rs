//! Commands of the chat itself: words that begin a line with a slash.

use std::process::ExitCode;

use console::{Style, measure_text_width};
use sess_app::{Kind, ListRuns, ListSessions, agents::Agents};

use super::{
    chat::{Chat, Flow},
    markdown::Markdown,
    screen::Last,
};
use crate::{
    commands::{
        list::{self, Refs},
        runs,
    },
    output::{Output, one_line},
};

/// How many sessions are listed.
const LISTED: i64 = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    Help,
    Plan,
    Review,
    Agent,
    Sessions,
    Runs,
    Send,
    Resume,
    New,
    Quit,
}

impl Word {
    const ALL: [(Self, &str, &str, &str); 10] = [
        (Self::Help, "help", "", "list the commands"),
        (Self::Plan, "plan", "", "show the plan and how it stands"),
        (Self::Review, "review", "", "approve the plan that is ready, or ask for changes"),
        (Self::Agent, "agent", "[name]", "list the agents, or talk to another one"),
        (Self::Sessions, "sessions", "", "list recent sessions"),
        (Self::Runs, "runs", "", "list this session's runs, and what they led to"),
        (Self::Send, "send", "[on|off|inherit]", "let messages into this session, or not, or as configured"),
        (Self::Resume, "resume", "<ref>", "go on with another session: an id, its beginning, or -1"),
        (Self::New, "new", "", "begin a new session"),
        (Self::Quit, "quit", "", "leave; so does Ctrl-D"),
    ];

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, name, ..)| *name == word).map(|(word, ..)| word)
    }
}

/// Returns all words there are, for completion.
pub fn all(agents: &Agents) -> Vec<String> {
    let configured = agents.team().agents().iter().flat_map(|agent| &agent.commands);
    let mut all: Vec<String> = configured.map(|command| command.name.clone()).collect();
    all.extend(Word::ALL.iter().map(|(_, name, ..)| (*name).to_owned()));
    all.sort();
    all.dedup();
    all
}

impl Chat {
    pub async fn obey(&mut self, word: Word, rest: &str) -> anyhow::Result<Flow> {
        match word {
            Word::Help => self.help()?,
            Word::Plan => self.plan().await?,
            Word::Review => {
                self.put_off.remove(&self.session.id);
                let is_ready = match self.stored().await? {
                    Some(stored) => self.agents.plan_to_review(&stored).await?.is_some(),
                    None => false,
                };
                if !is_ready {
                    self.note("no plan waits for your review");
                }
                return self.review().await;
            }
            Word::Agent if rest.is_empty() => self.list_agents(),
            Word::Agent => {
                let agent = self.agents.agent(Some(rest))?.name.clone();
                self.switch(agent);
            }
            Word::Sessions => self.sessions().await?,
            Word::Runs => self.runs().await?,
            Word::Send => self.send_policy(rest).await?,
            Word::Resume if rest.is_empty() => self.complain("which session? /sessions lists them"),
            Word::Resume => {
                // What refers to nothing would begin a session of that name.
                self.agents.app().resolve(&self.caller, rest).await?;
                self.enter(Some(rest)).await?;
                self.note(&format!("session {}", self.session.id));
                self.recall().await?;
            }
            Word::New => {
                self.enter(None).await?;
                self.note(&format!("a new session: {}", self.session.id));
            }
            Word::Quit => return Ok(Flow::Leave(ExitCode::SUCCESS)),
        }
        Ok(Flow::GoOn)
    }

    async fn enter(&mut self, reference: Option<&str>) -> anyhow::Result<()> {
        let entry = self.agents.agent(None)?.name.clone();
        let session = self.agents.open_session(&self.caller, reference, &entry).await?;
        let former = std::mem::replace(&mut self.session, session);
        if let Err(error) = self.sit().await {
            self.session = former;
            self.sit().await?;
            return Err(error);
        }
        self.cursor = self.agents.app().events_head().await?;
        let known = self.agents.team().agent(&self.session.agent).is_some();
        self.active = if known { self.session.agent.clone() } else { entry };
        Ok(())
    }

    fn help(&self) -> anyhow::Result<()> {
        let active = self.agent()?;
        let mut rows: Vec<(String, String)> = Vec::new();
        for name in all(&self.agents) {
            let row = match self.agents.command(active, &name) {
                Some(command) => {
                    let to = command.agent.as_ref().map(|agent| format!(" → {agent}")).unwrap_or_default();
                    (format!("/{name}"), format!("{}{to}", command.description))
                }
                None => match Word::ALL.into_iter().find(|(_, word, ..)| *word == name) {
                    Some((_, _, arguments, about)) => (format!("/{name} {arguments}"), about.to_owned()),
                    None => continue,
                },
            };
            rows.push((one_line(row.0.trim_end()), one_line(&row.1)));
        }
        for (key, about) in [
            ("Alt-Enter", "a new line; so does a backslash at the end of one"),
            ("Tab", "complete a command"),
            ("Ctrl-C", "stop the turn; twice leaves"),
        ] {
            rows.push((key.to_owned(), about.to_owned()));
        }
        let width = rows.iter().map(|(left, _)| measure_text_width(left)).max().unwrap_or_default();
        let dim = Style::new().dim();
        let row = |(left, right): &(String, String)| {
            let space = " ".repeat(width - measure_text_width(left) + 2);
            format!("  {}{space}{}", Style::new().cyan().apply_to(left), dim.apply_to(right))
        };
        self.print(Last::Talk, rows.iter().map(row));
        Ok(())
    }

    fn list_agents(&self) {
        let agents = self.agents.team().agents();
        let width = agents.iter().map(|agent| agent.name.as_str().len()).max().unwrap_or_default();
        let rows = agents.iter().map(|agent| {
            let is_active = agent.name == self.active;
            let mark = if is_active { "●" } else { "○" };
            let style = if is_active { Style::new().cyan().bold() } else { Style::new() };
            let about = one_line(agent.description.trim());
            let name = style.apply_to(format!("{mark} {:width$}", agent.name.as_str()));
            format!(
                "  {name}  {}",
                Style::new().dim().apply_to(format!("{about} · {}", one_line(&agent.model)))
            )
        });
        self.print(Last::Talk, rows);
    }

    async fn plan(&mut self) -> anyhow::Result<()> {
        let found = match self.stored().await? {
            Some(stored) => match self.agents.app().plan_of(&stored).await {
                Err(error) if error.kind() == Kind::NotFound => None,
                found => Some(found?),
            },
            None => None,
        };
        let Some(plan) = found else {
            self.note("this session has no plan yet");
            return Ok(());
        };
        // All of it, whatever the person has seen.
        self.shown.remove(&self.session.id);
        self.show_plan(&plan).await
    }

    async fn runs(&self) -> anyhow::Result<()> {
        let rows = match self.stored().await? {
            Some(stored) => {
                let session = Some(stored.id.to_string());
                let ask = ListRuns { session, as_tree: true, ..ListRuns::default() };
                self.agents.app().runs(&self.caller, &ask).await?
            }
            None => Vec::new(),
        };
        if rows.is_empty() {
            self.note("this session has no runs yet");
        } else {
            self.print(Last::Talk, runs::lines(&Output::new(false), &rows));
        }
        Ok(())
    }

    /// `/send on|off|inherit`, or how it stands.
    async fn send_policy(&mut self, rest: &str) -> anyhow::Result<()> {
        let Some(stored) = self.stored().await? else {
            self.note("this session is not stored yet: say something first");
            return Ok(());
        };
        let (stored, said) = super::super::send_policy(self.agents.app(), &self.caller, stored, rest).await?;
        self.note(&said);
        self.session = stored.into();
        Ok(())
    }

    async fn sessions(&self) -> anyhow::Result<()> {
        let ask = ListSessions { limit: Some(LISTED), ..ListSessions::default() };
        let listing = self.agents.app().list_sessions(&self.caller, &ask).await?;
        if listing.sessions.is_empty() {
            self.note("there are no sessions yet");
            return Ok(());
        }
        self.terminal.screen().gap();
        list::table(&Output::new(false), &listing, Refs::Relative)?;
        self.terminal.screen().wrote(Last::Talk);
        Ok(())
    }
}

/// Returns the end of a transcript, from the person's last message on.
pub fn last_exchange(transcript: &str, width: usize) -> Vec<String> {
    let begin = transcript.rfind("\n## user").or_else(|| transcript.rfind("\n## ")).map_or(0, |at| at + 1);
    let mut markdown = Markdown::default();
    let mut rows = markdown.push(&transcript[begin..], width);
    rows.extend(markdown.finish(width));
    rows
}
