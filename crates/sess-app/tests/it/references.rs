//! References to sessions: the error table, prefixes, and an oracle for everything else.

use proptest::{prelude::*, test_runner::TestRunner};
use serde_json::json;
use sess_core::policy::ContextVisibility;

use crate::world::{World, at, told};

impl World {
    /// Returns the id that a reference leads to, or the error.
    async fn resolved(&self, caller: &str, reference: &str) -> String {
        let answer = self.answer(&self.agent(caller), "read_session", json!({"session_id": reference})).await;
        match &answer.structured {
            Some(structured) => structured["session_id"].as_str().expect("an id").to_owned(),
            None => told(&answer),
        }
    }
}

const CURRENT: &str = "error: cannot read the current session; reference a different one";

fn not_found(reference: &str) -> String {
    format!("error: session \"{reference}\" not found")
}

fn out_of_range(offset: &str, have: usize) -> String {
    let number = offset.trim_start_matches('-');
    format!(
        "error: cannot resolve session \"{offset}\": session offset {number} out of range (have {have} sessions)"
    )
}

#[tokio::test]
async fn an_empty_reference_is_an_error_of_its_own() {
    let world = World::new();
    for empty in ["", " ", "\n\t", "\u{3000}"] {
        assert_eq!(world.resolved("me", empty).await, "error: session_id must not be empty");
    }
}

#[tokio::test]
async fn relative_references_go_over_exactly_the_listed_order() {
    let world = World::new();
    for (n, when) in [(1, "02"), (2, "05"), (3, "03"), (4, "07"), (5, "06"), (6, "04")] {
        world.said(&format!("s-{n}"), "hi", &format!("2026-11-{when}T00:00:00Z")).await;
    }
    world.said("sub parent=agent:main:chat:s-1", "hi", "2026-11-09T00:00:00Z").await;
    world.said("me", "hi", "2026-11-08T00:00:00Z").await;
    for (reference, session) in [("-1", "s-4"), ("-2", "s-5"), (" -3\n", "s-2"), ("-6", "s-1")] {
        assert_eq!(world.resolved("me", reference).await, session);
    }
    // `-1` is always the newest other one.
    assert_eq!(world.resolved("s-4", "-1").await, "me");
    assert_eq!(world.resolved("s-4", "-2").await, "s-5");
    assert_eq!(
        world.resolved("me", "-9").await,
        "error: cannot resolve session \"-9\": session offset 9 out of range (have 6 sessions)"
    );
    assert_eq!(world.resolved("me", "-7").await, out_of_range("-7", 6));
    assert_eq!(
        world.resolved("me", "-99999999999999999999").await,
        "error: cannot resolve session \"-99999999999999999999\": session offset 99999999999999999999 out of range (have 6 sessions)"
    );
    // The owner at a terminal is no session, so nothing is excluded.
    let newest = world.answer(&world.owner(), "read_session", json!({"session_id": "-1"})).await;
    assert_eq!(newest.structured.expect("structured")["session_id"], "me");
}

#[tokio::test]
async fn what_only_looks_like_a_relative_reference_is_an_id_that_is_not_there() {
    let world = World::new();
    world.session("some-session").await;
    for reference in ["0", "+1", "-0", "-abc", "--1", "1", "-01", "-1x", "- 1", "−1", "-1.0"] {
        assert_eq!(world.resolved("me", reference).await, not_found(reference));
    }
    world.session("1").await;
    assert_eq!(world.resolved("me", "1").await, "1", "an id like any other");
}

#[tokio::test]
async fn before_there_is_a_store_nothing_is_found() {
    let world = World::new();
    assert_eq!(world.resolved("me", "-1").await, out_of_range("-1", 0));
    assert_eq!(world.resolved("me", "some-session").await, not_found("some-session"));
    assert_eq!(world.resolved("me", "../x").await, not_found("../x"));
    assert_eq!(world.resolved("me", "me").await, CURRENT);
}

