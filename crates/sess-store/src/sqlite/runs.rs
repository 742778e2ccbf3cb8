//! Runs in SQLite.
//!
//! A run's row is read, checked, changed and written back in one transaction. What
//! finds nothing to do is answered from a reader: a commit wakes everybody who waits,
//! and nodes that wait ask again when they are woken.

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use sess_core::{
    AgentId, MessageId, RunId, SessionId, Timestamp,
    message::{Body, Usage},
    run::{BootTime, Outcome, Run, RunState},
};

use super::{
    Sqlite, crc, feed,
    messages::{self, Encoded},
    sessions,
    writer::{JobResult, Transaction},
};
use crate::{
    Appended, Error, Happening, InboxItem, Lease, NewMessage, NewRun, Result, RunRenewed, Runs, Step,
};

pub(super) const COLUMNS: &str = "n, session, id, agent, state, queued_at, started_at, ended_at, lease_token, \
     lease_boot, lease_until, cancelled, result, error, usage, request, crc";

/// [`COLUMNS`], and the id of the session behind them.
const WITH_SESSION: &str = "SELECT r.n, r.session, r.id, r.agent, r.state, r.queued_at, r.started_at, r.ended_at, \
     r.lease_token, r.lease_boot, r.lease_until, r.cancelled, r.result, r.error, r.usage, r.request, r.crc, s.id \
     FROM runs r JOIN sessions s ON s.n = r.session";

// States stand in the text, letter for letter as in the partial indexes.
const QUEUED_IN: &str = "WHERE r.session = ?1 AND r.state = 'queued' ORDER BY r.n";
const RUNNING_IN: &str = "WHERE r.session = ?1 AND r.state = 'running' ORDER BY r.n";
/// The sign keeps SQLite from reading the whole table for the sake of its order.
const RUNNING: &str = "WHERE r.state = 'running' ORDER BY +r.n";
const NEWEST: &str = "ORDER BY r.n DESC LIMIT ?1";
const NEWEST_IN: &str = "WHERE r.session = ?1 ORDER BY r.n DESC LIMIT ?2";
const BY_ID: &str = "WHERE r.id = ?1";

/// Why a run that nobody answers for has ended.
const ABORTED: &str = "its node died or stopped answering";

#[async_trait]
impl Runs for Sqlite {
    async fn queue_run(&self, run: NewRun) -> Result<Run> {
        let NewRun { id, session, agent, at, messages, key, errand, lineage, caps: _ } = run;
        let request = request_text(messages);
        self.writer
            .write(move |tx| {
                if let Some(key) = &key
                    && let Some(answer) = messages::known_answer(tx, key)?
                {
                    return first_run(tx, &answer);
                }
                let (n, _) = sessions::ensure(tx, &session, false)?;
                let run = Run {
                    id,
                    session: session.id,
                    agent,
                    state: RunState::Queued,
                    queued_at: at,
                    started_at: None,
                    ended_at: None,
                    result: None,
                    error: None,
                    usage: Usage::default(),
                    is_cancelled: false,
                    errand,
                    lineage,
                    handed_over_at: None,
                };
                insert(tx, n, &run, &request)?;
                tell(tx, n, &run, at)?;
                if let Some(key) = &key {
                    messages::remember(tx, key, run.id.as_str())?;
                }
                Ok(run)
            })
            .await
    }

    async fn lease_run(
        &self,
        session: &SessionId,
        agents: &[AgentId],
        lease: Lease,
        at: Timestamp,
    ) -> Result<Option<Run>> {
        let is_due = self.readers.query(|reader| Ok(due(reader, session, agents)?.is_some()))?;
        if !is_due {
            return Ok(None);
        }
        let (session, agents) = (session.clone(), agents.to_vec());
        self.writer
            .write(move |tx| {
                let Some(mut row) = due(tx.connection(), &session, &agents)? else { return Ok(None) };
                row.run.state = RunState::Running;
                row.run.started_at = Some(at);
                row.lease = Some(lease);
                // Only now: before, they would stand in the middle of the run ahead of it.
                let request = read_request(&std::mem::take(&mut row.request))?;
                if !request.is_empty() {
                    messages::append(tx, &session, &request)?;
                }
                update(tx, &row)?;
                tell(tx, row.session, &row.run, at)?;
                Ok(Some(row.run))
            })
            .await
    }

