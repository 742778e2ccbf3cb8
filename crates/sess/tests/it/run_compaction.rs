//! Compaction: a summary in place of what no longer fits, and nothing lost.

use crate::run_stage::{APIS, Anthropic, Stage, text_of};

const SMALL: &str = "agents: {root: {model: small, instruction: You are the root.}}";
const ASKED: &str = "system: You summarise, when: Summarise the conversation so far";

/// About as long as the window of the model `small`.
fn long() -> String {
    "A long story it is. ".repeat(300)
}

fn summaries(stage: &Stage) -> Vec<String> {
    let transcript = stage.transcript();
    let blocks =
        transcript.iter().flat_map(|message| message["content"].as_array().cloned().unwrap_or_default());
    blocks
        .filter(|block| block["type"] == "compaction")
        .map(|block| block["summary"].as_str().expect("a text").to_owned())
        .collect()
}

#[test]
fn a_full_window_is_summed_up_and_the_messages_before_stay_readable() {
    let script = format!(
        "[{{{ASKED}, text: The gist.}}, {{when: begin, text: {}}}, {{when: The gist, text: On it goes.}}]",
        long()
    );
    for api in APIS {
        let stage = Stage::with(api, SMALL, &script);
        stage.ok(&[], "begin");
        assert_eq!(stage.stub.requests().len(), 1);
        assert_eq!(stage.ok(&[], "and now?"), "On it goes.\n");
        let summaries = summaries(&stage);
        assert_eq!(summaries.len(), 1);
        assert!(summaries[0].contains("The gist.") && summaries[0].contains("and now?"), "{summaries:?}");
        let asked = stage.last_request().body.to_string();
        assert!(asked.contains("The gist.") && asked.contains("and now?"), "{asked}");
        assert!(!asked.contains("A long story"), "{asked}");
        let shown = stage.world.ok(["read", "s1"]);
        assert!(shown.contains("begin") && shown.contains("A long story"), "{shown}");
        assert_eq!(text_of(&stage.transcript()[1]).trim_end(), long().trim_end());
        stage.goes_on();
    }
}

#[test]
fn a_summary_in_the_middle_of_a_turn_lets_it_go_on() {
    let config = "agents: {root: {model: small, instruction: Root., toolsets: [{type: filesystem, tools: [read_file]}]}}";
    let script = format!(
        "[{{{ASKED}, text: The gist.}}, {{when: The gist, text: On it goes.}}, \
         {{when: begin, tool_calls: [{{name: read_file, arguments: {{path: long.txt}}}}]}}]"
    );
    for api in APIS {
        let stage = Stage::with(api, config, &script);
        stage.world.write("long.txt", &long());
        assert_eq!(stage.ok(&[], "begin"), "On it goes.\n");
        assert_eq!(summaries(&stage).len(), 1);
        stage.goes_on();
    }
}

#[test]
fn what_the_provider_calls_too_long_is_summed_up_once_and_tried_again() {
    let script = format!(
        "[{{{ASKED}, text: The gist.}}, {{when: The gist, text: Now it fits.}}, {{when: begin, fault: {{kind: too_long}}}}]"
    );
    for api in APIS {
        let stage = Stage::with(api, "agents: {root: {model: m}}", &script);
        assert_eq!(stage.ok(&[], "begin"), "Now it fits.\n");
        assert_eq!(summaries(&stage).len(), 1);
        let statuses: Vec<u16> = stage.stub.requests().iter().map(|request| request.status).collect();
        assert_eq!(statuses, [400, 200, 200]);
        assert_eq!(stage.ok(&[], "once more"), "Here again.\n");
    }
}

#[test]
fn what_stays_too_long_fails_the_run() {
    let script = format!("[{{{ASKED}, text: The gist.}}, {{when: begin, fault: {{kind: too_long}}}}]");
    let stage = Stage::with(Anthropic, "agents: {root: {model: m}}", &script);
    stage.fails(&[], "begin", 1, "too long");
    assert_eq!(summaries(&stage).len(), 1);
    assert_eq!(stage.ok(&[], "once more"), "Here again.\n");
}

#[test]
fn a_summary_that_cannot_be_made_is_replaced_by_the_beginnings_of_the_newest_messages() {
    for fault in ["{kind: status, status: 401}", "{kind: empty}", "{kind: too_long}"] {
        let script = format!(
            "[{{{ASKED}, text: x, fault: {fault}}}, {{when: no summary could be made, text: On it goes.}}, \
             {{when: begin, text: {}}}]",
            long()
        );
        let stage = Stage::with(Anthropic, SMALL, &script);
        stage.ok(&[], "begin");
        assert_eq!(stage.ok(&[], "and now?"), "On it goes.\n");
        let summary = summaries(&stage).remove(0);
        assert!(summary.contains("- person: begin\n- agent: A long story"), "{summary}");
        assert_eq!(stage.ok(&[], "once more"), "Here again.\n");
    }
}

#[test]
fn a_long_message_that_was_not_answered_yet_reaches_the_model_whole() {
    let message = format!("{}The end of it.", "Read this. ".repeat(1_000));
    let script = format!(
        "[{{{ASKED}, text: The gist.}}, {{when: begin, text: {}}}, {{when: The gist, text: On it goes.}}]",
        long().repeat(8)
    );
    let stage = Stage::with(Anthropic, "agents: {root: {model: middle}}", &script);
    stage.ok(&[], "begin");
    assert_eq!(stage.ok(&[], &message), "On it goes.\n");
    let asked = stage.last_request().body.to_string();
    assert!(asked.contains("The end of it.") && !asked.contains("A long story"), "{asked}");
}

#[test]
fn many_summaries_in_one_turn_keep_what_the_person_said() {
    let config = "agents: {root: {model: small, limits: {turns: 6}, toolsets: [{type: filesystem, tools: [read_file]}]}}";
    let script = format!(
        "[{{{ASKED}, text: {}}}, {{tool_calls: [{{name: read_file, arguments: {{path: long.txt}}}}]}}]",
        "The gist of it. ".repeat(20)
    );
    let stage = Stage::with(Anthropic, config, &script);
    stage.world.write("long.txt", &long());
    stage.fails(&[], "begin by reading", 1, "limits.turns");
    let summaries = summaries(&stage);
    assert_eq!(summaries.len(), 5);
    for summary in summaries {
        assert!(
            summary.ends_with("The person's last message, word for word:\nbegin by reading"),
            "{summary}"
        );
        assert_eq!(summary.matches("word for word").count(), 1, "{summary}");
    }
    stage.goes_on();
}

#[test]
fn an_interrupt_while_a_summary_is_made_leaves_the_conversation_as_it_was() {
    let script = format!(
        "[{{system: You summarise, when: second try, text: The gist.}}, {{{ASKED}, text: x, fault: {{kind: hang}}}}, \
         {{when: begin, text: {}}}, {{when: The gist, text: On it goes.}}]",
        long()
    );
    let stage = Stage::with(Anthropic, SMALL, &script);
    stage.ok(&[], "begin");
    let run = stage.beside(&[], "and now?");
    while stage.stub.requests().len() < 2 {
        std::thread::yield_now();
    }
    assert_eq!(run.interrupt(), Some(130));
    assert_eq!(summaries(&stage), Vec::<String>::new());
    assert_eq!(stage.ok(&[], "second try"), "On it goes.\n");
    let summed_up = &stage.stub.requests()[2].body.to_string();
    assert!(summed_up.contains("A long story") && summed_up.contains("and now?"), "{summed_up}");
}
