//! `exit_plan_mode`: signals that the plan is ready for a person's review.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Annotations, Tool, Toolset};
use crate::{App, Caller, PlanAnswer, Result};

pub(super) struct ExitPlanMode;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {}

#[async_trait]
impl Tool for ExitPlanMode {
    const NAME: &'static str = "exit_plan_mode";
    const TITLE: &'static str = "Exit Plan Mode";
    const DESCRIPTION: &'static str = "Signal that this session's plan is complete and ready for review. Call it once you do not intend to \
         change the plan on your next turn. It switches no agent and asks nobody: the host decides what comes \
         next.";
    const TOOLSET: Toolset = Toolset::SessionPlan;
    const ANNOTATIONS: Annotations = Annotations::RECORDS;
    type Args = Args;
    type Output = PlanAnswer;

    async fn call(app: &App, caller: &Caller, _: Args, _: Option<String>) -> Result<(String, PlanAnswer)> {
        let plan = app.exit_plan_mode(caller).await?;
        Ok(("Plan ready for review.".to_owned(), plan))
    }
}
