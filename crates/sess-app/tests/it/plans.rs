//! The three plan tools: texts, errors, whose plan it is, revisions and events.

use std::fs;

use serde_json::json;
use sess_app::{Error, Kind, WritePlan, tools::ToolCall};
use sess_core::plan::SIZE_BYTES_MAX;

use crate::world::{NOW, World, answer, told};

const NO_PLAN: &str = "error: no plan written yet for this session; call write_session_plan first";
const NO_EXIT: &str =
    "error: no plan written yet for this session; call write_session_plan before exit_plan_mode";

#[tokio::test]
async fn a_plan_is_written_read_and_made_ready() {
    let world = World::new();
    let path = world.plan_path("s-1");
    assert!(path.is_absolute());
    assert_eq!(
        world.write("s-1", "# Plan\n\n1. measure\n").await,
        format!("Plan saved to {}", path.display())
    );
    assert_eq!(world.read("s-1").await, "# Plan\n\n1. measure\n");
    assert_eq!(world.exit("s-1").await, "Plan ready for review.");
}

#[tokio::test]
async fn the_structured_part_has_path_session_revision_state_and_bytes() {
    let world = World::new();
    let me = world.agent("s-1");
    let path = world.plan_path("s-1").display().to_string();
    let structured = async |tool: &str, arguments| world.answer(&me, tool, arguments).await.structured;
    assert_eq!(
        structured("write_session_plan", json!({"content": "é"})).await,
        Some(json!({"path": path, "session_id": "s-1", "revision": 1, "state": "draft", "bytes": 2}))
    );
    assert_eq!(
        structured("exit_plan_mode", json!({})).await,
        Some(json!({"path": path, "session_id": "s-1", "revision": 1, "state": "ready", "bytes": 2}))
    );
    assert_eq!(
        structured("read_session_plan", json!({})).await,
        Some(
            json!({"path": path, "session_id": "s-1", "revision": 1, "state": "ready", "bytes": 2, "content": "é"})
        )
    );
}

#[tokio::test]
async fn the_plans_bytes_come_back_unchanged() {
    let world = World::new();
    for content in
        ["\n\n  # x \n\n", "\u{feff}# bom", "a\r\nb\r", "---\ntitle: x\n---\nbody", "\u{2028}x\u{0}y", "x"]
    {
        world.write("s", content).await;
        assert_eq!(world.read("s").await, content);
        assert_eq!(fs::read(world.plan_path("s")).expect("a file"), content.as_bytes(), "no front matter");
    }
}

#[tokio::test]
async fn content_that_is_missing_empty_or_white_space_is_refused() {
    let world = World::new();
    world.write("s", "before").await;
    let blanks = "\u{9}\u{a}\u{b}\u{c}\u{d}\u{20}\u{85}\u{a0}\u{1680}\u{2000}\u{200a}\u{2028}\u{2029}\u{202f}\u{205f}\u{3000}";
    let mut empties = vec![json!({}), json!({"content": ""}), json!({"content": blanks})];
    empties.extend(blanks.chars().map(|blank| json!({"content": blank.to_string()})));
    for empty in empties {
        let told = world.call("s", "write_session_plan", empty.clone()).await;
        assert_eq!(told, "error: content must not be empty", "{empty}");
    }
    // Neither is white space: both are characters that a plan may consist of.
    for content in ["\u{200b}", "\u{feff}"] {
        assert!(world.write("t", content).await.starts_with("Plan saved"));
    }
    assert_eq!(world.read("s").await, "before");
}

#[tokio::test]
async fn ten_mebibytes_is_the_most() {
    let world = World::new();
    let most = "x".repeat(SIZE_BYTES_MAX);
    assert!(world.write("s", &most).await.starts_with("Plan saved"));
    assert_eq!(
        world.write("s", &format!("{most}y")).await,
        "error: plan is too large: 10485761 bytes, the most is 10485760"
    );
    // Bytes count, not characters.
    let wide = "é".repeat(SIZE_BYTES_MAX / 2) + "x";
    assert_eq!(
        world.write("s", &wide).await,
        "error: plan is too large: 10485761 bytes, the most is 10485760"
    );
    assert!(world.read("s").await == most);
    assert_eq!(world.log("s").await.len(), 1);
}

