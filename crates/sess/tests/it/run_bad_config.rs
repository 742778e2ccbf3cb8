//! Configurations that ask for trouble.

use std::fmt::Write as _;

use crate::{
    run_stage::{Anthropic, Stage},
    world::World,
};

#[test]
fn agents_that_hand_over_in_a_circle_are_ended_by_a_limit() {
    let config = "
agents:
  a: {model: m, instruction: You are a., handoffs: [b], limits: {turns: 5}}
  b: {model: m, instruction: You are b., handoffs: [a], limits: {turns: 5}}
";
    let to = |agent: &str| format!("- {{tool_calls: [{{name: handoff, arguments: {{agent: {agent}}}}}]}}\n");
    let stage = Stage::with(Anthropic, config, &[to("b"), to("a")].concat().repeat(10));
    stage.fails(&[], "begin", 1, "stopped after 5 calls of the model (limits.turns)");
    assert_eq!(stage.stub.requests().len(), 5);
    stage.goes_on();
}

#[test]
fn what_a_configuration_names_must_be_there() {
    let check = |config: &str, said: &str| {
        let world = World::new();
        world.write("agents.yaml", config);
        world.fails(["run", "agents.yaml", "--exec", "hello"], 2, said);
        assert!(!world.data().join("sess.db").exists(), "nothing was begun");
    };
    check("agents: {a: {model: openai/x, handoffs: [b]}}", "agents.yaml:1:");
    check("agents: {a: {model: openai/x, sub_agents: [b]}}", "\"b\"");
    check("agents: {a: {model: openai/x, sub_agents: [a]}}", "agents.yaml:1:");
    check("agents: {a: {model: nowhere}}", "agents.yaml:1:");
    check("agents: {a: {model: openai/x, commands: {go: {agent: b}}}}", "\"b\"");
    check("agents: {a: {model: openai/x, toolsets: [{type: shel}]}}", "did you mean \"shell\"");
    check("agents: {}", "there are no agents");
    check("agents: [", "agents.yaml:1:");
}

#[test]
fn a_yaml_bomb_is_refused() {
    let world = World::new();
    let mut bomb = "x0: &x0 [a, a, a, a, a, a, a, a, a, a]\n".to_owned();
    for n in 1..10 {
        let before = format!("*x{}", n - 1);
        writeln!(bomb, "x{n}: &x{n} [{}]", [before.as_str(); 10].join(", ")).expect("a text");
    }
    world.write("agents.yaml", &format!("{bomb}agents: {{a: {{model: openai/x, instruction: *x9}}}}\n"));
    world.fails(["run", "agents.yaml", "--exec", "hello"], 2, "agents.yaml");
    world.write("agents.yaml", &("[".repeat(100_000)));
    world.fails(["run", "agents.yaml", "--exec", "hello"], 2, "agents.yaml");
}

#[test]
fn an_agent_that_is_not_there_is_not_found_and_the_others_are_named() {
    let stage = Stage::new(Anthropic, "[]");
    stage.fails(&["--agent", "rot"], "begin", 3, "there is no agent \"rot\"; the agents are: root");
    assert_eq!(stage.stub.requests().len(), 0);
}

#[test]
fn a_model_without_a_key_fails_the_run_with_the_name_of_the_variable() {
    let stage = Stage::new(Anthropic, "- {fault: {kind: status, status: 401}}");
    let mut command = stage.command(&[], "begin");
    command.env_remove("STUB_KEY");
    let run: crate::world::Run = command.output().expect("sess starts").into();
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("STUB_KEY"), "{run:?}");
    stage.goes_on();
}
