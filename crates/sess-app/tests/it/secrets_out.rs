//! Every form of a secret on every way from one session to another, also where texts are cut.

use serde_json::{Value, json};
use sess_app::{ListRuns, ReadEvents, Redaction, SpawnTask};
use sess_core::{
    MessageId,
    exchange::{self, REPORT_BYTES_MAX, Task},
    message::{Body, Role},
    redact::redact,
    run::RunState,
    session::{Address, Channel, Runner, Session},
};
use sess_store::{NewMessage, SessionPatch, Store};

use crate::{
    stage::{Act, Asked, AtWork, Stage, caller_of, main_of, node, say, send, world},
    storms::{all_reach_all, calm},
    world::{new_session, now, random},
};

#[path = "../../../sess-core/src/redact/tests/secrets.rs"]
mod forms;

use forms::FORMS;

/// So many forms at a time that a text with them is not cut.
const AT_ONCE: usize = 25;
/// Where `sessions_history` and `sessions_list` cut a text.
const TEXT_CHARS: usize = 4_000;
const TITLE_CHARS: usize = 80;

/// Texts with several secrets, and how they are shown.
fn texts() -> Vec<(String, String)> {
    let together = |forms: &[(&str, &str)]| {
        let texts: Vec<&str> = forms.iter().map(|form| form.0).collect();
        let shown: Vec<&str> = forms.iter().map(|form| form.1).collect();
        (texts.join("\n\n"), shown.join("\n\n"))
    };
    let texts: Vec<_> = FORMS.chunks(AT_ONCE).map(together).collect();
    for (text, shown) in &texts {
        assert_eq!(redact(text).0, *shown);
        assert!(text.chars().count() < TEXT_CHARS);
    }
    texts
}

/// Returns the part of a form that is nowhere to be seen, if it is long enough to be told from other words.
fn hidden(form: &(&str, &str)) -> Option<String> {
    let (text, shown) = form;
    let before = text.bytes().zip(shown.bytes()).take_while(|(a, b)| a == b).count();
    let after = text.bytes().rev().zip(shown.bytes().rev()).take_while(|(a, b)| a == b).count();
    let hidden = text.get(before..text.len() - after.min(text.len() - before))?;
    let is_known_elsewhere = || FORMS.iter().any(|(_, shown)| shown.contains(hidden));
    (hidden.len() >= 7 && !is_known_elsewhere()).then(|| hidden.to_owned())
}