#[tokio::test]
async fn the_current_session_and_those_above_it_cannot_be_read() {
    let world = World::new();
    world.session("root-session").await;
    world.session("mid-session parent=agent:main:chat:root-session").await;
    world.session("leaf-session parent=agent:main:chat:mid-session").await;
    for own in
        ["leaf-session", " leaf-session ", "agent:main:chat:leaf-session", "native:leaf-session", "leaf-ses"]
    {
        assert_eq!(world.resolved("leaf-session", own).await, CURRENT, "{own}");
    }
    for above in
        ["mid-session", "root-session", "agent:main:chat:root-session", "root-ses", "native:root-session"]
    {
        assert_eq!(world.resolved("leaf-session", above).await, CURRENT, "{above}");
    }
    // Downwards there is no loop.
    assert_eq!(world.resolved("root-session", "leaf-session").await, "leaf-session");
    // A session that was never written to is the current one all the same.
    for own in ["unwritten", "agent:main:chat:unwritten", "native:unwritten"] {
        assert_eq!(world.resolved("unwritten", own).await, CURRENT, "{own}");
    }
    assert_eq!(world.resolved("unwritten", "codex:unwritten").await, not_found("codex:unwritten"));
    world.session("loop-a parent=agent:main:chat:loop-b").await;
    world.session("loop-b parent=agent:main:chat:loop-a").await;
    assert_eq!(world.resolved("loop-a", "loop-b").await, CURRENT);
    assert_eq!(world.resolved("loop-a", "loop-a").await, CURRENT);
}

#[tokio::test]
async fn keys_and_sources_name_sessions_too() {
    let world = World::new();
    world.session("019a-abc source=codex").await;
    world.session("keyed key=agent:main:main").await;
    assert_eq!(world.resolved("me", "codex:019a-abc").await, "019a-abc");
    assert_eq!(world.resolved("me", "claude:019a-abc").await, not_found("claude:019a-abc"));
    assert_eq!(world.resolved("me", "nobody:019a-abc").await, not_found("nobody:019a-abc"));
    assert_eq!(world.resolved("me", "agent:Main:main").await, "keyed");
    assert_eq!(world.resolved("me", "agent:main:other").await, not_found("agent:main:other"));
}

#[tokio::test]
async fn a_unique_prefix_of_eight_characters_or_more_is_enough() {
    let world = World::new();
    for session in ["abcdefgh-1", "abcdefgh-2", "abcdefgh-2x", "ABCDEFGH-9", "12345678", "zzzzzzzz_%"] {
        if let Ok(id) = session.parse::<sess_core::SessionId>() {
            world.session(id.as_str()).await;
        }
    }
    assert_eq!(world.resolved("me", "abcdefgh-1").await, "abcdefgh-1");
    assert_eq!(world.resolved("me", "abcdefg").await, not_found("abcdefg"), "seven");
    assert_eq!(
        world.resolved("me", "abcdefgh").await,
        "error: session \"abcdefgh\" is ambiguous (3 match); give more of the id"
    );
    assert_eq!(
        world.resolved("me", "abcdefgh-2").await,
        "abcdefgh-2",
        "the whole id wins over a prefix of another"
    );
    assert_eq!(world.resolved("me", "ABCDEFGH").await, "ABCDEFGH-9");
    assert_eq!(world.resolved("me", " ABCDEFGH- ").await, "ABCDEFGH-9");
    assert_eq!(world.resolved("me", "1234567").await, not_found("1234567"));
    assert_eq!(
        world.resolved("me", "bcdefgh-1").await,
        not_found("bcdefgh-1"),
        "the beginning, not the middle"
    );
    assert_eq!(world.resolved("me", "abcdefgh_").await, not_found("abcdefgh_"), "no pattern");
    // One's own id makes a prefix ambiguous like any other: nothing is guessed.
    assert_eq!(
        world.resolved("abcdefgh-1", "abcdefgh-").await,
        "error: session \"abcdefgh-\" is ambiguous (3 match); give more of the id"
    );
}

#[tokio::test]
async fn unknown_and_out_of_sight_are_told_apart_by_nothing() {
    let world = World::with(|settings| settings.context_visibility = ContextVisibility::Agent);
    world.session("helper-session agent=helper").await;
    world.session("helper-sessiom agent=helper").await;
    world.session("main-session-1").await;
    world.session("helper-main key=cron:x").await;
    for hidden in [
        "helper-session",
        "helper-sessi",
        "agent:helper:chat:helper-session",
        "native:helper-session",
        "cron:x",
        "helper-main",
    ] {
        assert_eq!(world.resolved("me", hidden).await, not_found(hidden));
    }
    assert_eq!(world.resolved("me", "-1").await, "main-session-1");
    assert_eq!(world.resolved("me", "-2").await, out_of_range("-2", 1));
    // Nor does damage tell: whose a damaged session is cannot be known.
    world.sql("UPDATE sessions SET title = 'changed' WHERE id = 'helper-session'");
    assert_eq!(world.resolved("me", "helper-session").await, not_found("helper-session"));
    // What is out of sight makes no prefix ambiguous.
    world.session("main-session-1x agent=helper").await;
    assert_eq!(world.resolved("me", "main-ses").await, "main-session-1");
}

