//! What has to happen to a host's files, decided before anything is written.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow, bail};

use super::{
    document::{Entry, Format, Found, Refusal},
    files,
    host::{Need, What},
    record::{Put, Record, Written},
    toml, yaml,
};

/// What becomes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It was not there.
    Created,
    /// Something was put into it.
    Changed,
    /// It has what it needs.
    Unchanged,
    /// Somebody else's words are in the place of ours.
    LeftAlone,
    /// It says again what it said before.
    Restored,
    /// What was put into it was taken out, and what others changed since stayed.
    TakenOut,
    /// It was made by us, and is gone.
    Removed,
}

/// One file, as it is and as it will be.
pub struct Change {
    /// The file itself, where symbolic links lead.
    pub path: PathBuf,
    pub action: Action,
    /// What a person should know about it.
    pub note: Option<String>,
    pub before: Option<Vec<u8>>,
    /// Nothing if the file goes.
    pub after: Option<Vec<u8>>,
    /// What the record says of it from then on.
    pub record: Option<Written>,
    /// Where the file was when it was written before, if it was.
    pub earlier: Option<PathBuf>,
}

impl Change {
    fn none(path: PathBuf, bytes: Option<Vec<u8>>, action: Action, record: Option<Written>) -> Self {
        Self { path, action, note: None, before: bytes.clone(), after: bytes, record, earlier: None }
    }

    fn left_alone(path: PathBuf, bytes: Option<Vec<u8>>, note: &str) -> Self {
        let note = format!("{} {note}", path.display());
        Self { note: Some(note), ..Self::none(path, bytes, Action::LeftAlone, None) }
    }

    /// Carries it out.
    pub fn apply(&self) -> anyhow::Result<()> {
        files::remove_leftovers(&self.path);
        match &self.after {
            _ if self.before == self.after => Ok(()),
            Some(after) => files::replace(&self.path, self.before.as_deref(), after),
            None => files::remove(&self.path, self.before.as_deref()),
        }
    }

    /// Tells whether a change is there.
    pub fn is_there(&self) -> bool {
        self.before != self.after && files::read(&self.path).is_ok_and(|now| now == self.after)
    }

    /// Makes it as if it had not been carried out.
    pub fn undo(&self) -> anyhow::Result<()> {
        match &self.before {
            _ if self.before == self.after => Ok(()),
            Some(before) => files::replace(&self.path, self.after.as_deref(), before),
            None => files::remove(&self.path, self.after.as_deref()),
        }
    }
}

/// Decides how a file gets what it needs.
pub fn install(need: &Need, record: &Record) -> anyhow::Result<Change> {
    let name = chosen(need, record)?;
    let path = files::target(name)?;
    let now = files::read(&path)?;
    let written = record.file(name, &path, now.as_deref());
    let mut change = match &need.what {
        What::Entries(format, entries) => put_entries(path, now, written, *format, entries),
        What::Whole(text) => put_whole(path, now, written, text),
    }?;
    change.record = change.record.map(|record| record.at(&change.path, name));
    change.earlier = written.map(|written| written.path.clone());
    if change.before != change.after {
        files::check_writable(&change.path)?;
        if files::has_hard_links(&change.path) {
            let text = format!("{} has hard links elsewhere: these keep what it said", change.path.display());
            change.note = Some(change.note.map_or(text.clone(), |note| format!("{note}; {text}")));
        }
    }
    Ok(change)
}

/// Returns which of the files that a host reads is meant: the one that we wrote, or else one in which somebody else's
/// words are in the place of ours.
fn chosen<'a>(need: &'a Need, record: &Record) -> anyhow::Result<&'a Path> {
    let What::Entries(format, entries) = &need.what else { return Ok(&need.path) };
    if need.besides.is_empty() {
        return Ok(&need.path);
    }
    if let Some(path) = need.paths().find(|path| path.exists() && record.has(path)) {
        return Ok(path);
    }
    for path in need.paths() {
        let Some(bytes) = files::read(&files::target(path)?)? else { continue };
        for entry in entries {
            let found = format.find(text(path, Some(&bytes))?, entry);
            let found = found.map_err(|refusal| anyhow!("{} is left alone: {refusal}", path.display()))?;
            if found != Found::Nothing {
                return Ok(path);
            }
        }
    }
    Ok(&need.path)
}

