//! Which session a run is in, and several runs in one.

use std::process::Stdio;

use serde_json::json;

use crate::run_stage::{Anthropic, KEY, Stage, text_of};

#[test]
fn an_id_that_does_not_exist_yet_names_a_new_session_which_goes_on_by_id_and_key() {
    let stage = Stage::new(
        Anthropic,
        "[{when: one, text: First.}, {when: two, text: Second.}, {when: three, text: Third.}]",
    );
    stage.ok(&[], "one");
    let shown = stage.world.ok(["export", "s1"]);
    assert!(shown.lines().next().is_some_and(|head| head.contains("\"agent:root:chat:s1\"")), "{shown}");
    stage.ok(&[], "two");
    let mut command =
        stage.world.command(["run", "agents.yaml", "--exec", "--session", "agent:root:chat:s1", "three"]);
    let output = command.env("STUB_KEY", KEY).stdin(Stdio::null()).output().expect("sess starts");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "Third.\n", "{output:?}");
    assert_eq!(stage.last_request().body["messages"].as_array().map(Vec::len), Some(5));
    assert_eq!(stage.world.json(["list"])["sessions"].as_array().map(Vec::len), Some(1));
}

#[test]
fn without_a_session_every_run_begins_a_new_one() {
    let stage = Stage::new(Anthropic, "[{text: First.}]");
    for _ in 0..2 {
        let mut command = stage.world.command(["run", "agents.yaml", "--exec", "hello"]);
        let output = command.env("STUB_KEY", KEY).stdin(Stdio::null()).output().expect("sess starts");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "First.\n", "{output:?}");
    }
    let listed = stage.world.json(["list"]);
    assert_eq!(listed["sessions"].as_array().map(Vec::len), Some(2), "{listed}");
}

#[test]
fn what_may_be_no_id_is_refused_before_anything_is_stored() {
    let stage = Stage::new(Anthropic, "[]");
    for id in ["../x", "a/b", "-x y", "a b", "ü", "", &"x".repeat(129)] {
        let session = format!("--session={id}");
        let run = stage.world.run(["run", "agents.yaml", "--exec", &session, "hello"]);
        assert!((2..=3).contains(&run.code) && run.stdout.is_empty(), "{id}: {run:?}");
        assert!(run.stderr.starts_with("error: "), "{id}: {run:?}");
    }
    assert_eq!(stage.stub.requests().len(), 0);
    assert_eq!(stage.world.json(["list"])["sessions"], json!([]));
}

#[test]
fn a_session_of_another_program_goes_on_only_there() {
    let stage = Stage::new(Anthropic, "[]");
    stage.world.ok_input("# Plan", ["plan", "write", "--session", "claude:c1"]);
    let run = stage.world.run(["run", "agents.yaml", "--exec", "--session", "claude:c1", "hello"]);
    run.fails(2, "belongs to claude");
}

#[test]
fn a_message_can_come_on_standard_input() {
    let stage = Stage::new(Anthropic, "[{when: from afar, text: Heard.}]");
    let mut command = stage.world.command(["run", "agents.yaml", "--exec", "--session", "s1"]);
    std::fs::write(stage.world.path("in"), "from afar\nand more\n").expect("written");
    command.env("STUB_KEY", KEY).stdin(std::fs::File::open(stage.world.path("in")).expect("open"));
    let output = command.output().expect("sess starts");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "Heard.\n", "{output:?}");
}

#[test]
fn runs_at_the_same_time_in_one_session_are_done_one_after_the_other() {
    let reply = |n: usize| {
        format!(
            "- {{text: Reply., delay_ms: 100, tool_calls: [{{name: shell, arguments: {{cmd: 'mkdir lock && rmdir lock', timeout: {n}}}}}]}}\n- {{text: Over.}}\n"
        )
    };
    let stage = Stage::new(Anthropic, &(5..8).map(reply).collect::<String>());
    let children: Vec<_> = (0..3)
        .map(|n| {
            let mut command = stage.command(&["--yolo"], &format!("message {n}"));
            command.stdout(Stdio::piped()).spawn().expect("sess starts")
        })
        .collect();
    for child in children {
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(
            (output.status.code(), String::from_utf8_lossy(&output.stdout).as_ref()),
            (Some(0), "Over.\n")
        );
    }
    let said = stage.transcript();
    let seqs: Vec<u64> = said.iter().filter_map(|message| message["seq"].as_u64()).collect();
    assert_eq!(seqs, (1..=12).collect::<Vec<_>>());
    assert_eq!(said.iter().filter(|message| text_of(message) == "Over.").count(), 3);
    assert!(stage.results().iter().all(|(text, is_error)| !is_error && text == "[exit status 0]"));
    stage.goes_on();
}

#[test]
fn a_run_that_was_killed_is_settled_its_tool_ends_and_the_session_goes_on() {
    let stage = Stage::new(
        Anthropic,
        "- {tool_calls: [{name: shell, arguments: {cmd: 'echo $$ > pid; exec sleep 1000'}}]}",
    );
    let mut command = stage.command(&["--yolo", "--json"], "begin");
    let mut run = crate::world::Beside::start({
        command.env("SESS_LEASE_MS", "300");
        command
    });
    let is_written =
        || std::fs::read_to_string(stage.world.path("pid")).is_ok_and(|text| text.ends_with('\n'));
    while !is_written() {
        std::thread::yield_now();
    }
    run.child.kill().expect("killed");
    run.child.wait().expect("gone");
    stage.goes_on();
    // What it had started went with it.
    let pid = stage.world.read("pid");
    while std::path::Path::new("/proc").join(pid.trim()).exists() {
        std::thread::yield_now();
    }
}

#[test]
fn an_interrupt_while_another_run_is_awaited_takes_back_only_what_was_asked_here() {
    let stage = Stage::new(
        Anthropic,
        "[{when: first, text: Done., delay_ms: 0, tool_calls: [{name: shell, arguments: {cmd: 'touch begun; while [ ! -e go ]; do sleep 0.05; done'}}]}, {text: Over.}]",
    );
    let first = stage.command(&["--yolo"], "first").stdout(Stdio::piped()).spawn().expect("sess starts");
    while !stage.world.path("begun").exists() {
        std::thread::yield_now();
    }
    let second = stage.beside(&[], "second");
    while !second.line().contains(r#""state":"queued""#) {}
    assert_eq!(second.interrupt(), Some(130));
    stage.world.write("go", "");
    let first = first.wait_with_output().expect("it ends");
    assert_eq!((first.status.code(), String::from_utf8_lossy(&first.stdout).as_ref()), (Some(0), "Over.\n"));
    stage.goes_on();
}