#[tokio::test]
async fn before_a_write_there_is_no_plan() {
    let world = World::new();
    assert_eq!(world.read("s").await, NO_PLAN);
    assert_eq!(world.exit("s").await, NO_EXIT);
    // Another session's plan is none of this one's.
    world.write("other", "# p").await;
    assert_eq!(world.read("s").await, NO_PLAN);
    assert_eq!(world.exit("s").await, NO_EXIT);
}

#[tokio::test]
async fn a_session_id_that_could_leave_the_directory_is_refused_by_every_tool() {
    let world = World::new();
    let long = "x".repeat(129);
    for bad in [
        "",
        ".",
        "..",
        "../x",
        "a/b",
        "/a",
        "a\\b",
        "a:b",
        "-a",
        "_a",
        ".a",
        "a b",
        "a\nb",
        "a\0",
        "a\u{7f}",
        "ä",
        "aä",
        "ａ",
        "%2e%2e",
        "a%2fb",
        "..%2f",
        "C:x",
        "a\u{202e}b",
        &long,
    ] {
        let refused = format!("error: invalid session ID: \"{bad}\"");
        assert_eq!(world.write(bad, "# p").await, refused);
        assert_eq!(world.read(bad).await, refused);
        assert_eq!(world.exit(bad).await, refused);
        // Emptiness is checked before the id.
        assert_eq!(world.write(bad, " ").await, "error: content must not be empty");
    }
    assert_eq!(fs::read_dir(world.home()).expect("a directory").count(), 0, "no path was built");
    let longest = "x".repeat(128);
    for good in ["a", "0", "A.b_c-d", "a..", &longest] {
        assert!(world.write(good, "# p").await.starts_with("Plan saved"), "{good}");
        assert!(world.plan_path(good).is_file());
    }
}

#[tokio::test]
async fn each_write_is_a_revision_that_stays_readable() {
    let world = World::new();
    for content in ["one", "two", "two", "three!"] {
        world.write("s", content).await;
    }
    assert_eq!(world.log("s").await, ["1 main 3", "2 main 3", "3 main 3", "4 main 6"]);
    let session = world.stored("s").await;
    let log = world.app.plan_log(&session, 2).await.expect("a log");
    assert_eq!(
        log.iter().map(|entry| entry.revision).collect::<Vec<_>>(),
        [3, 4],
        "the newest, oldest first"
    );
    assert_eq!(log[0].at, NOW);
    for (revision, content) in [(1, "one"), (2, "two"), (3, "two"), (4, "three!")] {
        let found = world.app.plan_revision(&session, revision).await.expect("a revision");
        assert_eq!((found.content.as_str(), found.plan.revision), (content, revision));
    }
    let error = world.app.plan_revision(&session, 5).await.expect_err("not there");
    assert_eq!(error.to_string(), "the plan of session s has no revision 5");
    assert_eq!(error.kind(), Kind::NotFound);
}

#[tokio::test]
async fn a_write_that_expects_another_revision_is_a_conflict() {
    let world = World::new();
    let me = world.agent("s");
    let write = async |content: &str, expect| {
        let content = content.to_owned();
        world.app.write_plan(&me, WritePlan { content, expect_revision: expect, idempotency_key: None }).await
    };
    assert_eq!(write("one", Some(0)).await.expect("new").revision, 1);
    assert_eq!(write("two", Some(1)).await.expect("as expected").revision, 2);
    let error = write("three", Some(1)).await.expect_err("somebody wrote");
    assert_eq!(error.to_string(), "the plan is at revision 2, not 1");
    assert_eq!(error.kind(), Kind::Conflict);
    assert_eq!(world.read("s").await, "two");
    assert_eq!(world.plan_names(), ["s.md"], "no temporary file");
    // What another program wrote is a revision too.
    fs::write(world.plan_path("s"), "by hand").expect("written");
    assert_eq!(write("three", Some(2)).await.expect_err("edited").kind(), Kind::Conflict);
    assert_eq!(world.read("s").await, "by hand");
}

