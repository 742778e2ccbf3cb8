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
/// messages instead. `owner` is the part of a key that says whose session it is,
/// `agent:<id>:`, whichever agent is active in it.
///
/// `runs.n` is the order of arrival. The queries name a state in their text, because
/// only then does SQLite take the partial indexes, which stay as small as what is open.
/// `runs.root` is empty in the run that is the root itself; `settled` says that nothing
/// is left to follow. `sessions.facts` is empty when they are what the source implies.
/// `tokens.hash` is all that is kept of a token: what lets somebody in is stored nowhere.
const MIGRATIONS: &[&str] = &[
    "
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
    crc INTEGER NOT NULL,
    owner TEXT GENERATED ALWAYS AS (substr(key, 1, 6 + instr(substr(key, 7), ':'))) VIRTUAL
);
CREATE INDEX sessions_by_key ON sessions (key, n);
CREATE INDEX sessions_by_parent ON sessions (parent, created_at) WHERE parent IS NOT NULL;
CREATE INDEX sessions_recent ON sessions (updated_at DESC, created_at DESC, id)
    WHERE parent IS NULL AND archived_at IS NULL;
CREATE INDEX sessions_recent_by_owner ON sessions (owner, updated_at DESC, created_at DESC, id)
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
    swept_before INTEGER NOT NULL,
    request TEXT,
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
",
    "
CREATE TABLE runs (
    n INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    session INTEGER NOT NULL,
    agent TEXT NOT NULL,
    state TEXT NOT NULL,
    queued_at INTEGER NOT NULL,
    started_at INTEGER,
    ended_at INTEGER,
    lease_token TEXT,
    lease_boot TEXT,
    lease_until INTEGER,
    cancelled INTEGER NOT NULL,
    result TEXT,
    error TEXT,
    usage TEXT NOT NULL,
    request TEXT NOT NULL,
    crc INTEGER NOT NULL
);
CREATE INDEX runs_by_session ON runs (session, n);
CREATE INDEX runs_queued ON runs (session, n) WHERE state = 'queued';
CREATE INDEX runs_running ON runs (session, n) WHERE state = 'running';
",
    "
ALTER TABLE sessions ADD COLUMN facts TEXT;
ALTER TABLE sessions ADD COLUMN tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN cost REAL;
ALTER TABLE sessions ADD COLUMN deleted_at INTEGER;
CREATE INDEX sessions_active ON sessions (updated_at DESC, key)
    WHERE archived_at IS NULL AND deleted_at IS NULL;
CREATE INDEX sessions_open_children ON sessions (parent)
    WHERE parent IS NOT NULL AND archived_at IS NULL AND deleted_at IS NULL;
CREATE INDEX sessions_spawned ON sessions (updated_at)
    WHERE instr(facts, '\"isSpawned\":true') AND archived_at IS NULL AND deleted_at IS NULL;

ALTER TABLE runs ADD COLUMN errand TEXT;
ALTER TABLE runs ADD COLUMN root TEXT;
ALTER TABLE runs ADD COLUMN parent TEXT;
ALTER TABLE runs ADD COLUMN hops INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN handed_over_at INTEGER;
ALTER TABLE runs ADD COLUMN node TEXT;
ALTER TABLE runs ADD COLUMN begun INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN inbox INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN settled INTEGER NOT NULL DEFAULT 1;
DROP INDEX runs_queued;
CREATE INDEX runs_waiting ON runs (session, n) WHERE state = 'queued' AND inbox = 0;
CREATE INDEX runs_inbox ON runs (session, n) WHERE state = 'queued' AND inbox = 1;
CREATE INDEX runs_by_root ON runs (root, n) WHERE root IS NOT NULL;
CREATE INDEX runs_unsettled ON runs (session, n) WHERE settled = 0;

