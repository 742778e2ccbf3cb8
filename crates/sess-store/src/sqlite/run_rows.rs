//! The rows of runs: how they are found, read, checked and written.

use rusqlite::{Connection, OptionalExtension as _, Row, params};
use sess_core::{
    MessageId, RunId, SessionId, Timestamp,
    message::{Body, Usage},
    run::{BootTime, Errand, Lineage, Run},
};

use super::{
    crc, messages,
    rows::{self, Readable, unless_damaged},
    writer::{JobResult, Transaction},
};
use crate::{Error, Lease, NewMessage, Result};

pub(super) const COLUMNS: &str = "n, session, id, agent, state, queued_at, started_at, ended_at, lease_token, \
     lease_boot, lease_until, cancelled, result, error, usage, request, crc, errand, root, parent, hops, \
     handed_over_at, node, begun, attempts, inbox, settled";

/// [`COLUMNS`], and the id of the session behind them.
pub(super) const WITH_SESSION: &str = "SELECT r.n, r.session, r.id, r.agent, r.state, r.queued_at, r.started_at, \
     r.ended_at, r.lease_token, r.lease_boot, r.lease_until, r.cancelled, r.result, r.error, r.usage, r.request, \
     r.crc, r.errand, r.root, r.parent, r.hops, r.handed_over_at, r.node, r.begun, r.attempts, r.inbox, r.settled, \
     s.id FROM runs r JOIN sessions s ON s.n = r.session";

// States stand in the text, letter for letter as in the partial indexes.
pub(super) const WAITING_IN: &str =
    "WHERE r.session = ?1 AND r.state = 'queued' AND r.inbox = 0 ORDER BY r.n";
pub(super) const INBOX_OF: &str =
    "WHERE r.session = ?1 AND r.state = 'queued' AND r.inbox = 1 ORDER BY r.n LIMIT ?2";
pub(super) const RUNNING_IN: &str = "WHERE r.session = ?1 AND r.state = 'running' ORDER BY r.n";
/// The sign keeps SQLite from reading the whole table for the sake of its order.
pub(super) const RUNNING: &str = "WHERE r.state = 'running' ORDER BY +r.n";
pub(super) const UNSETTLED: &str = "WHERE r.settled = 0 ORDER BY +r.n LIMIT ?1";
pub(super) const NEWEST: &str = "ORDER BY r.n DESC LIMIT ?1";
pub(super) const NEWEST_IN: &str = "WHERE r.session = ?1 ORDER BY r.n DESC LIMIT ?2";
pub(super) const BELOW: &str = "WHERE r.root = ?1 ORDER BY r.n LIMIT ?2";
pub(super) const BY_ID: &str = "WHERE r.id = ?1";
pub(super) const BY_PREFIX: &str = "WHERE r.id >= ?1 AND r.id < ?2 ORDER BY r.id LIMIT ?3";

/// A run with what only the store knows of it.
pub(super) struct Stored {
    pub(super) n: i64,
    /// The session's row.
    pub(super) session: i64,
    pub(super) run: Run,
    /// Who executes it; `None` unless it is running.
    pub(super) lease: Option<Lease>,
    /// What it begins with, one message a line; nothing once a node has put that into the transcript.
    pub(super) request: String,
    /// The errand as it is stored; `None` is a message.
    pub(super) errand: Option<String>,
    /// A model was asked: it is not begun anew.
    pub(super) is_begun: bool,
    /// How often it was queued again.
    pub(super) attempts: u32,
    /// It waits for its session's host.
    pub(super) is_in_inbox: bool,
    /// Nothing is left to follow.
    pub(super) is_settled: bool,
}

impl Stored {
    /// Returns a run as it is before it is stored.
    pub(super) fn new(session: i64, run: Run, request: String, is_in_inbox: bool) -> Self {
        let errand = errand_text(&run.errand);
        Self {
            n: 0,
            session,
            run,
            lease: None,
            request,
            errand,
            is_begun: false,
            attempts: 0,
            is_in_inbox,
            is_settled: true,
        }
    }
}

