//! Seats in SQLite.

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension as _, params};
use sess_core::{SessionId, run::BootTime};

use super::{
    Sqlite, messages, sessions,
    writer::{JobResult, Transaction},
};
use crate::{Error, Process, Result, Seat, Seats};

#[async_trait]
impl Seats for Sqlite {
    async fn sit(&self, session: &SessionId, seat: Seat) -> Result<()> {
        let session = session.clone();
        let now = crate::boot_time()?;
        self.writer
            .write(move |tx| {
                let (n, _) = sessions::require(tx.connection(), &session)?;
                if is_taken(tx.connection(), n, &seat.node, &now)? {
                    let sentence = format!("session {session} is open in another window already");
                    return Err(Error::Conflict(sentence).into());
                }
                take(tx, n, &seat)?;
                Ok(())
            })
            .await
    }

    async fn stand_up(&self, session: &SessionId, node: &str) -> Result<()> {
        let sits = self.readers.query(|reader| match messages::number_of(reader, session)? {
            Some(n) => Ok(of(reader, n)?.is_some_and(|seat| seat.node == node)),
            None => Ok(false),
        })?;
        if !sits {
            return Ok(());
        }
        let (session, node) = (session.clone(), node.to_owned());
        self.writer
            .write(move |tx| match messages::number_of(tx.connection(), &session)? {
                Some(n) => leave(tx, n, &node),
                None => Ok(()),
            })
            .await
    }

    async fn seat(&self, session: &SessionId) -> Result<Option<Seat>> {
        let seat = self.readers.query(|reader| match messages::number_of(reader, session)? {
            Some(n) => of(reader, n),
            None => Ok(None),
        })?;
        let now = crate::boot_time()?;
        Ok(seat.filter(|seat| !seat.until.has_lapsed(&now)))
    }
}

/// Takes the seat, whoever had it.
pub(super) fn take(tx: &Transaction<'_>, session: i64, seat: &Seat) -> JobResult<()> {
    tx.connection()
        .prepare_cached(
            "INSERT INTO seats (session, node, boot, until, pid, started) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (session) DO UPDATE \
             SET node = ?2, boot = ?3, until = ?4, pid = ?5, started = ?6",
        )?
        .execute(params![
            session,
            seat.node,
            seat.until.boot_id,
            messages::signed(seat.until.millis),
            seat.process.pid,
            messages::signed(seat.process.started)
        ])?;
    Ok(())
}

/// Gives the seat up, if `node` has it.
pub(super) fn leave(tx: &Transaction<'_>, session: i64, node: &str) -> JobResult<()> {
    tx.connection()
        .prepare_cached("DELETE FROM seats WHERE session = ?1 AND node = ?2")?
        .execute(params![session, node])?;
    Ok(())
}

/// Tells whether another node than this one sits there.
pub(super) fn is_taken(
    connection: &Connection,
    session: i64,
    node: &str,
    now: &BootTime,
) -> rusqlite::Result<bool> {
    let seat = of(connection, session)?;
    Ok(seat.is_some_and(|seat| seat.node != node && !seat.until.has_lapsed(now)))
}

/// Returns the seat of a session, lapsed or not.
pub(super) fn of(connection: &Connection, session: i64) -> rusqlite::Result<Option<Seat>> {
    connection
        .prepare_cached("SELECT node, boot, until, pid, started FROM seats WHERE session = ?1")?
        .query_row([session], |row| {
            let until = BootTime { boot_id: row.get(1)?, millis: row.get::<_, i64>(2)?.unsigned_abs() };
            let process = Process { pid: row.get(3)?, started: row.get::<_, i64>(4)?.unsigned_abs() };
            Ok(Seat { node: row.get(0)?, until, process })
        })
        .optional()
}
