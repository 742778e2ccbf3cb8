//! What can go wrong in a use case, and what the caller can do about it.

use sess_core::{
    id::InvalidSessionId,
    plan::{ContentError, ReviewError},
    reference::ReferenceError,
};

/// The result of a use case.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a use case was not carried out. Each text is a sentence for whoever asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Content(#[from] ContentError),
    #[error(transparent)]
    SessionId(#[from] InvalidSessionId),
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    #[error(transparent)]
    Review(#[from] ReviewError),
    #[error("no plan written yet for this session; call write_session_plan {0}")]
    NoPlan(&'static str),
    #[error(transparent)]
    PlanFile(#[from] sess_store::FileError),
    #[error(transparent)]
    Store(#[from] sess_store::Error),
    #[error(transparent)]
    Work(#[from] sess_work::Error),
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Denied(String),
    #[error("{0}")]
    Unavailable(String),
}

/// What the caller can do: HTTP status, tool answer and exit code come from this alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Ask differently.
    Invalid,
    /// Ask for something that exists, or in another state.
    NotFound,
    /// Not with these rights.
    Denied,
    /// Look again: somebody else was there first.
    Conflict,
    /// Try again when the cause is gone.
    Unavailable,
    /// Something stored is wrong.
    Damaged,
}

impl Error {
    /// Says what the caller can do.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Content(_) | Self::SessionId(_) | Self::Invalid(_) => Kind::Invalid,
            Self::Reference(ReferenceError::Empty | ReferenceError::Ambiguous { .. }) => Kind::Invalid,
            Self::Reference(
                ReferenceError::NotFound(_) | ReferenceError::OutOfRange { .. } | ReferenceError::Current,
            ) => Kind::NotFound,
            Self::Review(_) => Kind::Conflict,
            Self::NoPlan(_) | Self::NotFound(_) => Kind::NotFound,
            Self::Denied(_) => Kind::Denied,
            Self::PlanFile(_) | Self::Unavailable(_) => Kind::Unavailable,
            Self::Work(error) => match error.kind {
                sess_work::Kind::Usage => Kind::Invalid,
                sess_work::Kind::WrongState => Kind::NotFound,
                sess_work::Kind::Claimed | sess_work::Kind::WouldLoseWork | sess_work::Kind::Conflict => {
                    Kind::Conflict
                }
                sess_work::Kind::Policy | sess_work::Kind::Rejected => Kind::Denied,
                sess_work::Kind::Failed | sess_work::Kind::Unreachable => Kind::Unavailable,
            },
            Self::Store(error) => match error {
                sess_store::Error::NoSession(_) | sess_store::Error::NoRun(_) => Kind::NotFound,
                sess_store::Error::StaleRevision { .. }
                | sess_store::Error::KeyReused(_)
                | sess_store::Error::Conflict(_) => Kind::Conflict,
                sess_store::Error::Full(_) => Kind::Unavailable,
                sess_store::Error::Unavailable(_) | sess_store::Error::Newer(_) => Kind::Unavailable,
                sess_store::Error::Damaged(_) => Kind::Damaged,
            },
        }
    }
}
