//! A reply while it comes, and what is made of it when it is whole or broke off.

use std::collections::HashSet;

use serde_json::{Map, Value};
use sess_core::agent::{ModelSpec, Price};
use sess_core::message::{Block, Usage};

use super::{Malformed, Piece, Reply, Request, Stop, parse_arguments};

/// The most bytes of one reply: several times what the longest output of any model comes to.
pub const REPLY_BYTES_MAX: usize = 4 << 20;

/// The most tool calls of one reply.
pub const CALLS_MAX: usize = 256;

/// How much of a reply over [`REPLY_BYTES_MAX`] is kept: the whole would fill every later call.
const CUT_BYTES_MAX: usize = 64 << 10;

/// How much of malformed arguments is shown.
const MALFORMED_CHARS_MAX: usize = 400;

pub(super) type Told<'a> = &'a mut (dyn FnMut(Piece) + Send);

#[derive(Debug, Default)]
pub(super) struct Draft {
    parts: Vec<Part>,
    pub(super) usage: Usage,
    /// Set by the provider's last word; until then the reply is not whole.
    pub(super) stop: Option<Stop>,
    pub(super) model: Option<String>,
    bytes: usize,
    calls: usize,
}

#[derive(Debug)]
enum Part {
    Text(String),
    Thinking { text: String, signature: Option<String> },
    Call { id: String, name: String, arguments: String },
    Other(Map<String, Value>),
}

/// The reply is more than a reply can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Excess {
    Bytes,
    Calls,
}

impl Draft {
    pub(super) fn text(&mut self, delta: &str, told: Told<'_>) {
        if delta.is_empty() {
            return;
        }
        self.bytes += delta.len();
        match self.parts.last_mut() {
            Some(Part::Text(text)) => text.push_str(delta),
            _ => self.parts.push(Part::Text(delta.to_owned())),
        }
        told(Piece::Text(delta.to_owned()));
    }

    /// Begins a new block of thinking; deltas without a beginning go on with the last one.
    pub(super) fn begin_thinking(&mut self) {
        self.parts.push(Part::Thinking { text: String::new(), signature: None });
    }

    pub(super) fn thinking(&mut self, delta: &str, told: Told<'_>) {
        if delta.is_empty() {
            return;
        }
        if !matches!(self.parts.last(), Some(Part::Thinking { .. })) {
            self.begin_thinking();
        }
        self.bytes += delta.len();
        if let Some(Part::Thinking { text, .. }) = self.parts.last_mut() {
            text.push_str(delta);
        }
        told(Piece::Thinking(delta.to_owned()));
    }

    /// Signs the last block, which is thinking.
    pub(super) fn sign(&mut self, by: String) {
        self.bytes += by.len();
        if let Some(Part::Thinking { signature, .. }) = self.parts.last_mut() {
            *signature = Some(by);
        }
    }

    /// Begins a tool call and returns its handle for [`Self::arguments`].
    pub(super) fn begin_call(&mut self, id: &str, name: &str, told: Told<'_>) -> usize {
        self.bytes += id.len() + name.len();
        self.calls += 1;
        self.parts.push(Part::Call { id: id.to_owned(), name: name.to_owned(), arguments: String::new() });
        told(Piece::ToolCall { name: name.to_owned() });
        self.parts.len() - 1
    }

    pub(super) fn arguments(&mut self, call: usize, delta: &str) {
        self.bytes += delta.len();
        if let Some(Part::Call { arguments, .. }) = self.parts.get_mut(call) {
            arguments.push_str(delta);
        }
    }

    /// Replaces the arguments of a call by what the provider says they are as a whole.
    pub(super) fn set_arguments(&mut self, call: usize, whole: &str) {
        if let Some(Part::Call { arguments, .. }) = self.parts.get_mut(call) {
            self.bytes = self.bytes.saturating_sub(arguments.len()) + whole.len();
            whole.clone_into(arguments);
        }
    }

    /// Keeps a block that only its provider understands, to be sent back with the next call.
    pub(super) fn other(&mut self, block: Map<String, Value>) {
        self.bytes += Value::Object(block.clone()).to_string().len();
        self.parts.push(Part::Other(block));
    }

    pub(super) fn excess(&self) -> Option<Excess> {
        if self.calls > CALLS_MAX {
            return Some(Excess::Calls);
        }
        (self.bytes > REPLY_BYTES_MAX).then_some(Excess::Bytes)
    }

    /// Says whether there is nothing that a person or a tool could make use of.
    pub(super) fn is_empty(&self) -> bool {
        self.parts.iter().all(|part| match part {
            Part::Text(text) => text.trim().is_empty(),
            Part::Thinking { .. } | Part::Other(_) => true,
            Part::Call { .. } => false,
        })
    }

