//! Tools that touch the world: outside servers, and the sandbox.

use std::process::Stdio;

use crate::{
    run_stage::{Anthropic, Chat, KEY, Stage, results},
    world::Run,
};

const SESS: &str = env!("CARGO_BIN_EXE_sess");

#[test]
fn an_outside_server_serves_an_agent_as_its_session() {
    let config = format!(
        "agents: {{root: {{model: m, toolsets: [{{type: mcp, command: {SESS}, args: [mcp], tools: [write_session_plan]}}]}}}}"
    );
    let stage = Stage::with(
        Chat,
        &config,
        r##"
- {tool_calls: [{name: write_session_plan, arguments: {content: "# Outside"}}, {name: read_session_plan}]}
- {text: Done.}
"##,
    );
    assert_eq!(stage.ok(&["--yolo"], "begin"), "Done.\n");
    let results = stage.results();
    assert!(
        results.iter().any(|(text, is_error)| !is_error && text.starts_with("Plan saved to ")),
        "{results:?}"
    );
    assert!(
        results.iter().any(|(text, _)| text.starts_with("unknown tool \"read_session_plan\"")),
        "{results:?}"
    );
    assert_eq!(stage.world.ok(["plan", "show", "--session", "s1"]), "# Outside");
    stage.goes_on();
}

#[test]
fn an_outside_server_that_died_is_told_and_comes_back() {
    let config = format!(
        "
agents:
  root:
    model: m
    toolsets:
      - {{type: mcp, command: sh, args: [-c, 'echo $$ > server.pid; exec {SESS} mcp'], tools: [list_sessions]}}
      - {{type: shell}}
"
    );
    let stage = Stage::with(
        Anthropic,
        &config,
        "
- {tool_calls: [{name: list_sessions}]}
- {tool_calls: [{name: shell, arguments: {cmd: 'cp server.pid old.pid; kill -9 $(cat old.pid)'}}]}
- {tool_calls: [{name: list_sessions}]}
- {tool_calls: [{name: list_sessions}]}
- {text: Done.}
",
    );
    assert_eq!(stage.ok(&["--yolo"], "begin"), "Done.\n");
    let results = stage.results();
    assert!(!results[0].1 && !results[3].1, "{results:?}");
    assert!(!results[2].1 || results[2].0.contains("started again at the next call"), "{results:?}");
    assert_ne!(stage.world.read("server.pid"), stage.world.read("old.pid"));
    stage.goes_on();
}

#[test]
fn an_outside_server_that_does_not_start_leaves_the_agent_its_other_tools() {
    let config =
        "agents: {root: {model: m, toolsets: [{type: mcp, command: /nowhere/server}, {type: filesystem}]}}";
    let stage = Stage::with(Anthropic, config, "[{tool_calls: [{name: list_directory}]}, {text: Done.}]");
    assert_eq!(stage.ok(&[], "begin"), "Done.\n");
    assert!(!stage.results()[0].1);
    stage.goes_on();
}

#[test]
fn an_outside_server_acts_for_the_session_that_calls_it() {
    let config = format!(
        "
agents:
  root: {{model: m, instruction: You are the root., sub_agents: [coder]}}
  coder:
    model: m
    instruction: You are the coder.
    toolsets: [{{type: mcp, command: {SESS}, args: [mcp], tools: [write_session_plan]}}]
"
    );
    let stage = Stage::with(
        Anthropic,
        &config,
        r##"
- {system: the root, when: begin, tool_calls: [{name: transfer_task, arguments: {agent: coder, task: The first}}]}
- {system: the root, when: Planned one, tool_calls: [{name: transfer_task, arguments: {agent: coder, task: The second}}]}
- {system: the root, when: Planned two, text: Both.}
- {system: the coder, when: The first, tool_calls: [{name: write_session_plan, arguments: {content: "# One"}}]}
- {system: the coder, when: The second, tool_calls: [{name: write_session_plan, arguments: {content: "# Two"}}]}
- {system: the coder, when: Plan saved, text: Planned one. Planned two.}
"##,
    );
    assert_eq!(stage.ok(&["--yolo"], "begin"), "Both.\n");
    let transcript = stage.transcript();
    let mut plans = Vec::new();
    for block in
        transcript.iter().flat_map(|message| message["content"].as_array().cloned().unwrap_or_default())
    {
        if let Some(task) = block["sessionId"].as_str() {
            plans.push(stage.world.ok(["plan", "show", "--session", task]));
        }
    }
    assert_eq!(plans, ["# One", "# Two"]);
}

/// Says something from a workspace that the store is outside of.
fn say_in_workspace(stage: &Stage, message: &str) -> Run {
    std::fs::create_dir_all(stage.world.path("work")).expect("made");
    let mut command =
        stage.world.command(["run", "../agents.yaml", "--exec", "--yolo", "--session", "s1", message]);
    command.current_dir(stage.world.path("work")).env("STUB_KEY", KEY).stdin(Stdio::null());
    command.output().expect("sess starts").into()
}

