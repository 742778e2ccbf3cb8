//! `sess install` and `uninstall`: files of seven programs, as people really have them.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::world::World;

/// Each host, the file in which it keeps servers, and what one looks like there.
const HOSTS: [(&str, &str, &str); 7] = [
    (
        "claude",
        ".claude.json",
        "{\r\n\t\"numStartups\":7,\r\n\t\"mcpServers\":{ \"other\":{\"command\":\"x\"} }\r\n}",
    ),
    ("codex", ".codex/config.toml", "# mine\r\nmodel = \"m\"\r\n\r\n[mcp_servers.other]\r\ncommand = \"x\""),
    (
        "opencode",
        ".config/opencode/opencode.json",
        "{ // mine\n  \"theme\": \"t\",\n  \"mcp\": {\n    /* none */\n  },\n}",
    ),
    (
        "gemini",
        ".gemini/settings.json",
        "{\n    // mine\n    \"hooks\": {\"SessionStart\": [{\"hooks\": []}]},\n    \"ui\": {}\n}\n",
    ),
    (
        "goose",
        ".config/goose/config.yaml",
        "# mine\nGOOSE_MODEL: m\nextensions: # some\n    other:\n        enabled: false\nlast: |\n    text",
    ),
    (
        "zed",
        ".config/zed/settings.json",
        "// mine\n{\n  \"theme\": \"One\", // dark\n  \"context_servers\": {},\n}\n",
    ),
    ("cursor", ".cursor/mcp.json", "\u{feff}{\"mcpServers\":{\"other\":{\"url\":\"u\"}}}"),
];

/// Every file and directory of a world but its own data, with contents and mode.
fn snapshot(world: &World) -> BTreeMap<PathBuf, (u32, Option<Vec<u8>>)> {
    fn walk(dir: &Path, data: &Path, found: &mut BTreeMap<PathBuf, (u32, Option<Vec<u8>>)>) {
        for entry in fs::read_dir(dir).expect("readable") {
            let path = entry.expect("an entry").path();
            let about = fs::symlink_metadata(&path).expect("there");
            if path == data {
                continue;
            }
            let bytes = about.is_file().then(|| fs::read(&path).expect("readable"));
            if about.is_dir() {
                walk(&path, data, found);
            }
            found.insert(path, (about.permissions().mode(), bytes));
        }
    }
    let mut found = BTreeMap::new();
    walk(&world.path(""), &world.data(), &mut found);
    found
}

fn put(world: &World, file: &str, text: &str) -> PathBuf {
    let path = world.path(file);
    fs::create_dir_all(path.parent().expect("a directory")).expect("made");
    fs::write(&path, text).expect("written");
    path
}

fn actions(answer: &Value) -> Vec<&str> {
    answer["files"]
        .as_array()
        .expect("files")
        .iter()
        .map(|file| file["action"].as_str().expect("text"))
        .collect()
}

#[test]
fn a_fresh_home_gets_files_and_is_empty_again() {
    for (host, file, _) in HOSTS {
        let world = World::new();
        let before = snapshot(&world);
        let diff = world.ok(["install", host, "--dry-run"]);
        assert!(diff.contains("+++ ") && diff.contains("sess"), "{host}: {diff}");
        assert_eq!(snapshot(&world), before, "{host}");
        assert!(!world.data().exists());

        world.ok(["install", host]);
        let text = world.read(file);
        assert!(text.contains(env!("CARGO_BIN_EXE_sess")) && text.contains("mcp"), "{host}: {text}");
        let installed = snapshot(&world);
        for (path, (mode, bytes)) in &installed {
            let expected = if bytes.is_some() { 0o600 } else { 0o700 };
            assert_eq!(mode & 0o777, expected, "{}", path.display());
        }
        let again = world.json(["install", host]);
        assert!(actions(&again).iter().all(|&action| action == "unchanged"), "{again}");
        assert_eq!(snapshot(&world), installed, "{host}");

        world.ok(["uninstall", host]);
        assert_eq!(snapshot(&world), before, "{host}");
        assert!(world.run(["uninstall", host]).stderr.contains("nothing is installed"));
    }
}

