//! The outbox in SQLite.

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use sess_core::{
    RunId, SessionId, Timestamp,
    run::BootTime,
    session::{Address, Channel},
};

use super::{
    Sqlite, crc, messages,
    rows::{self, Readable, unless_damaged},
    writer::{JobResult, Transaction},
};
use crate::{Error, Lease, Outbox, Post, PostState, PostTried, Result};

pub(super) const COLUMNS: &str = "n, session, run, address, text, state, tries, created_at, due_at, ended_at, \
     lease_token, lease_boot, lease_until, error, crc";

/// [`COLUMNS`], and the id of the session behind them.
const WITH_SESSION: &str = "SELECT o.n, o.session, o.run, o.address, o.text, o.state, o.tries, o.created_at, \
     o.due_at, o.ended_at, o.lease_token, o.lease_boot, o.lease_until, o.error, o.crc, s.id \
     FROM outbox o JOIN sessions s ON s.n = o.session";

// The state stands in the text, letter for letter as in the partial index.
const WAITING_ON: &str = "WHERE o.state = 'waiting' AND o.channel = ?1 AND o.due_at <= ?2 ORDER BY o.n";

#[async_trait]
impl Outbox for Sqlite {
    async fn take_post(&self, channels: &[Channel], lease: Lease, at: Timestamp) -> Result<Option<Post>> {
        let now = crate::boot_time()?;
        let is_due = self.readers.query(|reader| Ok(due(reader, channels, &now, at)?.is_some()))?;
        if !is_due {
            return Ok(None);
        }
        let channels = channels.to_vec();
        self.writer
            .write(move |tx| {
                let Some(mut row) = due(tx.connection(), &channels, &now, at)? else { return Ok(None) };
                row.lease = Some(lease);
                update(tx, &row)?;
                Ok(Some(row.post))
            })
            .await
    }

    async fn end_post(&self, post: u64, lease: &Lease, tried: PostTried, at: Timestamp) -> Result<()> {
        let lease = lease.clone();
        self.writer
            .write(move |tx| {
                let sql = format!("{WITH_SESSION} WHERE o.n = ?1");
                let found = tx
                    .connection()
                    .prepare_cached(&sql)?
                    .query_row([messages::signed(post)], from_row)
                    .optional()?
                    .ok_or_else(|| Error::Conflict(format!("there is no post {post}")))?;
                let mut row = found
                    .map_err(|reason| Error::Damaged(format!("post {post} cannot be read: {reason}")))?;
                if row.lease.as_ref().is_none_or(|held| held.token != lease.token) {
                    return Err(Error::Conflict(format!("the lease of post {post} is no longer held")).into());
                }
                row.lease = None;
                row.post.tries = row.post.tries.saturating_add(1);
                row.post.state = match tried {
                    PostTried::Delivered => {
                        row.post.error = None;
                        PostState::Delivered
                    }
                    PostTried::Failed { error, retry_at } => {
                        row.post.error = Some(error);
                        row.due_at = retry_at.unwrap_or(row.due_at);
                        if retry_at.is_some() { PostState::Waiting } else { PostState::GivenUp }
                    }
                };
                row.ended_at = (row.post.state != PostState::Waiting).then_some(at);
                update(tx, &row)
            })
            .await
    }

    async fn posts(&self, session: Option<&SessionId>, limit: usize) -> Result<Vec<Post>> {
        let limit = messages::signed(limit as u64);
        let rows = self.readers.query(|reader| {
            let Some(session) = session else {
                return readable(reader, "ORDER BY o.n DESC LIMIT ?1", params![limit]);
            };
            let Some(n) = messages::number_of(reader, session)? else { return Ok(Vec::new()) };
            readable(reader, "WHERE o.session = ?1 ORDER BY o.n DESC LIMIT ?2", params![n, limit])
        })?;
        Ok(rows.into_iter().map(|row| row.post).collect())
    }
}

