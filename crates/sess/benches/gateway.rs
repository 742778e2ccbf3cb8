//! The gateway beside bare axum: one message to many followers, pages of history, start and memory.
//!
//! `cargo bench -p sess --bench gateway`; `SESS_BENCH_SCALE=0.1` makes fewer rounds and stores less. The
//! gateway is the real program in a process of its own, and so is the bound: this file run with `bare`, a
//! server that broadcasts what it is sent, copies rows out of the same file, and commits what it is given.
//! What is followed, ours has from a third process, durably; the bound has it from memory. Rounds of both are
//! interleaved.

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod bare;

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use sess_core::{
    MessageId, SessionId, Source, Timestamp,
    message::{Body, Role},
    session::NewSession,
};
use sess_store::{ImportedSession, NewMessage, Store};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::Notify,
    task::JoinSet,
};

const FOLLOWERS: [usize; 4] = [1, 100, 1_000, 5_000];
const ROUNDS: f64 = 200.0;
const PAGES: f64 = 3_000.0;
/// How many clients ask for pages at a time.
const ASKING: usize = 16;
/// How many clients send at a time.
const SENDERS: usize = 64;
/// To how many sessions: none of them gets a long queue, whose length would be measured, too.
const INBOXES: usize = 1_000;
const TRANSCRIPT_LEN: usize = 10_000;
/// How many read all of it at a time.
const WALKERS: usize = 64;
/// About a kilobyte a message.
const WORDS: usize = 170;
/// The most that one page has.
const PAGE_LEN_MAX: usize = 1_000;
const STARTS: f64 = 20.0;
const STORED: f64 = 1_000_000.0;
const LONG: f64 = 100_000.0;
const IMPORTED_LEN: usize = 1_000;
/// How long everything is left alone before memory is read.
const REST: Duration = Duration::from_millis(500);
const KIB: f64 = 1024.0;

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    if std::env::args().any(|argument| argument == "bare") {
        return runtime.block_on(bare::serve());
    }
    raise_open_files();
    println!("{:<58} {:>12} {:>12} {:>7}   to reach", "figure", "ours", "bound", "ratio");
    runtime.block_on(async {
        starts().await;
        pages().await;
        transcript().await;
        appends().await;
        for door in [Door::Sse, Door::WebSocket] {
            for count in FOLLOWERS {
                told(door, count).await;
            }
        }
    });
}

#[expect(clippy::disallowed_methods, reason = "a benchmark reads its one setting here")]
fn scaled(whole: f64, least: usize) -> usize {
    let scale: f64 = std::env::var("SESS_BENCH_SCALE").ok().and_then(|text| text.parse().ok()).unwrap_or(1.0);
    ((whole * scale) as usize).max(least)
}

fn raise_open_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("a soft limit can be raised to the hard one");
}

fn row(figure: &str, ours: f64, bound: f64, unit: &str, to_reach: &str) {
    let ratio = ours / bound;
    println!("{figure:<58} {ours:>9.2} {unit} {bound:>9.2} {unit} {ratio:>6.2}x   {to_reach}");
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

/// Returns the time that so many of a hundred did not exceed.
fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort();
    times[(times.len() * percent / 100).min(times.len() - 1)]
}

fn median(mut times: Vec<Duration>) -> Duration {
    percentile(&mut times, 50)
}

/// The gateway or the bound, as a process.
struct Server {
    child: Child,
    address: SocketAddr,
    token: String,
}

/// The program on a machine where no other agent was used, whoever runs the benchmark.
fn program(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sess"));
    command.env("SESS_HOME", home).env("HOME", home).stderr(Stdio::null());
    command
}

impl Server {
    fn ours(home: &Path) -> Self {
        let sess = || {
            let mut command = program(home);
            command.env("SESS_SESSION_MAX_QUEUE", "10000");
            command
        };
        let mut server = Self::start(sess().args(["serve", "--listen", "127.0.0.1:0", "--json"]));
        let token = sess().arg("token").output().expect("the program starts").stdout;
        server.token = String::from_utf8(token).expect("UTF-8").trim_end().to_owned();
        server
    }

    fn bare() -> Self {
        Self::start(Command::new(std::env::current_exe().expect("this program")).arg("bare"))
    }

