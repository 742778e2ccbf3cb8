//! The doors: how the world reaches the use cases of `sess-app`.
//!
//! Each door parses what arrives, calls one use case, and renders the answer.
//! No rule about sessions or plans lives here, and no door sees the store.

pub mod gateway;
pub mod mcp;

/// Why a door could not open, or closed by itself.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The list of allowed tools names one that does not exist.
    #[error("no tool is called {name:?}; the tools are {known}")]
    UnknownTool { name: String, known: String },
    /// The loop that serves a connection panicked or was aborted.
    #[error("the MCP connection stopped unexpectedly")]
    Stopped(#[source] tokio::task::JoinError),
}
