//! `sess run` in a real terminal, with a stub of the Anthropic API at the other end.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    os::fd::OwnedFd,
    process::{Child, Command},
    sync::{Arc, Condvar, Mutex, mpsc::sync_channel},
    thread,
};

use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize},
};
use serde_json::{Value, json};
use stub_models::{Fault, FaultKind, Reply, Script, Stub};

use crate::world::{PATIENCE, World};

/// The plan seed's example, byte for byte.
const SEED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/session_plan.yaml");
const PLANNER: &str = "Investigate the user's request";
const ROOT: &str = "You execute plans";

/// The stub, on a thread of its own.
struct Models {
    stub: Arc<Stub>,
}

impl Models {
    fn new(replies: Vec<Reply>) -> Self {
        let (sender, started) = sync_channel(1);
        thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let stub = Arc::new(Stub::start(Script { replies }).await.expect("the stub starts"));
                sender.send(stub).expect("the test waits");
                std::future::pending::<()>().await;
            });
        });
        Self { stub: started.recv_timeout(PATIENCE).expect("the stub starts") }
    }

    /// Returns what the model was asked last.
    fn last_question(&self) -> String {
        self.stub.requests().last().expect("it was asked").body["messages"].to_string()
    }
}

/// The chat, and what its terminal was sent so far.
struct Chat {
    child: Child,
    keys: File,
    shown: Arc<(Mutex<Vec<u8>>, Condvar)>,
    /// How much of it was looked at.
    seen: usize,
}

impl Chat {
    fn start(world: &World, models: &Models, args: &[&str]) -> Self {
        Self::start_with(world, models, SEED, args)
    }

    fn start_with(world: &World, models: &Models, config: &str, args: &[&str]) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&master).and_then(|()| unlockpt(&master)).expect("a terminal");
        let name = ptsname(&master, Vec::new()).expect("its name").into_string().expect("UTF-8");
        let open = || File::options().read(true).write(true).open(&name).expect("the terminal opens");
        let size = Winsize { ws_row: 40, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(open(), size).expect("a size");
        // Ctrl-C is a signal only to whoever has the terminal for its own.
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait", env!("CARGO_BIN_EXE_sess"), "run", "--config", config]).args(args);
        world.clean(&mut command);
        command.envs([("TERM", "xterm-256color"), ("NO_COLOR", "1"), ("ANTHROPIC_API_KEY", "a-key")]);
        command.env("ANTHROPIC_BASE_URL", &models.stub.url);
        command.stdin(OwnedFd::from(open())).stdout(OwnedFd::from(open())).stderr(OwnedFd::from(open()));
        let child = command.spawn().expect("sess starts");
        drop(command);
        let keys = File::from(master);
        let mut terminal = keys.try_clone().expect("a second handle");
        let shown = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
        let heard = Arc::clone(&shown);
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            // Linux says EIO when the last writer is gone: that is the end.
            while let Ok(len @ 1..) = terminal.read(&mut buffer) {
                heard.0.lock().expect("not poisoned").extend(&buffer[..len]);
                heard.1.notify_all();
            }
        });
        Self { child, keys, shown, seen: 0 }
    }

    /// Waits until the terminal shows this, after what was waited for before; returns all in between.
    #[track_caller]
    fn expect(&mut self, text: &str) -> String {
        let (shown, changed) = &*self.shown;
        let guard = shown.lock().expect("not poisoned");
        let mut found = None;
        let look = |bytes: &mut Vec<u8>| {
            let plain = plain(&bytes[self.seen..]);
            found = plain
                .0
                .find(text)
                .map(|at| (plain.0[..at + text.len()].to_owned(), plain.1[at + text.len() - 1]));
            found.is_none()
        };
        let (guard, waited) = changed.wait_timeout_while(guard, PATIENCE, look).expect("not poisoned");
        let Some((before, end)) = found else {
            panic!("{text:?} was not shown ({waited:?}):\n{}", plain(&guard[self.seen..]).0)
        };
        self.seen += end + 1;
        before
    }

    fn send(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("the terminal takes keys");
    }

    fn line(&mut self, text: &str) {
        self.send(&format!("{text}\r"));
    }

    #[track_caller]
    fn answer(&mut self, question: &str, answer: &str) -> String {
        let before = self.expect(question);
        self.expect("? ");
        self.line(answer);
        before
    }

    /// Waits for the end; returns the exit code. The terminal is as it was.
    fn end(mut self) -> Option<i32> {
        let code = self.child.wait().expect("it ends").code();
        let modes = tcgetattr(&self.keys).expect("the terminal is there").local_modes;
        assert!(modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG), "{modes:?}");
        code
    }
}

