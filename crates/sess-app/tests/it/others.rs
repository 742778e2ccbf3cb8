//! Other agents' sessions at the doors: one list, pages of one transcript, and who sees them.

use serde_json::Value;
use sess_app::{
    Access, Caller, ListRows, NewToken, Others, PatchSession, Row, Scope, SendMessage, TranscriptPage,
};
use sess_core::{SessionKey, Source};
use sess_protocol::tokens;

use crate::foreign::{ALL, CLAUDE, Machine};

fn key() -> String {
    SessionKey::chat(&Source::Claude.agent(), &CLAUDE.parse().expect("an id")).to_string()
}

fn everything() -> ListRows {
    ListRows { others: Others::Included, limit: Some(200), ..ListRows::default() }
}

impl Machine {
    async fn rows(&self, ask: &ListRows) -> Vec<Row> {
        self.world.app.session_rows(&self.world.owner(), ask).await.expect("rows").sessions
    }

    async fn page(&self, given: &str, before: Option<u64>, limit: usize) -> TranscriptPage {
        let owner = self.world.owner();
        self.world.app.transcript_page(&owner, given, before, limit, true).await.expect("a page")
    }
}

fn seqs(page: &TranscriptPage) -> Vec<u64> {
    page.messages.iter().map(|message| message.seq).collect()
}

fn messages(page: &TranscriptPage) -> Vec<Value> {
    page.messages.iter().map(|message| serde_json::from_str(message.json.get()).expect("JSON")).collect()
}

fn keys(rows: &[Row]) -> Vec<&str> {
    rows.iter().map(|row| row.key.as_str()).collect()
}

#[tokio::test]
async fn pages_of_the_list_follow_each_other_with_ours_and_theirs_among_each_other() {
    let machine = Machine::of(&ALL);
    for (place, when) in ["2026-01-01", "2026-09-01", "2030-01-01", "2010-01-01"].iter().enumerate() {
        machine.world.said(&format!("ours-{place}"), "hello", &format!("{when}T00:00:00Z")).await;
    }
    let all = machine.rows(&everything()).await;
    let times: Vec<i64> = all.iter().map(|row| row.updated_at).collect();
    assert!(times.is_sorted_by(|a, b| a >= b), "{times:?}");
    assert!(all.iter().filter(|row| row.read_only).count() > 10);
    assert_eq!(all.iter().filter(|row| row.source.as_deref() == Some("native")).count(), 4);
    for length in [1, 3, 7] {
        let mut paged = Vec::new();
        loop {
            let ask = ListRows { limit: Some(length), offset: paged.len() as u64, ..everything() };
            let rows = machine.world.app.session_rows(&machine.world.owner(), &ask).await.expect("rows");
            assert_eq!(rows.total, all.len() as u64);
            if rows.sessions.is_empty() {
                break;
            }
            paged.extend(rows.sessions);
        }
        assert_eq!(keys(&paged), keys(&all), "pages of {length}");
    }
    // The tool's list is the store's, whoever asks.
    let stored = machine.rows(&ListRows { limit: Some(200), ..ListRows::default() }).await;
    assert_eq!(stored.len(), 4);
    assert!(stored.iter().all(|row| row.source.is_none() && row.cwd.is_none()), "{stored:?}");
}

