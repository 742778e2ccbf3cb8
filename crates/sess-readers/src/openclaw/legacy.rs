//! Sessions that are files: `sessions/<id>.jsonl`, with `sessions.json` beside them. A database
//! may have replaced both, and then they go stale.

use std::{collections::HashMap, path::Path};

use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;
use sess_core::{SessionId, Source, Timestamp};

use super::Children;
use crate::{
    Foreign, Listing, Result,
    files::{self, Ends},
    json, lenient,
    session::session_id,
};

/// What is known of a key, in `sessions.json` and in a database's `entry_json`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Known {
    #[serde(deserialize_with = "lenient::text")]
    session_id: Option<String>,
    #[serde(deserialize_with = "lenient::text")]
    pub label: Option<String>,
    #[serde(deserialize_with = "lenient::text")]
    display_name: Option<String>,
    #[serde(deserialize_with = "lenient::text")]
    subject: Option<String>,
    #[serde(deserialize_with = "lenient::text")]
    auto_label: Option<String>,
    #[serde(deserialize_with = "lenient::text")]
    spawned_by: Option<String>,
    #[serde(deserialize_with = "lenient::text")]
    pub spawned_cwd: Option<String>,
    #[serde(deserialize_with = "lenient::text")]
    pub exec_cwd: Option<String>,
    archived_at: Option<Value>,
}

impl Known {
    /// Returns what the session is called, in the order that OpenClaw goes by.
    pub(super) fn title(&self) -> Option<String> {
        let named = [&self.label, &self.display_name, &self.subject, &self.auto_label];
        named.into_iter().flatten().find(|name| !name.trim().is_empty()).cloned()
    }
}

fn known(dir: &Path) -> HashMap<String, Known> {
    let document = files::document(&dir.join("sessions.json")).unwrap_or_default();
    let entries: HashMap<String, Value> = json::from_slice(&document).unwrap_or_default();
    let known =
        entries.into_iter().filter_map(|(key, entry)| Some((key, serde_json::from_value(entry).ok()?)));
    known.collect()
}

/// Names the sessions of one directory.
pub(super) fn list(dir: &Path, listing: &mut Listing<'_>) {
    let mut has_files = false;
    for item in listing.entries_below(dir) {
        // `<id>.jsonl` is in use; `<id>.jsonl.reset.<time>` was, and may be compressed.
        let Some((name, rest)) = item.name.split_once(".jsonl") else { continue };
        let is_archived = rest.starts_with(".reset.") && !rest.ends_with(".bak");
        if name.contains(".checkpoint.") || !rest.is_empty() && !is_archived {
            continue;
        }
        has_files = true;
        listing.visit(&item.path, || {
            let found = session(&item.path, name, is_archived)?;
            Ok(found.into_iter().collect())
        });
    }
    if !has_files {
        return;
    }
    let known = known(dir);
    let by_id: HashMap<SessionId, &Known> =
        known.values().filter_map(|it| Some((session_id(it.session_id.as_deref()?)?, it))).collect();
    listing.decorate(|session| {
        if session.place.path.parent() != Some(dir) {
            return;
        }
        let Some(entry) = by_id.get(&session.id) else { return };
        if let Some(title) = entry.title() {
            session.title = json::title(&title);
        }
        session.is_archived |= entry.archived_at.is_some();
        let parent = entry.spawned_by.as_ref().and_then(|key| known.get(key));
        session.parent = parent.and_then(|parent| session_id(parent.session_id.as_deref()?));
        session.name = entry.label.clone().filter(|_| session.parent.is_some());
    });
}

/// Returns the sessions that those beside a file were given as tasks.
pub(super) fn children(path: &Path) -> Children {
    let Some(dir) = path.parent() else { return Children::new() };
    let spawned = known(dir).into_iter().filter(|(_, it)| it.spawned_by.is_some());
    spawned.filter_map(|(key, it)| Some((key, session_id(it.session_id.as_deref()?)?))).collect()
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Line {
    #[serde(rename = "type")]
    kind: String,
    #[serde(deserialize_with = "lenient::text")]
    cwd: Option<String>,
    #[serde(rename = "timestamp", deserialize_with = "lenient::instant")]
    at: Option<Timestamp>,
    message: Option<IgnoredAny>,
}

/// Tells whether a line can be understood, be it of a kind that is known here or not.
fn is_record(line: &[u8]) -> bool {
    json::from_slice::<Line>(line).is_ok_and(|line| !line.kind.is_empty() || line.message.is_none())
}

/// Tells whether a line says when something was said.
fn is_dated(line: &[u8]) -> bool {
    let line = json::from_slice::<Line>(line);
    line.is_ok_and(|line| line.kind == "message" && line.at.is_some())
}

/// Names a session by the ends of its file; nothing when nobody said anything in it.
fn session(path: &Path, name: &str, is_archived: bool) -> Result<Option<Foreign>> {
    let Some(id) = session_id(name) else { return Ok(None) };
    let (file, metadata) = files::open(path)?;
    let mut session = Foreign::in_file(Source::Openclaw, id, path, &metadata);
    session.is_archived = is_archived;
    let (mut is_spoken, mut updated_at) = (false, None);
    let ends = Ends::of_any(path, file, &metadata, is_dated)?;
    ends.each(path, |line| {
        let line = json::from_slice::<Line>(line).unwrap_or_default();
        session.created_at = session.created_at.or(line.at);
        if line.kind == "session" {
            session.cwd = line.cwd;
        } else if line.kind == "message" {
            is_spoken = true;
            updated_at = line.at.or(updated_at);
        }
        is_spoken
    })?;
    session.title = ends.head().find_map(super::asked).unwrap_or_default();
    if !is_spoken {
        ends.check(path, is_record)?;
    }
    session.updated_at = ends.said_at(updated_at, session.updated_at);
    Ok(is_spoken.then_some(session))
}
