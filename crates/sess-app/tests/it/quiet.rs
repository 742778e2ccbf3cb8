//! What a node commits when there is little to do: every commit wakes all who wait.

use std::{
    sync::{Arc, Mutex, Weak},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use serde_json::{Map, Value};
use sess_agent::tool::{ToolDef, ToolOutput, Toolbox};
use sess_app::agents::{AgentsSetup, Nobody};
use sess_core::{
    agent::{Agent, McpServer, ToolsetKind, ToolsetSpec},
    permission::Trust,
    run::RunState,
};
use sess_store::Store;
use tokio_util::sync::CancellationToken;

use crate::{
    stage::{Act, AtWork, Stage, ended, main_of, node, say, send, world},
    teams::team_of,
};

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
    let stage = Stage::new(|_| say("ok"));
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
    let stage = Stage::new(|_| Act::Hang);
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

/// An outside server without tools.
struct Outside;

#[async_trait]
impl Toolbox for Outside {
    async fn tools(&self) -> Vec<ToolDef> {
        Vec::new()
    }

    async fn call(&self, _: &str, _: Map<String, Value>, _: &CancellationToken) -> ToolOutput {
        ToolOutput::error("there is no such tool")
    }
}

#[tokio::test]
async fn outside_servers_end_with_a_run_in_the_background_unless_somebody_sits_there() {
    let world = world(|_| {});
    let stage = Stage::new(|_| say("ok"));
    let opened: Arc<Mutex<Vec<Weak<Outside>>>> = Arc::default();
    let server = McpServer::Url { url: "http://127.0.0.1:1".to_owned(), headers: Vec::new() };
    let toolsets = vec![ToolsetSpec { kind: ToolsetKind::Mcp(server), tools: None }];
    let agents = ["a", "b"].map(|name| Agent { toolsets: toolsets.clone(), ..crate::stage::agent(name) });
    let (asked, kept) = (stage.clone(), Arc::clone(&opened));
    let agents = world.app.agents(AgentsSetup {
        team: team_of(agents.to_vec(), &["stage"]),
        open_model: Box::new(move |_| Ok(Arc::new(asked.clone()))),
        open_tools: Box::new(move |_| {
            let server = Arc::new(Outside);
            kept.lock().expect("whole").push(Arc::downgrade(&server));
            Ok(server)
        }),
        person: Arc::new(Nobody),
        trust: Trust::All,
        lease: Duration::from_secs(5),
    });
    let alive = || opened.lock().expect("whole").iter().filter(|server| server.strong_count() > 0).count();
    let store = world.store();
    let (a, b) = (main_of(&*store, "a").await, main_of(&*store, "b").await);
    let working = AtWork::new(&agents);
    let (seated, sits) = tokio::sync::oneshot::channel();
    let sitting = tokio::spawn({
        let (agents, session) = (agents.clone(), a.id.clone());
        async move { agents.sit_told(&session, || seated.send(()).expect("it is waited for")).await }
    });
    sits.await.expect("seated");
    for (from, to) in [(&a, &b), (&a, &b), (&b, &a), (&b, &a)] {
        let run = send(&*store, from, to, "hello", 0, true).await;
        assert_eq!(ended(&*store, &run.id).await.state, RunState::Done);
    }
    working.stop().await;
    let begun = opened.lock().expect("whole").len();
    assert!(begun >= 3, "at least two for b, and the one that a keeps: {begun}");
    assert_eq!(alive(), 1, "the one that a keeps");
    sitting.abort();
}
