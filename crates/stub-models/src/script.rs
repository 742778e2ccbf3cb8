//! Scripts: prepared replies, and which one is next in a conversation.

use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Replies, each given once in every conversation; the first that fits is given.
///
/// Which ones were given is worked out from the conversation in the request, so
/// that any number of conversations can go on at once.
#[derive(Clone, Debug, Default)]
pub struct Script {
    pub replies: Vec<Reply>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reply {
    /// Only if the words since the last reply contain this.
    pub when: Option<String>,
    /// Only if the system prompt contains this: which agent is asking.
    pub system: Option<String>,
    pub thinking: Option<String>,
    pub text: Option<String>,
    pub tool_calls: Vec<Call>,
    pub usage: Usage,
    /// In the words of the API; what fits the content when it is not given.
    pub stop: Option<String>,
    /// Before anything is answered.
    pub delay_ms: u64,
    /// Before each event.
    pub chunk_delay_ms: u64,
    /// How many characters of text or arguments are in one event.
    pub chunk_chars: Option<usize>,
    pub fault: Option<Fault>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Call {
    pub name: String,
    /// An object; a string is sent as it is, valid or not.
    pub arguments: Value,
    /// A new one when it is not given.
    pub id: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Usage {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
}

impl Default for Usage {
    fn default() -> Self {
        Self { input: 10, output: 5, cache_read: 0, cache_write: 0 }
    }
}

/// What goes wrong with a reply.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Fault {
    pub kind: FaultKind,
    /// The HTTP status of [`FaultKind::Status`].
    pub status: u16,
    pub retry_after: Option<String>,
    pub message: Option<String>,
    /// Where [`FaultKind::Cut`] and [`FaultKind::Hang`] strike, counted from the first
    /// byte of the answer; how long [`FaultKind::Huge`] is.
    pub bytes: Option<usize>,
    /// How many calls [`FaultKind::ManyCalls`] makes.
    pub count: Option<usize>,
    /// How often the same request meets it; always when not given.
    pub times: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// Another HTTP status than 200.
    #[default]
    Status,
    /// HTTP 400, in the words with which the API says that the conversation is too long.
    TooLong,
    /// The arguments of every call end in the middle.
    MalformedArguments,
    /// Every call is of a tool that does not exist.
    UnknownTool,
    /// A reply without content.
    Empty,
    /// The first call, 50 times.
    ManyCalls,
    /// 10 MB of text.
    Huge,
    /// Text without end.
    Endless,
    /// Signs of life without end, and nothing else.
    EndlessPings,
    /// The connection ends.
    Cut,
    /// The connection stays, and nothing more comes.
    Hang,
    /// An event in the middle that is not JSON.
    MalformedChunk,
    /// `overloaded_error` in the middle of the stream.
    ErrorEvent,
    /// Calls without an id.
    NoIds,
    /// Calls that all have the same id.
    SameIds,
}

impl Script {
    /// Reads a YAML list of replies.
    pub fn parse(yaml: &str) -> anyhow::Result<Self> {
        Ok(Self { replies: serde_saphyr::from_str(yaml)? })
    }

    /// Returns the number of the next reply in this conversation.
    pub(crate) fn next(&self, system: &str, conversation: &[Heard]) -> Option<usize> {
        let mut left: Vec<usize> = (0..self.replies.len()).collect();
        let mut words = String::new();
        for heard in conversation {
            match heard {
                Heard::Words(text) => {
                    words.push_str(text);
                    words.push('\n');
                }
                Heard::Reply => {
                    self.take(&mut left, system, &words);
                    words.clear();
                }
            }
        }
        self.take(&mut left, system, &words)
    }

    fn take(&self, left: &mut Vec<usize>, system: &str, words: &str) -> Option<usize> {
        let fits = |&n: &usize| {
            let reply = &self.replies[n];
            reply.when.as_ref().is_none_or(|when| words.contains(when.as_str()))
                && reply.system.as_ref().is_none_or(|part| system.contains(part.as_str()))
        };
        let at = left.iter().position(fits)?;
        Some(left.remove(at))
    }
}

impl Reply {
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), ..Self::default() }
    }

    pub fn call(name: &str, arguments: Value) -> Self {
        let call = Call { name: name.to_owned(), arguments, id: None };
        Self { tool_calls: vec![call], ..Self::default() }
    }

    pub fn when(mut self, words: impl Into<String>) -> Self {
        self.when = Some(words.into());
        self
    }

    pub fn fault(mut self, fault: Fault) -> Self {
        self.fault = Some(fault);
        self
    }

    /// Changes what is said as the fault wants it. Faults of the wire are the server's.
    pub(crate) fn spoiled(mut self) -> Self {
        let Some(fault) = self.fault.clone() else { return self };
        match fault.kind {
            FaultKind::MalformedArguments => {
                for call in &mut self.tool_calls {
                    call.arguments = json!(r#"{"path": "src/ma"#);
                }
            }
            FaultKind::UnknownTool => {
                for call in &mut self.tool_calls {
                    call.name = "no_such_tool".to_owned();
                }
            }
            FaultKind::Empty => {
                self.text = None;
                self.thinking = None;
                self.tool_calls.clear();
            }
            FaultKind::ManyCalls => {
                let call = self.tool_calls.first().cloned().unwrap_or_default();
                self.tool_calls = vec![call; fault.count.unwrap_or(50)];
            }
            FaultKind::Huge => {
                self.text = Some("0123456789abcde\n".repeat(fault.bytes.unwrap_or(10_000_000) / 16));
                self.chunk_chars = Some(64 << 10);
            }
            FaultKind::Endless | FaultKind::EndlessPings => {
                self.text = Some("It goes on".to_owned());
                self.tool_calls.clear();
            }
            FaultKind::NoIds | FaultKind::SameIds => {
                let id = if fault.kind == FaultKind::NoIds { "" } else { "call_0" };
                for call in &mut self.tool_calls {
                    call.id = Some(id.to_owned());
                }
            }
            FaultKind::Status
            | FaultKind::TooLong
            | FaultKind::Cut
            | FaultKind::Hang
            | FaultKind::MalformedChunk
            | FaultKind::ErrorEvent => {}
        }
        self
    }

    pub(crate) fn text_pieces(&self) -> Vec<String> {
        pieces(self.text.as_deref().unwrap_or_default(), self.chunk_chars)
    }

    pub(crate) fn argument_pieces(&self, call: &Call) -> Vec<String> {
        pieces(&call.arguments_text(), self.chunk_chars)
    }
}

impl Call {
    pub(crate) fn arguments_text(&self) -> String {
        match &self.arguments {
            Value::String(raw) => raw.clone(),
            Value::Null => "{}".to_owned(),
            value => value.to_string(),
        }
    }

    pub(crate) fn arguments_object(&self) -> Value {
        serde_json::from_str(&self.arguments_text()).unwrap_or(Value::Object(Map::new()))
    }
}

fn pieces(text: &str, chars: Option<usize>) -> Vec<String> {
    const CHARS: usize = 12;
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.char_indices().nth(chars.unwrap_or(CHARS).max(1)).map_or(rest.len(), |(at, _)| at);
        pieces.push(rest[..end].to_owned());
        rest = &rest[end..];
    }
    pieces
}

/// A conversation as a script sees it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// A person's or a tool's.
    Words(String),
    Reply,
}
