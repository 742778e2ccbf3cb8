//! What is made from the messages and can be made again: search index and mirror.
//!
//! Both live outside the store's file, so that neither a commit waits for them
//! nor their damage touches it. One thread a process brings them up to date,
//! from the message they reached last; the lock of `search.db` lets one process
//! at a time work. A search that finds the index behind catches up first.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use rusqlite::{Connection, OpenFlags, TransactionBehavior, params};

use super::{
    Sqlite,
    connection::{suffixed, tighten, wait_a_little},
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
/// How many hits are looked at for each one wanted, when a filter drops most of them.
const HITS_AT_ONCE: usize = 64;

const SCHEMA_VERSION: i64 = 1;
const SCHEMA: &str = "
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS progress (position INTEGER NOT NULL);
INSERT INTO progress SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM progress);
CREATE TABLE IF NOT EXISTS mirrors (session TEXT PRIMARY KEY, size_bytes INTEGER NOT NULL) WITHOUT ROWID;
CREATE VIRTUAL TABLE IF NOT EXISTS words
    USING fts5 (text, content = '', columnsize = 0, tokenize = 'unicode61 remove_diacritics 2');
PRAGMA user_version = 1;
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
        let background = Arc::clone(&worker);
        let thread = std::thread::Builder::new()
            .name("sess-derived".to_owned())
            .spawn(move || background.run(&poked))
            .map_err(|error| Error::Unavailable(format!("cannot start the index thread: {error}")))?;
        Ok(Self { worker, poke: Some(poke), thread: Some(thread) })
    }

    /// Returns what the writer calls after a commit.
    pub(super) fn poker(&self) -> SyncSender<()> {
        self.poke.clone().expect("the sender is taken only when this is dropped")
    }
}

impl Drop for Derived {
    fn drop(&mut self) {
        self.poke = None;
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
    writing: Mutex<Option<Connection>>,
    reading: Mutex<Option<Connection>>,
}

struct Step {
    done: u64,
    all: u64,
}

impl Worker {
    fn run(&self, poked: &Receiver<()>) {
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
                if ends_by.is_some_and(|end| Instant::now() > end) {
                    return;
                }
            }
        }
    }

    /// Takes one batch of messages into index and mirror.
    fn step(&self) -> Result<Step> {
        let mut writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut connection = match writing.take() {
            Some(connection) => connection,
            None => self.open_index()?,
        };
        let step = self.batch(&mut connection);
        match &step {
            Ok(_) => *writing = Some(connection),
            Err(Error::Damaged(reason)) => {
                drop(connection);
                self.start_over(reason);
            }
            Err(_) => {}
        }
        step
    }

    fn batch(&self, connection: &mut Connection) -> Result<Step> {
        let index = |error: rusqlite::Error| Error::from_sqlite(&self.index, &error);
        let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(index)?;
        let done = position(&tx).map_err(index)?;
        let (rows, all) = self.readers.query(|reader| {
            let all = reader
                .prepare_cached("SELECT coalesce(max(n), 0) FROM messages")?
                .query_row([], |row| row.get::<_, i64>(0))?
                .unsigned_abs();
            Ok((mirror::rows_after(reader, done, BATCH_LEN)?, all))
        })?;
        if done > all {
            return Err(Error::Damaged("the index belongs to another store".to_owned()));
        }
        let Some(last) = rows.last() else { return Ok(Step { done: all, all }) };
        let done = last.position;
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
        tx.execute("UPDATE progress SET position = ?1", [messages::signed(done)]).map_err(index)?;
        tx.commit().map_err(index)?;
        Ok(Step { done, all })
    }

    fn open_index(&self) -> Result<Connection> {
        let index = |error: rusqlite::Error| Error::from_sqlite(&self.index, &error);
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
            if version != SCHEMA_VERSION {
                connection.execute_batch(SCHEMA)?;
            }
            Ok(connection)
        };
        match open().map_err(index) {
            Err(Error::Damaged(reason)) => {
                self.start_over(&reason);
                open().map_err(index)
            }
            opened => opened,
        }
    }

    /// Removes an index that cannot be trusted; it is made again from the messages.
    fn start_over(&self, reason: &str) {
        tracing::warn!(reason, "the search index is made again");
        *self.reading.lock().unwrap_or_else(PoisonError::into_inner) = None;
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
        let mut step = self.step()?;
        while step.done < step.all {
            step = self.step()?;
        }
        let answer = self.find(query, before, limit);
        if let Err(Error::Damaged(reason)) = &answer {
            *self.writing.lock().unwrap_or_else(PoisonError::into_inner) = None;
            self.start_over(reason);
        }
        answer
    }

    fn find(&self, query: &SearchQuery, before: Option<Position>, limit: usize) -> Result<Vec<Hit>> {
        let index = |error: rusqlite::Error| match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::OperationInterrupted) => {
                Error::Unavailable("the search took too long; give more or longer words".to_owned())
            }
            _ => Error::from_sqlite(&self.index, &error),
        };
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let mut connection = match reading.take() {
            Some(connection) => connection,
            None => self.open_index()?,
        };
        let deadline = Instant::now() + SEARCH_WITHIN;
        connection.progress_handler(10_000, Some(move || Instant::now() > deadline)).map_err(index)?;
        let words = match_expression(query);
        let mut before = before.map_or(i64::MAX, |position| messages::signed(position.0));
        let mut hits = Vec::new();
        loop {
            let at_once = HITS_AT_ONCE.max(limit);
            let found: Vec<i64> = connection
                .prepare_cached(
                    "SELECT rowid FROM words WHERE words MATCH ?1 AND rowid < ?2 ORDER BY rowid DESC LIMIT ?3",
                )
                .and_then(|mut statement| {
                    statement.query_map(params![words, before, messages::signed(at_once as u64)], |row| row.get(0))?.collect()
                })
                .map_err(index)?;
            self.readers.query(|reader| {
                for position in &found {
                    if hits.len() == limit {
                        break;
                    }
                    hits.extend(load_hit(reader, *position, query)?);
                }
                Ok(())
            })?;
            match found.last() {
                Some(&last) if found.len() == at_once && hits.len() < limit => before = last,
                _ => break,
            }
        }
        *reading = Some(connection);
        Ok(hits)
    }
}

