//! Messages, in the transcript format that every door, export and mirror uses.

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::{Map, Value};

use crate::{AgentId, MessageId, SessionId, SessionKey, Timestamp};

/// One entry of a transcript, without the place that the store gives it.
///
/// The order of the fields is the order they are written in: it is pinned by
/// exports and mirrors, which must come out byte for byte the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Body {
    pub role: Role,
    #[serde(deserialize_with = "blocks")]
    pub content: Vec<Block>,
    pub timestamp: Timestamp,
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
    pub agent_id: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Provenance>,
    /// Fields of a later version of the format: kept, so that an import loses nothing.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A message in its place: its id and its dense, 1-based sequence number.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    pub id: MessageId,
    pub seq: u64,
    pub body: Body,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    User,
    Assistant,
    ToolResult,
    System,
}

/// A piece of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", deny_unknown_fields)]
pub enum Block {
    Text {
        text: String,
    },
    Thinking {
        text: String,
        /// The model's own proof that it thought this; some want it back with the next call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    ToolCall {
        id: String,
        name: String,
        #[serde(default)]
        arguments: Map<String, Value>,
    },
    Image {
        #[serde(rename = "mimeType")]
        mime_type: String,
        /// Base 64.
        data: String,
    },
    /// Another session ran here, and its messages belong here.
    SubSession {
        #[serde(rename = "sessionId")]
        session_id: SessionId,
    },
    /// The model's view of the messages before this one was replaced by a summary.
    Compaction {
        #[serde(default, skip_serializing_if = "String::is_empty")]
        summary: String,
    },
    /// A block of a later version of the format: kept, and named when shown.
    #[serde(untagged)]
    Other(Map<String, Value>),
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// Counts of a later version of the format: kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// Who really wrote a message. Set by the runtime, never taken from a caller's text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Provenance {
    ExternalUser,
    InterSession {
        #[serde(rename = "sourceSessionKey")]
        source_session_key: SessionKey,
        #[serde(rename = "sourceChannel", default, skip_serializing_if = "Option::is_none")]
        source_channel: Option<String>,
        #[serde(rename = "sourceTool", default, skip_serializing_if = "Option::is_none")]
        source_tool: Option<String>,
    },
    InternalSystem,
}

/// What a message would show in a transcript, known without parsing it again.
///
/// The store keeps these bits beside each message, so that the older part of a
/// long transcript can be counted without being read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape(u8);

/// What is of interest in a stored reply besides its words, which are not read.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Spoken {
    pub role: Role,
    #[serde(default)]
    pub model: Option<String>,
    #[serde(default)]
    pub usage: Option<Usage>,
}

impl Shape {
    /// Shows something even when tools are left out.
    pub const SPEAKS: u8 = 1;
    /// Has tool calls, or is a tool's result: shows something only with tools.
    pub const TOOLS: u8 = 2;
    /// A system message: does not count as one of the session's messages.
    pub const SYSTEM: u8 = 4;
    /// Marks where a sub-session ran.
    pub const SUB_SESSION: u8 = 8;

    pub fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    pub fn bits(self) -> u8 {
        self.0
    }

    pub fn is_system(self) -> bool {
        self.0 & Self::SYSTEM != 0
    }
}

impl Body {
    /// Returns a message of one text, with nothing else known about it.
    pub fn text(role: Role, text: impl Into<String>, timestamp: Timestamp) -> Self {
        Self {
            role,
            content: vec![Block::Text { text: text.into() }],
            timestamp,
            tool_call_id: None,
            tool_name: None,
            is_error: None,
            model: None,
            usage: None,
            stop_reason: None,
            run_id: None,
            agent_id: None,
            provenance: None,
            extra: Map::new(),
        }
    }

    pub fn shape(&self) -> Shape {
        let mut bits = 0;
        if self.role == Role::System {
            bits |= Shape::SYSTEM;
        }
        for block in &self.content {
            bits |= match block {
                Block::SubSession { .. } => Shape::SUB_SESSION,
                Block::Compaction { .. } => Shape::SPEAKS,
                Block::Thinking { .. } => 0,
                _ if self.role == Role::System => 0,
                Block::Text { text } if text.trim().is_empty() => 0,
                _ if self.role == Role::ToolResult => Shape::TOOLS,
                Block::ToolCall { .. } => Shape::TOOLS,
                Block::Text { .. } | Block::Image { .. } | Block::Other(_) => Shape::SPEAKS,
            };
        }
        Shape(bits)
    }

    /// Returns all its text, one part a line: what search looks through.
    pub fn plain_text(&self) -> String {
        let mut parts = Vec::new();
        for block in &self.content {
            match block {
                Block::Text { text } | Block::Compaction { summary: text } => parts.push(text.clone()),
                Block::ToolCall { name, arguments, .. } => {
                    parts.push(format!("{name} {}", Value::Object(arguments.clone())));
                }
                Block::Thinking { .. } | Block::Image { .. } | Block::SubSession { .. } | Block::Other(_) => {
                }
            }
        }
        parts.join("\n")
    }
}

