//! From a line of bytes to a message, or to a sentence about what is wrong.
//!
//! Whatever a client sends, it costs that one line: nothing here closes the
//! connection, and nothing is repeated back at length.

use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, RequestId};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::LINE_BYTES_MAX;

const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;
const INVALID_PARAMS: i32 = -32602;

/// The most JSON values in one message. A request to us has a few dozen; parsed,
/// each takes a hundred times the two bytes that it may have on the line.
pub(crate) const VALUES_MAX: usize = 100_000;

/// How much of a client's own words, or of a parser's, an error repeats.
const QUOTE_CHARS_MAX: usize = 120;

/// What one line turned out to be.
pub(super) enum Read {
    Message(Box<ClientJsonRpcMessage>),
    /// Nothing that wants an answer.
    Nothing,
    /// Wrong; this line is the answer.
    Refused(Vec<u8>),
}

/// Reads one line, without its newline.
pub(super) fn read(line: &[u8]) -> Read {
    let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line).trim_ascii();
    if line.is_empty() {
        return Read::Nothing;
    }
    let text = match std::str::from_utf8(line) {
        Ok(text) => text,
        Err(error) => {
            let at = error.valid_up_to();
            let sentence = format!("the line is not UTF-8 at byte {at}");
            return refuse(&Value::Null, PARSE_ERROR, &sentence);
        }
    };
    if values(line) > VALUES_MAX {
        let sentence = format!("the line holds too many values: the most is {VALUES_MAX}");
        return refuse_request(text, &sentence);
    }
    let error = match serde_json::from_str::<ClientJsonRpcMessage>(text) {
        // We never ask the client anything, so an answer from it is astray.
        Ok(JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)) => return Read::Nothing,
        Ok(message) => return Read::Message(Box::new(message)),
        Err(error) => error.to_string(),
    };
    let sentence = format!(
        "not a JSON-RPC 2.0 request ({}): it has \"jsonrpc\": \"2.0\", a method, an id that is a \
         string or an integer, and params that are an object",
        clip(&error)
    );
    refuse_request(text, &sentence)
}

/// Returns the answer to a line that was too long to be read.
pub(super) fn too_long() -> Vec<u8> {
    let sentence = format!("the line is too long: the most is {LINE_BYTES_MAX} bytes");
    refusal(&Value::Null, INVALID_REQUEST, &sentence)
}

/// Returns the answer to a request that does not say which revision it speaks.
pub(super) fn no_revision(id: &RequestId) -> Vec<u8> {
    let sentence = "the request names no protocol version: begin with initialize, or put \
                    io.modelcontextprotocol/protocolVersion into its _meta";
    refusal(&id.clone().into_json_value(), INVALID_PARAMS, sentence)
}

/// Returns what is wrong with the parameters of a method that we serve; `None`
/// for a method that we do not.
pub(super) fn misfit(method: &str, params: Option<&Value>) -> Option<String> {
    const METHODS: [&str; 10] = [
        "initialize",
        "ping",
        "prompts/get",
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/templates/list",
        "server/discover",
        "tools/call",
        "tools/list",
    ];
    if !METHODS.contains(&method) {
        return None;
    }
    let arguments = params.and_then(|params| params.get("arguments")).unwrap_or(&Value::Null);
    let found = match arguments {
        Value::Null | Value::Object(_) => {
            return Some(format!("the parameters of {method} are missing or malformed"));
        }
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
    };
    Some(format!("arguments must be an object, not {found}"))
}

/// Returns the beginning of `text`, short enough to be part of an error.
pub(super) fn clip(text: &str) -> &str {
    text.char_indices().nth(QUOTE_CHARS_MAX).map_or(text, |(end, _)| &text[..end])
}

/// What is needed of a message that did not fit, to say so to the right request.
#[derive(Default, Deserialize)]
struct Envelope {
    id: Option<Id>,
    method: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Id {
    Number(i64),
    Text(String),
    Other(IgnoredAny),
}

/// Returns about how many JSON values `text` holds, without building any.
pub(crate) fn values(text: &[u8]) -> usize {
    let (mut count, mut in_string, mut escaped) = (1, false, false);
    for &byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b',' | b'[' | b'{' if !in_string => count += 1,
            _ => {}
        }
    }
    count
}

/// Refuses a line that is no request, with the id of the one that it may have
/// been. `IgnoredAny` builds nothing: a hostile line costs only its own length.
fn refuse_request(text: &str, sentence: &str) -> Read {
    if let Err(error) = serde_json::from_str::<IgnoredAny>(text) {
        let sentence = format!("the line is not JSON: {}", clip(&error.to_string()));
        return refuse(&Value::Null, PARSE_ERROR, &sentence);
    }
    if text.starts_with('[') {
        let sentence = "batches are not supported; send one message per line";
        return refuse(&Value::Null, INVALID_REQUEST, sentence);
    }
    let envelope: Envelope = serde_json::from_str(text).unwrap_or_default();
    let id = match (envelope.id, envelope.method) {
        (Some(Id::Number(id)), _) => json!(id),
        (Some(Id::Text(id)), _) => json!(id),
        // Notifications are never answered, not even wrong ones.
        (None, Some(_)) => return Read::Nothing,
        (Some(Id::Other(_)) | None, _) => Value::Null,
    };
    refuse(&id, INVALID_REQUEST, sentence)
}

fn refuse(id: &Value, code: i32, sentence: &str) -> Read {
    tracing::debug!(sentence, "refused a line");
    Read::Refused(refusal(id, code, sentence))
}

fn refusal(id: &Value, code: i32, sentence: &str) -> Vec<u8> {
    let error = json!({ "code": code, "message": sentence });
    let mut line = json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string().into_bytes();
    line.push(b'\n');
    line
}
