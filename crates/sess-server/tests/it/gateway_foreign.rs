//! Pages of other sites and names that lead here: every route refuses them, and nothing changes.

use std::time::Duration;

use serde_json::{Value, json};
use sess_protocol::tokens::Scope;
use sess_server::gateway;

use crate::{
    gateway::{Answer, Gateway, encoded},
    gateway_access::routes,
};

const KEY: &str = "agent:main:chat:s-1";

/// Everything that a request could have changed.
async fn kept(gateway: &Gateway) -> String {
    let events = gateway.app.events_head().await.expect("events");
    let tokens = gateway.app.tokens().await.expect("tokens");
    let plan = gateway.get(&format!("/sessions/{}/plan", encoded(KEY))).await;
    let runs = gateway.get("/runs").await;
    let shown = |answer: &Answer| String::from_utf8_lossy(&answer.body).into_owned();
    format!("{events} {tokens:?} {} {}", shown(&plan), shown(&runs))
}

/// A gateway with a session, a plan, and two names.
async fn stage() -> Gateway {
    let gateway = Gateway::start_with(|options| {
        options.names = vec!["gate.example".to_owned(), "exact.example:8443".to_owned()];
        options.limits.failed_logins = 1_000_000;
    })
    .await;
    let session = gateway.session(KEY, "s-1").await;
    gateway.say(&session, &["one"]).await;
    gateway.scoped(Scope::Read).await;
    let put = gateway
        .ask("PUT", "/sessions/s-1/plan", Some(&gateway.token), Some(&json!({ "content": "# p" })))
        .await;
    assert_eq!(put.status, 200);
    gateway
}

fn bodies() -> Vec<u8> {
    let all = json!({
        "message": "from elsewhere", "timeoutSeconds": 0, "content": "# elsewhere", "revision": 1,
        "decision": "approve", "scopes": ["admin"], "token": "x",
    });
    all.to_string().into_bytes()
}

/// `Origin` as browsers write it for pages that are not ours, and as nobody should.
fn foreign_origins(port: u16) -> Vec<String> {
    let next = port.wrapping_add(1);
    let mut origins: Vec<String> = [
        "null",
        "",
        " ",
        "*",
        "undefined",
        "http://",
        "https://",
        "://",
        "http:",
        "file://",
        "about:blank",
        "data:",
        "blob:null",
        "http://evil.example",
        "https://evil.example",
        "http://[::1]",
        "http://0.0.0.0",
        "http://localhost",
        "https://localhost",
        "http://127.0.0.1",
        "https://127.0.0.1",
        "http://127.1",
        "http://gate.example.evil.example",
        "http://evil-gate.example",
        "https://exact.example",
        "https://exact.example:443",
        "http://exact.example:80",
        "https://gate.example",
        "http://gate.example",
        "chrome-extension://abcdefghijklmnopabcdefghijklmnop",
        "moz-extension://0",
        "vscode-webview://x",
        "app://localhost",
        "capacitor://localhost",
        "tauri://localhost",
        "ionic://localhost",
    ]
    .map(str::to_owned)
    .to_vec();
    for form in [
        "http://evil.example:{port}",
        "http://localhost:{next}",
        "http://127.0.0.1:{next}",
        "http://127.0.0.2:{port}",
        "http://0.0.0.0:{port}",
        "http://[::1]:{port}",
        "http://[::]:{port}",
        "http://127.1:{port}",
        "http://2130706433:{port}",
        "http://0x7f000001:{port}",
        "http://0177.0.0.1:{port}",
        "https://127.0.0.1:{port}",
        "https://localhost:{port}",
        "ws://127.0.0.1:{port}",
        "wss://127.0.0.1:{port}",
        "ftp://127.0.0.1:{port}",
        "HTTP://127.0.0.1:{port}",
        "127.0.0.1:{port}",
        "//127.0.0.1:{port}",
        "http://127.0.0.1:{port}/",
        "http://127.0.0.1:{port}/path",
        "http://127.0.0.1:{port}?",
        "http://127.0.0.1:{port}#",
        "http://user@127.0.0.1:{port}",
        "http://127.0.0.1:{port}@evil.example",
        "http://127.0.0.1:{port}.evil.example",
        "http://127.0.0.1.nip.io:{port}",
        "http://localhost.evil.example:{port}",
        "http://evil.localhost:{port}",
        "http://localhost.:{port}",
        "http://127.0.0.1.:{port}",
        "http://127.0.0.1:0{port}0",
        "http://127.0.0.1:{port} http://evil.example",
        "http://evil.example http://127.0.0.1:{port}",
        "http://127.0.0.1:{port},http://evil.example",
        "http://127.0.0.1:{port}\t",
        "http://127.0.0.1:{port}:80",
        "http://127.0.0.1:+{port}",
        "http:127.0.0.1:{port}",
        "http:/127.0.0.1:{port}",
        "http:\\\\127.0.0.1:{port}",
        "http://127.0.0.1:{port}\\.evil.example",
        "http://127.0.0.1%2eevil.example:{port}",
        "http://gate.example:{port}",
        "http://evil.gate.example:{port}",
        "http://\u{ff11}27.0.0.1:{port}",
    ] {
        origins.push(form.replace("{port}", &port.to_string()).replace("{next}", &next.to_string()));
    }
    // What only has space around it is what is within: headers are read so.
    origins.retain(|origin| origin.trim() == origin || origin.trim().is_empty());
    origins
}

