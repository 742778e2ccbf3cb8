//! Damage costs the damaged row, is named, and is never made worse.

use std::{fs, os::unix::fs::FileExt as _, path::Path};

use sess_store::{Archived, Error, NewRun, Position, Salvaged, SessionFilter, SessionPatch, Span, Store};

use crate::{
    schema::golden,
    support::{
        Scratch, agent, ask, at, boot, chat, done, follow, id, key, lease, plan, run, run_id, say, shown,
        told, transcript,
    },
};

const PAGE: usize = 4096;
const SESSIONS: usize = 5;
const EACH: usize = 60;

fn text(session: usize, n: usize) -> String {
    format!("session-{session}-message-{n}-{}", "x".repeat(200))
}

/// A store of a few hundred messages, closed, so that all of it is in the one file.
fn filled() -> Scratch {
    let scratch = Scratch::new();
    run(async {
        let store = scratch.open();
        for session in 0..SESSIONS {
            store.ensure_session(chat(&format!("s{session}"))).await.expect("made");
        }
        for n in 1..=EACH {
            for session in 0..SESSIONS {
                store
                    .append(&id(&format!("s{session}")), vec![say(&text(session, n))], None)
                    .await
                    .expect("appended");
            }
        }
        store.append(&id("s0"), vec![say("keyed")], key("k", "f")).await.expect("appended");
        for content in ["plan one", "plan two", "plan three"] {
            store.write_plan(chat("s1"), plan(content)).await.expect("written");
        }
        store.announce_plan(&id("s1"), 3, "/p").await.expect("announced");
        store.mark_plan_swept(&id("s1"), 3).await.expect("swept");
        // One run that ended, one that runs, one that waits; without messages, which are counted.
        for n in 1..=3 {
            store.queue_run(NewRun { messages: vec![], ..ask(n, "s4") }).await.expect("queued");
        }
        let held = lease("t", 100);
        store.lease_run(&id("s4"), &[agent("main")], held.clone(), at(5_000)).await.expect("leased");
        store
            .end_run(&run_id(1), &held, vec![], done("the result of run one"), at(6_000))
            .await
            .expect("ended");
        store.lease_run(&id("s4"), &[agent("main")], held, at(7_000)).await.expect("leased");
        store.patch_session(&id("s2"), SessionPatch::Archived(true), at(77)).await.expect("archived");
    });
    assert!(!scratch.path().join("sess.db-wal").exists(), "closing moved the log into the file");
    scratch
}

fn find(bytes: &[u8], needle: &str) -> usize {
    bytes.windows(needle.len()).position(|window| window == needle.as_bytes()).expect(needle)
}

/// Returns the numbers of the pages that hold messages, by looking for their text.
fn message_pages(file: &Path) -> Vec<usize> {
    let bytes = fs::read(file).expect("the file");
    let holds = |page: &[u8]| page.windows(9).any(|window| window == b"-message-");
    (0..bytes.len() / PAGE).filter(|&page| holds(&bytes[page * PAGE..(page + 1) * PAGE])).collect()
}

fn overwrite(file: &Path, at: usize, bytes: &[u8]) {
    let file = fs::OpenOptions::new().write(true).open(file).expect("the file");
    file.write_all_at(bytes, at as u64).expect("overwritten");
}

fn zero_page(file: &Path, page: usize) {
    overwrite(file, page * PAGE, &[0; PAGE]);
}

/// Opens, reads and tries to write everything; returns every error, and insists that nothing changed.
async fn touch_everything(scratch: &Scratch) -> Vec<Error> {
    let before = fs::read(scratch.file()).expect("the file");
    let mut errors = Vec::new();
    match scratch.try_open() {
        Err(error) => errors.push(error),
        Ok(store) => {
            let filter = SessionFilter { archived: Archived::Included, ..SessionFilter::default() };
            errors.extend(store.list_sessions(&filter, 0, 100).await.err());
            errors.extend(store.feed(Position(0), 10_000).await.err());
            for session in 0..SESSIONS {
                let name = id(&format!("s{session}"));
                errors.extend(store.messages(&name, Span::After(0), 10_000).await.err());
                errors.extend(store.plan(&name).await.err());
                errors.extend(store.runs(Some(&name), 100).await.err());
            }
            if !errors.is_empty() {
                let refused = store.append(&id("s3"), vec![say("more")], None).await;
                errors.push(refused.expect_err("a damaged store is not written to"));
            }
        }
    }
    if !errors.is_empty() {
        assert!(fs::read(scratch.file()).expect("the file") == before, "the damaged file was changed");
    }
    errors
}

