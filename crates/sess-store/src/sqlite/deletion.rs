//! What becomes of sessions that are done with: archived, or deleted.

use rusqlite::{Connection, params};
use serde_json::json;
use sess_core::{SessionId, Timestamp, run::BootTime, session::Session};

use super::{
    feed, messages, runs, seats, sessions,
    writer::{JobResult, Transaction},
};
use crate::{Error, Happening};

/// Takes messages and plan away. The row stays, for the runs that name it.
pub(super) fn delete(tx: &mut Transaction<'_>, id: &SessionId, by: &str, at: Timestamp) -> JobResult<()> {
    let (n, mut session) = sessions::require(tx.connection(), id)?;
    if runs::has_open(tx.connection(), n)? {
        return Err(Error::Conflict(format!("session {id} has a run that has not ended")).into());
    }
    if runs::has_unsettled(tx.connection(), n)? {
        return Err(Error::Conflict(format!("something still follows a run of session {id}")).into());
    }
    let spans = positions(tx.connection(), n)?;
    let connection = tx.connection();
    let deleted = connection.prepare_cached("DELETE FROM messages WHERE session = ?1")?.execute([n])?;
    connection.prepare_cached("DELETE FROM plans WHERE session = ?1")?.execute([n])?;
    connection.prepare_cached("DELETE FROM plan_revisions WHERE session = ?1")?.execute([n])?;
    connection.prepare_cached("DELETE FROM seats WHERE session = ?1")?.execute([n])?;
    connection.prepare_cached(DELETE_PLAN_EVENTS)?.execute([n])?;
    // A title is mostly words of the first message, and names are somebody's words, too.
    session.title.clear();
    session.facts.label = None;
    session.facts.display_name = None;
    bury(tx, n, &session, at)?;
    let what = Happening::SessionDeleted {
        at,
        key: session.key.clone(),
        by: by.to_owned(),
        messages: deleted as u64,
    };
    feed::record_with(tx, n, &what, &[("positions", json!(spans))])
}

/// The condition is the one of the partial index, letter for letter.
const DELETE_PLAN_EVENTS: &str =
    "DELETE FROM events WHERE session = ?1 AND kind IN ('session_plan_updated', 'session_plan_state')";

/// Marks the session's row as deleted.
pub(super) fn bury(tx: &Transaction<'_>, n: i64, session: &Session, at: Timestamp) -> JobResult<()> {
    let facts = sessions::facts_text(session);
    let deleted_at = at.as_millis();
    tx.connection()
        .prepare_cached(
            "UPDATE sessions SET title = ?2, last_seq = 0, num_messages = 0, deleted_at = ?3, facts = ?4, crc = ?5 \
             WHERE n = ?1",
        )?
        .execute(params![
            n,
            session.title,
            deleted_at,
            facts,
            sessions::checksum(session, facts.as_deref(), Some(deleted_at))
        ])?;
    Ok(())
}

/// Returns where the session's messages stand in the order of everything, as first and length: the
/// search index knows them by that alone.
fn positions(connection: &Connection, session: i64) -> rusqlite::Result<Vec<(i64, i64)>> {
    let mut statement =
        connection.prepare_cached("SELECT n FROM messages WHERE session = ?1 ORDER BY seq")?;
    let mut rows = statement.query([session])?;
    let mut spans: Vec<(i64, i64)> = Vec::new();
    while let Some(row) = rows.next()? {
        let n: i64 = row.get(0)?;
        match spans.last_mut() {
            Some((first, len)) if *first + *len == n => *len += 1,
            _ => spans.push((n, 1)),
        }
    }
    Ok(spans)
}

/// Returns the spawned sessions in which nothing has happened since `before`, and nothing will.
pub(super) fn left(
    connection: &Connection,
    before: Timestamp,
    now: &BootTime,
) -> rusqlite::Result<Vec<(i64, Session)>> {
    let sql = format!("SELECT {} FROM sessions WHERE {SPAWNED}", sessions::COLUMNS);
    let found = connection
        .prepare_cached(&sql)?
        .query_map([before.as_millis()], sessions::from_row)?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    let mut left = Vec::new();
    for (n, session) in found {
        let Ok(session) = session.inspect_err(|reason| tracing::warn!("{reason}; it is left out")) else {
            continue;
        };
        let last_end: Option<i64> = connection
            .prepare_cached("SELECT max(ended_at) FROM runs WHERE session = ?1")?
            .query_row([n], |row| row.get(0))?;
        let is_open = runs::has_open(connection, n)?
            || runs::has_unsettled(connection, n)?
            || last_end.is_some_and(|end| end >= before.as_millis())
            || seats::of(connection, n)?
                .is_some_and(|seat| !seat.until.has_lapsed(now) || crate::is_alive(seat.process));
        if session.facts.is_spawned && !is_open {
            left.push((n, session));
        }
    }
    Ok(left)
}

/// The conditions are those of the partial index, letter for letter.
const SPAWNED: &str = "instr(facts, '\"isSpawned\":true') AND archived_at IS NULL AND deleted_at IS NULL \
     AND updated_at < ?1 ORDER BY updated_at";

/// A deletion as index and mirror take it in.
pub(super) struct Deleted {
    pub(super) position: u64,
    pub(super) session: String,
    /// Where the messages stood, as first and length.
    pub(super) spans: Vec<(i64, i64)>,
}

const DELETIONS: &str = "SELECT e.n, s.id, e.data, e.crc FROM events e LEFT JOIN sessions s ON s.n = e.session \
     WHERE e.kind = 'session_deleted' AND e.n > ?1 AND e.n <= ?2 ORDER BY e.n";

/// Returns the deletions after a position, up to another.
pub(super) fn after(reader: &Connection, position: u64, end: u64) -> rusqlite::Result<Vec<Deleted>> {
    let mut statement = reader.prepare_cached(DELETIONS)?;
    let mut rows = statement.query(params![messages::signed(position), messages::signed(end)])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let position = row.get::<_, i64>(0)?.unsigned_abs();
        let data = row.get::<_, String>(2).unwrap_or_default();
        let is_whole = row.get::<_, u32>(3).ok() == Some(feed::checksum("session_deleted", &data));
        let data: serde_json::Value = serde_json::from_str(&data).unwrap_or_default();
        let spans = serde_json::from_value(data["positions"].clone()).ok().filter(|_| is_whole);
        found.push(Deleted {
            position,
            session: row.get(1).unwrap_or_default(),
            // A damaged event: what is left in the index leads nowhere.
            spans: spans.unwrap_or_default(),
        });
    }
    Ok(found)
}

/// The questions of this file, with the step that must answer each.
#[cfg(test)]
pub(super) fn questions() -> [(String, &'static str); 3] {
    [
        (format!("SELECT id FROM sessions WHERE {SPAWNED}"), "INDEX sessions_spawned (updated_at<?)"),
        (DELETE_PLAN_EVENTS.to_owned(), "INDEX events_of_plans (session=?)"),
        (DELETIONS.to_owned(), "INDEX events_of_deletion (n>? AND n<?)"),
    ]
}
