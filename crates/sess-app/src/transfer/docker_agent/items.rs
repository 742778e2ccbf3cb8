//! The items of one session, in either form, as messages of ours.
//!
//! An item is a message, a sub-session, a summary of what was compacted, or
//! something that happened. What is none of the first three becomes a system
//! message: kept, but nobody's words.

use std::{collections::VecDeque, fmt::Display};

use rusqlite::Connection;
use serde::de::{DeserializeSeed, SeqAccess, Visitor};
use serde_json::{Value, value::RawValue};
use sess_core::{
    SessionId, Source, Timestamp,
    message::{Block, Body, Role},
    session::NewSession,
};
use sess_store::{ImportedSession, NewMessage};

use super::{key_of, message, select, text, truthy};
use crate::transfer::{jsonl, made_id};

/// A session that stood inside another one's items.
pub(super) struct Nested {
    pub(super) session: NewSession,
    pub(super) created_at: Option<Timestamp>,
    pub(super) starred: bool,
    pub(super) items: Vec<Value>,
}

/// A session's messages as they are gathered.
pub(super) struct Transcript<'a> {
    session: NewSession,
    created_at: Option<Timestamp>,
    messages: Vec<NewMessage>,
    calls: message::Calls,
    warnings: &'a mut Vec<String>,
}

impl<'a> Transcript<'a> {
    pub(super) fn new(
        session: NewSession,
        created_at: Option<Timestamp>,
        warnings: &'a mut Vec<String>,
    ) -> Self {
        Self { session, created_at, messages: Vec::new(), calls: message::Calls::new(), warnings }
    }

    /// Adds the rows of `session_items`; returns how many there were.
    pub(super) fn add_rows(&mut self, connection: &Connection, columns: &[String]) -> usize {
        let mut count = 0;
        if let Err(error) = self.try_add_rows(connection, columns, &mut count) {
            self.unreadable(&format!("its items after the first {count}"), &error);
        }
        count
    }

    fn try_add_rows(
        &mut self,
        connection: &Connection,
        columns: &[String],
        count: &mut usize,
    ) -> rusqlite::Result<()> {
        let wanted = [
            "position",
            "item_type",
            "agent_name",
            "message_json",
            "implicit",
            "subsession_id",
            "summary_text",
            "model",
            "usage_json",
            "cost",
        ];
        let list = select(&wanted, columns);
        let sql = format!("SELECT {list} FROM session_items WHERE session_id = ?1 ORDER BY position, rowid");
        let mut statement = connection.prepare(&sql)?;
        let mut rows = statement.query([self.session.id.as_str()])?;
        while let Some(row) = rows.next()? {
            *count += 1;
            let position = text(row, 0).unwrap_or_default();
            let json = text(row, 3).filter(|json| !json.is_empty());
            match text(row, 1).unwrap_or_default().as_str() {
                "message" => {
                    if !truthy(row, 4) {
                        self.add_message(&position, &json.unwrap_or_default(), text(row, 2).as_deref());
                    }
                }
                // Without an id, the sub-session was deleted, and its place remained.
                "subsession" => {
                    if let Some(id) = text(row, 5).filter(|id| !id.is_empty()) {
                        self.add_sub_session(&position, &id);
                    }
                }
                "summary" => {
                    let usage = text(row, 8).and_then(|json| serde_json::from_str(&json).ok());
                    let cost = text(row, 9).and_then(|cost| cost.parse().ok());
                    let mut body =
                        self.system(Block::Compaction { summary: text(row, 6).unwrap_or_default() });
                    body.model = text(row, 7).filter(|model| !model.is_empty());
                    body.usage = message::usage(usage.as_ref(), cost);
                    self.push(body);
                }
                kind => self.add_happening(&position, kind, json.as_deref()),
            }
        }
        Ok(())
    }

    /// Adds the items that the column `sessions.messages` holds.
    pub(super) fn add_column(&mut self, connection: &Connection, rowid: i64, nested: &mut VecDeque<Nested>) {
        let column = connection.query_row("SELECT messages FROM sessions WHERE rowid = ?1", [rowid], |row| {
            Ok(text(row, 0).unwrap_or_default())
        });
        let json = match column {
            Ok(json) => json,
            Err(error) => return self.unreadable("its messages", &error),
        };
        if matches!(json.trim(), "" | "null") {
            return;
        }
        // What stands before the damage in a damaged array is still good, and
        // each element is parsed on its own: a bad one costs itself.
        let mut items: Vec<Box<RawValue>> = Vec::new();
        let read = Elements(&mut items).deserialize(&mut serde_json::Deserializer::from_str(&json));
        for (position, item) in items.iter().enumerate() {
            match serde_json::from_str(item.get()) {
                Ok(item) => self.add_json(position, &item, nested),
                Err(error) => self.unreadable(&format!("item {position}"), &error),
            }
        }
        if let Err(error) = read {
            self.unreadable(&format!("its items after the first {}", items.len()), &error);
        }
    }

    /// Adds an item in its JSON form.
    pub(super) fn add_json(&mut self, position: usize, item: &Value, nested: &mut VecDeque<Nested>) {
        let message = &item["message"];
        let name = format!("item {position}");
        if item["sub_session"].is_object() {
            self.add_nested(position, &item["sub_session"], nested);
        } else if message["message"].is_object() {
            if message["implicit"].as_bool() != Some(true) {
                let agent = message["agentName"].as_str().or(message["agent_name"].as_str());
                self.add_chat(&name, &message["message"], agent);
            }
        } else if message.is_object() {
            // Before there were items, an element was the message itself.
            if item["implicit"].as_bool() != Some(true) {
                self.add_chat(&name, message, item["agentName"].as_str());
            }
        } else if let Some(summary) = item["summary"].as_str().filter(|text| !text.is_empty()) {
            let mut body = self.system(Block::Compaction { summary: summary.to_owned() });
            body.model = item["model"].as_str().filter(|model| !model.is_empty()).map(str::to_owned);
            body.usage = message::usage(item.get("usage"), item["cost"].as_f64());
            self.push(body);
        } else if item["role"].is_string() {
            self.add_chat(&name, item, None);
        } else if item["error"].is_object() {
            let error = item["error"].to_string();
            self.add_happening(&position.to_string(), "error", Some(&error));
        } else {
            self.unreadable(&name, &"it is no message, sub-session or summary");
        }
    }

