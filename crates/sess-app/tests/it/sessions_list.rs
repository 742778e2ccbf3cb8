//! `sessions_list`: what a row says, in which order, and how many there are.

use serde_json::{Value, json};
use sess_app::Caller;
use sess_core::{
    rules::Visibility,
    run::RunState,
    session::{Address, Channel, Sending, ThinkingLevel},
};
use sess_store::SessionPatch;

use crate::{
    sessions_stage::{Stage, error},
    world::{new_session, now, text},
};

fn stage() -> Stage {
    let stage = Stage::new(&["main"]);
    stage.configure(|configured| configured.rules.visibility = Visibility::Agent);
    stage
}

fn keys(listed: &Value) -> Vec<&str> {
    let rows = listed["sessions"].as_array().expect("rows");
    assert_eq!(listed["count"], rows.len());
    rows.iter().map(|row| row["key"].as_str().expect("a key")).collect()
}

#[tokio::test]
async fn a_row_says_all_that_is_known_and_nothing_that_is_not() {
    let stage = stage();
    let world = &stage.world;
    let mut new = new_session("child key=agent:main:subagent:1 parent=agent:main:chat:me title=Look");
    new.facts.label = Some("look with TOKEN=abcdefghijklmnopqrstuvwxyz".to_owned());
    new.facts.display_name = Some("the room".to_owned());
    new.facts.thinking = Some(ThinkingLevel::High);
    let child = world.store().ensure_session(new).await.expect("made");
    let address =
        Address { channel: Channel::Telegram, to: Some("42".to_owned()), account_id: Some("bot".to_owned()) };
    for patch in [SessionPatch::Delivery(address), SessionPatch::SendPolicy(Some(Sending::Deny))] {
        world.store().patch_session(&child.id, patch, now()).await.expect("patched");
    }
    let owner = world.owner();
    world
        .store()
        .queue_run(sess_store::NewRun::message(
            sess_core::RunId::new(1),
            child.clone().into(),
            child.agent.clone(),
            now(),
        ))
        .await
        .expect("queued");
    stage.end_next(&child, RunState::Aborted, Some("half")).await;
    world.store().catch_up(&|_, _| {}).await.expect("mirrored");

    let me = world.agent("me");
    let listed = stage.answer_to(&me, "sessions_list", json!({})).await;
    assert_eq!(keys(&listed), ["agent:main:chat:me", "agent:main:subagent:1"], "ties by key: {listed}");
    let transcript = world.home().join("transcripts/child.jsonl");
    let expected = json!({
        "key": "agent:main:subagent:1",
        "kind": "other",
        "channel": "telegram",
        "displayName": "the room",
        "updatedAt": now().as_millis(),
        "sessionId": "child",
        "model": "echo",
        "contextTokens": 12,
        "thinkingLevel": "high",
        "systemSent": true,
        "abortedLastRun": true,
        "sendPolicy": "deny",
        "lastChannel": "telegram",
        "lastTo": "42",
        "deliveryContext": {"channel": "telegram", "to": "42", "accountId": "bot"},
        "transcriptPath": transcript,
        "agentId": "main",
        "title": "Look",
        "spawnedBy": "agent:main:chat:me",
        "label": "look with TOKEN=abcdef…wxyz",
        "status": "idle",
        "createdAt": child.created_at.as_millis(),
    });
    assert_eq!(listed["sessions"][1], expected);
    let own = json!({
        "key": "agent:main:chat:me",
        "kind": "other",
        "channel": "unknown",
        "updatedAt": now().as_millis(),
        "sessionId": "me",
        "agentId": "main",
        "status": "idle",
        "createdAt": now().as_millis(),
    });
    assert_eq!(listed["sessions"][0], own);
    assert!(transcript.is_file());

    let sandboxed = Caller { is_sandboxed: true, ..me };
    let listed = stage.answer_to(&sandboxed, "sessions_list", json!({})).await;
    assert!(!listed.to_string().contains("transcriptPath"), "{listed}");
    let all = world.app.session_rows(&owner, &sess_app::ListRows::default()).await.expect("rows");
    assert_eq!(all.count, 2);
}

#[tokio::test]
async fn a_configured_agent_s_model_has_one_name_before_and_after_it_spoke_and_its_runs_are_its_status() {
    let stage = stage();
    let you = stage.world.session("you").await;
    let row = async || {
        let listed = stage.answer("me", "sessions_list", json!({})).await;
        listed["sessions"]
            .as_array()
            .expect("rows")
            .iter()
            .find(|row| row["sessionId"] == "you")
            .expect("it")
            .clone()
    };
    let before = row().await;
    assert_eq!(
        (&before["model"], &before["status"], &before["systemSent"]),
        (&json!("echo"), &json!("idle"), &json!(false))
    );
    assert!(before.get("abortedLastRun").is_none());
    let send = json!({"sessionKey": "you", "message": "hi", "timeoutSeconds": 0});
    stage.answer("me", "sessions_send", send.clone()).await;
    stage.end_next(&you, RunState::Done, Some("hello")).await;
    // It called itself echo-1 when it spoke; it stays what the configuration calls it.
    let after = row().await;
    assert_eq!((&after["model"], &after["contextTokens"]), (&json!("echo"), &json!(12)), "{after}");
    stage.answer("me", "sessions_send", send.clone()).await;
    assert_eq!(row().await["status"], "queued");
    stage.take_next(&you).await;
    assert_eq!(row().await["status"], "running");
    stage.hosted("host").await;
    stage
        .answer("me", "sessions_send", json!({"sessionKey": "host", "message": "hi", "timeoutSeconds": 0}))
        .await;
    let listed = stage.answer("me", "sessions_list", json!({})).await;
    let host = listed["sessions"].as_array().expect("rows").iter().find(|row| row["sessionId"] == "host");
    assert_eq!(host.expect("it")["status"], "waiting");
    // Who speaks in it is not configured any longer: what it called itself is all that is known.
    stage.configure(|configured| configured.team = None);
    assert_eq!(row().await["model"], "echo-1");
}

