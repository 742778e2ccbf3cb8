//! Zed: `threads.db`, where each row of `threads` holds a whole conversation as one document,
//! mostly compressed. Messages have no times: they have that of the thread.

use std::{ops::ControlFlow, path::Path};

use rusqlite::{OptionalExtension, Row};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use sess_core::{
    SessionId, Source, Timestamp,
    message::{Block, Body, Role, Usage},
};

use crate::{
    Entry, Error, Foreign, Homes, Listing, Place, Reader, Result, Take, Told,
    database::{self, Table},
    files, json,
    session::session_id,
};

pub(crate) struct Zed;

impl Reader for Zed {
    fn source(&self) -> Source {
        Source::Zed
    }

    fn list(&self, homes: &Homes, listing: &mut Listing<'_>) {
        let mac = homes.home().join("Library/Application Support/Zed");
        for root in [homes.data().join("zed"), mac] {
            let path = root.join("threads/threads.db");
            listing.visit_parts(&path, |problems| sessions(&path, problems));
        }
    }

    fn read(&self, session: &Foreign, take: &mut Take<'_>) -> Result<Told> {
        let path = &session.place.path;
        let found = database::look(path, |connection| {
            let table = Table::of(connection, "threads")?;
            let Some(id) = table.native_id(connection, &session.id)? else { return Ok(None) };
            let sql = format!("{} WHERE id = ?1", table.select(&["data_type", "data"]));
            let stored = connection.query_row(&sql, [&id], |row| {
                Ok((database::text(row, 0).unwrap_or_default(), database::bytes(row, 1)))
            });
            let mut children = Vec::new();
            if table.has("parent_id") {
                let mut statement = connection.prepare("SELECT id FROM threads WHERE parent_id = ?1")?;
                let ids = statement.query_map([&id], |row| Ok(database::text(row, 0)))?;
                children.extend(ids.collect::<rusqlite::Result<Vec<_>>>()?.into_iter().flatten());
            }
            Ok(stored.optional()?.map(|stored| (stored, children)))
        })?;
        let ((kind, data), children) = found.ok_or_else(|| Error::Gone(path.clone()))?;
        let format = |what: String| Error::Format { path: path.clone(), what };
        let data = data.ok_or_else(|| format(format!("thread {} is too large", session.id)))?;
        let document = match &*kind {
            "zstd" => files::decompressed(path, data.as_slice())
                .and_then(|from| files::read_bounded(path, from))
                .map_err(|error| match error {
                    // Not the whole database: this thread in it.
                    Error::Io { source, .. } => {
                        format(format!("thread {} cannot be decompressed: {source}", session.id))
                    }
                    error => error,
                })?,
            "json" => data,
            kind => return Err(format(format!("thread {} is kept as \"{kind}\"", session.id))),
        };
        // Damaged bytes inside a text cost these bytes only.
        let document = String::from_utf8_lossy(&document);
        let thread: Thread<'_> = serde_json::from_str(&document)
            .map_err(|error| format(format!("thread {}: {error}", session.id)))?;
        let at = session.began_at();
        let mut telling = Telling { take, at, children, model: None, usage: None, told: Told::default() };
        telling.thread(&thread);
        Ok(telling.told)
    }
}

fn sessions(path: &Path, problems: &mut Vec<String>) -> Result<Vec<Foreign>> {
    database::sessions(path, problems, |connection, named| {
        let table = Table::of(connection, "threads")?;
        if !table.has_all(&["id", "data_type", "data"]) {
            return Ok(Some("threads"));
        }
        let columns =
            ["id", "summary", "updated_at", "created_at", "parent_id", "folder_paths", "folder_paths_order"];
        named.add(connection, &table.select(&columns), |row, _, id| Ok(Some(session(path, row, id))))?;
        Ok(None)
    })
}

