//! `read_session_plan`: returns the plan of the calling session.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Annotations, Tool, Toolset};
use crate::{App, Caller, PlanText, Result};

pub(super) struct ReadSessionPlan;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {}

#[async_trait]
impl Tool for ReadSessionPlan {
    const NAME: &'static str = "read_session_plan";
    const TITLE: &'static str = "Read Session Plan";
    const DESCRIPTION: &'static str = "Read the plan written for the current session, as Markdown. A sub-agent without a plan of its own \
         reads its parent's; session_id says whose it is.";
    const TOOLSET: Toolset = Toolset::SessionPlan;
    const ANNOTATIONS: Annotations = Annotations::READ_ONLY;
    type Args = Args;
    // Some hosts show the model the structured part alone, so the text is in there too.
    type Output = PlanText;

    async fn call(app: &App, caller: &Caller, _: Args, _: Option<String>) -> Result<(String, PlanText)> {
        let plan = app.read_plan(caller).await?;
        Ok((plan.content.clone(), plan))
    }
}
