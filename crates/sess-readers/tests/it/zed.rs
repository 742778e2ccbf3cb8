//! What Zed's sample does not show.

use rusqlite::Connection;

use crate::{databases::read_only, homes::copy};

/// Returns what is read of a thread with this document, which has a child.
fn read(document: &str) -> String {
    let home = copy("zed");
    let path = home.path().join(".local/share/zed/threads/threads.db");
    let database = Connection::open(path).expect("opened");
    let sql = "INSERT INTO threads SELECT 'child', 'Child', updated_at, 'json', '{\"messages\":[]}', id, NULL, NULL, NULL FROM threads";
    database.execute(sql, []).expect("added");
    let sql = "UPDATE threads SET data_type = 'json', data = ?1, folder_paths = '/a' || char(10) || '/b', folder_paths_order = '1,0' WHERE parent_id IS NULL";
    database.execute(sql, [document]).expect("changed");
    drop(database);
    read_only(home.path())
}

#[test]
fn messages_of_older_versions_are_read_beside_those_of_today() {
    let text = read(
        r#"{"version":"0.2.0","summary":"s","model":{"provider":"p","model":"m"},
        "request_token_usage":[{},{"input_tokens":7,"output_tokens":3}],
        "messages":[
          {"id":0,"role":"user","segments":[{"type":"text","text":"rename it"}],"context":"<files>"},
          {"id":1,"role":"assistant","segments":[{"type":"thinking","text":"hm"},{"type":"text","text":"done"}],
           "tool_uses":[{"id":"t","name":"edit","input":{"path":"a"}}],
           "tool_results":[{"tool_use_id":"t","is_error":false,"content":"ok, child"}]},
          {"id":2,"role":"user","segments":[{"type":"text","text":"here are results"}],
           "tool_results":[{"tool_use_id":"u","is_error":true,"content":{"Text":"failed"}}]},
          {"id":3,"role":"user","is_hidden":true,"segments":[{"type":"text","text":"go on"}]},
          {"id":4,"role":"user","text":"oldest shape"},
          {"User":{"id":"n","content":[{"Text":"newest shape"},{"Image":{"source":"AAAA"}}]}},
          {"Agent":{"content":[{"ToolUse":{"id":"v","name":"look","input":{}}},{"Later":1}],
           "tool_results":{"v":{"content":[{"Text":"one"},{"type":"text","text":"two"}]}}}},
          "Resume", {"Later":{}}]}"#,
    );
    let expected = "cwd: /b
branch: 
created: 2026-11-12T09:00:00Z
updated: 2026-11-12T09:00:02Z

--- 0 2026-11-12T09:00:00Z
## user
rename it
--- 1 2026-11-12T09:00:00Z
## assistant
done
→ called tool `edit` with {\"path\":\"a\"}
(m: 7 in, 3 out)
--- - 2026-11-12T09:00:00Z
sub-session child
--- - 2026-11-12T09:00:00Z
## tool result
ok, child
--- - 2026-11-12T09:00:00Z
## tool result
failed
--- 4 2026-11-12T09:00:00Z
## user
oldest shape
--- n 2026-11-12T09:00:00Z
## user
newest shape
[image: image/png, 3 B]
--- - 2026-11-12T09:00:00Z
## assistant
→ called tool `look`
(m: 0 in, 0 out)
--- - 2026-11-12T09:00:00Z
## tool result
one
two
--- Told { bad: 0, unknown: 2, is_torn: false }
";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn a_document_that_cannot_be_read_costs_its_thread() {
    let text = read("{\"messages\":[");
    assert!(text.contains("is not in a format that is known here: thread d4b8c136"), "{text}");
    assert!(text.contains("=== zed:child"), "{text}");
}

#[test]
fn a_thread_that_cannot_be_decompressed_is_named() {
    let home = copy("zed");
    let path = home.path().join(".local/share/zed/threads/threads.db");
    let database = Connection::open(path).expect("opened");
    database.execute("UPDATE threads SET data_type = 'zstd', data = x'00112233'", []).expect("changed");
    drop(database);
    let text = read_only(home.path());
    assert!(text.contains("threads.db is not in a format that is known here: thread d4b8c136"), "{text}");
}
