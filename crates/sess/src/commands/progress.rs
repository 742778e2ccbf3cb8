//! How far something is, shown on stderr to whoever waits for it longer than half a second.

use std::{
    borrow::Cow,
    sync::{Mutex, MutexGuard, PoisonError, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const SHOWN_AFTER: Duration = Duration::from_millis(500);
/// How often it moves, whether or not anything is told: a clock that stands still looks like a program that hangs.
const MOVES_EVERY: Duration = Duration::from_millis(100);

/// What is done, and for how long already; a bar as soon as it is known how much there is to do.
///
/// It is shown in a terminal alone, and gone when this is dropped: before anything is printed.
pub struct Progress {
    bar: ProgressBar,
    /// What shows it in time, until it is cleared.
    timer: Mutex<Option<Timer>>,
}

/// A thread, since the work may keep every other one busy; told to end by its sender being dropped.
struct Timer {
    stop: mpsc::SyncSender<()>,
    thread: JoinHandle<()>,
}

impl Progress {
    pub fn new(what: impl Into<Cow<'static, str>>) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template("{spinner:.cyan} {msg} {elapsed:.dim}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        bar.set_message(what);
        let timer = console::Term::stderr().is_term().then(|| Timer::start(bar.clone()));
        Self { bar, timer: Mutex::new(timer) }
    }

    pub fn set(&self, done: u64, all: u64) {
        if self.bar.length().is_none() {
            let style = ProgressStyle::with_template("{msg} {wide_bar} {human_pos}/{human_len} {elapsed}");
            self.bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        }
        self.bar.set_length(all);
        self.bar.set_position(done);
    }

    /// Takes it away, whoever still tells it something.
    pub fn clear(&self) {
        // The timer ends first, so that it cannot show what is gone.
        if let Some(Timer { stop, thread }) = self.timer().take() {
            drop(stop);
            // It does nothing that fails; if it did, there would be nothing to clear.
            let _ended = thread.join();
        }
        self.bar.finish_and_clear();
    }

    /// Says something beside it, without the two running into each other.
    pub fn aside<T>(&self, say: impl FnOnce() -> T) -> T {
        self.bar.suspend(say)
    }

    fn timer(&self) -> MutexGuard<'_, Option<Timer>> {
        self.timer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Timer {
    fn start(bar: ProgressBar) -> Self {
        let (stop, stopped) = mpsc::sync_channel(0);
        let thread = thread::spawn(move || {
            if stopped.recv_timeout(SHOWN_AFTER) == Err(mpsc::RecvTimeoutError::Timeout) {
                bar.set_draw_target(ProgressDrawTarget::stderr());
                bar.enable_steady_tick(MOVES_EVERY);
            }
        });
        Self { stop, thread }
    }
}
