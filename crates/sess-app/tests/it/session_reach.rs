//! Who reaches what, through the tools and under every name that a session has.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};
use sess_core::{
    SessionKey,
    key::MalformedKey,
    rules::{AgentToAgent, DirectScope, Visibility},
};

use crate::{
    sessions_stage::{Stage, error, forbidden},
    world::new_session,
};

fn not_found(given: &str) -> Value {
    error(&format!("Session not found: {given}"))
}

#[tokio::test]
async fn a_session_is_found_by_every_name_it_has() {
    let stage = Stage::new(&["main", "ops"]);
    stage.configure(|configured| configured.rules.visibility = Visibility::Agent);
    stage.world.said("0123abcd-1 title=one", "hi", "2026-11-02T00:00:00Z").await;
    let me = stage.world.session("me").await;
    let read = async |given: &str| stage.answer("me", "sessions_history", json!({"sessionKey": given})).await;
    for given in [
        "0123abcd-1",
        "0123abcd",
        " 0123abcd-1\n",
        "agent:main:chat:0123abcd-1",
        "agent:MAIN:chat:0123abcd-1",
    ] {
        let history = read(given).await;
        assert_eq!(history["sessionId"], "0123abcd-1", "{given}: {history}");
        assert_eq!(history["sessionKey"], "agent:main:chat:0123abcd-1");
    }
    assert_eq!(read("current").await["sessionKey"], me.key.as_str());
    // It exists before its first use, and is made then, once.
    let main = read("main").await;
    assert_eq!(main["sessionKey"], "agent:main:main");
    assert_eq!(read("agent:main:main").await, main);
    for given in ["0123abc", "0123abcd-2", "global", "unknown", "Main", "../x", "-1", "agent"] {
        assert_eq!(read(given).await, not_found(given), "{given}");
    }
    // Said before the policy is asked: no session has such a key.
    let long = format!("cron:{}", "x".repeat(512));
    for given in [
        "agent:",
        "agent:main:",
        "agent::main",
        "agent:-x:main",
        "agent:a::b",
        "agent:main:foo",
        "agent:b:foo",
        "agent:b:subagent:",
        "foo:bar",
        "cron:",
        "node-",
        "a:\u{7}",
        "a\u{7}b",
        &long,
    ] {
        assert_eq!(read(given).await, error(&MalformedKey(given.to_owned()).to_string()), "{given}");
    }
    assert_eq!(read(" ").await, error("sessionKey must not be empty"));
    stage.world.session("0123abcd-12").await;
    let ambiguous = error("session \"0123abcd\" is ambiguous (2 match); give more of the id");
    assert_eq!(read("0123abcd").await, ambiguous);
    assert_eq!(read("0123abcd-1").await["sessionId"], "0123abcd-1", "a whole id is itself");
}

#[tokio::test]
async fn a_reset_key_leads_to_its_newest_transcript_and_the_older_stays_readable_by_id() {
    let stage = Stage::new(&["main"]);
    stage.configure(|configured| configured.rules.visibility = Visibility::Agent);
    let key = "agent:main:discord:group:1";
    for id in ["older", "newer"] {
        stage.world.said(&format!("{id} key={key}"), id, "2026-11-02T00:00:00Z").await;
    }
    let caller = stage.world.agent("me");
    assert_eq!(stage.history(&caller, key).await["sessionId"], "newer");
    assert_eq!(stage.history(&caller, "older").await["sessionId"], "older");
    let ask = json!({"sessionKey": "older", "message": "hi", "timeoutSeconds": 0});
    assert_eq!(stage.answer("me", "sessions_send", ask).await["status"], "accepted");
    let runs = stage.world.store().runs(None, 10).await.expect("runs");
    assert_eq!(runs[0].session.as_str(), "newer", "a message goes to the address");
}

