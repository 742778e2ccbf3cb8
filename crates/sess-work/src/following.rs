//! A checkout of the base that follows it, where there is no remote.
//!
//! The branch moves before its checkout does. Between the two, what the checkout has to do is written down: whoever
//! comes next does it, because a commit from a checkout that stayed behind would take back what landed.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use sess_core::mention::first_of;

use crate::{
    Error, Git, Moved, Oid, Record, Result, Seen, Work,
    checkout::{NAMED_MAX, stash_command, status_command, tidy_sessions},
    git::{left_lock, words_of},
    projecting::Step,
    writing::write_whole,
};

const FILE: &str = "checkout.pending";

/// A way that a checkout has to go.
#[derive(Debug, PartialEq)]
struct Pending {
    from: Oid,
    to: Oid,
    checkout: PathBuf,
}

impl Pending {
    fn parse(text: &str) -> Option<Self> {
        let (from, rest) = text.split_once('\n')?;
        let (to, checkout) = rest.split_once('\n')?;
        Some(Self { from: from.parse().ok()?, to: to.parse().ok()?, checkout: checkout.into() })
    }
}

impl Work {
    /// Moves the base by `advance`, and its checkout after it.
    pub(crate) fn with_checkout(
        &self,
        from: &Oid,
        to: &Oid,
        advance: impl FnOnce() -> Result<Moved>,
    ) -> Result<Moved> {
        let _turn = self.repo.lock("checkout")?;
        self.follow_in_turn()?;
        let Some(checkout) = self.checkout_of(&self.repo.base_ref())? else { return advance() };
        // Asked before anything moves.
        self.check_follows(&checkout, from, to)?;
        self.write_pending(&Pending { from: from.clone(), to: to.clone(), checkout })?;
        let moved = advance()?;
        // The base has moved: what a checkout does not do now, it does with the next verb.
        if let Err(error) = self.follow_in_turn() {
            tracing::warn!(%error, "the checkout did not follow its branch");
        }
        Ok(moved)
    }

    /// Fails when a checkout of the base could not follow a claim that is about to be made, changed or ended.
    pub(crate) fn check_projection(&self, seen: &Seen, record: &Record) -> Result<()> {
        if self.repo.remote.is_some() {
            return Ok(());
        }
        // While another process moves it, a checkout looks as if somebody had changed it.
        let _turn = self.repo.lock("checkout")?;
        self.follow_in_turn()?;
        let Some(checkout) = self.checkout_of(&self.repo.base_ref())? else { return Ok(()) };
        let (mut then, slug) = (seen.clone(), &record.claim.slug);
        then.view.claims.insert(slug.clone(), record.clone());
        let mut steps = self.pending(&then, Some(slug))?;
        if steps.is_empty() {
            let edits = self.beginnings(&then, slug, &record.claim)?;
            steps.push(Step { message: String::new(), edits });
        }
        if let (Some(last), Some(edit)) = (steps.last_mut(), self.lock_edit(&then, None)?) {
            last.edits.push(edit);
        }
        let commit = self.chained(&seen.tree, &steps)?;
        self.check_follows(&checkout, &seen.view.base, &commit)
    }

    /// Fails when a checkout has changes of its own in what it would have to change.
    fn check_follows(&self, checkout: &Path, from: &Oid, to: &Oid) -> Result<()> {
        let git = self.repo.git.at(checkout);
        refresh(&git)?;
        check_clear(&git, from, to)?;
        let probe = git.run(["read-tree", "--dry-run", "-m", "-u", from.as_str(), to.as_str()])?;
        // A checkout that is elsewhere by now says nothing: whoever moves the base finds that it has moved.
        if probe.is_ok() || self.repo.commit(&self.repo.base_ref())?.as_ref() != Some(from) {
            return Ok(());
        }
        if let Some(error) = left_lock(&probe.stderr) {
            return Err(error);
        }
        Err(Error::would_lose(format!(
            "{} has changes that are not committed, and that this would have to overwrite: {}",
            checkout.display(),
            words_of(&probe.stderr)
        ))
        .next(status_command(checkout)))
    }

    /// Takes the checkout to where a verb that was killed has brought the base.
    pub(crate) fn follow(&self) {
        if self.repo.remote.is_some() || !self.pending_path().is_file() {
            return;
        }
        let followed = self.repo.lock("checkout").and_then(|_turn| self.follow_in_turn());
        if let Err(error) = followed {
            tracing::warn!(%error, "the checkout did not follow its branch");
        }
    }

    fn follow_in_turn(&self) -> Result<()> {
        let path = self.pending_path();
        let Ok(text) = fs::read_to_string(&path) else { return Ok(()) };
        if let Some(pending) = Pending::parse(&text).filter(|pending| self.is_due(pending)) {
            let git = self.repo.git.at(&pending.checkout);
            refresh(&git)?;
            // Somebody may have written them since that was asked before the base moved.
            check_clear(&git, &pending.from, &pending.to)?;
            let followed = git.run(["read-tree", "-m", "-u", pending.from.as_str(), pending.to.as_str()])?;
            if !followed.is_ok() {
                if let Some(error) = left_lock(&followed.stderr) {
                    return Err(error);
                }
                return Err(Error::would_lose(format!(
                    "{} is behind {}, and has changes that are in the way: {}",
                    pending.checkout.display(),
                    self.repo.base,
                    words_of(&followed.stderr)
                ))
                .next(format!("git -C {} stash", crate::quoted(pending.checkout.display()))));
            }
            tidy_sessions(&git);
        }
        fs::remove_file(&path)
            .map_err(|error| Error::failed(format!("cannot remove {}: {error}", path.display())))
    }

