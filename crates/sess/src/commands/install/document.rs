//! A configuration file of another program, and an entry in it.
//!
//! Each format knows how to put an entry into its text and how to take it out. Here the result is read again and
//! compared: whatever the text looked like, nothing but the entry has changed, or the edit is refused.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{host::HOOK, json, json::Dialect, toml, yaml};

const BYTE_ORDER_MARK: char = '\u{feff}';

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    Json(Dialect),
    Toml,
    Yaml,
}

/// A value and its place in a document.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The names of the containers, from the outside.
    pub path: Vec<String>,
    /// Its name in the innermost of them; without one that is a list, and the value one of many.
    pub key: Option<String>,
    pub value: Value,
}

/// What stands at the place of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Nothing,
    /// This very value.
    Same,
    /// Somebody else's.
    Other,
}

/// Why a document is not edited.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("it cannot be read ({0}); mend it first")]
    Unparsable(String),
    #[error("{at} is not {expected} in it; mend it first")]
    Shape { at: String, expected: &'static str },
    #[error("it is written in a way that cannot be edited here")]
    Style,
}

impl Refusal {
    pub fn shape(path: &[String], expected: &'static str) -> Self {
        let at = if path.is_empty() { "the whole".to_owned() } else { path.join(".") };
        Self::Shape { at, expected }
    }
}

impl Entry {
    /// Returns a value under a name.
    pub fn named(path: &[&str], key: &str, value: Value) -> Self {
        Self { path: owned(path), key: Some(key.to_owned()), value }
    }

    /// Returns a value of a list.
    pub fn listed(path: &[&str], value: Value) -> Self {
        Self { path: owned(path), key: None, value }
    }

    /// Returns where it is, as people write that.
    pub fn place(&self) -> String {
        let place = self.path.iter().chain(&self.key).map(String::as_str).collect::<Vec<_>>().join(".");
        if self.key.is_some() { place } else { format!("an entry in {place}") }
    }

    /// Returns the document that has this entry and nothing else.
    pub fn alone(&self) -> Value {
        self.wrapped(&self.path)
    }

    /// Returns the value inside its container, and that inside the ones that `path` names.
    pub fn wrapped(&self, path: &[String]) -> Value {
        let inner = match &self.key {
            Some(key) => Value::Object(Map::from_iter([(key.clone(), self.value.clone())])),
            None => Value::Array(vec![self.value.clone()]),
        };
        path.iter().rev().fold(inner, |value, name| Value::Object(Map::from_iter([(name.clone(), value)])))
    }

    fn found_in(&self, document: Option<&Value>) -> Found {
        let container =
            document.and_then(|root| self.path.iter().try_fold(root, |value, name| value.get(name)));
        match (&self.key, container) {
            (None, Some(Value::Array(values))) if values.contains(&self.value) => Found::Same,
            (None, Some(Value::Array(values))) if values.iter().any(|value| self.is_changed_in(value)) => {
                Found::Other
            }
            (None, _) => Found::Nothing,
            (Some(key), container) => match container.and_then(|container| container.get(key)) {
                None => Found::Nothing,
                Some(value) if *value == self.value => Found::Same,
                Some(_) => Found::Other,
            },
        }
    }

    /// Tells whether a value of the list is this one, changed: a hook runs the same command, whatever else is said of it.
    fn is_changed_in(&self, value: &Value) -> bool {
        let Some(command) = text_that(&self.value, &|text| text.contains(HOOK)) else { return false };
        let hook = &command[command.find(HOOK).unwrap_or_default()..];
        // Another name may begin like that of this host.
        let goes_on = |rest: &str| rest.starts_with(|c: char| c.is_alphanumeric() || "-_".contains(c));
        let has_hook =
            |text: &str| text.match_indices(hook).any(|(at, _)| !goes_on(&text[at + hook.len()..]));
        text_that(value, &has_hook).is_some()
    }

    /// Takes the entry out of a document, and the innermost `made` containers when they are empty then.
    fn take_out(&self, document: &mut Value, made: usize) {
        let Some(container) = self.path.iter().try_fold(&mut *document, |value, name| value.get_mut(name))
        else {
            return;
        };
        match (&self.key, container) {
            (Some(key), Value::Object(members)) => drop(members.shift_remove(key)),
            (None, Value::Array(values)) => {
                if let Some(index) = values.iter().rposition(|value| *value == self.value) {
                    values.remove(index);
                }
            }
            _ => {}
        }
        for depth in (self.path.len() - made..self.path.len()).rev() {
            let parent =
                self.path[..depth].iter().try_fold(&mut *document, |value, name| value.get_mut(name));
            let Some(Value::Object(members)) = parent else { return };
            let is_empty = match members.get(&self.path[depth]) {
                Some(Value::Object(below)) => below.is_empty(),
                Some(Value::Array(below)) => below.is_empty(),
                _ => false,
            };
            if !is_empty {
                return;
            }
            members.shift_remove(&self.path[depth]);
        }
    }
}

