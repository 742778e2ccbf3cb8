//! What a log of changes comes to: where the last wording of each message is.

use std::{
    collections::{HashMap, HashSet},
    io,
    ops::ControlFlow,
    os::unix::fs::FileExt,
    path::Path,
};

use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::message;
use crate::{
    Error, Result, Told,
    files::{self, Lines},
    json, lenient,
    session::name,
};

/// The messages of a log, in the order in which they were first said; some dozen bytes each.
pub(super) struct Log {
    slots: Vec<Slot>,
    pub told: Told,
}

pub(super) struct Slot {
    start: u64,
    len: usize,
    /// Its place among the messages of a checkpoint, when it stands in one.
    place: Option<usize>,
    /// Here a summary took the place of what came before.
    pub summary: Option<String>,
    is_taken_back: bool,
    is_spoken: bool,
}

#[derive(Deserialize)]
struct Record<'a> {
    id: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(rename = "$rewindTo")]
    rewind_to: Option<String>,
    #[serde(rename = "$set", borrow)]
    set: Option<&'a RawValue>,
    #[serde(rename = "sessionId")]
    session_id: Option<String>,
}

/// What a record sets. Each field counts for itself.
#[derive(Deserialize)]
struct Set<'a> {
    #[serde(borrow)]
    messages: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "lenient::text")]
    summary: Option<String>,
}

impl Log {
    pub(super) fn of(path: &Path) -> Result<Self> {
        let log = Self { slots: Vec::new(), told: Told::default() };
        let mut replay = Replay { log, live: Vec::new(), gap: 0 };
        let mut known = HashMap::new();
        let mut told = Told::default();
        files::each(Lines::open(path)?, &mut told, |start, line| {
            let read = replay.record(start, line, &mut known);
            if read.is_none() {
                replay.gap = replay.live.len();
            }
            read.map(ControlFlow::Continue)
        })?;
        replay.log.told.bad += told.bad;
        replay.log.told.is_torn = told.is_torn;
        Ok(replay.log)
    }

