//! goose: `sessions.db` with the tables `sessions` and `messages`, and before that one file of
//! lines a session beside it, which stays behind when it is moved.

use std::{ops::ControlFlow, path::Path};

use rusqlite::{Connection, Row};
use serde::Deserialize;
use serde_json::Value;
use sess_core::{
    SessionId, Source, Timestamp,
    message::{Block, Role, Usage},
};

use crate::{
    Entry, Error, Foreign, Homes, Listing, Place, Reader, Result, Take, Told,
    database::{self, Database, Table},
    files::{self, Ends, Lines},
    json, lenient,
    session::session_id,
};

pub(crate) struct Goose;

impl Reader for Goose {
    fn source(&self) -> Source {
        Source::Goose
    }

    fn list(&self, homes: &Homes, listing: &mut Listing<'_>) {
        let dir = homes.goose_data().join("sessions");
        let path = dir.join("sessions.db");
        listing.visit_parts(&path, |problems| sessions(&path, problems));
        for item in listing.entries(&dir) {
            if let Some(name) = item.name.strip_suffix(".jsonl") {
                listing.visit(&item.path, || Ok(legacy_session(&item.path, name)?.into_iter().collect()));
            }
        }
    }

    fn read(&self, session: &Foreign, take: &mut Take<'_>) -> Result<Told> {
        let last = session.began_at();
        let mut telling = Telling { take, last, is_compacted: false, told: Told::default() };
        let path = &session.place.path;
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            let mut told = Told::default();
            files::each(Lines::open(path)?, &mut told, |_, line| {
                let line = json::from_slice::<Line>(line).ok()?;
                Some(line.message().map_or(ControlFlow::Continue(()), |message| telling.message(message)))
            })?;
            told.unknown = telling.told.unknown;
            return Ok(told);
        }
        let mut database = Database::at(path);
        let found = database.look(|connection| {
            let sessions = Table::of(connection, "sessions")?;
            let Some(id) = sessions.native_id(connection, &session.id)? else { return Ok(None) };
            let sql = "SELECT rowid FROM messages WHERE session_id = ?1 ORDER BY created_timestamp, rowid";
            let messages = Table::of(connection, "messages")?;
            let row = format!("{} WHERE rowid = ?1", messages.select(&MESSAGE));
            Ok(Some((row, database::keys(connection, sql, &id)?)))
        })?;
        let (sql, keys) = found.ok_or_else(|| Error::Gone(path.clone()))?;
        database.step(&keys, |it, key| message(it, &sql, key), |message| telling.message(message))?;
        Ok(telling.told)
    }
}

fn sessions(path: &Path, problems: &mut Vec<String>) -> Result<Vec<Foreign>> {
    database::sessions(path, problems, |connection, named| {
        let wanted: [(_, &[_]); 2] = [("sessions", &["id"]), ("messages", &["session_id", "content_json"])];
        if let Some(table) = database::lacking(connection, &wanted)? {
            return Ok(Some(table));
        }
        let table = Table::of(connection, "sessions")?;
        let columns = [
            "id",
            "name",
            "description",
            "session_type",
            "working_dir",
            "created_at",
            "updated_at",
            "archived_at",
            "parent_session_id",
        ];
        named.add(connection, &table.select(&columns), |row, native, id| {
            Ok(session(connection, path, row, native, id))
        })?;
        Ok(None)
    })
}

fn session(
    connection: &Connection,
    path: &Path,
    row: &Row<'_>,
    native: &str,
    id: SessionId,
) -> Option<Foreign> {
    let kind = database::text(row, 3).unwrap_or_default();
    // What goose asks a model for itself.
    if kind == "hidden" {
        return None;
    }
    let created_at = database::instant(row, 5);
    let last = "SELECT max(created_timestamp) FROM messages WHERE session_id = ?1";
    let said_at = || database::instant_of(connection, last, native);
    let updated_at = database::instant(row, 6).or(created_at).or_else(said_at).unwrap_or_default();
    let place = Place { path: path.to_owned(), size_bytes: None };
    let mut session = Foreign::new(Source::Goose, id, place, updated_at);
    let title = database::filled(row, 1).or_else(|| database::filled(row, 2)).unwrap_or_default();
    session.title = json::title(&title);
    session.cwd = database::filled(row, 4);
    session.created_at = created_at;
    session.is_archived = database::truthy(row, 7);
    session.parent = database::filled(row, 8).as_deref().and_then(session_id);
    session.name = (kind == "sub_agent").then_some(title);
    Some(session)
}

