//! Every command of `sess work` on a small repository: how long it takes, how much of that is git's own time, and what
//! is left for ours.
//!
//! The program is the one that `SESS_BENCH_PROGRAM` names, else `sess` where this benchmark was built. Git is told
//! from the rest by standing in its place: this very file, under the name of `git`, runs the real one and writes down
//! how long that took. What standing in costs is measured before, and taken off. Of several lives the best counts, which
//! is the one that the rest of the machine disturbed least.

use std::{
    env, fs,
    io::Write as _,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use crate::lab::Lab;

/// What a command may take besides git.
const OWN_TIME_MAX: Duration = Duration::from_millis(150);
const LIVES: usize = 3;
/// How often it is measured what standing in for git costs.
const STAND_INS: usize = 50;

const GIT: &str = "SESS_BENCH_GIT";
const LOG: &str = "SESS_BENCH_LOG";
const PROGRAM: &str = "SESS_BENCH_PROGRAM";

/// Stands in for git when called by that name; `None` when this is the benchmark itself.
#[expect(clippy::disallowed_methods, reason = "a benchmark is its own binary, and reads its settings here")]
pub fn as_git() -> Option<ExitCode> {
    let mut args = env::args_os();
    if Path::new(&args.next()?).file_name()? != "git" {
        return None;
    }
    let begun = Instant::now();
    let ended = Command::new(env::var_os(GIT)?).args(args).status().expect("git runs");
    let mut log = fs::OpenOptions::new().append(true).create(true).open(env::var_os(LOG)?).expect("a log");
    // One write, so that two that end together do not mix.
    let line = format!("{}\n", begun.elapsed().as_nanos());
    log.write_all(line.as_bytes()).expect("written");
    Some(ExitCode::from(u8::try_from(ended.code().unwrap_or(1)).unwrap_or(1)))
}

/// How long a command took, how much of it git took, and how often git was run.
#[derive(Clone, Copy)]
struct Took {
    total: Duration,
    git: Duration,
    /// What standing in for git cost.
    stand_ins: Duration,
    calls: usize,
}

impl Took {
    fn own(self) -> Duration {
        self.total.saturating_sub(self.git + self.stand_ins)
    }
}

pub fn commands() {
    let Some(program) = program() else {
        println!("every command: there is no program; `cargo build --release --package sess` makes it");
        return;
    };
    let stand_in = cost_of_standing_in();
    println!(
        "\n{:<32} {:>10} {:>10} {:>6} {:>10}   to reach",
        "sess work …", "all", "git's own", "runs", "ours"
    );
    let mut lives: Vec<Vec<(String, Took)>> = (0..LIVES).map(|_| life(&program, stand_in)).collect();
    let first = lives.remove(0);
    for (at, (name, took)) in first.into_iter().enumerate() {
        let took = lives
            .iter()
            .map(|life| life[at].1)
            .fold(took, |best, took| if took.own() < best.own() { took } else { best });
        let missed = if took.own() > OWN_TIME_MAX { "  MISSED" } else { "" };
        let ms = |time: Duration| format!("{:.0} ms", time.as_secs_f64() * 1e3);
        println!(
            "{name:<32} {:>10} {:>10} {:>6} {:>10}   under {}{missed}",
            ms(took.total),
            ms(took.git),
            took.calls,
            ms(took.own()),
            ms(OWN_TIME_MAX)
        );
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark is its own binary, and reads its settings here")]
fn program() -> Option<PathBuf> {
    let beside = || Some(env::current_exe().ok()?.parent()?.parent()?.join("sess"));
    env::var_os(PROGRAM).map(PathBuf::from).or_else(beside).filter(|path| path.is_file())
}

fn real_git() -> PathBuf {
    let places = ["/usr/local/bin/git", "/usr/bin/git"].map(PathBuf::from);
    places.into_iter().find(|path| path.is_file()).expect("git is installed")
}

/// Measures what it costs to stand in for git, beside what git itself takes.
fn cost_of_standing_in() -> Duration {
    let dir = tempfile::tempdir().expect("a directory");
    let (link, log) = (dir.path().join("git"), dir.path().join("log"));
    symlink(env::current_exe().expect("this file"), &link).expect("linked");
    let cost = |_| {
        fs::write(&log, "").expect("written");
        let begun = Instant::now();
        let ended = Command::new(&link).arg("version").env(GIT, real_git()).env(LOG, &log).output();
        let all = begun.elapsed();
        assert!(ended.expect("it runs").status.success());
        let git = fs::read_to_string(&log).expect("a log").trim().parse().expect("nanoseconds");
        all.saturating_sub(Duration::from_nanos(git))
    };
    // The least of it: what a busy machine adds must not be taken off as if it were ours to give away.
    (0..STAND_INS).map(cost).min().expect("some")
}

/// A repository, and how the program is run in it.
struct Stage<'a> {
    lab: &'a Lab,
    program: &'a Path,
    git: PathBuf,
    /// What it costs, each time, to stand in for git.
    stand_in: Duration,
    took: Vec<(String, Took)>,
}

impl Stage<'_> {
    /// Runs a command, which has to succeed; returns what it printed.
    fn run(&mut self, dir: &Path, args: &[&str]) -> String {
        let log = self.lab.path().join("git.log");
        fs::write(&log, "").expect("written");
        let mut command = Command::new(self.program);
        command.arg("work").args(args).current_dir(dir).stdin(Stdio::null());
        command.env_clear().env("PATH", format!("{}:/usr/bin:/bin", self.lab.path().join("bin").display()));
        command.env("HOME", self.lab.path()).env(GIT, &self.git).env(LOG, &log);
        let begun = Instant::now();
        let ended = command.output().expect("the program starts");
        let total = begun.elapsed();
        assert!(ended.status.success(), "{args:?}: {}", String::from_utf8_lossy(&ended.stderr));
        let runs: Vec<u64> = fs::read_to_string(&log)
            .expect("a log")
            .lines()
            .map(|line| line.parse().expect("nanoseconds"))
            .collect();
        assert!(!runs.is_empty(), "{args:?} ran git past this");
        let git = Duration::from_nanos(runs.iter().sum());
        let calls = u32::try_from(runs.len()).expect("a few");
        let stand_ins = self.stand_in * calls;
        let words = args.iter().take_while(|word| !word.contains([' ', '/', '.']) && word.len() < 20);
        let name = words.copied().collect::<Vec<_>>().join(" ");
        self.took.push((name, Took { total, git, stand_ins, calls: runs.len() }));
        String::from_utf8_lossy(&ended.stdout).trim().to_owned()
    }
}

/// Runs every command once, in an order in which each has something to do.
fn life(program: &Path, stand_in: Duration) -> Vec<(String, Took)> {
    let lab = Lab::new();
    let bin = lab.path().join("bin");
    fs::create_dir(&bin).expect("made");
    symlink(env::current_exe().expect("this file"), bin.join("git")).expect("linked");
    let (ann, bob) = (lab.clone_named("ann"), lab.clone_named("bob"));
    let mut stage = Stage { lab: &lab, program, git: real_git(), stand_in, took: Vec::new() };
    let plan = "# A form\n\n## Context\n\nc\n\n## Acceptance Criteria\n\n- [ ] It works\n";
    let file = lab.path().join("plan.md");
    fs::write(&file, plan).expect("written");
    let file = file.to_string_lossy().into_owned();
    let commit = |dir: &Path, name: &str| {
        fs::write(dir.join(name), "x\n").expect("written");
        lab.git(dir, &["add", name]);
        lab.git(dir, &["-c", "core.hooksPath=/dev/null", "commit", "--quiet", "-m", name]);
    };

    stage.run(&ann, &["init"]);
    let slug = stage.run(&ann, &["new", "Add a form", "--context", "c", "--criterion", "It works"]);
    stage.run(&ann, &["edit", &slug, "--file", &file]);
    stage.run(&ann, &["ready", &slug]);
    stage.run(&ann, &["unready", &slug]);
    stage.run(&ann, &["ready", &slug]);
    stage.took.pop();
    stage.run(&ann, &["list"]);
    stage.run(&ann, &["show", &slug]);
    stage.run(&ann, &["board"]);
    stage.run(&ann, &["claim", &slug]);
    let workspace = ann.join(".sessions").join(&slug);
    stage.run(&workspace, &["env"]);
    stage.run(&workspace, &["exec", "--", "true"]);
    for verb in ["log", "plan", "sub", "learn"] {
        stage.run(&workspace, &[verb, "some words"]);
    }
    commit(&workspace, "form.txt");
    let message = lab.path().join("message");
    fs::write(&message, format!("[{slug}] feat: a form\n")).expect("written");
    stage.run(&workspace, &["hook", "commit-msg", &message.to_string_lossy()]);
    stage.run(&workspace, &["hook", "pre-commit"]);
    for verb in ["sync", "land", "status", "drift", "heartbeat", "context"] {
        stage.run(&workspace, &[verb]);
    }
    stage.run(&workspace, &["blame", "form.txt:1"]);
    fs::write(&file, format!("{plan}\nMore.\n")).expect("written");
    stage.run(&workspace, &["amend", "--reason", "more is needed", "--file", &file]);
    stage.run(&bob, &["takeover", &slug, "--force", "--reason", "Ann is away"]);
    stage.run(&bob, &["release", &slug]);
    stage.run(&bob, &["claim", "--next"]);
    stage.run(&bob, &["abandon", &slug, "--reason", "too hard"]);
    stage.run(&bob, &["retry", &slug]);
    stage.run(&bob, &["watch", "--once", "--exec", "true"]);
    commit(&bob.join(".sessions").join(&slug), "another.txt");
    stage.run(&bob, &["learn", "forms are hard", "--slug", &slug]);
    stage.took.pop();
    stage.run(&bob, &["complete", &slug]);
    // What nobody merges any more can be planned anew.
    let claimed = stage.run(&bob, &["claim", "--next"]);
    let kb = claimed.split(' ').next().expect("its name").to_owned();
    stage.run(&bob, &["abandon", &kb, "--reason", "not now"]);
    stage.took.truncate(stage.took.len() - 2);
    stage.run(&bob, &["kb", "merge", "forms"]);
    stage.run(&bob, &["kb", "list"]);
    stage.run(&bob, &["kb", "show", "README.md"]);
    lab.git(&bob, &["checkout", "--quiet", "-b", "begun"]);
    commit(&bob, "begun.txt");
    stage.run(&bob, &["adopt"]);
    stage.run(&ann, &["doctor"]);
    stage.run(&ann, &["doctor", "--repair"]);
    stage.run(&ann, &["gc"]);
    stage.run(&ann, &["uninstall"]);
    stage.took
}
