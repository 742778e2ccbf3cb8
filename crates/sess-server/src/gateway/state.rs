//! What all requests of one gateway share.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use sess_app::{Access, App};
use sess_protocol::errors::ErrorType;
use tokio::sync::Semaphore;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    admission::Guesses, attachments::Attachments, cursor::Cursors, errors::Problem, hub::Hub, limits::Limits,
    mcp_http::McpHttp, metrics::Metrics, origin::Names,
};

/// How often tokens are looked at again that somebody holds a stream open with.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// How many searches go on at a time; others wait.
const SEARCHES_MAX: usize = 2;

pub(super) struct State {
    pub(super) app: App,
    pub(super) hub: Arc<Hub>,
    pub(super) cursors: Cursors,
    pub(super) limits: Limits,
    pub(super) names: Names,
    pub(super) guesses: Guesses,
    pub(super) attachments: Attachments,
    pub(super) metrics: Metrics,
    pub(super) mcp: McpHttp,
    /// Cancelled when the gateway is about to end: nothing new is taken, and what is under way goes on.
    pub(super) ending: CancellationToken,
    /// Cancelled when that is over: streams end, nobody waits any longer.
    pub(super) stop: CancellationToken,
    /// Requests under way. Streams are none: they would never end by themselves.
    pub(super) busy: TaskTracker,
    /// Connections that were handed over to another protocol.
    pub(super) sockets: TaskTracker,
    /// A search reads whole disks: few at a time, so that others notice nothing.
    pub(super) searches: Semaphore,
    /// Tokens that somebody holds something open with. Each is cancelled when it counts no longer.
    held: Mutex<HashMap<String, CancellationToken>>,
}

impl State {
    pub(super) fn new(
        app: App,
        cursors: Cursors,
        limits: Limits,
        names: Names,
        ending: CancellationToken,
    ) -> Self {
        let stop = CancellationToken::new();
        Self {
            hub: Arc::new(Hub::new(app.clone())),
            cursors,
            names,
            guesses: Guesses::new(limits.failed_logins),
            attachments: Attachments::new(limits.attachments_bytes, limits.attachment_for),
            metrics: Metrics::default(),
            mcp: McpHttp::new(app.clone(), &limits, &stop),
            ending,
            stop,
            busy: TaskTracker::new(),
            sockets: TaskTracker::new(),
            searches: Semaphore::new(SEARCHES_MAX),
            held: Mutex::default(),
            app,
            limits,
        }
    }

    /// Returns what is cancelled, within a second, when this access counts no longer.
    pub(super) fn while_counts(&self, access: &Access) -> CancellationToken {
        let Some(id) = &access.token else { return CancellationToken::new() };
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.entry(id.clone()).or_default().child_token()
    }

    /// Refuses what comes when the gateway is about to end.
    pub(super) fn check_open(&self) -> Result<(), Problem> {
        if self.ending.is_cancelled() {
            let sentence = "the gateway is about to end; come again in a moment";
            return Err(Problem::new(ErrorType::Unavailable, sentence));
        }
        Ok(())
    }

    /// Looks after held tokens until the gateway ends: one question for all of them.
    pub(super) async fn watch_tokens(&self) {
        while !self.stop.is_cancelled() {
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = tokio::time::sleep(LOOK_AGAIN) => {}
            }
            let is_held = !self.held.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
            if !is_held {
                continue;
            }
            let counting = match self.app.counting_tokens().await {
                Ok(counting) => counting,
                // Whoever was let in stays until the store can say otherwise.
                Err(error) => {
                    tracing::warn!(%error, "tokens cannot be looked at now");
                    continue;
                }
            };
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            held.retain(|id, cut| {
                let counts = counting.contains(id);
                if !counts {
                    cut.cancel();
                }
                counts
            });
        }
    }
}
