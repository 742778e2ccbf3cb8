//! Secrets known by the name they are given: `API_KEY=…`, `"password": "…"`, `Authorization: …`.

use std::ops::Range;

use super::{
    Look, Mask,
    name::{self, Kind},
    shape,
    value::{self, Place},
};

/// Looks whether the word found is part of a name, and a secret is assigned to it.
pub(super) fn look(text: &str, word: Range<usize>) -> Look {
    let found = text[word.clone()].to_ascii_lowercase();
    let name = name_around(text, word.clone());
    let nothing = Look::Nothing { resume: name.end.max(word.end) };
    // The tail of a masked secret is no name.
    if text[..name.start].ends_with('…') {
        return nothing;
    }
    let span = match found.as_str() {
        "authorization" => header_credential(text, &name),
        "bearer" => bearer_credential(text, &name),
        _ => name::kind(&text[name.clone()]).and_then(|kind| assigned(text, &name, kind)),
    };
    match span {
        Some(span) => Look::Secret { span, mask: Mask::Ends },
        None => nothing,
    }
}

/// Whether a JSON field of this name holds a secret.
pub(super) fn is_secret_field(name: &str, text: &str) -> bool {
    name.len() <= NAME_BYTES_MAX
        && name::kind(name).is_some_and(|kind| value::is_secret(kind, Place::Field, text))
}

/// The longest name that is looked at, on either side of the word found.
const NAME_BYTES_MAX: usize = 64;
/// As much of a value is looked at; more would let a text full of names take long.
const VALUE_BYTES_MAX: usize = 256;

fn name_around(text: &str, word: Range<usize>) -> Range<usize> {
    let bytes = text.as_bytes();
    let is_name = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    let before = bytes[..word.start].iter().rev().take(NAME_BYTES_MAX);
    let mut start = word.start - before.take_while(|b| is_name(b) || **b == b'.').count();
    let after = bytes[word.end..].iter().take(NAME_BYTES_MAX);
    let end = word.end + after.take_while(|b| is_name(b)).count();
    // In JSON a line break is written `\n`, and the name follows an `n`.
    let escaped = start > 0 && bytes[start - 1] == b'\\' && matches!(bytes[start], b'n' | b'r' | b't');
    if escaped && start < word.start {
        start += 1;
    }
    while start < word.start && matches!(bytes[start], b'-' | b'.') {
        start += 1;
    }
    start..end
}

/// What stands between a name and its value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Separator {
    Equals,
    Colon,
    /// `setenv("NAME", "value")`
    Comma,
    /// `<password>value</password>`
    Tag,
    /// `--password value`
    Space,
}

/// Returns the secret that is assigned to a name.
fn assigned(text: &str, name: &Range<usize>, kind: Kind) -> Option<Range<usize>> {
    let (quote, after_quote) = closing_quote(text, name.end);
    let spaced = skip_spaces(text, after_quote);
    let (separator, after) = separator(text, name, quote.is_some(), after_quote, spaced)?;
    let mut start = skip_spaces(text, after);
    let mut opened = opening_quote(text, start);
    if separator == Separator::Colon && opened.is_none() {
        // `API_KEY: &str = "…"`: the type stands before the value.
        if let Some(typed) = after_type(text, start) {
            start = typed;
            opened = opening_quote(text, start);
        }
    }
    if let Some((mark, inner)) = opened {
        let value = quoted(text, inner, mark);
        let field = quote.is_some() && separator == Separator::Colon;
        let place = if field {
            Place::Field
        } else if separator == Separator::Comma {
            // Two strings in a list are most often just that.
            Place::Bare
        } else if (is_env(text, name, after_quote, start, separator)
            || separator == Separator::Equals && is_environ(text, name))
            && is_string(text, &value)
        {
            Place::Env
        } else if is_shell(text, name, after_quote, start, separator) {
            Place::Shell
        } else {
            Place::Quoted
        };
        let is_secret = value::is_secret(kind, place, &text[value.clone()])
            || kind == Kind::Key
                && separator == Separator::Equals
                && value::is_long_key(&text[value.clone()]);
        return is_secret.then(|| whole(text, value, |c| c == '\n' || mark.ends_with(c)));
    }
    // Outside quotes a quoted name has numbers, constants or calls for a value.
    if quote.is_some() || separator == Separator::Comma {
        return None;
    }
    let value = unquoted(text, start);
    let next = text.as_bytes().get(value.end).copied();
    let tight = separator == Separator::Equals && start == after_quote + 1;
    let place = match next {
        Some(b'(' | b'[' | b'{' | b'<') if separator != Separator::Tag => return None,
        // `Server=…;Password=…;` connects to a database.
        Some(b';') if tight && text[..name.start].ends_with(';') => Place::Line,
        _ if is_env(text, name, after_quote, start, separator) => Place::Env,
        Some(b',' | b')' | b']' | b'}' | b';') => Place::Bare,
        _ if separator == Separator::Tag => Place::Line,
        _ if is_shell(text, name, after_quote, start, separator) => Place::Shell,
        _ if separator == Separator::Space => Place::Line,
        _ if tight || is_line(text, name, &value) => Place::Line,
        // `buffer: Curve25519Seed = …` has a type for a value.
        Some(b' ') if separator == Separator::Colon && text[value.end..].starts_with(" =") => return None,
        _ => Place::Bare,
    };
    let secret = &text[value.clone()];
    let is_secret = value::is_secret(kind, place, secret)
        || kind == Kind::Key && tight && value::is_long_key(secret)
        || kind != Kind::Key && is_setting(text, name, &value, separator, tight);
    is_secret.then(|| whole(text, value, is_delimiter))
}

