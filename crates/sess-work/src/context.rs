//! What the next agent should know about a session, as one text for a prompt.

use std::collections::BTreeSet;

use crate::{Brief, Note, PLAN_FILE, Result, Seen, Slug, Work, kb};

/// How many lines of the worklog are shown, and how many texts of the knowledge base.
const LOG_LINES_MAX: usize = 10;
const LEARNINGS_MAX: usize = 8;
const LEARNING_BYTES_MAX: usize = 1_500;
/// Shorter words say little about what a text is about.
const WORD_CHARS_MIN: usize = 4;
/// As many words in common may be chance.
const WORDS_MIN: usize = 2;
/// What a label or a place in common counts, in words.
const SCOPE_WORDS: usize = 4;

impl Work {
    /// Returns the plan, what is open, the last entries of the worklog and what was learned about the same things; and
    /// what the caller has to be told besides.
    ///
    /// It has at most `bytes_max` bytes; what is left out is said.
    pub fn context(&self, slug: &Slug, bytes_max: usize) -> Result<(String, Vec<String>)> {
        let seen = self.look_and_keep(slug)?;
        let (drift, brief) = self.drift_in(slug, &seen)?;
        let head = format!("# Work session {slug} ({})\n\n", drift.state);
        let plan = format!("{}\n", brief.body.trim());
        let mut rest = String::new();
        let open: Vec<String> = drift
            .criteria
            .iter()
            .filter(|criterion| !criterion.done && criterion.change != Some(crate::Change::Removed))
            .map(|criterion| format!("- [ ] {}\n", criterion.text))
            .collect();
        if !open.is_empty() {
            rest += &format!("\n## Open criteria\n\n{}", open.concat());
        }
        let log = self.noted(slug, Note::Log, &seen)?.unwrap_or_default();
        let lines: Vec<&str> =
            log.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
        let last = &lines[lines.len().saturating_sub(LOG_LINES_MAX)..];
        if !last.is_empty() {
            rest += &format!("\n## Last in the worklog\n\n{}\n", last.join("\n"));
        }
        let learned = self.learned(slug, &brief, &seen)?;
        if !learned.is_empty() {
            rest += &format!("\n## Learned before\n{learned}");
        }
        let whole = head.len() + plan.len() + rest.len();
        if whole <= bytes_max {
            return Ok((head + &plan + &rest, drift.notices));
        }
        // A long plan leaves room for what it does not say itself.
        let plan = if rest.len() < bytes_max / 2 {
            cut(&plan, bytes_max.saturating_sub(head.len() + rest.len()), slug, whole)
        } else {
            cut(&plan, bytes_max / 2, slug, whole)
        };
        Ok((cut(&(head + &plan + &rest), bytes_max, slug, whole), drift.notices))
    }

    /// Returns what was learned about what this plan is about, the closest first.
    fn learned(&self, slug: &Slug, brief: &Brief, seen: &Seen) -> Result<String> {
        let mut found = Vec::new();
        for (path, text) in self.kb_texts(seen)? {
            let learner = kb::learner(&path);
            if learner.as_ref() == Some(slug) {
                // An attempt before was about nothing else; what this one learned it knows.
                if seen.record(slug).is_some_and(|record| record.claim.attempt > 1) {
                    let body = Brief::parse(&text).unwrap_or_default().body;
                    found.push((usize::MAX, path, body));
                }
                continue;
            }
            // What a session learned is about what that session was about.
            let own = Brief::parse(&text).unwrap_or_default();
            let source = match learner.as_ref().and_then(|learner| seen.tree.entries.get(learner)) {
                Some(entry) => match entry.files.get(PLAN_FILE) {
                    Some(file) => Brief::parse(&self.repo.text_of(&file.oid)?).unwrap_or_default(),
                    None => Brief::default(),
                },
                None => Brief::default(),
            };
            let score = in_common(brief, &own).max(in_common(brief, &source));
            if score >= WORDS_MIN {
                found.push((score, path, own.body));
            }
        }
        found.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
        let shown = found.into_iter().take(LEARNINGS_MAX);
        Ok(shown
            .map(|(_, path, body)| format!("\n### {path}\n\n{}\n", short(body.trim(), LEARNING_BYTES_MAX)))
            .collect())
    }
}

