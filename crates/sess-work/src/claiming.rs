//! Taking a session, giving it back, and changing its plan. What its owner does meanwhile to have it still is in
//! `keeping`.

use std::path::PathBuf;

use sess_core::Timestamp;

use crate::{
    Amendment, Brief, Claim, Error, Kind, Move, Moved, Note, Oid, PLAN_FILE, Phase, Record, Result, Seen,
    Slug, State, Verb, Work,
    branch::Content,
    brief::plain_ended,
    projecting::{ENV_FILE, Step, message},
    repo::{CLAIMS, random_hex},
    templates::one_line,
    tree::{Edit, PLAIN},
    workspace::Workspace,
};

/// How often somebody else may be faster before we say so.
pub(crate) const TRIES_MAX: u32 = 8;

#[derive(Clone, Debug, Default)]
pub struct ClaimOptions {
    pub workspace: Workspace,
    /// Takes it although what it depends on is not done.
    pub ignore_dependencies: bool,
    pub lease_seconds: Option<u64>,
}

/// A session that the caller has now.
#[derive(Clone, Debug)]
pub struct Claimed {
    pub record: Record,
    pub workspace: Option<PathBuf>,
    /// It was the caller's already.
    pub is_resumed: bool,
    /// What could not be done yet, and that it will be.
    pub notices: Vec<String>,
}

impl Work {
    /// Takes a planned session; again by its owner, goes on with it.
    pub fn claim(&self, slug: &Slug, options: &ClaimOptions) -> Result<Claimed> {
        // Whoever was faster may have given it back already: the next look tells.
        for _ in 0..TRIES_MAX {
            let mut seen = self.see()?;
            self.end_late(&mut seen)?;
            let Some((record, is_resumed)) = self.take_seen(slug, &mut seen, options)? else { continue };
            if let Some(claimed) = self.settled(seen, record, options, is_resumed)? {
                return Ok(claimed);
            }
        }
        Err(Error::new(Kind::Claimed, format!("others are after {slug} all the time"))
            .next("sess work list --ready"))
    }

    /// Takes a session, from what was seen a moment ago, as far as that nobody else can; says whether it was the caller's
    /// already, and `None` when somebody else was faster since.
    ///
    /// What people see in the repository and the workspace follow with [`Work::claim`].
    pub fn take_seen(
        &self,
        slug: &Slug,
        seen: &mut Seen,
        options: &ClaimOptions,
    ) -> Result<Option<(Record, bool)>> {
        self.check(Verb::Claim, slug, seen)?;
        if let Some(record) = seen.record(slug).filter(|record| !record.claim.phase.has_ended()) {
            let record = self.renewed(record)?;
            seen.view.claims.insert(slug.clone(), record.clone());
            return Ok(Some((record, true)));
        }
        let claim = self.new_claim(slug, seen, options)?;
        self.check_leftover(slug, seen, &claim)?;
        let before = seen.record(slug).map(|record| &record.oid);
        // The remote has most of it already.
        let state = seen.tree.state(slug).unwrap_or(State::Planned);
        let dir = format!("{}:{}", seen.view.base, state.dir_of(slug));
        let oid = self.repo.write_claim_with(&dir, &claim, &before.into_iter().collect::<Vec<_>>())?;
        let record = Record { oid, claim };
        self.check_projection(seen, &record)?;
        match self.moved_claim(slug, before, &record.oid, None)? {
            Moved::Done => {
                seen.view.claims.insert(slug.clone(), record.clone());
                Ok(Some((record, false)))
            }
            Moved::Overtaken { .. } => Ok(None),
            Moved::Rejected(words) => Err(self.claim_rejected(&words)),
        }
    }

    /// Takes the first session that is ready, and that nobody else was faster with; `None` when there is none.
    pub fn claim_next(&self, label: Option<&str>, options: &ClaimOptions) -> Result<Option<Claimed>> {
        if options.workspace == Workspace::Clone {
            // Of each session alone this would look like one that is not ready.
            self.remote_of_clones()?;
        }
        let mut refused = None;
        for _ in 0..TRIES_MAX {
            let mut seen = self.see()?;
            self.end_late(&mut seen)?;
            let ready = self.list(&seen)?.into_iter().filter(|row| {
                row.ready && label.is_none_or(|label| row.labels.iter().any(|known| known == label))
            });
            let mut is_contended = false;
            refused = None;
            for row in ready {
                match self.take_seen(&row.slug, &mut seen, options) {
                    Ok(Some((record, is_resumed))) => {
                        if let Some(claimed) = self.settled(seen, record, options, is_resumed)? {
                            return Ok(Some(claimed));
                        }
                        // What was seen is old by now.
                        is_contended = true;
                        break;
                    }
                    Ok(None) => is_contended = true,
                    // Something of this clone's own is in the way of this one, and need not be in that of another.
                    Err(error) if matches!(error.kind, Kind::WouldLoseWork | Kind::WrongState) => {
                        refused = Some(error);
                    }
                    Err(error) => return Err(error),
                }
            }
            if !is_contended {
                break;
            }
        }
        refused.map_or(Ok(None), Err)
    }

