//! The checks of a spawn, in their order.

use super::*;
use crate::{
    agent::{Limits, ModelSpec, Provider, Thinking},
    permission::Permissions,
    sandbox::Sandbox,
};

fn team() -> Team {
    let agent = |name: &str, allow: &[&str], sandbox: Option<Sandbox>| Agent {
        name: name.parse().expect(name),
        description: String::new(),
        instruction: String::new(),
        model: "big".to_owned(),
        toolsets: Vec::new(),
        commands: Vec::new(),
        handoffs: Vec::new(),
        sub_agents: Vec::new(),
        sandbox,
        allow_agents: allow.iter().map(|name| (*name).to_owned()).collect(),
        limits: Limits::default(),
    };
    let model = |name: &str| ModelSpec {
        name: name.to_owned(),
        provider: Provider::Scripted,
        model: String::new(),
        base_url: None,
        token_key: None,
        max_tokens: None,
        temperature: None,
        thinking: Thinking::Unset,
        context_window: None,
        price: None,
    };
    let agents = vec![
        agent("root", &["coder", "ghost", "Box"], None),
        agent("coder", &[], None),
        agent("any", &["*"], None),
        agent("box", &["coder"], Some(Sandbox::default())),
    ];
    Team::new(agents, vec![model("big"), model("small")], Permissions::default(), None).expect("a team")
}

/// A request, and who makes it: `key` of the asking session, or `owner`.
#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "requests are written where they are checked")]
fn check_as(who: &str, asked: Asked<'_>, answer: &str) {
    check_with(who, &asked, 0, answer);
}

#[track_caller]
fn check_with(who: &str, asked: &Asked<'_>, live_children: u32, answer: &str) {
    let (team, rules) = (team(), SessionRules::default());
    let key: Option<SessionKey> = (who != "owner").then(|| who.parse().expect(who));
    let spawner = Spawner {
        key: key.as_ref(),
        channel: Channel::Webchat,
        is_sandboxed: who.contains(":box:"),
        live_children,
        team: Some(&team),
        rules: &rules,
    };
    let told = match check(asked, &spawner) {
        Ok(approved) => format!("ok {}", approved.agent),
        Err(Refusal::Forbidden(reason)) => format!("forbidden {reason}"),
        Err(Refusal::Invalid(reason)) => format!("error {reason}"),
    };
    assert_eq!(told, answer);
}

const ROOT: &str = "agent:root:main";

fn task() -> Asked<'static> {
    Asked { task: "look", ..Asked::default() }
}

fn to(agent: &str) -> Asked<'_> {
    Asked { agent: Some(agent), ..task() }
}

#[test]
fn a_task_says_something_of_a_size_that_can_be_sent() {
    check_as(ROOT, task(), "ok root");
    check_as(ROOT, Asked { task: " \n", ..task() }, "error the task is empty");
    let long = "x".repeat(MESSAGE_BYTES_MAX + 1);
    check_as(ROOT, Asked { task: &long, ..task() }, "error the task has 262145 bytes, of at most 262144");
    check_as(ROOT, Asked { task: &long[1..], ..task() }, "ok root");
    check_as(
        ROOT,
        Asked { label: Some(&long[..201]), ..task() },
        "error the label has 201 characters, of at most 200",
    );
}

#[test]
fn agent_ids_have_a_syntax() {
    for bad in ["", "-a", "a b", "a/b", "agent:x", "ä"] {
        check_as(
            ROOT,
            to(bad),
            &format!(
                "error Invalid agentId \"{bad}\". Agent IDs must match [a-z0-9][a-z0-9_-]{{0,63}}. Use agents_list \
                 to discover valid targets."
            ),
        );
    }
    check_as(ROOT, to(" Coder "), "ok coder");
}

#[test]
fn a_lasting_session_needs_a_thread() {
    check_as(
        ROOT,
        Asked { mode: Some("session"), ..task() },
        "error mode=\"session\" requires thread=true so the subagent can stay bound to a thread.",
    );
    check_as(ROOT, Asked { mode: Some("run"), ..task() }, "ok root");
    check_as(ROOT, Asked { mode: Some("x"), ..task() }, "error unknown mode \"x\": one of run, session");
}

