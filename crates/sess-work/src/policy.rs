//! What a session's work must not change, told before it lands: its plan, and the knowledge base of all.

use std::path::Path;

use sess_core::mention::first_of;

use crate::{
    Brief, Claim, Error, Oid, PLAN_FILE, Result, Seen, Slug, State, Work,
    brief::plain_ended,
    claim::folded,
    projecting::LOCK_FILE,
    state::{KNOWLEDGE_DIR, SESSIONS_DIR, learnings_dir},
};

/// How many files a sentence names.
const PATHS_SHOWN_MAX: usize = 20;

/// A plan on the base that is not the one that is worked by.
pub(crate) struct BasePlan {
    /// Who changed it, and where.
    pub(crate) told: String,
    pub(crate) commit: String,
    /// Makes it the plan that is worked by.
    pub(crate) next: String,
}

impl Work {
    /// Returns what `complete` refuses, all of it: of the commits up to `tip`, and with a workspace of what is not
    /// committed there either.
    pub(crate) fn refused(
        &self,
        slug: &Slug,
        claim: &Claim,
        tip: &Oid,
        seen: &Seen,
        workspace: Option<&Path>,
    ) -> Result<Vec<String>> {
        let mut refused = Vec::new();
        let path = format!("{}/{PLAN_FILE}", State::Active.dir_of(slug));
        // What lands is on the branch, byte for byte; what is not committed yet can end its lines as a checkout does.
        let shared = self.repo.files_of(tip.as_str(), &path)?.remove(&path);
        let on_branch = shared.map(|file| file.oid == claim.plan);
        let here = match workspace.map(|dir| dir.join(&path)) {
            Some(file) if file.is_file() => Some(self.is_plan(&file, &claim.plan)?),
            Some(_) => None,
            None => on_branch,
        };
        if (on_branch, here) != (Some(true), Some(true)) {
            let is_gone = on_branch.is_none() || here.is_none();
            let what = if is_gone { "is gone" } else { "was changed" };
            refused
                .push(format!("SESSION.md of {slug} {what}: it is the plan that the work is compared with"));
        }
        if !Brief::parse(&self.repo.text_of(&claim.plan)?)?.may_change_knowledge(slug) {
            let begun = self.begun_at(seen, tip)?;
            let mut paths = begun.map_or(Ok(Vec::new()), |begun| self.knowledge_between(&begun, tip))?;
            if let Some(dir) = workspace {
                let asked = ["status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--"];
                let told = self.repo.git.at(dir).text(asked.into_iter().chain([KNOWLEDGE_DIR]))?;
                paths.extend(told.split('\0').filter_map(|line| line.get(3..)).map(str::to_owned));
            }
            refused.extend(foreign_knowledge(slug, paths));
        }
        Ok(refused)
    }

    /// Returns the files of other sessions, or of all, that a session's branch changed: the directory of sessions is
    /// the base's, so that they do not land.
    pub(crate) fn left_behind(&self, slug: &Slug, seen: &Seen, tip: &Oid) -> Result<Vec<String>> {
        let Some(begun) = self.begun_at(seen, tip)? else { return Ok(Vec::new()) };
        let mut left = self.between(&begun, tip, SESSIONS_DIR)?;
        let generated = format!("{SESSIONS_DIR}/{LOCK_FILE}");
        let own = State::ALL.map(|state| format!("{}/", state.dir_of(slug)));
        left.retain(|path| *path != generated && !own.iter().any(|dir| path.starts_with(dir)));
        if !left.is_empty() {
            let files = self.repo.files_of(tip.as_str(), SESSIONS_DIR)?;
            left.retain(|path| files.get(path) != seen.tree.files.get(path));
        }
        Ok(left)
    }

    /// Returns the last commit that a branch and the base share.
    fn begun_at(&self, seen: &Seen, tip: &Oid) -> Result<Option<Oid>> {
        self.repo.merge_base(&seen.view.base, tip)
    }

