//! Events, over the WebSocket and `GET /events`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    messages::{Message, Usage},
    sessions::Row,
};

/// `session.message`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionMessage {
    pub session_key: String,
    pub session_id: String,
    pub message: Message,
    pub message_seq: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// `sessions.changed`: `session` is its row, unless it is gone.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionsChanged {
    pub session_key: String,
    pub session_id: String,
    pub phase: Phase,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Row>,
}

/// What became of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Created,
    Message,
    RunStart,
    RunEnd,
    Patched,
    Reset,
    Deleted,
    Archived,
}

/// `session_plan_updated` and `session_plan_state`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanEvent {
    pub session_key: String,
    pub session_id: String,
    pub revision: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// `run.delta`: text while a model streams. Not stored; may be left out under load.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunDelta {
    pub run_id: String,
    pub session_key: String,
    pub text: String,
}

/// `lagged`: events were left out; ask again for what you show.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Lagged {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
}

/// `GET /events`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EventsQuery {
    /// How many are looked at: 1 to 1,000, 100 when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The `nextCursor` of the page before; a page without it begins with the oldest event, a stream with what
    /// happens from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// `1` goes on as a stream of events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follow: Option<u8>,
}

/// Events, oldest first; each has a `type` and a `session_id`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventsPage {
    pub events: Vec<Map<String, Value>>,
    /// Leads to what comes after these.
    pub next_cursor: String,
}

/// `tick`: the gateway is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tick {
    /// Milliseconds.
    pub at: i64,
}
