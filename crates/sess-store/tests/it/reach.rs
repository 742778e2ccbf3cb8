//! Which sessions a viewer reaches; what is archived and deleted.

use proptest::prelude::*;
use sess_core::{
    AgentId, SessionKey, Source,
    key::SessionKind,
    session::{Address, Channel, Facts, NewSession, Runner, Sending},
};
use sess_store::{
    Circle, Error, Matching, NewRun, Process, Reach, SearchQuery, Seat, SessionFilter, SessionPatch, Store,
    Term,
};

use crate::support::{
    Scratch, agent, ask, at, boot, cases, chat, done, id, lease, plan, run, run_id, say, say_at, send,
    story_so_far,
};

fn key(text: &str) -> SessionKey {
    text.parse().expect(text)
}

/// Makes a session of that key, last active at `ms`.
async fn make(store: &dyn Store, name: &str, text: &str, parent: Option<&str>, ms: i64) {
    let new = NewSession { key: key(text), parent: parent.map(key), created_at: at(ms), ..chat(name) };
    store.ensure_session(new).await.expect("made");
}

fn everything() -> Reach {
    Reach::all(Circle::Everything)
}

async fn listed(store: &dyn Store, reach: &Reach) -> Vec<String> {
    let found = store.list_within(reach, 0, 100).await.expect("a list");
    assert_eq!(store.count_within(reach, 100).await, Ok(found.len() as u64));
    assert_eq!(store.list_within(reach, 0, 1).await.expect("a list"), found[..found.len().min(1)]);
    found.into_iter().map(|session| session.id.to_string()).collect()
}

#[test]
fn a_circle_holds_what_the_viewer_reaches_and_nothing_else() {
    let scratch = Scratch::new();
    run(async {
        let store = scratch.open();
        make(&*store, "main", "agent:a:main", None, 10).await;
        make(&*store, "child", "agent:b:subagent:1", Some("agent:a:main"), 20).await;
        make(&*store, "grandchild", "agent:b:subagent:2", Some("agent:b:subagent:1"), 30).await;
        make(&*store, "group", "agent:b:discord:group:1", None, 40).await;
        make(&*store, "job", "cron:nightly", None, 50).await;
        make(&*store, "tie-b", "agent:c:chat:2", None, 60).await;
        make(&*store, "tie-a", "agent:c:chat:1", None, 60).await;
        let own = key("agent:a:main");
        let reach = |circle| Reach { circle, ..everything() };
        let all = ["tie-a", "tie-b", "job", "group", "grandchild", "child", "main"];
        assert_eq!(listed(&*store, &everything()).await, all);
        assert_eq!(listed(&*store, &reach(Circle::Own(own.clone()))).await, ["main"]);
        let tree = reach(Circle::Tree(own.clone()));
        assert_eq!(listed(&*store, &tree).await, ["grandchild", "child", "main"]);
        let agents = |agentless, names: &[&str]| {
            let agents = names.iter().map(|name| agent(name)).collect();
            reach(Circle::Agents { own: own.clone(), agents, agentless })
        };
        assert_eq!(listed(&*store, &agents(false, &["a"])).await, ["grandchild", "child", "main"]);
        let more = listed(&*store, &agents(true, &["a", "b"])).await;
        assert_eq!(more, ["job", "group", "grandchild", "child", "main"]);
        let kinds = Reach { kinds: vec![SessionKind::Main, SessionKind::Group], ..everything() };
        assert_eq!(listed(&*store, &kinds).await, ["group", "main"]);
        let active = Reach { active_since: Some(at(50)), ..everything() };
        assert_eq!(listed(&*store, &active).await, ["tie-a", "tie-b", "job"]);
        assert_eq!(store.count_within(&everything(), 3).await, Ok(3));
        assert_eq!(store.agents().await, Ok(vec![agent("a"), agent("b"), agent("c")]));

        // Of a key that was reset, its newest transcript; nothing that is archived.
        make(&*store, "main-2", "agent:a:main", None, 5).await;
        store.patch_session(&id("job"), SessionPatch::Archived(true), at(99)).await.expect("archived");
        let expected = ["tie-a", "tie-b", "group", "grandchild", "child", "main-2"];
        assert_eq!(listed(&*store, &everything()).await, expected);
        // A loop of parents ends.
        make(&*store, "x", "agent:x:chat:1", Some("agent:x:chat:2"), 70).await;
        make(&*store, "y", "agent:x:chat:2", Some("agent:x:chat:1"), 80).await;
        assert_eq!(listed(&*store, &reach(Circle::Tree(key("agent:x:chat:1")))).await, ["y", "x"]);
    });
}

