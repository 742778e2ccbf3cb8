//! Turning records into messages.

use std::{
    collections::{HashMap, HashSet},
    mem,
    ops::ControlFlow,
};

use serde_json::Value;
use sess_core::{
    SessionKey, Source, Timestamp,
    message::{Block, Body, Provenance, Role, Usage},
};

use super::{
    asked, given,
    item::{self, Done},
    outline::Outline,
    record::{Line, Meta, has_payload},
    titled,
};
use crate::{Entry, Foreign, Take, Told, json, session::session_id};

/// Kinds of records that carry nothing a transcript shows.
const SILENT: [&str; 9] = [
    "session_meta",
    "state",
    "world_state",
    "inter_agent_communication_metadata",
    "security_risk_score",
    "token_usage_record",
    "realtime_item",
    "retained_context",
    "thread_settings",
];

/// Events that carry nothing that is not said elsewhere.
const SILENT_EVENTS: [&str; 12] = [
    "task_started",
    "turn_started",
    "task_complete",
    "turn_complete",
    "turn_aborted",
    "thread_rolled_back",
    "thread_name_updated",
    "thread_goal_updated",
    "entered_review_mode",
    "exited_review_mode",
    "error",
    "warning",
];

const GO_ON: ControlFlow<()> = ControlFlow::Continue(());

pub(super) struct Reading<'a, 'b> {
    take: &'a mut Take<'b>,
    pub told: Told,
    /// The title that the first prompt makes that was not taken back.
    pub title: Option<String>,
    /// A reply that may go on in the next record.
    pending: Option<Entry>,
    /// When the last record was written: one without a time belongs there.
    last: Timestamp,
    model: Option<String>,
    is_taken_back: bool,
    /// Which sub-agents were told of already, and whether by what was taken back: whoever is asked once more is told of
    /// once more.
    children: HashSet<(String, bool)>,
    /// Calls that start a sub-agent, whose result names it.
    spawns: HashSet<String>,
    /// The threads of agents that are known by their path.
    peers: HashMap<String, String>,
    own_path: String,
}

impl<'a, 'b> Reading<'a, 'b> {
    pub(super) fn new(session: &Foreign, take: &'a mut Take<'b>) -> Self {
        Self {
            take,
            told: Told::default(),
            title: None,
            pending: None,
            last: session.began_at(),
            model: None,
            is_taken_back: false,
            children: HashSet::new(),
            spawns: HashSet::new(),
            peers: HashMap::new(),
            own_path: "/root".to_owned(),
        }
    }

    /// Goes on in another rollout.
    pub(super) fn enter(&mut self, meta: &Meta, thread: &str) {
        if let Some(path) = meta.agent_path() {
            self.own_path = path.to_owned();
            if let (Some((above, _)), Some(parent)) = (path.rsplit_once('/'), meta.parent()) {
                self.peers.insert(above.to_owned(), parent.to_owned());
            }
        }
        self.peers.insert(self.own_path.clone(), thread.to_owned());
    }

    pub(super) fn record(
        &mut self,
        line: &Line<'_>,
        (outline, number): (&Outline, u64),
        is_taken_back: bool,
    ) -> ControlFlow<()> {
        self.last = line.at.unwrap_or(self.last);
        self.is_taken_back = is_taken_back;
        if SILENT.contains(&&*line.kind) {
            return GO_ON;
        }
        if !has_payload(&line.kind) {
            // What says nothing of what it is, is damaged; another word for it is a later release's.
            match line.kind.is_empty() {
                true => self.told.bad += 1,
                false => self.told.unknown += 1,
            }
            return GO_ON;
        }
        let Some(payload) = line.payload().filter(Value::is_object) else {
            self.told.bad += 1;
            return GO_ON;
        };
        match &*line.kind {
            "event_msg" => self.event(payload, outline),
            "response_item" => self.response(payload, (outline, number)),
            "turn_context" => {
                self.model = json::field(&payload, "model").map(str::to_owned).or(self.model.take());
                GO_ON
            }
            "compacted" => self.compacted(json::field(&payload, "message").unwrap_or_default()),
            _ => self.peer(&payload),
        }
    }

