//! Messages between sessions: limits, inboxes, what follows a run, seats and posts.

use std::time::Duration;

use sess_core::{
    RunId,
    message::{Provenance, Role, Usage},
    run::{Delivery, Errand, Lineage, Outcome, Run, RunState},
    session::{Address, Channel, NewSession},
};
use sess_store::{
    Cap, Ending, Error, Full, Glance, LastReply, Lease, NewRun, PostState, PostTried, Seat, Step, Store,
};

use crate::support::{
    Scratch, agent, ask, at, below, boot, chat, done, hosted, id, key, lease, run, run_id, say, say_as, send,
    story_so_far, transcript,
};

/// Executes the next run of a session to its end; returns it.
async fn execute(store: &dyn Store, session: &str, result: &str) -> Run {
    let held = lease("t", 100);
    let leased = store.lease_run(&id(session), &[agent("main")], held.clone(), at(5_000)).await;
    let leased = leased.expect("an answer").expect("something is due");
    store.end_run(&leased.id, &held, vec![], done(result), at(6_000)).await.expect("ended");
    store.run(&leased.id).await.expect("read").expect("it is there")
}

async fn unsettled(store: &dyn Store) -> Vec<RunId> {
    store.unsettled_runs(99).await.expect("read").into_iter().map(|run| run.id).collect()
}

/// A sub-session of the chat `parent`.
fn child(name: &str, parent: &str) -> NewSession {
    NewSession { parent: Some(chat(parent).key), ..chat(name) }
}

#[test]
fn a_cap_is_checked_where_the_run_is_queued_and_a_retry_comes_first() {
    let scratch = Scratch::new();
    run(async {
        let store = scratch.open();
        let queue =
            |n| NewRun { caps: vec![Cap::Queue { most: 2 }], key: key(&format!("k{n}"), "f"), ..ask(n, "a") };
        let first = store.queue_run(queue(1)).await.expect("queued");
        store.queue_run(queue(2)).await.expect("queued");
        let full = Error::Full(Full::Queue { waiting: 2, most: 2 });
        assert_eq!(store.queue_run(queue(3)).await, Err(full.clone()));
        let retried = NewRun { key: key("k1", "f"), ..queue(9) };
        assert_eq!(store.queue_run(retried).await, Ok(first), "it is there already");
        execute(&*store, "a", "x").await;
        store.queue_run(queue(3)).await.expect("there is room again");
        // An inbox is a queue, too.
        let sent = |n| NewRun { session: hosted("h"), key: None, ..queue(n) };
        store.queue_run(NewRun { session: hosted("h"), ..sent(11) }).await.expect("queued");
        store.queue_run(sent(12)).await.expect("queued");
        assert_eq!(store.queue_run(sent(13)).await, Err(full));

        let parent = chat("a").key;
        let spawn = |n: u64, most| NewRun {
            session: child(&format!("c{n}"), "a"),
            caps: vec![Cap::Children { parent: parent.clone(), most }],
            ..ask(n, "unused")
        };
        store.queue_run(spawn(21, 2)).await.expect("queued");
        store.queue_run(spawn(22, 2)).await.expect("queued");
        let full = Error::Full(Full::Children { live: 2, most: 2 });
        assert_eq!(store.queue_run(spawn(23, 2)).await, Err(full));
        assert_eq!(store.session(&id("c23")).await, Ok(None), "nothing of it is there");
        execute(&*store, "c21", "x").await;
        store.queue_run(spawn(23, 2)).await.expect("one has ended");

        let led = |n| NewRun { lineage: below(1), caps: vec![Cap::Tree { most: 3 }], ..ask(n, "b") };
        store.queue_run(led(31)).await.expect("queued");
        store.queue_run(led(32)).await.expect("queued");
        let full = Error::Full(Full::Tree { runs: 3, most: 3 });
        assert_eq!(store.queue_run(led(33)).await, Err(full), "the root counts");
        let tree = store.runs_below(&run_id(1), 9).await.expect("read");
        let ids: Vec<RunId> = tree.into_iter().map(|run| run.id).collect();
        assert_eq!(ids, [run_id(1), run_id(31), run_id(32)]);
        assert_eq!(store.runs_below(&run_id(1), 2).await.expect("read").len(), 2);
        assert_eq!(store.runs_below(&run_id(77), 2).await, Ok(vec![]));
    });
    assert_eq!(sess_store::health(scratch.path()).expect("healthy").damage, Vec::<String>::new());
}

