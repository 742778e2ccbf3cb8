//! `sessions_list`: the sessions that a caller reaches, as rows.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::{App, Caller, Result};

/// Which rows to list.
#[derive(Clone, Debug, Default)]
pub struct ListRows {
    pub kinds: Vec<String>,
    pub limit: Option<i64>,
    pub active_minutes: Option<f64>,
    pub message_limit: Option<i64>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rows {
    pub count: usize,
    /// How many there are; at least so many when `totalIsMinimum`.
    pub total: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub total_is_minimum: bool,
    pub sessions: Vec<Row>,
}

/// One session. What is not known is absent.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    pub key: String,
    pub kind: String,
    pub channel: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// Milliseconds.
    pub updated_at: i64,
    pub session_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Tokens that the newest model call took in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u64>,
    /// Tokens of all its runs and those of the sessions below it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_tokens: Option<u64>,
    /// What they cost, when a price is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_cost: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking_level: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verbose_level: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_sent: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aborted_last_run: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_channel: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_context: Option<DeliveryContext>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transcript_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spawned_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// `running`, `queued` or `idle`; `waiting` for a session with unanswered messages in its inbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    pub created_at: i64,
    /// The last messages, without tool results.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<Vec<Value>>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeliveryContext {
    pub channel: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account_id: Option<String>,
}

impl App {
    /// Lists the sessions that this caller reaches, most recent activity first.
    pub async fn session_rows(&self, _caller: &Caller, _ask: &ListRows) -> Result<Rows> {
        todo!()
    }
}