    /// Hands over each slot with the message that is there.
    pub(super) fn each(
        self,
        path: &Path,
        mut give: impl FnMut(Slot, Value, bool) -> ControlFlow<()>,
    ) -> Result<()> {
        let (file, _) = files::open(path)?;
        let mut line = Vec::new();
        // The checkpoint that was read last: its messages mostly stand together.
        let mut checkpoint = (u64::MAX, Checkpoint::default());
        for slot in self.slots {
            if slot.summary.is_none() && checkpoint.0 != slot.start {
                line.resize(slot.len, 0);
                match file.read_exact_at(&mut line, slot.start) {
                    // It was cut short since.
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
                    read => read.map_err(|source| Error::Io { path: path.to_owned(), source })?,
                }
                if slot.place.is_some() {
                    checkpoint = (slot.start, serde_json::from_slice(&line).unwrap_or_default());
                }
            }
            let message = match slot.place {
                _ if slot.summary.is_some() => Value::Null,
                Some(place) => checkpoint.1.message(place),
                None => json::from_slice(&line).unwrap_or_default(),
            };
            let is_taken_back = slot.is_taken_back;
            if give(slot, message, is_taken_back).is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// A record whose messages take the place of what there was. Each is read on its own: a bad one costs itself.
#[derive(Default, Deserialize)]
struct Checkpoint {
    #[serde(rename = "$set")]
    set: Messages,
}

#[derive(Default, Deserialize)]
struct Messages {
    messages: Vec<Box<RawValue>>,
}

impl Checkpoint {
    fn message(&self, place: usize) -> Value {
        let message = self.set.messages.get(place);
        message.and_then(|message| json::from_str(message.get()).ok()).unwrap_or_default()
    }
}

struct Replay {
    log: Log,
    /// The slots that the conversation consists of now, and the ids of their messages.
    live: Vec<(u64, usize)>,
    /// How many there were before the last record that could not be read.
    gap: usize,
}

/// Where the live messages are, by id.
type Known = HashMap<u64, usize>;

impl Replay {
    /// Sees a record; none when it cannot be read.
    fn record(&mut self, start: u64, line: &[u8], known: &mut Known) -> Option<()> {
        let place = (start, line.len());
        match serde_json::from_slice::<Record<'_>>(line).ok()? {
            Record { rewind_to: Some(id), .. } => self.rewind(name(&id), known),
            Record { set: Some(set), .. } => self.set(set, place, known)?,
            Record { id: Some(id), kind, .. } => {
                self.message(name(&id), kind.as_deref(), place, None, known);
            }
            record => self.log.told.unknown += u64::from(record.session_id.is_none()),
        }
        Some(())
    }

    /// Sees what a record sets; none when its checkpoint cannot be read.
    fn set(&mut self, set: &RawValue, place: (u64, usize), known: &mut Known) -> Option<()> {
        let mut mended = Vec::new();
        let set = json::borrowed::<Set<'_>>(set.get().as_bytes(), &mut mended).ok()?;
        let summary = set.summary.as_deref().map(json::title).filter(|title| !title.is_empty());
        self.log.told.title = summary.or(self.log.told.title.take());
        let Some(messages) = set.messages else { return Some(()) };
        let messages: Vec<&RawValue> = serde_json::from_str(messages.get()).ok()?;
        let messages: Vec<&str> = messages.into_iter().map(RawValue::get).collect();
        self.checkpoint(&messages, place, known);
        Some(())
    }

    fn message(
        &mut self,
        id: u64,
        kind: Option<&str>,
        (start, len): (u64, usize),
        place: Option<usize>,
        known: &mut Known,
    ) {
        if let Some(slot) = known.get(&id).and_then(|slot| self.log.slots.get_mut(*slot)) {
            if slot.summary.is_none() {
                (slot.start, slot.len, slot.place) = (start, len, place);
            }
            return;
        }
        let is_spoken = matches!(kind, Some("user" | "gemini"));
        self.add(id, Slot { start, len, place, summary: None, is_taken_back: false, is_spoken }, known);
    }

    fn add(&mut self, id: u64, slot: Slot, known: &mut Known) {
        let at = self.log.slots.len();
        self.log.slots.push(slot);
        self.live.push((id, at));
        known.insert(id, at);
    }

    /// Takes back a message and all after it; all there are when there is no such message, or those after
    /// the record that could not be read, which may have been it.
    fn rewind(&mut self, id: u64, known: &mut Known) {
        let from =
            self.live.iter().position(|(live, _)| *live == id).unwrap_or(self.gap.min(self.live.len()));
        for (id, slot) in self.live.drain(from..) {
            known.remove(&id);
            self.log.slots[slot].is_taken_back = true;
        }
    }

    /// Goes on with other messages than there were. Where some are left out that was a
    /// compaction: they stay, and the new ones are its summary.
    fn checkpoint(&mut self, messages: &[&str], line: (u64, usize), known: &mut Known) {
        if messages.is_empty() {
            return;
        }
        let kept: Vec<Option<Kept>> = messages.iter().map(|message| Kept::of(message)).collect();
        let ids: HashSet<u64> = kept.iter().flatten().map(|kept| kept.id).collect();
        let is_left_out = |(id, slot): &(u64, usize)| self.log.slots[*slot].is_spoken && !ids.contains(id);
        let is_compaction = self.live.iter().any(is_left_out);
        let before = std::mem::take(&mut self.live);
        let mut summary = String::new();
        let mut summary_ids = Vec::new();
        for (place, kept) in kept.into_iter().enumerate() {
            match kept {
                Some(kept) => match known.get(&kept.id) {
                    Some(slot) => self.live.push((kept.id, *slot)),
                    None if is_compaction => {
                        let text = message::text(&json::from_str(messages[place]).unwrap_or_default());
                        summary = [summary, text].join("\n").trim().to_owned();
                        summary_ids.push(kept.id);
                    }
                    None => self.message(kept.id, kept.kind.as_deref(), line, Some(place), known),
                },
                None => self.log.told.bad += 1,
            }
        }
        if is_compaction {
            for (id, _) in before.iter().filter(|(id, _)| !ids.contains(id)) {
                known.remove(id);
            }
            let (start, len) = line;
            let slot = Slot {
                start,
                len,
                place: None,
                summary: Some(summary),
                is_taken_back: false,
                is_spoken: false,
            };
            let at = self.log.slots.len();
            self.log.slots.push(slot);
            let ids: Vec<(u64, usize)> = summary_ids.into_iter().map(|id| (id, at)).collect();
            known.extend(ids.iter().copied());
            self.live.splice(0..0, ids);
        } else {
            // What the model never sees, such as notices, is not in a checkpoint.
            let left = before.into_iter().filter(|(id, _)| !ids.contains(id));
            self.live.extend(left);
        }
    }
}

/// A message of a checkpoint, as far as it must be known.
struct Kept {
    id: u64,
    kind: Option<String>,
}

impl Kept {
    fn of(message: &str) -> Option<Self> {
        let record: Record<'_> = serde_json::from_str(message).ok()?;
        Some(Self { id: name(&record.id?), kind: record.kind })
    }
}