impl Drop for Chat {
    fn drop(&mut self) {
        // Already ended when the test went well.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// Returns what was sent without what steers the terminal, and where each byte of it was.
fn plain(bytes: &[u8]) -> (String, Vec<usize>) {
    let mut text = Vec::new();
    let mut places = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"\x1b[") {
            let len = bytes[at + 2..].iter().position(|b| (0x40..=0x7e).contains(b));
            at += len.map_or(bytes.len(), |len| len + 3);
        } else {
            text.push(bytes[at]);
            places.push(at);
            at += 1;
        }
    }
    // A character may have come in part only; what follows it is not there yet.
    let valid = match str::from_utf8(&text) {
        Ok(text) => text.len(),
        Err(error) => error.valid_up_to(),
    };
    text.truncate(valid);
    (String::from_utf8(text).expect("checked"), places)
}

fn of(system: &str, reply: Reply) -> Reply {
    Reply { system: Some(system.to_owned()), ..reply }
}

fn call(system: &str, when: &str, name: &str, arguments: Value) -> Reply {
    of(system, Reply::call(name, arguments).when(when))
}

fn says(system: &str, when: &str, text: &str) -> Reply {
    of(system, Reply::text(text).when(when))
}

#[test]
fn the_seed_runs_from_request_to_done_plan() {
    let first = "# Greeting\n\n1. Write `hello.txt`\n";
    let second = "# Greeting\n\n1. Write `hello.txt`\n2. Look at it\n";
    let models = Models::new(vec![
        call(PLANNER, "a greeting", "write_session_plan", json!({ "content": first })),
        call(PLANNER, "Plan saved", "exit_plan_mode", json!({})),
        says(PLANNER, "ready for review", "The **plan** is drafted."),
        call(PLANNER, "changes to plan revision 1", "write_session_plan", json!({ "content": second })),
        call(PLANNER, "Plan saved", "exit_plan_mode", json!({})),
        says(PLANNER, "ready for review", "Revised."),
        call(ROOT, "approved: revision 2", "read_session_plan", json!({})),
        call(ROOT, "Look at it", "write_file", json!({ "path": "hello.txt", "content": "hello\n" })),
        call(ROOT, "hello.txt", "shell", json!({ "cmd": "cat hello.txt" })),
        says(ROOT, "hello", "Both steps are done."),
    ]);
    let world = World::new();
    let mut chat = Chat::start(&world, &models, &["--session", "seed"]);
    chat.expect("root › ");
    chat.line("/plan a greeting");
    chat.expect("● write_session_plan  Greeting  ✓");
    chat.expect("● exit_plan_mode  ✓");
    chat.expect("The plan is drafted.");
    chat.expect("╭─ Plan · revision 1 · ready");
    let shown = chat.answer("[a] approve  [c] request changes  [l] later", "c");
    assert!(shown.contains("│ 1. Write hello.txt"), "{shown}");
    chat.expect("what to change: ");
    chat.line("look at the result");
    chat.expect("Revised.");
    chat.expect("╭─ Plan · revision 2 · ready · changes since revision 1");
    let shown = chat.answer("[l] later", "a");
    assert!(shown.contains("│ +2. Look at it") && !shown.contains("│ +1."), "{shown}");
    chat.expect("✓ plan revision 2 approved");
    chat.expect("→ root");
    chat.expect("● read_session_plan  ✓");
    chat.expect("root wants to use write_file");
    let shown = chat.answer("[y] once  [a] always write_file  [n] no", "y");
    assert!(shown.contains("hello.txt (1 line)") && shown.contains("+hello"), "{shown}");
    chat.expect("● write_file  hello.txt  ✓");
    chat.expect("root wants to use shell");
    let shown = chat.answer("[y] once  [a] always shell", "y");
    assert!(shown.contains("$ cat hello.txt"), "{shown}");
    chat.expect("● shell  cat hello.txt  ✓");
    chat.expect("│ hello");
    chat.expect("Both steps are done.");
    chat.expect("✓ the plan is done");
    chat.expect("root › ");
    chat.line("/quit");
    assert_eq!(chat.end(), Some(0));
    assert_eq!(world.read("hello.txt"), "hello\n");
    let plan = world.json(["plan", "show", "--session", "seed"]);
    assert_eq!((&plan["state"], &plan["revision"]), (&json!("done"), &json!(2)));
    assert!(models.stub.requests().iter().all(|request| request.status == 200));
    // The note about the approval is the first thing that the executing agent is told.
    assert!(models.last_question().contains("The plan has been approved: revision 2."));
    let history = world.data().join("run_history");
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&history.metadata().expect("it is there").permissions());
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_refused_tool_is_told_what_to_do_instead() {
    let models = Models::new(vec![
        Reply::call("shell", json!({ "cmd": "touch made" })).when("go"),
        Reply::call("shell", json!({ "cmd": "touch made" })).when("refused by the person"),
        Reply::text("As you wish.").when("who says: use make"),
    ]);
    let world = World::new();
    let mut chat = Chat::start(&world, &models, &["go"]);
    // What only begins like "always" allows nothing.
    chat.answer("[n] no", "absolutely not");
    chat.expect("one of y, a, n, e");
    chat.line("n");
    chat.expect("● shell  touch made  ✗");
    chat.answer("[e] no, and say", "e");
    chat.expect("instead: ");
    chat.line("use make");
    chat.expect("As you wish.");
    chat.expect("root › ");
    chat.send("\x04");
    assert_eq!(chat.end(), Some(0));
    assert!(!world.path("made").exists());
}

