//! What a Codex thread is made of when it is spread over files, or has others' history in it.

use std::{fs, path::Path};

use serde_json::{Value, json};
use sess_core::message::Block;

use crate::homes::{copy, list, told, words};

const A: &str = "019a0000-0000-7000-8000-00000000000a";
const B: &str = "019a0000-0000-7000-8000-00000000000b";
const C: &str = "019a0000-0000-7000-8000-00000000000c";

fn home() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

/// Writes a rollout, each record with its ordinal.
fn rollout(home: &Path, dir: &str, ids: &str, first: u64, records: &[Value]) {
    let dir = home.join(".codex").join(dir);
    fs::create_dir_all(&dir).expect("made");
    let line = |(at, record): (usize, &Value)| {
        let mut record = record.clone();
        record["ordinal"] = json!(first + at as u64);
        record["timestamp"] = json!(format!("2026-11-10T12:00:{at:02}Z"));
        format!("{record}\n")
    };
    let text: String = records.iter().enumerate().map(line).collect();
    fs::write(dir.join(format!("rollout-2026-11-10T12-00-00-{ids}.jsonl")), text).expect("written");
}

fn meta(id: &str, more: &Value) -> Value {
    let mut payload = json!({"id": id, "cwd": format!("/{id}"), "history_mode": "paginated"});
    payload.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
    json!({"type": "session_meta", "payload": payload})
}

fn item(kind: &str, text: &str) -> Value {
    let content = json!([{"type": "text", "text": text}]);
    let item = json!({"type": kind, "id": text, "content": content});
    json!({"type": "event_msg", "payload": {"type": "item_completed", "item": item}})
}

fn ask(text: &str) -> Value {
    item("UserMessage", text)
}

fn say(text: &str) -> Value {
    item("AgentMessage", text)
}

fn event(kind: &str, text: &str) -> Value {
    json!({"type": "event_msg", "payload": {"type": kind, "message": text}})
}

fn response(payload: &Value) -> Value {
    json!({"type": "response_item", "payload": payload})
}

/// Says what is read of a thread: its texts in order, those that were taken back in brackets.
fn read(home: &Path, id: &str) -> String {
    let (sessions, problems) = list(home);
    assert!(problems.is_empty(), "{problems:?}");
    words(sessions.iter().find(|session| session.id.as_str() == id).expect("listed"))
}

#[test]
fn a_fork_begins_in_the_file_of_the_thread_that_it_was_forked_from() {
    let temp = home();
    rollout(
        temp.path(),
        "sessions/2026/11/10",
        A,
        0,
        &[meta(A, &json!({})), ask("a1"), say("a2"), ask("a3")],
    );
    let base = |end: u64| json!({"thread_id": A, "end_ordinal_exclusive": end, "end_byte_offset": 0});
    let fork = json!({"forked_from_id": A, "history_base": base(3)});
    rollout(temp.path(), "sessions/2026/11/11", B, 3, &[meta(B, &fork), ask("b1"), say("b2")]);
    let deeper = json!({"forked_from_id": B, "history_base": {"thread_id": B, "end_ordinal_exclusive": 5}});
    rollout(temp.path(), "archived_sessions", C, 5, &[meta(C, &deeper), ask("c1")]);
    assert_eq!(read(temp.path(), A), "a1 a2 a3");
    assert_eq!(read(temp.path(), B), "a1 a2 b1 b2");
    assert_eq!(read(temp.path(), C), "a1 a2 b1 c1");
    let (sessions, _) = list(temp.path());
    let is_archived = |id: &str| sessions.iter().any(|it| it.id.as_str() == id && it.is_archived);
    assert!(is_archived(C) && !is_archived(B));
    // Codex calls it by what was asked in it.
    for (id, title) in [(A, "a1"), (B, "b1"), (C, "c1")] {
        assert_eq!(titles(temp.path(), id), [title; 3]);
    }
}

