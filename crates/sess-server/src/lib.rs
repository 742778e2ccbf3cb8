//! The doors: how the world reaches the use cases of `sess-app`.
//!
//! Each door parses what arrives, calls one use case, and renders the answer.
//! No rule about sessions or plans lives here, and no door sees the store.

pub mod gateway;
pub mod mcp;

use std::{net::SocketAddr, path::PathBuf};

/// Why a door could not open, or closed by itself.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Everybody could listen in.
    #[error(
        "{0} is reached by others, and nothing would be encrypted: give a certificate with --tls-cert and \
         --tls-key, listen on 127.0.0.1, or say --insecure"
    )]
    Wide(SocketAddr),
    #[error("cannot listen on {listen}")]
    Bind { listen: SocketAddr, source: std::io::Error },
    /// The certificate or its key cannot be used.
    #[error("cannot use {} for TLS", path.display())]
    Tls { path: PathBuf, source: std::io::Error },
    /// A configured host name is none.
    #[error("{0}")]
    Name(String),
    #[error(transparent)]
    App(#[from] sess_app::Error),
    /// The list of allowed tools names one that does not exist.
    #[error("no tool is called {name:?}; the tools are {known}")]
    UnknownTool { name: String, known: String },
    /// The loop that serves a connection panicked or was aborted.
    #[error("the MCP connection stopped unexpectedly")]
    Stopped,
}
