//! Plans: written by an agent, reviewed by a person, executed by another agent.
//!
//! Row and file are kept together. A write goes: temporary file, flush it and
//! commit the row, rename, flush the directory, answer, tell followers. Whatever
//! a crash or another program left in between is put right at the next use.

use std::{sync::atomic::Ordering, time::Duration};

use schemars::JsonSchema;
use serde::Serialize;
use sess_core::{
    SessionId, Timestamp,
    identity::Claim,
    plan::{self, State, Verdict},
    policy::{self, Standing, Verb},
    reference::ReferenceError,
    session::{NewSession, Session},
};
use sess_protocol::plans::{PlanView, RevisionRow};
use sess_store::{
    FileError, Happening, LockedDir, PlaceError, Plan, PlanChange, PlanWrite, RequestKey, SessionFilter,
    SessionPatch, Store,
};

use crate::{App, Caller, Error, Kind, Result, context::plain, requests::check_key, transfer::fnv1a};

/// Who a change that another program made to a plan file is attributed to.
const EXTERNAL: &str = "external";

/// How often a decision is made again because the plan changed meanwhile.
const TRIES_MAX: usize = 20;

/// How many revisions are shown of a plan.
const REVISIONS_SHOWN_MAX: usize = 1_000;

/// How long a temporary file may stand before the sweep takes it for abandoned.
const TEMPORARY_DAYS_MAX: u32 = 1;

/// How long a call waits for another one to finish with the plan directory.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(10);

/// How long the sweep leaves the plan directory to others, after each plan.
const SWEEP_PAUSE: Duration = Duration::from_millis(5);

/// Where a plan is and how it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PlanAnswer {
    /// Absolute path of the plan's Markdown file.
    pub path: String,
    /// The session whose plan this is.
    pub session_id: String,
    /// Number of this revision, counted from 1.
    pub revision: u64,
    /// `draft`, `ready`, `approved`, `changes_requested` or `done`.
    pub state: String,
    /// Size of the plan in bytes.
    pub bytes: u64,
}

/// A plan with its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PlanText {
    #[serde(flatten)]
    pub plan: PlanAnswer,
    /// The plan, as Markdown.
    pub content: String,
}

/// What to write.
#[derive(Clone, Debug, Default)]
pub struct WritePlan {
    pub content: String,
    /// Refuse unless this is the newest revision.
    pub expect_revision: Option<u64>,
    /// A retry with the same key acts once and gets the first answer.
    pub idempotency_key: Option<String>,
}

/// What a person says about a plan.
#[derive(Clone, Debug)]
pub struct ReviewPlan {
    pub verdict: Verdict,
    /// The revision that was looked at; the newest when not given.
    pub revision: Option<u64>,
    pub note: Option<String>,
}

/// One line of a plan's history.
#[derive(Clone, Debug, Serialize)]
pub struct PlanLogEntry {
    pub revision: u64,
    pub agent: String,
    pub at: String,
    pub bytes: u64,
}

impl App {
    /// Creates or replaces the plan of the caller's session.
    pub async fn write_plan(&self, caller: &Caller, write: WritePlan) -> Result<PlanAnswer> {
        plan::check_content(&write.content)?;
        write.idempotency_key.as_deref().map(check_key).transpose()?;
        let session = self.named_session(caller).await?;
        self.begin_sweep()?;
        let store = self.store()?;
        let dir = self.lock_plans().await?;
        let before = self.reconcile(&*store, &dir, &session, self.now()).await?;
        let bytes = write.content.len() as u64;
        let key = write
            .idempotency_key
            .map(|key| RequestKey { key, fingerprint: fingerprint(&session.id, &write.content) });
        let row = PlanWrite {
            content: write.content,
            agent: author(caller, &session),
            at: self.now(),
            expect_revision: write.expect_revision,
            key,
        };
        let revision = self.put(&*store, &dir, session.clone(), row, before).await?;
        // A write always makes a draft, and a retry gets the first answer, whatever came since.
        self.answer(&session.id, revision, State::Draft, bytes)
    }

