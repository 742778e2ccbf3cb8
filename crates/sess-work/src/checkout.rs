//! What is in a checkout: what is not committed, or nowhere else, and the files that the program itself writes there.
//!
//! Where a session's checkout is, and how it comes and goes, is in `workspace`.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::{ffi::OsStringExt as _, fs::PermissionsExt as _},
    path::Path,
};

use sess_core::mention::first_of;

use crate::{
    Error, Git, Oid, PLAN_FILE, Result, Slug, State, Work,
    brief::plain_ended,
    chaining::quoted as quoted_path,
    projecting::ENV_FILE,
    refs::read_all,
    state::SESSIONS_DIR,
    tree::{File, mode_here},
    workspace::INCLUDE_FILE,
    writing::write_whole,
};

/// How many files a sentence names.
pub(crate) const NAMED_MAX: usize = 5;
/// How many files a command names, which is a line that somebody copies.
const STASHED_MAX: usize = 100;
/// Nobody changes a plan that is worked by.
const FROZEN_MODE: u32 = 0o444;
pub(crate) const OPEN_MODE: u32 = 0o644;

impl Work {
    /// Says what is not committed in a session's workspace, if there is something.
    pub(crate) fn unfinished(&self, slug: &Slug) -> Result<Option<String>> {
        let Some(path) = self.workspace(slug) else { return Ok(None) };
        let git = self.repo.git.at(&path);
        if let Some(what) = self.under_way(&path)? {
            return Ok(Some(format!("is in the middle of {}", what.told())));
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
                self.check_not_under_way(slug, &path)?;
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
        // Until that is done git switches to nothing else.
        self.check_not_under_way(slug, workspace)?;
        let (branch, place) = (slug.branch(), crate::quoted(workspace.display()));
        Err(Error::would_lose(format!(
            "the workspace of {slug} has something else checked out than {branch}"
        ))
        .next(format!("git -C {place} switch {branch}")))
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

    /// Returns the files of a workspace that git neither tracks nor ignores, and that were not copied into it.
    pub(crate) fn untracked(&self, workspace: &Path) -> Result<Vec<String>> {
        let told = self.repo.git.at(workspace).text(["ls-files", "-z", "--others", "--exclude-standard"])?;
        let names: BTreeSet<&str> = told.split_terminator('\0').collect();
        Ok(self.own(workspace, names)?.into_iter().map(str::to_owned).collect())
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
        let new = files.clone().filter(|(is_new, _)| *is_new).map(|(_, name)| name);
        let own = self.own(workspace, new.collect())?;
        let files = files.filter(|(is_new, name)| !is_new || own.contains(name));
        Ok(files.map(|(_, name)| name.to_owned()).collect())
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
        let untracked: BTreeSet<&str> = told.split_terminator('\0').collect();
        let only_here: Vec<&str> = self.own(path, untracked)?.into_iter().collect();
        if !only_here.is_empty() {
            return Ok(Some(format!("git does not know {}", first_of(&only_here, NAMED_MAX))));
        }
        let hidden = changed_unseen(&git)?;
        if !hidden.is_empty() {
            let named = first_of(&hidden, NAMED_MAX);
            return Ok(Some(format!("git was told not to look at {named}, which is changed")));
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
            if let Some(other) = self.ref_only_in(slug, &git)? {
                return Ok(Some(format!("{other} has commits that are nowhere else")));
            }
            if fs::read_dir(path.join(".git/worktrees")).is_ok_and(|mut made| made.next().is_some()) {
                return Ok(Some("it has worktrees of its own".to_owned()));
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

    /// Returns a ref of a clone that leads to what this repository does not have.
    fn ref_only_in(&self, slug: &Slug, clone: &Git) -> Result<Option<String>> {
        let own = slug.branch_ref();
        let told = clone.text(["for-each-ref", "--format=%(objectname) %(refname)"])?;
        let refs = told.lines().filter_map(|line| line.split_once(' '));
        // Tags that came with the clone are here, too; what the remote has is not lost with it.
        let refs: Vec<(&str, &str)> =
            refs.filter(|(_, name)| *name != own && !name.starts_with("refs/remotes/")).collect();
        let asked: String = refs.iter().map(|(oid, _)| format!("{oid}\n")).collect();
        let told = self.repo.git.feed(["cat-file", "--batch-check"], asked.as_bytes())?;
        let told = String::from_utf8_lossy(&told);
        let missing = told.lines().zip(&refs).find(|(line, _)| line.ends_with(" missing"));
        Ok(missing.map(|(_, (_, name))| (*name).to_owned()))
    }

    /// Returns which of these files, which git does not track in a workspace, are its own: no unchanged copies of what
    /// the main checkout names as what a workspace needs. One that only happens to be like a file there is nobody's
    /// copy, and one that a link leads to would be its own.
    pub(crate) fn own<'a>(
        &self,
        workspace: &Path,
        mut untracked: BTreeSet<&'a str>,
    ) -> Result<BTreeSet<&'a str>> {
        let main = self.repo.git.dir();
        if untracked.is_empty() || workspace == main {
            return Ok(untracked);
        }
        let read = |dir: &Path, name: &str| is_plain(dir, name).then(|| fs::read(dir.join(name)).ok())?;
        for name in self.included()? {
            if untracked.contains(&*name)
                && read(workspace, &name).is_some_and(|copy| read(main, &name) == Some(copy))
            {
                untracked.remove(&*name);
            }
        }
        Ok(untracked)
    }
}

/// Returns the files of a checkout that git was told not to look at (`update-index --skip-worktree` and the like) and
/// that are not what it has of them.
fn changed_unseen(checkout: &Git) -> Result<Vec<String>> {
    let told = checkout.text(["ls-files", "-v", "--stage", "-z"])?;
    let is_unseen = |mark: &str| mark == "S" || mark.bytes().all(|byte| byte.is_ascii_lowercase());
    let (mut files, mut links, mut changed) = (Vec::new(), Vec::new(), Vec::new());
    for line in told.split_terminator('\0') {
        let Some((head, name)) = line.split_once('\t') else { continue };
        let [mark, mode, oid, _stage] = head.split(' ').collect::<Vec<_>>()[..] else { continue };
        if !is_unseen(mark) {
            continue;
        }
        // A sparse checkout has none of what it leaves out.
        let Ok(found) = fs::symlink_metadata(checkout.dir().join(name)) else { continue };
        match mode {
            // A submodule has changes of its own.
            "160000" => {}
            "120000" => links.push((name, oid)),
            _ if found.is_file() => files.push((name, oid)),
            _ => changed.push(name.to_owned()),
        }
    }
    let known = read_all(checkout, &links.iter().map(|(_, oid)| (*oid).to_owned()).collect::<Vec<_>>())?;
    for ((name, _), known) in links.iter().zip(known) {
        let path = checkout.dir().join(name);
        // Where a system has no links, they are files with the same text.
        let here = fs::read_link(&path).map(|target| target.into_os_string().into_vec());
        if here.or_else(|_| fs::read(&path)).ok() != known {
            changed.push((*name).to_owned());
        }
    }
    if files.is_empty() {
        return Ok(changed);
    }
    let input: String = files.iter().map(|(name, _)| format!("{}\n", quoted_path(name))).collect();
    let hashed =
        checkout.run_with(["hash-object", "--stdin-paths"], Some(input.as_bytes()), &[], None)?.text();
    // It ends at one that cannot be read: nobody knows then what is in those that follow.
    let hashed = hashed.lines().map(Some).chain(std::iter::repeat(None));
    let differing = files.iter().zip(hashed).filter(|((_, oid), here)| *here != Some(*oid));
    changed.extend(differing.map(|((name, _), _)| (*name).to_owned()));
    Ok(changed)
}

/// Returns the command that shows what is not committed in a checkout.
pub(crate) fn status_command(checkout: &Path) -> String {
    format!("git -C {} status", crate::quoted(checkout.display()))
}

/// Returns the command that puts away files which git does not track, and nothing else. Of many it names the first ones:
/// whoever tries again then is told of those that follow.
pub(crate) fn stash_command(checkout: &Path, names: &[impl AsRef<str>]) -> String {
    // What means something in a pattern means itself in a name.
    let is_pattern = |name: &str| name.starts_with(':') || name.contains(['*', '?', '[', '\\']);
    let paths = names.iter().take(STASHED_MAX).map(AsRef::as_ref).map(|name| match is_pattern(name) {
        true => crate::quoted(format!(":(literal){name}")),
        false => crate::quoted(name),
    });
    let paths: Vec<String> = paths.collect();
    format!("git -C {} stash push --all -- {}", crate::quoted(checkout.display()), paths.join(" "))
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

/// Whether a file of a directory is in it, and neither a link nor anything else that is no plain file.
pub(crate) fn is_plain(dir: &Path, name: &str) -> bool {
    fs::symlink_metadata(dir.join(name)).is_ok_and(|found| found.is_file()) && is_inside(dir, name)
}

/// Writes a file of a workspace whole or not at all, also when it was marked as frozen.
pub(crate) fn put(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let failed = |error: std::io::Error| Error::failed(format!("cannot write {}: {error}", path.display()));
    let dir = path.parent().ok_or_else(|| Error::failed(format!("{} has no directory", path.display())))?;
    fs::create_dir_all(dir).map_err(failed)?;
    write_whole(path, bytes, mode).map_err(failed)
}
