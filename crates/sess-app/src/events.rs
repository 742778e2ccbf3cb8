//! Events: what happened in the store, in order, for programs that follow along.

use serde::Serialize;
use serde_json::{Map, Value, json};
use sess_core::redact::redact_json;
use sess_store::{FeedItem, Happening, Position};
use tokio::sync::watch;

use crate::{App, Redaction, Result};

/// One event, with the place to go on from.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    /// Give this back to get what came after.
    pub cursor: u64,
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

impl App {
    /// Returns up to `limit` events after a cursor, in the order they were committed.
    pub async fn events(&self, after: u64, limit: usize, redaction: Redaction) -> Result<Vec<Event>> {
        if !self.has_store() {
            return Ok(Vec::new());
        }
        self.news_is_out().await;
        let items = self.store()?.feed(Position(after), limit).await?;
        Ok(items.into_iter().map(|item| event(item, redaction)).collect())
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
