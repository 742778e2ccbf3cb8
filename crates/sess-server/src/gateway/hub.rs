//! The hub: reads what was committed, in this process or another, once for all followers.
//!
//! One task follows the store's feed. Each item is encoded once and handed to whoever follows
//! its key, and to whoever follows everything. Queues are bounded: who cannot keep up is told
//! so, and goes on from the store.

use std::{
    collections::HashMap,
    ops::Deref,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use sess_app::{App, Happened, SeenMessage, What};
use sess_core::{RunId, SessionId, SessionKey};
use tokio::sync::{OnceCell, broadcast};
use tokio_util::sync::CancellationToken;

use super::ws::Event;

/// How much a follower of one session may be behind.
const SESSION_QUEUE: usize = 256;
/// How much a follower of everything may be behind.
const ALL_QUEUE: usize = 1_024;
/// How many items are read at a time.
const PAGE_LEN: usize = 500;
/// How many keys are remembered.
const KEYS_MAX: usize = 10_000;
/// How long is waited after the store could not be read.
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// How long is waited for a change at most.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Something that followers hear of.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) session: SessionId,
    pub(super) key: SessionKey,
    pub(super) news: News,
    /// What it is to those who list sessions, as the payload of a frame; made once, for all of them.
    pub(super) changed: OnceCell<Arc<str>>,
    /// What else it is to them, likewise.
    pub(super) other: OnceLock<Option<Event>>,
}

impl Told {
    fn new(session: SessionId, key: SessionKey, news: News) -> Self {
        Self { session, key, news, changed: OnceCell::new(), other: OnceLock::new() }
    }
}

/// A message on its way to followers. Each form that they get it in is made once, for all of them.
#[derive(Debug)]
pub(super) struct Fanned {
    seen: SeenMessage,
    /// As a piece of an event stream.
    pub(super) event: OnceLock<Bytes>,
    /// As the payload of a frame.
    pub(super) frame: OnceLock<Arc<str>>,
}

impl From<SeenMessage> for Fanned {
    fn from(seen: SeenMessage) -> Self {
        Self { seen, event: OnceLock::new(), frame: OnceLock::new() }
    }
}

impl Deref for Fanned {
    type Target = SeenMessage;

    fn deref(&self) -> &SeenMessage {
        &self.seen
    }
}

#[derive(Clone, Debug)]
pub(super) enum News {
    Message(Arc<Fanned>),
    /// Text of a reply that is on its way. Not stored.
    Delta {
        run: RunId,
        text: String,
    },
    /// Anything else that was committed.
    Other(What),
}

pub(super) struct Hub {
    app: App,
    /// Whoever follows one key. Those that nobody follows any longer are forgotten by and by.
    keys: Mutex<HashMap<SessionKey, broadcast::Sender<Arc<Told>>>>,
    all: broadcast::Sender<Arc<Told>>,
    known: Mutex<HashMap<SessionId, SessionKey>>,
}

impl Hub {
    pub(super) fn new(app: App) -> Self {
        Self { app, keys: Mutex::default(), all: broadcast::Sender::new(ALL_QUEUE), known: Mutex::default() }
    }

    /// Follows what is addressed by one key, from now on.
    pub(super) fn follow(&self, key: &SessionKey) -> broadcast::Receiver<Arc<Told>> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        keys.entry(key.clone()).or_insert_with(|| broadcast::Sender::new(SESSION_QUEUE)).subscribe()
    }

    /// Follows everything, from now on.
    pub(super) fn follow_all(&self) -> broadcast::Receiver<Arc<Told>> {
        self.all.subscribe()
    }

    /// Tells of text that is on its way; nobody hears it twice, and it may be lost.
    ///
    /// Who follows one session wants what stands in its transcript, and is not made late by this.
    pub(super) fn tell_delta(&self, session: &SessionId, run: &RunId, text: String) {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(session).cloned();
        let Some(key) = known else { return };
        let news = News::Delta { run: run.clone(), text };
        let _followers = self.all.send(Arc::new(Told::new(session.clone(), key, news)));
    }

    /// Follows the store after a position, until it is stopped.
    ///
    /// The position is that of the newest item before anybody followed: what came since is told.
    pub(super) async fn run(&self, after: u64, stop: &CancellationToken) {
        let mut after = after;
        loop {
            let followed = self.follow_store(&mut after);
            tokio::select! {
                () = stop.cancelled() => return,
                error = followed => {
                    tracing::warn!(%error, "the store cannot be followed now; it is tried again");
                    tokio::time::sleep(RETRY_AFTER).await;
                }
            }
        }
    }

    /// Ends only when something is wrong; `after` is where to go on.
    async fn follow_store(&self, after: &mut u64) -> sess_app::Error {
        let followed: Result<(), sess_app::Error> = async {
            let mut changes = self.app.changes()?;
            loop {
                self.forget_unfollowed();
                changes.mark_unchanged();
                let happened = self.app.happened(*after, PAGE_LEN).await?;
                if happened.is_empty() {
                    let _changed = tokio::time::timeout(LOOK_AGAIN, changes.changed()).await;
                    continue;
                }
                for item in happened {
                    let position = item.position;
                    if let Some(told) = self.told(item).await? {
                        self.tell(told);
                    }
                    *after = position;
                }
            }
        }
        .await;
        followed.expect_err("it goes on until something is wrong")
    }

    async fn told(&self, item: Happened) -> Result<Option<Told>, sess_app::Error> {
        let Happened { session, what, .. } = item;
        let key = match &what {
            What::Created { key } | What::Deleted { key } => Some(key.clone()),
            _ => self.key_of(&session).await?,
        };
        let Some(key) = key else { return Ok(None) };
        self.remember(&session, &key);
        let news = match what {
            What::Message(message) => News::Message(Arc::new(message.into())),
            What::Damaged => return Ok(None),
            other => News::Other(other),
        };
        Ok(Some(Told::new(session, key, news)))
    }

    async fn key_of(&self, session: &SessionId) -> Result<Option<SessionKey>, sess_app::Error> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(session).cloned();
        match known {
            Some(key) => Ok(Some(key)),
            None => self.app.key_of(session).await,
        }
    }

    fn remember(&self, session: &SessionId, key: &SessionKey) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KEYS_MAX {
            known.clear();
        }
        known.insert(session.clone(), key.clone());
    }

    fn tell(&self, told: Told) {
        let told = Arc::new(told);
        let followed = self.keys.lock().unwrap_or_else(PoisonError::into_inner).get(&told.key).cloned();
        // Nobody may be there, which is no failure.
        let _followers = followed.map(|followers| followers.send(Arc::clone(&told)));
        let _followers = self.all.send(told);
    }

    fn forget_unfollowed(&self) {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        keys.retain(|_, followers| followers.receiver_count() > 0);
    }
}
