//! Search: finding the message that said it, in our own sessions and in other agents'.

mod originals;

use std::{
    cmp::Reverse,
    collections::{HashMap, hash_map::Entry as Slot},
    fmt,
    path::Path,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use schemars::JsonSchema;
use serde::Serialize;
use sess_core::{
    SessionId, SessionKey, Source, Timestamp,
    message::{Body, Role},
    policy,
    session::Session,
};
use sess_readers::{Before, Foreign, Matcher};
use sess_store::{Archived, Matching, Position, SearchQuery, SessionFilter, Span, StoredMessage, Term};

use self::originals::Originals;
use crate::{App, Caller, Error, ListSessions, Listed, Redaction, Result, Scope, context};

const LIMIT_MAX: usize = 100;
/// How many are found when nobody says.
pub const SEARCH_LEN: usize = 20;
/// How much of a message is shown around what was found, in characters.
const SNIPPET_CHARS: usize = 160;
/// More words than this make no search better.
const TERMS_MAX: usize = 16;
/// The most messages of one instant that a cursor passes over.
const SHOWN_MAX: usize = 10_000;
/// How many messages of our own an expression is tried on at a time.
const PAGE_LEN: usize = 256;

/// What to search for, and where.
#[derive(Clone, Debug, Default)]
pub struct SearchMessages {
    /// Words, or a regular expression.
    pub text: String,
    pub is_expression: bool,
    pub scope: Scope,
    /// Only sessions that come from these; from everywhere when empty.
    pub sources: Vec<Source>,
    pub limit: Option<i64>,
    /// The cursor of an earlier search.
    pub before: Option<String>,
    pub redaction: Redaction,
}

impl SearchMessages {
    /// Returns the source that all of it comes from, if there is but one.
    fn only_source(&self) -> Option<Source> {
        match self.sources[..] {
            [source] => Some(source),
            _ => None,
        }
    }

    fn is_from(&self, source: Source) -> bool {
        self.sources.is_empty() || self.sources.contains(&source)
    }
}

/// What was found, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Found {
    pub hits: Vec<SearchHit>,
    /// Give this back to see older ones; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(with = "String")]
    pub cursor: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SearchHit {
    pub session: Listed,
    /// Give this to `read_session` as `around`.
    pub message: String,
    /// Its place in the transcript, with what is no message and what was taken back.
    pub seq: u64,
    #[serde(skip)]
    pub spot: Spot,
    #[schemars(with = "String")]
    pub role: Role,
    /// RFC 3339, UTC.
    pub time: String,
    pub snippet: String,
}

/// Which session a message stands in and since when, for doors that say it in other words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spot {
    pub key: SessionKey,
    pub at: Timestamp,
}

/// How far a search got, in our own sessions and in other agents'.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cursor {
    position: Option<Position>,
    foreign: Option<Before>,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(position) = self.position {
            write!(f, "{}", position.0)?;
        }
        match self.foreign {
            Some(before) => write!(f, ".{}.{}", before.at.as_millis(), before.shown),
            None => Ok(()),
        }
    }
}

impl FromStr for Cursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts: Vec<&str> = text.split('.').collect();
        let number = |text: &str| text.parse::<u64>().ok();
        let before = |at: &str, shown: &str| {
            let at = Timestamp::from_millis(at.parse().ok()?)?;
            let shown = usize::try_from(number(shown)?).ok().filter(|shown| *shown <= SHOWN_MAX)?;
            Some(Before { at, shown })
        };
        let cursor = match parts[..] {
            [position] => {
                number(position).map(|position| Self { position: Some(Position(position)), foreign: None })
            }
            ["", at, shown] => before(at, shown).map(|before| Self { position: None, foreign: Some(before) }),
            [position, at, shown] => number(position)
                .zip(before(at, shown))
                .map(|(position, before)| Self { position: Some(Position(position)), foreign: Some(before) }),
            _ => None,
        };
        cursor.ok_or_else(|| {
            Error::Invalid("the cursor is none that a search gave; search again without it".to_owned())
        })
    }
}

