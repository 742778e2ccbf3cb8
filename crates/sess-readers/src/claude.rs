//! Claude Code: `~/.claude/projects/<directory>/<session>.jsonl`, sub-agents below it.
//!
//! Records form a tree by `parentUuid`: a rewind leaves a dead branch behind, a compaction
//! starts a new root that names the old leaf in `logicalParentUuid`. A first pass over the
//! file collects the links, a second one hands over the messages in the order of the file.

mod links;
mod record;

use std::{borrow::Cow, collections::HashMap, ops::ControlFlow, path::Path};

use memchr::memmem;
use serde_json::Value;
use sess_core::{
    Source, Timestamp,
    message::{Block, Provenance, Role, Usage},
};

use self::{
    links::{Left, Links},
    record::{Message, Record, Titles, block, parts},
};
use crate::{
    Entry, Foreign, Homes, Listing, Reader, Result, Take, Told,
    files::{self, Ends, Lines},
    json,
    session::session_id,
};

pub(crate) struct Claude;

/// What the host adds to prompts for the model alone.
const WRAPPERS: [&str; 11] = [
    "command-name",
    "command-message",
    "command-args",
    "local-command-caveat",
    "local-command-stdout",
    "local-command-stderr",
    "system-reminder",
    "task-notification",
    "ide_opened_file",
    "ide_selection",
    "ide_diagnostics",
];

impl Reader for Claude {
    fn source(&self) -> Source {
        Source::Claude
    }

    fn list(&self, homes: &Homes, listing: &mut Listing<'_>) {
        let root = homes.claude();
        let mut archived = HashMap::new();
        for project in listing.entries(&root.join("projects")) {
            if !project.is_dir {
                continue;
            }
            for item in listing.entries_below(&project.path) {
                let children = item.path.join("subagents");
                if let Some(name) = item.name.strip_suffix(".jsonl") {
                    listing.visit(&item.path, || Ok(session(&item.path, name)?.into_iter().collect()));
                } else if item.is_link {
                    // Others lead to what is no session's, such as notes.
                    if children.is_dir() {
                        listing.link(&item.path);
                    }
                } else if item.is_dir {
                    sub_agents(&children, &item.name, listing);
                    if let Some(at) = archived_at(&item.path) {
                        archived.insert(item.name, at);
                    }
                }
            }
        }
        listing.decorate(|session| {
            // Going on with a session takes it back.
            let is_since = |at: &Timestamp| session.updated_at <= *at;
            session.is_archived = archived.get(session.id.as_str()).is_some_and(is_since);
        });
    }

    fn title(&self, session: &Foreign) -> Result<Option<String>> {
        let mut lines = Lines::open(&session.place.path)?;
        let (mut titles, mut mended) = (Titles::default(), Vec::new());
        while let Some(line) = lines.next()? {
            if may_name(line)
                && let Ok(record) = json::borrowed::<Record<'_>>(line, &mut mended)
                && !record.is_message()
            {
                titles.see(&record);
            }
        }
        Ok(Some(titles.best()).filter(|title| !title.is_empty()))
    }

    fn read(&self, session: &Foreign, take: &mut Take<'_>) -> Result<Told> {
        let path = &session.place.path;
        let links = Links::of(path)?;
        let last = session.began_at();
        let is_part = session.parent.is_some();
        let mut reading = Reading { take, is_part, pending: None, last, unknown: 0 };
        let (mut titles, mut mended) = (Titles::default(), Vec::new());
        let mut told = Told::default();
        let is_whole = files::each(Lines::open(path)?, &mut told, |start, line| {
            let record = json::borrowed::<Record<'_>>(line, &mut mended).ok()?;
            titles.see(&record);
            match links.left(start) {
                Some(Left::Repeated) => Some(ControlFlow::Continue(())),
                left => reading.record(&record, left == Some(Left::TakenBack)),
            }
        })?;
        if is_whole {
            let _ = reading.flush();
            // A sub-agent is called what its parent wanted of it.
            told.title = Some(titles.best()).filter(|title| session.parent.is_none() && !title.is_empty());
        }
        told.unknown = reading.unknown;
        Ok(told)
    }
}

/// Names what sub-agents left below a session, in directories of workflows too.
fn sub_agents(dir: &Path, parent: &str, listing: &mut Listing<'_>) {
    for item in listing.entries_below(dir) {
        if item.is_dir && item.name == "workflows" {
            for workflow in listing.entries_below(&item.path).into_iter().filter(|item| item.is_dir) {
                sub_agents(&workflow.path, parent, listing);
            }
        }
        let Some(name) = item.name.strip_suffix(".jsonl") else { continue };
        listing.visit(&item.path, || {
            let mut found = session(&item.path, name)?;
            if let Some(child) = &mut found {
                child.parent = session_id(parent);
                let meta = files::document(&item.path.with_extension("meta.json")).unwrap_or_default();
                let meta: serde_json::Value = json::from_slice(&meta).unwrap_or_default();
                child.name = json::field(&meta, "agentType").map(str::to_owned);
                if let Some(description) = json::field(&meta, "description") {
                    (child.title, child.is_title_sure) = (json::title(description), true);
                }
            }
            Ok(found.into_iter().collect())
        });
    }
}

