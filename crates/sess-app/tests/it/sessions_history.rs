//! `sessions_history`: which messages, cut how, and what is said about it.

use serde_json::{Value, json};
use sess_app::{ReadHistory, Redaction};

use crate::{
    sessions_stage::Stage,
    world::{World, text},
};

async fn stage() -> Stage {
    let stage = Stage::new(&["main"]);
    stage.world.session("me").await;
    stage
}

async fn read(stage: &Stage, mut ask: Value) -> Value {
    ask["sessionKey"] = json!("current");
    stage.answer("me", "sessions_history", ask).await
}

fn texts(history: &Value) -> Vec<&str> {
    let messages = history["messages"].as_array().expect("messages");
    messages.iter().map(|message| message["content"][0]["text"].as_str().expect("text")).collect()
}

async fn say(world: &World, lines: &[&str]) {
    world.messages(&world.stored("me").await, lines).await;
}

#[tokio::test]
async fn the_newest_messages_come_oldest_first_and_tool_results_only_when_asked_for() {
    let stage = stage().await;
    let empty = read(&stage, json!({})).await;
    let expected = json!({
        "sessionKey": "agent:main:chat:me", "sessionId": "me", "messages": [], "truncated": false,
        "droppedMessages": 0, "contentTruncated": false, "contentRedacted": false, "bytes": 2,
    });
    assert_eq!(empty, expected);
    let call = r#"{"role":"assistant","content":[{"type":"toolCall","id":"c","name":"ls","arguments":{"path":"/"}}],"model":"m","usage":{"input":1,"output":2}}"#;
    let result =
        r#"{"role":"toolResult","toolCallId":"c","toolName":"ls","content":[{"type":"text","text":"out"}]}"#;
    say(&stage.world, &[&text("user", "one"), call, result, &text("assistant", "two")]).await;

    let history = read(&stage, json!({})).await;
    let messages = history["messages"].as_array().expect("messages");
    let seqs: Vec<&Value> = messages.iter().map(|message| &message["seq"]).collect();
    assert_eq!(seqs, [1, 2, 4]);
    assert_eq!(history["bytes"], serde_json::to_string(messages).expect("JSON").len());
    let stored = stage.world.store().messages(&"me".parse().expect("an id"), sess_store::Span::Last, 9).await;
    let stored: Vec<Value> = stored
        .expect("messages")
        .messages
        .iter()
        .map(|message| serde_json::from_str(&message.to_json()).expect("JSON"))
        .collect();
    let with_tools = read(&stage, json!({"includeTools": true})).await;
    assert_eq!(with_tools["messages"], json!(stored), "in the transcript format, as stored");
    assert_eq!(with_tools["truncated"], false);

    for (limit, seqs) in
        [(json!(2), vec![2, 4]), (json!(0), vec![4]), (json!(-7), vec![4]), (json!(1e300), vec![1, 2, 4])]
    {
        let history = read(&stage, json!({"limit": limit})).await;
        let shown: Vec<&Value> =
            history["messages"].as_array().expect("messages").iter().map(|one| &one["seq"]).collect();
        assert_eq!(shown, seqs, "{limit}");
        assert_eq!(history["truncated"], seqs.len() < 3);
        assert_eq!(history["droppedMessages"], 0);
    }
}

