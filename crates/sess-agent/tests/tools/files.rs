//! Files: what is read, written and found, and what is not because it lies outside.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use serde_json::{Value, json};
use sess_agent::{
    files::Files,
    tool::{ANSWER_BYTES_MAX, Toolbox as _},
};
use sess_core::agent::FileAccess;

use crate::call;

/// A workspace with a secret beside it.
struct World {
    dir: tempfile::TempDir,
    files: Files,
}

impl World {
    fn new() -> Self {
        Self::with(FileAccess::ReadWrite)
    }

    fn with(access: FileAccess) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(dir.path().join("work")).expect("made");
        fs::write(dir.path().join("secret"), "outside").expect("written");
        let files = Files::new(dir.path().join("work"), access, None);
        Self { dir, files }
    }

    fn outside(&self) -> &Path {
        self.dir.path()
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join("work").join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).expect("written");
    }

    #[track_caller]
    fn check(&self, tool: &str, arguments: Value, expected: &str) {
        let asked = format!("{tool} {arguments}");
        let answer = run(call(&self.files, tool, arguments));
        let told = answer.text.replace(&self.outside().display().to_string(), "");
        assert_eq!(told, expected, "{asked}");
    }

    #[track_caller]
    fn refused(&self, tool: &str, arguments: Value, expected: &str) {
        let asked = format!("{tool} {arguments}");
        let answer = run(call(&self.files, tool, arguments));
        assert!(answer.is_error, "{asked}: {}", answer.text);
        assert!(answer.text.contains(expected), "{asked}: {}", answer.text);
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

#[test]
fn files_are_read_written_edited_listed_and_searched() {
    let world = World::new();
    world.check(
        "write_file",
        json!({"path": "src/a.rs", "content": "one\ntwo\n"}),
        "Created src/a.rs (8 bytes).",
    );
    world.check("read_file", json!({"path": "src/a.rs"}), "one\ntwo\n");
    world.check("read_file", json!({"path": world.path("src/a.rs")}), "one\ntwo\n");
    world.check(
        "read_file",
        json!({"path": "src/a.rs", "limit": 1}),
        "one\n[lines 1 to 1 of 8 bytes; go on with offset 2]",
    );
    world.check("read_file", json!({"path": "src/a.rs", "offset": 2}), "two\n");
    world.refused("read_file", json!({"path": "src/a.rs", "offset": 9}), "has 2 lines");
    world.check(
        "edit_file",
        json!({"path": "src/a.rs", "edits": [
            {"old_text": "one", "new_text": "1"}, {"old_text": "two", "new_text": "1"},
        ]}),
        "Edited src/a.rs: 2 replaced.",
    );
    world.refused(
        "edit_file",
        json!({"path": "src/a.rs", "old_text": "1", "new_text": "2"}),
        "found 2 times",
    );
    world.refused(
        "edit_file",
        json!({"path": "src/a.rs", "old_text": "x", "new_text": "2"}),
        "found 0 times",
    );
    world.check(
        "edit_file",
        json!({"path": "src/a.rs", "old_text": "1", "new_text": "fn x", "replace_all": true}),
        "Edited src/a.rs: 2 replaced.",
    );
    world.write("b.txt", "fn y()\n");
    symlink("src/a.rs", world.path("link")).expect("linked");
    world.check("list_directory", json!({}), "b.txt\nlink -> src/a.rs\nsrc/");
    world.check(
        "list_directory",
        json!({"path": ".", "depth": 2}),
        "b.txt\nlink -> src/a.rs\nsrc/\nsrc/a.rs",
    );
    world.check(
        "search_files",
        json!({"pattern": r"^fn \w"}),
        "b.txt:1: fn y()\nsrc/a.rs:1: fn x\nsrc/a.rs:2: fn x",
    );
    world.check("search_files", json!({"pattern": "()", "literal": true}), "b.txt:1: fn y()");
    world.check(
        "search_files",
        json!({"pattern": "FN", "ignore_case": true, "glob": "*.txt"}),
        "b.txt:1: fn y()",
    );
    world.check("search_files", json!({"pattern": "y", "glob": "src/**/*.{rs,ts}"}), "[nothing found]");
    world.refused("search_files", json!({"pattern": "("}), "the pattern is not valid");
    // Half a secret would not be recognised as one: what is shown of a long line ends before it.
    let before = format!("needle {}", "x".repeat(270));
    world.write("long.txt", format!("{before} AKIA{}{}\n", "IOSFODNN7", "EXAMPLA and more".repeat(9)));
    world.check(
        "search_files",
        json!({"pattern": "needle", "glob": "*.txt"}),
        &format!("long.txt:1: {before} "),
    );
    world.refused(
        "read_file",
        json!({"file": "x"}),
        "the arguments of read_file are not valid: unknown field",
    );
    world.refused("read_file", json!({"path": "none"}), "there is no none");
    world.refused("read_file", json!({"path": "src"}), "src is a directory, not a file");
}

#[test]
fn a_reader_cannot_write() {
    let world = World::with(FileAccess::ReadOnly);
    let names: Vec<String> = run(world.files.tools()).into_iter().map(|tool| tool.name).collect();
    assert_eq!(names, ["read_file", "list_directory", "search_files"]);
    world.refused(
        "write_file",
        json!({"path": "a", "content": ""}),
        "write_file is not allowed: this agent may only read files",
    );
    assert!(!world.path("a").exists());
}

#[test]
fn no_path_leads_out() {
    let world = World::new();
    symlink("../secret", world.path("up")).expect("linked");
    symlink(world.outside().join("secret"), world.path("absolute")).expect("linked");
    symlink("..", world.path("parent")).expect("linked");
    symlink("/proc/self/root", world.path("magic")).expect("linked");
    symlink("missing/../../secret2", world.path("dangling")).expect("linked");
    let secret = world.outside().join("secret").display().to_string();
    let through_magic = format!("magic{secret}");
    for path in [
        "../secret",
        "up",
        "absolute",
        "parent/secret",
        secret.as_str(),
        "/etc/passwd",
        "/proc/self/root/etc/passwd",
        through_magic.as_str(),
        "dangling",
        "a/../../secret",
    ] {
        for (tool, arguments) in [
            ("read_file", json!({"path": path})),
            ("write_file", json!({"path": path, "content": "changed"})),
            ("edit_file", json!({"path": path, "old_text": "outside", "new_text": "changed"})),
            ("list_directory", json!({"path": path})),
            ("search_files", json!({"path": path, "pattern": "."})),
        ] {
            let answer = run(call(&world.files, tool, arguments));
            assert!(answer.is_error && !answer.text.contains("root:"), "{tool} {path}: {}", answer.text);
        }
    }
    assert_eq!(fs::read_to_string(world.outside().join("secret")).expect("there"), "outside");
    assert!(!world.outside().join("secret2").exists());
    world.refused("read_file", json!({"path": "up"}), "leads outside the workspace");
    // Nor does a search follow them.
    world.check("search_files", json!({"pattern": "outside"}), "[nothing found]");
}

#[test]
fn links_that_stay_inside_work() {
    let world = World::new();
    fs::create_dir(world.path("dir")).expect("made");
    world.write("dir/file", "old");
    symlink("dir", world.path("near")).expect("linked");
    symlink(world.path("dir/file"), world.path("absolute")).expect("linked");
    symlink("../dir/file", world.path("dir/back")).expect("linked");
    for path in ["near/file", "absolute", "near/back", "dir/../dir/file"] {
        world.write("dir/file", "old");
        world.check("read_file", json!({"path": path}), "old");
        world.check(
            "write_file",
            json!({"path": path, "content": "new"}),
            &format!("Replaced {path} (3 bytes)."),
        );
        assert_eq!(fs::read_to_string(world.path("dir/file")).expect("there"), "new");
    }
    assert!(world.path("absolute").is_symlink(), "the link is still one");
}

#[test]
fn a_link_that_is_swapped_meanwhile_never_leads_out() {
    const TRIES: usize = 2_000;
    let world = World::new();
    fs::create_dir(world.path("inside")).expect("made");
    world.write("inside/secret", "inside");
    symlink("inside", world.path("door")).expect("linked");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for target in ["..", "inside"] {
                    symlink(target, world.path("next")).expect("linked");
                    fs::rename(world.path("next"), world.path("door")).expect("swapped");
                }
            }
        });
        run(async {
            for n in 0..TRIES {
                let read = call(&world.files, "read_file", json!({"path": "door/secret"})).await;
                assert!(!read.text.starts_with("outside"), "{n}: {}", read.text);
                let content = json!({"path": "door/secret", "content": "inside"});
                if n % 20 == 0 {
                    call(&world.files, "write_file", content).await;
                }
            }
        });
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(fs::read_to_string(world.outside().join("secret")).expect("there"), "outside");
}

