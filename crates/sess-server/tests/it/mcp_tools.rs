//! Tools over MCP: what is listed, what is answered, and to whom.

use serde_json::{Value, json};
use sess_app::tools::Toolset;
use sess_server::mcp::McpOptions;

use crate::client::{connect, connect_old, connect_with, options};

fn names(listed: &Value) -> Vec<&str> {
    let tools = listed["result"]["tools"].as_array().expect("a list");
    tools.iter().map(|tool| tool["name"].as_str().expect("a name")).collect()
}

#[tokio::test]
async fn every_older_revision_is_agreed_on_and_served() {
    for revision in ["2025-06-18", "2025-11-25"] {
        let mut client = connect();
        let agreed = client.initialize(revision).await;
        assert_eq!(agreed["protocolVersion"], revision);
        assert_eq!(agreed["serverInfo"]["name"], "intersession");
        assert_eq!(agreed["capabilities"], json!({"tools": {}, "resources": {}, "prompts": {}}));
        assert!(agreed["instructions"].as_str().expect("text").contains("write_session_plan"));

        let listed = client.ask("tools/list", json!({})).await;
        assert_eq!(names(&listed).len(), 7);
        assert!(listed["result"].get("resultType").is_none(), "unknown before 2026-07-28");
        let pong = client.ask("ping", json!({})).await;
        assert_eq!(pong["result"], json!({}));
    }
}

#[tokio::test]
async fn an_unknown_revision_is_answered_with_the_newest_that_has_a_handshake() {
    let mut client = connect();
    assert_eq!(client.initialize("2026-07-28").await["protocolVersion"], "2025-11-25");
    assert_eq!(client.initialize("1999-01-01").await["protocolVersion"], "2025-11-25");
}

#[tokio::test]
async fn the_newest_revision_needs_no_handshake() {
    let mut client = connect();
    let found = client.ask_stateless("server/discover", json!({})).await;
    let versions = found["result"]["supportedVersions"].as_array().expect("a list");
    for revision in ["2025-06-18", "2025-11-25", "2026-07-28"] {
        assert!(versions.contains(&json!(revision)), "{found}");
    }
    // A notification between discovery and the first request is no reason to go.
    client.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#).await;
    let listed = client.ask_stateless("tools/list", json!({})).await;
    assert_eq!(names(&listed).len(), 7);
    assert_eq!(listed["result"]["resultType"], "complete");
}

#[tokio::test]
async fn a_request_that_names_no_revision_is_refused_until_initialize() {
    let mut client = connect();
    for method in ["tools/list", "server/discover", "resources/list"] {
        let answer = client.ask(method, json!({})).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        assert!(answer["error"]["message"].as_str().expect("text").contains("begin with initialize"));
    }
    assert_eq!(client.ask("ping", json!({})).await["result"], json!({}));
    client.initialize("2025-06-18").await;
    assert_eq!(names(&client.ask("tools/list", json!({})).await).len(), 7);
}

#[tokio::test]
async fn a_revision_from_the_future_is_refused_by_name() {
    let mut client = connect();
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2099-01-01"});
    let answer = client.ask_stateless("tools/list", json!({"_meta": meta})).await;
    assert_eq!(answer["error"]["data"]["requested"], "2099-01-01", "{answer}");
}

#[tokio::test]
async fn a_listed_tool_says_all_that_hosts_ask_for() {
    let mut client = connect_old().await;
    let listed = client.ask("tools/list", json!({})).await;
    for tool in listed["result"]["tools"].as_array().expect("a list") {
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
        assert_eq!(tool["outputSchema"]["type"], "object", "{tool}");
        assert!(!tool["description"].as_str().expect("text").is_empty(), "{tool}");
        assert_eq!(tool["title"], tool["annotations"]["title"], "{tool}");
        assert_eq!(tool["_meta"], json!({"anthropic/alwaysLoad": true}), "{tool}");
    }
    assert_eq!(
        listed["result"]["tools"][0]["annotations"],
        json!({
            "title": "Write Session Plan",
            "readOnlyHint": false,
            "destructiveHint": false,
            "idempotentHint": true,
            "openWorldHint": false,
        })
    );
}

