//! Every session as its claim and its directory have it, what that means, and what puts it right.

use serde::Serialize;

use crate::{
    Brief, Claim, Land, Move, Moved, Oid, PLAN_FILE, Phase, Record, Result, Seen, Slug, Standing, State,
    Work,
    claim::folded,
    listing::{circles, told_around, without_plan},
    projecting::{ENV_FILE, Step, message},
    tree::Edit,
};

/// What was found in a repository.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Checkup {
    pub rows: Vec<CheckRow>,
    /// What belongs to no row, each with the command that helps.
    pub findings: Vec<String>,
}

/// A claim and a directory, and what they mean together.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckRow {
    pub slug: Slug,
    pub directory: Option<State>,
    pub claim: Option<String>,
    pub meaning: String,
    /// What to run; nothing when all is well.
    pub next: Option<String>,
    pub repaired: bool,
}

impl Work {
    /// Explains every session, and with `repair` puts right what can be put right without a person.
    pub fn doctor(&self, repair: bool) -> Result<Checkup> {
        let before = if repair { self.see()? } else { self.see_or_recall()? };
        let mut checkup = self.checkup(&before)?;
        if !repair {
            return Ok(checkup);
        }
        let mut findings = Vec::new();
        self.remove_damaged(&before, &mut findings)?;
        self.repair_directories()?;
        self.repair_workspaces(&mut findings)?;
        self.release_lost(&mut findings)?;
        let after = self.checkup(&self.see()?)?;
        for row in &mut checkup.rows {
            let now = after.rows.iter().find(|now| now.slug == row.slug);
            let is_well = now.is_none_or(|now| now.next.is_none());
            row.repaired = row.next.is_some() && is_well;
            if row.repaired {
                row.next = None;
            }
        }
        // One that a damaged claim had hidden is there now.
        let is_new = |row: &&CheckRow| checkup.rows.iter().all(|known| known.slug != row.slug);
        let new: Vec<CheckRow> = after.rows.iter().filter(is_new).cloned().collect();
        checkup.rows.extend(new);
        findings.extend(after.findings);
        checkup.findings = findings;
        Ok(checkup)
    }

    fn checkup(&self, seen: &Seen) -> Result<Checkup> {
        let rows = seen.slugs().into_iter().map(|slug| self.check_row(slug, seen)).collect::<Result<_>>()?;
        let mut findings = Vec::new();
        if seen.view.is_old {
            findings.push(format!(
                "{} cannot be reached, and this is what it said last: run `git ls-remote {0}`",
                self.repo.remote.as_deref().unwrap_or_default()
            ));
        }
        for odd in &seen.tree.odd {
            findings.push(format!(
                "{odd} is in the way: no session has that name, or it is in another state, too: look at it, then run `git rm -r {}` on {}",
                crate::quoted(odd),
                self.repo.base
            ));
        }
        for (name, reason) in &seen.view.damaged {
            let name = format!("{}/{name}", self.repo.claims());
            findings.push(format!("the claim {name} is damaged: {reason}: run `sess work doctor --repair`"));
        }
        if self.has_wrong_lock(seen)? {
            findings
                .push("sessions.lock does not say who has what: run `sess work doctor --repair`".to_owned());
        }
        self.find_workspaces(seen, &mut findings)?;
        self.find_branches(seen, &mut findings)?;
        self.find_plans(seen, &mut findings)?;
        for around in circles(&self.list(seen)?) {
            // Once, and not by each of those that are on the way.
            if around.iter().all(|slug| *slug >= around[0]) {
                let first = &around[0];
                findings.push(format!(
                    "{first} can never be claimed, because {}: run `sess work edit {first}`",
                    told_around(&around)
                ));
            }
        }
        Ok(Checkup { rows, findings })
    }

    /// Whether the file of claims has to be put right by a commit of its own.
    ///
    /// Where work lands by pull requests nobody need be able to push one: it is put right with the next commit that
    /// somebody can push. A line of it in every request would be in the way of all others.
    fn has_wrong_lock(&self, seen: &Seen) -> Result<bool> {
        Ok(self.settings.land != Land::Pr && self.lock_edit(seen, None)?.is_some())
    }

