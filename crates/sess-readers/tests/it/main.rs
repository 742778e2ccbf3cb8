//! Readers, tried on samples of every agent's files.

<<<<<<< HEAD
mod amp;
mod codex;
mod cursor;
mod databases;
mod gemini;
=======
mod crush;
mod databases;
mod docker_agent;
>>>>>>> rb
mod golden;
mod goose;
mod homes;
mod openclaw;
mod opencode;
mod zed;
