//! The WebSocket: each message exactly once, in order, whatever happens in between.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    gateway::random,
    ws_stage::{Client, Stage, append},
};

const KEY: &str = "agent:a:chat:followed";

/// Reads messages of the followed session until one says `last`; `None` when the connection ended before.
async fn read(client: &mut Client, seen: &mut Vec<u64>, session: &str, last: u64) -> Option<()> {
    while seen.last() != Some(&last) {
        let frame = client.frame().await?;
        if frame["event"] == "session.message" {
            assert_eq!(frame["payload"]["sessionId"], session);
            seen.push(frame["payload"]["messageSeq"].as_u64().expect("a number"));
        }
    }
    Some(())
}

fn subscribe(session: &str, from: u64) -> Value {
    json!({ "key": KEY, "sessionId": session, "fromSeq": from })
}

#[tokio::test]
async fn what_was_missed_comes_first_and_only_messages_come() {
    let stage = Stage::new().await;
    let talk = stage.session(KEY).await;
    let store = stage.store();
    for n in 1..=250 {
        append(&*store, &talk, &format!("message {n}")).await;
    }
    let mut client = stage.client().await;
    let answer =
        client.ask("sessions.messages.subscribe", subscribe(talk.id.as_str(), 5)).await.expect("subscribed");
    let expected = json!({ "subscribed": true, "key": KEY, "sessionId": talk.id.as_str(), "lastSeq": 250 });
    assert_eq!(answer, expected);
    for n in 6..=250_u64 {
        let (name, payload) = client.event().await;
        assert_eq!((name.as_str(), &payload["messageSeq"]), ("session.message", &json!(n)));
    }
    // Without a place, only what is new; a plan and a patch are nothing to a follower of messages.
    let mut other = stage.client().await;
    other.ask("sessions.messages.subscribe", json!({ "key": KEY })).await.expect("subscribed");
    other.ask("sessions.patch", json!({ "key": KEY, "label": "x" })).await.expect("patched");
    append(&*store, &talk, "message 251").await;
    for client in [&mut client, &mut other] {
        let (name, payload) = client.event().await;
        assert_eq!((name.as_str(), &payload["messageSeq"]), ("session.message", &json!(251)));
    }
    other.ask("sessions.messages.unsubscribe", json!({ "key": KEY })).await.expect("left");
    append(&*store, &talk, "message 252").await;
    assert_eq!(client.event().await.1["messageSeq"], 252);
    other.ask("sessions.messages.subscribe", json!({ "key": KEY })).await.expect("subscribed");
    append(&*store, &talk, "message 253").await;
    assert_eq!(other.event().await.1["messageSeq"], 253);

    // Who follows everything as well is told once.
    other.ask("sessions.subscribe", json!({})).await.expect("subscribed");
    append(&*store, &talk, "message 254").await;
    append(&*store, &talk, "message 255").await;
    let mut seen = Vec::new();
    let mut changes = 0;
    while changes < 2 || seen.len() < 2 {
        let (name, payload) = other.event().await;
        match name.as_str() {
            "session.message" => seen.push(payload["messageSeq"].as_u64().expect("a number")),
            "sessions.changed" if payload["phase"] == "message" => changes += 1,
            _ => {}
        }
    }
    assert_eq!(seen, [254, 255]);
}

