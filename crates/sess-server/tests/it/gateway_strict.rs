//! What is refused by name, what only reads, and what is told to the end.

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use sess_app::NewToken;
use sess_core::session::Runner;
use sess_protocol::tokens::Scope;
use tokio_tungstenite::tungstenite::{
    Message,
    protocol::{CloseFrame, frame::coding::CloseCode},
};

use crate::{
    gateway::{Gateway, encoded, new_session},
    ws_stage::{Client, Stage},
};

const KEY: &str = "agent:main:chat:one";

#[tokio::test]
async fn a_close_is_answered_by_a_close() {
    let stage = Stage::new().await;
    for mut client in [stage.client().await, Client::open(stage.address).await] {
        let close = CloseFrame { code: CloseCode::Normal, reason: "enough".into() };
        client.socket.send(Message::Close(Some(close))).await.expect("sent");
        let answer = client.socket.next().await;
        assert!(
            matches!(&answer, Some(Ok(Message::Close(Some(close)))) if close.code == CloseCode::Normal),
            "{answer:?}"
        );
    }
}

#[tokio::test]
async fn control_frames_count_before_connect() {
    let stage = Stage::new().await;
    let mut client = Client::open(stage.address).await;
    for _ in 0..64 * 1024 / 125 {
        client.socket.feed(Message::Ping(vec![7; 125].into())).await.expect("sent");
    }
    // It may be refused while this is on its way.
    let _sent = client.socket.flush().await;
    let (last, code) = client.end().await;
    let last = last.expect("a word");
    assert!(last.starts_with("payload_too_large: more than 65536 bytes came before"), "{last}");
    assert_eq!(code, Some(1008));
}

#[tokio::test]
async fn who_only_reads_makes_no_session() {
    let stage = Stage::new().await;
    let token = stage.new_token(&[Scope::Read], None).await;
    let mut reader = stage.client_with(&token).await;
    let main = json!({ "key": "agent:a:main" });
    let row = reader.ask("sessions.get", main.clone()).await.expect("a row");
    assert_eq!((&row["key"], &row["status"]), (&json!("agent:a:main"), &json!("idle")));
    let page = reader.ask("chat.history", json!({ "sessionKey": "agent:a:main" })).await.expect("a page");
    assert_eq!((&page["items"], &page["sessionId"]), (&json!([]), &row["sessionId"]));
    let refused = reader.ask("plans.get", json!({ "sessionKey": "agent:a:main" })).await.expect_err("none");
    assert!(refused.starts_with("not_found: "), "{refused}");
    reader.ask("sessions.messages.subscribe", main).await.expect("followed");
    let key = "agent:a:main".parse().expect("a key");
    assert_eq!(stage.store().session_by_key(&key).await.expect("read"), None, "nothing was written");
    // Its first message comes to whoever followed it before.
    let mut writer = stage.client().await;
    let said = json!({ "sessionKey": "agent:a:main", "message": "hello", "idempotencyKey": "k" });
    writer.ask("chat.send", said).await.expect("sent");
    let told = reader.event_of("session.message").await;
    assert_eq!((&told["sessionId"], &told["messageSeq"]), (&row["sessionId"], &json!(1)));
}

#[tokio::test]
async fn a_program_that_acts_for_an_agent_writes_plans_in_its_name() {
    let gateway = Gateway::start().await;
    gateway.session(KEY, "one").await;
    let path = format!("/sessions/{}/plan", encoded(KEY));
    let agent = Some("main".parse().expect("a name"));
    let scopes = vec![Scope::Read, Scope::Write];
    let token = gateway.new_token(NewToken { scopes, agent, ..NewToken::default() }).await;
    let body = json!({ "content": "# Plan" });
    assert_eq!(gateway.ask("PUT", &path, Some(&token), Some(&body)).await.status, 200);
    assert_eq!(gateway.ask("PUT", &path, Some(&gateway.token), Some(&body)).await.status, 200);
    let view = gateway.get(&path).await.json();
    let authors: Vec<&Value> =
        view["revisions"].as_array().expect("revisions").iter().map(|row| &row["agent"]).collect();
    assert_eq!(authors, ["main", "owner"]);
}

#[tokio::test]
async fn a_run_that_is_none_is_not_found() {
    let gateway = Gateway::start().await;
    for (method, path) in [("GET", "/runs/nope"), ("POST", "/runs/nope/wait"), ("POST", "/runs/nope/cancel")]
    {
        let answer = gateway.ask(method, path, Some(&gateway.token), None).await;
        assert_eq!((answer.status, answer.error().as_str()), (404, "not_found"), "{path}");
    }
}

#[tokio::test]
async fn an_array_is_no_body_and_refusals_name_the_field() {
    let gateway = Gateway::start().await;
    gateway.session(KEY, "one").await;
    let path = format!("/sessions/{}/send", encoded(KEY));
    for (body, expected) in [
        (
            json!(["array hello", 0, "kk"]),
            "the body is not as expected: invalid type: an array, expected an object",
        ),
        (
            json!({ "message": 7 }),
            "the body is not as expected: message: invalid type: number `7`, expected a string",
        ),
        (
            json!({ "message": "x", "timeoutSeconds": "long" }),
            "the body is not as expected: timeoutSeconds: invalid type: string \"long\", expected a whole number, \
             0 or more",
        ),
    ] {
        let answer = gateway.post(&path, &body).await;
        assert_eq!((answer.status, answer.message().as_str()), (400, expected));
    }
    for (query, name) in [("limit=%00", "limit"), ("cursor=%ff", "cursor")] {
        let answer = gateway.get(&format!("/sessions/{}/history?{query}", encoded(KEY))).await;
        let message = answer.message();
        assert_eq!(answer.status, 400);
        assert!(message.starts_with(&format!("the parameter \"{name}\" is not")), "{message}");
    }
}

