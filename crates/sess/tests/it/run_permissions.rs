//! What tools may do when nobody is there to be asked.

use crate::run_stage::{Anthropic, ROOT, Stage};

/// The shell is asked to run a command; returns what the model was told.
fn told(rules: &str, options: &[&str], cmd: &str) -> (String, bool) {
    let script = format!("[{{tool_calls: [{{name: shell, arguments: {{cmd: '{cmd}'}}}}]}}, {{text: Done.}}]");
    let stage = Stage::with(Anthropic, &format!("{rules}{ROOT}"), &script);
    assert_eq!(stage.ok(options, "begin"), "Done.\n");
    stage.goes_on();
    stage.results().remove(0)
}

const REFUSED: &str = "refused: nobody is there to be asked; `permissions.allow` or --yolo would allow shell";

#[test]
fn without_rules_what_touches_the_world_is_refused_and_said_clearly() {
    assert_eq!(told("", &[], "echo hi"), (REFUSED.to_owned(), true));
}

#[test]
fn an_allow_rule_allows_what_it_names_and_nothing_joined_to_it() {
    let rules = "permissions: {allow: ['shell:cmd=echo *']}";
    assert_eq!(told(rules, &[], "echo hi"), ("hi\n[exit status 0]".to_owned(), false));
    assert_eq!(told(rules, &[], "echo hi; echo there"), (REFUSED.to_owned(), true));
}

#[test]
fn an_ask_rule_is_a_no_unless_everything_was_allowed() {
    let rules = "permissions: {allow: [shell], ask: ['shell:cmd=echo *']}";
    assert_eq!(told(rules, &[], "echo hi"), (REFUSED.to_owned(), true));
    assert_eq!(told(rules, &["--yolo"], "echo hi"), ("hi\n[exit status 0]".to_owned(), false));
}

#[test]
fn a_deny_rule_holds_whatever_else_was_allowed() {
    let rules = "permissions: {allow: [shell], deny: ['shell:cmd=*echo*']}";
    let refused = "refused by the rule \"shell:cmd=*echo*\" of permissions.deny";
    for options in [&[][..], &["--yolo"]] {
        assert_eq!(told(rules, options, "echo hi"), (refused.to_owned(), true));
    }
}

#[test]
fn a_deny_rule_holds_for_tools_that_only_read() {
    let script = "[{tool_calls: [{name: read_file, arguments: {path: agents.yaml}}]}, {text: Done.}]";
    let stage = Stage::with(Anthropic, &format!("permissions: {{deny: ['read_*']}}{ROOT}"), script);
    stage.ok(&["--yolo"], "begin");
    assert!(stage.results()[0].0.starts_with("refused by the rule"));
}

#[test]
fn a_command_of_an_agent_is_known_as_its_sessions_and_approves_no_plan() {
    let sess = env!("CARGO_BIN_EXE_sess");
    let (text, is_error) = told("", &["--yolo"], &format!("{sess} whoami; {sess} plan approve --session s1"));
    assert!(is_error && text.contains("standing  agent\nsession   s1"), "{text}");
    assert!(text.contains("a plan is reviewed by a person") && text.ends_with("[exit status 8]"), "{text}");
}

#[test]
fn a_command_of_an_agent_sees_no_key() {
    let (text, _) = told("", &["--yolo"], "env | sort");
    assert!(text.contains("SESS_SESSION=s1\n") && !text.contains("STUB_KEY"), "{text}");
}
