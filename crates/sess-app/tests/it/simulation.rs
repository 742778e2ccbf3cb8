//! Several nodes on one store, killed at random: nothing is lost, and nothing done twice.
//!
//! `SESS_SIM_SEEDS` says how many seeds are tried.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use sess_app::SpawnTask;
use sess_core::{
    RunId, SessionId,
    message::Role,
    run::{Errand, Run, RunState},
};
use sess_store::{Span, Store};
use tokio::task::JoinSet;

use crate::stage::{Act, Asked, AtWork, Stage, caller_of, has_ended, main_of, node, say, send, world};

const SEEDS: u64 = 40;
/// How many seeds are tried at a time.
const AT_ONCE: usize = 4;
const LEASE_MS: u64 = 150;

/// Random numbers that a seed gives again (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % most
    }

    fn pick<'a>(&mut self, names: &[&'a str]) -> &'a str {
        names[self.below(names.len() as u64) as usize]
    }
}

fn act(asked: &Asked) -> Act {
    let sum = asked.last.bytes().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
    match sum % 11 {
        0 => Act::Fail("out of luck".to_owned()),
        1 => say("REPLY_SKIP"),
        2 => say(""),
        n => Act::Later(Duration::from_millis(n * 2), format!("{} heard {sum:x}", asked.agent)),
    }
}

async fn simulate(seed: u64) {
    let mut dice = Dice(seed);
    let world = world(|rules| rules.limits.children = 100);
    let (store, stage) = (world.store(), Stage::new(act));
    let start = || AtWork::new(&node(&world.other_process(), &stage, LEASE_MS));
    let mut nodes = vec![start(), start(), start()];
    for n in 0..8 + dice.below(8) {
        match dice.below(4) {
            0 | 1 => {
                let from = dice.pick(&["a", "b", "c"]);
                let to = dice.pick(&["a", "b", "c"]);
                if from != to {
                    let (from, to) = (main_of(&*store, from).await, main_of(&*store, to).await);
                    let (rounds, is_awaited) = (dice.below(4) as u8, dice.below(2) == 0);
                    send(&*store, &from, &to, &format!("message {seed} {n}"), rounds, is_awaited).await;
                }
            }
            2 => {
                let from = main_of(&*store, dice.pick(&["a", "b"])).await;
                let ask = SpawnTask {
                    task: format!("task {seed} {n}"),
                    cleanup: (dice.below(2) == 0).then(|| "delete".to_owned()),
                    ..SpawnTask::default()
                };
                world.app.spawn(&caller_of(&world.app, &from), ask).await.expect("spawned");
            }
            _ => {
                let killed = dice.below(3) as usize;
                std::mem::replace(&mut nodes[killed], start()).kill().await;
            }
        }
        tokio::time::sleep(Duration::from_millis(dice.below(30))).await;
    }
    let over = async {
        loop {
            let unsettled = store.unsettled_runs(1_000).await.expect("readable");
            let runs = store.runs(None, 10_000).await.expect("readable");
            let is_over = unsettled.is_empty() && runs.iter().all(has_ended);
            let again = store.runs(None, 10_000).await.expect("readable");
            if is_over && again.len() == runs.len() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), over).await.unwrap_or_else(|_| panic!("seed {seed} hangs"));
    for node in nodes {
        node.stop().await;
    }
    check(&*store, seed).await;
}