    /// Fails when the workspace that is asked for cannot be made: nobody else shall wait for a session by that.
    fn check_place(&self, slug: &Slug, options: &ClaimOptions, seen: &Seen) -> Result<()> {
        match options.workspace {
            Workspace::Clone => self.remote_of_clones().map(drop)?,
            Workspace::Worktree => {}
            Workspace::None => return Ok(()),
        }
        // Nearly always all is well, and no git has to be asked.
        if let Err(error) = self.check_root()
            && self.workspace(slug).is_none()
        {
            return Err(error);
        }
        self.check_filters(&seen.view.base)
    }

    fn new_claim(&self, slug: &Slug, seen: &Seen, options: &ClaimOptions) -> Result<Claim> {
        self.check_place(slug, options, seen)?;
        if seen.view.is_in_the_way {
            return Err(Error::wrong_state(
                "this clone has a branch called session, and those of work sessions, session/…, cannot be beside it",
            )
            .next("git branch -m session <another name>"));
        }
        let entry = seen.tree.entries.get(slug);
        let plan = entry.and_then(|entry| entry.files.get(PLAN_FILE)).ok_or_else(|| {
            Error::wrong_state(format!("{slug} has no SESSION.md")).next(format!("sess work edit {slug}"))
        })?;
        let (plan, amendments) = self.amended(slug, &plan.oid, seen)?;
        let brief = Brief::of(slug, &self.repo.text_of(&plan)?)?;
        // Somebody may have pushed it by hand.
        brief.check_ready(slug)?;
        let unmet = unmet(&brief, seen);
        if !unmet.is_empty() && !options.ignore_dependencies {
            return Err(Error::wrong_state(format!(
                "{slug} depends on {}, which is not completed",
                unmet.join(", ")
            ))
            .next(format!("sess work claim {slug} --ignore-dependencies")));
        }
        let claim = self.first_claim(slug, &plan, seen, options)?;
        Ok(Claim { amendments, ..claim })
    }

    /// Returns the plan that whoever claims a session works by, and how it came to be: one that was amended before the
    /// session was given back, where the base never showed that.
    fn amended(&self, slug: &Slug, shown: &Oid, seen: &Seen) -> Result<(Oid, Vec<Amendment>)> {
        let before = seen.record(slug).map(|record| &record.claim);
        let amended = before.filter(|claim| {
            claim.phase == Phase::Released
                && claim.amendments.first().is_some_and(|first| first.from == *shown)
        });
        // Once the base has shown it, whoever made the plan what it was before did so on purpose.
        match amended {
            Some(claim) if !self.has_shown(slug, &claim.plan, &seen.view.base)? => {
                Ok((claim.plan.clone(), claim.amendments.clone()))
            }
            _ => Ok((shown.clone(), Vec::new())),
        }
    }

    /// Whether the base ever had a plan of a session.
    fn has_shown(&self, slug: &Slug, plan: &Oid, base: &Oid) -> Result<bool> {
        let find = format!("--find-object={plan}");
        let asked = ["log", "--max-count=1", "--no-renames", "--format=%H", &find, base.as_str(), "--"];
        let dirs: Vec<String> = State::ALL.iter().map(|state| state.dir_of(slug)).collect();
        let told = self.repo.git.text(asked.into_iter().chain(dirs.iter().map(String::as_str)))?;
        Ok(!told.trim().is_empty())
    }

