//! `list`, `read`, `search`, `star`, `rename`, `archive`, and `sess` alone.

use serde_json::json;

use crate::world::{World, message, session};

#[test]
fn sess_alone_says_what_is_here_and_what_to_do_next() {
    let world = World::new();
    let empty = world.ok([]);
    assert!(empty.contains("There are no sessions yet"), "{empty}");
    assert!(empty.contains("sess demo"), "{empty}");
    assert!(!world.data().exists(), "looking makes nothing");

    let world = World::with_sessions();
    let filled = world.ok([]);
    assert!(filled.contains("new-session") && filled.contains("sess read -1"), "{filled}");
    world.ready_plan();
    let waiting = world.ok([]);
    assert!(waiting.contains("review the plan of s1"), "{waiting}");
    assert_eq!(world.json([])["total"], 3);
}

#[test]
fn list_shows_the_most_recent_first_and_filters() {
    let world = World::with_sessions();
    let table = world.ok(["list"]);
    let lines: Vec<_> = table.lines().collect();
    assert!(lines[0].starts_with("REF  ID           TITLE            MESSAGES  ACTIVE"), "{table}");
    assert!(lines[1].starts_with("-1   new-session  Failing uploads  2"), "{table}");
    assert!(lines[2].starts_with("-2   old          About uploads    10"), "{table}");
    assert_eq!(lines.len(), 3, "{table}");

    let ids = |args: &[&str]| {
        let listing = world.json(args.iter().copied());
        let ids: Vec<_> =
            listing["sessions"].as_array().expect("a list").iter().map(|s| s["id"].clone()).collect();
        (ids, listing["total"].clone())
    };
    assert_eq!(ids(&["list"]), (vec![json!("new-session"), json!("old")], json!(2)));
    assert_eq!(ids(&["ls", "-n", "1"]), (vec![json!("new-session")], json!(2)));
    assert_eq!(ids(&["list", "--limit", "-3"]).0.len(), 2);
    assert_eq!(ids(&["list", "--query", "about"]).0, vec![json!("old")]);
    assert_eq!(ids(&["list", "--source", "codex"]).0, Vec::<serde_json::Value>::new());
    assert_eq!(ids(&["list", "--source", "native"]).0.len(), 2);
    assert_eq!(ids(&["list", "--scope", "repo"]).0.len(), 0);
    assert_eq!(
        world.json(["list", "-n", "1"])["sessions"][0],
        json!({
            "id": "new-session", "title": "Failing uploads", "created_at": "2026-01-02T03:04:05Z",
            "num_messages": 2, "updated_at": "2026-01-03T07:07:25Z", "source": "native", "agent": "main",
        })
    );

    let cut = world.run(["list", "-n", "1"]);
    assert_eq!(cut.stderr, "1 of 2; `--limit` shows more\n");
    let none = world.run(["list", "--query", "nothing like it"]);
    assert_eq!((none.code, none.stdout.as_str()), (0, ""));
    assert_eq!(none.stderr, "no session fits; `sess list` alone shows all\n");
    world.fails(["list", "--source", "nobody"], 2, "unknown source \"nobody\": one of native, claude");
    world.fails(["list", "--scope", "moon"], 2, "[possible values: repo, all]");
}

#[test]
fn read_takes_every_kind_of_reference() {
    let world = World::with_sessions();
    let transcript = "# Session new-session — Failing uploads\nCreated: 2026-01-02T03:04:05Z\nMessages: 2\n\n\
                      ## user\nwhy do uploads fail exactly once?\n\n## assistant\nBecause nothing retries them.";
    for reference in
        ["-1", "new-session", "new-sess", "agent:main:chat:new-session", "native:new-session", " -1 "]
    {
        assert_eq!(world.ok(["read", reference]).trim_end(), transcript, "{reference}");
    }
    assert_eq!(world.ok(["read", "--json", "-1"]), world.ok(["read", "-1", "--json"]));
    let data = world.json(["read", "-1"]);
    assert_eq!(
        (&data["session_id"], &data["shown"], &data["omitted"]),
        (&json!("new-session"), &json!(2), &json!(0))
    );
    assert_eq!(data["transcript"].as_str().expect("text").trim_end(), transcript);

    world.fails(["read", "-3"], 3, "session offset 3 out of range (have 2 sessions)");
    world.fails(["read", "nobody"], 3, "hint: `sess list` shows the sessions there are");
    world.fails(["read", "-0"], 3, "session \"-0\" not found");
    world.fails(["read", ""], 2, "session_id must not be empty");
    world.fails(["read", "-x"], 2, "unexpected argument '-x'");
    world.fails(["read"], 2, "required arguments were not provided");

    world.write("twin.jsonl", &session("new-sessions", "", &[]));
    world.ok(["import", "twin.jsonl"]);
    world.fails(["read", "new-sess"], 2, "session \"new-sess\" is ambiguous (2 match); give more of the id");
}

