//! Ids of sessions and messages.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// The id of one transcript.
///
/// Holding a `SessionId` is the proof that it may become a file name:
/// `^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`, ASCII, the whole string. Nothing past
/// the edge checks again. We make UUIDs; other agents' sessions keep their own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionId(String);

/// A session id that may not become a file name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid session ID: \"{0}\"")]
pub struct InvalidSessionId(pub String);

impl SessionId {
    /// The most characters an id has.
    pub const LEN_MAX: usize = 128;

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Tells whether this is a name that means something else wherever a session is named: no
    /// session is ever made with it.
    pub fn is_reserved(&self) -> bool {
        matches!(self.as_str(), "main" | "current" | "global" | "unknown")
    }
}

/// Makes a version 4 UUID of 128 random bits: the ids that are ours to make.
pub fn uuid(random: u128) -> SessionId {
    let bits = random & !(0xf << 76) & !(0x3 << 62) | (4 << 76) | (2 << 62);
    let hex = format!("{bits:032x}");
    SessionId([&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-"))
}

/// The length of a UUID as it is written.
pub const UUID_LEN: usize = 36;

/// Tells whether an id is a UUID, which a machine makes and nobody types as a name.
pub fn is_uuid(id: &str) -> bool {
    let fits = |(place, byte): (usize, u8)| match place {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    id.len() == UUID_LEN && id.bytes().enumerate().all(fits)
}

impl FromStr for SessionId {
    type Err = InvalidSessionId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bytes = text.bytes();
        let first_allowed = bytes.next().is_some_and(|b| b.is_ascii_alphanumeric());
        let rest_allowed = bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
        if first_allowed && rest_allowed && text.len() <= Self::LEN_MAX {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidSessionId(text.to_owned()))
        }
    }
}

impl TryFrom<String> for SessionId {
    type Error = InvalidSessionId;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<SessionId> for String {
    fn from(id: SessionId) -> Self {
        id.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The id of one message: a ULID, 26 characters of Crockford's base 32.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MessageId(String);

/// A message id that is not a ULID.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid message id \"{0}\": expected a ULID, 26 characters of 0-9 and A-Z without I, L, O and U")]
pub struct InvalidMessageId(pub String);

const CROCKFORD: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

impl MessageId {
    /// Makes the ULID of a time and 80 random bits (the low ones of `random`).
    pub fn new(at: Timestamp, random: u128) -> Self {
        let ms = u128::try_from(at.as_millis()).unwrap_or(0) & ((1 << 48) - 1);
        let bits = ms << 80 | random & ((1 << 80) - 1);
        let digits = (0..26).rev().map(|n| char::from(CROCKFORD[(bits >> (n * 5)) as usize & 31]));
        Self(digits.collect())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether a byte is one of [`CROCKFORD`], in one step: pages of messages are read by the thousand.
fn is_crockford(byte: u8) -> bool {
    byte.is_ascii_digit() || byte.is_ascii_uppercase() && !matches!(byte, b'I' | b'L' | b'O' | b'U')
}

impl FromStr for MessageId {
    type Err = InvalidMessageId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let upper = text.to_ascii_uppercase();
        let fits = upper.len() == 26
            && upper.bytes().all(is_crockford)
            // 26 digits hold 130 bits: the first may only carry three.
            && upper.as_bytes()[0] <= b'7';
        if fits { Ok(Self(upper)) } else { Err(InvalidMessageId(text.to_owned())) }
    }
}

impl TryFrom<String> for MessageId {
    type Error = InvalidMessageId;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<MessageId> for String {
    fn from(id: MessageId) -> Self {
        id.0
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_digits_of_an_id_are_those_of_its_alphabet() {
        for byte in 0..=u8::MAX {
            assert_eq!(is_crockford(byte), CROCKFORD.contains(&byte), "{byte}");
        }
    }

    #[test]
    fn session_ids_that_could_leave_the_directory_are_refused() {
        for allowed in ["a", "0", "A.b_c-d", "3a1f9c52-8f1e-4c0a-9b1a-6f2d5b7c8e90", "ses_01", "a.."] {
            assert!(allowed.parse::<SessionId>().is_ok(), "{allowed}");
        }
        assert!("x".repeat(128).parse::<SessionId>().is_ok());
        let too_long = "x".repeat(129);
        for refused in [
            "", ".", "..", "../x", "a/b", "a\\b", "a:b", "-a", "_a", ".a", " a", "a ", "a b", "a\n", "\na",
            "a\0", "ä", "aä", "%2e%2e", "a%2fb", &too_long,
        ] {
            let error = refused.parse::<SessionId>().expect_err(refused);
            assert_eq!(error.to_string(), format!("invalid session ID: \"{refused}\""));
        }
    }

    #[test]
    fn message_ids_sort_by_time_and_parse_back() {
        let at = |ms| Timestamp::from_millis(ms).expect("in range");
        let early = MessageId::new(at(1_700_000_000_000), 5);
        let late = MessageId::new(at(1_700_000_000_001), 0);
        assert!(early < late);
        assert_eq!(early.as_str().parse::<MessageId>(), Ok(early));
        for refused in
            ["", "01ARZ3NDEKTSV4RRFFQ69G5FA", "01ARZ3NDEKTSV4RRFFQ69G5FAU", "81ARZ3NDEKTSV4RRFFQ69G5FAV"]
        {
            assert!(refused.parse::<MessageId>().is_err(), "{refused}");
        }
    }

    proptest! {
        /// The rule as a regular expression is the oracle.
        #[test]
        fn the_id_rule_is_the_contracts_expression(text in "\\PC{0,6}|[A-Za-z0-9._/\\\\:-]{0,140}") {
            let rule = regex::Regex::new(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,127}\z").expect("valid");
            prop_assert_eq!(text.parse::<SessionId>().is_ok(), rule.is_match(&text));
        }
    }
}
