//! What clients write, read strictly: objects are objects, and what is wrong is said in their words.

use serde::de::DeserializeOwned;
use sess_protocol::object::Object;

/// What is wrong with something that was read, and where in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    /// Empty when it is wrong as a whole.
    pub(super) place: String,
    pub(super) what: String,
}

/// Reads a JSON object, of at most the depth that the parser allows.
pub(super) fn object<T: DeserializeOwned>(text: &[u8]) -> Result<T, Wrong> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let read = serde_path_to_error::deserialize(&mut reader);
    let Object(value): Object<T> = read.map_err(|error| {
        let path = error.path().to_string();
        let path = if path == "." { "" } else { &path };
        wrong(path, &error.inner().to_string())
    })?;
    reader
        .end()
        .map_err(|_| Wrong { place: String::new(), what: "something follows the JSON object".into() })?;
    Ok(value)
}

fn wrong(path: &str, said: &str) -> Wrong {
    // Where it is counts from the start of a part, which is no use to whoever wrote the whole.
    let said = said.rsplit_once(" at line ").map_or(said, |(said, _)| said);
    // A field that is missing is nowhere yet: it is where it should be.
    let missing = said.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`'));
    let place = match (path, missing) {
        (path, None) => path.to_owned(),
        ("", Some(field)) => field.to_owned(),
        (path, Some(field)) => format!("{path}.{field}"),
    };
    Wrong { place, what: spoken(said) }
}

/// Says what the parser found in the words of JSON.
fn spoken(said: &str) -> String {
    if let Some(rest) = said.strip_prefix("unknown variant `")
        && let Some((given, expected)) = rest.split_once("`, ")
    {
        return format!("{given:?} is not known: {expected}");
    }
    let Some((found, expected)) = said.rsplit_once(", expected ") else { return said.to_owned() };
    let found = found.replace(": sequence", ": an array").replace(": map", ": an object");
    let found = found.replace("floating point ", "number ").replace("integer ", "number ");
    let expected = match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or more",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "an array",
        other => other,
    };
    format!("{found}, expected {expected}")
}

#[cfg(test)]
mod tests {
    use sess_protocol::{frames::ConnectParams, plans::ReviewBody, sessions::SendBody};

    use super::*;

    fn refused<T: DeserializeOwned>(text: &str) -> String {
        match object::<T>(text.as_bytes()) {
            Ok(_) => "taken".to_owned(),
            Err(Wrong { place, what }) => format!("{place}: {what}"),
        }
    }

    #[test]
    fn an_array_is_no_object_anywhere() {
        assert_eq!(
            refused::<SendBody>(r#"["array hello",0,"kk"]"#),
            ": invalid type: an array, expected an object"
        );
        let connect = r#"{"minProtocol":1,"maxProtocol":1,"client":["id","1"],"auth":{"token":"t"}}"#;
        assert_eq!(refused::<ConnectParams>(connect), "client: invalid type: an array, expected an object");
        let connect = r#"{"minProtocol":1,"maxProtocol":1,"client":{"id":"i","version":"1"},"auth":["t"]}"#;
        assert_eq!(refused::<ConnectParams>(connect), "auth: invalid type: an array, expected an object");
        for whole in [r#"{"id":"i","version":"1"}},"auth":null}"#, r#"{"id":"i","version":"1"}}"#] {
            let connect = format!(r#"{{"minProtocol":1,"maxProtocol":1,"client":{whole}"#);
            assert_eq!(refused::<ConnectParams>(&connect.replace("}},", "},")), "taken", "{connect}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_in_the_words_of_json() {
        for (text, expected) in [
            (r#"{"message":1}"#, "message: invalid type: number `1`, expected a string"),
            (r#"{}"#, "message: missing field `message`"),
            (
                r#"{"message":"x","timeoutSeconds":-1}"#,
                "timeoutSeconds: invalid value: number `-1`, expected a whole number, 0 or more",
            ),
            (
                r#"{"message":"x","timeoutSeconds":{}}"#,
                "timeoutSeconds: invalid type: an object, expected a whole number, 0 or more",
            ),
            (r#""text""#, ": invalid type: string \"text\", expected an object"),
            (r#"{"message":"x"} {}"#, ": something follows the JSON object"),
        ] {
            assert_eq!(refused::<SendBody>(text), expected);
        }
        let review = refused::<ReviewBody>(r#"{"revision":1,"decision":"maybe"}"#);
        assert!(
            review.starts_with("decision: \"maybe\" is not known: expected one of `approve`"),
            "{review}"
        );
    }
}
