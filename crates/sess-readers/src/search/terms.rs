//! What texts are made of, as numbers, for whoever keeps an index of them.
//!
//! A message that is found has all terms of its search: [`Matcher::terms`] and [`Terms`] see
//! letters as the matcher does. So what has not all of them needs not be looked at; what has
//! them may still say something else.

use std::{
    borrow::Cow,
    collections::HashSet,
    ops::ControlFlow,
    sync::atomic::{AtomicBool, Ordering},
};

use sess_core::redact::redact;

use super::{
    Matcher, Wanted, said,
    words::{runs, small as letters, words_of},
};
use crate::{Foreign, Result, is_in_one_file, read};

/// Longer words are told by the letters in them alone: nobody searches for them whole.
const WORD_SIZE_BYTES_MAX: usize = 64;
/// A session with more terms than this may have any.
const TERMS_MAX: usize = 2 << 20;
/// How many bytes of a word are a term.
const GRAM_LEN: usize = 3;

/// A word, or three bytes in a row of one, as a number that is the same in every process.
pub type Term = u64;

/// The terms of what is said in one session after the other.
pub struct Terms {
    /// Which grams were seen: a bit for each that there can be.
    seen: Box<[u64]>,
    grams: Vec<u32>,
    words: HashSet<Term>,
    /// A word in small letters.
    small: Vec<u8>,
}

/// What is known of the terms of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gathered {
    /// The terms are all there are until its stamp is another.
    All,
    /// It may have any.
    TooMany,
    /// More than its stamp says what it is, so it has to be read.
    Elsewhere,
    Stopped,
}

impl Default for Terms {
    fn default() -> Self {
        let seen = vec![0; 1 << (8 * GRAM_LEN - 6)].into_boxed_slice();
        Self { seen, grams: Vec::new(), words: HashSet::new(), small: Vec::new() }
    }
}

