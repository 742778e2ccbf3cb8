//! What a log of Gemini CLI comes to, and which sessions there are when some are there twice.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::homes::{list, told, words};

const ID: &str = "7f3c2a10-55aa-4d1e-b8a2-90c1d2e3f401";

fn message(kind: &str, id: &str, text: &str) -> Value {
    json!({"id": id, "timestamp": "2026-11-12T09:15:01Z", "type": kind, "content": text})
}

fn ask(text: &str) -> Value {
    message("user", text, text)
}

fn say(text: &str) -> Value {
    message("gemini", text, text)
}

fn write(home: &Path, path: &str, text: &str) {
    let path = home.join(".gemini").join(path);
    fs::create_dir_all(path.parent().expect("a directory")).expect("made");
    fs::write(path, text).expect("written");
}

fn log(id: &str, records: &[Value]) -> String {
    let head =
        json!({"sessionId": id, "projectHash": "h", "startTime": "2026-11-12T09:15:00Z", "kind": "main"});
    std::iter::once(&head).chain(records).map(|record| format!("{record}\n")).collect()
}

/// Says what is read of a session with these records.
fn read(records: &[Value]) -> String {
    let temp = tempfile::tempdir().expect("a directory");
    write(temp.path(), "tmp/p/chats/session-2026-11-12T09-15-7f3c2a10.jsonl", &log(ID, records));
    let (sessions, problems) = list(temp.path());
    assert!(problems.is_empty(), "{problems:?}");
    words(&sessions[0])
}

#[test]
fn the_last_wording_counts_where_the_message_was_first_said() {
    let again = |text: &str| message("gemini", "2", text);
    assert_eq!(read(&[ask("1"), say("2"), again("two"), ask("3"), again("TWO")]), "1 TWO 3");
}

#[test]
fn what_was_taken_back_is_told_as_such() {
    let to = |id: &str| json!({"$rewindTo": id});
    assert_eq!(read(&[ask("1"), say("2"), ask("3"), say("4"), to("3"), ask("5")]), "1 2 (3) (4) 5");
    assert_eq!(read(&[ask("1"), say("2"), to("gone"), ask("3")]), "(1) (2) 3");
    assert_eq!(read(&[ask("1"), to("1"), ask("1")]), "(1) 1");
    // A message that cannot be read may be the one that is meant.
    let lost = json!(7);
    assert_eq!(read(&[ask("1"), say("2"), lost, say("4"), to("3"), ask("5")]), "1 2 (4) 5");
}

#[test]
fn a_checkpoint_that_leaves_something_out_is_a_compaction_and_nothing_is_lost() {
    let set = |messages: &[Value]| json!({"$set": {"messages": messages}});
    let summary = message("user", "s", "<state_snapshot>x</state_snapshot>");
    let records =
        [ask("1"), say("2"), ask("3"), set(&[summary, ask("3")]), say("4"), json!({"$rewindTo": "4"})];
    assert_eq!(read(&records), "1 2 3 | (4)");
    // Tool results were cut, or a message came by the checkpoint alone: nothing is left out.
    let cut = message("gemini", "2", "cut");
    assert_eq!(read(&[ask("1"), say("2"), message("info", "i", "note"), set(&[ask("1"), cut])]), "1 2 note");
    assert_eq!(read(&[set(&[ask("1"), say("2")]), ask("3")]), "1 2 3");
}

#[test]
fn a_sub_agent_is_marked_before_its_result_and_files_are_not_dropped() {
    let result = json!([{"functionResponse": {"id": "c", "response": {"output": "found"}}}]);
    let call = json!({"id": "c", "name": "explorer", "args": {}, "status": "success", "result": result, "agentId": "explorer-1"});
    let mut reply = say("on it");
    reply["toolCalls"] = json!([call]);
    let image =
        json!([{"text": "see"}, {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}, {"odd": 1}]);
    let mut prompt = ask("1");
    prompt["content"] = image;
    assert_eq!(read(&[prompt, reply]), "see image other on it explorer →explorer-1 found");
}

