//! The figures of the whole program beside their bounds: start, memory, plan writes.
//!
//! `cargo bench -p sess`; `SESS_BENCH_SCALE=0.01` shrinks the data for a smoke
//! run. The bound of a start is `cat`, which does nothing but answer a line; of
//! a plan write, the bare atomic write of a file.

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use sess_app::{App, Settings, Signals, WritePlan};
use sess_core::{
    MessageId, Source, Timestamp,
    message::{Body, Role},
    policy::ContextVisibility,
    session::NewSession,
};
use sess_store::{ImportedSession, NewMessage};

const STARTS: usize = 40;
const PLAN_WRITES: usize = 3_000;
const MESSAGES: f64 = 1_000_000.0;
const MESSAGES_PER_SESSION: usize = 1_000;

fn main() {
    println!("{:<54} {:>12} {:>12} {:>7}   to reach", "figure", "ours", "bound", "ratio");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");

    let empty = tempfile::tempdir().expect("a temporary directory");
    let bare = median((0..STARTS).map(|_| start_of_cat()).collect());
    let ours = median((0..STARTS).map(|_| start(empty.path(), "tools/list")).collect());
    row("start to tools/list", ours, bare, "under 30 ms");

    let full = tempfile::tempdir().expect("a temporary directory");
    let messages = (MESSAGES * scale()) as usize;
    runtime.block_on(fill(full.path(), messages));
    let ours = median((0..STARTS).map(|_| start(full.path(), "tools/list")).collect());
    row(&format!("start to tools/list, {messages} messages stored"), ours, bare, "under 30 ms");
    let ours = median((0..STARTS).map(|_| start(full.path(), "list_sessions")).collect());
    row(&format!("start to list_sessions, {messages} messages stored"), ours, bare, "under 30 ms");
    let ours = median((0..STARTS / 4).map(|_| start_after_kill(full.path())).collect());
    row("start to list_sessions after kill -9 of a writer", ours, bare, "under 100 ms");

    memory(full.path());
    plan_writes(&runtime);
}

#[expect(clippy::disallowed_methods, reason = "a benchmark reads its one setting here")]
fn scale() -> f64 {
    std::env::var("SESS_BENCH_SCALE").ok().and_then(|text| text.parse().ok()).unwrap_or(1.0)
}

fn row(figure: &str, ours: Duration, bound: Duration, to_reach: &str) {
    let ratio = ours.as_secs_f64() / bound.as_secs_f64();
    println!("{figure:<54} {:>12} {:>12} {ratio:>6.2}x   {to_reach}", shown(ours), shown(bound));
}

fn shown(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1_000.0)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// A running `sess mcp`, or `cat` in its place.
struct Server {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Server {
    fn spawn(command: &mut Command) -> Self {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program starts");
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, input, output }
    }

    fn sess(home: &Path) -> Self {
        Self::spawn(
            Command::new(env!("CARGO_BIN_EXE_sess")).arg("mcp").env("HOME", home).env("SESS_HOME", home),
        )
    }

    fn ask(&mut self, line: &str) -> String {
        writeln!(self.input, "{line}").expect("it reads");
        let mut answer = String::new();
        self.output.read_line(&mut answer).expect("it answers");
        answer
    }

    fn end(mut self) {
        drop(self.input);
        self.child.wait().expect("it ends");
    }

    fn rss_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line of that name");
        line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
    }
}

fn request(what: &str) -> String {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "bench", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let (method, params) = match what {
        "tools/list" => ("tools/list", json!({ "_meta": meta })),
        tool => ("tools/call", json!({ "name": tool, "arguments": {}, "_meta": meta })),
    };
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
}

/// Returns the time from the start of the process to its answer.
fn start(home: &Path, what: &str) -> Duration {
    let begun = Instant::now();
    let mut server = Server::sess(home);
    let answer: Value = serde_json::from_str(&server.ask(&request(what))).expect("JSON");
    let took = begun.elapsed();
    assert!(answer["result"].is_object() && answer["result"]["isError"] != true, "{answer}");
    server.end();
    took
}

fn start_of_cat() -> Duration {
    let begun = Instant::now();
    let mut cat = Server::spawn(&mut Command::new("cat"));
    cat.ask("hello");
    let took = begun.elapsed();
    cat.end();
    took
}