#[tokio::test]
async fn no_page_of_another_site_is_answered_on_any_route() {
    let gateway = stage().await;
    let bearer = format!("Bearer {}", gateway.token);
    let before = kept(&gateway).await;
    let origins = foreign_origins(gateway.address.port());
    assert!(origins.len() > 70, "{}", origins.len());
    let (routes, body) = (routes(), bodies());
    let mut asked = 0;
    for (method, path, _) in &routes {
        for origin in &origins {
            // With all that could let it in.
            let headers = [
                ("Origin", origin.as_str()),
                ("Authorization", bearer.as_str()),
                ("Cookie", &format!("sess={}", gateway.token)),
                ("Content-Type", "application/json"),
                ("Access-Control-Request-Method", method),
            ];
            let answer = gateway.request(method, path, &headers, &body).await;
            refused(&answer, &format!("{method} {path} from {origin:?}"));
            asked += 1;
        }
        // A browser asks first whether it may: it may not.
        for origin in ["null", "http://evil.example"] {
            let answer = gateway.request("OPTIONS", path, &[("Origin", origin)], b"").await;
            refused(&answer, &format!("OPTIONS {path} from {origin}"));
        }
    }
    assert!(asked > 2_000, "{asked}");
    assert_eq!(kept(&gateway).await, before);
}

#[track_caller]
fn refused(answer: &Answer, what: &str) {
    assert_eq!((answer.status, answer.error().as_str()), (403, "forbidden"), "{what}");
    let cors = answer.headers.iter().find(|(name, _)| name.starts_with("access-control-"));
    assert_eq!(cors, None, "{what}");
}

#[tokio::test]
async fn our_own_origins_are_answered_and_told_to_nobody_else() {
    let gateway = stage().await;
    let port = gateway.address.port();
    let bearer = format!("Bearer {}", gateway.token);
    for (host, origin) in [
        (format!("127.0.0.1:{port}"), format!("http://127.0.0.1:{port}")),
        (format!("127.0.0.1:{port}"), format!("http://localhost:{port}")),
        (format!("localhost:{port}"), format!("http://localhost:{port}")),
        ("gate.example".to_owned(), "https://gate.example".to_owned()),
        ("exact.example:8443".to_owned(), "https://exact.example:8443".to_owned()),
    ] {
        let headers = [("Host", host.as_str()), ("Origin", &origin), ("Authorization", &bearer)];
        let answer = gateway.request("GET", "/sessions", &headers, b"").await;
        assert_eq!(answer.status, 200, "{host} {origin}");
        assert!(answer.headers.iter().all(|(name, _)| !name.starts_with("access-control-")), "{origin}");
    }
}

#[tokio::test]
async fn what_a_browser_says_of_its_page_counts_on_every_route() {
    let gateway = stage().await;
    let bearer = format!("Bearer {}", gateway.token);
    let before = kept(&gateway).await;
    let body = bodies();
    for (method, path, _) in routes() {
        for site in ["cross-site", "same-site", "", "SAME-ORIGIN", "same-origin, cross-site", "other"] {
            for mode in [None, Some("no-cors"), Some("cors"), Some("websocket"), Some("navigate")] {
                let mut headers = vec![
                    ("Authorization", bearer.as_str()),
                    ("Content-Type", "application/json"),
                    ("Sec-Fetch-Site", site),
                ];
                headers.extend(mode.map(|mode| ("Sec-Fetch-Mode", mode)));
                // Only a link leads here, and a link changes nothing.
                if method == "GET" && mode == Some("navigate") {
                    continue;
                }
                let answer = gateway.request(&method, &path, &headers, &body).await;
                refused(&answer, &format!("{method} {path} {site:?} {mode:?}"));
            }
        }
    }
    assert_eq!(kept(&gateway).await, before);
}

