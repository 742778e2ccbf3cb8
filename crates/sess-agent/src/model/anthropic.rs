//! Anthropic's Messages API.

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use sess_core::agent::{Effort, ModelSpec, Thinking};
use tokio_util::sync::CancellationToken;

use super::draft::{Draft, Told};
use super::http::{Fault, Link, Progress, Reader};
use super::turns::{Outcome, Said, Spoken, Turn, turns};
use super::{Model, ModelError, Reply, Request, Stop, sse};

/// The API wants a limit; this one every model of today allows.
pub const MAX_TOKENS_DEFAULT: u32 = 8192;

/// The smallest budget for thinking that the API takes, and what is left for the answer.
const THINKING_TOKENS_MIN: u32 = 1024;

pub(super) struct Anthropic {
    pub(super) link: Link,
    pub(super) spec: ModelSpec,
}

#[async_trait]
impl Model for Anthropic {
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
    let turns = turns(&request.messages);
    let thinking = thinking_tokens(spec).filter(|_| may_think(&turns));
    let max_tokens = match (spec.max_tokens, thinking) {
        (Some(max), _) => max,
        (None, budget) => MAX_TOKENS_DEFAULT + budget.unwrap_or(0),
    };
    let mut body = json!({"model": spec.model, "max_tokens": max_tokens, "stream": true});
    if !request.system.trim().is_empty() {
        body["system"] = json!([cached(json!({"type": "text", "text": request.system}))]);
    }
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(|tool| {
            json!({"name": tool.name, "description": tool.description, "input_schema": tool.input_schema})
        });
        body["tools"] = tools.collect();
    }
    match thinking {
        Some(budget) => body["thinking"] = json!({"type": "enabled", "budget_tokens": budget}),
        // The API refuses a temperature together with thinking.
        None => {
            if let Some(temperature) = spec.temperature {
                body["temperature"] = json!(temperature);
            }
        }
    }
    let mut messages: Vec<Value> = turns.iter().map(message).collect();
    // The next call begins with all of this, so it pays to have it remembered.
    if let Some(last) = messages.last_mut().and_then(|message| message["content"].as_array_mut()?.last_mut())
    {
        *last = cached(last.take());
    }
    body["messages"] = messages.into();
    body
}

fn thinking_tokens(spec: &ModelSpec) -> Option<u32> {
    let wanted = match spec.thinking {
        Thinking::Unset | Thinking::Off => return None,
        Thinking::Tokens(tokens) => tokens.max(THINKING_TOKENS_MIN),
        Thinking::Effort(Effort::Minimal) => THINKING_TOKENS_MIN,
        Thinking::Effort(Effort::Low) => 4096,
        Thinking::Effort(Effort::Medium) => 12_288,
        Thinking::Effort(Effort::High) => 32_768,
    };
    // Thinking counts as output, and something must be left to say.
    let budget = match spec.max_tokens {
        Some(max) => wanted.min(max.saturating_sub(THINKING_TOKENS_MIN)),
        None => wanted,
    };
    (budget >= THINKING_TOKENS_MIN).then_some(budget)
}

