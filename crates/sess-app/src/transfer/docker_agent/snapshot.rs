//! A private copy of a database that somebody else may be writing.
//!
//! Opening a database with a `-wal` beside it writes: SQLite makes or changes
//! the `-shm`, and the last one to close folds the log in. The copy may be
//! written to; the original is only ever read.

use std::{
    fs::{File, Permissions},
    io::{self, BufRead, BufReader, Read},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use rusqlite::{Connection, OpenFlags, config::DbConfig};
use tempfile::TempDir;

use super::ReadError;

/// How often a copy is taken again because the original changed under it.
const ATTEMPTS_MAX: u32 = 8;

/// An open copy, which is gone when this is dropped.
pub(super) struct Snapshot {
    // Closed before its directory goes: fields are dropped in this order.
    pub(super) connection: Connection,
    _dir: TempDir,
}

impl Snapshot {
    /// Copies the database as it stands, with what is committed in its log.
    pub(super) fn of(path: &Path) -> Result<Self, ReadError> {
        let io = |error| ReadError::Io { path: path.to_owned(), error };
        // The log lies beside the file itself, not beside a link to it.
        let original = path.canonicalize().map_err(io)?;
        for _ in 0..ATTEMPTS_MAX {
            let dir = tempfile::Builder::new()
                .prefix("sess-import-")
                .permissions(Permissions::from_mode(0o700))
                .tempdir()
                .map_err(ReadError::Copy)?;
            let copy = dir.path().join("session.db");
            // Nothing of the database may change from before its log is copied
            // until after, and the log may only grow: half a transaction at its
            // end does not count. When the log is folded in, the database
            // changes; when it starts anew, its beginning does. Times of change
            // are too coarse to see either.
            let log_before = log_start(&original).map_err(io)?;
            copy_all(&original, &copy)?;
            let fits = same(&original, &copy).map_err(io)? && log_start(&original).map_err(io)? == log_before;
            if fits {
                let connection =
                    open(&copy).map_err(|error| ReadError::Database { path: path.to_owned(), error })?;
                return Ok(Self { connection, _dir: dir });
            }
        }
        Err(ReadError::Busy(path.to_owned()))
    }
}

/// Returns the header of the log, which is another one each time it starts anew.
fn log_start(original: &Path) -> io::Result<Vec<u8>> {
    const HEADER_SIZE_BYTES: u64 = 32;
    let mut start = Vec::new();
    if let Some(log) = present(File::open(beside(original, "-wal")))? {
        log.take(HEADER_SIZE_BYTES).read_to_end(&mut start)?;
    }
    Ok(start)
}

/// Says whether two files have the same bytes.
fn same(one: &Path, other: &Path) -> io::Result<bool> {
    let open = |path| File::open(path).map(|file| BufReader::with_capacity(1 << 16, file));
    let (mut one, mut other) = (open(one)?, open(other)?);
    loop {
        let (a, b) = (one.fill_buf()?, other.fill_buf()?);
        let size = a.len().min(b.len());
        if size == 0 || a[..size] != b[..size] {
            return Ok(a.is_empty() && b.is_empty());
        }
        one.consume(size);
        other.consume(size);
    }
}

fn copy_all(original: &Path, copy: &Path) -> Result<(), ReadError> {
    for part in ["", "-journal", "-wal"] {
        let (from, to) = (beside(original, part), beside(copy, part));
        let opened = File::open(&from);
        let opened = if part.is_empty() { opened.map(Some) } else { present(opened) };
        let io = |error| ReadError::Io { path: from.clone(), error };
        let Some(mut source) = opened.map_err(io)? else {
            continue;
        };
        // Not `fs::copy`, which would also copy a mode that forbids writing.
        let mut target = File::create(&to).map_err(ReadError::Copy)?;
        io::copy(&mut source, &mut target).map_err(ReadError::Copy)?;
    }
    Ok(())
}

fn open(copy: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(
        copy,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    // Somebody else's file: nothing that its schema says may run.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.pragma_update(None, "query_only", true)?;
    Ok(connection)
}

fn present<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
