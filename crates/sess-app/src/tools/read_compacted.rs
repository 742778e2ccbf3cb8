//! `read_compacted`: returns what an agent's own session lost to compaction.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Annotations, Tool, Toolset};
use crate::{App, Caller, Result, Transcript};

pub(super) struct ReadCompactedTool;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// The most bytes to return, 1000 to 200000; 24000 when not given.
    #[serde(default, deserialize_with = "super::whole_number")]
    max_bytes: Option<i64>,
}

#[async_trait]
impl Tool for ReadCompactedTool {
    const NAME: &'static str = "read_compacted";
    const TITLE: &'static str = "Read Compacted";
    const DESCRIPTION: &'static str = "Return the part of this session that stands before its last compaction, as Markdown: what you and \
         the person said that you no longer see. Its most recent part, when it is long.";
    const TOOLSET: Toolset = Toolset::SessionContext;
    const ANNOTATIONS: Annotations = Annotations::READ_ONLY;
    type Args = Args;
    type Output = Transcript;

    async fn call(app: &App, caller: &Caller, args: Args, _: Option<String>) -> Result<(String, Transcript)> {
        let transcript = app.read_compacted(caller, args.max_bytes).await?;
        Ok((transcript.transcript.clone(), transcript))
    }
}
