//! `sess plan …`: what a person does with a session's plan.

use std::{
    io::{IsTerminal as _, Read as _},
    path::Path,
};

use anyhow::{Context as _, bail};
use console::Style;
use serde_json::json;
use sess_app::{Caller, Kind, PlanAnswer, PlanText, ReviewPlan, WritePlan};
use sess_core::{Timestamp, id::is_uuid, plan::Verdict, reference::ReferenceError, session::Session};
use similar::TextDiff;

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
            let (_, plan) = load(context, revision).await?;
            show(output, &plan)
        }
        Plan::Write { file, guard } => write(context, output, file.as_deref(), guard).await,
        Plan::Edit => edit(context, output).await,
        Plan::Log => log(context, output).await,
        Plan::Diff { from, to } => diff(context, output, from, to).await,
        Plan::Approve(args) => review(context, output, Verdict::Approve, args).await,
        Plan::RequestChanges(args) => review(context, output, Verdict::RequestChanges, args).await,
        Plan::Done(args) => review(context, output, Verdict::Done, args).await,
        Plan::Export { file } => {
            let (_, plan) = load(context, None).await?;
            let Some(file) = file else { return show(output, &plan) };
            std::fs::write(&file, &plan.content)
                .with_context(|| format!("cannot write {}", file.display()))?;
            let PlanAnswer { session_id, revision, .. } = &plan.plan;
            output.say(&format!("revision {revision} of session {session_id} is in {}", file.display()));
            Ok(())
        }
    }
}

/// Prints a plan; to a person also how it stands, and what can be done about it.
fn show(output: &Output, plan: &PlanText) -> anyhow::Result<()> {
    if output.json {
        return output.data(plan);
    }
    output.foreign(&plan.content)?;
    if output.is_terminal() {
        let PlanAnswer { session_id, revision, state, .. } = &plan.plan;
        let next = match state.as_str() {
            "ready" => "\n  next: `sess plan approve`, or `sess plan request-changes -m …`",
            "approved" => "\n  when it is carried out: `sess plan done`",
            _ => "",
        };
        let text =
            format!("— revision {revision} of session {session_id}: {}{next}", state.replace('_', " "));
        output.say(&Style::new().for_stderr().dim().apply_to(text).to_string());
    }
    Ok(())
}

/// Returns the session that is meant: the one named, the one that calls, or
/// the newest that has a plan.
async fn session(context: &Context) -> anyhow::Result<Session> {
    Ok(context.app.plan_session(&context.caller, context.session.as_deref()).await?)
}

async fn load(context: &Context, revision: Option<u64>) -> anyhow::Result<(Session, PlanText)> {
    let session = session(context).await?;
    let plan = match revision {
        None => context.app.plan_of(&session).await?,
        Some(revision) => context.app.plan_revision(&session, revision).await?,
    };
    Ok((session, plan))
}

async fn write(context: &Context, output: &Output, file: Option<&Path>, guard: Guard) -> anyhow::Result<()> {
    let content = match file.filter(|file| file.as_os_str() != "-") {
        Some(file) => std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?,
        None => {
            if std::io::stdin().is_terminal() {
                output.say("type the plan; Ctrl-D ends it");
            }
            let mut bytes = Vec::new();
            std::io::stdin().read_to_end(&mut bytes).context("cannot read standard input")?;
            bytes
        }
    };
    let Ok(content) = String::from_utf8(content) else {
        return Err(Usage("the plan is not valid UTF-8".to_owned()).into());
    };
    let writer = writer(context).await?;
    let Guard { expect_revision, idempotency_key } = guard;
    store(context, output, &writer, WritePlan { content, expect_revision, idempotency_key }).await
}

/// Returns who writes: somebody in the session that `show` means, else in a
/// session that the write begins.
async fn writer(context: &Context) -> anyhow::Result<Caller> {
    let caller = &context.caller;
    let session = match context.app.plan_session(caller, context.session.as_deref()).await {
        // Nothing can begin under a name like `-3`.
        Err(error @ sess_app::Error::Reference(ReferenceError::OutOfRange { .. })) => {
            return Err(error.into());
        }
        Err(error) if error.kind() == Kind::NotFound => return Ok(caller.clone()),
        found => found?,
    };
    // The beginning of an id names a session only where nobody would give a new one that name: with
    // `build-10` here, `--session build-1` begins another. A UUID is made by a machine.
    let is_cut = |given: &str| session.id.as_str().starts_with(given) && session.id.as_str() != given;
    if context.session.as_deref().is_some_and(is_cut) && !is_uuid(session.id.as_str()) {
        return Ok(caller.clone());
    }
    Ok(context.app.act_in(caller, &session).await?)
}

async fn store(context: &Context, output: &Output, writer: &Caller, write: WritePlan) -> anyhow::Result<()> {
    let is_new = !context.app.whoami(writer).await.stored;
    let plan = context.app.write_plan(writer, write).await?;
    if output.json {
        return output.data(&plan);
    }
    let session = if is_new { "a new session," } else { "session" };
    output.line(&format!(
        "Plan of {session} {}, saved as revision {}: {}",
        plan.session_id, plan.revision, plan.path
    ))
}

async fn edit(context: &Context, output: &Output) -> anyhow::Result<()> {
    let (session, plan) = load(context, None).await?;
    let variable = |name: &str| {
        let set = context.env.iter().find(|(key, value)| key == name && !value.is_empty());
        set.map(|(_, value)| value.as_str())
    };
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
    let write = WritePlan { content, expect_revision: Some(plan.plan.revision), idempotency_key: None };
    let writer = context.app.act_in(&context.caller, &session).await?;
    let stored = store(context, output, &writer, write).await;
    if stored.is_err()
        && let Ok((_, path)) = file.keep()
    {
        output.say(&format!("what you wrote is kept in {}", path.display()));
    }
    stored
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
    output.table(&["REVISION", "BY", "WHEN", "BYTES"], 1, &rows.collect::<Vec<_>>())
}

async fn diff(context: &Context, output: &Output, from: Option<u64>, to: Option<u64>) -> anyhow::Result<()> {
    let session = session(context).await?;
    let newest = context.app.plan_log(&session, 1).await?.last().map_or(0, |entry| entry.revision);
    let to = to.unwrap_or(newest);
    let from = from.unwrap_or(to.saturating_sub(1));
    // Before the first revision there was nothing.
    let old = match from {
        0 => String::new(),
        _ => context.app.plan_revision(&session, from).await?.content,
    };
    let new = context.app.plan_revision(&session, to).await?.content;
    let diff = TextDiff::from_lines(&old, &new);
    let text = diff.unified_diff().header(&format!("revision {from}"), &format!("revision {to}")).to_string();
    if output.json {
        return output.data(&json!({ "session_id": session.id, "from": from, "to": to, "diff": text }));
    }
    if text.is_empty() {
        output.say(&format!("revisions {from} and {to} are the same"));
    }
    if !output.is_terminal() {
        return output.raw(text.as_bytes());
    }
    for (index, line) in text.lines().enumerate() {
        let is_header = index < 2;
        output.line(&if is_header {
            Style::new().bold().apply_to(visible(line)).to_string()
        } else {
            coloured(line)
        })?;
    }
    Ok(())
}

/// Colours a line of a difference.
pub fn coloured(line: &str) -> String {
    let style = match line.as_bytes().first() {
        Some(b'-') => Style::new().red(),
        Some(b'+') => Style::new().green(),
        Some(b'@') => Style::new().cyan(),
        _ => Style::new(),
    };
    style.apply_to(visible(line)).to_string()
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
