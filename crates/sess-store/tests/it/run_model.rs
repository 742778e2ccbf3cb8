//! Random lives of runs beside a model in memory: each is executed once, one at a time,
//! in order of arrival, and only its holder writes.

use std::sync::Arc;

use proptest::prelude::*;
use sess_core::run::{Outcome, RunState};
use sess_store::{Error, NewRun, Position, Store};

use crate::support::{
    Scratch, agent, ask, at, boot, cases, done, follow, id, key, lease, run, run_id, say, told,
};

const NAMES: [&str; 2] = ["a", "b"];
const AGENTS: [&str; 2] = ["main", "other"];
/// How long a lease is.
const TERM: u64 = 10;

#[derive(Clone, Debug)]
enum Op {
    Queue {
        session: usize,
        agent: usize,
        key: Option<u8>,
    },
    Lease {
        session: usize,
        agents: usize,
    },
    /// The `nth` lease that was ever given, held or not.
    Renew {
        nth: usize,
    },
    Append {
        nth: usize,
    },
    End {
        nth: usize,
        state: RunState,
    },
    Cancel {
        nth: usize,
    },
    Abort,
    Wait(u64),
    Restart,
    OtherHandle,
}

fn op() -> impl Strategy<Value = Op> {
    let session = 0..NAMES.len();
    let nth = 0_usize..30;
    let ended = prop::sample::select(RunState::ALL[2..].to_vec());
    prop_oneof![
        6 => (session.clone(), 0..AGENTS.len(), proptest::option::weighted(0.3, 0_u8..4))
            .prop_map(|(session, agent, key)| Op::Queue { session, agent, key }),
        6 => (session, 1_usize..4).prop_map(|(session, agents)| Op::Lease { session, agents }),
        2 => nth.clone().prop_map(|nth| Op::Renew { nth }),
        4 => nth.clone().prop_map(|nth| Op::Append { nth }),
        5 => (nth.clone(), ended).prop_map(|(nth, state)| Op::End { nth, state }),
        2 => nth.prop_map(|nth| Op::Cancel { nth }),
        3 => Just(Op::Abort),
        2 => (1..TERM).prop_map(Op::Wait),
        1 => Just(Op::Restart),
        3 => Just(Op::OtherHandle),
    ]
}

#[derive(Default)]
struct Model {
    /// In order of arrival; their ids count from 1.
    runs: Vec<ModelRun>,
    keys: Vec<(u8, String, u64)>,
    /// Every lease that was ever given: a run, and its token.
    leases: Vec<(u64, String)>,
    spoken: [u64; 2],
    exists: [bool; 2],
    feed: Vec<String>,
    boot: u64,
    now: u64,
}

struct ModelRun {
    session: usize,
    agent: usize,
    state: RunState,
    token: Option<String>,
    /// The boot, and the time in it, at which the lease ends.
    until: (u64, u64),
    is_cancelled: bool,
}

impl Model {
    fn run(&mut self, n: u64) -> &mut ModelRun {
        &mut self.runs[usize::try_from(n).expect("small") - 1]
    }

    fn speak(&mut self, session: usize, text: &str) {
        self.spoken[session] += 1;
        self.feed.push(format!("{} {} {text}", NAMES[session], self.spoken[session]));
    }

    fn tell(&mut self, n: u64, error: &str) {
        let run = self.run(n);
        let (name, agent, state) = (NAMES[run.session], AGENTS[run.agent], run.state);
        self.feed.push(format!("{name} run {n:04x} of {agent} {state} {error}"));
    }

    fn end(&mut self, n: u64, state: RunState, error: &str) {
        let run = self.run(n);
        (run.state, run.token) = (state, None);
        self.tell(n, error);
    }

    /// Returns the run of the `nth` lease and its token, and whether it is held still.
    fn lease(&mut self, nth: usize) -> Option<(u64, String, bool)> {
        let (n, token) = self.leases.get(nth)?.clone();
        let is_held = self.run(n).token.as_ref() == Some(&token);
        Some((n, token, is_held))
    }
}