    /// The bound, with the file of a store to read from.
    async fn bare_on(home: &Path) -> Self {
        let bare = Self::bare();
        let path = home.join("sess.db");
        bare.connect().await.ask("POST", "/open", path.to_str().expect("UTF-8").as_bytes()).await;
        bare
    }

    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the program starts");
        let mut line = String::new();
        let output = child.stdout.as_mut().expect("piped");
        BufReader::new(output).read_line(&mut line).expect("it says where it listens");
        let said: Value = serde_json::from_str(&line).expect("JSON");
        let url = said["listening"].as_str().expect("an address");
        let address = url.strip_prefix("http://").expect("plain HTTP").parse().expect("an address");
        Self { child, address, token: String::new() }
    }

    fn rss_kib(&self) -> f64 {
        self.status_kib("VmRSS:")
    }

    fn peak_kib(&self) -> f64 {
        self.status_kib("VmHWM:")
    }

    fn forget_peak(&self) {
        fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5").expect("it is ours");
    }

    fn status_kib(&self, name: &str) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find(|line| line.starts_with(name)).expect("a line of that name");
        line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
    }

    async fn connect(&self) -> Client {
        // Thousands come at once, and the queue of a listener is shorter.
        let stream = loop {
            match TcpStream::connect(self.address).await {
                Ok(stream) => break stream,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        };
        stream.set_nodelay(true).expect("set");
        Client { stream, address: self.address, token: self.token.clone(), read: Vec::new() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }
}

/// One connection that asks again and again.
struct Client {
    stream: TcpStream,
    address: SocketAddr,
    token: String,
    read: Vec<u8>,
}

impl Client {
    async fn send(&mut self, method: &str, path: &str, headers: &str, body: &[u8]) {
        let Self { address, token, .. } = self;
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n{headers}\
             Content-Length: {length}\r\n\r\n"
        );
        self.stream.write_all(&[head.as_bytes(), body].concat()).await.expect("sent");
    }

    /// Returns the body of the answer, which is a 200.
    async fn ask(&mut self, method: &str, path: &str, body: &[u8]) -> Vec<u8> {
        self.send(method, path, "Content-Type: application/json\r\n", body).await;
        self.read_past(b"\r\n\r\n").await;
        let end = find(&self.read, b"\r\n\r\n").expect("it is read") + 4;
        let head = String::from_utf8_lossy(&self.read[..end]).to_ascii_lowercase();
        let is_done = head.starts_with("http/1.1 200");
        assert!(is_done, "{head}{}", String::from_utf8_lossy(&self.read[end..]));
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.and_then(|text| text.parse().ok()).expect("a length");
        self.read.reserve((end + length).saturating_sub(self.read.len()));
        while self.read.len() < end + length {
            assert_ne!(self.stream.read_buf(&mut self.read).await.expect("read"), 0, "it stays open");
        }
        let mut body = std::mem::take(&mut self.read);
        body.drain(..end);
        body
    }

    async fn read_past(&mut self, mark: &[u8]) {
        while find(&self.read, mark).is_none() {
            let count = self.stream.read_buf(&mut self.read).await.expect("read");
            assert_ne!(count, 0, "it stays open: {}", String::from_utf8_lossy(&self.read));
        }
    }
}

fn find(bytes: &[u8], mark: &[u8]) -> Option<usize> {
    bytes.windows(mark.len()).position(|window| window == mark)
}

