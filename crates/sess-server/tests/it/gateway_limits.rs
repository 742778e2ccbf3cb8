//! Too much, too slow, too deep: each gets its error, and others notice nothing.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::gateway::{Gateway, Stream};

const KEY: &str = "agent:main:chat:s-1";

#[tokio::test]
async fn bodies_are_as_large_as_they_may_be() {
    let gateway = Gateway::start().await;
    gateway.session(KEY, "s-1").await;
    let send = |bytes: usize| json!({ "message": "x".repeat(bytes), "timeoutSeconds": 0 });
    let answer = gateway.post("/sessions/s-1/send", &send(1024 * 1024)).await;
    assert_eq!((answer.status, answer.error().as_str()), (413, "payload_too_large"));
    // Said to be larger, before anything of it came.
    let bearer = format!("Authorization: Bearer {}\r\n", gateway.token);
    let head = |more: &str| {
        format!(
            "POST /sessions/s-1/send HTTP/1.1\r\nHost: {}\r\n{bearer}Content-Type: application/json\r\n{more}\r\n",
            gateway.address
        )
    };
    let answer = gateway.raw(head("Connection: close\r\nContent-Length: 99999999999\r\n").as_bytes()).await;
    assert_eq!(answer.status, 413);
    // In pieces that never end.
    let mut socket = TcpStream::connect(gateway.address).await.expect("it listens");
    socket.write_all(head("Transfer-Encoding: chunked\r\n").as_bytes()).await.expect("it reads");
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x1_0000));
    let mut sent = 0;
    while sent < 1_000 && socket.write_all(chunk.as_bytes()).await.is_ok() {
        sent += 1;
    }
    assert!(sent < 1_000, "it stops reading");
    // A plan may be larger.
    let plan = json!({ "content": "x".repeat(2 * 1024 * 1024) });
    let answer = gateway.ask("PUT", "/sessions/s-1/plan", Some(&gateway.token), Some(&plan)).await;
    assert_eq!(answer.status, 200, "{}", answer.json());
    let plan = json!({ "content": "x".repeat(13 * 1024 * 1024) });
    let answer = gateway.ask("PUT", "/sessions/s-1/plan", Some(&gateway.token), Some(&plan)).await;
    assert_eq!((answer.status, answer.error().as_str()), (413, "payload_too_large"));
}

