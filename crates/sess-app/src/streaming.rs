//! Text while it is streamed, told as soon as no secret can be in what is told.

use sess_core::{exchange::is_control_word, redact::redact};

/// How long an unfinished line may become before it waits for its end.
const LINE_BYTES_MAX: usize = 4 * 1024;
/// What begins a private key, which is masked as a whole.
const KEY_BEGINS: &str = "-----BEGIN ";
const KEY_ENDS: &str = "-----END ";

/// A reply that comes in pieces, cut anywhere. A secret is recognised only when it is whole: words are told
/// one by one, and from the first sign of an assignment on, a line is told at its end.
#[derive(Clone, Debug, Default)]
pub struct StreamedText {
    /// What came and is not told, from the beginning of its line on.
    held: String,
    /// What was told of that line, as it was told.
    told: String,
    /// A word was told.
    has_spoken: bool,
}

impl StreamedText {
    /// Takes a piece, and returns what can be told now.
    pub fn push(&mut self, piece: &str) -> String {
        self.held.push_str(piece);
        // It may be all there is.
        if !self.has_spoken && is_control_word(&self.held) {
            return String::new();
        }
        let end = whole_lines(&self.held);
        let mut text = String::new();
        if end > 0 {
            let rest = self.held.split_off(end);
            let lines = std::mem::replace(&mut self.held, rest);
            text.push_str(&self.tell(&lines));
            self.told.clear();
        }
        let words = whole_words(&self.held);
        if words > 0 {
            let line = self.held[..words].to_owned();
            text.push_str(&self.tell(&line));
        }
        self.has_spoken |= !text.trim().is_empty();
        text
    }

    /// Returns the rest, once the reply is complete. A word for the program is for nobody to read.
    pub fn finish(self) -> String {
        if !self.has_spoken && is_control_word(&self.held) {
            return String::new();
        }
        let mut this = self;
        let rest = std::mem::take(&mut this.held);
        this.tell(&rest)
    }

    /// Returns what is new in a text of which the beginning was told.
    fn tell(&mut self, text: &str) -> String {
        let masked = redact(text).0.into_owned();
        match masked.strip_prefix(&self.told) {
            Some(new) => {
                let new = new.to_owned();
                self.told = masked;
                new
            }
            // What was told turns out to be a part of something that is masked: no more of it.
            None if masked.ends_with('\n') => "\n".to_owned(),
            None => String::new(),
        }
    }
}

/// Returns how much of a text is whole lines, up to a private key that is still coming.
fn whole_lines(text: &str) -> usize {
    let end = text.rfind('\n').map_or(0, |at| at + 1);
    match text.rfind(KEY_BEGINS) {
        Some(key) if key < end && !text[key..end].contains(KEY_ENDS) => {
            text[..key].rfind('\n').map_or(0, |at| at + 1)
        }
        _ => end,
    }
}

/// Returns how much of an unfinished line is whole words that begin nothing.
fn whole_words(line: &str) -> usize {
    let could_begin = |c: char| matches!(c, '=' | ':' | '"' | '\'' | '`' | '<' | '{' | '-');
    if line.len() > LINE_BYTES_MAX || line.contains('\n') || line.contains(could_begin) {
        return 0;
    }
    let end = line.rfind(char::is_whitespace).map_or(0, |at| at + 1);
    // White space of more than one byte is left for the next time.
    if line.is_char_boundary(end) { end } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Streams a text in pieces of some bytes.
    fn streamed(text: &str, len: usize) -> String {
        let mut stream = StreamedText::default();
        let mut told = String::new();
        let chars: Vec<char> = text.chars().collect();
        for piece in chars.chunks(len) {
            told.push_str(&stream.push(&piece.iter().collect::<String>()));
        }
        told + &stream.finish()
    }

    #[test]
    fn what_is_streamed_is_what_would_be_shown_at_once() {
        let key = format!(
            "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----\n",
            "MIIEow".repeat(30)
        );
        for text in [
            "plain words in one line",
            "two lines\nof words, and ünïcödé\u{3000}spaces",
            "the token is ghp_abcdefghijklmnopqrstuvwxyz0123456789 and no more",
            "AWS_SECRET_ACCESS_KEY = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY\nnext",
            "say MY_PASSWORD=hunter2-hunter2 quickly",
            "Authorization: Bearer abcdefghijklmnop.qrstuvwxyz\n",
            "{\"api_key\": \"abcdefghijklmnopqrstuvwxyz\", \"b\": 1}",
            &format!("here it is:\n{key}done"),
            &format!("in a line {key}done"),
            "",
        ] {
            for len in [1, 2, 3, 7, 50, 5_000] {
                assert_eq!(streamed(text, len), redact(text).0, "{len}");
            }
        }
    }

    #[test]
    fn words_come_before_their_line_ends_and_control_words_never() {
        let mut stream = StreamedText::default();
        assert_eq!(stream.push("Hello my dear fri"), "Hello my dear ");
        assert_eq!(stream.push("end, the key"), "friend, the ");
        assert_eq!(stream.push(": abc"), "", "from here on the whole line is waited for");
        assert_eq!(stream.push("def\nnext "), "key: abcdef\nnext ");
        assert_eq!(streamed("ANNOUNCE_SKIP", 4), "");
        assert_eq!(streamed(" REPLY_SKIP\n", 4).trim(), "");
        assert_eq!(streamed("no ANNOUNCE_SKIP", 4), "no ANNOUNCE_SKIP");
    }
}
