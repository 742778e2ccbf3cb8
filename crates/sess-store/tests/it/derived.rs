//! What is made from the messages and can be made again: mirror and search index.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use sess_store::{Matching, SearchQuery, Span, Store, Term};

use crate::support::{Scratch, chat, id, run, say};

fn mirror(scratch: &Scratch, session: &str) -> PathBuf {
    scratch.path().join("transcripts").join(format!("{session}.jsonl"))
}

async fn speak(store: &dyn Store, session: &str, texts: &[&str]) {
    store.ensure_session(chat(session)).await.expect("made");
    let messages = texts.iter().map(|text| say(text)).collect();
    store.append(&id(session), messages, None).await.expect("appended");
    store.catch_up(&|_, _| ()).await.expect("caught up");
}

/// The mirror is the transcript, line for line.
async fn check(scratch: &Scratch, store: &dyn Store, session: &str) {
    let page = store.messages(&id(session), Span::After(0), 10_000).await.expect("a transcript");
    let lines: String = page.messages.iter().map(|message| message.to_json() + "\n").collect();
    let written = fs::read_to_string(mirror(scratch, session)).expect("a mirror");
    assert_eq!(written, lines);
}

async fn count(store: &dyn Store, word: &str) -> usize {
    let terms = vec![Term { text: word.to_owned(), matching: Matching::Whole }];
    let query = SearchQuery { terms, ..SearchQuery::default() };
    store.search(&query, None, 100_000).await.expect("hits").len()
}

#[test]
fn the_mirror_is_the_transcript_as_lines_of_json() {
    let scratch = Scratch::new();
    let store = scratch.open();
    run(async {
        speak(&*store, "a", &["one", "two\nlines", "\"three\""]).await;
        speak(&*store, "b", &["other"]).await;
        speak(&*store, "a", &["four"]).await;
        check(&scratch, &*store, "a").await;
        check(&scratch, &*store, "b").await;
    });
}

fn spoil(path: &Path, how: &str) {
    let done = match how {
        "removed" => fs::remove_file(path),
        "emptied" => fs::write(path, ""),
        "cut" => fs::OpenOptions::new().write(true).open(path).and_then(|file| file.set_len(30)),
        "longer" => fs::read_to_string(path).and_then(|lines| fs::write(path, lines + "half a li")),
        "its directory removed" => fs::remove_dir_all(path.parent().expect("a parent")),
        _ => fs::remove_file(path).and_then(|()| fs::create_dir(path)),
    };
    done.expect(how);
}

#[test]
fn a_mirror_that_is_not_what_was_written_is_made_whole_with_the_next_message() {
    let scratch = Scratch::new();
    let store = scratch.open();
    run(async {
        speak(&*store, "a", &["zero"]).await;
        for how in ["removed", "emptied", "cut", "longer", "its directory removed", "a directory"] {
            spoil(&mirror(&scratch, "a"), how);
            speak(&*store, "a", &[how, "more"]).await;
            if how == "a directory" {
                fs::remove_dir(mirror(&scratch, "a")).expect("removed");
                speak(&*store, "a", &["again"]).await;
            }
            check(&scratch, &*store, "a").await;
        }
    });
}

/// Written again while others append: nothing twice, nothing left out.
#[test]
fn a_mirror_made_again_in_the_middle_of_appends_has_every_line_once() {
    let scratch = Scratch::new();
    let store = scratch.open();
    run(async {
        speak(&*store, "a", &["zero"]).await;
        // Several batches wait, and the file is gone: the first batch writes it again.
        let messages = (0..2_500).map(|n| say(&n.to_string())).collect();
        fs::remove_file(mirror(&scratch, "a")).expect("removed");
        store.append(&id("a"), messages, None).await.expect("appended");
        store.catch_up(&|_, _| ()).await.expect("caught up");
        check(&scratch, &*store, "a").await;
    });
}

/// A node that was stopped in the middle of a batch stands still with the lock.
#[test]
fn an_index_that_stays_locked_holds_up_nobodys_end() {
    let scratch = Scratch::new();
    run(async {
        let store = scratch.open();
        speak(&*store, "a", &["first"]).await;
        let stopped = rusqlite::Connection::open(scratch.path().join("search.db")).expect("an index");
        stopped.execute_batch("BEGIN IMMEDIATE").expect("the lock");
        store.append(&id("a"), vec![say("second")], None).await.expect("appended");
        let asked = Instant::now();
        drop(store);
        // Far from both: the end takes a second, and whoever waits for a lock, a minute.
        assert!(asked.elapsed() < Duration::from_secs(20), "{:?}", asked.elapsed());
        stopped.execute_batch("ROLLBACK").expect("it goes on");
        drop(stopped);
        let store = scratch.open();
        store.catch_up(&|_, _| ()).await.expect("caught up");
        assert_eq!(count(&*store, "second").await, 1);
        check(&scratch, &*store, "a").await;
    });
}

