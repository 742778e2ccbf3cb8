//! Fields that only decorate a record: one of another type than it should be counts as missing, and costs nothing of
//! what was said.

use std::{borrow::Cow, fmt};

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use sess_core::Timestamp;

use crate::json;

/// Reads a text.
pub(crate) fn text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(match Plain::deserialize(from)? {
        Plain::Text(text) => Some(text.into_owned()),
        Plain::Other(_) => None,
    })
}

/// Reads whether something is so: it is not where nothing says that.
pub(crate) fn flag<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    Ok(matches!(Plain::deserialize(from)?, Plain::Other(Value::Bool(true))))
}

/// Reads an instant, as [`json::instant`] does.
pub(crate) fn instant<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
    Ok(match Plain::deserialize(from)? {
        Plain::Text(text) => json::rfc3339(&text),
        Plain::Other(value) => json::instant(&value),
    })
}

/// Reads a number that counts something.
pub(crate) fn count<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    Ok(match Plain::deserialize(from)? {
        Plain::Text(_) => None,
        Plain::Other(value) => value.as_u64(),
    })
}

/// A value without what is inside of it.
enum Plain<'a> {
    Text(Cow<'a, str>),
    /// A number, whether something is so, or nothing.
    Other(Value),
}

impl<'de> Deserialize<'de> for Plain<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Any)
    }
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Plain<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Plain<'de>, E> {
        Ok(Plain::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Plain<'de>, E> {
        Ok(Plain::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Plain<'de>, E> {
        Ok(Plain::Other(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Plain<'de>, E> {
        Ok(Plain::Other(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Plain<'de>, E> {
        Ok(Plain::Other(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Plain<'de>, E> {
        Ok(Plain::Other(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Plain<'de>, E> {
        Ok(Plain::Other(Value::Null))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Plain<'de>, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Plain::Other(Value::Null))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Plain<'de>, A::Error> {
        while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Plain::Other(Value::Null))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default, serde::Deserialize)]
    #[serde(default)]
    struct Record {
        #[serde(deserialize_with = "text")]
        text: Option<String>,
        #[serde(deserialize_with = "flag")]
        flag: bool,
        #[serde(deserialize_with = "instant")]
        at: Option<Timestamp>,
        #[serde(deserialize_with = "count")]
        count: Option<u64>,
    }

    #[test]
    fn a_field_of_another_type_counts_as_missing_and_the_others_are_read() {
        let check = |json: &str, read: &str| {
            let record: Record = serde_json::from_str(json).expect("read");
            let at = record.at.map(|at| at.to_string());
            assert_eq!(
                format!("{:?} {} {at:?} {:?}", record.text, record.flag, record.count),
                read,
                "{json}"
            );
        };
        check("{}", "None false None None");
        let at = "2026-11-10T09:00:00Z";
        let read = format!("Some(\"a\\nb\") true Some({at:?}) Some(7)");
        check(&format!(r#"{{"text":"a\nb","flag":true,"at":"{at}","count":7}}"#), &read);
        check(
            r#"{"text":7,"flag":"true","at":1794301200,"count":"7"}"#,
            &format!("None false Some({at:?}) None"),
        );
        check(r#"{"text":{"x":[1]},"flag":null,"at":{"x":1},"count":-7}"#, "None false None None");
        check(
            r#"{"text":[[],{}],"flag":1,"at":1794301200000,"count":1.5}"#,
            &format!("None false Some({at:?}) None"),
        );
    }
}
