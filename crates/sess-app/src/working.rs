//! Work sessions: who calls, and in which repository. What they are is `sess-work`'s matter.

use std::path::Path;

use sess_core::{
    identity::{Claim, Evidence, MCP_SESSION_ID, Signals},
    policy::Standing,
    session::NewSession,
};
use sess_protocol::work::{WorkBoard, WorkCriterion, WorkHolder, WorkPast, WorkRow, WorkSession, WorkState};
use sess_work::{OWN_DIR, Repo, Row, SESSIONS_DIR, Slug, State, Who, Work};

use crate::{App, Caller, Error, Result, WritePlan, context::plain};

impl App {
    /// Returns the caller in the repository around a directory.
    ///
    /// An agent's session is a part of who owns a claim as far as it lasts: one that is this process's own, or a
    /// connection's, is gone with it, and its work would belong to nobody.
    pub async fn work(&self, caller: &Caller, dir: &Path) -> Result<Work> {
        let (agent, session) = match caller.standing {
            Standing::Owner => (None, None),
            Standing::Agent => {
                let named = self.named_session(caller).await?;
                let is_connection = caller.identity.evidence == Evidence::CallMeta(MCP_SESSION_ID);
                let lasts = !matches!(caller.identity.session, Claim::Own) && !is_connection;
                (Some(named.agent.to_string()), lasts.then(|| named.key.to_string()))
            }
        };
        self.work_as(agent, session, dir)
    }

    /// Returns an agent in its session, or the owner, in the repository around a directory.
    pub fn work_as(&self, agent: Option<String>, session: Option<String>, dir: &Path) -> Result<Work> {
        let settings = self.configured()?.work.clone();
        let who = Who { agent, session, host: self.settings().host.clone(), pid: std::process::id() };
        Ok(Work::new(Repo::find(dir)?, settings, who, self.settings().now)?)
    }

    /// Makes the session in which an agent carries out a work session, with SESSION.md as its plan.
    pub async fn begin_work(&self, session: &NewSession, plan: String) -> Result<()> {
        self.store()?.ensure_session(session.clone()).await?;
        let signals = Signals { explicit: Some(session.key.to_string()), ..Signals::default() };
        let write = WritePlan { content: plan, expect_revision: None, idempotency_key: None };
        self.write_plan(&self.caller(&signals), write).await?;
        Ok(())
    }

    /// Does something with the work sessions around the caller, where git may take its time.
    ///
    /// Around it means: where its own session works when it runs here, else where this process was started.
    pub(crate) async fn at_work<T: Send + 'static>(
        &self,
        caller: &Caller,
        act: impl FnOnce(&Work) -> sess_work::Result<T> + Send + 'static,
    ) -> Result<T> {
        let own = match caller.run {
            Some(_) => self.named_session(caller).await?.cwd,
            None => None,
        };
        let dir = own.or_else(|| self.settings().cwd.clone());
        let none = || Error::Unavailable("the working directory is gone".to_owned());
        let work = self.work(caller, Path::new(&dir.ok_or_else(none)?)).await?;
        let acted = tokio::task::spawn_blocking(move || act(&work)).await;
        Ok(acted
            .map_err(|error| Error::Unavailable(format!("the work session's verb broke down: {error}")))??)
    }

    /// Tells whether this process was started in a repository that has work sessions.
    ///
    /// They may be where everybody meets and not in this checkout yet: then this clone has something of its own.
    pub fn has_work(&self) -> bool {
        let top = self.settings().repo.as_deref().map(Path::new);
        top.is_some_and(|top| top.join(SESSIONS_DIR).is_dir() || top.join(OWN_DIR).is_dir())
    }

    /// Returns the work sessions of the repository that this process was started in.
    pub async fn work_board(&self, caller: &Caller) -> Result<WorkBoard> {
        if !self.shows_work(caller)? {
            return Ok(WorkBoard::default());
        }
        self.at_work(caller, move |work| {
            let seen = work.see_or_recall()?;
            let sessions = work.list(&seen)?.into_iter().map(row).collect();
            let base = Some(work.repo().base().to_owned());
            let repository = Some(work.repo().top().display().to_string());
            Ok(WorkBoard { repository, base, is_old: seen.view.is_old, sessions })
        })
        .await
    }

    /// Returns one of them in full.
    pub async fn work_session(&self, caller: &Caller, slug: &str) -> Result<WorkSession> {
        let slug: Slug = slug.parse().map_err(sess_work::Error::from)?;
        if !self.shows_work(caller)? {
            return Err(Error::NotFound(format!("there is no work session {slug} here")));
        }
        self.at_work(caller, move |work| {
            let seen = work.see_or_recall()?;
            let shown = work.show(&slug, &seen)?;
            let past = |past: sess_work::Past| WorkPast {
                at: past.at,
                phase: past.phase.as_str().to_owned(),
                name: past.name,
                agent: past.agent,
                reason: past.reason.as_deref().map(plain),
            };
            let criterion = |criterion: sess_work::Criterion| WorkCriterion {
                text: plain(&criterion.text),
                done: criterion.done,
            };
            Ok(WorkSession {
                row: row(shown.row),
                plan: plain(&shown.plan),
                criteria: shown.criteria.into_iter().map(criterion).collect(),
                worklog: shown.worklog.as_deref().map(plain),
                branch: shown.branch,
                sessions: shown.sessions,
                history: shown.history.into_iter().map(past).collect(),
            })
        })
        .await
    }

    /// Tells whether there is something to show, to somebody who is let see all of it.
    fn shows_work(&self, caller: &Caller) -> Result<bool> {
        if caller.standing != Standing::Owner || caller.only.is_some() {
            return Err(Error::Denied("work sessions are shown to the owner's tokens alone".to_owned()));
        }
        Ok(self.has_work())
    }
}

fn row(row: Row) -> WorkRow {
    WorkRow {
        slug: row.slug.to_string(),
        state: match row.state {
            State::Drafting => WorkState::Drafting,
            State::Planned => WorkState::Planned,
            State::Active => WorkState::Active,
            State::Completed => WorkState::Completed,
            State::Abandoned => WorkState::Abandoned,
        },
        title: plain(&row.title),
        ready: row.ready,
        waits_for: row.waits_for,
        labels: row.labels,
        parent: row.parent.map(|parent| parent.to_string()),
        note: row.note,
        holder: row.holder.map(|holder| WorkHolder {
            name: holder.name,
            agent: holder.agent,
            session: holder.session,
            host: holder.host,
            since: holder.since,
            until: holder.until,
            stale: holder.stale,
            waits: holder.waits,
            attempt: holder.attempt,
        }),
        last_log: row.last_log.as_deref().map(plain),
    }
}
