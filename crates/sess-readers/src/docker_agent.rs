//! docker-agent: `~/.cagent/session.db` with the tables `sessions` and `session_items`.
//!
//! Before there were items, the column `sessions.messages` held all of a session as JSON, with
//! the sub-sessions inside; what could not be moved out of it is still there.

mod chat;

use std::{collections::HashMap, ops::ControlFlow, path::Path};

use rusqlite::{Connection, OptionalExtension, Row};
use serde_json::Value;
use sess_core::{
    SessionId, Source, Timestamp,
    message::{Body, Role},
};

use crate::{
    Entry, Error, Foreign, Homes, Listing, Place, Reader, Result, Take, Told,
    database::{self, Database, Table},
    json,
    session::session_id,
};

pub(crate) struct DockerAgent;

impl Reader for DockerAgent {
    fn source(&self) -> Source {
        Source::DockerAgent
    }

    fn list(&self, homes: &Homes, listing: &mut Listing<'_>) {
        let path = homes.home().join(".cagent/session.db");
        listing.visit_parts(&path, |problems| sessions(&path, problems));
        // Its API server keeps sessions where it is started; anything may have a file of that name.
        if let Some(path) = homes.cwd().map(|cwd| cwd.join("session.db")) {
            listing.visit_parts(&path, |problems| match sessions(&path, problems) {
                Err(Error::Format { .. } | Error::Database { .. }) => Ok(Vec::new()),
                found => found,
            });
        }
    }

    fn read(&self, session: &Foreign, take: &mut Take<'_>) -> Result<Told> {
        let last = session.began_at();
        let mut telling = Telling { take, last, told: Told::default() };
        let path = &session.place.path;
        let mut database = Database::at(path);
        let (sql, keys) = database.look(|connection| {
            let native = Table::of(connection, "sessions")?.native_id(connection, &session.id)?;
            let native = native.as_deref().unwrap_or(session.id.as_str());
            let table = Table::of(connection, "session_items")?;
            let keys = if table.has_all(&["session_id", "position"]) {
                let sql = "SELECT rowid FROM session_items WHERE session_id = ?1 ORDER BY position, rowid";
                database::keys(connection, sql, native)?
            } else {
                Vec::new()
            };
            Ok((format!("{} WHERE rowid = ?1", table.select(&ITEM)), keys))
        })?;
        if keys.is_empty() {
            let items = database.look(|connection| column(connection, session))?;
            let items = items.ok_or_else(|| Error::Gone(path.clone()))?;
            let children: HashMap<_, _> = children(&session.id, &items).into_iter().collect();
            for (place, item) in items.iter().enumerate() {
                if telling.json(item, children.get(&place)).is_break() {
                    break;
                }
            }
        } else {
            database.step(&keys, |it, key| item(it, &sql, key), |item| telling.item(item))?;
        }
        Ok(telling.told)
    }
}

const SESSION: [&str; 5] = ["id", "title", "working_dir", "created_at", "parent_id"];
const ITEM: [&str; 6] =
    ["item_type", "agent_name", "message_json", "implicit", "subsession_id", "summary_text"];

fn sessions(path: &Path, problems: &mut Vec<String>) -> Result<Vec<Foreign>> {
    database::sessions(path, problems, |connection, named| {
        let table = Table::of(connection, "sessions")?;
        let has_items = Table::of(connection, "session_items")?.has_all(&["session_id", "message_json"]);
        let has_column = table.has("messages");
        if !table.has("id") {
            return Ok(Some("sessions"));
        }
        if !has_items && !has_column {
            return Ok(Some("session_items"));
        }
        let mut inside = Vec::new();
        named.add(connection, &table.select(&SESSION), |row, native, id| {
            let mut session = session(path, row, id);
            if has_items {
                decorate(connection, native, &mut session)?;
            }
            if has_column {
                session.updated_at = session.updated_at.max(last_in_column(connection, native)?);
                inside.extend(nested(connection, native, &session)?);
            }
            Ok(Some(session))
        })?;
        // What has a row of its own comes first.
        named.sessions.extend(inside);
        Ok(None)
    })
}

fn session(path: &Path, row: &Row<'_>, id: SessionId) -> Foreign {
    let created_at = database::instant(row, 3);
    let place = Place { path: path.to_owned(), size_bytes: None };
    let updated_at = created_at.unwrap_or_default();
    let mut session = Foreign::new(Source::DockerAgent, id, place, updated_at);
    session.title = json::title(&database::text(row, 1).unwrap_or_default());
    session.cwd = database::filled(row, 2);
    session.created_at = created_at;
    session.parent = database::filled(row, 4).as_deref().and_then(session_id);
    session
}

