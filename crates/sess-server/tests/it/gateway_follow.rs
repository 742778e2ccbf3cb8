//! Streams: each message once and in order, whatever happens in between.

use std::{
    sync::{Arc, Mutex},
    time::Instant,
};

use sess_app::NewToken;
use sess_core::message::Role;
use sess_protocol::tokens::Scope;
use tokio::{io::AsyncWriteExt as _, sync::Semaphore};

use crate::gateway::{Event, Gateway, Stream, encoded, message, new_session};

const KEY: &str = "agent:main:chat:s-1";

fn path() -> String {
    format!("/sessions/{}/history?follow=1", encoded(KEY))
}

fn seq(event: &Event) -> u64 {
    assert_eq!(event.name, "message", "{event:?}");
    event.json()["seq"].as_u64().expect("a number")
}

#[tokio::test]
async fn a_stream_begins_with_the_history_and_goes_on() {
    let gateway = Gateway::start().await;
    let session = gateway.session(KEY, "s-1").await;
    gateway.say(&session, &["one", "two"]).await;
    let mut stream = gateway.follow(&path(), &[]).await;
    assert_eq!(stream.status, 200);
    assert!(stream.headers.contains(&("content-type".to_owned(), "text/event-stream".to_owned())));
    let history = stream.event().await;
    assert_eq!(history.name, "history");
    assert_eq!(history.json()["items"].as_array().map(Vec::len), Some(2));
    gateway.say(&session, &["three"]).await;
    let third = stream.event().await;
    assert_eq!(seq(&third), 3);
    assert_eq!(third.json()["content"][0]["text"], "three");
    // Cut, two more, and on where it was: no history, nothing twice.
    drop(stream);
    gateway.say(&session, &["four", "five"]).await;
    let id = third.id.expect("a cursor");
    let mut stream = gateway.follow(&path(), &[("Last-Event-ID", &id)]).await;
    assert_eq!((seq(&stream.event().await), seq(&stream.event().await)), (4, 5));
    // The history's own cursor leads to what came after it.
    let id = history.id.expect("a cursor");
    let mut stream = gateway.follow(&path(), &[("Last-Event-ID", &id)]).await;
    assert_eq!(seq(&stream.event().await), 3);
    // Asked for by what is accepted, too.
    let plain = format!("/sessions/{}/history", encoded(KEY));
    let mut stream = gateway.follow(&plain, &[("Accept", "text/event-stream")]).await;
    assert_eq!(stream.event().await.name, "history");
}

#[tokio::test]
async fn a_cursor_that_is_forged_or_another_sessions_is_refused_by_name() {
    let gateway = Gateway::start().await;
    let session = gateway.session(KEY, "s-1").await;
    let other = gateway.session("agent:main:chat:s-2", "s-2").await;
    gateway.say(&session, &["one"]).await;
    gateway.say(&other, &["one"]).await;
    let mut stream = gateway.follow("/sessions/s-2/history?follow=1", &[]).await;
    let crossed = stream.event().await.id.expect("a cursor");
    let bearer = format!("Bearer {}", gateway.token);
    for wrong in [crossed.as_str(), "1", "s-1:1", "AAAA", &"x".repeat(2_000)] {
        let headers = [("Authorization", bearer.as_str()), ("Last-Event-ID", wrong)];
        let answer = gateway.request("GET", &path(), &headers, b"").await;
        assert_eq!((answer.status, answer.error().as_str()), (400, "invalid_request"), "{wrong}");
        assert!(answer.message().contains("cursor"), "{}", answer.message());
    }
}

#[tokio::test]
async fn a_silent_stream_says_that_it_is_there() {
    let gateway =
        Gateway::start_limited(|limits| limits.keepalive = std::time::Duration::from_millis(20)).await;
    gateway.session(KEY, "s-1").await;
    let mut stream = gateway.follow(&path(), &[]).await;
    assert_eq!(stream.next().await.expect("history").name, "history");
    for _ in 0..3 {
        assert_eq!(stream.next().await.expect("a comment").data, ": keepalive");
    }
}

