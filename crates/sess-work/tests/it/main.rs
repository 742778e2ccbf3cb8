//! Work sessions on real repositories.

mod bad_input;
mod health;
mod hostile;
mod lab;
mod life;
mod setup;
