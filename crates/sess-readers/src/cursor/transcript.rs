//! Transcripts of Cursor's command line: a message a line, without any time.

use std::{
    collections::HashSet,
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use serde_json::Value;
use sess_core::{
    Source,
    message::{Block, Role},
};

use crate::{
    Entry, Foreign, Listing, Result, Take, Told,
    files::{self, Ends, Lines},
    json, lenient,
    session::session_id,
};

/// How deep transcripts lie below their directory, sub-agents' included.
const DEPTH_MAX: usize = 4;
/// In how many directories the one is looked for that a project is named after.
const ASKED_MAX: usize = 200;

/// What the host adds to prompts for the model alone.
const WRAPPERS: [&str; 6] = [
    "system_reminder",
    "timestamp",
    "open_and_recently_viewed_files",
    "attached_files",
    "additional_data",
    "user_info",
];

/// Names the transcripts below a directory; those of sub-agents lie below their parent's.
pub(super) fn list(dir: &Path, parent: Option<&str>, listing: &mut Listing<'_>) {
    below(dir, parent, DEPTH_MAX, listing);
}

fn below(dir: &Path, parent: Option<&str>, depth: usize, listing: &mut Listing<'_>) {
    for item in listing.entries_below(dir) {
        let transcript = item.name.strip_suffix(".jsonl");
        if item.is_dir && transcript.is_none() && depth > 0 {
            let above = dir.file_name().and_then(|name| name.to_str());
            let parent = if item.name == "subagents" { above } else { parent };
            below(&item.path, parent, depth - 1, listing);
        } else if let Some(name) = transcript {
            listing.visit(&item.path, || {
                let mut found = session(&item.path, name)?;
                if let Some(session) = &mut found {
                    session.parent = parent.and_then(session_id).filter(|parent| *parent != session.id);
                }
                Ok(found.into_iter().collect())
            });
        }
    }
}

/// Returns the directory of the project that a transcript lies in.
pub(crate) fn project(path: &Path) -> Option<&Path> {
    path.ancestors().skip_while(|dir| !dir.ends_with("agent-transcripts")).nth(1)
}

/// Tells whether a project is named after a directory.
pub(crate) fn is_named_after(project: &Path, dir: &str) -> bool {
    let name = project.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| plain_parts(name).eq(plain_parts(dir)))
}

/// Returns the directory that a project is named after, where there is exactly one that it may be.
pub fn dir_of(project: &Path) -> Option<PathBuf> {
    let parts: Vec<&str> = plain_parts(project.file_name()?.to_str()?).collect();
    let mut asked = 0;
    let mut found = HashSet::new();
    named(Path::new("/"), &parts, &mut asked, &mut found);
    let mut found = found.into_iter();
    found.next().filter(|_| found.next().is_none() && (1..=ASKED_MAX).contains(&asked))
}

/// Finds the directories below one whose names are made of these parts. Two ways to one directory lead to it once.
fn named(dir: &Path, parts: &[&str], asked: &mut usize, found: &mut HashSet<PathBuf>) {
    if parts.is_empty() {
        found.extend(dir.canonicalize());
        return;
    }
    *asked += 1;
    if *asked > ASKED_MAX {
        return;
    }
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let count = plain_parts(name).count();
        let is_next =
            count > 0 && parts.len() >= count && plain_parts(name).eq(parts[..count].iter().copied());
        if is_next && entry.path().is_dir() {
            named(&entry.path(), &parts[count..], asked, found);
        }
    }
}

/// Returns what is left of a directory in the name of its project: all that is no letter or digit became a dash.
fn plain_parts(name: &str) -> impl Iterator<Item = &str> {
    name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|part| !part.is_empty())
}

#[derive(Default, Deserialize)]
struct Line {
    role: Option<String>,
    #[serde(rename = "type", default, deserialize_with = "lenient::text")]
    kind: Option<String>,
    #[serde(default)]
    message: Value,
}

impl Line {
    fn role(&self) -> Option<Role> {
        match self.role.as_deref()? {
            "user" => Some(Role::User),
            "assistant" => Some(Role::Assistant),
            _ => None,
        }
    }