/// A lease of the present boot.
fn held(model: &Model, token: &str) -> sess_store::Lease {
    let until = boot(&model.boot.to_string(), model.now + TERM);
    sess_store::Lease { until, ..lease(token, 0) }
}

#[track_caller]
fn check<T: std::fmt::Debug>(answer: Result<T, Error>, is_held: bool) {
    match answer {
        Ok(_) => assert!(is_held, "only the holder may"),
        Err(error) => assert!(!is_held && matches!(error, Error::Conflict(_)), "{error}"),
    }
}

async fn perform(store: &dyn Store, model: &mut Model, op: &Op) {
    match *op {
        Op::Queue { session, agent: by, key: request } => {
            let n = model.runs.len() as u64 + 1;
            let fingerprint = format!("{session} {by}");
            let asked = NewRun {
                agent: agent(AGENTS[by]),
                key: request.and_then(|k| key(&format!("k{k}"), &fingerprint)),
                ..ask(n, NAMES[session])
            };
            let answer = store.queue_run(asked).await;
            let known = request.and_then(|k| model.keys.iter().find(|(known, _, _)| *known == k).cloned());
            if let Some((k, first, queued)) = known {
                match answer {
                    Ok(run) => assert_eq!((first, run.id), (fingerprint, run_id(queued))),
                    Err(error) => assert_eq!(error, Error::KeyReused(format!("k{k}"))),
                }
                return;
            }
            assert_eq!(answer.expect("queued").id, run_id(n));
            model.keys.extend(request.map(|k| (k, fingerprint, n)));
            let name = NAMES[session];
            if !std::mem::replace(&mut model.exists[session], true) {
                model.feed.push(format!("{name} created as agent:main:chat:{name}"));
            }
            model.runs.push(ModelRun {
                session,
                agent: by,
                state: RunState::Queued,
                token: None,
                until: (0, 0),
                is_cancelled: false,
            });
            model.tell(n, "-");
        }
        Op::Lease { session, agents } => {
            // Bits of `agents` say which ones this node has.
            let has = |by: usize| agents & (1 << by) != 0;
            let names: Vec<_> = (0..AGENTS.len()).filter(|by| has(*by)).map(|by| agent(AGENTS[by])).collect();
            let token = format!("token-{}", model.leases.len());
            let lease = held(model, &token);
            let leased = store.lease_run(&id(NAMES[session]), &names, lease, at(5)).await.expect("an answer");
            let mut of_session = (1_u64..).zip(&model.runs).filter(|(_, run)| run.session == session);
            let is_busy = of_session.clone().any(|(_, run)| run.state == RunState::Running);
            let oldest = of_session.find(|(_, run)| run.state == RunState::Queued);
            let expected = oldest.filter(|(_, run)| !is_busy && has(run.agent)).map(|(n, _)| n);
            assert_eq!(leased.map(|run| run.id), expected.map(run_id));
            if let Some(n) = expected {
                let until = (model.boot, model.now + TERM);
                let run = model.run(n);
                (run.state, run.token, run.until) = (RunState::Running, Some(token.clone()), until);
                model.speak(session, &format!("ask {n}"));
                model.leases.push((n, token));
                model.tell(n, "-");
            }
        }
        Op::Renew { nth } => {
            let Some((n, token, is_held)) = model.lease(nth) else { return };
            let lease = held(model, &token);
            let answer = store.renew_run(&run_id(n), &lease).await;
            let until = (model.boot, model.now + TERM);
            if is_held {
                let run = model.run(n);
                run.until = until;
                assert_eq!(answer.as_ref().map(|renewed| renewed.is_cancelled), Ok(run.is_cancelled));
            }
            check(answer, is_held);
        }
        Op::Append { nth } => {
            let Some((n, token, is_held)) = model.lease(nth) else { return };
            let messages = vec![say("step"), say("result")];
            check(store.append_in_run(&run_id(n), &held(model, &token), messages).await, is_held);
            if is_held {
                let session = model.run(n).session;
                model.speak(session, "step");
                model.speak(session, "result");
            }
        }
        Op::End { nth, state } => {
            let Some((n, token, is_held)) = model.lease(nth) else { return };
            let outcome = Outcome { state, error: Some("why".to_owned()), ..done(&format!("result {n}")) };
            let lease = held(model, &token);
            check(store.end_run(&run_id(n), &lease, vec![say("last")], outcome, at(9)).await, is_held);
            if is_held {
                let session = model.run(n).session;
                model.speak(session, "last");
                model.end(n, state, "why");
            }
        }
        Op::Cancel { nth } => {
            let n = nth as u64 + 1;
            let answer = store.cancel_run(&run_id(n), at(9)).await;
            if nth >= model.runs.len() {
                assert_eq!(answer, Err(Error::NoRun(run_id(n))));
                return;
            }
            match model.run(n).state {
                RunState::Queued => {
                    model.run(n).is_cancelled = true;
                    model.end(n, RunState::Cancelled, "-");
                }
                RunState::Running => model.run(n).is_cancelled = true,
                _ => {}
            }
            let run = answer.expect("an answer");
            assert_eq!((run.state, run.is_cancelled), (model.run(n).state, model.run(n).is_cancelled));
        }
        Op::Abort => {
            let now = boot(&model.boot.to_string(), model.now);
            let aborted = store.abort_lapsed_runs(&now, at(8)).await.expect("an answer");
            let present = (model.boot, model.now);
            let lapsed = |run: &ModelRun| run.until.0 != present.0 || run.until.1 <= present.1;
            let expected: Vec<u64> = (1..)
                .zip(&model.runs)
                .filter(|(_, run)| run.state == RunState::Running && lapsed(run))
                .map(|(n, _)| n)
                .collect();
            let ids: Vec<_> = aborted.into_iter().map(|run| run.id).collect();
            assert_eq!(ids, expected.iter().map(|n| run_id(*n)).collect::<Vec<_>>());
            for n in expected {
                model.end(n, RunState::Aborted, "its node died or stopped answering");
            }
        }
        Op::Wait(time) => model.now += time,
        Op::Restart => (model.boot, model.now) = (model.boot + 1, 0),
        Op::OtherHandle => {}
    }
}

