//! Reading another agent's session: one pass over its file, in little memory.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    ops::ControlFlow,
};

use sess_core::{
    SessionId, Timestamp,
    message::{Block, Role},
    transcript::{self, Heading, Item, SUB_SESSION_END, Tools, Window},
};
use sess_readers::{Entry, Foreign, Kin, Stands, Told};

use super::{Redaction, Transcript, blocking, masked};
use crate::{App, Error, Result};

/// How deep sub-agents are shown inside each other.
const DEPTH_MAX: usize = 32;

/// Which part of a session is wanted.
pub(super) enum Part {
    Newest,
    /// Around a message, by its id or its place.
    Around(String),
    /// The newest of what stands before the last compaction.
    Compacted,
}

pub(super) struct Asked {
    /// What the owner calls it.
    pub(super) title: Option<String>,
    pub(super) part: Part,
    pub(super) tools: Tools,
    pub(super) redaction: Redaction,
    pub(super) budget: usize,
}

impl App {
    pub(super) async fn read_foreign(&self, foreign: Foreign, asked: Asked) -> Result<Transcript> {
        let mut family = self.look_at_agents(Some(foreign.source)).await?.sessions;
        family.retain(|session| session.parent.is_some());
        blocking(move || read(&foreign, &family, &asked)).await?
    }
}

/// Returns how a message of another agent's session is named: by its agent's id of it, or by its place. A number means a
/// place, so that a message whose agent gave it another number goes by its place, too.
pub(crate) fn message_ref(id: Option<String>, seq: u64) -> String {
    id.filter(|id| place(id).is_none()).unwrap_or_else(|| seq.to_string())
}

/// Returns the place that a name of a message means, if it is one.
fn place(name: &str) -> Option<u64> {
    name.parse().ok()
}

fn read(foreign: &Foreign, family: &[Foreign], asked: &Asked) -> Result<Transcript> {
    let mut reading = Reading::new(foreign, family, asked);
    let told = reading.session(foreign, "", 0)?;
    let (num_messages, taken_back) = (reading.num_messages, reading.taken_back);
    let reference = foreign.reference();
    let title = asked.title.as_deref().or(told.title.as_deref()).unwrap_or(&foreign.title);
    let (title, redacted_title) = masked(title, asked.redaction);
    let heading = Heading { id: &reference, title: &title, created_at: foreign.created_at, num_messages };
    let (window, redacted) = reading.window(&heading)?;
    Ok(Transcript {
        num_messages,
        shown: window.shown,
        omitted: window.earlier,
        omitted_later: window.later,
        redacted: redacted + redacted_title,
        damaged: told.bad,
        lacks_beginning: told.lacks_beginning,
        taken_back,
        transcript: window.text,
        title,
        session_id: reference,
    })
}

/// The blocks of a session, of which only those are kept that may be shown.
struct Reading<'a> {
    asked: &'a Asked,
    children: HashMap<&'a SessionId, &'a Foreign>,
    /// Sub-agents may name each other as parents; each is shown once.
    seen: HashSet<&'a SessionId>,
    num_messages: u64,
    /// The place of what is being read in its session.
    seq: u64,
    taken_back: u64,
    /// Headings of sub-sessions that have shown nothing yet.
    opened: Vec<String>,
    /// Blocks before the wanted one; all of them while none is wanted or found.
    before: Side,
    at: Option<Item>,
    after: Side,
    /// What had been read at the last compaction.
    compacted: Option<Side>,
}

/// Blocks in their order, as many as could be shown.
#[derive(Clone, Default)]
struct Side {
    blocks: VecDeque<Item>,
    bytes: usize,
    total: u64,
    /// The last block that came was not kept.
    is_full: bool,
}

impl Side {
    /// Adds a block; the oldest go that cannot be shown any more.
    ///
    /// Masking may make a block shorter, so twice as much is kept as fits.
    fn push_newest(&mut self, item: Item, budget: usize) {
        self.total += 1;
        self.bytes += item.text.len();
        self.blocks.push_back(item);
        while self.blocks.len() > 1 && self.bytes - self.blocks[0].text.len() > budget * 2 {
            self.bytes -= self.blocks.pop_front().map_or(0, |block| block.text.len());
        }
    }

    /// Adds a block unless there are enough older ones.
    fn push_while_room(&mut self, item: Item, budget: usize) {
        self.total += 1;
        self.is_full |= self.bytes > budget * 2;
        if !self.is_full {
            self.bytes += item.text.len();
            self.blocks.push_back(item);
        }
    }

