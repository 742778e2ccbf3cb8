//! Tokens: found by hash and by id, counted, used up, and forgotten.

use sess_core::Timestamp;
use sess_store::{Store, TokenKind, TokenRecord};

use crate::support::{Scratch, at, run};

fn token(id: &str, kind: TokenKind, made_at: i64, expires_at: Option<i64>) -> TokenRecord {
    TokenRecord {
        id: id.to_owned(),
        hash: format!("hash of {id}"),
        kind,
        scopes: "read".to_owned(),
        agent: None,
        session: None,
        label: None,
        created_at: at(made_at),
        expires_at: expires_at.map(at),
        revoked_at: None,
    }
}

async fn counting(store: &dyn Store, at: Timestamp) -> Vec<String> {
    let mut ids = store.counting_tokens(at).await.expect("read");
    ids.sort();
    ids
}

#[test]
fn a_token_counts_until_it_is_revoked_or_expires() {
    let scratch = Scratch::new();
    run(async {
        let store = scratch.open();
        for (id, end) in [("forever", None), ("short", Some(5_000)), ("revoked", None)] {
            store.add_token(token(id, TokenKind::Bearer, 1_000, end)).await.expect("added");
        }
        store.revoke_token("revoked", at(2_000)).await.expect("revoked").expect("it is there");
        assert_eq!(counting(&*store, at(4_999)).await, ["forever", "short"]);
        assert_eq!(counting(&*store, at(5_000)).await, ["forever"]);
        let short = token("short", TokenKind::Bearer, 1_000, Some(5_000));
        assert_eq!(store.token("short").await, Ok(Some(short.clone())));
        assert_eq!(store.token_by_hash("hash of short").await, Ok(Some(short)));
        assert_eq!(store.token("hash of short").await, Ok(None));
        // Also those that count no longer are listed: somebody may ask what became of them.
        assert_eq!(store.tokens(9).await.expect("read").len(), 3);
    });
}

#[test]
fn a_code_counts_once_and_visits_leave_nothing_behind_for_ever() {
    let scratch = Scratch::new();
    run(async {
        let store = scratch.open();
        for visit in 0..50 {
            let now = visit * 1_000;
            let (code, page) = (format!("code {visit}"), format!("page {visit}"));
            store.add_token(token(&code, TokenKind::Login, now, Some(now + 60))).await.expect("added");
            let page = token(&page, TokenKind::Cookie, now, Some(now + 3_000));
            let hash = format!("hash of {code}");
            assert_eq!(store.exchange_login(&hash, page.clone(), at(now)).await, Ok(true));
            assert_eq!(store.exchange_login(&hash, page, at(now)).await, Ok(false), "once");
        }
        let old = token("old", TokenKind::Bearer, 0, Some(1));
        store.add_token(old.clone()).await.expect("added");
        store.add_token(token("new", TokenKind::Bearer, 50_000, None)).await.expect("added");
        let left = store.tokens(100).await.expect("read");
        let left: Vec<&str> = left.iter().map(|token| token.id.as_str()).collect();
        assert_eq!(left, ["new", "old", "page 49", "page 48"], "what a person made stays, and is no code");
        assert_eq!(store.token("code 49").await, Ok(None));
    });
}
