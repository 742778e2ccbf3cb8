//! Claude Code: `~/.claude/projects/<directory>/<session>.jsonl`, sub-agents below it.
//!
//! Records form a tree by `parentUuid`: a rewind leaves a dead branch behind, a compaction
//! starts a new root that names the old leaf in `logicalParentUuid`. A first pass over the
//! file collects the links, a second one hands over the messages in the order of the file.

mod links;
mod record;

use std::{borrow::Cow, collections::HashMap, ops::ControlFlow, path::Path};

use serde_json::Value;
use sess_core::{
    Source, Timestamp,
    message::{Role, Usage},
};

use self::{
    links::Links,
    record::{Message, Record, Titles, block, parts},
};
use crate::{
    Entry, Foreign, Homes, Listing, Place, Reader, Result, Take, Told,
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
            for item in listing.entries(&project.path) {
                if item.is_dir {
                    sub_agents(&item.path.join("subagents"), &item.name, listing);
                    if let Some(at) = archived_at(&item.path) {
                        archived.insert(item.name, at);
                    }
                } else if let Some(name) = item.name.strip_suffix(".jsonl") {
                    listing.visit(&item.path, || Ok(session(&item.path, name)?.into_iter().collect()));
                }
            }
        }
        listing.decorate(|session| {
            // Going on with a session takes it back.
            let is_since = |at: &Timestamp| session.updated_at <= *at;
            session.is_archived = archived.get(session.id.as_str()).is_some_and(is_since);
        });
    }

    fn read(&self, session: &Foreign, take: &mut Take<'_>) -> Result<Told> {
        let path = &session.place.path;
        let links = Links::of(path)?;
        let mut lines = Lines::open(path)?;
        let mut reading = Reading { take, pending: None, last: session.updated_at, told: Told::default() };
        if let Some(created_at) = session.created_at {
            reading.last = created_at;
        }
        let mut place = 0;
        let mut flow = ControlFlow::Continue(());
        while flow.is_continue() {
            let Some(line) = lines.next()? else { break };
            let is_last_bad = match serde_json::from_slice::<Record<'_>>(line) {
                Ok(record) => {
                    let is_live = links.is_live(place);
                    place += usize::from(record.uuid.is_some());
                    flow = reading.record(&record, is_live);
                    false
                }
                Err(_) => true,
            };
            reading.told.bad += u64::from(is_last_bad);
            // Nobody wrote the rest of it yet: that is no damage.
            if is_last_bad && lines.is_torn {
                reading.told.bad -= 1;
                reading.told.is_torn = true;
            }
        }
        if flow.is_continue() {
            let _ = reading.flush();
        }
        let mut told = reading.told;
        told.bad += lines.too_long;
        Ok(told)
    }
}