/// A post with what only the store knows of it.
pub(super) struct Stored {
    /// The session's row.
    pub(super) session: i64,
    pub(super) post: Post,
    /// Not before this time.
    pub(super) due_at: Timestamp,
    pub(super) ended_at: Option<Timestamp>,
    /// Who tries to deliver it.
    pub(super) lease: Option<Lease>,
}

/// Puts the words of a run into the outbox.
pub(super) fn put(
    tx: &Transaction<'_>,
    session: &SessionId,
    run: &RunId,
    address: Address,
    text: String,
    at: Timestamp,
) -> JobResult<()> {
    let n =
        messages::number_of(tx.connection(), session)?.ok_or_else(|| Error::NoSession(session.clone()))?;
    let (session, run) = (session.clone(), run.clone());
    let state = PostState::Waiting;
    let post = Post { id: 0, session, run, address, text, state, tries: 0, created_at: at, error: None };
    insert(tx, None, &Stored { session: n, post, due_at: at, ended_at: None, lease: None })
}

/// Writes another text in the place of a post's.
pub(super) fn rewrite(tx: &Transaction<'_>, row: &Stored) -> JobResult<()> {
    let n = messages::signed(row.post.id);
    tx.connection()
        .prepare_cached("UPDATE outbox SET text = ?2 WHERE n = ?1")?
        .execute(params![n, row.post.text])?;
    update(tx, row)
}

/// Writes a post that nobody tries to deliver, under its old number if it has one.
pub(super) fn insert(tx: &Transaction<'_>, n: Option<i64>, row: &Stored) -> JobResult<()> {
    let Stored { session, post, due_at, ended_at, lease: _ } = row;
    let address = address_json(&post.address);
    tx.connection()
        .prepare_cached(
            "INSERT INTO outbox (n, session, run, channel, address, text, state, tries, created_at, due_at, \
             ended_at, error, crc) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        )?
        .execute(params![
            n,
            session,
            post.run.as_str(),
            post.address.channel.as_str(),
            address,
            post.text,
            state_name(post.state),
            post.tries,
            post.created_at.as_millis(),
            due_at.as_millis(),
            ended_at.map(Timestamp::as_millis),
            post.error,
            checksum(row, &address)
        ])?;
    Ok(())
}

fn update(tx: &Transaction<'_>, row: &Stored) -> JobResult<()> {
    let Stored { post, due_at, ended_at, lease, .. } = row;
    tx.connection()
        .prepare_cached(
            "UPDATE outbox SET state = ?2, tries = ?3, due_at = ?4, ended_at = ?5, lease_token = ?6, \
             lease_boot = ?7, lease_until = ?8, error = ?9, crc = ?10 WHERE n = ?1",
        )?
        .execute(params![
            messages::signed(post.id),
            state_name(post.state),
            post.tries,
            due_at.as_millis(),
            ended_at.map(Timestamp::as_millis),
            lease.as_ref().map(|lease| &lease.token),
            lease.as_ref().map(|lease| &lease.until.boot_id),
            lease.as_ref().map(|lease| messages::signed(lease.until.millis)),
            post.error,
            checksum(row, &address_json(&post.address))
        ])?;
    Ok(())
}

/// Returns the oldest post that may be tried now.
fn due(
    connection: &Connection,
    channels: &[Channel],
    now: &BootTime,
    at: Timestamp,
) -> rusqlite::Result<Option<Stored>> {
    let mut oldest: Option<Stored> = None;
    let mut statement = connection.prepare_cached(&format!("{WITH_SESSION} {WAITING_ON}"))?;
    for channel in channels {
        let mut rows = statement.query(params![channel.as_str(), at.as_millis()])?;
        while let Some(row) = rows.next()? {
            let Some(stored) = unless_damaged(from_row(row)?) else { continue };
            let is_free = stored.lease.as_ref().is_none_or(|lease| lease.until.has_lapsed(now));
            if is_free {
                oldest = oldest.into_iter().chain([stored]).min_by_key(|row| row.post.id);
                break;
            }
        }
    }
    Ok(oldest)
}

pub(super) fn readable(
    connection: &Connection,
    rest: &str,
    values: &[&dyn rusqlite::ToSql],
) -> rusqlite::Result<Vec<Stored>> {
    rows::readable(connection, &format!("{WITH_SESSION} {rest}"), values, from_row)
}

fn from_row(row: &Row<'_>) -> rusqlite::Result<Readable<Stored>> {
    rows::with_session(row, "post", from_row_at)
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
        let damaged = |error: rusqlite::Error| format!("post row {n} is damaged: {error}");
        let bad = |field: &str| format!("post row {n} is damaged: its {field} is not valid");
        let text = |column: usize| row.get::<_, String>(first + column).map_err(damaged);
        let maybe = |column: usize| row.get::<_, Option<String>>(first + column).map_err(damaged);
        let number = |column: usize| row.get::<_, i64>(first + column).map_err(damaged);
        let lease = match (maybe(10)?, maybe(11)?) {
            (Some(token), Some(boot_id)) => {
                let millis = u64::try_from(number(12)?).map_err(|_| bad("lease"))?;
                Some(Lease { token, node: String::new(), until: BootTime { boot_id, millis } })
            }
            _ => None,
        };
        let address = text(3)?;
        let post = Post {
            id: u64::try_from(n).map_err(|_| bad("number"))?,
            session,
            run: text(2)?.parse().map_err(|_| bad("run"))?,
            address: serde_json::from_str(&address).map_err(|_| bad("address"))?,
            text: text(4)?,
            state: state_of(&text(5)?).ok_or_else(|| bad("state"))?,
            tries: u32::try_from(number(6)?).map_err(|_| bad("tries"))?,
            created_at: Timestamp::from_millis_clamped(number(7)?),
            error: maybe(13)?,
        };
        let ended_at = row.get::<_, Option<i64>>(first + 9).map_err(damaged)?;
        let stored = Stored {
            session: number(1)?,
            post,
            due_at: Timestamp::from_millis_clamped(number(8)?),
            ended_at: ended_at.map(Timestamp::from_millis_clamped),
            lease,
        };
        if number(14)? != i64::from(checksum(&stored, &address)) {
            return Err(format!("post row {n} is damaged: its checksum does not match"));
        }
        Ok(stored)
    };
    Ok(read())
}

