//! The records of a transcript, as far as they are of interest.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use sess_core::{
    Timestamp,
    message::{Block, Usage},
};

use crate::{json, lenient};

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Record<'a> {
    #[serde(rename = "type", borrow)]
    pub kind: Cow<'a, str>,
    #[serde(deserialize_with = "lenient::text")]
    pub subtype: Option<String>,
    #[serde(deserialize_with = "lenient::text")]
    pub uuid: Option<String>,
    /// Read by [`Record::message`]: a message of a shape that is not known costs itself.
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(rename = "timestamp", deserialize_with = "lenient::instant")]
    pub at: Option<Timestamp>,
    #[serde(deserialize_with = "lenient::text")]
    pub cwd: Option<String>,
    #[serde(deserialize_with = "lenient::text")]
    pub git_branch: Option<String>,
    /// Where the session went on, in another worktree.
    #[serde(deserialize_with = "lenient::text")]
    pub relocated_cwd: Option<String>,
    /// Read by [`Record::started_by`].
    #[serde(borrow)]
    session_id: Option<&'a RawValue>,
    /// A sub-agent said it, or was told it.
    #[serde(deserialize_with = "lenient::flag")]
    pub is_sidechain: bool,
    #[serde(deserialize_with = "lenient::flag")]
    is_meta: bool,
    #[serde(deserialize_with = "lenient::flag")]
    is_visible_in_transcript_only: bool,
    #[serde(deserialize_with = "lenient::flag")]
    pub is_compact_summary: bool,
    #[serde(borrow)]
    tool_use_result: Option<&'a RawValue>,
    #[serde(borrow)]
    attachment: Option<&'a RawValue>,
    #[serde(deserialize_with = "lenient::text")]
    custom_title: Option<String>,
    #[serde(deserialize_with = "lenient::text")]
    ai_title: Option<String>,
    #[serde(deserialize_with = "lenient::text")]
    last_prompt: Option<String>,
    #[serde(deserialize_with = "lenient::text")]
    summary: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Message {
    #[serde(deserialize_with = "lenient::text")]
    pub id: Option<String>,
    #[serde(deserialize_with = "lenient::text")]
    pub model: Option<String>,
    #[serde(deserialize_with = "lenient::text")]
    pub stop_reason: Option<String>,
    usage: Value,
    pub content: Value,
}

/// Kinds that carry nothing a transcript shows.
const SILENT: [&str; 24] = [
    "progress",
    "system",
    "custom-title",
    "ai-title",
    "tag",
    "last-prompt",
    "summary",
    "mode",
    "permission-mode",
    "agent-name",
    "agent-color",
    "pr-link",
    "worktree-state",
    "queue-operation",
    "file-history-snapshot",
    "file-history-delta",
    "content-replacement",
    "attribution-snapshot",
    "relocated",
    "derived-from",
    "tools-used",
    "history-suppression",
    "bridge-session",
    "attachment",
];

pub(super) fn is_known(kind: &str) -> bool {
    SILENT.contains(&kind) || kind.starts_with("data-flow-")
}

impl Record<'_> {
    /// Tells whether it says what it is, if it is anything that somebody said.
    pub(super) fn is_of_a_kind(&self) -> bool {
        !self.kind.is_empty() || self.message.is_none()
    }

    pub(super) fn is_message(&self) -> bool {
        matches!(&*self.kind, "user" | "assistant")
    }

    /// Tells whether the record is for the model or the host alone.
    pub(super) fn is_hidden(&self) -> bool {
        self.is_meta || self.is_visible_in_transcript_only
    }

    pub(super) fn message(&self) -> Option<Message> {
        json::from_str(self.message?.get()).ok()
    }

    /// Returns the session whose sub-agent said this, or was told it.
    pub(super) fn started_by(&self) -> Option<String> {
        json::from_str(self.session_id.filter(|_| self.is_sidechain)?.get()).ok()
    }

    /// Returns the parts of what was typed while the agent was at work.
    pub(super) fn queued_prompt(&self) -> Option<Vec<Value>> {
        let mut attachment: Value = json::from_str(self.attachment?.get()).ok()?;
        let is_prompt = json::field(&attachment, "type") == Some("queued_command");
        is_prompt.then(|| parts(attachment.get_mut("prompt").map(Value::take).unwrap_or_default()))
    }

    /// Returns which sub-agent's work this is the result of.
    pub(super) fn sub_agent(&self) -> Option<String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Done {
            agent_id: String,
        }
        let done = self.tool_use_result?.get();
        // Results are large and mostly not of agents.
        if !done.contains("\"agentId\"") {
            return None;
        }
        Some(format!("agent-{}", serde_json::from_str::<Done>(done).ok()?.agent_id))
    }
}

