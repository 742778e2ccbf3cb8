//! Codex: `~/.codex/sessions/YYYY/MM/DD/rollout-<time>-<thread>.jsonl`, archived ones apart.
//!
//! A rollout holds what the model saw (`response_item`) and what the person saw (`event_msg`):
//! much is in both. A first pass over the file finds out which of the two has what, and which
//! turns were rolled back; a second one hands over the messages. A thread that was reverted or
//! forked may begin in another file, which is then read first.

mod index;
mod item;
mod opening;
mod outline;
mod reading;
mod record;
mod rollout;

use std::{
    collections::{HashMap, hash_map::Entry as Slot},
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use serde_json::Value;
use sess_core::Source;

use self::{
    index::Index,
    opening::Opening,
    outline::Outline,
    reading::Reading,
    record::{Line, Meta, speaks},
    rollout::Rollout,
};
use crate::{
    Foreign, Homes, Listing, Reader, Result, Take, Told,
    files::{self, Ends, Lines},
    json,
    session::session_id,
};

pub(crate) struct Codex;

/// How many files a thread may be spread over.
const SEGMENTS_MAX: usize = 64;

impl Reader for Codex {
    fn source(&self) -> Source {
        Source::Codex
    }

    fn list(&self, homes: &Homes, listing: &mut Listing<'_>) {
        let root = homes.codex();
        let index = Index::of(&root, listing);
        let Rollouts { counting, paths } = current(&root, &index, listing);
        for (rollout, is_archived) in counting {
            listing.visit(&rollout.path, || {
                let mut found = session(&rollout, &paths)?;
                if let Some(session) = &mut found {
                    session.is_archived = is_archived;
                }
                Ok(found.into_iter().collect())
            });
        }
        listing.decorate(|session| index.decorate(session));
    }

    fn title(&self, session: &Foreign) -> Result<Option<String>> {
        let (segments, _) = segments(&session.place.path)?;
        let Some(last) = segments.last() else { return Ok(None) };
        let own_from = last.meta.own_from();
        // A fork is called by what was asked in it; what was asked before is called by it where that is nothing.
        let (own, others): (Vec<_>, Vec<_>) = segments.iter().partition(|it| it.thread == last.thread);
        for segment in own.into_iter().chain(others) {
            let end = segment.end.map_or(u64::MAX, |(end, _)| end);
            let mut opening = Opening::new(own_from..end);
            let mut lines = Lines::of_any(&segment.path)?;
            while let Some(line) = lines.next()? {
                opening.see_if_prompt(line);
            }
            if let Some(title) = opening.title() {
                return Ok(Some(title.to_owned()));
            }
        }
        Ok(None)
    }

    fn read(&self, session: &Foreign, take: &mut Take<'_>) -> Result<Told> {
        let (segments, is_whole) = segments(&session.place.path)?;
        // What a sub-agent was given of its parent's history is not its own.
        let own_from = segments.last().map_or(0, |last| last.meta.own_from());
        let mut reading = Reading::new(session, take);
        reading.told.lacks_beginning = !is_whole;
        let mut next = 0;
        let mut title_before = None;
        for (number, segment) in segments.iter().enumerate() {
            let flow = read_segment(segment, own_from, &mut next, &mut reading)?;
            if flow.is_break() {
                return Ok(reading.told);
            }
            // A fork is called by what was asked in it.
            if segments.get(number + 1).is_some_and(|next| next.thread != segment.thread) {
                title_before = title_before.or(reading.title.take());
            }
        }
        let _ = reading.flush();
        // One that the index names is called that.
        reading.told.title = reading.title.take().or(title_before).filter(|_| !session.is_title_sure);
        Ok(reading.told)
    }

    fn is_in_one_file(&self, session: &Foreign) -> bool {
        let path = &session.place.path;
        let thread = Rollout::at(path).map(|rollout| rollout.thread).unwrap_or_default();
        // One that goes on where another ended, be that one here or not.
        meta(path, &thread).is_ok_and(|meta| meta.unwrap_or_default().history_base().is_none())
    }
}

/// The files of all threads.
struct Rollouts {
    /// Those that count, and whether each is archived: one a thread, or all that count alike.
    counting: Vec<(Rollout, bool)>,
    /// Where each rollout is: a thread may begin in one that does not count.
    paths: HashMap<String, PathBuf>,
}

/// Returns the rollouts there are, and which of them count.
///
/// A plain file counts before its compressed copy, one in use before an archived one, and of a
/// thread that was reverted the rollout that Codex goes on with. Of files of one rollout no name says which
/// that is.
fn current(root: &Path, index: &Index, listing: &mut Listing<'_>) -> Rollouts {
    let mut paths: HashMap<String, PathBuf> = HashMap::new();
    let mut found: HashMap<String, Vec<(Rollout, bool)>> = HashMap::new();
    let mut order = Vec::new();
    for (dir, is_archived) in [("sessions", false), ("archived_sessions", true)] {
        let top = root.join(dir);
        let mut entries =
            |dir: &Path| if dir == top { listing.entries(dir) } else { listing.entries_below(dir) };
        rollout::each(&mut entries, &top, &mut |rollout| {
            let is_worse = |known: &PathBuf| files::is_compressed(known) && !rollout.is_compressed;
            if paths.get(&rollout.id).is_none_or(is_worse) {
                paths.insert(rollout.id.clone(), rollout.path.clone());
            }
            match found.entry(rollout.thread.clone()) {
                Slot::Vacant(slot) => {
                    order.push(rollout.thread.clone());
                    slot.insert(vec![(rollout, is_archived)]);
                }
                Slot::Occupied(mut slot) => {
                    let before = slot.get_mut();
                    let named = index.rollout(&rollout.thread);
                    let rank = |(rollout, is_archived): &(Rollout, bool)| {
                        let is_named = named.is_some_and(|named| rollout.is_called(named));
                        let is_file = rollout.is_file();
                        (is_file, is_named, !is_archived, rollout.id.clone(), !rollout.is_compressed)
                    };
                    let is_like = |other: &(Rollout, bool)| {
                        let (is_file, is_named, _, id, is_plain) = rank(other);
                        (is_file, is_named, id, is_plain)
                    };
                    let rollout = (rollout, is_archived);
                    if before.iter().any(|before| is_like(before) == is_like(&rollout)) {
                        before.push(rollout);
                    } else if before.iter().all(|before| rank(&rollout) > rank(before)) {
                        *before = vec![rollout];
                    }
                }
            }
        });
    }
    let counting = order.into_iter().filter_map(|thread| found.remove(&thread)).flatten().collect();
    Rollouts { counting, paths }
}

/// Names a session by the ends of its file; nothing when nobody said anything in it. `paths` has where others are.
fn session(rollout: &Rollout, paths: &HashMap<String, PathBuf>) -> Result<Option<Foreign>> {
    let path = &rollout.path;
    let Some(id) = session_id(&rollout.thread) else { return Ok(None) };
    let (file, metadata) = files::open(path)?;
    let ends = Ends::of_any(path, file, &metadata, is_dated)?;
    let mut session = Foreign::in_file(Source::Codex, id, path, &metadata);
    let mut is_spoken = false;
    let mut meta = None;
    let mut updated_at = None;
    for line in ends.head().chain(ends.tail()) {
        let Ok(line) = Line::read(line) else { continue };
        if line.kind == "session_meta" {
            // Those that a fork copied name other threads.
            meta = meta.or_else(|| line.meta().filter(|meta| meta.is_of(&rollout.thread)));
            continue;
        }
        updated_at = line.at.or(updated_at);
        is_spoken |= speaks(&line);
    }
    let meta = meta.unwrap_or_default();
    let opening = opening(path, &ends, meta.own_from())?;
    // A compaction may take up the end, and instructions the beginning.
    is_spoken |= opening.is_spoken;
    let base = base_title(&meta, paths, rollout);
    let here = opening.title();
    let is_of_others = here.is_none() && base.others.is_some();
    session.is_title_sure = ends.is_whole() && base.own.is_none() && !is_of_others;
    let others = base.others.as_deref();
    session.title = base.own.as_deref().or(here).or(others).unwrap_or_default().to_owned();
    session.updated_at = ends.said_at(updated_at, session.updated_at);
    meta.describe(&mut session);
    if !is_spoken {
        ends.check(path, is_record)?;
    }
    Ok(is_spoken.then_some(session))
}

/// Tells whether a line can be understood, be it of a kind that is known here or not.
fn is_record(line: &[u8]) -> bool {
    Line::read(line).is_ok_and(|line| line.is_of_a_kind())
}

/// Tells whether a line says when something happened, or is of a release that did not write that.
fn is_dated(line: &[u8]) -> bool {
    Line::read(line).is_ok_and(|line| line.kind != "session_meta" && (line.at.is_some() || line.is_bare))
}

/// Looks for the first prompt, further down too where the head is taken up by instructions.
fn opening(path: &Path, ends: &Ends, own_from: u64) -> Result<Opening> {
    let mut opening = Opening::new(own_from..u64::MAX);
    ends.head().for_each(|line| {
        opening.see(line);
    });
    if opening.title().is_none() && !ends.is_whole() {
        opening = Opening::new(own_from..u64::MAX);
        files::opening(Lines::of_any(path)?, |line| opening.see(line))?;
    }
    Ok(opening)
}

/// The titles that the first prompts make where a thread goes on from.
#[derive(Default)]
struct BaseTitle {
    /// In rollouts of its own: it was reverted.
    own: Option<String>,
    /// In those of the threads that it was forked from.
    others: Option<String>,
}

/// Returns the titles that the first prompts make of a thread that goes on where another rollout ended; none where it
/// begins in its own, or the first lines of the others do not tell.
fn base_title(meta: &Meta, paths: &HashMap<String, PathBuf>, rollout: &Rollout) -> BaseTitle {
    let own_from = meta.own_from();
    let mut titles = BaseTitle::default();
    let mut seen = vec![rollout.id.clone()];
    let mut base = meta.history_base();
    while let Some(found) = base.take().filter(|base| base.end > own_from) {
        if seen.len() == SEGMENTS_MAX || seen.contains(&found.rollout) {
            break;
        }
        let Some(path) = paths.get(&found.rollout) else { break };
        let mut opening = Opening::new(own_from..found.end);
        // What cannot be read is told by who reads the thread.
        let Ok(lines) = Lines::of_any(path) else { break };
        if files::opening(lines, |line| opening.see(line)).is_err() {
            break;
        }
        let thread = Rollout::at(path).map(|rollout| rollout.thread).unwrap_or_default();
        let known = if thread == rollout.thread { &mut titles.own } else { &mut titles.others };
        // What the one before says counts more.
        *known = opening.title().map(str::to_owned).or(known.take());
        base = self::meta(path, &thread).ok().flatten().and_then(|meta| meta.history_base());
        seen.push(found.rollout);
    }
    titles
}

/// A rollout as a part of a thread.
struct Segment {
    path: PathBuf,
    thread: String,
    meta: Meta,
    /// Where the next segment goes on, and whether that is of the same thread: then what
    /// follows here was reverted.
    end: Option<(u64, bool)>,
}

/// Returns the files that a thread is in, the oldest first, and whether none of them is gone.
fn segments(path: &Path) -> Result<(Vec<Segment>, bool)> {
    let mut segments: Vec<Segment> = Vec::new();
    let mut is_whole = true;
    let mut next = Some((path.to_owned(), None));
    while let Some((path, end)) = next.take() {
        // A rollout may be said to begin in itself.
        if segments.len() == SEGMENTS_MAX || segments.iter().any(|segment| segment.path == path) {
            break;
        }
        let thread = Rollout::at(&path).map(|rollout| rollout.thread).unwrap_or_default();
        let meta = meta(&path, &thread)?.unwrap_or_default();
        if let Some(base) = meta.history_base().filter(|base| base.end > meta.own_from()) {
            let found = rollout::find(&path, &base.rollout);
            is_whole = found.is_some();
            next = found.map(|found| (found.path, Some((base.end, found.thread == thread))));
        }
        segments.push(Segment { path, thread, meta, end });
    }
    segments.reverse();
    Ok((segments, is_whole))
}

/// Returns what a rollout says of itself, in its first record or, in a damaged one, soon after.
fn meta(path: &Path, thread: &str) -> Result<Option<Meta>> {
    let mut found = None;
    files::opening(Lines::of_any(path)?, |line| {
        let line = Line::read(line).ok();
        found = line.and_then(|line| line.meta()).filter(|meta| meta.is_of(thread));
        found.is_some()
    })?;
    Ok(found)
}

fn read_segment(
    segment: &Segment,
    own_from: u64,
    next: &mut u64,
    reading: &mut Reading<'_, '_>,
) -> Result<ControlFlow<()>> {
    let outline = Outline::of(&segment.path)?;
    reading.enter(&segment.meta, &segment.thread);
    let mut told = Told::default();
    let mut flow = ControlFlow::Continue(());
    let mut numbers = 0..;
    files::each(Lines::of_any(&segment.path)?, &mut told, |_, line| {
        let number = numbers.next()?;
        let line = Line::read(line).ok()?;
        let ordinal = line.ordinal.unwrap_or(*next);
        *next = ordinal.saturating_add(1);
        let is_reverted = match segment.end {
            Some((end, false)) if ordinal >= end => return Some(ControlFlow::Break(())),
            end => end.is_some_and(|(end, _)| ordinal >= end),
        };
        if ordinal >= own_from {
            let is_taken_back = is_reverted || outline.is_rolled_back(number);
            flow = reading.record(&line, (&outline, number), is_taken_back);
        }
        Some(flow)
    })?;
    reading.told.bad += told.bad;
    reading.told.is_torn |= told.is_torn;
    // The next segment goes on where this one was left.
    if let Some((end, _)) = segment.end {
        *next = end;
    }
    Ok(flow)
}

/// A text field under either of two names: both spellings are found in one release.
fn either<'a>(value: &'a Value, snake: &str, camel: &str) -> Option<&'a Value> {
    value.get(snake).or_else(|| value.get(camel))
}

