//! The JSON Lines format of `sess import` and `sess export`.
//!
//! The first line is the session:
//!
//! ```text
//! {"type":"session","id":…,"key":…,"agentId":…,"title":…,"createdAt":…,"cwd"?:…,"parentKey"?:…,"starred"?:true,"source"?:…}
//! ```
//!
//! and each further line one message in the transcript format. `createdAt` is
//! RFC 3339; `source` stands there only when the session is not our own. What is
//! read and written again comes out the same, byte for byte, once the optional
//! parts have been filled in:
//!
//! | absent | becomes |
//! |---|---|
//! | `key` | `agent:<agentId>:chat:<id>` |
//! | `agentId` | the agent that the key names, else the source's |
//! | `title` | empty |
//! | `source` | `native` |
//! | a message's `seq` | its place, from 1 |
//! | a message's `timestamp` | that of the message before it, else `createdAt` |
//! | a message's `id` | made from the message and its place: the same in every import |

use std::{
    collections::HashSet,
    io::{self, BufRead, Read},
};

use serde::Serialize;
use serde_json::{Map, Value};
use sess_core::{
    AgentId, MessageId, SessionId, SessionKey, Source, Timestamp,
    message::Body,
    session::{NewSession, Session},
};
use sess_store::{ImportedSession, NewMessage};

use super::made_id;

/// The longest line that is read. A longer one is refused before it fills the memory.
pub const LINE_SIZE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The most characters of a file's own text that an error repeats.
const PROBLEM_LEN_MAX: usize = 300;

/// Why a file was refused. Nothing of it may be kept then.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    #[error("line {line}: {problem}")]
    Line { line: u64, problem: String },
    #[error("the file could not be read")]
    Read(#[source] io::Error),
}

/// Reads one session with its messages.
///
/// Blank lines, a byte order mark and Windows line ends do no harm. Everything
/// that the format does not say is an error that names its line, because a file
/// that is understood in part would be kept in part. Fields of messages that this
/// version does not know are kept.
pub fn parse(input: impl BufRead) -> Result<ImportedSession, FormatError> {
    let mut lines = Lines { input, number: 0 };
    let Some((number, line)) = lines.next()? else {
        let problem = format!("there is no session: expected {SESSION_LINE}");
        return Err(FormatError::Line { line: 1, problem });
    };
    let mut imported = session_line(&line).map_err(|problem| refused(number, problem))?;

    let mut ids: HashSet<MessageId> = HashSet::new();
    while let Some((number, line)) = lines.next()? {
        let message = message_line(&line, &imported).map_err(|problem| refused(number, problem))?;
        if !ids.insert(message.id.clone()) {
            let problem = format!("the message id {} is there twice", message.id);
            return Err(refused(number, problem));
        }
        imported.messages.push(message);
    }
    Ok(imported)
}

/// Returns the first line of a session's file, without a line end.
///
/// Its messages follow it as the store keeps them, one `StoredMessage::to_json` a line.
pub fn header(session: &Session) -> String {
    let header = Header {
        kind: "session",
        id: &session.id,
        key: &session.key,
        agent_id: &session.agent,
        title: &session.title,
        created_at: session.created_at.to_string(),
        cwd: session.cwd.as_deref(),
        parent_key: session.parent.as_ref(),
        starred: session.starred.then_some(true),
        source: (session.source != Source::Native).then_some(session.source),
    };
    serde_json::to_string(&header).expect("a header is plain text fields")
}

/// The order of the fields is the order they are written in.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Header<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    id: &'a SessionId,
    key: &'a SessionKey,
    agent_id: &'a AgentId,
    title: &'a str,
    created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cwd: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_key: Option<&'a SessionKey>,
    #[serde(skip_serializing_if = "Option::is_none")]
    starred: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<Source>,
}

const SESSION_LINE: &str = r#"{"type":"session","id":…,"createdAt":…} as the first line"#;

