//! OpenAI's Chat Completions API, which many other servers speak too.

use async_trait::async_trait;
use serde_json::{Value, json};
use sess_core::agent::{Effort, ModelSpec, Thinking};
use tokio_util::sync::CancellationToken;

use super::draft::{Draft, Told};
use super::http::{Fault, Link, Progress, Reader, explained};
use super::turns::{Said, Spoken, Turn, text_of, turns};
use super::{Model, ModelError, Reply, Request, Stop, sse};

pub(super) struct OpenAiChat {
    pub(super) link: Link,
    pub(super) spec: ModelSpec,
    /// The vendor has a newer word for `max_tokens`, which other servers may not know.
    pub(super) is_vendor: bool,
}

#[async_trait]
impl Model for OpenAiChat {
    async fn reply(
        &self,
        request: &Request,
        told: Told<'_>,
        cancel: &CancellationToken,
    ) -> Result<Reply, ModelError> {
        let body = body(&self.spec, self.is_vendor, request);
        let reader = || Box::new(Chunks::default()) as Box<dyn Reader>;
        self.link.ask(&body, request, &self.spec, reader, told, cancel).await
    }
}

fn body(spec: &ModelSpec, is_vendor: bool, request: &Request) -> Value {
    let mut messages = Vec::new();
    if !request.system.trim().is_empty() {
        messages.push(json!({"role": "system", "content": request.system}));
    }
    for turn in turns(&request.messages) {
        match turn {
            Turn::User(words) => messages.push(user(&words)),
            Turn::Assistant(parts) => messages.push(assistant(&parts)),
            Turn::Results { results, said } => {
                for outcome in &results {
                    let text = result_text(&text_of(&outcome.said), outcome.is_error);
                    messages.push(json!({"role": "tool", "tool_call_id": outcome.call_id, "content": text}));
                }
                if !said.is_empty() {
                    messages.push(user(&said));
                }
            }
        }
    }
    let mut body = json!({
        "model": spec.model,
        "stream": true,
        "stream_options": {"include_usage": true},
        "messages": messages,
    });
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(|tool| {
            let (name, description) = (&tool.name, &tool.description);
            let function = json!({"name": name, "description": description, "parameters": tool.input_schema});
            json!({"type": "function", "function": function})
        });
        body["tools"] = tools.collect();
    }
    if let Some(max) = spec.max_tokens {
        let key = if is_vendor { "max_completion_tokens" } else { "max_tokens" };
        body[key] = json!(max);
    }
    if let Some(temperature) = spec.temperature {
        body["temperature"] = json!(temperature);
    }
    if let Some(effort) = effort(spec.thinking) {
        body["reasoning_effort"] = json!(effort);
    }
    body
}

/// OpenAI has levels of effort where others have budgets.
pub(super) fn effort(thinking: Thinking) -> Option<&'static str> {
    match thinking {
        Thinking::Unset => None,
        Thinking::Off => Some("none"),
        Thinking::Effort(Effort::Minimal) => Some("minimal"),
        Thinking::Effort(Effort::Low) => Some("low"),
        Thinking::Effort(Effort::Medium) => Some("medium"),
        Thinking::Effort(Effort::High) => Some("high"),
        Thinking::Tokens(..4096) => Some("low"),
        Thinking::Tokens(4096..16_384) => Some("medium"),
        Thinking::Tokens(16_384..) => Some("high"),
    }
}

/// The API has no mark for a failed call, so the text has it.
pub(super) fn result_text(text: &str, is_error: bool) -> String {
    if is_error && !text.to_lowercase().starts_with("error") {
        return format!("error: {text}");
    }
    text.to_owned()
}

