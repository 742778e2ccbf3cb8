//! `sess run` in a terminal: a chat with the agents of the configuration.
//!
//! Here is the person as a run sees them; `chat` is the conversation, `screen` what is drawn while a turn
//! runs, `editor` what is typed.

mod ask;
mod calls;
mod chat;
mod editor;
mod markdown;
mod review;
mod screen;
mod visits;
mod words;

use std::{
    io::{self, Write as _},
    path::PathBuf,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use rustix::termios::{LocalModes, OptionalActions, QueueSelector, Termios, tcflush, tcgetattr, tcsetattr};
use sess_app::agents::{Answer, News, Permission, Person, Place, Question};
use sess_core::turn::{Asking, Call};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;

use self::{
    editor::{Kind, Lines, Prompt, Typed},
    screen::Screen,
};

pub use chat::chat;
pub use screen::elapsed;

/// The person at the terminal.
pub struct Terminal {
    screen: Mutex<Screen>,
    lines: Lines,
    /// One question at a time, whoever asks.
    asking: Semaphore,
    turn: Mutex<CancellationToken>,
    /// A message is being typed: nothing is asked.
    is_typing: AtomicBool,
    /// How the terminal was before us; given back at the end.
    modes: Option<Termios>,
}

impl Terminal {
    /// `history` is the file that remembers what was typed; it is the person's alone.
    pub fn new(history: Option<PathBuf>) -> anyhow::Result<Self> {
        Ok(Self {
            modes: tcgetattr(io::stdin()).ok(),
            screen: Mutex::default(),
            lines: Lines::new(history)?,
            asking: Semaphore::new(1),
            turn: Mutex::default(),
            is_typing: AtomicBool::new(false),
        })
    }

    fn screen(&self) -> MutexGuard<'_, Screen> {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn width(&self) -> usize {
        self.screen().width()
    }

    fn set_typing(&self, is_typing: bool) {
        self.is_typing.store(is_typing, Ordering::Relaxed);
    }

    /// Stops the turn that runs, as Ctrl-C does.
    fn stop_turn(&self) {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner).cancel();
        self.screen().stopping();
    }

    /// What is typed while a turn runs is not shown: it would be written into the answer.
    fn set_quiet(&self, is_quiet: bool) {
        let Some(mut modes) = self.modes.clone() else { return };
        if is_quiet {
            modes.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON);
        }
        // A terminal that is gone needs no modes.
        let _gone = tcsetattr(io::stdin(), OptionalActions::Drain, &modes);
    }

    /// Takes the terminal for a question; what moves stands still until it is answered.
    async fn ask(&self) -> Asked<'_> {
        let turn = self.asking.acquire().await.expect("never closed");
        self.screen().pause();
        Asked { terminal: self, _turn: turn, is_answered: AtomicBool::new(false) }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.set_quiet(false);
    }
}

/// The terminal, while the person is asked something.
struct Asked<'a> {
    terminal: &'a Terminal,
    _turn: SemaphorePermit<'a>,
    is_answered: AtomicBool,
}

impl Asked<'_> {
    fn say(&self, text: &str) {
        let _gone = write!(io::stdout(), "{text}\r\n");
    }

    async fn read(&self, prompt: Prompt) -> Typed {
        self.terminal.lines.read(Kind::Answer, prompt).await
    }

    /// What was typed before the question was seen is no answer to it.
    fn forget_typed(&self) {
        let _gone = tcflush(io::stdin(), QueueSelector::IFlush);
    }

    fn answered(&self) {
        self.is_answered.store(true, Ordering::Relaxed);
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if !self.is_answered.load(Ordering::Relaxed) {
            // The turn was stopped under the question, and the editor still waits for its line.
            self.say("\r\nthe turn has ended meanwhile: press Enter");
        }
        self.terminal.screen().resume();
    }
}

#[async_trait]
impl Person for Terminal {
    fn asking(&self) -> Asking {
        // A question would have to take the line away that is being typed.
        if self.is_typing.load(Ordering::Relaxed) { Asking::Nobody } else { Asking::Possible }
    }

    async fn permit(&self, place: &Place, call: &Call) -> Permission {
        self.screen().asked(&call.id, &call.arguments);
        ask::permit(self, place, call).await
    }

    async fn answer(&self, place: &Place, question: &Question) -> Result<Answer, String> {
        Ok(ask::answer(self, place, question).await)
    }

    fn tell(&self, place: &Place, news: &News) {
        self.screen().news(place, news);
    }
}
