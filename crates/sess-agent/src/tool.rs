//! Tools: what an agent can do, and how it is told about it.

use async_trait::async_trait;
use serde_json::{Map, Value};
use sess_core::{AgentId, permission::Reach, redact::around_cut};
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
    capped_at(text, ANSWER_BYTES_MAX)
}

/// As [`capped`], at another size. No secret is split: a half would not be masked for readers.
pub(crate) fn capped_at(text: String, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text;
    }
    let half = bytes_max / 2;
    let head = around_cut(&text, text.floor_char_boundary(half)).start;
    let tail = around_cut(&text, text.ceil_char_boundary(text.len() - half)).end;
    let left_out = tail - head;
    format!("{}\n[… {left_out} bytes left out …]\n{}", &text[..head], &text[tail..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_answer_is_cut_in_its_middle_and_never_within_a_secret() {
        let key = "a1b2c3d4e5f6g7h8i9j0";
        let filler = "word ".repeat(ANSWER_BYTES_MAX / 5);
        for shift in 0..48 {
            let head = &filler[..ANSWER_BYTES_MAX / 2 - shift];
            let tail = &filler[..ANSWER_BYTES_MAX / 2 - shift];
            let text = capped(format!("{head}\nTOKEN={key}\n{filler}\nTOKEN={key}\n{tail}"));
            assert!(text.len() < ANSWER_BYTES_MAX + 100 && text.contains(" bytes left out …]\n"));
            let (shown, _) = sess_core::redact::redact(&text);
            assert!(
                key.as_bytes().windows(7).all(|part| !shown.contains(str::from_utf8(part).expect("ASCII")))
            );
        }
    }
}
