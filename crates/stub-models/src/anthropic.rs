//! Anthropic's Messages API: what it refuses, and how it answers.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::script::{Heard, Reply};
use crate::server::Frame;

/// Returns what the API would say about a request that it does not take.
pub(crate) fn refusal(body: &Value) -> Option<String> {
    check(body).err()
}

fn check(body: &Value) -> Result<(), String> {
    ensure(body["model"].is_string(), || "model: field required".into())?;
    let max_tokens = body["max_tokens"].as_u64().ok_or("max_tokens: field required")?;
    let messages = body["messages"].as_array().ok_or("messages: field required")?;
    ensure(!messages.is_empty(), || "messages: at least one message is required".into())?;
    let thinks = body["thinking"]["type"] == "enabled";
    if thinks {
        let budget = body["thinking"]["budget_tokens"].as_u64().unwrap_or(0);
        ensure(budget >= 1024, || "thinking.budget_tokens: must be at least 1024".into())?;
        ensure(budget < max_tokens, || "`max_tokens` must be greater than `thinking.budget_tokens`".into())?;
        ensure(body["temperature"].is_null(), || "`temperature` may only be 1 with thinking".into())?;
    }
    let marks = body.to_string().matches(r#""cache_control":"#).count();
    ensure(marks <= 4, || format!("at most 4 blocks with cache_control, found {marks}"))?;
    check_tools(&body["tools"])?;

    let mut ids = HashSet::new();
    let mut open: Vec<String> = Vec::new();
    for (n, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        let wanted = if n % 2 == 0 { "user" } else { "assistant" };
        ensure(role == wanted, || {
            format!("messages: roles must alternate, and messages.{n} must be of role {wanted}")
        })?;
        let blocks = blocks(&message["content"]);
        ensure(!blocks.is_empty(), || format!("messages.{n}: all messages must have non-empty content"))?;
        check_results(n, &blocks, &open)?;
        open.clear();
        for (m, block) in blocks.iter().enumerate() {
            let at = format!("messages.{n}.content.{m}");
            check_block(&at, role, block)?;
            if block["type"] == "tool_use" {
                let id = block["id"].as_str().unwrap_or_default();
                ensure(ids.insert(id.to_owned()), || format!("{at}: `tool_use` ids must be unique: {id}"))?;
                open.push(id.to_owned());
            }
        }
    }
    if let Some(id) = open.first() {
        return Err(format!(
            "`tool_use` ids were found without `tool_result` blocks immediately after: {id}"
        ));
    }
    ensure(messages.len() % 2 == 1, || "the conversation must end with a user message".into())?;
    if thinks && messages.len() > 1 {
        let last = blocks(&messages[messages.len() - 1]["content"]);
        let before = blocks(&messages[messages.len() - 2]["content"]);
        let mid_turn = last.iter().all(|block| block["type"] == "tool_result");
        let first = before[0]["type"].as_str().unwrap_or_default();
        ensure(!mid_turn || matches!(first, "thinking" | "redacted_thinking"), || {
            format!("Expected `thinking` or `redacted_thinking`, but found `{first}`")
        })?;
    }
    Ok(())
}

fn check_tools(tools: &Value) -> Result<(), String> {
    let mut names = HashSet::new();
    for tool in tools.as_array().into_iter().flatten() {
        let name = tool["name"].as_str().unwrap_or_default();
        ensure(is_word(name), || format!("tools: the name \"{name}\" must match ^[a-zA-Z0-9_-]{{1,128}}$"))?;
        ensure(names.insert(name), || format!("tools: Tool names must be unique: {name}"))?;
        ensure(tool["input_schema"]["type"] == "object", || {
            format!("tools.{name}.input_schema.type: field required, and must be \"object\"")
        })?;
    }
    Ok(())
}

/// Every call of the message before has its result, first thing, and there are no others.
fn check_results(n: usize, blocks: &[Value], open: &[String]) -> Result<(), String> {
    let mut answered = HashSet::new();
    for (m, block) in blocks.iter().enumerate() {
        if block["type"] != "tool_result" {
            continue;
        }
        let id = block["tool_use_id"].as_str().unwrap_or_default();
        ensure(open.iter().any(|call| call == id), || {
            format!("messages.{n}.content.{m}: unexpected `tool_use_id` found in `tool_result` blocks: {id}")
        })?;
        ensure(answered.insert(id), || format!("each tool_use must have a single result: {id}"))?;
        ensure(answered.len() == m + 1, || format!("messages.{n}: `tool_result` blocks must come first"))?;
    }
    match open.iter().find(|id| !answered.contains(id.as_str())) {
        Some(id) => Err(format!(
            "messages.{n}: `tool_use` ids were found without `tool_result` blocks immediately after: {id}"
        )),
        None => Ok(()),
    }
}

fn check_block(at: &str, role: &str, block: &Value) -> Result<(), String> {
    let text = |key: &str| block[key].as_str().unwrap_or_default();
    match block["type"].as_str().unwrap_or_default() {
        "text" => {
            ensure(!text("text").trim().is_empty(), || format!("{at}: text content blocks must be non-empty"))
        }
        "image" if role == "user" => {
            ensure(block["source"]["data"].is_string(), || format!("{at}.source.data: field required"))
        }
        "tool_result" if role == "user" => {
            let blocks = blocks(&block["content"]);
            blocks.iter().try_for_each(|block| check_block(at, role, block))
        }
        "thinking" if role == "assistant" => {
            ensure(!text("signature").is_empty(), || format!("{at}.thinking.signature: field required"))
        }
        "redacted_thinking" if role == "assistant" => {
            ensure(block["data"].is_string(), || format!("{at}.redacted_thinking.data: field required"))
        }
        "tool_use" if role == "assistant" => {
            ensure(is_word(text("id")), || format!("{at}.tool_use.id: must match ^[a-zA-Z0-9_-]+$"))?;
            ensure(is_word(text("name")), || format!("{at}.tool_use.name: must match ^[a-zA-Z0-9_-]+$"))?;
            ensure(block["input"].is_object(), || format!("{at}.tool_use.input: must be an object"))
        }
        kind => Err(format!("{at}: a block of type \"{kind}\" is not allowed for role {role}")),
    }
}

fn is_word(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    !text.is_empty() && text.len() <= 128 && text.bytes().all(allowed)
}

fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(message()) }
}

