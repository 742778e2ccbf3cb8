//! The name of a work session, which is also a directory, a branch and a ref.

use std::{fmt, str::FromStr};

use icu_normalizer::DecomposingNormalizerBorrowed;
use jiff::civil::Date;
use serde::{Deserialize, Serialize};

/// `YYYY-MM-DD-descriptive-slug`, or `kb-YYYY-MM-DD-merge-topic`.
///
/// Holding one is the proof that it can stand in a path and in a ref: nothing past the edge checks again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Slug(String);

/// What the refs of sessions' branches begin with.
pub(crate) const BRANCH_REFS: &str = "refs/heads/session/";
const SLUG_BYTES_MAX: usize = 80;
const DATE_BYTES: usize = "YYYY-MM-DD".len();
const KB_PREFIX: &str = "kb-";
const KB_TOPIC_PREFIX: &str = "merge-";
/// The marks that letters of any language are written with.
const MARKS: std::ops::RangeInclusive<char> = '\u{300}'..='\u{36f}';
/// What a title without a letter or a digit is called.
const UNTITLED: &str = "work";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid slug {given:?}: {reason}; expected YYYY-MM-DD-descriptive-slug or kb-YYYY-MM-DD-merge-topic"
)]
pub struct InvalidSlug {
    given: String,
    reason: &'static str,
}

impl Slug {
    /// Makes the slug of a title, on a day.
    pub fn from_title(title: &str, day: Date) -> Self {
        Self::dated("", day, &words(title))
    }

    /// Makes the slug of a session that merges what was learned about a topic.
    pub fn kb_merge(topic: &str, day: Date) -> Self {
        Self::dated(KB_PREFIX, day, &format!("{KB_TOPIC_PREFIX}{}", words(topic)))
    }

    fn dated(prefix: &str, day: Date, rest: &str) -> Self {
        let mut text = format!("{prefix}{day}-{rest}");
        text.truncate(SLUG_BYTES_MAX);
        Self(text.trim_end_matches('-').to_owned())
    }

    /// Returns the `n`th of those who would have the same name: the first one has it unchanged.
    pub fn numbered(&self, n: u32) -> Self {
        if n < 2 {
            return self.clone();
        }
        let ending = format!("-{n}");
        let kept = self.0.len().min(SLUG_BYTES_MAX - ending.len());
        Self(format!("{}{ending}", self.0[..kept].trim_end_matches('-')))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns what it is about: the slug without its date.
    pub fn topic(&self) -> &str {
        let rest = self.0.strip_prefix(KB_PREFIX).unwrap_or(&self.0);
        let topic = &rest[DATE_BYTES + 1..];
        if self.is_kb() { topic.strip_prefix(KB_TOPIC_PREFIX).unwrap_or(topic) } else { topic }
    }

    /// Whether it is named like a session that merges the knowledge base. To do so, its plan has to be of that kind, too.
    pub fn is_kb(&self) -> bool {
        self.0.starts_with(KB_PREFIX)
    }

    pub fn branch(&self) -> String {
        format!("session/{self}")
    }

    /// Returns the ref of its branch.
    pub(crate) fn branch_ref(&self) -> String {
        format!("{BRANCH_REFS}{self}")
    }

    /// Returns the session that a ref is the branch of.
    pub(crate) fn of_branch_ref(name: &str) -> Option<Self> {
        name.strip_prefix(BRANCH_REFS)?.parse().ok()
    }
}

/// Letters and digits of any text, joined by single dashes; letters with marks are written without them.
fn words(text: &str) -> String {
    let decomposed = DecomposingNormalizerBorrowed::new_nfkd().normalize(text);
    let mut lower = String::new();
    for c in decomposed.chars().flat_map(char::to_lowercase).filter(|c| !MARKS.contains(c)) {
        // Those that are not made of a letter and a mark.
        match c {
            'ß' => lower.push_str("ss"),
            'æ' => lower.push_str("ae"),
            'œ' => lower.push_str("oe"),
            'ø' => lower.push('o'),
            'ł' => lower.push('l'),
            'đ' | 'ð' => lower.push('d'),
            'þ' => lower.push_str("th"),
            'ı' => lower.push('i'),
            c => lower.push(c),
        }
    }
    let words: Vec<&str> =
        lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    if words.is_empty() { UNTITLED.to_owned() } else { words.join("-") }
}

impl FromStr for Slug {
    type Err = InvalidSlug;

    fn from_str(given: &str) -> Result<Self, InvalidSlug> {
        let refuse = |reason| Err(InvalidSlug { given: given.chars().take(120).collect(), reason });
        if given.len() > SLUG_BYTES_MAX {
            return refuse("it has more than 80 characters");
        }
        if !given.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-')) {
            return refuse("only a-z, 0-9 and - are allowed");
        }
        let kb = given.strip_prefix(KB_PREFIX);
        let rest = kb.unwrap_or(given);
        let Some((day, topic)) = rest.split_at_checked(DATE_BYTES) else {
            return refuse("it does not begin with a date");
        };
        // No calendar that people use has a year 0.
        let is_day = day.parse::<Date>().is_ok_and(|day| day.year() > 0);
        if !is_day || day.split('-').map(str::len).ne([4, 2, 2]) {
            return refuse("it does not begin with a date that the calendar has");
        }
        let Some(topic) = topic.strip_prefix('-').filter(|topic| !topic.is_empty()) else {
            return refuse("a name is missing after the date");
        };
        if kb.is_some() && topic.strip_prefix(KB_TOPIC_PREFIX).is_none_or(str::is_empty) {
            return refuse("a knowledge-base session is called merge- and its topic");
        }
        Ok(Self(given.to_owned()))
    }
}

