//! JSON text, edited in place: what is put in and taken out is the only text that changes.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, ser::PrettyFormatter};

use super::document::{Entry, Refusal};

/// How deep a document may be nested.
const DEPTH_MAX: usize = 200;

/// What a host's reader allows beyond JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    Strict,
    /// `//` and `/* */`.
    Comments,
    /// Comments, and a comma behind the last value.
    Relaxed,
}

/// Reads a document; nothing but space is `None`.
pub fn parse(text: &str, dialect: Dialect) -> Result<Option<Value>, String> {
    Ok(tree(text, dialect)?.map(|root| root.value()))
}

/// Puts an entry first in its container, and makes the containers that are missing.
///
/// First, because then one piece of text is added at one place, and no comma behind somebody else's value.
pub fn insert(text: &str, dialect: Dialect, entry: &Entry) -> Result<(String, usize), Refusal> {
    let Some(root) = tree(text, dialect).map_err(Refusal::Unparsable)? else {
        let whole = entry.alone();
        return Ok((format!("{text}{}\n", pretty(&whole, "  ")), entry.path.len()));
    };
    let mut container = &root;
    let mut depth = 0;
    for name in &entry.path {
        container.require(Shape::Object, &entry.path[..depth])?;
        let Some(found) = container.member(name) else { break };
        container = found;
        depth += 1;
    }
    let made = entry.path.len() - depth;
    let (key, value) = if made == 0 {
        let shape = if entry.key.is_some() { Shape::Object } else { Shape::Array };
        container.require(shape, &entry.path)?;
        (entry.key.as_deref(), entry.value.clone())
    } else {
        (Some(entry.path[depth].as_str()), entry.wrapped(&entry.path[depth + 1..]))
    };
    Ok((put(text, &root, container, key, &value), made))
}

/// Takes an entry out, and the innermost `made` containers when nothing else is in them, a comment neither.
pub fn remove(text: &str, dialect: Dialect, entry: &Entry, made: usize) -> Option<String> {
    let mut text = {
        let root = tree(text, dialect).ok()??;
        let container = root.at(&entry.path)?;
        let index = container.children.iter().rposition(|child| {
            let is_named = entry.key.is_none() || child.key == entry.key;
            is_named && child.node.value() == entry.value
        })?;
        cut(text, dialect, container, index)
    };
    for depth in (entry.path.len() - made..entry.path.len()).rev() {
        let root = tree(&text, dialect).ok()??;
        let parent = root.at(&entry.path[..depth])?;
        let index =
            parent.children.iter().rposition(|child| child.key.as_ref() == Some(&entry.path[depth]))?;
        if !is_bare(&text, &parent.children[index], &entry.path[depth]) {
            break;
        }
        text = cut(&text, dialect, parent, index);
    }
    Some(text)
}

/// Tells whether a container has nothing in it, nor anything but a colon behind its name.
fn is_bare(text: &str, child: &Child, name: &str) -> bool {
    let (key, node) = (Value::from(name).to_string(), &child.node);
    let colon = text[child.start..node.start].strip_prefix(&key).map(str::trim);
    colon == Some(":") && text[node.start + 1..node.end - 1].trim().is_empty()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Object,
    Array,
    Scalar,
}

/// A value and where it stands.
struct Node {
    shape: Shape,
    start: usize,
    end: usize,
    scalar: Value,
    children: Vec<Child>,
}

struct Child {
    key: Option<String>,
    /// Where its key begins, or the value of a list.
    start: usize,
    node: Node,
}

impl Node {
    fn value(&self) -> Value {
        match self.shape {
            Shape::Scalar => self.scalar.clone(),
            Shape::Array => self.children.iter().map(|child| child.node.value()).collect(),
            Shape::Object => {
                let named = self.children.iter();
                let member = |child: &Child| Some((child.key.clone()?, child.node.value()));
                Value::Object(named.filter_map(member).collect::<Map<_, _>>())
            }
        }
    }

    /// Returns a member; of several with one name the last counts, as it does for the hosts.
    fn member(&self, name: &str) -> Option<&Node> {
        let found = self.children.iter().rfind(|child| child.key.as_deref() == Some(name));
        found.map(|child| &child.node)
    }

    fn at(&self, path: &[String]) -> Option<&Node> {
        path.iter().try_fold(self, |node, name| node.member(name))
    }

