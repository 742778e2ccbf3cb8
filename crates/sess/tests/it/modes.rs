//! File modes: what is ours is ours alone, whatever the umask says.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::world::{Beside, World, message, session};

/// Everything below a directory, with its mode.
fn modes(dir: &Path) -> Vec<(PathBuf, u32)> {
    let mode = |path: &Path| path.symlink_metadata().map(|found| found.permissions().mode() & 0o777);
    let mut found = vec![(dir.to_owned(), mode(dir).expect("there"))];
    for entry in fs::read_dir(dir).expect("readable").flatten() {
        if entry.path().is_dir() {
            found.extend(modes(&entry.path()));
        } else if let Ok(mode) = mode(&entry.path()) {
            found.push((entry.path(), mode));
        }
    }
    found
}

#[track_caller]
fn check_all(dir: &Path, names: &[&str]) {
    let found = modes(dir);
    for (path, mode) in &found {
        let allowed = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode & !allowed, 0, "{} is {mode:o}", path.display());
    }
    for name in names {
        assert!(found.iter().any(|(path, _)| path.ends_with(name)), "{name} in {found:?}");
    }
}

fn with_umask_000(world: &World, args: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "umask 000; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_sess")]).args(args);
    world.clean(&mut command);
    command
}

#[test]
fn nobody_else_can_read_what_is_ours() {
    let world = World::new();
    world.write("s.jsonl", &session("s1", "", &[message("user", "hello", 1)]));
    world.write("plan.md", "# Plan");
    for args in
        [&["import", "s.jsonl"][..], &["plan", "write", "plan.md", "--session", "s1"], &["search", "hello"]]
    {
        let run = with_umask_000(&world, args).stdin(Stdio::null()).output().expect("sess starts");
        assert!(run.status.success(), "{run:?}");
        check_all(&world.data(), &["sess.db"]);
    }
    // While a server has the store open, its log and shared memory are there.
    let mut server = Beside::start(with_umask_000(&world, &["mcp", "--session", "s1"]));
    server.send(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#);
    server.line();
    server.send(r##"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"write_session_plan","arguments":{"content":"# Two"}}}"##);
    assert!(server.line().contains("Plan saved to"));
    check_all(
        &world.data(),
        &[
            "sess.db",
            "sess.db-wal",
            "sess.db-shm",
            "search.db",
            "session_plans/s1.md",
            "transcripts/s1.jsonl",
        ],
    );
    assert_eq!(server.close(), Some(0));

    let salvaged = world.path("salvaged");
    let target = salvaged.to_string_lossy().into_owned();
    assert!(
        with_umask_000(&world, &["doctor", "--salvage", &target]).status().expect("sess starts").success()
    );
    check_all(&salvaged, &["sess.db"]);
}

#[test]
fn loosened_modes_are_put_right_at_the_next_start() {
    let world = World::with_sessions();
    world.ok_input("# Plan", ["plan", "write", "--session", "s1"]);
    for (path, _) in modes(&world.data()) {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("set");
    }
    world.ok_input("# Two", ["plan", "write", "--session", "s1"]);
    for name in ["", "sess.db"] {
        let mode = world.data().join(name).metadata().expect("there").permissions().mode() & 0o077;
        assert_eq!(mode, 0, "{name}: {mode:o}");
    }
}
