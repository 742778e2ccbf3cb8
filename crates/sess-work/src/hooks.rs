//! Hooks of git: what a commit on a session's branch has to be like, and that the session is still its owner's.
//!
//! They look at this clone alone, never at the network. The checks at landing are the ones that count; these say it
//! earlier. Hooks that were there before run first, and come back when these are removed.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    Brief, Claim, Error, Oid, PLAN_FILE, Record, Repo, Result, Slug, State, Work, guard,
    init::InitReport,
    policy::{foreign_knowledge, learn_command},
    refs::read_all,
    state::KNOWLEDGE_DIR,
    workspace::MADE_FOR_FILE,
    writing::write_whole,
};

/// Their names, and what a script hands on besides its arguments.
const HOOKS: [(&str, &str); 3] = [
    ("commit-msg", ""),
    // A commit of some files has an index of its own.
    ("pre-commit", "set -- \"${GIT_INDEX_FILE-}\"\n"),
    // Where the pushed refs go.
    ("pre-push", "set -- \"$@\" $(printf '%s\\n' \"$given\" | cut -d ' ' -f 3)\n"),
];
/// How a hook is called that was there before.
const BEFORE: &str = "before-intersession";
/// How our own are told from others.
const MARK: &str = "# Installed by `sess work init`; `sess work uninstall` takes it away.";
/// Where git looks for hooks, and how that was named before `init` made it one for all checkouts.
const HOOKS_PATH: &str = "core.hooksPath";
const HOOKS_SETTING: &str = "intersession.hooksPath";
/// The fence that a workspace was made with, and of which session, in the directory that git keeps for it.
const FENCE_FILE: &str = "intersession-fence";
/// In the clone's own directory, when somebody was told that there are no hooks, or wants none.
pub(crate) const HOOKS_TOLD_FILE: &str = "hooks-told";

fn script(name: &str, more: &str) -> String {
    let (given, input) = match name {
        "pre-push" => ("given=$(cat)\n", "printf '%s\\n' \"$given\" | "),
        _ => ("", ""),
    };
    format!(
        "#!/bin/sh\n{MARK}\n{given}before=$(dirname \"$0\")/{name}.{BEFORE}\n\
         if [ -x \"$before\" ]; then {input}\"$before\" \"$@\" || exit $?; fi\n\
         if ! command -v sess >/dev/null 2>&1; then\n\
         \techo \"warning: sess is not on PATH: the {name} check of work sessions was left out\" >&2\n\
         \texit 0\nfi\n{more}exec sess work hook {name} \"$@\"\n"
    )
}

impl Work {
    /// Runs a hook of git; an error refuses what git is about to do.
    pub fn hook(&self, name: &str, args: &[String]) -> Result<()> {
        match name {
            "commit-msg" => self.check_message(args),
            "pre-commit" => self.check_commit(args.first().map(String::as_str).unwrap_or_default()),
            "pre-push" => self.check_push(args.get(2..).unwrap_or_default()),
            _ => Err(Error::usage(format!(
                "{name:?} is no hook of work sessions: expected commit-msg, pre-commit or pre-push"
            ))
            .next("sess work init")),
        }
    }

    fn check_message(&self, args: &[String]) -> Result<()> {
        let Some(slug) = self.repo.slug_here()? else { return Ok(()) };
        let file = args
            .first()
            .ok_or_else(|| Error::usage("the file of the message is missing").next("sess work init"))?;
        let path = self.repo.here.dir().join(file);
        let bytes = fs::read(&path).map_err(|error| {
            Error::failed(format!("cannot read {}: {error}", path.display())).next("git status")
        })?;
        let text = String::from_utf8_lossy(&bytes);
        let has_ref_here = |name: &str| self.repo.has_ref_here(name);
        if is_message(&text, &slug) || has_ref_here("MERGE_HEAD")? || has_ref_here("REVERT_HEAD")? {
            return Ok(());
        }
        Err(Error::policy(format!("commits on {} begin with `[{slug}] `", slug.branch()))
            .next(format!("git commit -m \"[{slug}] <type>: <description>\"")))
    }