fn salvaged(scratch: &Scratch) -> (Scratch, Salvaged) {
    let before = fs::read(scratch.file()).expect("the file");
    let target = Scratch::new();
    let outcome = run(sess_store::salvage(scratch.path(), target.path())).expect("salvaged");
    assert!(fs::read(scratch.file()).expect("the file") == before, "the damaged file was changed");
    assert_eq!(sess_store::health(target.path()).expect("readable").damage, Vec::<String>::new());
    (target, outcome)
}

/// Every message of the salvaged store is the original in its place, or a note of loss.
async fn check_salvaged(store: &dyn Store) -> usize {
    let mut kept = 0;
    for session in 0..SESSIONS {
        let mut name = format!("s{session}");
        if store.session(&id(&name)).await.expect("read").is_none() {
            // Its row was lost, but not its messages.
            name = format!("salvaged-{}", session + 1);
        }
        if store.session(&id(&name)).await.expect("read").is_none() {
            continue;
        }
        let lines = transcript(store, &name).await;
        for (line, n) in lines.iter().zip(1..) {
            let original = if n > EACH { format!("{n} keyed") } else { format!("{n} {}", text(session, n)) };
            let note = format!("{n} [message {n} was lost to damage]");
            assert!(*line == original || *line == note, "{line}");
            kept += usize::from(*line == original);
        }
    }
    kept
}

#[test]
fn a_flipped_byte_in_a_message_costs_that_message() {
    let scratch = filled();
    let bytes = fs::read(scratch.file()).expect("the file");
    let place = find(&bytes, "session-3-message-17-");
    overwrite(&scratch.file(), place + 8, b"#");
    run(async {
        let store = scratch.open();
        let page = store.messages(&id("s3"), Span::After(15), 3).await.expect("a page");
        let lines = [
            format!("16 {}", text(3, 16)),
            "17 ! its checksum does not match".to_owned(),
            format!("18 {}", text(3, 18)),
        ];
        assert_eq!(shown(&page), lines);
        assert_eq!(transcript(&*store, "s2").await.len(), EACH);
        let told: Vec<String> = follow(&*store, Position(0), 50).await.iter().map(told).collect();
        let damaged: Vec<&String> = told.iter().filter(|line| line.contains(" ! ")).collect();
        assert_eq!(damaged, ["s3 ! message 17 is damaged: its checksum does not match"]);
        store.append(&id("s3"), vec![say("more")], None).await.expect("a damaged row stops nobody");
        store.catch_up(&|_, _| ()).await.expect("nor the index");
    });
    let health = sess_store::health(scratch.path()).expect("readable");
    assert_eq!(health.damage, ["message 17 of session row 4 is damaged: its checksum does not match"]);
    let (target, outcome) = salvaged(&scratch);
    assert_eq!((outcome.sessions, outcome.messages, outcome.plan_revisions, outcome.lost), (5, 301, 3, 1));
    run(async {
        let store = target.open();
        let page = store.messages(&id("s3"), Span::After(16), 1).await.expect("a page");
        assert_eq!(shown(&page), ["17 [message 17 was lost to damage]"]);
    });
}

#[test]
fn a_flipped_byte_in_a_run_costs_that_run() {
    let scratch = filled();
    let bytes = fs::read(scratch.file()).expect("the file");
    overwrite(&scratch.file(), find(&bytes, "the result of run one"), b"T");
    // The one that runs is damaged, too: nothing waits for it, and it is not executed again.
    let change = "UPDATE runs SET lease_until = 101 WHERE state = 'running'";
    rusqlite::Connection::open(scratch.file()).expect("the file").execute(change, []).expect("changed");
    let name = |n: u64| format!("({}) is damaged: its checksum does not match", run_id(n));
    run(async {
        let store = scratch.open();
        for n in [1, 2] {
            let error = store.run(&run_id(n)).await.expect_err("not what was written");
            let sentence = format!("run {} cannot be read: run row {n} {}", run_id(n), name(n));
            assert_eq!(error, Error::Damaged(sentence));
            store.cancel_run(&run_id(n), at(9)).await.expect_err("nor is it changed");
        }
        assert_eq!(store.runs(None, 10).await.expect("the others").len(), 1);
        assert_eq!(store.running_until(&id("s4")).await, Ok(None));
        assert_eq!(store.settle_lapsed_runs(&boot("b", 900), at(9)).await, Ok(vec![]));
        let next = store.lease_run(&id("s4"), &[agent("main")], lease("u", 100), at(9)).await;
        assert_eq!(next.expect("leased").map(|run| run.id), Some(run_id(3)));
    });
    let health = sess_store::health(scratch.path()).expect("readable");
    assert_eq!(health.damage, [1, 2].map(|n| format!("run row {n} {}", name(n))));
    let (target, outcome) = salvaged(&scratch);
    assert_eq!((outcome.runs, outcome.lost), (1, 2));
    assert!(run(target.open().run(&run_id(3))).expect("read").is_some());
}

