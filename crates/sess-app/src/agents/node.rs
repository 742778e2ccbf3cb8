//! A node at work: it executes runs that anybody queued, and settles what follows them.

use sess_core::{RunId, SessionId};
use tokio_util::sync::CancellationToken;

use super::Agents;
use crate::Result;

/// Which runs a node takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Every run of an agent that is configured here, in any session that nobody else has open.
    All,
    /// Only what this run led to.
    Tree(RunId),
}

impl Agents {
    /// Executes runs, settles follow-ups, delivers posts and archives what is over, until `stop`.
    ///
    /// Whatever it executes then is given up: what has not begun is queued again, the rest is `aborted`.
    pub async fn work(&self, _work: Work, _stop: &CancellationToken) -> Result<()> {
        todo!()
    }

    /// Works until everything that `root` led to is over.
    pub async fn finish_tree(&self, _root: &RunId, _stop: &CancellationToken) -> Result<()> {
        todo!()
    }

    /// Keeps the seat in a session for as long as it is polled: its runs are executed here.
    pub async fn sit(&self, _session: &SessionId) -> Result<()> {
        todo!()
    }
}