#[test]
fn a_list_is_searched_paged_and_asked_for_one_agent() {
    let scratch = Scratch::new();
    run(async {
        let store = scratch.open();
        for (ms, name, text, title, label) in [
            (10, "one", "agent:a:main", "Fix the Parser", None),
            (20, "two", "agent:b:chat:2", "100% of_it \\ done", None),
            (30, "three", "cron:nightly", "", Some("the parser's night")),
            (40, "four", "agent:a:chat:4", "other", None),
        ] {
            let mut new = NewSession { key: key(text), created_at: at(ms), ..chat(name) };
            new.title = title.to_owned();
            new.facts.label = label.map(str::to_owned);
            store.ensure_session(new).await.expect("made");
        }
        let search = |text: &str| Reach { search: Some(text.to_owned()), ..everything() };
        assert_eq!(listed(&*store, &search("PARSER")).await, ["three", "one"]);
        assert_eq!(listed(&*store, &search("agent:a:")).await, ["four", "one"]);
        // Signs that patterns are made of are themselves.
        assert_eq!(listed(&*store, &search("0% of_")).await, ["two"]);
        assert_eq!(listed(&*store, &search("\\ d")).await, ["two"]);
        assert_eq!(listed(&*store, &search("F%r")).await, Vec::<String>::new());
        assert_eq!(listed(&*store, &search("' OR 1=1 --")).await, Vec::<String>::new());
        let of = Reach { agent: Some(agent("a")), ..everything() };
        assert_eq!(listed(&*store, &of).await, ["four", "one"]);
        let outside = Reach { circle: Circle::Own(key("agent:a:main")), ..search("parser") };
        assert_eq!(listed(&*store, &outside).await, ["one"], "nothing is found that is out of reach");
        let page = store.list_within(&everything(), 1, 2).await.expect("a page");
        let page: Vec<&str> = page.iter().map(|session| session.id.as_str()).collect();
        assert_eq!(page, ["three", "two"]);
        store.patch_session(&id("four"), SessionPatch::Archived(true), at(99)).await.expect("archived");
        assert_eq!(listed(&*store, &of).await, ["one"]);
        assert_eq!(listed(&*store, &Reach { with_archived: true, ..of }).await, ["four", "one"]);
    });
}

#[test]
fn a_list_is_narrowed_by_where_sessions_come_from_and_where_they_ran() {
    let scratch = Scratch::new();
    run(async {
        let store = scratch.open();
        for (ms, name, source, cwd) in [
            (10, "one", Source::Native, Some("/work/a")),
            (20, "two", Source::Claude, Some("/work/a/below")),
            (30, "three", Source::Codex, Some("/work/ab")),
            (40, "four", Source::Native, None),
        ] {
            let mut new = NewSession::chat(id(name), source, at(ms));
            new.cwd = cwd.map(str::to_owned);
            store.ensure_session(new).await.expect("made");
        }
        let of = |sources: &[Source]| Reach { sources: sources.to_vec(), ..everything() };
        assert_eq!(listed(&*store, &of(&[Source::Native])).await, ["four", "one"]);
        assert_eq!(listed(&*store, &of(&[Source::Claude, Source::Codex])).await, ["three", "two"]);
        let inside = Reach { dirs: vec!["/work/a/".to_owned()], ..everything() };
        assert_eq!(listed(&*store, &inside).await, ["two", "one"], "a name that begins alike is elsewhere");
        let search = Reach { search: Some("WORK/A".to_owned()), ..everything() };
        assert_eq!(listed(&*store, &search).await, ["three", "two", "one"]);
        let except = Reach { except: vec![id("two"), id("four"), id("nobody")], ..everything() };
        assert_eq!(listed(&*store, &except).await, ["three", "one"]);
    });
}

