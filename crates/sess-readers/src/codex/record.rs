//! The records of a rollout, as far as they are of interest.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use sess_core::Timestamp;

use super::titled;
use crate::{Foreign, json, session::session_id};

#[derive(Deserialize)]
pub(super) struct Line<'a> {
    timestamp: Option<Cow<'a, str>>,
    #[serde(default)]
    pub ordinal: Option<u64>,
    #[serde(rename = "type", borrow)]
    pub kind: Cow<'a, str>,
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
}

/// What tells one payload from another.
#[derive(Deserialize)]
pub(super) struct Gist<'a> {
    #[serde(rename = "type", borrow, default)]
    pub kind: Cow<'a, str>,
    pub call_id: Option<String>,
    pub id: Option<String>,
    pub num_turns: Option<u64>,
    #[serde(borrow)]
    pub item: Option<ItemGist<'a>>,
}

#[derive(Deserialize)]
pub(super) struct ItemGist<'a> {
    #[serde(rename = "type", borrow, default)]
    pub kind: Cow<'a, str>,
}

impl Line<'_> {
    pub(super) fn at(&self) -> Option<Timestamp> {
        self.timestamp.as_deref().and_then(Timestamp::parse_rfc3339)
    }

    pub(super) fn payload(&self) -> Option<Value> {
        serde_json::from_str(self.payload?.get()).ok()
    }

    pub(super) fn gist(&self) -> Option<Gist<'_>> {
        serde_json::from_str(self.payload?.get()).ok()
    }

    pub(super) fn meta(&self) -> Option<Meta> {
        let is_meta = self.kind == "session_meta";
        is_meta.then(|| serde_json::from_str(self.payload?.get()).ok()).flatten()
    }
}

/// What a rollout says of itself.
#[derive(Default, Deserialize)]
pub(super) struct Meta {
    #[serde(default)]
    id: String,
    timestamp: Option<String>,
    cwd: Option<String>,
    parent_thread_id: Option<String>,
    #[serde(default)]
    source: Value,
    agent_nickname: Option<String>,
    agent_role: Option<String>,
    agent_path: Option<String>,
    #[serde(default)]
    git: Value,
    /// The thread begins in another rollout.
    pub history_base: Option<HistoryBase>,
    /// What comes before is the parent's.
    pub subagent_history_start_ordinal: Option<u64>,
}

#[derive(Deserialize)]
pub(super) struct HistoryBase {
    /// The id of a rollout, whatever the name says.
    pub thread_id: String,
    pub end_ordinal_exclusive: u64,
}

impl Meta {
    pub(super) fn is_of(&self, thread: &str) -> bool {
        self.id == thread
    }

    pub(super) fn describe(self, session: &mut Foreign) {
        session.parent = self.parent().and_then(session_id).filter(|parent| *parent != session.id);
        session.name = self.name();
        session.branch = json::field(&self.git, "branch").map(str::to_owned);
        session.created_at = self.timestamp.as_deref().and_then(Timestamp::parse_rfc3339);
        session.cwd = self.cwd;
    }

    pub(super) fn parent(&self) -> Option<&str> {
        self.parent_thread_id.as_deref().or_else(|| json::field(self.spawn(), "parent_thread_id"))
    }

    /// Where this agent stands among those that work together, such as `/root/scout`.
    pub(super) fn agent_path(&self) -> Option<&str> {
        self.agent_path.as_deref().or_else(|| json::field(self.spawn(), "agent_path"))
    }

    fn name(&self) -> Option<String> {
        let own = [&self.agent_nickname, &self.agent_role].into_iter().flatten().next().map(String::as_str);
        let spawned = || json::field(self.spawn(), "agent_nickname");
        // Reviews and the like are sub-agents that nobody named.
        let kind = || self.source.get("subagent").and_then(Value::as_str);
        own.or_else(spawned).or_else(kind).map(str::to_owned)
    }

    fn spawn(&self) -> &Value {
        self.source.pointer("/subagent/thread_spawn").unwrap_or(&Value::Null)
    }
}

/// Tells whether somebody says something in a record.
pub(super) fn speaks(line: &Line<'_>) -> bool {
    let Some(gist) = line.gist() else { return false };
    match (&*line.kind, &*gist.kind) {
        ("event_msg", "user_message" | "agent_message" | "item_completed") => true,
        ("inter_agent_communication", _) => true,
        ("response_item", "message") => {
            let payload = line.payload().unwrap_or_default();
            json::field(&payload, "role") == Some("assistant") || opening(line).is_some()
        }
        ("response_item", kind) => kind.ends_with("_call"),
        _ => false,
    }
}

/// Returns the title that a record makes when it is the first prompt.
pub(super) fn opening(line: &Line<'_>) -> Option<String> {
    // Most records are none: they need not be parsed.
    if !matches!(&*line.kind, "event_msg" | "response_item" | "inter_agent_communication") {
        return None;
    }
    let gist = line.gist()?;
    match (&*line.kind, &*gist.kind) {
        ("event_msg", "user_message") => titled(json::field(&line.payload()?, "message")?),
        ("event_msg", "item_completed") if gist.item?.kind == "UserMessage" => {
            line.payload()?.pointer("/item/content")?.as_array()?.iter().find_map(part_title)
        }
        ("inter_agent_communication", _) => titled(json::field(&line.payload()?, "content")?),
        ("response_item", "message") => {
            let payload = line.payload()?;
            let is_user = json::field(&payload, "role") == Some("user");
            is_user.then(|| payload.get("content")?.as_array()?.iter().find_map(part_title)).flatten()
        }
        _ => None,
    }
}

fn part_title(part: &Value) -> Option<String> {
    titled(json::field(part, "text")?)
}
