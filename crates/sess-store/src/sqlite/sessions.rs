//! Sessions in SQLite.

use std::fmt::Write as _;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension as _, Row, ToSql, params};
use sess_core::{
    AgentId, SessionId, SessionKey, Source, Timestamp,
    session::{Facts, NewSession, Runner, Session, Spent},
};

use super::{
    Sqlite, crc, deletion, feed, messages, reach, runs,
    writer::{JobResult, Transaction},
};
use crate::{Archived, Error, Happening, Reach, Result, SessionFilter, SessionPatch, Sessions};

pub(super) const COLUMNS: &str = "n, id, key, agent, source, title, cwd, parent, created_at, updated_at, \
     last_seq, num_messages, starred, archived_at, crc, facts, tokens, cost, deleted_at";

/// Where in them it stands when a session was deleted.
pub(super) const DELETED_AT: usize = 18;

#[async_trait]
impl Sessions for Sqlite {
    async fn ensure_session(&self, new: NewSession) -> Result<Session> {
        self.writer
            .write(move |tx| {
                let (n, _) = ensure(tx, &new, false)?;
                Ok(whole(by_n(tx.connection(), n)?, &new.id)?)
            })
            .await
    }

    async fn session(&self, id: &SessionId) -> Result<Option<Session>> {
        let found = self.readers.query(|reader| {
            let sql = format!("SELECT {COLUMNS} FROM sessions WHERE id = ?1 AND deleted_at IS NULL");
            reader.prepare_cached(&sql)?.query_row([id.as_str()], from_row).optional()
        })?;
        found.map(|(_, session)| whole(session, id)).transpose()
    }

    async fn session_by_key(&self, key: &SessionKey) -> Result<Option<Session>> {
        // A reset key leads to its newest transcript.
        let found = self.readers.query(|reader| {
            let sql = format!(
                "SELECT {COLUMNS} FROM sessions WHERE key = ?1 AND deleted_at IS NULL ORDER BY n DESC LIMIT 1"
            );
            reader.prepare_cached(&sql)?.query_row([key.as_str()], from_row).optional()
        })?;
        found.map(|(_, session)| whole(session, key)).transpose()
    }

    async fn session_after(&self, id: &SessionId) -> Result<Option<SessionId>> {
        let found: Option<String> = self.readers.query(|reader| {
            reader
                .prepare_cached(
                    "SELECT later.id FROM sessions s JOIN sessions later ON later.key = s.key AND later.n > s.n \
                     WHERE s.id = ?1 AND later.deleted_at IS NULL ORDER BY later.n LIMIT 1",
                )?
                .query_row([id.as_str()], |row| row.get(0))
                .optional()
        })?;
        // An id that is none is damage, and costs the session that has it.
        Ok(found.and_then(|id| id.parse().ok()))
    }

    async fn sessions_by_prefix(&self, prefix: &str, limit: usize) -> Result<Vec<Session>> {
        // Ids are ASCII, so the range up to the next letter is exactly the prefix.
        let end = format!("{prefix}\u{7f}");
        self.many(
            "id >= ?1 AND id < ?2 AND deleted_at IS NULL ORDER BY id LIMIT ?3",
            params![prefix, end, messages::signed(limit as u64)],
        )
    }

    async fn known_sessions(&self, ids: &[SessionId]) -> Result<Vec<Session>> {
        let ids = serde_json::to_string(ids).expect("ids are text");
        self.many("id IN (SELECT value FROM json_each(?1)) AND deleted_at IS NULL", params![ids])
    }

    async fn is_bare(&self, id: &SessionId) -> Result<bool> {
        let sql = format!("SELECT count(*) FROM sessions WHERE id = ?1 AND NOT {}", not_bare("sessions"));
        let bare: i64 = self
            .readers
            .query(|reader| reader.prepare_cached(&sql)?.query_row([id.as_str()], |row| row.get(0)))?;
        Ok(bare > 0)
    }

    async fn children(&self, parent: &SessionKey) -> Result<Vec<Session>> {
        self.many("parent = ?1 AND deleted_at IS NULL ORDER BY created_at, n", params![parent.as_str()])
    }

    async fn list_sessions(&self, filter: &SessionFilter, offset: u64, limit: usize) -> Result<Vec<Session>> {
        let (wheres, mut values) = conditions(filter);
        values.push(Box::new(messages::signed(limit as u64)));
        values.push(Box::new(messages::signed(offset)));
        let rest = format!("{wheres} ORDER BY updated_at DESC, created_at DESC, id LIMIT ? OFFSET ?");
        let values: Vec<&dyn ToSql> = values.iter().map(|value| &**value).collect();
        self.many(&rest, &values)
    }

