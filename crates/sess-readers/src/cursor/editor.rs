//! The store of Cursor's editor: conversations under `composerData:<id>`, and their messages
//! under `bubbleId:<id>:<bubble>`.

use std::{collections::HashMap, ops::ControlFlow, path::Path};

use rusqlite::{Connection, OptionalExtension};
use serde_json::Value;
use sess_core::{
    SessionId, Source, Timestamp,
    mention::first_of,
    message::{Block, Body, Role, Usage},
};

use crate::{
    Entry, Error, Foreign, Place, Result, Take, Told,
    database::{self, Database, Table},
    files, json,
};

const TABLE: &str = "cursorDiskKV";
const COMPOSER: &str = "composerData:";

/// A conversation, with the names of its messages.
struct Composer(Value);

impl Composer {
    fn parse(text: &str) -> Option<Self> {
        json::from_str(text).ok().filter(Value::is_object).map(Self)
    }

    /// Tells whether nobody said anything, which is not so where something else stands at the place of what was said.
    fn is_empty(&self) -> bool {
        let lists =
            ["fullConversationHeadersOnly", "conversation"].iter().filter_map(|name| self.0.get(name));
        lists.into_iter().all(|list| list.is_null() || list.as_array().is_some_and(Vec::is_empty))
    }

    /// Tells whether it is the one that was looked for: an index may be damaged.
    fn is_of(&self, id: &SessionId) -> bool {
        json::field(&self.0, "composerId").is_none_or(|own| own == id.as_str())
    }

    /// Returns which messages there are, in their order, and whether each is a prompt.
    fn headers(&self) -> impl Iterator<Item = (&str, bool)> {
        let headers = self.list("fullConversationHeadersOnly");
        headers.filter_map(|header| {
            Some((json::field(header, "bubbleId")?, header.get("type") == Some(&1.into())))
        })
    }

    /// Returns the messages themselves, as older releases keep them.
    fn conversation(&self) -> impl Iterator<Item = &Value> {
        self.list("conversation")
    }

    fn list(&self, name: &str) -> impl Iterator<Item = &Value> {
        self.0.get(name).and_then(Value::as_array).into_iter().flatten()
    }
}

/// Names the conversations of a store. Those that cannot be read are one problem.
pub(super) fn sessions(path: &Path, problems: &mut Vec<String>) -> Result<Vec<Foreign>> {
    let changed_at = files::modified(&files::open(path)?.1);
    let found = database::look(path, |connection| {
        if !Table::of(connection, TABLE)?.has_all(&["key", "value"]) {
            return Ok(None);
        }
        // The keys are an index: what lies between these two is read and nothing else.
        let mut statement = connection.prepare(
            "SELECT key, value FROM cursorDiskKV WHERE key >= 'composerData:' AND key < 'composerData;'",
        )?;
        let mut rows = statement.query(())?;
        let (mut sessions, mut damaged) = (Vec::new(), Vec::new());
        while let Some(row) = rows.next()? {
            let key = database::text(row, 0).unwrap_or_default();
            let id = key.strip_prefix(COMPOSER).unwrap_or_default();
            let value = database::text(row, 1);
            // One that was deleted may leave its key. What is there and is none is too large.
            if database::is_null(row, 1) || matches!(value.as_deref(), Some("" | "null")) {
                continue;
            }
            let composer = id.parse().ok().zip(value.as_deref().and_then(Composer::parse));
            let Some((session_id, composer)) = composer.filter(|(id, composer)| composer.is_of(id)) else {
                damaged.push(id.to_owned());
                continue;
            };
            match session(connection, path, session_id, &composer, changed_at)? {
                Some(session) => sessions.push(session),
                None if composer.is_empty() => {}
                None => damaged.push(id.to_owned()),
            }
        }
        Ok(Some((sessions, damaged)))
    })?;
    let (sessions, damaged) = found.ok_or_else(|| database::unknown_schema(path, TABLE))?;
    problems.extend(left_out(path, &damaged).or_else(|| database::shifted(path)));
    Ok(sessions)
}

