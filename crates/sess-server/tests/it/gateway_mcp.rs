//! MCP over HTTP, with rmcp's own client and byte for byte.

use std::time::Duration;

use rmcp::{
    RoleClient, ServiceExt as _,
    model::{CallToolRequestParams, ReadResourceRequestParams, ResourceContents},
    service::RunningService,
    transport::{StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig},
};
use serde_json::{Value, json};
use sess_app::{Access, NewToken};
use sess_protocol::tokens::Scope;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::gateway::Gateway;

pub(crate) async fn client(
    gateway: &Gateway,
    path: &str,
    token: Option<&str>,
) -> Result<RunningService<RoleClient, ()>, String> {
    let _once = rustls::crypto::ring::default_provider().install_default();
    let mut config =
        StreamableHttpClientTransportConfig::with_uri(format!("http://{}{path}", gateway.address));
    if let Some(token) = token {
        config = config.auth_header(token);
    }
    let transport = StreamableHttpClientTransport::with_client(reqwest::Client::new(), config);
    ().serve(transport).await.map_err(|error| error.to_string())
}

async fn whoami(client: &RunningService<RoleClient, ()>) -> Value {
    let ask = ReadResourceRequestParams::new("session://current");
    let read = client.read_resource(ask).await.expect("it is there");
    let ResourceContents::TextResourceContents { text, .. } = &read.contents[0] else { panic!("text") };
    serde_json::from_str(text).expect("JSON")
}

#[tokio::test]
async fn tools_are_called_with_a_token_in_the_header() {
    let mut gateway = Gateway::start().await;
    let client_ = client(&gateway, "/mcp", Some(&gateway.token)).await.expect("let in");
    let tools = client_.list_all_tools().await.expect("listed");
    assert!(tools.iter().any(|tool| tool.name == "sessions_send"));
    let arguments = json!({ "content": "# Plan\n" }).as_object().cloned().expect("an object");
    let call = CallToolRequestParams::new("write_session_plan").with_arguments(arguments);
    let written = client_.call_tool(call).await.expect("answered");
    assert_ne!(written.is_error, Some(true), "{written:?}");
    assert_eq!(whoami(&client_).await["standing"], "agent", "whoever's token it is");
    client_.cancel().await.expect("a quiet end");
    client(&gateway, "/mcp", None).await.expect_err("without a token");
    client(&gateway, "/mcp", Some("sess_wrong")).await.expect_err("with a wrong one");
    gateway.end().await;
}

#[tokio::test]
async fn a_session_token_in_the_address_stands_for_its_session() {
    let mut gateway = Gateway::start().await;
    let put = json!({ "content": "# Mine\n" });
    let session = gateway.session("agent:main:chat:s1", "s1").await;
    let made =
        gateway.ask("PUT", &format!("/sessions/{}/plan", session.id), Some(&gateway.token), Some(&put)).await;
    assert_eq!(made.status, 200, "{}", made.error());
    let new =
        NewToken { scopes: vec![Scope::Read], session: Some(session.id.to_string()), ..NewToken::default() };
    let (secret, row) = gateway.app.create_token(&Access::owner(), new).await.expect("a token");
    let address = format!("/mcp/{}", secret.reveal());
    let client_ = client(&gateway, &address, None).await.expect("let in");
    let me = whoami(&client_).await;
    assert_eq!((&me["session_id"], &me["standing"]), (&json!("s1"), &json!("agent")), "{me}");
    let arguments = json!({ "content": "x" }).as_object().cloned().expect("an object");
    let call = CallToolRequestParams::new("write_session_plan").with_arguments(arguments);
    let refused = client_.call_tool(call).await.expect_err("it only reads");
    assert!(refused.to_string().contains("needs a token with the scope write"), "{refused}");
    gateway.app.revoke_token(&row.id).await.expect("revoked");
    client_.call_tool(CallToolRequestParams::new("list_sessions")).await.expect_err("cut off");
    client(&gateway, &format!("/mcp/{}", gateway.token), None).await.expect_err("the owner's is no address");
    gateway.end().await;
}

/// Sends a request and leaves the connection open.
async fn ask(gateway: &Gateway, method: &str, headers: &[(&str, &str)], body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(gateway.address).await.expect("it listens");
    let mut text = format!(
        "{method} /mcp HTTP/1.1\r\nHost: {}\r\nAccept: application/json, text/event-stream\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n",
        gateway.address,
        body.len()
    );
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    stream.write_all(format!("{text}\r\n{body}").as_bytes()).await.expect("sent");
    stream
}

/// Reads until `end` has come.
async fn until(stream: &mut TcpStream, end: &str) -> String {
    let mut read = String::new();
    let mut buffer = [0; 4096];
    while !read.contains(end) {
        let length = stream.read(&mut buffer).await.expect("read");
        assert!(length > 0, "it ended before {end:?}: {read}");
        read += std::str::from_utf8(&buffer[..length]).expect("text");
    }
    read
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"gemini-cli","version":"1"}}}"#;

