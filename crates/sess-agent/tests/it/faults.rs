//! Answers that are no replies: what is tried again, what is given up, and what is said then.

use std::time::Duration;

use serde_json::json;
use sess_agent::model::{ModelError, Piece, REPLY_BYTES_MAX, STREAM_BYTES_MAX};
use sess_core::agent::Provider;
use sess_core::message::{Block, Role};
use tokio_util::sync::CancellationToken;

use crate::support::{
    APIS, ask, assistant, body, endpoint, heard, model, model_with, outcome, quick, request, result, retries,
    shown, spec, stub, told, user,
};

/// Checks for every API what comes of a reply with this fault. `HOST` is the stub.
async fn check(reply: &str, expected: &str) {
    for api in APIS {
        let stub = stub(&format!("[{reply}]")).await;
        let host = stub.url.trim_start_matches("http://").to_owned();
        assert_eq!(told(&stub, api).await.replace(&host, "HOST"), expected, "{api:?}");
    }
}

#[tokio::test]
async fn a_refused_key_says_what_to_check_and_is_not_shown() {
    for api in APIS {
        let stub = stub("[{fault: {status: 401, message: bad key sk-very-secret}}]").await;
        let told = told(&stub, api).await;
        let key = if api == Provider::Anthropic { "ANTHROPIC_API_KEY" } else { "OPENAI_API_KEY" };
        assert!(told.ends_with(&format!("(HTTP 401): check that {key} holds a valid one")), "{told}");
        assert!(!told.contains("very-secret"), "{told}");
        assert_eq!(stub.requests().len(), 1);

        let stub = crate::support::stub("[{fault: {status: 403, message: not for sk-very-secret}}]").await;
        let told = crate::support::told(&stub, api).await;
        assert!(told.ends_with("may use: not for ***"), "{told}");
    }
}

#[tokio::test]
async fn what_cannot_get_better_is_asked_once() {
    check("{fault: {status: 400, message: no}}", "refused: HOST refused the request (HTTP 400): no").await;
    check(
        "{fault: {status: 404, message: no}}",
        "refused: HOST knows no such model or address (HTTP 404): check `model` and `base_url`: no",
    )
    .await;
    check(
        "{fault: {status: 302, message: no}}",
        "refused: HOST redirects elsewhere (HTTP 302): check the base_url of the model",
    )
    .await;
}

#[tokio::test]
async fn a_conversation_that_is_too_long_is_told_as_such() {
    for api in APIS {
        let stub = stub("[{fault: {kind: too_long}}]").await;
        let told = told(&stub, api).await;
        assert!(told.starts_with("too long: the conversation is too long for the model: "), "{told}");
    }
}

#[tokio::test]
async fn what_may_get_better_is_tried_again() {
    for status in [408, 409, 429, 500, 502, 503, 529] {
        check(&format!("{{text: hi, fault: {{status: {status}, times: 3}}}}"), "“hi” [end]").await;
    }
    for kind in ["malformed_chunk", "error_event", "empty"] {
        check(&format!("{{text: hi, fault: {{kind: {kind}, times: 1}}}}"), "“hi” [end]").await;
    }
    check("{text: hi, fault: {kind: cut, bytes: 150, times: 3}}", "“hi” [end]").await;
}

#[tokio::test]
async fn trying_again_ends() {
    check(
        "{fault: {status: 529, message: Overloaded}}",
        "unavailable: HOST answered HTTP 529: Overloaded, 4 times ()",
    )
    .await;
    check("{fault: {kind: empty}}", "unavailable: the model answered nothing, 2 times ()").await;
}

#[tokio::test]
async fn nothing_is_an_answer_to_what_tools_have_done() {
    for api in APIS {
        let stub = stub("[{text: first}, {fault: {kind: empty}}]").await;
        let call = json!([{"type": "toolCall", "id": "c1", "name": "list", "arguments": {}}]);
        let called = body(Role::Assistant, &call);
        let (reply, pieces) = ask(&model(&stub, api), vec![user("go"), called, result("c1", "seen")]).await;
        assert_eq!(retries(&pieces), 0);
        assert_eq!(assistant(&reply.expect("a reply")).plain_text().trim(), "");
    }
}