/// Returns all texts in an answer.
fn strings(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::String(text) => into.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| strings(item, into)),
        Value::Object(fields) => fields.values().for_each(|field| strings(field, into)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[track_caller]
fn check_none(way: &str, told: &str) {
    for form in FORMS {
        assert!(!told.contains(form.0), "{way} shows {:?}: {told}", form.0);
        if let Some(hidden) = hidden(form) {
            assert!(!told.contains(&hidden), "{way} shows {hidden:?} of {:?}: {told}", form.0);
        }
    }
}

/// The text has come this way, and its secrets have not.
#[track_caller]
fn check(way: &str, told: &str, shown: &str) {
    check_none(way, told);
    assert!(told.contains(shown), "{way} shows something else than {shown:?}: {told}");
}

#[track_caller]
fn check_json(way: &str, told: &Value, shown: &str) {
    let mut texts = Vec::new();
    strings(told, &mut texts);
    check(way, &texts.join("\n"), shown);
}

/// Agents that say the text whenever they are asked, but when it is to fail with it.
fn saying(text: &str) -> Stage {
    let text = text.to_owned();
    Stage::new(move |asked: &Asked| match asked.last.as_str() {
        "fail" => Act::Fail(text.clone()),
        _ => say(&text),
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_leaves_a_session_on_any_way() {
    for (text, shown) in texts() {
        let world = world(|rules| {
            all_reach_all(rules);
            rules.rounds_max = 1;
        });
        let (store, stage) = (world.store(), saying(&text));
        let (a, b) = (main_of(&*store, "a").await, main_of(&*store, "b").await);
        let c = main_of(&*store, "c").await;
        let (as_a, as_c) = (caller_of(&world.app, &a), caller_of(&world.app, &c));
        let to = Address { channel: Channel::Discord, to: Some("42".to_owned()), account_id: None };
        for session in [&a, &b] {
            store
                .patch_session(&session.id, SessionPatch::Delivery(to.clone()), now())
                .await
                .expect("patched");
        }
        let at_work = AtWork::new(&node(&world.app, &stage, 5_000));
        let ask = |to: &str, message: &str| json!({"sessionKey": to, "message": message});

        let answer =
            world.answer(&as_a, "sessions_send", ask("agent:b:main", &format!("{text}\n\nend"))).await;
        check_json("a reply", &answer.structured.expect("data"), &shown);
        let answer = world.answer(&as_a, "sessions_send", ask("agent:b:main", "fail")).await;
        check_json("an error", &answer.structured.expect("data"), &shown);
        let failed = calm(&*store).await.into_iter().find(|run| run.state == RunState::Failed).expect("one");
        let waited = world.app.wait_for(&as_a, &failed.id, None, Redaction::Masked).await.expect("waited");
        check("a wait for what failed", &waited.error.expect("a reason"), &shown);

        send(&*store, &a, &b, "later", 0, false).await;
        let spawn = SpawnTask { task: "task".to_owned(), ..SpawnTask::default() };
        let child = world.app.spawn(&as_a, spawn).await.expect("spawned");
        let failing = SpawnTask { task: "fail".to_owned(), ..SpawnTask::default() };
        world.app.spawn(&as_a, failing).await.expect("spawned");
        calm(&*store).await;
        at_work.stop().await;

        let child = child.run_id.parse().expect("a run");
        let waited = world.app.wait_for(&as_a, &child, None, Redaction::Masked).await.expect("waited");
        check("a wait", &waited.result.expect("a result"), &shown);

        // What one agent's model gets to read of another's.
        let heard: Vec<Asked> = stage.asked();
        let heard_by_a: Vec<&Asked> = heard.iter().filter(|asked| asked.agent == "a").collect();
        for (way, mark) in [
            ("a round", "round 2 of at most"),
            ("a late reply", "answers what you sent it earlier"),
            ("a report", "the runtime's report on"),
        ] {
            let found: Vec<&&Asked> = heard_by_a.iter().filter(|asked| asked.system.contains(mark)).collect();
            assert!(!found.is_empty(), "{way} did not come: {heard:?}");
            for asked in found {
                check(way, &asked.last, &shown);
            }
        }
        let announces: Vec<&Asked> =
            heard.iter().filter(|asked| asked.system.contains("announce step")).collect();
        assert!(!announces.is_empty());
        for asked in announces {
            check("the prompt of an announce", &asked.system, &shown);
        }
        let posts = store.posts(None, 100).await.expect("readable");
        assert!(posts.len() >= 4, "{posts:?}");
        for post in posts {
            check("a post", &post.text, &shown);
        }

        let ask = json!({"sessionKey": "agent:b:main", "includeTools": true});
        let history = world.answer(&as_c, "sessions_history", ask).await.structured.expect("data");
        check_json("the history", &history, &shown);
        assert_eq!(history["contentRedacted"], true);
        let list = world.answer(&as_c, "sessions_list", json!({"messageLimit": 20})).await;
        check_json("the list", &list.structured.expect("data"), &shown);
        for as_tree in [false, true] {
            let ask = ListRuns { limit: Some(1_000), as_tree, ..ListRuns::default() };
            let rows = world.app.runs(&as_c, &ask).await.expect("rows");
            let rows: Vec<sess_protocol::runs::RunRow> = rows.into_iter().map(Into::into).collect();
            check_json("the runs", &serde_json::to_value(rows).expect("JSON"), &shown);
        }
        let ask = ReadEvents { limit: 10_000, ..ReadEvents::default() };
        for event in world.app.events(&as_c, &ask).await.expect("events").events {
            check_none("an event", &serde_json::to_string(&event.fields).expect("JSON"));
        }
    }
}

#[tokio::test]
async fn no_secret_comes_into_an_inbox_or_out_of_one() {
    let world = world(all_reach_all);
    let store = world.store();
    let a = main_of(&*store, "a").await;
    let mut host = new_session("host agent=b");
    host.facts.runner = Runner::Host;
    let host = store.ensure_session(host).await.expect("made");
    let (as_a, as_host) = (caller_of(&world.app, &a), caller_of(&world.app, &host));
    for (text, shown) in texts() {
        let ask = json!({"sessionKey": "host", "message": text, "timeoutSeconds": 0});
        let sent = world.answer(&as_a, "sessions_send", ask).await.structured.expect("data");
        let inbox = world.answer(&as_host, "sessions_inbox", json!({})).await.structured.expect("data");
        check_json("an inbox", &inbox, &shown);
        let reply = json!({"runId": sent["runId"], "message": text});
        world.answer(&as_host, "sessions_reply", reply.clone()).await;
        let twice = world.answer(&as_host, "sessions_reply", reply).await;
        check_none("a refused reply", &twice.text);
        let run = sent["runId"].as_str().expect("a run").parse().expect("an id");
        let waited = world.app.wait_for(&as_a, &run, None, Redaction::Masked).await.expect("waited");
        check("a reply from an inbox", &waited.result.expect("a reply"), &shown);
    }
}

#[tokio::test]
async fn no_secret_is_in_the_names_of_sessions_or_runs() {
    let world = world(all_reach_all);
    let store = world.store();
    let a = main_of(&*store, "a").await;
    for (n, (text, _)) in FORMS.iter().enumerate() {
        let mut new = new_session(&format!("named-{n} agent=b title={text}"));
        new.facts.label = Some((*text).to_owned());
        new.facts.display_name = Some((*text).to_owned());
        store.ensure_session(new).await.expect("made");
    }
    let as_a = caller_of(&world.app, &a);
    let list = world.answer(&as_a, "sessions_list", json!({"limit": 200})).await.structured.expect("data");
    assert!(list["sessions"].as_array().expect("rows").len() > FORMS.len());
    for row in list["sessions"].as_array().expect("rows") {
        let Some(n) = row["sessionId"].as_str().and_then(|id| id.strip_prefix("named-")) else { continue };
        let n: usize = n.parse().expect("a number");
        for field in ["title", "label", "displayName"] {
            assert_eq!(row[field], FORMS[n].1, "{field}");
        }
    }
    for (text, shown) in FORMS {
        let ask = SpawnTask { task: "x".to_owned(), label: Some((*text).to_owned()), ..SpawnTask::default() };
        // The owner may have any number of children.
        world.app.spawn(&world.owner(), ask).await.expect("spawned");
        let ask = ListRuns { limit: Some(1), ..ListRuns::default() };
        let rows = world.app.runs(&as_a, &ask).await.expect("rows");
        assert_eq!(rows[0].label.as_deref(), Some(shown.trim()));
    }
}

/// Returns how many characters of a secret stand before the cut, for each that is tried.
fn places(text: &str) -> impl Iterator<Item = usize> {
    let len = text.chars().count();
    [5, len / 2, len - 1].into_iter().filter(move |place| (1..len).contains(place))
}

/// Fills a text up to `chars`, and ends a line with that.
fn filling(chars: usize) -> String {
    let mut filling = "word ".repeat(chars / 5);
    filling.push_str(&"w".repeat(chars - filling.len()));
    filling.pop();
    filling.push('\n');
    filling
}

#[tokio::test]
async fn a_secret_that_a_history_would_cut_in_two_is_masked_first() {
    let world = world(all_reach_all);
    let store = world.store();
    let a = main_of(&*store, "a").await;
    let as_a = caller_of(&world.app, &a);
    let cut = |text: &str| match text.char_indices().nth(TEXT_CHARS) {
        Some((end, _)) => format!("{}…(truncated)…", &text[..end]),
        None => text.to_owned(),
    };
    let mut tried: Vec<(String, String)> = Vec::new();
    for (text, shown) in FORMS {
        for place in places(text) {
            let filling = filling(TEXT_CHARS - place);
            tried.push((format!("{filling}{text}\nend"), cut(&format!("{filling}{shown}\nend"))));
        }
    }
    // As many in one session as fit into one answer.
    for (n, tried) in tried.chunks(15).enumerate() {
        let session = said(&*store, n, tried).await;
        let ask = json!({"sessionKey": session.key.as_str()});
        let history = world.answer(&as_a, "sessions_history", ask).await.structured.expect("data");
        let messages = history["messages"].as_array().expect("messages");
        assert_eq!((messages.len(), &history["droppedMessages"]), (tried.len(), &json!(0)));
        for (message, (text, shown)) in messages.iter().zip(tried) {
            assert_eq!(message["content"][0]["text"], **shown, "{text}");
        }
        if n % 5 == 0 {
            let list = world.answer(&as_a, "sessions_list", json!({"messageLimit": 20})).await;
            let list = list.structured.expect("data");
            let rows = list["sessions"].as_array().expect("rows");
            let row = rows.iter().find(|row| row["sessionId"] == session.id.as_str()).expect("listed");
            for (message, (text, shown)) in row["messages"].as_array().expect("messages").iter().zip(tried) {
                assert_eq!(message["content"][0]["text"], **shown, "{text}");
            }
        }
    }
}

async fn said(store: &dyn Store, n: usize, texts: &[(String, String)]) -> Session {
    let session = store.ensure_session(new_session(&format!("cut-{n} agent=b"))).await.expect("made");
    let message = |(text, _): &(String, String)| {
        let body = Body::text(Role::Assistant, text.as_str(), now());
        NewMessage { id: MessageId::new(now(), random()), body }
    };
    store.append(&session.id, texts.iter().map(message).collect(), None).await.expect("appended");
    session
}

#[tokio::test]
async fn a_secret_that_a_report_would_cut_in_two_is_masked_first() {
    let world = world(|_| {});
    let store = world.store();
    let a = main_of(&*store, "a").await;
    let mut run = send(&*store, &a, &a, "x", 0, true).await;
    run.state = RunState::Done;
    let task = Task { session: &a, latest_tool_result: None, transcript_path: None };
    for (text, shown) in FORMS {
        for place in places(text) {
            let filling = filling(REPORT_BYTES_MAX - text.floor_char_boundary(place));
            run.result = Some(format!("{filling}{text}\nend"));
            let report = exchange::report(&run, &task);
            let told = report.split_once("\nNotes: ").expect("notes").0;
            let told = told.strip_prefix("Status: ok\nResult: ").expect("a result");
            let whole = format!("{filling}{shown}\nend");
            assert!(
                whole.starts_with(told),
                "{:?} at {place} is told as {:?}",
                text,
                &told[told.len() - 80..]
            );
            assert!(told.len() <= REPORT_BYTES_MAX);
        }
    }
}

#[tokio::test]
async fn a_secret_that_a_title_would_cut_in_two_is_masked_first() {
    let world = world(|_| {});
    let store = world.store();
    for (text, shown) in FORMS {
        let line = text.lines().next().expect("a line");
        for place in places(line) {
            // In the middle of a line, as far as the form is known there too.
            let filling = "word ".repeat(TITLE_CHARS / 5);
            let filling = &filling[..(TITLE_CHARS - place.min(TITLE_CHARS - 1)) / 5 * 5];
            let (task, masked) = (format!("{filling}{text}"), format!("{filling}{shown}"));
            if redact(&task).0 != masked {
                continue;
            }
            let ask = SpawnTask { task, ..SpawnTask::default() };
            let answer = world.app.spawn(&world.owner(), ask).await.expect("spawned");
            let key = answer.child_session_key.parse().expect("a key");
            let title = store.session_by_key(&key).await.expect("readable").expect("stored").title;
            let told = title.strip_suffix('…').unwrap_or(&title);
            assert!(masked.trim().starts_with(told), "{text:?} is told as {title:?}");
        }
    }
}