#[tokio::test]
async fn nothing_is_changed_by_reading() {
    let gateway = stage().await;
    let bearer = format!("Bearer {}", gateway.token);
    let before = kept(&gateway).await;
    let mut asked = 0;
    for (_, path, _) in routes() {
        for method in ["GET", "HEAD"] {
            for query in ["", "?message=x&timeoutSeconds=0", "?_method=POST", "?follow=0"] {
                let path = format!("{path}{query}");
                let headers = [
                    ("Authorization", bearer.as_str()),
                    ("X-HTTP-Method-Override", "POST"),
                    ("Content-Type", "application/json"),
                ];
                // Some answers go on for ever.
                let asking = gateway.request(method, &path, &headers, &[]);
                let _answer = tokio::time::timeout(Duration::from_millis(200), asking).await;
                asked += 1;
            }
        }
    }
    assert!(asked > 200, "{asked}");
    assert_eq!(kept(&gateway).await, before);
}

#[tokio::test]
async fn what_a_form_can_send_is_no_json() {
    let gateway = stage().await;
    let bearer = format!("Bearer {}", gateway.token);
    let before = kept(&gateway).await;
    let openapi = gateway::openapi();
    let body = bodies();
    let mut routes_asked = 0;
    for (path, operations) in openapi["paths"].as_object().expect("paths") {
        for (method, operation) in operations.as_object().expect("operations") {
            let takes = &operation["requestBody"]["content"]["application/json"]["schema"];
            // What any JSON fits speaks another protocol, which says by itself what it takes.
            if *takes == Value::Null || *takes == json!({}) {
                continue;
            }
            routes_asked += 1;
            let filled = path
                .replace("{sessionKey}", "s-1")
                .replace("{runId}", "0190aaaa-0000-7000-8000-000000000000");
            for kind in [
                None,
                Some(""),
                Some("text/plain"),
                Some("text/plain; application/json"),
                Some("text/plain;charset=application/json"),
                Some("application/x-www-form-urlencoded"),
                Some("multipart/form-data; boundary=x"),
                Some("text/json"),
                Some("application/jsonp"),
                Some("application/json-patch+json"),
                Some("application"),
                Some("application/json, text/plain"),
            ] {
                let mut headers = vec![("Authorization", bearer.as_str())];
                headers.extend(kind.map(|kind| ("Content-Type", kind)));
                let answer = gateway.request(&method.to_ascii_uppercase(), &filled, &headers, &body).await;
                let told = (answer.status, answer.error());
                assert_eq!(told, (400, "invalid_request".to_owned()), "{method} {path} {kind:?}");
                assert!(answer.message().contains("application/json"), "{}", answer.message());
            }
        }
    }
    assert!(routes_asked >= 6, "{routes_asked}");
    assert_eq!(kept(&gateway).await, before);
}

