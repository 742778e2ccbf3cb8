//! Telling waiters that something was committed, here or in another process.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use tokio::sync::watch;

use super::{
    connection::{self, Access},
    readers::Readers,
};

/// How often other processes' commits are looked for while somebody waits.
///
/// One look is a read of shared memory, some microseconds: well under a
/// thousandth of a core.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How often after something was committed: more of it is likely to follow.
const LOOK_SOON: Duration = Duration::from_millis(5);
const SOON_FOR: Duration = Duration::from_secs(2);

/// For how long nobody has to have waited before the thread ends.
///
/// A turn waits several times, and what a thread costs is the connection it opens. After
/// this there is none at all.
const IDLE_FOR: Duration = Duration::from_secs(2);

pub(super) struct Notice {
    readers: Arc<Readers>,
    committed: Arc<watch::Sender<u64>>,
    looking: Arc<Mutex<Looking>>,
}

/// The thread that looks; it says itself, under the lock, when it ends.
#[derive(Default)]
struct Looking {
    is_running: bool,
    thread: Option<JoinHandle<()>>,
    stop: Option<SyncSender<()>>,
}

impl Notice {
    pub(super) fn new(committed: Arc<watch::Sender<u64>>, readers: Arc<Readers>) -> Self {
        Self { readers, committed, looking: Arc::default() }
    }

    /// Returns a receiver that changes with every commit, within [`LOOK_EVERY`] for other processes'.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        let mut looking = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        let receiver = self.committed.subscribe();
        if looking.is_running {
            return receiver;
        }
        let (stop, stopped) = sync_channel(1);
        let look = Look {
            readers: Arc::clone(&self.readers),
            committed: Arc::clone(&self.committed),
            looking: Arc::clone(&self.looking),
            stopped,
        };
        let thread = std::thread::Builder::new()
            .name("sess-notice".to_owned())
            .stack_size(256 * 1024)
            .spawn(move || look.run());
        match thread {
            Ok(thread) => {
                *looking = Looking { is_running: true, thread: Some(thread), stop: Some(stop) };
            }
            Err(error) => tracing::error!(%error, "cannot watch for other processes' changes"),
        }
        receiver
    }
}

impl Notice {
    /// Ends the thread, whoever still waits.
    pub(super) fn finish(&self) {
        let mut looking = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        looking.stop = None;
        let thread = looking.thread.take();
        drop(looking);
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the notice thread panicked");
        }
    }
}

struct Look {
    readers: Arc<Readers>,
    committed: Arc<watch::Sender<u64>>,
    looking: Arc<Mutex<Looking>>,
    stopped: Receiver<()>,
}

impl Look {
    /// Looks until nobody has waited for a while, or the store is closed.
    fn run(self) {
        let mut waited_for = Instant::now();
        let mut changed: Option<Instant> = None;
        let mut seen: Option<i64> = None;
        let mut reader = None;
        let mut generation = self.readers.generation();
        loop {
            if self.committed.receiver_count() > 0 {
                waited_for = Instant::now();
            } else if waited_for.elapsed() > IDLE_FOR && self.nobody_waits() {
                return;
            }
            if generation != self.readers.generation() {
                generation = self.readers.generation();
                reader = None;
            }
            if reader.is_none() {
                reader = connection::connect(self.readers.path(), Access::Read).ok();
            }
            let version = reader.as_ref().map(|connection| {
                let mut ask = connection.prepare_cached("PRAGMA data_version")?;
                ask.query_row([], |row| row.get::<_, i64>(0))
            });
            match version {
                // Also the first time: what was committed since the waiter last read, and
                // before this look, would otherwise be told with the next commit only.
                Some(Ok(version)) if seen != Some(version) => {
                    changed = seen.replace(version).map(|_| Instant::now());
                    self.committed.send_modify(|count| *count += 1);
                }
                Some(Ok(_)) => {}
                // The file cannot be read now: waiters look for themselves and hear why.
                Some(Err(_)) | None => {
                    reader = None;
                    self.committed.send_modify(|count| *count += 1);
                }
            }
            let is_busy = changed.is_some_and(|changed| changed.elapsed() < SOON_FOR);
            let pause = if is_busy { LOOK_SOON } else { LOOK_EVERY };
            if self.stopped.recv_timeout(pause) == Err(RecvTimeoutError::Disconnected) {
                return;
            }
        }
    }

    /// Ends the thread under the lock, so that a new waiter finds it running or gone.
    fn nobody_waits(&self) -> bool {
        let mut looking = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = self.committed.receiver_count() == 0;
        if is_over {
            looking.is_running = false;
        }
        is_over
    }
}
