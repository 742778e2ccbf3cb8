//! A mistake of ours: it costs one request, whose answer and log tell nothing that the panic quotes.

use std::{
    io,
    sync::{Arc, Mutex},
};

use rmcp::model::CallToolRequestParams;
use serde_json::json;

use crate::{
    gateway::{Answer, break_with},
    ws_stage::Stage,
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
    let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE);
    let _logged = tracing::subscriber::set_default(subscriber.with_writer(move || writer.clone()).finish());
    let stage = Stage::new().await;
    let mut client = stage.client().await;
    let text = format!("{TEXT} {}", stage.token);

    break_with(&text);
    check(&stage.post("/attachments?name=x", &json!({})).await);
    // The one that waits for a reply runs as a task of its own.
    let send = json!({ "message": "hello", "timeoutSeconds": 5 });
    break_with(&text);
    check(&stage.post("/sessions/agent:a:main/send", &send).await);

    let said = json!({ "sessionKey": "agent:a:main", "message": "hello", "idempotencyKey": "1" });
    break_with(&text);
    let broken = client.ask("chat.send", said).await.expect_err("it broke");
    assert_eq!(broken, "internal: something went wrong here; the log says what");
    client.ask("sessions.list", json!({})).await.expect("the connection goes on");

    let agent = crate::gateway_mcp::client(&stage, "/mcp", Some(&stage.token)).await.expect("let in");
    let arguments = json!({ "sessionKey": "agent:a:main", "message": "hello" });
    let call = CallToolRequestParams::new("sessions_send")
        .with_arguments(arguments.as_object().cloned().expect("an object"));
    break_with(&text);
    let broken = agent.call_tool(call).await.expect_err("it broke").to_string();
    assert!(broken.contains("the call failed inside the server; see its log"), "{broken}");
    assert!(!broken.contains(TEXT), "{broken}");
    agent.list_all_tools().await.expect("the connection goes on");
    assert_eq!(stage.get("/sessions").await.status, 200, "everybody else is served");

    let log = log.text();
    assert!(log.contains("a tool call failed inside the server"), "{log}");
    for secret in [TEXT, stage.token.as_str()] {
        assert!(!log.contains(secret), "{log}");
    }
}
