//! OpenAI's Chat Completions API: what it refuses, and how it answers.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::script::{Heard, Reply};
use crate::server::Frame;

/// Returns what the API would say about a request that it does not take.
pub(crate) fn refusal(body: &Value) -> Option<String> {
    check(body).err()
}

fn check(body: &Value) -> Result<(), String> {
    body["model"].as_str().ok_or("you must provide a model parameter")?;
    let messages = body["messages"].as_array().ok_or("missing required parameter: 'messages'")?;
    if messages.is_empty() {
        return Err("[] is too short - 'messages'".to_owned());
    }
    for tool in body["tools"].as_array().into_iter().flatten() {
        if tool["function"]["parameters"]["type"] != "object" {
            return Err(format!(
                "invalid schema for function {}: type must be \"object\"",
                tool["function"]["name"]
            ));
        }
    }
    // The ids of the calls that must be answered before anything else is said.
    let mut open: HashSet<String> = HashSet::new();
    for (n, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        if role == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            if !open.remove(id) {
                return Err(format!(
                    "messages.[{n}]: messages with role 'tool' must be a response to a preceding message with 'tool_calls': {id}"
                ));
            }
            if !message["content"].is_string() {
                return Err(format!("messages.[{n}].content: a tool's content must be a string"));
            }
            continue;
        }
        unanswered(&open)?;
        match role {
            "system" | "developer" | "user" => {
                let empty = match &message["content"] {
                    Value::String(text) => text.trim().is_empty(),
                    Value::Array(parts) => parts.is_empty(),
                    _ => true,
                };
                if empty {
                    return Err(format!("messages.[{n}].content: must not be empty"));
                }
            }
            "assistant" => {
                let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
                if message["content"].is_null() && calls.is_empty() {
                    return Err(format!("messages.[{n}]: content or tool_calls must be given"));
                }
                for call in calls {
                    let id = call["id"].as_str().unwrap_or_default().to_owned();
                    let arguments = call["function"]["arguments"].as_str().unwrap_or("?");
                    if serde_json::from_str::<Value>(arguments).is_err() {
                        return Err(format!("messages.[{n}]: the arguments of {id} are not JSON"));
                    }
                    if id.is_empty() || !open.insert(id.clone()) {
                        return Err(format!(
                            "messages.[{n}]: the id of a tool call is missing or comes twice: {id}"
                        ));
                    }
                }
            }
            _ => return Err(format!("messages.[{n}].role: '{role}' is not one of the roles")),
        }
    }
    unanswered(&open)
}

fn unanswered(open: &HashSet<String>) -> Result<(), String> {
    match open.iter().next() {
        Some(id) => Err(format!(
            "an assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id': {id}"
        )),
        None => Ok(()),
    }
}

pub(crate) fn heard(body: &Value) -> (String, Vec<Heard>) {
    let mut system = String::new();
    let mut heard = Vec::new();
    for message in body["messages"].as_array().into_iter().flatten() {
        let text = match &message["content"] {
            Value::String(text) => text.clone(),
            Value::Array(parts) => {
                parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n")
            }
            _ => String::new(),
        };
        match message["role"].as_str().unwrap_or_default() {
            "system" | "developer" => system.push_str(&text),
            "assistant" => heard.push(Heard::Reply),
            _ => heard.push(Heard::Words(text)),
        }
    }
    (system, heard)
}

fn stop(reply: &Reply) -> &str {
    match &reply.stop {
        Some(stop) => stop,
        None if reply.tool_calls.is_empty() => "stop",
        None => "tool_calls",
    }
}

fn id(reply: &Reply, turn: usize, n: usize) -> String {
    reply.tool_calls[n].id.clone().unwrap_or_else(|| format!("call_{turn:02}_{n:02}"))
}

fn usage(reply: &Reply) -> Value {
    let prompt = reply.usage.input + reply.usage.cache_read;
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": reply.usage.output,
        "total_tokens": prompt + reply.usage.output,
        "prompt_tokens_details": {"cached_tokens": reply.usage.cache_read},
    })
}

