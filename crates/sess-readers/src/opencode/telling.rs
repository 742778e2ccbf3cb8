//! Messages of opencode, told as messages of ours.
//!
//! One of opencode's may hold words, tool calls with their results and words again: it is
//! told as a reply, the results, and another reply.

use std::ops::ControlFlow;

use serde_json::Value;
use sess_core::{
    Timestamp,
    message::{Block, Role, Usage},
};

use crate::{Entry, Take, Told, json, session::session_id};

pub(super) struct Message {
    pub id: String,
    pub at: Option<Timestamp>,
    /// None where it could not be read.
    pub info: Option<Value>,
    pub parts: Vec<Part>,
}

pub(super) struct Part {
    pub id: String,
    pub data: Option<Value>,
}

/// From where on messages were taken back: a message, or a part within one.
#[derive(Default)]
pub(super) struct Revert {
    message: Option<String>,
    part: Option<String>,
}

impl Revert {
    pub(super) fn of(value: &Value) -> Self {
        let owned = |name: &str| json::field(value, name).map(str::to_owned);
        Self { message: owned("messageID"), part: owned("partID") }
    }
}

pub(super) struct Telling<'a, 'b> {
    take: &'a mut Take<'b>,
    revert: Revert,
    is_reverted: bool,
    /// A compaction whose summary may come with the next message.
    compaction: Option<Entry>,
    /// The reply as far as it goes, and the results of its calls.
    said: Option<Entry>,
    results: Vec<Entry>,
    /// When the last message was written: one without a time belongs there.
    last: Timestamp,
    told: Told,
}

impl<'a, 'b> Telling<'a, 'b> {
    pub(super) fn new(take: &'a mut Take<'b>, at: Timestamp, revert: Revert) -> Self {
        Self {
            take,
            revert,
            is_reverted: false,
            compaction: None,
            said: None,
            results: Vec::new(),
            last: at,
            told: Told::default(),
        }
    }

    pub(super) fn message(&mut self, message: Message) -> ControlFlow<()> {
        let Message { id, at, info, parts } = message;
        self.last = at.unwrap_or(self.last);
        let is_target = self.revert.message.as_deref() == Some(&*id);
        self.is_reverted |= is_target && self.revert.part.is_none();
        let Some(info) = info else {
            self.told.bad += 1;
            return ControlFlow::Continue(());
        };
        let role = match json::field(&info, "role") {
            Some("user") => Role::User,
            Some("assistant") => Role::Assistant,
            _ => {
                self.told.unknown += 1;
                return ControlFlow::Continue(());
            }
        };
        if role == Role::Assistant && info.get("summary").and_then(Value::as_bool) == Some(true) {
            return self.summary(id, &parts);
        }
        self.give_compaction()?;
        let mut usage = usage(&info);
        let mut next_id = Some(id);
        for part in parts {
            if is_target && self.revert.part.as_deref() == Some(&*part.id) {
                self.flush()?;
                self.is_reverted = true;
            }
            let Some(data) = part.data else {
                self.told.bad += 1;
                continue;
            };
            if json::field(&data, "type") == Some("compaction") {
                self.flush()?;
                let body = json::compaction("", self.last);
                self.compaction = Some(Entry { id: Some(part.id), body, is_taken_back: self.is_reverted });
                continue;
            }
            let Some(block) = self.block(&data) else { continue };
            let is_call = matches!(block, Block::ToolCall { .. });
            if !is_call && !self.results.is_empty() {
                self.flush()?;
            }
            let start = data.get("time").and_then(|time| json::instant(time.get("start")?));
            let said = self.said.get_or_insert_with(|| {
                // The first words of a message have its own time.
                let start = start.filter(|_| next_id.is_none());
                let mut body = json::empty(role, start.unwrap_or(self.last));
                if role == Role::Assistant {
                    body.model = json::field(&info, "modelID").map(str::to_owned);
                    body.stop_reason = json::field(&info, "finish").map(str::to_owned);
                    body.usage = usage.take();
                }
                let id = next_id.take().unwrap_or_else(|| part.id.clone());
                Entry { id: Some(id), body, is_taken_back: self.is_reverted }
            });
            said.body.content.push(block);
            self.last = self.last.max(start.unwrap_or(self.last));
            if is_call {
                self.result(part.id, &data);
            }
        }
        if let Some(error) = info.get("error").filter(|error| error.is_object()) {
            let said = error.get("data").and_then(|data| json::field(data, "message"));
            let name = said.or(json::field(error, "name")).unwrap_or_default();
            let block = json::named("error", &[("name", name)]);
            let fresh =
                || Entry { id: next_id, body: json::empty(role, self.last), is_taken_back: self.is_reverted };
            self.said.get_or_insert_with(fresh).body.content.push(block);
        }
        self.flush()
    }

