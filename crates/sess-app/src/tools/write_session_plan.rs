//! `write_session_plan`: creates or replaces the plan of the calling session.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Annotations, Tool, Toolset};
use crate::{App, Caller, PlanAnswer, Result, WritePlan};

pub(super) struct WriteSessionPlan;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// The whole plan as Markdown. It replaces the plan that is there.
    #[schemars(with = "String", required)] // and not `default`, which would make it optional
    content: Option<String>,
}

#[async_trait]
impl Tool for WriteSessionPlan {
    const NAME: &'static str = "write_session_plan";
    const TITLE: &'static str = "Write Session Plan";
    const DESCRIPTION: &'static str = "Create or replace this session's plan as Markdown. There is exactly one \
        plan per session, and each call replaces it whole; earlier revisions are kept. Call exit_plan_mode when \
        it is complete.";
    const TOOLSET: Toolset = Toolset::SessionPlan;
    const ANNOTATIONS: Annotations = Annotations::RECORDS;
    type Args = Args;
    type Output = PlanAnswer;

    async fn call(
        app: &App,
        caller: &Caller,
        args: Args,
        idempotency_key: Option<String>,
    ) -> Result<(String, PlanAnswer)> {
        let content = args.content.unwrap_or_default();
        let plan =
            app.write_plan(caller, WritePlan { content, expect_revision: None, idempotency_key }).await?;
        Ok((format!("Plan saved to {}", plan.path), plan))
    }
}
