//! The order of everything: messages and events, read as one feed.

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use serde_json::{Value, json};
use sess_core::{SessionId, Timestamp};
use tokio::sync::watch;

use super::{
    Sqlite, crc, messages, plans,
    writer::{JobResult, Transaction},
};
use crate::{Feed, FeedItem, Happening, Position, Result};

#[async_trait]
impl Feed for Sqlite {
    async fn feed(&self, after: Position, limit: usize) -> Result<Vec<FeedItem>> {
        self.readers.query(|reader| {
            // Both tables in one snapshot, or an event could overtake a message.
            let snapshot = reader.unchecked_transaction()?;
            let messages = message_items(&snapshot, after, limit)?;
            let events = event_items(&snapshot, after, limit)?;
            // What was cut short for its size ends both: nothing may be skipped.
            let end = messages.cut.into_iter().chain(events.cut).min();
            let mut items = messages.items;
            items.extend(events.items);
            items.retain(|item| end.is_none_or(|end| item.position <= end));
            items.sort_by_key(|item| item.position);
            items.truncate(limit);
            Ok(items)
        })
    }

    async fn head(&self) -> Result<Position> {
        self.readers.query(head)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.notice.subscribe()
    }
}

pub(super) fn head(reader: &Connection) -> rusqlite::Result<Position> {
    let head: i64 = reader
        .prepare_cached(
            "SELECT max(coalesce((SELECT max(n) FROM messages), 0), coalesce((SELECT max(n) FROM events), 0))",
        )?
        .query_row([], |row| row.get(0))?;
    // Below zero only by damage.
    Ok(Position(u64::try_from(head).unwrap_or(0)))
}

/// Writes an event in the transaction that makes it true.
pub(super) fn record(tx: &mut Transaction<'_>, session: i64, what: &Happening) -> JobResult<()> {
    record_with(tx, session, what, &[])
}

