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

/// Masks like [`redact_json`] in JSON as it is written, which is parsed only when a secret could be in it.
pub fn redact_json_text(json: &str) -> serde_json::Result<Cow<'_, str>> {
    // Every name of a secret has a trigger in it, and only these escapes can hide one.
    if !TRIGGERS.is_match(json) && !HIDING_ESCAPES.iter().any(|escape| json.contains(escape)) {
        return Ok(Cow::Borrowed(json));
    }
    let mut value: Value = serde_json::from_str(json)?;
    Ok(if redact_json(&mut value) == 0 { Cow::Borrowed(json) } else { Cow::Owned(value.to_string()) })
}

/// Escapes of characters that a trigger is made of.
const HIDING_ESCAPES: [&str; 2] = ["\\u", "\\/"];

/// How far around a cut a secret is looked for.
pub const AROUND_CUT_BYTES: usize = 8 * 1024;

/// Returns what has to go when a text is cut at `at`: half of a secret would not be recognised as one.
///
/// What ends there ends at the start of the range, what begins there begins at its end. It is empty
/// when nothing is in the way.
pub fn around_cut(text: &str, at: usize) -> Range<usize> {
    let first = text.ceil_char_boundary(at.saturating_sub(AROUND_CUT_BYTES));
    let last = text.floor_char_boundary((at + AROUND_CUT_BYTES).min(text.len()));
    let mut range = at..at;
    for (span, _) in secrets(&text[first..last]) {
        let span = first + span.start..first + span.end;
        // Without what closes it, or without its name, nothing may tell it from other words.
        if span.start < at && at < span.end + CLOSED_BYTES {
            range.start = range.start.min(span.start);
        }
        if span.start < at + NAMED_BYTES && at < span.end {
            range.end = range.end.max(span.end);
        }
    }
    range
}

/// As much may stand between the beginning of a name and the secret.
const NAMED_BYTES: usize = 256;
/// As long is what closes a secret at most: a quote, or the last line of a PEM key.
const CLOSED_BYTES: usize = 64;
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
    let (mut copied, mut count) = (0, 0);
    for (span, mask) in secrets(text) {
        masked.push_str(&text[copied..span.start]);
        push_mask(&mut masked, &text[span.clone()], mask);
        copied = span.end;
        count += 1;
    }
    if count == 0 {
        return None;
    }
    masked.push_str(&text[copied..]);
    Some((masked, count))
}

/// Returns the secrets that one scan finds, in order.
fn secrets(text: &str) -> impl Iterator<Item = (Range<usize>, Mask)> {
    let (mut found_to, mut at) = (0, 0);
    std::iter::from_fn(move || {
        loop {
            let trigger = TRIGGERS.find_at(text, at)?;
            let (next, secret) = match look(text, trigger.range()) {
                Look::Secret { span, mask } if span.start >= found_to && !span.is_empty() => {
                    found_to = span.end;
                    (span.end, Some((span, mask)))
                }
                Look::Secret { .. } => (trigger.end(), None),
                Look::Nothing { resume } => (resume.max(trigger.start() + 1), None),
            };
            // An offset in the middle of a character is none for the next search.
            at = text.ceil_char_boundary(next);
            if secret.is_some() {
                return secret;
            }
        }
    })
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
