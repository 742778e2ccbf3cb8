//! Keeping a session: its lease, its record and its branch, as its owner's verbs renew and move them.
//!
//! How it comes to somebody, and goes, is in `claiming`.

use crate::{
    Claim, Error, Kind, Land, Move, Moved, Oid, Record, Result, Seen, Slug, Verb, Work, claiming::TRIES_MAX,
    git::pause, repo::random_hex,
};

impl Work {
    /// Keeps a session for another while, and shares what is on its branch.
    pub fn heartbeat(&self, slug: &Slug) -> Result<Record> {
        let seen = self.see()?;
        let record = self.own_record(slug, &seen)?;
        self.shared(slug, &seen, &record)
    }

    /// Renews the lease, and brings the branch to where others see it.
    pub(crate) fn shared(&self, slug: &Slug, seen: &Seen, record: &Record) -> Result<Record> {
        let branch = self.branch_move(slug, seen)?;
        let record = self.replaced(record, |_| {}, branch.as_slice(), false)?;
        self.make_up(seen, &record, branch.and_then(|step| step.to));
        Ok(record)
    }

    /// Brings directories to where their claims say they belong, if some are not there: whoever could not push does
    /// that later, and so does whoever comes next. Where it still cannot be done, others will.
    ///
    /// `record` and `tip` are what the caller's own session came to have since it was seen. What others moved since is
    /// found when the base does not move from where it was, or put right by whoever comes next.
    fn make_up(&self, seen: &Seen, record: &Record, tip: Option<Oid>) {
        // By pull requests it comes with the work.
        if self.settings.land == Land::Pr || seen.slugs().iter().all(|slug| seen.behind(slug).is_none()) {
            return;
        }
        let (mut seen, slug) = (seen.clone(), &record.claim.slug);
        seen.view.claims.insert(slug.clone(), record.clone());
        if let Some(tip) = tip {
            seen.view.branches.insert(slug.clone(), tip);
        }
        if let Err(error) = self.roll_forward_from(seen) {
            tracing::debug!(%error, "what the claims say is not shown yet");
        }
    }

    /// Renews the lease. That of what waits to be merged does not lapse, and since when it waits stays known.
    pub(crate) fn renewed(&self, record: &Record) -> Result<Record> {
        if record.claim.waits() {
            return Ok(record.clone());
        }
        self.replaced(record, |_| {}, &[], false)
    }

    /// Looks, as far as the remote can be asked, and renews the lease of a session that is the caller's.
    ///
    /// Whoever only wants to know something is not refused because that failed.
    pub(crate) fn see_and_keep(&self, slug: &Slug) -> Result<Seen> {
        Ok(self.kept(slug, self.see_or_recall()?))
    }

    /// As [`Self::see_and_keep`], for whoever does nothing else: an agent does not act for a person by looking.
    pub(crate) fn look_and_keep(&self, slug: &Slug) -> Result<Seen> {
        let seen = self.see_or_recall()?;
        let acts_for = seen.record(slug).is_some_and(|record| self.acts_for(&record.claim));
        Ok(if acts_for { seen } else { self.kept(slug, seen) })
    }

    pub(crate) fn kept(&self, slug: &Slug, mut seen: Seen) -> Seen {
        if seen.view.is_old {
            return seen;
        }
        let Ok(record) = self.own_record(slug, &seen) else { return seen };
        match self.renewed(&record) {
            Ok(record) => drop(seen.view.claims.insert(slug.clone(), record)),
            Err(error) => tracing::warn!(%error, "the lease was not renewed"),
        }
        seen
    }

    /// Puts a changed record into the place of one that the caller holds, together with the session's branch.
    ///
    /// The old one stays in the chain. When another process of the owner's own was faster, the change is made to what
    /// that left, unless both are more than renewals (`is_event`).
    pub(crate) fn replaced(
        &self,
        record: &Record,
        change: impl Fn(&mut Claim),
        others: &[Move],
        is_event: bool,
    ) -> Result<Record> {
        self.replaced_keeping(record, change, others, is_event, None)
    }