/// Whether the value of a variable in capitals is a string of its own: in
/// `"TOKEN=" + token + "&x"` the quote after the name closes one.
fn is_string(text: &str, value: &Range<usize>) -> bool {
    let closed = value.len() + 4 > VALUE_BYTES_MAX || text[value.end..].starts_with(['"', '\'', '`', '\\']);
    let inner = &text[value.clone()];
    let words = inner.contains(char::is_whitespace);
    (closed || !words) && !inner.starts_with([' ', ',', ')', ';', ':', ']', '}', '+', '.', '\\', '|'])
}

/// Whether this is a line `password: word` of YAML, or `password=word` of an `.ini` file.
fn is_setting(
    text: &str,
    name: &Range<usize>,
    value: &Range<usize>,
    separator: Separator,
    tight: bool,
) -> bool {
    let named = &text[name.clone()];
    let one_case =
        !named.bytes().any(|b| b.is_ascii_lowercase()) || !named.bytes().any(|b| b.is_ascii_uppercase());
    let before = &text[..name.start];
    let begins = match separator {
        Separator::Colon => true,
        // With an indent it is an argument of a call.
        Separator::Equals => {
            tight && (before.is_empty() || before.ends_with('\n') || before.ends_with("\\n"))
        }
        Separator::Comma | Separator::Tag | Separator::Space => false,
    };
    begins
        && one_case
        && is_line(text, name, value)
        && name::ends_secret(named)
        && value::is_line_literal(&text[value.clone()])
}

/// `Authorization: <scheme> <credential>`: the scheme stays, the credential is the secret.
fn header_credential(text: &str, name: &Range<usize>) -> Option<Range<usize>> {
    let header = text[name.clone()].to_ascii_lowercase();
    if !header.ends_with("authorization") {
        return None;
    }
    let (quote, after_quote) = closing_quote(text, name.end);
    let spaced = skip_spaces(text, after_quote);
    let after = match text.as_bytes().get(spaced) {
        Some(b':' | b'=') => spaced + 1,
        Some(b',') if quote.is_some() => spaced + 1,
        _ => return None,
    };
    let spaced = skip_spaces(text, after);
    let opened = opening_quote(text, spaced);
    let start = opened.map_or(spaced, |(_, inner)| inner);
    let first = unquoted(text, start);
    let gap = skip_spaces(text, first.end);
    let scheme = text[first.clone()].to_ascii_lowercase();
    let known = name::lists(SCHEMES, &scheme);
    let has_scheme = known && gap > first.end;
    let credential = if has_scheme { unquoted(text, gap) } else { first };
    if has_scheme && scheme == "digest" && text[credential.clone()].contains('=') {
        let span = parameters(text, name, opened, credential);
        let shown = &text[span.clone()];
        return (!shown.contains('…') && !shown.contains("***")).then_some(span);
    }
    if matches!(text.as_bytes().get(credential.end), Some(b'(' | b'[' | b'{' | b'<')) {
        return None;
    }
    let secret = &text[credential.clone()];
    // Nothing follows, so it is no sentence; and the colon or the quote says that it is no code.
    let is_value =
        (opened.is_some() || text[..spaced].trim_end().ends_with(':')) && is_end(text, credential.end);
    let is_secret = match has_scheme {
        true => value::is_credential(secret),
        false => value::is_secret(Kind::Secret, Place::Quoted, secret),
    } || is_value && (has_scheme || !known) && value::is_header_literal(secret);
    is_secret.then(|| whole(text, credential, is_delimiter))
}

const SCHEMES: &str = "bearer basic token bot apikey api-key digest negotiate key splunk";

