//! How the gateway ends: it says so first, takes nothing new, and lets what is under way end.

use std::{net::SocketAddr, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::ws_stage::{Client, Stage};

const MAIN: &str = "agent:a:main";

/// Asks over HTTP; returns the status and the body.
async fn http(address: SocketAddr, token: &str, method: &str, path: &str) -> (u16, String) {
    let mut socket = TcpStream::connect(address).await.expect("somebody answers");
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, body.to_owned())
}

async fn begin(client: &mut Client, text: &str) -> String {
    let said = json!({ "sessionKey": MAIN, "message": text, "idempotencyKey": text });
    client.ask("sessions.subscribe", json!({})).await.expect("subscribed");
    let sent = client.ask("chat.send", said).await.expect("sent");
    client.changed("run_start").await;
    sent["runId"].as_str().expect("an id").to_owned()
}

#[tokio::test]
async fn what_is_under_way_ends_well_and_nothing_new_is_taken() {
    let mut stage = Stage::new().await;
    let mut early = Client::open(stage.address).await;
    let mut client = stage.client().await;
    let mut waiting = stage.client().await;
    let run = begin(&mut client, "slow words").await;
    let asked = waiting.send("agent.wait", json!({ "runId": run })).await;
    let (address, token) = (stage.address, stage.token.clone());
    let wait = tokio::spawn({
        let (path, token) = (format!("/runs/{run}/wait"), token.clone());
        async move { http(address, &token, "POST", &path).await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    stage.stop.cancel();

    let (status, body) = http(address, &token, "GET", "/readyz").await;
    assert_eq!(status, 503, "{body}");
    assert!(body.contains("\"unavailable\""), "{body}");
    assert_eq!(http(address, &token, "GET", "/healthz").await.0, 200);
    for path in ["/", "/sessions", "/nowhere"] {
        let (status, body) = http(address, &token, "GET", path).await;
        assert_eq!((status, body.contains("\"unavailable\"")), (503, true), "{path}: {body}");
    }
    let refused = client.ask("sessions.list", json!({})).await.expect_err("it ends");
    assert!(refused.starts_with("unavailable: the gateway is about to end"), "{refused}");
    early
        .send(
            "connect",
            json!({ "minProtocol": 1, "maxProtocol": 1, "client": { "id": "x", "version": "1" },
                "auth": { "token": token } }),
        )
        .await;
    let (last, code) = early.end().await;
    assert!(last.is_some_and(|last| last.starts_with("unavailable: ")), "a word");
    assert_eq!(code, Some(1001));

    let waited = waiting.answer(&asked).await.expect("an outcome");
    assert_eq!((&waited["status"], &waited["reply"]), (&json!("ok"), &json!("words")));
    let (status, body) = wait.await.expect("no panic");
    let waited: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!((status, &waited["status"], &waited["reply"]), (200, &json!("ok"), &json!("words")));
    assert_eq!(waiting.end().await.1, Some(1001));
    stage.end().await;
}

#[tokio::test]
async fn a_run_that_takes_too_long_is_given_up_and_whoever_waits_hears_so() {
    let mut stage = Stage::limited(|limits| limits.drain_within = Duration::from_millis(300)).await;
    let mut client = stage.client().await;
    let run = begin(&mut client, "hang").await;
    let (address, token, path) = (stage.address, stage.token.clone(), format!("/runs/{run}/wait"));
    let wait = tokio::spawn(async move { http(address, &token, "POST", &path).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    stage.end().await;
    let (status, body) = wait.await.expect("no panic");
    let waited: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!((status, &waited["status"]), (200, &json!("aborted")), "{waited}");
}
