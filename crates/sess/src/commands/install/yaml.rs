//! YAML text: an entry is put behind the line of its container's key, or at the end with a container of its own.
//!
//! The lines are looked at as far as block mappings need it. What is written in another way is refused, because the
//! result is read again and compared.

use serde_json::Value;

use super::document::{Entry, Refusal, line_break};

/// By how much a mapping is indented when nobody shows how.
const INDENT: &str = "  ";

pub fn parse(text: &str) -> Result<Option<Value>, String> {
    let is_said =
        |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with('#') && line.trim() != "---";
    if !text.lines().any(is_said) {
        return Ok(None);
    }
    let value: Value = serde_saphyr::from_str(text).map_err(|error| match error.without_snippet() {
        serde_saphyr::Error::MultipleDocuments { .. } => {
            "it has more than one document, and one is read".to_owned()
        }
        // The rest is a drawing of the place.
        error => {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            first.strip_prefix("error: ").unwrap_or(first).to_owned()
        }
    })?;
    Ok((!value.is_null()).then_some(value))
}

pub fn insert(text: &str, entry: &Entry) -> Result<(String, usize), Refusal> {
    let ([container], Some(key)) = (entry.path.as_slice(), &entry.key) else { return Err(Refusal::Style) };
    let newline = line_break(text);
    check_shape(text, container)?;
    let Some(line) = Line::of_key(text, container, "", 0) else {
        if let Some(nothing) = Nothing::of(text) {
            let (before, comment) = (&text[..nothing.start], text[nothing.word_end..nothing.end].trim_end());
            let (block, behind) = (block(key, &entry.value, INDENT, newline), &text[nothing.end..]);
            return Ok((format!("{before}{container}:{comment}{newline}{block}{behind}"), 1));
        }
        let parted = if text.is_empty() || text.ends_with('\n') { "" } else { newline };
        let block = block(key, &entry.value, INDENT, newline);
        return Ok((format!("{text}{parted}{container}:{newline}{block}"), 1));
    };
    let rest = text[line.value..line.end].trim();
    if let Some(word) = ["null", "Null", "NULL", "~"].into_iter().find(|word| is_alone(rest, word)) {
        // As if there were no value: that says the same.
        let at = line.value + text[line.value..line.end].find(word).ok_or(Refusal::Style)?;
        let before = text[..at].trim_end_matches([' ', '\t']);
        return insert(&format!("{before}{}", &text[at + word.len()..]), entry);
    }
    let (at, added) = if rest.is_empty() || rest.starts_with('#') {
        let below = text[line.end..].lines().find(|line| says(line));
        let indent = below.map_or(INDENT, indentation);
        let indent = if indent.is_empty() { INDENT } else { indent };
        let parted = if text[..line.end].ends_with('\n') { "" } else { newline };
        (line.end, format!("{parted}{}", block(key, &entry.value, indent, newline)))
    } else if let Some(inner) = rest.strip_prefix('{') {
        let comma = if inner.trim_start().starts_with('}') { "" } else { ", " };
        let brace = line.value + text[line.value..].find('{').ok_or(Refusal::Style)?;
        (brace + 1, in_braces(key, &entry.value) + comma)
    } else {
        return Err(Refusal::Style);
    };
    Ok((format!("{}{added}{}", &text[..at], &text[at..]), 0))
}

/// Returns what a person does to put an entry into a document that cannot be edited here.
pub fn advice(text: &str, entry: &Entry) -> Option<String> {
    let ([container], Some(key)) = (entry.path.as_slice(), &entry.key) else { return None };
    let whole = parse(text).ok()??;
    let comma = "with a comma between it and what they have";
    Some(if whole.get(container).is_some() {
        // In braces and on a line of its own it is written the same.
        let member = in_braces(key, &entry.value);
        format!(
            "put this into its {container}, between the braces if there are some, {comma}, or else on a line that is \
             indented as the others are:\n{member}"
        )
    } else {
        let member = in_braces(container, &entry.wrapped(&[]));
        format!(
            "put this on a line of its own, or, if the whole is in braces, between these, {comma}:\n{member}"
        )
    })
}

fn check_shape(text: &str, container: &str) -> Result<(), Refusal> {
    let whole = parse(text).map_err(Refusal::Unparsable)?.unwrap_or_default();
    if !whole.is_null() && !whole.is_object() {
        return Err(Refusal::shape(&[], "a mapping"));
    }
    match whole.get(container) {
        Some(value) if !value.is_null() && !value.is_object() => {
            Err(Refusal::shape(&[container.to_owned()], "a mapping"))
        }
        _ => Ok(()),
    }
}

