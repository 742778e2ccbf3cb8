//! One chat message of docker-agent, as a message of ours. A field of an unexpected type counts
//! as absent, since the versions that wrote these databases differ.

use serde_json::{Map, Value};
use sess_core::{
    Timestamp,
    message::{Block, Body, Role, Usage},
};

use crate::json;

/// Converts `{role, content, …}`; none when it is no message.
pub(super) fn body(chat: &Value, agent: Option<&str>, before: Timestamp) -> Option<Body> {
    let role = match json::field(chat, "role")? {
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "tool" => Role::ToolResult,
        "system" => Role::System,
        _ => return None,
    };
    let text = |name: &str| json::field(chat, name).filter(|text| !text.is_empty()).map(str::to_owned);
    let mut body = json::empty(role, chat.get("created_at").and_then(json::instant).unwrap_or(before));
    body.content = blocks(chat);
    body.tool_call_id = text("tool_call_id");
    body.is_error = chat.get("is_error").and_then(Value::as_bool).filter(|failed| *failed);
    body.model = text("model");
    body.usage = usage(chat);
    body.stop_reason = text("finish_reason");
    body.agent_id = agent.and_then(|name| name.parse().ok());
    if role == Role::ToolResult && body.content.is_empty() {
        body.content.push(json::text(""));
    }
    Some(body)
}

/// Reads token counts under any of the names that versions and providers gave them.
fn usage(chat: &Value) -> Option<Usage> {
    let cost = chat.get("cost").and_then(Value::as_f64).filter(|cost| *cost > 0.0);
    let counts = chat.get("usage").filter(|usage| usage.is_object());
    if counts.is_none() && cost.is_none() {
        return None;
    }
    let count = |names: &[&str]| names.iter().find_map(|name| counts?.get(*name)?.as_u64()).unwrap_or(0);
    Some(Usage {
        input: count(&["input_tokens", "prompt_tokens", "input"]),
        output: count(&["output_tokens", "completion_tokens", "output"]),
        cache_read: count(&["cached_input_tokens", "cached_tokens", "cache_read_input_tokens"]),
        cache_write: count(&["cached_write_tokens", "cache_write_tokens", "cache_creation_input_tokens"]),
        cost,
        ..Usage::default()
    })
}

fn blocks(chat: &Value) -> Vec<Block> {
    let mut blocks = Vec::new();
    if let Some(thought) = json::field(chat, "reasoning_content").filter(|text| !text.is_empty()) {
        blocks.push(Block::Thinking { text: thought.to_owned(), signature: None });
    }
    let array = |name: &str| chat.get(name).and_then(Value::as_array).map(Vec::as_slice);
    let parts = array("multi_content").or_else(|| array("content")).unwrap_or_default();
    if let Some(content) = json::field(chat, "content").filter(|text| !text.is_empty()) {
        // With attachments, the text is there a second time as a part.
        if !parts.iter().any(|part| json::field(part, "text") == Some(content)) {
            blocks.push(json::text(content));
        }
    }
    blocks.extend(parts.iter().filter_map(part));
    for call in array("tool_calls").unwrap_or_default() {
        let function = call.get("function").unwrap_or(&Value::Null);
        let arguments = function.get("arguments").cloned().unwrap_or_default();
        let name = json::field(function, "name").unwrap_or_default();
        blocks.push(json::tool_call(json::field(call, "id").unwrap_or_default(), name, arguments));
    }
    blocks
}

fn part(part: &Value) -> Option<Block> {
    let inner = |name: &str| part.get(name).unwrap_or(&Value::Null);
    let text = |value: &'_ Value, name: &str| json::field(value, name).unwrap_or_default().to_owned();
    Some(match json::field(part, "type") {
        Some("text") | None => json::text(json::field(part, "text").filter(|text| !text.is_empty())?),
        Some("image_url") => {
            let image = inner("image_url");
            json::file("", "", json::field(image, "url").or(image.as_str()).unwrap_or_default())
        }
        Some("file") => {
            let file = inner("file");
            let name = json::field(file, "path").or_else(|| json::field(file, "file_id"));
            json::file(name.unwrap_or_default(), &text(file, "mime_type"), "")
        }
        Some("document") => {
            let document = inner("document");
            let source = document.get("source").unwrap_or(&Value::Null);
            let (name, mime_type) = (text(document, "name"), text(document, "mime_type"));
            match (json::field(source, "inline_text"), json::field(source, "inline_data")) {
                (Some(content), _) if !content.is_empty() => {
                    json::text(format!("[document: {name}]\n{content}"))
                }
                (_, Some(data)) if !data.is_empty() => {
                    json::file(&name, &mime_type, &format!("data:{mime_type};base64,{data}"))
                }
                _ => json::file(&name, &mime_type, &text(source, "url")),
            }
        }
        Some(kind) => {
            let mut fields: Map<String, Value> = part.as_object().cloned().unwrap_or_default();
            // A block may not take the name of one of ours: its fields are others.
            fields.insert("type".to_owned(), Value::from("attachment"));
            fields.insert("name".to_owned(), Value::from(kind));
            json::other(fields)
        }
    })
}
