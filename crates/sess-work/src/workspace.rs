//! The place where one session's work is done: its branch, and a checkout of it apart from all others.

use std::{
    collections::BTreeSet,
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use sess_core::mention::first_of;

use crate::{
    Error, Git, Move, Oid, PLAN_FILE, Phase, Repo, Result, Slug, State, Work,
    brief::plain_ended,
    git::words_of,
    guard::{self, TRUST_COMMAND},
    projecting::ENV_FILE,
    repo::MADE_FROM_FILE,
    state::SESSIONS_DIR,
    tree::{File, mode_here},
    writing::write_whole,
};

/// Where workspaces are, below the top of the main checkout.
const DIR: &str = ".sessions";
/// Names what git does not track and a workspace needs all the same.
const INCLUDE_FILE: &str = ".worktreeinclude";
/// How many files a sentence names.
const NAMED_MAX: usize = 5;
/// Nobody changes a plan that is worked by.
const FROZEN_MODE: u32 = 0o444;
const OPEN_MODE: u32 = 0o644;
/// Says which session a worktree was made for, beside what git keeps of it.
pub(crate) const MADE_FOR_FILE: &str = "intersession-made-for";

/// What kind of checkout somebody wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Workspace {
    #[default]
    Worktree,
    /// A clone of its own.
    Clone,
    None,
}

impl Work {
    /// Returns where a session's workspace is: wherever its branch is checked out, else where it would be made.
    pub fn workspace_path(&self, slug: &Slug) -> PathBuf {
        let usual = self.usual_path(slug);
        if usual.join(".git").exists() {
            return usual;
        }
        let adopted = self.checkout_of(&slug.branch_ref()).ok().flatten();
        adopted.filter(|path| path.join(".git").exists()).unwrap_or(usual)
    }

    /// Returns where a session's workspace is made. Repositories that share a place for them do not get into each
    /// other's.
    pub(crate) fn usual_path(&self, slug: &Slug) -> PathBuf {
        let path = self.workspace_root().join(slug.as_str());
        if self.settings.workspaces.is_none() {
            return path;
        }
        let apart = path.with_file_name(format!("{slug}{}", self.workspace_suffix()));
        let is_foreign = path.join(".git").exists() && !self.is_ours(&path);
        if is_foreign || apart.join(".git").exists() { apart } else { path }
    }

    /// Whether a workspace was made for a session, and was not there before.
    pub(crate) fn is_made_for(&self, slug: &Slug, workspace: &Path) -> bool {
        // It may have been moved since, and so may the place for all of them.
        let is_marked = match self.is_clone(workspace) {
            true => workspace.join(".git/intersession").join(MADE_FROM_FILE).is_file(),
            false => linked_dir(workspace)
                .and_then(|dir| fs::read_to_string(dir.join(MADE_FOR_FILE)).ok())
                .is_some_and(|made_for| made_for == slug.as_str()),
        };
        is_marked || workspace == self.usual_path(slug)
    }

    /// Returns what tells this clone's workspaces from another's of the same name. No slug ends like this.
    pub(crate) fn workspace_suffix(&self) -> String {
        format!(".{}", self.owner.clone.get(..8).unwrap_or_default())
    }

    /// Whether a checkout is a worktree of this clone, or a clone of the same owner.
    fn is_ours(&self, checkout: &Path) -> bool {
        let dir = checkout.join(".git");
        if dir.is_dir() {
            let id = fs::read_to_string(dir.join("intersession/clone-id"));
            return id.is_ok_and(|id| id.trim() == self.owner.clone);
        }
        let real = |path: &Path| fs::canonicalize(path).ok();
        let place = linked_dir(checkout);
        // A worktree's own directory is two levels below what all share.
        let common = place.as_ref().and_then(|place| place.parent()?.parent()).and_then(real);
        common.is_some() && common == real(&self.repo.common)
    }

    pub(crate) fn workspace_root(&self) -> PathBuf {
        self.settings.workspaces.clone().unwrap_or_else(|| self.repo.git.dir().join(DIR))
    }

    /// Whether a workspace is a clone of its own, and no worktree of this one.
    pub(crate) fn is_clone(&self, workspace: &Path) -> bool {
        let real = |path: &Path| fs::canonicalize(path).ok();
        let dir = workspace.join(".git");
        dir.is_dir() && real(&dir) != real(&self.repo.common)
    }

    /// Returns the repository that a workspace is of: a clone of its own has objects of its own.
    pub(crate) fn repo_of(&self, workspace: &Path) -> Result<Repo> {
        if self.is_clone(workspace) { Repo::find_here(workspace) } else { Ok(self.repo.clone()) }
    }