    /// Makes the reply of a draft that is whole.
    pub(super) fn finish(self, request: &Request, spec: &ModelSpec) -> Reply {
        let mut reply = self.head(spec);
        let mut ids = CallIds::of(request);
        for part in self.parts {
            let block = match part {
                Part::Call { id, name, arguments } => {
                    let id = ids.unique(id);
                    let arguments = match parse_arguments(&arguments) {
                        Ok(arguments) => arguments,
                        Err(reason) => {
                            let arguments = arguments.chars().take(MALFORMED_CHARS_MAX).collect();
                            reply.malformed.push(Malformed { id: id.clone(), arguments, reason });
                            Map::new()
                        }
                    };
                    Block::ToolCall { id, name, arguments }
                }
                part => match said(part) {
                    Some(block) => block,
                    None => continue,
                },
            };
            reply.content.push(block);
        }
        let calls = reply.content.iter().any(|block| matches!(block, Block::ToolCall { .. }));
        reply.stop = match self.stop {
            // Some servers say "stop" with tool calls, or the other way round.
            None | Some(Stop::End) if calls => Stop::ToolCalls,
            None | Some(Stop::ToolCalls) if !calls => Stop::End,
            Some(stop) => stop,
            None => Stop::End,
        };
        reply
    }

    /// Makes what is left of a draft that broke off: a tool call only with all its arguments.
    pub(super) fn partial(self, request: &Request, spec: &ModelSpec) -> Reply {
        let mut reply = self.head(spec);
        let mut ids = CallIds::of(request);
        let cut = self.excess().is_some();
        for part in self.parts {
            let block = match part {
                Part::Call { .. } if cut => None,
                // No beginning of a JSON object is one, so what can be read came as a whole.
                Part::Call { id, name, arguments } => match serde_json::from_str(&arguments) {
                    Ok(arguments) => Some(Block::ToolCall { id: ids.unique(id), name, arguments }),
                    Err(_) => None,
                },
                Part::Text(mut text) if cut => {
                    text.truncate(text.floor_char_boundary(CUT_BYTES_MAX));
                    said(Part::Text(text))
                }
                Part::Thinking { .. } | Part::Other(_) if cut => None,
                part => said(part),
            };
            reply.content.extend(block);
        }
        reply
    }

    fn head(&self, spec: &ModelSpec) -> Reply {
        let mut usage = self.usage.clone();
        usage.cost = spec.price.map(|price| cost(&usage, price));
        let model = self.model.clone().unwrap_or_else(|| spec.model.clone());
        Reply { usage, model, ..Reply::default() }
    }
}

fn said(part: Part) -> Option<Block> {
    match part {
        Part::Text(text) => (!text.trim().is_empty()).then_some(Block::Text { text }),
        Part::Thinking { text, signature } => {
            (!text.is_empty() || signature.is_some()).then_some(Block::Thinking { text, signature })
        }
        Part::Other(block) => Some(Block::Other(block)),
        Part::Call { .. } => None,
    }
}

fn cost(usage: &Usage, price: Price) -> f64 {
    let parts = [
        (usage.input, price.input),
        (usage.output, price.output),
        (usage.cache_read, price.cache_read),
        (usage.cache_write, price.cache_write),
    ];
    #[expect(clippy::cast_precision_loss, reason = "no count of tokens comes near 2^52")]
    parts.iter().map(|&(tokens, per_million)| tokens as f64 * per_million / 1_000_000.0).sum()
}

/// The ids of tool calls that a conversation has already.
///
/// Some servers leave the id out or begin to count anew with every reply; the
/// transcript needs ids that are its own.
pub(super) struct CallIds {
    used: HashSet<String>,
    stem: String,
    made: usize,
}

impl CallIds {
    pub(super) fn of(request: &Request) -> Self {
        let mut used = HashSet::new();
        for block in request.messages.iter().flat_map(|body| &body.content) {
            if let Block::ToolCall { id, .. } = block {
                used.insert(id.clone());
            }
        }
        // From the time of the last message, so that an id is not one of a message before
        // a compaction either.
        let last = request.messages.last().map_or(0, |body| body.timestamp.as_millis());
        Self { used, stem: format!("call_{last:x}"), made: 0 }
    }

    /// Returns `id` if it is new, else one that is.
    pub(super) fn unique(&mut self, id: String) -> String {
        let mut id = id;
        while id.is_empty() || !self.used.insert(id.clone()) {
            self.made += 1;
            id = format!("{}_{}", self.stem, self.made);
        }
        id
    }
}
