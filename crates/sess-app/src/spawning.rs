//! `sessions_spawn`: a task for an agent, in a session of its own.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{App, Caller, Result};

/// What a spawn asks for, as it came: the checks have an order.
#[derive(Clone, Debug, Default)]
pub struct SpawnTask {
    pub task: String,
    pub label: Option<String>,
    pub agent_id: Option<String>,
    pub model: Option<String>,
    pub thinking: Option<String>,
    pub run_timeout_seconds: Option<u64>,
    pub thread: bool,
    /// `run` or `session`.
    pub mode: Option<String>,
    /// `keep` or `delete`.
    pub cleanup: Option<String>,
    /// `inherit` or `require`.
    pub sandbox: Option<String>,
    pub attachments: Vec<Attachment>,
    pub idempotency_key: Option<String>,
}

/// A file that a task comes with.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Attachment {
    pub name: String,
    pub content: String,
    /// `utf8` (when not given) or `base64`.
    #[serde(default)]
    pub encoding: Option<String>,
    #[serde(default)]
    pub mime_type: Option<String>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpawnAnswer {
    pub status: &'static str,
    pub run_id: String,
    pub child_session_key: String,
    /// `run` or `session`.
    pub mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attachments: Option<Receipt>,
}

/// What became of the attachments.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    pub count: usize,
    pub total_bytes: u64,
    pub rel_dir: String,
    pub files: Vec<ReceiptFile>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ReceiptFile {
    pub name: String,
    pub bytes: u64,
    pub sha256: String,
}

/// The agents that a caller may spawn.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Spawnable {
    pub requester: String,
    pub allow_any: bool,
    pub agents: Vec<SpawnableAgent>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SpawnableAgent {
    pub id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub configured: bool,
    pub sandboxed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

impl App {
    /// Spawns a task, and returns at once.
    pub async fn spawn(&self, _caller: &Caller, _ask: SpawnTask) -> Result<SpawnAnswer> {
        todo!()
    }

    /// Returns the agents that the caller may spawn: itself first, the rest sorted.
    pub async fn spawnable(&self, _caller: &Caller) -> Result<Spawnable> {
        todo!()
    }
}