#[test]
fn writing_breaks_a_hard_link_and_keeps_the_mode() {
    let world = World::new();
    fs::hard_link(world.outside().join("secret"), world.path("hard")).expect("linked");
    world.check("write_file", json!({"path": "hard", "content": "mine"}), "Replaced hard (4 bytes).");
    assert_eq!(fs::read_to_string(world.outside().join("secret")).expect("there"), "outside");
    world.write("run.sh", "#!/bin/sh\n");
    fs::set_permissions(world.path("run.sh"), fs::Permissions::from_mode(0o755)).expect("set");
    world.check(
        "edit_file",
        json!({"path": "run.sh", "old_text": "sh\n", "new_text": "sh -e\n"}),
        "Edited run.sh: 1 replaced.",
    );
    assert_eq!(fs::metadata(world.path("run.sh")).expect("there").mode() & 0o777, 0o755);
    let names = fs::read_dir(world.path("")).expect("listed").count();
    assert_eq!(names, 2, "nothing unfinished is left");
}

#[test]
fn what_is_no_file_is_refused_and_never_waited_for() {
    let world = World::new();
    let made = std::process::Command::new("mkfifo").arg(world.path("pipe")).status().expect("mkfifo runs");
    assert!(made.success());
    let _listening = std::os::unix::net::UnixListener::bind(world.path("socket")).expect("bound");
    for (name, kind) in [("pipe", "a named pipe"), ("socket", "a socket")] {
        world.refused("read_file", json!({"path": name}), kind);
        world.refused("write_file", json!({"path": name, "content": ""}), kind);
        world.refused("edit_file", json!({"path": name, "old_text": "a", "new_text": "b"}), kind);
    }
    world.check("search_files", json!({"pattern": "x"}), "[nothing found]");
    let devices = Files::new("/dev".into(), FileAccess::ReadWrite, None);
    let answer = run(call(&devices, "read_file", json!({"path": "zero"})));
    assert_eq!(answer.text, "zero is a device, not a file");
    let answer = run(call(&devices, "write_file", json!({"path": "null", "content": "x"})));
    assert_eq!(answer.text, "null is a device, not a file");
}

