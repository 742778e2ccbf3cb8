//! Cleaning up: what has ended and is safe elsewhere goes, everything else is shown with its size.

use std::{collections::BTreeSet, fs, path::Path};

use serde::Serialize;

use crate::{Move, Moved, Oid, Phase, Repo, Result, Seen, Slug, Standing, State, Work, slug::BRANCH_REFS};

/// How deep directories are walked.
const DEPTH_MAX: usize = 64;

/// What was cleaned up, or would be.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Gc {
    /// Ended claims that left the list of claims.
    pub archived: usize,
    pub workspaces: Vec<GcItem>,
    /// Branches of ended sessions that went away, here and at the remote.
    pub refs: usize,
    /// Which of them the remote does not let go of, and what it says.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<String>,
}

/// A workspace.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GcItem {
    pub path: String,
    pub bytes: u64,
    /// It is gone; in a dry run, it would be.
    pub removed: bool,
    /// Why it stays, or why it goes.
    pub reason: String,
}

impl Work {
    /// Removes what is done with: never anything that is not merged, not tracked or stashed.
    pub fn gc(&self, dry_run: bool) -> Result<Gc> {
        let seen = if dry_run { self.see_or_recall()? } else { self.roll_forward()? };
        let mut gc = Gc::default();
        for slug in self.workspaces_here()? {
            let path = self.workspace_path(&slug);
            let (path_shown, bytes) = (path.display().to_string(), size_of(&path, 0));
            let (removed, reason) = match self.why_needed(&slug, &seen)? {
                Some(reason) => (false, reason),
                None if dry_run => (true, "its session has ended".to_owned()),
                None => {
                    let mut notices = Vec::new();
                    self.clean_up(&slug, phase_of(&seen, &slug), &self.landed(&slug, &seen)?, &mut notices)?;
                    match path.exists() {
                        true => (false, notices.join("; ")),
                        false => (true, "its session has ended".to_owned()),
                    }
                }
            };
            gc.workspaces.push(GcItem { path: path_shown, bytes, removed, reason });
        }
        gc.refs = self.clean_branches(&seen, dry_run, &mut gc.kept)?;
        // Last, because the claims say what landed.
        gc.archived = if dry_run { self.to_be_archived(&seen).len() } else { self.archive()? };
        Ok(gc)
    }

    /// Returns the sessions that have a workspace in this clone, in its usual place or elsewhere.
    pub(crate) fn workspaces_here(&self) -> Result<Vec<Slug>> {
        let worktrees = self.worktrees()?;
        let branches = worktrees.iter().filter_map(|worktree| worktree.branch.as_deref());
        let mut slugs: Vec<Slug> = branches.filter_map(Slug::of_branch_ref).collect();
        if let Ok(entries) = fs::read_dir(self.workspace_root()) {
            let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
            let suffix = self.workspace_suffix();
            slugs.extend(names.filter_map(|name| name.trim_end_matches(&suffix).parse::<Slug>().ok()));
        }
        slugs.sort();
        slugs.dedup();
        slugs.retain(|slug| self.workspace(slug).is_some());
        Ok(slugs)
    }

    /// Says why a workspace has to stay, if it has to.
    pub(crate) fn why_needed(&self, slug: &Slug, seen: &Seen) -> Result<Option<String>> {
        match seen.standing(slug) {
            Standing::Held(claim) | Standing::Pending { claim, .. } | Standing::Lost(claim)
                if !claim.phase.has_ended() =>
            {
                let whose = if claim.owner.clone == self.owner.clone {
                    "its session is held here"
                } else {
                    "its session went to somebody else, and what was done here did not land"
                };
                return Ok(Some(whose.to_owned()));
            }
            Standing::Unknown | Standing::Orphaned => {
                return Ok(Some("nothing says how its session ended".to_owned()));
            }
            Standing::Rests(State::Completed) | Standing::Merged(_) if !self.has_landed(slug, seen)? => {
                return Ok(Some("its branch has commits that did not land".to_owned()));
            }
            Standing::Held(_)
            | Standing::Pending { .. }
            | Standing::Lost(_)
            | Standing::Rests(_)
            | Standing::Merged(_) => {}
        }
        let path = self.workspace_path(slug);
        if !self.is_made_for(slug, &path) {
            return Ok(Some("it was there before the session".to_owned()));
        }
        match self.only_here(slug, &path)? {
            None => self.told_to_keep(&path),
            needed => Ok(needed),
        }
    }

    /// Whether everything on a completed session's branch in this clone was there when it landed.
    pub(crate) fn has_landed(&self, slug: &Slug, seen: &Seen) -> Result<bool> {
        let Some(tip) = self.tip(slug)? else { return Ok(true) };
        self.is_landed(slug, &tip, seen)
    }

    /// Whether everything up to a commit of a session's branch is on the base.
    pub(crate) fn is_landed(&self, slug: &Slug, tip: &Oid, seen: &Seen) -> Result<bool> {
        self.repo.is_before_any(tip, &self.landed(slug, seen)?)
    }