#[test]
fn a_lost_foreign_or_spoilt_index_is_made_again() {
    let scratch = Scratch::new();
    let index = scratch.path().join("search.db");
    let remove = || {
        for suffix in ["", "-wal", "-shm"] {
            let _not_there = fs::remove_file(scratch.path().join(format!("search.db{suffix}")));
        }
    };
    run(async {
        let store = scratch.open();
        let texts: Vec<String> = (0..1_500).map(|n| format!("word {n}")).collect();
        speak(&*store, "a", &texts.iter().map(String::as_str).collect::<Vec<_>>()).await;
        assert_eq!(count(&*store, "word").await, 1_500);

        // Under an open store.
        remove();
        assert_eq!(count(&*store, "word").await, 1_500);
        drop(store);

        fs::write(&index, "this is not an index").expect("written");
        let store = scratch.open();
        assert_eq!(count(&*store, "word").await, 1_500);
        drop(store);

        remove();
        let foreign = rusqlite::Connection::open(&index).expect("a database");
        foreign.execute_batch("PRAGMA user_version = 1; CREATE TABLE x (y);").expect("another program's");
        drop(foreign);
        let store = scratch.open();
        assert_eq!(count(&*store, "word").await, 1_500);
        drop(store);

        let size = fs::metadata(&index).expect("an index").len();
        let mut bytes = fs::read(&index).expect("an index");
        bytes[usize::try_from(size / 3).expect("small")..].fill(0);
        fs::write(&index, bytes).expect("spoilt");
        let store = scratch.open();
        speak(&*store, "a", &["word again"]).await;
        assert_eq!(count(&*store, "word").await, 1_501);
        check(&scratch, &*store, "a").await;
    });
}

#[test]
fn the_index_of_another_store_is_noticed() {
    let (one, other) = (Scratch::new(), Scratch::new());
    run(async {
        for (scratch, word) in [(&one, "apple"), (&other, "pear")] {
            let store = scratch.open();
            for n in 0..5 {
                speak(&*store, "a", &[&format!("{word} {n}")]).await;
            }
        }
        fs::copy(one.path().join("search.db"), other.path().join("search.db")).expect("copied");
        let store = other.open();
        assert_eq!((count(&*store, "pear").await, count(&*store, "apple").await), (5, 0));
    });
}

#[test]
fn several_handles_keep_one_index() {
    let scratch = Scratch::new();
    run(async {
        let tasks: Vec<_> = (0..6)
            .map(|n| {
                let store = scratch.open();
                tokio::spawn(async move {
                    for m in 0..10 {
                        speak(&*store, &format!("s{n}"), &[&format!("word {m}")]).await;
                        assert!(count(&*store, "word").await > m);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("a handle");
        }
        let store = scratch.open();
        assert_eq!(count(&*store, "word").await, 60);
        for n in 0..6 {
            check(&scratch, &*store, &format!("s{n}")).await;
        }
    });
}

/// The last commits of a process reach index and mirror before it ends.
#[test]
fn closing_a_store_finishes_what_is_due() {
    let scratch = Scratch::new();
    run(async {
        let store = scratch.open();
        store.ensure_session(chat("a")).await.expect("made");
        store.append(&id("a"), vec![say("last words")], None).await.expect("appended");
        drop(store);
        let lines = fs::read_to_string(mirror(&scratch, "a")).expect("a mirror");
        assert_eq!(lines.lines().count(), 1);
        assert_eq!(sess_store::health(scratch.path()).expect("healthy").index_lag, Some(0));
    });
}

#[test]
fn files_are_for_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let scratch = Scratch::new();
    let store = scratch.open();
    run(speak(&*store, "a", &["secret"]));
    let mut files = vec![scratch.path().to_owned()];
    while let Some(path) = files.pop() {
        let found = fs::metadata(&path).expect("a file");
        assert_eq!(found.permissions().mode() & 0o077, 0, "{}", path.display());
        if found.is_dir() {
            files.extend(
                fs::read_dir(&path).expect("a directory").map(|entry| entry.expect("an entry").path()),
            );
        }
    }
}
