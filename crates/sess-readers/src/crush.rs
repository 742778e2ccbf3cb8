//! Crush: `.crush/crush.db` in each project, with the tables `sessions` and `messages`.

use std::{
    collections::HashMap,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use rusqlite::{Connection, Row};
use serde::Deserialize;
use serde_json::Value;
use sess_core::{
    SessionId, Source, Timestamp,
    message::{Block, Body, Role},
};

use crate::{
    Entry, Error, Foreign, Homes, Listing, Place, Reader, Result, Take, Told,
    database::{self, Database, Table},
    files, json,
    session::session_id,
};

pub(crate) struct Crush;

impl Reader for Crush {
    fn source(&self) -> Source {
        Source::Crush
    }

    fn list(&self, homes: &Homes, listing: &mut Listing<'_>) {
        for path in databases(homes) {
            listing.visit_parts(&path, |problems| sessions(&path, problems));
        }
    }

    fn read(&self, session: &Foreign, take: &mut Take<'_>) -> Result<Told> {
        let path = &session.place.path;
        let mut database = Database::at(path);
        let found = database.look(|connection| {
            let sessions = Table::of(connection, "sessions")?;
            let Some(id) = sessions.native_id(connection, &session.id)? else { return Ok(None) };
            let children = children(connection, &sessions, &id)?;
            let sql = "SELECT rowid FROM messages WHERE session_id = ?1 ORDER BY created_at, rowid";
            let keys = database::keys(connection, sql, &id)?;
            let messages = Table::of(connection, "messages")?;
            Ok(Some((format!("{} WHERE rowid = ?1", messages.select(&MESSAGE)), keys, children)))
        })?;
        let (sql, keys, children) = found.ok_or_else(|| Error::Gone(path.clone()))?;
        let last = session.began_at();
        let mut telling = Telling { take, children, last, told: Told::default() };
        database.step(&keys, |it, key| message(it, &sql, key), |message| telling.message(message))?;
        Ok(telling.told)
    }
}

/// Returns the database nearest to the current directory, and those of all projects that Crush
/// keeps a list of.
fn databases(homes: &Homes) -> Vec<PathBuf> {
    #[derive(Deserialize)]
    struct Projects {
        projects: Vec<Project>,
    }
    #[derive(Deserialize)]
    struct Project {
        data_dir: PathBuf,
    }
    let near = homes.cwd().into_iter().flat_map(Path::ancestors).map(|dir| dir.join(".crush/crush.db"));
    let mut found = Vec::new();
    // What stands at the place of one without being one is told of, and hides none above it.
    for path in near.filter(|path| path.symlink_metadata().is_ok()) {
        let is_file = path.is_file();
        found.push(path);
        if is_file {
            break;
        }
    }
    let listed = files::document(&homes.data().join("crush/projects.json")).unwrap_or_default();
    if let Ok(listed) = serde_json::from_slice::<Projects>(&listed) {
        let dirs = listed.projects.into_iter().map(|project| project.data_dir);
        found.extend(dirs.filter(|dir| dir.is_absolute()).map(|dir| dir.join("crush.db")));
    }
    found
}

fn sessions(path: &Path, problems: &mut Vec<String>) -> Result<Vec<Foreign>> {
    database::sessions(path, problems, |connection, named| {
        let wanted: [(_, &[_]); 2] = [("sessions", &["id"]), ("messages", &["session_id", "parts"])];
        if let Some(table) = database::lacking(connection, &wanted)? {
            return Ok(Some(table));
        }
        let table = Table::of(connection, "sessions")?;
        let columns = ["id", "title", "parent_session_id", "created_at", "updated_at"];
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
    // In these a model is asked for a title.
    if native.starts_with("title-") {
        return None;
    }
    let created_at = database::instant(row, 3);
    let last = "SELECT max(created_at) FROM messages WHERE session_id = ?1";
    let said_at = || database::instant_of(connection, last, native);
    let updated_at = database::instant(row, 4).or(created_at).or_else(said_at).unwrap_or_default();
    let place = Place { path: path.to_owned(), size_bytes: None };
    let mut session = Foreign::new(Source::Crush, id, place, updated_at);
    session.title = json::title(&database::text(row, 1).unwrap_or_default());
    session.parent = database::filled(row, 2).as_deref().and_then(session_id);
    session.created_at = created_at;
    let project = path.ancestors().nth(2).filter(|_| path.ends_with(".crush/crush.db"));
    session.cwd = project.and_then(Path::to_str).map(str::to_owned);
    Some(session)
}

/// Returns the sub-sessions by the tool call that each ran for: their ids are `<message>$$<call>`.
fn children(
    connection: &Connection,
    sessions: &Table,
    parent: &str,
) -> rusqlite::Result<HashMap<String, SessionId>> {
    if !sessions.has("parent_session_id") {
        return Ok(HashMap::new());
    }
    let mut statement = connection.prepare("SELECT id FROM sessions WHERE parent_session_id = ?1")?;
    let ids = statement.query_map([parent], |row| Ok(database::text(row, 0)))?;
    let ids = ids.collect::<rusqlite::Result<Vec<_>>>()?.into_iter().flatten();
    Ok(ids.filter_map(|id| Some((id.split_once("$$")?.1.to_owned(), session_id(&id)?))).collect())
}

const MESSAGE: [&str; 6] = ["id", "role", "parts", "model", "created_at", "is_summary_message"];

struct Message {
    id: Option<String>,
    role: String,
    /// None where they could not be read.
    parts: Option<Vec<Part>>,
    model: Option<String>,
    at: Option<Timestamp>,
    is_summary: bool,
}

#[derive(Deserialize)]
struct Part {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    data: Value,
}

fn message(connection: &Connection, sql: &str, key: i64) -> rusqlite::Result<Message> {
    connection.prepare_cached(sql)?.query_row([key], |row| {
        Ok(Message {
            id: database::filled(row, 0),
            role: database::text(row, 1).unwrap_or_default(),
            parts: database::text(row, 2).and_then(|text| json::from_str(&text).ok()),
            model: database::filled(row, 3),
            at: database::instant(row, 4),
            is_summary: database::truthy(row, 5),
        })
    })
}

struct Telling<'a, 'b> {
    take: &'a mut Take<'b>,
    children: HashMap<String, SessionId>,
    last: Timestamp,
    told: Told,
}

impl Telling<'_, '_> {
    fn message(&mut self, message: Message) -> ControlFlow<()> {
        let Message { id, role, parts, model, at, is_summary } = message;
        self.last = at.unwrap_or(self.last);
        let Some(parts) = parts else {
            self.told.bad += 1;
            return ControlFlow::Continue(());
        };
        if is_summary {
            let texts: Vec<_> = parts.iter().filter_map(|part| json::field(&part.data, "text")).collect();
            return self.give(id, json::compaction(texts.join("\n"), self.last));
        }
        let role = match &*role {
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "tool" => Role::ToolResult,
            // For the model alone.
            "system" => return ControlFlow::Continue(()),
            _ => {
                self.told.unknown += 1;
                return ControlFlow::Continue(());
            }
        };
        let mut said = json::empty(role, self.last);
        said.model = model.filter(|_| role == Role::Assistant);
        for part in parts {
            if part.kind == "finish" {
                said.stop_reason = json::field(&part.data, "reason").map(str::to_owned);
            }
            if part.kind == "tool_result" {
                self.result(id.clone(), &part.data)?;
            } else {
                said.content.extend(self.block(&part));
            }
        }
        if said.content.is_empty() {
            return ControlFlow::Continue(());
        }
        self.give(id, said)
    }

    /// Tells what a tool answered, with where a sub-agent ran before it.
    fn result(&mut self, id: Option<String>, data: &Value) -> ControlFlow<()> {
        let text = |name: &str| json::field(data, name).unwrap_or_default();
        if let Some(child) = self.children.remove(text("tool_call_id")) {
            self.give(None, json::sub_session(child, self.last))?;
        }
        let mut content = vec![json::text(text("content"))];
        if !text("data").is_empty() {
            let mime_type = text("mime_type");
            content.push(json::file("", mime_type, &format!("data:{mime_type};base64,{}", text("data"))));
        }
        let is_error = data.get("is_error").and_then(Value::as_bool).unwrap_or(false);
        let mut body = json::tool_result(text("tool_call_id"), content, is_error, self.last);
        body.tool_name = json::field(data, "name").map(str::to_owned);
        self.give(id, body)
    }

    /// Returns the block that a part is; none for what is the model's or the host's alone.
    fn block(&mut self, part: &Part) -> Option<Block> {
        let data = &part.data;
        let text = |name: &str| json::field(data, name).unwrap_or_default();
        match &*part.kind {
            "text" if text("text").is_empty() || data.get("hidden") == Some(&Value::Bool(true)) => None,
            "text" => Some(json::text(text("text"))),
            "reasoning" => Some(Block::Thinking {
                text: text("thinking").to_owned(),
                signature: json::field(data, "signature").filter(|it| !it.is_empty()).map(str::to_owned),
            }),
            "tool_call" => {
                let input = data.get("input").cloned().unwrap_or_default();
                Some(json::tool_call(text("id"), text("name"), input))
            }
            "image_url" => Some(json::file("", "image/*", text("url"))),
            "binary" => {
                let mime_type = text("MIMEType");
                let url = format!("data:{mime_type};base64,{}", text("Data"));
                Some(json::file(text("Path"), mime_type, &url))
            }
            "shell_command" => Some(json::text(format!("$ {}\n{}", text("command"), text("output")))),
            "finish" => {
                let message = json::field(data, "message").filter(|message| !message.is_empty())?;
                Some(json::named("error", &[("name", message)]))
            }
            _ => {
                self.told.unknown += 1;
                None
            }
        }
    }

    fn give(&mut self, id: Option<String>, body: Body) -> ControlFlow<()> {
        (self.take)(Entry { id, body, is_taken_back: false })
    }
}