pub(crate) fn document(reply: &Reply, model: &str, turn: usize) -> Value {
    let mut message = json!({"role": "assistant", "content": reply.text});
    let calls = reply.tool_calls.iter().enumerate().map(|(n, call)| {
        let function = json!({"name": call.name, "arguments": call.arguments_text()});
        json!({"id": id(reply, turn, n), "type": "function", "function": function})
    });
    let calls: Vec<Value> = calls.collect();
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    let choice = json!({"index": 0, "message": message, "finish_reason": stop(reply)});
    let id = format!("chatcmpl-{turn}");
    json!({"id": id, "object": "chat.completion", "model": model, "choices": [choice], "usage": usage(reply)})
}

pub(crate) fn frames(reply: &Reply, model: &str, turn: usize) -> Vec<Frame> {
    let mut frames = Vec::new();
    let mut frame = |choices: Value, usage: Value| {
        let id = format!("chatcmpl-{turn}");
        let data = json!({
            "id": id, "object": "chat.completion.chunk", "created": 0, "model": model,
            "choices": choices, "usage": usage,
        });
        frames.push(Frame::new(format!("data: {data}\n\n")));
    };
    let mut delta = |delta: Value, finish: Value| {
        frame(json!([{"index": 0, "delta": delta, "finish_reason": finish}]), Value::Null);
    };
    delta(json!({"role": "assistant", "content": ""}), Value::Null);
    if let Some(thinking) = &reply.thinking {
        delta(json!({"reasoning_content": thinking}), Value::Null);
    }
    for text in reply.text_pieces() {
        delta(json!({"content": text}), Value::Null);
    }
    // All calls begin, then their arguments come in turns: what parallel calls look like at worst.
    for (n, call) in reply.tool_calls.iter().enumerate() {
        let function = json!({"name": call.name, "arguments": ""});
        let mut begun =
            json!({"index": n, "id": id(reply, turn, n), "type": "function", "function": function});
        if begun["id"] == "" {
            begun["id"] = Value::Null;
        }
        delta(json!({"tool_calls": [begun]}), Value::Null);
    }
    let mut pieces: Vec<_> =
        reply.tool_calls.iter().map(|call| reply.argument_pieces(call).into_iter()).collect();
    loop {
        let mut more = false;
        for (n, pieces) in pieces.iter_mut().enumerate() {
            if let Some(part) = pieces.next() {
                more = true;
                delta(json!({"tool_calls": [{"index": n, "function": {"arguments": part}}]}), Value::Null);
            }
        }
        if !more {
            break;
        }
    }
    delta(json!({}), json!(stop(reply)));
    frame(json!([]), usage(reply));
    frames.push(Frame::new("data: [DONE]\n\n".to_owned()));
    frames
}

pub(crate) fn error(kind: &str, code: Option<&str>, message: &str) -> Value {
    json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    /// Messages are written `role text`, `assistant call:id,id` or `tool id`.
    #[track_caller]
    fn check(messages: &[&str], refusal: &str) {
        let message = |line: &&str| {
            let (role, rest) = line.split_once(' ').unwrap_or((line, ""));
            match (role, rest.strip_prefix("call:")) {
                ("assistant", Some(ids)) => {
                    let function = json!({"name": "ls", "arguments": "{}"});
                    let calls =
                        ids.split(',').map(|id| json!({"id": id, "type": "function", "function": function}));
                    json!({"role": role, "content": null, "tool_calls": calls.collect::<Vec<_>>()})
                }
                ("tool", _) => json!({"role": role, "tool_call_id": rest, "content": "x"}),
                _ => json!({"role": role, "content": rest}),
            }
        };
        let messages: Vec<Value> = messages.iter().map(message).collect();
        let told = super::refusal(&json!({"model": "m", "messages": messages})).unwrap_or_default();
        assert!(told.contains(refusal) && told.is_empty() == refusal.is_empty(), "{told}");
    }

    #[test]
    fn what_the_api_refuses_is_refused() {
        check(&["system s", "user hi", "assistant call:1,2", "tool 2", "tool 1", "user and"], "");
        check(&[], "too short");
        check(&["user"], "must not be empty");
        check(&["user hi", "assistant call:1"], "must be followed by tool messages");
        check(&["user hi", "assistant call:1", "user hi", "tool 1"], "must be followed by tool messages");
        check(&["user hi", "tool 1"], "must be a response to a preceding message");
        check(&["user hi", "assistant call:1,1", "tool 1"], "comes twice");
        check(&["robot hi"], "not one of the roles");
    }
}
