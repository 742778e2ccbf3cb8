//! Tools: what an agent can do, and how it is told about it.

use async_trait::async_trait;
use serde_json::{Map, Value};
use sess_core::{AgentId, permission::Reach};
use tokio_util::sync::CancellationToken;

/// The most bytes of one tool's answer that a model is shown.
pub const ANSWER_BYTES_MAX: usize = 100_000;

/// What a model is told about a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolDef {
    pub name: String,
    pub description: String,
    pub input_schema: Map<String, Value>,
    /// Calls of harmless tools may run at the same time, and are not asked about.
    pub reach: Reach,
}

/// What a tool answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolOutput {
    pub text: String,
    pub is_error: bool,
    /// The session goes on with this agent.
    pub hand_off: Option<AgentId>,
}

impl ToolOutput {
    pub fn ok(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    pub fn error(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_error: true, hand_off: None }
    }
}

/// A group of tools.
#[async_trait]
pub trait Toolbox: Send + Sync {
    /// Returns the tools there are now; an outside server may change its mind.
    async fn tools(&self) -> Vec<ToolDef>;

    /// Calls one of them. Whatever goes wrong is an answer, never a panic.
    ///
    /// A cancelled call ends soon, and leaves no process behind.
    async fn call(&self, name: &str, arguments: Map<String, Value>, cancel: &CancellationToken)
    -> ToolOutput;
}

/// Cuts an answer in the middle when it is too long for a model, and says so.
pub fn capped(text: String) -> String {
    if text.len() <= ANSWER_BYTES_MAX {
        return text;
    }
    let half = ANSWER_BYTES_MAX / 2;
    let head = text.floor_char_boundary(half);
    let tail = text.ceil_char_boundary(text.len() - half);
    let left_out = tail - head;
    format!("{}\n[… {left_out} bytes left out …]\n{}", &text[..head], &text[tail..])
}