    /// Reads the plan of the caller's session; a sub-session without one reads its parent's.
    pub async fn read_plan(&self, caller: &Caller) -> Result<PlanText> {
        let session = self.named_session(caller).await?;
        self.begin_sweep()?;
        let none = || Error::NoPlan("first");
        if let Some(plan) = self.current_plan(&session).await? {
            return Ok(plan);
        }
        let Some(stored) = self.stored_session(&session.id).await? else { return Err(none()) };
        for ancestor in self.ancestors(&stored).await? {
            if let Some(plan) = self.current_plan(&ancestor.clone().into()).await? {
                return Ok(plan);
            }
        }
        Err(none())
    }

    /// Records that the plan is ready for review. Switches nobody.
    pub async fn exit_plan_mode(&self, caller: &Caller) -> Result<PlanAnswer> {
        let session = self.named_session(caller).await?;
        self.begin_sweep()?;
        // Somebody may write or review in between: decide again on what is there then.
        for _ in 0..TRIES_MAX {
            let current = self.current_plan(&session).await?;
            let current = current.ok_or(Error::NoPlan("before exit_plan_mode"))?.plan;
            let store = self.store()?;
            let plan = store.plan(&session.id).await?.filter(|plan| plan.revision == current.revision);
            let Some(plan) = plan else { continue };
            let to = plan.state.after_exit();
            let by = author(caller, &session);
            match self.change_state(&*store, &session.id, &plan, to, &by, None).await {
                Err(error) if error.kind() == Kind::Conflict => {}
                Err(error) => return Err(error),
                Ok(()) => return self.answer(&session.id, plan.revision, to, current.bytes),
            }
        }
        Err(Error::Unavailable(format!("the plan of session {} keeps changing; try again", session.id)))
    }

    /// Returns the session whose plan a person means: the one named, the one
    /// that calls, else the most recently active one that has a plan.
    pub async fn plan_session(&self, caller: &Caller, named: Option<&str>) -> Result<Session> {
        if let Some(reference) = named {
            return match self.resolve(caller, reference).await {
                Err(Error::Reference(ReferenceError::Current)) => self.own_session(caller).await,
                found => found,
            };
        }
        if caller.standing == Standing::Agent {
            return self.own_session(caller).await;
        }
        const LOOKED_THROUGH_MAX: usize = 1_000;
        if self.has_store() {
            let store = self.store()?;
            let filter = SessionFilter::default();
            for session in store.list_sessions(&filter, 0, LOOKED_THROUGH_MAX).await? {
                if store.plan(&session.id).await?.is_some_and(|plan| !plan.swept) {
                    return Ok(session);
                }
            }
        }
        Err(Error::NotFound("no session has a plan yet; `sess plan write <file>` writes one".to_owned()))
    }

    /// Returns the caller as somebody who acts in `session`: the owner in any, an agent in its own.
    pub async fn act_in(&self, caller: &Caller, session: &Session) -> Result<Caller> {
        if caller.standing == Standing::Agent && self.named_session(caller).await?.id != session.id {
            return Err(Error::Denied("an agent may only change its own session's plan".to_owned()));
        }
        let mut caller = caller.clone();
        caller.identity.session = Claim::Id(session.id.clone(), session.source);
        Ok(caller)
    }

    async fn own_session(&self, caller: &Caller) -> Result<Session> {
        let named = self.named_session(caller).await?;
        let stored = self.stored_session(&named.id).await?;
        stored.ok_or_else(|| Error::NotFound(format!("session {} has no plan", named.id)))
    }

    /// Returns the plan of a session, for its owner.
    pub async fn plan_of(&self, session: &Session) -> Result<PlanText> {
        let found = self.current_plan(&session.clone().into()).await?;
        found.ok_or_else(|| Error::NotFound(format!("session {} has no plan", session.id)))
    }