impl Message {
    pub(super) fn usage(&self) -> Option<Usage> {
        let count = |name: &str| self.usage.get(name).and_then(Value::as_u64).unwrap_or(0);
        self.usage.is_object().then(|| Usage {
            input: count("input_tokens"),
            output: count("output_tokens"),
            cache_read: count("cache_read_input_tokens"),
            cache_write: count("cache_creation_input_tokens"),
            ..Usage::default()
        })
    }
}

/// Returns the parts of a message, whichever way it is written.
pub(super) fn parts(content: Value) -> Vec<Value> {
    match content {
        Value::String(text) => vec![serde_json::json!({"type": "text", "text": text})],
        Value::Array(parts) => parts,
        _ => Vec::new(),
    }
}

/// Returns the block that a part is; none for an empty text.
pub(super) fn block(mut part: Value) -> Option<Block> {
    let owned = |part: &Value, name: &str| json::field(part, name).unwrap_or_default().to_owned();
    Some(match json::field(&part, "type")? {
        "text" => match owned(&part, "text") {
            text if text.is_empty() => return None,
            text => json::text(text),
        },
        "thinking" => Block::Thinking {
            text: owned(&part, "thinking"),
            signature: json::field(&part, "signature").map(str::to_owned),
        },
        "redacted_thinking" => Block::Thinking { text: String::new(), signature: None },
        "tool_use" | "server_tool_use" => {
            let arguments = part.get_mut("input").map(Value::take).unwrap_or_default();
            json::tool_call(&owned(&part, "id"), &owned(&part, "name"), arguments)
        }
        kind @ ("image" | "document") => attached(kind, &part),
        _ => match part {
            Value::Object(fields) => json::other(fields),
            _ => return None,
        },
    })
}

/// Returns an image or a document: `source` has its bytes, its text, or where it is.
fn attached(kind: &str, part: &Value) -> Block {
    let source = part.get("source").unwrap_or(&Value::Null);
    let text = |name: &str| json::field(source, name).unwrap_or_default();
    let title = json::field(part, "title").unwrap_or_default();
    let (mime_type, data) = (text("media_type"), text("data"));
    match (kind, text("type")) {
        ("image", "url") if mime_type.is_empty() => json::file(title, "image/*", text("url")),
        (_, "url") => json::file(title, mime_type, text("url")),
        (_, "file") => json::file(if title.is_empty() { text("file_id") } else { title }, mime_type, ""),
        ("image", _) => Block::Image { mime_type: mime_type.to_owned(), data: data.to_owned() },
        (_, "text") if title.is_empty() && !data.is_empty() => json::text(format!("[document]\n{data}")),
        (_, "text") if !data.is_empty() => json::text(format!("[document: {title}]\n{data}")),
        _ => json::file(title, mime_type, &format!("data:{mime_type};base64,{data}")),
    }
}

/// What a session may be called, in the order that Claude Code itself goes by.
#[derive(Default)]
pub(super) struct Titles {
    custom: Option<String>,
    ai: Option<String>,
    last_prompt: Option<String>,
    summary: Option<String>,
    first_prompt: Option<String>,
    /// What a sub-agent was told first: in a file of its own there is no other prompt.
    task: Option<String>,
}

impl Titles {
    /// Sees a record: what comes later counts more.
    pub(super) fn see(&mut self, record: &Record<'_>) {
        let name = |text: &Option<String>| text.as_deref().map(json::title).filter(|text| !text.is_empty());
        match &*record.kind {
            "custom-title" => self.custom = name(&record.custom_title),
            "ai-title" => self.ai = name(&record.ai_title),
            "last-prompt" => self.last_prompt = name(&record.last_prompt),
            "summary" => self.summary = name(&record.summary),
            "user" => {
                let first = if record.is_sidechain { &mut self.task } else { &mut self.first_prompt };
                if first.is_none() {
                    *first = super::prompt(record).map(|prompt| json::title(&prompt));
                }
            }
            _ => {}
        }
    }

    /// Returns what the session is called; empty when nothing says it.
    pub(super) fn best(self) -> String {
        let said = self.first_prompt.or(self.task);
        let named = [self.custom, self.ai, self.last_prompt, self.summary, said];
        named.into_iter().flatten().next().unwrap_or_default()
    }
}
