//! Row and file, kept together through crashes, other programs and other processes.

use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use serde_json::json;
use sess_app::{App, Signals};
use sess_store::PlanWrite;

use crate::world::{World, answer, id, new_session, now, told};

impl World {
    /// Leaves what a writer leaves that dies between the commit of the row and the rename.
    async fn commit_without_file(&self, session: &str, content: &str) {
        let write = PlanWrite {
            content: content.to_owned(),
            agent: "main".to_owned(),
            at: now(),
            expect_revision: None,
            key: None,
        };
        self.store().write_plan(new_session(session), write).await.expect("committed");
    }
}

#[tokio::test]
async fn a_crash_before_the_rename_is_rolled_forward_and_told_once() {
    let world = World::new();
    world.write("s", "one").await;
    world.commit_without_file("s", "two").await;
    assert_eq!(fs::read_to_string(world.plan_path("s")).expect("there"), "one");
    assert_eq!(world.plan_events().await, ["updated s 1 by main"], "not told before it is there");
    assert_eq!(world.read("s").await, "two");
    assert_eq!(fs::read_to_string(world.plan_path("s")).expect("there"), "two");
    let other = world.other_process();
    assert_eq!(told(&answer(&other, &world.agent("s"), "read_session_plan", json!({})).await), "two");
    assert_eq!(world.read("s").await, "two");
    assert_eq!(world.plan_events().await, ["updated s 1 by main", "updated s 2 by main"]);
    assert_eq!(world.log("s").await, ["1 main 3", "2 main 3"]);
}

#[tokio::test]
async fn a_crash_during_the_first_write_is_rolled_forward_by_whatever_is_called_next() {
    for tool in ["read", "write", "exit"] {
        let world = World::new();
        world.commit_without_file("s", "one").await;
        let told = match tool {
            "read" => world.read("s").await,
            "write" => world.write("s", "two").await,
            _ => world.exit("s").await,
        };
        assert!(!told.starts_with("error"), "{told}");
        let mut events = vec!["updated s 1 by main"];
        match tool {
            "write" => events.push("updated s 2 by main"),
            "exit" => events.push("state s 1 ready by main"),
            _ => {}
        }
        assert_eq!(world.plan_events().await, events);
        let newest = if tool == "write" { "two" } else { "one" };
        assert_eq!(fs::read_to_string(world.plan_path("s")).expect("there"), newest);
    }
}

#[tokio::test]
async fn a_crash_after_the_rename_is_told_once() {
    let world = World::new();
    world.write("s", "one").await;
    world.commit_without_file("s", "two").await;
    fs::write(world.plan_path("s"), "two").expect("renamed");
    assert_eq!(world.read("s").await, "two");
    assert_eq!(world.read("s").await, "two");
    assert_eq!(world.plan_events().await, ["updated s 1 by main", "updated s 2 by main"]);
}

#[tokio::test]
async fn a_retry_after_a_crash_finds_its_write_done() {
    let world = World::new();
    let fingerprint = {
        // The first try dies between commit and rename: all it left is row and key.
        let me = world.agent("s");
        let ask = |key: &str| sess_app::WritePlan {
            content: "one".to_owned(),
            expect_revision: None,
            idempotency_key: Some(key.to_owned()),
        };
        world.app.write_plan(&me, ask("k")).await.expect("written");
        fs::remove_file(world.plan_path("s")).expect("ours");
        world.sql("UPDATE plans SET announced = 0");
        world.sql("DELETE FROM events WHERE kind = 'session_plan_updated'");
        ask("k")
    };
    let other = world.other_process();
    let again = other.write_plan(&world.agent("s"), fingerprint).await.expect("the first answer");
    assert_eq!((again.revision, again.state.as_str()), (1, "draft"));
    assert_eq!(fs::read_to_string(world.plan_path("s")).expect("there"), "one");
    assert_eq!(world.log("s").await, ["1 main 3"]);
    assert_eq!(world.plan_events().await, ["updated s 1 by main"]);
}

#[tokio::test]
async fn a_missing_file_comes_back_from_the_row() {
    let world = World::new();
    world.write("s", "one").await;
    world.write("s", "two").await;
    fs::remove_file(world.plan_path("s")).expect("ours");
    assert_eq!(world.read("s").await, "two");
    // So does one that a crash left empty.
    fs::write(world.plan_path("s"), "").expect("emptied");
    assert_eq!(world.exit("s").await, "Plan ready for review.");
    assert_eq!(fs::read_to_string(world.plan_path("s")).expect("there"), "two");
    fs::remove_dir_all(world.plans()).expect("ours");
    assert_eq!(world.read("s").await, "two");
    assert_eq!(world.log("s").await, ["1 main 3", "2 main 3"]);
}

