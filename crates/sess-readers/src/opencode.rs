//! opencode: `opencode.db` with the tables `session`, `message` and `part`, and before that one
//! JSON file for each of these below `storage/`, of which some stay behind when they are moved.

mod calling;
mod telling;

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension, Row};
use serde_json::Value;
use sess_core::{SessionId, Source, Timestamp};

pub use self::calling::opencode_caller;
use self::telling::{Message, Part, Revert, Telling};
use crate::{
    Error, Foreign, Homes, Listing, Place, Reader, Result, Take, Told,
    database::{self, Database, Table},
    files, json,
    session::session_id,
};

pub(crate) struct Opencode;

impl Reader for Opencode {
    fn source(&self) -> Source {
        Source::Opencode
    }

    fn list(&self, homes: &Homes, listing: &mut Listing<'_>) {
        let root = homes.data().join("opencode");
        for path in databases(homes, &root, listing) {
            listing.visit_parts(&path, |problems| sessions(&path, problems));
        }
        let storage = listing.entries_below(&root.join("storage")).into_iter();
        for sessions in storage.filter(|item| item.name == "session") {
            let projects = listing.entries_below(&sessions.path).into_iter();
            for project in projects.filter(|item| item.is_dir) {
                for item in listing.entries_below(&project.path) {
                    if item.name.ends_with(".json") {
                        listing.visit(&item.path, || legacy_session(&item.path));
                    }
                }
            }
        }
    }

    fn read(&self, session: &Foreign, take: &mut Take<'_>) -> Result<Told> {
        let at = session.began_at();
        let path = &session.place.path;
        if is_legacy(path) {
            return read_legacy(session, Telling::new(take, at, revert(&legacy_info(path)?)));
        }
        let id = session.id.as_str();
        let mut database = Database::at(path);
        let (reverted, keys) = database.look(|connection| {
            let table = Table::of(connection, "session")?;
            let sql = format!("{} WHERE id = ?1", table.select(&["revert"]));
            let reverted = connection.query_row(&sql, [id], |row| Ok(object(database::text(row, 0))));
            let sql = "SELECT rowid FROM message WHERE session_id = ?1 ORDER BY time_created, id";
            Ok((reverted.optional()?, database::keys(connection, sql, id)?))
        })?;
        let reverted = reverted.ok_or_else(|| Error::Gone(path.clone()))?.unwrap_or_default();
        let mut telling = Telling::new(take, at, Revert::of(&reverted));
        database.step(&keys, message, |message| telling.message(message))?;
        Ok(telling.finish())
    }

    fn is_in_one_file(&self, session: &Foreign) -> bool {
        !is_legacy(&session.place.path)
    }
}

/// Tells whether a session has a file for each of its messages, as before there was a database.
fn is_legacy(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "json")
}

/// Returns the database that a variable names: then opencode uses no other one.
fn named_database(homes: &Homes, root: &Path) -> Option<PathBuf> {
    homes.variable_in("OPENCODE_DB", root)
}

/// Returns the databases that there may be: the one that is named, or the usual one and those of other channels.
fn databases(homes: &Homes, root: &Path, listing: &mut Listing<'_>) -> Vec<PathBuf> {
    if let Some(named) = named_database(homes, root) {
        return vec![named];
    }
    let mut found = vec![root.join("opencode.db")];
    let channels = listing.entries(root).into_iter();
    found.extend(
        channels
            .filter(|item| item.name.starts_with("opencode-") && item.name.ends_with(".db"))
            .map(|item| item.path),
    );
    found
}

fn sessions(path: &Path, problems: &mut Vec<String>) -> Result<Vec<Foreign>> {
    database::sessions(path, problems, |connection, named| {
        let wanted: [(_, &[_]); 2] = [("session", &["id"]), ("message", &["session_id", "data"])];
        if let Some(table) = database::lacking(connection, &wanted)? {
            return Ok(Some(table));
        }
        let table = Table::of(connection, "session")?;
        // Of all columns only these: rows hold whole diffs.
        let columns = [
            "id",
            "title",
            "directory",
            "parent_id",
            "agent",
            "time_created",
            "time_updated",
            "time_archived",
        ];
        named.add(connection, &table.select(&columns), |row, native, id| {
            Ok(Some(session(connection, path, row, native, id)))
        })?;
        Ok(None)
    })
}

