//! The Markdown transcript of a session, cut to a budget.
//!
//! What one message shows, and which run of blocks fits, is decided here. In
//! which order messages are read, and which of them stand in a sub-session, is
//! up to the caller; masking secrets is `redact`'s.

use std::collections::VecDeque;

use serde_json::{Map, Value};

use crate::{
    Timestamp,
    exchange::is_control_word,
    message::{Block, Body, Provenance, Role},
};

#[cfg(test)]
mod tests;

/// How large a transcript is when nobody says: about 6,000 tokens.
pub const BUDGET_BYTES: usize = 24_000;
/// Header, note and a cut block always fit into this.
pub const BUDGET_BYTES_MIN: usize = 1_000;
pub const BUDGET_BYTES_MAX: usize = 200_000;

/// The most characters of a title that the header shows.
const TITLE_CHARS_MAX: usize = 200;

/// Whether tool calls and their results are part of the transcript.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tools {
    Shown,
    Hidden,
}

/// What the header says about the session.
pub struct Heading<'a> {
    pub id: &'a str,
    pub title: &'a str,
    pub created_at: Option<Timestamp>,
    pub num_messages: u64,
}

/// One block, ready to be placed.
#[derive(Clone, Debug)]
pub struct Item {
    /// Without white space at its end. May hold a sub-session's opening heading
    /// above the message, or its end below.
    pub text: String,
    /// The headings of the sub-sessions that this block stands under, repeated
    /// when the transcript is cut right before it. Empty at top level.
    pub reopen: String,
}

/// A transcript, and how many blocks it leaves out on either side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    pub text: String,
    pub earlier: u64,
    pub later: u64,
    pub shown: u64,
}

pub const SUB_SESSION_END: &str = "## end of sub-session";

/// Returns the heading that a sub-session's messages stand under.
pub fn sub_session_open(id: &str, agent: &str) -> String {
    format!("## sub-session {id} ({})", one_line(agent))
}

/// Returns the newest blocks that fit: a contiguous run of whole ones, in
/// reading order, ended by the first that does not fit.
///
/// `total` counts all blocks of the session, so that older ones need not be
/// produced: of `newest_first` at most one more is taken than is shown. The
/// whole text, header and note included, is at most `budget_bytes` (or
/// [`BUDGET_BYTES_MIN`], if that is more); a newest block that is too large on
/// its own loses its middle.
pub fn newest(
    heading: &Heading<'_>,
    total: u64,
    mut newest_first: impl Iterator<Item = Item>,
    budget_bytes: usize,
) -> Window {
    let budget = budget_bytes.max(BUDGET_BYTES_MIN);
    let header = header(heading, budget);
    let Some(at) = newest_first.next() else {
        let frame = frame(&header, &newest_note(total, 0, 0), "");
        return Window { text: frame + "\n", earlier: total, later: 0, shown: 0 };
    };
    let older = total.saturating_sub(1);
    grow(&header, newest_note, at, newest_first, std::iter::empty(), (older, 0), budget)
}

/// Returns the blocks around one: a contiguous run that grows by an older and a
/// newer block in turn, until neither next one fits.
///
/// `before` yields the blocks older than `at`, newest first; `after` the newer
/// ones, oldest first; `totals` counts both. The budget holds as in [`newest`].
pub fn around(
    heading: &Heading<'_>,
    at: Item,
    before: impl Iterator<Item = Item>,
    after: impl Iterator<Item = Item>,
    totals: (u64, u64),
    budget_bytes: usize,
) -> Window {
    let budget = budget_bytes.max(BUDGET_BYTES_MIN);
    grow(&header(heading, budget), around_note, at, before, after, totals, budget)
}

/// Renders one message's block, or `None` when it makes none.
///
/// Agrees with [`Body::shape`]: there is a block when the message speaks, and
/// with [`Tools::Shown`] also when it has tools. Markers of sub-sessions are
/// the caller's.
pub fn block(body: &Body, tools: Tools) -> Option<String> {
    let content = match (body.role, tools) {
        (Role::System, _) | (Role::ToolResult, Tools::Hidden) => String::new(),
        (Role::User | Role::Assistant, _) | (Role::ToolResult, Tools::Shown) => {
            let content = without_headings(content(&body.content, tools));
            // A word for the program is no message.
            if body.role == Role::Assistant && is_control_word(&content) {
                SILENT.to_owned()
            } else {
                content
            }
        }
    };
    let compacted = body.content.iter().any(|block| matches!(block, Block::Compaction { .. }));
    // What was compacted are the messages before this one: the line stands above its heading.
    match (compacted, content.is_empty()) {
        (true, true) => Some(COMPACTED.to_owned()),
        (true, false) => Some(format!("{COMPACTED}\n\n{}\n{content}", block_heading(body))),
        (false, true) => None,
        (false, false) => Some(format!("{}\n{content}", block_heading(body))),
    }
}

