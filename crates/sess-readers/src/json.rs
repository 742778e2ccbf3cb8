//! Pieces that the JSON of several agents has in common.

use std::borrow::Cow;

use serde::de::{Deserialize, DeserializeOwned};
use serde_json::{Map, Value};
use sess_core::{
    Timestamp,
    message::{Block, Body, Role},
    redact::{AROUND_CUT_BYTES, around_cut, redact},
};

use crate::mending::mend;

/// Reads JSON as JavaScript does: half a surrogate pair, of which texts there may be made and which is none of Unicode,
/// becomes U+FFFD.
pub(crate) fn from_slice<T: DeserializeOwned>(text: &[u8]) -> serde_json::Result<T> {
    borrowed(text, &mut Vec::new())
}

/// Reads JSON as [`from_slice`] does.
pub(crate) fn from_str<T: DeserializeOwned>(text: &str) -> serde_json::Result<T> {
    match serde_json::from_str(text) {
        Err(error) if error.is_syntax() => from_slice(text.as_bytes()),
        read => read,
    }
}

/// Reads JSON as [`from_slice`] does; what is read refers to the text, or to `mended`, where the text is kept that had to
/// be mended.
pub(crate) fn borrowed<'a, T: Deserialize<'a>>(
    text: &'a [u8],
    mended: &'a mut Vec<u8>,
) -> serde_json::Result<T> {
    match serde_json::from_slice(text) {
        // Few texts need it, and looking for that costs time.
        Err(error) if error.is_syntax() => {
            text.clone_into(mended);
            mend(mended, true);
            if mended == text { Err(error) } else { serde_json::from_slice(mended) }
        }
        read => read,
    }
}

/// Reads an instant as agents write it: RFC 3339, or a number of seconds or milliseconds. Zero is what a field holds
/// that nobody set, and before it no agent was there to write: these are none.
pub(crate) fn instant(value: &Value) -> Option<Timestamp> {
    match value {
        Value::String(text) => rfc3339(text),
        Value::Number(number) => {
            let number = number
                .as_i64()
                .or_else(|| number.as_f64().filter(|float| float.abs() < 1e15).map(|float| float as i64))?;
            millis(number)
        }
        _ => None,
    }
}

/// Reads an instant that is text, as [`instant`] does.
pub(crate) fn rfc3339(text: &str) -> Option<Timestamp> {
    Timestamp::parse_rfc3339(text).filter(|at| *at > Timestamp::default())
}

/// Reads a number that is seconds or milliseconds since 1970: before the year 5000 no
/// number of seconds is as large as any of milliseconds after 1973.
fn millis(number: i64) -> Option<Timestamp> {
    const SECONDS_MAX: i64 = 100_000_000_000;
    let ms = if number < SECONDS_MAX { number.checked_mul(1_000)? } else { number };
    Timestamp::from_millis(ms).filter(|at| *at > Timestamp::default())
}

/// Returns a message with nothing said yet.
pub(crate) fn empty(role: Role, at: Timestamp) -> Body {
    Body { content: Vec::new(), ..Body::text(role, "", at) }
}

/// Returns a tool's result.
pub(crate) fn tool_result(call_id: &str, content: Vec<Block>, is_error: bool, at: Timestamp) -> Body {
    let mut body = empty(Role::ToolResult, at);
    body.tool_call_id = Some(call_id.to_owned());
    body.is_error = is_error.then_some(true);
    body.content = content;
    body
}

pub(crate) fn text(text: impl Into<String>) -> Block {
    Block::Text { text: text.into() }
}

/// Returns a tool call; arguments that are no object are kept under a name of their own.
pub(crate) fn tool_call(id: &str, name: &str, arguments: Value) -> Block {
    let arguments = match arguments {
        Value::Object(arguments) => arguments,
        Value::Null => Map::new(),
        Value::String(text) => match from_str(&text) {
            Ok(Value::Object(arguments)) => arguments,
            _ if text.is_empty() => Map::new(),
            _ => Map::from_iter([("input".to_owned(), Value::String(text))]),
        },
        other => Map::from_iter([("input".to_owned(), other)]),
    };
    Block::ToolCall { id: id.to_owned(), name: name.to_owned(), arguments }
}

/// Returns a marker of where a sub-agent's session ran.
pub(crate) fn sub_session(id: sess_core::SessionId, at: Timestamp) -> Body {
    let mut body = empty(Role::System, at);
    body.content.push(Block::SubSession { session_id: id });
    body
}

