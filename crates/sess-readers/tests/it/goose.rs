//! What goose's sample does not show.

use std::fs;

use crate::{
    databases::{changed, read_only},
    homes::{copy, list},
};

#[test]
fn contents_of_older_and_newer_versions_are_read() {
    let sql = r#"
        DELETE FROM sessions WHERE session_type = 'sub_agent';
        UPDATE messages SET metadata_json = NULL;
        INSERT INTO messages (session_id, role, content_json, created_timestamp) VALUES
            ('20261112_3', 'user', '[{"type":"toolResponse","id":"old","toolResult":{"status":"success","value":[
                {"type":"text","text":"for both"},
                {"type":"text","text":"for both","annotations":{"audience":["user"]}}]}}]', 1794470600),
            ('20261112_3', 'user', '[{"type":"toolResponse","id":"bad","toolResult":{"status":"error","error":"no such tool"}}]', 1794470601),
            ('20261112_3', 'user', '[{"type":"text","text":"see"},{"type":"image","data":"AAAA","mimeType":"image/png"},{"type":"hologram"}]', 1794470602),
            ('20261112_3', 'assistant', '[{"type":"toolRequest","id":"x","toolCall":{"status":"error","error":"bad call"}},
                {"type":"redactedThinking","data":"x"},{"type":"actionRequired","data":{}}]', 1794470603),
            ('20261112_3', 'robot', '[]', 1794470604);
    "#;
    let text = changed("goose", sql);
    let end = text.split("msg_5").nth(1).expect("told");
    let expected = " 2026-11-12T08:01:40Z
## user
[compaction summary] deploy.sh lacks set -e
--- 6 2026-11-12T08:03:20Z
## tool result
for both
--- 7 2026-11-12T08:03:21Z
## tool result
no such tool
--- 8 2026-11-12T08:03:22Z
## user
see
[image: image/png, 3 B]
--- 9 2026-11-12T08:03:23Z
## assistant
[error: bad call]
--- Told { bad: 0, unknown: 2, is_torn: false }

";
    assert_eq!(end, expected);
}

#[test]
fn notes_for_the_model_alone_are_hidden_and_are_no_compactions() {
    let sql = r#"INSERT INTO messages (session_id, role, content_json, created_timestamp, metadata_json) VALUES
        ('20261112_3', 'assistant', '[{"type":"text","text":"continue"}]', 1794470500, '{"userVisible":false}'),
        ('20261112_3', 'user', '[{"type":"text","text":"thanks"}]', 1794470600, '{}'),
        ('20261112_3', 'user', '[{"type":"text","text":"a note"}]', 1794470601, '{"userVisible":false}')"#;
    let text = changed("goose", sql);
    assert_eq!(text.matches("[context compacted here]").count(), 1, "{text}");
    assert!(text.contains("thanks") && !text.contains("a note") && !text.contains("continue"), "{text}");
}

#[test]
fn files_of_older_versions_are_read_where_the_database_has_them_not() {
    let home = copy("goose");
    let dir = home.path().join(".local/share/goose/sessions");
    let old = "{\"working_dir\":\"/w\",\"description\":\"Old one\",\"message_count\":2}\n\
        {\"role\":\"user\",\"created\":1750000000,\"content\":[{\"type\":\"text\",\"text\":\"hello\"}]}\n\
        {\"role\":\"user\"\n\
        {\"id\":\"m2\",\"role\":\"assistant\",\"created\":1750000060,\"content\":[{\"type\":\"text\",\"text\":\"hi\"}]}\n\
        {\"role\":\"assi";
    fs::write(dir.join("20250615_150640.jsonl"), old).expect("written");
    fs::write(dir.join("20261112_3.jsonl"), old).expect("written");
    fs::write(dir.join("empty.jsonl"), "").expect("written");
    fs::write(dir.join("header.jsonl"), "{\"working_dir\":\"/w\"}\n").expect("written");
    let (sessions, problems) = list(home.path());
    let ids: Vec<_> = sessions.iter().map(|session| session.id.as_str()).collect();
    assert_eq!(ids, ["20261112_3", "20261112_4", "20250615_150640"], "{problems:?}");
    let text = read_only(home.path());
    let expected = "=== goose:20250615_150640
title: Old one
cwd: /w
branch: 
created: 2025-06-15T15:06:40Z
updated: 2025-06-15T15:07:40Z

--- - 2025-06-15T15:06:40Z
## user
hello
--- m2 2025-06-15T15:07:40Z
## assistant
hi
--- Told { bad: 1, unknown: 0, is_torn: true }

";
    assert!(text.ends_with(expected), "{text}");
}
