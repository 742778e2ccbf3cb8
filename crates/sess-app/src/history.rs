//! `sessions_history`: the newest messages of one session.
//!
//! Texts are masked, then cut; then the oldest messages are dropped until the rest is small enough.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sess_core::{message::Role, policy::Verb, redact::redact_json, session::Session};
use sess_store::{Span, Store, StoredMessage};

use crate::{
    App, Caller, Redaction, Result,
    context::allowed,
    others::{Asked, Kept, TheirPage, as_stored},
};

/// How many messages are returned when nobody says, and at most.
const LIMIT: i64 = 100;
const LIMIT_MAX: i64 = 1_000;
/// The most characters of one text.
const TEXT_CHARS_MAX: usize = 4_000;
/// Stands where a text was cut.
const CUT: &str = "…(truncated)…";
/// The most bytes of the whole answer.
const ANSWER_BYTES_MAX: usize = 80 * 1024;
/// How many messages are read at a time.
const PAGE_LEN: usize = 200;

#[derive(Clone, Debug, Default)]
pub struct ReadHistory {
    /// A key or an id.
    pub session: String,
    pub limit: Option<i64>,
    pub include_tools: bool,
    pub redaction: Redaction,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct History {
    pub session_key: String,
    pub session_id: String,
    /// In the transcript format, oldest first.
    #[schemars(with = "Vec<Map<String, Value>>")]
    pub messages: Vec<Value>,
    /// Whether the session has older messages than these.
    pub truncated: bool,
    /// How many of those asked for were left out to keep the answer small.
    pub dropped_messages: u64,
    /// Whether texts were cut, or images replaced by their size.
    pub content_truncated: bool,
    /// Whether secrets were masked.
    pub content_redacted: bool,
    /// The size of `messages` as JSON.
    pub bytes: usize,
}

impl App {
    /// Returns the newest messages of a session that the caller reaches, within a fixed size.
    pub async fn history(&self, caller: &Caller, ask: &ReadHistory) -> Result<History> {
        let limit = ask.limit.unwrap_or(LIMIT).clamp(1, LIMIT_MAX).unsigned_abs();
        let outlook = self.outlook(caller).await?;
        let (session, theirs) = match self.find_kept(&outlook, &ask.session, Verb::History).await? {
            Kept::Ours(reached) => (self.opened(*reached).await?, None),
            Kept::Theirs(foreign, stored) => (as_stored(&foreign, stored.as_deref()), Some(foreign)),
        };
        let mut history = History {
            session_key: outlook.configured.shown(&session.key),
            session_id: session.id.to_string(),
            messages: Vec::new(),
            truncated: false,
            dropped_messages: u64::MAX,
            content_truncated: false,
            content_redacted: false,
            bytes: usize::MAX,
        };
        // With the longest numbers, so that the whole fits whatever they turn out to be.
        let frame = size(&history);
        let newest = Newest {
            limit,
            tools: if ask.include_tools { Tools::Shown } else { Tools::Hidden },
            redaction: allowed(caller, ask.redaction),
            size_bytes_max: ANSWER_BYTES_MAX - frame,
        };
        let shown = match theirs {
            None => newest.read(&*self.store()?, &session).await?,
            Some(foreign) => {
                // What is masked is told below, with the rest.
                let (with_tools, redaction) = (ask.include_tools, Redaction::None);
                let limit = usize::try_from(limit).unwrap_or(usize::MAX);
                let asked = Asked { before: None, limit, with_tools, redaction };
                newest.choose(&*self.their_page(&foreign, asked).await?)
            }
        };
        history.truncated = shown.has_older || shown.dropped > 0;
        history.dropped_messages = shown.dropped;
        history.content_truncated = shown.is_cut;
        history.content_redacted = shown.is_redacted;
        history.bytes = size(&shown.messages);
        history.messages = shown.messages;
        Ok(history)
    }
}

/// Whether tool results are among the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tools {
    Shown,
    Hidden,
}