/// From the start of the process to its first 200, and what it needs then.
async fn starts() {
    let first_200 = async |start: &dyn Fn() -> Server| {
        let begun = Instant::now();
        let server = start();
        server.connect().await.ask("GET", "/healthz", b"").await;
        (begun.elapsed(), server)
    };
    let empty = tempfile::tempdir().expect("a temporary directory");
    let full = tempfile::tempdir().expect("a temporary directory");
    let messages = scaled(STORED, IMPORTED_LEN);
    let store = sess_store::open(full.path()).expect("a store");
    for n in 0..messages / IMPORTED_LEN {
        import(&*store, &format!("bench-{n:06}"), IMPORTED_LEN).await;
    }
    // The token's file is made by the first start, which is not measured.
    drop((Server::ours(empty.path()), Server::ours(full.path())));
    let started = |home: &Path| {
        // The token is asked for by another process, whose time is not the gateway's.
        Server::start(program(home).args(["serve", "--listen", "127.0.0.1:0", "--json"]))
    };
    let (mut bound, mut ours, mut stored, mut killed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let id: SessionId = "bench-000000".parse().expect("an id");
    for _ in 0..scaled(STARTS, 5) {
        bound.push(first_200(&Server::bare).await.0);
        ours.push(first_200(&|| started(empty.path())).await.0);
        stored.push(first_200(&|| started(full.path())).await.0);
        // A log is left behind by the server that is dropped, which is a kill -9.
        let before = started(full.path());
        append(&*store, &id, "something to recover").await;
        drop(before);
        killed.push(first_200(&|| started(full.path())).await.0);
    }
    let bound = ms(median(bound));
    row("start to the first 200", ms(median(ours)), bound, "ms", "under 30 ms");
    let figure = format!("start to the first 200, {messages} messages stored");
    row(&figure, ms(median(stored)), bound, "ms", "under 30 ms");
    row("start to the first 200 after kill -9", ms(median(killed)), bound, "ms", "under 100 ms");

    let (ours, bare) = (Server::ours(full.path()), Server::bare());
    for server in [&ours, &bare] {
        server.connect().await.ask("GET", "/healthz", b"").await;
    }
    tokio::time::sleep(REST).await;
    row("memory at rest", ours.rss_kib() / KIB, bare.rss_kib() / KIB, "MB", "under 20 MB");
}

/// The last 50 messages, beside a handler that copies the same rows.
async fn pages() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let store = sess_store::open(home.path()).expect("a store");
    let long = scaled(LONG, IMPORTED_LEN);
    import(&*store, "short", IMPORTED_LEN).await;
    import(&*store, "long", long).await;
    let (ours, bare) = (Server::ours(home.path()), Server::bare_on(home.path()).await);
    let (mut asking, mut bound) = (ours.connect().await, bare.connect().await);
    let path = |session: &str| format!("/sessions/{session}/history?limit=50");
    let bare_path = bare_page("short", usize::MAX >> 1, 50);
    let (mut of_short, mut of_long, mut of_bare) = (Vec::new(), Vec::new(), Vec::new());
    let timed = async |client: &mut Client, path: &str| {
        let begun = Instant::now();
        client.ask("GET", path, b"").await;
        begun.elapsed()
    };
    for _ in 0..scaled(PAGES, 100) {
        of_short.push(timed(&mut asking, &path("short")).await);
        of_bare.push(timed(&mut bound, &bare_path).await);
        of_long.push(timed(&mut asking, &path("long")).await);
    }
    let (short, long_took) = (median(of_short), median(of_long));
    row("last 50 messages over HTTP, p50", ms(short), ms(median(of_bare)), "ms", "within 2x");
    let figure = format!("last 50 of {long} messages, beside those of {IMPORTED_LEN}");
    row(&figure, ms(long_took), ms(short), "ms", "at most 1.3x");
    let ours = pages_a_second(&ours, &path("short")).await;
    let bound = pages_a_second(&bare, &bare_path).await;
    row(&format!("pages of 50 messages, {ASKING} clients"), ours, bound, "/s", "");
}

fn bare_page(session: &str, before: usize, limit: usize) -> String {
    format!("/page?session={session}&before={before}&limit={limit}")
}