#[tokio::test]
async fn what_came_before_the_end_is_kept() {
    let text = "one two three four five six seven eight nine ten eleven twelve";
    for api in APIS {
        for (kind, reason) in [
            ("malformed_chunk", "the provider sent an event that is not JSON, 4 times"),
            ("error_event", "the provider broke off: Overloaded (overloaded_error), 4 times"),
        ] {
            let stub = stub(&format!("[{{text: {text}, fault: {{kind: {kind}}}}}]")).await;
            let (reply, pieces) = ask(&model(&stub, api), vec![user("go")]).await;
            assert_eq!(retries(&pieces), 3);
            let Err(ModelError::Unavailable { reason: told, partial }) = reply else {
                panic!("{}", outcome(&reply));
            };
            assert_eq!(told, reason);
            let [Block::Text { text: came }] = &partial.content[..] else { panic!("{}", shown(&partial)) };
            assert!(text.starts_with(came.as_str()) && came.len() < text.len(), "{came}");
            assert_eq!(heard(&pieces), *came, "the pieces since the last retry");
        }
    }
}

#[tokio::test]
async fn the_time_that_the_provider_asks_for_is_waited() {
    let date = "Wed, 21 Oct 2015 07:28:40 GMT";
    for (after, seconds) in [("7", 7), (date, 40)] {
        let stub =
            stub(&format!("[{{text: hi, fault: {{status: 429, retry_after: '{after}', times: 1}}}}]")).await;
        let model = model(&stub, Provider::Anthropic);
        let begun = tokio::time::Instant::now();
        let mut waits = Vec::new();
        // The clock is stopped only while nothing but the waiting goes on: it then jumps to its end.
        let mut told = |piece| {
            if let Piece::Retry { after_ms, .. } = piece {
                waits.push(after_ms);
                tokio::time::pause();
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(after_ms)).await;
                    tokio::time::resume();
                });
            }
        };
        let reply = model.reply(&request(vec![user("go")]), &mut told, &CancellationToken::new()).await;
        assert_eq!(outcome(&reply), "“hi” [end]");
        assert_eq!(waits, [seconds * 1000]);
        assert!(begun.elapsed() >= Duration::from_secs(seconds));
    }
}

#[tokio::test]
async fn nobody_waits_for_an_hour() {
    check(
        "{fault: {status: 429, message: slow down, retry_after: '3600'}}",
        "unavailable: HOST answered HTTP 429: slow down; trying again would mean waiting for 3600 s ()",
    )
    .await;
}

#[tokio::test]
async fn a_provider_that_is_not_there_is_named() {
    for api in APIS {
        let stub = stub("[]").await;
        let model = model(&stub, api);
        let host = stub.url.trim_start_matches("http://").to_owned();
        let gone = endpoint(&stub, api);
        drop(stub);
        assert!(gone.token.is_some());
        let (reply, pieces) = ask(&model, vec![user("go")]).await;
        // The port is closed a moment after the stub is dropped, so a first try may meet its end.
        let told = outcome(&reply);
        assert!(told.starts_with(&format!("unavailable: {host} cannot be reached: ")), "{told}");
        assert_eq!(retries(&pieces), 3);
    }
}

#[tokio::test]
async fn silence_is_not_waited_for_without_end() {
    let patience = sess_agent::model::Patience {
        first_byte: Duration::from_millis(300),
        idle: Duration::from_millis(200),
        ..quick()
    };
    for api in APIS {
        for bytes in [0, 20, 200, 500] {
            let stub =
                stub(&format!("[{{text: some words and some more, fault: {{kind: hang, bytes: {bytes}}}}}]"))
                    .await;
            let reply = ask(&model_with(&stub, &spec(api), patience), vec![user("go")]).await.0;
            let told = outcome(&reply);
            let silent = told.contains("went silent for 0 s, 2 times");
            assert!(silent || told.contains("did not answer within 0 s, 2 times"), "{told}");
        }
    }
}

