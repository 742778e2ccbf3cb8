//! The index of other agents' sessions: a search finds the same with it, whatever becomes of it.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{Seek as _, SeekFrom, Write as _},
    os::unix::fs::{FileExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use sess_app::{Indexing, ListSessions, ReadSession, SearchMessages, Signals};
use sess_core::Source;

use crate::foreign::{ALL, Machine};

/// Texts that letters make difficult.
const DIFFICULT: [&str; 12] = [
    "Ключ и КЛЮЧИ, Ёлка",
    "Straße STRASSE Weiſheit",
    "İstanbul ıstanbul ISTANBUL",
    "ΟΔΟΣ οδός",
    "数据库 データ 한국어",
    "naïve café CAFÉ cafe\u{301}",
    "\u{212a}elvin kelvin",
    "🎉party🎉 go x 7 a1 _ -",
    "rotate_key(\"a-b\") path/to/file.rs",
    "tab\there \\ backslash \"quoted\" \u{1}",
    "ﬁne ﬂow Ǆ ǆ ǅ",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa end",
];

fn words(text: &str) -> SearchMessages {
    SearchMessages { text: text.to_owned(), limit: Some(100), ..SearchMessages::default() }
}

fn expression(text: &str) -> SearchMessages {
    SearchMessages { is_expression: true, ..words(text) }
}

impl Machine {
    async fn index(&self) -> Indexing {
        self.world.app.index_sessions(&self.world.owner(), None, |_, _| {}).await.expect("indexed")
    }

    /// Returns what a search finds, or why there was none.
    async fn outcome(&self, ask: &SearchMessages) -> Result<Vec<String>, String> {
        let found = self.world.app.search(&self.world.owner(), ask, |_, _| {}).await;
        let shown = |found: sess_app::Found| {
            let hits = found.hits.iter();
            let mut shown: Vec<String> =
                hits.map(|hit| format!("{} {}: {}", hit.session.id, hit.seq, hit.snippet)).collect();
            shown.extend(found.cursor);
            shown
        };
        found.map(shown).map_err(|error| error.to_string())
    }

    fn filters(&self) -> PathBuf {
        self.world.home().join("filters.db")
    }

    /// Writes a session of Claude Code, of one message for each text.
    fn write(&self, id: u32, texts: &[&str]) -> PathBuf {
        let dir = self.home.path().join(".claude/projects/-w");
        fs::create_dir_all(&dir).expect("made");
        let path = dir.join(format!("00000000-0000-4000-8000-{id:012}.jsonl"));
        fs::write(&path, texts.iter().enumerate().map(|(n, text)| line(id, n, text)).collect::<String>())
            .expect("written");
        path
    }

    /// Returns the words that stand in any session.
    async fn vocabulary(&self) -> Vec<String> {
        let mut all = BTreeSet::new();
        let ask = ListSessions { limit: Some(100), include_archived: true, ..ListSessions::default() };
        let owner = self.world.owner();
        for session in self.world.app.list_sessions(&owner, &ask).await.expect("a list").sessions {
            let ask =
                ReadSession { session_id: session.id, max_bytes: Some(200_000), ..ReadSession::default() };
            let read = self.world.app.read_session(&owner, &ask).await.expect("read");
            let words = read.transcript.split(|c: char| c.is_whitespace() || "\"`*()".contains(c));
            all.extend(words.filter(|word| !word.is_empty()).map(str::to_owned));
        }
        all.into_iter().collect()
    }
}

fn line(session: u32, n: usize, text: &str) -> String {
    let parent = if n == 0 { serde_json::Value::Null } else { format!("{session}-{}", n - 1).into() };
    let record = serde_json::json!({
        "type": "user", "uuid": format!("{session}-{n}"), "parentUuid": parent, "sessionId": "x", "cwd": "/w",
        "timestamp": format!("2026-11-10T{:02}:{:02}:{:02}Z", n / 3600, n / 60 % 60, n % 60),
        "message": {"role": "user", "content": text},
    });
    format!("{record}\n")
}

#[expect(clippy::disallowed_methods, reason = "`just test-faults` asks for more cases this way")]
fn cases() -> u32 {
    std::env::var("SESS_PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(40)
}

/// What is done to words of the vocabulary to make a query of them.
fn query() -> impl Strategy<Value = (Vec<(prop::sample::Index, u8, u8)>, bool)> {
    (prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<u8>()), 1..4), any::<bool>())
}