#[tokio::test]
async fn what_another_program_wrote_becomes_a_revision_by_external() {
    let world = World::new();
    world.write("s", "one").await;
    world.exit("s").await;
    fs::write(world.plan_path("s"), "by hand").expect("edited");
    let answer = world.answer(&world.agent("s"), "read_session_plan", json!({})).await;
    let structured = answer.structured.expect("structured");
    assert_eq!(
        (&structured["revision"], &structured["state"]),
        (&json!(2), &json!("draft")),
        "any write is a draft"
    );
    assert_eq!(answer.text, "by hand");
    world.read("s").await;
    assert_eq!(world.log("s").await, ["1 main 3", "2 external 7"]);
    assert_eq!(
        world.plan_events().await,
        [
            "updated s 1 by main",
            "state s 1 ready by main",
            "updated s 2 by external",
            "state s 2 draft by external"
        ]
    );
    // An overwrite does not lose it either.
    fs::write(world.plan_path("s"), "by hand again").expect("edited");
    world.write("s", "three").await;
    assert_eq!(world.log("s").await, ["1 main 3", "2 external 7", "3 external 13", "4 main 5"]);
    let session = world.stored("s").await;
    assert_eq!(world.app.plan_revision(&session, 3).await.expect("kept").content, "by hand again");
}

#[tokio::test]
async fn a_file_that_is_only_white_space_is_no_plan() {
    let world = World::new();
    fs::create_dir(world.plans()).expect("made");
    fs::write(world.plan_path("s"), " \n").expect("written");
    assert!(world.read("s").await.starts_with("error: no plan written yet"));
    assert!(world.exit("s").await.starts_with("error: no plan written yet"));
    world.write("t", "x").await;
    assert!(world.read("s").await.starts_with("error: no plan written yet"));
    assert!(world.write("s", "one").await.starts_with("Plan saved"));
    assert_eq!(world.log("s").await, ["1 main 3"]);
}

#[tokio::test]
async fn a_damaged_row_costs_itself_and_is_named() {
    let world = World::new();
    world.write("s", "one").await;
    world.write("s", "two").await;
    world.sql("UPDATE plan_revisions SET content = 'tw0' WHERE revision = 2");
    assert_eq!(world.read("s").await, "two", "the file is whole");
    fs::remove_file(world.plan_path("s")).expect("ours");
    assert_eq!(
        world.read("s").await,
        "error: revision 2 of the plan of session s is damaged: its checksum does not match"
    );
    assert!(world.write("s", "three").await.starts_with("Plan saved"));
    assert_eq!(world.read("s").await, "three");
    let session = world.stored("s").await;
    assert_eq!(world.app.plan_revision(&session, 1).await.expect("whole").content, "one");
}

#[tokio::test]
async fn a_plan_outlives_its_process() {
    let world = World::new();
    world.write("s", "one").await;
    world.exit("s").await;
    let other = world.other_process();
    let answer = answer(&other, &world.agent("s"), "read_session_plan", json!({})).await;
    assert_eq!(answer.structured.expect("structured")["state"], "ready");
}

/// Two writers and two readers, each as a process of its own would be.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "who reads without a pause leaves a busy machine no time for those who write"
)]
fn readers_see_the_old_plan_or_the_new_one_and_writers_do_not_lose_each_other() {
    const WRITES: usize = 20;
    const BETWEEN_READS: Duration = Duration::from_millis(1);
    let world = World::new();
    let plan = |writer: usize, n: usize| format!("{writer}-{n} ").repeat(5_000) + "end";
    let is_whole = |text: &str| {
        let word = text.split(' ').next().unwrap_or_default();
        text == format!("{word} ").repeat(5_000) + "end"
    };
    let alone = |work: &mut dyn FnMut(&App, &tokio::runtime::Runtime)| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let app = world.other_process();
        work(&app, &runtime);
        // As a process does before it ends.
        runtime.block_on(app.finish());
    };
    let me = || world.app.caller(&Signals { explicit: Some("s".to_owned()), ..Signals::default() });
    alone(&mut |app, runtime| {
        runtime.block_on(answer(app, &me(), "write_session_plan", json!({"content": plan(9, 0)})));
    });
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                scope.spawn(move || {
                    alone(&mut |app, runtime| {
                        for n in 0..WRITES {
                            let content = json!({"content": plan(writer, n)});
                            let done = runtime.block_on(answer(app, &me(), "write_session_plan", content));
                            assert!(!done.is_error, "{}", done.text);
                        }
                    });
                })
            })
            .collect();
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let text = fs::read_to_string(world.plan_path("s")).expect("never nothing");
                assert!(is_whole(&text), "{} bytes", text.len());
                std::thread::sleep(BETWEEN_READS);
            }
        });
        scope.spawn(|| {
            alone(&mut |app, runtime| {
                while !is_over.load(Ordering::Relaxed) {
                    let read = runtime.block_on(answer(app, &me(), "read_session_plan", json!({})));
                    assert!(!read.is_error && is_whole(&read.text), "{} bytes", read.text.len());
                    std::thread::sleep(BETWEEN_READS);
                }
            });
        });
        let ended: Vec<_> = writers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok));
    });
    alone(&mut |_, runtime| {
        runtime.block_on(async {
            let log = world.log("s").await;
            assert_eq!(log.len(), 2 * WRITES + 1, "each write is one revision, and none is external");
            assert!(log.iter().all(|line| line.contains(" main ")), "{log:?}");
            let events = world.plan_events().await;
            let expected: Vec<String> = (1..=log.len()).map(|n| format!("updated s {n} by main")).collect();
            assert_eq!(events, expected, "each is told once, in order");
            let newest = world.store().plan_revision(&id("s"), log.len() as u64).await;
            let newest = newest.expect("readable").expect("there").content;
            assert_eq!(fs::read_to_string(world.plan_path("s")).expect("there"), newest);
        });
    });
    assert_eq!(world.plan_names(), ["s.md"]);
}
