//! References to sessions, as people and agents write them.

use crate::{SessionId, SessionKey, Source};

/// The fewest characters of an id that name it by prefix, its source counted where that is given.
pub const PREFIX_LEN_MIN: usize = 8;

/// What a reference means before anything is looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// `-1` is the newest other session, `-2` the one before it.
    Relative(u64),
    /// A session key.
    Key(SessionKey),
    /// `<source>:<native id>`.
    Native(Source, SessionId),
    /// A session id, or a prefix of one when it is long enough.
    Id(SessionId),
    /// Text that no session can have as its id: not found, whatever is stored.
    Nothing,
}

/// Why a reference names no session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    #[error("session_id must not be empty")]
    Empty,
    #[error(
        "cannot resolve session \"{reference}\": session offset {} out of range (have {have} sessions)",
        reference.trim_start_matches('-')
    )]
    OutOfRange { reference: String, have: u64 },
    #[error("cannot read the current session; reference a different one")]
    Current,
    #[error("session \"{0}\" not found")]
    NotFound(String),
    #[error("session \"{reference}\" is ambiguous ({matches} match); give more of the id")]
    Ambiguous { reference: String, matches: u64 },
}

impl Reference {
    /// Reads a reference; white space around it does not count.
    pub fn parse(text: &str) -> Result<Self, ReferenceError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(ReferenceError::Empty);
        }
        if let Some(offset) = relative_offset(text) {
            return Ok(Self::Relative(offset));
        }
        if let Ok(key) = text.parse() {
            return Ok(Self::Key(key));
        }
        if let Some((prefix, id)) = text.split_once(':')
            && let (Ok(source), Some(id)) = (prefix.parse(), native_id(id))
        {
            return Ok(Self::Native(source, id));
        }
        Ok(native_id(text).map_or(Self::Nothing, Self::Id))
    }
}

/// Tells whether `<source>:<id>`, or an id alone, is long enough to name a session by the beginning of its id.
pub fn may_be_prefix(source: Option<Source>, id: &SessionId) -> bool {
    let source_len = source.map_or(0, |source| source.as_str().len() + 1);
    source_len + id.as_str().len() >= PREFIX_LEN_MIN
}

/// Reads an id as the agent writes it whose session it is.
pub fn native_id(text: &str) -> Option<SessionId> {
    text.parse().ok().or_else(|| {
        // Crush joins a sub-agent's id in characters that no id has here.
        let plain = text.contains("$$").then(|| text.replace("$$", "--"))?;
        plain.parse().ok()
    })
}

/// `-` and a number from 1 up. Leading zeros are not a number anybody means.
fn relative_offset(text: &str) -> Option<u64> {
    let digits = text.strip_prefix('-')?;
    let is_number = digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0');
    if !is_number || digits.is_empty() {
        return None;
    }
    // A number too large for the type is still a relative reference, out of any range.
    Some(digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_a_minus_and_a_positive_number_is_relative() {
        let check = |text: &str, read: &str| assert_eq!(format!("{:?}", Reference::parse(text)), read);
        check("-1", "Ok(Relative(1))");
        check(" -20\n", "Ok(Relative(20))");
        check("-99999999999999999999", "Ok(Relative(18446744073709551615))");
        check("0", "Ok(Id(SessionId(\"0\")))");
        check("1", "Ok(Id(SessionId(\"1\")))");
        for nothing in ["+1", "-0", "-abc", "--1", "-", "-01", "-1x", "- 1", "../x", "a/b"] {
            check(nothing, "Ok(Nothing)");
        }
        check("", "Err(Empty)");
        check(" \t", "Err(Empty)");
        check("agent:Main:main", "Ok(Key(SessionKey(\"agent:main:main\")))");
        check("codex:abc", "Ok(Native(Codex, SessionId(\"abc\")))");
        check("nobody:abc", "Ok(Nothing)");
        check("crush:m-2$$call_9", "Ok(Native(Crush, SessionId(\"m-2--call_9\")))");
        check("m-2$$call_9", "Ok(Id(SessionId(\"m-2--call_9\")))");
        check("m-2$call_9", "Ok(Nothing)");
    }

    #[test]
    fn eight_characters_are_counted_over_all_that_is_given() {
        let check = |text: &str, is_long: bool| {
            let told = match Reference::parse(text) {
                Ok(Reference::Native(source, id)) => may_be_prefix(Some(source), &id),
                Ok(Reference::Id(id)) => may_be_prefix(None, &id),
                other => panic!("{text}: {other:?}"),
            };
            assert_eq!(told, is_long, "{text}");
        };
        check("019a71aa", true);
        check("019a71a", false);
        check("codex:01", true);
        check("codex:0", false);
        check("docker-agent:3", true);
    }

    proptest! {
        #[test]
        fn every_positive_offset_is_relative_and_nothing_else_is(text in "-?[0-9a-z+-]{0,6}") {
            let oracle = regex::Regex::new(r"\A-[1-9][0-9]*\z").expect("valid");
            let relative = matches!(Reference::parse(&text), Ok(Reference::Relative(_)));
            prop_assert_eq!(relative, oracle.is_match(&text));
        }
    }
}
