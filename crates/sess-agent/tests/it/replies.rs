//! Whole replies: what is asked, and what is made of the answer.

use serde_json::json;
use sess_agent::model::Piece;
use sess_core::agent::{Effort, OpenAiApi, Price, Provider, Thinking};
use sess_core::message::{Block, Role};

use crate::support::{
    APIS, ask, assistant, body, heard, model, model_with, outcome, quick, result, shown, spec, stub, user,
};

const RICH: &str = r#"
- thinking: Two at once.
  text: I look into both, für dich 😀.
  tool_calls:
    - {name: list, arguments: {path: "src/a long name, so that it comes in pieces"}}
    - {name: list, arguments: {path: "täst \"quoted\""}}
  usage: {input: 100, output: 20, cache_read: 1000, cache_write: 7}
- text: Done.
"#;

#[tokio::test]
async fn text_thinking_and_parallel_calls_come_in_order_and_as_pieces() {
    for api in APIS {
        let stub = stub(RICH).await;
        let (reply, pieces) = ask(&model(&stub, api), vec![user("go")]).await;
        let reply = reply.expect("a reply");
        let thinking = match api {
            Provider::Anthropic => "(Two at once., signed)",
            Provider::OpenAi(OpenAiApi::Chat) => "(Two at once.)",
            Provider::OpenAi(OpenAiApi::Responses) | Provider::Scripted => "(Two at once.) <reasoning>",
        };
        let said = format!(
            "{thinking} “I look into both, für dich 😀.” \
             list{{\"path\":\"src/a long name, so that it comes in pieces\"}} \
             list{{\"path\":\"täst \\\"quoted\\\"\"}} [tool_calls]"
        );
        assert_eq!(outcome(&Ok(reply.clone())), said, "{api:?}");
        assert_eq!(heard(&pieces), "I look into both, für dich 😀.");
        let calls = pieces.iter().filter(|piece| matches!(piece, Piece::ToolCall { name } if name == "list"));
        assert_eq!(calls.count(), 2);
        assert!(pieces.contains(&Piece::Thinking("Two at once.".to_owned())));
        assert_eq!(reply.model, "stub-1");
        let cache_write = if api == Provider::Anthropic { 7 } else { 0 };
        let usage = (reply.usage.input, reply.usage.output, reply.usage.cache_read, reply.usage.cache_write);
        assert_eq!(usage, (100, 20, 1000, cache_write), "{api:?}");
        assert_eq!(reply.usage.cost, None);
    }
}

#[tokio::test]
async fn a_conversation_with_tools_stays_valid_and_uses_one_connection() {
    for api in APIS {
        let stub = stub(RICH).await;
        let model = model(&stub, api);
        let mut messages = vec![user("go")];
        let reply = ask(&model, messages.clone()).await.0.expect("a reply");
        messages.push(assistant(&reply));
        for block in &reply.content {
            if let Block::ToolCall { id, .. } = block {
                messages.push(result(id, "a.rs"));
            }
        }
        let last = ask(&model, messages).await.0;
        assert_eq!(outcome(&last), "“Done.” [end]", "{api:?}");
        assert_eq!(stub.connections(), 1, "{api:?}");
    }
}

#[tokio::test]
async fn the_price_of_a_reply_is_worked_out() {
    let stub = stub(RICH).await;
    let price = Price { input: 3.0, output: 15.0, cache_read: 0.3, cache_write: 3.75 };
    let spec = sess_core::agent::ModelSpec { price: Some(price), ..spec(Provider::Anthropic) };
    let reply = ask(&model_with(&stub, &spec, quick()), vec![user("go")]).await.0.expect("a reply");
    let cost = reply.usage.cost.expect("a price was given");
    assert!((cost - 0.000_926_25).abs() < 1e-12, "{cost}");
}

#[tokio::test]
async fn reasons_to_stop_are_told_in_one_language() {
    let check = async |api: usize, word: &str, told: &str| {
        let stub = stub(&format!("[{{text: x, stop: {word}}}]")).await;
        let reply = ask(&model(&stub, APIS[api]), vec![user("go")]).await.0;
        assert_eq!(outcome(&reply), format!("“x” [{told}]"), "{word}");
    };
    check(0, "end_turn", "end").await;
    check(0, "stop_sequence", "end").await;
    check(0, "max_tokens", "length").await;
    check(0, "refusal", "refused").await;
    check(0, "pause_turn", "pause_turn").await;
    // It says that there are calls, and there are none.
    check(0, "tool_use", "end").await;
    check(1, "stop", "end").await;
    check(1, "length", "length").await;
    check(1, "content_filter", "refused").await;
    check(2, "max_output_tokens", "length").await;
    check(2, "content_filter", "refused").await;
}