#[test]
fn a_base_that_is_gone_or_leads_back_costs_only_what_was_in_it() {
    let temp = home();
    let to = |id: &str| json!({"history_base": {"thread_id": id, "end_ordinal_exclusive": 9}});
    rollout(temp.path(), "sessions", A, 9, &[meta(A, &to(B)), ask("a1")]);
    rollout(temp.path(), "sessions", B, 9, &[meta(B, &to(A)), ask("b1")]);
    rollout(temp.path(), "sessions", C, 9, &[meta(C, &to("gone")), ask("c1")]);
    assert_eq!(read(temp.path(), A), "a1");
    assert_eq!(read(temp.path(), C), "c1");
    let lacks = |id: &str| {
        let (sessions, _) = list(temp.path());
        told(sessions.iter().find(|session| session.id.as_str() == id).expect("listed")).1.lacks_beginning
    };
    assert!(lacks(C) && !lacks(A));
}

#[test]
fn threads_that_started_each_other_are_sessions_of_their_own() {
    let temp = home();
    let by = |id: &str| json!({"parent_thread_id": id, "agent_nickname": "Kepler"});
    rollout(temp.path(), "sessions", A, 0, &[meta(A, &by(B)), ask("a1")]);
    rollout(temp.path(), "sessions", B, 0, &[meta(B, &by(A)), ask("b1")]);
    rollout(temp.path(), "sessions", C, 0, &[meta(C, &by(A)), ask("c1")]);
    let (sessions, problems) = list(temp.path());
    assert!(problems.is_empty(), "{problems:?}");
    for session in &sessions {
        let is_top = session.parent.is_none() && session.name.is_none();
        assert_eq!(is_top, session.id.as_str() != C, "{session:?}");
    }
}

#[test]
fn an_index_that_cannot_be_read_costs_what_it_knows_and_no_session() {
    let temp = home();
    rollout(temp.path(), "sessions", A, 0, &[meta(A, &json!({})), ask("a1")]);
    fs::write(temp.path().join(".codex/state_5.sqlite"), "not a database").expect("written");
    let (sessions, problems) = list(temp.path());
    assert_eq!((sessions.len(), problems.len()), (1, 1));
    assert!(
        problems[0].ends_with("sessions are listed without the names and parents that it has"),
        "{problems:?}"
    );
}

#[test]
fn a_reverted_thread_goes_on_in_its_newest_file_and_keeps_what_was_reverted() {
    let temp = home();
    let records = [meta(A, &json!({})), ask("a1"), say("a2"), ask("wrong"), say("worse")];
    rollout(temp.path(), "sessions", A, 0, &records);
    let base = json!({"history_base": {"thread_id": A, "end_ordinal_exclusive": 3}});
    rollout(temp.path(), "sessions", &format!("{A}_{B}"), 3, &[meta(A, &base), ask("a3")]);
    assert_eq!(list(temp.path()).0.len(), 1);
    assert_eq!(read(temp.path(), A), "a1 a2 (wrong) (worse) a3");
}

#[test]
fn the_index_says_which_file_a_thread_goes_on_in_when_it_has_several() {
    let temp = home();
    rollout(temp.path(), "sessions", A, 0, &[meta(A, &json!({})), ask("first")]);
    rollout(temp.path(), "sessions", &format!("{A}_{B}"), 0, &[meta(A, &json!({})), ask("second")]);
    assert_eq!(read(temp.path(), A), "second");
    let state = rusqlite::Connection::open(temp.path().join(".codex/state_5.sqlite")).expect("made");
    let named = format!("/elsewhere/rollout-2026-11-10T12-00-00-{A}.jsonl");
    state.execute_batch("CREATE TABLE threads (id TEXT, name TEXT, rollout_path TEXT)").expect("made");
    state.execute("INSERT INTO threads VALUES (?1, 'x', ?2)", [A, &named]).expect("written");
    drop(state);
    assert_eq!(read(temp.path(), A), "first");
}

