//! The inbox of a session that another program runs: what was sent to it, and its replies.

use rusqlite::{Connection, params};
use sess_core::{
    RunId, SessionId, Timestamp,
    run::{Errand, Run, RunState},
};

use super::{
    messages::{self, Encoded},
    run_rows::{INBOX_OF, Stored, read_request, readable, require, update},
    runs::{append_request, end},
    writer::{JobResult, Transaction},
};
use crate::{Error, InboxItem, NewMessage, Result};

/// Returns what waits in the inbox, and whether some of it was not handed over yet or is over now.
pub(super) fn waiting(
    connection: &Connection,
    session: &SessionId,
    limit: usize,
) -> rusqlite::Result<(Vec<Stored>, bool)> {
    let Some(n) = messages::number_of(connection, session)? else { return Ok((Vec::new(), false)) };
    let rows = readable(connection, INBOX_OF, params![n, messages::signed(limit as u64)])?;
    let is_new = rows.iter().any(|row| row.run.handed_over_at.is_none() || is_over(row));
    Ok((rows, is_new))
}

/// Tells whether a message that wants no reply was handed over before. That answer may have been lost, so
/// it is handed over once more to whoever asks again, and then is over.
fn is_over(row: &Stored) -> bool {
    let wants_no_reply = matches!(row.run.errand, Errand::Report { .. } | Errand::LateReply { .. });
    wants_no_reply && row.run.handed_over_at.is_some()
}

/// Hands over what waits: from now on it stands in the transcript.
pub(super) fn hand_over(
    tx: &mut Transaction<'_>,
    session: &SessionId,
    limit: usize,
    at: Timestamp,
) -> JobResult<Vec<InboxItem>> {
    let (rows, _) = waiting(tx.connection(), session, limit)?;
    let mut items = Vec::with_capacity(rows.len());
    for mut row in rows {
        let request = row.request.clone();
        let run = if is_over(&row) {
            end(tx, row, RunState::Done, at)?
        } else {
            deliver(tx, &mut row, at)?;
            row.run
        };
        items.push(item_of(run, &request)?);
    }
    Ok(items)
}

/// Puts a message into the transcript, the first time.
fn deliver(tx: &mut Transaction<'_>, row: &mut Stored, at: Timestamp) -> JobResult<()> {
    if row.run.handed_over_at.is_some() {
        return Ok(());
    }
    append_request(tx, &row.run.session, &row.request)?;
    row.run.handed_over_at = Some(at);
    update(tx, row)
}

/// Ends a run with the reply of its session's host.
pub(super) fn reply(
    tx: &mut Transaction<'_>,
    id: &RunId,
    session: &SessionId,
    reply: NewMessage,
    at: Timestamp,
) -> JobResult<Run> {
    let mut row = require(tx.connection(), id)?;
    // What waits for another session is nothing to this one.
    if row.run.session != *session || !row.is_in_inbox {
        return Err(Error::NoRun(id.clone()).into());
    }
    let state = row.run.state;
    if state.has_ended() {
        return Err(Error::Conflict(format!("run {id} was answered already: it is {state}")).into());
    }
    deliver(tx, &mut row, at)?;
    row.run.result = Some(reply.body.plain_text());
    messages::append(tx, session, &[Encoded::new(reply)])?;
    end(tx, row, RunState::Done, at)
}

pub(super) fn item(row: Stored) -> Result<InboxItem> {
    item_of(row.run, &row.request)
}

fn item_of(run: Run, request: &str) -> Result<InboxItem> {
    let request = read_request(request)?;
    let texts: Vec<String> = request.iter().map(|message| message.body.plain_text()).collect();
    let provenance = request.into_iter().find_map(|message| message.body.provenance);
    Ok(InboxItem { run, message: texts.join("\n\n"), provenance })
}
