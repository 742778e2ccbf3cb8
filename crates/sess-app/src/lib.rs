//! The use cases of sess, and the tools that agents can call.

pub mod transfer;