/// Returns an errand as it is stored: `None` for the usual one.
pub(super) fn errand_text(errand: &Errand) -> Option<String> {
    (*errand != Errand::Message)
        .then(|| serde_json::to_string(errand).expect("an errand has string keys only"))
}

pub(super) fn by_id(connection: &Connection, id: &RunId) -> rusqlite::Result<Option<Readable<Stored>>> {
    connection
        .prepare_cached(&format!("{WITH_SESSION} {BY_ID}"))?
        .query_row([id.as_str()], from_row)
        .optional()
}

/// Returns the run for a change, or refuses.
pub(super) fn require(connection: &Connection, id: &RunId) -> JobResult<Stored> {
    let row = by_id(connection, id)?.ok_or_else(|| Error::NoRun(id.clone()))?;
    Ok(whole(row, id)?)
}

pub(super) fn whole(row: Readable<Stored>, id: &RunId) -> Result<Stored> {
    row.map_err(|reason| Error::Damaged(format!("run {id} cannot be read: {reason}")))
}

/// Returns the first row that can be read. A damaged one costs itself: it is not
/// executed, and nothing waits for it.
pub(super) fn first_readable(
    connection: &Connection,
    rest: &str,
    session: i64,
) -> rusqlite::Result<Option<Stored>> {
    let mut statement = connection.prepare_cached(&format!("{WITH_SESSION} {rest}"))?;
    let mut rows = statement.query([session])?;
    while let Some(row) = rows.next()? {
        if let Some(stored) = unless_damaged(from_row(row)?) {
            return Ok(Some(stored));
        }
    }
    Ok(None)
}

pub(super) fn readable(
    connection: &Connection,
    rest: &str,
    values: &[&dyn rusqlite::ToSql],
) -> rusqlite::Result<Vec<Stored>> {
    rows::readable(connection, &format!("{WITH_SESSION} {rest}"), values, from_row)
}

/// Writes a run that no node executes.
pub(super) fn insert(tx: &Transaction<'_>, row: &Stored) -> JobResult<()> {
    let Stored { session, run, request, errand, is_begun, attempts, is_in_inbox, is_settled, .. } = row;
    let usage = usage_json(&run.usage);
    tx.connection()
        .prepare_cached(
            "INSERT INTO runs (session, id, agent, state, queued_at, started_at, ended_at, cancelled, result, \
             error, usage, request, crc, errand, root, parent, hops, handed_over_at, begun, attempts, inbox, \
             settled) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, \
             ?19, ?20, ?21, ?22)",
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
            checksum(row, &usage),
            errand,
            root_text(run),
            run.lineage.parent.as_ref().map(RunId::as_str),
            run.lineage.hops,
            run.handed_over_at.map(Timestamp::as_millis),
            is_begun,
            attempts,
            is_in_inbox,
            is_settled
        ])?;
    Ok(())
}

pub(super) fn update(tx: &Transaction<'_>, row: &Stored) -> JobResult<()> {
    let Stored { n, run, lease, request, errand, is_begun, attempts, is_settled, .. } = row;
    let usage = usage_json(&run.usage);
    tx.connection()
        .prepare_cached(
            "UPDATE runs SET state = ?2, started_at = ?3, ended_at = ?4, lease_token = ?5, lease_boot = ?6, \
             lease_until = ?7, cancelled = ?8, result = ?9, error = ?10, usage = ?11, request = ?12, crc = ?13, \
             errand = ?14, handed_over_at = ?15, node = ?16, begun = ?17, attempts = ?18, settled = ?19 \
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
            checksum(row, &usage),
            errand,
            run.handed_over_at.map(Timestamp::as_millis),
            lease.as_ref().map(|lease| &lease.node),
            is_begun,
            attempts,
            is_settled
        ])?;
    Ok(())
}

fn from_row(row: &Row<'_>) -> rusqlite::Result<Readable<Stored>> {
    rows::with_session(row, "run", from_row_at)
}

/// Stands for the session of a run where only its row is of interest.
pub(super) fn any_session() -> SessionId {
    "any".parse().expect("a word is an id")
}

