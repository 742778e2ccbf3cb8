//! What OpenClaw's sample does not show.

use std::{fs, path::Path};

use rusqlite::{Connection, params};

use crate::{
    databases::{changed, read_only},
    homes::{copy, lines, list, words},
};

const ID: &str = "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d";
const AGENT: &str = ".openclaw/agents/main";

fn database(home: &Path) -> Connection {
    Connection::open(home.join(AGENT).join("agent/openclaw-agent.sqlite")).expect("opened")
}

#[test]
fn events_may_be_compressed() {
    let home = copy("openclaw");
    let plain = read_only(home.path());
    let database = database(home.path());
    for seq in 0..8 {
        let sql = "SELECT event_json FROM transcript_events WHERE seq = ?1";
        let event: String = database.query_row(sql, [seq], |row| row.get(0)).expect("an event");
        let packed = zstd::encode_all(event.as_bytes(), 3).expect("packed");
        let sql = "UPDATE transcript_events SET event_json = NULL, event_zstd = ?2 WHERE seq = ?1";
        database.execute(sql, params![seq, packed]).expect("changed");
    }
    assert_eq!(read_only(home.path()), plain);
    database
        .execute("UPDATE transcript_events SET event_zstd = x'28b52f' WHERE seq = 3", [])
        .expect("damaged");
    drop(database);
    assert!(read_only(home.path()).contains("bad: 1,"));
}

