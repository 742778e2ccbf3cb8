//! Copies of other agents' sessions in the store, whose originals are still there: what both say is found once, in
//! the original.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher},
    ops::ControlFlow,
    sync::Arc,
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
    said: HashMap<(Source, SessionId), HashSet<u64>>,
}

impl Originals {
    pub(super) fn new(sessions: Arc<Vec<Foreign>>, matcher: Arc<Matcher>) -> Self {
        Self { sessions, matcher, said: HashMap::new() }
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
                    let matcher = Arc::clone(&self.matcher);
                    context::blocking(move || said(&original, &matcher)).await?
                }
                None => HashSet::new(),
            };
            self.said.insert(named.clone(), said);
        }
        Ok(self.said[&named].contains(&name(body, text)))
    }
}

/// Reads what a session says of what is searched for. One that cannot be read says nothing, here as in the search.
fn said(session: &Foreign, matcher: &Matcher) -> HashSet<u64> {
    let mut said = HashSet::new();
    let _told = sess_readers::read(session, &mut |entry| {
        let text = (!entry.is_taken_back).then(|| entry.body.plain_text());
        if let Some(text) = text.and_then(|text| matcher.found_in(text)) {
            said.insert(name(&entry.body, &text));
        }
        ControlFlow::Continue(())
    });
    said
}

/// Names what was said in little memory.
fn name(body: &Body, text: &str) -> u64 {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    hasher.hash_one((body.timestamp, body.role, text))
}