fn session(path: &Path, row: &Row<'_>, id: SessionId) -> Foreign {
    let created_at = database::instant(row, 3);
    let updated_at = database::instant(row, 2).or(created_at).unwrap_or_default();
    let place = Place { path: path.to_owned(), size_bytes: None };
    let mut session = Foreign::new(Source::Zed, id, place, updated_at);
    session.title = json::title(&database::text(row, 1).unwrap_or_default());
    session.created_at = created_at;
    session.parent = database::filled(row, 4).as_deref().and_then(session_id);
    let folders = database::filled(row, 5).unwrap_or_default();
    // They are sorted by name; the order tells which place each had in the window.
    let order = database::text(row, 6).unwrap_or_default();
    let first = order.split(',').position(|place| place.trim() == "0").unwrap_or(0);
    session.cwd = folders.lines().nth(first).or_else(|| folders.lines().next()).map(str::to_owned);
    session
}

#[derive(Deserialize)]
struct Thread<'a> {
    /// Each is read on its own: a bad one costs itself.
    #[serde(borrow, default)]
    messages: Vec<&'a RawValue>,
    #[serde(default)]
    model: Value,
    #[serde(default)]
    request_token_usage: Value,
}

struct Telling<'a, 'b> {
    take: &'a mut Take<'b>,
    at: Timestamp,
    /// Sub-sessions of which nothing was told yet.
    children: Vec<String>,
    model: Option<String>,
    /// What the next reply took.
    usage: Option<Usage>,
    told: Told,
}

impl Telling<'_, '_> {
    fn thread(&mut self, thread: &Thread<'_>) {
        self.model = json::field(&thread.model, "model").map(str::to_owned);
        for (place, message) in thread.messages.iter().enumerate() {
            let Ok(message) = json::from_str::<Value>(message.get()) else {
                self.told.bad += 1;
                continue;
            };
            let usage = &thread.request_token_usage;
            let flow = if message.get("role").is_some() {
                self.usage = usage.get(place).and_then(counts);
                self.old(&message)
            } else if let Some(user) = message.get("User") {
                let id = json::field(user, "id").map(str::to_owned);
                self.usage = id.as_ref().and_then(|id| usage.get(id)).and_then(counts);
                let mut said = json::empty(Role::User, self.at);
                said.content = self.blocks(list(user, "content"));
                self.give(id, said)
            } else if let Some(agent) = message.get("Agent") {
                self.agent(agent)
            } else {
                // `Resume` tells that the agent was to go on, and nothing else.
                self.told.unknown += u64::from(message != "Resume");
                ControlFlow::Continue(())
            };
            if flow.is_break() {
                return;
            }
        }
    }

