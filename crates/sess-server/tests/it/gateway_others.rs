//! Other agents' sessions over HTTP and WebSocket: listed, read, searched, and never more than that.

use serde_json::{Value, json};
use sess_app::NewToken;
use sess_core::SessionKey;
use sess_protocol::tokens::Scope;
use sess_readers::Homes;

use crate::{
    gateway::{Gateway, encoded},
    samples::{copy_all, sample},
};

const CLAUDE: &str = "5b0c1f62-6c0e-4a8e-9d53-2f1f0f6a1c01";
const SECRET: &str = "sk-test-FAKE0000000000000000";

fn key() -> String {
    format!("agent:claude:chat:{CLAUDE}")
}

/// A gateway on a machine that Claude Code and Codex were used on, with one session of its own.
async fn machine() -> (Gateway, tempfile::TempDir) {
    let home = tempfile::tempdir().expect("a directory");
    for agent in ["claude-code", "codex"] {
        copy_all(&sample(agent), home.path()).expect("copied");
    }
    let homes = Homes::new(home.path().to_owned(), [], None);
    let gateway = Gateway::start_among(homes).await;
    let session = gateway.session("agent:main:chat:s-1", "s-1").await;
    gateway.say(&session, &["one", "where is rotate_key called?", "three"]).await;
    (gateway, home)
}

fn error(answer: &crate::gateway::Answer) -> (u16, String, String) {
    let body = answer.json();
    let text = |field: &str| body["error"][field].as_str().expect("a text").to_owned();
    (answer.status, text("type"), text("message"))
}

#[tokio::test]
async fn one_list_with_filters() {
    let (gateway, home) = machine().await;
    let list = gateway.get("/sessions").await;
    let sources = |answer: &crate::gateway::Answer| -> Vec<String> {
        let body = answer.json();
        let rows = body["sessions"].as_array().expect("rows");
        rows.iter().map(|row| row["source"].as_str().expect("a source").to_owned()).collect()
    };
    for source in ["native", "claude", "codex"] {
        assert!(sources(&list).iter().any(|found| found == source), "{source}");
    }
    let text = list.json().to_string();
    assert!(!text.contains(&home.path().display().to_string()), "no path of a file is told: {text}");
    let two = gateway.get("/sessions?source=codex&source=native").await;
    assert!(sources(&two).iter().all(|source| source != "claude"), "{:?}", sources(&two));
    assert_eq!(sources(&gateway.get("/sessions?source=native").await), ["native"]);
    for (wrong, says) in
        [("source=vim", "unknown source \"vim\""), ("scope=here", "scope must be repo or all")]
    {
        let (status, kind, message) = error(&gateway.get(&format!("/sessions?{wrong}")).await);
        assert_eq!((status, kind.as_str()), (400, "invalid_request"));
        assert!(message.starts_with(says), "{message}");
    }
    let row = gateway.get(&format!("/sessions/{}", encoded(&key()))).await.json();
    assert_eq!(row["readOnly"], true);
    assert_eq!(row["resumeCommand"], json!(["claude", "--resume", CLAUDE]));
}

#[tokio::test]
async fn a_transcript_is_walked_by_cursors_that_count_for_it_alone() {
    let (gateway, _home) = machine().await;
    let path = format!("/sessions/{}/history?includeTools=1", encoded(&key()));
    let whole = gateway.get(&path).await.json();
    let items = whole["items"].as_array().expect("items").clone();
    assert!(items.len() > 8 && whole["hasMore"] == false, "{whole}");
    assert!(!whole.to_string().contains(SECRET));
    let mut walked: Vec<Value> = Vec::new();
    let mut next: Option<String> = None;
    loop {
        let cursor = next.as_ref().map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        let page = gateway.get(&format!("{path}&limit=3{cursor}")).await.json();
        walked.splice(0..0, page["items"].as_array().expect("items").clone());
        match page["nextCursor"].as_str() {
            Some(cursor) => next = Some(cursor.to_owned()),
            None => break,
        }
    }
    assert_eq!(walked, items);
    let cursor = next.expect("several pages");
    for other in ["agent:main:chat:s-1", "s-1"] {
        let crossed = gateway.get(&format!("/sessions/{}/history?cursor={cursor}", encoded(other))).await;
        let (status, _, message) = error(&crossed);
        assert_eq!(status, 400);
        assert!(message.starts_with("invalid cursor: it is another session's"), "{message}");
    }
    let ours = gateway.get("/sessions/s-1/history?limit=1").await.json();
    let ours = ours["nextCursor"].as_str().expect("more").to_owned();
    assert_eq!(gateway.get(&format!("{path}&cursor={ours}")).await.status, 400);
    let (status, _, message) = error(&gateway.get(&format!("{path}&follow=1")).await);
    assert_eq!(status, 400);
    assert!(message.contains("cannot be followed"), "{message}");
}

#[tokio::test]
async fn nothing_can_be_sent_into_it() {
    let (gateway, _home) = machine().await;
    let sent =
        gateway.post(&format!("/sessions/{}/send", encoded(&key())), &json!({ "message": "hello" })).await;
    let (status, kind, message) = error(&sent);
    assert_eq!((status, kind.as_str()), (400, "invalid_request"));
    assert!(message.contains("can only be read here; go on with it there: claude --resume"), "{message}");
}

