//! The store's promises, each as a story that tries to break it.
//!
//! A story takes a way to open a store, so that every backend can be told the
//! same one. What only a file can suffer — damage, a full disk, an older
//! schema — is told apart.

#![cfg(test)]

mod damage;
mod derived;
mod disk_full;
mod exchanges;
mod feed;
mod handles;
mod messages;
mod model;
mod plans;
mod reach;
mod run_model;
mod runs;
mod schema;
mod search;
mod sessions;
mod support;
mod tokens;
