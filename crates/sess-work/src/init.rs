//! Setting a repository up for work sessions, and leaving it as it was.

use std::fs;

use serde::Serialize;
use sess_core::mention::first_of;

use crate::{
    Claim, Error, Kind, Move, Moved, Oid, Repo, Result, Seen, Slug, State, Work,
    checkout::NAMED_MAX,
    projecting::{LOCK_FILE, Step},
    repo::{BASE_SETTING, CLAIMS, CLAIMS_AS_BRANCHES, CLAIMS_SETTING, REMOTE_SETTING, random_hex},
    slug::BRANCH_REFS,
    state::{KNOWLEDGE_DIR, SESSIONS_DIR},
    templates::one_line,
    tree::{Edit, File},
};

const SCRIPT_MODE: &str = "100755";

#[derive(Clone, Copy, Debug)]
pub struct InitOptions {
    pub hooks: bool,
    /// Adds `_bin/claim-session` and `_bin/complete-session`.
    pub scripts: bool,
}

/// What was set up, or taken away.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InitReport {
    /// What is different now; nothing when all of it was there.
    pub changed: Vec<String>,
    /// What somebody should know.
    pub notices: Vec<String>,
}

impl Work {
    /// Sets the repository up: the tree on the base branch, the settings and hooks of this clone.
    ///
    /// Again, it changes nothing.
    pub fn init(&self, options: &InitOptions) -> Result<InitReport> {
        let mut report = InitReport::default();
        self.probe(&mut report)?;
        self.share_claims(&mut report)?;
        self.lay_tree(options, &mut report)?;
        let remote = self.repo.remote.as_deref().unwrap_or(".");
        let mut settings = vec![(BASE_SETTING, self.repo.base.as_str()), (REMOTE_SETTING, remote)];
        // The usual place needs no setting.
        if self.repo.claims() != CLAIMS {
            settings.push((CLAIMS_SETTING, self.repo.claims()));
        }
        for (name, value) in settings {
            let known = self.repo.git.run(["config", "--local", "--get", name])?;
            if known.text().trim_end_matches('\n') != value {
                self.repo.git.text(["config", "--local", "--replace-all", name, value])?;
                report.changed.push(format!("git config {name} {value}"));
            }
        }
        if self.exclude()? {
            report.changed.push("a line in .git/info/exclude".to_owned());
        }
        if options.hooks {
            self.repo.install_hooks(&mut report)?;
        } else if let Err(error) = fs::write(self.repo.own_dir()?.join(crate::hooks::HOOKS_TOLD_FILE), "") {
            tracing::debug!(%error, "it is told with the first claim");
        }
        Ok(report)
    }

    /// Finds out where claims can be: some hosts take no refs but branches.
    fn probe(&self, report: &mut InitReport) -> Result<()> {
        let Some(remote) = &self.repo.remote else {
            let told = self.repo.git.text(["remote"])?;
            report.notices.push(match told.lines().next() {
                None => "there is no remote: work sessions are of this repository alone".to_owned(),
                Some(remote) => format!(
                    "work sessions are of this repository alone, as it is set: `git config {REMOTE_SETTING} {remote}` \
                     and `sess work init` share them"
                ),
            });
            return Ok(());
        };
        let base = self.repo.look()?.base;
        if self.repo.claims() != CLAIMS || self.repo.takes(CLAIMS, &base)?.is_none() {
            return Ok(());
        }
        if let Some(words) = self.repo.takes(CLAIMS_AS_BRANCHES, &base)? {
            return Err(self.repo.denied(&words).unwrap_or_else(|| {
                let told = format!("{remote} takes no claims, not as branches either: {words}");
                Error::new(Kind::Rejected, format!("{told}; ask whoever keeps it, then set up again"))
                    .next("sess work init")
            }));
        }
        report
            .notices
            .push(format!("{remote} takes no refs but branches: claims are {CLAIMS_AS_BRANCHES}/*"));
        // The next look says so to everybody, and brings what was claimed elsewhere.
        self.repo.claim_as_branches();
        self.repo.look().map(drop)
    }

