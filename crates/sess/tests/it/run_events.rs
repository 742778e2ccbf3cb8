//! `--exec --json`: lines for programs, whatever the model says and whoever stops reading.

use std::io::{BufRead as _, BufReader};

use serde_json::json;

use crate::run_stage::{APIS, Anthropic, Stage, of_type};

#[test]
fn secrets_are_masked_in_every_line_however_they_come() {
    let key = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj";
    let script = format!(
        r#"
- text: "My token is ghp_0123456789abcdefghijklmnopqrstuvwxyz.\n-----BEGIN PRIVATE KEY-----\n{key}\n{key}\n-----END PRIVATE KEY-----\nEnd"
  chunk_chars: 3
  tool_calls: [{{name: shell, arguments: {{cmd: "echo password=hunter2hunter2"}}}}]
- text: Done.
"#
    );
    for api in APIS {
        let stage = Stage::new(api, &script);
        let run = stage.say(&["--json", "--yolo"], "begin");
        assert_eq!(run.code, 0, "{run:?}");
        for secret in ["ghp_012", "MIIEvQ", "hunter2hunter2"] {
            assert!(!run.stdout.contains(secret), "{secret} in {}", run.stdout);
        }
        assert!(run.stdout.contains("My token is ghp_01…wxyz"), "{}", run.stdout);
        stage.goes_on();
    }
}

#[test]
fn what_a_person_sees_is_masked_too() {
    let stage = Stage::new(Anthropic, "- text: My token is ghp_0123456789abcdefghijklmnopqrstuvwxyz.");
    assert_eq!(stage.ok(&[], "begin"), "My token is ghp_01…wxyz.\n");
}

#[test]
fn every_call_has_its_result_and_every_reply_its_usage() {
    let stage = Stage::new(
        Anthropic,
        "[{text: 'One\n\ntwo', tool_calls: [{name: list_directory}, {name: nothing}]}, {text: Done.}]",
    );
    let (code, events) = stage.events(&[], "begin");
    assert_eq!(code, 0);
    assert_eq!(of_type(&events, "usage").len(), 2);
    let calls = of_type(&events, "tool_call");
    let ended = of_type(&events, "tool_result");
    assert_eq!((calls.len(), ended.len()), (1, 2), "{events:?}");
    for event in events.iter().filter(|event| event["run_id"].is_string()) {
        assert_eq!((&event["session_id"], &event["agent"]), (&json!("s1"), &json!("root")), "{event}");
    }
    let last = events.last().expect("events");
    assert_eq!((&last["usage"]["input"], &last["usage"]["output"]), (&json!(20), &json!(10)), "{last}");
    assert!(last["usage"]["cost"].as_f64().is_some_and(|cost| cost > 0.0), "{last}");
}

#[test]
fn a_run_that_fails_says_so_in_its_last_line() {
    let stage = Stage::new(Anthropic, "- {text: x, fault: {kind: status, status: 401}}");
    let (code, events) = stage.events(&[], "begin");
    let last = events.last().expect("events");
    assert_eq!((code, &last["type"], &last["state"]), (1, &json!("run_ended"), &json!("failed")));
    assert!(last["error"].as_str().is_some_and(|error| !error.is_empty()), "{last}");
}

#[test]
fn a_reader_that_goes_away_does_not_stop_the_run() {
    let stage = Stage::new(
        Anthropic,
        r#"
- {text: "one\ntwo\n", chunk_delay_ms: 20, tool_calls: [{name: shell, arguments: {cmd: "echo x > made"}}]}
- {text: "three\nfour\n", chunk_delay_ms: 20}
"#,
    );
    for options in [&["--json", "--yolo"][..], &["--yolo"]] {
        let mut child =
            stage.command(options, "begin").stdout(std::process::Stdio::piped()).spawn().expect("starts");
        let mut first = String::new();
        let mut lines = BufReader::new(child.stdout.take().expect("piped"));
        if options.contains(&"--json") {
            lines.read_line(&mut first).expect("a line");
        }
        drop(lines);
        let code = child.wait().expect("it ends").code();
        assert!(code.is_some_and(|code| code <= 1), "{code:?}");
    }
    assert!(stage.world.path("made").exists());
    let said = stage.transcript();
    assert_eq!(crate::run_stage::text_of(&said[3]), "three\nfour\n", "{said:?}");
    stage.goes_on();
}

#[test]
fn json_without_exec_and_a_run_without_a_message_are_wrong_usage() {
    let stage = Stage::new(Anthropic, "[]");
    stage.world.fails(["run", "agents.yaml", "--json", "hello"], 2, "use it with --exec");
    stage.world.fails(["run", "agents.yaml", "--exec"], 2, "there is no message");
    stage.world.fails(["run", "agents.yaml", "--exec", "  "], 2, "there is no message");
}
