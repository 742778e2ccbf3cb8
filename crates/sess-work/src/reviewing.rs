//! What others commit on the branch of a pull request: completing again, giving it back, and whoever goes on with the
//! session take it in.
//!
//! That branch has one commit of everything, with the session where it is when it has landed. What was changed since is
//! brought to the branch that the commit was made of, where the session's directory is its own and active.

use sess_core::mention::first_of;

use crate::{
    Error, Kind, Landed, Oid, Record, Result, Seen, Slug, State, Verb, Work, landing::PATHS_SHOWN_MAX,
    merging::Merge, projecting::message, state::SESSIONS_DIR,
};

/// What others made of a commit that waits to be merged, or did until it was taken back.
pub(crate) struct Reviewed {
    /// Their last commit.
    tip: Oid,
    /// What they began with.
    offered: Landed,
}

impl Work {
    /// Returns what others made of what waits to be merged, as far as it is not on the branch of this clone.
    pub(crate) fn reviewed(
        &self,
        slug: &Slug,
        seen: &Seen,
        record: &Record,
        tip: &Oid,
    ) -> Result<Option<Reviewed>> {
        let Some(reviewed) = self.under_review(slug, seen, record)? else { return Ok(None) };
        Ok(if self.repo.is_ancestor(&reviewed.tip, tip)? { None } else { Some(reviewed) })
    }

    /// Returns what others made of what waits to be merged.
    fn under_review(&self, slug: &Slug, seen: &Seen, record: &Record) -> Result<Option<Reviewed>> {
        let Some(shared) = seen.view.branches.get(slug).filter(|_| record.claim.waits()) else {
            return Ok(None);
        };
        let is_offered = record.claim.landed.as_ref().is_some_and(|landed| landed.commit == *shared);
        if is_offered { Ok(None) } else { self.begun_with_offered(shared, record) }
    }

    /// Returns a commit as what others made of something that was offered in this attempt, when it is that.
    fn begun_with_offered(&self, shared: &Oid, record: &Record) -> Result<Option<Reviewed>> {
        // Somebody may have begun with an offer before, and what was taken back is not in the last claim any more.
        let claims = self.records_up_to(&record.oid)?.into_iter();
        let offers = claims.filter(|known| known.attempt == record.claim.attempt);
        for offered in offers.filter_map(|known| known.landed) {
            if self.repo.is_ancestor(&offered.commit, shared)? {
                return Ok(Some(Reviewed { tip: shared.clone(), offered }));
            }
        }
        Ok(None)
    }

    /// Says which files of the directory of sessions others changed in a pull request: they are not taken, because those
    /// of others are as the base has them, and the session's own as its branch has them.
    pub(crate) fn not_taken(&self, slug: &Slug, seen: &Seen, record: &Record) -> Result<Option<String>> {
        let Some(reviewed) = self.under_review(slug, seen, record)? else { return Ok(None) };
        let around = self.around(&reviewed, &seen.view.base)?;
        let Reviewed { tip, offered } = reviewed;
        let files = |commit: &Oid| self.repo.files_of(commit.as_str(), SESSIONS_DIR);
        let (before, ours, theirs) = (files(&offered.base)?, files(&offered.commit)?, files(&tip)?);
        let around = files(&around)?;
        let mut changed = self.between(&offered.commit, &tip, SESSIONS_DIR)?;
        // What the base changed meanwhile they may have merged.
        changed.retain(|path| ours.get(path) != before.get(path) || theirs.get(path) != around.get(path));
        Ok((!changed.is_empty()).then(|| {
            format!(
                "what others changed in the pull request below {SESSIONS_DIR}/ is not taken: {}; `git diff {} {} -- {SESSIONS_DIR}` shows it",
                first_of(&changed, PATHS_SHOWN_MAX),
                offered.commit.short(),
                tip.short()
            )
        }))
    }

    /// Brings what others committed on the branch of a pull request to the branch of this clone.
    pub(crate) fn take_in_reviewed(&self, slug: &Slug) -> Result<()> {
        // What waits was handed over from here.
        if !self.repo.seen_record(slug)?.is_some_and(|record| record.claim.waits()) {
            return Ok(());
        }
        let seen = self.see()?;
        let record = self.record_for(Verb::End, slug, &seen)?;
        let Some(tip) = self.tip(slug)? else { return Ok(()) };
        match self.reviewed(slug, &seen, &record, &tip)? {
            Some(reviewed) => self.take_in(slug, &seen, &record, &tip, &reviewed),
            None => Ok(()),
        }
    }