#[tokio::test]
async fn a_hundred_are_returned_when_nobody_says_and_a_thousand_at_most() {
    let stage = stage().await;
    let lines: Vec<String> = (0..1_100).map(|n| text("user", &n.to_string())).collect();
    say(&stage.world, &lines.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let history = read(&stage, json!({})).await;
    assert_eq!(texts(&history).len(), 100);
    assert_eq!((texts(&history)[99], &history["truncated"]), ("1099", &json!(true)));
    let most = read(&stage, json!({"limit": 5_000})).await;
    let shown = texts(&most).len() as u64;
    assert_eq!(shown + most["droppedMessages"].as_u64().expect("a number"), 1_000);
    assert_eq!(*texts(&most).last().expect("one"), "1099");
}

#[tokio::test]
async fn long_texts_are_cut_images_are_sizes_and_secrets_are_masked_first() {
    let stage = stage().await;
    let secret = format!("ghp_{}", "a1B2".repeat(9));
    // The secret lies across the cut: masked first, it is never half shown.
    let long = format!("{} {secret} {}", "x".repeat(3_990), "y".repeat(100));
    let image = r#"{"role":"user","content":[{"type":"image","mimeType":"image/png","data":"aGVsbG8="}]}"#;
    let call = json!({"role": "assistant", "content": [
        {"type": "toolCall", "id": "c", "name": "sh", "arguments": {"command": format!("curl -H 'Authorization: Bearer {secret}'"), "password": "hunter2hunter2hunter2"}},
    ]});
    say(&stage.world, &[&text("user", &long), image, &call.to_string()]).await;
    let history = read(&stage, json!({})).await;
    let cut = texts_of(&history, 0);
    assert!(cut.starts_with(&"x".repeat(3_990)) && cut.ends_with("…(truncated)…"), "{cut}");
    assert_eq!(cut.chars().count(), 4_000 + "…(truncated)…".chars().count());
    assert!(!history.to_string().contains("ghp_a1B2a1"), "{history}");
    assert!(!history.to_string().contains("hunter2hunter2"), "{history}");
    let block = json!({"type": "image", "mimeType": "image/png", "bytes": 5, "omitted": true});
    assert_eq!(history["messages"][1]["content"][0], block);
    assert_eq!((&history["contentTruncated"], &history["contentRedacted"]), (&json!(true), &json!(true)));

    let unmasked = async |caller| {
        let ask =
            ReadHistory { session: "me".to_owned(), redaction: Redaction::None, ..ReadHistory::default() };
        stage.world.app.history(&caller, &ask).await.expect("a history")
    };
    let owner = unmasked(stage.world.owner()).await;
    assert!(!owner.content_redacted && owner.messages[2].to_string().contains(&secret));
    let agent = unmasked(stage.world.agent("me")).await;
    assert!(agent.content_redacted && !agent.messages[2].to_string().contains(&secret));
}

fn texts_of(history: &Value, n: usize) -> &str {
    history["messages"][n]["content"][0]["text"].as_str().expect("text")
}

#[tokio::test]
async fn a_secret_that_is_cut_away_was_not_masked() {
    let stage = stage().await;
    let long = format!("{} API_KEY=abcdefghijklmnopqrstuvwxyz", "x".repeat(5_000));
    say(&stage.world, &[&text("user", &long), &text("user", "plain")]).await;
    let history = read(&stage, json!({})).await;
    assert_eq!((&history["contentTruncated"], &history["contentRedacted"]), (&json!(true), &json!(false)));
    let newest = read(&stage, json!({"limit": 1})).await;
    assert_eq!((&newest["contentTruncated"], &newest["truncated"]), (&json!(false), &json!(true)));
}

#[tokio::test]
async fn the_oldest_are_dropped_until_the_whole_is_small_and_that_is_said() {
    let stage = stage().await;
    let lines: Vec<String> = (0..40).map(|n| text("user", &format!("{n} {}", "z".repeat(3_900)))).collect();
    say(&stage.world, &lines.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let history = read(&stage, json!({"limit": 30})).await;
    let shown = texts(&history);
    assert!(shown.last().expect("one").starts_with("39 "));
    assert_eq!(history["droppedMessages"], 30 - shown.len());
    assert!(shown.len() >= 19, "no more than needed: {}", shown.len());
    assert_eq!((&history["truncated"], &history["contentTruncated"]), (&json!(true), &json!(false)));
    assert!(history.to_string().len() <= 80 * 1024);
    assert_eq!(history["bytes"], history["messages"].to_string().len());
}

#[tokio::test]
async fn a_single_message_that_is_too_large_is_replaced_by_words_that_say_so() {
    let stage = stage().await;
    let blocks: Vec<Value> = (0..40).map(|_| json!({"type": "text", "text": "w".repeat(3_000)})).collect();
    let large = json!({"role": "assistant", "content": blocks}).to_string();
    say(&stage.world, &[&text("user", "before"), &large]).await;
    let history = read(&stage, json!({})).await;
    assert_eq!(texts(&history)[0], "before");
    let told = texts(&history)[1];
    assert!(
        told.starts_with("[message left out: 12") && told.ends_with("bytes, too large for one answer]"),
        "{told}"
    );
    assert_eq!(
        (&history["messages"][1]["seq"], &history["messages"][1]["role"]),
        (&json!(2), &json!("assistant"))
    );
    assert_eq!((&history["contentTruncated"], &history["droppedMessages"]), (&json!(true), &json!(0)));
    // Also in the middle: it hides nothing that came before it.
    say(&stage.world, &[&text("user", "after")]).await;
    let after = read(&stage, json!({})).await;
    assert_eq!(texts(&after), [texts(&history), vec!["after"]].concat());
    assert_eq!(after["droppedMessages"], 0);
}