    /// `index` is the one that is about to be committed; empty for the usual one.
    fn check_commit(&self, index: &str) -> Result<()> {
        let Some(slug) = self.repo.slug_here()? else { return Ok(()) };
        self.check_fence(&slug)?;
        let here = &self.repo.here;
        let git = if index.is_empty() { here.clone() } else { here.with_index(&here.dir().join(index)) };
        if !here.run(["rev-parse", "--verify", "--quiet", "HEAD^{commit}"])?.is_ok() {
            return Ok(());
        }
        let mut changed = staged_since(&git, "HEAD")?;
        // A merge changes what is unlike everything that it merges.
        if self.repo.has_ref_here("MERGE_HEAD")? {
            let merged = staged_since(&git, "MERGE_HEAD")?;
            changed.retain(|path| merged.contains(path));
        }
        let plan = format!("{}/{PLAN_FILE}", State::Active.dir_of(&slug));
        if changed.contains(&plan) && !self.is_known_plan(&git, &slug, &plan)? {
            return Err(Error::policy(format!(
                "SESSION.md of {slug} is the plan that the work is compared with: it stays as it is, unless `sess work amend {slug} --reason …` says why not"
            ))
            .next(format!("git restore --staged --worktree {plan}")));
        }
        let mut knowledge: Vec<String> =
            changed.into_iter().filter(|path| path.starts_with(&format!("{KNOWLEDGE_DIR}/"))).collect();
        // What is put back to how the base has it was changed before, and has to be.
        if !knowledge.is_empty()
            && let Some(base) = self.repo.seen_base()?
        {
            let begun = here.run(["merge-base", base.as_str(), "HEAD"])?.text();
            if let Some(begun) = begun.lines().next() {
                let changed = staged_since(&git, begun)?;
                knowledge.retain(|path| changed.contains(path));
            }
        }
        match foreign_knowledge(&slug, knowledge) {
            Some(told) if !self.may_change_knowledge(&slug, &plan)? => {
                Err(Error::policy(told).next(learn_command(&slug)))
            }
            _ => Ok(()),
        }
    }

    /// Whether the plan in the index is the one that the claim was amended to.
    fn is_known_plan(&self, git: &crate::Git, slug: &Slug, path: &str) -> Result<bool> {
        let staged = git.text(["ls-files", "--stage", "-z", "--", path])?;
        let staged = staged.split(' ').nth(1).and_then(|oid| oid.parse::<Oid>().ok());
        Ok(staged.is_some() && staged == self.repo.seen_record(slug)?.map(|record| record.claim.plan))
    }

    /// Whether the plan that was claimed, as far as this clone knows, lets a session change the knowledge base.
    fn may_change_knowledge(&self, slug: &Slug, plan: &str) -> Result<bool> {
        let text = match self.repo.seen_record(slug)? {
            Some(record) => self.repo.text_of(&record.claim.plan).ok(),
            None => None,
        };
        let text = match text {
            Some(text) => Some(text),
            None => read_all(&self.repo.here, &[format!("HEAD:{plan}")])?
                .pop()
                .flatten()
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        };
        let brief = text.and_then(|text| Brief::parse(&text).ok());
        Ok(brief.is_some_and(|brief| brief.may_change_knowledge(slug)))
    }

    fn check_push(&self, refs: &[String]) -> Result<()> {
        for name in refs {
            if let Some(slug) = Slug::of_branch_ref(name) {
                self.check_fence(&slug)?;
            } else if *name == self.repo.base_ref()
                && let Some(slug) = self.repo.slug_here()?
            {
                self.check_fence(&slug)?;
            }
        }
        Ok(())
    }

    /// Fails when the session went to somebody else since its workspace was made here.
    fn check_fence(&self, slug: &Slug) -> Result<()> {
        let (Some(fence), Some(record)) = (self.fence_of(slug)?, self.repo.seen_record(slug)?) else {
            return Ok(());
        };
        match outrun(fence, &self.owner.clone, &record.claim) {
            false => Ok(()),
            true => Err(crate::Refusal::Dispossessed(slug.clone(), record.claim.told(self.now())).into()),
        }
    }