    /// Returns the workspace of a session, if it is there.
    pub fn workspace(&self, slug: &Slug) -> Option<PathBuf> {
        Some(self.workspace_path(slug)).filter(|path| path.join(".git").exists())
    }

    /// Fails when a workspace has what is in the way of another branch.
    pub(crate) fn check_switch(&self, slug: &Slug, path: &Path, target: &Oid) -> Result<()> {
        let place = crate::quoted(path.display());
        if let Some(what) = self.unfinished(slug)? {
            return Err(Error::would_lose(format!(
                "the workspace {} is left from before, and {what}: commit or stash that first",
                path.display()
            ))
            .next(format!("git -C {place} stash --include-untracked")));
        }
        let known =
            self.repo.git.text(["ls-tree", "-r", "-z", "--name-only", "--full-tree", target.as_str()])?;
        let known: std::collections::HashSet<&str> = known.split_terminator('\0').collect();
        let told = self.repo.git.at(path).text(["ls-files", "-z", "--others"])?;
        let mut in_the_way: Vec<&str> =
            told.split_terminator('\0').filter(|name| known.contains(name)).collect();
        in_the_way.truncate(5);
        if in_the_way.is_empty() {
            return Ok(());
        }
        Err(Error::would_lose(format!(
            "the workspace {} is left from before, and git does not know {} in it, which the session's branch has by now: move that away first",
            path.display(),
            in_the_way.join(", ")
        ))
        .next(format!("git -C {place} stash --all")))
    }

    /// Has a workspace go on with its session's branch from another commit. What git does not track stays.
    pub(crate) fn switch(&self, slug: &Slug, path: &Path, target: &Oid) -> Result<()> {
        let git = self.repo.git.at(path);
        if self.is_clone(path) {
            let here = self.repo.common.to_string_lossy();
            git.text(["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", &here, target.as_str()])?;
        }
        let branch = slug.branch();
        let asked = [
            "checkout",
            "--quiet",
            "--no-track",
            "--no-overwrite-ignore",
            "-B",
            &branch,
            target.as_str(),
            "--",
        ];
        let switched = git.run(asked)?;
        if switched.is_ok() {
            return Ok(());
        }
        Err(Error::would_lose(format!(
            "the workspace {} cannot go on from {}: {}",
            path.display(),
            target.short(),
            words_of(&switched.stderr)
        ))
        .next(status_command(path)))
    }

    /// Fails when files of a commit go through a filter that is not run: they would come into a workspace, and from
    /// there to everybody, as they must not be.
    pub(crate) fn check_filters(&self, commit: &Oid) -> Result<()> {
        let unrun = guard::unrun_filters(self.repo.git.guards());
        if unrun.is_empty() {
            return Ok(());
        }
        let (_scratch, git) = self.repo.index_of(commit)?;
        let names = git.text(["ls-files", "-z"])?;
        unfiltered(
            &unrun,
            &git.feed(["check-attr", "--cached", "-z", "--stdin", "filter"], names.as_bytes())?,
        )
    }

