//! Which refs claims are: one kind for the whole repository, whoever asks.
//!
//! A host may refuse refs that are no branches, to everybody or to some. From when one clone met that, claims are
//! branches for all: a branch at the remote says so. Every look fetches it, and looks at what was claimed before it
//! was there; every push of a claim reads it back, and does not count when it was there already. So whoever claims in
//! the one place knows of whoever claimed in the other, and a session never has two owners.

use std::sync::atomic::Ordering;

use crate::{
    Error, Kind, Move, Moved, Oid, Phase, Record, Repo, Result, Slug, View,
    refs::{read_claims, record},
    repo::{CLAIMS, CLAIMS_AS_BRANCHES},
};

/// The branch that says that claims are branches.
const HERE: &str = "refs/heads/intersession-here";
/// How the names of branches begin that there are only where claims are branches.
const BRANCHES: &str = "refs/heads/intersession-";
const LOG: &str = "refs/intersession/log";
/// What was seen last of that branch, and of the place where claims are not.
pub(crate) const SEEN_HERE: &str = "refs/intersession/seen/here";
pub(crate) const SEEN_OTHER: &str = "refs/intersession/seen/other";

impl Repo {
    /// Returns where claims are, as far as this process has seen.
    pub(crate) fn claims(&self) -> &'static str {
        if self.as_branches.load(Ordering::Relaxed) { CLAIMS_AS_BRANCHES } else { CLAIMS }
    }

    pub(crate) fn claim_as_branches(&self) {
        self.as_branches.store(true, Ordering::Relaxed);
    }

    /// Returns what a look fetches to know where claims are.
    pub(crate) fn namespace_refspecs(&self) -> Vec<String> {
        if self.claims() == CLAIMS {
            return vec![format!("+{BRANCHES}*:{SEEN_OTHER}/*")];
        }
        vec![
            format!("+{HERE}*:{SEEN_HERE}*"),
            format!("+{CLAIMS}/*:{SEEN_OTHER}/claims/*"),
            format!("+{LOG}*:{SEEN_OTHER}/log*"),
        ]
    }

    /// Whether a look was at the right place, with everything in it; else it has to be looked again.
    pub(crate) fn is_settled(&self, remote: &str, view: &View) -> Result<bool> {
        let seen = &view.elsewhere;
        if self.claims() == CLAIMS {
            let is_elsewhere = seen.iter().any(|(_, name)| {
                let short = name.strip_prefix(SEEN_OTHER).map(|name| name.trim_start_matches('/'));
                short.is_some_and(is_told_by)
            });
            if is_elsewhere {
                self.claim_as_branches();
            }
            return Ok(!is_elsewhere);
        }
        let (moves, left) = self.to_be_carried(view)?;
        if !moves.is_empty() {
            return match self.advance(&moves)? {
                Moved::Done | Moved::Overtaken { .. } => Ok(false),
                Moved::Rejected(words) => {
                    Err(Error::new(Kind::Rejected, format!("{remote} does not take a claim: {words}"))
                        .next("sess work init"))
                }
            };
        }
        // What was carried over is done with. Who may not remove it leaves that to others.
        if !left.is_empty()
            && let Err(error) = self.push(remote, &left)
        {
            tracing::debug!(%error, "claims that were carried over stay where they were");
        }
        Ok(true)
    }

    /// Returns what has to be made where claims are branches, and what can go from where they were before.
    fn to_be_carried(&self, view: &View) -> Result<(Vec<Move>, Vec<Move>)> {
        let (mut moves, mut left) = (Vec::new(), Vec::new());
        if !view.elsewhere.iter().any(|(_, name)| name == SEEN_HERE) {
            moves.push(Move { name: HERE.to_owned(), from: None, to: Some(view.base.clone()) });
        }
        for (oid, name) in &view.elsewhere {
            let Some(short) = name.strip_prefix(SEEN_OTHER).map(|name| name.trim_start_matches('/')) else {
                continue;
            };
            if short == "log" {
                if view.log.is_none() {
                    moves.push(Move { name: self.log_ref(), from: None, to: Some(oid.clone()) });
                }
                continue;
            }
            let Some(short) = short.strip_prefix("claims/") else { continue };
            let json = read_claims(&self.git, &[oid])?.pop().flatten();
            // What is no claim is nobody's.
            let Ok((slug, old)) = record(short, oid.clone(), json) else { continue };
            if let Some(step) = self.gone_on(&slug, &old, view)? {
                moves.push(step);
            } else if self.is_carried(&slug, oid, view)? {
                left.push(Move { name: format!("{CLAIMS}/{short}"), from: Some(oid.clone()), to: None });
            } else {
                moves.push(Move { name: self.claim_ref(&slug), from: None, to: Some(oid.clone()) });
            }
        }
        Ok((moves, left))
    }

    /// Returns the move of a carried claim to what came after it in the old place, in the very moment that it was
    /// carried over. What landed then has landed: the base moved with it.
    fn gone_on(&self, slug: &Slug, old: &Record, view: &View) -> Result<Option<Move>> {
        let Some(new) = view.claims.get(slug).filter(|new| new.oid != old.oid) else { return Ok(None) };
        let name = self.claim_ref(slug);
        let step = |to: Oid| Some(Move { name, from: Some(new.oid.clone()), to: Some(to) });
        if self.is_ancestor(&new.oid, &old.oid)? {
            return Ok(step(old.oid.clone()));
        }
        let landed = old.claim.landed.as_ref().filter(|_| old.claim.phase == Phase::Completed);
        let Some(landed) = landed.filter(|_| !new.claim.phase.has_ended()) else { return Ok(None) };
        if self.is_ancestor(&old.oid, &new.oid)? || !self.is_ancestor(&landed.commit, &view.base)? {
            return Ok(None);
        }
        // Somebody took the session meanwhile. Both chains are kept.
        Ok(step(self.write_claim(&old.claim, &[&new.oid, &old.oid])?))
    }

    /// Whether something came after a claim where claims are branches, be it that it ended.
    fn is_carried(&self, slug: &Slug, oid: &Oid, view: &View) -> Result<bool> {
        if view.claims.contains_key(slug) || view.damaged.iter().any(|(name, _)| name == slug.as_str()) {
            return Ok(true);
        }
        view.log.as_ref().map_or(Ok(false), |log| self.is_ancestor(oid, log))
    }

    /// Returns what a push has to read back besides its own refs, to know that it was to the right place.
    pub(crate) fn namespace_pattern(&self, moves: &[Move]) -> Option<String> {
        let is_claim = |step: &Move| step.name.starts_with(CLAIMS);
        (self.claims() == CLAIMS && moves.iter().any(is_claim)).then(|| format!("{BRANCHES}*"))
    }

    /// Returns the branch that says that a push was to the wrong place, if the remote has one.
    pub(crate) fn misplaced<'a>(
        &self,
        mut refs: impl Iterator<Item = (&'a String, &'a Oid)>,
    ) -> Option<(String, Oid)> {
        let found = refs.find(|(name, _)| name.strip_prefix(BRANCHES).is_some_and(is_told_by))?;
        self.claim_as_branches();
        Some((found.0.clone(), found.1.clone()))
    }
}

/// Whether a branch, by what follows [`BRANCHES`] in its name, says that claims are branches: the one that is there to
/// say so, else what was made by it. A stray one of a name like theirs says nothing.
fn is_told_by(short: &str) -> bool {
    let is_claim = |name: &str| name.parse::<Slug>().is_ok();
    format!("{BRANCHES}{short}") == HERE
        || short == "log"
        || short.strip_prefix("claims/").is_some_and(is_claim)
}