/// Returns a marker of where the context was compacted.
pub(crate) fn compaction(summary: impl Into<String>, at: Timestamp) -> Body {
    let mut body = empty(Role::System, at);
    body.content.push(Block::Compaction { summary: summary.into() });
    body
}

/// Returns a block that this program has no word for, as it is.
pub(crate) fn other(fields: Map<String, Value>) -> Block {
    Block::Other(fields)
}

/// Returns a block that this program has no word for: what kind it is, and what is known of it.
pub(crate) fn named(kind: &str, fields: &[(&str, &str)]) -> Block {
    let known = fields.iter().filter(|(_, value)| !value.is_empty());
    let fields = known.map(|(name, value)| ((*name).to_owned(), Value::from(*value)));
    other(std::iter::once(("type".to_owned(), Value::from(kind))).chain(fields).collect())
}

/// Returns a file: an image where the address holds its bytes, else what it is called.
pub(crate) fn file(name: &str, mime_type: &str, url: &str) -> Block {
    let inline = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    let (told_type, data) = inline.unwrap_or_default();
    let mime_type = if mime_type.is_empty() { told_type } else { mime_type };
    if mime_type.starts_with("image/") && !data.is_empty() {
        return Block::Image { mime_type: mime_type.to_owned(), data: data.to_owned() };
    }
    let name = if name.is_empty() && inline.is_none() { url } else { name };
    named("file", &[("name", name), ("mimeType", mime_type), ("data", data)])
}

/// Returns the path that an address of a file on this machine names.
pub(crate) fn path(uri: &str) -> Option<String> {
    let mut rest = uri.strip_prefix("file://")?.as_bytes();
    let mut path = Vec::new();
    while let [byte, after @ ..] = rest {
        let digits = after.get(..2).filter(|_| *byte == b'%').and_then(|it| str::from_utf8(it).ok());
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        path.push(escaped.unwrap_or(*byte));
        rest = if escaped.is_some() { &after[2..] } else { after };
    }
    String::from_utf8(path).ok().filter(|path| path.starts_with('/'))
}

/// A text field of an object, or nothing.
pub(crate) fn field<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name).and_then(Value::as_str)
}

/// Removes what a host wrapped around or put into a prompt for the model alone.
pub(crate) fn without_wrappers<'a>(text: &'a str, tags: &[&str]) -> Cow<'a, str> {
    let mut rest = Cow::Borrowed(text);
    for tag in tags {
        let (open, close) = (format!("<{tag}"), format!("</{tag}>"));
        let mut from = 0;
        while let Some(start) = rest[from..].find(&open).map(|at| at + from) {
            let named = rest[start + open.len()..].starts_with(['>', ' ', '\n']);
            match rest[start..].find(&close) {
                Some(end) if named => {
                    let end = start + end + close.len();
                    rest = Cow::Owned(format!("{}{}", &rest[..start], rest[end..].trim_start_matches('\n')));
                    from = start;
                }
                _ => from = start + open.len(),
            }
        }
    }
    rest
}

/// Cuts what a person typed to a title: its first line, not too long, and no part of a secret that goes on behind it,
/// which no mask would know for one.
pub(crate) fn title(text: &str) -> String {
    const CHARS_MAX: usize = 120;
    let text = text.trim();
    let line = text.lines().next().unwrap_or_default().trim_end();
    let most = line.char_indices().nth(CHARS_MAX).map_or(line.len(), |(end, _)| end);
    let mut end = if is_masked_alike(text, most) { most } else { around_cut(text, most).start };
    while end < line.len() && !is_masked_before_dots(text, end) {
        end = text[..end].trim_end().rfind(char::is_whitespace).unwrap_or(0);
    }
    let shown = text[..end].trim_end();
    if end < line.len() { format!("{shown}…") } else { shown.to_owned() }
}

/// Tells whether what is masked of the beginning of a text stays masked when dots stand behind it: a value that ends in
/// them looks like a sample.
fn is_masked_before_dots(text: &str, end: usize) -> bool {
    let shown = text[..end].trim_end();
    is_masked_alike(text, shown.len()) && redact(&format!("{shown}…")).0 == format!("{}…", redact(shown).0)
}

