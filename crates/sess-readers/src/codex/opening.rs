//! What a thread is called when nobody named it: by the first prompt that is still part of it.

use std::ops::Range;

use super::record::{self, Line, Turn, speaks};

/// What the lines of one rollout say, in their order.
pub(super) struct Opening {
    /// The ordinals of what belongs to the thread.
    own: Range<u64>,
    next: u64,
    /// The title that the prompt of each turn makes that was not rolled back.
    turns: Vec<Option<String>>,
    /// The title that the first prompt makes that only the model is known to have seen.
    asked: Option<String>,
    has_turns: bool,
    pub(super) is_spoken: bool,
}

impl Opening {
    pub(super) fn new(own: Range<u64>) -> Self {
        Self { own, next: 0, turns: Vec::new(), asked: None, has_turns: false, is_spoken: false }
    }

    /// Sees a line, and tells whether it knows the title, as far as the next ones do not take it back.
    pub(super) fn see(&mut self, line: &[u8]) -> bool {
        match Line::read(line) {
            Ok(line) => self.record(&line),
            Err(_) => self.next = self.next.saturating_add(1),
        }
        self.title().is_some()
    }

    /// Passes over a line of which it is known that it is no prompt and takes none back.
    pub(super) fn pass(&mut self) {
        self.next = self.next.saturating_add(1);
    }

    fn record(&mut self, line: &Line<'_>) {
        let ordinal = line.ordinal.unwrap_or(self.next);
        self.next = ordinal.saturating_add(1);
        if !self.own.contains(&ordinal) {
            return;
        }
        self.is_spoken = self.is_spoken || speaks(line);
        let gist = line.gist();
        match gist.as_ref().and_then(|gist| record::turn(line, gist)) {
            Some(Turn::Begins) => {
                self.has_turns = true;
                // Those behind the first title are only counted.
                let is_known = self.turns.iter().any(Option::is_some);
                self.turns.push(if is_known { None } else { record::opening(line) });
            }
            Some(Turn::RolledBack(count)) => {
                let count = usize::try_from(count).unwrap_or(usize::MAX);
                self.turns.truncate(self.turns.len().saturating_sub(count));
            }
            None if self.asked.is_none() && !self.has_turns => self.asked = record::opening(line),
            None => {}
        }
    }

    /// Returns the title that the first prompt makes.
    pub(super) fn title(&self) -> Option<&str> {
        let asked = self.asked.as_ref().filter(|_| !self.has_turns);
        self.turns.iter().flatten().next().or(asked).map(String::as_str)
    }
}

/// Tells whether a line may be a prompt, or take one back.
pub(super) fn may_be_prompt(line: &[u8]) -> bool {
    let signs =
        ["user_message", "UserMessage", "\"user\"", "inter_agent_communication", "thread_rolled_back"];
    signs.iter().any(|sign| memchr::memmem::find(line, sign.as_bytes()).is_some())
}
