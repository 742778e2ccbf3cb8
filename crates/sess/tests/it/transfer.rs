//! `sess import` and `sess export`.

use std::fs;

use serde_json::{Value, json};

use crate::world::{World, message, session};

const DOCKER_AGENT: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/docker-agent/session.db");

#[test]
fn what_was_exported_comes_back_byte_for_byte() {
    let world = World::with_sessions();
    let mut odd = message("assistant", "ünïcödé \u{1f389} \u{7} and \"quotes\"", 5);
    odd["content"].as_array_mut().expect("blocks").extend([
        json!({ "type": "thinking", "text": "hm" }),
        json!({ "type": "toolCall", "id": "c", "name": "t", "arguments": { "b": 1, "a": [null, 1.5, 1e300] } }),
        json!({ "type": "image", "mimeType": "image/png", "data": "aGk=" }),
        json!({ "type": "of tomorrow", "x": { "y": "z" } }),
    ]);
    odd["usage"] = json!({ "input": 1, "output": 2, "cacheRead": 0, "cacheWrite": 0, "cost": 0.1 });
    odd["unknown"] = json!({ "kept": true });
    world.write("odd.jsonl", &session("odd", "Odd \u{1b}[0m", &[odd, message("system", "rules", 6)]));
    world.ok(["import", "odd.jsonl"]);
    for id in ["odd", "old", "new-session"] {
        let first = world.ok(["export", id]);
        let other = World::new();
        assert!(other.ok_input(&first, ["import", "-"]).starts_with(&format!("imported {id}: ")));
        assert_eq!(other.ok(["export", id]), first);
        assert_eq!(other.ok(["read", id]), world.ok(["read", id]));
        // Again: nothing is new.
        assert_eq!(other.ok_input(&first, ["import", "-"]), format!("imported {id}: already here\n"));
    }
    let lines: Vec<Value> =
        world.ok(["export", "odd"]).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(
        (&lines[0]["type"], &lines[1]["seq"], &lines[1]["unknown"]["kept"]),
        (&json!("session"), &json!(1), &json!(true))
    );
}

#[test]
fn a_longer_file_adds_what_is_new_and_another_is_refused() {
    let world = World::new();
    let talk: Vec<_> = (1..=3).map(|n| message("user", &format!("m{n}"), n)).collect();
    world.write("a.jsonl", &session("a", "", &talk[..1]));
    assert_eq!(world.ok(["import", "a.jsonl"]), "imported a: 1 message\n");
    world.write("a.jsonl", &session("a", "", &talk));
    let added = world.json(["import", "a.jsonl"]);
    assert_eq!(
        (&added["id"], &added["added"], &added["total"], &added["existed"]),
        (&json!("a"), &json!(2), &json!(3), &json!(true))
    );
    world.write("other.jsonl", &session("a", "", &[message("user", "not what is here", 1)]));
    let before = world.ok(["export", "a"]);
    let run = world.run(["import", "other.jsonl"]);
    assert_eq!((run.code, run.stdout.as_str()), (4, ""), "{run:?}");
    assert_eq!(world.ok(["export", "a"]), before);
}

#[test]
fn an_imported_session_keeps_its_times() {
    let world = World::new();
    let talk = [message("user", "first", 10), message("assistant", "last", 3_600)];
    world.write("a.jsonl", &session("a", "", &talk));
    world.ok(["import", "a.jsonl"]);
    let listed = &world.json(["list"])["sessions"][0];
    assert_eq!(
        (&listed["created_at"], &listed["updated_at"]),
        (&json!("2026-01-02T03:04:05Z"), &json!("2026-01-02T04:04:05Z"))
    );
    world.write("empty.jsonl", &session("empty", "", &[]));
    world.ok(["import", "empty.jsonl"]);
    assert_eq!(world.json(["list"])["sessions"][1]["updated_at"], "2026-01-02T03:04:05Z");
}

