//! `sess snapshot`, and what `sess doctor` says of agents that delete their sessions.

use std::{
    fs::{self, File},
    path::Path,
    time::{Duration, SystemTime},
};

use serde_json::Value;

use crate::world::World;

const ID: &str = "5b0c1f62-6c0e-4a8e-9d53-2f1f0f6a1c01";

/// A world in which Claude Code was used; its newest file changed this many days ago.
fn world(days: u64) -> World {
    let world = World::new();
    let project = world.path(".claude/projects/-w");
    fs::create_dir_all(&project).expect("made");
    let line = |uuid: &str, text: &str| {
        format!(
            "{{\"type\":\"user\",\"uuid\":\"{uuid}\",\"parentUuid\":null,\"sessionId\":\"{ID}\",\"cwd\":\"/w\",\
             \"timestamp\":\"2026-11-10T09:00:00Z\",\"message\":{{\"role\":\"user\",\"content\":\"{text}\"}}}}\n"
        )
    };
    fs::write(
        project.join(format!("{ID}.jsonl")),
        line("u1", "Rotate the key ghp_16C7e42F292c6912E7710c838347Ae178B4a"),
    )
    .expect("written");
    age(&project.join(format!("{ID}.jsonl")), days);
    world
}

#[expect(clippy::disallowed_methods, reason = "the age of a file is told by the clock")]
fn age(path: &Path, days: u64) {
    let at = SystemTime::now() - Duration::from_secs(days * 86_400);
    File::options().write(true).open(path).and_then(|file| file.set_modified(at)).expect("touched");
}

fn check(world: &World, name: &str) -> Value {
    let doctor = world.json(["doctor"]);
    let checks = doctor["checks"].as_array().expect("checks");
    checks.iter().find(|check| check["name"] == name).cloned().unwrap_or_default()
}

#[test]
fn the_summary_and_the_list_say_which_snapshots_are_sub_agents() {
    let world = world(1);
    let below = world.path(format!(".claude/projects/-w/{ID}/subagents"));
    fs::create_dir_all(&below).expect("made");
    let line = format!(
        "{{\"type\":\"user\",\"uuid\":\"s1\",\"parentUuid\":null,\"isSidechain\":true,\"agentId\":\"a1\",\
         \"sessionId\":\"{ID}\",\"cwd\":\"/w\",\"timestamp\":\"2026-11-10T09:00:01Z\",\
         \"message\":{{\"role\":\"user\",\"content\":\"Look around.\"}}}}\n"
    );
    fs::write(below.join("agent-a1.jsonl"), line).expect("written");
    let said = world.ok(["snapshot"]);
    assert!(said.contains(" 2 snapshots (1 of a sub-agent) in "), "{said}");
    let listed = world.run(["snapshot", "list"]);
    assert_eq!(listed.stdout.matches("claude:").count(), 1, "{listed:?}");
    assert!(
        listed.stderr.contains("1 more of a sub-agent goes with its session; --json lists it"),
        "{listed:?}"
    );
}

#[test]
fn a_session_that_was_copied_outlives_its_original() {
    let world = world(1);
    let said = world.run(["snapshot"]);
    assert!(said.code == 0 && said.stdout.starts_with("1 new, 0 grown, 0 unchanged; "), "{said:?}");
    assert!(world.ok(["snapshot"]).starts_with("0 new, 0 grown, 1 unchanged; 0 B written, 1 snapshot in "));
    assert!(world.ok(["snapshot", "list"]).contains("there"));
    let resume = world.json(["handoff", ID])["resume"].to_string();
    assert!(resume.contains(&format!("claude --resume {ID}")), "{resume}");
    fs::remove_dir_all(world.path(".claude")).expect("deleted");
    assert_eq!(world.json(["handoff", ID]).get("resume"), None, "its agent does not have it");
    let rows = world.json(["snapshot", "list"]);
    assert_eq!(rows["snapshots"][0]["is_original_gone"], true, "{rows}");
    assert_eq!(world.json(["list"])["sessions"][0]["id"], format!("claude:{ID}"));
    // Masked on its way out, as everything.
    let read = world.ok(["read", "5b0c1f62"]);
    assert!(read.contains("Rotate the key") && !read.contains("ghp_16C7"), "{read}");
    assert!(!world.ok(["list"]).contains("ghp_16C7") && !world.ok(["snapshot", "list"]).contains("ghp_16C7"));
    assert!(world.ok(["search", "rotate"]).contains("Rotate the key"));
    let forgotten = world.run(["snapshot", "forget", ID]);
    assert!(forgotten.stdout.contains(&format!("forgot the snapshot of claude:{ID}")), "{forgotten:?}");
    assert!(forgotten.stderr.contains(&format!("that was the last copy of claude:{ID}: ")), "{forgotten:?}");
    world.fails(["read", "5b0c1f62"], 3, "not found");
    world.fails(["snapshot", "forget", ID], 3, "there is no snapshot of");
    world.fails(["snapshot", "--source", "nobody"], 2, "unknown source");
}