/// A hit, and how to go on after it.
struct Placed {
    hit: SearchHit,
    /// Where it stands in the store, when it is our own.
    position: Option<Position>,
}

impl Placed {
    fn at(&self) -> Timestamp {
        self.hit.spot.at
    }
}

impl App {
    /// Finds messages, newest first. `told` hears how many bytes of other agents' files of how
    /// many were looked through.
    pub async fn search(
        &self,
        caller: &Caller,
        ask: &SearchMessages,
        told: impl Fn(u64, u64) + Send + Sync + 'static,
    ) -> Result<Found> {
        let query = if ask.is_expression { None } else { Some(parse(&ask.text)?) };
        let redaction = context::allowed(caller, ask.redaction);
        let mut matcher = match &query {
            None => expression(&ask.text)?,
            Some(query) => words(query),
        };
        if redaction == Redaction::Masked {
            matcher.in_masked();
        }
        let cursor: Cursor = ask.before.as_deref().map(str::parse).transpose()?.unwrap_or_default();
        let limit = match ask.limit {
            Some(limit @ 1..) => usize::try_from(limit).unwrap_or(LIMIT_MAX).min(LIMIT_MAX),
            Some(_) | None => SEARCH_LEN,
        };
        self.home()?;
        let scope = self.visible(caller).await?;
        let matcher = Arc::new(matcher);
        let dirs = self.dirs(ask.scope)?;
        // One more than is shown tells whether there are older ones.
        let enough = limit + 1;
        let own = self.own_line(caller).await?;
        let stop = Stop::default();
        let seek = Seek { caller, ask, scope, matcher, cursor, limit: enough, redaction, dirs, own, stop };
        let sessions = Arc::new(self.searched(&seek).await?);
        // A cursor names the part that has more; the first search has none.
        let is_first = ask.before.is_none();
        let mut found = Vec::new();
        let mut is_cut = false;
        if (is_first || cursor.position.is_some()) && self.has_store() {
            let (sessions, matcher) = (Arc::clone(&sessions), Arc::clone(&seek.matcher));
            let mut originals = Originals::new(sessions, matcher, seek.stop.flag());
            let ours = match query {
                Some(query) => self.search_index(&seek, query, &mut originals).await?,
                None => self.search_messages(&seek, &mut originals).await?,
            };
            is_cut |= ours.len() > limit;
            found.extend(ours);
        }
        if is_first || cursor.foreign.is_some() {
            let (theirs, is_more) = self.search_foreign(&seek, sessions, told).await?;
            is_cut |= is_more;
            found.extend(theirs);
        }
        found.sort_by_key(|placed| Reverse(placed.at()));
        is_cut |= found.len() > limit;
        found.truncate(limit);
        Ok(Found {
            cursor: is_cut.then(|| next(&found, cursor).to_string()),
            hits: found.into_iter().map(|it| it.hit).collect(),
        })
    }

    /// Asks the full-text index of the store.
    async fn search_index(
        &self,
        seek: &Seek<'_>,
        mut query: SearchQuery,
        originals: &mut Originals,
    ) -> Result<Vec<Placed>> {
        if let policy::Scope::Agent(agent) = &seek.scope {
            query.agent = Some(agent.clone());
        }
        query.source = seek.ask.only_source();
        if seek.redaction == Redaction::Masked {
            // The index knows the secrets: that a word is not among them is nothing it may tell.
            query.terms.retain(|term| term.matching != Matching::Absent);
        }
        let store = self.store()?;
        let (mut hits, mut before) = (Vec::new(), seek.cursor.position);
        loop {
            let found = store.search(&query, before, seek.limit).await?;
            let is_last = found.len() < seek.limit;
            before = found.last().map(|hit| hit.message.position);
            for hit in found {
                if self.is_sought(seek, &hit.session).await?
                    && let Ok(body) = hit.message.parse()
                    && let Some(text) = seek.indexed(&body)
                    && !originals.have(&hit.session, &body, &text).await?
                {
                    hits.push(seek.hit(&hit.session, &hit.message, &body, &text));
                }
            }
            if is_last || hits.len() >= seek.limit {
                return Ok(hits);
            }
        }
    }

