//! The one thread of this process that writes.
//!
//! Callers hand it jobs; it takes what has queued up, runs all of it in one
//! transaction and pays one disk flush for the group. A job that fails is
//! rolled back alone. Nobody hears of success before the commit.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::JoinHandle,
};

use rusqlite::{Connection, config::DbConfig};
use tokio::sync::{oneshot, watch};

use super::connection::{self, Access};
use crate::{Error, Result};

/// How many jobs may wait before callers are held back.
const QUEUE_LEN_MAX: usize = 4_096;
/// How many jobs share one flush.
const GROUP_LEN_MAX: usize = 512;
/// A log of this size is worth moving into the file, beside the commits.
const CHECKPOINT_AT_BYTES: u64 = 4 << 20;
/// A log of this size makes the writer wait until it has been moved.
const CHECKPOINT_NOW_BYTES: u64 = 64 << 20;

/// What a job may use while it runs.
pub(super) struct Transaction<'a> {
    connection: &'a Connection,
    next_position: u64,
}

impl Transaction<'_> {
    pub(super) fn connection(&self) -> &Connection {
        self.connection
    }

    /// Returns the next place in the order of everything.
    pub(super) fn take_position(&mut self) -> i64 {
        let position = self.next_position;
        self.next_position += 1;
        i64::try_from(position).unwrap_or(i64::MAX)
    }
}

