//! The tables, and how an older store becomes today's.

use std::path::Path;

use rusqlite::Connection;

use crate::{Error, Result};

/// Each entry takes the schema one version further. Entries are only ever added.
///
/// `messages.n` and `events.n` are drawn from one sequence in commit order: a
/// position in it is a place in the order of everything. Rowid tables with a
/// unique index on `(session, seq)` write several times less than clustered
/// ones when many sessions are active. `crc` covers what must not change
/// unnoticed; counters that every append touches are checked against the
/// messages instead.
const MIGRATIONS: &[&str] = &["
CREATE TABLE sessions (
    n INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    key TEXT NOT NULL,
    agent TEXT NOT NULL,
    source TEXT NOT NULL,
    title TEXT NOT NULL,
    cwd TEXT,
    parent TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    num_messages INTEGER NOT NULL,
    starred INTEGER NOT NULL,
    archived_at INTEGER,
    crc INTEGER NOT NULL
);
CREATE INDEX sessions_by_key ON sessions (key, n);
CREATE INDEX sessions_by_parent ON sessions (parent, created_at) WHERE parent IS NOT NULL;
CREATE INDEX sessions_recent ON sessions (updated_at DESC, created_at DESC, id)
    WHERE parent IS NULL AND archived_at IS NULL;
CREATE INDEX sessions_recent_by_agent ON sessions (agent, updated_at DESC, created_at DESC, id)
    WHERE parent IS NULL AND archived_at IS NULL;
CREATE INDEX sessions_recent_by_source ON sessions (source, updated_at DESC, created_at DESC, id)
    WHERE parent IS NULL AND archived_at IS NULL AND source <> 'native';

CREATE TABLE messages (
    n INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    id TEXT NOT NULL,
    shape INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    body TEXT NOT NULL,
    UNIQUE (session, seq)
);

CREATE TABLE plans (
    session INTEGER PRIMARY KEY,
    revision INTEGER NOT NULL,
    state TEXT NOT NULL,
    announced INTEGER NOT NULL,
    swept INTEGER NOT NULL
);
CREATE TABLE plan_revisions (
    n INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    agent TEXT NOT NULL,
    at INTEGER NOT NULL,
    state_before TEXT,
    size_bytes INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    content TEXT NOT NULL,
    UNIQUE (session, revision)
);

CREATE TABLE events (
    n INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    at INTEGER NOT NULL,
    kind TEXT NOT NULL,
    crc INTEGER NOT NULL,
    data TEXT NOT NULL
);

CREATE TABLE requests (
    key TEXT PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    answer TEXT NOT NULL
) WITHOUT ROWID;
"];

/// The schema this program writes.
pub(super) const VERSION: i64 = MIGRATIONS.len() as i64;

/// Brings the store to [`VERSION`], one version a transaction.
///
/// Two processes may start at once: whoever gets the write lock second finds
/// the work done. A process killed in the middle leaves the version before.
pub(super) fn migrate(connection: &mut Connection, path: &Path) -> Result<()> {
    let sqlite = |error: &rusqlite::Error| Error::from_sqlite(path, error);
    while version(connection, path)? < VERSION {
        let step = connection
            .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
            .map_err(|error| sqlite(&error))?;
        let version = version(&step, path)?;
        if version < VERSION {
            let sql = MIGRATIONS[usize::try_from(version).unwrap_or(0)];
            step.execute_batch(sql).map_err(|error| sqlite(&error))?;
            step.pragma_update(None, "user_version", version + 1).map_err(|error| sqlite(&error))?;
        }
        step.commit().map_err(|error| sqlite(&error))?;
    }
    Ok(())
}

/// Returns the store's version; refuses one that this program does not know.
pub(super) fn version(connection: &Connection, path: &Path) -> Result<i64> {
    let version: i64 = connection
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(|error| Error::from_sqlite(path, &error))?;
    if version > VERSION {
        return Err(Error::Newer(format!(
            "the store {} was written by a newer sess (schema {version}, this one knows {VERSION}); \
             update sess, nothing was changed",
            path.display()
        )));
    }
    Ok(version)
}