#[tokio::test]
async fn an_answer_has_text_and_structure() {
    let mut client = connect_old().await;
    let written = client.call("write_session_plan", json!({"content": "1. measure\n"})).await;
    let result = &written["result"];
    assert_eq!(result["isError"], false);
    let path = result["structuredContent"]["path"].as_str().expect("a path");
    assert_eq!(result["content"], json!([{"type": "text", "text": format!("Plan saved to {path}")}]));
    assert_eq!(result["structuredContent"]["session_id"], "s-1");
}

#[tokio::test]
async fn a_tool_that_fails_answers_with_a_result() {
    let mut client = connect_old().await;
    let answer = client.call("write_session_plan", json!({"content": " "})).await;
    assert_eq!(answer["result"]["isError"], true);
    assert_eq!(answer["result"]["content"][0]["text"], "content must not be empty");
}

#[tokio::test]
async fn absent_arguments_are_none_and_others_than_an_object_are_refused() {
    let mut client = connect_old().await;
    for params in [json!({"name": "list_sessions"}), json!({"name": "list_sessions", "arguments": null})] {
        let answer = client.ask("tools/call", params).await;
        assert_eq!(answer["result"]["isError"], false, "{answer}");
    }
    for (arguments, kind) in [
        (json!([]), "an array"),
        (json!("x"), "a string"),
        (json!(3), "a number"),
        (json!(true), "a boolean"),
    ] {
        let answer = client.call("list_sessions", arguments).await;
        assert_eq!(answer["error"]["code"], -32602);
        assert_eq!(answer["error"]["message"], format!("arguments must be an object, not {kind}"));
    }
    let answer = client.ask("tools/call", json!({"name": 3})).await;
    assert_eq!(answer["error"]["code"], -32602);
}

#[tokio::test]
async fn unknown_tools_and_methods_are_errors_of_the_protocol() {
    let mut client = connect_old().await;
    let answer = client.call("no_such_tool", json!({})).await;
    assert_eq!(answer["error"], json!({"code": -32602, "message": "unknown tool \"no_such_tool\""}));
    let answer = client.ask("no/such", json!({})).await;
    assert_eq!(answer["error"], json!({"code": -32601, "message": "unknown method \"no/such\""}));
    let answer = client.call(&"x".repeat(100_000), json!({})).await;
    assert!(answer["error"]["message"].as_str().expect("text").len() < 200);
}

#[tokio::test]
async fn what_the_newest_revision_dropped_is_unknown_there() {
    let mut client = connect();
    for method in ["initialize", "ping", "logging/setLevel", "resources/subscribe"] {
        let answer = client.ask_stateless(method, json!({})).await;
        assert_eq!(answer["error"]["code"], -32601, "{method}: {answer}");
    }
    let answer = client.ask("initialize", json!({"protocolVersion": 5})).await;
    assert_eq!(answer["error"]["message"], "the parameters of initialize are missing or malformed");
}

#[tokio::test]
async fn what_is_filtered_out_does_not_exist() {
    let mut client = connect_with(McpOptions { toolsets: vec![Toolset::SessionContext], ..options() });
    client.initialize("2025-11-25").await;
    assert_eq!(
        names(&client.ask("tools/list", json!({})).await),
        ["list_sessions", "read_session", "search_sessions", "read_compacted"]
    );
    let answer = client.call("read_session_plan", json!({})).await;
    assert_eq!(answer["error"]["message"], "unknown tool \"read_session_plan\"");

    let tools = Some(vec!["read_session_plan".to_owned()]);
    let mut client = connect_with(McpOptions { tools, ..options() });
    client.initialize("2025-11-25").await;
    assert_eq!(names(&client.ask("tools/list", json!({})).await), ["read_session_plan"]);
}

#[tokio::test]
async fn a_filter_that_names_no_tool_is_an_error_at_once() {
    let client = connect_with(McpOptions { tools: Some(vec!["read_plan".to_owned()]), ..options() });
    let error = client.server.await.expect("no panic").expect_err("refused").to_string();
    assert!(error.starts_with("no tool is called \"read_plan\"; the tools are write_"), "{error}");
}

/// Asks who is calling with `_meta`, and returns the whole answer.
async fn whoami(client: &mut crate::client::Client, meta: Value) -> Value {
    let params = json!({"uri": "session://current", "_meta": meta});
    let answer = client.ask_stateless("resources/read", params).await;
    let text = answer["result"]["contents"][0]["text"].as_str().expect("text");
    serde_json::from_str(text).expect("JSON")
}

