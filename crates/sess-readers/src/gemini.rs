//! Gemini CLI: `~/.gemini/tmp/<project>/chats/session-<time>-<id>.jsonl`, sub-agents below.
//!
//! A file is a log of changes: a message with a known id replaces the one before, others take
//! messages back or put a summary in their place. A first pass finds out where the last wording
//! of each message is, a second one reads them there. Older releases wrote one document.

mod log;
mod message;

use std::{
    collections::HashMap,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use memchr::memmem;
use serde_json::Value;
use sess_core::{Source, Timestamp, digest::sha256};

use self::{log::Log, message::Telling};
use crate::{
    Foreign, Homes, Listing, Reader, Result, Take, Told,
    document::{self, Walked},
    files::{self, Ends, Lines},
    json,
    session::session_id,
};

pub(crate) struct Gemini;

impl Reader for Gemini {
    fn source(&self) -> Source {
        Source::Gemini
    }

    fn list(&self, homes: &Homes, listing: &mut Listing<'_>) {
        let root = homes.gemini();
        let projects = Projects::of(&root, homes);
        let mut cwds = HashMap::new();
        let mut documents = Vec::new();
        let mut dirs = listing.entries(&root.join("tmp"));
        // Directories that are named by a hash are what older releases left.
        dirs.sort_by_key(|dir| is_hash(&dir.name));
        for dir in dirs.into_iter().filter(|dir| dir.is_dir) {
            let chats = dir.path.join("chats");
            if dir.is_link {
                // Others lead to what is no project's.
                if chats.is_dir() {
                    listing.link(&dir.path);
                }
                continue;
            }
            cwds.extend(projects.cwd(&dir.path, &dir.name).map(|cwd| (dir.path.clone(), cwd)));
            for item in listing.entries_below(&chats) {
                if item.name.starts_with("session-") && item.name.ends_with(".jsonl") {
                    listing.visit(&item.path, || Ok(session(&item.path)?.into_iter().collect()));
                } else if item.name.starts_with("session-") && item.name.ends_with(".json") {
                    documents.push(item.path);
                } else if item.is_dir {
                    sub_agents(&item.path, &item.name, listing);
                }
            }
        }
        // A session that was resumed since is in both: what comes first counts.
        for path in documents {
            listing.visit(&path, || Ok(document_session(&path)?.into_iter().collect()));
        }
        listing.decorate(|session| {
            session.cwd = session.place.path.ancestors().find_map(|dir| cwds.get(dir).cloned());
        });
    }

    fn title(&self, session: &Foreign) -> Result<Option<String>> {
        let mut lines = Lines::open(&session.place.path)?;
        let mut known = Known::default();
        while let Some(line) = lines.next()? {
            if has_summary(line)
                && let Ok(Value::Object(mut record)) = json::from_slice(line)
            {
                let set = record.remove("$set").and_then(|mut set| set.get_mut("summary").map(Value::take));
                known.field("summary", set.unwrap_or_default());
            }
        }
        Ok(known.summary.as_deref().map(json::title).filter(|title| !title.is_empty()))
    }

    fn read(&self, session: &Foreign, take: &mut Take<'_>) -> Result<Told> {
        let path = &session.place.path;
        let last = session.began_at();
        let mut telling = Telling::new(last, take);
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            let log = Log::of(path)?;
            telling.told = log.told.clone();
            log.each(path, |slot, message, is_taken_back| match slot.summary {
                Some(summary) => telling.compaction(summary, is_taken_back),
                None => telling.message(message, is_taken_back),
            })?;
            return Ok(telling.told);
        }
        let (file, _) = files::open(path)?;
        let walked = document::walk(path, file, u64::MAX, &["messages"], &mut |name, value| match name {
            "messages" => telling.message(value, false),
            _ => ControlFlow::Continue(()),
        })?;
        Ok(document::told(walked, telling.told))
    }
}

