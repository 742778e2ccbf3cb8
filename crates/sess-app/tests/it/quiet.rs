//! What a node commits when there is little to do: every commit wakes all who wait.

use std::time::{Duration, Instant};

use sess_core::run::RunState;
use sess_store::Store;

use crate::stage::{Act, AtWork, ended, main_of, node, say, send, world};

/// Counts what wakes somebody in another process meanwhile.
async fn woken_within(store: &dyn Store, time: Duration) -> usize {
    let mut changes = store.changes();
    // The first look is told in any case.
    let _first = tokio::time::timeout(Duration::from_millis(100), changes.changed()).await;
    changes.mark_unchanged();
    let (until, mut woken) = (Instant::now() + time, 0);
    while let Ok(changed) = tokio::time::timeout_at(until.into(), changes.changed()).await {
        changed.expect("the store is open");
        woken += 1;
    }
    woken
}

#[tokio::test]
async fn a_node_commits_nothing_while_it_has_nothing_to_do() {
    let world = world(|_| {});
    let stage = crate::stage::Stage::new(|_| say("ok"));
    let agents = node(&world.app, &stage, 300);
    let store = world.store();
    let (a, b) = (main_of(&*store, "a").await, main_of(&*store, "b").await);
    let working = AtWork::new(&agents);
    let run = send(&*store, &a, &b, "hello", 0, true).await;
    assert_eq!(ended(&*store, &run.id).await.state, RunState::Done);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(woken_within(&*store, Duration::from_millis(700)).await, 0);
    working.stop().await;
}

#[tokio::test]
async fn a_run_that_goes_on_commits_only_to_keep_its_lease_and_hears_that_it_shall_stop() {
    let world = world(|_| {});
    let stage = crate::stage::Stage::new(|_| Act::Hang);
    let agents = node(&world.app, &stage, 1_200);
    let store = world.store();
    let (a, b) = (main_of(&*store, "a").await, main_of(&*store, "b").await);
    let working = AtWork::new(&agents);
    let run = send(&*store, &a, &b, "hello", 0, true).await;
    while stage.asked().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    // Every third of the lease.
    let woken = woken_within(&*store, Duration::from_millis(1_400)).await;
    assert!((2..=4).contains(&woken), "{woken}");
    let asked = Instant::now();
    store.cancel_run(&run.id, crate::world::now()).await.expect("asked to stop");
    assert_eq!(ended(&*store, &run.id).await.state, RunState::Cancelled);
    assert!(asked.elapsed() < Duration::from_millis(300), "{:?}", asked.elapsed());
    working.stop().await;
}
