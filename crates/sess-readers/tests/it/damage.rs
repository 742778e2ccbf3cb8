//! Transcripts in bad shape: what can be read is, and the other sessions are listed as ever.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use rusqlite::Connection;
use serde_json::{Value, json};
use sess_core::{Timestamp, message::Block};
use sess_readers::{Entry, Foreign, Told};

use crate::homes::{copy, files, list, messages, sample, told, touch, words, written};

/// A session that has a file of its own.
struct Case {
    agent: &'static str,
    path: &'static str,
    id: &'static str,
}

/// Formats with a record a line.
const LINES: [Case; 4] = [
    Case {
        agent: "claude-code",
        path: ".claude/projects/-home-dev-acme-api/5b0c1f62-6c0e-4a8e-9d53-2f1f0f6a1c01.jsonl",
        id: "5b0c1f62-6c0e-4a8e-9d53-2f1f0f6a1c01",
    },
    Case {
        agent: "codex",
        path: ".codex/sessions/2026/11/10/rollout-2026-11-10T12-00-00-019a6d10-4b2e-7c31-9f00-1c2d3e4f5061.jsonl",
        id: "019a6d10-4b2e-7c31-9f00-1c2d3e4f5061",
    },
    Case {
        agent: "gemini-cli",
        path: ".gemini/tmp/acme-api/chats/session-2026-11-12T09-15-7f3c2a10.jsonl",
        id: "7f3c2a10-55aa-4d1e-b8a2-90c1d2e3f401",
    },
    Case {
        agent: "cursor",
        path: ".cursor/projects/home-dev-acme-api/agent-transcripts/6f1d0c2b-7a55-4e0a-8f10-1b2c3d4e5f60/6f1d0c2b-7a55-4e0a-8f10-1b2c3d4e5f60.jsonl",
        id: "6f1d0c2b-7a55-4e0a-8f10-1b2c3d4e5f60",
    },
];

/// Formats that are one document.
const DOCUMENTS: [Case; 2] = [
    Case {
        agent: "gemini-cli",
        path: ".gemini/tmp/6689668a49dc648b376787d8cde1d55e418968e916b4efa79d849fba7fb28a1f/chats/session-2025-12-01T08-00-1d2c3b4a.json",
        id: "1d2c3b4a-0000-4000-8000-000000000777",
    },
    Case {
        agent: "amp",
        path: ".local/share/amp/threads/T-6f1c2d3e-4a5b-4c6d-8e7f-001122334455.json",
        id: "T-6f1c2d3e-4a5b-4c6d-8e7f-001122334455",
    },
];

/// A copy of a case's home, to be damaged.
struct Copy {
    home: tempfile::TempDir,
    path: PathBuf,
    /// What is in the file, whole lines only.
    content: Vec<u8>,
    /// The ids of the other sessions.
    others: Vec<String>,
    id: &'static str,
    agent: &'static str,
}

impl Case {
    fn copy(&self) -> Copy {
        let home = copy(self.agent);
        let path = home.path().join(self.path);
        let mut content = fs::read(&path).expect("read");
        content.truncate(content.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
        fs::write(&path, &content).expect("written");
        let mut others = ids(home.path());
        others.retain(|id| id != self.id);
        Copy { home, path, content, others, id: self.id, agent: self.agent }
    }
}

impl Copy {
    /// Puts something else in the file. The others must still be listed, without any problem.
    #[track_caller]
    fn write(&self, content: &[u8]) -> Option<Foreign> {
        fs::write(&self.path, content).expect("written");
        self.look()
    }

    #[track_caller]
    fn look(&self) -> Option<Foreign> {
        let (sessions, problems) = list(self.home.path());
        assert!(problems.is_empty(), "{}: {problems:?}", self.agent);
        let mut found: Vec<String> = sessions.iter().map(|session| session.id.to_string()).collect();
        found.retain(|id| id != self.id);
        found.sort();
        // One whose file lost its beginning is listed by what is left of its name.
        found.retain(|id| !self.id.starts_with(&**id));
        assert_eq!(found, self.others, "{}", self.agent);
        let is_it = |session: &Foreign| session.place.path == self.path;
        sessions.into_iter().find(is_it)
    }

    /// What is read when nothing is wrong.
    #[track_caller]
    fn whole(&self) -> (Vec<Entry>, Told) {
        told(&self.write(&self.content).expect("listed"))
    }

