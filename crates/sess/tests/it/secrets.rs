//! Secrets in what agents said, on every command that shows it, to people and to agents.

use serde_json::{Value, json};

use crate::{
    run_stage::{Chat, KEY, Stage},
    world::{Run, World},
};

#[path = "../../../sess-core/src/redact/tests/secrets.rs"]
mod forms;

use forms::FORMS;

/// So many forms at a time that a text with them is not cut.
const AT_ONCE: usize = 25;
const CONFIG: &str = "
agents:
  root: {model: m, instruction: You are tested.}
tools: {sessions: {visibility: all}, agentToAgent: {enabled: true}}
";
/// What an agent that runs a shell command has in its environment.
const AGENT: (&str, &str) = ("CLAUDE_CODE_SESSION_ID", "c1");

fn sess<'a>(stage: &Stage, env: &[(&str, &str)], args: impl IntoIterator<Item = &'a str>) -> Run {
    let mut command = stage.world.command(["--config", "agents.yaml"].into_iter().chain(args));
    command.env("STUB_KEY", KEY).env("COLUMNS", "4000").envs(env.iter().copied());
    command.stdin(std::process::Stdio::null());
    command.output().expect("sess starts").into()
}

/// Returns what is hidden of a form, when it is not a word that others have too.
fn hidden(form: &(&str, &str)) -> Option<String> {
    let (text, shown) = form;
    let before = text.bytes().zip(shown.bytes()).take_while(|(a, b)| a == b).count();
    let after = text.bytes().rev().zip(shown.bytes().rev()).take_while(|(a, b)| a == b).count();
    let hidden = text.get(before..text.len() - after.min(text.len() - before))?;
    let is_known_elsewhere = || FORMS.iter().any(|(_, shown)| shown.contains(hidden));
    (hidden.len() >= 7 && !is_known_elsewhere()).then(|| hidden.to_owned())
}

#[track_caller]
fn check_none(told: &Run) {
    for form in FORMS {
        for text in [&told.stdout, &told.stderr] {
            assert!(!text.contains(form.0), "{:?} in {told:?}", form.0);
            let hidden = hidden(form);
            assert!(hidden.as_ref().is_none_or(|hidden| !text.contains(hidden)), "{hidden:?} in {told:?}");
        }
    }
}

#[test]
fn no_command_shows_a_secret_and_no_agent_gets_it_unmasked() {
    let parts: Vec<String> = FORMS
        .chunks(AT_ONCE)
        .map(|forms| forms.iter().map(|form| form.0).collect::<Vec<_>>().join("\n\n"))
        .collect();
    let mut replies: Vec<Value> = parts
        .iter()
        .enumerate()
        .map(|(n, text)| json!({"when": format!("part {n}"), "text": text}))
        .collect();
    let refusal = format!("it was {}", FORMS[0].0);
    replies.push(json!({"when": "fail", "fault": {"kind": "status", "status": 400, "message": refusal}}));
    let stage = Stage::with(Chat, CONFIG, &json!(replies).to_string());
    let mut runs = Vec::new();
    for (n, text) in parts.iter().enumerate() {
        let (label, task) = (FORMS[n].0, format!("part {n}"));
        let spawned =
            sess(&stage, &[], ["spawn", "--agent", "root", "--label", label, "--wait", "60", &task]);
        assert_eq!(spawned.code, 0, "{spawned:?}");
        check_none(&spawned);
        // It was stored as it was said.
        let rows = sess(&stage, &[], ["runs", "--json", "--no-redact", "--limit", "1"]);
        let rows: Value = serde_json::from_str(&rows.stdout).expect("JSON");
        assert_eq!(rows["runs"][0]["result"], **text);
        runs.push(rows["runs"][0].clone());
    }
    let failed = sess(&stage, &[], ["spawn", "--agent", "root", "--wait", "60", "fail"]);
    assert_eq!(failed.code, 1, "{failed:?}");
    assert!(failed.stderr.contains(FORMS[0].1), "{failed:?}");
    check_none(&failed);

    let mut commands: Vec<Vec<String>> = Vec::new();
    let mut add = |args: &[&str]| commands.push(args.iter().map(|arg| (*arg).to_owned()).collect());
    add(&["runs", "--limit", "100"]);
    add(&["runs", "--limit", "100", "--tree"]);
    add(&["runs", "--limit", "100", "--json"]);
    add(&["list"]);
    add(&["list", "--json"]);
    add(&["tool", "call", "sessions_list", "{\"messageLimit\": 20}"]);
    for run in &runs {
        let (id, session) =
            (run["runId"].as_str().expect("an id"), run["sessionId"].as_str().expect("an id"));
        add(&["wait", id]);
        add(&["wait", id, "--json"]);
        add(&["history", session, "--tools"]);
        add(&["history", session, "--json"]);
        add(&["tool", "call", "sessions_history", &json!({"sessionKey": session}).to_string()]);
    }
    for command in &commands {
        let args = || command.iter().map(String::as_str);
        let owner = sess(&stage, &[], args());
        assert_eq!(owner.code, 0, "{command:?}: {owner:?}");
        check_none(&owner);
        for unmasked in [&[][..], &["--no-redact"]] {
            let agent = sess(&stage, &[AGENT], args().chain(unmasked.iter().copied()));
            check_none(&agent);
        }
    }
    // The table is about them, and masks them.
    let table = sess(&stage, &[], ["runs", "--limit", "100"]);
    assert!(table.stdout.contains(FORMS[1].1) && table.stdout.contains("it was"), "{table:?}");
    let agent = sess(&stage, &[AGENT], ["runs", "--limit", "100", "--json", "--no-redact"]);
    assert!(agent.stdout.contains(FORMS[1].1), "the agent reaches them: {agent:?}");
}

