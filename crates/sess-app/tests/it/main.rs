//! The contracts of plans and context, sentence by sentence, on a real store.
#![cfg(test)]

#[path = "../../../sess-readers/tests/agent-homes/samples.rs"]
mod samples;
mod teams;
mod world;

mod tools;

mod plan_files;
mod plan_recovery;
mod plan_review;
mod plan_sweep;
mod plans;

mod foreign;
mod index;
mod listing;
mod quiet;
mod reading;
mod references;
mod run_rows;
mod scrub;
mod search;
mod secrets_out;
mod snapshots;

mod events;
mod identity;
mod tokens;

mod agents;

mod sessions_stage;

mod exchange;
mod forged;
mod node_ends;
mod others;
mod session_reach;
mod sessions_history;
mod sessions_list;
mod sessions_send;
mod simulation;
mod spawning;
mod stage;
mod storms;