#[test]
fn large_and_strange_files_are_told_of() {
    let world = World::new();
    world.write("binary", b"\x7fELF\0\0");
    world.refused("read_file", json!({"path": "binary"}), "binary is binary (6 bytes), not text");
    world.write("latin", b"caf\xe9\n");
    world.check(
        "read_file",
        json!({"path": "latin"}),
        "caf�\n[the file is not valid UTF-8; � stands for what cannot be read]",
    );
    world.refused(
        "edit_file",
        json!({"path": "latin", "old_text": "caf", "new_text": "x"}),
        "not valid UTF-8",
    );
    world.write("empty", "");
    world.check("read_file", json!({"path": "empty"}), "[the file is empty]");
    // Sparse, so that it costs nothing; text up to its beginning of zeros.
    let file = fs::File::create(world.path("huge")).expect("made");
    file.set_len(50_000_000_000).expect("grown");
    world.refused("read_file", json!({"path": "huge"}), "is binary");
    world.refused("edit_file", json!({"path": "huge", "old_text": "a", "new_text": "b"}), "is larger than");
    world.write("long", "x".repeat(5_000_000));
    world.write("lines", "a line\n".repeat(1_000_000));
    for name in ["long", "lines"] {
        let answer = run(call(&world.files, "read_file", json!({"path": name, "limit": 900_000})));
        assert!(answer.text.len() <= ANSWER_BYTES_MAX && answer.text.contains('['), "{}", answer.text.len());
    }
    let answer = run(call(&world.files, "search_files", json!({"pattern": "line"})));
    assert!(answer.text.is_empty() || answer.text.lines().count() <= 201);
}

#[test]
fn a_long_line_is_not_cut_through_a_secret() {
    let world = World::new();
    let token = "ghp_16C7e42F292c6912E7710c838347Ae178B4a";
    for before in [19_970, 19_985, 20_000 - token.len(), 20_000] {
        world.write("long", format!("{} {token} {}\n", "a".repeat(before - 1), "b".repeat(30_000)));
        let answer = run(call(&world.files, "read_file", json!({ "path": "long" }))).text;
        let (shown, _) = sess_core::redact::redact(&answer);
        assert!(!shown.contains("ghp_16C7e42F"), "{before}: {}", &shown[before - 1..]);
        let left_out = before + 1 + token.len() + 1 + 30_000 - answer.find("[…").expect("it is cut");
        assert!(answer.contains(&format!("[… {left_out} bytes of this line left out …]")), "{before}");
    }
}
