//! Commits on the base branch: what people see in the repository follows the claims.
//!
//! Nothing here touches a checkout, unless the base has no remote and is checked out: then its files follow.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    time::{Duration, Instant},
};

use crate::{
    Claim, Error, Kind, Move, Moved, Note, Oid, PLAN_FILE, Phase, Record, Result, Seen, Slug, Standing,
    State, Work,
    claim::User,
    git::{is_disk_full, pause, words_of},
    state::{KNOWLEDGE_DIR, SESSIONS_DIR},
    templates::{self, one_line},
    tree::Edit,
};

/// How long a commit on the base branch is tried for, while others commit there, too.
const PATIENCE: Duration = Duration::from_secs(30);
/// Says who has what, for whoever reads the tree.
pub(crate) const LOCK_FILE: &str = "sessions.lock";
/// Who commits in a session, in its directory while it is active.
pub(crate) const ENV_FILE: &str = ".session-env";

/// One commit on the base branch.
#[derive(Clone)]
pub(crate) struct Step {
    pub(crate) message: String,
    pub(crate) edits: Vec<Edit>,
}

/// A checkout of this clone, as git lists it.
pub(crate) struct Worktree {
    pub(crate) path: PathBuf,
    /// The ref of the branch that is checked out in it.
    pub(crate) branch: Option<String>,
    /// Somebody removed it by hand.
    pub(crate) is_gone: bool,
    /// Git was told not to remove it.
    pub(crate) is_locked: bool,
}

/// Writes the message of a commit that the program makes.
///
/// The fence is in it so that it never falls, even if the claim is lost one day.
pub(crate) fn message(slug: &Slug, what: &str, by: &str, record: Option<&Record>) -> String {
    let claim = record.map(|record| format!("Claim: {}\nFence: {}\n", record.oid, record.claim.fence));
    let claim = claim.unwrap_or_default();
    format!("[{slug}] {what}\n\nSession: {slug}\nAgent: {}\n{claim}", one_line(by))
}

/// Says who did something: the agent, else the person.
pub(crate) fn by(agent: Option<&str>, user: &User) -> String {
    agent.map_or_else(|| user.name.clone(), |agent| format!("{agent} ({})", user.name))
}

impl Work {
    pub(crate) fn by(&self) -> String {
        by(self.who.agent.as_deref(), &self.user)
    }

    /// Commits on the base branch what `step` makes of what is there, again and again until nobody was faster.
    ///
    /// `step` looks anew each time, and refuses when it is too late for what it wants.
    pub(crate) fn on_base(&self, mut step: impl FnMut(&Seen) -> Result<Option<Step>>) -> Result<Seen> {
        self.on_base_from(self.see()?, |seen| Ok(step(seen)?.map(|step| (step, None))))
    }

    /// As [`Self::on_base`], from what was seen a moment ago, and with a ref that moves together with the base or not
    /// at all.
    pub(crate) fn on_base_from(
        &self,
        mut seen: Seen,
        mut step: impl FnMut(&Seen) -> Result<Option<(Step, Option<Move>)>>,
    ) -> Result<Seen> {
        let begun = Instant::now();
        loop {
            // What others left half done is done on the way, and `step` sees it done.
            self.end_merged(&mut seen)?;
            self.end_late(&mut seen)?;
            let mut pending = self.pending(&seen, None)?;
            if let (Some(last), Some(edit)) = (pending.last_mut(), self.lock_edit(&seen, None)?) {
                last.edits.push(edit);
            }
            if !pending.is_empty() {
                seen.tree = self.repo.tree(&self.chained(&seen.tree, &pending)?)?;
            }
            let (own, other) = step(&seen)?.map_or((None, None), |(step, other)| (Some(step), other));
            if let Some(mut step) = own.clone() {
                self.check_room(&seen, &step.edits)?;
                step.edits.extend(self.lock_edit(&seen, None)?);
                seen.tree = self.repo.tree(&self.chained(&seen.tree, &[step])?)?;
            }
            let (from, commit) = (seen.view.base.clone(), seen.tree.commit.clone());
            if commit == from {
                return Ok(seen);
            }
            let base =
                Move { name: self.repo.base_ref(), from: Some(from.clone()), to: Some(commit.clone()) };
            let is_alone = other.is_none();
            let moves: Vec<Move> = std::iter::once(base).chain(other).collect();
            match self.advance_base(&from, &commit, &moves)? {
                Moved::Done => {
                    seen.view.base = commit;
                    return Ok(seen);
                }
                Moved::Overtaken { .. } => {
                    pause();
                    seen = self.see()?;
                    // It went through, and others came right after it.
                    if self.repo.is_ancestor(&commit, &seen.view.base)? {
                        return Ok(seen);
                    }
                    if begun.elapsed() < PATIENCE {
                        continue;
                    }
                    let base = &self.repo.base;
                    return Err(Error::new(
                        Kind::Unreachable,
                        format!("others commit on {base} all the time"),
                    )
                    .next("sess work doctor --repair"));
                }
                Moved::Rejected(words) => {
                    return Err(match own.filter(|_| self.repo.remote.is_some()) {
                        Some(step) if is_alone => self.rejected_step(&words, &from, step)?,
                        Some(_) => self.rejected_but(&words, |message| {
                            let message = format!("{message}; whoever may push there can do this");
                            Error::new(Kind::Rejected, message).next("sess work list")
                        }),
                        None => self.rejected(&words),
                    });
                }
            }
        }
    }

