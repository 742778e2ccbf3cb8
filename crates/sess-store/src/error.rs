//! What can go wrong in a store, sorted by what the caller can do about it.

use std::path::Path;

use rusqlite::ErrorCode;
use sess_core::{RunId, SessionId};

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why the store did not do it.
///
/// Cloneable, because one failed commit answers every caller in its group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("session \"{0}\" not found")]
    NoSession(SessionId),
    #[error("run \"{0}\" not found")]
    NoRun(RunId),
    #[error("the plan is at revision {actual}, not {expected}")]
    StaleRevision { expected: u64, actual: u64 },
    #[error("idempotency key \"{0}\" was used before for another request")]
    KeyReused(String),
    /// There may be only so many.
    #[error(transparent)]
    Full(#[from] Full),
    /// What is stored and what was asked contradict each other.
    #[error("{0}")]
    Conflict(String),
    /// The machine says no: full, read-only, locked, not there. Worth another try once that changed.
    #[error("{0}")]
    Unavailable(String),
    /// A later version wrote this store. Never migrated back, never reset.
    #[error("{0}")]
    Newer(String),
    /// Stored data is not what was written.
    #[error("{0}")]
    Damaged(String),
}

/// Which [`crate::Cap`] was reached: how many there are, of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    #[error("{waiting} messages wait in this session already, of at most {most}; try again later")]
    Queue { waiting: u32, most: u32 },
    #[error("the session has {live} live children, of at most {most}")]
    Children { live: u32, most: u32 },
    #[error("{runs} runs were begun by one request, of at most {most}")]
    Tree { runs: u32, most: u32 },
}

impl Error {
    /// Turns a database error into a sentence that names the file and the cause.
    pub(crate) fn from_sqlite(file: &Path, error: &rusqlite::Error) -> Self {
        let path = file.display();
        let Some(code) = error.sqlite_error_code() else {
            return Self::Damaged(format!("the store {path} answered something unexpected: {error}"));
        };
        match code {
            _ if code == ErrorCode::DiskFull || is_without_room_to_read(error) => Self::Unavailable(format!(
                "no space left for the store {path}: free some space, then try again; nothing was lost"
            )),
            ErrorCode::ReadOnly => Self::Unavailable(format!(
                "the store {path} is read-only: make the file and its directory writable, then try again"
            )),
            // Reading, too, makes a file beside the store.
            ErrorCode::CannotOpen if is_on_read_only_disk(file) => Self::Unavailable(format!(
                "the store {path} is on a file system that is read-only: make it writable, then try again"
            )),
            ErrorCode::CannotOpen | ErrorCode::PermissionDenied => Self::Unavailable(format!(
                "cannot open the store {path}: check that it is a file in a directory that you may write"
            )),
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
                Self::Unavailable(format!("the store {path} stayed locked by another process; try again"))
            }
            ErrorCode::DatabaseCorrupt => Self::Damaged(format!(
                "the store {path} is damaged ({error}); `sess doctor --salvage <new dir>` copies what can be read"
            )),
            _ if code == ErrorCode::NotADatabase || is_unknown_format(error) => Self::Damaged(format!(
                "{path} is not a sess store, or its first page is damaged; \
                 `sess doctor --salvage <new dir>` copies what can be read"
            )),
            _ => Self::Unavailable(format!("the store {path} failed: {error}")),
        }
    }

    pub(crate) fn from_io(what: &str, path: &Path, error: &std::io::Error) -> Self {
        Self::Unavailable(format!("cannot {what} {}: {error}", path.display()))
    }
}

/// SQLite has no code of its own for a header whose format number is damaged.
fn is_unknown_format(error: &rusqlite::Error) -> bool {
    matches!(error, rusqlite::Error::SqliteFailure(_, Some(text)) if text.contains("unsupported file format"))
        || matches!(error, rusqlite::Error::SqlInputError { msg, .. } if msg.contains("unsupported file format"))
}

/// Reading makes a small file beside the store, and on a full disk there is no room for it.
fn is_without_room_to_read(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE)
}

pub(crate) fn is_on_read_only_disk(file: &Path) -> bool {
    rustix::fs::statvfs(file).is_ok_and(|disk| disk.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
}
