//! Tasks in sessions of their own, and the reports on them.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use sess_agent::model::Model;
use sess_app::{App, Attachment, Caller, Kind, SpawnAnswer, SpawnTask};
use sess_core::{
    RunId,
    agent::{Effort, ModelSpec, Thinking},
    message::Role,
    run::{Errand, RunState},
    session::Session,
};
use sess_store::{Span, Store};
use tokio_util::sync::CancellationToken;

use crate::{
    stage::{Act, AtWork, Stage, caller_of, ended, main_of, node, node_with, say, tree, world},
    world::World,
};

fn task(text: &str) -> SpawnTask {
    SpawnTask { task: text.to_owned(), ..SpawnTask::default() }
}

async fn spawn(app: &App, caller: &Caller, ask: SpawnTask) -> (SpawnAnswer, RunId) {
    let answer = app.spawn(caller, ask).await.expect("spawned");
    let run = answer.run_id.parse().expect("a run");
    (answer, run)
}

/// Spawns one task for `a`, finishes it, and returns the report that `a` heard.
async fn report_on(world: &World, stage: &Stage, ask: SpawnTask) -> (SpawnAnswer, String) {
    let store = world.store();
    let a = main_of(&*store, "a").await;
    let (answer, run) = spawn(&world.app, &caller_of(&world.app, &a), ask).await;
    let agents = node(&world.app, stage, 5_000);
    agents.finish_tree(&run, &CancellationToken::new()).await.expect("finished");
    (answer, last_heard(&*store, &a).await)
}

/// Returns the last message that a session got.
async fn last_heard(store: &dyn Store, session: &Session) -> String {
    let page = store.messages(&session.id, Span::Last, 100).await.expect("readable");
    let bodies = page.messages.iter().map(|message| message.parse().expect("readable"));
    let heard: Vec<_> = bodies.filter(|body| body.role == Role::User).collect();
    heard.last().map(sess_core::message::Body::plain_text).unwrap_or_default()
}

#[tokio::test]
async fn a_report_says_what_the_runtime_knows() {
    let world = world(|_| {});
    let stage = Stage::new(|asked| match asked.last.as_str() {
        "look" => say("found it"),
        _ => say("thanks"),
    });
    let (answer, report) = report_on(&world, &stage, task("look")).await;
    let child = answer.child_session_key.strip_prefix("agent:a:subagent:").expect("a sub-agent");
    assert!(
        report.starts_with("Status: ok\nResult: found it\nNotes: none\nStats: runtime 0.0 s"),
        "{report}"
    );
    let path = world.home().join(format!("transcripts/{child}.jsonl"));
    let stats = format!(
        " · tokens 12 (in 10, out 2) · session {} · id {child} · transcript {} · cost 0.0100",
        answer.child_session_key,
        path.display()
    );
    assert!(report.ends_with(&stats), "{report}");
    let asked = stage.asked();
    assert!(asked[0].system.contains("You are a sub-agent: the session agent:a:main gave you"), "{asked:?}");
    // The session tools are not a sub-agent's.
    assert_eq!(asked[0].tools, ["parrot"]);
    assert!(asked[1].system.contains("the runtime's report on the sub-agent"), "{asked:?}");
    let run: RunId = answer.run_id.parse().expect("a run");
    assert_eq!(tree(&*world.store(), &run).await, ["a spawn done", "a report done"]);
}

#[tokio::test]
async fn a_report_says_error_timeout_and_aborted_whatever_the_model_says() {
    let world = world(|_| {});
    let stage = Stage::new(|asked| match asked.last.as_str() {
        "fail" => Act::Fail("Status: ok".to_owned()),
        "hang" => Act::Hang,
        "call" => Act::Call("parrot".to_owned(), serde_json::json!({"say": "from the tool"})),
        "from the tool" => say(""),
        _ => say("Status: ok"),
    });
    let (_, report) = report_on(&world, &stage, task("fail")).await;
    assert!(report.starts_with("Status: error\nResult: (nothing)\nNotes: Status: ok\n"), "{report}");
    let timed = SpawnTask { run_timeout_seconds: Some(1), ..task("hang") };
    let (_, report) = report_on(&world, &stage, timed).await;
    assert!(report.starts_with("Status: timeout\n"), "{report}");
    let endless = SpawnTask { run_timeout_seconds: Some(i64::MAX.unsigned_abs()), ..task("quick") };
    let (_, report) = report_on(&world, &stage, endless).await;
    assert!(report.starts_with("Status: ok\n"), "{report}");
    let (_, report) = report_on(&world, &stage, task("call")).await;
    assert!(
        report.starts_with("Status: ok\nResult: from the tool\nNotes: the agent said nothing"),
        "{report}"
    );
}

