//! The gateway: HTTP, server-sent events, WebSocket, MCP and the web page, over one store.

mod cursor;
mod follower;
mod hub;
