//! `sess mcp` as a process: bad input, clients that vanish, two servers on one store.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::world::{Beside, World};

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}"#;

/// The most memory a server may ever have had, in kB.
const MEMORY_MAX_KB: u64 = 200_000;

pub struct Server(Beside);

impl Server {
    pub fn start(world: &World, args: &[&str]) -> Self {
        Self::start_env(world, &[], args)
    }

    pub fn start_env(world: &World, env: &[(&str, &str)], args: &[&str]) -> Self {
        let mut command = world.command(["mcp"].into_iter().chain(args.iter().copied()));
        command.envs(env.iter().copied());
        let mut server = Self(Beside::start(command));
        server.0.send(INITIALIZE);
        assert_eq!(server.answer()["result"]["serverInfo"]["name"], "intersession");
        server
    }

    #[track_caller]
    fn answer(&self) -> Value {
        serde_json::from_str(&self.0.line()).expect("stdout carries protocol only")
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.0.send(&json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string());
        self.answer()
    }

    pub fn call(&mut self, tool: &str, arguments: &Value) -> String {
        let answer = self.ask("tools/call", &json!({ "name": tool, "arguments": arguments }));
        answer["result"]["content"][0]["text"].as_str().map_or_else(|| answer.to_string(), str::to_owned)
    }

    pub fn tools(&mut self) -> Vec<String> {
        let answer = self.ask("tools/list", &json!({}));
        let tools = answer["result"]["tools"].as_array().expect("a list");
        tools.iter().map(|tool| tool["name"].as_str().expect("text").to_owned()).collect()
    }

    fn memory_peak_kb(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.child.id())).expect("running");
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("told");
        peak.trim().trim_end_matches(" kB").parse().expect("a number")
    }
}

#[test]
fn the_tools_that_are_served_can_be_chosen() {
    let world = World::new();
    let plan = ["write_session_plan", "read_session_plan", "exit_plan_mode"];
    assert_eq!(Server::start(&world, &[]).tools().len(), 14);
    assert_eq!(Server::start(&world, &["--toolsets", "session_plan"]).tools(), plan);
    assert_eq!(Server::start(&world, &["--toolsets", "session_context,session_plan"]).tools().len(), 7);
    assert_eq!(
        Server::start(&world, &["--tools", "read_session,exit_plan_mode"]).tools(),
        ["exit_plan_mode", "read_session"]
    );
    let mut few = Server::start(&world, &["--tools", "read_session_plan"]);
    assert!(few.call("write_session_plan", &json!({ "content": "x" })).contains("unknown tool"));
    world.fails(["mcp", "--tools", "x"], 2, "no tool is called \"x\"; the tools are write_session_plan, read_session_plan, exit_plan_mode, list_sessions, read_session, ");
    world.fails(["mcp", "--toolsets", "x"], 2, "unknown toolset \"x\": one of session_plan, session_context");
    let mut bad = Server::start(&world, &["--session", "../x"]);
    assert_eq!(bad.call("read_session_plan", &json!({})), "invalid session ID: \"../x\"");
}

#[test]
fn nonsense_is_answered_and_the_server_goes_on() {
    let world = World::new();
    let mut server = Server::start(&world, &["--session", "s1"]);
    let before = server.call("write_session_plan", &json!({ "content": "# Plan" }));
    assert!(before.starts_with("Plan saved to "), "{before}");
    for line in ["{", "null", "7", "[]", "\"x\"", "{}", r#"{"jsonrpc":"2.0","id":1}"#] {
        server.0.send(line);
        assert!(server.answer()["error"]["message"].is_string(), "{line}");
    }
    let input = server.0.input.as_mut().expect("open");
    input.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"\xff\xfe\"}\n").expect("written");
    assert!(server.answer()["error"]["message"].is_string());
    for arguments in [json!([]), json!("x"), json!(7)] {
        let answer =
            server.ask("tools/call", &json!({ "name": "read_session_plan", "arguments": arguments }));
        assert!(answer["error"]["message"].is_string() || answer["result"]["isError"] == true, "{answer}");
    }
    assert!(
        server.call("write_session_plan", &json!({ "content": 7 })).contains("invalid argument \"content\"")
    );
    assert!(server.call("list_sessions", &json!({ "limit": {} })).contains("invalid argument \"limit\""));
    assert_eq!(server.call("read_session_plan", &json!({})), "# Plan");
    assert_eq!(server.0.close(), Some(0));
}

