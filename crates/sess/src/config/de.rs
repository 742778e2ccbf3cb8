//! From the tree to the types of `file`: serde, with the trail and the spot of every mistake.

use std::{cell::RefCell, fmt};

use serde::{
    Deserialize,
    de::{
        self, DeserializeSeed, Deserializer, Expected, IntoDeserializer as _, MapAccess, SeqAccess,
        Unexpected, Visitor, value::StrDeserializer,
    },
    forward_to_deserialize_any,
};

use super::{
    problem::{Problem, Spot, Trail, nearest, one_of},
    yaml::{Document, Entry, Node, Value},
};

/// Reads the document; returns everything that is wrong with it.
///
/// Unknown keys are all told. The first value of a wrong type ends the reading.
pub fn read<T: for<'de> Deserialize<'de>>(document: &Document) -> Result<T, Vec<Problem>> {
    let found = RefCell::new(Vec::new());
    let trail = Trail::default();
    let node = In { node: &document.root, trail: &trail, found: &found };
    let read = T::deserialize(node).map_err(|error| error.at(&document.root, &trail));
    let mut found = found.into_inner();
    match read {
        Ok(value) if found.is_empty() => Ok(value),
        Ok(_) => Err(found),
        Err(error) => {
            found.push(Problem { at: error.at.unwrap_or_default(), text: error.text });
            Err(found)
        }
    }
}

#[derive(Clone, Copy)]
struct In<'a> {
    node: &'a Node,
    trail: &'a Trail,
    found: &'a RefCell<Vec<Problem>>,
}

#[derive(Debug)]
struct Error {
    at: Option<Spot>,
    text: String,
}

impl Error {
    /// Says where, unless that is known better already.
    fn at(self, node: &Node, trail: &Trail) -> Self {
        if self.at.is_some() {
            return self;
        }
        let text = if trail.0.is_empty() { self.text } else { format!("{trail}: {}", self.text) };
        Self { at: Some(node.at), text }
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl de::Error for Error {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self { at: None, text: text.to_string() }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let expected = plain(&expected.to_string());
        let quotes = match found {
            Unexpected::Bool(_) | Unexpected::Signed(_) | Unexpected::Unsigned(_) | Unexpected::Float(_)
                if expected.starts_with("text") =>
            {
                ": put it in quotes"
            }
            _ => "",
        };
        Self::custom(format!("expected {expected}, found {}{quotes}", found_text(found)))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::custom(format!("expected {}, found {}", plain(&expected.to_string()), found_text(found)))
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        let known = one_of(expected);
        let near = nearest(variant, expected.iter().copied());
        let text = if near.starts_with(": did") { near } else { format!(": expected {known}") };
        Self::custom(format!("\"{}\" is not known here{text}", short(variant)))
    }

    /// Only where a value has a short form, too: there serde finds the key, and the map completes the sentence.
    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Self::custom(nearest(field, expected.iter().copied()))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::custom(format!("the key \"{field}\" is missing"))
    }
}

/// Serde's names of types, as a person would say them.
fn plain(expected: &str) -> String {
    let said = match expected {
        "a string" | "a borrowed string" | "string" => "text",
        "a boolean" => "true or false",
        "u8" | "u16" | "u32" | "u64" => "a whole number, 0 or more",
        "i64" | "i32" => "a whole number",
        "f32" | "f64" => "a number",
        "a sequence" => "a list",
        other if other.starts_with("struct ") || other.starts_with("a map") => "a map of keys",
        other if other.starts_with("enum ") || other.starts_with("variant of enum") => "a word",
        other => other,
    };
    said.to_owned()
}

fn found_text(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Bool(value) => value.to_string(),
        Unexpected::Unsigned(value) => format!("the number {value}"),
        Unexpected::Signed(value) => format!("the number {value}"),
        Unexpected::Float(value) => format!("the number {value}"),
        Unexpected::Str(text) => format!("\"{}\"", short(text)),
        Unexpected::Unit | Unexpected::Option => "nothing".to_owned(),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map => "a map of keys".to_owned(),
        other => other.to_string(),
    }
}

/// The most characters of a wrong value that are shown.
const SHOWN_CHARS_MAX: usize = 40;

/// Returns the beginning of a text, on one line.
pub fn short(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown.replace(['\n', '\r', '\t'], " ")
}

impl<'de> Deserializer<'de> for In<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.node.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Int(int) => match (u64::try_from(*int), i64::try_from(*int)) {
                (Ok(int), _) => visitor.visit_u64(int),
                (_, Ok(int)) => visitor.visit_i64(int),
                _ => visitor.visit_i128(*int),
            },
            Value::Float(value) => visitor.visit_f64(*value),
            Value::Text(text) => visitor.visit_str(text),
            Value::List(items) => visitor.visit_seq(Items { list: self, items, next: 0 }),
            Value::Map(entries) => visitor.visit_map(Entries { map: self, entries, value: None }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.node.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.node.value {
            // `agents:` with nothing behind it has no agents.
            Value::Null => visitor.visit_map(Entries { map: self, entries: &[], value: None }),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let Value::Map(entries) = &self.node.value else { return self.deserialize_map(visitor) };
        let mut known = Vec::with_capacity(entries.len());
        for entry in entries {
            if fields.contains(&entry.key.as_str()) {
                known.push(entry.clone());
                continue;
            }
            let near = nearest(&entry.key, fields.iter().copied());
            let text = unknown_key(&entry.key, self.trail, &near);
            self.found.borrow_mut().push(Problem { at: entry.at, text });
        }
        visitor.visit_map(Entries { map: self, entries: &known, value: None })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match &self.node.value {
            Value::Text(text) => {
                let word: StrDeserializer<'_, Error> = text.as_str().into_deserializer();
                visitor.visit_enum(word)
            }
            _ => self.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct identifier ignored_any
    }
}

fn unknown_key(key: &str, trail: &Trail, near: &str) -> String {
    let inside = if trail.0.is_empty() { String::new() } else { format!(" in {trail}") };
    format!("unknown key \"{}\"{inside}{near}", short(key))
}

struct Items<'a> {
    list: In<'a>,
    items: &'a [Node],
    next: usize,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        let Some(node) = self.items.get(self.next) else { return Ok(None) };
        let trail = self.list.trail.index(self.next);
        self.next += 1;
        let read = seed.deserialize(In { node, trail: &trail, found: self.list.found });
        read.map(Some).map_err(|error| error.at(node, &trail))
    }
}

struct Entries<'a> {
    map: In<'a>,
    entries: &'a [Entry],
    value: Option<&'a Entry>,
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        let Some((entry, rest)) = self.entries.split_first() else { return Ok(None) };
        (self.entries, self.value) = (rest, Some(entry));
        let key: StrDeserializer<'_, Error> = entry.key.as_str().into_deserializer();
        seed.deserialize(key).map(Some).map_err(|error| Error {
            at: Some(entry.at),
            text: unknown_key(&entry.key, self.map.trail, &error.text),
        })
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let entry = self.value.take().expect("serde asks for a key before its value");
        let trail = self.map.trail.key(&entry.key);
        let read = seed.deserialize(In { node: &entry.node, trail: &trail, found: self.map.found });
        read.map_err(|error| error.at(&entry.node, &trail))
    }
}
