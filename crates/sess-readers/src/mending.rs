//! What JavaScript reads in JSON and no text of Rust has: halves of surrogate pairs, and bytes that are no UTF-8.

use std::{
    io::{self, Read},
    ops::Range,
};

use memchr::memchr;

/// Puts the escape of U+FFFD at the place of each that stands for half a surrogate pair. Returns up to where that is done:
/// an escape at the end may be that of a first half whose other one comes behind it, unless this is the end of all.
pub(crate) fn mend(text: &mut [u8], is_end: bool) -> usize {
    const PAIR_LEN: usize = r"\ud83d\ude00".len();
    let mut at = 0;
    while let Some(found) = memchr(b'\\', &text[at..]) {
        at += found;
        let rest = &mut text[at..];
        if rest.len() < PAIR_LEN && !is_end {
            return at;
        }
        let (first, second) = rest.split_at_mut(rest.len().min(PAIR_LEN / 2));
        at += match (unit(first), unit(second)) {
            (Some(0xd800..0xdc00), Some(0xdc00..0xe000)) => PAIR_LEN,
            (Some(0xd800..0xe000), _) => {
                first[2..].copy_from_slice(b"fffd");
                first.len()
            }
            (Some(_), _) => first.len(),
            // The second sign of another one, such as `\\`, begins no escape.
            (None, _) => first.len().min(2),
        };
    }
    text.len()
}

/// Returns the number that a text escapes at its beginning, as `\ud83d` does.
fn unit(text: &[u8]) -> Option<u16> {
    let digits = text.get(..6)?.strip_prefix(br"\u")?;
    // A sign would be taken for a part of the number.
    let is_number = digits.iter().all(u8::is_ascii_hexdigit);
    u16::from_str_radix(str::from_utf8(digits).ok()?, 16).ok().filter(|_| is_number)
}

/// Moves bytes to the end of a text. What of them is no UTF-8 becomes U+FFFD; the beginning of a character stays for
/// what comes behind it, unless this is the end of all.
fn decode(bytes: &mut Vec<u8>, text: &mut Vec<u8>, is_end: bool) {
    let mut rest = &bytes[..];
    loop {
        let Err(error) = str::from_utf8(rest) else {
            text.extend_from_slice(rest);
            rest = &[];
            break;
        };
        let (good, bad) = rest.split_at(error.valid_up_to());
        text.extend_from_slice(good);
        rest = bad;
        let Some(len) = error.error_len().or(is_end.then_some(bad.len())) else { break };
        text.extend_from_slice("\u{fffd}".as_bytes());
        rest = &bad[len..];
    }
    let kept = rest.len();
    bytes.drain(..bytes.len() - kept);
}

/// JSON that is mended while it is read, in little memory.
pub(crate) struct Mended<R> {
    from: R,
    /// What was read and is not decoded yet.
    bytes: Vec<u8>,
    buffer: Vec<u8>,
    /// What of the buffer is mended and was not handed over yet.
    ready: Range<usize>,
}

impl<R: Read> Mended<R> {
    pub(crate) fn new(from: R) -> Self {
        Self { from, bytes: Vec::new(), buffer: Vec::new(), ready: 0..0 }
    }

    pub(crate) fn get_ref(&self) -> &R {
        &self.from
    }

    /// Reads on, until there is something that is mended, or nothing more.
    fn fill(&mut self) -> io::Result<()> {
        const PART_SIZE_BYTES: usize = 8 << 10;
        while self.ready.is_empty() {
            self.buffer.drain(..self.ready.end);
            self.ready = 0..0;
            let kept = self.bytes.len();
            self.bytes.resize(kept + PART_SIZE_BYTES, 0);
            let read = self.from.read(&mut self.bytes[kept..]);
            self.bytes.truncate(kept + *read.as_ref().unwrap_or(&0));
            let is_end = read? == 0;
            decode(&mut self.bytes, &mut self.buffer, is_end);
            self.ready = 0..mend(&mut self.buffer, is_end);
            if is_end {
                break;
            }
        }
        Ok(())
    }
}

impl<R: Read> Read for Mended<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.fill()?;
        let len = self.ready.len().min(to.len());
        to[..len].copy_from_slice(&self.buffer[self.ready.start..][..len]);
        self.ready.start += len;
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_surrogate_pair_is_mended_wherever_it_is_cut() {
        let check = |text: &str, mended: &str| {
            let mut bytes = text.as_bytes().to_vec();
            assert_eq!(mend(&mut bytes, true), text.len());
            assert_eq!(String::from_utf8_lossy(&bytes), mended);
            for part in 1..=text.len() {
                let mut read = String::new();
                let parts = Parts { rest: text.as_bytes(), part };
                Mended::new(parts).read_to_string(&mut read).expect("read");
                assert_eq!(read, mended, "{part}");
            }
        };
        check("", "");
        check(r"plain \n \u00e4 \ud83d\ude00", r"plain \n \u00e4 \ud83d\ude00");
        check(r"\ud83d", r"\ufffd");
        check(r"a\uDE00b", r"a\ufffdb");
        check(r"\ud83d\ud83d\ude00\ude00", r"\ufffd\ud83d\ude00\ufffd");
        check(r"\ud83dude00", r"\ufffdude00");
        check(r"\ud83d\n", r"\ufffd\n");
        check(r"\ud83d\u0041", r"\ufffd\u0041");
        check(r"\\ud83d \\\ud83d \\\\ud83d", r"\\ud83d \\\ufffd \\\\ud83d");
        // No escapes.
        check(r"\ud83", r"\ud83");
        check(r"\u+d83 \ud8ä \", r"\u+d83 \ud8ä \");
        check(r"\", r"\");
    }

    #[test]
    fn bytes_that_are_no_text_are_mended_wherever_they_are_cut() {
        let check = |bytes: &[u8], mended: &str| {
            assert_eq!(String::from_utf8_lossy(bytes), mended);
            for part in 1..=bytes.len() {
                let mut read = Vec::new();
                Mended::new(Parts { rest: bytes, part }).read_to_end(&mut read).expect("read");
                assert_eq!(String::from_utf8_lossy(&read), mended, "{part}");
            }
        };
        check("ä日😀".as_bytes(), "ä日😀");
        check(b"a\xffb\xfe\xfec", "a\u{fffd}b\u{fffd}\u{fffd}c");
        check(b"\xe6\x97", "\u{fffd}");
        check(b"\xe6\x97\xe6\x97\xa5\xf0\x9f\x98\"\x80", "\u{fffd}日\u{fffd}\"\u{fffd}");
    }

    /// Comes so many bytes at a time.
    struct Parts<'a> {
        rest: &'a [u8],
        part: usize,
    }

    impl Read for Parts<'_> {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            let end = self.part.min(to.len());
            self.rest.read(&mut to[..end])
        }
    }
}