/// All of a long transcript, in the longest pages, and what a request needs meanwhile.
async fn transcript() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let store = sess_store::open(home.path()).expect("a store");
    import_words(&*store, "whole", TRANSCRIPT_LEN, WORDS).await;
    let (ours, bare) = (Server::ours(home.path()), Server::bare_on(home.path()).await);
    let (mut asking, mut bound) = (ours.connect().await, bare.connect().await);
    // What the store keeps of what was read, and what the first request leaves behind, is the server's.
    walk_back(&mut asking, "/sessions/whole/history?").await;
    tokio::time::sleep(REST).await;
    ours.forget_peak();
    let before_kib = ours.rss_kib();
    let mut walking = JoinSet::new();
    for _ in 0..WALKERS {
        let mut client = ours.connect().await;
        walking.spawn(async move { walk_back(&mut client, "/sessions/whole/history?").await });
    }
    walking.join_all().await;
    let needed = (ours.peak_kib() - before_kib) / KIB / WALKERS as f64;
    println!(
        "{:<58} {needed:>9.2} MB {:>29}",
        format!("memory of a request for a page, of {WALKERS}"),
        "under 1 MB"
    );
    let path = format!("/sessions/whole/history?limit={PAGE_LEN_MAX}");
    let (mut of_ours, mut of_bare) = (Vec::new(), Vec::new());
    for _ in 0..scaled(ROUNDS, 25) / 5 {
        let begun = Instant::now();
        let bytes = walk_back(&mut asking, &path).await;
        of_ours.push(bytes as f64 / 1e6 / begun.elapsed().as_secs_f64());
        let (begun, mut bytes) = (Instant::now(), 0);
        for page in (0..TRANSCRIPT_LEN / PAGE_LEN_MAX).rev() {
            let path = bare_page("whole", (page + 1) * PAGE_LEN_MAX + 1, PAGE_LEN_MAX);
            bytes += bound.ask("GET", &path, b"").await.len();
        }
        of_bare.push(bytes as f64 / 1e6 / begun.elapsed().as_secs_f64());
    }
    // A bare copy in one process is three times as fast as what has to be reached.
    let figure = format!("a transcript of {TRANSCRIPT_LEN} messages as JSON");
    row(&figure, middle(of_ours), middle(of_bare), "MB/s", "at least 0.31x");
}

/// Reads all pages of a transcript, from the newest to the oldest; returns how much that was.
async fn walk_back(client: &mut Client, path: &str) -> usize {
    let (mut bytes, mut next) = (0, path.to_owned());
    loop {
        let page = client.ask("GET", &next, b"").await;
        bytes += page.len();
        // The last field of a page, behind megabytes of messages.
        let tail = String::from_utf8_lossy(&page[page.len().saturating_sub(400)..]).into_owned();
        let Some((_, cursor)) = tail.split_once("\"nextCursor\":\"") else { return bytes };
        next = format!("{path}&cursor={}", cursor.split('"').next().unwrap_or_default());
    }
}

fn middle(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// A message that is stored before it is answered for, beside a bare commit behind HTTP.
async fn appends() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let store = sess_store::open(home.path()).expect("a store");
    for n in 0..INBOXES {
        // Another program's session: what is sent waits in its inbox, and no model has a part in it.
        let name = format!("inbox-{n}");
        let session = NewSession::chat(name.parse().expect("an id"), Source::Claude, at(0));
        store
            .import(ImportedSession { session, starred: false, messages: vec![] })
            .await
            .expect("it is stored");
    }
    let (ours, bare) = (Server::ours(home.path()), Server::bare());
    let body = json!({ "message": "nothing in particular was said here", "timeoutSeconds": 0 }).to_string();
    for (senders, to_reach) in [(1, "p50 within 1.6x"), (SENDERS, "at least 0.5x")] {
        let (mut of_ours, mut of_bare) = (Vec::new(), Vec::new());
        for _ in 0..scaled(ROUNDS, 10) / 10 {
            of_ours.push(
                a_second(&ours, senders, |n| format!("/sessions/inbox-{}/send", n % INBOXES), &body).await,
            );
            of_bare.push(a_second(&bare, senders, |_| "/append".to_owned(), &body).await);
        }
        let [ours, bound] = [of_ours, of_bare].map(middle);
        if senders == 1 {
            row("a durable message over HTTP", 1e3 / ours, 1e3 / bound, "ms", to_reach);
        } else {
            row(&format!("durable messages over HTTP, {senders} senders"), ours, bound, "/s", to_reach);
        }
    }
}

/// Posts the same body again and again.
async fn a_second(server: &Server, senders: usize, path: fn(usize) -> String, body: &str) -> f64 {
    const ROUND: Duration = Duration::from_millis(300);
    let mut sending = JoinSet::new();
    let mut clients = Vec::new();
    for n in 0..senders {
        clients.push((server.connect().await, n));
    }
    let begun = Instant::now();
    for (mut client, n) in clients {
        let body = body.to_owned();
        sending.spawn(async move {
            let mut sent = 0;
            while begun.elapsed() < ROUND {
                client.ask("POST", &path(n + sent * senders), body.as_bytes()).await;
                sent += 1;
            }
            sent
        });
    }
    let sent: usize = sending.join_all().await.into_iter().sum();
    sent as f64 / begun.elapsed().as_secs_f64()
}