/// Reads a row whose columns start at `first`; what is wrong with it is an answer, not a
/// failure of the query.
pub(super) fn from_row_at(
    row: &Row<'_>,
    first: usize,
    session: SessionId,
) -> rusqlite::Result<Readable<Stored>> {
    let n: i64 = row.get(first)?;
    let read = || -> std::result::Result<Stored, String> {
        let damaged = |error: rusqlite::Error| format!("run row {n} is damaged: {error}");
        let bad = |field: &str| format!("run row {n} is damaged: its {field} is not valid");
        let text = |column: usize| row.get::<_, String>(first + column).map_err(damaged);
        let maybe = |column: usize| row.get::<_, Option<String>>(first + column).map_err(damaged);
        let number = |column: usize| row.get::<_, i64>(first + column).map_err(damaged);
        // Missing in a row of an older schema that was found on its page.
        let or = |column: usize, default: u32| {
            let stored = row.get::<_, Option<u32>>(first + column).map_err(damaged)?;
            Ok::<_, String>(stored.unwrap_or(default))
        };
        let time = |column: usize| {
            let stored = row.get::<_, Option<i64>>(first + column).map_err(damaged)?;
            Ok::<_, String>(stored.map(Timestamp::from_millis_clamped))
        };
        let lease = match (maybe(8)?, maybe(9)?) {
            (Some(token), Some(boot_id)) => {
                let millis = u64::try_from(number(10)?).map_err(|_| bad("lease"))?;
                let node = maybe(22)?.unwrap_or_default();
                Some(Lease { token, node, until: BootTime { boot_id, millis } })
            }
            _ => None,
        };
        let usage = text(14)?;
        let errand = maybe(17)?;
        let id: RunId = text(2)?.parse().map_err(|_| bad("id"))?;
        let root = maybe(18)?.map(|root| root.parse()).transpose().map_err(|_| bad("root"))?;
        let run = Run {
            lineage: Lineage {
                root: root.unwrap_or_else(|| id.clone()),
                parent: maybe(19)?.map(|run| run.parse()).transpose().map_err(|_| bad("parent"))?,
                hops: or(20, 0)?,
            },
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
            errand: match &errand {
                Some(errand) => serde_json::from_str(errand).map_err(|_| bad("errand"))?,
                None => Errand::Message,
            },
            handed_over_at: time(21)?,
        };
        let stored = Stored {
            n,
            session: number(1)?,
            run,
            lease,
            request: text(15)?,
            errand,
            is_begun: or(23, 0)? != 0,
            attempts: or(24, 0)?,
            is_in_inbox: or(25, 0)? != 0,
            is_settled: or(26, 1)? != 0,
        };
        if number(16)? != i64::from(checksum(&stored, &usage)) {
            let id = &stored.run.id;
            return Err(format!("run row {n} ({id}) is damaged: its checksum does not match"));
        }
        Ok(stored)
    };
    Ok(read())
}

/// Returns the root as it is stored: `None` when it is the run itself.
fn root_text(run: &Run) -> Option<&str> {
    (run.lineage.root != run.id).then(|| run.lineage.root.as_str())
}

fn usage_json(usage: &Usage) -> String {
    serde_json::to_string(usage).expect("usage has string keys only")
}

