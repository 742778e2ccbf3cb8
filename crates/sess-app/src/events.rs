//! Events: what happened in the store, in order, for programs that follow along.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::{Map, Value, json};
use sess_core::{
    SessionId,
    policy::{Scope, Standing},
    redact::redact_json,
};
use sess_store::{FeedItem, Happening, Position};
use tokio::sync::watch;

use crate::{App, Caller, Redaction, Result, context};

/// One event, with the place to go on from.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    /// Give this back to get what came after.
    pub cursor: u64,
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

/// Which events to read.
#[derive(Clone, Debug, Default)]
pub struct ReadEvents {
    /// Only what came after this cursor.
    pub after: u64,
    /// How many to look at.
    pub limit: usize,
    /// Only this session's.
    pub only: Option<SessionId>,
    pub redaction: Redaction,
}

/// The events that the caller may see, and where to go on.
#[derive(Clone, Debug, Default)]
pub struct EventPage {
    pub events: Vec<Event>,
    /// The last one that was looked at; the one asked for, at the end.
    pub cursor: u64,
}

impl App {
    /// Returns events after a cursor, in the order they were committed.
    pub async fn events(&self, caller: &Caller, ask: &ReadEvents) -> Result<EventPage> {
        let mut page = EventPage { events: Vec::new(), cursor: ask.after };
        if !self.has_store() {
            return Ok(page);
        }
        self.news_is_out().await;
        let redaction = context::allowed(caller, ask.redaction);
        let scope = self.visible(caller).await?;
        let mut seen = HashMap::new();
        for item in self.store()?.feed(Position(ask.after), ask.limit).await? {
            page.cursor = item.position.0;
            if ask.only.as_ref().is_some_and(|only| *only != item.session) {
                continue;
            }
            let is_visible = match seen.get(&item.session) {
                Some(is_visible) => *is_visible,
                None => self.may_follow(caller, &scope, &item.session).await?,
            };
            seen.insert(item.session.clone(), is_visible);
            if is_visible {
                page.events.push(event(item, redaction));
            }
        }
        Ok(page)
    }

    /// Tells whether a session's events are for this caller: its own are, and those it may read.
    async fn may_follow(&self, caller: &Caller, scope: &Scope, id: &SessionId) -> Result<bool> {
        if *scope == Scope::All && caller.standing == Standing::Owner {
            return Ok(true);
        }
        let Some(session) = self.stored_session(id).await? else { return Ok(false) };
        if caller.standing == Standing::Owner {
            return self.is_inside(scope, &session).await;
        }
        Ok(self.named_session(caller).await?.id == *id || self.is_inside(scope, &session).await?)
    }

    /// Returns the cursor of the newest event.
    pub async fn events_head(&self) -> Result<u64> {
        if !self.has_store() {
            return Ok(0);
        }
        self.news_is_out().await;
        Ok(self.store()?.head().await?.0)
    }

    /// Wakes whenever there may be new events, from any process.
    pub fn changes(&self) -> Result<watch::Receiver<u64>> {
        Ok(self.store()?.changes())
    }
}

fn event(item: FeedItem, redaction: Redaction) -> Event {
    let session = item.session.to_string();
    let fields = match item.what {
        Happening::Message(message) => {
            let body = serde_json::from_str(&message.to_json()).unwrap_or(Value::Null);
            json!({ "type": "message", "session_id": session, "message": body })
        }
        Happening::SessionCreated { at, key } => {
            json!({ "type": "session_created", "session_id": session, "key": key, "timestamp": at.to_string() })
        }
        Happening::SessionChanged { at, change } => json!({
            "type": "session_changed", "session_id": session, "change": change, "timestamp": at.to_string()
        }),
        Happening::PlanUpdated { at, revision, path, agent, content } => json!({
            "type": "session_plan_updated", "session_id": session, "path": path, "content": content,
            "agent_name": agent, "timestamp": at.to_string(), "revision": revision
        }),
        Happening::PlanState { at, revision, state, by, note } => {
            let mut fields = json!({
                "type": "session_plan_state", "session_id": session, "revision": revision, "state": state,
                "by": by, "timestamp": at.to_string()
            });
            if let Some(note) = note {
                fields["note"] = note.into();
            }
            fields
        }
        Happening::RunState { at, run, agent, state, error } => {
            let mut fields = json!({
                "type": "run_state", "session_id": session, "run_id": run, "agent": agent, "state": state,
                "timestamp": at.to_string()
            });
            if let Some(error) = error {
                fields["error"] = error.into();
            }
            fields
        }
        Happening::SessionDeleted { at, key, by, messages } => json!({
            "type": "session_deleted", "session_id": session, "key": key, "by": by, "messages": messages,
            "timestamp": at.to_string()
        }),
        Happening::Damaged { reason } => {
            json!({ "type": "damaged", "session_id": session, "error": reason })
        }
    };
    let mut fields = fields;
    if redaction == Redaction::Masked {
        redact_json(&mut fields);
    }
    let Value::Object(fields) = fields else { unreachable!("every event is an object") };
    Event { cursor: item.position.0, fields }
}
