//! Who gets in: every route with every kind of token, hosts and origins, logging in and out.

use std::{collections::BTreeSet, time::Duration};

use serde_json::{Value, json};
use sess_app::NewToken;
use sess_protocol::tokens::Scope;
use sess_server::gateway;

use crate::gateway::{Gateway, encoded};

/// Returns each route: method, path with something in its places, and the scope that it needs.
fn routes() -> Vec<(String, String, Option<Scope>)> {
    let openapi = gateway::openapi();
    let mut routes = Vec::new();
    for (path, operations) in openapi["paths"].as_object().expect("paths") {
        let filled = path
            .replace("{sessionKey}", &encoded("agent:main:chat:s-1"))
            .replace("{runId}", "0190aaaa-0000-7000-8000-000000000000")
            .replace("{tokenId}", "0123456789abcdef");
        for (method, operation) in operations.as_object().expect("operations") {
            let is_open = operation["security"] == json!([]);
            let about = operation["description"].as_str().unwrap_or_default();
            let scope = Scope::ALL.into_iter().find(|scope| about.contains(&format!("`{}`", scope.as_str())));
            assert_eq!(is_open, scope.is_none(), "{method} {path} says who may ask");
            routes.push((method.to_ascii_uppercase(), filled.clone(), scope));
        }
    }
    routes
}

