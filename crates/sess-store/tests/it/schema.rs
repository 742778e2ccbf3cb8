//! Stores of every released schema open as they were; those of later ones are left alone.

use std::{fs, path::Path};

use sess_store::{Error, Position, SessionPatch};

use crate::support::{Scratch, at, chat, follow, id, key, plan, run, say, told, transcript};

fn golden(schema: u32) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/schema-{schema}/sess.db"))
}

const GOLDEN_STORY: [&str; 9] = [
    "a created as agent:main:chat:a",
    "a 1 one",
    "a 2 two — ✓",
    "b created as agent:main:chat:b",
    "b 1 other",
    "a plan 1 by ann in /plans/a.md: # Plan",
    "a starred",
    "b archived",
    "a 3 three",
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
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the one way to make a golden store is this test")]
fn a_golden_store_of_schema_1_opens_with_everything_in_it() {
    let scratch = Scratch::new();
    if std::env::var("SESS_MAKE_GOLDEN").is_ok() {
        let path = golden(1);
        assert!(!path.exists(), "{} is never made again", path.display());
        run(make_golden(scratch.path()));
        fs::copy(scratch.file(), path).expect("the golden store is written");
    } else {
        fs::copy(golden(1), scratch.file()).expect("a copy of the golden store");
    }
    run(async {
        let store = scratch.open();
        let items = follow(&*store, Position(0), 100).await;
        assert_eq!(items.iter().map(told).collect::<Vec<_>>(), GOLDEN_STORY);
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
        assert_eq!(bodies, expected, "byte for byte");
        // And it goes on from there.
        let again = store.append(&id("a"), vec![say("one")], key("k", "f")).await.expect("remembered");
        assert_eq!(again.first_seq, 1);
        store.append(&id("a"), vec![say("four")], None).await.expect("appended");
        assert_eq!(transcript(&*store, "a").await, ["1 one", "2 two — ✓", "3 three", "4 four"]);
    });
    let health = sess_store::health(scratch.path()).expect("healthy");
    assert_eq!((health.damage, health.schema, health.sessions, health.messages), (vec![], 1, 2, 5));
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
        "the store {shown} was written by a newer sess (schema 99, this one knows 1); update sess, nothing was changed"
    );
    assert_eq!(scratch.try_open().err(), Some(Error::Newer(sentence.clone())));
    assert_eq!(sess_store::health(scratch.path()).map(|_| ()), Err(Error::Newer(sentence)));
    assert!(fs::read(scratch.file()).expect("the file") == before, "not a byte was changed");
}
