//! A gateway on a port of its own, and a client that sends what it is told, byte for byte.

use std::{
    net::SocketAddr,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, ThreadId},
};

use serde_json::Value;
use sess_app::{App, ConfigSource, Configured, NewToken, Settings, agents::Agents};
use sess_core::{
    MessageId, SessionId, Source, Timestamp,
    message::{Body, Role},
    policy::ContextVisibility,
    session::{NewSession, Runner, Session},
};
use sess_protocol::tokens::Scope;
use sess_server::{
    Error,
    gateway::{self, GatewayOptions, Limits},
};
use sess_store::{NewMessage, Store};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::oneshot,
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

pub(crate) struct Gateway {
    pub(crate) home: TempDir,
    pub(crate) app: App,
    pub(crate) address: SocketAddr,
    /// The owner's.
    pub(crate) token: String,
    pub(crate) stop: CancellationToken,
    pub(crate) server: Option<JoinHandle<Result<(), Error>>>,
    options: GatewayOptions,
    cast: Cast,
}

/// Who is there besides the clients.
#[derive(Clone, Copy)]
pub(crate) struct Cast {
    pub(crate) configured: fn() -> Configured,
    pub(crate) agents: fn(&App) -> Option<Agents>,
}

const NOBODY: Cast = Cast { configured: Configured::default, agents: |_| None };

pub(crate) fn now() -> Timestamp {
    Timestamp::parse_rfc3339("2026-11-15T12:00:00Z").expect("a time")
}

/// What the next random number breaks with, and on which thread.
static BREAKS: Mutex<Option<(ThreadId, String)>> = Mutex::new(None);

/// Lets whatever needs a random number next panic with this text: a test and its gateway share a thread.
pub(crate) fn break_with(text: &str) {
    *BREAKS.lock().expect("no panic") = Some((thread::current().id(), text.to_owned()));
}