fn put_whole(
    path: PathBuf,
    now: Option<Vec<u8>>,
    written: Option<&Written>,
    text: &str,
) -> anyhow::Result<Change> {
    let is_ours = written.zip(now.as_deref()).is_some_and(|(written, now)| written.is_as_left(now));
    if now.is_some() && !is_ours {
        let note = match written {
            Some(_) => "was changed since it was written there; it is left alone",
            None => "is somebody else's; it is left alone",
        };
        // What we wrote first stays on record, so that whoever uninstalls hears of it.
        return Ok(Change { record: written.cloned(), ..Change::left_alone(path, now, note) });
    }
    let record = Written::new(path.clone(), None, text.as_bytes());
    if now.as_deref() == Some(text.as_bytes()) {
        return Ok(Change::none(path, now, Action::Unchanged, Some(record)));
    }
    let action = if now.is_some() { Action::Changed } else { Action::Created };
    let after = Some(text.as_bytes().to_owned());
    Ok(Change { after, ..Change::none(path, now, action, Some(record)) })
}

/// Says what a person does to a file that cannot be edited here.
fn by_hand(format: Format, text: &str, entries: &[Entry]) -> String {
    match (format, entries) {
        // TOML takes a table of its own anywhere but in a container that is written in braces.
        (Format::Toml, [entry]) if let Some(member) = toml::inline(entry) => format!(
            "{} is written in braces there; put this between them, with a comma between it and what they have:\n{member}",
            entry.path.join(".")
        ),
        (Format::Yaml, [entry]) if let Some(advice) = yaml::advice(text, entry) => advice,
        _ => {
            let add =
                |text: String, entry| format.insert(&text, entry).map_or(text.clone(), |(more, _)| more);
            format!("add this to it:\n{}", entries.iter().fold(String::new(), add))
        }
    }
}

fn put_entries(
    path: PathBuf,
    now: Option<Vec<u8>>,
    written: Option<&Written>,
    format: Format,
    entries: &[Entry],
) -> anyhow::Result<Change> {
    let text_now = text(&path, now.as_deref())?;
    let refused = |refusal: Refusal| match refusal {
        Refusal::Style => {
            anyhow!("{} is left alone: {refusal}; {}", path.display(), by_hand(format, text_now, entries))
        }
        Refusal::Unparsable(_) | Refusal::Shape { .. } => {
            anyhow!("{} is left alone: {refusal}", path.display())
        }
    };
    let is_recorded = |entry: &Entry| {
        written.is_some_and(|written| written.entries.iter().any(|put| put.entry() == *entry))
    };
    let mut is_there = written.is_some_and(|written| written.entries.len() == entries.len());
    for entry in entries {
        is_there &= is_recorded(entry) && format.find(text_now, entry).map_err(refused)? == Found::Same;
    }
    if is_there {
        let record = written.cloned();
        return Ok(Change::none(path, now, Action::Unchanged, record));
    }
    // What an earlier install wrote gives way to what is needed now.
    let base = match (written, &now) {
        (Some(written), Some(bytes)) => taken_out(written, &path, bytes)?.rest,
        _ => now.clone(),
    };
    let mut after = text(&path, base.as_deref())?.to_owned();
    let (mut puts, mut foreign, mut changed) = (Vec::new(), Vec::new(), Vec::new());
    for entry in entries {
        match format.find(&after, entry).map_err(refused)? {
            Found::Nothing => {
                let made;
                (after, made) = format.insert(&after, entry).map_err(refused)?;
                puts.push(Put::new(entry, made));
            }
            Found::Same | Found::Other => match written.and_then(|written| written.put_at(entry)) {
                Some(put) => changed.push(put.clone()),
                None => foreign.push(entry.path.join(".")),
            },
        }
    }
    let theirs = (!foreign.is_empty())
        .then(|| format!("has an entry of somebody else's in {}; it is left alone", foreign.join(" and ")));
    let said: Vec<String> = theirs.into_iter().chain(said_of_changed(&changed)).collect();
    let note = (!said.is_empty()).then(|| format!("{} {}", path.display(), said.join("; it ")));
    if puts.is_empty() {
        // What we put there first stays on record, so that whoever uninstalls hears of it.
        let record = written.filter(|_| !changed.is_empty()).cloned();
        return Ok(Change { note, ..Change::none(path, now, Action::LeftAlone, record) });
    }
    puts.extend(changed);
    let after = after.into_bytes();
    let record = Written::new(path.clone(), base.as_deref(), &after).with_entries(format, puts);
    let action = match &now {
        None => Action::Created,
        Some(now) if *now == after => Action::Unchanged,
        Some(_) => Action::Changed,
    };
    Ok(Change { note, after: Some(after), ..Change::none(path, now, action, Some(record)) })
}

