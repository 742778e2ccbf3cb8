//! Work sessions of the repository that the gateway was started in.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `GET /work`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkBoard {
    /// The top of the repository; absent when the gateway was not started in one that has work sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// The branch that work lands on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// The remote could not be asked: this is what it said last.
    pub is_old: bool,
    pub sessions: Vec<WorkRow>,
}

/// The state of a work session, in the order of its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WorkState {
    Drafting,
    Planned,
    Active,
    Completed,
    Abandoned,
}

/// A work session in a list.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkRow {
    pub slug: String,
    pub state: WorkState,
    pub title: String,
    /// It can be claimed now.
    pub ready: bool,
    /// What it depends on and is not completed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<WorkHolder>,
    /// What is half done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The last line of its worklog.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_log: Option<String>,
}

/// Who has a work session.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkHolder {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The key of the agent's session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    pub host: String,
    /// RFC 3339.
    pub since: String,
    pub until: String,
    /// Its lease has lapsed.
    pub stale: bool,
    /// The work is done and waits to be merged by others; until then its lease does not lapse.
    pub waits: bool,
    pub attempt: u32,
}

/// `GET /work/{slug}`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkSession {
    #[serde(flatten)]
    pub row: WorkRow,
    /// SESSION.md.
    pub plan: String,
    pub criteria: Vec<WorkCriterion>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worklog: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Keys of the agents' sessions that worked on it, newest first.
    pub sessions: Vec<String>,
    /// Who had it, newest first.
    pub history: Vec<WorkPast>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct WorkCriterion {
    pub text: String,
    pub done: bool,
}

/// One record of who had it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkPast {
    /// RFC 3339.
    pub at: String,
    /// `active`, `landing`, `released`, `completed` or `abandoned`.
    pub phase: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
