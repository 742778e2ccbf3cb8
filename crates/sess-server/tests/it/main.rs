//! The doors, tested through their wire, in memory.
#![cfg(test)]

mod client;
mod gateway;
mod gateway_access;
mod gateway_ends;
mod gateway_follow;
mod gateway_foreign;
mod gateway_history;
mod gateway_limits;
mod gateway_mcp;
mod gateway_others;
mod gateway_panics;
mod gateway_routes;
mod gateway_strict;
mod gateway_tls;
mod gateway_unreadable;
mod mcp_lines;
mod mcp_sessions;
mod mcp_tools;
mod mcp_views;
#[path = "../../../sess-readers/tests/agent-homes/samples.rs"]
mod samples;
mod ws_chat;
mod ws_follow;
mod ws_frames;
mod ws_reviews;
mod ws_stage;
