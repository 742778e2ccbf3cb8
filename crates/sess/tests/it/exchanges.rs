//! Sessions that talk and delegate, through the real binary and stub models.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::{
    mcp::Server,
    run_stage::{Anthropic, Chat, KEY, Stage, text_of},
    world::{Beside, Run, World},
};

/// Two agents that may reach each other.
const PAIR: &str = "
agents:
  alpha: {model: m, instruction: You are ALPHA., toolsets: [{type: sessions}]}
  beta: {model: m, instruction: You are BETA., toolsets: [{type: sessions}]}
tools: {sessions: {visibility: all}, agentToAgent: {enabled: true}}
";

/// A parent that may spawn a child, with little patience for dead nodes.
const FAMILY: &str = "
agents:
  root: {model: m, instruction: You are the PARENT., toolsets: [{type: sessions}], subagents: {allowAgents: [child]}}
  child: {model: m, instruction: You are the CHILD.}
";

const LEASE: (&str, &str) = ("SESS_LEASE_MS", "300");

impl Stage {
    fn sess<'a>(&self, env: &[(&str, &str)], args: impl IntoIterator<Item = &'a str>) -> Run {
        let mut command = self.world.command(["--config", "agents.yaml"].into_iter().chain(args));
        command.env("STUB_KEY", KEY).envs(env.iter().copied()).stdin(std::process::Stdio::null());
        command.output().expect("sess starts").into()
    }

    fn sess_beside<'a>(&self, env: &[(&str, &str)], args: impl IntoIterator<Item = &'a str>) -> Beside {
        let mut command = self.world.command(["--config", "agents.yaml"].into_iter().chain(args));
        command.env("STUB_KEY", KEY).envs(env.iter().copied());
        Beside::start(command)
    }

    fn runs(&self, options: &[&str]) -> Vec<Value> {
        let runs = self.world.json(["runs", "--limit", "1000"].into_iter().chain(options.iter().copied()));
        runs["runs"].as_array().expect("a list").clone()
    }
}

/// Follows runs with `sess runs --watch --json`.
struct Watch {
    beside: Beside,
    /// The newest row of each run.
    rows: HashMap<String, Value>,
}

impl Watch {
    fn start(world: &World) -> Self {
        let command = world.command(["runs", "--watch", "--json", "--limit", "1000"]);
        Self { beside: Beside::start(command), rows: HashMap::new() }
    }

    /// Waits until the rows are as they should be; returns them.
    #[track_caller]
    fn until(&mut self, is_enough: impl Fn(&[&Value]) -> bool) -> Vec<Value> {
        loop {
            let rows: Vec<&Value> = self.rows.values().collect();
            if is_enough(&rows) {
                return rows.into_iter().cloned().collect();
            }
            let row: Value = serde_json::from_str(&self.beside.line()).expect("JSON");
            self.rows.insert(row["runId"].as_str().expect("an id").to_owned(), row);
        }
    }
}

fn count(rows: &[&Value], errand: &str, state: &str) -> usize {
    rows.iter().filter(|row| row["errand"] == errand && row["state"] == state).count()
}

