//! The gateway: HTTP, server-sent events, WebSocket, MCP and the web page, over one store.
//!
//! Every request takes the same way: where it comes from, who it is, what it may do, how large it
//! is, and only then what it wants. [`routes`] has the one table of all that can be asked for.

mod admission;
mod attachments;
mod cursor;
mod errors;
mod follower;
mod http;
mod hub;
mod limits;
mod mcp_http;
mod metrics;
mod one_shape;
mod openapi;
mod origin;
mod page;
mod query;
mod reading;
mod routes;
mod serve;
mod sse;
mod state;
mod taking;
mod ws;

pub use limits::Limits;
pub use openapi::openapi;
pub use serve::{GatewayOptions, LISTEN, serve};
pub use ws::SingleFrames;
