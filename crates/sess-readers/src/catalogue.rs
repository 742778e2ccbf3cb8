//! All sessions of all agents, looked at again only where something changed.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
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
    stamp: database::Stamp,
    sessions: Vec<Foreign>,
    /// What in the file could not be read, each as a sentence.
    problems: Vec<String>,
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
        let mut seen_paths: HashSet<PathBuf> = HashSet::new();
        for reader in readers() {
            if source.is_some_and(|source| source != reader.source()) {
                continue;
            }
            let mut listing = Listing {
                source: reader.source(),
                catalogue: self,
                seen: HashSet::new(),
                look: Look::default(),
            };
            reader.list(homes, &mut listing);
            if let Some(dir) = homes.snapshots() {
                snapshot::list(dir, &mut listing);
            }
            let sessions = std::mem::take(&mut listing.look.sessions);
            let mut sessions = once(sessions, |what| listing.problem(what));
            seen_paths.extend(listing.seen);
            let found = listing.look;
            without_circles(&mut sessions);
            mark_orphans(&mut sessions);
            look.sessions.extend(sessions);
            look.problems.extend(found.problems);
        }
        if source.is_none() {
            self.known.retain(|path, _| seen_paths.contains(path));
        }
        look
    }

    /// Remembers titles that were made sure of, until their files change.
    pub fn learn_titles(&mut self, sessions: &[Foreign]) {
        for session in sessions.iter().filter(|session| session.is_title_sure && !session.is_snapshot) {
            let known = self.known.get_mut(&session.place.path).into_iter().flat_map(|it| &mut it.sessions);
            for known in known.filter(|known| known.id == session.id && !known.is_title_sure) {
                (known.title, known.is_title_sure) = (session.title.clone(), true);
            }
        }
    }
}

/// Corrects what a wrong clock wrote, and what no clock did: nothing was said in a session after its file last changed,
/// and where nothing tells when it was said, it was then.
fn correct_times(session: &mut Foreign, changed_at: Timestamp) {
    let is_wrong = |at: Timestamp| is_after_change(at, changed_at);
    if is_wrong(session.updated_at) || session.updated_at == Timestamp::default() {
        session.updated_at = changed_at;
    }
    session.created_at = session.created_at.filter(|at| !is_wrong(*at));
}

/// Tells whether a time cannot be true of what a file says that changed last at `changed_at`.
pub(crate) fn is_after_change(at: Timestamp, changed_at: Timestamp) -> bool {
    // Two machines that share a file never agree on the time.
    const TOLERANCE_MS: i64 = 86_400_000;
    at.as_millis().saturating_sub(changed_at.as_millis()) > TOLERANCE_MS
}

/// Keeps each session once. A reader names what counts first, a current store before the one that it replaced; of two
/// files of one kind the one that was changed last counts, of two databases the one in which the session was, and the
/// other is told of.
fn once(sessions: Vec<Foreign>, mut tell: impl FnMut(String)) -> Vec<Foreign> {
    let mut places: HashMap<SessionId, usize> = HashMap::new();
    let mut kept: Vec<Foreign> = Vec::new();
    // What two databases share is one piece of news, however many sessions that are.
    let mut shared: BTreeMap<(PathBuf, PathBuf), u64> = BTreeMap::new();
    for mut session in sessions {
        let Some(place) = places.get(&session.id) else {
            places.insert(session.id.clone(), kept.len());
            kept.push(session);
            continue;
        };
        let known = &mut kept[*place];
        if !is_other_file(known, &session) {
            continue;
        }
        let is_newer = match session.place.size_bytes {
            Some(_) => session.changed_at() > known.changed_at(),
            // Its file changes with any of its sessions.
            None => session.updated_at > known.updated_at,
        };
        if is_newer {
            std::mem::swap(known, &mut session);
        }
        let (path, newer) = (session.place.path, &known.place.path);
        if session.place.size_bytes.is_none() {
            *shared.entry((path, newer.clone())).or_default() += 1;
            continue;
        }
        let (path, newer) = (path.display(), newer.display());
        tell(format!(
            "{path}: its session is also in {newer}, which was changed last; what is in it is left out"
        ));
    }
    for ((path, newer), count) in shared {
        let (path, newer) = (path.display(), newer.display());
        tell(match count {
            1 => format!(
                "{path}: 1 of its sessions is also in {newer}, where it was changed last; what is in it of that one \
                 is left out"
            ),
            _ => format!(
                "{path}: {count} of its sessions are also in {newer}, where they were changed last; what is in it of \
                 those is left out"
            ),
        });
    }
    kept
}

/// Tells whether two places of one session are files of one kind, or databases, of which neither replaced the other.
fn is_other_file(a: &Foreign, b: &Foreign) -> bool {
    let (first, second) = (&a.place, &b.place);
    !a.is_snapshot
        && !b.is_snapshot
        && first.size_bytes.is_some() == second.size_bytes.is_some()
        && first.path != second.path
        && first.path.extension() == second.path.extension()
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

/// Marks the sub-agents whose parents are not there: nobody would find what they said otherwise.
fn mark_orphans(sessions: &mut [Foreign]) {
    let ids: HashSet<SessionId> = sessions.iter().map(|session| session.id.clone()).collect();
    for session in sessions {
        session.is_orphan = session.parent.as_ref().is_some_and(|parent| !ids.contains(parent));
    }
}

/// What a reader tells its findings to.
pub struct Listing<'a> {
    source: Source,
    catalogue: &'a mut Catalogue,
    seen: HashSet<PathBuf>,
    look: Look,
}

impl Listing<'_> {
    /// Adds the sessions that a file holds. `look` is asked when the file is new or changed;
    /// what it cannot read becomes a problem. A file that is known in two ways is visited once.
    pub(crate) fn visit(&mut self, path: &Path, look: impl FnOnce() -> Result<Vec<Foreign>>) {
        self.visit_parts(path, |_| look());
    }

    /// Adds the sessions that a file holds, as [`Self::visit`] does. `look` may also say of what in the file it leaves
    /// out, each as a sentence.
    pub(crate) fn visit_parts(
        &mut self,
        path: &Path,
        look: impl FnOnce(&mut Vec<String>) -> Result<Vec<Foreign>>,
    ) {
        if !self.seen.insert(path.to_owned()) {
            return;
        }
        let stamp = match database::Stamp::of(path) {
            Ok(stamp) => stamp,
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => return,
            Err(error) => return self.left_out(&error),
        };
        if let Some(known) = self.catalogue.known.get(path)
            && known.stamp == stamp
        {
            let (sessions, problems) = (known.sessions.clone(), known.problems.clone());
            self.look.sessions.extend(sessions);
            problems.into_iter().for_each(|what| self.problem(what));
            return;
        }
        let mut problems = Vec::new();
        match look(&mut problems) {
            Ok(mut sessions) => {
                sessions.iter_mut().for_each(|session| correct_times(session, stamp.changed_at()));
                self.look.sessions.extend(sessions.iter().cloned());
                problems.iter().for_each(|what| self.problem(what.clone()));
                self.catalogue.known.insert(path.to_owned(), Known { stamp, sessions, problems });
            }
            Err(error) => self.left_out(&error),
        }
    }

    /// Returns what is in a directory inside an agent's own; one that is a link becomes a problem.
    pub(crate) fn entries_below(&mut self, dir: &Path) -> Vec<files::Item> {
        files::entries_below(dir).unwrap_or_else(|error| {
            self.left_out(&error);
            Vec::new()
        })
    }

    /// Leaves out what a link leads to.
    pub(crate) fn link(&mut self, path: &Path) {
        self.left_out(&files::linked(path));
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