    /// Masks the blocks, nearest first, and returns how many secrets each hides.
    fn masked(self, redaction: Redaction, nearest: Nearest) -> (Vec<Item>, Vec<u64>) {
        let mask = |block: Item| {
            let (text, redacted) = masked(&block.text, redaction);
            (Item { text, reopen: block.reopen }, redacted)
        };
        match nearest {
            Nearest::Last => self.blocks.into_iter().rev().map(mask).unzip(),
            Nearest::First => self.blocks.into_iter().map(mask).unzip(),
        }
    }
}

#[derive(Clone, Copy)]
enum Nearest {
    First,
    Last,
}

impl<'a> Reading<'a> {
    fn new(foreign: &'a Foreign, family: &'a [Foreign], asked: &'a Asked) -> Self {
        Self {
            asked,
            children: family.iter().map(|child| (&child.id, child)).collect(),
            seen: HashSet::from([&foreign.id]),
            num_messages: 0,
            seq: 0,
            taken_back: 0,
            opened: Vec::new(),
            before: Side::default(),
            at: None,
            after: Side::default(),
            compacted: None,
        }
    }

    /// Reads a session; what sub-agents did stands where they did it: where the session says so, else by their times,
    /// or behind everything when nothing tells where.
    fn session(&mut self, foreign: &'a Foreign, reopen: &str, depth: usize) -> Result<Told> {
        let mut children: Vec<&Foreign> = self
            .children
            .values()
            .copied()
            .filter(|child| child.parent.as_ref() == Some(&foreign.id) && !self.seen.contains(&child.id))
            .collect();
        children.sort_by_key(|child| (child.created_at, &child.id));
        // What says the place of one may stand far behind its beginning, so all of the session has to be read before
        // the first can be placed by its time: it is read twice instead of being held.
        let kin = if depth < DEPTH_MAX { Kin::of(foreign, &children, &|| false) } else { None };
        let kin = kin.unwrap_or_default();
        // What was taken back is not shown, and neither is who was asked there.
        children.retain(|child| kin.stands(&child.id) != Stands::TakenBack);
        let mut by_time = unlinked(&kin, &children);
        let told = sess_readers::read(foreign, &mut |entry| {
            while let Some((_, child)) =
                by_time.pop_front_if(|(began_at, _)| is_after(&entry, *began_at, foreign))
            {
                self.child(child, reopen, depth);
            }
            self.entry(&entry, reopen, depth);
            ControlFlow::Continue(())
        });
        let told = told.map_err(|error| Error::Unavailable(error.to_string()))?;
        // Those that were shown are not shown again, and of one that another one started that one says where.
        children.sort_by_key(|child| kin.stands(&child.id) == Stands::InMessage);
        for child in children {
            self.child(child, reopen, depth);
        }
        Ok(told)
    }

    fn entry(&mut self, entry: &Entry, reopen: &str, depth: usize) {
        let is_own = depth == 0;
        self.seq += u64::from(is_own);
        let is_counted = is_own && entry.body.role != Role::System;
        if entry.is_taken_back {
            self.taken_back += u64::from(is_counted);
            return;
        }
        self.num_messages += u64::from(is_counted);
        for block in &entry.body.content {
            if let Block::SubSession { session_id } = block
                && let Some(child) = self.children.get(session_id).copied()
            {
                self.child(child, reopen, depth);
            }
        }
        let is_compaction = entry.body.content.iter().any(|block| matches!(block, Block::Compaction { .. }));
        if is_own && is_compaction && matches!(self.asked.part, Part::Compacted) {
            self.compacted = Some(self.before.clone());
        }
        let is_wanted = is_counted && self.at.is_none() && self.is_wanted(entry);
        match transcript::block(&entry.body, self.asked.tools) {
            Some(text) => self.show(text, reopen, is_wanted),
            None if is_wanted => {
                self.show(format!("[message {} has nothing to show]", self.seq), reopen, true);
            }
            None => {}
        }
    }

    fn is_wanted(&self, entry: &Entry) -> bool {
        let Part::Around(wanted) = &self.asked.part else { return false };
        match place(wanted) {
            Some(seq) => seq == self.seq,
            None => entry.id.as_ref() == Some(wanted),
        }
    }

    fn show(&mut self, text: String, reopen: &str, is_wanted: bool) {
        let opened = std::mem::take(&mut self.opened);
        // A block that opens a sub-session shows its headings itself.
        let (text, reopen) = match opened.first() {
            None => (text, reopen.to_owned()),
            Some(_) => {
                let outside = reopen.strip_suffix(&opened.join("\n\n")).unwrap_or_default().trim_end();
                (format!("{}\n\n{text}", opened.join("\n\n")), outside.to_owned())
            }
        };
        let item = Item { text, reopen };
        if is_wanted {
            self.at = Some(item);
        } else if self.at.is_some() {
            self.after.push_while_room(item, self.asked.budget);
        } else {
            self.before.push_newest(item, self.asked.budget);
        }
    }

