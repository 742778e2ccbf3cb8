//! Ended claims leave the list of claims, and stay in one chain that keeps everything that they lead to.

use crate::{
    Claim, Kind, Move, Moved, Oid, PLAN_FILE, Record, Repo, Result, Seen, Slug, Standing, State, Work,
    keeping::is_renewal,
    refs::{LOG_LINE, read_claims},
};

/// How much of a chain is read. Every renewal is a record.
const RECORDS_MAX: usize = 10_000;

impl Work {
    /// Takes ended claims off the list, in one step; returns how many.
    pub fn archive(&self) -> Result<usize> {
        let seen = self.see()?;
        let ended = self.to_be_archived(&seen);
        if ended.is_empty() {
            return Ok(0);
        }
        let log = seen.view.log.clone();
        let mut head = log.clone();
        let mut moves = Vec::new();
        for record in &ended {
            head = Some(self.repo.write_log(head.as_ref(), record)?);
            moves.push(Move {
                name: self.repo.claim_ref(&record.claim.slug),
                from: Some(record.oid.clone()),
                to: None,
            });
        }
        moves.push(Move { name: self.repo.log_ref(), from: log, to: head });
        match self.repo.advance(&moves)? {
            Moved::Done => Ok(ended.len()),
            // Somebody else is at it: the next verb finds what is left.
            Moved::Overtaken { .. } => Ok(0),
            Moved::Rejected(words) => {
                let place = self.repo.remote.as_deref().unwrap_or("this repository");
                let what = format!("{place} does not take the log of ended claims: {words}");
                Err(crate::Error::new(Kind::Rejected, what).next("git remote -v"))
            }
        }
    }

    /// Returns the claims that nothing comes after.
    pub(crate) fn to_be_archived<'a>(&self, seen: &'a Seen) -> Vec<&'a Record> {
        let is_over = |record: &&Record| {
            let rests = matches!(seen.standing(&record.claim.slug), Standing::Rests(State::Completed));
            record.claim.phase.has_ended() && rests
        };
        seen.view.claims.values().filter(is_over).collect()
    }

    /// Returns the records behind a session's claim, newest first, also when that is off the list.
    ///
    /// Of one and its renewals the last is enough.
    pub(crate) fn chain(&self, slug: &Slug, seen: &Seen) -> Result<Vec<Claim>> {
        let mut claims = self.records(slug, seen)?;
        claims.dedup_by(|older, newer| is_renewal(older, newer));
        Ok(claims)
    }

    /// As [`Self::chain`]; of one and its renewals the first, which says when it came to be.
    pub(crate) fn events(&self, slug: &Slug, seen: &Seen) -> Result<Vec<Claim>> {
        let mut claims = self.records(slug, seen)?;
        claims.dedup_by(|older, newer| {
            let is_renewed = is_renewal(older, newer);
            if is_renewed {
                std::mem::swap(older, newer);
            }
            is_renewed
        });
        Ok(claims)
    }

    fn records(&self, slug: &Slug, seen: &Seen) -> Result<Vec<Claim>> {
        let last = match seen.record(slug) {
            Some(record) => Some(record.oid.clone()),
            None => self.archived(slug, seen)?,
        };
        last.map_or(Ok(Vec::new()), |last| self.records_up_to(&last))
    }

    /// Returns the claims that led to one, the last first.
    pub(crate) fn records_up_to(&self, last: &Oid) -> Result<Vec<Claim>> {
        let count = format!("--max-count={RECORDS_MAX}");
        let told = self.repo.git.text(["rev-list", "--first-parent", &count, last.as_str()])?;
        let oids: Vec<Oid> = told.lines().filter_map(|oid| oid.parse().ok()).collect();
        let read = read_claims(&self.repo.git, &oids.iter().collect::<Vec<_>>())?.into_iter().flatten();
        Ok(read.filter_map(|json| serde_json::from_slice(&json).ok()).collect())
    }

    /// Returns the highest fence that a session has had; none is 0.
    ///
    /// When its claim is gone, because somebody removed or damaged it, the commits that were made with it tell, and
    /// what was written down about its workspace.
    pub(crate) fn last_fence(&self, slug: &Slug, seen: &Seen) -> Result<u64> {
        if let Some(record) = seen.record(slug) {
            return Ok(record.claim.fence);
        }
        let is_new = seen.tree.entries.get(slug).is_none_or(|entry| entry.files.keys().eq([PLAN_FILE]));
        let branch = seen.view.branches.get(slug);
        let here = match self.is_unknown_here(slug, seen) {
            true => 0,
            false => self.fence_of(slug)?.unwrap_or_default(),
        };
        if is_new && branch.is_none() && here == 0 {
            return Ok(0);
        }
        let archived = self.chain(slug, seen)?.first().map_or(0, |claim| claim.fence);
        let line = format!("--grep=Session: {slug}");
        let trailer = |key: &str| format!("%(trailers:key={key},valueonly,separator=%x20)");
        let format = format!("--format={}%x09{}", trailer("Session"), trailer("Fence"));
        let asked = ["log", &format, "--fixed-strings", &line, seen.view.base.as_str()];
        let told = self.repo.git.text(asked.into_iter().chain(branch.map(Oid::as_str)))?;
        // Another session's name may begin like this one's.
        let own =
            told.lines().filter_map(|line| line.split_once('\t')).filter(|(name, _)| *name == slug.as_str());
        let committed = own.filter_map(|(_, fence)| fence.parse().ok()).max().unwrap_or_default();
        Ok(archived.max(committed).max(here))
    }

    /// Returns the last record of a session whose claim was taken off the list.
    fn archived(&self, slug: &Slug, seen: &Seen) -> Result<Option<Oid>> {
        let Some(log) = &seen.view.log else { return Ok(None) };
        let line = format!("{LOG_LINE}{slug}");
        let told = self.repo.git.text([
            "rev-list",
            "--first-parent",
            "--no-commit-header",
            "--format=%P%x09%s",
            "--fixed-strings",
            &format!("--grep={line}"),
            log.as_str(),
        ])?;
        // Another session's name may begin like this one's.
        let mut entries = told.lines().filter_map(|entry| entry.split_once('\t'));
        let parents = entries.find(|(_, subject)| *subject == line).map(|(parents, _)| parents);
        Ok(parents.and_then(|parents| parents.split(' ').next_back()).and_then(|oid| oid.parse().ok()))
    }
}

impl Repo {
    fn write_log(&self, before: Option<&Oid>, record: &Record) -> Result<Oid> {
        let tree = self.git.feed_oid(["mktree"], b"")?;
        let parents: Vec<&Oid> = before.into_iter().chain([&record.oid]).collect();
        self.commit_tree(&tree, &parents, &format!("{LOG_LINE}{}\n", record.claim.slug))
    }
}
