//! Stores of every released schema open as they were; those of later ones are left alone.

use std::{fs, path::Path};

use sess_core::{
    Source,
    session::{Address, Channel, NewSession, Runner, Sending},
};
use sess_store::{Error, NewRun, Position, SessionPatch, Step, Store, TokenKind, TokenRecord};

use crate::support::{
    Scratch, agent, ask, at, below, chat, done, follow, id, key, lease, plan, run, run_id, say, send, told,
    transcript,
};

pub(crate) fn golden(schema: u32) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/schema-{schema}/sess.db"))
}

/// The schema that a store gets today.
const NEWEST: u32 = 4;

/// The first nine are of schema 1; runs came with schema 2, errands and deletions with schema 3.
const GOLDEN_STORY: [&str; 25] = [
    "a created as agent:main:chat:a",
    "a 1 one",
    "a 2 two — ✓",
    "b created as agent:main:chat:b",
    "b 1 other",
    "a plan 1 by ann in /plans/a.md: # Plan",
    "a starred",
    "b archived",
    "a 3 three",
    "c created as agent:main:chat:c",
    "c run 0001 of main queued -",
    "c 1 ask 1",
    "c run 0001 of main running -",
    "c 2 answer",
    "c run 0001 of main done -",
    "c run 0002 of main queued -",
    "d created as agent:claude:chat:d",
    "d run 0003 of main queued -",
    "d 1 ask 3",
    "d 2 reply",
    "d run 0003 of main done -",
    "c run 0004 of main queued -",
    "e created as agent:main:chat:e",
    "e deleted as agent:main:chat:e by test with 1",
    "d send_policy",
];

/// Makes the store that is committed as golden: `SESS_MAKE_GOLDEN=1 cargo test -p sess-store golden`,
/// once, before a schema is released. It is never made again afterwards.
async fn make_golden(dir: &Path) {
    let store = sess_store::open(dir).expect("a new store");
    store.ensure_session(chat("a")).await.expect("made");
    store.append(&id("a"), vec![say("one"), say("two — ✓")], key("k", "f")).await.expect("appended");
    store.ensure_session(chat("b")).await.expect("made");
    store.append(&id("b"), vec![say("other")], None).await.expect("appended");
    store.write_plan(chat("a"), plan("# Plan")).await.expect("written");
    store.announce_plan(&id("a"), 1, "/plans/a.md").await.expect("announced");
    store.patch_session(&id("a"), SessionPatch::Starred(true), at(9_000)).await.expect("starred");
    store.patch_session(&id("b"), SessionPatch::Archived(true), at(9_000)).await.expect("archived");
    store.append(&id("a"), vec![say("three")], None).await.expect("appended");
    store.queue_run(ask(1, "c")).await.expect("queued");
    let held = lease("t", 9_000);
    store.lease_run(&id("c"), &[agent("main")], held.clone(), at(5_000)).await.expect("leased");
    store.end_run(&run_id(1), &held, vec![say("answer")], done("42 — ✓"), at(6_000)).await.expect("ended");
    store.queue_run(ask(2, "c")).await.expect("queued");
    let session = NewSession::chat(id("d"), Source::Claude, at(1_000));
    store.queue_run(NewRun { session, errand: send("c"), ..ask(3, "d") }).await.expect("queued");
    store.open_inbox(&id("d"), 9, at(5_000)).await.expect("opened");
    store.reply_to(&run_id(3), &id("d"), say("reply"), at(6_000)).await.expect("answered");
    let next = NewRun { lineage: below(3), ..ask(4, "c") };
    let address = Address { channel: Channel::Telegram, to: Some("42".to_owned()), account_id: None };
    let post = Step::Post { session: id("d"), address, text: "posted — ✓".to_owned() };
    store.settle_run(&run_id(3), vec![Step::Queue(Box::new(next)), post], at(7_000)).await.expect("settled");
    store.ensure_session(chat("e")).await.expect("made");
    store.append(&id("e"), vec![say("gone")], None).await.expect("appended");
    store.delete_session(&id("e"), "test", at(8_000)).await.expect("deleted");
    let policy = SessionPatch::SendPolicy(Some(Sending::Deny));
    store.patch_session(&id("d"), policy, at(9_000)).await.expect("patched");
    store.add_token(token()).await.expect("added");
}

