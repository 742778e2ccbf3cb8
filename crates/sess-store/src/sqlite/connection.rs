//! Opening SQLite connections: creation, checks before the first use, settings.

use std::{
    fs::{self, File, OpenOptions},
    hash::{BuildHasher as _, Hasher as _, RandomState},
    io::Read as _,
    os::unix::fs::{
        DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
    },
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, OpenFlags, config::DbConfig};

use super::schema;
use crate::{Error, Result, error};

/// How long a statement waits for another process before it gives up.
const BUSY_WAIT_MAX: Duration = Duration::from_secs(60);
const BUSY_STEP: Duration = Duration::from_millis(2);

/// Whether a connection may change the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Write,
    Read,
}

/// Makes `dir` with a store inside, if there is none, and repairs file modes.
pub(super) fn prepare(dir: &Path) -> Result<PathBuf> {
    let path = dir.join("sess.db");
    match fs::symlink_metadata(&path) {
        Ok(found) => check_file(&path, &found)?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => create(dir, &path)?,
        Err(error) => return Err(Error::from_io("open the store", &path, &error)),
    }
    tighten(dir, 0o700);
    tighten(&path, 0o600);
    for below in ["transcripts", "session_plans"] {
        tighten(&dir.join(below), 0o700);
    }
    tighten(&dir.join("search.db"), 0o600);
    Ok(path)
}

/// Refuses what is not a store; changes nothing.
pub(super) fn check(path: &Path) -> Result<()> {
    let found = fs::symlink_metadata(path).map_err(|error| Error::from_io("open the store", path, &error))?;
    check_file(path, &found)
}

/// Refuses what is not a store, before SQLite could take it for an empty one.
///
/// Stores are made whole and then given their name, so an empty file or a
/// missing header is damage: SQLite alone would start over with no data.
fn check_file(path: &Path, found: &fs::Metadata) -> Result<()> {
    let shown = path.display();
    if found.is_dir() {
        return Err(Error::Unavailable(format!(
            "the store {shown} is a directory: move it away, or set SESS_HOME to another place"
        )));
    }
    if found.file_type().is_fifo() || found.file_type().is_socket() || found.file_type().is_char_device() {
        return Err(Error::Unavailable(format!("the store {shown} is not a regular file")));
    }
    let mut header = [0; 100];
    let mut file = File::open(path).map_err(|error| Error::from_io("open the store", path, &error))?;
    let is_whole = file.read_exact(&mut header).is_ok() && header.starts_with(b"SQLite format 3\0");
    // In this order, because another process may be moving its log into the file: once the
    // log is seen to be empty, the file has all that an older header promised.
    let wal = fs::metadata(wal_path(path)).map_or(0, |data| data.len());
    let size = file.metadata().map_or(0, |data| data.len());
    let salvage = "`sess doctor --salvage <new dir>` copies what can be read";
    if !is_whole {
        return Err(Error::Damaged(format!(
            "the store {shown} is damaged: it has no valid header ({size} bytes); nothing was changed; {salvage}"
        )));
    }
    // With a write-ahead log beside it, the file may rightly be shorter than its header says.
    let page_size = u64::from(u16::from_be_bytes([header[16], header[17]]));
    let page_count = u64::from(u32::from_be_bytes([header[28], header[29], header[30], header[31]]));
    if wal == 0 && page_size > 1 && page_count * page_size > size {
        return Err(Error::Damaged(format!(
            "the store {shown} is damaged: it is cut off at {size} of {} bytes; nothing was changed; {salvage}",
            page_count * page_size
        )));
    }
    Ok(())
}