#[tokio::test]
async fn a_refusal_without_a_word_is_a_reply() {
    let stub = stub("[{stop: refusal}]").await;
    let reply = ask(&model(&stub, Provider::Anthropic), vec![user("go")]).await.0;
    assert_eq!(outcome(&reply), " [refused]");
}

#[tokio::test]
async fn anthropic_is_asked_with_marks_for_its_cache_and_a_limit() {
    let stub = stub("[{text: x}]").await;
    let model = model(&stub, Provider::Anthropic);
    let picture =
        json!([{"type": "text", "text": "see"}, {"type": "image", "mimeType": "image/png", "data": "aGk="}]);
    ask(&model, vec![body(Role::User, &picture)]).await.0.expect("a reply");
    let recorded = &stub.requests()[0];
    assert_eq!(recorded.path, "/v1/messages");
    assert!(recorded.headers.contains(&("x-api-key".to_owned(), "sk-very-secret".to_owned())));
    assert!(recorded.headers.contains(&("anthropic-version".to_owned(), "2023-06-01".to_owned())));
    let mark = json!({"type": "ephemeral"});
    assert_eq!(
        recorded.body,
        json!({
            "model": "stub-1", "max_tokens": 8192, "stream": true,
            "system": [{"type": "text", "text": "Be brief.", "cache_control": mark}],
            "tools": [{
                "name": "list", "description": "Lists a directory.",
                "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
            }],
            "messages": [{"role": "user", "content": [
                {"type": "text", "text": "see"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="},
                 "cache_control": mark},
            ]}],
        })
    );
}

#[tokio::test]
async fn openai_is_asked_in_either_of_its_ways() {
    let picture =
        json!([{"type": "text", "text": "see"}, {"type": "image", "mimeType": "image/png", "data": "aGk="}]);
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    let stub = stub("[{text: x}]").await;
    for api in &APIS[1..] {
        ask(&model(&stub, *api), vec![body(Role::User, &picture)]).await.0.expect("a reply");
    }
    let requests = stub.requests();
    assert!(requests[0].headers.contains(&("authorization".to_owned(), "Bearer sk-very-secret".to_owned())));
    let paths: Vec<&str> = requests.iter().map(|request| request.path.as_str()).collect();
    assert_eq!(paths, ["/v1/chat/completions", "/v1/responses"]);
    assert_eq!(
        requests[0].body,
        json!({
            "model": "stub-1", "stream": true, "stream_options": {"include_usage": true},
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": [
                    {"type": "text", "text": "see"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
                ]},
            ],
            "tools": [{"type": "function", "function":
                {"name": "list", "description": "Lists a directory.", "parameters": schema}}],
        })
    );
    assert_eq!(
        requests[1].body,
        json!({
            "model": "stub-1", "stream": true, "store": false, "instructions": "Be brief.",
            "input": [{"type": "message", "role": "user", "content": [
                {"type": "input_text", "text": "see"},
                {"type": "input_image", "image_url": "data:image/png;base64,aGk="},
            ]}],
            "tools": [{"type": "function", "name": "list", "description": "Lists a directory.",
                "parameters": schema, "strict": false}],
        })
    );
}