/// Makes a query of words: changed in case, cut, quoted, absent; or an expression that such words are a part of.
fn made(
    vocabulary: &[String],
    picks: &[(prop::sample::Index, u8, u8)],
    is_expression: bool,
) -> SearchMessages {
    let mut parts = Vec::new();
    for (pick, how, cut) in picks {
        let word: Vec<char> = pick.get(vocabulary).chars().collect();
        let cut = usize::from(*cut) % word.len();
        let (whole, start, end): (String, String, String) =
            (word.iter().collect(), word[..cut].iter().collect(), word[cut..].iter().collect());
        let escape = regex_escape;
        parts.push(match (is_expression, how % 12) {
            (false, 0..=2) => whole,
            (false, 3) => whole.to_uppercase(),
            (false, 4) => whole.to_lowercase(),
            (false, 5 | 6) => format!("{start}*"),
            (false, 7) => format!("\"{start} {end}\""),
            (false, 8) => format!("-{whole}"),
            (false, 9) => end,
            (false, 10) => format!("{start}x"),
            (false, _) => word.iter().take(2).collect(),
            (true, 0 | 1) => escape(&whole),
            (true, 2) => escape(&whole.to_uppercase()),
            (true, 3) => format!("{}.*{}", escape(&start), escape(&end)),
            (true, 4) => format!("({}|{})", escape(&start), escape(&end)),
            (true, 5) => format!("({})+", escape(&end)),
            (true, 6) => format!("({})?{}", escape(&start), escape(&end)),
            (true, 7) => format!(r"\b{}\w+", escape(&start)),
            (true, 8) => format!("(?-i:{})", escape(&whole)),
            (true, 9) => format!("(?i){}", escape(&end)),
            (true, 10) => format!("{}{{0,2}}{}", escape(&start), escape(&end)),
            (true, _) => format!(r"[{}]\w{{2}}", "a-kА-я"),
        });
    }
    let text = parts.join(if is_expression { r"[\s\S]{0,40}" } else { " " });
    if is_expression { expression(&text) } else { words(&text) }
}

fn regex_escape(text: &str) -> String {
    let special = |c: char| r"\.+*?()|[]{}^$#&-~/".contains(c);
    text.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
}

#[test]
fn a_search_finds_the_same_with_the_index_as_without() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let machine = Machine::of(&ALL);
    machine.write(1, &DIFFICULT);
    machine.write(2, &["one word more than the others: xylophone"]);
    runtime
        .block_on(machine.world.app.take_snapshots(&machine.world.owner(), None, |_, _| {}))
        .expect("taken");
    // One that is only a snapshot any more.
    fs::remove_file(machine.write(2, &[])).expect("deleted");
    let vocabulary = runtime.block_on(machine.vocabulary());
    assert!(vocabulary.len() > 300, "{}", vocabulary.len());
    let mut fixed: Vec<SearchMessages> = DIFFICULT.iter().map(|text| words(text)).collect();
    let difficult = DIFFICULT.iter().flat_map(|text| text.split_whitespace());
    for (n, text) in difficult.chain(["the", "a", "x", "7", "key"]).enumerate() {
        let upper = text.to_uppercase();
        fixed.push(if n % 2 == 0 { words(text) } else { words(&upper) });
        fixed.push(match n % 3 {
            0 => words(&format!("{text}*")),
            1 => expression(&regex_escape(text)),
            _ => expression(&regex_escape(&upper)),
        });
    }
    fixed.extend(["k", "weisheit", "foo|retry", r"\d+", "", "(", "(?i)KEY", "ret.y"].map(expression));
    fixed.extend(["xylophone", "nowhere", "-the", "key -the"].map(words));
    let indexed = machine.world.home().join("filters.db");
    let hidden = machine.world.home().join("hidden.db");
    let compare = |ask: &SearchMessages| {
        assert!(indexed.exists());
        let with = runtime.block_on(machine.outcome(ask));
        fs::rename(&indexed, &hidden).expect("hidden");
        let without = runtime.block_on(machine.outcome(ask));
        fs::rename(&hidden, &indexed).expect("shown again");
        assert_eq!(with, without, "{ask:?}");
        with.is_ok_and(|hits| !hits.is_empty())
    };
    let told = runtime.block_on(machine.index());
    assert!(told.new > 20 && told.failed.is_empty() && told.made_anew.is_none(), "{told:?}");
    assert_eq!(told.index.indexed, told.new, "{told:?}");
    let found = fixed.iter().filter(|ask| compare(ask)).count();
    assert!(found > 40, "{found} of {}", fixed.len());
    let mut runner =
        TestRunner::new(Config { cases: cases(), failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&query(), |(picks, is_expression)| {
        compare(&made(&vocabulary, &picks, is_expression));
        Ok(())
    });
    outcome.expect("the same is found");
}

