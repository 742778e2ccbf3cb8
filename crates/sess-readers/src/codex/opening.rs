//! What a thread is called when nobody named it: by the first prompt that is still part of it.

use std::{mem, ops::Range};

use super::record::{self, Gist, Line, Part, speaks};

/// What the lines of one rollout say, in their order.
pub(super) struct Opening {
    /// The ordinals of what belongs to the thread.
    own: Range<u64>,
    next: u64,
    /// What the prompts make that stand there and were not rolled back.
    prompts: Vec<Prompt>,
    /// The title that the first prompt makes that only the model is known to have seen: it stands there if the person saw
    /// none in the whole file.
    asked: Option<String>,
    /// What came since the last prompt.
    turn: Turn,
    has_turns: bool,
    pub(super) is_spoken: bool,
}

struct Prompt {
    title: Option<String>,
    /// It began a turn: those that only the model is known to have seen are not counted when turns are rolled back.
    is_counted: bool,
}

/// What lies between two prompts, as the outline of a rollout has it.
#[derive(Default)]
struct Turn {
    /// The title that the first prompt in it makes that only the model is known to have seen.
    asked: Option<String>,
    is_answered: bool,
    /// What the person saw was written down.
    is_shown: bool,
}

impl Opening {
    pub(super) fn new(own: Range<u64>) -> Self {
        Self {
            own,
            next: 0,
            prompts: Vec::new(),
            asked: None,
            turn: Turn::default(),
            has_turns: false,
            is_spoken: false,
        }
    }

    /// Sees a line, and tells whether it knows the title, as far as the next ones do not take it back.
    pub(super) fn see(&mut self, line: &[u8]) -> bool {
        match Line::read(line) {
            Ok(line) => self.record(&line),
            Err(_) => self.next = self.next.saturating_add(1),
        }
        self.first().is_some() || self.only().is_some()
    }

    /// Sees a line that may change the title, and passes over the others.
    pub(super) fn see_if_prompt(&mut self, line: &[u8]) {
        if self.first().is_none() || may_be_prompt(line) {
            self.see(line);
        } else {
            self.next = self.next.saturating_add(1);
        }
    }

    fn record(&mut self, line: &Line<'_>) {
        let ordinal = line.ordinal.unwrap_or(self.next);
        self.next = ordinal.saturating_add(1);
        if !self.own.contains(&ordinal) {
            return;
        }
        self.is_spoken = self.is_spoken || speaks(line);
        let Some(gist) = line.gist() else { return };
        match record::turn(line, &gist) {
            Some(record::Turn::Begins) => {
                self.ask();
                self.has_turns = true;
                self.turn.is_shown = true;
                // Those behind the first title are only counted.
                let title = if self.first().is_some() { None } else { record::opening(line) };
                self.prompts.push(Prompt { title, is_counted: true });
            }
            Some(record::Turn::RolledBack(count)) => self.roll_back(count),
            None => self.go_on(line, &gist),
        }
    }

    fn go_on(&mut self, line: &Line<'_>, gist: &Gist<'_>) {
        match record::part(line, gist) {
            Some(Part::Start) => self.end(),
            Some(Part::Answer) => (self.turn.is_answered, self.turn.is_shown) = (true, true),
            Some(Part::Made) => self.turn.is_answered = true,
            Some(Part::Asked) => {
                self.ask();
                if self.first().is_none() && self.turn.asked.is_none() && !self.turn.is_shown {
                    self.turn.asked = record::opening(line);
                    self.asked = self.asked.take().or_else(|| self.turn.asked.clone());
                }
            }
            Some(Part::Prompt) | None => {}
        }
    }

    /// Ends the turn, unless nothing came in it but what was asked.
    fn ask(&mut self) {
        if self.turn.is_answered {
            self.end();
        }
    }

    fn end(&mut self) {
        let turn = mem::take(&mut self.turn);
        if let Some(title) = turn.stands()
            && self.first().is_none()
        {
            self.prompts.push(Prompt { title: Some(title.to_owned()), is_counted: false });
        }
    }

    fn roll_back(&mut self, count: u64) {
        let counted = self.prompts.iter().filter(|prompt| prompt.is_counted).count();
        let left = counted.saturating_sub(usize::try_from(count).unwrap_or(usize::MAX));
        let mut places = (0..self.prompts.len()).filter(|place| self.prompts[*place].is_counted);
        match places.nth(left) {
            Some(first) => {
                self.prompts.truncate(first);
                self.turn = Turn::default();
            }
            None => self.end(),
        }
    }

    /// Returns the title that the first prompt makes.
    pub(super) fn title(&self) -> Option<&str> {
        self.first().or_else(|| self.only()).or_else(|| self.turn.stands())
    }

    fn first(&self) -> Option<&str> {
        self.prompts.iter().find_map(|prompt| prompt.title.as_deref())
    }

    fn only(&self) -> Option<&str> {
        self.asked.as_deref().filter(|_| !self.has_turns)
    }
}

impl Turn {
    /// Returns the title that it makes where it stands only as the model saw it: something of the model's came, and
    /// nothing that the person saw.
    fn stands(&self) -> Option<&str> {
        self.asked.as_deref().filter(|_| self.is_answered && !self.is_shown)
    }
}

/// Tells whether a line may be a prompt, or take one back.
fn may_be_prompt(line: &[u8]) -> bool {
    let signs =
        ["user_message", "UserMessage", "\"user\"", "inter_agent_communication", "thread_rolled_back"];
    signs.iter().any(|sign| memchr::memmem::find(line, sign.as_bytes()).is_some())
}