#[test]
fn a_salvaged_id_does_not_take_the_place_of_one_that_is_there() {
    let scratch = Scratch::new();
    run(async {
        let store = scratch.open();
        for session in ["lost", "salvaged-1", "salvaged-1.2"] {
            store.ensure_session(chat(session)).await.expect("made");
            store.append(&id(session), vec![say(session)], None).await.expect("appended");
        }
    });
    let change = "UPDATE sessions SET crc = crc + 1 WHERE n = 1";
    rusqlite::Connection::open(scratch.file()).expect("the file").execute(change, []).expect("damaged");
    let (target, outcome) = salvaged(&scratch);
    assert_eq!((outcome.sessions, outcome.lost), (3, 1));
    run(async {
        let store = target.open();
        for (session, line) in
            [("salvaged-1", "1 salvaged-1"), ("salvaged-1.2", "1 salvaged-1.2"), ("salvaged-1.3", "1 lost")]
        {
            assert_eq!(transcript(&*store, session).await, [line]);
        }
    });
}

#[test]
fn a_zeroed_page_is_named_and_everything_else_is_salvaged() {
    let scratch = filled();
    let pages = message_pages(&scratch.file());
    zero_page(&scratch.file(), pages[pages.len() / 2]);
    run(async {
        let errors = touch_everything(&scratch).await;
        assert!(!errors.is_empty());
        for error in errors {
            assert!(matches!(error, Error::Damaged(_)), "{error}");
            assert!(error.to_string().contains("sess doctor --salvage <new dir>"), "{error}");
        }
        let store = scratch.open();
        let page = store.messages(&id("s0"), Span::Last, 3).await.expect("what lies elsewhere is read");
        assert_eq!(page.messages.len(), 3);
    });
    let health = sess_store::health(scratch.path()).expect("readable");
    assert!(!health.damage.is_empty());
    let (target, outcome) = salvaged(&scratch);
    assert!((1..40).contains(&outcome.lost), "{outcome:?}");
    run(async {
        let store = target.open();
        let kept = check_salvaged(&*store).await;
        assert_eq!(kept as u64 + outcome.lost, (SESSIONS * EACH + 1) as u64);
        assert_eq!(kept as u64, outcome.messages);
        // Plans, states, archive and answered requests came along.
        assert_eq!(store.plan(&id("s1")).await.expect("read").expect("a plan").revision, 3);
        assert_eq!(store.plan_revision(&id("s1"), 2).await.expect("read").expect("kept").content, "plan two");
        let archived = store.session(&id("s2")).await.expect("read").expect("kept");
        assert_eq!(archived.archived_at, Some(at(77)));
        let again = store.append(&id("s0"), vec![say("keyed")], key("k", "f")).await.expect("remembered");
        assert_eq!(again.last_seq, EACH as u64 + 1);
        assert!(store.plan(&id("s1")).await.expect("read").expect("a plan").swept);
        // Runs came along, and what had not ended will not be executed a second time.
        assert_eq!(outcome.runs, 3);
        let runs: Vec<String> = store
            .runs(Some(&id("s4")), 10)
            .await
            .expect("read")
            .iter()
            .map(|run| format!("{} {:?} {:?}", run.state, run.result, run.error))
            .collect();
        let expected = [
            r#"aborted None Some("its store was damaged")"#,
            r#"aborted None Some("its store was damaged")"#,
            r#"done Some("the result of run one") None"#,
        ];
        assert_eq!(runs, expected);
    });
}

#[test]
fn a_lost_first_page_is_taken_from_a_new_store() {
    for damage in [0..PAGE, 0..100, 100..PAGE] {
        let scratch = filled();
        overwrite(&scratch.file(), damage.start, &vec![0; damage.len()]);
        let errors = run(touch_everything(&scratch));
        assert!(
            errors.iter().all(|error| matches!(error, Error::Damaged(_))) && !errors.is_empty(),
            "{errors:?}"
        );
        let (target, outcome) = salvaged(&scratch);
        assert_eq!((outcome.sessions, outcome.messages, outcome.lost), (5, 301, 0), "{damage:?}");
        assert_eq!(run(check_salvaged(&*target.open())), 301);
    }
}

