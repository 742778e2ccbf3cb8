//! Taking secrets out of everything that is stored of a session.
//!
//! Transcripts only grow; this is the one exception, and the owner's. Whatever is
//! freed is overwritten, the log is emptied, and index and mirrors are made again.

use async_trait::async_trait;
use rusqlite::{Connection, params};
use serde_json::Value;
use sess_core::{SessionId, Timestamp};

use super::{
    Sqlite,
    connection::{self, Access},
    feed, messages, outbox, plans, run_rows, sessions,
    writer::{JobResult, Transaction},
};
use crate::{Error, Mask, Result, Scrub, Scrubbing};

#[async_trait]
impl Scrub for Sqlite {
    async fn sessions_after(&self, after: Option<&SessionId>, limit: usize) -> Result<Vec<SessionId>> {
        let after = after.map_or("", SessionId::as_str);
        let found = self.readers.query(|reader| {
            let mut statement = reader.prepare_cached(
                "SELECT id FROM sessions WHERE id > ?1 AND deleted_at IS NULL ORDER BY id LIMIT ?2",
            )?;
            let ids =
                statement.query_map(params![after, messages::signed(limit as u64)], |row| row.get(0))?;
            ids.collect::<rusqlite::Result<Vec<String>>>()
        })?;
        Ok(found.iter().filter_map(|id| id.parse().ok()).collect())
    }

    async fn scrub(&self, session: &SessionId, mask: Mask, how: Scrubbing, at: Timestamp) -> Result<u64> {
        let session = session.clone();
        self.writer.write(move |tx| scrub(tx, &session, Scrubber { mask, how }, at)).await
    }

    async fn forget_scrubbed(&self) -> Result<()> {
        let connection = connection::connect(&self.path, Access::Write)?;
        // What readers still need of it goes with the next one that empties it.
        connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
            .map_err(|error| Error::from_sqlite(&self.path, &error))?;
        self.derived.make_again("secrets were taken out of the store");
        Ok(())
    }
}

/// What to look for, and whether to change what is found.
#[derive(Clone, Copy)]
struct Scrubber {
    mask: Mask,
    how: Scrubbing,
}

fn scrub(tx: &mut Transaction<'_>, id: &SessionId, mask: Scrubber, at: Timestamp) -> JobResult<u64> {
    let (n, mut session) = sessions::require(tx.connection(), id)?;
    // What is freed is overwritten.
    tx.connection().pragma_update(None, "secure_delete", true)?;
    let title = mask.text(&session.title);
    let mut masked = title.is_some().into();
    session.title = title.unwrap_or(session.title);
    if let Some(label) = session.facts.label.as_deref().and_then(|label| mask.text(label)) {
        session.facts.label = Some(label);
        masked += 1;
    }
    masked += of_messages(tx.connection(), n, mask)?;
    masked += of_plan(tx.connection(), n, mask)?;
    masked += of_events(tx.connection(), n, mask)?;
    masked += of_runs(tx, n, mask)?;
    masked += of_posts(tx, n, mask)?;
    if masked > 0 && mask.is_rewriting() {
        sessions::change_row(tx, n, &session, "scrubbed", at)?;
    }
    Ok(masked)
}

fn of_messages(connection: &Connection, session: i64, mask: Scrubber) -> rusqlite::Result<u64> {
    let mut masked = 0;
    let mut rows = connection.prepare_cached(
        "SELECT n, seq, id, shape, crc, body FROM messages WHERE session = ?1 ORDER BY seq",
    )?;
    let mut write = connection
        .prepare_cached("UPDATE messages SET body = ?2, crc = ?3 WHERE session = ?4 AND seq = ?1")?;
    // One at a time: a transcript can be larger than memory.
    let mut rows = rows.query([session])?;
    while let Some(row) = rows.next()? {
        let (seq, message) = messages::from_row(row, session)?;
        // What is damaged is not made to look whole.
        let Ok(message) = message else { continue };
        if let Some(body) = mask.json(&message.body) {
            let crc = messages::checksum(session, seq, message.id.as_str(), &body);
            masked += 1;
            if mask.is_rewriting() {
                write.execute(params![messages::signed(seq), body, crc, session])?;
            }
        }
    }
    Ok(masked)
}

