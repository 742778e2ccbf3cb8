//! What is wrong with a store, and what can still be taken out of it.

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use sess_core::{SessionId, session::NewSession};

use super::{
    Sqlite,
    connection::{self, Access},
    derived, feed, messages, pages, plans, schema, sessions,
    writer::leave_untouched,
};
use crate::{
    Error, ImportedSession, Messages as _, NewMessage, PlanWrite, Plans as _, Result, Sessions as _,
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

/// How many sentences of damage are collected.
const DAMAGE_LEN_MAX: usize = 100;

/// Reads the whole store and checks every row. Never changes anything.
pub fn health(dir: &Path) -> Result<Health> {
    let path = dir.join("sess.db");
    if !path.exists() {
        return Err(Error::Unavailable(format!("there is no store at {}", path.display())));
    }
    let mut health =
        Health { path: path.clone(), sqlite: rusqlite::version().to_owned(), ..Health::default() };
    if let Err(Error::Damaged(reason)) = connection::prepare(dir) {
        health.damage.push(reason);
    }
    let reader = connection::connect(&path, Access::Read)?;
    leave_untouched(&reader);
    match schema::version(&reader, &path) {
        Ok(version) => health.schema = version,
        Err(Error::Damaged(reason)) => {
            health.damage.push(reason);
            return Ok(health);
        }
        Err(error) => return Err(error),
    }
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
    let sessions = checks("sessions", check_sessions(&reader, &mut damage));
    let messages = checks("messages", check_messages(&reader, &mut damage));
    checks("plans", check_plans(&reader, &mut damage));
    checks("events", check_events(&reader, &mut damage));
    health.damage.extend(damage);
    health.damage.truncate(DAMAGE_LEN_MAX);
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
/// Works on a copy, so that the damaged file stays as it is. Message numbers
/// stay the same: a lost message leaves a note in its place.
pub async fn salvage(dir: &Path, target: &Path) -> Result<Salvaged> {
    if target.join("sess.db").exists() {
        return Err(Error::Conflict(format!("there is already a store in {}", target.display())));
    }
    let new = Sqlite::open(target)?;
    let scratch = target.join(".salvage");
    std::fs::create_dir_all(&scratch).map_err(|error| Error::from_io("create", &scratch, &error))?;
    let outcome = salvage_into(dir, &scratch, &new).await;
    if let Err(error) = std::fs::remove_dir_all(&scratch) {
        tracing::warn!(path = %scratch.display(), %error, "could not remove the working copy");
    }
    outcome
}

async fn salvage_into(dir: &Path, scratch: &Path, new: &Sqlite) -> Result<Salvaged> {
    let copy = scratch.join("sess.db");
    for suffix in ["", "-wal"] {
        let from = connection::suffixed(&dir.join("sess.db"), suffix);
        if from.exists() {
            let to = connection::suffixed(&copy, suffix);
            std::fs::copy(&from, &to).map_err(|error| Error::from_io("copy", &from, &error))?;
        }
    }
    transplant_header(&copy, &new.path)?;
    let remains = Remains::read(&copy, &new.path)?;
    let mut salvaged = Salvaged { lost: remains.lost, ..Salvaged::default() };
    for (n, found) in remains.sessions {
        let session = found.session.unwrap_or_else(|| lost_session(n));
        let id = session.id.clone();
        let starred = found.starred;
        let archived = found.archived;
        let at = session.created_at;
        let mut messages = Vec::new();
        for (seq, message) in found.messages {
            while (messages.len() as u64) + 1 < seq {
                salvaged.lost += 1;
                messages.push(note_of_loss(messages.len() as u64 + 1, at));
            }
            messages.push(message);
        }
        salvaged.messages += messages.len() as u64;
        new.import(ImportedSession { session: session.clone(), starred, messages }).await?;
        if archived {
            new.patch_session(&id, crate::SessionPatch::Archived(true), at).await?;
        }
        salvaged.sessions += 1;
        for (_, write) in found.plans {
            let written = new.write_plan(session.clone(), write).await?;
            new.announce_plan(&id, written.revision, "").await?;
            salvaged.plan_revisions += 1;
        }
        if let Some(state) = found.plan_state
            && let Some(plan) = new.plan(&id).await?
            && plan.state != state
        {
            let by = "salvage".to_owned();
            let change = crate::PlanChange {
                revision: plan.revision,
                from: plan.state,
                to: state,
                by,
                note: None,
                at,
            };
            new.change_plan_state(&id, change).await?;
        }
    }
    Ok(salvaged)
}

/// Gives a copy whose first page is unreadable the one of a new store: tables of
/// one schema start at the same pages in every store.
fn transplant_header(copy: &Path, fresh: &Path) -> Result<()> {
    use std::os::unix::fs::FileExt as _;

    let io = |error: std::io::Error| Error::from_io("read", copy, &error);
    let readable = connection::connect(copy, Access::Read)
        .and_then(|reader| schema::version(&reader, copy))
        .is_ok_and(|version| version > 0);
    if readable {
        return Ok(());
    }
    const PAGE_SIZE: usize = 4096;
    let mut page = vec![0; PAGE_SIZE];
    std::fs::File::open(fresh).and_then(|file| file.read_exact_at(&mut page, 0)).map_err(io)?;
    let file = std::fs::OpenOptions::new().write(true).open(copy).map_err(io)?;
    file.write_all_at(&page, 0).map_err(io)
}

/// What the scan of a damaged store brought up, by session row.
struct Remains {
    sessions: std::collections::BTreeMap<i64, Found>,
    lost: u64,
}

#[derive(Default)]
struct Found {
    session: Option<NewSession>,
    starred: bool,
    archived: bool,
    messages: std::collections::BTreeMap<u64, NewMessage>,
    plans: std::collections::BTreeMap<u64, PlanWrite>,
    plan_state: Option<sess_core::plan::State>,
}

impl Remains {
    fn read(copy: &Path, fresh: &Path) -> Result<Self> {
        let mut found = Self { sessions: std::collections::BTreeMap::new(), lost: 0 };
        let mut newest_plans = std::collections::BTreeMap::new();
        match connect_to_remains(copy) {
            Ok(reader) => {
                found.lost = found.take(&reader, |_, _| true);
                newest_plans = scan_states(&reader, &mut found.sessions);
                // Closing moves the log into the copy, where the pages are read next.
            }
            Err(error) => tracing::warn!(%error, "the tables cannot be read; looking for rows page by page"),
        }
        let before = found.len();
        // A page that still holds a revision which was taken back must not revive it.
        let loose = loose_rows(copy, fresh)?;
        found.take(&loose, |session, revision| {
            newest_plans.get(&session).is_none_or(|newest| revision <= *newest)
        });
        found.lost = found.lost.saturating_sub(found.len() - before);
        Ok(found)
    }

    /// Takes what is not here yet from the tables; returns how many rows could not be read.
    fn take(&mut self, reader: &Connection, is_plan_wanted: impl Fn(i64, u64) -> bool) -> u64 {
        let sessions = &mut self.sessions;
        let mut lost = scan(reader, "sessions", sessions::COLUMNS, |row| found_session(sessions, row));
        lost += scan(reader, "messages", "n, seq, id, shape, crc, body, session", |row| {
            found_message(sessions, row)
        });
        lost += scan(reader, "plan_revisions", "session, revision, agent, at, content, crc", |row| {
            found_plan(sessions, row, &is_plan_wanted)
        });
        lost
    }

    fn len(&self) -> u64 {
        let rows = self
            .sessions
            .values()
            .map(|found| usize::from(found.session.is_some()) + found.messages.len() + found.plans.len());
        rows.sum::<usize>() as u64
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

/// Visits every row that can be read, by its number; returns how many could not.
///
/// A damaged page fails the lookups that lead through it and no others, so
/// after a failure the rows behind it are asked for one by one.
fn scan(
    reader: &Connection,
    table: &str,
    columns: &str,
    mut visit: impl FnMut(&rusqlite::Row<'_>) -> bool,
) -> u64 {
    const MISSES_MAX: i64 = 20_000;
    let next = format!("SELECT n AS row_number, {columns} FROM {table} NOT INDEXED WHERE n > ?1 ORDER BY n");
    let one = format!("SELECT n AS row_number, {columns} FROM {table} NOT INDEXED WHERE n = ?1");
    let (mut at, mut lost, mut misses) = (0_i64, 0, 0);
    loop {
        let run = (|| -> rusqlite::Result<()> {
            let mut statement = reader.prepare_cached(&next)?;
            let mut rows = statement.query([at])?;
            while let Some(row) = rows.next()? {
                at = row.get("row_number")?;
                misses = 0;
                if !visit(row) {
                    lost += 1;
                }
            }
            Ok(())
        })();
        if run.is_ok() {
            return lost;
        }
        // Step over what cannot be read, until a row answers again.
        loop {
            at += 1;
            misses += 1;
            if misses > MISSES_MAX {
                return lost;
            }
            let found = reader.prepare_cached(&one).and_then(|mut statement| {
                let mut rows = statement.query([at])?;
                Ok(rows.next()?.map(&mut visit))
            });
            match found {
                Ok(Some(true)) => break,
                Ok(Some(false)) => lost += 1,
                Ok(None) => {}
                Err(_) => lost += 1,
            }
        }
    }
}

fn found_session(found: &mut std::collections::BTreeMap<i64, Found>, row: &rusqlite::Row<'_>) -> bool {
    let Ok((n, Ok(session))) = sessions::from_row_at(row, 1) else { return false };
    let entry = found.entry(n).or_default();
    if entry.session.is_some() {
        return true;
    }
    entry.starred = session.starred;
    entry.archived = session.archived_at.is_some();
    entry.session = Some(NewSession {
        id: session.id,
        key: session.key,
        agent: session.agent,
        source: session.source,
        title: session.title,
        cwd: session.cwd,
        parent: session.parent,
        created_at: session.created_at,
    });
    true
}

fn found_message(found: &mut std::collections::BTreeMap<i64, Found>, row: &rusqlite::Row<'_>) -> bool {
    let Ok(session) = row.get::<_, i64>(7) else { return false };
    let Ok((seq, Ok(message))) = messages::from_row_at(row, 1, session) else { return false };
    let Ok(body) = message.parse() else { return false };
    found.entry(session).or_default().messages.entry(seq).or_insert(NewMessage { id: message.id, body });
    true
}

fn found_plan(
    found: &mut std::collections::BTreeMap<i64, Found>,
    row: &rusqlite::Row<'_>,
    is_wanted: impl Fn(i64, u64) -> bool,
) -> bool {
    let read = || -> rusqlite::Result<Option<(i64, u64, PlanWrite)>> {
        let revision = row.get::<_, i64>(2)?.unsigned_abs();
        let content: String = row.get(5)?;
        if row.get::<_, u32>(6)? != plans::checksum(revision, &content) {
            return Ok(None);
        }
        let at = sess_core::Timestamp::from_millis_clamped(row.get(4)?);
        let write = PlanWrite { content, agent: row.get(3)?, at, expect_revision: None, key: None };
        Ok(Some((row.get(1)?, revision, write)))
    };
    let Ok(Some((session, revision, write))) = read() else { return false };
    if is_wanted(session, revision) {
        found.entry(session).or_default().plans.entry(revision).or_insert(write);
    }
    true
}

/// Takes the plans' states and returns their newest revisions, by session row.
///
/// States are a courtesy: what cannot be read is a draft again.
fn scan_states(
    reader: &Connection,
    found: &mut std::collections::BTreeMap<i64, Found>,
) -> std::collections::BTreeMap<i64, u64> {
    let states =
        reader.prepare("SELECT session, revision, state FROM plans NOT INDEXED").and_then(|mut statement| {
            let rows = statement.query_map([], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?.unsigned_abs(), row.get::<_, String>(2)?))
            })?;
            Ok(rows.flatten().collect::<Vec<_>>())
        });
    let mut newest = std::collections::BTreeMap::new();
    for (session, revision, state) in states.unwrap_or_default() {
        newest.insert(session, revision);
        if let (Some(found), Ok(state)) = (found.get_mut(&session), state.parse()) {
            found.plan_state = Some(state);
        }
    }
    newest
}

fn lost_session(n: i64) -> NewSession {
    let id: SessionId = format!("salvaged-{n}").parse().expect("a number fits the id rule");
    let mut session = NewSession::chat(id, sess_core::Source::Native, sess_core::Timestamp::default());
    session.title = "(its row was lost to damage)".to_owned();
    session
}

fn note_of_loss(seq: u64, at: sess_core::Timestamp) -> NewMessage {
    let text = format!("[message {seq} was lost to damage]");
    NewMessage {
        id: sess_core::MessageId::new(at, u128::from(seq)),
        body: sess_core::message::Body::text(sess_core::message::Role::System, text, at),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use sess_core::{Timestamp, message::Body};

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
        let text =
            |seq: u64| format!("message {seq} {}", "long ".repeat(if seq % 7 == 0 { 2000 } else { 20 }));
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
