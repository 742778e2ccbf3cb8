//! The line protocol under bad input, bad clients and sudden ends.

use std::time::Duration;

use serde_json::{Value, json};
use sess_server::mcp::LINE_BYTES_MAX;
use tokio::io::AsyncWriteExt;

use crate::client::{Client, connect, connect_old};

/// Sends `line`, and checks the refusal and that the connection goes on.
async fn check(client: &mut Client, line: impl AsRef<[u8]>, id: Value, code: i32, sentence: &str) {
    client.send(line).await;
    let answer = client.receive().await;
    assert_eq!(answer["id"], id, "{answer}");
    assert_eq!(answer["error"]["code"], code, "{answer}");
    let message = answer["error"]["message"].as_str().expect("text");
    assert!(message.contains(sentence), "{message}");
    assert!(message.len() < 500, "{message}");
    let pong = client.ask("ping", json!({})).await;
    assert_eq!(pong["result"], json!({}));
}

#[tokio::test]
async fn a_bad_line_costs_only_itself() {
    let mut client = connect();
    let client = &mut client;
    check(client, "{", Value::Null, -32700, "the line is not JSON").await;
    check(client, "hello", Value::Null, -32700, "the line is not JSON").await;
    check(client, b"{\"id\":\"\xff\"}", Value::Null, -32700, "not UTF-8 at byte 7").await;
    check(client, "[]", Value::Null, -32600, "batches are not supported").await;
    let batch = r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#;
    check(client, batch, Value::Null, -32600, "batches are not supported").await;
    check(client, "42", Value::Null, -32600, "not a JSON-RPC 2.0 request").await;
    check(client, "{}", Value::Null, -32600, "not a JSON-RPC 2.0 request").await;
    check(client, r#"{"id":5,"method":"ping"}"#, json!(5), -32600, "\"jsonrpc\": \"2.0\"").await;
    let wrong_params = r#"{"jsonrpc":"2.0","id":"a","method":"ping","params":[1]}"#;
    check(client, wrong_params, json!("a"), -32600, "params that are an object").await;
    let wrong_id = r#"{"jsonrpc":"2.0","id":{"a":1},"method":"ping"}"#;
    check(client, wrong_id, Value::Null, -32600, "an id that is a string or an integer").await;
}

#[tokio::test]
async fn nesting_without_end_is_refused() {
    let mut client = connect();
    let client = &mut client;
    let deep = "[".repeat(1_000_000);
    check(client, &deep, Value::Null, -32700, "the line is not JSON").await;
    let nested = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let call = json!({"name": "list_sessions", "arguments": {"limit": "@"}});
    let request = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": call});
    let request = request.to_string().replace("\"@\"", &nested);
    check(client, request, json!(3), -32600, "recursion limit").await;
}

#[tokio::test]
async fn values_without_number_are_refused_before_they_are_built() {
    let mut client = connect();
    let zeros = format!("[0{}]", ",0".repeat(1_000_000));
    let request = format!(r#"{{"params":{{"a":{zeros}}},"jsonrpc":"2.0","id":9,"method":"ping"}}"#);
    check(&mut client, request, json!(9), -32600, "too many values: the most is 100000").await;
    // Commas and brackets inside a string are one value.
    let id = format!("\\\"{}", ",[{".repeat(100_000));
    let pong = json!({"jsonrpc": "2.0", "id": id, "result": {}});
    client.send(json!({"jsonrpc": "2.0", "id": id, "method": "ping"}).to_string()).await;
    assert_eq!(client.receive().await, pong);
}

#[tokio::test]
async fn a_line_beyond_the_limit_is_skipped_and_answered_once() {
    let mut client = connect();
    let megabyte = vec![b'x'; 1 << 20];
    for _ in 0..100 {
        client.input.write_all(&megabyte).await.expect("the server reads");
    }
    let sentence = format!("too long: the most is {LINE_BYTES_MAX} bytes");
    check(&mut client, "", Value::Null, -32600, &sentence).await;
}

#[tokio::test]
async fn a_line_at_the_limit_is_read() {
    let mut client = connect_old().await;
    let head = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"write_session_plan","arguments":{"content":""#;
    let tail = r#""}}}"#;
    let fill = LINE_BYTES_MAX - head.len() - tail.len() - 1;
    client.send(format!("{head}{}{tail}", "x".repeat(fill))).await;
    let answer = client.receive().await;
    let text = answer["result"]["content"][0]["text"].as_str().expect("text");
    assert!(text.starts_with("plan is too large"), "{text}");
    let line = format!("{head}{}{tail}", "x".repeat(fill + 1));
    check(&mut client, line, Value::Null, -32600, "too long").await;
}

#[tokio::test]
async fn what_wants_no_answer_gets_none() {
    let mut client = connect_old().await;
    for line in [
        "",
        "  \r",
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":[]}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/of/the/future","params":{"a":1}}"#,
        r#"{"jsonrpc":"2.0","id":4,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":4,"error":{"code":1,"message":"x"}}"#,
    ] {
        client.send(line).await;
    }
    let pong = client.ask("ping", json!({})).await;
    assert_eq!(pong["result"], json!({}));
    assert_eq!(client.hang_up().await, "");
}

fn write_request(content: &str) -> String {
    let call = json!({"name": "write_session_plan", "arguments": {"content": content}});
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}).to_string()
}

