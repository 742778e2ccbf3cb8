//! Events as clients get them. What is the same for all of them is made once.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sess_app::{App, Caller, What};
use sess_core::{SessionId, SessionKey};
use sess_protocol::events::{Lagged, Phase, PlanEvent, RunDelta, SessionsChanged};

use super::super::hub::{Fanned, News, Told};

/// The names of all events.
pub(super) const EVENTS: [&str; 8] = [
    "session.message",
    "sessions.changed",
    "session_plan_updated",
    "session_plan_state",
    "run.delta",
    "agent",
    "tick",
    "lagged",
];

/// An event without its number, which each connection counts for itself.
#[derive(Clone, Debug)]
pub(in super::super) struct Event {
    name: &'static str,
    payload: Arc<str>,
}

impl Event {
    pub(super) fn new(name: &'static str, payload: &impl Serialize) -> Self {
        Self { name, payload: json(payload) }
    }

    pub(super) fn lagged(session_key: Option<String>) -> Self {
        Self::new("lagged", &Lagged { session_key })
    }

    /// Returns the frame in which it is sent.
    pub(super) fn frame(&self, seq: u64) -> String {
        let Self { name, payload } = self;
        format!(r#"{{"type":"event","event":"{name}","payload":{payload},"seq":{seq}}}"#)
    }
}

fn json(payload: &impl Serialize) -> Arc<str> {
    serde_json::to_string(payload).expect("texts are JSON").into()
}

/// `session.message`, with the message copied through.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SessionMessage<'a> {
    session_key: &'a str,
    session_id: &'a str,
    message: &'a RawValue,
    message_seq: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<&'a RawValue>,
}

/// What is looked at in a message.
#[derive(Deserialize)]
struct Used<'a> {
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
}

/// Returns a key as it is shown; as it is, when the configuration cannot be read.
fn shown(app: &App, key: &SessionKey) -> String {
    app.shown_key(key).unwrap_or_else(|_| key.to_string())
}

/// Returns the event of a message.
pub(super) fn message(app: &App, key: &SessionKey, session: &SessionId, message: &Fanned) -> Event {
    let payload = message.frame.get_or_init(|| {
        let used: Option<Used<'_>> = serde_json::from_str(message.json.get()).ok();
        json(&SessionMessage {
            session_key: &shown(app, key),
            session_id: session.as_str(),
            message: &message.json,
            message_seq: message.seq,
            usage: used.and_then(|used| used.usage),
        })
    });
    Event { name: "session.message", payload: Arc::clone(payload) }
}

/// Returns `sessions.changed` about something that happened; nothing when the session cannot be told of.
pub(super) async fn changed(app: &App, caller: &Caller, told: &Told) -> Option<Event> {
    let phase = phase(&told.news)?;
    if phase == Phase::Created && app.is_started_over(&told.session, &told.key).await.unwrap_or(false) {
        // It is told as a reset.
        return None;
    }
    let make = async || {
        let row = match phase {
            Phase::Deleted => None,
            _ => match app.session_row(caller, told.session.as_str(), 0).await {
                Ok(row) => Some(row),
                Err(error) => {
                    // It may be gone by now, and then its end is told next.
                    tracing::debug!(%error, session = %told.session, "a changed session has no row");
                    None
                }
            },
        };
        json(&SessionsChanged {
            session_key: shown(app, &told.key),
            session_id: told.session.to_string(),
            phase,
            session: row,
        })
    };
    // All who act for the owner see the same row.
    let payload = match caller.standing {
        sess_core::policy::Standing::Owner => told.changed.get_or_init(make).await.clone(),
        sess_core::policy::Standing::Agent => make().await,
    };
    Some(Event { name: "sessions.changed", payload })
}

fn phase(news: &News) -> Option<Phase> {
    Some(match news {
        News::Message(_) => Phase::Message,
        News::Delta { .. } => return None,
        News::Other(what) => match what {
            What::Created { .. } => Phase::Created,
            What::Changed(change) if change == "archived" => Phase::Archived,
            What::Changed(change) if change == "reset" => Phase::Reset,
            // Where it was talked to last is nothing that somebody changed.
            What::Changed(change) if change == "delivery" => return None,
            What::Changed(_) => Phase::Patched,
            What::Run { state, .. } if state.has_ended() => Phase::RunEnd,
            What::Run { state: sess_core::run::RunState::Running, .. } => Phase::RunStart,
            // It waits, and nothing begins yet.
            What::Run { .. } => return None,
            What::Deleted { .. } => Phase::Deleted,
            What::PlanUpdated { .. } | What::PlanState { .. } | What::Message(_) | What::Damaged => {
                return None;
            }
        },
    })
}

/// Returns what else is to be told, besides messages and changed sessions.
pub(super) fn other(app: &App, told: &Told) -> Option<Event> {
    told.other.get_or_init(|| make_other(app, told)).clone()
}

fn make_other(app: &App, told: &Told) -> Option<Event> {
    let plan = |revision: u64, state: Option<String>, note: Option<String>| {
        let (session_key, session_id) = (shown(app, &told.key), told.session.to_string());
        PlanEvent { session_key, session_id, revision, state, note }
    };
    match &told.news {
        News::Delta { run, text } => {
            let (run_id, session_key) = (run.to_string(), shown(app, &told.key));
            Some(Event::new("run.delta", &RunDelta { run_id, session_key, text: text.clone() }))
        }
        News::Other(What::PlanUpdated { revision }) => {
            Some(Event::new("session_plan_updated", &plan(*revision, None, None)))
        }
        News::Other(What::PlanState { revision, state, note }) => {
            let plan = plan(*revision, Some(state.clone()), note.clone());
            Some(Event::new("session_plan_state", &plan))
        }
        News::Message(_) | News::Other(_) => None,
    }
}