#[test]
fn a_secret_in_the_name_of_a_directory_is_in_no_notice() {
    let world = World::new();
    let secret = "sk-ant-api03-AbCdEfGhIjKlMnOpQrStUvWxYz0123456789abcd";
    let dir = world.path(format!("w/{secret}"));
    std::fs::create_dir_all(dir.join(".crush/crush.db")).expect("made");
    let hidden = &secret[10..secret.len() - 4];
    for args in [
        &["list"][..],
        &["list", "-v"],
        &["list", "--json"],
        &["snapshot"],
        &["snapshot", "--json"],
        &["doctor"],
        &["doctor", "--json"],
    ] {
        let mut command = world.command(args.iter().copied());
        command.current_dir(&dir).stdin(std::process::Stdio::null());
        let run: Run = command.output().expect("sess starts").into();
        let told = format!("{}{}", run.stdout, run.stderr);
        assert!(told.contains("crush.db") && !told.contains(hidden), "{args:?}: {run:?}");
    }
}

/// A session works in its own directory, wherever the node runs that executes it.
#[test]
fn a_tool_works_in_the_directory_of_its_session_and_not_of_the_node() {
    let config = "
agents:
  root: {model: m, instruction: You are tested., toolsets: [{type: shell, timeout: 20}]}
permissions: {allow: ['shell']}
";
    let script = "
- {when: begin, text: begun}
- {when: where, tool_calls: [{name: shell, arguments: {cmd: pwd; touch was-here}}]}
- {text: there}
";
    let stage = Stage::with(Chat, config, script);
    let (home, elsewhere) = (stage.world.path("one"), stage.world.path("two"));
    for dir in [&home, &elsewhere] {
        std::fs::create_dir(dir).expect("made");
    }
    let at = |dir: &std::path::Path, args: &[&str]| -> Run {
        let config = stage.world.path("agents.yaml").display().to_string();
        let args: Vec<&str> = ["--config", &config].into_iter().chain(args.iter().copied()).collect();
        let mut command = stage.world.command(args);
        command.current_dir(dir).env("STUB_KEY", KEY).stdin(std::process::Stdio::null());
        command.output().expect("sess starts").into()
    };
    let begun = at(&home, &["run", "--exec", "--session", "s1", "begin"]);
    assert_eq!(begun.code, 0, "{begun:?}");
    let sent = at(&elsewhere, &["send", "s1", "where", "--wait", "60"]);
    assert_eq!((sent.code, sent.stdout.as_str()), (0, "there\n"), "{sent:?}");
    let results = stage.results();
    let [(told, false)] = results.as_slice() else { panic!("{results:?}") };
    assert!(told.contains(&home.display().to_string()), "{told}");
    assert!(home.join("was-here").exists() && !elsewhere.join("was-here").exists());
}
