//! Databases of every age, read and left alone.

use std::{collections::BTreeMap, os::unix::fs::PermissionsExt};

use tempfile::TempDir;

use super::*;

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/docker-agent/session.db");
const D1: &str = "3a1f9c52-8f1e-4c0a-9b1a-6f2d5b7c8e90";

/// Returns a session as text: what it is, then a message a line without its id.
fn shown(imported: &ImportedSession) -> Vec<String> {
    let session = &imported.session;
    let mut head = format!("{} {:?} {}", session.id, session.title, session.created_at);
    if let Some(cwd) = &session.cwd {
        head += &format!(" cwd={cwd}");
    }
    if let Some(parent) = &session.parent {
        head += &format!(" parent={parent}");
    }
    if imported.starred {
        head += " starred";
    }
    let messages = imported.messages.iter();
    let bodies = messages.map(|message| serde_json::to_string(&message.body).expect("plain JSON"));
    std::iter::once(head).chain(bodies).collect()
}

#[track_caller]
fn check(read: &ReadDatabase, sessions: &[&str], warnings: &[&str]) {
    let lines: Vec<String> = read.sessions.iter().flat_map(shown).collect();
    assert_eq!(lines, sessions, "{lines:#?}");
    assert_eq!(read.warnings, warnings);
}

/// Makes a database with these statements.
fn database(sql: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("session.db");
    Connection::open(&path).expect("a database").execute_batch(sql).expect(sql);
    (dir, path)
}

/// Every file of a directory with its bytes and its time of change.
fn files(dir: &Path) -> BTreeMap<PathBuf, (Vec<u8>, std::time::SystemTime)> {
    let entries = fs::read_dir(dir).expect("a directory");
    let file = |path: PathBuf| {
        let changed = fs::metadata(&path).expect("a file").modified().expect("a time");
        let bytes = fs::read(&path).expect("a file");
        (path, (bytes, changed))
    };
    entries.map(|entry| file(entry.expect("an entry").path())).collect()
}

/// Tables as migration 21 left them.
const SCHEMA_21: &str = "
    CREATE TABLE sessions (id TEXT PRIMARY KEY, created_at TEXT, title TEXT DEFAULT '',
        working_dir TEXT DEFAULT '', starred BOOLEAN DEFAULT 0, parent_id TEXT);
    CREATE TABLE session_items (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL,
        position INTEGER NOT NULL, item_type TEXT NOT NULL, agent_name TEXT, message_json TEXT,
        implicit BOOLEAN DEFAULT 0, subsession_id TEXT, summary_text TEXT,
        first_kept_entry INTEGER DEFAULT 0);
    CREATE TABLE migrations (id INTEGER PRIMARY KEY, name TEXT, description TEXT, applied_at TEXT);
";

/// Reads a session that has just this message.
#[track_caller]
fn message(json: &str) -> String {
    let (_dir, path) = database(SCHEMA_21);
    let connection = Connection::open(&path).expect("a database");
    let session = "INSERT INTO sessions (id, created_at) VALUES ('s', '1970-01-01T00:00:01Z')";
    connection.execute(session, []).expect("a session");
    let item = "INSERT INTO session_items (session_id, position, item_type, message_json)
                VALUES ('s', 0, 'message', ?1)";
    connection.execute(item, [json]).expect("an item");
    let read = read(&path).expect("a database");
    assert_eq!(read.warnings, [""; 0]);
    shown(&read.sessions[0]).remove(1)
}