    /// Returns the last commits of a session whose work is on the base.
    fn landed(&self, slug: &Slug, seen: &Seen) -> Result<Vec<Oid>> {
        let landed = self.chain(slug, seen)?.into_iter().find_map(|claim| claim.landed);
        // What others committed to a pull request before they merged it is on the base alone.
        let base = std::iter::once(seen.view.base.clone());
        Ok(base.chain(landed.into_iter().flat_map(|landed| [landed.tip, landed.commit])).collect())
    }

    /// Returns the sessions that are completed, and whose branches are still there, here or at the remote.
    pub(crate) fn leftover_branches(&self, seen: &Seen) -> Result<Vec<Slug>> {
        let told = self.repo.git.text(["for-each-ref", "--format=%(refname)", BRANCH_REFS])?;
        let mut slugs: Vec<Slug> = told.lines().filter_map(Slug::of_branch_ref).collect();
        slugs.extend(seen.view.branches.keys().cloned());
        slugs.sort();
        slugs.dedup();
        slugs.retain(|slug| seen.standing(slug) == Standing::Rests(State::Completed));
        Ok(slugs)
    }

    /// Removes branches whose commits landed; returns how many.
    fn clean_branches(&self, seen: &Seen, dry_run: bool, kept: &mut Vec<String>) -> Result<usize> {
        let mut count = 0;
        for slug in self.leftover_branches(seen)? {
            let name = slug.branch_ref();
            if self.workspace(&slug).is_some() {
                continue;
            }
            if let Some(tip) = self.repo.commit(&name)?
                && self.is_landed(&slug, &tip, seen)?
            {
                count += 1;
                if !dry_run {
                    self.keep_for_rescue(&slug, &tip)?;
                    self.repo.remove_branch(&slug, &tip)?;
                }
            }
            let shared = seen.view.branches.get(&slug).filter(|_| self.repo.remote.is_some());
            if let Some(shared) = shared
                && self.is_landed(&slug, shared, seen)?
            {
                let step = Move { name: name.clone(), from: Some(shared.clone()), to: None };
                let moved = if dry_run { Moved::Done } else { self.repo.advance(&[step])? };
                match moved {
                    Moved::Done => count += 1,
                    // The next look finds where it is by now.
                    Moved::Overtaken { .. } => {}
                    Moved::Rejected(words) => {
                        let (branch, remote) =
                            (slug.branch(), self.repo.remote.as_deref().unwrap_or_default());
                        kept.push(format!(
                            "the branch {branch} stays, because {remote} does not let go of it: {words}; whoever keeps {remote} can allow that, or run `git push {remote} --delete {branch}`"
                        ));
                    }
                }
            }
        }
        Ok(count)
    }
}

impl Repo {
    /// Removes a session's branch that is where it was seen, with what git is set to for it, as `git branch -D` does.
    pub(crate) fn remove_branch(&self, slug: &Slug, tip: &Oid) -> Result<()> {
        self.git.text(["update-ref", "-d", &slug.branch_ref(), tip.as_str()])?;
        self.unset_branch(slug).map(drop)
    }

    /// Forgets what git is set to for a session's branch; returns whether that was anything.
    fn unset_branch(&self, slug: &Slug) -> Result<bool> {
        let section = format!("branch.{}", slug.branch());
        Ok(self.git.run(["config", "--local", "--remove-section", &section])?.is_ok())
    }

    /// Forgets what git is set to for sessions' branches that are gone; returns their names.
    pub(crate) fn unset_gone_branches(&self) -> Result<Vec<String>> {
        let asked = ["config", "--local", "--null", "--name-only", "--get-regexp", r"^branch\.session/"];
        let told = self.git.run(asked)?.text();
        let sections = told.split_terminator('\0').filter_map(|name| name.rsplit_once('.'));
        let names = sections.filter_map(|(section, _)| section.strip_prefix("branch.session/"));
        let slugs: BTreeSet<Slug> = names.filter_map(|name| name.parse().ok()).collect();
        let mut gone = Vec::new();
        for slug in slugs {
            if self.commit(&slug.branch_ref())?.is_none() && self.unset_branch(&slug)? {
                gone.push(slug.branch());
            }
        }
        Ok(gone)
    }
}

fn phase_of(seen: &Seen, slug: &Slug) -> Phase {
    match seen.standing(slug) {
        Standing::Rests(State::Completed) | Standing::Merged(_) => Phase::Completed,
        Standing::Unknown
        | Standing::Rests(State::Drafting | State::Planned | State::Active | State::Abandoned)
        | Standing::Held(_)
        | Standing::Pending { .. }
        | Standing::Orphaned
        | Standing::Lost(_) => Phase::Released,
    }
}

/// Returns how many bytes a directory takes; links are not followed.
fn size_of(path: &Path, depth: usize) -> u64 {
    let Ok(found) = fs::symlink_metadata(path) else { return 0 };
    if !found.is_dir() || depth == DEPTH_MAX {
        return found.len();
    }
    let Ok(entries) = fs::read_dir(path) else { return 0 };
    entries.flatten().map(|entry| size_of(&entry.path(), depth + 1)).sum()
}