#[tokio::test]
async fn filters_apply_before_the_limit_and_the_newest_come_first() {
    let stage = stage();
    let world = &stage.world;
    for (n, key) in ["agent:main:main", "agent:main:signal:group:1", "agent:main:chat:3", "agent:main:chat:4"]
        .iter()
        .enumerate()
    {
        let when = format!("2026-11-15T11:{:02}:00Z", n * 10);
        world.said(&format!("id-{n} key={key}"), "hi", &when).await;
    }
    world.said("archived", "hi", "2026-11-15T11:59:00Z").await;
    let archived = world.stored("archived").await;
    world.app.archive(&world.owner(), &archived, true).await.expect("archived");
    world.said("zzz", "hi", "2026-11-15T11:30:00Z").await;
    let list = async |ask: Value| stage.answer("id-0", "sessions_list", ask).await;
    let all = list(json!({})).await;
    assert_eq!(
        keys(&all),
        [
            "agent:main:chat:4",
            "agent:main:chat:zzz",
            "agent:main:chat:3",
            "agent:main:signal:group:1",
            "agent:main:main"
        ]
    );
    assert_eq!(all["total"], 5);
    assert!(all.get("totalIsMinimum").is_none());
    let kinds = list(json!({"kinds": ["group", "main"], "limit": 1})).await;
    assert_eq!((keys(&kinds), &kinds["total"]), (vec!["agent:main:signal:group:1"], &json!(2)));
    assert_eq!(kinds["sessions"][0]["channel"], "signal");
    assert_eq!(keys(&list(json!({"activeMinutes": 31})).await), ["agent:main:chat:4", "agent:main:chat:zzz"]);
    assert_eq!(list(json!({"activeMinutes": 1e300})).await["count"], 5);
    for limit in [json!(0), json!(-3)] {
        assert_eq!(list(json!({"limit": limit})).await["count"], 1);
    }
    assert_eq!(list(json!({"limit": 1e300})).await["count"], 5);
    for minutes in [json!(0), json!(-1)] {
        let told = error(&format!("activeMinutes must be greater than 0, not {minutes}"));
        assert_eq!(list(json!({"activeMinutes": minutes})).await, told);
    }
    let unknown = error("kinds: unknown kind \"chat\": one of main, group, cron, hook, node, other");
    assert_eq!(list(json!({"kinds": ["main", "chat"]})).await, unknown);
    let wrong = list(json!({"kinds": "main"})).await;
    assert!(wrong["error"].as_str().expect("a reason").starts_with("invalid argument \"kinds\":"), "{wrong}");
}

#[tokio::test]
async fn messages_come_only_when_asked_for_without_tool_results_and_masked() {
    let stage = stage();
    let me = stage.world.session("me").await;
    let result =
        r#"{"role":"toolResult","toolCallId":"c","toolName":"ls","content":[{"type":"text","text":"out"}]}"#;
    let long = "x".repeat(5_000);
    stage
        .world
        .messages(
            &me,
            &[
                &text("user", "one"),
                &text("user", "PASSWORD=abcdefghijklmnopqrstuvwxyz"),
                result,
                &text("assistant", &long),
            ],
        )
        .await;
    let list = async |ask: Value| stage.answer("me", "sessions_list", ask).await["sessions"][0].clone();
    assert!(list(json!({})).await.get("messages").is_none());
    let row = list(json!({"messageLimit": 2})).await;
    let messages = row["messages"].as_array().expect("messages");
    assert_eq!(messages.len(), 2);
    assert_eq!(messages[0]["content"][0]["text"], "PASSWORD=abcdef…wxyz");
    assert!(messages[1]["content"][0]["text"].as_str().expect("text").ends_with("…(truncated)…"));
    assert_eq!(list(json!({"messageLimit": 99})).await["messages"].as_array().expect("messages").len(), 3);
    assert!(list(json!({"messageLimit": -1})).await.get("messages").is_none());
}

#[tokio::test]
async fn the_total_is_exact_up_to_a_thousand() {
    let stage = stage();
    let store = stage.world.store();
    store.ensure_session(new_session("s")).await.expect("made");
    stage.world.sql(
        "INSERT INTO sessions (id, key, agent, source, title, created_at, updated_at, last_seq, num_messages, starred, crc) \
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 998) \
         SELECT 'id-' || i, 'agent:main:chat:' || i, 'main', 'native', '', 0, 0, 0, 0, 0, 0 FROM n",
    );
    let total = async || stage.answer("me", "sessions_list", json!({"limit": 1})).await;
    let exact = total().await;
    assert_eq!((&exact["total"], exact.get("totalIsMinimum")), (&json!(1_000), None));
    store.ensure_session(new_session("one-more")).await.expect("made");
    let more = total().await;
    assert_eq!((&more["total"], &more["totalIsMinimum"]), (&json!(1_000), &json!(true)));
}