    fn lines(&self) -> Vec<&[u8]> {
        self.content.split_inclusive(|byte| *byte == b'\n').collect()
    }
}

fn ids(home: &Path) -> Vec<String> {
    let mut ids: Vec<String> = list(home).0.iter().map(|session| session.id.to_string()).collect();
    ids.sort();
    ids
}

#[test]
fn an_empty_file_and_one_with_only_a_header_are_no_sessions() {
    for case in &LINES {
        let copy = case.copy();
        assert_eq!(copy.write(b"").map(|session| session.id), None, "{}", case.agent);
        assert_eq!(copy.write(b"\n\n").map(|session| session.id), None, "{}", case.agent);
        if case.agent != "cursor" {
            assert_eq!(copy.write(copy.lines()[0]).map(|session| session.id), None, "{}", case.agent);
        }
    }
    for case in &DOCUMENTS {
        let copy = case.copy();
        for content in ["", "{}", "{\"messages\": []}"] {
            assert_eq!(copy.write(content.as_bytes()).map(|session| session.id), None, "{content}");
        }
    }
}

/// Sessions that older releases kept as lines; the samples have none.
const LEGACY: [(&str, &str, &str); 2] = [
    (
        "openclaw",
        ".openclaw/agents/main/sessions/bad.jsonl",
        r#"{"type":"session","id":"bad","cwd":"/home/dev"}"#,
    ),
    (
        "goose",
        ".local/share/goose/sessions/20250101_bad.jsonl",
        r#"{"working_dir":"/home/dev","description":"Bad"}"#,
    ),
];

/// Hands over each format with a record a line: a home, where a session of it is, its header, and the ids of the
/// others.
fn each_of_lines(check: impl Fn(&Path, &str, &str, &[String])) {
    for (agent, path, header) in LEGACY {
        let home = copy(agent);
        fs::create_dir_all(home.path().join(path).parent().expect("a directory")).expect("made");
        check(home.path(), path, header, &ids(home.path()));
    }
    for case in &LINES {
        let copy = case.copy();
        // Cursor writes none, so a record of a kind that is not known stands there.
        let header = if case.agent == "cursor" { b"{}" } else { copy.lines()[0].trim_ascii_end() };
        let header = str::from_utf8(header).expect("text");
        check(copy.home.path(), case.path, header, &copy.others);
    }
}

#[test]
fn a_file_of_which_nothing_can_be_read_is_left_out_and_told_of() {
    let garbage = [&b"\0\x01\xff\n\x80not json\n{\n"[..], b"\xff\xfe"];
    each_of_lines(|home, path, _, others| {
        for content in garbage {
            fs::write(home.join(path), content).expect("written");
            let (_, problems) = list(home);
            assert_eq!((&ids(home)[..], problems.len()), (others, 1), "{path}: {problems:?}");
            assert!(
                problems[0].ends_with("no line of it is a record; what is in it is left out"),
                "{problems:?}"
            );
        }
        // Somebody begins to write it.
        fs::write(home.join(path), "{\"type\":").expect("written");
        assert_eq!(list(home).1, Vec::<String>::new(), "{path}");
    });
}

#[test]
fn a_file_whose_lines_are_damaged_but_for_its_header_is_left_out_and_told_of() {
    each_of_lines(|home, path, header, others| {
        let problems = |rest: &[u8]| {
            fs::write(home.join(path), [header.as_bytes(), b"\n", rest].concat()).expect("written");
            assert_eq!(&ids(home)[..], others, "{path}");
            list(home).1
        };
        let long = b"{\"broken\n".repeat(20_000);
        for rest in [&b"{\"broken\n{\"broken\n"[..], b"{\"broken\n{}", b"{\"type\":\"\xff\"}\n", &long] {
            let problems = problems(rest);
            let end = "some of its lines are no records; what is in it is left out";
            assert!(problems.len() == 1 && problems[0].ends_with(end), "{path}: {problems:?}");
            assert!(problems[0].contains(path), "{problems:?}");
        }
        // Nobody said anything, or somebody is about to.
        for rest in [&b""[..], b"{\"type\":\"hologram\"}\n{}\n[]\n", b"\r\n \n", b"{\"broken"] {
            assert_eq!(problems(rest), Vec::<String>::new(), "{path}");
        }
    });
}

/// Returns a record with another value in a field that it has; `a.b` is a field of a field.
fn with(mut record: Value, field: &str, value: &Value) -> Value {
    let pointer = format!("/{}", field.replace('.', "/"));
    if let Some(place) = record.pointer_mut(&pointer) {
        *place = value.clone();
    }
    record
}

/// Values of types that few fields have.
fn odd_values() -> [Value; 4] {
    [Value::Null, json!(7), json!({"x": 1}), json!([[]])]
}

impl Copy {
    /// Writes the file with another value in a field of all of its records.
    fn write_with(&self, field: &str, value: &Value) {
        let records = self.lines().into_iter().map(|line| serde_json::from_slice(line).expect("a record"));
        let lines: String = records.map(|record| format!("{}\n", with(record, field, value))).collect();
        fs::write(&self.path, lines).expect("written");
    }
}

#[test]
fn a_field_of_another_type_that_only_decorates_a_record_costs_nothing_else() {
    let decoration: [&[&str]; 4] = [
        &[
            "timestamp",
            "cwd",
            "gitBranch",
            "uuid",
            "isMeta",
            "isSidechain",
            "isCompactSummary",
            "sessionId",
            "customTitle",
            "message.id",
            "message.model",
            "message.stop_reason",
            "message.usage",
        ],
        &["timestamp", "ordinal", "payload.timestamp", "payload.cwd", "payload.git"],
        &["timestamp", "startTime", "lastUpdated", "projectHash", "tokens", "model"],
        &["type"],
    ];
    for (case, fields) in LINES.iter().zip(decoration) {
        let copy = case.copy();
        let before = said(copy.whole().0);
        for field in fields {
            for value in odd_values() {
                copy.write_with(field, &value);
                let session = copy.look().unwrap_or_else(|| panic!("{field} {value} costs {}", case.id));
                assert_eq!(session.id.as_str(), case.id, "{field} {value}");
                let (read, counts) = told(&session);
                assert_eq!(counts.bad, 0, "{field} {value}");
                let mut read = said(read).into_iter();
                // What was for the model alone is a prompt without a mark of that, and comes in between.
                let lost = before.iter().find(|block| !read.any(|it| it == **block));
                assert_eq!(lost, None, "{field} {value}");
            }
        }
    }
}

/// Returns what was said and not taken back.
fn said(entries: Vec<Entry>) -> Vec<Block> {
    entries.into_iter().filter(|entry| !entry.is_taken_back).flat_map(|entry| entry.body.content).collect()
}

#[test]
fn turns_of_which_no_number_is_told_are_not_taken_back() {
    let copy = LINES[1].copy();
    let before = said(copy.whole().0);
    for value in odd_values().iter().filter(|value| !value.is_number()) {
        copy.write_with("payload.num_turns", value);
        let mut read = said(told(&copy.look().expect("listed")).0).into_iter();
        assert!(before.iter().all(|block| read.any(|it| it == *block)), "{value}");
    }
}

#[test]
fn a_record_that_names_no_parent_begins_anew_and_one_whose_parent_cannot_be_told_does_not() {
    let copy = LINES[0].copy();
    let whole = copy.whole().0;
    for value in odd_values() {
        copy.write_with("parentUuid", &value);
        let (read, counts) = told(&copy.look().expect("listed"));
        assert_eq!((read.len(), counts.bad), (whole.len(), 0), "{value}");
        assert_eq!(said(read).last(), said(whole.clone()).last(), "{value}");
    }
}

#[test]
fn a_session_whose_id_is_no_text_goes_by_the_name_of_its_file() {
    for case in [&LINES[2], &DOCUMENTS[0]] {
        let copy = case.copy();
        let before = copy.whole().0.len();
        for value in odd_values() {
            let text = String::from_utf8(copy.content.clone()).expect("text");
            let id = format!("\"{}\"", case.id);
            let session = copy.write(text.replace(&id, &value.to_string()).as_bytes()).expect("listed");
            assert!(case.id.starts_with(session.id.as_str()), "{}", session.id);
            assert_eq!(told(&session).0.len(), before, "{value}");
        }
    }
}

#[test]
fn a_clock_may_be_a_number() {
    for case in &LINES[..3] {
        let copy = case.copy();
        for number in [1_794_301_200_i64, 1_794_301_200_000] {
            copy.write_with("timestamp", &json!(number));
            let session = copy.look().expect("listed");
            assert_eq!(session.updated_at.to_string(), "2026-11-10T09:00:00Z", "{}", case.agent);
        }
    }
}

#[test]
fn a_file_whose_records_cannot_be_understood_is_left_out_and_told_of() {
    let kinds: [&[&str]; 4] = [&["type"], &["type", "payload", "payload.type"], &["type"], &["role"]];
    let is_told = |copy: &Copy, end: &str| {
        let (_, problems) = list(copy.home.path());
        let others = ids(copy.home.path());
        assert_eq!((&others, problems.len()), (&copy.others, 1), "{}: {problems:?}", copy.agent);
        let path = copy.path.to_string_lossy();
        assert!(problems[0].contains(&*path) && problems[0].contains(end), "{problems:?}");
    };
    for (case, fields) in LINES.iter().zip(kinds) {
        let copy = case.copy();
        for field in fields {
            for value in odd_values() {
                copy.write_with(field, &value);
                is_told(&copy, "record");
            }
        }
        // It is whole, though its line has no end.
        fs::write(&copy.path, r#"{"type":7,"id":7,"role":7,"message":{}}"#).expect("written");
        is_told(&copy, "no line of it is a record");
    }
    for (agent, path, header) in LEGACY {
        let home = copy(agent);
        let others = ids(home.path());
        fs::create_dir_all(home.path().join(path).parent().expect("a directory")).expect("made");
        for value in odd_values() {
            let said = json!({"type": value, "role": value, "message": {"role": "user"}, "content": []});
            fs::write(home.path().join(path), format!("{header}\n{said}\n")).expect("written");
            let (_, problems) = list(home.path());
            assert_eq!((ids(home.path()), problems.len()), (others.clone(), 1), "{value}: {problems:?}");
            assert!(problems[0].contains("some of its lines are no records"), "{problems:?}");
        }
    }
    for case in &DOCUMENTS {
        let copy = case.copy();
        let document: Value = serde_json::from_slice(&copy.content).expect("a document");
        for value in odd_values() {
            let mut damaged = vec![with(document.clone(), "messages", &value)];
            if case.agent == "gemini-cli" {
                let messages = document["messages"].as_array().expect("messages").iter();
                let messages: Value = messages.map(|it| with(it.clone(), "type", &value)).collect();
                damaged.push(with(document.clone(), "messages", &messages));
            } else if value.is_array() {
                continue;
            }
            for document in damaged {
                fs::write(&copy.path, document.to_string()).expect("written");
                is_told(&copy, "before anything that was said");
            }
        }
    }
}

#[test]
fn a_file_that_is_no_document_is_left_out_and_told_of() {
    for case in &DOCUMENTS {
        let copy = case.copy();
        for content in [&b"\xff\xfenot json"[..], b"[]", b"null"] {
            fs::write(copy.home.path().join(case.path), content).expect("written");
            let (_, problems) = list(copy.home.path());
            assert_eq!((&ids(copy.home.path()), problems.len()), (&copy.others, 1), "{problems:?}");
            assert!(problems[0].contains("it is no document"), "{problems:?}");
        }
        // It begins as one, and ends before anything was said.
        let said = copy.content.windows(10).position(|part| part == b"\"messages\"").expect("messages");
        for content in [&b"{not json"[..], b"{", &copy.content[..said]] {
            fs::write(copy.home.path().join(case.path), content).expect("written");
            let (_, problems) = list(copy.home.path());
            assert_eq!((&ids(copy.home.path()), problems.len()), (&copy.others, 1), "{problems:?}");
            assert!(problems[0].contains("it breaks off, or is damaged"), "{problems:?}");
        }
        // What was said before it ends is read, and that there was more is told.
        let (before, whole) = copy.whole();
        let (read, counts) = told(&copy.write(&copy.content[..copy.content.len() * 3 / 4]).expect("listed"));
        assert!(!read.is_empty() && read.len() < before.len(), "{}", case.agent);
        assert_eq!((whole.bad, counts.bad, counts.is_torn), (0, 1, true), "{}", case.agent);
    }
}

#[test]
fn what_is_compressed_and_no_record_is_left_out_and_told_of() {
    let home = copy("openclaw");
    let dir = home.path().join(".openclaw/agents/main/sessions");
    fs::create_dir_all(&dir).expect("made");
    let others = ids(home.path());
    let garbage = zstd::encode_all(&b"\0\x01garbage\nnot json\n"[..], 1).expect("compressed");
    for content in [&garbage[..], b"\xff\xfeno zstd at all"] {
        fs::write(dir.join("bad.jsonl.reset.2026-01-01T00-00-00.000Z.zst"), content).expect("written");
        let (_, problems) = list(home.path());
        assert_eq!((ids(home.path()), problems.len()), (others.clone(), 1), "{problems:?}");
        assert!(problems[0].contains("bad.jsonl.reset"), "{problems:?}");
    }
}

#[test]
fn a_clock_that_was_wrong_does_not_keep_a_session_first() {
    for case in LINES.iter().filter(|case| case.agent != "cursor") {
        let copy = case.copy();
        let text = String::from_utf8(copy.content.clone()).expect("text").replace("2026-", "2999-");
        let session = copy.write(text.as_bytes()).expect("listed");
        let changed_at = session.changed_at().expect("a time");
        assert_eq!((session.updated_at, session.created_at), (changed_at, None), "{}", case.agent);
    }
}

#[test]
fn a_torn_end_is_told_and_costs_only_itself() {
    for case in &LINES {
        let copy = case.copy();
        let (entries, _) = copy.whole();
        let torn = [&copy.content[..], copy.lines()[1].split_at(20).0].concat();
        let (read, counts) = told(&copy.write(&torn).expect("listed"));
        assert_eq!((read.len(), counts.is_torn, counts.bad), (entries.len(), true, 0), "{}", case.agent);
    }
}

#[test]
fn bytes_that_are_no_text_cost_their_line() {
    for case in &LINES {
        let copy = case.copy();
        let before = copy.whole();
        let bad =
            [&b"{\"type\":\"user\",\"x\":\"\xff\xfe\"}\n"[..], b"not json\n", b"\0\0\n", b"[]\n7\n"].concat();
        let lines = copy.lines();
        let content = [&lines[..2].concat()[..], &bad, &lines[2..].concat()].concat();
        let (read, counts) = told(&copy.write(&content).expect("listed"));
        assert_eq!(read.len(), before.0.len(), "{}", case.agent);
        // What stands in a field that nobody looks at makes a record no worse.
        assert_eq!(counts.bad + counts.unknown, 5, "{}", case.agent);
    }
}

/// Writes a text as a person's words, as each agent of [`LINES`] does.
fn records(text: &str) -> [String; 4] {
    [
        format!(r#"{{"type":"user","uuid":"u","message":{{"role":"user","content":"{text}"}}}}"#),
        format!(r#"{{"type":"event_msg","payload":{{"type":"user_message","message":"{text}"}}}}"#),
        format!(r#"{{"id":"new","type":"user","content":"{text}"}}"#),
        format!(r#"{{"role":"user","message":{{"content":"{text}"}}}}"#),
    ]
}

/// Half of a surrogate pair, as JavaScript writes and reads it, beside what only looks like one, and a whole one.
const HALF: &str = r"half \ud83d of a pair, \\ud83d, \uDC00\ud83d\ude00";
const HALF_READ: &str = "half \u{fffd} of a pair, \\ud83d, \u{fffd}\u{1f600}";

#[test]
fn half_a_surrogate_pair_costs_itself() {
    for (case, record) in LINES.iter().zip(records(HALF)) {
        let copy = case.copy();
        let content = [&copy.content[..], record.as_bytes(), b"\n"].concat();
        let session = copy.write(&content).expect("listed");
        assert!(words(&session).ends_with(HALF_READ), "{}: {}", case.agent, words(&session));
        assert_eq!(told(&session).1.bad, 0, "{}", case.agent);
    }
    let said = [
        format!(r#"{{"type":"message","message":{{"role":"user","content":"{HALF}"}}}}"#),
        format!(r#"{{"role":"user","content":[{{"type":"text","text":"{HALF}"}}]}}"#),
    ];
    for ((agent, path, header), said) in LEGACY.into_iter().zip(said) {
        let home = copy(agent);
        let path = home.path().join(path);
        fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        fs::write(&path, format!("{header}\n{said}\n")).expect("written");
        let session = list(home.path()).0.into_iter().find(|session| session.place.path == path);
        assert_eq!(words(&session.expect("listed")), HALF_READ, "{agent}");
    }
    for (case, text) in DOCUMENTS.iter().zip(["\"content\": \"", "\"text\": \""]) {
        let copy = case.copy();
        let (before, _) = copy.whole();
        let content = String::from_utf8(copy.content.clone()).expect("text");
        let content = content.replacen(text, &format!("{text}{HALF}"), 1);
        let session = copy.write(content.as_bytes()).expect("listed");
        let (read, counts) = told(&session);
        assert_eq!((read.len(), counts.bad, counts.is_torn), (before.len(), 0, false), "{}", case.agent);
        assert!(words(&session).contains(HALF_READ), "{}: {}", case.agent, words(&session));
    }
}

#[test]
fn bytes_in_a_document_that_are_no_text_cost_themselves() {
    for (case, text) in DOCUMENTS.iter().zip(["\"content\": \"", "\"text\": \""]) {
        let copy = case.copy();
        let (before, _) = copy.whole();
        let at = copy.content.windows(text.len()).position(|it| it == text.as_bytes()).expect("there")
            + text.len();
        let (start, end) = copy.content.split_at(at);
        let session = copy.write(&[start, b"1.9 \xff\xfe s", end].concat()).expect("listed");
        let (read, counts) = told(&session);
        assert_eq!((read.len(), counts.bad, counts.is_torn), (before.len(), 0, false), "{}", case.agent);
        assert!(words(&session).contains("1.9 \u{fffd}\u{fffd} s"), "{}: {}", case.agent, words(&session));
    }
}

#[test]
fn half_a_surrogate_pair_costs_no_title() {
    let cut = r"cut in \ud83d";
    for (case, record) in [
        (&LINES[0], format!(r#"{{"type":"custom-title","customTitle":"{cut}"}}"#)),
        (&LINES[2], format!(r#"{{"$set":{{"summary":"{cut}"}}}}"#)),
    ] {
        let copy = case.copy();
        let session = copy.write(&[&copy.content[..], record.as_bytes(), b"\n"].concat()).expect("listed");
        let (_, counts) = told(&session);
        let read = counts.title.expect("a title");
        assert_eq!((&*session.title, &*read, counts.bad), ("cut in \u{fffd}", "cut in \u{fffd}", 0));
    }
}

#[test]
fn of_two_writers_that_came_between_each_other_only_the_mixed_lines_are_lost() {
    for case in &LINES {
        let copy = case.copy();
        let lines = copy.lines();
        let (one, two) = (lines[1].trim_ascii_end(), lines[2]);
        let (start, end) = one.split_at(one.len() / 2);
        let content = [&copy.content[..], start, two, end, b"\n", lines[1]].concat();
        let (read, counts) = told(&copy.write(&content).expect("listed"));
        assert!(counts.bad >= 1, "{}: {counts:?}", case.agent);
        assert!(read.len() >= copy.whole().0.len(), "{}", case.agent);
    }
}

#[test]
fn a_line_of_three_megabytes_is_a_message_like_others() {
    let long = "x".repeat(3 << 20);
    for (case, record) in LINES.iter().zip(records(&long)) {
        let copy = case.copy();
        let title = copy.write(&copy.content).expect("listed").title;
        let session = copy.write(&[&copy.content[..], record.as_bytes(), b"\n"].concat()).expect("listed");
        assert_eq!(session.title, title, "{}", case.agent);
        let (read, counts) = told(&session);
        assert_eq!(counts.bad, 0, "{}", case.agent);
        let is_long = |entry: &Entry| serde_json::to_string(&entry.body).expect("written").len() > 3 << 20;
        assert_eq!(read.iter().filter(|entry| is_long(entry)).count(), 1, "{}", case.agent);
    }
}

#[test]
fn a_long_line_at_its_end_does_not_hide_when_a_session_went_on_nor_what_it_is_called() {
    const EARLY: &str = "2026-11-10T09:00:00Z";
    const LATE: &str = "2026-11-12T10:30:00Z";
    let said = |agent: &str, at: &str, text: &str| match agent {
        "claude-code" => {
            json!({"type": "user", "timestamp": at, "message": {"role": "user", "content": text}})
        }
        "codex" => {
            json!({"type": "event_msg", "timestamp": at, "payload": {"type": "user_message", "message": text}})
        }
        _ => json!({"id": text.len().to_string(), "timestamp": at, "type": "user", "content": text}),
    };
    for case in LINES.iter().filter(|case| case.agent != "cursor") {
        let copy = case.copy();
        let filler = format!("{}\n", said(case.agent, EARLY, &"f".repeat(1_000))).repeat(10_000);
        let title = match case.agent {
            "claude-code" => json!({"type": "custom-title", "customTitle": "Late"}),
            _ => json!({"$set": {"summary": "Late"}}),
        };
        let listed = |end: &str| {
            let content = [&copy.content[..], filler.as_bytes(), end.as_bytes()].concat();
            fs::write(&copy.path, content).expect("written");
            touch(copy.home.path());
            copy.look().expect("listed")
        };
        for len in [1_000, 70_000, 130_800, 3 << 20] {
            let long = said(case.agent, LATE, &"x".repeat(len));
            // Half a line behind it, and a record without a time.
            let session = listed(&format!("{title}\n{long}\n{{\"type\":\"mode\"}}\n{{\"type\":"));
            assert_eq!(session.updated_at.to_string(), LATE, "{} {len}", case.agent);
            if case.agent != "codex" {
                assert_eq!(session.title, "Late", "{} {len}", case.agent);
            }
        }
        // One that is longer than what is looked at leaves the time of the file.
        let session = listed(&format!("{}\n", said(case.agent, LATE, &"x".repeat(9 << 20))));
        assert_eq!(Some(session.updated_at), session.changed_at(), "{}", case.agent);
    }
}

#[test]
fn messages_at_both_ends_that_are_longer_than_what_is_looked_at_do_not_hide_a_session() {
    each_of_lines(|home, path, header, others| {
        let said = |agent: &str, text: &str| match agent {
            ".claude" => json!({"type": "user", "message": {"role": "user", "content": text}}),
            ".codex" => {
                json!({"type": "event_msg", "payload": {"type": "user_message", "message": text}})
            }
            ".gemini" => json!({"id": text.len().to_string(), "type": "user", "content": text}),
            ".openclaw" => json!({"type": "message", "message": {"role": "user", "content": text}}),
            _ => {
                let content = json!([{"type": "text", "text": text}]);
                json!({"role": "user", "message": {"content": content}, "content": content})
            }
        };
        let agent = path.split('/').next().expect("a directory");
        let (long, longer) = (said(agent, &"x".repeat(20_000)), said(agent, &"y".repeat(9 << 20)));
        fs::write(home.join(path), format!("{header}\n{long}\n{longer}\n")).expect("written");
        let (sessions, problems) = list(home);
        assert_eq!((sessions.len(), problems), (others.len() + 1, Vec::new()), "{path}");
    });
}

#[test]
fn what_says_no_time_after_the_last_message_does_not_make_a_session_new() {
    let case = LINES.iter().find(|case| case.agent == "claude-code").expect("it has lines");
    let copy = case.copy();
    let before = copy.look().expect("listed").updated_at;
    let silent = format!("{}\n", json!({"type": "progress", "data": "p".repeat(1_000)})).repeat(200);
    fs::write(&copy.path, [&copy.content[..], silent.as_bytes()].concat()).expect("written");
    touch(copy.home.path());
    assert_eq!(copy.look().expect("listed").updated_at, before, "all of it was seen");
}

#[test]
fn the_same_session_in_two_files_is_listed_once() {
    for case in LINES.iter().chain(&DOCUMENTS) {
        let copy = case.copy();
        let name = copy.path.file_name().expect("a name");
        let dir = copy.path.parent().expect("a directory");
        // Another project, another day: the same id.
        let other = match case.agent {
            "claude-code" => dir.with_file_name("-elsewhere").join(name),
            "codex" => dir.with_file_name("30").join(name),
            "cursor" => dir.with_file_name("elsewhere").join(name),
            "gemini-cli" => copy.path.with_extension(format!(
                "0.{}",
                copy.path.extension().and_then(|it| it.to_str()).expect("one")
            )),
            _ => continue,
        };
        fs::create_dir_all(other.parent().expect("a directory")).expect("made");
        fs::write(other, &copy.content).expect("written");
        let found = ids(copy.home.path());
        assert_eq!(found.len(), copy.others.len() + 1, "{}: {found:?}", case.agent);
    }
}

#[test]
fn of_two_files_of_one_session_the_one_that_was_changed_last_counts_and_the_other_is_told_of() {
    for case in LINES.iter().filter(|case| ["claude-code", "gemini-cli"].contains(&case.agent)) {
        let copy = case.copy();
        let name = copy.path.file_name().expect("a name");
        let other = match case.agent {
            "claude-code" => copy.path.parent().expect("a directory").with_file_name("--other").join(name),
            _ => copy.path.with_extension("0.jsonl"),
        };
        fs::create_dir_all(other.parent().expect("a directory")).expect("made");
        fs::copy(&copy.path, &other).expect("copied");
        for (older, newer) in [(&copy.path, &other), (&other, &copy.path)] {
            for (path, seconds) in [(older, 1_794_480_000), (newer, 1_794_480_060)] {
                let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
                fs::File::options()
                    .write(true)
                    .open(path)
                    .and_then(|file| file.set_modified(at))
                    .expect("touched");
            }
            let (sessions, problems) = list(copy.home.path());
            let session = sessions.iter().find(|session| session.id.as_str() == case.id).expect("listed");
            assert_eq!(&session.place.path, newer, "{}", case.agent);
            let (older, newer) = (older.display(), newer.display());
            let what = format!(
                "{older}: its session is also in {newer}, which was changed last; what is in it is left out"
            );
            assert_eq!(problems, [what], "{}", case.agent);
        }
    }
}

#[test]
fn of_two_databases_the_one_in_which_the_session_was_changed_last_counts_and_the_other_is_told_of() {
    let later = "UPDATE session SET time_updated = time_updated + 60000 WHERE parent_id IS NULL";
    let of_docker = "UPDATE session_items
        SET message_json = json_set(message_json, '$.created_at', '2026-11-15T00:00:00Z') WHERE message_json <> ''";
    for (agent, path, other, sql) in [
        ("opencode", ".local/share/opencode/opencode.db", ".local/share/opencode/opencode-beta.db", later),
        ("docker-agent", ".cagent/session.db", "acme-api/session.db", of_docker),
    ] {
        let home = copy(agent);
        let (path, other) = (home.path().join(path), home.path().join(other));
        fs::create_dir_all(other.parent().expect("a directory")).expect("made");
        fs::copy(&path, &other).expect("copied");
        let check = |changed: &Path| {
            let (sessions, problems) = list(home.path());
            let is_there = |session: &Foreign| session.place.path == changed && !session.is_sub_agent();
            assert!(sessions.iter().any(is_there), "{agent}: {sessions:?}");
            assert!(problems.iter().all(|what| what.contains("also in")), "{problems:?}");
            // One piece of news for each way, however many sessions that are.
            let of_other =
                problems.iter().filter(|what| what.contains(&format!("also in {}", changed.display())));
            assert_eq!(of_other.count(), 1, "{agent}: {problems:?}");
        };
        check(&path);
        let connection = Connection::open(&other).expect("opened");
        connection.execute_batch(sql).expect("changed");
        drop(connection);
        check(&other);
    }
}

#[test]
fn times_that_are_missing_or_in_the_future_do_not_keep_a_session_from_being_read() {
    for case in LINES.iter().chain(&DOCUMENTS) {
        let copy = case.copy();
        let text = String::from_utf8(copy.content.clone()).expect("text");
        let count = copy.whole().0.len();
        for year in ["99999-", "9998-", "0001-", "soon-"] {
            let content = text
                .replace("2026-", year)
                .replace("2025-", year)
                .replace("\"created\": 17", "\"created\": -9");
            let session = copy.write(content.as_bytes()).expect("listed");
            assert_eq!(told(&session).0.len(), count, "{} {year}", case.agent);
        }
        let content = text.replace("\"timestamp\"", "\"elsewhen\"").replace("\"startTime\"", "\"s\"");
        let session = copy.write(content.as_bytes()).expect("listed");
        assert!(session.updated_at > Timestamp::default(), "{}", case.agent);
        assert_eq!(told(&session).0.len(), count, "{}", case.agent);
    }
}

/// Puts a link at the place of a file or directory.
fn link(path: &Path) -> tempfile::TempDir {
    let outside = tempfile::tempdir().expect("a directory");
    let target = outside.path().join("target");
    fs::rename(path, &target).expect("moved");
    symlink(&target, path).expect("linked");
    outside
}

/// Checks that a session is not listed, and that one problem says why of the path.
#[track_caller]
fn check_told(home: &Path, id: &str, path: &Path, why: &str) {
    let (_, problems) = list(home);
    assert!(!ids(home).contains(&id.to_owned()), "{id}");
    let told = format!("{} cannot be read: {why}; what is in it is left out", path.display());
    assert_eq!(problems, [told]);
}

const LINKED: &str = "it is a link, and links are not followed";

#[test]
fn links_out_of_the_tree_are_not_followed_and_told_of() {
    for case in LINES.iter().chain(&DOCUMENTS) {
        let copy = case.copy();
        let _outside = link(&copy.path);
        check_told(copy.home.path(), case.id, &copy.path, LINKED);
        // Nor are directories that are links, but for the one that all sessions are in.
        let depth = match case.agent {
            "claude-code" => 1,
            "codex" => 3,
            "gemini-cli" => 2,
            "cursor" => 3,
            _ => 0,
        };
        for above in 1..=depth {
            let copy = case.copy();
            let dir = copy.path.ancestors().nth(above).expect("a directory");
            let _outside = link(dir);
            check_told(copy.home.path(), case.id, dir, LINKED);
        }
        let copy = case.copy();
        let _outside = link(copy.path.ancestors().nth(depth + 1).expect("a directory"));
        assert!(copy.look().is_some(), "{}", case.agent);
    }
    for (agent, path, header) in LEGACY {
        let home = copy(agent);
        let path = home.path().join(path);
        fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        fs::write(&path, header).expect("written");
        let _outside = link(&path);
        check_told(home.path(), "bad", &path, LINKED);
    }
}

#[test]
fn directories_inside_the_one_that_all_sessions_are_in_are_told_of_where_they_are_links() {
    let check = |agent: &str, id: &str, path: &str| {
        let home = copy(agent);
        assert!(ids(home.path()).contains(&id.to_owned()), "{id}");
        let path = home.path().join(path);
        let _outside = link(&path);
        check_told(home.path(), id, &path, LINKED);
    };
    let session = ".claude/projects/-home-dev-acme-api/5b0c1f62-6c0e-4a8e-9d53-2f1f0f6a1c01";
    check("claude-code", "agent-a7c1d2e3f4051627", session);
    check("claude-code", "agent-a7c1d2e3f4051627", &format!("{session}/subagents"));
    check("gemini-cli", "explorer-2c9d", ".gemini/tmp/acme-api/chats/7f3c2a10-55aa-4d1e-b8a2-90c1d2e3f401");
    let legacy = ".local/share/opencode/storage";
    for dir in ["", "/session", "/session/b2f1c0d9e8a7f6e5d4c3b2a1908f7e6d5c4b3a29"] {
        check("opencode", "ses_legacy0001", &format!("{legacy}{dir}"));
    }
    let agent = ".openclaw/agents/main";
    for dir in ["", "/agent"] {
        let home = copy("openclaw");
        fs::remove_dir_all(home.path().join(agent).join("sessions")).expect("removed");
        let path = home.path().join(format!("{agent}{dir}"));
        let _outside = link(&path);
        check_told(home.path(), "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d", &path, LINKED);
    }
    // What is no session's may be anywhere.
    for (agent, path) in [
        ("claude-code", ".claude/projects/-home-dev-acme-api/memory"),
        ("codex", ".codex/sessions/latest"),
        ("gemini-cli", ".gemini/tmp/bin"),
        ("cursor", ".cursor/projects/notes"),
    ] {
        let home = copy(agent);
        let before = ids(home.path());
        fs::create_dir(home.path().join(path)).expect("made");
        let _outside = link(&home.path().join(path));
        assert_eq!((ids(home.path()), list(home.path()).1), (before, Vec::new()), "{path}");
    }
}

#[test]
fn messages_that_have_files_of_their_own_are_not_read_through_links() {
    for dir in ["message", "message/ses_legacy0001", "part", "part/msg_legacy01"] {
        let home = copy("opencode");
        let _outside = link(&home.path().join(".local/share/opencode/storage").join(dir));
        let session = list(home.path()).0.into_iter().find(|session| session.id.as_str() == "ses_legacy0001");
        let text = messages(&session.expect("listed"));
        assert!(text.contains(LINKED), "{dir}: {text}");
    }
}

#[test]
fn a_directory_or_a_pipe_at_the_place_of_a_session_is_told_of() {
    let why = "it is no regular file";
    for case in LINES.iter().chain(&DOCUMENTS) {
        let copy = case.copy();
        fs::remove_file(&copy.path).expect("removed");
        fs::create_dir(&copy.path).expect("made");
        check_told(copy.home.path(), case.id, &copy.path, why);
        fs::remove_dir(&copy.path).expect("removed");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &copy.path, rustix::fs::FileType::Fifo, mode, 0).expect("made");
        check_told(copy.home.path(), case.id, &copy.path, why);
    }
}

#[test]
fn of_a_thread_that_is_also_archived_the_file_that_can_be_read_counts() {
    let case = &LINES[1];
    let copy = case.copy();
    let archived = copy.home.path().join(".codex/archived_sessions");
    fs::copy(&copy.path, archived.join(copy.path.file_name().expect("a name"))).expect("copied");
    let _outside = link(&copy.path);
    let (sessions, problems) = list(copy.home.path());
    let session = sessions.iter().find(|session| session.id.as_str() == case.id).expect("listed");
    assert_eq!((session.is_archived, problems), (true, Vec::new()));
}

#[test]
fn a_file_that_may_not_be_read_is_one_problem() {
    for case in LINES.iter().chain(&DOCUMENTS) {
        let copy = case.copy();
        fs::set_permissions(&copy.path, fs::Permissions::from_mode(0o000)).expect("set");
        if fs::read(&copy.path).is_ok() {
            // Who may read everything cannot be kept from it.
            return;
        }
        let (sessions, problems) = list(copy.home.path());
        assert_eq!((sessions.len(), problems.len()), (copy.others.len(), 1), "{}", case.agent);
    }
}

#[test]
fn reading_changes_nothing() {
    for agent in fs::read_dir(sample("")).expect("samples") {
        let agent = agent.expect("an entry");
        if !agent.file_type().expect("a kind").is_dir() {
            continue;
        }
        let home = copy(agent.file_name().to_str().expect("a name"));
        let state = || -> Vec<_> {
            let state = |path: PathBuf| {
                let changed = fs::metadata(&path).and_then(|it| it.modified()).expect("a time");
                (fs::read(&path).expect("read"), changed, path)
            };
            files(home.path()).into_iter().map(state).collect()
        };
        let before = state();
        assert!(written(home.path()).contains("==="), "{agent:?}");
        assert!(state() == before, "{agent:?}");
    }
}

#[test]
fn parents_that_lead_in_a_circle_are_listed_and_read() {
    let case = &LINES[1];
    let copy = case.copy();
    let text = String::from_utf8(copy.content.clone()).expect("text");
    let child = "019a71ab-77f0-7e51-9b00-0f0e0d0c0b0a";
    let looped = text.replacen("\"cwd\"", &format!("\"parent_thread_id\":\"{child}\",\"cwd\""), 1);
    let session = copy.write(looped.as_bytes()).expect("listed");
    assert_eq!(session.parent.map(|id| id.to_string()).as_deref(), Some(child));
    let own = text.replacen("\"cwd\"", &format!("\"parent_thread_id\":\"{}\",\"cwd\"", case.id), 1);
    assert_eq!(copy.write(own.as_bytes()).expect("listed").parent, None);
    // Records of Claude Code name their parents too.
    let copy = LINES[0].copy();
    let text = String::from_utf8(copy.content.clone()).expect("text");
    let looped =
        text.replacen("\"parentUuid\":null", "\"parentUuid\":\"00000000-0000-4000-8000-000000000004\"", 1);
    let count = copy.whole().0.len();
    assert_eq!(told(&copy.write(looped.as_bytes()).expect("listed")).0.len(), count);
}