#[tokio::test]
async fn a_session_that_cannot_have_it_is_not_read() {
    let machine = Machine::of(&[]);
    let path = machine.write(1, &["the word is needle"]);
    machine.write(2, &["nothing of it"]);
    machine.index().await;
    assert_eq!(machine.found(words("needle")).await.len(), 1);
    // Written so that nobody notices: only who reads the file could find it.
    let modified = path.metadata().and_then(|found| found.modified()).expect("a time");
    let text = fs::read_to_string(&path).expect("read");
    let at = text.find("needle").expect("there") as u64;
    let mut file = File::options().write(true).open(&path).expect("opened");
    file.seek(SeekFrom::Start(at)).expect("there");
    file.write_all(b"thread").expect("written");
    file.set_modified(modified).expect("touched");
    assert_eq!(machine.found(words("thread")).await, [""; 0], "it was not read");
    assert_eq!(machine.found(expression("th..ad")).await.len(), 1, "two letters in a row tell nothing");
    assert_eq!(machine.found(expression("(thread)")).await, [""; 0]);
    assert!(machine.world.app.forget_index(&machine.world.owner()).await.expect("forgotten"));
    assert_eq!(machine.found(words("thread")).await.len(), 1);
    assert!(!machine.world.app.forget_index(&machine.world.owner()).await.expect("there is none"));
}

#[tokio::test]
async fn what_changed_since_is_found_and_read_again_in_the_next_round() {
    let machine = Machine::of(&["codex", "opencode", "zed"]);
    let path = machine.write(1, &["first"]);
    let told = machine.index().await;
    let all = told.looked_at;
    assert_eq!((told.new, told.changed, told.unchanged), (all - told.left_out, 0, 0), "{told:?}");
    assert!(told.left_out > 0, "one of Codex goes on where another ended: {told:?}");
    let again = machine.index().await;
    assert_eq!((again.new, again.changed, again.unchanged), (0, 0, told.new), "{again:?}");
    let state = machine.world.app.index_state(&machine.world.owner()).await.expect("a state");
    assert_eq!((state.sessions, state.current, state.index), (all, told.new, again.index), "{state:?}");
    // It grows, another one begins, and a third is replaced by one of the same size.
    let mut file = File::options().append(true).open(&path).expect("opened");
    file.write_all(line(1, 1, "second").as_bytes()).expect("appended");
    machine.write(2, &["second of another"]);
    assert_eq!(machine.found(words("second")).await.len(), 2);
    let state = machine.world.app.index_state(&machine.world.owner()).await.expect("a state");
    assert_eq!((state.sessions, state.current), (all + 1, told.new - 1), "{state:?}");
    let grown = machine.index().await;
    assert_eq!((grown.new, grown.changed, grown.unchanged), (1, 1, told.new - 1), "{grown:?}");
    assert_eq!(machine.found(words("second")).await.len(), 2);
    // Moved elsewhere it is read, and what is gone is forgotten.
    fs::remove_file(&path).expect("deleted");
    let source = Some(Source::Codex);
    let codex = machine.world.app.index_sessions(&machine.world.owner(), source, |_, _| {}).await;
    assert_eq!(codex.expect("indexed").index.indexed, told.new + 1, "of others it says nothing");
    assert_eq!(machine.index().await.index.indexed, told.new);
}

