//! Messages in SQLite.

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use sess_core::{
    MessageId, SessionId, Timestamp,
    message::{Role, Shape, Spoken},
};

use super::{
    Sqlite, crc, sessions,
    writer::{JobResult, Transaction},
};
use crate::{
    Appended, DamagedMessage, Error, Imported, ImportedSession, LastReply, MessagePage, Messages, NewMessage,
    Position, RequestKey, Result, Span, StoredMessage,
};

const NEWEST_FIRST: &str = "SELECT n, seq, id, shape, crc, body FROM messages \
     WHERE session = ?1 AND seq < ?2 ORDER BY seq DESC LIMIT ?3";
const OLDEST_FIRST: &str = "SELECT n, seq, id, shape, crc, body FROM messages \
     WHERE session = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3";

/// Messages after a position, each with the number and the id of its session behind it.
pub(super) const OF_ALL_SESSIONS: &str = "SELECT m.n, m.seq, m.id, m.shape, m.crc, m.body, m.session, s.id \
     FROM messages m JOIN sessions s ON s.n = m.session WHERE m.n > ?1 ORDER BY m.n LIMIT ?2";

/// A page ends after the message that takes it past this size, so that large
/// messages do not add up in memory.
pub(super) const PAGE_SIZE_BYTES_MAX: usize = 16 << 20;

#[async_trait]
impl Messages for Sqlite {
    async fn append(
        &self,
        session: &SessionId,
        messages: Vec<NewMessage>,
        key: Option<RequestKey>,
    ) -> Result<Appended> {
        let session = session.clone();
        // Encoded by the caller's thread: the writer's time is everybody's.
        let messages: Vec<Encoded> = messages.into_iter().map(Encoded::new).collect();
        self.writer
            .write(move |tx| {
                if let Some(answer) = key.as_ref().map(|key| known_answer(tx, key)).transpose()?.flatten() {
                    return read_appended(&answer);
                }
                let appended = append(tx, &session, &messages)?;
                if let Some(key) = &key {
                    remember(tx, key, &format!("{} {}", appended.first_seq, appended.last_seq))?;
                }
                Ok(appended)
            })
            .await
    }

    async fn import(&self, imported: ImportedSession) -> Result<Imported> {
        let ImportedSession { session, starred, messages } = imported;
        let messages: Vec<Encoded> = messages.into_iter().map(Encoded::new).collect();
        self.writer
            .write(move |tx| {
                sessions::refuse_other_owner(tx, &session)?;
                let (n, is_new) = sessions::ensure(tx, &session, starred)?;
                let have =
                    if is_new { 0 } else { same_beginning(tx.connection(), n, &session.id, &messages)? };
                let rest = &messages[have..];
                if !rest.is_empty() {
                    append(tx, &session.id, rest)?;
                }
                let total = place_of(tx.connection(), &session.id)?.map_or(0, |place| place.last_seq);
                Ok(Imported { added: rest.len() as u64, total, existed: !is_new })
            })
            .await
    }

    async fn messages(&self, session: &SessionId, span: Span, limit: usize) -> Result<MessagePage> {
        let found = self.readers.query(|reader| match place_of(reader, session)? {
            Some(place) => page(reader, place, span, limit).map(Some),
            None => Ok(None),
        })?;
        found.ok_or_else(|| Error::NoSession(session.clone()))
    }

    async fn find_message(&self, session: &SessionId, id: &MessageId) -> Result<Option<u64>> {
        self.readers.query(|reader| {
            let Some(n) = number_of(reader, session)? else {
                return Ok(None);
            };
            reader
                .prepare_cached("SELECT seq FROM messages WHERE session = ?1 AND id = ?2")?
                .query_row(params![n, id.as_str()], |row| row.get::<_, i64>(0).map(i64::unsigned_abs))
                .optional()
        })
    }

    async fn count_messages(&self, session: &SessionId, span: Span, mask: u8) -> Result<u64> {
        self.readers.query(|reader| {
            let Some(n) = number_of(reader, session)? else { return Ok(0) };
            let (low, high) = match span {
                Span::Last => (0, i64::MAX),
                Span::Before(seq) => (0, signed(seq)),
                Span::After(seq) => (signed(seq), i64::MAX),
            };
            reader
                .prepare_cached(
                    "SELECT count(*) FROM messages WHERE session = ?1 AND seq > ?2 AND seq < ?3 AND shape & ?4",
                )?
                .query_row(params![n, low, high, mask], |row| row.get::<_, i64>(0).map(i64::unsigned_abs))
        })
    }
}

/// A message as it will be stored, but for its place.
pub(super) struct Encoded {
    id: MessageId,
    at: Timestamp,
    shape: Shape,
    body: String,
}

impl Encoded {
    pub(super) fn new(message: NewMessage) -> Self {
        Self {
            id: message.id,
            at: message.body.timestamp,
            shape: message.body.shape(),
            body: serde_json::to_string(&message.body).expect("a message body has string keys only"),
        }
    }
}