#[test]
fn a_run_that_never_began_is_queued_again_three_times_in_its_place() {
    let scratch = Scratch::new();
    run(async {
        let store = scratch.open();
        store.queue_run(ask(1, "a")).await.expect("queued");
        store.queue_run(ask(2, "a")).await.expect("queued");
        for attempt in 1..=4 {
            let held = lease("t", 100);
            let leased = store.lease_run(&id("a"), &[agent("main")], held, at(5_000)).await;
            assert_eq!(leased.expect("leased").map(|run| run.id), Some(run_id(1)), "{attempt}");
            let settled = store.settle_lapsed_runs(&boot("b", 100), at(7_000)).await.expect("settled");
            let state = if attempt < 4 { RunState::Queued } else { RunState::Aborted };
            assert_eq!((settled[0].state, settled.len()), (state, 1), "{attempt}");
            assert_eq!(settled[0].started_at.is_some(), attempt == 4);
        }
        assert_eq!(transcript(&*store, "a").await, ["1 ask 1"], "the request is there once");
        execute(&*store, "a", "x").await;
        // What has written something has begun.
        store.queue_run(ask(3, "b")).await.expect("queued");
        let held = lease("t", 100);
        store.lease_run(&id("b"), &[agent("main")], held.clone(), at(5_000)).await.expect("leased");
        store.append_in_run(&run_id(3), &held, vec![say("thinking")]).await.expect("appended");
        let settled = store.settle_lapsed_runs(&boot("b", 100), at(7_000)).await.expect("settled");
        assert_eq!(settled[0].state, RunState::Aborted);
    });
}

#[test]
fn an_inbox_hands_out_what_was_sent_until_it_is_answered() {
    let scratch = Scratch::new();
    run(async {
        let store = scratch.open();
        let mut message = say("hello");
        let provenance = Provenance::InterSession {
            source_session_key: chat("a").key,
            source_channel: None,
            source_tool: Some("sessions_send".to_owned()),
        };
        message.body.provenance = Some(provenance.clone());
        let sent = NewRun { session: hosted("h"), messages: vec![message], errand: send("a"), ..ask(1, "h") };
        store.queue_run(sent).await.expect("queued");
        let report = Errand::Report { child: chat("c").key, of: run_id(7) };
        store
            .queue_run(NewRun { session: hosted("h"), errand: report, ..ask(2, "h") })
            .await
            .expect("queued");
        let leased = store.lease_run(&id("h"), &[agent("main")], lease("t", 9), at(5)).await;
        assert_eq!(leased, Ok(None), "we do not run it");
        assert_eq!(store.due_sessions(&[agent("main")], "n", None, 9).await, Ok(vec![]));

        let items = store.open_inbox(&id("h"), 9, at(5_000)).await.expect("opened");
        assert_eq!(items.iter().map(|item| &*item.message).collect::<Vec<_>>(), ["hello", "ask 2"]);
        assert_eq!(items[0].provenance, Some(provenance));
        assert_eq!((items[0].run.state, items[0].run.delivery()), (RunState::Queued, Delivery::Delivered));
        assert_eq!(items[1].run.state, RunState::Queued, "who got it may not have seen it");
        assert_eq!(transcript(&*store, "h").await, ["1 hello", "2 ask 2"]);
        let again = store.open_inbox(&id("h"), 9, at(6_000)).await.expect("opened");
        assert_eq!(again[0], items[0]);
        assert_eq!((&again[1].run.id, again[1].run.state), (&items[1].run.id, RunState::Done));
        let before = story_so_far(&*store).await;
        let again = store.open_inbox(&id("h"), 9, at(6_000)).await.expect("opened");
        assert_eq!(again, items[..1], "a report wants no reply, and was seen");
        assert_eq!(story_so_far(&*store).await, before, "nothing is written twice");

        let reply = || say_as(sess_core::message::Role::Assistant, "hi back", 3_000);
        let elsewhere = store.reply_to(&run_id(1), &id("a"), reply(), at(7_000)).await;
        assert_eq!(elsewhere, Err(Error::NoRun(run_id(1))));
        let ended = store.reply_to(&run_id(1), &id("h"), reply(), at(7_000)).await.expect("answered");
        assert_eq!((ended.state, ended.result.as_deref()), (RunState::Done, Some("hi back")));
        assert_eq!(transcript(&*store, "h").await, ["1 hello", "2 ask 2", "3 hi back"]);
        let twice = store.reply_to(&run_id(1), &id("h"), reply(), at(8_000)).await;
        let sentence = format!("run {} was answered already: it is done", run_id(1));
        assert_eq!(twice, Err(Error::Conflict(sentence)));
        assert_eq!(store.open_inbox(&id("h"), 9, at(9_000)).await, Ok(vec![]));
        assert_eq!(unsettled(&*store).await, [run_id(1), run_id(2)]);
    });
    assert_eq!(sess_store::health(scratch.path()).expect("healthy").damage, Vec::<String>::new());
}

