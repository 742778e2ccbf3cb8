//! Finding messages in other agents' sessions, without an index.
//!
//! Files are looked through as bytes first, on all cores, for a piece that every message
//! that is found must contain; only where it stands are they read as sessions. Whoever has an
//! index says which of them cannot have anything, by the terms of the search.

mod terms;
mod words;

use std::{
    borrow::Cow,
    cmp::Reverse,
    collections::{HashMap, VecDeque},
    io::Read,
    ops::{ControlFlow, Range},
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use regex::{Regex, RegexBuilder, bytes};
use sess_core::{SessionId, Source, Timestamp, message::Role, redact::redact};

pub use self::terms::{Gathered, Term, Terms};
use self::words::{Word, small, words};
use crate::{
    Entry, Foreign, Kin, Result, Stands, Told, catalogue::is_after_change, files, is_in_one_file, read,
};

/// How much of a file is looked at in one go.
const CHUNK_SIZE_BYTES: usize = 1 << 20;
/// How large the program of an expression may become.
const PATTERN_SIZE_BYTES_MAX: usize = 1 << 20;

/// What a message must be like to be found.
#[derive(Default)]
pub struct Matcher {
    all: Vec<Wanted>,
    none: Vec<Wanted>,
    /// What everything that fits the expressions contains, in any case.
    pieces: Vec<String>,
    /// The longest piece that stands in files as it stands in messages.
    piece: String,
    /// What files can be looked through for as they are: the piece, unless that is too short.
    in_bytes: Option<bytes::Regex>,
    /// What is hidden in the answer is not there to be found.
    is_masked: bool,
}

/// One thing that is looked for.
enum Wanted {
    /// Words that follow each other, in small letters; of the last one perhaps only the beginning.
    Words {
        words: Vec<Spoken>,
        is_prefix: bool,
    },
    Expression(Regex),
}

/// A word that is looked for, in small letters.
struct Spoken {
    text: String,
    /// Nothing may stand between it and the word before.
    is_joined: bool,
    /// It is one letter of a script that parts no words.
    is_letter: bool,
}

/// An expression that cannot be searched for.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadPattern(String);

impl Matcher {
    /// Asks for a word or phrase, in any case; with `is_prefix` for what begins with it.
    pub fn word(&mut self, text: &str, is_prefix: bool) {
        self.all.push(Wanted::words(text, is_prefix));
        let pieces = text.split(|c: char| !c.is_ascii_alphanumeric());
        self.offer(pieces.max_by_key(|piece| piece.len()).unwrap_or_default());
    }

    /// Asks for the absence of a word or phrase.
    pub fn without(&mut self, text: &str) {
        self.none.push(Wanted::words(text, false));
    }

    /// Asks for a regular expression, in any case.
    pub fn expression(&mut self, pattern: &str) -> std::result::Result<(), BadPattern> {
        let built =
            RegexBuilder::new(pattern).case_insensitive(true).size_limit(PATTERN_SIZE_BYTES_MAX).build();
        self.all.push(Wanted::Expression(built.map_err(|error| BadPattern(error.to_string()))?));
        for piece in literals(pattern) {
            self.offer(&piece);
            self.pieces.push(piece);
        }
        Ok(())
    }

    /// Asks for what stands in messages once their secrets are masked: who could find what is
    /// hidden could guess it letter by letter.
    pub fn in_masked(&mut self) {
        self.is_masked = true;
    }

    /// Returns a text as it is searched.
    pub fn seen(&self, text: String) -> String {
        if !self.is_masked {
            return text;
        }
        match redact(&text).0 {
            Cow::Owned(masked) => masked,
            Cow::Borrowed(_) => text,
        }
    }

    /// Tells whether a text has nothing of what must be absent.
    pub fn is_without(&self, text: &str) -> bool {
        !self.none.iter().any(|wanted| wanted.find(text).is_some())
    }

    fn offer(&mut self, piece: &str) {
        const PIECE_LEN_MIN: usize = 2;
        if piece.len() >= PIECE_LEN_MIN && piece.len() > self.piece.len() {
            piece.clone_into(&mut self.piece);
            let pattern = regex::escape(piece);
            let built = bytes::RegexBuilder::new(&pattern).case_insensitive(true).unicode(false).build();
            self.in_bytes = built.ok();
        }
    }

    /// Returns a text as it is searched, if it is one that is found.
    pub fn found_in(&self, text: String) -> Option<String> {
        // What lacks the piece is neither masked nor parted into words: that costs more than reading it.
        if self.in_bytes.as_ref().is_some_and(|piece| !piece.is_match(text.as_bytes())) {
            return None;
        }
        let text = self.seen(text);
        self.find(&text).is_some().then_some(text)
    }

    /// Returns where the first of what is asked for stands in a text that has all of it.
    pub fn find(&self, text: &str) -> Option<Range<usize>> {
        if !self.is_without(text) {
            return None;
        }
        let mut found = self.all.iter().map(|wanted| wanted.find(text));
        let first = found.next()??;
        found.all(|other| other.is_some()).then_some(first)
    }
}

impl Wanted {
    fn words(text: &str, is_prefix: bool) -> Self {
        let spoken = |word: Word<'_>| Spoken {
            text: small(word.text).collect(),
            is_joined: word.is_joined,
            is_letter: word.is_letter(),
        };
        Self::Words { words: words(text).map(spoken).collect(), is_prefix }
    }

    fn find(&self, text: &str) -> Option<Range<usize>> {
        let (wanted, is_prefix) = match self {
            Self::Expression(pattern) => return pattern.find(text).map(|found| found.range()),
            Self::Words { words, is_prefix } => (words, *is_prefix),
        };
        let (last, before) = wanted.split_last()?;
        let is_same = |word: &Word<'_>, wanted: &Spoken| {
            let is_there = !wanted.is_joined || word.is_joined;
            is_there && small(word.text).eq(wanted.text.chars())
        };
        let begins = |word: &Word<'_>| {
            let mut letters = small(word.text);
            let is_there = !last.is_joined || word.is_joined;
            is_there && last.text.chars().all(|letter| letters.next() == Some(letter))
        };
        let mut window: VecDeque<Word<'_>> = VecDeque::new();
        for word in words(text) {
            window.push_back(word);
            if window.len() > wanted.len() {
                window.pop_front();
            }
            let ends = if is_prefix { begins(&word) } else { is_same(&word, last) };
            if ends && window.len() == wanted.len() && window.iter().zip(before).all(|(a, b)| is_same(a, b)) {
                return Some(window[0].at..word.at + word.text.len());
            }
        }
        None
    }
}