async fn pages_a_second(server: &Server, path: &str) -> f64 {
    let each = scaled(PAGES, 100) / 4;
    let mut asking = JoinSet::new();
    let begun = Instant::now();
    for _ in 0..ASKING {
        let (mut client, path) = (server.connect().await, path.to_owned());
        asking.spawn(async move {
            for _ in 0..each {
                client.ask("GET", &path, b"").await;
            }
        });
    }
    asking.join_all().await;
    (ASKING * each) as f64 / begun.elapsed().as_secs_f64()
}

#[derive(Clone, Copy)]
enum Door {
    Sse,
    WebSocket,
}

/// Counts who has the message of this round.
#[derive(Default)]
struct Round {
    number: AtomicUsize,
    expected: AtomicUsize,
    have_it: AtomicUsize,
    all: Notify,
}

impl Round {
    fn mark(number: usize) -> String {
        format!("<round {number}>")
    }

    fn text(number: usize) -> String {
        format!("{} {}", Self::mark(number), "something was said that everybody hears ".repeat(4))
    }
}

/// A server with its followers.
struct Followed {
    server: Server,
    round: Arc<Round>,
    followers: JoinSet<()>,
    before_kib: f64,
    times: Vec<Duration>,
}

impl Followed {
    async fn new(server: Server, door: Door, count: usize) -> Self {
        // What the first request of its kind leaves behind is not a follower's.
        let round = Arc::new(Round { expected: AtomicUsize::new(count), ..Round::default() });
        drop(opened(&server, door).await);
        tokio::time::sleep(REST).await;
        let before_kib = server.rss_kib();
        let mut followers = JoinSet::new();
        for _ in 0..count {
            followers.spawn(follow(opened(&server, door).await, Arc::clone(&round)));
        }
        tokio::time::sleep(REST).await;
        Self { server, round, followers, before_kib, times: Vec::new() }
    }

    /// Takes the time from `tell` until the last follower has it.
    async fn tell(&mut self, number: usize, tell: impl Future<Output = ()>) {
        self.round.have_it.store(0, Ordering::Relaxed);
        self.round.number.store(number, Ordering::Relaxed);
        let begun = Instant::now();
        tell.await;
        let all = tokio::time::timeout(Duration::from_secs(30), self.round.all.notified()).await;
        assert!(
            all.is_ok(),
            "{} of {} have it",
            self.round.have_it.load(Ordering::Relaxed),
            self.followers.len()
        );
        self.times.push(begun.elapsed());
    }
}

/// Opens a stream and reads until nothing comes any more but what is told.
async fn opened(server: &Server, door: Door) -> Client {
    let mut client = server.connect().await;
    let is_bare = server.token.is_empty();
    match (door, is_bare) {
        (Door::Sse, true) => client.send("GET", "/sse", "", b"").await,
        (Door::Sse, false) => {
            client.send("GET", "/sessions/followed/history?follow=1&limit=1", "", b"").await;
        }
        (Door::WebSocket, _) => {
            let path = if is_bare { "/bare-ws" } else { "/ws" };
            let headers = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                           Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
            client.send("GET", path, headers, b"").await;
        }
    }
    client.read_past(b"\r\n\r\n").await;
    if !is_bare {
        match door {
            Door::Sse => client.read_past(b"event: history").await,
            Door::WebSocket => {
                let auth = json!({ "token": client.token });
                let bench = json!({ "id": "bench", "version": "1" });
                let connect = json!({ "minProtocol": 1, "maxProtocol": 1, "client": bench, "auth": auth });
                let follow = json!({ "key": "followed" });
                for (id, method, params) in
                    [("1", "connect", connect), ("2", "sessions.messages.subscribe", follow)]
                {
                    let request = json!({ "type": "req", "id": id, "method": method, "params": params });
                    client.stream.write_all(&frame(&request.to_string())).await.expect("sent");
                    client.read_past(format!("\"id\":\"{id}\"").as_bytes()).await;
                }
            }
        }
    }
    client
}