#[test]
fn what_a_sub_agent_inherited_is_not_its_own() {
    let temp = home();
    rollout(temp.path(), "sessions", A, 0, &[meta(A, &json!({})), ask("secret of the parent")]);
    let spawn = json!({"parent_thread_id": A, "depth": 1, "agent_nickname": "Kepler"});
    let source =
        json!({"source": {"subagent": {"thread_spawn": spawn}}, "subagent_history_start_ordinal": 3});
    let copied =
        [meta(B, &source), meta(A, &json!({})), ask("secret of the parent"), ask("task"), say("done")];
    rollout(temp.path(), "sessions", B, 0, &copied);
    assert_eq!(read(temp.path(), B), "task done");
    let (sessions, _) = list(temp.path());
    let child = sessions.iter().find(|session| session.id.as_str() == B).expect("listed");
    assert_eq!(child.parent.as_ref().map(sess_core::SessionId::as_str), Some(A));
    assert_eq!((child.name.as_deref(), child.cwd.as_deref()), (Some("Kepler"), Some(&*format!("/{B}"))));
}

#[test]
fn only_the_turns_that_were_rolled_back_are_taken_back() {
    let temp = home();
    let back = |turns: u64| json!({"type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": turns}});
    let (ask, say) = (|text| event("user_message", text), |text| event("agent_message", text));
    let records = [
        meta(A, &json!({})),
        ask("1"),
        say("2"),
        ask("3"),
        say("4"),
        back(1),
        ask("5"),
        say("6"),
        ask("7"),
        back(2),
        say("8"),
        back(90),
        ask("9"),
    ];
    rollout(temp.path(), "sessions", A, 0, &records);
    assert_eq!(read(temp.path(), A), "(1) (2) (3) (4) (5) (6) (7) (8) 9");
}