/// Every step was taken once, one at a time in each session, and each ended well has one reply.
async fn check(store: &dyn Store, seed: u64) {
    let runs = store.runs(None, 10_000).await.expect("readable");
    let mut reports: HashMap<RunId, usize> = HashMap::new();
    let mut steps = HashSet::new();
    for run in &runs {
        match &run.errand {
            Errand::Report { of, .. } => *reports.entry(of.clone()).or_default() += 1,
            Errand::Round(round) => {
                assert!(round.number <= 5, "seed {seed}: {run:?}");
                let step = (round.first.clone(), u32::from(round.number));
                assert!(steps.insert(step), "seed {seed}: twice {run:?}");
            }
            Errand::Announce(announce) => {
                assert!(steps.insert((announce.first.clone(), 100)), "seed {seed}: twice {run:?}");
            }
            Errand::LateReply { of } => {
                assert!(steps.insert((of.clone(), 101)), "seed {seed}: twice {run:?}");
            }
            Errand::Message | Errand::Send(_) | Errand::Spawn(_) => {}
        }
    }
    for run in &runs {
        if matches!(run.errand, Errand::Spawn(_)) {
            assert_eq!(reports.get(&run.id), Some(&1), "seed {seed}: {run:?}");
        }
    }
    check_exchanges(&runs, seed);
    let sessions: HashSet<SessionId> = runs.iter().map(|run| run.session.clone()).collect();
    for session in sessions {
        if store.session(&session).await.expect("readable").is_none() {
            continue;
        }
        let mut replies: HashMap<String, usize> = HashMap::new();
        let mut span = Span::After(0);
        loop {
            let page = store.messages(&session, span, 500).await.expect("readable");
            let Some(last) = page.newest_seq() else { break };
            span = Span::After(last);
            for message in &page.messages {
                let body = message.parse().expect("readable");
                if body.role == Role::Assistant {
                    *replies.entry(body.run_id.expect("a run")).or_default() += 1;
                }
            }
        }
        for run in runs.iter().filter(|run| run.session == session) {
            let count = replies.get(run.id.as_str()).copied().unwrap_or(0);
            assert!(count <= 1, "seed {seed}: {count} replies of {run:?}");
            let has_words = run.result.as_deref().is_some_and(|result| !result.is_empty());
            if run.state == RunState::Done && has_words {
                assert_eq!(count, 1, "seed {seed}: {run:?}");
            }
        }
    }
}

/// Each exchange has all its rounds, each an answer to the one before it, up to its end; then one announce.
fn check_exchanges(runs: &[Run], seed: u64) {
    let has_spoken = |run: &Run| {
        let said = run.result.as_deref().map(str::trim).unwrap_or_default();
        run.state == RunState::Done && !matches!(said, "" | "REPLY_SKIP")
    };
    for first in runs {
        let Errand::Send(send) = &first.errand else { continue };
        let mut rounds = BTreeMap::new();
        let mut announces = 0;
        for run in runs {
            match &run.errand {
                Errand::Round(round) if round.first == first.id => {
                    let before = rounds.insert(round.number, (round, run));
                    assert!(before.is_none(), "seed {seed}: twice {run:?}");
                }
                Errand::Announce(announce) if announce.first == first.id => announces += 1,
                _ => {}
            }
        }
        let (mut last, mut number) = (first, 1);
        while has_spoken(last) && number <= send.rounds_max {
            number += 1;
            let next = rounds.remove(&number);
            let (round, run) =
                next.unwrap_or_else(|| panic!("seed {seed}: round {number} is lost after {last:?}"));
            assert_eq!(round.answers, last.id, "seed {seed}: {run:?}");
            last = run;
        }
        assert!(rounds.is_empty(), "seed {seed}: after the end {rounds:?}");
        // A message that got no reply at all has nothing to announce.
        let expected = usize::from(last.id != first.id || first.state == RunState::Done);
        assert_eq!(announces, expected, "seed {seed}: announces of {first:?}");
    }
}

#[expect(clippy::disallowed_methods, reason = "more seeds are asked for this way")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_killed_every_step_is_taken_once() {
    let seeds = std::env::var("SESS_SIM_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SEEDS);
    let first: u64 = std::env::var("SESS_SIM_FIRST").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let mut tried = JoinSet::new();
    for seed in first..first + seeds {
        while tried.len() >= AT_ONCE {
            tried.join_next().await.expect("a seed").expect("the seed holds");
        }
        tried.spawn(simulate(seed));
    }
    while let Some(held) = tried.join_next().await {
        held.expect("the seed holds");
    }
}
