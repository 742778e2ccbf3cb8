//! What a terminal gets: columns that fit, colours unless refused, and nothing that steers it.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    os::fd::OwnedFd,
    process::{Child, Command, Stdio},
};

use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use serde_json::json;

use crate::world::{World, message, session};

const EVIL: &str = "evil \u{1b}[2J\u{1b}]0;owned\u{7} \u{9b}31m\u{202e}end";

/// Runs a command in a terminal of some width; returns what the terminal was sent.
pub fn in_terminal(mut command: Command, width: u16) -> String {
    command.stdin(Stdio::null());
    let (mut child, mut terminal) = start_in_terminal(command, width);
    let mut shown = Vec::new();
    // Linux says EIO when the last writer is gone: that is the end.
    let _end = terminal.read_to_end(&mut shown);
    child.wait().expect("it ends");
    String::from_utf8(shown).expect("UTF-8").replace("\r\n", "\n")
}

/// Starts a command in a terminal of some width; returns it with what the terminal is sent.
fn start_in_terminal(mut command: Command, width: u16) -> (Child, File) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&master).and_then(|()| unlockpt(&master)).expect("a terminal");
    let name = ptsname(&master, Vec::new()).expect("its name").into_string().expect("UTF-8");
    let size = Winsize { ws_row: 30, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 };
    let open = || File::options().read(true).write(true).open(&name).expect("the terminal opens");
    let slave = open();
    tcsetwinsize(&slave, size).expect("a size");
    command.env("TERM", "xterm-256color");
    command.stdout(OwnedFd::from(open())).stderr(OwnedFd::from(open()));
    (command.spawn().expect("sess starts"), File::from(master))
}

fn show(world: &World, width: u16, args: &[&str]) -> String {
    let mut command = world.command(args.iter().copied());
    command.env("NO_COLOR", "1");
    in_terminal(command, width)
}

fn evil_world() -> World {
    let world = World::new();
    world.write("evil.jsonl", &session("evil-session", EVIL, &[message("user", EVIL, 1)]));
    world.ok(["import", "evil.jsonl"]);
    world.ok_input(EVIL, ["plan", "write", "--session", "evil-session"]);
    world.ok_input(&format!("{EVIL} 2"), ["plan", "write", "--session", "evil-session"]);
    world
}

