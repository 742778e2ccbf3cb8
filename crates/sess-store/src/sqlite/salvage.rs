//! What is wrong with a store, and what can still be taken out of it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use rusqlite::Connection;
use sess_core::{SessionId, Timestamp, session::NewSession};

use super::{
    Sqlite,
    connection::{self, Access},
    derived, feed, messages, pages, plans, readers, schema, sessions,
    writer::leave_untouched,
};
use crate::{
    Error, ImportedSession, Messages as _, NewMessage, PlanWrite, Plans as _, RequestKey, Result,
    Sessions as _,
};

/// What `sess doctor` found out about a store.
#[derive(Clone, Debug, Default)]
pub struct Health {
    pub path: PathBuf,
    pub schema: i64,
    pub sqlite: String,
    pub sessions: u64,
    pub messages: u64,
    /// How many messages search and mirror have yet to take in; `None` before the first search.
    pub index_lag: Option<u64>,
    /// Every damage that was found, as a sentence.
    pub damage: Vec<String>,
}

const SALVAGE: &str = "`sess doctor --salvage <new dir>` copies what can be read";

/// How many sentences of damage are collected.
const DAMAGE_LEN_MAX: usize = 100;

/// Reads the whole store and checks every row. Never changes the store: a damaged one
/// gets a mark beside it, so that nobody else does either.
pub fn health(dir: &Path) -> Result<Health> {
    let path = dir.join("sess.db");
    if !path.exists() {
        return Err(Error::Unavailable(format!("there is no store at {}", path.display())));
    }
    let mut health =
        Health { path: path.clone(), sqlite: rusqlite::version().to_owned(), ..Health::default() };
    match connection::check(&path) {
        Err(Error::Damaged(reason)) => health.damage.push(reason),
        checked => checked?,
    }
    let opened = connection::connect(&path, Access::Read).and_then(|reader| {
        leave_untouched(&reader);
        Ok((schema::version(&reader, &path)?, reader))
    });
    let reader = match opened {
        Ok((version, reader)) => {
            health.schema = version;
            if version < schema::FIRST {
                // Stores are made whole.
                health
                    .damage
                    .push(format!("the store {} is damaged: its version is {version}", path.display()));
            }
            reader
        }
        Err(Error::Damaged(reason)) => {
            health.damage.push(reason);
            return Ok(health);
        }
        Err(error) => return Err(error),
    };
    let mut checks = |what: &str, check: rusqlite::Result<u64>| match check {
        Ok(count) => count,
        Err(error) => {
            let told = Error::from_sqlite(&path, &error);
            health.damage.push(format!("{what}: {told}"));
            0
        }
    };
    let mut damage = Vec::new();
    checks("integrity check", integrity(&reader, &mut damage));
    if let Some(first) = damage.first() {
        // Pages are damaged: whoever comes next must not write to them.
        readers::leave_mark(
            &path,
            &Error::Damaged(format!("the store {} is damaged ({first}); {SALVAGE}", path.display())),
        );
    }
    let sessions = checks("sessions", check_sessions(&reader, &mut damage));
    let messages = checks("messages", check_messages(&reader, &mut damage));
    checks("plans", check_plans(&reader, &mut damage));
    checks("events", check_events(&reader, &mut damage));
    health.damage.extend(damage);
    if health.damage.len() > DAMAGE_LEN_MAX {
        health.damage.truncate(DAMAGE_LEN_MAX);
        health.damage.push("and more".to_owned());
    }
    (health.sessions, health.messages) = (sessions, messages);
    health.index_lag = derived::lag(&dir.join("search.db"), &reader).ok();
    Ok(health)
}

fn integrity(reader: &Connection, damage: &mut Vec<String>) -> rusqlite::Result<u64> {
    let mut statement = reader.prepare("PRAGMA integrity_check(50)")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let told: String = row.get(0)?;
        if told != "ok" {
            damage.push(format!("integrity check: {told}"));
        }
    }
    Ok(0)
}

fn check_sessions(reader: &Connection, damage: &mut Vec<String>) -> rusqlite::Result<u64> {
    let sql = format!("SELECT {} FROM sessions ORDER BY n", sessions::COLUMNS);
    let mut statement = reader.prepare(&sql)?;
    let mut rows = statement.query([])?;
    let mut count = 0;
    while let Some(row) = rows.next()? {
        count += 1;
        let (n, session) = sessions::from_row(row)?;
        let session = match session {
            Ok(session) => session,
            Err(reason) => {
                damage.push(reason);
                continue;
            }
        };
        let (stored, newest): (i64, i64) = reader
            .prepare_cached("SELECT count(*), coalesce(max(seq), 0) FROM messages WHERE session = ?1")?
            .query_row([n], |row| Ok((row.get(0)?, row.get(1)?)))?;
        if stored != newest || stored.unsigned_abs() != session.last_seq {
            damage.push(format!(
                "session {} should have {} messages and has {stored}, the newest is {newest}",
                session.id, session.last_seq
            ));
        }
    }
    Ok(count)
}

fn check_messages(reader: &Connection, damage: &mut Vec<String>) -> rusqlite::Result<u64> {
    let mut statement =
        reader.prepare("SELECT n, seq, id, shape, crc, body, session FROM messages ORDER BY n")?;
    let mut rows = statement.query([])?;
    let mut count = 0;
    while let Some(row) = rows.next()? {
        count += 1;
        let session: i64 = row.get(6)?;
        if let (seq, Err(reason)) = messages::from_row(row, session)? {
            damage.push(format!("message {seq} of session row {session} is damaged: {reason}"));
        }
    }
    Ok(count)
}

