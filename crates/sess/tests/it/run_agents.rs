//! Agents that work together: handoffs, commands, tasks, questions.

use serde_json::{Value, json};

use crate::run_stage::{Anthropic, Chat, Stage, of_type, results, text_of};

const TEAM: &str = "
agents:
  root:
    model: m
    instruction: You are the root.
    toolsets: [{type: session_plan}]
    handoffs: [planner]
    commands:
      plan: {description: Plan it, agent: planner}
      review: 'Review ${args} well, I mean ${args}.'
      sketch: {instruction: Sketch it., agent: planner}
  planner:
    model: m
    description: Plans
    instruction: You are the planner.
    toolsets: [{type: session_plan}]
    handoffs: [root]
";

fn system(request: &Value) -> String {
    match &request["system"] {
        Value::String(text) => text.clone(),
        blocks => {
            blocks.as_array().into_iter().flatten().filter_map(|block| block["text"].as_str()).collect()
        }
    }
}

/// What the person said last, as the model heard it.
fn heard(stage: &Stage) -> String {
    let body = stage.last_request().body;
    let last = body["messages"].as_array().and_then(|messages| messages.last()).expect("messages").clone();
    text_of(&last)
}

#[test]
fn a_handoff_goes_on_in_the_same_session_with_the_same_plan() {
    let stage = Stage::with(
        Anthropic,
        TEAM,
        r##"
- {tool_calls: [{name: write_session_plan, arguments: {content: "# By root"}}]}
- {tool_calls: [{name: handoff, arguments: {agent: planner}}]}
- {tool_calls: [{name: read_session_plan}]}
- {text: Seen.}
"##,
    );
    assert_eq!(stage.ok(&[], "begin"), "Seen.\n");
    let systems: Vec<String> = stage.stub.requests().iter().map(|request| system(&request.body)).collect();
    let is_root: Vec<bool> = systems.iter().map(|system| system.starts_with("You are the root.")).collect();
    assert_eq!(is_root, [true, true, false, false], "{systems:?}");
    assert!(systems[2].starts_with("You are the planner."));
    assert_eq!(stage.results()[2], ("# By root".to_owned(), false));
    let agents: Vec<Value> = stage.transcript().iter().map(|message| message["agentId"].clone()).collect();
    assert_eq!((&agents[1], agents.last().expect("messages")), (&json!("root"), &json!("planner")));
    // It stays the active one.
    stage.goes_on();
    assert!(system(&stage.last_request().body).starts_with("You are the planner."));
}

#[test]
fn a_handoff_to_nobody_is_refused_with_the_names_of_those_there_are() {
    let stage = Stage::with(
        Chat,
        TEAM,
        "[{tool_calls: [{name: handoff, arguments: {agent: pope}}]}, {text: Alone then.}]",
    );
    assert_eq!(stage.ok(&[], "begin"), "Alone then.\n");
    assert!(stage.results()[0].0.contains("there is no agent \"pope\""));
    stage.goes_on();
}

#[test]
fn a_command_switches_the_agent_which_gets_the_rest_of_the_line() {
    let stage = Stage::with(Anthropic, TEAM, "[{text: A plan.}]");
    assert_eq!(stage.ok(&[], "/plan the  whole thing"), "A plan.\n");
    assert_eq!(heard(&stage), "the  whole thing");
    assert!(system(&stage.last_request().body).starts_with("You are the planner."));
    stage.goes_on();
    assert!(system(&stage.last_request().body).starts_with("You are the planner."));
}

#[test]
fn an_instruction_of_a_command_holds_the_rest_of_the_line_wherever_it_says_so() {
    let stage = Stage::with(Anthropic, TEAM, "[{text: One.}, {text: Two.}, {text: Three.}]");
    stage.ok(&[], "/review src/a b.rs");
    assert_eq!(heard(&stage), "Review src/a b.rs well, I mean src/a b.rs.");
    assert!(system(&stage.last_request().body).starts_with("You are the root."));
    stage.ok(&[], "/sketch a bridge");
    assert_eq!(heard(&stage), "Sketch it.\n\na bridge");
    assert!(system(&stage.last_request().body).starts_with("You are the planner."));
    // What is no command is said as it is.
    stage.ok(&[], "/etc/passwd is a file");
    assert_eq!(heard(&stage), "/etc/passwd is a file");
    stage.nothing_was_refused();
}