#[tokio::test]
async fn filters_are_about_both() {
    let machine = Machine::of(&ALL);
    machine.world.said("ours", "hello", "2026-01-01T00:00:00Z").await;
    let of = |sources: &[&str]| ListRows {
        sources: sources.iter().map(|&source| source.to_owned()).collect(),
        ..everything()
    };
    let named = |rows: Vec<Row>| -> Vec<String> {
        let mut sources: Vec<String> = rows.into_iter().filter_map(|row| row.source).collect();
        sources.sort();
        sources.dedup();
        sources
    };
    assert_eq!(named(machine.rows(&of(&["codex", "native"])).await), ["codex", "native"]);
    assert_eq!(named(machine.rows(&of(&["zed"])).await), ["zed"]);
    let refused = machine.world.app.session_rows(&machine.world.owner(), &of(&["vim"])).await;
    let refused = refused.expect_err("no source").to_string();
    assert!(refused.starts_with("unknown source \"vim\": one of native, claude"), "{refused}");
    let search = |text: &str| ListRows { search: Some(text.to_owned()), ..everything() };
    let by_key = machine.rows(&search(&CLAUDE[..13])).await;
    assert_eq!(keys(&by_key), [key()]);
    let cwd = by_key[0].cwd.clone().expect("a directory");
    assert!(keys(&machine.rows(&search(&cwd)).await).contains(&key().as_str()));
    let agent = machine.rows(&ListRows { agent: Some("goose".to_owned()), ..everything() }).await;
    assert_eq!(named(agent), ["goose"]);
    let mains = machine.rows(&ListRows { kinds: vec!["main".to_owned()], ..everything() }).await;
    assert_eq!(keys(&mains), Vec::<&str>::new());
}

#[tokio::test]
async fn the_repository_leaves_what_ran_in_it() {
    let machine = Machine::with(&ALL, |settings| settings.cwd = Some("/nowhere/at/all".to_owned()));
    machine.world.said("ours", "hello", "2026-01-01T00:00:00Z").await;
    let rows = machine.rows(&ListRows { scope: Scope::Repo, ..everything() }).await;
    assert_eq!(keys(&rows), Vec::<&str>::new());
    let row = &machine.rows(&ListRows { search: Some(CLAUDE.to_owned()), ..everything() }).await[0];
    let cwd = row.cwd.clone();
    let machine = Machine::with(&ALL, |settings| settings.cwd = cwd);
    let rows = machine.rows(&ListRows { scope: Scope::Repo, ..everything() }).await;
    assert!(keys(&rows).contains(&key().as_str()) && rows.len() < machine.rows(&everything()).await.len());
}

#[tokio::test]
async fn a_transcript_is_paged_without_gap_or_repeat() {
    let machine = Machine::of(&ALL);
    let mut told = String::new();
    for row in machine.rows(&everything()).await {
        let whole = machine.page(&row.key, None, 1_000).await;
        assert!(whole.in_place && !whole.has_more, "{}", row.key);
        let expected: Vec<u64> = (1..=whole.messages.len() as u64).collect();
        assert_eq!(seqs(&whole), expected, "{}", row.key);
        for message in messages(&whole) {
            told += &message.to_string();
            let read: Result<sess_protocol::messages::Message, _> = serde_json::from_value(message.clone());
            read.unwrap_or_else(|error| panic!("{}: {error}: {message}", row.key));
        }
        let mut paged = Vec::new();
        let mut before = None;
        loop {
            let page = machine.page(&row.key, before, 2).await;
            before = page.messages.first().map(|message| message.seq);
            paged.splice(0..0, seqs(&page));
            if !page.has_more {
                break;
            }
        }
        assert_eq!(paged, expected, "{}", row.key);
    }
    // What was taken back and what a peer said are told apart.
    assert!(told.contains("\"takenBack\":true") && told.contains("\"kind\":\"inter_session\""), "{told}");
}

#[tokio::test]
async fn a_session_is_found_by_its_key_its_id_and_its_source_with_what_ran_below_it() {
    let machine = Machine::of(&["claude-code", "codex"]);
    let (app, owner) = (&machine.world.app, machine.world.owner());
    let row = app.session_row(&owner, &key(), 2).await.expect("a row");
    for given in [CLAUDE.to_owned(), format!("claude:{CLAUDE}")] {
        assert_eq!(app.session_row(&owner, &given, 2).await.expect("a row"), row);
    }
    assert_eq!(row.messages.as_ref().map(Vec::len), Some(2));
    assert!(row.read_only && row.transcript_path.is_none());
    assert_eq!(
        row.resume_command.as_deref().map(|words| words.join(" ")),
        Some(format!("claude --resume {CLAUDE}"))
    );
    let below = row.sub_sessions.expect("a sub-agent");
    assert_eq!(below[0].name, "Explore");
    let child = app.session_row(&owner, &below[0].key, 0).await.expect("a row");
    assert_eq!(child.spawned_by, Some(key()));
    let told = messages(&machine.page(&key(), None, 1_000).await);
    let text = serde_json::to_string(&told).expect("JSON");
    assert!(text.contains(&format!("\"subSession\",\"sessionId\":\"{}\"", below[0].session_id)), "{text}");
    assert!(text.contains("\"compaction\""), "{text}");
    assert!(!text.contains("sk-test-FAKE0000000000000000"), "{text}");
    let none = app.session_row(&owner, &format!("codex:{CLAUDE}"), 0).await.expect_err("another agent's");
    assert_eq!(none.to_string(), format!("Session not found: codex:{CLAUDE}"));
}

