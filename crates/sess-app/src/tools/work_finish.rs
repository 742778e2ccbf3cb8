//! `work_finish`: ends a work session.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sess_core::mention::first_of;

use super::{Annotations, Tool, Toolset, with_notices};
use crate::{App, Caller, Error, Result};

pub(super) struct WorkFinish;

/// How many new files an error names.
const FILES_SHOWN_MAX: usize = 5;

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Args {
    /// How it ends.
    #[schemars(with = "Ending", required)] // and not `default`, which would make it optional
    outcome: Option<Ending>,
    /// The work session; the one whose workspace you are in when not given.
    #[serde(default)]
    slug: Option<String>,
    /// Why; needed to abandon.
    #[serde(default)]
    reason: Option<String>,
    /// For complete: final notes, which are kept with the plan.
    #[serde(default)]
    notes: Option<String>,
    /// Commit whatever is changed or new in the workspace first, with this message, such as "feat: add a form".
    /// Without it, changes and new files that are not committed are an error.
    #[serde(default)]
    commit_message: Option<String>,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Ending {
    /// The work is done: it lands on the base branch.
    Complete,
    /// It cannot or should not be done.
    Abandon,
    /// Somebody else should go on with it.
    Release,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Finished {
    slug: String,
    state: String,
    /// The commit that brought the work to the base branch.
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<String>,
    /// The work session that merges what was learned.
    #[serde(skip_serializing_if = "Option::is_none")]
    kb: Option<String>,
    notices: Vec<String>,
}

#[async_trait]
impl Tool for WorkFinish {
    const NAME: &'static str = "work_finish";
    const TITLE: &'static str = "Finish Work Session";
    const DESCRIPTION: &'static str = "End a work session that is yours. complete checks the plan and its gates and lands the work on the base \
         branch in one commit; abandon gives it up for a reason; release gives it back for somebody else. A merge \
         conflict or a failed gate is an error, and the work session stays yours.";
    const TOOLSET: Toolset = Toolset::Work;
    const ANNOTATIONS: Annotations = Annotations::ACTS;
    type Args = Args;
    type Output = Finished;

    async fn call(app: &App, caller: &Caller, args: Args, _: Option<String>) -> Result<(String, Finished)> {
        let none = || Error::Invalid("outcome must be complete, abandon or release".to_owned());
        let outcome = args.outcome.ok_or_else(none)?;
        let finished = app.at_work(caller, move |work| finish(work, outcome, &args)).await?;
        let told = match (outcome, finished.state.as_str()) {
            (Ending::Complete, "active") => format!("{} is done, and waits to be merged.", finished.slug),
            (_, state) => format!("{} is {state} now.", finished.slug),
        };
        Ok((with_notices(told, &finished.notices), finished))
    }
}

/// Fails when a session would end without files that were made for it: an agent without a shell cannot see that.
fn check_nothing_new(work: &sess_work::Work, slug: &sess_work::Slug) -> sess_work::Result<()> {
    let files = work.new_files(slug)?;
    if files.is_empty() {
        return Ok(());
    }
    let shown = first_of(&files, FILES_SHOWN_MAX);
    Err(sess_work::Error::would_lose(format!(
        "the workspace of {slug} has new files that are not committed: {shown}; give a commitMessage to commit them, and name in .gitignore what stays out"
    ))
    .next("sess tool call work_finish '{\"outcome\": \"…\", \"commitMessage\": \"…\"}'"))
}

fn finish(work: &sess_work::Work, outcome: Ending, args: &Args) -> sess_work::Result<Finished> {
    let slug = work.meant(args.slug.as_deref())?;
    if let Some(message) = &args.commit_message {
        work.commit_all(&slug, message)?;
    }
    check_nothing_new(work, &slug)?;
    let (state, commit, kb, notices) = match outcome {
        Ending::Complete => {
            let done = work.complete(&slug, args.notes.as_deref())?;
            let state = match done.record.claim.phase {
                sess_work::Phase::Landing => sess_work::State::Active,
                _ => sess_work::State::Completed,
            };
            let commit = done.record.claim.landed.map(|landed| landed.commit.to_string());
            (state, commit, done.kb.map(|kb| kb.to_string()), done.notices)
        }
        Ending::Abandon => {
            let notices = work.abandon(&slug, args.reason.as_deref().unwrap_or_default())?;
            (sess_work::State::Abandoned, None, None, notices)
        }
        Ending::Release => {
            let notices = work.release(&slug, args.reason.as_deref())?;
            (sess_work::State::Planned, None, None, notices)
        }
    };
    Ok(Finished { slug: slug.to_string(), state: state.to_string(), commit, kb, notices })
}