async fn compare(store: &dyn Store, model: &Model) {
    let feed: Vec<String> = follow(store, Position(0), 7).await.iter().map(told).collect();
    assert_eq!(feed, model.feed, "each event once, in order");
    let mut stored = store.runs(None, 1_000).await.expect("read");
    stored.reverse();
    assert_eq!(stored.len(), model.runs.len(), "none is lost");
    for ((run, expected), n) in stored.iter().zip(&model.runs).zip(1..) {
        assert_eq!(store.run(&run_id(n)).await, Ok(Some(run.clone())));
        assert_eq!((run.id.clone(), run.session.clone()), (run_id(n), id(NAMES[expected.session])));
        assert_eq!((run.state, run.is_cancelled), (expected.state, expected.is_cancelled));
        assert_eq!(run.ended_at.is_some(), run.state.has_ended());
    }
    for (session, name) in NAMES.iter().enumerate() {
        let mut running = model.runs.iter().filter(|run| run.session == session && run.token.is_some());
        let expected = running.next().map(|run| boot(&run.until.0.to_string(), run.until.1));
        assert!(running.next().is_none(), "one at a time");
        assert_eq!(store.running_until(&id(name)).await, Ok(expected));
    }
}

#[test]
fn runs_live_like_their_model_across_handles_and_boots() {
    let config = ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(ops in prop::collection::vec(op(), 1..60))| {
        let scratch = Scratch::new();
        run(async {
            let handles: [Arc<dyn Store>; 2] = [scratch.open(), scratch.open()];
            let (mut current, mut model) = (0, Model::default());
            for op in &ops {
                if matches!(op, Op::OtherHandle) {
                    current = 1 - current;
                }
                perform(&*handles[current], &mut model, op).await;
            }
            compare(&*handles[0], &model).await;
            compare(&*handles[1], &model).await;
            drop(handles);
            compare(&*scratch.open(), &model).await;
        });
        let health = sess_store::health(scratch.path()).expect("readable");
        assert_eq!(health.damage, Vec::<String>::new());
    });
}