    /// Returns one revision's text.
    pub async fn plan_revision(&self, session: &Session, revision: u64) -> Result<PlanText> {
        let store = self.store()?;
        let found = store.plan_revision(&session.id, revision).await?;
        let found = found.ok_or_else(|| {
            Error::NotFound(format!("the plan of session {} has no revision {revision}", session.id))
        })?;
        let state = store.plan(&session.id).await?.map_or(State::Draft, |plan| plan.state);
        let plan = self.answer(&session.id, revision, state, found.size_bytes)?;
        Ok(PlanText { plan, content: found.content })
    }

    /// Returns the plan's history, oldest first.
    pub async fn plan_log(&self, session: &Session, limit: usize) -> Result<Vec<PlanLogEntry>> {
        let log = self.store()?.plan_log(&session.id, limit).await?;
        let entries = log.into_iter().map(|revision| PlanLogEntry {
            revision: revision.revision,
            agent: revision.agent,
            at: revision.at.to_string(),
            bytes: revision.size_bytes,
        });
        Ok(entries.collect())
    }

    /// Approves a plan, asks for changes, or calls it done.
    ///
    /// An agent may only do the last, and only to its own session's plan.
    pub async fn review_plan(
        &self,
        caller: &Caller,
        session: &Session,
        review: ReviewPlan,
    ) -> Result<PlanAnswer> {
        if caller.only.is_some() || !policy::may_review(caller.standing, review.verdict) {
            return Err(Error::Denied(
                "a plan is reviewed by a person: an agent cannot approve it or request changes".to_owned(),
            ));
        }
        self.act_in(caller, session).await?;
        let current = self.plan_of(session).await?;
        let store = self.store()?;
        let plan = store.plan(&session.id).await?;
        let plan = plan.ok_or_else(|| Error::NotFound(format!("session {} has no plan", session.id)))?;
        let reviewed = review.revision.unwrap_or(plan.revision);
        let to = plan.state.after_review(plan.revision, reviewed, review.verdict)?;
        let by = author(caller, &session.clone().into());
        self.change_state(&*store, &session.id, &plan, to, &by, review.note).await?;
        self.answer(&session.id, plan.revision, to, current.plan.bytes)
    }

    /// Returns the plan of a session that the caller reaches, or one of its revisions.
    pub async fn plan_view(&self, caller: &Caller, given: &str, revision: Option<u64>) -> Result<PlanView> {
        let (key, session) = self.planned(caller, given, Verb::History).await?;
        // What the file says now becomes a revision first.
        let current = self.plan_of(&session).await?;
        let text = match revision.filter(|revision| *revision != current.plan.revision) {
            None => current,
            Some(revision) => self.plan_revision(&session, revision).await?,
        };
        let log = self.plan_log(&session, REVISIONS_SHOWN_MAX).await?;
        let revisions = log.into_iter().map(|entry| RevisionRow {
            revision: entry.revision,
            agent: entry.agent,
            at: entry.at,
            size_bytes: entry.bytes,
        });
        let change = self.store()?.plan_change(&session.id).await?;
        let note = change.and_then(|change| match change.what {
            Happening::PlanState { state, note, .. } if state.as_str() == text.plan.state => note,
            _ => None,
        });
        Ok(PlanView {
            note: note.as_deref().map(plain),
            session_key: key,
            session_id: session.id.to_string(),
            revision: text.plan.revision,
            state: text.plan.state,
            content: plain(&text.content),
            revisions: revisions.collect(),
        })
    }

    /// Writes the plan of a session that the caller reaches.
    pub async fn write_plan_of(&self, caller: &Caller, given: &str, write: WritePlan) -> Result<PlanAnswer> {
        let (_, session) = self.planned(caller, given, Verb::Send).await?;
        self.write_plan(&self.act_in(caller, &session).await?, write).await
    }