    /// Returns the command that puts the knowledge base back to how the session found it.
    pub(crate) fn restore_command(&self, slug: &Slug, seen: &Seen, tip: &Oid) -> Result<String> {
        let (Some(path), Some(begun)) = (self.workspace(slug), self.begun_at(seen, tip)?) else {
            return Ok(learn_command(slug));
        };
        let own = format!("{}/", learnings_dir(slug));
        let paths = self.knowledge_between(&begun, tip)?;
        let paths: Vec<String> =
            paths.iter().filter(|path| !path.starts_with(&own)).map(crate::quoted).collect();
        let place = crate::quoted(path.display());
        Ok(format!(
            "git -C {place} restore --source={} --staged --worktree -- {} && git -C {place} commit -m \"[{slug}] fix: leave the knowledge base as it was\"",
            begun.short(),
            paths.join(" ")
        ))
    }

    /// Returns the files of the knowledge base that differ between two commits or trees.
    fn knowledge_between(&self, from: &Oid, to: &Oid) -> Result<Vec<String>> {
        self.between(from, to, KNOWLEDGE_DIR)
    }

    /// Returns the files below a directory that differ between two commits or trees.
    pub(crate) fn between(&self, from: &Oid, to: &Oid, dir: &str) -> Result<Vec<String>> {
        let asked = ["diff-tree", "-r", "-z", "--name-only", "--no-renames", "--no-ext-diff"];
        let told = self.repo.git.text(asked.into_iter().chain([from.as_str(), to.as_str(), "--", dir]))?;
        Ok(told.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
    }

    /// Fails when a session changes the knowledge base that is not there for that.
    pub(crate) fn check_knowledge(&self, slug: &Slug, brief: &Brief, base: &Oid, tree: &Oid) -> Result<()> {
        if brief.may_change_knowledge(slug) {
            return Ok(());
        }
        match foreign_knowledge(slug, self.knowledge_between(base, tree)?) {
            None => Ok(()),
            Some(told) => Err(Error::policy(told).next(learn_command(slug))),
        }
    }

    /// Whether a file of a workspace is a plan. A checkout may have its lines end as on Windows, or not, other than
    /// whoever pushed the plan.
    fn is_plan(&self, file: &Path, plan: &Oid) -> Result<bool> {
        let bytes = std::fs::read(file)
            .map_err(|error| Error::failed(format!("cannot read {}: {error}", file.display())))?;
        let text = String::from_utf8_lossy(&bytes);
        Ok(plain_ended(&text) == plain_ended(&self.repo.text_of(plan)?))
    }

    /// Returns the plan of a session that somebody changed on the base since it was claimed.
    pub(crate) fn plan_on_base(&self, slug: &Slug, claim: &Claim, seen: &Seen) -> Result<Option<BasePlan>> {
        let entry = seen.tree.entries.get(slug).filter(|entry| entry.state != State::Completed);
        let Some(entry) = entry else { return Ok(None) };
        let Some(shown) = entry.files.get(PLAN_FILE).map(|file| &file.oid) else { return Ok(None) };
        // The base has what it was claimed with, and what it was amended to is on the branch.
        let is_known = claim.amendments.iter().any(|change| [&change.from, &change.to].contains(&shown));
        if *shown == claim.plan || is_known {
            return Ok(None);
        }
        let path = format!("{}/{PLAN_FILE}", entry.state.dir_of(slug));
        let asked = ["log", "--max-count=1", "--format=%h%x09%an", seen.view.base.as_str(), "--", &path];
        let told = self.repo.git.text(asked)?;
        let (commit, author) = told.trim().split_once('\t').unwrap_or(("?", "somebody"));
        let author = folded(author);
        Ok(Some(BasePlan {
            told: format!(
                "SESSION.md of {slug} was changed on {} by {author} in {commit}, and is not the plan that is worked by",
                self.repo.base
            ),
            commit: commit.to_owned(),
            next: format!("git show {} | sess work amend {slug} --file - --reason …", shown.short()),
        }))
    }
}

/// Returns the command that writes down what was learned where it belongs.
pub(crate) fn learn_command(slug: &Slug) -> String {
    format!("sess work learn --slug {slug} \"<what was learned>\"")
}

/// Says which files of the knowledge base are not a session's own, if some are not.
pub(crate) fn foreign_knowledge(slug: &Slug, mut paths: Vec<String>) -> Option<String> {
    let own = format!("{}/", learnings_dir(slug));
    paths.retain(|path| !path.starts_with(&own));
    paths.sort();
    paths.dedup();
    let shown = first_of(&paths, PATHS_SHOWN_MAX);
    (!paths.is_empty()).then(|| {
        format!(
            "{slug} changes the knowledge base, which only a kb-merge session may: {shown}; write into {own} instead"
        )
    })
}