    async fn count_sessions(&self, filter: &SessionFilter, most: u64) -> Result<u64> {
        let (wheres, mut values) = conditions(filter);
        values.push(Box::new(messages::signed(most)));
        let sql = format!("SELECT count(*) FROM (SELECT 1 FROM sessions WHERE {wheres} LIMIT ?)");
        self.readers.query(|reader| {
            let count: i64 = reader
                .prepare_cached(&sql)?
                .query_row(rusqlite::params_from_iter(&values), |row| row.get(0))?;
            Ok(count.unsigned_abs())
        })
    }

    async fn patch_session_as_one(
        &self,
        id: &SessionId,
        patches: Vec<SessionPatch>,
        at: Timestamp,
    ) -> Result<Session> {
        let id = id.clone();
        self.writer
            .write(move |tx| {
                let (n, mut session) = require(tx.connection(), &id)?;
                for patch in patches {
                    if let Some(change) = apply(patch, &mut session, at) {
                        change_row(tx, n, &session, change, at)?;
                    }
                }
                Ok(session)
            })
            .await
    }

    async fn reset_session(&self, id: &SessionId, new: NewSession) -> Result<Session> {
        let id = id.clone();
        self.writer
            .write(move |tx| {
                let (n, session) = require(tx.connection(), &id)?;
                if runs::has_open(tx.connection(), n)? {
                    return Err(Error::Conflict(format!("session {id} has a run that has not ended")).into());
                }
                let newest: i64 = tx
                    .connection()
                    .prepare_cached("SELECT max(n) FROM sessions WHERE key = ?1 AND deleted_at IS NULL")?
                    .query_row([session.key.as_str()], |row| row.get(0))?;
                if newest != n || session.key != new.key {
                    let text = format!("session {id} was started over already: {} leads elsewhere", new.key);
                    return Err(Error::Conflict(text).into());
                }
                let (n, _) = ensure(tx, &new, false)?;
                let at = new.created_at;
                feed::record(tx, n, &Happening::SessionChanged { at, change: "reset".to_owned() })?;
                Ok(whole(by_n(tx.connection(), n)?, &new.id)?)
            })
            .await
    }

    async fn transcripts_of(&self, key: &SessionKey) -> Result<Vec<Session>> {
        self.many("key = ?1 AND deleted_at IS NULL ORDER BY n", params![key.as_str()])
    }

    async fn list_within(&self, reach: &Reach, offset: u64, limit: usize) -> Result<Vec<Session>> {
        let rows = self.readers.query(|reader| reach::list(reader, reach, offset, limit))?;
        Ok(readable(rows))
    }

    async fn count_within(&self, reach: &Reach, most: u64) -> Result<u64> {
        self.readers.query(|reader| reach::count(reader, reach, most))
    }

    async fn agents(&self) -> Result<Vec<AgentId>> {
        self.readers.query(agents)
    }

    async fn delete_session(&self, id: &SessionId, by: &str, at: Timestamp) -> Result<()> {
        let (id, by) = (id.clone(), by.to_owned());
        self.writer.write(move |tx| deletion::delete(tx, &id, &by, at)).await
    }

    async fn archive_spawned(&self, before: Timestamp, at: Timestamp) -> Result<Vec<Session>> {
        let now = crate::boot_time()?;
        let are_due = self.readers.query(|reader| Ok(!deletion::left(reader, before, &now)?.is_empty()))?;
        if !are_due {
            return Ok(Vec::new());
        }
        self.writer
            .write(move |tx| {
                let due = deletion::left(tx.connection(), before, &now)?;
                due.into_iter()
                    .map(|(n, mut session)| {
                        session.archived_at = Some(at);
                        change_row(tx, n, &session, "archived", at)?;
                        Ok(session)
                    })
                    .collect()
            })
            .await
    }
}

impl Sqlite {
    /// Returns the sessions that meet a condition; a damaged one costs itself and a warning.
    fn many(&self, rest: &str, values: &[&dyn ToSql]) -> Result<Vec<Session>> {
        let rows = self.readers.query(|reader| {
            let sql = format!("SELECT {COLUMNS} FROM sessions WHERE {rest}");
            let mut statement = reader.prepare_cached(&sql)?;
            let rows = statement.query_map(values, from_row)?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        })?;
        Ok(readable(rows))
    }
}

