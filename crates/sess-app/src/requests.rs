//! Requests that act once: a caller's own name for one, and what tells it from another.

use sess_core::digest::sha256;
use sess_store::RequestKey;

use crate::{Error, Result};

/// The longest name that a caller may give a request, in bytes.
pub(crate) const KEY_SIZE_BYTES_MAX: usize = 200;

/// Checks the name that a caller gave its request, and tells the request by all of its parts.
///
/// Only a digest is stored: what was asked may hold secrets, and a fingerprint is in no transcript.
pub(crate) fn request_key(key: Option<&str>, parts: &[&str]) -> Result<Option<RequestKey>> {
    let Some(key) = key else { return Ok(None) };
    check_key(key)?;
    let mut asked = Vec::new();
    for part in parts {
        // With its length, so that no two lists of parts are the same text.
        asked.extend((part.len() as u64).to_le_bytes());
        asked.extend(part.as_bytes());
    }
    Ok(Some(RequestKey { key: key.to_owned(), fingerprint: sha256(asked) }))
}

pub(crate) fn check_key(key: &str) -> Result<()> {
    if key.is_empty() || key.len() > KEY_SIZE_BYTES_MAX {
        return Err(Error::Invalid(format!("an idempotency key has 1 to {KEY_SIZE_BYTES_MAX} bytes")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_told_by_all_of_its_parts_and_stored_as_none_of_them() {
        let print =
            |parts: &[&str]| request_key(Some("k"), parts).expect("a key").expect("a key").fingerprint;
        assert_eq!(print(&["send", "a", "my secret"]), print(&["send", "a", "my secret"]));
        for other in [&["send", "b", "my secret"][..], &["send", "am", "y secret"], &["send", "amy secret"]] {
            assert_ne!(print(&["send", "a", "my secret"]), print(other), "{other:?}");
        }
        assert_eq!(print(&["my secret"]).len(), 64);
        assert_eq!(request_key(None, &["x"]), Ok(None));
        for bad in ["", &"k".repeat(201)] {
            let told = request_key(Some(bad), &[]).expect_err("refused").to_string();
            assert_eq!(told, "an idempotency key has 1 to 200 bytes");
        }
    }
}
