//! Stores that are not what they should be: each gives a clear error and loses nothing.

use std::{
    fs,
    io::Write as _,
    path::PathBuf,
    process::{Command, Stdio},
};

use crate::world::{Run, World, message, session};

/// A world whose store is one file: what was in the log is in it.
fn settled() -> (World, PathBuf) {
    let world = World::with_sessions();
    let many: Vec<_> = (0..300).map(|n| message("user", &format!("word{n} ").repeat(40), n)).collect();
    world.write("many.jsonl", &session("many", "", &many));
    world.ok(["import", "many.jsonl"]);
    world.ok_input("# Plan", ["plan", "write", "--session", "old"]);
    let path = world.data().join("sess.db");
    let store = rusqlite::Connection::open(&path).expect("opens");
    store.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0)).expect("settled");
    store.close().expect("closed");
    (world, path)
}

/// Every command that uses the store says this, and leaves the file as it is.
#[track_caller]
fn all_say(world: &World, path: &PathBuf, code: i32, said: &str) {
    let before = fs::read(path).ok();
    for args in [
        &["list"][..],
        &["read", "-1"],
        &["search", "word1"],
        &["plan", "show"],
        &["events"],
        &["star", "-1"],
        &["import", "old.jsonl"],
        &["export", "old"],
    ] {
        world.run(args.iter().copied()).fails(code, said);
    }
    world.run_input("# Two", ["plan", "write", "--session", "old"]).fails(code, said);
    world.fails(["tool", "call", "list_sessions"], 1, said);
    assert_eq!(fs::read(path).ok(), before, "the file was changed");
}

#[test]
fn a_store_that_is_a_directory() {
    let world = World::new();
    fs::create_dir_all(world.data().join("sess.db")).expect("made");
    world.write("old.jsonl", &session("old", "", &[]));
    all_say(
        &world,
        &world.data().join("sess.db"),
        6,
        "is a directory: move it away, or set SESS_HOME to another place",
    );
    let doctor = world.run(["doctor"]);
    assert!(
        doctor.code == 6 && doctor.stdout.contains("is a directory") && !doctor.stderr.contains("salvage"),
        "{doctor:?}"
    );
}

#[test]
fn a_home_that_is_a_file() {
    let world = World::new();
    fs::write(world.data(), "here").expect("written");
    world.run_input("# Plan", ["plan", "write"]).fails(6, "data");
    assert_eq!(fs::read_to_string(world.data()).expect("read"), "here");
}

#[test]
fn a_store_of_a_newer_version() {
    let (world, path) = settled();
    let store = rusqlite::Connection::open(&path).expect("opens");
    store.pragma_update(None, "user_version", 99).expect("set");
    store.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0)).expect("settled");
    store.close().expect("closed");
    all_say(&world, &path, 6, "was written by a newer sess (schema 99, ");
    let doctor = world.run(["doctor", "--json"]);
    assert!(
        doctor.code == 6
            && doctor.stdout.contains("newer sess")
            && doctor.stdout.contains("\"healthy\":false"),
        "{doctor:?}"
    );
}

#[test]
fn a_store_that_was_cut_off() {
    let (world, path) = settled();
    let whole = fs::read(&path).expect("read");
    for length in [0, 50, 100, 4096, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..length]).expect("written");
        let list = world.run(["list"]);
        list.fails(1, "is damaged");
        assert!(list.stderr.contains("sess doctor"), "{list:?}");
        let doctor = world.run(["doctor"]);
        assert!(doctor.code == 1 && doctor.stderr.contains("sess doctor --salvage <new dir>"), "{doctor:?}");
        assert_eq!(fs::read(&path).expect("read"), whole[..length], "at {length}");
    }
    fs::write(&path, &whole).expect("written");
    assert_eq!(world.json(["list"])["total"], 3);
}

#[test]
fn a_store_that_is_zeroed_in_the_middle_gives_what_can_be_read() {
    let (world, path) = settled();
    let mut damaged = fs::read(&path).expect("read");
    let middle = damaged.len() / 2 / 4096 * 4096;
    damaged[middle..middle + 8192].fill(0);
    fs::write(&path, &damaged).expect("written");
    let doctor = world.run(["doctor"]);
    assert!(doctor.code == 1 && doctor.stdout.contains("damaged"), "{doctor:?}");
    assert_eq!(world.run(["doctor", "--json"]).code, 1);

    let salvaged = world.json(["doctor", "--salvage", "rescued"]);
    assert!(salvaged["messages"].as_u64().expect("a number") > 100, "{salvaged}");
    assert_eq!(fs::read(&path).expect("read"), damaged, "the damaged file is never changed");
    let rescued = world.path("rescued").to_string_lossy().into_owned();
    let healthy = world.run_env(&[("SESS_HOME", &rescued)], ["doctor"]);
    assert_eq!(healthy.code, 0, "{healthy:?}");
    assert!(world.run_env(&[("SESS_HOME", &rescued)], ["list"]).stdout.contains("old"));
    world.fails(["doctor", "--salvage", "rescued"], 4, "there is already a store in ");
}