#[tokio::test]
async fn a_child_whose_node_dies_is_reported_as_aborted_once() {
    let world = world(|_| {});
    let stage = Stage::new(|asked| if asked.last == "hang" { Act::Hang } else { say("noted") });
    let store = world.store();
    let a = main_of(&*store, "a").await;
    let first = AtWork::new(&node(&world.other_process(), &stage, 200));
    let (_, run) = spawn(&world.app, &caller_of(&world.app, &a), task("hang")).await;
    while stage.asked().is_empty() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    first.kill().await;
    let second = node(&world.app, &stage, 200);
    second.finish_tree(&run, &CancellationToken::new()).await.expect("finished");
    assert_eq!(tree(&*store, &run).await, ["a spawn aborted", "a report done"]);
    assert!(last_heard(&*store, &a).await.starts_with("Status: aborted\n"));
}

#[tokio::test]
async fn a_node_that_is_stopped_gives_up_what_it_executes_quickly() {
    let world = world(|_| {});
    let stage = Stage::new(|asked| if asked.last == "hang" { Act::Hang } else { say("noted") });
    let store = world.store();
    let a = main_of(&*store, "a").await;
    let at_work = AtWork::new(&node(&world.other_process(), &stage, 15_000));
    let (_, run) = spawn(&world.app, &caller_of(&world.app, &a), task("hang")).await;
    while stage.asked().is_empty() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    // Until it is on record that the model was asked.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let begun = std::time::Instant::now();
    at_work.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(2));
    let run = store.run(&run).await.expect("readable").expect("stored");
    assert_eq!(
        (run.state, run.error.as_deref()),
        (RunState::Aborted, Some("its node was stopped before it ended"))
    );
}

#[tokio::test]
async fn three_children_work_at_a_time_and_each_is_reported() {
    let world = world(|_| {});
    let stage = Stage::new(|asked| {
        if asked.last.starts_with("part") {
            return Act::Later(Duration::from_millis(300), format!("did {}", asked.last));
        }
        say("noted")
    });
    let store = world.store();
    let a = main_of(&*store, "a").await;
    let at_work = AtWork::new(&node(&world.app, &stage, 5_000));
    let begun = std::time::Instant::now();
    let mut runs = Vec::new();
    for n in 1..=3 {
        runs.push(spawn(&world.app, &caller_of(&world.app, &a), task(&format!("part {n}"))).await.1);
    }
    for run in &runs {
        assert_eq!(ended(&*store, run).await.state, RunState::Done);
    }
    assert!(begun.elapsed() < Duration::from_millis(850), "one after the other: {:?}", begun.elapsed());
    let agents = node(&world.other_process(), &stage, 5_000);
    for run in &runs {
        agents.finish_tree(run, &CancellationToken::new()).await.expect("finished");
        assert_eq!(tree(&*store, run).await, ["a spawn done", "a report done"]);
    }
    at_work.stop().await;
}

#[tokio::test]
async fn a_session_has_only_so_many_live_children_also_when_they_are_spawned_at_once() {
    let world = world(|rules| rules.limits.children = 2);
    let store = world.store();
    let a = main_of(&*store, "a").await;
    let caller = caller_of(&world.app, &a);
    let (one, two, three) = tokio::join!(
        world.app.spawn(&caller, task("1")),
        world.app.spawn(&caller, task("2")),
        world.app.spawn(&caller, task("3"))
    );
    let refused: Vec<_> = [one, two, three].into_iter().filter_map(Result::err).collect();
    assert_eq!(refused.len(), 1);
    let text = "sessions_spawn has reached max active children for this session (2/2)";
    assert_eq!((refused[0].kind(), refused[0].to_string().as_str()), (Kind::Denied, text));
    // It is said before what comes later in the order of checks.
    let later = SpawnTask { thinking: Some("x".to_owned()), ..task("4") };
    assert_eq!(world.app.spawn(&caller, later).await.expect_err("refused").to_string(), text);
    let stage = Stage::new(|_| say("ok"));
    let agents = node(&world.app, &stage, 5_000);
    for child in store.children(&a.key).await.expect("readable") {
        let run = &store.runs(Some(&child.id), 1).await.expect("readable")[0];
        agents.finish_tree(&run.id, &CancellationToken::new()).await.expect("finished");
    }
    world.app.spawn(&caller, task("5")).await.expect("there is room again");
}