    /// Tries an expression on every message of the store, the newest sessions first.
    async fn search_messages(&self, seek: &Seek<'_>, originals: &mut Originals) -> Result<Vec<Placed>> {
        let store = self.store()?;
        let source = seek.ask.only_source();
        let filter = SessionFilter { source, archived: Archived::Included, ..SessionFilter::default() };
        let mut hits: Vec<Placed> = Vec::new();
        let mut seen = 0;
        loop {
            let sessions = store.list_sessions(&filter, seen, PAGE_LEN).await?;
            if sessions.is_empty() {
                return Ok(hits);
            }
            seen += sessions.len() as u64;
            // The newest last: they are taken from the end, with what is below each.
            let mut rest: Vec<Session> = sessions.into_iter().rev().collect();
            while let Some(session) = rest.pop() {
                // Nothing in it is newer than what was found, nor in any that follows in the list.
                if hits.len() >= seek.limit && hits.last().is_some_and(|last| last.at() > session.updated_at)
                {
                    match session.parent {
                        None => return Ok(hits),
                        Some(_) => continue,
                    }
                }
                if !self.is_sought(seek, &session).await? {
                    continue;
                }
                rest.extend(store.children(&session.key).await?);
                let mut span = Span::Last;
                loop {
                    let page = store.messages(&session.id, span, PAGE_LEN).await?;
                    let Some(oldest) = page.messages.first().map(|message| message.seq) else { break };
                    for message in &page.messages {
                        let is_older = seek.cursor.position.is_none_or(|before| message.position < before);
                        let Ok(body) = message.parse() else { continue };
                        if !is_older {
                            continue;
                        }
                        let text = seek.matcher.seen(body.plain_text());
                        if seek.matcher.find(&text).is_some()
                            && !originals.have(&session, &body, &text).await?
                        {
                            hits.push(seek.hit(&session, message, &body, &text));
                        }
                    }
                    span = Span::Before(oldest);
                }
                hits.sort_by_key(|placed| Reverse(placed.position));
                hits.truncate(seek.limit);
            }
        }
    }

    /// Returns the sessions of other agents that are searched.
    async fn searched(&self, seek: &Seek<'_>) -> Result<Vec<Foreign>> {
        // What its agent put away is out of lists, and still there to be found.
        let list = ListSessions {
            scope: seek.ask.scope,
            source: seek.ask.only_source(),
            include_archived: true,
            ..ListSessions::default()
        };
        let mut sessions =
            self.foreign_that_fit(seek.caller, &list, &seek.scope, context::Children::Included).await?;
        sessions.retain(|foreign| seek.ask.is_from(foreign.source));
        Ok(sessions)
    }

    /// Looks through other agents' files; says whether there are older hits.
    async fn search_foreign(
        &self,
        seek: &Seek<'_>,
        sessions: Arc<Vec<Foreign>>,
        told: impl Fn(u64, u64) + Send + Sync + 'static,
    ) -> Result<(Vec<Placed>, bool)> {
        let (matcher, before, limit) = (Arc::clone(&seek.matcher), seek.cursor.foreign, seek.limit);
        let stop = seek.stop.flag();
        let looked = Arc::clone(&sessions);
        let app = self.clone();
        let found = context::blocking(move || {
            let terms = matcher.terms();
            let filters = if terms.is_empty() { None } else { app.filters() };
            let may_have =
                |session: &Foreign| filters.as_ref().is_none_or(|filters| filters.may_have(session, &terms));
            let found = sess_readers::search(&looked, &matcher, before, limit, &may_have, &stop, &told);
            if let Some(filters) = filters {
                filters.warn_if_damaged();
            }
            found
        });
        let found = found.await?;
        for notice in unsearched(&sessions, &found.problems) {
            tracing::warn!("{notice}");
        }
        let mut hits = Vec::with_capacity(found.hits.len());
        let mut listed: HashMap<usize, Listed> = HashMap::new();
        for hit in found.hits {
            let session = &sessions[hit.session];
            if let Slot::Vacant(slot) = listed.entry(hit.session) {
                let mut session = session.clone();
                if let Some(title) = found.titles.get(&hit.session) {
                    (session.title, session.is_title_sure) = (title.clone(), true);
                }
                let found = context::Found::Foreign(Box::new(session), None);
                let found = self.with_row(found).await?;
                slot.insert(self.listed(&found).await?);
            }
            let placed = SearchHit {
                session: listed[&hit.session].clone(),
                message: context::message_ref(hit.message_id, hit.seq),
                seq: hit.seq,
                spot: Spot { key: session.key(), at: hit.at },
                role: hit.role,
                time: hit.at.to_string(),
                snippet: seek.snippet(&hit.text),
            };
            hits.push(Placed { hit: placed, position: None });
        }
        Ok((hits, found.is_cut))
    }

