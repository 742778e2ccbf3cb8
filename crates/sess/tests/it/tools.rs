//! `sess tool …`: the tools, as a program sees them.

use serde_json::json;

use crate::world::World;

#[test]
fn tools_are_listed_with_their_schemas() {
    let world = World::new();
    let names = [
        "write_session_plan",
        "read_session_plan",
        "exit_plan_mode",
        "list_sessions",
        "read_session",
        "search_sessions",
        "read_compacted",
        "sessions_list",
        "sessions_history",
        "sessions_send",
        "sessions_spawn",
        "agents_list",
        "sessions_inbox",
        "sessions_reply",
        "work_list",
        "work_claim",
        "work_note",
        "work_status",
        "work_finish",
    ];
    let listed = world.json(["tool", "list"]);
    let tools = listed["tools"].as_array().expect("a list");
    assert_eq!(tools.iter().map(|tool| tool["name"].as_str().expect("text")).collect::<Vec<_>>(), names);
    assert!(tools.iter().all(|tool| tool["inputSchema"].is_object() && tool["outputSchema"].is_object()));
    let table = world.ok(["tool", "list"]);
    assert!(names.iter().all(|name| table.contains(name)), "{table}");
}

#[test]
fn a_tools_answer_is_data_and_its_error_is_talk() {
    let world = World::new();
    let write = ["tool", "call", "write_session_plan", r##"{"content":"# Plan"}"##, "--session", "s1"];
    assert_eq!(
        world.ok(write),
        format!("Plan saved to {}", world.data().join("session_plans/s1.md").display())
    );
    assert_eq!(world.ok(["tool", "call", "read_session_plan", "--session", "s1"]), "# Plan");
    assert_eq!(world.ok(["tool", "call", "read_session_plan", "{}", "--session", "s1"]), "# Plan");
    assert_eq!(
        world.ok(["tool", "call", "exit_plan_mode", "null", "--session", "s1"]),
        "Plan ready for review."
    );
    let answer = world.json(["tool", "call", "read_session_plan", "--session", "s1"]);
    assert_eq!((&answer["text"], &answer["isError"]), (&json!("# Plan"), &json!(false)));
    assert_eq!(answer["structuredContent"]["state"], "ready");

    let none = world.run(["tool", "call", "read_session_plan", "--session", "s2"]);
    assert_eq!((none.code, none.stdout.as_str()), (1, ""));
    assert_eq!(none.stderr, "no plan written yet for this session; call write_session_plan first\n");
    let none = world.run(["tool", "call", "read_session_plan", "--session", "s2", "--json"]);
    assert!(none.code == 1 && none.stdout.contains(r#""isError":true"#), "{none:?}");
    world.fails(
        ["tool", "call", "nothing"],
        2,
        "no tool is called \"nothing\"; the tools are write_session_plan, ",
    );
}

#[test]
fn wrong_arguments_are_tool_errors() {
    let world = World::new();
    let refused = |tool: &str, arguments: &str, said: &str| {
        world.fails(["tool", "call", tool, arguments, "--session", "s1"], 1, said);
    };
    for arguments in ["[]", "\"x\"", "1", "true"] {
        refused("read_session_plan", arguments, "arguments must be a JSON object");
    }
    refused("write_session_plan", r#"{"content":7}"#, "invalid argument \"content\"");
    refused("write_session_plan", r#"{"content":"x","extra":1}"#, "invalid argument \"extra\"");
    refused("write_session_plan", "{}", "content must not be empty");
    refused("read_session_plan", r#"{"session":"other"}"#, "invalid argument \"session\"");
    refused("list_sessions", r#"{"limit":"many"}"#, "invalid argument \"limit\"");
    refused("read_session", r#"{"session_id":{}}"#, "invalid argument \"session_id\"");
    refused("read_session", "{}", "session_id must not be empty");
    world.fails(["tool", "call", "read_session", "{"], 2, "the arguments are not valid JSON");
    world.fails(["tool", "call", "read_session_plan", "--session", "a:b"], 1, "invalid session ID: \"a:b\"");
    assert!(!world.data().join("session_plans/s1.md").exists());
}

#[test]
fn a_retry_with_the_same_key_acts_once() {
    let world = World::new();
    let write = |content: &str, key: &str| {
        let arguments = json!({ "content": content }).to_string();
        world.run([
            "tool",
            "call",
            "write_session_plan",
            &arguments,
            "--session",
            "s1",
            "--idempotency-key",
            key,
        ])
    };
    assert_eq!(write("one", "k").stdout, write("one", "k").stdout);
    write("two", "k").fails(1, "idempotency key \"k\" was used before for another request");
    assert_eq!(world.json(["plan", "log"])["revisions"].as_array().expect("a list").len(), 1);
}

#[test]
fn no_name_of_a_session_leads_out_of_the_plan_directory() {
    let world = World::with_sessions();
    let long = "x".repeat(129);
    let names = [
        "",
        ".",
        "..",
        "../x",
        "a/b",
        "a\\b",
        "a:b",
        "-x",
        "_x",
        ".x",
        "a b",
        "a\nb",
        "é",
        "%2e%2e",
        &long,
        "/etc/passwd",
        "..%2fx",
        "x/../../y",
        "\u{2024}\u{2024}/x",
        "x\u{0}".trim_end_matches('\0'),
        "~",
        "$HOME",
        "`id`",
        "x;y",
        "con\u{301}",
    ];
    let allowed = ["x"];
    let files = || std::fs::read_dir(world.data().join("session_plans")).map_or(0, Iterator::count);
    for name in names {
        let session = format!("--session={name}");
        let write = ["tool", "call", "write_session_plan", r##"{"content":"# Plan"}"##, &session];
        let run = world.run(write);
        if allowed.contains(&name) {
            assert_eq!(run.code, 0, "{run:?}");
            continue;
        }
        let before = files();
        run.fails(1, "invalid session ID: \"");
        world.run_input("# Plan", ["plan", "write", &session]).fails(2, "");
        let read = world.run(["read", "--", name]);
        assert!(read.code == 2 || read.code == 3, "{name:?}: {read:?}");
        assert_eq!(files(), before, "{name:?}");
    }
    let here: Vec<_> = std::fs::read_dir(world.path(""))
        .expect("readable")
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    assert_eq!(here.len(), 3, "{here:?}");
    assert_eq!(world.json(["list"])["total"], 3);
}

#[test]
fn saying_more_leaves_the_data_as_it_is() {
    let world = World::with_sessions();
    let quiet = world.run(["read", "old"]);
    let loud = world.run(["-vv", "read", "old"]);
    assert_eq!((quiet.stdout, quiet.stderr.as_str()), (loud.stdout, ""));
    let logged = world.run_env(&[("SESS_LOG", "debug")], ["list", "--json"]);
    assert!(serde_json::from_str::<serde_json::Value>(&logged.stdout).is_ok(), "{logged:?}");
}
