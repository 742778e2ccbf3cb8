//! All sessions of all agents, looked at again only where something changed.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
};

use sess_core::{SessionId, Source, Timestamp};

use crate::{Error, Foreign, Homes, Result, database, files, readers, snapshot};

/// What could not be read while sessions were listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub source: Source,
    /// What is wrong and what that costs, as a sentence.
    pub what: String,
}

/// The sessions of this machine's agents, as far as they were looked at.
///
/// Each file is remembered with its size and time of change: a second look at ten thousand
/// of them costs little more than their directory.
#[derive(Default)]
pub struct Catalogue {
    known: HashMap<PathBuf, Known>,
}

struct Known {
    standing: database::Standing,
    sessions: Vec<Foreign>,
}

/// What one look at all agents found.
#[derive(Debug, Default)]
pub struct Look {
    pub sessions: Vec<Foreign>,
    pub problems: Vec<Problem>,
}

impl Catalogue {
    /// Names the sessions of all agents, or of one. Each comes once, however often it is kept.
    pub fn look(&mut self, homes: &Homes, source: Option<Source>) -> Look {
        let mut look = Look::default();
        let mut seen_paths = HashSet::new();
        for reader in readers() {
            if source.is_some_and(|source| source != reader.source()) {
                continue;
            }
            let mut listing = Listing {
                source: reader.source(),
                catalogue: self,
                seen: &mut seen_paths,
                look: Look::default(),
            };
            reader.list(homes, &mut listing);
            if let Some(dir) = homes.snapshots() {
                snapshot::list(dir, &mut listing);
            }
            let mut once: HashSet<SessionId> = HashSet::new();
            let found = listing.look;
            // A reader names what counts first: a current store before the one that it replaced.
            let mut sessions = found.sessions;
            sessions.retain(|session| once.insert(session.id.clone()));
            without_circles(&mut sessions);
            look.sessions.extend(sessions);
            look.problems.extend(found.problems);
        }
        if source.is_none() {
            self.known.retain(|path, _| seen_paths.contains(path));
        }
        look
    }
}

/// Corrects what a wrong clock wrote: nothing was said in a session after its file last changed.
fn not_later(session: &mut Foreign, changed_at: Timestamp) {
    // Two machines that share a file never agree on the time.
    const TOLERANCE_MS: i64 = 86_400_000;
    let is_wrong = |at: Timestamp| at.as_millis().saturating_sub(changed_at.as_millis()) > TOLERANCE_MS;
    if is_wrong(session.updated_at) {
        session.updated_at = changed_at;
    }
    session.created_at = session.created_at.filter(|at| !is_wrong(*at));
}

/// Makes sessions of their own of those that are said to have started each other.
fn without_circles(sessions: &mut [Foreign]) {
    const DEPTH_MAX: usize = 100;
    let started = |session: &Foreign| Some((session.id.clone(), session.parent.clone()?));
    let parents: HashMap<SessionId, SessionId> = sessions.iter().filter_map(started).collect();
    for session in sessions {
        let above = std::iter::successors(parents.get(&session.id), |id| parents.get(id));
        if above.take(DEPTH_MAX).any(|id| *id == session.id) {
            (session.parent, session.name) = (None, None);
        }
    }
}

/// What a reader tells its findings to.
pub struct Listing<'a> {
    source: Source,
    catalogue: &'a mut Catalogue,
    seen: &'a mut HashSet<PathBuf>,
    look: Look,
}

impl Listing<'_> {
    /// Adds the sessions that a file holds. `look` is asked when the file is new or changed;
    /// what it cannot read becomes a problem.
    pub(crate) fn visit(&mut self, path: &Path, look: impl FnOnce() -> Result<Vec<Foreign>>) {
        let standing = match database::Standing::of(path) {
            Ok(standing) => standing,
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => return,
            Err(error) => return self.left_out(&error),
        };
        self.seen.insert(path.to_owned());
        if let Some(known) = self.catalogue.known.get(path)
            && known.standing == standing
        {
            self.look.sessions.extend(known.sessions.iter().cloned());
            return;
        }
        match look() {
            Ok(mut sessions) => {
                sessions.iter_mut().for_each(|session| not_later(session, standing.changed_at()));
                self.look.sessions.extend(sessions.iter().cloned());
                self.catalogue.known.insert(path.to_owned(), Known { standing, sessions });
            }
            Err(error) => self.left_out(&error),
        }
    }

    /// Returns what is in a directory inside an agent's own: nothing when that is a link.
    pub(crate) fn entries_below(&mut self, dir: &Path) -> Vec<files::Item> {
        if dir.is_symlink() { Vec::new() } else { self.entries(dir) }
    }

    /// Returns what is in a directory; one that cannot be read becomes a problem. It may be a
    /// link: people move an agent's store to where there is room.
    pub(crate) fn entries(&mut self, dir: &Path) -> Vec<files::Item> {
        files::entries(dir).unwrap_or_else(|error| {
            self.left_out(&error);
            Vec::new()
        })
    }

    pub(crate) fn source(&self) -> Source {
        self.source
    }

    /// Returns the ids of what was found so far.
    pub(crate) fn ids(&self) -> HashSet<SessionId> {
        self.look.sessions.iter().map(|session| session.id.clone()).collect()
    }

    /// Changes what was found so far, by what is known elsewhere.
    pub(crate) fn decorate(&mut self, mut change: impl FnMut(&mut Foreign)) {
        self.look.sessions.iter_mut().for_each(&mut change);
    }

    fn left_out(&mut self, error: &Error) {
        self.problem(format!("{error}; what is in it is left out"));
    }

    pub(crate) fn problem(&mut self, what: String) {
        self.look.problems.push(Problem { source: self.source, what });
    }
}