pub(crate) fn random() -> u128 {
    let breaks = BREAKS.lock().expect("no panic").take_if(|(on, _)| *on == thread::current().id());
    if let Some((_, text)) = breaks {
        panic!("{text}");
    }
    static CALLS: AtomicU64 = AtomicU64::new(1);
    let n = CALLS.fetch_add(1, Ordering::Relaxed);
    u128::from(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 64 | u128::from(n)
}

fn app(home: &Path, configured: Configured) -> App {
    app_among(home, configured, None)
}

fn app_among(home: &Path, configured: Configured, homes: Option<sess_readers::Homes>) -> App {
    App::new(Settings {
        home: Some(home.to_owned()),
        plans_dir: None,
        plans_keep_days: 30,
        context_visibility: ContextVisibility::All,
        configured: ConfigSource::fixed(configured),
        cwd: None,
        repo: None,
        homes,
        host: "here".to_owned(),
        now,
        random,
    })
}

impl Gateway {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    pub(crate) async fn start_limited(change: impl FnOnce(&mut Limits)) -> Self {
        Self::start_with(|options| change(&mut options.limits)).await
    }

    pub(crate) async fn start_with(change: impl FnOnce(&mut GatewayOptions)) -> Self {
        Self::start_cast(NOBODY, change).await
    }

    /// Starts one on a machine where other agents keep sessions.
    pub(crate) async fn start_among(homes: sess_readers::Homes) -> Self {
        Self::start_as(NOBODY, Some(homes), |_| {}).await
    }

    pub(crate) async fn start_cast(cast: Cast, change: impl FnOnce(&mut GatewayOptions)) -> Self {
        Self::start_as(cast, None, change).await
    }

    async fn start_as(
        cast: Cast,
        homes: Option<sess_readers::Homes>,
        change: impl FnOnce(&mut GatewayOptions),
    ) -> Self {
        let home = tempfile::tempdir().expect("a directory");
        let app = app_among(home.path(), (cast.configured)(), homes);
        let token = app.owner_token().expect("a token").reveal().to_owned();
        let mut options = GatewayOptions {
            listen: "127.0.0.1:0".parse().expect("an address"),
            ..GatewayOptions::default()
        };
        change(&mut options);
        let address = options.listen;
        let stop = CancellationToken::new();
        let mut gateway = Self { home, app, address, token, stop, server: None, options, cast };
        gateway.begin().await;
        gateway
    }

    async fn begin(&mut self) {
        self.stop = CancellationToken::new();
        let (sent, heard) = oneshot::channel();
        let ready = move |address| sent.send(address).expect("somebody waits");
        let agents = (self.cast.agents)(&self.app);
        let served = gateway::serve(self.app.clone(), agents, self.options.clone(), self.stop.clone(), ready);
        self.server = Some(tokio::spawn(served));
        self.address = heard.await.expect("it listens");
    }

    pub(crate) async fn end(&mut self) {
        self.stop.cancel();
        let server = self.server.take().expect("it runs");
        server.await.expect("no panic").expect("a quiet end");
    }

    /// Ends it and starts another one on the same directory, as another process would.
    pub(crate) async fn restart(&mut self) {
        self.end().await;
        self.app = app(self.home.path(), (self.cast.configured)());
        self.begin().await;
    }

    /// Opens the store as another process would.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        sess_store::open(self.home.path()).expect("a store")
    }

    pub(crate) async fn new_token(&self, new: NewToken) -> String {
        let made = self.app.create_token(&sess_app::Access::owner(), new).await.expect("a token");
        made.0.reveal().to_owned()
    }

    pub(crate) async fn scoped(&self, scope: Scope) -> String {
        self.new_token(NewToken { scopes: vec![scope], ..NewToken::default() }).await
    }

    /// Asks as the owner.
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, Some(&self.token), None).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask("POST", path, Some(&self.token), Some(body)).await
    }

    pub(crate) async fn ask(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        body: Option<&Value>,
    ) -> Answer {
        let bearer = token.map(|token| format!("Bearer {token}"));
        let mut headers = Vec::new();
        if let Some(bearer) = &bearer {
            headers.push(("Authorization", bearer.as_str()));
        }
        let text = body.map(Value::to_string).unwrap_or_default();
        if body.is_some() {
            headers.push(("Content-Type", "application/json"));
        }
        self.request(method, path, &headers, text.as_bytes()).await
    }

    pub(crate) async fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let mut head = format!("{method} {path} HTTP/1.1\r\n");
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            head.push_str(&format!("Host: {}\r\n", self.address));
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        head.push_str("Connection: close\r\n\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(body);
        self.raw(&bytes).await
    }

    /// Sends bytes and reads until the other side is done.
    pub(crate) async fn raw(&self, bytes: &[u8]) -> Answer {
        let socket = TcpStream::connect(self.address).await.expect("it listens");
        Answer::parse(&exchanged(socket, bytes).await)
    }

    /// As [`Self::raw`], for several requests at once: everything that came back.
    pub(crate) async fn raw_text(&self, bytes: &[u8]) -> String {
        let socket = TcpStream::connect(self.address).await.expect("it listens");
        String::from_utf8(exchanged(socket, bytes).await).expect("UTF-8")
    }

    /// Asks on a connection that is there already.
    pub(crate) async fn on(
        &self,
        socket: TcpStream,
        method: &str,
        path: &str,
        headers: &[(&str, String)],
    ) -> Answer {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", self.address);
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        Answer::parse(&exchanged(socket, format!("{head}\r\n").as_bytes()).await)
    }

    /// Makes a session that another program runs.
    pub(crate) async fn session(&self, key: &str, id: &str) -> Session {
        let session = new_session(key, id);
        self.store().ensure_session(session).await.expect("a session")
    }

    /// Appends messages as another process would.
    pub(crate) async fn say(&self, session: &Session, texts: &[&str]) {
        let store = self.store();
        for text in texts {
            let appended = store.append(&session.id, vec![message(Role::User, text)], None).await;
            appended.expect("a message");
        }
    }

    pub(crate) async fn follow(&self, path: &str, headers: &[(&str, &str)]) -> Stream {
        let bearer = format!("Bearer {}", self.token);
        let mut all = vec![("Authorization", bearer.as_str())];
        all.extend_from_slice(headers);
        Stream::open(self.address, path, &all).await
    }
}

async fn exchanged(mut socket: TcpStream, bytes: &[u8]) -> Vec<u8> {
    // It may refuse before it has read everything.
    let _sent = socket.write_all(bytes).await;
    let mut answer = Vec::new();
    let _read = socket.read_to_end(&mut answer).await;
    answer
}

pub(crate) fn new_session(key: &str, id: &str) -> NewSession {
    let id: SessionId = id.parse().expect("an id");
    let mut new = NewSession::chat(id, Source::Native, now());
    new.key = key.parse().expect("a key");
    new.agent = new.key.agent().expect("an agent");
    new.facts.runner = Runner::Host;
    new
}

pub(crate) fn message(role: Role, text: &str) -> NewMessage {
    NewMessage { id: MessageId::new(now(), random()), body: Body::text(role, text, now()) }
}

