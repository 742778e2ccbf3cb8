//! The doors, tested through their wire, in memory.
#![cfg(test)]

mod client;
mod mcp_lines;
mod mcp_sessions;
mod mcp_tools;
mod mcp_views;