#[test]
fn what_is_beside_the_active_branch_is_told_as_rewound() {
    let check = |events: &[&str], rewound: &[&str]| {
        let rows = events.iter().zip(8..).map(|(event, seq)| format!("('{ID}', {seq}, '{event}', 0)"));
        let rows = rows.collect::<Vec<_>>().join(",");
        let sql =
            format!("INSERT INTO transcript_events (session_id, seq, event_json, created_at) VALUES {rows}");
        let text = changed("openclaw", &sql);
        assert_eq!(lines(&text, "(rewound)"), rewound, "{text}");
        assert!(text.contains("bad: 0, unknown: 0,"), "{text}");
    };
    let again = r#"{"type":"message","id":"e7","parentId":"e3","message":{"role":"user","content":"again"}}"#;
    check(&[again], &["e4", "e5", "e6"]);
    check(&[again, r#"{"type":"leaf","id":"l1","parentId":"e7","targetId":"e6"}"#], &["e7"]);
    // A reset goes on from what was there.
    let after = r#"{"type":"message","id":"e8","parentId":"r1","message":{"role":"user","content":"fresh"}}"#;
    check(&[r#"{"type":"reset","id":"r1","parentId":null}"#, after], &[]);
    // One whose parent was lost, too.
    check(&[after], &[]);
    check(&[r#"{"type":"custom_message","id":"c1","parentId":"e6","content":"note","display":false}"#], &[]);
}

#[test]
fn resets_make_windows_and_sub_agents_children() {
    let sql = r#"
        INSERT INTO session_windows (session_id, session_key, reason, created_at, updated_at, display_name) VALUES
            ('w-old', 'agent:main:main', 'initial', 1794460000000, 1794460000001, NULL),
            ('w-child', 'agent:main:subagent:x', 'initial', 1794470000000, 1794470000001, 'Child'),
            ('w-empty', 'agent:main:main', 'reset', 1794470000000, 1794470000001, NULL);
        INSERT INTO session_nodes (session_key, current_session_id, entry_json, updated_at, label, spawned_by) VALUES
            ('agent:main:subagent:x', 'w-child', '{}', 0, 'research', 'agent:main:main');
        INSERT INTO transcript_events (session_id, seq, event_json, created_at) VALUES
            ('w-old', 0, '{"type":"message","id":"a","message":{"role":"user","content":"before the reset"}}', 0),
            ('w-child', 0, '{"type":"message","id":"b","message":{"role":"assistant","content":[{"type":"text","text":"found"}]}}', 0);
        UPDATE transcript_events SET event_json = replace(event_json, '"isError"',
            '"details": {"childSessionKey": "agent:main:subagent:x"}, "isError"');
        CREATE TABLE session_transcript_archives (session_id TEXT, session_key TEXT, reason TEXT, encoding TEXT,
            archive_blob BLOB, published_at INTEGER);
        INSERT INTO session_transcript_archives VALUES
            ('w-archived', 'agent:main:main', 'reset', 'plain',
             '{"type":"message","id":"z","message":{"role":"user","content":"long ago"}}' || char(10), 1794450000000),
            ('w-deleted', 'agent:main:main', 'deleted', 'plain', '', 0);
    "#;
    let text = changed("openclaw", sql);
    let ids: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("=== openclaw:")).collect();
    assert_eq!(ids, [ID, "w-child", "w-old", "w-archived"], "{text}");
    assert!(text.contains("--- - 2026-11-12T08:00:05Z\nsub-session w-child\n--- e3"), "{text}");
    assert!(text.contains(&format!("title: research\ncwd: \nbranch: \ncreated: 2026-11-12T07:53:20Z\nupdated: 2026-11-12T07:53:20.001Z\nparent: {ID} (research)")), "{text}");
    assert!(text.contains("## user\nbefore the reset"), "{text}");
    assert!(text.contains("archived\n\n--- z 2026-11-12T02:20:00Z\n## user\nlong ago"), "{text}");
}

#[test]
fn a_session_without_a_name_goes_by_its_first_prompt() {
    let unnamed = "UPDATE session_nodes SET label = NULL, display_name = NULL, entry_json = '{}';
        UPDATE session_windows SET display_name = NULL";
    let text = changed("openclaw", unnamed);
    assert!(text.contains("\ntitle: Any failed builds?\n"), "{text}");
    let home = copy("openclaw");
    let dir = home.path().join(AGENT).join("sessions");
    fs::remove_file(home.path().join(AGENT).join("agent/openclaw-agent.sqlite")).expect("removed");
    let said = |role: &str, content: &str| {
        format!(
            r#"{{"type":"message","id":"{content}","message":{{"role":"{role}","content":"{content}"}}}}"#
        ) + "\n"
    };
    fs::write(
        dir.join("new.jsonl"),
        said("assistant", "Hi.") + &said("user", "Ask me") + &said("user", "on"),
    )
    .expect("written");
    fs::write(dir.join("sessions.json"), r#"{"key":{"sessionId":"new"}}"#).expect("written");
    let (sessions, _) = list(home.path());
    let session = sessions.iter().find(|session| session.id.as_str() == "new").expect("listed");
    assert_eq!(session.title, "Ask me");
}

#[test]
fn files_that_the_database_replaced_come_once_and_all_others_too() {
    let home = copy("openclaw");
    let dir = home.path().join(AGENT).join("sessions");
    let events = fs::read_to_string(dir.join(format!("{ID}.jsonl"))).expect("read");
    let child = "9d8c7b6a-0000-4000-8000-00000000aaaa";
    let inner = r#"{"type":"session","id":"x","timestamp":"2026-11-12T08:00:02.000Z","cwd":"/w"}
{"type":"message","id":"m","parentId":null,"timestamp":"2026-11-12T08:00:03.000Z","message":{"role":"user","content":"look"}}
{"type":"message","id":"#;
    fs::write(dir.join(format!("{child}.jsonl")), inner).expect("written");
    fs::write(dir.join("x.checkpoint.1.jsonl"), &events).expect("written");
    fs::write(dir.join("y.jsonl.bak"), &events).expect("written");
    fs::write(dir.join("deleted.jsonl.deleted.2026-11-01"), &events).expect("written");
    fs::write(dir.join("plain.jsonl.reset.2026-11-01"), &events).expect("written");
    let packed = zstd::encode_all(events.as_bytes(), 3).expect("packed");
    fs::write(dir.join("packed.jsonl.reset.2026-11-01.zst"), packed).expect("written");
    let (sessions, problems) = list(home.path());
    let mut ids: Vec<_> = sessions.iter().map(|session| (session.id.as_str(), session.is_archived)).collect();
    ids.sort_unstable();
    assert_eq!(ids, [(child, false), (ID, false), ("packed", true), ("plain", true)], "{problems:?}");
    let text = read_only(home.path());
    assert_eq!(text.matches("## user\nAny failed builds?").count(), 3, "{text}");
    let expected = format!(
        "title: research\ncwd: /w\nbranch: \ncreated: 2026-11-12T08:00:02Z\nupdated: 2026-11-12T08:00:03Z\nparent: {ID} (research)\n\n--- m 2026-11-12T08:00:03Z\n## user\nlook\n--- Told {{ bad: 0, unknown: 0, is_torn: true }}"
    );
    // What it was started from is found in the stale list, which still names it.
    assert!(text.contains(&expected), "{text}");
    // Without the database the files are all there is.
    fs::remove_file(home.path().join(AGENT).join("agent/openclaw-agent.sqlite")).expect("removed");
    let text = read_only(home.path());
    assert!(
        text.contains(&format!(
            "=== openclaw:{ID}\ntitle: Any failed builds?\ncwd: /home/dev/.openclaw/workspace"
        )),
        "{text}"
    );
}

#[test]
fn bad_lines_of_a_file_cost_themselves() {
    let home = copy("openclaw");
    let dir = home.path().join(AGENT).join("sessions");
    fs::remove_file(home.path().join(AGENT).join("agent/openclaw-agent.sqlite")).expect("removed");
    let said = |id: &str, text: &str| {
        format!(r#"{{"type":"message","id":"{id}","message":{{"role":"user","content":"{text}"}}}}"#) + "\n"
    };
    let long = "y".repeat(3_000_000);
    // Two writers in each other's lines, one byte that is no UTF-8, the same id twice.
    let written = [
        said("a", "first").into_bytes(),
        b"{\"type\":\"mess{\"type\":\"message\"}\nage\"}\n".to_vec(),
        b"{\"type\":\"message\",\"id\":\"x\",\"message\":{\"role\":\"user\",\"content\":\"\xff\"}}\n"
            .to_vec(),
        said("b", &long).into_bytes(),
        said("a", "last").into_bytes(),
    ];
    fs::write(dir.join("bad.jsonl"), written.concat()).expect("written");
    fs::write(dir.join("empty.jsonl"), "").expect("written");
    fs::write(dir.join("header.jsonl"), "{\"type\":\"session\",\"id\":\"h\"}\n").expect("written");
    fs::write(dir.join("sessions.json"), "[").expect("written");
    let (sessions, problems) = list(home.path());
    let mut ids: Vec<_> = sessions.iter().map(|session| session.id.as_str()).collect();
    ids.sort_unstable();
    assert_eq!((ids, problems), (vec![ID, "bad"], Vec::new()));
    let text = read_only(home.path());
    assert!(text.contains("first") && text.contains(&long) && text.contains("last"), "{}", text.len());
    assert!(lines(&text, "(rewound)").is_empty());
    assert!(text.contains("Told { bad: 3, unknown: 0, is_torn: false }"), "{}", text.len());
}

#[test]
fn a_message_that_cannot_be_read_makes_no_other_one_taken_back() {
    let home = copy("openclaw");
    let agent = home.path().join(AGENT);
    fs::remove_file(agent.join("agent/openclaw-agent.sqlite")).expect("removed");
    let event = |id: &str, parent: &str, content: &str| {
        let message = format!(r#"{{"role":"user","content":"{content}"}}"#);
        format!(r#"{{"type":"message","id":"{id}","parentId":"{parent}","message":{message}}}"#) + "\n"
    };
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let bad: [(&str, &[u8]); 2] = [("BAD", b"\xff"), ("\"BAD\"", deep.as_bytes())];
    for (what, damage) in bad {
        // Of the branch that is left, and of the one that is taken back.
        for lost in ["m1", "m3"] {
            let mut events = vec![event("m0", "", "0")];
            for (id, parent) in [("m1", "m0"), ("m2", "m1"), ("m3", "m2"), ("m4", "m3"), ("m5", "m2")] {
                events.push(event(id, parent, if id == lost { "BAD" } else { &id[1..] }));
            }
            let text = events.concat();
            let parts: Vec<&[u8]> = text.split(what).map(str::as_bytes).collect();
            fs::write(agent.join("sessions/bad.jsonl"), parts.join(damage)).expect("written");
            let session = list(home.path()).0.into_iter().find(|session| session.id.as_str() == "bad");
            let expected = if lost == "m1" { "0 2 (3) (4) 5" } else { "0 1 2 (4) 5" };
            assert_eq!(words(&session.expect("listed")), expected, "{what}");
        }
    }
}
