//! Work sessions on real repositories.

mod committing;
mod lab;
mod life;