#[test]
fn two_agents_exchange_five_rounds_and_stop_at_the_word() {
    let script = "
- {system: ALPHA, when: go, tool_calls: [{name: sessions_send, arguments: {sessionKey: 'agent:beta:main', message: one?}}]}
- {system: ALPHA, text: asked}
- {system: ALPHA, text: a2}
- {system: ALPHA, text: a4}
- {system: ALPHA, text: ' REPLY_SKIP '}
- {system: BETA, text: b1}
- {system: BETA, text: b3}
- {system: BETA, text: b5}
- {system: BETA, text: ANNOUNCE_SKIP}
";
    let stage = Stage::with(Chat, PAIR, script);
    let said = stage.ok(&[], "go");
    // Words for the program are shown to nobody.
    assert_eq!(said, "asked\na2\na4\n");
    let results = stage.results();
    let [(answer, false)] = results.as_slice() else { panic!("{results:?}") };
    let answer: Value = serde_json::from_str(answer).expect("JSON");
    assert_eq!(
        (&answer["status"], &answer["reply"], &answer["sessionKey"], &answer["delivery"]),
        (&json!("ok"), &json!("b1"), &json!("agent:beta:main"), &json!("replied"))
    );

    let tree = stage.runs(&["--tree"]);
    let told: Vec<String> = tree
        .iter()
        .map(|row| {
            let word = |key: &str| row[key].as_str().unwrap_or_default().trim().to_owned();
            format!("{} {} {} {}", row["depth"], word("errand"), word("agent"), word("result"))
        })
        .collect();
    assert_eq!(
        told,
        [
            "0 message alpha asked",
            "1 send beta b1",
            "2 round alpha a2",
            "3 round beta b3",
            "4 round alpha a4",
            "5 round beta b5",
            "6 round alpha REPLY_SKIP",
            "7 announce beta ANNOUNCE_SKIP",
        ]
    );
    // Nine calls of the model, each of 15 tokens that cost as much.
    assert_eq!(stage.stub.requests().len(), 9);
    assert_eq!((&tree[0]["totalTokens"], &tree[0]["totalCost"]), (&json!(135), &json!(135.0)));
    assert_eq!((&tree[0]["tokens"], &tree[7]["totalTokens"]), (&json!(30), &json!(15)));

    // A peer's words are told from the person's, in the transcript and on the screen.
    let history = stage.world.json(["history", "agent:beta:main"]);
    let first = &history["messages"][0];
    assert_eq!(first["provenance"]["kind"], "inter_session");
    assert_eq!(first["provenance"]["sourceSessionKey"], "agent:alpha:chat:s1");
    let shown = stage.world.ok(["history", "agent:beta:main"]);
    assert!(shown.starts_with("↪ from agent:alpha:chat:s1 (sessions_send) #1"), "{shown}");
    assert!(stage.world.ok(["history", "s1"]).starts_with("you #1"));
    stage.nothing_was_refused();
}

#[test]
fn three_children_fail_time_out_and_die_with_their_node() {
    let script = "
- system: PARENT
  when: go
  tool_calls:
  - {name: sessions_spawn, arguments: {task: fail, agentId: child, label: one}}
  - {name: sessions_spawn, arguments: {task: hang a while, agentId: child, label: two, runTimeoutSeconds: 1}}
  - {name: sessions_spawn, arguments: {task: hang for ever, agentId: child, label: three}}
- {system: PARENT, text: three are at it}
- {system: PARENT, when: 'Status:', text: noted}
- {system: PARENT, when: 'Status:', text: noted}
- {system: PARENT, when: 'Status:', text: noted}
- {system: CHILD, when: fail, fault: {kind: status, status: 400, message: no such thing}}
- {system: CHILD, when: hang, text: I begin, fault: {kind: hang, bytes: 600}}
";
    let stage = Stage::with(Anthropic, FAMILY, script);
    let mut watch = Watch::start(&stage.world);
    let mut node = stage.sess_beside(&[LEASE], ["run", "--exec", "--session", "s1", "go"]);
    let rows = watch.until(|rows| {
        count(rows, "spawn", "failed") == 1
            && count(rows, "spawn", "timed_out") == 1
            && count(rows, "spawn", "running") == 1
            && count(rows, "report", "done") == 2
    });
    let third = rows.iter().find(|row| row["errand"] == "spawn" && row["state"] == "running");
    let third = third.expect("it runs")["runId"].as_str().expect("an id").to_owned();
    node.child.kill().expect("it runs");
    node.child.wait().expect("it ends");

    // Whoever waits for it next settles what the dead node left behind.
    let waited = stage.sess(&[LEASE], ["wait", &third[..8], "--timeout", "60"]);
    assert_eq!(waited.code, 1, "{waited:?}");
    assert!(waited.stderr.contains("error: aborted"), "{waited:?}");
    watch.until(|rows| count(rows, "report", "done") == 3);

    let reports: Vec<String> = stage
        .transcript()
        .iter()
        .filter(|message| message["provenance"]["sourceTool"] == "sessions_spawn")
        .map(text_of)
        .collect();
    let statuses: Vec<&str> =
        reports.iter().map(|report| report.lines().next().unwrap_or_default()).collect();
    assert_eq!(statuses, ["Status: error", "Status: timeout", "Status: aborted"], "{reports:#?}");
    for report in &reports {
        let stats = report.lines().last().unwrap_or_default();
        for part in
            ["Stats: runtime ", " · tokens ", " · session agent:child:subagent:", " · id ", " · transcript "]
        {
            assert!(stats.contains(part), "{part} in {report}");
        }
    }
    assert!(reports[0].contains("no such thing"), "{}", reports[0]);
    let tree = stage.runs(&["--tree"]);
    assert_eq!(tree.iter().filter(|row| row["depth"] == 1 && row["errand"] == "spawn").count(), 3);
}

