//! Making, finding, listing and changing sessions.

use sess_core::{SessionKey, Source, session::NewSession};
use sess_store::{Archived, Error, SessionFilter, SessionPatch, Store};

use crate::support::{Scratch, at, chat, id, run, say_at, story_so_far};

fn key(text: &str) -> SessionKey {
    text.parse().expect(text)
}

async fn listed(store: &dyn Store, filter: SessionFilter) -> String {
    let sessions = store.list_sessions(&filter, 0, 100).await.expect("a list");
    let counted = store.count_sessions(&filter, 1_000).await.expect("a count");
    assert_eq!(counted, sessions.len() as u64, "{filter:?}");
    sessions.iter().map(|session| session.id.to_string()).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_session_is_made_once_and_stays_as_it_was_made() {
    let scratch = Scratch::new();
    let story = async |store: &dyn Store| {
        let first = NewSession { title: "first".to_owned(), ..chat("a") };
        let made = store.ensure_session(first).await.expect("made");
        let other = NewSession { title: "other".to_owned(), cwd: Some("/x".to_owned()), ..chat("a") };
        assert_eq!(store.ensure_session(other).await, Ok(made.clone()));
        assert_eq!(store.session(&id("a")).await, Ok(Some(made.clone())));
        assert_eq!(store.session(&id("b")).await, Ok(None));
        assert_eq!(store.session_by_key(&made.key).await, Ok(Some(made)));
        assert_eq!(store.session_by_key(&key("agent:main:main")).await, Ok(None));
    };
    run(story(&*scratch.open()));
    run(story(&*scratch.open()));
    assert_eq!(run(story_so_far(&*scratch.open())), ["a created as agent:main:chat:a"]);
}

#[test]
fn a_key_leads_to_its_newest_transcript() {
    let scratch = Scratch::new();
    let store = scratch.open();
    run(async {
        for (name, ms) in [("z", 10), ("a", 5)] {
            let session = NewSession { key: key("agent:main:main"), created_at: at(ms), ..chat(name) };
            store.ensure_session(session).await.expect("made");
        }
        let found = store.session_by_key(&key("agent:main:main")).await.expect("read").expect("there");
        assert_eq!(found.id, id("a"));
    });
}

#[test]
fn sessions_are_listed_by_activity_then_creation_then_id() {
    let scratch = Scratch::new();
    let store = scratch.open();
    run(async {
        for (name, created, spoke) in
            [("a", 100, 900), ("b", 300, 500), ("d", 200, 500), ("c", 200, 500), ("e", 400, 0), ("f", 50, 60)]
        {
            store.ensure_session(NewSession { created_at: at(created), ..chat(name) }).await.expect("made");
            if spoke > 0 {
                store.append(&id(name), vec![say_at(name, spoke)], None).await.expect("appended");
            }
        }
        let all = SessionFilter::default;
        assert_eq!(listed(&*store, all()).await, "a b c d e f");
        let page = store.list_sessions(&all(), 2, 2).await.expect("a page");
        assert_eq!(page.iter().map(|session| session.id.as_str()).collect::<Vec<_>>(), ["c", "d"]);
        assert_eq!(store.list_sessions(&all(), 6, 2).await, Ok(vec![]));
        for (most, counted) in [(0, 0), (4, 4), (6, 6), (7, 6)] {
            assert_eq!(store.count_sessions(&all(), most).await, Ok(counted));
        }
        let except = vec![id("a"), id("e")];
        assert_eq!(listed(&*store, SessionFilter { except, ..all() }).await, "b c d f");
    });
}

#[test]
fn a_list_is_filtered_by_agent_source_title_directory_and_archive() {
    let scratch = Scratch::new();
    let store = scratch.open();
    run(async {
        let make = async |name: &str, source, title: &str, cwd: Option<&str>| {
            let new = NewSession::chat(id(name), source, at(1));
            let session = NewSession { title: title.to_owned(), cwd: cwd.map(str::to_owned), ..new };
            store.ensure_session(session).await.expect("made");
        };
        make("a", Source::Native, "100% done", Some("/home/x")).await;
        make("b", Source::Claude, "100 percent", Some("/home/x/src")).await;
        make("c", Source::Codex, "snake_case", Some("/home/xy")).await;
        make("d", Source::Claude, "snakeXcase", Some("/")).await;
        make("e", Source::Native, "back\\slash", None).await;
        let child = NewSession { parent: Some(key("agent:main:chat:a")), ..chat("child") };
        store.ensure_session(child).await.expect("made");

        let by = SessionFilter::default;
        assert_eq!(listed(&*store, by()).await, "a b c d e");
        assert_eq!(listed(&*store, SessionFilter { source: Some(Source::Native), ..by() }).await, "a e");
        assert_eq!(listed(&*store, SessionFilter { source: Some(Source::Claude), ..by() }).await, "b d");
        let agent = |name: &str| Some(name.parse().expect("an agent"));
        assert_eq!(listed(&*store, SessionFilter { agent: agent("codex"), ..by() }).await, "c");
        let both = SessionFilter { agent: agent("codex"), source: Some(Source::Claude), ..by() };
        assert_eq!(listed(&*store, both).await, "");
        for (title, found) in [
            ("%", "a"),
            ("_", "c"),
            ("SNAKE", "c d"),
            ("\\", "e"),
            ("100", "a b"),
            ("nope", ""),
            ("", "a b c d e"),
        ] {
            assert_eq!(
                listed(&*store, SessionFilter { title: Some(title.to_owned()), ..by() }).await,
                found,
                "{title}"
            );
        }
        for (cwd, found) in [
            ("/home/x", "a b"),
            ("/home/x/", "a b"),
            ("/home", "a b c"),
            ("/", "a b c d"),
            ("/home/x/src/deep", ""),
        ] {
            assert_eq!(
                listed(&*store, SessionFilter { dirs: vec![cwd.to_owned()], ..by() }).await,
                found,
                "{cwd}"
            );
        }

        store.patch_session(&id("b"), SessionPatch::Archived(true), at(9)).await.expect("archived");
        assert_eq!(listed(&*store, SessionFilter { source: Some(Source::Claude), ..by() }).await, "d");
        let included = SessionFilter { source: Some(Source::Claude), archived: Archived::Included, ..by() };
        assert_eq!(listed(&*store, included).await, "b d");
    });
}

#[test]
fn sessions_are_found_by_the_beginning_of_their_id() {
    let scratch = Scratch::new();
    let store = scratch.open();
    run(async {
        for name in ["ab", "abc", "ab-1", "abz.zz", "ac", "b", "AB"] {
            store.ensure_session(chat(name)).await.expect("made");
        }
        let found = async |prefix: &str, limit| {
            let sessions = store.sessions_by_prefix(prefix, limit).await.expect("a list");
            sessions.iter().map(|session| session.id.to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(found("ab", 10).await, "ab ab-1 abc abz.zz");
        assert_eq!(found("ab", 2).await, "ab ab-1");
        assert_eq!(found("abc", 10).await, "abc");
        assert_eq!(found("", 10).await, "AB ab ab-1 abc abz.zz ac b");
        assert_eq!(found("zzz", 10).await, "");
        assert_eq!(found("ä", 10).await, "");
    });
}

#[test]
fn children_are_those_that_the_parent_spawned_oldest_first() {
    let scratch = Scratch::new();
    let store = scratch.open();
    run(async {
        let parent = key("agent:main:chat:p");
        for (name, ms) in [("x", 30), ("y", 10), ("z", 10)] {
            let child = NewSession { parent: Some(parent.clone()), created_at: at(ms), ..chat(name) };
            store.ensure_session(child).await.expect("made");
        }
        let children = store.children(&parent).await.expect("a list");
        assert_eq!(children.iter().map(|child| child.id.as_str()).collect::<Vec<_>>(), ["y", "z", "x"]);
        assert_eq!(store.children(&key("agent:main:chat:x")).await, Ok(vec![]));
    });
}

#[test]
fn a_patch_changes_one_thing_and_is_told() {
    let scratch = Scratch::new();
    let store = scratch.open();
    run(async {
        store.ensure_session(chat("a")).await.expect("made");
        let session = id("a");
        let patch = |patch| store.patch_session(&session, patch, at(7));
        assert_eq!(patch(SessionPatch::Title("new".to_owned())).await.expect("patched").title, "new");
        assert!(patch(SessionPatch::Starred(true)).await.expect("patched").starred);
        let archived = patch(SessionPatch::Archived(true)).await.expect("patched");
        assert_eq!(
            (archived.archived_at, archived.title.as_str(), archived.starred),
            (Some(at(7)), "new", true)
        );
        assert_eq!(store.session(&id("a")).await, Ok(Some(archived)));
        assert_eq!(patch(SessionPatch::Archived(false)).await.expect("patched").archived_at, None);
        assert!(!patch(SessionPatch::Starred(false)).await.expect("patched").starred);
        let refused = store.patch_session(&id("b"), SessionPatch::Starred(true), at(7)).await;
        assert_eq!(refused, Err(Error::NoSession(id("b"))));
        let told = [
            "a created as agent:main:chat:a",
            "a renamed",
            "a starred",
            "a archived",
            "a unarchived",
            "a unstarred",
        ];
        assert_eq!(story_so_far(&*store).await, told);
    });
}