#[tokio::test]
async fn what_is_not_for_a_reader_breaks_no_silence() {
    let gateway =
        Gateway::start_limited(|limits| limits.keepalive = std::time::Duration::from_millis(100)).await;
    let session = gateway.session(KEY, "s-1").await;
    let mut stream = gateway.follow(&path(), &[]).await;
    assert_eq!(stream.next().await.expect("history").name, "history");
    let store = gateway.store();
    let busy = async {
        for n in 0..2_000 {
            let unseen = message(Role::ToolResult, &n.to_string());
            store.append(&session.id, vec![unseen], None).await.expect("a message");
        }
    };
    tokio::select! {
        () = busy => panic!("nothing was heard all the while"),
        heard = stream.next() => assert_eq!(heard.expect("a comment").data, ": keepalive"),
    }
}

#[tokio::test]
async fn a_key_that_gets_a_new_session_is_followed_into_it() {
    let gateway = Gateway::start().await;
    let session = gateway.session(KEY, "s-1").await;
    gateway.say(&session, &["one"]).await;
    let mut stream = gateway.follow(&path(), &[]).await;
    let history = stream.event().await;
    let second = gateway.session(KEY, "s-1b").await;
    gateway.say(&second, &["new one"]).await;
    let reset = stream.event().await;
    assert_eq!((reset.name.as_str(), reset.json()["sessionId"].as_str()), ("reset", Some("s-1b")));
    assert_eq!(seq(&stream.event().await), 1);
    // A later one still, and who comes back from before both hears of both, in order.
    let third = gateway.session(KEY, "s-1c").await;
    gateway.say(&third, &["newest"]).await;
    let id = history.id.expect("a cursor");
    let mut stream = gateway.follow(&path(), &[("Last-Event-ID", &id)]).await;
    let mut heard = Vec::new();
    for _ in 0..4 {
        let event = stream.event().await;
        heard.push(match event.name.as_str() {
            "reset" => event.json()["sessionId"].as_str().expect("an id").to_owned(),
            _ => event.json()["content"][0]["text"].as_str().expect("a text").to_owned(),
        });
    }
    assert_eq!(heard, ["s-1b", "new one", "s-1c", "newest"]);
    // The cursor of a reset is a place as well.
    let id = reset.id.expect("a cursor");
    let mut stream = gateway.follow(&path(), &[("Last-Event-ID", &id)]).await;
    assert_eq!(seq(&stream.event().await), 1);
}

#[tokio::test]
async fn a_revoked_token_ends_its_streams_within_a_second() {
    let gateway = Gateway::start().await;
    gateway.session(KEY, "s-1").await;
    let token = gateway.scoped(Scope::Read).await;
    let id = gateway.app.tokens().await.expect("tokens")[0].id.clone();
    let bearer = format!("Bearer {token}");
    let headers = [("Authorization", bearer.as_str())];
    let mut transcript = Stream::open(gateway.address, &path(), &headers).await;
    let mut events = Stream::open(gateway.address, "/events?follow=1", &headers).await;
    let mut owners = gateway.follow(&path(), &[]).await;
    assert_eq!(transcript.event().await.name, "history");
    assert_eq!(owners.event().await.name, "history");
    // Revoked by another process.
    gateway.store().revoke_token(&id, crate::gateway::now()).await.expect("revoked");
    let since = Instant::now();
    assert_eq!(transcript.next().await, None);
    assert_eq!(events.next().await, None);
    assert!(since.elapsed().as_millis() < 1_000, "{:?}", since.elapsed());
    let session = gateway.session(KEY, "s-1").await;
    gateway.say(&session, &["for others it goes on"]).await;
    assert_eq!(seq(&owners.event().await), 1);
}