/// Names a session that is a file by its ends; nothing when nobody said anything in it.
fn legacy_session(path: &Path, name: &str) -> Result<Option<Foreign>> {
    let Some(id) = session_id(name) else { return Ok(None) };
    let (file, metadata) = files::open(path)?;
    let ends = Ends::of(path, &file, &metadata, |line| said_at(line).is_some())?;
    let mut session = Foreign::in_file(Source::Goose, id, path, &metadata);
    let (mut is_spoken, mut updated_at) = (false, None);
    ends.each(path, |line| {
        let line = json::from_slice::<Line>(line).unwrap_or_default();
        session.cwd = session.cwd.take().or(line.working_dir);
        if let Some(title) = line.description.filter(|_| session.title.is_empty()) {
            session.title = json::title(&title);
        }
        if line.role.is_some() {
            is_spoken = true;
            let at = line.created.as_ref().and_then(json::instant);
            session.created_at = session.created_at.or(at);
            updated_at = at.or(updated_at);
        }
        is_spoken
    })?;
    session.updated_at = ends.said_at(updated_at, session.updated_at);
    if !is_spoken {
        ends.check(path, is_record)?;
    }
    Ok(is_spoken.then_some(session))
}

/// Tells whether a line can be understood: what somebody said is somebody's.
fn is_record(line: &[u8]) -> bool {
    json::from_slice::<Line>(line).is_ok_and(|line| line.role.is_some() || line.content.is_null())
}

/// Returns when a line was said, if it is a message that tells it.
fn said_at(line: &[u8]) -> Option<Timestamp> {
    let line = json::from_slice::<Line>(line).ok().filter(|line| line.role.is_some())?;
    json::instant(&line.created?)
}

/// A line of a file: the first tells of the session, the others are messages.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Line {
    #[serde(deserialize_with = "lenient::text")]
    working_dir: Option<String>,
    #[serde(deserialize_with = "lenient::text")]
    description: Option<String>,
    #[serde(deserialize_with = "lenient::text")]
    id: Option<String>,
    role: Option<String>,
    created: Option<Value>,
    content: Value,
    metadata: Value,
}

impl Line {
    fn message(self) -> Option<Message> {
        let at = self.created.as_ref().and_then(json::instant);
        let Value::Array(parts) = self.content else { return None };
        Some(Message { id: self.id, role: self.role?, at, parts: Some(parts), metadata: self.metadata })
    }
}

struct Message {
    id: Option<String>,
    role: String,
    at: Option<Timestamp>,
    /// None where they could not be read.
    parts: Option<Vec<Value>>,
    metadata: Value,
}

const MESSAGE: [&str; 5] = ["message_id", "role", "created_timestamp", "content_json", "metadata_json"];

fn message(connection: &Connection, sql: &str, key: i64) -> rusqlite::Result<Message> {
    connection.prepare_cached(sql)?.query_row([key], |row| {
        let metadata = database::text(row, 4).and_then(|text| json::from_str(&text).ok());
        Ok(Message {
            id: Some(database::filled(row, 0).unwrap_or_else(|| key.to_string())),
            role: database::text(row, 1).unwrap_or_default(),
            at: database::instant(row, 2),
            parts: database::text(row, 3).and_then(|text| json::from_str(&text).ok()),
            metadata: metadata.unwrap_or_default(),
        })
    })
}

struct Telling<'a, 'b> {
    take: &'a mut Take<'b>,
    last: Timestamp,
    /// The last message that a person sees is no longer seen by the model.
    is_compacted: bool,
    told: Told,
}

impl Telling<'_, '_> {
    fn message(&mut self, message: Message) -> ControlFlow<()> {
        let Message { id, role, at, parts, metadata } = message;
        self.last = at.unwrap_or(self.last);
        let Some(parts) = parts else {
            self.told.bad += 1;
            return ControlFlow::Continue(());
        };
        let is = |name: &str| metadata.get(name).and_then(Value::as_bool).unwrap_or(true);
        if !is("userVisible") {
            // For the model alone: what replaces the messages before it, or a note.
            let is_summary = std::mem::take(&mut self.is_compacted) && role == "user";
            let texts: Vec<_> = parts.iter().filter_map(|part| json::field(part, "text")).collect();
            if !is_summary || texts.is_empty() || texts[0].starts_with("<turn-context") {
                return ControlFlow::Continue(());
            }
            let body = json::compaction(texts.join("\n"), self.last);
            return (self.take)(Entry { id, body, is_taken_back: false });
        }
        self.is_compacted = !is("agentVisible");
        let role = match &*role {
            "user" => Role::User,
            "assistant" => Role::Assistant,
            _ => {
                self.told.unknown += 1;
                return ControlFlow::Continue(());
            }
        };
        let mut said = json::empty(role, self.last);
        said.usage = usage(&metadata);
        let mut results = Vec::new();
        for part in parts {
            if json::field(&part, "type") == Some("toolResponse") {
                results.push(tool_response(&part, self.last));
            } else {
                said.content.extend(self.block(&part));
            }
        }
        for body in results {
            (self.take)(Entry { id: id.clone(), body, is_taken_back: false })?;
        }
        if said.content.is_empty() {
            return ControlFlow::Continue(());
        }
        (self.take)(Entry { id, body: said, is_taken_back: false })
    }

