//! `work_claim`: takes a work session.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Annotations, Tool, Toolset, with_notices};
use crate::{App, Caller, Result};

/// How much an agent is told when it begins.
const CONTEXT_BYTES: usize = 16_000;

pub(super) struct WorkClaim;

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Args {
    /// The work session, as work_list names it; the first that is ready when not given.
    #[serde(default)]
    slug: Option<String>,
    /// Without slug: only one that has this label.
    #[serde(default)]
    label: Option<String>,
    /// Take it although what it depends on is not completed.
    #[serde(default)]
    ignore_dependencies: Option<bool>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Claimed {
    slug: String,
    state: String,
    /// Where to work: an absolute path. Change files only there.
    workspace: Option<String>,
    branch: String,
    /// Rises whenever the work session changes hands.
    fence: u64,
    /// When it stops being yours without a sign of life.
    until: String,
    /// The plan, what is open in it, and what is known about the matter.
    context: String,
    notices: Vec<String>,
}

#[async_trait]
impl Tool for WorkClaim {
    const NAME: &'static str = "work_claim";
    const TITLE: &'static str = "Claim Work Session";
    const DESCRIPTION: &'static str = "Take a planned work session, so that nobody else works on it, and get a workspace of its own. Returns the \
         plan and where to work. Calling it again for one that is yours renews it. Write down progress with \
         work_note, and end it with work_finish.";
    const TOOLSET: Toolset = Toolset::Work;
    const ANNOTATIONS: Annotations = Annotations::RECORDS;
    type Args = Args;
    type Output = Claimed;

    async fn call(app: &App, caller: &Caller, args: Args, _: Option<String>) -> Result<(String, Claimed)> {
        let (claimed, waits) = app
            .at_work(caller, move |work| {
                let options = sess_work::ClaimOptions {
                    ignore_dependencies: args.ignore_dependencies.unwrap_or(false),
                    ..sess_work::ClaimOptions::default()
                };
                let claimed = match (&args.slug, args.label.as_deref()) {
                    // Whoever says both may mean that it has the label, which nothing would heed.
                    (Some(slug), Some(_)) => return Err(named_and_labelled(slug)),
                    (Some(slug), None) => work.claim(&slug.parse()?, &options)?,
                    (None, label) => {
                        work.claim_next(label, &options)?.ok_or_else(sess_work::Error::none_ready)?
                    }
                };
                let claim = &claimed.record.claim;
                let waits = claim.waits();
                let told = Claimed {
                    slug: claim.slug.to_string(),
                    state: sess_work::State::Active.to_string(),
                    workspace: claimed.workspace.as_ref().map(|path| path.to_string_lossy().into_owned()),
                    branch: claim.branch.clone(),
                    fence: claim.fence,
                    until: claim.lapses_at().to_string(),
                    context: work.context(&claim.slug, CONTEXT_BYTES)?.0,
                    notices: claimed.notices.clone(),
                };
                Ok((told, waits))
            })
            .await?;
        let place = claimed.workspace.as_ref().map(|path| format!(" Work in {path}.")).unwrap_or_default();
        let Claimed { slug, until, context, notices, .. } = &claimed;
        let told = match waits {
            true => format!("{slug} is yours: it is done, and waits to be merged.{place}"),
            false => format!("{slug} is yours until {until}.{place}"),
        };
        Ok((format!("{}\n\n{context}", with_notices(told, notices)), claimed))
    }
}

fn named_and_labelled(slug: &str) -> sess_work::Error {
    sess_work::Error::usage(
        "slug names one work session, and label asks for any that has it: give one of them",
    )
    .next(format!("sess work claim {}", sess_work::quoted(slug)))
}
