//! What the routes do: sessions, messages, runs, plans, files, the page and what it says of itself.

use serde_json::{Value, json};
use sess_core::session::Session;

use crate::gateway::{Gateway, encoded, new_session};

const KEY: &str = "agent:main:chat:s-1";

fn keys(rows: &Value) -> Vec<&str> {
    rows["sessions"].as_array().expect("rows").iter().filter_map(|row| row["key"].as_str()).collect()
}

async fn titled(gateway: &Gateway, key: &str, id: &str, title: &str) -> Session {
    let mut new = new_session(key, id);
    new.title = title.to_owned();
    gateway.store().ensure_session(new).await.expect("a session")
}

#[tokio::test]
async fn sessions_are_listed_searched_and_paged() {
    let gateway = Gateway::start().await;
    let first = titled(&gateway, "agent:main:chat:a-1", "a-1", "Fix the parser").await;
    let second = titled(&gateway, "agent:main:chat:b-2", "b-2", "100% of_it").await;
    titled(&gateway, "agent:other:chat:c-3", "c-3", "fix nothing").await;
    gateway.say(&second, &["hello"]).await;
    gateway.say(&first, &["newest"]).await;
    let list = |query: &'static str| {
        let gateway = &gateway;
        async move { gateway.get(&format!("/sessions{query}")).await.json() }
    };
    let all = list("").await;
    assert_eq!((all["count"].as_u64(), all["total"].as_u64()), (Some(3), Some(3)));
    let (one, two) = (list("?limit=1").await, list("?limit=2&offset=1").await);
    let paged: Vec<&str> = keys(&one).into_iter().chain(keys(&two)).collect();
    assert_eq!(paged, keys(&all), "pages follow each other");
    assert_eq!(keys(&list("?agent=other").await), ["agent:other:chat:c-3"]);
    let mut found = list("?search=FIX").await;
    assert_eq!(found["total"], 2);
    found = list("?search=fix&agent=main").await;
    assert_eq!(keys(&found), ["agent:main:chat:a-1"]);
    assert_eq!(keys(&list("?search=100%25").await), ["agent:main:chat:b-2"]);
    assert_eq!(keys(&list("?search=%25parser").await), Vec::<&str>::new(), "a sign is itself");
    assert_eq!(keys(&list("?search=f_it").await), ["agent:main:chat:b-2"]);
    assert_eq!(keys(&list("?search=c-3").await), ["agent:other:chat:c-3"]);
    assert_eq!(keys(&list("?kinds=main,cron").await), Vec::<&str>::new());
    assert_eq!(
        list("?kinds=other&messageLimit=1&search=parser").await["sessions"][0]["messages"][0]["seq"],
        1
    );
    let owner = gateway.app.door_caller(&sess_app::Access::owner(), None);
    gateway.app.archive(&owner, &first, true).await.expect("archived");
    assert_eq!(list("").await["total"], 2);
    assert_eq!(list("?archived=1").await["total"], 3);
    for wrong in
        ["limit=0", "limit=201", "offset=-1", "activeMinutes=x", "kinds=nope", "agent=%20", "archived=maybe"]
    {
        let answer = gateway.get(&format!("/sessions?{wrong}")).await;
        let name = wrong.split('=').next().expect("a name");
        assert_eq!(answer.error(), "invalid_request", "{wrong}");
        assert!(answer.message().contains(name), "{wrong}: {}", answer.message());
    }
    let row =
        gateway.get(&format!("/sessions/{}?messageLimit=2", encoded("agent:main:chat:a-1"))).await.json();
    assert_eq!((row["sessionId"].as_str(), row["title"].as_str()), (Some("a-1"), Some("Fix the parser")));
    assert_eq!(row["messages"][0]["content"][0]["text"], "newest");
}

