//! What Cursor's command line and its editor leave, apart and together.

use std::{fs, path::Path};

use rusqlite::Connection;
use serde_json::{Value, json};
use sess_readers::dir_of_project;

use crate::homes::{homes, list, told, words};

fn store(home: &Path, rows: &[(&str, Value)]) {
    let dir = home.join(".config/Cursor/User/globalStorage");
    fs::create_dir_all(&dir).expect("made");
    let store = Connection::open(dir.join("state.vscdb")).expect("made");
    store.execute_batch("CREATE TABLE cursorDiskKV (key TEXT UNIQUE, value BLOB)").expect("made");
    for (key, value) in rows {
        let value = value.to_string().into_bytes();
        store.execute("INSERT INTO cursorDiskKV VALUES (?1, ?2)", (key, value)).expect("written");
    }
}

fn transcript(home: &Path, path: &str, records: &[Value]) {
    let path = home.join(".cursor/projects/home-dev/agent-transcripts").join(path);
    fs::create_dir_all(path.parent().expect("a directory")).expect("made");
    let text: String = records.iter().map(|record| format!("{record}\n")).collect();
    fs::write(path, text).expect("written");
}

fn said(role: &str, text: &str) -> Value {
    json!({"role": role, "message": {"content": [{"type": "text", "text": text}]}})
}

#[test]
fn tools_thoughts_and_images_of_the_editor_come_in_order_and_a_lost_message_is_counted() {
    let temp = tempfile::tempdir().expect("a directory");
    let headers =
        json!([{"bubbleId": "1", "type": 1}, {"bubbleId": "lost"}, {"odd": 1}, {"bubbleId": "2", "type": 2}]);
    let tool = json!({"name": "grep", "toolCallId": "t", "rawArgs": "{\"q\":1}", "result": "hit", "status": "completed"});
    let rows = [
        (
            "composerData:c",
            json!({"createdAt": 1_794_278_800_000_i64, "isArchived": true, "fullConversationHeadersOnly": headers}),
        ),
        (
            "bubbleId:c:1",
            json!({"type": 1, "text": "why?", "images": [{"path": "/a.png"}], "workspaceUris": ["file:///w%20s"]}),
        ),
        (
            "bubbleId:c:2",
            json!({"type": 2, "text": "so", "thinking": {"text": "hm"}, "toolFormerData": tool}),
        ),
        ("bubbleId:other:2", json!({"type": 2, "text": "of another"})),
        ("composerData:empty", json!({"name": "nobody said anything"})),
        ("composerData:broken", json!("no object")),
    ];
    store(temp.path(), &rows);
    let (sessions, problems) = list(temp.path());
    assert_eq!(sessions.len(), 1);
    assert!(problems.len() == 1 && problems[0].ends_with("are left out: broken"), "{problems:?}");
    assert_eq!((&*sessions[0].title, sessions[0].cwd.as_deref()), ("why?", Some("/w s")));
    assert!(sessions[0].is_archived);
    assert_eq!(words(&sessions[0]), "why? other hm so grep hit");
    assert_eq!(told(&sessions[0]).1.bad, 1);
}

#[test]
fn messages_that_older_releases_kept_in_the_conversation_are_read() {
    let temp = tempfile::tempdir().expect("a directory");
    let conversation = json!([{"type": 1, "text": "old"}, {"type": 2, "text": "answer"}, {"type": 7}]);
    store(temp.path(), &[("composerData:c", json!({"name": "n", "conversation": conversation}))]);
    let session = list(temp.path()).0.remove(0);
    assert_eq!(words(&session), "old answer");
    assert_eq!(told(&session).1.unknown, 1);
}

#[test]
fn a_conversation_that_the_editor_also_wrote_a_transcript_of_is_there_once() {
    let temp = tempfile::tempdir().expect("a directory");
    store(temp.path(), &[("composerData:c", json!({"conversation": [{"type": 1, "text": "stored"}]}))]);
    transcript(temp.path(), "c/c.jsonl", &[said("user", "written")]);
    let (sessions, _) = list(temp.path());
    assert_eq!(sessions.iter().map(words).collect::<Vec<_>>(), ["stored"]);
}