    fn check_row(&self, slug: Slug, seen: &Seen) -> Result<CheckRow> {
        let now = self.now();
        let repair = || Some("sess work doctor --repair".to_owned());
        let standing = seen.standing(&slug);
        let has_plan = seen.tree.entries.get(&slug).is_some_and(|entry| entry.files.contains_key(PLAN_FILE));
        let lateness = self.lateness(&slug, seen)?;
        let (meaning, next) = match &standing {
            _ if let Some(lateness) = lateness => (lateness.to_owned(), repair()),
            _ if seen.damage(&slug).is_some() => ("its claim is damaged".to_owned(), repair()),
            Standing::Unknown => ("it was here once, and its directory was removed".to_owned(), None),
            Standing::Rests(state) if !has_plan => (
                format!("it is {state}, and its directory has no {PLAN_FILE}"),
                Some(without_plan(&slug, *state)),
            ),
            Standing::Rests(state) => (format!("nobody has it; it is {state}"), None),
            Standing::Held(claim) if claim.waits() => {
                ("its work waits to be merged by others".to_owned(), None)
            }
            Standing::Held(claim) if claim.is_stale(now) => {
                (claim.told(now), Some(format!("sess work takeover {slug}")))
            }
            Standing::Held(claim) => (claim.told(now), None),
            Standing::Pending { claim, to: State::Completed } => {
                let commit = claim.landed.as_ref().map(|landed| landed.commit.to_string());
                let next = commit.map_or_else(
                    || format!("sess work show {slug}"),
                    |commit| format!("git cherry-pick {commit}"),
                );
                let base = &self.repo.base;
                (
                    format!("it was landed, and {base} does not have it any more: {base} was rewritten"),
                    Some(next),
                )
            }
            Standing::Pending { to, .. } if self.settings.land == Land::Pr => (
                format!(
                    "its claim is ahead of its directory, which goes to {to}/ when somebody pushes to {}",
                    self.repo.base
                ),
                None,
            ),
            Standing::Pending { to, .. } => (
                format!("its claim is ahead of its directory, which goes to {to}/ with the next verb"),
                repair(),
            ),
            Standing::Merged(_) => {
                ("its work is merged, and its claim ends with the next verb".to_owned(), repair())
            }
            Standing::Orphaned => (
                "it is shown as active, and nobody has it: its claim was removed by hand".to_owned(),
                repair(),
            ),
            Standing::Lost(claim) => {
                (format!("its directory is gone from {}, and {}", self.repo.base, claim.told(now)), repair())
            }
        };
        let claim = seen.record(&slug).map(|record| told_shortly(&record.claim));
        Ok(CheckRow { directory: seen.tree.state(&slug), claim, meaning, next, repaired: false, slug })
    }

    /// Names the workspaces that are nobody's any more, or somebody else's by now.
    fn find_workspaces(&self, seen: &Seen, findings: &mut Vec<String>) -> Result<()> {
        for slug in self.workspaces_here()? {
            let standing = seen.standing(&slug);
            let path = self.workspace_path(&slug);
            let place = path.display().to_string();
            if self.has_lost_git(&path) {
                findings.push(format!(
                    "the workspace {place} has lost what git keeps of it, and its files are all there: run `sess work doctor --repair`"
                ));
                continue;
            }
            match standing.holder() {
                None => findings.extend(self.left_workspace(&slug, seen)?),
                Some(claim) if claim.owner.clone != self.owner.clone => findings.push(format!(
                    "the workspace {place} is not the owner's any more, and its commits are on {} here: {}: run `sess work show {slug}`",
                    slug.branch(),
                    claim.told(self.now())
                )),
                Some(_) => {}
            }
        }
        if let Err(error) = self.check_root() {
            findings.push(format!("{}: run `{}`", error.message(), error.next_command()));
        }
        for worktree in self.worktrees()?.iter().filter(|worktree| worktree.is_gone) {
            let path = worktree.path.display();
            findings.push(format!(
                "the worktree {path} was removed by hand, and git still lists it: run `git worktree prune`"
            ));
        }
        Ok(())
    }

