//! Readers, tried on samples of every agent's files.

mod golden;
mod homes;
