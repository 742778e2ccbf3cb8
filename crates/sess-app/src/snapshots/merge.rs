//! What a snapshot has and what its original says now, put side by side.
//!
//! Nothing that was kept goes: what the original says as before, or goes on with, is replaced by that; what it says
//! in other words stands behind its former words; what it lacks stays.
//!
//! Entries are told apart by their ids. Some have none, and of some of those nobody knows when they were said, so that
//! they have another time whenever their file changes: they go by their words, and one that goes on by its place.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher},
    io, iter,
    path::Path,
};

use serde_json::{Map, Value};
use sess_core::message::{Block, Body};
use sess_readers::{
    Entry, Error,
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
pub(super) type Place = (usize, usize);

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
    /// By chunk of the old ones; empty for one that is damaged and of which the original has not enough to take its
    /// place.
    fates: Vec<Vec<Fate>>,
    /// The old ones of which nobody knows what they said.
    damaged: HashSet<usize>,
    /// By chunk of the new ones: which entries have a place beside an old one.
    is_used: Vec<Vec<bool>>,
}

/// What a merge picks to be kept from now on.
pub(super) enum Pick {
    Old(Place),
    New(Place),
    /// An old chunk of which nobody knows what it said, and whose place nothing takes: as long as it is named, it is
    /// told of, and it may be found again.
    Damaged(usize),
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
    /// Compares a snapshot's chunks with those of a newer copy, whose keys are given in their order. What cannot be
    /// read just now is an error; what is damaged has no more to say.
    pub(super) fn of(dir: &'a Path, old: &'a [Chunk], new: &'a [Chunk], keys: &[Key]) -> Result<Self, Error> {
        let is_used = new.iter().map(|chunk| vec![false; len(chunk)]).collect();
        let (fates, damaged) = (vec![Vec::new(); old.len()], HashSet::new());
        let mut merge = Self { dir, old, new, fates, damaged, is_used };
        let others = merge.pass_over_shared();
        let mut kept = merge.find_same(&others, keys)?;
        let mut names = merge.namesakes(&kept, keys);
        merge.find_again(&mut kept, &mut names);
        merge.find_grown(&mut kept, &names)?;
        merge.find_changed(&kept, &names);
        merge.find_going_on(&kept)?;
        merge.replace_damaged(&others);
        Ok(merge)
    }

