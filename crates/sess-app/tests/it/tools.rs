//! What the tools say about themselves, and which arguments they take.

use serde_json::{Map, Value, json};
use sess_app::tools::{self, ToolInfo};

use crate::world::{World, told};

fn tool(name: &str) -> ToolInfo {
    tools::all().iter().find(|tool| tool.name == name).expect(name).clone()
}

#[test]
fn each_tool_has_the_title_and_the_hints_of_its_contract() {
    let described: Vec<String> = tools::all()
        .iter()
        .map(|tool| {
            let hints = tool.annotations;
            let hints = [
                (hints.read_only, "read-only"),
                (hints.idempotent, "idempotent"),
                (hints.destructive, "destructive"),
                (hints.open_world, "open world"),
            ];
            let hints: Vec<&str> = hints.iter().filter(|(holds, _)| *holds).map(|(_, name)| *name).collect();
            format!("{}: {} {} ({})", tool.toolset, tool.name, tool.title, hints.join(", "))
        })
        .collect();
    assert_eq!(
        described,
        [
            "session_plan: write_session_plan Write Session Plan (idempotent)",
            "session_plan: read_session_plan Read Session Plan (read-only, idempotent)",
            "session_plan: exit_plan_mode Exit Plan Mode (idempotent)",
            "session_context: list_sessions List Sessions (read-only, idempotent)",
            "session_context: read_session Read Session (read-only, idempotent)",
            "session_context: search_sessions Search Sessions (read-only, idempotent)",
            "session_context: read_compacted Read Compacted (read-only, idempotent)",
            "sessions: sessions_list List Reachable Sessions (read-only, idempotent)",
            "sessions: sessions_history Read Session History (read-only, idempotent)",
            "sessions: sessions_send Send to Session ()",
            "sessions: sessions_spawn Spawn Sub-agent ()",
            "sessions: agents_list List Agents (read-only, idempotent)",
            "sessions: sessions_inbox Open Inbox (idempotent)",
            "sessions: sessions_reply Reply to Message ()",
            "work: work_list List Work Sessions (read-only, idempotent)",
            "work: work_claim Claim Work Session (idempotent)",
            "work: work_note Note In Work Session ()",
            "work: work_status Work Session Status (read-only, idempotent)",
            "work: work_finish Finish Work Session ()",
        ]
    );
    for tool in tools::all() {
        assert!(!tool.description.is_empty() && !tool.description.contains("  "), "{}", tool.description);
    }
}

#[test]
fn arguments_are_closed_and_name_what_is_required() {
    let check = |name: &str, properties: &[&str], required: Value| {
        let schema = tool(name).input_schema;
        assert_eq!(schema["type"], "object");
        assert_eq!(schema["additionalProperties"], false, "{name}");
        assert_eq!(schema.get("required").cloned().unwrap_or(json!([])), required, "{name}");
        let described = schema["properties"].as_object().expect("an object");
        assert_eq!(described.keys().collect::<Vec<_>>(), properties, "{name}");
        for (property, schema) in described {
            assert!(schema["description"].as_str().is_some_and(|text| text.len() > 10), "{property}");
        }
        assert!(!Value::Object(schema).to_string().contains("$ref"), "some hosts cannot follow references");
    };
    check("write_session_plan", &["content"], json!(["content"]));
    check("read_session_plan", &[], json!([]));
    check("exit_plan_mode", &[], json!([]));
    check("list_sessions", &["limit", "scope", "source", "query", "include_archived"], json!([]));
    check("read_session", &["session_id", "around", "include_tools", "max_bytes"], json!(["session_id"]));
    let around = &tool("read_session").input_schema["properties"]["around"]["type"];
    assert_eq!(*around, json!(["string", "integer", "null"]), "a message's id or its number");
    check("sessions_list", &["kinds", "limit", "activeMinutes", "messageLimit"], json!([]));
    check("sessions_history", &["sessionKey", "limit", "includeTools"], json!(["sessionKey"]));
    check("sessions_send", &["sessionKey", "message", "timeoutSeconds"], json!(["sessionKey", "message"]));
    check(
        "sessions_spawn",
        &[
            "task",
            "label",
            "agentId",
            "model",
            "thinking",
            "runTimeoutSeconds",
            "thread",
            "mode",
            "cleanup",
            "sandbox",
            "attachments",
            "attachAs",
        ],
        json!(["task"]),
    );
    check("agents_list", &[], json!([]));
    check("sessions_inbox", &["limit"], json!([]));
    check("sessions_reply", &["runId", "message"], json!(["runId", "message"]));
    check("work_list", &["state", "ready"], json!([]));
    check("work_claim", &["slug", "label", "ignoreDependencies"], json!([]));
    check("work_note", &["kind", "text", "slug", "draft"], json!(["kind", "text"]));
    check("work_status", &["slug"], json!([]));
    check("work_finish", &["outcome", "slug", "reason", "notes", "commitMessage"], json!(["outcome"]));
}