    /// Has the branch of this clone go on from what waits to be merged, for a remote that does not take a branch back.
    pub(crate) fn go_on_from_offered(&self, slug: &Slug, seen: &Seen, record: &Record) -> Result<()> {
        let (Some(tip), Some(landed)) = (self.tip(slug)?, &record.claim.landed) else { return Ok(()) };
        let offered = Reviewed { tip: landed.commit.clone(), offered: landed.clone() };
        self.take_in(slug, seen, record, &tip, &offered)
    }

    fn take_in(
        &self,
        slug: &Slug,
        seen: &Seen,
        record: &Record,
        tip: &Oid,
        reviewed: &Reviewed,
    ) -> Result<()> {
        self.check_finished(slug)?;
        let theirs = self.brought_back(reviewed, record, &seen.view.base)?;
        if reviewed.offered.tip == *tip {
            return self.forward_branch(slug, tip, &theirs);
        }
        let paths = match self.repo.merged_apart(tip, &theirs)? {
            Merge::Clean(tree) => {
                let around = self.around(reviewed, &seen.view.base)?;
                let tree = self.with_own(slug, &tree, &around, tip)?;
                let merge = self.repo.commit_tree(&tree, &[tip, &theirs], &self.taking_in(record))?;
                return self.forward_branch(slug, tip, &merge);
            }
            Merge::Conflicts(paths) => paths,
        };
        let error = Error::new(
            Kind::Conflict,
            format!(
                "{slug} and what others changed in its pull request do not go together: {}",
                first_of(&paths, PATHS_SHOWN_MAX)
            ),
        );
        let Some(path) = self.workspace(slug) else {
            return Err(error.next(format!("sess work claim {slug}")));
        };
        // Nothing else leads to it until somebody has merged it.
        self.keep_for_rescue(slug, &theirs)?;
        if self.is_clone(&path) {
            let here = self.repo.common.to_string_lossy();
            self.repo.git.at(&path).text(["fetch", "--quiet", "--no-tags", &here, theirs.as_str()])?;
        }
        let how = self.repo.how_to_merge(tip, &theirs, &paths)?;
        let place = crate::quoted(path.display());
        Err(error.next(format!("git -C {place} merge {how}{}", theirs.short())))
    }

    /// Returns where somebody goes on with a session that others see as `shared`. A pull request's branch with the
    /// commits of others shows the session as completed: whoever works on it has it active, with all that was written
    /// down.
    pub(crate) fn worked_on_from(&self, shared: &Oid, record: &Record, base: &Oid) -> Result<Oid> {
        let claim = &record.claim;
        if self.has_begun(&claim.slug, shared)? {
            return Ok(shared.clone());
        }
        // An attempt before is not gone on with.
        match self.begun_with_offered(shared, record)? {
            Some(reviewed) => self.brought_back(&reviewed, record, base),
            None => Ok(shared.clone()),
        }
    }

    /// Commits what others made of a pull request on the branch that this was made of.
    fn brought_back(&self, reviewed: &Reviewed, record: &Record, base: &Oid) -> Result<Oid> {
        let Reviewed { tip, offered } = reviewed;
        let tree = self.with_own(&record.claim.slug, tip, &self.around(reviewed, base)?, &offered.tip)?;
        self.repo.commit_tree(&tree, &[&offered.tip, tip], &self.taking_in(record))
    }

    /// Returns the commit of the base that others have: the directory of sessions is as it is there.
    fn around(&self, Reviewed { tip, offered }: &Reviewed, base: &Oid) -> Result<Oid> {
        Ok(self.repo.merge_base(base, tip)?.unwrap_or_else(|| offered.tip.clone()))
    }

    fn taking_in(&self, record: &Record) -> String {
        let what = "Take in what was changed in the pull request";
        message(&record.claim.slug, what, &self.by(), Some(record))
    }

    /// Returns a tree with the directory of sessions that one commit has, but for the session's own files, which are as
    /// another one has them.
    fn with_own(&self, slug: &Slug, tree: &Oid, around: &Oid, own: &Oid) -> Result<Oid> {
        let tree = self.repo.with_sessions(tree, self.repo.sessions_of(around)?.as_ref())?;
        let own = self.repo.own_files(slug, own)?;
        self.repo.edited(&tree, &self.repo.tree(around)?.replaced(slug, State::Active, own))
    }
}
