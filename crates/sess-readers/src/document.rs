//! Walking through a session that is one JSON document, without holding all of it.

use std::{
    fmt,
    fs::File,
    io::{self, BufReader, Read, Seek, SeekFrom},
    ops::ControlFlow,
    path::Path,
};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::{
    Error, Result, Told,
    mending::{Mended, mend},
};

/// How much of a document's beginning is looked at to list it.
const BEGINNING_SIZE_BYTES: u64 = 1 << 20;
/// How much of its end.
const END_SIZE_BYTES: u64 = 64 << 10;

/// How far a walk came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Walked {
    Through,
    /// To where the walk was told to stop, or to the end of the part that was to be looked at.
    Partly,
    /// To where the document is cut off or damaged.
    ToDamage,
}

/// Hands over the fields of a document's outermost object in their order, those in `lists`
/// element by element. What cannot be read ends the walk; what came before counts.
pub(crate) fn walk(
    path: &Path,
    from: impl Read,
    size_bytes_max: u64,
    lists: &[&str],
    give: &mut dyn FnMut(&str, Value) -> ControlFlow<()>,
) -> Result<Walked> {
    let mut from = BufReader::new(Mended::new(from.take(size_bytes_max)));
    let mut walk = Walk { lists, give, is_stopped: false, is_damaged: false };
    let walked = (&mut walk).deserialize(&mut serde_json::Deserializer::from_reader(&mut from));
    match walked {
        Ok(()) if walk.is_damaged => Ok(Walked::ToDamage),
        Ok(()) => Ok(Walked::Through),
        Err(_) if walk.is_stopped => Ok(Walked::Partly),
        Err(error) if error.is_io() => {
            Err(Error::Io { path: path.to_owned(), source: io::Error::from(error) })
        }
        Err(_) if from.get_ref().get_ref().limit() == 0 => Ok(Walked::Partly),
        Err(_) => Ok(Walked::ToDamage),
    }
}

/// Walks through as much of a document's beginning as a list needs. What does not even begin as one is refused;
/// an empty one is not written yet.
pub(crate) fn begin(
    path: &Path,
    mut file: &File,
    lists: &[&str],
    give: &mut dyn FnMut(&str, Value) -> ControlFlow<()>,
) -> Result<Walked> {
    let io = |source| Error::Io { path: path.to_owned(), source };
    let mut first = [b'{'];
    if file.read(&mut first).map_err(io)? == 0 {
        return Ok(Walked::Through);
    }
    if first[0] != b'{' && !first[0].is_ascii_whitespace() {
        return Err(Error::Format { path: path.to_owned(), what: "it is no document".to_owned() });
    }
    file.rewind().map_err(io)?;
    walk(path, file, BEGINNING_SIZE_BYTES, lists, give)
}

/// Refuses a document that is damaged before anything was said in it.
pub(crate) fn check(path: &Path, is_damaged: bool, is_spoken: bool) -> Result<()> {
    if !is_damaged || is_spoken {
        return Ok(());
    }
    let what = "it breaks off, or is damaged, before anything that was said".to_owned();
    Err(Error::Format { path: path.to_owned(), what })
}

/// Returns what is to be told of a walk through all of a document: what stands behind the damage is lost.
pub(crate) fn told(walked: Walked, told: Told) -> Told {
    let is_torn = walked == Walked::ToDamage;
    Told { is_torn, bad: told.bad + u64::from(is_torn), ..told }
}

/// Returns a text field of the outermost object from a document's end, where a walk through
/// its beginning does not reach. Only a document with a line a field tells which those are.
pub(crate) fn last_field(path: &Path, mut file: &File, name: &str) -> Result<Option<String>> {
    let io = |source| Error::Io { path: path.to_owned(), source };
    let size = file.metadata().map_err(io)?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(END_SIZE_BYTES))).map_err(io)?;
    let mut end = Vec::new();
    file.take(END_SIZE_BYTES).read_to_end(&mut end).map_err(io)?;
    mend(&mut end, true);
    let end = String::from_utf8_lossy(&end);
    let start = format!("\n  \"{name}\": ");
    let value = end.rfind(&start).map(|at| &end[at + start.len()..]);
    let mut values = serde_json::Deserializer::from_str(value.unwrap_or_default()).into_iter::<String>();
    Ok(values.next().and_then(std::result::Result::ok))
}

struct Walk<'a> {
    lists: &'a [&'a str],
    give: &'a mut dyn FnMut(&str, Value) -> ControlFlow<()>,
    is_stopped: bool,
    /// Something else stands where a list should be.
    is_damaged: bool,
}

impl Walk<'_> {
    fn give<E: serde::de::Error>(&mut self, name: &str, value: Value) -> std::result::Result<(), E> {
        self.is_stopped = (self.give)(name, value).is_break();
        if self.is_stopped { Err(E::custom("stopped")) } else { Ok(()) }
    }
}

impl<'de> DeserializeSeed<'de> for &mut Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> std::result::Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> std::result::Result<(), A::Error> {
        while let Some(name) = fields.next_key::<String>()? {
            if self.lists.contains(&&*name) {
                fields.next_value_seed(Elements { walk: self, name: &name })?;
            } else {
                let value = fields.next_value()?;
                self.give(&name, value)?;
            }
        }
        Ok(())
    }
}

struct Elements<'a, 'b> {
    walk: &'a mut Walk<'b>,
    name: &'a str,
}

impl<'de> DeserializeSeed<'de> for Elements<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> std::result::Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Elements<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> std::result::Result<(), A::Error> {
        while let Some(element) = elements.next_element()? {
            self.walk.give(self.name, element)?;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> std::result::Result<(), A::Error> {
        self.walk.is_damaged = true;
        while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_unit<E: serde::de::Error>(self) -> std::result::Result<(), E> {
        self.walk.is_damaged = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_walked_as_far_as_it_is_there() {
        let check = |text: &str, limit: u64, walked: Walked, fields: &str| {
            let mut seen = Vec::new();
            let end = walk(Path::new("d"), text.as_bytes(), limit, &["m"], &mut |name, value| {
                seen.push(format!("{name}={value}"));
                if value == 9 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            assert_eq!((end.expect("walked"), &*seen.join(" ")), (walked, fields), "{text}");
        };
        let text = r#"{"a": 1, "m": [1, {"b": 2}], "c": [3]}"#;
        check(text, 99, Walked::Through, r#"a=1 m=1 m={"b":2} c=[3]"#);
        check(text, 19, Walked::Partly, "a=1 m=1");
        check(&text[..19], 99, Walked::ToDamage, "a=1 m=1");
        check(r#"{"a": 1, "m": [1, 9, 2]}"#, 99, Walked::Partly, "a=1 m=1 m=9");
        check(r#"{"m": null, "a": 1}"#, 99, Walked::ToDamage, "a=1");
        check(r#"{"m": {"b": [2]}, "a": 1}"#, 99, Walked::ToDamage, "a=1");
        check(r#"{"m": 7, "a": 1}"#, 99, Walked::ToDamage, "");
        check("", 99, Walked::ToDamage, "");
        check("[1]", 99, Walked::ToDamage, "");
    }
}