/// Says how much two texts are about the same: in labels, in places, in words.
fn in_common(one: &Brief, other: &Brief) -> usize {
    let labels = one.labels.iter().filter(|label| other.labels.contains(label)).count();
    let places = one.touches.iter().flat_map(|glob| other.touches.iter().map(move |other| (glob, other)));
    let places = places.filter(|(one, other)| is_near(one, other)).count();
    let (these, those) = (said(one), said(other));
    SCOPE_WORDS * (labels + places) + these.intersection(&those).count()
}

/// Whether one glob's fixed part leads into the other's.
fn is_near(one: &str, other: &str) -> bool {
    let fixed = |glob: &str| {
        let end = glob.find(['*', '?', '[']).unwrap_or(glob.len());
        glob[..end].trim_start_matches("./").trim_end_matches('/').to_owned()
    };
    let (one, other) = (fixed(one), fixed(other));
    let leads = |outer: &str, inner: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    !one.is_empty() && !other.is_empty() && (leads(&one, &other) || leads(&other, &one))
}

/// Returns the words that a text is about: its title, labels and places, and what it says, without its headings.
fn said(brief: &Brief) -> BTreeSet<String> {
    let lines = brief
        .body
        .lines()
        .filter(|line| !line.starts_with('#') && !line.contains(crate::brief::TO_BE_WRITTEN));
    let parts = lines.map(str::to_owned).chain([
        brief.title.clone(),
        brief.labels.join(" "),
        brief.touches.join(" "),
    ]);
    let text = parts.collect::<Vec<_>>().join("\n").to_lowercase();
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| word.chars().count() >= WORD_CHARS_MIN && !COMMON.contains(word))
        .filter(|word| !word.chars().all(|c| c.is_ascii_digit()))
        .map(str::to_owned)
        .collect()
}

/// Words that any two texts have.
const COMMON: [&str; 34] = [
    "about",
    "after",
    "also",
    "because",
    "been",
    "before",
    "does",
    "each",
    "every",
    "from",
    "have",
    "into",
    "just",
    "learnings",
    "made",
    "make",
    "more",
    "must",
    "only",
    "other",
    "over",
    "session",
    "should",
    "some",
    "than",
    "that",
    "their",
    "them",
    "then",
    "there",
    "this",
    "when",
    "with",
    "will",
];

/// Returns as much of a text as fits, on a border of characters.
fn short(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// Cuts a text so that it and the note of what is missing fit.
fn cut(text: &str, bytes_max: usize, slug: &Slug, whole: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let note = format!("\n[cut; all of it: `sess work context {slug} --bytes {whole}`]\n");
    if note.len() >= bytes_max {
        return short(text, bytes_max).to_owned();
    }
    format!("{}{note}", short(text, bytes_max - note.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_text_fits_and_says_so() {
        let slug: Slug = "2025-10-14-x".parse().expect("a slug");
        let text = "ä".repeat(500);
        for bytes_max in [0, 1, 3, 50, 100, 101, 999, 1_000] {
            let found = cut(&text, bytes_max, &slug, 1_000);
            assert!(found.len() <= bytes_max, "{bytes_max}: {}", found.len());
            assert_eq!(found.contains("--bytes 1000"), (100..1_000).contains(&bytes_max), "{bytes_max}");
        }
    }

    #[test]
    fn texts_are_close_by_labels_places_and_words() {
        let brief = |text: &str| Brief::parse(text).expect("a text");
        let plan = brief("---\nlabels: [rust]\ntouches: src/auth/**\n---\n# Add user login\n");
        let check = |text: &str, is_close: bool| {
            assert_eq!(in_common(&plan, &brief(text)) >= WORDS_MIN, is_close, "{text}");
        };
        check("---\nlabels: rust\n---\n# Anything\n", true);
        check("---\ntouches: src/auth/form.rs\n---\n# Anything\n", true);
        check("---\ntouches: src/author/\n---\n# Anything\n", false);
        check("# Notes\n\nThe login of a user is slow.\n", true);
        check("# Notes\n\nFonts are large.\n", false);
    }
}
