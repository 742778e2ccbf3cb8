//! Events of a transcript, told as messages.

use std::{collections::HashSet, ops::ControlFlow};

use serde::Deserialize;
use serde_json::Value;
use sess_core::{
    SessionId, Timestamp,
    message::{Block, Body, Provenance, Role, Usage},
};

use super::Children;
use crate::{Entry, Take, json, lenient};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default, deserialize_with = "lenient::text")]
    id: Option<String>,
    timestamp: Option<Value>,
    #[serde(default)]
    message: Value,
    #[serde(default)]
    summary: Value,
    #[serde(default)]
    content: Value,
    #[serde(default, deserialize_with = "lenient::flag")]
    display: bool,
}

pub(super) struct Telling<'a, 'b> {
    take: &'a mut Take<'b>,
    /// Where the events begin that were taken back.
    taken_back: HashSet<u64>,
    children: Children,
    last: Timestamp,
    pub unknown: u64,
}

impl<'a, 'b> Telling<'a, 'b> {
    pub(super) fn new(
        take: &'a mut Take<'b>,
        taken_back: HashSet<u64>,
        children: Children,
        at: Timestamp,
    ) -> Self {
        Self { take, taken_back, children, last: at, unknown: 0 }
    }

    /// Tells an event; none when it cannot be read.
    pub(super) fn event(&mut self, start: u64, line: &[u8]) -> Option<ControlFlow<()>> {
        let mut event: Event = json::from_slice(line).ok()?;
        let is_taken_back = self.taken_back.contains(&start);
        let at = event.timestamp.as_ref().or(event.message.get("timestamp")).and_then(json::instant);
        self.last = at.unwrap_or(self.last);
        let body = match &*event.kind {
            "message" => {
                if let Some(child) = self.child(&event.message) {
                    let body = json::sub_session(child, self.last);
                    if (self.take)(Entry { id: None, body, is_taken_back }).is_break() {
                        return Some(ControlFlow::Break(()));
                    }
                }
                match self.body(event.message.take())? {
                    Some(body) => body,
                    None => return Some(ControlFlow::Continue(())),
                }
            }
            "custom_message" if event.display => {
                let mut body = json::empty(Role::User, self.last);
                body.content = blocks(event.content.take());
                body.provenance = Some(Provenance::InternalSystem);
                body
            }
            "compaction" => json::compaction(event.summary.as_str().unwrap_or_default(), self.last),
            // What was said before is no longer known to the model.
            "reset" => json::compaction("", self.last),
            "session"
            | "model_change"
            | "thinking_level_change"
            | "custom"
            | "custom_message"
            | "branch_summary"
            | "leaf"
            | "label"
            | "session_info" => {
                return Some(ControlFlow::Continue(()));
            }
            _ => {
                self.unknown += 1;
                return Some(ControlFlow::Continue(()));
            }
        };
        Some((self.take)(Entry { id: event.id, body, is_taken_back }))
    }

    /// Returns a message of ours; none where it is of a kind that is not known, or cannot be read.
    fn body(&mut self, mut message: Value) -> Option<Option<Body>> {
        let text = |name: &str| json::field(&message, name).map(str::to_owned);
        let role = match json::field(&message, "role")? {
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "toolResult" => Role::ToolResult,
            _ => {
                self.unknown += 1;
                return Some(None);
            }
        };
        let mut body = json::empty(role, self.last);
        body.tool_call_id = text("toolCallId");
        body.tool_name = text("toolName");
        body.is_error = message.get("isError").and_then(Value::as_bool).filter(|failed| *failed);
        body.model = text("model");
        body.stop_reason = text("stopReason");
        body.usage = usage(&message);
        body.provenance = message.get("provenance").and_then(provenance);
        if let Some(error) = json::field(&message, "errorMessage").filter(|error| !error.is_empty()) {
            body.content.push(json::named("error", &[("name", error)]));
        }
        let content = message.get_mut("content").map(Value::take).unwrap_or_default();
        body.content.splice(0..0, blocks(content));
        let is_empty = body.content.is_empty() && role != Role::ToolResult;
        Some((!is_empty).then_some(body))
    }

    /// Returns the session that a tool gave a task to, by what it answered.
    fn child(&self, message: &Value) -> Option<SessionId> {
        const KEY: &str = "childSessionKey";
        if self.children.is_empty() || json::field(message, "role") != Some("toolResult") {
            return None;
        }
        let told = message.get("details").and_then(|details| json::field(details, KEY)).map(str::to_owned);
        let told = told.or_else(|| {
            let text = message.get("content")?.get(0)?.get("text")?.as_str()?;
            let answer: Value = text.contains(KEY).then(|| json::from_str(text).ok())??;
            json::field(&answer, KEY).map(str::to_owned)
        });
        self.children.get(&told?).cloned()
    }
}

/// Returns who really wrote a message. What cannot be told is at least not the person's own words.
fn provenance(value: &Value) -> Option<Provenance> {
    let text = |name: &str| json::field(value, name).map(str::to_owned);
    let key = text("sourceSessionKey").and_then(|key| key.parse().ok());
    Some(match (json::field(value, "kind")?, key) {
        ("external_user", _) => Provenance::ExternalUser,
        ("inter_session", Some(source_session_key)) => Provenance::InterSession {
            source_session_key,
            source_channel: text("sourceChannel"),
            source_tool: text("sourceTool"),
        },
        _ => Provenance::InternalSystem,
    })
}

fn usage(message: &Value) -> Option<Usage> {
    let usage = message.get("usage").filter(|usage| usage.is_object())?;
    let count = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or(0);
    Some(Usage {
        input: count("input"),
        output: count("output"),
        cache_read: count("cacheRead"),
        cache_write: count("cacheWrite"),
        cost: usage.get("cost").and_then(|cost| cost.get("total")).and_then(Value::as_f64),
        ..Usage::default()
    })
}

/// Returns the blocks of a message, whichever way it is written.
fn blocks(content: Value) -> Vec<Block> {
    match content {
        Value::String(text) if !text.is_empty() => vec![json::text(text)],
        Value::Array(parts) => parts.into_iter().filter_map(block).collect(),
        _ => Vec::new(),
    }
}

/// Returns the block that a part is; none for an empty text.
fn block(mut part: Value) -> Option<Block> {
    let text = |name: &str| json::field(&part, name).unwrap_or_default().to_owned();
    Some(match json::field(&part, "type")? {
        "text" if text("text").is_empty() => return None,
        "text" => json::text(text("text")),
        "thinking" => Block::Thinking {
            text: text("thinking"),
            signature: json::field(&part, "thinkingSignature").map(str::to_owned),
        },
        "toolCall" => {
            let (id, name) = (text("id"), text("name"));
            json::tool_call(&id, &name, part.get_mut("arguments").map(Value::take).unwrap_or_default())
        }
        "image" => Block::Image { mime_type: text("mimeType"), data: text("data") },
        "subSession" | "compaction" => return None,
        _ => match part {
            Value::Object(fields) => json::other(fields),
            _ => return None,
        },
    })
}
