//! Why other agents' files cannot be read.

use std::{io, path::PathBuf};

pub type Result<T> = std::result::Result<T, Error>;

/// Why a file, or a session in it, cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{} cannot be read: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{} cannot be read as a database: {source}", path.display())]
    Database { path: PathBuf, source: rusqlite::Error },
    #[error("{} changes faster than it can be read; try again", .0.display())]
    Busy(PathBuf),
    #[error("{} is not in a format that is known here: {what}", path.display())]
    Format { path: PathBuf, what: String },
    /// It was listed, and is gone.
    #[error("{} has no such session any more", .0.display())]
    Gone(PathBuf),
}