pub(super) enum JobError {
    /// The request does not fit what is stored.
    Refused(Error),
    /// The database said no.
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for JobError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<Error> for JobError {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

pub(super) type JobResult<T> = std::result::Result<T, JobError>;

/// A job whose answer waits for the commit.
trait Job: Send {
    fn run(&mut self, transaction: &mut Transaction<'_>) -> JobResult<()>;
    fn settle(self: Box<Self>, outcome: Result<()>);
}

struct Typed<T, F> {
    work: Option<F>,
    answer: Option<T>,
    caller: oneshot::Sender<Result<T>>,
}

impl<T, F> Job for Typed<T, F>
where
    T: Send,
    F: FnOnce(&mut Transaction<'_>) -> JobResult<T> + Send,
{
    fn run(&mut self, transaction: &mut Transaction<'_>) -> JobResult<()> {
        let work = self.work.take().expect("a job runs once");
        self.answer = Some(work(transaction)?);
        Ok(())
    }

    fn settle(self: Box<Self>, outcome: Result<()>) {
        let Self { answer, caller, work: _ } = *self;
        let answer = outcome.map(|()| answer.expect("a job that succeeded has an answer"));
        // A caller that went away no longer wants to know; the commit stands.
        let _gone = caller.send(answer);
    }
}

/// The handle that callers hold.
pub(super) struct Writer {
    queue: Option<SyncSender<Box<dyn Job>>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts the thread; the file is opened at the first job.
    pub(super) fn start(
        path: &Path,
        committed: Arc<watch::Sender<u64>>,
        derived: SyncSender<()>,
    ) -> Result<Self> {
        let (queue, jobs) = sync_channel(QUEUE_LEN_MAX);
        let path = path.to_owned();
        let thread = std::thread::Builder::new()
            .name("sess-writer".to_owned())
            .stack_size(512 * 1024)
            .spawn(move || {
                Writing { path, connection: None, committed, derived, checkpointer: None }.run(&jobs)
            })
            .map_err(|error| Error::Unavailable(format!("cannot start the writer thread: {error}")))?;
        Ok(Self { queue: Some(queue), thread: Some(thread) })
    }

    /// Runs `work` in a transaction, and returns when it is durable.
    pub(super) async fn write<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Transaction<'_>) -> JobResult<T> + Send + 'static,
    {
        let stopped = || Error::Unavailable("the store is closed".to_owned());
        let (caller, answer) = oneshot::channel();
        let job = Box::new(Typed { work: Some(work), answer: None, caller });
        let queue = self.queue.as_ref().ok_or_else(stopped)?;
        queue.send(job).map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Closing the queue lets the thread finish what waits, and end.
        self.queue = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the writer thread panicked");
        }
    }
}

struct Writing {
    path: PathBuf,
    connection: Option<Connection>,
    committed: Arc<watch::Sender<u64>>,
    derived: SyncSender<()>,
    checkpointer: Option<Checkpointer>,
}

impl Writing {
    fn run(mut self, jobs: &Receiver<Box<dyn Job>>) {
        let mut group = Vec::new();
        while let Ok(first) = jobs.recv() {
            group.push(first);
            group.extend(jobs.try_iter().take(GROUP_LEN_MAX - 1));
            self.commit(std::mem::take(&mut group));
        }
    }

    fn commit(&mut self, mut group: Vec<Box<dyn Job>>) {
        let connection = match self.connection.take() {
            Some(connection) => Ok(connection),
            None => connection::connect(&self.path, Access::Write),
        };
        let connection = match connection {
            Ok(connection) => connection,
            Err(error) => return group.into_iter().for_each(|job| job.settle(Err(error.clone()))),
        };
        match run_group(&connection, &mut group) {
            Ok(outcomes) => {
                self.committed.send_modify(|count| *count += 1);
                // A full queue means that index and mirror are about to look anyway.
                let _already_poked = self.derived.try_send(());
                for (job, outcome) in group.into_iter().zip(outcomes) {
                    job.settle(outcome);
                }
                self.checkpoint(&connection);
                self.connection = Some(connection);
            }
            Err(error) => {
                // A failed flush must not be tried again on the same handle: what the
                // kernel dropped would count as written. The next job opens the file anew.
                let error = Error::from_sqlite(&self.path, &error);
                if matches!(error, Error::Damaged(_)) {
                    leave_untouched(&connection);
                }
                drop(connection);
                for job in group {
                    job.settle(Err(error.clone()));
                }
            }
        }
    }

    /// Moves the log into the file once it is long: beside the commits while that is enough.
    fn checkpoint(&mut self, connection: &Connection) {
        let size = fs::metadata(connection::wal_path(&self.path)).map_or(0, |data| data.len());
        if size < CHECKPOINT_AT_BYTES {
            return;
        }
        if size > CHECKPOINT_NOW_BYTES {
            // Readers at other places of the log may hold this back: not an error.
            let moved = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
            if let Err(error) = moved {
                tracing::warn!(%error, "the write-ahead log could not be moved into the store");
            }
            return;
        }
        let path = &self.path;
        self.checkpointer.get_or_insert_with(|| Checkpointer::start(path)).poke();
    }
}

/// Runs each job in its own savepoint and commits them together.
///
/// Returns what became of each job; an error means that nothing was written.
fn run_group(connection: &Connection, group: &mut [Box<dyn Job>]) -> rusqlite::Result<Vec<Result<()>>> {
    let _open = RollBack(connection);
    connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    let head: i64 = connection
        .prepare_cached(
            "SELECT max(coalesce((SELECT max(n) FROM messages), 0), coalesce((SELECT max(n) FROM events), 0))",
        )?
        .query_row([], |row| row.get(0))?;
    let mut transaction = Transaction { connection, next_position: u64::try_from(head).unwrap_or(0) + 1 };
    let mut outcomes = Vec::with_capacity(group.len());
    for job in group {
        connection.prepare_cached("SAVEPOINT job")?.execute([])?;
        match job.run(&mut transaction) {
            Ok(()) => outcomes.push(Ok(())),
            Err(JobError::Refused(error)) => {
                connection.prepare_cached("ROLLBACK TO job")?.execute([])?;
                outcomes.push(Err(error));
            }
            // What only this request got wrong costs only this request; a full disk, a
            // failed write or damage costs the group, and SQLite may have rolled it back.
            Err(JobError::Sqlite(error)) if is_of_the_request(&error) => {
                connection.prepare_cached("ROLLBACK TO job")?.execute([])?;
                outcomes.push(Err(Error::Conflict(format!("the store refused the request: {error}"))));
            }
            Err(JobError::Sqlite(error)) => return Err(error),
        }
        connection.prepare_cached("RELEASE job")?.execute([])?;
    }
    connection.prepare_cached("COMMIT")?.execute([])?;
    Ok(outcomes)
}

fn is_of_the_request(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{ConstraintViolation, TooBig, TypeMismatch};
    matches!(error.sqlite_error_code(), Some(ConstraintViolation | TooBig | TypeMismatch))
}

/// Leaves no transaction open when a group fails half-way.
struct RollBack<'a>(&'a Connection);

impl Drop for RollBack<'_> {
    fn drop(&mut self) {
        if !self.0.is_autocommit()
            && let Err(error) = self.0.execute_batch("ROLLBACK")
        {
            tracing::warn!(%error, "a failed transaction could not be rolled back; the store is reopened");
        }
    }
}

/// Keeps a damaged file as it is: closing must not move the log into it.
pub(super) fn leave_untouched(connection: &Connection) {
    if let Err(error) = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true) {
        tracing::warn!(%error, "closing may still write to the damaged store");
    }
}

/// Moves the log into the file on its own connection, so that no commit waits for it.
struct Checkpointer {
    poke: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    fn start(path: &Path) -> Self {
        let (poke, poked) = sync_channel(1);
        let path = path.to_owned();
        let thread = std::thread::Builder::new()
            .name("sess-checkpoint".to_owned())
            .stack_size(256 * 1024)
            .spawn(move || {
                while poked.recv().is_ok() {
                    let moved = connection::connect(&path, Access::Write).and_then(|connection| {
                        connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).map_err(
                            |error| {
                                leave_untouched(&connection);
                                Error::from_sqlite(&path, &error)
                            },
                        )
                    });
                    if let Err(error) = moved {
                        tracing::warn!(%error, "the write-ahead log could not be moved into the store");
                    }
                }
            });
        // Without the thread the log grows until the writer moves it itself.
        Self { poke: Some(poke), thread: thread.ok() }
    }

    fn poke(&self) {
        // A full queue means that the thread is about to look anyway.
        if let Some(poke) = &self.poke {
            let _already_poked = poke.try_send(());
        }
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.poke = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the checkpoint thread panicked");
        }
    }
}
