//! Other agents' sessions among our own: one list, one way to read, one way to search.

use std::fs;

use serde_json::Value;
use sess_app::{
    ListRows, ListSessions, Listing, Others, ReadSession, Redaction, Scope, SearchMessages, Signals,
    Transcript, WritePlan,
};
use sess_core::{
    Source,
    policy::{ContextVisibility, Verb},
};
use sess_readers::Homes;
use tempfile::TempDir;

use crate::{
    samples::{copy_all, sample},
    world::World,
};

pub(crate) const CLAUDE: &str = "5b0c1f62-6c0e-4a8e-9d53-2f1f0f6a1c01";
/// The agents of which there are samples.
pub(crate) const ALL: [&str; 11] = [
    "amp",
    "claude-code",
    "codex",
    "crush",
    "cursor",
    "docker-agent",
    "gemini-cli",
    "goose",
    "openclaw",
    "opencode",
    "zed",
];

/// A world on a machine that other agents were used on.
pub(crate) struct Machine {
    pub(crate) home: TempDir,
    pub(crate) world: World,
}

impl Machine {
    pub(crate) fn of(agents: &[&str]) -> Self {
        Self::with(agents, |_| {})
    }

    pub(crate) fn with(agents: &[&str], change: impl FnOnce(&mut sess_app::Settings)) -> Self {
        let home = tempfile::tempdir().expect("a directory");
        for agent in agents {
            copy_all(&sample(agent), home.path()).expect("copied");
        }
        let homes = Homes::new(home.path().to_owned(), [], Some(home.path().join("acme-api")));
        let world = World::with(|settings| {
            settings.homes = Some(homes);
            change(settings);
        });
        Self { home, world }
    }

    async fn list(&self, ask: &ListSessions) -> Listing {
        self.world.app.list_sessions(&self.world.owner(), ask).await.expect("a list")
    }

    async fn ids(&self) -> Vec<String> {
        self.list(&ListSessions::default()).await.sessions.into_iter().map(|session| session.id).collect()
    }

    async fn read(&self, reference: &str) -> Result<Transcript, String> {
        let ask = ReadSession { session_id: reference.to_owned(), ..ReadSession::default() };
        let read = self.world.app.read_session(&self.world.owner(), &ask).await;
        read.map_err(|error| error.to_string())
    }

    pub(crate) async fn found(&self, ask: SearchMessages) -> Vec<String> {
        let found = self.world.app.search(&self.world.owner(), &ask, |_, _| {}).await.expect("found");
        found.hits.into_iter().map(|hit| format!("{} {}: {}", hit.session.id, hit.seq, hit.snippet)).collect()
    }
}

fn words(text: &str) -> SearchMessages {
    SearchMessages { text: text.to_owned(), ..SearchMessages::default() }
}

#[tokio::test]
async fn sessions_of_all_agents_and_our_own_are_one_list_by_activity() {
    let machine = Machine::of(&ALL);
    machine.world.said("ours-1", "hello", "2026-11-11T12:00:10Z").await;
    let listing = machine.list(&ListSessions { limit: Some(100), ..ListSessions::default() }).await;
    let sources: std::collections::BTreeSet<&str> =
        listing.sessions.iter().map(|session| session.source.as_str()).collect();
    let expected = [
        "amp",
        "claude",
        "codex",
        "crush",
        "cursor",
        "docker-agent",
        "gemini",
        "goose",
        "native",
        "openclaw",
        "opencode",
        "zed",
    ];
    assert_eq!(sources.into_iter().collect::<Vec<_>>(), expected);
    assert_eq!(listing.total, listing.sessions.len() as u64);
    let times: Vec<&str> = listing.sessions.iter().map(|session| session.updated_at.as_str()).collect();
    assert!(times.is_sorted_by(|a, b| a >= b), "{times:?}");
    for session in &listing.sessions {
        assert_eq!(session.id.split_once(':').map_or("native", |(source, _)| source), session.source);
    }
    // Sub-agents are no sessions of their own.
    assert!(!listing.sessions.iter().any(|session| session.id.contains("agent-")), "{listing:?}");
    let one = machine.list(&ListSessions { source: Some(Source::Codex), ..ListSessions::default() }).await;
    assert!(one.sessions.iter().all(|session| session.source == "codex") && one.total == 2, "{one:?}");
    let named =
        machine.list(&ListSessions { query: Some("JWKS".to_owned()), ..ListSessions::default() }).await;
    assert_eq!(named.sessions.len(), 1);
}

#[tokio::test]
async fn what_every_list_names_can_be_read_by_that_name_by_its_place_and_by_a_prefix() {
    let machine = Machine::of(&ALL);
    let ids = machine.ids().await;
    for (place, id) in ids.iter().enumerate() {
        let by_id = machine.read(id).await.expect(id);
        assert_eq!(machine.read(&format!("-{}", place + 1)).await.expect(id), by_id);
        assert!(by_id.transcript.starts_with(&format!("# Session {id} ")), "{}", by_id.transcript);
        assert!(by_id.shown > 0 && by_id.transcript.contains("\n## "), "{}", by_id.transcript);
    }
    let native = machine.read(CLAUDE).await.expect("by its agent's id");
    assert_eq!(machine.read("5b0c1f62").await.expect("by a prefix"), native);
    assert_eq!(machine.read("claude:5b0c1f62").await.expect("by a prefix"), native);
    let have = ids.len();
    assert_eq!(
        machine.read("-99").await,
        Err(format!("cannot resolve session \"-99\": session offset 99 out of range (have {have} sessions)"))
    );
    assert_eq!(machine.read("codex:5b0c1f62").await, Err("session \"codex:5b0c1f62\" not found".to_owned()));
}

#[tokio::test]
async fn a_sub_agent_stands_where_it_ran_and_secrets_are_masked() {
    let machine = Machine::of(&["claude-code"]);
    let read = machine.read(CLAUDE).await.expect("read");
    let at = |part: &str| read.transcript.find(part).unwrap_or_else(|| panic!("{part}: {}", read.transcript));
    let order = [
        "Why does refresh token",
        "## sub-session agent-a7c1d2e3f4051627 (Explore)",
        "List every caller of rotate_key()\n",
        "## end of sub-session",
        "[context compacted here]",
        "Write the fix",
    ];
    assert!(order.map(at).is_sorted(), "{}", read.transcript);
    assert!(!read.transcript.contains("sk-test-FAKE0000000000000000"));
    assert_eq!((read.redacted, read.num_messages, read.damaged), (1, 8, 0));
    let ask = ReadSession {
        session_id: CLAUDE.to_owned(),
        around: Some("00000000-0000-4000-8000-000000000012".to_owned()),
        max_bytes: Some(1_000),
        redaction: Redaction::Masked,
        ..ReadSession::default()
    };
    let around = machine.world.app.read_session(&machine.world.owner(), &ask).await.expect("read");
    assert!(around.transcript.contains("Write the fix") && around.omitted > 0, "{}", around.transcript);
}

#[tokio::test]
async fn a_sub_agent_that_no_call_names_stands_where_its_time_says() {
    let machine = Machine::of(&["gemini-cli"]);
    let child = ".gemini/tmp/acme-api/chats/7f3c2a10-55aa-4d1e-b8a2-90c1d2e3f401/explorer-2c9d.jsonl";
    let child = machine.home.path().join(child);
    let written = fs::read_to_string(&child).expect("read");
    let is_in_order = async |parts: [&str; 5], around: Option<&str>| {
        let session_id = "gemini:7f3c2a10".to_owned();
        let ask = ReadSession { session_id, around: around.map(str::to_owned), ..ReadSession::default() };
        let read = machine.world.app.read_session(&machine.world.owner(), &ask).await.expect("read");
        let at =
            |part: &str| read.transcript.find(part).unwrap_or_else(|| panic!("{part}: {}", read.transcript));
        assert!(parts.map(at).is_sorted(), "{}", read.transcript);
        assert_eq!(read.transcript.matches("## sub-session").count(), 1, "{}", read.transcript);
    };
    let (before, after) = ("Port 8080 (config.toml).", "Make it configurable");
    let [opened, said, closed] =
        ["## sub-session explorer-2c9d (explorer)", "main.rs:14", "## end of sub-session"];
    for around in [None, Some("g1"), Some("g5")] {
        is_in_order([before, opened, said, closed, after], around).await;
    }
    // Its first message tells when it began, where it does not say that itself.
    fs::write(&child, written.replace("startTime", "elsewhen")).expect("written");
    is_in_order([before, opened, said, closed, after], None).await;
    // Nothing was said after it began, or nobody knows when it did.
    fs::write(&child, written.replace("T09:16:", "T09:59:")).expect("written");
    is_in_order([before, after, opened, said, closed], None).await;
    fs::write(&child, written.replace("startTime", "elsewhen").replace("timestamp", "at")).expect("written");
    is_in_order([before, after, opened, said, closed], None).await;
}

#[tokio::test]
async fn a_sub_agent_that_a_call_names_stands_there_whenever_it_began() {
    let machine = Machine::of(&[]);
    let id = "00000000-0000-4000-8000-00000000000a";
    let dir = machine.home.path().join(".claude/projects/-first");
    fs::create_dir_all(dir.join(id).join("subagents")).expect("made");
    let record = |minute: u32, kind: &str, content: &Value, agent: Option<&str>| {
        let mut record = serde_json::json!({
            "type": kind, "uuid": format!("u{minute}"), "sessionId": id, "cwd": "/first",
            "parentUuid": minute.checked_sub(1).map(|before| format!("u{before}")),
            "timestamp": format!("2026-11-10T12:{minute:02}:00Z"), "message": {"role": kind, "content": content},
        });
        if let Some(agent) = agent {
            record["toolUseResult"] = serde_json::json!({"agentId": agent});
        }
        format!("{record}\n")
    };
    let result = |call: &str, text: &str| serde_json::json!([{"type": "tool_result", "tool_use_id": call, "content": text}]);
    let lines = [
        record(0, "user", &"Hello".into(), None),
        record(
            1,
            "assistant",
            &serde_json::json!([{"type": "tool_use", "id": "c", "name": "Task", "input": {}}]),
            None,
        ),
        // `linked` is at work.
        record(2, "user", &result("b", "another result"), None),
        record(3, "user", &result("c", "what it found"), Some("linked")),
        record(4, "assistant", &"Done".into(), None),
    ];
    fs::write(dir.join(format!("{id}.jsonl")), lines.concat()).expect("written");
    for (name, second) in [("linked", "12:01:30"), ("free", "12:03:30")] {
        let line = record(0, "user", &format!("task of {name}").into(), None).replace("12:00:00", second);
        fs::write(dir.join(id).join("subagents").join(format!("agent-{name}.jsonl")), line).expect("written");
    }
    let read = machine.read(id).await.expect("read");
    let at = |part: &str| read.transcript.find(part).unwrap_or_else(|| panic!("{part}: {}", read.transcript));
    let order = ["Hello", "another result", "task of linked", "what it found", "task of free", "Done"];
    assert!(order.map(at).is_sorted(), "{}", read.transcript);
}