/// Adds what only its items tell: when it was last spoken in, and whose it is.
fn decorate(connection: &Connection, native: &str, session: &mut Foreign) -> rusqlite::Result<()> {
    let last = "SELECT CASE WHEN json_valid(message_json) THEN json_extract(message_json, '$.created_at') END
        FROM session_items WHERE session_id = ?1 AND item_type = 'message' ORDER BY position DESC LIMIT 1";
    let at = connection.prepare_cached(last)?.query_row([native], |row| Ok(database::instant(row, 0)));
    session.updated_at = at.optional()?.flatten().unwrap_or(session.updated_at);
    if session.parent.is_some() {
        let name = "SELECT agent_name FROM session_items
            WHERE session_id = ?1 AND agent_name <> '' ORDER BY position LIMIT 1";
        let name = connection.prepare_cached(name)?.query_row([native], |row| Ok(database::text(row, 0)));
        session.name = name.optional()?.flatten();
    }
    Ok(())
}

/// Returns when a session was last spoken in by its column, as far as that tells.
fn last_in_column(connection: &Connection, native: &str) -> rusqlite::Result<Timestamp> {
    let sql = "SELECT CASE WHEN json_valid(messages)
        THEN json_extract(messages, '$[#-1].message.message.created_at') END FROM sessions WHERE id = ?1";
    let at = connection.prepare_cached(sql)?.query_row([native], |row| Ok(database::instant(row, 0)));
    Ok(at.optional()?.flatten().unwrap_or_default())
}

/// Names the sessions that stand in another one's column.
fn nested(connection: &Connection, native: &str, parent: &Foreign) -> rusqlite::Result<Vec<Foreign>> {
    let mut found = Vec::new();
    let sql = "SELECT 1 FROM sessions WHERE id = ?1 AND instr(messages, '\"sub_session\"') > 0";
    if connection.prepare_cached(sql)?.query_row([native], |_| Ok(())).optional()?.is_none() {
        return Ok(found);
    }
    let mut inside = children(&parent.id, &column_items(connection, native)?);
    while let Some((_, Child { id, parent: of, session: child })) = inside.pop() {
        let text = |name: &str| json::field(&child, name).filter(|text| !text.is_empty());
        let created_at = child.get("created_at").and_then(json::instant);
        let updated_at = created_at.unwrap_or(parent.updated_at);
        let mut session = Foreign::new(Source::DockerAgent, id, parent.place.clone(), updated_at);
        session.title = json::title(text("title").unwrap_or_default());
        session.cwd = text("working_dir").map(str::to_owned).or_else(|| parent.cwd.clone());
        session.created_at = created_at;
        session.parent = Some(of);
        inside.extend(children(&session.id, &elements(&child)));
        found.push(session);
    }
    Ok(found)
}

/// A session that stands among the items of another one.
struct Child {
    id: SessionId,
    parent: SessionId,
    session: Value,
}

/// Returns the sessions among items by their places. One without an id gets one of its place.
fn children(parent: &SessionId, items: &[Value]) -> Vec<(usize, Child)> {
    let found = items.iter().enumerate().filter_map(|(place, item)| {
        let session = item.get("sub_session").filter(|child| child.is_object())?.clone();
        let id = json::field(&session, "id").filter(|id| !id.is_empty()).map(str::to_owned);
        let id = session_id(&id.unwrap_or_else(|| format!("{parent}.{place}")))?;
        Some((place, Child { id, parent: parent.clone(), session }))
    });
    found.collect()
}

fn elements(session: &Value) -> Vec<Value> {
    session.get("messages").and_then(Value::as_array).cloned().unwrap_or_default()
}

fn column_items(connection: &Connection, native: &str) -> rusqlite::Result<Vec<Value>> {
    let sql = "SELECT messages FROM sessions WHERE id = ?1";
    let text = connection.prepare_cached(sql)?.query_row([native], |row| Ok(database::text(row, 0)));
    let text = text.optional()?.flatten().unwrap_or_default();
    if matches!(text.trim(), "" | "null") {
        return Ok(Vec::new());
    }
    // What cannot be read counts as one item that cannot.
    Ok(json::from_str(&text).unwrap_or_else(|_| vec![Value::Null]))
}