#[tokio::test]
async fn a_follower_that_never_reads_slows_nobody_down() {
    let gateway = Gateway::start().await;
    let session = gateway.session(KEY, "s-1").await;
    let mut asleep = Vec::new();
    for _ in 0..5 {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(4 * 1024).expect("a small one");
        let mut socket = socket.connect(gateway.address).await.expect("it listens");
        let (address, token) = (gateway.address, &gateway.token);
        let path = path();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\r\n");
        socket.write_all(request.as_bytes()).await.expect("it reads");
        asleep.push(socket);
    }
    let mut awake = gateway.follow(&path(), &[]).await;
    assert_eq!(awake.event().await.name, "history");
    let store = gateway.store();
    let text = "word ".repeat(5_000);
    // Far more than sockets and queues hold.
    for n in 1..=400 {
        store.append(&session.id, vec![message(Role::User, &text)], None).await.expect("a message");
        assert_eq!(seq(&awake.event().await), n);
    }
    // Who wakes up hears everything, and that it was late.
    let socket = asleep.pop().expect("one of them");
    let mut woken = Stream::from_socket(socket).await;
    let (mut expected, mut was_late) = (1, false);
    while expected <= 400 {
        let event = woken.event().await;
        match event.name.as_str() {
            "history" => {}
            "lagged" => was_late = true,
            _ => {
                assert_eq!(seq(&event), expected);
                expected += 1;
            }
        }
    }
    assert!(was_late);
}

#[tokio::test]
async fn all_events_are_followed_with_cursors_across_a_restart() {
    let mut gateway = Gateway::start().await;
    let session = gateway.session(KEY, "s-1").await;
    let mut stream = gateway.follow("/events?follow=1", &[]).await;
    gateway.say(&session, &["one"]).await;
    let first = stream.event().await;
    assert_eq!((first.name.as_str(), first.json()["session_id"].as_str()), ("message", Some("s-1")));
    gateway.restart().await;
    gateway.say(&session, &["two"]).await;
    gateway.session("agent:main:chat:s-2", "s-2").await;
    let id = first.id.expect("a cursor");
    let mut stream = gateway.follow("/events?follow=1", &[("Last-Event-ID", &id)]).await;
    assert_eq!(stream.event().await.json()["message"]["seq"], 2);
    assert_eq!(stream.event().await.name, "session_created");
    // A page is the same, and goes on where it ended.
    let page = gateway.get("/events?limit=2").await.json();
    assert_eq!(page["events"].as_array().map(Vec::len), Some(2));
    let cursor = page["nextCursor"].as_str().expect("a cursor");
    let page = gateway.get(&format!("/events?cursor={cursor}")).await.json();
    assert_eq!(page["events"][0]["message"]["seq"], 2);
    assert_eq!(gateway.get("/events?cursor=x").await.error(), "invalid_request");
}

#[tokio::test]
async fn a_stream_ends_with_its_cursor_when_the_gateway_does() {
    let mut gateway = Gateway::start().await;
    let session = gateway.session(KEY, "s-1").await;
    let mut stream = gateway.follow(&path(), &[]).await;
    assert_eq!(stream.event().await.name, "history");
    gateway.say(&session, &["one"]).await;
    let first = stream.event().await;
    let stop = gateway.stop.clone();
    stop.cancel();
    let last = stream.next().await.expect("where to go on");
    assert_eq!((last.name.as_str(), last.id), ("", first.id));
    assert_eq!(stream.next().await, None);
    gateway.end().await;
}

/// A source of numbers that are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

