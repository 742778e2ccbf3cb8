//! Taking secrets out of everything that is stored of a session.
//!
//! Transcripts only grow; this is the one exception, and the owner's. Whatever is
//! freed is overwritten, the log is emptied, and index and mirrors are made again.

use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension as _, params};
use serde_json::Value;
use sess_core::{SessionId, Timestamp, session::Session};

use super::{
    Sqlite,
    connection::{self, Access},
    feed, messages, outbox, plans, run_rows, sessions,
    writer::{JobError, JobResult, Transaction},
};
use crate::{Error, Mask, Result, Scrub, Scrubbing};

/// How long those who read the log are waited for.
const READERS_WAITED_FOR: Duration = Duration::from_secs(2);

#[async_trait]
impl Scrub for Sqlite {
    async fn sessions_after(&self, after: Option<&SessionId>, limit: usize) -> Result<Vec<SessionId>> {
        let after = after.map_or("", SessionId::as_str);
        let found = self.readers.query(|reader| {
            let mut statement = reader.prepare_cached(
                // Also those that were deleted: what came of their runs stays.
                "SELECT id FROM sessions WHERE id > ?1 ORDER BY id LIMIT ?2",
            )?;
            let ids =
                statement.query_map(params![after, messages::signed(limit as u64)], |row| row.get(0))?;
            ids.collect::<rusqlite::Result<Vec<String>>>()
        })?;
        Ok(found.iter().filter_map(|id| id.parse().ok()).collect())
    }

    async fn scrub(&self, session: &SessionId, mask: Mask, how: Scrubbing, at: Timestamp) -> Result<u64> {
        match how {
            // Who only counts keeps nobody from writing.
            Scrubbing::Count => self.readers.query(|reader| match scrub(reader, None, session, mask) {
                Ok(scrubbed) => Ok(Ok(scrubbed.texts)),
                Err(JobError::Refused(error)) => Ok(Err(error)),
                Err(JobError::Sqlite(error)) => Err(error),
            })?,
            Scrubbing::Rewrite => {
                let session = session.clone();
                self.writer.write(move |tx| rewrite(tx, &session, mask, at)).await
            }
        }
    }

    async fn forget_scrubbed(&self) -> Result<bool> {
        let connection = connection::connect(&self.path, Access::Write)?;
        let is_busy = connection
            .busy_timeout(READERS_WAITED_FOR)
            .and_then(|()| connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)));
        let is_busy: bool = is_busy.map_err(|error| Error::from_sqlite(&self.path, &error))?;
        self.derived.make_again("secrets were taken out of the store");
        Ok(!is_busy)
    }
}

/// What was found in a session.
struct Scrubbed {
    n: i64,
    /// The session as it should be; `None` when it was deleted.
    session: Option<Session>,
    texts: u64,
}

fn rewrite(tx: &mut Transaction<'_>, id: &SessionId, mask: Mask, at: Timestamp) -> JobResult<u64> {
    // What is freed is overwritten.
    tx.connection().pragma_update(None, "secure_delete", true)?;
    let Scrubbed { n, session, texts } = scrub(tx.connection(), Some(tx), id, mask)?;
    match session {
        Some(session) if texts > 0 => sessions::change_row(tx, n, &session, "scrubbed", at)?,
        Some(_) | None => {}
    }
    Ok(texts)
}

