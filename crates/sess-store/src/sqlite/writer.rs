//! The one thread of this process that writes.
//!
//! Callers hand it jobs; it takes what has queued up, runs all of it in one
//! transaction and pays one disk flush for the group. A job that fails is
//! rolled back alone. Nobody hears of success before the commit.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use rusqlite::{Connection, config::DbConfig, hooks::Wal};
use tokio::sync::{oneshot, watch};

use super::{
    connection::{self, Access, Identity},
    feed,
    readers::Readers,
};
use crate::{Error, Result};

/// How many jobs may wait before callers are held back.
const QUEUE_LEN_MAX: usize = 4_096;
/// How many jobs share one flush.
const GROUP_LEN_MAX: usize = 512;
/// Each time the log grew by this much, it is moved into the file beside the commits.
const CHECKPOINT_AT_PAGES: u32 = 1_024;
/// A log of this length makes the writer move the rest, and start it from the front.
const CHECKPOINT_NOW_PAGES: u32 = 8_192;
/// How long the writer waits for readers that hold the log back.
const READERS_WAIT_MAX: Duration = Duration::from_millis(20);

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

impl JobError {
    /// Tells whether the session asked for is not there.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self, Self::Refused(Error::NoSession(_)))
    }

    /// Tells whether the request is at fault, and not the disk or the store.
    pub(super) fn is_of_the_request(&self) -> bool {
        match self {
            Self::Refused(_) => true,
            Self::Sqlite(error) => is_of_the_request(error),
        }
    }
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
    thread: Option<JoinHandle<Option<Connection>>>,
}