/// The line of a document that says that there is nothing, if that is all it says.
struct Nothing {
    start: usize,
    word_end: usize,
    end: usize,
}

impl Nothing {
    fn of(text: &str) -> Option<Self> {
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            let end = start + line.len();
            let words = ["{}", "null", "Null", "NULL", "~"];
            if let Some(word) = words.into_iter().find(|word| is_alone(line.trim_end(), word)) {
                return Some(Self { start, word_end: start + word.len(), end });
            }
            if says(line) && line.trim() != "---" {
                return None;
            }
            start = end;
        }
        None
    }
}

/// Tells whether a text is this word and nothing else but a comment.
fn is_alone(text: &str, word: &str) -> bool {
    text.strip_prefix(word).is_some_and(|rest| {
        let comment = rest.trim_start_matches([' ', '\t']);
        rest.is_empty() || (comment.len() < rest.len() && comment.starts_with('#'))
    })
}

/// Takes out the lines of an entry, and those of its container when it was made for it and nothing is in it now, a
/// comment neither.
pub fn remove(text: &str, entry: &Entry, made: usize) -> Option<String> {
    let ([container], Some(key)) = (entry.path.as_slice(), &entry.key) else { return None };
    let line = Line::of_key(text, container, "", 0)?;
    if text[line.value..line.end].trim_start().starts_with('{') {
        let put = in_braces(key, &entry.value);
        let start = line.value + text[line.value..line.end].find(&put)?;
        let rest = &text[start + put.len()..];
        let rest = rest.strip_prefix(", ").unwrap_or(rest);
        return Some(format!("{}{rest}", &text[..start]));
    }
    let below = text[line.end..].lines().find(|line| says(line))?;
    let own = Line::of_key(text, key, indentation(below), line.end)?;
    let mut end = own.end;
    let mut at = own.end;
    for below in text[own.end..].split_inclusive('\n') {
        at += below.len();
        if !says(below) {
            continue;
        }
        // A list may stand under its key without being indented.
        let is_deeper = indentation(below).len() > own.indent
            || (indentation(below).len() == own.indent && below.trim_start().starts_with("- "));
        if !is_deeper {
            break;
        }
        end = at;
    }
    let is_blank = |line: &&str| line.trim().is_empty();
    let rest = text[end..].lines().find(|line| !is_blank(line));
    let is_empty =
        text[line.value..own.start].trim().is_empty() && rest.is_none_or(|line| indentation(line).is_empty());
    let start = if made > 0 && is_empty { line.start } else { own.start };
    Some(format!("{}{}", &text[..start], &text[end..]))
}

/// The line of a key in a block mapping.
struct Line {
    start: usize,
    /// Where the colon was.
    value: usize,
    end: usize,
    indent: usize,
}

impl Line {
    /// Finds a key that is indented by exactly this, from a place on.
    fn of_key(text: &str, key: &str, indent: &str, from: usize) -> Option<Self> {
        let mut start = from;
        for line in text[from..].split_inclusive('\n') {
            let end = start + line.len();
            if says(line) && indentation(line).len() < indent.len() {
                return None;
            }
            for written in [key.to_owned(), format!("\"{key}\""), format!("'{key}'")] {
                let named = line.strip_prefix(indent).and_then(|rest| rest.strip_prefix(&written));
                let value = named.and_then(|rest| rest.trim_start_matches(' ').strip_prefix(':'));
                if let Some(value) = value
                    && (value.is_empty() || value.starts_with([' ', '\t', '\r', '\n']))
                {
                    return Some(Self { start, value: end - value.len(), end, indent: indent.len() });
                }
            }
            start = end;
        }
        None
    }
}

fn in_braces(key: &str, value: &Value) -> String {
    format!("{}: {value}", Value::from(key))
}

fn says(line: &str) -> bool {
    !line.trim().is_empty() && !line.trim_start().starts_with('#')
}

fn indentation(line: &str) -> &str {
    &line[..line.len() - line.trim_start_matches(' ').len()]
}

fn block(key: &str, value: &Value, indent: &str, newline: &str) -> String {
    let mut lines = format!("{indent}{key}:{newline}");
    for (name, value) in value.as_object().into_iter().flatten() {
        // JSON is YAML, and says the same of any text.
        lines += &format!("{indent}{INDENT}{name}: {value}{newline}");
    }
    lines
}
