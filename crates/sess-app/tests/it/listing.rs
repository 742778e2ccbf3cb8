//! `list_sessions`: what is listed, in which order, and how much of it.

use serde_json::{Value, json};
use sess_core::{message::Role, policy::ContextVisibility};
use sess_store::SessionPatch;

use crate::world::{World, at, id, new_session, text, told};

impl World {
    /// Returns the ids that the agent of `session` is shown.
    async fn listed(&self, session: &str, arguments: Value) -> Vec<String> {
        ids(&self.call(session, "list_sessions", arguments).await)
    }

    /// Makes many sessions at once: they share their commits.
    async fn sessions(&self, prefix: &str, numbers: std::ops::Range<usize>) {
        let store = self.store();
        let mut made = tokio::task::JoinSet::new();
        for n in numbers {
            let (store, session) = (store.clone(), new_session(&format!("{prefix}-{n:04}")));
            made.spawn(async move { store.ensure_session(session).await.expect("made") });
        }
        made.join_all().await;
    }

    async fn active(&self, line: &str, when: &str) {
        self.said(line, "hi", when).await;
    }
}

fn ids(listing: &str) -> Vec<String> {
    let listing: Vec<Value> = serde_json::from_str(listing).expect(listing);
    listing.iter().map(|session| session["id"].as_str().expect("an id").to_owned()).collect()
}

#[tokio::test]
async fn a_secret_in_the_name_of_a_directory_is_masked() {
    let world = World::new();
    let secret = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";
    world.active(&format!("s-1 cwd=/work/{secret}"), "2026-11-02T08:00:00.250Z").await;
    let listed = world.call("me", "list_sessions", json!({})).await;
    assert!(listed.contains("/work/ghp_") && !listed.contains(secret), "{listed}");
}

#[tokio::test]
async fn an_element_has_its_fields_in_the_contracts_order() {
    let world = World::new();
    assert_eq!(world.call("me", "list_sessions", json!({})).await, "[]");
    world.active("s-1 source=claude cwd=/work title=Fix it", "2026-11-02T08:00:00.250Z").await;
    assert_eq!(
        world.call("me", "list_sessions", json!({})).await,
        r#"[{"id":"s-1","title":"Fix it","created_at":"2026-11-01T12:00:00Z","num_messages":1,"updated_at":"2026-11-02T08:00:00.250Z","source":"claude","agent":"claude","cwd":"/work"}]"#
    );
    world
        .store()
        .patch_session(&id("s-1"), SessionPatch::Starred(true), at("2026-11-03T00:00:00Z"))
        .await
        .expect("starred");
    world
        .store()
        .patch_session(&id("s-1"), SessionPatch::Title(String::new()), at("2026-11-03T00:00:00Z"))
        .await
        .expect("renamed");
    assert_eq!(
        world.call("me", "list_sessions", json!({})).await,
        r#"[{"id":"s-1","title":"","created_at":"2026-11-01T12:00:00Z","num_messages":1,"starred":true,"updated_at":"2026-11-02T08:00:00.250Z","source":"claude","agent":"claude","cwd":"/work"}]"#
    );
}

#[tokio::test]
async fn the_structured_part_has_the_same_under_sessions_and_a_total() {
    let world = World::new();
    let structured = async || world.answer(&world.agent("me"), "list_sessions", json!({"limit": 1})).await;
    assert_eq!(structured().await.structured, Some(json!({"sessions": [], "total": 0})));
    world.active("a", "2026-11-02T00:00:00Z").await;
    world.active("b", "2026-11-03T00:00:00Z").await;
    let answer = structured().await;
    let sessions: Value = serde_json::from_str(&answer.text).expect("JSON");
    assert_eq!(answer.structured, Some(json!({"sessions": sessions, "total": 2})));
}

#[tokio::test]
async fn the_limit_is_twenty_unless_said_and_a_hundred_at_most() {
    let world = World::new();
    world.sessions("s", 0..103).await;
    for (limit, count) in [
        (Value::Null, 20),
        (json!(0), 20),
        (json!(-1), 20),
        (json!(i64::MIN), 20),
        (json!(1), 1),
        (json!(20), 20),
        (json!(99), 99),
        (json!(100), 100),
        (json!(101), 100),
        (json!(i64::MAX), 100),
        (json!(u64::MAX), 100),
        (json!(5.0), 5),
    ] {
        assert_eq!(world.listed("me", json!({"limit": limit})).await.len(), count, "{limit}");
    }
    assert_eq!(world.listed("me", json!({})).await.len(), 20);
    // After the exclusions: the caller's own session takes nobody's place.
    assert_eq!(world.listed("s-0000", json!({"limit": 100})).await.len(), 100);
    assert_eq!(world.listed("s-0000", json!({"limit": 1})).await, ["s-0001"]);
}