    pub(super) fn finish(mut self, starred: bool) -> ImportedSession {
        if self.created_at.is_none() {
            let first = self.messages.iter().map(|message| message.body.timestamp);
            let first = first.filter(|at| *at != Timestamp::default()).min();
            self.session.created_at = first.unwrap_or_default();
            let id = &self.session.id;
            self.warnings.push(format!(
                "session {id} does not say when it was made: taken for {}",
                self.session.created_at
            ));
        }
        ImportedSession { session: self.session, starred, messages: self.messages }
    }

    fn add_message(&mut self, position: &str, json: &str, agent: Option<&str>) {
        let name = format!("item {position}");
        if json.len() > jsonl::LINE_SIZE_BYTES_MAX {
            let reason = format!("it is longer than {} bytes", jsonl::LINE_SIZE_BYTES_MAX);
            return self.unreadable(&name, &reason);
        }
        match serde_json::from_str::<Value>(json) {
            Ok(chat) => self.add_chat(&name, &chat, agent),
            Err(error) => self.unreadable(&name, &error),
        }
    }

    fn add_chat(&mut self, name: &str, chat: &Value, agent: Option<&str>) {
        let before = self.last_at();
        match message::body(chat, agent, &mut self.calls, before) {
            Ok(body) => self.push(body),
            Err(reason) => self.unreadable(name, &reason),
        }
    }

    fn add_sub_session(&mut self, position: &str, id: &str) {
        match id.parse::<SessionId>() {
            Ok(session_id) => {
                let body = self.system(Block::SubSession { session_id });
                self.push(body);
            }
            Err(error) => self.unreadable(&format!("item {position}"), &error),
        }
    }

    fn add_nested(&mut self, position: usize, child: &Value, nested: &mut VecDeque<Nested>) {
        let id = match child["id"].as_str() {
            Some(id) if !id.is_empty() => id.to_owned(),
            // The place in the parent makes an id that the next import finds again.
            Some(_) | None => format!("{}.{position}", self.session.id),
        };
        let Ok(session_id) = id.parse::<SessionId>() else {
            let reason = format!("the id \"{id}\" of its sub-session is not allowed here");
            return self.unreadable(&format!("item {position}"), &reason);
        };
        let body = self.system(Block::SubSession { session_id: session_id.clone() });
        self.push(body);
        let created_at = child["created_at"].as_str().and_then(message::instant);
        let text = |name: &str| child[name].as_str().filter(|text| !text.is_empty());
        let session = NewSession {
            title: text("title").unwrap_or_default().to_owned(),
            cwd: text("working_dir").map(str::to_owned),
            parent: key_of(self.session.id.as_str()),
            ..NewSession::chat(session_id, Source::DockerAgent, created_at.unwrap_or_default())
        };
        let starred = child["starred"].as_bool() == Some(true);
        let items = child["messages"].as_array().cloned().unwrap_or_default();
        nested.push_back(Nested { session, created_at, starred, items });
    }

    /// Adds something that is no message: an error, say, or what only a later version knows.
    fn add_happening(&mut self, position: &str, kind: &str, json: Option<&str>) {
        if !matches!(kind, "error" | "termination") {
            let id = &self.session.id;
            self.warnings.push(format!(
                "session {id}: item {position} is of the unknown type \"{kind}\", and became a note"
            ));
        }
        let value = json.and_then(|json| serde_json::from_str::<Value>(json).ok());
        let told = value.as_ref().and_then(|value| {
            let fields = ["message", "error", "reason", "text"];
            value.as_str().or_else(|| fields.iter().find_map(|name| value.get(name)?.as_str()))
        });
        let note = match told.or(json) {
            Some(told) => format!("{kind}: {told}"),
            None => kind.to_owned(),
        };
        let body = self.system(Block::Text { text: note });
        self.push(body);
    }

    /// Leaves a note where something was, and tells the caller.
    fn unreadable(&mut self, what: &str, reason: &dyn Display) {
        self.warnings.push(format!("session {}: {what} cannot be read: {reason}", self.session.id));
        let body = self.system(Block::Text { text: format!("{what} cannot be read: {reason}") });
        self.push(body);
    }

    fn system(&self, block: Block) -> Body {
        let mut body = Body::text(Role::System, "", self.last_at());
        body.content = vec![block];
        body
    }

    fn push(&mut self, body: Body) {
        let seq = self.messages.len() as u64 + 1;
        let id = made_id(&self.session.id, seq, &body);
        self.messages.push(NewMessage { id, body });
    }

    fn last_at(&self) -> Timestamp {
        self.messages.last().map_or(self.session.created_at, |message| message.body.timestamp)
    }
}

/// Gathers the elements of an array up to where it cannot be read on.
struct Elements<'a>(&'a mut Vec<Box<RawValue>>);

impl<'de> DeserializeSeed<'de> for Elements<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        input.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Elements<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an array of items")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        while let Some(element) = elements.next_element()? {
            self.0.push(element);
        }
        Ok(())
    }
}
