//! What is made from the messages and can be made again: search index and mirror.
//!
//! Both live outside the store's file, so that neither a commit waits for them
//! nor their damage touches it. One thread a process brings them up to date,
//! from the message they reached last; the lock of `search.db` lets one process
//! at a time work. A search that finds the index behind catches up first.

use std::{
    collections::{HashMap, hash_map::Entry},
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, TransactionBehavior, params};
use sess_core::session::Session;

use super::{
    Sqlite,
    connection::{self, Identity, suffixed, tighten, wait_a_little},
    deletion::{self, Deleted},
    messages, mirror,
    readers::Readers,
    sessions,
};
use crate::{Error, Hit, Matching, Position, Result, Search, SearchQuery};

const BATCH_LEN: usize = 1_000;
/// Commits that follow each other closely are taken together.
const GATHER_FOR: Duration = Duration::from_millis(100);
/// How long a process that ends still works for those that come after.
const FINISH_WITHIN: Duration = Duration::from_millis(500);
/// How long one search may take.
const SEARCH_WITHIN: Duration = Duration::from_secs(2);
/// How many hits are looked at in one go, when a filter drops most of them.
const HITS_AT_ONCE_MAX: usize = 1_024;

const SCHEMA_VERSION: i64 = 2;
const SCHEMA: &str = "
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS progress (position INTEGER NOT NULL, message TEXT NOT NULL);
INSERT INTO progress SELECT 0, '' WHERE NOT EXISTS (SELECT 1 FROM progress);
CREATE TABLE IF NOT EXISTS mirrors (session TEXT PRIMARY KEY, size_bytes INTEGER NOT NULL) WITHOUT ROWID;
CREATE VIRTUAL TABLE IF NOT EXISTS words
    USING fts5 (text, content = '', contentless_delete = 1, prefix = '1 2 3',
        tokenize = 'unicode61 remove_diacritics 2');
PRAGMA user_version = 2;
COMMIT;
";

#[async_trait]
impl Search for Sqlite {
    async fn search(&self, query: &SearchQuery, before: Option<Position>, limit: usize) -> Result<Vec<Hit>> {
        let (worker, query) = (Arc::clone(&self.derived.worker), query.clone());
        blocking(move || worker.search(&query, before, limit)).await
    }

    async fn catch_up(&self, told: &(dyn Fn(u64, u64) + Send + Sync)) -> Result<()> {
        loop {
            let worker = Arc::clone(&self.derived.worker);
            let step = blocking(move || worker.step()).await?;
            told(step.done, step.all);
            if step.done >= step.all {
                return Ok(());
            }
        }
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(answer) => answer,
        Err(error) => Err(Error::Unavailable(format!("the search was interrupted: {error}"))),
    }
}

pub(super) struct Derived {
    worker: Arc<Worker>,
    poke: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
    /// Closed when the thread has ended. The lock is for the compiler: only the end listens.
    ended: Mutex<Receiver<()>>,
}

impl Derived {
    pub(super) fn start(dir: &Path, readers: Arc<Readers>) -> Result<Self> {
        let worker = Arc::new(Worker {
            index: dir.join("search.db"),
            mirrors: dir.join("transcripts"),
            readers,
            writing: Mutex::default(),
            reading: Mutex::default(),
        });
        let (poke, poked) = sync_channel(1);
        let (at_work, ended) = sync_channel(0);
        let background = Arc::clone(&worker);
        let thread = std::thread::Builder::new()
            .name("sess-derived".to_owned())
            .spawn(move || {
                background.run(&poked);
                drop(at_work);
            })
            .map_err(|error| Error::Unavailable(format!("cannot start the index thread: {error}")))?;
        Ok(Self { worker, poke: Some(poke), thread: Some(thread), ended: Mutex::new(ended) })
    }

    /// Returns what the writer calls after a commit.
    pub(super) fn poker(&self) -> SyncSender<()> {
        self.poke.clone().expect("the sender is taken only at the end")
    }
}

impl Derived {
    /// Lets index and mirrors be made again, from the first message on.
    pub(super) fn make_again(&self, reason: &str) {
        self.worker.start_over(reason);
    }

    /// Takes in what was committed last, and ends the thread.
    ///
    /// A process that was stopped in the middle of a batch keeps the index locked for as
    /// long as it stands still: nobody's end waits for that, and the next one catches up.
    pub(super) fn finish(&mut self) {
        self.poke = None;
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        if ended.recv_timeout(2 * FINISH_WITHIN) == Err(RecvTimeoutError::Timeout) {
            tracing::debug!("the search index is behind: another process keeps it locked");
            self.thread = None;
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the index thread panicked");
        }
    }
}