    /// Returns the record that a claim of a plan begins with.
    pub(crate) fn first_claim(
        &self,
        slug: &Slug,
        plan: &Oid,
        seen: &Seen,
        options: &ClaimOptions,
    ) -> Result<Claim> {
        self.check_known()?;
        let before = seen.record(slug).map(|record| &record.claim);
        let now = self.now();
        Ok(Claim {
            slug: slug.clone(),
            phase: Phase::Active,
            owner: self.owner.clone(),
            user: self.user.clone(),
            agent: self.who.agent.clone(),
            host: self.who.host.clone(),
            pid: self.who.pid,
            base: self.repo.base.clone(),
            base_commit: seen.view.base.clone(),
            branch: slug.branch(),
            plan: plan.clone(),
            amendments: Vec::new(),
            fence: self.last_fence(slug, seen)?.saturating_add(1),
            attempt: before.map_or(1, |claim| claim.attempt),
            lease_seconds: options.lease_seconds.unwrap_or(self.settings.lease.as_secs()),
            claimed_at: now,
            renewed_at: now,
            nonce: random_hex(),
            reason: None,
            landed: None,
            offered: before.is_some_and(|claim| claim.offered),
            unknown: serde_json::Map::new(),
        })
    }

    /// Does what follows upon a claim: the projection, the branch, the workspace. Each of them may be done already.
    ///
    /// `None` when the claim came too late, and has ended.
    pub(crate) fn settled(
        &self,
        seen: Seen,
        mut record: Record,
        options: &ClaimOptions,
        is_resumed: bool,
    ) -> Result<Option<Claimed>> {
        let slug = record.claim.slug.clone();
        let although = |error: Error| error.although(&format!("{slug} is yours"));
        let mut notices = Vec::new();
        // As it was seen before the claim: whoever had the session could not share anything more since.
        let shared = seen.shared_tip(&slug).cloned();
        let Some(start) = self.shown(seen, &mut record, &mut notices).map_err(although)? else {
            return Ok(None);
        };
        self.placed(&start, shared.as_ref(), record, options, is_resumed, notices).map(Some).map_err(although)
    }

    /// Shows a claim on the base, and returns where its branch begins; `None` when it has ended instead.
    fn shown(&self, seen: Seen, record: &mut Record, notices: &mut Vec<String>) -> Result<Option<Oid>> {
        let (slug, fence) = (&record.claim.slug.clone(), record.claim.fence);
        let is_ours = |seen: &Seen| {
            let standing = seen.standing(slug);
            standing.holder().is_some_and(|now| now.owner.includes(&self.owner) && now.fence == fence)
        };
        match self.roll_forward_from(seen) {
            Ok(seen) => Ok(is_ours(&seen).then_some(seen.view.base)),
            Err(error) => {
                // Where the base does not show it, that it is worked by is only told by a renewal.
                let seen = self.kept(slug, self.see_or_recall()?);
                // It may have ended on the way, which nobody can tell who sees only what there was.
                if !seen.view.is_old && !is_ours(&seen) {
                    return Ok(None);
                }
                if let Some(now) = seen.record(slug) {
                    record.clone_from(now);
                }
                // The claim stands; whoever comes next makes up for it.
                notices.push(format!(
                    "{slug} is yours, and {} does not show it yet: {}",
                    self.repo.base,
                    error.message()
                ));
                self.chained(&seen.tree, &self.pending(&seen, Some(slug))?).map(Some)
            }
        }
    }

    /// Makes the branch and the workspace of a session that is the caller's.
    fn placed(
        &self,
        start: &Oid,
        shared: Option<&Oid>,
        record: Record,
        options: &ClaimOptions,
        is_resumed: bool,
        mut notices: Vec<String>,
    ) -> Result<Claimed> {
        let slug = &record.claim.slug;
        if is_resumed && shared.is_none() && self.tip(slug)?.is_none() {
            notices.push(format!(
                "{} was gone, and begins anew at {}: `git for-each-ref refs/intersession/rescue/{slug}` and `git fsck --lost-found` tell what it had",
                slug.branch(),
                start.short()
            ));
        }
        self.ensure_branch(slug, start, shared, &record, &mut notices)?;
        let workspace = self.ensure_workspace(slug, &options.workspace, &mut notices)?;
        // The fence is written last: without it, whoever claimed the session was stopped on the way.
        if !is_resumed || self.fence_of(slug)? != Some(record.claim.fence) {
            self.catch_up_with_base(slug, &record, start)?;
        }
        self.keep_fence(workspace.as_deref(), &record)?;
        if !is_resumed {
            notices.extend(self.odd_template(start, &record.claim)?);
            notices.extend(self.missing_hooks(start)?);
        }
        Ok(Claimed { record, workspace, is_resumed, notices })
    }

