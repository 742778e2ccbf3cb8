//! The configuration file, the environment, and where data goes.

use crate::world::World;

#[track_caller]
fn refused(text: &str, said: &str) {
    let world = World::new();
    world.write("c.yaml", text);
    world.fails(["--config", "c.yaml", "list"], 2, said);
}

#[test]
fn a_mistake_is_named_with_its_place() {
    refused(
        "plans:\n  keep_days: 3\n  dri: x\n",
        "c.yaml:3:3: unknown key \"dri\" in plans: did you mean \"dir\"?",
    );
    refused("plan: {}\n", "c.yaml:1:1: unknown key \"plan\": did you mean \"plans\"?");
    refused("plans: {keep_days: many}\n", "c.yaml:1:20: plans.keep_days: expected a whole number, 0 or more");
    refused("plans: [\n", "c.yaml:1:8: not valid YAML: unclosed bracket '['");
    refused(
        "tools: {context: {visibility: some}}\n",
        "c.yaml:1:31: tools.context.visibility: \"some\" is not known here: expected agent or all",
    );
    let world = World::new();
    world.fails(
        ["--config", "absent.yaml", "list"],
        2,
        "cannot read the configuration absent.yaml: No such file",
    );
    world.run_env(&[("SESS_PLANS_KEEP_DAYS", "x")], ["list"]).fails(2, "SESS_PLANS_KEEP_DAYS is \"x\"");
    world
        .run_env(&[("SESS_TOOLS_CONTEXT_VISIBILITY", "x")], ["list"])
        .fails(2, "SESS_TOOLS_CONTEXT_VISIBILITY");
    world
        .run_env(&[("SESS_PLANS_ON_APPROVE", "nobody"), ("SESS_CONFIG", "a.yaml")], ["list"])
        .fails(2, "cannot read the configuration a.yaml");
    world.write("a.yaml", "agents: {root: {model: openai/x}}");
    world
        .run_env(&[("SESS_PLANS_ON_APPROVE", "nobody"), ("SESS_CONFIG", "a.yaml")], ["list"])
        .fails(2, "SESS_PLANS_ON_APPROVE: plans.on_approve: there is no agent \"nobody\": expected root");
    // What answers without it does not read it.
    world.write("c.yaml", "nonsense: 1");
    assert_eq!(world.run(["--config", "c.yaml", "completions", "bash"]).code, 0);
}

#[test]
fn plans_go_where_the_configuration_says() {
    let world = World::new();
    let written = |env: &[(&str, &str)], args: &[&str]| {
        world.write("plan.md", "# Plan");
        let run = world.run_env(
            env,
            args.iter().copied().chain(["plan", "write", "plan.md", "--session", "s1", "--json"]),
        );
        assert_eq!(run.code, 0, "{run:?}");
        let plan: serde_json::Value = serde_json::from_str(&run.stdout).expect("JSON");
        let path = plan["path"].as_str().expect("a path").to_owned();
        assert_eq!(std::fs::read_to_string(&path).expect("the plan"), "# Plan");
        path
    };
    let at = |below: &str| world.path(below).to_string_lossy().into_owned();
    assert_eq!(written(&[], &[]), at("data/session_plans/s1.md"));

    std::fs::create_dir_all(world.path(".config/intersession")).expect("made");
    world.write(".config/intersession/config.yaml", "plans:\n  dir: ~/default-plans\n");
    assert_eq!(written(&[], &[]), at("default-plans/s1.md"));
    world.write("named.yaml", "plans: {dir: relative-plans, keep_days: 0}\n");
    assert_eq!(written(&[], &["--config", "named.yaml"]), at("relative-plans/s1.md"));
    assert_eq!(written(&[("SESS_CONFIG", "named.yaml")], &[]), at("relative-plans/s1.md"));
    let env = at("env-plans");
    assert_eq!(written(&[("SESS_PLANS_DIR", &env)], &["--config", "named.yaml"]), at("env-plans/s1.md"));
    std::fs::create_dir_all(world.path("xdg/intersession")).expect("made");
    world.write("xdg/intersession/config.yaml", "");
    assert_eq!(written(&[("XDG_CONFIG_HOME", &at("xdg"))], &[]), at("data/session_plans/s1.md"));
}

#[test]
fn old_plans_are_swept_after_the_days_that_are_set() {
    let world = World::new();
    let old = |id: &str| {
        world.write("plan.md", "old");
        world.ok(["plan", "write", "plan.md", "--session", id]);
        let path = world.data().join(format!("session_plans/{id}.md"));
        let day = std::time::Duration::from_secs(86_400);
        let file = std::fs::File::options().write(true).open(&path).expect("opened");
        let then = file.metadata().expect("there").modified().expect("known") - 100 * day;
        file.set_modified(then).expect("set");
        path
    };
    // A live session keeps its plan, however old the file: activity counts, too.
    let live = old("live");
    world.ok(["tool", "call", "read_session_plan", "--session", "live"]);
    assert!(live.exists());
    // A file whose session is nobody's is swept, unless that is switched off.
    let stray = world.data().join("session_plans/stray.md");
    std::fs::rename(old("gone"), &stray).expect("renamed");
    world.run_env(
        &[("SESS_PLANS_KEEP_DAYS", "0")],
        ["tool", "call", "read_session_plan", "--session", "live"],
    );
    assert!(stray.exists());
    world.run_env(
        &[("SESS_PLANS_KEEP_DAYS", "200")],
        ["tool", "call", "read_session_plan", "--session", "live"],
    );
    assert!(stray.exists());
    world.ok(["tool", "call", "read_session_plan", "--session", "live"]);
    assert!(!stray.exists());
    // Its text is kept.
    assert_eq!(world.ok(["plan", "show", "--revision", "1", "--session", "stray"]), "old");
}

#[test]
fn data_goes_to_the_first_directory_that_is_named() {
    let world = World::new();
    world.write("plan.md", "# Plan");
    let home = |set: &[(&str, &str)], unset: &[&str]| {
        let mut command = world.command(["plan", "write", "plan.md", "--json", "--session", "s1"]);
        command.envs(set.iter().copied());
        for name in unset {
            command.env_remove(name);
        }
        let output = command.output().expect("sess starts");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr),
        )
    };
    let xdg = world.path("share").to_string_lossy().into_owned();
    assert!(
        home(&[("XDG_DATA_HOME", &xdg)], &["SESS_HOME"])
            .1
            .contains("/share/intersession/session_plans/s1.md")
    );
    assert!(home(&[], &["SESS_HOME"]).1.contains("/.local/share/intersession/session_plans/s1.md"));
    let nowhere = home(&[], &["SESS_HOME", "HOME"]);
    assert_eq!(nowhere.0, Some(2));
    assert!(nowhere.1.contains("neither SESS_HOME nor HOME is set: set one of them"), "{nowhere:?}");
}