struct Worker {
    index: PathBuf,
    mirrors: PathBuf,
    readers: Arc<Readers>,
    /// Kept open between batches; `None` before the first and after a failure.
    writing: Mutex<Option<Index>>,
    reading: Mutex<Option<Index>>,
}

/// An open index, and the file that it is.
struct Index {
    connection: Connection,
    identity: Option<Identity>,
}

struct Step {
    done: u64,
    all: u64,
}

/// Whose trouble it is: an index is made again, the store is not ours to touch.
enum Trouble {
    Index(Error),
    Store(Error),
}

impl From<Trouble> for Error {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Index(error) | Trouble::Store(error) => error,
        }
    }
}

impl Worker {
    fn run(&self, poked: &Receiver<()>) {
        // Nobody waits for this thread: callers and the writer go first. Niceness is a
        // thread's own on Linux; where it cannot be had, the work is done all the same.
        let _as_before = rustix::process::nice(10);
        while poked.recv().is_ok() {
            let mut ends_by = None;
            let gathered = Instant::now() + GATHER_FOR;
            while ends_by.is_none() && Instant::now() < gathered {
                let rest = gathered.saturating_duration_since(Instant::now());
                if poked.recv_timeout(rest) == Err(RecvTimeoutError::Disconnected) {
                    ends_by = Some(Instant::now() + FINISH_WITHIN);
                }
            }
            loop {
                match self.step() {
                    Ok(step) if step.done >= step.all => break,
                    Ok(_) => {}
                    Err(error) => {
                        // The next commit or search tries again; the messages are safe.
                        tracing::warn!(%error, "the search index is behind");
                        break;
                    }
                }
                if ends_by.is_none() && poked.try_recv() == Err(TryRecvError::Disconnected) {
                    ends_by = Some(Instant::now() + FINISH_WITHIN);
                }
                if ends_by.is_some_and(|end| Instant::now() > end) {
                    return;
                }
            }
        }
    }

    /// Takes one batch of messages into index and mirror.
    fn step(&self) -> Result<Step> {
        let mut writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut index = self.take_or_open(&mut writing)?;
        match self.batch(&mut index.connection) {
            Err(Trouble::Index(Error::Damaged(reason))) => {
                drop(index);
                self.start_over(&reason);
                index = self.open_index()?;
            }
            Err(Trouble::Store(error)) => {
                *writing = Some(index);
                return Err(error);
            }
            Err(trouble) => return Err(trouble.into()),
            Ok(step) => {
                *writing = Some(index);
                return Ok(step);
            }
        }
        let step = self.batch(&mut index.connection)?;
        *writing = Some(index);
        Ok(step)
    }

    fn batch(&self, connection: &mut Connection) -> Result<Step, Trouble> {
        let index = |error: rusqlite::Error| Trouble::Index(self.index_error(&error));
        let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(index)?;
        let (done, message) = progress(&tx).map_err(index)?;
        let (known, news, all) = self
            .readers
            .query(|reader| {
                // As of one moment, or a deletion could overtake a message.
                let snapshot = reader.unchecked_transaction()?;
                Ok((mark_at(&snapshot, done)?, News::after(&snapshot, done)?, newest(&snapshot)?))
            })
            .map_err(Trouble::Store)?;
        let is_ours = match known {
            Some(known) => known == message,
            None => done == 0 || was_deleted_since(&tx, &self.readers, done)?,
        };
        if !is_ours {
            return Err(Trouble::Index(Error::Damaged("it belongs to another store".to_owned())));
        }
        let News { rows, deleted, reached } = news;
        let Some((done, message)) = reached else { return Ok(Step { done: all, all }) };
        {
            let mut insert =
                tx.prepare_cached("INSERT INTO words (rowid, text) VALUES (?1, ?2)").map_err(index)?;
            for row in &rows {
                let Ok(message) = &row.message else { continue };
                let Ok(body) = message.parse() else { continue };
                let text = body.plain_text();
                insert.execute(params![messages::signed(row.position), text]).map_err(index)?;
            }
        }
        mirror::extend(&tx, &self.readers, &self.mirrors, &rows).map_err(index)?;
        for deleted in &deleted {
            forget(&tx, deleted).map_err(index)?;
            mirror::remove(&tx, &self.mirrors, &deleted.session).map_err(index)?;
        }
        tx.execute(
            "UPDATE progress SET position = ?1, message = ?2",
            params![messages::signed(done), message],
        )
        .map_err(index)?;
        tx.commit().map_err(index)?;
        Ok(Step { done, all })
    }