#[test]
fn a_lost_first_page_of_a_migrated_store_costs_nothing_either() {
    // Its newer tables start elsewhere than in a store that was made with them.
    let scratch = Scratch::new();
    fs::copy(golden(1), scratch.file()).expect("a copy of the golden store");
    run(async {
        let store = scratch.open();
        store.queue_run(ask(1, "a")).await.expect("queued");
        let held = lease("t", 100);
        store.lease_run(&id("a"), &[agent("main")], held.clone(), at(5_000)).await.expect("leased");
        store.end_run(&run_id(1), &held, vec![], done("kept"), at(6_000)).await.expect("ended");
    });
    zero_page(&scratch.file(), 0);
    let (target, outcome) = salvaged(&scratch);
    let Salvaged { sessions, messages, plan_revisions, runs, lost } = outcome;
    assert_eq!((sessions, messages, plan_revisions, runs, lost), (2, 5, 1, 1, 0));
    let kept = run(target.open().run(&run_id(1))).expect("read").expect("it is there");
    assert_eq!(kept.result.as_deref(), Some("kept"));
}

#[test]
fn a_damaged_store_of_the_first_schema_is_salvaged_as_it_is() {
    let scratch = Scratch::new();
    fs::copy(golden(1), scratch.file()).expect("a copy of the golden store");
    let (_, outcome) = salvaged(&scratch);
    let Salvaged { sessions, messages, plan_revisions, runs, lost } = outcome;
    assert_eq!((sessions, messages, plan_revisions, runs, lost), (2, 4, 1, 0, 0));
}

#[test]
fn a_store_of_the_second_schema_is_salvaged_with_and_without_its_first_page() {
    for is_damaged in [false, true] {
        let scratch = Scratch::new();
        fs::copy(golden(2), scratch.file()).expect("a copy of the golden store");
        if is_damaged {
            zero_page(&scratch.file(), 0);
        }
        let (_, outcome) = salvaged(&scratch);
        let Salvaged { sessions, messages, plan_revisions, runs, lost } = outcome;
        assert_eq!((sessions, messages, plan_revisions, runs, lost), (3, 6, 1, 2, 0));
    }
}

#[test]
fn every_single_damaged_page_is_survived() {
    let whole = filled();
    let bytes = fs::read(whole.file()).expect("the file");
    for page in 0..bytes.len() / PAGE {
        let scratch = Scratch::new();
        let mut spoilt = bytes.clone();
        spoilt[page * PAGE..(page + 1) * PAGE].fill(if page % 2 == 0 { 0 } else { 0xa5 });
        fs::write(scratch.file(), &spoilt).expect("written");
        let errors = run(touch_everything(&scratch));
        for error in &errors {
            assert!(matches!(error, Error::Damaged(_)), "page {page}: {error}");
        }
        let health = sess_store::health(scratch.path());
        assert!(
            !errors.is_empty() || health.is_ok_and(|health| !health.damage.is_empty()),
            "page {page}: nobody noticed"
        );
        let (target, _) = salvaged(&scratch);
        run(check_salvaged(&*target.open()));
    }
}

#[test]
fn a_damaged_index_costs_itself_and_nothing_that_is_read() {
    let whole = filled();
    let bytes = fs::read(whole.file()).expect("the file");
    let indexes: Vec<(String, usize)> = rusqlite::Connection::open(whole.file())
        .and_then(|connection| {
            let sql =
                "SELECT name, rootpage FROM sqlite_schema WHERE type = 'index' AND tbl_name <> 'requests'";
            let mut statement = connection.prepare(sql)?;
            statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as usize)))?.collect()
        })
        .expect("the schema");
    assert!(indexes.len() >= 11, "{indexes:?}");
    for (index, root) in indexes {
        let scratch = Scratch::new();
        fs::write(scratch.file(), &bytes).expect("written");
        zero_page(scratch.file().as_path(), root - 1);
        run(async {
            let store = scratch.open();
            let listed = store.list_sessions(&SessionFilter::default(), 0, 10).await.expect(&index);
            assert_eq!(listed.len(), SESSIONS - 1, "{index}: one is archived");
            let session = store.session(&id("s1")).await.expect(&index).expect("it is there");
            assert_eq!(session.last_seq, EACH as u64, "{index}");
            let page = store.messages(&id("s1"), Span::Last, 100).await.expect(&index);
            assert_eq!((page.messages.len(), page.damaged.len()), (EACH, 0), "{index}");
            let plan = store.plan_revision(&id("s1"), 2).await.expect(&index).expect("it is there");
            assert_eq!(plan.content, "plan two", "{index}");
            let runs = store.runs(Some(&id("s4")), 10).await.expect(&index);
            assert_eq!(runs.len(), 3, "{index}");
            let until = store.running_until(&id("s4")).await.expect(&index);
            assert_eq!(until, Some(boot("b", 100)), "{index}");
            assert!(store.run(&run_id(1)).await.expect(&index).is_some(), "{index}");
        });
        let health = sess_store::health(scratch.path()).expect("a report");
        assert!(!health.damage.is_empty(), "{index}: nobody noticed");
    }
}

