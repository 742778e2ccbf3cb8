//! Any bytes as an import file: a session, or a line that is named; never a panic.
//!
//! What is read must be written and read again without a change.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sess_app::transfer::jsonl;
use sess_core::Message;

fuzz_target!(|data: &[u8]| {
    let Ok(read) = jsonl::parse(data) else { return };
    for (message, seq) in read.messages.into_iter().zip(1..) {
        let line = Message { id: message.id, seq, body: message.body.clone() }.to_json();
        let again: serde_json::Value = serde_json::from_str(&line).expect("our own line is JSON");
        let again: sess_core::message::Body = serde_json::from_value(again).expect("and a message");
        assert_eq!(again.shape().bits(), message.body.shape().bits());
    }
});