#[tokio::test]
async fn a_damaged_index_costs_time_and_no_hits() {
    let machine = Machine::of(&["claude-code"]);
    for n in 0..40 {
        machine.write(n, &[&format!("needle{n} in a stack of {n} straws"), "retry"]);
    }
    machine.index().await;
    let asks = ["needle7", "needle3*", "retry straws", "absent"].map(words);
    let mut hits = Vec::new();
    for ask in &asks {
        hits.push(machine.outcome(ask).await);
    }
    assert_eq!(hits[0].as_ref().map(Vec::len), Ok(1));
    let whole = fs::read(machine.filters()).expect("read");
    let check = async |what: &str, expected_anew: bool| {
        for (ask, hits) in asks.iter().zip(&hits) {
            assert_eq!(machine.outcome(ask).await, *hits, "{what}");
        }
        let problem = machine.world.app.index_problem().expect("looked at");
        let told = machine.index().await;
        assert_eq!(told.made_anew.is_some(), problem.is_some(), "{what}: {told:?}");
        assert!(told.made_anew.is_some() || !expected_anew, "{what}: {told:?}");
        assert!(machine.world.app.index_problem().expect("looked at").is_none(), "{what}");
        for (ask, hits) in asks.iter().zip(&hits) {
            assert_eq!(machine.outcome(ask).await, *hits, "after {what}");
        }
    };
    let put = |bytes: &[u8]| {
        machine.remove_index();
        fs::write(machine.filters(), bytes).expect("written");
    };
    for (what, bytes) in [
        ("nothing", &b""[..]),
        ("no database", b"half a file of something else entirely".repeat(200).as_slice()),
        ("half of it", &whole[..whole.len() / 2]),
        ("its first page", &whole[..4096]),
    ] {
        put(bytes);
        check(what, true).await;
    }
    // A byte here and there: it is noticed, or it does not matter.
    let mut place = 17;
    while place < whole.len() {
        put(&whole);
        let file = File::options().write(true).open(machine.filters()).expect("opened");
        file.write_all_at(&[whole[place] ^ 0xff], place as u64).expect("flipped");
        for (ask, hits) in asks.iter().zip(&hits) {
            assert_eq!(machine.outcome(ask).await, *hits, "byte {place}");
        }
        place += 1_009;
    }
    put(&whole);
    let connection = rusqlite::Connection::open(machine.filters()).expect("opened");
    connection.execute("UPDATE made_by SET version = 'of yore'", []).expect("changed");
    drop(connection);
    check("another version", true).await;
    machine.remove_index();
    fs::create_dir(machine.filters()).expect("made");
    for (ask, hits) in asks.iter().zip(&hits) {
        assert_eq!(machine.outcome(ask).await, *hits, "a directory");
    }
    let refused = machine.world.app.index_sessions(&machine.world.owner(), None, |_, _| {}).await;
    let refused = refused.expect_err("a directory is in the way").to_string();
    assert!(refused.contains("filters.db cannot be written"), "{refused}");
}

impl Machine {
    fn remove_index(&self) {
        for name in ["filters.db", "filters.db-wal", "filters.db-shm"] {
            let _absent = fs::remove_file(self.world.home().join(name));
        }
    }
}

#[tokio::test]
async fn the_index_is_the_owners_and_nothing_is_made_without_need() {
    let machine = Machine::of(&[]);
    assert_eq!(machine.index().await.looked_at, 0);
    assert!(!machine.filters().exists());
    machine.write(1, &["needle"]);
    let app = &machine.world.app;
    let agent = app.cli_caller(&Signals {
        env: vec![("CLAUDE_CODE_SESSION_ID".to_owned(), "c1".to_owned())],
        ..Signals::default()
    });
    let refused = app.index_sessions(&agent, None, |_, _| {}).await.expect_err("refused").to_string();
    assert_eq!(refused, "only the owner may index sessions");
    assert!(app.index_state(&agent).await.is_err() && app.forget_index(&agent).await.is_err());
    let state = app.index_state(&machine.world.owner()).await.expect("a state");
    assert_eq!((state.sessions, state.current, state.problem), (1, 0, None));
    machine.index().await;
    let mode = |path: &Path| path.metadata().expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(&machine.filters()), 0o600);
    // An agent's search goes by it as well.
    let found = app.search(&agent, &words("needle"), |_, _| {}).await.expect("found");
    assert_eq!(found.hits.len(), 1);
}
