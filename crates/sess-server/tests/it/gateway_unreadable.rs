//! What is no request at all, and who never reads: the first has the shape of all errors, the second an end.

use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
};

use crate::gateway::{Answer, Gateway};

const KEY: &str = "agent:main:chat:s-1";

#[track_caller]
fn check(answer: &Answer, status: u16, kind: &str, what: &str) {
    assert_eq!((answer.status, answer.error().as_str()), (status, kind), "{what}");
    assert_eq!(answer.header("content-type"), Some("application/json"), "{what}");
    assert_eq!(answer.header("content-length"), Some(answer.body.len().to_string().as_str()), "{what}");
    let lengths = answer.headers.iter().filter(|(name, _)| name == "content-length");
    assert_eq!(lengths.count(), 1, "{what}");
    assert_eq!(answer.header("connection"), Some("close"), "{what}");
    for name in ["x-content-type-options", "referrer-policy", "content-security-policy", "cache-control"] {
        assert!(answer.header(name).is_some(), "{what}: {name}");
    }
}

#[tokio::test]
async fn what_is_no_request_is_told_so_in_the_one_shape() {
    let gateway = Gateway::start().await;
    let host = format!("Host: {}\r\n", gateway.address);
    let get = |headers: &str| format!("GET /healthz HTTP/1.1\r\n{host}{headers}\r\n").into_bytes();
    for (what, bytes) in [
        ("no request line", b"\x16\x03\x01\x02\x00 what is this?\r\n\r\n".to_vec()),
        ("no method", b"G(E)T / HTTP/1.1\r\n\r\n".to_vec()),
        ("another protocol", b"GET /healthz HTTP/3.7\r\n\r\n".to_vec()),
        ("no address", b"GET h\x01 HTTP/1.1\r\n\r\n".to_vec()),
        ("no header", get("this has no colon\r\n")),
        ("no name of a header", get("a b: c\r\n")),
        ("no value of a header", get("a: b\x00c\r\n")),
        ("no length", get("Content-Length: many\r\n")),
        ("two lengths", get("Content-Length: 1\r\nContent-Length: 2\r\n")),
        ("no encoding that is known", get("Transfer-Encoding: gzip\r\n")),
    ] {
        let answer = gateway.raw(&bytes).await;
        check(&answer, 400, "invalid_request", what);
        assert!(answer.message().starts_with("the request cannot be read"), "{}", answer.message());
    }
    let many: String = (0..1_000).map(|n| format!("x-{n}: y\r\n")).collect();
    check(&gateway.raw(&get(&many)).await, 431, "payload_too_large", "too many headers");
    let long = format!("x: {}\r\n", "y".repeat(3_000_000));
    check(&gateway.raw(&get(&long)).await, 431, "payload_too_large", "a header that is too long");
    let metrics = gateway.get("/metrics").await;
    let metrics = String::from_utf8(metrics.body).expect("text");
    assert!(metrics.contains("status=\"4xx\"} 12"), "{metrics}");
}

#[tokio::test]
async fn an_address_that_is_too_long_is_told_so_in_the_one_shape() {
    let gateway = Gateway::start().await;
    for length in [65_535, 66_000, 1_000_000] {
        let head =
            format!("GET /{} HTTP/1.1\r\nHost: {}\r\n\r\n", "x".repeat(length), gateway.address).into_bytes();
        let answer = gateway.raw(&head).await;
        assert!([414, 431].contains(&answer.status), "{length}: {}", answer.status);
        check(&answer, answer.status, "payload_too_large", &format!("an address of {length} bytes"));
    }
}

#[tokio::test]
async fn what_was_asked_before_is_answered_first() {
    let gateway = Gateway::start().await;
    let host = format!("Host: {}\r\n", gateway.address);
    let ask = format!("GET /healthz HTTP/1.1\r\n{host}\r\nHEAD /healthz HTTP/1.1\r\n{host}\r\n");
    let all = gateway.raw_text(format!("{ask}this is none\r\n\r\n").as_bytes()).await;
    assert_eq!(all.matches("HTTP/1.1 200 OK\r\n").count(), 2, "{all}");
    let (answered, refused) = all.split_once("HTTP/1.1 400 Bad Request\r\n").expect("a refusal");
    assert!(answered.contains("\r\n\r\nok\n"), "{all}");
    let (_, body) = refused.split_once("\r\n\r\n").expect("a head");
    let body: Value = serde_json::from_str(body).expect("JSON and nothing after it");
    assert_eq!(body["error"]["type"], "invalid_request");
    // Our own refusals stay as they are.
    let bad = gateway.get("/sessions?limit=-1").await;
    assert!(bad.message().contains("limit"), "{}", bad.message());
}

fn get(gateway: &Gateway, path: &str) -> Vec<u8> {
    let (address, token) = (gateway.address, &gateway.token);
    format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\r\n").into_bytes()
}

/// Asks for more than fits between two sides, and reads nothing of it.
async fn unread(gateway: &Gateway, path: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(2_048).expect("a buffer");
    let mut socket = socket.connect(gateway.address).await.expect("it listens");
    socket.write_all(&get(gateway, path)).await.expect("it reads");
    socket.readable().await.expect("it answers");
    socket
}

async fn connections(gateway: &Gateway) -> usize {
    let metrics = gateway.get("/metrics").await.body;
    let metrics = String::from_utf8(metrics).expect("text");
    let line = metrics.lines().find_map(|line| line.strip_prefix("sess_connections ")).expect("a gauge");
    line.parse().expect("a number")
}

#[tokio::test]
async fn who_never_reads_is_cut_and_others_notice_nothing() {
    let gateway = Gateway::start_limited(|limits| limits.take_within = Duration::from_millis(500)).await;
    let session = gateway.session(KEY, "s-1").await;
    gateway.say(&session, &["x".repeat(900_000).as_str(); 9]).await;
    let mut other = gateway.follow("/sessions/s-1/history?follow=1&limit=1", &[]).await;
    assert_eq!(other.event().await.name, "history");
    let unread = [
        unread(&gateway, "/sessions/s-1/history?limit=9").await,
        unread(&gateway, "/sessions/s-1/history?follow=1&limit=9").await,
    ];
    // The other one and whoever looks are left.
    let since = Instant::now();
    while connections(&gateway).await > 2 {
        assert!(since.elapsed() < Duration::from_secs(30), "{} connections", connections(&gateway).await);
        gateway.say(&session, &["still here"]).await;
        assert!(other.event().await.data.contains("still here"));
    }
    // They find a part, when they look at last.
    for mut socket in unread {
        let mut got = Vec::new();
        let _cut = socket.read_to_end(&mut got).await;
        assert!(got.len() < 8_000_000, "{}", got.len());
    }
}

#[tokio::test]
async fn who_reads_slowly_is_served_to_the_end() {
    let gateway = Gateway::start_limited(|limits| limits.take_within = Duration::from_millis(1_500)).await;
    let session = gateway.session(KEY, "s-1").await;
    gateway.say(&session, &["x".repeat(900_000).as_str(); 10]).await;
    let mut slow = TcpStream::connect(gateway.address).await.expect("it listens");
    slow.write_all(&get(&gateway, "/sessions/s-1/history?limit=10")).await.expect("it reads");
    let mut buffer = vec![0; 300_000];
    let since = Instant::now();
    // Thirty pieces take twice as long as somebody may take who reads nothing.
    for piece in 0..30 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        slow.read_exact(&mut buffer).await.unwrap_or_else(|error| panic!("piece {piece}: {error}"));
    }
    assert!(since.elapsed() > Duration::from_secs(3));
}