    /// Shows a sub-agent's session under its heading. One that cannot be read costs itself.
    fn child(&mut self, child: &'a Foreign, reopen: &str, depth: usize) {
        if depth >= DEPTH_MAX || !self.seen.insert(&child.id) {
            return;
        }
        let name = child.name.clone().unwrap_or_else(|| child.source.to_string());
        let open = transcript::sub_session_open(child.id.as_str(), &name);
        let inner = if reopen.is_empty() { open.clone() } else { format!("{reopen}\n\n{open}") };
        self.opened.push(open);
        if let Err(error) = self.session(child, &inner, depth + 1) {
            self.show(format!("[this sub-session cannot be shown: {error}]"), &inner, false);
        }
        if self.opened.pop().is_some() {
            // It showed nothing.
            return;
        }
        let side = if self.at.is_some() { &mut self.after } else { &mut self.before };
        let last = match side.blocks.back_mut() {
            Some(last) if !side.is_full => Some(last),
            Some(_) => None,
            None => self.at.as_mut(),
        };
        if let Some(last) = last {
            last.text = format!("{}\n\n{SUB_SESSION_END}", last.text);
        }
    }

    /// Chooses what fits.
    fn window(self, heading: &Heading<'_>) -> Result<(Window, u64)> {
        let Asked { redaction, budget, part, .. } = self.asked;
        let newest = |side: Side| {
            let total = side.total;
            let (items, redacted) = side.masked(*redaction, Nearest::Last);
            let window = transcript::newest(heading, total, items.into_iter(), *budget);
            let shown = usize::try_from(window.shown).unwrap_or(usize::MAX);
            let redacted = redacted.iter().take(shown).sum();
            (window, redacted)
        };
        match part {
            Part::Newest => Ok(newest(self.before)),
            Part::Compacted => self.compacted.map(newest).ok_or_else(|| {
                Error::NotFound("this session was not compacted: all of it is in front of you".to_owned())
            }),
            Part::Around(wanted) => {
                let Some(at) = self.at else {
                    let what = format!("message \"{wanted}\" not found in session \"{}\"", heading.id);
                    return Err(Error::NotFound(what));
                };
                let (text, mut redacted) = masked(&at.text, *redaction);
                let totals = (self.before.total, self.after.total);
                let (older, older_redacted) = self.before.masked(*redaction, Nearest::Last);
                let (newer, newer_redacted) = self.after.masked(*redaction, Nearest::First);
                let at = Item { text, reopen: at.reopen };
                let window =
                    transcript::around(heading, at, older.into_iter(), newer.into_iter(), totals, *budget);
                let shown =
                    |total: u64, left_out: u64| usize::try_from(total - left_out).unwrap_or(usize::MAX);
                redacted += older_redacted.iter().take(shown(totals.0, window.earlier)).sum::<u64>();
                redacted += newer_redacted.iter().take(shown(totals.1, window.later)).sum::<u64>();
                Ok((window, redacted))
            }
        }
    }
}

/// Returns the sub-sessions that nothing says the place of, and when each began, the first one first; not those of which
/// nobody knows when.
fn unlinked<'a>(kin: &Kin, children: &[&'a Foreign]) -> VecDeque<(Timestamp, &'a Foreign)> {
    let left = children.iter().copied().filter(|child| kin.stands(&child.id) == Stands::Nowhere);
    let mut began: Vec<_> = left.filter_map(|child| Some((began_at(child)?, child))).collect();
    began.sort_by_key(|(began_at, child)| (*began_at, &child.id));
    began.into()
}

/// Returns when a session began: as its list says, else when its first message was said.
fn began_at(child: &Foreign) -> Option<Timestamp> {
    let mut first = child.created_at;
    if first.is_none() {
        let _told = sess_readers::read(child, &mut |entry| {
            first = Some(entry.body.timestamp).filter(|_| has_time(&entry, child));
            ControlFlow::Break(())
        });
    }
    first
}

/// Tells whether a message was said after an instant. What was taken back shows nothing that could stand behind it.
fn is_after(entry: &Entry, instant: Timestamp, of: &Foreign) -> bool {
    !entry.is_taken_back && entry.body.timestamp > instant && has_time(entry, of)
}

/// Tells whether a message has a time of its own. Without one it has that of its session, which is the end where the
/// beginning is not known: then nothing stands before it.
fn has_time(entry: &Entry, of: &Foreign) -> bool {
    of.created_at.is_some() || entry.body.timestamp != of.updated_at
}
