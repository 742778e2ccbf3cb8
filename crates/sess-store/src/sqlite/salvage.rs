//! What can still be taken out of a damaged store.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use rusqlite::Connection;
use sess_core::{
    RunId, SessionId, Timestamp,
    run::{Run, RunState},
    session::{NewSession, Spent},
};

use super::{
    Sqlite,
    connection::{self, Access},
    deletion,
    messages::{self, Encoded},
    outbox, pages, plans,
    run_rows::{self, Stored},
    runs, schema, sessions,
};
use crate::{Error, NewMessage, PlanWrite, Plans as _, PostState, RequestKey, Result, Sessions as _};

/// What [`salvage`] took over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    pub sessions: u64,
    pub messages: u64,
    pub plan_revisions: u64,
    pub runs: u64,
    /// Rows that could not be read.
    pub lost: u64,
}

/// Copies what can be read of the store in `dir` into a new one in `target`.
///
/// Works on a copy, so that the damaged file stays as it is. Message and
/// revision numbers stay the same: what was lost leaves a note in its place.
pub async fn salvage(dir: &Path, target: &Path) -> Result<Salvaged> {
    let damaged = dir.join("sess.db");
    if !damaged.is_file() {
        return Err(Error::Unavailable(format!("there is no store at {}", damaged.display())));
    }
    if target.join("sess.db").exists() {
        return Err(Error::Conflict(format!("there is already a store in {}", target.display())));
    }
    let new = Sqlite::open(target)?;
    let scratch = target.join(".salvage");
    std::fs::create_dir_all(&scratch).map_err(|error| Error::from_io("create", &scratch, &error))?;
    let outcome = salvage_into(&damaged, &scratch, &new).await;
    if let Err(error) = std::fs::remove_dir_all(&scratch) {
        tracing::warn!(path = %scratch.display(), %error, "could not remove the working copy");
    }
    if outcome.is_err() {
        // Half a store must not pass for a whole one, nor stand in the way of another try.
        let path = new.path.clone();
        drop(new);
        for suffix in ["", "-wal", "-shm"] {
            let _not_there = std::fs::remove_file(connection::suffixed(&path, suffix));
        }
    }
    outcome
}

async fn salvage_into(damaged: &Path, scratch: &Path, new: &Sqlite) -> Result<Salvaged> {
    let copy = scratch.join("sess.db");
    for suffix in ["", "-wal"] {
        let from = connection::suffixed(damaged, suffix);
        if from.exists() {
            let to = connection::suffixed(&copy, suffix);
            std::fs::copy(&from, &to).map_err(|error| Error::from_io("copy", &from, &error))?;
        }
    }
    transplant_header(&copy, &new.path)?;
    let remains = Remains::read(&copy, &new.path)?;
    let mut salvaged = Salvaged::default();
    salvaged.lost += remains.lost_runs();
    let mut names = Names::new(&remains.sessions);
    for (n, found) in remains.sessions {
        let id = names.of(n, found.session.as_ref());
        match found.deleted_at {
            Some(at) => salvage_deleted(new, found, at, &mut salvaged).await?,
            None => salvage_session(new, id, found, &mut salvaged).await?,
        }
    }
    let requests = remains.requests;
    new.writer
        .write(move |tx| {
            for (key, answer) in &requests {
                messages::remember(tx, key, answer)?;
            }
            Ok(())
        })
        .await?;
    Ok(salvaged)
}