fn blocks(content: &Value) -> Vec<Value> {
    match content {
        Value::Array(blocks) => blocks.clone(),
        Value::String(text) if !text.is_empty() => vec![json!({"type": "text", "text": text})],
        _ => Vec::new(),
    }
}

pub(crate) fn heard(body: &Value) -> (String, Vec<Heard>) {
    let system = texts(&body["system"]);
    let mut heard = Vec::new();
    for message in body["messages"].as_array().into_iter().flatten() {
        if message["role"] == "assistant" {
            heard.push(Heard::Reply);
        } else {
            heard.push(Heard::Words(texts(&message["content"])));
        }
    }
    (system, heard)
}

fn texts(content: &Value) -> String {
    let mut text = String::new();
    for block in blocks(content) {
        text.push_str(block["text"].as_str().unwrap_or_default());
        text.push_str(&texts(&block["content"]));
        text.push('\n');
    }
    text
}

fn stop(reply: &Reply) -> &str {
    match &reply.stop {
        Some(stop) => stop,
        None if reply.tool_calls.is_empty() => "end_turn",
        None => "tool_use",
    }
}

fn id(reply: &Reply, turn: usize, n: usize) -> String {
    reply.tool_calls[n].id.clone().unwrap_or_else(|| format!("toolu_{turn:02}_{n:02}"))
}

fn usage(reply: &Reply) -> Value {
    json!({
        "input_tokens": reply.usage.input,
        "cache_read_input_tokens": reply.usage.cache_read,
        "cache_creation_input_tokens": reply.usage.cache_write,
        "output_tokens": 1,
    })
}

pub(crate) fn document(reply: &Reply, model: &str, turn: usize) -> Value {
    let mut content = Vec::new();
    if let Some(thinking) = &reply.thinking {
        content.push(json!({"type": "thinking", "thinking": thinking, "signature": "c2lnbmVk"}));
    }
    if let Some(text) = &reply.text {
        content.push(json!({"type": "text", "text": text}));
    }
    for (n, call) in reply.tool_calls.iter().enumerate() {
        let input = call.arguments_object();
        content
            .push(json!({"type": "tool_use", "id": id(reply, turn, n), "name": call.name, "input": input}));
    }
    let mut usage = usage(reply);
    usage["output_tokens"] = json!(reply.usage.output);
    json!({
        "id": format!("msg_{turn}"), "type": "message", "role": "assistant", "model": model,
        "content": content, "stop_reason": stop(reply), "stop_sequence": null, "usage": usage,
    })
}

