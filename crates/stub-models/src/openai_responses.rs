//! OpenAI's Responses API: what it refuses, and how it answers.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::script::{Heard, Reply};
use crate::server::Frame;

/// Returns what the API would say about a request that it does not take.
pub(crate) fn refusal(body: &Value) -> Option<String> {
    check(body).err()
}

fn check(body: &Value) -> Result<(), String> {
    body["model"].as_str().ok_or("missing required parameter: 'model'")?;
    let input = body["input"].as_array().ok_or("missing required parameter: 'input'")?;
    if input.is_empty() {
        return Err("'input' must not be empty".to_owned());
    }
    for tool in body["tools"].as_array().into_iter().flatten() {
        if tool["parameters"]["type"] != "object" {
            return Err(format!("invalid schema for function {}: type must be \"object\"", tool["name"]));
        }
    }
    let mut called = HashSet::new();
    let mut open = HashSet::new();
    for (n, item) in input.iter().enumerate() {
        let id = item["call_id"].as_str().unwrap_or_default();
        match item["type"].as_str().unwrap_or("message") {
            "message" => {
                let wanted = if item["role"] == "assistant" { "output_text" } else { "input_" };
                let parts = item["content"].as_array().cloned().unwrap_or_default();
                let fits = |part: &Value| part["type"].as_str().unwrap_or_default().starts_with(wanted);
                if parts.is_empty() || !parts.iter().all(fits) {
                    return Err(format!("input[{n}].content: must not be empty, and of type {wanted}"));
                }
                if item["role"] != "assistant" && !open.is_empty() {
                    return Err(no_output(&open));
                }
            }
            "function_call" => {
                if id.is_empty() || !called.insert(id.to_owned()) {
                    return Err(format!("input[{n}].call_id: is missing or comes twice: {id}"));
                }
                open.insert(id.to_owned());
                if !item["arguments"].is_string() {
                    return Err(format!("input[{n}].arguments: expected a string"));
                }
            }
            "function_call_output" => {
                if !open.remove(id) {
                    return Err(format!("no tool call found for function call output with call_id {id}"));
                }
                if !item["output"].is_string() {
                    return Err(format!("input[{n}].output: expected a string"));
                }
            }
            "reasoning" => {
                let next = input.get(n + 1).map_or("", |item| item["type"].as_str().unwrap_or_default());
                if !matches!(next, "message" | "function_call" | "reasoning") || item["summary"].is_null() {
                    return Err(format!(
                        "input[{n}]: item of type 'reasoning' was provided without its required following item"
                    ));
                }
            }
            kind => return Err(format!("input[{n}].type: '{kind}' is not one of the types")),
        }
    }
    if open.is_empty() { Ok(()) } else { Err(no_output(&open)) }
}

fn no_output(open: &HashSet<String>) -> String {
    let id = open.iter().next().map_or("", String::as_str);
    format!("no tool output found for function call {id}")
}

pub(crate) fn heard(body: &Value) -> (String, Vec<Heard>) {
    let system = body["instructions"].as_str().unwrap_or_default().to_owned();
    let mut heard = Vec::new();
    for item in body["input"].as_array().into_iter().flatten() {
        let is_reply =
            item["role"] == "assistant" || item["type"] == "function_call" || item["type"] == "reasoning";
        if is_reply {
            // One reply is several items.
            if heard.last() != Some(&Heard::Reply) {
                heard.push(Heard::Reply);
            }
            continue;
        }
        let mut text = item["output"].as_str().unwrap_or_default().to_owned();
        for part in item["content"].as_array().into_iter().flatten() {
            text.push_str(part["text"].as_str().unwrap_or_default());
            text.push('\n');
        }
        heard.push(Heard::Words(text));
    }
    (system, heard)
}

fn id(reply: &Reply, turn: usize, n: usize) -> String {
    reply.tool_calls[n].id.clone().unwrap_or_else(|| format!("call_{turn:02}_{n:02}"))
}

