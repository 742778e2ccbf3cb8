//! What opencode's sample does not show.

use std::fs;

use rusqlite::Connection;
use sess_readers::{Catalogue, Foreign, Homes};

use crate::{
    databases::changed,
    homes::{copy, lines, list, written},
};

const DATABASE: &str = ".local/share/opencode/opencode.db";

#[test]
fn messages_from_the_reverted_one_on_are_told_as_rewound() {
    let check = |revert: &str, rewound: &[&str]| {
        let sql = format!("UPDATE session SET revert = '{revert}' WHERE parent_id IS NULL");
        assert_eq!(lines(&changed("opencode", &sql), "(rewound)"), rewound, "{revert}");
    };
    let all = ["msg_01", "msg_02", "prt_12", "-", "prt_13", "prt_14", "prt_16"];
    check(r#"{"messageID":"msg_01"}"#, &all);
    check(r#"{"messageID":"msg_02","snapshot":"x"}"#, &all[1..]);
    check(r#"{"messageID":"msg_02","partID":"prt_14"}"#, &all[5..]);
    check(r#"{"messageID":"msg_99"}"#, &[]);
    check("no JSON", &[]);
}

#[test]
fn a_session_without_a_title_goes_by_its_first_prompt() {
    let text = changed("opencode", "UPDATE session SET title = ''");
    assert!(text.contains("\ntitle: Why does the limiter let bursts through?\n"), "{text}");
    let synthetic = "INSERT INTO part SELECT 'prt_00', message_id, session_id, 0, 0,
        '{\"type\":\"text\",\"text\":\"of the host\",\"synthetic\":true}' FROM part WHERE message_id = 'msg_01' LIMIT 1;
        UPDATE session SET title = ''";
    assert_eq!(changed("opencode", synthetic), text, "what the host says is no prompt");
    let home = copy("opencode");
    let storage = home.path().join(".local/share/opencode/storage");
    let [legacy] = &crate::homes::files(&storage.join("session"))[..] else { panic!("one") };
    let info = fs::read_to_string(legacy).expect("read").replace("Legacy JSON session", "");
    fs::write(legacy, info).expect("written");
    let text = written(home.path());
    assert!(text.contains("=== opencode:ses_legacy0001\ntitle: hello from the flat-file era\n"), "{text}");
}

#[test]
fn titles_that_are_made_of_the_time_are_none() {
    let check = |title: &str, told: &str| {
        let text = changed("opencode", &format!("UPDATE session SET title = '{title}'"));
        assert!(text.contains(&format!("\ntitle: {told}\n")), "{title}: {text}");
    };
    let prompt = "Why does the limiter let bursts through?";
    check("New session - 2026-11-09T04:53:20.123Z", prompt);
    check("Child session - 2026-11-09T04:53:20.123Z", prompt);
    check("New session - how to start", "New session - how to start");
    check("two\nlines", "two");
}

#[test]
fn a_summary_belongs_to_its_compaction_and_the_history_stays() {
    let sql = r#"
        INSERT INTO message VALUES ('msg_03', (SELECT id FROM session WHERE parent_id IS NULL),
            1794200070000, 0, '{"role":"assistant","summary":true,"modelID":"m"}');
        INSERT INTO part VALUES ('prt_30', 'msg_03', '', 0, 0, '{"type":"text","text":"we fixed it"}');
        INSERT INTO message VALUES ('msg_04', (SELECT id FROM session WHERE parent_id IS NULL),
            1794200080000, 0, '{"role":"user","summary":{"title":"t"}}');
        INSERT INTO part VALUES ('prt_40', 'msg_04', '', 0, 0, '{"type":"text","text":"go on"}');
        INSERT INTO part VALUES ('prt_41', 'msg_04', '', 0, 0,
            '{"type":"file","mime":"image/png","filename":"a.png","url":"data:image/png;base64,AAAA"}');
        INSERT INTO part VALUES ('prt_42', 'msg_04', '', 0, 0,
            '{"type":"file","mime":"text/plain","filename":"a.rs","url":"file:///a.rs"}');
        INSERT INTO part VALUES ('prt_43', 'msg_04', '', 0, 0, '{"type":"later"}');
        INSERT INTO message VALUES ('msg_05', (SELECT id FROM session WHERE parent_id IS NULL),
            1794200090000, 0, '{"role":"assistant","error":{"name":"Aborted","data":{"message":"cut off"}}}');
        INSERT INTO part VALUES ('prt_50', 'msg_05', '', 0, 0,
            '{"type":"tool","callID":"c","tool":"bash","state":{"status":"error","input":{},"error":"no such file"}}');
        INSERT INTO part VALUES ('prt_51', 'msg_05', '', 0, 0,
            '{"type":"tool","callID":"d","tool":"bash","state":{"status":"running","input":{}}}');
    "#;
    let text = changed("opencode", sql);
    let end = text.split("prt_16").nth(1).and_then(|rest| rest.split("===").next()).expect("told");
    let expected = " 2026-11-09T04:54:30Z
[context compacted here]
--- msg_04 2026-11-09T04:54:40Z
## user
go on
[image: image/png, 3 B]
[file: a.rs, text/plain]
--- msg_05 2026-11-09T04:54:50Z
## assistant
→ called tool `bash`
→ called tool `bash`
[error: cut off]
--- prt_50 2026-11-09T04:54:50Z
## tool result
no such file
--- Told { bad: 0, unknown: 1, is_torn: false }

";
    assert_eq!(end, expected);
}

#[test]
fn what_was_moved_to_the_database_comes_once_and_channels_have_their_own() {
    let home = copy("opencode");
    let root = home.path().join(".local/share/opencode");
    let project = root.join("storage/session/b2f1c0d9e8a7f6e5d4c3b2a1908f7e6d5c4b3a29");
    // Of one that is in the database too, a stale file; and one that nobody can read.
    let stale = r#"{"id":"ses_17cdba9cfffeC5A6FQLkMAFYtM","title":"stale","time":{"created":1,"updated":2}}"#;
    fs::write(project.join("ses_17cdba9cfffeC5A6FQLkMAFYtM.json"), stale).expect("written");
    fs::write(project.join("ses_bad.json"), "{").expect("written");
    let beta = root.join("opencode-beta.db");
    fs::copy(home.path().join(DATABASE), &beta).expect("copied");
    let change = "UPDATE session SET id = 'ses_beta', title = 'of the channel' WHERE parent_id IS NULL";
    Connection::open(&beta).expect("opened").execute(change, []).expect("changed");
    let (sessions, problems) = list(home.path());
    let titles: Vec<_> = sessions.iter().map(|session| session.title.as_str()).collect();
    let titled = [
        "Rate limiter burst bug",
        "of the channel",
        "Find limiter call sites (@explore subagent)",
        "Legacy JSON session",
    ];
    assert_eq!(titles, titled);
    // The sub-agent's is in both.
    assert_eq!(problems.len(), 2, "{problems:?}");
    // Somewhere else.
    let elsewhere = home.path().join("elsewhere.db");
    fs::rename(&beta, &elsewhere).expect("moved");
    for named in [elsewhere.to_str().expect("text"), "../../../elsewhere.db"] {
        let variables = [("OPENCODE_DB".to_owned(), named.into())];
        let look = Catalogue::default().look(&Homes::new(home.path().to_owned(), variables, None), None);
        let titles: Vec<_> = look.sessions.iter().map(|session| session.title.as_str()).collect();
        // The files of before there was a database are where they were.
        let of_named =
            ["of the channel", "Find limiter call sites (@explore subagent)", "Legacy JSON session"];
        assert!(of_named.iter().all(|title| titles.contains(title)), "{named}: {titles:?}");
        assert!(!titles.contains(&"Rate limiter burst bug"), "{named}: {titles:?}");
    }
    for nowhere in ["/nowhere.db", "nowhere.db", ":memory:"] {
        let variables = [("OPENCODE_DB".to_owned(), nowhere.into())];
        let look = Catalogue::default().look(&Homes::new(home.path().to_owned(), variables, None), None);
        let from_files = |session: &&Foreign| session.place.path.starts_with(root.join("storage"));
        assert!(look.sessions.iter().all(|session| from_files(&session)), "{nowhere}: {:?}", look.sessions);
    }
}

#[test]
fn a_lost_file_of_the_old_store_costs_itself() {
    let home = copy("opencode");
    let storage = home.path().join(".local/share/opencode/storage");
    fs::write(storage.join("message/ses_legacy0001/msg_legacy02.json"), "{\"role\":").expect("written");
    let second = r#"{"id":"msg_legacy03","role":"assistant","time":{}}"#;
    fs::write(storage.join("message/ses_legacy0001/msg_legacy03.json"), second).expect("written");
    fs::create_dir(storage.join("part/msg_legacy03")).expect("made");
    fs::write(storage.join("part/msg_legacy03/prt_1.json"), r#"{"type":"text","text":"still here"}"#)
        .expect("written");
    fs::write(storage.join("part/msg_legacy03/prt_2.json"), b"\xff\xfe").expect("written");
    let text = written(home.path());
    assert!(text.ends_with("still here\n--- Told { bad: 2, unknown: 0, is_torn: false }\n\n"), "{text}");
}

#[test]
fn a_session_of_files_without_a_time_has_that_of_its_last_message_or_of_its_own() {
    let home = copy("opencode");
    let storage = home.path().join(".local/share/opencode/storage");
    let replace = |path: &str, from: &str, to: &str| {
        let path = storage.join(path);
        let text = fs::read_to_string(&path).expect("read");
        fs::write(&path, text.replace(from, to)).expect("written");
    };
    let session = || {
        let (sessions, problems) = list(home.path());
        assert_eq!(problems, Vec::<String>::new());
        sessions.into_iter().find(|session| session.id.as_str() == "ses_legacy0001").expect("listed")
    };
    let own = "session/b2f1c0d9e8a7f6e5d4c3b2a1908f7e6d5c4b3a29/ses_legacy0001.json";
    replace(own, "\"created\"", "\"began\"");
    replace(own, "\"updated\"", "\"updated\": -5, \"later\"");
    let found = session();
    assert_eq!((found.created_at, &*found.updated_at.to_string()), (None, "2026-07-16T11:06:40Z"));
    replace("message/ses_legacy0001/msg_legacy01.json", "\"created\"", "\"created\": 0, \"began\"");
    let found = session();
    assert_eq!((found.created_at, Some(found.updated_at)), (None, found.changed_at()));
}