#[test]
fn a_chosen_agent_answers_and_stays() {
    let stage = Stage::with(Anthropic, TEAM, "[{text: Mine.}]");
    stage.ok(&["--agent", "planner"], "begin");
    stage.goes_on();
    assert!(system(&stage.last_request().body).starts_with("You are the planner."));
}

const TASKS: &str = "
agents:
  root: {model: m, instruction: You are the root., sub_agents: [coder, tester]}
  coder:
    model: m
    description: Codes
    instruction: You are the coder.
    toolsets: [{type: shell}, {type: session_plan}]
    sub_agents: [tester]
    limits: {turns: 3}
  tester: {model: m, instruction: You are the tester.}
";

fn sub_sessions(transcript: &[Value]) -> Vec<String> {
    let blocks =
        transcript.iter().flat_map(|message| message["content"].as_array().cloned().unwrap_or_default());
    blocks
        .filter(|block| block["type"] == "subSession")
        .map(|block| block["sessionId"].as_str().expect("an id").to_owned())
        .collect()
}

#[test]
fn a_task_is_done_in_a_session_of_its_own_marked_in_the_transcript() {
    let stage = Stage::with(
        Anthropic,
        TASKS,
        r#"
- {system: the root, when: begin, tool_calls: [{name: transfer_task, arguments: {agent: coder, task: Build it, expected_output: A word}}]}
- {system: the coder, when: Build it, tool_calls: [{name: transfer_task, arguments: {agent: tester, task: Test it}}]}
- {system: the tester, text: It holds.}
- {system: the coder, when: It holds, text: Built and tested.}
- {system: the root, when: Built, text: All is well.}
"#,
    );
    assert_eq!(stage.ok(&[], "begin"), "All is well.\n");
    assert_eq!(stage.results(), [("Built and tested.".to_owned(), false)]);
    let coder = sub_sessions(&stage.transcript());
    assert_eq!(coder.len(), 1);
    let shown = stage.world.ok(["read", "s1"]);
    assert!(shown.contains(&coder[0]), "{shown}");
    let said = stage.transcript_of(&coder[0]);
    assert_eq!(text_of(&said[0]), "Build it\n\nExpected output:\nA word");
    let tester = sub_sessions(&said);
    assert_eq!(tester.len(), 1);
    assert_eq!(results(&said), [("It holds.".to_owned(), false)]);
    assert_eq!(text_of(&stage.transcript_of(&tester[0])[1]), "It holds.");
    let head: Value =
        serde_json::from_str(stage.world.ok(["export", &coder[0]]).lines().next().expect("a line"))
            .expect("JSON");
    assert_eq!(head["parentKey"], "agent:root:chat:s1", "{head}");
    stage.goes_on();
}

#[test]
fn a_task_that_fails_is_told_to_the_agent_that_gave_it() {
    let stage = Stage::with(
        Anthropic,
        TASKS,
        r#"
- {system: the root, when: begin, tool_calls: [{name: transfer_task, arguments: {agent: coder, task: Build it}}]}
- {system: the coder, text: Half., fault: {kind: status, status: 401}}
- {system: the root, when: did not finish, text: Too bad.}
"#,
    );
    assert_eq!(stage.ok(&[], "begin"), "Too bad.\n");
    let (text, is_error) = &stage.results()[0];
    assert!(*is_error && text.starts_with("coder did not finish ("), "{text}");
    stage.goes_on();
}