#[tokio::test]
async fn limits_temperature_and_thinking_are_asked_for_in_each_ones_words() {
    let check = async |api: usize, max: Option<u32>, thinking: Thinking, asked: serde_json::Value| {
        let stub = stub("[{text: x}]").await;
        let mut spec = spec(APIS[api]);
        (spec.max_tokens, spec.thinking, spec.temperature) = (max, thinking, Some(0.5));
        ask(&model_with(&stub, &spec, quick()), vec![user("go")]).await.0.expect("a reply");
        let body = &stub.requests()[0].body;
        for (key, value) in asked.as_object().expect("an object") {
            assert_eq!(&body[key], value, "{key} for {thinking:?}");
        }
    };
    let budget = |tokens: u32| json!({"type": "enabled", "budget_tokens": tokens});
    check(0, None, Thinking::Unset, json!({"max_tokens": 8192, "thinking": null, "temperature": 0.5})).await;
    check(0, None, Thinking::Off, json!({"max_tokens": 8192, "thinking": null})).await;
    check(
        0,
        None,
        Thinking::Tokens(2000),
        json!({"max_tokens": 10192, "thinking": budget(2000), "temperature": null}),
    )
    .await;
    check(0, None, Thinking::Tokens(5), json!({"thinking": budget(1024)})).await;
    check(
        0,
        Some(4000),
        Thinking::Effort(Effort::High),
        json!({"max_tokens": 4000, "thinking": budget(2976)}),
    )
    .await;
    check(0, Some(2000), Thinking::Effort(Effort::Low), json!({"max_tokens": 2000, "thinking": null})).await;
    check(
        1,
        Some(9),
        Thinking::Effort(Effort::Low),
        json!({"max_tokens": 9, "reasoning_effort": "low", "temperature": 0.5}),
    )
    .await;
    check(1, None, Thinking::Off, json!({"max_tokens": null, "reasoning_effort": "none"})).await;
    check(1, None, Thinking::Tokens(20_000), json!({"reasoning_effort": "high"})).await;
    check(
        2,
        Some(9),
        Thinking::Effort(Effort::Medium),
        json!({
            "max_output_tokens": 9, "reasoning": {"effort": "medium", "summary": "auto"},
            "include": ["reasoning.encrypted_content"],
        }),
    )
    .await;
    check(2, None, Thinking::Off, json!({"reasoning": {"effort": "none"}, "include": null})).await;
}

#[tokio::test]
async fn thinking_goes_back_only_to_the_model_that_signed_it() {
    for thinking in ["hm", "redacted"] {
        let stub = stub(&format!("[{{thinking: {thinking}, text: x}}, {{text: y}}]")).await;
        let spec =
            sess_core::agent::ModelSpec { thinking: Thinking::Tokens(1024), ..spec(Provider::Anthropic) };
        let model = model_with(&stub, &spec, quick());
        let first = ask(&model, vec![user("a")]).await.0.expect("a reply");
        let messages = vec![user("a"), assistant(&first), user("b")];
        ask(&model, messages.clone()).await.0.expect("a reply");
        let sent = stub.requests()[1].body["messages"][1]["content"][0].clone();
        let block = match thinking {
            "hm" => json!({"type": "thinking", "thinking": "hm", "signature": "c2lnbmVk"}),
            _ => json!({"type": "redacted_thinking", "data": "c2VjcmV0"}),
        };
        assert_eq!(sent, block);
        for api in &APIS[1..] {
            let other = crate::support::model(&stub, *api);
            ask(&other, messages.clone()).await.0.expect("a reply");
            let sent = stub.requests().last().expect("a request").body.to_string();
            assert!(!sent.contains("c2lnbmVk") && !sent.contains("c2VjcmV0"), "{sent}");
        }
    }
}

#[tokio::test]
async fn the_responses_api_gets_its_own_reasoning_back_and_no_other_model_does() {
    let stub = stub("[{thinking: hm, text: x}, {text: y}]").await;
    let spec = sess_core::agent::ModelSpec { thinking: Thinking::Tokens(1024), ..spec(APIS[2]) };
    let model = model_with(&stub, &spec, quick());
    let first = ask(&model, vec![user("a")]).await.0.expect("a reply");
    assert_eq!(shown(&first), "(hm) <reasoning> “x”");
    let mut messages = vec![user("a"), assistant(&first), user("b")];
    ask(&model, messages.clone()).await.0.expect("a reply");
    assert_eq!(stub.requests()[1].body["input"][1]["encrypted_content"], "c2VjcmV0");
    messages[1].model = Some("another".to_owned());
    ask(&model, messages).await.0.expect("a reply");
    assert_eq!(stub.requests()[2].body["input"][1]["type"], "message");
}

#[tokio::test]
async fn calls_that_another_model_made_are_gone_on_with_without_thinking() {
    let stub = stub("[{text: x}, {text: y}]").await;
    let spec = sess_core::agent::ModelSpec { thinking: Thinking::Tokens(1024), ..spec(Provider::Anthropic) };
    let call = json!([{"type": "toolCall", "id": "c.1", "name": "list", "arguments": {}}]);
    let messages = vec![user("a"), body(Role::Assistant, &call), result("c.1", "x")];
    let reply = ask(&model_with(&stub, &spec, quick()), messages).await.0;
    assert_eq!(outcome(&reply), "“y” [end]");
    assert!(stub.requests()[0].body["thinking"].is_null());
}
