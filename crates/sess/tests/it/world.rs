//! A home of its own for each test, and the binary run in it.

use std::{
    fs,
    io::{BufRead, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Output, Stdio},
    sync::mpsc::{Receiver, sync_channel},
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;

/// How long anything may take before a test calls it hung.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A directory that is home, data and working directory.
pub struct World {
    dir: TempDir,
}

/// What came of a run: exit code, stdout, stderr.
#[derive(Debug)]
pub struct Run {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl World {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a temporary directory") }
    }

    /// A world with two sessions: `old` of ten messages, and the newer, starred `new-session` of two.
    pub fn with_sessions() -> Self {
        let world = Self::new();
        let talk: Vec<_> = (1..=10).map(|n| message("user", &format!("question {n}"), n)).collect();
        world.write("old.jsonl", &session("old", "About uploads", &talk));
        let talk = [
            message("user", "why do uploads fail exactly once?", 100_000),
            message("assistant", "Because nothing retries them.", 101_000),
        ];
        world.write("new.jsonl", &session("new-session", "Failing uploads", &talk));
        world.ok(["import", "old.jsonl", "new.jsonl"]);
        world
    }

    pub fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(below)
    }

    pub fn data(&self) -> PathBuf {
        self.path("data")
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        fs::write(self.path(name), text).expect("a file is written");
        self.path(name)
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("a file is read")
    }

    /// The binary with nothing inherited.
    pub fn command<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sess"));
        command.args(args);
        self.clean(&mut command);
        command
    }

    /// Gives a command this world's environment and no other.
    pub fn clean(&self, command: &mut Command) {
        command
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", self.dir.path())
            .env("SESS_HOME", self.data())
            .env("LANG", "C.UTF-8")
            .current_dir(self.dir.path());
    }

    pub fn run<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Run {
        self.run_env(&[], args)
    }

    pub fn run_env<'a>(&self, env: &[(&str, &str)], args: impl IntoIterator<Item = &'a str>) -> Run {
        let mut command = self.command(args);
        command.envs(env.iter().copied()).stdin(Stdio::null());
        command.output().expect("sess starts").into()
    }

    pub fn run_input<'a>(&self, input: &str, args: impl IntoIterator<Item = &'a str>) -> Run {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("sess starts");
        // A command that refuses before it reads is no failure of the test.
        let _unread = child.stdin.take().expect("piped").write_all(input.as_bytes());
        child.wait_with_output().expect("sess ends").into()
    }

    /// Runs what has to succeed, and returns its data.
    #[track_caller]
    pub fn ok<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> String {
        let run = self.run(args);
        assert_eq!(run.code, 0, "{run:?}");
        run.stdout
    }

    #[track_caller]
    pub fn ok_input<'a>(&self, input: &str, args: impl IntoIterator<Item = &'a str>) -> String {
        let run = self.run_input(input, args);
        assert_eq!(run.code, 0, "{run:?}");
        run.stdout
    }

    /// Runs with `--json`, and returns the one object that came; it has its version.
    #[track_caller]
    pub fn json<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Value {
        let text = self.ok(args.into_iter().chain(["--json"]));
        let data: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(data["schema_version"], 1, "{text}");
        data
    }

    /// Runs what has to fail: the code, and what is said about it, with nothing on stdout.
    #[track_caller]
    pub fn fails<'a>(&self, args: impl IntoIterator<Item = &'a str>, code: i32, said: &str) {
        self.run(args).fails(code, said);
    }

    /// Writes a plan in session `s1` and calls it ready.
    pub fn ready_plan(&self) {
        self.ok_input("# Plan\n\none\n", ["plan", "write", "--session", "s1"]);
        self.ok(["tool", "call", "exit_plan_mode", "--session", "s1"]);
    }
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).expect("stdout is UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("stderr is UTF-8"),
        }
    }
}

impl Run {
    #[track_caller]
    pub fn fails(&self, code: i32, said: &str) {
        // Nothing is answered; whoever asked for JSON is told the error in it.
        let is_error = |data: Value| data["error"]["exitCode"] == json!(code);
        let is_no_answer = self.stdout.is_empty() || serde_json::from_str(&self.stdout).is_ok_and(is_error);
        assert!(self.code == code && is_no_answer, "{self:?}");
        assert!(self.stderr.contains(said), "expected {said:?} in {:?}", self.stderr);
        assert!(!self.stderr.contains("panicked"), "{self:?}");
    }
}

/// A session in the format of `sess import`.
pub fn session(id: &str, title: &str, messages: &[Value]) -> String {
    let head = json!({
        "type": "session", "id": id, "key": format!("agent:main:chat:{id}"), "agentId": "main",
        "title": title, "createdAt": "2026-01-02T03:04:05Z",
    });
    std::iter::once(&head).chain(messages).map(|line| line.to_string() + "\n").collect()
}

/// A message, some seconds after its session began.
pub fn message(role: &str, text: &str, after_s: i64) -> Value {
    let content = json!([{ "type": "text", "text": text }]);
    json!({ "role": role, "content": content, "timestamp": 1_767_323_045_000_i64 + after_s * 1000 })
}

/// A process that runs beside the test, read line by line.
pub struct Beside {
    pub child: Child,
    pub input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Beside {
    pub fn start(mut command: Command) -> Self {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().expect("sess starts");
        let stdout = child.stdout.take().expect("piped");
        let (sender, lines) = sync_channel(1_000);
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { input: child.stdin.take(), child, lines }
    }

    #[track_caller]
    pub fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("a line comes")
    }

    pub fn send(&mut self, line: &str) {
        let input = self.input.as_mut().expect("still open");
        writeln!(input, "{line}").expect("it reads");
    }

    /// Ends it as Ctrl-C does, and returns the exit code.
    pub fn interrupt(self) -> Option<i32> {
        self.signal("INT")
    }

    /// Sends it a signal that it ends at, and returns the exit code.
    pub fn signal(mut self, name: &str) -> Option<i32> {
        let pid = self.child.id().to_string();
        let killed = Command::new("kill").args(["-s", name, &pid]).status().expect("kill starts");
        assert!(killed.success());
        self.child.wait().expect("it ends").code()
    }

    /// Closes its input, and returns the exit code.
    pub fn close(mut self) -> Option<i32> {
        drop(self.input.take());
        self.child.wait().expect("it ends").code()
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // Already ended when the test went well.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}