#[test]
fn the_sample_database_reads_as_it_is_described() {
    let read = read(Path::new(FIXTURE)).expect("the fixture");
    check(
        &read,
        &[
            r#"3a1f9c52-8f1e-4c0a-9b1a-6f2d5b7c8e90 "Add health endpoint" 2026-11-09T18:00:00Z cwd=/home/dev/acme-api"#,
            r#"{"role":"user","content":[{"type":"text","text":"Add GET /healthz"}],"timestamp":1794247201000}"#,
            r#"{"role":"assistant","content":[{"type":"toolCall","id":"call_1","name":"read_file","arguments":{"path":"src/main.rs"}}],"timestamp":1794247204000,"model":"anthropic/claude-sonnet-5","stopReason":"tool_calls","agentId":"root"}"#,
            r#"{"role":"toolResult","content":[{"type":"text","text":"fn main() {}"}],"timestamp":1794247205000,"toolCallId":"call_1","toolName":"read_file","agentId":"root"}"#,
            r#"{"role":"system","content":[{"type":"subSession","sessionId":"c0ffee00-1111-4222-8333-444455556666"}],"timestamp":1794247205000}"#,
            r#"{"role":"system","content":[{"type":"compaction","summary":"User wants /healthz; main.rs read."}],"timestamp":1794247205000}"#,
            r#"{"role":"assistant","content":[{"type":"text","text":"Added /healthz."}],"timestamp":1794247380000,"model":"anthropic/claude-sonnet-5","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"cost":0.0123},"stopReason":"stop","agentId":"root"}"#,
            r#"c0ffee00-1111-4222-8333-444455556666 "Transferred task" 2026-11-09T18:01:00Z cwd=/home/dev/acme-api parent=agent:docker-agent:chat:3a1f9c52-8f1e-4c0a-9b1a-6f2d5b7c8e90"#,
        ],
        &[],
    );
    let first = &read.sessions[0].session;
    assert_eq!(first.key.as_str(), format!("agent:docker-agent:chat:{D1}"));
    assert_eq!((first.source, first.agent.as_str()), (Source::DockerAgent, "docker-agent"));
}

#[test]
fn the_same_database_gives_the_same_ids_every_time() {
    let ids = || {
        let read = read(Path::new(FIXTURE)).expect("the fixture");
        let messages = read.sessions.into_iter().flat_map(|session| session.messages);
        messages.map(|message| message.id).collect::<Vec<_>>()
    };
    assert_eq!(ids(), ids());
    assert_eq!(ids().into_iter().collect::<HashSet<_>>().len(), 6);
}

#[test]
fn messages_in_the_old_column_are_read_with_the_sessions_inside_them() {
    let (_dir, path) = database(
        r#"CREATE TABLE sessions (id TEXT PRIMARY KEY, messages TEXT, created_at TEXT,
               tools_approved BOOLEAN, title TEXT, working_dir TEXT, starred BOOLEAN, thinking BOOLEAN);
           CREATE TABLE migrations (id INTEGER PRIMARY KEY, name TEXT, description TEXT, applied_at TEXT);
           INSERT INTO migrations VALUES (13, '013_add_thinking_column', '', '2026-01-01T00:00:00Z');
           INSERT INTO sessions (id, created_at, title, starred, messages) VALUES
             ('old', '2026-01-02T03:04:05+01:00', 'Old', 1, '[
               {"message":{"agentName":"root","message":{"role":"user","content":"hi","created_at":"2026-01-02T03:04:06Z"}}},
               {"message":{"agentName":"root","message":{"role":"user","content":"hidden"},"implicit":true}},
               {"sub_session":{"id":"sub","title":"Sub","working_dir":"/w","created_at":"2026-01-02T03:04:07.123456789Z","messages":[
                 {"message":{"agentName":"web","message":{"role":"assistant","content":"found"}}},
                 {"sub_session":{"id":"","messages":[{"message":{"agentName":"","message":{"role":"user","content":"deep"}}}],"created_at":"2026-01-02T03:04:08Z"}}]}},
               {"sub_session":{"id":"own","messages":[]}},
               {"summary":"so far","cost":0.5},
               {"agentName":"root","message":{"role":"assistant","content":"before items"}},
               {"something":1}
             ]'),
             ('own', '2026-01-02T03:04:05Z', 'Own row', 0, '[{"message":{"agentName":"","message":{"role":"user","content":"mine"}}}]'),
             ('torn', '2026-01-02T03:04:05Z', 'Torn', 0, '[{"role":"user","content":"kept"},{"role":"us'),
             ('none', '2026-01-02T03:04:05Z', NULL, 0, NULL);"#,
    );
    check(
        &read(&path).expect("a database"),
        &[
            r#"old "Old" 2026-01-02T02:04:05Z starred"#,
            r#"{"role":"user","content":[{"type":"text","text":"hi"}],"timestamp":1767323046000,"agentId":"root"}"#,
            r#"{"role":"system","content":[{"type":"subSession","sessionId":"sub"}],"timestamp":1767323046000}"#,
            r#"{"role":"system","content":[{"type":"subSession","sessionId":"own"}],"timestamp":1767323046000}"#,
            r#"{"role":"system","content":[{"type":"compaction","summary":"so far"}],"timestamp":1767323046000,"usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"cost":0.5}}"#,
            r#"{"role":"assistant","content":[{"type":"text","text":"before items"}],"timestamp":1767323046000,"agentId":"root"}"#,
            r#"{"role":"system","content":[{"type":"text","text":"item 6 cannot be read: it is no message, sub-session or summary"}],"timestamp":1767323046000}"#,
            r#"own "Own row" 2026-01-02T03:04:05Z parent=agent:docker-agent:chat:old"#,
            r#"{"role":"user","content":[{"type":"text","text":"mine"}],"timestamp":1767323045000}"#,
            r#"torn "Torn" 2026-01-02T03:04:05Z"#,
            r#"{"role":"user","content":[{"type":"text","text":"kept"}],"timestamp":1767323045000}"#,
            r#"{"role":"system","content":[{"type":"text","text":"its items after the first 1 cannot be read: EOF while parsing a string at line 1 column 45"}],"timestamp":1767323045000}"#,
            r#"none "" 2026-01-02T03:04:05Z"#,
            r#"sub "Sub" 2026-01-02T03:04:07.123Z cwd=/w parent=agent:docker-agent:chat:old"#,
            r#"{"role":"assistant","content":[{"type":"text","text":"found"}],"timestamp":1767323047123,"agentId":"web"}"#,
            r#"{"role":"system","content":[{"type":"subSession","sessionId":"sub.1"}],"timestamp":1767323047123}"#,
            r#"sub.1 "" 2026-01-02T03:04:08Z parent=agent:docker-agent:chat:sub"#,
            r#"{"role":"user","content":[{"type":"text","text":"deep"}],"timestamp":1767323048000}"#,
        ],
        &[
            "session old: item 6 cannot be read: it is no message, sub-session or summary",
            "session torn: its items after the first 1 cannot be read: EOF while parsing a string at line 1 column 45",
        ],
    );
}

