//! `sess plan …`: what a person does with a session's plan.

use std::{io::Read as _, path::Path};

use anyhow::{Context as _, bail};
use console::Style;
use serde_json::json;
use sess_app::{PlanText, ReviewPlan, WritePlan};
use sess_core::{Timestamp, plan::Verdict, session::Session};
use similar::{ChangeTag, TextDiff};

use super::Context;
use crate::{
    cli::{Guard, Plan, Review},
    config::now,
    output::{Output, Usage, ago, visible},
};

/// How many revisions a log shows.
const LOG_LEN_MAX: usize = 1_000;

pub async fn run(context: &Context, output: &Output, args: Plan) -> anyhow::Result<()> {
    match args {
        Plan::Show { revision } => {
            let plan = load(context, revision).await?;
            if output.json { output.data(&plan) } else { output.foreign(&plan.content) }
        }
        Plan::Write { file, guard } => write(context, output, file.as_deref(), guard).await,
        Plan::Edit => edit(context, output).await,
        Plan::Log => log(context, output).await,
        Plan::Diff { from, to } => diff(context, output, from, to).await,
        Plan::Approve(args) => review(context, output, Verdict::Approve, args).await,
        Plan::RequestChanges(args) => review(context, output, Verdict::RequestChanges, args).await,
        Plan::Done(args) => review(context, output, Verdict::Done, args).await,
        Plan::Export { file } => {
            let plan = load(context, None).await?;
            match file {
                None => output.raw(plan.content.as_bytes()),
                Some(file) => std::fs::write(&file, &plan.content)
                    .with_context(|| format!("cannot write {}", file.display())),
            }
        }
    }
}

/// Returns the session that is meant: the one named, the one that calls, or
/// the newest that has a plan.
async fn session(context: &Context) -> anyhow::Result<Session> {
    Ok(context.app.plan_session(&context.caller, context.session.as_deref()).await?)
}

async fn load(context: &Context, revision: Option<u64>) -> anyhow::Result<PlanText> {
    let session = session(context).await?;
    Ok(match revision {
        None => context.app.plan_of(&session).await?,
        Some(revision) => context.app.plan_revision(&session, revision).await?,
    })
}

async fn write(context: &Context, output: &Output, file: Option<&Path>, guard: Guard) -> anyhow::Result<()> {
    let content = match file.filter(|file| file.as_os_str() != "-") {
        Some(file) => std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?,
        None => {
            let mut bytes = Vec::new();
            std::io::stdin().read_to_end(&mut bytes).context("cannot read standard input")?;
            bytes
        }
    };
    let Ok(content) = String::from_utf8(content) else {
        return Err(Usage("the plan is not valid UTF-8".to_owned()).into());
    };
    store(context, output, content, guard.expect_revision, guard.idempotency_key).await
}

async fn store(
    context: &Context,
    output: &Output,
    content: String,
    expect_revision: Option<u64>,
    idempotency_key: Option<String>,
) -> anyhow::Result<()> {
    let write = WritePlan { content, expect_revision, idempotency_key };
    let caller = match &context.session {
        Some(_) => context.caller.clone(),
        // The owner without a session means the plan that `show` shows.
        None => match context.app.plan_session(&context.caller, None).await {
            Ok(session) => context.app.owner_as(&context.caller, &session),
            Err(_) => context.caller.clone(),
        },
    };
    let plan = context.app.write_plan(&caller, write).await?;
    if output.json {
        return output.data(&plan);
    }
    output.line(&format!("Plan saved to {} (revision {})", plan.path, plan.revision))
}

async fn edit(context: &Context, output: &Output) -> anyhow::Result<()> {
    let plan = load(context, None).await?;
    let variable =
        |name: &str| context.env.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    let editor = variable("VISUAL").or(variable("EDITOR")).unwrap_or("vi");
    let mut file = tempfile::Builder::new().prefix("plan-").suffix(".md").tempfile()?;
    std::io::Write::write_all(&mut file, plan.content.as_bytes())?;
    // The variable may hold arguments: `code --wait`.
    let status = std::process::Command::new("sh")
        .arg("-c")
        .arg(format!("{editor} \"$1\""))
        .arg("sh")
        .arg(file.path())
        .status()
        .with_context(|| format!("cannot start the editor {editor}"))?;
    if !status.success() {
        bail!("the editor {editor} ended with {status}; the plan is as it was");
    }
    let content = std::fs::read_to_string(file.path()).context("cannot read back what you wrote")?;
    if content == plan.content {
        output.say("nothing changed");
        return Ok(());
    }
    store(context, output, content, Some(plan.plan.revision), None).await
}

async fn log(context: &Context, output: &Output) -> anyhow::Result<()> {
    let session = session(context).await?;
    let log = context.app.plan_log(&session, LOG_LEN_MAX).await?;
    if output.json {
        return output.data(&json!({ "session_id": session.id, "revisions": log }));
    }
    let now = now();
    let rows = log.iter().rev().map(|entry| {
        let at = Timestamp::parse_rfc3339(&entry.at).map(|at| ago(at, now)).unwrap_or_default();
        vec![entry.revision.to_string(), entry.agent.clone(), at, entry.bytes.to_string()]
    });
    output.table(&["REVISION", "BY", "WHEN", "BYTES"], &rows.collect::<Vec<_>>())
}

async fn diff(context: &Context, output: &Output, from: Option<u64>, to: Option<u64>) -> anyhow::Result<()> {
    let session = session(context).await?;
    let newest = context.app.plan_log(&session, 1).await?.last().map_or(0, |entry| entry.revision);
    let to = to.unwrap_or(newest);
    let from = from.unwrap_or(to.saturating_sub(1));
    let old = context.app.plan_revision(&session, from).await?.content;
    let new = context.app.plan_revision(&session, to).await?.content;
    let diff = TextDiff::from_lines(&old, &new);
    if output.json {
        let text =
            diff.unified_diff().header(&format!("revision {from}"), &format!("revision {to}")).to_string();
        return output.data(&json!({ "session_id": session.id, "from": from, "to": to, "diff": text }));
    }
    output.line(&format!("--- revision {from}\n+++ revision {to}"))?;
    for group in diff.grouped_ops(3) {
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let (sign, style) = match change.tag() {
                ChangeTag::Delete => ("-", Style::new().red()),
                ChangeTag::Insert => ("+", Style::new().green()),
                ChangeTag::Equal => (" ", Style::new()),
            };
            let line = visible(change.value().trim_end_matches('\n'));
            output.line(&style.apply_to(format!("{sign}{line}")).to_string())?;
        }
    }
    Ok(())
}

async fn review(context: &Context, output: &Output, verdict: Verdict, args: Review) -> anyhow::Result<()> {
    let session = session(context).await?;
    let review = ReviewPlan { verdict, revision: args.revision, note: args.message };
    let plan = context.app.review_plan(&context.caller, &session, review).await?;
    if output.json {
        return output.data(&plan);
    }
    let state = plan.state.replace('_', " ");
    output.line(&format!("Plan of session {} is {state} (revision {})", plan.session_id, plan.revision))
}