    /// Reviews the plan of a session that the caller reaches.
    pub async fn review_plan_of(
        &self,
        caller: &Caller,
        given: &str,
        review: ReviewPlan,
    ) -> Result<PlanAnswer> {
        let (_, session) = self.planned(caller, given, Verb::Send).await?;
        self.review_plan(caller, &session, review).await
    }

    /// Returns the session whose plan is meant, and its key as it is shown.
    async fn planned(&self, caller: &Caller, given: &str, verb: Verb) -> Result<(String, Session)> {
        let outlook = self.outlook(caller).await?;
        let reached = self.reach_from(&outlook, given, verb).await?;
        let session = match verb {
            Verb::Send => self.opened(reached).await?,
            _ => self.looked_at(reached)?,
        };
        Ok((outlook.configured.shown(&session.key), session))
    }

    async fn change_state(
        &self,
        store: &dyn Store,
        session: &SessionId,
        plan: &Plan,
        to: State,
        by: &str,
        note: Option<String>,
    ) -> Result<()> {
        if plan.state == to {
            return Ok(());
        }
        let (revision, from, by, at) = (plan.revision, plan.state, by.to_owned(), self.now());
        Ok(store.change_plan_state(session, PlanChange { revision, from, to, by, note, at }).await?)
    }

    /// Stores a revision and puts its file in place, or leaves both as they were.
    ///
    /// `before` is the newest revision now.
    async fn put(
        &self,
        store: &dyn Store,
        dir: &LockedDir,
        session: NewSession,
        row: PlanWrite,
        before: u64,
    ) -> Result<u64> {
        let id = session.id.clone();
        let staged = dir.stage(&id, &row.content, self.nonce())?;
        // The writer thread commits the row while this one flushes the file.
        let (written, flushed) =
            tokio::join!(store.write_plan(session, row), async { dir.flush(&id, &staged) });
        let written = match written {
            Ok(written) => written,
            Err(error) => {
                dir.discard(&staged);
                self.forget_later_than(store, &id, before).await;
                return Err(error.into());
            }
        };
        if written.replayed {
            // The file is already in place: the reconciliation before saw to it.
            dir.discard(&staged);
            return Ok(written.revision);
        }
        let placed = match flushed {
            Ok(()) => dir.place(&id, &staged),
            Err(error) => {
                dir.discard(&staged);
                Err(PlaceError::Untouched(error))
            }
        };
        if let Err(error) = placed {
            self.take_back(store, dir, &id, written.revision, &error).await;
            return Err(FileError::from(error).into());
        }
        self.announce_soon(id, written.revision);
        Ok(written.revision)
    }

    /// Tells followers without making the writer wait for another flush.
    ///
    /// Row and file are in place, so the plan is written, whatever happens to
    /// the news: the next use announces what was not.
    fn announce_soon(&self, id: SessionId, revision: u64) {
        let news = News::new(self.clone());
        tokio::spawn(async move {
            let app = &news.0;
            let told = match app.store() {
                Ok(store) => app.announce(&*store, &id, revision).await,
                Err(error) => Err(error),
            };
            if let Err(error) = told {
                tracing::warn!(%error, session = %id, "a written plan is not announced yet");
            }
        });
    }

    /// Undoes a refused write that is stored all the same.
    ///
    /// When only the flush of its row failed, the store finds the row again once
    /// it is opened anew. Its file was never put in place.
    async fn forget_later_than(&self, store: &dyn Store, id: &SessionId, revision: u64) {
        if let Ok(Some(plan)) = store.plan(id).await
            && plan.revision > revision
            && let Err(error) = store.withdraw_plan(id, plan.revision).await
        {
            tracing::warn!(%error, "a failed plan write could not be withdrawn");
        }
    }

