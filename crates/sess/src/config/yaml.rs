//! YAML as a tree in which every value knows its spot.
//!
//! Files of a configuration are laid over each other as trees, before anything looks at what they mean: so a
//! mistake is found once, and told where it was made.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::Spanned;

use super::problem::{Origin, Problem, Spot, Step, Trail};

/// The most bytes of a configuration file.
pub const FILE_BYTES_MAX: usize = 1024 * 1024;
const DEPTH_MAX: usize = 32;
const NODES_MAX: usize = 50_000;
const ALIASES_MAX: usize = 1_000;
const ALIASED_EVENTS_MAX: usize = 50_000;

#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub at: Spot,
    pub value: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub key: String,
    /// Where the key is.
    pub at: Spot,
    pub node: Node,
}

/// The files of a configuration as one tree.
#[derive(Clone, Debug)]
pub struct Document {
    pub root: Node,
    pub origins: Vec<Origin>,
}

impl Default for Document {
    fn default() -> Self {
        Self { root: Node { at: Spot::default(), value: Value::Map(Vec::new()) }, origins: Vec::new() }
    }
}

impl Document {
    /// Returns the value at a trail.
    pub fn get(&self, trail: &Trail) -> Option<&Node> {
        trail.0.iter().try_fold(&self.root, |node, step| node.step(step).map(|(_, node)| node))
    }

    /// Returns where a value is; what is not there is missed where it should be.
    pub fn spot(&self, trail: &Trail) -> Spot {
        self.get(trail).map_or_else(|| self.key_spot(trail), |node| node.at)
    }

    /// Returns where the key of a value is, or the nearest key above that is there.
    pub fn key_spot(&self, trail: &Trail) -> Spot {
        let (mut node, mut at) = (&self.root, self.root.at);
        for step in &trail.0 {
            let Some((key, below)) = node.step(step) else { break };
            (node, at) = (below, key);
        }
        at
    }

    pub fn origin(&self, trail: &Trail) -> Option<&Origin> {
        self.origins.get(self.spot(trail).origin)
    }

    /// Lays a file over what is there. Maps of settings and models are joined; agents come from one file.
    pub fn lay_over(&mut self, over: Node) {
        if matches!(over.value, Value::Null) {
            return;
        }
        let (Value::Map(below), Value::Map(entries)) = (&mut self.root.value, over.value) else { return };
        self.root.at = over.at;
        for entry in entries {
            let depth = joined_depth(&entry.key);
            lay_entry(below, entry, depth);
        }
    }

    /// Sets one value, as a variable of the environment does.
    pub fn set(&mut self, group: &str, key: &str, at: Spot, value: Value) {
        let entry = |key: &str, node| Entry { key: key.to_owned(), at, node };
        let inner = Node { at, value };
        let mut path: Vec<&str> = group.split('.').collect();
        path.push(key);
        let node = path
            .iter()
            .skip(1)
            .rev()
            .fold(inner, |node, key| Node { at, value: Value::Map(vec![entry(key, node)]) });
        if let Value::Map(below) = &mut self.root.value {
            lay_entry(below, entry(path[0], node), path.len());
        }
    }
}

/// How deep the maps of two files are joined: to a model, to a setting.
fn joined_depth(key: &str) -> usize {
    match key {
        "agents" => 0,
        "tools" => 2,
        _ => 1,
    }
}

fn lay_entry(below: &mut Vec<Entry>, over: Entry, depth: usize) {
    let Some(old) = below.iter_mut().find(|entry| entry.key == over.key) else {
        below.push(over);
        return;
    };
    match (&mut old.node.value, over.node) {
        (Value::Map(below), Node { value: Value::Map(entries), .. }) if depth > 0 => {
            for entry in entries {
                lay_entry(below, entry, depth - 1);
            }
        }
        (_, node) => {
            old.at = over.at;
            old.node = node;
        }
    }
}

impl Node {
    pub fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    fn step(&self, step: &Step) -> Option<(Spot, &Self)> {
        match (step, &self.value) {
            (Step::Key(key), Value::Map(entries)) => {
                entries.iter().find(|entry| entry.key == *key).map(|entry| (entry.at, &entry.node))
            }
            (Step::Index(index), Value::List(items)) => items.get(*index).map(|item| (item.at, item)),
            _ => None,
        }
    }

