//! How long other agents keep their sessions, and whether a snapshot has those that go soon.

use std::collections::HashMap;

use sess_core::{SessionId, Source, Timestamp};
use sess_readers::{Foreign, Sweep, readers, snapshot::Manifest};

use crate::{App, Error, Result, context, snapshots};

/// A session that may be deleted within this many days goes soon.
pub const SOON_DAYS: i64 = 7;

/// How an agent keeps its sessions.
#[derive(Clone, Debug)]
pub struct Retention {
    pub source: Source,
    /// How many it has, without those of sub-agents.
    pub sessions: u64,
    /// How it deletes them; none when it does not.
    pub sweep: Option<Sweep>,
    /// How many may go within [`SOON_DAYS`].
    pub soon: u64,
    /// How many of those no snapshot has as they are.
    pub unsaved: u64,
    /// How many it has no more, and a snapshot has.
    pub saved: u64,
}

impl App {
    /// Says how the agents that were used here keep their sessions.
    pub async fn retention(&self) -> Result<Vec<Retention>> {
        let Some(homes) = self.settings().homes.clone() else { return Ok(Vec::new()) };
        let mut sessions = self.foreign_sessions(None).await?;
        sessions.retain(|session| session.parent.is_none() && session.name.is_none());
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
                manifest
                    .zip(stamp)
                    .is_some_and(|(manifest, stamp)| snapshots::keeper::is_same(&manifest, session, &stamp))
            };
            let mut all = Vec::new();
            for source in readers().map(sess_readers::Reader::source) {
                let of_source = || sessions.iter().filter(|session| session.source == source);
                let live: Vec<&Foreign> = of_source().filter(|session| !session.is_snapshot).collect();
                let saved = of_source().filter(|session| session.is_snapshot).count() as u64;
                if live.is_empty() && saved == 0 {
                    continue;
                }
                let sweep = sess_readers::sweep(&homes, source);
                let is_due =
                    |session: &&&Foreign| sweep.as_ref().is_some_and(|sweep| sweep.due_at(session) <= soon);
                let due: Vec<&&Foreign> = live.iter().filter(is_due).collect();
                let unsaved = due.iter().filter(|session| !is_saved(session)).count() as u64;
                let (sessions, soon) = (live.len() as u64, due.len() as u64);
                all.push(Retention { source, sessions, soon, unsaved, saved, sweep });
            }
            Ok(all)
        })
        .await?
    }
}
