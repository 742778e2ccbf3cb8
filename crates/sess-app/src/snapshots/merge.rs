//! What a snapshot has and what its original says now, put side by side.
//!
//! Nothing that was kept goes: what the original says as before, or goes on with, is replaced by that; what it says
//! in other words stands behind its former words; what it lacks stays.
//!
//! Entries are told apart by their ids. Some have none, and of some of those nobody knows when they were said, so that
//! they have another time whenever their file changes: they go by their words, and one that goes on by its place.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher},
    path::Path,
};

use serde_json::{Map, Value};
use sess_core::message::{Block, Body};
use sess_readers::{
    Entry,
    snapshot::{self, Chunk},
};

/// Of so many entries with one name, each is looked at for whether it goes on with what was kept: agents give a name
/// to a few records at most.
const NAMESAKES_MAX: usize = 64;

/// What tells an entry from the others, in little memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    /// Its agent's id of it, or else its words.
    name: u64,
    has_id: bool,
    /// All of it.
    version: u64,
}

/// What became of an entry that was kept.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// The original has it as it is, at this place.
    Same(Place),
    /// The original has its words, with another time or another count of what they took.
    Again(Place),
    /// The original goes on with it.
    Grown(Place),
    /// The original says it in other words.
    Changed(Place),
    /// The original has it no more.
    Gone,
}

/// A chunk, and an entry in it.
type Place = (usize, usize);

/// An entry of the snapshot that the original does not say as before. What it says is read again where that counts:
/// of an original that was rewound near its beginning this is nearly all.
struct Kept {
    at: Place,
    key: Key,
}

impl Fate {
    /// Returns where the original has it.
    fn place(self) -> Option<Place> {
        match self {
            Self::Same(place) | Self::Again(place) | Self::Grown(place) | Self::Changed(place) => Some(place),
            Self::Gone => None,
        }
    }
}

/// How a snapshot and a newer copy of its session fit together.
pub(super) struct Merge<'a> {
    dir: &'a Path,
    old: &'a [Chunk],
    new: &'a [Chunk],
    /// By chunk of the old ones; empty for one that is damaged.
    fates: Vec<Vec<Fate>>,
    /// By chunk of the new ones: which entries have a place beside an old one.
    is_used: Vec<Vec<bool>>,
}

impl Key {
    /// Returns the key of an entry whose line in a chunk is known.
    pub(super) fn of(entry: &Entry, line: &str) -> Self {
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        let words = || {
            let Body { role, tool_call_id, content, .. } = &entry.body;
            serde_json::to_string(&(role, tool_call_id, content)).expect("blocks have string keys only")
        };
        let name = entry.id.as_ref().map_or_else(|| hasher.hash_one(words()), |id| hasher.hash_one(id));
        Self { name, has_id: entry.id.is_some(), version: hasher.hash_one(line) }
    }
}

impl<'a> Merge<'a> {
    /// Compares a snapshot's chunks with those of a newer copy, whose keys are given in their order.
    pub(super) fn of(dir: &'a Path, old: &'a [Chunk], new: &'a [Chunk], keys: &[Key]) -> Self {
        let is_used = new.iter().map(|chunk| vec![false; len(chunk)]).collect();
        let mut merge = Self { dir, old, new, fates: vec![Vec::new(); old.len()], is_used };
        let others = merge.pass_over_shared();
        let mut kept = merge.find_same(&others, keys);
        let mut names = merge.namesakes(&kept, keys);
        merge.find_again(&mut kept, &mut names);
        merge.find_grown(&mut kept, &names);
        merge.find_changed(&kept, &names);
        merge.find_going_on(&kept);
        merge
    }