    /// As [`Self::check_filters`], of what a workspace has or is about to have, by its own attributes.
    pub(crate) fn check_filters_in(&self, workspace: &Git) -> Result<()> {
        let unrun = guard::unrun_filters(self.repo.git.guards());
        if unrun.is_empty() {
            return Ok(());
        }
        let names = workspace.text(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
        unfiltered(&unrun, &workspace.feed(["check-attr", "-z", "--stdin", "filter"], names.as_bytes())?)
    }

    /// Makes the workspace, unless it is there; returns where it is.
    pub(crate) fn ensure_workspace(
        &self,
        slug: &Slug,
        kind: &Workspace,
        notices: &mut Vec<String>,
    ) -> Result<Option<PathBuf>> {
        let path = self.workspace_path(slug);
        if self.workspace(slug).is_some() {
            tidy_sessions(&self.repo.git.at(&path));
            return Ok(Some(path));
        }
        if *kind == Workspace::None {
            return Ok(None);
        }
        let is_taken = fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_some());
        if is_taken {
            return Err(Error::would_lose(format!(
                "{} is in the way: it is no workspace of a session",
                path.display()
            ))
            .next(format!("ls {}", crate::quoted(path.display()))));
        }
        let is_link = |path: &Path| fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
        if self.settings.workspaces.is_none() && is_link(&self.workspace_root()) {
            return Err(Error::policy(format!(
                "{} is a link: workspaces would be made wherever it leads",
                self.workspace_root().display()
            ))
            .next(format!("ls -l {}", crate::quoted(self.workspace_root().display()))));
        }
        if let Some(tip) = self.tip(slug)? {
            self.check_filters(&tip)?;
        }
        self.exclude()?;
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)
                .map_err(|error| Error::failed(format!("cannot make {}: {error}", parent.display())))?;
        }
        match kind {
            Workspace::Worktree => self.add_worktree(slug, &path)?,
            Workspace::Clone => self.add_clone(slug, &path)?,
            Workspace::None => {}
        }
        if let Err(error) = self.include(&path) {
            notices.push(format!("not everything that {INCLUDE_FILE} names was copied: {error}"));
        }
        tidy_sessions(&self.repo.git.at(&path));
        Ok(Some(path))
    }

    fn add_worktree(&self, slug: &Slug, path: &Path) -> Result<()> {
        // Several at once fail now and then, in git.
        let _turn = self.repo.lock("worktree")?;
        let place = path.to_string_lossy();
        // Forced, because a worktree that was deleted by hand is still known under its path.
        let asked = ["worktree", "add", "--force", "--quiet", "--end-of-options", &place, &slug.branch()];
        let added = self.repo.git.run(asked)?;
        if !added.is_ok() {
            return Err(crate::git::failed(&asked, &added));
        }
        mark(slug, path);
        Ok(())
    }

    /// Whether a workspace has lost what git keeps of a worktree in the repository.
    pub(crate) fn has_lost_git(&self, workspace: &Path) -> bool {
        linked_dir(workspace).is_some_and(|place| !place.exists())
    }

    /// Gives a workspace back what git keeps of a worktree. Its files stay as they are.
    pub(crate) fn restore_worktree(&self, slug: &Slug, path: &Path) -> Result<()> {
        let _turn = self.repo.lock("worktree")?;
        let failed = |error| Error::failed(format!("cannot repair {}: {error}", path.display()));
        // All that one needs that was moved together with its repository, or whose repair was stopped at last. It tells
        // of other worktrees, too, so that only a look says what became of this one.
        self.repo.git.run(["worktree", "repair", "--end-of-options", &path.to_string_lossy()])?;
        if !self.has_lost_git(path) {
            return Ok(());
        }
        let branch = slug.branch();
        if self.repo.commit(&slug.branch_ref())?.is_none() {
            let remote = self.repo.remote.as_deref().unwrap_or("<remote>");
            return Err(Error::failed(format!("{branch} is not in this clone"))
                .next(format!("git fetch {remote} {branch}:{branch} && sess work doctor --repair")));
        }
        let new = path.with_file_name(format!(".{slug}.new"));
        // Of a repair that was stopped.
        if new.exists() {
            fs::remove_dir_all(&new).map_err(failed)?;
        }
        let place = new.to_string_lossy();
        // Forced, because git may know one by that name from then.
        let add = ["worktree", "add", "--force", "--quiet", "--no-checkout", "--end-of-options"];
        self.repo.git.text(add.into_iter().chain([&*place, &*branch]))?;
        self.repo.git.at(&new).text(["read-tree", "HEAD"])?;
        // What said so is lost with the rest, and one that was there before the session stays unmarked.
        if self.is_made_for(slug, path) {
            mark(slug, &new);
        }
        let leads_there = fs::read(new.join(".git")).map_err(failed)?;
        let kept = linked_dir(&new)
            .ok_or_else(|| Error::failed(format!("git did not make {} a worktree", new.display())))?;
        let link = fs::canonicalize(path).map_err(failed)?.join(".git");
        fs::write(kept.join("gitdir"), [link.as_os_str().as_encoded_bytes(), b"\n"].concat())
            .map_err(failed)?;
        fs::remove_dir_all(&new).map_err(failed)?;
        // Last, because it says that nothing is lost any more.
        write_whole(&link, &leads_there, OPEN_MODE).map_err(failed)
    }

    /// Returns the remote that a clone of its own talks to.
    pub(crate) fn remote_of_clones(&self) -> Result<&str> {
        self.repo.remote.as_deref().ok_or_else(|| {
            Error::wrong_state("a clone of its own needs a remote, and this repository has none")
                .next("git remote add origin <url>")
        })
    }

    fn add_clone(&self, slug: &Slug, path: &Path) -> Result<()> {
        let remote = self.remote_of_clones()?;
        let url = self.repo.git.text(["remote", "get-url", "--end-of-options", remote])?;
        // Under another name until everything is there: half a clone would be taken for a workspace.
        let _turn = self.repo.lock("worktree")?;
        let (whole, path) = (path, &path.with_file_name(format!(".{slug}.new")));
        let failed =
            |error: std::io::Error| Error::failed(format!("cannot make {}: {error}", whole.display()));
        if path.exists() {
            fs::remove_dir_all(path).map_err(failed)?;
        }
        let place = path.to_string_lossy();
        let here = self.repo.common.to_string_lossy();
        let cloned = self.repo.git.talk([
            "clone",
            "--quiet",
            "--no-local",
            "--origin",
            remote,
            "--branch",
            &slug.branch(),
            "--end-of-options",
            &here,
            &place,
        ])?;
        if !cloned.is_ok() {
            return Err(Error::failed(format!("git clone failed: {}", words_of(&cloned.stderr))));
        }
        let git = self.repo.git.at(path);
        git.text(["remote", "set-url", "--end-of-options", remote, url.trim()])?;
        let settings = [crate::repo::BASE_SETTING, crate::repo::REMOTE_SETTING, crate::repo::CLAIMS_SETTING];
        // Who somebody is may be said for this repository alone.
        for setting in settings.into_iter().chain(["user.name", "user.email"]) {
            let value = self.repo.git.run(["config", "--local", "--get", setting])?;
            if value.is_ok() {
                git.text(["config", setting, value.text().trim()])?;
            }
        }
        if self.repo.has_hooks()? {
            Repo::find_here(path)?.install_hooks(&mut crate::InitReport::default())?;
        }
        // It is the same owner's, however many clones there are.
        let dir = path.join(".git/intersession");
        fs::create_dir_all(&dir)
            .and_then(|()| fs::write(dir.join("clone-id"), format!("{}\n", self.owner.clone)))
            .and_then(|()| {
                let main = self.repo.git.dir().as_os_str().as_encoded_bytes();
                fs::write(dir.join(MADE_FROM_FILE), [main, b"\n"].concat())
            })
            .and_then(|()| fs::rename(path, whole))
            .map_err(failed)
    }

    /// Keeps workspaces out of the way of `git status`; returns whether that was new.
    pub(crate) fn exclude(&self) -> Result<bool> {
        if self.settings.workspaces.is_some() {
            return Ok(false);
        }
        let path = self.repo.common.join("info/exclude");
        let line = format!("/{DIR}/");
        let known = fs::read_to_string(&path).unwrap_or_default();
        if known.lines().any(|known| known == line) {
            return Ok(false);
        }
        let lead = if known.is_empty() || known.ends_with('\n') { "" } else { "\n" };
        path.parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::OpenOptions::new().append(true).create(true).open(&path))
            .and_then(|mut file| file.write_all(format!("{lead}{line}\n").as_bytes()))
            .map(|()| true)
            .map_err(|error| Error::failed(format!("cannot write {}: {error}", path.display())))
    }

    /// Takes back what `exclude` wrote; returns whether it was there.
    pub(crate) fn include_again(&self) -> Result<bool> {
        let path = self.repo.common.join("info/exclude");
        let Ok(known) = fs::read_to_string(&path) else { return Ok(false) };
        let line = format!("/{DIR}/\n");
        let kept: String = known.split_inclusive('\n').filter(|known| **known != *line).collect();
        if kept == known {
            return Ok(false);
        }
        fs::write(&path, kept)
            .map(|()| true)
            .map_err(|error| Error::failed(format!("cannot write {}: {error}", path.display())))
    }

    /// Copies what git does not track and the repository says that a workspace needs.
    fn include(&self, workspace: &Path) -> Result<()> {
        let top = self.repo.git.dir();
        if !top.join(INCLUDE_FILE).is_file() {
            return Ok(());
        }
        let listed = self.repo.git.text([
            "ls-files",
            "-z",
            "--others",
            "--ignored",
            &format!("--exclude-from={INCLUDE_FILE}"),
        ])?;
        for name in
            listed.split('\0').filter(|name| !name.is_empty() && !name.starts_with(&format!("{DIR}/")))
        {
            let (from, to) = (top.join(name), workspace.join(name));
            // A link could lead anywhere, and what the branch brought is newer.
            let is_plain = fs::symlink_metadata(&from).is_ok_and(|found| found.is_file());
            if !is_plain || to.exists() || !is_inside(workspace, name) {
                continue;
            }
            to.parent()
                .map_or(Ok(()), fs::create_dir_all)
                .and_then(|()| fs::copy(&from, &to).map(drop))
                .map_err(|error| Error::failed(format!("{name}: {error}")))?;
        }
        Ok(())
    }

    /// Says what is not committed in a session's workspace, if there is something.
    pub(crate) fn unfinished(&self, slug: &Slug) -> Result<Option<String>> {
        let Some(path) = self.workspace(slug) else { return Ok(None) };
        let git = self.repo.git.at(&path);
        for name in ["MERGE_HEAD", "REBASE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD"] {
            if git.run(["rev-parse", "--verify", "--quiet", name])?.is_ok() {
                return Ok(Some(format!("is in the middle of a merge ({name})")));
            }
        }
        if self.is_elsewhere(slug, &path)? {
            return Ok(Some(format!("has something else checked out than {}", slug.branch())));
        }
        let asked = [
            "status",
            "--porcelain",
            "-z",
            "--untracked-files=no",
            "--no-renames",
            "--ignore-submodules=dirty",
        ];
        let changes = |told: &str| -> Vec<String> {
            told.split('\0').filter_map(|line| line.get(3..)).map(str::to_owned).collect()
        };
        let mut changed = changes(&git.text(asked)?);
        if !changed.is_empty() && self.caught_up(slug, &path, &changed)? {
            changed = changes(&git.text(asked)?);
        }
        changed.truncate(5);
        if changed.is_empty() {
            return Ok(None);
        }
        Ok(Some(format!("has changes that are not committed: {}", changed.join(", "))))
    }

    /// Fails when something in a session's workspace is not committed.
    pub(crate) fn check_finished(&self, slug: &Slug) -> Result<()> {
        match self.unfinished(slug)? {
            None => Ok(()),
            Some(what) => {
                let path = self.workspace_path(slug);
                self.check_checked_out(slug, &path)?;
                Err(Error::would_lose(format!("the workspace of {slug} {what}")).next(status_command(&path)))
            }
        }
    }

    /// Whether a workspace has something else checked out than its session's branch.
    fn is_elsewhere(&self, slug: &Slug, workspace: &Path) -> Result<bool> {
        let head = self.repo.git.at(workspace).run(["symbolic-ref", "--quiet", "HEAD"])?;
        Ok(head.text().trim() != slug.branch_ref())
    }

    /// Fails when a workspace has something else checked out than its session's branch: that is left alone.
    pub(crate) fn check_checked_out(&self, slug: &Slug, workspace: &Path) -> Result<()> {
        if !self.is_elsewhere(slug, workspace)? {
            return Ok(());
        }
        let place = crate::quoted(workspace.display());
        let is_rebased = self.repo.git_dir_of(workspace)?.join("rebase-merge").exists();
        let (what, next) = match is_rebased {
            true => ("is in the middle of a rebase".to_owned(), format!("git -C {place} rebase --continue")),
            false => (
                format!("has something else checked out than {}", slug.branch()),
                format!("git -C {place} switch {}", slug.branch()),
            ),
        };
        Err(Error::would_lose(format!("the workspace of {slug} {what}")).next(next))
    }

    /// Brings files of a workspace to where the branch is, when a verb that committed them was killed before that.
    ///
    /// They are as the commit before has them, so that nothing is lost.
    fn caught_up(&self, slug: &Slug, workspace: &Path, changed: &[String]) -> Result<bool> {
        let git = self.repo.git.at(workspace);
        let told = git.text(["show", "--no-patch", "--format=%B", "HEAD"])?;
        if !told.lines().any(|line| line == format!("Session: {slug}")) {
            return Ok(false);
        }
        let repo = self.repo_of(workspace)?;
        let tip = git.oid(["rev-parse", "--verify", "HEAD^{commit}"])?;
        let parent = repo.commit(&format!("{tip}^"))?;
        let dirs = [State::Active.dir_of(slug), crate::state::learnings_dir(slug)];
        let mut is_any = false;
        for name in changed {
            if !dirs.iter().any(|dir| name.starts_with(&format!("{dir}/"))) || !is_inside(workspace, name) {
                continue;
            }
            let at = |commit: Option<&Oid>| -> Result<Option<File>> {
                let Some(commit) = commit else { return Ok(None) };
                Ok(repo.files_of(commit.as_str(), name)?.remove(name))
            };
            let (before, now) = (at(parent.as_ref())?, at(Some(&tip))?);
            let path = workspace.join(name);
            let here = match path.is_file() {
                true => Some(git.oid(["hash-object", "--no-filters", "--", &path.to_string_lossy()])?),
                false => None,
            };
            let staged = git.text(["ls-files", "--stage", "-z", "--", name])?;
            let staged = staged.split(' ').nth(1).and_then(|oid| oid.parse::<Oid>().ok());
            let [oid_before, oid_now] = [&before, &now].map(|file| file.as_ref().map(|file| &file.oid));
            let is_behind = before != now
                && here.as_ref() == oid_before
                && [oid_before, oid_now].contains(&staged.as_ref());
            // Links lead out of what the session has.
            let Some(File { mode, oid }) = now.filter(|file| is_behind && file.mode.starts_with("100"))
            else {
                continue;
            };
            put(&path, &repo.bytes_of(&oid)?, mode_here(&mode))?;
            git.text(["update-index", "--add", "--cacheinfo", &format!("{mode},{oid},{name}")])?;
            is_any = true;
        }
        if is_any {
            tidy_sessions(&self.repo.git.at(workspace));
        }
        Ok(is_any)
    }

    /// As [`Self::clean_up`], when everything else is done: that it fails is told, and takes nothing back.
    pub(crate) fn clean_up_at_last(
        &self,
        slug: &Slug,
        phase: Phase,
        landed: &[Oid],
        notices: &mut Vec<String>,
    ) {
        if let Err(error) = self.clean_up(slug, phase, landed, notices) {
            notices.push(format!(
                "what {slug} leaves in this clone is not cleaned up: {}; `sess work gc` does that",
                error.message()
            ));
        }
    }

    /// Takes away what is done with, and nothing that is only here: that is told, and stays.
    ///
    /// `landed` are the last commits whose work is on the base: a branch that went on from there stays.
    pub(crate) fn clean_up(
        &self,
        slug: &Slug,
        phase: Phase,
        landed: &[Oid],
        notices: &mut Vec<String>,
    ) -> Result<()> {
        self.forget_landed(slug)?;
        let tip = self.tip(slug)?;
        let has_landed = |tip: &Oid| self.repo.is_before_any(tip, landed);
        if let Some(tip) = &tip {
            self.keep_for_rescue(slug, tip)?;
        }
        let goes_on = |place: &str| {
            format!("the branch {} {place} has commits that did not land, and stays", slug.branch())
        };
        if let Some(tip) = tip.as_ref().filter(|_| phase == Phase::Completed)
            && !has_landed(tip)?
        {
            notices.push(goes_on("here"));
            return Ok(());
        }
        if let Some(path) = self.workspace(slug)
            && !self.remove_workspace(slug, &path, notices)?
        {
            return Ok(());
        }
        // A session that was given back goes on with its branch.
        if phase != Phase::Completed {
            return Ok(());
        }
        let name = slug.branch_ref();
        if let Some(tip) = tip {
            self.repo.git.text(["update-ref", "-d", &name, tip.as_str()])?;
        }
        let shared = self.repo.look()?.branches.get(slug).cloned();
        if let Some(shared) = shared.filter(|_| self.repo.remote.is_some()) {
            if !has_landed(&shared)? {
                notices.push(goes_on("at the remote"));
                return Ok(());
            }
            let moved = self.repo.advance(&[Move { name, from: Some(shared), to: None }])?;
            if moved != crate::Moved::Done {
                notices.push(format!("the branch {} is still at the remote", slug.branch()));
            }
        }
        Ok(())
    }

    /// Returns the files of a workspace that git neither tracks nor ignores, and that were not copied into it.
    pub(crate) fn untracked(&self, workspace: &Path) -> Result<Vec<String>> {
        let told = self.repo.git.at(workspace).text(["ls-files", "-z", "--others", "--exclude-standard"])?;
        let names = told.split('\0').filter(|name| !name.is_empty() && !self.is_copy(workspace, name));
        Ok(names.map(str::to_owned).collect())
    }

    /// Returns the files of a workspace that are changed or new and not committed, as far as they match one of the
    /// pathspecs. What was copied into it is not new.
    pub(crate) fn uncommitted_in<'a>(
        &self,
        workspace: &Path,
        pathspecs: impl IntoIterator<Item = &'a str>,
    ) -> Result<Vec<String>> {
        let asked = ["status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--"];
        let told = self.repo.git.at(workspace).text(asked.into_iter().chain(pathspecs))?;
        let files = told.split('\0').filter_map(|line| Some((line.starts_with("??"), line.get(3..)?)));
        let own = files.filter(|(is_new, name)| !is_new || !self.is_copy(workspace, name));
        Ok(own.map(|(_, name)| name.to_owned()).collect())
    }

    /// Says what a workspace has that is nowhere else, if there is something.
    pub(crate) fn only_here(&self, slug: &Slug, path: &Path) -> Result<Option<String>> {
        let git = self.repo.git.at(path);
        if let Some(what) = self.unfinished(slug)? {
            return Ok(Some(format!("it {what}")));
        }
        let mut told = git.text(["ls-files", "-z", "--others", "--exclude-standard"])?;
        let include = self.repo.git.dir().join(INCLUDE_FILE);
        if include.is_file() {
            // What was copied may be ignored by git, and yet have been changed.
            let named = format!("--exclude-from={}", include.display());
            told += &git.text(["ls-files", "-z", "--others", "--ignored", &named])?;
        }
        // What is named there and not ignored is told twice.
        let untracked: BTreeSet<&str> = told.split('\0').filter(|name| !name.is_empty()).collect();
        let only_here: Vec<&str> = untracked.into_iter().filter(|name| !self.is_copy(path, name)).collect();
        if !only_here.is_empty() {
            return Ok(Some(format!("git does not know {}", first_of(&only_here, NAMED_MAX))));
        }
        let stashes = git.text(["stash", "list", "--format=%gs"])?;
        let of_branch = format!("on {}:", slug.branch()).to_lowercase();
        if stashes.lines().any(|line| line.to_lowercase().contains(&of_branch)) {
            return Ok(Some("something is stashed on its branch".to_owned()));
        }
        if self.is_clone(path) {
            let told = git.text(["for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/stash"])?;
            if let Some(other) = told.lines().find(|name| *name != slug.branch()) {
                return Ok(Some(format!("{other} is nowhere else")));
            }
        }
        let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let (outer, others) = (real(path), self.worktrees()?.into_iter().filter(|other| !other.is_gone));
        let mut inside = others.map(|other| real(&other.path)).filter(|other| *other != outer);
        if let Some(inner) = inside.find(|other| other.starts_with(&outer)) {
            return Ok(Some(format!("{} is another worktree inside it", inner.display())));
        }
        // What is changed in there, git would not say without running in there.
        let told = git.text(["ls-files", "--stage", "-z"])?;
        let links = told.split('\0').filter_map(|line| line.strip_prefix("160000 ")?.split_once('\t'));
        if let Some((_, name)) = links.into_iter().find(|(_, name)| path.join(name).join(".git").exists()) {
            return Ok(Some(format!("the submodule {name} is checked out in it")));
        }
        Ok(None)
    }

    /// Removes a workspace, unless something in it is nowhere else.
    fn remove_workspace(&self, slug: &Slug, path: &Path, notices: &mut Vec<String>) -> Result<bool> {
        let mut keep = |what: String| {
            notices.push(format!("the workspace {} stays: {what}", path.display()));
            Ok(false)
        };
        if !self.is_made_for(slug, path) {
            return keep("it was there before the session".to_owned());
        }
        if let Some(what) = self.only_here(slug, path)? {
            return keep(what);
        }
        let place = path.to_string_lossy();
        let removed = if self.is_clone(path) {
            fs::remove_dir_all(path).map_err(|error| error.to_string())
        } else {
            let _turn = self.repo.lock("worktree")?;
            // Forced, because git would keep it for a file that was copied into it.
            let removed = self.repo.git.run(["worktree", "remove", "--force", "--end-of-options", &place])?;
            if removed.is_ok() { Ok(()) } else { Err(words_of(&removed.stderr)) }
        };
        match removed {
            Ok(()) => Ok(true),
            Err(error) => keep(error),
        }
    }

    /// Whether a file of a workspace is an unchanged copy of the one in the main checkout.
    pub(crate) fn is_copy(&self, workspace: &Path, name: &str) -> bool {
        if workspace == self.repo.git.dir() {
            return false;
        }
        let read = |dir: &Path| fs::read(dir.join(name)).ok();
        read(workspace).is_some_and(|copy| read(self.repo.git.dir()).is_some_and(|original| original == copy))
    }
}