const COMPACTED: &str = "[context compacted here]";
/// Stands for a reply that is for nobody to read.
const SILENT: &str = "[nothing more to say]";

/// How the lines begin that give a transcript its structure.
const STRUCTURE: [&str; 6] =
    ["## user", "## assistant", "## tool result", "## sub-session", SUB_SESSION_END, COMPACTED];

/// Escapes lines of a message that read like the transcript's own: what a peer
/// or a tool said must not pass for the person's words.
fn without_headings(content: String) -> String {
    let is_structure = |line: &str| STRUCTURE.iter().any(|start| line.trim_start().starts_with(start));
    if !content.lines().any(is_structure) {
        return content;
    }
    let escaped = content
        .split('\n')
        .map(|line| if is_structure(line) { format!("\\{line}") } else { line.to_owned() });
    escaped.collect::<Vec<_>>().join("\n")
}

fn block_heading(body: &Body) -> String {
    let role = match body.role {
        Role::User => "## user",
        Role::Assistant => "## assistant",
        Role::ToolResult => return "## tool result".to_owned(),
        Role::System => "## system",
    };
    match &body.provenance {
        Some(Provenance::InterSession { source_session_key, .. }) => {
            format!("## user (from session {source_session_key})")
        }
        Some(Provenance::InternalSystem) if body.role == Role::User => {
            "## user (from the program)".to_owned()
        }
        Some(Provenance::ExternalUser | Provenance::InternalSystem) | None => role.to_owned(),
    }
}

/// Returns what stands under the heading, or nothing.
fn content(blocks: &[Block], tools: Tools) -> String {
    let mut lines: Vec<String> = Vec::new();
    // Neighbouring texts are one text; what stands between two others is trimmed.
    let mut texts: Vec<&str> = Vec::new();
    let flush = |texts: &mut Vec<&str>, lines: &mut Vec<String>| {
        let text = texts.join("\n");
        if !text.trim().is_empty() {
            lines.push(text.trim().to_owned());
        }
        texts.clear();
    };
    for block in blocks {
        let line = match block {
            Block::Text { text } => {
                texts.push(text);
                continue;
            }
            Block::ToolCall { name, arguments, .. } if tools == Tools::Shown => tool_call(name, arguments),
            Block::Image { mime_type, data } => attachment("image", &[mime_type], data),
            Block::Other(fields) => other(fields),
            Block::ToolCall { .. }
            | Block::Thinking { .. }
            | Block::SubSession { .. }
            | Block::Compaction { .. } => continue,
        };
        flush(&mut texts, &mut lines);
        lines.push(line);
    }
    flush(&mut texts, &mut lines);
    lines.join("\n")
}

fn tool_call(name: &str, arguments: &Map<String, Value>) -> String {
    let name = one_line(name);
    if arguments.is_empty() {
        return format!("→ called tool `{name}`");
    }
    let arguments = serde_json::to_string(arguments).expect("a JSON object has string keys only");
    format!("→ called tool `{name}` with {arguments}")
}

/// Names a block that this version does not know.
fn other(fields: &Map<String, Value>) -> String {
    let text = |field: &str| fields.get(field).and_then(Value::as_str).unwrap_or_default();
    let kind = match text("type") {
        "" => "unknown",
        kind => kind,
    };
    attachment(kind, &[text("name"), text("mimeType")], text("data"))
}

/// Returns `[kind: details, size]`, without what is not known.
fn attachment(kind: &str, details: &[&str], base64: &str) -> String {
    let mut known: Vec<String> =
        details.iter().filter(|detail| !detail.is_empty()).map(|detail| one_line(detail)).collect();
    let size_bytes = decoded_bytes(base64);
    if size_bytes > 0 {
        known.push(size(size_bytes));
    }
    let kind = one_line(kind);
    if known.is_empty() { format!("[{kind}]") } else { format!("[{kind}: {}]", known.join(", ")) }
}

/// Returns how many bytes a base 64 text stands for, without decoding it.
fn decoded_bytes(base64: &str) -> usize {
    let digit = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'-' | b'_');
    base64.bytes().filter(digit).count() * 3 / 4
}

fn size(bytes: usize) -> String {
    let kilobytes = (bytes + 500) / 1_000;
    if bytes < 1_000 {
        format!("{bytes} B")
    } else if kilobytes <= 1_000 {
        format!("{kilobytes} kB")
    } else {
        let tenths = (bytes + 50_000) / 100_000;
        format!("{}.{} MB", tenths / 10, tenths % 10)
    }
}

/// Replaces what would start a new line, or hide one, by spaces.
fn one_line(text: &str) -> String {
    let breaks = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    text.replace(breaks, " ")
}