#[test]
fn the_beginning_of_an_id_names_the_session_that_a_command_acts_in() {
    let world = world(1);
    let part = ["--session", "claude:5b0c1f62"];
    let with = |command: &[&'static str]| world.ok(command.iter().copied().chain(part));
    assert!(with(&["whoami"]).contains(&format!("session   {ID}\n")));
    assert_eq!(with(&["tool", "call", "list_sessions"]).trim(), "[]", "it does not list itself");
    let compacted = world.run(["tool", "call", "read_compacted"].into_iter().chain(part));
    assert!(compacted.stderr.contains("this session was not compacted"), "{compacted:?}");
    assert_eq!(world.json(["runs"].into_iter().chain(part))["runs"], serde_json::json!([]));
    world.fails(["runs", "--session", "claude:brand-new"], 3, "not found");
    // A name that is no beginning of one is a new session's.
    assert!(world.ok(["whoami", "--session", "claude:brand-new"]).contains("session   brand-new\n"));
}

#[test]
fn doctor_says_who_deletes_what_and_when_and_whether_a_snapshot_has_it() {
    let world = world(25);
    let said = check(&world, "claude");
    let detail = said["detail"].as_str().expect("a detail");
    assert_eq!(said["outcome"], "warning", "{said}");
    for part in [
        "1 session; it deletes those whose files did not change for 30 days (cleanupPeriodDays in ",
        ".claude/settings.json is not set)",
        "; 1 may go within 7 days, 1 without a snapshot: `sess snapshot` takes them",
        "; to keep all, write \"cleanupPeriodDays\": 36500 there",
    ] {
        assert!(detail.contains(part), "{detail}");
    }
    world.ok(["snapshot"]);
    let said = check(&world, "claude");
    assert_eq!(said["outcome"], "ok");
    assert!(
        said["detail"].as_str().expect("a detail").contains("1 may go within 7 days, all with a snapshot")
    );
    world.write(".claude/settings.json", r#"{"cleanupPeriodDays": 36500}"#);
    let said = check(&world, "claude").to_string();
    assert!(
        said.contains("for 36500 days") && said.contains("is 36500)") && !said.contains("may go"),
        "{said}"
    );
    assert!(!said.contains("to keep all"), "what is advised is done already: {said}");
    world.write(".claude/settings.json", r#"{"cleanupPeriodDays": 0}"#);
    let said = check(&world, "claude");
    let detail = said["detail"].as_str().expect("a detail");
    assert_eq!(said["outcome"], "warning", "{said}");
    for part in [
        "1 session; it deletes none at present: ",
        ".claude/settings.json is invalid for it (cleanupPeriodDays is 0, and has to be a whole number above 0), so \
         nothing in that file is in effect, the hook of `sess install claude` neither, and its cleanup is paused",
        "; mend it, and to keep all, write \"cleanupPeriodDays\": 36500 there",
    ] {
        assert!(detail.contains(part), "{detail}");
    }
    fs::remove_dir_all(world.path(".claude/projects")).expect("deleted");
    assert!(check(&world, "claude").to_string().contains("0 sessions; "), "{said}");
    assert!(check(&world, "claude").to_string().contains("1 more in snapshots alone"), "{said}");
    assert_eq!(check(&world, "codex"), Value::Null, "it was not used here");
}

#[test]
fn what_cannot_be_read_is_a_notice_and_said_once() {
    let world = world(1);
    world.ok(["snapshot"]);
    let project = world.path(".claude/projects/-w");
    let path = project.join(format!("{ID}.jsonl"));
    let content = fs::read_to_string(&path).expect("read");
    fs::write(&path, format!("{content}{{\"torn\n{}", content.replace("u1", "u2"))).expect("written");
    for command in [&["list"][..], &["read", ID]] {
        let said = world.run(command.iter().copied());
        assert_eq!(said.stderr.matches("cannot be read").count(), 1, "{said:?}");
        assert!(said.code == 0 && said.stderr.starts_with("notice: "), "{said:?}");
    }
    let garbage = project.join("00000000-0000-4000-8000-00000000000b.jsonl");
    fs::write(&garbage, "not\njson\n").expect("written");
    let said = world.run(["search", "rotate"]);
    let expected = format!(
        "notice: claude: {} is not in a format that is known here: no line of it is a record; what is in it is left out\n",
        garbage.display()
    );
    assert_eq!(said.stderr, expected, "{said:?}");
    fs::remove_file(garbage).expect("removed");
    fs::write(world.data().join("snapshots/claude").join(format!("{ID}.json")), "{").expect("damaged");
    let said = world.run(["snapshot", "list"]);
    assert_eq!(said.stderr.matches(".json is not in a format").count(), 1, "{said:?}");
}

#[test]
fn doctor_names_every_file_of_an_agent_that_cannot_be_read_and_reading_another_session_none() {
    let world = world(1);
    let bad = [
        (".claude/projects/-w/bad-1.jsonl", "claude"),
        (".claude/projects/-w/bad-2.jsonl", "claude"),
        (".local/share/goose/sessions/sessions.db", "goose"),
        (".local/share/opencode/opencode.db", "opencode"),
        (".local/share/zed/threads/threads.db", "zed"),
        (".config/Cursor/User/globalStorage/state.vscdb", "cursor"),
        (".crush/crush.db", "crush"),
        (".cagent/session.db", "docker-agent"),
        (".openclaw/agents/main/agent/openclaw-agent.sqlite", "openclaw"),
        (".local/share/amp/threads/T-1.json", "amp"),
    ];
    for (path, _) in bad {
        let path = world.path(path);
        fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        fs::write(path, "\u{1}no such thing\n".repeat(100)).expect("written");
    }
    let doctor = world.run(["doctor"]);
    assert_eq!((doctor.code, &*doctor.stderr), (0, ""), "{doctor:?}");
    for (path, agent) in bad {
        let is_named = |line: &str| line.starts_with(&format!("warning  {agent} ")) && line.contains(path);
        assert!(doctor.stdout.lines().any(is_named), "{path}: {doctor:?}");
    }
    let list = world.run(["list"]);
    assert!(list.code == 0 && list.stdout.contains(ID), "{list:?}");
    assert_eq!(list.stderr.matches("notice").count(), 1, "{list:?}");
    assert!(
        list.stderr.contains("claude, 2 files, the first: ") && list.stderr.contains("sessions.db"),
        "{list:?}"
    );
    assert_eq!(world.run(["read", "5b0c1f62", "--no-redact"]).stderr, "");
    let missed = world.run(["read", "claude:bad-00001"]);
    assert!(missed.code == 3 && missed.stderr.matches("notice").count() == 1, "{missed:?}");
}

#[test]
fn a_command_does_not_go_to_a_directory_whose_name_is_masked() {
    let world = world(1);
    let secret = "ghp_16C7e42F292c6912E7710c838347Ae178B4b";
    let file = world.path(format!(".claude/projects/-w/{ID}.jsonl"));
    let text = fs::read_to_string(&file).expect("readable");
    fs::write(&file, text.replace("\"/w\"", &format!("\"/w/{secret}\""))).expect("written");
    for args in [&["list", "--json"][..], &["handoff", ID, "--json"], &["search", "rotate", "--json"]] {
        let run = world.run(args.iter().copied());
        assert!(run.code == 0 && run.stdout.contains("/w/ghp_") && !run.stdout.contains(secret), "{run:?}");
    }
    let run = world.run(["handoff", ID, "--to", "codex"]);
    assert!(run.stdout.starts_with("codex ") && run.stderr.contains("--no-redact shows it"), "{run:?}");
    let run = world.run(["handoff", ID, "--to", "codex", "--no-redact"]);
    assert!(run.stdout.starts_with(&format!("cd /w/{secret} && codex ")), "{run:?}");
}

#[test]
fn a_command_does_not_go_to_a_directory_that_a_line_cannot_name() {
    for odd in [r"/w/a\nb", "-rf"] {
        let world = world(1);
        let file = world.path(format!(".claude/projects/-w/{ID}.jsonl"));
        let text = fs::read_to_string(&file).expect("readable");
        fs::write(&file, text.replace("\"/w\"", &format!("\"{odd}\""))).expect("written");
        let run = world.run(["handoff", ID, "--to", "codex"]);
        assert!(
            run.stdout.starts_with("codex ") && run.stderr.contains("cannot be written in a line"),
            "{run:?}"
        );
    }
}

#[test]
fn doctor_says_that_amp_has_its_threads_elsewhere() {
    let world = World::new();
    let thread = r#"{"id":"T-1","created":1794200000000,"messages":[
        {"role":"user","content":[{"type":"text","text":"hello"}]}]}"#;
    fs::create_dir_all(world.path(".local/share/amp/threads")).expect("made");
    world.write(".local/share/amp/threads/T-1.json", thread);
    let said = check(&world, "amp");
    let detail = "1 session; it keeps threads on its server, and what is here is what older releases left";
    assert_eq!((&said["outcome"], &said["detail"]), (&"ok".into(), &detail.into()), "{said}");
}

#[test]
fn doctor_says_that_openclaw_archives_what_was_said() {
    let world = World::new();
    let dir = ".openclaw/agents/main/sessions";
    fs::create_dir_all(world.path(dir)).expect("made");
    let lines = r#"{"type":"session","id":"s1","cwd":"/w","timestamp":"2026-11-10T09:00:00Z"}
{"type":"message","id":"m1","parentId":null,"timestamp":"2026-11-10T09:00:01Z","message":{"role":"user","content":[{"type":"text","text":"hello"}]}}
"#;
    world.write(&format!("{dir}/s1.jsonl"), lines);
    world.write(&format!("{dir}/sessions.json"), r#"{"agent:main:main":{"sessionId":"s1"}}"#);
    world.write(".openclaw/openclaw.json", "{session: {maintenance: {pruneAfter: '14d'}}} // mine");
    let said = check(&world, "openclaw");
    let detail = said["detail"].as_str().expect("a detail");
    assert_eq!(said["outcome"], "ok", "{said}");
    assert!(detail.contains("it archives those that were not used for a while"), "{detail}");
    assert!(detail.contains(".openclaw/openclaw.json is 14d)") && !detail.contains("may go"), "{detail}");
    world.write(".openclaw/openclaw.json", "session:");
    let said = check(&world, "openclaw").to_string();
    assert!(said.contains("whether it deletes them is not known: ") && said.contains("warning"), "{said}");
}

#[test]
fn a_snapshot_that_keeps_former_words_says_so() {
    let world = world(1);
    world.ok(["snapshot"]);
    let file = world.path(format!(".claude/projects/-w/{ID}.jsonl"));
    let text = fs::read_to_string(&file).expect("readable");
    fs::write(&file, text.replace("Rotate the key", "Rotate")).expect("written");
    let said = world.run(["snapshot"]);
    let told = format!(
        "claude:{ID}: its original lacks 1 entry that the snapshot keeps, and says 1 of them in other words"
    );
    assert!(said.stderr.contains(&told), "{said:?}");
    assert!(said.stdout.starts_with("0 new, 0 grown, 0 unchanged, 1 fuller than the original; "), "{said:?}");
    let kept = world.ok(["read", ID, "--snapshot"]);
    assert!(kept.contains("Rotate the key") && kept.contains("Rotate ghp_"), "{kept}");
}