#[tokio::test]
async fn totals_are_exact_up_to_a_thousand() {
    let world = World::new();
    let total = async |caller: &str| {
        let answer = world.answer(&world.agent(caller), "list_sessions", json!({"limit": 1})).await;
        let structured = answer.structured.expect("structured");
        (structured["total"].as_u64(), structured.get("totalIsMinimum").cloned())
    };
    world.sessions("s", 0..1_000).await;
    assert_eq!(total("me").await, (Some(1_000), None));
    world.sessions("s", 1_000..1_001).await;
    assert_eq!(total("me").await, (Some(1_000), Some(json!(true))));
    assert_eq!(total("s-0000").await, (Some(1_000), None), "the caller's own is not counted");
}

#[tokio::test]
async fn most_recent_activity_comes_first_then_creation_then_id() {
    let world = World::new();
    world.active("c-early at=2026-11-01T01:00:00Z", "2026-11-05T00:00:00Z").await;
    world.active("newest at=2026-10-01T01:00:00Z", "2026-11-06T00:00:00Z").await;
    world.active("b-late at=2026-11-01T02:00:00Z", "2026-11-05T00:00:00Z").await;
    world.active("a-late at=2026-11-01T02:00:00Z", "2026-11-05T00:00:00Z").await;
    world.active("oldest at=2026-11-04T02:00:00Z", "2026-11-04T03:00:00Z").await;
    let order = ["newest", "a-late", "b-late", "c-early", "oldest"];
    assert_eq!(world.listed("me", json!({})).await, order);
    // Writing a plan is activity; being starred or renamed is not.
    let oldest = id("oldest");
    world
        .store()
        .patch_session(&oldest, SessionPatch::Starred(true), at("2026-11-14T00:00:00Z"))
        .await
        .expect("starred");
    assert_eq!(world.listed("me", json!({})).await, order);
    world.write("c-early", "# plan").await;
    assert_eq!(world.listed("me", json!({})).await, ["c-early", "newest", "a-late", "b-late", "oldest"]);
}