#[test]
fn a_line_of_100_mb_is_refused_without_being_kept() {
    let world = World::new();
    let mut server = Server::start(&world, &["--session", "s1"]);
    let input = server.0.input.as_mut().expect("open");
    input.write_all(br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write_session_plan","arguments":{"content":""#).expect("written");
    let chunk = vec![b'x'; 1024 * 1024];
    for _ in 0..100 {
        input.write_all(&chunk).expect("it goes on reading");
    }
    input.write_all(b"\"}}}\n").expect("written");
    let refused = server.answer();
    assert!(refused["error"]["message"].as_str().expect("a sentence").contains("67108864"), "{refused}");
    assert_eq!(
        server.call("read_session_plan", &json!({})),
        "no plan written yet for this session; call write_session_plan first"
    );
    let peak = server.memory_peak_kb();
    assert!(peak < MEMORY_MAX_KB, "{peak} kB");
    assert_eq!(server.0.close(), Some(0));
}

#[test]
fn a_client_that_disappears_leaves_a_write_whole_or_absent() {
    for cut in [40, 120, usize::MAX] {
        let world = World::new();
        world.ok_input("before", ["plan", "write", "--session", "s1"]);
        let mut command = world.command(["mcp", "--session", "s1"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("sess starts");
        let content = "after ".repeat(1_000);
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": { "name": "write_session_plan", "arguments": { "content": content } } });
        let lines = format!("{INITIALIZE}\n{call}\n");
        let mut input = child.stdin.take().expect("piped");
        // It neither reads the answer nor waits for it.
        drop(child.stdout.take());
        let end = cut.saturating_add(INITIALIZE.len()).min(lines.len());
        let _gone = input.write_all(&lines.as_bytes()[..end]);
        drop(input);
        assert_eq!(child.wait().expect("it ends").code(), Some(0), "cut at {cut}");
        let plan = world.ok(["plan", "show"]);
        let allowed: &[&str] = if cut == usize::MAX { &["before", &content] } else { &["before"] };
        assert!(allowed.contains(&plan.as_str()), "cut at {cut}: {plan:.40}");
        assert_eq!(world.json(["doctor"])["healthy"], true);
    }
}

#[test]
fn a_whole_call_is_finished_when_the_client_closes_at_once() {
    let world = World::new();
    let call = r##"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write_session_plan","arguments":{"content":"# Plan"}}}"##;
    let answers = world.ok_input(&format!("{INITIALIZE}\n{call}\n"), ["mcp", "--session", "s1"]);
    assert!(answers.contains("Plan saved to "), "{answers}");
    assert_eq!(world.ok(["plan", "show"]), "# Plan");
}

#[test]
fn two_servers_on_one_store_see_each_other() {
    let world = World::new();
    let mut one = Server::start(&world, &["--session", "s1"]);
    let mut two = Server::start(&world, &["--session", "s1"]);
    for round in 0..20 {
        let plan = format!("# Plan {round}");
        let (writer, reader) = if round % 2 == 0 { (&mut one, &mut two) } else { (&mut two, &mut one) };
        assert!(writer.call("write_session_plan", &json!({ "content": plan })).starts_with("Plan saved"));
        assert_eq!(reader.call("read_session_plan", &json!({})), plan);
    }
    assert_eq!(one.call("exit_plan_mode", &json!({})), "Plan ready for review.");
    world.ok(["plan", "approve"]);
    assert_eq!((one.0.close(), two.0.close()), (Some(0), Some(0)));
    assert_eq!(world.json(["plan", "log"])["revisions"].as_array().expect("a list").len(), 20);
}

#[test]
fn a_server_that_is_killed_has_kept_what_it_acknowledged() {
    let world = World::new();
    let mut server = Server::start(&world, &["--session", "s1"]);
    server.call("write_session_plan", &json!({ "content": "kept" }));
    let killed = Command::new("kill").args(["-KILL", &server.0.child.id().to_string()]).status();
    assert!(killed.expect("kill starts").success());
    assert_eq!(world.ok(["plan", "show"]), "kept");
    assert_eq!(world.json(["doctor"])["healthy"], true);
}
