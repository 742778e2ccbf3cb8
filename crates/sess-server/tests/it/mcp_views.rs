//! Resources and prompts over MCP.

use serde_json::json;
use sess_app::tools::Toolset;
use sess_server::mcp::McpOptions;

use crate::client::{connect_old, connect_with, options};

#[tokio::test]
async fn the_plan_is_a_resource_once_it_is_written() {
    let mut client = connect_old().await;
    let answer = client.ask("resources/read", json!({"uri": "plan://current"})).await;
    assert_eq!(answer["error"]["code"], -32002);
    assert!(answer["error"]["message"].as_str().expect("text").starts_with("no plan written yet"));

    client.call("write_session_plan", json!({"content": "1. measure\n"})).await;
    let answer = client.ask("resources/read", json!({"uri": "plan://current"})).await;
    assert_eq!(
        answer["result"]["contents"],
        json!([{"uri": "plan://current", "mimeType": "text/markdown", "text": "1. measure\n"}])
    );
}

#[tokio::test]
async fn the_calling_session_is_a_resource() {
    let mut client = connect_old().await;
    let answer = client.ask("resources/read", json!({"uri": "session://current"})).await;
    let contents = &answer["result"]["contents"][0];
    assert_eq!(contents["mimeType"], "application/json");
    assert!(contents["text"].as_str().expect("text").contains("s-1"), "{contents}");
}

#[tokio::test]
async fn what_is_not_there_is_not_found_in_the_words_of_each_revision() {
    let mut client = connect_old().await;
    for uri in ["nope://x", "plan://other", "session://no-such-session", "session://%ff", ""] {
        let old = client.ask("resources/read", json!({"uri": uri})).await;
        assert_eq!(old["error"]["code"], -32002, "{uri}: {old}");
        assert_eq!(old["error"]["data"]["uri"], uri);
        let new = client.ask_stateless("resources/read", json!({"uri": uri})).await;
        assert_eq!(new["error"]["code"], -32602, "{uri}: {new}");
    }
    let answer = client.ask("resources/read", json!({"uri": "session://a%3Ab"})).await;
    assert_eq!(answer["error"]["message"], "session \"a:b\" not found");
}

#[tokio::test]
async fn resources_and_prompts_come_and_go_with_their_tools() {
    let mut client = connect_old().await;
    let listed = client.ask("resources/list", json!({})).await;
    assert_eq!(listed["result"]["resources"][0]["uri"], "session://current");
    assert_eq!(listed["result"]["resources"][1]["uri"], "plan://current");
    let listed = client.ask("resources/templates/list", json!({})).await;
    assert_eq!(listed["result"]["resourceTemplates"][0]["uriTemplate"], "session://{id}");
    let listed = client.ask("prompts/list", json!({})).await;
    assert_eq!(listed["result"]["prompts"][0]["name"], "review-plan");

    let tools = Some(vec!["list_sessions".to_owned()]);
    let toolsets = vec![Toolset::SessionContext];
    let mut client = connect_with(McpOptions { toolsets, tools, ..options() });
    let agreed = client.initialize("2025-11-25").await;
    assert_eq!(agreed["capabilities"], json!({"tools": {}, "resources": {}}));
    let listed = client.ask("resources/list", json!({})).await;
    assert_eq!(listed["result"]["resources"].as_array().expect("a list").len(), 1);
    let listed = client.ask("resources/templates/list", json!({})).await;
    assert_eq!(listed["result"]["resourceTemplates"], json!([]));
    let answer = client.ask("resources/read", json!({"uri": "plan://current"})).await;
    assert_eq!(answer["error"]["message"], "unknown resource \"plan://current\"");
    let answer = client.ask("prompts/get", json!({"name": "review-plan"})).await;
    assert_eq!(answer["error"]["message"], "unknown prompt \"review-plan\"");
}

#[tokio::test]
async fn the_prompt_holds_the_plan_or_says_that_there_is_none() {
    let mut client = connect_old().await;
    let text = |answer: serde_json::Value| {
        let message = &answer["result"]["messages"][0];
        assert_eq!(message["role"], "user", "{answer}");
        message["content"]["text"].as_str().expect("text").to_owned()
    };
    let none = text(client.ask("prompts/get", json!({"name": "review-plan"})).await);
    assert!(none.starts_with("There is no plan to review: no plan written yet"), "{none}");
    client.call("write_session_plan", json!({"content": "1. measure"})).await;
    let some = text(client.ask("prompts/get", json!({"name": "review-plan"})).await);
    assert!(some.contains("<plan>\n1. measure\n</plan>"), "{some}");

    let answer = client.ask("prompts/get", json!({"name": "other"})).await;
    assert_eq!(answer["error"], json!({"code": -32602, "message": "unknown prompt \"other\""}));
}