/// Reads a session out of its column, or out of the one of a session around it; none when it is gone.
fn column(connection: &Connection, session: &Foreign) -> rusqlite::Result<Option<Vec<Value>>> {
    let table = Table::of(connection, "sessions")?;
    let native = table.native_id(connection, &session.id)?;
    if !table.has("messages") {
        return Ok(native.map(|_| Vec::new()));
    }
    if let Some(native) = native {
        return column_items(connection, &native).map(Some);
    }
    let sql = "SELECT id FROM sessions WHERE instr(messages, '\"sub_session\"') > 0";
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let Some((native, id)) = database::text(row, 0).and_then(|it| Some((it.clone(), session_id(&it)?)))
        else {
            continue;
        };
        let mut inside = children(&id, &column_items(connection, &native)?);
        while let Some((_, child)) = inside.pop() {
            let items = elements(&child.session);
            if child.id == session.id {
                return Ok(Some(items));
            }
            inside.extend(children(&child.id, &items));
        }
    }
    Ok(None)
}

/// A row of `session_items`.
struct Item {
    id: Option<String>,
    kind: String,
    agent: Option<String>,
    json: Option<String>,
    is_implicit: bool,
    child: Option<String>,
    summary: Option<String>,
}

fn item(connection: &Connection, sql: &str, key: i64) -> rusqlite::Result<Item> {
    connection.prepare_cached(sql)?.query_row([key], |row| {
        Ok(Item {
            id: Some(key.to_string()),
            kind: database::text(row, 0).unwrap_or_default(),
            agent: database::filled(row, 1),
            json: database::filled(row, 2),
            is_implicit: database::truthy(row, 3),
            child: database::filled(row, 4),
            summary: database::text(row, 5),
        })
    })
}

struct Telling<'a, 'b> {
    take: &'a mut Take<'b>,
    last: Timestamp,
    told: Told,
}

impl Telling<'_, '_> {
    fn item(&mut self, item: Item) -> ControlFlow<()> {
        let Item { id, kind, agent, json, is_implicit, child, summary } = item;
        match &*kind {
            "message" if is_implicit => ControlFlow::Continue(()),
            "message" => {
                let chat = json.and_then(|json| json::from_str(&json).ok());
                self.chat(id, &chat.unwrap_or_default(), agent.as_deref())
            }
            // Without an id, the sub-session was deleted, and its place remained.
            "subsession" => match child.as_deref().and_then(session_id) {
                Some(child) => self.give(id, json::sub_session(child, self.last)),
                None => ControlFlow::Continue(()),
            },
            "summary" => self.give(id, json::compaction(summary.unwrap_or_default(), self.last)),
            "error" | "termination" => {
                let told = json.unwrap_or_default();
                self.give(id, Body::text(Role::System, format!("{kind}: {told}"), self.last))
            }
            _ => {
                self.told.unknown += 1;
                ControlFlow::Continue(())
            }
        }
    }

    /// Tells an item of the old column.
    fn json(&mut self, item: &Value, child: Option<&Child>) -> ControlFlow<()> {
        let message = &item["message"];
        let is_implicit = |value: &Value| value["implicit"].as_bool() == Some(true);
        if let Some(child) = child {
            return self.give(None, json::sub_session(child.id.clone(), self.last));
        }
        if is_implicit(message) || is_implicit(item) {
            return ControlFlow::Continue(());
        }
        let agent = |value: &Value| {
            let name = json::field(value, "agentName").or_else(|| json::field(value, "agent_name"));
            name.map(str::to_owned)
        };
        if message["message"].is_object() {
            self.chat(None, &message["message"], agent(message).as_deref())
        } else if message.is_object() {
            // Before there were items, an element was the message itself.
            self.chat(None, message, agent(item).as_deref())
        } else if let Some(summary) = item["summary"].as_str().filter(|text| !text.is_empty()) {
            self.give(None, json::compaction(summary, self.last))
        } else {
            self.chat(None, item, None)
        }
    }

    fn chat(&mut self, id: Option<String>, chat: &Value, agent: Option<&str>) -> ControlFlow<()> {
        match chat::body(chat, agent, self.last) {
            Some(body) => {
                self.last = body.timestamp;
                self.give(id, body)
            }
            None => {
                self.told.bad += 1;
                ControlFlow::Continue(())
            }
        }
    }

    fn give(&mut self, id: Option<String>, body: Body) -> ControlFlow<()> {
        if body.content.is_empty() {
            return ControlFlow::Continue(());
        }
        (self.take)(Entry { id, body, is_taken_back: false })
    }
}
