//! Appending, importing and reading messages.

use std::sync::Arc;

use sess_core::message::{Role, Shape};
use sess_store::{Appended, Error, Imported, ImportedSession, Span, Store};

use crate::support::{Scratch, at, chat, id, key, run, say, say_as, say_at, shown, transcript};

/// Tells one story to a fresh store.
fn tell<F: Future<Output = ()>>(story: impl FnOnce(Arc<dyn Store>) -> F) {
    let scratch = Scratch::new();
    run(story(scratch.open()));
}

#[test]
fn messages_are_numbered_densely_from_one_in_the_order_of_their_acknowledgement() {
    tell(async |store| {
        store.ensure_session(chat("a")).await.expect("made");
        store.ensure_session(chat("b")).await.expect("made");
        let append = async |session: &str, texts: &[&str]| {
            let messages = texts.iter().map(|text| say(text)).collect();
            let Appended { first_seq, last_seq } =
                store.append(&id(session), messages, None).await.expect("appended");
            (first_seq, last_seq)
        };
        assert_eq!(append("a", &["one"]).await, (1, 1));
        assert_eq!(append("b", &["other"]).await, (1, 1));
        assert_eq!(append("a", &["two", "three"]).await, (2, 3));
        assert_eq!(transcript(&*store, "a").await, ["1 one", "2 two", "3 three"]);
        let session = store.session(&id("a")).await.expect("read").expect("there");
        assert_eq!((session.last_seq, session.num_messages, session.updated_at), (3, 3, at(2_000)));
    });
}

#[test]
fn system_messages_are_stored_but_not_counted_as_the_sessions_own() {
    tell(async |store| {
        store.ensure_session(chat("a")).await.expect("made");
        let messages = vec![say_as(Role::System, "be good", 5_000), say_at("hi", 6_000)];
        store.append(&id("a"), messages, None).await.expect("appended");
        let session = store.session(&id("a")).await.expect("read").expect("there");
        assert_eq!((session.last_seq, session.num_messages, session.updated_at), (2, 1, at(6_000)));
    });
}

#[test]
fn appending_nothing_or_to_nobody_is_refused() {
    tell(async |store| {
        let refused = store.append(&id("a"), vec![say("x")], None).await;
        assert_eq!(refused, Err(Error::NoSession(id("a"))));
        store.ensure_session(chat("a")).await.expect("made");
        let refused = store.append(&id("a"), vec![], None).await;
        assert_eq!(refused, Err(Error::Conflict("there is no message to append".to_owned())));
        assert_eq!(store.messages(&id("b"), Span::Last, 5).await.map(|_| ()), Err(Error::NoSession(id("b"))));
        assert_eq!(store.find_message(&id("b"), &say("x").id).await, Ok(None));
        assert_eq!(store.count_messages(&id("b"), Span::Last, 255).await, Ok(0));
    });
}

#[test]
fn a_request_with_a_key_acts_once_and_gets_its_first_answer_again() {
    tell(async |store| {
        store.ensure_session(chat("a")).await.expect("made");
        let session = id("a");
        let append = |text: &str, request| store.append(&session, vec![say(text)], request);
        let first = append("one", key("k", "f")).await.expect("appended");
        append("two", None).await.expect("appended");
        assert_eq!(append("one", key("k", "f")).await, Ok(first));
        assert_eq!(append("three", key("k", "g")).await, Err(Error::KeyReused("k".to_owned())));
        assert_eq!(transcript(&*store, "a").await, ["1 one", "2 two"]);

        // A refused request leaves no answer behind: its key is still free.
        let refused = store.append(&id("none"), vec![say("x")], key("l", "f")).await;
        assert_eq!(refused, Err(Error::NoSession(id("none"))));
        append("three", key("l", "other")).await.expect("the key was not used up");
    });
}

#[test]
fn a_key_is_remembered_when_the_store_is_opened_again() {
    let scratch = Scratch::new();
    run(async {
        for _ in 0..3 {
            let store = scratch.open();
            store.ensure_session(chat("a")).await.expect("made");
            let appended = store.append(&id("a"), vec![say("one")], key("k", "f")).await;
            assert_eq!(appended, Ok(Appended { first_seq: 1, last_seq: 1 }));
        }
    });
}

#[test]
fn an_import_adds_what_is_missing_and_refuses_what_differs() {
    tell(async |store| {
        let import = async |texts: &[&str]| {
            let messages = texts.iter().map(|text| say(text)).collect();
            store.import(ImportedSession { session: chat("a"), starred: true, messages }).await
        };
        let answer = |added, total, existed| Ok(Imported { added, total, existed });
        assert_eq!(import(&["one", "two"]).await, answer(2, 2, false));
        assert_eq!(import(&["one", "two"]).await, answer(0, 2, true));
        assert_eq!(import(&["one", "two", "three", "four"]).await, answer(2, 4, true));
        // An older copy of the file has nothing new.
        assert_eq!(import(&["one"]).await, answer(0, 4, true));
        let conflict = "session a is already here with another message 2; nothing was imported";
        assert_eq!(
            import(&["one", "2", "three", "four", "five"]).await,
            Err(Error::Conflict(conflict.to_owned()))
        );
        assert_eq!(transcript(&*store, "a").await, ["1 one", "2 two", "3 three", "4 four"]);
        let session = store.session(&id("a")).await.expect("read").expect("there");
        assert!(session.starred);
    });
}

