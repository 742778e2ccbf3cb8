//! What is wrong with a store: every row, read and checked.

use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::{
    connection::{self, Access},
    derived, feed, messages, outbox, plans, readers, run_rows, schema, sessions,
    writer::leave_untouched,
};
use crate::{Error, Result};

/// What `sess doctor` found out about a store.
#[derive(Clone, Debug, Default)]
pub struct Health {
    pub path: PathBuf,
    pub schema: i64,
    pub sqlite: String,
    pub sessions: u64,
    pub messages: u64,
    pub runs: u64,
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
    let runs = checks("runs", check_runs(&reader, &mut damage));
    checks("posts", check_posts(&reader, &mut damage));
    checks("events", check_events(&reader, &mut damage));
    health.damage.extend(damage);
    if health.damage.len() > DAMAGE_LEN_MAX {
        health.damage.truncate(DAMAGE_LEN_MAX);
        health.damage.push("and more".to_owned());
    }
    (health.sessions, health.messages, health.runs) = (sessions, messages, runs);
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
        // Of a deleted one, nothing but its row is there.
        let is_deleted = row.get::<_, Option<i64>>(sessions::DELETED_AT).is_ok_and(|at| at.is_some());
        count += u64::from(!is_deleted);
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

fn check_runs(reader: &Connection, damage: &mut Vec<String>) -> rusqlite::Result<u64> {
    let mut statement = reader.prepare(&format!("SELECT {} FROM runs ORDER BY n", run_rows::COLUMNS))?;
    let mut rows = statement.query([])?;
    let mut count = 0;
    while let Some(row) = rows.next()? {
        count += 1;
        damage.extend(run_rows::from_row_at(row, 0, run_rows::any_session())?.err());
    }
    Ok(count)
}

fn check_posts(reader: &Connection, damage: &mut Vec<String>) -> rusqlite::Result<u64> {
    let mut statement = reader.prepare(&format!("SELECT {} FROM outbox ORDER BY n", outbox::COLUMNS))?;
    let mut rows = statement.query([])?;
    let mut count = 0;
    while let Some(row) = rows.next()? {
        count += 1;
        damage.extend(outbox::from_row_at(row, 0, run_rows::any_session())?.err());
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