/// Returns what a person asked, without what an editor put before it.
fn asked(text: &str) -> &str {
    const REQUEST: &str = "## My request for Codex:";
    let text = text.find(REQUEST).map_or(text, |at| &text[at + REQUEST.len()..]).trim();
    if is_for_the_model(text) { "" } else { text }
}

/// Tells whether a text was put into the conversation by Codex, in the person's place.
fn is_for_the_model(text: &str) -> bool {
    const STARTS: [&str; 7] = [
        "<environment_context",
        "<user_instructions",
        "<permissions instructions",
        "<turn_aborted",
        "<subagent_notification",
        "<hook_prompt",
        "# AGENTS.md instructions",
    ];
    STARTS.iter().any(|start| text.starts_with(start))
}

/// Returns what a person asked, by what the model was given in the person's place.
fn given(text: &str) -> &str {
    let text = asked(text);
    if is_element_of_codex(text) || is_image_label(text) { "" } else { text }
}

/// Tells whether a text is all one element as Codex puts them there; what somebody wrote may begin with any.
fn is_element_of_codex(text: &str) -> bool {
    const NAMES: [&str; 9] = [
        "codex_internal_context",
        "extension_context",
        "goal_context",
        "plugins",
        "recommended_plugins",
        "skill",
        "subagents",
        "user_action",
        "user_shell_command",
    ];
    let Some(inside) = text.strip_prefix('<') else { return false };
    let name = inside.split(['>', ' ']).next().unwrap_or_default();
    let end = || inside.strip_suffix('>')?.strip_suffix(name)?.strip_suffix("</");
    (NAMES.contains(&name) || name.starts_with("external_")) && end().is_some()
}

/// Tells whether a text stands before or behind an image, to name it.
fn is_image_label(text: &str) -> bool {
    let label = text.strip_prefix("<image name=").and_then(|text| text.strip_suffix('>'));
    matches!(text, "<image>" | "</image>") || label.is_some_and(|label| !label.contains('>'))
}

/// Returns the title that a prompt makes, if it makes one.
fn titled(text: &str) -> Option<String> {
    let title = json::title(asked(text));
    (!title.is_empty()).then_some(title)
}
