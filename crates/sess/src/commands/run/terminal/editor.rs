//! Lines that the person types: edited, with history and completion. It blocks, so it has a thread to itself.

use std::{
    fs::OpenOptions,
    os::unix::fs::OpenOptionsExt as _,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Context as _;
use rustyline::{
    Cmd, CompletionType, Config, Context, Editor, Event, ExternalPrinter, Helper, KeyCode, KeyEvent,
    Modifiers,
    completion::Completer,
    error::ReadlineError,
    highlight::Highlighter,
    hint::Hinter,
    history::{DefaultHistory, MemHistory},
    validate::{ValidationContext, ValidationResult, Validator},
};

const HISTORY_LEN_MAX: usize = 2_000;
/// How long a key that may begin a sequence is waited for: Esc alone means something.
const SEQUENCE_WITHIN_MS: u16 = 150;

/// What came of asking for a line.
#[derive(Debug, PartialEq, Eq)]
pub enum Typed {
    Line(String),
    /// Ctrl-C, or Esc where there is something to step back from.
    Interrupted,
    /// Ctrl-D, or the terminal is gone.
    Ended,
}

/// Which line is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A message: several lines, remembered.
    Message,
    /// The answer to a question.
    Answer,
}

/// Cheap to clone; one line is asked for at a time.
#[derive(Clone)]
pub struct Lines {
    editors: Arc<Mutex<Editors>>,
    /// Prints above the line that is being typed; not on a terminal that cannot.
    above: Option<Arc<Mutex<dyn ExternalPrinter + Send>>>,
}

struct Editors {
    message: Editor<Words, DefaultHistory>,
    answer: Editor<Words, MemHistory>,
    history: Option<PathBuf>,
}

impl Lines {
    /// `history` is the file that remembers messages.
    pub fn new(history: Option<PathBuf>) -> anyhow::Result<Self> {
        let config = Config::builder()
            .max_history_size(HISTORY_LEN_MAX)
            .context("cannot edit lines")?
            .history_ignore_space(true)
            .completion_type(CompletionType::List)
            .keyseq_timeout(Some(SEQUENCE_WITHIN_MS))
            .build();
        let mut message = Editor::with_config(config.clone()).context("cannot edit lines")?;
        message.set_helper(Some(Words::default()));
        for modifiers in [Modifiers::ALT, Modifiers::SHIFT] {
            message.bind_sequence(KeyEvent(KeyCode::Enter, modifiers), Cmd::Newline);
        }
        if let Some(path) = &history {
            // Made here, so that it is never anybody else's to read, not even for a moment.
            let made = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
            if let Err(error) = made.map_err(ReadlineError::from).and_then(|_| message.load_history(path)) {
                tracing::debug!(%error, path = %path.display(), "the history was not read");
            }
        }
        let mut answer = Editor::with_history(config.clone(), MemHistory::with_config(&config))
            .context("cannot edit lines")?;
        // Without a helper its prompt would have no colours.
        answer.set_helper(Some(Words::default()));
        let escape = Event::from(KeyEvent(KeyCode::Esc, Modifiers::NONE));
        answer.bind_sequence(escape, Cmd::Interrupt);
        let above = match message.create_external_printer() {
            Ok(above) => Some(Arc::new(Mutex::new(above)) as Arc<Mutex<dyn ExternalPrinter + Send>>),
            Err(error) => {
                tracing::debug!(%error, "nothing can be shown while a line is typed");
                None
            }
        };
        Ok(Self { editors: Arc::new(Mutex::new(Editors { message, answer, history })), above })
    }

    /// Tells which words may begin a message with a slash.
    pub fn set_words(&self, words: Vec<String>) {
        let mut editors = self.editors.lock().unwrap_or_else(PoisonError::into_inner);
        editors.message.set_helper(Some(Words { words }));
    }

    /// Shows rows above the message that is being typed, which stays as it is.
    pub fn print_above(&self, rows: &[String]) {
        let Some(above) = &self.above else { return };
        let text = format!("{}\n\n", rows.join("\n"));
        if let Err(error) = above.lock().unwrap_or_else(PoisonError::into_inner).print(text) {
            tracing::warn!(%error, "what came into the session was not shown");
        }
    }

    /// Asks for a line, after whoever is asking already.
    pub async fn read(&self, kind: Kind, prompt: Prompt) -> Typed {
        let editors = Arc::clone(&self.editors);
        let read = tokio::task::spawn_blocking(move || {
            editors.lock().unwrap_or_else(PoisonError::into_inner).read(kind, &prompt)
        });
        read.await.unwrap_or(Typed::Ended)
    }
}

/// What stands before the cursor, without and with colours.
#[derive(Clone, Debug)]
pub struct Prompt {
    pub plain: String,
    pub styled: String,
}

impl Prompt {
    pub fn new(text: &str, style: &console::Style) -> Self {
        Self { plain: text.to_owned(), styled: style.apply_to(text).to_string() }
    }
}

impl Editors {
    fn read(&mut self, kind: Kind, prompt: &Prompt) -> Typed {
        let prompt = (prompt.plain.as_str(), prompt.styled.as_str());
        let line = match kind {
            Kind::Message => self.message.readline(&prompt),
            Kind::Answer => self.answer.readline(&prompt),
        };
        match line {
            Ok(line) => {
                if kind == Kind::Message {
                    self.remember(&line);
                }
                Typed::Line(line.replace("\\\n", "\n"))
            }
            Err(ReadlineError::Interrupted) => Typed::Interrupted,
            Err(error) => {
                tracing::debug!(%error, "no line was read");
                Typed::Ended
            }
        }
    }

    fn remember(&mut self, line: &str) {
        if line.trim().is_empty() {
            return;
        }
        let added = self.message.add_history_entry(line);
        let kept = added.and_then(|_| match &self.history {
            Some(path) => self.message.append_history(path),
            None => Ok(()),
        });
        if let Err(error) = kept {
            tracing::debug!(%error, "the history was not written");
        }
    }
}

/// The words that begin a message with a slash, and what makes a line go on.
#[derive(Default)]
struct Words {
    words: Vec<String>,
}

impl Completer for Words {
    type Candidate = String;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let typed = &line[..at];
        if !typed.starts_with('/') || typed.contains(char::is_whitespace) {
            return Ok((at, Vec::new()));
        }
        let fits = self.words.iter().filter(|word| word.starts_with(&typed[1..]));
        Ok((0, fits.map(|word| format!("/{word} ")).collect()))
    }
}

impl Validator for Words {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let goes_on = context.input().ends_with('\\');
        Ok(if goes_on { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

impl Highlighter for Words {}
impl Hinter for Words {
    type Hint = String;
}
impl Helper for Words {}
