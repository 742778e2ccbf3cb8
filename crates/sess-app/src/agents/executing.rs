//! One run, executed under its lease.

use std::{
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use sess_agent::turn;
use sess_core::{
    RunId,
    run::{Outcome, Run, RunState},
};
use sess_store::{Ending, Lease, Store};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Agents, Nobody, Person, host::RunHost, seats::TakenSeat};
use crate::{Error, Result};

/// How often a run that goes on looks at most whether somebody asked it to stop.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Why a run ended that its node gave up.
const GIVEN_UP: &str = "its node was stopped before it ended";

/// Who looks on while a run is executed, and when it is given up.
pub(super) struct Attendance<'a> {
    pub(super) person: Arc<dyn Person>,
    /// The node gives up what it executes.
    pub(super) halt: CancellationToken,
    /// How many of the node's runs wait for other runs.
    pub(super) waiting: Arc<AtomicUsize>,
    /// The seat that is given up with the end of a run.
    pub(super) leaving: Option<Leaving<'a>>,
}

/// A seat that was taken for one run.
#[derive(Clone, Copy)]
pub(super) struct Leaving<'a> {
    pub(super) seat: &'a TakenSeat,
    pub(super) after: &'a RunId,
}

impl<'a> Attendance<'a> {
    /// For a run that somebody here has asked for.
    pub(super) fn in_person(agents: &Agents, leaving: Option<Leaving<'a>>) -> Self {
        let person = Arc::clone(agents.person());
        Self { person, halt: CancellationToken::new(), waiting: Arc::default(), leaving }
    }

    /// For a run that nobody looks at.
    pub(super) fn in_background(halt: CancellationToken, waiting: Arc<AtomicUsize>) -> Self {
        Self { person: Arc::new(Nobody), halt, waiting, leaving: None }
    }
}

impl Agents {
    /// Executes a run under its lease, and stores its outcome with what follows it.
    pub(super) async fn execute(
        &self,
        store: &dyn Store,
        run: Run,
        lease: Lease,
        stop: &CancellationToken,
        attendance: &Attendance<'_>,
    ) -> Result<()> {
        let app = self.app();
        let session = store.session(&run.session).await?;
        let session = session.ok_or_else(|| Error::NotFound(format!("session {} is gone", run.session)))?;
        let host = Arc::new(RunHost::new(self.clone(), session, &run, lease.clone(), attendance).await?);
        let ended = {
            let renewing = self.keep_lease(&run, lease.clone(), stop);
            tokio::pin!(renewing);
            let driving = async {
                host.activate(&run.agent).await?;
                turn::drive(Arc::clone(&host) as Arc<dyn turn::Host>, run.agent.clone(), stop).await
            };
            tokio::select! {
                ended = driving => ended,
                () = &mut renewing => unreachable!("a lease is kept until the run ends"),
            }
        };
        let (mut outcome, messages) = match ended {
            Ok(ended) => {
                let outcome = Outcome {
                    state: ended.verdict.state,
                    result: ended.result,
                    error: ended.verdict.error,
                    usage: ended.usage,
                };
                (outcome, ended.messages)
            }
            Err(error) => {
                let outcome = Outcome {
                    state: RunState::Failed,
                    result: None,
                    error: Some(error.to_string()),
                    usage: run.usage.clone(),
                };
                (outcome, Vec::new())
            }
        };
        if attendance.halt.is_cancelled() && outcome.state == RunState::Cancelled {
            if !host.has_begun() {
                // A lease that ends at once: the run is queued again, for another node.
                let lease = Lease { until: sess_store::boot_time()?, ..lease };
                store.renew_run(&run.id, &lease).await?;
                return Ok(());
            }
            (outcome.state, outcome.error) = (RunState::Aborted, Some(GIVEN_UP.to_owned()));
        }
        let messages = messages.into_iter().map(|body| app.new_message(&run.id, body)).collect();
        let leaving = attendance.leaving.as_ref().filter(|leaving| *leaving.after == run.id);
        let stands_up = leaving.is_some_and(|leaving| leaving.seat.is_last());
        let ending = Ending { messages, outcome, at: app.now(), follow_up: None, stands_up };
        match app.end(store, &run, &lease, ending).await {
            // Another node has settled the run: what came too late is left out.
            Err(Error::Store(sess_store::Error::Conflict(reason))) => {
                tracing::warn!(run = %run.id, reason, "the run was settled by another node");
                Ok(())
            }
            Ok(()) => {
                if let Some(leaving) = leaving.filter(|_| stands_up) {
                    leaving.seat.was_given_up();
                }
                Ok(())
            }
            failed => failed,
        }
    }

    /// Renews a lease for as long as it is polled; stops the run when it is lost or cancelled elsewhere.
    ///
    /// Commits on its timer alone, because every commit wakes everybody who waits: between, it only reads.
    async fn keep_lease(&self, run: &Run, mut lease: Lease, stop: &CancellationToken) {
        let id = &run.id;
        let store = match self.app().store() {
            Ok(store) => store,
            Err(error) => return lost(id, &error, stop).await,
        };
        let mut changes = store.changes();
        let every = self.inner.setup.lease / 3;
        let mut renew_at = Instant::now() + every;
        loop {
            tokio::time::sleep(LOOK_EVERY.min(every)).await;
            let _due = tokio::time::timeout_at(renew_at, changes.changed()).await;
            changes.mark_unchanged();
            let is_cancelled = if Instant::now() < renew_at {
                let found = store.run(id).await;
                found.map(|found| found.filter(|found| is_same(found, run)).map(|found| found.is_cancelled))
            } else {
                renew_at = Instant::now() + every;
                match self.lease_end().map(|until| lease.until = until) {
                    Ok(()) => match store.renew_run(id, &lease).await {
                        Err(sess_store::Error::Conflict(_)) => Ok(None),
                        renewed => renewed.map(|renewed| Some(renewed.is_cancelled)),
                    },
                    Err(error) => Err(error),
                }
            };
            match is_cancelled {
                Ok(Some(true)) => stop.cancel(),
                Ok(Some(false)) => {}
                Ok(None) => {
                    let error = Error::Unavailable("another node has settled it".to_owned());
                    return lost(id, &error, stop).await;
                }
                // A full disk, say: the lease lasts a while yet.
                Err(error) => tracing::warn!(%error, run = %id, "the lease of a run was not renewed"),
            }
        }
    }
}

/// Tells whether a run is still the one that was begun here: not settled, nor begun again elsewhere.
fn is_same(found: &Run, run: &Run) -> bool {
    found.state == RunState::Running && found.started_at == run.started_at
}

/// A run that was lost must stop; whoever awaits the lease waits for that.
async fn lost(run: &RunId, error: &Error, stop: &CancellationToken) {
    tracing::warn!(%run, %error, "the lease of a run is lost");
    stop.cancel();
    std::future::pending::<()>().await;
}