/// Checks a value against the part of JSON Schema that our schemas use, and that they use no other.
fn validate(schema: &Map<String, Value>, value: &Value, place: &str) {
    for keyword in schema.keys() {
        let known = [
            "$schema",
            "type",
            "properties",
            "required",
            "items",
            "description",
            "format",
            "minimum",
            "default",
        ];
        assert!(known.contains(&keyword.as_str()), "{place}: {keyword} is not checked here");
    }
    let is = |name: &str| match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("{place}: {other} is not a type"),
    };
    match &schema["type"] {
        Value::String(name) => assert!(is(name), "{place}: {value} is no {name}"),
        Value::Array(names) => {
            assert!(names.iter().any(|name| is(name.as_str().expect("a name"))), "{place}: {value}");
        }
        other => panic!("{place}: {other}"),
    }
    let none = Map::new();
    let properties =
        schema.get("properties").map_or(&none, |properties| properties.as_object().expect("an object"));
    if let Some(fields) = value.as_object() {
        for name in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
            assert!(fields.contains_key(name.as_str().expect("a name")), "{place}: {name} is missing");
        }
        for (name, field) in fields {
            let schema = properties.get(name).unwrap_or_else(|| panic!("{place}.{name} is not described"));
            validate(schema.as_object().expect("a schema"), field, &format!("{place}.{name}"));
        }
    }
    for item in value.as_array().into_iter().flatten() {
        validate(schema["items"].as_object().expect("a schema"), item, &format!("{place}[]"));
    }
}