    /// Tells whether a stored session is one of those that are to be searched.
    async fn is_sought(&self, seek: &Seek<'_>, session: &Session) -> Result<bool> {
        let is_below = |cwd: &str| seek.dirs.iter().any(|dir| Path::new(cwd).starts_with(dir));
        let is_there = seek.dirs.is_empty() || session.cwd.as_deref().is_some_and(is_below);
        // A copy of another agent's session that the caller is not shown is not shown either.
        let is_own =
            session.source != Source::Native && context::is_among(&seek.own, session.source, &session.id);
        let is_asked_for = is_there && !is_own && seek.ask.is_from(session.source);
        Ok(is_asked_for && self.is_inside(&seek.scope, session).await?)
    }
}

/// Says what was not searched, file by file: a database with a thousand sessions is one piece of news.
fn unsearched(sessions: &[Foreign], problems: &[(usize, String)]) -> Vec<String> {
    let mut files: Vec<(&Foreign, &str, usize)> = Vec::new();
    let mut places: HashMap<(Source, &Path), usize> = HashMap::new();
    for (place, problem) in problems {
        let session = &sessions[*place];
        match places.entry((session.source, &session.place.path)) {
            Slot::Vacant(slot) => {
                slot.insert(files.len());
                files.push((session, problem, 1));
            }
            Slot::Occupied(slot) => files[*slot.get()].2 += 1,
        }
    }
    let told = |(first, problem, count): (&Foreign, &str, usize)| match count {
        1 => format!("{} was not searched: {problem}", first.reference()),
        _ => {
            let (source, first) = (first.source, first.reference());
            format!(
                "{count} sessions of {source} in one file were not searched, the first {first}: {problem}"
            )
        }
    };
    files.into_iter().map(told).collect()
}

/// What one search goes by.
struct Seek<'a> {
    caller: &'a Caller,
    ask: &'a SearchMessages,
    scope: policy::Scope,
    matcher: Arc<Matcher>,
    cursor: Cursor,
    /// How many hits are enough.
    limit: usize,
    redaction: Redaction,
    /// The directories whose sessions are sought; all when empty.
    dirs: Vec<String>,
    /// The caller's own session and those above it.
    own: Vec<(Source, SessionId)>,
    /// Ends with the search, and with it whatever is still read for it.
    stop: Stop,
}

impl Seek<'_> {
    /// Returns the text of a message that the index found, unless only what is hidden in it was found.
    fn indexed(&self, body: &Body) -> Option<String> {
        let plain = body.plain_text();
        let text = self.matcher.seen(plain.clone());
        // The index takes words as alike that the matcher does not: accents are nothing to it.
        let is_found =
            if text == plain { self.matcher.is_without(&text) } else { self.matcher.find(&text).is_some() };
        is_found.then_some(text)
    }

    fn hit(&self, session: &Session, message: &StoredMessage, body: &Body, text: &str) -> Placed {
        let hit = SearchHit {
            session: context::listed(session),
            message: message.id.to_string(),
            seq: message.seq,
            spot: Spot { key: session.key.clone(), at: body.timestamp },
            role: body.role,
            time: body.timestamp.to_string(),
            snippet: self.snippet(text),
        };
        Placed { hit, position: Some(message.position) }
    }

    /// Cuts a text, as it is searched, to the part around what was found.
    fn snippet(&self, text: &str) -> String {
        // The index may have found a word with other accents; then the beginning is shown.
        let found = self.matcher.find(text).map_or(0, |found| found.start);
        snippet(text, found)
    }
}

