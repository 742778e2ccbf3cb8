//! Work sessions: who calls, and in which repository. What they are is `sess-work`'s matter.

use std::path::Path;

use sess_core::{
    identity::{Claim, Evidence, MCP_SESSION_ID, Signals},
    policy::Standing,
    session::NewSession,
};
use sess_work::{Repo, SESSIONS_DIR, Who, Work};

use crate::{App, Caller, Error, Result, WritePlan};

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
    pub fn has_work(&self) -> bool {
        let top = self.settings().repo.as_deref().map(Path::new);
        top.is_some_and(|top| top.join(SESSIONS_DIR).is_dir())
    }
}
