//! Runs: never lost, one at a time, in order of arrival, and nobody writes without the lease.

use std::sync::{Arc, Barrier};

use sess_core::{
    message::Usage,
    run::{Errand, Lineage, Outcome, Run, RunState},
};
use sess_store::{Appended, Error, NewRun, RunRenewed, Store};

use crate::support::{
    Scratch, agent, ask, at, boot, chat, done, id, key, lease, run, run_id, say, story_so_far, transcript,
};

/// Leases the next run of a session for `token`, until 100; returns its number.
async fn take(store: &dyn Store, session: &str, token: &str) -> Option<u64> {
    let leased = store.lease_run(&id(session), &[agent("main")], lease(token, 100), at(5_000)).await;
    leased.expect("an answer").map(|run| number(&run))
}

fn number(run: &Run) -> u64 {
    u64::from_str_radix(&run.id.as_str()[24..], 16).expect("a number")
}

async fn finish(store: &dyn Store, n: u64, token: &str) {
    let held = lease(token, 100);
    store.end_run(&run_id(n), &held, vec![], done("ok"), at(6_000)).await.expect("ended");
}

async fn state(store: &dyn Store, n: u64) -> RunState {
    store.run(&run_id(n)).await.expect("read").expect("it is there").state
}

fn no_longer_held(n: u64, state: &str) -> Error {
    Error::Conflict(format!("the lease of run {} is no longer held: it is {state}", run_id(n)))
}

#[test]
fn a_run_goes_from_request_to_outcome_and_is_told_at_each_step() {
    let scratch = Scratch::new();
    run(async {
        let store = scratch.open();
        let queued = store.queue_run(ask(1, "a")).await.expect("queued");
        let mut expected = Run {
            id: run_id(1),
            session: id("a"),
            agent: agent("main"),
            state: RunState::Queued,
            queued_at: at(4_000),
            started_at: None,
            ended_at: None,
            result: None,
            error: None,
            usage: Usage::default(),
            is_cancelled: false,
            errand: Errand::Message,
            lineage: Lineage::first(&run_id(1)),
            handed_over_at: None,
        };
        assert_eq!(queued, expected);
        assert_eq!(store.running_until(&id("a")).await, Ok(None));
        let held = lease("t", 100);
        let leased = store.lease_run(&id("a"), &[agent("x"), agent("main")], held.clone(), at(5_000)).await;
        (expected.state, expected.started_at) = (RunState::Running, Some(at(5_000)));
        assert_eq!(leased, Ok(Some(expected.clone())));
        assert_eq!(store.running_until(&id("a")).await, Ok(Some(boot("b", 100))));
        assert_eq!(
            store.renew_run(&run_id(1), &lease("t", 200)).await,
            Ok(RunRenewed { is_cancelled: false })
        );
        assert_eq!(store.running_until(&id("a")).await, Ok(Some(boot("b", 200))));
        let appended = store.append_in_run(&run_id(1), &held, vec![say("thinking")]).await;
        assert_eq!(appended, Ok(Appended { first_seq: 2, last_seq: 2 }));
        for _ in 0..2 {
            store.hand_off_in_run(&run_id(1), &held, agent("helper"), at(5_500)).await.expect("handed off");
            assert_eq!(store.session(&id("a")).await.expect("read").expect("made").agent, agent("helper"));
        }
        let again = store.append_in_run(&run_id(1), &held, vec![say("more")]).await;
        assert_eq!(again, Ok(Appended { first_seq: 3, last_seq: 3 }));
        store
            .end_run(&run_id(1), &held, vec![say("answer")], done("answer"), at(6_000))
            .await
            .expect("ended");
        expected.state = RunState::Done;
        expected.ended_at = Some(at(6_000));
        expected.result = Some("answer".to_owned());
        expected.usage = done("").usage;
        drop(store);
        // An outcome stays readable.
        let store = scratch.open();
        assert_eq!(store.run(&run_id(1)).await, Ok(Some(expected.clone())));
        assert_eq!(store.runs(Some(&id("a")), 10).await, Ok(vec![expected]));
        assert_eq!(store.running_until(&id("a")).await, Ok(None));
        let story = [
            "a created as agent:main:chat:a",
            "a run 0001 of main queued -",
            "a 1 ask 1",
            "a run 0001 of main running -",
            "a 2 thinking",
            "a handed_off",
            "a 3 more",
            "a 4 answer",
            "a run 0001 of main done -",
        ];
        assert_eq!(story_so_far(&*store).await, story);
    });
}