fn session(connection: &Connection, path: &Path, row: &Row<'_>, native: &str, id: SessionId) -> Foreign {
    let created_at = database::instant(row, 5);
    let last = "SELECT max(time_created) FROM message WHERE session_id = ?1";
    let said_at = || database::instant_of(connection, last, native);
    let updated_at = database::instant(row, 6).or(created_at).or_else(said_at).unwrap_or_default();
    let place = Place { path: path.to_owned(), size_bytes: None };
    let mut session = Foreign::new(Source::Opencode, id, place, updated_at);
    session.title = title(&database::text(row, 1).unwrap_or_default());
    session.cwd = database::filled(row, 2);
    session.parent = database::filled(row, 3).as_deref().and_then(session_id);
    session.name = database::filled(row, 4).filter(|_| session.parent.is_some());
    session.created_at = created_at;
    session.is_archived = database::truthy(row, 7);
    if session.title.is_empty() {
        session.title = prompt(connection, native).unwrap_or_default();
    }
    session
}

/// How many messages are looked at for the first prompt.
const OPENING_LEN_MAX: usize = 4;

/// Returns the title that the first prompt of a session makes. A database that cannot say it has none.
fn prompt(connection: &Connection, session: &str) -> Option<String> {
    let sql = "SELECT rowid FROM message WHERE session_id = ?1 ORDER BY time_created, id";
    let sql = format!("{sql} LIMIT {OPENING_LEN_MAX}");
    let keys = database::keys(connection, &sql, session).ok()?;
    keys.into_iter().find_map(|key| {
        let message = message(connection, key).ok()?;
        asked(&message.info?, message.parts.into_iter().map(|part| part.data))
    })
}

/// Returns the title that a message makes when it is a prompt.
fn asked(info: &Value, parts: impl IntoIterator<Item = Option<Value>>) -> Option<String> {
    let is_prompt = json::field(info, "role") == Some("user");
    is_prompt.then(|| parts.into_iter().flatten().find_map(|part| typed(&part)))?
}

fn typed(part: &Value) -> Option<String> {
    let is = |name: &str| part.get(name).and_then(Value::as_bool) == Some(true);
    let is_typed = json::field(part, "type") == Some("text") && !is("synthetic") && !is("ignored");
    let title = json::title(json::field(part, "text").filter(|_| is_typed)?);
    (!title.is_empty()).then_some(title)
}

/// Returns a title, but for those that opencode makes of the time.
fn title(text: &str) -> String {
    let made = ["New session - ", "Child session - "].iter().find_map(|start| text.strip_prefix(start));
    if made.is_some_and(|time| Timestamp::parse_rfc3339(time).is_some()) {
        return String::new();
    }
    json::title(text)
}

/// Reads a message with its parts.
fn message(connection: &Connection, key: i64) -> rusqlite::Result<Message> {
    let mut message = connection
        .prepare_cached("SELECT id, data, time_created FROM message WHERE rowid = ?1")?
        .query_row([key], |row| {
            Ok(Message {
                id: database::text(row, 0).unwrap_or_default(),
                at: database::instant(row, 2),
                info: object(database::text(row, 1)),
                parts: Vec::new(),
            })
        })?;
    let mut statement =
        connection.prepare_cached("SELECT id, data FROM part WHERE message_id = ?1 ORDER BY id")?;
    let parts = statement.query_map([&message.id], |row| {
        Ok(Part { id: database::text(row, 0).unwrap_or_default(), data: object(database::text(row, 1)) })
    })?;
    message.parts = parts.collect::<rusqlite::Result<_>>()?;
    Ok(message)
}

/// Returns an object of JSON; none where there is something else.
fn object(text: Option<String>) -> Option<Value> {
    json::from_str(&text?).ok().filter(Value::is_object)
}