    pub fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(bool) => (*bool).into(),
            Value::Int(int) => match (i64::try_from(*int), u64::try_from(*int)) {
                (Ok(int), _) => int.into(),
                (_, Ok(int)) => int.into(),
                _ => int.to_string().into(),
            },
            Value::Float(float) => (*float).into(),
            Value::Text(text) => text.as_str().into(),
            Value::List(items) => items.iter().map(Self::to_json).collect(),
            Value::Map(entries) => {
                let fields = entries.iter().map(|entry| (entry.key.clone(), entry.node.to_json()));
                serde_json::Value::Object(fields.collect())
            }
        }
    }

    fn stamp(&mut self, origin: usize) {
        self.at.origin = origin;
        match &mut self.value {
            Value::List(items) => items.iter_mut().for_each(|item| item.stamp(origin)),
            Value::Map(entries) => {
                for entry in entries {
                    entry.at.origin = origin;
                    entry.node.stamp(origin);
                }
            }
            Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Text(_) => {}
        }
    }
}

/// Reads a file's bytes. What would take long to read is refused.
pub fn parse(bytes: &[u8], origin: usize) -> Result<Node, Problem> {
    let problem = |line, column, text: String| Problem { at: Spot { origin, line, column }, text };
    if bytes.len() > FILE_BYTES_MAX {
        return Err(problem(0, 0, format!("the file is too large: the most is {FILE_BYTES_MAX} bytes")));
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let before = &bytes[..error.valid_up_to()];
            let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
            let column = 1 + String::from_utf8_lossy(before).lines().last().map_or(0, |l| l.chars().count());
            let column = if before.ends_with(b"\n") { 1 } else { column };
            return Err(problem(line as u64, column as u64, "the file is not UTF-8 text".to_owned()));
        }
    };
    if text.chars().any(|c| c == '\0') {
        return Err(problem(0, 0, "the file is not text: it has a zero byte".to_owned()));
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: DEPTH_MAX,
            max_nodes: NODES_MAX,
            max_events: 4 * NODES_MAX,
            max_aliases: ALIASES_MAX,
            max_anchors: ALIASES_MAX,
            flow_nesting_limit: DEPTH_MAX,
            max_recorded_anchor_events: ALIASED_EVENTS_MAX,
            max_documents: 4,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: ALIASED_EVENTS_MAX,
            max_replay_stack_depth: DEPTH_MAX,
        },
        strict_booleans: true,
        with_snippet: false,
    };
    let parsed = serde_saphyr::from_str_with_options::<Option<Located>>(text, options);
    match parsed {
        Ok(Some(located)) => {
            let mut node = located.0;
            node.stamp(origin);
            Ok(node)
        }
        Ok(None) => Ok(Node { at: Spot { origin, line: 1, column: 1 }, value: Value::Null }),
        Err(error) => {
            let (line, column) = error.location().map_or((0, 0), |at| (at.line(), at.column()));
            Err(problem(line, column, told(&error)))
        }
    }
}

const TOO_MUCH: &str = "the file has too many values, or goes too deep, when its aliases are followed";

/// One sentence without the spot, which stands before it.
fn told(error: &serde_saphyr::Error) -> String {
    use serde_saphyr::Error;
    match error.without_snippet() {
        Error::DuplicateMappingKey { key: Some(key), .. } => format!("the key \"{key}\" is there twice"),
        Error::Budget { .. }
        | Error::AliasReplayCounterOverflow { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => TOO_MUCH.to_owned(),
        Error::MultipleDocuments { .. } => "the file holds more than one YAML document".to_owned(),
        other => {
            let text = other.to_string();
            let text = text.lines().next().unwrap_or_default();
            let text = text.split(" at line ").next().unwrap_or_default();
            if text.contains("budget breached") || text.contains("recursion limit") {
                return TOO_MUCH.to_owned();
            }
            format!("not valid YAML: {text}")
        }
    }
}

struct Located(Node);

impl<'de> Deserialize<'de> for Located {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Value>::deserialize(deserializer)?;
        let at = spanned.referenced;
        let at = Spot { origin: 0, line: at.line(), column: at.column() };
        Ok(Self(Node { at, value: spanned.value }))
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Int(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Int(value.into()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Value, E> {
        Ok(Value::Int(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Located(node)) = items.next_element()? {
            list.push(node);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            let at = Spot { origin: 0, line: key.referenced.line(), column: key.referenced.column() };
            let Located(node) = map.next_value()?;
            entries.push(Entry { key: key.value, at, node });
        }
        Ok(Value::Map(entries))
    }
}