#[tokio::test]
async fn a_child_that_is_to_be_deleted_goes_after_its_report_and_its_result_stays() {
    let world = world(|_| {});
    let stage = Stage::new(|asked| if asked.last == "look" { say("found it") } else { say("thanks") });
    let ask = SpawnTask { cleanup: Some("delete".to_owned()), ..task("look") };
    let (answer, report) = report_on(&world, &stage, ask).await;
    assert!(report.contains("found it"));
    let store = world.store();
    let key = answer.child_session_key.parse().expect("a key");
    assert!(store.session_by_key(&key).await.expect("readable").is_none());
    let run = store.run(&answer.run_id.parse().expect("a run")).await.expect("readable").expect("stored");
    assert_eq!(run.result.as_deref(), Some("found it"));
}

#[tokio::test]
async fn attachments_are_in_the_workspace_and_the_child_is_told_where() {
    let world = world(|_| {});
    let workspace = tempfile::tempdir().expect("a directory");
    let store = world.store();
    let mut a = crate::world::new_session("s1 agent=a");
    a.cwd = Some(workspace.path().display().to_string());
    let a = store.ensure_session(a).await.expect("made");
    let caller = caller_of(&world.app, &a);
    let file = |name: &str, content: &str, encoding: Option<&str>| Attachment {
        name: name.to_owned(),
        content: content.to_owned(),
        encoding: encoding.map(str::to_owned),
        mime_type: None,
    };
    let bad =
        SpawnTask { attachments: vec![file("a", "x", None), file("b", "!", Some("base64"))], ..task("look") };
    let refused = world.app.spawn(&caller, bad).await.expect_err("refused");
    assert_eq!(refused.to_string(), "attachments_invalid_base64 (b)");
    assert!(!workspace.path().join(".sess").exists());
    let good = || SpawnTask {
        attachments: vec![file("a.txt", "hi", None), file("b", "aGk=", Some("base64"))],
        idempotency_key: Some("k".to_owned()),
        ..task("look")
    };
    let (answer, run) = spawn(&world.app, &caller, good()).await;
    let receipt = answer.attachments.expect("a receipt");
    assert_eq!((receipt.count, receipt.total_bytes), (2, 4));
    let hash = "8f434346648f6b96df89dda901c5176b10a6d83961dd3c1ac88b59b2dc327aa4";
    assert_eq!(receipt.files.iter().map(|file| file.sha256.as_str()).collect::<Vec<_>>(), [hash, hash]);
    assert_eq!(std::fs::read(workspace.path().join(&receipt.rel_dir).join("b")).expect("there"), b"hi");
    // The same request again is the same run, with the same files.
    let (again, same) = spawn(&world.app, &caller, good()).await;
    assert_eq!((same, again.attachments.expect("a receipt").rel_dir), (run.clone(), receipt.rel_dir.clone()));
    assert_eq!(std::fs::read_dir(workspace.path().join(".sess/attachments")).expect("there").count(), 1);
    let stage = Stage::new(|_| say("ok"));
    node(&world.app, &stage, 5_000).finish_tree(&run, &CancellationToken::new()).await.expect("finished");
    assert!(stage.asked()[0].last.contains(&receipt.rel_dir), "{:?}", stage.heard());
}

#[tokio::test]
async fn a_key_that_another_session_has_used_is_refused_and_tells_nothing() {
    let world = world(|_| {});
    let store = world.store();
    let (a, b) = (main_of(&*store, "a").await, main_of(&*store, "b").await);
    let ask = || SpawnTask {
        agent_id: Some("c".to_owned()),
        idempotency_key: Some("k".to_owned()),
        ..task("look")
    };
    let first = world.app.spawn(&caller_of(&world.app, &a), ask()).await.expect("spawned");
    let again = world.app.spawn(&caller_of(&world.app, &a), ask()).await.expect("the same");
    assert_eq!(again.run_id, first.run_id);
    for other in [caller_of(&world.app, &b), world.owner()] {
        let refused = world.app.spawn(&other, ask()).await.expect_err("another's").to_string();
        assert_eq!(refused, "idempotency key \"k\" was used before for another request");
    }
    assert_eq!(store.runs(None, 10).await.expect("readable").len(), 1);
}