#[test]
fn what_follows_a_run_is_committed_once() {
    let scratch = Scratch::new();
    run(async {
        let (store, other) = (scratch.open(), scratch.open());
        store.queue_run(NewRun { errand: send("b"), ..ask(1, "a") }).await.expect("queued");
        store.queue_run(ask(2, "plain")).await.expect("queued");
        let early = store.settle_run(&run_id(1), vec![], at(1)).await;
        assert_eq!(
            early,
            Err(Error::Conflict(format!("nothing follows run {} yet: it is queued", run_id(1))))
        );
        execute(&*store, "a", "reply").await;
        execute(&*store, "plain", "x").await;
        assert_eq!(unsettled(&*store).await, [run_id(1)], "nothing follows a message");
        store.ensure_session(child("c", "a")).await.expect("made");
        let steps = || {
            let next = NewRun { lineage: below(1), ..ask(3, "b") };
            let address = Address { channel: Channel::Telegram, to: None, account_id: None };
            vec![
                Step::Queue(Box::new(next)),
                Step::Post { session: id("a"), address, text: "words".to_owned() },
                Step::Delete { session: id("c"), by: "cleanup".to_owned() },
                Step::Delete { session: id("none"), by: "cleanup".to_owned() },
            ]
        };
        let first = run_id(1);
        let twice = tokio::join!(
            store.settle_run(&first, steps(), at(7_000)),
            other.settle_run(&first, steps(), at(7_000))
        );
        assert!(matches!(twice, (Ok(true), Ok(false)) | (Ok(false), Ok(true))), "{twice:?}");
        assert_eq!(unsettled(&*store).await, []);
        assert_eq!(store.posts(None, 9).await.expect("read").len(), 1);
        assert_eq!(store.session(&id("c")).await, Ok(None));
        assert!(store.session(&id("b")).await.expect("read").is_some());
        assert_eq!(store.run(&run_id(3)).await.expect("read").expect("queued").lineage, below(1));
        // A step that cannot be takes all of them back.
        store.queue_run(NewRun { errand: send("b"), ..ask(4, "a") }).await.expect("queued");
        execute(&*store, "a", "reply").await;
        let impossible = vec![Step::Queue(Box::new(ask(5, "new"))), Step::Queue(Box::new(ask(5, "new")))];
        let refused = store.settle_run(&run_id(4), impossible, at(8_000)).await;
        assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
        assert_eq!(store.run(&run_id(5)).await, Ok(None));
        let caps = vec![Cap::Queue { most: 0 }];
        let full = vec![Step::Queue(Box::new(NewRun { caps, ..ask(5, "new") }))];
        let refused = store.settle_run(&run_id(4), full, at(8_000)).await;
        assert!(matches!(refused, Err(Error::Full(_))), "{refused:?}");
        assert_eq!(unsettled(&*store).await, [run_id(4)]);
        // A session that is busy, or that something still follows, is deleted later.
        let delete = || {
            let next = Step::Queue(Box::new(ask(6, "d")));
            vec![next, Step::Delete { session: id("b"), by: "cleanup".to_owned() }]
        };
        let busy = store.settle_run(&run_id(4), delete(), at(8_000)).await;
        assert!(matches!(busy, Err(Error::Conflict(_))), "{busy:?}");
        execute(&*store, "b", "done").await;
        store.queue_run(NewRun { errand: send("a"), ..ask(7, "b") }).await.expect("queued");
        execute(&*store, "b", "done").await;
        let open = Err(Error::Conflict("something still follows a run of session b".to_owned()));
        assert_eq!(store.settle_run(&run_id(4), delete(), at(8_000)).await, open);
        assert_eq!(store.run(&run_id(6)).await, Ok(None));
        assert_eq!(unsettled(&*store).await, [run_id(4), run_id(7)]);
        assert_eq!(store.settle_run(&run_id(7), vec![], at(8_000)).await, Ok(true));
        assert_eq!(store.settle_run(&run_id(4), delete(), at(8_000)).await, Ok(true));
        assert_eq!(store.session(&id("b")).await, Ok(None));
    });
}