    /// Says what an error of the index means; what makes no sense there counts as damage.
    fn index_error(&self, error: &rusqlite::Error) -> Error {
        match error.sqlite_error_code() {
            None | Some(ErrorCode::Unknown) => Error::Damaged(error.to_string()),
            Some(_) => Error::from_sqlite(&self.index, error),
        }
    }

    /// Returns the open index, unless another process has put a new one in its place.
    fn take_or_open(&self, kept: &mut Option<Index>) -> Result<Index> {
        match kept.take() {
            Some(index) if index.identity == connection::identity(&self.index) => Ok(index),
            _ => self.open_index(),
        }
    }

    fn open_index(&self) -> Result<Index> {
        let open = || -> rusqlite::Result<Connection> {
            let mut connection = Connection::open_with_flags(
                &self.index,
                OpenFlags::SQLITE_OPEN_READ_WRITE
                    | OpenFlags::SQLITE_OPEN_CREATE
                    | OpenFlags::SQLITE_OPEN_NO_MUTEX,
            )?;
            connection.busy_handler(Some(wait_a_little))?;
            tighten(&self.index, 0o600);
            // Losing the newest entries to a power cut is harmless: they are made again.
            connection.execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA temp_store = MEMORY;
                 PRAGMA cache_size = -2048;",
            )?;
            let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
            match version {
                SCHEMA_VERSION => {}
                0 => connection.execute_batch(SCHEMA)?,
                // Another version of sess made it: its tables may be others.
                _ => return Err(rusqlite::Error::IntegralValueOutOfRange(0, version)),
            }
            Ok(connection)
        };
        let (mut tries, mut is_new) = (0, false);
        let connection = loop {
            match open() {
                Ok(connection) => break connection,
                // Two processes that make the index at once can each be in the other's way,
                // which SQLite reports at once instead of waiting.
                Err(error) if is_busy(&error) && wait_a_little(tries) => tries += 1,
                Err(error) => match self.index_error(&error) {
                    Error::Damaged(reason) if !is_new => {
                        self.start_over(&reason);
                        is_new = true;
                    }
                    error => return Err(error),
                },
            }
        };
        Ok(Index { connection, identity: connection::identity(&self.index) })
    }

    /// Removes an index that cannot be trusted; it is made again from the messages.
    fn start_over(&self, reason: &str) {
        tracing::warn!(reason, "the search index is made again");
        for suffix in ["", "-wal", "-shm"] {
            let path = suffixed(&self.index, suffix);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    tracing::warn!(path = %path.display(), %error, "could not remove the old index");
                }
                _ => {}
            }
        }
    }

    fn search(&self, query: &SearchQuery, before: Option<Position>, limit: usize) -> Result<Vec<Hit>> {
        let Some(words) = match_expression(query) else { return Ok(Vec::new()) };
        match self.find(&words, query, before, limit) {
            Err(Trouble::Index(Error::Damaged(reason))) => {
                self.start_over(&reason);
                Ok(self.find(&words, query, before, limit)?)
            }
            answer => Ok(answer?),
        }
    }

    /// Takes in what is new, if there is anything; a store that cannot be read further is no reason
    /// not to search what was read before.
    fn refresh(&self, index: &Connection) -> Result<(), Trouble> {
        let reached = progress(index).map_err(|error| Trouble::Index(self.index_error(&error)))?;
        let newest = self.readers.query(|reader| {
            let all = newest(reader)?;
            Ok((all, mark_at(reader, all)?.unwrap_or_default()))
        });
        if newest.is_ok_and(|newest| newest == reached) {
            return Ok(());
        }
        loop {
            match self.step() {
                Ok(step) if step.done < step.all => {}
                Ok(_) => return Ok(()),
                Err(error) => {
                    tracing::warn!(%error, "the search index is behind");
                    return Ok(());
                }
            }
        }
    }

    fn find(
        &self,
        words: &str,
        query: &SearchQuery,
        before: Option<Position>,
        limit: usize,
    ) -> Result<Vec<Hit>, Trouble> {
        let index_error = |error: rusqlite::Error| {
            Trouble::Index(match error.sqlite_error_code() {
                Some(ErrorCode::OperationInterrupted) => took_too_long(),
                _ => Error::from_sqlite(&self.index, &error),
            })
        };
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let mut index = self.take_or_open(&mut reading).map_err(Trouble::Index)?;
        self.refresh(&index.connection)?;
        if index.identity != connection::identity(&self.index) {
            index = self.open_index().map_err(Trouble::Index)?;
        }
        let deadline = Instant::now() + SEARCH_WITHIN;
        let is_late = move || Instant::now() > deadline;
        index.connection.progress_handler(10_000, Some(is_late)).map_err(index_error)?;
        let mut before = before.map_or(i64::MAX, |position| messages::signed(position.0));
        let mut owners = HashMap::new();
        let mut hits = Vec::new();
        // As many as are wanted first: each costs, and mostly all of them count.
        let mut at_once = limit;
        while hits.len() < limit {
            let found: Vec<i64> = index
                .connection
                .prepare_cached(
                    "SELECT rowid FROM words WHERE words MATCH ?1 AND rowid < ?2 ORDER BY rowid DESC LIMIT ?3",
                )
                .and_then(|mut statement| {
                    let rows = params![words, before, messages::signed(at_once as u64)];
                    statement.query_map(rows, |row| row.get(0))?.collect()
                })
                .map_err(index_error)?;
            self.readers
                .query_once(|reader| {
                    for position in &found {
                        if hits.len() == limit {
                            break;
                        }
                        hits.extend(load_hit(reader, *position, query, &mut owners)?);
                    }
                    Ok(())
                })
                .map_err(Trouble::Store)?;
            match found.last() {
                Some(&last) if found.len() == at_once => before = last,
                _ => break,
            }
            at_once = at_once.saturating_mul(4).min(HITS_AT_ONCE_MAX.max(limit));
            if hits.len() < limit && is_late() {
                return Err(Trouble::Index(took_too_long()));
            }
        }
        *reading = Some(index);
        Ok(hits)
    }
}