    /// Names the entries of the newer copy that have no place beside an old one, the last first.
    fn unused<'k>(&self, keys: &'k [Key]) -> impl Iterator<Item = (Place, &'k Key)> {
        let chunks = self.new.iter().enumerate().rev();
        let places = chunks.flat_map(|(at, chunk)| (0..len(chunk)).rev().map(move |n| (at, n)));
        places.zip(keys.iter().rev()).filter(|(place, _)| self.is_unused(*place))
    }

    /// Finds what the original has as it is among these chunks; returns the rest.
    fn find_same(&mut self, chunks: &[usize], keys: &[Key]) -> Vec<Kept> {
        // The first is at the end, to be taken.
        let mut versions = HashMap::<u64, Vec<Place>>::new();
        for (place, key) in self.unused(keys) {
            versions.entry(key.version).or_default().push(place);
        }
        let mut kept = Vec::new();
        for &chunk in chunks {
            // What is damaged here cannot be kept: the copy is all there is.
            let content = self.old[chunk].content(self.dir).unwrap_or_default();
            for (n, entry) in snapshot::entries(&content).enumerate() {
                let key = Key::of(&entry, &snapshot::line(&entry));
                let same = versions.get_mut(&key.version).and_then(Vec::pop);
                self.fates[chunk].push(same.map_or(Fate::Gone, Fate::Same));
                match same {
                    Some(place) => self.take(place),
                    None => kept.push(Kept { at: (chunk, n), key }),
                }
            }
        }
        kept
    }

    /// Returns where the original has what is called as something that was kept; the first place is at the end.
    fn namesakes(&self, kept: &[Kept], keys: &[Key]) -> HashMap<u64, Vec<Place>> {
        let mut names: HashMap<u64, Vec<Place>> =
            kept.iter().map(|kept| (kept.key.name, Vec::new())).collect();
        for (place, key) in self.unused(keys) {
            if let Some(places) = names.get_mut(&key.name) {
                places.push(place);
            }
        }
        names
    }

    /// Takes the chunks that both have as they are; returns the old ones that only the snapshot has.
    fn pass_over_shared(&mut self) -> Vec<usize> {
        let mut same: HashMap<&Chunk, Vec<usize>> = HashMap::new();
        for (at, chunk) in self.new.iter().enumerate().rev() {
            same.entry(chunk).or_default().push(at);
        }
        let mut others = Vec::new();
        for (at, chunk) in self.old.iter().enumerate() {
            match same.get_mut(chunk).and_then(Vec::pop) {
                Some(new) => {
                    self.fates[at] = (0..len(chunk)).map(|n| Fate::Same((new, n))).collect();
                    self.is_used[new].fill(true);
                }
                None => others.push(at),
            }
        }
        others
    }

    /// Finds what the original says again among what has no id, and leaves the rest of `kept`.
    fn find_again(&mut self, kept: &mut Vec<Kept>, names: &mut HashMap<u64, Vec<Place>>) {
        kept.retain(|Kept { at, key }| {
            let again = if key.has_id { None } else { names.get_mut(&key.name).and_then(Vec::pop) };
            if let Some(place) = again {
                self.pair(*at, Fate::Again(place));
            }
            again.is_none()
        });
    }

    /// Finds what the original goes on with, and leaves the rest of `kept`.
    fn find_grown(&mut self, kept: &mut Vec<Kept>, names: &HashMap<u64, Vec<Place>>) {
        let (mut then, mut now) = (Shelf::new(self.dir, self.old), Shelf::new(self.dir, self.new));
        kept.retain(|Kept { at, key }| {
            let namesakes = names.get(&key.name).filter(|places| key.has_id && !places.is_empty());
            let Some((namesakes, before)) = namesakes.zip(then.get(*at)) else { return true };
            let goes_on =
                |place: &&Place| now.get(**place).is_some_and(|now| has_all(&before.body, &now.body));
            let unused = namesakes.iter().rev().filter(|place| self.is_unused(**place));
            let grown = unused.take(NAMESAKES_MAX).find(goes_on).copied();
            if let Some(place) = grown {
                self.pair(*at, Fate::Grown(place));
            }
            grown.is_none()
        });
    }

    /// Finds what the original says in other words: without an id nobody knows what that is.
    fn find_changed(&mut self, kept: &[Kept], names: &HashMap<u64, Vec<Place>>) {
        for Kept { at, key } in kept.iter().filter(|kept| kept.key.has_id) {
            let changed = names[&key.name].iter().rev().find(|place| self.is_unused(**place)).copied();
            if let Some(place) = changed {
                self.pair(*at, Fate::Changed(place));
            }
        }
    }

    /// Finds what the original goes on with among what has no id. It stands behind the same entry as before: anywhere
    /// else a "yes" that was dropped would be taken for the beginning of every "yes, but".
    fn find_going_on(&mut self, kept: &[Kept]) {
        let (mut then, mut now) = (Shelf::new(self.dir, self.old), Shelf::new(self.dir, self.new));
        for Kept { at, .. } in kept.iter().filter(|kept| !kept.key.has_id) {
            let Some(place) = self.next_of(*at).filter(|place| self.is_unused(*place)) else { continue };
            let both = then.get(*at).zip(now.get(place));
            if both.is_some_and(|(before, now)| now.id.is_none() && has_all(&before.body, &now.body)) {
                self.pair(*at, Fate::Grown(place));
            }
        }
    }

    /// Returns the place behind the one where the original has what stands in front of an old entry.
    fn next_of(&self, (chunk, n): Place) -> Option<Place> {
        let before = match (chunk, n.checked_sub(1)) {
            (_, Some(before)) => self.fates[chunk][before],
            (0, None) => return Some((0, 0)),
            (_, None) => *self.fates[chunk - 1].last()?,
        };
        let (at, place) = before.place()?;
        Some(if place + 1 < self.is_used[at].len() { (at, place + 1) } else { (at + 1, 0) })
    }

    fn pair(&mut self, at: Place, fate: Fate) {
        self.fates[at.0][at.1] = fate;
        if let Some(place) = fate.place() {
            self.take(place);
        }
    }

    /// Tells whether the newer copy has an entry at a place that has none beside it.
    fn is_unused(&self, (chunk, n): Place) -> bool {
        self.is_used.get(chunk).and_then(|used| used.get(n)) == Some(&false)
    }

    fn take(&mut self, place: Place) {
        self.is_used[place.0][place.1] = true;
    }

    /// Counts what the snapshot has and the original has not, or not in these words.
    pub(super) fn lost(&self) -> u64 {
        self.count(|fate| matches!(fate, Fate::Gone | Fate::Changed(_)))
    }

    /// Counts what the original says in other words.
    pub(super) fn changed(&self) -> u64 {
        self.count(|fate| matches!(fate, Fate::Changed(_)))
    }

    /// Tells whether anything was said since: the original goes on with something, or has what the snapshot lacks.
    pub(super) fn says_more(&self) -> bool {
        self.count(|fate| matches!(fate, Fate::Grown(_) | Fate::Changed(_))) > 0
            || self.is_used.iter().flatten().any(|is_used| !is_used)
    }

    fn count(&self, is_meant: impl Fn(&Fate) -> bool) -> u64 {
        self.fates.iter().flatten().filter(|fate| is_meant(fate)).count() as u64
    }

    /// Hands over what is kept from now on: what the snapshot has, and behind it what is new.
    pub(super) fn each<E>(&self, mut give: impl FnMut(&Entry) -> Result<(), E>) -> Result<(), E> {
        let mut shelf = Shelf::new(self.dir, self.new);
        for (chunk, fates) in self.old.iter().zip(&self.fates) {
            let content = chunk.content(self.dir).unwrap_or_default();
            for (entry, fate) in snapshot::entries(&content).zip(fates) {
                match fate {
                    Fate::Same(_) | Fate::Gone => give(&entry)?,
                    Fate::Again(place) | Fate::Grown(place) => give(shelf.get(*place).unwrap_or(&entry))?,
                    Fate::Changed(place) => {
                        give(&entry)?;
                        shelf.get(*place).map_or(Ok(()), &mut give)?;
                    }
                }
            }
        }
        for (at, is_used) in self.is_used.iter().enumerate() {
            for n in (0..is_used.len()).filter(|n| !is_used[*n]) {
                shelf.get((at, n)).map_or(Ok(()), &mut give)?;
            }
        }
        Ok(())
    }
}

