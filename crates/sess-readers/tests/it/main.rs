//! Readers, tried on samples of every agent's files.

mod codex;
mod gemini;
mod golden;
mod homes;