/// Kills a process that writes, so that the next one finds a log to recover.
fn start_after_kill(home: &Path) -> Duration {
    let mut writer = Server::sess(home);
    for _ in 0..20 {
        let call =
            request("write_session_plan").replace("\"arguments\":{}", "\"arguments\":{\"content\":\"# p\"}");
        let answer = writer.ask(&call);
        assert!(answer.contains("Plan saved"), "{answer}");
    }
    writer.child.kill().expect("it runs");
    writer.child.wait().expect("it ends");
    start(home, "list_sessions")
}

fn memory(home: &Path) {
    let mut cat = Server::spawn(&mut Command::new("cat"));
    cat.ask("hello");
    let mut server = Server::sess(home);
    server.ask(&request("tools/list"));
    let at_rest = server.rss_kib();
    for tool in ["list_sessions", "read_session_plan"] {
        server.ask(&request(tool));
    }
    let used = server.rss_kib();
    let bare = cat.rss_kib();
    for (figure, ours) in [("memory at rest", at_rest), ("memory at rest, after tool calls", used)] {
        println!(
            "{figure:<54} {:>9.1} MB {:>9.1} MB {:>6.2}x   under 20 MB",
            ours as f64 / 1024.0,
            bare as f64 / 1024.0,
            ours as f64 / bare as f64
        );
    }
    cat.end();
    server.end();
}

fn plan_writes(runtime: &tokio::runtime::Runtime) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let bare_dir = dir.path().join("bare");
    fs::create_dir(&bare_dir).expect("a directory");
    let app = App::new(Settings {
        home: Some(dir.path().join("home")),
        plans_dir: None,
        plans_keep_days: 0,
        context_visibility: ContextVisibility::All,
        configured: sess_app::ConfigSource::fixed(sess_app::Configured::default()),
        cwd: None,
        repo: None,
        homes: None,
        host: "here".to_owned(),
        now: Timestamp::default,
        random,
    });
    let caller = app.caller(&Signals { explicit: Some("bench".to_owned()), ..Signals::default() });
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for n in 0..PLAN_WRITES {
        let content = format!("# Plan {n}\n\n{}", "1. measure\n".repeat(200));
        let begun = Instant::now();
        write_file(&bare_dir, &content);
        bare.push(begun.elapsed());
        let begun = Instant::now();
        let write = WritePlan { content, ..WritePlan::default() };
        runtime.block_on(app.write_plan(&caller, write)).expect("it is written");
        ours.push(begun.elapsed());
    }
    row("plan write, durable (file and row)", median(ours), median(bare), "within 1.7x");
}

/// The bare atomic, durable write of a file.
fn write_file(dir: &Path, content: &str) {
    let temporary = dir.join(".plan.tmp");
    let mut file = File::create(&temporary).expect("a file");
    file.write_all(content.as_bytes()).expect("it is written");
    file.sync_all().expect("it is flushed");
    fs::rename(&temporary, dir.join("plan.md")).expect("it is renamed");
    File::open(dir).and_then(|dir| dir.sync_all()).expect("the directory is flushed");
}

async fn fill(home: &Path, messages: usize) {
    let store = sess_store::open(home).expect("a store");
    let at = |n: usize| Timestamp::from_millis(1_700_000_000_000 + n as i64).expect("in range");
    for n in 0..messages.div_ceil(MESSAGES_PER_SESSION) {
        let id = format!("bench-{n:06}").parse().expect("an id");
        let session = NewSession::chat(id, Source::Native, at(n * MESSAGES_PER_SESSION));
        let message = |m: usize| {
            let at = at(n * MESSAGES_PER_SESSION + m);
            let text = format!("message {m} of session {n}: nothing in particular was said here");
            NewMessage { id: MessageId::new(at, m as u128), body: Body::text(Role::User, text, at) }
        };
        let messages = (0..MESSAGES_PER_SESSION).map(message).collect();
        store.import(ImportedSession { session, starred: false, messages }).await.expect("it is stored");
    }
}

fn random() -> u128 {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system has random bytes");
    u128::from_ne_bytes(bytes)
}