/// Decides how what was written for a host is taken back; `needs` says where its files are now.
pub fn uninstall(record: &Record, needs: &[Need]) -> anyhow::Result<Vec<Change>> {
    let places = record.files.iter().map(places).collect::<anyhow::Result<Vec<_>>>()?;
    let mut done: Vec<PathBuf> = places.iter().flatten().map(|(path, _)| path.clone()).collect();
    let mut changes: Vec<Change> = Vec::new();
    for (written, mut places) in record.files.iter().zip(places) {
        if places.is_empty() {
            let is_free = |path: &Path| !done.iter().any(|done| files::is_same(done, path));
            let paths = needs.iter().flat_map(Need::paths);
            let mut moved = paths.filter_map(|path| moved_to(written, path));
            places.extend(moved.find(|(path, _)| is_free(path)));
            done.extend(places.iter().map(|(path, _)| path.clone()));
        }
        if places.is_empty() {
            let path = written.names().next().unwrap_or(&written.path).to_owned();
            let note = Some(format!("{} is not there any more", path.display()));
            changes.push(Change { note, ..Change::none(path, None, Action::Unchanged, None) });
        }
        for (path, bytes) in places {
            if !changes.iter().any(|change| files::is_same(&change.path, &path)) {
                changes.push(take_back(written, path, bytes)?);
            }
        }
    }
    Ok(changes)
}

/// Returns the files that have what was written: the one to which its name leads, and the one that was written. If
/// none of them has it, the first of those that are there.
fn places(written: &Written) -> anyhow::Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut places: Vec<(PathBuf, Vec<u8>)> = Vec::new();
    for name in written.names() {
        let path = files::target(name)?;
        if let Some(bytes) = files::read(&path)?
            && !places.iter().any(|(place, _)| files::is_same(place, &path))
        {
            places.push((path, bytes));
        }
    }
    if places.iter().any(|(_, bytes)| written.is_in(bytes)) {
        places.retain(|(_, bytes)| written.is_in(bytes));
    } else {
        places.truncate(1);
    }
    Ok(places)
}

/// Returns a host's file if it has what was written elsewhere: a home may have another place.
fn moved_to(written: &Written, name: &Path) -> Option<(PathBuf, Vec<u8>)> {
    let path = files::target(name).ok()?;
    let bytes = files::read(&path).ok()??;
    written.is_in(&bytes).then_some((path, bytes))
}

/// Decides how what was written to a file is taken back.
fn take_back(written: &Written, path: PathBuf, bytes: Vec<u8>) -> anyhow::Result<Change> {
    let TakenOut { rest: after, lost, stuck } = match written.before()? {
        Some(before) if before == bytes => TakenOut { rest: Some(before), lost: 0, stuck: Vec::new() },
        _ => taken_out(written, &path, &bytes)?,
    };
    if !stuck.is_empty() {
        // While it is there, so is the record: whoever comes back hears of it again.
        bail!(
            "{} has {}, written in a way that cannot be edited here: take it out yourself, then try again",
            path.display(),
            stuck.join(" and ")
        );
    }
    let changed = changed_in(written, after.as_deref());
    let now = Some(bytes);
    if after == now {
        return Ok(match (changed, lost) {
            (Some(note), _) => Change::left_alone(path, now, &note),
            (None, 0) => Change::none(path, now, Action::Unchanged, None),
            (None, _) => {
                let note = "was changed since in what was written there; it is left alone";
                Change::left_alone(path, now, note)
            }
        });
    }
    files::check_writable(&path)?;
    let action = match &after {
        None => Action::Removed,
        Some(_) if now.as_deref().is_some_and(|now| written.is_as_left(now)) => Action::Restored,
        Some(_) => Action::TakenOut,
    };
    let some = || (lost > 0).then(|| "was changed since; a part of it is left alone".to_owned());
    let note = changed.or_else(some).map(|note| format!("{} {note}", path.display()));
    let note = if action == Action::Removed { links(written, &path) } else { note };
    Ok(Change { note, after, ..Change::none(path, now, action, None) })
}