async fn salvage_session(new: &Sqlite, id: SessionId, found: Found, salvaged: &mut Salvaged) -> Result<()> {
    let Found {
        session,
        starred,
        archived_at,
        deleted_at: _,
        spent,
        last_seq,
        messages: found_messages,
        plans,
        plan_state,
        is_plan_swept,
        runs,
        posts,
    } = found;
    if session.is_none() {
        salvaged.lost += 1;
    }
    let session = session.unwrap_or_else(|| lost_session(id.clone()));
    let at = session.created_at;
    salvaged.sessions += 1;
    salvaged.messages += found_messages.len() as u64;

    let newest = found_messages.last_key_value().map_or(0, |(seq, _)| *seq);
    // The counter may be damaged itself: it is believed only when it is near.
    let last_seq =
        if last_seq.saturating_sub(newest) <= LOST_AT_END_MAX { last_seq.max(newest) } else { newest };
    salvaged.lost += last_seq - found_messages.len() as u64;
    let mut rest = found_messages;
    let messages = (1..=last_seq).map(|seq| rest.remove(&seq).unwrap_or_else(|| note_of_loss(seq, at)));
    let messages: Vec<Encoded> = messages.map(Encoded::new).collect();
    let made = session.clone();
    new.writer
        .write(move |tx| {
            let (n, _) = sessions::ensure(tx, &made, starred)?;
            if !messages.is_empty() {
                messages::append(tx, &made.id, &messages)?;
            }
            sessions::add_spent_alone(tx, n, spent)
        })
        .await?;
    if let Some(archived_at) = archived_at {
        new.patch_session(&id, crate::SessionPatch::Archived(true), archived_at).await?;
    }

    salvaged.plan_revisions += plans.len() as u64;
    let mut written = 0;
    for (revision, write) in plans {
        while written + 1 < revision {
            salvaged.lost += 1;
            let content = format!("[revision {} was lost to damage]", written + 1);
            written = new.write_plan(session.clone(), PlanWrite { content, ..write.clone() }).await?.revision;
        }
        written = new.write_plan(session.clone(), write).await?.revision;
    }
    if written > 0 {
        new.announce_plan(&id, written, "").await?;
    }
    if let Some(state) = plan_state
        && let Some(plan) = new.plan(&id).await?
        && plan.state != state
    {
        let by = "salvage".to_owned();
        let change =
            crate::PlanChange { revision: plan.revision, from: plan.state, to: state, by, note: None, at };
        new.change_plan_state(&id, change).await?;
    }
    if is_plan_swept {
        new.mark_plan_swept(&id, written).await?;
    }
    salvaged.runs += runs.len() as u64;
    salvage_runs(new, id, runs.into_values().collect(), posts).await
}

/// Takes over the row of a session that was deleted, with its runs. What pages still hold of its
/// messages stays where it is.
async fn salvage_deleted(new: &Sqlite, found: Found, at: Timestamp, salvaged: &mut Salvaged) -> Result<()> {
    let Found { session: Some(session), spent, runs, posts, .. } = found else { return Ok(()) };
    let id = session.id.clone();
    salvaged.runs += runs.len() as u64;
    let made = session.clone();
    new.writer
        .write(move |tx| {
            let (n, _) = sessions::ensure(tx, &made, false)?;
            sessions::add_spent_alone(tx, n, spent)
        })
        .await?;
    salvage_runs(new, id.clone(), runs.into_values().collect(), posts).await?;
    new.writer
        .write(move |tx| {
            let (n, session) = sessions::require(tx.connection(), &id)?;
            deletion::bury(tx, n, &session, at)
        })
        .await
}

/// Why a run that had not ended in the damaged store has ended.
const RUN_ABORTED: &str = "its store was damaged";

/// Takes over the session's runs and posts. What had not ended is `aborted`, and nothing follows any
/// of them: a row that lost a later version of itself to the damage must not act a second time.
async fn salvage_runs(
    new: &Sqlite,
    session: SessionId,
    mut runs: Vec<Stored>,
    posts: BTreeMap<u64, outbox::Stored>,
) -> Result<()> {
    if runs.is_empty() && posts.is_empty() {
        return Ok(());
    }
    runs.sort_by_key(|row| row.n);
    new.writer
        .write(move |tx| {
            let (n, _) = sessions::require(tx.connection(), &session)?;
            for mut row in runs {
                let run = &mut row.run;
                let last = run.ended_at.or(run.started_at).unwrap_or(run.queued_at);
                run.session = session.clone();
                if !run.state.has_ended() {
                    run.state = RunState::Aborted;
                    run.error = Some(RUN_ABORTED.to_owned());
                    run.ended_at = Some(last);
                }
                (row.session, row.lease, row.is_settled) = (n, None, true);
                run_rows::insert(tx, &row)?;
                runs::tell(tx, n, &row.run, last)?;
            }
            for (number, mut row) in posts {
                (row.session, row.lease) = (n, None);
                outbox::insert(tx, Some(messages::signed(number)), &row)?;
            }
            Ok(())
        })
        .await
}

