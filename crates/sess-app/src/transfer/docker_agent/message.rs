//! One chat message of docker-agent, as a message of ours.
//!
//! Everything is read leniently: a field of an unexpected type counts as
//! absent, since the versions that wrote these databases differ. What has no
//! place in the transcript format is left out: signatures of thoughts, and the
//! definitions of tools.

use std::collections::HashMap;

use serde_json::{Map, Value};
use sess_core::{
    Timestamp,
    message::{Block, Body, Role, Usage},
};

/// The names of tools by the id of the call, as far as the session has come.
pub(super) type Calls = HashMap<String, String>;

/// Converts `{role, content, …}`, or says why it is no message.
pub(super) fn body(
    chat: &Value,
    agent: Option<&str>,
    calls: &mut Calls,
    before: Timestamp,
) -> Result<Body, String> {
    let fields = chat.as_object().ok_or("it is not an object")?;
    let role = match text(fields, "role") {
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some("tool") => Role::ToolResult,
        Some("system") => Role::System,
        Some(role) => return Err(format!("its role \"{role}\" is unknown")),
        None => return Err("it has no role".to_owned()),
    };
    let mut body = Body::text(role, "", before);
    body.content = blocks(fields);
    for block in &body.content {
        if let Block::ToolCall { id, name, .. } = block {
            calls.insert(id.clone(), name.clone());
        }
    }
    if let Some(at) = fields.get("created_at").and_then(instant_of) {
        body.timestamp = at;
    }
    if let Some(id) = text(fields, "tool_call_id") {
        body.tool_call_id = Some(id.to_owned());
        body.tool_name = calls.get(id).cloned();
    }
    body.is_error = fields.get("is_error").and_then(Value::as_bool).filter(|failed| *failed);
    body.model = text(fields, "model").map(str::to_owned);
    body.usage = usage(fields.get("usage"), fields.get("cost").and_then(Value::as_f64));
    body.stop_reason = text(fields, "finish_reason").map(str::to_owned);
    body.agent_id = agent.and_then(|name| name.parse().ok());
    Ok(body)
}

/// Reads token counts under any of the names that versions and providers gave them.
pub(super) fn usage(counts: Option<&Value>, cost: Option<f64>) -> Option<Usage> {
    let cost = cost.filter(|cost| cost.is_finite() && *cost > 0.0);
    let counts = counts.and_then(Value::as_object);
    if counts.is_none() && cost.is_none() {
        return None;
    }
    let count = |names: &[&str]| {
        let known = names.iter().find_map(|name| counts?.get(*name)?.as_u64());
        known.unwrap_or_default()
    };
    Some(Usage {
        input: count(&["input_tokens", "prompt_tokens", "input"]),
        output: count(&["output_tokens", "completion_tokens", "output"]),
        cache_read: count(&["cached_input_tokens", "cached_tokens", "cache_read_input_tokens"]),
        cache_write: count(&["cached_write_tokens", "cache_write_tokens", "cache_creation_input_tokens"]),
        cost,
        ..Usage::default()
    })
}

/// Reads RFC 3339, the forms that Go's `time` and SQLite print, and Unix time.
pub(super) fn instant(text: &str) -> Option<Timestamp> {
    if let Some(at) = Timestamp::parse_rfc3339(text) {
        return Some(at);
    }
    if let Ok(number) = text.trim().parse::<i64>() {
        // Seconds stay below this until the year 5138, and milliseconds were above it in 1973.
        let ms = if number < 100_000_000_000 { number.checked_mul(1_000)? } else { number };
        return Timestamp::from_millis(ms);
    }
    // `2026-11-09 18:00:00.123456789 +0200 CEST m=+0.01`, where all from the offset on may lack.
    let text = text.trim().replacen('T', " ", 1);
    let mut words = text.split(' ').filter(|word| !word.is_empty());
    let (date, time) = (words.next()?, words.next()?);
    let offset = match words.next() {
        Some(offset) if offset.len() == 5 && offset.starts_with(['+', '-']) && offset.is_ascii() => {
            format!("{}:{}", &offset[..3], &offset[3..])
        }
        Some(_) | None => "Z".to_owned(),
    };
    Timestamp::parse_rfc3339(&format!("{date}T{time}{offset}"))
}