/// Places blocks around `at` while they fit.
fn grow(
    header: &str,
    note: fn(u64, u64, u64) -> String,
    at: Item,
    before: impl Iterator<Item = Item>,
    after: impl Iterator<Item = Item>,
    (older, newer): (u64, u64),
    budget: usize,
) -> Window {
    let (mut before, mut after) = (before.peekable(), after.peekable());
    let (mut earlier, mut later, mut shown) = (older, newer, 1);
    // A deep nest of sub-sessions must not take the place of what was said there.
    let framed = |earlier: u64, later: u64, shown: u64, reopen: &str| {
        let reopen = if earlier > 0 { cut(reopen, budget / 4) } else { String::new() };
        frame(header, &note(earlier, later, shown), &reopen)
    };
    let mut top = framed(earlier, later, shown, &at.reopen);
    let mut reopen = at.reopen;
    let whole = top.len() + placed(&at.text) < budget;
    let text = if whole { at.text } else { cut(&at.text, budget.saturating_sub(top.len() + 3)) };
    let mut blocks_bytes = placed(&text);
    let mut blocks = VecDeque::from([text]);
    let mut grown = whole;
    while grown {
        grown = false;
        // The note gets shorter when one side is complete, so a block that did
        // not fit is tried again after the other side has grown.
        if let Some(item) = before.peek() {
            let next = framed(earlier.saturating_sub(1), later, shown + 1, &item.reopen);
            if next.len() + blocks_bytes + placed(&item.text) < budget
                && let Some(item) = before.next()
            {
                (earlier, shown, top, grown) = (earlier.saturating_sub(1), shown + 1, next, true);
                blocks_bytes += placed(&item.text);
                blocks.push_front(item.text);
                reopen = item.reopen;
            }
        }
        if let Some(item) = after.peek() {
            let next = framed(earlier, later.saturating_sub(1), shown + 1, &reopen);
            if next.len() + blocks_bytes + placed(&item.text) < budget
                && let Some(item) = after.next()
            {
                (later, shown, top, grown) = (later.saturating_sub(1), shown + 1, next, true);
                blocks_bytes += placed(&item.text);
                blocks.push_back(item.text);
            }
        }
    }
    let mut text = top;
    for block in blocks {
        text.push_str("\n\n");
        text.push_str(&block);
    }
    text.push('\n');
    Window { text, earlier, later, shown }
}

/// Returns what a block takes, with the blank line above it. The newline at the
/// end of the text is why fitting is "less than the budget", not "at most".
fn placed(text: &str) -> usize {
    2 + text.len()
}

/// Returns everything above the first block, without a newline at its end.
fn frame(header: &str, note: &str, reopen: &str) -> String {
    let parts: Vec<&str> = [header, note, reopen].into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("\n\n")
}

fn header(heading: &Heading<'_>, budget: usize) -> String {
    let title = title(heading.title, budget / 4);
    let mut header = format!("# Session {} — {title}\n", heading.id);
    if let Some(created_at) = heading.created_at {
        header.push_str(&format!("Created: {created_at}\n"));
    }
    header + &format!("Messages: {}", heading.num_messages)
}

/// Returns the title as one line of at most [`TITLE_CHARS_MAX`] characters and `bytes_max` bytes.
fn title(title: &str, bytes_max: usize) -> String {
    // Only as much is looked at as could be shown: a title may be a whole pasted file.
    let trimmed = title.trim();
    let start = match trimmed.char_indices().nth(TITLE_CHARS_MAX) {
        Some((end, _)) => &trimmed[..end],
        None => trimmed,
    };
    let line = one_line(start);
    if line.trim().is_empty() {
        return "(untitled)".to_owned();
    }
    if start.len() == trimmed.len() && line.len() <= bytes_max {
        return line;
    }
    let ellipsis = "…";
    let last = line.char_indices().nth(TITLE_CHARS_MAX - 1).map_or(line.len(), |(end, _)| end);
    let end = line.floor_char_boundary(last.min(bytes_max - ellipsis.len()));
    line[..end].trim_end().to_owned() + ellipsis
}

fn newest_note(earlier: u64, _later: u64, shown: u64) -> String {
    if earlier == 0 {
        return String::new();
    }
    format!(
        "[{earlier} earlier message(s) omitted to fit the context budget; showing the most recent {shown}]"
    )
}

fn around_note(earlier: u64, later: u64, shown: u64) -> String {
    let omitted = match (earlier, later) {
        (0, 0) => return String::new(),
        (earlier, 0) => format!("{earlier} earlier"),
        (0, later) => format!("{later} later"),
        (earlier, later) => format!("{earlier} earlier and {later} later"),
    };
    format!(
        "[{omitted} message(s) omitted to fit the context budget; showing {shown} around the requested one]"
    )
}

/// Cuts the middle out of a text that is longer than `bytes_max`, and says how much.
pub fn cut(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let mark = |bytes: usize| format!("[… {bytes} bytes cut …]");
    // Less than the whole is cut, so the mark is never longer than this one.
    let kept = bytes_max.saturating_sub(mark(text.len()).len());
    let head = text.floor_char_boundary(kept / 2);
    let tail = text.ceil_char_boundary(text.len() - (kept - head));
    format!("{}{}{}", &text[..head], mark(tail - head), &text[tail..])
}