#[test]
fn read_shows_a_part_when_asked() {
    let world = World::with_sessions();
    let around = world.json(["read", "old", "--around", "5", "--max-bytes", "1000"]);
    assert!(around["transcript"].as_str().expect("text").contains("question 5"), "{around}");
    world.fails(["read", "old", "--around", "99"], 3, "message \"99\" not found in session \"old\"");

    let call = json!({ "type": "toolCall", "id": "c1", "name": "grep", "arguments": { "pattern": "x" } });
    let mut asked = message("assistant", "Looking.", 1);
    asked["content"].as_array_mut().expect("blocks").push(call);
    let mut found = message("toolResult", "one match", 2);
    (found["toolCallId"], found["toolName"]) = ("c1".into(), "grep".into());
    world.write("tools.jsonl", &session("with-tools", "", &[asked, found]));
    world.ok(["import", "tools.jsonl"]);
    let with = world.ok(["read", "with-tools"]);
    assert!(
        with.contains("→ called tool `grep` with {\"pattern\":\"x\"}") && with.contains("one match"),
        "{with}"
    );
    let without = world.ok(["read", "with-tools", "--no-tools"]);
    assert!(
        without.contains("Looking.") && !without.contains("grep") && !without.contains("one match"),
        "{without}"
    );

    let long: Vec<_> = (0..50).map(|n| message("user", &"word ".repeat(100), n)).collect();
    world.write("long.jsonl", &session("long-one", "", &long));
    world.ok(["import", "long.jsonl"]);
    let cut = world.ok(["read", "long-one", "--max-bytes", "2000"]);
    assert!(cut.len() <= 2000 && cut.contains("earlier message(s) omitted"), "{} bytes", cut.len());
}

#[test]
fn search_finds_words_phrases_beginnings_and_leaves_out() {
    let world = World::with_sessions();
    let found = |args: &[&str]| {
        let text = world.ok(["search", "--json"].into_iter().chain(args.iter().copied()));
        serde_json::from_str::<serde_json::Value>(&text).expect("JSON")
    };
    let places = |args: &[&str]| {
        let hits = found(args)["hits"].as_array().expect("a list").clone();
        hits.iter()
            .map(|hit| format!("{}#{}", hit["session"]["id"].as_str().expect("text"), hit["seq"]))
            .collect::<Vec<_>>()
    };
    assert_eq!(places(&["uploads", "fail"]), ["new-session#1"]);
    assert_eq!(places(&["\"exactly once\""]), ["new-session#1"]);
    assert_eq!(places(&["retr*"]), ["new-session#2"]);
    assert_eq!(places(&["question", "-n", "2"]), ["old#10", "old#9"]);
    assert_eq!(places(&["question -9", "-n", "2"]), ["old#10", "old#8"]);
    assert_eq!(places(&["-n", "1", "--", "question", "-10"]), ["old#9"]);
    let cursor = found(&["question", "-n", "2"])["cursor"].as_str().expect("text").to_owned();
    assert_eq!(places(&["question", "-n", "2", "--before", &cursor]), ["old#8", "old#7"]);

    let text = world.run(["search", "nothing", "retries"]);
    assert!(text.stdout.starts_with("new-session#2  Failing uploads  2026-01-03\n    "), "{text:?}");
    let none = world.run(["search", "absent"]);
    assert_eq!((none.code, none.stdout.as_str()), (0, ""));
    assert!(none.stderr.starts_with("nothing found"), "{none:?}");
    world.fails(["search", "--", "-x"], 2, "give at least one word");
    world.fails(["search"], 2, "<WORDS>...");
    // Options may follow the words.
    world.fails(["search", "uploads", "-x"], 2, "to pass '-x' as a value, use '-- -x'");
    assert!(world.run(["search", "uploads"]).code == 0 && World::new().run(["search", "x"]).code == 0);
}

#[test]
fn a_search_that_cannot_be_made_is_refused_in_a_sentence() {
    let world = World::with_sessions();
    let refused = world.run(["search", "-e", "("]);
    refused.fails(2, "this is no regular expression: ");
    assert_eq!(refused.stderr.lines().count(), 1, "{refused:?}");
    assert!(refused.stderr.contains("search for words"), "{refused:?}");
    assert_eq!(
        world.run(["search", "-n", "-5", "question"]).code,
        0,
        "as many as usual, like `sess list -n -5`"
    );
}

