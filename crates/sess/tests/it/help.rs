//! Help, manual, completions, demo, and what is said about a mistake.

use std::process::Command;

use crate::world::World;

const COMMANDS: [&str; 35] = [
    "demo",
    "mcp",
    "serve",
    "open",
    "token",
    "list",
    "read",
    "history",
    "send",
    "spawn",
    "runs",
    "wait",
    "cancel",
    "search",
    "index",
    "plan",
    "work",
    "events",
    "star",
    "unstar",
    "rename",
    "archive",
    "unarchive",
    "import",
    "export",
    "whoami",
    "snapshot",
    "ps",
    "install",
    "uninstall",
    "doctor",
    "config",
    "tool",
    "completions",
    "man",
];

#[test]
fn every_command_explains_itself() {
    let world = World::new();
    let help = world.ok(["--help"]);
    for command in COMMANDS {
        assert!(help.contains(&format!("\n  {command} ")), "{command}");
        let own = world.ok([command, "--help"]);
        let first = own.lines().next().expect("a line");
        assert!(!first.is_empty() && !first.ends_with('.') && own.contains("Usage: sess "), "{own}");
        // No argument and no option without a word about it.
        let short = world.ok([command, "-h"]);
        assert!(
            !short.lines().any(|line| line.starts_with("  ")
                && line.trim_end().ends_with(['>', ']'])
                && !line.contains("  ")),
            "{short}"
        );
    }
    for plan in ["show", "write", "edit", "log", "diff", "approve", "request-changes", "done", "export"] {
        assert!(world.ok(["plan", plan, "--help"]).contains(&format!("Usage: sess plan {plan}")));
    }
    let verbs = world.ok(["work", "--help"]);
    for work in [
        "init",
        "new",
        "edit",
        "ready",
        "unready",
        "list",
        "show",
        "board",
        "claim",
        "env",
        "exec",
        "log",
        "plan",
        "sub",
        "learn",
        "sync",
        "land",
        "status",
        "drift",
        "heartbeat",
        "release",
        "takeover",
        "amend",
        "complete",
        "abandon",
        "retry",
        "watch",
        "kb",
        "adopt",
        "context",
        "blame",
        "run",
        "doctor",
        "gc",
        "uninstall",
    ] {
        assert!(verbs.contains(&format!("\n  {work} ")), "{work}");
        let own = world.ok(["work", work, "--help"]);
        // A group of verbs has them in its verbs.
        let is_group = own.contains("\nCommands:\n");
        assert!(is_group || own.contains("\nExamples:\n  ") && own.contains("\nExit codes: 0 done"), "{own}");
        assert!(world.ok(["work", work, "--help"]).contains(&format!("Usage: sess work {work}")));
    }
    assert!(!verbs.contains("\n  hook "), "{verbs}");
    // Whoever asks for help on help gets it.
    assert_eq!(world.ok(["work", "help", "--help"]), world.ok(["work", "help"]));
    assert_eq!(world.ok(["help", "-h"]), world.ok(["help"]));
    assert_eq!(world.run(["work", "help", "nothing"]).code, 2);
    for config in ["check", "show", "schema", "trust"] {
        assert!(world.ok(["config", config, "--help"]).contains(&format!("Usage: sess config {config}")));
    }
    assert!(help.contains("Exit codes: 0 done, 1 failed, 2 usage, 3 not found or wrong state"), "{help}");
    assert_eq!(world.ok(["--version"]), concat!("sess ", env!("CARGO_PKG_VERSION"), "\n"));
    assert_eq!(world.ok(["help", "list"]), world.ok(["list", "--help"]));
    assert!(!world.data().exists());
}

#[test]
fn a_typo_is_answered_with_what_was_meant() {
    let world = World::new();
    world.fails(["raed", "-1"], 2, "a similar subcommand exists: 'read'");
    world.fails(["plan", "aprove"], 2, "a similar subcommand exists: 'approve'");
    world.fails(["list", "--jsn"], 2, "a similar argument exists: '--json'");
    world.fails(["read", "--jsn", "-1"], 2, "unexpected argument");
    world.fails(["list", "--limit", "x"], 2, "invalid value 'x' for '--limit <N>'");
    world.fails(["plan"], 2, "Usage: sess plan");
    world.fails(["completions", "cmd"], 2, "[possible values: bash, elvish, fish, powershell, zsh]");
    world.fails(["man", "nothing"], 2, "there is no command \"nothing\"; `sess --help` lists them");
}

