//! Readers, tried on samples of every agent's files.

mod crush;
mod databases;
mod docker_agent;
mod golden;
mod goose;
mod homes;
mod openclaw;
mod opencode;
mod zed;