#[test]
fn the_session_of_another_program_has_an_inbox() {
    let world = World::new();
    let mut host = Server::start_env(&world, &[("CLAUDE_CODE_SESSION_ID", "c1")], &[]);
    let call = |host: &mut Server, tool: &str, arguments: &Value| -> Value {
        serde_json::from_str(&host.call(tool, arguments)).expect("JSON")
    };
    assert_eq!(call(&mut host, "sessions_inbox", &json!({})), json!({ "messages": [] }));
    let mine = call(&mut host, "sessions_list", &json!({}));
    assert_eq!(mine["sessions"][0]["key"], "agent:claude:chat:c1");

    let mut watch = Watch::start(&world);
    let sender = Beside::start(world.command(["send", "agent:claude:chat:c1", "are", "you", "there?"]));
    let queued = watch.until(|rows| count(rows, "message", "queued") == 1);
    assert_eq!(queued[0]["delivery"], "queued");
    let inbox = call(&mut host, "sessions_inbox", &json!({}));
    let run = inbox["messages"][0]["runId"].clone();
    assert_eq!(
        (&run, &inbox["messages"][0]["message"], &inbox["messages"][0]["from"]),
        (&queued[0]["runId"], &json!("are you there?"), &json!("owner"))
    );
    let of = |world: &World| world.json(["runs"])["runs"][0]["delivery"].clone();
    assert_eq!(of(&world), "delivered");
    // Handed out again until it is answered.
    assert_eq!(call(&mut host, "sessions_inbox", &json!({}))["messages"][0]["runId"], run);
    let replied = call(&mut host, "sessions_reply", &json!({ "runId": run, "message": "I am." }));
    assert_eq!((&replied["status"], &replied["delivery"]), (&json!("ok"), &json!("replied")));
    assert_eq!(sender.line(), "I am.");
    assert_eq!(of(&world), "replied");
    let again = call(&mut host, "sessions_reply", &json!({ "runId": run, "message": "I am." }));
    assert_eq!(again["status"], "error", "{again}");
    assert_eq!(call(&mut host, "sessions_inbox", &json!({})), json!({ "messages": [] }));
}

/// Whether the person stops waiting or the process is killed: the reply is not lost.
#[test]
fn a_reply_finds_the_sender_that_no_longer_waits() {
    let world = World::new();
    world.write("c.yaml", "tools: {sessions: {visibility: agent}}\n");
    let host =
        |name: &str| Server::start_env(&world, &[("CLAUDE_CODE_SESSION_ID", name)], &["--config", "c.yaml"]);
    let (mut target, mut sender) = (host("c1"), host("c2"));
    let call = |host: &mut Server, tool: &str, arguments: &Value| -> Value {
        serde_json::from_str(&host.call(tool, arguments)).expect("JSON")
    };
    call(&mut target, "sessions_inbox", &json!({}));
    let mut watch = Watch::start(&world);
    for (n, signal) in ["INT", "KILL"].into_iter().enumerate() {
        let mut send =
            world.command(["--config", "c.yaml", "send", "agent:claude:chat:c1", "hello", "--wait", "60"]);
        send.env("CLAUDE_CODE_SESSION_ID", "c2");
        let sending = Beside::start(send);
        watch.until(|rows| count(rows, "send", "queued") == 1);
        assert_eq!(sending.signal(signal), (signal == "INT").then_some(130));
        let inbox = call(&mut target, "sessions_inbox", &json!({}));
        let run = inbox["messages"][0]["runId"].clone();
        call(&mut target, "sessions_reply", &json!({ "runId": run, "message": format!("reply {n}") }));
        let inbox = call(&mut sender, "sessions_inbox", &json!({}));
        let late = inbox["messages"].as_array().and_then(|messages| messages.last()).expect(signal);
        assert_eq!(late["message"], format!("reply {n}"), "{inbox}");
        watch.until(|rows| count(rows, "send", "done") == n + 1);
    }
}