#[tokio::test]
async fn a_damaged_session_moves_no_other_and_is_named_when_asked_for() {
    let world = World::new();
    for (n, day) in (1..=4).zip(2..) {
        world.said(&format!("session-{n}"), "hi", &format!("2026-11-0{day}T00:00:00Z")).await;
    }
    world.sql("UPDATE sessions SET title = 'changed' WHERE id = 'session-3'");
    assert_eq!(world.resolved("me", "-1").await, "session-4");
    assert_eq!(world.resolved("me", "-2").await, "session-2", "the second of the list");
    assert_eq!(world.resolved("me", "-3").await, "session-1");
    assert_eq!(world.resolved("me", "-4").await, out_of_range("-4", 3));
    let told = world.resolved("me", "session-3").await;
    assert!(told.starts_with("error: session session-3 cannot be read: "), "{told}");
}

#[tokio::test]
async fn the_id_of_a_damaged_session_is_no_beginning_of_another_one() {
    let world = World::new();
    world.said("session-3", "hi", "2026-11-02T00:00:00Z").await;
    world.said("session-31", "hi", "2026-11-03T00:00:00Z").await;
    world.sql("UPDATE sessions SET title = 'changed' WHERE id = 'session-3'");
    let me = world.sandboxed("session-31");
    let answer = world.answer(&me, "read_session", json!({"session_id": "session-3"})).await;
    assert_eq!(told(&answer), not_found("session-3"));
}

/// One session of a random store.
#[derive(Clone, Debug)]
struct Made {
    id: String,
    agent: usize,
    parent: Option<usize>,
    day: u32,
    is_damaged: bool,
    is_archived: bool,
}

const AGENTS: [&str; 3] = ["main", "helper", "claude"];

fn stores() -> impl Strategy<Value = Vec<Made>> {
    // Few letters, so that prefixes meet; parents point anywhere, so that trees have loops.
    let one = (
        "[ab]{8,10}",
        0..AGENTS.len(),
        proptest::option::weighted(0.4, 0usize..8),
        1u32..6,
        proptest::bool::weighted(0.1),
        proptest::bool::weighted(0.1),
    );
    proptest::collection::vec(one, 1..8).prop_map(|all| {
        let mut made: Vec<Made> = Vec::new();
        for (id, agent, parent, day, is_damaged, is_archived) in all {
            if made.iter().all(|other| other.id != id) {
                made.push(Made { id, agent, parent, day, is_damaged, is_archived });
            }
        }
        let count = made.len();
        for session in &mut made {
            session.parent = session.parent.map(|parent| parent % count);
        }
        made
    })
}

/// The contract, written as slowly and plainly as possible.
struct Oracle<'a> {
    store: &'a [Made],
    caller: usize,
    visibility: ContextVisibility,
    is_sandboxed: bool,
}

impl Oracle<'_> {
    /// The sessions above one; a damaged one cannot say what is above it.
    fn above(&self, of: usize) -> Vec<usize> {
        let mut above = Vec::new();
        let mut next = self.store[of].parent;
        while let Some(parent) = next {
            if parent == of || above.contains(&parent) || self.store[parent].is_damaged {
                break;
            }
            above.push(parent);
            next = self.store[parent].parent;
        }
        above
    }

    fn lineage(&self) -> Vec<usize> {
        std::iter::once(self.caller).chain(self.above(self.caller)).collect()
    }

    fn sees(&self, target: usize) -> bool {
        if self.is_sandboxed {
            return target == self.caller || self.above(target).contains(&self.caller);
        }
        match self.visibility {
            ContextVisibility::All => true,
            ContextVisibility::Agent => self.store[target].agent == self.store[self.caller].agent,
        }
    }

    fn list(&self) -> Vec<usize> {
        let mut listed: Vec<usize> = (0..self.store.len())
            .filter(|&n| {
                let session = &self.store[n];
                session.parent.is_none() && !session.is_damaged && !session.is_archived
            })
            .filter(|&n| !self.is_sandboxed && self.sees(n) && !self.lineage().contains(&n))
            .collect();
        listed.sort_by(|&a, &b| {
            let (a, b) = (&self.store[a], &self.store[b]);
            b.day.cmp(&a.day).then_with(|| a.id.cmp(&b.id))
        });
        listed
    }

    fn read(&self, target: usize, reference: &str) -> String {
        if self.lineage().contains(&target) {
            return CURRENT.to_owned();
        }
        if self.store[target].is_damaged {
            let hears = !self.is_sandboxed && self.visibility == ContextVisibility::All;
            return if hears { "damaged".to_owned() } else { not_found(reference) };
        }
        if self.sees(target) { self.store[target].id.clone() } else { not_found(reference) }
    }

    fn resolve(&self, reference: &str) -> String {
        if let Some(offset) = reference.strip_prefix('-') {
            let list = self.list();
            let place: usize = offset.parse().expect("a number");
            return match list.get(place - 1) {
                Some(&found) => self.store[found].id.clone(),
                None => out_of_range(reference, list.len()),
            };
        }
        let by_key =
            |session: &Made| format!("agent:{}:chat:{}", AGENTS[session.agent], session.id) == reference;
        let exact = self.store.iter().position(|session| session.id == reference || by_key(session));
        if let Some(exact) = exact {
            return self.read(exact, reference);
        }
        let matches: Vec<usize> = (0..self.store.len())
            .filter(|&n| reference.len() >= 8 && self.store[n].id.starts_with(reference))
            .filter(|&n| !self.store[n].is_damaged && self.sees(n))
            .collect();
        match matches[..] {
            [] => not_found(reference),
            [one] => self.read(one, reference),
            _ => format!(
                "error: session \"{reference}\" is ambiguous ({} match); give more of the id",
                matches.len()
            ),
        }
    }
}

