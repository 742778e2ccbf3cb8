//! Work sessions on real repositories.

mod lab;
mod life;
mod reality;
