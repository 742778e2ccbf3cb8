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

/// The bar that is shown now, for whoever says something meanwhile and knows nothing of it.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Says something beside the progress that is shown, without the two running into each other.
pub fn beside<T>(say: impl FnOnce() -> T) -> T {
    // It is taken out meanwhile: what is said inside of this stands beside it already.
    let bar = shown().take();
    let Some(bar) = bar else { return say() };
    let told = bar.suspend(say);
    if !bar.is_finished() {
        shown().get_or_insert(bar);
    }
    told
}

fn shown() -> MutexGuard<'static, Option<ProgressBar>> {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

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
        let timer = console::Term::stderr().is_term().then(|| {
            *shown() = Some(bar.clone());
            Timer::start(bar.clone())
        });
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
            drop(shown().take());
        }
        self.bar.finish_and_clear();
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

#[cfg(test)]
mod tests {
    use std::{io, sync::Arc};

    use indicatif::TermLike;

    use super::*;

    /// A terminal that notes what it is told to write, and that a line is cleared.
    #[derive(Clone, Debug, Default)]
    struct Notes(Arc<Mutex<String>>);

    impl Notes {
        fn add(&self, what: &str) -> io::Result<()> {
            self.0.lock().expect("not poisoned").push_str(what);
            Ok(())
        }
    }

    impl TermLike for Notes {
        fn width(&self) -> u16 {
            80
        }

        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn write_line(&self, text: &str) -> io::Result<()> {
            self.add(text)
        }

        fn write_str(&self, text: &str) -> io::Result<()> {
            self.add(text)
        }

        fn clear_line(&self) -> io::Result<()> {
            self.add("<cleared>")
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_is_said_meanwhile_takes_the_place_of_the_bar_and_the_bar_comes_back() {
        let notes = Notes::default();
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::term_like(Box::new(notes.clone())));
        bar.set_style(ProgressStyle::with_template("{msg}").expect("a template"));
        bar.set_message("looking");
        *shown() = Some(bar.clone());
        bar.tick();
        for _ in 0..2 {
            // Who says something may call others that do.
            beside(|| beside(|| notes.add("notice"))).expect("said");
        }
        let told = notes.0.lock().expect("not poisoned").clone();
        let words: Vec<&str> = told.split_whitespace().collect();
        let told = words.concat();
        assert!(told.contains("<cleared>noticelooking<cleared>noticelooking"), "{told}");
        bar.finish_and_clear();
        beside(|| ());
        assert!(shown().is_none(), "one that is gone is not kept");
    }
}
