//! What sessions are called, where their titles stand in the middle of long files.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use crate::{Foreign, reader};

/// Titles of longer files stay what their ends say: looking through one would take seconds.
const SIZE_BYTES_MAX: u64 = 256 << 20;

/// Returns what a session is called, if need be by all of its file.
pub fn title(session: &Foreign) -> String {
    by_all(session).unwrap_or_else(|| session.title.clone())
}

/// Looks through all of a session's file for what it is called; `None` when that was not done.
fn by_all(session: &Foreign) -> Option<String> {
    let is_short = session.place.size_bytes.is_some_and(|size| size <= SIZE_BYTES_MAX);
    let reader = reader(session.source).filter(|_| !session.is_title_sure && is_short)?;
    // What cannot be read is told of to whoever reads it; a list has what its ends say.
    let found = reader.title(session).ok()?;
    Some(found.unwrap_or_else(|| session.title.clone()))
}

/// Looks through the files of sessions whose titles are not sure, on all cores.
pub fn make_sure(sessions: &mut [Foreign]) {
    let unsure: Vec<usize> = (0..sessions.len()).filter(|place| !sessions[*place].is_title_sure).collect();
    if unsure.is_empty() {
        return;
    }
    let next = AtomicUsize::new(0);
    let looked = &*sessions;
    let work = || {
        let mut found = Vec::new();
        while let Some(place) = unsure.get(next.fetch_add(1, Ordering::Relaxed)).copied() {
            found.extend(by_all(&looked[place]).map(|title| (place, title)));
        }
        found
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let found: Vec<(usize, String)> = thread::scope(|scope| {
        let others: Vec<_> = (1..workers).map(|_| scope.spawn(work)).collect();
        let mut found = work();
        found.extend(others.into_iter().filter_map(|worker| worker.join().ok()).flatten());
        found
    });
    for (place, title) in found {
        (sessions[place].title, sessions[place].is_title_sure) = (title, true);
    }
}