#[test]
fn whoever_stops_waiting_gets_the_outcome_or_is_found_by_it_later() {
    let scratch = Scratch::new();
    run(async {
        let store = scratch.open();
        for n in 1..=2 {
            store.queue_run(NewRun { errand: send("b"), ..ask(n, "a") }).await.expect("queued");
        }
        execute(&*store, "a", "in time").await;
        let is_awaited = |run: &Run| matches!(&run.errand, Errand::Send(send) if send.awaited_by.is_some());
        let ended = store.stop_waiting(&run_id(1)).await.expect("an answer");
        assert_eq!((ended.result.as_deref(), is_awaited(&ended)), (Some("in time"), true));
        let open = store.stop_waiting(&run_id(2)).await.expect("an answer");
        assert_eq!((open.state, is_awaited(&open)), (RunState::Queued, false));
        assert!(!is_awaited(&execute(&*store, "a", "late").await), "it stays recorded");
        assert_eq!(store.stop_waiting(&run_id(9)).await, Err(Error::NoRun(run_id(9))));
    });
}

#[test]
fn a_run_ends_with_what_follows_it_unless_that_was_decided_on_another_errand() {
    let scratch = Scratch::new();
    run(async {
        let store = scratch.open();
        for n in 1..=3 {
            store.queue_run(NewRun { errand: send("b"), ..ask(n, "a") }).await.expect("queued");
        }
        let next = |n| vec![Step::Queue(Box::new(NewRun { lineage: below(1), ..ask(n, "b") }))];
        let ending = |steps| Ending {
            messages: vec![],
            outcome: done("reply"),
            at: at(6_000),
            follow_up: Some((send("b"), steps)),
            stands_up: false,
        };
        let mut settled = Vec::new();
        for (n, steps) in [(1, next(11)), (2, next(12)), (3, [next(13), next(13)].concat())] {
            let held = lease(&format!("t{n}"), 60_000);
            store.lease_run(&id("a"), &[agent("main")], held.clone(), at(5_000)).await.expect("leased");
            if n == 2 {
                store.stop_waiting(&run_id(n)).await.expect("recorded");
            }
            settled.push(store.end_run_with(&run_id(n), &held, ending(steps)).await.expect("ended"));
        }
        assert_eq!(settled, [true, false, false]);
        assert_eq!(unsettled(&*store).await, [run_id(2), run_id(3)], "steps that cannot be cost themselves");
        for (n, is_there) in [(11, true), (12, false), (13, false)] {
            assert_eq!(store.run(&run_id(n)).await.expect("read").is_some(), is_there, "{n}");
        }
    });
}

#[test]
fn a_seat_is_taken_and_given_up_with_a_run() {
    let scratch = Scratch::new();
    run(async {
        let store = scratch.open();
        let until = sess_store::boot_time().expect("a clock").plus(60_000);
        let process = sess_store::this_process().expect("a process");
        let seat = |node: &str| Seat { node: node.to_owned(), until: until.clone(), process };
        let held = Lease { node: "here".to_owned(), ..lease("t", 60_000) };
        let here = async |n| store.queue_run_seated(ask(n, "a"), seat("here"), held.clone()).await;
        let first = here(1).await.expect("queued");
        assert!(first.is_leased, "nothing is ahead of it");
        assert_eq!(Ok(Some(&first.run)), store.run(&run_id(1)).await.as_ref().map(Option::as_ref));
        assert_eq!(first.run.state, RunState::Running);
        assert_eq!(store.session(&id("a")).await.expect("read").expect("there").last_seq, 1, "its request");
        let there = Lease { node: "there".to_owned(), ..lease("t2", 60_000) };
        let second = store.queue_run_seated(ask(2, "a"), seat("there"), there).await.expect("queued");
        assert!(!second.is_leased, "another has the seat");
        assert!(!here(3).await.expect("queued").is_leased, "two are ahead of it");
        assert_eq!(store.seat(&id("a")).await, Ok(Some(seat("here"))), "who came first has it");
        for (n, stands_up, left) in [(1, false, Some(seat("here"))), (2, true, None)] {
            if n > 1 {
                store.lease_run(&id("a"), &[agent("main")], held.clone(), at(5_000)).await.expect("leased");
            }
            let (messages, outcome) = (vec![], done("ok"));
            let ending = Ending { messages, outcome, at: at(6_000), follow_up: None, stands_up };
            store.end_run_with(&run_id(n), &held, ending).await.expect("ended");
            assert_eq!(store.seat(&id("a")).await, Ok(left));
        }
    });
}

