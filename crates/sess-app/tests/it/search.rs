//! Search: what is found, by whom, and what of it is shown.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use sess_app::{Caller, Found, ListRows, ListSessions, Redaction, SearchMessages};
use sess_core::policy::ContextVisibility;

use crate::world::{World, text};

const SECRET: &str = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";

fn asked(words: &str) -> SearchMessages {
    SearchMessages { text: words.to_owned(), ..SearchMessages::default() }
}

impl World {
    async fn find(&self, caller: &Caller, words: &str, limit: i64, before: Option<String>) -> Found {
        let ask = SearchMessages { limit: Some(limit), before, ..asked(words) };
        self.app.search(caller, &ask, |_, _| {}).await.expect(words)
    }

    /// Returns what the owner finds, as `session seq: snippet`.
    async fn found(&self, words: &str) -> Vec<String> {
        shown(&self.find(&self.owner(), words, 100, None).await)
    }
}

fn shown(found: &Found) -> Vec<String> {
    found.hits.iter().map(|hit| format!("{} {}: {}", hit.session.id, hit.seq, hit.snippet)).collect()
}

#[tokio::test]
async fn words_phrases_beginnings_and_absences_are_found_newest_first() {
    let world = World::new();
    assert_eq!(world.found("anything").await, [""; 0], "before there is a store");
    let session = world.session("s").await;
    let messages = [
        "retry with backoff",
        "backoff, then\nretry",
        "retrying is not it",
        "exactly once",
        "once, exactly",
        "AND the OR",
    ];
    let messages: Vec<String> = messages.iter().map(|words| text("user", words)).collect();
    world.messages(&session, &messages.iter().map(String::as_str).collect::<Vec<_>>()).await;
    assert_eq!(world.found("retry backoff").await, ["s 2: backoff, then retry", "s 1: retry with backoff"]);
    assert_eq!(world.found("RETRY -then").await, ["s 1: retry with backoff"]);
    assert_eq!(world.found("retry*").await.len(), 3);
    assert_eq!(world.found("\"exactly once\"").await, ["s 4: exactly once"]);
    assert_eq!(world.found("AND OR").await, ["s 6: AND the OR"], "words, no operators");
    assert_eq!(world.found("nowhere").await, [""; 0]);
    for hostile in [
        "\"",
        "retry\" OR \"x",
        "NEAR(a b)",
        "col:retry",
        "^retry",
        "retry'; DROP TABLE words; --",
        "{a b}: c",
        "a\0b",
    ] {
        // Whatever is typed, it is words or a refusal, never an error of the database.
        if let Err(error) = world.app.search(&world.owner(), &asked(hostile), |_, _| {}).await {
            assert_eq!(error.to_string(), "give at least one word to search for", "{hostile}");
        }
    }
    for empty in ["", "  ", "-retry", "* - \""] {
        let error = world.app.search(&world.owner(), &asked(empty), |_, _| {}).await.expect_err(empty);
        assert_eq!(error.to_string(), "give at least one word to search for");
    }
}

#[tokio::test]
async fn a_hit_says_where_it_stands() {
    let world = World::new();
    let session = world.session("s title=the title").await;
    world.messages(&session, &[&text("user", "first"), &text("assistant", "needle")]).await;
    let found = world.find(&world.owner(), "needle", 10, None).await;
    let hit = serde_json::to_value(&found.hits[0]).expect("JSON");
    assert_eq!(hit["session"]["title"], "the title");
    assert_eq!(
        (&hit["seq"], &hit["role"], &hit["time"]),
        (&2.into(), &"assistant".into(), &"2026-11-01T12:02:00Z".into())
    );
    let page = world.store().messages(&session.id, sess_store::Span::Last, 1).await.expect("a page");
    assert_eq!(hit["message"], page.messages[0].id.as_str());
}

#[tokio::test]
async fn a_snippet_is_one_line_around_the_first_word() {
    let world = World::new();
    let session = world.session("s").await;
    let long = format!("{}\n\tNeedle {}", "x ".repeat(300), "y ".repeat(300));
    world.messages(&session, &[&text("user", &long)]).await;
    let snippet = world.find(&world.owner(), "needle", 1, None).await.hits.remove(0).snippet;
    assert!(
        snippet.starts_with("…") && snippet.ends_with('…') && snippet.contains("x x Needle y y"),
        "{snippet}"
    );
    assert!(snippet.chars().count() <= 162 && !snippet.contains(['\n', '\t']), "{snippet}");
}