#[tokio::test]
async fn a_message_is_sent_waited_for_and_answered() {
    let gateway = Gateway::start().await;
    gateway.session(KEY, "s-1").await;
    let ask = json!({ "message": "how far are you?", "timeoutSeconds": 0, "idempotencyKey": "k-1" });
    let sent = gateway.post("/sessions/s-1/send", &ask).await.json();
    assert_eq!((sent["status"].as_str(), sent["sessionKey"].as_str()), (Some("accepted"), Some(KEY)));
    let again = gateway.post("/sessions/s-1/send", &ask).await.json();
    assert_eq!(sent["runId"], again["runId"], "the same key is the same run");
    let run = sent["runId"].as_str().expect("a run").to_owned();
    let runs = gateway.get("/runs").await.json();
    assert_eq!(runs["runs"].as_array().map(Vec::len), Some(1));
    let row = gateway.get(&format!("/runs/{run}")).await.json();
    assert_eq!((row["state"].as_str(), row["sessionId"].as_str()), (Some("queued"), Some("s-1")));
    let waited = gateway.post(&format!("/runs/{run}/wait"), &json!({ "timeoutMs": 10 })).await.json();
    assert_eq!(waited, json!({ "runId": run, "status": "timeout" }));
    // Its session answers while somebody waits.
    let (app, asked) = (gateway.app.clone(), run.clone());
    let reply = async move {
        let signals = sess_app::Signals { explicit: Some("s-1".to_owned()), ..Default::default() };
        app.reply(&app.caller(&signals), &asked, "almost there").await.expect("a reply");
    };
    let path = format!("/runs/{run}/wait");
    let (waited, ()) = tokio::join!(gateway.ask("POST", &path, Some(&gateway.token), None), reply);
    assert_eq!(waited.json(), json!({ "runId": run, "status": "ok", "reply": "almost there" }));
    let cancelled = gateway.ask("POST", &format!("/runs/{run}/cancel"), Some(&gateway.token), None).await;
    assert!(cancelled.status == 200 || cancelled.status == 409, "{}", cancelled.status);
    let second = gateway
        .post("/sessions/s-1/send", &json!({ "message": "and now?", "timeoutSeconds": 0 }))
        .await
        .json();
    let second = second["runId"].as_str().expect("a run").to_owned();
    let cancelled =
        gateway.ask("POST", &format!("/runs/{second}/cancel"), Some(&gateway.token), None).await.json();
    assert_eq!(cancelled["state"], "cancelled");
    let waited =
        gateway.ask("POST", &format!("/runs/{second}/wait"), Some(&gateway.token), None).await.json();
    assert_eq!(waited["status"], "aborted");
    let unknown = "0190aaaa-0000-7000-8000-000000000000";
    for (method, path) in [("GET", ""), ("POST", "/wait"), ("POST", "/cancel")] {
        let answer = gateway.ask(method, &format!("/runs/{unknown}{path}"), Some(&gateway.token), None).await;
        assert_eq!((answer.status, answer.error().as_str()), (404, "not_found"), "{path}");
    }
    assert_eq!(gateway.get("/runs/x").await.status, 404);
    assert_eq!(
        gateway.post(&format!("/runs/{run}/wait"), &json!({ "timeoutMs": 600_001 })).await.status,
        400
    );
}

#[tokio::test]
async fn a_plan_is_written_read_and_reviewed() {
    let gateway = Gateway::start().await;
    gateway.session(KEY, "s-1").await;
    let path = "/sessions/s-1/plan";
    assert_eq!(gateway.get(path).await.error(), "not_found");
    let put = |body: Value| {
        let gateway = &gateway;
        async move { gateway.ask("PUT", path, Some(&gateway.token), Some(&body)).await }
    };
    let written = put(json!({ "content": "# One", "expectedRevision": 0 })).await;
    assert_eq!(written.json(), json!({ "sessionId": "s-1", "revision": 1, "state": "draft" }));
    let conflict = put(json!({ "content": "# Other", "expectedRevision": 0 })).await;
    assert_eq!((conflict.status, conflict.error().as_str()), (409, "conflict"));
    assert_eq!(put(json!({ "content": "# Two", "expectedRevision": 1 })).await.json()["revision"], 2);
    let view = gateway.get(path).await.json();
    assert_eq!((view["content"].as_str(), view["revision"].as_u64()), (Some("# Two"), Some(2)));
    assert_eq!(view["revisions"].as_array().map(Vec::len), Some(2));
    assert_eq!(gateway.get(&format!("{path}?revision=1")).await.json()["content"], "# One");
    assert_eq!(gateway.get(&format!("{path}?revision=9")).await.error(), "not_found");
    assert_eq!(gateway.get(&format!("{path}?revision=0")).await.error(), "invalid_request");
    let review = format!("{path}/review");
    let late = gateway.post(&review, &json!({ "revision": 1, "decision": "approve" })).await;
    assert_eq!((late.status, late.error().as_str()), (409, "conflict"));
    let ask = json!({ "revision": 2, "decision": "request_changes", "note": "shorter" });
    let early = gateway.post(&review, &ask).await;
    assert_eq!(early.status, 409, "nobody has said that it is ready: {}", early.message());
    let signals = sess_app::Signals { explicit: Some("s-1".to_owned()), ..Default::default() };
    gateway.app.exit_plan_mode(&gateway.app.caller(&signals)).await.expect("ready");
    assert_eq!(gateway.post(&review, &ask).await.json()["state"], "changes_requested");
    assert_eq!(gateway.post(&review, &json!({ "revision": 2, "decision": "maybe" })).await.status, 400);
    assert_eq!(put(json!({ "content": "" })).await.error(), "invalid_request");
}