#[test]
fn what_was_there_is_there_again_byte_for_byte() {
    for (host, file, text) in HOSTS {
        let world = World::new();
        let path = put(&world, file, text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("set");
        let before = snapshot(&world);
        world.ok(["install", host, "--dry-run"]);
        world.ok(["uninstall", host, "--dry-run"]);
        assert_eq!(snapshot(&world), before, "{host}");

        world.ok(["install", host]);
        let after = fs::read_to_string(&path).expect("readable");
        assert!(after.len() > text.len() && after.contains("\"mcp\""), "{host}: {after}");
        assert_eq!(path.metadata().expect("there").permissions().mode() & 0o777, 0o640);
        for line in text.lines().map(str::trim).filter(|line| line.contains("mine")) {
            assert!(after.contains(line), "{host}: {after}");
        }
        let installed = snapshot(&world);
        world.ok(["install", host]);
        assert_eq!(snapshot(&world), installed, "{host}");

        let answer = world.json(["uninstall", host]);
        assert_eq!(actions(&answer)[0], "restored", "{host}");
        assert_eq!(snapshot(&world), before, "{host}");
    }
}

#[test]
fn what_somebody_changed_since_stays() {
    // Hosts and people write into the same files; here all do, each in its own way.
    let changed = [
        ("claude", "\"numStartups\":7", "\"numStartups\":8"),
        ("codex", "model = \"m\"", "model = \"n\""),
        ("opencode", "\"theme\": \"t\"", "\"theme\": \"u\""),
        ("gemini", "\"ui\": {}", "\"ui\": {\"a\": 1}"),
        ("goose", "GOOSE_MODEL: m", "GOOSE_MODEL: n"),
        ("zed", "\"One\"", "\"Two\""),
        ("cursor", "\"url\":\"u\"", "\"url\":\"v\""),
    ];
    for ((host, file, text), (_, from, to)) in HOSTS.into_iter().zip(changed) {
        let world = World::new();
        let path = put(&world, file, text);
        world.ok(["install", host]);
        let after = fs::read_to_string(&path).expect("readable");
        fs::write(&path, after.replace(from, to)).expect("written");
        let answer = world.json(["uninstall", host]);
        assert_eq!(actions(&answer)[0], "taken_out", "{host}: {answer}");
        let rest = fs::read_to_string(&path).expect("readable");
        assert!(rest.contains(to) && !rest.contains("sess"), "{host}: {rest}");
    }
}

#[test]
fn a_file_that_its_host_wrote_anew_gives_the_entry_back() {
    // Claude Code writes its whole file again, in its own form, whenever it starts.
    let world = World::new();
    let path = put(&world, ".claude.json", "{\"a\":1}");
    world.ok(["install", "claude"]);
    let document: Value = serde_json::from_slice(&fs::read(&path).expect("readable")).expect("JSON");
    let mut document = document.as_object().expect("an object").clone();
    document.insert("b".to_owned(), json!(2));
    fs::write(&path, serde_json::to_string_pretty(&document).expect("written")).expect("written");
    world.ok(["uninstall", "claude"]);
    assert_eq!(fs::read_to_string(&path).expect("readable"), "{\n  \"a\": 1,\n  \"b\": 2\n}");
}

#[test]
fn the_record_stays_as_long_as_our_entry_does() {
    let world = World::new();
    let path = put(&world, ".codex/config.toml", "a = 1\n");
    world.ok(["install", "codex"]);
    let installed = fs::read_to_string(&path).expect("readable");
    // Somebody joined our table with the container, which is not how it was written.
    let joined =
        installed.replace("[mcp_servers.sess]", "[mcp_servers]").replace("\ncommand", "\nsess.command");
    let joined = joined.replace("\nargs", "\nsess.args").replace("\nenv_vars", "\nsess.env_vars");
    for (text, said) in
        [(joined.as_str(), "has mcp_servers.sess, written in a way"), ("a = ", "cannot be read")]
    {
        fs::write(&path, text).expect("written");
        let before = snapshot(&world);
        for args in [&["uninstall", "codex", "--dry-run"][..], &["uninstall", "codex"]] {
            world.fails(args.iter().copied(), 1, said);
        }
        assert_eq!(snapshot(&world), before);
    }
    fs::write(&path, installed + "[b]\n").expect("written");
    world.ok(["uninstall", "codex"]);
    assert_eq!(fs::read_to_string(&path).expect("readable"), "a = 1\n[b]\n");
}

#[test]
fn a_file_made_by_install_that_others_use_by_now_stays() {
    let world = World::new();
    world.ok(["install", "cursor"]);
    let path = world.path(".cursor/mcp.json");
    let text = fs::read_to_string(&path).expect("readable");
    fs::write(&path, text.replacen('{', "{ \"mine\": true,", 1)).expect("written");
    world.ok(["uninstall", "cursor"]);
    let rest: Value = serde_json::from_slice(&fs::read(&path).expect("readable")).expect("JSON");
    assert_eq!(rest, json!({ "mine": true }));
    assert!(!world.path(".cursor/skills").exists());
}

#[test]
fn an_entry_of_somebody_else_is_left_alone() {
    let foreign = [
        ("claude", ".claude.json", r#"{"mcpServers":{"sess":{"command":"mine"}}}"#),
        ("codex", ".codex/config.toml", "[mcp_servers.sess]\ncommand = \"mine\"\n"),
        ("opencode", ".config/opencode/opencode.json", r#"{"mcp":{"sess":{"enabled":false}}}"#),
        ("gemini", ".gemini/settings.json", r#"{"mcpServers":{"sess":{"command":"mine"}}}"#),
        ("goose", ".config/goose/config.yaml", "extensions:\n  sess:\n    enabled: false\n"),
        ("zed", ".config/zed/settings.json", r#"{"context_servers":{"sess":{}}}"#),
        ("cursor", ".cursor/mcp.json", r#"{"mcpServers":{"sess":{"command":"mine"}}}"#),
    ];
    for (host, file, text) in foreign {
        let world = World::new();
        let path = put(&world, file, text);
        let run = world.run(["install", host]);
        assert_eq!(run.code, 0, "{run:?}");
        assert!(
            run.stderr.contains("has an entry of somebody else's") && run.stderr.contains("left alone"),
            "{run:?}"
        );
        let now = fs::read_to_string(&path).expect("readable");
        // Gemini keeps its hooks in the same file.
        assert!(now == text || (host == "gemini" && now.contains(r#""command":"mine""#)), "{host}: {now}");
        world.ok(["uninstall", host]);
        assert_eq!(fs::read_to_string(&path).expect("readable"), text, "{host}");
    }
    let world = World::new();
    let skill = put(&world, ".claude/skills/intersession/SKILL.md", "mine");
    let run = world.run(["install", "claude"]);
    assert!(run.stderr.contains("is somebody else's"), "{run:?}");
    world.ok(["uninstall", "claude"]);
    assert_eq!(fs::read_to_string(skill).expect("readable"), "mine");
}

#[test]
fn an_entry_that_was_changed_belongs_to_whoever_did() {
    let world = World::new();
    world.ok(["install", "cursor"]);
    let path = world.path(".cursor/mcp.json");
    let changed = fs::read_to_string(&path)
        .expect("readable")
        .replace("\"mcp\"", "\"mcp\", \"--toolsets\", \"sessions\"");
    fs::write(&path, &changed).expect("written");
    let run = world.run(["install", "cursor"]);
    assert!(run.stderr.contains("has mcpServers.sess, which somebody changed since"), "{run:?}");
    assert_eq!(fs::read_to_string(&path).expect("readable"), changed);
    world.ok(["uninstall", "cursor"]);
    assert_eq!(fs::read_to_string(&path).expect("readable"), changed);
}

#[test]
fn what_stays_because_somebody_changed_it_is_named_by_uninstall() {
    for (host, file, _) in HOSTS {
        let world = World::new();
        world.ok(["install", host]);
        let path = world.path(file);
        let text = fs::read_to_string(&path).expect("readable");
        // The first of them is the server's, and the hook of Gemini CLI is behind it.
        let changed = text.replacen(&format!("{}\"", env!("CARGO_BIN_EXE_sess")), "/elsewhere/sess\"", 1);
        assert_ne!(changed, text, "{host}");
        fs::write(&path, &changed).expect("written");
        for _ in 0..2 {
            let run = world.run(["install", host]);
            assert!(run.stderr.contains("sess, which somebody changed since"), "{host}: {run:?}");
            assert!(!run.stderr.contains("somebody else's"), "{host}: {run:?}");
        }
        let run = world.run(["uninstall", host]);
        let named = format!("{} has ", path.display());
        assert!(
            run.stderr.contains(&named) && run.stderr.contains("sess, which somebody changed since"),
            "{host}: {run:?}"
        );
        let rest = fs::read_to_string(&path).expect("readable");
        assert!(rest.contains("/elsewhere/sess") && !rest.contains("SessionStart"), "{host}: {rest}");
        let run = world.run(["uninstall", host]);
        assert!(run.stderr.contains("nothing is installed"), "{host}: {run:?}");
    }
    let world = World::new();
    world.ok(["install", "cursor"]);
    let skill = world.path(".cursor/skills/intersession/SKILL.md");
    fs::write(&skill, "mine").expect("written");
    for command in ["install", "uninstall"] {
        let run = world.run([command, "cursor"]);
        assert!(run.stderr.contains(&format!("{} was changed since", skill.display())), "{run:?}");
    }
    assert_eq!(fs::read_to_string(skill).expect("readable"), "mine");
}

#[test]
fn a_hook_that_somebody_changed_is_neither_doubled_nor_forgotten() {
    for (host, file, seconds, more) in [
        ("claude", ".claude/settings.json", "\"timeout\": 5", "\"timeout\": 10"),
        ("gemini", ".gemini/settings.json", "\"timeout\": 5000", "\"timeout\": 10000"),
    ] {
        let world = World::new();
        world.ok(["install", host]);
        let path = world.path(file);
        let text = fs::read_to_string(&path).expect("readable");
        let changed = text.replace(seconds, more);
        assert_ne!(changed, text, "{host}: {text}");
        fs::write(&path, &changed).expect("written");
        for _ in 0..2 {
            let run = world.run(["install", host]);
            assert!(
                run.stderr.contains("has an entry in hooks.SessionStart, which somebody changed since"),
                "{host}: {run:?}"
            );
            let now = fs::read_to_string(&path).expect("readable");
            assert_eq!(now.matches("hook session-start").count(), 1, "{host}: {now}");
            assert!(now.contains(more), "{host}: {now}");
        }
        let run = world.run(["uninstall", host]);
        let named = format!("{} has an entry in hooks.SessionStart, which somebody changed", path.display());
        assert!(run.stderr.contains(&named), "{host}: {run:?}");
        let rest: Value = serde_json::from_slice(&fs::read(&path).expect("readable")).expect("JSON");
        assert_eq!(rest["hooks"]["SessionStart"].as_array().map(Vec::len), Some(1), "{host}: {rest}");
        assert_eq!(rest.get("mcpServers"), None, "{host}: {rest}");
    }
}

#[test]
fn another_place_of_the_program_replaces_the_entry() {
    let world = World::new();
    let path = put(&world, ".codex/config.toml", "a = 1\n");
    let moved = world.path("bin/sess");
    fs::create_dir_all(world.path("bin")).expect("made");
    symlink(env!("CARGO_BIN_EXE_sess"), &moved).expect("linked");
    world.ok(["install", "codex"]);
    let mut command = std::process::Command::new(&moved);
    world.clean(&mut command);
    let run = crate::world::Run::from(command.args(["install", "codex"]).output().expect("sess starts"));
    assert_eq!(run.code, 0, "{run:?}");
    let text = fs::read_to_string(&path).expect("readable");
    assert!(text.contains(&*moved.to_string_lossy()), "{text}");
    assert_eq!(text.matches("[mcp_servers.sess]").count(), 1);
    world.ok(["uninstall", "codex"]);
    assert_eq!(fs::read_to_string(&path).expect("readable"), "a = 1\n");
}

#[test]
fn a_file_that_cannot_be_read_is_refused_and_left_alone() {
    for (host, file, _) in HOSTS {
        let world = World::new();
        for bytes in [&b"{ [ = :"[..], b"\"a\": [\xff\xfe]"] {
            let path = put(&world, file, "");
            fs::write(&path, bytes).expect("written");
            let before = snapshot(&world);
            let run = world.run(["install", host]);
            assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{host}: {run:?}");
            assert!(
                run.stderr.contains("is left alone") && run.stderr.contains("mend it first"),
                "{host}: {run:?}"
            );
            // Not even the files of the same host that are well.
            assert_eq!(snapshot(&world), before, "{host}");
        }
    }
}

#[test]
fn a_read_only_file_stays_as_it_is() {
    let world = World::new();
    let path = put(&world, ".gemini/settings.json", "{}");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).expect("set");
    let before = snapshot(&world);
    world.fails(["install", "gemini"], 1, "is read-only and stays as it is");
    assert_eq!(snapshot(&world), before);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("set");
    world.ok(["install", "gemini"]);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).expect("set");
    world.fails(["uninstall", "gemini"], 1, "is read-only");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("set");
    world.ok(["uninstall", "gemini"]);
    assert_eq!(fs::read_to_string(&path).expect("readable"), "{}");
}

#[test]
fn a_symbolic_link_is_written_through() {
    let world = World::new();
    let path = put(&world, "dotfiles/zed.json", "{ /* mine */ }");
    fs::create_dir_all(world.path(".config/zed")).expect("made");
    let link = world.path(".config/zed/settings.json");
    symlink("../../dotfiles/zed.json", &link).expect("linked");
    world.ok(["install", "zed"]);
    assert!(link.symlink_metadata().expect("there").is_symlink());
    assert!(fs::read_to_string(&path).expect("readable").contains("sess"));
    world.ok(["uninstall", "zed"]);
    assert_eq!(fs::read_to_string(&path).expect("readable"), "{ /* mine */ }");
    fs::remove_file(&path).expect("removed");
    world.fails(["install", "zed"], 1, "is a symbolic link that leads nowhere");
}

#[test]
fn a_host_is_written_whole_or_not_at_all() {
    // The servers of Claude Code are in another directory than the rest, and are written first.
    type Spoil = fn(&World);
    let spoils: [(&str, Spoil); 4] = [
        ("is a symbolic link that leads nowhere: mend or remove it", |world| {
            symlink("/nonexistent/skills", world.path(".claude/skills")).expect("linked");
        }),
        ("is not a directory: move it away", |world| {
            put(world, "skills", "");
            symlink("../skills", world.path(".claude/skills")).expect("linked");
        }),
        // Nothing can be made in there, although nothing says so to one who may do anything.
        ("", |world| symlink("/proc", world.path(".claude/skills")).expect("linked")),
        // To one who may do anything a mode is nothing, but for the settings of the kernel.
        ("cannot be written", |world| symlink("/proc/sys", world.path(".claude/skills")).expect("linked")),
    ];
    for (said, spoil) in spoils {
        let world = World::new();
        put(&world, ".claude.json", "{\"a\":1}");
        put(&world, ".claude/settings.json", "{}");
        spoil(&world);
        let before = snapshot(&world);
        if !said.is_empty() {
            world.fails(["install", "claude", "--dry-run"], 1, said);
        }
        world.fails(["install", "claude"], 1, said);
        assert_eq!(snapshot(&world), before, "{said}");
        let run = world.run(["uninstall", "claude"]);
        assert!(run.stderr.contains("nothing is installed"), "{run:?}");
    }
}

#[test]
fn installs_wait_for_each_other() {
    let world = World::new();
    for (_, file, text) in HOSTS {
        put(&world, file, text);
    }
    let before = snapshot(&world);
    let runs = |command: &str| {
        std::thread::scope(|scope| {
            let run = || scope.spawn(|| world.run([command, "claude", "codex", "gemini"]));
            let running: Vec<_> = (0..4).map(|_| run()).collect();
            for run in running {
                let run = run.join().expect("it ran");
                assert_eq!(run.code, 0, "{run:?}");
            }
        });
    };
    runs("install");
    assert!(world.read(".claude.json").contains("sess"));
    runs("uninstall");
    assert_eq!(snapshot(&world), before);
}

#[test]
fn an_uninstall_locks_only_where_something_is_installed() {
    let world = World::new();
    put(&world, ".gemini/settings.json", "{}");
    world.ok(["install", "gemini"]);
    world.ok(["uninstall", "gemini"]);
    let left: Vec<_> = fs::read_dir(world.path("data/installed")).expect("there").collect();
    let lock = world.path("data/installed/lock");
    assert!(left.len() == 1 && lock.exists(), "{left:?}");
    fs::remove_file(&lock).expect("removed");
    for args in [&["uninstall", "gemini"][..], &["uninstall", "--all"]] {
        let run = world.run(args.iter().copied());
        assert!(run.code == 0 && run.stderr.contains("nothing is installed"), "{run:?}");
        assert!(!lock.exists(), "{args:?}");
    }
    // What cannot be looked at may be a record.
    fs::remove_dir(world.path("data/installed")).expect("removed");
    put(&world, "data/installed", "");
    world.fails(["uninstall", "gemini"], 1, "data/installed");
}

#[test]
fn what_a_killed_install_left_is_removed_by_the_next() {
    for command in ["install", "uninstall"] {
        let world = World::new();
        put(&world, ".claude.json", "{}");
        world.ok(["install", "claude"]);
        let record = "data/installed/.claude.json.sess-a1B2c3";
        for file in ["..claude.json.sess-Ab12Cd", record] {
            put(&world, file, "{}");
        }
        // These have other names than we give, or somebody is at work on them.
        let others =
            ["..claude.json.sess-mine", ".tmpAb12Cd", "..claude.json.sess-Zz12Cd", "claude.json.sess-Ab12Cd"];
        for file in others {
            put(&world, file, "{}");
        }
        let busy = fs::File::open(world.path("..claude.json.sess-Zz12Cd")).expect("there");
        busy.lock().expect("locked");
        world.ok([command, "claude"]);
        assert!(!world.path("..claude.json.sess-Ab12Cd").exists(), "{command}");
        assert!(!world.path(record).exists(), "{command}");
        for file in others {
            assert!(world.path(file).exists(), "{command}: {file}");
        }
    }
}

#[test]
fn hard_links_that_are_lost_are_told() {
    let world = World::new();
    let other = put(&world, "dotfiles/config.toml", "a = 1\n");
    fs::create_dir(world.path(".codex")).expect("made");
    fs::hard_link(&other, world.path(".codex/config.toml")).expect("linked");
    for told in [true, false] {
        let run = world.run(["install", "codex"]);
        assert_eq!(run.code, 0, "{run:?}");
        assert_eq!(run.stderr.contains("config.toml has hard links elsewhere: these keep"), told, "{run:?}");
    }
    assert_eq!(fs::read_to_string(other).expect("readable"), "a = 1\n");
}

/// Moves a file into a directory for such files, and puts a symbolic link in its place.
fn stow(world: &World, file: &str, dir: &str) -> (PathBuf, PathBuf) {
    let link = world.path(file);
    let path = world.path(dir).join(link.file_name().expect("a name"));
    fs::create_dir_all(world.path(dir)).expect("made");
    fs::rename(&link, &path).expect("moved");
    symlink(&path, &link).expect("linked");
    (link, path)
}

#[test]
fn a_symbolic_link_that_is_newer_than_the_install_stays_one() {
    for is_installed_again in [false, true] {
        let world = World::new();
        put(&world, ".codex/config.toml", "a = 1\n");
        world.ok(["install", "codex"]);
        let (link, path) = stow(&world, ".codex/config.toml", "dotfiles");
        if is_installed_again {
            assert_eq!(actions(&world.json(["install", "codex"])), ["unchanged", "unchanged"]);
        }
        assert_eq!(actions(&world.json(["uninstall", "codex"]))[0], "restored");
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(path).expect("readable"), "a = 1\n");
    }
    // Files that were made for it go, and the links are named.
    let world = World::new();
    world.ok(["install", "cursor"]);
    let stowed = [".cursor/mcp.json", ".cursor/skills/intersession/SKILL.md"];
    let stowed = stowed.map(|file| stow(&world, file, "dotfiles"));
    let run = world.run(["uninstall", "cursor"]);
    assert_eq!(run.code, 0, "{run:?}");
    for (link, path) in stowed {
        assert!(link.is_symlink() && !path.exists(), "{run:?}");
        assert!(run.stderr.contains(&format!("{} is a symbolic link to what is removed", link.display())));
    }
}

#[test]
fn what_is_behind_a_link_is_known_wherever_it_leads() {
    // Records of earlier versions do not have the name of the link.
    for has_name in [true, false] {
        for is_installed_again in [false, true] {
            let world = World::new();
            put(&world, ".claude/settings.json", "{\"a\":1}");
            let (link, _) = stow(&world, ".claude/settings.json", "dotfiles");
            world.ok(["install", "claude"]);
            if !has_name {
                let path = world.data().join("installed/claude.json");
                let mut record: Value =
                    serde_json::from_slice(&fs::read(&path).expect("readable")).expect("JSON");
                for file in record["files"].as_array_mut().expect("files") {
                    file.as_object_mut().expect("a file").remove("named");
                }
                fs::write(&path, record.to_string()).expect("written");
            }
            fs::rename(world.path("dotfiles"), world.path("dots")).expect("moved");
            fs::remove_file(&link).expect("removed");
            symlink("../dots/settings.json", &link).expect("linked");
            if is_installed_again {
                assert_eq!(actions(&world.json(["install", "claude"])), ["unchanged"; 3]);
            }
            let run = world.run(["uninstall", "claude"]);
            assert!(run.code == 0 && run.stderr.is_empty(), "{run:?}");
            assert!(link.is_symlink());
            assert_eq!(world.read("dots/settings.json"), "{\"a\":1}");
        }
    }
    // A link that leads to another file by now: what was put into the first goes, too.
    let world = World::new();
    put(&world, ".codex/config.toml", "a = 1\n");
    let (link, first) = stow(&world, ".codex/config.toml", "dotfiles");
    world.ok(["install", "codex"]);
    let second = put(&world, "dotfiles/second.toml", "b = 1\n");
    fs::remove_file(&link).expect("removed");
    symlink(&second, &link).expect("linked");
    world.ok(["install", "codex"]);
    assert!(fs::read_to_string(&second).expect("readable").contains("mcp_servers.sess"));
    world.ok(["uninstall", "codex"]);
    for (path, text) in [(first, "a = 1\n"), (second, "b = 1\n")] {
        assert_eq!(fs::read_to_string(path).expect("readable"), text);
    }
}

#[test]
fn a_home_that_moved_is_still_known() {
    for is_installed_again in [false, true] {
        let world = World::new();
        let homes = ["a", "b"].map(|name| world.path(name).to_string_lossy().into_owned());
        let run = |home: &str, command: &str| {
            let run = world.run_env(&[("HOME", home)], [command, "cursor"]);
            assert!(run.code == 0 && run.stderr.is_empty(), "{run:?}");
        };
        put(&world, "a/.cursor/mcp.json", "{\"mcpServers\":{}}");
        run(&homes[0], "install");
        fs::rename(&homes[0], &homes[1]).expect("moved");
        if is_installed_again {
            run(&homes[1], "install");
        }
        run(&homes[1], "uninstall");
        assert_eq!(world.read("b/.cursor/mcp.json"), "{\"mcpServers\":{}}");
        assert!(!world.path("b/.cursor/skills/intersession/SKILL.md").exists());
        assert!(!world.path("a").exists());
    }
}

#[test]
fn variables_move_the_files() {
    let world = World::new();
    let place = |name: &str| world.path(name).to_string_lossy().into_owned();
    let (claude, codex, config, gemini) = (place("c"), place("x"), place("g"), place("m"));
    let env = [
        ("CLAUDE_CONFIG_DIR", claude.as_str()),
        ("CODEX_HOME", codex.as_str()),
        ("XDG_CONFIG_HOME", config.as_str()),
        ("GEMINI_CLI_HOME", gemini.as_str()),
    ];
    let run = world.run_env(&env, ["install", "claude", "codex", "opencode", "goose", "zed", "gemini"]);
    assert_eq!(run.code, 0, "{run:?}");
    for file in [
        "c/.claude.json",
        "c/settings.json",
        "c/skills/intersession/SKILL.md",
        "x/config.toml",
        "x/skills/intersession/SKILL.md",
        "g/opencode/opencode.json",
        "g/goose/config.yaml",
        "g/zed/settings.json",
        "m/.gemini/settings.json",
    ] {
        assert!(world.path(file).is_file(), "{file}");
    }
    // Codex hands its servers no variable that is not named.
    let servers = world.read("x/config.toml");
    for name in sess_readers::MOVERS {
        assert!(servers.contains(&format!("\"{name}\"")), "{name}: {servers}");
    }
    let root = place("r");
    let run = world.run_env(&[("GOOSE_PATH_ROOT", root.as_str())], ["install", "goose"]);
    assert!(run.code == 0 && world.path("r/config/config.yaml").is_file(), "{run:?}");
    // What was written is known, wherever the variables point now.
    world.ok(["uninstall", "--all"]);
    for dir in ["c", "x", "g", "m", "r"] {
        assert!(!world.path(dir).exists(), "{dir}");
    }
}

#[test]
fn whose_sessions_are_here_is_found_here() {
    let world = World::new();
    for dir in [".local/share/goose/sessions", ".local/share/zed/threads"] {
        fs::create_dir_all(world.path(dir)).expect("made");
    }
    let answer = world.json(["install", "--all", "--dry-run"]);
    let files = answer["files"].as_array().expect("files");
    let hosts: Vec<&str> = files.iter().filter_map(|file| file["host"].as_str()).collect();
    assert!(hosts.contains(&"goose") && hosts.contains(&"zed") && !hosts.contains(&"cursor"), "{hosts:?}");
}

#[test]
fn all_are_those_that_are_found_here() {
    let world = World::new();
    put(&world, ".codex/auth.json", "{}");
    put(&world, ".config/zed/keymap.json", "[]");
    let answer = world.json(["install", "--all", "--dry-run"]);
    let hosts: Vec<&str> = answer["files"]
        .as_array()
        .expect("files")
        .iter()
        .map(|file| file["host"].as_str().expect("text"))
        .collect();
    assert!(hosts.contains(&"codex") && hosts.contains(&"zed") && !hosts.contains(&"cursor"), "{hosts:?}");
    // One that cannot be read does not keep the others from it.
    put(&world, ".codex/config.toml", "= no");
    let run = world.run(["install", "codex", "zed"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("codex: ") && world.path(".config/zed/settings.json").exists(), "{run:?}");
    world.fails(["install"], 2, "name a host");
    world.fails(["install", "emacs"], 2, "invalid value 'emacs'");
}

#[test]
fn opencode_with_comments_in_its_name_is_edited_there() {
    let world = World::new();
    let path = put(&world, ".config/opencode/opencode.jsonc", "{}");
    world.ok(["install", "opencode"]);
    assert!(fs::read_to_string(path).expect("readable").contains("sess"));
    assert!(!world.path(".config/opencode/opencode.json").exists());
}

#[test]
fn an_entry_in_another_file_of_opencode_is_seen() {
    let text = "{\"mcp\":{\"sess\":{\"enabled\":false}}}";
    for other in ["opencode.jsonc", "config.json"] {
        let world = World::new();
        let plain = put(&world, ".config/opencode/opencode.json", "{}");
        let other = put(&world, &format!(".config/opencode/{other}"), text);
        let run = world.run(["install", "opencode"]);
        let said = format!("{} has an entry of somebody else's in mcp", other.display());
        assert!(run.code == 0 && run.stderr.contains(&said), "{run:?}");
        world.ok(["uninstall", "opencode"]);
        assert_eq!(fs::read_to_string(&plain).expect("readable"), "{}");
        assert_eq!(fs::read_to_string(&other).expect("readable"), text);
    }
    // Ours stays where it is when there is another file by now, and is written once.
    let world = World::new();
    let commented = put(&world, ".config/opencode/opencode.jsonc", "{}");
    world.ok(["install", "opencode"]);
    let plain = put(&world, ".config/opencode/opencode.json", "{}");
    assert_eq!(actions(&world.json(["install", "opencode"])), ["unchanged", "unchanged"]);
    world.ok(["uninstall", "opencode"]);
    for path in [commented, plain] {
        assert_eq!(fs::read_to_string(path).expect("readable"), "{}");
    }
}

#[test]
fn what_cannot_be_edited_is_left_alone_and_what_to_add_is_said() {
    let world = World::new();
    let inline = "mcp_servers = { other = { command = \"x\" } }\n";
    let path = put(&world, ".codex/config.toml", inline);
    let mut advice = String::new();
    for args in [&["install", "codex"][..], &["install", "codex", "--dry-run"]] {
        let refused = world.run(args.iter().copied());
        assert_eq!(refused.code, 1, "{refused:?}");
        assert!(
            refused.stderr.contains("cannot be edited here; mcp_servers is written in braces"),
            "{refused:?}"
        );
        assert_eq!(fs::read_to_string(&path).expect("readable"), inline);
        advice =
            refused.stderr.lines().find(|line| line.starts_with("sess = {")).expect("an entry").to_owned();
    }
    // Whoever does what was said has the tools, and only the rest is left to do.
    let followed = inline.replace(" } }", &format!(" }}, {advice} }}"));
    fs::write(&path, &followed).expect("written");
    let done = world.run(["install", "codex"]);
    assert_eq!((done.code, fs::read_to_string(&path).expect("readable")), (0, followed), "{done:?}");
    assert!(done.stderr.contains("has an entry of somebody else's in mcp_servers"), "{done:?}");
    // The same entry as in a file that can be edited.
    let other = World::new();
    other.ok(["install", "codex"]);
    let entry = |world: &World| {
        let whole: toml::Value = toml::from_str(&world.read(".codex/config.toml")).expect("TOML");
        whole["mcp_servers"]["sess"].clone()
    };
    assert_eq!(entry(&world), entry(&other));
}

#[test]
fn what_is_said_to_be_added_to_goose_can_be_added() {
    // How each is written, and what comes of it when somebody does as it was said.
    for (text, from, to) in [
        ("{a: 1}\n", "{", "{$, "),
        ("{a: 1, extensions: {b: {}}}\n", "{b", "{$, b"),
        ("extensions: &all\n  b: {}\n", "  b: {}", "  $\n  b: {}"),
    ] {
        let world = World::new();
        let path = put(&world, ".config/goose/config.yaml", text);
        let refused = world.run(["install", "goose"]);
        assert_eq!(refused.code, 1, "{refused:?}");
        let advice = refused.stderr.lines().find(|line| line.starts_with('"')).expect("an entry");
        fs::write(&path, text.replacen(from, &to.replace('$', advice), 1)).expect("written");
        let done = world.run(["install", "goose"]);
        assert!(done.code == 0 && done.stderr.contains("somebody else's in extensions"), "{text}: {done:?}");
    }
    for text in ["{}\n", "null\n", "extensions: null\n", "a: 1\nextensions: ~ # c\nb: 2"] {
        let world = World::new();
        let path = put(&world, ".config/goose/config.yaml", text);
        world.ok(["install", "goose"]);
        assert!(fs::read_to_string(&path).expect("readable").contains("  sess:\n"));
        world.ok(["uninstall", "goose"]);
        assert_eq!(fs::read_to_string(&path).expect("readable"), text);
    }
}

#[test]
fn keys_around_the_change_are_masked_when_it_is_shown() {
    let world = World::new();
    let secret = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJ";
    put(&world, ".claude.json", &format!("{{\n  \"primaryApiKey\": \"{secret}\"\n}}\n"));
    let shown = world.ok(["install", "claude", "--dry-run"]);
    assert!(!shown.contains(secret) && shown.contains("primaryApiKey"), "{shown}");
    world.ok(["install", "claude"]);
    let record = world.data().join("installed/claude.json");
    assert_eq!(record.metadata().expect("there").permissions().mode() & 0o777, 0o600);
    assert_eq!(
        record.parent().expect("a directory").metadata().expect("there").permissions().mode() & 0o777,
        0o700
    );
}

#[test]
fn a_session_that_begins_is_told_what_waits() {
    let world = World::new();
    let start = |id: &str| {
        let told =
            json!({ "session_id": id, "hook_event_name": "SessionStart", "source": "startup" }).to_string();
        world.ok_input(&told, ["hook", "session-start", "claude"])
    };
    assert_eq!(start("c1"), "");
    assert!(!world.data().exists());

    let claude = |args: &[&str]| {
        let run = world.run_env(&[("CLAUDE_CODE_SESSION_ID", "c1")], args.iter().copied());
        assert_eq!(run.code, 0, "{run:?}");
    };
    claude(&["tool", "call", "write_session_plan", r##"{"content":"# Plan"}"##]);
    assert_eq!(start("c1"), "");
    claude(&["tool", "call", "exit_plan_mode"]);
    assert!(start("c1").contains("ready and waits for the person's review"));
    world.ok(["plan", "approve", "--session", "claude:c1"]);
    assert!(start("c1").contains("plan is approved"));
    world.ok(["send", "claude:c1", "--wait", "0", "hello"]);
    let told: Value = serde_json::from_str(&start("c1")).expect("JSON");
    let text = told["hookSpecificOutput"]["additionalContext"].as_str().expect("text");
    assert!(text.starts_with("1 message from another session waits for you"), "{text}");
    assert_eq!(told["hookSpecificOutput"]["hookEventName"], "SessionStart");
    assert_eq!(start("c2"), "");
    // Once it was read, it does not wait any more.
    claude(&["tool", "call", "sessions_inbox"]);
    assert!(!start("c1").contains("message"));
}

#[test]
fn a_hook_never_fails_its_host() {
    let world = World::new();
    for told in ["", "no JSON", "{}", r#"{"session_id": "../x"}"#] {
        assert_eq!(world.ok_input(told, ["hook", "session-start", "gemini"]), "", "{told}");
    }
    world.write("config.yaml", "agents: [");
    let run = world.run_input("{}", ["--config", "config.yaml", "hook", "session-start", "claude"]);
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (0, "", ""));
    fs::create_dir_all(world.data()).expect("made");
    fs::write(world.data().join("sess.db"), "no database").expect("written");
    let run = world.run_input(r#"{"session_id": "c1"}"#, ["hook", "session-start", "claude"]);
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (0, "", ""));
}

/// A file of the plugin.
fn plugin(file: &str) -> String {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../plugin")).join(file);
    fs::read_to_string(path).expect("a file of the plugin")
}

#[test]
fn the_plugin_has_what_install_writes() {
    let world = World::new();
    world.ok(["install", "claude"]);
    let skill = world.read(".claude/skills/intersession/SKILL.md");
    assert_eq!(skill, plugin("skills/intersession/SKILL.md"));
    assert!(skill.starts_with("---\nname: intersession\ndescription: "));
    let description = skill.lines().nth(2).expect("a line").len();
    assert!(description < 1024, "{description}");

    let read = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    let program = env!("CARGO_BIN_EXE_sess");
    let as_installed = |file: &str| read(&world.read(file).replace(program, "sess"));
    assert_eq!(as_installed(".claude.json")["mcpServers"], read(&plugin(".mcp.json"))["mcpServers"]);
    assert_eq!(read(&plugin("mcp.json"))["mcpServers"], read(&plugin(".mcp.json"))["mcpServers"]);
    assert_eq!(as_installed(".claude/settings.json")["hooks"], read(&plugin("hooks/hooks.json"))["hooks"]);
    for manifest in [".claude-plugin/plugin.json", "plugin.json"] {
        let manifest = read(&plugin(manifest));
        assert_eq!(
            (&manifest["name"], &manifest["version"]),
            (&json!("intersession"), &json!(env!("CARGO_PKG_VERSION")))
        );
    }
    for (file, schema) in [("plugin.json", "plugin"), ("mcp.json", "mcp")] {
        let schema = format!("https://agent-plugins.org/schemas/1.0.0/{schema}.schema.json");
        assert_eq!(read(&plugin(file))["$schema"], schema);
    }
}

#[test]
fn every_tool_that_the_skill_names_is_there() {
    let world = World::new();
    let tools = world.ok(["tool", "list"]);
    let skill = plugin("skills/intersession/SKILL.md");
    let words = skill.split('`').skip(1).step_by(2).filter(|word| word.contains('_') && !word.contains(' '));
    for tool in words {
        assert!(tools.contains(tool), "{tool}");
    }
}

#[test]
fn without_a_host_it_says_what_there_is() {
    let world = World::new();
    for command in ["install", "uninstall"] {
        world.fails([command], 2, "name a host");
        world.fails([command], 2, "--all");
        world.fails([command], 2, "claude, codex, opencode, gemini, goose, zed, cursor");
    }
}
