//! The WebSocket: every method, what it does and what it refuses.

use std::sync::Arc;

use serde_json::{Value, json};
use sess_app::WritePlan;
use sess_protocol::tokens::Scope;
use sess_store::PostState;

use crate::ws_stage::{Stage, append};

const MAIN: &str = "agent:a:main";

fn chat(message: &str, key: &str) -> Value {
    json!({ "sessionKey": MAIN, "message": message, "idempotencyKey": key })
}

#[tokio::test]
async fn a_message_is_answered_once_however_often_it_is_sent() {
    let stage = Stage::new().await;
    let mut client = stage.client().await;
    client.ask("sessions.subscribe", json!({})).await.expect("subscribed");

    let hanging = client.ask("chat.send", chat("hang", "h")).await.expect("sent");
    assert_eq!(hanging["status"], "started");
    let again = client.ask("chat.send", chat("hang", "h")).await.expect("sent");
    assert_eq!((&again["status"], &again["runId"]), (&json!("in_flight"), &hanging["runId"]));
    let other = client.ask("chat.send", chat("something else", "h")).await.expect_err("another request");
    assert!(other.starts_with("conflict: "), "{other}");
    let timeout = client.ask("agent.wait", json!({ "runId": hanging["runId"], "timeoutMs": 50 })).await;
    assert_eq!(timeout.expect("a status")["status"], "timeout");
    client.changed("run_start").await;
    let stopped = client.ask("chat.abort", json!({ "sessionKey": MAIN })).await.expect("aborted");
    assert_eq!(stopped, json!({ "runIds": [hanging["runId"]] }));
    let ended = client.ask("agent.wait", json!({ "runId": hanging["runId"] })).await.expect("ended");
    assert_eq!(ended["status"], "aborted");
    let again = client.ask("chat.send", chat("hang", "h")).await.expect("sent");
    assert_eq!((&again["status"], &again["runId"]), (&json!("ok"), &hanging["runId"]));
    assert_eq!(
        client.ask("chat.abort", json!({ "sessionKey": MAIN })).await.expect("nothing"),
        json!({ "runIds": [] })
    );

    let sent = client.ask("chat.send", chat("stream one two three", "s")).await.expect("sent");
    let mut streamed = String::new();
    let answer = loop {
        let (name, payload) = client.event().await;
        if name == "run.delta" {
            assert_eq!((&payload["runId"], &payload["sessionKey"]), (&sent["runId"], &json!(MAIN)));
            streamed.push_str(payload["text"].as_str().expect("a text"));
        }
        if name == "session.message" && payload["message"]["role"] == "assistant" {
            break payload;
        }
    };
    assert_eq!(streamed, "one two three");
    assert_eq!(answer["message"]["content"][0]["text"], "one two three");
    assert_eq!((&answer["sessionKey"], &answer["messageSeq"]), (&json!(MAIN), &answer["message"]["seq"]));
    assert_eq!((&answer["usage"]["input"], &answer["usage"]["output"]), (&json!(10), &json!(2)));
    client.changed("run_end").await;

    let page = client.ask("chat.history", json!({ "sessionKey": MAIN, "limit": 1 })).await.expect("a page");
    assert_eq!((&page["hasMore"], &page["items"][0]["seq"]), (&json!(true), &answer["messageSeq"]));
    let before = json!({ "sessionKey": MAIN, "limit": 1000, "cursor": page["nextCursor"] });
    let older = client.ask("chat.history", before).await.expect("a page");
    let said: Vec<&Value> =
        older["items"].as_array().expect("items").iter().map(|item| &item["role"]).collect();
    assert_eq!(said, ["user", "user"], "hang, and stream");

    let row = client.ask("sessions.get", json!({ "key": MAIN })).await.expect("a row");
    assert_eq!((&row["channel"], &row["lastChannel"]), (&json!("webchat"), &json!("webchat")));
}

