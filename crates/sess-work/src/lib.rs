//! Work sessions: units of work on a git repository, which an agent claims, works on in isolation, and lands.
//!
//! What may happen is decided by pure functions (`slug`, `state`, `claim`, `standing`, `brief`, `drift`); the rest
//! carries it out with the user's `git`, through refs that move only from where they were seen. There is no server
//! and no daemon: everything that others have to know is in the repository that they share.

mod slug;
mod state;
mod claim;
mod standing;
mod brief;
mod templates;

mod error;
mod git;
mod repo;
mod hub;
mod tree;

pub use brief::{Brief, Criterion, WorkKind};
pub use claim::{Amendment, Claim, Landed, Owner, Phase, User};
pub use error::{Error, Kind, Result};
pub use git::{Git, Oid};
pub use repo::Repo;
pub use slug::{InvalidSlug, Slug};
pub use standing::{Refusal, Standing, Verb, may, standing};
pub use state::{KNOWLEDGE_DIR, SESSIONS_DIR, State};
pub use templates::{Draft, identity_name, quoted};
