//! Any bytes as an import file: a session, or a line that is named; never a panic.
//!
//! What is read must be written and read again without a change.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sess_app::transfer::jsonl;
use sess_core::{Message, message::Body};

fuzz_target!(|data: &[u8]| {
    let Ok(read) = jsonl::parse(data) else { return };
    for (message, seq) in read.messages.into_iter().zip(1..) {
        let line = Message { id: message.id, seq, body: message.body.clone() }.to_json();
        serde_json::from_str::<serde_json::Value>(&line).expect("our own line is JSON");
        // The body alone: of a whole line, id and place would be kept as unknown fields.
        let written = serde_json::to_string(&message.body).expect("a body is JSON");
        let again: Body = serde_json::from_str(&written).expect("our own body is a message");
        assert_eq!(again, message.body);
        assert_eq!(serde_json::to_string(&again).expect("a body is JSON"), written, "byte for byte");
    }
});