/// Appends to an existing session; last activity is the last message's time.
pub(super) fn append(
    tx: &mut Transaction<'_>,
    session: &SessionId,
    messages: &[Encoded],
) -> JobResult<Appended> {
    let Some(last) = messages.last() else {
        return Err(Error::Conflict("there is no message to append".to_owned()).into());
    };
    let counted = messages.iter().filter(|message| !message.shape.is_system()).count();
    let (n, last_seq): (i64, i64) = tx
        .connection()
        .prepare_cached(
            "UPDATE sessions SET last_seq = last_seq + ?2, num_messages = num_messages + ?3, updated_at = ?4 \
             WHERE id = ?1 AND deleted_at IS NULL RETURNING n, last_seq",
        )?
        .query_row(
            params![
                session.as_str(),
                signed(messages.len() as u64),
                signed(counted as u64),
                last.at.as_millis()
            ],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .optional()?
        .ok_or_else(|| Error::NoSession(session.clone()))?;
    let last_seq = last_seq.unsigned_abs();
    let first_seq = last_seq + 1 - messages.len() as u64;
    for (message, seq) in messages.iter().zip(first_seq..) {
        let position = tx.take_position();
        tx.connection()
            .prepare_cached(
                "INSERT INTO messages (n, session, seq, id, shape, crc, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute(params![
                position,
                n,
                signed(seq),
                message.id.as_str(),
                message.shape.bits(),
                checksum(n, seq, message.id.as_str(), &message.body),
                message.body
            ])?;
    }
    Ok(Appended { first_seq, last_seq })
}

/// Returns how many of `messages` are here already, when all that is here is the same.
fn same_beginning(connection: &Connection, n: i64, id: &SessionId, messages: &[Encoded]) -> JobResult<usize> {
    let mut have = 0;
    let mut statement =
        connection.prepare_cached("SELECT id, body FROM messages WHERE session = ?1 ORDER BY seq")?;
    let mut rows = statement.query([n])?;
    while let Some(row) = rows.next()? {
        let stored: (String, String) = (row.get(0)?, row.get(1)?);
        match messages.get(have) {
            // The file is an older copy of what is here.
            None => return Ok(messages.len()),
            Some(message) if message.id.as_str() == stored.0 && message.body == stored.1 => have += 1,
            Some(_) => {
                return Err(Error::Conflict(format!(
                    "session {id} is already here with another message {}; nothing was imported",
                    have + 1
                ))
                .into());
            }
        }
    }
    Ok(have)
}

/// Returns the first answer to this request, or refuses a key that meant another one.
pub(super) fn known_answer(tx: &Transaction<'_>, key: &RequestKey) -> JobResult<Option<String>> {
    let found: Option<(String, String)> = tx
        .connection()
        .prepare_cached("SELECT fingerprint, answer FROM requests WHERE key = ?1")?
        .query_row([&key.key], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    match found {
        None => Ok(None),
        Some((fingerprint, answer)) if fingerprint == key.fingerprint => Ok(Some(answer)),
        Some(_) => Err(Error::KeyReused(key.key.clone()).into()),
    }
}

/// Keeps the answer to a request, in the transaction that acts on it.
pub(super) fn remember(tx: &Transaction<'_>, key: &RequestKey, answer: &str) -> JobResult<()> {
    tx.connection()
        .prepare_cached("INSERT INTO requests (key, fingerprint, answer) VALUES (?1, ?2, ?3)")?
        .execute(params![key.key, key.fingerprint, answer])?;
    Ok(())
}

fn read_appended(answer: &str) -> JobResult<Appended> {
    let numbers: Vec<u64> = answer.split(' ').filter_map(|number| number.parse().ok()).collect();
    match numbers[..] {
        [first_seq, last_seq] => Ok(Appended { first_seq, last_seq }),
        _ => Err(Error::Damaged(format!("a stored answer is damaged: \"{answer}\"")).into()),
    }
}

pub(super) fn number_of(connection: &Connection, session: &SessionId) -> rusqlite::Result<Option<i64>> {
    connection
        .prepare_cached("SELECT n FROM sessions WHERE id = ?1")?
        .query_row([session.as_str()], |row| row.get(0))
        .optional()
}

/// A session's row number, and the number of its last message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    n: i64,
    last_seq: u64,
}

pub(super) fn place_of(connection: &Connection, session: &SessionId) -> rusqlite::Result<Option<Place>> {
    connection
        .prepare_cached("SELECT n, last_seq FROM sessions WHERE id = ?1 AND deleted_at IS NULL")?
        .query_row([session.as_str()], |row| {
            Ok(Place { n: row.get(0)?, last_seq: row.get::<_, i64>(1)?.unsigned_abs() })
        })
        .optional()
}

