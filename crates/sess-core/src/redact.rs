//! Masks secrets in what is shown. The stored text is never changed.
//!
//! One scan finds the few places where a secret could be named or begin; only
//! those are looked at. `shape` knows tokens by their look, `assignment` knows
//! values by the name they are given, `value` tells a secret from code.

use std::{borrow::Cow, ops::Range, sync::LazyLock};

use regex::Regex;
use serde_json::Value;

mod assignment;
mod name;
mod shape;
mod value;

#[cfg(test)]
mod tests;

/// Masks secrets; returns the text and how many were masked. Borrowed when nothing was.
///
/// Masked text is left as it is: `redact(redact(x)) == redact(x)`. Takes time
/// linear in the length of the text.
pub fn redact(text: &str) -> (Cow<'_, str>, u64) {
    let Some((mut masked, mut count)) = pass(text) else {
        return (Cow::Borrowed(text), 0);
    };
    // A mask is shorter than what it hides, so names and values can meet that
    // were apart before. Looking again until nothing is found makes the result
    // stable; one more look is the rule, and more are a deliberate puzzle.
    for _ in 1..PASSES_MAX {
        let Some((again, more)) = pass(&masked) else { break };
        masked = again;
        count += more;
    }
    (Cow::Owned(masked), count)
}

/// Masks every string of a JSON value, and the values of fields with a secret's name.
pub fn redact_json(value: &mut Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => redact_string(text),
        Value::Array(items) => items.iter_mut().map(redact_json).sum(),
        Value::Object(fields) => fields.iter_mut().map(|(name, value)| redact_field(name, value)).sum(),
    }
}

const PASSES_MAX: usize = 8;

/// What a look at one trigger found.
enum Look {
    Secret {
        span: Range<usize>,
        mask: Mask,
    },
    /// The scan goes on here.
    Nothing {
        resume: usize,
    },
}

#[derive(Clone, Copy)]
enum Mask {
    /// `***`, or the first six and last four characters of a longer one.
    Ends,
    /// `***`, however long: both ends of a PEM body are telling.
    Whole,
}

/// The fewest characters of a secret whose ends are shown.
const ENDS_CHARS_MIN: usize = 18;

/// Where a secret could be. Everything else is copied without a second look.
static TRIGGERS: LazyLock<Regex> = LazyLock::new(|| {
    let words = "(?i-u:key|token|secret|pass|pwd|authorization|bearer)";
    let places = "://|-----BEGIN |[0-9]{8}:";
    let prefixes: Vec<String> = shape::prefixes().map(regex::escape).collect();
    Regex::new(&format!("(?-u){}|{places}|{words}", prefixes.join("|"))).expect("a fixed expression")
});

/// Masks what one scan finds, or `None` when it finds nothing.
fn pass(text: &str) -> Option<(String, u64)> {
    let mut masked = String::new();
    let (mut copied, mut at, mut count) = (0, 0, 0);
    while let Some(trigger) = TRIGGERS.find_at(text, at) {
        at = match look(text, trigger.range()) {
            Look::Secret { span, mask } if span.start >= copied && !span.is_empty() => {
                masked.push_str(&text[copied..span.start]);
                push_mask(&mut masked, &text[span.clone()], mask);
                copied = span.end;
                count += 1;
                span.end
            }
            Look::Secret { .. } => trigger.end(),
            Look::Nothing { resume } => resume.max(trigger.start() + 1),
        };
        // An offset in the middle of a character is none for the next search.
        at = text.ceil_char_boundary(at);
    }
    if count == 0 {
        return None;
    }
    masked.push_str(&text[copied..]);
    Some((masked, count))
}

fn look(text: &str, trigger: Range<usize>) -> Look {
    let found = &text[trigger.clone()];
    let secret = match found.as_bytes()[0] {
        b':' => shape::url_password(text, trigger.end),
        b'0'..=b'9' => shape::telegram(text, trigger.clone()),
        b'-' => {
            return match shape::pem(text, trigger.clone()) {
                Some(span) => Look::Secret { span, mask: Mask::Whole },
                None => Look::Nothing { resume: trigger.end },
            };
        }
        _ if shape::is_prefix(found) => shape::token(text, trigger.start),
        _ => return assignment::look(text, trigger),
    };
    match secret {
        Some(span) => Look::Secret { span, mask: Mask::Ends },
        None => Look::Nothing { resume: trigger.start + 1 },
    }
}

fn push_mask(out: &mut String, secret: &str, mask: Mask) {
    let long = secret.chars().nth(ENDS_CHARS_MIN - 1).is_some();
    match mask {
        Mask::Ends if long => {
            let head = secret.char_indices().nth(6).map_or(0, |(at, _)| at);
            let tail = secret.char_indices().nth_back(3).map_or(secret.len(), |(at, _)| at);
            out.push_str(&secret[..head]);
            out.push('…');
            out.push_str(&secret[tail..]);
        }
        Mask::Ends | Mask::Whole => out.push_str("***"),
    }
}

fn redact_string(text: &mut String) -> u64 {
    let (masked, count) = redact(text);
    if let Cow::Owned(masked) = masked {
        *text = masked;
    }
    count
}

fn redact_field(name: &str, value: &mut Value) -> u64 {
    let Value::String(text) = value else {
        return redact_json(value);
    };
    if assignment::is_secret_field(name, text) {
        let mut masked = String::new();
        push_mask(&mut masked, text, Mask::Ends);
        *text = masked;
        return 1;
    }
    if name.to_ascii_lowercase().ends_with("authorization") {
        let line = format!("{name}: {text}");
        let (masked, count) = redact(&line);
        if let Some(rest) = masked.get(name.len() + 2..) {
            *text = rest.to_owned();
        }
        return count;
    }
    redact_string(text)
}
