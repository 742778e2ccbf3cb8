//! The index of other agents' sessions: which of them cannot have what is searched for.
//!
//! The owner asks for it, and a search is the same without it: it spares reading and answers
//! nothing. A session that has no filter, or whose file changed since, is read as before; so the
//! index may lag behind, be damaged, or be deleted at any time.

mod file;
mod filter;

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use serde::Serialize;
use sess_core::Source;
use sess_readers::{Foreign, Gathered, Terms};

pub(crate) use self::file::Filters;
use self::file::{Named, Unusable, stamp};
use crate::{App, Caller, Error, Result, context, search::Stop, sessions::may_manage};

/// What came of one round of indexing.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Indexing {
    /// How many sessions were looked at, sub-agents' too.
    pub looked_at: u64,
    pub new: u64,
    /// Those whose files changed since.
    pub changed: u64,
    pub unchanged: u64,
    /// Those that are always read, because one file does not tell when they change.
    pub left_out: u64,
    /// Those that could not be read.
    pub failed: Vec<Unindexed>,
    /// Why the index that there was could not be used, and was made anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub made_anew: Option<String>,
    #[serde(flatten)]
    pub index: IndexSize,
}

/// A session that is not in the index.
#[derive(Clone, Debug, Serialize)]
pub struct Unindexed {
    pub id: String,
    pub reason: String,
}

/// How large the index is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct IndexSize {
    /// How many sessions it has.
    pub indexed: u64,
    /// The size of their files; sessions in databases count nothing.
    pub covered_bytes: u64,
    /// Its own size on the disk.
    pub size_bytes: u64,
}

/// How the index stands.
#[derive(Clone, Debug, Default, Serialize)]
pub struct IndexState {
    /// How many sessions other agents have, sub-agents' too.
    pub sessions: u64,
    /// How many of them a search need not read when they cannot have what it looks for.
    pub current: u64,
    /// Those that are always read, because one file does not tell when they change.
    pub left_out: u64,
    #[serde(flatten)]
    pub index: IndexSize,
    /// Why it is not used, and what to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl App {
    /// Brings the index of the sessions of all other agents, or of one, up to date; `told` hears how
    /// many of how many are done. Whenever it is broken off, what is done stays.
    pub async fn index_sessions(
        &self,
        caller: &Caller,
        source: Option<Source>,
        told: impl Fn(u64, u64) + Send + Sync + 'static,
    ) -> Result<Indexing> {
        may_manage(caller, "index sessions")?;
        let home = self.home()?.to_owned();
        let sessions = self.foreign_sessions(source).await?;
        if sessions.is_empty() && !file::path(&home).exists() {
            return Ok(Indexing::default());
        }
        let stop = Stop::default();
        let flag = stop.flag();
        let indexed = context::blocking(move || {
            let (filters, made_anew) = match usable(&home) {
                Ok(filters) => (filters, None),
                Err(why) => (Filters::make(&home).map_err(Error::Unavailable)?, why.cause()),
            };
            let failed =
                |error: rusqlite::Error| Error::Unavailable(file::cannot_write(&file::path(&home), &error));
            let round = Round::new(&sessions, filters.stamps().map_err(failed)?, &filters, &flag);
            let mut indexing = round.run(&told).map_err(failed)?;
            if !flag.load(Ordering::Relaxed) {
                let is_asked = |named: &&Named| source.is_none_or(|source| source == named.0);
                filters.delete(round.gone().filter(is_asked)).map_err(failed)?;
            }
            indexing.made_anew = made_anew;
            let (indexed, covered_bytes) = filters.totals().map_err(failed)?;
            // Closed, so that its log is a part of it.
            drop(filters);
            indexing.index = IndexSize { indexed, covered_bytes, size_bytes: file::size_bytes(&home) };
            Ok(indexing)
        });
        let indexed = indexed.await?;
        drop(stop);
        indexed
    }

    /// Says how the index stands.
    pub async fn index_state(&self, caller: &Caller) -> Result<IndexState> {
        may_manage(caller, "look at the index")?;
        let home = self.home()?.to_owned();
        let sessions = self.foreign_sessions(None).await?;
        context::blocking(move || {
            let mut state = IndexState { sessions: sessions.len() as u64, ..IndexState::default() };
            let told = usable(&home).and_then(|filters| {
                let stamps = filters.stamps()?;
                let is_current = |session: &&Foreign| {
                    let known = stamps.get(&(session.source, session.id.clone()));
                    known.is_some_and(|known| stamp(session).is_ok_and(|stamp| stamp == *known))
                };
                let (current, others): (Vec<_>, Vec<_>) = sessions.iter().partition(is_current);
                let left_out = others.into_iter().filter(|session| !sess_readers::is_in_one_file(session));
                Ok((current.len() as u64, left_out.count() as u64, filters.totals()?))
            });
            let size_bytes = file::size_bytes(&home);
            match told {
                Ok((current, left_out, (indexed, covered_bytes))) => {
                    (state.current, state.left_out) = (current, left_out);
                    state.index = IndexSize { indexed, covered_bytes, size_bytes };
                }
                Err(why) => {
                    state.problem = why.problem();
                    state.index.size_bytes = size_bytes;
                }
            }
            state
        })
        .await
    }

    /// Deletes the index; says whether there was one.
    pub async fn forget_index(&self, caller: &Caller) -> Result<bool> {
        may_manage(caller, "delete the index")?;
        let home = self.home()?.to_owned();
        let path = file::path(&home);
        let removed = context::blocking(move || file::remove(&home)).await?;
        removed.map_err(|error| {
            Error::Unavailable(format!("{} cannot be deleted: {error}; delete it by hand", path.display()))
        })
    }

