//! OpenClaw: one database an agent, and before that one file of lines a session, which stays
//! behind when it is moved.
//!
//! A session's key lasts; each reset starts a new transcript behind it, a *window*, which is
//! what is named here. Events are the same in both stores, and form a tree by `parentId`.

mod legacy;
mod telling;
mod tree;

use std::{collections::HashMap, ops::ControlFlow, path::Path};

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Deserialize;
use serde_json::Value;
use sess_core::{SessionId, Source, Timestamp};

use self::{telling::Telling, tree::Tree};
use crate::{
    Error, Foreign, Homes, Listing, Place, Reader, Result, Take, Told,
    database::{self, Database, Named, Table},
    files::{self, Lines},
    json,
    session::session_id,
};

pub(crate) struct Openclaw;

impl Reader for Openclaw {
    fn source(&self) -> Source {
        Source::Openclaw
    }

    fn list(&self, homes: &Homes, listing: &mut Listing<'_>) {
        let root = homes.openclaw().join("agents");
        let agents = listing.entries(&root).into_iter().filter(|item| item.is_dir);
        let (links, agents): (Vec<_>, Vec<_>) = agents.partition(|agent| agent.is_link);
        links.iter().for_each(|link| listing.link(&link.path));
        for agent in &agents {
            let dir = agent.path.join("agent");
            let path = dir.join("openclaw-agent.sqlite");
            if dir.is_symlink() {
                listing.link(&dir);
            } else {
                listing.visit_parts(&path, |problems| sessions(&path, problems));
            }
        }
        for agent in &agents {
            legacy::list(&agent.path.join("sessions"), listing);
        }
    }

    fn read(&self, session: &Foreign, take: &mut Take<'_>) -> Result<Told> {
        let path = &session.place.path;
        let (mut events, children) = if path.extension().is_some_and(|extension| extension == "sqlite") {
            stored(path, &session.id)?
        } else {
            (Events::File, legacy::children(path))
        };
        let mut tree = Tree::default();
        events.each(path, &mut Told::default(), |start, line| {
            tree.add(start, line)?;
            Some(ControlFlow::Continue(()))
        })?;
        let at = session.began_at();
        let mut telling = Telling::new(take, tree.taken_back(), children, at);
        let mut told = Told::default();
        events.each(path, &mut told, |start, line| telling.event(start, line))?;
        told.unknown += telling.unknown;
        Ok(told)
    }
}

/// The sessions that others were given as tasks, by their keys.
type Children = HashMap<String, SessionId>;

/// Where the events of a session come from.
enum Events {
    File,
    Rows {
        database: Box<Database>,
        /// Reads the event of a session with a number.
        sql: String,
        session: SessionId,
        keys: Vec<i64>,
    },
    /// A file that was put into the database.
    Archive(Vec<u8>),
}

impl Events {
    /// Hands over each event with where it begins, or with its number: an event is known by that in each reading, though
    /// one before it cannot be read, or is gone.
    fn each(
        &mut self,
        path: &Path,
        told: &mut Told,
        mut take: impl FnMut(u64, &[u8]) -> Option<ControlFlow<()>>,
    ) -> Result<()> {
        match self {
            Self::File => files::each(Lines::of_any(path)?, told, take).map(drop),
            Self::Archive(bytes) => files::each(Lines::new(path, bytes.as_slice()), told, take).map(drop),
            Self::Rows { database, sql, session, keys } => {
                let row = |connection: &Connection, key| Ok((key, event(connection, sql, session, key)?));
                database.step(keys, row, |(key, event)| {
                    let event = event.and_then(|event| event.plain(path));
                    event.and_then(|event| take(key.cast_unsigned(), &event)).unwrap_or_else(|| {
                        told.bad += 1;
                        ControlFlow::Continue(())
                    })
                })
            }
        }
    }
}

/// An event as it is stored.
enum Event {
    Plain(Vec<u8>),
    Compressed(Vec<u8>),
}

impl Event {
    fn plain(self, path: &Path) -> Option<Vec<u8>> {
        match self {
            Self::Plain(bytes) => Some(bytes),
            Self::Compressed(bytes) => decompressed(path, &bytes).ok(),
        }
    }
}

fn decompressed(path: &Path, bytes: &[u8]) -> Result<Vec<u8>> {
    files::read_bounded(path, files::decompressed(path, bytes)?)
}

/// What an event is stored in. The second was added later.
const EVENT: [&str; 2] = ["event_json", "event_zstd"];
const EVENTS: &str = "transcript_events";

fn event(
    connection: &Connection,
    sql: &str,
    session: &SessionId,
    key: i64,
) -> rusqlite::Result<Option<Event>> {
    let mut statement = connection.prepare_cached(sql)?;
    statement.query_row(params![session.as_str(), key], |row| Ok(stored_event(row, 0)))
}