fn legacy_info(path: &Path) -> Result<Value> {
    let bytes = files::document(path)?;
    json::from_slice(&bytes).map_err(|error| Error::Format { path: path.to_owned(), what: error.to_string() })
}

fn revert(info: &Value) -> Revert {
    Revert::of(info.get("revert").unwrap_or(&Value::Null))
}

fn legacy_session(path: &Path) -> Result<Vec<Foreign>> {
    let info = legacy_info(path)?;
    let Some(id) = json::field(&info, "id").and_then(session_id) else {
        return Err(Error::Format { path: path.to_owned(), what: "it has no id".to_owned() });
    };
    let time = |name: &str| info.get("time").and_then(|time| time.get(name)).and_then(json::instant);
    let said_at = || legacy_said_at(path, &id);
    let updated_at = time("updated").or(time("created")).or_else(said_at).unwrap_or_default();
    let place = Place { path: path.to_owned(), size_bytes: None };
    let mut session = Foreign::new(Source::Opencode, id, place, updated_at);
    session.title = title(json::field(&info, "title").unwrap_or_default());
    session.cwd = json::field(&info, "directory").filter(|cwd| !cwd.is_empty()).map(str::to_owned);
    session.parent = json::field(&info, "parentID").and_then(session_id);
    session.created_at = time("created");
    session.is_archived = time("archived").is_some();
    if session.title.is_empty() {
        session.title = legacy_prompt(path, &session.id).unwrap_or_default();
    }
    Ok(vec![session])
}

/// Returns the directory that a session is in that has a file for each of its messages, as
/// `storage/session/<project>/<id>.json`.
fn legacy_storage(path: &Path) -> Option<&Path> {
    path.ancestors().nth(3)
}

/// Returns when the last message was said that has a file.
fn legacy_said_at(path: &Path, id: &SessionId) -> Option<Timestamp> {
    let messages = legacy_entries(legacy_storage(path)?, "message", id.as_str()).ok()?;
    let message = legacy_document(&messages.last()?.1)?;
    json::instant(message.get("time")?.get("created")?)
}

/// Returns the title that the first prompt makes that has a file.
fn legacy_prompt(path: &Path, id: &SessionId) -> Option<String> {
    let storage = legacy_storage(path)?;
    let messages = legacy_entries(storage, "message", id.as_str()).ok()?;
    messages.into_iter().take(OPENING_LEN_MAX).find_map(|(id, path)| {
        let parts = legacy_entries(storage, "part", &id).ok()?;
        asked(&legacy_document(&path)?, parts.into_iter().map(|(_, path)| legacy_document(&path)))
    })
}

/// Returns the documents of a kind that belong to something, by their ids.
fn legacy_entries(storage: &Path, kind: &str, of: &str) -> Result<Vec<(String, PathBuf)>> {
    let dir = storage.join(kind);
    if dir.is_symlink() {
        return Err(files::linked(&dir));
    }
    let items = files::entries_below(&dir.join(of))?.into_iter();
    Ok(items.filter_map(|it| Some((it.name.strip_suffix(".json")?.to_owned(), it.path))).collect())
}

fn legacy_document(path: &Path) -> Option<Value> {
    object(files::document(path).ok().and_then(|it| String::from_utf8(it).ok()))
}

/// Reads messages and parts that have a file each, in the order of their ids.
fn read_legacy(session: &Foreign, mut telling: Telling<'_, '_>) -> Result<Told> {
    let Some(storage) = legacy_storage(&session.place.path) else {
        return Err(Error::Gone(session.place.path.clone()));
    };
    for (id, path) in legacy_entries(storage, "message", session.id.as_str())? {
        let info = legacy_document(&path);
        let at = info.as_ref().and_then(|info| json::instant(info.get("time")?.get("created")?));
        let parts = legacy_entries(storage, "part", &id)?;
        let parts = parts.into_iter().map(|(id, path)| Part { id, data: legacy_document(&path) }).collect();
        if telling.message(Message { id, at, info, parts }).is_break() {
            break;
        }
    }
    Ok(telling.finish())
}