/// Ends work that nobody waits for any longer: it goes on until this is dropped.
#[derive(Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Returns what is set when it is to end.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns where the next search goes on.
///
/// A part of which nothing was shown goes on where it was: at its newest when it had not begun.
fn next(found: &[Placed], from: Cursor) -> Cursor {
    let position = found.iter().filter_map(|it| it.position).min();
    let theirs = found.iter().filter(|it| it.position.is_none());
    let foreign = theirs.clone().map(Placed::at).min().map(|at| {
        let shown = theirs.filter(|it| it.at() == at).count();
        let before = from.foreign.filter(|before| before.at == at).map_or(0, |before| before.shown);
        Before { at, shown: shown + before }
    });
    let newest = Before { at: Timestamp::from_millis_clamped(i64::MAX), shown: 0 };
    Cursor {
        position: position.or(from.position).or(Some(Position(i64::MAX.unsigned_abs()))),
        foreign: foreign.or(from.foreign).or(Some(newest)),
    }
}

fn expression(text: &str) -> Result<Matcher> {
    let mut matcher = Matcher::default();
    if text.is_empty() {
        return Err(Error::Invalid("give an expression to search for".to_owned()));
    }
    matcher.expression(text).map_err(|error| {
        // The last line of what the parser says is the reason; the ones before draw where it stands.
        let said = error.to_string();
        let reason = said.lines().last().unwrap_or_default().trim().trim_start_matches("error: ").trim_end_matches('.');
        Error::Invalid(format!(
            "this is no regular expression: {reason}; put a \\ before a sign that stands for itself, or search \
             for words"
        ))
    })?;
    Ok(matcher)
}

fn words(query: &SearchQuery) -> Matcher {
    let mut matcher = Matcher::default();
    for term in &query.terms {
        match term.matching {
            Matching::Whole => matcher.word(&term.text, false),
            Matching::Prefix => matcher.word(&term.text, true),
            Matching::Absent => matcher.without(&term.text),
        }
    }
    matcher
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

/// Cuts the part around what was found at a byte of the text, on one line.
fn snippet(text: &str, found: usize) -> String {
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut before = one_line(&text[..found]);
    if !before.is_empty() && text[..found].ends_with(char::is_whitespace) {
        before.push(' ');
    }
    let (before, after): (Vec<char>, Vec<char>) =
        (before.chars().collect(), one_line(&text[found..]).chars().collect());
    let start = before.len().saturating_sub(SNIPPET_CHARS / 4);
    let room = SNIPPET_CHARS - (before.len() - start);
    let mut cut = String::new();
    if start > 0 {
        cut.push('…');
    }
    cut.extend(before[start..].iter().chain(after.iter().take(room)));
    if after.len() > room {
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
        assert_eq!(snippet("a\n needle\tb", 3), "a needle b");
        assert_eq!(snippet("needle", 0), "needle");
        assert_eq!(snippet("(needle)", 1), "(needle)");
        let long = format!("{} needle {}", "x".repeat(300), "y".repeat(300));
        let cut = snippet(&long, 301);
        assert!(cut.starts_with("…x") && cut.contains("needle") && cut.ends_with("y…"), "{cut}");
    }

    #[test]
    fn what_was_not_searched_is_told_file_by_file() {
        let session = |id: &str, path: &str| {
            let place = sess_readers::Place { path: path.into(), size_bytes: None };
            Foreign::new(Source::Opencode, id.parse().expect("an id"), place, Timestamp::default())
        };
        let sessions = [session("s1", "/a.db"), session("s2", "/b.db"), session("s3", "/a.db")];
        let problem = |place: usize| (place, format!("{} is bad", sessions[place].place.path.display()));
        assert_eq!(unsearched(&sessions, &[]), [""; 0]);
        assert_eq!(
            unsearched(&sessions, &[problem(0), problem(1), problem(2)]),
            [
                "2 sessions of opencode in one file were not searched, the first opencode:s1: /a.db is bad",
                "opencode:s2 was not searched: /b.db is bad",
            ]
        );
    }
}
