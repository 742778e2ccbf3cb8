//! Random verbs by several owners, each as the pure functions say: may it, and what is it then.
//!
//! `PROPTEST_CASES` says how many walks there are.

use std::sync::atomic::{AtomicI64, Ordering};

use proptest::{prelude::*, test_runner::Config};
use sess_core::Timestamp;
use sess_work::{
    Claim, ClaimOptions, Error, Note, Owner, Phase, Repo, Settings, Slug, State, Verb, Who, Work, Workspace,
    may, standing,
};

use crate::{
    lab::{self, Lab},
    many::{number, planned_many},
};

const OWNERS: usize = 4;
const SLUGS: usize = 2;
const STEPS: usize = 14;
const CASES: usize = 4;

/// How far the clock of all owners is ahead.
static AHEAD_MS: AtomicI64 = AtomicI64::new(0);

fn now() -> Timestamp {
    Timestamp::from_millis_clamped(lab::now().as_millis() + AHEAD_MS.load(Ordering::Relaxed))
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Ready,
    Unready,
    Edit,
    Claim,
    Note,
    Heartbeat,
    Sync,
    Land,
    Release,
    Abandon,
    Complete,
    Takeover {
        force: bool,
    },
    Retry,
    /// Nothing happens for longer than a lease, and than clocks differ.
    Wait,
}

impl Act {
    fn verb(self) -> Option<Verb> {
        Some(match self {
            Self::Ready => Verb::Ready,
            Self::Unready => Verb::Unready,
            Self::Edit => Verb::Edit,
            Self::Claim => Verb::Claim,
            Self::Note | Self::Heartbeat | Self::Sync | Self::Land => Verb::Own,
            Self::Release | Self::Abandon | Self::Complete => Verb::End,
            Self::Takeover { force } => Verb::Takeover { force },
            Self::Retry => Verb::Retry,
            Self::Wait => return None,
        })
    }
}

/// What a session is, as far as the pure functions have to know.
#[derive(Clone, Debug)]
struct Model {
    dir: State,
    claim: Option<Claim>,
}

fn acts() -> impl Strategy<Value = Vec<(usize, usize, Act)>> {
    let act = prop_oneof![
        2 => Just(Act::Ready),
        1 => Just(Act::Unready),
        1 => Just(Act::Edit),
        5 => Just(Act::Claim),
        2 => Just(Act::Note),
        1 => Just(Act::Heartbeat),
        1 => Just(Act::Sync),
        1 => Just(Act::Land),
        2 => Just(Act::Release),
        2 => Just(Act::Abandon),
        2 => Just(Act::Complete),
        2 => any::<bool>().prop_map(|force| Act::Takeover { force }),
        2 => Just(Act::Retry),
        1 => Just(Act::Wait),
    ];
    prop::collection::vec((0..OWNERS, 0..SLUGS, act), 1..=STEPS)
}

/// Two agents and a person in one clone; with a remote, somebody in another.
fn owners(lab: &Lab, has_remote: bool) -> Vec<Work> {
    let one = lab.clone_named("one");
    let two = if has_remote {
        lab.clone_named("two")
    } else {
        lab.git(&one, &["remote", "remove", "origin"]);
        one.clone()
    };
    let caller = |dir: &std::path::Path, session: Option<&str>| {
        let session = session.map(str::to_owned);
        let who = Who { agent: None, session, host: "host".to_owned(), pid: 1 };
        Work::new(Repo::find(dir).expect("a repository"), Settings::default(), who, now).expect("a caller")
    };
    vec![caller(&one, Some("a")), caller(&one, Some("b")), caller(&one, None), caller(&two, Some("d"))]
}

const PLAN: &str = "# X\n\n## Context\n\nc\n\n## Acceptance Criteria\n\n- [ ] It works\n";

fn perform(work: &Work, slug: &Slug, act: Act, step: usize) -> Result<(), Error> {
    let options = ClaimOptions { workspace: Workspace::None, ..ClaimOptions::default() };
    match act {
        Act::Ready => work.ready(slug),
        Act::Unready => work.unready(slug),
        Act::Edit => work.edit(slug, None, &format!("{PLAN}- [ ] and {step}\n")),
        Act::Claim => work.claim(slug, &options).map(drop),
        Act::Note => work.note(slug, Note::Log, &format!("step {step}")).map(drop),
        Act::Heartbeat => work.heartbeat(slug).map(drop),
        Act::Sync => work.sync(slug).map(drop),
        Act::Land => work.land(slug).map(drop),
        Act::Release => work.release(slug, None).map(drop),
        Act::Abandon => work.abandon(slug, "because").map(drop),
        Act::Complete => work.complete(slug, None).map(drop),
        Act::Takeover { force } => work.takeover(slug, force, Some("needed"), &options).map(drop),
        Act::Retry => work.retry(slug).map(drop),
        Act::Wait => Ok(()),
    }
}