pub(super) fn page(
    connection: &Connection,
    place: Place,
    span: Span,
    limit: usize,
) -> rusqlite::Result<MessagePage> {
    let Place { n, last_seq } = place;
    // Sequence numbers are dense: one that is skipped was lost to damage. `next` is the
    // one that should come.
    let (sql, bound, is_newest_first, mut next) = match span {
        Span::Last => (NEWEST_FIRST, i64::MAX, true, last_seq),
        Span::Before(seq) => (NEWEST_FIRST, signed(seq), true, last_seq.min(seq.saturating_sub(1))),
        Span::After(seq) => (OLDEST_FIRST, signed(seq), false, seq.saturating_add(1)),
    };
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params![n, bound, signed(limit as u64)])?;
    let mut page = MessagePage::default();
    // Bounded, because a damaged number could claim any number of messages.
    let lost = |page: &mut MessagePage, missing: std::ops::Range<u64>| {
        let room = limit.saturating_sub(page.messages.len() + page.damaged.len());
        let reason = "it is missing";
        page.damaged.extend(missing.take(room).map(|seq| DamagedMessage { seq, reason: reason.to_owned() }));
    };
    let mut size_bytes = 0;
    while let Some(row) = rows.next()? {
        let (seq, message) = from_row(row, n)?;
        lost(
            &mut page,
            if is_newest_first { seq.saturating_add(1)..next.saturating_add(1) } else { next..seq },
        );
        next = if is_newest_first { seq.saturating_sub(1) } else { seq.saturating_add(1) };
        match message {
            Ok(message) => {
                size_bytes += message.body.len();
                page.messages.push(message);
            }
            Err(reason) => page.damaged.push(DamagedMessage { seq, reason }),
        }
        if size_bytes > PAGE_SIZE_BYTES_MAX {
            break;
        }
    }
    // With room left, the span was read to its end.
    if size_bytes <= PAGE_SIZE_BYTES_MAX {
        lost(
            &mut page,
            if is_newest_first { 1..next.saturating_add(1) } else { next..last_seq.saturating_add(1) },
        );
    }
    if is_newest_first {
        page.messages.reverse();
    }
    page.damaged.sort_by_key(|message| message.seq);
    Ok(page)
}

/// How many of a session's newest messages are looked through for the model that spoke last.
const LOOKED_AT_FOR_REPLY: i64 = 6;

/// Returns who spoke last, when that is not long ago.
pub(super) fn last_reply(connection: &Connection, session: i64) -> rusqlite::Result<Option<LastReply>> {
    let mut statement = connection.prepare_cached(NEWEST_FIRST)?;
    let mut rows = statement.query(params![session, i64::MAX, LOOKED_AT_FOR_REPLY])?;
    while let Some(row) = rows.next()? {
        let (_, message) = from_row(row, session)?;
        let spoken = message.ok().and_then(|message| serde_json::from_str::<Spoken>(&message.body).ok());
        if let Some(Spoken { role: Role::Assistant, model: Some(model), usage }) = spoken {
            return Ok(Some(LastReply { model, usage }));
        }
    }
    Ok(None)
}

/// Reads a message, or tells why it cannot be trusted.
pub(super) fn from_row(
    row: &Row<'_>,
    session: i64,
) -> rusqlite::Result<(u64, std::result::Result<StoredMessage, String>)> {
    from_row_at(row, 0, session)
}

/// Reads a message whose columns start at `first`.
pub(super) fn from_row_at(
    row: &Row<'_>,
    first: usize,
    session: i64,
) -> rusqlite::Result<(u64, std::result::Result<StoredMessage, String>)> {
    let position = Position(row.get::<_, i64>(first)?.unsigned_abs());
    // A number that is none fails the checksum below, and costs its row alone.
    let seq = row.get::<_, i64>(first + 1).unwrap_or_default().unsigned_abs();
    let read = || -> std::result::Result<StoredMessage, String> {
        let damaged = |error: rusqlite::Error| error.to_string();
        let id = row.get_ref(first + 2).map_err(damaged)?.as_str().map_err(|error| error.to_string())?;
        let shape: u8 = row.get(first + 3).map_err(damaged)?;
        let stored: u32 = row.get(first + 4).map_err(damaged)?;
        let body: String = row.get(first + 5).map_err(damaged)?;
        if stored != checksum(session, seq, id, &body) {
            return Err("its checksum does not match".to_owned());
        }
        let id = id.parse().map_err(|error: sess_core::id::InvalidMessageId| error.to_string())?;
        Ok(StoredMessage { position, id, seq, shape: Shape::from_bits(shape), body })
    };
    Ok((seq, read()))
}

pub(super) fn checksum(session: i64, seq: u64, id: &str, body: &str) -> u32 {
    crc(&[&session.to_le_bytes(), &seq.to_le_bytes(), id.as_bytes(), body.as_bytes()])
}

pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