/// Returns a text frame. Its mask is of zeros, which leaves the text as it is.
fn frame(text: &str) -> Vec<u8> {
    let length = u16::try_from(text.len()).expect("a short text");
    let mut bytes = vec![0x81];
    match u8::try_from(length) {
        Ok(length @ ..126) => bytes.push(0x80 | length),
        _ => bytes.extend([&[0xFE][..], &length.to_be_bytes()].concat()),
    }
    bytes.extend([0; 4]);
    bytes.extend(text.as_bytes());
    bytes
}

async fn follow(mut client: Client, round: Arc<Round>) {
    client.read = Vec::new();
    let mut seen = 0;
    // Ends with its server.
    while let Ok(1..) = client.stream.read_buf(&mut client.read).await {
        let number = round.number.load(Ordering::Relaxed);
        if number != seen && find(&client.read, Round::mark(number).as_bytes()).is_some() {
            client.read.clear();
            seen = number;
            if round.have_it.fetch_add(1, Ordering::Relaxed) + 1 == round.expected.load(Ordering::Relaxed) {
                round.all.notify_one();
            }
        }
    }
}

/// One message to so many followers, until the last one has it.
async fn told(door: Door, count: usize) {
    let home = tempfile::tempdir().expect("a temporary directory");
    let store = sess_store::open(home.path()).expect("a store");
    import(&*store, "followed", 10).await;
    let id: SessionId = "followed".parse().expect("an id");
    let mut ours = Followed::new(Server::ours(home.path()), door, count).await;
    let mut bare = Followed::new(Server::bare(), door, count).await;
    let mut telling = bare.server.connect().await;
    let rounds = scaled(ROUNDS / (1.0 + count as f64 / 1_000.0), 5);
    for number in 1..=rounds {
        let text = Round::text(number);
        bare.tell(number, async { drop(telling.ask("POST", "/tell", text.as_bytes()).await) }).await;
        ours.tell(number, append(&*store, &id, &text)).await;
    }
    let (name, memory) = match door {
        Door::Sse => ("SSE", "under 28 kB"),
        Door::WebSocket => ("WebSocket", "under 16 kB"),
    };
    let to_reach = if count >= 1_000 { "within 2.5x" } else { "" };
    for percent in [50, 99] {
        let times = [&mut ours, &mut bare].map(|followed| ms(percentile(&mut followed.times, percent)));
        let figure = format!("one message to {count} over {name}, the last one, p{percent}");
        row(&figure, times[0], times[1], "ms", if percent == 50 { to_reach } else { "" });
    }
    if count < 100 {
        return;
    }
    let each =
        [&ours, &bare].map(|followed| (followed.server.rss_kib() - followed.before_kib) / count as f64);
    row(&format!("memory of a follower over {name}, of {count}"), each[0], each[1], "kB", memory);
    if count == 1_000 {
        let all = [&ours, &bare].map(|followed| followed.server.rss_kib() / KIB);
        row(&format!("memory with {count} followers over {name}"), all[0], all[1], "MB", "under 64 MB");
    }
}

fn at(n: usize) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + n as i64).expect("in range")
}

async fn import(store: &dyn Store, name: &str, length: usize) {
    import_words(store, name, length, 1).await;
}

async fn import_words(store: &dyn Store, name: &str, length: usize, words: usize) {
    let session = NewSession::chat(name.parse().expect("an id"), Source::Native, at(0));
    let said = "nothing in particular was said here, ".repeat(words.div_ceil(6));
    let message = |n: usize| {
        let text = format!("message {n} of {name}: {said}");
        NewMessage { id: MessageId::new(at(n), random()), body: Body::text(Role::User, text, at(n)) }
    };
    let messages = (0..length).map(message).collect();
    store.import(ImportedSession { session, starred: false, messages }).await.expect("it is stored");
}

async fn append(store: &dyn Store, session: &SessionId, text: &str) {
    let now = Timestamp::default();
    let message = NewMessage { id: MessageId::new(now, random()), body: Body::text(Role::User, text, now) };
    store.append(session, vec![message], None).await.expect("it is stored");
}

fn random() -> u128 {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system has random bytes");
    u128::from_ne_bytes(bytes)
}
