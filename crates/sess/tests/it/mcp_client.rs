//! An outside MCP server, played by `sess mcp` itself: it dies, and comes back at the next call.

use std::time::Duration;

use serde_json::{Map, Value, json};
use sess_agent::{
    mcp::{McpTools, Options},
    tool::{ToolOutput, Toolbox as _},
};
use sess_core::{agent::McpServer, permission::Reach};
use tokio_util::sync::CancellationToken;

use crate::world::World;

fn options(world: &World) -> Options {
    // Whoever builds a client has chosen who does its TLS; here nobody speaks it.
    let _already_chosen = rustls::crypto::ring::default_provider().install_default();
    Options {
        root: world.path("."),
        env: vec![
            ("PATH".to_owned(), "/usr/bin:/bin".to_owned()),
            ("SESS_HOME".to_owned(), "/wrong".to_owned()),
        ],
        confinement: None,
        http: reqwest::Client::new(),
        call_timeout: Duration::from_secs(20),
    }
}

fn command(command: &str, args: &[&str], env: &[(&str, String)]) -> McpServer {
    McpServer::Command {
        command: command.to_owned(),
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        env: env.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
    }
}

fn ours(world: &World) -> McpServer {
    let home = world.data().display().to_string();
    command(env!("CARGO_BIN_EXE_sess"), &["--session", "s1", "mcp"], &[("SESS_HOME", home)])
}

async fn call(tools: &McpTools, name: &str, arguments: Value) -> ToolOutput {
    let Value::Object(arguments): Value = arguments else { panic!("no object") };
    let arguments: Map<String, Value> = arguments;
    tools.call(name, arguments, &CancellationToken::new()).await
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).expect("small")).expect("not 0");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
}

async fn gone(pid: u32) {
    let is_there =
        || std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
    while is_there() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_server_is_started_lists_its_tools_and_comes_back_after_it_died() {
    let world = World::new();
    let tools = McpTools::new(ours(&world), options(&world));
    assert_eq!(tools.process_id(), None, "nobody asked yet");
    let listed = tools.tools().await;
    let reach = |name: &str| listed.iter().find(|tool| tool.name == name).expect("listed").reach;
    assert_eq!(reach("write_session_plan"), Reach::World);
    assert_eq!(reach("read_session_plan"), Reach::Harmless);
    let answer = call(&tools, "write_session_plan", json!({ "content": "# Plan" })).await;
    assert!(!answer.is_error, "{}", answer.text);

    let first = tools.process_id().expect("running");
    kill(first);
    gone(first).await;
    let mut answer = call(&tools, "read_session_plan", json!({})).await;
    if answer.is_error {
        // It had not been noticed yet: the call says so, and the next one starts it again.
        assert!(answer.text.contains("started again at the next call"), "{}", answer.text);
        answer = call(&tools, "read_session_plan", json!({})).await;
    }
    assert!(!answer.is_error && answer.text.contains("# Plan"), "{}", answer.text);
    let second = tools.process_id().expect("running");
    assert_ne!(first, second);
    let answer = call(&tools, "no_such_tool", json!({})).await;
    assert!(answer.is_error, "{}", answer.text);
    kill(second);
    gone(second).await;
    assert_eq!(tools.tools().await.len(), listed.len(), "listing starts it again");
    let third = tools.process_id().expect("running");
    drop(tools);
    gone(third).await;
}

#[tokio::test]
async fn a_server_that_does_not_start_is_told_of_and_left_alone_for_a_while() {
    let world = World::new();
    let tools = McpTools::new(command("false", &[], &[]), options(&world));
    assert!(tools.tools().await.is_empty());
    let answer = call(&tools, "x", json!({})).await;
    assert!(answer.is_error && answer.text.contains("it is tried again in"), "{}", answer.text);
    let tools = McpTools::new(command("/no/such/program", &[], &[]), options(&world));
    let answer = call(&tools, "x", json!({})).await;
    assert!(answer.text.contains("the MCP server /no/such/program did not start"), "{}", answer.text);
    let nobody = McpServer::Url { url: "http://127.0.0.1:1/mcp".to_owned(), headers: Vec::new() };
    let answer = call(&McpTools::new(nobody, options(&world)), "x", json!({})).await;
    assert!(answer.is_error && answer.text.contains("did not start"), "{}", answer.text);
}

#[tokio::test]
async fn a_server_that_dies_in_a_call_or_answers_never_is_an_answer() {
    const SERVER: &str = r#"
        answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$1" "$2"; }
        while read -r line; do
            id=$(printf %s "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
            case $line in
                *initialize\"*) answer "$id" '{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}';;
                *'"die"'*) exit 1;;
                *'"hang"'*) ;;
                *'"flood"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"' "$id"
                    head -c 3000000 /dev/zero | tr '\0' x; printf '"}]}}\n';;
                *tools/call*) answer "$id" '{"content":[{"type":"text","text":"done"}]}';;
            esac
        done"#;
    let world = World::new();
    let mut options = options(&world);
    options.call_timeout = Duration::from_secs(2);
    let tools = McpTools::new(command("sh", &["-c", SERVER], &[]), options);
    assert_eq!(call(&tools, "good", json!({})).await, ToolOutput::ok("done"));
    let answer = call(&tools, "die", json!({})).await;
    assert!(answer.is_error && answer.text.contains("started again at the next call"), "{}", answer.text);
    assert_eq!(call(&tools, "good", json!({})).await, ToolOutput::ok("done"));
    let answer = call(&tools, "hang", json!({})).await;
    assert!(answer.is_error && answer.text.contains("took longer than 2 seconds"), "{}", answer.text);
    let answer = call(&tools, "flood", json!({})).await;
    assert!(answer.text.contains("bytes left out") && answer.text.len() < 101_000, "{}", answer.text.len());
}
