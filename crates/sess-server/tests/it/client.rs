//! An MCP client that sends what it is told, byte for byte.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use sess_app::tools::Toolset;
use sess_app::{App, ConfigSource, Configured, Settings};
use sess_core::Timestamp;
use sess_core::policy::ContextVisibility;
use sess_server::Error;
use sess_server::mcp::{self, McpOptions};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::task::JoinHandle;

const PIPE_BYTES: usize = 64 * 1024;

/// A client, the server it talks to, and the directory that the server keeps.
pub(crate) struct Client {
    pub(crate) input: DuplexStream,
    pub(crate) output: BufReader<DuplexStream>,
    pub(crate) server: JoinHandle<Result<(), Error>>,
    pub(crate) home: TempDir,
}

pub(crate) fn options() -> McpOptions {
    McpOptions {
        toolsets: vec![Toolset::SessionPlan, Toolset::SessionContext],
        tools: None,
        explicit_session: Some("s-1".to_owned()),
        env: Vec::new(),
        sessions_called: std::sync::Arc::default(),
    }
}

/// Starts a server with all tools, as session `s-1`.
pub(crate) fn connect() -> Client {
    connect_with(options())
}

/// [`connect`], and the handshake of the revision before the newest.
pub(crate) async fn connect_old() -> Client {
    let mut client = connect();
    client.initialize("2025-11-25").await;
    client
}

pub(crate) fn connect_with(options: McpOptions) -> Client {
    connect_configured(options, Configured::default())
}

pub(crate) fn connect_configured(options: McpOptions, configured: Configured) -> Client {
    let home = tempfile::tempdir().expect("a temporary directory");
    let app = configured_app(home.path(), configured);
    let (input, server_input) = tokio::io::duplex(PIPE_BYTES);
    let (server_output, output) = tokio::io::duplex(PIPE_BYTES);
    let server = tokio::spawn(mcp::serve(app, options, server_input, server_output));
    Client { input, output: BufReader::new(output), server, home }
}

/// Returns the app on a home of its own, at a known time.
fn configured_app(home: &Path, configured: Configured) -> App {
    fn now() -> Timestamp {
        Timestamp::parse_rfc3339("2026-11-15T12:00:00Z").expect("a time")
    }
    fn random() -> u128 {
        static CALLS: AtomicU64 = AtomicU64::new(1);
        let n = CALLS.fetch_add(1, Ordering::Relaxed);
        u128::from(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 64 | u128::from(n)
    }
    App::new(Settings {
        home: Some(home.to_owned()),
        plans_dir: None,
        plans_keep_days: 30,
        context_visibility: ContextVisibility::All,
        configured: ConfigSource::fixed(configured),
        cwd: None,
        repo: None,
        homes: None,
        host: "here".to_owned(),
        now,
        random,
    })
}

impl Client {
    pub(crate) async fn send(&mut self, line: impl AsRef<[u8]>) {
        self.input.write_all(line.as_ref()).await.expect("the server reads");
        self.input.write_all(b"\n").await.expect("the server reads");
    }

    pub(crate) async fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).await.expect("UTF-8");
        serde_json::from_str(&line).expect("each line of output is one JSON value")
    }

    /// Sends a request as an older client does: without metadata.
    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> Value {
        let request = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        self.send(request.to_string()).await;
        let answer = self.receive().await;
        assert_eq!(answer["id"], 7, "{answer}");
        answer
    }

    /// Sends a request of revision 2026-07-28, by a client called `tester`.
    pub(crate) async fn ask_stateless(&mut self, method: &str, mut params: Value) -> Value {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "tester", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let own = params["_meta"].take();
        params["_meta"] = meta;
        for (key, value) in own.as_object().into_iter().flatten() {
            params["_meta"][key] = value.clone();
        }
        self.ask(method, params).await
    }

    pub(crate) async fn initialize(&mut self, revision: &str) -> Value {
        let client = json!({"name": "old-tester", "version": "1"});
        let params = json!({"protocolVersion": revision, "capabilities": {}, "clientInfo": client});
        let answer = self.ask("initialize", params).await;
        self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        answer["result"].clone()
    }

    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments})).await
    }

    /// Closes our side and returns what the server still had to say.
    pub(crate) async fn hang_up(self) -> String {
        let Client { input, mut output, server, home: _home } = self;
        drop(input);
        let mut rest = String::new();
        output.read_to_string(&mut rest).await.expect("UTF-8");
        server.await.expect("no panic").expect("a clean end");
        rest
    }
}