#[tokio::test]
async fn pages_follow_each_other_without_gap_or_repetition() {
    let world = World::new();
    let session = world.session("s").await;
    let messages: Vec<String> = (1..=25).map(|n| text("user", &format!("needle {n}"))).collect();
    world.messages(&session, &messages.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let (mut seqs, mut before) = (Vec::new(), None);
    loop {
        let page = world.find(&world.owner(), "needle", 10, before).await;
        assert!(page.hits.len() <= 10);
        seqs.extend(page.hits.iter().map(|hit| hit.seq));
        before = page.cursor;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(seqs, (1..=25).rev().collect::<Vec<_>>());
    assert_eq!(world.find(&world.owner(), "needle", 0, None).await.hits.len(), 20, "as many as usual");
    assert_eq!(world.find(&world.owner(), "needle", i64::MAX, None).await.hits.len(), 25);
}

#[tokio::test]
async fn only_what_the_caller_may_see_is_found() {
    let world = World::with(|settings| settings.context_visibility = ContextVisibility::Agent);
    world.said("m", "needle in main", "2026-11-02T00:00:00Z").await;
    world.said("h agent=helper", "needle in helper", "2026-11-03T00:00:00Z").await;
    world
        .said("handed agent=helper key=agent:main:chat:handed", "needle handed over", "2026-11-04T00:00:00Z")
        .await;
    world.said("below parent=agent:helper:chat:h", "needle below", "2026-11-05T00:00:00Z").await;
    world.said("job key=cron:x", "needle in a job", "2026-11-06T00:00:00Z").await;
    let as_agent = async |caller: &Caller| shown(&world.find(caller, "needle", 10, None).await);
    assert_eq!(
        as_agent(&world.agent("me")).await,
        ["below 1: needle below", "handed 1: needle handed over", "m 1: needle in main"]
    );
    assert_eq!(as_agent(&world.agent("h")).await, ["h 1: needle in helper"]);
    assert_eq!(as_agent(&world.sandboxed("h")).await, ["below 1: needle below", "h 1: needle in helper"]);
    assert_eq!(as_agent(&world.agent("job")).await, [""; 0]);
    assert_eq!(as_agent(&world.owner()).await.len(), 5);
}

#[tokio::test]
async fn secrets_in_snippets_are_masked_unless_the_owner_asks() {
    let world = World::new();
    world.said("s", &format!("needle {SECRET} end"), "2026-11-02T00:00:00Z").await;
    assert_eq!(world.found("needle").await, ["s 1: needle ghp_ab…6789 end"]);
    let ask = SearchMessages { redaction: Redaction::None, ..asked("needle") };
    let bare = world.app.search(&world.owner(), &ask, |_, _| {}).await.expect("found");
    assert!(bare.hits[0].snippet.contains(SECRET));
}

#[tokio::test]
async fn what_a_mask_hides_is_not_found() {
    let world = World::new();
    world
        .said(&format!("s title=key {SECRET}"), &format!("needle {SECRET} end"), "2026-11-02T00:00:00Z")
        .await;
    let found = async |caller: &Caller, text: &str, is_expression: bool, redaction: Redaction| {
        let ask = SearchMessages { is_expression, redaction, ..asked(text) };
        world.app.search(caller, &ask, |_, _| {}).await.expect(text).hits.len()
    };
    let agent = world.agent("me");
    // Each of these would tell a letter or a word of the secret: by an answer, or by none.
    for (text, is_expression) in [
        ("ghp_abc[a-m]", true),
        ("needle (ghp_ab…6789 x|ghp_abcd.*) end", true),
        ("needle ghp_abcd*", false),
        (SECRET, false),
    ] {
        assert_eq!(found(&agent, text, is_expression, Redaction::None).await, 0, "{text}");
        assert_eq!(found(&world.owner(), text, is_expression, Redaction::Masked).await, 0, "{text}");
        assert_eq!(found(&world.owner(), text, is_expression, Redaction::None).await, 1, "{text}");
    }
    let absent = format!("needle -{}", &SECRET[4..]);
    assert_eq!(found(&agent, &absent, false, Redaction::Masked).await, 1, "what is hidden is not absent");
    assert_eq!(found(&world.owner(), &absent, false, Redaction::None).await, 0);
    assert_eq!(found(&agent, "needle -end", false, Redaction::Masked).await, 0);
    assert_eq!(found(&agent, "ghp_ab…6789 end", true, Redaction::Masked).await, 1, "as it is shown");
    let titled = async |query: &str| {
        let ask = ListSessions { query: Some(query.to_owned()), ..ListSessions::default() };
        world.app.list_sessions(&agent, &ask).await.expect(query).total
    };
    assert_eq!((titled("ghp_abcd").await, titled("KEY").await), (0, 1));
}

#[tokio::test]
async fn archived_sessions_are_searched_like_others() {
    let world = World::new();
    let session = world.said("s", "needle", "2026-11-02T00:00:00Z").await;
    let found = async |is_expression: bool| {
        let ask = SearchMessages { is_expression, ..asked("needle") };
        world.app.search(&world.owner(), &ask, |_, _| {}).await.expect("searched").hits.len()
    };
    world.app.archive(&world.owner(), &session, true).await.expect("archived");
    assert_eq!((found(false).await, found(true).await), (1, 1));
}

/// How long one search may take: twice what the store gives itself.
const SEARCH_WITHIN: Duration = Duration::from_secs(4);
const TITLES: [&str; 6] =
    ["100% of it", "under_score", "back\\slash", "it's \"quoted\"", "a'; DROP TABLE sessions; --", "%_%_%_%"];

#[expect(clippy::disallowed_methods, reason = "`just test-faults` asks for more cases this way")]
fn cases() -> u32 {
    std::env::var("SESS_PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(100)
}

/// What somebody types who knows SQL, FTS5 and LIKE, and means no good.
fn typed() -> impl Strategy<Value = String> {
    let pieces = vec![
        "retry",
        "back*",
        "-once",
        "\"",
        "'",
        "*",
        "-",
        "^",
        ":",
        "(",
        ")",
        "{",
        "}",
        "+",
        ",",
        ";",
        "--",
        "/*",
        "%",
        "_",
        "\\",
        "\0",
        "\n",
        " ",
        "  ",
        "AND",
        "OR",
        "NOT",
        "NEAR(",
        "NEAR/2",
        "words:",
        "rowid:",
        "{words}:",
        "a*",
        "*a*",
        "%_%_%_%_%_%_",
        "'; DROP TABLE sessions; --",
        "\" OR 1=1 --",
        "UNION SELECT",
        "?1",
        "$1",
        ":x",
        "@x",
        "x'00'",
        "char(0)",
        "\u{202e}",
        "\u{feff}",
        "\u{fffd}",
        "ß",
        "İ",
        "é",
        "e\u{301}",
        "数据",
        "🎉",
        "\u{1b}[2J",
        "(((((((((",
        "\"\"\"\"\"\"",
        "* * * * *",
        "a a a a a a a a a a a a a a",
        "retry retry retry",
        "-a -b -c",
    ];
    let piece = prop_oneof![
        6 => proptest::sample::select(pieces).prop_map(str::to_owned),
        1 => any::<String>(),
        1 => "[a-e]{1,3}\\*?",
        1 => (0..300_usize).prop_map(|length| "a".repeat(length)),
    ];
    proptest::collection::vec(piece, 0..20).prop_map(|pieces| pieces.concat())
}

#[test]
fn whatever_is_typed_is_words_or_a_refusal_and_soon_over() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let world = World::new();
    runtime.block_on(async {
        for (n, title) in TITLES.iter().enumerate() {
            let session = world.session(&format!("s-{n} title={title}")).await;
            let said: Vec<String> = (0..500)
                .map(|m| text("user", &format!("retry backoff {title} a b c {} once", m * 7 % 40)))
                .collect();
            world.messages(&session, &said.iter().map(String::as_str).collect::<Vec<_>>()).await;
        }
    });
    let mut runner =
        TestRunner::new(Config { cases: cases(), failure_persistence: None, ..Config::default() });
    let (searched, refused) = (Cell::new(0), Cell::new(0));
    let outcome = runner.run(&(typed(), 0..3_i64), |(words, limit)| {
        runtime.block_on(async {
            let owner = world.owner();
            let begun = Instant::now();
            match world
                .app
                .search(&owner, &SearchMessages { limit: Some(limit * 50), ..asked(&words) }, |_, _| {})
                .await
            {
                Ok(_) => searched.set(searched.get() + 1),
                Err(error) => {
                    let told = error.to_string();
                    let is_ours = told == "give at least one word to search for"
                        || told.starts_with("too many words: ");
                    assert!(is_ours, "{words:?}: {told}");
                    refused.set(refused.get() + 1);
                }
            }
            let ask = ListRows { search: Some(words.clone()), limit: Some(100), ..ListRows::default() };
            match world.app.session_rows(&owner, &ask).await {
                Ok(rows) => {
                    // What is searched for is taken as it stands: no letter of it means anything else.
                    let wanted = words.trim().to_ascii_lowercase();
                    let named = |(n, title): (usize, &&str)| {
                        let key = format!("agent:main:chat:s-{n}");
                        title.to_ascii_lowercase().contains(&wanted) || key.contains(&wanted)
                    };
                    let expected = TITLES.iter().enumerate().filter(|pair| named(*pair)).count();
                    assert_eq!(rows.count, expected, "{words:?}");
                }
                Err(error) => {
                    let why = if words.trim().len() > 200 {
                        "be at most 200 bytes"
                    } else {
                        "have no NUL character"
                    };
                    assert_eq!(error.to_string(), format!("search must {why}"), "{words:?}");
                }
            }
            assert!(begun.elapsed() < SEARCH_WITHIN, "{words:?} took {:?}", begun.elapsed());
        });
        Ok(())
    });
    outcome.expect("nothing typed breaks the search");
    let (searched, refused) = (searched.get(), refused.get());
    assert!(searched > 0 && refused > 0, "{searched} searched for, {refused} refused");
    assert_eq!(runtime.block_on(world.found("retry")).len(), 100, "everything is still there");
}