    async fn renew_run(&self, run: &RunId, lease: &Lease) -> Result<RunRenewed> {
        let (run, lease) = (run.clone(), lease.clone());
        self.writer
            .write(move |tx| {
                let mut row = held(tx, &run, &lease)?;
                row.lease = Some(lease);
                update(tx, &row)?;
                Ok(RunRenewed { is_cancelled: row.run.is_cancelled })
            })
            .await
    }

    async fn append_in_run(&self, run: &RunId, lease: &Lease, messages: Vec<NewMessage>) -> Result<Appended> {
        let (run, lease) = (run.clone(), lease.clone());
        let messages: Vec<Encoded> = messages.into_iter().map(Encoded::new).collect();
        self.writer
            .write(move |tx| {
                let row = held(tx, &run, &lease)?;
                messages::append(tx, &row.run.session, &messages)
            })
            .await
    }

    async fn hand_off_in_run(&self, run: &RunId, lease: &Lease, agent: AgentId, at: Timestamp) -> Result<()> {
        let (run, lease) = (run.clone(), lease.clone());
        self.writer
            .write(move |tx| {
                let row = held(tx, &run, &lease)?;
                sessions::hand_off(tx, &row.run.session, agent, at)
            })
            .await
    }

    async fn end_run(
        &self,
        run: &RunId,
        lease: &Lease,
        messages: Vec<NewMessage>,
        outcome: Outcome,
        at: Timestamp,
    ) -> Result<()> {
        if !outcome.state.has_ended() {
            return Err(Error::Conflict(format!("run {run} cannot end as {}", outcome.state)));
        }
        let (run, lease) = (run.clone(), lease.clone());
        let messages: Vec<Encoded> = messages.into_iter().map(Encoded::new).collect();
        self.writer
            .write(move |tx| {
                let mut row = held(tx, &run, &lease)?;
                if !messages.is_empty() {
                    messages::append(tx, &row.run.session, &messages)?;
                }
                row.run.result = outcome.result;
                row.run.error = outcome.error;
                row.run.usage = outcome.usage;
                end(tx, row, outcome.state, at)?;
                Ok(())
            })
            .await
    }

    async fn settle_lapsed_runs(&self, now: &BootTime, at: Timestamp) -> Result<Vec<Run>> {
        let has_lapsed = self.readers.query(|reader| Ok(!lapsed(reader, now)?.is_empty()))?;
        if !has_lapsed {
            return Ok(Vec::new());
        }
        let now = now.clone();
        self.writer
            .write(move |tx| {
                let rows = lapsed(tx.connection(), &now)?;
                rows.into_iter()
                    .map(|mut row| {
                        row.run.error = Some(ABORTED.to_owned());
                        end(tx, row, RunState::Aborted, at)
                    })
                    .collect()
            })
            .await
    }

    async fn cancel_run(&self, run: &RunId, at: Timestamp) -> Result<Run> {
        let run = run.clone();
        self.writer
            .write(move |tx| {
                let mut row = require(tx.connection(), &run)?;
                if row.run.is_cancelled || row.run.state.has_ended() {
                    return Ok(row.run);
                }
                row.run.is_cancelled = true;
                if row.run.state == RunState::Queued {
                    return end(tx, row, RunState::Cancelled, at);
                }
                update(tx, &row)?;
                Ok(row.run)
            })
            .await
    }