    /// Undoes a revision whose file could not be put in place.
    ///
    /// When the rename happened and only its flush failed, the former file is
    /// put back first. If even that fails, row and file both keep the new plan:
    /// wholly there, though never acknowledged.
    async fn take_back(
        &self,
        store: &dyn Store,
        dir: &LockedDir,
        id: &SessionId,
        revision: u64,
        why: &PlaceError,
    ) {
        let put_back = match why {
            PlaceError::Untouched(_) => Ok(()),
            PlaceError::NotFlushed(_) => self.put_former_back(store, dir, id, revision).await,
        };
        if let Err(error) = put_back {
            return tracing::warn!(%error, "a failed plan write stays as it is");
        }
        if let Err(error) = store.withdraw_plan(id, revision).await {
            tracing::warn!(%error, "a failed plan write could not be withdrawn");
        }
    }

    async fn put_former_back(
        &self,
        store: &dyn Store,
        dir: &LockedDir,
        id: &SessionId,
        revision: u64,
    ) -> Result<()> {
        match store.plan_revision(id, revision - 1).await? {
            Some(former) => self.put_in_place(dir, id, &former.content),
            None => Ok(dir.remove(id)?),
        }
    }

    pub(crate) fn put_in_place(&self, dir: &LockedDir, id: &SessionId, content: &str) -> Result<()> {
        let staged = dir.stage(id, content, self.nonce())?;
        dir.flush(id, &staged).inspect_err(|_| dir.discard(&staged))?;
        Ok(dir.place(id, &staged).map_err(FileError::from)?)
    }

    async fn announce(&self, store: &dyn Store, id: &SessionId, revision: u64) -> Result<()> {
        let path = self.plan_files()?.path(id);
        Ok(store.announce_plan(id, revision, &path.to_string_lossy()).await?)
    }

    /// Returns the plan that the session has now; a swept one counts as not written.
    async fn current_plan(&self, session: &NewSession) -> Result<Option<PlanText>> {
        self.news_is_out().await;
        let file = self.plan_files()?.read(&session.id)?;
        if file.is_none() && !self.has_store() {
            return Ok(None);
        }
        let store = self.store()?;
        if let Some(text) = self.if_consistent(&*store, &session.id, file).await? {
            return Ok(text);
        }
        let dir = self.lock_plans().await?;
        self.news_is_out().await;
        self.reconcile(&*store, &dir, session, self.now()).await?;
        let file = dir.read(&session.id)?;
        if let Some(text) = self.if_consistent(&*store, &session.id, file).await? {
            return Ok(text);
        }
        // The file is gone, and the row could not bring it back: the store says why.
        if let Some(plan) = store.plan(&session.id).await? {
            store.plan_revision(&session.id, plan.revision).await?;
        }
        Err(Error::Unavailable(format!("the plan of session {} keeps changing; try again", session.id)))
    }

    /// Returns what the file says, when row and file agree; `None` when they must be put right.
    async fn if_consistent(
        &self,
        store: &dyn Store,
        id: &SessionId,
        file: Option<String>,
    ) -> Result<Option<Option<PlanText>>> {
        let plan = store.plan(id).await?;
        match (plan, file.filter(|text| !text.trim().is_empty())) {
            (None, None) => Ok(Some(None)),
            (Some(plan), None) if plan.swept => Ok(Some(None)),
            (None, Some(_)) | (Some(_), None) => Ok(None),
            (Some(plan), Some(content)) => {
                let newest = match store.plan_revision(id, plan.revision).await {
                    Ok(newest) => newest.map(|newest| newest.content),
                    // The stored copy is damaged; the file is what the person sees.
                    Err(sess_store::Error::Damaged(reason)) => {
                        tracing::warn!("{reason}");
                        Some(content.clone())
                    }
                    Err(error) => return Err(error.into()),
                };
                let agrees =
                    newest.as_deref() == Some(&content) && plan.announced >= plan.revision && !plan.swept;
                if !agrees {
                    return Ok(None);
                }
                let plan = self.answer(id, plan.revision, plan.state, content.len() as u64)?;
                Ok(Some(Some(PlanText { plan, content })))
            }
        }
    }

