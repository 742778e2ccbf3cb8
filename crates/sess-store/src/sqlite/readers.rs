//! A few connections that read while the writer writes.

use std::{
    path::{Path, PathBuf},
    sync::{Condvar, Mutex, PoisonError},
};

use rusqlite::Connection;

use super::{
    connection::{self, Access},
    writer::leave_untouched,
};
use crate::{Error, Result};

/// Bounded, because each connection keeps a page cache.
const CONNECTIONS_MAX: usize = 4;

pub(super) struct Readers {
    path: PathBuf,
    pool: Mutex<Pool>,
    returned: Condvar,
}

#[derive(Default)]
struct Pool {
    idle: Vec<Connection>,
    lent: usize,
}

impl Readers {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), pool: Mutex::default(), returned: Condvar::new() }
    }

    /// Runs `query` on a connection of its own.
    ///
    /// It runs where it is called: a page of messages takes microseconds, less
    /// than handing it to another thread would.
    pub(super) fn read<T>(&self, query: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let connection = self.borrow()?;
        let answer = query(&connection);
        self.give_back(connection, answer.as_ref().err());
        answer
    }

    /// Runs `query`, whose only errors are the database's.
    pub(super) fn query<T>(&self, query: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        self.read(|connection| query(connection).map_err(|error| Error::from_sqlite(&self.path, &error)))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn borrow(&self) -> Result<Connection> {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        while pool.idle.is_empty() && pool.lent >= CONNECTIONS_MAX {
            pool = self.returned.wait(pool).unwrap_or_else(PoisonError::into_inner);
        }
        pool.lent += 1;
        if let Some(connection) = pool.idle.pop() {
            return Ok(connection);
        }
        drop(pool);
        connection::connect(&self.path, Access::Read).inspect_err(|_| self.end_loan(None))
    }

    fn give_back(&self, connection: Connection, error: Option<&Error>) {
        // A connection that met damage or a failing disk is not trusted again.
        let kept = match error {
            Some(Error::Damaged(_)) => {
                leave_untouched(&connection);
                None
            }
            Some(Error::Unavailable(_)) => None,
            _ => Some(connection),
        };
        self.end_loan(kept);
    }

    fn end_loan(&self, connection: Option<Connection>) {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        pool.lent -= 1;
        pool.idle.extend(connection);
        self.returned.notify_one();
    }
}