fn took_too_long() -> Error {
    Error::Unavailable("the search took too long; give more or longer words".to_owned())
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Returns the last thing that was taken in, by its position and its mark.
fn progress(index: &Connection) -> rusqlite::Result<(u64, String)> {
    index
        .prepare_cached("SELECT position, message FROM progress")?
        .query_row([], |row| Ok((row.get::<_, i64>(0)?.unsigned_abs(), row.get(1)?)))
}

/// Returns the position of the newest thing that index and mirror are made from.
fn newest(reader: &Connection) -> rusqlite::Result<u64> {
    reader
        .prepare_cached(
            "SELECT max(coalesce((SELECT max(n) FROM messages), 0), \
             coalesce((SELECT max(n) FROM events WHERE kind = 'session_deleted'), 0))",
        )?
        .query_row([], |row| row.get::<_, i64>(0).map(i64::unsigned_abs))
}

/// Stands for the id of a message, where a deletion is the last thing that was taken in.
const DELETION: &str = "session_deleted";

/// Returns what stands at a position: the id of a message, or a deletion.
fn mark_at(reader: &Connection, position: u64) -> rusqlite::Result<Option<String>> {
    let n = messages::signed(position);
    let message = reader
        .prepare_cached("SELECT id FROM messages WHERE n = ?1")?
        .query_row([n], |row| Ok(row.get(0).unwrap_or_default()))
        .optional()?;
    if message.is_some() {
        return Ok(message);
    }
    reader
        .prepare_cached("SELECT 1 FROM events WHERE kind = 'session_deleted' AND n = ?1")?
        .query_row([n], |_| Ok(DELETION.to_owned()))
        .optional()
}

/// What came after a position, as far as one batch goes.
struct News {
    rows: Vec<mirror::Row>,
    deleted: Vec<Deleted>,
    /// The last of them, by its position and mark; `None` when there is nothing new.
    reached: Option<(u64, String)>,
}

impl News {
    fn after(reader: &Connection, position: u64) -> rusqlite::Result<Self> {
        let rows = mirror::rows_after(reader, position, BATCH_LEN)?;
        let last = rows.last().map(|row| row.position);
        let end = last.filter(|_| rows.len() == BATCH_LEN).unwrap_or(u64::MAX);
        let deleted = deletion::after(reader, position, end)?;
        let reached = deleted.last().map(|deleted| deleted.position).max(last);
        let reached = match reached {
            Some(reached) => Some((reached, mark_at(reader, reached)?.unwrap_or_default())),
            None => None,
        };
        Ok(Self { rows, deleted, reached })
    }
}

/// Tells whether the message that was taken in last may be gone because its session is.
fn was_deleted_since(index: &Connection, readers: &Readers, done: u64) -> Result<bool, Trouble> {
    let deleted = readers.query(|reader| deletion::after(reader, done, u64::MAX)).map_err(Trouble::Store)?;
    let stood_there = |deleted: &Deleted| {
        let mut spans = deleted.spans.iter();
        spans.any(|(first, len)| (*first..first.saturating_add(*len)).contains(&messages::signed(done)))
    };
    // Another store has other sessions.
    let is_known = |deleted: &Deleted| {
        index
            .prepare_cached("SELECT 1 FROM mirrors WHERE session = ?1")
            .and_then(|mut known| known.exists([&deleted.session]))
            .unwrap_or(false)
    };
    Ok(deleted.iter().any(|deleted| stood_there(deleted) && is_known(deleted)))
}

/// Takes the words of a deleted session out of the index.
fn forget(index: &Connection, deleted: &Deleted) -> rusqlite::Result<()> {
    let mut delete = index.prepare_cached("DELETE FROM words WHERE rowid = ?1")?;
    for (first, len) in &deleted.spans {
        for position in *first..first.saturating_add(*len) {
            delete.execute([position])?;
        }
    }
    Ok(())
}

/// Writes the query in FTS5's language; every word is quoted, so none can be an operator.
///
/// `None` when it names nothing that could be found. What has no letter and no digit is
/// nothing to the index either, and must not make the rest unfindable.
fn match_expression(query: &SearchQuery) -> Option<String> {
    let quote = |text: &str| format!("\"{}\"", text.replace('"', "\"\"").replace('\0', " "));
    let mut wanted = Vec::new();
    let mut unwanted = Vec::new();
    for term in query.terms.iter().filter(|term| term.text.contains(char::is_alphanumeric)) {
        match term.matching {
            Matching::Whole => wanted.push(quote(&term.text)),
            Matching::Prefix => wanted.push(format!("{} *", quote(&term.text))),
            Matching::Absent => unwanted.push(quote(&term.text)),
        }
    }
    if wanted.is_empty() {
        return None;
    }
    let wanted = wanted.join(" AND ");
    Some(if unwanted.is_empty() { wanted } else { format!("({wanted}) NOT ({})", unwanted.join(" OR ")) })
}

/// Returns the message, when its session is one that the query wants; `owners` keeps those met before.
fn load_hit(
    reader: &Connection,
    position: i64,
    query: &SearchQuery,
    owners: &mut HashMap<i64, Option<Session>>,
) -> rusqlite::Result<Option<Hit>> {
    let session: Option<i64> = reader
        .prepare_cached("SELECT session FROM messages WHERE n = ?1")?
        .query_row([position], |row| row.get(0))
        .optional()?;
    let Some(session) = session else { return Ok(None) };
    let owner = match owners.entry(session) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(new) => {
            let owner = sessions::by_n(reader, session).optional()?.and_then(std::result::Result::ok);
            new.insert(owner.filter(|owner| {
                query.agent.as_ref().is_none_or(|agent| owner.key.agent().as_ref() == Some(agent))
                    && query.source.is_none_or(|source| source == owner.source)
            }))
        }
    };
    let Some(owner) = owner else { return Ok(None) };
    let message = reader
        .prepare_cached("SELECT n, seq, id, shape, crc, body FROM messages WHERE n = ?1")?
        .query_row([position], |row| messages::from_row(row, session))?
        .1;
    Ok(message.ok().map(|message| Hit { session: owner.clone(), message }))
}

/// Returns how far the index lags, for `sess doctor`.
pub(super) fn lag(index: &Path, reader: &Connection) -> Result<u64> {
    let all = newest(reader).map_err(|error| Error::from_sqlite(index, &error))?;
    let connection = Connection::open_with_flags(index, OpenFlags::SQLITE_OPEN_READ_ONLY)
        .map_err(|error| Error::from_sqlite(index, &error))?;
    let (reached, _) = progress(&connection).map_err(|error| Error::from_sqlite(index, &error))?;
    let behind = reader
        .query_row(
            "SELECT count(*) FROM messages WHERE n > ?1 AND n <= ?2",
            params![messages::signed(reached), messages::signed(all)],
            |row| row.get::<_, i64>(0),
        )
        .map_err(|error| Error::from_sqlite(index, &error))?;
    Ok(behind.unsigned_abs())
}
