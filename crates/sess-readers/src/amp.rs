//! Amp: `~/.local/share/amp/threads/T-<id>.json`, one document a thread.
//!
//! Newer releases keep threads on a server: what is found here is what older ones left.

use std::{ops::ControlFlow, path::Path};

use serde_json::Value;
use sess_core::{
    Source, Timestamp,
    message::{Block, Role, Usage},
};

use crate::{
    Entry, Foreign, Homes, Listing, Reader, Result, Take, Told,
    document::{self, Walked},
    files, json,
    session::session_id,
};

pub(crate) struct Amp;

impl Reader for Amp {
    fn source(&self) -> Source {
        Source::Amp
    }

    fn list(&self, homes: &Homes, listing: &mut Listing<'_>) {
        for item in listing.entries(&homes.data().join("amp/threads")) {
            let name = item.name.strip_suffix(".json").filter(|name| name.starts_with("T-"));
            if let Some(name) = name {
                listing.visit(&item.path, || Ok(session(&item.path, name)?.into_iter().collect()));
            }
        }
    }

    fn read(&self, session: &Foreign, take: &mut Take<'_>) -> Result<Told> {
        let path = &session.place.path;
        let (file, _) = files::open(path)?;
        let last = session.began_at();
        let mut telling = Telling { take, told: Told::default(), last };
        let walked = document::walk(path, file, u64::MAX, &["messages"], &mut |name, value| match name {
            "messages" => telling.message(value),
            _ => ControlFlow::Continue(()),
        })?;
        Ok(document::told(walked, telling.told))
    }
}

/// Names a thread by the beginning of its document; nothing when nobody said anything in it.
fn session(path: &Path, name: &str) -> Result<Option<Foreign>> {
    let Some(id) = session_id(name) else { return Ok(None) };
    let (file, metadata) = files::open(path)?;
    let mut session = Foreign::in_file(Source::Amp, id, path, &metadata);
    let mut prompt = None;
    let mut said_at = None;
    let mut is_spoken = false;
    let walked = document::begin(path, &file, &["messages"], &mut |name, value| {
        match name {
            "created" => session.created_at = json::instant(&value),
            "title" => session.title = value.as_str().map(json::title).unwrap_or_default(),
            "env" => (session.cwd, session.branch) = tree(&value),
            "messages" => {
                is_spoken = true;
                said_at = at(&value).or(said_at);
                prompt = prompt.take().or_else(|| asked(&value));
            }
            _ => {}
        }
        ControlFlow::Continue(())
    })?;
    document::check(path, walked == Walked::ToDamage, is_spoken)?;
    if walked == Walked::Partly {
        said_at = None;
        if session.title.is_empty() {
            let title = document::last_field(path, &file, "title")?;
            session.title = title.as_deref().map(json::title).unwrap_or_default();
        }
    }
    if session.title.is_empty() {
        session.title = prompt.unwrap_or_default();
    }
    session.updated_at = said_at.unwrap_or(session.updated_at);
    Ok(is_spoken.then_some(session))
}

/// Returns the directory that a thread was started in, and its branch.
fn tree(env: &Value) -> (Option<String>, Option<String>) {
    let Some(tree) = env.pointer("/initial/trees/0") else { return (None, None) };
    let branch = tree.pointer("/repository/ref").and_then(Value::as_str);
    let branch = branch.map(|branch| branch.trim_start_matches("refs/heads/").to_owned());
    (json::field(tree, "uri").and_then(json::path), branch)
}

/// Returns when a message was said: prompts and replies say it in different places.
fn at(message: &Value) -> Option<Timestamp> {
    let places = ["/meta/sentAt", "/usage/timestamp"];
    places.into_iter().find_map(|place| json::instant(message.pointer(place)?))
}