#[tokio::test]
async fn each_message_comes_once_across_cuts_restarts_and_other_processes() {
    const MESSAGES: u64 = 400;
    let mut stage = Stage::new().await;
    let talk = stage.session(KEY).await;
    let session = talk.id.to_string();
    let writers: Vec<_> = (0..2)
        .map(|_| {
            // Each has the store open on its own, as another process would.
            let (store, talk) = (stage.store(), talk.clone());
            tokio::spawn(async move {
                for n in 0..MESSAGES / 2 {
                    append(&*store, &talk, &format!("message {n}")).await;
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            })
        })
        .collect();
    let mut seen = Vec::new();
    let mut cuts = 0;
    while seen.last() != Some(&MESSAGES) {
        let mut client = stage.client().await;
        let from = seen.last().copied().unwrap_or(0);
        client.ask("sessions.messages.subscribe", subscribe(&session, from)).await.expect("subscribed");
        let until = (from + 1 + (random() >> 64) as u64 % 40).min(MESSAGES);
        let _cut = read(&mut client, &mut seen, &session, until).await;
        cuts += 1;
        if cuts % 7 == 0 {
            // The gateway goes while somebody follows.
            let ended = read(&mut client, &mut seen, &session, u64::MAX);
            let (restarted, ended) = tokio::join!(stage.restart(), ended);
            assert_eq!((restarted, ended), ((), None));
        }
    }
    for writer in writers {
        writer.await.expect("it wrote");
    }
    let expected: Vec<u64> = (1..=MESSAGES).collect();
    assert_eq!(seen, expected);
    assert!(cuts >= 10, "{cuts}");
}

#[tokio::test]
async fn a_follower_goes_on_with_the_session_that_follows() {
    let stage = Stage::new().await;
    let talk = stage.session(KEY).await;
    let store = stage.store();
    append(&*store, &talk, "old 1").await;
    let mut client = stage.client().await;
    client.ask("sessions.messages.subscribe", subscribe(talk.id.as_str(), 0)).await.expect("subscribed");
    assert_eq!(client.event().await.1["messageSeq"], 1);
    let row = client.ask("sessions.reset", json!({ "key": KEY })).await.expect("started over");
    let new = stage.store().session_by_key(&KEY.parse().expect("a key")).await.expect("read").expect("there");
    assert_eq!(row["sessionId"], new.id.as_str());
    append(&*store, &new, "new 1").await;
    let payload = client.event_of("session.message").await;
    assert_eq!((&payload["sessionId"], &payload["messageSeq"]), (&json!(new.id.as_str()), &json!(1)));
    // Who comes back with a place in the old one hears the rest of it, and then the new one.
    let mut late = stage.client().await;
    late.ask("sessions.messages.subscribe", subscribe(talk.id.as_str(), 0)).await.expect("subscribed");
    for id in [talk.id.as_str(), new.id.as_str()] {
        let payload = late.event_of("session.message").await;
        assert_eq!((&payload["sessionId"], &payload["messageSeq"]), (&json!(id), &json!(1)));
    }
}

#[tokio::test]
async fn who_reads_too_slowly_is_told_and_misses_nothing_while_others_notice_nothing() {
    const MESSAGES: u64 = 800;
    // Who reads nothing answers nothing either, and would count as gone on a slow machine.
    let stage = Stage::limited(|limits| limits.keepalive = Duration::from_secs(600)).await;
    let talk = stage.session(KEY).await;
    let session = talk.id.to_string();
    let (mut slow, mut quick) = (stage.client().await, stage.client().await);
    for client in [&mut slow, &mut quick] {
        client.ask("sessions.messages.subscribe", subscribe(&session, 0)).await.expect("subscribed");
    }
    let text = "x".repeat(32 * 1024);
    let store = stage.store();
    let writing = async {
        for _ in 0..MESSAGES {
            append(&*store, &talk, &text).await;
        }
    };
    let mut seen = Vec::new();
    let ((), read_all) = tokio::join!(writing, read(&mut quick, &mut seen, &session, MESSAGES));
    read_all.expect("all of it");
    assert_eq!(seen, (1..=MESSAGES).collect::<Vec<u64>>());
    // Only now does the other one read: more came than any buffer holds.
    let (mut seen, mut lags) = (Vec::new(), 0);
    while seen.last() != Some(&MESSAGES) {
        let (name, payload) = slow.event().await;
        match name.as_str() {
            "session.message" => seen.push(payload["messageSeq"].as_u64().expect("a number")),
            "lagged" => {
                assert_eq!(payload["sessionKey"], KEY);
                lags += 1;
            }
            _ => {}
        }
    }
    assert_eq!(seen, (1..=MESSAGES).collect::<Vec<u64>>());
    assert!(lags > 0);
}