fn stored_event(row: &Row<'_>, column: usize) -> Option<Event> {
    let plain = database::filled(row, column).map(|text| Event::Plain(text.into_bytes()));
    plain.or_else(|| database::bytes(row, column + 1).map(Event::Compressed))
}

/// Returns where a session's events are, and its children.
fn stored(path: &Path, id: &SessionId) -> Result<(Events, Children)> {
    let mut database = Box::new(Database::at(path));
    let (sql, keys, archive, children) = database.look(|connection| {
        let table = Table::of(connection, EVENTS)?;
        let event_sql = format!("{} WHERE session_id = ?1 AND seq = ?2", table.select(&EVENT));
        let sql = "SELECT seq FROM transcript_events WHERE session_id = ?1 ORDER BY seq";
        let keys = database::keys(connection, sql, id.as_str())?;
        let archive = if keys.is_empty() { archived(connection, id)? } else { None };
        let table = Table::of(connection, "session_nodes")?;
        let sql = table.select(&["session_key", "current_session_id", "spawned_by", "parent_session_key"]);
        let mut statement = connection.prepare(&sql)?;
        let mut rows = statement.query([])?;
        let mut children = Children::new();
        while let Some(row) = rows.next()? {
            let child = database::text(row, 1).as_deref().and_then(session_id);
            let is_child = database::filled(row, 2).or_else(|| database::filled(row, 3)).is_some();
            if let (Some(key), Some(child), true) = (database::text(row, 0), child, is_child) {
                children.insert(key, child);
            }
        }
        Ok((event_sql, keys, archive, children))
    })?;
    let events = match archive {
        _ if !keys.is_empty() => Events::Rows { database, sql, session: id.clone(), keys },
        Some((bytes, true)) => Events::Archive(decompressed(path, &bytes)?),
        Some((bytes, false)) => Events::Archive(bytes),
        None => return Err(Error::Gone(path.to_owned())),
    };
    Ok((events, children))
}

/// Returns what a reset left of a session, and whether it is compressed.
fn archived(connection: &Connection, id: &SessionId) -> rusqlite::Result<Option<(Vec<u8>, bool)>> {
    let table = Table::of(connection, ARCHIVES)?;
    if !table.has_all(&["session_id", "archive_blob"]) {
        return Ok(None);
    }
    let sql = format!("{} WHERE session_id = ?1", table.select(&["archive_blob", "encoding"]));
    let archive = connection.query_row(&sql, [id.as_str()], |row| {
        let is_compressed = database::text(row, 1).as_deref() == Some("zstd");
        Ok(database::bytes(row, 0).map(|bytes| (bytes, is_compressed)))
    });
    Ok(archive.optional()?.flatten())
}

const ARCHIVES: &str = "session_transcript_archives";

fn sessions(path: &Path, problems: &mut Vec<String>) -> Result<Vec<Foreign>> {
    database::sessions(path, problems, |connection, named| {
        let wanted: [(_, &[_]); 2] = [
            ("session_windows", &["session_id", "session_key"]),
            (EVENTS, &["session_id", "seq", "event_json"]),
        ];
        if let Some(table) = database::lacking(connection, &wanted)? {
            return Ok(Some(table));
        }
        let windows = Table::of(connection, "session_windows")?;
        let nodes = nodes(connection)?;
        let columns = [
            "session_id",
            "session_key",
            "created_at",
            "updated_at",
            "display_name",
            "parent_session_key",
            "spawned_by",
        ];
        let events = Table::of(connection, EVENTS)?;
        let first = format!("{} WHERE session_id = ?1 ORDER BY seq LIMIT 1", events.select(&EVENT));
        let opening =
            format!("{} WHERE session_id = ?1 ORDER BY seq LIMIT {OPENING_LEN_MAX}", events.select(&EVENT));
        named.add(connection, &windows.select(&columns), |row, native, id| {
            let mut session = window(path, row, native, id, &nodes);
            let mut statement = connection.prepare_cached(&first)?;
            let header = statement.query_row([session.id.as_str()], |row| Ok(stored_event(row, 0)));
            // A window in which nothing was said yet, or whose transcript is archived.
            let Some(header) = header.optional()? else { return Ok(None) };
            let header = header.and_then(|event| event.plain(path));
            let header = header.and_then(|line| json::from_slice::<Header>(&line).ok());
            session.cwd = header.and_then(|header| header.cwd).or(session.cwd);
            if session.title.is_empty() {
                session.title = prompt(connection, path, &opening, &session.id)?.unwrap_or_default();
            }
            Ok(Some(session))
        })?;
        add_archives(named, connection, path, &nodes)?;
        Ok(None)
    })
}

/// How many events are looked at for the first prompt.
const OPENING_LEN_MAX: usize = 12;

/// Returns the title that the first prompt among the events of a query makes.
fn prompt(
    connection: &Connection,
    path: &Path,
    sql: &str,
    id: &SessionId,
) -> rusqlite::Result<Option<String>> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([id.as_str()])?;
    while let Some(row) = rows.next()? {
        let event = stored_event(row, 0).and_then(|event| event.plain(path));
        if let Some(title) = event.and_then(|event| asked(&event)) {
            return Ok(Some(title));
        }
    }
    Ok(None)
}

