//! `sess demo`: plan and context end to end, on a scratch store.

use anyhow::{Context as _, bail};
use console::Style;
use serde_json::{Value, json};
use sess_app::{App, Caller, ReadEvents, Redaction, ReviewPlan, Settings, Signals, tools::ToolCall};
use sess_core::{plan::Verdict, policy::ContextVisibility};

use crate::{
    config::{now, random},
    output::Output,
};

/// A session of yesterday, in the format that `sess import` reads.
const YESTERDAY: &str = include_str!("demo.jsonl");

const PLAN: &str = "\
# Retry failed uploads

1. Measure how often uploads fail today.
2. Retry with backoff: 1 s, 2 s, 4 s, then give up with a clear error.
3. Keep the idempotency key across retries, as the earlier session found out.
4. Test with a server that fails twice.
";

pub async fn run(output: &Output) -> anyhow::Result<()> {
    let scratch = tempfile::tempdir().context("cannot make a temporary directory")?;
    let app = App::new(Settings {
        home: Some(scratch.path().join("intersession")),
        plans_dir: None,
        plans_keep_days: 0,
        context_visibility: ContextVisibility::All,
        cwd: None,
        repo: None,
        now,
        random,
    });
    let mut demo = Demo { app, output, steps: 0 };
    demo.run().await?;
    demo.app.finish().await;
    output.line(&format!(
        "\nThe scratch store in {} is removed again. Your own: `sess mcp` for agents, `sess --help` for you.",
        scratch.path().display()
    ))
}

struct Demo<'a> {
    app: App,
    output: &'a Output,
    steps: u32,
}

impl Demo<'_> {
    async fn run(&mut self) -> anyhow::Result<()> {
        self.output
            .line("Every answer below comes from the tools that `sess mcp` serves. No model, no network.")?;

        self.step("Yesterday a Claude Code session looked into failing uploads; it is brought in")?;
        let owner = self.app.cli_caller(&Signals::default());
        let imported = self.app.import_lines(&owner, YESTERDAY.as_bytes()).await?;
        self.show(&format!("imported {}: {} messages", imported.id, imported.added))?;

        let planner = self.agent("planner-session");
        self.step("Today another agent starts from nothing. It looks for earlier sessions")?;
        self.call(&planner, "list_sessions", json!({})).await?;
        self.step("It reads the newest one instead of being told everything again")?;
        self.call(&planner, "read_session", json!({ "session_id": "-1" })).await?;
        self.step("It writes a plan, and signals that it is ready")?;
        self.call(&planner, "write_session_plan", json!({ "content": PLAN })).await?;
        self.call(&planner, "exit_plan_mode", json!({})).await?;

        self.step("You review it: `sess plan show`, then `sess plan approve`")?;
        let session = self.app.resolve(&owner, "planner-session").await?;
        let review =
            ReviewPlan { verdict: Verdict::Approve, revision: None, note: Some("go ahead".to_owned()) };
        let plan = self.app.review_plan(&owner, &session, review).await?;
        self.show(&format!("revision {} is {}", plan.revision, plan.state))?;

        self.step("The executing agent works in the same session, and reads the plan")?;
        self.call(&planner, "read_session_plan", json!({})).await?;

        self.step("Whoever follows along (`sess events --follow`) has seen it happen")?;
        for event in
            self.app.events(&owner, &ReadEvents { limit: 100, ..ReadEvents::default() }).await?.events
        {
            if event.fields["type"] != "message" {
                self.show(&format!(
                    "{} {}",
                    event.cursor,
                    event.fields["type"].as_str().unwrap_or_default()
                ))?;
            }
        }

        self.step("And what was said is found again: `sess search idempotency`")?;
        for hit in self.app.search(&owner, "idempotency", 5, None, Redaction::Masked).await?.hits {
            self.show(&format!("{}#{} {}", hit.session.id, hit.seq, hit.snippet))?;
        }
        Ok(())
    }

    fn agent(&self, session: &str) -> Caller {
        self.app.caller(&Signals { explicit: Some(session.to_owned()), ..Signals::default() })
    }

    async fn call(&self, caller: &Caller, name: &str, arguments: Value) -> anyhow::Result<()> {
        let call = ToolCall { name: name.to_owned(), arguments: arguments.clone(), idempotency_key: None };
        let answer = self.app.call_tool(caller, call).await.context("the demo calls tools that exist")?;
        if answer.is_error {
            bail!("{name} answered: {}", answer.text);
        }
        let shown = if name == "write_session_plan" {
            json!({ "content": "# Retry failed uploads …" })
        } else {
            arguments
        };
        let dim = Style::new().cyan();
        self.output.line(&format!("  {}", dim.apply_to(format!("→ {name} {shown}"))))?;
        self.show(&answer.text)
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
