//! Models that misbehave: every run ends in a clear state, and the session goes on with the same model.

use std::process::Stdio;

use crate::{
    run_stage::{APIS, Anthropic, Chat, Stage, of_type, text_of},
    world::Run,
};

/// A fault of every model API: how the run ends, and what is said about it.
#[track_caller]
fn check(script: &str, code: i32, said: &str) {
    for api in APIS {
        let stage = Stage::new(api, script);
        stage.fails(&["--yolo"], "begin", code, said);
        stage.goes_on();
    }
}

#[test]
fn malformed_arguments_are_told_to_the_model_and_it_goes_on() {
    check(
        r#"
- {tool_calls: [{name: read_file}], fault: {kind: malformed_arguments}}
- {text: Never mind.}
"#,
        0,
        "the arguments are not valid JSON",
    );
}

#[test]
fn a_tool_that_does_not_exist_is_told_to_the_model_with_those_that_do() {
    check(
        r#"
- {tool_calls: [{name: read_file, arguments: {path: x}}], fault: {kind: unknown_tool}}
- {text: Never mind.}
"#,
        0,
        "unknown tool \"no_such_tool\"; the tools are: write_session_plan, read_session_plan, exit_plan_mode",
    );
}

#[test]
fn an_empty_reply_fails_the_run() {
    check("- {text: x, fault: {kind: empty}}", 1, "failed: ");
}

#[test]
fn fifty_calls_at_once_are_all_carried_out() {
    let script = r#"
- {tool_calls: [{name: write_file, arguments: {path: a.txt, content: x}}]}
- {tool_calls: [{name: read_file, arguments: {path: a.txt}}], fault: {kind: many_calls, count: 50}}
- {text: All read.}
"#;
    for api in APIS {
        let stage = Stage::new(api, script);
        assert_eq!(stage.ok(&["--yolo"], "begin"), "All read.\n");
        let results = stage.results();
        assert_eq!(results.len(), 51);
        assert!(results.iter().all(|(_, is_error)| !is_error), "{results:?}");
        stage.goes_on();
    }
}

#[test]
fn calls_beyond_what_a_reply_may_hold_end_the_run_or_are_refused_one_by_one() {
    let script = |count: usize| {
        format!(
            "[{{tool_calls: [{{name: list_directory, arguments: {{path: .}}}}], fault: {{kind: many_calls, count: \
             {count}}}}}, {{text: Done.}}]"
        )
    };
    let stage = Stage::new(Anthropic, &script(130));
    assert_eq!(stage.ok(&[], "begin"), "Done.\n");
    let refused =
        stage.results().into_iter().filter(|(text, is_error)| *is_error && text.contains("at most 128"));
    assert_eq!(refused.count(), 2);
    stage.goes_on();
    let stage = Stage::new(Anthropic, &script(1_000));
    stage.fails(&[], "begin", 1, "failed: ");
    stage.goes_on();
}

#[test]
fn calls_without_an_id_or_with_the_same_get_their_own_results() {
    for kind in ["no_ids", "same_ids"] {
        check(
            &format!(
                "[{{tool_calls: [{{name: list_directory}}, {{name: list_directory}}], fault: {{kind: {kind}}}}}, \
                 {{text: Seen.}}]"
            ),
            0,
            "",
        );
    }
}

#[test]
fn a_reply_of_10_mb_ends_the_run_and_its_beginning_is_kept() {
    for api in APIS {
        let stage = Stage::new(api, "- {fault: {kind: huge}}");
        stage.fails(&[], "begin", 1, "failed: ");
        let kept = text_of(&stage.transcript()[1]);
        assert!((1_000..=100_000).contains(&kept.len()), "{}", kept.len());
        stage.goes_on();
    }
}

#[test]
fn a_stream_without_end_is_ended() {
    check("- {fault: {kind: endless}}", 1, "failed: ");
}

#[test]
fn signs_of_life_without_end_are_ended() {
    let stage = Stage::new(Anthropic, "- {fault: {kind: endless_pings}}");
    stage.fails(&[], "begin", 1, "failed: ");
    stage.goes_on();
}

#[test]
fn a_refused_key_fails_the_run_and_names_its_variable() {
    check("- {fault: {kind: status, status: 401, message: invalid x-api-key}}", 1, "STUB_KEY");
}

#[test]
fn a_refused_key_is_not_tried_again() {
    let stage = Stage::new(Anthropic, "- {fault: {kind: status, status: 401}}");
    stage.fails(&[], "begin", 1, "failed: ");
    assert_eq!(stage.stub.requests().len(), 1);
}