impl Message {
    /// Returns the message as its one line of JSON.
    pub fn to_json(&self) -> String {
        let body = serde_json::to_string(&self.body).expect("a message body has string keys only");
        json_line(&self.id, self.seq, &body)
    }
}

/// Reads blocks, and refuses a known block with wrong fields: the fallback for
/// blocks of later versions would otherwise swallow it.
fn blocks<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<Block>, D::Error> {
    let blocks = Vec::<Block>::deserialize(input)?;
    for block in &blocks {
        let Block::Other(fields) = block else { continue };
        match fields.get("type").and_then(Value::as_str) {
            None => return Err(D::Error::custom("a content block needs a \"type\"")),
            Some(name) if KNOWN_BLOCKS.contains(&name) => {
                let message =
                    format!("a content block of type \"{name}\" has missing, wrong or unknown fields");
                return Err(D::Error::custom(message));
            }
            Some(_) => {}
        }
    }
    Ok(blocks)
}

const KNOWN_BLOCKS: [&str; 6] = ["text", "thinking", "toolCall", "image", "subSession", "compaction"];

/// Puts a message's id and place in front of its stored body, without parsing it.
pub fn json_line(id: &MessageId, seq: u64, body: &str) -> String {
    let rest = body.strip_prefix('{').unwrap_or(body);
    let head = format!("{{\"id\":\"{id}\",\"seq\":{seq},");
    // As long as it has to be, since thousands are made at a time.
    let mut line = String::with_capacity(head.len() + rest.len());
    line.push_str(&head);
    line.push_str(rest);
    line
}

/// Tells from a body as it is written whether it is a tool's result: the role is its first field.
pub fn is_tool_result(body: &str) -> bool {
    body.starts_with(r#"{"role":"toolResult""#)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(json: &str) -> Body {
        serde_json::from_str(json).expect(json)
    }

    #[test]
    fn a_message_is_written_in_the_order_of_the_format_and_keeps_what_it_does_not_know() {
        let json = r#"{"later":{"b":1,"a":2},"timestamp":5,"content":[{"type":"toolCall","id":"c1","name":"ls","arguments":{"z":1,"a":[1.5]}},{"type":"audio","data":"…"}],"role":"assistant","usage":{"input":3,"output":4}}"#;
        let message = Message { id: MessageId::new(Timestamp::default(), 1), seq: 7, body: body(json) };
        let line = message.to_json();
        assert_eq!(
            line,
            r#"{"id":"00000000000000000000000001","seq":7,"role":"assistant","content":[{"type":"toolCall","id":"c1","name":"ls","arguments":{"z":1,"a":[1.5]}},{"type":"audio","data":"…"}],"timestamp":5,"usage":{"input":3,"output":4,"cacheRead":0,"cacheWrite":0},"later":{"b":1,"a":2}}"#
        );
    }

    #[test]
    fn the_shape_tells_what_a_transcript_would_show() {
        let check = |role: &str, content: &str, bits: u8| {
            let json = format!(r#"{{"role":"{role}","content":{content},"timestamp":0}}"#);
            let body = body(&json);
            assert_eq!(body.shape().bits(), bits, "{json}");
            let written = serde_json::to_string(&body).expect("JSON");
            assert_eq!(is_tool_result(&written), role == "toolResult", "{json}");
        };
        check("user", r#"[{"type":"text","text":"hi"}]"#, Shape::SPEAKS);
        check("user", r#"[{"type":"text","text":" \n"}]"#, 0);
        check("user", "[]", 0);
        check("user", r#"[{"type":"image","mimeType":"image/png","data":""}]"#, Shape::SPEAKS);
        check("assistant", r#"[{"type":"thinking","text":"hm"}]"#, 0);
        check("assistant", r#"[{"type":"toolCall","id":"1","name":"ls"}]"#, Shape::TOOLS);
        check("toolResult", r#"[{"type":"text","text":"out"}]"#, Shape::TOOLS);
        check("system", r#"[{"type":"text","text":"be good"}]"#, Shape::SYSTEM);
        check("system", r#"[{"type":"compaction"}]"#, Shape::SYSTEM | Shape::SPEAKS);
        check("system", r#"[{"type":"subSession","sessionId":"s"}]"#, Shape::SYSTEM | Shape::SUB_SESSION);
    }

    #[test]
    fn a_known_block_with_wrong_fields_is_refused_and_an_unknown_one_kept() {
        let check = |block: &str, outcome: &str| {
            let json = format!(r#"{{"role":"user","content":[{block}],"timestamp":0}}"#);
            let read = serde_json::from_str::<Body>(&json);
            let told = read.map_or_else(|error| error.to_string(), |_| "kept".to_owned());
            assert!(told.starts_with(outcome), "{told}");
        };
        check(
            r#"{"type":"text","text":5}"#,
            "a content block of type \"text\" has missing, wrong or unknown fields",
        );
        check(
            r#"{"type":"toolCall","id":"1","name":"x","arguments":"{}"}"#,
            "a content block of type \"toolCall\"",
        );
        check(r#"{"type":"text","text":"x","later":1}"#, "a content block of type \"text\"");
        check(r#"{"text":"x"}"#, "a content block needs a \"type\"");
        check(r#"{"type":"video"}"#, "kept");
    }
}
