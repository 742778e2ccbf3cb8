//! The WebSocket: who is let in, and what becomes of those who send what is no request.

use std::time::{Duration, Instant};

use futures_util::SinkExt as _;
use serde_json::json;
use sess_protocol::tokens::Scope;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_tungstenite::tungstenite::{
    Message,
    protocol::frame::{
        Frame,
        coding::{Data, OpCode},
    },
};

use crate::ws_stage::{Client, Stage};

/// The code with which the gateway closes what it will not have.
const POLICY: Option<u16> = Some(1008);

#[track_caller]
fn check(end: &(Option<String>, Option<u16>), expected: &str) {
    let (error, code) = end;
    let error = error.as_deref().unwrap_or_default();
    assert!(error.starts_with(expected), "{error:?} is not {expected:?}");
    assert_eq!(*code, POLICY, "{error}");
}

#[tokio::test]
async fn whoever_comes_in_is_told_what_there_is() {
    let stage = Stage::new().await;
    let mut client = Client::open(stage.address).await;
    let hello = client.connect(&stage.token).await.expect("let in");
    assert_eq!((&hello["type"], &hello["protocol"]), (&json!("hello-ok"), &json!(1)));
    assert_eq!(hello["methods"].as_array().expect("names").len(), 20);
    assert_eq!(hello["events"].as_array().expect("names").len(), 8);
    assert_eq!(hello["policy"]["scopes"], json!(["read", "write", "review", "admin"]));
    assert_eq!(hello["policy"]["maxFrameBytes"], 1024 * 1024);
    let again = client.connect(&stage.token).await.expect_err("once");
    assert_eq!(again, "invalid_request: connect is the first request of a connection, and was answered");

    let token = stage.new_token(&[Scope::Read], Some("a")).await;
    let hello = Client::open(stage.address).await.connect(&token).await.expect("let in");
    assert_eq!(hello["policy"]["agent"], "a");
    let methods = hello["methods"].to_string();
    assert!(methods.contains("chat.history"), "{methods}");
    for beyond in ["chat.send", "sessions.patch", "plans.review"] {
        assert!(!methods.contains(beyond), "{methods}");
    }
}

#[tokio::test]
async fn whoever_is_not_let_in_is_told_why_and_sent_away() {
    let stage = Stage::limited(|limits| limits.connect_within = Duration::from_millis(300)).await;
    let mut client = Client::open(stage.address).await;
    client
        .send(
            "connect",
            json!({ "minProtocol": 1, "maxProtocol": 1, "client": { "id": "x", "version": "1" },
        "auth": { "token": "wrong" } }),
        )
        .await;
    check(&client.end().await, "unauthorized: this token does not count");

    let mut client = Client::open(stage.address).await;
    client
        .send(
            "connect",
            json!({ "minProtocol": 1, "maxProtocol": 1, "client": { "id": "x", "version": "1" } }),
        )
        .await;
    check(&client.end().await, "unauthorized: a token is needed");

    let mut client = Client::open(stage.address).await;
    client.send("sessions.list", json!({})).await;
    check(&client.end().await, "unauthorized: the first request must be `connect`");

    let mut client = Client::open(stage.address).await;
    client
        .send(
            "connect",
            json!({ "minProtocol": 2, "maxProtocol": 3, "client": { "id": "x", "version": "1" },
        "auth": { "token": stage.token } }),
        )
        .await;
    check(&client.end().await, "invalid_request: invalid connect params: minProtocol: ");

    let mut client = Client::open(stage.address).await;
    client.send("connect", json!({ "minProtocol": 1, "maxProtocol": 1, "client": { "id": "x" } })).await;
    check(&client.end().await, "invalid_request: invalid connect params: client.version: missing field");

    let begun = Instant::now();
    let mut silent = Client::open(stage.address).await;
    check(&silent.end().await, "unauthorized: no `connect` came within 0.3 s");
    assert!(begun.elapsed() < Duration::from_secs(5));
}