/// The entries of chunks, with one chunk in memory at a time.
struct Shelf<'a> {
    dir: &'a Path,
    chunks: &'a [Chunk],
    open: Option<(usize, Vec<Entry>)>,
}

impl<'a> Shelf<'a> {
    fn new(dir: &'a Path, chunks: &'a [Chunk]) -> Self {
        Self { dir, chunks, open: None }
    }

    fn get(&mut self, (chunk, n): Place) -> Option<&Entry> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != chunk) {
            let content = self.chunks[chunk].content(self.dir).unwrap_or_default();
            self.open = Some((chunk, snapshot::entries(&content).collect()));
        }
        self.open.as_ref()?.1.get(n)
    }
}

fn len(chunk: &Chunk) -> usize {
    usize::try_from(chunk.num_entries).unwrap_or(usize::MAX)
}

/// Tells whether a message has all that it said before, in this order: it may go on, and have more parts.
fn has_all(before: &Body, now: &Body) -> bool {
    let mut parts = now.content.iter();
    let is_one = before.role == now.role && before.tool_call_id == now.tool_call_id;
    is_one && before.content.iter().all(|part| parts.any(|now| goes_on(part, now)))
}

fn goes_on(before: &Block, now: &Block) -> bool {
    match (before, now) {
        (Block::Text { text: before }, Block::Text { text: now })
        | (Block::Thinking { text: before, .. }, Block::Thinking { text: now, .. })
        | (Block::Compaction { summary: before }, Block::Compaction { summary: now }) => {
            now.starts_with(before.trim_end())
        }
        (
            Block::ToolCall { id: before_id, name: before_name, arguments: before },
            Block::ToolCall { id, name, arguments: now },
        ) => before_id == id && before_name == name && has_arguments(before, now),
        _ => before == now,
    }
}

