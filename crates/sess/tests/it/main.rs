//! The real binary, as people and programs run it: its own home, a clean environment, no model, no network.
#![cfg(test)]

mod agents;
mod bad_stores;
mod chat;
mod config;
mod config_files;
mod events;
mod help;
mod mcp;
mod modes;
mod plans;
mod sessions;
mod terminal;
mod tools;
mod transfer;
mod world;