impl TryFrom<String> for Slug {
    type Error = InvalidSlug;

    fn try_from(text: String) -> Result<Self, InvalidSlug> {
        text.parse()
    }
}

impl From<Slug> for String {
    fn from(slug: Slug) -> Self {
        slug.0
    }
}

impl fmt::Display for Slug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY: Date = Date::constant(2025, 10, 14);

    #[test]
    fn a_title_becomes_a_slug() {
        let check = |title: &str, slug: &str| assert_eq!(Slug::from_title(title, DAY).as_str(), slug);
        check("Add user login", "2025-10-14-add-user-login");
        check("  Fix: the `API`… now!  ", "2025-10-14-fix-the-api-now");
        check("Übersicht über ÄÖÜ", "2025-10-14-ubersicht-uber-aou");
        check("Ünïcode", "2025-10-14-unicode");
        check("Straße nach Łódź: ﬁn", "2025-10-14-strasse-nach-lodz-fin");
        check("e\u{301}te\u{301}", "2025-10-14-ete");
        check("日本語", "2025-10-14-work");
        check("../../etc/passwd", "2025-10-14-etc-passwd");
    }

    #[test]
    fn what_is_not_a_slug_is_refused_with_the_reason() {
        for (given, reason) in [
            ("", "date"),
            ("feature", "date"),
            ("2025-10-14", "name is missing"),
            ("2025-10-14-", "name is missing"),
            ("2025-02-30-x", "calendar"),
            ("2025-13-01-x", "calendar"),
            ("0000-00-00-x", "calendar"),
            ("0000-01-01-x", "calendar"),
            ("2025-10-14-Feature", "a-z"),
            ("2025-10-14-a b", "a-z"),
            ("2025-10-14-a/b", "a-z"),
            ("2025-10-14-a.lock", "a-z"),
            ("2025-10-14-é", "a-z"),
            ("2025-10-14-..", "a-z"),
            ("../2025-10-14-x", "a-z"),
            ("-2025-10-14-x", "calendar"),
            ("--help", "date"),
            ("2025-10-14-x\n", "a-z"),
            ("2025-10-14-x\0", "a-z"),
            ("2025-10-14x", "name is missing"),
            ("kb-2025-10-14-topic", "merge-"),
            ("kb-2025-10-14-merge-", "merge-"),
            ("kb-2025-10-14-merge", "merge-"),
        ] {
            let refusal = given.parse::<Slug>().expect_err(given).to_string();
            assert!(refusal.contains(reason), "{given:?}: {refusal}");
        }
        let long = format!("2025-10-14-{}", "x".repeat(70));
        assert!(long.parse::<Slug>().is_err());
        assert!(long[..80].parse::<Slug>().is_ok());
    }

    #[test]
    fn dashes_may_stand_anywhere_after_the_date() {
        for given in ["2025-10-14--x", "2025-10-14-x-", "2025-10-14-x--y", "kb-2025-10-14-merge-x--y-"] {
            let slug: Slug = given.parse().expect(given);
            assert_eq!(slug.as_str(), given);
            assert!(slug.numbered(2).as_str().parse::<Slug>().is_ok());
        }
    }

    #[test]
    fn kinds_and_topics_are_told_by_the_name() {
        let slug: Slug = "kb-2025-10-14-merge-auth-patterns".parse().expect("a slug");
        assert!(slug.is_kb());
        assert_eq!(slug.topic(), "auth-patterns");
        assert_eq!(slug.branch(), "session/kb-2025-10-14-merge-auth-patterns");
        assert_eq!(slug.branch_ref(), format!("refs/heads/{}", slug.branch()));
        assert_eq!(Slug::of_branch_ref(&slug.branch_ref()).as_ref(), Some(&slug));
        assert_eq!(Slug::of_branch_ref(&slug.branch()), None);
        assert_eq!(Slug::of_branch_ref("refs/heads/session/mine"), None);
        let slug: Slug = "2025-10-14-auth-system".parse().expect("a slug");
        assert!(!slug.is_kb());
        assert_eq!(slug.topic(), "auth-system");
        assert_eq!(Slug::kb_merge(slug.topic(), DAY).as_str(), "kb-2025-10-14-merge-auth-system");
    }

    proptest! {
        #[test]
        fn whatever_is_made_is_a_slug(title in any::<String>(), n in 0_u32..10_000) {
            for slug in [Slug::from_title(&title, DAY), Slug::kb_merge(&title, DAY)] {
                let numbered = slug.numbered(n);
                prop_assert_eq!(numbered.as_str().parse::<Slug>(), Ok(numbered.clone()));
                prop_assert_eq!(numbered.is_kb(), slug.is_kb());
                prop_assert_eq!(slug.numbered(1), slug);
            }
        }

        #[test]
        fn anything_else_is_refused_and_nothing_panics(text in any::<String>()) {
            if let Ok(slug) = text.parse::<Slug>() {
                prop_assert_eq!(slug.as_str(), text);
            }
        }
    }
}
