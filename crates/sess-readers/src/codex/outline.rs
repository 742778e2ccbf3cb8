//! What a first pass over a rollout finds: what is in it twice, and what was rolled back.

use std::{collections::HashSet, ops::Range, path::Path};

use super::record::{self, Line, Turn};
use crate::{Result, files::Lines, session::name};

/// A few bytes a tool call and a turn; the rest does not grow with the file.
#[derive(Default)]
pub(super) struct Outline {
    /// What the person saw was written down, not only what the model saw.
    pub has_prompts: bool,
    pub has_answers: bool,
    pub has_reasoning: bool,
    pub has_compactions: bool,
    calls: HashSet<u64>,
    rolled_back: Vec<Range<u64>>,
}

impl Outline {
    pub(super) fn of(path: &Path) -> Result<Self> {
        let mut outline = Self::default();
        let mut turns: Vec<u64> = Vec::new();
        let mut lines = Lines::of_any(path)?;
        let mut number = 0;
        while let Some(line) = lines.next()? {
            if let Ok(line) = Line::read(line) {
                outline.see(&line, number, &mut turns);
            }
            number += 1;
        }
        Ok(outline)
    }

    fn see(&mut self, line: &Line<'_>, number: u64, turns: &mut Vec<u64>) {
        match record::turn(line) {
            Some(Turn::Begins) => turns.push(number),
            Some(Turn::RolledBack(count)) => {
                let left = turns.len().saturating_sub(usize::try_from(count).unwrap_or(usize::MAX));
                if let Some(first) = turns.get(left) {
                    self.rolled_back.push(*first..number);
                    turns.truncate(left);
                }
            }
            None => {}
        }
        let Some(gist) = line.gist() else { return };
        match (&*line.kind, &*gist.kind) {
            ("event_msg", "user_message") => self.has_prompts = true,
            ("event_msg", "agent_message") => self.has_answers = true,
            ("event_msg", "agent_reasoning" | "agent_reasoning_raw_content") => self.has_reasoning = true,
            ("event_msg", "item_completed") => match gist.item.as_ref().map_or("", |item| &*item.kind) {
                "UserMessage" => self.has_prompts = true,
                "AgentMessage" => self.has_answers = true,
                "Reasoning" => self.has_reasoning = true,
                _ => {}
            },
            ("compacted", _) => self.has_compactions = true,
            ("response_item", kind) if kind.ends_with("_call") => {
                self.calls.extend(gist.call_id.as_deref().or(gist.id.as_deref()).map(name));
            }
            _ => {}
        }
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