#[tokio::test]
async fn times_are_compared_as_instants() {
    let world = World::new();
    // As texts these would sort the other way round.
    world.active("utc", "2026-11-05T11:00:00Z").await;
    world.active("east", "2026-11-05T12:30:00+02:00").await;
    world.active("west", "2026-11-05T09:00:00-05:00").await;
    assert_eq!(world.listed("me", json!({})).await, ["west", "utc", "east"]);
    let listing = world.call("me", "list_sessions", json!({"limit": 1})).await;
    assert!(listing.contains(r#""updated_at":"2026-11-05T14:00:00Z""#), "in UTC: {listing}");
}

#[tokio::test]
async fn the_caller_and_sub_sessions_are_never_listed_nor_running_ancestors() {
    let world = World::new();
    world.active("root", "2026-11-02T00:00:00Z").await;
    world.active("mid parent=agent:main:chat:root", "2026-11-03T00:00:00Z").await;
    world.active("leaf parent=agent:main:chat:mid", "2026-11-04T00:00:00Z").await;
    world.active("orphan parent=agent:gone:main", "2026-11-04T00:00:00Z").await;
    world.active("other", "2026-11-05T00:00:00Z").await;
    assert_eq!(world.listed("stranger", json!({})).await, ["other", "root"]);
    assert_eq!(world.listed("other", json!({})).await, ["root"]);
    assert_eq!(world.listed("root", json!({})).await, ["other"]);
    assert_eq!(world.listed("mid", json!({})).await, ["other"]);
    assert_eq!(world.listed("leaf", json!({})).await, ["other"]);
    assert_eq!(world.listed("agent:main:chat:root", json!({})).await, ["other"], "by key as by id");
    // To the owner at a terminal no session is the current one.
    let owner = told(&world.answer(&world.owner(), "list_sessions", json!({})).await);
    assert_eq!(ids(&owner), ["other", "root"]);
}

#[tokio::test]
async fn messages_are_counted_without_system_messages_and_sub_sessions() {
    let world = World::new();
    let session = world.session("s").await;
    let system = text("system", "be good");
    let (user, assistant, tool) = (text("user", "a"), text("assistant", "b"), text("toolResult", "c"));
    world.messages(&session, &[&system, &user, &assistant, &tool, &system]).await;
    let child = world.session("child parent=agent:main:chat:s").await;
    world.messages(&child, &[&user, &user]).await;
    let listing = world.call("me", "list_sessions", json!({})).await;
    assert!(listing.contains(r#""num_messages":3,"#), "{listing}");
    assert_eq!(serde_json::to_value(Role::System).expect("a name"), "system");
}

#[tokio::test]
async fn scope_source_and_query_narrow_the_list() {
    let world = World::with(|settings| {
        settings.cwd = Some("/work/app/src".to_owned());
        settings.repo = Some("/work/app".to_owned());
    });
    world.active("in-root cwd=/work/app title=Fix the Parser", "2026-11-02T00:00:00Z").await;
    world
        .active("in-sub cwd=/work/app/src/deep source=codex title=100% done_ok", "2026-11-03T00:00:00Z")
        .await;
    world.active("beside cwd=/work/app2 source=claude title=parse", "2026-11-04T00:00:00Z").await;
    world.active("nowhere source=docker-agent", "2026-11-05T00:00:00Z").await;
    assert_eq!(world.listed("me", json!({"scope": "repo"})).await, ["in-sub", "in-root"]);
    let all = ["nowhere", "beside", "in-sub", "in-root"];
    assert_eq!(world.listed("me", json!({"scope": "all"})).await, all);
    assert_eq!(world.listed("me", json!({})).await, all);
    assert_eq!(world.listed("me", json!({"source": "codex"})).await, ["in-sub"]);
    assert_eq!(world.listed("me", json!({"source": "docker-agent"})).await, ["nowhere"]);
    assert_eq!(world.listed("me", json!({"source": "native"})).await, ["in-root"]);
    assert_eq!(world.listed("me", json!({"source": "zed"})).await, [""; 0]);
    for source in
        "native claude codex gemini opencode goose docker-agent openclaw cursor zed crush amp".split(' ')
    {
        let told = world.call("me", "list_sessions", json!({"source": source})).await;
        assert!(told.starts_with('['), "{told}");
    }
    assert_eq!(
        world.call("me", "list_sessions", json!({"source": "Claude"})).await,
        "error: invalid argument \"source\": unknown source \"Claude\": one of native, claude, codex, gemini, opencode, goose, docker-agent, openclaw, cursor, zed, crush, amp"
    );
    assert_eq!(world.listed("me", json!({"query": "parse"})).await, ["beside", "in-root"]);
    assert_eq!(world.listed("me", json!({"query": "the P"})).await, ["in-root"]);
    assert_eq!(world.listed("me", json!({"query": ""})).await, all);
    assert_eq!(world.listed("me", json!({"query": "0%"})).await, ["in-sub"], "no pattern, a substring");
    assert_eq!(world.listed("me", json!({"query": "e_o"})).await, ["in-sub"]);
    assert_eq!(world.listed("me", json!({"query": "%"})).await, ["in-sub"]);
    assert_eq!(world.listed("me", json!({"query": "' OR 1=1 --"})).await, [""; 0]);
    assert_eq!(
        world.listed("me", json!({"scope": "repo", "source": "codex", "query": "done", "limit": 5})).await,
        ["in-sub"]
    );
    let answer =
        world.answer(&world.agent("me"), "list_sessions", json!({"scope": "repo", "limit": 1})).await;
    assert_eq!(answer.structured.expect("structured")["total"], 2, "the total is of what was asked");
}

#[tokio::test]
async fn without_a_directory_there_is_no_repository_to_look_in() {
    let world = World::new();
    world.active("s", "2026-11-02T00:00:00Z").await;
    assert_eq!(
        world.call("me", "list_sessions", json!({"scope": "repo"})).await,
        "error: scope \"repo\" needs a working directory, and there is none"
    );
    let world = World::with(|settings| settings.cwd = Some("/w".to_owned()));
    world.active("s cwd=/w/x", "2026-11-02T00:00:00Z").await;
    assert_eq!(
        world.listed("me", json!({"scope": "repo"})).await,
        ["s"],
        "outside a repository, the directory"
    );
}

#[tokio::test]
async fn archived_sessions_are_listed_when_asked_for() {
    let world = World::new();
    world.active("kept", "2026-11-02T00:00:00Z").await;
    world.active("put-away", "2026-11-03T00:00:00Z").await;
    let away = world.stored("put-away").await;
    world.app.archive(&world.owner(), &away, true).await.expect("archived");
    assert_eq!(world.listed("me", json!({})).await, ["kept"]);
    assert_eq!(world.listed("me", json!({"include_archived": false})).await, ["kept"]);
    assert_eq!(world.listed("me", json!({"include_archived": true})).await, ["put-away", "kept"]);
    world.app.archive(&world.owner(), &away, false).await.expect("back");
    assert_eq!(world.listed("me", json!({})).await, ["put-away", "kept"]);
}

#[tokio::test]
async fn a_damaged_session_costs_itself_only() {
    let world = World::new();
    for (n, day) in (1..=5).zip(2..) {
        world.active(&format!("s-{n}"), &format!("2026-11-0{day}T00:00:00Z")).await;
    }
    world.sql("UPDATE sessions SET title = 'changed' WHERE id = 's-4'");
    assert_eq!(world.listed("me", json!({})).await, ["s-5", "s-3", "s-2", "s-1"]);
    assert_eq!(
        world.listed("me", json!({"limit": 2})).await,
        ["s-5", "s-3"],
        "nor is the list shorter for it"
    );
    world.sql("UPDATE sessions SET key = 'no key' WHERE id = 's-2'");
    world.sql("UPDATE sessions SET source = x'ff' WHERE id = 's-5'");
    assert_eq!(world.listed("me", json!({"limit": 2})).await, ["s-3", "s-1"]);
    // A caller whose own session, or whose parent, is damaged still sees the others.
    assert_eq!(world.listed("s-4", json!({})).await, ["s-3", "s-1"]);
    world.active("child parent=agent:main:chat:s-4", "2026-11-09T00:00:00Z").await;
    assert_eq!(world.listed("child", json!({})).await, ["s-3", "s-1"]);
}

#[tokio::test]
async fn visibility_can_be_limited_to_the_callers_agent() {
    let world = World::with(|settings| settings.context_visibility = ContextVisibility::Agent);
    world.active("m-1 agent=main", "2026-11-02T00:00:00Z").await;
    world.active("m-2 agent=main", "2026-11-03T00:00:00Z").await;
    world.active("h-1 agent=helper", "2026-11-04T00:00:00Z").await;
    world.active("job key=cron:nightly", "2026-11-05T00:00:00Z").await;
    // The key says whose a session is, whichever agent is active in it.
    world.active("handed agent=helper key=agent:main:chat:handed", "2026-11-06T00:00:00Z").await;
    assert_eq!(world.listed("me", json!({})).await, ["handed", "m-2", "m-1"]);
    assert_eq!(world.listed("h-1", json!({})).await, [""; 0]);
    assert_eq!(world.listed("handed", json!({})).await, ["m-2", "m-1"]);
    assert_eq!(world.listed("job", json!({})).await, [""; 0], "a job has no agent");
    let total =
        world.answer(&world.agent("me"), "list_sessions", json!({})).await.structured.expect("structured");
    assert_eq!(total["total"], 3, "what is out of sight is not counted either");
    let owner = told(&world.answer(&world.owner(), "list_sessions", json!({})).await);
    assert_eq!(ids(&owner).len(), 5);
}

#[tokio::test]
async fn a_sandboxed_session_is_clamped_to_its_tree() {
    let world = World::new();
    world.active("me", "2026-11-02T00:00:00Z").await;
    world.active("mine parent=agent:main:chat:me", "2026-11-02T00:00:00Z").await;
    world.active("other", "2026-11-03T00:00:00Z").await;
    let answer = world.answer(&world.sandboxed("me"), "list_sessions", json!({})).await;
    assert_eq!(answer.text, "[]", "what is below is sub-sessions, and those are never listed");
    assert_eq!(answer.structured, Some(json!({"sessions": [], "total": 0})));
}

#[tokio::test]
async fn secrets_in_titles_are_masked() {
    let world = World::new();
    world.active("s title=use ghp_abcdefghijklmnopqrstuvwxyz0123456789", "2026-11-02T00:00:00Z").await;
    let listing = world.call("me", "list_sessions", json!({})).await;
    assert!(listing.contains("use ghp_ab…6789"), "{listing}");
}

#[tokio::test]
async fn listing_and_reading_change_nothing() {
    let world = World::new();
    world.active("s title=t", "2026-11-02T00:00:00Z").await;
    let before = (world.stored("s").await, world.app.events_head().await.expect("a cursor"));
    world.listed("me", json!({})).await;
    world.call("me", "read_session", json!({"session_id": "s"})).await;
    let after = (world.stored("s").await, world.app.events_head().await.expect("a cursor"));
    assert_eq!(after, before);
    assert_eq!(world.store().session(&id("me")).await, Ok(None), "not even the caller is made");
}
