//! Random lives of runs beside a model in memory: each is executed once, one at a time,
//! in order of arrival, and only its holder writes.

use std::sync::Arc;

use proptest::prelude::*;
use sess_core::run::{Errand, Lineage, Outcome, RunState};
use sess_store::{Cap, Error, Full, NewRun, Position, Seat, Step, Store};

use crate::support::{
    Scratch, agent, ask, at, boot, cases, chat, done, follow, hosted, id, key, lease, run, run_id, say, send,
    told,
};

/// The last one is run by another program.
const NAMES: [&str; 3] = ["a", "b", "host"];
const HOST: usize = 2;
const NODES: [&str; 2] = ["one", "two"];
/// How many runs that another session sent may wait.
const QUEUE_MAX: u32 = 4;
const AGENTS: [&str; 2] = ["main", "other"];
/// How long a lease is.
const TERM: u64 = 10;

#[derive(Clone, Debug)]
enum Op {
    Queue {
        session: usize,
        agent: usize,
        key: Option<u8>,
        /// Sent by another session, at most [`QUEUE_MAX`] at a time.
        is_sent: bool,
    },
    Lease {
        session: usize,
        agents: usize,
        node: usize,
    },
    /// The `nth` lease that was ever given, held or not.
    Renew {
        nth: usize,
    },
    Append {
        nth: usize,
    },
    Begin {
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
    StopWaiting {
        nth: usize,
    },
    /// Settles the oldest unsettled run by queueing another one in the session `next`.
    Settle {
        next: usize,
    },
    OpenInbox,
    Reply {
        nth: usize,
    },
    Sit {
        session: usize,
        node: usize,
        is_lapsed: bool,
    },
    StandUp {
        session: usize,
        node: usize,
    },
    Wait(u64),
    Restart,
    OtherHandle,
}

fn op() -> impl Strategy<Value = Op> {
    let session = 0..NAMES.len();
    let node = 0..NODES.len();
    let nth = 0_usize..30;
    let ended = prop::sample::select(RunState::ALL[2..].to_vec());
    prop_oneof![
        6 => (session.clone(), 0..AGENTS.len(), proptest::option::weighted(0.3, 0_u8..4), any::<bool>())
            .prop_map(|(session, agent, key, is_sent)| Op::Queue { session, agent, key, is_sent }),
        6 => (session.clone(), 1_usize..4, node.clone())
            .prop_map(|(session, agents, node)| Op::Lease { session, agents, node }),
        2 => nth.clone().prop_map(|nth| Op::Begin { nth }),
        1 => nth.clone().prop_map(|nth| Op::StopWaiting { nth }),
        3 => session.clone().prop_map(|next| Op::Settle { next }),
        2 => Just(Op::OpenInbox),
        2 => nth.clone().prop_map(|nth| Op::Reply { nth }),
        1 => (session.clone(), node.clone(), any::<bool>())
            .prop_map(|(session, node, is_lapsed)| Op::Sit { session, node, is_lapsed }),
        1 => (session, node).prop_map(|(session, node)| Op::StandUp { session, node }),
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
    spoken: [u64; 3],
    exists: [bool; 3],
    /// Who sits where, unless the lease is over.
    seats: [Option<usize>; 3],
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
    is_begun: bool,
    is_sent: bool,
    is_awaited: bool,
    is_asked: bool,
    is_handed_over: bool,
    is_settled: bool,
    attempts: u32,
    root: u64,
}

impl Model {
    fn queue(&mut self, session: usize, agent: usize, is_sent: bool, root: Option<u64>) {
        let name = NAMES[session];
        if !std::mem::replace(&mut self.exists[session], true) {
            self.feed.push(format!("{name} created as agent:main:chat:{name}"));
        }
        let n = self.runs.len() as u64 + 1;
        self.runs.push(ModelRun {
            session,
            agent,
            state: RunState::Queued,
            token: None,
            until: (0, 0),
            is_cancelled: false,
            is_begun: false,
            is_sent,
            is_awaited: is_sent,
            is_asked: false,
            is_handed_over: false,
            is_settled: true,
            attempts: 0,
            root: root.unwrap_or(n),
        });
        self.tell(n, "-");
    }

    /// Returns the runs that wait in a session, in order of arrival.
    fn queued(&self, session: usize) -> Vec<u64> {
        let all = (1_u64..).zip(&self.runs);
        all.filter(|(_, run)| run.session == session && run.state == RunState::Queued)
            .map(|(n, _)| n)
            .collect()
    }

    /// Returns the run that `node` would execute next.
    fn due(&self, session: usize, agents: usize, node: usize) -> Option<u64> {
        let is_busy = self.runs.iter().any(|run| run.session == session && run.state == RunState::Running);
        let is_free = !is_busy && session != HOST && self.seats[session].is_none_or(|seat| seat == node);
        let oldest = self.queued(session).first().copied().filter(|_| is_free)?;
        let agent = self.runs[usize::try_from(oldest).expect("small") - 1].agent;
        (agents & (1 << agent) != 0).then_some(oldest)
    }

    fn hand_over(&mut self, n: u64) {
        if !std::mem::replace(&mut self.run(n).is_handed_over, true) {
            let session = self.run(n).session;
            self.speak(session, &format!("ask {n}"));
        }
    }

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
        run.is_settled = !run.is_sent;
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
        Op::Queue { session, agent: by, key: request, is_sent } => {
            let n = model.runs.len() as u64 + 1;
            let fingerprint = format!("{session} {by}");
            let asked = NewRun {
                agent: agent(AGENTS[by]),
                key: request.and_then(|k| key(&format!("k{k}"), &fingerprint)),
                errand: if is_sent { send("c") } else { Errand::Message },
                caps: if is_sent { vec![Cap::Queue { most: QUEUE_MAX }] } else { vec![] },
                session: if session == HOST { hosted(NAMES[session]) } else { chat(NAMES[session]) },
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
            let waiting = u32::try_from(model.queued(session).len()).expect("few");
            if is_sent && waiting >= QUEUE_MAX {
                let full = Full::Queue { waiting, most: QUEUE_MAX };
                assert_eq!(answer, Err(Error::Full(full)));
                return;
            }
            assert_eq!(answer.expect("queued").id, run_id(n));
            model.keys.extend(request.map(|k| (k, fingerprint, n)));
            model.queue(session, by, is_sent, None);
        }
        Op::Lease { session, agents, node } => {
            // Bits of `agents` say which ones this node has.
            let has = |by: usize| agents & (1 << by) != 0;
            let names: Vec<_> = (0..AGENTS.len()).filter(|by| has(*by)).map(|by| agent(AGENTS[by])).collect();
            let mut expected: Vec<u64> =
                (0..NAMES.len()).filter_map(|session| model.due(session, agents, node)).collect();
            expected.sort_by_key(|n| {
                let session = model.run(*n).session;
                let queued = model.queued(session);
                queued.into_iter().find(|n| has(model.run(*n).agent))
            });
            let expected: Vec<_> = expected.into_iter().map(|n| id(NAMES[model.run(n).session])).collect();
            assert_eq!(store.due_sessions(&names, NODES[node], None, 9).await, Ok(expected));
            let token = format!("token-{}", model.leases.len());
            let lease = sess_store::Lease { node: NODES[node].to_owned(), ..held(model, &token) };
            let leased = store.lease_run(&id(NAMES[session]), &names, lease, at(5)).await.expect("an answer");
            let expected = model.due(session, agents, node);
            assert_eq!(leased.map(|run| run.id), expected.map(run_id));
            if let Some(n) = expected {
                let until = (model.boot, model.now + TERM);
                let run = model.run(n);
                (run.state, run.token, run.until) = (RunState::Running, Some(token.clone()), until);
                // What was queued again has its request in the transcript already.
                if !std::mem::replace(&mut run.is_asked, true) {
                    model.speak(session, &format!("ask {n}"));
                }
                model.leases.push((n, token));
                model.tell(n, "-");
            }
        }
        Op::Begin { nth } => {
            let Some((n, token, is_held)) = model.lease(nth) else { return };
            check(store.begin_run(&run_id(n), &held(model, &token)).await, is_held);
            if is_held {
                model.run(n).is_begun = true;
            }
        }
        Op::StopWaiting { nth } => {
            if nth >= model.runs.len() {
                return;
            }
            let answer = store.stop_waiting(&run_id(nth as u64 + 1)).await.expect("an answer");
            let run = &mut model.runs[nth];
            assert_eq!(answer.state, run.state);
            run.is_awaited &= run.state.has_ended();
        }
        Op::Settle { next } => {
            let unsettled: Vec<u64> =
                (1..).zip(&model.runs).filter(|(_, run)| !run.is_settled).map(|(n, _)| n).collect();
            let found = store.unsettled_runs(99).await.expect("read");
            let found: Vec<_> = found.into_iter().map(|run| run.id).collect();
            assert_eq!(found, unsettled.iter().map(|n| run_id(*n)).collect::<Vec<_>>());
            let Some(&n) = unsettled.first() else { return };
            let (root, new) = (model.run(n).root, model.runs.len() as u64 + 1);
            let asked = NewRun {
                session: if next == HOST { hosted(NAMES[next]) } else { chat(NAMES[next]) },
                lineage: Lineage { root: run_id(root), parent: Some(run_id(n)), hops: 1 },
                ..ask(new, NAMES[next])
            };
            for is_first in [true, false] {
                let steps = vec![Step::Queue(Box::new(asked.clone()))];
                assert_eq!(store.settle_run(&run_id(n), steps, at(7)).await, Ok(is_first), "once");
            }
            model.run(n).is_settled = true;
            model.queue(next, 0, false, Some(root));
        }
        Op::OpenInbox => {
            let items = store.open_inbox(&id(NAMES[HOST]), 3, at(6)).await.expect("an answer");
            let expected: Vec<u64> = model.queued(HOST).into_iter().take(3).collect();
            let found: Vec<_> =
                items.iter().map(|item| (item.run.id.clone(), item.message.clone())).collect();
            let wanted: Vec<_> = expected.iter().map(|n| (run_id(*n), format!("ask {n}"))).collect();
            assert_eq!(found, wanted, "handed out until it is answered");
            for n in expected {
                model.hand_over(n);
            }
        }
        Op::Reply { nth } => {
            if nth >= model.runs.len() {
                return;
            }
            let n = nth as u64 + 1;
            let answer = store.reply_to(&run_id(n), &id(NAMES[HOST]), say("reply"), at(7)).await;
            if model.run(n).session != HOST {
                assert_eq!(answer, Err(Error::NoRun(run_id(n))));
                return;
            }
            let is_open = model.run(n).state == RunState::Queued;
            check(answer, is_open);
            if is_open {
                model.hand_over(n);
                model.speak(HOST, "reply");
                model.end(n, RunState::Done, "-");
            }
        }
        Op::Sit { session, node, is_lapsed } => {
            let now = sess_store::boot_time().expect("a boot time");
            let until = if is_lapsed { boot("an earlier boot", 1) } else { now.plus(3_600_000) };
            let process = sess_store::this_process().expect("this process");
            let seat = Seat { node: NODES[node].to_owned(), until, process };
            let answer = store.sit(&id(NAMES[session]), seat).await;
            if !model.exists[session] {
                assert_eq!(answer, Err(Error::NoSession(id(NAMES[session]))));
                return;
            }
            let is_free = model.seats[session].is_none_or(|seat| seat == node);
            check(answer, is_free);
            if is_free {
                model.seats[session] = (!is_lapsed).then_some(node);
            }
        }
        Op::StandUp { session, node } => {
            store.stand_up(&id(NAMES[session]), NODES[node]).await.expect("an answer");
            if model.seats[session] == Some(node) {
                model.seats[session] = None;
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
                model.run(n).is_begun = true;
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
            let aborted = store.settle_lapsed_runs(&now, at(8)).await.expect("an answer");
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
                let run = model.run(n);
                if run.is_begun || run.attempts >= 3 {
                    model.end(n, RunState::Aborted, "its node died or stopped answering");
                } else if run.is_cancelled {
                    model.end(n, RunState::Cancelled, "-");
                } else {
                    run.attempts += 1;
                    (run.state, run.token) = (RunState::Queued, None);
                    model.tell(n, "-");
                }
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
        assert_eq!(run.lineage.root, run_id(expected.root));
        assert_eq!(run.handed_over_at.is_some(), expected.is_handed_over);
        let is_awaited = matches!(&run.errand, Errand::Send(send) if send.awaited_by.is_some());
        assert_eq!(is_awaited, expected.is_awaited);
        let below = store.runs_below(&run_id(n), 1_000).await.expect("read");
        let tree =
            (1_u64..).zip(&model.runs).filter(|(m, run)| run.root == n || *m == n).map(|(m, _)| run_id(m));
        assert_eq!(below.into_iter().map(|run| run.id).collect::<Vec<_>>(), tree.collect::<Vec<_>>());
    }
    for (session, name) in NAMES.iter().enumerate() {
        let seat = store.seat(&id(name)).await.expect("read").map(|seat| seat.node);
        assert_eq!(seat, model.seats[session].map(|node| NODES[node].to_owned()));
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
