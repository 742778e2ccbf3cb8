//! The pages of `docs/` that show commands: every block in `sh` is run as it stands, in the order of the page.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use crate::{
    samples::{copy_all, sample},
    world::{Run, World},
};

/// Runs the blocks of a page as one script, and looks for what each has to print: `expects="…"` behind its language.
#[track_caller]
fn check(world: &World, page: &str) {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page));
    let text = text.expect("a page");
    // With a prompt before it, a command would stand there untried.
    assert!(!text.contains("$ sess "), "{page} has commands of ours outside of a block in sh");
    fs::create_dir(world.path("bin")).expect("made");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_sess"), world.path("bin/sess")).expect("linked");
    let mut script = "set -euo pipefail\n".to_owned();
    let mut expected = Vec::new();
    for block in text.split("```sh").skip(1) {
        let (head, rest) = block.split_once('\n').expect("a line");
        let commands = rest.split("```").next().expect("a block");
        let expects = head.split('"').nth(1).unwrap_or_default();
        script += &format!("{commands}\necho '@@@ the next'\n");
        expected.push((commands, expects));
    }
    assert!(
        expected.iter().filter(|(_, expects)| !expects.is_empty()).count() > 2,
        "{page} shows too little"
    );
    let mut command = Command::new("bash");
    world.clean(&mut command);
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", world.path("bin").display());
    command.args(["-c", &script]).env("PATH", path).stdin(Stdio::null());
    let run = Run::from(command.output().expect("bash starts"));
    assert_eq!(run.code, 0, "{page}: {run:?}");
    let said: Vec<&str> = run.stdout.split("@@@ the next\n").collect();
    for ((commands, expects), said) in expected.iter().zip(said) {
        assert!(
            said.contains(expects),
            "{page}: {expects:?} is not said by {commands}\n{said}\n{}",
            run.stderr
        );
    }
}

/// A world in which all the agents were used.
fn with_agents() -> World {
    let world = World::new();
    for agent in fs::read_dir(sample("")).expect("samples") {
        let agent = agent.expect("an agent").path();
        if agent.is_dir() {
            copy_all(&agent, &world.path("")).expect("copied");
        }
    }
    world
}

#[test]
fn the_tutorial_of_work_sessions_works_as_written() {
    let world = World::new();
    world.write(".gitconfig", "[user]\n\tname = Ann\n\temail = ann@example.com\n");
    check(&world, "work-sessions.md");
}

#[test]
fn the_page_on_history_works_as_written() {
    check(&with_agents(), "history.md");
}

#[test]
fn the_page_on_snapshots_works_as_written() {
    check(&with_agents(), "snapshots.md");
}

#[test]
fn the_page_on_installing_works_as_written() {
    check(&with_agents(), "install.md");
}