fn can_confine() -> bool {
    let abilities =
        sess_agent::confine::probe(sess_agent::confine::find_bubblewrap("/usr/bin:/bin").as_deref());
    if !abilities.can_confine() {
        println!("skipped: {abilities}");
    }
    abilities.can_confine()
}

#[test]
fn an_agent_in_a_sandbox_neither_reads_the_store_nor_writes_outside_and_goes_on() {
    if !can_confine() {
        return;
    }
    let stage = Stage::with(
        Anthropic,
        "agents: {root: {model: m, toolsets: [{type: shell}, {type: filesystem}], sandbox: true}}",
        "
- tool_calls:
    - {name: shell, arguments: {cmd: 'cat ../data/sess.db'}}
    - {name: shell, arguments: {cmd: 'echo x > ../outside'}}
    - {name: shell, arguments: {cmd: 'cat ../agents.yaml'}}
    - {name: read_file, arguments: {path: ../agents.yaml}}
    - {name: shell, arguments: {cmd: 'echo inside > made; cat made'}}
- {text: Tried all.}
",
    );
    let run = say_in_workspace(&stage, "begin");
    assert_eq!((run.code, run.stdout.as_str()), (0, "Tried all.\n"), "{run:?}");
    let mut results = stage.results();
    assert_eq!(results.len(), 5);
    // With namespaces there is something else outside, and to write there is in vain.
    results.retain(|(text, is_error)| !is_error && text != "[exit status 0]");
    assert_eq!(results, [("inside\n[exit status 0]".to_owned(), false)]);
    assert!(!stage.world.path("outside").exists());
    let again = say_in_workspace(&stage, "once more");
    assert_eq!(again.stdout, "Here again.\n", "{again:?}");
    stage.nothing_was_refused();
}

#[test]
fn a_task_is_never_freer_than_the_agent_that_gave_it() {
    if !can_confine() {
        return;
    }
    let stage = Stage::with(
        Anthropic,
        "
agents:
  root: {model: m, instruction: You are the root., sandbox: true, sub_agents: [coder]}
  coder: {model: m, instruction: You are the coder., toolsets: [{type: shell}]}
",
        "
- {system: the root, when: begin, tool_calls: [{name: transfer_task, arguments: {agent: coder, task: Look}}]}
- {system: the root, when: Looked, text: Over.}
- {system: the coder, when: Look, tool_calls: [{name: shell, arguments: {cmd: 'cat ../agents.yaml'}}]}
- {system: the coder, text: Looked.}
",
    );
    let run = say_in_workspace(&stage, "begin");
    assert_eq!((run.code, run.stdout.as_str()), (0, "Over.\n"), "{run:?}");
    let transcript = stage.world.ok(["export", "s1"]);
    let id =
        transcript.split("\"sessionId\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a mark");
    let told = results(&stage.transcript_of(id));
    assert!(told[0].1 && !told[0].0.contains("STUB_KEY"), "{told:?}");
}

#[test]
fn the_key_of_a_model_reaches_no_command() {
    let stage = Stage::with(
        Anthropic,
        "  other: {provider: openai, model: x, token_key: SPARE}
agents:
  root: {model: m, toolsets: [{type: shell}]}
  other: {model: other}
",
        "[{tool_calls: [{name: shell, arguments: {cmd: 'echo \"<$SPARE>$PLAIN\"'}}]}, {text: Done.}]",
    );
    let mut command = stage.command(&["--yolo"], "begin");
    let ended = command.env("SPARE", "hidden").env("PLAIN", "plain").output().expect("sess starts");
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(stage.results(), [("<>plain\n[exit status 0]".to_owned(), false)]);
}

#[test]
fn what_one_sandbox_holds_is_there_for_all_who_work_in_it() {
    if !can_confine() {
        return;
    }
    let stage = Stage::with(
        Anthropic,
        "
agents:
  root: {model: m, toolsets: [{type: shell}], sandbox: true, handoffs: [next]}
  next: {model: m, toolsets: [{type: shell}], sandbox: true}
",
        "
- {tool_calls: [{name: shell, arguments: {cmd: 'echo kept > $HOME/note'}}]}
- {tool_calls: [{name: handoff, arguments: {agent: next}}]}
- {tool_calls: [{name: shell, arguments: {cmd: 'cat $HOME/note'}}]}
- {text: Done.}
",
    );
    let run = say_in_workspace(&stage, "begin");
    assert_eq!((run.code, run.stdout.as_str()), (0, "Done.\n"), "{run:?}");
    let results = stage.results();
    assert_eq!(results.last(), Some(&("kept\n[exit status 0]".to_owned(), false)), "{results:?}");
}
