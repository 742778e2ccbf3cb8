//! The shell: what hangs, floods or hides in the background ends, and what it printed is told.

use std::{path::Path, time::Duration};

use serde_json::json;
use sess_agent::{
    shell::Shell,
    tool::{ANSWER_BYTES_MAX, ToolOutput, Toolbox as _},
};
use tokio_util::sync::CancellationToken;

use crate::{call, object};

/// The most memory that this process may have had after a flood, in kB.
const MEMORY_MAX_KB: u64 = 200_000;

fn shell(root: &Path) -> Shell {
    let env = [("PATH", "/usr/bin:/bin"), ("SESS_TOKEN", "x"), ("OPENAI_API_KEY", "k")];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned()));
    Shell::new(root.to_owned(), env.to_vec(), Some(Duration::from_secs(60)), None)
}

async fn run(cmd: &str) -> ToolOutput {
    let dir = tempfile::tempdir().expect("a directory");
    call(&shell(dir.path()), "shell", json!({"cmd": cmd})).await
}

/// Waits until a process is gone, or nothing but its exit status is left.
async fn gone(pid: &str) {
    let is_there = || {
        std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| !stat.contains(") Z ") && !stat.contains(") X "))
    };
    let waiting = async {
        while is_there() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("it is gone");
}

#[tokio::test]
async fn both_outputs_come_in_order_with_the_exit_status() {
    let answer = run("echo one; echo two >&2; echo three; exit 3").await;
    assert_eq!(answer, ToolOutput::error("one\ntwo\nthree\n[exit status 3]"));
    assert_eq!(run("cat; tty").await, ToolOutput::error("not a tty\n[exit status 1]"));
    assert_eq!(run("kill -9 $$").await, ToolOutput::error("[ended by signal 9]"));
    assert_eq!(run("printf 'caf\\351'").await, ToolOutput::ok("caf�\n[exit status 0]"));
}

#[tokio::test]
async fn a_command_sees_what_it_was_given_and_no_secret() {
    let answer = run("env").await;
    assert!(answer.text.contains("PATH=") && !answer.text.contains("SESS_TOKEN"), "{}", answer.text);
    assert!(!answer.text.contains("OPENAI"), "{}", answer.text);
    // 0, 1, 2, and the one with which the directory is listed.
    assert_eq!(run("ls /proc/self/fd | wc -l").await, ToolOutput::ok("4\n[exit status 0]"));
}

#[tokio::test]
async fn it_runs_inside_the_workspace() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(dir.path().join("sub")).expect("made");
    let inside = call(&shell(dir.path()), "shell", json!({"cmd": "basename $(pwd)", "cwd": "sub"})).await;
    assert_eq!(inside, ToolOutput::ok("sub\n[exit status 0]"));
    for cwd in ["..", "/", "none"] {
        let answer = call(&shell(dir.path()), "shell", json!({"cmd": "pwd", "cwd": cwd})).await;
        assert!(answer.is_error, "{cwd}: {}", answer.text);
    }
    let answer = call(&shell(dir.path()), "shell", json!({"command": "pwd"})).await;
    assert!(answer.text.contains("the arguments of shell are not valid"), "{}", answer.text);
}

#[tokio::test]
async fn a_gigabyte_leaves_its_beginning_and_its_end() {
    let answer = run("echo first; yes | head -c 1G; echo last").await;
    assert!(answer.text.starts_with("first\n"), "{}", &answer.text[..100]);
    assert!(answer.text.ends_with("last\n[exit status 0]") && answer.text.contains("bytes left out"));
    assert!(answer.text.len() <= ANSWER_BYTES_MAX);
    let status = std::fs::read_to_string("/proc/self/status").expect("told");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("told");
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().expect("a number");
    assert!(peak < MEMORY_MAX_KB, "{peak} kB");
}

#[tokio::test]
async fn what_hangs_is_killed_and_what_it_said_is_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let cmd = "trap '' TERM; echo $$; sleep 1000 & echo $!; while true; do sleep 1000; done";
    let answer = call(&shell(dir.path()), "shell", json!({"cmd": cmd, "timeout": 1})).await;
    assert!(
        answer.is_error && answer.text.ends_with("[killed: it took longer than 1 seconds]"),
        "{answer:?}"
    );
    for pid in answer.text.lines().take(2) {
        gone(pid).await;
    }
}

#[tokio::test]
async fn the_background_ends_with_the_command() {
    let answer = run("sleep 1000 & echo $!; (trap '' HUP TERM; sleep 1000) & echo $!; echo done").await;
    assert!(answer.text.ends_with("done\n[exit status 0]"), "{}", answer.text);
    for pid in answer.text.lines().take(2) {
        gone(pid).await;
    }
}

#[tokio::test]
async fn a_cancelled_command_leaves_no_process() {
    let dir = tempfile::tempdir().expect("a directory");
    let started = dir.path().join("started");
    let cancel = CancellationToken::new();
    let shell = shell(dir.path());
    let cmd = "echo $$; sleep 1000 & echo $!; mkfifo p; echo x > started; wait";
    let wait = async {
        while !started.exists() {
            tokio::task::yield_now().await;
        }
        cancel.cancel();
    };
    let (answer, ()) = tokio::join!(shell.call("shell", object(json!({"cmd": cmd})), &cancel), wait);
    assert!(answer.is_error && answer.text.ends_with("[cancelled]"), "{}", answer.text);
    for pid in answer.text.lines().take(2) {
        gone(pid).await;
    }
}

#[tokio::test]
async fn a_call_that_is_dropped_leaves_no_process() {
    let dir = tempfile::tempdir().expect("a directory");
    let pids = dir.path().join("pids");
    let shell = shell(dir.path());
    let cancel = CancellationToken::new();
    let arguments = object(json!({"cmd": "sleep 1000 & echo $! > pid; echo $$ >> pid; mv pid pids; wait"}));
    tokio::select! {
        answer = shell.call("shell", arguments, &cancel) => panic!("{answer:?}"),
        () = async {
            while !pids.exists() {
                tokio::task::yield_now().await;
            }
        } => {}
    }
    for pid in std::fs::read_to_string(&pids).expect("told").lines() {
        gone(pid).await;
    }
}