#[tokio::test]
async fn what_is_out_of_reach_is_told_apart_from_nothing_that_does_not_exist() {
    let stage = Stage::new(&["main", "ops"]);
    stage.world.session("abcdefgh-1").await;
    stage.world.session("abcdefgh-2 agent=ops").await;
    stage.world.session("me").await;
    let read = async |given: &str| stage.answer("me", "sessions_history", json!({"sessionKey": given})).await;
    let tree = forbidden(
        "Session history visibility is restricted to the current session tree (tools.sessions.visibility=tree).",
    );
    let agent = forbidden(
        "Session history visibility is restricted. Set tools.sessions.visibility=all to allow cross-agent access.",
    );
    for given in ["agent:main:chat:abcdefgh-1", "agent:main:chat:none", "main", "abcdefgh-1"] {
        assert_eq!(read(given).await, tree, "{given}");
    }
    for given in
        ["agent:ops:chat:abcdefgh-2", "agent:ops:chat:none", "agent:none:main", "abcdefgh-2", "cron:x"]
    {
        assert_eq!(read(given).await, agent, "{given}");
    }
    assert_eq!(read("abcdefgh").await, not_found("abcdefgh"));
    // A change of the configuration holds from the next call on.
    stage.configure(|configured| configured.rules.visibility = Visibility::Agent);
    assert_eq!(read("abcdefgh").await["sessionId"], "abcdefgh-1");
    assert_eq!(read("agent:main:chat:none").await, not_found("agent:main:chat:none"));
}

#[tokio::test]
async fn with_one_direct_chat_for_all_every_main_is_the_same_and_called_so() {
    let stage = Stage::new(&["root", "ops"]);
    stage.configure(|configured| {
        configured.rules.visibility = Visibility::All;
        configured.rules.agent_to_agent.is_enabled = true;
        configured.rules.scope = DirectScope::Global;
    });
    stage.world.session("me agent=ops").await;
    let caller = stage.world.agent("me");
    let main = stage.history(&caller, "main").await;
    assert_eq!(main["sessionKey"], "main");
    assert_eq!(stage.history(&caller, "agent:ops:main").await, main);
    let listed = stage.answer("me", "sessions_list", json!({"kinds": ["main"]})).await;
    assert_eq!((&listed["total"], &listed["sessions"][0]["key"]), (&json!(1), &json!("main")), "{listed}");
    assert_eq!(stage.history(&caller, "global").await, not_found("global"));
    let ask = json!({"sessionKey": "main", "message": "hi", "timeoutSeconds": 0});
    assert_eq!(stage.answer("me", "sessions_send", ask).await["sessionKey"], "main");
    // Whoever is named by another agent's main key is that one, too.
    stage.answer("agent:ops:main", "sessions_list", json!({})).await;
    let listed = stage.answer("me", "sessions_list", json!({"kinds": ["main"]})).await;
    assert_eq!(listed["total"], 1, "{listed}");
}

#[tokio::test]
async fn whoever_is_first_makes_the_same_main_session() {
    let stage = Stage::new(&["main"]);
    let (one, other) = (stage.world.other_process(), stage.world.other_process());
    let owner = stage.world.owner();
    let ask = || sess_app::SendMessage {
        to: "main".to_owned(),
        message: "hi".to_owned(),
        timeout_seconds: Some(0),
        ..sess_app::SendMessage::default()
    };
    let (first, second, third) =
        tokio::join!(one.send(&owner, ask()), other.send(&owner, ask()), stage.world.app.send(&owner, ask()));
    for answer in [first, second, third] {
        assert_eq!(answer.expect("sent").session_key, "agent:main:main");
    }
    let runs = stage.world.store().runs(None, 10).await.expect("runs");
    assert_eq!(runs.len(), 3);
    assert!(runs.iter().all(|run| run.session == runs[0].session), "{runs:?}");
    // Another store has another one.
    let elsewhere = Stage::new(&["main"]);
    elsewhere.world.app.send(&elsewhere.world.owner(), ask()).await.expect("sent");
    let there = elsewhere.world.store().runs(None, 10).await.expect("runs");
    assert_ne!(there[0].session, runs[0].session);
}