/// Which messages to show, and how much of them.
pub(crate) struct Newest {
    pub(crate) limit: u64,
    pub(crate) tools: Tools,
    pub(crate) redaction: Redaction,
    pub(crate) size_bytes_max: usize,
}

#[derive(Default)]
pub(crate) struct Shown {
    /// Oldest first.
    pub(crate) messages: Vec<Value>,
    pub(crate) has_older: bool,
    pub(crate) dropped: u64,
    pub(crate) is_cut: bool,
    pub(crate) is_redacted: bool,
    /// Of the messages as a list, without its last bracket.
    size_bytes: usize,
}

impl Newest {
    /// Reads from the newest message backwards. What does not fit is only counted.
    pub(crate) async fn read(&self, store: &dyn Store, session: &Session) -> Result<Shown> {
        let mut shown = Shown::default();
        let mut found = 0;
        let mut span = Span::Last;
        'reading: loop {
            if session.last_seq == 0 {
                // Nothing was said yet: it may not even be stored.
                break;
            }
            let left = usize::try_from(self.limit - found).unwrap_or(PAGE_LEN);
            let page = store.messages(&session.id, span, PAGE_LEN.min(left + 1)).await?;
            let read = page.messages.iter().map(|message| message.seq);
            let Some(oldest) = read.chain(page.damaged.iter().map(|message| message.seq)).min() else {
                break;
            };
            span = Span::Before(oldest);
            for damaged in &page.damaged {
                tracing::warn!(session = %session.id, seq = damaged.seq, "{}", damaged.reason);
            }
            for message in page.messages.iter().rev() {
                if self.tools == Tools::Hidden && role(message)? == Role::ToolResult {
                    continue;
                }
                if found == self.limit {
                    shown.has_older = true;
                    break 'reading;
                }
                found += 1;
                self.add(&mut shown, message.seq, parsed(message)?);
            }
        }
        shown.messages.reverse();
        Ok(shown)
    }

    /// Takes the newest of another agent's messages; what does not fit is only counted.
    fn choose(&self, page: &TheirPage) -> Shown {
        let mut shown = Shown { has_older: page.has_more, ..Shown::default() };
        for message in page.messages.iter().rev() {
            let value = serde_json::from_str(message.json.get()).expect("it was written as JSON");
            self.add(&mut shown, message.seq, value);
        }
        shown.messages.reverse();
        shown
    }

    /// Adds the next older message, if it fits.
    fn add(&self, shown: &mut Shown, seq: u64, message: Value) {
        if shown.dropped > 0 {
            shown.dropped += 1;
            return;
        }
        let mut seen = self.show(message);
        // The brackets of the list.
        if size(&seen.message) + 2 > self.size_bytes_max {
            seen = too_large(seq, &seen.message);
        }
        // Each message comes with a comma, or with a bracket.
        let more = size(&seen.message) + 1;
        if shown.size_bytes + more + 1 > self.size_bytes_max {
            shown.dropped = 1;
            return;
        }
        shown.size_bytes += more;
        shown.is_cut |= seen.is_cut;
        shown.is_redacted |= seen.is_redacted;
        shown.messages.push(seen.message);
    }

    fn show(&self, message: Value) -> Seen {
        let mut seen = Seen { message, is_cut: false, is_redacted: false };
        let Value::Object(fields) = &mut seen.message else { return seen };
        let (mut is_cut, mut is_redacted) = (false, false);
        for (name, value) in fields.iter_mut() {
            if PLAIN_FIELDS.contains(&name.as_str()) {
                continue;
            }
            if name == "content" {
                is_cut |= replace_images(value);
            }
            let original = value.clone();
            if self.redaction == Redaction::Masked {
                // Its name tells whether a value is a secret.
                let mut named = json!({ name.clone(): value.take() });
                redact_json(&mut named);
                *value = named[name.as_str()].take();
            }
            is_cut |= cut_texts(value);
            let mut unmasked = original;
            cut_texts(&mut unmasked);
            is_redacted |= *value != unmasked;
        }
        (seen.is_cut, seen.is_redacted) = (is_cut, is_redacted);
        seen
    }
}