fn check_plans(reader: &Connection, damage: &mut Vec<String>) -> rusqlite::Result<u64> {
    let mut statement =
        reader.prepare("SELECT session, revision, content, crc FROM plan_revisions ORDER BY n")?;
    let mut rows = statement.query([])?;
    let mut count = 0;
    while let Some(row) = rows.next()? {
        count += 1;
        let (session, revision): (i64, i64) = (row.get(0)?, row.get(1)?);
        let content = row.get::<_, String>(2).unwrap_or_default();
        if row.get::<_, u32>(3).ok() != Some(plans::checksum(revision.unsigned_abs(), &content)) {
            damage.push(format!("plan revision {revision} of session row {session} is damaged"));
        }
    }
    Ok(count)
}

fn check_events(reader: &Connection, damage: &mut Vec<String>) -> rusqlite::Result<u64> {
    let mut statement = reader.prepare("SELECT n, kind, data, crc FROM events ORDER BY n")?;
    let mut rows = statement.query([])?;
    let mut count = 0;
    while let Some(row) = rows.next()? {
        count += 1;
        let (kind, data) =
            (row.get::<_, String>(1).unwrap_or_default(), row.get::<_, String>(2).unwrap_or_default());
        if row.get::<_, u32>(3).ok() != Some(feed::checksum(&kind, &data)) {
            damage.push(format!("event {} is damaged", row.get::<_, i64>(0)?));
        }
    }
    Ok(count)
}

/// What [`salvage`] took over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    pub sessions: u64,
    pub messages: u64,
    pub plan_revisions: u64,
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
    for (n, found) in remains.sessions {
        salvage_session(new, n, found, &mut salvaged).await?;
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

async fn salvage_session(new: &Sqlite, n: i64, found: Found, salvaged: &mut Salvaged) -> Result<()> {
    let Found { session, starred, archived_at, last_seq, messages: found_messages, plans, plan_state } =
        found;
    if session.is_none() {
        salvaged.lost += 1;
    }
    let session = session.unwrap_or_else(|| lost_session(n));
    let (id, at) = (session.id.clone(), session.created_at);
    salvaged.sessions += 1;
    salvaged.messages += found_messages.len() as u64;

    let newest = found_messages.last_key_value().map_or(0, |(seq, _)| *seq);
    // The counter may be damaged itself: it is believed only when it is near.
    let last_seq =
        if last_seq.saturating_sub(newest) <= LOST_AT_END_MAX { last_seq.max(newest) } else { newest };
    salvaged.lost += last_seq - found_messages.len() as u64;
    let mut rest = found_messages;
    let messages = (1..=last_seq).map(|seq| rest.remove(&seq).unwrap_or_else(|| note_of_loss(seq, at)));
    let messages = messages.collect();
    new.import(ImportedSession { session: session.clone(), starred, messages }).await?;
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
    Ok(())
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
    schema::version(&reader, copy).is_ok_and(|version| version > 0)
        && ["sessions", "messages", "plans", "plan_revisions", "requests"]
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
    last_seq: u64,
    messages: BTreeMap<u64, NewMessage>,
    plans: BTreeMap<u64, PlanWrite>,
    plan_state: Option<sess_core::plan::State>,
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
    }
}

fn connect_to_remains(copy: &Path) -> Result<Connection> {
    let reader = connection::connect(copy, Access::Write)?;
    // Only so does SQLite read a file that is shorter than its header says.
    reader
        .set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_DEFENSIVE, false)
        .and_then(|_| reader.execute_batch("PRAGMA writable_schema = ON; PRAGMA cell_size_check = OFF;"))
        .map_err(|error| Error::from_sqlite(copy, &error))?;
    Ok(reader)
}

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
    for table in ["sessions", "messages", "plan_revisions"] {
        let columns: Vec<String> = new
            .prepare("SELECT name FROM pragma_table_info(?1) ORDER BY cid")
            .and_then(|mut names| names.query_map([table], |row| row.get(0))?.collect())
            .map_err(sqlite)?;
        loose.execute_batch(&format!("CREATE TABLE {table} ({})", columns.join(", "))).map_err(sqlite)?;
        let places = vec!["?"; columns.len()].join(", ");
        inserts.push((columns.len(), format!("INSERT INTO {table} VALUES ({places})")));
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
    let entry = found.entry(n).or_default();
    if entry.session.is_some() {
        return;
    }
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

/// Takes the plans' states and returns their newest revisions, by session row.
///
/// States are a courtesy: what cannot be read is a draft again.
fn scan_states(reader: &Connection, found: &mut BTreeMap<i64, Found>) -> BTreeMap<i64, u64> {
    let states =
        reader.prepare("SELECT session, revision, state FROM plans NOT INDEXED").and_then(|mut statement| {
            let rows = statement.query_map([], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?.unsigned_abs(), row.get::<_, String>(2)?))
            })?;
            Ok(rows.flatten().collect::<Vec<_>>())
        });
    let mut newest = BTreeMap::new();
    for (session, revision, state) in states.unwrap_or_default() {
        newest.insert(session, revision);
        if let (Some(found), Ok(state)) = (found.get_mut(&session), state.parse()) {
            found.plan_state = Some(state);
        }
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

fn lost_session(n: i64) -> NewSession {
    let id: SessionId = format!("salvaged-{n}").parse().expect("a number fits the id rule");
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
