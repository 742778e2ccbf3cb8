//! Plans: revisions, states, and what followers hear of them.

use sess_core::plan::State;
use sess_store::{Error, Plan, PlanChange, PlanWrite, PlanWritten, Store};

use crate::support::{Scratch, at, chat, id, key, plan, run, story_so_far};

fn written(revision: u64) -> Result<PlanWritten, Error> {
    Ok(PlanWritten { revision, replayed: false })
}

fn change(revision: u64, from: State, to: State) -> PlanChange {
    PlanChange { revision, from, to, by: "eve".to_owned(), note: Some("fine".to_owned()), at: at(5_000) }
}

async fn content(store: &dyn Store, revision: u64) -> Option<String> {
    store.plan_revision(&id("a"), revision).await.expect("read").map(|found| found.content)
}

async fn standing(store: &dyn Store) -> Option<(u64, &'static str, u64, bool)> {
    let plan = store.plan(&id("a")).await.expect("read");
    plan.map(|Plan { revision, state, announced, swept }| (revision, state.as_str(), announced, swept))
}

#[test]
fn a_plan_grows_by_revisions_and_the_old_ones_stay_readable() {
    let scratch = Scratch::new();
    run(async {
        let store = scratch.open();
        assert_eq!(standing(&*store).await, None);
        assert_eq!(store.write_plan(chat("a"), plan("# one")).await, written(1));
        assert_eq!(store.write_plan(chat("a"), plan("# two — ✓")).await, written(2));
        assert_eq!(standing(&*store).await, Some((2, "draft", 0, false)));
        drop(store);
        let store = scratch.open();
        assert_eq!(content(&*store, 1).await.as_deref(), Some("# one"));
        assert_eq!(content(&*store, 2).await.as_deref(), Some("# two — ✓"));
        assert_eq!(content(&*store, 3).await, None);
        let log = store.plan_log(&id("a"), 10).await.expect("a log");
        let log: Vec<_> =
            log.iter().map(|entry| (entry.revision, entry.size_bytes, entry.content.as_str())).collect();
        assert_eq!(log, [(1, 5, ""), (2, 13, "")]);
        let newest = store.plan_log(&id("a"), 1).await.expect("a log");
        assert_eq!(newest.iter().map(|entry| entry.revision).collect::<Vec<_>>(), [2]);
        assert_eq!(store.plan_log(&id("b"), 1).await, Ok(vec![]));
        let session = store.session(&id("a")).await.expect("read").expect("made with its plan");
        assert_eq!(session.updated_at, at(3_000));
    });
}

#[test]
fn a_revision_is_told_once_however_often_it_is_announced() {
    let scratch = Scratch::new();
    let store = scratch.open();
    run(async {
        for text in ["one", "two"] {
            store.write_plan(chat("a"), plan(text)).await.expect("written");
        }
        assert_eq!(story_so_far(&*store).await, ["a created as agent:main:chat:a"]);
        for revision in [1, 1, 2, 7, 2] {
            store.announce_plan(&id("a"), revision, "/p.md").await.expect("announced");
        }
        store.change_plan_state(&id("a"), change(2, State::Draft, State::Ready)).await.expect("changed");
        store.write_plan(chat("a"), plan("three")).await.expect("written");
        store.announce_plan(&id("a"), 3, "/p.md").await.expect("announced");
        let told = [
            "a created as agent:main:chat:a",
            "a plan 1 by ann in /p.md: one",
            "a plan 2 by ann in /p.md: two",
            "a plan 2 ready by eve fine",
            "a plan 3 by ann in /p.md: three",
            "a plan 3 draft by ann -",
        ];
        assert_eq!(story_so_far(&*store).await, told);
        assert_eq!(standing(&*store).await, Some((3, "draft", 3, false)));
        store.announce_plan(&id("none"), 1, "").await.expect_err("no such session");
    });
}

#[test]
fn a_withdrawn_revision_was_never_there() {
    let scratch = Scratch::new();
    let store = scratch.open();
    run(async {
        let with_key = |text: &str, name: &str| PlanWrite { key: key(name, text), ..plan(text) };
        store.write_plan(chat("a"), with_key("one", "k")).await.expect("written");
        store.withdraw_plan(&id("a"), 1).await.expect("withdrawn");
        assert_eq!((standing(&*store).await, content(&*store, 1).await), (None, None));
        // The retry acts, because the first try did not.
        assert_eq!(store.write_plan(chat("a"), with_key("one", "k")).await, written(1));

        store.announce_plan(&id("a"), 1, "/p").await.expect("announced");
        store.change_plan_state(&id("a"), change(1, State::Draft, State::Ready)).await.expect("changed");
        store.mark_plan_swept(&id("a"), 1).await.expect("marked");
        store.write_plan(chat("a"), plan("two")).await.expect("written");
        store.write_plan(chat("a"), plan("three")).await.expect("written");
        let refused = "revision 2 cannot be taken back: it is not the newest, or was told already";
        assert_eq!(store.withdraw_plan(&id("a"), 2).await, Err(Error::Conflict(refused.to_owned())));
        store.withdraw_plan(&id("a"), 3).await.expect("withdrawn");
        store.withdraw_plan(&id("a"), 2).await.expect("withdrawn");
        assert_eq!(standing(&*store).await, Some((1, "ready", 1, true)));
        store.withdraw_plan(&id("a"), 1).await.expect_err("it was told");
        assert_eq!(content(&*store, 1).await.as_deref(), Some("one"));
    });
}

