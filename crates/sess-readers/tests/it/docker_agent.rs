//! What docker-agent's sample does not show.

use std::{fs, path::Path};

use rusqlite::Connection;
use sess_readers::{Catalogue, Homes};

use crate::{
    databases::{changed, read_only},
    homes::{copy, list},
};

#[test]
fn sessions_in_the_column_of_older_versions_are_read_with_those_inside() {
    let home = copy("docker-agent");
    let path = home.path().join(".cagent/session.db");
    fs::remove_file(&path).expect("removed");
    let database = Connection::open(&path).expect("made");
    let sql = r#"
        CREATE TABLE sessions (id TEXT PRIMARY KEY, messages TEXT, created_at TEXT, title TEXT);
        INSERT INTO sessions VALUES ('one', '[
            {"message":{"agentName":"root","message":{"role":"user","content":"hello","multi_content":[
                {"type":"text","text":"hello"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}],
                "created_at":"2026-01-02T03:04:06Z"}}},
            {"message":{"implicit":true,"message":{"role":"user","content":"go on"}}},
            {"sub_session":{"id":"sub","title":"Sub","created_at":"2026-01-02T03:04:07Z","messages":[
                {"message":{"message":{"role":"user","content":"inner"}}},
                {"sub_session":{"id":"","messages":[{"message":{"message":{"role":"user","content":"deep"}}}]}}]}},
            {"summary":"all good"},
            {"role":"tool","content":"","tool_call_id":"c1"},
            {"nothing":1}]', '2026-01-02T03:04:05Z', 'Old');
        INSERT INTO sessions VALUES ('two', NULL, '2026-01-01T00:00:00Z', 'Empty');
        INSERT INTO sessions VALUES ('three', '[{', '2026-01-01T00:00:00Z', 'Damaged');
    "#;
    database.execute_batch(sql).expect("filled");
    drop(database);
    let text = read_only(home.path());
    let sub = "=== docker-agent:sub
title: Sub
cwd: 
branch: 
created: 2026-01-02T03:04:07Z
updated: 2026-01-02T03:04:07Z
parent: one ()

--- - 2026-01-02T03:04:07Z
## user
inner
--- - 2026-01-02T03:04:07Z
sub-session sub.1
--- Told { bad: 0, unknown: 0, is_torn: false }
";
    assert!(text.contains(sub), "{text}");
    let one = "--- - 2026-01-02T03:04:06Z
## user
hello
[image: image/png, 3 B]
--- - 2026-01-02T03:04:06Z
sub-session sub
--- - 2026-01-02T03:04:06Z
[context compacted here]
--- - 2026-01-02T03:04:06Z
ToolResult: nothing to show
--- Told { bad: 1, unknown: 0, is_torn: false }
";
    assert!(text.contains(one), "{text}");
    assert!(text.contains("=== docker-agent:sub.1") && text.contains("## user\ndeep"), "{text}");
    assert_eq!(text.matches("Told { bad: 1,").count(), 2, "{text}");
    assert!(text.contains("title: Damaged") && text.contains("title: Empty"), "{text}");
}

#[test]
fn unknown_items_are_counted_and_errors_are_notes() {
    let sql = "INSERT INTO session_items (session_id, position, item_type, message_json)
        SELECT id, 9, 'error', '{\"message\":\"no money\"}' FROM sessions WHERE parent_id IS NULL;
        INSERT INTO session_items (session_id, position, item_type)
        SELECT id, 10, 'hologram' FROM sessions WHERE parent_id IS NULL;
        UPDATE session_items SET agent_name = 'helper' WHERE position = 0;";
    let text = changed("docker-agent", sql);
    assert!(text.contains("System: nothing to show\n--- Told { bad: 0, unknown: 1,"), "{text}");
    assert!(text.contains("parent: 3a1f9c52-8f1e-4c0a-9b1a-6f2d5b7c8e90 (helper)"), "{text}");
}

#[test]
fn a_database_in_the_current_directory_is_read_when_it_is_one_of_these() {
    let home = copy("docker-agent");
    let (known, here) = (home.path().join(".cagent/session.db"), home.path().join("acme-api"));
    fs::create_dir(&here).expect("made");
    fs::rename(&known, here.join("session.db")).expect("moved");
    assert_eq!(list(home.path()).0.len(), 2);
    fs::write(here.join("session.db"), "of something else").expect("written");
    let (sessions, problems) = list(home.path());
    assert!(sessions.is_empty() && problems.is_empty(), "{problems:?}");
}

#[test]
fn a_damaged_database_is_told_of_once_where_it_is_in_the_current_directory_too() {
    let home = copy("docker-agent");
    let path = home.path().join(".cagent/session.db");
    fs::write(&path, [&fs::read(&path).expect("read")[..], b"0"].concat()).expect("written");
    let homes = Homes::new(home.path().to_owned(), [], path.parent().map(Path::to_owned));
    let look = Catalogue::default().look(&homes, None);
    assert_eq!((look.sessions.len(), look.problems.len()), (2, 1), "{:?}", look.problems);
}
