//! `sess plan …`.

use serde_json::json;

use crate::world::World;

#[test]
fn a_plan_is_written_shown_reviewed_and_done() {
    let world = World::new();
    world.fails(["plan", "show"], 3, "no session has a plan yet; `sess plan write <file>` writes one");
    let path = world.data().join("session_plans/s1.md");
    let saved = world.ok_input("# Plan\n\none\n", ["plan", "write", "--session", "s1"]);
    assert_eq!(saved, format!("Plan of a new session, s1, saved as revision 1: {}\n", path.display()));
    assert_eq!(world.ok(["plan", "show"]), "# Plan\n\none\n");
    assert_eq!(
        world.json(["plan", "show"]),
        json!({
            "schema_version": 1, "path": path, "session_id": "s1", "revision": 1, "state": "draft", "bytes": 12,
            "content": "# Plan\n\none\n",
        })
    );
    world.fails(["plan", "approve"], 4, "the plan is draft, not ready for review");
    world.fails(["plan", "approve"], 4, "sess tool call exit_plan_mode --session <id>");
    world.fails(["plan", "done"], 4, "the plan is draft, not approved");

    world.ok(["tool", "call", "exit_plan_mode", "--session", "s1"]);
    world.fails(["plan", "approve", "--revision", "2"], 4, "the plan is now at revision 1, not 2");
    let back = world.ok(["plan", "request-changes", "-m", "measure first"]);
    assert_eq!(back, "Plan of session s1 is changes requested (revision 1)\n");
    world.fails(["plan", "approve"], 4, "the plan is changes_requested, not ready for review");

    world.write("two.md", "# Plan\n\nmeasure\none\n");
    let saved = world.ok(["plan", "write", "two.md"]);
    assert!(saved.starts_with("Plan of session s1, saved as revision 2: "), "{saved}");
    world.ok(["tool", "call", "exit_plan_mode", "--session", "s1"]);
    let approved = world.json(["plan", "approve", "--session", "s1", "--revision", "2"]);
    assert_eq!((&approved["state"], &approved["revision"]), (&json!("approved"), &json!(2)));
    assert_eq!(world.ok(["plan", "done"]), "Plan of session s1 is done (revision 2)\n");

    let notes: Vec<_> = world
        .ok(["events", "--json"])
        .lines()
        .filter(|line| line.contains("measure first"))
        .map(str::to_owned)
        .collect();
    assert_eq!(notes.len(), 1, "{notes:?}");
}

#[test]
fn every_revision_stays_and_differences_are_shown() {
    let world = World::new();
    for text in ["a\nb\n", "a\nc\n", "a\nc\nd"] {
        world.ok_input(text, ["plan", "write", "-", "--session", "s1"]);
    }
    let log = world.json(["plan", "log"]);
    let numbers: Vec<_> =
        log["revisions"].as_array().expect("a list").iter().map(|r| r["revision"].as_u64()).collect();
    assert_eq!(numbers, [Some(1), Some(2), Some(3)]);
    let table = world.ok(["plan", "log", "--session", "s1"]);
    assert!(table.starts_with("REVISION  BY     WHEN"), "{table}");
    assert!(table.lines().nth(1).expect("a line").starts_with("3         owner  just now  5"), "{table}");

    assert_eq!(world.ok(["plan", "show", "--revision", "1"]), "a\nb\n");
    world.fails(["plan", "show", "--revision", "9"], 3, "the plan of session s1 has no revision 9");
    assert_eq!(
        world.ok(["plan", "diff", "1", "2"]),
        "--- revision 1\n+++ revision 2\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n"
    );
    assert!(world.ok(["plan", "diff"]).starts_with("--- revision 2\n+++ revision 3\n"));
    assert!(world.ok(["plan", "diff", "1"]).contains("+d"));
    assert_eq!(
        world.ok(["plan", "diff", "0", "1"]),
        "--- revision 0\n+++ revision 1\n@@ -0,0 +1,2 @@\n+a\n+b\n"
    );
    let same = world.run(["plan", "diff", "2", "2"]);
    assert_eq!(
        (same.code, same.stdout.as_str(), same.stderr.as_str()),
        (0, "", "revisions 2 and 2 are the same\n")
    );
    assert_eq!(world.json(["plan", "diff", "1", "2"])["from"], 1);
    world.fails(["plan", "diff", "1", "9"], 3, "no revision 9");
}