    /// Says what is wrong with the index, if there is one.
    pub fn index_problem(&self) -> Result<Option<String>> {
        Ok(usable(self.home()?).err().and_then(|why| why.problem()))
    }

    /// Returns the filters that a search goes by; none when there are none that can be used.
    pub(crate) fn filters(&self) -> Option<Filters> {
        let why = match Filters::open(self.home().ok()?) {
            Ok(filters) => return Some(filters),
            Err(why) => why,
        };
        if let Some(problem) = why.problem() {
            tracing::warn!("{problem}");
        }
        None
    }
}

impl Filters {
    /// Warns, once, when something in them could not be believed.
    pub(crate) fn warn_if_damaged(&self) {
        if self.is_damaged() {
            tracing::warn!("{}", problem(file::OTHER));
        }
    }
}

impl Unusable {
    /// Says what is wrong; that there is no index is not wrong.
    fn cause(&self) -> Option<String> {
        match self {
            Self::None => None,
            Self::OfAnotherVersion => Some("it was made by another version".to_owned()),
            Self::Broken(how) => Some(how.clone()),
        }
    }

    /// As [`Self::cause`], with what to do about it.
    fn problem(&self) -> Option<String> {
        self.cause().as_deref().map(problem)
    }
}

/// Says that the index cannot be used, and what to do about it.
fn problem(how: &str) -> String {
    format!("the index cannot be used, so all sessions are read: {how}; `sess index` makes it anew")
}

/// Opens the filters, and checks all of them.
fn usable(home: &std::path::Path) -> std::result::Result<Filters, Unusable> {
    let filters = Filters::open(home)?;
    filters.check()?;
    Ok(filters)
}

/// One round over all sessions.
struct Round<'a> {
    /// Those that are there, the newest first: when it is broken off, what is searched first is done.
    order: Vec<&'a Foreign>,
    before: HashMap<Named, String>,
    filters: &'a Filters,
    stop: &'a AtomicBool,
    /// Those whose filters stay.
    seen: Mutex<HashSet<Named>>,
}

/// What came of one session.
enum Outcome {
    Written,
    Unchanged,
    LeftOut,
    Failed(String),
}

impl<'a> Round<'a> {
    fn new(
        sessions: &'a [Foreign],
        before: HashMap<Named, String>,
        filters: &'a Filters,
        stop: &'a AtomicBool,
    ) -> Self {
        let mut order: Vec<&Foreign> = sessions.iter().collect();
        order.sort_by_key(|session| Reverse(session.updated_at));
        Self { order, before, filters, stop, seen: Mutex::default() }
    }

    /// Reads what is new or changed, on all cores. What is wrong with a session costs it alone.
    fn run(&self, told: &(dyn Fn(u64, u64) + Sync)) -> rusqlite::Result<Indexing> {
        let all = self.order.len() as u64;
        let indexing = Mutex::new(Indexing { looked_at: all, ..Indexing::default() });
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let work = || -> rusqlite::Result<()> {
            let mut terms = Terms::default();
            while let Some(session) = self.order.get(next.fetch_add(1, Ordering::Relaxed)) {
                let named = (session.source, session.id.clone());
                let outcome = self.index(session, self.before.get(&named), &mut terms);
                if outcome.is_err() {
                    // Nobody else gets further on a disk that is full.
                    next.store(self.order.len(), Ordering::Relaxed);
                }
                let Some(outcome) = outcome? else { return Ok(()) };
                told(done.fetch_add(1, Ordering::Relaxed) as u64 + 1, all);
                let mut indexing = indexing.lock().unwrap_or_else(PoisonError::into_inner);
                match outcome {
                    Outcome::Written if self.before.contains_key(&named) => indexing.changed += 1,
                    Outcome::Written => indexing.new += 1,
                    Outcome::Unchanged => indexing.unchanged += 1,
                    Outcome::LeftOut => {
                        indexing.left_out += 1;
                        continue;
                    }
                    Outcome::Failed(reason) => {
                        let reason = context::plain(&reason);
                        indexing.failed.push(Unindexed { id: session.reference(), reason });
                        continue;
                    }
                }
                self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(named);
            }
            Ok(())
        };
        let workers = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            let others: Vec<_> = (1..workers).map(|_| scope.spawn(work)).collect();
            let own = work();
            let others = others.into_iter().map(|other| other.join().expect("it does not panic"));
            others.fold(own, rusqlite::Result::and)
        })?;
        Ok(indexing.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads a session when it has to be; nothing comes of one that was broken off.
    fn index(
        &self,
        session: &Foreign,
        before: Option<&String>,
        terms: &mut Terms,
    ) -> rusqlite::Result<Option<Outcome>> {
        if self.stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        // Before it is read: what is said meanwhile makes it another one.
        let stamp = match stamp(session) {
            Ok(stamp) => stamp,
            Err(error) => return Ok(Some(Outcome::Failed(error.to_string()))),
        };
        if before == Some(&stamp) {
            return Ok(Some(Outcome::Unchanged));
        }
        Ok(match terms.gather(session, self.stop) {
            Ok(Gathered::All) => {
                self.filters.put(session, &stamp, &filter::of(terms))?;
                Some(Outcome::Written)
            }
            // It is kept, so that it is not read each time to find that out.
            Ok(Gathered::TooMany) => {
                self.filters.put(session, &stamp, filter::ANY)?;
                Some(Outcome::Written)
            }
            Ok(Gathered::Elsewhere) => Some(Outcome::LeftOut),
            Ok(Gathered::Stopped) => None,
            Err(error) => Some(Outcome::Failed(error.to_string())),
        })
    }

    /// Names the filters of sessions that are not there any more, or have none this time.
    fn gone(&self) -> impl Iterator<Item = &Named> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.before.keys().filter(move |named| !seen.contains(*named))
    }
}