/// Random stores, every caller, every way to name every session.
#[test]
fn every_reference_means_what_the_contract_says() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let cases = ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() };
    let run = TestRunner::new(cases).run(&(stores(), any::<bool>()), |(store, sees_all)| {
        let visibility = if sees_all { ContextVisibility::All } else { ContextVisibility::Agent };
        runtime.block_on(compare(&store, visibility));
        Ok(())
    });
    run.unwrap_or_else(|error| panic!("{error}"));
}

async fn compare(made: &[Made], visibility: ContextVisibility) {
    let world = World::with(|settings| settings.context_visibility = visibility);
    let store = world.store();
    for session in made {
        let parent = session.parent.map_or_else(String::new, |parent| {
            let parent = &made[parent];
            format!(" parent=agent:{}:chat:{}", AGENTS[parent.agent], parent.id)
        });
        let day = format!("2026-11-0{}T00:00:00Z", session.day);
        let line = format!("{} agent={} at={day}{parent}", session.id, AGENTS[session.agent]);
        let new = store.ensure_session(crate::world::new_session(&line)).await.expect("made");
        if session.is_archived {
            let archived = sess_store::SessionPatch::Archived(true);
            store.patch_session(&new.id, archived, at(&day)).await.expect("archived");
        }
        if session.is_damaged {
            world.sql(&format!("UPDATE sessions SET title = 'changed' WHERE id = '{}'", session.id));
        }
    }
    let mut references: Vec<String> = (1..=made.len() + 1).map(|n| format!("-{n}")).collect();
    for session in made {
        references.push(session.id.clone());
        references.push(format!("agent:{}:chat:{}", AGENTS[session.agent], session.id));
        references
            .extend([7, 8, 9].iter().filter(|&&n| n < session.id.len()).map(|&n| session.id[..n].to_owned()));
    }
    references.extend(["aaaaaaaaaaaa".to_owned(), "agent:main:chat:nobody".to_owned()]);
    for caller in (0..made.len()).filter(|&caller| !made[caller].is_damaged) {
        for is_sandboxed in [false, true] {
            let oracle = Oracle { store: made, caller, visibility, is_sandboxed };
            let who = &made[caller].id;
            let me = if is_sandboxed { world.sandboxed(who) } else { world.agent(who) };
            let listing = world.answer(&me, "list_sessions", json!({"limit": 100})).await.text;
            let listing: Vec<serde_json::Value> = serde_json::from_str(&listing).expect("a list");
            let listed: Vec<&str> = listing.iter().filter_map(|session| session["id"].as_str()).collect();
            let expected: Vec<&str> = oracle.list().iter().map(|&n| made[n].id.as_str()).collect();
            assert_eq!(listed, expected, "as {who}");
            for reference in &references {
                let answer = world.answer(&me, "read_session", json!({"session_id": reference})).await;
                let mut resolved = match &answer.structured {
                    Some(structured) => structured["session_id"].as_str().expect("an id").to_owned(),
                    None => told(&answer),
                };
                if resolved.contains("cannot be read: ") {
                    resolved = "damaged".to_owned();
                }
                let mut expected = oracle.resolve(reference);
                if reference.starts_with('-') && expected.contains("out of range") {
                    // A damaged session may still be counted among those that there are.
                    let cut = |text: &str| text.split(" (have").next().unwrap_or_default().to_owned();
                    (resolved, expected) = (cut(&resolved), cut(&expected));
                }
                assert_eq!(resolved, expected, "{reference} as {who}, sandboxed: {is_sandboxed}");
            }
        }
    }
}