fn readable(rows: Vec<(i64, Readable)>) -> Vec<Session> {
    let readable = rows.into_iter().filter_map(|(_, session)| match session {
        Ok(session) => Some(session),
        Err(reason) => {
            tracing::warn!("{reason}; it is left out");
            None
        }
    });
    readable.collect()
}

/// Changes a session, and names the change; `None` when nothing is other than before.
fn apply(patch: SessionPatch, session: &mut Session, at: Timestamp) -> Option<&'static str> {
    let facts = &mut session.facts;
    Some(match patch {
        SessionPatch::Title(title) => {
            session.title = title;
            "renamed"
        }
        SessionPatch::Starred(starred) => {
            session.starred = starred;
            if starred { "starred" } else { "unstarred" }
        }
        SessionPatch::Archived(archived) => {
            session.archived_at = archived.then_some(at);
            facts.is_unarchived = !archived && session.source != Source::Native;
            if archived { "archived" } else { "unarchived" }
        }
        SessionPatch::SendPolicy(policy) => {
            facts.send_policy = policy;
            "send_policy"
        }
        // Told at every message, and mostly the same.
        SessionPatch::Delivery(address) if facts.delivery.as_ref() == Some(&address) => return None,
        SessionPatch::Delivery(address) => {
            facts.delivery = Some(address);
            "delivery"
        }
        SessionPatch::Model(model) => {
            facts.model = model;
            "model"
        }
        SessionPatch::Thinking(level) => {
            facts.thinking = level;
            "thinking"
        }
        SessionPatch::Verbose(level) => {
            facts.verbose = level;
            "verbose"
        }
        SessionPatch::DisplayName(name) => {
            facts.display_name = name;
            "display_name"
        }
        SessionPatch::Label(label) => {
            facts.label = label;
            "label"
        }
    })
}

/// Goes from one agent's keys to the next one's, whatever their number.
fn agents(reader: &Connection) -> rusqlite::Result<Vec<AgentId>> {
    let mut statement = reader.prepare_cached(
        "SELECT key FROM sessions WHERE key >= ?1 AND key < 'agent;' AND deleted_at IS NULL ORDER BY key LIMIT 1",
    )?;
    let mut found = Vec::new();
    let mut from = "agent:".to_owned();
    while let Some(key) = statement.query_row([&from], |row| row.get::<_, String>(0)).optional()? {
        let name = key.split(':').nth(1).unwrap_or_default();
        // ';' follows ':'.
        from = format!("agent:{name};");
        found.extend(name.parse::<AgentId>());
    }
    found.sort();
    Ok(found)
}

/// Writes the filter as SQL; only top-level sessions are ever listed.
///
/// The first condition is the one that the partial indexes carry, letter for letter.
fn conditions(filter: &SessionFilter) -> (String, Vec<Box<dyn ToSql>>) {
    let mut sql = "parent IS NULL AND deleted_at IS NULL".to_owned();
    let mut values: Vec<Box<dyn ToSql>> = Vec::new();
    if filter.archived == Archived::Hidden {
        sql.push_str(" AND archived_at IS NULL");
    }
    let mut equals = |column: &str, value: String| {
        let _infallible = write!(sql, " AND {column} ?");
        values.push(Box::new(value));
    };
    if let Some(agent) = &filter.agent {
        equals("owner =", format!("agent:{agent}:"));
    }
    if let Some(source) = filter.source {
        equals("source =", source.to_string());
    }
    if let Some(title) = &filter.title {
        let pattern = title.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
        equals("title LIKE", format!("%{pattern}%"));
        sql.push_str(" ESCAPE '\\'");
    }
    below("cwd", &filter.dirs, &mut sql, &mut values);
    if filter.source.is_some_and(|source| source != sess_core::Source::Native) {
        sql.push_str(" AND source <> 'native'");
    }
    if filter.without_bare {
        let _infallible = write!(sql, " AND {}", not_bare("sessions"));
    }
    none_of("id", &filter.except, &mut sql, &mut values);
    (sql, values)
}

/// Returns the condition that a row is more than what the owner said about another agent's session.
pub(super) fn not_bare(table: &str) -> String {
    format!(
        "({table}.source = 'native' OR {table}.last_seq > 0 \
         OR EXISTS (SELECT 1 FROM plans WHERE plans.session = {table}.n) \
         OR EXISTS (SELECT 1 FROM runs WHERE runs.session = {table}.n))"
    )
}