#[test]
fn a_session_executes_one_run_at_a_time_in_order_of_arrival() {
    let scratch = Scratch::new();
    run(async {
        let store = scratch.open();
        // The order is of arrival, whatever ids and clocks say.
        for (n, ms) in [(3, 9_000), (1, 7_000), (2, 8_000)] {
            store.queue_run(NewRun { at: at(ms), ..ask(n, "a") }).await.expect("queued");
        }
        store.queue_run(ask(4, "b")).await.expect("queued");
        assert_eq!(take(&*store, "a", "t").await, Some(3));
        assert_eq!(take(&*store, "a", "u").await, None, "one runs already");
        assert_eq!(take(&*store, "b", "u").await, Some(4), "sessions do not wait for each other");
        finish(&*store, 3, "t").await;
        assert_eq!(take(&*store, "a", "v").await, Some(1));
        finish(&*store, 1, "v").await;
        assert_eq!(take(&*store, "a", "w").await, Some(2));
        finish(&*store, 2, "w").await;
        assert_eq!(take(&*store, "a", "x").await, None);
        assert_eq!(take(&*store, "none", "x").await, None);
        let newest_first: Vec<u64> = store.runs(None, 3).await.expect("read").iter().map(number).collect();
        assert_eq!(newest_first, [4, 2, 1]);
        let of_one: Vec<u64> =
            store.runs(Some(&id("a")), 9).await.expect("read").iter().map(number).collect();
        assert_eq!(of_one, [2, 1, 3]);
        assert_eq!(store.runs(Some(&id("none")), 9).await, Ok(vec![]));
    });
}

#[test]
fn the_oldest_run_of_another_agent_is_waited_for() {
    let scratch = Scratch::new();
    run(async {
        let store = scratch.open();
        store.queue_run(NewRun { agent: agent("other"), ..ask(1, "a") }).await.expect("queued");
        store.queue_run(ask(2, "a")).await.expect("queued");
        assert_eq!(take(&*store, "a", "t").await, None);
        let other = store.lease_run(&id("a"), &[agent("other")], lease("u", 9), at(5)).await;
        assert_eq!(other.expect("an answer").map(|run| number(&run)), Some(1));
        finish(&*store, 1, "u").await;
        assert_eq!(take(&*store, "a", "t").await, Some(2));
    });
}

#[test]
fn whoever_lost_the_lease_changes_nothing_any_more() {
    let scratch = Scratch::new();
    run(async {
        let (slow, other) = (scratch.open(), scratch.open());
        slow.queue_run(ask(1, "a")).await.expect("queued");
        slow.queue_run(ask(2, "a")).await.expect("queued");
        assert_eq!(take(&*slow, "a", "slow").await, Some(1));
        slow.begin_run(&run_id(1), &lease("slow", 100)).await.expect("begun");
        assert_eq!(other.settle_lapsed_runs(&boot("b", 99), at(7_000)).await, Ok(vec![]), "not yet");
        let aborted = other.settle_lapsed_runs(&boot("b", 100), at(7_000)).await.expect("aborted");
        assert_eq!(aborted.iter().map(number).collect::<Vec<_>>(), [1]);
        assert_eq!((aborted[0].state, aborted[0].ended_at), (RunState::Aborted, Some(at(7_000))));
        assert_eq!(aborted[0].error.as_deref(), Some("its node died or stopped answering"));
        assert_eq!(other.settle_lapsed_runs(&boot("b", 900), at(8_000)).await, Ok(vec![]), "once");
        assert_eq!(take(&*other, "a", "other").await, Some(2));

        let before = story_so_far(&*other).await;
        let held = lease("slow", 500);
        let refused = |n, state| Err(no_longer_held(n, state));
        assert_eq!(slow.renew_run(&run_id(1), &held).await.map(|_| ()), refused(1, "aborted"));
        let late = slow.append_in_run(&run_id(1), &held, vec![say("late")]).await;
        assert_eq!(late.map(|_| ()), refused(1, "aborted"));
        let late = slow.hand_off_in_run(&run_id(1), &held, agent("x"), at(9_000)).await;
        assert_eq!(late, refused(1, "aborted"));
        let late = slow.end_run(&run_id(1), &held, vec![say("late")], done("late"), at(9_000)).await;
        assert_eq!(late, refused(1, "aborted"));
        // Nor does it reach the run of another.
        assert_eq!(slow.renew_run(&run_id(2), &held).await.map(|_| ()), refused(2, "running"));
        let late = slow.append_in_run(&run_id(2), &held, vec![say("late")]).await;
        assert_eq!(late.map(|_| ()), refused(2, "running"));
        let late = slow.end_run(&run_id(2), &held, vec![say("late")], done("late"), at(9_000)).await;
        assert_eq!(late, refused(2, "running"));

        assert_eq!(story_so_far(&*other).await, before);
        assert_eq!(transcript(&*other, "a").await, ["1 ask 1", "2 ask 2"]);
        let first = other.run(&run_id(1)).await.expect("read").expect("kept");
        assert_eq!((first.state, first.result), (RunState::Aborted, None));
        assert_eq!(other.running_until(&id("a")).await, Ok(Some(boot("b", 100))));
        finish(&*other, 2, "other").await;
        let twice = other.end_run(&run_id(2), &lease("other", 1), vec![], done("x"), at(9)).await;
        assert_eq!(twice, refused(2, "done"));
    });
}