/// A call that is being written has some of its arguments, and the beginning of one.
fn has_arguments(before: &Map<String, Value>, now: &Map<String, Value>) -> bool {
    before.iter().all(|(name, before)| match (before, now.get(name)) {
        (Value::String(before), Some(Value::String(now))) => now.starts_with(before.as_str()),
        (before, now) => Some(before) == now,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sess_core::{Timestamp, message::Role};

    use super::*;

    /// Parts are written as texts, or as the arguments of a call.
    #[track_caller]
    fn check(before: &[Value], now: &[Value], is_there: bool) {
        let body = |parts: &[Value]| {
            let part = |part: &Value| match part {
                Value::Object(arguments) => Block::ToolCall {
                    id: "1".to_owned(),
                    name: "edit".to_owned(),
                    arguments: arguments.clone(),
                },
                part => Block::Text { text: part.as_str().expect("a text").to_owned() },
            };
            let content = parts.iter().map(part).collect();
            Body { content, ..Body::text(Role::Assistant, "", Timestamp::default()) }
        };
        assert_eq!(has_all(&body(before), &body(now)), is_there, "{before:?} {now:?}");
    }

    #[test]
    fn what_goes_on_has_all_that_was_said() {
        check(&[json!("a")], &[json!("a")], true);
        check(&[json!("a ")], &[json!("a"), json!("b")], true);
        check(&[json!("a"), json!("b")], &[json!("ac"), json!("x"), json!("b")], true);
        check(&[json!("")], &[json!("a")], true);
        check(&[json!({})], &[json!({ "path": "a" })], true);
        check(&[json!({ "text": "a" })], &[json!({ "text": "ab", "path": "a" })], true);
        check(&[], &[], true);
        check(&[json!("ab")], &[json!("a")], false);
        check(&[json!("ab")], &[json!("xab")], false);
        check(&[json!("a"), json!("b")], &[json!("b"), json!("a")], false);
        check(&[json!("a"), json!("a")], &[json!("a")], false);
        check(&[json!({ "path": "a" })], &[json!({})], false);
        check(&[json!({ "n": 1 })], &[json!({ "n": 12 })], false);
        check(&[json!("a")], &[json!({})], false);
    }
}