/// Returns where git keeps what it knows of a worktree, as its checkout says, also when nothing is there any more; git
/// itself says it with [`Repo::git_dir_of`].
fn linked_dir(checkout: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(checkout.join(".git")).ok()?;
    text.trim_end().strip_prefix("gitdir: ").map(|place| checkout.join(place))
}

/// Writes down, beside what git keeps of a worktree, which session it was made for.
fn mark(slug: &Slug, worktree: &Path) {
    let marked = linked_dir(worktree).map(|dir| fs::write(dir.join(MADE_FOR_FILE), slug.as_str()));
    // It is known by its place, too.
    if let Some(Err(error)) = marked {
        tracing::debug!(%error, "a workspace is not marked");
    }
}

/// Fails when git says of a file that it goes through one of these filters.
fn unfiltered(unrun: &[&str], told: &[u8]) -> Result<()> {
    let told = String::from_utf8_lossy(told);
    let parts: Vec<&str> = told.split('\0').collect();
    // A path, the attribute's name and its value.
    let Some((path, filter)) =
        parts.chunks_exact(3).map(|part| (part[0], part[2])).find(|(_, filter)| unrun.contains(filter))
    else {
        return Ok(());
    };
    Err(Error::policy(format!(
        "{path} goes through the filter {filter:?}, which this clone's own configuration names, and which is not run unless you trust it"
    ))
    .next(TRUST_COMMAND))
}