#[tokio::test]
async fn each_request_says_itself_who_is_calling() {
    let mut client = connect_with(McpOptions { explicit_session: None, ..options() });
    let codex = whoami(&mut client, json!({"threadId": "t-1"})).await;
    assert_eq!(codex["session_id"], "t-1", "{codex}");
    let codex = whoami(&mut client, json!({"threadId": "t-2"})).await;
    assert_eq!(codex["session_id"], "t-2", "{codex}");
    let goose = whoami(&mut client, json!({"agent-session-id": "g-1"})).await;
    assert_eq!(goose["session_id"], "g-1", "{goose}");
}

#[tokio::test]
async fn the_environment_and_the_starter_say_who_is_calling() {
    let env = vec![("CLAUDE_CODE_SESSION_ID".to_owned(), "c-1".to_owned())];
    let mut client = connect_with(McpOptions { explicit_session: None, env, ..options() });
    assert_eq!(whoami(&mut client, json!({})).await["session_id"], "c-1");
    assert_eq!(whoami(&mut connect(), json!({"threadId": "t-1"})).await["session_id"], "s-1");
}

#[tokio::test]
async fn a_missing_argument_object_counts_as_an_empty_one() {
    let mut client = connect_old().await;
    let answer = client.ask("tools/call", json!({"name": "list_sessions"})).await;
    assert_eq!(answer["result"]["content"][0]["text"], "[]", "{answer}");
    let answer = client.ask("tools/call", json!({"name": "write_session_plan"})).await;
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    assert_eq!(answer["result"]["content"][0]["text"], "content must not be empty");
    assert!(answer["result"].get("structuredContent").is_none(), "{answer}");
}

#[tokio::test]
async fn a_call_that_names_itself_acts_once() {
    let mut client = connect();
    let call = |content: &str| {
        let meta = json!({"intersession/idempotencyKey": "k1"});
        json!({"name": "write_session_plan", "arguments": {"content": content}, "_meta": meta})
    };
    let first = client.ask_stateless("tools/call", call("one")).await;
    assert_eq!(first["result"]["structuredContent"]["revision"], 1, "{first}");
    let again = client.ask_stateless("tools/call", call("one")).await;
    assert_eq!(again, first);
    let other = client.ask_stateless("tools/call", call("two")).await;
    assert_eq!(other["result"]["isError"], true, "{other}");
    assert_eq!(
        other["result"]["content"][0]["text"],
        "idempotency key \"k1\" was used before for another request"
    );
}

#[tokio::test]
async fn the_largest_plan_fits_however_it_is_written() {
    let mut client = connect_old().await;
    // Every character as an escape of six bytes.
    let content = "\\u0041".repeat(10 * 1024 * 1024);
    let head = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write_session_plan","arguments":{"content":""#;
    client.send(format!("{head}{content}\"}}}}}}")).await;
    let answer = client.receive().await;
    assert_eq!(answer["result"]["structuredContent"]["bytes"], 10_485_760, "{answer}");
}

#[tokio::test]
async fn sessions_see_each_others_history_and_not_their_own() {
    let mut client = connect_with(McpOptions { explicit_session: None, ..options() });
    let ask = |tool: &str, arguments: Value, thread: &str| json!({"name": tool, "arguments": arguments, "_meta": {"threadId": thread}});
    for thread in ["thread-1", "thread-2"] {
        client
            .ask_stateless("tools/call", ask("write_session_plan", json!({"content": thread}), thread))
            .await;
    }
    let listed = client.ask_stateless("tools/call", ask("list_sessions", json!({}), "thread-1")).await;
    let sessions = listed["result"]["structuredContent"]["sessions"].as_array().expect("a list");
    assert_eq!(sessions.len(), 1, "{listed}");
    assert_eq!((&sessions[0]["id"], &sessions[0]["source"]), (&json!("thread-2"), &json!("codex")));
    let own = ask("read_session", json!({"session_id": "codex:thread-1"}), "thread-1");
    let own = client.ask_stateless("tools/call", own).await;
    assert_eq!(
        own["result"]["content"][0]["text"],
        "cannot read the current session; reference a different one"
    );
    let other = ask("read_session", json!({"session_id": "-1"}), "thread-1");
    let other = client.ask_stateless("tools/call", other).await;
    let text = other["result"]["content"][0]["text"].as_str().expect("text");
    assert!(text.starts_with("# Session thread-2 — (untitled)\n"), "{text}");
}