#[test]
fn a_glance_tells_what_goes_on_however_much_waits() {
    let scratch = Scratch::new();
    run(async {
        let store = scratch.open();
        let glance = async |name: &str| {
            store.glances(&[id("none"), id(name)]).await.expect("read").pop().expect("as many as asked for")
        };
        assert_eq!(glance("a").await, Glance::default());
        for n in 1..=30 {
            store.queue_run(ask(n, "a")).await.expect("queued");
        }
        assert_eq!(glance("a").await, Glance { is_queued: true, ..Glance::default() });
        store.cancel_run(&run_id(1), at(1)).await.expect("cancelled");
        assert_eq!(glance("a").await.last_ended, Some((RunState::Cancelled, false)));
        let held = lease("t", 100);
        store.lease_run(&id("a"), &[agent("main")], held.clone(), at(5)).await.expect("leased");
        let outcome = Outcome { state: RunState::Aborted, ..done("x") };
        let mut reply = say_as(Role::Assistant, "words", 6);
        reply.body.model = Some("m".to_owned());
        reply.body.usage = Some(Usage { input: 3, ..Usage::default() });
        store.end_run(&run_id(2), &held, vec![reply, say("more")], outcome, at(6)).await.expect("ended");
        store.lease_run(&id("a"), &[agent("main")], held, at(7)).await.expect("leased");
        let usage = Some(Usage { input: 3, ..Usage::default() });
        let expected = Glance {
            is_running: true,
            is_queued: true,
            was_started: true,
            last_ended: Some((RunState::Aborted, true)),
            last_reply: Some(LastReply { model: "m".to_owned(), usage }),
        };
        assert_eq!(glance("a").await, expected);
        store.queue_run(NewRun { session: hosted("h"), ..ask(40, "h") }).await.expect("queued");
        assert_eq!(glance("h").await, Glance { is_queued: true, ..Glance::default() });
    });
}

#[test]
fn a_tree_is_open_while_something_in_it_can_come_to_its_end() {
    let scratch = Scratch::new();
    run(async {
        let store = scratch.open();
        let is_open = async |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| agent(name)).collect();
            store.is_tree_open(&run_id(1), &names).await.expect("read")
        };
        assert!(!is_open(&["main"]).await);
        store.queue_run(NewRun { errand: send("b"), ..ask(1, "a") }).await.expect("queued");
        assert!(is_open(&["main"]).await);
        assert!(!is_open(&["other"]).await, "nobody here can execute it");
        let held = lease("t", 100);
        store.lease_run(&id("a"), &[agent("main")], held.clone(), at(5)).await.expect("leased");
        assert!(is_open(&["other"]).await, "somebody else does");
        store.end_run(&run_id(1), &held, vec![], done("x"), at(6)).await.expect("ended");
        assert!(is_open(&["other"]).await, "something follows");
        let next = NewRun { session: hosted("h"), lineage: below(1), ..ask(2, "h") };
        store.settle_run(&run_id(1), vec![Step::Queue(Box::new(next))], at(7)).await.expect("settled");
        assert!(!is_open(&["main"]).await, "what is left waits in an inbox");
        store.queue_run(NewRun { lineage: below(1), ..ask(3, "c") }).await.expect("queued");
        store.queue_run(ask(4, "d")).await.expect("queued");
        assert!(is_open(&["main"]).await && !is_open(&["other"]).await);
        let until = sess_store::boot_time().expect("a clock").plus(60_000);
        let process = sess_store::this_process().expect("a process");
        store.sit(&id("c"), Seat { node: "n".to_owned(), until, process }).await.expect("seated");
        assert!(is_open(&["other"]).await, "who sits there can execute it");
    });
}