impl Format {
    pub fn find(self, text: &str, entry: &Entry) -> Result<Found, Refusal> {
        Ok(entry.found_in(self.parse(text)?.as_ref()))
    }

    /// Returns the text with the entry, and how many containers were made for it.
    pub fn insert(self, text: &str, entry: &Entry) -> Result<(String, usize), Refusal> {
        let before = self.parse(text)?;
        let (mark, body) = split_mark(text);
        let (body, made) = match self {
            Self::Json(dialect) => json::insert(body, dialect, entry)?,
            Self::Toml => (toml::insert(body, entry)?, 0),
            Self::Yaml => yaml::insert(body, entry)?,
        };
        let after = self.parse(&body).ok().flatten().ok_or(Refusal::Style)?;
        // Without the entry it says what it said.
        let mut rest = after.clone();
        entry.take_out(&mut rest, made);
        let is_same = match before {
            Some(before) => self.said(&rest, entry) == self.said(&before, entry),
            None => after == entry.alone(),
        };
        if entry.found_in(Some(&after)) == Found::Same && is_same {
            Ok((format!("{mark}{body}"), made))
        } else {
            Err(Refusal::Style)
        }
    }

    /// Returns the text without the entry, and without those of the innermost `made` containers that have nothing in them
    /// then: a comment is something.
    pub fn remove(self, text: &str, entry: &Entry, made: usize) -> Result<String, Refusal> {
        let before = self.parse(text)?;
        let (mark, body) = split_mark(text);
        let removed = match self {
            Self::Json(dialect) => json::remove(body, dialect, entry, made),
            Self::Toml => toml::remove(body, entry),
            Self::Yaml => yaml::remove(body, entry, made),
        };
        let body = removed.ok_or(Refusal::Style)?;
        let said =
            |value: Option<Value>| value.map_or(Value::Object(Map::new()), |value| self.said(&value, entry));
        let rest = said(self.parse(&body).map_err(|_| Refusal::Style)?);
        let without = |made| {
            let mut expected = before.clone();
            expected.iter_mut().for_each(|expected| entry.take_out(expected, made));
            said(expected)
        };
        let is_expected = (0..=made).any(|made| without(made) == rest);
        if is_expected { Ok(format!("{mark}{body}")) } else { Err(Refusal::Style) }
    }

    /// Tells whether a document says nothing.
    pub fn is_empty(self, text: &str) -> bool {
        let says_nothing =
            |value: Option<Value>| value.is_none_or(|value| value == Value::Object(Map::new()));
        let has_comment = text.contains('#') || text.contains("//") || text.contains("/*");
        !has_comment && self.parse(text).is_ok_and(says_nothing)
    }

    /// Returns what a document says besides an entry.
    ///
    /// A table of TOML is there as soon as something is in it, and a key of YAML may have no value: that the
    /// outermost container is there and empty says nothing.
    fn said(self, document: &Value, entry: &Entry) -> Value {
        let mut document = document.clone();
        if !matches!(self, Self::Json(_))
            && let Value::Object(members) = &mut document
            && let Some(name) = entry.path.first()
            && members.get(name).is_some_and(|value| value.is_null() || *value == Value::Object(Map::new()))
        {
            members.shift_remove(name);
        }
        document
    }

    fn parse(self, text: &str) -> Result<Option<Value>, Refusal> {
        let (_, body) = split_mark(text);
        match self {
            Self::Json(dialect) => json::parse(body, dialect),
            Self::Toml => toml::parse(body),
            Self::Yaml => yaml::parse(body),
        }
        .map_err(Refusal::Unparsable)
    }
}

/// Returns what breaks the lines of a text.
pub fn line_break(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

/// Returns the first text in a value that is meant.
fn text_that<'v>(value: &'v Value, is_meant: &dyn Fn(&str) -> bool) -> Option<&'v str> {
    match value {
        Value::String(text) => is_meant(text).then_some(text),
        Value::Array(values) => values.iter().find_map(|value| text_that(value, is_meant)),
        Value::Object(members) => members.values().find_map(|value| text_that(value, is_meant)),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

fn split_mark(text: &str) -> (&str, &str) {
    match text.strip_prefix(BYTE_ORDER_MARK) {
        Some(body) => (&text[..BYTE_ORDER_MARK.len_utf8()], body),
        None => ("", text),
    }
}

fn owned(path: &[&str]) -> Vec<String> {
    path.iter().map(|&name| name.to_owned()).collect()
}