/// Returns the title that a message makes when it is the first prompt.
fn asked(message: &Value) -> Option<String> {
    let parts =
        message.get("content")?.as_array().filter(|_| json::field(message, "role") == Some("user"))?;
    let title = parts.iter().find_map(|part| json::field(part, "text").map(json::title));
    title.filter(|title| !title.is_empty())
}

struct Telling<'a, 'b> {
    take: &'a mut Take<'b>,
    told: Told,
    /// When the last message was written: one without a time belongs there.
    last: Timestamp,
}

impl Telling<'_, '_> {
    fn message(&mut self, mut message: Value) -> ControlFlow<()> {
        self.last = at(&message).unwrap_or(self.last);
        let role = match json::field(&message, "role") {
            Some("user") => Role::User,
            Some("assistant") => Role::Assistant,
            role => return self.told.pass_over(role),
        };
        let id = message.get("messageId").map(|id| id.as_str().map_or_else(|| id.to_string(), str::to_owned));
        let mut body = json::empty(role, self.last);
        body.stop_reason = message.pointer("/state/stopReason").and_then(Value::as_str).map(str::to_owned);
        let usage = message.get("usage").filter(|usage| usage.is_object());
        body.model = usage.and_then(|usage| json::field(usage, "model")).map(str::to_owned);
        body.usage = usage.map(|usage| {
            let count = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or(0);
            Usage {
                input: count("inputTokens"),
                output: count("outputTokens"),
                cache_read: count("cacheReadInputTokens"),
                cache_write: count("cacheCreationInputTokens"),
                ..Usage::default()
            }
        });
        let parts = match message.get_mut("content").map(Value::take) {
            Some(Value::Array(parts)) => parts,
            Some(Value::String(text)) => vec![serde_json::json!({"type": "text", "text": text})],
            _ => Vec::new(),
        };
        for part in parts {
            if json::field(&part, "type") == Some("tool_result") {
                self.result(id.clone(), &part)?;
            } else {
                body.content.extend(block(part));
            }
        }
        if body.content.is_empty() {
            return ControlFlow::Continue(());
        }
        (self.take)(Entry { id, body, is_taken_back: false })
    }

    fn result(&mut self, id: Option<String>, part: &Value) -> ControlFlow<()> {
        let run = part.get("run").unwrap_or(&Value::Null);
        let result = run.get("result").or_else(|| run.get("error")).unwrap_or(&Value::Null);
        let printed = [result.get("output"), result.get("message"), Some(result)];
        let printed = printed.into_iter().flatten().find_map(Value::as_str);
        let text = printed.map_or_else(|| result.to_string(), str::to_owned);
        let content = if result.is_null() { Vec::new() } else { vec![json::text(text)] };
        let code = result.get("exitCode").and_then(Value::as_i64).unwrap_or(0);
        let is_error = code != 0 || json::field(run, "status").is_some_and(|status| status != "done");
        let call = json::field(part, "toolUseID").unwrap_or_default();
        let body = json::tool_result(call, content, is_error, self.last);
        (self.take)(Entry { id, body, is_taken_back: false })
    }
}

fn block(mut part: Value) -> Option<Block> {
    let owned = |part: &Value, name: &str| json::field(part, name).unwrap_or_default().to_owned();
    match json::field(&part, "type") {
        Some("text") => Some(owned(&part, "text")).filter(|text| !text.is_empty()).map(json::text),
        Some("thinking") => Some(Block::Thinking {
            text: owned(&part, "thinking"),
            signature: json::field(&part, "signature").map(str::to_owned),
        }),
        Some("tool_use") => {
            let arguments = part.get_mut("input").map(Value::take).unwrap_or_default();
            Some(json::tool_call(&owned(&part, "id"), &owned(&part, "name"), arguments))
        }
        Some("image") if part.pointer("/source/data").is_some() => {
            let source = part.get("source").unwrap_or(&Value::Null);
            Some(Block::Image { mime_type: owned(source, "mediaType"), data: owned(source, "data") })
        }
        _ => part.as_object().map(|fields| json::other(fields.clone())),
    }
}