/// Adds that a directory is one of these or below it, if any are given.
pub(super) fn below(column: &str, dirs: &[String], sql: &mut String, values: &mut Vec<Box<dyn ToSql>>) {
    if dirs.is_empty() {
        return;
    }
    let one = format!("{column} = ? OR ({column} >= ? AND {column} < ?)");
    let _infallible = write!(sql, " AND ({})", vec![one; dirs.len()].join(" OR "));
    for dir in dirs {
        let root = dir.trim_end_matches('/');
        values.push(Box::new(root.to_owned()));
        values.push(Box::new(format!("{root}/")));
        values.push(Box::new(format!("{root}0"))); // '0' follows '/'
    }
}

/// Adds that an id is none of these.
pub(super) fn none_of(column: &str, ids: &[SessionId], sql: &mut String, values: &mut Vec<Box<dyn ToSql>>) {
    if ids.is_empty() {
        return;
    }
    // As one value: there may be more of them than a statement has places.
    let ids: Vec<&str> = ids.iter().map(SessionId::as_str).collect();
    let _infallible = write!(sql, " AND {column} NOT IN (SELECT value FROM json_each(?))");
    values.push(Box::new(serde_json::Value::from(ids).to_string()));
}

/// Returns the session's row number, and whether it was made now; refuses one that was deleted.
pub(super) fn ensure(tx: &mut Transaction<'_>, new: &NewSession, starred: bool) -> JobResult<(i64, bool)> {
    let found: Option<(i64, bool)> = tx
        .connection()
        .prepare_cached("SELECT n, deleted_at IS NOT NULL FROM sessions WHERE id = ?1")?
        .query_row([new.id.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    match found {
        Some((_, true)) => return Err(Error::Conflict(format!("session {} was deleted", new.id)).into()),
        Some((n, false)) => return Ok((n, false)),
        None => {}
    }
    let session = Session {
        id: new.id.clone(),
        key: new.key.clone(),
        agent: new.agent.clone(),
        source: new.source,
        title: new.title.clone(),
        cwd: new.cwd.clone(),
        parent: new.parent.clone(),
        facts: new.facts.clone(),
        created_at: new.created_at,
        updated_at: new.created_at,
        last_seq: 0,
        num_messages: 0,
        starred,
        archived_at: None,
        spent: Spent::default(),
    };
    let facts = facts_text(&session);
    tx.connection()
        .prepare_cached(
            "INSERT INTO sessions (id, key, agent, source, title, cwd, parent, created_at, updated_at, last_seq, \
             num_messages, starred, archived_at, crc, facts) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 0, 0, ?10, NULL, ?11, ?12)",
        )?
        .execute(params![
            session.id.as_str(),
            session.key.as_str(),
            session.agent.as_str(),
            session.source.as_str(),
            session.title,
            session.cwd,
            session.parent.as_ref().map(SessionKey::as_str),
            session.created_at.as_millis(),
            session.updated_at.as_millis(),
            session.starred,
            checksum(&session, facts.as_deref(), None),
            facts
        ])?;
    let n = tx.connection().last_insert_rowid();
    feed::record(tx, n, &Happening::SessionCreated { at: new.created_at, key: new.key.clone() })?;
    Ok((n, true))
}

/// Makes `agent` the one that is active in the session.
pub(super) fn hand_off(
    tx: &mut Transaction<'_>,
    id: &SessionId,
    agent: AgentId,
    at: Timestamp,
) -> JobResult<()> {
    let (n, mut session) = require(tx.connection(), id)?;
    if session.agent == agent {
        return Ok(());
    }
    session.agent = agent;
    change_row(tx, n, &session, "handed_off", at)
}

/// Writes what may change of a session, and tells followers.
pub(super) fn change_row(
    tx: &mut Transaction<'_>,
    n: i64,
    session: &Session,
    change: &str,
    at: Timestamp,
) -> JobResult<()> {
    let facts = facts_text(session);
    tx.connection()
        .prepare_cached(
            "UPDATE sessions SET title = ?2, starred = ?3, archived_at = ?4, agent = ?5, facts = ?6, crc = ?7 \
             WHERE n = ?1",
        )?
        .execute(params![
            n,
            session.title,
            session.starred,
            session.archived_at.map(Timestamp::as_millis),
            session.agent.as_str(),
            facts,
            checksum(session, facts.as_deref(), None)
        ])?;
    feed::record(tx, n, &Happening::SessionChanged { at, change: change.to_owned() })
}

/// Adds what was used to a session's counters, and returns the key of the session above it.
fn add_to(tx: &Transaction<'_>, n: i64, spent: Spent) -> JobResult<Option<String>> {
    let parent = tx
        .connection()
        .prepare_cached(
            "UPDATE sessions SET tokens = tokens + ?2, \
             cost = CASE WHEN ?3 IS NULL THEN cost ELSE coalesce(cost, 0.0) + ?3 END \
             WHERE n = ?1 RETURNING parent",
        )?
        .query_row(params![n, messages::signed(spent.tokens), spent.cost], |row| row.get(0))
        .optional()?;
    Ok(parent.flatten())
}

/// Sets the counters of a session that is new here.
pub(super) fn add_spent_alone(tx: &Transaction<'_>, n: i64, spent: Spent) -> JobResult<()> {
    add_to(tx, n, spent).map(|_| ())
}

/// Adds what a run used to its session and to every session above it.
pub(super) fn add_spent(tx: &Transaction<'_>, session: i64, spent: Spent) -> JobResult<()> {
    if spent == Spent::default() {
        return Ok(());
    }
    let mut met = Vec::new();
    let mut next = Some(session);
    while let Some(n) = next.filter(|n| !met.contains(n)) {
        met.push(n);
        let parent = add_to(tx, n, spent)?;
        let Some(parent) = parent else { break };
        next = tx
            .connection()
            .prepare_cached("SELECT n FROM sessions WHERE key = ?1 ORDER BY n DESC LIMIT 1")?
            .query_row([parent], |row| row.get(0))
            .optional()?;
    }
    Ok(())
}

/// Tells whether the session is run by another program.
pub(super) fn has_inbox(tx: &Transaction<'_>, n: i64) -> JobResult<bool> {
    let (source, facts): (String, Option<String>) = tx
        .connection()
        .prepare_cached("SELECT source, facts FROM sessions WHERE n = ?1")?
        .query_row([n], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let usual = if source == sess_core::Source::Native.as_str() { Runner::Here } else { Runner::Host };
    let facts = facts.and_then(|facts| serde_json::from_str::<Facts>(&facts).ok());
    Ok(facts.map_or(usual, |facts| facts.runner) == Runner::Host)
}

/// Returns the facts that a session has whose row does not say.
fn usual_facts(source: sess_core::Source) -> Facts {
    let runner = if source == sess_core::Source::Native { Runner::Here } else { Runner::Host };
    Facts { runner, ..Facts::default() }
}

/// Returns the facts as they are stored: `None` when they are the usual ones.
pub(super) fn facts_text(session: &Session) -> Option<String> {
    (session.facts != usual_facts(session.source))
        .then(|| serde_json::to_string(&session.facts).expect("facts have string keys only"))
}

/// Refuses a session whose key leads to another one: a key is an address that lasts.
pub(super) fn refuse_other_owner(tx: &Transaction<'_>, new: &NewSession) -> JobResult<()> {
    let other: Option<String> = tx
        .connection()
        .prepare_cached("SELECT id FROM sessions WHERE key = ?1 AND id <> ?2 AND deleted_at IS NULL LIMIT 1")?
        .query_row([new.key.as_str(), new.id.as_str()], |row| row.get(0))
        .optional()?;
    match other {
        None => Ok(()),
        Some(other) => Err(Error::Conflict(format!(
            "session {} has the key {}, which leads to session {other} already; give it another key",
            new.id, new.key
        ))
        .into()),
    }
}

/// Returns the session for a change, or refuses.
pub(super) fn require(connection: &Connection, id: &SessionId) -> JobResult<(i64, Session)> {
    let sql = format!("SELECT {COLUMNS} FROM sessions WHERE id = ?1 AND deleted_at IS NULL");
    let found = connection.prepare_cached(&sql)?.query_row([id.as_str()], from_row).optional()?;
    let (n, session) = found.ok_or_else(|| Error::NoSession(id.clone()))?;
    Ok((n, whole(session, id)?))
}

pub(super) fn by_n(connection: &Connection, n: i64) -> rusqlite::Result<Readable> {
    let sql = format!("SELECT {COLUMNS} FROM sessions WHERE n = ?1");
    connection.prepare_cached(&sql)?.query_row([n], from_row).map(|(_, session)| session)
}

fn whole(session: Readable, what: impl std::fmt::Display) -> Result<Session> {
    session.map_err(|reason| Error::Damaged(format!("session {what} cannot be read: {reason}")))
}

/// A session, or why its row cannot be trusted.
pub(super) type Readable = std::result::Result<Session, String>;

/// Reads a row; what is wrong with it is an answer, not a failure of the query.
pub(super) fn from_row(row: &Row<'_>) -> rusqlite::Result<(i64, Readable)> {
    from_row_at(row, 0)
}

/// Reads a row whose columns start at `first`.
pub(super) fn from_row_at(row: &Row<'_>, first: usize) -> rusqlite::Result<(i64, Readable)> {
    let n: i64 = row.get(first)?;
    let read = || -> std::result::Result<Session, String> {
        let damaged = |error: rusqlite::Error| format!("session row {n} is damaged: {error}");
        // Borrowed, because most of it is parsed into something else: a list reads many rows.
        let text = |column: usize| {
            let value = row.get_ref(first + column).map_err(damaged)?;
            value.as_str().map_err(|error| damaged(error.into()))
        };
        let maybe = |column: usize| row.get::<_, Option<String>>(first + column).map_err(damaged);
        let number = |column: usize| row.get::<_, i64>(first + column).map_err(damaged);
        let bad = |field: &str| format!("session row {n} is damaged: its {field} is not valid");
        let source = text(4)?.parse().map_err(|_| bad("source"))?;
        let facts = maybe(15)?;
        let deleted_at = row.get::<_, Option<i64>>(first + DELETED_AT).map_err(damaged)?;
        let session = Session {
            id: text(1)?.parse().map_err(|_| bad("id"))?,
            key: text(2)?.parse().map_err(|_| bad("key"))?,
            agent: text(3)?.parse().map_err(|_| bad("agent"))?,
            source,
            title: text(5)?.to_owned(),
            cwd: maybe(6)?,
            parent: maybe(7)?.map(|key| key.parse()).transpose().map_err(|_| bad("parent"))?,
            facts: match &facts {
                Some(facts) => serde_json::from_str(facts).map_err(|_| bad("facts"))?,
                None => usual_facts(source),
            },
            created_at: Timestamp::from_millis_clamped(number(8)?),
            updated_at: Timestamp::from_millis_clamped(number(9)?),
            last_seq: u64::try_from(number(10)?).map_err(|_| bad("last_seq"))?,
            num_messages: u64::try_from(number(11)?).map_err(|_| bad("num_messages"))?,
            starred: row.get(first + 12).map_err(damaged)?,
            archived_at: row
                .get::<_, Option<i64>>(first + 13)
                .map_err(damaged)?
                .map(Timestamp::from_millis_clamped),
            spent: Spent {
                // Missing in a row of an older schema that was found on its page.
                tokens: row.get::<_, Option<i64>>(first + 16).map_err(damaged)?.unwrap_or(0).unsigned_abs(),
                cost: row.get(first + 17).map_err(damaged)?,
            },
        };
        if number(14)? != i64::from(checksum(&session, facts.as_deref(), deleted_at)) {
            return Err(format!("session row {n} ({}) is damaged: its checksum does not match", session.id));
        }
        Ok(session)
    };
    Ok((n, read()))
}

/// Covers everything but the counters, which every append moves. What came with later schemas
/// counts when it is there, so that older rows stay whole.
pub(super) fn checksum(session: &Session, facts: Option<&str>, deleted_at: Option<i64>) -> u32 {
    let number = |value: Option<Timestamp>| value.map_or(-1, Timestamp::as_millis).to_le_bytes();
    let optional = |text: Option<&str>| text.map_or_else(|| "-".to_owned(), |text| format!("+{text}"));
    let (created_at, archived_at) = (number(Some(session.created_at)), number(session.archived_at));
    let (cwd, starred) = (optional(session.cwd.as_deref()), [u8::from(session.starred)]);
    let parent = optional(session.parent.as_ref().map(SessionKey::as_str));
    let facts = facts.map(|facts| format!("facts {facts}"));
    let deleted_at = deleted_at.map(|at| format!("deleted {at}"));
    let mut parts: Vec<&[u8]> = vec![
        session.id.as_str().as_bytes(),
        session.key.as_str().as_bytes(),
        session.agent.as_str().as_bytes(),
        session.source.as_str().as_bytes(),
        session.title.as_bytes(),
        cwd.as_bytes(),
        parent.as_bytes(),
        &created_at,
        &starred,
        &archived_at,
    ];
    parts.extend(facts.as_deref().map(str::as_bytes));
    parts.extend(deleted_at.as_deref().map(str::as_bytes));
    crc(&parts)
}