/// Returns runs of letters and digits that everything an expression matches contains.
fn literals(pattern: &str) -> Vec<String> {
    use regex_syntax::hir::{Hir, HirKind};
    fn collect(hir: &Hir, found: &mut Vec<String>) {
        match hir.kind() {
            HirKind::Literal(literal) => {
                let pieces = literal.0.split(|byte| !byte.is_ascii_alphanumeric());
                let pieces = pieces.filter(|piece| !piece.is_empty());
                found.extend(pieces.map(|piece| String::from_utf8_lossy(piece).into_owned()));
            }
            HirKind::Concat(parts) => parts.iter().for_each(|part| collect(part, found)),
            HirKind::Capture(capture) => collect(&capture.sub, found),
            HirKind::Repetition(repeated) if repeated.min > 0 => collect(&repeated.sub, found),
            HirKind::Repetition(_)
            | HirKind::Alternation(_)
            | HirKind::Class(_)
            | HirKind::Look(_)
            | HirKind::Empty => {}
        }
    }
    let mut found = Vec::new();
    if let Ok(hir) = regex_syntax::Parser::new().parse(pattern) {
        collect(&hir, &mut found);
    }
    found
}

/// Returns what is searched of an entry: what was said and not taken back.
fn said(entry: &Entry) -> Option<String> {
    let is_said = entry.body.role != Role::System && !entry.is_taken_back;
    is_said.then(|| entry.body.plain_text())
}

/// A message that was found.
#[derive(Clone, Debug)]
pub struct Hit {
    /// Which of the sessions that were given.
    pub session: usize,
    /// Its agent's id of it, where it has one.
    pub message_id: Option<String>,
    /// Its place among everything that was handed over, from 1.
    pub seq: u64,
    pub role: Role,
    pub at: Timestamp,
    /// As it was searched.
    pub text: String,
}