/// Returns the parameters of `Digest username="…", response="…"`, up to the quote or line that holds them.
fn parameters(
    text: &str,
    name: &Range<usize>,
    opened: Option<(&str, usize)>,
    first: Range<usize>,
) -> Range<usize> {
    let before = text[..name.start].chars().next_back().filter(|c| matches!(c, '"' | '\''));
    let outer = before.map(|c| if c == '"' { "\"" } else { "'" });
    match opened.map(|(mark, _)| mark).or(outer) {
        Some(mark) => quoted(text, first.start, mark),
        None => {
            let rest = &text[first.start..];
            let most = rest.floor_char_boundary(rest.len().min(4 * VALUE_BYTES_MAX));
            let line = rest[..most].find('\n').unwrap_or(most);
            let end = rest[..line].find("\\n").unwrap_or(line);
            first.start..first.start + end
        }
    }
}

/// Whether a line or a string ends here.
fn is_end(text: &str, at: usize) -> bool {
    let rest = &text.as_bytes()[skip_spaces(text, at)..];
    rest.first().is_none_or(|b| b"\n\r\\\"'`".contains(b))
}

/// `Bearer <credential>` where no header is named.
fn bearer_credential(text: &str, name: &Range<usize>) -> Option<Range<usize>> {
    let start = skip_spaces(text, name.end);
    let credential = unquoted(text, start);
    let secret = &text[credential.clone()];
    let is_secret = start > name.end && value::is_secret(Kind::Secret, Place::Bare, secret);
    is_secret.then(|| whole(text, credential, is_delimiter))
}

/// Returns the quote that closes a name, and where the text goes on: behind the bracket of `map["name"]`.
fn closing_quote(text: &str, at: usize) -> (Option<&str>, usize) {
    let Some(mark) = quote_mark(&text[at..]) else { return (None, at) };
    let after = at + mark.len();
    match text.as_bytes().get(after) {
        Some(b']') => (Some(mark), after + 1),
        _ => (Some(mark), after),
    }
}

/// Returns the quote that opens a string here, after a prefix as in `b"…"`, and where its text starts.
fn opening_quote(text: &str, start: usize) -> Option<(&str, usize)> {
    let rest = &text[start..];
    let prefix = rest.bytes().take(2).take_while(|b| b"bBrRfFuU".contains(b)).count();
    let mark = quote_mark(&rest[prefix..])?;
    Some((mark, start + prefix + mark.len()))
}

/// Returns the quote at the start, with the backslashes that a quote has inside JSON inside JSON.
fn quote_mark(rest: &str) -> Option<&str> {
    const BACKSLASHES_MAX: usize = 7;
    let backslashes = rest.bytes().take(BACKSLASHES_MAX).take_while(|&b| b == b'\\').count();
    matches!(rest.as_bytes().get(backslashes), Some(b'"' | b'\'' | b'`')).then(|| &rest[..backslashes + 1])
}

fn separator(
    text: &str,
    name: &Range<usize>,
    quoted: bool,
    after_quote: usize,
    spaced: usize,
) -> Option<(Separator, usize)> {
    let rest = &text[spaced..];
    let before = &text[..name.start];
    if rest.starts_with("==") || rest.starts_with("=~") || rest.starts_with("::") {
        return None;
    }
    if rest.starts_with(":=") || rest.starts_with("=>") {
        return Some((Separator::Equals, spaced + 2));
    }
    match rest.as_bytes().first()? {
        b'=' => Some((Separator::Equals, spaced + 1)),
        b':' => Some((Separator::Colon, spaced + 1)),
        b',' if quoted => Some((Separator::Comma, spaced + 1)),
        b'>' if before.ends_with('<') => Some((Separator::Tag, spaced + 1)),
        _ if before.ends_with("--") && spaced == after_quote + 1 => Some((Separator::Space, spaced)),
        _ => None,
    }
}

/// Returns where the string starts in `name: Type = "…"`.
fn after_type(text: &str, start: usize) -> Option<usize> {
    const TYPE_BYTES_MAX: usize = 48;
    let bytes = text.as_bytes();
    let of_type = |b: &u8| b.is_ascii_alphanumeric() || b" _&<>'[]?|.:".contains(b);
    let equals = start + bytes[start..].iter().take(TYPE_BYTES_MAX).take_while(|b| of_type(b)).count();
    let starts_string = |at: &usize| opening_quote(text, *at).is_some();
    (bytes.get(equals) == Some(&b'=')).then(|| skip_spaces(text, equals + 1)).filter(starts_string)
}