#[tokio::test]
async fn every_message_is_heard_once_across_cuts_restarts_and_resets() {
    const MESSAGES: u64 = 300;
    let mut gateway = Gateway::start().await;
    gateway.session(KEY, "s-1").await;
    // Two handles write, as two processes would; they take turns, so that nothing is written into a session
    // after it was replaced.
    let (turns, newest) = (Arc::new(Semaphore::new(1)), Arc::new(Mutex::new("s-1".to_owned())));
    let written = Arc::new(Mutex::new(Vec::<(String, u64)>::new()));
    let mut writers = Vec::new();
    for n in 0..2_u64 {
        let (turns, newest, written) = (Arc::clone(&turns), Arc::clone(&newest), Arc::clone(&written));
        let store = gateway.store();
        writers.push(tokio::spawn(async move {
            for count in 0..MESSAGES / 2 {
                let turn = turns.acquire().await.expect("a turn");
                if n == 0 && count % 40 == 39 {
                    let id = format!("s-1-{count}");
                    store.ensure_session(new_session(KEY, &id)).await.expect("a session");
                    *newest.lock().expect("whole") = id;
                }
                let session = newest.lock().expect("whole").clone();
                let id = session.parse().expect("an id");
                // Some are hidden, and must be neither heard nor missed.
                let role = if count % 7 == 3 { Role::ToolResult } else { Role::User };
                let text = "text ".repeat(usize::try_from(count % 50).expect("small"));
                let text = format!("{n} {count} {text}");
                let appended = store.append(&id, vec![message(role, &text)], None).await.expect("a message");
                if role == Role::User {
                    written.lock().expect("whole").push((session, appended.last_seq));
                }
                drop(turn);
                tokio::task::yield_now().await;
            }
        }));
    }
    let mut dice = Dice(42);
    let mut heard: Vec<(String, u64)> = Vec::new();
    let (mut place, mut session, mut cuts) = (None::<String>, String::new(), 0);
    loop {
        let is_written = writers.iter().all(tokio::task::JoinHandle::is_finished);
        if is_written && heard.len() == written.lock().expect("whole").len() {
            break;
        }
        let headers: Vec<(&str, &str)> =
            place.iter().map(|place| ("Last-Event-ID", place.as_str())).collect();
        let mut stream = gateway.follow(&path(), &headers).await;
        assert_eq!(stream.status, 200);
        // Cut at any byte; what came whole counts.
        let cut = usize::try_from(dice.below(6_000)).expect("small");
        let read = async {
            while let Some(event) = stream.next_within(cut).await {
                match event.name.as_str() {
                    "history" => {
                        let page = event.json();
                        session = page["sessionId"].as_str().expect("an id").to_owned();
                        let items = page["items"].as_array().expect("items").iter();
                        heard.extend(
                            items.map(|item| (session.clone(), item["seq"].as_u64().expect("a number"))),
                        );
                    }
                    "message" => heard.push((session.clone(), seq(&event))),
                    "reset" => session = event.json()["sessionId"].as_str().expect("an id").to_owned(),
                    _ => {}
                }
                place = event.id.or(place.take());
            }
        };
        // At the end nothing more comes, and nobody waits for it.
        let _over = tokio::time::timeout(std::time::Duration::from_millis(100), read).await;
        cuts += 1;
        if dice.below(12) == 0 {
            gateway.restart().await;
        }
    }
    let expected = written.lock().expect("whole").clone();
    assert_eq!(heard, expected);
    assert!(cuts > 20, "{cuts} cuts");
}

#[tokio::test]
async fn a_token_for_one_agent_follows_only_what_it_sees() {
    let gateway = Gateway::start().await;
    let mine = gateway.session("agent:mine:chat:m-1", "m-1").await;
    let other = gateway.session(KEY, "s-1").await;
    let agent = Some("mine".parse().expect("an agent"));
    let token = gateway.new_token(NewToken { scopes: vec![Scope::Read], agent, ..NewToken::default() }).await;
    let bearer = format!("Bearer {token}");
    let mut stream =
        Stream::open(gateway.address, "/events?follow=1", &[("Authorization", bearer.as_str())]).await;
    gateway.say(&other, &["not for it"]).await;
    gateway.say(&mine, &["for it"]).await;
    assert_eq!(stream.event().await.json()["session_id"], "m-1");
}

/// Asks for many things on one connection; returns the status and the message of each answer.
async fn answers(gateway: &Gateway, requests: &[String]) -> Vec<(u16, String)> {
    let mut all = requests.concat();
    let end = all.rfind("\r\n\r\n").expect("a request");
    all.insert_str(end, "\r\nConnection: close");
    let told = gateway.raw_text(all.as_bytes()).await;
    let answers = told.split("HTTP/1.1 ").skip(1);
    answers.map(|answer| (answer[..3].parse().expect("a status"), answer.to_owned())).collect()
}