/// What a search came to.
#[derive(Debug, Default)]
pub struct Hits {
    /// The newest first.
    pub hits: Vec<Hit>,
    /// Sessions that could not be read, and why.
    pub problems: Vec<(usize, String)>,
    /// What sessions are called by all of their files, where these were read and the ends alone were not sure of it.
    pub titles: HashMap<usize, String>,
    /// There may be older ones.
    pub is_cut: bool,
}

/// Where an earlier search ended: at this instant, after so many hits of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Before {
    pub at: Timestamp,
    pub shown: usize,
}

/// Finds the newest `limit` messages of these sessions, most recent ones first.
///
/// A session of which `may_have` says that it cannot have anything is not looked at. `told` hears
/// how many bytes of how many were looked through; once `stop` is set the search ends with what
/// it has.
pub fn search(
    sessions: &[Foreign],
    matcher: &Matcher,
    before: Option<Before>,
    limit: usize,
    may_have: &(dyn Fn(&Foreign) -> bool + Sync),
    stop: &AtomicBool,
    told: &(dyn Fn(u64, u64) + Sync),
) -> Hits {
    let mut order: Vec<usize> = (0..sessions.len()).collect();
    order.sort_by_key(|place| Reverse(sessions[*place].updated_at));
    let size = |place: usize| sessions[place].place.size_bytes.unwrap_or(0);
    let all_bytes = order.iter().map(|place| size(*place)).sum();
    // What was shown of the instant is found again, and must not take the place of what was not.
    let most = limit + before.map_or(0, |before| before.shown);
    let ranks = ranks(sessions);
    let kin = Families::of(sessions, stop);
    let task = Task { sessions, ranks, kin, matcher, before, limit: most, stop, hits: Mutex::default() };
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        while let Some(place) = order.get(next.fetch_add(1, Ordering::Relaxed)).copied() {
            if stop.load(Ordering::Relaxed) || task.is_enough(sessions[place].updated_at) {
                task.hits.lock().unwrap_or_else(PoisonError::into_inner).is_cut = true;
                break;
            }
            if may_have(&sessions[place]) {
                task.look(place);
            }
            let size = usize::try_from(size(place)).unwrap_or(0);
            told((done.fetch_add(size, Ordering::Relaxed) + size) as u64, all_bytes);
        }
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 1..workers {
            scope.spawn(work);
        }
        work();
    });
    let mut hits = task.hits.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(before) = before {
        let again = hits.hits.iter().take(before.shown).take_while(|hit| hit.at == before.at).count();
        hits.hits.drain(..again);
    }
    hits.is_cut |= hits.hits.len() > limit || stop.load(Ordering::Relaxed);
    hits.hits.truncate(limit);
    hits
}

/// Returns for each session how many began before it; of those that began together their places decide.
fn ranks(sessions: &[Foreign]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..sessions.len()).collect();
    order.sort_by_key(|place| {
        let session = &sessions[*place];
        (session.created_at.is_none(), session.created_at, &session.place.path, &session.id)
    });
    let mut ranks = vec![0; sessions.len()];
    order.into_iter().zip(0..).for_each(|(place, rank)| ranks[place] = rank);
    ranks
}

/// What became of sub-agents, found out where something of them was found.
struct Families<'a> {
    sessions: &'a [Foreign],
    places: HashMap<(Source, &'a SessionId), usize>,
    /// Of each session that started others; nothing once the search was given up.
    kin: HashMap<usize, OnceLock<Option<Kin>>>,
    stop: &'a AtomicBool,
}

impl<'a> Families<'a> {
    fn of(sessions: &'a [Foreign], stop: &'a AtomicBool) -> Self {
        let places: HashMap<_, _> =
            sessions.iter().zip(0..).map(|(session, place)| ((session.source, &session.id), place)).collect();
        let above = |session: &Foreign| places.get(&(session.source, session.parent.as_ref()?)).copied();
        let kin = sessions.iter().filter_map(above).map(|place| (place, OnceLock::new())).collect();
        Self { sessions, places, kin, stop }
    }