fn state_name(state: PostState) -> &'static str {
    match state {
        PostState::Waiting => "waiting",
        PostState::Delivered => "delivered",
        PostState::GivenUp => "given_up",
    }
}

fn state_of(name: &str) -> Option<PostState> {
    let all = [PostState::Waiting, PostState::Delivered, PostState::GivenUp];
    all.into_iter().find(|state| state_name(*state) == name)
}

fn address_json(address: &Address) -> String {
    serde_json::to_string(address).expect("an address has string keys only")
}

/// Covers the whole row but its number and its channel, which the address names.
fn checksum(row: &Stored, address: &str) -> u32 {
    let Stored { session, post, due_at, ended_at, lease } = row;
    let optional = |text: Option<&str>| text.map_or_else(|| "-".to_owned(), |text| format!("+{text}"));
    crc(&[
        &session.to_le_bytes(),
        post.run.as_str().as_bytes(),
        address.as_bytes(),
        post.text.as_bytes(),
        state_name(post.state).as_bytes(),
        &post.tries.to_le_bytes(),
        &post.created_at.as_millis().to_le_bytes(),
        &due_at.as_millis().to_le_bytes(),
        &ended_at.map_or(i64::MIN, Timestamp::as_millis).to_le_bytes(),
        optional(lease.as_ref().map(|lease| lease.token.as_str())).as_bytes(),
        optional(lease.as_ref().map(|lease| lease.until.boot_id.as_str())).as_bytes(),
        &lease.as_ref().map_or(-1, |lease| messages::signed(lease.until.millis)).to_le_bytes(),
        optional(post.error.as_deref()).as_bytes(),
    ])
}
