//! Running agents: model providers, tools that touch the world, and their confinement.
//!
//! Nothing here sees the store: what a turn records, asks or tells goes through
//! the [`turn::Host`] that it is given.

pub mod confine;
pub mod files;
pub mod mcp;
pub mod model;
mod process;
pub mod shell;
pub mod tool;
pub mod turn;