/// Makes a whole store under another name and then links it into place, so
/// that nobody ever sees half of one and of several starters one wins.
fn create(dir: &Path, path: &Path) -> Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|error| Error::from_io("create the directory", dir, &error))?;
    // Random, because threads and containers share process ids, and two makers must not meet.
    let nonce = RandomState::new().build_hasher().finish();
    let staged = dir.join(format!(".sess.db.{nonce:016x}.new"));
    let remove = |path: &Path| match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), %error, "could not remove a temporary file");
        }
        _ => {}
    };
    let made = (|| {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&staged)
            .map_err(|error| Error::from_io("create the store", path, &error))?;
        let mut connection = connect(&staged, Access::Write)?;
        // The tables go into the file itself, and the log is switched on when it has nothing
        // to hold: moving it at the close would fail in silence, and leave half a store.
        schema::migrate(&mut connection, path)?;
        let mode: String = connection
            .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))
            .map_err(|error| Error::from_sqlite(path, &error))?;
        if mode != "wal" {
            return Err(Error::Unavailable(format!(
                "cannot create the store {}: its disk allows no write-ahead log",
                path.display()
            )));
        }
        connection.close().map_err(|(_, error)| Error::from_sqlite(path, &error))?;
        file.sync_all().map_err(|error| Error::from_io("write the store", path, &error))?;
        match fs::hard_link(&staged, path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            linked => linked.map_err(|error| Error::from_io("create the store", path, &error))?,
        }
        File::open(dir)
            .and_then(|dir| dir.sync_all())
            .map_err(|error| Error::from_io("write the directory", dir, &error))
    })();
    remove(&staged);
    for suffix in ["-journal", "-wal", "-shm"] {
        remove(&suffixed(&staged, suffix));
    }
    made
}

/// Opens a connection with the settings that the promises need.
pub(super) fn connect(path: &Path, access: Access) -> Result<Connection> {
    let sqlite = |error: &rusqlite::Error| Error::from_sqlite(path, error);
    let mode = match access {
        Access::Write => OpenFlags::SQLITE_OPEN_READ_WRITE,
        Access::Read => OpenFlags::SQLITE_OPEN_READ_ONLY,
    };
    let flags = mode | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = match unchanging(path) {
        Some(uri) if access == Access::Read => {
            Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI)
        }
        _ => Connection::open_with_flags(path, flags),
    };
    let mut connection = opened.map_err(|error| sqlite(&error))?;
    let mut set_up = || {
        connection.busy_handler(Some(wait_a_little))?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        // Else a statement whose plan might depend on a value is prepared again for each value.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        connection.execute_batch(
            "PRAGMA synchronous = FULL;
             PRAGMA wal_autocheckpoint = 0;
             PRAGMA cell_size_check = ON;
             PRAGMA temp_store = MEMORY;
             PRAGMA cache_size = -1024;",
        )?;
        // More than there are: to prepare one again costs more than to run it.
        connection.set_prepared_statement_cache_capacity(192);
        Ok(())
    };
    set_up().map_err(|error: rusqlite::Error| sqlite(&error))?;
    if access == Access::Read {
        schema::stand_in(&connection).map_err(|error| sqlite(&error))?;
    }
    Ok(connection)
}

/// Returns how to read a store on a read-only file system, where SQLite cannot
/// make the files that it shares with writers, and there are none.
fn unchanging(path: &Path) -> Option<String> {
    let has_log = fs::metadata(wal_path(path)).is_ok_and(|log| log.len() > 0);
    if !error::is_on_read_only_disk(path) || has_log {
        return None;
    }
    let escaped = path.to_str()?.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    Some(format!("file:{escaped}?immutable=1"))
}

/// The write lock is held for a commit, a few milliseconds at most: short equal
/// steps keep waiting processes fair, where SQLite's own growing ones starve some.
#[expect(clippy::disallowed_methods, reason = "SQLite's busy handler runs on a thread that may block")]
pub(super) fn wait_a_little(tries: i32) -> bool {
    std::thread::sleep(BUSY_STEP);
    BUSY_STEP * u32::try_from(tries).unwrap_or(u32::MAX) < BUSY_WAIT_MAX
}

/// Tells one file from another that took its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
}

pub(super) fn identity(path: &Path) -> Option<Identity> {
    let found = fs::metadata(path).ok()?;
    Some(Identity { device: found.dev(), inode: found.ino() })
}

pub(super) fn wal_path(path: &Path) -> PathBuf {
    suffixed(path, "-wal")
}

pub(super) fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Takes away rights that others have on our files. Best effort: on a
/// read-only disk there is nothing to repair.
pub(super) fn tighten(path: &Path, mode: u32) {
    let Ok(found) = fs::metadata(path) else {
        return;
    };
    if found.permissions().mode() & 0o777 & !mode == 0 {
        return;
    }
    if let Err(error) = fs::set_permissions(path, fs::Permissions::from_mode(mode)) {
        tracing::warn!(path = %path.display(), %error, "others may read this, and it could not be changed");
    }
}