#[tokio::test]
async fn an_agent_is_asked_and_its_outcome_comes_as_an_event() {
    let stage = Stage::new().await;
    let mut client = stage.client().await;
    let ask = json!({ "message": "hello", "agentId": "b", "idempotencyKey": "1" });
    let accepted = client.ask("agent", ask.clone()).await.expect("accepted");
    assert_eq!(accepted["status"], "accepted");
    let key = accepted["sessionKey"].as_str().expect("a key").to_owned();
    assert!(key.starts_with("agent:b:chat:"), "{key}");
    let outcome = client.event_of("agent").await;
    let expected = json!({ "runId": accepted["runId"], "status": "ok", "reply": "you said: hello" });
    assert_eq!(outcome, expected);
    // After a reconnect, and on another connection, the same run is asked about.
    let mut other = stage.client().await;
    assert_eq!(other.ask("agent.wait", json!({ "runId": accepted["runId"] })).await, Ok(expected.clone()));
    assert_eq!(other.ask("agent", ask).await.expect("the same run"), accepted);
    assert_eq!(other.event_of("agent").await, expected);

    let ask = json!({ "message": "fail", "sessionKey": key, "idempotencyKey": "2" });
    let accepted = client.ask("agent", ask).await.expect("accepted");
    assert_eq!(accepted["sessionKey"], key);
    let outcome = client.event_of("agent").await;
    assert_eq!((&outcome["status"], &outcome["error"]), (&json!("error"), &json!("the model said no")));
    let row = client.ask("sessions.get", json!({ "key": key })).await.expect("a row");
    assert_eq!(row["channel"], "unknown", "a program is no place to announce anything");
    let unknown = client.ask("agent.wait", json!({ "runId": "12345678-1234-4234-8234-123456789012" })).await;
    assert_eq!(
        unknown.expect_err("none"),
        "not_found: run \"12345678-1234-4234-8234-123456789012\" not found"
    );
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_said_with_its_place() {
    let stage = Stage::new().await;
    let mut client = stage.client().await;
    for (method, params, expected) in [
        ("nonsense", json!({}), "invalid_request: unknown method: nonsense"),
        ("Sessions.list", json!({}), "invalid_request: unknown method: Sessions.list"),
        (
            "sessions.list",
            json!({ "limit": "x" }),
            "invalid_request: invalid sessions.list params: limit: invalid type",
        ),
        (
            "sessions.list",
            json!({ "limit": 0 }),
            "invalid_request: invalid sessions.list params: limit: must be from 1 to 200",
        ),
        (
            "sessions.list",
            json!({ "kinds": [7] }),
            "invalid_request: invalid sessions.list params: kinds[0]: ",
        ),
        (
            "sessions.list",
            json!({ "more": 1 }),
            "invalid_request: invalid sessions.list params: more: unknown field",
        ),
        (
            "sessions.list",
            json!([1]),
            "invalid_request: invalid sessions.list params: params: invalid type: an array, expected an object",
        ),
        ("sessions.list", json!({ "kinds": ["x"] }), "invalid_request: kinds: "),
        (
            "sessions.get",
            Value::Null,
            "invalid_request: invalid sessions.get params: key: missing field `key`",
        ),
        ("sessions.get", json!({ "key": "nobody" }), "not_found: Session not found: nobody"),
        ("sessions.get", json!({ "key": "agent:x:y:z\u{0}" }), "invalid_request: malformed session key"),
        ("sessions.resolve", json!({ "key": "agent:c:main" }), "not_found: Session not found: agent:c:main"),
        ("sessions.preview", json!({}), "invalid_request: invalid sessions.preview params: key: missing"),
        (
            "sessions.subscribe",
            json!({ "x": 1 }),
            "invalid_request: invalid sessions.subscribe params: x: unknown",
        ),
        ("sessions.messages.subscribe", json!({ "key": "agent:c:main" }), "not_found: "),
        (
            "sessions.messages.subscribe",
            json!({ "key": MAIN, "fromSeq": -1 }),
            "invalid_request: invalid sessions.messages.subscribe params: fromSeq: invalid value",
        ),
        (
            "sessions.messages.subscribe",
            json!({ "key": MAIN, "fromSeq": 7 }),
            "invalid_request: invalid sessions.messages.subscribe params: fromSeq: give the sessionId",
        ),
        (
            "sessions.messages.subscribe",
            json!({ "key": MAIN, "sessionId": "other" }),
            "invalid_request: invalid sessions.messages.subscribe params: sessionId: ",
        ),
        (
            "chat.history",
            json!({ "sessionKey": MAIN, "limit": 1001 }),
            "invalid_request: invalid chat.history params: limit: must be from 1 to 1000",
        ),
        (
            "chat.history",
            json!({ "sessionKey": MAIN, "cursor": "forged" }),
            "invalid_request: invalid cursor",
        ),
        (
            "chat.send",
            json!({ "sessionKey": MAIN, "message": "x" }),
            "invalid_request: invalid chat.send params: idempotencyKey: missing field",
        ),
        (
            "chat.send",
            json!({ "sessionKey": MAIN, "message": " ", "idempotencyKey": "k" }),
            "invalid_request: message must not be blank",
        ),
        (
            "chat.send",
            json!({ "sessionKey": MAIN, "message": "x", "idempotencyKey": "" }),
            "invalid_request: an idempotency key has 1 to 200 bytes",
        ),
        (
            "chat.send",
            json!({ "sessionKey": "agent:c:main", "message": "x", "idempotencyKey": "k" }),
            "not_found: ",
        ),
        (
            "chat.send",
            json!({ "sessionKey": MAIN, "message": "x", "idempotencyKey": "k", "attachments": ["none"] }),
            "not_found: there is no uploaded file \"none\"",
        ),
        ("chat.abort", json!({ "sessionKey": MAIN, "runId": "none" }), "not_found: run \"none\" not found"),
        (
            "agent",
            json!({ "message": "x", "idempotencyKey": "k" }),
            "invalid_request: invalid agent params: sessionKey: give a session or an agentId",
        ),
        (
            "agent",
            json!({ "message": "x", "idempotencyKey": "k", "agentId": "a", "sessionKey": MAIN }),
            "invalid_request: invalid agent params: agentId: give it or a sessionKey, not both",
        ),
        (
            "agent",
            json!({ "message": "x", "idempotencyKey": "k", "agentId": "NO NAME" }),
            "invalid_request: invalid agent params: agentId: ",
        ),
        (
            "agent",
            json!({ "message": "x", "idempotencyKey": "k", "agentId": "c" }),
            "not_found: there is no agent \"c\"",
        ),
        ("agent.wait", json!({ "runId": "x" }), "not_found: run \"x\" not found: expected a run's id"),
        (
            "agent.wait",
            json!({ "runId": "x", "timeoutMs": 600_001 }),
            "invalid_request: invalid agent.wait params: timeoutMs: must be from 0 to 600000",
        ),
        ("sessions.patch", json!({ "key": MAIN }), "invalid_request: there is nothing to change"),
        (
            "sessions.patch",
            json!({ "key": MAIN, "pinned": true }),
            "invalid_request: invalid sessions.patch params: pinned: unknown field",
        ),
        (
            "sessions.patch",
            json!({ "key": MAIN, "model": "gpt-9" }),
            "invalid_request: model: \"gpt-9\" is none of: obedient, other",
        ),
        (
            "sessions.patch",
            json!({ "key": MAIN, "thinkingLevel": "much" }),
            "invalid_request: thinkingLevel: ",
        ),
        (
            "sessions.patch",
            json!({ "key": MAIN, "verboseLevel": 1 }),
            "invalid_request: invalid sessions.patch params: verboseLevel: invalid type",
        ),
        ("sessions.delete", json!({ "key": MAIN }), "invalid_request: agent:a:main is the main session"),
        ("sessions.reset", json!({ "key": "agent:c:main" }), "not_found: "),
        ("plans.get", json!({ "sessionKey": MAIN }), "not_found: "),
        (
            "plans.review",
            json!({ "sessionKey": MAIN, "revision": 1, "decision": "maybe" }),
            "invalid_request: invalid plans.review params: decision: \"maybe\" is not known",
        ),
        (
            "runs.list",
            json!({ "limit": 0 }),
            "invalid_request: invalid runs.list params: limit: must be from 1",
        ),
        ("agents.list", json!({ "x": 1 }), "invalid_request: invalid agents.list params: x: unknown field"),
    ] {
        let refused = client.ask(method, params.clone()).await.expect_err(method);
        assert!(refused.starts_with(expected), "{method} {params}: {refused}");
    }
    let reader = stage.new_token(&[Scope::Read], None).await;
    let mut reader = stage.client_with(&reader).await;
    for (method, scope) in [
        ("chat.send", "write"),
        ("chat.abort", "write"),
        ("agent", "write"),
        ("sessions.patch", "admin"),
        ("sessions.reset", "admin"),
        ("sessions.delete", "admin"),
        ("plans.review", "review"),
    ] {
        let refused = reader.ask(method, json!({})).await.expect_err(method);
        assert_eq!(refused, format!("forbidden: this token does not have the scope `{scope}`"), "{method}");
    }
}

#[tokio::test]
async fn sessions_are_listed_changed_started_over_and_deleted_and_everybody_hears_of_it() {
    let stage = Stage::new().await;
    let (mut client, mut onlooker) = (stage.client().await, stage.client().await);
    onlooker.ask("sessions.subscribe", json!({})).await.expect("subscribed");
    let talk = stage.session("agent:a:chat:one").await;
    let created = onlooker.changed("created").await;
    assert_eq!(created["session"]["key"], "agent:a:chat:one");
    append(&*stage.store(), &talk, "hello").await;
    let message = onlooker.event_of("session.message").await;
    assert_eq!(message["message"]["content"][0]["text"], "hello");
    let changed = onlooker.changed("message").await;
    assert_eq!(changed["session"]["sessionId"], talk.id.as_str());

    let key = json!({ "key": "agent:a:chat:one" });
    let rows = client.ask("sessions.list", json!({ "search": "ONE" })).await.expect("rows");
    assert_eq!((&rows["count"], &rows["sessions"][0]["key"]), (&json!(1), &key["key"]));
    let resolved =
        client.ask("sessions.resolve", json!({ "key": talk.id.as_str() })).await.expect("resolved");
    assert_eq!(resolved, json!({ "key": key["key"], "sessionId": talk.id.as_str() }));
    let preview = client.ask("sessions.preview", key.clone()).await.expect("a preview");
    assert_eq!(preview["messages"][0]["content"][0]["text"], "hello");
    let agents = client.ask("agents.list", json!({})).await.expect("agents");
    assert_eq!((&agents["entry"], agents["agents"].as_array().map(Vec::len)), (&json!("a"), Some(2)));

    let patch = json!({ "key": key["key"], "sendPolicy": "deny", "model": "other", "thinkingLevel": "high",
        "verboseLevel": "full", "displayName": "A talk", "label": "one" });
    let row = client.ask("sessions.patch", patch).await.expect("patched");
    let fields = ["sendPolicy", "model", "thinkingLevel", "verboseLevel", "displayName", "label"];
    let values: Vec<&Value> = fields.iter().map(|field| &row[*field]).collect();
    assert_eq!(values, ["deny", "other", "high", "full", "A talk", "one"]);
    assert_eq!(onlooker.changed("patched").await["session"]["label"], "one");
    let denied = json!({ "sessionKey": key["key"], "message": "x", "idempotencyKey": "k" });
    let denied = client.ask("chat.send", denied).await.expect_err("denied");
    assert_eq!(denied, "forbidden: send blocked by session policy");
    let clear = json!({ "key": key["key"], "sendPolicy": null, "model": null, "thinkingLevel": null,
        "verboseLevel": null, "displayName": null, "label": null });
    let row = client.ask("sessions.patch", clear).await.expect("patched");
    for field in fields.into_iter().filter(|field| *field != "model") {
        assert!(row.get(field).is_none(), "{row}");
    }
    client.ask("sessions.patch", json!({ "key": key["key"], "archived": true })).await.expect("archived");
    onlooker.changed("archived").await;
    let rows = client.ask("sessions.list", json!({})).await.expect("rows");
    assert_eq!(rows["count"], 0);
    client.ask("sessions.patch", json!({ "key": key["key"], "archived": null })).await.expect("brought back");

    let busy = json!({ "sessionKey": key["key"], "message": "hang", "idempotencyKey": "busy" });
    client.ask("chat.send", busy).await.expect("sent");
    for method in ["sessions.reset", "sessions.delete"] {
        let refused = client.ask(method, key.clone()).await.expect_err("busy");
        assert!(refused.starts_with("conflict: session agent:a:chat:one is busy"), "{refused}");
    }
    let stopped = client.ask("chat.abort", json!({ "sessionKey": key["key"] })).await.expect("aborted");
    client.ask("agent.wait", json!({ "runId": stopped["runIds"][0] })).await.expect("ended");

    let row = client.ask("sessions.reset", key.clone()).await.expect("started over");
    assert_eq!((&row["key"], row["sessionId"] == talk.id.as_str()), (&key["key"], false));
    assert_eq!(onlooker.changed("reset").await["session"]["sessionId"], row["sessionId"]);
    let page = client.ask("chat.history", json!({ "sessionKey": key["key"] })).await.expect("a page");
    assert_eq!((&page["sessionId"], &page["items"]), (&row["sessionId"], &json!([])));
    let old = client.ask("chat.history", json!({ "sessionKey": talk.id.as_str() })).await.expect("a page");
    assert_eq!(old["items"][0]["content"][0]["text"], "hello");

    let deleted = client.ask("sessions.delete", key.clone()).await.expect("deleted");
    assert_eq!(deleted, json!({ "deleted": true, "key": key["key"] }));
    assert!(onlooker.changed("deleted").await.get("session").is_none());
    for gone in [&key["key"], &json!(talk.id.as_str())] {
        let gone = client.ask("sessions.get", json!({ "key": gone })).await.expect_err("gone");
        assert!(gone.starts_with("not_found: "), "{gone}");
    }
    onlooker.ask("sessions.unsubscribe", json!({})).await.expect("left");
}

#[tokio::test]
async fn plans_are_read_and_reviewed() {
    let stage = Stage::new().await;
    let (mut client, mut onlooker) = (stage.client().await, stage.client().await);
    onlooker.ask("sessions.subscribe", json!({})).await.expect("subscribed");
    let talk = stage.session("agent:a:chat:planned").await;
    let caller = stage.app.door_caller(&sess_app::Access::owner(), None);
    let write = WritePlan { content: "# The plan".to_owned(), ..WritePlan::default() };
    stage.app.write_plan_of(&caller, talk.id.as_str(), write).await.expect("written");
    assert_eq!(onlooker.event_of("session_plan_updated").await["revision"], 1);
    let plan =
        client.ask("plans.get", json!({ "sessionKey": "agent:a:chat:planned" })).await.expect("a plan");
    assert_eq!((&plan["content"], &plan["state"]), (&json!("# The plan"), &json!("draft")));
    let author = stage.app.act_in(&caller, &talk).await.expect("the owner may");
    stage.app.exit_plan_mode(&author).await.expect("ready");
    assert_eq!(onlooker.event_of("session_plan_state").await["state"], "ready");
    let review = json!({ "sessionKey": "agent:a:chat:planned", "revision": 1, "decision": "request_changes",
        "note": "shorter" });
    let state = client.ask("plans.review", review).await.expect("reviewed");
    assert_eq!(state["state"], "changes_requested");
    let told = onlooker.event_of("session_plan_state").await;
    assert_eq!((&told["state"], &told["note"]), (&json!("changes_requested"), &json!("shorter")));
    let stale = json!({ "sessionKey": "agent:a:chat:planned", "revision": 7, "decision": "approve" });
    let stale = client.ask("plans.review", stale).await.expect_err("stale");
    assert!(stale.starts_with("conflict: "), "{stale}");
}

#[tokio::test]
async fn a_token_for_one_agent_sees_nothing_else() {
    let stage = Stage::new().await;
    let token = stage.new_token(&[Scope::Admin], Some("a")).await;
    let mut client = stage.client_with(&token).await;
    client.ask("sessions.subscribe", json!({})).await.expect("subscribed");
    let (own, other) = (stage.session("agent:a:chat:own").await, stage.session("agent:b:chat:other").await);
    append(&*stage.store(), &other, "not for a").await;
    append(&*stage.store(), &own, "for a").await;
    loop {
        let (name, payload) = client.event().await;
        assert!(!payload.to_string().contains("agent:b:"), "{payload}");
        if name == "session.message" {
            assert_eq!(payload["message"]["content"][0]["text"], "for a");
            break;
        }
    }
    let rows = client.ask("sessions.list", json!({})).await.expect("rows");
    assert_eq!((&rows["total"], &rows["sessions"][0]["key"]), (&json!(1), &json!("agent:a:chat:own")));
    let key = json!({ "key": "agent:b:chat:other" });
    for (method, params) in [
        ("sessions.get", key.clone()),
        ("sessions.resolve", json!({ "key": other.id.as_str() })),
        ("sessions.preview", key.clone()),
        ("sessions.messages.subscribe", key.clone()),
        ("sessions.patch", json!({ "key": key["key"], "label": "mine" })),
        ("sessions.reset", key.clone()),
        ("sessions.delete", key.clone()),
        ("chat.history", json!({ "sessionKey": key["key"] })),
        ("chat.send", json!({ "sessionKey": key["key"], "message": "x", "idempotencyKey": "k" })),
        ("chat.abort", json!({ "sessionKey": key["key"] })),
        ("plans.get", json!({ "sessionKey": key["key"] })),
        ("agent", json!({ "message": "x", "agentId": "b", "idempotencyKey": "k" })),
        ("agent", json!({ "message": "x", "sessionKey": key["key"], "idempotencyKey": "k" })),
    ] {
        let refused = client.ask(method, params.clone()).await.expect_err(method);
        assert!(refused.starts_with("not_found: "), "{method}: {refused}");
    }
    let review = json!({ "sessionKey": "agent:a:chat:own", "revision": 1, "decision": "approve" });
    let refused = client.ask("plans.review", review).await.expect_err("not the person");
    assert_eq!(refused, "forbidden: this token does not have the scope `review`");
}

#[tokio::test]
async fn files_come_with_a_message_or_are_refused_with_a_sentence() {
    let stage = Stage::new().await;
    let caller = stage.app.door_caller(&sess_app::Access::owner(), None);
    let chat = |files: &[(&str, &str, &[u8])], key: &str| sess_app::Chat {
        to: sess_app::ChatTo::Session(MAIN.to_owned()),
        message: "hang".to_owned(),
        files: files
            .iter()
            .map(|(name, mime_type, bytes)| sess_app::ChatFile {
                name: (*name).to_owned(),
                mime_type: (*mime_type).to_owned(),
                bytes: bytes.to_vec(),
            })
            .map(Arc::new)
            .collect(),
        idempotency_key: Some(key.to_owned()),
        through: sess_app::Through::Webchat,
    };
    let png = b"\x89PNG\r\n\x1a\nrest".as_slice();
    let files = [("a.png", "image/png", png), ("notes.md", "text/markdown", b"# Notes".as_slice())];
    let sent = stage.app.chat(&caller, chat(&files, "1")).await.expect("sent");
    let mut client = stage.client().await;
    let subscribe = json!({ "key": MAIN, "sessionId": sent.session.as_str(), "fromSeq": 0 });
    client.ask("sessions.messages.subscribe", subscribe).await.expect("subscribed");
    let content = client.event_of("session.message").await["message"]["content"].clone();
    assert_eq!(content[0], json!({ "type": "text", "text": "hang" }));
    assert_eq!((&content[1]["type"], &content[1]["mimeType"]), (&json!("image"), &json!("image/png")));
    assert_eq!(content[2]["text"], "File \"notes.md\":\n\n# Notes");
    let other = stage.app.chat(&caller, chat(&files[..1], "1")).await.expect_err("another request");
    assert_eq!(other.kind(), sess_app::Kind::Conflict);
    let large = vec![b'x'; 256 * 1024 + 1];
    for (file, expected) in [
        (("x", "image/png", b"GIF89a".as_slice()), "the file \"x\" is not image/png"),
        (("x", "application/zip", b"\xff\xfe".as_slice()), "the file \"x\" is neither an image"),
        (("x", "text/plain", b"a\0b".as_slice()), "the file \"x\" is neither an image"),
        (("x", "text/plain", large.as_slice()), "the file \"x\" is too large"),
    ] {
        let refused = stage.app.chat(&caller, chat(&[file], "2")).await.expect_err("refused").to_string();
        assert!(refused.starts_with(expected), "{refused}");
    }
    client.ask("chat.abort", json!({ "sessionKey": MAIN })).await.expect("aborted");
}

#[tokio::test]
async fn what_a_session_announces_in_the_web_chat_appears_there_once() {
    let stage = Stage::new().await;
    let mut client = stage.client().await;
    let sent = client.ask("chat.send", chat("say hello", "1")).await.expect("sent");
    client.ask("agent.wait", json!({ "runId": sent["runId"] })).await.expect("ended");

    // Another session sends it something, and so it announces what came of it.
    let b = stage.session("agent:b:main").await;
    let store = stage.store();
    let a = store.session_by_key(&MAIN.parse().expect("a key")).await.expect("readable").expect("there");
    crate::ws_stage::send(&*store, &b, &a, "hello from b").await;
    let mut changes = store.changes();
    let posts = loop {
        changes.mark_unchanged();
        let posts = store.posts(Some(&a.id), 10).await.expect("readable");
        if posts.iter().any(|post| post.state != PostState::Waiting) {
            break posts;
        }
        tokio::time::timeout(std::time::Duration::from_secs(30), changes.changed())
            .await
            .expect("in time")
            .expect("open");
    };
    assert_eq!(posts.len(), 1, "{posts:?}");
    assert_eq!((posts[0].state, posts[0].tries), (PostState::Delivered, 1));
    let page = client.ask("chat.history", json!({ "sessionKey": MAIN })).await.expect("a page");
    let said = page["items"]
        .as_array()
        .expect("items")
        .iter()
        .filter(|item| item["role"] == "assistant" && item["content"][0]["text"] == "announced words");
    assert_eq!(said.count(), 1, "{page}");
}