/// How many messages after the last readable one are believed to have been there.
const LOST_AT_END_MAX: u64 = 10_000;
/// How many numbers without a row may follow each other, where a page was lost.
const GAP_LEN_MAX: i64 = 20_000;

/// Gives a copy whose first page is unreadable the one of a new store: tables of
/// one schema start at the same pages in every store.
fn transplant_header(copy: &Path, fresh: &Path) -> Result<()> {
    use std::os::unix::fs::FileExt as _;

    const PAGE_SIZE: usize = 4096;
    const PAGE_COUNT_AT: usize = 28;
    let io = |error: std::io::Error| Error::from_io("read", copy, &error);
    let fresh = std::fs::File::open(fresh).map_err(io)?;
    let file = std::fs::OpenOptions::new().write(true).open(copy).map_err(io)?;
    // Every table starts somewhere in these pages: a page of zeros is a lost one, a
    // missing page would make the whole file unreadable.
    let size_min = fresh.metadata().map_err(io)?.len();
    let size = file.metadata().map_err(io)?.len().next_multiple_of(PAGE_SIZE as u64).max(size_min);
    file.set_len(size).map_err(io)?;
    if has_tables(copy) {
        return Ok(());
    }
    let mut page = vec![0; PAGE_SIZE];
    fresh.read_exact_at(&mut page, 0).map_err(io)?;
    let pages = u32::try_from(size / PAGE_SIZE as u64).unwrap_or(u32::MAX);
    page[PAGE_COUNT_AT..PAGE_COUNT_AT + 4].copy_from_slice(&pages.to_be_bytes());
    file.write_all_at(&page, 0).map_err(io)
}

fn has_tables(copy: &Path) -> bool {
    let Ok(reader) = connection::connect(copy, Access::Read) else { return false };
    let Ok(version) = schema::version(&reader, copy) else { return false };
    // What an older schema lacks is stood in for.
    version >= schema::FIRST
        && ["sessions", "messages", "plans", "plan_revisions", "requests", "runs", "outbox"]
            .iter()
            .all(|table| reader.prepare(&format!("SELECT * FROM {table}")).is_ok())
}

/// What the scan of a damaged store brought up, by session row.
#[derive(Default)]
struct Remains {
    sessions: BTreeMap<i64, Found>,
    requests: Vec<(RequestKey, String)>,
}

#[derive(Default)]
struct Found {
    session: Option<NewSession>,
    starred: bool,
    archived_at: Option<Timestamp>,
    deleted_at: Option<Timestamp>,
    spent: Spent,
    last_seq: u64,
    messages: BTreeMap<u64, NewMessage>,
    plans: BTreeMap<u64, PlanWrite>,
    plan_state: Option<sess_core::plan::State>,
    is_plan_swept: bool,
    /// With the numbers of their rows, which are the order of their arrival.
    runs: BTreeMap<RunId, Stored>,
    posts: BTreeMap<u64, outbox::Stored>,
}

impl Remains {
    fn read(copy: &Path, fresh: &Path) -> Result<Self> {
        let mut found = Self::default();
        let mut newest_plans = BTreeMap::new();
        match connect_to_remains(copy) {
            Ok(reader) => {
                found.take(&reader, |_, _| true);
                newest_plans = scan_states(&reader, &mut found.sessions);
                scan_requests(&reader, &mut found.requests);
                // Closing moves the log into the copy, where the pages are read next.
            }
            Err(error) => tracing::warn!(%error, "the tables cannot be read; looking for rows page by page"),
        }
        // A page that still holds a revision which was taken back must not revive it.
        found.take(&loose_rows(copy, fresh)?, |session, revision| {
            newest_plans.get(&session).is_none_or(|newest| revision <= *newest)
        });
        Ok(found)
    }