#[tokio::test]
async fn every_structured_answer_fits_its_output_schema() {
    let world = World::new();
    world.said("other-1 cwd=/w title=one", "hi", "2026-11-02T00:00:00Z").await;
    world.session("other-2").await;
    world.sql("UPDATE sessions SET starred = starred WHERE id = 'other-2'");
    let calls = [
        (
            "write_session_plan",
            json!({"content": "# p"}),
            vec!["path", "session_id", "revision", "state", "bytes"],
        ),
        ("read_session_plan", json!({}), vec!["path", "session_id", "revision", "state", "bytes", "content"]),
        ("exit_plan_mode", json!({}), vec!["path", "session_id", "revision", "state", "bytes"]),
        ("list_sessions", json!({}), vec!["sessions", "total"]),
        (
            "read_session",
            json!({"session_id": "-1"}),
            vec![
                "session_id",
                "title",
                "num_messages",
                "shown",
                "omitted",
                "omitted_later",
                "redacted",
                "transcript",
            ],
        ),
    ];
    for (name, arguments, fields) in calls {
        let answer = world.answer(&world.agent("me"), name, arguments).await;
        let structured = answer.structured.expect(&answer.text);
        assert_eq!(structured.as_object().expect("an object").keys().collect::<Vec<_>>(), fields, "{name}");
        let schema = tool(name).output_schema;
        validate(&schema, &structured, name);
        let required: Vec<&str> =
            schema["required"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
        assert_eq!(required, fields, "{name}: what is always there is required");
    }
}

/// Some clients hold refusals against the schema, too.
#[tokio::test]
async fn answers_and_refusals_of_the_session_tools_fit_one_schema() {
    let stage = crate::sessions_stage::Stage::new(&["main"]);
    stage.world.said("s", "hi", "2026-11-02T00:00:00Z").await;
    stage.hosted("host").await;
    let send = json!({"sessionKey": "host", "message": "hi", "timeoutSeconds": 0});
    for (name, arguments) in [
        ("sessions_list", json!({"messageLimit": 2})),
        ("sessions_list", json!({"kinds": ["x"]})),
        ("sessions_history", json!({"sessionKey": "current"})),
        ("sessions_history", json!({"sessionKey": "host"})),
        ("sessions_send", send),
        ("sessions_spawn", json!({"task": "x", "mode": "session"})),
        ("agents_list", json!({})),
        ("agents_list", json!({"x": 1})),
        ("sessions_inbox", json!({})),
        ("sessions_reply", json!({"runId": "x", "message": "x"})),
    ] {
        let schema = tool(name).output_schema;
        assert!(schema.get("required").is_none(), "{name}");
        for field in ["status", "error"] {
            assert!(schema["properties"].get(field).is_some(), "{name}: {field}");
        }
        let answer = stage.answer("s", name, arguments).await;
        for field in answer.as_object().expect("an object").keys() {
            assert!(schema["properties"].get(field).is_some(), "{name}: {field} is not described");
        }
        assert!(!Value::Object(schema).to_string().contains("$ref"), "some hosts cannot follow references");
    }
}

#[tokio::test]
async fn a_missing_argument_object_counts_as_an_empty_one() {
    let world = World::new();
    assert_eq!(world.call("s", "write_session_plan", Value::Null).await, "error: content must not be empty");
    assert_eq!(world.call("s", "list_sessions", Value::Null).await, "[]");
    assert_eq!(world.call("s", "read_session", Value::Null).await, "error: session_id must not be empty");
    world.write("s", "# p").await;
    assert_eq!(world.call("s", "read_session_plan", Value::Null).await, "# p");
    assert_eq!(world.call("s", "exit_plan_mode", Value::Null).await, "Plan ready for review.");
}

#[tokio::test]
async fn arguments_of_a_wrong_shape_are_tool_errors_that_name_them() {
    let world = World::new();
    world.write("s", "# p").await;
    for (tool, arguments, expected) in [
        ("write_session_plan", json!([]), "arguments must be a JSON object"),
        ("read_session_plan", json!("x"), "arguments must be a JSON object"),
        ("exit_plan_mode", json!(7), "arguments must be a JSON object"),
        ("list_sessions", json!(true), "arguments must be a JSON object"),
        (
            "write_session_plan",
            json!({"content": 5}),
            "invalid argument \"content\": invalid type: integer `5`, expected a string",
        ),
        (
            "write_session_plan",
            json!({"content": ["x"]}),
            "invalid argument \"content\": invalid type: sequence, expected a string",
        ),
        (
            "write_session_plan",
            json!({"content": "x", "title": "y"}),
            "invalid argument \"title\": unknown field `title`, expected `content`",
        ),
        (
            "read_session_plan",
            json!({"session_id": "x"}),
            "invalid argument \"session_id\": unknown field `session_id`, there are no fields",
        ),
        (
            "exit_plan_mode",
            json!({"content": "x"}),
            "invalid argument \"content\": unknown field `content`, there are no fields",
        ),
        (
            "list_sessions",
            json!({"limit": "5"}),
            "invalid argument \"limit\": invalid type: string \"5\", expected a JSON number",
        ),
        (
            "list_sessions",
            json!({"limit": 1.5}),
            "invalid argument \"limit\": expected a whole number, not 1.5",
        ),
        (
            "list_sessions",
            json!({"scope": "mine"}),
            "invalid argument \"scope\": unknown variant `mine`, expected `repo` or `all`",
        ),
        (
            "list_sessions",
            json!({"include_archived": 1}),
            "invalid argument \"include_archived\": invalid type: integer `1`, expected a boolean",
        ),
        (
            "list_sessions",
            json!({"query": 1}),
            "invalid argument \"query\": invalid type: integer `1`, expected a string",
        ),
        (
            "list_sessions",
            json!({"page": 2}),
            "invalid argument \"page\": unknown field `page`, expected one of `limit`, `scope`, `source`, `query`, `include_archived`",
        ),
        (
            "read_session",
            json!({"session_id": -1}),
            "invalid argument \"session_id\": invalid type: integer `-1`, expected a string",
        ),
        (
            "read_session",
            json!({"session_id": "-1", "around": {}}),
            "invalid argument \"around\": expected a message id or a sequence number",
        ),
        (
            "read_session",
            json!({"session_id": "-1", "extra": 1}),
            "invalid argument \"extra\": unknown field `extra`, expected one of `session_id`, `around`, `include_tools`, `max_bytes`",
        ),
    ] {
        assert_eq!(
            world.call("s", tool, arguments.clone()).await,
            format!("error: {expected}"),
            "{arguments}"
        );
    }
    assert_eq!(world.read("s").await, "# p");
    assert_eq!(world.log("s").await, ["1 main 3"]);
}

#[tokio::test]
async fn a_null_argument_is_one_that_was_not_given() {
    let world = World::new();
    let null = json!({"content": null});
    assert_eq!(world.call("s", "write_session_plan", null).await, "error: content must not be empty");
    let nulls =
        json!({"limit": null, "scope": null, "source": null, "query": null, "include_archived": null});
    assert_eq!(world.call("s", "list_sessions", nulls).await, "[]");
    world.said("other", "hi", "2026-11-02T00:00:00Z").await;
    let nulls = json!({"session_id": "-1", "around": null, "include_tools": null, "max_bytes": null});
    assert!(world.call("s", "read_session", nulls).await.starts_with("# Session other"));
    let null = json!({"session_id": null});
    assert_eq!(world.call("s", "read_session", null).await, "error: session_id must not be empty");
}

#[tokio::test]
async fn a_tool_that_does_not_exist_is_no_answer_at_all() {
    let world = World::new();
    let call =
        tools::ToolCall { name: "read_plan".to_owned(), arguments: Value::Null, idempotency_key: None };
    assert_eq!(world.app.call_tool(&world.agent("s"), call).await, None);
}

/// With no store at all, every tool says so.
#[tokio::test]
async fn without_a_place_for_a_store_the_tools_say_that_there_is_none() {
    let world = World::with(|settings| settings.home = None);
    let history = "error: session history is not available in this runtime";
    let plans = "error: session plans are not available in this runtime";
    for (tool, arguments, expected) in [
        ("list_sessions", json!({}), history),
        ("read_session", json!({"session_id": "-1"}), history),
        ("read_session", json!({"session_id": "some-session"}), history),
        ("write_session_plan", json!({"content": "x"}), plans),
        ("read_session_plan", json!({}), plans),
        ("exit_plan_mode", json!({}), plans),
    ] {
        assert_eq!(told(&world.answer(&world.agent("s"), tool, arguments).await), expected, "{tool}");
    }
    let ask = sess_app::SearchMessages { text: "word".to_owned(), ..sess_app::SearchMessages::default() };
    let found = world.app.search(&world.owner(), &ask, |_, _| {}).await;
    assert_eq!(found.expect_err("no store").to_string(), history.trim_start_matches("error: "));
    assert_eq!(std::fs::read_dir(world.home()).expect("a directory").count(), 0);
}

#[tokio::test]
async fn reading_makes_no_store() {
    let world = World::new();
    assert_eq!(world.call("s", "list_sessions", json!({})).await, "[]");
    world.call("s", "read_session", json!({"session_id": "-1"})).await;
    world.read("s").await;
    world.exit("s").await;
    assert_eq!(std::fs::read_dir(world.home()).expect("a directory").count(), 0);
}