#[test]
fn a_plan_directory_that_is_a_symlink_is_not_followed() {
    let world = World::with_sessions();
    let outside = world.path("outside");
    fs::create_dir(&outside).expect("made");
    fs::create_dir_all(world.data()).expect("made");
    std::os::unix::fs::symlink(&outside, world.data().join("session_plans")).expect("linked");
    let run = world.run_input("# Plan", ["plan", "write", "--session", "s1"]);
    assert_eq!((run.code, run.stdout.as_str()), (6, ""), "{run:?}");
    assert!(run.stderr.contains("session_plans"), "{run:?}");
    assert_eq!(fs::read_dir(&outside).expect("readable").count(), 0);
    assert_eq!(world.json(["list"])["total"], 2, "no session was begun");
}

/// Runs a script of shell where it may mount; `None` where nobody may.
fn mounted(world: &World, script: &str) -> Option<Run> {
    let mut probe = Command::new("unshare");
    let probe = probe.args(["-m", "true"]).stderr(Stdio::null()).status();
    if !probe.is_ok_and(|status| status.success()) {
        // Past the capture of the test runner: what is left out is said.
        let _gone = writeln!(std::io::stderr(), "left out: mounting needs root");
        return None;
    }
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-ec", script]);
    world.clean(&mut command);
    command.env("SESS", env!("CARGO_BIN_EXE_sess")).stdin(Stdio::null());
    Some(command.output().expect("unshare starts").into())
}

const READ_ONLY: &str =
    "mount --bind \"$SESS_HOME\" \"$SESS_HOME\"; mount -o remount,ro,bind \"$SESS_HOME\";";

#[test]
fn a_read_only_store_can_be_read_and_says_why_it_is_not_written() {
    let world = World::with_sessions();
    world.ok_input("# Plan", ["plan", "write", "--session", "old"]);
    let before = world.ok(["export", "old"]);
    let script = "
        \"$SESS\" list; \"$SESS\" read old; \"$SESS\" plan show --session old; \"$SESS\" doctor
        code=0; echo '# Two' | \"$SESS\" plan write --session old || code=$?; echo \"plan write: $code\"
        code=0; \"$SESS\" star old || code=$?; echo \"star: $code\"";
    let Some(run) = mounted(&world, &format!("{READ_ONLY}{script}")) else { return };
    assert_eq!(run.code, 0, "{run:?}");
    for shown in ["About uploads", "question 10", "# Plan", "plan write: 6", "star: 6"] {
        assert!(run.stdout.contains(shown), "{shown} in {run:?}");
    }
    assert!(run.stderr.contains("session_plans: the file system is read-only"), "{run:?}");
    assert!(run.stderr.contains("sess.db is read-only: make the file and its directory writable"), "{run:?}");
    assert_eq!((world.ok(["export", "old"]), world.ok(["plan", "show"])), (before, "# Plan".to_owned()));
    world.ok(["star", "old"]);
}

#[test]
fn a_read_only_store_without_its_log_can_be_read_too() {
    let (world, path) = settled();
    let before = fs::read(&path).expect("read");
    // There is no log and no shared memory, and SQLite cannot make them here.
    let script = "\"$SESS\" list; \"$SESS\" read old";
    let Some(run) = mounted(&world, &format!("{READ_ONLY}{script}")) else { return };
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.contains("About uploads") && run.stdout.contains("question 10"), "{run:?}");
    assert_eq!(fs::read(&path).expect("read"), before);
    assert_eq!(world.json(["list"])["total"], 3);
}

#[test]
fn a_full_disk_refuses_and_work_goes_on_when_there_is_room() {
    let world = World::new();
    let big = [message("user", &"words ".repeat(300_000), 1)];
    world.write("big.jsonl", &session("big", "", &big));
    world.write("small.jsonl", &session("small", "", &[message("user", "hello", 1)]));
    let Some(run) = mounted(
        &world,
        "mkdir -p \"$SESS_HOME\"; mount -t tmpfs -o size=1m tmpfs \"$SESS_HOME\"
         \"$SESS\" import small.jsonl; printf before | \"$SESS\" plan write --session s1
         code=0; \"$SESS\" import big.jsonl || code=$?; echo \"import: $code\"
         head -c 2000000 /dev/zero | tr '\\0' x > huge.md
         code=0; \"$SESS\" plan write huge.md --session s1 || code=$?; echo \"plan write: $code\"
         \"$SESS\" plan show; ls -A \"$SESS_HOME/session_plans\"; \"$SESS\" list --json
         mount -o remount,size=20m \"$SESS_HOME\"
         \"$SESS\" import big.jsonl; printf after | \"$SESS\" plan write --session s1; \"$SESS\" doctor",
    ) else {
        return;
    };
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.contains("import: 6") && run.stdout.contains("plan write: 6"), "{run:?}");
    assert!(
        run.stderr.contains("no space left for the store") || run.stderr.contains("No space left"),
        "{run:?}"
    );
    assert!(run.stdout.contains("\nbefore") && run.stdout.contains("\"total\":2"), "{run:?}");
    assert!(run.stdout.contains("before.lock\ns1.md\n{"), "no temporary file stays: {run:?}");
    assert!(run.stdout.contains("imported big: 1 message") && run.stdout.contains("revision 2"), "{run:?}");
}