#[tokio::test]
async fn each_change_is_told_as_what_it_is() {
    let stage = Stage::new().await;
    let mut client = stage.client().await;
    client.ask("sessions.subscribe", json!({})).await.expect("subscribed");
    let key = "agent:a:main";
    let mut phases = Vec::new();
    let said = json!({ "sessionKey": key, "message": "hello", "idempotencyKey": "k" });
    client.ask("chat.send", said).await.expect("sent");
    let until = async |client: &mut Client, last: &str| {
        let mut told = Vec::new();
        loop {
            let changed = client.event_of("sessions.changed").await;
            told.push(changed["phase"].as_str().expect("a phase").to_owned());
            if told.last().is_some_and(|phase| phase == last) {
                return told;
            }
        }
    };
    phases.extend(until(&mut client, "run_end").await);
    client.ask("sessions.patch", json!({ "key": key, "label": "l" })).await.expect("patched");
    phases.extend(until(&mut client, "patched").await);
    client.ask("sessions.reset", json!({ "key": key })).await.expect("reset");
    phases.extend(until(&mut client, "reset").await);
    client.ask("sessions.patch", json!({ "key": key, "archived": true })).await.expect("archived");
    phases.extend(until(&mut client, "archived").await);
    let expected = ["created", "message", "run_start", "message", "run_end", "patched", "reset", "archived"];
    assert_eq!(phases, expected);
}

#[tokio::test]
async fn a_login_code_counts_whatever_others_got_wrong() {
    let gateway = Gateway::start_limited(|limits| limits.failed_logins = 3).await;
    for _ in 0..3 {
        assert_eq!(gateway.ask("GET", "/sessions", Some("wrong"), None).await.status, 401);
    }
    assert_eq!(gateway.ask("GET", "/sessions", Some("wrong"), None).await.status, 429);
    let wrong = gateway.ask("POST", "/login", None, Some(&json!({ "code": "wrong" }))).await;
    assert_eq!(wrong.status, 429, "wrong codes are counted");
    let code = gateway.app.login_code().await.expect("a code");
    let right = gateway.ask("POST", "/login", None, Some(&json!({ "code": code.reveal() }))).await;
    assert_eq!(right.status, 200, "{}", String::from_utf8_lossy(&right.body));
    let cookie = right.header("set-cookie").and_then(|text| text.split(';').next()).expect("a cookie");
    let page = gateway.request("GET", "/sessions", &[("Cookie", cookie)], &[]).await;
    assert_eq!(page.status, 200, "and so does what it was exchanged for");
}

#[tokio::test]
async fn a_file_that_no_message_may_have_is_not_taken() {
    let gateway = Gateway::start().await;
    let bearer = format!("Bearer {}", gateway.token);
    for (kind, content, expected) in [
        ("text/plain", vec![b'x'; 262_145], "is too large: 262145 bytes, of at most 262144"),
        ("text/plain", vec![0xff, 0xfe], "is neither an image"),
        ("text/plain", Vec::new(), "is empty"),
        ("image/png", b"not really".to_vec(), "is not image/png"),
    ] {
        let headers = [("Authorization", bearer.as_str()), ("Content-Type", kind)];
        let answer = gateway.request("POST", "/attachments?name=a.txt", &headers, &content).await;
        assert_eq!(answer.status, 400, "{kind}");
        assert!(answer.message().contains(expected), "{}", answer.message());
    }
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "text/plain")];
    let answer = gateway.request("POST", "/attachments?name=a.txt", &headers, &vec![b'x'; 262_144]).await;
    assert_eq!(answer.status, 201);
}

#[tokio::test]
async fn who_writes_too_much_before_it_reads_is_told_so() {
    let gateway = Gateway::start().await;
    let bearer = format!("Bearer {}", gateway.token);
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
    let body = vec![b' '; 3 * 1024 * 1024];
    for _ in 0..3 {
        let answer = gateway.request("POST", "/sessions/one/send", &headers, &body).await;
        assert_eq!((answer.status, answer.error().as_str()), (413, "payload_too_large"));
    }
}

#[tokio::test]
async fn a_stream_says_that_its_session_was_deleted() {
    let gateway = Gateway::start().await;
    let mut new = new_session(KEY, "one");
    new.facts.runner = Runner::Here;
    let session = gateway.store().ensure_session(new).await.expect("a session");
    gateway.say(&session, &["hello"]).await;
    let mut stream = gateway.follow(&format!("/sessions/{}/history?follow=1", encoded(KEY)), &[]).await;
    assert_eq!(stream.event().await.name, "history");
    let access = sess_app::Access::owner();
    let owner = gateway.app.door_caller(&access, None);
    gateway.app.delete_session(&owner, KEY).await.expect("deleted");
    let event = stream.event().await;
    assert_eq!(event.name, "deleted");
    assert_eq!(event.json(), json!({ "sessionKey": KEY, "sessionId": "one" }));
    assert_eq!(stream.next().await, None, "it is over");
}
