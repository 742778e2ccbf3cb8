//! Snapshots: copies of other agents' sessions, for when their agents delete them.
//!
//! The owner asks for them; nothing is copied otherwise. Sessions of which only a snapshot is
//! left are listed, read and searched as all others.

pub(crate) mod keeper;
mod merge;

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
};

use serde::Serialize;
use sess_core::{
    SessionId, Source,
    reference::{Reference, ReferenceError, may_be_prefix},
};
use sess_readers::{
    Foreign,
    snapshot::{self, Manifest},
};

use self::keeper::{Keeper, Outcome};
use crate::{App, Caller, Error, Result, context, sessions::may_manage};

/// What came of one round of snapshots.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Snapshots {
    /// How many sessions were looked at, sub-agents' too.
    pub looked_at: u64,
    pub new: u64,
    /// Those in which something was said since.
    pub grown: u64,
    pub unchanged: u64,
    /// Those in which nothing was said.
    pub empty: u64,
    /// Those whose originals lack what their snapshots have.
    pub kept: Vec<KeptSnapshot>,
    /// Those that could not be copied.
    pub failed: Vec<Unsaved>,
    pub written_bytes: u64,
    #[serde(flatten)]
    pub left: SnapshotsLeft,
}

/// A snapshot that has more than its original.
#[derive(Clone, Debug, Serialize)]
pub struct KeptSnapshot {
    pub id: String,
    /// How many entries the original has no more, or not in these words.
    pub lost: u64,
    /// How many of those it says in other words.
    pub changed: u64,
}

/// A session of which no snapshot was taken.
#[derive(Clone, Debug, Serialize)]
pub struct Unsaved {
    pub id: String,
    pub reason: String,
}

/// What there is in all.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct SnapshotsLeft {
    /// Sub-agents' too.
    pub snapshots: u64,
    pub of_sub_agents: u64,
    /// On the disk, compressed.
    pub size_bytes: u64,
    /// Manifests that cannot be read. While there are any, chunks that nobody names stay.
    pub unreadable: u64,
}

/// A snapshot in a list.
#[derive(Clone, Debug, Serialize)]
pub struct SnapshotRow {
    /// Give this to `sess read` and to `sess snapshot forget`.
    pub id: String,
    pub title: String,
    pub num_messages: u64,
    /// When something was last said in it; RFC 3339, UTC.
    pub updated_at: String,
    pub taken_at: String,
    /// Its agent has it no more.
    pub is_original_gone: bool,
    /// The session that it was started from, when it is a sub-agent's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct SnapshotRows {
    /// Most recent activity first.
    pub snapshots: Vec<SnapshotRow>,
    /// What cannot be read, each as a sentence.
    pub problems: Vec<String>,
}

/// What was forgotten.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ForgottenSnapshots {
    /// The session that was named, and its sub-agents'.
    pub forgotten: Vec<String>,
    /// Those of them that their agent has no more: nothing of these is left.
    pub last_copies: Vec<String>,
}

/// Returns where snapshots are kept.
pub(crate) fn dir(home: &Path) -> PathBuf {
    home.join("snapshots")
}

impl App {
    /// Copies what is new in the sessions of all other agents, or of one; `told` hears how many of
    /// how many are done.
    pub async fn take_snapshots(
        &self,
        caller: &Caller,
        source: Option<Source>,
        told: impl Fn(u64, u64) + Send + 'static,
    ) -> Result<Snapshots> {
        may_manage(caller, "take snapshots of sessions")?;
        let dir = dir(self.home()?);
        let mut sessions = self.foreign_sessions(source).await?;
        sessions.retain(|session| !session.is_snapshot);
        if sessions.is_empty() && !dir.exists() {
            return Ok(Snapshots::default());
        }
        let now = self.now();
        context::blocking(move || {
            let keeper = Keeper::open(&dir, now)?;
            let all = sessions.len() as u64;
            let mut taken = Snapshots { looked_at: all, ..Snapshots::default() };
            for (done, session) in sessions.iter().enumerate() {
                told(done as u64, all);
                let id = session.reference();
                match keeper.keep(session)? {
                    Outcome::New => taken.new += 1,
                    Outcome::Grown => taken.grown += 1,
                    Outcome::Unchanged => taken.unchanged += 1,
                    Outcome::Empty => taken.empty += 1,
                    Outcome::Fuller { lost, changed } => taken.kept.push(KeptSnapshot { id, lost, changed }),
                    Outcome::Failed(reason) => {
                        taken.failed.push(Unsaved { id, reason: context::plain(&reason) });
                    }
                }
            }
            taken.written_bytes = keeper.written_bytes();
            taken.left = keeper.sweep()?;
            Ok(taken)
        })
        .await?
    }

    /// Lists the snapshots there are, most recent activity first.
    pub async fn snapshots(&self, caller: &Caller) -> Result<SnapshotRows> {
        may_manage(caller, "list snapshots")?;
        let dir = dir(self.home()?);
        let live: HashSet<(Source, SessionId)> = self.live_sessions().await?;
        let (mut found, problems) = context::blocking(move || {
            let (mut found, mut problems) = (Vec::new(), Vec::new());
            for (_, _, path) in snapshot::manifests(&dir).map_err(|error| unreadable(&error))? {
                match Manifest::load(&path) {
                    Ok(manifest) => found.push(manifest),
                    Err(error) => problems.push(context::plain(&error.to_string())),
                }
            }
            Ok::<_, Error>((found, problems))
        })
        .await??;
        found.sort_by(|a, b| b.updated_at.cmp(&a.updated_at).then_with(|| a.id.cmp(&b.id)));
        if self.has_store() {
            let ids: Vec<SessionId> = found.iter().map(|manifest| manifest.id.clone()).collect();
            let known = self.store()?.known_sessions(&ids).await?.into_iter();
            let named = known.filter(|row| !row.title.is_empty());
            let mut names: HashMap<(Source, SessionId), String> =
                named.map(|row| ((row.source, row.id), row.title)).collect();
            for manifest in &mut found {
                if let Some(name) = names.remove(&(manifest.source, manifest.id.clone())) {
                    manifest.title = name;
                }
            }
        }
        let snapshots = found.into_iter().map(|manifest| row(manifest, &live)).collect();
        Ok(SnapshotRows { snapshots, problems })
    }