    fn blocks(&mut self) -> Vec<Block> {
        let is_user = self.role() == Some(Role::User);
        match self.message.get_mut("content").map(Value::take) {
            Some(Value::String(text)) => text_block(&text, is_user).into_iter().collect(),
            Some(Value::Array(parts)) => parts.into_iter().filter_map(|part| block(part, is_user)).collect(),
            _ => Vec::new(),
        }
    }
}

/// Tells whether a line can be understood: what somebody said is somebody's.
fn is_record(line: &[u8]) -> bool {
    json::from_slice::<Line>(line).is_ok_and(|line| line.role.is_some() || line.message.is_null())
}

fn session(path: &Path, name: &str) -> Result<Option<Foreign>> {
    let Some(id) = session_id(name) else { return Ok(None) };
    let (file, metadata) = files::open(path)?;
    let ends = Ends::of(path, &file, &metadata, |_| true)?;
    let mut session = Foreign::in_file(Source::Cursor, id, path, &metadata);
    let mut is_spoken = false;
    ends.each(path, |line| {
        let mut line = json::from_slice::<Line>(line).unwrap_or_default();
        is_spoken |= line.role().is_some();
        if session.title.is_empty() && line.role() == Some(Role::User) {
            let prompt = line.blocks().into_iter().find_map(|block| match block {
                Block::Text { text } => Some(json::title(&text)),
                _ => None,
            });
            session.title = prompt.unwrap_or_default();
        }
        is_spoken
    })?;
    if !is_spoken {
        ends.check(path, is_record)?;
    }
    Ok(is_spoken.then_some(session))
}

pub(super) fn read(session: &Foreign, take: &mut Take<'_>) -> Result<Told> {
    let mut told = Told::default();
    let mut unknown = 0;
    files::each(Lines::open(&session.place.path)?, &mut told, |_, line| {
        let mut line = json::from_slice::<Line>(line).ok()?;
        let Some(role) = line.role() else {
            unknown += u64::from(line.kind.as_deref() != Some("turn_ended"));
            return Some(ControlFlow::Continue(()));
        };
        Some(give(role, line.blocks(), session, take))
    })?;
    Ok(Told { unknown, ..told })
}

fn give(role: Role, blocks: Vec<Block>, session: &Foreign, take: &mut Take<'_>) -> ControlFlow<()> {
    if blocks.is_empty() {
        return ControlFlow::Continue(());
    }
    // Nobody wrote down when it was said.
    let mut body = json::empty(role, session.updated_at);
    body.content = blocks;
    take(Entry { id: None, body, is_taken_back: false })
}

fn block(mut part: Value, is_user: bool) -> Option<Block> {
    let owned = |part: &Value, name: &str| json::field(part, name).unwrap_or_default().to_owned();
    match json::field(&part, "type") {
        Some("text") => text_block(&owned(&part, "text"), is_user),
        Some("thinking") => {
            let text = ["thinking", "text"].into_iter().find_map(|name| json::field(&part, name));
            Some(Block::Thinking { text: text?.to_owned(), signature: None })
        }
        Some("tool_use") => {
            let arguments = part.get_mut("input").map(Value::take).unwrap_or_default();
            Some(json::tool_call(&owned(&part, "id"), &owned(&part, "name"), arguments))
        }
        _ => part.as_object().map(|fields| json::other(fields.clone())),
    }
}

fn text_block(text: &str, is_user: bool) -> Option<Block> {
    let text = if is_user { typed(text) } else { text.to_owned() };
    (!text.trim().is_empty()).then(|| json::text(text))
}

/// Returns what a person typed: the host says which part of a prompt that is.
fn typed(text: &str) -> String {
    let typed = text.split("<user_query>").skip(1);
    let typed: Vec<&str> = typed.map(|it| it.split("</user_query>").next().unwrap_or(it).trim()).collect();
    if typed.is_empty() { json::without_wrappers(text, &WRAPPERS).into_owned() } else { typed.join("\n") }
}
