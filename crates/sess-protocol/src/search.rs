//! Messages that were searched for, in sessions of all agents.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{messages::Role, sessions::SessionScope};

/// `GET /search`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SearchQuery {
    /// Words, `"phrases"`, `beginnings*`, and `-words` that must be absent; at most 1,000 bytes.
    pub q: String,
    /// `1` takes `q` for a regular expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regex: Option<u8>,
    /// Only sessions that come from these: `native` for those of the store, else the names of agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Vec<String>>,
    /// `repo` leaves only sessions of the repository that the gateway was started in; `all` when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<SessionScope>,
    /// How many: 1 to 100, 20 when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The `nextCursor` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// What was found, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SearchPage {
    pub hits: Vec<SearchHit>,
    /// Leads to older ones; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// A message that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SearchHit {
    pub session_key: String,
    pub session_id: String,
    /// Where the session comes from: `native`, or the agent whose own session it is.
    pub source: String,
    /// May be empty.
    pub title: String,
    pub message_id: String,
    /// Its place in the transcript, as pages of it count, and `sess search` and `sess read --around` too.
    pub seq: u64,
    pub role: Role,
    /// Milliseconds since 1970.
    pub timestamp: i64,
    /// What stands around the words, on one line.
    pub snippet: String,
}