    async fn run(&self, run: &RunId) -> Result<Option<Run>> {
        let found = self.readers.query(|reader| by_id(reader, run))?;
        found.map(|row| Ok(whole(row, run)?.run)).transpose()
    }

    async fn runs(&self, session: Option<&SessionId>, limit: usize) -> Result<Vec<Run>> {
        let limit = messages::signed(limit as u64);
        let rows = self.readers.query(|reader| {
            let Some(session) = session else {
                return readable(reader, NEWEST, params![limit]);
            };
            let Some(n) = messages::number_of(reader, session)? else { return Ok(Vec::new()) };
            readable(reader, NEWEST_IN, params![n, limit])
        })?;
        Ok(rows.into_iter().map(|row| row.run).collect())
    }

    async fn due_sessions(
        &self,
        _agents: &[AgentId],
        _node: &str,
        _root: Option<&RunId>,
        _limit: usize,
    ) -> Result<Vec<SessionId>> {
        todo!()
    }

    async fn begin_run(&self, _run: &RunId, _lease: &Lease) -> Result<()> {
        todo!()
    }

    async fn runs_below(&self, _root: &RunId, _limit: usize) -> Result<Vec<Run>> {
        todo!()
    }

    async fn unsettled_runs(&self, _limit: usize) -> Result<Vec<Run>> {
        todo!()
    }

    async fn settle_run(&self, _run: &RunId, _steps: Vec<Step>, _at: Timestamp) -> Result<bool> {
        todo!()
    }

    async fn stop_waiting(&self, _run: &RunId) -> Result<Run> {
        todo!()
    }

    async fn open_inbox(
        &self,
        _session: &SessionId,
        _limit: usize,
        _at: Timestamp,
    ) -> Result<Vec<InboxItem>> {
        todo!()
    }

    async fn reply_to(
        &self,
        _run: &RunId,
        _session: &SessionId,
        _reply: NewMessage,
        _at: Timestamp,
    ) -> Result<Run> {
        todo!()
    }

    async fn running_until(&self, session: &SessionId) -> Result<Option<BootTime>> {
        let row = self.readers.query(|reader| match messages::number_of(reader, session)? {
            Some(n) => running(reader, n),
            None => Ok(None),
        })?;
        Ok(row.and_then(|row| row.lease).map(|lease| lease.until))
    }
}

/// A run with what only the store knows of it.
pub(super) struct Stored {
    pub(super) n: i64,
    /// The session's row.
    pub(super) session: i64,
    pub(super) run: Run,
    /// Who executes it; `None` unless it is running.
    pub(super) lease: Option<Lease>,
    /// What it begins with, one message a line; nothing once that is in the transcript.
    pub(super) request: String,
}

/// A run, or why its row cannot be trusted.
pub(super) type Readable = std::result::Result<Stored, String>;

/// Returns the run that a request was answered with before, as it stands now.
fn first_run(tx: &Transaction<'_>, answer: &str) -> JobResult<Run> {
    let damaged = || Error::Damaged(format!("a stored answer is damaged: \"{answer}\""));
    let id: RunId = answer.parse().map_err(|_| damaged())?;
    let row = by_id(tx.connection(), &id)?.ok_or_else(damaged)?;
    Ok(whole(row, &id)?.run)
}

/// Returns the run that `session` should execute next, when that may begin now.
fn due(connection: &Connection, session: &SessionId, agents: &[AgentId]) -> rusqlite::Result<Option<Stored>> {
    let Some(n) = messages::number_of(connection, session)? else { return Ok(None) };
    if running(connection, n)?.is_some() {
        return Ok(None);
    }
    let oldest = first_readable(connection, QUEUED_IN, n)?;
    Ok(oldest.filter(|row| agents.contains(&row.run.agent)))
}

/// Returns the run that a session executes.
fn running(connection: &Connection, session: i64) -> rusqlite::Result<Option<Stored>> {
    first_readable(connection, RUNNING_IN, session)
}

