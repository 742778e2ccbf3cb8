//! Bringing work to the base branch: everything that can fail comes first, then one step that others see.

use std::{
    collections::BTreeMap,
    fs::File as Output,
    io::{Read as _, Seek as _, SeekFrom},
    process::{Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use sess_core::mention::first_of;

use crate::{
    Brief, Claim, Error, Kind, Land, Landed, Move, Moved, Note, Oid, PLAN_FILE, Phase, Record, Result, Seen,
    Slug, Standing, State, Verb, Work,
    checkout::status_command,
    drafting,
    git::{pause, words_of},
    policy::BasePlan,
    projecting::{ENV_FILE, Step, message},
    templates::{self, one_line},
    tree::{Edit, File, PLAIN},
};

/// How long landing is tried for, while others land, too.
const PATIENCE: Duration = Duration::from_secs(60);
/// How much of what a gate said is shown.
const GATE_OUTPUT_BYTES_MAX: u64 = 4_000;
pub(crate) const PATHS_SHOWN_MAX: usize = 20;

/// What became of a session that was completed.
#[derive(Clone, Debug)]
pub struct Completed {
    pub record: Record,
    /// The session that merges what was learned.
    pub kb: Option<Slug>,
    pub notices: Vec<String>,
}

/// Work that is ready to land.
struct Ready {
    seen: Seen,
    record: Record,
    tip: Oid,
    brief: Brief,
    /// The base and the work together.
    tree: Oid,
    /// The session's own files, as its branch has them.
    own: BTreeMap<String, File>,
}

/// A commit of a session's branch that tells what it has of the base.
struct Mark {
    commit: Oid,
    base: Oid,
    /// The claim was shown by it; else the base was merged.
    is_begin: bool,
}

impl Work {
    /// Merges the base into the session's branch.
    pub fn sync(&self, slug: &Slug) -> Result<Oid> {
        let ready = self.ready_to_land(Verb::Own, slug)?;
        let base = ready.seen.view.base.clone();
        if self.repo.is_ancestor(&base, &ready.tip)? {
            self.shared(slug, &ready.seen, &ready.record)?;
            return Ok(ready.tip);
        }
        let tree = self.composed(&ready, slug, State::Active, Vec::new())?;
        let text = message(slug, &format!("Merge {}", self.repo.base), &self.by(), Some(&ready.record));
        let merge = self.repo.commit_tree(&tree, &[&ready.tip, &base], &text)?;
        self.forward_branch(slug, &ready.tip, &merge)?;
        let seen = self.see()?;
        self.shared(slug, &seen, &ready.record)?;
        Ok(merge)
    }

    /// Lands the work so far, and goes on.
    pub fn land(&self, slug: &Slug) -> Result<Oid> {
        if self.settings.land != Land::Push {
            return Err(Error::wrong_state(
                "work is landed once, by others, when it is complete: that is how `land` is set",
            )
            .next(format!("sess work complete {slug}")));
        }
        let begun = Instant::now();
        let judged = self.pass_gates(Verb::Own, slug)?;
        loop {
            let ready = self.ready_to_land(Verb::Own, slug)?;
            check_judged(slug, judged.as_ref(), &ready.tip)?;
            self.check_whole(slug, &ready.seen, &ready.record, &ready.tip)?;
            // It would be overwritten, and nobody would be told any more.
            if let Some(plan) = self.plan_on_base(slug, &ready.record.claim, &ready.seen)? {
                return Err(Error::policy(plan.told).next(plan.next));
            }
            let base = ready.seen.view.base.clone();
            let tree = self.composed(&ready, slug, State::Active, Vec::new())?;
            if tree == self.repo.git.oid(["rev-parse", &format!("{base}^{{tree}}")])? {
                // There is nothing that is not there already.
                self.shared(slug, &ready.seen, &ready.record)?;
                return Ok(base);
            }
            let what = format!("Land: {}", one_line(&ready.brief.title));
            let commit = self.repo.commit_tree(
                &tree,
                &[&base],
                &message(slug, &what, &self.by(), Some(&ready.record)),
            )?;
            if self.push_landed(slug, &ready, &commit, begun, |_| {})?.is_none() {
                continue;
            }
            let text = message(slug, &format!("Merge {}", self.repo.base), &self.by(), Some(&ready.record));
            let merge = self.repo.commit_tree(&tree, &[&ready.tip, &commit], &text)?;
            self.forward_branch(slug, &ready.tip, &merge)?;
            return Ok(commit);
        }
    }

    /// Ends a session with its work on the base branch.
    pub fn complete(&self, slug: &Slug, notes: Option<&str>) -> Result<Completed> {
        let begun = Instant::now();
        self.take_in_reviewed(slug)?;
        let judged = self.pass_gates(Verb::End, slug)?;
        loop {
            let ready = self.ready_to_land(Verb::End, slug)?;
            check_judged(slug, judged.as_ref(), &ready.tip)?;
            self.check_whole(slug, &ready.seen, &ready.record, &ready.tip)?;
            let (edits, kb, plan) = self.closing(&ready, slug, notes)?;
            let tree = self.composed(&ready, slug, State::Completed, edits)?;
            let tree = self.with_patch(&ready, slug, &tree)?;
            let base = ready.seen.view.base.clone();
            let what = format!("Session complete: {}", one_line(&ready.brief.title));
            let commit = self.repo.commit_tree(
                &tree,
                &[&base],
                &message(slug, &what, &self.by(), Some(&ready.record)),
            )?;
            let landed = Landed {
                base,
                commit: commit.clone(),
                tip: ready.tip.clone(),
                plan: ready.record.claim.plan.clone(),
                plan_completed: plan,
            };
            let mut notices = Vec::new();
            if let Some(plan) = self.plan_on_base(slug, &ready.record.claim, &ready.seen)? {
                let BasePlan { told, commit, .. } = plan;
                notices.push(format!("{told}, which is what lands: `git show {commit}` has the other"));
            }
            notices.extend(self.not_taken(slug, &ready.seen, &ready.record)?);
            let left = self.left_behind(slug, &ready.seen, &ready.tip)?;
            if !left.is_empty() {
                notices.push(format!(
                    "the directory of sessions is that of {}, so these do not land: {}; `git show {}` has them",
                    self.repo.base,
                    first_of(&left, PATHS_SHOWN_MAX),
                    ready.tip.short()
                ));
            }
            if self.settings.land != Land::Push {
                let record = self.hand_over(slug, &ready, &commit, &landed, &mut notices)?;
                return Ok(Completed { record, kb, notices });
            }
            let finish = |claim: &mut Claim| {
                claim.phase = Phase::Completed;
                // Why it was taken from somebody is not why it ended.
                claim.reason = None;
                claim.landed = Some(landed);
            };
            let Some(record) = self.push_landed(slug, &ready, &commit, begun, finish)? else { continue };
            // What waited to be merged until now is replaced by what landed.
            let waited = ready.record.claim.landed.map(|landed| landed.commit);
            // What others see may have other names, when the branch was brought to another base: it was checked that
            // nothing of it is left behind.
            let shared = ready.seen.view.branches.get(slug).cloned();
            if let Some(shared) = &shared {
                self.keep_for_rescue(slug, shared)?;
            }
            let ends: Vec<Oid> = std::iter::once(ready.tip).chain(waited).chain(shared).collect();
            self.clean_up_at_last(slug, Phase::Completed, &ends, &mut notices);
            if let Err(error) = self.archive() {
                tracing::debug!(%error, "ended claims stay where they are for now");
            }
            return Ok(Completed { record, kb, notices });
        }
    }

    /// Checks everything that can be checked before others see anything.
    fn ready_to_land(&self, verb: Verb, slug: &Slug) -> Result<Ready> {
        let seen = self.see()?;
        self.check_base_kept(slug, &seen)?;
        let record = self.record_for(verb, slug, &seen)?;
        self.check_finished(slug)?;
        let tip = self.tip(slug)?.ok_or_else(|| {
            Error::wrong_state(format!("the branch {} is not in this clone", slug.branch()))
                .next(format!("sess work claim {slug}"))
        })?;
        let own = self.repo.own_files(slug, &tip)?;
        // What the base does not have any more would be taken for the session's own.
        self.check_not_rewritten(&record, &tip, &seen)?;
        let refused = self.refused(slug, &record.claim, &tip, &seen, None)?;
        if !refused.is_empty() {
            let plan = own.get(PLAN_FILE).map(|file| &file.oid);
            return Err(Error::policy(refused.join("; and ")).next(match plan {
                Some(plan) if *plan == record.claim.plan => self.restore_command(slug, &seen, &tip)?,
                Some(_) => format!("sess work amend {slug} --reason …"),
                None => format!(
                    "git show {} | sess work amend {slug} --file - --reason …",
                    record.claim.plan.short()
                ),
            }));
        }
        let brief = Brief::parse(&self.repo.text_of(&record.claim.plan)?)?;
        let tree = self.merged(slug, &seen, &tip)?;
        self.check_knowledge(slug, &brief, &seen.view.base, &tree)?;
        Ok(Ready { seen, record, tip, brief, tree, own })
    }

    /// Returns why work of the caller's cannot be brought to the base as it is.
    pub(crate) fn obstacles(
        &self,
        slug: &Slug,
        record: &Record,
        tip: &Oid,
        seen: &Seen,
    ) -> Result<Vec<String>> {
        let mut told = Vec::new();
        if let Some(what) = self.unfinished(slug)? {
            told.push(format!("the workspace of {slug} {what}"));
        }
        let merged =
            self.check_not_rewritten(record, tip, seen).and_then(|()| self.merged(slug, seen, tip).map(drop));
        let brief = Brief::parse(&self.repo.text_of(&record.claim.plan)?)?;
        let gates = brief.gates.iter().try_for_each(|gate| self.gate(slug, gate).map(drop));
        let learned = self.repo.text_at(tip, &Note::Learning.path(slug))?;
        let kb = match learned {
            Some(_) if !slug.is_kb() => self.merging_plan(slug, seen).map(drop),
            _ => Ok(()),
        };
        // What others changed in a pull request is taken in.
        let whole = match self.reviewed(slug, seen, record, tip)? {
            Some(_) => Ok(()),
            None => self.check_whole(slug, seen, record, tip),
        };
        for checked in [merged, whole, gates] {
            match checked {
                Err(error) if error.kind == Kind::Failed => return Err(error),
                Err(error) => told.push(error.message().to_owned()),
                Ok(()) => {}
            }
        }
        told.extend(kb.err().map(|error| error.message().to_owned()));
        Ok(told)
    }

    /// Fails when the base was rewritten, and the session's directory was lost or set back with that. It is put back
    /// first, as it was when the session was claimed: the session's own commits go on from there.
    fn check_base_kept(&self, slug: &Slug, seen: &Seen) -> Result<()> {
        let (Standing::Lost(claim) | Standing::Pending { claim, to: State::Active }, Some(record)) =
            (seen.standing(slug), seen.record(slug))
        else {
            return Ok(());
        };
        let tip = self.tip(slug)?.filter(|_| claim.owner.includes(&self.owner));
        let Some(tip) = tip else { return Ok(()) };
        if self.rewritten(record, &tip, seen)?.is_none() {
            return Ok(());
        }
        let mut begun = BTreeMap::new();
        if let Some(begin) = self.marks(record, &tip)?.into_iter().rfind(|mark| mark.is_begin) {
            begun = self.repo.files_of(begin.commit.as_str(), &State::Active.dir_of(slug))?;
        }
        let restored = self.on_base(|seen| {
            // What only has to follow its claim has done so on the way.
            let Standing::Lost(claim) = seen.standing(slug) else { return Ok(None) };
            let edits = match begun.is_empty() {
                true => self.restored(slug, &claim, seen)?,
                false => begun.iter().map(|(path, file)| Edit::Put(path.clone(), file.clone())).collect(),
            };
            let message = message(slug, "Repair session", &self.by(), Some(record));
            Ok((!edits.is_empty()).then_some(Step { message, edits }))
        });
        self.check_not_rewritten(record, &tip, &restored.or_else(|_| self.see())?)
    }

    /// Fails when the base does not have any more what the branch has of it.
    fn check_not_rewritten(&self, record: &Record, tip: &Oid, seen: &Seen) -> Result<()> {
        let Some(after) = self.rewritten(record, tip, seen)? else { return Ok(()) };
        if self.repo.is_shallow {
            return Err(Error::wrong_state(
                "this clone is shallow: it does not know enough of the base to merge",
            )
            .next("git fetch --unshallow"));
        }
        let (base, slug) = (&self.repo.base, &record.claim.slug);
        Err(Error::new(Kind::Conflict, format!("{base} was rewritten since {slug} was claimed")).next(
            format!(
                "git -C {} rebase --onto {} {}",
                crate::quoted(self.workspace_path(slug).display()),
                seen.view.base.short(),
                after.short()
            ),
        ))
    }

    /// Returns the commit of a branch after which everything is the session's own, when the base does not have any more
    /// what the branch has of it.
    fn rewritten(&self, record: &Record, tip: &Oid, seen: &Seen) -> Result<Option<Oid>> {
        let (last, after) = match self.marks(record, tip)?.into_iter().next() {
            // The base shows the claim by a commit of its own.
            Some(Mark { commit, base, is_begin: true }) => (base, commit),
            Some(Mark { base, .. }) => (base.clone(), base),
            None => (record.claim.base_commit.clone(), record.claim.base_commit.clone()),
        };
        if self.repo.is_ancestor(&last, &seen.view.base)? {
            return Ok(None);
        }
        // A branch that was brought to the new base has only what both bases have, or nothing of the old one.
        let is_brought = match self.repo.merge_base(&last, tip)? {
            Some(common) => self.repo.is_ancestor(&common, &seen.view.base)?,
            None => !self.repo.is_shallow && self.repo.merge_base(tip, &seen.view.base)?.is_some(),
        };
        Ok((!is_brought).then_some(after))
    }

    /// Returns the base that was merged last into a session's branch by `sync` or `land`; else the one that the commit
    /// of its claim was made on.
    ///
    /// That commit itself does not count: it says again what the claim says, and comes back with the next verb.
    pub(crate) fn last_of_base(&self, record: &Record, tip: &Oid) -> Result<Option<Oid>> {
        Ok(self.marks(record, tip)?.into_iter().next().map(|mark| mark.base))
    }

    /// Returns the commits of a session's branch that tell what it has of the base, newest first.
    fn marks(&self, record: &Record, tip: &Oid) -> Result<Vec<Mark>> {
        let Claim { slug, base_commit, .. } = &record.claim;
        // A clone that came later may not have what the base lost.
        let since = self.repo.commit(base_commit.as_str())?.map(|base| format!("^{base}"));
        let (merge, begin) =
            (format!("[{slug}] Merge {}", self.repo.base), format!("[{slug}] Claim session"));
        let (merges, begins) = (format!("--grep={merge}"), format!("--grep={begin}"));
        let format = "--format=%H%x09%P%x09%s";
        let asked = ["log", "--first-parent", format, "--fixed-strings", &merges, &begins, tip.as_str()];
        let told = self.repo.git.text(asked.into_iter().chain(since.as_deref()))?;
        let mark = |line: &str| {
            let mut parts = line.splitn(3, '\t');
            let (commit, parents, subject) = (parts.next()?, parts.next()?, parts.next()?);
            // Anybody may write such words into a message.
            let (base, is_begin) = match parents.split_once(' ') {
                Some((_, merged)) => (Some(merged).filter(|_| subject == merge), false),
                None => (Some(parents).filter(|_| subject == begin), true),
            };
            Some(Mark { commit: commit.parse().ok()?, base: base?.parse().ok()?, is_begin })
        };
        Ok(told.lines().filter_map(mark).collect())
    }

    /// Puts the session's own files, as its branch has them, where they belong now.
    fn composed(&self, ready: &Ready, slug: &Slug, to: State, extra: Vec<Edit>) -> Result<Oid> {
        let own = ready.own.iter().filter(|(name, _)| to == State::Active || *name != ENV_FILE);
        let own = own.map(|(name, file)| (name.clone(), file.clone()));
        let mut edits = ready.seen.tree.replaced(slug, to, own);
        edits.extend(extra);
        self.repo.edited(&ready.tree, &edits)
    }

    /// Returns what else changes when a session ends: final notes, the claims' file, what was learned.
    fn closing(
        &self,
        ready: &Ready,
        slug: &Slug,
        notes: Option<&str>,
    ) -> Result<(Vec<Edit>, Option<Slug>, Oid)> {
        let mut edits = Vec::new();
        // What others merge later must not contradict who has claimed something else meanwhile.
        if self.settings.land == Land::Push {
            edits.extend(self.lock_edit(&ready.seen, Some(slug))?);
        }
        let claim = &ready.record.claim;
        let mut plan = claim.plan.clone();
        let noted = match notes.map(str::trim).filter(|notes| !notes.is_empty()) {
            Some(notes) => {
                let text = self.repo.text_of(&plan)?;
                Some(self.repo.file(&format!("{}\n\n## Final Notes\n\n{notes}\n", text.trim_end()))?)
            }
            // What was noted before stays, as long as it is about the same plan.
            None => {
                let offered = claim.landed.as_ref().filter(|offered| offered.plan == plan);
                let noted = offered.map(|offered| &offered.plan_completed).filter(|noted| **noted != plan);
                noted.map(|noted| File { mode: PLAIN.to_owned(), oid: noted.clone() })
            }
        };
        if let Some(file) = noted {
            plan = file.oid.clone();
            edits.push(Edit::Put(format!("{}/{PLAN_FILE}", State::Completed.dir_of(slug)), file));
        }
        let learnings = Note::Learning.path(slug);
        let has_learned = self.repo.files_of(ready.tree.as_str(), &learnings)?.contains_key(&learnings);
        if !has_learned || slug.is_kb() {
            return Ok((edits, None, plan));
        }
        let (kb, text) = self.merging_plan(slug, &ready.seen)?;
        edits.extend(self.kb_session(&kb, &text, &format!("made when {slug} was completed"))?);
        Ok((edits, Some(kb), plan))
    }

    /// Returns the session that merges what a session learned, with its plan.
    fn merging_plan(&self, slug: &Slug, seen: &Seen) -> Result<(Slug, String)> {
        let others = self.offered_beside(Some(slug), seen)?;
        let is_free = |kb: &Slug| !drafting::is_taken(kb, seen) && !others.contains(kb);
        let kb = match self.offered_with(slug, seen)?.filter(is_free) {
            // On another day, too: those who have seen it know it by that name.
            Some(kb) => kb,
            None => drafting::free_beside(&Slug::kb_merge(slug.topic(), self.day()?), seen, &others)?,
        };
        let own = self.template(&seen.tree, templates::KB_MERGE)?;
        let text = templates::kb_merge(&kb, slug, self.now(), own.as_deref())?;
        Ok((kb, text))
    }

    /// Adds the patch of everything that lands, but for itself.
    fn with_patch(&self, ready: &Ready, slug: &Slug, tree: &Oid) -> Result<Oid> {
        let base = &ready.seen.view.base;
        // What a person likes diffs to be, `diff-tree` does not heed but for empty lines; `git apply` has to read it.
        let ended = self.repo.git.run([
            "-c",
            "diff.suppressBlankEmpty=false",
            "diff-tree",
            "-r",
            "--patch",
            "--binary",
            "--full-index",
            "--unified=3",
            "--inter-hunk-context=0",
            "--diff-algorithm=myers",
            "--indent-heuristic",
            "--no-relative",
            "--submodule=short",
            "--ignore-submodules=none",
            "--no-ext-diff",
            "--no-textconv",
            "--no-color",
            "--no-renames",
            "--src-prefix=a/",
            "--dst-prefix=b/",
            base.as_str(),
            tree.as_str(),
        ])?;
        if !ended.is_ok() {
            return Err(Error::failed(format!("git diff-tree failed: {}", words_of(&ended.stderr))));
        }
        let mut patch = format!("Session: {slug}\nBase: {base}\n\n").into_bytes();
        patch.extend(ended.stdout);
        let file = File { mode: PLAIN.to_owned(), oid: self.repo.write_blob(&patch)? };
        self.repo.edited(tree, &[Edit::Put(format!("{}/{slug}.patch", State::Completed.dir_of(slug)), file)])
    }

    /// Moves the base and the claim together; `None` when somebody else landed first and it has to be tried anew.
    fn push_landed(
        &self,
        slug: &Slug,
        ready: &Ready,
        commit: &Oid,
        begun: Instant,
        change: impl FnOnce(&mut Claim),
    ) -> Result<Option<Record>> {
        let Ready { seen, record, tip, .. } = ready;
        let mut claim = record.claim.clone();
        claim.renewed_at = self.now();
        claim.nonce = crate::repo::random_hex();
        // It may have another name by now.
        claim.base.clone_from(&self.repo.base);
        self.act_for(&mut claim);
        change(&mut claim);
        // The chain keeps the branch's commits, when the branch is gone.
        let oid = self.repo.write_claim(&claim, &[&record.oid, tip])?;
        let moves = [
            Move { name: self.repo.base_ref(), from: Some(seen.view.base.clone()), to: Some(commit.clone()) },
            Move { name: self.repo.claim_ref(slug), from: Some(record.oid.clone()), to: Some(oid.clone()) },
        ];
        match self.advance_base(&seen.view.base, commit, &moves)? {
            Moved::Done => Ok(Some(Record { oid, claim })),
            Moved::Overtaken { .. } => {
                let now = self.see()?;
                // It went through, and others came right after it. The claim moved with it, wherever it is by now.
                if self.repo.is_ancestor(commit, &now.view.base)? {
                    return Ok(Some(Record { oid, claim }));
                }
                self.record_for(Verb::End, slug, &now)?;
                if begun.elapsed() > PATIENCE {
                    return Err(Error::new(
                        Kind::Unreachable,
                        format!("others land on {} all the time", self.repo.base),
                    )
                    .next(format!("sess work complete {slug}")));
                }
                pause();
                Ok(None)
            }
            Moved::Rejected(words) => Err(self.rejected_landing(&words, slug)),
        }
    }

    /// Leaves the landing to others: the commit is on the session's branch, or here, and the claim says so.
    fn hand_over(
        &self,
        slug: &Slug,
        ready: &Ready,
        commit: &Oid,
        landed: &Landed,
        notices: &mut Vec<String>,
    ) -> Result<Record> {
        if self.settings.land != Land::Pr || self.repo.remote.is_none() {
            let name = landed_ref(slug);
            self.repo.git.text(["update-ref", &name, commit.as_str()])?;
            let base = &self.repo.base;
            notices
                .push(format!("the work is one commit in this clone, {name}: bring it to {base} as it is"));
            return self.waiting(ready, landed, &[], None);
        }
        let (branch, base) = (slug.branch(), &self.repo.base);
        let shared = ready.seen.view.branches.get(slug);
        let offer = |landed: &Landed| {
            let step =
                Move { name: slug.branch_ref(), from: shared.cloned(), to: Some(landed.commit.clone()) };
            // The branch has the one commit from now on, and whoever takes it back goes on from these.
            self.waiting(ready, landed, &[step], Some(&landed.tip))
        };
        let record = match (offer(landed), shared) {
            // Some remotes take nothing that does not go on from what they have.
            (Err(error), Some(shared)) if error.kind == Kind::Rejected => {
                let text = self.repo.git.text(["show", "--no-patch", "--format=%B", commit.as_str()])?;
                let tree = format!("{commit}^{{tree}}");
                let commit = self.repo.commit_tree(tree, &[&landed.base, shared], &text)?;
                let record = offer(&Landed { commit, ..landed.clone() })?;
                notices.push(format!(
                    "{} lets branches only go on, so that {branch} has the commits of the work besides the one of everything",
                    self.repo.remote.as_deref().unwrap_or_default()
                ));
                record
            }
            (record, _) => record?,
        };
        notices.push(match ready.record.claim.waits() {
            true => format!("the pull request from {branch} to {base} has it"),
            false => format!("open a pull request from {branch} to {base}: it is merged as it is"),
        });
        // What waited here until now is replaced by what waits there.
        self.forget_landed(slug)?;
        Ok(record)
    }

    /// Has a claim say that its work waits to be merged, together with the branch that has it.
    fn waiting(&self, ready: &Ready, landed: &Landed, others: &[Move], kept: Option<&Oid>) -> Result<Record> {
        let change = |claim: &mut Claim| {
            claim.phase = Phase::Landing;
            claim.reason = None;
            claim.landed = Some(landed.clone());
            claim.offered = true;
        };
        self.replaced_keeping(&ready.record, change, others, true, kept)
    }

    /// Forgets the commit that waited in this clone to be merged; returns whether there was one.
    pub(crate) fn forget_landed(&self, slug: &Slug) -> Result<bool> {
        let name = landed_ref(slug);
        let is_there = self.repo.commit(&name)?.is_some();
        if is_there {
            self.repo.git.text(["update-ref", "-d", &name])?;
        }
        Ok(is_there)
    }

    /// Moves the session's branch forward, and a checkout of it with it.
    pub(crate) fn forward_branch(&self, slug: &Slug, from: &Oid, to: &Oid) -> Result<()> {
        let name = slug.branch_ref();
        let Some(path) = self.workspace(slug) else {
            self.repo.git.text(["update-ref", &name, to.as_str(), from.as_str()])?;
            return Ok(());
        };
        let git = self.repo.git.at(&path);
        if self.is_clone(&path) {
            git.text(["fetch", "--quiet", "--no-tags", &self.repo.common.to_string_lossy(), to.as_str()])?;
        }
        let merged = git.run(["merge", "--ff-only", "--quiet", to.as_str()])?;
        if merged.is_ok() {
            return Ok(());
        }
        Err(Error::would_lose(format!(
            "the workspace of {slug} could not follow: {}",
            words_of(&merged.stderr)
        ))
        .next(status_command(&path)))
    }

    /// Runs the checks that the plan names, in the workspace. They judge what lands: nothing else may lie there, but
    /// for what git ignores and what `.worktreeinclude` brought.
    fn pass_gates(&self, verb: Verb, slug: &Slug) -> Result<Option<Oid>> {
        let seen = self.see()?;
        self.check_base_kept(slug, &seen)?;
        let record = self.record_for(verb, slug, &seen)?;
        let brief = Brief::parse(&self.repo.text_of(&record.claim.plan)?)?;
        if brief.gates.is_empty() {
            return Ok(None);
        }
        self.check_committed(slug)?;
        let judged = self.tip(slug)?;
        for gate in &brief.gates {
            let command = self.gate(slug, gate)?;
            let Some(path) = self.workspace(slug) else {
                return Err(Error::wrong_state(format!(
                    "gates run in the workspace of {slug}, and there is none"
                ))
                .next(format!("sess work claim {slug}")));
            };
            let said = tempfile::tempfile_in(self.repo.own_dir()?)
                .and_then(|said| Ok((said.try_clone()?, said.try_clone()?, said)));
            let (stdout, stderr, said) =
                said.map_err(|error| Error::failed(format!("cannot write beside the repository: {error}")))?;
            // A file, and no pipe: what the gate leaves running would keep that open, and is not waited for.
            let ended = self.while_renewing(slug, || {
                Command::new("sh")
                    .args(["-c", command])
                    .current_dir(&path)
                    .envs(self.env(slug))
                    .stdin(Stdio::null())
                    .stdout(stdout)
                    .stderr(stderr)
                    .status()
            })?;
            let ended =
                ended.map_err(|error| Error::failed(format!("the gate {gate} could not be run: {error}")))?;
            if !ended.success() {
                let said = match last_of(said, GATE_OUTPUT_BYTES_MAX).trim() {
                    "" => ", and said nothing".to_owned(),
                    said => format!(": {said}"),
                };
                return Err(Error::policy(format!("the gate {gate} failed ({ended}){said}"))
                    .next(format!("sess work exec {slug} -- sh -c {}", crate::quoted(command))));
            }
        }
        Ok(judged)
    }

    /// Returns the command behind a gate that a plan names.
    fn gate(&self, slug: &Slug, gate: &str) -> Result<&str> {
        self.settings.gates.get(gate).map(String::as_str).ok_or_else(|| {
            Error::policy(format!(
                "the plan of {slug} asks for the gate {gate:?}, and your configuration has none of that name"
            ))
            .next("sess config show")
        })
    }

    /// Fails when a workspace has what does not land, by which gates would judge all the same.
    fn check_committed(&self, slug: &Slug) -> Result<()> {
        let Some(path) = self.workspace(slug) else { return Ok(()) };
        self.check_finished(slug)?;
        let untracked = self.untracked(&path)?;
        if untracked.is_empty() {
            return Ok(());
        }
        let shown = first_of(&untracked, PATHS_SHOWN_MAX);
        Err(Error::policy(format!(
            "gates judge what lands, and git does not know {shown}: add them, ignore them or move them away"
        ))
        .next(status_command(&path)))
    }

    /// Does something that takes long, and keeps the session meanwhile.
    pub fn while_renewing<T>(&self, slug: &Slug, work: impl FnOnce() -> T) -> Result<T> {
        let record = self.record_for(Verb::End, slug, &self.see_and_keep(slug)?)?;
        // The lease of what waits to be merged does not lapse.
        if record.claim.waits() {
            return Ok(work());
        }
        let every = Duration::from_secs((record.claim.lease_seconds / 3).max(1));
        let (done, end) = mpsc::sync_channel::<()>(1);
        let (keeper, slug) = (self.clone(), slug.clone());
        let thread = std::thread::spawn(move || {
            while end.recv_timeout(every) == Err(mpsc::RecvTimeoutError::Timeout) {
                if let Err(error) = keeper.heartbeat(&slug) {
                    tracing::warn!(%error, "the lease was not renewed");
                }
            }
        });
        let ended = work();
        drop(done);
        thread.join().map_err(|_| Error::failed("the renewal of the lease broke down"))?;
        Ok(ended)
    }

    /// Returns the environment of a session: who commits in it.
    pub fn env(&self, slug: &Slug) -> Vec<(&'static str, String)> {
        let name = crate::identity_name(&self.user, slug);
        vec![
            ("SESSION_SLUG", slug.to_string()),
            ("GIT_AUTHOR_NAME", name.clone()),
            ("GIT_AUTHOR_EMAIL", self.user.email.clone()),
            ("GIT_COMMITTER_NAME", name),
            ("GIT_COMMITTER_EMAIL", self.user.email.clone()),
        ]
    }
}

/// Where the commit waits that nobody but its owner lands.
fn landed_ref(slug: &Slug) -> String {
    format!("refs/intersession/landed/{slug}")
}

/// Returns what a gate said last. That it cannot be read is no reason against telling that the gate failed.
fn last_of(mut said: Output, bytes_max: u64) -> String {
    let mut bytes = Vec::new();
    let read = said.metadata().and_then(|found| {
        said.seek(SeekFrom::Start(found.len().saturating_sub(bytes_max)))?;
        // Something that was left running may be writing on.
        said.take(bytes_max).read_to_end(&mut bytes)
    });
    if let Err(error) = read {
        tracing::debug!(%error, "what a gate said is lost");
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Fails when a commit would land that no gate has judged.
fn check_judged(slug: &Slug, judged: Option<&Oid>, tip: &Oid) -> Result<()> {
    if judged.is_none_or(|judged| judged == tip) {
        return Ok(());
    }
    Err(Error::policy(format!("the branch of {slug} has moved while its gates ran: they have not judged it"))
        .next(format!("git log -3 {}", slug.branch())))
}