#[tokio::test]
async fn messages_of_all_agents_are_found_page_by_page_and_where_a_transcript_has_them() {
    let (gateway, home) = machine().await;
    let found = gateway.get("/search?q=rotate_key").await.json();
    let hits = found["hits"].as_array().expect("hits");
    assert!(!hits.is_empty(), "{found}");
    for hit in hits {
        let key = hit["sessionKey"].as_str().expect("a key");
        let history = format!("/sessions/{}/history?includeTools=1&limit=1000", encoded(key));
        let page = gateway.get(&history).await.json();
        let items = page["items"].as_array().expect("items");
        let message = items.iter().find(|item| item["seq"] == hit["seq"]).expect("the message");
        assert_eq!(message["id"], hit["messageId"]);
        assert!(message.to_string().contains("rotate_key"), "{message}");
    }
    assert!(!found.to_string().contains(&home.path().display().to_string()));

    let mut walked = Vec::new();
    let mut next = String::new();
    loop {
        let page = gateway.get(&format!("/search?q=e*&limit=2{next}")).await.json();
        walked.extend(page["hits"].as_array().expect("hits").clone());
        match page["nextCursor"].as_str() {
            Some(cursor) => next = format!("&cursor={cursor}"),
            None => break,
        }
    }
    let all = gateway.get("/search?q=e*&limit=100").await.json();
    assert_eq!(json!(walked), all["hits"]);
    let sources = |found: &Value| -> std::collections::BTreeSet<String> {
        let hits = found["hits"].as_array().expect("hits").iter();
        hits.map(|hit| hit["source"].as_str().expect("a source").to_owned()).collect()
    };
    let any = "/search?regex=1&q=%5Ba-z%5D%2B&limit=100";
    let (all, several) =
        (gateway.get(any).await.json(), gateway.get(&format!("{any}&source=native,codex")).await.json());
    assert_eq!(sources(&all).len(), 3, "{all}");
    assert_eq!(sources(&several).into_iter().collect::<Vec<_>>(), ["codex", "native"]);
    let codex = gateway.get("/search?regex=1&q=%5Ba-z%5D%2B&source=codex&limit=100").await.json();
    let hits = codex["hits"].as_array().expect("hits");
    assert!(!hits.is_empty() && hits.iter().all(|hit| hit["source"] == "codex"), "{codex}");

    let position =
        gateway.get("/events?limit=1").await.json()["nextCursor"].as_str().expect("one").to_owned();
    let long = "a".repeat(1_001);
    for (wrong, says) in [
        (String::new(), "give at least one word"),
        ("q=".to_owned(), "give at least one word"),
        ("q=(&regex=1".to_owned(), ""),
        (format!("q={long}"), "q must be at most 1000 bytes"),
        ("q=a&limit=0".to_owned(), "limit must be a whole number from 1 to 100"),
        ("q=a&limit=1e9".to_owned(), "limit must be a whole number from 1 to 100"),
        ("q=a&source=vim".to_owned(), "unknown source \"vim\""),
        ("q=a&scope=x".to_owned(), "scope must be repo or all"),
        ("q=a&cursor=5".to_owned(), "invalid cursor"),
        (format!("q=a&cursor={position}"), "invalid cursor"),
    ] {
        let (status, kind, message) = error(&gateway.get(&format!("/search?{wrong}")).await);
        assert_eq!((status, kind.as_str()), (400, "invalid_request"), "{wrong}");
        assert!(message.starts_with(says), "{wrong}: {message}");
    }
}

#[tokio::test]
async fn who_was_given_one_agent_sees_nothing_of_them() {
    let (gateway, _home) = machine().await;
    let agent = Some("claude".parse().expect("a name"));
    let token = gateway.new_token(NewToken { scopes: vec![Scope::Read], agent, ..NewToken::default() }).await;
    let ask = async |path: &str| gateway.ask("GET", path, Some(&token), None).await;
    assert_eq!(ask("/sessions").await.json()["total"], 0);
    assert_eq!(ask("/search?q=rotate_key").await.json()["hits"], json!([]));
    let known = gateway.get(&format!("/sessions/{}/history?limit=1", encoded(&key()))).await.json();
    let cursor = known["nextCursor"].as_str().expect("more").to_owned();
    for given in [key(), CLAUDE.to_owned(), format!("claude:{CLAUDE}")] {
        let given = encoded(&given);
        for path in [
            format!("/sessions/{given}"),
            format!("/sessions/{given}/history"),
            format!("/sessions/{given}/history?cursor={cursor}"),
        ] {
            let answer = ask(&path).await;
            let missing = ask(&path.replace("5b0c1f62", "00000000")).await;
            assert_eq!((answer.status, missing.status), (404, 404), "{path}");
        }
    }
    let read = gateway.scoped(Scope::Read).await;
    let seen = gateway.ask("GET", &format!("/sessions/{CLAUDE}"), Some(&read), None).await;
    assert_eq!(seen.status, 200, "a token for all sessions");
    let _: SessionKey = seen.json()["key"].as_str().expect("a key").parse().expect("a key");
    assert_eq!(gateway.ask("GET", "/search?q=a", None, None).await.status, 401);
}
