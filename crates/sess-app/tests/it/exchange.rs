//! What follows a message between sessions: rounds, announces, late replies.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use sess_app::agents::Channels;
use sess_core::{
    RunId,
    message::Role,
    run::{Errand, RunState},
    session::{Address, Channel},
};
use sess_store::{NewRun, PostState, SessionPatch, Step};
use tokio_util::sync::CancellationToken;

use crate::{
    stage::{Act, Asked, AtWork, Stage, ended, main_of, new_send, node, say, send, tree, world},
    world::{World, now},
};

/// Sends `hello` from `a` to `b`, and returns the runs that this led to.
async fn exchange(world: &World, stage: &Stage, rounds_max: u8) -> Vec<String> {
    let store = world.store();
    let (a, b) = (main_of(&*store, "a").await, main_of(&*store, "b").await);
    let run = send(&*store, &a, &b, "hello", rounds_max, true).await;
    let agents = node(&world.app, stage, 5_000);
    agents.finish_tree(&run.id, &CancellationToken::new()).await.expect("finished");
    tree(&*store, &run.id).await
}

/// Counts on: each says the next number to the other, and announces `done`.
fn counting(asked: &Asked) -> Act {
    if asked.last == "Agent-to-agent announce step." {
        return say("done");
    }
    let heard: u32 = asked.last.rsplit(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
    say(&format!("{} says {}", asked.agent, heard + 1))
}

#[tokio::test]
async fn replies_alternate_for_as_many_rounds_as_are_allowed_then_the_target_announces() {
    for rounds_max in 0..=5_u8 {
        let (world, stage) = (world(|_| {}), Stage::new(counting));
        let mut expected = vec!["b send done".to_owned()];
        for number in 2..=rounds_max + 1 {
            let agent = if number % 2 == 0 { "a" } else { "b" };
            expected.push(format!("{agent} round{number} done"));
        }
        expected.push("b announce done".to_owned());
        assert_eq!(exchange(&world, &stage, rounds_max).await, expected);
        assert_eq!(stage.asked().len(), expected.len());
    }
}

#[tokio::test]
async fn a_reply_to_skip_ends_the_rounds_and_the_announce_knows_the_words_before() {
    let world = world(|_| {});
    let stage = Stage::new(|asked| match asked.last.as_str() {
        "hello" => say("first words"),
        "first words" => say("second words"),
        "second words" => say(" REPLY_SKIP\n"),
        _ => say("ANNOUNCE_SKIP"),
    });
    let runs = exchange(&world, &stage, 5).await;
    assert_eq!(runs, ["b send done", "a round2 done", "b round3 done", "b announce done"]);
    let asked = stage.asked();
    assert!(
        asked[0].system.contains("agent-to-agent") && asked[0].system.contains("agent:a:main"),
        "{asked:?}"
    );
    assert!(asked[1].system.contains("round 2 of at most 6"), "{asked:?}");
    let announce = &asked[3].system;
    for part in ["Original request:\nhello", "Round 1 reply:\nfirst words", "Latest reply:\nsecond words"] {
        assert!(announce.contains(part), "{announce}");
    }
    assert!(world.store().posts(None, 10).await.expect("readable").is_empty());
}

#[tokio::test]
async fn an_empty_or_failed_round_ends_them() {
    for silent in [say(" "), Act::Fail("no".to_owned())] {
        let world = world(|_| {});
        let stage = Stage::new(move |asked| match asked.last.as_str() {
            "hello" => say("hi"),
            "hi" => silent.clone(),
            _ => say("ANNOUNCE_SKIP"),
        });
        let runs = exchange(&world, &stage, 5).await;
        assert_eq!((runs.len(), runs[2].as_str()), (3, "b announce done"), "{runs:?}");
        assert!(runs[1].starts_with("a round2"), "{runs:?}");
    }
}

#[tokio::test]
async fn what_failed_has_no_rounds_and_no_announce_and_what_said_nothing_no_rounds() {
    for (act, runs) in [
        (say("REPLY_SKIP"), 2),
        // A reply without anything fails its run.
        (say(""), 1),
        (say("ANNOUNCE_SKIP"), 1),
        (Act::Fail("no".to_owned()), 1),
    ] {
        let world = world(|_| {});
        let stage = Stage::new(move |_| act.clone());
        assert_eq!(exchange(&world, &stage, 5).await.len(), runs);
    }
}

#[tokio::test]
async fn a_late_reply_finds_the_sender_and_secrets_are_masked_on_the_way() {
    let (world, stage) = (
        world(|_| {}),
        Stage::new(|asked| match asked.last.as_str() {
            "hello" => say("it is sk-abcdefghijklmnopqrstuvwx"),
            _ => say("ANNOUNCE_SKIP"),
        }),
    );
    let store = world.store();
    let (a, b) = (main_of(&*store, "a").await, main_of(&*store, "b").await);
    let run = send(&*store, &a, &b, "hello", 0, true).await;
    // The sender gives up before anybody has answered.
    store.stop_waiting(&run.id).await.expect("recorded");
    let agents = node(&world.app, &stage, 5_000);
    agents.finish_tree(&run.id, &CancellationToken::new()).await.expect("finished");
    let runs = tree(&*store, &run.id).await;
    assert_eq!(runs, ["b send done", "a late done", "b announce done"]);
    let heard = stage.heard();
    assert!(heard.iter().any(|line| line.starts_with("a: it is sk-abc…")), "{heard:?}");
    let known = store.run(&run.id).await.expect("readable").expect("stored");
    assert_eq!(known.result.as_deref(), Some("it is sk-abcdefghijklmnopqrstuvwx"));
}

#[tokio::test]
async fn a_late_reply_that_fills_the_tree_comes_home_without_an_announce() {
    let (world, stage) = (world(|rules| rules.limits.tree_runs = 2), Stage::new(|_| say("words")));
    let store = world.store();
    let (a, b) = (main_of(&*store, "a").await, main_of(&*store, "b").await);
    let run = send(&*store, &a, &b, "hello", 0, true).await;
    store.stop_waiting(&run.id).await.expect("recorded");
    let agents = node(&world.app, &stage, 5_000);
    let stop = CancellationToken::new();
    let finished = tokio::time::timeout(Duration::from_secs(30), agents.finish_tree(&run.id, &stop)).await;
    finished.expect("it does not go on for ever").expect("finished");
    assert_eq!(tree(&*store, &run.id).await, ["b send done", "a late done"]);
}

#[tokio::test]
async fn the_reply_to_a_sender_that_died_while_it_waited_is_late() {
    let world = world(|_| {});
    let stage = Stage::new(|asked| match asked.agent.as_str() {
        "b" if asked.last == "hello" => say("hi"),
        _ => say("ANNOUNCE_SKIP"),
    });
    let store = world.store();
    let (a, b) = (main_of(&*store, "a").await, main_of(&*store, "b").await);
    let agents = node(&world.app, &stage, 5_000);
    let mut child = std::process::Command::new("true").spawn().expect("it starts");
    child.wait().expect("it ends");
    let gone = sess_store::Process { pid: child.id(), started: 1 };
    for (awaited_by, runs) in [
        (Some(gone), &["b send done", "a late done", "b announce done"][..]),
        (Some(sess_store::this_process().expect("a process")), &["b send done", "b announce done"]),
        (None, &["b send done", "a late done", "b announce done"]),
    ] {
        let mut new = crate::stage::new_send(&a, &b, "hello", 0, false);
        let Errand::Send(send) = &mut new.errand else { unreachable!("a send") };
        send.awaited_by = awaited_by;
        let run = store.queue_run(new).await.expect("queued");
        agents.finish_tree(&run.id, &CancellationToken::new()).await.expect("finished");
        assert_eq!(tree(&*store, &run.id).await, runs);
    }
}

#[tokio::test]
async fn a_sender_that_did_not_wait_hears_of_a_failure() {
    let world = world(|_| {});
    let stage = Stage::new(|asked| match asked.agent.as_str() {
        "b" => Act::Fail("out of order".to_owned()),
        _ => say("noted"),
    });
    let store = world.store();
    let (a, b) = (main_of(&*store, "a").await, main_of(&*store, "b").await);
    let run = send(&*store, &a, &b, "hello", 5, false).await;
    let agents = node(&world.app, &stage, 5_000);
    agents.finish_tree(&run.id, &CancellationToken::new()).await.expect("finished");
    assert_eq!(tree(&*store, &run.id).await, ["b send failed", "a late done"]);
    assert!(stage.heard()[1].starts_with("a: Your message got no reply: "), "{:?}", stage.heard());
    assert_eq!(stage.asked()[1].role, Role::User);
}

/// Fails twice, then posts.
#[derive(Default)]
struct Discord(std::sync::Mutex<Vec<String>>, std::sync::atomic::AtomicU32);

#[async_trait]
impl Channels for Discord {
    fn channels(&self) -> Vec<Channel> {
        vec![Channel::Discord]
    }

    async fn post(&self, to: &Address, text: &str) -> Result<(), String> {
        if self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0 {
            return Err("no connection".to_owned());
        }
        let line = format!("{}: {text}", to.to.as_deref().unwrap_or("?"));
        self.0.lock().expect("whole").push(line);
        Ok(())
    }
}

#[expect(clippy::disallowed_methods, reason = "retries are told by the wall clock")]
#[tokio::test]
async fn announces_are_posted_again_until_they_are_delivered() {
    let world = {
        let configured = sess_app::Configured {
            team: Some(crate::stage::team(&["a", "b", "c"])),
            ..sess_app::Configured::default()
        };
        World::with(|settings| {
            settings.configured = sess_app::ConfigSource::fixed(configured);
            // Retries are told by the wall clock.
            settings.now = || {
                let since =
                    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("later");
                sess_core::Timestamp::from_millis_clamped(since.as_millis() as i64)
            };
        })
    };
    let stage = Stage::new(counting);
    let store = world.store();
    let (a, b) = (main_of(&*store, "a").await, main_of(&*store, "b").await);
    let to = Address { channel: Channel::Discord, to: Some("42".to_owned()), account_id: None };
    store.patch_session(&b.id, SessionPatch::Delivery(to), now()).await.expect("patched");
    let run = send(&*store, &a, &b, "hello", 0, true).await;
    let agents = node(&world.app, &stage, 5_000);
    let door = Arc::new(Discord::default());
    agents.connect(Arc::clone(&door) as Arc<dyn Channels>);
    let at_work = AtWork::new(&agents);
    ended(&*store, &run.id).await;
    let delivered = async {
        loop {
            let posts = store.posts(None, 10).await.expect("readable");
            if posts.first().is_some_and(|post| post.state == PostState::Delivered) {
                return posts;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let posts = tokio::time::timeout(Duration::from_secs(20), delivered).await.expect("delivered");
    assert_eq!((posts.len(), posts[0].tries), (1, 2));
    assert_eq!(*door.0.lock().expect("whole"), ["42: done"]);
    at_work.stop().await;
}

/// Sends into a session with a channel, changes it, and returns what became of the post that followed.
async fn posted(change: impl AsyncFnOnce(&dyn sess_store::Store, &sess_core::SessionId)) -> sess_store::Post {
    let (world, stage) = (world(|_| {}), Stage::new(counting));
    let store = world.store();
    let b = main_of(&*store, "b").await;
    let to = Address { channel: Channel::Discord, to: None, account_id: None };
    store.patch_session(&b.id, SessionPatch::Delivery(to), now()).await.expect("patched");
    exchange(&world, &stage, 0).await;
    change(&*store, &b.id).await;

    let agents = node(&world.app, &stage, 5_000);
    let door = Arc::new(Discord::default());
    agents.connect(Arc::clone(&door) as Arc<dyn Channels>);
    let at_work = AtWork::new(&agents);
    let mut changes = store.changes();
    let tried = async {
        loop {
            changes.mark_unchanged();
            let post = store.posts(None, 10).await.expect("readable").remove(0);
            if post.tries > 0 {
                return post;
            }
            changes.changed().await.expect("open");
        }
    };
    let post = tokio::time::timeout(Duration::from_secs(20), tried).await.expect("tried");
    at_work.stop().await;
    assert_eq!(door.1.load(std::sync::atomic::Ordering::Relaxed), 0, "nobody posts it");
    post
}

#[tokio::test]
async fn a_post_that_cannot_be_delivered_any_more_is_given_up_at_once() {
    let post = posted(async |store, session| {
        store.delete_session(session, "owner", now()).await.expect("deleted");
    });
    let post = post.await;
    assert_eq!((post.state, post.tries), (PostState::GivenUp, 1));
    assert_eq!(post.error.as_deref(), Some("its session was deleted"));

    let post = posted(async |store, session| {
        let deny = SessionPatch::SendPolicy(Some(sess_core::session::Sending::Deny));
        store.patch_session(session, deny, now()).await.expect("patched");
    });
    let post = post.await;
    assert_eq!((post.state, post.tries), (PostState::GivenUp, 1));
    assert_eq!(post.error.as_deref(), Some("send blocked by session policy"));
}

#[tokio::test]
async fn the_web_chat_shows_equal_words_as_often_as_they_are_meant_and_reports_once() {
    let (world, stage) = (world(|_| {}), Stage::new(counting));
    let store = world.store();
    let (a, b) = (main_of(&*store, "a").await, main_of(&*store, "b").await);
    let address = Address { channel: Channel::Webchat, to: None, account_id: None };
    store.patch_session(&b.id, SessionPatch::Delivery(address.clone()), now()).await.expect("patched");
    // Three runs each have something to say there. The last has it reported as well, and the report is heard.
    let requests = ["1", "2", "3"].map(|n| new_send(&a, &b, n, 0, false));
    let spoke: Vec<RunId> = requests.iter().map(|run| run.id.clone()).collect();
    let errand = Errand::Report { child: a.key.clone(), of: spoke[2].clone() };
    let report = NewRun { errand, ..new_send(&a, &b, "words", 0, false) };
    let report = store.queue_run(report).await.expect("queued");
    let at_work = AtWork::new(&node(&world.app, &stage, 5_000));
    ended(&*store, &report.id).await;
    at_work.stop().await;
    for request in requests {
        let run = store.queue_run(request).await.expect("queued");
        store.cancel_run(&run.id, now()).await.expect("ended");
        let post = Step::Post { session: b.id.clone(), address: address.clone(), text: "words".to_owned() };
        assert!(store.settle_run(&run.id, vec![post], now()).await.expect("settled"));
    }
    let at_work = AtWork::new(&node(&world.app, &stage, 5_000));
    let mut changes = store.changes();
    let delivered = async {
        loop {
            changes.mark_unchanged();
            let posts = store.posts(None, 10).await.expect("readable");
            if posts.len() == 3 && posts.iter().all(|post| post.state == PostState::Delivered) {
                return;
            }
            changes.changed().await.expect("open");
        }
    };
    tokio::time::timeout(Duration::from_secs(20), delivered).await.expect("delivered");
    at_work.stop().await;
    let page = store.messages(&b.id, sess_store::Span::Last, 100).await.expect("readable");
    let said: Vec<_> = page.messages.iter().map(|message| message.parse().expect("readable")).collect();
    let said = said.iter().filter(|body| body.plain_text() == "words");
    let by: Vec<_> = said.map(|body| (body.role, body.run_id.as_deref())).collect();
    let posted = |n: usize| (Role::Assistant, Some(spoke[n].as_str()));
    assert_eq!(by, [(Role::User, None), posted(0), posted(1)], "the report, and two posts");
}

#[tokio::test]
async fn a_channel_that_may_not_be_written_to_stays_silent() {
    let (world, stage) = (world(|_| {}), Stage::new(counting));
    let store = world.store();
    let b = main_of(&*store, "b").await;
    let to = Address { channel: Channel::Discord, to: None, account_id: None };
    store.patch_session(&b.id, SessionPatch::Delivery(to), now()).await.expect("patched");
    let deny = SessionPatch::SendPolicy(Some(sess_core::session::Sending::Deny));
    store.patch_session(&b.id, deny, now()).await.expect("patched");
    let runs = exchange(&world, &stage, 0).await;
    assert_eq!(runs, ["b send done", "b announce done"]);
    assert!(store.posts(None, 10).await.expect("readable").is_empty());
}

#[tokio::test]
async fn another_node_goes_on_where_one_was_killed_and_repeats_nothing() {
    // The first node is killed after each number of model calls in turn.
    for calls in 1..=7 {
        let world = world(|_| {});
        let stage = Stage::new(counting);
        let store = world.store();
        let (a, b) = (main_of(&*store, "a").await, main_of(&*store, "b").await);
        let run = send(&*store, &a, &b, "hello", 5, true).await;
        let first = AtWork::new(&node(&world.other_process(), &stage, 200));
        while stage.asked().len() < calls {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        first.kill().await;
        let second = node(&world.app, &stage, 200);
        second.finish_tree(&run.id, &CancellationToken::new()).await.expect("finished");
        let runs = store.runs_below(&run.id, 100).await.expect("readable");
        assert!(runs.iter().all(crate::stage::has_ended), "{runs:?}");
        for run in &runs {
            let page = store.messages(&run.session, sess_store::Span::Last, 100).await.expect("readable");
            let replies = page.messages.iter().filter(|message| {
                let body = message.parse().expect("readable");
                body.role == Role::Assistant && body.run_id.as_deref() == Some(run.id.as_str())
            });
            let replies = replies.count();
            assert_eq!(replies, usize::from(run.state == RunState::Done), "{run:?}");
        }
        // Only what was not recorded was asked again, and that is at most the call during the kill.
        assert!(stage.asked().len() <= runs.len() + 1, "{:?}", stage.heard());
    }
}
