//! Files of agents, repositories that are trusted or not, and `sess config`.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _},
    time::{Duration, Instant},
};

use crate::world::{PATIENCE, Run, World};

/// The plan seed's example, byte for byte.
const SEED: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/session_plan.yaml"));

const AGENT: &str = "agents:\n  root:\n    model: anthropic/claude-sonnet-4-5\n";

#[test]
fn the_seeds_example_is_valid_as_it_stands() {
    let world = World::new();
    let path = world.write("agents.yaml", SEED);
    let said = world.ok(["config", "check", "agents.yaml"]);
    let expected = format!(
        "ok: {}
AGENT    MODEL                        TOOLSETS                               DESCRIPTION
root     anthropic/claude-sonnet-4-5  session_plan, filesystem, shell        Executes approved plans
planner  anthropic/claude-sonnet-4-5  session_plan, filesystem, user_prompt  Investigates and writes plans for review
",
        path.display()
    );
    assert_eq!(said, expected);
    let data = world.json(["config", "check", "agents.yaml"]);
    assert_eq!((&data["valid"], &data["agents"][1]["name"]), (&true.into(), &"planner".into()));
    assert!(!world.data().exists());
}

#[test]
fn a_broken_configuration_stops_all_but_what_helps() {
    let world = World::new();
    world.write("agents.yaml", &SEED.replace("    instruction:", "    instrution:"));
    let said = "error: agents.yaml:5:5: unknown key \"instrution\" in agents.root: did you mean \"instruction\"?\n\
                agents.yaml:23:5: unknown key \"instrution\" in agents.planner: did you mean \"instruction\"?\n";
    for command in [&["list"][..], &["config", "show"], &["whoami"], &["mcp"], &["config", "check"]] {
        let run = world.run(["--config", "agents.yaml"].iter().chain(command).copied());
        assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (2, "", said), "{command:?}");
    }
    world.fails(["config", "check", "agents.yaml"], 2, said);
    for command in [&["completions", "bash"][..], &["man"], &["config", "schema"], &["help"]] {
        let run = world.run(["--config", "agents.yaml"].iter().chain(command).copied());
        assert_eq!(run.code, 0, "{command:?}: {run:?}");
    }
    let doctor = world.run(["--config", "agents.yaml", "doctor"]);
    assert_eq!(doctor.code, 2, "{doctor:?}");
    assert!(doctor.stdout.contains("invalid  config       agents.yaml:5:5: unknown key"), "{doctor:?}");
}