    /// Counts the runs that are missing: their rows are numbered without gaps.
    fn lost_runs(&self) -> u64 {
        let numbers = || self.sessions.values().flat_map(|found| found.runs.values()).map(|row| row.n);
        let newest = u64::try_from(numbers().max().unwrap_or_default()).unwrap_or_default();
        let lost = newest.saturating_sub(numbers().count() as u64);
        // A number may be damaged itself: it is believed only when it is near.
        if lost <= LOST_AT_END_MAX { lost } else { 0 }
    }

    /// Takes what is not here yet from the tables.
    fn take(&mut self, reader: &Connection, is_plan_wanted: impl Fn(i64, u64) -> bool) {
        let sessions = &mut self.sessions;
        scan(reader, "sessions", sessions::COLUMNS, |row| found_session(sessions, row));
        scan(reader, "messages", "n, seq, id, shape, crc, body, session", |row| {
            found_message(sessions, row);
        });
        scan(reader, "plan_revisions", "session, revision, agent, at, content, crc", |row| {
            found_plan(sessions, row, &is_plan_wanted);
        });
        scan(reader, "runs", run_rows::COLUMNS, |row| found_run(sessions, row));
        scan(reader, "outbox", outbox::COLUMNS, |row| found_post(sessions, row));
    }
}

fn connect_to_remains(copy: &Path) -> Result<Connection> {
    let reader = connection::connect(copy, Access::Write)?;
    // Only so does SQLite read a file that is shorter than its header says.
    reader
        .set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_DEFENSIVE, false)
        .and_then(|_| reader.execute_batch("PRAGMA writable_schema = ON; PRAGMA cell_size_check = OFF;"))
        .and_then(|()| schema::stand_in(&reader))
        .map_err(|error| Error::from_sqlite(copy, &error))?;
    Ok(reader)
}

/// The tables that are looked for page by page, and how many values their rows had in an older schema.
const TABLES: [(&str, Option<usize>); 5] = [
    ("sessions", Some(15)),
    ("messages", None),
    ("plan_revisions", None),
    ("runs", Some(17)),
    ("outbox", None),
];

/// Collects every row on every page of the copy into tables without rules.
///
/// Which table a row belongs to is told by how many values it has; what was
/// taken for a row and is none fails its checksum later.
fn loose_rows(copy: &Path, fresh: &Path) -> Result<Connection> {
    struct Failed(Error);
    impl From<std::io::Error> for Failed {
        fn from(error: std::io::Error) -> Self {
            Self(Error::Unavailable(format!("cannot read the working copy: {error}")))
        }
    }

    let path = copy.with_file_name("rows.db");
    let sqlite = |error: rusqlite::Error| Error::from_sqlite(&path, &error);
    let new = connection::connect(fresh, Access::Read)?;
    let loose = Connection::open(&path).map_err(sqlite)?;
    loose.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN").map_err(sqlite)?;
    let mut inserts: Vec<(usize, String)> = Vec::new();
    for (table, older_len) in TABLES {
        let columns: Vec<String> = new
            .prepare("SELECT name FROM pragma_table_info(?1) ORDER BY cid")
            .and_then(|mut names| names.query_map([table], |row| row.get(0))?.collect())
            .map_err(sqlite)?;
        loose.execute_batch(&format!("CREATE TABLE {table} ({})", columns.join(", "))).map_err(sqlite)?;
        for len in older_len.into_iter().chain([columns.len()]) {
            let (names, places) = (columns[..len].join(", "), vec!["?"; len].join(", "));
            inserts.push((len, format!("INSERT INTO {table} ({names}) VALUES ({places})")));
        }
    }
    let collected = pages::visit_rows(copy, |number, mut values| {
        // The number of a row stands before it, in place of its first value.
        if let Some(first) = values.first_mut() {
            *first = rusqlite::types::Value::Integer(number);
        }
        for (_, insert) in inserts.iter().filter(|(len, _)| *len == values.len()) {
            let mut insert = loose.prepare_cached(insert).map_err(|error| Failed(sqlite(error)))?;
            insert.execute(rusqlite::params_from_iter(&values)).map_err(|error| Failed(sqlite(error)))?;
        }
        Ok::<(), Failed>(())
    });
    collected.map_err(|Failed(error)| error)?;
    loose.execute_batch("COMMIT").map_err(sqlite)?;
    Ok(loose)
}