#[tokio::test]
async fn a_file_is_taken_and_kept_within_bounds() {
    let gateway = Gateway::start_limited(|limits| limits.attachments_bytes = 100).await;
    let bearer = format!("Bearer {}", gateway.token);
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "text/plain")];
    let upload = |name: &'static str, body: Vec<u8>| {
        let gateway = &gateway;
        async move { gateway.request("POST", &format!("/attachments?name={name}"), &headers, &body).await }
    };
    let taken = upload("notes%20%C3%A4.txt", b"hello".to_vec()).await;
    assert_eq!(taken.status, 201);
    let taken = taken.json();
    assert_eq!(
        (taken["name"].as_str(), taken["mimeType"].as_str(), taken["sizeBytes"].as_u64()),
        (Some("notes ä.txt"), Some("text/plain"), Some(5))
    );
    assert_eq!(taken["id"].as_str().map(str::len), Some(32));
    let full = upload("more", vec![b'x'; 96]).await;
    assert_eq!((full.status, full.error().as_str()), (503, "unavailable"));
    assert_eq!(upload("%0a", b"x".to_vec()).await.error(), "invalid_request");
}

#[tokio::test]
async fn the_page_and_its_files_are_there_for_everybody() {
    let gateway = Gateway::start().await;
    for (path, kind) in [
        ("/", "text/html; charset=utf-8"),
        ("/app.js", "text/javascript; charset=utf-8"),
        ("/app.css", "text/css; charset=utf-8"),
        ("/icon.svg", "image/svg+xml"),
    ] {
        let answer = gateway.request("GET", path, &[], b"").await;
        assert_eq!((answer.status, answer.header("content-type")), (200, Some(kind)), "{path}");
        assert!(!answer.body.is_empty());
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
        assert_eq!(
            answer.header("content-security-policy"),
            Some(
                "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; \
                 connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; \
                 frame-ancestors 'none'"
            )
        );
        let version = answer.header("etag").expect("a version").to_owned();
        let same = gateway.request("GET", path, &[("If-None-Match", &version)], b"").await;
        assert_eq!((same.status, same.body.len()), (304, 0), "{path}");
        let head = gateway.request("HEAD", path, &[], b"").await;
        assert_eq!((head.status, head.body.len()), (200, 0), "{path}");
        let wrong = gateway.request("POST", path, &[], b"").await;
        assert_eq!((wrong.status, wrong.header("allow")), (405, Some("GET")), "{path}");
    }
    let answer = gateway.get("/sessions").await;
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(answer.header("access-control-allow-origin"), None);
}

#[tokio::test]
async fn counters_tell_what_happens_and_no_secrets() {
    let gateway = Gateway::start().await;
    let session = gateway.session(KEY, "s-1").await;
    let mut stream = gateway.follow("/sessions/s-1/history?follow=1", &[]).await;
    assert_eq!(stream.event().await.name, "history");
    gateway.say(&session, &["one"]).await;
    assert_eq!(stream.event().await.name, "message");
    gateway.ask("GET", "/sessions", Some("sess_wrong"), None).await;
    let text = String::from_utf8(gateway.get("/metrics").await.body).expect("text");
    for line in [
        "sess_followers 1",
        "sess_deliveries_total 1",
        "sess_refused_logins_total 1",
        "sess_http_requests_total{status=\"4xx\"} 1",
        "sess_lags_total 0",
    ] {
        assert!(text.lines().any(|other| other == line), "{line}: {text}");
    }
    assert!(!text.contains(&gateway.token) && !text.contains("s-1"), "{text}");
}

#[tokio::test]
async fn the_description_is_the_committed_one() {
    let gateway = Gateway::start().await;
    let served = gateway.get("/openapi.json").await.json();
    let committed = include_str!("../../../../docs/openapi.json");
    let committed: Value = serde_json::from_str(committed).expect("JSON");
    assert!(
        served == committed,
        "docs/openapi.json is not what the routes say: cargo run -p sess-server --example openapi > docs/openapi.json"
    );
    assert_eq!(served["openapi"], "3.1.0");
    // Whatever is referred to is there.
    let text = served.to_string();
    for part in text.split("\"$ref\":\"#").skip(1) {
        let pointer = part.split('"').next().expect("a reference");
        assert!(served.pointer(pointer).is_some(), "{pointer}");
    }
}

#[tokio::test]
async fn agents_are_listed_when_there_are_any() {
    let gateway = Gateway::start().await;
    assert_eq!(gateway.get("/agents").await.json(), json!({ "agents": [] }));
}
