//! `sess demo`: draft, review, execute, on a scratch store and a scripted model.

use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context as _, bail};
use async_trait::async_trait;
use console::Style;
use sess_app::{
    ReadEvents, ReviewPlan, SearchMessages, Settings, Signals,
    agents::{Agents, Answer, LEASE, Line, News, Permission, Person, Place, Question, Request},
};
use sess_core::{
    permission::Trust,
    plan::Verdict,
    run::{Run, RunState},
    session::Session,
    turn::{Asking, Call},
};
use tokio_util::sync::CancellationToken;

use super::{
    Context,
    run::{agents, call_line},
};
use crate::{
    config::{Choice, Config},
    output::{Output, one_line},
};

/// A session of yesterday, in the format that `sess import` reads.
const YESTERDAY: &str = include_str!("demo/yesterday.jsonl");
const AGENTS: &str = include_str!("demo/agents.yaml");
const SCRIPT: &str = include_str!("demo/script.yaml");
const UPLOAD: &str =
    "#!/bin/sh\nsend() { curl --fail --data-binary @\"$1\" https://files.example/; }\nsend \"$1\"\n";

/// How much of a tool's answer is shown.
const LINES_MAX: usize = 6;

pub async fn run(output: &Output) -> anyhow::Result<()> {
    let scratch = tempfile::tempdir().context("cannot make a temporary directory")?;
    let work = scratch.path().join("work");
    fs::create_dir(&work).context("cannot make a temporary directory")?;
    for (name, text) in [("agents.yaml", AGENTS), ("script.yaml", SCRIPT), ("work/upload.sh", UPLOAD)] {
        fs::write(scratch.path().join(name), text).context("cannot write into the temporary directory")?;
    }
    let context = scratch_context(scratch.path(), &work)?;
    let team = context.config.team.clone().context("the demo has agents")?;
    let agents = agents(&context, team, Arc::new(Onlooker::default()), Trust::Ask, LEASE)?;
    let played = Demo { agents, output, steps: 0 }.play().await;
    context.app.finish().await;
    played?;
    output.line(&format!(
        "\nThe scratch store in {} is removed again. Your own: `sess run` to talk to agents, `sess mcp` for the agents \
         you have, `sess --help` for the rest.",
        scratch.path().display()
    ))
}

/// Everything in the temporary directory, whatever the person has configured.
fn scratch_context(scratch: &Path, work: &Path) -> anyhow::Result<Context> {
    let (config, problem) = Config::load(Choice::Usual(Some(&scratch.join("agents.yaml"))))?;
    if let Some(problem) = problem {
        return Err(problem);
    }
    let settings = Settings {
        home: Some(scratch.join("intersession")),
        plans_dir: None,
        cwd: Some(work.to_string_lossy().into_owned()),
        repo: None,
        homes: None,
        host: "here".to_owned(),
        ..config.settings
    };
    Ok(Context::new(Config { settings, ..config }, None, None, false))
}

struct Demo<'a> {
    agents: Agents,
    output: &'a Output,
    steps: u32,
}

