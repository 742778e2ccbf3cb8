//! Messages between sessions: send, wait, and the inbox of sessions that we do not run.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use sess_core::{
    RunId,
    run::{Delivery, Run},
    session::{Sending, Session},
};

use crate::{App, Caller, Result};

/// How long a sender waits for a reply when it does not say.
pub const WAIT_SECONDS: u64 = 30;
/// The longest that a sender waits.
pub const WAIT_SECONDS_MAX: u64 = 600;

#[derive(Clone, Debug, Default)]
pub struct SendMessage {
    /// A key or an id.
    pub to: String,
    pub message: String,
    /// 0 waits for nothing; [`WAIT_SECONDS`], or less for an impatient host, when not given.
    pub timeout_seconds: Option<u64>,
    pub idempotency_key: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SendAnswer {
    pub run_id: String,
    /// `accepted`, `ok`, `timeout` or `error`.
    pub status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub session_key: String,
    /// `queued`, `delivered` or `replied`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub delivery: Option<Delivery>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Inbox {
    pub messages: Vec<InboxMessage>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InboxMessage {
    pub run_id: String,
    /// The key of the session that sent it; `owner` for the person.
    pub from: String,
    pub message: String,
    /// Milliseconds.
    pub received_at: i64,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Replied {
    pub run_id: String,
    pub status: &'static str,
    #[schemars(with = "String")]
    pub delivery: Delivery,
}

impl App {
    /// Sends a message into another session, and waits for its reply as long as is asked for.
    pub async fn send(&self, _caller: &Caller, _ask: SendMessage) -> Result<SendAnswer> {
        todo!()
    }

    /// Waits until a run has ended, at most `timeout`; returns it as it stands then.
    pub async fn wait_for(&self, _caller: &Caller, _run: &RunId, _timeout: Option<Duration>) -> Result<Run> {
        todo!()
    }

    /// Asks a run to stop.
    pub async fn cancel(&self, _caller: &Caller, _run: &RunId) -> Result<Run> {
        todo!()
    }

    /// Returns what was sent to the calling session and is not answered yet.
    pub async fn inbox(&self, _caller: &Caller, _limit: Option<i64>) -> Result<Inbox> {
        todo!()
    }

    /// Answers a message of the inbox, once.
    pub async fn reply(&self, _caller: &Caller, _run: &str, _message: &str) -> Result<Replied> {
        todo!()
    }

    /// `/send on|off|inherit`: the owner's own word about sending in a session.
    pub async fn set_send_policy(
        &self,
        _caller: &Caller,
        _session: &Session,
        _policy: Option<Sending>,
    ) -> Result<Session> {
        todo!()
    }
}