    /// Names the entries of the newer copy that have no place beside an old one, the last first.
    fn unused<'k>(&self, keys: &'k [Key]) -> impl Iterator<Item = (Place, &'k Key)> {
        let chunks = self.new.iter().enumerate().rev();
        let places = chunks.flat_map(|(at, chunk)| (0..len(chunk)).rev().map(move |n| (at, n)));
        places.zip(keys.iter().rev()).filter(|(place, _)| self.is_unused(*place))
    }

    /// Finds what the original has as it is among these chunks; returns the rest.
    fn find_same(&mut self, chunks: &[usize], keys: &[Key]) -> Result<Vec<Kept>, Error> {
        // The first is at the end, to be taken.
        let mut versions = HashMap::<u64, Vec<Place>>::new();
        for (place, key) in self.unused(keys) {
            versions.entry(key.version).or_default().push(place);
        }
        let mut kept = Vec::new();
        for &chunk in chunks {
            let content = match self.old[chunk].content(self.dir) {
                Ok(content) => content,
                Err(error) if is_damage(&error) => {
                    self.damaged.insert(chunk);
                    continue;
                }
                Err(error) => return Err(error),
            };
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
        Ok(kept)
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
    fn find_grown(&mut self, kept: &mut Vec<Kept>, names: &HashMap<u64, Vec<Place>>) -> Result<(), Error> {
        let (mut then, mut now) = self.shelves();
        let mut rest = Vec::new();
        for it in kept.drain(..) {
            let namesakes = names.get(&it.key.name).filter(|_| it.key.has_id);
            let unused = namesakes.into_iter().flatten().rev().filter(|place| self.is_unused(**place));
            let mut grown = None;
            for place in unused.take(NAMESAKES_MAX) {
                if goes_on_as(then.get(it.at)?, now.get(*place)?) {
                    grown = Some(*place);
                    break;
                }
            }
            match grown {
                Some(place) => self.pair(it.at, Fate::Grown(place)),
                None => rest.push(it),
            }
        }
        *kept = rest;
        Ok(())
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
    fn find_going_on(&mut self, kept: &[Kept]) -> Result<(), Error> {
        let (mut then, mut now) = self.shelves();
        for Kept { at, .. } in kept.iter().filter(|kept| !kept.key.has_id) {
            let Some(place) = self.next_of(*at).filter(|place| self.is_unused(*place)) else { continue };
            let now = now.get(place)?.filter(|now| now.id.is_none());
            if goes_on_as(then.get(*at)?, now) {
                self.pair(*at, Fate::Grown(place));
            }
        }
        Ok(())
    }

    /// Finds what stands in the original where a damaged chunk stood: as many entries are what it said. Fewer may be
    /// something else.
    fn replace_damaged(&mut self, chunks: &[usize]) {
        for &chunk in chunks.iter().filter(|chunk| self.damaged.contains(chunk)).collect::<Vec<_>>() {
            let mut before = self.fates[..chunk].iter().flatten().rev().filter_map(|fate| fate.place());
            let first = before.next().map_or((0, 0), |place| self.behind(place));
            let len = len(&self.old[chunk]);
            let places = iter::successors(Some(first), |place| Some(self.behind(*place)));
            let unused: Vec<Place> = places.take(len).take_while(|place| self.is_unused(*place)).collect();
            if unused.len() == len {
                self.fates[chunk] = unused.iter().map(|place| Fate::Again(*place)).collect();
                unused.into_iter().for_each(|place| self.take(place));
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
        before.place().map(|place| self.behind(place))
    }

    /// Returns the next place of the newer copy, which may be behind its end.
    fn behind(&self, (chunk, n): Place) -> Place {
        let is_last = self.is_used.get(chunk).is_none_or(|used| n + 1 >= used.len());
        if is_last { (chunk + 1, 0) } else { (chunk, n + 1) }
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
        let damaged = self.damaged.iter().filter(|chunk| self.fates[**chunk].is_empty());
        let lost = self.count(|fate| matches!(fate, Fate::Gone | Fate::Changed(_)));
        damaged.fold(lost, |lost, chunk| lost.saturating_add(self.old[*chunk].num_entries))
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

    /// Names what is kept from now on, in its order: what the snapshot has, and behind it what is new.
    pub(super) fn picks(&self) -> impl Iterator<Item = Pick> {
        let old = self.fates.iter().enumerate().flat_map(|(chunk, fates)| {
            let is_lost = fates.is_empty() && self.damaged.contains(&chunk);
            let kept = fates.iter().enumerate().flat_map(move |(n, fate)| match *fate {
                Fate::Same(_) | Fate::Gone => [Some(Pick::Old((chunk, n))), None],
                Fate::Again(place) | Fate::Grown(place) => [Some(Pick::New(place)), None],
                Fate::Changed(place) => [Some(Pick::Old((chunk, n))), Some(Pick::New(place))],
            });
            is_lost.then_some(Pick::Damaged(chunk)).into_iter().chain(kept.flatten())
        });
        let new = self.is_used.iter().enumerate().flat_map(|(chunk, used)| {
            let unused = used.iter().enumerate().filter(|(_, is_used)| !**is_used);
            unused.map(move |(n, _)| Pick::New((chunk, n)))
        });
        old.chain(new)
    }

    /// Returns what reads old entries and new ones.
    pub(super) fn shelves(&self) -> (Shelf<'a>, Shelf<'a>) {
        (Shelf::new(self.dir, self.old), Shelf::new(self.dir, self.new))
    }
}

/// The entries of chunks, with one chunk in memory at a time.
pub(super) struct Shelf<'a> {
    dir: &'a Path,
    chunks: &'a [Chunk],
    open: Option<(usize, Vec<Entry>)>,
}

impl<'a> Shelf<'a> {
    fn new(dir: &'a Path, chunks: &'a [Chunk]) -> Self {
        Self { dir, chunks, open: None }
    }

    /// Returns the entry at a place, or why it cannot be read.
    pub(super) fn get(&mut self, (chunk, n): Place) -> Result<Option<&Entry>, Error> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != chunk) {
            let content = self.chunks[chunk].content(self.dir)?;
            self.open = Some((chunk, snapshot::entries(&content).collect()));
        }
        Ok(self.open.as_ref().and_then(|(_, entries)| entries.get(n)))
    }
}

fn len(chunk: &Chunk) -> usize {
    usize::try_from(chunk.num_entries).unwrap_or(usize::MAX)
}

/// Tells whether a chunk that could not be read is not what was written, for good: another error of the system may be
/// gone the next time.
fn is_damage(error: &Error) -> bool {
    match error {
        Error::Io { source, .. } => {
            source.kind() == io::ErrorKind::NotFound || source.raw_os_error().is_none()
        }
        Error::Format { .. } | Error::Gone(_) => true,
        Error::Database { .. } | Error::Busy(_) => false,
    }
}

/// Tells whether an entry goes on with another one.
fn goes_on_as(before: Option<&Entry>, now: Option<&Entry>) -> bool {
    before.zip(now).is_some_and(|(before, now)| has_all(&before.body, &now.body))
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