#[test]
fn ctrl_c_stops_a_turn_and_the_session_goes_on() {
    let hang = Fault { kind: FaultKind::Hang, bytes: Some(1_000), ..Fault::default() };
    let models = Models::new(vec![
        Reply::text("It begins well, and then nothing more ever comes of it at all")
            .when("first")
            .fault(hang),
        Reply::text("Here I am again.").when("second"),
    ]);
    let world = World::new();
    let mut chat = Chat::start(&world, &models, &["first"]);
    chat.expect("It begins");
    chat.send("\x03");
    chat.expect("■ stopped");
    chat.expect("root › ");
    chat.line("second");
    chat.expect("Here I am again.");
    assert!(models.last_question().contains("first"), "{}", models.last_question());
    chat.expect("root › ");
    chat.send("\x03");
    chat.expect("Ctrl-C again to leave");
    chat.expect("root › ");
    chat.send("\x03");
    assert_eq!(chat.end(), Some(0));
}

#[test]
fn ctrl_c_twice_leaves_a_turn_that_does_not_stop() {
    let hang = Fault { kind: FaultKind::Hang, bytes: Some(1_000), ..Fault::default() };
    let models = Models::new(vec![Reply::text("It begins well, and hangs").when("go").fault(hang)]);
    let world = World::new();
    let mut chat = Chat::start(&world, &models, &["go"]);
    chat.expect("It begins");
    // Nothing can be written: the turn cannot be ended.
    let store = rusqlite::Connection::open(world.data().join("sess.db")).expect("the store opens");
    store.execute_batch("BEGIN IMMEDIATE").expect("the store is locked");
    chat.send("\x03");
    chat.expect("stopping · Ctrl-C again leaves");
    chat.send("\x03");
    chat.expect("left while the turn was stopping");
    drop(store);
    assert_eq!(chat.end(), Some(130));
}

#[test]
fn a_plan_can_wait_and_yolo_does_not_approve_it() {
    let models = Models::new(vec![
        Reply::call("write_session_plan", json!({ "content": "# Plan\n\n1. Touch `made`\n" })).when("go"),
        Reply::call("exit_plan_mode", json!({})).when("Plan saved"),
        Reply::text("Have a look.").when("ready for review"),
        Reply::call("shell", json!({ "cmd": "touch made" })).when("approved: revision 1"),
        Reply::text("Made."),
    ]);
    let world = World::new();
    let config =
        "agents:\n  solo:\n    model: anthropic/m\n    toolsets: [{type: session_plan}, {type: shell}]\n";
    let config = world.write("solo.yaml", config);
    let mut chat = Chat::start_with(&world, &models, config.to_str().expect("UTF-8"), &["--yolo", "go"]);
    chat.answer("[l] later", "l");
    chat.expect("the plan stays ready");
    chat.expect("solo › ");
    chat.line("/plan");
    chat.expect("Plan · revision 1 · ready");
    chat.expect("1. Touch made");
    chat.expect("solo › ");
    assert!(!world.path("made").exists());
    chat.line("/review");
    chat.answer("[l] later", "a");
    chat.expect("● shell  touch made  ✓");
    chat.expect("✓ the plan is done");
    chat.expect("solo › ");
    chat.line("/review");
    chat.expect("no plan waits for your review");
    chat.expect("solo › ");
    chat.send("\x04");
    assert_eq!(chat.end(), Some(0));
    assert!(world.path("made").exists());
}