/// `Host` as it is when a name was made to lead here, and as nobody should write it.
fn foreign_hosts(port: u16) -> Vec<String> {
    let next = port.wrapping_add(1);
    let mut hosts: Vec<String> = [
        "",
        " ",
        "*",
        "null",
        "evil.example",
        "localhost",
        "127.0.0.1",
        "[::1]",
        "0.0.0.0",
        "[::]",
        "exact.example",
        "exact.example:443",
        "gate.example.evil.example",
        "evil-gate.example",
        "evil.gate.example",
        "gate_example",
        "gate.example.",
        "[127.0.0.1]",
        "[::1",
        "::1",
        "http://localhost",
        "xn--lcalhost-54a",
    ]
    .map(str::to_owned)
    .to_vec();
    for form in [
        "evil.example:{port}",
        "localhost:{next}",
        "127.0.0.1:{next}",
        "127.0.0.2:{port}",
        "127.1:{port}",
        "2130706433:{port}",
        "0x7f.0.0.1:{port}",
        "0177.0.0.1:{port}",
        "0.0.0.0:{port}",
        "[::1]:{port}",
        "[::]:{port}",
        "[::ffff:127.0.0.2]:{port}",
        "::1:{port}",
        "localhost.:{port}",
        "localhost.evil.example:{port}",
        "evil.localhost:{port}",
        "127.0.0.1.nip.io:{port}",
        "127.0.0.1:{port}.evil.example",
        "127.0.0.1:{port}@evil.example",
        "evil.example@127.0.0.1:{port}",
        "user:pass@127.0.0.1:{port}",
        "127.0.0.1:{port}/",
        "127.0.0.1:{port}?",
        "127.0.0.1:{port}#",
        "/127.0.0.1:{port}",
        "//127.0.0.1:{port}",
        "http://127.0.0.1:{port}",
        "127.0.0.1:{port}, evil.example",
        "evil.example, 127.0.0.1:{port}",
        "127.0.0.1:{port} evil.example",
        "127.0.0.1:{port}:80",
        "127.0.0.1:+{port}",
        "127.0.0.1:{port}0000",
        "127.0.0.1:-{port}",
        "127.0.0.1:",
        "127.0.0.1:{port}\\evil.example",
        "127.0.0.1%00:{port}",
        "\u{ff11}27.0.0.1:{port}",
        "loc\u{430}lhost:{port}",
        "127.0.0.1;{port}",
        "127,0,0,1:{port}",
    ] {
        hosts.push(form.replace("{port}", &port.to_string()).replace("{next}", &next.to_string()));
    }
    hosts
}

#[tokio::test]
async fn no_other_name_leads_here_on_any_route() {
    let gateway = stage().await;
    let port = gateway.address.port();
    let before = kept(&gateway).await;
    let credentials = format!(
        "Authorization: Bearer {0}\r\nCookie: sess={0}\r\nConnection: close\r\nX-Forwarded-Host: 127.0.0.1:{port}\r\n\
         Forwarded: host=127.0.0.1:{port}\r\n",
        gateway.token
    );
    let own = format!("127.0.0.1:{port}");
    let hosts = foreign_hosts(port);
    assert!(hosts.len() > 60, "{}", hosts.len());
    for (method, path, _) in routes() {
        let mut heads: Vec<String> =
            hosts.iter().map(|host| format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n")).collect();
        heads.extend([
            // None, or more than one.
            format!("{method} {path} HTTP/1.1\r\n"),
            format!("{method} {path} HTTP/1.0\r\n"),
            format!("{method} {path} HTTP/1.1\r\nHost: {own}\r\nHost: evil.example\r\n"),
            format!("{method} {path} HTTP/1.1\r\nHost: evil.example\r\nHost: {own}\r\n"),
            format!("{method} {path} HTTP/1.1\r\nHost: {own}\r\nHOST: {own}\r\n"),
            format!("{method} {path} HTTP/1.1\r\nHost: {own}\r\n evil.example\r\n"),
            format!("{method} {path} HTTP/1.1\r\nHost : {own}\r\n"),
            // A request line that names another host, or another one than the header.
            format!("{method} http://evil.example{path} HTTP/1.1\r\nHost: {own}\r\n"),
            format!("{method} http://evil.example:{port}{path} HTTP/1.1\r\nHost: {own}\r\n"),
            format!("{method} http://evil.example{path} HTTP/1.1\r\nHost: evil.example\r\n"),
            format!("{method} http://{own}{path} HTTP/1.1\r\nHost: evil.example\r\n"),
            format!("{method} http://localhost:{port}{path} HTTP/1.1\r\nHost: {own}\r\n"),
            format!("{method} http://{own}@evil.example{path} HTTP/1.1\r\nHost: {own}\r\n"),
            format!("{method} http://evil.example@{own}{path} HTTP/1.1\r\nHost: {own}\r\n"),
            format!("{method} http://{own}{path} HTTP/1.1\r\n"),
        ]);
        for head in heads {
            let request = format!("{head}{credentials}\r\n");
            let answer = gateway.raw(request.as_bytes()).await;
            // What is no HTTP is refused before it is looked at.
            let is_refused = answer.status == 400
                && answer.message().starts_with("the request cannot be read")
                || answer.status == 403 && answer.error() == "forbidden";
            assert!(is_refused, "{head}: {}", answer.status);
        }
    }
    assert_eq!(kept(&gateway).await, before);
    let whole = format!("GET http://{own}/sessions HTTP/1.1\r\nHost: {own}\r\n{credentials}\r\n");
    assert_eq!(gateway.raw(whole.as_bytes()).await.status, 200, "a whole address of ours is one");
}
