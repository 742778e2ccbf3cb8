//! The records of a rollout, as far as they are of interest.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use sess_core::Timestamp;

use super::{given, titled};
use crate::{Foreign, json, lenient, session::session_id};

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Line<'a> {
    #[serde(rename = "timestamp", deserialize_with = "lenient::instant")]
    pub at: Option<Timestamp>,
    #[serde(deserialize_with = "lenient::count")]
    pub ordinal: Option<u64>,
    #[serde(rename = "type", borrow)]
    pub kind: Cow<'a, str>,
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
    /// It stands there without anything around it, as the first releases wrote records.
    #[serde(skip)]
    pub is_bare: bool,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    record_type: Option<&'a RawValue>,
}

/// What the model saw, as the first releases wrote it.
const BARE: [&str; 6] = [
    "message",
    "reasoning",
    "function_call",
    "function_call_output",
    "local_shell_call",
    "local_shell_call_output",
];

/// Tells whether records of a kind carry something that a transcript may show.
pub(super) fn has_payload(kind: &str) -> bool {
    matches!(kind, "event_msg" | "response_item" | "turn_context" | "compacted" | "inter_agent_communication")
}

/// What tells one payload from another.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Gist<'a> {
    #[serde(rename = "type", borrow)]
    pub kind: Cow<'a, str>,
    #[serde(deserialize_with = "lenient::text")]
    pub call_id: Option<String>,
    #[serde(deserialize_with = "lenient::text")]
    pub id: Option<String>,
    #[serde(deserialize_with = "lenient::count")]
    pub num_turns: Option<u64>,
    #[serde(deserialize_with = "lenient::text")]
    pub role: Option<String>,
    #[serde(borrow)]
    pub item: Option<ItemGist<'a>>,
}

#[derive(Deserialize)]
pub(super) struct ItemGist<'a> {
    #[serde(rename = "type", borrow, default)]
    pub kind: Cow<'a, str>,
}

impl<'a> Line<'a> {
    /// Reads a record. Those of spring 2025 have nothing around them: a header, then what the model saw, and in between
    /// what Codex kept for itself.
    pub(super) fn read(text: &'a [u8]) -> serde_json::Result<Self> {
        let mut line: Self = serde_json::from_slice(text)?;
        if line.payload.is_some() {
            return Ok(line);
        }
        let kind = match &*line.kind {
            "" if line.record_type.is_some() => "state",
            "" if line.id.is_some() && line.at.is_some() => "session_meta",
            kind if BARE.contains(&kind) => "response_item",
            _ => return Ok(line),
        };
        line.payload = Some(serde_json::from_slice(text)?);
        (line.kind, line.is_bare) = (Cow::Borrowed(kind), true);
        Ok(line)
    }
}

impl Line<'_> {
    /// Tells whether it says what it is; those that are known here say it of their payload, too.
    pub(super) fn is_of_a_kind(&self) -> bool {
        match &*self.kind {
            "" => self.payload.is_none(),
            "event_msg" | "response_item" => self.gist().is_some_and(|gist| !gist.kind.is_empty()),
            kind => kind != "session_meta" && !has_payload(kind) || self.gist().is_some(),
        }
    }

    pub(super) fn payload(&self) -> Option<Value> {
        json::from_str(self.payload?.get()).ok()
    }

    pub(super) fn gist(&self) -> Option<Gist<'_>> {
        let payload = self.payload?.get();
        serde_json::from_str(payload).ok().filter(|_| payload.starts_with('{'))
    }

    pub(super) fn meta(&self) -> Option<Meta> {
        if self.kind == "session_meta" { self.payload().map(Meta) } else { None }
    }
}

/// What a rollout says of itself. Each field counts for itself: one that a newer release
/// writes in another way must not cost the others.
#[derive(Default)]
pub(super) struct Meta(Value);

/// Where a thread begins when it does not begin in its own rollout.
pub(super) struct HistoryBase {
    pub rollout: String,
    /// What belongs to the thread there ends before this.
    pub end: u64,
}

impl Meta {
    pub(super) fn is_of(&self, thread: &str) -> bool {
        self.field("id") == Some(thread)
    }

