//! Readers, tried on samples of every agent's files.

mod codex;
mod golden;
mod homes;
