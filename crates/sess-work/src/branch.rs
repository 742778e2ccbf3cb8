//! A session's branch in this clone: where it begins, what goes on it, and what keeps its commits.

use std::{collections::BTreeMap, fs, path::Path};

use crate::{
    Claim, Error, Move, Note, Oid, PLAN_FILE, Record, Result, Seen, Slug, State, Work,
    checkout::{is_inside, put, tidy_sessions},
    git::words_of,
    projecting::{ENV_FILE, message},
    refs::read_all,
    tree::{Edit, File, PLAIN, mode_here},
};

/// What a session goes on with in the place of a clone's own branch.
enum Instead<'a> {
    /// The one that others see.
    Shared(&'a Oid),
    /// A branch that begins with the base.
    New,
}

/// What a file of a branch is to have.
pub(crate) struct Content {
    pub(crate) mode: String,
    pub(crate) bytes: Vec<u8>,
}

impl Content {
    pub(crate) fn plain(text: String) -> Self {
        Self { mode: PLAIN.to_owned(), bytes: text.into_bytes() }
    }
}

/// A commit on a session's branch.
pub(crate) struct Written {
    pub(crate) commit: Oid,
    /// Whether a checkout of the branch has what it brought. If not, the next verb sees to that.
    pub(crate) followed: Result<()>,
}

impl Work {
    /// Returns the last commit of a session's branch in this clone or its workspace.
    pub(crate) fn tip(&self, slug: &Slug) -> Result<Option<Oid>> {
        // A clone of its own has the branch; a worktree shares it.
        if let Some(path) = Some(self.usual_path(slug)).filter(|path| self.is_clone(path)) {
            let name = slug.branch_ref();
            let local = self.repo.git.run([
                "fetch",
                "--quiet",
                "--no-tags",
                "--no-write-fetch-head",
                "--end-of-options",
                &path.to_string_lossy(),
                &format!("+{name}:{name}"),
            ])?;
            if !local.is_ok() {
                return Err(Error::failed(format!(
                    "cannot read {}: {}",
                    path.display(),
                    words_of(&local.stderr)
                )));
            }
        }
        self.repo.commit(&slug.branch_ref())
    }

    /// Whether this clone had nothing of a session when it was looked: no branch of it, and so no checkout of that, and
    /// no workspace that is a clone of its own.
    pub(crate) fn is_unknown_here(&self, slug: &Slug, seen: &Seen) -> bool {
        !seen.view.here.contains(slug) && !self.usual_path(slug).join(".git").exists()
    }

    /// Makes the session's branch, unless it is there, here or where others see it.
    ///
    /// What this clone has besides that, of an attempt before or of a time before others took the session, is put
    /// aside, and a notice says where it is.
    pub(crate) fn ensure_branch(
        &self,
        slug: &Slug,
        start: &Oid,
        shared: Option<&Oid>,
        record: &Record,
        notices: &mut Vec<String>,
    ) -> Result<()> {
        let name = slug.branch_ref();
        let Some(own) = self.tip(slug)? else {
            let target = match shared {
                Some(shared) => self.worked_on_from(shared, record, start)?,
                None => start.clone(),
            };
            self.repo.git.text(["update-ref", &name, target.as_str()])?;
            return Ok(());
        };
        let target = match self.branch_instead(&own, shared, &record.claim)? {
            Some(Instead::Shared(shared)) => self.worked_on_from(shared, record, start)?,
            Some(Instead::New) => start.clone(),
            // It was cut before the session was claimed, and has nothing of its own.
            None if self.repo.is_ancestor(&own, start)? && !self.has_begun(slug, &own)? => start.clone(),
            None => return Ok(()),
        };
        if target == own {
            return Ok(());
        }
        if !self.repo.is_ancestor(&own, &target)? {
            self.keep_for_rescue(slug, &own)?;
            notices.push(format!(
                "{} was elsewhere in this clone, and goes on from {}: what it had here is kept as {}",
                slug.branch(),
                target.short(),
                rescue_ref(slug, &own)
            ));
        }
        match self.workspace(slug) {
            Some(path) => self.switch(slug, &path, &target),
            None => self.repo.git.text(["update-ref", &name, target.as_str(), own.as_str()]).map(drop),
        }
    }

    /// Whether a commit has the directory of a session that somebody works on.
    pub(crate) fn has_begun(&self, slug: &Slug, tip: &Oid) -> Result<bool> {
        Ok(!self.repo.files_of(tip.as_str(), &State::Active.dir_of(slug))?.is_empty())
    }

