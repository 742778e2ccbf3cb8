//! The states of a work session, and where the tree of the repository shows them.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::Slug;

/// Where everything is that agents keep in a repository, from its top.
pub(crate) const AGENTS_DIR: &str = "_AGENTS";
/// Where everything of work sessions is, from the top of the repository.
pub const SESSIONS_DIR: &str = "_AGENTS/sessions";
/// What was learned and agreed upon.
pub const KNOWLEDGE_DIR: &str = "_AGENTS/knowledge";

/// The plan of a session, in its directory.
pub const PLAN_FILE: &str = "SESSION.md";

/// A state, which is the directory that the session is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Drafting,
    Planned,
    Active,
    Completed,
    Abandoned,
}

impl State {
    pub const ALL: [Self; 5] =
        [Self::Drafting, Self::Planned, Self::Active, Self::Completed, Self::Abandoned];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Drafting => "drafting",
            Self::Planned => "planned",
            Self::Active => "active",
            Self::Completed => "completed",
            Self::Abandoned => "abandoned",
        }
    }

    /// Whether a plan in this state is there to be changed.
    pub fn is_editable(self) -> bool {
        matches!(self, Self::Drafting | Self::Planned)
    }

    /// Returns the directory of a session in this state, from the top of the repository.
    pub fn dir_of(self, slug: &Slug) -> String {
        format!("{SESSIONS_DIR}/{self}/{slug}")
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for State {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| {
            format!(
                "{text:?} is no state of a work session: expected drafting, planned, active, completed or abandoned"
            )
        })
    }
}

/// Returns the directory where a session writes down what it learned.
pub fn learnings_dir(slug: &Slug) -> String {
    format!("{KNOWLEDGE_DIR}/sessions/{slug}")
}
