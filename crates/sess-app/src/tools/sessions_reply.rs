//! `sessions_reply`: answers a message of the inbox.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Annotations, Tool, Toolset};
use crate::{App, Caller, Replied, Result};

pub(super) struct SessionsReply;

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Args {
    /// The runId of the message, from sessions_inbox.
    #[schemars(with = "String", required)] // and not `default`, which would make it optional
    run_id: Option<String>,
    /// The answer, at most 256 KiB.
    #[schemars(with = "String", required)]
    message: Option<String>,
}

#[async_trait]
impl Tool for SessionsReply {
    const NAME: &'static str = "sessions_reply";
    const TITLE: &'static str = "Reply to Message";
    const DESCRIPTION: &'static str = "Answer a message of sessions_inbox. It goes to the session that sent it. A message is answered once.";
    const TOOLSET: Toolset = Toolset::Sessions;
    const ANNOTATIONS: Annotations = Annotations::ACTS;
    type Args = Args;
    type Output = Replied;

    async fn call(app: &App, caller: &Caller, args: Args, _: Option<String>) -> Result<(String, Replied)> {
        let (run, message) = (args.run_id.unwrap_or_default(), args.message.unwrap_or_default());
        Ok((String::new(), app.reply(caller, &run, &message).await?))
    }
}