#[test]
fn a_bad_line_is_named_and_nothing_of_its_file_is_kept() {
    let world = World::new();
    let good = session("bad", "", &[message("user", "x", 1), message("user", "y", 2)]);
    let lines: Vec<_> = good.lines().collect();
    let refused = |text: &str, said: &str| {
        world.write("bad.jsonl", text);
        world.fails(["import", "bad.jsonl"], 2, &format!("bad.jsonl: {said}"));
        world.run_input(text, ["import", "-"]).fails(2, &format!("standard input: {said}"));
        assert_eq!(world.json(["list"])["total"], 0, "{said}");
    };
    refused(&format!("{}\n{}\n{{\n", lines[0], lines[1]), "line 3: the line is cut short");
    refused(
        &format!("{}\n{}\n", lines[0], r#"{"role":"nobody","content":[]}"#),
        "line 2: unknown role \"nobody\"",
    );
    refused(&format!("{}\n[]\n", lines[0]), "line 2: ");
    refused(&format!("{}\nhello\n", lines[0]), "line 2: not valid JSON at column 1");
    refused(&format!("{}\n", lines[1]), "line 1: ");
    refused("", "");
    refused(&good.replace("\"bad\"", "\"../bad\""), "line 1: ");
    let cut = good.trim_end().trim_end_matches('}').to_owned();
    refused(&cut, "line 3: the line is cut short");
    fs::write(world.path("bad.jsonl"), [good.as_bytes(), b"{\"role\":\"\xff\"}\n"].concat())
        .expect("written");
    world.fails(["import", "bad.jsonl"], 2, "bad.jsonl: line 4: ");
    world.fails(["import", "absent.jsonl"], 3, "there is no file absent.jsonl");
    world.fails(["import", "."], 2, "Is a directory");
    world.fails(["import"], 2, "<FILE>...");
}

#[test]
fn of_several_files_the_good_ones_are_kept() {
    let world = World::new();
    for id in ["a", "b", "c"] {
        world.write(&format!("{id}.jsonl"), &session(id, "", &[message("user", "hello", 1)]));
    }
    world.write("bad.jsonl", "{\n");
    let run = world.run(["import", "a.jsonl", "bad.jsonl", "b.jsonl", "absent.jsonl", "c.jsonl"]);
    assert_eq!(run.code, 3, "{run:?}");
    let mut kept: Vec<_> = run.stdout.lines().collect();
    kept.sort_unstable();
    assert_eq!(kept, ["imported a: 1 message", "imported b: 1 message", "imported c: 1 message"]);
    assert!(run.stderr.contains("bad.jsonl: line 1: ") && run.stderr.contains("absent.jsonl"), "{run:?}");
    assert_eq!(world.json(["list"])["total"], 3);
    assert_eq!(world.json(["search", "hello"])["hits"].as_array().expect("a list").len(), 3);
}

#[test]
fn a_sub_session_is_shown_where_it_ran() {
    let world = World::new();
    let mark = json!({ "role": "system", "content": [{ "type": "subSession", "sessionId": "child" }] });
    let talk = [message("user", "before", 1), mark, message("assistant", "after", 100)];
    world.write("parent.jsonl", &session("parent", "", &talk));
    let child = session("child", "", &[message("user", "inside", 50)]);
    world.write(
        "child.jsonl",
        &child.replacen("\"title\"", "\"parentKey\":\"agent:main:chat:parent\",\"title\"", 1),
    );
    world.ok(["import", "parent.jsonl", "child.jsonl"]);
    let text = world.ok(["read", "parent"]);
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} in {text}"));
    assert!(
        at("before") < at("## sub-session child (main)") && at("## sub-session child (main)") < at("inside")
    );
    assert!(at("inside") < at("## end of sub-session") && at("## end of sub-session") < at("after"));
    assert_eq!(world.json(["list"])["total"], 1, "sub-sessions are not listed");
}

#[test]
fn a_docker_agent_database_is_read_and_never_touched() {
    let world = World::new();
    let database = world.path("session.db");
    fs::copy(DOCKER_AGENT, &database).expect("copied");
    let before = (fs::read(&database).expect("read"), fs::read_dir(world.path("")).expect("read").count());
    let told = world.ok(["import", "session.db", "--json"]);
    let told: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let added: Vec<_> = told
        .iter()
        .map(|line| (line["schema_version"].as_u64(), line["id"].as_str(), line["added"].as_u64()))
        .collect();
    assert_eq!(
        added,
        [
            (Some(1), Some("3a1f9c52-8f1e-4c0a-9b1a-6f2d5b7c8e90"), Some(6)),
            (Some(1), Some("c0ffee00-1111-4222-8333-444455556666"), Some(0)),
        ]
    );
    for line in world.ok(["import", "session.db", "--json"]).lines() {
        let line: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!((&line["added"], &line["existed"]), (&json!(0), &json!(true)));
    }
    assert_eq!(
        (fs::read(&database).expect("read"), fs::read_dir(world.path("")).expect("read").count()),
        (before.0.clone(), before.1 + 1)
    );

    let listed = world.json(["list", "--source", "docker-agent"]);
    assert_eq!(
        (&listed["total"], &listed["sessions"][0]["title"]),
        (&json!(1), &json!("Add health endpoint"))
    );
    assert_eq!(listed["sessions"][0]["updated_at"], "2026-11-09T18:03:00Z");
    let text = world.ok(["read", "docker-agent:3a1f9c52-8f1e-4c0a-9b1a-6f2d5b7c8e90"]);
    assert!(
        text.contains("→ called tool `read_file` with {\"path\":\"src/main.rs\"}")
            && text.contains("[context compacted here]"),
        "{text}"
    );

    fs::write(world.path("broken.db"), [&before.0[..4096], &[0; 8192]].concat()).expect("written");
    let broken = world.run(["import", "broken.db"]);
    assert!(broken.code == 2 && broken.stderr.contains("broken.db"), "{broken:?}");
    world.fails(
        ["import", &world.data().join("sess.db").to_string_lossy()],
        2,
        "but not one of docker-agent's",
    );
}

#[test]
fn an_export_that_nobody_reads_to_the_end_is_no_failure() {
    let world = World::new();
    let long: Vec<_> = (0..3_000).map(|n| message("user", &"word ".repeat(50), n)).collect();
    world.write("long.jsonl", &session("long", "", &long));
    world.ok(["import", "long.jsonl"]);
    for args in [&["export", "long"][..], &["events"], &["read", "long"]] {
        let mut command = world.command(args.iter().copied());
        let piped = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let mut child = piped.spawn().expect("sess starts");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(
            (output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()),
            (Some(0), ""),
            "{args:?}"
        );
    }
}