    /// Says once that this clone lacks the hooks of a repository that was set up elsewhere.
    pub(crate) fn missing_hooks(&self, base: &Oid) -> Result<Option<String>> {
        let mark = self.repo.own_dir()?.join(HOOKS_TOLD_FILE);
        let readme = format!("{}/SESSIONS-README.md", crate::state::SESSIONS_DIR);
        if mark.exists() || self.repo.has_hooks()? || self.repo.text_at(base, &readme)?.is_none() {
            return Ok(None);
        }
        if let Err(error) = fs::write(&mark, "") {
            tracing::debug!(%error, "it is told again");
        }
        let told = "this clone has no hooks of work sessions that check commits as you make them";
        Ok(Some(match self.repo.hooks_dir()? {
            Ok(_) => format!("{told}: `sess work init` installs them"),
            Err(reason) => format!("{told}, unless yours do: {reason}"),
        }))
    }

    /// Returns the fence that a session's workspace was made with.
    pub(crate) fn fence_of(&self, slug: &Slug) -> Result<Option<u64>> {
        let is_in_main = self.repo.top == self.repo.git.dir();
        let place = if !is_in_main && self.repo.slug_here()?.as_ref() == Some(slug) {
            Some(self.repo.top.clone())
        } else {
            self.workspace(slug)
        };
        let Some(place) = place else { return Ok(None) };
        let text = fs::read_to_string(self.repo.git_dir_of(&place)?.join(FENCE_FILE)).unwrap_or_default();
        Ok(match text.trim().split_once(' ') {
            Some((fence, whose)) if whose == slug.as_str() => fence.parse().ok(),
            Some(_) => None,
            // Older versions did not say whose it is.
            None if self.is_made_for(slug, &place) => text.trim().parse().ok(),
            None => None,
        })
    }

    /// Writes down which fence a session has now, with the workspace that it has, if any. What other checkouts of this
    /// clone say of it is of a time before.
    pub(crate) fn keep_fence(&self, workspace: Option<&Path>, Record { claim, .. }: &Record) -> Result<()> {
        for path in self.repo.git_dirs().into_iter().map(|dir| dir.join(FENCE_FILE)) {
            let text = fs::read_to_string(&path).unwrap_or_default();
            if text.trim().split_once(' ').is_some_and(|(_, whose)| whose == claim.slug.as_str()) {
                remove(&path)?;
            }
        }
        let Some(workspace) = workspace else { return Ok(()) };
        let path = self.repo.git_dir_of(workspace)?.join(FENCE_FILE);
        fs::write(&path, format!("{} {}\n", claim.fence, claim.slug)).map_err(|error| {
            Error::failed(format!("cannot write {}: {error}", path.display())).next("sess work doctor")
        })
    }
}

/// Removes a mark.
fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::failed(format!("cannot remove {}: {error}", path.display())))
        }
        _ => Ok(()),
    }
}

/// Lists what an index has of ours that a commit does not have so.
fn staged_since(git: &crate::Git, commit: &str) -> Result<Vec<String>> {
    let asked = ["diff-index", "--cached", "--name-only", "--no-renames", "--no-ext-diff", "-z"];
    let told = git.text(asked.into_iter().chain(["--end-of-options", commit, "--", "_AGENTS"]))?;
    Ok(told.split_terminator('\0').map(str::to_owned).collect())
}

/// Whether a claim tells that a workspace with this fence is not its owner's any more.
fn outrun(fence: u64, clone: &str, claim: &Claim) -> bool {
    claim.fence > fence || claim.owner.clone != clone
}

/// Whether a message is one of a session's: with its name in front, or one that git writes itself.
fn is_message(text: &str, slug: &Slug) -> bool {
    let mut lines = text.lines().map(str::trim_end);
    let Some(mut line) = lines.find(|line| !line.is_empty() && !line.starts_with('#')) else { return true };
    // Git asks for these itself, and takes them away when it puts commits together.
    while let Some(rest) = ["fixup! ", "squash! ", "amend! "].iter().find_map(|lead| line.strip_prefix(lead))
    {
        line = rest;
    }
    let prefix = format!("[{slug}] ");
    let is_prefixed = line.strip_prefix(&prefix).is_some_and(|rest| !rest.trim().is_empty());
    is_prefixed || ["Merge ", "Revert \"", "Reapply \""].iter().any(|lead| line.starts_with(lead))
}