/// A session of a random tree.
#[derive(Clone, Debug)]
struct Leaf {
    agent: usize,
    /// One that was made before it.
    parent: Option<prop::sample::Index>,
    kind: usize,
}

const AGENTS: [&str; 3] = ["a", "ab", "b"];

fn leaves() -> impl Strategy<Value = Vec<Leaf>> {
    let leaf = (0..3_usize, prop::option::of(any::<prop::sample::Index>()), 0..4_usize)
        .prop_map(|(agent, parent, kind)| Leaf { agent, parent, kind });
    prop::collection::vec(leaf, 2..8)
}

fn key_of(n: usize, leaf: &Leaf) -> String {
    let agent = AGENTS[leaf.agent];
    match leaf.kind {
        0 => format!("agent:{agent}:chat:{n}"),
        1 => format!("agent:{agent}:discord:group:{n}"),
        2 => format!("agent:{agent}:subagent:{n}"),
        _ => format!("cron:{n}"),
    }
}

fn agent_of(key: &str) -> Option<&str> {
    key.strip_prefix("agent:").and_then(|rest| rest.split(':').next())
}

/// Says who may reach what, from the contract's words and nothing else.
fn oracle(
    (own, target): (&str, &str),
    parents: &[(String, Option<String>)],
    visibility: &str,
    is_sandboxed: bool,
    agents: &AgentToAgent,
) -> bool {
    let mut above = target;
    let mut is_spawned = false;
    while let Some((_, Some(parent))) = parents.iter().find(|(key, _)| key == above) {
        above = parent;
        is_spawned |= above == own;
    }
    let visibility = if is_sandboxed && visibility != "self" { "tree" } else { visibility };
    let is_same_agent = agent_of(own).is_some() && agent_of(own) == agent_of(target);
    let named = |key: &str| {
        agents.allow.iter().any(|pattern| match (agent_of(key), pattern.strip_suffix('*')) {
            (Some(agent), Some(start)) => agent.starts_with(start),
            (Some(agent), None) => agent == pattern,
            (None, _) => pattern == "*",
        })
    };
    let are_allowed = agents.is_enabled && (agents.allow.is_empty() || (named(own) && named(target)));
    own == target
        || match visibility {
            "self" => false,
            "tree" => is_spawned,
            "agent" => is_spawned || is_same_agent,
            _ => is_spawned || is_same_agent || are_allowed,
        }
}

