//! One follower of one key: each message exactly once, in order, whatever is in between.

use std::{collections::VecDeque, sync::Arc};

use sess_app::{App, What};
use sess_core::{SessionId, SessionKey};
use tokio::sync::broadcast::{self, error::RecvError};

use super::hub::{Fanned, Hub, News, Told};

/// How many messages are read from the store at a time.
const PAGE_LEN: usize = 100;

/// What a follower hears next.
#[derive(Debug)]
pub(super) enum Heard {
    Message {
        session: SessionId,
        message: Arc<Fanned>,
    },
    /// The key has a new session; what comes now is of that one.
    Reset(SessionId),
    /// It could not keep up; what it missed comes from the store now.
    Lagged,
    /// The session is gone, and nothing more comes of it.
    Deleted(SessionId),
}

pub(super) struct Follower {
    app: App,
    pub(super) key: SessionKey,
    session: SessionId,
    /// The last message that was heard.
    seq: u64,
    live: broadcast::Receiver<Arc<Told>>,
    /// Read from the store, and yet to be heard.
    missed: VecDeque<Arc<Fanned>>,
    /// The store has to be asked what there is, before what is live.
    behind: bool,
}

impl Follower {
    /// Follows a session after the message `seq`. What came since is heard first.
    pub(super) fn new(app: App, hub: &Hub, key: SessionKey, session: SessionId, seq: u64) -> Self {
        let live = hub.follow(&key);
        Self { app, key, session, seq, live, missed: VecDeque::new(), behind: true }
    }

    pub(super) fn session(&self) -> &SessionId {
        &self.session
    }

    /// The last message that was heard.
    pub(super) fn seq(&self) -> u64 {
        self.seq
    }

    /// Returns what is heard next. Can be dropped and called again: nothing is lost.
    pub(super) async fn next(&mut self) -> Result<Heard, sess_app::Error> {
        loop {
            if let Some(message) = self.missed.pop_front() {
                self.seq = message.seq;
                return Ok(Heard::Message { session: self.session.clone(), message });
            }
            if self.behind {
                // Asked for first: a session that has a later one has all its messages by then.
                let later = self.app.session_after(&self.session).await?;
                let page = self.app.messages_after(&self.session, self.seq, PAGE_LEN).await?;
                if !page.is_empty() {
                    self.missed.extend(page.into_iter().map(|message| Arc::new(message.into())));
                    continue;
                }
                if let Some(later) = later {
                    self.session = later;
                    self.seq = 0;
                    return Ok(Heard::Reset(self.session.clone()));
                }
                self.behind = false;
            }
            match self.live.recv().await {
                Err(RecvError::Lagged(_)) => {
                    self.behind = true;
                    return Ok(Heard::Lagged);
                }
                // The hub lives as long as the gateway.
                Err(RecvError::Closed) => std::future::pending().await,
                Ok(told) => {
                    if let Some(heard) = self.hear(&told) {
                        return Ok(heard);
                    }
                }
            }
        }
    }

    fn hear(&mut self, told: &Told) -> Option<Heard> {
        match &told.news {
            // Not taken at its word: it may be one that was heard of already, from the store.
            News::Other(What::Created { .. }) if told.session != self.session => {
                self.behind = true;
                None
            }
            _ if told.session != self.session => None,
            News::Message(message) if message.seq <= self.seq => None,
            News::Message(message) if message.seq > self.seq + 1 => {
                // It was committed before the hub looked: the store has what is between.
                self.behind = true;
                None
            }
            News::Message(message) => {
                self.seq = message.seq;
                Some(Heard::Message { session: self.session.clone(), message: Arc::clone(message) })
            }
            News::Other(What::Deleted { .. }) => Some(Heard::Deleted(self.session.clone())),
            News::Other(_) | News::Delta { .. } => None,
        }
    }
}
