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
    checkout::{NAMED_MAX, status_command, tidy_sessions},
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
        let in_the_way = in_the_way(&git, from, to)?;
        if !in_the_way.is_empty() {
            return Err(Error::would_lose(format!(
                "{} has files that git does not track, and that this would have to overwrite: {}",
                checkout.display(),
                first_of(&in_the_way, NAMED_MAX)
            ))
            .next(format!("git -C {} stash --all", crate::quoted(checkout.display()))));
        }
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

/// Returns what a checkout has in the places of files that come with another commit, and git does not track. What git
/// ignores it would overwrite without a word.
pub(crate) fn in_the_way(checkout: &Git, from: &Oid, to: &Oid) -> Result<Vec<String>> {
    let asked = [
        "diff-tree",
        "-r",
        "-z",
        "--name-only",
        "--no-renames",
        "--diff-filter=A",
        from.as_str(),
        to.as_str(),
    ];
    let told = checkout.text(asked)?;
    let there: BTreeSet<&str> =
        told.split_terminator('\0').filter_map(|name| what_is_at(checkout.dir(), name)).collect();
    if there.is_empty() {
        return Ok(Vec::new());
    }
    let told = checkout.text(["ls-files", "-z"])?;
    let tracked: BTreeSet<&str> = told.split_terminator('\0').collect();
    Ok(there.into_iter().filter(|name| !tracked.contains(name)).map(str::to_owned).collect())
}

/// Returns the file that is in a place, or where one of its directories would have to be.
fn what_is_at<'n>(dir: &Path, name: &'n str) -> Option<&'n str> {
    let ends = name.match_indices('/').map(|(end, _)| end).chain([name.len()]);
    let mut parts = ends.map(|end| &name[..end]);
    parts.find(|part| fs::symlink_metadata(dir.join(part)).is_ok_and(|found| !found.is_dir()))
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