/// Returns all of a secret that may be longer than what was looked at. What is
/// walked over here is masked, so no text is walked over twice.
fn whole(text: &str, looked_at: Range<usize>, is_end: impl Fn(char) -> bool) -> Range<usize> {
    // The limit may have fallen into a character of up to four bytes.
    if looked_at.len() + 4 <= VALUE_BYTES_MAX {
        return looked_at;
    }
    let rest = &text[looked_at.end..];
    looked_at.start..looked_at.end + rest.find(is_end).unwrap_or(rest.len())
}

fn is_delimiter(c: char) -> bool {
    u8::try_from(c).is_ok_and(|b| b.is_ascii() && value::is_delimiter(b))
}

fn quoted(text: &str, start: usize, mark: &str) -> Range<usize> {
    let rest = &text[start..];
    let most = rest.floor_char_boundary(rest.len().min(VALUE_BYTES_MAX));
    let line = rest[..most].find('\n').unwrap_or(most);
    let quote = &mark[mark.len() - 1..];
    let backslashes = |at: usize| rest[..at].bytes().rev().take_while(|&b| b == b'\\').count();
    // A quote with more backslashes than the first is part of the text.
    let closing = rest[..line].match_indices(quote).find(|&(at, _)| backslashes(at) < mark.len());
    // A string whose end was cut off still holds the secret's beginning.
    let end = closing.map_or(line, |(at, _)| at - backslashes(at));
    start..start + end
}

fn unquoted(text: &str, start: usize) -> Range<usize> {
    let rest = &text[start..];
    let most = rest.floor_char_boundary(rest.len().min(VALUE_BYTES_MAX));
    let end = rest[..most].bytes().position(value::is_delimiter).unwrap_or(most);
    // In a query the next parameter follows; anywhere else an `&` is part of the value.
    let parameter = rest[..end].match_indices('&').find(|(at, _)| {
        let after =
            rest[at + 1..end].trim_start_matches(|c: char| c.is_ascii_alphanumeric() || "_-.".contains(c));
        after.starts_with('=') && after.len() < end - at - 1
    });
    start..start + parameter.map_or(end, |(at, _)| at)
}

/// Whether this is `NAME=value` of an environment: in capitals, without spaces.
fn is_env(text: &str, name: &Range<usize>, after_name: usize, value: usize, separator: Separator) -> bool {
    let capitals =
        text[name.clone()].bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
    capitals && is_shell(text, name, after_name, value, separator)
}

/// Whether this is a variable of the environment in code: `os.environ["NAME"]`, `process.env.NAME`.
fn is_environ(text: &str, name: &Range<usize>) -> bool {
    let (owner, variable) = match text[name.clone()].rsplit_once('.') {
        Some(dotted) => dotted,
        None => {
            let before = text[..name.start].trim_end_matches(['"', '\'', '`', '\\']);
            let Some(owner) = before.strip_suffix('[') else { return false };
            (owner, &text[name.clone()])
        }
    };
    let is_map = ["environ", "env", "ENV"].iter().any(|map| {
        let before = owner.strip_suffix(map);
        before.is_some_and(|before| {
            !before.ends_with(|c: char| c.is_ascii_alphanumeric()) || before.ends_with("\\n")
        })
    });
    is_map && !variable.bytes().any(|b| b.is_ascii_lowercase())
}

/// Whether this is `NAME=value`, in capitals and without spaces, or a parameter of a URL.
fn is_shell(text: &str, name: &Range<usize>, after_name: usize, value: usize, separator: Separator) -> bool {
    let tight = separator == Separator::Equals && value == after_name + 1;
    let capitals = !text[name.clone()].bytes().any(|b| b.is_ascii_lowercase());
    let parameter = text[..name.start].ends_with(['?', '&']);
    tight && (capitals && shape::is_start(text, name.start) || parameter)
}

/// Whether the assignment is all there is on its line.
fn is_line(text: &str, name: &Range<usize>, value: &Range<usize>) -> bool {
    const INDENT_BYTES_MAX: usize = 64;
    let bytes = text.as_bytes();
    let indent = bytes[..name.start].iter().rev().take(INDENT_BYTES_MAX);
    let indent = indent.take_while(|b| matches!(b, b' ' | b'\t' | b'-' | b'+')).count();
    let before = &text[..name.start - indent];
    let quoted = indent == 0 && before.ends_with(['"', '\'']);
    let begins = before.is_empty() || before.ends_with('\n') || before.ends_with("\\n") || quoted;
    let ends = bytes[value.end..]
        .iter()
        .find(|b| !matches!(b, b' ' | b'\r'))
        .is_none_or(|b| b"\n#\\\"'".contains(b));
    begins && ends
}

fn skip_spaces(text: &str, at: usize) -> usize {
    const SPACES_MAX: usize = 32;
    at + text.as_bytes()[at..].iter().take(SPACES_MAX).take_while(|b| matches!(b, b' ' | b'\t')).count()
}
