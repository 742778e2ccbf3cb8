//! Plans and their revisions in SQLite.

use async_trait::async_trait;
use rusqlite::{OptionalExtension as _, params};
use sess_core::{SessionId, Timestamp, plan::State, session::NewSession};

use super::{
    Sqlite, crc, feed, messages, sessions,
    writer::{JobResult, Transaction},
};
use crate::{
    Error, FeedItem, Happening, Plan, PlanChange, PlanRevision, PlanWrite, PlanWritten, Plans, Result,
};

#[async_trait]
impl Plans for Sqlite {
    async fn write_plan(&self, session: NewSession, write: PlanWrite) -> Result<PlanWritten> {
        self.writer
            .write(move |tx| {
                if let Some(key) = &write.key
                    && let Some(answer) = messages::known_answer(tx, key)?
                {
                    let revision = answer
                        .parse()
                        .map_err(|_| Error::Damaged(format!("a stored answer is damaged: \"{answer}\"")))?;
                    return Ok(PlanWritten { revision, replayed: true });
                }
                let (n, _) = sessions::ensure(tx, &session, false)?;
                let revision = insert_revision(tx, n, &write)?;
                if let Some(key) = &write.key {
                    messages::remember(tx, key, &revision.to_string())?;
                }
                Ok(PlanWritten { revision, replayed: false })
            })
            .await
    }

    async fn withdraw_plan(&self, session: &SessionId, revision: u64) -> Result<()> {
        let session = session.clone();
        self.writer
            .write(move |tx| {
                let (n, _) = sessions::require(tx.connection(), &session)?;
                withdraw(tx, n, revision)
            })
            .await
    }

    async fn announce_plan(&self, session: &SessionId, revision: u64, path: &str) -> Result<()> {
        let (session, path) = (session.clone(), path.to_owned());
        self.writer
            .write(move |tx| {
                let (n, _) = sessions::require(tx.connection(), &session)?;
                let Some(plan) = plan(tx.connection(), n)? else {
                    return Ok(());
                };
                for told in plan.announced + 1..=revision.min(plan.revision) {
                    announce(tx, n, told, &path)?;
                }
                Ok(())
            })
            .await
    }

    async fn plan(&self, session: &SessionId) -> Result<Option<Plan>> {
        self.readers.query(|reader| match messages::number_of(reader, session)? {
            Some(n) => plan(reader, n),
            None => Ok(None),
        })
    }

    async fn plan_revision(&self, session: &SessionId, revision: u64) -> Result<Option<PlanRevision>> {
        let found = self.readers.query(|reader| {
            let Some(n) = messages::number_of(reader, session)? else {
                return Ok(None);
            };
            reader
                .prepare_cached(
                    "SELECT revision, agent, at, size_bytes, content, crc FROM plan_revisions \
                     WHERE session = ?1 AND revision = ?2",
                )?
                .query_row(params![n, messages::signed(revision)], |row| {
                    Ok((revision_row(row)?, row.get::<_, String>(4)?, row.get::<_, u32>(5)?))
                })
                .optional()
        })?;
        let Some((mut found, content, stored)) = found else {
            return Ok(None);
        };
        if stored != checksum(revision, &content) {
            return Err(Error::Damaged(format!(
                "revision {revision} of the plan of session {session} is damaged: its checksum does not match"
            )));
        }
        found.content = content;
        Ok(Some(found))
    }

    async fn plan_log(&self, session: &SessionId, limit: usize) -> Result<Vec<PlanRevision>> {
        self.readers.query(|reader| {
            let Some(n) = messages::number_of(reader, session)? else {
                return Ok(Vec::new());
            };
            let mut newest_first: Vec<PlanRevision> = reader
                .prepare_cached(
                    "SELECT revision, agent, at, size_bytes FROM plan_revisions WHERE session = ?1 \
                     ORDER BY revision DESC LIMIT ?2",
                )?
                .query_map(params![n, messages::signed(limit as u64)], revision_row)?
                .collect::<rusqlite::Result<_>>()?;
            newest_first.reverse();
            Ok(newest_first)
        })
    }

    async fn plan_change(&self, session: &SessionId) -> Result<Option<FeedItem>> {
        self.readers.query(|reader| match messages::number_of(reader, session)? {
            Some(n) => feed::newest_plan_change(reader, n),
            None => Ok(None),
        })
    }

    async fn change_plan_state(&self, session: &SessionId, change: PlanChange) -> Result<()> {
        let session = session.clone();
        self.writer
            .write(move |tx| {
                let (n, _) = sessions::require(tx.connection(), &session)?;
                let changed = tx
                    .connection()
                    .prepare_cached(
                        "UPDATE plans SET state = ?4 WHERE session = ?1 AND revision = ?2 AND state = ?3",
                    )?
                    .execute(params![
                        n,
                        messages::signed(change.revision),
                        change.from.as_str(),
                        change.to.as_str()
                    ])?;
                if changed == 0 {
                    return Err(Error::Conflict(format!(
                        "the plan changed meanwhile: it is no longer revision {} in state {}",
                        change.revision, change.from
                    ))
                    .into());
                }
                touch(tx, n, change.at)?;
                let PlanChange { revision, to: state, by, note, at, from: _ } = change;
                feed::record(tx, n, &Happening::PlanState { at, revision, state, by, note })
            })
            .await
    }

    async fn mark_plan_swept(&self, session: &SessionId, revision: u64) -> Result<()> {
        let session = session.clone();
        self.writer
            .write(move |tx| {
                let (n, _) = sessions::require(tx.connection(), &session)?;
                tx.connection()
                    .prepare_cached("UPDATE plans SET swept = 1 WHERE session = ?1 AND revision = ?2")?
                    .execute(params![n, messages::signed(revision)])?;
                Ok(())
            })
            .await
    }
}