    /// Deletes a snapshot, with those of the sub-agents that its session started; returns what went.
    ///
    /// A damaged one can be forgotten too: it is found by its name.
    pub async fn forget_snapshot(&self, caller: &Caller, reference: &str) -> Result<ForgottenSnapshots> {
        may_manage(caller, "forget snapshots")?;
        let dir = dir(self.home()?);
        let live = self.live_sessions().await?;
        let (now, reference) = (self.now(), reference.trim().to_owned());
        context::blocking(move || {
            let all = snapshot::manifests(&dir).map_err(|error| unreadable(&error))?;
            let (source, id) = find(&all, &reference)?;
            let keeper = Keeper::open(&dir, now)?;
            let family = family(&all, source, &id);
            keeper.forget(&family)?;
            keeper.sweep()?;
            let mut gone = ForgottenSnapshots::default();
            for (source, id, _) in family {
                let reference = format!("{source}:{id}");
                if !live.contains(&(source, id)) {
                    gone.last_copies.push(reference.clone());
                }
                gone.forgotten.push(reference);
            }
            Ok(gone)
        })
        .await?
    }

    /// Returns a session as its snapshot has it.
    pub(crate) fn snapshot_of(&self, session: &Foreign) -> Result<Foreign> {
        let dir = dir(self.home()?);
        if !Manifest::path(&dir, session.source, &session.id).exists() {
            let what =
                format!("there is no snapshot of \"{}\"; `sess snapshot` takes one", session.reference());
            return Err(Error::NotFound(what));
        }
        snapshot::session(&dir, session.source, &session.id).map_err(|error| unreadable(&error))
    }

    /// Names the sessions that other agents have themselves.
    async fn live_sessions(&self) -> Result<HashSet<(Source, SessionId)>> {
        let Some(homes) = self.settings().homes.clone() else { return Ok(HashSet::new()) };
        let sessions = self.foreign_sessions_in(homes.without_snapshots(), None).await?.into_iter();
        Ok(sessions.map(|it| (it.source, it.id)).collect())
    }
}

fn row(manifest: Manifest, live: &HashSet<(Source, SessionId)>) -> SnapshotRow {
    let source = manifest.source;
    SnapshotRow {
        id: format!("{source}:{}", manifest.id),
        title: context::plain(&manifest.title),
        num_messages: manifest.num_messages,
        updated_at: manifest.updated_at.to_string(),
        taken_at: manifest.taken_at.to_string(),
        is_original_gone: !live.contains(&(source, manifest.id)),
        parent: manifest.parent.map(|parent| format!("{source}:{parent}")),
    }
}

type Named = (Source, SessionId, PathBuf);

/// Finds the snapshot that a reference means: `<source>:<id>`, an id, or the beginning of one.
fn find(all: &[Named], text: &str) -> Result<(Source, SessionId)> {
    let (source, id) = match Reference::parse(text)? {
        Reference::Native(source, id) => (Some(source), id),
        Reference::Id(id) => (None, id),
        Reference::Key(_) | Reference::Nothing | Reference::Relative(_) => {
            let what = "a snapshot is named by its id: `sess snapshot list` shows it".to_owned();
            return Err(Error::Invalid(what));
        }
    };
    let of_source = || all.iter().filter(|named| source.is_none_or(|source| source == named.0));
    let mut found: Vec<&Named> = of_source().filter(|named| named.1 == id).collect();
    if found.is_empty() && may_be_prefix(source, &id) {
        found = of_source().filter(|named| named.1.as_str().starts_with(id.as_str())).collect();
    }
    match found[..] {
        [(source, id, _)] => Ok((*source, id.clone())),
        [] => {
            let what =
                format!("there is no snapshot of \"{text}\"; `sess snapshot list` shows those there are");
            Err(Error::NotFound(what))
        }
        _ => {
            let (reference, matches) = (text.to_owned(), found.len() as u64);
            Err(ReferenceError::Ambiguous { reference, matches }.into())
        }
    }
}

/// Returns a snapshot and those of the sub-agents below its session.
fn family(all: &[Named], source: Source, id: &SessionId) -> Vec<Named> {
    let of_source: Vec<&Named> = all.iter().filter(|named| named.0 == source).collect();
    let parent = |named: &Named| Manifest::load(&named.2).ok().and_then(|manifest| manifest.parent);
    let parents: Vec<Option<SessionId>> = of_source.iter().map(|named| parent(named)).collect();
    let mut ids = HashSet::from([id.clone()]);
    // Sub-agents have sub-agents: it ends when no round finds another one.
    loop {
        let below = of_source.iter().zip(&parents).filter(|(named, parent)| {
            !ids.contains(&named.1) && parent.as_ref().is_some_and(|parent| ids.contains(parent))
        });
        let below: Vec<SessionId> = below.map(|(named, _)| named.1.clone()).collect();
        if below.is_empty() {
            break;
        }
        ids.extend(below);
    }
    of_source.into_iter().filter(|named| ids.contains(&named.1)).cloned().collect()
}

fn unreadable(error: &sess_readers::Error) -> Error {
    Error::Unavailable(error.to_string())
}
