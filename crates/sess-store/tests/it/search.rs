//! Searching: words, phrases, beginnings and absences, newest first, fresh at once.

use sess_core::{Source, session::NewSession};
use sess_store::{Hit, ImportedSession, Matching, Position, SearchQuery, SessionPatch, Store, Term};

use crate::support::{Scratch, at, chat, id, run, say};

/// Reads a query as people write it: `word "a phrase" begin* -absent`.
fn query(text: &str) -> SearchQuery {
    let mut terms = Vec::new();
    for (index, part) in text.split('"').enumerate() {
        if index % 2 == 1 {
            terms.push(Term { text: part.to_owned(), matching: Matching::Whole });
            continue;
        }
        for word in part.split_whitespace() {
            let (text, matching) = match (word.strip_prefix('-'), word.strip_suffix('*')) {
                (Some(word), _) => (word, Matching::Absent),
                (None, Some(word)) => (word, Matching::Prefix),
                (None, None) => (word, Matching::Whole),
            };
            terms.push(Term { text: text.to_owned(), matching });
        }
    }
    SearchQuery { terms, ..SearchQuery::default() }
}

fn found(hits: &[Hit]) -> String {
    let seqs = hits.iter().map(|hit| format!("{}{}", hit.session.id, hit.message.seq));
    seqs.collect::<Vec<_>>().join(" ")
}

async fn search(store: &dyn Store, query: &SearchQuery) -> String {
    found(&store.search(query, None, 100).await.expect("hits"))
}

async fn with_texts(store: &dyn Store, session: &str, texts: &[&str]) {
    store.ensure_session(chat(session)).await.expect("made");
    let messages = texts.iter().map(|text| say(text)).collect();
    store.append(&id(session), messages, None).await.expect("appended");
}

#[test]
fn a_search_finds_words_phrases_and_beginnings_newest_first() {
    let scratch = Scratch::new();
    let store = scratch.open();
    run(async {
        with_texts(&*store, "a", &["The quick brown fox", "quick thinking", "Ünïcode naïve café"]).await;
        with_texts(&*store, "b", &["the brown quick fox", "foxes and quicksand"]).await;
        for (text, expected) in [
            ("quick", "b1 a2 a1"),
            ("QUICK", "b1 a2 a1"),
            ("quick fox", "b1 a1"),
            ("\"quick brown\"", "a1"),
            ("quick*", "b2 b1 a2 a1"),
            ("fox -brown", ""),
            ("fox* -brown", "b2"),
            ("quick -thinking -the", ""),
            ("unicode", "a3"),
            ("cafe naive", "a3"),
            ("nothing", ""),
            ("", ""),
            ("-quick", ""),
            ("--- ???", ""),
            ("quick ->", "b1 a2 a1"),
        ] {
            assert_eq!(search(&*store, &query(text)).await, expected, "{text}");
        }
    });
}

#[test]
fn a_search_is_fresh_without_waiting() {
    let scratch = Scratch::new();
    let (mine, theirs) = (scratch.open(), scratch.open());
    run(async {
        for n in 0..20 {
            let writer = if n % 2 == 0 { &mine } else { &theirs };
            with_texts(&**writer, "a", &[&format!("word{n}")]).await;
            assert_eq!(search(&*mine, &query(&format!("word{n}"))).await, format!("a{}", n + 1));
        }
    });
}

#[test]
fn the_index_takes_words_that_are_its_own_language_as_words() {
    let scratch = Scratch::new();
    let store = scratch.open();
    run(async {
        let hostile = [
            "AND",
            "OR",
            "NOT",
            "NEAR(",
            "NEAR(a b, 2)",
            "text:",
            "text:a",
            "-text",
            "a*",
            "*",
            "^a",
            "\"",
            "\"\"",
            "'",
            "a\"b",
            "(",
            ")",
            "{a b}:",
            "a + b",
            "a\0b",
            "\\",
            ";",
            "--",
            "%",
            "words MATCH",
            "ä",
            "🦀",
            "\u{202e}x",
        ];
        with_texts(&*store, "a", &["AND of near text a b", "nothing here"]).await;
        for text in hostile {
            for matching in [Matching::Whole, Matching::Prefix, Matching::Absent] {
                let terms = vec![
                    Term { text: "near".to_owned(), matching: Matching::Whole },
                    Term { text: text.to_owned(), matching },
                ];
                let alone = SearchQuery { terms: terms[1..].to_vec(), ..SearchQuery::default() };
                let both = SearchQuery { terms, ..SearchQuery::default() };
                for query in [alone, both] {
                    let hits = store
                        .search(&query, None, 10)
                        .await
                        .unwrap_or_else(|error| panic!("{text}: {error}"));
                    assert!(hits.len() <= 1, "{text} is no operator: {}", found(&hits));
                }
            }
        }
        assert_eq!(search(&*store, &query("AND")).await, "a1");
        let many = SearchQuery {
            terms: (0..3_000).map(|n| Term { text: format!("w{n}"), matching: Matching::Absent }).collect(),
            ..query("and")
        };
        let many = SearchQuery { terms: [query("and").terms, many.terms].concat(), ..many };
        assert_eq!(search(&*store, &many).await, "a1");
    });
}

#[test]
fn a_search_is_paged_by_position_and_filtered_by_session() {
    let scratch = Scratch::new();
    let store = scratch.open();
    run(async {
        for (name, source) in [("a", Source::Native), ("b", Source::Claude)] {
            let session = NewSession::chat(id(name), source, at(1));
            let messages = (0..150).map(|n| say(&format!("{name} word {n}"))).collect();
            store.import(ImportedSession { session, starred: false, messages }).await.expect("imported");
        }
        let words = query("word");
        let mut all: Vec<u64> = Vec::new();
        let mut before = None;
        loop {
            let hits = store.search(&words, before, 7).await.expect("hits");
            let Some(last) = hits.last() else { break };
            before = Some(last.message.position);
            all.extend(hits.iter().map(|hit| hit.message.position.0));
        }
        assert_eq!(all.len(), 300);
        assert!(all.is_sorted_by(|newer, older| newer > older), "newest first, each once");
        assert_eq!(store.search(&words, Some(Position(0)), 7).await.expect("hits").len(), 0);
        assert_eq!(store.search(&words, None, 0).await.expect("hits").len(), 0);

        // The filtered ones lie behind more hits than are looked at in one go.
        let native = SearchQuery { source: Some(Source::Native), ..words.clone() };
        assert_eq!(found(&store.search(&native, None, 2).await.expect("hits")), "a150 a149");
        let claude = SearchQuery { agent: Some("claude".parse().expect("an agent")), ..words.clone() };
        assert_eq!(found(&store.search(&claude, None, 1).await.expect("hits")), "b150");
        let none = SearchQuery { source: Some(Source::Codex), ..words.clone() };
        assert_eq!(found(&store.search(&none, None, 1).await.expect("hits")), "");
        store.patch_session(&id("b"), SessionPatch::Archived(true), at(2)).await.expect("archived");
        assert_eq!(found(&store.search(&words, None, 1).await.expect("hits")), "b150");
    });
}
