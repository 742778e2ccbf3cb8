//! Readers, tried on samples of every agent's files.

mod amp;
mod codex;
mod cursor;
mod gemini;
mod golden;
mod homes;