#[tokio::test]
async fn the_calling_session_is_recognised_in_its_agents_files() {
    let machine = Machine::of(&["claude-code", "codex"]);
    let signals =
        Signals { env: vec![("CLAUDE_CODE_SESSION_ID".to_owned(), CLAUDE.to_owned())], ..Signals::default() };
    let app = &machine.world.app;
    let caller = app.caller(&signals);
    let listing = app.list_sessions(&caller, &ListSessions::default()).await.expect("a list");
    assert!(listing.sessions.iter().all(|session| session.source == "codex"), "{listing:?}");
    assert_eq!(listing.total, 2);
    for own in [CLAUDE, "claude:5b0c1f62-6c0e-4a8e-9d53-2f1f0f6a1c01", "5b0c1f62"] {
        let ask = ReadSession { session_id: own.to_owned(), ..ReadSession::default() };
        let refused = app.read_session(&caller, &ask).await.expect_err(own);
        assert_eq!(refused.to_string(), "cannot read the current session; reference a different one");
    }
    let found = app.search(&caller, &words("rotate_key"), |_, _| {}).await.expect("searched");
    assert_eq!(found.hits, []);
    let before = app.read_compacted(&caller, None).await.expect("compacted");
    assert!(before.transcript.contains("Cause: the cache keeps the old kid"), "{}", before.transcript);
    assert!(!before.transcript.contains("Write the fix"), "{}", before.transcript);
}

/// What a caller is not shown: it is neither listed nor read.
async fn is_hidden(machine: &Machine, caller: &sess_app::Caller, id: &str) -> bool {
    let listing = machine.world.app.list_sessions(caller, &ListSessions::default()).await.expect("a list");
    let is_listed = listing.sessions.iter().any(|session| session.id == id);
    let ask = ReadSession { session_id: id.to_owned(), ..ReadSession::default() };
    let read = machine.world.app.read_session(caller, &ask).await.map_err(|error| error.to_string());
    let is_refused = read.is_err_and(|error| error.contains("cannot read the current session"));
    assert_eq!(is_listed, !is_refused, "{id}");
    is_refused
}

#[tokio::test]
async fn a_sub_agent_is_not_shown_the_session_above_it() {
    const PARENT: &str = "codex:019a71aa-0c11-7d20-8a00-aabbccddee01";
    let machine = Machine::of(&["codex"]);
    let app = &machine.world.app;
    let thread = |id: &str, root: Option<&str>| {
        app.caller(&Signals {
            thread_id: Some(id.to_owned()),
            root_id: root.map(str::to_owned),
            ..Signals::default()
        })
    };
    // Its file says whose sub-agent it is; before there is one, the call does.
    let child = thread("019a71ab-77f0-7e51-9b00-0f0e0d0c0b0a", None);
    let unwritten = thread("019a71ab-0000-7e51-9b00-000000000000", Some(&PARENT[6..]));
    for caller in [&child, &unwritten] {
        assert!(is_hidden(&machine, caller, PARENT).await);
        assert!(!is_hidden(&machine, caller, "codex:019a6d10-4b2e-7c31-9f00-1c2d3e4f5061").await);
    }
    app.resolve(&machine.world.owner(), PARENT).await.expect("stored");
    assert!(is_hidden(&machine, &child, PARENT).await, "nor what is stored of it");
    assert!(!is_hidden(&machine, &thread("another", None), PARENT).await);
}

#[tokio::test]
async fn of_an_agent_that_does_not_say_who_it_is_the_session_at_work_there_is_left_out() {
    let machine =
        Machine::with(&["gemini-cli"], |settings| settings.cwd = Some("/home/dev/acme-api".to_owned()));
    let session = |name: &str, id: &str, at: &str| {
        let lines = format!(
            r#"{{"sessionId":"{id}","startTime":"{at}","lastUpdated":"{at}","kind":"main"}}
{{"id":"m1","timestamp":"{at}","type":"user","content":[{{"text":"hello"}}]}}
"#
        );
        let chats = machine.home.path().join(".gemini/tmp/acme-api/chats");
        fs::write(chats.join(format!("session-{name}.jsonl")), lines).expect("written");
    };
    let (now, older, long_ago) =
        ("aaaa1111-0000", "bbbb2222-0000", "gemini:7f3c2a10-55aa-4d1e-b8a2-90c1d2e3f401");
    session("2026-11-15T11-50-aaaa1111", now, "2026-11-15T11:58:00.000Z");
    session("2026-11-15T11-40-bbbb2222", older, "2026-11-15T11:56:00.000Z");
    let (now, older) = (format!("gemini:{now}"), format!("gemini:{older}"));
    let app = &machine.world.app;
    let client =
        |name: &str| app.caller(&Signals { client_name: Some(name.to_owned()), ..Signals::default() });
    let gemini = client("gemini-cli-mcp-client-sess");
    assert!(is_hidden(&machine, &gemini, &now).await);
    assert!(!is_hidden(&machine, &gemini, &older).await && !is_hidden(&machine, &gemini, long_ago).await);
    assert!(!is_hidden(&machine, &client("some-editor"), &now).await);
    let marked = Signals { env: vec![("GEMINI_CLI".to_owned(), "1".to_owned())], ..Signals::default() };
    assert!(is_hidden(&machine, &app.cli_caller(&marked), &now).await);
    // What it is not shown as its own is what it reads as its own.
    let whole = app.read_compacted(&gemini, None).await.expect_err("whole").to_string();
    assert!(whole.starts_with("this session was not compacted"), "{whole}");
    let chats = machine.home.path().join(".gemini/tmp/acme-api/chats");
    let log = chats.join("session-2026-11-15T11-50-aaaa1111.jsonl");
    let summary = r#"{"$set":{"messages":[{"id":"m2","timestamp":"2026-11-15T11:58:30.000Z","type":"user","content":"so far"}]}}"#;
    let text = fs::read_to_string(&log).expect("a log") + summary + "\n";
    fs::write(&log, text).expect("compacted");
    let before = app.read_compacted(&gemini, None).await.expect("compacted");
    assert!(before.session_id == now && before.transcript.contains("hello"), "{before:?}");
    let unknown = app.read_compacted(&client("some-editor"), None).await.expect_err("whose?").to_string();
    assert!(unknown.starts_with("which session calls is not known"), "{unknown}");
    let inherited = Signals { env: vec![("SESS_SESSION".to_owned(), "s1".to_owned())], ..Signals::default() };
    let ours = app.read_compacted(&app.caller(&inherited), None).await.expect_err("not yet").to_string();
    assert!(ours.starts_with("nothing of this session (native:s1) is kept"), "{ours}");
    let thread = Signals { thread_id: Some("t1".to_owned()), ..Signals::default() };
    let unkept = app.read_compacted(&app.caller(&thread), None).await.expect_err("no file").to_string();
    assert!(unkept.starts_with("nothing of this session (codex:t1) is kept"), "{unkept}");
}

