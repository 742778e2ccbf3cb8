//! `sessions_send`: a message into another session.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Annotations, Tool, Toolset};
use crate::{App, Caller, Redaction, Result, SendAnswer, SendMessage, sending::no_wait};

pub(super) struct SessionsSend;

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Args {
    /// A key or sessionId from sessions_list (or its first 8 or more characters); "main" is your agent's main
    /// session.
    #[schemars(with = "String", required)] // and not `default`, which would make it optional
    session_key: Option<String>,
    /// What to say, at most 256 KiB.
    #[schemars(with = "String", required)]
    message: Option<String>,
    /// How many seconds to wait for the reply, 0 to 600; 0 returns at once, 30 when not given.
    #[serde(default, deserialize_with = "super::whole_number")]
    timeout_seconds: Option<i64>,
}

#[async_trait]
impl Tool for SessionsSend {
    const NAME: &'static str = "sessions_send";
    const TITLE: &'static str = "Send to Session";
    const DESCRIPTION: &'static str = "Send a message into another session and wait for its reply. The message is queued durably: after a \
         timeout the run goes on, and its late reply still reaches you. The other session is told that the \
         message is yours and not a person's.";
    const TOOLSET: Toolset = Toolset::Sessions;
    const ANNOTATIONS: Annotations = Annotations::ACTS;
    type Args = Args;
    type Output = SendAnswer;

    async fn call(
        app: &App,
        caller: &Caller,
        args: Args,
        idempotency_key: Option<String>,
    ) -> Result<(String, SendAnswer)> {
        let timeout_seconds = match args.timeout_seconds {
            Some(seconds) => Some(u64::try_from(seconds).map_err(|_| no_wait(seconds))?),
            None => None,
        };
        let ask = SendMessage {
            to: args.session_key.unwrap_or_default(),
            message: args.message.unwrap_or_default(),
            timeout_seconds,
            idempotency_key,
            redaction: Redaction::Masked,
        };
        Ok((String::new(), app.send(caller, ask).await?))
    }
}