    /// Makes row and file agree again, under the lock of the plan directory.
    ///
    /// A file that is missing or equals the revision before is rolled forward
    /// from the row; any other content was written by another program and
    /// becomes a revision of its own. Returns the newest revision, 0 without one.
    async fn reconcile(
        &self,
        store: &dyn Store,
        dir: &LockedDir,
        session: &NewSession,
        at: Timestamp,
    ) -> Result<u64> {
        let id = &session.id;
        // A link or a pipe holds nothing of ours: it is replaced like a missing file.
        let file = if dir.is_regular(id) { dir.read(id)? } else { None };
        let file = file.filter(|text| !text.trim().is_empty());
        let plan = store.plan(id).await?;
        let (revision, swept) = plan.as_ref().map_or((0, false), |plan| (plan.revision, plan.swept));
        let content = |revision: u64| async move {
            if revision == 0 {
                return Ok(None);
            }
            match store.plan_revision(id, revision).await {
                Ok(found) => Ok(found.map(|found| found.content)),
                Err(sess_store::Error::Damaged(_)) => Ok(None),
                Err(error) => Err(error),
            }
        };
        let Some(file) = file else {
            if let Some(newest) = content(revision).await?
                && !swept
            {
                self.put_in_place(dir, id, &newest)?;
                self.announce(store, id, revision).await?;
            }
            return Ok(revision);
        };
        let newest = content(revision).await?;
        if newest.as_deref() == Some(&file) && !swept {
            // News of this process is on its way already; a writer need not wait for it.
            let is_told =
                plan.is_some_and(|plan| plan.announced >= revision) || *self.inner.news.borrow() > 0;
            if !is_told {
                self.announce(store, id, revision).await?;
            }
            return Ok(revision);
        }
        if let Some(newest) = newest
            && !swept
            && content(revision - 1).await?.as_deref() == Some(&file)
        {
            self.put_in_place(dir, id, &newest)?;
            self.announce(store, id, revision).await?;
            return Ok(revision);
        }
        let row =
            PlanWrite { content: file, agent: EXTERNAL.to_owned(), at, expect_revision: None, key: None };
        let written = store.write_plan(session.clone(), row).await?;
        self.announce(store, id, written.revision).await?;
        Ok(written.revision)
    }

    pub(crate) async fn lock_plans(&self) -> Result<LockedDir> {
        let files = self.plan_files()?.clone();
        match files.try_lock()? {
            Some(dir) => Ok(dir),
            None => on_blocking_thread(move || files.lock()).await,
        }
    }

    /// Starts the sweep of old plan files, once a process, in the background.
    fn begin_sweep(&self) -> Result<()> {
        let has_dir = self.plan_files()?.dir().exists();
        self.inner.sweep.get_or_init(|| {
            let app = self.clone();
            let is_on = self.settings().plans_keep_days > 0 && has_dir;
            let sweep = is_on.then(|| {
                tokio::spawn(async move {
                    if let Err(error) = app.sweep().await {
                        tracing::info!(%error, "old plans were not swept");
                    }
                })
            });
            std::sync::Mutex::new(sweep)
        });
        Ok(())
    }

    async fn sweep(&self) -> Result<()> {
        let now = self.now();
        let limit = now.days_before(self.settings().plans_keep_days);
        let files = self.plan_files()?.clone();
        // The lock is given back before the first one is swept, and taken anew for each:
        // a call that wants to write waits for one plan at most.
        let old = on_blocking_thread(move || {
            let dir = files.lock()?;
            dir.remove_stale_temporaries(now.days_before(TEMPORARY_DAYS_MAX));
            Ok(dir.older_than(limit))
        })
        .await?;
        for id in old {
            if self.inner.is_ending.load(Ordering::Relaxed) {
                return Ok(());
            }
            if let Err(error) = self.sweep_one(&id, limit).await {
                tracing::info!(%error, session = %id, "an old plan was not swept");
            }
            // Whoever waits for the lock looks every few milliseconds, and would find it taken again.
            tokio::time::sleep(SWEEP_PAUSE).await;
        }
        Ok(())
    }