/// Returns when a session was archived: beside its transcript, in a directory of its name, is a mark.
fn archived_at(dir: &Path) -> Option<Timestamp> {
    let mark: Value = serde_json::from_slice(&files::document(&dir.join("archived.json")).ok()?).ok()?;
    if mark.get("archived")?.as_bool()? { json::instant(mark.get("at")?) } else { None }
}

/// Names a session by the ends of its file; nothing when nobody said anything in it.
fn session(path: &Path, name: &str) -> Result<Option<Foreign>> {
    let Some(id) = session_id(name) else { return Ok(None) };
    let (file, metadata) = files::open(path)?;
    let ends = Ends::of(path, &file, &metadata, is_dated)?;
    let mut session = Foreign::in_file(Source::Claude, id, path, &metadata);
    let mut known = Known::default();
    ends.each(path, |line| {
        known.see(line);
        known.is_spoken && known.created_at.is_some()
    })?;
    if !known.is_spoken {
        ends.check(path, is_record)?;
    }
    session.created_at = known.created_at;
    session.updated_at = ends.said_at(known.updated_at, session.updated_at);
    session.cwd = known.moved_to.or(known.cwd);
    session.branch = known.branch;
    session.title = known.titles.best();
    // Older releases put files of sub-agents beside those of sessions.
    let started_by = known.started_by.filter(|_| !known.is_main);
    session.parent = started_by.as_deref().and_then(session_id).filter(|parent| *parent != session.id);
    // What the person called it last counts most.
    session.is_title_sure = ends.is_whole() || ends.tail().any(|line| has(line, "\"custom-title\""));
    Ok(known.is_spoken.then_some(session))
}

/// Tells whether a line can be understood, be it of a kind that is known here or not.
fn is_record(line: &[u8]) -> bool {
    json::borrowed::<Record<'_>>(line, &mut Vec::new()).is_ok_and(|record| record.is_of_a_kind())
}

/// Tells whether a line says when something was said.
fn is_dated(line: &[u8]) -> bool {
    let mut known = Known::default();
    known.see(line);
    known.updated_at.is_some()
}

/// Tells whether a line may be a record that names the session: those are short, and most lines are others.
fn may_name(line: &[u8]) -> bool {
    const SIZE_BYTES_MAX: usize = 64 << 10;
    let kinds = ["\"custom-title\"", "\"ai-title\"", "\"last-prompt\"", "\"summary\""];
    line.len() <= SIZE_BYTES_MAX && kinds.iter().any(|kind| has(line, kind))
}

fn has(line: &[u8], part: &str) -> bool {
    memmem::find(line, part.as_bytes()).is_some()
}

/// What is found out of a session while it is listed.
#[derive(Default)]
struct Known {
    titles: Titles,
    cwd: Option<String>,
    branch: Option<String>,
    moved_to: Option<String>,
    created_at: Option<Timestamp>,
    updated_at: Option<Timestamp>,
    is_spoken: bool,
    /// Something was said in it that no sub-agent said, or was told.
    is_main: bool,
    /// The session whose sub-agent said the first message that is one's.
    started_by: Option<String>,
}

impl Known {
    /// Sees a line; those of two writers may stand in any order.
    fn see(&mut self, line: &[u8]) {
        let mut mended = Vec::new();
        let Ok(record) = json::borrowed::<Record<'_>>(line, &mut mended) else { return };
        self.titles.see(&record);
        self.moved_to = record.relocated_cwd.clone().or(self.moved_to.take());
        if self.cwd.is_none() {
            self.cwd.clone_from(&record.cwd);
            self.branch = record.git_branch.clone().filter(|it| !it.is_empty());
        }
        let at = record.at;
        self.created_at = self.created_at.into_iter().chain(at).min();
        if record.is_message() {
            self.is_spoken = true;
            self.updated_at = self.updated_at.max(at);
            self.is_main |= !record.is_sidechain;
            self.started_by = self.started_by.take().or_else(|| record.started_by());
        }
    }
}

/// Returns what a person typed, without what the host put around it.
fn prompt(record: &Record<'_>) -> Option<String> {
    if record.kind != "user" || record.is_hidden() || record.is_compact_summary {
        return None;
    }
    let parts = parts(record.message()?.content);
    parts.iter().find_map(typed)
}

/// Returns the text of a part as a person typed it.
fn typed(part: &Value) -> Option<String> {
    let text = json::field(part, "text").filter(|_| json::field(part, "type") == Some("text"))?;
    let text = without_wrappers(text);
    (!text.trim().is_empty()).then(|| text.into_owned())
}

/// Returns the block that a part of a prompt is.
fn prompted(part: Value) -> Option<Block> {
    match json::field(&part, "type") {
        Some("text") => typed(&part).map(json::text),
        _ => block(part),
    }
}