    /// Says what to do about a workspace whose session nobody has any more.
    fn left_workspace(&self, slug: &Slug, seen: &Seen) -> Result<Option<String>> {
        let is_damaged = seen.damage(slug).is_some();
        let standing = seen.standing(slug);
        // What puts the claim right comes first, and is told with the claim.
        if is_damaged || standing == Standing::Orphaned {
            return Ok(None);
        }
        let path = self.workspace_path(slug);
        let (place, dir) = (path.display(), crate::quoted(path.display()));
        let remove = match self.is_clone(&path) {
            true => format!("rm -rf {dir}"),
            false => format!("git worktree remove {dir}"),
        };
        if standing == Standing::Unknown {
            return Ok(Some(format!(
                "the worktree {place} has the branch of {slug}, which nothing is known of: run `sess work adopt {dir}`, or `{remove}` when nothing in it is needed"
            )));
        }
        if !self.is_made_for(slug, &path) {
            let base = &self.repo.base;
            let to = if self.checkout_of(&self.repo.base_ref())?.is_none() { base } else { "--detach" };
            return Ok(Some(format!(
                "{place} was there before {slug}, which has ended, and still has its branch: run `git -C {dir} switch {to}`"
            )));
        }
        let goes_on = matches!(standing, Standing::Rests(State::Drafting | State::Planned));
        let what = if goes_on { "that nobody has any more" } else { "that has ended" };
        let ended = format!("the workspace {place} is of a session {what}");
        Ok(Some(match self.why_needed(slug, seen)? {
            None => format!("{ended}: run `sess work gc`"),
            Some(reason) if self.has_landed(slug, seen)? || standing != Standing::Rests(State::Completed) => {
                format!("{ended}, and stays, because {reason}: look after that, then run `sess work gc`")
            }
            Some(reason) => {
                format!("{ended}, and stays, because {reason}: look after that, then run `{remove}`")
            }
        }))
    }

    /// Names the branches of completed sessions, as far as no workspace has them, and those that are gone too soon.
    fn find_branches(&self, seen: &Seen, findings: &mut Vec<String>) -> Result<()> {
        for slug in seen.slugs() {
            let standing = seen.standing(&slug);
            let is_own = standing.holder().is_some_and(|claim| claim.owner.clone == self.owner.clone);
            if is_own && seen.shared_tip(&slug).is_none() && self.tip(&slug).is_ok_and(|tip| tip.is_none()) {
                findings.push(format!(
                    "the branch {} is gone, and its session is not over; `git fsck --lost-found` tells what it had: run `sess work claim {slug}` to begin it anew",
                    slug.branch()
                ));
            }
        }
        for slug in self.leftover_branches(seen)? {
            if self.workspace(&slug).is_some() {
                continue;
            }
            let name = slug.branch();
            let here = self.repo.commit(&format!("refs/heads/{name}"))?;
            let remote = self.repo.remote.as_deref();
            let shared = remote.and_then(|remote| Some((remote, seen.view.branches.get(&slug)?.clone())));
            let delete_here = format!("git branch -D {name}");
            let delete_there =
                shared.as_ref().map(|(remote, _)| format!("git push {remote} --delete {name}"));
            let (is_here, mut is_clear) = (here.is_some(), false);
            let places = [(here, Some(delete_here)), (shared.map(|(_, tip)| tip), delete_there)];
            for (tip, delete) in places {
                let (Some(tip), Some(delete)) = (tip, delete) else { continue };
                if self.is_landed(&slug, &tip, seen)? {
                    is_clear = true;
                } else {
                    findings.push(format!(
                        "the branch {name} of a session that has ended has commits that did not land: look at `git log {}..{}`, then run `{delete}`",
                        seen.view.base.short(),
                        tip.short()
                    ));
                }
            }
            if is_clear {
                let there = remote.filter(|_| !is_here).map(|remote| {
                    format!(", and still at {remote}, which says why when it does not let go of it")
                });
                let there = there.unwrap_or_default();
                findings.push(format!(
                    "the branch {name} is of a session that has ended{there}: run `sess work gc`"
                ));
            }
        }
        Ok(())
    }