#[test]
fn what_passes_by_itself_is_tried_again_and_told() {
    for status in [429, 500, 503, 529] {
        let stage = Stage::new(
            Anthropic,
            &format!(
                "- {{text: At last., fault: {{kind: status, status: {status}, times: 1, retry_after: \"0\"}}}}"
            ),
        );
        let (code, events) = stage.events(&[], "begin");
        assert_eq!(code, 0);
        assert_eq!(of_type(&events, "retry").len(), 1, "{events:?}");
        assert_eq!(events.last().expect("events")["result"], "At last.");
        stage.goes_on();
    }
}

#[test]
fn a_provider_that_stays_down_fails_the_run() {
    for (api, status) in [(Anthropic, 529), (Chat, 500)] {
        let stage =
            Stage::new(api, &format!("- {{fault: {{kind: status, status: {status}, retry_after: \"0\"}}}}"));
        stage.fails(&[], "begin", 1, &status.to_string());
        assert_eq!(stage.stub.requests().len(), 4);
        stage.goes_on();
    }
}

#[test]
fn a_wait_that_the_provider_asks_for_is_kept_and_can_be_cancelled() {
    let stage =
        Stage::new(Anthropic, "- {text: x, fault: {kind: status, status: 429, retry_after: \"100\"}}");
    let run = stage.beside(&[], "begin");
    while !run.line().contains(r#""after_ms":100000"#) {}
    assert_eq!(run.interrupt(), Some(130));
    stage.goes_on();
}

#[test]
fn a_connection_that_is_cut_once_is_made_again() {
    for api in APIS {
        for bytes in [0, 20, 200, 500] {
            let stage = Stage::new(
                api,
                &format!("- {{text: All of it., fault: {{kind: cut, bytes: {bytes}, times: 1}}}}"),
            );
            assert_eq!(stage.ok(&[], "begin"), "All of it.\n", "{api:?} {bytes}");
            stage.goes_on();
        }
    }
}

#[test]
fn a_connection_that_is_cut_every_time_fails_the_run_with_what_came() {
    let text = "word ".repeat(200);
    let stage = Stage::new(Chat, &format!("- {{text: {text}, fault: {{kind: cut, bytes: 4000}}}}"));
    let run = stage.say(&[], "begin");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stdout.starts_with("word word"), "{run:?}");
    assert!(run.stderr.contains("failed: "), "{run:?}");
    stage.goes_on();
}

#[test]
fn an_event_that_is_no_json_and_an_error_in_the_stream_are_met_like_a_cut() {
    for kind in ["malformed_chunk", "error_event"] {
        let stage =
            Stage::new(Anthropic, &format!("- {{text: All of it., fault: {{kind: {kind}, times: 1}}}}"));
        assert_eq!(stage.ok(&[], "begin"), "All of it.\n");
        stage.goes_on();
    }
}

#[test]
fn a_reply_that_its_limit_cut_off_fails_the_run_and_is_kept() {
    let stage = Stage::new(Anthropic, "- {text: Half a, stop: max_tokens}");
    let run = stage.say(&[], "begin");
    assert_eq!((run.code, run.stdout.as_str()), (1, "Half a\n"), "{run:?}");
    assert!(run.stderr.contains("max_tokens"), "{run:?}");
    stage.goes_on();
}

#[test]
fn a_tool_that_hangs_is_ended_by_its_time_limit() {
    let stage = Stage::new(
        Anthropic,
        r#"
- {tool_calls: [{name: shell, arguments: {cmd: "echo begun; sleep 1000", timeout: 1}}]}
- {text: It hung.}
"#,
    );
    assert_eq!(stage.ok(&["--yolo"], "begin"), "It hung.\n");
    let (text, is_error) = &stage.results()[0];
    assert!(*is_error && text.contains("begun") && text.contains("longer than 1 second"), "{text}");
    stage.goes_on();
}

#[test]
fn a_tool_that_prints_a_gigabyte_takes_no_memory() {
    let stage = Stage::new(
        Anthropic,
        r#"
- {tool_calls: [{name: shell, arguments: {cmd: "yes 0123456789abcdef0123456789abcdef | head -c 1000000000"}}]}
- {text: Much.}
"#,
    );
    // A process that kept what it read would need more than it can get.
    let limited = stage.command(&["--yolo"], "begin");
    let mut command = std::process::Command::new("sh");
    command
        .args(["-c", "ulimit -v 700000; exec \"$0\" \"$@\""])
        .arg(limited.get_program())
        .args(limited.get_args());
    stage.world.clean(&mut command);
    let run: Run = command.env("STUB_KEY", "k").stdin(Stdio::null()).output().expect("sh starts").into();
    assert_eq!((run.code, run.stdout.as_str()), (0, "Much.\n"), "{run:?}");
    let (text, is_error) = &stage.results()[0];
    assert!(!is_error && text.len() < 100_000 && text.contains("[exit status 0]"), "{}", text.len());
    stage.goes_on();
}