    /// Fails when a file, or a link, is where edits need a directory: it would be gone.
    fn check_room(&self, seen: &Seen, edits: &[Edit]) -> Result<()> {
        let paths = edits.iter().filter_map(|edit| match edit {
            Edit::Put(path, _) | Edit::Write(path, _) => Some(path.as_str()),
            Edit::Remove(_) => None,
        });
        let dirs: BTreeSet<&str> =
            paths.flat_map(|path| path.match_indices('/').map(|(end, _)| &path[..end])).collect();
        let is_removed =
            |dir: &str| edits.iter().any(|edit| matches!(edit, Edit::Remove(path) if path == dir));
        let known = dirs.iter().find(|dir| seen.tree.files.contains_key(**dir) && !is_removed(dir));
        let mut in_the_way = known.map(|dir| (*dir).to_owned());
        // Those that the list of sessions does not go through.
        if in_the_way.is_none() && (seen.tree.files.is_empty() || dirs.contains(KNOWLEDGE_DIR)) {
            let asked = ["ls-tree", "-z", "--full-tree", "--end-of-options", seen.tree.commit.as_str(), "--"];
            let told = self.repo.git.text(asked.into_iter().chain(dirs.iter().copied()))?;
            let found = told.split('\0').filter_map(|line| line.split_once('\t'));
            let is_file = |head: &str| head.split(' ').nth(1) != Some("tree");
            // Of a directory that it goes into it names all.
            let mut other = found.filter(|(head, path)| is_file(head) && dirs.contains(path));
            in_the_way = other.next().map(|(_, path)| path.to_owned());
        }
        match in_the_way {
            None => Ok(()),
            Some(path) => Err(Error::would_lose(format!(
                "{path} is a file on {}, where work sessions need a directory",
                self.repo.base
            ))
            .next(format!("git mv {path} <another name>"))),
        }
    }

    /// Says that the base did not move.
    pub(crate) fn rejected(&self, words: &str) -> Error {
        self.rejected_but(words, |message| {
            let message =
                format!("{message}; claims count without it, and whoever may push there shows them");
            Error::new(Kind::Rejected, message).next("sess work list")
        })
    }

    /// Says that the base did not move, and how the commit gets there where nobody may push: by a pull request.
    fn rejected_step(&self, words: &str, base: &Oid, step: Step) -> Result<Error> {
        // That of this verb alone: what others left half done is theirs, and may be another thing by then.
        let commit = self.chained(&self.repo.tree(base)?, &[step])?;
        let (remote, base) = (self.repo.remote.as_deref().unwrap_or("."), &self.repo.base);
        Ok(self.rejected_but(words, |message| {
            Error::new(
                Kind::Rejected,
                format!("{message}; if that is protected, push this commit to a branch, and open a pull request from there to {base}"),
            )
            .next(format!("git push {remote} {commit}:refs/heads/work-plan/{}", commit.short()))
        }))
    }