/// Says which conversations are damaged, the first few by their ids.
fn left_out(path: &Path, damaged: &[String]) -> Option<String> {
    const NAMED_MAX: usize = 5;
    let ids: Vec<&str> = damaged.iter().map(String::as_str).collect();
    (!damaged.is_empty()).then(|| {
        let (count, path, named) = (damaged.len(), path.display(), first_of(&ids, NAMED_MAX));
        format!("{count} conversation(s) in {path} cannot be read and are left out: {named}")
    })
}

/// Names a conversation; nothing when nobody said anything in it.
fn session(
    connection: &Connection,
    path: &Path,
    id: SessionId,
    composer: &Composer,
    changed_at: Timestamp,
) -> rusqlite::Result<Option<Foreign>> {
    // The first prompt says where it was asked, and what.
    let asked = composer.headers().find(|(_, is_prompt)| *is_prompt).or_else(|| composer.headers().next());
    let first = match asked {
        Some((name, _)) => bubble(connection, &key(&id, name))?.unwrap_or_default(),
        None => match composer.conversation().next() {
            Some(first) => first.clone(),
            None => return Ok(None),
        },
    };
    let instant = |name: &str| composer.0.get(name).and_then(json::instant);
    let created_at = instant("createdAt");
    let updated_at = instant("lastUpdatedAt").or(created_at).unwrap_or(changed_at);
    let place = Place { path: path.to_owned(), size_bytes: None };
    let mut session = Foreign::new(Source::Cursor, id, place, updated_at);
    session.created_at = created_at;
    session.is_archived = composer.0.get("isArchived") == Some(&true.into());
    let name = json::field(&composer.0, "name").map(json::title).filter(|name| !name.is_empty());
    session.title = name.unwrap_or_else(|| json::title(json::field(&first, "text").unwrap_or_default()));
    let opened = first.pointer("/workspaceUris/0").and_then(Value::as_str).and_then(json::path);
    session.cwd = json::field(&first, "workspaceProjectDir").map(str::to_owned).or(opened);
    Ok(Some(session))
}

pub(super) fn read(session: &Foreign, take: &mut Take<'_>) -> Result<Told> {
    let path = &session.place.path;
    let mut database = Database::at(path);
    let id = &session.id;
    let found = database.look(|connection| {
        let Some(value) = value(connection, &format!("{COMPOSER}{id}"))? else { return Ok(None) };
        let Some(composer) = Composer::parse(&value).filter(|it| it.is_of(id)) else { return Ok(None) };
        let mut statement = connection.prepare("SELECT rowid FROM cursorDiskKV WHERE key = ?1")?;
        let keys = composer.headers().map(|(name, _)| {
            let rowid = statement.query_row([key(id, name)], |row| row.get::<_, i64>(0)).optional()?;
            Ok(rowid.map(|rowid| (rowid, name.to_owned())))
        });
        let keys = keys.collect::<rusqlite::Result<Vec<_>>>()?;
        Ok(Some((composer.conversation().cloned().collect::<Vec<_>>(), keys)))
    })?;
    let Some((conversation, keys)) = found else { return Err(Error::Gone(path.clone())) };
    let last = session.began_at();
    let mut telling = Telling { take, told: Told::default(), last };
    if keys.is_empty() {
        let _ = conversation.iter().try_for_each(|bubble| telling.bubble(bubble));
        return Ok(telling.told);
    }
    // A message that was named and is not there.
    telling.told.bad = keys.iter().filter(|key| key.is_none()).count() as u64;
    let names: HashMap<i64, String> = keys.iter().flatten().cloned().collect();
    let rowids: Vec<i64> = keys.into_iter().flatten().map(|(rowid, _)| rowid).collect();
    database.step(
        &rowids,
        |connection, rowid| {
            let sql = "SELECT value FROM cursorDiskKV WHERE rowid = ?1";
            let value = connection.query_row(sql, [rowid], |row| Ok(database::text(row, 0)))?;
            let bubble: Value = json::from_str(&value.unwrap_or_default()).unwrap_or_default();
            // The index of a damaged store may lead to another conversation's message.
            let is_named = json::field(&bubble, "bubbleId")
                .is_none_or(|name| names.get(&rowid).is_some_and(|it| it == name));
            Ok(if is_named { bubble } else { Value::Null })
        },
        |bubble| telling.bubble(&bubble),
    )?;
    Ok(telling.told)
}