/// Writes an event with further fields, which only the store itself reads.
pub(super) fn record_with(
    tx: &mut Transaction<'_>,
    session: i64,
    what: &Happening,
    further: &[(&str, Value)],
) -> JobResult<()> {
    let (kind, at, mut data) = match what {
        Happening::SessionCreated { at, key } => ("session_created", at, json!({ "key": key })),
        Happening::SessionChanged { at, change } => ("session_changed", at, json!({ "change": change })),
        Happening::PlanUpdated { at, revision, path, agent, content: _ } => {
            ("session_plan_updated", at, json!({ "revision": revision, "path": path, "agent": agent }))
        }
        Happening::PlanState { at, revision, state, by, note } => (
            "session_plan_state",
            at,
            json!({ "revision": revision, "state": state, "by": by, "note": note }),
        ),
        Happening::RunState { at, run, agent, state, error } => {
            ("run_state", at, json!({ "run": run, "agent": agent, "state": state, "error": error }))
        }
        Happening::SessionDeleted { at, key, by, messages } => {
            ("session_deleted", at, json!({ "key": key, "by": by, "messages": messages }))
        }
        Happening::Message(_) | Happening::Damaged { .. } => {
            unreachable!("messages are their own record, and damage is never written")
        }
    };
    for (field, value) in further {
        data[*field] = value.clone();
    }
    let data = data.to_string();
    let position = tx.take_position();
    tx.connection()
        .prepare_cached(
            "INSERT INTO events (n, session, at, kind, crc, data) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![position, session, at.as_millis(), kind, checksum(kind, &data), data])?;
    Ok(())
}

/// A part of the feed, and where it was cut short because its items are large.
#[derive(Default)]
struct Part {
    items: Vec<FeedItem>,
    size_bytes: usize,
    cut: Option<Position>,
}

impl Part {
    /// Takes an item; tells whether there is room for more.
    fn take(&mut self, item: FeedItem) -> bool {
        self.size_bytes += match &item.what {
            Happening::Message(message) => message.body.len(),
            Happening::PlanUpdated { content, .. } => content.len(),
            Happening::RunState { error, .. } => error.as_ref().map_or(0, String::len),
            Happening::SessionCreated { .. }
            | Happening::SessionChanged { .. }
            | Happening::SessionDeleted { .. }
            | Happening::PlanState { .. }
            | Happening::Damaged { .. } => 0,
        };
        if self.size_bytes > messages::PAGE_SIZE_BYTES_MAX {
            self.cut = Some(item.position);
        }
        self.items.push(item);
        self.cut.is_none()
    }
}

fn message_items(reader: &Connection, after: Position, limit: usize) -> rusqlite::Result<Part> {
    let mut statement = reader.prepare_cached(messages::OF_ALL_SESSIONS)?;
    let mut rows = statement.query(params![messages::signed(after.0), messages::signed(limit as u64)])?;
    let mut part = Part::default();
    while let Some(row) = rows.next()? {
        let (seq, message) = messages::from_row(row, row.get(6)?)?;
        let what = match message {
            Ok(message) => Happening::Message(message),
            Err(reason) => Happening::Damaged { reason: format!("message {seq} is damaged: {reason}") },
        };
        if !part.take(item(row, 7, what)?) {
            break;
        }
    }
    Ok(part)
}

fn event_items(reader: &Connection, after: Position, limit: usize) -> rusqlite::Result<Part> {
    let mut statement = reader.prepare_cached(
        "SELECT e.n, e.kind, e.at, e.data, e.crc, s.id, e.session \
         FROM events e JOIN sessions s ON s.n = e.session WHERE e.n > ?1 ORDER BY e.n LIMIT ?2",
    )?;
    let mut rows = statement.query(params![messages::signed(after.0), messages::signed(limit as u64)])?;
    let mut part = Part::default();
    while let Some(row) = rows.next()? {
        let what = happening(reader, row)?
            .unwrap_or_else(|| Happening::Damaged { reason: "an event is damaged".to_owned() });
        if !part.take(item(row, 5, what)?) {
            break;
        }
    }
    Ok(part)
}

/// The kinds are named as in `events_of_plans`: only then is that index taken.
pub(super) const NEWEST_PLAN_CHANGE: &str = "SELECT e.n, e.kind, e.at, e.data, e.crc, s.id, e.session \
     FROM events e JOIN sessions s ON s.n = e.session WHERE e.session = ?1 \
     AND e.kind IN ('session_plan_updated', 'session_plan_state') AND +e.kind = 'session_plan_state' \
     ORDER BY e.n DESC LIMIT 1";

/// Returns the newest change of the state of a session's plan, unless that is damaged.
pub(super) fn newest_plan_change(reader: &Connection, session: i64) -> rusqlite::Result<Option<FeedItem>> {
    let mut statement = reader.prepare_cached(NEWEST_PLAN_CHANGE)?;
    let mut rows = statement.query([session])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    happening(reader, row)?.map(|what| item(row, 5, what)).transpose()
}

fn item(row: &Row<'_>, session_column: usize, what: Happening) -> rusqlite::Result<FeedItem> {
    let position = Position(row.get::<_, i64>(0)?.unsigned_abs());
    let session = row.get::<_, String>(session_column).ok().and_then(|id| id.parse::<SessionId>().ok());
    Ok(match session {
        Some(session) => FeedItem { position, session, what },
        // Told all the same: a follower must get past it.
        None => FeedItem {
            position,
            session: "unreadable".parse().expect("a word is an id"),
            what: Happening::Damaged { reason: "the session of an item is damaged".to_owned() },
        },
    })
}

/// Reads an event; `None` when it is damaged or of a kind from later.
fn happening(reader: &Connection, row: &Row<'_>) -> rusqlite::Result<Option<Happening>> {
    let (Ok(kind), Ok(data)) = (row.get::<_, String>(1), row.get::<_, String>(3)) else { return Ok(None) };
    let at = Timestamp::from_millis_clamped(row.get(2).unwrap_or_default());
    if row.get::<_, u32>(4).ok() != Some(checksum(&kind, &data)) {
        return Ok(None);
    }
    let Ok(data) = serde_json::from_str::<Value>(&data) else {
        return Ok(None);
    };
    let text = |field: &str| data[field].as_str().map(str::to_owned);
    let what = (|| match kind.as_str() {
        "session_created" => Some(Happening::SessionCreated { at, key: text("key")?.parse().ok()? }),
        "session_changed" => Some(Happening::SessionChanged { at, change: text("change")? }),
        "session_plan_updated" => Some(Happening::PlanUpdated {
            at,
            revision: data["revision"].as_u64()?,
            path: text("path")?,
            agent: text("agent")?,
            content: String::new(),
        }),
        "session_plan_state" => Some(Happening::PlanState {
            at,
            revision: data["revision"].as_u64()?,
            state: text("state")?.parse().ok()?,
            by: text("by")?,
            note: text("note"),
        }),
        "run_state" => Some(Happening::RunState {
            at,
            run: text("run")?.parse().ok()?,
            agent: text("agent")?.parse().ok()?,
            state: text("state")?.parse().ok()?,
            error: text("error"),
        }),
        "session_deleted" => Some(Happening::SessionDeleted {
            at,
            key: text("key")?.parse().ok()?,
            by: text("by")?,
            messages: data["messages"].as_u64()?,
        }),
        _ => None,
    })();
    let Some(Happening::PlanUpdated { at, revision, path, agent, .. }) = what else {
        return Ok(what);
    };
    let found = reader
        .prepare_cached("SELECT content, crc FROM plan_revisions WHERE session = ?1 AND revision = ?2")?
        .query_row(params![row.get::<_, i64>(6)?, messages::signed(revision)], |row| {
            Ok(row.get::<_, String>(0).ok().zip(row.get::<_, u32>(1).ok()))
        })
        .optional()?
        .flatten();
    let Some((content, _)) = found.filter(|(content, crc)| *crc == plans::checksum(revision, content)) else {
        return Ok(None);
    };
    Ok(Some(Happening::PlanUpdated { at, revision, path, agent, content }))
}

pub(super) fn checksum(kind: &str, data: &str) -> u32 {
    crc(&[kind.as_bytes(), data.as_bytes()])
}
