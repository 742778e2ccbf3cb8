//! Opening SQLite files of other programs so that not a byte of theirs changes.
//!
//! SQLite makes the `-wal` and `-shm` beside a database where they are missing, even for one
//! who only reads. So a database that has both is read through them, as one of its users;
//! one that has neither is read as a file that nobody changes, which is then checked; and one
//! with a log alone, which a crash left behind, is copied and the copy is read.

use std::{
    fs::{self, File, Metadata, Permissions},
    io::{self, Read},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, OpenFlags, config::DbConfig};

use crate::{Error, Result, files};

/// How often a database is read again because it changed meanwhile.
const ATTEMPTS_MAX: u32 = 5;

/// Runs queries on a database as it stands.
///
/// `look` runs again when the database changed under it, so what it collects
/// must be its own.
pub(crate) fn look<T>(path: &Path, mut look: impl FnMut(&Connection) -> rusqlite::Result<T>) -> Result<T> {
    let database = |source| Error::Database { path: path.to_owned(), source };
    for _ in 0..ATTEMPTS_MAX {
        let before = Standing::of(path)?;
        if before.log.is_none() {
            let seen = open(&address(path, "?immutable=1"), READ_ONLY).and_then(|it| look(&it));
            if Standing::of(path)? != before {
                continue;
            }
            return seen.map_err(database);
        }
        if before.is_shared {
            let seen = open(&address(path, "?mode=ro"), READ_ONLY).and_then(|it| {
                // All queries see the same moment.
                let _moment = it.unchecked_transaction()?;
                look(&it)
            });
            if !seen.as_ref().is_err_and(needs_writing) {
                return seen.map_err(database);
            }
        }
        let Some(copy) = Copied::of(path, &before)? else { continue };
        let seen = open(&copy.path, OpenFlags::SQLITE_OPEN_READ_WRITE).and_then(|it| look(&it));
        return seen.map_err(database);
    }
    Err(Error::Busy(path.to_owned()))
}

/// Tells whether an error comes of not being allowed to write what SQLite keeps beside a database.
fn needs_writing(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{CannotOpen, ReadOnly};
    matches!(error.sqlite_error_code(), Some(CannotOpen | ReadOnly))
}

/// What tells whether a database changed: it and its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    database: Stamp,
    /// A log with something in it.
    log: Option<Stamp>,
    /// Somebody has it open, or had when it crashed.
    is_shared: bool,
}

const READ_ONLY: OpenFlags = OpenFlags::SQLITE_OPEN_READ_ONLY;
/// How long a lock of the database's owner is waited for.
const BUSY_WITHIN: Duration = Duration::from_millis(250);

type Stamp = (u64, u64, i64, i64);

impl Standing {
    pub(crate) fn of(path: &Path) -> Result<Self> {
        let (_, database) = files::open(path)?;
        let beside = |suffix: &str| {
            let found = fs::symlink_metadata(beside(path, suffix)).ok();
            found.filter(|found| found.is_file() && found.len() > 0)
        };
        // A journal that was left behind is rolled back in the copy.
        let log = beside("-wal").or_else(|| beside("-journal"));
        let is_shared = beside("-wal").is_some() && beside("-shm").is_some();
        Ok(Self { database: stamp(&database), log: log.as_ref().map(stamp), is_shared })
    }
}

pub(crate) fn stamp(metadata: &Metadata) -> Stamp {
    (metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec())
}

/// A private copy of a database and its log, gone when this is dropped.
struct Copied {
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Copied {
    /// Copies both, or nothing when they changed meanwhile.
    ///
    /// The log may grow: half a transaction at its end does not count. When it is folded
    /// in the database changes, and when it starts anew its beginning does.
    fn of(path: &Path, before: &Standing) -> Result<Option<Self>> {
        let io = |source| Error::Io { path: path.to_owned(), source };
        let dir = tempfile::Builder::new()
            .prefix("sess-read-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir()
            .map_err(io)?;
        let copy = dir.path().join("copy.db");
        let start = log_start(path).map_err(io)?;
        for suffix in ["", "-journal", "-wal"] {
            let from = beside(path, suffix);
            let opened = match files::open(&from) {
                Err(Error::Io { source, .. })
                    if !suffix.is_empty() && source.kind() == io::ErrorKind::NotFound =>
                {
                    continue;
                }
                opened => opened?,
            };
            let mut target = File::create(beside(&copy, suffix)).map_err(io)?;
            io::copy(&mut { opened.0 }, &mut target).map_err(io)?;
        }
        let is_same =
            Standing::of(path)?.database == before.database && log_start(path).map_err(io)? == start;
        Ok(is_same.then_some(Self { path: copy, _dir: dir }))
    }
}

/// Returns the header of the log, which is another one each time it starts anew.
fn log_start(path: &Path) -> io::Result<Vec<u8>> {
    const HEADER_SIZE_BYTES: u64 = 32;
    let mut start = Vec::new();
    match File::open(beside(path, "-wal")) {
        Ok(log) => log.take(HEADER_SIZE_BYTES).read_to_end(&mut start).map(|_| start),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(start),
        Err(error) => Err(error),
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Writes a path as the address that SQLite takes options with.
fn address(path: &Path, options: &str) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    let mut address = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => {
                address.push(char::from(*byte));
            }
            byte => address.push_str(&format!("%{byte:02X}")),
        }
    }
    (address + options).into()
}

fn open(path: &Path, access: OpenFlags) -> rusqlite::Result<Connection> {
    let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_WITHIN)?;
    // Somebody else's file: nothing that its schema says may run.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.pragma_update(None, "query_only", true)?;
    Ok(connection)
}
