//! What a first pass over a rollout finds: what is in it twice, and what was rolled back.

use std::{collections::HashSet, ops::Range, path::Path};

use serde_json::Value;
use sess_core::message::Block;

use super::{
    asked, item,
    record::{self, Gist, Line, Part},
};
use crate::{Result, files::Lines, json, session::name};

/// A few bytes a message, a tool call and a turn; the rest does not grow with the file.
#[derive(Default)]
pub(super) struct Outline {
    /// What the person saw the model think was written down, not only what the model saw.
    pub has_reasoning: bool,
    pub has_compactions: bool,
    turns: Vec<Turn>,
    /// Some turn has prompts as the person saw them.
    has_prompts: bool,
    /// What the person saw in each turn.
    shown: HashSet<(usize, u64)>,
    /// What each compaction told the model to go on from, and the turn that it was in.
    summaries: Vec<(usize, String)>,
    /// Something of the model's came since the turn began.
    is_answered: bool,
    calls: HashSet<u64>,
    rolled_back: Vec<Range<u64>>,
}

/// What lies between two prompts: the first of it stands in the line with this number.
struct Turn {
    start: u64,
    /// What the person saw was written down, not only what the model saw.
    has_prompts: bool,
    has_answers: bool,
}

impl Outline {
    pub(super) fn of(path: &Path) -> Result<Self> {
        let mut outline = Self::default();
        outline.begin(0);
        let mut prompts: Vec<u64> = Vec::new();
        let mut lines = Lines::of_any(path)?;
        let mut number = 0;
        while let Some(line) = lines.next()? {
            if let Ok(line) = Line::read(line)
                && let Some(gist) = line.gist()
            {
                outline.roll_back(&line, &gist, number, &mut prompts);
                outline.see(&line, &gist, number);
            }
            number += 1;
        }
        Ok(outline)
    }

    fn roll_back(&mut self, line: &Line<'_>, gist: &Gist<'_>, number: u64, prompts: &mut Vec<u64>) {
        match record::turn(line, gist) {
            Some(record::Turn::Begins) => prompts.push(number),
            Some(record::Turn::RolledBack(count)) => {
                let left = prompts.len().saturating_sub(usize::try_from(count).unwrap_or(usize::MAX));
                if let Some(first) = prompts.get(left) {
                    self.rolled_back.push(*first..number);
                    prompts.truncate(left);
                }
            }
            None => {}
        }
    }

    fn see(&mut self, line: &Line<'_>, gist: &Gist<'_>, number: u64) {
        match record::part(line, gist) {
            Some(Part::Start) => self.begin(number),
            Some(Part::Prompt) => self.prompt(line, number),
            Some(Part::Answer) => self.answer(line),
            Some(Part::Asked) => self.ask(number),
            Some(Part::Made) => self.is_answered = true,
            None => {}
        }
        match (&*line.kind, &*gist.kind) {
            ("event_msg", "agent_reasoning" | "agent_reasoning_raw_content") => self.has_reasoning = true,
            ("event_msg", "item_completed") => {
                self.has_reasoning |= gist.item.as_ref().is_some_and(|item| item.kind == "Reasoning");
            }
            ("compacted", _) => {
                self.has_compactions = true;
                let payload = line.payload().unwrap_or_default();
                let told = json::field(&payload, "message").unwrap_or_default().to_owned();
                self.summaries.push((self.turns.len() - 1, told));
            }
            ("response_item", kind) if kind.ends_with("_call") => {
                self.calls.extend(gist.call_id.as_deref().or(gist.id.as_deref()).map(name));
            }
            _ => {}
        }
    }

    /// Begins a turn, unless nothing came since the last one began but what was asked.
    fn ask(&mut self, number: u64) {
        if self.is_answered {
            self.begin(number);
        }
    }

    fn begin(&mut self, start: u64) {
        self.is_answered = false;
        self.turns.push(Turn { start, has_prompts: false, has_answers: false });
    }

    fn prompt(&mut self, line: &Line<'_>, number: u64) {
        self.ask(number);
        self.show(line);
        self.has_prompts = true;
        if let Some(turn) = self.turns.last_mut() {
            turn.has_prompts = true;
        }
    }

    fn answer(&mut self, line: &Line<'_>) {
        self.is_answered = true;
        self.show(line);
        if let Some(turn) = self.turns.last_mut() {
            turn.has_answers = true;
        }
    }

    /// Notes the words of what the person saw.
    fn show(&mut self, line: &Line<'_>) {
        let payload = line.payload().unwrap_or_default();
        let content = match payload.get("message") {
            Some(Value::String(text)) => vec![json::text(asked(text))],
            _ => item::content(payload.pointer("/item/content"), asked),
        };
        let turn = self.turns.len() - 1;
        self.shown.extend(texts(&content).map(|text| (turn, text)));
    }

    /// Tells whether a prompt that the model saw in the line with this number is written down as the person saw it, or was
    /// none of the person's: Codex says things in the person's place while it is at work.
    pub(super) fn has_prompt(&self, number: u64, content: &[Block]) -> bool {
        let is_shown = |turn: &Turn| turn.has_prompts || turn.has_answers;
        self.has_prompts && self.has(number, content, is_shown)
    }

    /// Tells whether an answer that the model saw in the line with this number is written down as the person saw it, or was
    /// none to the person: a compaction asks the model for a summary.
    pub(super) fn has_answer(&self, number: u64, content: &[Block]) -> bool {
        self.has(number, content, |turn| turn.has_answers) || self.is_summary(number, content)
    }

    fn is_summary(&self, number: u64, content: &[Block]) -> bool {
        let place = self.place(number);
        let told =
            |text: &str| self.summaries.iter().any(|(turn, told)| *turn == place && told.contains(text));
        let is_told = |block: &Block| matches!(block, Block::Text { text } if !text.trim().is_empty() && told(text.trim()));
        content.iter().any(is_told)
    }

    /// Returns the turn that the line with this number belongs to.
    fn place(&self, number: u64) -> usize {
        self.turns.partition_point(|turn| turn.start <= number).saturating_sub(1)
    }

    /// Tells whether the turn has it, or one beside it these words: what one saw may be written after what the other said.
    fn has(&self, number: u64, content: &[Block], has: impl Fn(&Turn) -> bool) -> bool {
        let place = self.place(number);
        let beside = place.saturating_sub(1)..=place + 1;
        let is_shown = |text: u64| beside.clone().any(|turn| self.shown.contains(&(turn, text)));
        self.turns.get(place).is_some_and(has) || texts(content).any(is_shown)
    }

    /// Tells whether the line with this number belongs to a turn that was rolled back.
    pub(super) fn is_rolled_back(&self, number: u64) -> bool {
        self.rolled_back.iter().any(|range| range.contains(&number))
    }

    /// Tells whether what the model saw has this tool call.
    pub(super) fn has_call(&self, id: &str) -> bool {
        self.calls.contains(&name(id))
    }
}

/// Names the texts of a message in little memory.
fn texts(content: &[Block]) -> impl Iterator<Item = u64> {
    content.iter().filter_map(|block| match block {
        Block::Text { text } if !text.trim().is_empty() => Some(name(text.trim())),
        _ => None,
    })
}