/// Looks through every text of a session; with a transaction, what is found is masked.
fn scrub(
    connection: &Connection,
    into: Option<&Transaction<'_>>,
    id: &SessionId,
    mask: Mask,
) -> JobResult<Scrubbed> {
    let mask = Scrubber { mask, connection, into };
    let (n, is_deleted): (i64, bool) = connection
        .prepare_cached("SELECT n, deleted_at IS NOT NULL FROM sessions WHERE id = ?1")?
        .query_row([id.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?
        .ok_or_else(|| Error::NoSession(id.clone()))?;
    let mut texts = 0;
    let mut session = if is_deleted { None } else { Some(sessions::require(connection, id)?.1) };
    if let Some(session) = &mut session {
        let title = mask.text(&session.title);
        let label = session.facts.label.as_deref().and_then(|label| mask.text(label));
        let name = session.facts.display_name.as_deref().and_then(|name| mask.text(name));
        texts += u64::from(title.is_some()) + u64::from(label.is_some()) + u64::from(name.is_some());
        session.title = title.unwrap_or_else(|| session.title.clone());
        session.facts.label = label.or_else(|| session.facts.label.clone());
        session.facts.display_name = name.or_else(|| session.facts.display_name.clone());
    }
    texts += of_messages(n, mask)?;
    texts += of_plan(n, mask)?;
    texts += of_events(n, mask)?;
    texts += of_runs(n, mask)?;
    texts += of_posts(n, mask)?;
    Ok(Scrubbed { n, session, texts })
}

/// What to look for, and where what is found is changed, if it is.
#[derive(Clone, Copy)]
struct Scrubber<'a> {
    mask: Mask,
    connection: &'a Connection,
    into: Option<&'a Transaction<'a>>,
}

fn of_messages(session: i64, mask: Scrubber<'_>) -> rusqlite::Result<u64> {
    let mut masked = 0;
    let mut rows = mask.connection.prepare_cached(
        "SELECT n, seq, id, shape, crc, body FROM messages WHERE session = ?1 ORDER BY seq",
    )?;
    // One at a time: a transcript can be larger than memory.
    let mut rows = rows.query([session])?;
    while let Some(row) = rows.next()? {
        let (seq, message) = messages::from_row(row, session)?;
        // What is damaged is not made to look whole.
        let Ok(message) = message else { continue };
        if let Some(body) = mask.json(&message.body) {
            let crc = messages::checksum(session, seq, message.id.as_str(), &body);
            masked += 1;
            if let Some(tx) = mask.into {
                tx.connection()
                    .prepare_cached(
                        "UPDATE messages SET body = ?2, crc = ?3 WHERE session = ?4 AND seq = ?1",
                    )?
                    .execute(params![messages::signed(seq), body, crc, session])?;
            }
        }
    }
    Ok(masked)
}

fn of_plan(session: i64, mask: Scrubber<'_>) -> rusqlite::Result<u64> {
    let mut masked = 0;
    let mut rows = mask.connection.prepare_cached(
        "SELECT revision, content, crc FROM plan_revisions WHERE session = ?1 ORDER BY revision",
    )?;
    let mut rows = rows.query([session])?;
    while let Some(row) = rows.next()? {
        let revision = row.get::<_, i64>(0)?.unsigned_abs();
        let content: String = row.get(1).unwrap_or_default();
        let is_whole = row.get::<_, u32>(2).ok() == Some(plans::checksum(revision, &content));
        if let Some(content) = mask.text(&content).filter(|_| is_whole) {
            let (size, crc) = (content.len() as u64, plans::checksum(revision, &content));
            masked += 1;
            if let Some(tx) = mask.into {
                tx.connection()
                    .prepare_cached(
                        "UPDATE plan_revisions SET content = ?2, size_bytes = ?3, crc = ?4 \
                         WHERE session = ?5 AND revision = ?1",
                    )?
                    .execute(params![
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

fn of_events(session: i64, mask: Scrubber<'_>) -> rusqlite::Result<u64> {
    let mut masked = 0;
    let mut rows =
        mask.connection.prepare_cached("SELECT n, kind, data, crc FROM events WHERE session = ?1")?;
    let mut rows = rows.query([session])?;
    while let Some(row) = rows.next()? {
        let (n, kind): (i64, String) = (row.get(0)?, row.get(1).unwrap_or_default());
        let data: String = row.get(2).unwrap_or_default();
        let is_whole = row.get::<_, u32>(3).ok() == Some(feed::checksum(&kind, &data));
        if let Some(data) = mask.json(&data).filter(|_| is_whole) {
            masked += 1;
            if let Some(tx) = mask.into {
                tx.connection()
                    .prepare_cached("UPDATE events SET data = ?2, crc = ?3 WHERE n = ?1")?
                    .execute(params![n, data, feed::checksum(&kind, &data)])?;
            }
        }
    }
    Ok(masked)
}

fn of_runs(session: i64, mask: Scrubber<'_>) -> JobResult<u64> {
    let mut masked = 0;
    for mut row in run_rows::readable(mask.connection, "WHERE r.session = ?1", params![session])? {
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
        if let Some(tx) = mask.into.filter(|_| changed > 0) {
            run_rows::update(tx, &row)?;
        }
    }
    Ok(masked)
}

fn of_posts(session: i64, mask: Scrubber<'_>) -> JobResult<u64> {
    let mut masked = 0;
    for mut row in outbox::readable(mask.connection, "WHERE o.session = ?1", params![session])? {
        if let Some(text) = mask.text(&row.post.text) {
            row.post.text = text;
            masked += 1;
            if let Some(tx) = mask.into {
                outbox::rewrite(tx, &row)?;
            }
        }
    }
    Ok(masked)
}

impl Scrubber<'_> {
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