/// Returns the command that shows what is not committed in a checkout.
pub(crate) fn status_command(checkout: &Path) -> String {
    format!("git -C {} status", crate::quoted(checkout.display()))
}

/// Marks the plans of a checkout as what nobody changes, or as what can be changed. A claim keeps its plan's hash; this
/// is a hint. What a shell reads gets the line ends that it knows, whatever git is set to.
pub(crate) fn tidy_sessions(git: &Git) {
    let checkout = git.dir();
    for state in State::ALL {
        let dir = format!("{SESSIONS_DIR}/{state}");
        let Ok(entries) = fs::read_dir(checkout.join(&dir)) else { continue };
        let entries: Vec<fs::DirEntry> = entries.flatten().collect();
        if state == State::Active {
            entries.iter().for_each(|entry| make_plain(git, &dir, entry));
        }
        let mode = match state {
            State::Active | State::Completed => FROZEN_MODE,
            State::Drafting | State::Planned => OPEN_MODE,
            State::Abandoned => continue,
        };
        for entry in entries {
            let Some(name) = entry.file_name().to_str().map(|name| format!("{dir}/{name}/{PLAN_FILE}"))
            else {
                continue;
            };
            let plan = checkout.join(&name);
            let Ok(found) = fs::symlink_metadata(&plan) else { continue };
            if !found.is_file() || found.permissions().mode() & 0o777 == mode || !is_inside(checkout, &name) {
                continue;
            }
            if let Err(error) = fs::set_permissions(&plan, fs::Permissions::from_mode(mode)) {
                tracing::debug!(%error, "the plan stays as it is");
            }
        }
    }
}

