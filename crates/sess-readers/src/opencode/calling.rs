//! Which session of opencode makes a call.
//!
//! It tells its servers nothing about that, and one server serves all of its sessions. But it notes each call of a
//! tool, with its arguments, before it makes it, and the note says that the call is under way.

use std::path::Path;

use rusqlite::Connection;
use serde_json::Value;
use sess_core::SessionId;

use super::{named_database, object};
use crate::{Homes, Result, database, session::session_id};

/// How many of the newest notes are looked at: many sessions may be at work.
const NOTES_MAX: i64 = 200;

/// Returns the one session that is calling a tool with these arguments just now.
///
/// `tool` is what we call it: opencode puts the name of the server in front. Two sessions that make the same call
/// at the same moment cannot be told apart, and then it is neither.
pub fn opencode_caller(homes: &Homes, tool: &str, arguments: &Value) -> Option<SessionId> {
    let root = homes.data().join("opencode");
    let path = named_database(homes, &root).unwrap_or_else(|| root.join("opencode.db"));
    match callers_in(&path, tool, arguments).unwrap_or_default().as_slice() {
        [caller] => Some(caller.clone()),
        _ => None,
    }
}

fn callers_in(path: &Path, tool: &str, arguments: &Value) -> Result<Vec<SessionId>> {
    let notes = database::look(path, |connection: &Connection| {
        let sql = "SELECT session_id, data FROM part ORDER BY rowid DESC LIMIT ?1";
        let mut statement = connection.prepare(sql)?;
        let rows =
            statement.query_map([NOTES_MAX], |row| Ok((database::text(row, 0), database::text(row, 1))))?;
        rows.collect::<rusqlite::Result<Vec<_>>>()
    })?;
    let mut callers: Vec<SessionId> = notes
        .into_iter()
        .filter(|(_, data)| object(data.clone()).is_some_and(|note| is_call(&note, tool, arguments)))
        .filter_map(|(session, _)| session_id(&session?))
        .collect();
    callers.sort();
    callers.dedup();
    Ok(callers)
}

fn is_call(note: &Value, tool: &str, arguments: &Value) -> bool {
    let name = note["tool"].as_str().unwrap_or_default();
    let is_named = name == tool || name.strip_suffix(tool).is_some_and(|server| server.ends_with('_'));
    let state = &note["state"];
    is_named && note["type"] == "tool" && state["status"] == "running" && state["input"] == *arguments
}

#[cfg(test)]
mod tests {
    use rusqlite::params;
    use serde_json::json;

    use super::*;

    /// Notes are written `session status tool`; the answer is who calls `write_plan` with `{"a":1}`.
    #[track_caller]
    fn check(notes: &[&str], answer: Option<&str>) {
        let home = tempfile::tempdir().expect("a directory");
        let dir = home.path().join(".local/share/opencode");
        std::fs::create_dir_all(&dir).expect("made");
        let connection = Connection::open(dir.join("opencode.db")).expect("opened");
        connection
            .execute_batch("CREATE TABLE part (id TEXT PRIMARY KEY, session_id TEXT, data TEXT)")
            .expect("made");
        for (n, note) in notes.iter().enumerate() {
            let words: Vec<&str> = note.split(' ').collect();
            let input = if words.len() > 3 { json!({ "a": 2 }) } else { json!({ "a": 1 }) };
            let data =
                json!({ "type": "tool", "tool": words[2], "state": { "status": words[1], "input": input } });
            connection
                .execute(
                    "INSERT INTO part VALUES (?1, ?2, ?3)",
                    params![n.to_string(), words[0], data.to_string()],
                )
                .expect("inserted");
        }
        drop(connection);
        let caller = opencode_caller(&Homes::at(home.path()), "write_plan", &json!({ "a": 1 }));
        assert_eq!(caller.as_ref().map(SessionId::as_str), answer);
    }

    #[test]
    fn the_session_whose_call_is_under_way_is_the_caller() {
        check(&[], None);
        check(&["ses_1 running sess_write_plan"], Some("ses_1"));
        check(&["ses_1 completed sess_write_plan", "ses_2 running other_write_plan"], Some("ses_2"));
        check(&["ses_1 running sess_write_plan", "ses_1 running sess_write_plan"], Some("ses_1"));
    }

    #[test]
    fn other_calls_are_none_of_ours() {
        check(&["ses_1 completed sess_write_plan"], None);
        check(&["ses_1 running sess_read_plan"], None);
        check(&["ses_1 running overwrite_plan"], None);
        check(&["ses_1 running sess_write_plan other"], None);
    }

    #[test]
    fn two_that_cannot_be_told_apart_are_neither() {
        check(&["ses_1 running sess_write_plan", "ses_2 running sess_write_plan"], None);
    }
}
