//! Messages in the transcript format, and pages of them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, value::RawValue};

/// One message. It is copied through as it is stored, secrets masked: this type says how it looks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    pub id: String,
    /// Its place in the transcript: dense, counted from 1.
    pub seq: u64,
    pub role: Role,
    pub content: Vec<Block>,
    /// Milliseconds since 1970.
    pub timestamp: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_error: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Provenance>,
    /// It was taken back: still on record, no part of the conversation any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_back: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    User,
    Assistant,
    ToolResult,
    System,
}

/// A piece of a message. Later versions may have more kinds: show what you do not know by its `type`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Block {
    Text {
        text: String,
    },
    Thinking {
        text: String,
    },
    ToolCall {
        id: String,
        name: String,
        #[serde(default)]
        arguments: Map<String, Value>,
    },
    Image {
        mime_type: String,
        /// Base 64.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        data: Option<String>,
    },
    /// Another session ran here, and its messages belong here.
    SubSession {
        session_id: String,
    },
    /// The model's view of what came before was replaced by a summary.
    Compaction {
        #[serde(default)]
        summary: String,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    #[serde(default)]
    pub input: u64,
    #[serde(default)]
    pub output: u64,
    #[serde(default)]
    pub cache_read: u64,
    #[serde(default)]
    pub cache_write: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
}

/// Who really wrote a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Provenance {
    /// The person.
    ExternalUser,
    /// Another session: these are not the person's words.
    InterSession {
        source_session_key: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source_channel: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source_tool: Option<String>,
    },
    /// The program itself.
    InternalSystem,
}

/// `GET /sessions/{sessionKey}/history`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistoryQuery {
    /// How many messages: 1 to 1,000, 200 when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The `nextCursor` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// `1` adds tool results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include_tools: Option<u8>,
    /// `1` goes on as a stream of events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follow: Option<u8>,
}

/// A page of a transcript, oldest message first.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistoryPage {
    pub session_key: String,
    pub session_id: String,
    #[schemars(with = "Vec<Message>")]
    pub items: Vec<Box<RawValue>>,
    /// Whether there are older ones.
    pub has_more: bool,
    /// Leads to the page before this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}