fn position(connection: &Connection) -> rusqlite::Result<u64> {
    connection
        .prepare_cached("SELECT position FROM progress")?
        .query_row([], |row| row.get::<_, i64>(0).map(i64::unsigned_abs))
}

/// Writes the query in FTS5's language; every word is quoted, so none can be an operator.
fn match_expression(query: &SearchQuery) -> String {
    let quote = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let mut wanted = Vec::new();
    let mut unwanted = String::new();
    for term in &query.terms {
        match term.matching {
            Matching::Whole => wanted.push(quote(&term.text)),
            Matching::Prefix => wanted.push(format!("{} *", quote(&term.text))),
            Matching::Absent => unwanted.push_str(&format!(" NOT {}", quote(&term.text))),
        }
    }
    format!("({}){unwanted}", wanted.join(" AND "))
}

fn load_hit(reader: &Connection, position: i64, query: &SearchQuery) -> rusqlite::Result<Option<Hit>> {
    let session: Option<i64> = {
        use rusqlite::OptionalExtension as _;
        reader
            .prepare_cached("SELECT session FROM messages WHERE n = ?1")?
            .query_row([position], |row| row.get(0))
            .optional()?
    };
    let Some(session) = session else { return Ok(None) };
    let Ok(owner) = sessions::by_n(reader, session)? else { return Ok(None) };
    let is_wanted = query.agent.as_ref().is_none_or(|agent| *agent == owner.agent)
        && query.source.is_none_or(|source| source == owner.source)
        && owner.archived_at.is_none();
    if !is_wanted {
        return Ok(None);
    }
    let message = reader
        .prepare_cached("SELECT n, seq, id, shape, crc, body FROM messages WHERE n = ?1")?
        .query_row([position], |row| messages::from_row(row, session))?
        .1;
    Ok(message.ok().map(|message| Hit { session: owner, message }))
}

/// Returns how far the index lags, for `sess doctor`.
pub(super) fn lag(index: &Path, reader: &Connection) -> Result<u64> {
    let newest: i64 = reader
        .query_row("SELECT coalesce(max(n), 0) FROM messages", [], |row| row.get(0))
        .map_err(|error| Error::from_sqlite(index, &error))?;
    let connection = Connection::open_with_flags(index, OpenFlags::SQLITE_OPEN_READ_ONLY)
        .map_err(|error| Error::from_sqlite(index, &error))?;
    let reached = position(&connection).map_err(|error| Error::from_sqlite(index, &error))?;
    Ok(newest.unsigned_abs().saturating_sub(reached))
}
