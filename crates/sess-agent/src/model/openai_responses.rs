//! OpenAI's Responses API, without its memory: every call brings the whole conversation.

use std::collections::HashMap;

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use sess_core::agent::{ModelSpec, Thinking};
use tokio_util::sync::CancellationToken;

use super::draft::{Draft, Told};
use super::http::{Fault, Link, Progress, Reader};
use super::openai_chat::{effort, result_text};
use super::turns::{Said, Spoken, Turn, text_of, turns};
use super::{Model, ModelError, Reply, Request, Stop, sse};

pub(super) struct OpenAiResponses {
    pub(super) link: Link,
    pub(super) spec: ModelSpec,
}

#[async_trait]
impl Model for OpenAiResponses {
    async fn reply(
        &self,
        request: &Request,
        told: Told<'_>,
        cancel: &CancellationToken,
    ) -> Result<Reply, ModelError> {
        let body = body(&self.spec, request);
        let reader = || Box::new(Events::default()) as Box<dyn Reader>;
        self.link.ask(&body, request, &self.spec, reader, told, cancel).await
    }
}

fn body(spec: &ModelSpec, request: &Request) -> Value {
    let mut input = Vec::new();
    for turn in turns(&request.messages) {
        match turn {
            Turn::User(words) => input.push(user(&words)),
            Turn::Assistant(parts) => assistant(&parts, spec, &mut input),
            Turn::Results { results, said } => {
                for outcome in &results {
                    let text = result_text(&text_of(&outcome.said), outcome.is_error);
                    let id = &outcome.call_id;
                    input.push(json!({"type": "function_call_output", "call_id": id, "output": text}));
                }
                if !said.is_empty() {
                    input.push(user(&said));
                }
            }
        }
    }
    let mut body = json!({"model": spec.model, "stream": true, "store": false, "input": input});
    if !request.system.trim().is_empty() {
        body["instructions"] = json!(request.system);
    }
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(|tool| {
            json!({
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.input_schema,
                // Our schemas have optional fields, which the strict form does not know.
                "strict": false,
            })
        });
        body["tools"] = tools.collect();
    }
    if let Some(max) = spec.max_tokens {
        body["max_output_tokens"] = json!(max);
    }
    if let Some(temperature) = spec.temperature {
        body["temperature"] = json!(temperature);
    }
    if let Some(effort) = effort(spec.thinking) {
        body["reasoning"] = json!({"effort": effort});
        if spec.thinking != Thinking::Off {
            body["reasoning"]["summary"] = json!("auto");
            // Nothing is stored there, so the model's thoughts travel with the conversation.
            body["include"] = json!(["reasoning.encrypted_content"]);
        }
    }
    body
}

fn user(words: &[Said<'_>]) -> Value {
    let parts = words.iter().map(|said| match said {
        Said::Text(text) => json!({"type": "input_text", "text": text}),
        Said::Image { mime_type, data } => {
            json!({"type": "input_image", "image_url": format!("data:{mime_type};base64,{data}")})
        }
    });
    json!({"type": "message", "role": "user", "content": parts.collect::<Vec<_>>()})
}

fn assistant(parts: &[Spoken<'_>], spec: &ModelSpec, input: &mut Vec<Value>) {
    for (n, part) in parts.iter().enumerate() {
        match part {
            Spoken::Text(text) => {
                let content = json!([{"type": "output_text", "text": text}]);
                input.push(json!({"type": "message", "role": "assistant", "content": content}));
            }
            Spoken::Call { id, name, arguments } => {
                let arguments = serde_json::to_string(arguments).expect("a JSON object can be written");
                let call =
                    json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments});
                input.push(call);
            }
            // Only the model that wrote it can read it, and only before what it led to.
            Spoken::Other { block, model } => {
                let own = model.is_some_and(|model| model.starts_with(&spec.model));
                let led_somewhere =
                    parts[n + 1..].iter().any(|part| matches!(part, Spoken::Text(_) | Spoken::Call { .. }));
                if own && led_somewhere && is_reasoning(block) {
                    input.push(Value::Object((*block).clone()));
                }
            }
            Spoken::Thinking { .. } => {}
        }
    }
}

fn is_reasoning(block: &Map<String, Value>) -> bool {
    block.get("type").is_some_and(|kind| kind == "reasoning") && block.contains_key("encrypted_content")
}

#[derive(Default)]
struct Events {
    /// Where the call of each item is in the draft.
    calls: HashMap<u64, usize>,
}

impl Reader for Events {
    fn take(&mut self, event: &sse::Event, draft: &mut Draft, told: Told<'_>) -> Result<Progress, Fault> {
        let Ok(data) = serde_json::from_str::<Value>(&event.data) else {
            return Err(Fault::again("the provider sent an event that is not JSON"));
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (item, index) = (&data["item"], data["output_index"].as_u64().unwrap_or(0));
        match data["type"].as_str().unwrap_or_default() {
            "response.created" => {
                draft.model = data["response"]["model"].as_str().map(str::to_owned);
            }
            "response.output_text.delta" | "response.refusal.delta" => {
                draft.text(&text(&data["delta"]), told);
            }
            "response.reasoning_summary_part.added" => draft.begin_thinking(),
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                draft.thinking(&text(&data["delta"]), told);
            }
            "response.output_item.added" if item["type"] == "function_call" => {
                let call = draft.begin_call(&text(&item["call_id"]), &text(&item["name"]), told);
                draft.arguments(call, &text(&item["arguments"]));
                self.calls.insert(index, call);
            }
            "response.function_call_arguments.delta" => {
                if let Some(&call) = self.calls.get(&index) {
                    draft.arguments(call, &text(&data["delta"]));
                }
            }
            "response.function_call_arguments.done" => {
                if let (Some(&call), Some(whole)) = (self.calls.get(&index), data["arguments"].as_str()) {
                    draft.set_arguments(call, whole);
                }
            }
            "response.output_item.done" => {
                if let Some(block) = item.as_object().filter(|block| is_reasoning(block)) {
                    draft.other(sent_back(block));
                }
            }
            "response.completed" | "response.incomplete" => {
                let response = &data["response"];
                count(draft, &response["usage"]);
                draft.stop = Some(stop(response["incomplete_details"]["reason"].as_str()));
                return Ok(Progress::Whole);
            }
            "response.failed" => {
                let error = &data["response"]["error"];
                return Err(Fault::told(&text(&error["code"]), &text(&error["message"])));
            }
            "error" => {
                let error = if data["error"].is_object() { &data["error"] } else { &data };
                return Err(Fault::told(&text(&error["code"]), &text(&error["message"])));
            }
            _ => {}
        }
        Ok(Progress::More)
    }
}

/// Leaves only the fields that the API takes back.
fn sent_back(block: &Map<String, Value>) -> Map<String, Value> {
    let keys = ["type", "id", "summary", "encrypted_content"];
    keys.iter().filter_map(|&key| Some((key.to_owned(), block.get(key)?.clone()))).collect()
}

fn count(draft: &mut Draft, usage: &Value) {
    let tokens = |value: &Value| value.as_u64().unwrap_or(0);
    let cached = tokens(&usage["input_tokens_details"]["cached_tokens"]);
    draft.usage.input = tokens(&usage["input_tokens"]).saturating_sub(cached);
    draft.usage.output = tokens(&usage["output_tokens"]);
    draft.usage.cache_read = cached;
}

fn stop(incomplete: Option<&str>) -> Stop {
    match incomplete {
        None => Stop::End,
        Some("max_output_tokens") => Stop::Length,
        Some("content_filter") => Stop::Refused,
        Some(other) => Stop::Other(other.to_owned()),
    }
}