    /// Names the plans that somebody changed on the base while they are worked by.
    fn find_plans(&self, seen: &Seen, findings: &mut Vec<String>) -> Result<()> {
        for slug in seen.slugs() {
            let standing = seen.standing(&slug);
            let Some(claim) = standing.holder() else { continue };
            if let Some(plan) = self.plan_on_base(&slug, claim, seen)? {
                findings.push(format!("{}: run `{}`", plan.told, plan.next));
            }
        }
        Ok(())
    }

    /// Takes refs away that lead to no claim, and keeps what they led to.
    fn remove_damaged(&self, seen: &Seen, findings: &mut Vec<String>) -> Result<()> {
        for (short, reason) in &seen.view.damaged {
            let name = format!("{}/{short}", self.repo.claims());
            let Some(oid) = self.damaged_oid(short)? else { continue };
            let kept = format!("refs/intersession/rescue/damaged/{short}");
            self.repo.git.text(["update-ref", "--end-of-options", &kept, oid.as_str()])?;
            match self.repo.remove_raw(&name, &oid)? {
                Moved::Done => {
                    findings.push(format!("the damaged claim {name} ({reason}) is removed; {kept} keeps it"));
                }
                Moved::Overtaken { .. } => {}
                Moved::Rejected(words) => findings.push(format!(
                    "the damaged claim {name} cannot be removed: {words}: run `git push {} --delete {name}`",
                    self.repo.remote.as_deref().unwrap_or(".")
                )),
            }
        }
        Ok(())
    }

    /// Gives workspaces back what git keeps of them.
    fn repair_workspaces(&self, findings: &mut Vec<String>) -> Result<()> {
        for slug in self.workspaces_here()? {
            let path = self.workspace_path(&slug);
            if !self.has_lost_git(&path) {
                continue;
            }
            let (place, branch) = (path.display(), slug.branch());
            // One that cannot be repaired is no reason to leave the others as they are.
            findings.push(match self.restore_worktree(&slug, &path) {
                Ok(()) => {
                    format!("git knows the workspace {place} again, on {branch}; its files are as they were")
                }
                Err(error) => format!(
                    "the workspace {place} has lost what git keeps of it, and cannot be repaired: {}: run `{}`",
                    error.message(),
                    error.next_command()
                ),
            });
        }
        Ok(())
    }

    fn damaged_oid(&self, short: &str) -> Result<Option<Oid>> {
        let name = self.repo.seen_claim_ref(short);
        let told = self.repo.git.run(["rev-parse", "--verify", "--quiet", "--end-of-options", &name])?;
        Ok(told.text().trim().parse().ok())
    }

    /// Brings every directory to where it belongs: after its claim, and back to planned or drafting when nobody has it.
    fn repair_directories(&self) -> Result<Seen> {
        self.on_base(|seen| {
            let mut edits = Vec::new();
            let mut slugs = Vec::new();
            for slug in seen.slugs() {
                match seen.standing(&slug) {
                    Standing::Orphaned => {
                        // What nobody could claim is a draft again.
                        let brief = self.plan_in(seen, &slug).and_then(|(_, text)| Brief::parse(&text));
                        let is_ready = brief.is_ok_and(|brief| brief.check_ready(&slug).is_ok());
                        let to = if is_ready { State::Planned } else { State::Drafting };
                        edits.extend(seen.tree.moved(&slug, to).into_iter().filter(
                            |edit| !matches!(edit, Edit::Put(path, _) if path.rsplit('/').next() == Some(ENV_FILE)),
                        ));
                        slugs.push(slug);
                    }
                    Standing::Lost(claim) => {
                        let restored = self.restored(&slug, &claim, seen)?;
                        if !restored.is_empty() {
                            edits.extend(restored);
                            slugs.push(slug);
                        }
                    }
                    _ => {}
                }
            }
            let text = match slugs.as_slice() {
                // The lock file is put right with any commit.
                [] if self.has_wrong_lock(seen)? => "Put sessions.lock right\n".to_owned(),
                [] => return Ok(None),
                [slug] => message(slug, "Repair session", &self.by(), None),
                slugs => format!("Repair {} sessions\n\nAgent: {}\n", slugs.len(), self.by()),
            };
            Ok(Some(Step { message: text, edits }))
        })
    }

