//! Work sessions on real repositories.

mod bad_input;
mod claims;
mod committing;
mod copies;
mod crash;
mod health;
mod hostile;
mod lab;
mod late;
mod life;
mod losses;
mod many;
mod merges;
mod model;
mod plans;
mod races;
mod reality;
mod requests;
mod reviews;
mod setup;
mod under_way;
mod unseen;
