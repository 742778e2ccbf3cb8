//! Listing directories and searching files. Links are shown, never followed.

use std::{
    io::{BufRead as _, BufReader},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use regex::bytes::{Regex, RegexBuilder};
use rustix::fs::{Dir, FileType};
use serde::Deserialize;
use sess_core::redact::around_cut;

use super::{
    beneath::{Refusal, Root, refuse},
    text::{LOOK_BYTES, is_binary, next_line},
};

const ENTRIES_MAX: usize = 1_000;
const DEPTH_MAX: u64 = 8;
const HITS_MAX: usize = 200;
/// How deep a search goes.
const SEARCH_DEPTH_MAX: u64 = 32;
/// How many files and directories a search looks at.
const LOOKED_AT_MAX: usize = 100_000;
/// Larger files are not searched: they are data, not text that somebody wrote.
const SEARCHED_BYTES_MAX: u64 = 5_000_000;
/// How much of a line that matches is shown.
const SHOWN_BYTES_MAX: usize = 300;
/// How large a pattern may become when it is compiled.
const PATTERN_BYTES_MAX: usize = 1_000_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct List {
    #[serde(default)]
    path: String,
    depth: Option<u64>,
}

pub(super) fn list(root: &Root, args: &List, stop: &dyn Fn() -> bool) -> Result<String, Refusal> {
    let depth = args.depth.unwrap_or(1).clamp(1, DEPTH_MAX);
    let mut lines = Vec::new();
    let is_whole = walk(root, &root.below(&args.path)?, depth, &mut |found| {
        if stop() || lines.len() == ENTRIES_MAX {
            return Ok(Next::Stop);
        }
        let name = found.shown.display();
        lines.push(match found.kind {
            FileType::Directory => format!("{name}/"),
            FileType::Symlink => format!("{name} -> {}", link_target(found)),
            _ => name.to_string(),
        });
        Ok(if found.shown.ends_with(".git") { Next::PassBy } else { Next::GoOn })
    })?;
    if lines.is_empty() {
        return Ok("[the directory is empty]".to_owned());
    }
    if !is_whole {
        lines.push(format!("[only the first {ENTRIES_MAX} entries]"));
    }
    Ok(lines.join("\n"))
}

fn link_target(found: &Found<'_>) -> String {
    let name = found.shown.file_name().unwrap_or_default();
    rustix::fs::readlinkat(found.dir, name, Vec::new())
        .map_or_else(|_| "?".to_owned(), |target| target.to_string_lossy().into_owned())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Search {
    pattern: String,
    #[serde(default)]
    path: String,
    glob: Option<String>,
    #[serde(default)]
    literal: bool,
    #[serde(default)]
    ignore_case: bool,
}

pub(super) fn search(root: &Root, args: &Search, stop: &dyn Fn() -> bool) -> Result<String, Refusal> {
    let pattern = if args.literal { regex::escape(&args.pattern) } else { args.pattern.clone() };
    // Without Unicode tables; bytes match bytes, so that any text can be searched.
    let pattern = RegexBuilder::new(&pattern)
        .unicode(false)
        .case_insensitive(args.ignore_case)
        .size_limit(PATTERN_BYTES_MAX)
        .build()
        .map_err(|error| Refusal(format!("the pattern is not valid: {error}")))?;
    let glob = args.glob.as_deref().map(glob).transpose()?;
    let below = root.below(&args.path)?;
    let mut hits = Vec::new();
    let mut looked_at = 0;
    if let Ok(file) = root.open_file(&below) {
        search_file(file, &below, &pattern, &mut hits, stop);
        return Ok(told(hits, true));
    }
    let is_whole = walk(root, &below, SEARCH_DEPTH_MAX, &mut |found| {
        looked_at += 1;
        if stop() || looked_at > LOOKED_AT_MAX || hits.len() > HITS_MAX {
            return Ok(Next::Stop);
        }
        if found.kind == FileType::Directory {
            return Ok(if found.shown.ends_with(".git") { Next::PassBy } else { Next::GoOn });
        }
        let path = below.join(found.shown);
        let path = path.strip_prefix(".").unwrap_or(&path);
        if found.kind == FileType::RegularFile
            && glob.as_ref().is_none_or(|glob| glob.matches(path))
            && let Ok(file) = root.open_file(path)
        {
            search_file(file, path, &pattern, &mut hits, stop);
        }
        Ok(Next::GoOn)
    })?;
    if stop() {
        return refuse("cancelled");
    }
    Ok(told(hits, is_whole))
}

fn told(mut hits: Vec<String>, is_whole: bool) -> String {
    let is_cut = hits.len() > HITS_MAX;
    hits.truncate(HITS_MAX);
    if is_cut {
        hits.push(format!("[only the first {HITS_MAX} lines; narrow the search]"));
    } else if !is_whole {
        hits.push(format!("[stopped after {LOOKED_AT_MAX} files; search a directory below]"));
    }
    if hits.is_empty() { "[nothing found]".to_owned() } else { hits.join("\n") }
}

fn search_file(
    file: std::fs::File,
    path: &Path,
    pattern: &Regex,
    hits: &mut Vec<String>,
    stop: &dyn Fn() -> bool,
) {
    if file.metadata().map_or(u64::MAX, |found| found.len()) > SEARCHED_BYTES_MAX {
        return;
    }
    let mut reader = BufReader::with_capacity(LOOK_BYTES, file);
    if reader.fill_buf().map_or(true, is_binary) {
        return;
    }
    let (mut line, mut number) = (Vec::new(), 0);
    while let Ok(Some(_)) = next_line(&mut reader, &mut line, stop) {
        number += 1;
        let text = line.trim_ascii_end();
        if pattern.is_match(text) {
            let text = String::from_utf8_lossy(text);
            let end = around_cut(&text, text.floor_char_boundary(SHOWN_BYTES_MAX)).start;
            hits.push(format!("{}:{number}: {}", path.display(), &text[..end]));
            if hits.len() > HITS_MAX {
                return;
            }
        }
    }
}

/// What a walk came by.
struct Found<'a> {
    dir: &'a OwnedFd,
    /// Relative to where the walk began.
    shown: &'a Path,
    kind: FileType,
}

enum Next {
    GoOn,
    /// Do not look into this directory.
    PassBy,
    Stop,
}

/// Visits what is below a directory, in order of the names; tells whether it came to the end.
fn walk(
    root: &Root,
    below: &Path,
    depth: u64,
    visit: &mut dyn FnMut(&Found<'_>) -> Result<Next, Refusal>,
) -> Result<bool, Refusal> {
    let dir = root.open_dir(below)?;
    walk_dir(root, below, &dir, Path::new(""), depth, visit)
}

fn walk_dir(
    root: &Root,
    below: &Path,
    dir: &OwnedFd,
    shown: &Path,
    depth: u64,
    visit: &mut dyn FnMut(&Found<'_>) -> Result<Next, Refusal>,
) -> Result<bool, Refusal> {
    let unreadable = |error: rustix::io::Errno| {
        Refusal(format!("{}: {}", below.join(shown).display(), std::io::Error::from(error)))
    };
    let mut names: Vec<(PathBuf, FileType)> = Vec::new();
    for entry in Dir::read_from(dir).map_err(unreadable)?.take(LOOKED_AT_MAX) {
        let entry = entry.map_err(unreadable)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == "." || name == ".." {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => {
                rustix::fs::statat(dir, entry.file_name(), rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
                    .map_or(FileType::Unknown, |found| FileType::from_raw_mode(found.st_mode))
            }
            known => known,
        };
        names.push((shown.join(name), kind));
    }
    names.sort_by(|one, other| one.0.cmp(&other.0));
    for (name, kind) in &names {
        match visit(&Found { dir, shown: name, kind: *kind })? {
            Next::Stop => return Ok(false),
            Next::PassBy => continue,
            Next::GoOn => {}
        }
        // A directory that vanished or may not be read is shown, and no reason to give up.
        if *kind == FileType::Directory
            && depth > 1
            && let Ok(inner) = root.open_dir(&below.join(name))
            && !walk_dir(root, below, &inner, name, depth - 1, visit)?
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A pattern for names of files.
struct Glob {
    pattern: Regex,
    /// Without a slash it is about the last name alone.
    is_name_only: bool,
}

impl Glob {
    fn matches(&self, path: &Path) -> bool {
        let path = if self.is_name_only { Path::new(path.file_name().unwrap_or_default()) } else { path };
        self.pattern.is_match(path.as_os_str().as_encoded_bytes())
    }
}

fn glob(text: &str) -> Result<Glob, Refusal> {
    let mut pattern = String::from("^");
    let mut rest = text.trim_start_matches("./");
    let is_name_only = !rest.contains('/');
    let mut braces = 0;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("**/") {
            pattern.push_str("(?:[^/]*/)*");
            rest = after;
            continue;
        }
        if let Some(after) = rest.strip_prefix("**") {
            pattern.push_str(".*");
            rest = after;
            continue;
        }
        match c {
            '*' => pattern.push_str("[^/]*"),
            '?' => pattern.push_str("[^/]"),
            '{' => {
                braces += 1;
                pattern.push_str("(?:");
            }
            '}' if braces > 0 => {
                braces -= 1;
                pattern.push(')');
            }
            ',' if braces > 0 => pattern.push('|'),
            other => pattern.push_str(&regex::escape(&other.to_string())),
        }
        rest = &rest[c.len_utf8()..];
    }
    pattern.push('$');
    let pattern = RegexBuilder::new(&pattern).unicode(false).size_limit(PATTERN_BYTES_MAX).build();
    match pattern {
        Ok(pattern) => Ok(Glob { pattern, is_name_only }),
        Err(_) => refuse(format!("the glob \"{text}\" is not valid")),
    }
}