#[test]
fn nobody_waits_for_ever_and_a_retry_acts_once() {
    let world = World::new();
    let mut host = Server::start_env(&world, &[("CLAUDE_CODE_SESSION_ID", "c1")], &[]);
    host.call("sessions_inbox", &json!({}));
    let send = ["send", "agent:claude:chat:c1", "hello", "--wait", "1", "--idempotency-key", "k1"];
    let late = world.run(send);
    assert_eq!((late.code, late.stdout.as_str()), (124, ""), "{late:?}");
    assert!(late.stderr.contains("no reply from agent:claude:chat:c1 within 1 s: it is queued"), "{late:?}");
    assert!(late.stderr.contains("next: `sess wait "), "{late:?}");
    let again: Value =
        serde_json::from_str(&world.run(send.into_iter().chain(["--json"])).stdout).expect("JSON");
    assert_eq!((&again["status"], &again["schema_version"]), (&json!("timeout"), &json!(1)));
    let runs = world.json(["runs"]);
    let [run] = runs["runs"].as_array().expect("a list").as_slice() else { panic!("{runs}") };
    assert_eq!(run["runId"], again["runId"]);
    let id = &again["runId"].as_str().expect("an id")[..8];
    let waited = world.run(["wait", id, "--timeout", "1"]);
    assert_eq!(waited.code, 124, "{waited:?}");
    assert!(waited.stderr.contains("the run goes on (queued)"), "{waited:?}");
    let cancelled = world.run(["cancel", id]);
    assert!(cancelled.stderr.contains(&format!("run {id} is cancelled: it had not begun")), "{cancelled:?}");
    assert_eq!(world.run(["wait", id]).code, 130);
    let again = world.run(["cancel", id]);
    assert_eq!(again.code, 3, "{again:?}");
    assert!(again.stderr.contains("had ended already: cancelled"), "{again:?}");
}

#[test]
fn a_changed_configuration_holds_from_the_next_call_on() {
    let world = World::new();
    world.write("old.jsonl", &crate::world::session("old", "x", &[crate::world::message("user", "hi", 1)]));
    world.ok(["import", "old.jsonl"]);
    let write = |text: &str| world.write("c.yaml", text);
    write("tools: {sessions: {visibility: self}}\n");
    let mut host = Server::start_env(&world, &[("CLAUDE_CODE_SESSION_ID", "c1")], &["--config", "c.yaml"]);
    let mut ask = || -> Value {
        let text = host.call("sessions_history", &json!({ "sessionKey": "agent:main:chat:old" }));
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"))
    };
    let answer = ask();
    assert_eq!(answer["status"], "forbidden", "{answer}");
    let restricted = "Session history visibility is restricted. Set tools.sessions.visibility=all to allow \
                      cross-agent access.";
    assert_eq!(answer["error"], restricted);
    write("tools: {sessions: {visibility: all}}\n");
    let answer = ask();
    let disabled = "Agent-to-agent history is disabled. Set tools.agentToAgent.enabled=true to allow \
                    cross-agent access.";
    assert_eq!(answer["error"], disabled);
    write("tools: {sessions: {visibility: all}, agentToAgent: {enabled: true}}\n");
    assert_eq!(ask()["messages"][0]["content"][0]["text"], "hi");
    // A broken file is an error, and never a guess.
    write("tools: {sessions: {visibility: al}}\n");
    let answer = ask();
    assert_eq!(answer["status"], "error", "{answer}");
    assert!(answer["error"].as_str().expect("text").contains("c.yaml:1:"), "{answer}");
    write("tools: {sessions: {visibility: all}, agentToAgent: {enabled: true}}\n");
    assert_eq!(ask()["messages"][0]["content"][0]["text"], "hi");
}

