//! Reading docker-agent's session database, without touching it.
//!
//! Schema 13 kept a session's items as JSON in `sessions.messages`; from 14 on
//! they are rows of `session_items`, up to 19 beside the old column. Columns came
//! and went in every version, so the ones that are there are used, whatever the
//! schema's number says. What a chat message means is in `message`; how the
//! original stays untouched, in `sess_readers::database`.

mod items;
mod message;

use std::{
    collections::{HashSet, VecDeque},
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use rusqlite::{Connection, Row, types::ValueRef};
use sess_core::{SessionId, SessionKey, Source, Timestamp, session::NewSession};
use sess_store::ImportedSession;

use self::items::{Nested, Transcript};

/// What a database held.
#[derive(Debug, Default)]
pub struct ReadDatabase {
    /// Its sessions in the order they were made; sub-sessions are sessions with a parent.
    pub sessions: Vec<ImportedSession>,
    /// What could not be read, one sentence each. The rest is in `sessions`.
    pub warnings: Vec<String>,
}

/// Why a database could not be read at all.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("{} could not be read", path.display())]
    Io {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error("{} is being written to all the time; import it when docker-agent is at rest", .0.display())]
    Busy(PathBuf),
    #[error("{} is not an SQLite database", .0.display())]
    NotSqlite(PathBuf),
    #[error("{} is an SQLite database, but not one of docker-agent's: {reason}", path.display())]
    NotDockerAgent { path: PathBuf, reason: &'static str },
    #[error("{} is damaged", path.display())]
    Database {
        path: PathBuf,
        #[source]
        error: rusqlite::Error,
    },
}

impl ReadError {
    /// Says of the file that was named why it could not be read.
    fn of(path: &Path, error: sess_readers::Error) -> Self {
        let path = path.to_owned();
        match error {
            sess_readers::Error::Busy(_) => Self::Busy(path),
            sess_readers::Error::Database { source: error, .. } => Self::Database { path, error },
            sess_readers::Error::Io { source: error, .. } => Self::Io { path, error },
            error @ (sess_readers::Error::Format { .. } | sess_readers::Error::Gone(_)) => {
                Self::Io { path, error: io::Error::other(error) }
            }
        }
    }
}

/// Says whether a file is an SQLite database, by how it begins.
///
/// Anything that is not a file is none, and is not opened: reading a pipe would
/// take from it what the next reader needs.
pub fn is_sqlite(path: &Path) -> bool {
    const MAGIC: &[u8; 16] = b"SQLite format 3\0";
    let mut start = [0; MAGIC.len()];
    let is_file = fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
    let mut read = || File::open(path)?.read_exact(&mut start);
    is_file && read().is_ok() && start == *MAGIC
}

/// Reads every session of the database at `path`.
///
/// Database, log and shared memory stay as they are, and nothing is made beside
/// them. A session or a message that cannot be read costs itself only.
pub fn read(path: &Path) -> Result<ReadDatabase, ReadError> {
    fs::metadata(path).map_err(|error| ReadError::Io { path: path.to_owned(), error })?;
    if !is_sqlite(path) {
        return Err(ReadError::NotSqlite(path.to_owned()));
    }
    // The log lies beside the file itself, not beside a link to it.
    let original = path.canonicalize().map_err(|error| ReadError::Io { path: path.to_owned(), error })?;
    let read = sess_readers::database::look(&original, |connection| {
        let schema = Schema::of(connection)?;
        Ok(match schema.foreign() {
            Some(reason) => Err(reason),
            None => Ok(read_all(connection, &schema)?),
        })
    });
    match read {
        Ok(read) => read.map_err(|reason| ReadError::NotDockerAgent { path: path.to_owned(), reason }),
        Err(error) => Err(ReadError::of(path, error)),
    }
}

fn read_all(connection: &Connection, schema: &Schema) -> rusqlite::Result<ReadDatabase> {
    let mut read = ReadDatabase::default();
    let rows = session_rows(connection, schema, &mut read.warnings)?;
    let stored: HashSet<SessionId> = rows.iter().map(|row| row.id.clone()).collect();
    let mut nested = VecDeque::new();
    for row in rows {
        let mut transcript = Transcript::new(row.session(), row.created_at, &mut read.warnings);
        let has_table = !schema.items.is_empty();
        let found = if has_table { transcript.add_rows(connection, &schema.items) } else { 0 };
        // Versions 14 to 19 left behind in the column what they could not move.
        if found == 0 && schema.has_messages_column() {
            transcript.add_column(connection, row.rowid, &mut nested);
        }
        read.sessions.push(transcript.finish(row.starred));
    }
    add_nested(&mut read, nested, &stored);
    Ok(read)
}

/// Adds the sessions that stood inside others, and those that stand inside these.
fn add_nested(read: &mut ReadDatabase, mut nested: VecDeque<Nested>, stored: &HashSet<SessionId>) {
    let mut seen = stored.clone();
    while let Some(child) = nested.pop_front() {
        if !seen.insert(child.session.id.clone()) {
            // It has a row of its own, which only lacks whose it is.
            let same = read.sessions.iter_mut().find(|other| other.session.id == child.session.id);
            if let Some(same) = same {
                let parent = &mut same.session.parent;
                *parent = parent.take().or(child.session.parent);
            }
            continue;
        }
        let mut transcript = Transcript::new(child.session, child.created_at, &mut read.warnings);
        for (position, item) in child.items.iter().enumerate() {
            transcript.add_json(position, item, &mut nested);
        }
        read.sessions.push(transcript.finish(child.starred));
    }
}

/// The columns that there are.
struct Schema {
    sessions: Vec<String>,
    items: Vec<String>,
}

impl Schema {
    fn of(connection: &Connection) -> rusqlite::Result<Self> {
        // Fails here when the file is no database past its first bytes.
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        Ok(Self { sessions: columns(connection, "sessions")?, items: columns(connection, "session_items")? })
    }

    /// Returns what this database lacks to be docker-agent's.
    fn foreign(&self) -> Option<&'static str> {
        if self.sessions.is_empty() {
            return Some("it has no `sessions` table");
        }
        if !self.sessions.iter().any(|name| name == "id") {
            return Some("its `sessions` table has no `id`");
        }
        if self.items.is_empty() && !self.has_messages_column() {
            return Some("it has no `session_items` table, and its `sessions` no `messages`");
        }
        None
    }

    fn has_messages_column(&self) -> bool {
        self.sessions.iter().any(|name| name == "messages")
    }
}