#[test]
fn leases_of_another_boot_have_lapsed_and_renewed_ones_have_not() {
    let scratch = Scratch::new();
    run(async {
        let store = scratch.open();
        for (n, session) in [(1, "a"), (2, "b"), (3, "c")] {
            store.queue_run(ask(n, session)).await.expect("queued");
            assert_eq!(take(&*store, session, session).await, Some(n));
            store.begin_run(&run_id(n), &lease(session, 100)).await.expect("begun");
        }
        store.renew_run(&run_id(2), &lease("b", 200)).await.expect("renewed");
        let mut later = lease("c", 1);
        later.until = boot("after the restart", 50);
        store.renew_run(&run_id(3), &later).await.expect("renewed");
        let aborted = store.settle_lapsed_runs(&boot("b", 150), at(7)).await.expect("aborted");
        assert_eq!(aborted.iter().map(number).collect::<Vec<_>>(), [1, 3]);
        let aborted = store.settle_lapsed_runs(&boot("after the restart", 0), at(7)).await.expect("aborted");
        assert_eq!(aborted.iter().map(number).collect::<Vec<_>>(), [2]);
    });
}

#[test]
fn the_same_request_is_the_same_run() {
    let scratch = Scratch::new();
    run(async {
        let store = scratch.open();
        let asked = |n, fingerprint| NewRun { key: key("k", fingerprint), ..ask(n, "a") };
        let first = store.queue_run(asked(1, "f")).await.expect("queued");
        assert_eq!(scratch.open().queue_run(asked(2, "f")).await, Ok(first.clone()));
        let other = store.queue_run(asked(3, "another")).await;
        assert_eq!(other, Err(Error::KeyReused("k".to_owned())));
        assert_eq!(take(&*store, "a", "t").await, Some(1));
        finish(&*store, 1, "t").await;
        // As it stands now: whoever asks again hears the outcome.
        let again = store.queue_run(asked(4, "f")).await.expect("the same");
        assert_eq!((again.id, again.state), (run_id(1), RunState::Done));
        assert_eq!(store.runs(None, 10).await.expect("read").len(), 1);
        let taken = store.queue_run(ask(1, "b")).await;
        assert!(matches!(taken, Err(Error::Conflict(_))), "an id is given once: {taken:?}");
        assert_eq!(store.session(&id("b")).await, Ok(None), "and nothing of it is there");
    });
}