#[test]
fn a_guarded_write_loses_nothing() {
    let world = World::new();
    world.ok_input("one", ["plan", "write", "--session", "s1", "--expect-revision", "0"]);
    world
        .run_input("two", ["plan", "write", "--session", "s1", "--expect-revision", "0"])
        .fails(4, "the plan is at revision 1, not 0");
    let retried = ["plan", "write", "--session", "s1", "--idempotency-key", "k"];
    for _ in 0..2 {
        assert!(world.ok_input("two", retried).contains("revision 2"));
    }
    world.run_input("three", retried).fails(4, "idempotency key \"k\" was used before for another request");
    assert_eq!(world.ok(["plan", "show"]), "two");
    world.run_input(" \n", ["plan", "write"]).fails(2, "content must not be empty");
    world
        .run_input(&"x".repeat(10 * 1024 * 1024 + 1), ["plan", "write"])
        .fails(2, "plan is too large: 10485761 bytes, the most is 10485760");
    world.fails(["plan", "write", "absent.md"], 1, "cannot read absent.md");
    std::fs::write(world.path("latin.md"), b"caf\xe9").expect("written");
    world.fails(["plan", "write", "latin.md"], 2, "the plan is not valid UTF-8");
    assert_eq!(world.ok(["plan", "show"]), "two");
}

#[test]
fn a_write_says_which_session_it_went_to() {
    let world = World::with_sessions();
    // No session has a plan: the write begins a session of its own.
    let saved = world.ok_input("mine", ["plan", "write"]);
    assert!(saved.starts_with("Plan of a new session, "), "{saved}");
    let own = world.json(["plan", "show"])["session_id"].as_str().expect("an id").to_owned();
    // Now that one is meant, by its beginning too: nobody would give a new session that name.
    let beginning = own[..8].to_owned();
    for args in [
        &["plan", "write"][..],
        &["plan", "write", "--session", "-1"],
        &["plan", "write", "--session", &beginning],
    ] {
        assert!(
            world
                .ok_input(&format!("{args:?}"), args.iter().copied())
                .starts_with(&format!("Plan of session {own}, saved")),
            "{args:?}"
        );
    }
    // A reference names an existing session, as everywhere.
    assert!(
        world
            .ok_input("x", ["plan", "write", "--session", "agent:main:chat:old"])
            .starts_with("Plan of session old, ")
    );
    assert_eq!(world.ok(["plan", "show", "--session", "-1"]), "x");
    // The beginning of a given name does not: it is a name of its own.
    assert!(
        world
            .ok_input("y", ["plan", "write", "--session", "new-sess"])
            .starts_with("Plan of a new session, new-sess, ")
    );
    world.run_input("z", ["plan", "write", "--session", "-9"]).fails(3, "session offset 9 out of range");
    world.run_input("z", ["plan", "write", "--session", "../x"]).fails(2, "invalid session ID: \"../x\"");
}

#[test]
fn edit_writes_what_the_editor_left() {
    let world = World::new();
    world.fails(["plan", "edit"], 3, "no session has a plan yet");
    world.ok_input("one\n", ["plan", "write", "--session", "s1"]);
    let edit = |editor: &str| world.run_env(&[("EDITOR", editor)], ["plan", "edit"]);
    assert!(edit("sed -i s/one/two/").stdout.starts_with("Plan of session s1, saved as revision 2: "));
    assert_eq!(world.ok(["plan", "show"]), "two\n");
    assert_eq!(edit("true").stderr, "nothing changed\n");
    edit("false").fails(1, "the editor false ended with exit status: 1; the plan is as it was");
    let visual = world.run_env(&[("EDITOR", "false"), ("VISUAL", "sed -i s/two/three/")], ["plan", "edit"]);
    assert_eq!(visual.code, 0, "{visual:?}");

    // Somebody writes while the editor is open: what was typed is kept.
    let script = world.write(
        "editor.sh",
        &format!("echo mine > \"$1\"; echo theirs | {} plan write --session s1", env!("CARGO_BIN_EXE_sess")),
    );
    let lost = edit(&format!("sh {}", script.display()));
    assert_eq!(lost.code, 4, "{lost:?}");
    let kept = lost
        .stderr
        .split("what you wrote is kept in ")
        .nth(1)
        .expect("a path")
        .lines()
        .next()
        .expect("a path");
    assert_eq!(std::fs::read_to_string(kept).expect("kept"), "mine\n");
    std::fs::remove_file(kept).expect("removed");
    assert_eq!(world.ok(["plan", "show"]), "theirs\n");
}

#[test]
fn export_copies_the_plan() {
    let world = World::new();
    world.ok_input("no newline", ["plan", "write", "--session", "s1"]);
    assert_eq!(world.ok(["plan", "export"]), "no newline");
    let run = world.run(["plan", "export", "copy.md"]);
    assert_eq!(
        (run.code, run.stdout.as_str(), run.stderr.as_str()),
        (0, "", "revision 1 of session s1 is in copy.md\n")
    );
    assert_eq!(world.read("copy.md"), "no newline");
    world.fails(["plan", "export", "/nowhere/copy.md"], 1, "cannot write /nowhere/copy.md");
}
