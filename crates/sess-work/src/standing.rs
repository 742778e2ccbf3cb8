//! What a claim and a directory mean together, and what each verb may do then.
//!
//! The claim is a ref and the directory is on the base branch: they cannot change in one step everywhere, so every
//! pair of them has one meaning, and a pair that is half done says where it leads.

use sess_core::Timestamp;

use crate::{Claim, Oid, Owner, Phase, Slug, State};

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
        (Phase::Landing, Some(State::Completed)) => Standing::Merged(boxed()),
        // What was offered to others may be merged when somebody works on it again: it has landed then.
        (Phase::Active, Some(State::Completed)) if claim.offered => Standing::Merged(boxed()),
        // Its directory moves with the merge, and not before: that would be in the way of it.
        (Phase::Landing, Some(_)) | (Phase::Active, Some(State::Active)) => Standing::Held(boxed()),
        // Work that lands takes its claim with it: what is shown as completed all the same was moved by hand.
        (Phase::Active, Some(State::Drafting | State::Planned | State::Completed | State::Abandoned)) => {
            pending(State::Active)
        }
        (Phase::Released, Some(State::Active)) => pending(State::Planned),
        // Planning it anew ends the abandoned attempt's claim, too: until then the directory has to follow.
        (Phase::Abandoned, Some(State::Drafting | State::Planned | State::Active)) => {
            pending(State::Abandoned)
        }
        // The two move together, so that somebody moved the directory back by hand.
        (Phase::Completed, Some(State::Active)) => pending(State::Completed),
        // An ended claim is history: what came after it, the directory says.
        (Phase::Released | Phase::Completed | Phase::Abandoned, Some(state)) => Standing::Rests(state),
    }
}

/// Whether a directory is neither what was claimed nor what a claim made of it. The claim came too late, then, or
/// somebody moved the directory by hand, or the two were read while both moved.
pub(crate) fn is_contradicted(dir: Option<State>, plan: Option<&Oid>, claim: &Claim) -> bool {
    let is_apart = match standing(dir, Some(claim)) {
        Standing::Pending { to, .. } => to == State::Active,
        Standing::Lost(_) => true,
        Standing::Unknown
        | Standing::Rests(_)
        | Standing::Held(_)
        | Standing::Merged(_)
        | Standing::Orphaned => false,
    };
    is_apart && (dir != Some(State::Planned) || plan != Some(&claim.plan))
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
    /// To write on its branch, renew its lease, amend its plan or land what there is.
    Own,
    /// To complete, abandon or release it, or to work in its workspace towards that.
    End,
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
    #[error("{0} is yours, and its plan is frozen while you work by it: amending it says why")]
    Frozen(Slug),
    #[error("{told}")]
    Claimed { slug: Slug, told: String, is_stale: bool },
    /// Only the chain of claims tells it from [`Self::Claimed`].
    #[error("{0} is not yours any more: {1}")]
    Dispossessed(Slug, String),
    #[error("the lease of {0} lasts until {1}: it is not stale")]
    NotStale(Slug, Timestamp),
    #[error("{told}: completing it again replaces what waits, releasing or abandoning it takes that back")]
    Waits { slug: Slug, told: String },
    #[error("{told}: nobody has to go on with it")]
    NotLeft { slug: Slug, told: String },
    #[error("{0} is shown as active, and nobody has claimed it: somebody removed the claim by hand")]
    Orphaned(Slug),
    #[error("{0} is claimed, and its directory is gone from the base branch")]
    Lost(Slug),
}