    /// Returns what puts the directory of a claimed session back; nothing when its plan is not to be found.
    pub(crate) fn restored(&self, slug: &Slug, claim: &Claim, seen: &Seen) -> Result<Vec<Edit>> {
        let dir = State::Active.dir_of(slug);
        let tip = self.tip(slug)?.or_else(|| seen.view.branches.get(slug).cloned());
        if let Some(tip) = tip {
            let files = self.repo.files_of(tip.as_str(), &dir)?;
            if files.get(&format!("{dir}/{PLAN_FILE}")).is_some_and(|plan| plan.oid == claim.plan) {
                return Ok(files.into_iter().map(|(path, file)| Edit::Put(path, file)).collect());
            }
        }
        let Ok(plan) = self.repo.text_of(&claim.plan) else { return Ok(Vec::new()) };
        Ok(vec![Edit::Put(format!("{dir}/{PLAN_FILE}"), self.repo.file(&plan)?)])
    }

    /// Ends claims on sessions whose plan is nowhere, if they are the caller's own or have lapsed.
    fn release_lost(&self, findings: &mut Vec<String>) -> Result<()> {
        let seen = self.see()?;
        for slug in seen.slugs() {
            let (Standing::Lost(claim), Some(record)) = (seen.standing(&slug), seen.record(&slug)) else {
                continue;
            };
            let is_left = claim.is_stale(self.now()) && self.now() >= self.free_at(record);
            if !claim.owner.includes(&self.owner) && !is_left {
                findings.push(format!(
                    "{}; nothing is left of its plan here: ask them to run `sess work doctor --repair`, or run it when their lease has lapsed",
                    claim.told(self.now())
                ));
                continue;
            }
            if self.end_claim(record, Phase::Released, "its directory and its plan are gone")?.is_some() {
                findings.push(format!("{slug} was released: its directory and its plan are gone; its branch stays: run `sess work list`"));
            }
        }
        Ok(())
    }

    /// Ends a claim that nobody works by any more; `None` when it changed meanwhile.
    pub(crate) fn end_claim(&self, record: &Record, phase: Phase, reason: &str) -> Result<Option<Record>> {
        let mut claim = record.claim.clone();
        claim.phase = phase;
        claim.renewed_at = self.now();
        claim.reason = Some(reason.to_owned());
        claim.nonce = crate::repo::random_hex();
        // Others may be without the branch, and the chain keeps its commits.
        let tip = claim.landed.as_ref().map(|landed| &landed.tip);
        let tip = tip.filter(|tip| self.repo.commit(tip.as_str()).is_ok_and(|found| found.is_some()));
        let parents: Vec<&Oid> = std::iter::once(&record.oid).chain(tip).collect();
        let oid = self.repo.write_claim(&claim, &parents)?;
        let name = self.repo.claim_ref(&claim.slug);
        match self.repo.advance(&[Move { name, from: Some(record.oid.clone()), to: Some(oid.clone()) }])? {
            Moved::Done => Ok(Some(Record { oid, claim })),
            Moved::Overtaken { .. } => Ok(None),
            Moved::Rejected(words) => {
                tracing::warn!(%words, slug = %claim.slug, "the claim could not be ended");
                Ok(None)
            }
        }
    }
}

fn told_shortly(claim: &Claim) -> String {
    let phase = claim.phase.as_str();
    format!("{phase}, fence {}, {} on {}", claim.fence, folded(&claim.user.name), folded(&claim.host))
}
