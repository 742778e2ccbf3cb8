//! How far a run may go, and how it is stopped.

use crate::run_stage::{APIS, Anthropic, Stage, of_type};

const CALLS: &str = "
- {tool_calls: [{name: list_directory}]}
- {tool_calls: [{name: list_directory}]}
- {tool_calls: [{name: list_directory}]}
- {tool_calls: [{name: list_directory}]}
- {text: Never reached.}
";

#[track_caller]
fn check(limits: &str, script: &str, code: i32, said: &str, requests: usize) {
    let config = format!(
        "agents: {{root: {{model: m, toolsets: [{{type: filesystem}}, {{type: shell}}], limits: {{{limits}}}}}}}"
    );
    let stage = Stage::with(Anthropic, &config, script);
    stage.fails(&["--yolo"], "begin", code, said);
    assert_eq!(stage.stub.requests().len(), requests);
    stage.goes_on();
}

#[test]
fn the_calls_of_the_model_are_counted() {
    check("turns: 3", CALLS, 1, "failed: stopped after 3 calls of the model (limits.turns)", 3);
}

#[test]
fn tokens_are_counted() {
    check("tokens: 30", CALLS, 1, "failed: stopped after 30 tokens, the most is 30 (limits.tokens)", 2);
}

#[test]
fn what_it_costs_is_counted() {
    check(
        "cost: 40.5",
        CALLS,
        1,
        "failed: stopped after a cost of 45.0000, the most is 40.5 (limits.cost)",
        3,
    );
}

#[test]
fn time_ends_a_model_that_hangs() {
    let said = "stopped after 1 s (limits.seconds or runTimeoutSeconds)";
    check("seconds: 1", "- {text: Slow., fault: {kind: hang, bytes: 700}}", 124, said, 1);
}

#[test]
fn time_ends_a_tool_that_hangs() {
    let script = "- {tool_calls: [{name: shell, arguments: {cmd: sleep 1000}}, {name: list_directory}]}";
    check("seconds: 1", script, 124, "timed_out: stopped after 1 s (limits.seconds or runTimeoutSeconds)", 1);
}

#[test]
fn time_ends_a_wait_between_tries() {
    let script = "- {fault: {kind: status, status: 429, retry_after: \"60\"}}";
    check("seconds: 1", script, 124, "limits.seconds", 1);
}

#[test]
fn an_interrupt_in_the_middle_of_a_reply_keeps_what_came() {
    for api in APIS {
        let text = "word\\n".repeat(400);
        let stage = Stage::new(api, &format!("- {{text: \"{text}\", chunk_chars: 5, chunk_delay_ms: 20}}"));
        let run = stage.beside(&[], "begin");
        while !run.line().contains(r#""text":"word\n"#) {}
        assert_eq!(run.interrupt(), Some(130));
        let said = crate::run_stage::text_of(&stage.transcript()[1]);
        assert!(said.starts_with("word\n") && said.len() < 2_000, "{said}");
        stage.goes_on();
    }
}

#[test]
fn a_signal_stops_tools_and_gives_every_call_a_result() {
    for (api, signal) in APIS.into_iter().zip(["INT", "TERM", "TERM"]) {
        let stage = Stage::new(
            api,
            "- {tool_calls: [{name: shell, arguments: {cmd: \"echo $$ > pid; exec sleep 1000\"}}, {name: shell, \
             arguments: {cmd: ls}}]}",
        );
        let run = stage.beside(&["--yolo"], "begin");
        while !run.line().contains(r#""type":"tool_call""#) {}
        let is_written =
            || std::fs::read_to_string(stage.world.path("pid")).is_ok_and(|text| text.ends_with('\n'));
        while !is_written() {
            std::thread::yield_now();
        }
        let pid = stage.world.read("pid");
        assert_eq!(run.signal(signal), Some(130));
        assert!(!std::path::Path::new(&format!("/proc/{}", pid.trim())).exists(), "the command is gone");
        let mut results = stage.results();
        results.sort();
        let expected = ["[cancelled]", "not done: the turn was stopped"].map(|text| (text.to_owned(), true));
        assert_eq!(results, expected);
        stage.goes_on();
    }
}

#[test]
fn an_interrupt_stops_a_task_with_the_run_that_gave_it() {
    let config = "
agents:
  root: {model: m, instruction: You are the root., sub_agents: [coder]}
  coder: {model: m, instruction: You are the coder., toolsets: [{type: shell}]}
";
    let script = "
- {system: the root, tool_calls: [{name: transfer_task, arguments: {agent: coder, task: Build it}}]}
- {system: the coder, tool_calls: [{name: shell, arguments: {cmd: sleep 1000}}]}
";
    let stage = Stage::with(Anthropic, config, script);
    let run = stage.beside(&["--yolo"], "begin");
    while !run.line().contains(r#""name":"shell""#) {}
    assert_eq!(run.interrupt(), Some(130));
    let (text, is_error) = &stage.results()[0];
    assert!(*is_error && text.starts_with("coder did not finish (cancelled)"), "{text}");
    let (_, events) = stage.events(&[], "once more");
    assert_eq!(of_type(&events, "run_ended").len(), 1);
    stage.nothing_was_refused();
}
