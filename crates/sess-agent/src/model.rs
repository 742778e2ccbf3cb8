//! Models: one question, one streamed reply.
//!
//! The interface is here, each provider in a file of its own, and what they share
//! below: `turns` makes a transcript valid, `http` asks and asks again, `draft`
//! puts the reply together.

use async_trait::async_trait;
use serde_json::{Map, Value};
use sess_core::AgentId;
use sess_core::message::{Block, Body, Usage};
use tokio_util::sync::CancellationToken;

use crate::tool::ToolDef;

mod endpoint;

mod anthropic;
mod openai_chat;
mod openai_responses;
mod scripted;

mod draft;
mod http;
mod sse;
mod turns;

pub use anthropic::MAX_TOKENS_DEFAULT;
pub use draft::{CALLS_MAX, REPLY_BYTES_MAX};
pub use endpoint::{Endpoint, Patience, Secret, endpoint_for, open, open_with};
pub use http::{STREAM_BYTES_MAX, http_client};

/// A model behind an API, or a script in its place.
#[async_trait]
pub trait Model: Send + Sync {
    /// Asks for one reply. `told` hears its pieces as they come.
    ///
    /// What is retryable was retried when this returns an error. A cancelled call
    /// returns [`ModelError::Cancelled`] within a moment, wherever it is.
    async fn reply(
        &self,
        request: &Request,
        told: &mut (dyn FnMut(Piece) + Send),
        cancel: &CancellationToken,
    ) -> Result<Reply, ModelError>;
}

/// What a model is asked.
///
/// `messages` are as in the transcript, whatever a crash left behind: every provider
/// makes them what its API accepts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    pub system: String,
    pub messages: Vec<Body>,
    pub tools: Vec<ToolDef>,
    /// Who asks. No provider is told; a script may have replies for one agent only.
    pub agent: Option<AgentId>,
}

/// A piece of a reply, while it comes.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    Text(String),
    Thinking(String),
    /// A tool is about to be called; its arguments are still coming.
    ToolCall {
        name: String,
    },
    /// The call failed and is made again: forget the pieces so far.
    Retry {
        why: String,
        after_ms: u64,
    },
}

/// A whole reply.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// Text, thinking and tool calls, in order. The arguments of a call in
    /// `malformed` are empty.
    pub content: Vec<Block>,
    /// Tool calls whose arguments were no JSON object.
    pub malformed: Vec<Malformed>,
    pub usage: Usage,
    pub stop: Stop,
    /// The model that answered, in the provider's words.
    pub model: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The id of the tool call.
    pub id: String,
    /// What came, cut to a few hundred characters.
    pub arguments: String,
    pub reason: String,
}

/// Why a reply ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Stop {
    /// It has said what it wanted to say.
    #[default]
    End,
    ToolCalls,
    /// `max_tokens` cut it off.
    Length,
    /// The provider refused to go on.
    Refused,
    /// A word that this version does not know.
    Other(String),
}

impl Stop {
    /// Returns the word for the transcript.
    pub fn as_str(&self) -> &str {
        match self {
            Self::End => "end",
            Self::ToolCalls => "tool_calls",
            Self::Length => "length",
            Self::Refused => "refused",
            Self::Other(word) => word,
        }
    }
}

/// Why there is no reply.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// The request itself is wrong, the key is missing or refused: trying again changes nothing.
    #[error("{0}")]
    Refused(String),
    /// More than the model takes in: compaction may help.
    #[error("{0}")]
    TooLong(String),
    /// The provider could not be reached, was overloaded or broke off, also after retries.
    #[error("{reason}")]
    Unavailable {
        reason: String,
        /// What came before it broke off; empty when nothing did.
        partial: Box<Reply>,
    },
    #[error("cancelled")]
    Cancelled {
        /// What came before.
        partial: Box<Reply>,
    },
}

/// Reads the arguments of a tool call as they came: a JSON object, or nothing at all.
pub fn parse_arguments(text: &str) -> Result<Map<String, Value>, String> {
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(_) => Err("the arguments are not a JSON object".to_owned()),
        Err(error) => Err(format!("the arguments are not valid JSON: {error}")),
    }
}