#[test]
fn a_truncated_store_is_refused_and_what_is_left_is_salvaged() {
    let whole = filled();
    let bytes = fs::read(whole.file()).expect("the file");
    for size in [0, 1, 99, 512, 4096, 4608, bytes.len() / 2, bytes.len() - 4096, bytes.len() - 1] {
        let scratch = Scratch::new();
        fs::write(scratch.file(), &bytes[..size]).expect("written");
        let errors = run(touch_everything(&scratch));
        assert!(matches!(errors[..], [Error::Damaged(_)]), "{size}: {errors:?}");
        assert!(
            errors[0].to_string().contains("nothing was changed; `sess doctor --salvage"),
            "{}",
            errors[0]
        );
        let (target, _) = salvaged(&scratch);
        run(async {
            let store = target.open();
            if size > bytes.len() / 2 {
                check_salvaged(&*store).await;
            }
        });
    }
}

#[test]
fn a_directory_or_a_foreign_file_in_the_stores_place_is_refused() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.file()).expect("made");
    let error = scratch.try_open().err().expect("refused");
    assert!(matches!(&error, Error::Unavailable(text) if text.contains("is a directory")), "{error}");
    fs::remove_dir(scratch.file()).expect("removed");

    fs::write(scratch.file(), "a letter to my aunt, which is longer than a hundred bytes ".repeat(9))
        .expect("written");
    let errors = run(touch_everything(&scratch));
    assert!(matches!(errors[..], [Error::Damaged(_)]), "{errors:?}");

    fs::remove_file(scratch.file()).expect("removed");
    let foreign = rusqlite::Connection::open(scratch.file()).expect("a database");
    foreign.execute_batch("CREATE TABLE photos (x)").expect("another program's");
    drop(foreign);
    let errors = run(touch_everything(&scratch));
    assert!(matches!(errors[..], [Error::Damaged(_)]), "{errors:?}");
}

#[test]
fn salvage_refuses_to_write_into_a_store_and_to_start_from_none() {
    let scratch = filled();
    let error = run(sess_store::salvage(scratch.path(), scratch.path())).expect_err("it is a store");
    assert!(matches!(error, Error::Conflict(_)), "{error}");
    let (empty, target) = (Scratch::new(), Scratch::new());
    let error = run(sess_store::salvage(empty.path(), target.path())).expect_err("there is none");
    assert!(matches!(error, Error::Unavailable(_)), "{error}");
    assert!(!target.file().exists());
    assert!(matches!(sess_store::health(empty.path()), Err(Error::Unavailable(_))));
}

#[test]
fn damage_that_one_process_met_keeps_the_next_from_writing() {
    let scratch = filled();
    let whole = fs::read(scratch.file()).expect("the file");
    let page = message_pages(&scratch.file())[0];
    zero_page(&scratch.file(), page);
    let before = fs::read(scratch.file()).expect("the file");
    run(async {
        let store = scratch.open();
        store.messages(&id("s0"), Span::After(0), 100).await.expect_err("the page is lost");
        drop(store);
        let store = scratch.open();
        let error = store.append(&id("s4"), vec![say("more")], None).await.expect_err("marked");
        assert!(matches!(&error, Error::Damaged(text) if text.contains("sess doctor --salvage")), "{error}");
        assert_eq!(fs::read(scratch.file()).expect("the file"), before);
        // A store that was put back is another: its mark does not count.
        drop(store);
        fs::write(scratch.file(), whole).expect("put back");
        scratch.open().append(&id("s4"), vec![say("more")], None).await.expect("appended");
    });
}