    pub(super) fn finish(mut self) -> Told {
        let _ = self.give_compaction();
        self.told
    }

    /// Tells a compaction with the reply that sums up what was said before.
    fn summary(&mut self, id: String, parts: &[Part]) -> ControlFlow<()> {
        let is_text = |data: &&Value| json::field(data, "type") == Some("text");
        let data = parts.iter().filter_map(|part| part.data.as_ref()).filter(is_text);
        let texts: Vec<_> = data.filter_map(|data| json::field(data, "text")).collect();
        let body = json::compaction(texts.join("\n"), self.last);
        let marked = self.compaction.take().and_then(|entry| entry.id).unwrap_or(id);
        (self.take)(Entry { id: Some(marked), body, is_taken_back: self.is_reverted })
    }

    /// Returns the block that a part is; none for what is the model's or the host's alone.
    fn block(&mut self, data: &Value) -> Option<Block> {
        let text = |name: &str| json::field(data, name).unwrap_or_default();
        let is = |name: &str| data.get(name).and_then(Value::as_bool) == Some(true);
        match text("type") {
            "text" if is("synthetic") || is("ignored") || text("text").is_empty() => None,
            "text" => Some(json::text(text("text"))),
            "reasoning" => Some(Block::Thinking { text: text("text").to_owned(), signature: None }),
            "tool" => {
                let input = data.get("state").and_then(|state| state.get("input")).cloned();
                Some(json::tool_call(text("callID"), text("tool"), input.unwrap_or_default()))
            }
            "file" => Some(json::file(text("filename"), text("mime"), text("url"))),
            "subtask" => Some(json::text(text("prompt"))),
            "agent" | "step-start" | "step-finish" | "snapshot" | "patch" | "retry" => None,
            _ => {
                self.told.unknown += 1;
                None
            }
        }
    }

    /// Keeps what a tool answered until its call is told, with where a sub-agent ran before it.
    fn result(&mut self, id: String, data: &Value) {
        let state = data.get("state").unwrap_or(&Value::Null);
        let (text, is_error) = match json::field(state, "status") {
            Some("completed") => (json::field(state, "output"), false),
            Some("error") => (json::field(state, "error"), true),
            // It still runs, or was cut off.
            _ => return,
        };
        let end = state.get("time").and_then(|time| json::instant(time.get("end")?));
        let at = end.unwrap_or(self.last);
        self.last = at;
        let child = state.get("metadata").and_then(|it| json::field(it, "sessionId")).and_then(session_id);
        if let Some(child) = child {
            let body = json::sub_session(child, at);
            self.results.push(Entry { id: None, body, is_taken_back: self.is_reverted });
        }
        let mut content = vec![json::text(text.unwrap_or_default())];
        for file in state.get("attachments").and_then(Value::as_array).into_iter().flatten() {
            let text = |name: &str| json::field(file, name).unwrap_or_default();
            content.push(json::file(text("filename"), text("mime"), text("url")));
        }
        let call = json::field(data, "callID").unwrap_or_default();
        let mut body = json::tool_result(call, content, is_error, at);
        body.tool_name = json::field(data, "tool").map(str::to_owned);
        self.results.push(Entry { id: Some(id), body, is_taken_back: self.is_reverted });
    }

    fn give_compaction(&mut self) -> ControlFlow<()> {
        self.compaction.take().map_or(ControlFlow::Continue(()), |entry| (self.take)(entry))
    }

    fn flush(&mut self) -> ControlFlow<()> {
        self.said.take().into_iter().chain(self.results.drain(..)).try_for_each(&mut *self.take)
    }
}

fn usage(info: &Value) -> Option<Usage> {
    let tokens = info.get("tokens").filter(|tokens| tokens.is_object())?;
    let count = |value: &Value, name: &str| value.get(name).and_then(Value::as_u64).unwrap_or(0);
    let cache = tokens.get("cache").unwrap_or(&Value::Null);
    Some(Usage {
        input: count(tokens, "input"),
        output: count(tokens, "output"),
        cache_read: count(cache, "read"),
        cache_write: count(cache, "write"),
        cost: info.get("cost").and_then(Value::as_f64),
        ..Usage::default()
    })
}