#[test]
fn a_queued_run_is_cancelled_at_once_and_a_running_one_by_its_node() {
    let scratch = Scratch::new();
    run(async {
        let store = scratch.open();
        for n in 1..=3 {
            store.queue_run(ask(n, "a")).await.expect("queued");
        }
        let cancelled = store.cancel_run(&run_id(1), at(5_000)).await.expect("cancelled");
        assert_eq!((cancelled.state, cancelled.ended_at), (RunState::Cancelled, Some(at(5_000))));
        assert_eq!(take(&*store, "a", "t").await, Some(2), "what was cancelled is passed over");
        let asked = store.cancel_run(&run_id(2), at(5_500)).await.expect("asked to stop");
        assert_eq!((asked.state, asked.is_cancelled), (RunState::Running, true));
        let renewed = store.renew_run(&run_id(2), &lease("t", 300)).await;
        assert_eq!(renewed, Ok(RunRenewed { is_cancelled: true }));
        assert_eq!(take(&*store, "a", "u").await, None, "its node has yet to stop");
        let outcome = Outcome { state: RunState::Cancelled, result: None, ..done("") };
        store.end_run(&run_id(2), &lease("t", 1), vec![], outcome, at(6_000)).await.expect("ended");
        // Again, and too late: nothing changes.
        for n in [1, 2] {
            let before = store.run(&run_id(n)).await.expect("read").expect("kept");
            assert_eq!(store.cancel_run(&run_id(n), at(9_000)).await, Ok(before));
        }
        assert_eq!(take(&*store, "a", "u").await, Some(3));
        let story = story_so_far(&*store).await;
        let told: Vec<&String> = story.iter().filter(|line| line.contains(" run ")).collect();
        let expected = [
            "a run 0001 of main queued -",
            "a run 0002 of main queued -",
            "a run 0003 of main queued -",
            "a run 0001 of main cancelled -",
            "a run 0002 of main running -",
            "a run 0002 of main cancelled -",
            "a run 0003 of main running -",
        ];
        assert_eq!(told, expected);
    });
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let scratch = Scratch::new();
    run(async {
        let store = scratch.open();
        let missing = || Error::NoRun(run_id(7));
        let held = lease("t", 100);
        assert_eq!(store.run(&run_id(7)).await, Ok(None));
        assert_eq!(store.cancel_run(&run_id(7), at(1)).await, Err(missing()));
        assert_eq!(store.renew_run(&run_id(7), &held).await, Err(missing()));
        assert_eq!(store.end_run(&run_id(7), &held, vec![], done("x"), at(1)).await, Err(missing()));
        assert_eq!(missing().to_string(), format!("run \"{}\" not found", run_id(7)));
        store.queue_run(ask(1, "a")).await.expect("queued");
        assert_eq!(store.renew_run(&run_id(1), &held).await, Err(no_longer_held(1, "queued")));
        assert_eq!(take(&*store, "a", "t").await, Some(1));
        let unfinished = Outcome { state: RunState::Running, ..done("x") };
        let refused = store.end_run(&run_id(1), &held, vec![], unfinished, at(1)).await;
        let sentence = format!("run {} cannot end as running", run_id(1));
        assert_eq!(refused, Err(Error::Conflict(sentence)));
        assert_eq!(state(&*store, 1).await, RunState::Running);
    });
}

#[test]
fn asking_for_work_that_is_not_there_wakes_nobody() {
    let scratch = Scratch::new();
    run(async {
        let store = scratch.open();
        store.ensure_session(chat("a")).await.expect("made");
        store.queue_run(ask(1, "b")).await.expect("queued");
        assert_eq!(take(&*store, "b", "t").await, Some(1));
        let mut changes = store.changes();
        changes.changed().await.expect("the first look is told always");
        changes.mark_unchanged();
        assert_eq!(take(&*store, "a", "t").await, None);
        assert_eq!(take(&*store, "b", "u").await, None);
        assert_eq!(store.settle_lapsed_runs(&boot("b", 1), at(7)).await, Ok(vec![]));
        assert_eq!(changes.has_changed().ok(), Some(false));
    });
}

#[test]
fn of_many_handles_that_want_a_run_exactly_one_gets_it() {
    const ROUNDS: u64 = 40;
    const NODES: usize = 4;
    let scratch = Scratch::new();
    let store = scratch.open();
    let start = Arc::new(Barrier::new(NODES));
    for n in 1..=ROUNDS {
        run(store.queue_run(ask(n, "a"))).expect("queued");
    }
    let nodes: Vec<_> = (0..NODES)
        .map(|node| {
            let (store, start) = (scratch.open(), Arc::clone(&start));
            std::thread::spawn(move || {
                let token = format!("node-{node}");
                let mut won = Vec::new();
                for round in 1..=ROUNDS {
                    start.wait();
                    let taken = run(take(&*store, "a", &token));
                    start.wait();
                    if let Some(n) = taken {
                        assert_eq!(n, round, "in order of arrival");
                        run(finish(&*store, n, &token));
                        won.push(n);
                    }
                }
                won
            })
        })
        .collect();
    let mut won: Vec<u64> = nodes.into_iter().flat_map(|node| node.join().expect("a node")).collect();
    won.sort_unstable();
    assert_eq!(won, (1..=ROUNDS).collect::<Vec<_>>(), "each once, and none is lost");
    let story = run(story_so_far(&*store));
    assert_eq!(story.iter().filter(|line| line.ends_with("running -")).count() as u64, ROUNDS);
    assert_eq!(story.iter().filter(|line| line.ends_with("done -")).count() as u64, ROUNDS);
    assert_eq!(sess_store::health(scratch.path()).expect("healthy").damage, Vec::<String>::new());
}