    /// Decides whether a session goes on with another branch than this clone's own.
    ///
    /// In a further attempt, a branch without what the base was when it was claimed is an attempt's before.
    fn branch_instead<'a>(
        &self,
        own: &Oid,
        shared: Option<&'a Oid>,
        claim: &Claim,
    ) -> Result<Option<Instead<'a>>> {
        let waiting = claim.landed.as_ref().filter(|_| claim.waits());
        Ok(match shared {
            Some(shared) if self.repo.is_ancestor(shared, own)? => None,
            // What waits was made of it: completing again brings what others changed there.
            Some(_) if waiting.map_or(Ok(false), |landed| self.repo.is_ancestor(&landed.tip, own))? => None,
            Some(shared) => Some(Instead::Shared(shared)),
            None if claim.attempt == 1 || self.repo.is_ancestor(&claim.base_commit, own)? => None,
            None => Some(Instead::New),
        })
    }

    /// Fails when a workspace that was left here is in the way of a claim: before that is taken, because it would
    /// stand without the branch that belongs to it.
    pub(crate) fn check_leftover(&self, slug: &Slug, seen: &Seen, claim: &Claim) -> Result<()> {
        if self.is_unknown_here(slug, seen) {
            return Ok(());
        }
        // Without a branch there is no workspace to ask for.
        let Some(own) = self.tip(slug)? else { return Ok(()) };
        let Some(path) = self.workspace(slug) else { return Ok(()) };
        let shared = seen.shared_tip(slug);
        let target = match self.branch_instead(&own, shared, claim)? {
            None => return Ok(()),
            Some(Instead::Shared(shared)) => match seen.record(slug) {
                Some(record) => self.worked_on_from(shared, record, &seen.view.base)?,
                None => shared.clone(),
            },
            Some(Instead::New) => seen.view.base.clone(),
        };
        self.check_switch(slug, &path, &target)
    }

    /// Returns the move that shows the session's branch to others, if it is ahead.
    pub(crate) fn branch_move(&self, slug: &Slug, seen: &Seen) -> Result<Option<Move>> {
        if self.repo.remote.is_none() {
            return Ok(None);
        }
        let (Some(tip), shared) = (self.tip(slug)?, seen.view.branches.get(slug)) else { return Ok(None) };
        if shared == Some(&tip) {
            return Ok(None);
        }
        if self.apart(slug, seen)?.is_some() {
            return Ok(None);
        }
        Ok(Some(Move { name: slug.branch_ref(), from: shared.cloned(), to: Some(tip) }))
    }

    /// Says so when the session's branch went another way where others see it: nothing is shared then.
    pub(crate) fn apart(&self, slug: &Slug, seen: &Seen) -> Result<Option<String>> {
        let (Some(tip), Some(shared)) = (self.tip(slug)?, seen.view.branches.get(slug)) else {
            return Ok(None);
        };
        // What waits to be merged was made of this branch.
        let is_own = seen.shared_tip(slug).is_some_and(|made_of| made_of != shared);
        if self.repo.remote.is_none() || is_own || self.repo.is_ancestor(shared, &tip)? {
            return Ok(None);
        }
        let place = self.workspace_path(slug);
        Ok(Some(format!(
            "{} at {} has commits that are not here, and nothing is shared until they are: run `git -C {} pull --no-rebase {1} {0}`",
            slug.branch(),
            self.repo.remote.as_deref().unwrap_or_default(),
            crate::quoted(place.display())
        )))
    }

    /// Fails when the branch that others see has commits of this attempt whose work is not in this clone's: they would
    /// be left behind.
    pub(crate) fn check_whole(&self, slug: &Slug, seen: &Seen, record: &Record, tip: &Oid) -> Result<()> {
        let Some(shared) = seen.view.branches.get(slug) else { return Ok(()) };
        if self.apart(slug, seen)?.is_none() {
            return Ok(());
        }
        if self.reviewed(slug, seen, record, tip)?.is_some() {
            return Err(Error::would_lose(format!(
                "others have changed {} at {} meanwhile",
                slug.branch(),
                self.repo.remote.as_deref().unwrap_or_default()
            ))
            .next(format!("sess work complete {slug}")));
        }
        // What was brought to a rewritten base has other names, and the old base is not the session's.
        let mut asked = vec!["log", "--format=%s", "--cherry-pick", "--right-only", "--no-merges"];
        let (between, base) = (format!("{tip}...{shared}"), format!("^{}", seen.view.base));
        let begun = self.last_of_base(record, shared)?.unwrap_or_else(|| record.claim.base_commit.clone());
        let begun = self.repo.commit(begun.as_str())?.map(|begun| format!("^{begun}"));
        asked.extend([between.as_str(), base.as_str()]);
        asked.extend(begun.as_deref());
        let begin = format!("[{slug}] Claim session");
        let left = self.repo.git.text(asked)?.lines().filter(|subject| *subject != begin).count();
        if left == 0 {
            return Ok(());
        }
        let (branch, remote) = (slug.branch(), self.repo.remote.as_deref().unwrap_or_default());
        let place = crate::quoted(self.workspace_path(slug).display());
        Err(Error::would_lose(format!(
            "{branch} at {remote} has {left} commits that are not here and would not land: merge them, or when yours replace them, push yours with --force-with-lease"
        ))
        .next(format!("git -C {place} pull --no-rebase {remote} {branch}")))
    }

    /// Returns the move that takes a session's branch from what waits to be merged back to what that was made of.
    pub(crate) fn taken_back(&self, slug: &Slug, seen: &Seen) -> Option<Move> {
        let (shared, made_of) = (seen.view.branches.get(slug), seen.shared_tip(slug)?);
        let is_here = self.repo.commit(made_of.as_str()).is_ok_and(|found| found.is_some());
        (shared != Some(made_of) && is_here && self.repo.remote.is_some()).then(|| Move {
            name: slug.branch_ref(),
            from: shared.cloned(),
            to: Some(made_of.clone()),
        })
    }

    /// Commits on the session's branch what it lacks of a claim as the base shows it: the plan, whose the session is now,
    /// and whatever the branch never had.
    pub(crate) fn catch_up_with_base(&self, slug: &Slug, record: &Record, base: &Oid) -> Result<()> {
        let tip = self.tip(slug)?.ok_or_else(|| Error::failed(format!("the branch of {slug} is gone")))?;
        if tip == *base {
            return Ok(());
        }
        let dir = State::Active.dir_of(slug);
        let had = match self.repo.merge_base(&tip, base)? {
            Some(shared) => self.repo.files_of(shared.as_str(), &dir)?,
            None => BTreeMap::new(),
        };
        let known = self.repo.files_of(tip.as_str(), &dir)?;
        let mut shown = self.repo.files_of(base.as_str(), &dir)?;
        let [plan, env, worklog] =
            [PLAN_FILE, ENV_FILE, Note::Log.file()].map(|name| format!("{dir}/{name}"));
        // Which may be amended since.
        if let Some(file) = shown.get_mut(&plan) {
            file.oid = record.claim.plan.clone();
        }
        let (renewed, needed) = ([&plan, &env], [&plan, &env, &worklog]);
        // Links lead out of what the session has.
        shown.retain(|_, file| file.mode.starts_with("100"));
        shown.retain(|path, file| match known.get(path) {
            Some(known) => known.oid != file.oid && renewed.contains(&path),
            // Whatever else it had somebody removed there.
            None => !had.contains_key(path) || needed.contains(&path),
        });
        if shown.is_empty() {
            return Ok(());
        }
        let what = if shown.contains_key(&plan) { "Bring the plan" } else { "Take up session" };
        let message = message(slug, what, &self.by(), Some(record));
        let names: Vec<String> = shown.values().map(|file| file.oid.to_string()).collect();
        let read = read_all(&self.repo.git, &names)?;
        let content = |((path, file), bytes): ((String, File), Option<Vec<u8>>)| {
            let bytes = bytes.ok_or_else(|| Error::failed(format!("the object {} is missing", file.oid)))?;
            Ok((path, Content { mode: file.mode, bytes }))
        };
        let files = shown.into_iter().zip(read).map(content).collect::<Result<Vec<_>>>()?;
        self.change_on_branch(slug, &message, |_| Ok(files))?.followed
    }

    /// Commits texts on the session's branch. A checkout of it follows, whatever else is changed there.
    pub(crate) fn write_on_branch(
        &self,
        slug: &Slug,
        files: &[(String, String)],
        message: &str,
    ) -> Result<Oid> {
        let file = |(path, text): &(String, String)| (path.clone(), Content::plain(text.clone()));
        let written = self.change_on_branch(slug, message, |_| Ok(files.iter().map(file).collect()))?;
        written.followed.map(|()| written.commit)
    }

    /// As [`Self::write_on_branch`], with what `files` makes of the text that a path has now: in the checkout, where
    /// somebody may be changing it, else on the branch. Nobody else writes meanwhile.
    pub(crate) fn change_on_branch(
        &self,
        slug: &Slug,
        message: &str,
        files: impl FnOnce(&dyn Fn(&str) -> Result<Option<String>>) -> Result<Vec<(String, Content)>>,
    ) -> Result<Written> {
        let workspace = self.workspace(slug);
        let git = workspace.as_ref().map_or_else(|| self.repo.git.clone(), |path| self.repo.git.at(path));
        let name = slug.branch_ref();
        let _turn = self.repo.lock("branch")?;
        // What a killed verb left half done is made whole by the look at it.
        self.unfinished(slug)?;
        if let Some(path) = &workspace {
            self.check_checked_out(slug, path)?;
        }
        let tip = git
            .oid(["rev-parse", "--verify", "--end-of-options", &format!("{name}^{{commit}}")])
            .map_err(|_| {
                Error::wrong_state(format!("the branch {} is not in this clone", slug.branch()))
                    .next(format!("sess work claim {slug}"))
            })?;
        let repo = match &workspace {
            Some(path) => self.repo_of(path)?,
            None => self.repo.clone(),
        };
        let files = &files(&|name| match &workspace {
            Some(path) if is_inside(path, name) && path.join(name).is_file() => {
                fs::read_to_string(path.join(name))
                    .map(Some)
                    .map_err(|error| Error::failed(format!("cannot read {name}: {error}")).next("git status"))
            }
            _ => repo.text_at(&tip, name),
        })?;
        // Asked before anything moves.
        if let Some(path) = &workspace
            && let Some((name, _)) = files.iter().find(|(name, _)| !is_inside(path, name))
        {
            return Err(Error::policy(format!("{name} would be written through a link"))
                .next(format!("ls -l {}", crate::quoted(path.display()))));
        }
        let mut edits = Vec::new();
        for (path, Content { mode, bytes }) in files {
            let file = File { mode: mode.clone(), oid: repo.write_blob(bytes)? };
            edits.push(Edit::Put(path.clone(), file));
        }
        let tree = repo.edited(&tip, &edits)?;
        if tree == repo.git.oid(["rev-parse", &format!("{tip}^{{tree}}")])? {
            return Ok(Written { commit: tip, followed: Ok(()) });
        }
        let commit = self.commit_as_session(&repo, slug, &tree, &tip, message)?;
        git.text(["update-ref", &name, commit.as_str(), tip.as_str()])?;
        let follow = |path: &Path| -> Result<()> {
            for (edit, (name, content)) in edits.iter().zip(files) {
                let Edit::Put(_, File { mode, oid }) = edit else { continue };
                git.text(["update-index", "--add", "--cacheinfo", &format!("{mode},{oid},{name}")])?;
                put(&path.join(name), &content.bytes, mode_here(mode))?;
            }
            tidy_sessions(&git);
            Ok(())
        };
        Ok(Written { commit, followed: workspace.as_deref().map_or(Ok(()), follow) })
    }

    fn commit_as_session(
        &self,
        repo: &crate::Repo,
        slug: &Slug,
        tree: &Oid,
        tip: &Oid,
        message: &str,
    ) -> Result<Oid> {
        let env = self.env(slug);
        let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let args = ["commit-tree", tree.as_str(), "-p", tip.as_str(), "-F", "-"];
        let ended = repo.git.run_with(args, Some(message.as_bytes()), &env, None)?;
        if !ended.is_ok() {
            return Err(crate::git::failed(&args, &ended));
        }
        ended.text().trim().parse().map_err(Error::failed)
    }

    /// Makes sure that the commits of a branch can be found again, whatever happens to it.
    pub(crate) fn keep_for_rescue(&self, slug: &Slug, tip: &Oid) -> Result<()> {
        self.repo.git.text(["update-ref", &rescue_ref(slug, tip), tip.as_str()])?;
        Ok(())
    }
}

/// Where the commits of a branch that goes away can be found again.
pub(crate) fn rescue_ref(slug: &Slug, tip: &Oid) -> String {
    format!("refs/intersession/rescue/{slug}/{}", tip.short())
}