impl Repo {
    fn has_ref_here(&self, name: &str) -> Result<bool> {
        Ok(self.here.run(["rev-parse", "--verify", "--quiet", name])?.is_ok())
    }

    /// Returns the directory that git keeps for a checkout.
    pub(crate) fn git_dir_of(&self, checkout: &Path) -> Result<PathBuf> {
        let told = self.git.at(checkout).text(["rev-parse", "--absolute-git-dir"])?;
        Ok(PathBuf::from(told.trim_end_matches('\n')))
    }

    /// Returns where git looks for hooks, or why they are not ours to change and what to do instead.
    fn hooks_dir(&self) -> Result<std::result::Result<PathBuf, String>> {
        let names = HOOKS.map(|(name, _)| name).join(", ");
        let told =
            |reason: String| format!("{reason}; call `sess work hook <name> \"$@\"` in yours ({names})");
        let settings = guard::settings(&self.git)?;
        let Some(setting) = settings.iter().rev().find(|known| known.name == "core.hookspath") else {
            return Ok(Ok(self.common.join("hooks")));
        };
        if setting.is_users {
            return Ok(Err(told(format!(
                "core.hooksPath is {} in your own configuration, for all repositories",
                setting.value
            ))));
        }
        let dir = self.git.dir().join(expanded(&setting.value));
        let tracked = self.git.run(["ls-files", "-z", "--", &dir.to_string_lossy()])?;
        if tracked.is_ok() && !tracked.stdout.is_empty() {
            return Ok(Err(told(format!("core.hooksPath is {}, which git tracks", setting.value))));
        }
        Ok(Ok(dir))
    }

    /// Makes a directory of hooks that is named from the top of a checkout one that workspaces have, too: git looks
    /// for it at the top of each of them.
    fn fix_hooks_dir(&self, dir: &Path, report: &mut InitReport) -> Result<()> {
        let known = self.git.run(["config", "--local", "--get", HOOKS_PATH])?;
        let value = known.text().trim_end_matches('\n').to_owned();
        if !known.is_ok() || value.is_empty() || expanded(&value).is_absolute() {
            return Ok(());
        }
        let dir = dir.to_string_lossy();
        self.git.text(["config", "--local", "--replace-all", HOOKS_SETTING, &value])?;
        self.git.text(["config", "--local", "--replace-all", HOOKS_PATH, &dir])?;
        report
            .changed
            .push(format!("git config {HOOKS_PATH} {dir} (it was {value}, which workspaces do not have)"));
        Ok(())
    }

    /// Puts the directory of hooks back to how it was named.
    fn unfix_hooks_dir(&self, done: &mut Vec<String>) -> Result<()> {
        let before = self.git.run(["config", "--local", "--get", HOOKS_SETTING])?;
        if !before.is_ok() {
            return Ok(());
        }
        let value = before.text().trim_end_matches('\n').to_owned();
        let now = self.git.run(["config", "--local", "--get", HOOKS_PATH])?.text();
        // Somebody may have chosen another one since.
        if Path::new(now.trim_end_matches('\n')) == self.git.dir().join(&value) {
            self.git.text(["config", "--local", "--replace-all", HOOKS_PATH, &value])?;
            done.push(format!("git config {HOOKS_PATH} is {value} again"));
        }
        self.git.text(["config", "--local", "--unset-all", HOOKS_SETTING])?;
        Ok(())
    }

    /// Whether this clone has our hooks.
    pub(crate) fn has_hooks(&self) -> Result<bool> {
        let Ok(dir) = self.hooks_dir()? else { return Ok(false) };
        Ok(HOOKS.iter().any(|(name, _)| is_ours(&dir.join(name))))
    }