#[test]
fn sub_agents_are_children_and_what_the_host_put_into_a_prompt_is_hidden() {
    let temp = tempfile::tempdir().expect("a directory");
    let prompt = "<open_and_recently_viewed_files>x</open_and_recently_viewed_files>\n<user_query>\ndo it\n</user_query>";
    transcript(
        temp.path(),
        "p/p.jsonl",
        &[said("user", prompt), json!({"type": "new"}), said("assistant", "done")],
    );
    transcript(temp.path(), "p/subagents/s.jsonl", &[said("user", "<timestamp>now</timestamp>task")]);
    let (mut sessions, _) = list(temp.path());
    sessions.sort_by(|a, b| a.id.cmp(&b.id));
    assert_eq!(sessions.iter().map(words).collect::<Vec<_>>(), ["do it done", "task"]);
    assert_eq!(sessions[1].parent.as_ref().map(sess_core::SessionId::as_str), Some("p"));
    assert_eq!((sessions[0].parent.is_none(), &*sessions[0].title), (true, "do it"));
    assert_eq!(told(&sessions[0]).1.unknown, 1);
}

#[test]
fn conversations_that_cannot_be_read_are_left_out_and_named_each_time() {
    let temp = tempfile::tempdir().expect("a directory");
    let whole = json!({"composerId": "c", "conversation": [{"type": 1, "text": "why?"}]});
    store(temp.path(), &[("composerData:c", whole)]);
    let path = temp.path().join(".config/Cursor/User/globalStorage/state.vscdb");
    let database = Connection::open(path).expect("opened");
    let rows = [
        ("cut", Some("{\"composerId\": \"cut\", \"convers")),
        ("deleted", None),
        ("empty", Some("")),
        ("nothing", Some("null")),
        ("fresh", Some("{\"conversation\": [], \"fullConversationHeadersOnly\": null}")),
        ("headers", Some("{\"fullConversationHeadersOnly\": {\"x\": 1}}")),
        ("no id!", Some("{}")),
        ("other", Some("{\"composerId\": \"another\"}")),
    ];
    for (key, value) in rows {
        let key = format!("composerData:{key}");
        database.execute("INSERT INTO cursorDiskKV VALUES (?1, ?2)", (key, value)).expect("written");
    }
    drop(database);
    let mut catalogue = sess_readers::Catalogue::default();
    for _ in 0..2 {
        let look = catalogue.look(&homes(temp.path()), None);
        let problems: Vec<String> = look.problems.into_iter().map(|problem| problem.what).collect();
        assert_eq!((look.sessions.len(), problems.len()), (1, 1), "{problems:?}");
        assert!(problems[0].starts_with("4 conversation(s) in "), "{problems:?}");
        let left_out = "state.vscdb cannot be read and are left out: cut, headers, no id!, other";
        assert!(problems[0].ends_with(left_out), "{problems:?}");
    }
}

#[test]
fn a_conversation_that_is_too_large_to_be_read_is_told_of() {
    let temp = tempfile::tempdir().expect("a directory");
    store(temp.path(), &[("composerData:c", json!({"conversation": [{"type": 1, "text": "why?"}]}))]);
    let path = temp.path().join(".config/Cursor/User/globalStorage/state.vscdb");
    let database = Connection::open(path).expect("opened");
    let sql = "INSERT INTO cursorDiskKV VALUES ('composerData:large', zeroblob((64 << 20) + 1))";
    database.execute(sql, []).expect("written");
    drop(database);
    let (sessions, problems) = list(temp.path());
    assert_eq!((sessions.len(), problems.len()), (1, 1), "{problems:?}");
    assert!(problems[0].ends_with("state.vscdb cannot be read and are left out: large"), "{problems:?}");
}

#[test]
fn a_project_is_that_of_the_one_directory_it_may_be_named_after() {
    let temp = tempfile::tempdir().expect("a directory");
    let root = temp.path().canonicalize().expect("there");
    let dir_of = |dir: &str| {
        let name: Vec<&str> =
            dir.split(|c: char| !c.is_ascii_alphanumeric()).filter(|it| !it.is_empty()).collect();
        dir_of_project(&Path::new("/home/u/.cursor/projects").join(name.join("-")))
    };
    let check = |below: &str, is_found: bool| {
        let dir = root.join(below);
        assert_eq!(dir_of(dir.to_str().expect("text")), is_found.then_some(dir), "{below}");
    };
    for dir in ["repo/sub_dir/x", "repo/sub", "acme.api", "two-ways", "two/ways"] {
        fs::create_dir_all(root.join(dir)).expect("made");
    }
    fs::write(root.join("repo/file"), "").expect("written");
    std::os::unix::fs::symlink("repo", root.join("re_po")).expect("linked");
    check("repo", true);
    check("repo/sub_dir", true);
    check("repo/sub_dir/x", true);
    check("acme.api", true);
    check("repo/file", false);
    check("repo/gone", false);
    check("two-ways", false);
    assert_eq!(dir_of(&format!("{}/re_po/sub", root.display())), Some(root.join("repo/sub")));
    assert_eq!(dir_of_project(Path::new("/home/u/.cursor/projects/---")), None, "it is named after none");
}