/// Returns the items of a reply, each with the number of the call that it is.
fn items(reply: &Reply, turn: usize) -> Vec<(Value, Option<usize>)> {
    let mut items = Vec::new();
    if let Some(thinking) = &reply.thinking {
        let summary = json!([{"type": "summary_text", "text": thinking}]);
        let id = format!("rs_{turn}");
        let item = json!({
            "type": "reasoning", "id": id, "summary": summary, "encrypted_content": "c2VjcmV0", "status": "completed",
        });
        items.push((item, None));
    }
    if let Some(text) = &reply.text {
        let content = json!([{"type": "output_text", "text": text, "annotations": []}]);
        let id = format!("msg_{turn}");
        let item = json!({
            "type": "message", "id": id, "role": "assistant", "status": "completed", "content": content,
        });
        items.push((item, None));
    }
    for (n, call) in reply.tool_calls.iter().enumerate() {
        let item = json!({
            "type": "function_call", "id": format!("fc_{turn}_{n}"), "call_id": id(reply, turn, n),
            "name": call.name, "arguments": call.arguments_text(), "status": "completed",
        });
        items.push((item, Some(n)));
    }
    items
}

pub(crate) fn document(reply: &Reply, model: &str, turn: usize) -> Value {
    let output: Vec<Value> = items(reply, turn).into_iter().map(|(item, _)| item).collect();
    let input = reply.usage.input + reply.usage.cache_read;
    let usage = json!({
        "input_tokens": input,
        "input_tokens_details": {"cached_tokens": reply.usage.cache_read},
        "output_tokens": reply.usage.output,
        "total_tokens": input + reply.usage.output,
    });
    let (status, details) = match &reply.stop {
        Some(reason) => ("incomplete", json!({"reason": reason})),
        None => ("completed", Value::Null),
    };
    json!({
        "id": format!("resp_{turn}"), "object": "response", "status": status, "model": model,
        "incomplete_details": details, "error": null, "output": output, "usage": usage,
    })
}

pub(crate) fn frames(reply: &Reply, model: &str, turn: usize) -> Vec<Frame> {
    let mut frames = Vec::new();
    let mut number = 0;
    let mut frame = |kind: &str, mut data: Value| {
        data["type"] = json!(kind);
        data["sequence_number"] = json!(number);
        number += 1;
        frames.push(Frame::new(format!("event: {kind}\ndata: {data}\n\n")));
    };
    let begun = json!({
        "id": format!("resp_{turn}"), "object": "response", "status": "in_progress", "model": model, "output": [],
    });
    frame("response.created", json!({"response": begun}));
    frame("response.in_progress", json!({"response": begun}));
    for (at, (item, call)) in items(reply, turn).into_iter().enumerate() {
        let mut empty = item.clone();
        empty["status"] = json!("in_progress");
        match item["type"].as_str().unwrap_or_default() {
            "reasoning" => {
                empty["summary"] = json!([]);
                frame("response.output_item.added", json!({"output_index": at, "item": empty}));
                let part = json!({"type": "summary_text", "text": ""});
                let place = json!({"output_index": at, "summary_index": 0, "part": part});
                frame("response.reasoning_summary_part.added", place);
                let delta = json!({"output_index": at, "summary_index": 0, "delta": reply.thinking});
                frame("response.reasoning_summary_text.delta", delta);
            }
            "message" => {
                empty["content"] = json!([]);
                frame("response.output_item.added", json!({"output_index": at, "item": empty}));
                for text in reply.text_pieces() {
                    let delta = json!({"output_index": at, "content_index": 0, "delta": text});
                    frame("response.output_text.delta", delta);
                }
                let done = json!({"output_index": at, "content_index": 0, "text": reply.text});
                frame("response.output_text.done", done);
            }
            _ => {
                empty["arguments"] = json!("");
                frame("response.output_item.added", json!({"output_index": at, "item": empty}));
                let pieces = call.map(|n| reply.argument_pieces(&reply.tool_calls[n])).unwrap_or_default();
                for part in pieces {
                    let delta = json!({"output_index": at, "delta": part});
                    frame("response.function_call_arguments.delta", delta);
                }
                let done = json!({"output_index": at, "arguments": item["arguments"]});
                frame("response.function_call_arguments.done", done);
            }
        }
        frame("response.output_item.done", json!({"output_index": at, "item": item}));
    }
    let last = if reply.stop.is_some() { "response.incomplete" } else { "response.completed" };
    frame(last, json!({"response": document(reply, model, turn)}));
    frames
}