    /// Returns the block that a part is; none for what passes between goose and its window.
    fn block(&mut self, part: &Value) -> Option<Block> {
        let text = |name: &str| json::field(part, name).unwrap_or_default();
        match text("type") {
            "thinking" => Some(Block::Thinking {
                text: text("thinking").to_owned(),
                signature: json::field(part, "signature").map(str::to_owned),
            }),
            "redactedThinking" => Some(Block::Thinking { text: String::new(), signature: None }),
            "toolRequest" | "frontendToolRequest" => {
                let call = part.get("toolCall").unwrap_or(&Value::Null);
                let Some(value) = call.get("value") else {
                    let error = json::field(call, "error").unwrap_or_default();
                    return Some(json::named("error", &[("name", error)]));
                };
                let arguments = value.get("arguments").cloned().unwrap_or_default();
                Some(json::tool_call(text("id"), json::field(value, "name").unwrap_or_default(), arguments))
            }
            "toolConfirmationRequest"
            | "actionRequired"
            | "systemNotification"
            | "conversationCompacted"
            | "summarizationRequested"
            | "contextLengthExceeded" => None,
            "text" | "image" | "resource" | "resource_link" | "audio" => content(part),
            _ => {
                self.told.unknown += 1;
                None
            }
        }
    }
}

fn tool_response(part: &Value, at: Timestamp) -> sess_core::message::Body {
    let call = json::field(part, "id").unwrap_or_default();
    let result = part.get("toolResult").unwrap_or(&Value::Null);
    if let Some(error) = json::field(result, "error") {
        return json::tool_result(call, vec![json::text(error)], true, at);
    }
    let value = result.get("value").unwrap_or(&Value::Null);
    // Older versions had the contents alone.
    let items = value.get("content").unwrap_or(value).as_array().map(Vec::as_slice).unwrap_or_default();
    let is_for_model = |item: &&Value| {
        let audience = item.get("annotations").and_then(|it| it.get("audience")).and_then(Value::as_array);
        audience.is_none_or(|roles| roles.iter().any(|role| role == "assistant"))
    };
    // Some tools answer the person and the model with the same.
    let mut blocks: Vec<_> = items.iter().filter(is_for_model).filter_map(content).collect();
    if blocks.is_empty() {
        blocks = items.iter().filter_map(content).collect();
    }
    let is_error = value.get("isError").and_then(Value::as_bool).unwrap_or(false);
    json::tool_result(call, blocks, is_error, at)
}

/// Returns the block that a content of the Model Context Protocol is; none for an empty text.
fn content(item: &Value) -> Option<Block> {
    let text = |name: &str| json::field(item, name).unwrap_or_default();
    Some(match text("type") {
        "text" if text("text").is_empty() => return None,
        "text" => json::text(text("text")),
        "image" => Block::Image { mime_type: text("mimeType").to_owned(), data: text("data").to_owned() },
        "resource" => {
            let resource = item.get("resource").unwrap_or(&Value::Null);
            let field = |name: &str| json::field(resource, name).unwrap_or_default();
            match field("text") {
                "" => {
                    let fields =
                        [("name", field("uri")), ("mimeType", field("mimeType")), ("data", field("blob"))];
                    json::named("file", &fields)
                }
                text => json::text(text),
            }
        }
        "resource_link" => json::file(text("name"), text("mimeType"), text("uri")),
        kind => {
            json::named(if kind == "audio" { kind } else { "attachment" }, &[("mimeType", text("mimeType"))])
        }
    })
}

fn usage(metadata: &Value) -> Option<Usage> {
    let usage = metadata.get("usage").filter(|usage| usage.is_object())?;
    let count = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or(0);
    Some(Usage { input: count("inputTokens"), output: count("outputTokens"), ..Usage::default() })
}
