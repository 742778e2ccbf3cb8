//! `sess ps`, on real processes that go by the names of agents.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::SystemTime,
};

use serde_json::{Value, json};
use sess_core::Timestamp;

use crate::{
    terminal::in_terminal,
    world::{Beside, World},
};

/// A process that waits for its input to end; ended with the test.
struct Waiting(Child);

impl Waiting {
    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn start_ticks(&self) -> String {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("it runs");
        let fields = stat.rsplit_once(')').expect("a name").1;
        fields.split_whitespace().nth(19).expect("a start").to_owned()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _ended = self.0.wait();
    }
}

/// Starts `cat` under another name.
fn start(world: &World, name: &str, arguments: &[&str]) -> Waiting {
    let program = program(world, name, "/bin/cat");
    spawn(world, Command::new(program).args(arguments))
}

fn spawn(world: &World, command: &mut Command) -> Waiting {
    let dir = world.path("acme");
    fs::create_dir_all(&dir).expect("made");
    let child = command.current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
    Waiting(child.expect("it starts"))
}

fn program(world: &World, name: &str, of: &str) -> PathBuf {
    let bin = world.path("bin");
    fs::create_dir_all(&bin).expect("made");
    // One that runs cannot be written to.
    if bin.join(name).exists() {
        return bin.join(name);
    }
    fs::copy(of, bin.join(name)).expect("copied");
    fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).expect("made a program");
    bin.join(name)
}

/// Returns what is told of one process.
fn told(world: &World, pid: u32) -> Value {
    let all = world.json(["ps"]);
    let agents = all["agents"].as_array().expect("agents");
    agents.iter().find(|agent| agent["pid"] == pid).cloned().unwrap_or_default()
}

#[expect(clippy::disallowed_methods, reason = "what is busy is told by the clock")]
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    Timestamp::from_millis_clamped(i64::try_from(since.as_millis()).expect("it fits"))
}

#[test]
fn secrets_in_the_names_of_directories_and_branches_are_masked() {
    let world = World::new();
    let secret = "ghp_16C7e42F292c6912E7710c838347Ae178B4a";
    let dir = world.path(format!("acme/{secret}"));
    fs::create_dir_all(dir.join(".git")).expect("made");
    fs::write(dir.join(".git/HEAD"), format!("ref: refs/heads/{secret}\n")).expect("written");
    let program = program(&world, "codex", "/bin/cat");
    let child = Command::new(program).current_dir(&dir).stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
    let process = Waiting(child.expect("it starts"));
    let told = told(&world, process.pid());
    for field in ["cwd", "branch"] {
        let text = told[field].as_str().expect(field);
        assert!(text.contains("ghp_") && !text.contains(secret), "{told}");
    }
}

#[test]
fn agents_are_told_by_their_program_or_their_script() {
    let world = World::new();
    fs::create_dir_all(world.path("acme/.git")).expect("made");
    fs::write(world.path("acme/.git/HEAD"), "ref: refs/heads/fix/it\n").expect("written");
    let names =
        ["codex", "gemini", "opencode", "goose", "cursor-agent", "crush", "amp", "openclaw", "docker-agent"];
    for name in names {
        let process = start(&world, name, &[]);
        let told = told(&world, process.pid());
        let source = if name == "cursor-agent" { "cursor" } else { name };
        assert_eq!(
            (&told["source"], &told["state"], &told["branch"]),
            (&json!(source), &json!("idle"), &json!("fix/it"))
        );
        assert!(told["cwd"].as_str().expect("a directory").ends_with("/acme"), "{told}");
    }
    // A shell under the name of an interpreter runs the script.
    let node = program(&world, "node", "/bin/sh");
    world.write("gemini.js", "read line\n");
    let script = spawn(&world, Command::new(node).arg(world.path("gemini.js")));
    assert_eq!(told(&world, script.pid())["source"], "gemini");
    let other = start(&world, "codexes", &[]);
    assert_eq!(told(&world, other.pid()), Value::Null);
    // One that has ended and that nobody waited for is none.
    let mut ended = start(&world, "crush", &[]);
    drop(ended.0.stdin.take());
    while !fs::read_to_string(format!("/proc/{}/stat", ended.pid())).expect("a zombie").contains(") Z ") {
        std::thread::yield_now();
    }
    assert_eq!(told(&world, ended.pid()), Value::Null);
}

