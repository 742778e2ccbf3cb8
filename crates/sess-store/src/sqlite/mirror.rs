//! The mirror: every transcript as a file of JSON Lines, for people who grep.
//!
//! It is written from the store and never read back. The index remembers how
//! long each file should be: a longer one is what a crash left before the index
//! took note, and is cut back; a shorter or missing one is written again from
//! the start.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::Write as _,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::Path,
};

use rusqlite::{Connection, OptionalExtension as _, params};
use sess_core::SessionId;

use super::{messages, readers::Readers};
use crate::{Span, StoredMessage};

/// A message on its way into index and mirror.
pub(super) struct Row {
    pub(super) position: u64,
    pub(super) session: String,
    pub(super) seq: u64,
    pub(super) message: Result<StoredMessage, String>,
}

/// Returns up to `limit` messages after a position.
pub(super) fn rows_after(reader: &Connection, position: u64, limit: usize) -> rusqlite::Result<Vec<Row>> {
    let mut statement = reader.prepare_cached(messages::OF_ALL_SESSIONS)?;
    let mut rows = statement.query(params![messages::signed(position), messages::signed(limit as u64)])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let (seq, message) = messages::from_row(row, row.get(6)?)?;
        let position = row.get::<_, i64>(0)?.unsigned_abs();
        found.push(Row { position, session: row.get(7).unwrap_or_default(), seq, message });
    }
    Ok(found)
}

/// What the index notes of a file that could not be written: its length is unknown.
const UNKNOWN: i64 = -1;

/// Appends the rows to their files, and notes the new lengths in the index.
pub(super) fn extend(
    index: &Connection,
    readers: &Readers,
    dir: &Path,
    rows: &[Row],
) -> rusqlite::Result<()> {
    let Some(reached) = rows.last().map(|row| row.position) else { return Ok(()) };
    let mut by_session: BTreeMap<&str, (u64, String)> = BTreeMap::new();
    for row in rows {
        let (_, lines) = by_session.entry(&row.session).or_insert_with(|| (row.seq, String::new()));
        // A damaged message is named in the transcript; the mirror leaves it out.
        if let Ok(message) = &row.message {
            lines.push_str(&message.to_json());
            lines.push('\n');
        }
    }
    for (session, (first_seq, lines)) in by_session {
        let Ok(id) = session.parse::<SessionId>() else { continue };
        let noted: Option<i64> = index
            .prepare_cached("SELECT size_bytes FROM mirrors WHERE session = ?1")?
            .query_row([session], |row| row.get(0))
            .optional()?;
        let path = dir.join(format!("{id}.jsonl"));
        let known = match noted {
            Some(size) => u64::try_from(size).ok(),
            None => (first_seq == 1).then_some(0),
        };
        let size = known
            .and_then(|size| append(&path, dir, size, &lines))
            .or_else(|| rebuild(readers, &id, &path, dir, reached));
        index
            .prepare_cached(
                "INSERT INTO mirrors (session, size_bytes) VALUES (?1, ?2) \
                 ON CONFLICT (session) DO UPDATE SET size_bytes = ?2",
            )?
            .execute(params![session, size.map_or(UNKNOWN, messages::signed)])?;
    }
    Ok(())
}

/// Removes the file of a session that was deleted.
pub(super) fn remove(index: &Connection, dir: &Path, session: &str) -> rusqlite::Result<()> {
    let Ok(id) = session.parse::<SessionId>() else { return Ok(()) };
    let path = dir.join(format!("{id}.jsonl"));
    match fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), %error, "the mirror of a deleted session could not be removed");
        }
        _ => {}
    }
    index.prepare_cached("DELETE FROM mirrors WHERE session = ?1")?.execute([session])?;
    Ok(())
}

/// Returns the file's new length; `None` when it is not what was noted.
fn append(path: &Path, dir: &Path, noted: u64, lines: &str) -> Option<u64> {
    let mut file = open(path, dir)?;
    let size = file.metadata().ok()?.len();
    if size < noted {
        return None;
    }
    if size > noted {
        file.set_len(noted).ok()?;
    }
    file.write_all(lines.as_bytes()).ok()?;
    Some(noted + lines.len() as u64)
}

/// Writes the transcript again, up to the message that index and mirrors reached.
///
/// `None` when even that fails; the next message of the session tries anew.
fn rebuild(readers: &Readers, id: &SessionId, path: &Path, dir: &Path, reached: u64) -> Option<u64> {
    const PAGE_LEN: usize = 500;
    let write = || -> Option<u64> {
        let mut file = open(path, dir)?;
        file.set_len(0).ok()?;
        let (mut size, mut seq) = (0, 0);
        loop {
            let page = readers
                .query(|reader| match messages::place_of(reader, id)? {
                    Some(place) => messages::page(reader, place, Span::After(seq), PAGE_LEN),
                    None => Ok(crate::MessagePage::default()),
                })
                .ok()?;
            // What came later is appended in its turn.
            let due = page.messages.iter().filter(|message| message.position.0 <= reached);
            let lines: String = due.map(|message| message.to_json() + "\n").collect();
            file.write_all(lines.as_bytes()).ok()?;
            size += lines.len() as u64;
            match page.newest_seq() {
                Some(last) => seq = last,
                None => return Some(size),
            }
        }
    };
    let size = write();
    if size.is_none() {
        tracing::warn!(path = %path.display(), "the transcript's mirror could not be written");
    }
    size
}

fn open(path: &Path, dir: &Path) -> Option<fs::File> {
    // A link is not followed, and a pipe in its place not waited for.
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let open = || {
        OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(i32::try_from(flags.bits()).unwrap_or(0))
            .open(path)
    };
    match open() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).ok()?;
            open().ok()
        }
        opened => opened.ok(),
    }
}