#[tokio::test]
async fn what_the_owner_says_about_one_is_kept_and_it_stays_one_row() {
    let machine = Machine::of(&["claude-code"]);
    let (app, owner) = (&machine.world.app, machine.world.owner());
    let send = |to: String| SendMessage {
        to,
        message: "hello".to_owned(),
        timeout_seconds: Some(0),
        ..SendMessage::default()
    };
    let refused = app.send(&owner, send(key())).await.expect_err("read-only").to_string();
    assert_eq!(
        refused,
        format!(
            "session claude:{CLAUDE} belongs to claude and can only be read here; go on with it there: claude --resume {CLAUDE}"
        )
    );
    for refused in
        [app.delete_session(&owner, &key()).await, app.reset_session(&owner, &key()).await.map(|_| ())]
    {
        assert!(refused.expect_err("read-only").to_string().contains("can only be read here"));
    }
    let patch = PatchSession {
        display_name: Some(Some("Keys".to_owned())),
        starred: Some(Some(true)),
        ..PatchSession::default()
    };
    app.patch_session(&owner, &key(), patch).await.expect("changed");
    let rows = machine.rows(&ListRows { search: Some("keys".to_owned()), ..everything() }).await;
    assert_eq!(keys(&rows), [key()]);
    assert_eq!(
        (rows[0].display_name.as_deref(), rows[0].starred, rows[0].read_only),
        (Some("Keys"), true, false)
    );
    assert!(!machine.page(&key(), None, 10).await.messages.is_empty(), "still its agent's transcript");
    // Now there is a place for messages: its inbox.
    assert_eq!(app.send(&owner, send(key())).await.expect("sent").status, "accepted");
    let before = machine.rows(&everything()).await.len();
    let archive = PatchSession { archived: Some(Some(true)), ..PatchSession::default() };
    app.patch_session(&owner, &key(), archive).await.expect("changed");
    assert_eq!(machine.rows(&everything()).await.len(), before - 1);
    assert_eq!(machine.rows(&ListRows { with_archived: true, ..everything() }).await.len(), before);
}

#[tokio::test]
async fn only_who_may_see_all_sessions_sees_them() {
    let machine = Machine::of(&["claude-code"]);
    let app = &machine.world.app;
    machine.world.session("one").await;
    let confined = NewToken {
        scopes: vec![tokens::Scope::Read],
        agent: Some("claude".parse().expect("a name")),
        ..NewToken::default()
    };
    let (secret, _) = app.create_token(&Access::owner(), confined).await.expect("a token");
    let access = app.admit(secret.reveal()).await.expect("asked").expect("known");
    let callers: [(&str, Caller); 3] = [
        ("a token for one agent", app.door_caller(&access, None)),
        ("an agent", machine.world.agent("one")),
        ("a confined agent", machine.world.sandboxed("one")),
    ];
    for (who, caller) in callers {
        let rows = app.session_rows(&caller, &everything()).await.expect(who).sessions;
        assert!(rows.iter().all(|row| !row.read_only), "{who}: {rows:?}");
        for given in [key(), CLAUDE.to_owned(), format!("claude:{CLAUDE}")] {
            assert!(app.session_row(&caller, &given, 1).await.is_err(), "{who} {given}");
            assert!(app.transcript_page(&caller, &given, None, 10, true).await.is_err(), "{who} {given}");
            assert!(
                app.place_in(&caller, &given, &CLAUDE.parse().expect("an id")).await.is_err(),
                "{who} {given}"
            );
        }
    }
}