#[test]
fn what_is_due_is_found_behind_any_number_of_sessions_that_are_not() {
    let scratch = Scratch::new();
    run(async {
        let store = scratch.open();
        for n in 0..150 {
            let blocked = format!("blocked-{n}");
            store
                .queue_run(NewRun { agent: agent("other"), ..ask(2 * n + 1, &blocked) })
                .await
                .expect("queued");
            store.queue_run(ask(2 * n + 2, &blocked)).await.expect("queued");
        }
        for (n, name) in [(901, "due"), (902, "due"), (903, "due too")] {
            store.queue_run(ask(n, &name.replace(' ', "-"))).await.expect("queued");
        }
        let main = [agent("main")];
        assert_eq!(
            store.due_sessions(&main, "n", None, 9).await,
            Ok(vec![id("due"), id("due-too")]),
            "the longest waiting first"
        );
        assert_eq!(store.due_sessions(&main, "n", None, 1).await, Ok(vec![id("due")]));
        assert_eq!(store.due_sessions(&main, "n", Some(&run_id(903)), 9).await, Ok(vec![id("due-too")]));
    });
}

#[test]
fn what_finds_nothing_to_do_wakes_nobody() {
    let scratch = Scratch::new();
    run(async {
        let store = scratch.open();
        store.queue_run(NewRun { errand: send("b"), ..ask(1, "a") }).await.expect("queued");
        execute(&*store, "a", "reply").await;
        store.settle_run(&run_id(1), vec![], at(7_000)).await.expect("settled");
        let mut changes = store.changes();
        // Other processes' commits are looked for now and then, and the first look is told.
        while tokio::time::timeout(Duration::from_millis(150), changes.changed()).await.is_ok() {}
        assert_eq!(store.settle_run(&run_id(1), vec![], at(8_000)).await, Ok(false));
        store.stop_waiting(&run_id(1)).await.expect("an answer");
        store.cancel_run(&run_id(1), at(8_000)).await.expect("an answer");
        store.stand_up(&id("a"), "nobody").await.expect("nobody sat there");
        assert!(!changes.has_changed().expect("open"));
        store.queue_run(ask(2, "a")).await.expect("queued");
        assert!(changes.has_changed().expect("open"));
    });
}

