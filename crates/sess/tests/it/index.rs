//! `sess index`: what it says, and what is left when it is broken off.

use std::{fs, time::Instant};

use serde_json::Value;

use crate::world::{Beside, PATIENCE, World};

/// Writes a session of Claude Code with so many messages.
fn write(world: &World, id: u32, messages: usize, text: &str) {
    let project = world.path(".claude/projects/-w");
    fs::create_dir_all(&project).expect("made");
    let line = |n: usize| {
        let parent = if n == 0 { "null".to_owned() } else { format!("\"{id}-{}\"", n - 1) };
        format!(
            "{{\"type\":\"user\",\"uuid\":\"{id}-{n}\",\"parentUuid\":{parent},\"sessionId\":\"x\",\"cwd\":\"/w\",\
             \"timestamp\":\"2026-11-10T09:00:{:02}Z\",\"message\":{{\"role\":\"user\",\"content\":\"{text} {n}\"}}}}\n",
            id % 60
        )
    };
    let path = project.join(format!("00000000-0000-4000-8000-{id:012}.jsonl"));
    fs::write(path, (0..messages).map(line).collect::<String>()).expect("written");
}

/// A session of Codex that goes on where another one was: all of it is in no one file.
#[test]
fn it_says_which_sessions_are_always_read() {
    let world = World::new();
    write(&world, 1, 3, "a straw");
    let day = world.path(".codex/sessions/2026/11/11");
    fs::create_dir_all(&day).expect("made");
    let id = |n: u32| format!("019a71aa-0c11-7d20-8a00-00000000000{n}");
    for (n, from) in [(1, None), (2, Some(id(1)))] {
        let base = from.map(|from| serde_json::json!({ "thread_id": from, "end_ordinal_exclusive": 2 }));
        let meta = serde_json::json!({ "timestamp": "2026-11-11T12:00:00Z", "ordinal": 0, "type": "session_meta",
            "payload": { "id": id(n), "timestamp": "2026-11-11T12:00:00Z", "cwd": "/w", "history_mode": "paginated",
                "history_base": base } });
        let said = serde_json::json!({ "timestamp": "2026-11-11T12:00:01Z", "ordinal": 1, "type": "event_msg",
            "payload": { "type": "item_completed", "item": { "type": "UserMessage", "id": format!("u{n}"),
                "content": [{ "type": "text", "text": "hello" }] } } });
        let path = day.join(format!("rollout-2026-11-11T12-00-0{n}-{}.jsonl", id(n)));
        fs::write(path, format!("{meta}\n{said}\n")).expect("written");
    }
    assert!(world.ok(["index"]).contains(", 1 always read; "));
    assert_eq!(world.json(["index", "--status"])["left_out"], 1);
    let said = world.ok(["index", "--status"]);
    assert!(said.starts_with("2 of 3 sessions are indexed as they are; "), "{said}");
    let why = "\n1 of the others is always read: no one file tells when it changes\n";
    assert!(said.contains(why), "{said}");
}

#[test]
fn it_says_what_it_did_and_how_it_stands() {
    let world = World::new();
    assert!(world.ok(["index"]).starts_with("no sessions of other agents were found"));
    assert!(world.ok(["index", "--status"]).starts_with("there is no index; `sess index` makes one"));
    assert!(!world.data().join("filters.db").exists());
    write(&world, 1, 3, "a needle");
    write(&world, 2, 3, "a straw");
    let said = world.ok(["index"]);
    assert!(said.starts_with("2 new, 0 changed, 0 unchanged; the index has 2 sessions of "), "{said}");
    write(&world, 2, 4, "a straw");
    let state = world.json(["index", "--status"]);
    assert_eq!((&state["sessions"], &state["current"], &state["indexed"]), (&2.into(), &1.into(), &2.into()));
    assert!(state["size_bytes"].as_u64() > Some(0) && state["problem"] == Value::Null, "{state}");
    let said = world.ok(["index", "--status"]);
    assert!(said.starts_with("1 of 2 sessions are indexed as they are; "), "{said}");
    assert!(said.contains("\n1 of the others is new, changed or unreadable: searches read it, and `sess index` takes in what it can\n"), "{said}");
    assert_eq!(world.json(["search", "needle"])["hits"].as_array().map(Vec::len), Some(3));
    let told = world.json(["index"]);
    assert_eq!(
        (&told["looked_at"], &told["new"], &told["changed"], &told["unchanged"], &told["failed"]),
        (&2.into(), &0.into(), &1.into(), &1.into(), &Value::Array(Vec::new())),
        "{told}"
    );
    fs::write(world.data().join("filters.db"), "no database at all").expect("written");
    let found = world.run(["search", "needle"]);
    assert!(found.code == 0 && found.stdout.contains("a needle 2"), "{found:?}");
    assert_eq!(found.stderr.matches("the index cannot be used").count(), 1, "{found:?}");
    let doctor = world.json(["doctor"]);
    let checks = doctor["checks"].as_array().expect("checks");
    assert!(doctor["healthy"] == true, "{doctor}");
    assert!(checks.iter().any(|check| check["name"] == "index" && check["outcome"] == "warning"), "{doctor}");
    let made = world.run(["index"]);
    assert!(made.stderr.contains("the index was made anew") && made.stdout.starts_with("2 new"), "{made:?}");
    assert!(!made.stderr.contains("cannot be used"), "it can by now: {made:?}");
    assert_eq!(world.ok(["index", "--forget"]), "deleted the index\n");
    assert_eq!(world.ok(["index", "--forget"]), "there was no index\n");
    world.fails(["index", "--source", "nobody"], 2, "unknown source");
    world.fails(["index", "--status", "--forget"], 2, "cannot be used with");
}

#[test]
fn whoever_breaks_it_off_keeps_what_is_done() {
    let world = World::new();
    // The newest one is read at once, and the other takes a while.
    write(&world, 30, 1, "a needle");
    write(&world, 2, 60_000, "a long story of straws, one after the other, and no end of it");
    let beside = Beside::start(world.command(["index"]));
    let filters = world.data().join("filters.db");
    let has_one = || {
        let connection = rusqlite::Connection::open_with_flags(
            &filters,
            rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY | rusqlite::OpenFlags::SQLITE_OPEN_NO_MUTEX,
        );
        let count =
            |it: rusqlite::Connection| it.query_row("SELECT count(*) FROM filters", [], |row| row.get(0));
        connection.and_then(count).is_ok_and(|count: i64| count > 0)
    };
    let begun = Instant::now();
    while !has_one() {
        assert!(begun.elapsed() < PATIENCE, "nothing is indexed");
        std::thread::yield_now();
    }
    assert_eq!(beside.interrupt(), Some(130));
    assert_eq!(world.json(["index", "--status"])["current"], 1);
    assert_eq!(world.json(["search", "needle"])["hits"].as_array().map(Vec::len), Some(1));
    let told = world.json(["index"]);
    assert_eq!((&told["new"], &told["unchanged"]), (&1.into(), &1.into()), "{told}");
}