fn key(session: &SessionId, bubble: &str) -> String {
    format!("bubbleId:{session}:{bubble}")
}

fn bubble(connection: &Connection, key: &str) -> rusqlite::Result<Option<Value>> {
    let value = value(connection, key)?;
    Ok(value.and_then(|value| json::from_str(&value).ok()))
}

fn value(connection: &Connection, key: &str) -> rusqlite::Result<Option<String>> {
    let sql = "SELECT value FROM cursorDiskKV WHERE key = ?1";
    let value = connection.query_row(sql, [key], |row| Ok(database::text(row, 0))).optional()?;
    Ok(value.flatten())
}

struct Telling<'a, 'b> {
    take: &'a mut Take<'b>,
    told: Told,
    /// When the last message was written: one without a time belongs there.
    last: Timestamp,
}

impl Telling<'_, '_> {
    fn bubble(&mut self, bubble: &Value) -> ControlFlow<()> {
        let at = ["timestamp", "createdAt"].into_iter().find_map(|name| json::instant(bubble.get(name)?));
        self.last = at.unwrap_or(self.last);
        let role = match bubble.get("type").and_then(Value::as_u64) {
            Some(1) => Role::User,
            Some(2) => Role::Assistant,
            role => return self.told.pass_over(role),
        };
        let id = json::field(bubble, "bubbleId").map(str::to_owned);
        let mut body = json::empty(role, self.last);
        let thought = bubble.pointer("/thinking/text").and_then(Value::as_str).filter(|it| !it.is_empty());
        body.content.extend(thought.map(|text| Block::Thinking { text: text.to_owned(), signature: None }));
        let text = json::field(bubble, "text").filter(|text| !text.trim().is_empty());
        body.content.extend(text.map(json::text));
        body.content.extend(images(bubble));
        body.model = bubble.pointer("/modelInfo/modelName").and_then(Value::as_str).map(str::to_owned);
        body.usage = usage(bubble);
        let tool = bubble.get("toolFormerData").filter(|tool| json::field(tool, "name").is_some());
        let Some(tool) = tool else { return self.give(id, body) };
        let field = |name: &str| json::field(tool, name).unwrap_or_default();
        let arguments = ["rawArgs", "params"].into_iter().find_map(|name| tool.get(name));
        body.content.push(json::tool_call(
            field("toolCallId"),
            field("name"),
            arguments.cloned().unwrap_or_default(),
        ));
        self.give(id, body)?;
        match tool.get("result") {
            None | Some(Value::Null) => ControlFlow::Continue(()),
            Some(result) => {
                let text = result.as_str().map_or_else(|| result.to_string(), str::to_owned);
                let is_error = matches!(field("status"), "error" | "cancelled" | "rejected");
                let body =
                    json::tool_result(field("toolCallId"), vec![json::text(text)], is_error, self.last);
                self.give(None, body)
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

/// Returns the images of a message: their places, or their bytes where those are in it.
fn images(bubble: &Value) -> Vec<Block> {
    let list = |at: &str| bubble.pointer(at).and_then(Value::as_array).into_iter().flatten();
    let image = |image: &Value| match image {
        Value::String(url) => Some(json::file("", "", url)),
        Value::Object(fields) => Some(match json::field(image, "path") {
            Some(path) => json::file(path, "", ""),
            None => json::other(fields.clone()),
        }),
        _ => None,
    };
    list("/images").chain(list("/context/selectedImages")).filter_map(image).collect()
}

fn usage(bubble: &Value) -> Option<Usage> {
    let count = |name: &str| bubble.get("tokenCount")?.get(name)?.as_u64();
    let (input, output) = (count("inputTokens").unwrap_or(0), count("outputTokens").unwrap_or(0));
    (input + output > 0).then(|| Usage { input, output, ..Usage::default() })
}
