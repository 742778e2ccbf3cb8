//! What waits for a session: told when it begins, without opening anything on its behalf.

use sess_core::{
    SessionId,
    plan::State,
    run::{Run, RunState},
};

use crate::{App, Caller, Result};

/// How many of a session's newest runs are looked through.
const LOOKED_THROUGH_MAX: usize = 1_000;

/// What waits for a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Messages in its inbox that were not handed over yet.
    pub unread: usize,
    /// How its plan stands.
    pub plan: Option<State>,
}

impl App {
    /// Returns what waits for the calling session. Nothing is handed over by it, and no store is made.
    pub async fn waiting(&self, caller: &Caller) -> Result<Waiting> {
        let named = self.named_session(caller).await?;
        if self.stored_session(&named.id).await?.is_none() {
            return Ok(Waiting::default());
        }
        self.waiting_for(&named.id).await
    }

    /// Returns what waits for a stored session.
    pub(crate) async fn waiting_for(&self, session: &SessionId) -> Result<Waiting> {
        let store = self.store()?;
        let runs = store.runs(Some(session), LOOKED_THROUGH_MAX).await?;
        let is_unread = |run: &&Run| run.state == RunState::Queued && run.handed_over_at.is_none();
        let plan = store.plan(session).await?.filter(|plan| !plan.swept);
        Ok(Waiting { unread: runs.iter().filter(is_unread).count(), plan: plan.map(|plan| plan.state) })
    }
}