#[tokio::test]
async fn thousands_of_forged_and_crossed_cursors_are_refused_by_name() {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let (gateway, elsewhere) = (Gateway::start().await, Gateway::start().await);
    let mut own = Vec::new();
    for gateway in [&gateway, &elsewhere] {
        for n in 1..=2 {
            let session = gateway.session(&format!("agent:main:chat:s-{n}"), &format!("s-{n}")).await;
            gateway.say(&session, &["one", "two", "three"]).await;
            let mut stream = gateway.follow(&format!("/sessions/s-{n}/history?follow=1"), &[]).await;
            own.push(stream.event().await.id.expect("a cursor"));
            let page = gateway.get(&format!("/sessions/s-{n}/history?limit=1")).await.json();
            own.push(page["nextCursor"].as_str().expect("a cursor").to_owned());
        }
    }
    let position =
        gateway.get("/events?limit=1").await.json()["nextCursor"].as_str().expect("one").to_owned();
    // Those of the other session and of the other gateway, and a place in another order.
    let mut crossed: Vec<String> = own[2..].to_vec();
    crossed.push(position.clone());
    let mut forged = Vec::new();
    for cursor in &own[..2] {
        let bytes = cursor.as_bytes();
        for at in 0..bytes.len() {
            forged.extend(LETTERS.iter().filter(|letter| **letter != bytes[at]).map(|letter| {
                let mut changed = bytes.to_vec();
                changed[at] = *letter;
                String::from_utf8(changed).expect("letters")
            }));
            forged.push(cursor[..at].to_owned());
            forged.push(format!("{cursor}{}", &cursor[..=at]));
        }
        forged.push(cursor.to_ascii_lowercase());
        forged.push(cursor.chars().rev().collect());
        forged.extend(own[2..].iter().map(|other| format!("{}{}", &cursor[..22], &other[22..])));
    }
    forged.retain(|cursor| !cursor.is_empty() && !own.contains(cursor));
    assert!(forged.len() > 2_000, "{}", forged.len());
    let (address, token) = (gateway.address, &gateway.token);
    let head = format!("HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n");
    let ways = |cursor: &str| {
        [
            format!("GET /sessions/s-1/history?cursor={cursor} {head}\r\n"),
            format!("GET /sessions/s-1/history?follow=1 {head}Last-Event-ID: {cursor}\r\n\r\n"),
            format!("GET /events?follow=1 {head}Last-Event-ID: {cursor}\r\n\r\n"),
        ]
    };
    let mut refused = 0;
    for some in forged.iter().chain(&crossed).collect::<Vec<_>>().chunks(50) {
        // A place in the order of everything is one for `/events`.
        let requests: Vec<String> = some
            .iter()
            .flat_map(|cursor| ways(cursor).into_iter().take(if **cursor == position { 2 } else { 3 }))
            .collect();
        let told = answers(&gateway, &requests).await;
        assert_eq!(told.len(), requests.len());
        for ((status, answer), request) in told.iter().zip(&requests) {
            let is_named =
                *status == 400 && answer.contains("invalid cursor") && answer.contains("invalid_request");
            assert!(is_named, "{request}: {answer}");
            refused += 1;
        }
    }
    assert!(refused > 6_000, "{refused}");
    // What a token may not see is not there, whatever cursor it brings.
    let agent = Some("other".parse().expect("an agent"));
    let new = sess_app::NewToken { scopes: vec![Scope::Read], agent, ..sess_app::NewToken::default() };
    let blind = gateway.new_token(new).await;
    for cursor in &own[..2] {
        for request in &ways(cursor)[..2] {
            let request = request.replace(token.as_str(), &blind);
            let told = answers(&gateway, &[request]).await;
            assert_eq!(told[0].0, 404, "{}", told[0].1);
        }
    }
}
