//! What a model is shown of a transcript: valid for every provider, whatever a crash left behind.

use std::collections::HashMap;

use crate::message::{Block, Body, Role};

/// The result that a call gets when none was recorded.
const LOST_RESULT: &str = "no result: the turn was interrupted before this call was done or recorded";
/// What begins a conversation that begins with the model.
const CONTINUED: &str = "(the conversation began before this)";

/// Puts a transcript into the shape that models accept.
///
/// It begins with the newest compaction, when there is one. Every tool call is
/// followed by exactly one result, in the order of the calls; results without a
/// call, empty messages and marks of sub-sessions are left out; a user's and an
/// assistant's words take turns.
pub fn conversation(transcript: Vec<Body>) -> Vec<Body> {
    let mut shown: Vec<Body> = Vec::new();
    let mut messages = since_compaction(transcript).into_iter().peekable();
    while let Some(mut message) = messages.next() {
        match message.role {
            // Its call is gone or was answered already.
            Role::ToolResult => continue,
            Role::User | Role::System | Role::Assistant => {}
        }
        message.content.retain(says_something);
        let calls = call_ids(&message);
        if message.role != Role::Assistant || calls.is_empty() {
            if !is_empty(&message) {
                push(&mut shown, message);
            }
            continue;
        }
        let mut results: HashMap<String, Body> = HashMap::new();
        let mut others = Vec::new();
        while let Some(next) = messages.next_if(|next| next.role != Role::Assistant) {
            match (next.role, next.tool_call_id.clone()) {
                (Role::ToolResult, Some(id)) => {
                    results.entry(id).or_insert(next);
                }
                (Role::ToolResult, None) => {}
                _ => others.push(next),
            }
        }
        let at = message.timestamp;
        push(&mut shown, message);
        for (id, name) in calls {
            let result = results.remove(&id).unwrap_or_else(|| {
                let mut lost = Body::text(Role::ToolResult, LOST_RESULT, at);
                (lost.tool_call_id, lost.tool_name, lost.is_error) = (Some(id), Some(name), Some(true));
                lost
            });
            shown.push(result);
        }
        for mut other in others {
            other.content.retain(says_something);
            if !is_empty(&other) {
                push(&mut shown, other);
            }
        }
    }
    if shown.first().is_some_and(|first| first.role == Role::Assistant) {
        let at = shown[0].timestamp;
        shown.insert(0, Body::text(Role::User, CONTINUED, at));
    }
    shown
}

/// Returns what the newest compaction left: its summary as the first words, and what came after.
fn since_compaction(mut transcript: Vec<Body>) -> Vec<Body> {
    let summary = |message: &Body| {
        message.content.iter().find_map(|block| match block {
            Block::Compaction { summary } if !summary.trim().is_empty() => Some(summary.clone()),
            _ => None,
        })
    };
    let Some(at) = transcript.iter().rposition(|message| summary(message).is_some()) else {
        return transcript;
    };
    let mut rest = transcript.split_off(at);
    if let Some(text) = summary(&rest[0]) {
        rest[0] = Body::text(Role::User, text, rest[0].timestamp);
    }
    rest
}

fn says_something(block: &Block) -> bool {
    match block {
        Block::Text { text } => !text.trim().is_empty(),
        Block::SubSession { .. } | Block::Compaction { .. } => false,
        Block::Thinking { .. } | Block::ToolCall { .. } | Block::Image { .. } | Block::Other(_) => true,
    }
}

/// Tells whether nothing is left that a model could be shown; thoughts alone are nothing.
fn is_empty(message: &Body) -> bool {
    message.content.iter().all(|block| matches!(block, Block::Thinking { .. } | Block::Other(_)))
}

fn call_ids(message: &Body) -> Vec<(String, String)> {
    let calls = message.content.iter().filter_map(|block| match block {
        Block::ToolCall { id, name, .. } => Some((id.clone(), name.clone())),
        _ => None,
    });
    calls.collect()
}

/// Adds a message; one of the same voice is continued.
fn push(shown: &mut Vec<Body>, mut message: Body) {
    // A model hears two voices; what the system notes is told by the other one.
    if message.role == Role::System {
        message.role = Role::User;
    }
    match shown.last_mut() {
        Some(last) if last.role == message.role && call_ids(last).is_empty() => {
            last.content.append(&mut message.content);
        }
        _ => shown.push(message),
    }
}

/// Estimates how many tokens a text takes; rather too many than too few.
pub fn estimate_tokens(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(3)
}

