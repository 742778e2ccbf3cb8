//! Plans: one Markdown document a session, with revisions and a review state.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The most bytes a plan has.
pub const SIZE_BYTES_MAX: usize = 10 * 1024 * 1024;

/// Where a plan stands between the agent that writes it and the person who reviews it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Draft,
    Ready,
    Approved,
    ChangesRequested,
    Done,
}

/// What a reviewer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Approve,
    RequestChanges,
    Done,
}

/// Why a plan's content was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    #[error("content must not be empty")]
    Empty,
    #[error("plan is too large: {0} bytes, the most is {SIZE_BYTES_MAX}")]
    TooLarge(usize),
}

/// Why a review was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReviewError {
    #[error("the plan is now at revision {newest}, not {reviewed}; look at it again")]
    OtherRevision { newest: u64, reviewed: u64 },
    #[error("the plan is {state}, not ready for review")]
    NotReady { state: State },
    #[error("the plan is {state}, not approved")]
    NotApproved { state: State },
}

/// Checks what a plan may contain.
pub fn check_content(content: &str) -> Result<(), ContentError> {
    if content.trim().is_empty() {
        return Err(ContentError::Empty);
    }
    if content.len() > SIZE_BYTES_MAX {
        return Err(ContentError::TooLarge(content.len()));
    }
    Ok(())
}

impl State {
    /// Returns the state after `exit_plan_mode`; the same one when it changes nothing.
    pub fn after_exit(self) -> Self {
        match self {
            Self::Draft | Self::ChangesRequested => Self::Ready,
            Self::Ready | Self::Approved | Self::Done => self,
        }
    }

    /// Returns the state after a person's verdict on revision `reviewed`.
    pub fn after_review(self, newest: u64, reviewed: u64, verdict: Verdict) -> Result<Self, ReviewError> {
        if newest != reviewed {
            return Err(ReviewError::OtherRevision { newest, reviewed });
        }
        match (verdict, self) {
            (Verdict::Approve, Self::Ready) => Ok(Self::Approved),
            (Verdict::RequestChanges, Self::Ready) => Ok(Self::ChangesRequested),
            (Verdict::Done, Self::Approved) => Ok(Self::Done),
            (Verdict::Done, state) => Err(ReviewError::NotApproved { state }),
            (Verdict::Approve | Verdict::RequestChanges, state) => Err(ReviewError::NotReady { state }),
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Draft => "draft",
            Self::Ready => "ready",
            Self::Approved => "approved",
            Self::ChangesRequested => "changes_requested",
            Self::Done => "done",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that names no state of a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown plan state \"{0}\"")]
pub struct UnknownState(pub String);

impl FromStr for State {
    type Err = UnknownState;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Draft, Self::Ready, Self::Approved, Self::ChangesRequested, Self::Done]
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| UnknownState(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_content_with_something_in_it_is_a_plan() {
        for empty in ["", " ", "\n\t", "\u{2003}\u{a0}\u{3000}"] {
            assert_eq!(check_content(empty), Err(ContentError::Empty), "{empty:?}");
        }
        assert_eq!(check_content("# plan"), Ok(()));
        assert_eq!(check_content(&"x".repeat(SIZE_BYTES_MAX)), Ok(()));
        let error = check_content(&"x".repeat(SIZE_BYTES_MAX + 1)).expect_err("too large");
        assert_eq!(error.to_string(), "plan is too large: 10485761 bytes, the most is 10485760");
    }

    #[test]
    fn exit_makes_a_draft_ready_and_leaves_the_rest() {
        let after = |state: &str| state.parse::<State>().expect(state).after_exit().as_str();
        assert_eq!(after("draft"), "ready");
        assert_eq!(after("changes_requested"), "ready");
        for same in ["ready", "approved", "done"] {
            assert_eq!(after(same), same);
        }
    }

    #[test]
    fn a_review_is_of_the_newest_revision_and_only_when_ready() {
        let check = |state: State, reviewed, verdict, expected: &str| {
            let outcome = match state.after_review(3, reviewed, verdict) {
                Ok(state) => state.to_string(),
                Err(error) => error.to_string(),
            };
            assert_eq!(outcome, expected);
        };
        check(State::Ready, 3, Verdict::Approve, "approved");
        check(State::Ready, 3, Verdict::RequestChanges, "changes_requested");
        check(State::Approved, 3, Verdict::Done, "done");
        check(State::Ready, 2, Verdict::Approve, "the plan is now at revision 3, not 2; look at it again");
        check(State::Draft, 3, Verdict::Approve, "the plan is draft, not ready for review");
        check(State::Approved, 3, Verdict::RequestChanges, "the plan is approved, not ready for review");
        check(State::Ready, 3, Verdict::Done, "the plan is ready, not approved");
    }
}
