//! Compaction: a summary in place of what no longer fits.

use sess_core::{
    message::{Block, Body, Role, Usage},
    redact::around_cut,
    turn::add,
};
use tokio_util::sync::CancellationToken;

use crate::model::{Model, ModelError, Request};

const INSTRUCTION: &str = "You summarise a conversation between a person and an AI agent, so that the agent can go on \
    working from your summary alone. Keep: what the person wants, in their own words where it matters; decisions and \
    their reasons; what was done, with file names, commands and results; what failed; what comes next. \
    Leave out pleasantries. Answer with the summary only.";
const REQUEST: &str = "Summarise the conversation so far, as instructed.";
/// How much of a tool's answer the summary is made from, when the whole is too long.
const SHORTENED_BYTES: usize = 500;
/// How much of the person's last message is kept word for word, when nobody knows the window.
const QUOTED_BYTES: usize = 32_000;
/// What stands before the person's last message.
const SAID_LAST: &str = "\n\nThe person's last message, word for word:\n";
/// How many of the newest messages a summary without a model is made from.
const QUOTED_LEN: usize = 12;

/// Returns a summary of the conversation, and what it took; no summary when it was interrupted.
///
/// When the model cannot make one, the beginnings of the newest messages stand in for it:
/// the messages themselves stay in the transcript, so nothing is lost but the overview.
pub(super) async fn summary(
    model: &dyn Model,
    request: &Request,
    context_window: Option<u32>,
    interrupt: &CancellationToken,
) -> (Option<String>, Usage) {
    let mut usage = Usage::default();
    // Half of the window, by the same estimate that found it full; the rest is for what comes.
    let quoted = context_window.map_or(QUOTED_BYTES, |tokens| tokens as usize * 3 / 2);
    let said_last = request_of(&request.messages).map(|text| cut(&text, quoted));
    for shorten in [false, true] {
        let mut messages = request.messages.clone();
        if shorten {
            messages.iter_mut().for_each(shortened);
        }
        let question =
            Body::text(Role::User, REQUEST, messages.last().map_or_else(Default::default, |m| m.timestamp));
        match messages.last_mut() {
            Some(last) if last.role == Role::User => last.content.extend(question.content),
            _ => messages.push(question),
        }
        // Providers want to know the tools that the calls in the messages are of.
        let request = Request { system: INSTRUCTION.to_owned(), messages, ..request.clone() };
        match model.reply(&request, &mut |_| {}, interrupt).await {
            Ok(reply) => {
                add(&mut usage, &reply.usage);
                let text = super::text_of(&reply.content);
                if !text.trim().is_empty() {
                    return (Some(compacted(&text, said_last)), usage);
                }
            }
            Err(ModelError::TooLong(_)) => {}
            Err(ModelError::Cancelled { .. }) => return (None, usage),
            Err(error) => {
                tracing::warn!(%error, "the model made no summary");
                break;
            }
        }
    }
    (Some(compacted(&excerpts(&request.messages), said_last)), usage)
}

fn compacted(summary: &str, said_last: Option<String>) -> String {
    let said_last = said_last.map_or(String::new(), |text| format!("{SAID_LAST}{text}"));
    format!("{}{said_last}", summary.trim())
}

/// Returns what the person said last; an earlier summary has kept it, when nothing was said since.
fn request_of(messages: &[Body]) -> Option<String> {
    let is_said = |message: &Body| message.role == Role::User && !message.plain_text().trim().is_empty();
    let Some(last) = messages.iter().rposition(is_said) else {
        let kept = messages.iter().rev().flat_map(|message| &message.content).find_map(|block| match block {
            Block::Compaction { summary } => summary.split_once(SAID_LAST),
            _ => None,
        });
        return kept.map(|(_, text)| text.to_owned());
    };
    // What was not answered in between was said in one go.
    let first = messages[..last].iter().rposition(|message| !is_said(message)).map_or(0, |at| at + 1);
    let texts: Vec<String> = messages[first..=last].iter().map(Body::plain_text).collect();
    Some(texts.join("\n\n"))
}

fn shortened(message: &mut Body) {
    for block in &mut message.content {
        if let Block::Text { text } = block
            && message.role == Role::ToolResult
        {
            *text = cut(text, SHORTENED_BYTES);
        }
    }
}

fn excerpts(messages: &[Body]) -> String {
    let newest = messages.len().saturating_sub(QUOTED_LEN);
    let line = |message: &Body| {
        let who = match message.role {
            Role::User | Role::System => "person",
            Role::Assistant => "agent",
            Role::ToolResult => "tool",
        };
        format!("- {who}: {}", cut(&message.plain_text(), SHORTENED_BYTES))
    };
    let lines: Vec<String> = messages[newest..].iter().map(line).collect();
    format!("(no summary could be made; these are the beginnings of the last messages)\n{}", lines.join("\n"))
}

fn cut(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    // Half a secret would not be recognised as one, and a summary is kept.
    let end = around_cut(text, text.floor_char_boundary(bytes)).start;
    format!("{} […]", &text[..end])
}