fn without_wrappers(text: &str) -> Cow<'_, str> {
    if text.contains('<') { json::without_wrappers(text, &WRAPPERS) } else { Cow::Borrowed(text) }
}

/// A reply that may go on in the next record: one block of it stands in each.
struct Pending {
    message_id: String,
    entry: Entry,
}

struct Reading<'a, 'b> {
    take: &'a mut Take<'b>,
    /// The session is a sub-agent's.
    is_part: bool,
    pending: Option<Pending>,
    /// When the last record was written: one without a time belongs there.
    last: Timestamp,
    /// Records of a kind that is not known here.
    unknown: u64,
}

impl Reading<'_, '_> {
    /// Tells a record; none when it cannot be read.
    fn record(&mut self, record: &Record<'_>, is_taken_back: bool) -> Option<ControlFlow<()>> {
        self.last = record.at.unwrap_or(self.last);
        let id = record.uuid.clone();
        Some(match &*record.kind {
            "assistant" => self.reply(id, record.message()?, is_taken_back),
            "user" if record.is_hidden() || record.is_compact_summary => ControlFlow::Continue(()),
            "user" => self.user(record, record.message()?, is_taken_back),
            "attachment" => {
                let mut body = json::empty(Role::User, self.last);
                body.content.extend(record.queued_prompt().into_iter().flatten().filter_map(prompted));
                if body.content.is_empty() {
                    return Some(ControlFlow::Continue(()));
                }
                self.give(Entry { id, body, is_taken_back })
            }
            "system" if record.subtype.as_deref() == Some("compact_boundary") => {
                // The summary, which comes with the next record, repeats what stands above it.
                self.give(Entry { id, body: json::compaction("", self.last), is_taken_back })
            }
            kind => {
                self.unknown += u64::from(!record::is_known(kind));
                ControlFlow::Continue(())
            }
        })
    }

    fn user(&mut self, record: &Record<'_>, message: Message, is_taken_back: bool) -> ControlFlow<()> {
        let id = record.uuid.clone();
        let mut sub_agent = record.sub_agent();
        let mut said = json::empty(Role::User, self.last);
        // What a sub-agent was told in the middle of a session is not what the person said.
        let is_task = record.is_sidechain && !self.is_part;
        said.provenance = is_task.then_some(Provenance::InternalSystem);
        for mut part in parts(message.content) {
            match json::field(&part, "type") {
                Some("tool_result") => {
                    if let Some(child) = sub_agent.take().as_deref().and_then(session_id) {
                        let body = json::sub_session(child, self.last);
                        self.give(Entry { id: None, body, is_taken_back })?;
                    }
                    let content = part.get_mut("content").map(Value::take).unwrap_or_default();
                    let content = parts(content).into_iter().filter_map(block).collect();
                    let call = json::field(&part, "tool_use_id").unwrap_or_default();
                    let is_error = part.get("is_error").and_then(Value::as_bool).unwrap_or(false);
                    let body = json::tool_result(call, content, is_error, self.last);
                    self.give(Entry { id: id.clone(), body, is_taken_back })?;
                }
                _ => said.content.extend(prompted(part)),
            }
        }
        if said.content.is_empty() {
            return ControlFlow::Continue(());
        }
        self.give(Entry { id, body: said, is_taken_back })
    }

    /// Puts a reply together whose blocks stand in records of their own.
    fn reply(&mut self, id: Option<String>, message: Message, is_taken_back: bool) -> ControlFlow<()> {
        let message_id = message.id.clone().unwrap_or_default();
        let goes_on = |pending: &Pending| {
            !message_id.is_empty()
                && pending.message_id == message_id
                && pending.entry.is_taken_back == is_taken_back
        };
        let mut pending = match self.pending.take() {
            Some(pending) if goes_on(&pending) => pending,
            before => {
                self.pending = before;
                self.flush()?;
                let body = json::empty(Role::Assistant, self.last);
                Pending { message_id, entry: Entry { id, body, is_taken_back } }
            }
        };
        let body = &mut pending.entry.body;
        if let Some(usage) = message.usage() {
            // The count of one reply grows from record to record.
            let before = body.usage.take().unwrap_or_default();
            body.usage = Some(Usage {
                input: before.input.max(usage.input),
                output: before.output.max(usage.output),
                cache_read: before.cache_read.max(usage.cache_read),
                cache_write: before.cache_write.max(usage.cache_write),
                ..Usage::default()
            });
        }
        body.model = message.model.or(body.model.take());
        body.stop_reason = message.stop_reason.or(body.stop_reason.take());
        body.content.extend(parts(message.content).into_iter().filter_map(block));
        self.pending = Some(pending);
        ControlFlow::Continue(())
    }

    fn give(&mut self, entry: Entry) -> ControlFlow<()> {
        self.flush()?;
        (self.take)(entry)
    }

    fn flush(&mut self) -> ControlFlow<()> {
        match self.pending.take() {
            Some(pending) if !pending.entry.body.content.is_empty() => (self.take)(pending.entry),
            _ => ControlFlow::Continue(()),
        }
    }
}