    /// Brings what was claimed before there was a remote to where everybody sees it.
    fn share_claims(&self, report: &mut InitReport) -> Result<()> {
        if self.repo.remote.is_none() {
            return Ok(());
        }
        let here = self.repo.claims_here()?;
        if here.is_empty() {
            return Ok(());
        }
        let seen = self.see()?;
        for (oid, slug) in here {
            let told = match seen.record(&slug) {
                Some(record) if !self.repo.is_ancestor(&oid, &record.oid)? => {
                    report.notices.push(format!(
                        "{slug} was claimed here before there was a remote, and is claimed there, too: {}; \
                         `git show {oid}` has what was claimed here",
                        record.claim.told(self.now())
                    ));
                    continue;
                }
                Some(_) => None,
                None => {
                    let name = self.repo.claim_ref(&slug);
                    match self.repo.advance(&[Move { name, from: None, to: Some(oid.clone()) }])? {
                        Moved::Done => Some(format!("the claim of {slug}, which others see now")),
                        // Whoever was faster is told of with the next call.
                        Moved::Overtaken { .. } => continue,
                        Moved::Rejected(words) => return Err(self.claim_rejected(&words)),
                    }
                }
            };
            self.repo.git.text(["update-ref", "-d", &format!("{CLAIMS}/{slug}"), oid.as_str()])?;
            report.changed.extend(told);
        }
        Ok(())
    }

