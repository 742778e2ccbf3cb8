//! Runs in SQLite.
//!
//! A run's row is read, checked, changed and written back in one transaction. What
//! finds nothing to do is answered from a reader: a commit wakes everybody who waits,
//! and nodes that wait ask again when they are woken.

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension as _, params};
use sess_core::{
    AgentId, RunId, SessionId, SessionKey, Timestamp,
    message::Usage,
    run::{BootTime, Errand, Run, RunState},
    session::Spent,
};

use super::{
    Sqlite, feed, follow_ups, inbox,
    messages::{self, Encoded},
    run_rows::{
        BELOW, BY_PREFIX, NEWEST, NEWEST_IN, RUNNING, RUNNING_IN, Stored, UNSETTLED, WAITING_IN, by_id,
        errand_text, first_readable, insert, read_request, readable, request_text, require, update, whole,
    },
    seats, sessions,
    writer::{JobResult, Transaction},
};
use crate::{
    Appended, Cap, Ending, Error, Full, Glance, Happening, InboxItem, Lease, NewMessage, NewRun, QueuedHere,
    Result, RunRenewed, Runs, Seat, Step,
};

/// Why a run that nobody answers for has ended.
const ABORTED: &str = "its node died or stopped answering";

/// How often a run that never began is queued again.
const ATTEMPTS_MAX: u32 = 3;

#[async_trait]
impl Runs for Sqlite {
    async fn queue_run(&self, run: NewRun) -> Result<Run> {
        self.writer.write(move |tx| queue(tx, run)).await
    }