#[test]
fn a_sub_agent_spawns_nothing() {
    check_as(
        "agent:root:subagent:1",
        task(),
        "forbidden sessions_spawn is not allowed from a sub-agent session",
    );
}

#[test]
fn a_session_has_so_many_live_children() {
    check_with(ROOT, &task(), 4, "ok root");
    for live in [5, 6] {
        check_with(
            ROOT,
            &task(),
            live,
            &format!("forbidden sessions_spawn has reached max active children for this session ({live}/5)"),
        );
    }
}

#[test]
fn other_agents_are_spawned_when_they_are_named() {
    check_as(ROOT, to("root"), "ok root");
    check_as(ROOT, to("coder"), "ok coder");
    check_as(ROOT, to("box"), "ok box");
    check_as(
        ROOT,
        to("any"),
        "forbidden agentId is not allowed for sessions_spawn (allowed: box, coder, ghost)",
    );
    check_as(ROOT, to("ghost"), "error unknown agent \"ghost\"");
    check_as(
        "agent:coder:main",
        to("root"),
        "forbidden agentId is not allowed for sessions_spawn (allowed: none)",
    );
    check_as("agent:any:main", to("coder"), "ok coder");
    check_as("agent:any:main", to("nobody"), "error unknown agent \"nobody\"");
    check_as("agent:claude:chat:1", task(), "error unknown agent \"claude\"");
    check_as(
        "agent:claude:chat:1",
        to("coder"),
        "forbidden agentId is not allowed for sessions_spawn (allowed: none)",
    );
    check_as("owner", task(), "ok root");
    check_as("owner", to("coder"), "ok coder");
    check_as("owner", to("nobody"), "error unknown agent \"nobody\"");
}

#[test]
fn a_sandbox_is_not_left_by_spawning() {
    check_as("agent:box:main", task(), "ok box");
    check_as(
        "agent:box:main",
        to("coder"),
        "forbidden Sandboxed sessions cannot spawn unsandboxed subagents.",
    );
    let require = |agent| Asked { sandbox: Some("require"), ..to(agent) };
    check_as(ROOT, require("box"), "ok box");
    check_as(
        ROOT,
        require("coder"),
        "forbidden sessions_spawn sandbox=\"require\" needs a sandboxed target runtime.",
    );
    let odd = Asked { sandbox: Some("x"), ..task() };
    check_as(ROOT, odd, "error unknown sandbox \"x\": one of inherit, require");
}

#[test]
fn thinking_and_model_are_known() {
    check_as(
        ROOT,
        Asked { thinking: Some("hard"), ..task() },
        "error unknown thinking level \"hard\": one of off, minimal, low, medium, high",
    );
    check_as(
        ROOT,
        Asked { model: Some("huge"), ..task() },
        "error unknown model \"huge\": one of big, small",
    );
    check_as(ROOT, Asked { thinking: Some("minimal"), model: Some("small"), ..task() }, "ok root");
    check_as(
        ROOT,
        Asked { cleanup: Some("x"), ..task() },
        "error unknown cleanup \"x\": one of keep, delete",
    );
}

#[test]
fn threads_need_a_channel_that_has_them() {
    check_as(
        ROOT,
        Asked { is_thread: true, ..task() },
        "error thread=true is unavailable: channel \"webchat\" does not support threads",
    );
}

fn file<'a>(name: &'a str, content: &'a str) -> AskedFile<'a> {
    AskedFile { name, content, encoding: Some("base64") }
}