/// Writes a key as a path has it.
pub(crate) fn encoded(key: &str) -> String {
    key.replace('%', "%25").replace(':', "%3A").replace('/', "%2F")
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    fn parse(bytes: &[u8]) -> Self {
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
            return Self { status: 0, headers: Vec::new(), body: bytes.to_vec() };
        };
        let head = std::str::from_utf8(&bytes[..end]).expect("a head");
        let (status, headers) = head_of(head);
        let body = &bytes[end + 4..];
        let is_chunked =
            headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
        let body = if is_chunked { unchunked(body).0 } else { body.to_vec() };
        Self { status, headers, body }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| {
            panic!("{error}: {} {}", self.status, String::from_utf8_lossy(&self.body))
        })
    }

    /// Returns the type of an error, and checks that it has the one shape.
    pub(crate) fn error(&self) -> String {
        let body = self.json();
        assert_eq!(body.as_object().map(serde_json::Map::len), Some(1), "{body}");
        assert!(body["error"]["message"].as_str().is_some_and(|message| !message.is_empty()), "{body}");
        body["error"]["type"].as_str().expect("a type").to_owned()
    }

    pub(crate) fn message(&self) -> String {
        self.json()["error"]["message"].as_str().expect("a message").to_owned()
    }
}

fn head_of(head: &str) -> (u16, Vec<(String, String)>) {
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|status| status.parse().ok());
    let headers = lines.filter_map(|line| line.split_once(':'));
    let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()));
    (status.expect("a status"), headers.collect())
}

/// Returns whole chunks, how many bytes they took, and whether that was all.
fn unchunked(bytes: &[u8]) -> (Vec<u8>, usize, bool) {
    let (mut out, mut at) = (Vec::new(), 0);
    while let Some(line) = bytes[at..].windows(2).position(|window| window == b"\r\n") {
        let size = std::str::from_utf8(&bytes[at..at + line]).expect("a size");
        let size = usize::from_str_radix(size, 16).expect("a size");
        let (from, to) = (at + line + 2, at + line + 2 + size);
        if bytes.len() < to + 2 {
            break;
        }
        out.extend_from_slice(&bytes[from..to]);
        at = to + 2;
        if size == 0 {
            return (out, at, true);
        }
    }
    (out, at, false)
}

/// A stream of events that is read as far as a test likes.
pub(crate) struct Stream {
    socket: TcpStream,
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    raw: Vec<u8>,
    text: String,
    is_over: bool,
    /// Bytes that came so far.
    pub(crate) read: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Event {
    /// Empty for comments.
    pub(crate) name: String,
    pub(crate) id: Option<String>,
    pub(crate) data: String,
}

impl Event {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.data).expect("JSON")
    }
}

impl Stream {
    pub(crate) async fn open(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Self {
        let mut socket = TcpStream::connect(address).await.expect("it listens");
        let mut head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        socket.write_all(head.as_bytes()).await.expect("it reads");
        Self::from_socket(socket).await
    }

    /// Reads the answer to what was asked for on this connection.
    pub(crate) async fn from_socket(mut socket: TcpStream) -> Self {
        let mut raw = Vec::new();
        let end = loop {
            if let Some(end) = raw.windows(4).position(|window| window == b"\r\n\r\n") {
                break end;
            }
            assert!(socket.read_buf(&mut raw).await.expect("an answer") > 0, "an answer");
        };
        let (status, headers) = head_of(std::str::from_utf8(&raw[..end]).expect("a head"));
        raw.drain(..end + 4);
        Self { socket, status, headers, raw, text: String::new(), is_over: false, read: 0 }
    }

    /// Returns the next event or comment; `None` when the stream is over, however it ended.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        self.next_within(usize::MAX).await
    }

    /// As [`Self::next`]; `None` also when that many bytes came and no event was whole.
    pub(crate) async fn next_within(&mut self, bytes: usize) -> Option<Event> {
        loop {
            let (whole, used, is_last) = unchunked(&self.raw);
            self.raw.drain(..used);
            self.text.push_str(std::str::from_utf8(&whole).expect("UTF-8"));
            self.is_over |= is_last;
            if let Some(end) = self.text.find("\n\n") {
                let block: String = self.text.drain(..end + 2).collect();
                return Some(parse_event(&block));
            }
            if self.is_over || self.read >= bytes {
                return None;
            }
            match self.socket.read_buf(&mut self.raw).await {
                Ok(read) if read > 0 => self.read += read,
                _ => self.is_over = true,
            }
        }
    }

    /// Returns the next event that is no comment.
    pub(crate) async fn event(&mut self) -> Event {
        loop {
            let event = self.next().await.expect("an event");
            if !event.name.is_empty() {
                return event;
            }
        }
    }
}

fn parse_event(block: &str) -> Event {
    let mut event = Event::default();
    for line in block.lines() {
        if let Some(name) = line.strip_prefix("event: ") {
            event.name = name.to_owned();
        } else if let Some(id) = line.strip_prefix("id: ") {
            event.id = Some(id.to_owned());
        } else if let Some(data) = line.strip_prefix("data: ") {
            event.data.push_str(data);
        } else {
            event.data.push_str(line);
        }
    }
    event
}
