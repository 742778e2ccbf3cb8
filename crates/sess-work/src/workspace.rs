//! The place where one session's work is done: where its checkout is, apart from all others, and how that is made,
//! repaired and removed. What is in it is looked at in `checkout`.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use rustix::fs::{Access, access};
use sess_core::mention::first_of;

use crate::{
    Error, Git, Move, Oid, Phase, Repo, Result, Slug, Work,
    checkout::{NAMED_MAX, OPEN_MODE, is_inside, is_plain, stash_command, status_command, tidy_sessions},
    git::words_of,
    guard::{self, TRUST_COMMAND},
    projecting::Worktree,
    repo::MADE_FROM_FILE,
    under_way::branch_under_way,
    writing::write_whole,
};

/// Where workspaces are, below the top of the main checkout.
const DIR: &str = ".sessions";
/// Names what git does not track and a workspace needs all the same.
pub(crate) const INCLUDE_FILE: &str = ".worktreeinclude";
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
    /// Returns where a session's workspace is: wherever its branch is checked out, or is again when git is done with what
    /// it is in the middle of; else where it would be made.
    pub fn workspace_path(&self, slug: &Slug) -> PathBuf {
        let usual = self.usual_path(slug);
        if usual.join(".git").exists() {
            return usual;
        }
        let name = slug.branch_ref();
        let worktrees = self.worktrees().unwrap_or_default();
        // Which one git took it away from only counts where it is in none.
        let is_out = |worktree: &&Worktree| worktree.branch.as_ref() == Some(&name);
        let is_lent = |worktree: &&Worktree| {
            let dir = linked_dir(&worktree.path).unwrap_or_else(|| worktree.path.join(".git"));
            worktree.branch.is_none() && branch_under_way(&dir).as_ref() == Some(&name)
        };
        let adopted = worktrees.iter().find(is_out).or_else(|| worktrees.iter().find(is_lent));
        let adopted = adopted.map(|worktree| worktree.path.clone());
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

    /// Returns the session that the checkout around the caller was made for, whatever is checked out in it.
    pub(crate) fn made_for_here(&self) -> Option<Slug> {
        let top = &self.repo.top;
        let marked = linked_dir(top).and_then(|dir| fs::read_to_string(dir.join(MADE_FOR_FILE)).ok());
        let name = marked.or_else(|| {
            let name = top.file_name()?.to_str()?;
            Some(name.strip_suffix(&self.workspace_suffix()).unwrap_or(name).to_owned())
        })?;
        let slug: Slug = name.parse().ok()?;
        let real = |path: &Path| fs::canonicalize(path).ok();
        // One that was moved has its mark with it.
        let is_there = real(top) == real(&self.usual_path(&slug));
        (is_there || self.is_made_for(&slug, top)).then_some(slug)
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
        // What is stashed is not all of that.
        self.check_not_under_way(slug, path)?;
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
        let in_the_way: Vec<&str> = told.split_terminator('\0').filter(|name| known.contains(name)).collect();
        if in_the_way.is_empty() {
            return Ok(());
        }
        Err(Error::would_lose(format!(
            "the workspace {} is left from before, and git does not know {} in it, which the session's branch has by now: move that away first",
            path.display(),
            first_of(&in_the_way, NAMED_MAX)
        ))
        .next(stash_command(path, &in_the_way)))
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

    /// Fails when no workspace can be made in the place for all of them.
    pub(crate) fn check_root(&self) -> Result<()> {
        let root = self.workspace_root();
        let is_link = |path: &Path| fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
        if self.settings.workspaces.is_none() && is_link(&root) {
            return Err(Error::policy(format!(
                "{} is a link: workspaces would be made wherever it leads",
                root.display()
            ))
            .next(format!("ls -l {}", crate::quoted(root.display()))));
        }
        // The rest of the way to it is made.
        let there = root.ancestors().find(|path| fs::symlink_metadata(path).is_ok()).unwrap_or(&root);
        let (shown, place) = (there.display(), crate::quoted(there.display()));
        if !there.is_dir() {
            return Err(Error::would_lose(format!(
                "{shown} is no directory, and workspaces need one there: move it away"
            ))
            .next(format!("mv {place} <another name>")));
        }
        access(there, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| {
            Error::would_lose(format!("no workspace can be made in {shown}: {error}"))
                .next(format!("chmod u+wx {place}"))
        })
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
        self.check_root()?;
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
        self.check_out_sessions(path)?;
        mark(slug, path);
        Ok(())
    }

    /// Has a worktree of a sparse checkout, which is as sparse, have the sessions' own files all the same.
    fn check_out_sessions(&self, workspace: &Path) -> Result<()> {
        let git = self.repo.git.at(workspace);
        let is_sparse = git.run(["config", "--type=bool", "--get", "core.sparseCheckout"])?;
        if is_sparse.text().trim() == "true" {
            git.text(["sparse-checkout", "add", crate::state::AGENTS_DIR])?;
        }
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

    /// Returns what git does not track in the main checkout, and what is named there as what a workspace needs.
    pub(crate) fn included(&self) -> Result<Vec<String>> {
        if !self.repo.git.dir().join(INCLUDE_FILE).is_file() {
            return Ok(Vec::new());
        }
        let named = format!("--exclude-from={INCLUDE_FILE}");
        let told = self.repo.git.text(["ls-files", "-z", "--others", "--ignored", &named])?;
        let inside = format!("{DIR}/");
        let names = told.split_terminator('\0').filter(|name| !name.starts_with(&inside));
        Ok(names.map(str::to_owned).collect())
    }

    /// Copies what git does not track and the repository says that a workspace needs.
    fn include(&self, workspace: &Path) -> Result<()> {
        for name in self.included()? {
            let (from, to) = (self.repo.git.dir().join(&name), workspace.join(&name));
            // A link could lead anywhere, and what the branch brought is newer.
            if !is_plain(self.repo.git.dir(), &name) || to.exists() || !is_inside(workspace, &name) {
                continue;
            }
            to.parent()
                .map_or(Ok(()), fs::create_dir_all)
                .and_then(|()| fs::copy(&from, &to).map(drop))
                .map_err(|error| Error::failed(format!("{name}: {error}")))?;
        }
        Ok(())
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
        // What another process of this clone takes away at the same time is gone by then, and no notice.
        let turn = self.repo.lock("cleaning")?;
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
            self.repo.remove_branch(slug, &tip)?;
        }
        // Nobody of this clone waits for a remote that takes its time.
        drop(turn);
        let shared = || -> Result<Option<Oid>> { Ok(self.repo.look()?.branches.get(slug).cloned()) };
        if let Some(shared_tip) = shared()?.filter(|_| self.repo.remote.is_some()) {
            if !has_landed(&shared_tip)? {
                notices.push(goes_on("at the remote"));
                return Ok(());
            }
            let moved = self.repo.advance(&[Move { name, from: Some(shared_tip), to: None }])?;
            if moved != crate::Moved::Done && shared()?.is_some() {
                notices.push(format!("the branch {} is still at the remote", slug.branch()));
            }
        }
        Ok(())
    }

    /// Says so when git was told not to let go of a workspace.
    pub(crate) fn told_to_keep(&self, path: &Path) -> Result<Option<String>> {
        let real = |path: &Path| fs::canonicalize(path).ok();
        let place = real(path);
        let is_locked = self.worktrees()?.iter().any(|known| known.is_locked && real(&known.path) == place);
        let unlock =
            || format!("it is locked: `git worktree unlock {}` ends that", crate::quoted(path.display()));
        Ok(is_locked.then(unlock))
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
        let needed = match self.only_here(slug, path)? {
            None => self.told_to_keep(path)?,
            needed => needed,
        };
        if let Some(what) = needed {
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
