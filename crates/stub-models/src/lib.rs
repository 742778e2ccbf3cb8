//! Model APIs that answer from a script and fail on demand, for tests.
//!
//! A [`Stub`] speaks Anthropic's Messages API and OpenAI's Chat Completions and
//! Responses on a local port, streaming or not. It refuses what the real ones
//! refuse, so a conversation that it accepts is a valid one.
//!
//! It is written on bare sockets: a connection that ends at a chosen byte is one of
//! the things it is for.

mod anthropic;
mod openai_chat;
mod openai_responses;
mod script;
mod server;

pub use script::{Call, Fault, FaultKind, Reply, Script, Usage};
pub use server::{Recorded, Stub};