    /// What the person saw.
    fn event(&mut self, mut payload: Value, outline: &Outline) -> ControlFlow<()> {
        let text = |name: &str| json::field(&payload, name).unwrap_or_default();
        match text("type") {
            "user_message" => {
                let body = self.said(item::prompt(&payload));
                self.give(None, body)
            }
            "agent_message" => self.reply(None, json::text(text("message"))),
            "agent_reasoning" | "agent_reasoning_raw_content" => self.think(None, text("text").to_owned()),
            "token_count" => {
                self.count(payload.pointer("/info/last_token_usage"));
                GO_ON
            }
            "context_compacted" if !outline.has_compactions => self.compacted(""),
            "context_compacted" => GO_ON,
            "sub_agent_activity" => self.activity(&payload),
            "item_completed" => {
                let item = payload.get_mut("item").map(Value::take).unwrap_or_default();
                self.item(item, outline)
            }
            kind => {
                let is_known = SILENT_EVENTS.contains(&kind)
                    || ["_begin", "_end", "_delta", "_request", "_response", "_update"]
                        .iter()
                        .any(|end| kind.ends_with(end));
                self.told.unknown += u64::from(!is_known);
                GO_ON
            }
        }
    }

    /// What the model saw, as far as the person did not see it too.
    fn response(&mut self, mut payload: Value, (outline, number): (&Outline, u64)) -> ControlFlow<()> {
        let text = |name: &str| json::field(&payload, name).unwrap_or_default().to_owned();
        match &*text("type") {
            "message" => match &*text("role") {
                "user" => {
                    let content = item::content(payload.get("content"), given);
                    if outline.has_prompt(number, &content) {
                        return GO_ON;
                    }
                    let body = self.said(content);
                    self.give(None, body)
                }
                "assistant" => {
                    let content = item::content(payload.get("content"), |text| text);
                    if outline.has_answer(number, &content) {
                        return GO_ON;
                    }
                    content.into_iter().try_for_each(|block| self.reply(None, block))
                }
                _ => GO_ON,
            },
            "agent_message" => self.peer(&payload),
            "reasoning" if !outline.has_reasoning => self.think(None, item::reasoning(&payload)),
            "function_call" | "custom_tool_call" | "local_shell_call" | "web_search_call"
            | "tool_search_call" => {
                let call = item::call(&mut payload);
                if text_is(&payload, "name", "spawn_agent") {
                    self.spawns.extend(json::field(&payload, "call_id").map(str::to_owned));
                }
                self.reply(None, call)
            }
            "function_call_output"
            | "custom_tool_call_output"
            | "local_shell_call_output"
            | "tool_search_output" => {
                let call = text("call_id");
                let (content, is_error) = item::output(&payload);
                if self.spawns.contains(&call) {
                    let child = item::spawned(&content);
                    child.map_or(GO_ON, |child| self.child(&child))?;
                }
                let body = json::tool_result(&call, content, is_error, self.last);
                self.give(None, body)
            }
            "image_generation_call" => self.reply(None, item::image(&payload)),
            "reasoning" | "compaction" | "context_compaction" | "compaction_trigger" | "ghost_snapshot"
            | "additional_tools" => GO_ON,
            _ => {
                self.told.unknown += 1;
                GO_ON
            }
        }
    }

    /// A part of a turn as newer releases write it, with an id of its own.
    fn item(&mut self, mut item: Value, outline: &Outline) -> ControlFlow<()> {
        let id = json::field(&item, "id").map(str::to_owned);
        match json::field(&item, "type").unwrap_or_default() {
            "UserMessage" => {
                let body = self.said(item::content(item.get("content"), asked));
                self.give(id, body)
            }
            "AgentMessage" => {
                let mut body = json::empty(Role::Assistant, self.last);
                body.content = item::content(item.get("content"), |text| text);
                self.give_reply(id, body)
            }
            "Plan" => {
                let plan = json::field(&item, "text").unwrap_or_default();
                // As the model writes it, and as older releases keep it: a plan is told from other words.
                let text = format!("<proposed_plan>\n{}\n</proposed_plan>", plan.trim());
                self.reply(id, json::text(if plan.is_empty() { "" } else { &text }))
            }
            "Reasoning" => self.think(id, item::reasoning(&item)),
            "ContextCompaction" if !outline.has_compactions => self.compacted(""),
            "SubAgentActivity" => self.activity(&item),
            "ImageGeneration" => self.reply(id, item::image(&item)),
            "ContextCompaction" | "HookPrompt" | "Sleep" => GO_ON,
            _ => match item::done(&mut item) {
                Some(done) => self.done(id.as_deref(), done, outline),
                None => {
                    self.told.unknown += 1;
                    GO_ON
                }
            },
        }
    }

    /// A tool call with its result, unless what the model saw has both.
    fn done(&mut self, id: Option<&str>, done: Done, outline: &Outline) -> ControlFlow<()> {
        let call = id.unwrap_or_default();
        let is_told = outline.has_call(call);
        if !is_told {
            self.reply(id.map(str::to_owned), json::tool_call(call, &done.name, done.arguments))?;
        }
        done.children.iter().try_for_each(|child| self.child(child))?;
        match done.result {
            Some((content, is_error)) if !is_told => {
                let body = json::tool_result(call, content, is_error, self.last);
                self.give(None, body)
            }
            _ => GO_ON,
        }
    }