/// Names what sub-agents left below a session, in directories of workflows too.
fn sub_agents(dir: &Path, parent: &str, listing: &mut Listing<'_>) {
    for item in listing.entries_below(dir) {
        if item.is_dir {
            if item.name == "workflows" {
                for workflow in listing.entries(&item.path) {
                    sub_agents(&workflow.path, parent, listing);
                }
            }
            continue;
        }
        let Some(name) = item.name.strip_suffix(".jsonl") else { continue };
        listing.visit(&item.path, || {
            let mut found = session(&item.path, name)?;
            if let Some(child) = &mut found {
                child.parent = session_id(parent);
                let meta = files::document(&item.path.with_extension("meta.json")).unwrap_or_default();
                let meta: serde_json::Value = serde_json::from_slice(&meta).unwrap_or_default();
                child.name = json::field(&meta, "agentType").map(str::to_owned);
                if let Some(description) = json::field(&meta, "description") {
                    child.title = json::title(description);
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
    let ends = Ends::of(path, &file, &metadata)?;
    let place = Place { path: path.to_owned(), size_bytes: Some(metadata.len()) };
    let mut session = Foreign::new(Source::Claude, id, place, files::modified(&metadata));
    let mut titles = Titles::default();
    let mut is_spoken = false;
    let mut updated_at = None;
    let mut moved_to = None;
    for record in ends.head().filter_map(|line| serde_json::from_slice::<Record<'_>>(line).ok()) {
        titles.see(&record);
        moved_to = record.relocated_cwd.clone().or(moved_to);
        if session.cwd.is_none() {
            session.cwd = record.cwd.as_deref().map(str::to_owned);
            session.branch = record.git_branch.as_deref().filter(|it| !it.is_empty()).map(str::to_owned);
        }
        if session.created_at.is_none() {
            session.created_at = record.at();
        }
        if record.is_message() {
            is_spoken = true;
            updated_at = record.at().or(updated_at);
        }
        if titles.first_prompt.is_none()
            && let Some(prompt) = prompt(&record)
        {
            titles.first_prompt = Some(json::title(&prompt));
        }
    }
    for record in ends.tail().filter_map(|line| serde_json::from_slice::<Record<'_>>(line).ok()) {
        titles.see(&record);
        moved_to = record.relocated_cwd.clone().or(moved_to);
        if record.is_message() {
            is_spoken = true;
            updated_at = record.at().or(updated_at);
        }
    }
    session.updated_at = updated_at.unwrap_or(session.updated_at);
    session.cwd = moved_to.or(session.cwd);
    session.title = titles.best();
    Ok(is_spoken.then_some(session))
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
    pending: Option<Pending>,
    /// When the last record was written: one without a time belongs there.
    last: Timestamp,
    told: Told,
}

impl Reading<'_, '_> {
    fn record(&mut self, record: &Record<'_>, is_live: bool) -> ControlFlow<()> {
        self.last = record.at().unwrap_or(self.last);
        let id = record.uuid.clone();
        let is_rewound = id.is_some() && !is_live;
        match &*record.kind {
            "assistant" => match record.message() {
                Some(message) => self.reply(id, message, is_rewound),
                None => self.bad(),
            },
            "user" if record.is_hidden() || record.is_compact_summary => ControlFlow::Continue(()),
            "user" => match record.message() {
                Some(message) => self.user(id, message, record.sub_agent(), is_rewound),
                None => self.bad(),
            },
            "attachment" => {
                let Some(prompt) = record.queued_prompt() else { return ControlFlow::Continue(()) };
                let text = without_wrappers(&prompt);
                if text.trim().is_empty() {
                    return ControlFlow::Continue(());
                }
                let mut body = json::empty(Role::User, self.last);
                body.content.push(json::text(text));
                self.give(Entry { id, body, is_rewound })
            }
            "system" if record.subtype.as_deref() == Some("compact_boundary") => {
                // The summary, which comes with the next record, repeats what stands above it.
                self.give(Entry { id, body: json::compaction("", self.last), is_rewound })
            }
            kind => {
                self.told.unknown += u64::from(!record::is_known(kind));
                ControlFlow::Continue(())
            }
        }
    }

    fn bad(&mut self) -> ControlFlow<()> {
        self.told.bad += 1;
        ControlFlow::Continue(())
    }

    fn user(
        &mut self,
        id: Option<String>,
        message: Message,
        mut sub_agent: Option<String>,
        is_rewound: bool,
    ) -> ControlFlow<()> {
        let mut said = json::empty(Role::User, self.last);
        for mut part in parts(message.content) {
            match json::field(&part, "type") {
                Some("tool_result") => {
                    if let Some(child) = sub_agent.take().as_deref().and_then(session_id) {
                        let body = json::sub_session(child, self.last);
                        self.give(Entry { id: None, body, is_rewound })?;
                    }
                    let content = part.get_mut("content").map(Value::take).unwrap_or_default();
                    let content = parts(content).into_iter().filter_map(block).collect();
                    let call = json::field(&part, "tool_use_id").unwrap_or_default();
                    let is_error = part.get("is_error").and_then(Value::as_bool).unwrap_or(false);
                    let body = json::tool_result(call, content, is_error, self.last);
                    self.give(Entry { id: id.clone(), body, is_rewound })?;
                }
                Some("text") => said.content.extend(typed(&part).map(json::text)),
                _ => said.content.extend(block(part)),
            }
        }
        if said.content.is_empty() {
            return ControlFlow::Continue(());
        }
        self.give(Entry { id, body: said, is_rewound })
    }

    /// Puts a reply together whose blocks stand in records of their own.
    fn reply(&mut self, id: Option<String>, message: Message, is_rewound: bool) -> ControlFlow<()> {
        let message_id = message.id.clone().unwrap_or_default();
        let goes_on = |pending: &Pending| {
            !message_id.is_empty()
                && pending.message_id == message_id
                && pending.entry.is_rewound == is_rewound
        };
        let mut pending = match self.pending.take() {
            Some(pending) if goes_on(&pending) => pending,
            before => {
                self.pending = before;
                self.flush()?;
                let body = json::empty(Role::Assistant, self.last);
                Pending { message_id, entry: Entry { id, body, is_rewound } }
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