#[tokio::test]
async fn a_retry_with_the_same_key_acts_once_and_gets_the_first_answer() {
    let world = World::new();
    let me = world.agent("s");
    let write = async |content: &str, key: &str| {
        let call = ToolCall {
            name: "write_session_plan".to_owned(),
            arguments: json!({"content": content}),
            idempotency_key: Some(key.to_owned()),
        };
        world.app.call_tool(&me, call).await.expect("a tool")
    };
    let first = write("one", "k1").await;
    assert_eq!(write("one", "k1").await, first);
    assert_eq!(world.log("s").await, ["1 main 3"]);
    world.exit("s").await;
    assert_eq!(write("one", "k1").await, first, "whatever came since");
    assert_eq!(write("two", "k2").await.structured.expect("written")["revision"], 2);
    assert_eq!(write("one", "k1").await, first);
    assert_eq!(world.read("s").await, "two");
    let other = write("another", "k1").await;
    assert_eq!(told(&other), "error: idempotency key \"k1\" was used before for another request");
    // The same words for another session are another request.
    let call = ToolCall {
        name: "write_session_plan".to_owned(),
        arguments: json!({"content": "one"}),
        idempotency_key: Some("k1".to_owned()),
    };
    let other = world.app.call_tool(&world.agent("t"), call).await.expect("a tool");
    assert_eq!(told(&other), "error: idempotency key \"k1\" was used before for another request");
    assert_eq!(world.log("s").await, ["1 main 3", "2 main 3"]);
    assert_eq!(world.plan_names(), ["s.md"]);
    assert_eq!(
        world.plan_events().await,
        ["updated s 1 by main", "state s 1 ready by main", "updated s 2 by main", "state s 2 draft by main"]
    );
}

#[tokio::test]
async fn a_successful_write_is_one_event_with_all_its_fields() {
    let world = World::new();
    world.write("s", "# my plan\n").await;
    let events = world.events(0).await;
    let fields: Vec<String> = events.iter().map(|event| json!(event.fields).to_string()).collect();
    let path = json!(world.plan_path("s"));
    assert_eq!(
        fields,
        [
            format!(
                r#"{{"type":"session_created","session_id":"s","key":"agent:main:chat:s","timestamp":"{NOW}"}}"#
            ),
            format!(
                r##"{{"type":"session_plan_updated","session_id":"s","path":{path},"content":"# my plan\n","agent_name":"main","timestamp":"{NOW}","revision":1}}"##
            ),
        ]
    );
    // Going on from a cursor gives what came after, once.
    let after = events[0].cursor;
    assert_eq!(world.events(after).await, events[1..]);
    assert_eq!(world.app.events_head().await.expect("a cursor"), events[1].cursor);
}

#[tokio::test]
async fn nothing_is_told_of_reads_and_failures() {
    let world = World::new();
    world.write("s", "# p").await;
    let told = world.app.events_head().await.expect("a cursor");
    world.read("s").await;
    world.read("t").await;
    world.exit("t").await;
    world.write("s", " ").await;
    world.write("../s", "x").await;
    world.call("s", "list_sessions", json!({})).await;
    world.call("t", "read_session", json!({"session_id": "s"})).await;
    fs::create_dir(world.plan_path("d")).expect("a directory");
    assert!(world.write("d", "x").await.starts_with("error: cannot write the plan"));
    let events = world.events(told).await;
    let of_plans = events.iter().filter(|event| event.fields["type"] != "session_created");
    assert_eq!(of_plans.count(), 0, "{events:?}");
}

