//! What can go wrong with work sessions, told with the command to run next.

use std::fmt;

use crate::standing::Refusal;

pub type Result<T> = std::result::Result<T, Error>;

/// Why a verb did not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub kind: Kind,
    message: String,
    /// What to run now.
    next: String,
}

/// What tells more when nothing better is known.
const NEXT: &str = "sess work doctor";

/// What the caller can do about it; each has an exit code of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Failed,
    Usage,
    /// It does not exist, or is in another state.
    WrongState,
    Claimed,
    WouldLoseWork,
    Unreachable,
    /// The work and the base do not go together.
    Conflict,
    /// The plan was changed, the knowledge base is not this session's, a gate failed.
    Policy,
    /// The remote said no.
    Rejected,
}

impl Kind {
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::WrongState => 3,
            Self::Claimed => 4,
            Self::WouldLoseWork => 5,
            Self::Unreachable => 6,
            Self::Conflict => 7,
            Self::Policy => 8,
            Self::Rejected => 9,
        }
    }
}

impl Error {
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), next: NEXT.to_owned() }
    }

    /// Returns what went wrong, without what to do about it.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the command to run now.
    pub fn next_command(&self) -> &str {
        &self.next
    }

    /// Says what to run now.
    pub fn next(mut self, command: impl Into<String>) -> Self {
        self.next = command.into();
        self
    }

    /// Says what holds in spite of it.
    pub(crate) fn although(mut self, what: &str) -> Self {
        self.message = format!("{what}, but {}", self.message);
        self
    }

    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(Kind::Failed, message)
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    pub fn wrong_state(message: impl Into<String>) -> Self {
        Self::new(Kind::WrongState, message)
    }

    /// Says that no session can be claimed now.
    pub fn none_ready() -> Self {
        Self::wrong_state("nothing is ready to be claimed").next("sess work list")
    }

    pub fn would_lose(message: impl Into<String>) -> Self {
        Self::new(Kind::WouldLoseWork, message)
    }

    pub fn policy(message: impl Into<String>) -> Self {
        Self::new(Kind::Policy, message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; run `{}`", self.message, self.next)
    }
}

impl std::error::Error for Error {}

impl From<crate::slug::InvalidSlug> for Error {
    fn from(error: crate::slug::InvalidSlug) -> Self {
        Self::usage(error.to_string()).next("sess work list")
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        let message = refusal.to_string();
        match refusal {
            Refusal::NotFound(_) => Self::wrong_state(message).next("sess work list"),
            Refusal::WrongState { slug, .. } => {
                Self::wrong_state(message).next(format!("sess work show {slug}"))
            }
            Refusal::Frozen(slug) => {
                Self::wrong_state(message).next(format!("sess work amend {slug} --file <file> --reason …"))
            }
            Refusal::Claimed { slug, is_stale, .. } => {
                let verb = if is_stale { "takeover" } else { "show" };
                Self::new(Kind::Claimed, message).next(format!("sess work {verb} {slug}"))
            }
            Refusal::Dispossessed(slug, _) => {
                Self::new(Kind::Claimed, message).next(format!("sess work show {slug}"))
            }
            Refusal::NotStale(slug, _) => Self::new(Kind::Claimed, message)
                .next(format!("sess work takeover {slug} --force --reason …")),
            Refusal::Waits { slug, .. } => {
                Self::wrong_state(message).next(format!("sess work complete {slug}"))
            }
            Refusal::NotLeft { slug, .. } => {
                Self::wrong_state(message).next(format!("sess work takeover {slug} --force --reason …"))
            }
            Refusal::Orphaned(_) | Refusal::Lost(_) => {
                Self::wrong_state(message).next("sess work doctor --repair")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_the_exit_code_that_scripts_know() {
        let kinds = [
            Kind::Failed,
            Kind::Usage,
            Kind::WrongState,
            Kind::Claimed,
            Kind::WouldLoseWork,
            Kind::Unreachable,
            Kind::Conflict,
            Kind::Policy,
            Kind::Rejected,
        ];
        assert_eq!(kinds.map(Kind::exit_code), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    }
}