    /// Tells whether a session is that of a sub-agent, and what asked for it was taken back; nothing once the search was
    /// given up.
    fn is_taken_back(&self, mut session: &'a Foreign) -> Option<bool> {
        // Those that are said to have started each other were parted.
        while let Some(parent) = &session.parent
            && let Some(place) = self.places.get(&(session.source, parent))
            && let Some(kin) = self.kin.get(place)
        {
            let above = &self.sessions[*place];
            let kin = kin.get_or_init(|| {
                let is_child =
                    |it: &&Foreign| it.source == above.source && it.parent.as_ref() == Some(&above.id);
                let children: Vec<_> = self.sessions.iter().filter(is_child).collect();
                Kin::of(above, &children, &|| self.stop.load(Ordering::Relaxed))
            });
            if kin.as_ref()?.stands(&session.id) == Stands::TakenBack {
                return Some(true);
            }
            session = above;
        }
        Some(false)
    }
}

struct Task<'a> {
    sessions: &'a [Foreign],
    kin: Families<'a>,
    /// Of messages of one instant, that of the session that began first stands first.
    ranks: Vec<usize>,
    matcher: &'a Matcher,
    before: Option<Before>,
    limit: usize,
    stop: &'a AtomicBool,
    hits: Mutex<Hits>,
}

