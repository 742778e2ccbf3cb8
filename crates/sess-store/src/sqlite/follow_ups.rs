//! What follows an ended run, committed as one and once.

use sess_core::{RunId, Timestamp};

use super::{
    deletion, outbox,
    run_rows::{require, update},
    runs,
    writer::{JobResult, Transaction},
};
use crate::{Error, Step};

/// Commits the steps; `false` when that was done before. A session that is to be deleted and is busy is
/// waited for, and a cap of a further run may be reached: then nothing is committed, and the run stays
/// unsettled.
pub(super) fn settle(
    tx: &mut Transaction<'_>,
    id: &RunId,
    steps: Vec<Step>,
    at: Timestamp,
) -> JobResult<bool> {
    let mut row = require(tx.connection(), id)?;
    if !row.run.state.has_ended() {
        let state = row.run.state;
        return Err(Error::Conflict(format!("nothing follows run {id} yet: it is {state}")).into());
    }
    if row.is_settled {
        return Ok(false);
    }
    row.is_settled = true;
    update(tx, &row)?;
    for step in steps {
        match step {
            Step::Queue(new) => {
                runs::queue(tx, *new)?;
            }
            Step::Post { session, address, text } => outbox::put(tx, &session, id, address, text, at)?,
            Step::Delete { session, by } => match deletion::delete(tx, &session, &by, at) {
                Err(error) if error.is_gone() => {}
                deleted => deleted?,
            },
        }
    }
    Ok(true)
}

/// As [`settle`], in the transaction that ends the run: steps that cannot be taken leave it unsettled.
pub(super) fn settle_or_leave(
    tx: &mut Transaction<'_>,
    id: &RunId,
    steps: Vec<Step>,
    at: Timestamp,
) -> JobResult<bool> {
    tx.connection().prepare_cached("SAVEPOINT steps")?.execute([])?;
    let settled = match settle(tx, id, steps, at) {
        Err(error) if error.is_of_the_request() => {
            tx.connection().prepare_cached("ROLLBACK TO steps")?.execute([])?;
            Ok(false)
        }
        settled => settled,
    };
    tx.connection().prepare_cached("RELEASE steps")?.execute([])?;
    settled
}