#[test]
fn a_handoff_to_an_agent_without_a_command_says_what_to_say_there() {
    let world = World::with_sessions();
    let handed = world.run(["handoff", "new-session", "--to", "zed"]);
    assert_eq!(handed.code, 0, "{handed:?}");
    assert!(
        handed.stdout.starts_with("Read ")
            && handed.stdout.ends_with("new-session.md and go on from there.\n")
    );
    assert!(handed.stderr.starts_with("zed is not started with a prompt"), "{handed:?}");
    let data = world.json(["handoff", "new-session", "--to", "zed"]);
    let path = data["path"].as_str().expect("a path");
    assert!(std::fs::read_to_string(path).expect("the bundle").contains("# Handoff: Failing uploads"));
    assert!(data["prompt"].as_str().expect("a prompt").contains(path) && data.get("command").is_none());
    world.fails(["handoff", "new-session", "--to", "nobody"], 2, "unknown source \"nobody\"");
}

#[test]
fn an_agent_that_is_alone_is_not_told_to_import() {
    let listed = World::new().run_env(&[("CLAUDE_CODE_SESSION_ID", "alone")], ["list"]);
    assert_eq!(listed.stderr, "no sessions besides the one that asks, which is not listed\n");
}

#[test]
fn the_owner_stars_renames_and_archives() {
    let world = World::with_sessions();
    let starred = world.run(["star", "-1"]);
    assert_eq!((starred.code, starred.stdout.as_str()), (0, ""));
    assert_eq!(starred.stderr, "starred new-session: Failing uploads\n");
    assert_eq!(world.json(["star", "-1"])["starred"], true);
    assert!(world.ok(["list"]).contains("★ Failing uploads"));
    assert!(world.json(["unstar", "new-session"]).get("starred").is_none());

    assert_eq!(world.json(["rename", "-2", " Another title "])["title"], "Another title");
    assert!(world.ok(["list"]).contains("Another title"));
    assert_eq!(
        world.run(["rename", "old", ""]).stderr,
        "renamed old: (untitled)
"
    );
    world.fails(["rename", "old", &"x".repeat(501)], 2, "the title is too long: the most is 500 characters");

    world.ok(["archive", "old"]);
    assert_eq!(world.json(["list"])["total"], 1);
    assert_eq!(world.json(["list", "--archived"])["total"], 2);
    assert!(world.ok(["read", "old"]).contains("question 10"));
    world.ok(["unarchive", "old"]);
    assert_eq!(world.json(["list"])["total"], 2);
    for command in ["star", "unstar", "archive", "unarchive", "export"] {
        world.fails([command, "nobody"], 3, "session \"nobody\" not found");
        world.fails([command, "-9"], 3, "out of range");
    }
}

#[test]
fn secrets_are_masked_unless_the_owner_says_otherwise() {
    let world = World::new();
    let secret = concat!("sk-", "ant-api03-Ab12Cd34Ef56Gh78Ij90-Kl12Mn34Op56AA");
    world.write(
        "s.jsonl",
        &session("secret", secret, &[message("user", &format!("my token is {secret}"), 1)]),
    );
    world.ok(["import", "s.jsonl"]);
    for args in [
        &["read", "-1"][..],
        &["search", "token"],
        &["events", "--json"],
        &["list"],
        &["read", "-1", "--json"],
    ] {
        let run = world.run(args.iter().copied());
        assert!(run.code == 0 && !run.stdout.contains(secret), "{run:?}");
    }
    assert!(world.run(["read", "-1"]).stderr.contains("secret(s) masked; --no-redact shows them"));
    for args in [&["read", "-1", "--no-redact"][..], &["search", "token", "--no-redact"], &["export", "-1"]] {
        assert!(world.ok(args.iter().copied()).contains(secret), "{args:?}");
    }
    let agent = world.run_env(&[("CLAUDE_CODE_SESSION_ID", "c1")], ["read", "-1", "--no-redact"]);
    assert!(agent.code == 0 && !agent.stdout.contains(secret), "{agent:?}");
}

#[test]
fn history_takes_its_session_from_either_place_and_a_run_needs_none() {
    let world = World::new();
    world.write("s.jsonl", &session("one", "One", &[message("user", "hello", 1)]));
    world.ok(["import", "s.jsonl"]);
    let named = world.ok(["history", "one"]);
    assert!(named.contains("hello"), "{named}");
    assert_eq!(world.ok(["--session", "one", "history"]), named);
    assert_eq!(world.ok(["--session", "-1", "history"]), named);
    world.fails(["history"], 2, "which session: name it, as in `sess history -1`");
    world.fails(["history", "one", "--session", "one"], 2, "a session is named twice: leave out --session");
    for command in ["wait", "cancel"] {
        world.fails(
            [command, "12345678", "--session", "one"],
            2,
            "a run is named by its id: leave out --session",
        );
    }
}