/// Says which symbolic links led to a file that goes: they are somebody else's, and stay.
fn links(written: &Written, path: &Path) -> Option<String> {
    let is_link = |name: &&Path| name.is_symlink() && files::is_same(name, path);
    let names: Vec<String> = written.names().filter(is_link).map(|name| name.display().to_string()).collect();
    let names = (!names.is_empty()).then(|| names.join(" and "))?;
    Some(format!("{names} is a symbolic link to what is removed: remove it, too"))
}

/// Says which of the entries that were put into a file somebody changed since: they stay in it.
fn changed_in(written: &Written, after: Option<&[u8]>) -> Option<String> {
    let (format, text) = (written.format?, std::str::from_utf8(after?).ok()?);
    let is_changed = |put: &&Put| format.find(text, &put.entry()) == Ok(Found::Other);
    said_of_changed(written.entries.iter().filter(is_changed))
}

fn said_of_changed<'a>(changed: impl IntoIterator<Item = &'a Put>) -> Option<String> {
    let places: Vec<String> = changed.into_iter().map(|put| put.entry().place()).collect();
    let places = (!places.is_empty()).then(|| places.join(" and "))?;
    Some(format!("has {places}, which somebody changed since it was written there; it is left alone"))
}

/// What a file says without what was written to it.
struct TakenOut {
    rest: Option<Vec<u8>>,
    /// How much could not be found.
    lost: usize,
    /// What is there still, because the text around it cannot be edited.
    stuck: Vec<String>,
}

fn taken_out(written: &Written, path: &Path, now: &[u8]) -> anyhow::Result<TakenOut> {
    let before = written.before()?;
    let (mut lost, mut stuck) = (0, Vec::new());
    if written.is_as_left(now) {
        return Ok(TakenOut { rest: before, lost, stuck });
    }
    let Some(format) = written.format else {
        return Ok(TakenOut { rest: Some(now.to_owned()), lost: 1, stuck });
    };
    let mut rest = text(path, Some(now))?.to_owned();
    // The last that came is the first to go: its containers may be inside another's.
    for put in written.entries.iter().rev() {
        let entry = put.entry();
        let found = format.find(&rest, &entry);
        match found.map_err(|refusal| anyhow!("{} is left alone: {refusal}", path.display()))? {
            Found::Same => match format.remove(&rest, &entry, put.made) {
                Ok(without) => rest = without,
                Err(_) => stuck.push(entry.place()),
            },
            Found::Nothing | Found::Other => lost += 1,
        }
    }
    let is_left_over = before.is_none() && lost == 0 && stuck.is_empty() && format.is_empty(&rest);
    Ok(TakenOut { rest: (!is_left_over).then(|| rest.into_bytes()), lost, stuck })
}

/// Returns what was written to a file that none of the changes is about.
pub fn still_elsewhere(written: Written, changes: &[Change]) -> Option<Written> {
    let Some(change) = changes.iter().find(|change| change.earlier.as_ref() == Some(&written.path)) else {
        return Some(written);
    };
    // Its name leads to another file now, and that is the one that was changed.
    let is_left = !files::is_same(&written.path, &change.path)
        && fs::read(&written.path).is_ok_and(|bytes| written.is_in(&bytes));
    let path = written.path.clone();
    is_left.then(|| written.at(&path, &path))
}

/// Returns the directories that have to be made for these changes, the outermost first.
pub fn missing_dirs(changes: &[Change]) -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> = Vec::new();
    for change in changes.iter().filter(|change| change.after.is_some()) {
        for dir in files::missing_dirs(&change.path) {
            if !dirs.contains(&dir) {
                dirs.push(dir);
            }
        }
    }
    dirs
}

fn text<'a>(path: &Path, bytes: Option<&'a [u8]>) -> anyhow::Result<&'a str> {
    let text = std::str::from_utf8(bytes.unwrap_or_default());
    text.with_context(|| format!("{} is left alone: it is not UTF-8 text; mend it first", path.display()))
}
