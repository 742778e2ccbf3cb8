//! Places in a transcript that clients give back: opaque to them, and none that they could make up.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sess_core::SessionId;
use sha2::{Digest as _, Sha256};

/// How many bytes of the seal are sent along.
const SEAL_BYTES: usize = 16;
/// The longest text that is looked at.
const LEN_MAX: usize = 512;

/// A message of a session: what a stream goes on after, or a page ends before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    pub(super) session: SessionId,
    pub(super) seq: u64,
}

/// Makes cursors and tells them from forged ones, also after a restart.
#[derive(Clone)]
pub(super) struct Cursors {
    key: [u8; 32],
}

/// A text that was not made here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid cursor: give back one that this gateway has sent, unchanged")]
pub(super) struct InvalidCursor;

impl Cursors {
    /// Returns cursors that only holders of this secret can make.
    pub(super) fn new(secret: &str) -> Self {
        let key = Sha256::new().chain_update("sess cursor\0").chain_update(secret).finalize();
        Self { key: key.into() }
    }

    pub(super) fn seal(&self, session: &SessionId, seq: u64) -> String {
        self.sealed(&format!("{seq}:{session}"))
    }

    pub(super) fn open(&self, text: &str) -> Result<Cursor, InvalidCursor> {
        let text = self.unsealed(text)?;
        let (seq, session) = text.split_once(':').ok_or(InvalidCursor)?;
        let seq = seq.parse().map_err(|_| InvalidCursor)?;
        Ok(Cursor { session: session.parse().map_err(|_| InvalidCursor)?, seq })
    }

    /// Seals a place in the order of everything.
    pub(super) fn seal_position(&self, position: u64) -> String {
        self.sealed(&format!("@{position}"))
    }

    pub(super) fn open_position(&self, text: &str) -> Result<u64, InvalidCursor> {
        let text = self.unsealed(text)?;
        text.strip_prefix('@').and_then(|position| position.parse().ok()).ok_or(InvalidCursor)
    }

    /// Seals how far a search got.
    pub(super) fn seal_search(&self, place: &str) -> String {
        self.sealed(&format!("?{place}"))
    }

    pub(super) fn open_search(&self, text: &str) -> Result<String, InvalidCursor> {
        self.unsealed(text)?.strip_prefix('?').map(str::to_owned).ok_or(InvalidCursor)
    }

    fn sealed(&self, text: &str) -> String {
        let mut bytes = self.mac(text.as_bytes()).to_vec();
        bytes.extend_from_slice(text.as_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    fn unsealed(&self, text: &str) -> Result<String, InvalidCursor> {
        if text.len() > LEN_MAX {
            return Err(InvalidCursor);
        }
        let mut bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| InvalidCursor)?;
        let (seal, text) = bytes.split_at_checked(SEAL_BYTES).ok_or(InvalidCursor)?;
        let differ = self.mac(text).iter().zip(seal).fold(0, |differ, (a, b)| differ | (a ^ b));
        if std::hint::black_box(differ) != 0 {
            return Err(InvalidCursor);
        }
        bytes.drain(..SEAL_BYTES);
        String::from_utf8(bytes).map_err(|_| InvalidCursor)
    }

    /// The key stands around what is sealed twice, so that nobody can lengthen it.
    fn mac(&self, text: &[u8]) -> [u8; SEAL_BYTES] {
        let inner = Sha256::new().chain_update(self.key).chain_update(text).finalize();
        let outer = Sha256::new().chain_update(self.key).chain_update(inner).finalize();
        let mut seal = [0; SEAL_BYTES];
        seal.copy_from_slice(&outer[..SEAL_BYTES]);
        seal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_as_it_went_and_only_so() {
        let cursors = Cursors::new("secret");
        let session: SessionId = "a-session".parse().expect("an id");
        let sealed = cursors.seal(&session, 42);
        assert_eq!(cursors.open(&sealed), Ok(Cursor { session: session.clone(), seq: 42 }));
        assert_eq!(Cursors::new("secret").seal(&session, 42), sealed, "the same after a restart");
        assert_eq!(Cursors::new("other").open(&sealed), Err(InvalidCursor));
        for position in 0..sealed.len() {
            let mut forged = sealed.clone().into_bytes();
            forged[position] = if forged[position] == b'A' { b'B' } else { b'A' };
            let forged = String::from_utf8(forged).expect("ASCII");
            // The last character may have bits that count for nothing, and are refused as well.
            assert_eq!(cursors.open(&forged), Err(InvalidCursor), "{position}");
        }
        for odd in ["", "x", "42:a-session", "\u{0}", &"A".repeat(LEN_MAX + 1)] {
            assert_eq!(cursors.open(odd), Err(InvalidCursor));
        }
    }
}