    pub(crate) fn install_hooks(&self, report: &mut InitReport) -> Result<()> {
        let dir = match self.hooks_dir()? {
            Ok(dir) => dir,
            Err(reason) => {
                report.notices.push(format!("no hooks were installed: {reason}"));
                return Ok(());
            }
        };
        let failed = |error: std::io::Error| {
            Error::failed(format!("cannot write hooks into {}: {error}", dir.display()))
                .next("sess work init --no-hooks")
        };
        fs::create_dir_all(&dir).map_err(failed)?;
        self.fix_hooks_dir(&dir, report)?;
        for (name, more) in HOOKS {
            let (path, before, text) =
                (dir.join(name), dir.join(format!("{name}.{BEFORE}")), script(name, more));
            let exists = fs::symlink_metadata(&path).is_ok();
            if exists && fs::read_to_string(&path).is_ok_and(|known| known == text) {
                continue;
            }
            if exists && !is_ours(&path) {
                if fs::symlink_metadata(&before).is_ok() {
                    report.notices.push(format!(
                        "the hook {name} was not installed: {} and {} are both there",
                        path.display(),
                        before.display()
                    ));
                    continue;
                }
                fs::rename(&path, &before).map_err(failed)?;
            }
            // Whole or not at all: git may be about to run it.
            write_whole(&path, text.as_bytes(), 0o755).map_err(failed)?;
            report.changed.push(format!("the hook {name}"));
        }
        Ok(())
    }

    /// Takes our hooks away, and puts those back that were there before.
    pub(crate) fn remove_hooks(&self, done: &mut Vec<String>) -> Result<()> {
        let Ok(dir) = self.hooks_dir()? else { return Ok(()) };
        for (name, _) in HOOKS {
            let (path, before) = (dir.join(name), dir.join(format!("{name}.{BEFORE}")));
            if !is_ours(&path) {
                continue;
            }
            let ended = if fs::symlink_metadata(&before).is_ok() {
                fs::rename(&before, &path).map(|()| "the hook {} is what it was before")
            } else {
                fs::remove_file(&path).map(|()| "the hook {} is removed")
            };
            let words = ended.map_err(|error| {
                Error::failed(format!("cannot restore {}: {error}", path.display()))
                    .next("sess work uninstall")
            })?;
            done.push(words.replace("{}", name));
        }
        self.unfix_hooks_dir(done)
    }

    /// Returns the directories that git keeps for the checkouts of this clone.
    fn git_dirs(&self) -> Vec<PathBuf> {
        let linked = fs::read_dir(self.common.join("worktrees")).into_iter().flatten().flatten();
        std::iter::once(self.common.clone()).chain(linked.map(|entry| entry.path())).collect()
    }

    /// Removes what was written down about workspaces, also about these that are clones of their own.
    pub(crate) fn forget_marks(&self, clones: &[PathBuf]) -> Result<()> {
        let dirs = self.git_dirs().into_iter().chain(clones.iter().map(|clone| clone.join(".git")));
        for path in dirs.flat_map(|dir| [FENCE_FILE, MADE_FOR_FILE].map(|name| dir.join(name))) {
            remove(&path)?;
        }
        Ok(())
    }
}

/// Returns a path of git's configuration as git takes it.
fn expanded(value: &str) -> PathBuf {
    match (value.strip_prefix("~/"), std::env::home_dir()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(value),
    }
}

fn is_ours(path: &Path) -> bool {
    fs::read(path).is_ok_and(|text| String::from_utf8_lossy(&text).contains(MARK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_its_session_unless_git_wrote_it() {
        let slug: Slug = "2025-10-14-x".parse().expect("a slug");
        for good in [
            "[2025-10-14-x] feat: a\n",
            "# a comment\n\n[2025-10-14-x] feat: a\n",
            "Merge branch 'main'\n",
            "Revert \"[2025-10-14-x] feat: a\"\n",
            "fixup! [2025-10-14-x] feat: a\n",
            "",
            "[2025-10-14-x] feat: a\r\n",
        ] {
            assert!(is_message(good, &slug), "{good:?}");
        }
        for bad in [
            "feat: a\n",
            "[2025-10-14-y] feat: a\n",
            "[2025-10-14-x]\n",
            "[2025-10-14-x] \n",
            "fixup! a\n",
            "x [2025-10-14-x] a",
        ] {
            assert!(!is_message(bad, &slug), "{bad:?}");
        }
    }
}
