//! The use cases of `sess`, and the tools that agents can call.
//!
//! A use case loads what a decision needs, lets `sess-core` decide, and has the
//! store commit. Nothing here knows MCP, HTTP or the terminal.

pub mod agents;
mod callers;
mod chats;
mod configured;
mod context;
mod error;
mod events;
mod follow_ups;
mod following;
pub mod handoff;
mod history;
mod imports;
mod index;
mod live;
mod managing;
mod others;
mod plans;
mod reach;
mod requests;
mod retention;
mod reviews;
mod rows;
mod runs;
mod scrub;
mod search;
mod sending;
mod sessions;
mod snapshots;
mod spawning;
mod streaming;
mod tokens;
pub mod tools;
pub mod transfer;
mod waiting;
mod working;

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use sess_core::{RunId, SessionId, Timestamp, policy::ContextVisibility};
use sess_store::{PlanFiles, Store};
use tokio::{sync::watch, task::JoinHandle};

pub use callers::{Caller, Whoami};
pub use chats::{Chat, ChatFile, ChatTo, Chatted, Through};
pub use configured::{ConfigSource, Configured};
pub use context::{ListSessions, Listed, Listing, ReadSession, Redaction, Scope, Transcript};
pub use error::{Error, Kind, Result};
pub use events::{Event, EventPage, ReadEvents};
pub use following::{Happened, SeenMessage, TranscriptPage, What};
pub use handoff::Handoff;
pub use history::{History, ReadHistory};
pub use imports::{Import, ImportedFile};
pub use index::{IndexSize, IndexState, Indexing, Unindexed};
pub use live::{LiveAgent, LiveState};
pub use managing::PatchSession;
pub use others::Led;
pub use plans::{PlanAnswer, PlanLogEntry, PlanText, ReviewPlan, WritePlan};
pub use reach::Reached;
pub use retention::{Retention, SOON_DAYS};
pub use reviews::Review;
pub use rows::{ListRows, Others, sources};
pub use runs::{ListRuns, RUNS_LEN, RunRow};
pub use scrub::{Scrubbed, ScrubbedSession};
pub use search::{Found, SEARCH_LEN, SearchHit, SearchMessages, Spot};
pub use sending::{Inbox, InboxMessage, Replied, SendMessage, WAIT_SECONDS, WAIT_SECONDS_MAX};
pub use sess_core::identity::Signals;
pub use sess_protocol::sessions::{DeliveryContext, Row, Rows, SendAnswer};
pub use sess_store::{Health, Salvaged, Scrubbing};
pub use snapshots::{
    ForgottenSnapshots, KeptSnapshot, SnapshotRow, SnapshotRows, Snapshots, SnapshotsLeft, Unsaved,
};
pub use spawning::{Attachment, Receipt, ReceiptFile, SpawnAnswer, SpawnTask, Spawnable, SpawnableAgent};
pub use streaming::StreamedText;
pub use tokens::{Access, COOKIE_FOR, LOGIN_CODE_FOR, NewToken, Secret};
pub use waiting::Waiting;

/// How long a process that ends waits for the sweep.
const FINISH_WITHIN: Duration = Duration::from_secs(2);

/// What a process is set up with. Read once, in the binary.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The data directory; none when this machine has no place for one. Then
    /// there is no store, and every tool says so.
    pub home: Option<PathBuf>,
    /// Where plan files live; in the data directory when not moved.
    pub plans_dir: Option<PathBuf>,
    /// How many days an unused plan file stays; 0 keeps all.
    pub plans_keep_days: u32,
    pub context_visibility: ContextVisibility,
    /// What may change while the process runs.
    pub configured: ConfigSource,
    /// Where this process was started.
    pub cwd: Option<String>,
    /// The repository that contains `cwd`.
    pub repo: Option<String>,
    /// What this machine is called.
    pub host: String,
    /// Where other agents keep their sessions; none when they are not to be read.
    pub homes: Option<sess_readers::Homes>,
    /// The clock.
    pub now: fn() -> Timestamp,
    /// 128 random bits.
    pub random: fn() -> u128,
}

/// The use cases. Cheap to clone.
#[derive(Clone)]
pub struct App {
    inner: Arc<Inner>,
}

struct Inner {
    settings: Settings,
    /// The session of this process, for callers that give no sign who they are.
    own: SessionId,
    store: Mutex<Option<Arc<dyn Store>>>,
    /// None when there is no store.
    files: Option<PlanFiles>,
    sweep: OnceLock<Mutex<Option<JoinHandle<()>>>>,
    /// Set when the process wants to end: the sweep stops after the plan it is at.
    is_ending: AtomicBool,
    /// How many written plans followers have yet to be told of.
    news: watch::Sender<usize>,
    /// How many seats are being given up.
    leaving: watch::Sender<usize>,
    /// Ended runs that are being settled here.
    settling: watch::Sender<HashSet<RunId>>,
    /// What is known of other agents' sessions.
    catalogue: Mutex<sess_readers::Catalogue>,
    /// What could not be read of theirs, as it was last told.
    last_warning: Mutex<String>,
    last_lines: Mutex<live::LastLines>,
    /// Pages of theirs that were read last.
    pages: Mutex<others::Pages>,
}