impl Terms {
    /// Reads a session for its terms, and forgets those of the one before.
    pub fn gather(&mut self, session: &Foreign, stop: &AtomicBool) -> Result<Gathered> {
        self.clear();
        if !is_in_one_file(session) {
            return Ok(Gathered::Elsewhere);
        }
        let mut gathered = Gathered::All;
        let told = read(session, &mut |entry| {
            if let Some(text) = said(&entry) {
                self.add(&text);
                // Searches look at what is left once secrets are masked, unless their owner says otherwise.
                if let (Cow::Owned(masked), _) = redact(&text) {
                    self.add(&masked);
                }
            }
            if stop.load(Ordering::Relaxed) {
                gathered = Gathered::Stopped;
            } else if self.len() > TERMS_MAX {
                gathered = Gathered::TooMany;
            }
            if gathered == Gathered::All { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        // A chunk that is damaged may come back, and the manifest stays as it is.
        let is_damaged = session.is_snapshot && told.bad > 0;
        Ok(if is_damaged { Gathered::Elsewhere } else { gathered })
    }

    pub fn len(&self) -> usize {
        self.grams.len() + self.words.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn iter(&self) -> impl Iterator<Item = Term> {
        self.grams.iter().map(|gram| gram_term(*gram)).chain(self.words.iter().copied())
    }

    fn add(&mut self, text: &str) {
        for (at, run) in runs(text) {
            self.small.clear();
            push_all(&mut self.small, run);
            for gram in grams(&self.small) {
                let (place, bit) = (gram as usize / 64, 1 << (gram % 64));
                if self.seen[place] & bit == 0 {
                    self.seen[place] |= bit;
                    self.grams.push(gram);
                }
            }
            // What the letters are of a script without words, the grams say as well.
            for word in words_of(at, run).filter(|word| !word.is_letter()) {
                if word.text.len() < run.len() {
                    self.small.clear();
                    push_all(&mut self.small, word.text);
                }
                self.words.extend(word_term(&self.small));
            }
        }
    }

    fn clear(&mut self) {
        for gram in self.grams.drain(..) {
            self.seen[gram as usize / 64] = 0;
        }
        self.words.clear();
    }
}

impl Matcher {
    /// Returns terms that are in everything that is found; none when anything may be.
    pub fn terms(&self) -> Vec<Term> {
        let mut terms = Vec::new();
        for wanted in &self.all {
            let Wanted::Words { words, is_prefix } = wanted else { continue };
            let mut run: Vec<u8> = Vec::new();
            for (place, word) in words.iter().enumerate() {
                if !word.is_joined {
                    terms.extend(grams(&run).map(gram_term));
                    run.clear();
                }
                let start = run.len();
                word.text.chars().for_each(|letter| push(&mut run, letter));
                if !word.is_letter && (!is_prefix || place + 1 < words.len()) {
                    terms.extend(word_term(&run[start..]));
                }
            }
            terms.extend(grams(&run).map(gram_term));
        }
        for piece in &self.pieces {
            terms.extend(grams(piece.to_ascii_lowercase().as_bytes()).map(gram_term));
        }
        terms
    }
}

/// Adds a text in small letters.
fn push_all(small: &mut Vec<u8>, text: &str) {
    if text.is_ascii() {
        small.extend(text.bytes().map(|byte| byte.to_ascii_lowercase()));
    } else {
        letters(text).for_each(|letter| push(small, letter));
    }
}

/// Adds a small letter. The long s is one to expressions, which know no capitals from small letters.
fn push(small: &mut Vec<u8>, letter: char) {
    let letter = if letter == 'ſ' { 's' } else { letter };
    small.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
}

fn grams(small: &[u8]) -> impl Iterator<Item = u32> {
    small.windows(GRAM_LEN).map(|gram| gram.iter().fold(0, |all, byte| all << 8 | u32::from(*byte)))
}

fn gram_term(gram: u32) -> Term {
    mixed(u64::from(gram))
}

/// Returns the term of a whole word: FNV-1a over its bytes.
fn word_term(small: &[u8]) -> Option<Term> {
    let add = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = small.iter().fold(0xcbf2_9ce4_8422_2325, add);
    (small.len() <= WORD_SIZE_BYTES_MAX).then(|| mixed(hash))
}

/// Spreads a number over all bits, as splitmix64 does.
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tells whether a text has all terms of a search.
    fn has(text: &str, matcher: &Matcher) -> bool {
        let mut terms = Terms::default();
        terms.add(text);
        let terms: HashSet<Term> = terms.iter().collect();
        matcher.terms().iter().all(|term| terms.contains(term))
    }

    fn word(text: &str, is_prefix: bool) -> Matcher {
        let mut matcher = Matcher::default();
        matcher.word(text, is_prefix);
        matcher
    }

    fn expression(pattern: &str) -> Matcher {
        let mut matcher = Matcher::default();
        matcher.expression(pattern).expect(pattern);
        matcher
    }

    #[test]
    fn what_has_not_the_terms_is_told_apart() {
        assert!(has("add a Retry.", &word("retry", false)));
        assert!(!has("retries", &word("retry", false)));
        assert!(has("retries", &word("retr", true)));
        assert!(!has("renew it", &word("retr", true)));
        assert!(!has("go on", &word("on_it", false)));
        assert!(!has("a b", &word("c", false)), "a word of one letter");
        assert!(has("a b", &word("c", true)), "any word may begin with one letter");
        assert!(has("see rotate_key(7)", &expression(r"rotate.key\(\d")));
        assert!(!has("see rotate_it(7)", &expression(r"rotate.key\(\d")));
        assert!(has("anything", &expression("foo|bar")) && has("", &expression(r"\d+")));
        assert!(has("x", &Matcher::default()));
    }

    #[test]
    fn letters_that_the_matcher_takes_for_the_same_are_the_same() {
        for (text, matcher) in [
            ("\u{212a}elvin", word("kelvin", false)),
            ("\u{212a}elvin", expression("kelvin")),
            ("Wei\u{17f}heit", expression("weisheit")),
            ("wei\u{17f}heit", word("wei\u{17f}heit", false)),
            ("İstanbul", word("İstanbul", false)),
            ("ΟΔΟΣ", word("οδοσ", false)),
            ("Η ΑΘΉΝΑΣ είναι εδώ", word("ΑΘΉΝΑΣ", false)),
            ("Η ΑΘΉΝΑΣ είναι εδώ", word("αθήνας", false)),
            ("Η Αθήνας", word("ΑΘΉΝΑΣ", false)),
            ("Αθήνας", word("αθήνασ", true)),
            ("ΣΟΦΌΣ", expression("σοφός")),
            ("Straße", word("STRAßE", false)),
            ("Ключ", word("КЛЮЧ", false)),
            ("数据库", word("数据库", false)),
            ("新しい日本語テストを書く", word("日本語", false)),
            ("新しい日本語テストを書く", word("日本 語テス", true)),
            ("cargo testを走らせる", word("test", false)),
            ("cargo Testを走らせる", word("cargo testを走", false)),
            ("日本語ABCDEFで", word("語abc", true)),
            ("ทดสอบภาษาไทย", word("ภาษา", false)),
            ("naïveté", expression("na.VET")),
        ] {
            assert!(matcher.find(text).is_some(), "{text}");
            assert!(has(text, &matcher), "{text}");
        }
    }

    #[test]
    fn terms_of_one_session_are_not_those_of_the_next() {
        let mut terms = Terms::default();
        terms.add("first words");
        terms.clear();
        assert!(terms.is_empty());
        terms.add("first words");
        let again = terms.len();
        terms.clear();
        terms.add("first words, FIRST words");
        assert_eq!(terms.len(), again);
        terms.clear();
        terms.add(&"x".repeat(WORD_SIZE_BYTES_MAX + 1));
        assert_eq!((terms.grams.len(), terms.words.len()), (1, 0));
    }
}
