//! Pages of a transcript: limits, cursors, keys as they should not be.

use serde_json::{Value, json};
use sess_core::{
    MessageId,
    message::{Block, Body, Message, Provenance, Role, Usage},
};

use crate::gateway::{Gateway, encoded, message, now, random};

const KEY: &str = "agent:main:chat:s-1";

fn seqs(page: &Value) -> Vec<u64> {
    let items = page["items"].as_array().expect("items");
    items.iter().map(|item| item["seq"].as_u64().expect("a number")).collect()
}

/// The wire has a description of its own, which only grows; what is sent is the transcript's.
#[test]
fn messages_are_what_the_description_says() {
    let blocks = [
        Block::Text { text: "text".to_owned() },
        Block::Thinking { text: "thought".to_owned(), signature: None },
        Block::ToolCall {
            id: "1".to_owned(),
            name: "shell".to_owned(),
            arguments: serde_json::Map::from_iter([("command".to_owned(), json!("ls"))]),
        },
        Block::Image { mime_type: "image/png".to_owned(), data: "AA==".to_owned() },
        Block::SubSession { session_id: "s-1".parse().expect("an id") },
        Block::Compaction { summary: "in short".to_owned() },
    ];
    for block in &blocks {
        match block {
            Block::Text { .. }
            | Block::Thinking { .. }
            | Block::ToolCall { .. }
            | Block::Image { .. }
            | Block::SubSession { .. }
            | Block::Compaction { .. } => {}
            Block::Other(_) => unreachable!("what is new is added above, and to the description"),
        }
    }
    let provenances = [
        Provenance::ExternalUser,
        Provenance::InterSession {
            source_session_key: KEY.parse().expect("a key"),
            source_channel: Some("webchat".to_owned()),
            source_tool: Some("sessions_send".to_owned()),
        },
        Provenance::InternalSystem,
    ];
    let usage =
        Usage { input: 1, output: 2, cache_read: 3, cache_write: 4, cost: Some(0.5), ..Usage::default() };
    for role in [Role::User, Role::Assistant, Role::ToolResult, Role::System] {
        for provenance in provenances.clone() {
            let body = Body {
                role,
                content: blocks.to_vec(),
                timestamp: now(),
                tool_call_id: Some("1".to_owned()),
                tool_name: Some("shell".to_owned()),
                is_error: Some(true),
                model: Some("m".to_owned()),
                usage: Some(usage.clone()),
                stop_reason: Some("stop".to_owned()),
                run_id: Some("r".to_owned()),
                agent_id: Some("main".parse().expect("an agent")),
                provenance: Some(provenance),
                extra: serde_json::Map::new(),
            };
            let text = Message { id: MessageId::new(now(), random()), seq: 7, body }.to_json();
            let sent: Value = serde_json::from_str(&text).expect("JSON");
            let described: sess_protocol::messages::Message =
                serde_json::from_str(&text).expect("as described");
            assert_eq!(serde_json::to_value(described).expect("JSON"), sent, "no field is lost or renamed");
        }
    }
}

