//! Work that was begun without a session becomes one, where it is.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use crate::{
    ClaimOptions, Claimed, Draft, Error, Git, Kind, Move, Moved, Oid, PLAN_FILE, Record, Result, Seen, Slug,
    State, Work, drafting, git::pause, projecting::message, templates, tree::Edit, under_way::UnderWay,
};

/// How long it is tried for, while others commit on the base, too.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many commits the plan tells of.
const COMMITS_SHOWN_MAX: &str = "--max-count=20";
const BRANCHES: &str = "refs/heads/";

/// Where somebody's work is.
struct Begun {
    /// The worktree that it is checked out in.
    worktree: Option<Git>,
    /// Without one, HEAD is detached.
    branch: Option<String>,
    tip: Oid,
}

impl Begun {
    fn slug(&self) -> Option<Slug> {
        self.branch.as_ref()?.strip_prefix("session/")?.parse().ok()
    }
}

impl Work {
    /// Turns a worktree (the caller's, unless named) or a branch into a session that the caller has.
    ///
    /// The branch is renamed in place, and whatever is not committed stays as it is. Nobody else can take the
    /// session in between: it appears together with its claim.
    pub fn adopt(&self, path: Option<&Path>, title: Option<&str>) -> Result<Claimed> {
        let begun = self.begun(path)?;
        if begun.branch.as_ref() == Some(&self.repo.base) {
            return Err(Error::wrong_state(format!(
                "{} is where work lands: it is no work of its own",
                self.repo.base
            ))
            .next("git switch -c <branch>"));
        }
        let seen = self.see()?;
        if let Some(slug) = begun.slug().filter(|slug| drafting::is_taken(slug, &seen)) {
            // It was adopted before, and maybe not to the end.
            let claimed = self.claim(&slug, &ClaimOptions::default())?;
            self.catch_up_with_base(&slug, &claimed.record, &self.see_or_recall()?.view.base)?;
            return Ok(claimed);
        }
        self.check_filters(&begun.tip)?;
        let from = begun.branch.clone().unwrap_or_else(|| begun.tip.short().to_owned());
        let title = match title.map(str::trim).filter(|title| !title.is_empty()) {
            Some(title) => title.to_owned(),
            None => self.title_of(&begun)?,
        };
        let draft = Draft {
            context: Some(self.told(&begun, &from, &seen)?),
            criteria: vec![format!("What `{from}` was begun for is done: {title}")],
            title,
            ..Draft::default()
        };
        let mut now = begun.branch.clone();
        match self.adopted(&begun, &mut now, &draft, seen) {
            Ok(record) => {
                let slug = record.claim.slug.clone();
                match self.settled(self.see()?, record, &ClaimOptions::default(), false)? {
                    Some(claimed) => Ok(claimed),
                    None => Err(self.overtaken(&slug)?),
                }
            }
            Err(error) => {
                if let (Some(before), Some(now)) = (&begun.branch, &now)
                    && before != now
                {
                    self.rename(&begun, Some(now), before)?;
                }
                Err(error)
            }
        }
    }

    /// Gives the branch its name and shows the session, with its claim, in one step.
    fn adopted(
        &self,
        begun: &Begun,
        branch: &mut Option<String>,
        draft: &Draft,
        mut seen: Seen,
    ) -> Result<Record> {
        let started = Instant::now();
        let wanted = match begun.slug() {
            Some(slug) => slug,
            None => Slug::from_title(&draft.title, self.day()?),
        };
        loop {
            let slug = drafting::free(&wanted, &seen)?;
            if branch.as_ref() != Some(&slug.branch()) {
                self.rename(begun, branch.as_deref(), &slug.branch())?;
                *branch = Some(slug.branch());
            }
            let text =
                templates::session(&slug, draft, self.template(&seen.tree, templates::SESSION)?.as_deref())?;
            let plan = self.repo.file(&text)?;
            let claim = self.first_claim(&slug, &plan.oid, &seen, &ClaimOptions::default())?;
            let dir = format!("{} blob {}\t{PLAN_FILE}\n", plan.mode, plan.oid);
            let dir = self.repo.git.feed_oid(["mktree"], dir.as_bytes())?;
            let oid = self.repo.write_claim_with(dir.as_str(), &claim, &[])?;
            let record = Record { oid, claim };
            let base = seen.view.base.clone();
            seen.view.claims.insert(slug.clone(), record.clone());
            let dir = State::Active.dir_of(&slug);
            let mut edits = vec![Edit::Put(format!("{dir}/{PLAN_FILE}"), plan)];
            edits.extend(self.beginnings(&seen, &slug, &record.claim)?);
            edits.extend(self.lock_edit(&seen, None)?);
            let tree = self.repo.edited(&base, &edits)?;
            let text = message(&slug, "Adopt session", &self.by(), Some(&record));
            let commit = self.repo.commit_tree(&tree, &[&base], &text)?;
            let moves = [
                Move { name: self.repo.base_ref(), from: Some(base.clone()), to: Some(commit.clone()) },
                Move { name: self.repo.claim_ref(&slug), from: None, to: Some(record.oid.clone()) },
            ];
            match self.advance_base(&base, &commit, &moves)? {
                Moved::Done => return Ok(record),
                Moved::Overtaken { .. } => {
                    seen = self.see()?;
                    // It went through, and others came right after it.
                    if seen.record(&slug).is_some_and(|now| now.oid == record.oid) {
                        return Ok(record);
                    }
                }
                Moved::Rejected(words) => {
                    return Err(self.rejected_but(&words, |message| {
                        let message =
                            format!("{message}; if that is protected, plan it first, and claim it then");
                        Error::new(Kind::Rejected, message)
                            .next(format!("sess work new {}", crate::quoted(&draft.title)))
                    }));
                }
            }
            if started.elapsed() > PATIENCE {
                let base = &self.repo.base;
                return Err(Error::new(Kind::Unreachable, format!("others commit on {base} all the time"))
                    .next("sess work adopt"));
            }
            pause();
        }
    }

