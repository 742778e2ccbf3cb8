//! Every file of every sample, damaged in thousands of ways: never a panic, never work without
//! end, and never another session's text.
//!
//! A session's own words are those that stand in no other session of its sample. Wherever they
//! turn up, the session must be theirs.

#![expect(clippy::disallowed_methods, reason = "who runs the tests says how long")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use sess_core::{Source, message::Block};
use sess_readers::{Catalogue, Foreign, reader};

use crate::homes::{copy, files, homes};

/// How many random cases an agent's sample is put through, when nobody says.
const CASES: u64 = 140;
/// How many entries of one session are too many: no sample has a hundredth of it.
const ENTRIES_MAX: usize = 10_000;
/// How long one case may take on a machine that is busy with other things.
const WITHIN: Duration = Duration::from_secs(30);
/// Shorter texts are anybody's.
const WORDS_LEN_MIN: usize = 8;

/// Numbers that look random and are the same each time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end.max(1) as u64).expect("it is below")
    }
}

/// Damages a file in one of many ways.
fn damaged(content: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = content.to_vec();
    if bytes.is_empty() {
        return bytes;
    }
    let lines =
        |bytes: &[u8]| bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect::<Vec<_>>();
    match random.below(8) {
        0 => bytes.truncate(random.below(content.len())),
        1 | 2 => {
            for _ in 0..=random.below(8) {
                let at = random.below(bytes.len());
                bytes[at] ^= 1 << random.below(8);
            }
        }
        3 => {
            let at = random.below(bytes.len());
            bytes[at] = *b"\"{}[],:\\\n0\xff\0".get(random.below(12)).expect("one of them");
        }
        4 => {
            let mut lines = lines(&bytes);
            let (one, two) = (random.below(lines.len()), random.below(lines.len()));
            lines.swap(one, two);
            bytes = lines.concat();
        }
        5 => {
            let mut lines = lines(&bytes);
            let (from, to) = (random.below(lines.len()), random.below(lines.len()));
            lines.insert(to, lines[from].clone());
            bytes = lines.concat();
        }
        6 => {
            let start = random.below(bytes.len());
            let end = (start + random.below(200)).min(bytes.len());
            bytes.drain(start..end);
        }
        _ => {
            let start = random.below(bytes.len());
            let part = bytes[start..(start + random.below(200)).min(bytes.len())].to_vec();
            let at = random.below(bytes.len());
            bytes.splice(at..at, part);
        }
    }
    bytes
}

/// Returns a file of text cut at each of its lines, at their ends and in their middles.
fn cuts(content: &[u8]) -> Vec<Vec<u8>> {
    let mut cuts = Vec::new();
    if std::str::from_utf8(content).is_err() {
        return cuts;
    }
    let mut end = 0;
    for line in content.split_inclusive(|byte| *byte == b'\n') {
        cuts.push(content[..end + line.len() / 2].to_vec());
        end += line.len();
        cuts.push(content[..end].to_vec());
    }
    cuts
}

/// Says which case is being tried, should it end in a panic.
struct Case<'a> {
    path: &'a Path,
    number: u64,
}

impl Drop for Case<'_> {
    #[expect(clippy::print_stderr, reason = "it is said beside the panic")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("case {} of {}", self.number, self.path.display());
        }
    }
}

/// Returns every text of a session, its title included.
fn texts(session: &Foreign) -> Vec<String> {
    let mut texts = vec![session.title.clone()];
    let mut count = 0;
    let reader = reader(session.source).expect("a reader");
    let _ = reader.read(session, &mut |entry| {
        count += 1;
        assert!(count < ENTRIES_MAX, "{} does not end", session.reference());
        for block in entry.body.content {
            texts.push(match block {
                Block::Text { text } | Block::Thinking { text, .. } => text,
                Block::Compaction { summary } => summary,
                Block::ToolCall { arguments, .. } => serde_json::to_string(&arguments).expect("written"),
                Block::Other(fields) => serde_json::to_string(&fields).expect("written"),
                Block::Image { data, .. } => data,
                Block::SubSession { .. } => continue,
            });
        }
        ControlFlow::Continue(())
    });
    texts
}

/// Returns what each session alone says.
fn own_words(sessions: &[Foreign]) -> BTreeMap<String, Vec<String>> {
    let all: Vec<(String, Vec<String>)> =
        sessions.iter().map(|session| (session.id.to_string(), texts(session))).collect();
    let is_own = |id: &str, text: &str| {
        let mut others = all.iter().filter(|(other, _)| other != id).flat_map(|(_, texts)| texts);
        text.len() >= WORDS_LEN_MIN && !others.any(|other| other.contains(text))
    };
    let own = |(id, texts): &(String, Vec<String>)| {
        let own: BTreeSet<String> = texts.iter().filter(|text| is_own(id, text)).cloned().collect();
        (id.clone(), own.into_iter().collect())
    };
    all.iter().map(own).collect()
}