#[test]
fn rows_win_over_the_old_column_and_it_is_read_where_there_are_none() {
    let (_dir, path) = database(&format!(
        r#"{SCHEMA_21}
           ALTER TABLE sessions ADD COLUMN messages TEXT;
           INSERT INTO sessions (id, created_at, messages) VALUES
             ('moved', '1970-01-01T00:00:01Z', '[{{"role":"user","content":"old"}}]'),
             ('left', '1970-01-01T00:00:01Z', '[{{"role":"user","content":"old"}}]');
           INSERT INTO session_items (session_id, position, item_type, message_json) VALUES
             ('moved', 0, 'message', '{{"role":"user","content":"new"}}');"#
    ));
    check(
        &read(&path).expect("a database"),
        &[
            r#"moved "" 1970-01-01T00:00:01Z"#,
            r#"{"role":"user","content":[{"type":"text","text":"new"}],"timestamp":1000}"#,
            r#"left "" 1970-01-01T00:00:01Z"#,
            r#"{"role":"user","content":[{"type":"text","text":"old"}],"timestamp":1000}"#,
        ],
        &[],
    );
}

#[test]
fn a_database_of_a_later_version_is_read_as_far_as_it_is_known() {
    let (_dir, path) = database(&format!(
        r#"{SCHEMA_21}
           ALTER TABLE sessions ADD COLUMN instruction_context TEXT DEFAULT '';
           ALTER TABLE sessions ADD COLUMN origin TEXT NOT NULL DEFAULT 'run';
           ALTER TABLE sessions ADD COLUMN colour TEXT DEFAULT 'blue';
           ALTER TABLE session_items ADD COLUMN cost REAL NOT NULL DEFAULT 0;
           ALTER TABLE session_items ADD COLUMN model TEXT NOT NULL DEFAULT '';
           ALTER TABLE session_items ADD COLUMN usage_json TEXT NOT NULL DEFAULT '';
           CREATE TABLE generated_media_manifest (session_id TEXT, rel_path TEXT);
           CREATE TABLE moods (session_id TEXT, mood TEXT);
           INSERT INTO migrations VALUES (29, '029', '', ''), (99, '099_add_moods', '', '');
           INSERT INTO sessions (id, created_at) VALUES ('s', '1970-01-01T00:00:01Z');
           INSERT INTO session_items (session_id, position, item_type, summary_text, cost, model, usage_json) VALUES
             ('s', 1, 'summary', 'so far', 0.25, 'm', '{{"input_tokens":10,"output_tokens":2,"cached_input_tokens":3,"cached_write_tokens":4}}');
           INSERT INTO session_items (session_id, position, item_type, message_json) VALUES
             ('s', 2, 'error', '{{"code":"overloaded","message":"try later"}}'),
             ('s', 3, 'termination', '{{"reason":"max_iterations"}}'),
             ('s', 4, 'mood', '{{"mood":"good"}}'),
             ('s', 5, 'error', NULL),
             ('s', 0, 'message', '{{"role":"system","content":"first"}}'),
             ('s', 0, 'message', '{{"role":"system","content":"second"}}');"#
    ));
    check(
        &read(&path).expect("a database"),
        &[
            r#"s "" 1970-01-01T00:00:01Z"#,
            r#"{"role":"system","content":[{"type":"text","text":"first"}],"timestamp":1000}"#,
            r#"{"role":"system","content":[{"type":"text","text":"second"}],"timestamp":1000}"#,
            r#"{"role":"system","content":[{"type":"compaction","summary":"so far"}],"timestamp":1000,"model":"m","usage":{"input":10,"output":2,"cacheRead":3,"cacheWrite":4,"cost":0.25}}"#,
            r#"{"role":"system","content":[{"type":"text","text":"error: try later"}],"timestamp":1000}"#,
            r#"{"role":"system","content":[{"type":"text","text":"termination: max_iterations"}],"timestamp":1000}"#,
            r#"{"role":"system","content":[{"type":"text","text":"mood: {\"mood\":\"good\"}"}],"timestamp":1000}"#,
            r#"{"role":"system","content":[{"type":"text","text":"error"}],"timestamp":1000}"#,
        ],
        &[r#"session s: item 4 is of the unknown type "mood", and became a note"#],
    );
}

#[test]
fn a_chat_message_keeps_its_parts() {
    assert_eq!(
        message(
            r#"{"role":"assistant","content":"Done.","reasoning_content":"hm","tool_calls":[{"id":"1","function":{"name":"a","arguments":""}},{"id":"2","function":{"name":"b","arguments":"[1]"}},{"id":"3","function":{"name":"c","arguments":"{\"z\":1,\"a\""}}],"usage":{"input_tokens":1,"output_tokens":2,"cached_input_tokens":3,"cached_write_tokens":4,"later":5},"cost":0.5,"created_at":"1970-01-01T01:00:02.5+01:00","finish_reason":"stop","model":""}"#
        ),
        r#"{"role":"assistant","content":[{"type":"thinking","text":"hm"},{"type":"text","text":"Done."},{"type":"toolCall","id":"1","name":"a","arguments":{}},{"type":"toolCall","id":"2","name":"b","arguments":{"_raw":"[1]"}},{"type":"toolCall","id":"3","name":"c","arguments":{"_raw":"{\"z\":1,\"a\""}}],"timestamp":2500,"usage":{"input":1,"output":2,"cacheRead":3,"cacheWrite":4,"cost":0.5},"stopReason":"stop"}"#
    );
    assert_eq!(
        message(
            r#"{"role":"user","content":"look","multi_content":[{"type":"text","text":"look"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}},{"type":"image_url","image_url":{"url":"https://x/y.png"}},{"type":"file","file":{"path":"/a.pdf","mime_type":"application/pdf"}},{"type":"document","document":{"name":"n.md","mime_type":"text/markdown","source":{"inline_text":"hello"}}},{"type":"document","document":{"name":"p.png","mime_type":"image/png","source":{"inline_data":"BBBB"}}},{"type":"document","document":{"name":"q.pdf","mime_type":"application/pdf","source":{"inline_data":"CCCC"}}},{"type":"hologram","depth":3},{"type":"thinking","x":1}]}"#
        ),
        r#"{"role":"user","content":[{"type":"text","text":"look"},{"type":"image","mimeType":"image/png","data":"AAAA"},{"type":"imageUrl","name":"https://x/y.png"},{"type":"file","name":"/a.pdf","mimeType":"application/pdf"},{"type":"text","text":"[document: n.md]\nhello"},{"type":"image","mimeType":"image/png","data":"BBBB"},{"type":"document","name":"q.pdf","mimeType":"application/pdf","data":"CCCC"},{"type":"hologram","depth":3},{"type":"attachment","name":"thinking"}],"timestamp":1000}"#
    );
    assert_eq!(
        message(r#"{"role":"tool","content":"no such file","tool_call_id":"9","is_error":true}"#),
        r#"{"role":"toolResult","content":[{"type":"text","text":"no such file"}],"timestamp":1000,"toolCallId":"9","isError":true}"#
    );
    assert_eq!(
        message(r#"{"role":"user","content":[{"type":"text","text":"as parts"}]}"#),
        r#"{"role":"user","content":[{"type":"text","text":"as parts"}],"timestamp":1000}"#
    );
}

#[test]
fn what_was_read_can_be_written_and_read_again() {
    let read = read(Path::new(FIXTURE)).expect("the fixture");
    for message in read.sessions.iter().flat_map(|session| &session.messages) {
        let json = serde_json::to_string(&message.body).expect("plain JSON");
        let again: sess_core::message::Body = serde_json::from_str(&json).expect(&json);
        assert_eq!(again, message.body);
    }
}

#[test]
fn times_are_read_in_every_form_they_were_written_in() {
    let check = |text: &str, written: &str| {
        let at = message::instant(text).expect(text);
        assert_eq!(at.to_string(), written, "{text}");
    };
    check("2026-11-09T18:00:00Z", "2026-11-09T18:00:00Z");
    check("2026-11-09T18:00:00.123456789+02:00", "2026-11-09T16:00:00.123Z");
    check("2026-11-09 18:00:00.123456789 +0200 CEST m=+0.012", "2026-11-09T16:00:00.123Z");
    check("2026-11-09 18:00:00 +0000 UTC", "2026-11-09T18:00:00Z");
    check("2026-11-09 18:00:00+00:00", "2026-11-09T18:00:00Z");
    check("2026-11-09 18:00:00", "2026-11-09T18:00:00Z");
    check("2026-11-09T18:00:00", "2026-11-09T18:00:00Z");
    check("1794247200", "2026-11-09T18:00:00Z");
    check("1794247200000", "2026-11-09T18:00:00Z");
    for text in ["", "soon", "2026-11-09", "9223372036854775807", "-9223372036854775808", "é é é"] {
        assert_eq!(message::instant(text), None, "{text}");
    }
}

#[test]
fn what_cannot_be_read_costs_itself_only() {
    let (_dir, path) = database(&format!(
        r#"{SCHEMA_21}
           INSERT INTO sessions (id, created_at, parent_id) VALUES
             ('../evil', '1970-01-01T00:00:01Z', NULL), ('s', '1970-01-01T00:00:01Z', '../evil'),
             ('timeless', 'long ago', ''), (NULL, '', '');
           INSERT INTO session_items (session_id, position, item_type, message_json, subsession_id) VALUES
             ('s', 0, 'message', '{{"role":"user","content":"a"}}', NULL),
             ('s', 1, 'message', '{{"role":"us', NULL),
             ('s', 2, 'message', NULL, NULL),
             ('s', 3, 'message', '{{"role":"robot"}}', NULL),
             ('s', 4, 'message', CAST(x'7b22726f6c65223a2275736572222c22636f6e74656e74223a22ff227d' AS TEXT), NULL),
             ('s', 5, 'subsession', NULL, '../evil'),
             ('s', 6, 'subsession', NULL, NULL),
             ('s', 7, 'message', '{{"role":"user","content":"z"}}', NULL),
             ('timeless', 0, 'message', '{{"role":"user","content":"q","created_at":"1970-01-01T00:00:05Z"}}', NULL);"#
    ));
    check(
        &read(&path).expect("a database"),
        &[
            r#"s "" 1970-01-01T00:00:01Z"#,
            r#"{"role":"user","content":[{"type":"text","text":"a"}],"timestamp":1000}"#,
            r#"{"role":"system","content":[{"type":"text","text":"item 1 cannot be read: EOF while parsing a string at line 1 column 11"}],"timestamp":1000}"#,
            r#"{"role":"system","content":[{"type":"text","text":"item 2 cannot be read: EOF while parsing a value at line 1 column 0"}],"timestamp":1000}"#,
            r#"{"role":"system","content":[{"type":"text","text":"item 3 cannot be read: its role \"robot\" is unknown"}],"timestamp":1000}"#,
            r#"{"role":"user","content":[{"type":"text","text":"�"}],"timestamp":1000}"#,
            r#"{"role":"system","content":[{"type":"text","text":"item 5 cannot be read: invalid session ID: \"../evil\""}],"timestamp":1000}"#,
            r#"{"role":"user","content":[{"type":"text","text":"z"}],"timestamp":1000}"#,
            r#"timeless "" 1970-01-01T00:00:05Z"#,
            r#"{"role":"user","content":[{"type":"text","text":"q"}],"timestamp":5000}"#,
        ],
        &[
            r#"session "../evil" is left out: its id is not allowed here"#,
            r#"session "" is left out: its id is not allowed here"#,
            "session s: item 1 cannot be read: EOF while parsing a string at line 1 column 11",
            "session s: item 2 cannot be read: EOF while parsing a value at line 1 column 0",
            r#"session s: item 3 cannot be read: its role "robot" is unknown"#,
            r#"session s: item 5 cannot be read: invalid session ID: "../evil""#,
            "session timeless does not say when it was made: taken for 1970-01-01T00:00:05Z",
        ],
    );
}

#[test]
fn damaged_pages_cost_what_was_on_them() {
    let (_dir, path) = database(&format!(
        "{SCHEMA_21}
         INSERT INTO sessions (id, created_at) VALUES ('s', '1970-01-01T00:00:01Z'), ('t', '1970-01-01T00:00:01Z');
         WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 199)
         INSERT INTO session_items (session_id, position, item_type, message_json)
         SELECT 's', i, 'message', json_object('role', 'user', 'content', hex(zeroblob(200))) FROM n;"
    ));
    let mut bytes = fs::read(&path).expect("a file");
    let middle = bytes.len() / 2 / 4096 * 4096;
    bytes[middle..middle + 4096].fill(0);
    fs::write(&path, bytes).expect("a file");
    let read = read(&path).expect("still a database");
    assert_eq!(read.sessions.len(), 2);
    assert!(!read.warnings.is_empty() && read.warnings[0].starts_with("session s: "), "{:?}", read.warnings);
}

#[test]
fn what_only_the_log_holds_is_read_and_no_file_is_touched() {
    let (dir, path) = database(SCHEMA_21);
    let writer = Connection::open(&path).expect("a database");
    writer
        .execute_batch(
            r#"PRAGMA journal_mode = WAL;
               PRAGMA wal_autocheckpoint = 0;
               INSERT INTO sessions (id, created_at, title) VALUES ('s', '1970-01-01T00:00:01Z', 'In the log');
               INSERT INTO session_items (session_id, position, item_type, message_json)
               VALUES ('s', 0, 'message', '{"role":"user","content":"a"}');
               BEGIN;
               INSERT INTO session_items (session_id, position, item_type, message_json)
               VALUES ('s', 1, 'message', '{"role":"user","content":"not committed"}');"#,
        )
        .expect("rows");
    let before = files(dir.path());
    assert_eq!(before.len(), 3, "database, log and shared memory");
    let link = tempfile::tempdir().expect("a directory");
    let link = link.path().join("link.db");
    std::os::unix::fs::symlink(&path, &link).expect("a link");

    for path in [&path, &link] {
        check(
            &read(path).expect("a database"),
            &[
                r#"s "In the log" 1970-01-01T00:00:01Z"#,
                r#"{"role":"user","content":[{"type":"text","text":"a"}],"timestamp":1000}"#,
            ],
            &[],
        );
    }
    assert!(before == files(dir.path()));
    // The writer never noticed.
    writer.execute_batch("COMMIT").expect("its transaction");
    assert_eq!(read(&path).expect("a database").sessions[0].messages.len(), 2);
}

#[test]
fn a_database_under_a_busy_writer_reads_as_it_was_at_one_instant() {
    let (_dir, path) = database(SCHEMA_21);
    let writer = Connection::open(&path).expect("a database");
    writer
        .execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; PRAGMA wal_autocheckpoint = 20;
             INSERT INTO sessions (id, created_at, title) VALUES ('s', '1970-01-01T00:00:01Z', '0');",
        )
        .expect("a session");
    // Each transaction raises the title and adds the message that goes with it.
    const TRANSACTIONS: usize = 2_000;
    let transaction = r#"BEGIN;
        UPDATE sessions SET title = title + 1;
        INSERT INTO session_items (session_id, position, item_type, message_json)
        SELECT 's', title, 'message', json_object('role', 'user', 'content', hex(zeroblob(4000)))
        FROM sessions;
        COMMIT;"#;
    let messages = || {
        let read = read(&path)?;
        let ImportedSession { session, messages, .. } = &read.sessions[0];
        assert_eq!(session.title, messages.len().to_string());
        assert_eq!(read.warnings, [""; 0]);
        Ok::<_, ReadError>(messages.len())
    };
    std::thread::scope(|scope| {
        let written = scope.spawn(move || {
            for _ in 0..TRANSACTIONS {
                writer.execute_batch(transaction).expect("a transaction");
            }
        });
        while !written.is_finished() {
            match messages() {
                Ok(_) | Err(ReadError::Busy(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
    });
    assert_eq!(messages().expect("a database at rest"), TRANSACTIONS);
}

#[test]
fn a_log_that_its_writer_left_behind_is_read() {
    let (dir, path) = database(SCHEMA_21);
    let writer = Connection::open(&path).expect("a database");
    writer
        .execute_batch(
            "PRAGMA journal_mode = WAL;
             INSERT INTO sessions (id, created_at) VALUES ('s', '1970-01-01T00:00:01Z');",
        )
        .expect("rows");
    // What a killed process leaves, without the shared memory.
    let left = tempfile::tempdir().expect("a directory");
    for name in ["session.db", "session.db-wal"] {
        fs::copy(dir.path().join(name), left.path().join(name)).expect("a copy");
    }
    let before = files(left.path());
    let set_mode = |mode| {
        fs::set_permissions(left.path(), fs::Permissions::from_mode(mode)).expect("a mode");
    };
    set_mode(0o500);
    let read = read(&left.path().join("session.db"));
    set_mode(0o700);
    check(&read.expect("a database"), &[r#"s "" 1970-01-01T00:00:01Z"#], &[]);
    assert!(before == files(left.path()));
}

#[test]
fn a_file_that_is_not_docker_agents_says_what_it_is() {
    let check = |path: &Path, told: &str| {
        let error = read(path).expect_err(told);
        assert_eq!(error.to_string(), format!("{} {told}", path.display()));
    };
    let dir = tempfile::tempdir().expect("a directory");
    check(&dir.path().join("none.db"), "could not be read");
    check(dir.path(), "is not an SQLite database");
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).expect("a file");
        path
    };
    check(&file("empty", b""), "is not an SQLite database");
    check(&file("text", b"{\"type\":\"session\"}\n"), "is not an SQLite database");
    let garbage: Vec<u8> = b"SQLite format 3\0".iter().copied().chain([7; 5_000]).collect();
    check(&file("garbage", &garbage), "is damaged");

    let (_dir, other) = database("CREATE TABLE t (x)");
    check(&other, "is an SQLite database, but not one of docker-agent's: it has no `sessions` table");
    let (_dir, crush) = database("CREATE TABLE sessions (id TEXT PRIMARY KEY, title TEXT)");
    check(
        &crush,
        "is an SQLite database, but not one of docker-agent's: it has no `session_items` table, and its `sessions` no `messages`",
    );
    let (_dir, strange) = database("CREATE TABLE sessions (n INTEGER, messages TEXT)");
    check(&strange, "is an SQLite database, but not one of docker-agent's: its `sessions` table has no `id`");
}

#[test]
fn a_database_is_told_from_a_text_by_its_first_bytes() {
    let dir = tempfile::tempdir().expect("a directory");
    let short = dir.path().join("short");
    fs::write(&short, b"SQLite").expect("a file");
    assert!(is_sqlite(Path::new(FIXTURE)));
    assert!(!is_sqlite(&short));
    assert!(!is_sqlite(dir.path()));
    assert!(!is_sqlite(&dir.path().join("none")));
}