/// What the runtime wrote: there are no secrets in it, and nothing to cut.
const PLAIN_FIELDS: [&str; 7] = ["id", "seq", "role", "timestamp", "usage", "runId", "provenance"];

/// A message as it is shown.
struct Seen {
    message: Value,
    is_cut: bool,
    is_redacted: bool,
}

/// Stands for a message that would not fit alone.
fn too_large(seq: u64, shown: &Value) -> Seen {
    let text = format!("[message left out: {} bytes, too large for one answer]", size(shown));
    let mut placeholder = Map::new();
    for name in ["id", "seq", "role", "timestamp", "runId", "provenance"] {
        if let Some(value) = shown.get(name) {
            placeholder.insert(name.to_owned(), value.clone());
        }
    }
    placeholder.insert("content".to_owned(), json!([{ "type": "text", "text": text }]));
    placeholder.entry("seq").or_insert_with(|| json!(seq));
    Seen { message: Value::Object(placeholder), is_cut: true, is_redacted: false }
}

/// Replaces the data of images by its size; the type stays. Tells whether there were any.
fn replace_images(content: &mut Value) -> bool {
    let mut found = false;
    for block in content.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        if block.get("type").and_then(Value::as_str) != Some("image") {
            // A signature is a model's proof to itself, and means nothing to others.
            block.shift_remove("signature");
            continue;
        }
        let Some(data) = block.shift_remove("data") else { continue };
        let data = data.as_str().unwrap_or_default().trim_end_matches('=');
        block.insert("bytes".to_owned(), json!(data.len() * 3 / 4));
        block.insert("omitted".to_owned(), json!(true));
        found = true;
    }
    found
}

/// Cuts every text that is too long; tells whether one was.
fn cut_texts(value: &mut Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
        Value::String(text) => match text.char_indices().nth(TEXT_CHARS_MAX) {
            Some((end, _)) => {
                text.truncate(end);
                text.push_str(CUT);
                true
            }
            None => false,
        },
        Value::Array(items) => items.iter_mut().map(cut_texts).filter(|is_cut| *is_cut).count() > 0,
        Value::Object(fields) => fields.values_mut().map(cut_texts).filter(|is_cut| *is_cut).count() > 0,
    }
}

fn role(message: &StoredMessage) -> Result<Role> {
    #[derive(Deserialize)]
    struct Spoken {
        role: Role,
    }
    let spoken: Spoken = serde_json::from_str(&message.body).map_err(|error| unreadable(message, &error))?;
    Ok(spoken.role)
}

fn parsed(message: &StoredMessage) -> Result<Value> {
    serde_json::from_str(&message.to_json()).map_err(|error| unreadable(message, &error))
}

fn unreadable(message: &StoredMessage, error: &serde_json::Error) -> crate::Error {
    sess_store::Error::Damaged(format!("message {} cannot be read: {error}", message.seq)).into()
}

fn size<T: Serialize>(value: &T) -> usize {
    serde_json::to_string(value).expect("plain JSON").len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_at_its_characters_and_says_so() {
        let check = |text: String, is_cut: bool, shown: String| {
            let mut value = Value::String(text);
            assert_eq!(cut_texts(&mut value), is_cut);
            assert_eq!(value, Value::String(shown));
        };
        check("é".repeat(4_000), false, "é".repeat(4_000));
        check("é".repeat(4_001), true, format!("{}…(truncated)…", "é".repeat(4_000)));
    }

    #[test]
    fn an_image_is_its_size_and_type() {
        let mut content = json!([
            { "type": "image", "mimeType": "image/png", "data": "aGVsbG8=" },
            { "type": "thinking", "text": "hm", "signature": "xyz" },
        ]);
        assert!(replace_images(&mut content));
        assert_eq!(
            content,
            json!([
                { "type": "image", "mimeType": "image/png", "bytes": 5, "omitted": true },
                { "type": "thinking", "text": "hm" },
            ])
        );
    }
}