impl Demo<'_> {
    async fn play(&mut self) -> anyhow::Result<()> {
        self.output.line(
            "Two agents, planner and root, in one session. Their model is a script (prepared replies): no key, no \
             network. Everything else is real.",
        )?;
        let app = self.agents.app().clone();
        let owner = app.cli_caller(&Signals::default());

        self.step("Yesterday a Claude Code session looked into failing uploads; it is brought in")?;
        let imported = app.import_lines(&owner, YESTERDAY.as_bytes()).await?;
        self.show(&format!("imported {}: {} messages", imported.id, imported.added))?;

        self.step("Today you ask for a plan: /plan make the upload script retry")?;
        let root = self.agents.agent(None)?.name.clone();
        let new = self.agents.open_session(&owner, Some("demo"), &root).await?;
        let Line::Say { agent, text } =
            self.agents.read_line(self.agents.agent(None)?, "/plan make the upload script retry")
        else {
            bail!("the demo's command says something");
        };
        self.say(Request {
            session: new.clone(),
            agent: agent.clone(),
            text,
            from: None,
            note: None,
            idempotency_key: None,
        })
        .await?;

        self.step("The plan is ready. You read it, and ask for changes")?;
        let session = app.find_session(&new.id).await?.context("the session is stored")?;
        self.show(&app.plan_of(&session).await?.content)?;
        self.review(&session, Verdict::RequestChanges, Some("add a test")).await?;
        let review =
            self.agents.reviewed(&session).await?.context("what is to change is told to somebody")?;
        self.say(Request::review(new.clone(), review)).await?;

        self.step("You approve revision 2, and root carries it out (you would be asked before it acts)")?;
        self.review(&session, Verdict::Approve, None).await?;
        let session = app.find_session(&new.id).await?.context("the session is stored")?;
        let review = self.agents.reviewed(&session).await?.context("an approved plan is told to somebody")?;
        let run = self.say(Request::review(session.clone().into(), review)).await?;
        if self.agents.executed(&owner, &session, &run).await? {
            self.show("the plan is done")?;
        }

        self.step("Whoever follows along (`sess events --follow`) has seen it happen")?;
        let ask = ReadEvents { limit: 1_000, only: Some(session.id.clone()), ..ReadEvents::default() };
        for event in app.events(&owner, &ask).await?.events {
            let field = |name: &str| {
                event.fields.get(name).and_then(|value| value.as_str()).unwrap_or_default().to_owned()
            };
            if field("type").starts_with("session_plan") {
                let told = format!("{} {} {}", event.cursor, field("type"), field("state"));
                self.show(told.trim_end())?;
            }
        }

        self.step("And what was said is found again: `sess search idempotency`")?;
        let ask =
            SearchMessages { text: "idempotency".to_owned(), limit: Some(3), ..SearchMessages::default() };
        for hit in app.search(&owner, &ask, |_, _| {}).await?.hits {
            self.show(&one_line(&format!("{}#{} {}", hit.session.id, hit.seq, hit.snippet)))?;
        }
        Ok(())
    }

    async fn say(&self, request: Request) -> anyhow::Result<Run> {
        let run = self.agents.say(request, &CancellationToken::new()).await?;
        match (&run.state, &run.error) {
            (RunState::Done, _) => Ok(run),
            (state, error) => {
                bail!("the demo's run ended as {state}: {}", error.as_deref().unwrap_or_default())
            }
        }
    }

    async fn review(&self, session: &Session, verdict: Verdict, note: Option<&str>) -> anyhow::Result<()> {
        let app = self.agents.app();
        let owner = app.cli_caller(&Signals::default());
        let review = ReviewPlan { verdict, revision: None, note: note.map(str::to_owned) };
        let plan = app.review_plan(&owner, session, review).await?;
        let note = note.map_or(String::new(), |note| format!(": {note}"));
        self.show(&format!("revision {} is {}{note}", plan.revision, plan.state))
    }

    fn step(&mut self, text: &str) -> anyhow::Result<()> {
        self.steps += 1;
        let bold = Style::new().bold();
        self.output.line(&format!("\n{}", bold.apply_to(format!("{}. {text}", self.steps))))
    }

    fn show(&self, text: &str) -> anyhow::Result<()> {
        for line in text.lines() {
            self.output.line(format!("  {line}").trim_end())?;
        }
        Ok(())
    }
}

/// Shows what the agents do, and says yes in the person's place.
#[derive(Default)]
struct Onlooker {
    /// What the agent says, until it has said it.
    said: Mutex<String>,
}

impl Onlooker {
    fn print(&self, text: &str) {
        // A reader that went away is noticed by whoever prints next.
        if let Err(error) = Output::new(false).line(text) {
            tracing::debug!(%error, "the demo was not shown");
        }
    }
}

#[async_trait]
impl Person for Onlooker {
    fn asking(&self) -> Asking {
        Asking::Possible
    }

    async fn permit(&self, _: &Place, call: &Call) -> Permission {
        self.print(&format!("  {} may act: yes", call.name));
        Permission::Once
    }

    async fn answer(&self, _: &Place, _: &Question) -> Result<Answer, String> {
        Ok(Answer::Declined)
    }

    fn tell(&self, place: &Place, news: &News) {
        match news {
            News::Text(text) => self.said.lock().unwrap_or_else(PoisonError::into_inner).push_str(text),
            News::Replied { .. } => {
                let said = std::mem::take(&mut *self.said.lock().unwrap_or_else(PoisonError::into_inner));
                if !said.is_empty() {
                    let who = Style::new().bold().apply_to(format!("{}:", place.agent));
                    self.print(&format!("  {who} {said}"));
                }
            }
            News::ToolStarted { name, arguments, .. } => {
                let call = format!("  {}", call_line(name, arguments, 0));
                self.print(&Style::new().cyan().apply_to(call).to_string());
            }
            News::ToolEnded { text, .. } => {
                let dim = Style::new().dim();
                for line in text.lines().take(LINES_MAX) {
                    self.print(&dim.apply_to(format!("    {}", one_line(line))).to_string());
                }
                let more = text.lines().count().saturating_sub(LINES_MAX);
                if more > 0 {
                    self.print(&dim.apply_to(format!("    … {more} more lines")).to_string());
                }
            }
            News::Thinking(_)
            | News::Calling { .. }
            | News::Retry { .. }
            | News::Compacting
            | News::Waiting { .. }
            | News::Compacted
            | News::Switched(_) => {}
        }
    }
}