/// Visits every row that can be read, by its number.
///
/// A damaged page fails the lookups that lead through it and no others, so
/// after a failure the rows behind it are asked for one by one.
fn scan(reader: &Connection, table: &str, columns: &str, mut visit: impl FnMut(&rusqlite::Row<'_>)) {
    let next = format!("SELECT n AS row_number, {columns} FROM {table} NOT INDEXED WHERE n > ?1 ORDER BY n");
    let one = format!("SELECT n AS row_number, {columns} FROM {table} NOT INDEXED WHERE n = ?1");
    // An older store lacks a table; then no row of it will answer.
    if reader.prepare_cached(&one).is_err() {
        return;
    }
    // Where the newest row can be read, nothing is looked for behind it.
    let last = reader
        .query_row(&format!("SELECT max(n) FROM {table} NOT INDEXED"), [], |row| row.get::<_, Option<i64>>(0))
        .map_or(i64::MAX, Option::unwrap_or_default);
    let (mut at, mut misses) = (0_i64, 0);
    loop {
        let run = (|| -> rusqlite::Result<bool> {
            let mut statement = reader.prepare_cached(&next)?;
            let mut rows = statement.query([at])?;
            while let Some(row) = rows.next()? {
                let number = row.get("row_number")?;
                visit(row);
                // A damaged tree may lead back to where it was: going with it would never end.
                if number < at {
                    return Ok(false);
                }
                (at, misses) = (number, 0);
            }
            Ok(true)
        })();
        if let Ok(true) = run {
            return;
        }
        // Step over what cannot be read, until a row answers again.
        loop {
            at += 1;
            misses += 1;
            if misses > GAP_LEN_MAX || at > last {
                return;
            }
            let found = reader.prepare_cached(&one).and_then(|mut statement| {
                let mut rows = statement.query([at])?;
                Ok(rows.next()?.map(&mut visit))
            });
            if let Ok(Some(())) = found {
                break;
            }
        }
    }
}

fn found_session(found: &mut BTreeMap<i64, Found>, row: &rusqlite::Row<'_>) {
    let Ok((n, Ok(session))) = sessions::from_row_at(row, 1) else { return };
    let deleted_at = row.get::<_, Option<i64>>(1 + sessions::DELETED_AT).ok().flatten();
    let entry = found.entry(n).or_default();
    // What was deleted stays deleted, whatever an older version of its row says.
    if entry.session.is_some() && (deleted_at.is_none() || entry.deleted_at.is_some()) {
        return;
    }
    entry.deleted_at = deleted_at.map(Timestamp::from_millis_clamped);
    entry.spent = session.spent;
    entry.starred = session.starred;
    entry.archived_at = session.archived_at;
    entry.last_seq = session.last_seq;
    entry.session = Some(session.into());
}

fn found_message(found: &mut BTreeMap<i64, Found>, row: &rusqlite::Row<'_>) {
    let Ok(session) = row.get::<_, i64>(7) else { return };
    let Ok((seq, Ok(message))) = messages::from_row_at(row, 1, session) else { return };
    let Ok(body) = message.parse() else { return };
    found.entry(session).or_default().messages.entry(seq).or_insert(NewMessage { id: message.id, body });
}

fn found_plan(
    found: &mut BTreeMap<i64, Found>,
    row: &rusqlite::Row<'_>,
    is_wanted: impl Fn(i64, u64) -> bool,
) {
    let read = || -> rusqlite::Result<Option<(i64, u64, PlanWrite)>> {
        let revision = row.get::<_, i64>(2)?.unsigned_abs();
        let content: String = row.get(5)?;
        if row.get::<_, u32>(6)? != plans::checksum(revision, &content) {
            return Ok(None);
        }
        let at = Timestamp::from_millis_clamped(row.get(4)?);
        let write = PlanWrite { content, agent: row.get(3)?, at, expect_revision: None, key: None };
        Ok(Some((row.get(1)?, revision, write)))
    };
    let Ok(Some((session, revision, write))) = read() else { return };
    if is_wanted(session, revision) {
        found.entry(session).or_default().plans.entry(revision).or_insert(write);
    }
}

/// Takes a run. Of several versions of one, which pages may keep, it is the one that got furthest.
fn found_run(found: &mut BTreeMap<i64, Found>, row: &rusqlite::Row<'_>) {
    let Ok(Ok(stored)) = run_rows::from_row_at(row, 1, run_rows::any_session()) else { return };
    let progress = |run: &Run| {
        let was_seen = run.started_at.is_some() || run.handed_over_at.is_some();
        (run.state.has_ended(), was_seen, run.is_cancelled)
    };
    let runs = &mut found.entry(stored.session).or_default().runs;
    let known = runs.get(&stored.run.id);
    if known.is_none_or(|known| progress(&known.run) < progress(&stored.run)) {
        runs.insert(stored.run.id.clone(), stored);
    }
}

/// Takes a post; of several versions of one, the one that got furthest.
fn found_post(found: &mut BTreeMap<i64, Found>, row: &rusqlite::Row<'_>) {
    let Ok(Ok(stored)) = outbox::from_row_at(row, 1, run_rows::any_session()) else { return };
    let progress = |row: &outbox::Stored| (row.post.state != PostState::Waiting, row.post.tries);
    let posts = &mut found.entry(stored.session).or_default().posts;
    if posts.get(&stored.post.id).is_none_or(|known| progress(known) < progress(&stored)) {
        posts.insert(stored.post.id, stored);
    }
}

/// Takes the plans' states and returns their newest revisions, by session row.
///
/// States are a courtesy: what cannot be read is a draft again.
fn scan_states(reader: &Connection, found: &mut BTreeMap<i64, Found>) -> BTreeMap<i64, u64> {
    let mut newest = BTreeMap::new();
    let sql = "SELECT session, revision, state, swept FROM plans NOT INDEXED";
    let Ok(mut statement) = reader.prepare(sql) else { return newest };
    let Ok(mut rows) = statement.query([]) else { return newest };
    while let Ok(Some(row)) = rows.next() {
        let (Ok(session), Ok(revision)) = (row.get::<_, i64>(0), row.get::<_, i64>(1)) else { continue };
        newest.insert(session, revision.unsigned_abs());
        let Some(found) = found.get_mut(&session) else { continue };
        found.plan_state = row.get::<_, String>(2).ok().and_then(|state| state.parse().ok());
        found.is_plan_swept = row.get(3).unwrap_or_default();
    }
    newest
}

/// Takes over what requests were answered, so that a retry after the salvage still acts once.
fn scan_requests(reader: &Connection, found: &mut Vec<(RequestKey, String)>) {
    let Ok(mut statement) = reader.prepare("SELECT key, fingerprint, answer FROM requests") else { return };
    let Ok(mut rows) = statement.query([]) else { return };
    while let Ok(Some(row)) = rows.next() {
        let read = || -> rusqlite::Result<(RequestKey, String)> {
            Ok((RequestKey { key: row.get(0)?, fingerprint: row.get(1)? }, row.get(2)?))
        };
        found.extend(read());
    }
}

/// Gives every session an id of its own, also those whose row was lost.
struct Names(BTreeSet<SessionId>);

impl Names {
    fn new(found: &BTreeMap<i64, Found>) -> Self {
        Self(found.values().filter_map(|found| found.session.as_ref()).map(|new| new.id.clone()).collect())
    }

    fn of(&mut self, n: i64, session: Option<&NewSession>) -> SessionId {
        if let Some(session) = session {
            return session.id.clone();
        }
        // A store that was salvaged before has ids of this form already.
        let plain = format!("salvaged-{n}");
        let more = (2..).map(|again| format!("salvaged-{n}.{again}"));
        let mut ids = std::iter::once(plain).chain(more).map(|id| id.parse().expect("it fits the id rule"));
        let free = ids.find(|id| self.0.insert(SessionId::clone(id)));
        free.expect("there are more numbers than sessions")
    }
}

fn lost_session(id: SessionId) -> NewSession {
    let mut session = NewSession::chat(id, sess_core::Source::Native, Timestamp::default());
    session.title = "(its row was lost to damage)".to_owned();
    session
}

fn note_of_loss(seq: u64, at: Timestamp) -> NewMessage {
    let text = format!("[message {seq} was lost to damage]");
    NewMessage {
        id: sess_core::MessageId::new(at, u128::from(seq)),
        body: sess_core::message::Body::text(sess_core::message::Role::System, text, at),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use sess_core::message::Body;

    use super::*;
    use crate::{ImportedSession, Messages as _};

    const MESSAGES: u64 = 600;

    /// Makes a store with one session, zeroes the pages of `damage`, salvages; returns the messages that came out.
    async fn salvaged_after(damage: &str) -> Vec<String> {
        let dir = tempfile::tempdir().expect("a directory");
        let (old, new) = (dir.path().join("old"), dir.path().join("new"));
        let store = Sqlite::open(&old).expect("a store");
        let at = Timestamp::default();
        let session = NewSession::chat("s-1".parse().expect("an id"), sess_core::Source::Native, at);
        let id = session.id.clone();
        let text = |seq: u64| {
            format!("message {seq} {}", "long ".repeat(if seq.is_multiple_of(7) { 2000 } else { 20 }))
        };
        let body = |seq: u64| Body::text(sess_core::message::Role::User, text(seq), at);
        let messages = (1..=MESSAGES)
            .map(|seq| NewMessage { id: sess_core::MessageId::new(at, u128::from(seq)), body: body(seq) });
        let messages = messages.collect();
        store.import(ImportedSession { session, starred: false, messages }).await.expect("imported");
        drop(store);
        let file = old.join("sess.db");
        let reader = Connection::open(&file).expect("opened");
        let page: u64 = reader
            .query_row(damage, [], |row| row.get::<_, i64>(0).map(i64::unsigned_abs))
            .expect("a page number");
        drop(reader);
        let damaged = std::fs::OpenOptions::new().write(true).open(&file).expect("opened");
        damaged.write_all_at(&[0; 4096], (page - 1) * 4096).expect("damaged");
        salvage(&old, &new).await.expect("salvaged");
        let new = Sqlite::open(&new).expect("the new store");
        let page = new.messages(&id, crate::Span::After(0), 10_000).await.expect("read");
        page.messages.iter().map(|message| message.body.clone()).collect()
    }

    #[tokio::test]
    async fn a_damaged_page_above_the_rows_costs_no_row() {
        let root = "SELECT rootpage FROM sqlite_master WHERE name = 'messages'";
        let found = salvaged_after(root).await;
        assert_eq!(found.len() as u64, MESSAGES);
        assert!(
            !found.iter().any(|body| body.contains("lost to damage")),
            "no message was replaced by a note"
        );
    }

    #[tokio::test]
    async fn a_damaged_first_page_costs_no_row() {
        assert_eq!(salvaged_after("SELECT 1").await.len() as u64, MESSAGES);
    }
}