    fn lay_tree(&self, options: &InitOptions, report: &mut InitReport) -> Result<()> {
        let mut laid = Vec::new();
        let ended = self.on_base(|seen| {
            let known = self.repo.files_of(seen.view.base.as_str(), KNOWLEDGE_DIR)?;
            laid.clear();
            let mut edits = Vec::new();
            for (path, mode, text) in files(options.scripts) {
                // Whatever somebody made of it is theirs.
                if seen.tree.files.contains_key(&path) || known.contains_key(&path) {
                    continue;
                }
                let oid = self.repo.write_blob(text.as_bytes())?;
                edits.push(Edit::Put(path.clone(), File { mode: mode.to_owned(), oid }));
                laid.push(path);
            }
            if edits.is_empty() {
                return Ok(None);
            }
            let message = format!("Set up work sessions\n\nAgent: {}\n", one_line(&self.by()));
            Ok(Some(Step { message, edits }))
        });
        match ended {
            Ok(_) => report.changed.append(&mut laid),
            Err(error) if error.kind == Kind::Rejected => report.notices.push(format!(
                "the tree was not laid: {error}; with `land: pr` in your configuration work gets there by pull \
                 requests, too"
            )),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Takes everything back that this clone was given; the notices name what stays, and what removes it.
    ///
    /// What others share stays: the tree on the base branch, claims, and the commits that rescue refs keep.
    pub fn uninstall(&self) -> Result<InitReport> {
        let seen = self.see_or_recall()?;
        self.check_holds_nothing(&seen)?;
        let (mut done, mut stays) = (Vec::new(), Vec::new());
        self.repo.remove_hooks(&mut done)?;
        for name in [BASE_SETTING, REMOTE_SETTING, CLAIMS_SETTING] {
            if self.repo.git.run(["config", "--local", "--unset-all", name])?.is_ok() {
                done.push(format!("git config {name} is unset"));
            }
        }
        // An empty section would be left of it.
        self.repo.git.run(["config", "--local", "--remove-section", "intersession"])?;
        let mut clones = Vec::new();
        // A branch cannot go before its worktree.
        for slug in self.workspaces_here()? {
            clones.extend(self.workspace(&slug).filter(|path| self.is_clone(path)));
            stays.push(self.workspace_stays(&slug)?);
        }
        for name in self.repo.unset_gone_branches()? {
            done.push(format!("git config branch.{name}.* is unset"));
        }
        let told = self.repo.git.text(["for-each-ref", "--format=%(refname:lstrip=2)", BRANCH_REFS])?;
        for name in told.lines() {
            stays.push(self.branch_stays(name, &seen)?);
        }
        let told = self.repo.git.text(["for-each-ref", "--format=%(refname)", "refs/intersession/"])?;
        let (seen_refs, kept): (Vec<&str>, Vec<&str>) =
            told.lines().partition(|name| name.starts_with("refs/intersession/seen/"));
        for name in &seen_refs {
            self.repo.git.text(["update-ref", "-d", name])?;
        }
        if !seen_refs.is_empty() {
            done.push(format!("{} refs of what the remote said are removed", seen_refs.len()));
        }
        if !kept.is_empty() {
            stays.push(format!(
                "{} refs in refs/intersession/ stay, because their commits may be nowhere else: \
                 `git for-each-ref --format='delete %(refname)' refs/intersession | git update-ref --stdin` removes them",
                kept.len()
            ));
        }
        let root = self.workspace_root();
        if fs::remove_dir(&root).is_ok() {
            done.push(format!("{} is removed", root.display()));
        }
        // `git status` would show what is still there.
        if self.settings.workspaces.is_none() && root.exists() {
            stays.push(format!(
                "the line in .git/info/exclude stays, because {} does: `sess work uninstall` removes both when it is empty",
                root.display()
            ));
        } else if self.include_again()? {
            done.push("the line in .git/info/exclude is removed".to_owned());
        }
        if !seen.tree.files.is_empty() {
            stays.push(format!(
                "_AGENTS/ stays on {}, where it is everybody's: `git rm -r _AGENTS` and a commit remove it",
                self.repo.base
            ));
        }
        self.repo.forget_marks(&clones)?;
        let own = self.repo.own_dir()?;
        fs::remove_dir_all(&own).map_err(|error| {
            Error::failed(format!("cannot remove {}: {error}", own.display())).next("sess work uninstall")
        })?;
        done.push(format!("{} is removed", own.display()));
        Ok(InitReport { changed: done, notices: stays })
    }

    /// Fails while sessions are this clone's: without what tells it from others they would be nobody's.
    fn check_holds_nothing(&self, seen: &Seen) -> Result<()> {
        let mut held: Vec<Claim> = Vec::new();
        for slug in seen.slugs() {
            let standing = seen.standing(&slug);
            held.extend(standing.holder().filter(|claim| claim.owner.clone == self.owner.clone).cloned());
        }
        let Some((claim, others)) = held.split_first() else { return Ok(()) };
        let slug = &claim.slug;
        let (place, then) = match self.workspace(slug) {
            Some(path) => {
                (format!("with a workspace in {}", path.display()), "`sess work gc` removes the workspace")
            }
            None => ("without a workspace".to_owned(), "anybody's next verb completes it"),
        };
        let (told, verb) = match claim.waits() {
            true => (
                format!(
                    "{slug} waits to be merged, {place}: releasing it would take that back, and when it is merged {then}"
                ),
                "status",
            ),
            false => (format!("{slug} is held here, {place}"), "release"),
        };
        let others: Vec<&str> = others.iter().map(|claim| claim.slug.as_str()).collect();
        let more = match others.is_empty() {
            true => String::new(),
            false => format!("; held here, too: {}", first_of(&others, NAMED_MAX)),
        };
        Err(Error::would_lose(told + &more).next(format!("sess work {verb} {slug}")))
    }

    /// Says that a workspace stays, what is lost with it, and what removes it.
    fn workspace_stays(&self, slug: &Slug) -> Result<String> {
        let place = self.workspace_path(slug);
        let (shown, path) = (place.display(), crate::quoted(place.display()));
        let lost = self.only_here(slug, &place)?.map(|what| format!(" ({what})")).unwrap_or_default();
        let command = if self.is_clone(&place) { "rm -rf" } else { "git worktree remove" };
        Ok(format!("the workspace {shown} stays{lost}: `{command} {path}` removes it"))
    }

    /// Says that a session's branch stays, what is lost with it, and what removes it.
    fn branch_stays(&self, name: &str, seen: &Seen) -> Result<String> {
        let removes = format!("`git branch -D {name}`");
        let full = format!("refs/heads/{name}");
        let (tip, slug) = (self.repo.commit(&full)?, Slug::of_branch_ref(&full));
        let has_landed = match (&slug, &tip) {
            (Some(slug), Some(tip)) => self.is_landed(slug, tip, seen)?,
            (None, Some(tip)) => self.repo.is_ancestor(tip, &seen.view.base)?,
            (_, None) => true,
        };
        let Some(tip) = tip.filter(|_| !has_landed) else {
            return Ok(format!("the branch {name} stays: {removes} removes it"));
        };
        let (from, base) = (&seen.view.base, &self.repo.base);
        let count = self.repo.git.text(["rev-list", "--count", tip.as_str(), &format!("^{from}")])?;
        let count = count.trim();
        let commits =
            if count == "1" { "a commit that is".to_owned() } else { format!("{count} commits that are") };
        Ok(format!(
            "the branch {name} stays, with {commits} not on {base}: {removes} removes it with them, \
             `git log {}..{name}` shows them first",
            from.short()
        ))
    }
}

impl Repo {
    /// Asks whether refs of a kind can be made and removed; returns what the remote says against it.
    fn takes(&self, place: &str, commit: &Oid) -> Result<Option<String>> {
        let name = format!("{place}/probe-{}", random_hex());
        let made = Move { name: name.clone(), from: None, to: Some(commit.clone()) };
        let gone = Move { name: name.clone(), from: Some(commit.clone()), to: None };
        match self.advance(&[made])? {
            Moved::Done => {}
            Moved::Rejected(words) => {
                // Some hosts take what they then show nobody.
                if let Some(remote) = &self.remote {
                    self.push(remote, &[gone])?;
                }
                return Ok(Some(words));
            }
            Moved::Overtaken { name, .. } => return Ok(Some(format!("it put something else into {name}"))),
        }
        match self.advance(&[gone])? {
            Moved::Done => Ok(None),
            Moved::Overtaken { .. } | Moved::Rejected(_) => {
                Err(Error::new(Kind::Rejected, format!("the remote took {name}, and does not let go of it"))
                    .next(format!("git push {} --delete {name}", self.remote.as_deref().unwrap_or_default())))
            }
        }
    }
}

/// Everything that a repository with work sessions has from the beginning.
fn files(scripts: bool) -> Vec<(String, &'static str, &'static str)> {
    use crate::tree::PLAIN;
    let in_sessions = |name: &str| format!("{SESSIONS_DIR}/{name}");
    // Git keeps no empty directories.
    let mut files: Vec<_> =
        State::ALL.iter().map(|state| (in_sessions(&format!("{state}/.gitkeep")), PLAIN, "")).collect();
    files.extend([
        (in_sessions(LOCK_FILE), PLAIN, ""),
        (in_sessions("SESSIONS-README.md"), PLAIN, include_str!("../templates/tree/SESSIONS-README.md")),
        (
            in_sessions("SESSIONS-REFERENCE.md"),
            PLAIN,
            include_str!("../templates/tree/SESSIONS-REFERENCE.md"),
        ),
        (format!("{KNOWLEDGE_DIR}/README.md"), PLAIN, include_str!("../templates/tree/KNOWLEDGE-README.md")),
    ]);
    if scripts {
        files.extend([
            (in_sessions("_bin/claim-session"), SCRIPT_MODE, "#!/bin/sh\nexec sess work claim \"$@\"\n"),
            (
                in_sessions("_bin/complete-session"),
                SCRIPT_MODE,
                "#!/bin/sh\nexec sess work complete \"$@\"\n",
            ),
        ]);
    }
    files
}
