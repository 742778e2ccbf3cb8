//! `sessions_list`: the sessions that the caller reaches.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Annotations, Tool, Toolset};
use crate::{App, Caller, ListRows, Result, Rows};

pub(super) struct SessionsList;

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Args {
    /// Only sessions of these kinds: main, group, cron, hook, node, other.
    #[serde(default)]
    kinds: Option<Vec<String>>,
    /// How many sessions to return, 1 to 200; 50 when not given.
    #[serde(default, deserialize_with = "super::whole_number")]
    limit: Option<i64>,
    /// Only sessions that something happened in within this many minutes; more than 0.
    #[serde(default)]
    active_minutes: Option<f64>,
    /// Also return the last messages of each session, up to 20, without tool results; 0 when not given.
    #[serde(default, deserialize_with = "super::whole_number")]
    message_limit: Option<i64>,
}

#[async_trait]
impl Tool for SessionsList {
    const NAME: &'static str = "sessions_list";
    const TITLE: &'static str = "List Reachable Sessions";
    const DESCRIPTION: &'static str = "List the sessions that you can read, send to or have spawned, your own included, most recent \
         activity first. Each row has the key and the sessionId that sessions_history and sessions_send take.";
    const TOOLSET: Toolset = Toolset::Sessions;
    const ANNOTATIONS: Annotations = Annotations::READ_ONLY;
    type Args = Args;
    type Output = Rows;

    async fn call(app: &App, caller: &Caller, args: Args, _: Option<String>) -> Result<(String, Rows)> {
        let ask = ListRows {
            kinds: args.kinds.unwrap_or_default(),
            limit: args.limit,
            active_minutes: args.active_minutes,
            message_limit: args.message_limit,
            ..ListRows::default()
        };
        Ok((String::new(), app.session_rows(caller, &ask).await?))
    }
}