    pub(super) fn describe(&self, session: &mut Foreign) {
        session.parent = self.parent().and_then(session_id).filter(|parent| *parent != session.id);
        session.name = self.name();
        session.branch = self.0.pointer("/git/branch").and_then(Value::as_str).map(str::to_owned);
        session.created_at = self.0.get("timestamp").and_then(json::instant);
        session.cwd = self.field("cwd").map(str::to_owned);
    }

    pub(super) fn parent(&self) -> Option<&str> {
        self.field("parent_thread_id").or_else(|| self.spawn("parent_thread_id"))
    }

    /// Where this agent stands among those that work together, such as `/root/scout`.
    pub(super) fn agent_path(&self) -> Option<&str> {
        self.field("agent_path").or_else(|| self.spawn("agent_path"))
    }

    pub(super) fn history_base(&self) -> Option<HistoryBase> {
        let base = self.0.get("history_base")?;
        // The id of a rollout, whatever the name says.
        let rollout = json::field(base, "thread_id")?.to_owned();
        Some(HistoryBase { rollout, end: base.get("end_ordinal_exclusive")?.as_u64()? })
    }

    /// Where a sub-agent's own history begins; what comes before is its parent's.
    pub(super) fn own_from(&self) -> u64 {
        self.0.get("subagent_history_start_ordinal").and_then(Value::as_u64).unwrap_or(0)
    }

    fn name(&self) -> Option<String> {
        let own = self.field("agent_nickname").or_else(|| self.field("agent_role"));
        let spawned = || self.spawn("agent_nickname").or_else(|| self.spawn("agent_role"));
        // Reviews and the like are sub-agents that nobody named.
        let kind = || self.0.pointer("/source/subagent").and_then(Value::as_str);
        own.or_else(spawned).or_else(kind).map(str::to_owned)
    }

    fn field(&self, name: &str) -> Option<&str> {
        json::field(&self.0, name)
    }

    fn spawn(&self, name: &str) -> Option<&str> {
        json::field(self.0.pointer("/source/subagent/thread_spawn")?, name)
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

/// What a record is to the turns of a thread.
pub(super) enum Turn {
    Begins,
    /// So many were taken back.
    RolledBack(u64),
}

/// Tells what a record is to the turns of its thread.
pub(super) fn turn(line: &Line<'_>, gist: &Gist<'_>) -> Option<Turn> {
    match (&*line.kind, &*gist.kind) {
        ("event_msg", "user_message") | ("inter_agent_communication", _) => Some(Turn::Begins),
        ("event_msg", "item_completed") if gist.item.as_ref()?.kind == "UserMessage" => Some(Turn::Begins),
        ("event_msg", "thread_rolled_back") => Some(Turn::RolledBack(gist.num_turns.unwrap_or(0))),
        _ => None,
    }
}

/// What a record is to what lies between two prompts, by who saw it.
pub(super) enum Part {
    /// Codex began to work, or took turns back: what comes is another turn.
    Start,
    /// The person saw it.
    Prompt,
    Answer,
    /// The model saw it, as asked by the person.
    Asked,
    /// It is the model's own.
    Made,
}

/// Tells what a record is to what lies between two prompts.
pub(super) fn part(line: &Line<'_>, gist: &Gist<'_>) -> Option<Part> {
    let item = gist.item.as_ref().map_or("", |item| &*item.kind);
    match (&*line.kind, &*gist.kind, gist.role.as_deref()) {
        ("event_msg", "task_started" | "turn_started" | "thread_rolled_back", _) => Some(Part::Start),
        ("event_msg", "user_message", _) => Some(Part::Prompt),
        ("event_msg", "agent_message", _) => Some(Part::Answer),
        ("event_msg", "item_completed", _) => match item {
            "UserMessage" => Some(Part::Prompt),
            // The model writes a plan as a part of its answer.
            "AgentMessage" | "Plan" => Some(Part::Answer),
            _ => None,
        },
        ("response_item", "message", Some("user")) => Some(Part::Asked),
        ("response_item", "message", Some("assistant")) => Some(Part::Made),
        ("response_item", kind, _) if kind.ends_with("_call") => Some(Part::Made),
        _ => None,
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
            let title = |part: &Value| titled(given(json::field(part, "text")?));
            is_user.then(|| payload.get("content")?.as_array()?.iter().find_map(title)).flatten()
        }
        _ => None,
    }
}

fn part_title(part: &Value) -> Option<String> {
    titled(json::field(part, "text")?)
}