#[test]
fn what_is_in_a_rollout_twice_is_told_once() {
    let temp = home();
    let message = |role: &str, text: &str| {
        response(&json!({"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}))
    };
    let call = response(
        &json!({"type": "function_call", "call_id": "c1", "name": "exec_command", "arguments": "{}"}),
    );
    let output = response(&json!({"type": "function_call_output", "call_id": "c1", "output": "printed"}));
    let done =
        json!({"type": "CommandExecution", "id": "c1", "command": ["ls"], "aggregated_output": "printed"});
    let done = json!({"type": "event_msg", "payload": {"type": "item_completed", "item": done}});
    let records = [
        meta(A, &json!({})),
        message("developer", "hidden"),
        message("user", "<environment_context>hidden</environment_context>"),
        message("user", "prompt"),
        ask("prompt"),
        call.clone(),
        done,
        output.clone(),
        message("assistant", "answer"),
        say("answer"),
    ];
    rollout(temp.path(), "sessions", A, 0, &records);
    assert_eq!(read(temp.path(), A), "prompt exec_command printed answer");
    // Releases that wrote down only what the model saw.
    let records =
        [meta(B, &json!({})), message("developer", "hidden"), message("user", "prompt"), call, output];
    let answer = [message("assistant", "answer")];
    rollout(temp.path(), "sessions", B, 0, &[&records[..], &answer[..]].concat());
    assert_eq!(read(temp.path(), B), "prompt exec_command printed answer");
}

#[test]
fn images_editors_wrappers_and_failures_come_as_what_they_are() {
    let temp = home();
    let prompt = json!({"type": "event_msg", "payload": {"type": "user_message",
        "message": "# Context from my IDE\n## My request for Codex:\nlook", "local_images": ["/tmp/b.png"],
        "images": ["data:image/png;base64,AAAA"]}});
    let wrapped = json!({"output": "boom", "metadata": {"exit_code": 2}}).to_string();
    let output = response(&json!({"type": "custom_tool_call_output", "call_id": "c", "output": wrapped}));
    let unknown = json!({"type": "hologram", "payload": {}});
    rollout(temp.path(), "sessions", A, 0, &[meta(A, &json!({})), prompt, output, unknown]);
    let (sessions, _) = list(temp.path());
    assert_eq!(sessions[0].title, "look");
    let (entries, counts) = told(&sessions[0]);
    let Some(Block::Image { mime_type, data }) = entries[0].body.content.get(1) else { panic!("no image") };
    assert_eq!((&**mime_type, &**data), ("image/png", "AAAA"));
    assert!(matches!(&entries[0].body.content[2], Block::Other(fields) if fields["name"] == "/tmp/b.png"));
    assert_eq!(entries[1].body.is_error, Some(true));
    assert_eq!((counts.unknown, counts.bad), (1, 0));
}

#[test]
fn a_plain_file_counts_before_its_compressed_copy_and_a_torn_copy_is_still_read() {
    let temp = home();
    let dir = temp.path().join(".codex/sessions");
    let name = format!("rollout-2026-11-10T12-00-00-{A}.jsonl");
    rollout(temp.path(), "sessions", A, 0, &[meta(A, &json!({})), ask("compressed")]);
    let long: Vec<Value> = (0..400).map(|n| say(&format!("{n} {}", "x".repeat(n)))).collect();
    let mut text = fs::read(dir.join(&name)).expect("read");
    text.extend(long.iter().flat_map(|record| format!("{record}\n").into_bytes()));
    let packed = zstd::encode_all(&text[..], 3).expect("packed");
    fs::write(dir.join(format!("{name}.zst")), &packed).expect("written");
    rollout(temp.path(), "sessions", A, 0, &[meta(A, &json!({})), ask("plain")]);
    assert_eq!(read(temp.path(), A), "plain");
    fs::remove_file(dir.join(&name)).expect("removed");
    assert!(read(temp.path(), A).starts_with("compressed 0 "));
    fs::write(dir.join(format!("{name}.zst")), &packed[..packed.len() - 3]).expect("written");
    let (entries, counts) = told(&list(temp.path()).0[0]);
    assert!(!entries.is_empty() && counts.is_torn && counts.bad == 1, "{counts:?}");
    // So little that nothing of it comes out.
    let small = zstd::encode_all(&text[..300], 3).expect("packed");
    fs::write(dir.join(format!("{name}.zst")), &small[..small.len() - 6]).expect("written");
    let (sessions, problems) = list(temp.path());
    assert_eq!((sessions.len(), problems.len()), (0, 1), "{problems:?}");
    assert!(problems[0].contains("it breaks off before anything was said; what is in it is left out"));
}

#[test]
fn an_index_that_cannot_be_read_costs_the_names_in_it_and_an_old_one_is_not_asked() {
    let temp = copy("codex");
    let state = temp.path().join(".codex/state_5.sqlite");
    let bytes = fs::read(&state).expect("read");
    let titles = || {
        let (sessions, problems) = list(temp.path());
        assert_eq!(sessions.len(), 4);
        let named = sessions.iter().any(|session| session.title.starts_with("Webhook retry"));
        (named, problems.len())
    };
    fs::remove_file(temp.path().join(".codex/session_index.jsonl")).expect("removed");
    assert_eq!(titles(), (true, 0));
    fs::write(&state, &bytes[..5_000]).expect("written");
    assert_eq!(titles(), (false, 1));
    fs::write(&state, "").expect("written");
    assert_eq!(titles(), (false, 0));
    fs::write(temp.path().join(".codex/state_12.sqlite"), &bytes).expect("written");
    assert_eq!(titles(), (true, 0));
}

#[test]
fn an_index_of_an_unknown_shape_and_one_that_is_a_link_are_told_of_once() {
    let check = |change: &dyn Fn(&Path), names: &str| {
        let temp = copy("codex");
        let state = temp.path().join(".codex/state_5.sqlite");
        fs::remove_file(temp.path().join(".codex/session_index.jsonl")).expect("removed");
        change(&state);
        let (sessions, problems) = list(temp.path());
        let end = "; sessions are listed without the names and parents that it has";
        assert_eq!((sessions.len(), problems.len()), (4, 1), "{problems:?}");
        assert!(problems[0].contains(names) && problems[0].ends_with(end), "{problems:?}");
    };
    let run = |path: &Path, sql: &str| {
        rusqlite::Connection::open(path).expect("opened").execute_batch(sql).expect("run");
    };
    let unknown = "state_5.sqlite is not in a format that is known here: it has no table `threads`";
    check(&|state| run(state, "DROP TABLE threads"), unknown);
    check(&|state| run(state, "ALTER TABLE threads RENAME COLUMN name TO label"), unknown);
    check(&|state| run(state, "ALTER TABLE threads RENAME COLUMN id TO thread_id"), unknown);
    let lost = "UPDATE threads SET id = '' WHERE rowid = (SELECT min(rowid) FROM threads)";
    check(&|state| run(state, lost), "state_5.sqlite is not in a format that is known here: 1 row(s) of its");
    let link = |path: &Path| {
        let elsewhere = path.with_extension("elsewhere");
        fs::rename(path, &elsewhere).expect("moved");
        std::os::unix::fs::symlink(elsewhere, path).expect("linked");
    };
    check(&link, "state_5.sqlite cannot be read: it is a link, and links are not followed");
    check(
        &|state| {
            let names = state.with_file_name("session_index.jsonl");
            fs::write(&names, "").expect("written");
            link(&names);
        },
        "session_index.jsonl cannot be read: it is a link, and links are not followed",
    );
}

#[test]
fn an_index_without_names_is_as_good_as_ever_where_older_releases_kept_them() {
    let temp = copy("codex");
    let state = rusqlite::Connection::open(temp.path().join(".codex/state_5.sqlite")).expect("opened");
    state.execute_batch("ALTER TABLE threads DROP COLUMN name").expect("run");
    drop(state);
    assert_eq!(list(temp.path()).1, Vec::<String>::new());
}

#[test]
fn a_thread_whose_ends_are_of_the_model_alone_is_listed() {
    let instructions = format!("# AGENTS.md instructions\n{}", "i".repeat(20_000));
    let part = json!({"type": "input_text", "text": instructions});
    let instructions = response(&json!({"type": "message", "role": "user", "content": [part]}));
    let output = json!({"type": "function_call_output", "call_id": "c", "output": "x".repeat(4_000)});
    let history = json!({"message": "", "replacement_history": ["x".repeat(200_000)]});
    let image = json!({"type": "user_message", "message": "", "images": ["data:image/png;base64,AAAA"]});
    for (prompt, title) in
        [(event("user_message", "why?"), "why?"), (json!({"type": "event_msg", "payload": image}), "")]
    {
        let temp = home();
        let mut records = vec![meta(A, &json!({})), instructions.clone(), prompt];
        records.extend(vec![response(&output); 25]);
        records.push(json!({"type": "compacted", "payload": history}));
        records.extend([event("context_compacted", ""), event("token_count", "")]);
        rollout(temp.path(), "sessions", A, 0, &records);
        let (sessions, problems) = list(temp.path());
        assert_eq!((sessions.len(), problems.len()), (1, 0), "{problems:?}");
        let at = sessions[0].updated_at.to_string();
        assert_eq!((&*sessions[0].title, &*at), (title, "2026-11-10T12:00:30Z"));
    }
}

#[test]
fn of_two_files_of_one_rollout_the_one_that_was_changed_last_counts_and_the_other_is_told_of() {
    let dirs = ["sessions/2026/11/10", "sessions/2026/11/11", "archived_sessions"];
    let check = |older: &str, newer: &str| {
        let temp = home();
        for (dir, text, second) in [(older, "older", 0), (newer, "newer", 9)] {
            rollout(temp.path(), dir, A, 0, &[meta(A, &json!({})), ask(text)]);
            let name = format!("rollout-2026-11-10T12-00-00-{A}.jsonl");
            let file = fs::File::options().write(true).open(temp.path().join(".codex").join(dir).join(name));
            let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_794_480_000 + second);
            file.and_then(|file| file.set_modified(at)).expect("touched");
        }
        let (sessions, problems) = list(temp.path());
        assert_eq!((sessions.len(), words(&sessions[0]).as_str()), (1, "newer"), "{older} {newer}");
        assert_eq!(sessions[0].is_archived, newer == "archived_sessions");
        let is_told = problems[0].contains(older) && problems[0].ends_with("what is in it is left out");
        assert!(problems.len() == 1 && is_told, "{problems:?}");
    };
    for older in dirs {
        dirs.into_iter().filter(|newer| *newer != older).for_each(|newer| check(older, newer));
    }
}

#[test]
fn a_rollout_of_the_first_releases_is_read() {
    let temp = home();
    let dir = temp.path().join(".codex/sessions/2025/05/07");
    fs::create_dir_all(&dir).expect("made");
    let message = |role: &str, text: &str| json!({"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]});
    let state = json!({"record_type": "state"});
    let call = json!({"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c1"});
    let records = [
        json!({"id": A, "timestamp": "2025-05-07T17:24:21.123Z", "instructions": null, "git": {"branch": "main"}}),
        state.clone(),
        message("user", "why?"),
        state.clone(),
        json!({"type": "reasoning", "id": "r1", "summary": []}),
        call,
        json!({"type": "function_call_output", "call_id": "c1", "output": "printed"}),
        message("assistant", "because"),
        state,
    ];
    let text: String = records.iter().map(|record| format!("{record}\n")).collect();
    fs::write(dir.join(format!("rollout-2025-05-07T17-24-21-{A}.jsonl")), text).expect("written");
    let (sessions, problems) = list(temp.path());
    assert_eq!((sessions.len(), problems.len()), (1, 0), "{problems:?}");
    let session = &sessions[0];
    let began = session.created_at.map(|at| at.to_string());
    assert_eq!((&*session.title, session.branch.as_deref()), ("why?", Some("main")));
    assert_eq!(began.as_deref(), Some("2025-05-07T17:24:21.123Z"));
    assert_eq!(words(session), "why? shell printed because");
    let (_, counts) = told(session);
    assert_eq!((counts.bad, counts.unknown), (0, 0));
}

/// Says what a thread is called: in a list, by all of its file, and in `told` where the list was not sure.
fn titles(home: &Path, id: &str) -> [String; 3] {
    let (sessions, problems) = list(home);
    assert!(problems.is_empty(), "{problems:?}");
    let session = sessions.into_iter().find(|session| session.id.as_str() == id).expect("listed");
    let by_all = sess_readers::title(&session);
    let read = told(&session).1.title.unwrap_or_else(|| session.title.clone());
    [session.title, by_all, read]
}

#[test]
fn a_thread_is_called_by_the_first_prompt_that_was_not_taken_back() {
    let back = json!({"type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": 1}});
    let shown = |text| event("user_message", text);
    let seen = |text: &str| {
        response(
            &json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}),
        )
    };
    let short = [meta(A, &json!({})), seen("1"), shown("1"), say("a"), back, seen("2"), shown("2"), say("b")];
    let check = |records: &[Value], expected: [&str; 3]| {
        let temp = home();
        rollout(temp.path(), "sessions", A, 0, records);
        assert_eq!(titles(temp.path(), A), expected);
    };
    check(&short, ["2"; 3]);
    check(&short[..5], [""; 3]);
    // Further down than a list looks.
    let mut long = short.to_vec();
    long.splice(4..4, vec![say(&"x".repeat(1_000)); 200]);
    check(&long, ["1", "2", "2"]);
}

#[test]
fn a_thread_that_goes_on_where_a_file_ended_is_called_by_the_first_prompt_in_that() {
    let temp = home();
    rollout(temp.path(), "sessions", A, 0, &[meta(A, &json!({})), ask("a1"), say("a2"), ask("wrong")]);
    let base = json!({"history_base": {"thread_id": A, "end_ordinal_exclusive": 3}});
    rollout(temp.path(), "sessions", &format!("{A}_{B}"), 3, &[meta(A, &base), ask("a3")]);
    assert_eq!(titles(temp.path(), A), ["a1"; 3]);
    let base = json!({"history_base": {"thread_id": B, "end_ordinal_exclusive": 4}});
    rollout(temp.path(), "sessions", C, 4, &[meta(C, &base), say("c0")]);
    assert_eq!(titles(temp.path(), C), ["a1"; 3]);
    // Another thread is called by what was asked in it.
    rollout(temp.path(), "sessions", C, 4, &[meta(C, &base), ask("c1")]);
    assert_eq!(titles(temp.path(), C), ["c1"; 3]);
    let base = json!({"history_base": {"thread_id": A, "end_ordinal_exclusive": 1}});
    rollout(temp.path(), "sessions", C, 1, &[meta(C, &base), ask("c1")]);
    assert_eq!(titles(temp.path(), C), ["c1"; 3]);
}

#[test]
fn a_sub_agent_is_called_by_its_own_first_prompt() {
    let temp = home();
    let source =
        json!({"parent_thread_id": A, "agent_nickname": "Kepler", "subagent_history_start_ordinal": 3});
    let records = [meta(B, &source), ask("of the parent"), say("to the parent"), ask("task"), say("done")];
    rollout(temp.path(), "sessions", B, 0, &records);
    assert_eq!(titles(temp.path(), B), ["task"; 3]);
}

#[test]
fn a_turn_of_which_only_the_model_saw_the_messages_has_them() {
    let message = |role: &str, text: &str| {
        response(&json!({"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}))
    };
    let (asked, answered) = (|text| message("user", text), |text| message("assistant", text));
    let (ask, say) = (|text| event("user_message", text), |text| event("agent_message", text));
    let check = |records: &[Value], expected: &str| {
        let temp = home();
        rollout(temp.path(), "sessions", A, 0, &[&[meta(A, &json!({}))], records].concat());
        assert_eq!(read(temp.path(), A), expected);
    };
    let old = [asked("1"), answered("2")];
    let new = [asked("3"), ask("3"), answered("4"), say("4")];
    let started = event("task_started", "");
    check(&[&old[..], &new].concat(), "1 2 3 4");
    check(&[&old[..], std::slice::from_ref(&started), &new].concat(), "1 2 3 4");
    check(&[&new[..], &old].concat(), "3 4 1 2");
    check(&[&new[..], &old, &new, &old].concat(), "3 4 1 2 3 4 1 2");
    // What Codex says in the person's place is not what the person says.
    let elements = [
        "<user_action>hidden</user_action>",
        "<skill>\nhidden\n</skill>",
        "<external_notes>hidden</external_notes>",
        "<codex_internal_context source=\"goal\">\nhidden\n</codex_internal_context>",
    ];
    for hidden in elements {
        check(&[&new[..], &[asked(hidden), answered("5")]].concat(), "3 4 5");
        check(&[&[asked(hidden), answered("5")], &new[..]].concat(), "5 3 4");
    }
    // What the model is asked to sum up is no answer of its.
    let summed = json!({"type": "compacted", "payload": {"message": "Go on from this: a summary."}});
    let compaction = [started.clone(), answered("a summary."), summed, started.clone()];
    check(&[&new[..], &compaction, &new].concat(), "3 4 | 3 4");
    // That begins like what the person may say as well.
    for said in
        ["<div> is broken, why?", "<skill> is unknown", "<image name=a> or <b>?", "<", "<>", "<external_"]
    {
        check(&[&new[..], &[asked(said), answered("5")], &new].concat(), &format!("3 4 {said} 5 3 4"));
        check(&[asked(said), answered("5")], &format!("{said} 5"));
    }
    let image = ["<image name=[Image #1]>", "</image>", "1"];
    let image = image.map(|text| json!({"type": "input_text", "text": text}));
    let image = response(&json!({"type": "message", "role": "user", "content": image}));
    check(&[&new[..], &[image, answered("2")]].concat(), "3 4 1 2");
    check(&[&new[..], &[asked("Warning: hidden"), answered("5"), say("5")]].concat(), "3 4 5");
    // Releases that wrote down what the model said in both ways, and what it was asked in one.
    check(&[asked("1"), answered("2"), say("2")], "1 2");
    // A prompt that came while the model was at work is written between what it said and what was shown of that.
    check(&[ask("3"), say("4"), ask("6"), answered("4"), asked("6"), say("7"), answered("7")], "3 4 6 7");
    // A message is shown in one way or in two.
    let item = item("AgentMessage", "4");
    check(&[asked("3"), ask("3"), answered("4"), item], "3 4");
}

#[test]
fn a_thread_is_called_by_a_prompt_that_only_the_model_saw_where_its_turn_shows_none() {
    let message = |role: &str, text: &str| {
        response(&json!({"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}))
    };
    let (asked, answered) = (|text| message("user", text), |text| message("assistant", text));
    let (ask, say) = (|text| event("user_message", text), |text| event("agent_message", text));
    let back = json!({"type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": 1}});
    let check = |records: &[Value], expected: &str| {
        let temp = home();
        rollout(temp.path(), "sessions", A, 0, &[&[meta(A, &json!({}))], records].concat());
        assert_eq!(titles(temp.path(), A), [expected; 3]);
        // What is far down is found, too.
        let long = vec![response(&json!({"type": "reasoning", "summary": ["x".repeat(1_000)]})); 200];
        rollout(temp.path(), "sessions", A, 0, &[&[meta(A, &json!({}))], &long[..], records].concat());
        let [_, by_all, read] = titles(temp.path(), A);
        assert_eq!([&*by_all, &*read], [expected; 2]);
    };
    let old = [asked("Alpha"), answered("a")];
    let new = [asked("Beta"), ask("Beta"), answered("b"), say("b")];
    check(&[&old[..], &new].concat(), "Alpha");
    check(&[&[asked("<div> is broken")], &old[1..], &new].concat(), "<div> is broken");
    check(&[&[asked("<skill>hidden</skill>")], &old[1..], &new].concat(), "Beta");
    check(&[&old[..], &[event("task_started", "")], &new].concat(), "Alpha");
    let call = response(&json!({"type": "function_call", "call_id": "c", "name": "x", "arguments": "{}"}));
    check(&[&[asked("Alpha"), call], &new[..]].concat(), "Alpha");
    // Nothing of the model's came in between: what Codex says in the person's place.
    check(&[&[asked("Warning: hidden")], &new[..]].concat(), "Beta");
    // Nor is it the person's where what was said was shown.
    check(&[&[asked("Warning: hidden"), answered("a"), say("a")], &new[..]].concat(), "Beta");
    check(&[&[asked("Warning: hidden"), answered("a"), say("a")], &old[..], &new].concat(), "Alpha");
    // A turn is taken back with those behind it, not with those before.
    check(&[&old[..], &new, std::slice::from_ref(&back)].concat(), "Alpha");
    check(&[&new[..], &old, &[back.clone(), ask("Gamma")]].concat(), "Gamma");
    check(&[&new[..], &[back], &old].concat(), "Alpha");
    // A prompt without words makes no title.
    let image = json!({"type": "user_message", "message": "", "images": ["data:image/png;base64,AAAA"]});
    let image = json!({"type": "event_msg", "payload": image});
    check(&[&[image.clone(), asked("Warning: hidden"), answered("a")], &old[..]].concat(), "Alpha");
    check(&[&[image, answered("a"), say("a")], &old[..], &new].concat(), "Alpha");
}
