//! The toolset `mcp`: the tools of an outside server, which may die and come back.
//!
//! The server is started or reached at the first use. Its tools keep their names. That a tool only reads is
//! the server's own claim; without it a call is taken to act.

use std::{
    collections::HashMap,
    path::PathBuf,
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use rmcp::{
    RoleClient, ServiceError, ServiceExt as _,
    model::{CallToolRequestParams, CallToolResult, ContentBlock, ResourceContents},
    service::RunningService,
    transport::{
        StreamableHttpClientTransport, async_rw::AsyncRwTransport,
        streamable_http_client::StreamableHttpClientTransportConfig,
    },
};
use serde_json::{Map, Value};
use sess_core::{agent::McpServer, permission::Reach};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader},
    process::{Child, ChildStderr},
    sync::Semaphore,
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use crate::{
    confine::Confinement,
    process::{Group, Launch},
    shell::without_secrets,
    tool::{ToolDef, ToolOutput, Toolbox, capped},
};

/// How long a server may take to start and to list its tools.
pub const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How long one call may take when nobody says.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(120);
/// The longest message that a server may send.
const MESSAGE_BYTES_MAX: usize = 16_000_000;
/// How many tools of one server are offered.
const TOOLS_MAX: usize = 500;
/// The longest name of a tool that every provider takes.
const TOOL_NAME_LEN_MAX: usize = 64;
/// How long a server that does not start is left alone: the first time, and at most.
const BACKOFF: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// The longest line of a server's complaints that is logged.
const LOG_LINE_BYTES_MAX: u64 = 4_000;

/// What all servers of an agent have in common.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where a command runs.
    pub root: PathBuf,
    /// What a command sees besides its own `env:`; secrets in it are left out.
    pub env: Vec<(String, String)>,
    pub confinement: Option<Arc<Confinement>>,
    pub http: reqwest::Client,
    pub call_timeout: Duration,
}

/// The tools of one outside server.
pub struct McpTools {
    server: McpServer,
    options: Options,
    state: Mutex<State>,
    /// Whoever holds it is connecting; the others wait for what comes of it.
    connecting: Semaphore,
}

#[derive(Default)]
struct State {
    connection: Option<Arc<Connection>>,
    failures: u32,
    not_before: Option<Instant>,
}

struct Connection {
    service: RunningService<RoleClient, ()>,
    process: Option<Process>,
}

/// Ends with its whole group.
struct Process {
    _child: Child,
    _group: Group,
    log: JoinHandle<()>,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.log.abort();
    }
}

impl McpTools {
    pub fn new(server: McpServer, options: Options) -> Self {
        Self { server, options, state: Mutex::default(), connecting: Semaphore::new(1) }
    }