#[test]
fn the_sessions_of_a_key_follow_each_other() {
    let scratch = Scratch::new();
    run(async {
        let store = scratch.open();
        for name in ["one", "two", "three"] {
            make(&*store, name, "agent:a:main", None, 10).await;
        }
        make(&*store, "other", "agent:b:main", None, 20).await;
        assert_eq!(store.session_after(&id("one")).await, Ok(Some(id("two"))));
        assert_eq!(store.session_after(&id("two")).await, Ok(Some(id("three"))));
        assert_eq!(store.session_after(&id("three")).await, Ok(None));
        assert_eq!(store.session_after(&id("nobody")).await, Ok(None));
        store.delete_session(&id("two"), "owner", at(30)).await.expect("deleted");
        assert_eq!(store.session_after(&id("one")).await, Ok(Some(id("three"))));
    });
}

fn any_key() -> impl Strategy<Value = SessionKey> {
    let part =
        prop::sample::select(vec!["main", "group", "channel", "chat", "thread", "Main", "é", "x y", "g%_*"]);
    let address = prop::collection::vec(part, 1..5).prop_map(|parts| parts.join(":"));
    let prefix =
        prop::sample::select(vec!["agent:a:", "agent:main:", "agent:group:", "cron:", "hook:", "node-"]);
    let kind = prop::sample::select(vec!["", "chat:", "subagent:", "main:thread:", "x:group:", "é:channel:"]);
    (prefix, kind, address)
        .prop_filter_map("a key", |(prefix, kind, address)| format!("{prefix}{kind}{address}").parse().ok())
}

#[test]
fn the_store_and_the_core_agree_on_the_kind_of_every_key() {
    let config = ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(keys in prop::collection::hash_set(any_key(), 1..30))| {
        let scratch = Scratch::new();
        run(async {
            let store = scratch.open();
            for (n, key) in keys.iter().enumerate() {
                let new = NewSession { key: key.clone(), ..chat(&format!("s{n}")) };
                store.ensure_session(new).await.expect("made");
            }
            for kind in SessionKind::ALL {
                let reach = Reach { kinds: vec![kind], ..everything() };
                let found = store.list_within(&reach, 0, 100).await.expect("a list");
                let mut found: Vec<SessionKey> = found.into_iter().map(|session| session.key).collect();
                let mut expected: Vec<_> = keys.iter().filter(|key| key.kind() == kind).cloned().collect();
                found.sort();
                expected.sort();
                assert_eq!(found, expected, "{kind}");
            }
            let mut agents: Vec<AgentId> = keys.iter().filter_map(SessionKey::agent).collect();
            agents.sort();
            agents.dedup();
            assert_eq!(store.agents().await, Ok(agents));
        });
    });
}

