//! What a model is shown of a transcript, and how much that is.

use crate::message::{Block, Body};

/// Returns what a model still sees: from the newest compaction on, which stands for all before it.
pub fn since_compaction(mut transcript: Vec<Body>) -> Vec<Body> {
    match transcript.iter().rposition(is_compaction) {
        Some(at) => transcript.split_off(at),
        None => transcript,
    }
}

/// Tells whether a message is the mark of a compaction that says something.
pub fn is_compaction(message: &Body) -> bool {
    message
        .content
        .iter()
        .any(|block| matches!(block, Block::Compaction { summary } if !summary.trim().is_empty()))
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
    use super::*;
    use crate::{Timestamp, message::Role};

    #[test]
    fn the_newest_compaction_stands_for_all_before_it() {
        let text = |text: &str| Body::text(Role::User, text, Timestamp::default());
        let mark = |summary: &str| {
            let mut mark = text("");
            mark.content = vec![Block::Compaction { summary: summary.to_owned() }];
            mark
        };
        let transcript =
            vec![text("1"), mark("old"), text("2"), mark("new"), text("3"), mark(" "), text("4")];
        assert_eq!(since_compaction(transcript), [mark("new"), text("3"), mark(" "), text("4")]);
        assert_eq!(since_compaction(vec![text("1")]), [text("1")]);
    }
}
