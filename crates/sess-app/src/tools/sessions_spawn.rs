//! `sessions_spawn`: a task for an agent, in a session of its own.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Annotations, Tool, Toolset};
use crate::{App, Attachment, Caller, Error, Result, SpawnAnswer, SpawnTask};

pub(super) struct SessionsSpawn;

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Args {
    /// What the sub-agent is to do. It sees nothing of this conversation, so say all that it needs.
    #[schemars(with = "String", required)] // and not `default`, which would make it optional
    task: Option<String>,
    /// A few words that name the task in lists.
    #[serde(default)]
    label: Option<String>,
    /// Which agent does it: an id from agents_list; your own agent when not given.
    #[serde(default)]
    agent_id: Option<String>,
    /// A configured model to use instead of the agent's own.
    #[serde(default)]
    model: Option<String>,
    /// How hard the model thinks: off, minimal, low, medium or high.
    #[serde(default)]
    thinking: Option<String>,
    /// Stop the task after this many seconds; 0 for no limit.
    #[serde(default, deserialize_with = "super::whole_number")]
    run_timeout_seconds: Option<i64>,
    /// Bind the sub-agent to a thread of your channel, where the channel has threads.
    #[serde(default)]
    thread: Option<bool>,
    /// "run" for one task (the default), "session" to stay in a thread; "session" needs thread.
    #[serde(default)]
    mode: Option<String>,
    /// "keep" archives the sub-agent's session after a while (the default), "delete" removes it once its result
    /// was announced.
    #[serde(default)]
    cleanup: Option<String>,
    /// "inherit" (the default), or "require" to refuse unless the sub-agent is sandboxed.
    #[serde(default)]
    sandbox: Option<String>,
    /// Files for the sub-agent: at most 50, of 1 MiB each, 5 MiB together.
    #[serde(default)]
    attachments: Option<Vec<Attachment>>,
    /// A hint where attachments should appear; kept for later use.
    #[serde(default)]
    #[expect(dead_code, reason = "reserved: it may be given, and changes nothing yet")]
    attach_as: Option<AttachAs>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AttachAs {
    #[serde(default)]
    #[expect(dead_code, reason = "reserved: it may be given, and changes nothing yet")]
    mount_path: Option<String>,
}

#[async_trait]
impl Tool for SessionsSpawn {
    const NAME: &'static str = "sessions_spawn";
    const TITLE: &'static str = "Spawn Sub-agent";
    const DESCRIPTION: &'static str = "Give a task to a sub-agent in a session of its own. Returns at once; when the task has ended, its \
         status and result are sent to this session as a message. Use agents_list for the agents that you may \
         name.";
    const TOOLSET: Toolset = Toolset::Sessions;
    const ANNOTATIONS: Annotations = Annotations::ACTS;
    type Args = Args;
    type Output = SpawnAnswer;

    async fn call(
        app: &App,
        caller: &Caller,
        args: Args,
        idempotency_key: Option<String>,
    ) -> Result<(String, SpawnAnswer)> {
        let run_timeout_seconds =
            args.run_timeout_seconds.map(u64::try_from).transpose().map_err(|_| {
                Error::Invalid("runTimeoutSeconds must be a whole number, 0 or more".to_owned())
            })?;
        app.present(caller).await?;
        let ask = SpawnTask {
            task: args.task.unwrap_or_default(),
            label: args.label,
            agent_id: args.agent_id,
            model: args.model,
            thinking: args.thinking,
            run_timeout_seconds,
            thread: args.thread.unwrap_or(false),
            mode: args.mode,
            cleanup: args.cleanup,
            sandbox: args.sandbox,
            attachments: args.attachments.unwrap_or_default(),
            idempotency_key,
        };
        Ok((String::new(), app.spawn(caller, ask).await?))
    }
}