#[test]
fn a_seated_session_is_executed_by_whoever_sits_there() {
    let scratch = Scratch::new();
    run(async {
        let store = scratch.open();
        let main = [agent("main")];
        store.queue_run(ask(1, "a")).await.expect("queued");
        store.queue_run(NewRun { lineage: below(1), ..ask(2, "b") }).await.expect("queued");
        store.queue_run(ask(3, "c")).await.expect("queued");
        let now = sess_store::boot_time().expect("a boot time");
        let process = sess_store::this_process().expect("this process");
        let seat = |node: &str, ms| Seat { node: node.to_owned(), until: now.plus(ms), process };
        store.sit(&id("a"), seat("one", 600_000)).await.expect("taken");
        let refused = store.sit(&id("a"), seat("two", 600_000)).await;
        assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
        let due = async |node: &str, root: Option<u64>| {
            let found = store.due_sessions(&main, node, root.map(run_id).as_ref(), 9).await.expect("read");
            found.iter().map(|id| id.as_str().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(due("one", None).await, ["a", "b", "c"]);
        assert_eq!(due("two", None).await, ["b", "c"]);
        assert_eq!(due("one", Some(1)).await, ["a", "b"], "what the root led to");
        assert_eq!(store.due_sessions(&[agent("x")], "one", None, 9).await, Ok(vec![]));
        assert_eq!(store.due_sessions(&main, "one", None, 1).await, Ok(vec![id("a")]));
        let by = |node: &str| Lease { node: node.to_owned(), ..lease("t", 100) };
        assert_eq!(store.lease_run(&id("a"), &main, by("two"), at(5)).await, Ok(None));
        // Sitting down elsewhere is possible once the lease is over, or it was given up.
        store.stand_up(&id("a"), "two").await.expect("not its own");
        assert_eq!(store.seat(&id("a")).await, Ok(Some(seat("one", 600_000))));
        store.stand_up(&id("a"), "one").await.expect("given up");
        assert_eq!(store.seat(&id("a")).await, Ok(None));
        let lapsed = Seat { until: boot("an earlier boot", 9), ..seat("one", 0) };
        store.sit(&id("a"), lapsed).await.expect("taken");
        assert_eq!(store.seat(&id("a")).await, Ok(None));
        store.sit(&id("a"), seat("two", 600_000)).await.expect("taken over");
        assert!(store.lease_run(&id("a"), &main, by("two"), at(5)).await.expect("an answer").is_some());
        assert_eq!(store.sit(&id("none"), seat("one", 1)).await, Err(Error::NoSession(id("none"))));
    });
}

#[test]
fn a_post_is_tried_by_one_at_a_time_until_it_is_delivered_or_given_up() {
    let scratch = Scratch::new();
    run(async {
        let store = scratch.open();
        let post = |channel, text: &str| {
            let address = Address { channel, to: Some("42".to_owned()), account_id: None };
            Step::Post { session: id("a"), address, text: text.to_owned() }
        };
        store.queue_run(NewRun { errand: send("b"), ..ask(1, "a") }).await.expect("queued");
        execute(&*store, "a", "x").await;
        let steps = vec![post(Channel::Telegram, "one"), post(Channel::Signal, "two")];
        store.settle_run(&run_id(1), steps, at(1_000)).await.expect("settled");
        let now = sess_store::boot_time().expect("a boot time");
        let mine = |token: &str| Lease { until: now.plus(600_000), ..lease(token, 0) };
        let both = [Channel::Signal, Channel::Telegram];
        let take = async |token: &str, ms: i64| {
            let taken = store.take_post(&both, mine(token), at(ms)).await.expect("an answer");
            taken.map(|post| post.text)
        };
        assert_eq!(take("t", 999).await, None, "not yet");
        let first = store.take_post(&both, mine("t"), at(1_000)).await.expect("an answer").expect("due");
        assert_eq!((&*first.text, &first.run, first.state), ("one", &run_id(1), PostState::Waiting));
        assert_eq!(take("u", 1_000).await.as_deref(), Some("two"));
        assert_eq!(take("v", 1_000).await, None, "each is being tried");
        let failed = |retry_at| PostTried::Failed { error: "no net".to_owned(), retry_at };
        let other = store.end_post(first.id, &mine("v"), PostTried::Delivered, at(2_000)).await;
        assert!(matches!(other, Err(Error::Conflict(_))), "{other:?}");
        store.end_post(first.id, &mine("t"), failed(Some(at(5_000))), at(2_000)).await.expect("noted");
        assert_eq!(take("t", 4_999).await, None);
        // One whose holder is gone is taken by another.
        let gone = store.take_post(&both, lease("gone", 1), at(5_000)).await.expect("an answer");
        assert_eq!(gone.map(|post| (post.text, post.tries)), Some(("one".to_owned(), 1)));
        assert_eq!(take("t", 5_000).await.as_deref(), Some("one"));
        store.end_post(first.id, &mine("t"), PostTried::Delivered, at(6_000)).await.expect("noted");
        store.end_post(first.id + 1, &mine("u"), failed(None), at(6_000)).await.expect("noted");
        assert_eq!(take("t", 99_000).await, None);
        let posts = store.posts(Some(&id("a")), 9).await.expect("read");
        let shown: Vec<_> = posts.iter().map(|post| (&*post.text, post.state, post.tries)).collect();
        assert_eq!(shown, [("two", PostState::GivenUp, 1), ("one", PostState::Delivered, 2)]);
        assert_eq!(posts[0].error.as_deref(), Some("no net"));
        assert_eq!(store.posts(None, 1).await.expect("read").len(), 1);
    });
    assert_eq!(sess_store::health(scratch.path()).expect("healthy").damage, Vec::<String>::new());
}

#[test]
fn what_a_run_used_counts_for_its_session_and_all_above_it() {
    let scratch = Scratch::new();
    run(async {
        let store = scratch.open();
        // Two that name each other as parents: a loop that must end.
        store.ensure_session(child("x", "y")).await.expect("made");
        store.ensure_session(child("y", "x")).await.expect("made");
        store.ensure_session(chat("a")).await.expect("made");
        store.ensure_session(child("b", "a")).await.expect("made");
        for (n, session) in [(1, child("c", "b")), (2, chat("a")), (3, child("x", "y"))] {
            let name = session.id.to_string();
            store.queue_run(NewRun { session, ..ask(n, "unused") }).await.expect("queued");
            execute(&*store, &name, "x").await;
        }
        let spent = async |name: &str| {
            let session = store.session(&id(name)).await.expect("read").expect("made");
            (session.spent.tokens, session.spent.cost)
        };
        assert_eq!(spent("c").await, (7, Some(0.1)));
        assert_eq!(spent("b").await, (7, Some(0.1)));
        assert_eq!(spent("a").await, (14, Some(0.2)));
        assert_eq!((spent("x").await, spent("y").await), ((7, Some(0.1)), (7, Some(0.1))));
        // Without a price, what was spent stays unknown.
        store.queue_run(ask(4, "free")).await.expect("queued");
        let held = lease("t", 100);
        store.lease_run(&id("free"), &[agent("main")], held.clone(), at(5)).await.expect("leased");
        let mut outcome = Outcome { state: RunState::Failed, ..done("x") };
        outcome.usage.cost = None;
        store.end_run(&run_id(4), &held, vec![], outcome, at(6)).await.expect("ended");
        assert_eq!(spent("free").await, (7, None));
    });
}

#[test]
fn a_salvaged_store_keeps_errands_lineage_and_posts_and_has_nothing_open() {
    let scratch = Scratch::new();
    run(async {
        let store = scratch.open();
        store.queue_run(NewRun { errand: send("b"), ..ask(1, "a") }).await.expect("queued");
        execute(&*store, "a", "reply").await;
        let address = Address { channel: Channel::Signal, to: None, account_id: None };
        let post = Step::Post { session: id("a"), address, text: "words".to_owned() };
        store.settle_run(&run_id(1), vec![post], at(1_000)).await.expect("settled");
        let lineage = Lineage { root: run_id(1), parent: Some(run_id(1)), hops: 3 };
        let sent = NewRun { session: hosted("h"), lineage, errand: send("a"), ..ask(2, "h") };
        store.queue_run(sent).await.expect("queued");
        store.open_inbox(&id("h"), 9, at(5_000)).await.expect("opened");
        store.ensure_session(chat("gone")).await.expect("made");
        store.append(&id("gone"), vec![say("secret words")], None).await.expect("appended");
        store.queue_run(NewRun { messages: vec![], ..ask(3, "gone") }).await.expect("queued");
        execute(&*store, "gone", "kept").await;
        store.delete_session(&id("gone"), "test", at(9_000)).await.expect("deleted");
    });
    let target = Scratch::new();
    let salvaged = run(sess_store::salvage(scratch.path(), target.path())).expect("salvaged");
    assert_eq!((salvaged.sessions, salvaged.runs, salvaged.lost), (2, 3, 0));
    assert_eq!(sess_store::health(target.path()).expect("healthy").damage, Vec::<String>::new());
    run(async {
        let (old, new) = (scratch.open(), target.open());
        for n in [1, 3] {
            assert_eq!(new.run(&run_id(n)).await, old.run(&run_id(n)).await);
        }
        let before = old.run(&run_id(2)).await.expect("read").expect("there");
        let after = new.run(&run_id(2)).await.expect("read").expect("there");
        assert_eq!((after.errand, after.lineage), (before.errand, before.lineage));
        assert_eq!((after.state, after.handed_over_at), (RunState::Aborted, Some(at(5_000))));
        assert_eq!(unsettled(&*new).await, []);
        assert_eq!(new.open_inbox(&id("h"), 9, at(1)).await, Ok(vec![]));
        assert_eq!(new.posts(None, 9).await, old.posts(None, 9).await);
        for name in ["a", "h"] {
            let (before, after) = (old.session(&id(name)).await, new.session(&id(name)).await);
            let kept = |session: &sess_core::session::Session| (session.facts.clone(), session.spent);
            let (before, after) =
                (before.expect("read").expect("there"), after.expect("read").expect("there"));
            assert_eq!(kept(&after), kept(&before));
        }
        assert_eq!(new.session(&id("gone")).await, Ok(None), "what was deleted stays deleted");
    });
}