#[tokio::test]
async fn the_owner_spawns_any_agent_and_nobody_is_told() {
    let (world, stage) = (world(|_| {}), Stage::new(|_| say("ok")));
    let ask = SpawnTask {
        agent_id: Some("B".to_owned()),
        label: Some("a label".to_owned()),
        model: Some("other".to_owned()),
        thinking: Some("minimal".to_owned()),
        ..task("look")
    };
    let (answer, run) = spawn(&world.app, &world.owner(), ask).await;
    assert!(answer.child_session_key.starts_with("agent:b:subagent:"), "{answer:?}");
    let agents = node(&world.app, &stage, 5_000);
    agents.finish_tree(&run, &CancellationToken::new()).await.expect("finished");
    let store = world.store();
    assert_eq!(tree(&*store, &run).await, ["b spawn done"]);
    let key = answer.child_session_key.parse().expect("a key");
    let child = store.session_by_key(&key).await.expect("readable").expect("stored");
    assert_eq!((child.title.as_str(), child.facts.model.as_deref()), ("a label", Some("other")));
    assert!(child.facts.is_spawned && child.parent.is_none());
    let ids: HashSet<String> = world
        .app
        .spawnable(&world.owner())
        .await
        .expect("a list")
        .agents
        .into_iter()
        .map(|agent| agent.id)
        .collect();
    assert_eq!(ids, ["a", "b", "c"].map(str::to_owned).into());
}

#[tokio::test]
async fn a_task_is_done_by_the_model_and_with_the_thinking_that_it_was_given() {
    let (world, stage) = (world(|_| {}), Stage::new(|_| say("ok")));
    let opened = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&opened);
    let open_model = move |spec: &ModelSpec| {
        seen.lock().expect("whole").push((spec.name.clone(), spec.thinking));
        Ok(Arc::new(stage.clone()) as Arc<dyn Model>)
    };
    let agents = node_with(&world.app, Box::new(open_model), 5_000);
    let given = |model: &str, thinking: &str| {
        let (model, thinking) = (Some(model.to_owned()), Some(thinking.to_owned()));
        SpawnTask { agent_id: Some("b".to_owned()), model, thinking, ..task("look") }
    };
    let usual = SpawnTask { agent_id: Some("b".to_owned()), ..task("look") };
    for ask in [given("other", "high"), given("other", "off"), usual] {
        let (_, run) = spawn(&world.app, &world.owner(), ask).await;
        agents.finish_tree(&run, &CancellationToken::new()).await.expect("finished");
    }
    let expected = [
        ("other".to_owned(), Thinking::Effort(Effort::High)),
        ("other".to_owned(), Thinking::Off),
        ("stage".to_owned(), Thinking::Unset),
    ];
    assert_eq!(*opened.lock().expect("whole"), expected);
}

#[tokio::test]
async fn spawned_sessions_are_archived_when_they_have_been_over_for_a_while() {
    let world = world(|_| {});
    let stage = Stage::new(|_| say("ok"));
    let (answer, _) = report_on(&world, &stage, task("look")).await;
    let store = world.store();
    let mut settings = world.app.settings().clone();
    settings.now = || crate::world::at("2026-11-15T13:01:00Z");
    let at_work = AtWork::new(&node(&App::new(settings), &stage, 5_000));
    let key = answer.child_session_key.parse().expect("a key");
    let archived = async {
        loop {
            let child = store.session_by_key(&key).await.expect("readable").expect("stored");
            if child.archived_at.is_some() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), archived).await.expect("archived");
    at_work.stop().await;
}