    /// Says that work could not be landed, and how it is where nobody may push.
    pub(crate) fn rejected_landing(&self, words: &str, slug: &Slug) -> Error {
        self.rejected_but(words, |message| {
            Error::new(
                Kind::Rejected,
                format!("{message}; if that is protected, `land: pr` below `work:` in your configuration lands by pull requests"),
            )
            .next(format!("SESS_WORK_LAND=pr sess work complete {slug}"))
        })
    }

    /// Says that the base did not move: why, when that is plain, else by `advised` what to do about it.
    pub(crate) fn rejected_but(&self, words: &str, advised: impl FnOnce(String) -> Error) -> Error {
        let words = words_of(words);
        if is_disk_full(&words) {
            return match &self.repo.remote {
                None => Error::failed(format!("the disk is full: {words}")).next("df -h ."),
                Some(remote) => Error::new(Kind::Rejected, format!("the disk of {remote} is full: {words}"))
                    .next(format!("git ls-remote {remote}")),
            };
        }
        if let Some(denied) = self.repo.denied(&words) {
            return denied;
        }
        let place = self.repo.remote.as_deref().unwrap_or("this repository");
        advised(format!("{place} does not take a commit on {}: {words}", self.repo.base))
    }

    /// Moves the base and what goes with it. Without a remote, a checkout of the base follows.
    pub(crate) fn advance_base(&self, from: &Oid, to: &Oid, moves: &[Move]) -> Result<Moved> {
        if self.repo.remote.is_some() {
            return self.repo.advance(moves);
        }
        self.with_checkout(from, to, || self.repo.advance(moves))
    }

    /// Returns the worktree that a branch is checked out in, by the branch's ref.
    pub(crate) fn checkout_of(&self, name: &str) -> Result<Option<PathBuf>> {
        let found = self.worktrees()?.into_iter().find(|worktree| worktree.branch.as_deref() == Some(name));
        Ok(found.map(|worktree| worktree.path))
    }

    /// Returns the checkouts of this clone, as git lists them.
    pub(crate) fn worktrees(&self) -> Result<Vec<Worktree>> {
        let asked = ["worktree", "list", "--porcelain", "-z"];
        let told = self.repo.git.text(asked)?;
        let mut found: Vec<Worktree> = Vec::new();
        for line in told.split('\0') {
            if let Some(path) = line.strip_prefix("worktree ") {
                found.push(Worktree { path: path.into(), branch: None, is_gone: false, is_locked: false });
            } else if let Some(last) = found.last_mut() {
                last.is_gone |= line.starts_with("prunable");
                last.is_locked |= line.starts_with("locked");
                last.branch = line.strip_prefix("branch ").map(str::to_owned).or(last.branch.take());
            }
        }
        Ok(found)
    }

    /// Ends the claims of sessions whose work somebody merged.
    fn end_merged(&self, seen: &mut Seen) -> Result<()> {
        for slug in seen.slugs() {
            let (Standing::Merged(_), Some(record)) = (seen.standing(&slug), seen.record(&slug)) else {
                continue;
            };
            if let Some(ended) = self.end_claim(record, Phase::Completed, "its work was merged")? {
                seen.view.claims.insert(slug, ended);
            }
        }
        Ok(())
    }

    /// Ends the claims that came too late: others had finished the session, or changed its plan or taken it back,
    /// before, and whoever claimed it had not seen that yet.
    ///
    /// Whoever moves directories after their claims does this first: it tells those that are to be moved from those
    /// that only seem so.
    pub(crate) fn end_late(&self, seen: &mut Seen) -> Result<()> {
        if !seen.slugs().iter().any(|slug| seen.is_contradicted(slug)) {
            return Ok(());
        }
        // The base and the claims are read one after the other, while others move both: what another look finds is so.
        *seen = self.see()?;
        for slug in seen.slugs() {
            let Some(record) = self.late(&slug, seen)? else { continue };
            match self.ended_late(record)? {
                Some(now) => drop(seen.view.claims.insert(slug, now)),
                None => drop(seen.view.claims.remove(&slug)),
            }
        }
        Ok(())
    }

