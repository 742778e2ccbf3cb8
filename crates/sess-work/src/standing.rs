//! What a claim and a directory mean together, and what each verb may do then.
//!
//! The claim is a ref and the directory is on the base branch: they cannot change in one step everywhere, so every
//! pair of them has one meaning, and a pair that is half done says where it leads.

use sess_core::Timestamp;

use crate::{Claim, Owner, Phase, Slug, State};

/// What a claim and a directory mean together.
#[derive(Clone, Debug, PartialEq)]
pub enum Standing {
    /// There is neither.
    Unknown,
    /// Nobody has it, and the directory says what it is.
    Rests(State),
    /// Somebody has it, and the directory says so.
    Held(Box<Claim>),
    /// The claim is ahead of the directory, which has to follow it to this state.
    Pending { claim: Box<Claim>, to: State },
    /// The directory is ahead: the work is merged, and the claim has to end.
    Merged(Box<Claim>),
    /// It is shown as active, and nobody has it: the claim was removed by hand.
    Orphaned,
    /// Somebody has what is not there: the directory was removed by hand, or the base was rewritten.
    Lost(Box<Claim>),
}

/// Returns what a claim and a directory mean together.
pub fn standing(dir: Option<State>, claim: Option<&Claim>) -> Standing {
    let Some(claim) = claim else {
        return match dir {
            None => Standing::Unknown,
            Some(State::Active) => Standing::Orphaned,
            Some(state) => Standing::Rests(state),
        };
    };
    let boxed = || Box::new(claim.clone());
    let pending = |to| Standing::Pending { claim: boxed(), to };
    match (claim.phase, dir) {
        (phase, None) if phase.has_ended() => Standing::Unknown,
        (_, None) => Standing::Lost(boxed()),
        (Phase::Active | Phase::Landing, Some(State::Active)) => Standing::Held(boxed()),
        (Phase::Active | Phase::Landing, Some(State::Completed)) => Standing::Merged(boxed()),
        (Phase::Active | Phase::Landing, Some(State::Drafting | State::Planned | State::Abandoned)) => {
            pending(State::Active)
        }
        (Phase::Released, Some(State::Active)) => pending(State::Planned),
        (Phase::Abandoned, Some(State::Active)) => pending(State::Abandoned),
        // The two move together, so that somebody moved the directory back by hand.
        (Phase::Completed, Some(State::Active)) => pending(State::Completed),
        // An ended claim is history: what came after it, the directory says.
        (Phase::Released | Phase::Completed | Phase::Abandoned, Some(state)) => Standing::Rests(state),
    }
}

impl Standing {
    /// Returns the state that everybody is told.
    pub fn state(&self) -> Option<State> {
        match self {
            Self::Unknown => None,
            Self::Rests(state) | Self::Pending { to: state, .. } => Some(*state),
            Self::Held(_) | Self::Orphaned | Self::Lost(_) => Some(State::Active),
            Self::Merged(_) => Some(State::Completed),
        }
    }

    /// Returns the claim of whoever has it now.
    pub fn holder(&self) -> Option<&Claim> {
        match self {
            Self::Held(claim) | Self::Lost(claim) | Self::Pending { claim, .. } => {
                Some(claim).filter(|claim| !claim.phase.has_ended()).map(|claim| &**claim)
            }
            Self::Unknown | Self::Rests(_) | Self::Merged(_) | Self::Orphaned => None,
        }
    }
}

/// What somebody wants with a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Edit,
    Ready,
    Unready,
    Claim,
    /// To write on its branch, renew its lease, amend its plan, land, complete, abandon or release it.
    Own,
    Takeover {
        force: bool,
    },
    Retry,
}

/// Why a verb is not for this session now.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    #[error("there is no work session {0}")]
    NotFound(Slug),
    #[error("{slug} is {state}, and has to be {expected} for that")]
    WrongState { slug: Slug, state: State, expected: &'static str },
    #[error("{told}")]
    Claimed { claim: Box<Claim>, told: String },
    #[error("{0} is not yours any more: {1}")]
    Dispossessed(Slug, String),
    #[error("the lease of {0} lasts until {1}: it is not stale")]
    NotStale(Slug, Timestamp),
    #[error("{0} is shown as active, and nobody has claimed it: somebody removed the claim by hand")]
    Orphaned(Slug),
    #[error("{0} is claimed, and its directory is gone from the base branch")]
    Lost(Slug),
}

/// Decides whether `who` may do this with the session.
pub fn may(verb: Verb, slug: &Slug, standing: &Standing, who: &Owner, now: Timestamp) -> Result<(), Refusal> {
    let wrong = |state: State, expected| Err(Refusal::WrongState { slug: slug.clone(), state, expected });
    let claimed = |claim: &Claim| {
        let told = claim.told(now);
        Err(Refusal::Claimed { claim: Box::new(claim.clone()), told })
    };
    let state = match standing {
        Standing::Unknown => return Err(Refusal::NotFound(slug.clone())),
        Standing::Orphaned => return Err(Refusal::Orphaned(slug.clone())),
        Standing::Lost(_) => return Err(Refusal::Lost(slug.clone())),
        Standing::Held(_) => State::Active,
        Standing::Rests(state) | Standing::Pending { to: state, .. } => *state,
        Standing::Merged(_) => State::Completed,
    };
    let holder = standing.holder();
    match verb {
        Verb::Edit | Verb::Ready | Verb::Unready | Verb::Retry => {
            if let Some(claim) = holder {
                return claimed(claim);
            }
            let (is_right, expected) = match verb {
                Verb::Edit => (state.is_editable(), "drafting or planned"),
                Verb::Ready => (state == State::Drafting, "drafting"),
                Verb::Unready => (state == State::Planned, "planned"),
                _ => (state == State::Abandoned, "abandoned"),
            };
            if is_right { Ok(()) } else { wrong(state, expected) }
        }
        Verb::Claim => match holder {
            // Again by its owner, it goes on where it was.
            Some(claim) if claim.owner.includes(who) => Ok(()),
            Some(claim) => claimed(claim),
            None if state == State::Planned => Ok(()),
            None => wrong(state, "planned"),
        },
        Verb::Own => match holder {
            Some(claim) if claim.owner.includes(who) => Ok(()),
            Some(claim) if claim.owner.clone == who.clone => claimed(claim),
            Some(claim) => Err(Refusal::Dispossessed(slug.clone(), claim.told(now))),
            None => wrong(state, "active, and claimed by you"),
        },
        Verb::Takeover { force } => match holder {
            Some(claim) if force || claim.is_stale(now) => Ok(()),
            Some(claim) => Err(Refusal::NotStale(slug.clone(), claim.lapses_at())),
            None => wrong(state, "active"),
        },
    }
}