#[tokio::test]
async fn bodies_that_are_not_as_expected_are_refused() {
    let gateway = Gateway::start().await;
    gateway.session(KEY, "s-1").await;
    let bearer = format!("Bearer {}", gateway.token);
    let deep = format!("{{\"message\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
    for (kind, body) in [
        ("text/plain", r#"{"message":"x"}"#),
        ("application/x-www-form-urlencoded", r#"{"message":"x"}"#),
        ("multipart/form-data", r#"{"message":"x"}"#),
        ("", r#"{"message":"x"}"#),
        ("application/json", ""),
        ("application/json", "{"),
        ("application/json", "[]"),
        ("application/json", "null"),
        ("application/json", r#"{"message":1}"#),
        ("application/json", r#"{"message":"x","unknown":1}"#),
        ("application/json", r#"{"message":"x","message":"y"}"#),
        ("application/json", r#"{"message":"x","timeoutSeconds":-1}"#),
        ("application/json", r#"{"message":"x","timeoutSeconds":100000}"#),
        ("application/json", r#"{"message":""}"#),
        ("application/json", &deep),
        ("application/json", "{\"message\":\"\u{0}\"}"),
    ] {
        let headers = [("Authorization", bearer.as_str()), ("Content-Type", kind)];
        let answer = gateway.request("POST", "/sessions/s-1/send", &headers, body.as_bytes()).await;
        let shown = &body[..body.len().min(40)];
        assert_eq!((answer.status, answer.error().as_str()), (400, "invalid_request"), "{kind} {shown}");
    }
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
    let answer = gateway.request("POST", "/sessions/s-1/send", &headers, b"{\"message\":\"\xff\"}").await;
    assert_eq!(answer.status, 400);
    let nothing = gateway.get("/runs").await.json();
    assert_eq!(nothing, json!({ "runs": [] }), "nothing was done");
}

#[tokio::test]
async fn who_sends_too_slowly_is_cut_and_others_notice_nothing() {
    let gateway = Gateway::start_limited(|limits| {
        limits.header_within = Duration::from_millis(300);
        limits.body_within = Duration::from_millis(300);
    })
    .await;
    gateway.session(KEY, "s-1").await;
    let mut slow = Vec::new();
    for _ in 0..50 {
        let mut socket = TcpStream::connect(gateway.address).await.expect("it listens");
        socket.write_all(b"GET /sessions HTTP/1.1\r\nHost: ").await.expect("it reads");
        slow.push(socket);
    }
    let since = Instant::now();
    assert_eq!(gateway.get("/sessions").await.status, 200);
    assert!(since.elapsed() < Duration::from_millis(250), "{:?}", since.elapsed());
    for mut socket in slow {
        let mut answer = Vec::new();
        let _cut = socket.read_to_end(&mut answer).await;
        let text = String::from_utf8_lossy(&answer);
        assert!(answer.is_empty() || text.starts_with("HTTP/1.1 408"), "{text}");
    }
    assert!(since.elapsed() < Duration::from_secs(3), "{:?}", since.elapsed());
    // The same with a body that does not come.
    let head = format!(
        "POST /sessions/s-1/send HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{",
        gateway.address, gateway.token
    );
    let answer = gateway.raw(head.as_bytes()).await;
    assert_eq!(answer.status, 400);
    assert!(answer.message().contains("did not arrive"), "{}", answer.message());
}

#[tokio::test]
async fn connections_have_an_end() {
    let gateway = Gateway::start_limited(|limits| limits.connections = 3).await;
    gateway.session(KEY, "s-1").await;
    let mut streams = Vec::new();
    for _ in 0..3 {
        let mut stream = gateway.follow("/sessions/s-1/history?follow=1", &[]).await;
        assert_eq!(stream.event().await.name, "history");
        streams.push(stream);
    }
    // Reads only: who is refused is told at once.
    let answer = gateway.raw(b"").await;
    assert_eq!((answer.status, answer.error().as_str()), (503, "unavailable"));
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(answer.header("content-length"), Some(answer.body.len().to_string().as_str()));
    drop(streams.pop());
    // Its place is free once it is seen to be gone.
    loop {
        let answer = gateway.get("/sessions").await;
        if answer.status == 200 {
            break;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_client_that_comes_again_and_again_is_served_like_others() {
    let gateway = Gateway::start().await;
    let session = gateway.session(KEY, "s-1").await;
    let bearer = format!("Bearer {}", gateway.token);
    let mut other = gateway.follow("/sessions/s-1/history?follow=1", &[]).await;
    assert_eq!(other.event().await.name, "history");
    for _ in 0..200 {
        let headers = [("Authorization", bearer.as_str())];
        let stream = Stream::open(gateway.address, "/sessions/s-1/history?follow=1", &headers).await;
        assert_eq!(stream.status, 200);
    }
    gateway.say(&session, &["still here"]).await;
    assert_eq!(other.event().await.name, "message");
}

#[tokio::test]
async fn nobody_binds_wide_by_accident() {
    use sess_server::gateway::{GatewayOptions, serve};
    let gateway = Gateway::start().await;
    for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let options =
            GatewayOptions { listen: listen.parse().expect("an address"), ..GatewayOptions::default() };
        let stop = tokio_util::sync::CancellationToken::new();
        let refused = serve(gateway.app.clone(), None, options, stop, |_| panic!("it listens")).await;
        let message = refused.expect_err(listen).to_string();
        assert!(message.contains("--tls-cert") && message.contains("--insecure"), "{message}");
    }
}

#[tokio::test]
async fn requests_drain_and_readyz_turns_first() {
    let mut gateway = Gateway::start().await;
    gateway.session(KEY, "s-1").await;
    assert_eq!(gateway.request("GET", "/readyz", &[], b"").await.status, 200);
    // A connection that stays open is told before it ends.
    let mut kept = TcpStream::connect(gateway.address).await.expect("it listens");
    let ask = format!("GET /readyz HTTP/1.1\r\nHost: {}\r\n\r\n", gateway.address);
    kept.write_all(ask.as_bytes()).await.expect("it reads");
    let mut answer = vec![0; 15];
    kept.read_exact(&mut answer).await.expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
    // Somebody waits for a reply, and gets what there is.
    let (address, token) = (gateway.address, gateway.token.clone());
    let send = json!({ "message": "hello", "timeoutSeconds": 60 }).to_string();
    let mut waiting = TcpStream::connect(address).await.expect("it listens");
    let head = format!(
        "POST /sessions/s-1/send HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{send}",
        send.len()
    );
    waiting.write_all(head.as_bytes()).await.expect("it reads");
    while gateway.get("/runs").await.json()["runs"].as_array().is_none_or(Vec::is_empty) {}
    let since = Instant::now();
    gateway.end().await;
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    let mut answer = String::new();
    waiting.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"timeout\""), "{answer}");
    assert!(TcpStream::connect(address).await.is_err(), "nobody listens any longer");
}