#[test]
fn a_task_that_reaches_its_limit_is_told_to_the_agent_that_gave_it() {
    let stage = Stage::with(
        Anthropic,
        TASKS,
        r#"
- {system: the root, when: begin, tool_calls: [{name: transfer_task, arguments: {agent: coder, task: Build it}}]}
- {system: the coder, text: One., tool_calls: [{name: shell, arguments: {cmd: "true"}}]}
- {system: the coder, text: Two., tool_calls: [{name: shell, arguments: {cmd: "true"}}]}
- {system: the coder, text: Three., tool_calls: [{name: shell, arguments: {cmd: "true"}}]}
- {system: the root, when: limits.turns, text: Too bad.}
"#,
    );
    assert_eq!(stage.ok(&["--yolo"], "begin"), "Too bad.\n");
    let (text, _) = &stage.results()[0];
    assert!(text.ends_with("what it said last: Three."), "{text}");
    stage.goes_on();
}

#[test]
fn a_task_reads_its_parents_plan_and_never_writes_it() {
    let stage = Stage::with(
        Anthropic,
        TASKS,
        r##"
- {system: the root, when: begin, tool_calls: [{name: transfer_task, arguments: {agent: coder, task: Build it}}]}
- {system: the coder, when: Build it, tool_calls: [{name: read_session_plan}]}
- {system: the coder, when: Parents plan, tool_calls: [{name: write_session_plan, arguments: {content: "# Mine"}}]}
- {system: the coder, when: Plan saved, text: Built.}
- {system: the root, when: Built, text: Fine.}
"##,
    );
    stage.world.ok_input("# Parents plan", ["plan", "write", "--session", "s1"]);
    assert_eq!(stage.ok(&[], "begin"), "Fine.\n");
    assert_eq!(stage.world.ok(["plan", "show", "--session", "s1"]), "# Parents plan");
    let coder = &sub_sessions(&stage.transcript())[0];
    assert_eq!(stage.world.ok(["plan", "show", "--session", coder]), "# Mine");
}

#[test]
fn tasks_at_the_same_time_do_not_mix_their_words() {
    let stage = Stage::with(
        Anthropic,
        TASKS,
        r#"
- system: the root
  when: begin
  tool_calls:
    - {name: transfer_task, arguments: {agent: coder, task: Build it}}
    - {name: transfer_task, arguments: {agent: tester, task: Test it}}
- {system: the coder, text: "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", chunk_chars: 1, chunk_delay_ms: 5}
- {system: the tester, text: "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb", chunk_chars: 1, chunk_delay_ms: 5}
- {system: the root, when: aaa, text: Both.}
"#,
    );
    let (code, events) = stage.events(&[], "begin");
    assert_eq!(code, 0);
    let texts: Vec<(&str, String)> = of_type(&events, "text")
        .iter()
        .map(|event| {
            (event["agent"].as_str().expect("a name"), event["text"].as_str().expect("text").to_owned())
        })
        .collect();
    assert!(texts.contains(&("coder", "a".repeat(47))), "{texts:?}");
    assert!(texts.contains(&("tester", "b".repeat(47))), "{texts:?}");
    assert!(texts.contains(&("root", "Both.".to_owned())), "{texts:?}");
}

#[test]
fn a_question_that_nobody_can_answer_is_an_error_that_says_so() {
    let stage = Stage::new(
        Anthropic,
        "[{tool_calls: [{name: user_prompt, arguments: {message: Which?}}]}, {text: I chose.}]",
    );
    assert_eq!(stage.ok(&["--yolo"], "begin"), "I chose.\n");
    let (text, is_error) = &stage.results()[0];
    assert!(*is_error && text.starts_with("nobody is there to be asked"), "{text}");
    stage.goes_on();
}

#[test]
fn a_command_that_only_switches_asks_for_a_message() {
    let stage = Stage::with(Anthropic, TEAM, "[]");
    stage.fails(
        &[],
        "/plan ",
        2,
        "/plan switches to planner, which is told nothing: add a message after /plan",
    );
    assert_eq!(stage.stub.requests().len(), 0);
    assert_eq!(stage.world.json(["list"])["sessions"], json!([]));
}
