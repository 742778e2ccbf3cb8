//! Who gets in: every route with every kind of token, guessing, logging in and out.

use std::{collections::BTreeSet, time::Duration};

use serde_json::{Value, json};
use sess_app::NewToken;
use sess_protocol::tokens::Scope;
use sess_server::gateway;

use crate::{
    gateway::{Gateway, encoded},
    ws_stage::Client,
};

/// Returns each route: method, path with something in its places, and the scope that it needs.
pub(crate) fn routes() -> Vec<(String, String, Option<Scope>)> {
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

/// One of the ways to try a token that nobody has.
fn guess(n: usize) -> String {
    let wrong = format!("sess_{n:064x}");
    let json = |path: &str, body: String| {
        format!(
            "POST {path} HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {}\r\nHOST\r\n\r\n{body}",
            body.len()
        )
    };
    match n % 5 {
        0 => format!("GET /sessions HTTP/1.1\r\nAuthorization: Bearer {wrong}\r\nHOST\r\n\r\n"),
        1 => format!("GET /metrics HTTP/1.1\r\nCookie: sess={wrong}\r\nHOST\r\n\r\n"),
        2 => json("/login", format!("{{\"code\":\"{wrong}\"}}")),
        3 => json("/login", format!("{{\"token\":\"{wrong}\"}}")),
        _ => format!("GET /mcp/{wrong} HTTP/1.1\r\nHOST\r\n\r\n"),
    }
}

#[tokio::test]
async fn ten_thousand_guesses_are_limited_and_nobody_else_notices() {
    const TRIES: usize = 10_000;
    const AT_ONCE: usize = 50;
    let gateway = Gateway::start().await;
    let known = gateway.scoped(Scope::Read).await;
    assert_eq!(gateway.ask("GET", "/sessions", Some(&known), None).await.status, 200);
    let guessing = async {
        let mut looked_at = 0;
        for from in (0..TRIES).step_by(AT_ONCE) {
            let host = format!("Host: {}\r\n", gateway.address);
            let last = format!("{host}Connection: close\r\n");
            let guesses = (from..from + AT_ONCE)
                .map(|n| guess(n).replace("HOST\r\n", if n + 1 == from + AT_ONCE { &last } else { &host }));
            let told = gateway.raw_text(guesses.collect::<String>().as_bytes()).await;
            let count = |status: &str| told.matches(&format!("HTTP/1.1 {status} ")).count();
            assert_eq!(count("401") + count("429"), AT_ONCE, "{told}");
            looked_at += count("401");
        }
        looked_at
    };
    let others = async {
        let mut longest = Duration::ZERO;
        loop {
            let since = tokio::time::Instant::now();
            assert_eq!(gateway.ask("GET", "/sessions", Some(&known), None).await.status, 200);
            longest = longest.max(since.elapsed());
            tokio::time::sleep(Duration::from_millis(5)).await;
            if longest > Duration::from_secs(2) {
                return longest;
            }
        }
    };
    let since = tokio::time::Instant::now();
    let looked_at = tokio::select! {
        looked_at = guessing => looked_at,
        longest = others => panic!("somebody else waited for {longest:?}"),
    };
    // As many a minute as may be wrong.
    let minutes = usize::try_from(since.elapsed().as_secs() / 60).expect("few") + 1;
    assert!(looked_at <= 30 * minutes, "{looked_at} of {TRIES} were looked at in {minutes} minutes");
    assert!(looked_at >= 30, "{looked_at}");
    // Whoever comes from elsewhere is let in with a token that was never seen before.
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.2:0".parse().expect("an address")).expect("bound");
    let stream = socket.connect(gateway.address).await.expect("it listens");
    let headers = [("Authorization", format!("Bearer {}", gateway.token))];
    let answer = gateway.on(stream, "GET", "/sessions", &headers).await;
    assert_eq!(answer.status, 200);
    let never_seen = gateway.scoped(Scope::Read).await;
    let late = gateway.ask("GET", "/sessions", Some(&never_seen), None).await;
    assert_eq!(late.status, 429, "from here nothing new is looked at");
}

#[tokio::test]
async fn doors_that_ask_by_themselves_let_nobody_in_either() {
    let gateway = Gateway::start_limited(|limits| limits.failed_logins = 1_000_000).await;
    let session = gateway.session("agent:main:chat:s-1", "s-1").await;
    let for_session = |expires_in| NewToken {
        scopes: vec![Scope::Read],
        session: Some(session.id.to_string()),
        expires_in,
        ..NewToken::default()
    };
    let right = gateway.new_token(for_session(None)).await;
    let expired = gateway.new_token(for_session(Some(Duration::ZERO))).await;
    let revoked = gateway.new_token(for_session(None)).await;
    let id = gateway.app.tokens().await.expect("tokens")[0].id.clone();
    gateway.app.revoke_token(&id).await.expect("revoked");
    let code = gateway.app.login_code().await.expect("a code");
    let wrong = format!("sess_{}", "0".repeat(64));
    let (truncated, longer) = (&right[..right.len() - 1], format!("{right}0"));
    for token in [&wrong, truncated, &longer, &revoked, &expired, code.reveal(), "x", "%20", "null"] {
        for method in ["POST", "GET", "DELETE"] {
            let path = format!("/mcp/{token}");
            let answer = gateway.request(method, &path, &[("Content-Type", "application/json")], b"{}").await;
            let told = (answer.status, answer.error());
            assert_eq!(told, (401, "unauthorized".to_owned()), "{method} /mcp/{token}");
        }
        let mut client = Client::open(gateway.address).await;
        let refused = client.connect(token).await.expect_err(token);
        assert!(refused.starts_with("unauthorized: "), "{token}: {refused}");
        // Nothing is done for it afterwards.
        assert_eq!(client.end().await.1, Some(1008), "{token}");
    }
    for empty in ["", " "] {
        let mut client = Client::open(gateway.address).await;
        client.connect(empty).await.expect_err("an empty token");
    }
    let answer = gateway.request("GET", "/mcp/", &[], b"").await;
    assert_eq!((answer.status, answer.error().as_str()), (401, "unauthorized"));
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
    let held = answer.header("set-cookie").expect("a cookie").split(';').next().expect("a pair").to_owned();
    let own = vec![("Cookie", held)];
    assert_eq!(with(own.clone(), "GET", "/sessions").await.status, 200);
    // Logging out is that page's own affair; revoking the token is everybody's.
    assert_eq!(with(own.clone(), "POST", "/logout").await.status, 204);
    assert_eq!(gateway.ask("GET", "/sessions", Some(&token), None).await.status, 200);
    let id = gateway.app.tokens().await.expect("tokens")[0].id.clone();
    gateway.app.revoke_token(&id).await.expect("revoked");
    assert_eq!(with(own, "GET", "/sessions").await.status, 401);
    // The owner's is never in a browser.
    let answer = gateway.ask("POST", "/login", None, Some(&json!({ "token": gateway.token }))).await;
    assert_eq!(answer.json(), json!({ "scopes": ["admin"] }));
    assert!(!answer.header("set-cookie").expect("a cookie").contains(&gateway.token));
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
