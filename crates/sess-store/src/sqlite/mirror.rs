//! The mirror: every transcript as a file of JSON Lines, for people who grep.
//!
//! It is written from the store and never read back. The index remembers how
//! long each file should be: a longer one was cut short by a crash in between
//! and is cut back, a shorter or missing one is written again from the start.

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
    pub(super) message: Result<StoredMessage, String>,
}

/// Returns up to `limit` messages after a position.
pub(super) fn rows_after(reader: &Connection, position: u64, limit: usize) -> rusqlite::Result<Vec<Row>> {
    let mut statement = reader.prepare_cached(
        "SELECT m.n, m.seq, m.id, m.shape, m.crc, m.body, m.session, s.id \
         FROM messages m JOIN sessions s ON s.n = m.session WHERE m.n > ?1 ORDER BY m.n LIMIT ?2",
    )?;
    let mut rows = statement.query(params![messages::signed(position), messages::signed(limit as u64)])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let (_, message) = messages::from_row(row, row.get(6)?)?;
        let position = row.get::<_, i64>(0)?.unsigned_abs();
        found.push(Row { position, session: row.get(7)?, message });
    }
    Ok(found)
}

/// Appends the rows to their files, and notes the new lengths in the index.
pub(super) fn extend(
    index: &Connection,
    readers: &Readers,
    dir: &Path,
    rows: &[Row],
) -> rusqlite::Result<()> {
    let mut by_session: BTreeMap<&str, String> = BTreeMap::new();
    for row in rows {
        let lines = by_session.entry(&row.session).or_default();
        // A damaged message is named in the transcript; the mirror leaves it out.
        if let Ok(message) = &row.message {
            lines.push_str(&message.to_json());
            lines.push('\n');
        }
    }
    for (session, lines) in by_session {
        let Ok(id) = session.parse::<SessionId>() else { continue };
        let noted: Option<i64> = index
            .prepare_cached("SELECT size_bytes FROM mirrors WHERE session = ?1")?
            .query_row([session], |row| row.get(0))
            .optional()?;
        let path = dir.join(format!("{id}.jsonl"));
        let noted = noted.map_or(0, i64::unsigned_abs);
        let size = append(&path, dir, noted, &lines).unwrap_or_else(|| rebuild(readers, &id, &path, dir));
        index
            .prepare_cached(
                "INSERT INTO mirrors (session, size_bytes) VALUES (?1, ?2) \
                 ON CONFLICT (session) DO UPDATE SET size_bytes = ?2",
            )?
            .execute(params![session, messages::signed(size)])?;
    }
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

/// Writes the whole transcript again; 0 when even that fails, so that the next message tries anew.
fn rebuild(readers: &Readers, id: &SessionId, path: &Path, dir: &Path) -> u64 {
    const PAGE_LEN: usize = 500;
    let write = || -> Option<u64> {
        let mut file = open(path, dir)?;
        file.set_len(0).ok()?;
        let (mut size, mut seq) = (0, 0);
        loop {
            let page = readers
                .query(|reader| match messages::number_of(reader, id)? {
                    Some(n) => messages::page(reader, n, Span::After(seq), PAGE_LEN),
                    None => Ok(crate::MessagePage::default()),
                })
                .ok()?;
            let lines: String = page.messages.iter().map(|message| message.to_json() + "\n").collect();
            file.write_all(lines.as_bytes()).ok()?;
            size += lines.len() as u64;
            let last = page.messages.iter().map(|message| message.seq);
            match last.chain(page.damaged.iter().map(|message| message.seq)).max() {
                Some(last) => seq = last,
                None => return Some(size),
            }
        }
    };
    write().unwrap_or_else(|| {
        tracing::warn!(path = %path.display(), "the transcript's mirror could not be written");
        0
    })
}

fn open(path: &Path, dir: &Path) -> Option<fs::File> {
    let open = || {
        OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0))
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
