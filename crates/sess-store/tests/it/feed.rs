//! The feed: one order, each item once, from any position, for everybody.

use sess_store::{Position, SessionPatch, Store};

use crate::support::{
    PATIENCE, Scratch, at, chat, follow, id, plan, run, say, story_so_far, told, wait_until,
};

/// Writes a little of everything.
async fn live(store: &dyn Store, session: &str) {
    store.ensure_session(chat(session)).await.expect("made");
    store.append(&id(session), vec![say("one"), say("two")], None).await.expect("appended");
    store.write_plan(chat(session), plan("plan")).await.expect("written");
    store.announce_plan(&id(session), 1, "/p").await.expect("announced");
    store.patch_session(&id(session), SessionPatch::Title("t".to_owned()), at(9)).await.expect("patched");
    store.append(&id(session), vec![say("three")], None).await.expect("appended");
}

#[test]
fn the_feed_from_any_position_is_the_rest_of_the_whole() {
    let scratch = Scratch::new();
    run(async {
        live(&*scratch.open(), "a").await;
        live(&*scratch.open(), "b").await;
        let store = scratch.open();
        let whole = follow(&*store, Position(0), 1_000).await;
        let one = |session: &str| {
            [
                "created as agent:main:chat:?",
                "1 one",
                "2 two",
                "plan 1 by ann in /p: plan",
                "renamed",
                "3 three",
            ]
            .map(|line| format!("{session} {}", line.replace('?', session)))
        };
        let expected = [one("a"), one("b")].concat();
        assert_eq!(whole.iter().map(told).collect::<Vec<_>>(), expected);
        assert!(whole.is_sorted_by(|one, next| one.position < next.position));
        assert_eq!(store.head().await, Ok(whole.last().expect("an item").position));
        for (index, item) in whole.iter().enumerate() {
            for step in [1, 2, 3, 1_000] {
                assert_eq!(follow(&*store, item.position, step).await, whole[index + 1..]);
            }
        }
        assert_eq!(store.feed(Position(u64::MAX), 10).await, Ok(vec![]));
    });
}

#[test]
fn a_follower_sees_each_item_once_while_two_handles_write() {
    let scratch = Scratch::new();
    run(async {
        let (one, two) = (scratch.open(), scratch.open());
        one.ensure_session(chat("a")).await.expect("made");
        two.ensure_session(chat("b")).await.expect("made");
        let write = |store: std::sync::Arc<dyn Store>, session: &'static str| {
            tokio::spawn(async move {
                for n in 0..100 {
                    store.append(&id(session), vec![say(&n.to_string())], None).await.expect("appended");
                }
            })
        };
        let writers = [write(one, "a"), write(two, "b")];
        let mut seen = Vec::new();
        let mut follower = scratch.open();
        let mut changes = follower.changes();
        while seen.len() < 202 {
            let after = seen.last().map_or(Position(0), |item: &sess_store::FeedItem| item.position);
            let items = follower.feed(after, 7).await.expect("the feed");
            if items.is_empty() {
                tokio::time::timeout(PATIENCE, changes.changed()).await.expect("a notice").expect("open");
            }
            // Across restarts of the follower, too.
            if seen.len() / 50 != (seen.len() + items.len()) / 50 {
                drop(changes);
                drop(follower);
                follower = scratch.open();
                changes = follower.changes();
            }
            seen.extend(items);
        }
        for writer in writers {
            writer.await.expect("a writer");
        }
        assert_eq!(seen, follow(&*follower, Position(0), 1_000).await);
        for session in ["a", "b"] {
            let of_one = seen.iter().map(told).filter(|line| line.starts_with(session)).skip(1);
            let expected = (0..100).map(|n| format!("{session} {} {n}", n + 1));
            assert_eq!(of_one.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        }
    });
}

#[test]
fn a_waiter_is_woken_by_its_own_and_by_others_commits() {
    let scratch = Scratch::new();
    run(async {
        let (mine, theirs) = (scratch.open(), scratch.open());
        mine.ensure_session(chat("a")).await.expect("made");
        for (n, writer) in [&mine, &theirs, &theirs, &mine].into_iter().enumerate() {
            let before = mine.head().await.expect("a head");
            let written = tokio::spawn({
                let writer = std::sync::Arc::clone(writer);
                async move { writer.append(&id("a"), vec![say(&n.to_string())], None).await }
            });
            wait_until(&*mine, "a commit", async || mine.head().await.expect("a head") > before).await;
            written.await.expect("a task").expect("appended");
        }
    });
}

/// The thread that looks for other processes' commits ends with its last waiter.
#[test]
fn notices_come_again_after_all_waiters_had_gone() {
    let scratch = Scratch::new();
    run(async {
        let (mine, theirs) = (scratch.open(), scratch.open());
        theirs.ensure_session(chat("a")).await.expect("made");
        for n in 0..50 {
            let mut changes = mine.changes();
            let head = mine.head().await.expect("a head");
            theirs.append(&id("a"), vec![say(&n.to_string())], None).await.expect("appended");
            while mine.head().await.expect("a head") == head {
                tokio::time::timeout(PATIENCE, changes.changed()).await.expect("a notice").expect("open");
            }
        }
    });
}

#[test]
fn closing_a_store_ends_the_wait_for_it() {
    let scratch = Scratch::new();
    run(async {
        let store = scratch.open();
        let mut changes = store.changes();
        drop(store);
        let waited = async { while changes.changed().await.is_ok() {} };
        tokio::time::timeout(PATIENCE, waited).await.expect("the waiter hears that the store is closed");
        assert_eq!(story_so_far(&*scratch.open()).await, Vec::<String>::new());
    });
}

#[test]
fn large_items_come_in_smaller_parts_and_none_is_skipped() {
    let scratch = Scratch::new();
    run(async {
        let store = scratch.open();
        let large = "x".repeat(9 << 20);
        for n in 1..=4 {
            store.write_plan(chat("a"), plan(&large)).await.expect("written");
            store.announce_plan(&id("a"), n, "/p").await.expect("announced");
            store
                .append(&id("a"), vec![say("short"), say(&large), say("short")], None)
                .await
                .expect("appended");
        }
        let (mut seen, mut parts, mut after) = (Vec::new(), 0, Position(0));
        loop {
            let items = store.feed(after, 1_000).await.expect("the feed");
            let Some(last) = items.last() else { break };
            after = last.position;
            parts += 1;
            seen.extend(items.iter().map(|item| item.position.0));
        }
        assert_eq!(seen, (1..=17).collect::<Vec<_>>(), "one session, four plans, twelve messages");
        assert!(parts > 2, "{parts} parts");

        let page = store.messages(&id("a"), sess_store::Span::Last, 100).await.expect("a page");
        assert!(page.messages.len() < 12 && page.damaged.is_empty());
        assert_eq!(page.messages.last().map(|message| message.seq), Some(12));
    });
}