#[test]
fn a_narrow_terminal_shows_the_branch_and_less_of_what_was_said() {
    let world = World::new();
    for dir in ["acme/.git", ".claude/sessions", ".claude/projects/-w"] {
        fs::create_dir_all(world.path(dir)).expect("made");
    }
    world.write("acme/.git/HEAD", "ref: refs/heads/fix/it\n");
    let line = json!({
        "type": "user", "uuid": "u1", "parentUuid": null, "sessionId": "s1", "cwd": "/w",
        "timestamp": "2026-11-10T09:00:00Z",
        "message": { "role": "user", "content": "Shall I go on? ".repeat(20) },
    });
    world.write(".claude/projects/-w/session-1.jsonl", &format!("{line}\n"));
    let process = start(&world, "claude", &[]);
    let entry = json!({
        "pid": process.pid(), "sessionId": "session-1", "cwd": world.path("acme"),
        "procStart": process.start_ticks(), "status": "waiting", "startedAt": now().as_millis(),
    });
    world.write(&format!(".claude/sessions/{}.json", process.pid()), &entry.to_string());
    for width in [80, 100] {
        let mut command = world.command(["ps"]);
        command.env("NO_COLOR", "1");
        let shown = in_terminal(command, width);
        let pid = format!(" {} ", process.pid());
        let row = shown.lines().find(|line| line.contains(&pid)).expect("its row");
        assert!(shown.starts_with("AGENT") && shown.contains("  BRANCH  "), "{shown}");
        assert!(
            row.contains(" needs input ") && row.contains("  fix/it  ") && row.contains("  Shall"),
            "{shown}"
        );
        assert!(row.ends_with('…') && row.chars().count() <= usize::from(width), "{shown}");
    }
}

#[test]
fn a_registry_counts_for_the_process_that_it_names_and_no_later_one() {
    let world = World::new();
    fs::create_dir_all(world.path(".claude/sessions")).expect("made");
    fs::create_dir_all(world.path(".claude/projects/-w")).expect("made");
    let line = json!({
        "type": "user", "uuid": "u1", "parentUuid": null, "sessionId": "s1", "cwd": "/w",
        "timestamp": "2026-11-10T09:00:00Z",
        "message": { "role": "user", "content": "First.\nShall I go on with ghp_16C7e42F292c6912E7710c838347Ae178B4a?\n" },
    });
    world.write(".claude/projects/-w/session-1.jsonl", &format!("{line}\n"));
    let (right, wrong) = (start(&world, "claude", &[]), start(&world, "claude", &[]));
    let register = |pid: u32, start: &str, status: &str| {
        let entry = json!({
            "pid": pid, "sessionId": "session-1", "cwd": world.path("acme"), "procStart": start, "status": status,
            "startedAt": now().as_millis(),
        });
        world.write(&format!(".claude/sessions/{pid}.json"), &entry.to_string());
    };
    for (status, state) in [("waiting", "needs_input"), ("busy", "busy"), ("shell", "busy"), ("idle", "idle")]
    {
        register(right.pid(), &right.start_ticks(), status);
        assert_eq!(told(&world, right.pid())["state"], state, "{status}");
    }
    let agent = told(&world, right.pid());
    assert_eq!(agent["session"], "claude:session-1");
    let last = agent["last_line"].as_str().expect("a line");
    assert!(last.starts_with("Shall I go on with ") && !last.contains("ghp_16C7"), "{agent}");
    world.ok(["rename", "claude:session-1", "what I call it"]);
    assert_eq!(told(&world, right.pid())["title"], "what I call it");

    // Its number is another process's now: the one that was registered is dead, the other one lives.
    fs::remove_file(world.path(format!(".claude/sessions/{}.json", right.pid()))).expect("deleted");
    register(wrong.pid(), "1", "busy");
    let all = world.json(["ps"]);
    let of_wrong =
        all["agents"].as_array().expect("agents").iter().filter(|agent| agent["pid"] == wrong.pid());
    let states: Vec<&Value> = of_wrong.map(|agent| &agent["state"]).collect();
    assert_eq!(states, ["idle", "dead"], "{all}");
    // A number that no process has, torn files, and those of older releases.
    register(4_194_303, "1", "idle");
    world.write(".claude/sessions/7.json", "{\"pid\"");
    world.write(".claude/sessions/pid-8.json", "{}");
    assert_eq!(told(&world, 4_194_303)["state"], "dead");
    assert_eq!((told(&world, 7), told(&world, 8)), (Value::Null, Value::Null));
}