impl App {
    /// Sets up the use cases. Nothing is opened before it is needed.
    pub fn new(mut settings: Settings) -> Self {
        if let Some(home) = &settings.home {
            settings.homes = settings.homes.map(|homes| homes.with_snapshots(snapshots::dir(home)));
        }
        // Plan files without rows would have no revisions, so they need a home too.
        let files = settings.home.as_ref().map(|home| {
            let dir = settings.plans_dir.clone().unwrap_or_else(|| home.join("session_plans"));
            PlanFiles::new(std::path::absolute(&dir).unwrap_or(dir))
        });
        let own = sess_core::id::uuid((settings.random)());
        let inner = Inner {
            settings,
            own,
            store: Mutex::default(),
            files,
            sweep: OnceLock::new(),
            is_ending: AtomicBool::new(false),
            news: watch::Sender::new(0),
            leaving: watch::Sender::new(0),
            settling: watch::Sender::default(),
            catalogue: Mutex::default(),
            last_warning: Mutex::default(),
            last_lines: Mutex::default(),
            pages: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Waits until followers were told of everything that this process has written.
    pub(crate) async fn news_is_out(&self) {
        let mut news = self.inner.news.subscribe();
        news.wait_for(|pending| *pending == 0).await.expect("the sender lives as long as the app");
    }

    /// Waits for work that was begun in the background; a long sweep is left to the next process.
    pub async fn finish(&self) {
        self.news_is_out().await;
        let mut leaving = self.inner.leaving.subscribe();
        let left = leaving.wait_for(|pending| *pending == 0);
        if tokio::time::timeout(FINISH_WITHIN, left).await.is_err() {
            tracing::warn!("a seat in a session was not given up; it ends by itself");
        }
        let handle = self
            .inner
            .sweep
            .get()
            .and_then(|sweep| sweep.lock().unwrap_or_else(PoisonError::into_inner).take());
        let Some(mut handle) = handle else { return };
        let ended = match tokio::time::timeout(FINISH_WITHIN, &mut handle).await {
            Ok(ended) => ended,
            Err(_) => {
                self.inner.is_ending.store(true, Ordering::Relaxed);
                handle.await
            }
        };
        if let Err(error) = ended {
            tracing::error!(%error, "the sweep of old plans did not end well");
        }
    }

    /// Reads the whole store and names every damage.
    pub fn health(&self) -> Result<Health> {
        Ok(sess_store::health(self.home()?)?)
    }

    /// Copies what can be read of a damaged store into a new one in `target`.
    pub async fn salvage(&self, target: &Path) -> Result<Salvaged> {
        Ok(sess_store::salvage(self.home()?, target).await?)
    }

    /// Brings search index and mirror up to date; `told` hears how many of how many are done.
    pub async fn catch_up(&self, told: &(dyn Fn(u64, u64) + Send + Sync)) -> Result<()> {
        Ok(self.store()?.catch_up(told).await?)
    }

    pub fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    /// Opens the store at its first use; after a failure the next use tries again.
    fn store(&self) -> Result<Arc<dyn Store>> {
        let mut store = self.inner.store.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = &*store {
            return Ok(Arc::clone(store));
        }
        let opened = sess_store::open(self.home()?)?;
        *store = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// Tells whether there is a store to read: reading never makes one.
    pub fn has_store(&self) -> bool {
        let store = self.inner.store.lock().unwrap_or_else(PoisonError::into_inner);
        // Only "not found" is no store yet; a place that cannot be looked at is an error on opening.
        let is_missing = |home: &Path| {
            let found = home.join("sess.db").symlink_metadata();
            found.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
        };
        store.is_some() || self.home().is_ok_and(|home| !is_missing(home))
    }

    /// Returns where the store is or will be.
    fn home(&self) -> Result<&Path> {
        let none = || Error::Unavailable("session history is not available in this runtime".to_owned());
        self.inner.settings.home.as_deref().ok_or_else(none)
    }

    fn plan_files(&self) -> Result<&PlanFiles> {
        let none = || Error::Unavailable("session plans are not available in this runtime".to_owned());
        self.inner.files.as_ref().ok_or_else(none)
    }

    /// Returns what the clock says.
    pub fn time(&self) -> Timestamp {
        self.now()
    }

    fn now(&self) -> Timestamp {
        (self.inner.settings.now)()
    }

    fn random(&self) -> u128 {
        (self.inner.settings.random)()
    }
}

/// Returns where the transcript of a session is as a file, once it is mirrored.
fn transcript_path(home: &Path, id: &SessionId) -> PathBuf {
    home.join("transcripts").join(format!("{id}.jsonl"))
}

/// Returns the version of the SQLite that is built in.
pub fn sqlite_version() -> String {
    sess_store::sqlite_version()
}