/// Says what a session is after a verb that was allowed. `record` is what the claim is then, for its details.
fn after(model: &mut Model, act: Act, owner: &Owner, record: Option<&Claim>) {
    let mut before = model.claim.clone();
    // The first agent that acts for a person has it from then on.
    if let Some(claim) = before.as_mut().filter(|claim| !claim.phase.has_ended()) {
        claim.owner.session = claim.owner.session.take().or_else(|| owner.session.clone());
    }
    let held = before.as_ref().is_some_and(|claim| !claim.phase.has_ended());
    let expect = |phase: Phase, owner: &Owner, fence: u64, attempt: u32| {
        let claim = record.expect("a claim");
        assert_eq!(
            (claim.phase, &claim.owner, claim.fence, claim.attempt),
            (phase, owner, fence, attempt),
            "{act:?}"
        );
        Some(claim.clone())
    };
    match act {
        Act::Ready => model.dir = State::Planned,
        Act::Unready => model.dir = State::Drafting,
        Act::Edit | Act::Wait => {}
        Act::Claim if !held => {
            let (fence, attempt) = before.as_ref().map_or((0, 1), |claim| (claim.fence, claim.attempt));
            model.claim = expect(Phase::Active, owner, fence + 1, attempt);
            model.dir = State::Active;
        }
        Act::Claim | Act::Note | Act::Heartbeat | Act::Sync | Act::Land => {
            let before = before.expect("it is held");
            model.claim = expect(Phase::Active, &before.owner, before.fence, before.attempt);
        }
        Act::Takeover { .. } => {
            let before = before.expect("it is held");
            model.claim = expect(Phase::Active, owner, before.fence + 1, before.attempt);
        }
        Act::Release | Act::Abandon => {
            let before = before.expect("it is held");
            let (phase, dir) = match act {
                Act::Release => (Phase::Released, State::Planned),
                _ => (Phase::Abandoned, State::Abandoned),
            };
            model.claim = expect(phase, &before.owner, before.fence, before.attempt);
            model.dir = dir;
        }
        Act::Complete => {
            assert!(record.is_none(), "an ended claim is archived");
            model.claim = None;
            model.dir = State::Completed;
        }
        Act::Retry => {
            let before = before.expect("it was abandoned");
            model.claim = expect(Phase::Released, &before.owner, before.fence, before.attempt + 1);
            model.dir = State::Planned;
        }
    }
}

fn walk(has_remote: bool, acts: &[(usize, usize, Act)]) -> Result<(), TestCaseError> {
    let lab = Lab::new();
    let slugs = planned_many(&lab, "walk", SLUGS);
    let owners = owners(&lab, has_remote);
    let ids: Vec<Owner> = owners
        .iter()
        .enumerate()
        .map(|(n, work)| Owner {
            clone: std::fs::read_to_string(
                lab.path()
                    .join(if n == 3 && has_remote { "two" } else { "one" })
                    .join(".git/intersession/clone-id"),
            )
            .map(|id| id.trim().to_owned())
            .unwrap_or_else(|error| panic!("{:?}: {error}", work.repo().top())),
            session: [Some("a"), Some("b"), None, Some("d")][n].map(str::to_owned),
        })
        .collect();
    let mut models = vec![Model { dir: State::Planned, claim: None }; SLUGS];
    for (step, (who, which, act)) in acts.iter().copied().enumerate() {
        let (work, slug, model) = (&owners[who], &slugs[which], &mut models[which]);
        let Some(verb) = act.verb() else {
            AHEAD_MS.fetch_add(91 * 60_000, Ordering::Relaxed);
            continue;
        };
        let predicted = may(verb, slug, &standing(Some(model.dir), model.claim.as_ref()), &ids[who], now())
            .map_err(|refusal| Error::from(refusal).kind);
        let performed = perform(work, slug, act, step);
        let told = format!("step {step}: {act:?} of {slug} by {who}: {performed:?}");
        prop_assert_eq!(
            performed.as_ref().map(|_| ()).map_err(|error: &Error| error.kind),
            predicted,
            "{}",
            told
        );
        let seen = work.see().expect("seen");
        if performed.is_ok() {
            after(model, act, &ids[who], seen.record(slug).map(|record| &record.claim));
        }
        // A verb changes its own session alone, and leaves nothing half done.
        for (slug, model) in slugs.iter().zip(&models) {
            prop_assert_eq!(seen.tree.state(slug), Some(model.dir), "{}: {}", told, slug);
            let nonce = |claim: Option<&Claim>| claim.map(|claim| claim.nonce.clone());
            let record = seen.record(slug).map(|record| &record.claim);
            prop_assert_eq!(nonce(record), nonce(model.claim.as_ref()), "{}: {}", told, slug);
        }
        prop_assert!(seen.tree.odd.is_empty() && seen.view.damaged.is_empty(), "{}", told);
    }
    Ok(())
}

#[test]
fn every_verb_does_what_the_pure_functions_say() {
    let cases = u32::try_from(number("PROPTEST_CASES", CASES)).expect("fits");
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 40, ..Config::default() };
    proptest!(config, |(has_remote in any::<bool>(), acts in acts())| walk(has_remote, &acts)?);
}

#[test]
fn a_long_life_is_as_predicted() {
    // Everything that a walk by chance may miss: each owner's turn, a lapse, and an attempt after the other.
    let acts = [
        (0, 0, Act::Claim),
        (1, 0, Act::Note),
        (2, 0, Act::Note),
        (3, 0, Act::Claim),
        (3, 0, Act::Takeover { force: false }),
        (0, 0, Act::Wait),
        (3, 0, Act::Takeover { force: false }),
        (0, 0, Act::Note),
        (3, 0, Act::Note),
        (3, 0, Act::Land),
        (3, 0, Act::Abandon),
        (1, 0, Act::Retry),
        (1, 0, Act::Claim),
        (1, 0, Act::Note),
        (1, 0, Act::Release),
        (3, 0, Act::Claim),
        (3, 0, Act::Sync),
        (3, 0, Act::Complete),
        (3, 0, Act::Complete),
    ];
    walk(true, &acts).expect("as predicted");
}