    fn require(&self, shape: Shape, path: &[String]) -> Result<(), Refusal> {
        let expected = match shape {
            Shape::Object => "an object",
            Shape::Array | Shape::Scalar => "a list",
        };
        if self.shape == shape { Ok(()) } else { Err(Refusal::shape(path, expected)) }
    }
}

fn tree(text: &str, dialect: Dialect) -> Result<Option<Node>, String> {
    let mut scanner = Scanner { text, at: 0, dialect };
    scanner.space()?;
    if scanner.at == text.len() {
        // Comments alone would end up in front of what is inserted; nobody has such a file.
        return if text.trim().is_empty() { Ok(None) } else { Err(scanner.wrong("a value")) };
    }
    let root = scanner.value(0)?;
    scanner.space()?;
    if scanner.at < text.len() { Err(scanner.wrong("the end")) } else { Ok(Some(root)) }
}

struct Scanner<'a> {
    text: &'a str,
    at: usize,
    dialect: Dialect,
}

impl Scanner<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn wrong(&self, expected: &str) -> String {
        let before = &self.text[..self.at];
        let line = before.matches('\n').count() + 1;
        let column = before.len() - before.rfind('\n').map_or(0, |at| at + 1) + 1;
        format!("line {line}, column {column}: expected {expected}")
    }

    /// Passes over space and comments.
    fn space(&mut self) -> Result<(), String> {
        loop {
            let rest = self.rest();
            let blank = rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
            if blank > 0 {
                self.at += blank;
            } else if self.dialect != Dialect::Strict && rest.starts_with("//") {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else if self.dialect != Dialect::Strict && rest.starts_with("/*") {
                self.at += rest.find("*/").ok_or_else(|| self.wrong("the end of a comment"))? + 2;
            } else {
                return Ok(());
            }
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node, String> {
        let start = self.at;
        let shape = match self.rest().as_bytes().first() {
            Some(b'{') => Shape::Object,
            Some(b'[') => Shape::Array,
            _ => {
                let scalar = self.scalar()?;
                return Ok(Node { shape: Shape::Scalar, start, end: self.at, scalar, children: Vec::new() });
            }
        };
        if depth == DEPTH_MAX {
            return Err(self.wrong("fewer levels"));
        }
        let close = if shape == Shape::Object { '}' } else { ']' };
        self.at += 1;
        let mut children = Vec::new();
        loop {
            self.space()?;
            let may_end = children.is_empty() || self.dialect == Dialect::Relaxed;
            if may_end && self.rest().starts_with(close) {
                break;
            }
            let start = self.at;
            let mut key = None;
            if shape == Shape::Object {
                key = Some(self.string()?);
                self.space()?;
                if !self.rest().starts_with(':') {
                    return Err(self.wrong("a colon"));
                }
                self.at += 1;
                self.space()?;
            }
            let node = self.value(depth + 1)?;
            children.push(Child { key, start, node });
            self.space()?;
            if self.rest().starts_with(close) {
                break;
            }
            if !self.rest().starts_with(',') {
                return Err(self.wrong(if shape == Shape::Object { "a comma or }" } else { "a comma or ]" }));
            }
            self.at += 1;
        }
        self.at += 1;
        Ok(Node { shape, start, end: self.at, scalar: Value::Null, children })
    }

    fn scalar(&mut self) -> Result<Value, String> {
        if self.rest().starts_with('"') {
            return Ok(Value::String(self.string()?));
        }
        let rest = self.rest();
        let word = &rest
            [..rest.find(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c)).unwrap_or(rest.len())];
        let value = serde_json::from_str(word).map_err(|_| self.wrong("a value"))?;
        self.at += word.len();
        Ok(value)
    }

    fn string(&mut self) -> Result<String, String> {
        let rest = self.rest();
        if !rest.starts_with('"') {
            return Err(self.wrong("a string"));
        }
        let mut is_escaped = false;
        let end = rest[1..].find(|c| {
            let ends = c == '"' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            ends
        });
        let raw = &rest[..end.ok_or_else(|| self.wrong("the end of a string"))? + 2];
        let read = match serde_json::from_str(raw) {
            Ok(read) => read,
            // Half of a pair of surrogates is no text here, but JavaScript writes such strings and reads them.
            Err(_) if raw.contains("\\ud") || raw.contains("\\uD") => raw.to_owned(),
            Err(_) => return Err(self.wrong("a string without control characters and unknown escapes")),
        };
        self.at += raw.len();
        Ok(read)
    }
}

/// Puts a value into a container as its first.
fn put(text: &str, root: &Node, container: &Node, key: Option<&str>, value: &Value) -> String {
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let inside = container.start + 1;
    let first = container.children.first();
    let gap_end = first.map_or(container.end - 1, |first| first.start);
    let line_end = first_line_end(&text[inside..gap_end]).map(|at| inside + at);
    let comma = if first.is_some() { "," } else { "" };
    let is_on_lines = line_end.is_some() || (first.is_none() && text.contains('\n'));
    let outer = indentation(text, container.start);
    let unit = unit(text, root);
    let indent = match first {
        Some(first) if line_end.is_some() => indentation(text, first.start).to_owned(),
        _ => format!("{outer}{unit}"),
    };
    let key = key.map(|key| Value::from(key).to_string() + if is_on_lines { ": " } else { ":" });
    let key = key.unwrap_or_default();
    let (at, added) = if is_on_lines {
        let lines = pretty(value, &unit).replace('\n', &format!("{newline}{indent}"));
        match line_end {
            Some(at) => (at, format!("{newline}{indent}{key}{lines}{comma}")),
            None => (gap_end, format!("{newline}{indent}{key}{lines}{newline}{outer}")),
        }
    } else {
        (gap_end, format!("{key}{value}{comma}"))
    };
    format!("{}{added}{}", &text[..at], &text[at..])
}

/// Takes a child out of its container, with the comma that parted it from the others.
fn cut(text: &str, dialect: Dialect, container: &Node, index: usize) -> String {
    let child = &container.children[index];
    let comma_behind = |end| {
        let mut scanner = Scanner { text, at: end, dialect };
        // It was read before, so it can be read again.
        scanner.space().ok()?;
        scanner.rest().starts_with(',').then_some(scanner.at)
    };
    let before = &text[..child.start];
    let blank = before.len() - before.trim_end_matches([' ', '\t']).len();
    let line_break =
        [("\r\n", 2), ("\n", 1)].into_iter().find(|(mark, _)| before[..before.len() - blank].ends_with(mark));
    let from = child.start - line_break.map_or(0, |(_, len)| blank + len);
    if let Some(comma) = comma_behind(child.node.end) {
        let behind = &text[comma + 1..];
        let space = behind.len() - behind.trim_start_matches([' ', '\t']).len();
        let to = comma + 1 + if line_break.is_some() { 0 } else { space };
        return format!("{}{}", &text[..from], &text[to..]);
    }
    let mut kept = text[..from].to_owned();
    match index.checked_sub(1).and_then(|index| comma_behind(container.children[index].node.end)) {
        Some(comma) => drop(kept.remove(comma)),
        None if text[container.start + 1..from].trim().is_empty()
            && text[child.node.end..container.end - 1].trim().is_empty() =>
        {
            kept.truncate(container.start + 1);
            return format!("{kept}{}", &text[container.end - 1..]);
        }
        None => {}
    }
    format!("{kept}{}", &text[child.node.end..])
}

/// Returns where the first line ends that is no part of a comment.
fn first_line_end(gap: &str) -> Option<usize> {
    let mut at = 0;
    loop {
        let rest = &gap[at..];
        if rest.starts_with('\n') || rest.starts_with("\r\n") {
            return Some(at);
        }
        at += if rest.starts_with("//") {
            rest.find("\r\n").or_else(|| rest.find('\n'))?
        } else if rest.starts_with("/*") {
            rest.find("*/")? + 2
        } else {
            rest.chars().next()?.len_utf8()
        };
    }
}

/// Returns the space at the beginning of the line around a place.
fn indentation(text: &str, at: usize) -> &str {
    let line = &text[text[..at].rfind('\n').map_or(0, |at| at + 1)..at];
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// Returns by how much this file indents.
fn unit(text: &str, root: &Node) -> String {
    let first = root.children.first().map(|first| indentation(text, first.start));
    first.filter(|unit| !unit.is_empty()).unwrap_or("  ").to_owned()
}

fn pretty(value: &Value, unit: &str) -> String {
    let mut text = Vec::new();
    let formatter = PrettyFormatter::with_indent(unit.as_bytes());
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, formatter);
    value.serialize(&mut serializer).expect("a value is written into memory");
    String::from_utf8(text).expect("JSON is UTF-8")
}