#[test]
fn a_deleted_session_is_gone_but_for_its_runs() {
    let scratch = Scratch::new();
    run(async {
        let store = scratch.open();
        store.ensure_session(chat("other")).await.expect("made");
        store.append(&id("other"), vec![say("shared word")], None).await.expect("appended");
        let facts = Facts { runner: Runner::Here, is_spawned: true, ..Facts::default() };
        let new =
            NewSession { parent: Some(chat("other").key), facts, title: "secret".to_owned(), ..chat("gone") };
        store.ensure_session(new).await.expect("made");
        store.append(&id("gone"), vec![say("secret word"), say("more")], None).await.expect("appended");
        store.write_plan(chat("gone"), plan("the secret plan")).await.expect("written");
        store.announce_plan(&id("gone"), 1, "/p").await.expect("announced");
        store.catch_up(&|_, _| ()).await.expect("indexed");
        let mirror = scratch.path().join("transcripts/gone.jsonl");
        assert!(mirror.exists());
        store.queue_run(NewRun { messages: vec![], ..ask(1, "gone") }).await.expect("queued");
        let busy = store.delete_session(&id("gone"), "ann", at(9)).await;
        assert_eq!(busy, Err(Error::Conflict("session gone has a run that has not ended".to_owned())));
        let held = lease("t", 100);
        store.lease_run(&id("gone"), &[agent("main")], held.clone(), at(5)).await.expect("leased");
        assert!(store.delete_session(&id("gone"), "ann", at(9)).await.is_err());
        store.end_run(&run_id(1), &held, vec![], done("kept"), at(6)).await.expect("ended");
        store.delete_session(&id("gone"), "ann", at(9_000)).await.expect("deleted");

        assert_eq!(store.session(&id("gone")).await, Ok(None));
        assert_eq!(store.session_by_key(&chat("gone").key).await, Ok(None));
        assert_eq!(store.sessions_by_prefix("go", 9).await, Ok(vec![]));
        assert_eq!(store.children(&chat("other").key).await, Ok(vec![]));
        assert_eq!(listed(&*store, &everything()).await, ["other"]);
        let top = store.list_sessions(&SessionFilter::default(), 0, 9).await.expect("a list");
        assert_eq!(top.len(), 1);
        let missing = || Error::NoSession(id("gone"));
        assert_eq!(store.messages(&id("gone"), sess_store::Span::Last, 9).await.map(|_| ()), Err(missing()));
        assert_eq!(store.append(&id("gone"), vec![say("x")], None).await, Err(missing()));
        assert_eq!(store.delete_session(&id("gone"), "ann", at(9)).await, Err(missing()));
        assert_eq!(store.plan(&id("gone")).await, Ok(None));
        let deleted = || Error::Conflict("session gone was deleted".to_owned());
        assert_eq!(store.queue_run(ask(2, "gone")).await, Err(deleted()));
        assert_eq!(store.ensure_session(chat("gone")).await, Err(deleted()));
        let kept = store.runs(Some(&id("gone")), 9).await.expect("read");
        assert_eq!(kept[0].result.as_deref(), Some("kept"));
        let story = story_so_far(&*store).await;
        assert!(!story.iter().any(|line| line.contains("secret") || line.contains('!')), "{story:?}");
        assert_eq!(
            story.last().map(String::as_str),
            Some("gone deleted as agent:main:chat:gone by ann with 2")
        );

        let find = async |word: &str| {
            let terms = vec![Term { text: word.to_owned(), matching: Matching::Whole }];
            let query = SearchQuery { terms, ..SearchQuery::default() };
            store.search(&query, None, 9).await.expect("searched").len()
        };
        assert_eq!((find("secret").await, find("word").await), (0, 1));
        store.catch_up(&|_, _| ()).await.expect("caught up");
        assert!(!mirror.exists());
        let index = rusqlite::Connection::open(scratch.path().join("search.db")).expect("the index");
        let words = |word: &str| -> i64 {
            let sql = "SELECT count(*) FROM words WHERE words MATCH ?1";
            index.query_row(sql, [word], |row| row.get(0)).expect("counted")
        };
        assert_eq!((words("secret"), words("word")), (0, 1), "nor is it in the index");
        store.append(&id("other"), vec![say("later word")], None).await.expect("appended");
        assert_eq!(find("word").await, 2);
    });
    let health = sess_store::health(scratch.path()).expect("healthy");
    assert_eq!((health.damage, health.sessions, health.runs), (vec![], 1, 1));
}

#[test]
fn an_index_whose_last_message_was_deleted_is_not_taken_for_another_stores() {
    let scratch = Scratch::new();
    run(async {
        let store = scratch.open();
        for name in ["a", "b"] {
            store.ensure_session(chat(name)).await.expect("made");
            store.append(&id(name), vec![say("word")], None).await.expect("appended");
        }
        store.catch_up(&|_, _| ()).await.expect("indexed");
        let identity = || {
            use std::os::unix::fs::MetadataExt as _;
            std::fs::metadata(scratch.path().join("search.db")).expect("the index").ino()
        };
        let before = identity();
        // The very message that was taken in last.
        store.delete_session(&id("b"), "ann", at(9)).await.expect("deleted");
        store.catch_up(&|_, _| ()).await.expect("caught up");
        store.append(&id("a"), vec![say("more")], None).await.expect("appended");
        store.catch_up(&|_, _| ()).await.expect("caught up");
        assert_eq!(identity(), before, "it was not made again");
    });
}

