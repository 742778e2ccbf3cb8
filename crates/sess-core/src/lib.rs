//! What sessions, messages, plans and callers are, and what may happen to them.
//!
//! Everything here is pure: no I/O, no clock, no randomness. Times, ids and
//! random bits are arguments, so every decision can be tested as plain text in,
//! text out.

pub mod agent;
pub mod conversation;
pub mod digest;
pub mod exchange;
pub mod id;
pub mod key;
pub mod mention;
pub mod message;
pub mod permission;
pub mod plan;
pub mod rules;
pub mod run;
pub mod sandbox;
pub mod session;
pub mod spawn;
pub mod time;
pub mod transcript;
pub mod turn;

pub mod identity;
pub mod policy;
pub mod redact;
pub mod reference;

pub use id::{MessageId, SessionId};
pub use key::{AgentId, SessionKey};
pub use message::Message;
pub use run::RunId;
pub use session::Source;
pub use time::Timestamp;