    /// Whether the base went there and nowhere else since, and is still checked out in that place.
    fn is_due(&self, pending: &Pending) -> bool {
        let base = self.repo.base_ref();
        let is_there = |at: Result<Option<Oid>>| at.is_ok_and(|at| at.as_ref() == Some(&pending.to));
        let is_out = |at: Result<Option<PathBuf>>| at.is_ok_and(|at| at.as_ref() == Some(&pending.checkout));
        is_there(self.repo.commit(&base)) && is_out(self.checkout_of(&base))
    }

    fn pending_path(&self) -> PathBuf {
        self.repo.common.join("intersession").join(FILE)
    }

    fn write_pending(&self, pending: &Pending) -> Result<()> {
        let Pending { from, to, checkout } = pending;
        let text = format!("{from}\n{to}\n{}", checkout.display());
        write_whole(&self.repo.own_dir()?.join(FILE), text.as_bytes(), 0o600)
            .map_err(|error| Error::failed(format!("cannot write {FILE}: {error}")).next("sess work doctor"))
    }
}

/// What is in the places of files that come.
#[derive(Default)]
struct InTheWay {
    /// What git does not track: files, and directories with nothing else in them.
    untracked: Vec<String>,
    /// Submodules that are checked out.
    submodules: Vec<String>,
}

/// Fails when a checkout has what git does not track where files have to come: what it ignores it would overwrite or
/// delete without a word.
fn check_clear(checkout: &Git, from: &Oid, to: &Oid) -> Result<()> {
    let InTheWay { untracked, submodules } = in_the_way(checkout, from, to)?;
    let place = checkout.dir().display();
    if !untracked.is_empty() {
        return Err(Error::would_lose(format!(
            "{place} has files that git does not track, and that this would have to overwrite: {}",
            first_of(&untracked, NAMED_MAX)
        ))
        .next(stash_command(checkout.dir(), &untracked)));
    }
    let Some(submodule) = submodules.first() else { return Ok(()) };
    Err(Error::would_lose(format!(
        "{place} has the submodule {submodule} checked out, and this would have to put a file into its place"
    ))
    .next(format!("git -C {} submodule deinit -- {}", crate::quoted(place), crate::quoted(submodule))))
}

fn in_the_way(checkout: &Git, from: &Oid, to: &Oid) -> Result<InTheWay> {
    let asked = ["diff-tree", "-r", "-z", "--no-renames", "--diff-filter=AT", from.as_str(), to.as_str()];
    let told = checkout.text(asked)?;
    let is_dir =
        |name: &str| fs::symlink_metadata(checkout.dir().join(name)).is_ok_and(|found| found.is_dir());
    let (mut files, mut dirs) = (BTreeSet::new(), Vec::new());
    let mut parts = told.split_terminator('\0');
    while let (Some(modes), Some(name)) = (parts.next(), parts.next()) {
        match what_is_at(checkout.dir(), name) {
            // A submodule that comes leaves the directory as it is.
            Some(at) if is_dir(at) => dirs.extend((!modes.contains(" 160000 ")).then_some(at)),
            at => files.extend(at),
        }
    }
    let mut found = InTheWay::default();
    if files.is_empty() && dirs.is_empty() {
        return Ok(found);
    }
    let told = checkout.text(["ls-files", "-z"])?;
    let tracked: BTreeSet<&str> = told.split_terminator('\0').collect();
    let untracked = files.into_iter().filter(|name| !tracked.contains(name));
    found.untracked.extend(untracked.map(str::to_owned));
    if dirs.is_empty() {
        return Ok(found);
    }
    let asked = ["ls-files", "-z", "--others", "--directory", "--no-empty-directory", "--"];
    let inside: Vec<String> = dirs.iter().map(|dir| format!(":(literal){dir}/")).collect();
    let told = checkout.text(asked.into_iter().chain(inside.iter().map(String::as_str)))?;
    found.untracked.extend(told.split_terminator('\0').map(str::to_owned));
    // Of all directories git tracks only these by their names.
    let submodules = dirs.into_iter().filter(|dir| tracked.contains(dir));
    let is_out = |dir: &&str| checkout.dir().join(dir).join(".git").exists();
    found.submodules.extend(submodules.filter(is_out).map(str::to_owned));
    Ok(found)
}

/// Returns what is in the place of a file, or the file where one of its directories would have to be.
fn what_is_at<'n>(dir: &Path, name: &'n str) -> Option<&'n str> {
    let ends = name.match_indices('/').map(|(end, _)| end).chain([name.len()]);
    let mut parts = ends.map(|end| &name[..end]);
    parts
        .find(|part| fs::symlink_metadata(dir.join(part)).is_ok_and(|found| *part == name || !found.is_dir()))
}

/// Has git look at the files again: one that was only touched, or whose mode is another, is not changed by that.
fn refresh(git: &Git) -> Result<()> {
    // It says by its end that some are changed, which is for others to judge.
    git.run(["update-index", "-q", "--refresh"]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkout_may_be_anywhere() {
        let (from, to) = ("0".repeat(40), "1".repeat(40));
        let read = Pending::parse(&format!("{from}\n{to}\n/a place\nof its own")).expect("it is whole");
        assert_eq!((read.from.as_str(), read.to.as_str()), (&*from, &*to));
        assert_eq!(read.checkout, Path::new("/a place\nof its own"));
        assert_eq!(Pending::parse(&from), None);
    }
}
