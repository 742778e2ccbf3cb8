//! Sessions that are files: `sessions/<id>.jsonl`, with `sessions.json` beside them. A database
//! may have replaced both, and then they go stale.

use std::{collections::HashMap, path::Path};

use serde::Deserialize;
use serde_json::Value;
use sess_core::{SessionId, Source, Timestamp};

use super::Children;
use crate::{
    Foreign, Listing, Place, Result,
    files::{self, Ends},
    json,
    session::session_id,
};

/// What is known of a key, in `sessions.json` and in a database's `entry_json`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Known {
    session_id: Option<String>,
    pub label: Option<String>,
    display_name: Option<String>,
    subject: Option<String>,
    auto_label: Option<String>,
    spawned_by: Option<String>,
    pub spawned_cwd: Option<String>,
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
    let entries: HashMap<String, Value> = serde_json::from_slice(&document).unwrap_or_default();
    let known =
        entries.into_iter().filter_map(|(key, entry)| Some((key, serde_json::from_value(entry).ok()?)));
    known.collect()
}

/// Names the sessions of one directory.
pub(super) fn list(dir: &Path, listing: &mut Listing<'_>) {
    let mut has_files = false;
    for item in listing.entries(dir) {
        if item.is_dir {
            continue;
        }
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
        session.title = entry.title().map(|title| json::title(&title)).unwrap_or_default();
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

#[derive(Deserialize)]
struct Line {
    #[serde(rename = "type", default)]
    kind: String,
    cwd: Option<String>,
    timestamp: Option<Value>,
}

/// Names a session by the ends of its file; nothing when nobody said anything in it.
fn session(path: &Path, name: &str, is_archived: bool) -> Result<Option<Foreign>> {
    let Some(id) = session_id(name) else { return Ok(None) };
    let (file, metadata) = files::open(path)?;
    let place = Place { path: path.to_owned(), size_bytes: Some(metadata.len()) };
    let mut session = Foreign::new(Source::Openclaw, id, place, files::modified(&metadata));
    session.is_archived = is_archived;
    let mut is_spoken = false;
    let see = |line: &[u8]| {
        let Ok(line) = serde_json::from_slice::<Line>(line) else { return };
        let at: Option<Timestamp> = line.timestamp.as_ref().and_then(json::instant);
        session.created_at = session.created_at.or(at);
        if line.kind == "session" {
            session.cwd = line.cwd;
        } else if line.kind == "message" {
            is_spoken = true;
            session.updated_at = at.unwrap_or(session.updated_at);
        }
    };
    let ends = Ends::of_any(path, file, &metadata)?;
    ends.head().chain(ends.tail()).for_each(see);
    if !is_spoken {
        ends.check(path)?;
    }
    if !ends.is_whole() && files::is_compressed(path) {
        // Its end cannot be had without all of it.
        session.updated_at = files::modified(&metadata);
    }
    Ok(is_spoken.then_some(session))
}
