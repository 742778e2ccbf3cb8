//! `sess events`, now and as it happens.

use serde_json::Value;

use crate::world::{Beside, World};

fn parse(line: &str) -> Value {
    let event: Value = serde_json::from_str(line).expect("one object a line");
    assert_eq!(event["schema_version"], 1, "{line}");
    event
}

#[test]
fn events_come_in_order_with_a_cursor_to_go_on_from() {
    let world = World::new();
    assert_eq!(world.ok(["events"]), "");
    world.ready_plan();
    world.ok(["star", "s1"]);
    let events: Vec<_> = world.ok(["events", "--json"]).lines().map(parse).collect();
    let types: Vec<_> = events.iter().map(|event| event["type"].as_str().expect("text")).collect();
    assert_eq!(types, ["session_created", "session_plan_updated", "session_plan_state", "session_changed"]);
    assert!(events.is_sorted_by_key(|event| event["cursor"].as_u64()));
    assert_eq!((&events[1]["content"], &events[1]["revision"]), (&"# Plan\n\none\n".into(), &1.into()));
    assert_eq!((&events[2]["state"], &events[3]["change"]), (&"ready".into(), &"starred".into()));

    world.ok_input("other", ["plan", "write", "--session", "s2"]);
    assert_eq!(world.ok(["events", "--session", "s1"]).lines().count(), 4);
    assert_eq!(world.ok(["events"]).lines().count(), 6);
    world.fails(["events", "--session", "s3"], 3, "session \"s3\" not found");
    let cursor = events[1]["cursor"].to_string();
    assert_eq!(world.ok(["events", "--json", "--after", &cursor, "--session", "s1"]).lines().count(), 2);
    assert_eq!(world.ok(["events", "-n", "1"]).lines().count(), 1);
    let text = world.ok(["events"]);
    assert!(text.contains("session_plan_state    s1  revision 1 is ready, by main"), "{text}");
}

#[test]
fn a_follower_is_woken_by_another_process() {
    let world = World::new();
    world.ready_plan();
    let follower = Beside::start(world.command(["events", "--follow", "--json"]));
    for expected in ["session_created", "session_plan_updated", "session_plan_state"] {
        assert_eq!(parse(&follower.line())["type"], expected);
    }
    world.ok(["plan", "approve", "-m", "go ahead"]);
    let event = parse(&follower.line());
    assert_eq!((&event["state"], &event["note"]), (&"approved".into(), &"go ahead".into()));
    assert_eq!(follower.interrupt(), Some(0));
}

#[test]
fn a_follower_ends_when_nobody_reads() {
    let world = World::new();
    world.ready_plan();
    let mut command = world.command(["events", "--follow"]);
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().expect("sess starts");
    drop(child.stdout.take());
    // Whatever it printed before met an open pipe, the next event meets a closed one.
    world.ok(["plan", "approve"]);
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}