fn of_plan(connection: &Connection, session: i64, mask: Scrubber) -> rusqlite::Result<u64> {
    let mut masked = 0;
    let mut rows = connection.prepare_cached(
        "SELECT revision, content, crc FROM plan_revisions WHERE session = ?1 ORDER BY revision",
    )?;
    let mut write = connection.prepare_cached(
        "UPDATE plan_revisions SET content = ?2, size_bytes = ?3, crc = ?4 WHERE session = ?5 AND revision = ?1",
    )?;
    let mut rows = rows.query([session])?;
    while let Some(row) = rows.next()? {
        let revision = row.get::<_, i64>(0)?.unsigned_abs();
        let content: String = row.get(1).unwrap_or_default();
        let is_whole = row.get::<_, u32>(2).ok() == Some(plans::checksum(revision, &content));
        if let Some(content) = mask.text(&content).filter(|_| is_whole) {
            let (size, crc) = (content.len() as u64, plans::checksum(revision, &content));
            masked += 1;
            if mask.is_rewriting() {
                write.execute(params![
                    messages::signed(revision),
                    content,
                    messages::signed(size),
                    crc,
                    session
                ])?;
            }
        }
    }
    Ok(masked)
}

fn of_events(connection: &Connection, session: i64, mask: Scrubber) -> rusqlite::Result<u64> {
    let mut masked = 0;
    let mut rows = connection.prepare_cached("SELECT n, kind, data, crc FROM events WHERE session = ?1")?;
    let mut write = connection.prepare_cached("UPDATE events SET data = ?2, crc = ?3 WHERE n = ?1")?;
    let mut rows = rows.query([session])?;
    while let Some(row) = rows.next()? {
        let (n, kind): (i64, String) = (row.get(0)?, row.get(1).unwrap_or_default());
        let data: String = row.get(2).unwrap_or_default();
        let is_whole = row.get::<_, u32>(3).ok() == Some(feed::checksum(&kind, &data));
        if let Some(data) = mask.json(&data).filter(|_| is_whole) {
            masked += 1;
            if mask.is_rewriting() {
                write.execute(params![n, data, feed::checksum(&kind, &data)])?;
            }
        }
    }
    Ok(masked)
}

fn of_runs(tx: &Transaction<'_>, session: i64, mask: Scrubber) -> JobResult<u64> {
    let mut masked = 0;
    for mut row in run_rows::readable(tx.connection(), "WHERE r.session = ?1", params![session])? {
        let mut changed = 0;
        let mut take = |old: &mut String, new: Option<String>| {
            if let Some(new) = new {
                *old = new;
                changed += 1;
            }
        };
        if let Some(result) = &mut row.run.result {
            let new = mask.text(result);
            take(result, new);
        }
        if let Some(error) = &mut row.run.error {
            let new = mask.text(error);
            take(error, new);
        }
        if let Some(errand) = &mut row.errand {
            let new = mask.json(errand);
            take(errand, new);
        }
        // One message a line.
        let lines: Vec<Option<String>> = row.request.lines().map(|line| mask.json(line)).collect();
        if lines.iter().any(Option::is_some) {
            let new = row.request.lines().zip(lines).map(|(old, new)| new.unwrap_or_else(|| old.to_owned()));
            let new = new.collect::<Vec<_>>().join("\n");
            take(&mut row.request, Some(new));
        }
        masked += changed;
        if changed > 0 && mask.is_rewriting() {
            run_rows::update(tx, &row)?;
        }
    }
    Ok(masked)
}

fn of_posts(tx: &Transaction<'_>, session: i64, mask: Scrubber) -> JobResult<u64> {
    let mut masked = 0;
    for mut row in outbox::readable(tx.connection(), "WHERE o.session = ?1", params![session])? {
        if let Some(text) = mask.text(&row.post.text) {
            row.post.text = text;
            masked += 1;
            if mask.is_rewriting() {
                outbox::rewrite(tx, &row)?;
            }
        }
    }
    Ok(masked)
}

impl Scrubber {
    fn is_rewriting(self) -> bool {
        self.how == Scrubbing::Rewrite
    }

    /// Returns the text without its secrets, if it has any.
    fn text(self, text: &str) -> Option<String> {
        let mut value = Value::String(text.to_owned());
        match ((self.mask)(&mut value), value) {
            (1.., Value::String(masked)) => Some(masked),
            _ => None,
        }
    }

    /// Returns the JSON without the secrets in its strings, if it has any.
    fn json(self, text: &str) -> Option<String> {
        let mut value: Value = serde_json::from_str(text).ok()?;
        ((self.mask)(&mut value) > 0).then(|| value.to_string())
    }
}
