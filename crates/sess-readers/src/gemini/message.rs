//! A message of Gemini CLI, and what it says.

use std::ops::ControlFlow;

use serde_json::Value;
use sess_core::{
    Timestamp,
    message::{Block, Body, Role, Usage},
};

use crate::{Entry, Take, Told, json, session::session_id};

/// What the program says to the model at the beginning, in the person's place.
const SETTING: [&str; 2] = ["<session_context>", "This is the Gemini CLI. We are setting up the context"];

pub(super) struct Telling<'a, 'b> {
    take: &'a mut Take<'b>,
    pub told: Told,
    /// When the last message was written: one without a time belongs there.
    last: Timestamp,
}

impl<'a, 'b> Telling<'a, 'b> {
    pub(super) fn new(last: Timestamp, take: &'a mut Take<'b>) -> Self {
        Self { take, told: Told::default(), last }
    }

    pub(super) fn compaction(&mut self, summary: String, is_taken_back: bool) -> ControlFlow<()> {
        let body = json::compaction(summary, self.last);
        (self.take)(Entry { id: None, body, is_taken_back })
    }

    pub(super) fn message(&mut self, mut message: Value, is_taken_back: bool) -> ControlFlow<()> {
        self.last = message.get("timestamp").and_then(json::instant).unwrap_or(self.last);
        let role = match json::field(&message, "type") {
            Some("user") => Role::User,
            Some("gemini") => Role::Assistant,
            Some("info" | "error" | "warning") => Role::System,
            role => return self.told.pass_over(role),
        };
        let mut body = json::empty(role, self.last);
        let thoughts = message.get("thoughts").and_then(Value::as_array).into_iter().flatten();
        body.content.extend(thoughts.filter_map(thought));
        body.content.extend(content(&message));
        body.model = json::field(&message, "model").map(str::to_owned);
        body.usage = message.get("tokens").and_then(usage);
        let calls = message.get_mut("toolCalls").map(Value::take).unwrap_or_default();
        let Value::Array(mut calls) = calls else { return self.give(&message, body, is_taken_back) };
        for call in &mut calls {
            let arguments = call.get_mut("args").map(Value::take).unwrap_or_default();
            let field = |name: &str| json::field(call, name).unwrap_or_default();
            body.content.push(json::tool_call(field("id"), field("name"), arguments));
        }
        self.give(&message, body, is_taken_back)?;
        calls.iter().try_for_each(|call| self.result(call, is_taken_back))
    }

    fn give(&mut self, message: &Value, body: Body, is_taken_back: bool) -> ControlFlow<()> {
        if body.content.is_empty() {
            return ControlFlow::Continue(());
        }
        (self.take)(Entry { id: json::field(message, "id").map(str::to_owned), body, is_taken_back })
    }

    /// A tool's result, and before it the mark of the sub-agent that worked for it.
    fn result(&mut self, call: &Value, is_taken_back: bool) -> ControlFlow<()> {
        self.last = call.get("timestamp").and_then(json::instant).unwrap_or(self.last);
        if let Some(child) = json::field(call, "agentId").and_then(session_id) {
            (self.take)(Entry { id: None, body: json::sub_session(child, self.last), is_taken_back })?;
        }
        let Some(result) = call.get("result").filter(|result| !result.is_null()) else {
            return ControlFlow::Continue(());
        };
        let field = |name: &str| json::field(call, name).unwrap_or_default();
        let is_error = matches!(field("status"), "error" | "cancelled");
        let blocks = parts(result).iter().flat_map(result_part).collect();
        let mut body = json::tool_result(field("id"), blocks, is_error, self.last);
        body.tool_name = Some(field("name").to_owned()).filter(|name| !name.is_empty());
        (self.take)(Entry { id: None, body, is_taken_back })
    }
}

/// Returns what a message says, in the person's own words where they are kept apart from what
/// the model was sent.
fn content(message: &Value) -> Vec<Block> {
    let shown = message.get("displayContent").filter(|shown| !parts(shown).is_empty());
    let content = shown.or_else(|| message.get("content")).unwrap_or(&Value::Null);
    parts(content).iter().filter_map(block).collect()
}

/// Returns the text of a message.
pub(super) fn text(message: &Value) -> String {
    let texts = content(message).into_iter().filter_map(|block| match block {
        Block::Text { text } => Some(text),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n").trim().to_owned()
}

/// Returns the parts of a content, whichever way it is written.
fn parts(content: &Value) -> Vec<Value> {
    match content {
        Value::String(text) if text.is_empty() => Vec::new(),
        Value::String(text) => vec![serde_json::json!({"text": text})],
        Value::Array(parts) => parts.iter().flat_map(self::parts).collect(),
        Value::Object(_) => vec![content.clone()],
        _ => Vec::new(),
    }
}

/// Returns the block that a part is; none for what is told elsewhere.
fn block(part: &Value) -> Option<Block> {
    if let Some(text) = json::field(part, "text") {
        let is_hidden = text.is_empty() || SETTING.iter().any(|start| text.starts_with(start));
        let is_thought = part.get("thought").and_then(Value::as_bool) == Some(true);
        let block = if is_thought {
            Block::Thinking { text: text.to_owned(), signature: None }
        } else {
            json::text(text)
        };
        return (!is_hidden).then_some(block);
    }
    // Calls and results stand in `toolCalls`, as they ended.
    if part.get("functionCall").is_some() || part.get("functionResponse").is_some() {
        return None;
    }
    let of =
        |name: &str, field: &str| part.get(name).and_then(|it| json::field(it, field)).unwrap_or_default();
    if part.get("inlineData").is_some() {
        let (mime_type, data) = (of("inlineData", "mimeType"), of("inlineData", "data"));
        return Some(json::file("", mime_type, &format!("data:{mime_type};base64,{data}")));
    }
    if part.get("fileData").is_some() {
        return Some(json::file("", of("fileData", "mimeType"), of("fileData", "fileUri")));
    }
    part.as_object().map(|fields| json::other(fields.clone()))
}

/// Returns what a part of a result says.
fn result_part(part: &Value) -> Vec<Block> {
    let Some(response) = part.get("functionResponse") else { return block(part).into_iter().collect() };
    let answer = response.get("response").unwrap_or(&Value::Null);
    let said = ["output", "error", "content"].into_iter().find_map(|name| json::field(answer, name));
    let mut blocks = match said {
        Some(text) => vec![json::text(text)],
        None if answer.is_null() => Vec::new(),
        None => vec![json::text(answer.to_string())],
    };
    // Images and the like come beside the answer.
    let beside = response.get("parts").map(parts).unwrap_or_default();
    blocks.extend(beside.iter().filter_map(block));
    blocks
}

fn thought(thought: &Value) -> Option<Block> {
    let field = |name: &str| json::field(thought, name).filter(|text| !text.is_empty());
    let text = match (field("subject"), field("description")) {
        (Some(subject), Some(description)) => format!("{subject}: {description}"),
        (one, other) => one.or(other)?.to_owned(),
    };
    Some(Block::Thinking { text, signature: None })
}

fn usage(tokens: &Value) -> Option<Usage> {
    let count = |name: &str| tokens.get(name).and_then(Value::as_u64).unwrap_or(0);
    tokens.is_object().then(|| Usage {
        // The cached ones are counted among the others, the thoughts beside them.
        input: count("input").saturating_sub(count("cached")),
        output: count("output").saturating_add(count("thoughts")),
        cache_read: count("cached"),
        ..Usage::default()
    })
}