#[test]
fn a_registry_that_cannot_be_read_is_told_of() {
    let world = World::new();
    fs::create_dir_all(world.path(".claude")).expect("made");
    let registry = world.path(".claude/sessions");
    // A link to itself: nobody can read it, root neither.
    std::os::unix::fs::symlink(&registry, &registry).expect("linked");
    let run = world.run(["ps"]);
    assert!(run.code == 0 && run.stderr.contains("notice: claude: "), "{run:?}");
    assert!(run.stderr.contains(&*registry.to_string_lossy()), "{run:?}");
}

#[test]
fn an_agent_is_busy_while_its_transcript_changes_and_has_messages_and_a_plan() {
    let world = World::new();
    let process = start(&world, "codex", &[]);
    let day = world.path(".codex/sessions/2026/11/16");
    fs::create_dir_all(&day).expect("made");
    let id = "0199a213-81c0-7800-8aa1-bbab2a035a53";
    let rollout = |at: Timestamp, cwd: PathBuf| {
        let meta = json!({ "timestamp": at.to_string(), "type": "session_meta",
            "payload": { "id": id, "timestamp": at.to_string(), "cwd": cwd, "originator": "codex", "cli_version": "1" } });
        let said = json!({ "timestamp": at.to_string(), "type": "event_msg",
            "payload": { "type": "user_message", "message": "Add a retry." } });
        fs::write(day.join(format!("rollout-2026-11-16T10-00-00-{id}.jsonl")), format!("{meta}\n{said}\n"))
            .expect("written");
    };
    // Before it started, or elsewhere: not its own.
    rollout(now().days_before(2), world.path("acme"));
    assert_eq!(told(&world, process.pid())["session"], Value::Null);
    rollout(now(), world.path("elsewhere"));
    assert_eq!(told(&world, process.pid())["session"], Value::Null);
    let cwd = world.path("acme").canonicalize().expect("there");
    rollout(Timestamp::from_millis_clamped(now().as_millis() + 1_000), cwd);
    let agent = told(&world, process.pid());
    assert_eq!((&agent["state"], &agent["last_line"]), (&json!("busy"), &json!("Add a retry.")), "{agent}");
    world.ok_input("# Plan\n", ["plan", "write", "--session", &format!("codex:{id}")]);
    world.ok(["send", &format!("codex:{id}"), "--wait", "0", "Are you there?"]);
    let agent = told(&world, process.pid());
    assert_eq!((&agent["unread"], &agent["plan"]), (&json!(1), &json!("draft")), "{agent}");
    // A second one there has a session of its own, which is not known.
    let second = start(&world, "codex", &[]);
    let sessions =
        [told(&world, process.pid()), told(&world, second.pid())].map(|agent| agent["session"].clone());
    assert_eq!(sessions.iter().filter(|session| session.is_null()).count(), 1, "{sessions:?}");
    // Its arguments may name it.
    drop((process, second));
    let named = start(&world, "codex", &["-", id]);
    assert_eq!(told(&world, named.pid())["session"], format!("codex:{id}"));
}

#[test]
fn our_own_processes_are_told_and_each_change_is_a_line() {
    let world = World::new();
    let mcp = Beside::start(world.command(["mcp"]));
    let own = told(&world, mcp.child.id());
    assert_eq!((&own["source"], &own["command"]), (&json!("native"), &json!("sess mcp")), "{own}");
    let watch = Beside::start(world.command(["ps", "--watch", "--json"]));
    assert!(watch.line().contains(&format!("\"pid\":{}", mcp.child.id())));
    let crush = start(&world, "crush", &[]);
    // Other tests' agents come and go meanwhile.
    while !watch.line().contains(&format!("\"pid\":{}", crush.pid())) {}
    assert_eq!(watch.interrupt(), Some(0));
    assert!(world.ok(["ps"]).contains("sess mcp"));
}