#[test]
fn a_repositorys_file_counts_once_it_is_trusted_and_as_long_as_it_stays() {
    let world = World::new();
    let notice = |run: &Run| {
        assert_eq!(run.code, 0, "{run:?}");
        let notices: Vec<&str> = run.stderr.lines().filter(|line| line.starts_with("notice:")).collect();
        notices.join("\n")
    };
    let agents = || world.json(["config", "check"])["agents"].as_array().expect("a list").len();
    world.write("sess.yaml", AGENT);
    let unknown = "notice: ./sess.yaml is ignored: `sess config trust` makes it count, once you have read it";
    assert_eq!(notice(&world.run(["list"])), unknown);
    assert_eq!(agents(), 0);

    let path = world.path("sess.yaml").canonicalize().expect("there").display().to_string();
    let trusted = format!("{path} is trusted as it is now. When it changes, it is ignored again.\n");
    assert_eq!(world.ok(["config", "trust"]), trusted);
    assert_eq!((notice(&world.run(["list"])).as_str(), agents()), ("", 1));
    let record = world.data().join("trusted.json");
    assert_eq!(record.metadata().expect("there").permissions().mode() & 0o777, 0o600);

    world.write("sess.yaml", &format!("{AGENT}    description: changed\n"));
    let changed = "notice: ./sess.yaml is ignored: it has changed since you trusted it; `sess config trust` makes it \
                   count again";
    assert_eq!((notice(&world.run(["list"])).as_str(), agents()), (changed, 0));
    // A copy elsewhere is not trusted by it.
    fs::create_dir(world.path("copy")).expect("made");
    world.write("copy/sess.yaml", AGENT);
    let mut command = world.command(["list"]);
    command.current_dir(world.path("copy"));
    assert_eq!(notice(&command.output().expect("sess starts").into()), unknown);

    world.ok(["config", "trust", "."]);
    assert_eq!(agents(), 1);
    // The person's own file lies below it; a file that is named counts alone.
    fs::create_dir_all(world.path(".config/intersession")).expect("made");
    world.write(
        ".config/intersession/config.yaml",
        "agents: {one: {model: openai/x}, two: {model: openai/x}}\nplans: {keep_days: 5}",
    );
    let values = world.json(["config", "show"])["values"].to_string();
    assert!(
        values.contains(r#"{"key":"agents.root.description","value":"changed","from":"sess.yaml:4:18"}"#),
        "{values}"
    );
    assert!(
        values.contains(r#""key":"plans.keep_days","value":5"#) && !values.contains("agents.two"),
        "{values}"
    );
    world.write("named.yaml", "plans: {}");
    assert_eq!(world.json(["--config", "named.yaml", "config", "check"])["agents"], serde_json::json!([]));

    assert_eq!(world.ok(["config", "trust", "--remove"]), format!("{path} is not trusted any more.\n"));
    assert_eq!(world.ok(["config", "trust", "--remove"]), format!("{path} was not trusted.\n"));
    assert_eq!(notice(&world.run(["list"])), unknown);
}

#[test]
fn a_repository_cannot_set_what_is_the_persons() {
    let world = World::new();
    for (text, said) in [
        (
            "permissions: {allow: ['*']}",
            "sess.yaml:4:1: permissions cannot be set by a repository: set it in your own configuration",
        ),
        ("store: x", "sess.yaml:4:1: store cannot be set by a repository: set it in your own configuration"),
        (
            "gateway: {}",
            "sess.yaml:4:1: gateway cannot be set by a repository: set it in your own configuration",
        ),
        (
            "tools: {context: {visibility: all}}",
            "sess.yaml:4:19: tools.context.visibility cannot be set by a repository: set it in your own configuration",
        ),
        (
            "models: {m: {provider: openai, model: x, base_url: 'https://evil.example'}}",
            "sess.yaml:4:42: models.m.base_url cannot be set by a repository: set it in your own configuration",
        ),
        ("models: {m: {provider: openai}}", "sess.yaml:4:13: models.m: the key \"model\" is missing"),
    ] {
        world.write("sess.yaml", &format!("{AGENT}{text}\n"));
        world.fails(["config", "trust"], 2, said);
        // The same file is fine when the person names it, as far as these keys go.
        assert!(!world.run(["config", "check", "sess.yaml"]).stderr.contains("repository"), "{text}");
        // However it came to be trusted.
        world.write("sess.yaml", AGENT);
        world.ok(["config", "trust"]);
        let record = world.read("data/trusted.json");
        world.write("sess.yaml", &format!("{AGENT}{text}\n"));
        let sum =
            std::process::Command::new("sha256sum").arg(world.path("sess.yaml")).output().expect("starts");
        let sum = String::from_utf8(sum.stdout).expect("text");
        let old = record.split("\"sha256\": \"").nth(1).and_then(|rest| rest.get(..64)).expect("a hash");
        world.write("data/trusted.json", &record.replace(old, &sum[..64]));
        world.fails(["list"], 2, said);
    }
    world.write("sess.yaml", AGENT);
    let run = world.run_env(&[("CLAUDE_CODE_SESSION_ID", "c1")], ["config", "trust"]);
    run.fails(8, "a repository is trusted by a person: an agent cannot do that");
    world.fails(["config", "trust", "other.yaml"], 2, "only a sess.yaml needs trust, other.yaml does not");
    world.fails(["config", "trust", "absent/sess.yaml"], 1, "cannot find absent");
}

#[test]
fn an_untrusted_file_cannot_stop_anything() {
    let world = World::new();
    let notice = |said: &str| {
        let run = world.run(["list"]);
        assert!(run.code == 0 && run.stderr.contains(said), "{said}: {run:?}");
    };
    world.write("sess.yaml", "nonsense: [");
    notice("./sess.yaml is ignored: `sess config trust`");
    fs::remove_file(world.path("sess.yaml")).expect("removed");
    let made = std::process::Command::new("mkfifo").arg(world.path("sess.yaml")).status().expect("starts");
    assert!(made.success());
    notice("it is not a regular file");
    fs::remove_file(world.path("sess.yaml")).expect("removed");
    fs::create_dir(world.path("sess.yaml")).expect("made");
    notice("it is not a regular file");
    fs::remove_dir(world.path("sess.yaml")).expect("removed");
    std::os::unix::fs::symlink("nowhere", world.path("sess.yaml")).expect("linked");
    notice("No such file");
    fs::remove_file(world.path("sess.yaml")).expect("removed");
    world.write("sess.yaml", AGENT);
    fs::create_dir_all(world.data()).expect("made");
    world.write("data/trusted.json", "damaged");
    notice("trusted.json");
}

#[test]
fn what_would_take_long_to_read_is_refused_at_once() {
    let world = World::new();
    let letters: Vec<char> = ('a'..='m').collect();
    let laughs: String = letters
        .windows(2)
        .map(|pair| format!("{1}: &{1} [{0}]\n", vec![format!("*{}", pair[0]); 9].join(","), pair[1]))
        .collect();
    let too_much = "the file has too many values, or goes too deep, when its aliases are followed";
    let files: [(&str, Vec<u8>, &str); 9] = [
        ("laughs", format!("a: &a [x,x,x,x,x,x,x,x,x]\n{laughs}").into(), too_much),
        ("deep-flow", format!("a: {}", "[".repeat(100_000)).into(), too_much),
        ("deep-block", (0..400).map(|n| "  ".repeat(n) + "a:\n").collect::<String>().into(), too_much),
        ("many", (0..60_000).map(|n| format!("k{n}: 1\n")).collect::<String>().into(), too_much),
        ("itself", "a: &a {b: *a}\n".into(), "not valid YAML: recursive references"),
        (
            "merges",
            format!("a: &a {{b: 1}}\nc: {{<<: [{}]}}\n", vec!["*a"; 20_000].join(",")).into(),
            too_much,
        ),
        (
            "huge",
            format!("plans: {{dir: '{}'}}", "x".repeat(10_000_000)).into(),
            "the file is too large: the most is 1048576 bytes",
        ),
        ("latin", b"plans:\n  dir: caf\xe9\n".into(), "latin.yaml:2:11: the file is not UTF-8 text"),
        ("zero", b"plans:\0".into(), "the file is not text: it has a zero byte"),
    ];
    for (name, bytes, said) in files {
        let file = format!("{name}.yaml");
        fs::write(world.path(&file), bytes).expect("written");
        let started = Instant::now();
        world.fails(["config", "check", &file], 2, said);
        // An aliased bomb would take the age of the universe.
        assert!(started.elapsed() < PATIENCE.min(Duration::from_secs(20)), "{name}");
    }
}

#[test]
fn a_variable_that_cannot_be_read_is_not_passed_over() {
    let world = World::new();
    for name in ["SESS_HOME", "SESS_CONFIG", "SESS_PLANS_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "HOME"] {
        let mut command = world.command(["list"]);
        command.env(name, OsStr::from_bytes(b"/caf\xe9"));
        let run = Run::from(command.output().expect("sess starts"));
        run.fails(2, &format!("the environment variable {name} is not UTF-8 text"));
    }
    let mut command = world.command(["list"]);
    command.env("ANYTHING", OsStr::from_bytes(b"\xe9"));
    assert_eq!(Run::from(command.output().expect("sess starts")).code, 0);
}

#[test]
fn what_is_shown_has_its_origin_and_no_secrets() {
    let world = World::new();
    // In two parts, so that no scanner takes this file for a leak.
    let secret = ["gh", "p_aB3dE5gH7jK9mN1pQ3rS5tU7vW9xY1zA3bC5"].concat();
    world.write(
        "c.yaml",
        &format!(
            "agents:
  root:
    model: openai/x
    toolsets:
    - {{type: mcp, url: 'https://mcp.example', headers: {{Authorization: Bearer {secret}}}}}
    - {{type: mcp, command: server, env: {{API_KEY: {secret}}}, args: [--token={secret}]}}
"
        ),
    );
    let args = ["--config", "c.yaml", "config", "show"];
    let shown = world.run_env(&[("SESS_PLANS_KEEP_DAYS", "9")], args).stdout;
    assert!(shown.contains("SESS_PLANS_KEEP_DAYS") && shown.contains("c.yaml:3:12"), "{shown}");
    assert!(shown.contains("default") && !shown.contains(&secret), "{shown}");
    assert!(!world.json(args).to_string().contains(&secret));
    assert!(world.ok(args.into_iter().chain(["--no-redact"])).contains(&secret));
    let agent = world.run_env(&[("CLAUDE_CODE_SESSION_ID", "c1")], args.into_iter().chain(["--no-redact"]));
    assert!(agent.code == 0 && !agent.stdout.contains(&secret), "{agent:?}");
}

#[test]
fn the_committed_schema_is_what_the_command_prints() {
    let committed = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/config.schema.json"));
    let printed = World::new().ok(["config", "schema"]);
    assert!(committed == printed, "`just schema` writes docs/config.schema.json anew");
}

#[test]
fn the_examples_of_the_documentation_are_valid_and_name_every_key() {
    let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md"));
    let world = World::new();
    let examples: Vec<&str> =
        page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(examples.len() > 3);
    for example in &examples {
        world.write("example.yaml", example);
        let run = world.run(["config", "check", "example.yaml"]);
        assert_eq!(run.code, 0, "{example}\n{run:?}");
    }
    let schema: serde_json::Value = serde_json::from_str(&world.ok(["config", "schema"])).expect("JSON");
    let mut keys = Vec::new();
    property_names(&schema, &mut keys);
    assert!(keys.len() > 40);
    for key in keys {
        assert!(page.contains(&format!("`{key}`")), "{key} is not described");
    }
}

fn property_names(schema: &serde_json::Value, keys: &mut Vec<String>) {
    match schema {
        serde_json::Value::Object(fields) => {
            for (name, below) in fields {
                if name == "properties" {
                    keys.extend(below.as_object().into_iter().flat_map(|keys| keys.keys().cloned()));
                }
                property_names(below, keys);
            }
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| property_names(item, keys)),
        _ => {}
    }
}
