//! What an Amp thread says besides what its sample has.

use std::fs;

use serde_json::json;

use crate::homes::{list, told, words};

#[test]
fn failures_images_and_unknown_parts_come_as_what_they_are() {
    let temp = tempfile::tempdir().expect("a directory");
    let dir = temp.path().join(".local/share/amp/threads");
    fs::create_dir_all(&dir).expect("made");
    let image =
        json!({"type": "image", "source": {"type": "base64", "mediaType": "image/png", "data": "AAAA"}});
    let failed = json!({"type": "tool_result", "toolUseID": "t", "run": {"status": "error", "error": {"message": "no"}}});
    let tree = json!({"uri": "file:///a%20b", "repository": {"ref": "refs/heads/dev"}});
    let thread = json!({"id": "T-1", "env": {"initial": {"trees": [tree]}}, "messages": [
        {"role": "user", "messageId": 0, "content": [{"type": "text", "text": "ask\nmore"}, image]},
        {"role": "user", "messageId": 1, "content": [failed]},
        {"role": "oracle", "messageId": 2, "content": []},
        {"role": "assistant", "messageId": 3, "content": [{"type": "hologram"}]},
    ]});
    fs::write(dir.join("T-1.json"), thread.to_string()).expect("written");
    fs::write(dir.join("notes.json"), thread.to_string()).expect("written");
    let (sessions, problems) = list(temp.path());
    assert_eq!((sessions.len(), problems.len()), (1, 0));
    let session = &sessions[0];
    assert_eq!((&*session.title, session.cwd.as_deref()), ("ask", Some("/a b")));
    assert_eq!(session.branch.as_deref(), Some("dev"));
    assert_eq!(words(session), "ask\nmore image no other");
    let (entries, counts) = told(session);
    assert_eq!((entries[1].body.is_error, counts.unknown), (Some(true), 1));
    assert_eq!(entries[1].body.tool_call_id.as_deref(), Some("t"));
}