#[tokio::test]
async fn the_session_at_work_is_known_by_the_name_of_its_project_where_its_agent_keeps_no_directory() {
    let machine = Machine::with(&[], |settings| settings.cwd = Some("/home/dev/.acme api".to_owned()));
    for (project, id) in [("home-dev-acme-api", "aaaa1111"), ("home-dev-other", "bbbb2222")] {
        let dir = machine.home.path().join(format!(".cursor/projects/{project}/agent-transcripts/{id}"));
        fs::create_dir_all(&dir).expect("made");
        let path = dir.join(format!("{id}.jsonl"));
        fs::write(&path, r#"{"role":"user","message":{"content":"hello"}}"#).expect("written");
        let at = sess_core::Timestamp::parse_rfc3339("2026-11-15T11:58:00Z").expect("a time").as_millis();
        let at = std::time::UNIX_EPOCH + std::time::Duration::from_millis(at.unsigned_abs());
        fs::File::options().write(true).open(&path).expect("opened").set_modified(at).expect("touched");
    }
    let client = Signals { client_name: Some("cursor-vscode".to_owned()), ..Signals::default() };
    let cursor = machine.world.app.caller(&client);
    assert!(is_hidden(&machine, &cursor, "cursor:aaaa1111").await);
    assert!(!is_hidden(&machine, &cursor, "cursor:bbbb2222").await);
}

#[tokio::test]
async fn one_door_takes_the_beginning_of_an_id_as_the_other_does() {
    let machine = Machine::of(&ALL);
    let (app, owner) = (&machine.world.app, machine.world.owner());
    for given in [CLAUDE, "5b0c1f62", "claude:5b0c1f62", "claude:5", &format!("claude:{CLAUDE}")] {
        app.in_sight(&owner, given, Verb::History).await.expect(given);
        let ask = sess_app::ReadHistory { session: given.to_owned(), ..Default::default() };
        let history = app.history(&owner, &ask).await.expect(given);
        assert!(history.messages.len() > 3 && history.session_id == CLAUDE, "{history:?}");
    }
    app.in_sight(&owner, "5b0c1f6", Verb::History).await.expect_err("too short");
    let found = async |given: &str| {
        app.resolve(&owner, given).await.map(|row| row.id.to_string()).map_err(|error| error.to_string())
    };
    assert_eq!(found("codex:019a6").await.as_deref(), Ok("019a6d10-4b2e-7c31-9f00-1c2d3e4f5061"));
    assert_eq!(found("codex:0").await, Err("session \"codex:0\" not found".to_owned()));
    // Its sub-agent's begins with the same, and is not listed.
    assert_eq!(found("codex:019a7").await.as_deref(), Ok("019a71aa-0c11-7d20-8a00-aabbccddee01"));
    let several = "session \"codex:019a\" is ambiguous (2 match); give more of the id";
    assert_eq!(found("codex:019a").await, Err(several.to_owned()));
    let ambiguous = Machine::of(&["codex"]);
    let app = &ambiguous.world.app;
    let sessions = ambiguous.home.path().join(".codex/sessions/2026/11/10");
    let of = "rollout-2026-11-10T12-00-00-019a6d10-4b2e-7c31-9f00-1c2d3e4f5061.jsonl";
    let text = fs::read_to_string(sessions.join(of)).expect("a sample");
    fs::write(sessions.join(of.replace("5061", "5062")), text.replace("3e4f5061", "3e4f5062"))
        .expect("written");
    let refused = app.in_sight(&ambiguous.world.owner(), "019a6d10", Verb::History).await;
    assert!(refused.expect_err("two").to_string().contains("is ambiguous (2 match)"));
}

#[tokio::test]
async fn the_history_of_another_agents_session_is_masked_unless_the_owner_asks() {
    let machine = Machine::of(&[]);
    let secret = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";
    claude_said(&machine, &[format!(r#"{{"role":"user","content":"use {secret}"}}"#)], "");
    let (app, owner) = (&machine.world.app, machine.world.owner());
    for (redaction, is_shown) in [(Redaction::Masked, false), (Redaction::None, true)] {
        let ask = sess_app::ReadHistory { session: "claude:c1".to_owned(), redaction, ..Default::default() };
        let history = app.history(&owner, &ask).await.expect("a history");
        assert_eq!(history.messages[0].to_string().contains(secret), is_shown);
        assert_eq!(history.content_redacted, !is_shown);
    }
}

/// Writes a session of Claude Code, with `more` behind it.
fn claude_said(machine: &Machine, messages: &[String], more: &str) {
    let dir = machine.home.path().join(".claude/projects/-x");
    fs::create_dir_all(&dir).expect("made");
    let mut text = String::new();
    for (place, message) in messages.iter().enumerate() {
        let kind = if message.contains("assistant") { "assistant" } else { "user" };
        let parent = if place == 0 { "null".to_owned() } else { format!("\"u{}\"", place - 1) };
        text += &format!(
            r#"{{"type":"{kind}","uuid":"u{place}","parentUuid":{parent},"sessionId":"c1","timestamp":"2026-11-12T00:00:0{place}Z","cwd":"/x","message":{message}}}"#
        );
        text.push('\n');
    }
    fs::write(dir.join("c1.jsonl"), text + more).expect("written");
}

#[tokio::test]
async fn a_handoff_has_the_plan_wherever_its_agent_made_it_and_says_what_is_missing() {
    let machine = Machine::of(&["docker-agent"]);
    let bundle = async |id: &str| {
        let handed = machine.world.app.handoff(&machine.world.owner(), id, Redaction::Masked).await;
        handed.expect(id).bundle
    };
    let kept = bundle("docker-agent:3a1f9c52-8f1e-4c0a-9b1a-6f2d5b7c8e90").await;
    assert!(kept.contains("## Plan\n\n# Plan: health endpoint") && !kept.contains("not readable"), "{kept}");
    let call = |name: &str, input: &str| {
        format!(
            r#"{{"role":"assistant","content":[{{"type":"tool_use","id":"t","name":"{name}","input":{input}}}]}}"#
        )
    };
    let asked = r#"{"role":"user","content":"go"}"#.to_owned();
    claude_said(
        &machine,
        &[asked.clone(), call("ExitPlanMode", r#"{"plan":"first look, then leap"}"#)],
        "{torn\n",
    );
    let made = bundle("claude:c1").await;
    assert!(made.contains("## Plan\n\nfirst look, then leap"), "{made}");
    assert!(made.contains("- not readable, and left out: 1 message"), "{made}");
    let steps = r#"{"plan":[{"step":"look","status":"completed"},{"step":"leap","status":"pending"}]}"#;
    claude_said(&machine, &[asked.clone(), call("update_plan", steps)], "");
    assert!(bundle("claude:c1").await.contains("## Plan\n\n- [x] look\n- [ ] leap"));
    let said = r#"{"role":"assistant","content":[{"type":"text","text":"<proposed_plan>\nleap\n</proposed_plan>"}]}"#;
    claude_said(&machine, &[asked, said.to_owned()], "");
    assert!(bundle("claude:c1").await.contains("## Plan\n\nleap\n"));
}

#[tokio::test]
async fn a_handoff_has_the_plan_that_codex_marks_and_the_last_one_that_gemini_keeps() {
    let machine = Machine::of(&["codex", "gemini-cli"]);
    let bundle = async |id: &str| {
        let handed = machine.world.app.handoff(&machine.world.owner(), id, Redaction::Masked).await;
        handed.expect(id).bundle
    };
    let codex = bundle("codex:019a71aa-0c11-7d20-8a00-aabbccddee01").await;
    assert!(codex.contains("## Plan\n\n1. bump axum\n2. fix extractors"), "{codex}");
    let gemini = "7f3c2a10-55aa-4d1e-b8a2-90c1d2e3f401";
    assert!(!bundle(&format!("gemini:{gemini}")).await.contains("## Plan"));
    let plans = machine.home.path().join(".gemini/tmp/acme-api").join(gemini).join("plans");
    fs::create_dir_all(&plans).expect("made");
    let write = |name: &str, text: &str, seconds: u64| {
        fs::write(plans.join(name), text).expect("written");
        let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        let file = fs::File::options().write(true).open(plans.join(name)).expect("opened");
        file.set_modified(at).expect("touched");
    };
    write("b.md", "an older plan", 1_000);
    write("a.md", "look, then leap", 2_000);
    write("notes.txt", "no plan", 3_000);
    std::os::unix::fs::symlink("/etc/hostname", plans.join("z.md")).expect("linked");
    let kept = bundle(&format!("gemini:{gemini}")).await;
    assert!(kept.contains("## Plan\n\nlook, then leap\n"), "{kept}");
}

#[tokio::test]
async fn what_is_stored_about_a_session_and_its_file_are_one_row() {
    let machine = Machine::of(&["claude-code", "codex"]);
    let (app, owner) = (&machine.world.app, machine.world.owner());
    let session = app.resolve(&owner, CLAUDE).await.expect("a row");
    assert_eq!(session.source, Source::Claude);
    app.rename(&owner, &session, "keys").await.expect("renamed");
    app.star(&owner, &session, true).await.expect("starred");
    let listing = machine.list(&ListSessions::default()).await;
    let rows: Vec<_> = listing.sessions.iter().filter(|row| row.source == "claude").collect();
    assert_eq!(rows.len(), 1, "{listing:?}");
    assert_eq!((rows[0].title.as_str(), rows[0].starred, rows[0].num_messages), ("keys", true, 8));
    assert_eq!(listing.total, 3);
    // It is found by the name that it is listed under, and not by the one that it had.
    for (query, found) in [("key", vec![format!("claude:{CLAUDE}")]), ("jwks", vec![])] {
        let listing =
            machine.list(&ListSessions { query: Some(query.to_owned()), ..ListSessions::default() }).await;
        let ids: Vec<String> = listing.sessions.iter().map(|row| row.id.clone()).collect();
        assert_eq!((listing.total, ids), (found.len() as u64, found), "{query}");
    }
    for reference in [CLAUDE, "claude:5b0c1f62"] {
        let read = machine.read(reference).await.expect("read");
        assert!(read.transcript.contains("Write the fix") && read.title == "keys", "{read:?}");
    }
    let found = app.search(&owner, &words("jwks"), |_, _| {}).await.expect("found");
    assert!(found.hits.iter().any(|hit| hit.session.title == "keys"), "{found:?}");
    app.archive(&owner, &session, true).await.expect("archived");
    let listing = machine.list(&ListSessions::default()).await;
    assert_eq!((listing.total, listing.sessions.len()), (2, 2), "{listing:?}");
    let all = machine.list(&ListSessions { include_archived: true, ..ListSessions::default() }).await;
    assert!(all.sessions.iter().any(|row| row.source == "claude"));
}

#[tokio::test]
async fn what_was_said_about_a_session_is_no_session_once_its_original_is_gone() {
    let machine = Machine::of(&["claude-code", "codex"]);
    let (app, owner) = (&machine.world.app, machine.world.owner());
    let session = app.resolve(&owner, CLAUDE).await.expect("a row");
    app.star(&owner, &session, true).await.expect("starred");
    let projects = machine.home.path().join(".claude/projects");
    let elsewhere = machine.home.path().join("elsewhere");
    fs::rename(&projects, &elsewhere).expect("moved away");
    let rows = async || {
        let ask = ListRows { others: Others::Included, ..ListRows::default() };
        let rows = app.session_rows(&owner, &ask).await.expect("rows");
        (rows.total, rows.sessions.iter().any(|row| row.session_id == CLAUDE))
    };
    let listing = machine.list(&ListSessions::default()).await;
    assert!(listing.total == 2 && listing.sessions.iter().all(|row| row.source == "codex"), "{listing:?}");
    assert_eq!(rows().await, (2, false));
    for reference in [CLAUDE.to_owned(), format!("claude:{CLAUDE}")] {
        assert_eq!(machine.read(&reference).await, Err(format!("session \"{reference}\" not found")));
        let handed = app.handoff(&owner, &reference, Redaction::Masked).await.expect_err("nothing is there");
        assert_eq!(handed.to_string(), format!("session \"{reference}\" not found"));
    }
    // It comes back with its original.
    fs::rename(&elsewhere, &projects).expect("moved back");
    assert_eq!(rows().await, (3, true));
    let listing = machine.list(&ListSessions::default()).await;
    assert!(listing.sessions.iter().any(|row| row.starred && row.source == "claude"), "{listing:?}");
    // What it has of its own stays without the original.
    let caller = app.caller(&Signals { explicit: Some(format!("claude:{CLAUDE}")), ..Signals::default() });
    app.write_plan(&caller, WritePlan { content: "# Rotate".to_owned(), ..WritePlan::default() })
        .await
        .expect("written");
    fs::rename(&projects, &elsewhere).expect("moved away");
    assert_eq!(rows().await, (3, true));
    assert_eq!(machine.list(&ListSessions::default()).await.total, 3);
}

#[tokio::test]
async fn the_owner_takes_a_session_out_of_its_agents_archive() {
    let machine = Machine::of(&["codex"]);
    let (app, owner) = (&machine.world.app, machine.world.owner());
    let is_listed = async || {
        let listing = machine.list(&ListSessions::default()).await;
        listing.sessions.iter().any(|row| row.id.starts_with("codex:01999000"))
    };
    assert!(!is_listed().await);
    let session = app.resolve(&owner, "codex:01999000").await.expect("a row");
    app.star(&owner, &session, true).await.expect("starred");
    assert!(!is_listed().await, "a star says nothing about the archive");
    app.archive(&owner, &session, false).await.expect("unarchived");
    assert!(is_listed().await);
    app.archive(&owner, &session, true).await.expect("archived");
    assert!(!is_listed().await);
}

#[tokio::test]
async fn a_handoff_names_the_command_of_who_has_the_session_and_its_task_as_the_goal() {
    let machine = Machine::of(&["claude-code", "codex", "opencode"]);
    let app = &machine.world.app;
    let handed = async |id: &str| app.handoff(&machine.world.owner(), id, Redaction::Masked).await.expect(id);
    let whole = handed(CLAUDE).await.resume.expect("a command");
    assert_eq!(whole, ["claude", "--resume", CLAUDE]);
    let below = handed("claude:agent-a7c1").await;
    assert_eq!(below.resume, Some(whole), "a sub-agent goes on in the session above it");
    let asked = handed("codex:019a71ab").await;
    assert!(asked.bundle.contains("\n## Goal\n\nList breaking changes of axum 0.9\n"), "{}", asked.bundle);
    assert_eq!(
        asked.resume.map(|words| words.join(" ")).as_deref(),
        Some("codex resume 019a71aa-0c11-7d20-8a00-aabbccddee01")
    );
    let titled = handed("opencode:ses_17cdba9cfffeChildAgentXYZ01").await.bundle;
    assert!(titled.contains("\n## Goal\n\nFind limiter call sites"), "{titled}");
}

#[tokio::test]
async fn a_sub_agent_of_crush_goes_by_the_id_that_crush_gave_it() {
    let machine = Machine::of(&["crush"]);
    let ours = machine.read("crush:m-2--call_9").await.expect("read");
    assert_eq!(machine.read("crush:m-2$$call_9").await, Ok(ours));
    let (app, owner) = (&machine.world.app, machine.world.owner());
    app.in_sight(&owner, "crush:m-2$$call_9", Verb::History).await.expect("seen at the doors");
}

#[tokio::test]
async fn a_star_leaves_the_name_to_the_agent_whose_session_it_is() {
    let machine = Machine::of(&["codex"]);
    let (app, owner) = (&machine.world.app, machine.world.owner());
    claude_said(&machine, &[r#"{"role":"user","content":"first words"}"#.to_owned()], "");
    let session = app.resolve(&owner, "claude:c1").await.expect("a row");
    let starred = app.star(&owner, &session, true).await.expect("starred");
    assert_eq!((starred.id.as_str(), starred.title.as_str()), ("claude:c1", "first words"));
    let titled = "{\"type\":\"custom-title\",\"sessionId\":\"c1\",\"customTitle\":\"named there\"}\n";
    claude_said(&machine, &[r#"{"role":"user","content":"first words"}"#.to_owned()], titled);
    let title = async || {
        let listing = machine.list(&ListSessions::default()).await;
        listing.sessions.into_iter().find(|row| row.starred).expect("it is starred").title
    };
    assert_eq!(title().await, "named there");
    app.rename(&owner, &session, "named here").await.expect("renamed");
    assert_eq!(title().await, "named here");
    // Without a name of the owner's it goes by the agent's again.
    let unnamed = app.rename(&owner, &session, "").await.expect("renamed");
    assert_eq!((unnamed.title.as_str(), title().await.as_str()), ("named there", "named there"));
}

#[tokio::test]
async fn mail_does_not_take_the_place_of_the_session_it_was_sent_to() {
    let machine = Machine::of(&["claude-code"]);
    let (app, owner) = (&machine.world.app, machine.world.owner());
    let session = app.resolve(&owner, CLAUDE).await.expect("a row");
    let mail = r#"{"role":"user","content":[{"type":"text","text":"mail for you"}]}"#;
    machine.world.messages(&session, &[mail]).await;
    let by_prefix = machine.read("5b0c1f62").await.expect("read");
    for reference in ["-1", CLAUDE, &format!("claude:{CLAUDE}"), session.key.as_str()] {
        assert_eq!(machine.read(reference).await.expect(reference), by_prefix, "{reference}");
    }
    assert!(by_prefix.transcript.contains("Write the fix"), "{}", by_prefix.transcript);
    let hit = app.search(&owner, &words("mail for you"), |_, _| {}).await.expect("found").hits.remove(0);
    let ask = ReadSession { session_id: hit.session.id, around: Some(hit.message), ..ReadSession::default() };
    let around = app.read_session(&owner, &ask).await.expect("what was found can be read");
    assert!(around.transcript.contains("mail for you"), "{}", around.transcript);
}

#[tokio::test]
async fn an_agent_that_sees_its_own_sees_no_other_agents_sessions() {
    let visibility =
        |settings: &mut sess_app::Settings| settings.context_visibility = ContextVisibility::Agent;
    let machine = Machine::with(&["claude-code", "codex"], visibility);
    let app = &machine.world.app;
    let codex = app.caller(&Signals { explicit: Some("codex:other".to_owned()), ..Signals::default() });
    let listing = app.list_sessions(&codex, &ListSessions::default()).await.expect("a list");
    assert!(listing.sessions.iter().all(|session| session.source == "codex"), "{listing:?}");
    let ask = ReadSession { session_id: CLAUDE.to_owned(), ..ReadSession::default() };
    let hidden = app.read_session(&codex, &ask).await.expect_err("hidden");
    assert_eq!(hidden.to_string(), format!("session \"{CLAUDE}\" not found"));
    let found = app.search(&codex, &words("rotate_key"), |_, _| {}).await.expect("searched");
    assert!(found.hits.iter().all(|hit| hit.session.source == "codex"), "{found:?}");
}

#[tokio::test]
async fn messages_of_all_agents_are_found_by_words_and_by_expressions() {
    let machine = Machine::of(&ALL);
    let session = machine.world.said("ours-1", "the retry of ours", "2026-11-11T12:00:10Z").await;
    let found = machine.found(words("retry")).await;
    assert!(found.iter().any(|hit| hit.starts_with(&format!("{} 1: ", session.id))), "{found:?}");
    assert!(found.iter().any(|hit| hit.starts_with("codex:019a6d10")), "{found:?}");
    let found = machine.found(SearchMessages { is_expression: true, ..words(r"re(try|load) of o\w+") }).await;
    assert_eq!(found, [format!("{} 1: the retry of ours", session.id)]);
    let found = machine.found(SearchMessages { is_expression: true, ..words(r"kid for \d+ h") }).await;
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("keeps the old kid for 24 h"), "{found:?}");
    // What was taken back is not found.
    assert_eq!(machine.found(words("scrap")).await, Vec::<String>::new());
    let only = machine.found(SearchMessages { sources: vec![Source::Native], ..words("retry") }).await;
    assert_eq!(only.len(), 1, "{only:?}");
}

#[tokio::test]
async fn results_that_stand_in_one_record_are_all_found() {
    let machine = Machine::of(&[]);
    let dir = machine.home.path().join(".claude/projects/-p");
    fs::create_dir_all(&dir).expect("made");
    let result = |call: &str, text: &str| serde_json::json!({"type": "tool_result", "tool_use_id": call, "content": text});
    let record = serde_json::json!({
        "type": "user", "uuid": "u1", "parentUuid": null, "timestamp": "2026-11-12T00:00:00Z", "cwd": "/p",
        "message": {"role": "user", "content": [result("t1", "a ripe kumquat"), result("t2", "a green kumquat")]},
    });
    let name = "c0000000-0000-4000-8000-000000000001.jsonl";
    fs::write(dir.join(name), format!("{record}\n")).expect("written");
    assert_eq!(machine.found(words("kumquat")).await.len(), 2);
}

/// Writes a session of Claude Code: a message each, with its id, its time and its words.
fn write_claude(machine: &Machine, id: &str, cwd: &std::path::Path, said: &[(&str, &str, &str)]) {
    let dir = machine.home.path().join(".claude/projects/-p");
    fs::create_dir_all(&dir).expect("made");
    let mut parent = Value::Null;
    let mut text = String::new();
    for (uuid, at, words) in said {
        let record = serde_json::json!({
            "type": "user", "uuid": uuid, "parentUuid": parent, "timestamp": at, "cwd": cwd,
            "message": {"role": "user", "content": words},
        });
        parent = Value::from(*uuid);
        text += &format!("{record}\n");
    }
    fs::write(dir.join(format!("{id}.jsonl")), text).expect("written");
}

#[tokio::test]
async fn an_expression_knows_where_words_begin_in_any_script() {
    let machine = Machine::of(&[]);
    let said = [("u1", "2026-11-12T00:00:00Z", "the way"), ("u2", "2026-11-12T00:00:01Z", "новый ключ")];
    write_claude(&machine, "s1", "/p".as_ref(), &said);
    let found = async |pattern: &str| {
        machine.found(SearchMessages { is_expression: true, ..words(pattern) }).await.len()
    };
    assert_eq!((found(r"\bway").await, found(r"\bay").await), (1, 0));
    assert_eq!((found(r"\bКЛЮЧ\b").await, found(r"\bлюч").await), (1, 0));
}

#[tokio::test]
async fn a_message_that_forks_share_is_of_the_session_that_began_first() {
    let machine = Machine::of(&[]);
    let shared = ("u-shared", "2026-11-12T00:00:00Z", "a ripe kumquat");
    for n in 0..8 {
        let (uuid, at) = (format!("u-{n}"), format!("2026-11-11T00:00:0{}Z", if n == 5 { 0 } else { n + 1 }));
        // Those that went on last are looked at first.
        let last = (format!("v-{n}"), format!("2026-11-13T00:00:0{}Z", 9 - n));
        let said = [(&*uuid, &*at, "hello"), shared, (&*last.0, &*last.1, "on")];
        write_claude(&machine, &format!("s{n}"), "/p".as_ref(), &said);
    }
    for _ in 0..4 {
        assert_eq!(machine.found(words("kumquat")).await, ["claude:s5 2: a ripe kumquat"]);
    }
}

#[tokio::test]
async fn a_message_of_a_clock_that_was_wrong_is_not_found_first() {
    let machine = Machine::of(&[]);
    let wrong = [("u1", "2999-01-01T00:00:00Z", "an old kumquat"), ("u2", "2026-11-10T00:00:00Z", "on")];
    write_claude(&machine, "wrong", "/p".as_ref(), &wrong);
    let path = machine.home.path().join(".claude/projects/-p/wrong.jsonl");
    let changed_at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_794_370_000);
    let file = fs::File::options().write(true).open(path).expect("opened");
    file.set_modified(changed_at).expect("touched");
    write_claude(&machine, "right", "/p".as_ref(), &[("u3", "2026-11-12T00:00:00Z", "a new kumquat")]);
    let found = machine.found(words("kumquat")).await;
    assert_eq!(found, ["claude:right 1: a new kumquat", "claude:wrong 1: an old kumquat"]);
    let first = machine.found(SearchMessages { limit: Some(1), ..words("kumquat") }).await;
    assert_eq!(first, ["claude:right 1: a new kumquat"]);
}

#[tokio::test]
async fn a_repository_inside_of_another_one_is_not_that_one() {
    let machine = Machine::of(&[]);
    let root = machine.home.path().join("repo");
    for dir in [".git", "vendor/lib/.git"] {
        fs::create_dir_all(root.join(dir)).expect("made");
    }
    let said = [("u1", "2026-11-12T00:00:00Z", "hi")];
    for (id, dir) in [("here", "."), ("gone", "gone/deeper"), ("nested", "vendor/lib/src")] {
        write_claude(&machine, id, &root.join(dir), &said);
    }
    let ids = async |repo: &std::path::Path| {
        let here = World::with(|settings| {
            settings.homes = Some(Homes::at(machine.home.path()));
            settings.repo = Some(repo.to_string_lossy().into_owned());
        });
        let ask = ListSessions { scope: Scope::Repo, ..ListSessions::default() };
        let listing = here.app.list_sessions(&here.owner(), &ask).await.expect("a list");
        let mut ids: Vec<String> = listing.sessions.into_iter().map(|session| session.id).collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(ids(&root).await, ["claude:gone", "claude:here"]);
    assert_eq!(ids(&root.join("vendor/lib")).await, ["claude:nested"]);
    // Outside of any it is the directory with all below it.
    assert_eq!(ids(machine.home.path()).await, ["claude:gone", "claude:here", "claude:nested"]);
}

#[tokio::test]
async fn what_an_agent_archived_is_not_listed_and_still_found() {
    let machine = Machine::of(&["codex", "goose", "opencode"]);
    let open = |path: &str| rusqlite::Connection::open(machine.home.path().join(path)).expect("opened");
    open(".local/share/goose/sessions/sessions.db")
        .execute("UPDATE sessions SET archived_at = '2026-11-14 00:00:00'", [])
        .expect("archived");
    open(".local/share/opencode/opencode.db")
        .execute("UPDATE session SET time_archived = 1794480000000", [])
        .expect("archived");
    let archived = machine.home.path().join(".codex/archived_sessions");
    let said = |text: &str| {
        format!(r#"{{"type":"event_msg","payload":{{"type":"user_message","message":"{text}"}}}}"#) + "\n"
    };
    let name = "rollout-2026-09-01T08-00-00-01999009-1111-7222-8333-444455556666.jsonl";
    fs::write(archived.join(name), said("an old kumquat")).expect("written");
    let listed = machine.ids().await;
    let is_in_use =
        |id: &String| id.starts_with("codex:") && !id.contains("01999") || id == "opencode:ses_legacy0001";
    assert!(listed.iter().all(is_in_use), "{listed:?}");
    assert_eq!(machine.found(words("kumquat")).await.len(), 1);
    for source in [Source::Codex, Source::Goose, Source::Opencode] {
        let ask = ListSessions { source: Some(source), include_archived: true, ..ListSessions::default() };
        let listed = machine.list(&ask).await;
        let any = SearchMessages { text: ".".to_owned(), is_expression: true, ..SearchMessages::default() };
        let found = machine.found(SearchMessages { sources: vec![source], limit: Some(100), ..any }).await;
        for session in listed.sessions {
            let id = format!("{} ", session.id);
            assert!(found.iter().any(|hit| hit.starts_with(&id)), "{id}: {found:?}");
        }
    }
}

#[tokio::test]
async fn the_number_of_a_message_is_one_wherever_it_is_told() {
    let machine = Machine::of(&ALL);
    let (app, owner) = (&machine.world.app, machine.world.owner());
    let ask = SearchMessages { is_expression: true, limit: Some(100), ..words("[a-z]") };
    let hits = app.search(&owner, &ask, |_, _| {}).await.expect("found").hits;
    assert!(hits.len() > 20, "{}", hits.len());
    for hit in hits {
        let page = app.transcript_page(&owner, &hit.session.id, None, 1_000, true).await.expect("a page");
        let message = page.messages.iter().find(|message| message.seq == hit.seq).expect("its message");
        let id = serde_json::from_str::<serde_json::Value>(message.json.get()).expect("JSON")["id"].clone();
        assert_eq!(id, hit.message, "{}", hit.session.id);
        let around = async |around: String| {
            let ask = ReadSession {
                session_id: hit.session.id.clone(),
                around: Some(around),
                max_bytes: Some(1_000),
                ..ReadSession::default()
            };
            app.read_session(&owner, &ask).await.expect("read").transcript
        };
        assert_eq!(
            around(hit.seq.to_string()).await,
            around(hit.message.clone()).await,
            "{}",
            hit.session.id
        );
    }
}

#[tokio::test]
async fn a_number_is_a_place_also_where_messages_are_numbered_otherwise() {
    let machine = Machine::of(&[]);
    let mut messages = vec![serde_json::json!({
        "role": "user", "messageId": 0, "content": [{"type": "text", "text": "begin"}], "meta": {"sentAt": 1_794_312_000_000_i64},
    })];
    // Each round is three places and two numbers.
    for round in 0..60 {
        let call = |name: &str| serde_json::json!({"type": "tool_use", "id": format!("{name}{round}"), "name": "look", "input": {}});
        let said =
            serde_json::json!({"type": "text", "text": format!("needle{round} {}", "hay ".repeat(50))});
        let result = |name: &str| {
            let run =
                serde_json::json!({"status": "done", "result": {"output": format!("{name} of {round}")}});
            serde_json::json!({"type": "tool_result", "toolUseID": format!("{name}{round}"), "run": run})
        };
        messages.push(serde_json::json!({
            "role": "assistant", "messageId": round * 2 + 1, "content": [said, call("a"), call("b")],
        }));
        messages.push(serde_json::json!({
            "role": "user", "messageId": round * 2 + 2, "content": [result("a"), result("b")],
        }));
    }
    let thread =
        serde_json::json!({"v": 1, "id": "T-1", "created": 1_794_312_000_000_i64, "messages": messages});
    let dir = machine.home.path().join(".local/share/amp/threads");
    fs::create_dir_all(&dir).expect("made");
    fs::write(dir.join("T-1.json"), thread.to_string()).expect("written");
    let (app, owner) = (&machine.world.app, machine.world.owner());
    for round in [0, 20, 30, 59] {
        let needle = format!("needle{round}");
        let hit = app.search(&owner, &words(&needle), |_, _| {}).await.expect("found").hits.remove(0);
        for around in [hit.message.clone(), hit.seq.to_string()] {
            let ask = ReadSession {
                session_id: "amp:T-1".to_owned(),
                around: Some(around.clone()),
                max_bytes: Some(1_000),
                ..ReadSession::default()
            };
            let read = app.read_session(&owner, &ask).await.expect("read");
            assert!(read.transcript.contains(&format!("{needle} ")), "{around}: {}", read.transcript);
        }
        let page = app.transcript_page(&owner, "amp:T-1", Some(hit.seq + 1), 1, true).await.expect("a page");
        let message: Value = serde_json::from_str(page.messages[0].json.get()).expect("JSON");
        assert_eq!(message["id"], hit.message);
    }
}

#[tokio::test]
async fn what_a_mask_hides_in_another_agents_session_is_not_found() {
    let machine = Machine::of(&["claude-code"]);
    let said = "STAGING_KEY=sk-test-qwertyuiopasdfghjklzxcvbnm123456 is the key";
    claude_said(&machine, &[format!(r#"{{"role":"user","content":"{said}"}}"#)], "");
    let found = async |text: &str, redaction| {
        let ask = SearchMessages { is_expression: true, redaction, ..words(text) };
        machine.found(ask).await.len()
    };
    assert_eq!(found("STAGING_KEY=sk-test-[n-z]", Redaction::None).await, 1);
    assert_eq!(found("STAGING_KEY=sk-test-[n-z]", Redaction::Masked).await, 0);
    assert_eq!(found("STAGING_KEY=.* is the", Redaction::Masked).await, 1);
    let word = |redaction| SearchMessages { redaction, ..words("qwertyuiop*") };
    assert_eq!(machine.found(word(Redaction::None)).await.len(), 1);
    assert_eq!(machine.found(word(Redaction::Masked)).await.len(), 0);
}

#[tokio::test]
async fn pages_of_a_search_go_on_where_the_last_one_ended() {
    let machine = Machine::of(&ALL);
    for n in 0..5 {
        let when = format!("2026-11-1{n}T12:00:10Z");
        machine.world.said(&format!("ours-{n}"), "the cache again", &when).await;
    }
    let whole = machine.found(SearchMessages { limit: Some(100), ..words("the") }).await;
    assert!(whole.len() > 8, "{whole:?}");
    let (app, owner) = (&machine.world.app, machine.world.owner());
    let mut paged = Vec::new();
    let mut before = None;
    loop {
        let ask = SearchMessages { limit: Some(3), before: before.clone(), ..words("the") };
        let page = app.search(&owner, &ask, |_, _| {}).await.expect("a page");
        let hits = page.hits.into_iter();
        paged.extend(hits.map(|hit| format!("{} {}: {}", hit.session.id, hit.seq, hit.snippet)));
        before = page.cursor;
        if before.is_none() {
            break;
        }
        assert!(paged.len() <= whole.len(), "{paged:?}");
    }
    assert_eq!(paged, whole);
    for forged in ["", "x", "1.x", ".", "-1", "1.99999999999999999999"] {
        let ask = SearchMessages { before: Some(forged.to_owned()), ..words("the") };
        assert!(app.search(&owner, &ask, |_, _| {}).await.is_err(), "{forged}");
    }
}

#[tokio::test]
async fn sessions_of_a_repository_are_those_of_all_its_worktrees() {
    let machine = Machine::of(&[]);
    let root = machine.home.path().join("repo");
    fs::create_dir_all(root.join(".git/worktrees/w")).expect("made");
    fs::write(root.join(".git/worktrees/w/commondir"), "../..").expect("written");
    let worktree = machine.home.path().join("elsewhere");
    fs::create_dir_all(&worktree).expect("made");
    let gitdir = worktree.join(".git").display().to_string();
    fs::write(root.join(".git/worktrees/w/gitdir"), gitdir + "\n").expect("written");
    fs::write(worktree.join(".git"), format!("gitdir: {}", root.join(".git/worktrees/w").display()))
        .expect("written");
    let gone = machine.home.path().join("gone");
    fs::create_dir_all(root.join(".git/worktrees/gone")).expect("made");
    fs::write(root.join(".git/worktrees/gone/gitdir"), format!("{}/.git\n", gone.display()))
        .expect("written");
    let other = machine.home.path().join("other");
    let projects = machine.home.path().join(".claude/projects/p");
    fs::create_dir_all(&projects).expect("made");
    let dirs =
        [("in-gone", gone), ("in-repo", root.join("src")), ("in-worktree", worktree), ("not-there", other)];
    for (id, cwd) in &dirs {
        let line = format!(
            r#"{{"type":"user","uuid":"{id}","timestamp":"2026-11-10T09:00:00Z","cwd":"{}","message":{{"content":"hi"}}}}"#,
            cwd.display()
        );
        fs::write(projects.join(format!("{id}.jsonl")), line).expect("written");
    }
    // Nothing but its project says where it ran.
    let project = root.to_string_lossy().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let transcripts = machine.home.path().join(".cursor/projects").join(project).join("agent-transcripts");
    fs::create_dir_all(&transcripts).expect("made");
    let line = r#"{"role":"user","message":{"content":[{"type":"text","text":"hi"}]}}"#;
    fs::write(transcripts.join("in-project.jsonl"), line).expect("written");
    let here = World::with(|settings| {
        settings.homes = Some(Homes::at(machine.home.path()));
        settings.repo = Some(root.to_string_lossy().into_owned());
    });
    let at = ["2026-11-10T09:01:00Z", "2026-11-10T09:02:00Z", "2026-11-10T09:03:00Z", "2026-11-10T09:04:00Z"];
    for ((id, cwd), at) in dirs.iter().zip(at) {
        here.said(&format!("ours-{id} cwd={}", cwd.display()), "hi there", at).await;
    }
    let (app, owner) = (&here.app, here.owner());
    // The newest is not of the repository, and does not take the place of one that is.
    let ask = SearchMessages { scope: Scope::Repo, limit: Some(1), ..words("hi") };
    let mut found = Vec::new();
    let mut page = app.search(&owner, &ask, |_, _| {}).await.expect("found");
    while let Some(before) = page.cursor.take().filter(|_| found.len() < 9) {
        found.extend(page.hits.into_iter().map(|hit| hit.session.id));
        let ask = SearchMessages { before: Some(before), ..ask.clone() };
        page = app.search(&owner, &ask, |_, _| {}).await.expect("found");
    }
    found.extend(page.hits.into_iter().map(|hit| hit.session.id));
    found.sort_unstable();
    let expected = [
        "claude:in-gone",
        "claude:in-repo",
        "claude:in-worktree",
        "cursor:in-project",
        "ours-in-gone",
        "ours-in-repo",
        "ours-in-worktree",
    ];
    assert_eq!(found, expected);
    let ask = ListSessions { scope: Scope::Repo, ..ListSessions::default() };
    let listing = here.app.list_sessions(&here.owner(), &ask).await.expect("a list");
    let mut ids: Vec<&str> = listing.sessions.iter().map(|session| session.id.as_str()).collect();
    ids.sort_unstable();
    assert_eq!(ids, expected);
    assert_eq!(listing.total, 7);
}

#[tokio::test]
async fn damage_is_counted_and_all_that_was_read_knows_the_title() {
    let machine = Machine::of(&["claude-code"]);
    let path = machine.home.path().join(format!(".claude/projects/-home-dev-acme-api/{CLAUDE}.jsonl"));
    let content = fs::read_to_string(&path).expect("read");
    let mut lines: Vec<String> = content.lines().map(str::to_owned).collect();
    lines.pop();
    lines.retain(|line| !line.contains("custom-title"));
    let padding = format!("{{\"type\":\"mode\",\"x\":\"{}\"}}", "x".repeat(300_000));
    let title = r#"{"type":"custom-title","customTitle":"Named in the middle"}"#;
    lines.splice(3..3, [padding.clone(), title.to_owned(), "{\"type\":".to_owned(), padding]);
    fs::write(&path, lines.join("\n") + "\n").expect("written");
    let listed = machine.list(&ListSessions::default()).await.sessions.remove(0);
    assert_eq!((listed.title.as_str(), listed.damaged, listed.num_messages), ("Named in the middle", 1, 8));
    let read = machine.read(CLAUDE).await.expect("read");
    assert_eq!((read.title.as_str(), read.damaged, read.taken_back), ("Named in the middle", 1, 0));
    // A hit counts as the list does.
    let app = &machine.world.app;
    let hit = app.search(&machine.world.owner(), &words("rotate_key"), |_, _| {}).await.expect("found");
    let session = &hit.hits[0].session;
    assert_eq!((session.num_messages, session.num_messages_is_minimum), (8, false), "{session:?}");
}

#[tokio::test]
async fn a_handoff_counts_what_it_read_however_long_it_is() {
    let machine = Machine::of(&["claude-code"]);
    let path = machine.home.path().join(format!(".claude/projects/-home-dev-acme-api/{CLAUDE}.jsonl"));
    let content = fs::read_to_string(&path).expect("read");
    let padding = format!("{{\"type\":\"mode\",\"x\":\"{}\"}}\n", "x".repeat(3 << 20));
    fs::write(&path, padding + &content).expect("written");
    let listed = machine.list(&ListSessions::default()).await.sessions.remove(0);
    assert!(listed.num_messages_is_minimum, "{listed:?}");
    let app = &machine.world.app;
    let handoff = app.handoff(&machine.world.owner(), CLAUDE, Redaction::Masked).await.expect("a bundle");
    assert!(handoff.bundle.contains("(8 messages)"), "{}", handoff.bundle);
}

#[tokio::test]
async fn a_copy_of_another_agents_session_has_its_messages_and_leaves_nothing_behind() {
    let machine = Machine::of(&ALL);
    let (app, owner) = (&machine.world.app, machine.world.owner());
    let listing = machine.list(&ListSessions::default()).await;
    let elsewhere = World::new();
    for session in &listing.sessions {
        let mut copy = String::new();
        let mut write = |text: &str| {
            copy += text;
            Ok(())
        };
        app.export(&owner, &session.id, &mut write).await.expect(&session.id);
        let brought = elsewhere.app.import_lines(&elsewhere.owner(), copy.as_bytes()).await;
        let brought = brought.unwrap_or_else(|error| panic!("{}: {error}", session.id));
        assert!(brought.total >= session.num_messages, "{} of {session:?}", brought.total);
        if session.id.ends_with(CLAUDE) {
            assert!(copy.contains("Write the fix"), "{copy}");
        }
    }
    assert!(!machine.world.home().join("sess.db").exists(), "who reads a session stores nothing of it");
}

#[tokio::test]
async fn older_ones_are_offered_only_where_there_are_some() {
    let machine = Machine::of(&["codex"]);
    machine.world.said("ours-1", "haystack", "2026-11-11T12:00:10Z").await;
    let check = async |text: &str, is_expression: bool, limit: i64, pages: usize| {
        let (mut before, mut seen) = (None, 0);
        loop {
            let ask =
                SearchMessages { limit: Some(limit), before: before.take(), is_expression, ..words(text) };
            let found = machine.world.app.search(&machine.world.owner(), &ask, |_, _| {}).await.expect(text);
            assert!(!found.hits.is_empty(), "{text}: page {} was offered and is empty", seen + 1);
            seen += 1;
            before = found.cursor;
            if before.is_none() {
                break;
            }
        }
        assert_eq!(seen, pages, "{text}");
    };
    for is_expression in [false, true] {
        check("haystack", is_expression, 1, 1).await;
        check("webhook", is_expression, 1, 3).await;
        check("webhook", is_expression, 3, 1).await;
    }
}

#[tokio::test]
async fn a_thread_that_names_only_the_topmost_one_is_that_one_where_it_is_kept() {
    const ROOT: &str = "019a71aa-0c11-7d20-8a00-aabbccddee01";
    let machine = Machine::of(&["codex"]);
    let app = &machine.world.app;
    let caller = async |root: &str, thread: Option<&str>| {
        let (root_id, thread_id) = (Some(root.to_owned()), thread.map(str::to_owned));
        app.caller_of(Signals { root_id, thread_id, ..Signals::default() }, "list_sessions", &Value::Null)
            .await
    };
    assert!(is_hidden(&machine, &caller(ROOT, None).await, &format!("codex:{ROOT}")).await);
    assert!(is_hidden(&machine, &caller(ROOT, Some("")).await, &format!("codex:{ROOT}")).await);
    let whoami = async |root: &str, thread: Option<&str>| app.whoami(&caller(root, thread).await).await;
    assert_eq!(whoami(ROOT, None).await.session_id.as_deref(), Some(ROOT));
    assert_eq!(whoami(ROOT, Some("t1")).await.session_id.as_deref(), Some("t1"), "its own word counts");
    assert_eq!(whoami("of-some-other-program", None).await.source, Some(Source::Native));
}

#[tokio::test]
async fn a_sub_agent_whose_parent_is_gone_is_a_session_of_its_own() {
    const CHILD: &str = "claude:agent-a7c1d2e3f4051627";
    let machine = Machine::of(&["claude-code"]);
    assert!(!machine.ids().await.contains(&CHILD.to_owned()));
    let project = machine.home.path().join(".claude/projects/-home-dev-acme-api");
    fs::remove_file(project.join(format!("{CLAUDE}.jsonl"))).expect("deleted");
    let listing = machine.list(&ListSessions::default()).await;
    let row = listing.sessions.iter().find(|row| row.id == CHILD).expect("listed");
    assert!(row.is_sub_agent && listing.total == 1, "{listing:?}");
    assert!(machine.read(CHILD).await.expect("read").transcript.contains("rotate_key"));
    // To the session that started it, it is still a part of its own.
    let env = vec![("CLAUDE_CODE_SESSION_ID".to_owned(), CLAUDE.to_owned())];
    let parent = machine.world.app.caller(&Signals { env, ..Signals::default() });
    let listing = machine.world.app.list_sessions(&parent, &ListSessions::default()).await.expect("a list");
    assert_eq!(listing.sessions, []);
}

#[tokio::test]
async fn a_copy_of_a_session_that_a_caller_is_not_shown_is_not_found_either() {
    const PARENT: &str = "codex:019a71aa-0c11-7d20-8a00-aabbccddee01";
    let machine = Machine::of(&["codex"]);
    let (app, owner) = (&machine.world.app, machine.world.owner());
    let mut copy = String::new();
    let mut write = |text: &str| {
        copy.push_str(text);
        Ok(())
    };
    app.export(&owner, PARENT, &mut write).await.expect("exported");
    app.import_lines(&owner, copy.as_bytes()).await.expect("imported");
    let child =
        Signals { thread_id: Some("019a71ab-77f0-7e51-9b00-0f0e0d0c0b0a".to_owned()), ..Signals::default() };
    let (child, other) = (app.caller(&child), app.caller(&Signals::default()));
    for is_expression in [false, true] {
        let ask = SearchMessages { is_expression, ..words("axum") };
        let found = async |caller| app.search(caller, &ask, |_, _| {}).await.expect("searched").hits;
        assert!(!found(&owner).await.is_empty() && !found(&other).await.is_empty());
        assert_eq!(found(&child).await, []);
    }
}

#[tokio::test]
async fn a_session_that_was_imported_and_is_still_in_its_file_says_nothing_twice() {
    let machine = Machine::of(&ALL);
    let (app, owner) = (&machine.world.app, machine.world.owner());
    let pages = async |text: &str, is_expression: bool, limit: i64| {
        let (mut hits, mut before) = (Vec::new(), None);
        loop {
            let ask =
                SearchMessages { limit: Some(limit), before: before.take(), is_expression, ..words(text) };
            let found = app.search(&owner, &ask, |_, _| {}).await.expect(text);
            hits.extend(
                found.hits.into_iter().map(|hit| format!("{} {}: {}", hit.session.id, hit.seq, hit.snippet)),
            );
            before = found.cursor;
            if before.is_none() {
                return hits;
            }
        }
    };
    let asked = [("the", false), ("retry", false), ("[aeiou]", true), ("web.*", true)];
    let mut all = Vec::new();
    for (text, is_expression) in asked {
        all.push(pages(text, is_expression, 100).await);
    }
    assert!(all.iter().all(|hits| hits.len() > 2), "{all:?}");
    // The newest first: the store has them in another order than they were said in.
    for session in machine.list(&ListSessions { limit: Some(100), ..ListSessions::default() }).await.sessions
    {
        let mut copy = String::new();
        let mut write = |text: &str| {
            copy += text;
            Ok(())
        };
        app.export(&owner, &session.id, &mut write).await.expect(&session.id);
        app.import_lines(&owner, copy.as_bytes()).await.expect(&session.id);
    }
    for ((text, is_expression), hits) in asked.into_iter().zip(&all) {
        assert_eq!(&pages(text, is_expression, 100).await, hits, "{text}");
        assert_eq!(&pages(text, is_expression, 2).await, hits, "{text}, two a page");
    }
    // What a file lost is found in the copy.
    let amp = machine.home.path().join(".local/share/amp/threads");
    fs::remove_dir_all(amp).expect("deleted");
    assert_eq!(pages("[aeiou]", true, 100).await.len(), all[2].len());
}

#[tokio::test]
async fn what_a_search_passes_over_in_a_file_is_found_in_its_copy() {
    // To an expression the sign for kelvin is a k; the bytes of a file are not looked through for it.
    const TEXT: &str = "at 4 \u{212a}elvin";
    let machine = Machine::of(&[]);
    let (app, owner) = (&machine.world.app, machine.world.owner());
    claude_said(&machine, &[format!(r#"{{"role":"user","content":"{TEXT}"}}"#)], "");
    let mut copy = String::new();
    let mut write = |text: &str| {
        copy += text;
        Ok(())
    };
    app.export(&owner, "claude:c1", &mut write).await.expect("exported");
    app.import_lines(&owner, copy.as_bytes()).await.expect("imported");
    let ask = SearchMessages { is_expression: true, ..words("4 kelvin") };
    assert_eq!(machine.found(ask).await, [format!("c1 1: {TEXT}")]);
}

/// Writes a session of each agent that may name one in the middle of its file, which is so long.
fn named_in_the_middle(machine: &Machine, size: usize) -> [String; 2] {
    let claude = machine.home.path().join(".claude/projects/-x");
    let gemini = machine.home.path().join(".gemini/tmp/x/chats");
    let mut ids = Vec::new();
    for (dir, id, first, line, title) in [
        (
            claude,
            "cccc1111-0000",
            "",
            r#"{"type":"user","uuid":"u#","parentUuid":null,"timestamp":"2026-11-12T00:00:00Z","cwd":"/x","message":{"role":"user","content":"more \"summary\" @"}}"#,
            r#"{"type":"custom-title","customTitle":"Harvest moon","sessionId":"cccc1111-0000"}"#,
        ),
        (
            gemini,
            "dddd1111-0000",
            r#"{"sessionId":"dddd1111-0000","startTime":"2026-11-12T00:00:00Z","kind":"main"}"#,
            r#"{"id":"m#","timestamp":"2026-11-12T00:00:00Z","type":"user","content":"more \"summary\" @"}"#,
            r#"{"$set":{"summary":"Harvest sun"}}"#,
        ),
    ] {
        fs::create_dir_all(&dir).expect("made");
        let lines = (size / 2_000).max(2);
        let mut text = format!("{first}\n");
        for n in 0..lines {
            let line = line.replace('#', &n.to_string()).replace('@', &"x".repeat(1_850));
            text += &format!("{line}\n");
            if n == lines / 2 {
                text += &format!("{title}\n");
            }
        }
        let name = if id.starts_with('c') { id.to_owned() } else { format!("session-2026-11-12T00-00-{id}") };
        fs::write(dir.join(format!("{name}.jsonl")), text).expect("written");
        ids.push(format!("{}:{id}", if id.starts_with('c') { "claude" } else { "gemini" }));
    }
    ids.try_into().expect("two")
}

#[tokio::test]
async fn a_session_is_found_by_a_title_that_stands_in_the_middle_of_its_file() {
    for size in [50_000, 600_000, 5 << 20] {
        let machine = Machine::of(&[]);
        let ids = named_in_the_middle(&machine, size);
        let titles = |listing: &Listing| -> std::collections::BTreeMap<String, String> {
            listing.sessions.iter().map(|row| (row.id.clone(), row.title.clone())).collect()
        };
        let asked = ListSessions { query: Some("HARVEST".to_owned()), ..ListSessions::default() };
        let found = machine.list(&asked).await;
        let [claude, gemini] = &ids;
        let named = [(claude.clone(), "Harvest moon".to_owned()), (gemini.clone(), "Harvest sun".to_owned())];
        assert_eq!((found.total, titles(&found)), (2, named.into()), "{size}");
        let by_prompt = ListSessions { query: Some("more".to_owned()), ..ListSessions::default() };
        assert_eq!(machine.list(&by_prompt).await.total, 0, "{size}: by what it is not called");
        // Who reads all of a file says what all of it says, whether anybody looked before or not.
        let fresh = Machine::of(&[]);
        named_in_the_middle(&fresh, size);
        let (app, owner) = (&fresh.world.app, fresh.world.owner());
        let any = SearchMessages { limit: Some(100), ..words("more") };
        let hits = app.search(&owner, &any, |_, _| {}).await.expect("found").hits;
        assert!(hits.iter().all(|hit| hit.session.title.starts_with("Harvest")), "{size}: {:?}", hits[0]);
        for id in &ids {
            let handoff = app.handoff(&owner, id, Redaction::Masked).await.expect("a bundle");
            assert!(handoff.session.title.starts_with("Harvest"), "{size}: {}", handoff.session.title);
            assert!(handoff.bundle.starts_with("# Handoff: Harvest"), "{size}: {}", handoff.bundle);
        }
        // What was found out is remembered.
        assert_eq!(titles(&machine.list(&ListSessions::default()).await), titles(&found), "{size}");
        let (app, owner) = (&machine.world.app, machine.world.owner());
        for _ in 0..2 {
            app.take_snapshots(&owner, None, |_, _| {}).await.expect("copied");
            let rows = app.snapshots(&owner).await.expect("snapshots").snapshots;
            let rows = rows.into_iter().map(|row| (row.id, row.title)).collect();
            assert_eq!(titles(&found), rows, "{size}");
        }
    }
}

#[tokio::test]
async fn sessions_whose_messages_are_damaged_are_marked_and_their_file_is_named() {
    let machine = Machine::of(&["opencode", "zed"]);
    let opencode = machine.home.path().join(".local/share/opencode/opencode.db");
    let database = rusqlite::Connection::open(&opencode).expect("opened");
    let number = |sql: &str| -> u32 { database.query_row(sql, [], |row| row.get(0)).expect("a number") };
    let page = number("SELECT page_size FROM pragma_page_size");
    let root = number("SELECT rootpage FROM sqlite_master WHERE type = 'table' AND name = 'message'");
    drop(database);
    let file = fs::File::options().write(true).open(&opencode).expect("opened");
    let junk = vec![0xff; page as usize];
    std::os::unix::fs::FileExt::write_all_at(&file, &junk, u64::from((root - 1) * page)).expect("damaged");
    let zed = machine.home.path().join(".local/share/zed/threads/threads.db");
    let database = rusqlite::Connection::open(zed).expect("opened");
    for (id, kind, data) in [("bad1", "zstd", "no zstd"), ("bad2", "json", "{"), ("bad3", "lz9", "{}")] {
        let sql =
            "INSERT INTO threads (id, summary, updated_at, data_type, data) VALUES (?1, ?1, ?2, ?3, ?4)";
        database.execute(sql, (id, "2026-11-14T00:00:00Z", kind, data)).expect("added");
    }
    drop(database);
    let listing = machine.list(&ListSessions::default()).await;
    let damaged = |session: &&sess_app::Listed| session.damaged == 1 && session.num_messages_is_minimum;
    let damaged: Vec<&str> = listing.sessions.iter().filter(damaged).map(|session| &*session.id).collect();
    assert!(["zed:bad1", "zed:bad2", "zed:bad3"].iter().all(|id| damaged.contains(id)), "{listing:?}");
    assert!(damaged.iter().any(|id| id.starts_with("opencode:")), "{listing:?}");
    let kept = machine.world.app.retention().await.expect("looked");
    let of = |source: Source| &kept.iter().find(|kept| kept.source == source).expect("used").problems;
    let [problem] = &of(Source::Opencode)[..] else { panic!("{kept:?}") };
    assert!(problem.contains("opencode.db cannot be read as a database"), "{problem}");
    let [problem] = &of(Source::Zed)[..] else { panic!("{kept:?}") };
    let start = "zed:bad1, zed:bad2, zed:bad3 cannot be read, the first because of this: ";
    assert!(problem.starts_with(start) && problem.contains("thread bad1"), "{problem}");
}

#[tokio::test]
async fn directories_and_branches_are_masked_wherever_rows_leave() {
    let machine = Machine::of(&[]);
    let secret = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";
    let place = format!("/w/{secret}");
    claude_said(&machine, &[r#"{"role":"user","content":"hello quokka"}"#.to_owned()], "");
    let file = machine.home.path().join(".claude/projects/-x/c1.jsonl");
    let text = fs::read_to_string(&file).expect("read").replace("/x\"", &format!("{place}\""));
    fs::write(&file, text).expect("written");
    let (app, owner) = (&machine.world.app, machine.world.owner());
    let shown = |row: &sess_app::Listed| {
        let cwd = row.cwd.clone().expect("a directory");
        assert!(cwd.starts_with("/w/ghp_") && !cwd.contains(secret), "{cwd}");
    };
    let listing = app.list_sessions(&owner, &ListSessions::default()).await.expect("a list");
    shown(&listing.sessions[0]);
    let ask = sess_app::SearchMessages { text: "quokka".to_owned(), ..Default::default() };
    let found = app.search(&owner, &ask, |_, _| {}).await.expect("found");
    assert!(!serde_json::to_string(&found.hits).expect("JSON").contains(secret));
    let handed = app.handoff(&owner, "claude:c1", Redaction::Masked).await.expect("handed over");
    shown(&handed.session);
    assert!(!handed.bundle.contains(secret) && handed.redacted == 1, "{handed:?}");
    assert_eq!(handed.dir, None, "nobody can go to a masked directory");
    let handed = app.handoff(&owner, "claude:c1", Redaction::None).await.expect("handed over");
    assert!(handed.bundle.contains(secret));
    assert_eq!((handed.dir.as_deref(), handed.session.cwd.as_deref()), (Some(&*place), Some(&*place)));
}

/// Writes a rollout of Codex: what it says of itself, and the records that follow, one a second from noon on.
fn write_codex(machine: &Machine, ids: &str, meta: &Value, records: &[Value]) {
    let dir = machine.home.path().join(".codex/sessions/2026/11/12");
    fs::create_dir_all(&dir).expect("made");
    let meta = serde_json::json!({"type": "session_meta", "payload": meta});
    let mut text = String::new();
    for (place, record) in std::iter::once(&meta).chain(records).enumerate() {
        let mut record = record.clone();
        if record.get("timestamp").is_none() {
            record["timestamp"] = format!("2026-11-12T12:00:{place:02}Z").into();
        }
        text += &format!("{record}\n");
    }
    fs::write(dir.join(format!("rollout-2026-11-12T12-00-00-{ids}.jsonl")), text).expect("written");
}

/// Returns what a person said to Codex, or what it answered.
fn codex_said(kind: &str, text: &str) -> Value {
    serde_json::json!({"type": "event_msg", "payload": {"type": kind, "message": text}})
}

#[tokio::test]
async fn what_a_thread_of_codex_has_in_another_file_is_found() {
    let machine = Machine::of(&[]);
    let records = [codex_said("user_message", "a ripe kumquat"), codex_said("agent_message", "quite")];
    write_codex(&machine, "019a0001", &serde_json::json!({"id": "019a0001"}), &records);
    let base = serde_json::json!({"thread_id": "019a0001", "end_ordinal_exclusive": 3});
    let meta = serde_json::json!({"id": "019a0001", "history_base": base});
    write_codex(&machine, "019a0001_019a0002", &meta, &[codex_said("user_message", "on")]);
    assert_eq!(machine.found(words("kumquat")).await, ["codex:019a0001 1: a ripe kumquat"]);
}

#[tokio::test]
async fn a_message_that_forks_of_codex_share_is_of_the_one_that_began_first() {
    let machine = Machine::of(&[]);
    let begun = |at: &str, text: &str| {
        let mut said = codex_said("user_message", text);
        said["timestamp"] = at.into();
        said
    };
    let shared = begun("2026-11-12T12:00:01.123Z", "a ripe kumquat");
    let meta = |id: &str, at: &str| serde_json::json!({"id": id, "timestamp": at});
    write_codex(
        &machine,
        "019a0001",
        &meta("019a0001", "2026-11-12T12:00:00Z"),
        std::slice::from_ref(&shared),
    );
    let mut fork = meta("019a0002", "2026-11-12T12:30:00Z");
    fork["forked_from_id"] = "019a0001".into();
    let own = begun("2026-11-12T12:30:01.000Z", "and a kumquat of its own");
    write_codex(&machine, "019a0002", &fork, &[shared, own]);
    let found = ["codex:019a0002 2: and a kumquat of its own", "codex:019a0001 1: a ripe kumquat"];
    assert_eq!(machine.found(words("kumquat")).await, found);
}

/// Writes a conversation of Claude Code: a record for each message, with its own id and that of the one before it, whose
/// words they are, and which sub-agent's work it is the result of.
fn write_claude_tree(path: &std::path::Path, records: &[(&str, &str, &str, &str, Option<&str>)]) {
    fs::create_dir_all(path.parent().expect("a directory")).expect("made");
    let line =
        |(place, (id, before, kind, text, agent)): (usize, &(&str, &str, &str, &str, Option<&str>))| {
            let mut record = serde_json::json!({
                "type": kind, "uuid": id, "cwd": "/p", "timestamp": format!("2026-11-12T12:00:{place:02}Z"),
                "parentUuid": if before.is_empty() { Value::Null } else { Value::from(*before) },
                "message": {"role": kind, "content": text},
            });
            if let Some(agent) = agent {
                let result =
                    serde_json::json!([{"type": "tool_result", "tool_use_id": "c", "content": text}]);
                record["message"]["content"] = result;
                record["toolUseResult"] = serde_json::json!({"agentId": agent});
            }
            format!("{record}\n")
        };
    fs::write(path, records.iter().enumerate().map(line).collect::<String>()).expect("written");
}

#[tokio::test]
async fn a_sub_agent_of_what_was_taken_back_is_neither_shown_nor_found() {
    let machine = Machine::of(&[]);
    let dir = machine.home.path().join(".claude/projects/-p");
    let records = [
        ("u1", "", "user", "hello", None),
        ("u2", "u1", "user", "no good", None),
        ("u3", "u2", "user", "what it found", Some("gone")),
        ("u4", "u3", "assistant", "so", None),
        ("u5", "u1", "user", "instead", None),
        ("u6", "u5", "user", "what another found", Some("there")),
        ("u7", "u6", "assistant", "done", None),
    ];
    write_claude_tree(&dir.join("s0000001.jsonl"), &records);
    for (name, inner) in [("gone", Some("below")), ("there", None), ("below", None), ("unnamed", None)] {
        let path = dir.join("s0000001/subagents").join(format!("agent-{name}.jsonl"));
        let (first, task) = (format!("v-{name}"), format!("a kumquat of {name}"));
        let records = [(&*first, "", "user", &*task, None), ("w", &*first, "user", "found", inner)];
        write_claude_tree(&path, &records[..1 + usize::from(inner.is_some())]);
    }
    let read = machine.read("claude:s0000001").await.expect("read");
    let shown: Vec<&str> = read.transcript.lines().filter(|line| line.contains("kumquat")).collect();
    assert_eq!(shown, ["a kumquat of unnamed", "a kumquat of there"], "{}", read.transcript);
    assert_eq!(read.taken_back, 3);
    let mut found = machine.found(words("kumquat")).await;
    found.sort();
    let hits = ["there", "unnamed"].map(|name| format!("claude:agent-{name} 1: a kumquat of {name}"));
    assert_eq!(found, hits);
}

#[tokio::test]
async fn a_sub_agent_of_goose_is_in_no_list_and_is_read_and_found() {
    let machine = Machine::of(&["goose"]);
    let sessions = machine.home.path().join(".local/share/goose/sessions/sessions.db");
    let said = r#"INSERT INTO messages (message_id, session_id, role, content_json, created_timestamp) VALUES
        ('s1', '20261112_4', 'user', '[{"type":"text","text":"count the kumquats"}]', 1794470520),
        ('s2', '20261112_4', 'assistant', '[{"type":"text","text":"seven kumquats"}]', 1794470530)"#;
    rusqlite::Connection::open(sessions).and_then(|open| open.execute(said, [])).expect("said");
    assert_eq!(machine.ids().await, ["goose:20261112_3"]);
    for reference in ["goose:20261112_4", "20261112_4"] {
        let read = machine.read(reference).await.expect(reference);
        assert_eq!((&*read.session_id, read.num_messages), ("goose:20261112_4", 2));
        let said: Vec<&str> = read.transcript.lines().filter(|line| line.contains("kumquats")).collect();
        assert_eq!(said, ["count the kumquats", "seven kumquats"], "{}", read.transcript);
    }
    let hits = ["goose:20261112_4 2: seven kumquats", "goose:20261112_4 1: count the kumquats"];
    assert_eq!(machine.found(words("kumquats")).await, hits);
    let ask = ListSessions { query: Some("kumquats".to_owned()), ..ListSessions::default() };
    assert_eq!(machine.list(&ask).await.sessions.len(), 0);
}

#[tokio::test]
async fn a_sub_agent_of_codex_that_is_asked_once_more_is_there() {
    let child = serde_json::json!({"id": "019a0009", "parent_thread_id": "019a0001"});
    let spawn = |call: &str| {
        let call = serde_json::json!({"type": "function_call", "name": "spawn_agent", "arguments": "{}", "call_id": call});
        serde_json::json!({"type": "response_item", "payload": call})
    };
    let spawned = |call: &str| {
        let output = serde_json::json!({"agent_id": "019a0009"}).to_string();
        let output = serde_json::json!({"type": "function_call_output", "call_id": call, "output": output});
        serde_json::json!({"type": "response_item", "payload": output})
    };
    let back =
        serde_json::json!({"type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": 1}});
    let asked = [codex_said("user_message", "hello"), spawn("c1"), spawned("c1"), back];
    let again = [codex_said("user_message", "again"), spawn("c2"), spawned("c2")];
    for (records, is_there) in [(asked.to_vec(), false), ([&asked[..], &again].concat(), true)] {
        let machine = Machine::of(&[]);
        write_codex(&machine, "019a0001", &serde_json::json!({"id": "019a0001"}), &records);
        write_codex(&machine, "019a0009", &child, &[codex_said("user_message", "a ripe kumquat")]);
        let shown = machine.read("codex:019a0001").await.expect("read").transcript;
        let found = machine.found(words("kumquat")).await;
        assert_eq!((shown.contains("kumquat"), found.len()), (is_there, usize::from(is_there)), "{shown}");
    }
}

#[tokio::test]
async fn a_sub_agent_that_another_one_started_stands_in_that_one() {
    let machine = Machine::of(&[]);
    let dir = machine.home.path().join(".claude/projects/-p");
    let records = [
        ("u1", "", "user", "hello", None),
        ("u2", "u1", "assistant", "I ask somebody", None),
        ("u3", "u2", "user", "what came of it", Some("outer")),
    ];
    write_claude_tree(&dir.join("s0000001.jsonl"), &records);
    let below = dir.join("s0000001/subagents");
    let outer = [("v1", "", "user", "the task", None), ("v2", "v1", "user", "a part of it", Some("inner"))];
    write_claude_tree(&below.join("agent-outer.jsonl"), &outer);
    write_claude_tree(&below.join("agent-inner.jsonl"), &[("w1", "", "user", "the smaller task", None)]);
    let read = machine.read("claude:s0000001").await.expect("read").transcript;
    let parts = [
        "I ask somebody",
        "## sub-session agent-outer",
        "the task",
        "## sub-session agent-inner",
        "the smaller task",
        "## end of sub-session",
        "a part of it",
        "what came of it",
    ];
    let at = |part: &str| read.find(part).unwrap_or_else(|| panic!("{part}: {read}"));
    assert!(parts.map(at).is_sorted(), "{read}");
}
