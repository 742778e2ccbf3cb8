//! Agents at the command line: who they are taken for, and what they may not do.

use serde_json::json;

use crate::world::{World, message, session};

const CLAUDE: (&str, &str) = ("CLAUDE_CODE_SESSION_ID", "c1");

/// What `whoami` says: `standing source:id, by evidence`.
#[track_caller]
fn check(env: &[(&str, &str)], args: &[&str], said: &str) {
    let world = World::new();
    let run = world.run_env(env, args.iter().copied().chain(["whoami", "--json"]));
    let who: serde_json::Value = serde_json::from_str(&run.stdout).expect("JSON");
    assert_eq!((run.code, &who["schema_version"]), (0, &json!(1)));
    let text = |field: &str| who[field].as_str().unwrap_or_default().to_owned();
    let found = format!("{} {}:{}, by {}", text("standing"), text("source"), text("session_id"), text("how"));
    assert_eq!(found, said);
    assert!(!world.data().exists(), "asking makes nothing");
}

#[test]
fn the_strongest_signal_says_who_is_calling() {
    let sess = ("SESS_SESSION", "s1");
    let codex = ("AGENT_SESSION_ID", "g1");
    check(&[sess], &[], "agent native:s1, by SESS_SESSION in the environment");
    check(&[sess, CLAUDE], &[], "agent claude:c1, by CLAUDE_CODE_SESSION_ID in the environment");
    check(&[codex], &[], "agent goose:g1, by AGENT_SESSION_ID in the environment");
    check(&[CLAUDE], &["--session", "codex:t1"], "agent codex:t1, by --session");
    check(&[], &["--session", "x"], "owner native:x, by --session");
    check(&[CLAUDE, sess], &["--session", "../x"], "agent :, by --session");
    check(&[("CLAUDE_CODE_SESSION_ID", "")], &["--session", "x"], "owner native:x, by --session");
}

#[test]
fn whoami_is_readable() {
    let world = World::new();
    assert!(
        world.ok(["whoami"]).starts_with("You are the owner: nothing here says that an agent is calling.\n")
    );
    let agent = world.run_env(&[CLAUDE], ["whoami"]).stdout;
    assert!(agent.contains("standing  agent\nsession   c1\nkey       agent:claude:chat:c1\n"), "{agent}");
    assert!(agent.contains("stored    not yet"), "{agent}");
    let bad = world.ok(["whoami", "--session", "../x"]);
    assert!(bad.contains("error     invalid session ID: \"../x\""), "{bad}");
}

#[test]
fn an_agent_does_not_review_change_or_export() {
    let world = World::with_sessions();
    let written =
        world.run_env(&[CLAUDE], ["tool", "call", "write_session_plan", r##"{"content":"# Mine"}"##]);
    assert_eq!(written.code, 0, "{written:?}");
    world.run_env(&[CLAUDE], ["tool", "call", "exit_plan_mode"]);
    let refused = |args: &[&str], said: &str| world.run_env(&[CLAUDE], args.iter().copied()).fails(8, said);
    for args in
        [&["plan", "approve"][..], &["plan", "request-changes"], &["plan", "approve", "--session", "c1"]]
    {
        refused(args, "a plan is reviewed by a person");
    }
    for args in [
        &["star", "-1"][..],
        &["unstar", "old"],
        &["rename", "old", "x"],
        &["archive", "old"],
        &["unarchive", "old"],
    ] {
        refused(args, "only the owner may change a session");
    }
    refused(&["export", "-1"], "only the owner may export a session");
    refused(&["export", "-1"], "hint: an agent's session was recognised here");
    assert_eq!(world.json(["plan", "show", "--session", "c1"])["state"], "ready");
    assert_eq!(world.json(["list", "--query", "About"])["sessions"][0]["title"], "About uploads");
}

#[test]
fn an_agent_works_in_its_own_session() {
    let world = World::with_sessions();
    let as_claude = |args: &[&str]| world.run_env(&[CLAUDE], args.iter().copied());
    world.write("plan.md", "# Claude's");
    assert!(as_claude(&["plan", "write", "plan.md"]).stdout.starts_with("Plan of a new session, c1, "));
    assert_eq!(as_claude(&["plan", "show"]).stdout, "# Claude's");
    assert_eq!(as_claude(&["plan", "show", "--session", "c1"]).stdout, "# Claude's");
    assert_eq!(world.json(["plan", "log"])["revisions"][0]["agent"], "claude");
    // Its own session is neither listed nor read.
    let listed = as_claude(&["list"]).stdout;
    assert!(listed.contains("new-session") && !listed.contains("c1"), "{listed}");
    as_claude(&["read", "c1"]).fails(3, "cannot read the current session; reference a different one");
    assert!(as_claude(&["read", "-1"]).stdout.starts_with("# Session new-session"));
    // The owner sees it first.
    assert!(world.ok(["read", "-1"]).starts_with("# Session c1"));
}

#[test]
fn visibility_can_be_narrowed_to_the_agents_own() {
    let world = World::with_sessions();
    let claude = session("earlier", "Claude's earlier one", &[message("user", "hello", 1)]);
    world.write("c.jsonl", &claude.replace("agent:main:", "agent:claude:").replace("\"main\"", "\"claude\""));
    world.ok(["import", "c.jsonl"]);
    let env = [CLAUDE, ("SESS_TOOLS_CONTEXT_VISIBILITY", "agent")];
    let listed = world.run_env(&env, ["list"]).stdout;
    assert!(listed.contains("earlier") && !listed.contains("new-session"), "{listed}");
    world.run_env(&env, ["read", "old"]).fails(3, "session \"old\" not found");
    assert_eq!(world.run_env(&env, ["search", "uploads", "--json"]).stdout.matches("new-session").count(), 0);
    let events = world.run_env(&env, ["events", "--json"]).stdout;
    assert!(events.contains("earlier") && !events.contains("new-session"), "{events}");
    // It does not bind the owner.
    let owner = world.run_env(&env[1..], ["list"]).stdout;
    assert!(owner.contains("new-session"), "{owner}");
}
