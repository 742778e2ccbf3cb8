//! The plan workflow for programs: drafted and finished in one run, approved elsewhere, executed in the next.

use serde_json::{Value, json};

use crate::run_stage::{Anthropic, Stage, of_type, text_of};

/// The two agents of the seed, with whatever is added in front.
fn stage(settings: &str) -> Stage {
    let config = format!(
        "{settings}
agents:
  root:
    model: m
    instruction: You execute plans.
    toolsets: [{{type: session_plan, tools: [read_session_plan]}}]
    commands: {{plan: {{description: Plan, agent: planner}}}}
  planner:
    model: m
    instruction: You write plans.
    toolsets: [{{type: session_plan}}]
  builder:
    model: m
    instruction: You build.
    toolsets: [{{type: session_plan, tools: [read_session_plan]}}]
"
    );
    let script = r##"
- {when: Draft it, tool_calls: [{name: write_session_plan, arguments: {content: "# Plan\n\n1. ghp_0123456789abcdefghijklmnopqrstuvwxyz"}}]}
- {when: Plan saved, tool_calls: [{name: exit_plan_mode}]}
- {when: Plan ready, text: Please review.}
- {when: has been approved, tool_calls: [{name: read_session_plan}]}
- {when: "# Plan", text: Carried out.}
"##;
    Stage::with(Anthropic, &config, script)
}

fn state(stage: &Stage) -> Value {
    stage.world.json(["plan", "show", "--session", "s1"])["state"].clone()
}

fn notes(stage: &Stage) -> Vec<String> {
    let texts = stage.transcript().iter().map(text_of).collect::<Vec<_>>();
    texts.into_iter().filter(|text| text.contains("has been approved")).collect()
}

fn system(stage: &Stage) -> String {
    stage.last_request().body["system"].to_string()
}

#[test]
fn a_finished_plan_stays_ready_whatever_was_allowed() {
    let stage = stage("");
    let run = stage.say(&["--yolo"], "/plan Draft it");
    assert_eq!((run.code, run.stdout.as_str()), (0, "Please review.\n"), "{run:?}");
    assert!(run.stderr.contains("plan revision 1 is ready"), "{run:?}");
    assert_eq!(state(&stage), "ready");
    stage.goes_on();
    assert_eq!(state(&stage), "ready");
    assert!(notes(&stage).is_empty());
}

#[test]
fn an_approved_plan_is_told_once_to_the_agent_before_the_planner_and_done_when_that_ended_well() {
    let stage = stage("");
    stage.ok(&[], "/plan Draft it");
    stage.world.ok(["plan", "approve", "--session", "s1"]);
    assert_eq!(state(&stage), "approved");
    let (code, events) = stage.events(&["--agent", "root"], "go");
    assert_eq!(code, 0);
    assert!(system(&stage).contains("You execute plans."));
    assert_eq!(notes(&stage).len(), 1);
    assert!(notes(&stage)[0].contains("revision 1"), "{:?}", notes(&stage));
    assert_eq!(state(&stage), "done");
    let states: Vec<&Value> =
        of_type(&events, "session_plan_state").iter().map(|event| &event["state"]).collect();
    assert_eq!(states, [&json!("done")]);
    stage.goes_on();
    assert_eq!(notes(&stage).len(), 1);
}

#[test]
fn an_approved_plan_is_executed_by_whoever_the_configuration_names() {
    let stage = stage("plans: {on_approve: builder}");
    stage.ok(&[], "/plan Draft it");
    stage.world.ok(["plan", "approve", "--session", "s1"]);
    assert_eq!(stage.ok(&["--agent", "builder"], "go"), "Carried out.\n");
    assert!(system(&stage).contains("You build."));
    assert_eq!((notes(&stage).len(), state(&stage)), (1, json!("done")));
}

#[test]
fn a_message_after_the_approval_goes_to_the_executing_agent() {
    for (settings, agent) in [("", "You execute plans."), ("plans: {on_approve: builder}", "You build.")] {
        let stage = stage(settings);
        stage.ok(&[], "/plan Draft it");
        stage.world.ok(["plan", "approve", "--session", "s1"]);
        assert_eq!(stage.ok(&[], "go"), "Carried out.\n");
        assert!(system(&stage).contains(agent), "{}", system(&stage));
        assert_eq!((notes(&stage).len(), state(&stage)), (1, json!("done")));
    }
}

#[test]
fn a_revised_plan_is_told_again_under_its_own_number() {
    let stage = stage("");
    stage.ok(&[], "/plan Draft it");
    stage.world.ok(["plan", "approve", "--session", "s1"]);
    stage.ok(&["--agent", "root"], "go");
    stage.world.ok_input("# Plan B", ["plan", "write", "--session", "s1"]);
    stage.world.ok(["tool", "call", "exit_plan_mode", "--session", "s1"]);
    stage.world.ok(["plan", "approve", "--session", "s1"]);
    stage.ok(&["--agent", "root"], "once more");
    let notes = notes(&stage);
    assert!(notes.len() == 2 && notes[1].contains("revision 2"), "{notes:?}");
}

#[test]
fn a_plan_that_the_person_changed_before_the_approval_is_not_the_planners_to_execute() {
    let stage = stage("");
    stage.ok(&[], "/plan Draft it");
    stage.world.ok_input("# Plan, but better", ["plan", "write", "--session", "s1"]);
    stage.world.ok(["tool", "call", "exit_plan_mode", "--session", "s1"]);
    stage.world.ok(["plan", "approve", "--session", "s1"]);
    assert_eq!(stage.ok(&[], "go"), "Carried out.\n");
    assert!(system(&stage).contains("You execute plans."), "{}", system(&stage));
}

#[test]
fn a_plan_whose_execution_failed_is_not_done() {
    let stage = Stage::with(
        Anthropic,
        "agents: {root: {model: m, instruction: You execute.}}",
        "- {fault: {kind: status, status: 401}}",
    );
    stage.world.ready_plan();
    stage.world.ok(["plan", "approve", "--session", "s1"]);
    stage.fails(&[], "go", 1, "failed: ");
    assert_eq!(state(&stage), "approved");
    stage.goes_on();
    assert_eq!(notes(&stage).len(), 1);
}

#[test]
fn the_events_of_a_run_tell_of_the_plan_once_and_of_the_end_last() {
    let stage = stage("");
    let (code, events) = stage.events(&[], "/plan Draft it");
    assert_eq!(code, 0);
    let updated = of_type(&events, "session_plan_updated");
    assert_eq!(updated.len(), 1, "{events:?}");
    assert_eq!((&updated[0]["session_id"], &updated[0]["agent_name"]), (&json!("s1"), &json!("planner")));
    assert!(updated[0]["content"].as_str().expect("content").starts_with("# Plan"));
    assert_eq!(of_type(&events, "session_plan_state").len(), 1);
    let last = events.last().expect("events");
    assert_eq!(
        (&last["type"], &last["state"], &last["result"]),
        (&json!("run_ended"), &json!("done"), &json!("Please review."))
    );
    assert_eq!(of_type(&events, "run_ended").len(), 1);
    assert!(!json!(events).to_string().contains("ghp_012"), "a secret is masked");
}