fn columns(connection: &Connection, table: &str) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare("SELECT name FROM pragma_table_info(?1)")?;
    statement.query_map([table], |row| row.get(0))?.collect()
}

/// Returns a select list: each wanted column, or NULL where this version has none.
fn select(wanted: &[&'static str], present: &[String]) -> String {
    let column = |name: &&'static str| {
        if present.iter().any(|there| there == name) { *name } else { "NULL" }
    };
    wanted.iter().map(column).collect::<Vec<_>>().join(", ")
}

/// A row of `sessions`, without its messages.
struct SessionRow {
    rowid: i64,
    id: SessionId,
    created_at: Option<Timestamp>,
    title: String,
    cwd: Option<String>,
    starred: bool,
    parent: Option<SessionKey>,
}

impl SessionRow {
    fn session(&self) -> NewSession {
        NewSession {
            title: self.title.clone(),
            cwd: self.cwd.clone(),
            parent: self.parent.clone(),
            ..NewSession::chat(self.id.clone(), Source::DockerAgent, self.created_at.unwrap_or_default())
        }
    }
}

/// Returns the sessions in the order they were made.
fn session_rows(
    connection: &Connection,
    schema: &Schema,
    warnings: &mut Vec<String>,
) -> rusqlite::Result<Vec<SessionRow>> {
    let wanted = ["id", "created_at", "title", "working_dir", "starred", "parent_id"];
    let list = select(&wanted, &schema.sessions);
    let mut statement = connection.prepare(&format!("SELECT rowid, {list} FROM sessions ORDER BY rowid"))?;
    let mut rows = statement.query([])?;
    let mut sessions = Vec::new();
    loop {
        let row = match rows.next() {
            Ok(Some(row)) => row,
            Ok(None) => return Ok(sessions),
            Err(error) if sessions.is_empty() => return Err(error),
            Err(error) => {
                warnings
                    .push(format!("the sessions after the first {} cannot be read: {error}", sessions.len()));
                return Ok(sessions);
            }
        };
        let id = text(row, 1).unwrap_or_default();
        let Ok(id) = id.parse::<SessionId>() else {
            warnings.push(format!("session \"{id}\" is left out: its id is not allowed here"));
            continue;
        };
        sessions.push(SessionRow {
            rowid: row.get(0)?,
            id,
            created_at: text(row, 2).and_then(|at| message::instant(&at)),
            title: text(row, 3).unwrap_or_default(),
            cwd: text(row, 4).filter(|cwd| !cwd.is_empty()),
            starred: truthy(row, 5),
            parent: text(row, 6).and_then(|parent| key_of(&parent)),
        });
    }
}

/// Returns the key that the docker-agent session with this id has here.
fn key_of(id: &str) -> Option<SessionKey> {
    let id = id.parse().ok()?;
    Some(SessionKey::chat(&Source::DockerAgent.agent(), &id))
}

/// Returns a value as text, whatever its type: SQLite's columns hold anything.
fn text(row: &Row<'_>, column: usize) -> Option<String> {
    match row.get_ref(column).ok()? {
        ValueRef::Null => None,
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(number.to_string()),
        // Damaged bytes inside a text cost these bytes only.
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
    }
}

fn truthy(row: &Row<'_>, column: usize) -> bool {
    !matches!(text(row, column).as_deref(), None | Some("" | "0" | "false" | "FALSE"))
}

#[cfg(test)]
mod tests;