#[tokio::test]
async fn pages_walk_back_without_gap_or_repeat_while_the_session_grows() {
    let gateway = Gateway::start().await;
    let session = gateway.session(KEY, "s-1").await;
    let texts: Vec<String> = (1..=25).map(|n| format!("message {n}")).collect();
    gateway.say(&session, &texts.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let path = format!("/sessions/{}/history", encoded(KEY));
    let mut page = gateway.get(&format!("{path}?limit=10")).await.json();
    assert_eq!(page["sessionKey"], KEY);
    assert_eq!(page["sessionId"], "s-1");
    assert_eq!(page["items"][0]["content"][0]["text"], "message 16");
    let mut all = seqs(&page);
    while page["hasMore"] == true {
        gateway.say(&session, &["meanwhile"]).await;
        let cursor = page["nextCursor"].as_str().expect("a cursor").to_owned();
        page = gateway.get(&format!("{path}?limit=10&cursor={cursor}")).await.json();
        all.splice(0..0, seqs(&page));
    }
    assert_eq!(all, (1..=25).collect::<Vec<u64>>());
    assert_eq!(page.get("nextCursor"), None);
    // By its id as well, and a whole page when nobody says how much.
    let page = gateway.get("/sessions/s-1/history").await.json();
    assert_eq!(seqs(&page), (1..=27).collect::<Vec<u64>>());
    assert_eq!(page["hasMore"], false);
}

#[tokio::test]
async fn tool_results_are_there_when_they_are_asked_for() {
    let gateway = Gateway::start().await;
    let session = gateway.session(KEY, "s-1").await;
    gateway.say(&session, &["one"]).await;
    let result = message(Role::ToolResult, "the tool's answer");
    gateway.store().append(&session.id, vec![result], None).await.expect("a result");
    gateway.say(&session, &["three"]).await;
    assert_eq!(seqs(&gateway.get("/sessions/s-1/history").await.json()), [1, 3]);
    assert_eq!(seqs(&gateway.get("/sessions/s-1/history?includeTools=1").await.json()), [1, 2, 3]);
    assert_eq!(seqs(&gateway.get("/sessions/s-1/history?includeTools=0&limit=1").await.json()), [3]);
    let mut body = Body::text(Role::User, "key sk-ant-REDACTED", now());
    body.run_id = Some(format!("{:x}", random()));
    let secret = sess_store::NewMessage { id: sess_core::MessageId::new(now(), random()), body };
    gateway.store().append(&session.id, vec![secret], None).await.expect("a message");
    let page = gateway.get("/sessions/s-1/history").await.json().to_string();
    assert!(!page.contains("AAAAAAAAAA"), "secrets are masked: {page}");
}

#[tokio::test]
async fn what_is_wrong_is_named() {
    let gateway = Gateway::start().await;
    let session = gateway.session(KEY, "s-1").await;
    let other = gateway.session("agent:main:chat:s-2", "s-2").await;
    gateway.say(&session, &["a", "b", "c"]).await;
    gateway.say(&other, &["a", "b", "c"]).await;
    let check = |query: String, named: &'static str| {
        let gateway = &gateway;
        async move {
            let answer = gateway.get(&format!("/sessions/s-1/history?{query}")).await;
            assert_eq!((answer.status, answer.error().as_str()), (400, "invalid_request"), "{query}");
            assert!(answer.message().contains(named), "{query}: {}", answer.message());
        }
    };
    for limit in ["-1", "0", "abc", "1e9", "1001", "", "1.5", "%31%00", "0x10", "18446744073709551616"] {
        let named = if limit.contains("%00") { "encoded" } else { "limit" };
        check(format!("limit={limit}"), named).await;
    }
    check("follow=2".to_owned(), "follow").await;
    check("includeTools=yes".to_owned(), "includeTools").await;
    check("limit=1&limit=2".to_owned(), "limit").await;
    check("nonsense=1".to_owned(), "nonsense").await;
    check("limit=%zz".to_owned(), "encoded").await;

    let crossed = gateway.get("/sessions/s-2/history?limit=1").await.json();
    let crossed = crossed["nextCursor"].as_str().expect("a cursor").to_owned();
    check(format!("cursor={crossed}"), "another session").await;
    let own = gateway.get("/sessions/s-1/history?limit=1").await.json();
    let own = own["nextCursor"].as_str().expect("a cursor").to_owned();
    for position in (0..own.len()).step_by(3) {
        let mut forged = own.clone().into_bytes();
        forged[position] = if forged[position] == b'x' { b'y' } else { b'x' };
        check(format!("cursor={}", String::from_utf8(forged).expect("ASCII")), "invalid cursor").await;
    }
    for odd in ["", "0", "MTpzLTE", &"A".repeat(5_000), &own[1..], &format!("{own}A"), "%F0%9F%92%A9"] {
        check(format!("cursor={odd}"), "invalid cursor").await;
    }
    check(format!("cursor={own}&follow=1"), "Last-Event-ID").await;
}

#[tokio::test]
async fn keys_as_they_should_not_be_are_refused() {
    let gateway = Gateway::start().await;
    gateway.session(KEY, "s-1").await;
    let long = "a".repeat(10_000);
    for (key, status) in [
        ("%2e%2e%2f", 404),
        ("..%2f..%2fetc%2fpasswd", 404),
        ("%00", 400),
        ("a%00b", 400),
        ("%ff%fe", 400),
        ("%zz", 400),
        ("%", 400),
        (long.as_str(), 400),
        ("agent%3A", 400),
        ("%20", 400),
        ("nothing", 404),
        ("%0a", 400),
        ("'%20OR%201=1--", 404),
    ] {
        for rest in ["", "/history", "/history?follow=1", "/plan"] {
            let answer = gateway.get(&format!("/sessions/{key}{rest}")).await;
            let shown = &key[..key.len().min(30)];
            assert_eq!(answer.status, status, "{shown}{rest} {}", answer.message());
            assert!(["not_found", "invalid_request"].contains(&answer.error().as_str()), "{shown}{rest}");
        }
    }
    let answer = gateway.ask("DELETE", "/sessions/s-1/history", Some(&gateway.token), None).await;
    assert_eq!((answer.status, answer.error().as_str()), (405, "method_not_allowed"));
    assert_eq!(answer.header("allow"), Some("GET"));
    let answer = gateway.post("/sessions/s-1/plan", &json!({})).await;
    assert_eq!(answer.header("allow"), Some("GET, PUT"));
}