/// Names what sub-agents left below a session.
fn sub_agents(dir: &Path, parent: &str, listing: &mut Listing<'_>) {
    for item in listing.entries_below(dir) {
        if !item.name.ends_with(".jsonl") {
            continue;
        }
        listing.visit(&item.path, || {
            let mut found = session(&item.path)?;
            if let Some(child) = &mut found {
                child.parent = session_id(parent).filter(|parent| *parent != child.id);
                // The id of a sub-agent begins with what it is called.
                let name = child.id.as_str().rsplit_once('-').map(|(name, _)| name.to_owned());
                child.name = name.filter(|name| !name.contains(|c: char| c.is_ascii_digit()));
            }
            Ok(found.into_iter().collect())
        });
    }
}

/// What is found out of a session while it is listed.
#[derive(Default)]
struct Known {
    id: Option<String>,
    start_time: Option<Value>,
    last_updated: Option<Value>,
    summary: Option<String>,
    prompt: Option<String>,
    spoken_at: Option<Timestamp>,
    is_spoken: bool,
    /// There is a message that does not say whose it is.
    is_damaged: bool,
}

impl Known {
    /// Sees a line of a log.
    fn see(&mut self, line: &[u8]) {
        let Ok(Value::Object(mut record)) = json::from_slice(line) else { return };
        if let Some(Value::Object(set)) = record.remove("$set") {
            set.into_iter().for_each(|(name, value)| self.field(&name, value));
        } else if record.contains_key("id") {
            self.message(&Value::Object(record));
        } else {
            record.into_iter().for_each(|(name, value)| self.field(&name, value));
        }
    }

    /// Sees what the record says of the session; what comes later counts.
    fn field(&mut self, name: &str, value: Value) {
        match (name, value) {
            ("sessionId", Value::String(id)) => self.id = Some(id),
            ("summary", Value::String(summary)) => self.summary = Some(summary),
            ("startTime", value) => self.start_time = Some(value),
            ("lastUpdated", value) => self.last_updated = Some(value),
            ("messages", Value::Array(messages)) => {
                messages.iter().for_each(|message| self.message(message));
            }
            _ => {}
        }
    }

    fn message(&mut self, message: &Value) {
        let kind = json::field(message, "type");
        self.is_damaged |= kind.is_none();
        if !matches!(kind, Some("user" | "gemini")) {
            return;
        }
        self.is_spoken = true;
        self.spoken_at = message.get("timestamp").and_then(json::instant).or(self.spoken_at);
        if kind == Some("user") && self.prompt.is_none() {
            let text = message::text(message);
            // Commands of the program are no prompts.
            let is_prompt = !text.is_empty() && !text.starts_with(['/', '?']);
            self.prompt = is_prompt.then(|| json::title(&text));
        }
    }

    /// Makes a session of what is known; nothing when nobody said anything in it.
    fn session(self, path: &Path, metadata: &std::fs::Metadata) -> Option<Foreign> {
        // A damaged beginning leaves the name of the file, which ends in a part of the id.
        let stem = path.file_stem()?.to_str()?;
        let short = if stem.starts_with("session-") { stem.rsplit('-').next()? } else { stem };
        let id = self.id.as_deref().and_then(session_id).or_else(|| session_id(short))?;
        let mut session = Foreign::in_file(Source::Gemini, id, path, metadata);
        let instant = |value: Option<Value>| value.as_ref().and_then(json::instant);
        session.created_at = instant(self.start_time);
        let updated_at = self.spoken_at.or_else(|| instant(self.last_updated));
        session.updated_at = updated_at.unwrap_or(session.updated_at);
        let summary = self.summary.as_deref().map(json::title).filter(|title| !title.is_empty());
        session.title = summary.or(self.prompt).unwrap_or_default();
        self.is_spoken.then_some(session)
    }
}