    /// Takes a session from somebody whose lease has lapsed.
    pub fn takeover(
        &self,
        slug: &Slug,
        force: bool,
        reason: Option<&str>,
        options: &ClaimOptions,
    ) -> Result<Claimed> {
        if force && reason.is_none_or(|reason| reason.trim().is_empty()) {
            return Err(Error::usage("--force needs a reason, for whoever loses the session")
                .next(format!("sess work takeover {slug} --force --reason …")));
        }
        let mut seen = self.see()?;
        self.check_place(slug, options, &seen)?;
        self.check(Verb::Takeover { force }, slug, &seen)?;
        let record =
            seen.record(slug).ok_or_else(|| Error::failed(format!("the claim of {slug} is gone")))?;
        if !force {
            self.check_left_alone(slug, &seen, record)?;
        }
        let mut claim = record.claim.clone();
        let now = self.now();
        claim.owner = self.owner.clone();
        claim.user = self.user.clone();
        claim.agent.clone_from(&self.who.agent);
        claim.host.clone_from(&self.who.host);
        claim.pid = self.who.pid;
        claim.fence = claim.fence.saturating_add(1);
        claim.lease_seconds = options.lease_seconds.unwrap_or(self.settings.lease.as_secs());
        (claim.claimed_at, claim.renewed_at) = (now, now);
        claim.nonce = random_hex();
        let back = self.taken_back(slug, &seen);
        let not_taken = self.not_taken(slug, &seen, record)?;
        (claim.phase, claim.landed) = (Phase::Active, None);
        claim.reason = Some(reason.map_or_else(|| "its lease had lapsed".to_owned(), str::to_owned));
        self.check_leftover(slug, &seen, &claim)?;
        let before = record.oid.clone();
        let oid = self.repo.write_claim(&claim, &[&before])?;
        let record = Record { oid, claim };
        self.check_projection(&seen, &record)?;
        match self.moved_claim(slug, Some(&before), &record.oid, back.as_ref())? {
            Moved::Done => {
                seen.view.claims.insert(slug.clone(), record.clone());
                if let Some(tip) = back.as_ref().and_then(|back| back.to.clone()) {
                    seen.view.branches.insert(slug.clone(), tip);
                }
                match self.settled(seen, record, options, false)? {
                    Some(mut claimed) => {
                        claimed.notices.extend(not_taken);
                        self.handed_over(claimed)
                    }
                    None => Err(self.overtaken(slug)?),
                }
            }
            Moved::Overtaken { .. } => Err(self.overtaken(slug)?),
            Moved::Rejected(words) if back.is_some() => Err(self.branch_rejected(slug, &words)),
            Moved::Rejected(words) => Err(self.claim_rejected(&words)),
        }
    }

    /// Says who was faster.
    pub(crate) fn overtaken(&self, slug: &Slug) -> Result<Error> {
        let standing = self.see()?.standing(slug);
        let told = match (standing.holder(), standing.state()) {
            (Some(claim), _) => claim.told(self.now()),
            (None, Some(state)) => format!("others were faster, and {slug} is {state} by now"),
            (None, None) => format!("{slug} was removed meanwhile"),
        };
        Ok(Error::new(Kind::Claimed, told).next(format!("sess work show {slug}")))
    }

    /// Shows who has a session now, on the base and on its branch, which both say who had it before.
    fn handed_over(&self, mut claimed: Claimed) -> Result<Claimed> {
        let claim = &claimed.record.claim;
        let slug = &claim.slug;
        let text = message(slug, "Take over session", &self.by(), Some(&claimed.record));
        let shown = self.on_base(|seen| {
            let edits = self.beginnings(seen, slug, claim)?;
            let mut is_new = false;
            for edit in &edits {
                is_new |= match edit {
                    Edit::Put(path, file) => seen.tree.files.get(path) != Some(file),
                    Edit::Write(path, text) => seen.tree.files.get(path) != Some(&self.repo.file(text)?),
                    Edit::Remove(_) => true,
                };
            }
            // The file of claims says since when somebody has it.
            is_new |= self.lock_edit(seen, None)?.is_some();
            Ok(is_new.then(|| Step { message: text.clone(), edits }))
        });
        match shown {
            Ok(seen) => {
                let path = format!("{}/{ENV_FILE}", State::Active.dir_of(slug));
                if let Some(file) = seen.tree.files.get(&path) {
                    self.write_on_branch(slug, &[(path.clone(), self.repo.text_of(&file.oid)?)], &text)?;
                }
            }
            Err(error) => {
                let what = error.message();
                claimed.notices.push(format!("{} does not show it yet: {what}", self.repo.base));
            }
        }
        Ok(claimed)
    }