    /// Returns a session's claim if it came too late, as far as this look at everything tells.
    pub(crate) fn late<'a>(&self, slug: &Slug, seen: &'a Seen) -> Result<Option<&'a Record>> {
        let Some(record) = seen.record(slug).filter(|_| seen.is_doubtful(slug)) else { return Ok(None) };
        Ok(if self.was_shown(record, &seen.view.base)? { None } else { Some(record) })
    }

    /// Whether the base has shown a claim: what is not as it says then was moved by hand.
    fn was_shown(&self, record: &Record, base: &Oid) -> Result<bool> {
        let claim = &record.claim;
        // What was rewritten, or is beyond the end of a shallow clone, tells nothing.
        if !self.repo.is_ancestor(&claim.base_commit, base)? {
            return Ok(true);
        }
        let line = format!("--grep=Session: {}", claim.slug);
        let since = format!("{}..{base}", claim.base_commit);
        let format = "--format=%(trailers:key=Claim,valueonly,separator=%x20)";
        let told = self.repo.git.text(["log", format, "--fixed-strings", &line, &since])?;
        for oid in told.split_whitespace().filter_map(|oid| oid.parse().ok()) {
            if self.repo.is_ancestor(&oid, &record.oid)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Ends a claim that came too late: its ref goes if that claim made it, so that the chain of those before is what
    /// is read; else, and where refs cannot be deleted, the claim is released.
    fn ended_late(&self, record: &Record) -> Result<Option<Record>> {
        let slug = &record.claim.slug;
        if self.repo.commit(&format!("{}^", record.oid))?.is_none() {
            let gone = Move { name: self.repo.claim_ref(slug), from: Some(record.oid.clone()), to: None };
            match self.repo.advance(&[gone])? {
                Moved::Done => return Ok(None),
                Moved::Overtaken { .. } => {}
                Moved::Rejected(words) => tracing::debug!(%words, %slug, "the claim is released instead"),
            }
        }
        if let Some(ended) = self.end_claim(record, Phase::Released, "it came too late")? {
            return Ok(Some(ended));
        }
        // Somebody was faster; or it cannot be ended now, and the next look finds it again: it counts for nothing.
        Ok(self.repo.look()?.claims.remove(slug).filter(|now| now.oid != record.oid))
    }

    /// Brings every directory to where its claim says it belongs.
    pub fn roll_forward(&self) -> Result<Seen> {
        self.roll_forward_from(self.see()?)
    }

    /// As [`Self::roll_forward`], from what was seen a moment ago.
    pub(crate) fn roll_forward_from(&self, seen: Seen) -> Result<Seen> {
        self.on_base_from(seen, |_| Ok(None))
    }

    /// Returns what the base lacks of the claims: one commit a session. With `only`, of that one.
    pub(crate) fn pending(&self, seen: &Seen, only: Option<&Slug>) -> Result<Vec<Step>> {
        let mut steps = Vec::new();
        for slug in seen.slugs() {
            if only.is_some_and(|only| *only != slug) {
                continue;
            }
            let Some((claim, to)) = seen.behind(&slug) else { continue };
            steps.push(self.projection(seen, &slug, &claim, to)?);
        }
        Ok(steps)
    }

    fn projection(&self, seen: &Seen, slug: &Slug, claim: &Claim, to: State) -> Result<Step> {
        let record = seen.record(slug);
        let mut edits = seen.tree.moved(slug, to);
        let dir = to.dir_of(slug);
        let what = match to {
            State::Active => {
                edits.extend(self.beginnings(seen, slug, claim)?);
                "Claim session".to_owned()
            }
            State::Abandoned => {
                format!("Abandon session: {}", claim.reason.as_deref().unwrap_or("no reason given"))
            }
            _ => format!(
                "Release session{}",
                claim.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default()
            ),
        };
        if to != State::Active {
            let env = format!("{dir}/{ENV_FILE}");
            edits.retain(|edit| !matches!(edit, Edit::Put(path, _) if *path == env));
            edits.extend(self.written_down(seen, slug, claim, &dir)?);
        }
        if to == State::Abandoned {
            edits.extend(self.learned_all_the_same(seen, slug)?);
        }
        let message = message(slug, &one_line(&what), &by(claim.agent.as_deref(), &claim.user), record);
        Ok(Step { message, edits })
    }

    /// Returns the files that a session has from when it is claimed.
    pub(crate) fn beginnings(&self, seen: &Seen, slug: &Slug, claim: &Claim) -> Result<Vec<Edit>> {
        let dir = State::Active.dir_of(slug);
        let own = self.template(&seen.tree, templates::SESSION_ENV)?;
        // A template that somebody broke must not stop everybody's verbs.
        let text = templates::session_env(slug, &claim.user, own.as_deref()).or_else(|error| {
            // Whoever claims is told.
            tracing::debug!(%error, "the built-in template is used");
            templates::session_env(slug, &claim.user, None)
        })?;
        let mut edits = vec![Edit::Write(format!("{dir}/{ENV_FILE}"), text)];
        let has_worklog =
            seen.tree.entries.get(slug).is_some_and(|entry| entry.files.contains_key(Note::Log.file()));
        if !has_worklog {
            let by = by(claim.agent.as_deref(), &claim.user);
            let text = format!("{}- {} claimed by {by}\n", Note::Log.heading(slug), claim.claimed_at);
            edits.push(Edit::Write(Note::Log.path(slug), text));
        }
        Ok(edits)
    }

    /// Says so when the repository's own template of `.session-env` cannot be used.
    pub(crate) fn odd_template(&self, base: &Oid, claim: &Claim) -> Result<Option<String>> {
        let own = self.template(&self.repo.tree(base)?, templates::SESSION_ENV)?;
        let Some(own) = own else { return Ok(None) };
        let made = templates::session_env(&claim.slug, &claim.user, Some(&own));
        Ok(made.err().map(|error| {
            format!(
                "the template {} is left out, and the built-in one used: {}",
                templates::SESSION_ENV,
                error.message()
            )
        }))
    }

    /// Returns what a session that ends without landing wrote down on its branch, and its plan as it was amended:
    /// whoever goes on with it goes by that.
    fn written_down(&self, seen: &Seen, slug: &Slug, claim: &Claim, dir: &str) -> Result<Vec<Edit>> {
        let Some(tip) = seen.view.branches.get(slug) else { return Ok(Vec::new()) };
        let active = State::Active.dir_of(slug);
        let files = self.repo.files_of(tip.as_str(), &active)?.into_iter();
        let kept = files.filter_map(|(path, file)| {
            let name = path.strip_prefix(&active)?.strip_prefix('/')?;
            let is_kept = name != ENV_FILE && (name != PLAN_FILE || file.oid == claim.plan);
            is_kept.then(|| Edit::Put(format!("{dir}/{name}"), file))
        });
        Ok(kept.collect())
    }

    /// Returns the edit that brings what a session learned to the base, although its work does not land: its branch is
    /// not what a new attempt begins with.
    fn learned_all_the_same(&self, seen: &Seen, slug: &Slug) -> Result<Option<Edit>> {
        let Some(tip) = seen.view.branches.get(slug) else { return Ok(None) };
        let path = Note::Learning.path(slug);
        let at = |commit: &str| self.repo.files_of(commit, &path).map(|mut files| files.remove(&path));
        let Some(learned) = at(tip.as_str())? else { return Ok(None) };
        let before = match self.repo.merge_base(&seen.view.base, tip)? {
            Some(begun) => at(begun.as_str())?,
            None => None,
        };
        let shown = at(seen.view.base.as_str())?;
        if shown.as_ref() == Some(&learned) || before.as_ref() == Some(&learned) {
            return Ok(None);
        }
        // What others have made of it since stays, and this is beside the log.
        let place = match shown == before {
            true => path,
            false => format!("{}/{}", State::Abandoned.dir_of(slug), Note::Learning.file()),
        };
        Ok(Some(Edit::Put(place, learned)))
    }

    /// Returns the edit that makes the file of claims say who has what, if it does not say so already.
    ///
    /// `except` is a session whose claim ends with this commit.
    pub(crate) fn lock_edit(&self, seen: &Seen, except: Option<&Slug>) -> Result<Option<Edit>> {
        let path = format!("{SESSIONS_DIR}/{LOCK_FILE}");
        let live = seen.view.claims.iter().filter(|(slug, record)| {
            matches!(record.claim.phase, Phase::Active | Phase::Landing) && except != Some(*slug)
        });
        let text: String = live
            .map(|(slug, record)| format!("{slug}:{}\n", record.claim.claimed_at.as_millis() / 1_000))
            .collect();
        let now = seen.tree.files.get(&path);
        if now.is_none() && text.is_empty() {
            return Ok(None);
        }
        let file = self.repo.file(&text)?;
        Ok((now.map(|file| &file.oid) != Some(&file.oid)).then_some(Edit::Put(path, file)))
    }
}