    /// Removes one old plan file, after its text is safe among the revisions.
    async fn sweep_one(&self, id: &SessionId, limit: Timestamp) -> Result<()> {
        let store = self.store()?;
        let dir = self.lock_plans().await?;
        let stored = store.session(id).await?;
        let is_alive = stored.as_ref().is_some_and(|session| session.updated_at >= limit);
        if is_alive || !dir.is_older_than(id, limit) {
            return Ok(());
        }
        let is_unknown = stored.is_none();
        let session = match &stored {
            Some(session) => session.clone().into(),
            None => NewSession::chat(id.clone(), sess_core::Source::Native, limit),
        };
        self.reconcile(&*store, &dir, &session, limit).await?;
        if is_unknown && store.session(id).await?.is_some() {
            // A plan whose session nobody knows is kept, but not put in anybody's way.
            store.patch_session(id, SessionPatch::Archived(true), limit).await?;
        }
        let Some(plan) = store.plan(id).await? else { return Ok(()) };
        // In this order: a crash in between brings the file back from its row, where
        // the other order would take it for another program's.
        dir.remove(id)?;
        store.mark_plan_swept(id, plan.revision).await?;
        tracing::info!(session = %id, revision = plan.revision, "swept an old plan; its revisions stay");
        Ok(())
    }

    /// Removes the plan file of a session that is gone, if it has one.
    pub(crate) async fn remove_plan_file(&self, id: &SessionId) -> Result<()> {
        if !self.plan_files()?.path(id).exists() {
            return Ok(());
        }
        let dir = self.lock_plans().await?;
        if dir.is_regular(id) {
            dir.remove(id)?;
        }
        Ok(())
    }

    fn answer(&self, id: &SessionId, revision: u64, state: State, bytes: u64) -> Result<PlanAnswer> {
        let path = self.plan_files()?.path(id).to_string_lossy().into_owned();
        Ok(PlanAnswer { path, session_id: id.to_string(), revision, state: state.to_string(), bytes })
    }

    fn nonce(&self) -> u64 {
        (self.random() >> 64) as u64
    }
}

/// Names who acts: a person, the agent that a program acts for, or the session's agent.
fn author(caller: &Caller, session: &NewSession) -> String {
    match (caller.standing, &caller.only) {
        (Standing::Owner, None) => "owner".to_owned(),
        (Standing::Owner, Some(agent)) => agent.to_string(),
        (Standing::Agent, _) => session.agent.to_string(),
    }
}

/// An announcement on its way; counted until it is out, also when it fails.
struct News(App);

impl News {
    fn new(app: App) -> Self {
        app.inner.news.send_modify(|pending| *pending += 1);
        Self(app)
    }
}

impl Drop for News {
    fn drop(&mut self) {
        self.0.inner.news.send_modify(|pending| *pending -= 1);
    }
}

/// Tells one request from another without keeping its text twice.
fn fingerprint(session: &SessionId, content: &str) -> String {
    format!("plan {session} {:032x} {}", fnv1a(content.bytes()), content.len())
}

/// Waiting for a lock or a disk must not hold up other calls.
async fn on_blocking_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FileError> + Send + 'static,
) -> Result<T> {
    match tokio::time::timeout(LOCK_WAIT_MAX, tokio::task::spawn_blocking(work)).await {
        Ok(Ok(done)) => Ok(done?),
        Ok(Err(error)) => Err(Error::Unavailable(format!("the plan could not be written: {error}"))),
        // The thread gives the lock back as soon as it gets it.
        Err(_) => Err(Error::Unavailable(
            "cannot lock the plan directory: another process keeps it locked; try again".to_owned(),
        )),
    }
}