#[tokio::test]
async fn no_route_answers_without_a_token_that_counts() {
    let gateway = Gateway::start_limited(|limits| limits.failed_logins = 1_000_000).await;
    gateway.session("agent:main:chat:s-1", "s-1").await;
    let revoked = gateway.scoped(Scope::Admin).await;
    let id = gateway.app.tokens().await.expect("tokens")[0].id.clone();
    gateway.app.revoke_token(&id).await.expect("revoked");
    let expires_in = Some(Duration::ZERO);
    let expired =
        gateway.new_token(NewToken { scopes: vec![Scope::Admin], expires_in, ..NewToken::default() }).await;
    let truncated = &gateway.token[..gateway.token.len() - 1];
    let longer = format!("{}0", gateway.token);
    let code = gateway.app.login_code().await.expect("a code");
    let wrong = "sess_0000000000000000000000000000000000000000000000000000000000000000";
    let bearers = ["", " ", wrong, truncated, &longer, &revoked, &expired, code.reveal(), "null", "*"];
    let mut seen = BTreeSet::new();
    for (method, path, scope) in routes() {
        seen.insert(path.clone());
        if scope.is_none() {
            continue;
        }
        let none = gateway.request(&method, &path, &[], b"").await;
        assert_eq!((none.status, none.error().as_str()), (401, "unauthorized"), "{method} {path}");
        assert_eq!(none.header("www-authenticate"), Some("Bearer"));
        for bearer in bearers {
            let header = format!("Bearer {bearer}");
            let answer = gateway.request(&method, &path, &[("Authorization", &header)], b"").await;
            assert_eq!(
                (answer.status, answer.error().as_str()),
                (401, "unauthorized"),
                "{method} {path} {bearer:?}"
            );
            let cookie = format!("sess={bearer}");
            let answer = gateway.request(&method, &path, &[("Cookie", &cookie)], b"").await;
            assert_eq!(answer.status, 401, "{method} {path} cookie {bearer:?}");
        }
        let owner = &gateway.token;
        let (bearer, basic) = (format!("Bearer {owner}"), format!("Basic {owner}"));
        let twice = [("Authorization", bearer.as_str()), ("Authorization", bearer.as_str())];
        assert_eq!(gateway.request(&method, &path, &twice, b"").await.status, 401, "{method} {path} twice");
        for other in [&basic, owner] {
            let answer = gateway.request(&method, &path, &[("Authorization", other)], b"").await;
            assert_eq!(answer.status, 401, "{method} {path}");
        }
        // What a token may be in is a header or a cookie, and no address.
        let separator = if path.contains('?') { '&' } else { '?' };
        let named = format!("{path}{separator}token={owner}");
        assert_eq!(gateway.request(&method, &named, &[], b"").await.status, 401, "{method} {path}");
    }
    assert!(seen.len() > 20, "the table was read");
    for path in ["/nothing", "/sessions/", "/sessions//history", "/../sessions", "/tokens/a/b", "/%2e%2e/x"] {
        assert_eq!(gateway.request("GET", path, &[], b"").await.status, 401, "{path}");
        assert_eq!(gateway.get(path).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn a_token_does_what_it_was_made_for_and_nothing_else() {
    let gateway = Gateway::start().await;
    gateway.session("agent:main:chat:s-1", "s-1").await;
    let mut tokens = Vec::new();
    for scope in Scope::ALL {
        tokens.push((scope, gateway.scoped(scope).await));
    }
    for (method, path, needed) in routes() {
        let Some(needed) = needed else { continue };
        // What would wait or never ends is left out: it is enough that nobody is refused.
        if path.starts_with("/mcp") {
            continue;
        }
        for (held, token) in &tokens {
            let answer = gateway.ask(&method, &path, Some(token), None).await;
            let is_allowed = *held == Scope::Admin || *held == needed;
            let what = format!("{method} {path} needs {needed:?}, has {held:?}: {}", answer.status);
            if is_allowed {
                assert!(answer.status != 401 && answer.status != 403, "{what}");
            } else {
                assert_eq!((answer.status, answer.error().as_str()), (403, "forbidden"), "{what}");
            }
        }
    }
}

#[tokio::test]
async fn a_foreign_host_or_origin_is_refused_before_anything_else() {
    let gateway = Gateway::start_with(|options| options.names = vec!["gate.example".to_owned()]).await;
    let port = gateway.address.port();
    let bearer = format!("Bearer {}", gateway.token);
    let own = format!("http://127.0.0.1:{port}");
    for (method, path, _) in routes() {
        if path.starts_with("/mcp") || path == "/ws" {
            // The same door; what is behind it is tested where it is written.
        }
        for foreign in [
            vec![("Host", "evil.example")],
            vec![("Host", "evil.example"), ("Authorization", bearer.as_str())],
            vec![("Origin", "http://evil.example"), ("Authorization", bearer.as_str())],
            vec![("Origin", "null"), ("Authorization", bearer.as_str())],
            vec![
                ("Origin", own.as_str()),
                ("Origin", "http://evil.example"),
                ("Authorization", bearer.as_str()),
            ],
        ] {
            let answer = gateway.request(&method, &path, &foreign, b"").await;
            assert_eq!(
                (answer.status, answer.error().as_str()),
                (403, "forbidden"),
                "{method} {path} {foreign:?}"
            );
            assert_eq!(answer.header("access-control-allow-origin"), None);
        }
    }
    let asked = |headers: Vec<(&'static str, String)>, method: &'static str| {
        let (gateway, bearer) = (&gateway, &bearer);
        async move {
            let mut all = vec![("Authorization", bearer.as_str())];
            all.extend(headers.iter().map(|(name, value)| (*name, value.as_str())));
            gateway.request(method, "/sessions", &all, b"").await.status
        }
    };
    let host = |host: &str| vec![("Host", host.to_owned())];
    assert_eq!(asked(host(&format!("localhost:{port}")), "GET").await, 200);
    assert_eq!(asked(host("gate.example"), "GET").await, 200);
    assert_eq!(asked(host("localhost"), "GET").await, 403);
    let origin = |origin: String| vec![("Origin", origin)];
    assert_eq!(asked(origin(own.clone()), "GET").await, 200);
    assert_eq!(asked(origin("http://localhost:3000".to_owned()), "GET").await, 403);
    // A browser asks first whether it may: it may not.
    let answer = asked(origin("http://evil.example".to_owned()), "OPTIONS").await;
    assert_eq!(answer, 403);
    let site = |site: &str| vec![("Sec-Fetch-Site", site.to_owned())];
    assert_eq!(asked(site("cross-site"), "POST").await, 403);
    assert_eq!(asked(site("same-site"), "POST").await, 403);
    assert_eq!(asked(site("same-origin"), "POST").await, 405);
    // Lines that no well-behaved client writes.
    for head in [
        "GET /sessions HTTP/1.1\r\n".to_owned(),
        format!("GET /sessions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nHost: evil.example\r\n"),
        format!("GET http://evil.example/sessions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"),
        "GET /sessions HTTP/1.1\r\nHost: \r\n".to_owned(),
        "GET /sessions HTTP/1.0\r\n".to_owned(),
    ] {
        let request = format!("{head}Authorization: {bearer}\r\nConnection: close\r\n\r\n");
        let answer = gateway.raw(request.as_bytes()).await;
        assert!(answer.status == 403 || answer.status == 400, "{head}: {}", answer.status);
    }
}

#[tokio::test]
async fn wrong_tokens_are_counted_and_nothing_a_client_sends_stops_that() {
    let gateway = Gateway::start_limited(|limits| limits.failed_logins = 5).await;
    let known = gateway.scoped(Scope::Read).await;
    assert_eq!(gateway.ask("GET", "/sessions", Some(&known), None).await.status, 200);
    let mut statuses = Vec::new();
    for n in 0..40 {
        let bearer = format!("Bearer sess_{n}");
        let forwarded = format!("10.0.0.{n}");
        let headers = [
            ("Authorization", bearer.as_str()),
            ("X-Forwarded-For", forwarded.as_str()),
            ("X-Real-IP", forwarded.as_str()),
            ("Forwarded", "for=192.0.2.1"),
            ("User-Agent", bearer.as_str()),
        ];
        let answer = gateway.request("GET", "/sessions", &headers, b"").await;
        if answer.status == 429 {
            let seconds: u64 = answer.header("retry-after").expect("when").parse().expect("seconds");
            assert!((1..=61).contains(&seconds));
            assert_eq!(answer.error(), "rate_limited");
        }
        statuses.push(answer.status);
    }
    assert_eq!(statuses[..5], [401; 5]);
    assert_eq!(statuses[5..], [429; 35]);
    // Neither is a code that is wrong looked at any longer, nor the right token that was never seen before.
    assert_eq!(gateway.post("/login", &json!({ "code": "sess_0" })).await.status, 429);
    assert_eq!(gateway.get("/sessions").await.status, 429);
    // Who was let in before goes on.
    assert_eq!(gateway.ask("GET", "/sessions", Some(&known), None).await.status, 200);
    assert_eq!(gateway.request("GET", "/healthz", &[], b"").await.status, 200);
}

#[tokio::test]
async fn a_page_logs_in_once_with_a_link_and_out_again() {
    let gateway = Gateway::start().await;
    let code = gateway.app.login_code().await.expect("a code");
    let ask = json!({ "code": code.reveal() });
    let answer = gateway.ask("POST", "/login", None, Some(&ask)).await;
    assert_eq!(answer.status, 200, "{}", answer.json());
    assert_eq!(answer.json(), json!({ "scopes": ["admin"] }));
    let cookie = answer.header("set-cookie").expect("a cookie").to_owned();
    for part in ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age="] {
        assert!(cookie.contains(part), "{part}");
    }
    assert!(!cookie.contains("Secure") && !cookie.contains("Domain"), "{cookie}");
    let held = cookie.split(';').next().expect("a pair").to_owned();
    let again = gateway.ask("POST", "/login", None, Some(&ask)).await;
    assert_eq!((again.status, again.error().as_str()), (401, "unauthorized"));
    let with = |headers: Vec<(&'static str, String)>, method: &'static str, path: &'static str| {
        let gateway = &gateway;
        async move {
            let headers: Vec<(&str, &str)> =
                headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
            gateway.request(method, path, &headers, b"").await
        }
    };
    let own = vec![("Cookie", format!("other=1; {held}"))];
    assert_eq!(with(own.clone(), "GET", "/sessions").await.status, 200);
    let out = with(own.clone(), "POST", "/logout").await;
    assert_eq!(out.status, 204);
    assert!(out.header("set-cookie").expect("a cookie").contains("Max-Age=0"));
    assert_eq!(with(own, "GET", "/sessions").await.status, 401);
    // A pasted token does as well, with the rights that it has.
    let token = gateway.scoped(Scope::Read).await;
    let answer = gateway.ask("POST", "/login", None, Some(&json!({ "token": token }))).await;
    assert_eq!(answer.json(), json!({ "scopes": ["read"] }));
    for wrong in [json!({}), json!({ "code": "a", "token": "b" }), json!({ "code": 1 }), json!({ "x": 1 })] {
        assert_eq!(gateway.ask("POST", "/login", None, Some(&wrong)).await.status, 400, "{wrong}");
    }
    let form = [("Content-Type", "application/x-www-form-urlencoded")];
    assert_eq!(gateway.request("POST", "/login", &form, b"code=1").await.status, 400);
}

#[tokio::test]
async fn a_token_is_never_wider_than_its_maker_and_can_be_revoked() {
    let gateway = Gateway::start().await;
    let made = gateway.post("/tokens", &json!({ "scopes": ["admin"], "agent": "main", "label": "ci" })).await;
    assert_eq!(made.status, 201, "{}", made.json());
    let (body, narrow) = (made.json(), made.json()["secret"].as_str().expect("a secret").to_owned());
    assert_eq!(body["token"]["agent"], "main");
    for wider in [
        json!({ "scopes": ["admin"] }),
        json!({ "scopes": ["read"] }),
        json!({ "scopes": ["read"], "agent": "other" }),
        json!({ "scopes": ["review"], "agent": "main" }),
    ] {
        let answer = gateway.ask("POST", "/tokens", Some(&narrow), Some(&wider)).await;
        assert_eq!((answer.status, answer.error().as_str()), (403, "forbidden"), "{wider}");
    }
    // It sees and revokes no token that could do more than itself.
    let wide = gateway.post("/tokens", &json!({ "scopes": ["read"] })).await.json();
    let wide_id = wide["token"]["id"].as_str().expect("an id");
    let seen = gateway.ask("GET", "/tokens", Some(&narrow), None).await.json();
    let ids: Vec<&str> =
        seen["tokens"].as_array().expect("tokens").iter().filter_map(|row| row["id"].as_str()).collect();
    assert_eq!(ids, [body["token"]["id"].as_str().expect("an id")]);
    let path = format!("/tokens/{wide_id}");
    assert_eq!(gateway.ask("DELETE", &path, Some(&narrow), None).await.status, 404);
    let revoked = gateway.ask("DELETE", &path, Some(&gateway.token), None).await;
    assert_eq!(revoked.status, 200);
    assert!(revoked.json()["revokedAt"].is_i64());
    let secret = wide["secret"].as_str().expect("a secret");
    assert_eq!(gateway.ask("GET", "/sessions", Some(secret), None).await.status, 401);
    let text = gateway.get("/tokens").await.json().to_string();
    assert!(!text.contains(secret) && !text.contains(&narrow), "no secret is told twice");
}

#[tokio::test]
async fn what_a_token_may_not_see_is_not_there() {
    let gateway = Gateway::start().await;
    let mine = gateway.session("agent:mine:chat:m-1", "m-1").await;
    let other = gateway.session("agent:other:chat:o-1", "o-1").await;
    gateway.say(&mine, &["one"]).await;
    gateway.say(&other, &["two"]).await;
    let agent = Some("mine".parse().expect("an agent"));
    let scopes = vec![Scope::Read, Scope::Write];
    let token = gateway.new_token(NewToken { scopes, agent, ..NewToken::default() }).await;
    let status = |method: &'static str, path: String, body: Option<Value>| {
        let (gateway, token) = (&gateway, &token);
        async move {
            let answer = gateway.ask(method, &path, Some(token), body.as_ref()).await;
            (answer.status, if answer.status >= 400 { answer.error() } else { String::new() })
        }
    };
    let not_found = (404, "not_found".to_owned());
    for given in ["agent%3Aother%3Achat%3Ao-1", "o-1", "agent%3Anobody%3Amain", "nothing-here"] {
        assert_eq!(status("GET", format!("/sessions/{given}"), None).await, not_found, "{given}");
        assert_eq!(status("GET", format!("/sessions/{given}/history"), None).await, not_found, "{given}");
        let follow = format!("/sessions/{given}/history?follow=1");
        assert_eq!(status("GET", follow, None).await, not_found, "{given}");
        assert_eq!(status("GET", format!("/sessions/{given}/plan"), None).await, not_found, "{given}");
        let plan = Some(json!({ "content": "# no" }));
        assert_eq!(status("PUT", format!("/sessions/{given}/plan"), plan).await, not_found, "{given}");
        let send = Some(json!({ "message": "hello", "timeoutSeconds": 0 }));
        assert_eq!(status("POST", format!("/sessions/{given}/send"), send).await, not_found, "{given}");
        assert_eq!(status("GET", format!("/runs?session={given}"), None).await, not_found, "{given}");
    }
    assert_eq!(status("GET", "/sessions/m-1/history".to_owned(), None).await.0, 200);
    let rows = gateway.ask("GET", "/sessions", Some(&token), None).await.json();
    assert_eq!(rows["count"], 1);
    assert_eq!(rows["sessions"][0]["key"], "agent:mine:chat:m-1");
    let events = gateway.ask("GET", "/events", Some(&token), None).await.json().to_string();
    assert!(events.contains("m-1") && !events.contains("o-1"), "{events}");
}