/// A sample, and what is in it when nothing is wrong.
struct Sample {
    home: tempfile::TempDir,
    source: Source,
    sessions: Vec<Foreign>,
    words: BTreeMap<String, Vec<String>>,
}

impl Sample {
    fn of(agent: &str, source: Source) -> Self {
        let home = copy(agent);
        let look = Catalogue::default().look(&homes(home.path()), Some(source));
        assert!(look.problems.is_empty() && !look.sessions.is_empty(), "{agent}");
        let words = own_words(&look.sessions);
        // A sample whose sessions say nothing of their own would check nothing.
        assert!(words.values().any(|words| !words.is_empty()), "{agent}");
        Self { home, source, sessions: look.sessions, words }
    }

    /// Lists and reads everything while a file is damaged.
    fn check(&self, path: &Path, content: &[u8]) {
        let began = Instant::now();
        fs::write(path, content).expect("written");
        let look = Catalogue::default().look(&homes(self.home.path()), Some(self.source));
        assert!(look.problems.len() <= 1, "{:?}", look.problems);
        for other in self.sessions.iter().filter(|session| session.place.path != path) {
            let is_there = look.sessions.iter().any(|session| session.id == other.id);
            assert!(is_there, "{} is gone with another's file", other.reference());
        }
        for session in &look.sessions {
            let texts = texts(session);
            let says =
                |words: &[String]| words.iter().any(|word| texts.iter().any(|text| text.contains(&**word)));
            let mut owners: Vec<&String> =
                self.words.iter().filter(|(_, words)| says(words)).map(|(id, _)| id).collect();
            // What had its id damaged still is one session's.
            if !self.words.contains_key(session.id.as_str()) && owners.len() == 1 {
                owners.clear();
            }
            owners.retain(|owner| *owner != session.id.as_str());
            assert!(owners.is_empty(), "{} says what {owners:?} said", session.reference());
        }
        assert!(began.elapsed() < WITHIN, "{:?}", began.elapsed());
    }

    /// Damages every file that belongs to the agent, and puts it right again.
    fn mutate(&self) {
        let cases = std::env::var("SESS_MUTATIONS").ok().and_then(|cases| cases.parse::<u64>().ok());
        let cases = cases.map_or(CASES, |cases| cases / SAMPLES);
        // Beside the files there are scripts that made some of them.
        let made =
            |path: &PathBuf| path.extension().is_some_and(|it| it == "sql") || path.ends_with("thread.json");
        let paths: Vec<PathBuf> = files(self.home.path()).into_iter().filter(|path| !made(path)).collect();
        for path in &paths {
            let content = fs::read(path).expect("read");
            for (number, cut) in (0..).zip(cuts(&content)) {
                let _case = Case { path, number };
                self.check(path, &cut);
            }
            for number in 0..cases / paths.len() as u64 {
                let _case = Case { path, number };
                self.check(path, &damaged(&content, &mut Random(number)));
            }
            fs::write(path, &content).expect("written");
        }
    }
}

#[test]
#[should_panic = "says what"]
fn another_sessions_text_is_noticed() {
    let sample = Sample::of("codex", Source::Codex);
    let path = |n: usize| &sample.sessions[n].place.path;
    let content = fs::read(path(0)).expect("read");
    sample.check(path(1), &content);
}

/// How many samples there are.
const SAMPLES: u64 = 11;

macro_rules! samples {
    ($($name:ident: $agent:literal, $source:ident;)*) => {
        $(
            #[test]
            fn $name() {
                Sample::of($agent, Source::$source).mutate();
            }
        )*

        #[test]
        fn every_reader_has_its_sample_damaged() {
            let sources = [$(Source::$source),*];
            assert_eq!(sources.len() as u64, SAMPLES);
            for reader in sess_readers::readers() {
                assert!(sources.contains(&reader.source()), "{}", reader.source());
            }
        }
    };
}

samples! {
    claude: "claude-code", Claude;
    codex: "codex", Codex;
    gemini: "gemini-cli", Gemini;
    opencode: "opencode", Opencode;
    goose: "goose", Goose;
    docker_agent: "docker-agent", DockerAgent;
    openclaw: "openclaw", Openclaw;
    cursor: "cursor", Cursor;
    zed: "zed", Zed;
    crush: "crush", Crush;
    amp: "amp", Amp;
}