    /// As [`Self::replaced`], with a commit that the chain keeps when no branch does.
    pub(crate) fn replaced_keeping(
        &self,
        record: &Record,
        change: impl Fn(&mut Claim),
        others: &[Move],
        is_event: bool,
        kept: Option<&Oid>,
    ) -> Result<Record> {
        let slug = &record.claim.slug;
        let (mut record, mut others) = (record.clone(), others.to_vec());
        for _ in 0..TRIES_MAX {
            let mut claim = record.claim.clone();
            claim.renewed_at = self.now();
            claim.nonce = random_hex();
            claim.pid = self.who.pid;
            self.act_for(&mut claim);
            change(&mut claim);
            let parents: Vec<&Oid> = std::iter::once(&record.oid).chain(kept).collect();
            let oid = self.repo.write_claim(&claim, &parents)?;
            let own = Move {
                name: self.repo.claim_ref(slug),
                from: Some(record.oid.clone()),
                to: Some(oid.clone()),
            };
            let moves: Vec<Move> = std::iter::once(own).chain(others.iter().cloned()).collect();
            match self.repo.advance(&moves)? {
                Moved::Done => return Ok(Record { oid, claim }),
                Moved::Overtaken { .. } => {}
                Moved::Rejected(words) if others.is_empty() => return Err(self.claim_rejected(&words)),
                Moved::Rejected(words) => return Err(self.branch_rejected(slug, &words)),
            }
            pause();
            let seen = self.see()?;
            // It went through, and something came right after it.
            if let Some(now) = seen.record(slug)
                && self.repo.is_ancestor(&oid, &now.oid)?
            {
                return Ok(Record { oid, claim });
            }
            let now = self.record_for(Verb::End, slug, &seen)?;
            if is_event && !is_renewal(&record.claim, &now.claim) {
                break;
            }
            let Some(left) = self.still_to_move(slug, others, &seen)? else { break };
            (record, others) = (now, left);
        }
        Err(Error::new(Kind::Claimed, format!("another process of yours is at work on {slug}"))
            .next(format!("sess work status {slug}")))
    }

    /// Has the first agent that acts for a person have their session from then on, so that no other one does.
    pub(crate) fn act_for(&self, claim: &mut Claim) {
        if self.acts_for(claim) {
            claim.owner.session.clone_from(&self.owner.session);
            claim.agent.clone_from(&self.who.agent);
        }
    }

    /// Whether a claim is a person's, and the caller an agent.
    fn acts_for(&self, claim: &Claim) -> bool {
        claim.owner.session.is_none() && self.owner.session.is_some()
    }

    /// Returns moves of a session's branch from where it is now; `None` when it has what this clone does not have.
    fn still_to_move(&self, slug: &Slug, moves: Vec<Move>, seen: &Seen) -> Result<Option<Vec<Move>>> {
        let Some(at) = seen.view.branches.get(slug) else {
            return Ok(Some(moves.into_iter().map(|step| Move { from: None, ..step }).collect()));
        };
        let tip = self.tip(slug)?;
        let mut left = Vec::new();
        for step in moves {
            let Some(to) = &step.to else { return Ok(None) };
            if step.from.as_ref() == Some(at) {
                left.push(step);
                continue;
            }
            if self.repo.is_ancestor(to, at)? {
                continue;
            }
            let is_known = match &tip {
                Some(tip) => self.repo.is_ancestor(at, to)? || self.repo.is_ancestor(at, tip)?,
                None => self.repo.is_ancestor(at, to)?,
            };
            if !is_known {
                return Ok(None);
            }
            left.push(Move { from: Some(at.clone()), ..step });
        }
        Ok(Some(left))
    }

    /// Moves a claim, together with the session's branch when that moves, too.
    pub(crate) fn moved_claim(
        &self,
        slug: &Slug,
        from: Option<&Oid>,
        to: &Oid,
        branch: Option<&Move>,
    ) -> Result<Moved> {
        let name = self.repo.claim_ref(slug);
        let step = Move { name, from: from.cloned(), to: Some(to.clone()) };
        let moves: Vec<Move> = std::iter::once(step.clone()).chain(branch.cloned()).collect();
        let moved = self.repo.advance(&moves)?;
        // When claims are elsewhere by now, it was carried over there, unless somebody else was faster.
        let is_elsewhere = matches!(&moved, Moved::Overtaken { name, .. } if *name != step.name);
        if is_elsewhere && self.see()?.record(slug).is_some_and(|record| record.oid == *to) {
            return Ok(Moved::Done);
        }
        Ok(moved)
    }

    pub(crate) fn branch_rejected(&self, slug: &Slug, words: &str) -> Error {
        let (branch, remote) = (slug.branch(), self.repo.remote.as_deref());
        self.repo.denied(words).unwrap_or_else(|| {
            let place = remote.unwrap_or("this repository");
            let message = format!(
                "{place} does not take {branch} with the claim of {slug}, and what was done stays in this clone: {words}"
            );
            let remote = remote.unwrap_or(".");
            // Then git would push nothing, and say that all is well.
            let is_there = |seen: Seen| seen.view.branches.get(slug) == self.tip(slug).ok().flatten().as_ref();
            match self.see().is_ok_and(is_there) {
                true => Error::new(
                    Kind::Rejected,
                    format!("{message}; whoever keeps {place} has to let session/* be moved there"),
                )
                .next(format!("git ls-remote {remote}")),
                false => Error::new(Kind::Rejected, message).next(format!("git push {remote} {branch}")),
            }
        })
    }
}

/// Whether a claim says what another one said, and only when it was renewed and by whom is new.
pub(crate) fn is_renewal(old: &Claim, new: &Claim) -> bool {
    let renewed = Claim { renewed_at: new.renewed_at, nonce: new.nonce.clone(), pid: new.pid, ..old.clone() };
    renewed == *new
}
