//! Many handles, as many processes would be, on one directory.

use std::{
    path::PathBuf,
    sync::{Arc, Barrier},
};

use sess_store::{Position, Span};

use crate::support::{Scratch, chat, follow, id, run, say, transcript};

const HANDLES: usize = 8;

#[test]
fn of_many_that_make_the_store_at_once_all_get_the_same_one() {
    for _ in 0..10 {
        let scratch = Scratch::new();
        let dir = scratch.path().join("new");
        let start = Arc::new(Barrier::new(HANDLES));
        let openers: Vec<_> = (0..HANDLES)
            .map(|n| {
                let (dir, start): (PathBuf, _) = (dir.clone(), Arc::clone(&start));
                std::thread::spawn(move || {
                    start.wait();
                    let store = sess_store::open(&dir).expect("the store opens");
                    run(store.ensure_session(chat(&format!("s{n}")))).expect("made");
                })
            })
            .collect();
        for opener in openers {
            opener.join().expect("an opener");
        }
        let store = sess_store::open(&dir).expect("the store opens");
        let sessions = run(store.list_sessions(&Default::default(), 0, 100)).expect("a list");
        assert_eq!(sessions.len(), HANDLES);
        let left: Vec<_> = std::fs::read_dir(&dir)
            .expect("the directory")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"))
            .filter(|name| name.ends_with(".new"))
            .collect();
        assert_eq!(left, Vec::<String>::new());
    }
}

#[test]
fn eight_handles_append_at_once_and_nobody_is_told_that_it_is_busy() {
    const EACH: usize = 60;
    let scratch = Scratch::new();
    run(async {
        scratch.open().ensure_session(chat("a")).await.expect("made");
        let writers: Vec<_> = (0..HANDLES)
            .map(|n| {
                let store = scratch.open();
                tokio::spawn(async move {
                    let own = format!("own-{n}");
                    store.ensure_session(chat(&own)).await.expect("made");
                    let mut seqs = Vec::new();
                    for m in 0..EACH {
                        let shared = store.append(&id("a"), vec![say(&format!("{n} {m}"))], None).await;
                        seqs.push(shared.expect("appended").last_seq);
                        let two = vec![say(&format!("{m}")), say(&format!("{m}'"))];
                        let alone = store.append(&id(&own), two, None).await.expect("appended");
                        assert_eq!((alone.first_seq, alone.last_seq), (2 * m as u64 + 1, 2 * m as u64 + 2));
                        let page =
                            store.messages(&id("a"), Span::Last, 1).await.expect("read while others write");
                        assert!(
                            page.messages[0].seq >= *seqs.last().expect("one"),
                            "an own write is seen at once"
                        );
                    }
                    assert!(seqs.is_sorted(), "{seqs:?}");
                    seqs
                })
            })
            .collect();
        let mut all = Vec::new();
        for writer in writers {
            all.extend(writer.await.expect("a writer"));
        }
        all.sort_unstable();
        assert_eq!(all, (1..=(HANDLES * EACH) as u64).collect::<Vec<_>>());
        let store = scratch.open();
        assert_eq!(transcript(&*store, "a").await.len(), HANDLES * EACH);
        let items = follow(&*store, Position(0), 100).await;
        assert_eq!(items.len(), HANDLES * EACH * 3 + HANDLES + 1);
    });
    let health = sess_store::health(scratch.path()).expect("healthy");
    assert_eq!(health.damage, Vec::<String>::new());
}

#[test]
fn many_callers_of_one_handle_share_commits_and_each_gets_its_own_answer() {
    let scratch = Scratch::new();
    let store = scratch.open();
    run(async {
        store.ensure_session(chat("a")).await.expect("made");
        let callers: Vec<_> = (0..200)
            .map(|n| {
                let store = Arc::clone(&store);
                tokio::spawn(async move {
                    // Every fourth asks for what cannot be: it must not cost the others.
                    let session = if n % 4 == 0 { id("none") } else { id("a") };
                    let answer = store.append(&session, vec![say(&n.to_string())], None).await;
                    assert_eq!(answer.is_ok(), n % 4 != 0);
                })
            })
            .collect();
        for caller in callers {
            caller.await.expect("a caller");
        }
        let seqs: Vec<u64> = store
            .messages(&id("a"), Span::After(0), 1_000)
            .await
            .expect("a page")
            .messages
            .iter()
            .map(|message| message.seq)
            .collect();
        assert_eq!(seqs, (1..=150).collect::<Vec<_>>());
    });
}

#[test]
fn a_store_that_is_removed_under_a_handle_acknowledges_nothing_more() {
    let scratch = Scratch::new();
    let store = scratch.open();
    run(async {
        store.ensure_session(chat("a")).await.expect("made");
        let away = scratch.path().join("away.db");
        std::fs::rename(scratch.file(), &away).expect("moved");
        let error = store.append(&id("a"), vec![say("x")], None).await.expect_err("nobody would find it");
        assert!(error.to_string().contains("was moved, removed or replaced"), "{error}");
        std::fs::rename(&away, scratch.file()).expect("moved back");
        store.append(&id("a"), vec![say("x")], None).await.expect("work goes on");
    });
}