#[test]
fn a_session_that_was_resumed_is_there_once_and_the_current_log_counts() {
    let temp = tempfile::tempdir().expect("a directory");
    let old = json!({"sessionId": ID, "projectHash": "h", "messages": [ask("old")]}).to_string();
    write(temp.path(), "tmp/p/chats/session-2026-11-12T09-15-7f3c2a10.json", &old);
    write(temp.path(), "tmp/p/chats/session-2026-11-12T09-15-7f3c2a10.jsonl", &log(ID, &[ask("new")]));
    write(temp.path(), "tmp/p/chats/session-2026-11-12T09-15-7f3c2a10.json.unreadable-1", &old);
    let (sessions, _) = list(temp.path());
    assert_eq!(sessions.iter().map(words).collect::<Vec<_>>(), ["new"]);
}

#[test]
fn the_directory_comes_from_what_the_program_wrote_and_never_from_a_name() {
    let temp = tempfile::tempdir().expect("a directory");
    let hash = "6689668a49dc648b376787d8cde1d55e418968e916b4efa79d849fba7fb28a1f";
    write(temp.path(), "projects.json", &json!({"projects": {"/home/dev/acme-api": "a"}}).to_string());
    write(temp.path(), "tmp/b/.project_root", "/home/dev/b\n");
    for (dir, id) in [("a", "1"), ("b", "2"), (hash, "3"), ("c", "4")] {
        let path = format!("tmp/{dir}/chats/session-2026-11-12T09-15-{id}.jsonl");
        write(temp.path(), &path, &log(id, &[ask("x")]));
    }
    let (mut sessions, _) = list(temp.path());
    sessions.sort_by(|a, b| a.id.cmp(&b.id));
    let cwds: Vec<_> = sessions.iter().map(|session| session.cwd.as_deref().unwrap_or("-")).collect();
    assert_eq!(cwds, ["/home/dev/acme-api", "/home/dev/b", "/home/dev/acme-api", "-"]);
}

#[test]
fn a_long_document_is_named_by_its_ends_and_a_torn_one_read_as_far_as_it_is() {
    let temp = tempfile::tempdir().expect("a directory");
    let messages: Vec<Value> =
        (0..2_000).map(|n| message("gemini", &n.to_string(), &"x".repeat(1_000))).collect();
    let mut document = json!({"sessionId": ID, "startTime": "2025-12-01T08:00:00Z"});
    document["messages"] = [&[ask("first")], &messages[..]].concat().into();
    document["summary"] = "at the end".into();
    // The fields in the order in which Gemini CLI writes them.
    let text = serde_json::to_string_pretty(&document).expect("written");
    let path = "tmp/p/chats/session-2025-12-01T08-00-7f3c2a10.json";
    write(temp.path(), path, &text);
    let session = list(temp.path()).0.remove(0);
    assert_eq!((session.id.as_str(), &*session.title), (ID, "at the end"));
    assert_eq!(told(&session).0.len(), 2_001);
    write(temp.path(), path, &text[..text.len() / 2]);
    let session = list(temp.path()).0.remove(0);
    let (entries, counts) = told(&session);
    assert!(counts.is_torn && (900..1_100).contains(&entries.len()), "{}", entries.len());
    assert_eq!(session.title, "first");
}

#[test]
fn of_a_checkpoint_each_field_counts_for_itself_and_one_that_cannot_be_read_is_counted() {
    let check = |set: Value, expected: &str, bad: u64| {
        let temp = tempfile::tempdir().expect("a directory");
        let records = [ask("1"), json!({"$set": set}), say("2")];
        write(temp.path(), "tmp/p/chats/session-2026-11-12T09-15-7f3c2a10.jsonl", &log(ID, &records));
        let session = list(temp.path()).0.remove(0);
        let counts = told(&session).1;
        let title = counts.title.unwrap_or_default();
        assert_eq!(
            (format!("{title}: {}", words(&session)), counts.bad),
            (expected.to_owned(), bad),
            "{set}"
        );
    };
    let messages = json!([ask("1"), ask("by the checkpoint")]);
    check(json!({"summary": "named", "messages": messages}), "named: 1 by the checkpoint 2", 0);
    check(json!({"summary": 7, "messages": messages}), ": 1 by the checkpoint 2", 0);
    check(json!({"summary": "named", "messages": {"0": ask("lost")}}), "named: 1 2", 1);
    check(json!({"summary": "named", "messages": null}), "named: 1 2", 0);
    let deep: Value = (0..150).fold(json!([]), |inside, _| json!([inside]));
    let mut bad = ask("bad");
    bad["content"] = deep;
    check(json!({"messages": [ask("1"), bad, ask("3")]}), ": 1 3 2", 1);
    check(json!(7), ": 1 2", 1);
}
