//! Transcripts: whatever they hold, what is sent is valid for every provider.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use sess_core::message::{Body, Role};

use crate::support::{APIS, ask, body, model, outcome, result, stub, user};

#[tokio::test]
async fn what_providers_would_refuse_is_said_in_words() {
    let call =
        |id: &str| json!({"type": "toolCall", "id": id, "name": "no such näme", "arguments": {"a": 1}});
    let mut failed = result("c:1", "it broke");
    failed.is_error = Some(true);
    let messages = vec![
        body(Role::System, &json!([{"type": "compaction", "summary": "They talked."}])),
        user("go"),
        body(Role::Assistant, &json!([{"type": "thinking", "text": "hm"}])),
        body(Role::Assistant, &json!([{"type": "text", "text": " "}, call("c:1"), call("lost")])),
        body(Role::System, &json!([{"type": "text", "text": "the agent was changed"}])),
        failed,
        body(Role::Assistant, &json!([call("c:1"), {"type": "video", "x": 1}])),
        result("c:1", ""),
        result("never called", "orphan"),
        body(Role::System, &json!([{"type": "subSession", "sessionId": "01hzy0000000000000000000"}])),
        body(Role::Assistant, &json!([{"type": "text", "text": "cut o"}])),
    ];
    let stub = stub("[]").await;
    for api in APIS {
        let reply = ask(&model(&stub, api), messages.clone()).await.0;
        assert_eq!(outcome(&reply), "“The script has no reply left for this.” [end]", "{api:?}");
    }
    let sent = &stub.requests()[1].body["messages"];
    let words: Vec<String> = sent.as_array().expect("messages").iter().map(shown).collect();
    assert_eq!(
        words,
        [
            "system: Be brief.",
            "user: [note from the system] Summary of the conversation before this point:\n\nThey talked.\n\ngo",
            "assistant: no_such_n_me#c_1 no_such_n_me#lost",
            "tool c_1: error: it broke",
            "tool lost: error: (the call was interrupted: there is no result)",
            "user: [note from the system] the agent was changed",
            "assistant: no_such_n_me#c_1_2",
            "tool c_1_2: (no output)",
            "user: Result of list:\n\norphan\n\n[note from the system] (another session ran here: 01hzy0000000000000000000)",
            "assistant: cut o",
            "user: (continue)",
        ]
    );
}

fn shown(message: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut said = vec![text(&message["content"])];
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        said.push(format!("{}#{}", text(&call["function"]["name"]), text(&call["id"])));
    }
    said.retain(|part| !part.is_empty());
    let id = text(&message["tool_call_id"]);
    let id = if id.is_empty() { id } else { format!(" {id}") };
    format!("{}{id}: {}", text(&message["role"]), said.join(" "))
}

fn any_message() -> impl Strategy<Value = Body> {
    let id = prop_oneof![Just("a"), Just("b"), Just("c.d"), Just("")];
    let text = prop_oneof![Just(""), Just(" \n"), Just("words"), Just("mehr Wörter ")];
    let block = (0..8, id.clone(), text).prop_map(|(kind, id, text)| match kind {
        0 => json!({"type": "thinking", "text": text}),
        1 => json!({"type": "thinking", "text": text, "signature": "c2ln"}),
        2 | 3 => json!({"type": "toolCall", "id": id, "name": "list", "arguments": {}}),
        4 => json!({"type": "image", "mimeType": "image/png", "data": "aGk="}),
        5 => json!({"type": "compaction", "summary": text}),
        6 => json!({"type": "redacted_thinking", "data": "x"}),
        _ => json!({"type": "text", "text": text}),
    });
    let role = prop_oneof![
        Just(Role::User),
        Just(Role::Assistant),
        Just(Role::Assistant),
        Just(Role::ToolResult),
        Just(Role::ToolResult),
        Just(Role::System),
    ];
    (role, prop::collection::vec(block, 0..4), id).prop_map(|(role, blocks, id)| {
        let mut body = body(role, &json!(blocks));
        body.model = Some("stub-1".to_owned());
        if role == Role::ToolResult {
            body.tool_call_id = Some(id.to_owned());
        }
        body
    })
}

#[test]
fn any_transcript_at_all_becomes_a_request_that_is_taken() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let stub = runtime.block_on(stub("[]"));
    let models = APIS.map(|api| model(&stub, api));
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(150) });
    let outcome = runner.run(&prop::collection::vec(any_message(), 0..12), |messages| {
        for model in &models {
            let reply = runtime.block_on(ask(model, messages.clone())).0;
            prop_assert!(reply.is_ok(), "{}", outcome(&reply));
        }
        Ok(())
    });
    outcome.expect("every transcript is taken");
}
