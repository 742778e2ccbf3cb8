//! What Claude Code writes beside a conversation: its title, where it moved to, and that it was put away.

use std::{fs, path::Path};

use serde_json::{Value, json};
use sess_readers::Foreign;

use crate::homes::{list, words};

const ID: &str = "00000000-0000-4000-8000-00000000000a";

/// Writes a session of one prompt, said at noon in `/first`, with more records behind it.
fn home(more: &[Value]) -> tempfile::TempDir {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join(".claude/projects/-first");
    fs::create_dir_all(dir.join(ID)).expect("made");
    let prompt = json!({
        "type": "user", "uuid": "u1", "parentUuid": null, "sessionId": ID, "cwd": "/first",
        "timestamp": "2026-11-10T12:00:00Z", "message": {"role": "user", "content": "Hello"},
    });
    let lines: String = std::iter::once(&prompt).chain(more).map(|record| format!("{record}\n")).collect();
    fs::write(dir.join(format!("{ID}.jsonl")), lines).expect("written");
    home
}

fn listed(home: &Path) -> Foreign {
    let (mut sessions, problems) = list(home);
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!(sessions.len(), 1, "{sessions:?}");
    sessions.remove(0)
}

#[test]
fn a_title_with_an_id_of_its_own_takes_nothing_back() {
    let home = home(&[json!({"type": "custom-title", "uuid": "t1", "sessionId": ID, "customTitle": "Fork"})]);
    let session = listed(home.path());
    assert_eq!((session.title.as_str(), words(&session).as_str()), ("Fork", "Hello"));
}

#[test]
fn a_session_that_moved_to_another_worktree_is_there() {
    assert_eq!(listed(home(&[]).path()).cwd.as_deref(), Some("/first"));
    let moved = |cwd: &str| json!({"type": "relocated", "sessionId": ID, "relocatedCwd": cwd});
    let home = home(&[moved("/second"), moved("/third")]);
    assert_eq!(listed(home.path()).cwd.as_deref(), Some("/third"));
}

#[test]
fn a_session_is_archived_until_somebody_goes_on_with_it() {
    let home = home(&[]);
    let is_archived = |mark: &str| {
        let mark_path = home.path().join(".claude/projects/-first").join(ID).join("archived.json");
        fs::write(mark_path, mark).expect("written");
        listed(home.path()).is_archived
    };
    assert!(is_archived(r#"{"archived":true,"at":"2026-11-10T12:00:01Z","by":"sdk"}"#));
    assert!(!is_archived(r#"{"archived":false,"at":"2026-11-10T12:00:01Z","by":"sdk"}"#));
    assert!(!is_archived(r#"{"archived":true,"at":"2026-11-10T11:59:59Z","by":"sdk"}"#));
    assert!(!is_archived(r#"{"archived":true}"#));
    assert!(!is_archived("{"));
}