#[test]
fn withdrawing_one_sessions_revision_leaves_the_others_requests_alone() {
    let scratch = Scratch::new();
    let store = scratch.open();
    run(async {
        let write = |session: &str| {
            let request = key(&format!("k-{session}"), &format!("plan {session} x"));
            store.write_plan(chat(session), PlanWrite { key: request, ..plan("x") })
        };
        write("s_1").await.expect("written");
        write("sX1").await.expect("written");
        store.withdraw_plan(&id("s_1"), 1).await.expect("withdrawn");
        assert_eq!(write("sX1").await, Ok(PlanWritten { revision: 1, replayed: true }));
        assert_eq!(write("s_1").await, written(1));
    });
}

#[test]
fn a_write_names_the_revision_it_builds_on_or_is_refused() {
    let scratch = Scratch::new();
    let store = scratch.open();
    run(async {
        let on = |expected| PlanWrite { expect_revision: Some(expected), ..plan("x") };
        let stale = |expected, actual| Err(Error::StaleRevision { expected, actual });
        assert_eq!(store.write_plan(chat("a"), on(1)).await, stale(1, 0));
        assert_eq!(store.session(&id("a")).await, Ok(None), "a refused write makes no session");
        assert_eq!(store.write_plan(chat("a"), on(0)).await, written(1));
        assert_eq!(store.write_plan(chat("a"), on(0)).await, stale(0, 1));
        assert_eq!(store.write_plan(chat("a"), on(1)).await, written(2));
    });
}

#[test]
fn a_plan_request_with_a_key_acts_once() {
    let scratch = Scratch::new();
    let store = scratch.open();
    run(async {
        let keyed = |fingerprint: &str| PlanWrite { key: key("k", fingerprint), ..plan("x") };
        assert_eq!(store.write_plan(chat("a"), keyed("f")).await, written(1));
        assert_eq!(store.write_plan(chat("a"), plan("y")).await, written(2));
        assert_eq!(
            store.write_plan(chat("a"), keyed("f")).await,
            Ok(PlanWritten { revision: 1, replayed: true })
        );
        assert_eq!(store.write_plan(chat("a"), keyed("g")).await, Err(Error::KeyReused("k".to_owned())));
    });
}

#[test]
fn a_state_changes_only_from_where_the_decision_was_made() {
    let scratch = Scratch::new();
    let store = scratch.open();
    run(async {
        let to_ready = || change(1, State::Draft, State::Ready);
        assert_eq!(store.change_plan_state(&id("a"), to_ready()).await, Err(Error::NoSession(id("a"))));
        store.write_plan(chat("a"), plan("x")).await.expect("written");
        store.change_plan_state(&id("a"), to_ready()).await.expect("changed");
        let meanwhile = "the plan changed meanwhile: it is no longer revision 1 in state draft";
        assert_eq!(
            store.change_plan_state(&id("a"), to_ready()).await,
            Err(Error::Conflict(meanwhile.to_owned()))
        );
        store.write_plan(chat("a"), plan("y")).await.expect("written");
        store
            .change_plan_state(&id("a"), change(1, State::Ready, State::Approved))
            .await
            .expect_err("an old revision");
        assert_eq!(standing(&*store).await, Some((2, "draft", 0, false)));
    });
}

#[test]
fn a_swept_plan_counts_as_not_written_until_it_is_written_again() {
    let scratch = Scratch::new();
    let store = scratch.open();
    run(async {
        store.write_plan(chat("a"), plan("x")).await.expect("written");
        store.mark_plan_swept(&id("a"), 9).await.expect("another revision: nothing to mark");
        assert_eq!(standing(&*store).await, Some((1, "draft", 0, false)));
        store.mark_plan_swept(&id("a"), 1).await.expect("marked");
        assert_eq!(standing(&*store).await, Some((1, "draft", 0, true)));
        store.write_plan(chat("a"), plan("y")).await.expect("written");
        assert_eq!(standing(&*store).await, Some((2, "draft", 0, false)));
    });
}