#[test]
fn completions_are_what_the_shell_reads() {
    // What bash offers after `sess work cl`.
    let own = World::new();
    let script = format!(
        "{}\nCOMP_WORDS=(sess work cl); COMP_CWORD=2; _sess sess cl work; echo \"${{COMPREPLY[@]}}\"",
        own.ok(["completions", "bash"])
    );
    let script = own.write("completions.sh", &script);
    let offered = Command::new("bash").arg("--norc").arg(script).output().expect("bash starts");
    assert_eq!(String::from_utf8_lossy(&offered.stdout).trim(), "claim", "{offered:?}");

    let world = World::new();
    for (shell, sign) in
        [("bash", "complete -F _sess"), ("zsh", "#compdef sess"), ("fish", "complete -c sess")]
    {
        let script = world.ok(["completions", shell]);
        assert!(
            script.contains(sign) && script.contains("request-changes") && script.contains("takeover"),
            "{shell}"
        );
        let file = world.write("completions", &script);
        // Shells that are not here cannot say.
        if let Ok(checked) = Command::new(shell).arg("-n").arg(&file).status() {
            assert!(checked.success(), "{shell} -n");
        }
    }
}

#[test]
fn the_manual_has_a_page_for_each_command() {
    let world = World::new();
    let page = world.ok(["man"]);
    assert!(page.contains(".TH sess 1") && page.contains("Exit codes"), "{page}");
    for command in COMMANDS {
        assert!(world.ok(["man", command]).contains(&format!(".TH sess-{command} 1")), "{command}");
    }
}

#[test]
fn the_demo_shows_plan_and_context_and_leaves_nothing() {
    let world = World::new();
    let temporary = world.path("tmp");
    std::fs::create_dir(&temporary).expect("made");
    let run = world.run_env(&[("TMPDIR", &temporary.to_string_lossy())], ["demo"]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
    for shown in [
        "list_sessions",
        "read_session",
        "Plan saved to",
        "Plan ready for review.",
        "revision 1 is changes_requested: add a test",
        "revision 2 is approved",
        "the script is well formed",
        "the plan is done",
        "# Retry failed uploads",
        "session_plan_updated",
        "is removed again",
    ] {
        assert!(run.stdout.contains(shown), "{shown}");
    }
    assert!(!world.data().exists());
    assert_eq!(std::fs::read_dir(&temporary).expect("readable").count(), 0);
}

#[test]
fn the_examples_of_the_readme_work_as_written() {
    let readme = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md"));
    let world = World::with_sessions();
    world.ready_plan();
    std::fs::create_dir(world.path(".cagent")).expect("made");
    let database = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/docker-agent/session.db");
    std::fs::copy(database, world.path(".cagent/session.db")).expect("copied");

    let yaml = |n: usize| {
        readme.split("```yaml\n").nth(n).and_then(|rest| rest.split("```").next()).expect("an example")
    };
    world.write("agents.yaml", yaml(1));
    let examples: Vec<_> = readme
        .lines()
        .filter_map(|line| line.strip_prefix("$ "))
        // A model would be asked; the tests of `sess run` do that.
        .filter(|example| !example.starts_with("sess run"))
        // The gateway has no end; its own tests start it.
        .filter(|example| !["sess serve", "sess open", "curl"].iter().any(|word| example.starts_with(word)))
        .collect();
    assert!(examples.len() > 5, "{examples:?}");
    for example in examples {
        let mut command = Command::new("sh");
        // Following has no end.
        let script = example.replace(" --follow", "").replacen("sess", env!("CARGO_BIN_EXE_sess"), 1);
        command.args(["-c", &script]);
        world.clean(&mut command);
        let run = crate::world::Run::from(command.output().expect("sh starts"));
        assert!(run.code == 0 && !run.stdout.is_empty(), "{example}: {run:?}");
    }

    world.write("config.yaml", yaml(2));
    world.ok(["--config", "config.yaml", "list"]);
}