#[test]
fn a_spawned_session_is_archived_once_all_is_quiet() {
    let scratch = Scratch::new();
    run(async {
        let store = scratch.open();
        let facts =
            Facts { is_spawned: true, label: Some("\"isSpawned\":true".to_owned()), ..Facts::default() };
        let spawned = |name: &str| NewSession { facts: facts.clone(), ..chat(name) };
        let names = ["quiet", "busy", "unsettled", "recent", "ended-late", "seated", "alive"];
        for name in names {
            store.ensure_session(spawned(name)).await.expect("made");
        }
        let label = Some("\"isSpawned\":true".to_owned());
        store
            .ensure_session(NewSession { facts: Facts { label, ..Facts::default() }, ..chat("named") })
            .await
            .expect("made");
        store.ensure_session(chat("plain")).await.expect("made");
        store.queue_run(NewRun { messages: vec![], ..ask(1, "busy") }).await.expect("queued");
        store.append(&id("recent"), vec![say_at("new", 60_000)], None).await.expect("appended");
        for (n, name, ended_at) in [(2, "unsettled", 10), (3, "ended-late", 60_000)] {
            let errand = if n == 2 { send("plain") } else { sess_core::run::Errand::Message };
            store.queue_run(NewRun { messages: vec![], errand, ..ask(n, name) }).await.expect("queued");
            let held = lease("t", 100);
            store.lease_run(&id(name), &[agent("main")], held.clone(), at(5)).await.expect("leased");
            store.end_run(&run_id(n), &held, vec![], done("x"), at(ended_at)).await.expect("ended");
        }
        let process = sess_store::this_process().expect("this process");
        let dead = Process { started: process.started + 1, ..process };
        let later = sess_store::boot_time().expect("a boot time").plus(600_000);
        let sit = async |name: &str, until, process| {
            let seat = Seat { node: "n".to_owned(), until, process };
            store.sit(&id(name), seat).await.expect("taken");
        };
        sit("seated", later, dead).await;
        sit("alive", boot("an earlier boot", 1), process).await;
        sit("quiet", boot("an earlier boot", 1), dead).await;
        let archived = async |before| {
            let found = store.archive_spawned(at(before), at(99_000)).await.expect("archived");
            assert!(found.iter().all(|session| session.archived_at == Some(at(99_000))));
            found.into_iter().map(|session| session.id.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(archived(500).await, Vec::<String>::new(), "they were active since");
        assert_eq!(archived(50_000).await, ["quiet"]);
        assert_eq!(archived(50_000).await, Vec::<String>::new(), "once");
        store.settle_run(&run_id(2), vec![], at(1)).await.expect("settled");
        store.stand_up(&id("alive"), "n").await.expect("given up");
        assert_eq!(archived(50_000).await, ["unsettled", "alive"]);
        assert_eq!(archived(70_000).await, ["ended-late", "recent"]);
    });
}

#[test]
fn facts_stay_and_are_patched_one_by_one() {
    let scratch = Scratch::new();
    run(async {
        let store = scratch.open();
        let facts = Facts { label: Some("x".to_owned()), ..Facts::default() };
        let new = NewSession { facts: facts.clone(), ..NewSession::chat(id("a"), Source::Claude, at(1)) };
        assert_eq!(store.ensure_session(new).await.expect("made").facts, facts, "also one that is run here");
        let policy = SessionPatch::SendPolicy(Some(Sending::Deny));
        store.patch_session(&id("a"), policy, at(5)).await.expect("patched");
        let address = Address { channel: Channel::Telegram, to: Some("42".to_owned()), account_id: None };
        for _ in 0..2 {
            let delivery = SessionPatch::Delivery(address.clone());
            store.patch_session(&id("a"), delivery, at(6)).await.expect("patched");
        }
        drop(store);
        let store = scratch.open();
        let found = store.session(&id("a")).await.expect("read").expect("made");
        let expected = Facts { send_policy: Some(Sending::Deny), delivery: Some(address), ..facts };
        assert_eq!(found.facts, expected);
        let story = story_so_far(&*store).await;
        assert_eq!(story[1..], ["a send_policy", "a delivery"], "the same place is told once");
        store.patch_session(&id("a"), SessionPatch::SendPolicy(None), at(7)).await.expect("patched");
        assert_eq!(store.session(&id("a")).await.expect("read").expect("made").facts.send_policy, None);
    });
}