fn insert_revision(tx: &Transaction<'_>, n: i64, write: &PlanWrite) -> JobResult<u64> {
    let before = plan(tx.connection(), n)?;
    let newest = before.as_ref().map_or(0, |plan| plan.revision);
    if let Some(expected) = write.expect_revision
        && expected != newest
    {
        return Err(Error::StaleRevision { expected, actual: newest }.into());
    }
    let revision = newest + 1;
    tx.connection()
        .prepare_cached(
            "INSERT INTO plan_revisions (session, revision, agent, at, state_before, swept_before, request, \
             size_bytes, crc, content) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )?
        .execute(params![
            n,
            messages::signed(revision),
            write.agent,
            write.at.as_millis(),
            before.as_ref().map(|plan| plan.state.as_str()),
            before.is_some_and(|plan| plan.swept),
            write.key.as_ref().map(|key| &key.key),
            messages::signed(write.content.len() as u64),
            checksum(revision, &write.content),
            write.content
        ])?;
    tx.connection()
        .prepare_cached(
            "INSERT INTO plans (session, revision, state, announced, swept) VALUES (?1, ?2, 'draft', 0, 0) \
             ON CONFLICT (session) DO UPDATE SET revision = ?2, state = 'draft', swept = 0",
        )?
        .execute(params![n, messages::signed(revision)])?;
    touch(tx, n, write.at)?;
    Ok(revision)
}

/// Takes back the newest revision, with the answer that its request was given.
fn withdraw(tx: &Transaction<'_>, n: i64, revision: u64) -> JobResult<()> {
    let connection = tx.connection();
    let deleted: Option<(Option<String>, bool, Option<String>)> = connection
        .prepare_cached(
            "DELETE FROM plan_revisions WHERE session = ?1 AND revision = ?2 AND EXISTS ( \
                 SELECT 1 FROM plans WHERE session = ?1 AND revision = ?2 AND announced < ?2 \
             ) RETURNING state_before, swept_before, request",
        )?
        .query_row(params![n, messages::signed(revision)], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let Some((state, swept, request)) = deleted else {
        return Err(Error::Conflict(format!(
            "revision {revision} cannot be taken back: it is not the newest, or was told already"
        ))
        .into());
    };
    match state {
        Some(state) => connection
            .prepare_cached("UPDATE plans SET revision = ?2, state = ?3, swept = ?4 WHERE session = ?1")?
            .execute(params![n, messages::signed(revision - 1), state, swept])?,
        None => connection.prepare_cached("DELETE FROM plans WHERE session = ?1")?.execute([n])?,
    };
    // The request failed: a retry with its key must act.
    if let Some(request) = request {
        connection.prepare_cached("DELETE FROM requests WHERE key = ?1")?.execute([request])?;
    }
    Ok(())
}

/// Tells one revision, and the change of state that writing it was.
fn announce(tx: &mut Transaction<'_>, n: i64, revision: u64, path: &str) -> JobResult<()> {
    let (agent, at, before): (String, i64, Option<String>) = tx
        .connection()
        .prepare_cached(
            "SELECT agent, at, state_before FROM plan_revisions WHERE session = ?1 AND revision = ?2",
        )?
        .query_row(params![n, messages::signed(revision)], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?;
    let at = Timestamp::from_millis_clamped(at);
    tx.connection()
        .prepare_cached("UPDATE plans SET announced = ?2 WHERE session = ?1")?
        .execute(params![n, messages::signed(revision)])?;
    // The content is joined in when the event is read: it is stored once.
    let updated = Happening::PlanUpdated {
        at,
        revision,
        path: path.to_owned(),
        agent: agent.clone(),
        content: String::new(),
    };
    feed::record(tx, n, &updated)?;
    if before.is_some_and(|state| state != State::Draft.as_str()) {
        let state = Happening::PlanState { at, revision, state: State::Draft, by: agent, note: None };
        feed::record(tx, n, &state)?;
    }
    Ok(())
}

/// A change of its plan is activity of the session.
fn touch(tx: &Transaction<'_>, n: i64, at: Timestamp) -> JobResult<()> {
    tx.connection()
        .prepare_cached("UPDATE sessions SET updated_at = max(updated_at, ?2) WHERE n = ?1")?
        .execute(params![n, at.as_millis()])?;
    Ok(())
}

fn plan(connection: &rusqlite::Connection, n: i64) -> rusqlite::Result<Option<Plan>> {
    connection
        .prepare_cached("SELECT revision, state, announced, swept FROM plans WHERE session = ?1")?
        .query_row([n], |row| {
            let state: String = row.get(1)?;
            let state = state.parse().map_err(|error: sess_core::plan::UnknownState| {
                rusqlite::Error::FromSqlConversionFailure(1, rusqlite::types::Type::Text, Box::new(error))
            })?;
            Ok(Plan {
                revision: row.get::<_, i64>(0)?.unsigned_abs(),
                state,
                announced: row.get::<_, i64>(2)?.unsigned_abs(),
                swept: row.get(3)?,
            })
        })
        .optional()
}

fn revision_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<PlanRevision> {
    Ok(PlanRevision {
        revision: row.get::<_, i64>(0)?.unsigned_abs(),
        agent: row.get(1)?,
        at: Timestamp::from_millis_clamped(row.get(2)?),
        size_bytes: row.get::<_, i64>(3)?.unsigned_abs(),
        content: String::new(),
    })
}

pub(super) fn checksum(revision: u64, content: &str) -> u32 {
    crc(&[&revision.to_le_bytes(), content.as_bytes()])
}