    /// The process of a server that was started, while it is connected.
    pub fn process_id(&self) -> Option<u32> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.connection.as_ref()?.process.as_ref()?._child.id()
    }

    /// How errors call the server. The rest of an address is a secret as often as not.
    fn shown(&self) -> String {
        match &self.server {
            McpServer::Command { command, .. } => command.clone(),
            McpServer::Url { url, .. } => origin(url),
        }
    }

    /// Says what went wrong; whoever sends a request puts the whole address into its errors.
    fn told(&self, error: &dyn std::fmt::Display) -> String {
        match &self.server {
            McpServer::Command { .. } => error.to_string(),
            McpServer::Url { url, .. } => without_address(&error.to_string(), url),
        }
    }

    /// Returns the connection there is, or makes one.
    async fn connection(&self) -> Result<Arc<Connection>, String> {
        let _only_one = self.connecting.acquire().await.map_err(|error| error.to_string())?;
        {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(connection) = &state.connection {
                if !connection.service.is_closed() && !connection.service.peer().is_transport_closed() {
                    return Ok(connection.clone());
                }
                state.connection = None;
            }
            let wait = state.not_before.map(|at| at.saturating_duration_since(Instant::now()));
            if let Some(wait) = wait.filter(|wait| !wait.is_zero()) {
                let seconds = wait.as_secs() + 1;
                return Err(format!(
                    "the MCP server {} did not start; it is tried again in {seconds} s",
                    self.shown()
                ));
            }
        }
        let connected = tokio::time::timeout(START_TIMEOUT, self.connect()).await;
        let connected = connected.unwrap_or_else(|_| Err("it took too long".to_owned()));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match connected {
            Ok(connection) => {
                let connection = Arc::new(connection);
                *state = State { connection: Some(connection.clone()), ..State::default() };
                Ok(connection)
            }
            Err(reason) => {
                let pause = BACKOFF * 2_u32.saturating_pow(state.failures.min(6));
                state.failures += 1;
                state.not_before = Some(Instant::now() + pause.min(BACKOFF_MAX));
                Err(format!("the MCP server {} did not start: {reason}", self.shown()))
            }
        }
    }

    async fn connect(&self) -> Result<Connection, String> {
        match &self.server {
            McpServer::Command { command, args, env } => self.start(command, args, env).await,
            McpServer::Url { url, headers } => {
                if self.options.confinement.as_ref().is_some_and(|confined| !confined.policy().network) {
                    return Err("it is reached over the network, which the sandbox does not allow".to_owned());
                }
                let mut all = HashMap::new();
                for (name, value) in headers {
                    // The values are secrets as often as not: the message names the header alone.
                    let invalid = || format!("the header \"{name}\" is not valid");
                    let value = value.parse().map_err(|_| invalid())?;
                    all.insert(name.parse().map_err(|_| invalid())?, value);
                }
                let config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
                    .custom_headers(all)
                    .max_sse_event_size(MESSAGE_BYTES_MAX);
                let transport = StreamableHttpClientTransport::with_client(self.options.http.clone(), config);
                let service = ().serve(transport).await.map_err(|error| self.told(&error))?;
                Ok(Connection { service, process: None })
            }
        }
    }

    async fn start(
        &self,
        command: &str,
        args: &[String],
        env: &[(String, String)],
    ) -> Result<Connection, String> {
        let mut all = without_secrets(self.options.env.clone());
        all.retain(|(name, _)| !env.iter().any(|(own, _)| own == name));
        all.extend(env.iter().cloned());
        let cwd = self.options.root.clone();
        let args = args.iter().map(Into::into).collect();
        let launch = Launch { program: PathBuf::from(command), args, env: all, cwd };
        let launch = match &self.options.confinement {
            Some(confinement) => confinement.launch(launch),
            None => launch,
        };
        let mut command = launch.command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let group = Group::of(&child);
        let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = streams else {
            return Err("it has no pipes".to_owned());
        };
        let log = tokio::spawn(log(self.shown(), stderr));
        let process = Process { _child: child, _group: group, log };
        let transport = AsyncRwTransport::new_client(stdout, stdin).with_max_line_length(MESSAGE_BYTES_MAX);
        let service = ().serve(transport).await.map_err(|error| error.to_string())?;
        Ok(Connection { service, process: Some(process) })
    }

    async fn list(&self) -> Result<Vec<ToolDef>, String> {
        let mut connection = self.connection().await?;
        let mut listed = tokio::time::timeout(START_TIMEOUT, connection.service.list_all_tools()).await;
        if let Ok(Err(error)) = &listed
            && is_lost(error)
        {
            // It died since it was last used. Listing acts on nothing, so it can be asked again.
            self.forget(&connection);
            connection = self.connection().await?;
            listed = tokio::time::timeout(START_TIMEOUT, connection.service.list_all_tools()).await;
        }
        let tools = match listed {
            Ok(Ok(tools)) => tools,
            Ok(Err(error)) => {
                return Err(format!(
                    "the MCP server {} did not list its tools: {}",
                    self.shown(),
                    self.told(&error)
                ));
            }
            Err(_) => return Err(format!("the MCP server {} did not list its tools in time", self.shown())),
        };
        let (mut tools, unusable): (Vec<_>, Vec<_>) =
            tools.into_iter().partition(|tool| is_tool_name(&tool.name));
        for tool in unusable {
            let name = tool.name.as_ref();
            tracing::warn!(server = self.shown(), "a tool is left out, no model takes its name: {name:?}");
        }
        if tools.len() > TOOLS_MAX {
            tracing::warn!(server = self.shown(), "only the first {TOOLS_MAX} of its tools are offered");
            tools.truncate(TOOLS_MAX);
        }
        Ok(tools.into_iter().map(definition).collect())
    }

    /// Lets go of a connection that leads nowhere, before its own task has noticed.
    fn forget(&self, lost: &Arc<Connection>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.connection.as_ref().is_some_and(|current| Arc::ptr_eq(current, lost)) {
            state.connection = None;
        }
    }

    async fn call_now(&self, name: &str, arguments: Map<String, Value>) -> Result<ToolOutput, String> {
        let connection = self.connection().await?;
        let params = CallToolRequestParams::new(name.to_owned()).with_arguments(arguments);
        let limit = self.options.call_timeout;
        let Ok(answer) = tokio::time::timeout(limit, connection.service.call_tool(params)).await else {
            return Err(format!("{name} of {} took longer than {} seconds", self.shown(), limit.as_secs()));
        };
        match answer {
            Ok(result) => Ok(output(&result)),
            Err(ServiceError::McpError(error)) => Err(error.message.into_owned()),
            Err(error) if is_lost(&error) || connection.service.peer().is_transport_closed() => {
                self.forget(&connection);
                Err(format!(
                    "the MCP server {} ended during {name} ({}); whether it acted is not known, and it is \
                     started again at the next call",
                    self.shown(),
                    self.told(&error)
                ))
            }
            Err(error) => Err(format!("{name} of {} failed: {}", self.shown(), self.told(&error))),
        }
    }
}

