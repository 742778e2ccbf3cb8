//! What the words of a text are.

/// A word of a text, and where it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word<'a> {
    pub at: usize,
    pub text: &'a str,
    /// Nothing stands between it and the word before.
    pub is_joined: bool,
}

impl Word<'_> {
    /// Tells whether it is one letter of a script that parts no words.
    pub(super) fn is_letter(&self) -> bool {
        self.text.starts_with(is_unparted)
    }
}

/// Returns the words of a text. Letters and numbers count, what is between them parts them. In scripts that do not part
/// words each letter is one: whoever looks for a word finds it wherever it stands.
pub(super) fn words(text: &str) -> impl Iterator<Item = Word<'_>> {
    runs(text).flat_map(|(at, run)| words_of(at, run))
}

/// Returns the runs of letters and numbers in a text, and where they begin.
pub(super) fn runs(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let parts = text.split(|c: char| !c.is_alphanumeric()).filter(|part| !part.is_empty());
    parts.map(|part| (part.as_ptr() as usize - text.as_ptr() as usize, part))
}

/// Returns the words of a run that begins at `at`.
pub(super) fn words_of(at: usize, run: &str) -> impl Iterator<Item = Word<'_>> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let rest = &run[done..];
        let first = rest.chars().next()?;
        let len =
            if is_unparted(first) { first.len_utf8() } else { rest.find(is_unparted).unwrap_or(rest.len()) };
        let word = Word { at: at + done, text: &rest[..len], is_joined: done > 0 };
        done += len;
        Some(word)
    })
}

/// Returns the letters of a text as they are compared: small ones, and σ at the end of a word as well, where Greek
/// writes ς.
pub(super) fn small(text: &str) -> impl Iterator<Item = char> {
    text.chars().flat_map(char::to_lowercase).map(|letter| if letter == 'ς' { 'σ' } else { letter })
}

/// Tells whether a letter is of a script that is written without spaces between words.
fn is_unparted(c: char) -> bool {
    matches!(
        c,
        // Thai and Lao.
        '\u{0e00}'..='\u{0eff}'
            // Burmese.
            | '\u{1000}'..='\u{109f}'
            | '\u{a9e0}'..='\u{a9ff}'
            | '\u{aa60}'..='\u{aa7f}'
            // Khmer.
            | '\u{1780}'..='\u{17ff}'
            // Han, Hiragana, Katakana and Bopomofo. Korean, which has spaces, lies between them.
            | '\u{2e80}'..='\u{312f}'
            | '\u{31a0}'..='\u{31ff}'
            | '\u{3400}'..='\u{4dbf}'
            | '\u{4e00}'..='\u{9fff}'
            | '\u{f900}'..='\u{faff}'
            | '\u{ff66}'..='\u{ff9f}'
            | '\u{1aff0}'..='\u{1b16f}'
            | '\u{20000}'..='\u{3ffff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_ends_where_its_script_says_that_and_is_a_letter_where_none_does() {
        let check = |text: &str, parted: &str| {
            let mut said = String::new();
            for word in words(text) {
                assert_eq!(&text[word.at..word.at + word.text.len()], word.text);
                assert_eq!(word.is_letter(), is_unparted(word.text.chars().next().expect("a letter")));
                said += if word.is_joined { "+" } else { " " };
                said += word.text;
            }
            assert_eq!(said, parted, "{text}");
        };
        check("", "");
        check("rotate_key (7)", " rotate key 7");
        check("日本語", " 日+本+語");
        check("a日b、c", " a+日+b c");
        check("カード ｶｰﾄﾞ", " カ+ー+ド ｶ+ｰ+ﾄ+ﾞ");
        check("한국어 말", " 한국어 말");
        check("𠮷野家", " 𠮷+野+家");
        check("naïve", " naïve");
    }
}
