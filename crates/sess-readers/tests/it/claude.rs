//! What Claude Code writes beside a conversation: its title, where it moved to, and that it was put away.

use std::{
    cell::Cell,
    fs,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use serde_json::{Value, json};
use sess_core::message::{Block, Provenance};
use sess_readers::{Foreign, Kin, Matcher, search};

use crate::homes::{list, messages, told, words};

const ID: &str = "00000000-0000-4000-8000-00000000000a";

/// Writes a session of one prompt, said at noon in `/first`, with more records behind it.
fn home(more: &[Value]) -> tempfile::TempDir {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join(".claude/projects/-first");
    fs::create_dir_all(dir.join(ID)).expect("made");
    let prompt = json!({
        "type": "user", "uuid": "u1", "parentUuid": null, "sessionId": ID, "cwd": "/first",
        "timestamp": "2026-11-10T12:00:00Z", "message": {"role": "user", "content": "Hello"},
    });
    let lines: String = std::iter::once(&prompt).chain(more).map(|record| format!("{record}\n")).collect();
    fs::write(dir.join(format!("{ID}.jsonl")), lines).expect("written");
    home
}

fn listed(home: &Path) -> Foreign {
    let (mut sessions, problems) = list(home);
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!(sessions.len(), 1, "{sessions:?}");
    sessions.remove(0)
}

#[test]
fn a_title_with_an_id_of_its_own_takes_nothing_back() {
    let home = home(&[json!({"type": "custom-title", "uuid": "t1", "sessionId": ID, "customTitle": "Fork"})]);
    let session = listed(home.path());
    assert_eq!((session.title.as_str(), words(&session).as_str()), ("Fork", "Hello"));
}

#[test]
fn a_session_that_moved_to_another_worktree_is_there() {
    assert_eq!(listed(home(&[]).path()).cwd.as_deref(), Some("/first"));
    let moved = |cwd: &str| json!({"type": "relocated", "sessionId": ID, "relocatedCwd": cwd});
    let home = home(&[moved("/second"), moved("/third")]);
    assert_eq!(listed(home.path()).cwd.as_deref(), Some("/third"));
}

#[test]
fn a_session_is_archived_until_somebody_goes_on_with_it() {
    let home = home(&[]);
    let is_archived = |mark: &str| {
        let mark_path = home.path().join(".claude/projects/-first").join(ID).join("archived.json");
        fs::write(mark_path, mark).expect("written");
        listed(home.path()).is_archived
    };
    assert!(is_archived(r#"{"archived":true,"at":"2026-11-10T12:00:01Z","by":"sdk"}"#));
    assert!(!is_archived(r#"{"archived":false,"at":"2026-11-10T12:00:01Z","by":"sdk"}"#));
    assert!(!is_archived(r#"{"archived":true,"at":"2026-11-10T11:59:59Z","by":"sdk"}"#));
    assert!(!is_archived(r#"{"archived":true}"#));
    assert!(!is_archived("{"));
}

/// Returns a prompt or a reply, a minute after the other.
fn said(id: u32, parent: Option<&str>, kind: &str, text: &str) -> Value {
    json!({
        "type": kind, "uuid": format!("u{id}"), "parentUuid": parent, "sessionId": ID,
        "timestamp": format!("2026-11-10T12:{id:02}:00Z"), "message": {"role": kind, "content": text},
    })
}

fn path(home: &Path) -> std::path::PathBuf {
    home.join(".claude/projects/-first").join(format!("{ID}.jsonl"))
}

#[test]
fn a_record_that_cannot_be_read_takes_nothing_back() {
    let chain = [
        said(2, Some("u1"), "assistant", "a"),
        said(3, Some("u2"), "user", "b"),
        said(4, Some("u3"), "assistant", "c"),
    ];
    for bad in [&b"{\"type\":\"assistant\",\"uuid\":\"u2\",\"par"[..], b"{\"uuid\":\"u2\",\"type\":\"\xff\"}"]
    {
        let home = home(&chain);
        let content = fs::read(path(home.path())).expect("read");
        let mut lines: Vec<&[u8]> = content.split(|byte| *byte == b'\n').collect();
        lines[1] = bad;
        fs::write(path(home.path()), lines.join(&b'\n')).expect("written");
        let session = listed(home.path());
        assert_eq!(words(&session), "Hello b c");
        assert_eq!(told(&session).1.bad, 1);
    }
}

#[test]
fn what_follows_a_lost_record_goes_on_where_the_conversation_was() {
    let home = home(&[
        said(2, Some("u1"), "assistant", "a"),
        said(3, Some("u2"), "user", "taken back"),
        said(4, Some("u2"), "user", "instead"),
        said(6, Some("u5"), "user", "after"),
    ]);
    assert_eq!(words(&listed(home.path())), "Hello a (taken back) instead after");
}

#[test]
fn a_compaction_of_what_was_taken_back_is_taken_back() {
    let compacted = json!({
        "type": "system", "subtype": "compact_boundary", "uuid": "c", "parentUuid": null, "logicalParentUuid": "u2",
    });
    let mut summary = said(3, Some("c"), "user", "summary");
    summary["isCompactSummary"] = json!(true);
    let compacted = [said(2, Some("u1"), "assistant", "a"), compacted, summary];
    let check = |more: &[Value], expected: &str| {
        let home = home(&[&compacted[..], more].concat());
        assert_eq!(words(&listed(home.path())), expected);
    };
    check(&[], "Hello a |");
    check(&[said(4, Some("u3"), "user", "after")], "Hello a | after");
    let instead = said(9, Some("u2"), "user", "instead");
    check(&[said(4, Some("u3"), "user", "after"), instead.clone()], "Hello a (|) (after) instead");
    check(&[instead], "Hello a (|) instead");
}

#[test]
fn a_parent_may_stand_behind_its_child() {
    let home = home(&[said(3, Some("u2"), "user", "b"), said(2, Some("u1"), "assistant", "a")]);
    let later = said(4, Some("u3"), "assistant", "c");
    let content = fs::read_to_string(path(home.path())).expect("read");
    fs::write(path(home.path()), format!("{content}{later}\n")).expect("written");
    assert_eq!(words(&listed(home.path())), "Hello b a c");
}

#[test]
fn a_record_that_stands_twice_in_a_file_is_one() {
    let home = home(&[said(2, Some("u1"), "assistant", "a"), said(3, Some("u2"), "user", "b")]);
    let content = fs::read_to_string(path(home.path())).expect("read");
    fs::write(path(home.path()), content.repeat(2)).expect("written");
    assert_eq!(words(&listed(home.path())), "Hello a b");
}

#[test]
fn all_of_a_file_knows_the_title_that_its_ends_do_not() {
    let filler = |from: u32| (from..from + 30).map(|id| said(id, None, "assistant", &"x".repeat(9_000)));
    let title = json!({"type": "custom-title", "sessionId": ID, "customTitle": "Named"});
    let more: Vec<Value> = filler(2).chain([title]).chain(filler(32)).collect();
    let home = home(&more);
    let session = listed(home.path());
    assert_eq!((session.title.as_str(), told(&session).1.title.as_deref()), ("Hello", Some("Named")));
}

#[test]
fn a_session_began_before_it_ended_whatever_the_order_of_its_records() {
    let home = home(&[said(30, Some("u1"), "user", "late"), said(2, Some("u1"), "assistant", "early")]);
    let content = fs::read_to_string(path(home.path())).expect("read");
    let (first, rest) = content.split_once('\n').expect("lines");
    fs::write(path(home.path()), format!("{rest}{first}\n")).expect("written");
    let session = listed(home.path());
    let times = (session.created_at.map(|at| at.to_string()), session.updated_at.to_string());
    assert_eq!(times, (Some("2026-11-10T12:00:00Z".to_owned()), "2026-11-10T12:30:00Z".to_owned()));
}

#[test]
fn a_long_line_at_its_beginning_does_not_hide_when_a_session_began() {
    let home = home(&[]);
    let content = fs::read_to_string(path(home.path())).expect("read");
    let long = json!({"type": "file-history-snapshot", "snapshot": "x".repeat(3 << 20)});
    let more: String =
        (1..60).map(|id| format!("{}\n", said(id, None, "system", &"y".repeat(2_000)))).collect();
    for lines in
        [format!("{long}\n{content}{more}"), format!("{{\"type\":\"mode\"}}\n{long}\n{content}{more}")]
    {
        fs::write(path(home.path()), lines).expect("written");
        let session = listed(home.path());
        let began = session.created_at.map(|at| at.to_string());
        assert_eq!((began.as_deref(), session.title.as_str()), (Some("2026-11-10T12:00:00Z"), "Hello"));
    }
}

#[test]
fn what_was_attached_is_named_by_what_is_known_of_it() {
    let data = "A".repeat(16_000);
    let attached = [
        (
            json!({"type": "document", "title": "spec.pdf",
                "source": {"type": "base64", "media_type": "application/pdf", "data": data}}),
            "[file: spec.pdf, application/pdf, 12 kB]",
        ),
        (
            json!({"type": "document", "source": {"media_type": "application/pdf", "data": data}}),
            "[file: application/pdf, 12 kB]",
        ),
        (
            json!({"type": "document", "source": {"type": "url", "url": "https://x/spec.pdf"}}),
            "[file: https://x/spec.pdf]",
        ),
        (
            json!({"type": "document", "title": "notes.txt",
                "source": {"type": "text", "media_type": "text/plain", "data": "what to do"}}),
            "[document: notes.txt]\nwhat to do",
        ),
        (
            json!({"type": "document", "source": {"type": "text", "data": "what to do"}}),
            "[document]\nwhat to do",
        ),
        (
            json!({"type": "document", "title": "all", "source": {"type": "file", "file_id": "f1"}}),
            "[file: all]",
        ),
        (
            json!({"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}),
            "[file: https://x/y.png, image/*]",
        ),
        (
            json!({"type": "image", "source": {"type": "url", "media_type": "image/png", "url": "https://x/y"}}),
            "[file: https://x/y, image/png]",
        ),
        (json!({"type": "image", "source": {"type": "file", "file_id": "f1"}}), "[file: f1]"),
        (
            json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}),
            "[image: image/png, 12 kB]",
        ),
    ];
    for (part, named) in attached {
        let mut record = said(2, Some("u1"), "user", "");
        record["message"]["content"] = json!([part]);
        let home = home(&[record]);
        let text = messages(&listed(home.path()));
        assert!(text.contains(&format!("## user\n{named}\n")), "{named}: {text}");
    }
}

#[test]
fn a_session_whose_ends_are_of_the_host_alone_is_listed() {
    let home = home(&[]);
    let queued = json!({"type": "queue-operation", "timestamp": "2026-11-10T11:59:00Z", "sessionId": ID});
    let prompt = said(1, None, "user", &format!("Long\n{}", "x".repeat(20_000)));
    let progress = json!({"type": "progress", "data": "p".repeat(1_000)});
    let lines = format!("{queued}\n{prompt}\n{}", format!("{progress}\n").repeat(9_000));
    fs::write(path(home.path()), lines).expect("written");
    let session = listed(home.path());
    let began = session.created_at.map(|at| at.to_string());
    assert_eq!((began.as_deref(), session.title.as_str()), (Some("2026-11-10T11:59:00Z"), "Long"));
}

/// Returns what a sub-agent was told or said.
fn of_sub_agent(id: u32, parent: Option<&str>, kind: &str, text: &str) -> Value {
    let mut record = said(id, parent, kind, text);
    record["isSidechain"] = json!(true);
    record
}

#[test]
fn what_a_sub_agent_said_in_the_file_of_its_session_takes_nothing_back_and_is_not_taken_back() {
    let task = of_sub_agent(3, None, "user", "task");
    let found = of_sub_agent(4, Some("u3"), "assistant", "found");
    let start = [said(2, Some("u1"), "assistant", "a"), task, found];
    let check = |more: &[Value], expected: &str| {
        let home = home(&[&start[..], more].concat());
        let session = listed(home.path());
        assert_eq!((session.title.as_str(), words(&session).as_str()), ("Hello", expected));
        // Nor are it the person's own words.
        let whose = |word: &str| {
            let entries = told(&session).0.into_iter();
            let mut said =
                entries.filter(|entry| entry.body.content == [Block::Text { text: word.to_owned() }]);
            said.next().expect("said").body.provenance
        };
        assert_eq!((whose("Hello"), whose("task")), (None, Some(Provenance::InternalSystem)));
    };
    check(&[], "Hello a task found");
    let next = said(5, Some("u2"), "user", "b");
    check(std::slice::from_ref(&next), "Hello a task found b");
    let lost = of_sub_agent(6, Some("gone"), "assistant", "more");
    check(&[next.clone(), lost], "Hello a task found b more");
    let compacted = json!({"type": "system", "subtype": "compact_boundary", "uuid": "c", "parentUuid": null});
    check(&[compacted, said(7, Some("c"), "user", "after")], "Hello a task found | after");
    check(&[next, said(8, Some("u1"), "user", "instead")], "Hello (a) task found (b) instead");
}

#[test]
fn a_file_of_a_sub_agent_beside_that_of_its_session_is_a_part_of_it() {
    let home = home(&[]);
    let records = [of_sub_agent(3, None, "user", "task"), of_sub_agent(5, Some("u4"), "assistant", "found")];
    let lines: String = records.iter().map(|record| format!("{record}\n")).collect();
    let beside = path(home.path()).with_file_name("agent-a1.jsonl");
    fs::write(&beside, &lines).expect("written");
    let (sessions, problems) = list(home.path());
    assert!(problems.is_empty(), "{problems:?}");
    let child = sessions.iter().find(|session| session.id.as_str() == "agent-a1").expect("listed");
    assert_eq!(child.parent.as_ref().map(sess_core::SessionId::as_str), Some(ID));
    assert_eq!((child.is_part(), child.title.as_str(), words(child).as_str()), (true, "task", "task found"));
    assert_eq!(told(child).0[0].body.provenance, None);
    // A session goes on in another file, where all of it has its first id.
    fs::write(&beside, lines.replace("true", "false")).expect("written");
    let (sessions, _) = list(home.path());
    assert!(sessions.iter().all(|session| session.parent.is_none()), "{sessions:?}");
}

/// Returns a block of a reply in a record of its own.
fn block(id: u32, parent: &str, message: &str, block: &Value) -> Value {
    let mut record = said(id, Some(parent), "assistant", "");
    record["message"] = json!({"id": message, "role": "assistant", "content": [block]});
    record
}

fn call(id: u32, parent: &str, message: &str) -> Value {
    block(
        id,
        parent,
        message,
        &json!({"type": "tool_use", "id": format!("t{id}"), "name": format!("call{id}")}),
    )
}

/// Returns the result of a call, which hangs on it.
fn result(id: u32, of: u32) -> Value {
    let mut record = said(id, Some(&format!("u{of}")), "user", "");
    let part =
        json!({"type": "tool_result", "tool_use_id": format!("t{of}"), "content": format!("result{of}")});
    record["message"]["content"] = json!([part]);
    record
}

#[test]
fn tools_that_ran_at_the_same_time_may_end_in_any_order() {
    let calls = [call(2, "u1", "m1"), call(3, "u2", "m1"), call(4, "u3", "m1")];
    let check = |order: [u32; 3]| {
        let mut records = calls.to_vec();
        records.extend(order.iter().map(|of| result(of + 10, *of)));
        let last = format!("u{}", order[2] + 10);
        records.push(block(20, &last, "m2", &json!({"type": "text", "text": "all read"})));
        let results = order.map(|of| format!("result{of}")).join(" ");
        let home = home(&records);
        assert_eq!(words(&listed(home.path())), format!("Hello call2 call3 call4 {results} all read"));
    };
    for order in [[2, 3, 4], [2, 4, 3], [3, 2, 4], [3, 4, 2], [4, 2, 3], [4, 3, 2]] {
        check(order);
    }
}

#[test]
fn a_reply_that_was_taken_back_stays_so_whatever_its_id() {
    let text = |text: &str| json!({"type": "text", "text": text});
    // As a gateway writes that gives all messages one id, or none.
    for message in ["m1", ""] {
        let home = home(&[
            block(2, "u1", message, &text("a")),
            said(3, Some("u2"), "user", "taken"),
            block(4, "u3", message, &text("back")),
            said(5, Some("u2"), "user", "b"),
            block(6, "u5", message, &text("c")),
        ]);
        assert_eq!(words(&listed(home.path())), "Hello a (taken) (back) b c");
    }
}

#[test]
fn what_was_typed_while_the_agent_was_at_work_may_be_made_of_parts() {
    let queued = |prompt: Value| {
        let mut record = said(2, Some("u1"), "attachment", "");
        record["attachment"] = json!({"type": "queued_command", "prompt": prompt});
        record
    };
    let image =
        json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}});
    let check = |prompt: Value, expected: &str| {
        let home = home(&[queued(prompt)]);
        assert_eq!(words(&listed(home.path())), expected);
    };
    check(json!("look"), "Hello look");
    check(json!([{"type": "text", "text": "look"}, image]), "Hello look image");
    check(json!([image]), "Hello image");
    check(json!([{"type": "text", "text": "<system-reminder>x</system-reminder>"}]), "Hello");
    check(json!([]), "Hello");
    check(json!(null), "Hello");
}

#[test]
fn a_search_that_was_given_up_reads_no_parent() {
    let turns = (2..=9).map(|id| said(id, Some(&format!("u{}", id - 1)), "user", "x"));
    let home = home(&turns.collect::<Vec<_>>());
    let dir = home.path().join(".claude/projects/-first").join(ID).join("subagents");
    fs::create_dir_all(&dir).expect("made");
    for id in [21, 22] {
        let task = of_sub_agent(id, None, "user", "needle");
        fs::write(dir.join(format!("agent-a{id}.jsonl")), format!("{task}\n")).expect("written");
    }
    let (sessions, problems) = list(home.path());
    assert!(problems.is_empty() && sessions.len() == 3, "{problems:?} {sessions:?}");
    let (children, parents): (Vec<_>, Vec<_>) = sessions.iter().partition(|it| it.is_sub_agent());
    let messages = told(parents[0]).0.len();
    assert_eq!(messages, 9);
    // Nothing names these sub-agents: all is read, unless it was given up.
    for given_up_at in [0, 1, 5, messages, messages + 1, messages + 2] {
        let asked = Cell::new(0);
        let is_given_up = || asked.replace(asked.get() + 1) == given_up_at;
        assert!(Kin::of(parents[0], &children, &is_given_up).is_none());
        assert_eq!(asked.get(), given_up_at + 1);
    }
    assert!(Kin::of(parents[0], &children, &|| false).is_some());
    // What is not known to stand is not told.
    let mut matcher = Matcher::default();
    matcher.expression(r"\w{6}").expect("an expression");
    for (stop, hits) in [(false, 2), (true, 0)] {
        let is_stopped = AtomicBool::new(false);
        let may_have = |_: &Foreign| {
            is_stopped.store(stop, Ordering::Relaxed);
            true
        };
        let found = search(&sessions, &matcher, None, 9, &may_have, &is_stopped, &|_, _| {});
        assert_eq!((found.hits.len(), found.problems.len(), found.is_cut), (hits, 0, stop));
    }
}