    /// Returns from when on a lease has lapsed by every clock: that of another clone may be wrong.
    pub(crate) fn free_at(&self, record: &Record) -> Timestamp {
        match record.claim.owner.clone == self.owner.clone {
            true => record.claim.lapses_at(),
            false => record.claim.left_at(self.first_seen(record)),
        }
    }

    /// Fails when the lease has lapsed and yet somebody seems to be at work.
    fn check_left_alone(&self, slug: &Slug, seen: &Seen, record: &Record) -> Result<()> {
        let refuse = |what: String| {
            Err(Error::would_lose(what).next(format!("sess work takeover {slug} --force --reason …")))
        };
        let lapsed_at = record.claim.lapses_at();
        let free_at = self.free_at(record);
        if self.now() < free_at {
            return Err(Error::new(
                Kind::Claimed,
                format!("the lease of {slug} lapsed at {lapsed_at}, but clocks differ, and this clone has not seen it unchanged for as long as it lasts: it can be taken from {free_at} on"),
            )
            .next(format!("sess work takeover {slug} --force --reason …")));
        }
        let here = self.workspace(slug).map(|path| self.repo.git.at(&path).oid(["rev-parse", "HEAD"]));
        // What is not shared, or beside the branch, is a sign of life, too.
        let tips = [seen.view.branches.get(slug).cloned(), self.tip(slug)?, here.and_then(Result::ok)];
        for tip in tips.into_iter().flatten() {
            let told = self.repo.git.text(["show", "--no-patch", "--format=%ct", tip.as_str()])?;
            let committed_ms = told.trim().parse::<i64>().unwrap_or_default().saturating_mul(1_000);
            if committed_ms > lapsed_at.as_millis() {
                return refuse(format!("the branch of {slug} has a commit that is newer than its lease"));
            }
        }
        if let Some(what) = self.unfinished(slug)? {
            return refuse(format!("the workspace of {slug} in this clone {what}"));
        }
        Ok(())
    }

    pub(crate) fn claim_rejected(&self, words: &str) -> Error {
        if let Some(denied) = self.repo.denied(words) {
            return denied;
        }
        let place = self.repo.remote.as_deref().unwrap_or("this repository");
        let told = format!("{place} does not take a claim: {words}");
        // Only a place that not all hosts have is one that `init` finds another one for.
        if self.repo.claims() == CLAIMS {
            return Error::new(Kind::Rejected, told).next("sess work init");
        }
        Error::new(
            Kind::Rejected,
            format!("{told}; ask whoever keeps it, or name another remote that you may push to"),
        )
        .next("git config intersession.remote <remote>")
    }

    /// Gives a session back: it is planned again, and its branch stays for whoever takes it next.
    pub fn release(&self, slug: &Slug, reason: Option<&str>) -> Result<Vec<String>> {
        self.end(slug, Phase::Released, reason)
    }

    /// Gives a session up, for a reason that others can read.
    pub fn abandon(&self, slug: &Slug, reason: &str) -> Result<Vec<String>> {
        if reason.trim().is_empty() {
            return Err(Error::usage("abandoning needs a reason")
                .next(format!("sess work abandon {slug} --reason …")));
        }
        self.end(slug, Phase::Abandoned, Some(reason))
    }

