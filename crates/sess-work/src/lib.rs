//! Work sessions: units of work on a git repository, which an agent claims, works on in isolation, and lands.
//!
//! What may happen is decided by pure functions (`slug`, `state`, `claim`, `standing`, `brief`, `drift`); the rest
//! carries it out with the user's `git`, through refs that move only from where they were seen. There is no server
//! and no daemon: everything that others have to know is in the repository that they share.

mod brief;
mod claim;
mod slug;
mod standing;
mod state;
mod templates;

mod error;
mod git;
mod guard;
mod namespace;
mod refs;
mod repo;
mod tree;

mod adopt;
mod archive;
mod blame;
mod branch;
mod chaining;
mod checkout;
mod claiming;
mod committing;
mod context;
mod doctor;
mod drafting;
mod drift;
mod following;
mod gc;
mod hooks;
mod init;
mod kb;
mod keeping;
mod landing;
mod listing;
mod merging;
mod notes;
mod observing;
mod policy;
mod projecting;
mod reviewing;
mod status;
mod under_way;
mod work;
mod workspace;
mod writing;

pub use blame::Blame;
pub use brief::{Brief, Criterion, WorkKind};
pub use claim::{Amendment, Claim, Landed, Owner, Phase, User};
pub use claiming::{ClaimOptions, Claimed};
pub use doctor::{CheckRow, Checkup};
pub use drift::{Change, Drift, DriftCriterion, DriftFiles, DriftTime, SharedFile};
pub use error::{Error, Kind, Result};
pub use gc::{Gc, GcItem};
pub use git::{Git, Oid};
pub use init::{InitOptions, InitReport};
pub use kb::KbEntry;
pub use landing::Completed;
pub use listing::{Holder, Past, Row, Shown};
pub use notes::Note;
pub use refs::{Move, Moved, Record, View};
pub use repo::{OWN_DIR, Repo};
pub use slug::{InvalidSlug, Slug};
pub use standing::{Refusal, Standing, Verb, may, standing};
pub use state::{KNOWLEDGE_DIR, PLAN_FILE, SESSIONS_DIR, State};
pub use status::{BranchStatus, DriftCounts, GateStatus, Status};
pub use templates::{Draft, identity_name, quoted};
pub use tree::{Entry, File, Tree};
pub use work::{Land, Seen, Settings, Who, Work};
pub use workspace::Workspace;