#[test]
fn what_cannot_be_sent_is_refused_with_a_reason() {
    let stage = Stage::with(Chat, PAIR, "- {text: hello}\n");
    let refused = |env: &[(&str, &str)], args: &[&str], code: i32, said: &str| {
        stage.sess(env, args.iter().copied()).fails(code, said);
    };
    let own = [("SESS_SESSION", "s9")];
    refused(&own, &["send", "current", "x"], 2, "sessions_send cannot target the calling session");
    refused(&own, &["send", "agent:main:chat:s9", "x"], 2, "sessions_send cannot target the calling session");
    for bad in ["agent:", "agent:a", "agent:-a:main", "agent:a::b", "agent:beta:foo", "cron:", "node-"] {
        refused(&[], &["send", bad, "x"], 2, &format!("malformed session key \"{bad}\""));
    }
    for unknown in ["global", "unknown", "nothing-like-it", "agent:beta:chat:none"] {
        refused(&[], &["send", unknown, "x"], 3, &format!("Session not found: {unknown}"));
    }
    refused(&[], &["send", "agent:gamma:main", "x"], 3, "agent:gamma:main");
    refused(&[], &["send", "agent:beta:main", " "], 2, "there is no message");
    refused(&[], &["send", "agent:beta:main", "x", "--wait", "601"], 2, "--wait is 0 to 600 seconds");
    refused(&[], &["spawn", "--agent", "gamma", "x"], 2, "unknown agent \"gamma\"");
    refused(&[], &["spawn", "--agent", "a b", "x"], 2, "Invalid agentId \"a b\"");
    std::fs::create_dir(stage.world.path("folder")).expect("made");
    for (file, why) in [
        ("none.txt", "No such file or directory"),
        ("agents.yaml/none.txt", "Not a directory"),
        ("folder", "it is not a regular file"),
    ] {
        refused(&[], &["spawn", "--attach", file, "x"], 2, &format!("cannot attach {file}: {why}"));
    }
    assert_eq!(stage.runs(&[]).len(), 0, "nothing was stored");
    refused(&[], &["wait", "nothing"], 3, "run \"nothing\" not found");
    refused(&[], &["cancel", "0123456789ab"], 3, "run \"0123456789ab\" not found");

    // Archived sessions are only read.
    assert_eq!(stage.ok(&[], "hi"), "hello\n");
    stage.world.ok(["archive", "s1"]);
    refused(&[], &["send", "s1", "x"], 3, "Session is archived");
    stage.world.ok(["unarchive", "s1"]);
    // An agent reaches what its rules allow, and no more.
    stage.world.write("tree.yaml", "agents: {alpha: {model: openai/x}}\n");
    stage
        .world
        .run_env(&own, ["--config", "tree.yaml", "send", "s1", "x"])
        .fails(8, "visibility is restricted");
    stage
        .world
        .run_env(&own, ["--config", "tree.yaml", "history", "s1"])
        .fails(8, "visibility is restricted");
}

/// `--session` says whose words they are; without it they are the person's.
#[test]
fn what_is_sent_or_spawned_for_a_session_is_that_session_s() {
    let script = "
- {system: BETA, text: b1}
- {system: ALPHA, text: REPLY_SKIP}
- {system: BETA, text: ANNOUNCE_SKIP}
";
    let stage = Stage::with(Chat, PAIR, script);
    let alpha = |args: &[&'static str]| {
        stage.sess(&[], ["--session", "agent:alpha:main"].into_iter().chain(args.iter().copied()))
    };
    let sent = alpha(&["send", "agent:beta:main", "one?", "--wait", "60"]);
    assert_eq!((sent.code, sent.stdout.as_str()), (0, "b1\n"), "{sent:?}");
    // The two go on, as after a message of alpha's own.
    let mut watch = Watch::start(&stage.world);
    watch.until(|rows| count(rows, "round", "done") == 1 && count(rows, "announce", "done") == 1);
    let heard = stage.world.json(["history", "agent:beta:main"])["messages"][0]["provenance"].clone();
    assert_eq!(
        (&heard["kind"], &heard["sourceSessionKey"]),
        (&json!("inter_session"), &json!("agent:alpha:main"))
    );
    let spawned = alpha(&["spawn", "--json", "count"]);
    assert_eq!(spawned.code, 0, "{spawned:?}");
    let task = stage.runs(&[]).remove(0);
    assert_eq!((&task["from"], &task["agent"]), (&json!("agent:alpha:main"), &json!("alpha")), "{task}");

    // Its rules hold, and nothing is made up for a name that nobody has.
    alpha(&["spawn", "--agent", "beta", "count"]).fails(8, "agentId is not allowed for sessions_spawn");
    alpha(&["send", "agent:alpha:main", "x"]).fails(2, "sessions_send cannot target the calling session");
    let before = stage.runs(&[]).len();
    for command in [vec!["send", "agent:beta:main", "x"], vec!["spawn", "x"]] {
        let unknown = ["--session", "nothing-like-it"].into_iter().chain(command.iter().copied());
        stage.sess(&[], unknown).fails(3, "Session not found: nothing-like-it");
        let other = ["--session", "agent:alpha:main"].into_iter().chain(command.iter().copied());
        stage.sess(&[("SESS_SESSION", "s9")], other).fails(8, "leave out --session");
    }
    assert_eq!(stage.runs(&[]).len(), before);
}

