//! The file that has the filters: SQLite, so that many may read it while one writes.
//!
//! A filter is believed when its checksum fits and the session's file is the one that it was made
//! of. Whatever else is wrong with the file costs time, and no hits.

use std::{
    collections::HashMap,
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rusqlite::{Connection, OpenFlags, OptionalExtension as _, params};
use sess_core::{SessionId, Source};
use sess_readers::{Foreign, Term};

use super::filter;

/// What filters mean. Raise the number when terms, or what readers hand over, become others.
const MADE_BY: &str = concat!(env!("CARGO_PKG_VERSION"), "/5");
/// How long another process that writes is waited for.
const BUSY_WITHIN: Duration = Duration::from_secs(10);

/// What is said of a filter whose checksum does not fit.
pub(super) const OTHER: &str = "a part of it is not what was written";

const TABLES: &str = "
    CREATE TABLE made_by (version TEXT NOT NULL);
    CREATE TABLE filters (
        source TEXT NOT NULL,
        id TEXT NOT NULL,
        -- What the file was that the session was read from.
        stamp TEXT NOT NULL,
        size_bytes INTEGER NOT NULL,
        filter BLOB NOT NULL,
        -- CRC-32 of all of that.
        sum INTEGER NOT NULL,
        PRIMARY KEY (source, id)
    );";

/// Why there are no filters to go by.
#[derive(Debug)]
pub(super) enum Unusable {
    /// Nobody made any.
    None,
    /// Another version of the program made them.
    OfAnotherVersion,
    /// They cannot be read.
    Broken(String),
}

impl From<rusqlite::Error> for Unusable {
    fn from(error: rusqlite::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

/// The filters of all sessions.
pub(crate) struct Filters {
    connection: Mutex<Connection>,
    /// Something was wrong with the file.
    is_damaged: AtomicBool,
}

/// Which session a filter is of.
pub(super) type Named = (Source, SessionId);

/// Returns where the filters are.
pub(super) fn path(home: &Path) -> PathBuf {
    home.join("filters.db")
}

/// Returns what is another text as soon as a session is kept in another file, or its file changes.
pub(super) fn stamp(session: &Foreign) -> Result<String, sess_readers::Error> {
    Ok(format!("{} {}", session.stamp()?, session.place.path.display()))
}

impl Filters {
    /// Opens the filters that there are.
    pub(super) fn open(home: &Path) -> Result<Self, Unusable> {
        let path = path(home);
        if matches!(fs::symlink_metadata(&path), Err(error) if error.kind() == io::ErrorKind::NotFound) {
            return Err(Unusable::None);
        }
        let connection = connect(&path)?;
        let made_by = connection.query_row("SELECT version FROM made_by", [], |row| row.get::<_, String>(0));
        if made_by.optional()?.as_deref() != Some(MADE_BY) {
            return Err(Unusable::OfAnotherVersion);
        }
        Ok(Self { connection: Mutex::new(connection), is_damaged: AtomicBool::new(false) })
    }

    /// Makes a file without filters in the place of whatever is there.
    pub(super) fn make(home: &Path) -> Result<Self, String> {
        let path = path(home);
        let failed = |error: &dyn std::fmt::Display| cannot_write(&path, error);
        DirBuilder::new().recursive(true).mode(0o700).create(home).map_err(|error| failed(&error))?;
        remove(home).map_err(|error| failed(&error))?;
        let made = File::options().create_new(true).write(true).mode(0o600).open(&path);
        made.map_err(|error| failed(&error))?;
        let make = || {
            let mut connection = connect(&path)?;
            // What is lost with the machine's power is made again.
            connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL")?;
            let transaction = connection.transaction()?;
            transaction.execute_batch(TABLES)?;
            transaction.execute("INSERT INTO made_by VALUES (?1)", [MADE_BY])?;
            transaction.commit()?;
            Ok(connection)
        };
        let connection = make().map_err(|error: rusqlite::Error| failed(&error))?;
        Ok(Self { connection: Mutex::new(connection), is_damaged: AtomicBool::new(false) })
    }

    /// Reads the whole file for damage.
    pub(super) fn check(&self) -> Result<(), Unusable> {
        let told: String = self.lock().query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if told != "ok" {
            return Err(Unusable::Broken(told));
        }
        let connection = self.lock();
        let mut statement =
            connection.prepare("SELECT source, id, stamp, size_bytes, filter, sum FROM filters")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let text = |column| row.get_ref(column)?.as_str().map_err(rusqlite::Error::from);
            let filter = row.get_ref(4)?.as_blob().map_err(rusqlite::Error::from)?;
            if row.get::<_, u32>(5)? != sum(text(0)?, text(1)?, text(2)?, row.get(3)?, filter) {
                return Err(Unusable::Broken(OTHER.to_owned()));
            }
        }
        Ok(())
    }

    /// Tells whether a session may have all of these terms: whatever is not known, it may.
    pub(crate) fn may_have(&self, session: &Foreign, terms: &[Term]) -> bool {
        match self.cannot_have(session, terms) {
            Ok(cannot) => !cannot,
            Err(_) => {
                self.is_damaged.store(true, Ordering::Relaxed);
                true
            }
        }
    }

    /// Tells whether something was wrong with the file.
    pub(super) fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Relaxed)
    }

    fn cannot_have(&self, session: &Foreign, terms: &[Term]) -> rusqlite::Result<bool> {
        let connection = self.lock();
        let sql = "SELECT stamp, size_bytes, filter, sum FROM filters WHERE source = ?1 AND id = ?2";
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query([session.source.as_str(), session.id.as_str()])?;
        let Some(row) = rows.next()? else { return Ok(false) };
        let filter = row.get_ref(2)?.as_blob()?;
        if filter::may_have(filter, terms) {
            return Ok(false);
        }
        let made_of: String = row.get(0)?;
        let (source, id) = (session.source.as_str(), session.id.as_str());
        if row.get::<_, u32>(3)? != sum(source, id, &made_of, row.get(1)?, filter) {
            self.is_damaged.store(true, Ordering::Relaxed);
            return Ok(false);
        }
        drop(rows);
        drop(statement);
        drop(connection);
        Ok(stamp(session).is_ok_and(|stamp| stamp == made_of))
    }

    /// Returns the stamps of the files that filters were made of.
    pub(super) fn stamps(&self) -> rusqlite::Result<HashMap<Named, String>> {
        let connection = self.lock();
        let mut statement = connection.prepare("SELECT source, id, stamp FROM filters")?;
        let mut rows = statement.query([])?;
        let mut stamps = HashMap::new();
        while let Some(row) = rows.next()? {
            let (source, id): (String, String) = (row.get(0)?, row.get(1)?);
            // Names that nobody can have are of no use, and go with the next round.
            if let (Ok(source), Ok(id)) = (source.parse(), id.parse()) {
                stamps.insert((source, id), row.get(2)?);
            }
        }
        Ok(stamps)
    }

    /// Keeps the filter of a session; when it returns, a crash does not take it.
    pub(super) fn put(&self, session: &Foreign, stamp: &str, filter: &[u8]) -> rusqlite::Result<()> {
        let size = session.place.size_bytes.map_or(0, |size| i64::try_from(size).unwrap_or(i64::MAX));
        let (source, id) = (session.source.as_str(), session.id.as_str());
        let sum = sum(source, id, stamp, size, filter);
        let connection = self.lock();
        let mut statement = connection.prepare_cached(
            "INSERT INTO filters (source, id, stamp, size_bytes, filter, sum) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT DO UPDATE SET stamp = ?3, size_bytes = ?4, filter = ?5, sum = ?6",
        )?;
        statement.execute(params![source, id, stamp, size, filter, sum])?;
        Ok(())
    }

    /// Deletes the filters of these sessions.
    pub(super) fn delete<'a>(&self, names: impl Iterator<Item = &'a Named>) -> rusqlite::Result<()> {
        let mut connection = self.lock();
        let transaction = connection.transaction()?;
        for (source, id) in names {
            let sql = "DELETE FROM filters WHERE source = ?1 AND id = ?2";
            transaction.execute(sql, [source.as_str(), id.as_str()])?;
        }
        transaction.commit()
    }

    /// Returns how many filters there are, and how large the files are that they were made of.
    pub(super) fn totals(&self) -> rusqlite::Result<(u64, u64)> {
        let sql = "SELECT count(*), coalesce(sum(size_bytes), 0) FROM filters";
        let (count, size) = self.lock().query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok((i64::unsigned_abs(count), i64::unsigned_abs(size)))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns how large the file of filters is, with its log.
pub(super) fn size_bytes(home: &Path) -> u64 {
    let size = |path: PathBuf| path.metadata().map_or(0, |found| found.len());
    parts(home).into_iter().map(size).sum()
}

/// Deletes the filters; says whether there were any.
pub(super) fn remove(home: &Path) -> io::Result<bool> {
    let mut was_there = false;
    for part in parts(home) {
        match fs::remove_file(part) {
            Ok(()) => was_there = true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(was_there)
}

pub(super) fn cannot_write(path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("{} cannot be written: {error}; a search works without it, and takes longer", path.display())
}

fn parts(home: &Path) -> [PathBuf; 3] {
    ["filters.db", "filters.db-wal", "filters.db-shm"].map(|name| home.join(name))
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_WITHIN)?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    Ok(connection)
}

fn sum(source: &str, id: &str, stamp: &str, size: i64, filter: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    for part in [source, id, stamp] {
        sum.update(part.as_bytes());
        sum.update(&[0]);
    }
    sum.update(&size.to_le_bytes());
    sum.update(filter);
    sum.finalize()
}