fn lapsed(connection: &Connection, now: &BootTime) -> rusqlite::Result<Vec<Stored>> {
    let mut rows = readable(connection, RUNNING, params![])?;
    rows.retain(|row| row.lease.as_ref().is_none_or(|lease| lease.until.has_lapsed(now)));
    Ok(rows)
}

/// Returns the run for its holder to change, or refuses who holds it no longer.
fn held(tx: &Transaction<'_>, id: &RunId, lease: &Lease) -> JobResult<Stored> {
    let row = require(tx.connection(), id)?;
    let is_held = row.run.state == RunState::Running
        && row.lease.as_ref().is_some_and(|stored| stored.token == lease.token);
    if !is_held {
        let state = row.run.state;
        return Err(Error::Conflict(format!("the lease of run {id} is no longer held: it is {state}")).into());
    }
    Ok(row)
}

/// Returns the run for a change, or refuses.
fn require(connection: &Connection, id: &RunId) -> JobResult<Stored> {
    let row = by_id(connection, id)?.ok_or_else(|| Error::NoRun(id.clone()))?;
    Ok(whole(row, id)?)
}

fn by_id(connection: &Connection, id: &RunId) -> rusqlite::Result<Option<Readable>> {
    connection
        .prepare_cached(&format!("{WITH_SESSION} {BY_ID}"))?
        .query_row([id.as_str()], from_row)
        .optional()
}

fn whole(row: Readable, id: &RunId) -> Result<Stored> {
    row.map_err(|reason| Error::Damaged(format!("run {id} cannot be read: {reason}")))
}

/// Returns the first row that can be read. A damaged one costs itself: it is not
/// executed, and nothing waits for it.
fn first_readable(connection: &Connection, rest: &str, session: i64) -> rusqlite::Result<Option<Stored>> {
    let mut statement = connection.prepare_cached(&format!("{WITH_SESSION} {rest}"))?;
    let mut rows = statement.query([session])?;
    while let Some(row) = rows.next()? {
        if let Some(stored) = unless_damaged(from_row(row)?) {
            return Ok(Some(stored));
        }
    }
    Ok(None)
}

fn readable(
    connection: &Connection,
    rest: &str,
    values: &[&dyn rusqlite::ToSql],
) -> rusqlite::Result<Vec<Stored>> {
    let mut statement = connection.prepare_cached(&format!("{WITH_SESSION} {rest}"))?;
    let rows = statement.query_map(values, from_row)?.collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(rows.into_iter().filter_map(unless_damaged).collect())
}

fn unless_damaged(row: Readable) -> Option<Stored> {
    row.inspect_err(|reason| tracing::warn!("{reason}; it is left out")).ok()
}

/// Gives a run its outcome: from now on its row does not change.
fn end(tx: &mut Transaction<'_>, mut row: Stored, state: RunState, at: Timestamp) -> JobResult<Run> {
    row.run.state = state;
    row.run.ended_at = Some(at);
    row.lease = None;
    update(tx, &row)?;
    tell(tx, row.session, &row.run, at)?;
    Ok(row.run)
}