    /// Finds the worktree or branch that is meant.
    fn begun(&self, path: Option<&Path>) -> Result<Begun> {
        let dir = match path {
            None => self.repo.top.clone(),
            Some(path) => self.repo.here.dir().join(path),
        };
        if dir.is_dir() {
            return self.begun_in(&dir);
        }
        let name = path.map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
        let refname = format!("{BRANCHES}{name}");
        let missing = || {
            Error::wrong_state(format!("{name:?} is neither a directory nor a branch"))
                .next("git worktree list")
        };
        if !self.repo.git.run(["check-ref-format", &refname])?.is_ok() {
            return Err(missing());
        }
        let tip = self.repo.commit(&refname)?.ok_or_else(missing)?;
        match self.checkout_of(&refname)? {
            Some(path) => self.begun_in(&path),
            None => Ok(Begun { worktree: None, branch: Some(name), tip }),
        }
    }

    fn begun_in(&self, dir: &Path) -> Result<Begun> {
        let git = self.repo.git.at(dir);
        let told =
            git.run(["rev-parse", "--path-format=absolute", "--show-toplevel", "--git-common-dir"])?.text();
        let mut lines = told.lines().map(Path::new);
        let (top, common) = (lines.next(), lines.next());
        let real = |path: Option<&Path>| path.and_then(|path| fs::canonicalize(path).ok());
        let Some(top) = top.filter(|_| real(common) == real(Some(&self.repo.common))) else {
            return Err(Error::wrong_state(format!("{} is no worktree of this repository", dir.display()))
                .next("git worktree list"));
        };
        // A rebase goes back to the branch by its name.
        if let Some(what @ (UnderWay::Rebase | UnderWay::Patches)) = self.under_way(top)? {
            return Err(Error::would_lose(format!("{} is in the middle of {}", top.display(), what.told()))
                .next(what.next(top)));
        }
        let git = self.repo.git.at(top);
        let head = git.run(["symbolic-ref", "--quiet", "HEAD"])?;
        let branch = head.text().trim().strip_prefix(BRANCHES).map(str::to_owned).filter(|_| head.is_ok());
        let tip = git.oid(["rev-parse", "--verify", "HEAD^{commit}"]).map_err(|_| {
            Error::wrong_state(format!("{} has no commit yet", top.display()))
                .next("git commit --allow-empty")
        })?;
        Ok(Begun { worktree: Some(git), branch, tip })
    }

    /// Gives a branch another name, and a worktree without one its first. Nothing of a checkout changes by that.
    fn rename(&self, begun: &Begun, from: Option<&str>, to: &str) -> Result<()> {
        let git = begun.worktree.as_ref().unwrap_or(&self.repo.git);
        if let Some(from) = from {
            git.text(["branch", "-m", "--end-of-options", from, to])?;
            return Ok(());
        }
        let name = format!("{BRANCHES}{to}");
        git.text(["update-ref", &name, begun.tip.as_str(), ""])?;
        git.text(["symbolic-ref", "HEAD", &name])?;
        Ok(())
    }

    fn title_of(&self, begun: &Begun) -> Result<String> {
        if let Some(slug) = begun.slug() {
            return Ok(slug.topic().replace('-', " "));
        }
        if let Some(name) = begun.branch.as_ref().and_then(|branch| branch.rsplit('/').next()) {
            return Ok(name.replace(['-', '_'], " "));
        }
        let asked = ["rev-list", "--no-commit-header", "--max-count=1", "--format=%s", begun.tip.as_str()];
        Ok(self.repo.git.text(asked)?.trim().to_owned())
    }

    /// Says what is there already.
    fn told(&self, begun: &Begun, from: &str, seen: &Seen) -> Result<String> {
        let range = format!("{}..{}", seen.view.base, begun.tip);
        let asked =
            ["rev-list", "--no-commit-header", "--no-merges", COMMITS_SHOWN_MAX, "--format=- %s", &range];
        let commits = self.repo.git.text(asked)?;
        let what = if commits.trim().is_empty() {
            "without a commit of its own so far"
        } else {
            "with these commits"
        };
        Ok(format!("This was begun on `{from}`, {what}:\n\n{}", commits.trim_end())
            .trim_end_matches([':', '\n'])
            .to_owned())
    }
}
