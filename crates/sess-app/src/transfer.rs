//! Sessions on their way in and out: what a file holds, as sessions of ours.
//!
//! [`jsonl`] is our own format, read and written; [`docker_agent`] reads another
//! agent's database. Both end in an `ImportedSession`: keeping it is the store's
//! work, and which file is read or written is the command's.

pub mod docker_agent;
pub mod jsonl;

use sess_core::{MessageId, SessionId, message::Body};

/// Makes the id of a message that came without one.
///
/// The same message at the same place of the same session gets the same id, so
/// that a second import of a file finds its messages already here.
fn made_id(session: &SessionId, seq: u64, body: &Body) -> MessageId {
    let at = body.timestamp;
    let body = serde_json::to_vec(body).expect("a message body has string keys only");
    let place = format!("{session}\n{seq}\n");
    let hash = fnv1a(place.bytes().chain(body));
    // All 128 bits have a say in the 80 that a ULID has room for.
    MessageId::new(at, hash ^ (hash >> 80))
}

/// FNV-1a of 128 bits. It only has to spread: nothing is kept secret by it, and
/// its answer must never change between versions.
pub(crate) fn fnv1a(bytes: impl Iterator<Item = u8>) -> u128 {
    const OFFSET_BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.fold(OFFSET_BASIS, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use sess_core::{Timestamp, message::Role};

    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(fnv1a(b"".iter().copied()), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(fnv1a(b"a".iter().copied()), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    }

    #[test]
    fn a_made_id_depends_on_the_message_and_its_place_alone() {
        let id = |session: &str, seq, text: &str| {
            let at = Timestamp::from_millis(1_000).expect("in range");
            made_id(&session.parse().expect(session), seq, &Body::text(Role::User, text, at))
        };
        assert_eq!(id("s", 1, "hi"), id("s", 1, "hi"));
        assert_ne!(id("s", 1, "hi"), id("s", 2, "hi"));
        assert_ne!(id("s", 1, "hi"), id("t", 1, "hi"));
        assert_ne!(id("s", 1, "hi"), id("s", 1, "ho"));
    }
}
