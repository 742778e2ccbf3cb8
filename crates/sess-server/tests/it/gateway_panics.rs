//! A mistake of ours: it costs one request, whose answer and log tell nothing that the panic quotes.

use std::{
    io,
    sync::{Arc, Mutex},
};

use rmcp::model::CallToolRequestParams;
use serde_json::json;
use sess_app::NewToken;
use sess_protocol::tokens::Scope;

use crate::{
    gateway::{Answer, Gateway, break_with},
    ws_stage::Client,
};

/// What everything that is logged goes into.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("no panic").clone()).expect("UTF-8")
    }
}

const TEXT: &str = "canary-0123456789";

#[track_caller]
fn check(answer: &Answer) {
    assert_eq!((answer.status, answer.error().as_str()), (500, "internal"));
    assert_eq!(answer.message(), "something went wrong here; the log says what");
    assert!(answer.header("x-content-type-options").is_some());
}

#[tokio::test]
async fn a_panic_costs_one_request_and_tells_nobody_what_it_quotes() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::INFO);
    let _logged = tracing::subscriber::set_default(subscriber.with_writer(move || writer.clone()).finish());
    // Nobody works here, who could need a random number beside whoever asks.
    let gateway = Gateway::start().await;
    gateway.session("agent:main:chat:s-1", "s-1").await;
    let new = NewToken {
        scopes: vec![Scope::Read, Scope::Write],
        session: Some("s-1".to_owned()),
        ..NewToken::default()
    };
    let address = format!("/mcp/{}", gateway.new_token(new).await);
    let agent = crate::gateway_mcp::client(&gateway, &address, None).await.expect("let in");
    let mut client = Client::open(gateway.address).await;
    client.connect(&gateway.token).await.expect("let in");
    let text = format!("{TEXT} {}", gateway.token);

    break_with(&text);
    check(&gateway.post("/attachments?name=x", &json!({})).await);
    // The one that waits for a reply runs as a task of its own.
    break_with(&text);
    check(&gateway.post("/sessions/s-1/send", &json!({ "message": "hello", "timeoutSeconds": 5 })).await);

    let said = json!({ "sessionKey": "s-1", "message": "hello", "idempotencyKey": "1" });
    break_with(&text);
    let broken = client.ask("chat.send", said).await.expect_err("it broke");
    assert_eq!(broken, "internal: something went wrong here; the log says what");
    client.ask("sessions.list", json!({})).await.expect("the connection goes on");

    let arguments = json!({ "content": "# Plan\n" }).as_object().cloned().expect("an object");
    let call = CallToolRequestParams::new("write_session_plan").with_arguments(arguments);
    break_with(&text);
    let broken = agent.call_tool(call).await.expect_err("it broke").to_string();
    assert!(broken.contains("the call failed inside the server; see its log"), "{broken}");
    assert!(!broken.contains(TEXT), "{broken}");
    agent.list_all_tools().await.expect("the connection goes on");
    assert_eq!(gateway.get("/sessions").await.status, 200, "everybody else is served");

    let log = log.text();
    assert!(log.contains("a tool call failed inside the server"), "{log}");
    for secret in [TEXT, gateway.token.as_str()] {
        assert!(!log.contains(secret), "{log}");
    }
}