CREATE TABLE seats (
    session INTEGER PRIMARY KEY,
    node TEXT NOT NULL,
    boot TEXT NOT NULL,
    until INTEGER NOT NULL,
    pid INTEGER NOT NULL,
    started INTEGER NOT NULL
);
CREATE TABLE outbox (
    n INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    run TEXT NOT NULL,
    channel TEXT NOT NULL,
    address TEXT NOT NULL,
    text TEXT NOT NULL,
    state TEXT NOT NULL,
    tries INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    ended_at INTEGER,
    lease_token TEXT,
    lease_boot TEXT,
    lease_until INTEGER,
    error TEXT,
    crc INTEGER NOT NULL
);
CREATE INDEX outbox_by_session ON outbox (session, n);
CREATE INDEX outbox_waiting ON outbox (channel, n) WHERE state = 'waiting';

CREATE INDEX events_of_plans ON events (session)
    WHERE kind IN ('session_plan_updated', 'session_plan_state');
CREATE INDEX events_of_deletion ON events (n) WHERE kind = 'session_deleted';
",
    "
CREATE TABLE tokens (
    n INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    hash TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    scopes TEXT NOT NULL,
    agent TEXT,
    session TEXT,
    label TEXT,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER
);
",
];

/// What an older store lacks, for a connection that only reads and so cannot migrate it.
///
/// Names of the temporary schema come first.
const STAND_INS: [&str; 4] = [
    "
CREATE TEMP TABLE tokens (n INTEGER PRIMARY KEY, id, hash, kind, scopes, agent, session, label, created_at,
    expires_at, revoked_at);
",
    "
CREATE TEMP VIEW sessions AS SELECT n, id, key, agent, source, title, cwd, parent, created_at, updated_at,
    last_seq, num_messages, starred, archived_at, crc, owner, NULL AS facts, 0 AS tokens, NULL AS cost,
    NULL AS deleted_at FROM main.sessions;
CREATE TEMP TABLE seats (session INTEGER PRIMARY KEY, node, boot, until, pid, started);
CREATE TEMP TABLE outbox (n INTEGER PRIMARY KEY, session, run, channel, address, text, state, tries, created_at,
    due_at, ended_at, lease_token, lease_boot, lease_until, error, crc);
",
    "
CREATE TEMP TABLE runs (n INTEGER PRIMARY KEY, id, session, agent, state, queued_at, started_at, ended_at,
    lease_token, lease_boot, lease_until, cancelled, result, error, usage, request, crc, errand, root, parent,
    hops, handed_over_at, node, begun, attempts, inbox, settled);
",
    "
CREATE TEMP VIEW runs AS SELECT n, id, session, agent, state, queued_at, started_at, ended_at, lease_token,
    lease_boot, lease_until, cancelled, result, error, usage, request, crc, NULL AS errand, NULL AS root,
    NULL AS parent, 0 AS hops, NULL AS handed_over_at, NULL AS node, 0 AS begun, 0 AS attempts, 0 AS inbox,
    1 AS settled FROM main.runs;
",
];

/// Lets a connection that only reads see an older store as one of today. Whatever is wrong with
/// the store is told by whoever reads next.
pub(super) fn stand_in(connection: &Connection) -> rusqlite::Result<()> {
    let version: i64 =
        connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap_or(VERSION);
    let [of_all, of_older, of_first, of_second] = STAND_INS;
    match version {
        FIRST => connection.execute_batch(&format!("{of_all}{of_older}{of_first}")),
        WITH_RUNS => connection.execute_batch(&format!("{of_all}{of_older}{of_second}")),
        WITH_ERRANDS => connection.execute_batch(of_all),
        _ => Ok(()),
    }
}

/// The oldest schema there is.
pub(super) const FIRST: i64 = 1;
/// The oldest schema that has runs.
pub(super) const WITH_RUNS: i64 = 2;
/// The oldest schema in which sessions talk to each other.
const WITH_ERRANDS: i64 = 3;
/// The schema this program writes.
pub(super) const VERSION: i64 = MIGRATIONS.len() as i64;

/// Brings the store to [`VERSION`], one version a transaction.
///
/// Two processes may start at once: whoever gets the write lock second finds
/// the work done. A process killed in the middle leaves the version before.
pub(super) fn migrate(connection: &mut Connection, path: &Path) -> Result<()> {
    migrate_through(MIGRATIONS, connection, path)
}