#[test]
fn a_question_that_outlives_its_turn_is_put_away() {
    let models = Models::new(vec![
        Reply::call("shell", json!({ "cmd": "touch made" })).when("go"),
        Reply::text("Here I am again.").when("second"),
    ]);
    let world = World::new();
    let config =
        "agents:\n  solo:\n    model: anthropic/m\n    limits: {seconds: 1}\n    toolsets: [{type: shell}]\n";
    let config = world.write("solo.yaml", config);
    let mut chat = Chat::start_with(&world, &models, config.to_str().expect("UTF-8"), &["go"]);
    chat.expect("[y] once");
    chat.expect("the turn has ended meanwhile: press Enter");
    chat.line("y");
    chat.expect("timed out");
    chat.expect("solo › ");
    chat.line("second");
    chat.expect("Here I am again.");
    chat.expect("solo › ");
    chat.send("\x04");
    assert_eq!(chat.end(), Some(0));
    assert!(!world.path("made").exists());
}

#[test]
fn an_unknown_command_is_not_sent() {
    let models = Models::new(vec![Reply::text("A path, then.").when("/etc/hosts")]);
    let world = World::new();
    let mut chat = Chat::start(&world, &models, &[]);
    chat.expect("root › ");
    chat.line("/hlep me");
    chat.expect("there is no command /hlep: did you mean \"help\"?");
    chat.expect("root › ");
    chat.line("/help");
    chat.expect("Switch to the planner → planner");
    chat.expect("root › ");
    chat.line("/resume nothing-there");
    chat.expect("✗ ");
    chat.expect("root › ");
    assert!(models.stub.requests().is_empty());
    chat.line("/plan");
    chat.expect("→ planner");
    chat.expect("planner › ");
    chat.line("/agent root");
    chat.expect("root › ");
    chat.line("/etc/hosts is odd");
    chat.expect("A path, then.");
    chat.expect("root › ");
    chat.line("/sessions");
    chat.expect("-1 ");
    chat.line("/new");
    chat.expect("a new session");
    chat.line("/resume -1");
    chat.expect("/etc/hosts is odd");
    chat.expect("A path, then.");
    chat.line("/quit");
    assert_eq!(chat.end(), Some(0));
}

