//! When this clone first saw the claims of others, by its own clock: theirs may be wrong.

use std::{collections::BTreeMap, fs};

use serde::{Deserialize, Serialize};
use sess_core::Timestamp;

use crate::{Error, Oid, Record, Result, Slug, View, Work, writing::write_whole};

/// In the clone's own directory.
const FILE: &str = "first-seen.json";

/// A record of a claim, and when it was seen first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Sight {
    oid: Oid,
    at_ms: i64,
}

impl Work {
    /// Writes down which claims of others are new since the last look.
    pub(crate) fn observe(&self, view: &View) {
        let before = self.sights();
        let others = view.claims.iter().filter(|(_, record)| {
            !record.claim.phase.has_ended() && record.claim.owner.clone != self.owner.clone
        });
        let now_ms = self.now().as_millis();
        let sight = |slug: &Slug, record: &Record| match before.get(slug) {
            // A time that is still to come is from a clock that was put right since.
            Some(sight) if sight.oid == record.oid && sight.at_ms <= now_ms => sight.clone(),
            _ => Sight { oid: record.oid.clone(), at_ms: now_ms },
        };
        let now = others.map(|(slug, record)| (slug.clone(), sight(slug, record))).collect();
        if now == before {
            return;
        }
        // Without it, others' claims are taken later, and never sooner.
        if let Err(error) = self.keep_sights(&now) {
            tracing::debug!(%error, "what was seen is not written down");
        }
    }

    /// Returns when this clone saw a record first; now, if that is not known.
    pub(crate) fn first_seen(&self, record: &Record) -> Timestamp {
        let sight = self.sights().remove(&record.claim.slug).filter(|sight| sight.oid == record.oid);
        sight.map_or_else(|| self.now(), |sight| Timestamp::from_millis_clamped(sight.at_ms))
    }

    fn sights(&self) -> BTreeMap<Slug, Sight> {
        let text = self.repo.own_dir().ok().and_then(|dir| fs::read(dir.join(FILE)).ok());
        text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    fn keep_sights(&self, sights: &BTreeMap<Slug, Sight>) -> Result<()> {
        let json = serde_json::to_vec(sights).map_err(|error| Error::failed(error.to_string()))?;
        write_whole(&self.repo.own_dir()?.join(FILE), &json, 0o600)
            .map_err(|error| Error::failed(format!("cannot write {FILE}: {error}")))
    }
}
