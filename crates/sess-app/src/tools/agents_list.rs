//! `agents_list`: the agents that the caller may spawn.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Annotations, Tool, Toolset};
use crate::{App, Caller, Result, Spawnable};

pub(super) struct AgentsList;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {}

#[async_trait]
impl Tool for AgentsList {
    const NAME: &'static str = "agents_list";
    const TITLE: &'static str = "List Agents";
    const DESCRIPTION: &'static str =
        "List the agents that you may name in sessions_spawn, your own first, the rest sorted.";
    const TOOLSET: Toolset = Toolset::Sessions;
    const ANNOTATIONS: Annotations = Annotations::READ_ONLY;
    type Args = Args;
    type Output = Spawnable;

    async fn call(app: &App, caller: &Caller, _: Args, _: Option<String>) -> Result<(String, Spawnable)> {
        app.present(caller).await?;
        Ok((String::new(), app.spawnable(caller).await?))
    }
}
