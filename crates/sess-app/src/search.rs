//! Search: finding the message that said it.

use serde::Serialize;
use sess_core::policy;
use sess_store::{Matching, Position, SearchQuery, Term};

use crate::{App, Caller, Error, Listed, Redaction, Result, context};

const LIMIT_MAX: usize = 100;
/// How much of a message is shown around what was found, in characters.
const SNIPPET_CHARS: usize = 160;
/// More words than this make no search better.
const TERMS_MAX: usize = 16;

/// What was found, newest first.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    pub hits: Vec<SearchHit>,
    /// Give this back to see older ones; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
pub struct SearchHit {
    pub session: Listed,
    pub message_id: String,
    pub seq: u64,
    pub role: sess_core::message::Role,
    pub timestamp: String,
    pub snippet: String,
}

impl App {
    /// Finds messages that contain all the words, newest first.
    pub async fn search(
        &self,
        caller: &Caller,
        text: &str,
        limit: usize,
        before: Option<u64>,
        redaction: Redaction,
    ) -> Result<Found> {
        let redaction = context::allowed(caller, redaction);
        let mut query = parse(text)?;
        self.home()?;
        if !self.has_store() {
            return Ok(Found { hits: Vec::new(), cursor: None });
        }
        let scope = self.visible(caller).await?;
        if let policy::Scope::Agent(agent) = &scope {
            query.agent = Some(agent.clone());
        }
        let limit = limit.clamp(1, LIMIT_MAX);
        let found = self.store()?.search(&query, before.map(Position), limit).await?;
        let cursor = (found.len() == limit).then(|| found.last().map(|hit| hit.message.position.0)).flatten();
        let mut hits = Vec::new();
        for hit in found {
            if !self.is_inside(&scope, &hit.session).await? {
                continue;
            }
            let Ok(body) = hit.message.parse() else { continue };
            let (plain, _) = context::masked(&body.plain_text(), redaction);
            hits.push(SearchHit {
                session: context::listed(&hit.session),
                message_id: hit.message.id.to_string(),
                seq: hit.message.seq,
                role: body.role,
                timestamp: body.timestamp.to_string(),
                snippet: snippet(&plain, &query),
            });
        }
        Ok(Found { hits, cursor })
    }
}

/// Reads what a person types: words, `"phrases"`, `beginnings*`, and `-words` that must be absent.
fn parse(text: &str) -> Result<SearchQuery> {
    let mut terms = Vec::new();
    // Control characters part words like spaces do; a NUL would end the query half-way.
    let text = text.replace(char::is_control, " ");
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (absent, after) = match rest.strip_prefix('-') {
            Some(after) => (true, after),
            None => (false, rest),
        };
        let (word, after) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => after.split_once(char::is_whitespace).unwrap_or((after, "")),
        };
        let (word, matching) = match word.strip_suffix('*') {
            _ if absent => (word, Matching::Absent),
            Some(beginning) => (beginning, Matching::Prefix),
            None => (word, Matching::Whole),
        };
        if word.chars().any(char::is_alphanumeric) {
            terms.push(Term { text: word.to_owned(), matching });
        }
        rest = after.trim_start();
    }
    if !terms.iter().any(|term| term.matching != Matching::Absent) {
        return Err(Error::Invalid("give at least one word to search for".to_owned()));
    }
    if terms.len() > TERMS_MAX {
        return Err(Error::Invalid(format!("too many words: {}, the most is {TERMS_MAX}", terms.len())));
    }
    Ok(SearchQuery { terms, agent: None, source: None })
}

/// Cuts the part around the first word that was found, on one line.
fn snippet(text: &str, query: &SearchQuery) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let folded: Vec<char> = line.chars().map(|c| c.to_lowercase().next().unwrap_or(c)).collect();
    let found = query.terms.iter().filter(|term| term.matching != Matching::Absent).find_map(|term| {
        let wanted: Vec<char> = term.text.chars().map(|c| c.to_lowercase().next().unwrap_or(c)).collect();
        folded.windows(wanted.len().max(1)).position(|window| window == wanted.as_slice())
    });
    let start = found.unwrap_or(0).saturating_sub(SNIPPET_CHARS / 4);
    let mut cut: String = line.chars().skip(start).take(SNIPPET_CHARS).collect();
    if start > 0 {
        cut.insert(0, '…');
    }
    if start + SNIPPET_CHARS < folded.len() {
        cut.push('…');
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_words_phrases_beginnings_and_absences() {
        let check = |text: &str, read: &str| {
            let told = match parse(text) {
                Ok(query) => {
                    let term = |term: &Term| format!("{:?} {}", term.matching, term.text);
                    query.terms.iter().map(term).collect::<Vec<_>>().join(", ")
                }
                Err(error) => error.to_string(),
            };
            assert_eq!(told, read, "{text}");
        };
        check("retry backoff", "Whole retry, Whole backoff");
        check("\"exactly once\" -draft mig*", "Whole exactly once, Absent draft, Prefix mig");
        check("AND OR NEAR(", "Whole AND, Whole OR, Whole NEAR(");
        check("\"open", "Whole open");
        check("a\0b\n\"c\u{7}d\"", "Whole a, Whole b, Whole c d");
        check("", "give at least one word to search for");
        check("-only", "give at least one word to search for");
        check("* \" -", "give at least one word to search for");
        check(&"w ".repeat(17), "too many words: 17, the most is 16");
    }

    #[test]
    fn a_snippet_is_one_line_around_the_word() {
        let query = parse("Needle").expect("a word");
        assert_eq!(snippet("a\n needle\tb", &query), "a needle b");
        let long = format!("{} needle {}", "x".repeat(300), "y".repeat(300));
        let cut = snippet(&long, &query);
        assert!(cut.starts_with("…x") && cut.contains("needle") && cut.ends_with("y…"), "{cut}");
    }
}
