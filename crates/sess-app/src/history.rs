//! `sessions_history`: the newest messages of one session.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::{App, Caller, Redaction, Result};

#[derive(Clone, Debug, Default)]
pub struct ReadHistory {
    /// A key or an id.
    pub session: String,
    pub limit: Option<i64>,
    pub include_tools: bool,
    pub redaction: Redaction,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct History {
    pub session_key: String,
    pub session_id: String,
    /// In the transcript format, oldest first.
    pub messages: Vec<Value>,
    /// Whether the session has older messages than these.
    pub truncated: bool,
    /// How many of those asked for were left out to keep the answer small.
    pub dropped_messages: u64,
    pub content_truncated: bool,
    pub content_redacted: bool,
    pub bytes: usize,
}

impl App {
    pub async fn history(&self, _caller: &Caller, _ask: &ReadHistory) -> Result<History> {
        todo!()
    }
}