    fn agent(&mut self, agent: &Value) -> ControlFlow<()> {
        let mut said = json::empty(Role::Assistant, self.at);
        said.content = self.blocks(list(agent, "content"));
        let calls: Vec<_> = said.content.iter().filter_map(call_id).collect();
        said.model.clone_from(&self.model);
        said.usage = self.usage.take();
        self.give(None, said)?;
        let results = agent.get("tool_results").and_then(Value::as_object);
        for call in calls {
            if let Some(result) = results.and_then(|results| results.get(&call)) {
                self.result(&call, result)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Tells a message as older versions wrote it, `{role, segments, tool_uses, tool_results}`.
    fn old(&mut self, message: &Value) -> ControlFlow<()> {
        let role = match json::field(message, "role") {
            Some("user") => Role::User,
            Some("assistant") => Role::Assistant,
            Some("system") => return ControlFlow::Continue(()),
            _ => {
                self.told.unknown += 1;
                return ControlFlow::Continue(());
            }
        };
        let results = list(message, "tool_results");
        let mut said = json::empty(role, self.at);
        // Results once came in a message of the person's, with a text for the model.
        let is_spoken = message.get("is_hidden") != Some(&Value::Bool(true))
            && (role == Role::Assistant || results.is_empty());
        if is_spoken {
            let text = json::field(message, "text").filter(|text| !text.is_empty());
            said.content.extend(text.map(json::text));
            said.content.extend(list(message, "segments").iter().filter_map(segment));
        }
        for call in list(message, "tool_uses") {
            let input = call.get("input").cloned().unwrap_or_default();
            let text = |name: &str| json::field(call, name).unwrap_or_default();
            said.content.push(json::tool_call(text("id"), text("name"), input));
        }
        if role == Role::Assistant {
            said.model.clone_from(&self.model);
            said.usage = self.usage.take();
        }
        self.give(message.get("id").and_then(Value::as_u64).map(|id| id.to_string()), said)?;
        for result in results {
            self.result(json::field(result, "tool_use_id").unwrap_or_default(), result)?;
        }
        ControlFlow::Continue(())
    }

    /// Tells what a tool answered, with where a sub-agent ran before it.
    fn result(&mut self, call: &str, result: &Value) -> ControlFlow<()> {
        if !self.children.is_empty() {
            let text = result.to_string();
            let child = self.children.iter().position(|child| text.contains(child.as_str()));
            let child: Option<SessionId> = child.and_then(|at| session_id(&self.children.swap_remove(at)));
            if let Some(child) = child {
                self.give(None, json::sub_session(child, self.at))?;
            }
        }
        let content = match result.get("content") {
            Some(Value::String(text)) => vec![json::text(text.as_str())],
            Some(one @ Value::Object(_)) => self.blocks(std::slice::from_ref(one)),
            _ => self.blocks(list(result, "content")),
        };
        let is_error = result.get("is_error").and_then(Value::as_bool).unwrap_or(false);
        let mut body = json::tool_result(call, content, is_error, self.at);
        body.tool_name = json::field(result, "tool_name").map(str::to_owned);
        (self.take)(Entry { id: None, body, is_taken_back: false })
    }

    /// Returns the blocks of a content, each `{kind: value}`.
    fn blocks(&mut self, content: &[Value]) -> Vec<Block> {
        let mut blocks = Vec::new();
        for part in content {
            // Results have also been written as `{type: "text", text}`.
            if let Some(text) = json::field(part, "text") {
                blocks.push(json::text(text));
                continue;
            }
            let Some((kind, value)) = part.as_object().and_then(|part| part.iter().next()) else { continue };
            let text = |name: &str| json::field(value, name).unwrap_or_default();
            blocks.push(match kind.as_str() {
                "Text" => json::text(value.as_str().unwrap_or_default()),
                "Thinking" => Block::Thinking {
                    text: text("text").to_owned(),
                    signature: json::field(value, "signature").map(str::to_owned),
                },
                "RedactedThinking" => Block::Thinking { text: String::new(), signature: None },
                "ToolUse" => {
                    let input = value.get("input").cloned().unwrap_or_default();
                    json::tool_call(text("id"), text("name"), input)
                }
                "Image" | "image" => {
                    Block::Image { mime_type: "image/png".to_owned(), data: text("source").to_owned() }
                }
                "Mention" => mention(value),
                _ => {
                    self.told.unknown += 1;
                    continue;
                }
            });
        }
        blocks
    }

    fn give(&mut self, id: Option<String>, body: Body) -> ControlFlow<()> {
        if body.content.is_empty() {
            return ControlFlow::Continue(());
        }
        (self.take)(Entry { id, body, is_taken_back: false })
    }
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn call_id(block: &Block) -> Option<String> {
    match block {
        Block::ToolCall { id, .. } => Some(id.clone()),
        _ => None,
    }
}

/// Returns what a person pointed at, without the copy of it that is for the model.
fn mention(value: &Value) -> Block {
    let uri = value.get("uri").and_then(Value::as_object).and_then(|uri| uri.iter().next());
    let name = uri.and_then(|(_, at)| {
        ["abs_path", "url", "name", "path"].iter().find_map(|name| json::field(at, name))
    });
    json::named("mention", &[("name", name.unwrap_or_default())])
}

/// Returns the block that a segment of an older message is; none for an empty text.
fn segment(segment: &Value) -> Option<Block> {
    let text = json::field(segment, "text").unwrap_or_default();
    match json::field(segment, "type")? {
        "text" if text.is_empty() => None,
        "text" => Some(json::text(text)),
        "thinking" => Some(Block::Thinking {
            text: text.to_owned(),
            signature: json::field(segment, "signature").map(str::to_owned),
        }),
        _ => Some(Block::Thinking { text: String::new(), signature: None }),
    }
}

fn counts(usage: &Value) -> Option<Usage> {
    let count = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or(0);
    usage.is_object().then(|| Usage {
        input: count("input_tokens"),
        output: count("output_tokens"),
        cache_read: count("cache_read_input_tokens"),
        cache_write: count("cache_creation_input_tokens"),
        ..Usage::default()
    })
}
