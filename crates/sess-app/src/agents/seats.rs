//! Which sessions this process has open: for a person, or because it executes them by itself.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use sess_core::SessionId;
use sess_store::{Seat, Store};

use super::Agents;
use crate::{Error, Result};

impl Agents {
    /// Keeps the seat in a session for as long as it is polled: its runs are executed here.
    ///
    /// Ends only when the seat is taken, or cannot be kept.
    pub async fn sit(&self, session: &SessionId) -> Result<()> {
        self.sit_told(session, || {}).await
    }

    /// As [`Agents::sit`]; `seated` hears when the seat is taken.
    pub async fn sit_told(&self, session: &SessionId, seated: impl FnOnce() + Send) -> Result<()> {
        let store = self.app().store()?;
        // Before it is taken: whoever drops this meanwhile gives it up all the same.
        let seat = TakenSeat::new(self, store, session);
        self.renew_seat(&*seat.store, session).await?;
        seated();
        loop {
            tokio::time::sleep(self.inner.setup.lease / 3).await;
            match self.renew_seat(&*seat.store, session).await {
                Ok(()) => {}
                Err(error) if error.kind() == crate::Kind::Conflict => return Err(error),
                // A full disk, say: the lease lasts a while yet.
                Err(error) => tracing::warn!(%error, %session, "the seat in a session was not renewed"),
            }
        }
    }

    /// Returns the seat as this node takes it now.
    pub(super) fn new_seat(&self) -> Result<Seat> {
        let process = sess_store::this_process()?;
        Ok(Seat { node: self.inner.node.clone(), until: self.lease_end()?, process })
    }

    async fn renew_seat(&self, store: &dyn Store, session: &SessionId) -> Result<()> {
        match store.sit(session, self.new_seat()?).await {
            Err(sess_store::Error::Conflict(_)) => {
                let by = store.seat(session).await?.map(|seat| format!(" (pid {})", seat.process.pid));
                let reason =
                    format!("session {session} is open in another process{}", by.unwrap_or_default());
                Err(Error::Store(sess_store::Error::Conflict(reason)))
            }
            taken => Ok(taken?),
        }
    }
}

/// A seat that is given up when this is dropped, unless that was done.
pub(super) struct TakenSeat {
    agents: Agents,
    store: Arc<dyn Store>,
    session: SessionId,
    is_given_up: AtomicBool,
}

impl TakenSeat {
    pub(super) fn new(agents: &Agents, store: Arc<dyn Store>, session: &SessionId) -> Self {
        agents.inner.seated.add(session);
        let is_given_up = AtomicBool::new(false);
        Self { agents: agents.clone(), store, session: session.clone(), is_given_up }
    }

    /// Renews it for as long as this is polled. Another node's seat is left to it.
    pub(super) async fn keep(&self) {
        loop {
            tokio::time::sleep(self.agents.inner.setup.lease / 3).await;
            if self.is_given_up.load(Ordering::Relaxed) {
                continue;
            }
            match self.agents.renew_seat(&*self.store, &self.session).await {
                Ok(()) => {}
                Err(error) if error.kind() == crate::Kind::Conflict => {
                    tracing::debug!(%error, session = %self.session, "the seat in a session is another's");
                }
                Err(error) => {
                    tracing::warn!(%error, session = %self.session, "the seat in a session was not renewed");
                }
            }
        }
    }

    /// Tells whether nobody else in this process has the same seat.
    pub(super) fn is_last(&self) -> bool {
        self.agents.inner.seated.count(&self.session) == 1
    }

    /// Notes that it was given up in another transaction.
    pub(super) fn was_given_up(&self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }
}

impl Drop for TakenSeat {
    fn drop(&mut self) {
        self.agents.inner.seated.remove(&self.session);
        if self.is_given_up.load(Ordering::Relaxed) || self.agents.inner.seated.contains(&self.session) {
            return;
        }
        // Best effort: a seat that nobody renews ends by itself.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (store, session) = (Arc::clone(&self.store), self.session.clone());
        let agents = self.agents.clone();
        agents.app().inner.leaving.send_modify(|pending| *pending += 1);
        runtime.spawn(async move {
            if let Err(error) = store.stand_up(&session, &agents.inner.node).await {
                tracing::warn!(%error, %session, "the seat in a session was not given up");
            }
            agents.app().inner.leaving.send_modify(|pending| *pending -= 1);
        });
    }
}

/// Sessions that something goes on with, and how often.
#[derive(Default)]
pub(super) struct Attended(Mutex<HashMap<SessionId, usize>>);

impl Attended {
    pub(super) fn contains(&self, session: &SessionId) -> bool {
        self.count(session) > 0
    }

    fn count(&self, session: &SessionId) -> usize {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.get(session).copied().unwrap_or_default()
    }

    /// Counts a session until the answer is dropped.
    pub(super) fn enter(&self, session: &SessionId) -> Entered<'_> {
        self.add(session);
        Entered { attended: self, session: session.clone() }
    }

    fn add(&self, session: &SessionId) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(session.clone()).or_default() += 1;
    }

    fn remove(&self, session: &SessionId) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(session) {
            *count -= 1;
            if *count == 0 {
                counts.remove(session);
            }
        }
    }
}

pub(super) struct Entered<'a> {
    attended: &'a Attended,
    session: SessionId,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.attended.remove(&self.session);
    }
}