impl Task<'_> {
    /// Tells whether nothing that was said at `at` or before can be among what is asked for.
    fn is_enough(&self, at: Timestamp) -> bool {
        let hits = self.hits.lock().unwrap_or_else(PoisonError::into_inner);
        hits.hits.len() == self.limit && hits.hits.last().is_some_and(|last| last.at > at)
    }

    fn look(&self, number: usize) {
        let session = &self.sessions[number];
        match self.may_have(session) {
            Ok(false) => return,
            Ok(true) => {}
            Err(error) => return self.problem(number, &error),
        }
        let mut seq = 0;
        let changed_at = session.changed_at();
        // What a wrong clock wrote is as old as its session at most.
        let believed = |at: Timestamp| {
            let is_wrong = changed_at.is_some_and(|changed_at| is_after_change(at, changed_at));
            if is_wrong { session.updated_at } else { at }
        };
        let mut is_taken_back = None;
        let told = read(session, &mut |entry| {
            seq += 1;
            let at = believed(entry.body.timestamp);
            let is_older = self.before.is_none_or(|before| at <= before.at);
            let text = said(&entry).filter(|_| is_older);
            if let Some(text) = text.and_then(|text| self.matcher.found_in(text))
                && *is_taken_back.get_or_insert_with(|| self.kin.is_taken_back(session)) == Some(false)
            {
                let (message_id, role) = (entry.id, entry.body.role);
                self.add(Hit { session: number, message_id, seq, role, at, text });
            }
            if self.stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        match told {
            Err(error) => self.problem(number, &error),
            Ok(Told { title: Some(title), .. }) if !session.is_title_sure => {
                let mut hits = self.hits.lock().unwrap_or_else(PoisonError::into_inner);
                hits.titles.insert(number, title);
            }
            Ok(_) => {}
        }
    }

    fn add(&self, hit: Hit) {
        let mut hits = self.hits.lock().unwrap_or_else(PoisonError::into_inner);
        // A fork copies what was said before it, with its ids: that was said once, in the session that began first.
        // Codex gives messages none, and they are told by their times, to the millisecond, and words.
        let is_codex = |hit: &Hit| self.sessions[hit.session].source == Source::Codex;
        let is_copy = |other: &Hit| {
            let is_same = match &hit.message_id {
                Some(_) => true,
                None => is_codex(&hit) && is_codex(other) && other.role == hit.role && other.text == hit.text,
            };
            is_same
                && other.message_id == hit.message_id
                && other.at == hit.at
                && other.session != hit.session
        };
        let rank = |hit: &Hit| self.ranks[hit.session];
        if let Some(other) = hits.hits.iter().find(|other| is_copy(other)) {
            if rank(other) < rank(&hit) {
                return;
            }
            hits.hits.retain(|other| !is_copy(other));
        }
        let order = |hit: &Hit| (hit.at, Reverse(rank(hit)), hit.seq);
        let place = hits.hits.partition_point(|other| order(other) > order(&hit));
        if hits.hits.len() == self.limit {
            hits.is_cut = true;
        }
        if place < self.limit {
            hits.hits.insert(place, hit);
            hits.hits.truncate(self.limit);
        }
    }

    fn problem(&self, place: usize, error: &crate::Error) {
        let mut hits = self.hits.lock().unwrap_or_else(PoisonError::into_inner);
        hits.problems.push((place, error.to_string()));
    }

    /// Looks through a file as bytes. What is compressed or a database has to be read, and so has what goes on in other
    /// files.
    fn may_have(&self, session: &Foreign) -> Result<bool> {
        let path = &session.place.path;
        let is_plain = session.place.size_bytes.is_some()
            && path.extension().is_some_and(|extension| extension == "jsonl" || extension == "json");
        let Some(pattern) = self.matcher.in_bytes.as_ref().filter(|_| is_plain) else { return Ok(true) };
        let (mut file, _) = files::open(path)?;
        let io = |source| crate::Error::Io { path: path.clone(), source };
        // What stands across two chunks is found in the second, which begins with the end of the first.
        let overlap = self.matcher.piece.len();
        let mut chunk = vec![0; CHUNK_SIZE_BYTES + overlap];
        let mut kept = 0;
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            let read = file.read(&mut chunk[kept..]).map_err(io)?;
            if read == 0 {
                return Ok(!is_in_one_file(session));
            }
            let filled = kept + read;
            if pattern.is_match(&chunk[..filled]) {
                return Ok(true);
            }
            let from = filled.saturating_sub(overlap);
            chunk.copy_within(from..filled, 0);
            kept = filled - from;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_count_and_what_is_between_them_does_not() {
        let check = |asked: &str, is_prefix: bool, text: &str, found: bool| {
            let mut matcher = Matcher::default();
            matcher.word(asked, is_prefix);
            assert_eq!(matcher.find(text).is_some(), found, "{asked} in {text}");
        };
        check("retry", false, "add a Retry.", true);
        check("retry", false, "retries", false);
        check("retr", true, "retries", true);
        check("rotate_key", false, "call rotate_key() now", true);
        check("rotate key", false, "rotate-key", true);
        check("ключ", false, "новый Ключ!", true);
        check("a.b", false, "axb", false);
        check("exactly onc", true, "it was exactly, once", true);
        check("exactly once", false, "exactly at once", false);
        // Nobody writes where a word ends.
        let text = "新しい日本語テストを書く、cargo testを走らせる。ทดสอบภาษาไทย";
        for (asked, found) in [
            ("日本語", true),
            ("テスト", true),
            ("テストを書く", true),
            ("test", true),
            ("testを", true),
            ("tes", false),
            ("日語", false),
            ("書くcargo", false),
            ("書く cargo", true),
            ("日本 語", true),
            ("ภาษา", true),
            ("スト", true),
        ] {
            check(asked, false, text, found);
        }
        check("書", true, text, true);
        check("日本語テ", true, text, true);
        check("を走らせるx", true, text, false);
        check("rgo", true, text, false);
        check("語test", true, "日本語testing", true);
        check("語test", false, "日本語testing", false);
        let mut matcher = Matcher::default();
        matcher.word("b c", false);
        matcher.without("d");
        assert_eq!(matcher.find("a (B-c)"), Some(3..6));
        assert_eq!(matcher.find("a b c d"), None);
        let mut matcher = Matcher::default();
        matcher.word("本語", false);
        assert_eq!(matcher.find("日本語で"), Some(3..9));
    }

    #[test]
    fn the_pieces_that_are_looked_for_are_in_everything_that_matches() {
        let check =
            |pattern: &str, pieces: &str| assert_eq!(literals(pattern).join(" "), pieces, "{pattern}");
        check("rotate_key", "rotate key");
        check("(foo)+ba.r?", "foo ba");
        check("foo|barbaz", "");
        check("(?i)abc", "");
        check(r"\d+ errors? in (\w+)\.rs", "error in rs");
        check("x*", "");
        check("[", "");
        let mut matcher = Matcher::default();
        matcher.expression(r"\d+ errors? in (\w+)\.rs").expect("an expression");
        assert_eq!(matcher.piece, "error", "files are looked through for the longest");
    }

    #[test]
    fn an_expression_that_is_none_or_too_large_is_refused() {
        assert!(Matcher::default().expression("(").is_err());
        assert!(Matcher::default().expression(r"(\w{1000}){1000}").is_err());
    }
}