#[expect(clippy::disallowed_methods, reason = "`just test-faults` asks for more cases this way")]
fn cases() -> u32 {
    std::env::var("SESS_PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(200)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 64, ..ProptestConfig::default() })]

    /// Nothing that is not allowed is ever visible, whoever asks, for what, under which name.
    #[test]
    fn nothing_out_of_reach_is_ever_visible(
        leaves in leaves(),
        visibility in 0..4_usize,
        is_enabled: bool,
        allow in prop::collection::vec(prop::sample::select(vec!["a", "b", "a*", "*", "c"]), 0..3),
        is_sandboxed: bool,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let visibility = Visibility::ALL[visibility];
            let agents = AgentToAgent { is_enabled, allow: allow.iter().map(|name| (*name).to_owned()).collect() };
            let stage = Stage::new(&[]);
            stage.configure(|configured| {
                configured.rules.visibility = visibility;
                configured.rules.agent_to_agent = agents.clone();
            });
            let store = stage.world.store();
            let mut sessions: Vec<(String, Option<String>)> = Vec::new();
            for (n, leaf) in leaves.iter().enumerate() {
                let parent = leaf.parent.as_ref().filter(|_| n > 0).map(|at| sessions[at.index(n)].0.clone());
                let key = key_of(n, leaf);
                let mut new = new_session(&format!("{n:08x}-id key={key}"));
                new.parent = parent.as_ref().map(|key| key.parse().expect("a key"));
                new.facts.runner = sess_core::session::Runner::Host;
                store.ensure_session(new).await.expect("made");
                sessions.push((key, parent));
            }
            for (n, (own, _)) in sessions.iter().enumerate() {
                let id = format!("{n:08x}-id");
                let caller =
                    if is_sandboxed { stage.world.sandboxed(&id) } else { stage.world.agent(&id) };
                let sees = |target: &str| {
                    oracle((own, target), &sessions, visibility.as_str(), is_sandboxed, &agents)
                };
                let seen: BTreeSet<&str> = sessions.iter().map(|(key, _)| key.as_str()).filter(|key| sees(key)).collect();
                let listed = stage.answer_to(&caller, "sessions_list", json!({"limit": 200})).await;
                let keys: BTreeSet<&str> =
                    listed["sessions"].as_array().expect("rows").iter().filter_map(|row| row["key"].as_str()).collect();
                assert_eq!(keys, seen, "{own} lists");
                assert_eq!(listed["total"], seen.len());
                for (m, (target, _)) in sessions.iter().enumerate() {
                    let names = [
                        (target.clone(), true),
                        (target.replacen("agent:a", "agent:A", 1), true),
                        (format!("{m:08x}-id"), true),
                        (format!("  {m:08x}-id "), true),
                        (format!("{m:08x}"), false),
                    ];
                    for (which, (name, is_whole)) in names.into_iter().enumerate() {
                        let ask = json!({"sessionKey": name});
                        let read = stage.answer_to(&caller, "sessions_history", ask).await;
                        // What is sent takes a disk's time, so each name is sent to in turn.
                        if sees(target) && own != target && which != (n + m) % 5 {
                            assert_eq!(read["sessionKey"], target.as_str(), "{own} reads {name}: {read}");
                            continue;
                        }
                        let ask = json!({"sessionKey": name, "message": "hi", "timeoutSeconds": 0});
                        let sent = stage.answer_to(&caller, "sessions_send", ask).await;
                        match (sees(target), is_whole) {
                            (true, _) => {
                                assert_eq!(read["sessionKey"], target.as_str(), "{own} reads {name}: {read}");
                                if own == target {
                                    assert_eq!(sent, error("sessions_send cannot target the calling session"));
                                } else {
                                    assert_eq!(sent["sessionKey"], target.as_str(), "{own} sends to {name}: {sent}");
                                }
                            }
                            (false, true) => {
                                assert_eq!(read["status"], "forbidden", "{own} reads {name}: {read}");
                                assert_eq!(sent["status"], "forbidden", "{own} sends to {name}: {sent}");
                                // The same as for a key of the same agent that leads nowhere.
                                let nobody = match agent_of(target) {
                                    Some(agent) => format!("agent:{agent}:chat:none"),
                                    None => "cron:none".to_owned(),
                                };
                                assert!(nobody.parse::<SessionKey>().is_ok());
                                let none = json!({"sessionKey": nobody});
                                assert_eq!(stage.answer_to(&caller, "sessions_history", none).await, read);
                            }
                            (false, false) => {
                                assert_eq!(read, not_found(&name));
                                assert_eq!(sent, not_found(&name));
                            }
                        }
                    }
                }
                let current = stage.answer_to(&caller, "sessions_history", json!({"sessionKey": "current"})).await;
                assert_eq!(current["sessionKey"], own.as_str());
                // Nobody's main session exists here, and only where it would be in reach that is said.
                let main = stage.answer_to(&caller, "sessions_history", json!({"sessionKey": "main"})).await;
                let agent = agent_of(own).unwrap_or("main");
                let would_see = sees(&format!("agent:{agent}:main"));
                assert_eq!(main == not_found("main"), would_see, "{own} asks for main: {main}");
            }
        });
    }
}