pub(crate) fn frames(reply: &Reply, model: &str, turn: usize) -> Vec<Frame> {
    let mut frames = Vec::new();
    let mut frame = |data: Value| {
        let kind = data["type"].as_str().unwrap_or_default();
        frames.push(Frame::new(format!("event: {kind}\ndata: {data}\n\n")));
    };
    let message = json!({
        "id": format!("msg_{turn}"), "type": "message", "role": "assistant", "model": model, "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": usage(reply),
    });
    frame(json!({"type": "message_start", "message": message}));
    frame(json!({"type": "ping"}));
    let mut index = 0;
    let mut block = |start: Value, deltas: Vec<Value>| {
        frame(json!({"type": "content_block_start", "index": index, "content_block": start}));
        for delta in deltas {
            frame(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
        frame(json!({"type": "content_block_stop", "index": index}));
        index += 1;
    };
    if let Some(thinking) = &reply.thinking {
        if thinking == "redacted" {
            block(json!({"type": "redacted_thinking", "data": "c2VjcmV0"}), Vec::new());
        } else {
            let start = json!({"type": "thinking", "thinking": "", "signature": ""});
            let deltas = vec![
                json!({"type": "thinking_delta", "thinking": thinking}),
                json!({"type": "signature_delta", "signature": "c2lnbmVk"}),
            ];
            block(start, deltas);
        }
    }
    if reply.text.is_some() {
        let pieces = reply.text_pieces();
        let deltas = pieces.iter().map(|text| json!({"type": "text_delta", "text": text})).collect();
        block(json!({"type": "text", "text": ""}), deltas);
    }
    for (n, call) in reply.tool_calls.iter().enumerate() {
        let pieces = reply.argument_pieces(call);
        let deltas = pieces.iter().map(|part| json!({"type": "input_json_delta", "partial_json": part}));
        let start = json!({"type": "tool_use", "id": id(reply, turn, n), "name": call.name, "input": {}});
        block(start, deltas.collect());
    }
    let delta = json!({"stop_reason": stop(reply), "stop_sequence": null});
    frame(json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": reply.usage.output}}));
    frame(json!({"type": "message_stop"}));
    frames
}

pub(crate) fn error(kind: &str, message: &str) -> Value {
    json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_stub"})
}

/// The name that the API has for errors of a status.
pub(crate) fn error_kind(status: u16) -> &'static str {
    match status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        _ => "api_error",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    /// Messages are written `role: block, block`, where a block is text, `call:id` or `result:id`.
    #[track_caller]
    fn check(messages: &[&str], refusal: &str) {
        let block = |word: &str| match word.split_once(':') {
            Some(("call", id)) => json!({"type": "tool_use", "id": id, "name": "ls", "input": {}}),
            Some(("result", id)) => json!({"type": "tool_result", "tool_use_id": id, "content": "x"}),
            _ => json!({"type": "text", "text": word}),
        };
        let message = |line: &&str| {
            let (role, blocks) = line.split_once(": ").unwrap_or((line.trim_end_matches(':'), ""));
            let blocks: Vec<Value> = blocks.split(", ").filter(|word| !word.is_empty()).map(block).collect();
            json!({"role": role, "content": blocks})
        };
        let messages: Vec<Value> = messages.iter().map(message).collect();
        let body = json!({"model": "m", "max_tokens": 10, "messages": messages});
        let told = super::refusal(&body).unwrap_or_default();
        assert!(told.contains(refusal) && told.is_empty() == refusal.is_empty(), "{told}");
    }

    #[test]
    fn what_the_api_refuses_is_refused() {
        check(&["user: hi"], "");
        check(&["user: hi", "assistant: call:1, call:2", "user: result:2, result:1, and"], "");
        check(&[], "at least one message");
        check(&["user:"], "non-empty content");
        check(&["user:  "], "must be non-empty");
        check(&["assistant: hi"], "must alternate");
        check(&["user: hi", "user: hi"], "must alternate");
        check(&["user: hi", "assistant: hi"], "must end with a user message");
        check(&["user: hi", "assistant: call:1"], "without `tool_result` blocks immediately after: 1");
        check(&["user: hi", "assistant: call:1, call:2", "user: result:1"], "immediately after: 2");
        check(&["user: hi", "assistant: call:1", "user: and, result:1"], "must come first");
        check(&["user: hi", "assistant: x", "user: result:1"], "unexpected `tool_use_id`");
        check(&["user: hi", "assistant: call:1, call:1", "user: result:1"], "ids must be unique");
        check(&["user: hi", "assistant: call:a.b", "user: result:a.b"], "must match");
        let told = super::refusal(&json!({"model": "m", "messages": []})).unwrap_or_default();
        assert_eq!(told, "max_tokens: field required");
    }
}