#[async_trait]
impl Toolbox for McpTools {
    async fn tools(&self) -> Vec<ToolDef> {
        self.list().await.unwrap_or_else(|reason| {
            tracing::warn!("{reason}");
            Vec::new()
        })
    }

    async fn call(
        &self,
        name: &str,
        arguments: Map<String, Value>,
        cancel: &CancellationToken,
    ) -> ToolOutput {
        tokio::select! {
            biased;
            () = cancel.cancelled() => ToolOutput::error("cancelled"),
            answer = self.call_now(name, arguments) => answer.unwrap_or_else(ToolOutput::error),
        }
    }
}

/// Tells whether the way to the server is gone, rather than one request refused.
fn is_lost(error: &ServiceError) -> bool {
    matches!(error, ServiceError::TransportSend(_) | ServiceError::TransportClosed)
}

/// Tells whether every provider takes this name: one that it refuses would spoil each request.
fn is_tool_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=TOOL_NAME_LEN_MAX).contains(&name.len()) && name.bytes().all(is_plain)
}

/// Returns scheme, host and port of an address.
fn origin(url: &str) -> String {
    match reqwest::Url::parse(url) {
        Ok(url) => url.origin().ascii_serialization(),
        Err(_) => "(its address is not valid)".to_owned(),
    }
}

/// Shortens an address in a text to its origin, as it was given and as a request shows it.
fn without_address(text: &str, url: &str) -> String {
    let mut text = text.replace(url, &origin(url));
    if let Ok(mut parsed) = reqwest::Url::parse(url) {
        text = text.replace(parsed.as_str(), &origin(url));
        // A name and a password go into a header, and out of the address.
        if parsed.set_username("").is_ok() && parsed.set_password(None).is_ok() {
            text = text.replace(parsed.as_str(), &origin(url));
        }
    }
    text
}

fn definition(tool: rmcp::model::Tool) -> ToolDef {
    let only_reads = tool.annotations.is_some_and(|hints| hints.read_only_hint == Some(true));
    ToolDef {
        name: tool.name.into_owned(),
        description: tool.description.map(std::borrow::Cow::into_owned).unwrap_or_default(),
        input_schema: Arc::unwrap_or_clone(tool.input_schema),
        reach: if only_reads { Reach::Harmless } else { Reach::World },
    }
}

fn output(result: &CallToolResult) -> ToolOutput {
    let mut parts: Vec<String> = result
        .content
        .iter()
        .map(|block| match block {
            ContentBlock::Text(text) => text.text.clone(),
            ContentBlock::Image(image) => format!("[an image, {}]", image.mime_type),
            ContentBlock::Audio(audio) => format!("[a sound, {}]", audio.mime_type),
            ContentBlock::ResourceLink(link) => format!("[see {}]", link.uri),
            ContentBlock::Resource(resource) => match &resource.resource {
                ResourceContents::TextResourceContents { text, .. } => text.clone(),
                ResourceContents::BlobResourceContents { uri, .. } => format!("[data, {uri}]"),
                _ => "[something that cannot be shown]".to_owned(),
            },
            _ => "[something that cannot be shown]".to_owned(),
        })
        .collect();
    if let (true, Some(structured)) = (parts.is_empty(), &result.structured_content) {
        parts.push(structured.to_string());
    }
    ToolOutput {
        text: capped(parts.join("\n")),
        is_error: result.is_error == Some(true),
        ..ToolOutput::default()
    }
}

/// Puts a server's complaints in our log.
async fn log(server: String, stderr: ChildStderr) {
    let mut reader = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut reader).take(LOG_LINE_BYTES_MAX).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => tracing::info!(server, "{}", String::from_utf8_lossy(&line).trim_end()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_told_without_its_secrets() {
        assert_eq!(origin("https://me:pw@example.com/k3y/mcp?token=t#f"), "https://example.com");
        assert_eq!(origin("http://127.0.0.1:81/mcp"), "http://127.0.0.1:81");
        assert_eq!(origin("k3y"), "(its address is not valid)");
        let url = "https://me:pw@example.com/k3y/../mcp?token=t";
        for shown in [url, "https://me:pw@example.com/mcp?token=t", "https://example.com/mcp?token=t"] {
            let text = without_address(&format!("error sending request for url ({shown})"), url);
            assert_eq!(text, "error sending request for url (https://example.com)");
        }
    }

    #[test]
    fn names_that_a_provider_refuses_are_known() {
        let longest = "a".repeat(TOOL_NAME_LEN_MAX);
        for name in ["read", "Get_it-2", &longest] {
            assert!(is_tool_name(name), "{name}");
        }
        for name in ["", "a.b", "a b", "café", "a\n", &format!("{longest}a")] {
            assert!(!is_tool_name(name), "{name}");
        }
    }
}
