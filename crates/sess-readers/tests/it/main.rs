//! Readers, tried on samples of every agent's files.

mod amp;
mod codex;
mod cursor;
mod damage;
mod gemini;
mod golden;
mod homes;
mod mutation;