#[test]
fn a_task_is_spawned_with_its_files_and_waited_for() {
    let stage = Stage::with(Chat, FAMILY, "- {system: CHILD, text: It says 42.}\n");
    stage.world.write("numbers.txt", "42");
    std::fs::write(stage.world.path("raw.bin"), [0xff, 0xfe, 0]).expect("written");
    let args =
        ["spawn", "--agent", "child", "--label", "sum", "--attach", "numbers.txt", "--attach", "raw.bin"];
    let spawned = stage.sess(&[], args.into_iter().chain(["--wait", "60", "add", "them"]));
    assert_eq!((spawned.code, spawned.stdout.as_str()), (0, "It says 42.\n"), "{spawned:?}");
    let [row] = &stage.runs(&[])[..] else { panic!("one run") };
    assert_eq!(
        (&row["label"], &row["state"], &row["agent"]),
        (&json!("sum"), &json!("done"), &json!("child"))
    );
    // Without --wait it is only queued, and `sess wait` has it executed.
    let spawned = stage.sess(&[], ["spawn", "--agent", "child", "--json", "again"]);
    let spawned: Value = serde_json::from_str(&spawned.stdout).expect("JSON");
    assert_eq!(spawned["status"], "accepted");
    let waited =
        stage.sess(&[], ["wait", spawned["runId"].as_str().expect("an id"), "--timeout", "60", "--json"]);
    let waited: Value = serde_json::from_str(&waited.stdout).expect("JSON");
    assert_eq!((&waited["state"], &waited["result"]), (&json!("done"), &json!("It says 42.")));
    assert_eq!(waited["runId"], spawned["runId"]);
    // A run's fields are written as those of the answers beside it.
    let once_more = stage.sess(&[], ["spawn", "--agent", "child", "--json", "--wait", "60", "once", "more"]);
    let once_more: Value = serde_json::from_str(&once_more.stdout).expect("JSON");
    for data in [&waited, &stage.runs(&[])[0], &once_more, &once_more["run"]] {
        let mut names = data.as_object().expect("an object").keys();
        assert!(names.all(|name| name == "schema_version" || !name.contains('_')), "{data}");
    }
    let shown = stage.world.ok(["runs", "--tree"]);
    assert!(shown.contains("STATE") && shown.contains("done") && shown.contains("sum"), "{shown}");
}

#[test]
fn an_agent_that_starts_sess_run_speaks_as_its_session_and_only_where_it_may_send() {
    let script = "[{system: BETA, text: heard}, {system: ALPHA, text: heard}]";
    let closed = PAIR.replace("tools: {sessions: {visibility: all}, agentToAgent: {enabled: true}}", "");
    let agent = [("CLAUDE_CODE_SESSION_ID", "host-session-1")];
    let stage = Stage::with(Chat, &closed, script);
    let run = stage.sess(&agent, ["run", "--exec", "--session", "agent:beta:main", "I am the person"]);
    assert_eq!(run.code, 8, "{}", run.stderr);
    assert!(run.stderr.contains("Session send visibility is restricted"), "{}", run.stderr);
    assert_eq!(stage.runs(&[]).len(), 0, "nothing was said");

    let run = stage.sess(&agent, ["run", "--exec", "--session", "new-session", "I am the person"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let history = stage.world.json(["history", "new-session"]);
    assert_eq!(history["messages"][0]["provenance"]["kind"], "inter_session", "{history}");
    let said = stage.sess(&[], ["run", "--exec", "--session", "new-session", "So am I"]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    let history = stage.world.json(["history", "new-session"]);
    assert_eq!(history["messages"][2]["provenance"]["kind"], "external_user", "{history}");
}

#[test]
fn a_sandboxed_agent_s_session_is_sandboxed_at_every_door() {
    let boxed =
        PAIR.replace("  beta:", "  box: {model: m, sandbox: true, toolsets: [{type: sessions}]}\n  beta:");
    let stage = Stage::with(Chat, &boxed, "[]");
    stage.sess(&[], ["send", "agent:beta:main", "hello", "--wait", "0"]);
    let listed = |env: &[(&str, &str)], options: &[&str]| -> Vec<String> {
        let args = ["tool", "call", "sessions_list", "{}"].into_iter().chain(options.iter().copied());
        let run = stage.sess(env, args);
        let rows: Value =
            serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{} {}", run.stdout, run.stderr));
        let rows = rows["sessions"].as_array().unwrap_or_else(|| panic!("{rows}")).clone();
        rows.iter().map(|row| format!("{} {}", row["key"], row.get("transcriptPath").is_some())).collect()
    };
    let own = ["\"agent:box:main\" false"];
    assert_eq!(listed(&[], &["--session", "agent:box:main"]), own);
    assert_eq!(listed(&[("SESS_SESSION", "agent:box:main")], &[]), own);
    assert!(listed(&[], &["--session", "agent:alpha:main"]).len() >= 2, "who is free sees all");
}