/// Decides whether `who` may do this with the session.
pub fn may(verb: Verb, slug: &Slug, standing: &Standing, who: &Owner, now: Timestamp) -> Result<(), Refusal> {
    let wrong = |state: State, expected| Err(Refusal::WrongState { slug: slug.clone(), state, expected });
    let claimed = |claim: &Claim| {
        Err(Refusal::Claimed { slug: slug.clone(), told: claim.told(now), is_stale: claim.is_stale(now) })
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
            match holder {
                Some(claim) if !claim.owner.includes(who) => return claimed(claim),
                Some(_) if verb == Verb::Edit => return Err(Refusal::Frozen(slug.clone())),
                _ => {}
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
        Verb::Own | Verb::End => match holder {
            Some(claim) if claim.owner.includes(who) && claim.waits() && verb == Verb::Own => {
                Err(Refusal::Waits { slug: slug.clone(), told: claim.told(now) })
            }
            Some(claim) if claim.owner.includes(who) => Ok(()),
            Some(claim) => claimed(claim),
            None => wrong(state, "active, and claimed by you"),
        },
        Verb::Takeover { force } => match holder {
            Some(claim) if force || claim.is_stale(now) => Ok(()),
            Some(claim) if claim.waits() => {
                Err(Refusal::NotLeft { slug: slug.clone(), told: claim.told(now) })
            }
            Some(claim) => Err(Refusal::NotStale(slug.clone(), claim.lapses_at())),
            None => wrong(state, "active"),
        },
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_millis_clamped(minutes * 60_000)
    }

    fn slug() -> Slug {
        "2025-10-14-x".parse().expect("a slug")
    }

    fn owner(clone: &str, session: Option<&str>) -> Owner {
        Owner { clone: clone.to_owned(), session: session.map(str::to_owned) }
    }

    /// A claim of the agent `one` in the clone `ann`, for half an hour.
    pub(crate) fn claim(phase: Phase) -> Claim {
        let oid: Oid = "0".repeat(40).parse().expect("an object");
        Claim {
            slug: slug(),
            phase,
            owner: owner("ann", Some("one")),
            user: crate::User { name: "Ann".to_owned(), email: String::new() },
            agent: None,
            host: "host".to_owned(),
            pid: 1,
            base: "main".to_owned(),
            base_commit: oid.clone(),
            branch: slug().branch(),
            plan: oid,
            amendments: Vec::new(),
            fence: 1,
            attempt: 1,
            lease_seconds: 30 * 60,
            claimed_at: at(0),
            renewed_at: at(0),
            nonce: String::new(),
            reason: None,
            landed: None,
            offered: phase == Phase::Landing,
            unknown: serde_json::Map::new(),
        }
    }

    fn told(standing: &Standing) -> String {
        match standing {
            Standing::Unknown => "unknown".to_owned(),
            Standing::Rests(state) => format!("rests {state}"),
            Standing::Held(_) => "held".to_owned(),
            Standing::Pending { to, .. } => format!("pending {to}"),
            Standing::Merged(_) => "merged".to_owned(),
            Standing::Orphaned => "orphaned".to_owned(),
            Standing::Lost(_) => "lost".to_owned(),
        }
    }

    const DIRS: [Option<State>; 6] = [
        None,
        Some(State::Drafting),
        Some(State::Planned),
        Some(State::Active),
        Some(State::Completed),
        Some(State::Abandoned),
    ];
    const PHASES: [Option<Phase>; 6] = [
        None,
        Some(Phase::Active),
        Some(Phase::Landing),
        Some(Phase::Released),
        Some(Phase::Completed),
        Some(Phase::Abandoned),
    ];

    #[test]
    fn a_directory_contradicts_a_claim_when_it_or_its_plan_is_another() {
        let own: Oid = "0".repeat(40).parse().expect("an object");
        let other: Oid = "1".repeat(40).parse().expect("an object");
        let contradict = |claim: &Claim, plan: &Oid| -> Vec<Option<State>> {
            DIRS.into_iter().filter(|dir| is_contradicted(*dir, Some(plan), claim)).collect()
        };
        let active = claim(Phase::Active);
        let [drafting, planned, completed, abandoned] =
            [State::Drafting, State::Planned, State::Completed, State::Abandoned].map(Some);
        assert_eq!(contradict(&active, &own), [None, drafting, completed, abandoned]);
        assert_eq!(contradict(&active, &other), [None, drafting, planned, completed, abandoned]);
        for phase in [Phase::Released, Phase::Completed, Phase::Abandoned] {
            assert_eq!(contradict(&claim(phase), &other), [], "{phase:?}");
        }
        assert_eq!(
            contradict(&claim(Phase::Landing), &other),
            [None],
            "its directory moves when it is merged"
        );
    }

    #[test]
    fn every_claim_and_directory_have_one_meaning() {
        // A row a directory (none, drafting, planned, active, completed, abandoned), a column a phase (none, active,
        // landing, released, completed, abandoned).
        const TABLE: [[&str; 6]; 6] = [
            ["unknown", "lost", "lost", "unknown", "unknown", "unknown"],
            [
                "rests drafting",
                "pending active",
                "held",
                "rests drafting",
                "rests drafting",
                "pending abandoned",
            ],
            [
                "rests planned",
                "pending active",
                "held",
                "rests planned",
                "rests planned",
                "pending abandoned",
            ],
            ["orphaned", "held", "held", "pending planned", "pending completed", "pending abandoned"],
            [
                "rests completed",
                "pending active",
                "merged",
                "rests completed",
                "rests completed",
                "rests completed",
            ],
            [
                "rests abandoned",
                "pending active",
                "held",
                "rests abandoned",
                "rests abandoned",
                "rests abandoned",
            ],
        ];
        for (dir, row) in DIRS.into_iter().zip(TABLE) {
            for (phase, meaning) in PHASES.into_iter().zip(row) {
                let claim = phase.map(claim);
                assert_eq!(told(&standing(dir, claim.as_ref())), meaning, "{dir:?} and {phase:?}");
            }
        }
    }

    fn answer(verb: Verb, standing: &Standing, who: &Owner, now: Timestamp) -> &'static str {
        match may(verb, &slug(), standing, who, now) {
            Ok(()) => "yes",
            Err(Refusal::NotFound(_)) => "not found",
            Err(Refusal::WrongState { .. }) => "state",
            Err(Refusal::Frozen(_)) => "frozen",
            Err(Refusal::Claimed { .. }) => "claimed",
            Err(Refusal::Dispossessed(..)) => "lost it",
            Err(Refusal::NotStale(..)) => "not stale",
            Err(Refusal::Waits { .. }) => "waits",
            Err(Refusal::NotLeft { .. }) => "not left",
            Err(Refusal::Orphaned(_)) => "orphaned",
            Err(Refusal::Lost(_)) => "lost",
        }
    }

    const VERBS: [Verb; 9] = [
        Verb::Edit,
        Verb::Ready,
        Verb::Unready,
        Verb::Claim,
        Verb::Own,
        Verb::End,
        Verb::Takeover { force: false },
        Verb::Takeover { force: true },
        Verb::Retry,
    ];

    #[test]
    fn every_verb_has_its_answer_in_every_standing() {
        // Edit, ready, unready, claim, own, end, takeover, forced takeover, retry: by the owner, by another agent of
        // the same clone, and by another clone, while the lease lasts.
        let free = |answers: [&'static str; 9]| [answers, answers, answers];
        let all = |answer: &'static str| free([answer; 9]);
        let (no, yes, held) = ("state", "yes", "claimed");
        let others = [held, held, held, held, held, held, "not stale", yes, held];
        let active = [["frozen", no, no, yes, yes, yes, "not stale", yes, no], others, others];
        let others = [held, held, held, held, held, held, "not left", yes, held];
        let landing = [["frozen", no, no, yes, "waits", yes, "not left", yes, no], others, others];
        let drafting = free([yes, yes, no, no, no, no, no, no, no]);
        let planned = free([yes, no, yes, yes, no, no, no, no, no]);
        let completed = free([no; 9]);
        let abandoned = free([no, no, no, no, no, no, no, no, yes]);
        let who = [owner("ann", Some("one")), owner("ann", Some("two")), owner("bob", Some("one"))];
        for dir in DIRS {
            for phase in PHASES {
                let claim = phase.map(claim);
                let standing = standing(dir, claim.as_ref());
                let table = match told(&standing).as_str() {
                    "unknown" => all("not found"),
                    "orphaned" => all("orphaned"),
                    "lost" => all("lost"),
                    "held" if phase == Some(Phase::Landing) => landing,
                    "held" | "pending active" => active,
                    "rests drafting" => drafting,
                    "rests planned" | "pending planned" => planned,
                    "rests completed" | "pending completed" | "merged" => completed,
                    "rests abandoned" | "pending abandoned" => abandoned,
                    other => panic!("{other} is not in the table"),
                };
                for (who, row) in who.iter().zip(table) {
                    for (verb, expected) in VERBS.into_iter().zip(row) {
                        let given = answer(verb, &standing, who, at(1));
                        assert_eq!(given, expected, "{verb:?} of {who:?} with {dir:?} and {phase:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_was_offered_has_landed_when_it_is_merged_whoever_has_it_by_then() {
        let mut taken = claim(Phase::Active);
        assert_eq!(told(&standing(Some(State::Completed), Some(&taken))), "pending active");
        taken.offered = true;
        assert_eq!(told(&standing(Some(State::Completed), Some(&taken))), "merged");
        assert_eq!(told(&standing(Some(State::Planned), Some(&taken))), "pending active");
    }

    #[test]
    fn what_waits_to_be_merged_does_not_lapse() {
        let standing = standing(Some(State::Active), Some(&claim(Phase::Landing)));
        let (ann, bob) = (owner("ann", Some("one")), owner("bob", None));
        assert_eq!(answer(Verb::Takeover { force: false }, &standing, &bob, at(600)), "not left");
        assert_eq!(answer(Verb::Takeover { force: true }, &standing, &bob, at(600)), "yes");
        assert_eq!(answer(Verb::Own, &standing, &ann, at(600)), "waits");
        assert_eq!(answer(Verb::End, &standing, &ann, at(600)), "yes");
    }

    #[test]
    fn a_lapsed_lease_lets_others_take_it_and_its_owner_go_on() {
        let standing = standing(Some(State::Active), Some(&claim(Phase::Active)));
        let bob = owner("bob", None);
        let takeover = Verb::Takeover { force: false };
        assert_eq!(answer(takeover, &standing, &bob, at(29)), "not stale");
        assert_eq!(answer(takeover, &standing, &bob, at(30)), "yes");
        // Stale is not free.
        assert_eq!(answer(Verb::Claim, &standing, &bob, at(600)), "claimed");
        // The person at the terminal of the clone may act for its agents, and nobody says that it is another.
        for who in [owner("ann", Some("one")), owner("ann", None)] {
            assert_eq!(answer(Verb::Own, &standing, &who, at(600)), "yes");
        }
    }
}
