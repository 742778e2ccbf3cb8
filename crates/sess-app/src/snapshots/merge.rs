//! What a snapshot has and what its original says now, put side by side.
//!
//! Nothing that was kept goes: what the original says as before, or goes on with, is replaced by that; what it says
//! in other words stands behind its former words; what it lacks stays.

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
    /// Its agent's id of it, or else what it says.
    name: u64,
    /// All of it.
    version: u64,
}

/// What became of an entry that was kept.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// The original says the same.
    Same,
    /// The original goes on with it, at this place.
    Grown(Place),
    /// The original says it in other words, at this place.
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
    name: u64,
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
        let name = match &entry.id {
            Some(id) => hasher.hash_one(id),
            None => hasher
                .hash_one(serde_json::to_string(&entry.body).expect("a message body has string keys only")),
        };
        Self { name, version: hasher.hash_one(line) }
    }
}

impl<'a> Merge<'a> {
    /// Compares a snapshot's chunks with those of a newer copy, whose keys are given in their order.
    pub(super) fn of(dir: &'a Path, old: &'a [Chunk], new: &'a [Chunk], keys: &[Key]) -> Self {
        let is_used = new.iter().map(|chunk| vec![false; len(chunk)]).collect();
        let mut merge = Self { dir, old, new, fates: vec![Vec::new(); old.len()], is_used };
        let others = merge.pass_over_shared();
        let (mut versions, mut names) =
            (HashMap::<u64, Vec<Place>>::new(), HashMap::<u64, Vec<Place>>::new());
        let places = new.iter().enumerate().flat_map(|(at, chunk)| (0..len(chunk)).map(move |n| (at, n)));
        // The last first, so that the first is at the end, to be taken.
        for (place, key) in places.zip(keys).collect::<Vec<_>>().into_iter().rev() {
            if !merge.is_used[place.0][place.1] {
                versions.entry(key.version).or_default().push(place);
                names.entry(key.name).or_default().push(place);
            }
        }
        let mut kept = Vec::new();
        for chunk in others {
            // What is damaged here cannot be kept: the copy is all there is.
            let content = old[chunk].content(dir).unwrap_or_default();
            for (n, entry) in snapshot::entries(&content).enumerate() {
                let key = Key::of(&entry, &snapshot::line(&entry));
                let same = versions.get_mut(&key.version).and_then(Vec::pop);
                merge.fates[chunk].push(if same.is_some() { Fate::Same } else { Fate::Gone });
                match same {
                    Some(place) => merge.take(place),
                    None if names.contains_key(&key.name) => {
                        kept.push(Kept { at: (chunk, n), name: key.name });
                    }
                    None => {}
                }
            }
        }
        merge.find_grown(&mut kept, &names);
        merge.find_changed(&kept, &names);
        merge
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
                    self.fates[at] = vec![Fate::Same; len(chunk)];
                    self.is_used[new].fill(true);
                }
                None => others.push(at),
            }
        }
        others
    }

    /// Finds what the original goes on with, and leaves the rest of `kept`.
    fn find_grown(&mut self, kept: &mut Vec<Kept>, names: &HashMap<u64, Vec<Place>>) {
        let (mut then, mut now) = (Shelf::new(self.dir, self.old), Shelf::new(self.dir, self.new));
        kept.retain(|Kept { at, name }| {
            let Some(before) = then.get(*at) else { return true };
            let namesakes = names[name].iter().rev().filter(|place| !self.is_used[place.0][place.1]);
            let goes_on =
                |place: &&Place| now.get(**place).is_some_and(|now| has_all(&before.body, &now.body));
            let grown = namesakes.take(NAMESAKES_MAX).find(goes_on).copied();
            if let Some(place) = grown {
                self.take(place);
                self.fates[at.0][at.1] = Fate::Grown(place);
            }
            grown.is_none()
        });
    }

    /// Finds what the original says in other words.
    fn find_changed(&mut self, kept: &[Kept], names: &HashMap<u64, Vec<Place>>) {
        for Kept { at, name } in kept {
            let changed = names[name].iter().rev().find(|place| !self.is_used[place.0][place.1]).copied();
            if let Some(place) = changed {
                self.take(place);
                self.fates[at.0][at.1] = Fate::Changed(place);
            }
        }
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
                    Fate::Same | Fate::Gone => give(&entry)?,
                    Fate::Grown(place) => give(shelf.get(*place).unwrap_or(&entry))?,
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
    before.role == now.role && before.content.iter().all(|part| parts.any(|now| goes_on(part, now)))
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
