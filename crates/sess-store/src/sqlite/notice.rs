//! Telling waiters that something was committed, here or in another process.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use tokio::sync::watch;

use super::connection::{self, Access};

/// How often other processes' commits are looked for while somebody waits.
///
/// One look is a read of shared memory, some microseconds: well under a
/// thousandth of a core. With nobody waiting there is no thread at all.
const LOOK_EVERY: Duration = Duration::from_millis(20);

pub(super) struct Notice {
    path: PathBuf,
    committed: Arc<watch::Sender<u64>>,
    looking: Mutex<Option<JoinHandle<()>>>,
}

impl Notice {
    pub(super) fn new(path: &Path, committed: Arc<watch::Sender<u64>>) -> Self {
        Self { path: path.to_owned(), committed, looking: Mutex::default() }
    }

    /// Returns a receiver that changes with every commit, within [`LOOK_EVERY`] for other processes'.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        let receiver = self.committed.subscribe();
        let mut looking = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        if looking.as_ref().is_none_or(JoinHandle::is_finished) {
            let (path, committed) = (self.path.clone(), Arc::downgrade(&self.committed));
            let thread = std::thread::Builder::new()
                .name("sess-notice".to_owned())
                .stack_size(256 * 1024)
                .spawn(move || look(&path, &committed));
            match thread {
                Ok(thread) => *looking = Some(thread),
                Err(error) => tracing::error!(%error, "cannot watch for other processes' changes"),
            }
        }
        receiver
    }
}

/// Looks until nobody waits any more.
#[expect(
    clippy::disallowed_methods,
    reason = "a thread of its own, which SQLite gives nothing else to wait for"
)]
fn look(path: &Path, committed: &std::sync::Weak<watch::Sender<u64>>) {
    let mut seen: Option<i64> = None;
    let mut reader = None;
    loop {
        let Some(committed) = committed.upgrade() else { return };
        if committed.receiver_count() == 0 {
            return;
        }
        if reader.is_none() {
            reader = connection::connect(path, Access::Read).ok();
        }
        let version = reader.as_ref().map(|connection| {
            connection.pragma_query_value(None, "data_version", |row| row.get::<_, i64>(0))
        });
        match version {
            Some(Ok(version)) if seen != Some(version) => {
                if seen.is_some() {
                    committed.send_modify(|count| *count += 1);
                }
                seen = Some(version);
            }
            Some(Ok(_)) => {}
            // The file cannot be read now: waiters look for themselves and hear why.
            Some(Err(_)) | None => {
                reader = None;
                committed.send_modify(|count| *count += 1);
            }
        }
        drop(committed);
        std::thread::sleep(LOOK_EVERY);
    }
}