/// Returns the title that an event makes when it is a prompt.
fn asked(event: &[u8]) -> Option<String> {
    let event: Value = json::from_slice(event).ok()?;
    let message = event.get("message").filter(|message| json::field(message, "role") == Some("user"))?;
    let content = message.get("content")?;
    let texts = || content.as_array()?.iter().find_map(|part| json::field(part, "text"));
    let title = json::title(content.as_str().or_else(texts)?);
    (!title.is_empty()).then_some(title)
}

/// The first event of a transcript.
#[derive(Deserialize)]
struct Header {
    cwd: Option<String>,
}

/// What is known of a key.
#[derive(Default)]
struct Node {
    current: String,
    title: String,
    label: Option<String>,
    cwd: Option<String>,
    /// The key of the session that it has its task from.
    parent: Option<String>,
    last_at: Option<Timestamp>,
    is_archived: bool,
}

fn nodes(connection: &Connection) -> rusqlite::Result<HashMap<String, Node>> {
    let table = Table::of(connection, "session_nodes")?;
    if !table.has("session_key") {
        return Ok(HashMap::new());
    }
    let columns = [
        "session_key",
        "current_session_id",
        "label",
        "display_name",
        "spawned_by",
        "parent_session_key",
        "last_activity_at",
        "last_interaction_at",
        "archived_at",
        "entry_json",
    ];
    let mut statement = connection.prepare(&table.select(&columns))?;
    let mut rows = statement.query([])?;
    let mut nodes = HashMap::new();
    while let Some(row) = rows.next()? {
        let Some(key) = database::text(row, 0) else { continue };
        let text = |column| database::filled(row, column);
        let entry = text(9).and_then(|json| json::from_str::<legacy::Known>(&json).ok());
        let entry = entry.unwrap_or_default();
        let label = text(2).or_else(|| entry.label.clone());
        let title = label.clone().or_else(|| text(3)).or_else(|| entry.title());
        nodes.insert(
            key,
            Node {
                current: text(1).unwrap_or_default(),
                title: json::title(&title.unwrap_or_default()),
                label,
                cwd: entry.spawned_cwd.or(entry.exec_cwd),
                parent: text(4).or_else(|| text(5)),
                last_at: database::instant(row, 6).or_else(|| database::instant(row, 7)),
                is_archived: database::truthy(row, 8),
            },
        );
    }
    Ok(nodes)
}

fn window(path: &Path, row: &Row<'_>, native: &str, id: SessionId, nodes: &HashMap<String, Node>) -> Foreign {
    let none = Node::default();
    let node = database::text(row, 1).and_then(|key| nodes.get(&key)).unwrap_or(&none);
    let is_current = node.current == native;
    let created_at = database::instant(row, 2);
    let updated_at = node.last_at.filter(|_| is_current).or_else(|| database::instant(row, 3));
    let place = Place { path: path.to_owned(), size_bytes: None };
    let updated_at = updated_at.or(created_at).unwrap_or_default();
    let mut session = Foreign::new(Source::Openclaw, id, place, updated_at);
    session.created_at = created_at;
    let own_title = database::filled(row, 4).map(|title| json::title(&title));
    session.title = own_title.filter(|_| !is_current || node.title.is_empty()).unwrap_or(node.title.clone());
    session.cwd.clone_from(&node.cwd);
    session.is_archived = node.is_archived;
    let parent =
        node.parent.clone().or_else(|| database::filled(row, 6)).or_else(|| database::filled(row, 5));
    if let Some(parent) = parent.and_then(|key| session_id(&nodes.get(&key)?.current)) {
        session.parent = Some(parent);
        session.name.clone_from(&node.label);
    }
    session
}

/// Names the transcripts that a reset put away; what somebody deleted stays unnamed.
fn add_archives(
    named: &mut Named,
    connection: &Connection,
    path: &Path,
    nodes: &HashMap<String, Node>,
) -> rusqlite::Result<()> {
    let table = Table::of(connection, ARCHIVES)?;
    if !table.has_all(&["session_id", "archive_blob"]) {
        return Ok(());
    }
    let sql = table.select(&["session_id", "session_key", "reason", "published_at"]);
    named.add(connection, &sql, |row, _, id| {
        if database::text(row, 2).as_deref() == Some("deleted") {
            return Ok(None);
        }
        let updated_at = database::instant(row, 3).unwrap_or_default();
        let place = Place { path: path.to_owned(), size_bytes: None };
        let mut session = Foreign::new(Source::Openclaw, id, place, updated_at);
        if let Some(node) = database::text(row, 1).and_then(|key| nodes.get(&key)) {
            session.title.clone_from(&node.title);
            session.cwd.clone_from(&node.cwd);
        }
        session.is_archived = true;
        Ok(Some(session))
    })
}
