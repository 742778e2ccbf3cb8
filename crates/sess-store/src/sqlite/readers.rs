//! A few connections that read while the writer writes.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{
        Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use rusqlite::{Connection, ErrorCode};

use super::{
    connection::{self, Access},
    writer::leave_untouched,
};
use crate::{Error, Result};

/// Bounded, because each connection keeps a page cache.
const CONNECTIONS_MAX: usize = 4;

/// Names of the temporary schema come first: every query reads the tables themselves.
const WITHOUT_INDEXES: &str = "
CREATE TEMP VIEW sessions AS SELECT * FROM main.sessions NOT INDEXED;
CREATE TEMP VIEW messages AS SELECT * FROM main.messages NOT INDEXED;
CREATE TEMP VIEW plans AS SELECT * FROM main.plans NOT INDEXED;
CREATE TEMP VIEW plan_revisions AS SELECT * FROM main.plan_revisions NOT INDEXED;
CREATE TEMP VIEW runs AS SELECT * FROM main.runs NOT INDEXED;
CREATE TEMP VIEW events AS SELECT * FROM main.events NOT INDEXED;
CREATE TEMP VIEW outbox AS SELECT * FROM main.outbox NOT INDEXED;
";

pub(super) struct Readers {
    path: PathBuf,
    damage: Damage,
    pool: Mutex<Pool>,
    returned: Condvar,
    generation: AtomicU64,
}

#[derive(Default)]
struct Pool {
    idle: Vec<Connection>,
    lent: usize,
}

/// The first damaged page that anybody met. From then on nothing is written:
/// what can still be read stays as it is, for salvage.
#[derive(Default)]
pub(super) struct Damage(OnceLock<Error>);

impl Damage {
    /// Turns a database error into ours, and remembers it when a page is damaged.
    pub(super) fn note(&self, path: &Path, error: &rusqlite::Error) -> Error {
        let told = Error::from_sqlite(path, error);
        if matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)) {
            self.0.get_or_init(|| {
                leave_mark(path, &told);
                told.clone()
            });
        }
        told
    }

    /// Takes over what another process found out about this very file.
    pub(super) fn recall(&self, path: &Path) {
        let Ok(mark) = fs::read_to_string(connection::suffixed(path, MARK)) else { return };
        if let Some((file, told)) = mark.split_once('\n')
            && fingerprint(path).is_some_and(|now| now == file)
        {
            self.0.get_or_init(|| Error::Damaged(told.trim_end().to_owned()));
        }
    }

    pub(super) fn found(&self) -> Option<&Error> {
        self.0.get()
    }
}

/// What is added to the store's name for the mark of its damage.
const MARK: &str = "-damaged";

/// Tells other processes, also those to come, that this file must stay as it is.
///
/// The mark is of one state of one file: a store that was put back is another.
pub(super) fn leave_mark(path: &Path, told: &Error) {
    let Some(file) = fingerprint(path) else { return };
    let marked = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(connection::suffixed(path, MARK))
        .and_then(|mut mark| mark.write_all(format!("{file}\n{told}\n").as_bytes()));
    if let Err(error) = marked {
        tracing::warn!(%error, "other processes may still write to the damaged store");
    }
}

fn fingerprint(path: &Path) -> Option<String> {
    let found = fs::metadata(path).ok()?;
    Some(format!("{} {} {}.{}", found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
}

impl Readers {
    pub(super) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            damage: Damage::default(),
            pool: Mutex::default(),
            returned: Condvar::new(),
            generation: AtomicU64::new(0),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn damage(&self) -> &Damage {
        &self.damage
    }

    /// Closes what is open, so that the next use opens the file anew.
    ///
    /// Connections of one process share what SQLite knows of the file: one that was opened
    /// while the disk was read-only would keep all others read-only.
    pub(super) fn close_idle(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
        let idle = std::mem::take(&mut self.lock().idle);
        drop(idle);
    }

    /// Changes when connections that are kept elsewhere should be opened anew, too.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `query` on a connection of its own.
    ///
    /// It runs where it is called: a page of messages takes microseconds, less
    /// than handing it to another thread would.
    pub(super) fn read<T>(&self, query: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let mut loan = self.borrow()?;
        let connection = loan.connection.take().expect("a loan starts with its connection");
        let answer = query(&connection);
        match &answer {
            // A connection that met damage or a failing disk is not trusted again.
            Err(Error::Damaged(_)) => leave_untouched(&connection),
            Err(Error::Unavailable(_)) => {}
            _ => loan.connection = Some(connection),
        }
        answer
    }

    /// Runs `query`, whose only errors are the database's. A damaged index costs itself:
    /// the query is run once more without any.
    pub(super) fn query<T>(&self, query: impl Fn(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        let answer = self.query_once(&query);
        if !matches!(answer, Err(Error::Damaged(_))) {
            return answer;
        }
        let Ok(connection) = connection::connect(&self.path, Access::Read) else { return answer };
        leave_untouched(&connection);
        let careful = connection.execute_batch(WITHOUT_INDEXES).and_then(|()| query(&connection));
        match careful {
            Ok(found) => {
                tracing::warn!("an index of the store is damaged; `sess doctor` says more");
                Ok(found)
            }
            Err(_) => answer,
        }
    }

    /// Runs a query that cannot be run twice.
    pub(super) fn query_once<T>(&self, query: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        self.read(|connection| query(connection).map_err(|error| self.failed(&error)))
    }

    /// Says what a failed query means, and keeps the store as it is when it is damaged.
    pub(super) fn failed(&self, error: &rusqlite::Error) -> Error {
        self.damage.note(&self.path, error)
    }

    fn borrow(&self) -> Result<Loan<'_>> {
        let mut pool = self.lock();
        while pool.idle.is_empty() && pool.lent >= CONNECTIONS_MAX {
            pool = self.returned.wait(pool).unwrap_or_else(PoisonError::into_inner);
        }
        pool.lent += 1;
        let idle = pool.idle.pop();
        drop(pool);
        let mut loan = Loan { readers: self, connection: idle };
        if loan.connection.is_none() {
            loan.connection = Some(connection::connect(&self.path, Access::Read)?);
        }
        Ok(loan)
    }
}

/// A connection on its way back, also out of a query that panicked.
struct Loan<'a> {
    readers: &'a Readers,
    connection: Option<Connection>,
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        let mut pool = self.readers.lock();
        pool.lent -= 1;
        pool.idle.extend(self.connection.take());
        self.readers.returned.notify_one();
    }
}