/// In the middle of tool calls the API wants the thinking that led to them. When another
/// model made the calls there is none, and this one goes on without.
fn may_think(turns: &[Turn<'_>]) -> bool {
    let [.., Turn::Assistant(spoken), Turn::Results { said, .. }] = turns else { return true };
    !said.is_empty()
        || spoken.iter().any(|part| match part {
            Spoken::Thinking { .. } => true,
            Spoken::Other { block, .. } => is_redacted(block),
            Spoken::Text(_) | Spoken::Call { .. } => false,
        })
}

fn is_redacted(block: &Map<String, Value>) -> bool {
    block.get("type").is_some_and(|kind| kind == "redacted_thinking")
}

fn message(turn: &Turn<'_>) -> Value {
    let (role, content): (_, Vec<Value>) = match turn {
        Turn::User(words) => ("user", words.iter().map(said).collect()),
        Turn::Results { results, said: words } => {
            ("user", results.iter().map(result).chain(words.iter().map(said)).collect())
        }
        Turn::Assistant(parts) => ("assistant", parts.iter().filter_map(spoken).collect()),
    };
    json!({"role": role, "content": content})
}

fn said(said: &Said<'_>) -> Value {
    match said {
        Said::Text(text) => json!({"type": "text", "text": text}),
        Said::Image { mime_type, data } => {
            json!({"type": "image", "source": {"type": "base64", "media_type": mime_type, "data": data}})
        }
    }
}

fn result(outcome: &Outcome<'_>) -> Value {
    let content: Vec<Value> = outcome.said.iter().map(said).collect();
    let mut block = json!({"type": "tool_result", "tool_use_id": outcome.call_id, "content": content});
    if outcome.is_error {
        block["is_error"] = json!(true);
    }
    block
}

fn spoken(part: &Spoken<'_>) -> Option<Value> {
    Some(match part {
        Spoken::Text(text) => json!({"type": "text", "text": text}),
        Spoken::Thinking { text, signature } => {
            json!({"type": "thinking", "thinking": text, "signature": signature})
        }
        Spoken::Call { id, name, arguments } => {
            json!({"type": "tool_use", "id": id, "name": name, "input": arguments})
        }
        Spoken::Other { block, .. } if is_redacted(block) => Value::Object((*block).clone()),
        Spoken::Other { .. } => return None,
    })
}

fn cached(mut block: Value) -> Value {
    block["cache_control"] = json!({"type": "ephemeral"});
    block
}

/// The block that is coming.
#[derive(Default)]
enum Open {
    #[default]
    Nothing,
    Text,
    Thinking {
        signature: String,
    },
    Call {
        call: usize,
        /// Arguments that came with the beginning; deltas take their place.
        given: Option<String>,
    },
}

#[derive(Default)]
struct Events {
    open: Open,
}

impl Reader for Events {
    fn take(&mut self, event: &sse::Event, draft: &mut Draft, told: Told<'_>) -> Result<Progress, Fault> {
        let Ok(data) = serde_json::from_str::<Value>(&event.data) else {
            return Err(Fault::again("the provider sent an event that is not JSON"));
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match data["type"].as_str().unwrap_or_default() {
            "message_start" => {
                draft.model = data["message"]["model"].as_str().map(str::to_owned);
                count(draft, &data["message"]["usage"]);
            }
            "content_block_start" => self.begin(&data["content_block"], draft, told),
            "content_block_delta" => {
                let delta = &data["delta"];
                match (delta["type"].as_str().unwrap_or_default(), &mut self.open) {
                    ("text_delta", _) => draft.text(&text(&delta["text"]), told),
                    ("thinking_delta", _) => draft.thinking(&text(&delta["thinking"]), told),
                    ("signature_delta", Open::Thinking { signature }) => {
                        signature.push_str(&text(&delta["signature"]));
                    }
                    ("input_json_delta", Open::Call { call, given }) => {
                        let json = text(&delta["partial_json"]);
                        if !json.is_empty() {
                            *given = None;
                        }
                        draft.arguments(*call, &json);
                    }
                    _ => {}
                }
            }
            "content_block_stop" => match std::mem::take(&mut self.open) {
                // Half a signature would be refused, so it counts from here on.
                Open::Thinking { signature } if !signature.is_empty() => draft.sign(signature),
                Open::Call { call, given: Some(given) } => draft.set_arguments(call, &given),
                Open::Nothing | Open::Text | Open::Thinking { .. } | Open::Call { .. } => {}
            },
            "message_delta" => {
                count(draft, &data["usage"]);
                if let Some(reason) = data["delta"]["stop_reason"].as_str() {
                    draft.stop = Some(stop(reason));
                }
            }
            "message_stop" => {
                draft.stop.get_or_insert_default();
                return Ok(Progress::Whole);
            }
            "error" => {
                let error = &data["error"];
                return Err(Fault::told(&text(&error["type"]), &text(&error["message"])));
            }
            _ => {}
        }
        Ok(Progress::More)
    }
}

impl Events {
    fn begin(&mut self, block: &Value, draft: &mut Draft, told: Told<'_>) {
        let text = |key: &str| block[key].as_str().unwrap_or_default();
        self.open = match block["type"].as_str().unwrap_or_default() {
            "text" => {
                draft.text(text("text"), told);
                Open::Text
            }
            "thinking" => {
                draft.begin_thinking();
                draft.thinking(text("thinking"), told);
                Open::Thinking { signature: text("signature").to_owned() }
            }
            "tool_use" => {
                let call = draft.begin_call(text("id"), text("name"), told);
                let given = block["input"].as_object().filter(|input| !input.is_empty());
                Open::Call { call, given: given.map(|_| block["input"].to_string()) }
            }
            "redacted_thinking" => {
                draft.other(block.as_object().cloned().unwrap_or_default());
                Open::Nothing
            }
            // Tools that run at the provider are never asked for.
            _ => Open::Nothing,
        };
    }
}

/// Later counts are totals, and leave out what has not changed.
fn count(draft: &mut Draft, usage: &Value) {
    let usage_of = &mut draft.usage;
    let counts = [
        ("input_tokens", &mut usage_of.input),
        ("output_tokens", &mut usage_of.output),
        ("cache_read_input_tokens", &mut usage_of.cache_read),
        ("cache_creation_input_tokens", &mut usage_of.cache_write),
    ];
    for (key, count) in counts {
        if let Some(tokens) = usage[key].as_u64() {
            *count = tokens;
        }
    }
}

fn stop(reason: &str) -> Stop {
    match reason {
        "end_turn" | "stop_sequence" => Stop::End,
        "tool_use" => Stop::ToolCalls,
        "max_tokens" | "model_context_window_exceeded" => Stop::Length,
        "refusal" => Stop::Refused,
        other => Stop::Other(other.to_owned()),
    }
}