#[tokio::test]
async fn a_sub_session_reads_its_parents_plan_and_never_writes_it() {
    let world = World::new();
    world.write("parent", "# parent's").await;
    world.session("child parent=agent:main:chat:parent").await;
    world.session("grandchild parent=agent:main:chat:child").await;
    let answer = world.answer(&world.agent("child"), "read_session_plan", json!({})).await;
    assert_eq!(told(&answer), "# parent's");
    assert_eq!(answer.structured.expect("structured")["session_id"], "parent", "whose plan it is");
    assert_eq!(world.exit("child").await, NO_EXIT, "it is not the child's to give up");

    world.write("child", "# child's").await;
    assert_eq!(world.read("child").await, "# child's");
    assert_eq!(world.read("grandchild").await, "# child's", "the nearest");
    assert_eq!(world.read("parent").await, "# parent's");
    assert_eq!(world.exit("child").await, "Plan ready for review.");
    assert_eq!(world.log("parent").await, ["1 main 10"]);
    assert!(!world.plan_events().await.iter().any(|event| event.starts_with("state parent")));
}

#[tokio::test]
async fn parents_in_a_loop_end_where_the_loop_closes() {
    let world = World::new();
    world.session("a parent=agent:main:chat:b").await;
    world.session("b parent=agent:main:chat:a").await;
    world.session("self parent=agent:main:chat:self").await;
    assert_eq!(world.read("a").await, NO_PLAN);
    assert_eq!(world.read("self").await, NO_PLAN);
    world.write("b", "# b's").await;
    assert_eq!(world.read("a").await, "# b's");
}

#[tokio::test]
async fn the_session_decides_whose_plan_it_is_and_not_the_agent() {
    let world = World::new();
    // An agent switch keeps the session: both name the same one, by id or by key.
    world.session("shared agent=root").await;
    world.call("agent:root:chat:shared", "write_session_plan", json!({"content": "# p"})).await;
    assert_eq!(world.read("shared").await, "# p");
    assert_eq!(
        told(&world.answer(&world.agent("agent:nobody:main"), "read_session_plan", json!({})).await),
        "error: session \"agent:nobody:main\" not found"
    );
}

#[tokio::test]
async fn an_owners_write_is_the_owners() {
    let world = World::new();
    let mut caller = world.owner();
    caller.identity = world.agent("s").identity;
    assert_eq!(told(&answer(&world.app, &caller, "exit_plan_mode", json!({})).await), NO_EXIT);
    answer(&world.app, &caller, "write_session_plan", json!({"content": "mine"})).await;
    answer(&world.app, &caller, "exit_plan_mode", json!({})).await;
    assert_eq!(world.plan_events().await, ["updated s 1 by owner", "state s 1 ready by owner"]);
    assert_eq!(world.log("s").await, ["1 owner 4"]);
}

#[tokio::test]
async fn the_kind_of_an_error_says_what_a_caller_can_do() {
    let world = World::new();
    let me = world.agent("s");
    let write = |content: &str| WritePlan { content: content.to_owned(), ..WritePlan::default() };
    let kind = |error: Error| error.kind();
    assert_eq!(world.app.write_plan(&me, write("")).await.map_err(kind), Err(Kind::Invalid));
    assert_eq!(world.app.write_plan(&world.agent(".."), write("x")).await.map_err(kind), Err(Kind::Invalid));
    assert_eq!(world.app.read_plan(&me).await.map_err(kind), Err(Kind::NotFound));
    assert_eq!(world.app.exit_plan_mode(&me).await.map_err(kind), Err(Kind::NotFound));
    fs::write(world.plans(), "in the way").expect("a file");
    assert_eq!(world.app.write_plan(&me, write("x")).await.map_err(kind), Err(Kind::Unavailable));
}