/// Names a session by the ends of its log.
fn session(path: &Path) -> Result<Option<Foreign>> {
    let (file, metadata) = files::open(path)?;
    let ends = Ends::of(path, &file, &metadata, is_dated)?;
    let mut known = Known::default();
    ends.each(path, |line| {
        known.see(line);
        known.is_spoken
    })?;
    if !known.is_spoken {
        ends.check(path, is_record)?;
    }
    let is_title_sure = ends.is_whole() || ends.tail().any(has_summary);
    Ok(known.session(path, &metadata).map(|session| {
        let updated_at = ends.said_at(Some(session.updated_at), files::modified(&metadata));
        Foreign { is_title_sure, updated_at, ..session }
    }))
}

/// Tells whether a line can be understood, be it of a kind that is known here or not.
fn is_record(line: &[u8]) -> bool {
    let Ok(record) = json::from_slice::<Value>(line) else { return false };
    let is_text = |name: &str| record.get(name).is_none_or(Value::is_string);
    let is_of_a_kind = record.get("id").is_none() || record.get("type").is_some();
    let is_set = record.get("$set").is_none_or(Value::is_object);
    ["id", "type", "sessionId"].into_iter().all(is_text) && is_of_a_kind && is_set
}

/// Tells whether a line says when something was said.
fn is_dated(line: &[u8]) -> bool {
    let mut known = Known::default();
    known.see(line);
    known.spoken_at.is_some()
}

/// Tells whether a line may say what the session is called; what was said in it has an id first.
fn has_summary(line: &[u8]) -> bool {
    line.starts_with(b"{\"$set\"") && memmem::find(line, b"\"summary\"").is_some()
}

/// Names a session by the beginning of its document.
fn document_session(path: &Path) -> Result<Option<Foreign>> {
    let (file, metadata) = files::open(path)?;
    let mut known = Known::default();
    let walked = document::begin(path, &file, &["messages"], &mut |name, value| {
        match name {
            "messages" => known.message(&value),
            _ => known.field(name, value),
        }
        ControlFlow::Continue(())
    })?;
    document::check(path, walked == Walked::ToDamage || known.is_damaged, known.is_spoken)?;
    if walked == Walked::Partly {
        known.summary = document::last_field(path, &file, "summary")?;
        if known.id.is_none() {
            known.id = document::last_field(path, &file, "sessionId")?;
        }
        known.spoken_at = None;
    }
    Ok(known.session(path, &metadata))
}

/// Which directories belong to which projects.
struct Projects {
    by_slug: HashMap<String, String>,
    by_hash: HashMap<String, String>,
}

impl Projects {
    fn of(root: &Path, homes: &Homes) -> Self {
        let document = files::document(&root.join("projects.json")).unwrap_or_default();
        let document: Value = json::from_slice(&document).unwrap_or_default();
        let projects = document.get("projects").and_then(Value::as_object).into_iter().flatten();
        let mut by_slug = HashMap::new();
        let mut by_hash = HashMap::new();
        for (path, slug) in projects {
            by_slug.extend(slug.as_str().map(|slug| (slug.to_owned(), path.clone())));
            by_hash.insert(sha256(path), path.clone());
        }
        // Of a directory that is only known by its hash, the current one may be the project.
        let around = homes.cwd().into_iter().flat_map(Path::ancestors).filter_map(Path::to_str);
        by_hash.extend(around.map(|path| (sha256(path), path.to_owned())));
        Self { by_slug, by_hash }
    }

    fn cwd(&self, dir: &Path, name: &str) -> Option<String> {
        let marked = files::document(&dir.join(".project_root")).ok();
        let marked = marked.and_then(|path| String::from_utf8(path).ok()).map(|path| path.trim().to_owned());
        let marked = marked.filter(|path| PathBuf::from(path).is_absolute());
        marked.or_else(|| self.by_slug.get(name).cloned()).or_else(|| self.by_hash.get(name).cloned())
    }
}

fn is_hash(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}