/// Returns how many bytes of a message a model reads.
pub fn size_bytes(message: &Body) -> usize {
    let block = |block: &Block| match block {
        Block::Text { text } | Block::Thinking { text, .. } | Block::Compaction { summary: text } => {
            text.len()
        }
        Block::ToolCall { name, arguments, .. } => {
            name.len() + serde_json::to_string(arguments).map_or(0, |text| text.len())
        }
        // Providers count an image by its size in pixels; this is about the most.
        Block::Image { .. } => 5_000,
        Block::SubSession { .. } => 0,
        Block::Other(other) => serde_json::to_string(other).map_or(0, |text| text.len()),
    };
    message.content.iter().map(block).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Map;

    use super::*;
    use crate::Timestamp;

    /// `u:text`, `a:text`, `a:text+call1,call2`, `r:call1`, `s:note`, `c:summary`.
    fn message(line: &str) -> Body {
        let (kind, rest) = line.split_once(':').expect("kind:rest");
        let at = Timestamp::default();
        match kind {
            "u" => Body::text(Role::User, rest, at),
            "s" => Body::text(Role::System, rest, at),
            "r" => {
                let mut result = Body::text(Role::ToolResult, format!("result of {rest}"), at);
                result.tool_call_id = Some(rest.to_owned());
                result
            }
            "c" => {
                let mut compaction = Body::text(Role::System, "", at);
                compaction.content = vec![Block::Compaction { summary: rest.to_owned() }];
                compaction
            }
            _ => {
                let (text, calls) = rest.split_once('+').unwrap_or((rest, ""));
                let mut reply = Body::text(Role::Assistant, text, at);
                for id in calls.split(',').filter(|id| !id.is_empty()) {
                    let (id, name) = (id.to_owned(), "tool".to_owned());
                    reply.content.push(Block::ToolCall { id, name, arguments: Map::new() });
                }
                reply
            }
        }
    }

    fn shown(message: &Body) -> String {
        let kind = match message.role {
            Role::User => "u",
            Role::Assistant => "a",
            Role::ToolResult if message.is_error == Some(true) => "lost",
            Role::ToolResult => "r",
            Role::System => "s",
        };
        if let Some(id) = &message.tool_call_id {
            return format!("{kind}:{id}");
        }
        let texts: Vec<&str> = message
            .content
            .iter()
            .filter_map(|block| match block {
                Block::Text { text } => Some(text.as_str()),
                _ => None,
            })
            .collect();
        let calls: Vec<String> = call_ids(message).into_iter().map(|(id, _)| id).collect();
        let calls = if calls.is_empty() { String::new() } else { format!("+{}", calls.join(",")) };
        format!("{kind}:{}{calls}", texts.join("/"))
    }

    #[track_caller]
    fn check(lines: &[&str], expected: &[&str]) {
        let transcript = lines.iter().map(|line| message(line)).collect();
        let told: Vec<String> = conversation(transcript).iter().map(shown).collect();
        assert_eq!(told, expected);
    }

    #[test]
    fn results_follow_their_calls_in_the_order_of_the_calls() {
        check(&["u:go", "a:ok+1,2", "r:2", "r:1", "a:done"], &["u:go", "a:ok+1,2", "r:1", "r:2", "a:done"]);
    }

    #[test]
    fn what_a_crash_left_behind_is_made_whole() {
        check(&["u:go", "a:ok+1,2", "r:1", "u:again"], &["u:go", "a:ok+1,2", "r:1", "lost:2", "u:again"]);
        check(&["u:go", "a:+1"], &["u:go", "a:+1", "lost:1"]);
        check(&["u:go", "r:9", "u:more"], &["u:go/more"]);
        check(&["u:go", "a:+1", "r:1", "r:1", "a:x"], &["u:go", "a:+1", "r:1", "a:x"]);
        check(&["u:go", "a: ", "u:more"], &["u:go/more"]);
        check(&["u:go", "a:half", "a:whole"], &["u:go", "a:half/whole"]);
        check(&["a:hello"], &["u:(the conversation began before this)", "a:hello"]);
    }

    #[test]
    fn words_between_call_and_result_come_after_it() {
        check(&["u:go", "a:+1", "s:note", "r:1", "a:x"], &["u:go", "a:+1", "r:1", "u:note", "a:x"]);
    }

    #[test]
    fn the_newest_compaction_stands_for_all_before_it() {
        check(&["u:1", "a:2", "c:old", "u:3", "c:new", "a:4+5", "r:5"], &["u:new", "a:4+5", "r:5"]);
        check(&["u:1", "a:2", "c:sum", "u:3"], &["u:sum/3"]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// The rules of the strictest provider, whatever the transcript.
        #[test]
        fn every_transcript_becomes_a_valid_conversation(
            lines in prop::collection::vec(
                prop::sample::select(vec![
                    "u:hi", "u: ", "a:text", "a: ", "a:+1", "a:x+1,2", "a:+2,3", "r:1", "r:2", "r:3", "s:note", "c:sum",
                ]),
                0..14,
            )
        ) {
            let told = conversation(lines.iter().map(|line| message(line)).collect());
            if let Some(first) = told.first() {
                prop_assert_eq!(first.role, Role::User);
            }
            let mut expected: Vec<String> = Vec::new();
            let mut before: Option<Role> = None;
            for message in &told {
                prop_assert!(!message.content.is_empty());
                if let Some(id) = &message.tool_call_id {
                    prop_assert_eq!(&expected.remove(0), id);
                } else {
                    prop_assert!(expected.is_empty(), "a result is missing");
                    prop_assert_ne!(before, Some(message.role));
                }
                before = Some(message.role);
                expected.extend(call_ids(message).into_iter().map(|(id, _)| id));
            }
            prop_assert!(expected.is_empty());
        }
    }
}