/// Frames that are no request, and what they are told.
fn odd_frames() -> Vec<(Message, &'static str)> {
    let text = |bytes: Vec<u8>| Message::Frame(Frame::message(bytes, OpCode::Data(Data::Text), true));
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    vec![
        (Message::binary(vec![1, 2, 3]), "invalid_request: invalid frame: frames are text"),
        (text(vec![0xff, 0xfe]), "invalid_request: invalid frame: it is not UTF-8"),
        (Message::text("nonsense"), "invalid_request: invalid frame: "),
        (Message::text(""), "invalid_request: invalid frame: "),
        (Message::text(deep), "invalid_request: invalid frame: "),
        (Message::text("{}"), "invalid_request: invalid frame: missing field `type`"),
        (
            Message::text(r#"["req","1","connect",{}]"#),
            "invalid_request: invalid frame: invalid type: an array, expected an object",
        ),
        (Message::text(r#"{"type":"req","id":7,"method":"x"}"#), "invalid_request: invalid frame: "),
        (Message::text(r#"{"type":"res","id":"7","method":"x"}"#), "invalid_request: invalid frame: "),
        (
            Message::text(r#"{"type":"req","id":"7","method":"x","more":1}"#),
            "invalid_request: invalid frame: ",
        ),
    ]
}

#[tokio::test]
async fn what_is_no_request_ends_the_connection_with_a_word() {
    let stage = Stage::new().await;
    for (frame, expected) in odd_frames() {
        let mut outside = Client::open(stage.address).await;
        outside.socket.send(frame.clone()).await.expect("sent");
        check(&outside.end().await, expected);
        let mut inside = stage.client().await;
        inside.socket.send(frame).await.expect("sent");
        check(&inside.end().await, expected);
    }
    let mut client = stage.client().await;
    let large = Message::text("x".repeat(1024 * 1024 + 1));
    let _refused = client.socket.send(large).await;
    check(&client.end().await, "payload_too_large: the frame is too large: the most is 1048576 bytes");
    stage.client().await.ask("sessions.list", json!({})).await.expect("others notice nothing");
}

#[tokio::test]
async fn little_is_read_before_somebody_is_let_in() {
    let stage = Stage::new().await;
    // One large frame, and many small ones.
    let mut client = Client::open(stage.address).await;
    let _refused = client.socket.send(Message::text("x".repeat(1024 * 1024 - 100))).await;
    check(&client.end().await, "payload_too_large: more than 65536 bytes came before `connect`");
    let mut client = Client::open(stage.address).await;
    for _ in 0..1024 {
        if client.socket.feed(Message::Ping(vec![0; 100].into())).await.is_err() {
            break;
        }
    }
    let _refused = client.socket.flush().await;
    check(&client.end().await, "payload_too_large: more than 65536 bytes came before `connect`");

    // Bytes that are no frames at all.
    let mut stream = TcpStream::connect(stage.address).await.expect("it listens");
    let head = format!(
        "GET /ws HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        stage.address
    );
    stream.write_all(head.as_bytes()).await.expect("written");
    let _refused = stream.write_all(&vec![0xff; 1024 * 1024]).await;
    let mut answer = Vec::new();
    let _reset = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{answer}");
    assert!(answer.contains("invalid frame"), "{answer}");
    stage.client().await.ask("sessions.list", json!({})).await.expect("others notice nothing");
}

#[tokio::test]
async fn a_connection_needs_a_handshake_and_a_place_of_its_own() {
    let stage = Stage::new().await;
    for (headers, status) in [
        ("", "400"),
        ("Connection: Upgrade\r\nUpgrade: websocket\r\n", "400"),
        (
            "Connection: Upgrade\r\nUpgrade: h2c\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n",
            "400",
        ),
        (
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 8\r\nSec-WebSocket-Key: eA==\r\n",
            "400",
        ),
        (
            "Origin: http://evil.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
          Sec-WebSocket-Key: eA==\r\n",
            "403",
        ),
    ] {
        let mut stream = TcpStream::connect(stage.address).await.expect("it listens");
        let head = format!("GET /ws HTTP/1.1\r\nHost: {}\r\n{headers}\r\n", stage.address);
        stream.write_all(head.as_bytes()).await.expect("written");
        let mut answer = vec![0; 12];
        stream.read_exact(&mut answer).await.expect("an answer");
        assert_eq!(String::from_utf8_lossy(&answer), format!("HTTP/1.1 {status}"), "{headers}");
    }
}

#[tokio::test]
async fn a_client_that_gives_no_sign_is_let_go_and_one_that_does_is_kept() {
    let stage = Stage::limited(|limits| limits.keepalive = Duration::from_millis(100)).await;
    let mut alive = stage.client().await;
    for _ in 0..10 {
        let (name, payload) = alive.event().await;
        assert_eq!(name, "tick");
        assert!(payload["at"].as_i64().is_some_and(|at| at > 0), "{payload}");
    }
    // The bytes are taken from below it, so that it never answers.
    let mut dead = stage.client().await;
    let begun = Instant::now();
    let mut bytes = Vec::new();
    let read = dead.socket.get_mut().read_to_end(&mut bytes);
    let _end = tokio::time::timeout(Duration::from_secs(10), read).await.expect("it is let go");
    assert!(begun.elapsed() >= Duration::from_millis(300), "{:?}", begun.elapsed());
    assert_eq!(alive.event().await.0, "tick");
}

#[tokio::test]
async fn who_loses_its_token_is_cut_off_and_so_is_everybody_at_the_end() {
    let mut stage = Stage::new().await;
    let token = stage.new_token(&[Scope::Read], None).await;
    let (mut cut, mut kept) = (stage.client_with(&token).await, stage.client().await);
    cut.ask("sessions.subscribe", json!({})).await.expect("subscribed");
    let id = stage.app.tokens().await.expect("tokens")[0].id.clone();
    stage.app.revoke_token(&id).await.expect("revoked");
    let begun = Instant::now();
    assert_eq!(cut.end().await, (None, POLICY));
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    kept.ask("sessions.list", json!({})).await.expect("nobody else is cut off");

    let (ended, close) = tokio::join!(stage.end(), kept.end());
    assert_eq!(((), (None, Some(1001))), (ended, close));
}

#[tokio::test]
async fn requests_and_subscriptions_have_their_limits() {
    let stage = Stage::limited(|limits| (limits.in_flight, limits.subscriptions) = (2, 1)).await;
    let mut client = stage.client().await;
    let run = client.ask("agent", json!({ "message": "hang", "agentId": "a", "idempotencyKey": "1" })).await;
    let run = run.expect("accepted")["runId"].clone();
    let waiting = client.send("agent.wait", json!({ "runId": run, "timeoutMs": 60_000 })).await;
    let refused = client.ask("sessions.list", json!({})).await.expect_err("too many");
    assert_eq!(refused, "rate_limited: 2 requests of this connection are not answered yet: wait for one");
    let mut other = stage.client().await;
    let row = other.ask("runs.list", json!({})).await.expect("runs")["runs"][0].clone();
    other.ask("chat.abort", json!({ "sessionKey": row["sessionKey"] })).await.expect("aborted");
    assert_eq!(client.answer(&waiting).await.expect("ended")["status"], "aborted");

    let follow = |key: &str| json!({ "key": key });
    other.ask("sessions.messages.subscribe", follow("agent:a:main")).await.expect("one");
    other.ask("sessions.messages.subscribe", follow("agent:a:main")).await.expect("the same again");
    let refused = other.ask("sessions.messages.subscribe", follow("agent:b:main")).await.expect_err("two");
    assert!(refused.starts_with("rate_limited: this connection follows 1 sessions"), "{refused}");
    other.ask("sessions.messages.unsubscribe", follow("agent:a:main")).await.expect("left");
    other.ask("sessions.messages.subscribe", follow("agent:b:main")).await.expect("room again");
}