fn user(words: &[Said<'_>]) -> Value {
    if words.iter().all(|said| matches!(said, Said::Text(_))) {
        return json!({"role": "user", "content": text_of(words)});
    }
    let parts = words.iter().map(|said| match said {
        Said::Text(text) => json!({"type": "text", "text": text}),
        Said::Image { mime_type, data } => {
            json!({"type": "image_url", "image_url": {"url": format!("data:{mime_type};base64,{data}")}})
        }
    });
    json!({"role": "user", "content": parts.collect::<Vec<_>>()})
}

fn assistant(parts: &[Spoken<'_>]) -> Value {
    let mut text = String::new();
    let mut calls = Vec::new();
    for part in parts {
        match part {
            Spoken::Text(said) => {
                if !text.is_empty() {
                    text.push_str("\n\n");
                }
                text.push_str(said);
            }
            Spoken::Call { id, name, arguments } => {
                let arguments = serde_json::to_string(arguments).expect("a JSON object can be written");
                let function = json!({"name": name, "arguments": arguments});
                calls.push(json!({"id": id, "type": "function", "function": function}));
            }
            Spoken::Thinking { .. } | Spoken::Other { .. } => {}
        }
    }
    let content = if text.is_empty() { Value::Null } else { text.into() };
    let mut message = json!({"role": "assistant", "content": content});
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    message
}

#[derive(Default)]
struct Chunks {
    /// The provider's number of each call, its id, and where it is in the draft.
    calls: Vec<(u64, String, usize)>,
}

impl Reader for Chunks {
    fn take(&mut self, event: &sse::Event, draft: &mut Draft, told: Told<'_>) -> Result<Progress, Fault> {
        if event.data.trim() == "[DONE]" {
            // Without a reason to stop it is the end all the same.
            draft.stop.get_or_insert_default();
            return Ok(Progress::Whole);
        }
        let Ok(data) = serde_json::from_str::<Value>(&event.data) else {
            return Err(Fault::again("the provider sent an event that is not JSON"));
        };
        if data.get("error").is_some_and(|error| !error.is_null()) {
            let (kind, message) = explained(&event.data);
            return Err(Fault::told(&kind, &message));
        }
        if let Some(model) = data["model"].as_str().filter(|model| !model.is_empty()) {
            draft.model.get_or_insert_with(|| model.to_owned());
        }
        if data["usage"].is_object() {
            count(draft, &data["usage"]);
        }
        let choice = &data["choices"][0];
        let delta = &choice["delta"];
        // Two names are in use for thinking; neither is OpenAI's own, which shows none here.
        for key in ["reasoning_content", "reasoning"] {
            if let Some(text) = delta[key].as_str() {
                draft.thinking(text, told);
                break;
            }
        }
        for key in ["content", "refusal"] {
            if let Some(text) = delta[key].as_str() {
                draft.text(text, told);
            }
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            self.call(call, draft, told);
        }
        if let Some(reason) = choice["finish_reason"].as_str() {
            draft.stop = Some(stop(reason));
        }
        Ok(Progress::More)
    }
}

impl Chunks {
    /// Parallel calls are told apart by their number. Some servers leave it out or
    /// always say 0; a new id then begins a new call.
    fn call(&mut self, call: &Value, draft: &mut Draft, told: Told<'_>) {
        let id = call["id"].as_str().unwrap_or_default();
        let name = call["function"]["name"].as_str().unwrap_or_default();
        let index = call["index"].as_u64();
        let known = self.calls.iter().rev().find(|(number, begun, _)| {
            index.is_none_or(|index| index == *number) && (id.is_empty() || begun.is_empty() || id == begun)
        });
        let place = match known {
            Some((.., place)) if index.is_some() || name.is_empty() => *place,
            Some(_) | None => {
                let place = draft.begin_call(id, name, told);
                let next = u64::try_from(self.calls.len()).unwrap_or(u64::MAX);
                self.calls.push((index.unwrap_or(next), id.to_owned(), place));
                place
            }
        };
        match &call["function"]["arguments"] {
            Value::String(part) => draft.arguments(place, part),
            // Against the rules, but it is plain what is meant.
            Value::Object(whole) if !whole.is_empty() => {
                draft.set_arguments(place, &Value::Object(whole.clone()).to_string());
            }
            _ => {}
        }
    }
}

fn count(draft: &mut Draft, usage: &Value) {
    let tokens = |value: &Value| value.as_u64().unwrap_or(0);
    let cached = tokens(&usage["prompt_tokens_details"]["cached_tokens"]);
    draft.usage.input = tokens(&usage["prompt_tokens"]).saturating_sub(cached);
    draft.usage.output = tokens(&usage["completion_tokens"]);
    draft.usage.cache_read = cached;
}

fn stop(reason: &str) -> Stop {
    match reason {
        "stop" => Stop::End,
        "tool_calls" | "function_call" => Stop::ToolCalls,
        "length" => Stop::Length,
        "content_filter" => Stop::Refused,
        other => Stop::Other(other.to_owned()),
    }
}