/// Covers the whole row. `usage` is its text: a number may change when it is parsed.
///
/// What came with schema 3 counts where it is not as in the rows before it, which stay whole.
fn checksum(row: &Stored, usage: &str) -> u32 {
    let Stored { session, run, lease, request, errand, is_begun, attempts, is_in_inbox, is_settled, .. } =
        row;
    let lease = lease.as_ref();
    let number = |value: Option<Timestamp>| value.map_or(i64::MIN, Timestamp::as_millis).to_le_bytes();
    let optional = |text: Option<&str>| text.map_or_else(|| "-".to_owned(), |text| format!("+{text}"));
    let flags = [*is_begun, *is_in_inbox, !*is_settled].map(u8::from);
    let node = lease.map_or("", |lease| lease.node.as_str());
    let later = [
        optional(errand.as_deref()),
        optional(root_text(run)),
        optional(run.lineage.parent.as_ref().map(RunId::as_str)),
        run.lineage.hops.to_string(),
        run.handed_over_at.map_or_else(|| "-".to_owned(), |at| at.as_millis().to_string()),
        format!("node {node}"),
        format!("{flags:?} {attempts}"),
    ];
    let later = later.join("\n");
    let is_as_before = later == "-\n-\n-\n0\n-\nnode \n[0, 0, 0] 0";
    let (queued_at, started_at, ended_at) =
        (number(Some(run.queued_at)), number(run.started_at), number(run.ended_at));
    let token = optional(lease.map(|lease| lease.token.as_str()));
    let boot_id = optional(lease.map(|lease| lease.until.boot_id.as_str()));
    let until = lease.map_or(-1, |lease| messages::signed(lease.until.millis)).to_le_bytes();
    let (result, error) = (optional(run.result.as_deref()), optional(run.error.as_deref()));
    let (session, is_cancelled) = (session.to_le_bytes(), [u8::from(run.is_cancelled)]);
    let mut parts: Vec<&[u8]> = vec![
        &session,
        run.id.as_str().as_bytes(),
        run.agent.as_str().as_bytes(),
        run.state.as_str().as_bytes(),
        &queued_at,
        &started_at,
        &ended_at,
        token.as_bytes(),
        boot_id.as_bytes(),
        &until,
        &is_cancelled,
        result.as_bytes(),
        error.as_bytes(),
        usage.as_bytes(),
        request.as_bytes(),
    ];
    if !is_as_before {
        parts.push(later.as_bytes());
    }
    crc(&parts)
}

pub(super) fn request_text(messages: Vec<NewMessage>) -> String {
    let line = |NewMessage { id, body }| {
        serde_json::to_string(&(id, body)).expect("a message body has string keys only")
    };
    messages.into_iter().map(line).collect::<Vec<_>>().join("\n")
}

pub(super) fn read_request(text: &str) -> Result<Vec<NewMessage>> {
    let read = |line| {
        let (id, body): (MessageId, Body) = serde_json::from_str(line)
            .map_err(|error| Error::Damaged(format!("the request of a run cannot be read: {error}")))?;
        Ok(NewMessage { id, body })
    };
    text.lines().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::Sqlite;

    #[test]
    fn no_question_about_runs_reads_all_of_them() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Sqlite::open(dir.path()).expect("a store");
        let plan = |sql: &str| store.query_plan(sql);
        let of = |rest: &str| plan(&format!("{WITH_SESSION} {rest}"));
        for (rest, index) in [
            (WAITING_IN, "SEARCH r USING INDEX runs_waiting (session=?)"),
            (INBOX_OF, "SEARCH r USING INDEX runs_inbox (session=?)"),
            (RUNNING_IN, "SEARCH r USING INDEX runs_running (session=?)"),
            (RUNNING, "SCAN r USING INDEX runs_running;"),
            (UNSETTLED, "SCAN r USING INDEX runs_unsettled;"),
            (NEWEST_IN, "SEARCH r USING INDEX runs_by_session (session=?)"),
            (BELOW, "SEARCH r USING INDEX runs_by_root (root=?)"),
            (BY_ID, "SEARCH r USING INDEX sqlite_autoindex_runs_1 (id=?)"),
            (BY_PREFIX, "SEARCH r USING INDEX sqlite_autoindex_runs_1 (id>? AND id<?)"),
        ] {
            assert!(of(rest).contains(index), "{rest}: {}", of(rest));
        }
        assert!(!of(NEWEST).contains("TEMP B-TREE"), "{}", of(NEWEST));
        for (sql, steps) in crate::sqlite::runs::questions() {
            let plan = plan(&sql);
            assert!(steps.iter().all(|step| plan.contains(step)), "{sql}: {plan}");
            assert!(!plan.contains("SCAN r;") && !plan.ends_with("SCAN r"), "{sql}: {plan}");
        }
    }
}