    fn end(&self, slug: &Slug, phase: Phase, reason: Option<&str>) -> Result<Vec<String>> {
        // An ended claim says nothing about a directory that never followed it.
        let seen = self.roll_forward().or_else(|_| self.see())?;
        let record = self.record_for(Verb::End, slug, &seen)?;
        self.check_finished(slug)?;
        let mut ended = record.clone();
        ended.claim.phase = phase;
        self.check_projection(&seen, &ended)?;
        // Whoever goes on with it has both what others changed in the pull request and what is new here, which would stay
        // in this clone alone. First of all, because what does not go together is merged by hand, and this run again.
        self.take_in_reviewed(slug)?;
        let what = if phase == Phase::Abandoned { "abandoned" } else { "released" };
        let reason = reason.map(str::trim).filter(|reason| !reason.is_empty()).map(str::to_owned);
        if let Some(reason) = &reason
            && self.tip(slug)?.is_some()
        {
            self.write_note(slug, &record, Note::Log, &format!("{what} by {}: {reason}", self.by()))?;
        }
        let branch = self.branch_move(slug, &seen)?;
        let mut notices: Vec<String> = self.apart(slug, &seen)?.into_iter().collect();
        notices.extend(self.not_taken(slug, &seen, &record)?);
        let end = |branch: &[Move]| {
            let change = |claim: &mut Claim| {
                claim.phase = phase;
                claim.reason.clone_from(&reason);
                claim.landed = None;
            };
            self.replaced(&record, change, branch, true)
        };
        match end(branch.as_slice()) {
            // Some remotes do not take a branch back to what was handed over.
            Err(error) if error.kind == Kind::Rejected && record.claim.waits() && branch.is_some() => {
                self.go_on_from_offered(slug, &seen, &record)?;
                end(self.branch_move(slug, &seen)?.as_slice())?
            }
            ended => ended?,
        };
        let (branch, base) = (slug.branch(), &self.repo.base);
        let waited_here = self.forget_landed(slug)?;
        if record.claim.waits() {
            let left = match waited_here {
                true => format!("do not bring it to {base} any more"),
                false => format!("close the pull request from {branch} to {base}"),
            };
            notices.push(format!("what waited to be merged is taken back: {left}"));
        }
        if let Err(error) = self.roll_forward() {
            notices.push(format!("{} does not show it yet: {}", self.repo.base, error.message()));
        }
        self.clean_up_at_last(slug, phase, &[], &mut notices);
        Ok(notices)
    }

    /// Records a change of the plan, with what it was before and why. One that is the plan already is brought back to
    /// the branch when that has another.
    pub fn amend(&self, slug: &Slug, text: Option<&str>, reason: &str) -> Result<Record> {
        if reason.trim().is_empty() {
            return Err(Error::usage("an amendment needs a reason")
                .next(format!("sess work amend {slug} --reason …")));
        }
        let seen = self.see()?;
        let record = self.own_record(slug, &seen)?;
        let path = format!("{}/{PLAN_FILE}", State::Active.dir_of(slug));
        let text = match text {
            Some(text) => text.to_owned(),
            None => {
                let file = self.workspace_path(slug).join(&path);
                std::fs::read_to_string(&file).map_err(|error| {
                    Error::wrong_state(format!("cannot read {}: {error}", file.display()))
                        .next(format!("sess work amend {slug} --file <file> --reason …"))
                })?
            }
        };
        let text = plain_ended(&text);
        // Whoever takes the session later has to be able to work by it.
        Brief::parse(&text)
            .and_then(|brief| brief.check_ready(slug))
            .map_err(|error| error.next(format!("sess work amend {slug} --file <file> --reason …")))?;
        let known = self.repo.bytes_of(&record.claim.plan)?;
        let is_known = text == plain_ended(&String::from_utf8_lossy(&known));
        let (bytes, verb) = match is_known {
            true => (known, "Bring the plan back"),
            false => (text.into_bytes(), "OVERRIDE"),
        };
        let plan = self.repo.write_blob(&bytes)?;
        let shown = match self.tip(slug)? {
            Some(tip) => self.repo.files_of(tip.as_str(), &path)?.remove(&path),
            None => None,
        };
        if is_known && shown.is_some_and(|file| file.oid == plan) {
            return Err(Error::wrong_state(format!("the plan of {slug} is as it was"))
                .next(format!("sess work status {slug}")));
        }
        let what = format!("{verb}: {}", one_line(reason.trim()));
        let file = (path, Content { mode: PLAIN.to_owned(), bytes });
        self.change_on_branch(slug, &message(slug, &what, &self.by(), Some(&record)), |_| Ok(vec![file]))?;
        let seen = self.see()?;
        let branch = self.branch_move(slug, &seen)?;
        let amendment = (!is_known).then(|| Amendment {
            at: self.now(),
            from: record.claim.plan.clone(),
            to: plan.clone(),
            reason: reason.trim().to_owned(),
        });
        self.replaced(
            &record,
            |claim| {
                claim.plan = plan.clone();
                claim.amendments.extend(amendment.clone());
            },
            branch.as_slice(),
            true,
        )
    }
}

/// Returns what a plan depends on and is not completed.
pub(crate) fn unmet(brief: &Brief, seen: &Seen) -> Vec<String> {
    let is_unmet = |slug: &&Slug| seen.standing(slug).state() != Some(State::Completed);
    brief.depends.iter().filter(is_unmet).map(Slug::to_string).collect()
}