/// Tells whether the beginning of a text is masked as it is where the whole stands.
fn is_masked_alike(text: &str, end: usize) -> bool {
    let around = text.floor_char_boundary(end.saturating_add(AROUND_CUT_BYTES));
    redact(&text[..around]).0.starts_with(&*redact(&text[..end]).0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrappers_are_removed_and_what_only_looks_like_one_stays() {
        let check = |text: &str, left: &str| {
            assert_eq!(without_wrappers(text, &["system-reminder", "ide_selection"]), left, "{text}");
        };
        check("plain <b>text</b>", "plain <b>text</b>");
        check("<system-reminder>x</system-reminder>\nprompt", "prompt");
        check("a<system-reminder>x</system-reminder>b<system-reminder>y</system-reminder>", "ab");
        check("<ide_selection lines=\"1\">x</ide_selection>do it", "do it");
        check("<system-reminder> without an end", "<system-reminder> without an end");
        check("<system-reminders>x</system-reminder>", "<system-reminders>x</system-reminder>");
    }

    #[test]
    fn a_title_ends_before_the_secret_that_it_would_cut_in_two() {
        let check = |text: &str, title_of_it: &str| assert_eq!(title(text), title_of_it, "{text}");
        let key = "sk-ant-api03-AbCdEfGhIjKlMnOpQrStUvWxYz0123456789abcd";
        let (x90, y60, y99) = ("x".repeat(90), "y".repeat(60), "y".repeat(99));
        check(&format!("{x90} {key} tail"), &format!("{x90}…"));
        check(
            &format!(
                "{y60} {{\"password\": \"hunter2 secret and long with spaces correct horse battery\"}} x"
            ),
            &format!("{y60} {{\"password\": \"…"),
        );
        check(
            &format!("{y99} postgres://admin:hunter2secretpw@db.example.com/x"),
            &format!("{y99} postgres://admin:…"),
        );
        for (before, secret) in [
            ("", "DATABASE_PASSWORD=correcthorsebatterystaple99"),
            ("Authorization:", "Bearer abcdefghijklmnop1234567890"),
            ("", "password: hunter2Xk99qqZ"),
            ("{\"password\":", "\"hunter2Xk99qqZ\"}"),
        ] {
            let value = secret.rsplit(['=', ' ']).next().expect("a value").trim_matches(['"', '}']);
            for pad in 60..120 {
                for end in ["", ".", ","] {
                    let text =
                        format!("{} {before} {secret}{end} is what I use, and it fails", "y".repeat(pad));
                    let shown = redact(&title(&text)).0.into_owned();
                    assert!(!shown.contains(&value[..8]), "{text}: {shown}");
                }
            }
        }
        // One that is whole is masked where it is shown.
        check(&format!("see {key}\nnext"), &format!("see {key}"));
        check(&format!("see {key} {x90}"), &format!("see {key} {}…", &x90[..120 - 5 - key.len()]));
        check(&format!(" {} \n", "é".repeat(120)), &"é".repeat(120));
        check(&"é".repeat(121), &format!("{}…", "é".repeat(120)));
    }

    #[test]
    fn addresses_of_files_are_paths_and_others_are_not() {
        let check = |uri: &str, to: &str| assert_eq!(path(uri).unwrap_or_default(), to, "{uri}");
        check("file:///home/dev/acme%20api", "/home/dev/acme api");
        check("file:///a%2", "/a%2");
        check("file:///a%zz%", "/a%zz%");
        check("file:///%ff", "");
        check("vscode-remote://host/a", "");
    }

    #[test]
    fn instants_are_seconds_milliseconds_or_text() {
        let check = |value: Value, at: &str| {
            assert_eq!(instant(&value).map(|at| at.to_string()).unwrap_or_default(), at, "{value}");
        };
        check(Value::from(1_794_301_200), "2026-11-10T09:00:00Z");
        check(Value::from(1_794_301_200_000_i64), "2026-11-10T09:00:00Z");
        check(Value::from(1_794_301_200.5), "2026-11-10T09:00:00Z");
        check(Value::from("2026-11-10T09:00:00Z"), "2026-11-10T09:00:00Z");
        check(Value::from(1e30), "");
        check(Value::from("soon"), "");
        check(Value::from(0), "");
        check(Value::from(0.2), "");
        check(Value::from(-1), "");
        check(Value::from(-1_794_301_200_000_i64), "");
        check(Value::from(i64::MIN), "");
        check(Value::from("1970-01-01T00:00:00Z"), "");
        check(Value::from("0001-01-01T00:00:00Z"), "");
    }
}