fn token() -> TokenRecord {
    TokenRecord {
        id: "t1".to_owned(),
        hash: "0".repeat(64),
        kind: TokenKind::Address,
        scopes: "read,write".to_owned(),
        agent: Some(agent("main")),
        session: Some(id("a")),
        label: Some("for the editor — ✓".to_owned()),
        created_at: at(1_000),
        expires_at: Some(at(9_000)),
        revoked_at: None,
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the one way to make a golden store is this test")]
fn a_golden_store_of_every_schema_opens_with_everything_in_it() {
    if std::env::var("SESS_MAKE_GOLDEN").is_ok() {
        let (scratch, path) = (Scratch::new(), golden(NEWEST));
        assert!(!path.exists(), "{} is never made again", path.display());
        run(make_golden(scratch.path()));
        fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        fs::copy(scratch.file(), path).expect("the golden store is written");
    }
    check_golden(1, &GOLDEN_STORY[..9], 0);
    check_golden(2, &GOLDEN_STORY[..16], 2);
    check_golden(3, &GOLDEN_STORY, 4);
    check_golden(4, &GOLDEN_STORY, 4);
}

#[track_caller]
fn check_golden(schema: u32, story: &[&str], runs: u64) {
    let scratch = Scratch::new();
    fs::copy(golden(schema), scratch.file()).expect("a copy of the golden store");
    let health = sess_store::health(scratch.path()).expect("healthy before it is migrated");
    assert_eq!((health.damage, health.schema, health.runs), (vec![], i64::from(schema), runs));
    run(async {
        let store = scratch.open();
        let items = follow(&*store, Position(0), 100).await;
        assert_eq!(items.iter().map(told).collect::<Vec<_>>(), story);
        let bodies: Vec<String> = items
            .iter()
            .filter_map(|item| match &item.what {
                sess_store::Happening::Message(message) => Some(message.to_json()),
                _ => None,
            })
            .collect();
        let expected = [("one", 1), ("two — ✓", 2), ("other", 1), ("three", 3)].map(|(text, seq)| {
            let message = say(text);
            sess_core::message::Message { id: message.id, seq, body: message.body }.to_json()
        });
        assert_eq!(bodies[..4], expected, "byte for byte");
        let stored = store.runs(None, 10).await.expect("read");
        let shown: Vec<String> = stored
            .iter()
            .map(|run| format!("{} {} {}", run.session, run.state, run.result.as_deref().unwrap_or("-")))
            .collect();
        let all = ["c queued -", "d done reply", "c queued -", "c done 42 — ✓"];
        assert_eq!(shown[..], all[all.len() - usize::try_from(runs).expect("few")..]);
        assert!(stored.iter().all(|run| (run.usage == done("").usage) == (run.id == run_id(1))));
        if schema >= 3 {
            check_exchange(&*store).await;
        }
        let tokens = if schema >= 4 { vec![token()] } else { vec![] };
        assert_eq!(store.tokens(9).await, Ok(tokens));
        // And it goes on from there.
        let again = store.append(&id("a"), vec![say("one")], key("k", "f")).await.expect("remembered");
        assert_eq!(again.first_seq, 1);
        store.append(&id("a"), vec![say("four")], None).await.expect("appended");
        assert_eq!(transcript(&*store, "a").await, ["1 one", "2 two — ✓", "3 three", "4 four"]);
        store.queue_run(ask(9, "a")).await.expect("queued");
        let next = store.lease_run(&id("a"), &[agent("main")], lease("t", 5), at(1)).await.expect("leased");
        assert_eq!(next.map(|run| run.id), Some(run_id(9)));
    });
    let health = sess_store::health(scratch.path()).expect("healthy");
    assert_eq!((health.damage, health.schema, health.runs), (vec![], i64::from(NEWEST), runs + 1));
}

/// What came with schema 3 is all there.
async fn check_exchange(store: &dyn Store) {
    let mut sent = store.run(&run_id(3)).await.expect("read").expect("it is there");
    let mut asked = send("c");
    // Which process waited when it was written is another one each time, if it is known at all.
    for errand in [&mut sent.errand, &mut asked] {
        if let sess_core::run::Errand::Send(send) = errand {
            send.awaited_by = None;
        }
    }
    assert_eq!((sent.errand, sent.handed_over_at), (asked, Some(at(5_000))));
    let next = store.runs_below(&run_id(3), 9).await.expect("read");
    assert_eq!(next.last().map(|run| run.lineage.clone()), Some(below(3)));
    let posts = store.posts(Some(&id("d")), 9).await.expect("read");
    assert_eq!(posts.iter().map(|post| &*post.text).collect::<Vec<_>>(), ["posted — ✓"]);
    let host = store.session(&id("d")).await.expect("read").expect("it is there");
    assert_eq!((host.facts.runner, host.facts.send_policy), (Runner::Host, Some(Sending::Deny)));
    assert_eq!(store.session(&id("e")).await, Ok(None));
}

#[test]
fn a_session_of_another_program_has_an_inbox_also_when_it_is_older_than_inboxes() {
    let scratch = Scratch::new();
    run(async { scratch.open().ensure_session(NewSession::chat(id("x"), Source::Codex, at(1))).await })
        .expect("made");
    let file = rusqlite::Connection::open(scratch.file()).expect("the file");
    let facts: Option<String> =
        file.query_row("SELECT facts FROM sessions", [], |row| row.get(0)).expect("its row");
    assert_eq!(facts, None, "its row is as one of schema 2");
    let found = run(scratch.open().session(&id("x"))).expect("read").expect("it is there");
    assert_eq!(found.facts.runner, Runner::Host);
}

#[test]
fn a_store_of_a_later_schema_is_refused_and_left_as_it_is() {
    let scratch = Scratch::new();
    run(make_golden(scratch.path()));
    let later = rusqlite::Connection::open(scratch.file()).expect("the file");
    later.pragma_update(None, "user_version", 99).expect("a later version");
    drop(later);
    let before = fs::read(scratch.file()).expect("the file");
    let shown = scratch.file().display().to_string();
    let sentence = format!(
        "the store {shown} was written by a newer sess (schema 99, this one knows {NEWEST}); update sess, nothing was changed"
    );
    assert_eq!(scratch.try_open().err(), Some(Error::Newer(sentence.clone())));
    assert_eq!(sess_store::health(scratch.path()).map(|_| ()), Err(Error::Newer(sentence)));
    assert!(fs::read(scratch.file()).expect("the file") == before, "not a byte was changed");
}