impl Writer {
    /// Starts the thread; the file is opened at the first job.
    pub(super) fn start(
        path: &Path,
        committed: Arc<watch::Sender<u64>>,
        derived: SyncSender<()>,
        readers: Arc<Readers>,
    ) -> Result<Self> {
        let (queue, jobs) = sync_channel(QUEUE_LEN_MAX);
        let writing = Writing {
            path: path.to_owned(),
            identity: connection::identity(path),
            connection: None,
            committed,
            derived,
            readers,
            log_pages: Arc::default(),
            checkpointer: None,
            next_poke_pages: CHECKPOINT_AT_PAGES,
            wait_until_pages: 0,
        };
        let thread = std::thread::Builder::new()
            .name("sess-writer".to_owned())
            .stack_size(512 * 1024)
            .spawn(move || writing.run(&jobs))
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

impl Writer {
    /// Ends the thread after what waits, and returns its connection, to be closed last.
    pub(super) fn finish(&mut self) -> Option<Connection> {
        self.queue = None;
        match self.thread.take()?.join() {
            Ok(connection) => connection,
            Err(_) => {
                tracing::error!("the writer thread panicked");
                None
            }
        }
    }
}

struct Writing {
    path: PathBuf,
    /// The file that was opened; another one under its name is not ours to write.
    identity: Option<Identity>,
    connection: Option<Connection>,
    committed: Arc<watch::Sender<u64>>,
    derived: SyncSender<()>,
    readers: Arc<Readers>,
    /// How long the log was after the last commit.
    log_pages: Arc<AtomicU32>,
    checkpointer: Option<Checkpointer>,
    /// The next length of the log at which it is worth moving.
    next_poke_pages: u32,
    /// Readers held the log back: do not wait for them again before it is this long.
    wait_until_pages: u32,
}

impl Writing {
    fn run(mut self, jobs: &Receiver<Box<dyn Job>>) -> Option<Connection> {
        let mut group = Vec::new();
        while let Ok(first) = jobs.recv() {
            group.push(first);
            group.extend(jobs.try_iter().take(GROUP_LEN_MAX - 1));
            self.commit(std::mem::take(&mut group));
        }
        if let Some(connection) = &self.connection
            && self.readers.damage().found().is_some()
        {
            leave_untouched(connection);
        }
        self.connection
    }

    fn commit(&mut self, mut group: Vec<Box<dyn Job>>) {
        let mut connection = match self.open() {
            Ok(connection) => connection,
            Err(error) => return settle_all(group, &error),
        };
        let before = connection.total_changes();
        match run_group(&self.path, &connection, &mut group) {
            Ok(outcomes) => {
                // What changed nothing is nobody's news.
                if connection.total_changes() != before {
                    self.committed.send_modify(|count| *count += 1);
                    // A full queue means that index and mirror are about to look anyway.
                    let _already_poked = self.derived.try_send(());
                }
                for (job, outcome) in group.into_iter().zip(outcomes) {
                    job.settle(outcome);
                }
                self.checkpoint(&mut connection);
                self.connection = Some(connection);
            }
            Err(error) => {
                // A failed flush must not be tried again on the same handle: what the
                // kernel dropped would count as written. The next job opens the file anew.
                let error = self.readers.damage().note(&self.path, &error);
                if matches!(error, Error::Damaged(_)) {
                    leave_untouched(&connection);
                }
                drop(connection);
                self.readers.close_idle();
                settle_all(group, &error);
            }
        }
    }

    /// Returns the connection, or the reason why nothing may be written now.
    fn open(&mut self) -> Result<Connection> {
        if let Some(damage) = self.readers.damage().found() {
            if let Some(connection) = self.connection.take() {
                leave_untouched(&connection);
            }
            return Err(damage.clone());
        }
        // Else a commit would be acknowledged into a file that nobody finds again.
        if connection::identity(&self.path) != self.identity {
            return Err(Error::Unavailable(format!(
                "the store {} was moved, removed or replaced while it was in use; put it back or start again",
                self.path.display()
            )));
        }
        if let Some(connection) = self.connection.take() {
            return Ok(connection);
        }
        let mut connection = connection::connect(&self.path, Access::Write)?;
        let log_pages = Arc::clone(&self.log_pages);
        connection
            .wal_hook(Some(move |_: &mut Wal, pages| {
                log_pages.store(u32::try_from(pages).unwrap_or(0), Ordering::Relaxed);
                Ok(())
            }))
            .map_err(|error| Error::from_sqlite(&self.path, &error))?;
        Ok(connection)
    }

    /// Moves the log into the file once it is long: beside the commits while that is enough.
    ///
    /// The log's file keeps its size, because writing over it costs less than
    /// making it longer; so its pages are counted, not its bytes.
    fn checkpoint(&mut self, connection: &mut Connection) {
        let pages = self.log_pages.load(Ordering::Relaxed);
        if pages < CHECKPOINT_AT_PAGES {
            (self.next_poke_pages, self.wait_until_pages) = (CHECKPOINT_AT_PAGES, 0);
            return;
        }
        if pages >= CHECKPOINT_NOW_PAGES.max(self.wait_until_pages) {
            if !restart_log(connection) {
                self.wait_until_pages = pages.saturating_add(CHECKPOINT_NOW_PAGES);
            }
        } else if pages >= self.next_poke_pages {
            self.next_poke_pages = pages + CHECKPOINT_AT_PAGES;
            let readers = &self.readers;
            self.checkpointer.get_or_insert_with(|| Checkpointer::start(readers)).poke();
        }
    }
}

fn settle_all(group: Vec<Box<dyn Job>>, error: &Error) {
    for job in group {
        job.settle(Err(error.clone()));
    }
}

/// Moves the rest of the log, and lets the next commit start it from the front.
///
/// Returns whether it did: a reader in another process may hold the log back,
/// and no commit waits for one longer than a moment.
fn restart_log(connection: &mut Connection) -> bool {
    let moved = connection.busy_timeout(READERS_WAIT_MAX).and_then(|()| {
        connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |row| row.get::<_, bool>(0))
    });
    if let Err(error) = connection.busy_handler(Some(connection::wait_a_little)) {
        tracing::warn!(%error, "the writer may give up too early on a locked store");
    }
    match moved {
        Ok(is_held_back) => !is_held_back,
        Err(error) => {
            tracing::warn!(%error, "the write-ahead log could not be moved into the store");
            false
        }
    }
}

/// Runs each job in its own savepoint and commits them together.
///
/// Returns what became of each job; an error means that nothing was written.
fn run_group(
    path: &Path,
    connection: &Connection,
    group: &mut [Box<dyn Job>],
) -> rusqlite::Result<Vec<Result<()>>> {
    let _open = RollBack(connection);
    connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    let mut transaction = Transaction { connection, next_position: feed::head(connection)?.0 + 1 };
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
            // A row that is not what it should be: it costs those who need it.
            Err(JobError::Sqlite(error)) if error.sqlite_error_code().is_none() => {
                connection.prepare_cached("ROLLBACK TO job")?.execute([])?;
                outcomes.push(Err(Error::from_sqlite(path, &error)));
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
    fn start(readers: &Arc<Readers>) -> Self {
        let (poke, poked) = sync_channel(1);
        let readers = Arc::clone(readers);
        let thread = std::thread::Builder::new()
            .name("sess-checkpoint".to_owned())
            .stack_size(256 * 1024)
            .spawn(move || move_log(&readers, &poked));
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

fn move_log(readers: &Readers, poked: &Receiver<()>) {
    let mut kept: Option<(Connection, u64)> = None;
    while poked.recv().is_ok() && readers.damage().found().is_none() {
        let generation = readers.generation();
        let connection = match kept.take() {
            Some((connection, opened)) if opened == generation => Ok(connection),
            _ => connection::connect(readers.path(), Access::Write),
        };
        let connection = match connection {
            Ok(connection) => connection,
            Err(error) => {
                tracing::warn!(%error, "the write-ahead log could not be moved into the store");
                continue;
            }
        };
        match connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())) {
            Ok(()) => kept = Some((connection, generation)),
            Err(error) => {
                leave_untouched(&connection);
                let error = readers.failed(&error);
                tracing::warn!(%error, "the write-ahead log could not be moved into the store");
            }
        }
    }
    if let Some((connection, _)) = &kept
        && readers.damage().found().is_some()
    {
        leave_untouched(connection);
    }
}