#[test]
fn control_characters_are_made_visible_in_every_command() {
    let world = evil_world();
    let commands: [&[&str]; 20] = [
        &[],
        &["list"],
        &["read", "-1"],
        &["search", "evil"],
        &["history", "-1"],
        &["history", EVIL],
        &["send", EVIL, "x"],
        &["runs"],
        &["events"],
        &["plan", "show"],
        &["plan", "diff"],
        &["plan", "log"],
        &["plan", "export"],
        &["star", "-1"],
        &["rename", "-1", EVIL],
        &["read", EVIL],
        &["tool", "call", "read_session", r#"{"session_id":"-1"}"#],
        &["import", EVIL],
        &["tool", "call", "read_session", "{\"session_id\":\"\\u001b[2J\"}"],
        &["doctor"],
    ];
    for args in commands {
        for json in [&[][..], &["--json"]] {
            let all = [args, json].concat();
            let shown = show(&world, 200, &all);
            let bad = shown.chars().find(|&c| c.is_control() && !"\n\t".contains(c) || c == '\u{202e}');
            assert_eq!(bad, None, "{all:?}: {shown:?}");
        }
    }
    assert!(show(&world, 200, &["list"]).contains("evil ␛[2J␛]0;owned␇"));
    assert!(show(&world, 200, &["export", "-1"]).contains("\\u009b31m\\u202eend"));
    // Whoever is no terminal gets the bytes.
    assert_eq!(world.ok(["plan", "show", "--revision", "1"]), EVIL);
}

/// What a terminal obeys, reads as another text, or shows as nothing.
const ESCAPES: [&str; 12] = [
    "\u{1b}[2J\u{1b}[H",
    "\u{1b}]0;owned\u{7}",
    "\u{1b}]52;c;b3duZWQ=\u{1b}\\",
    "\u{1b}]8;;https://evil.invalid\u{1b}\\link\u{1b}]8;;\u{1b}\\",
    "\u{1b}P+q544e\u{1b}\\",
    "\u{1b}[?1049h\u{1b}[6n",
    "\u{9b}31m\u{9d}0;owned\u{9c}",
    "safe\rowned",
    "owned\u{8}\u{8}\u{8}\u{8}\u{8}safe!",
    "\u{7f}\u{0}\u{b}\u{c}\u{e}\u{f}",
    "\u{202e}dnwo\u{202c}\u{2066}x\u{2069}",
    "\u{feff}\u{200b}\u{2028}\u{2029}\u{85}",
];

/// A session with escapes in each field that an import takes, and a run whose model says them.
fn hostile_world() -> World {
    let world = World::new();
    let evil = ESCAPES.concat();
    let message = |role: &str, content: serde_json::Value, more: serde_json::Value| {
        let mut message = json!({ "role": role, "content": content, "timestamp": 1_767_323_045_000_i64 });
        message.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        message
    };
    let text = || json!([{ "type": "text", "text": evil }]);
    let call = json!([
        { "type": "thinking", "text": evil },
        { "type": "toolCall", "id": "c1", "name": evil, "arguments": { evil.as_str(): evil, "cmd": evil } },
    ]);
    let peer =
        json!({ "kind": "inter_session", "sourceSessionKey": "agent:main:chat:peer", "sourceTool": evil });
    let messages = [
        message("user", text(), json!({ "provenance": { "kind": "external_user" } })),
        message("assistant", call, json!({ "model": evil, "stopReason": evil, "runId": evil })),
        message("toolResult", text(), json!({ "toolCallId": "c1", "toolName": evil, "isError": true })),
        message("user", text(), json!({ "provenance": peer })),
        message("system", json!([{ "type": "compaction", "summary": evil }]), json!({})),
        message("system", json!([{ "type": evil, "text": evil }]), json!({})),
        message("user", json!([{ "type": "image", "mimeType": evil, "data": "AAAA" }]), json!({})),
    ];
    world.write("hostile.jsonl", &session("hostile", &evil, &messages));
    world.ok(["import", "hostile.jsonl"]);
    for revision in ["one", "two"] {
        world.ok_input(&format!("# {revision}\n\n{evil}\n"), ["plan", "write", "--session", "hostile"]);
    }
    world.ok(["token", "create", "--scope", "read", "--label", &evil.replace('\0', "")]);
    let said = json!({ "text": evil, "tool_calls": [{ "name": evil, "arguments": { "cmd": evil } }] });
    world.write("script.jsonl", &format!("{said}\n{}\n", json!({ "text": evil })));
    let config = "agents: {root: {model: scripted/script.jsonl, toolsets: [{type: shell}]}}\n";
    world.write("team.yaml", config);
    world
}

#[test]
fn escapes_in_each_field_are_made_visible() {
    let world = hostile_world();
    let words = ESCAPES.concat().replace('\0', "");
    let commands: [&[&str]; 20] = [
        &["run", "team.yaml", "--exec", &words],
        &["run", "team.yaml", "--exec", "--session", "hostile", "go on"],
        &["list"],
        &["read", "hostile"],
        &["read", "-1"],
        &["history", "hostile", "--tools"],
        &["history", "-1", "--tools"],
        &["search", "owned"],
        &["runs"],
        &["runs", "--tree"],
        &["events"],
        &["plan", "show", "--session", "hostile"],
        &["plan", "diff", "--session", "hostile"],
        &["plan", "log", "--session", "hostile"],
        &["export", "hostile"],
        &["token", "list"],
        &["rename", "hostile", &words],
        &["send", "hostile", &words],
        &["tool", "call", "read_session", r#"{"session_id":"hostile"}"#],
        &["tool", "call", "sessions_history", r#"{"sessionKey":"hostile","includeTools":true}"#],
    ];
    let mut shown_at_all = 0;
    for args in commands {
        for json in [&[][..], &["--json"]] {
            let all = [args, json].concat();
            let shown = show(&world, 200, &all);
            check_tame(&all, &shown);
            shown_at_all += usize::from(shown.contains("owned"));
        }
    }
    assert!(shown_at_all > 20, "only {shown_at_all} showed anything of it");
}

#[track_caller]
fn check_tame(args: &[&str], shown: &str) {
    let steers =
        |c: char| c.is_control() && !"\n\t".contains(c) || "\u{202e}\u{202c}\u{2066}\u{2069}".contains(c);
    assert_eq!(shown.chars().find(|&c| steers(c)), None, "{args:?}: {shown:?}");
}

#[test]
fn escapes_in_why_a_run_failed_and_in_what_agents_are_called_are_made_visible() {
    let world = World::new();
    let evil = ESCAPES.concat();
    let html = "<img src=x onerror=alert(1)>";
    let name = format!("{evil}{html}");
    world.write("script.jsonl", &format!("{}\n", json!({ name.as_str(): 1 })));
    world.write("team.yaml", "agents: {root: {model: scripted/script.jsonl}}\n");
    let named =
        json!({ "agents": { name.as_str(): { "model": "scripted/script.jsonl", "description": name } } });
    world.write("named.yaml", &format!("{named}\n"));
    let ran = show(&world, 400, &["run", "team.yaml", "--exec", "hello"]);
    check_tame(&["run"], &ran);
    let run = world.json(["runs"])["runs"][0].clone();
    assert!(run["error"].as_str().is_some_and(|error| error.contains("owned")), "{run}");
    let id = run["id"].as_str().or(run["runId"].as_str()).expect("an id");
    let commands: [&[&str]; 11] = [
        &["runs"],
        &["runs", "--tree"],
        &["wait", id],
        &["cancel", id],
        &["list"],
        &["read", "-1"],
        &["history", "-1"],
        &["events"],
        &["config", "check", "named.yaml"],
        &["run", "named.yaml", "--exec", "hello"],
        &["run", "team.yaml", "--exec", "--agent", &name.replace('\0', ""), "hello"],
    ];
    let mut shown_at_all = 0;
    for args in commands {
        for json in [&[][..], &["--json"]] {
            let all = [args, json].concat();
            let shown = show(&world, 400, &all);
            check_tame(&all, &shown);
            shown_at_all += usize::from(shown.contains("owned") && shown.contains(html));
        }
    }
    assert!(shown_at_all >= 6, "only {shown_at_all} showed anything of it");
}

#[test]
fn the_title_gives_way_and_the_id_stays() {
    let world = World::new();
    let ids = ["3a1f9c52-8f1e-4c0a-9b1a-6f2d5b7c8e90", "3a1f9c52-8f2e-4c0a-9b1a-6f2d5b7c8e91", "short"];
    let titles = [
        "A title that is far too long for eighty columns and then some more words",
        "日本語のタイトルはとても長いので切り詰める必要があります🎉🎉",
        "",
    ];
    for ((id, title), n) in ids.iter().zip(titles).zip(1..) {
        world.write("s.jsonl", &session(id, title, &[message("user", "x", n)]));
        world.ok(["import", "s.jsonl"]);
    }
    for width in [60, 80, 100, 120, 200] {
        let table = show(&world, width, &["list"]);
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(lines.len(), 4, "{table}");
        let columns: Vec<_> = lines.iter().map(|line| console_width(line)).collect();
        assert!(columns.iter().all(|&line| line <= usize::from(width)), "{columns:?}\n{table}");
        // Each id is there as a reference that works.
        for (line, id) in lines[1..].iter().zip(["short", ids[1], ids[0]]) {
            let shown = line.split_whitespace().nth(1).expect("an id");
            assert!(id.starts_with(shown), "{shown} of {id}");
            assert_eq!(world.json(["read", shown])["session_id"], id);
        }
    }
    let narrow = show(&world, 80, &["list"]);
    assert!(narrow.contains("-3   3a1f9c52-8f1  A title that is far too long fo…"), "{narrow}");
    assert!(show(&world, 120, &["list"]).contains(ids[0]));
    for args in [&["events"][..], &["search", "x"]] {
        let shown = show(&world, 80, args);
        assert!(shown.lines().all(|line| console_width(line) <= 80), "{shown}");
    }
}

/// How many columns a line takes.
fn console_width(line: &str) -> usize {
    console::measure_text_width(line)
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let world = World::with_sessions();
    world.ready_plan();
    world.ok_input("# Plan\n\ntwo\n", ["plan", "write", "--session", "s1"]);
    for args in [
        &["list"][..],
        &["plan", "diff"],
        &["search", "uploads"],
        &["doctor"],
        &["--help"],
        &["nothing"],
        &["read", "nobody"],
    ] {
        let piped = world.run_env(&[("TERM", "xterm-256color")], args.iter().copied());
        assert!(!piped.stdout.contains('\u{1b}') && !piped.stderr.contains('\u{1b}'), "{args:?} {piped:?}");
        assert!(in_terminal(world.command(args.iter().copied()), 80).contains('\u{1b}'), "{args:?}");
        assert!(!show(&world, 80, args).contains('\u{1b}'), "{args:?} with NO_COLOR");
    }
}

#[test]
fn a_person_is_told_how_a_plan_stands_and_data_stays_clean() {
    let world = World::new();
    world.ready_plan();
    let shown = show(&world, 80, &["plan", "show"]);
    assert_eq!(
        shown,
        "# Plan\n\none\n— revision 1 of session s1: ready\n  next: `sess plan approve`, or `sess plan request-changes -m …`\n"
    );
    let piped = world.run(["plan", "show"]);
    assert_eq!((piped.stdout.as_str(), piped.stderr.as_str()), ("# Plan\n\none\n", ""));
    // A terminal gets JSON to read, a pipe gets one line.
    assert!(show(&world, 80, &["plan", "show", "--json"]).starts_with("{\n  \"schema_version\": 1,\n"));
    let piped = world.ok(["plan", "show", "--json"]);
    assert_eq!(piped.lines().count(), 1);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&piped).expect("JSON")["state"], json!("ready"));
}

#[test]
fn a_long_import_shows_its_progress_and_takes_it_away() {
    let world = World::new();
    let many: Vec<_> = (0..60_000).map(|n| message("user", "some words that are indexed", n)).collect();
    world.write("many.jsonl", &session("many", "", &many));
    let started = std::time::Instant::now();
    let shown = in_terminal(world.command(["import", "many.jsonl"]), 80);
    // What is over within half a second shows no bar, rightly.
    let is_long = started.elapsed().as_secs() >= 2;
    assert!(shown.contains("imported many: 60000 messages"), "{shown}");
    assert!(!is_long || shown.contains("importing ") || shown.contains("indexing messages "), "{shown}");
    let last = shown.trim_end().rsplit(['\n', '\r']).next().expect("a line");
    assert!(!last.contains("60,000/60,000"), "the bar is gone at the end: {last:?}");
    assert_eq!(world.run(["import", "many.jsonl"]).stderr, "", "no bar where nobody looks");
}

#[test]
fn the_clock_of_a_bar_moves_while_nothing_is_done() {
    let world = World::new();
    let mut command = world.command(["import", "-"]);
    command.stdin(Stdio::piped());
    let (mut child, mut terminal) = start_in_terminal(command, 80);
    let mut input = child.stdin.take().expect("a pipe");
    let (mut shown, mut buffer) = (String::new(), [0; 4096]);
    while ![" 1s", " 2s"].iter().all(|clock| shown.contains(clock)) {
        let len = terminal.read(&mut buffer).expect("it shows something");
        shown += &String::from_utf8_lossy(&buffer[..len]);
    }
    assert!(shown.contains("importing ") && shown.contains(" 0/1 "), "{shown}");
    input.write_all(session("one", "", &[message("user", "words", 1)]).as_bytes()).expect("written");
    drop(input);
    let mut rest = Vec::new();
    let _end = terminal.read_to_end(&mut rest);
    assert!(child.wait().expect("it ends").success());
    assert!(String::from_utf8_lossy(&rest).contains("imported one: 1 message"), "{rest:?}");
}

#[test]
fn a_long_session_is_read_with_a_sign_of_life() {
    let world = World::new();
    let id = "5b0c1f62-0000-4000-8000-000000000000";
    let line = |n: u32| {
        let parent = n.checked_sub(1).map(|n| format!("u{n}"));
        json!({
            "type": "user", "uuid": format!("u{n}"), "parentUuid": parent, "sessionId": id, "cwd": "/w",
            "timestamp": "2026-11-10T09:00:00Z", "message": { "role": "user", "content": "some words that are read" },
        })
    };
    let lines: String = (0..30_000).map(|n| format!("{}\n", line(n))).collect();
    std::fs::create_dir_all(world.path(".claude/projects/-w")).expect("made");
    world.write(&format!(".claude/projects/-w/{id}.jsonl"), &lines);
    for args in [&["read", "-1"][..], &["handoff", "-1"]] {
        let started = std::time::Instant::now();
        let shown = show(&world, 80, args);
        // What is over within half a second shows nothing, rightly.
        let is_long = started.elapsed().as_secs() >= 1;
        assert!(shown.contains("some words that are read"), "{shown}");
        let Some((_, behind)) = shown.rsplit_once(" reading ") else {
            assert!(!is_long, "{shown}");
            continue;
        };
        assert!(behind.contains("\r\u{1b}[2K# "), "it is gone before anything is printed: {behind:?}");
    }
    assert!(!world.run(["read", "-1"]).stderr.contains("reading"), "nothing where nobody looks");
}