    async fn queue_run_seated(&self, run: NewRun, seat: Seat, lease: Lease) -> Result<QueuedHere> {
        let now = crate::boot_time()?;
        self.writer
            .write(move |tx| {
                let (id, at) = (run.id.clone(), run.at);
                let run = queue(tx, run)?;
                let waits = QueuedHere { run, is_leased: false };
                let Some(n) = messages::number_of(tx.connection(), &waits.run.session)? else {
                    return Ok(waits);
                };
                if seats::is_taken(tx.connection(), n, &seat.node, &now)? {
                    return Ok(waits);
                }
                seats::take(tx, n, &seat)?;
                let agents = std::slice::from_ref(&waits.run.agent);
                match due(tx.connection(), &waits.run.session, agents, &seat.node, &now)? {
                    // Not a run that the same request made before.
                    Some(row) if row.run.id == id => {
                        Ok(QueuedHere { run: take(tx, row, lease, at)?, is_leased: true })
                    }
                    _ => Ok(waits),
                }
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
        let now = crate::boot_time()?;
        let is_due =
            self.readers.query(|reader| Ok(due(reader, session, agents, &lease.node, &now)?.is_some()))?;
        if !is_due {
            return Ok(None);
        }
        let (session, agents) = (session.clone(), agents.to_vec());
        self.writer
            .write(move |tx| {
                let found = due(tx.connection(), &session, &agents, &lease.node, &now)?;
                found.map(|row| take(tx, row, lease, at)).transpose()
            })
            .await
    }

    async fn due_sessions(
        &self,
        agents: &[AgentId],
        node: &str,
        root: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<SessionId>> {
        let now = crate::boot_time()?;
        self.readers.query(|reader| {
            let (mut found, mut after) = (Vec::new(), 0);
            loop {
                let page = waiting_sessions(reader, agents, root, after)?;
                let Some((_, last)) = page.last() else { return Ok(found) };
                after = *last;
                for (id, _) in page {
                    if found.len() == limit {
                        return Ok(found);
                    }
                    if due(reader, &id, agents, node, &now)?.is_some() {
                        found.push(id);
                    }
                }
            }
        })
    }

    async fn begin_run(&self, run: &RunId, lease: &Lease) -> Result<()> {
        let (run, lease) = (run.clone(), lease.clone());
        self.writer
            .write(move |tx| {
                let row = held(tx, &run, &lease)?;
                begin(tx, row)?;
                Ok(())
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
                let session = begin(tx, row)?;
                messages::append(tx, &session, &messages)
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

    async fn end_run_with(&self, run: &RunId, lease: &Lease, ending: Ending) -> Result<bool> {
        let Ending { messages, outcome, at, follow_up, stands_up } = ending;
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
                let session = row.session;
                let ended = end(tx, row, outcome.state, at)?;
                if stands_up {
                    seats::leave(tx, session, &lease.node)?;
                }
                match follow_up {
                    Some((errand, steps)) if errand == ended.errand => {
                        follow_ups::settle_or_leave(tx, &run, steps, at)
                    }
                    _ => Ok(false),
                }
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
                rows.into_iter().map(|row| settle_lapsed(tx, row, at)).collect()
            })
            .await
    }

    async fn cancel_run(&self, run: &RunId, at: Timestamp) -> Result<Run> {
        let known = self.known(run)?;
        if known.run.is_cancelled || known.run.state.has_ended() {
            return Ok(known.run);
        }
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

    async fn runs_by_prefix(&self, prefix: &str, limit: usize) -> Result<Vec<Run>> {
        // Ids are ASCII, so the range up to the next letter is exactly the prefix.
        let end = format!("{prefix}\u{7f}");
        let limit = messages::signed(limit as u64);
        let rows = self.readers.query(|reader| readable(reader, BY_PREFIX, params![prefix, end, limit]))?;
        Ok(rows.into_iter().map(|row| row.run).collect())
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

    async fn live_children(&self, parent: &SessionKey) -> Result<u32> {
        self.readers.query(|reader| live_children(reader, parent, ""))
    }

    async fn runs_below(&self, root: &RunId, limit: usize) -> Result<Vec<Run>> {
        let rows = self.readers.query(|reader| {
            // The root itself has none: it came before all others.
            let first = by_id(reader, root)?.and_then(std::result::Result::ok);
            let rest = messages::signed(limit.saturating_sub(usize::from(first.is_some())) as u64);
            let below = readable(reader, BELOW, params![root.as_str(), rest])?;
            Ok(first.into_iter().chain(below).take(limit).collect::<Vec<_>>())
        })?;
        Ok(rows.into_iter().map(|row| row.run).collect())
    }

    async fn count_below(&self, root: &RunId) -> Result<u64> {
        let below = self.readers.query(|reader| {
            let count = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0).map(i64::unsigned_abs);
            reader.prepare_cached(BELOW_COUNT)?.query_row([root.as_str()], count)
        })?;
        Ok(below + 1)
    }

    async fn unsettled_runs(&self, limit: usize) -> Result<Vec<Run>> {
        let limit = messages::signed(limit as u64);
        let rows = self.readers.query(|reader| readable(reader, UNSETTLED, params![limit]))?;
        Ok(rows.into_iter().map(|row| row.run).collect())
    }

    async fn settle_run(&self, run: &RunId, steps: Vec<Step>, at: Timestamp) -> Result<bool> {
        let known = self.known(run)?;
        if known.run.state.has_ended() && known.is_settled {
            return Ok(false);
        }
        let run = run.clone();
        self.writer.write(move |tx| follow_ups::settle(tx, &run, steps, at)).await
    }

    async fn stop_waiting(&self, run: &RunId) -> Result<Run> {
        let known = self.known(run)?;
        if !is_waited_for(&known.run) {
            return Ok(known.run);
        }
        let run = run.clone();
        self.writer
            .write(move |tx| {
                let mut row = require(tx.connection(), &run)?;
                if is_waited_for(&row.run)
                    && let Errand::Send(send) = &mut row.run.errand
                {
                    send.awaited_by = None;
                    row.errand = errand_text(&row.run.errand);
                    update(tx, &row)?;
                }
                Ok(row.run)
            })
            .await
    }

    async fn open_inbox(&self, session: &SessionId, limit: usize, at: Timestamp) -> Result<Vec<InboxItem>> {
        let (known, is_new) = self.readers.query(|reader| inbox::waiting(reader, session, limit))?;
        if !is_new {
            return known.into_iter().map(inbox::item).collect();
        }
        let session = session.clone();
        self.writer.write(move |tx| inbox::hand_over(tx, &session, limit, at)).await
    }

    async fn reply_to(
        &self,
        run: &RunId,
        session: &SessionId,
        reply: NewMessage,
        at: Timestamp,
    ) -> Result<Run> {
        let (run, session) = (run.clone(), session.clone());
        self.writer.write(move |tx| inbox::reply(tx, &run, &session, reply, at)).await
    }

    async fn is_tree_open(&self, root: &RunId, agents: &[AgentId]) -> Result<bool> {
        let now = crate::boot_time()?;
        self.readers.query(|reader| {
            // One view of all of it: what is settled between two looks would be seen in neither.
            let reader = reader.unchecked_transaction()?;
            let root = params![root.as_str()];
            if !readable(&reader, OPEN_BELOW, root)?.is_empty()
                || !readable(&reader, UNSETTLED_BELOW, root)?.is_empty()
            {
                return Ok(true);
            }
            for row in readable(&reader, WAITING_BELOW, root)? {
                // Whoever sits there can execute it.
                let is_seated = || {
                    Ok::<_, rusqlite::Error>(
                        seats::of(&reader, row.session)?.is_some_and(|seat| !seat.until.has_lapsed(&now)),
                    )
                };
                if agents.contains(&row.run.agent) || is_seated()? {
                    return Ok(true);
                }
            }
            Ok(false)
        })
    }

    async fn glances(&self, sessions: &[SessionId]) -> Result<Vec<Glance>> {
        self.readers.query(|reader| sessions.iter().map(|session| glance(reader, session)).collect())
    }

    async fn running_until(&self, session: &SessionId) -> Result<Option<BootTime>> {
        let row = self.readers.query(|reader| match messages::number_of(reader, session)? {
            Some(n) => running(reader, n),
            None => Ok(None),
        })?;
        Ok(row.and_then(|row| row.lease).map(|lease| lease.until))
    }
}

impl Sqlite {
    /// Returns a run as a reader sees it.
    fn known(&self, run: &RunId) -> Result<Stored> {
        let found = self.readers.query(|reader| by_id(reader, run))?;
        whole(found.ok_or_else(|| Error::NoRun(run.clone()))?, run)
    }
}

/// Tells whether a sender waits for the reply, which is yet to come.
fn is_waited_for(run: &Run) -> bool {
    matches!(&run.errand, Errand::Send(send) if send.awaited_by.is_some()) && !run.state.has_ended()
}

/// Queues a run, unless the same request did before.
pub(super) fn queue(tx: &mut Transaction<'_>, new: NewRun) -> JobResult<Run> {
    let NewRun { id, session, agent, at, messages, key, errand, lineage, caps } = new;
    if let Some(key) = &key
        && let Some(answer) = messages::known_answer(tx, key)?
    {
        return first_run(tx, &answer);
    }
    for cap in caps {
        check_cap(tx.connection(), &cap, &session.id, &id, &lineage.root)?;
    }
    let (n, _) = sessions::ensure(tx, &session, false)?;
    let is_in_inbox = sessions::has_inbox(tx, n)?;
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
    let row = Stored::new(n, run, request_text(messages), is_in_inbox);
    insert(tx, &row)?;
    tell(tx, n, &row.run, at)?;
    if let Some(key) = &key {
        messages::remember(tx, key, row.run.id.as_str())?;
    }
    Ok(row.run)
}

/// Returns the run that a request was answered with before, as it stands now.
fn first_run(tx: &Transaction<'_>, answer: &str) -> JobResult<Run> {
    let damaged = || Error::Damaged(format!("a stored answer is damaged: \"{answer}\""));
    let id: RunId = answer.parse().map_err(|_| damaged())?;
    let row = by_id(tx.connection(), &id)?.ok_or_else(damaged)?;
    Ok(whole(row, &id)?.run)
}

const WAITING_COUNT: &str = "SELECT (SELECT count(*) FROM runs r WHERE r.session = ?1 AND r.state = 'queued' \
     AND r.inbox = 0) + (SELECT count(*) FROM runs r WHERE r.session = ?1 AND r.state = 'queued' AND r.inbox = 1)";
const IS_OPEN: &str = "(EXISTS (SELECT 1 FROM runs r WHERE r.session = s.n AND r.state = 'running') \
     OR EXISTS (SELECT 1 FROM runs r WHERE r.session = s.n AND r.state = 'queued' AND r.inbox = 0) \
     OR EXISTS (SELECT 1 FROM runs r WHERE r.session = s.n AND r.state = 'queued' AND r.inbox = 1))";
const LIVE_CHILDREN: &str = "SELECT count(*) FROM sessions s WHERE s.parent = ?1 AND s.id <> ?2 \
     AND s.archived_at IS NULL AND s.deleted_at IS NULL AND";
const BELOW_COUNT: &str = "SELECT count(*) FROM runs r WHERE r.root = ?1";

fn check_cap(
    connection: &Connection,
    cap: &Cap,
    session: &SessionId,
    run: &RunId,
    root: &RunId,
) -> JobResult<()> {
    let count = |sql: &str, values: &[&dyn rusqlite::ToSql]| -> rusqlite::Result<u32> {
        connection.prepare_cached(sql)?.query_row(values, |row| row.get(0))
    };
    let full = match cap {
        Cap::Queue { most } => {
            let waiting = match messages::number_of(connection, session)? {
                Some(n) => count(WAITING_COUNT, params![n])?,
                None => 0,
            };
            (waiting >= *most).then_some(Full::Queue { waiting, most: *most })
        }
        Cap::Children { parent, most } => {
            let live = live_children(connection, parent, session.as_str())?;
            (live >= *most).then_some(Full::Children { live, most: *most })
        }
        // A root of its own has none before it.
        Cap::Tree { .. } if root == run => None,
        Cap::Tree { most } => {
            let runs = count(BELOW_COUNT, params![root.as_str()])?.saturating_add(1);
            (runs >= *most).then_some(Full::Tree { runs, most: *most })
        }
    };
    match full {
        Some(full) => Err(Error::from(full).into()),
        None => Ok(()),
    }
}

/// Counts the live children of a session, but for one.
fn live_children(connection: &Connection, parent: &SessionKey, but: &str) -> rusqlite::Result<u32> {
    let sql = format!("{LIVE_CHILDREN} {IS_OPEN}");
    connection.prepare_cached(&sql)?.query_row([parent.as_str(), but], |row| row.get(0))
}

/// Tells whether a run of the session has not ended.
pub(super) fn has_open(connection: &Connection, session: i64) -> rusqlite::Result<bool> {
    let sql = format!("SELECT 1 FROM sessions s WHERE s.n = ?1 AND {IS_OPEN}");
    Ok(connection.prepare_cached(&sql)?.query_row([session], |_| Ok(())).optional()?.is_some())
}

/// Tells whether something still follows a run of the session.
pub(super) fn has_unsettled(connection: &Connection, session: i64) -> rusqlite::Result<bool> {
    let sql = "SELECT 1 FROM runs r WHERE r.session = ?1 AND r.settled = 0 LIMIT 1";
    Ok(connection.prepare_cached(sql)?.query_row([session], |_| Ok(())).optional()?.is_some())
}

/// Each session in which something waits, one step in the index a session, however much waits in it.
const WAITING: &str = "WITH RECURSIVE waiting (session) AS ( \
     SELECT (SELECT r.session FROM runs r WHERE r.state = 'queued' AND r.inbox = 0 \
         ORDER BY r.session LIMIT 1) \
     UNION ALL \
     SELECT (SELECT r.session FROM runs r WHERE r.state = 'queued' AND r.inbox = 0 \
         AND r.session > w.session ORDER BY r.session LIMIT 1) FROM waiting w WHERE w.session IS NOT NULL), \
     oldest (session, n) AS (SELECT w.session, (SELECT r.n FROM runs r WHERE r.session = w.session \
         AND r.state = 'queued' AND r.inbox = 0 ORDER BY r.n LIMIT 1) FROM waiting w) \
     SELECT s.id, o.n FROM oldest o JOIN sessions s ON s.n = o.session WHERE o.n > ?1";
const IN_TREE: &str = "AND o.session IN (SELECT t.session FROM runs t WHERE t.root = ?2 OR t.id = ?2)";
/// How many waiting sessions are looked at together.
const WAITING_LEN_MAX: usize = 64;

/// Ends [`WAITING`]: only sessions in which one of `agents` is waited for.
fn for_agents(agents: &[AgentId]) -> String {
    let names = agents.iter().map(|agent| format!("'{agent}'")).collect::<Vec<_>>().join(", ");
    format!(
        "AND EXISTS (SELECT 1 FROM runs r WHERE r.session = o.session AND r.state = 'queued' \
         AND r.inbox = 0 AND r.agent IN ({names})) ORDER BY o.n LIMIT {WAITING_LEN_MAX}"
    )
}

/// Returns the next sessions in which something waits, the longest waiting first, each with the run
/// that waits longest; with `root`, those that a run of its tree belongs to. Whatever waits before
/// that has its turn first.
fn waiting_sessions(
    reader: &Connection,
    agents: &[AgentId],
    root: Option<&RunId>,
    after: i64,
) -> rusqlite::Result<Vec<(SessionId, i64)>> {
    let rest = for_agents(agents);
    let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?));
    let ids: Vec<(String, i64)> = match root {
        None => {
            let mut statement = reader.prepare_cached(&format!("{WAITING} {rest}"))?;
            statement.query_map([after], read)?.collect::<rusqlite::Result<_>>()?
        }
        Some(root) => {
            let mut statement = reader.prepare_cached(&format!("{WAITING} {IN_TREE} {rest}"))?;
            statement.query_map(params![after, root.as_str()], read)?.collect::<rusqlite::Result<_>>()?
        }
    };
    Ok(ids.into_iter().filter_map(|(id, n)| Some((id.parse().ok()?, n))).collect())
}

/// Returns the run that `session` should execute next, when that may begin now on `node`.
fn due(
    connection: &Connection,
    session: &SessionId,
    agents: &[AgentId],
    node: &str,
    now: &BootTime,
) -> rusqlite::Result<Option<Stored>> {
    let Some(n) = messages::number_of(connection, session)? else { return Ok(None) };
    if running(connection, n)?.is_some() {
        return Ok(None);
    }
    let oldest = first_readable(connection, WAITING_IN, n)?;
    let Some(oldest) = oldest.filter(|row| agents.contains(&row.run.agent)) else { return Ok(None) };
    Ok((!seats::is_taken(connection, n, node, now)?).then_some(oldest))
}

/// Leases a run that is due.
fn take(tx: &mut Transaction<'_>, mut row: Stored, lease: Lease, at: Timestamp) -> JobResult<Run> {
    row.run.state = RunState::Running;
    row.run.started_at = Some(at);
    row.lease = Some(lease);
    // Only now: before, they would stand in the middle of the run ahead of it.
    let request = std::mem::take(&mut row.request);
    append_request(tx, &row.run.session, &request)?;
    update(tx, &row)?;
    tell(tx, row.session, &row.run, at)?;
    Ok(row.run)
}

// The sign lets SQLite take the index of what is open, instead of the tree's.
const OPEN_BELOW: &str = "WHERE r.state = 'running' AND (+r.root = ?1 OR +r.id = ?1) ORDER BY +r.n";
const WAITING_BELOW: &str =
    "WHERE r.state = 'queued' AND r.inbox = 0 AND (+r.root = ?1 OR +r.id = ?1) ORDER BY +r.n";
const UNSETTLED_BELOW: &str = "WHERE r.settled = 0 AND (+r.root = ?1 OR +r.id = ?1) ORDER BY +r.n";

const GLANCE: &str = "SELECT s.n, \
     EXISTS (SELECT 1 FROM runs r WHERE r.session = s.n AND r.state = 'running'), \
     EXISTS (SELECT 1 FROM runs r WHERE r.session = s.n AND r.state = 'queued' AND r.inbox = 0) \
     OR EXISTS (SELECT 1 FROM runs r WHERE r.session = s.n AND r.state = 'queued' AND r.inbox = 1), \
     EXISTS (SELECT 1 FROM runs r WHERE r.session = s.n AND r.started_at IS NOT NULL), \
     (SELECT r.state || iif(r.started_at IS NULL, '', ' started') FROM runs r WHERE r.session = s.n \
         AND r.state NOT IN ('queued', 'running') ORDER BY r.n DESC LIMIT 1) \
     FROM sessions s WHERE s.id = ?1";

/// Returns what goes on in a session; nothing when it is not there.
fn glance(reader: &Connection, session: &SessionId) -> rusqlite::Result<Glance> {
    let found = reader
        .prepare_cached(GLANCE)?
        .query_row([session.as_str()], |row| {
            let ended: Option<String> = row.get(4)?;
            let last_ended = ended.and_then(|ended| {
                let (state, was_started) = match ended.split_once(' ') {
                    Some((state, _)) => (state, true),
                    None => (ended.as_str(), false),
                };
                Some((state.parse().ok()?, was_started))
            });
            let (is_running, is_queued, was_started) = (row.get(1)?, row.get(2)?, row.get(3)?);
            let glance = Glance { is_running, is_queued, was_started, last_ended, last_reply: None };
            Ok((row.get::<_, i64>(0)?, glance))
        })
        .optional()?;
    let Some((n, glance)) = found else { return Ok(Glance::default()) };
    Ok(Glance { last_reply: messages::last_reply(reader, n)?, ..glance })
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

/// Ends a run that nobody executes any longer, or queues it again when it had not begun.
fn settle_lapsed(tx: &mut Transaction<'_>, mut row: Stored, at: Timestamp) -> JobResult<Run> {
    if row.is_begun || row.attempts >= ATTEMPTS_MAX {
        row.run.error = Some(ABORTED.to_owned());
        return end(tx, row, RunState::Aborted, at);
    }
    if row.run.is_cancelled {
        return end(tx, row, RunState::Cancelled, at);
    }
    // Its request stays in the transcript, where it is the last: nothing else ran meanwhile.
    row.run.state = RunState::Queued;
    row.run.started_at = None;
    row.lease = None;
    row.attempts += 1;
    update(tx, &row)?;
    tell(tx, row.session, &row.run, at)?;
    Ok(row.run)
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

/// Records that the run has begun, and returns its session.
fn begin(tx: &Transaction<'_>, mut row: Stored) -> JobResult<SessionId> {
    if !row.is_begun {
        row.is_begun = true;
        update(tx, &row)?;
    }
    Ok(row.run.session)
}

/// Puts what a run was asked into the transcript.
pub(super) fn append_request(tx: &mut Transaction<'_>, session: &SessionId, request: &str) -> JobResult<()> {
    let request: Vec<Encoded> = read_request(request)?.into_iter().map(Encoded::new).collect();
    if !request.is_empty() {
        messages::append(tx, session, &request)?;
    }
    Ok(())
}

/// Gives a run its outcome: from now on only what follows it is settled.
pub(super) fn end(
    tx: &mut Transaction<'_>,
    mut row: Stored,
    state: RunState,
    at: Timestamp,
) -> JobResult<Run> {
    row.run.state = state;
    row.run.ended_at = Some(at);
    row.lease = None;
    row.is_settled = matches!(row.run.errand, Errand::Message | Errand::LateReply { .. });
    update(tx, &row)?;
    sessions::add_spent(tx, row.session, Spent::from(&row.run.usage))?;
    tell(tx, row.session, &row.run, at)?;
    Ok(row.run)
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

/// Every further question about runs, with the steps that must answer it.
#[cfg(test)]
pub(super) fn questions() -> Vec<(String, Vec<&'static str>)> {
    use super::run_rows::WITH_SESSION;
    let open = ["runs_running (session=?)", "runs_waiting (session=?)", "runs_inbox (session=?)"];
    let waiting = ["SEARCH r USING COVERING INDEX runs_waiting (session>?)", "runs_waiting (session=?)"];
    let agents = for_agents(&["main".parse().expect("a name")]);
    vec![
        (WAITING_COUNT.to_owned(), open[1..].to_vec()),
        (BELOW_COUNT.to_owned(), vec!["runs_by_root (root=?)"]),
        (format!("SELECT 1 FROM sessions s WHERE s.n = ?1 AND {IS_OPEN}"), open.to_vec()),
        (format!("{LIVE_CHILDREN} {IS_OPEN}"), [&["sessions_open_children (parent=?)"], &open[..]].concat()),
        (format!("{WAITING} {agents}"), waiting.to_vec()),
        (format!("{WAITING} {IN_TREE} {agents}"), [&waiting[..], &["runs_by_root (root=?)"]].concat()),
        (
            GLANCE.to_owned(),
            [&["sqlite_autoindex_sessions_1 (id=?)", "runs_by_session (session=?)"], &open[..]].concat(),
        ),
        (format!("{WITH_SESSION} {OPEN_BELOW}"), vec!["SCAN r USING INDEX runs_running"]),
        (format!("{WITH_SESSION} {WAITING_BELOW}"), vec!["SCAN r USING INDEX runs_waiting"]),
        (format!("{WITH_SESSION} {UNSETTLED_BELOW}"), vec!["SCAN r USING INDEX runs_unsettled"]),
    ]
}
