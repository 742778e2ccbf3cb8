//! What git was asked to do in a checkout and has not done to the end.

use std::{fs, path::Path};

use crate::{Error, Result, Slug, Work};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnderWay {
    Rebase,
    Patches,
    Merge,
    CherryPick,
    Revert,
    Bisection,
}

impl UnderWay {
    /// Returns how it is called, after "in the middle of".
    pub(crate) fn told(self) -> &'static str {
        match self {
            Self::Rebase => "a rebase",
            Self::Patches => "applying patches (git am)",
            Self::Merge => "a merge (MERGE_HEAD)",
            Self::CherryPick => "a cherry-pick",
            Self::Revert => "a revert",
            Self::Bisection => "a bisection",
        }
    }

    /// Returns the command that goes on with it in a checkout, or says how.
    pub(crate) fn next(self, checkout: &Path) -> String {
        let verb = match self {
            Self::Rebase => "rebase --continue",
            Self::Patches => "am --continue",
            // It goes on with a commit.
            Self::Merge => "status",
            Self::CherryPick => "cherry-pick --continue",
            Self::Revert => "revert --continue",
            Self::Bisection => "bisect reset",
        };
        format!("git -C {} {verb}", crate::quoted(checkout.display()))
    }
}

/// Returns the ref of the branch that git took away from a checkout and goes back to in the end, by the directory that it
/// keeps for that checkout.
pub(crate) fn branch_under_way(git_dir: &Path) -> Option<String> {
    let read = |name: &str| {
        let text = fs::read_to_string(git_dir.join(name)).ok()?;
        Some(text.trim_end().to_owned())
    };
    let rebased = ["rebase-merge/head-name", "rebase-apply/head-name"].into_iter().find_map(read);
    rebased.or_else(|| read("BISECT_START").map(|branch| format!("refs/heads/{branch}")))
}

impl Work {
    /// Returns what is under way in a checkout. What is left of it to do is only in what git keeps of that checkout.
    pub(crate) fn under_way(&self, checkout: &Path) -> Result<Option<UnderWay>> {
        let dir = self.repo.git_dir_of(checkout)?;
        // It picks commits, too, so that it is asked for first.
        if dir.join("rebase-merge").exists() {
            return Ok(Some(UnderWay::Rebase));
        }
        let patches = dir.join("rebase-apply");
        if patches.exists() {
            let is_am = patches.join("applying").exists();
            return Ok(Some(if is_am { UnderWay::Patches } else { UnderWay::Rebase }));
        }
        let git = self.repo.git.at(checkout);
        for (name, what) in [
            ("MERGE_HEAD", UnderWay::Merge),
            ("CHERRY_PICK_HEAD", UnderWay::CherryPick),
            ("REVERT_HEAD", UnderWay::Revert),
        ] {
            if git.run(["rev-parse", "--verify", "--quiet", name])?.is_ok() {
                return Ok(Some(what));
            }
        }
        // Between two commits of a series nothing else tells of it.
        if let Ok(todo) = fs::read(dir.join("sequencer/todo")) {
            let is_revert = todo.starts_with(b"revert ");
            return Ok(Some(if is_revert { UnderWay::Revert } else { UnderWay::CherryPick }));
        }
        Ok(dir.join("BISECT_LOG").exists().then_some(UnderWay::Bisection))
    }

    /// Fails when something is under way in a session's workspace, with the command that goes on with it.
    pub(crate) fn check_not_under_way(&self, slug: &Slug, workspace: &Path) -> Result<()> {
        let Some(what) = self.under_way(workspace)? else { return Ok(()) };
        Err(Error::would_lose(format!("the workspace of {slug} is in the middle of {}", what.told()))
            .next(what.next(workspace)))
    }
}
