//! Readers, tried on samples of every agent's files.

mod amp;
mod claude;
mod codex;
mod crush;
mod cursor;
mod damage;
mod databases;
mod docker_agent;
mod gemini;
mod golden;
mod goose;
mod homes;
mod mutation;
mod openclaw;
mod opencode;
#[path = "../agent-homes/samples.rs"]
mod samples;
mod zed;