#[test]
fn an_import_of_no_messages_makes_the_session() {
    tell(async |store| {
        let import = || ImportedSession { session: chat("a"), starred: false, messages: vec![] };
        assert_eq!(store.import(import()).await, Ok(Imported { added: 0, total: 0, existed: false }));
        assert_eq!(store.import(import()).await, Ok(Imported { added: 0, total: 0, existed: true }));
        assert_eq!(transcript(&*store, "a").await, Vec::<String>::new());
    });
}

#[test]
fn a_span_is_read_from_either_end_and_oldest_first() {
    tell(async |store| {
        store.ensure_session(chat("a")).await.expect("made");
        let messages = (1..=9).map(|n| say(&format!("m{n}"))).collect();
        store.append(&id("a"), messages, None).await.expect("appended");
        let check = async |span, limit, expected: &str| {
            let page = store.messages(&id("a"), span, limit).await.expect("a page");
            let seqs: Vec<String> = page.messages.iter().map(|message| message.seq.to_string()).collect();
            assert_eq!((seqs.join(" ").as_str(), page.damaged.len()), (expected, 0), "{span:?} {limit}");
        };
        check(Span::Last, 3, "7 8 9").await;
        check(Span::Last, 0, "").await;
        check(Span::Last, 100, "1 2 3 4 5 6 7 8 9").await;
        check(Span::Before(4), 2, "2 3").await;
        check(Span::Before(1), 2, "").await;
        check(Span::Before(0), 2, "").await;
        check(Span::Before(u64::MAX), 2, "8 9").await;
        check(Span::After(7), 5, "8 9").await;
        check(Span::After(0), 2, "1 2").await;
        check(Span::After(9), 2, "").await;
        check(Span::After(u64::MAX), 2, "").await;
    });
}

#[test]
fn a_message_is_found_by_its_id_and_only_in_its_session() {
    tell(async |store| {
        store.ensure_session(chat("a")).await.expect("made");
        store.ensure_session(chat("b")).await.expect("made");
        store.append(&id("a"), vec![say("one"), say("two")], None).await.expect("appended");
        assert_eq!(store.find_message(&id("a"), &say("two").id).await, Ok(Some(2)));
        assert_eq!(store.find_message(&id("b"), &say("two").id).await, Ok(None));
        assert_eq!(store.find_message(&id("a"), &say("three").id).await, Ok(None));
    });
}

#[test]
fn messages_are_counted_by_what_they_show() {
    tell(async |store| {
        store.ensure_session(chat("a")).await.expect("made");
        let messages = vec![
            say_as(Role::System, "rules", 1),
            say_as(Role::User, "hi", 2),
            say_as(Role::ToolResult, "out", 3),
            say_as(Role::Assistant, "done", 4),
        ];
        store.append(&id("a"), messages, None).await.expect("appended");
        let count = async |span, mask| store.count_messages(&id("a"), span, mask).await.expect("a count");
        assert_eq!(count(Span::Last, Shape::SPEAKS).await, 2);
        assert_eq!(count(Span::Last, Shape::SPEAKS | Shape::TOOLS).await, 3);
        assert_eq!(count(Span::Last, Shape::SYSTEM).await, 1);
        assert_eq!(count(Span::Before(4), Shape::SPEAKS | Shape::TOOLS).await, 2);
        assert_eq!(count(Span::After(2), Shape::SPEAKS).await, 1);
        assert_eq!(count(Span::Last, 0).await, 0);
    });
}

#[test]
fn a_body_comes_back_byte_for_byte() {
    tell(async |store| {
        store.ensure_session(chat("a")).await.expect("made");
        let texts = [
            "",
            "\u{0}\u{1f}\u{7f}",
            "línea\r\n\t\"quoted\" \\ end",
            "🦀\u{202e}\u{feff}",
            "%_*'; DROP TABLE messages",
        ];
        let messages: Vec<_> = texts.iter().map(|text| say(text)).collect();
        let written: Vec<String> =
            messages.iter().map(|message| serde_json::to_string(&message.body).expect("JSON")).collect();
        store.append(&id("a"), messages, None).await.expect("appended");
        let page = store.messages(&id("a"), Span::Last, 10).await.expect("a page");
        let read: Vec<&String> = page.messages.iter().map(|message| &message.body).collect();
        assert_eq!(read, written.iter().collect::<Vec<_>>());
        assert_eq!(shown(&page).len(), texts.len());
        let line = page.messages[2].to_json();
        assert!(line.starts_with("{\"id\":\"") && line.contains("\"seq\":3,\"role\":\"user\""), "{line}");
    });
}