fn with(files: Vec<AskedFile<'_>>) -> Asked<'_> {
    Asked { files, ..task() }
}

#[test]
fn attachments_are_taken_all_or_none() {
    let text = AskedFile { name: "a.txt", content: "ä\n", encoding: None };
    check_as(ROOT, with(vec![text.clone(), file("b", "aGk=")]), "ok root");
    for name in ["", ".", "..", ".manifest.json", "a/b", "a\\b", "a\0b", "a\nb", "a\u{7f}"] {
        check_as(ROOT, with(vec![file(name, "")]), &format!("error attachments_invalid_name ({name})"));
    }
    let long = "x".repeat(256);
    check_as(ROOT, with(vec![file(&long, "")]), &format!("error attachments_invalid_name ({long})"));
    check_as(ROOT, with(vec![text.clone(), file("a.txt", "")]), "error attachments_duplicate_name (a.txt)");
    for bad in ["a", "aGk", "aGk=\n", "aGl=", "====", "a===", "aG=k", "aGk=aGk=", "!!!!", "aGk\u{a0}"] {
        check_as(ROOT, with(vec![file("b", bad)]), "error attachments_invalid_base64 (b)");
    }
    check_as(
        ROOT,
        with(vec![AskedFile { encoding: Some("gzip"), ..text }]),
        "error attachments_invalid_encoding (a.txt: \"gzip\", one of utf8, base64)",
    );
    let names: Vec<String> = (0..=FILES_MAX).map(|n| n.to_string()).collect();
    let many: Vec<AskedFile<'_>> = names.iter().map(|name| file(name, "")).collect();
    check_as(ROOT, with(many.clone()), "error attachments_file_count_exceeded (maxFiles=50)");
    check_as(ROOT, with(many[1..].to_vec()), "ok root");
}

#[test]
fn attachments_have_a_size() {
    let large = "x".repeat(FILE_BYTES_MAX);
    let plain = |name: &'static str| AskedFile { name, content: &large, encoding: Some("utf8") };
    check_as(ROOT, with(vec![plain("a")]), "ok root");
    let larger = "A".repeat(FILE_BYTES_MAX.div_ceil(3) * 4 + 4);
    check_as(
        ROOT,
        with(vec![file("a", &larger)]),
        "error attachments_file_bytes_exceeded (name=a bytes=1048581 maxFileBytes=1048576)",
    );
    let five = vec![plain("a"), plain("b"), plain("c"), plain("d"), plain("e")];
    check_as(ROOT, with(five.clone()), "ok root");
    let mut more = five;
    more.push(file("f", "aGk="));
    check_as(
        ROOT,
        with(more),
        "error attachments_total_bytes_exceeded (totalBytes=5242882 maxTotalBytes=5242880)",
    );
}

#[test]
fn base64_is_decoded_to_what_was_encoded() {
    let check = |text: &str, bytes: &[u8]| {
        let files = check_files(&[file("a", text)]).expect(text);
        assert_eq!(files[0].content, bytes, "{text}");
    };
    check("", b"");
    check("aA==", b"h");
    check("aGk=", b"hi");
    check("aGkh", b"hi!");
    check("+/8A", &[0xfb, 0xff, 0]);
}

#[test]
fn the_first_check_that_fails_answers() {
    // Everything is wrong; what answers is mended, one after the other.
    let mut asked = Asked {
        task: "",
        agent: Some("-"),
        mode: Some("session"),
        thinking: Some("hard"),
        sandbox: Some("require"),
        files: vec![file("..", "")],
        ..Asked::default()
    };
    let sub_agent = "agent:box:subagent:1";
    check_with(sub_agent, &asked, 9, "error the task is empty");
    asked.task = "look";
    check_with(
        sub_agent,
        &asked,
        9,
        "error Invalid agentId \"-\". Agent IDs must match [a-z0-9][a-z0-9_-]{0,63}. Use agents_list to discover \
         valid targets.",
    );
    asked.agent = Some("root");
    check_with(
        sub_agent,
        &asked,
        9,
        "error mode=\"session\" requires thread=true so the subagent can stay bound to a thread.",
    );
    asked.is_thread = true;
    check_with(sub_agent, &asked, 9, "forbidden sessions_spawn is not allowed from a sub-agent session");
    let main = "agent:box:main";
    check_with(
        main,
        &asked,
        9,
        "forbidden sessions_spawn has reached max active children for this session (9/5)",
    );
    check_as(main, asked.clone(), "forbidden agentId is not allowed for sessions_spawn (allowed: coder)");
    asked.agent = Some("coder");
    check_as(main, asked.clone(), "forbidden Sandboxed sessions cannot spawn unsandboxed subagents.");
    asked.agent = None;
    check_as(
        main,
        asked.clone(),
        "error unknown thinking level \"hard\": one of off, minimal, low, medium, high",
    );
    asked.thinking = None;
    check_as(
        main,
        asked.clone(),
        "error thread=true is unavailable: channel \"webchat\" does not support threads",
    );
    (asked.mode, asked.is_thread) = (None, false);
    check_as(main, asked.clone(), "error attachments_invalid_name (..)");
    asked.files.clear();
    check_as(main, asked, "ok box");
}
