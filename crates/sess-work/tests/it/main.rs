//! Work sessions on real repositories.

mod crash;
mod lab;
mod life;
mod many;
mod model;
mod races;
mod reality;
