//! Copies of other agents' sessions in the store, whose originals are still there: what both say is found once, in
//! the original.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher},
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use sess_core::{SessionId, Source, message::Body, session::Session};
use sess_readers::{Foreign, Matcher};

use crate::{Result, context};

/// What the originals of stored sessions say of what is searched for. Each is read once, when a message of its copy
/// was found.
///
/// What was found in them cannot tell that: of both only the newest messages are found at a time, and the store has
/// another order than the files.
pub(super) struct Originals {
    sessions: Arc<Vec<Foreign>>,
    matcher: Arc<Matcher>,
    /// Is set once nobody waits for the search any longer.
    stop: Arc<AtomicBool>,
    said: HashMap<(Source, SessionId), HashSet<u64>>,
}

impl Originals {
    pub(super) fn new(sessions: Arc<Vec<Foreign>>, matcher: Arc<Matcher>, stop: Arc<AtomicBool>) -> Self {
        Self { sessions, matcher, stop, said: HashMap::new() }
    }

    /// Tells whether a message that was found in a stored session, by this text, is in the original of that session.
    pub(super) async fn have(&mut self, session: &Session, body: &Body, text: &str) -> Result<bool> {
        if session.source == Source::Native {
            return Ok(false);
        }
        let named = (session.source, session.id.clone());
        if !self.said.contains_key(&named) {
            let is_original = |it: &&Foreign| it.source == session.source && it.id == session.id;
            let said = match self.sessions.iter().find(is_original).cloned() {
                Some(original) => {
                    let (matcher, stop) = (Arc::clone(&self.matcher), Arc::clone(&self.stop));
                    context::blocking(move || said(&original, &matcher, &stop)).await?
                }
                None => HashSet::new(),
            };
            self.said.insert(named.clone(), said);
        }
        Ok(self.said[&named].contains(&name(body, text)))
    }
}

/// Reads what a session says of what is searched for. One that cannot be read says nothing, here as in the search.
fn said(session: &Foreign, matcher: &Matcher, stop: &AtomicBool) -> HashSet<u64> {
    let mut said = HashSet::new();
    let _told = sess_readers::read(session, &mut |entry| {
        let text = (!entry.is_taken_back).then(|| entry.body.plain_text());
        if let Some(text) = text.and_then(|text| matcher.found_in(text)) {
            said.insert(name(&entry.body, &text));
        }
        if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    said
}

/// Names what was said in little memory.
fn name(body: &Body, text: &str) -> u64 {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    hasher.hash_one((body.timestamp, body.role, text))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use sess_core::Timestamp;
    use sess_readers::Place;

    use super::*;

    #[test]
    fn an_original_is_not_read_to_its_end_once_nobody_waits_for_it() {
        let mut file = tempfile::Builder::new().suffix(".jsonl").tempfile().expect("a file");
        for n in 0..9 {
            let said = format!(r#"[{{"type":"text","text":"needle {n}"}}]"#);
            writeln!(file, r#"{{"role":"user","created":{n},"content":{said}}}"#).expect("written");
        }
        let place = Place { path: file.path().to_owned(), size_bytes: Some(1) };
        let id = "c1".parse().expect("an id");
        let session = Foreign::new(Source::Goose, id, place, Timestamp::default());
        let mut matcher = Matcher::default();
        matcher.word("needle", false);
        let count = |is_stopped: bool| said(&session, &matcher, &AtomicBool::new(is_stopped)).len();
        assert_eq!((count(false), count(true)), (9, 1));
    }
}
