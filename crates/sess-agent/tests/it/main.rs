//! Models against the stub of their APIs: what they ask, what they make of every answer.

#![cfg(test)]

mod cancel;
mod cuts;
mod driver;
mod endpoints;
mod faults;
mod replies;
mod scripted;
mod support;
mod transcripts;