#[tokio::test]
async fn a_connection_ends_with_its_token_and_is_nobody_elses() {
    let mut gateway = Gateway::start().await;
    let new = NewToken { scopes: vec![Scope::Read], ..NewToken::default() };
    let (secret, row) = gateway.app.create_token(&Access::owner(), new).await.expect("a token");
    let bearer = format!("Bearer {}", secret.reveal());
    let mut begun = ask(&gateway, "POST", &[("Authorization", &bearer)], INITIALIZE).await;
    let answer = until(&mut begun, "serverInfo").await;
    let id = answer.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).expect("an id").to_owned();
    // Gemini dies of an empty event before the first real one.
    let events = answer.split_once("\r\n\r\n").expect("a body").1;
    assert!(!events.contains("retry:") && !events.contains("id:"), "{events}");

    let owner = format!("Bearer {}", gateway.token);
    let headers = [("Authorization", owner.as_str()), ("Mcp-Session-Id", &id)];
    let listing = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;
    let mut foreign = ask(&gateway, "POST", &headers, listing).await;
    assert!(until(&mut foreign, "}").await.starts_with("HTTP/1.1 404"));

    let headers = [("Authorization", bearer.as_str()), ("Mcp-Session-Id", &id)];
    let mut stream = ask(&gateway, "GET", &headers, "").await;
    assert!(until(&mut stream, "\r\n\r\n").await.starts_with("HTTP/1.1 200"));
    gateway.app.revoke_token(&row.id).await.expect("revoked");
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(2), stream.read_to_end(&mut rest));
    // The body ends; the connection itself may stay.
    let is_over = ended.await.is_ok() || rest.ends_with(b"0\r\n\r\n");
    assert!(is_over, "{:?}", String::from_utf8_lossy(&rest));
    gateway.end().await;
}

#[tokio::test]
async fn what_is_no_request_is_refused_in_the_one_shape() {
    let mut gateway = Gateway::start().await;
    let owner = format!("Bearer {}", gateway.token);
    let headers = [("Authorization", owner.as_str())];
    let many = format!("[{}1]", "1,".repeat(200_000));
    for (body, status) in [("", "415"), ("{", "415"), (many.as_str(), "400"), ("[[[[", "415")] {
        let mut stream = ask(&gateway, "POST", &headers, body).await;
        let answer = until(&mut stream, "\"}").await;
        let error = answer.split_once("\r\n\r\n").expect("a body").1;
        assert!(error.contains("\"error\""), "{answer}");
        assert!(answer.starts_with("HTTP/1.1 4"), "{status}: {answer}");
    }
    let mut stream = ask(&gateway, "GET", &headers, "").await;
    assert!(until(&mut stream, "}").await.starts_with("HTTP/1.1 4"), "no stream without a connection");
    gateway.end().await;
}

#[tokio::test]
async fn what_is_searched_for_is_taken_as_it_stands() {
    const TITLES: [&str; 6] = [
        "100% of it",
        "under_score",
        "back\\slash",
        "it's \"quoted\"",
        "a'; DROP TABLE sessions; --",
        "\u{1b}[2J <script>",
    ];
    let gateway = Gateway::start().await;
    let store = gateway.store();
    for (n, title) in TITLES.iter().enumerate() {
        let mut new = crate::gateway::new_session(&format!("agent:main:chat:s-{n}"), &format!("s-{n}"));
        new.title = (*title).to_owned();
        let session = store.ensure_session(new).await.expect("a session");
        gateway.say(&session, &["retry with backoff"]).await;
    }
    let client_ = client(&gateway, "/mcp", Some(&gateway.token)).await.expect("let in");
    let ask = async |tool: &'static str, arguments: Value| {
        let call = CallToolRequestParams::new(tool)
            .with_arguments(arguments.as_object().cloned().expect("an object"));
        client_.call_tool(call).await.expect("answered")
    };
    let hostile = [
        "%",
        "_",
        "\\",
        "'",
        "\"",
        "''",
        "%_%_%",
        "*",
        "a*",
        "back",
        "OR",
        "NOT",
        "NEAR(a b)",
        "title:it",
        "^it",
        "{a b}: c",
        "it' OR '1'='1",
        "\" OR 1=1 --",
        "'; DROP TABLE sessions; --",
        "x'00'",
        "?1",
        "$1",
        ":x",
        "char(0)",
        "/*",
        "--",
        "(((((",
        "\u{1b}[2J",
        "\u{202e}",
        "<script>",
        "İ",
        "🎉",
        "nowhere",
    ];
    for query in hostile {
        let listed = ask("list_sessions", json!({ "query": query, "limit": 100 })).await;
        assert_ne!(listed.is_error, Some(true), "{query:?}: {listed:?}");
        let listed = listed.structured_content.expect("rows");
        let named = |title: &&&str| title.to_lowercase().contains(&query.to_lowercase());
        let expected = TITLES.iter().filter(named).count();
        assert_eq!(listed["sessions"].as_array().map(Vec::len), Some(expected), "{query:?}: {listed}");
        for regex in [false, true] {
            let found = ask("search_sessions", json!({ "query": query, "regex": regex })).await;
            let told = format!("{:?}", found.content);
            let is_refusal =
                told.contains("at least one word") || told.contains("this is no regular expression");
            assert!(found.is_error != Some(true) || is_refusal, "{query:?}: {told}");
            assert!(!told.to_lowercase().contains("sqlite") && !told.contains("fts5"), "{query:?}: {told}");
        }
        // Nor does a name that something is read by mean anything but itself.
        let read = ask("read_session", json!({ "session_id": query })).await;
        let told = format!("{:?}", read.content);
        assert!(!told.to_lowercase().contains("sql") && !told.contains("syntax"), "{query:?}: {told}");
    }
    for query in ["x".repeat(100_000), "\0".to_owned(), "a\0b".to_owned()] {
        let listed = ask("list_sessions", json!({ "query": query })).await;
        let told = format!("{:?}", listed.content);
        assert!(!told.contains("near \"") && !told.to_lowercase().contains("sqlite"), "{told}");
    }
    let all = ask("list_sessions", json!({ "limit": 100 })).await.structured_content.expect("rows");
    assert_eq!(
        all["sessions"].as_array().map(Vec::len),
        Some(TITLES.len()),
        "everything is still there: {all}"
    );
}