/// Takes the line ends of Windows from a session's environment.
fn make_plain(git: &Git, dir: &str, entry: &fs::DirEntry) {
    let checkout = git.dir();
    let Some(name) = entry.file_name().to_str().map(|name| format!("{dir}/{name}/{ENV_FILE}")) else {
        return;
    };
    let path = checkout.join(&name);
    if !fs::symlink_metadata(&path).is_ok_and(|found| found.is_file()) || !is_inside(checkout, &name) {
        return;
    }
    let Some(text) = fs::read_to_string(&path).ok().filter(|text| text.contains("\r\n")) else { return };
    let written = write_whole(&path, plain_ended(&text).as_bytes(), OPEN_MODE)
        .map_err(|error| Error::failed(error.to_string()))
        // By its size alone git would take it for changed.
        .and_then(|()| git.text(["update-index", "--", &name]));
    if let Err(error) = written {
        tracing::debug!(%error, "the environment stays as it is");
    }
}

/// Whether a file of a directory is in it, and no directory on the way to it is a link to elsewhere.
pub(crate) fn is_inside(dir: &Path, name: &str) -> bool {
    let mut path = dir.to_owned();
    let Some((parents, _)) = name.rsplit_once('/') else { return true };
    parents.split('/').all(|part| {
        path.push(part);
        // What is not there yet is made as a directory.
        fs::symlink_metadata(&path).map_or(true, |found| found.is_dir())
    })
}

/// Writes a file of a workspace whole or not at all, also when it was marked as frozen.
pub(crate) fn put(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let failed = |error: std::io::Error| Error::failed(format!("cannot write {}: {error}", path.display()));
    let dir = path.parent().ok_or_else(|| Error::failed(format!("{} has no directory", path.display())))?;
    fs::create_dir_all(dir).map_err(failed)?;
    write_whole(path, bytes, mode).map_err(failed)
}
