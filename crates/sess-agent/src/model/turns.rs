//! A transcript as every provider takes it.
//!
//! Providers agree on what they refuse: a tool call without its result right
//! after it, a result without its call, ids that come twice, empty messages. What
//! a transcript may hold beyond that (notes, sub-sessions, blocks of other
//! providers) is said in words here, so that each API only has its own spelling
//! to add.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::{Map, Value};
use sess_core::message::{Block, Body, Role};

/// One turn. Turns alternate: a person's or results, then an assistant's; the
/// first and the last are not an assistant's.
#[derive(Debug, PartialEq)]
pub(super) enum Turn<'a> {
    User(Vec<Said<'a>>),
    /// Its results, if it made calls, are in the [`Turn::Results`] after it.
    Assistant(Vec<Spoken<'a>>),
    Results {
        results: Vec<Outcome<'a>>,
        /// What a person said after them.
        said: Vec<Said<'a>>,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Said<'a> {
    /// Not blank.
    Text(Cow<'a, str>),
    Image {
        mime_type: &'a str,
        data: &'a str,
    },
}

#[derive(Debug, PartialEq)]
pub(super) enum Spoken<'a> {
    Text(Cow<'a, str>),
    Thinking {
        text: &'a str,
        signature: &'a str,
    },
    Call {
        id: String,
        name: String,
        arguments: &'a Map<String, Value>,
    },
    /// A block that some provider wants back, and the model that made it.
    Other {
        block: &'a Map<String, Value>,
        model: Option<&'a str>,
    },
}

#[derive(Debug, PartialEq)]
pub(super) struct Outcome<'a> {
    pub(super) call_id: String,
    /// Never empty.
    pub(super) said: Vec<Said<'a>>,
    pub(super) is_error: bool,
}

/// What a tool's result says that has nothing to say.
const NO_OUTPUT: &str = "(no output)";

/// What is said for a tool call whose result was lost.
const NO_RESULT: &str = "(the call was interrupted: there is no result)";

/// What a person says who says nothing, where the provider wants a word.
const GO_ON: &str = "(continue)";

pub(super) fn turns(messages: &[Body]) -> Vec<Turn<'_>> {
    let mut made = Builder::default();
    for body in messages {
        match body.role {
            Role::User => made.user(body.content.iter().filter_map(said).collect()),
            Role::System => made.user(body.content.iter().filter_map(noted).collect()),
            Role::Assistant => made.assistant(body),
            Role::ToolResult => made.result(body),
        }
    }
    made.close();
    if matches!(made.turns.first(), None | Some(Turn::Assistant(_))) {
        made.turns.insert(0, Turn::User(vec![Said::Text(GO_ON.into())]));
    }
    if matches!(made.turns.last(), Some(Turn::Assistant(_))) {
        made.turns.push(Turn::User(vec![Said::Text(GO_ON.into())]));
    }
    made.turns
}

/// Returns all the text, for an API that takes nothing else there.
pub(super) fn text_of(said: &[Said<'_>]) -> String {
    let mut parts = said.iter().map(|said| match said {
        Said::Text(text) => text.as_ref(),
        Said::Image { .. } => "(an image, which cannot be shown here)",
    });
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + "\n\n" + part)
}

#[derive(Default)]
struct Builder<'a> {
    turns: Vec<Turn<'a>>,
    ids: HashSet<String>,
    /// The calls of the last assistant's turn: id in the transcript, id as sent, whether answered.
    open: Vec<(&'a str, String, bool)>,
}

impl<'a> Builder<'a> {
    fn user(&mut self, words: Vec<Said<'a>>) {
        if words.is_empty() {
            return;
        }
        match self.turns.last_mut() {
            Some(Turn::User(said) | Turn::Results { said, .. }) => said.extend(words),
            Some(Turn::Assistant(_)) if !self.open.is_empty() => {
                self.turns.push(Turn::Results { results: Vec::new(), said: words });
            }
            Some(Turn::Assistant(_)) | None => self.turns.push(Turn::User(words)),
        }
    }

    fn assistant(&mut self, body: &'a Body) {
        self.close();
        let mut spoken = Vec::new();
        for block in &body.content {
            let part = match block {
                Block::Thinking { text, signature: Some(signature) } => Spoken::Thinking { text, signature },
                Block::Thinking { signature: None, .. } => continue,
                Block::ToolCall { id, name, arguments } => {
                    let sent = self.own_id(id);
                    self.open.push((id, sent.clone(), false));
                    Spoken::Call { id: sent, name: word(name), arguments }
                }
                Block::Other(block) => Spoken::Other { block, model: body.model.as_deref() },
                Block::Image { .. } => Spoken::Text("(an image)".into()),
                Block::Text { .. } | Block::SubSession { .. } | Block::Compaction { .. } => match said(block)
                {
                    Some(Said::Text(text)) => Spoken::Text(text),
                    Some(Said::Image { .. }) | None => continue,
                },
            };
            spoken.push(part);
        }
        // Thinking alone is not an answer that any provider takes back.
        let speaks = |part: &Spoken<'_>| matches!(part, Spoken::Text(_) | Spoken::Call { .. });
        if !spoken.iter().any(speaks) {
            return;
        }
        match self.turns.last_mut() {
            Some(Turn::Assistant(before)) => before.extend(spoken),
            Some(Turn::User(_) | Turn::Results { .. }) | None => self.turns.push(Turn::Assistant(spoken)),
        }
    }

    fn result(&mut self, body: &'a Body) {
        let mut words: Vec<Said<'a>> = body.content.iter().filter_map(said).collect();
        if words.is_empty() {
            words.push(Said::Text(NO_OUTPUT.into()));
        }
        let id = body.tool_call_id.as_deref().unwrap_or_default();
        let Some(open) = self.open.iter_mut().find(|(call, _, answered)| *call == id && !answered) else {
            // Whoever called it is not in view any more.
            let tool = body.tool_name.as_deref().unwrap_or("a tool");
            words.insert(0, Said::Text(format!("Result of {tool}:").into()));
            return self.user(words);
        };
        open.2 = true;
        let outcome =
            Outcome { call_id: open.1.clone(), said: words, is_error: body.is_error.unwrap_or(false) };
        match self.turns.last_mut() {
            Some(Turn::Results { results, .. }) => results.push(outcome),
            _ => self.turns.push(Turn::Results { results: vec![outcome], said: Vec::new() }),
        }
    }

    /// Answers the calls that nobody answered.
    fn close(&mut self) {
        for (_, id, answered) in std::mem::take(&mut self.open) {
            if answered {
                continue;
            }
            let said = vec![Said::Text(NO_RESULT.into())];
            let outcome = Outcome { call_id: id, said, is_error: true };
            match self.turns.last_mut() {
                Some(Turn::Results { results, .. }) => results.push(outcome),
                _ => self.turns.push(Turn::Results { results: vec![outcome], said: Vec::new() }),
            }
        }
    }

    fn own_id(&mut self, id: &str) -> String {
        let stem = word(id);
        let mut own = stem.clone();
        let mut n = 1;
        while !self.ids.insert(own.clone()) {
            n += 1;
            own = format!("{stem}_{n}");
        }
        own
    }
}

/// Ids and names of one provider may have characters, or a length, that another refuses.
fn word(text: &str) -> String {
    const CHARS_MAX: usize = 64;
    let allowed = |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-');
    let word: String =
        text.chars().take(CHARS_MAX).map(|char| if allowed(char) { char } else { '_' }).collect();
    if word.is_empty() { "unnamed".to_owned() } else { word }
}

fn said(block: &Block) -> Option<Said<'_>> {
    match block {
        Block::Text { text } => (!text.trim().is_empty()).then(|| Said::Text(text.into())),
        Block::Image { mime_type, data } => Some(Said::Image { mime_type, data }),
        Block::Compaction { summary } if summary.trim().is_empty() => None,
        Block::Compaction { summary } => {
            Some(Said::Text(format!("Summary of the conversation before this point:\n\n{summary}").into()))
        }
        Block::SubSession { session_id } => {
            Some(Said::Text(format!("(another session ran here: {session_id})").into()))
        }
        Block::ToolCall { .. } | Block::Thinking { .. } | Block::Other(_) => None,
    }
}

/// Says a block of a system message so that the model does not take it for a person's words.
fn noted(block: &Block) -> Option<Said<'_>> {
    match said(block)? {
        Said::Text(text) => Some(Said::Text(format!("[note from the system] {text}").into())),
        image @ Said::Image { .. } => Some(image),
    }
}