fn plan(client: &Client) -> std::path::PathBuf {
    client.home.path().join("session_plans/s-1.md")
}

#[tokio::test]
async fn a_call_is_finished_and_answered_when_input_ends() {
    let mut client = connect_old().await;
    client.send(write_request("1. measure")).await;
    let rest = client.hang_up().await;
    assert!(rest.contains("Plan saved to"), "{rest}");
}

#[tokio::test]
async fn a_last_line_without_a_newline_is_read_and_half_a_line_is_not_run() {
    let mut client = connect_old().await;
    client.input.write_all(write_request("1. measure").as_bytes()).await.expect("room");
    assert!(client.hang_up().await.contains("Plan saved to"));

    let mut client = connect_old().await;
    let request = write_request("1. measure");
    client.input.write_all(&request.as_bytes()[..request.len() - 2]).await.expect("room");
    let rest = client.hang_up().await;
    assert!(rest.contains("-32700") && !rest.contains("Plan saved"), "{rest}");
}

#[tokio::test]
async fn a_client_that_stops_listening_ends_the_server_after_its_call() {
    let mut client = connect_old().await;
    client.send(write_request("1. measure")).await;
    let path = plan(&client);
    let Client { input, output, server, home } = client;
    drop(output);
    server.await.expect("no panic").expect("a clean end");
    assert_eq!(std::fs::read_to_string(path).expect("written"), "1. measure");
    drop((input, home));
}

#[tokio::test]
async fn a_cancelled_call_does_not_disturb_the_next() {
    let mut client = connect_old().await;
    client.send(write_request("1. measure")).await;
    client.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#).await;
    client.send(r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#).await;
    let mut answer = client.receive().await;
    if answer["id"] == 1 {
        // The call was faster than its cancellation; both orders are allowed.
        answer = client.receive().await;
    }
    assert_eq!(answer, json!({"jsonrpc": "2.0", "id": 2, "result": {}}));
}

/// Time is paused, so the time-out strikes exactly when nobody can go on.
#[tokio::test(start_paused = true)]
async fn a_client_that_never_reads_is_no_longer_read() {
    let mut client = connect();
    let ping = format!("{}\n", json!({"jsonrpc": "2.0", "id": "i".repeat(1_000), "method": "ping"}));
    let flood = ping.repeat(10_000);
    let written = client.input.write_all(flood.as_bytes());
    let written = tokio::time::timeout(Duration::from_mins(1), written).await;
    assert!(written.is_err(), "ten megabytes went in and nothing came out");
    // Cutting the flood short leaves half a line, which is refused at the end.
    let pongs = client.hang_up().await;
    assert!(pongs.lines().count() > 10, "{}", pongs.lines().count());
}