/// Writes a run that no node executes.
pub(super) fn insert(tx: &Transaction<'_>, session: i64, run: &Run, request: &str) -> JobResult<()> {
    let usage = usage_json(&run.usage);
    tx.connection()
        .prepare_cached(
            "INSERT INTO runs (session, id, agent, state, queued_at, started_at, ended_at, cancelled, result, \
             error, usage, request, crc) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        )?
        .execute(params![
            session,
            run.id.as_str(),
            run.agent.as_str(),
            run.state.as_str(),
            run.queued_at.as_millis(),
            run.started_at.map(Timestamp::as_millis),
            run.ended_at.map(Timestamp::as_millis),
            run.is_cancelled,
            run.result,
            run.error,
            usage,
            request,
            checksum(session, run, None, &usage, request)
        ])?;
    Ok(())
}

fn update(tx: &Transaction<'_>, row: &Stored) -> JobResult<()> {
    let Stored { n, session, run, lease, request } = row;
    let usage = usage_json(&run.usage);
    tx.connection()
        .prepare_cached(
            "UPDATE runs SET state = ?2, started_at = ?3, ended_at = ?4, lease_token = ?5, lease_boot = ?6, \
             lease_until = ?7, cancelled = ?8, result = ?9, error = ?10, usage = ?11, request = ?12, crc = ?13 \
             WHERE n = ?1",
        )?
        .execute(params![
            n,
            run.state.as_str(),
            run.started_at.map(Timestamp::as_millis),
            run.ended_at.map(Timestamp::as_millis),
            lease.as_ref().map(|lease| &lease.token),
            lease.as_ref().map(|lease| &lease.until.boot_id),
            lease.as_ref().map(|lease| messages::signed(lease.until.millis)),
            run.is_cancelled,
            run.result,
            run.error,
            usage,
            request,
            checksum(*session, run, lease.as_ref(), &usage, request)
        ])?;
    Ok(())
}

/// Tells followers what a run has become.
pub(super) fn tell(tx: &mut Transaction<'_>, session: i64, run: &Run, at: Timestamp) -> JobResult<()> {
    let happening = Happening::RunState {
        at,
        run: run.id.clone(),
        agent: run.agent.clone(),
        state: run.state,
        error: run.error.clone(),
    };
    feed::record(tx, session, &happening)
}

/// Reads a row with the id of its session behind it.
fn from_row(row: &Row<'_>) -> rusqlite::Result<Readable> {
    const SESSION_ID: usize = 17;
    let session = row.get_ref(SESSION_ID)?.as_str().ok().and_then(|id| id.parse::<SessionId>().ok());
    match session {
        Some(session) => from_row_at(row, 0, session),
        None => Ok(Err(format!("run row {} is damaged: its session is", row.get::<_, i64>(0)?))),
    }
}

/// Stands for the session of a run where only its row is of interest.
pub(super) fn any_session() -> SessionId {
    "any".parse().expect("a word is an id")
}

/// Reads a row whose columns start at `first`; what is wrong with it is an answer, not a
/// failure of the query.
pub(super) fn from_row_at(row: &Row<'_>, first: usize, session: SessionId) -> rusqlite::Result<Readable> {
    let n: i64 = row.get(first)?;
    let read = || -> std::result::Result<Stored, String> {
        let damaged = |error: rusqlite::Error| format!("run row {n} is damaged: {error}");
        let bad = |field: &str| format!("run row {n} is damaged: its {field} is not valid");
        let text = |column: usize| row.get::<_, String>(first + column).map_err(damaged);
        let maybe = |column: usize| row.get::<_, Option<String>>(first + column).map_err(damaged);
        let number = |column: usize| row.get::<_, i64>(first + column).map_err(damaged);
        let time = |column: usize| {
            let stored = row.get::<_, Option<i64>>(first + column).map_err(damaged)?;
            Ok::<_, String>(stored.map(Timestamp::from_millis_clamped))
        };
        let lease = match (maybe(8)?, maybe(9)?) {
            (Some(token), Some(boot_id)) => {
                let millis = u64::try_from(number(10)?).map_err(|_| bad("lease"))?;
                Some(Lease { token, node: String::new(), until: BootTime { boot_id, millis } })
            }
            _ => None,
        };
        let usage = text(14)?;
        let id: RunId = text(2)?.parse().map_err(|_| bad("id"))?;
        let run = Run {
            lineage: sess_core::run::Lineage::first(&id),
            id,
            session,
            agent: text(3)?.parse().map_err(|_| bad("agent"))?,
            state: text(4)?.parse().map_err(|_| bad("state"))?,
            queued_at: Timestamp::from_millis_clamped(number(5)?),
            started_at: time(6)?,
            ended_at: time(7)?,
            result: maybe(12)?,
            error: maybe(13)?,
            usage: serde_json::from_str(&usage).map_err(|_| bad("usage"))?,
            is_cancelled: row.get(first + 11).map_err(damaged)?,
            errand: sess_core::run::Errand::Message,
            handed_over_at: None,
        };
        let session = number(1)?;
        let request = text(15)?;
        if number(16)? != i64::from(checksum(session, &run, lease.as_ref(), &usage, &request)) {
            return Err(format!("run row {n} ({}) is damaged: its checksum does not match", run.id));
        }
        Ok(Stored { n, session, run, lease, request })
    };
    Ok(read())
}

fn usage_json(usage: &Usage) -> String {
    serde_json::to_string(usage).expect("usage has string keys only")
}

/// Covers the whole row. `usage` is its text: a number may change when it is parsed.
fn checksum(session: i64, run: &Run, lease: Option<&Lease>, usage: &str, request: &str) -> u32 {
    let number = |value: Option<Timestamp>| value.map_or(i64::MIN, Timestamp::as_millis).to_le_bytes();
    let optional = |text: Option<&str>| text.map_or_else(|| "-".to_owned(), |text| format!("+{text}"));
    crc(&[
        &session.to_le_bytes(),
        run.id.as_str().as_bytes(),
        run.agent.as_str().as_bytes(),
        run.state.as_str().as_bytes(),
        &number(Some(run.queued_at)),
        &number(run.started_at),
        &number(run.ended_at),
        optional(lease.map(|lease| lease.token.as_str())).as_bytes(),
        optional(lease.map(|lease| lease.until.boot_id.as_str())).as_bytes(),
        &lease.map_or(-1, |lease| messages::signed(lease.until.millis)).to_le_bytes(),
        &[u8::from(run.is_cancelled)],
        optional(run.result.as_deref()).as_bytes(),
        optional(run.error.as_deref()).as_bytes(),
        usage.as_bytes(),
        request.as_bytes(),
    ])
}

fn request_text(messages: Vec<NewMessage>) -> String {
    let line = |NewMessage { id, body }| {
        serde_json::to_string(&(id, body)).expect("a message body has string keys only")
    };
    messages.into_iter().map(line).collect::<Vec<_>>().join("\n")
}

fn read_request(text: &str) -> Result<Vec<Encoded>> {
    let read = |line| {
        let (id, body): (MessageId, Body) = serde_json::from_str(line)
            .map_err(|error| Error::Damaged(format!("the request of a run cannot be read: {error}")))?;
        Ok(Encoded::new(NewMessage { id, body }))
    };
    text.lines().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_question_about_runs_reads_all_of_them() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Sqlite::open(dir.path()).expect("a store");
        let plan = |rest: &str| {
            store
                .readers
                .query(|reader| {
                    let sql = format!("EXPLAIN QUERY PLAN {WITH_SESSION} {rest}");
                    let mut statement = reader.prepare(&sql)?;
                    let steps = statement.raw_query().mapped(|row| row.get::<_, String>(3));
                    Ok(steps.collect::<rusqlite::Result<Vec<_>>>()?.join("; "))
                })
                .expect("a plan")
        };
        for (rest, index) in [
            (QUEUED_IN, "SEARCH r USING INDEX runs_queued (session=?)"),
            (RUNNING_IN, "SEARCH r USING INDEX runs_running (session=?)"),
            (RUNNING, "SCAN r USING INDEX runs_running;"),
            (NEWEST_IN, "SEARCH r USING INDEX runs_by_session (session=?)"),
            (BY_ID, "SEARCH r USING INDEX sqlite_autoindex_runs_1 (id=?)"),
        ] {
            assert!(plan(rest).contains(index), "{rest}: {}", plan(rest));
        }
        assert!(!plan(NEWEST).contains("TEMP B-TREE"), "{}", plan(NEWEST));
    }
}
