//! The real binary, as people and programs run it: its own home, a clean environment, no model, no network.
#![cfg(test)]

mod agents;
mod bad_stores;
mod chat;
mod config;
mod config_files;
mod events;
mod exchanges;
mod help;
mod index;
mod install;
mod mcp;
mod mcp_client;
mod modes;
mod pages;
mod plans;
mod ps;
mod run_agents;
mod run_bad_config;
mod run_bad_models;
mod run_compaction;
mod run_events;
mod run_limits;
mod run_permissions;
mod run_plans;
mod run_sessions;
mod run_stage;
mod run_tools;
#[path = "../../../sess-readers/tests/agent-homes/samples.rs"]
mod samples;
mod sandbox;
mod secrets;
mod serve;
mod sessions;
mod snapshots;
mod terminal;
mod tokens;
mod tools;
mod transfer;
mod work;
mod world;