#[tokio::test]
async fn a_seat_keeps_other_nodes_away_and_is_given_up() {
    let (world, stage) = (world(|_| {}), Stage::new(|_| say("ok")));
    let store = world.store();
    let a = main_of(&*store, "a").await;
    let here = node(&world.app, &stage, 5_000);
    let other = node(&world.other_process(), &stage, 5_000);
    {
        let seat = here.sit(&a.id);
        tokio::pin!(seat);
        let taken = async {
            while store.seat(&a.id).await.expect("readable").is_none() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::select! {
            ended = &mut seat => panic!("{ended:?}"),
            () = taken => {}
        }
        let refused = other.sit(&a.id).await.expect_err("taken");
        assert_eq!(refused.kind(), Kind::Conflict);
        let text = format!("session {} is open in another process (pid {})", a.id, std::process::id());
        assert_eq!(refused.to_string(), text);
    }
    world.app.finish().await;
    assert_eq!(store.seat(&a.id).await.expect("readable"), None);
    let run = crate::stage::send(&*store, &main_of(&*store, "b").await, &a, "hi", 0, true).await;
    assert!(matches!(run.errand, Errand::Send(_)));
    other.finish_tree(&run.id, &CancellationToken::new()).await.expect("finished");
}

#[tokio::test]
async fn the_key_of_a_request_is_its_sender_s_and_its_text_is_not_stored_with_it() {
    let world = world(|_| {});
    let store = world.store();
    let (a, b) = (main_of(&*store, "a").await, main_of(&*store, "b").await);
    let ask = |text: &str| SpawnTask {
        agent_id: Some("c".to_owned()),
        idempotency_key: Some("k".to_owned()),
        ..task(text)
    };
    let (first, _) = spawn(&world.app, &caller_of(&world.app, &a), ask("use hunter2hunter2")).await;
    let (again, _) = spawn(&world.app, &caller_of(&world.app, &a), ask("use hunter2hunter2")).await;
    assert_eq!(first.run_id, again.run_id);
    // Another session's same words are another request.
    for (session, text) in [(&b, "use hunter2hunter2"), (&a, "use another")] {
        let told = world.app.spawn(&caller_of(&world.app, session), ask(text)).await.expect_err("refused");
        assert_eq!(told.to_string(), "idempotency key \"k\" was used before for another request");
    }
    let long = SpawnTask { idempotency_key: Some("k".repeat(201)), ..task("x") };
    let told = world.app.spawn(&caller_of(&world.app, &a), long).await.expect_err("refused");
    assert_eq!(told.to_string(), "an idempotency key has 1 to 200 bytes");
    let stage = Stage::new(|_| say("done"));
    let request = sess_app::agents::Request {
        session: a.clone().into(),
        agent: a.agent.clone(),
        text: "say hunter2hunter2".to_owned(),
        from: None,
        note: None,
        idempotency_key: Some("k2".to_owned()),
    };
    node(&world.app, &stage, 5_000).queue(request).await.expect("queued");
    let database = rusqlite::Connection::open(world.home().join("sess.db")).expect("a database");
    let kept: u32 = database
        .query_row("SELECT count(*) FROM requests WHERE instr(fingerprint, 'hunter2') > 0", [], |row| {
            row.get(0)
        })
        .expect("an answer");
    assert_eq!(kept, 0);
}

#[tokio::test]
async fn a_spawn_too_far_from_where_it_began_is_refused_as_a_message_is() {
    let world = world(|rules| {
        rules.limits.hops = 1;
        rules.limits.tree_runs = 2;
    });
    let store = world.store();
    let (a, b) = (main_of(&*store, "a").await, main_of(&*store, "b").await);
    let first = crate::stage::send(&*store, &b, &a, "hello", 0, false).await;
    let mut caller = caller_of(&world.app, &a);
    caller.run = Some(Box::new(first));
    let (_, child) = spawn(&world.app, &caller, task("one")).await;
    let full = world.app.spawn(&caller, task("two")).await.expect_err("refused");
    let told = "sessions_spawn stops here: 2 runs were begun by one request, of at most 2 \
                (session.agentToAgent.maxRuns)";
    assert_eq!((full.kind(), full.to_string().as_str()), (Kind::Denied, told));
    caller.run = store.run(&child).await.expect("readable").map(Box::new);
    let far = world.app.spawn(&caller, task("three")).await.expect_err("refused");
    let told = "sessions_spawn stops here: 1 messages between agents led to this one, of at most 1 \
                (session.agentToAgent.maxHops)";
    assert_eq!((far.kind(), far.to_string().as_str()), (Kind::Denied, told));
}