#[test]
fn an_agent_asks_by_its_schema() {
    let schema = json!({
        "type": "object",
        "properties": {
            "kind": { "enum": ["sqlite", "postgres"] },
            "port": { "type": "integer" },
            "tls": { "type": "boolean" },
        },
        "required": ["kind", "tls"],
    });
    let ask = |words: &str| json!({ "message": words, "schema": schema });
    let models = Models::new(vec![
        Reply::call("user_prompt", ask("Which one?")).when("go"),
        Reply::call("user_prompt", ask("And then?")).when("accept"),
        Reply::text("Thank you.").when("decline"),
    ]);
    let world = World::new();
    let mut chat = Chat::start(&world, &models, &["--agent", "planner", "go"]);
    chat.expect("Which one?");
    chat.expect("2. postgres");
    chat.expect("kind: ");
    chat.line("2");
    chat.expect("port: ");
    chat.line("many");
    chat.expect("that is not a whole number");
    chat.expect("port: ");
    chat.line("");
    chat.expect("tls: ");
    chat.line("y");
    chat.expect("And then?");
    chat.expect("kind: ");
    chat.send("\x1b");
    chat.expect("Thank you.");
    let told = models.last_question();
    assert!(told.contains(r#"\"content\":{\"kind\":\"postgres\",\"tls\":true}"#), "{told}");
    chat.expect("planner › ");
    chat.send("\x04");
    assert_eq!(chat.end(), Some(0));
}

#[test]
fn several_lines_are_one_message_and_escapes_never_reach_the_terminal() {
    let models = Models::new(vec![
        Reply::text("evil \u{1b}]0;owned\u{7}\u{9b}2J text\n\ndone").when("one\ntwo\nthree\n/quit"),
    ]);
    let world = World::new();
    let mut chat = Chat::start(&world, &models, &[]);
    chat.expect("root › ");
    chat.send("one\x1b\r");
    chat.send("two\\\r");
    chat.send("\x1b[200~three\r/quit\x1b[201~");
    chat.send("\r");
    let shown = chat.expect("done");
    assert!(models.last_question().contains("one\\ntwo\\nthree\\n/quit"), "{}", models.last_question());
    assert!(shown.contains("evil ␛]0;owned␇\u{fffd}2J text"), "{shown:?}");
    chat.expect("root › ");
    chat.send("\x04");
    assert_eq!(chat.end(), Some(0));
}

/// Two agents that may reach each other's sessions.
const PAIR: &str = "agents:
  root: {model: anthropic/m, instruction: You are ROOT., toolsets: [{type: sessions}], subagents: {allowAgents: [other]}}
  other: {model: anthropic/m, instruction: You are OTHER.}
tools: {sessions: {visibility: all}, agentToAgent: {enabled: true}}
";

#[test]
fn what_another_session_sends_is_shown_as_such_and_typed_text_survives() {
    let models = Models::new(vec![
        says("ROOT", "hello", "Hello yourself."),
        says("ROOT", "is it green", "It is **green**."),
        says("ROOT", "announce step", "ANNOUNCE_SKIP"),
        says("ROOT", "typed before", "I see what you typed."),
    ]);
    let world = World::new();
    let config = world.write("pair.yaml", PAIR);
    let config = config.to_str().expect("UTF-8");
    let mut chat = Chat::start_with(&world, &models, config, &["--session", "main", "hello"]);
    chat.expect("Hello yourself.");
    chat.expect("root › ");
    chat.send("typed bef");
    chat.expect("typed bef");
    let peer = [("SESS_SESSION", "peer-1")];
    let send = ["--config", config, "send", "agent:root:main", "is it green?"];
    let sent = world.run_env(&peer, send);
    assert_eq!((sent.code, sent.stdout.as_str()), (0, "It is **green**.\n"), "{sent:?}");
    chat.expect("↪ from agent:main:chat:peer-1");
    chat.expect("│ is it green?");
    chat.expect("root replies");
    chat.expect("It is green.");
    chat.expect("nothing more to say");
    chat.expect("root › typed bef");
    chat.line("ore");
    chat.expect("I see what you typed.");
    assert!(models.last_question().contains("typed before"), "{}", models.last_question());

    // Whoever has it open already keeps it.
    let mut second = Chat::start_with(&world, &models, config, &["--session", "agent:root:main"]);
    second.expect("is open in another process");
    assert_eq!(second.end(), Some(4));

    chat.expect("root › ");
    chat.line("/send off");
    chat.expect("no messages come into this session (your word)");
    world.run_env(&peer, send).fails(8, "send blocked by session policy");
    chat.expect("root › ");
    chat.line("/send sideways");
    chat.expect("/send sideways: expected on, off or inherit");
    chat.expect("root › ");
    chat.line("/send inherit");
    chat.expect("messages come into this session (as configured)");
    chat.expect("root › ");
    chat.line("/runs");
    chat.expect("from agent:main:chat:peer");
    chat.expect("root › ");
    chat.send("\x04");
    assert_eq!(chat.end(), Some(0));
}

#[test]
fn whoever_leaves_waits_for_sub_agents_or_cancels_them() {
    let hang = Fault { kind: FaultKind::Hang, bytes: Some(1_000), ..Fault::default() };
    let models = Models::new(vec![
        call("ROOT", "go", "sessions_spawn", json!({ "task": "think", "agentId": "other", "label": "slow" })),
        says("ROOT", "accepted", "It is at it."),
        of("OTHER", Reply::text("It thinks and thinks and never comes to an end").when("think").fault(hang)),
        says("ROOT", "Status: aborted", "So be it."),
    ]);
    let world = World::new();
    let config = world.write("pair.yaml", PAIR);
    let mut chat = Chat::start_with(&world, &models, config.to_str().expect("UTF-8"), &["go"]);
    chat.expect("It is at it.");
    chat.expect("root › ");
    chat.line("/quit");
    chat.expect("1 run goes on for this session: waiting; Ctrl-C cancels");
    chat.send("\x03");
    chat.expect("cancelled");
    chat.expect("So be it.");
    assert_eq!(chat.end(), Some(0));
    let runs = world.json(["runs"]);
    let runs = runs["runs"].as_array().expect("a list");
    let task = runs.iter().find(|run| run["errand"] == "spawn").expect("it was spawned");
    assert_eq!((&task["state"], &task["label"]), (&json!("cancelled"), &json!("slow")));
}
