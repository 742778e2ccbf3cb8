//! `sess tool …`: the tools, as a program sees them.

use serde_json::json;

use crate::world::World;

#[test]
fn tools_are_listed_with_their_schemas() {
    let world = World::new();
    let names =
        ["write_session_plan", "read_session_plan", "exit_plan_mode", "list_sessions", "read_session"];
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