    /// A message from another agent of the same work.
    fn peer(&mut self, payload: &Value) -> ControlFlow<()> {
        let author = json::field(payload, "author").unwrap_or_default();
        if author == self.own_path {
            return GO_ON;
        }
        let content = match payload.get("content") {
            Some(Value::String(text)) => vec![json::text(text)],
            content => item::content(content, |text| text),
        };
        let mut body = self.said(content);
        let thread = self.peers.get(author).map_or(author, String::as_str);
        let source = session_id(thread.trim_start_matches('/'));
        body.provenance = source.map(|source| Provenance::InterSession {
            source_session_key: SessionKey::chat(&Source::Codex.agent(), &source),
            source_channel: None,
            source_tool: None,
        });
        self.give(None, body)
    }

    fn activity(&mut self, payload: &Value) -> ControlFlow<()> {
        let field = |snake, camel| super::either(payload, snake, camel).and_then(Value::as_str);
        let Some(thread) = field("agent_thread_id", "agentThreadId") else { return GO_ON };
        if let Some(path) = field("agent_path", "agentPath") {
            self.peers.insert(path.to_owned(), thread.to_owned());
        }
        self.child(thread)
    }

    /// Marks where a sub-agent ran, once.
    fn child(&mut self, thread: &str) -> ControlFlow<()> {
        if !self.children.insert((thread.to_owned(), self.is_taken_back)) {
            return GO_ON;
        }
        let Some(id) = session_id(thread) else { return GO_ON };
        let body = json::sub_session(id, self.last);
        self.give(None, body)
    }

    fn compacted(&mut self, summary: &str) -> ControlFlow<()> {
        let body = json::compaction(summary, self.last);
        self.give(None, body)
    }

    fn said(&self, content: Vec<Block>) -> Body {
        Body { content, ..json::empty(Role::User, self.last) }
    }

    fn think(&mut self, id: Option<String>, text: String) -> ControlFlow<()> {
        if text.is_empty() {
            return GO_ON;
        }
        self.reply(id, Block::Thinking { text, signature: None })
    }

    /// Adds to the reply that is being put together; what has an id stands for itself.
    fn reply(&mut self, id: Option<String>, block: Block) -> ControlFlow<()> {
        if matches!(&block, Block::Text { text } if text.is_empty()) {
            return GO_ON;
        }
        if let Some(pending) = &mut self.pending
            && (&pending.id, &id, pending.is_taken_back) == (&None, &None, self.is_taken_back)
        {
            pending.body.content.push(block);
            return GO_ON;
        }
        let mut body = json::empty(Role::Assistant, self.last);
        body.content.push(block);
        self.give_reply(id, body)
    }

    fn give_reply(&mut self, id: Option<String>, mut body: Body) -> ControlFlow<()> {
        self.flush()?;
        body.model = self.model.clone();
        if !body.content.is_empty() {
            self.pending = Some(Entry { id, body, is_taken_back: self.is_taken_back });
        }
        GO_ON
    }

    /// Adds what the model counted to the reply that it counted it for.
    fn count(&mut self, usage: Option<&Value>) {
        let (Some(pending), Some(usage)) = (&mut self.pending, usage) else { return };
        let count = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or(0);
        let cache_read = count("cached_input_tokens");
        pending.body.usage = Some(Usage {
            // The cached ones are counted among the others.
            input: count("input_tokens").saturating_sub(cache_read),
            output: count("output_tokens"),
            cache_read,
            cache_write: count("cache_write_input_tokens"),
            ..Usage::default()
        });
    }

    fn give(&mut self, id: Option<String>, body: Body) -> ControlFlow<()> {
        if body.role == Role::User && body.content.is_empty() {
            return GO_ON;
        }
        self.flush()?;
        if body.role == Role::User && !self.is_taken_back && self.title.is_none() {
            self.title = body.content.iter().find_map(|block| match block {
                Block::Text { text } => titled(text),
                _ => None,
            });
        }
        (self.take)(Entry { id, body, is_taken_back: self.is_taken_back })
    }

    pub(super) fn flush(&mut self) -> ControlFlow<()> {
        mem::take(&mut self.pending).map_or(GO_ON, |entry| (self.take)(entry))
    }
}

fn text_is(value: &Value, name: &str, text: &str) -> bool {
    json::field(value, name) == Some(text)
}
