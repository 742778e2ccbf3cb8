//! How long other agents keep their sessions, and whether a snapshot has those that go soon.

use std::{collections::HashMap, ops::ControlFlow, path::Path};

use sess_core::{SessionId, Source, Timestamp, mention::first_of};
use sess_readers::{Foreign, Keeping, Look, readers, snapshot::Manifest};

use crate::{App, Error, Result, context, snapshots};

/// A session that may be deleted within this many days goes soon.
pub const SOON_DAYS: i64 = 7;
/// Of how many of an agent's sessions in databases the first message is read, the newest first.
const TRIED_MAX: usize = 500;

/// How an agent keeps its sessions.
#[derive(Clone, Debug)]
pub struct Retention {
    pub source: Source,
    /// How many it has, without those of sub-agents.
    pub sessions: u64,
    pub keeping: Keeping,
    /// How many may go within [`SOON_DAYS`].
    pub soon: u64,
    /// How many of those no snapshot has as they are.
    pub unsaved: u64,
    /// How many it has no more, and a snapshot has.
    pub saved: u64,
    /// What of it cannot be read, each as a sentence.
    pub problems: Vec<String>,
}

impl App {
    /// Says how the agents that were used here keep their sessions.
    pub async fn retention(&self) -> Result<Vec<Retention>> {
        let Some(homes) = self.settings().homes.clone() else { return Ok(Vec::new()) };
        let Look { mut sessions, problems } = self.look_at_agents(None).await?;
        sessions.retain(|session| !session.is_part());
        let dir = snapshots::dir(self.home()?);
        let soon = Timestamp::from_millis_clamped(self.now().as_millis() + SOON_DAYS * 86_400_000);
        context::blocking(move || {
            let found = sess_readers::snapshot::manifests(&dir);
            let found = found.map_err(|error| Error::Unavailable(error.to_string()))?;
            let manifests: HashMap<(Source, SessionId), _> =
                found.into_iter().map(|(source, id, path)| ((source, id), path)).collect();
            let is_saved = |session: &Foreign| {
                let path = manifests.get(&(session.source, session.id.clone()));
                let manifest = path.and_then(|path| Manifest::load(path).ok());
                let stamp = session.stamp().ok();
                manifest.zip(stamp).is_some_and(|(manifest, stamp)| {
                    // A database that many share changes with any of them: when it was last spoken in counts there.
                    let is_shared = session.place.size_bytes.is_none();
                    let is_quiet = is_shared && manifest.updated_at >= session.updated_at;
                    is_quiet || snapshots::keeper::is_same(&manifest, session, &stamp)
                })
            };
            let mut all = Vec::new();
            for source in readers().map(sess_readers::Reader::source) {
                let of_source = || sessions.iter().filter(|session| session.source == source);
                let live: Vec<&Foreign> = of_source().filter(|session| !session.is_snapshot).collect();
                let saved = of_source().filter(|session| session.is_snapshot).count() as u64;
                let problems = problems.iter().filter(|problem| problem.source == source);
                let mut problems: Vec<String> = problems.map(|problem| problem.what.clone()).collect();
                problems.extend(unreadable(&live));
                if live.is_empty() && saved == 0 && problems.is_empty() {
                    continue;
                }
                let keeping = sess_readers::keeping(&homes, source);
                let is_due =
                    |session: &&&Foreign| keeping.sweep().is_some_and(|sweep| sweep.due_at(session) <= soon);
                let due: Vec<&&Foreign> = live.iter().filter(is_due).collect();
                let unsaved = due.iter().filter(|session| !is_saved(session)).count() as u64;
                let (sessions, soon) = (live.len() as u64, due.len() as u64);
                all.push(Retention { source, sessions, soon, unsaved, saved, keeping, problems });
            }
            Ok(all)
        })
        .await?
    }
}

/// Says of which databases sessions are listed that cannot be read: their lists may be whole and their messages not.
fn unreadable(sessions: &[&Foreign]) -> Vec<String> {
    let mut kept: Vec<&Foreign> =
        sessions.iter().copied().filter(|session| session.place.size_bytes.is_none()).collect();
    kept.sort_by_key(|session| std::cmp::Reverse(session.updated_at));
    let mut found: Vec<(&Path, String, Vec<String>)> = Vec::new();
    for session in kept.into_iter().take(TRIED_MAX) {
        let error = match sess_readers::read(session, &mut |_| ControlFlow::Break(())) {
            // It goes on, or was deleted, since it was listed.
            Ok(_) | Err(sess_readers::Error::Gone(_) | sess_readers::Error::Busy(_)) => continue,
            Err(error) => error.to_string(),
        };
        let path = session.place.path.as_path();
        match found.iter_mut().find(|(known, ..)| *known == path) {
            Some((_, _, references)) => references.push(session.reference()),
            None => found.push((path, error, vec![session.reference()])),
        }
    }
    found.into_iter().map(|(_, error, references)| told(&error, &references)).collect()
}

/// Says why a file's sessions cannot be read, and names the first few.
fn told(error: &str, references: &[String]) -> String {
    const NAMED_MAX: usize = 5;
    let named = first_of(references, NAMED_MAX);
    match references.len() {
        1 => format!("{named} cannot be read: {error}"),
        _ => format!("{named} cannot be read, the first because of this: {error}"),
    }
}
