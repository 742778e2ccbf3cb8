//! Any text as a key, an id, a reference, a time, or something with secrets in it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sess_core::{MessageId, SessionId, SessionKey, Timestamp, redact::redact, reference::Reference};

fuzz_target!(|text: &str| {
    if let Ok(key) = text.parse::<SessionKey>() {
        assert_eq!(key.as_str().parse(), Ok(key.clone()), "a canonical key stays as it is");
    }
    if let Ok(id) = text.parse::<SessionId>() {
        assert!(!id.as_str().contains(['/', '\\']) && !id.as_str().starts_with('.'));
    }
    let _ = text.parse::<MessageId>();
    let _ = Reference::parse(text);
    if let Some(at) = Timestamp::parse_rfc3339(text) {
        assert_eq!(Timestamp::parse_rfc3339(&at.to_string()), Some(at));
    }
    let (masked, count) = redact(text);
    assert_eq!(count == 0, masked == text);
    assert_eq!(redact(&masked).0, masked, "masked text stays as it is");
});