fn session_line(line: &str) -> Result<ImportedSession, String> {
    let mut fields = object(line)?;
    if fields.shift_remove("type") != Some(Value::from("session")) {
        return Err(format!("this is not a session: expected {SESSION_LINE}"));
    }
    let id = text(&mut fields, "id")?.ok_or(r#"the session has no "id""#)?;
    let id: SessionId = parsed(&id)?;
    let source = match text(&mut fields, "source")? {
        Some(name) => parsed(&name)?,
        None => Source::Native,
    };
    let key: Option<SessionKey> = text(&mut fields, "key")?.map(|key| parsed(&key)).transpose()?;
    let agent = match (text(&mut fields, "agentId")?, &key) {
        (Some(agent), _) => parsed(&agent)?,
        (None, Some(key)) => key.agent().unwrap_or_else(|| source.agent()),
        (None, None) => source.agent(),
    };
    let key = key.unwrap_or_else(|| SessionKey::chat(&agent, &id));
    let title = text(&mut fields, "title")?.unwrap_or_default();
    let created_at = text(&mut fields, "createdAt")?
        .ok_or(r#"the session has no "createdAt": expected an RFC 3339 time"#)?;
    let created_at = Timestamp::parse_rfc3339(&created_at).ok_or_else(|| {
        format!(r#""createdAt" is "{created_at}", expected an RFC 3339 time like 2026-11-10T12:00:00Z"#)
    })?;
    let cwd = text(&mut fields, "cwd")?;
    let parent = text(&mut fields, "parentKey")?.map(|key| parsed(&key)).transpose()?;
    let starred = match fields.shift_remove("starred") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(starred)) => starred,
        Some(other) => return Err(wrong_type("starred", &other, "true or false")),
    };
    // There is no place to keep a field that we do not know, and dropping it
    // would lose data in silence.
    if let Some(name) = fields.keys().next() {
        return Err(format!(r#"the session has an unknown field "{name}""#));
    }
    let facts = NewSession::chat(id.clone(), source, created_at).facts;
    let session = NewSession { id, key, agent, source, title, cwd, parent, facts, created_at };
    Ok(ImportedSession { session, starred, messages: Vec::new() })
}

/// Reads the message that comes after those of `imported`.
fn message_line(line: &str, imported: &ImportedSession) -> Result<NewMessage, String> {
    let mut fields = object(line)?;
    if fields.get("type").and_then(Value::as_str) == Some("session") {
        return Err("a second session: expected only messages after the first line".to_owned());
    }
    let id: Option<MessageId> = text(&mut fields, "id")?.map(|id| parsed(&id)).transpose()?;
    let seq = imported.messages.len() as u64 + 1;
    match fields.shift_remove("seq") {
        None | Some(Value::Null) => {}
        Some(given) if given.as_u64() == Some(seq) => {}
        Some(given) => {
            let problem = format!(r#""seq" is {given}, expected {seq}: messages count from 1, without gaps"#);
            return Err(problem);
        }
    }
    match fields.get("role") {
        Some(Value::String(role)) if ROLES.contains(&role.as_str()) => {}
        Some(Value::String(role)) => {
            return Err(format!(r#"unknown role "{role}": expected one of {}"#, ROLES.join(", ")));
        }
        None => {
            return Err(format!(r#"the message has no "role": expected one of {}"#, ROLES.join(", ")));
        }
        Some(other) => return Err(wrong_type("role", other, "a string")),
    }
    match fields.get("content") {
        Some(Value::Array(_)) => {}
        None => {
            return Err(r#"the message has no "content": expected an array of blocks"#.to_owned());
        }
        Some(other) => return Err(wrong_type("content", other, "an array of blocks")),
    }
    match fields.shift_remove("timestamp") {
        None | Some(Value::Null) => {
            let before = imported.messages.last().map(|message| message.body.timestamp);
            let at = before.unwrap_or(imported.session.created_at);
            fields.insert("timestamp".to_owned(), Value::from(at.as_millis()));
        }
        Some(given) => match given.as_i64().and_then(Timestamp::from_millis) {
            Some(at) => {
                fields.insert("timestamp".to_owned(), Value::from(at.as_millis()));
            }
            None => {
                let problem = format!(r#""timestamp" is {given}, expected milliseconds since 1970"#);
                return Err(problem);
            }
        },
    }
    let body: Body = serde_json::from_value(Value::Object(fields)).map_err(|error| error.to_string())?;
    let id = id.unwrap_or_else(|| made_id(&imported.session.id, seq, &body));
    Ok(NewMessage { id, body })
}

const ROLES: [&str; 4] = ["user", "assistant", "toolResult", "system"];

fn object(line: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(line) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(other) => Err(format!("expected a JSON object, found {}", kind(&other))),
        Err(error) if error.is_eof() => Err("the line is cut short: expected a whole JSON object".to_owned()),
        Err(error) => {
            let cause = error.to_string();
            // Its own line number would be 1 whatever the line.
            let cause = cause.rsplit_once(" at line ").map_or(cause.as_str(), |(cause, _)| cause);
            Err(format!("not valid JSON at column {}: {cause}", error.column()))
        }
    }
}

/// Takes a text out of the fields; `null` counts as absent.
///
/// Taking one must not move the others: unknown fields keep their order.
fn text(fields: &mut Map<String, Value>, name: &str) -> Result<Option<String>, String> {
    match fields.shift_remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(wrong_type(name, &other, "a string")),
    }
}

fn parsed<T: std::str::FromStr<Err: ToString>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

fn wrong_type(name: &str, found: &Value, expected: &str) -> String {
    format!(r#""{name}" is {}, expected {expected}"#, kind(found))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn refused(line: u64, mut problem: String) -> FormatError {
    if let Some((end, _)) = problem.char_indices().nth(PROBLEM_LEN_MAX) {
        problem.truncate(end);
        problem.push('…');
    }
    FormatError::Line { line, problem }
}

/// The lines of a file that are not blank, with their numbers.
struct Lines<R> {
    input: R,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    fn next(&mut self) -> Result<Option<(u64, String)>, FormatError> {
        loop {
            let mut bytes = Vec::new();
            // One byte more than a line may have is its line end, or one too many.
            let mut limited = self.input.by_ref().take(LINE_SIZE_BYTES_MAX as u64 + 1);
            if limited.read_until(b'\n', &mut bytes).map_err(FormatError::Read)? == 0 {
                return Ok(None);
            }
            self.number += 1;
            if bytes.last() == Some(&b'\n') {
                bytes.pop();
            }
            if bytes.len() > LINE_SIZE_BYTES_MAX {
                let problem = format!("the line is longer than {LINE_SIZE_BYTES_MAX} bytes");
                return Err(refused(self.number, problem));
            }
            if self.number == 1 && bytes.starts_with(b"\xef\xbb\xbf") {
                bytes.drain(..3);
            }
            if bytes.trim_ascii().is_empty() {
                continue;
            }
            let line = String::from_utf8(bytes).map_err(|error| {
                let at = error.utf8_error().valid_up_to() + 1;
                refused(self.number, format!("not UTF-8 at byte {at}"))
            })?;
            return Ok(Some((self.number, line)));
        }
    }
}

#[cfg(test)]
mod tests;