#[tokio::test]
async fn malformed_arguments_are_told_apart_and_the_transcript_stays_valid() {
    for api in APIS {
        let stub =
            stub("[{tool_calls: [{name: list}], fault: {kind: malformed_arguments}}, {text: y}]").await;
        let model = model(&stub, api);
        let reply = ask(&model, vec![user("go")]).await.0.expect("a reply");
        assert_eq!(shown(&reply), "list{}");
        let [malformed] = &reply.malformed[..] else { panic!("{:?}", reply.malformed) };
        assert_eq!(malformed.arguments, r#"{"path": "src/ma"#);
        assert!(malformed.reason.starts_with("the arguments are not valid JSON: "), "{}", malformed.reason);
        let messages = vec![user("go"), assistant(&reply), result(&malformed.id, "not JSON")];
        assert_eq!(outcome(&ask(&model, messages).await.0), "“y” [end]");
    }
}

#[tokio::test]
async fn any_number_of_calls_get_ids_of_their_own() {
    for api in APIS {
        for (kind, count) in [("many_calls", 50), ("no_ids", 3), ("same_ids", 3)] {
            let call = "{name: list, arguments: {path: x}}";
            let reply = format!("{{tool_calls: [{call}, {call}, {call}], fault: {{kind: {kind}}}}}");
            let stub = stub(&format!("[{reply}, {reply}, {{text: y}}]")).await;
            let model = model(&stub, api);
            let mut messages = vec![user("go")];
            for _ in 0..2 {
                let reply = ask(&model, messages.clone()).await.0.expect("a reply");
                let ids: Vec<String> = reply
                    .content
                    .iter()
                    .filter_map(|block| match block {
                        Block::ToolCall { id, .. } => Some(id.clone()),
                        _ => None,
                    })
                    .collect();
                assert_eq!(ids.len(), count, "{api:?} {kind}");
                messages.push(assistant(&reply));
                messages.extend(ids.iter().map(|id| result(id, "ok")));
            }
            let mut ids: Vec<&String> =
                messages.iter().filter_map(|body| body.tool_call_id.as_ref()).collect();
            ids.sort();
            ids.dedup();
            assert_eq!(ids.len(), 2 * count, "{api:?} {kind}");
            assert_eq!(outcome(&ask(&model, messages).await.0), "“y” [end]", "{api:?} {kind}");
        }
    }
}

#[tokio::test]
async fn an_unknown_tool_is_the_hosts_business() {
    check("{tool_calls: [{name: list}], fault: {kind: unknown_tool}}", "no_such_tool{} [tool_calls]").await;
}

#[tokio::test]
async fn a_reply_of_ten_megabytes_ends_in_a_part_that_can_be_kept() {
    for api in APIS {
        let stub = stub("[{fault: {kind: huge}}]").await;
        let reply = ask(&model(&stub, api), vec![user("go")]).await.0;
        let Err(ModelError::Unavailable { reason, partial }) = reply else { panic!("{api:?}") };
        assert_eq!(reason, format!("the reply is over {} MiB", REPLY_BYTES_MAX >> 20));
        assert!(shown(&partial).len() < 100_000);
        assert_eq!(stub.requests().len(), 1, "asking again would bring the same");
    }
}

#[tokio::test]
async fn streams_without_end_are_left_and_take_no_memory() {
    let before = peak_kib();
    for api in APIS {
        let stub = stub("[{fault: {kind: endless}}]").await;
        let told = told(&stub, api).await;
        assert!(told.starts_with("unavailable: the reply is over 4 MiB"), "{}", &told[..100]);

        let stub = crate::support::stub("[{fault: {kind: endless_pings}}]").await;
        let told = crate::support::told(&stub, api).await;
        let mib = STREAM_BYTES_MAX >> 20;
        assert!(told.ends_with(&format!("is over {mib} MiB ()")), "{told}");
    }
    let grown = peak_kib() - before;
    assert!(grown < 40 << 10, "{grown} KiB more than before");
}

#[tokio::test]
async fn more_calls_than_anyone_could_mean_are_not_made() {
    check(
        "{tool_calls: [{name: list}], fault: {kind: many_calls, count: 257}}",
        "unavailable: the reply has more than 256 tool calls ()",
    )
    .await;
}

/// Returns the most memory that this process ever had.
fn peak_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0)
}