fn instant_of(value: &Value) -> Option<Timestamp> {
    match value {
        Value::String(text) => instant(text),
        Value::Number(number) => instant(&number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn blocks(fields: &Map<String, Value>) -> Vec<Block> {
    let mut blocks = Vec::new();
    if let Some(thought) = text(fields, "reasoning_content") {
        blocks.push(Block::Thinking { text: thought.to_owned(), signature: None });
    }
    let array = |name: &str| fields.get(name).and_then(Value::as_array).map(Vec::as_slice);
    let parts = array("multi_content").or_else(|| array("content")).unwrap_or_default();
    if let Some(content) = text(fields, "content") {
        // With attachments, the text is there a second time as a part.
        let repeated = parts.iter().any(|part| part["text"].as_str() == Some(content));
        if !repeated {
            blocks.push(Block::Text { text: content.to_owned() });
        }
    }
    blocks.extend(parts.iter().filter_map(part));
    blocks.extend(array("tool_calls").unwrap_or_default().iter().map(tool_call));
    blocks
}

fn tool_call(call: &Value) -> Block {
    let function = &call["function"];
    let arguments = match &function["arguments"] {
        Value::Object(arguments) => arguments.clone(),
        Value::Null => Map::new(),
        Value::String(text) if text.trim().is_empty() => Map::new(),
        Value::String(text) => match serde_json::from_str(text) {
            Ok(Value::Object(arguments)) => arguments,
            // A model wrote this: cut short, or no object. It stays readable.
            Ok(_) | Err(_) => raw(text.clone()),
        },
        other => raw(other.to_string()),
    };
    let string = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Block::ToolCall { id: string(&call["id"]), name: string(&function["name"]), arguments }
}

fn raw(text: String) -> Map<String, Value> {
    Map::from_iter([("_raw".to_owned(), Value::String(text))])
}

/// Converts a text, an image or an attachment. What is not text or an inline
/// image becomes a block that names it.
fn part(part: &Value) -> Option<Block> {
    match part["type"].as_str() {
        Some("text") | None => {
            let text = part["text"].as_str().filter(|text| !text.is_empty())?;
            Some(Block::Text { text: text.to_owned() })
        }
        Some("image_url") => {
            let url = part["image_url"]["url"].as_str().or(part["image_url"].as_str());
            let url = url.unwrap_or_default();
            let inline = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
            Some(match inline {
                Some((mime_type, data)) => {
                    Block::Image { mime_type: mime_type.to_owned(), data: data.to_owned() }
                }
                None => named("imageUrl", &[("name", url)]),
            })
        }
        Some("file") => {
            let file = &part["file"];
            let name = file["path"].as_str().or(file["file_id"].as_str()).unwrap_or_default();
            let mime_type = file["mime_type"].as_str().unwrap_or_default();
            Some(named("file", &[("name", name), ("mimeType", mime_type)]))
        }
        Some("document") => {
            let document = &part["document"];
            let name = document["name"].as_str().unwrap_or_default();
            let mime_type = document["mime_type"].as_str().unwrap_or_default();
            let source = |field: &str| document["source"][field].as_str().unwrap_or_default();
            let (data, url) = (source("inline_data"), source("url"));
            Some(match source("inline_text") {
                "" if mime_type.starts_with("image/") && !data.is_empty() => {
                    Block::Image { mime_type: mime_type.to_owned(), data: data.to_owned() }
                }
                "" => {
                    let fields = [("name", name), ("mimeType", mime_type), ("data", data), ("url", url)];
                    named("document", &fields)
                }
                text => Block::Text { text: format!("[document: {name}]\n{text}") },
            })
        }
        // A block may not take the name of one of ours: its fields are others.
        Some(kind) => match part.as_object() {
            Some(fields) if !OUR_BLOCKS.contains(&kind) => Some(Block::Other(fields.clone())),
            Some(_) | None => Some(named("attachment", &[("name", kind)])),
        },
    }
}

const OUR_BLOCKS: [&str; 6] = ["text", "thinking", "toolCall", "image", "subSession", "compaction"];

fn named(kind: &str, fields: &[(&str, &str)]) -> Block {
    let known = fields.iter().copied().filter(|(_, value)| !value.is_empty());
    let fields = std::iter::once(("type", kind)).chain(known);
    Block::Other(fields.map(|(name, value)| (name.to_owned(), Value::from(value))).collect())
}

/// Returns a text that is there and not empty.
fn text<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    fields.get(name)?.as_str().filter(|text| !text.is_empty())
}