fn migrate_through(migrations: &[&str], connection: &mut Connection, path: &Path) -> Result<()> {
    let sqlite = |error: &rusqlite::Error| Error::from_sqlite(path, error);
    let newest = migrations.len() as i64;
    while stored_version(connection, path)? < newest {
        let step = connection
            .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
            .map_err(|error| sqlite(&error))?;
        let version = stored_version(&step, path)?;
        if version < newest {
            let sql = migrations[usize::try_from(version).unwrap_or(0)];
            step.execute_batch(sql).map_err(|error| sqlite(&error))?;
            step.pragma_update(None, "user_version", version + 1).map_err(|error| sqlite(&error))?;
        }
        step.commit().map_err(|error| sqlite(&error))?;
    }
    Ok(())
}

/// A version further ahead than this is taken for damage, not for a newer program.
const VERSIONS_AHEAD_MAX: i64 = 1_000;

/// Returns the store's version; refuses one that this program does not know.
pub(super) fn version(connection: &Connection, path: &Path) -> Result<i64> {
    let version = stored_version(connection, path)?;
    if !(0..=VERSION + VERSIONS_AHEAD_MAX).contains(&version) {
        return Err(Error::Damaged(format!(
            "the store {} is damaged: its version is {version}; nothing was changed; \
             `sess doctor --salvage <new dir>` copies what can be read",
            path.display()
        )));
    }
    if version > VERSION {
        return Err(Error::Newer(format!(
            "the store {} was written by a newer sess (schema {version}, this one knows {VERSION}); \
             update sess, nothing was changed",
            path.display()
        )));
    }
    Ok(version)
}

fn stored_version(connection: &Connection, path: &Path) -> Result<i64> {
    connection
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(|error| Error::from_sqlite(path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: &[&str] = &[
        "CREATE TABLE a (x); INSERT INTO a VALUES (1), (2);",
        "ALTER TABLE a ADD y; UPDATE a SET y = x * 10;",
    ];

    fn sum(connection: &Connection) -> i64 {
        connection.query_row("SELECT sum(y) FROM a", [], |row| row.get(0)).expect("a migrated table")
    }

    #[test]
    fn a_migration_that_ended_half_way_is_done_again_from_its_start() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a.db");
        let mut connection = Connection::open(&path).expect("a database");
        let broken = [LATER[0], "ALTER TABLE a ADD y; UPDATE a SET y = x * 10; SELECT no_such_function();"];
        migrate_through(&broken, &mut connection, &path).expect_err("it fails at its last statement");
        assert_eq!(stored_version(&connection, &path), Ok(1));
        connection.execute("UPDATE a SET y = 0", []).expect_err("nothing of the second step is there");
        migrate_through(LATER, &mut connection, &path).expect("it resumes");
        assert_eq!((stored_version(&connection, &path), sum(&connection)), (Ok(2), 30));
    }

    #[test]
    fn a_process_killed_in_a_migration_leaves_the_version_before() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a.db");
        let mut connection = Connection::open(&path).expect("a database");
        connection.pragma_update(None, "journal_mode", "WAL").expect("a log");
        // Pages go into the log before the commit, as in a migration larger than the cache.
        connection.pragma_update(None, "cache_size", 1).expect("a small cache");
        migrate_through(&LATER[..1], &mut connection, &path).expect("the first version");
        connection.execute_batch("BEGIN IMMEDIATE").expect("a transaction");
        connection.execute_batch(LATER[1]).expect("half a migration");
        connection.execute_batch("CREATE TABLE b AS SELECT zeroblob(100000) AS x").expect("more pages");
        // What a kill leaves is the files as they are now.
        for suffix in ["", "-wal"] {
            let name = |stem: &str| dir.path().join(format!("{stem}.db{suffix}"));
            std::fs::copy(name("a"), name("killed")).expect("a copy");
        }
        let path = dir.path().join("killed.db");
        let mut killed = Connection::open(&path).expect("the database of the killed process");
        assert_eq!(stored_version(&killed, &path), Ok(1));
        migrate_through(LATER, &mut killed, &path).expect("it resumes");
        assert_eq!((stored_version(&killed, &path), sum(&killed)), (Ok(2), 30));
    }
}
