//! Readers, tried on samples of every agent's files.

mod databases;
mod golden;
mod homes;
