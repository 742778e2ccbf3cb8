//! Claims beside the lock file on the main branch, on the same machine in the same run; lists; and every command.
//!
//! `cargo bench -p sess-work`; `SESS_BENCH_SCALE=0.1` shrinks the list for a smoke run, an argument (`different-8`,
//! `same-32`, `files`, `list`, `commands`) runs only the parts whose name contains it. A claim counts when its ref is
//! confirmed, and in a row of its own when the directory shows it, too. The other way is a line in a file: fetch, look,
//! append, commit, push, and from the start when somebody else pushed. That one costs more in a repository of some size,
//! where a claim costs the same, so both are shown. Whoever claims has looked before, to know what there is: both ways
//! are counted from that look on, and in a row of their own with it.

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod commands;
#[path = "../tests/it/lab.rs"]
#[expect(dead_code, reason = "the tests use all of it")]
mod lab;
#[path = "../tests/it/many.rs"]
#[expect(dead_code, reason = "the tests use all of it")]
mod many;

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    sync::{Barrier, Mutex},
    thread,
    time::{Duration, Instant},
};

use sess_work::{Kind, Seen, Slug, Work};

use crate::{
    lab::{Lab, bare, take},
    many::{clones, planned_many},
};

/// How often the rate for 32 clones has to be that of the lock file.
const TIMES_FASTER: f64 = 20.0;
const ROUNDS: usize = 3;
const LISTED: f64 = 1_000.0;
/// How many files a repository of some size has.
const FILES: usize = 5_000;

fn main() -> ExitCode {
    if let Some(code) = commands::as_git() {
        return code;
    }
    let part = std::env::args().nth(1).filter(|part| !part.starts_with('-')).unwrap_or_default();
    println!("{:<54} {:>12} {:>12} {:>7}   to reach", "figure", "ours", "other", "ratio");
    for count in [8, 32] {
        if format!("different-{count}").contains(&part) {
            different(count, 0);
        }
        if format!("same-{count}").contains(&part) {
            same(count);
        }
    }
    if "files-32".contains(&part) {
        different(32, FILES);
    }
    if "list".contains(&part) {
        list();
    }
    if "commands".contains(&part) {
        commands::commands();
    }
    ExitCode::SUCCESS
}

#[expect(
    clippy::disallowed_methods,
    reason = "a benchmark is its own binary, and reads its one setting here"
)]
fn scale() -> f64 {
    std::env::var("SESS_BENCH_SCALE").ok().and_then(|text| text.parse().ok()).unwrap_or(1.0)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Starts everybody at once; returns how long it took until the last one said that it was through.
fn together<T: Sync>(workers: &[T], work: impl Fn(usize, &T, &dyn Fn()) + Sync) -> Duration {
    let start = Barrier::new(workers.len());
    let (start, work) = (&start, &work);
    thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter()
            .enumerate()
            .map(|(n, worker)| {
                scope.spawn(move || {
                    start.wait();
                    let begun = Instant::now();
                    let through = std::sync::OnceLock::new();
                    work(n, worker, &|| {
                        through.get_or_init(|| begun.elapsed());
                    });
                    *through.get().expect("it says so")
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("it ends")).max().expect("somebody")
    })
}

/// Fills a repository with files as small as those of a program are.
fn fill(lab: &Lab, files: usize) {
    let dir = lab.clone_named("filler");
    for n in 0..files {
        let place = dir.join(format!("src/{:02}", n % 100));
        fs::create_dir_all(&place).expect("made");
        let text = format!("// File {n}.\n").repeat(100);
        fs::write(place.join(format!("{n}.rs")), text).expect("written");
    }
    lab.git(&dir, &["add", "."]);
    lab.git(&dir, &["commit", "--quiet", "-m", "fill"]);
    lab.git(&dir, &["push", "--quiet", "origin", "HEAD:main"]);
}

/// A session for everybody. Every round and every way begins with a repository of its own: refs and commits that others
/// left there cost whoever comes next.
fn different(count: usize, files: usize) {
    let (mut ours, mut looked, mut shown) = (Vec::new(), Vec::new(), Vec::new());
    let (mut other, mut other_looked, mut pushed) = (Vec::new(), Vec::new(), Vec::new());
    let rate = |took: Duration| count as f64 / took.as_secs_f64();
    let rounds = if files > 0 { 1 } else { ROUNDS };
    for round in 0..rounds {
        let name = format!("different-{count}-{round}");
        let (_lab, workers, slugs) = stage(count, files, &name);
        let seen = |work: &Work| Mutex::new(work.see().expect("seen"));
        let seen: Vec<Mutex<Seen>> = workers.iter().map(|(_, work)| seen(work)).collect();
        ours.push(rate(together(&workers, |n, (_, work), through| {
            let mut seen = seen[n].lock().expect("nobody panics");
            let taken = work.take_seen(&slugs[n], &mut seen, &bare()).expect("nothing is in the way");
            assert!(taken.is_some(), "nobody else wants it");
            through();
        })));
        let (_lab, workers, slugs) = stage(count, files, &name);
        let took = together(&workers, |n, (_, work), through| {
            take(work, &slugs[n]).expect("nobody else wants it");
            through();
        });
        looked.push(rate(took));
        // One of them shows all.
        let went_on = together(&workers, |n, (_, work), through| {
            work.claim(&slugs[n], &bare()).expect("it goes on");
            through();
        });
        shown.push(rate(took + went_on));
        for (is_looked, rates) in [(false, &mut other), (true, &mut other_looked)] {
            let (_lab, workers, slugs) = stage(count, files, &name);
            if !is_looked {
                workers.iter().for_each(|(dir, _)| fetch(dir));
            }
            rates.push(rate(together(&workers, |n, (dir, _), through| {
                if is_looked {
                    fetch(dir);
                }
                assert!(lock_line(dir, &slugs[n]), "nobody else wants it");
                through();
            })));
        }
        // What nobody can do without who takes something from others by a ref.
        let (_lab, workers, _) = stage(count, files, &name);
        for (n, (dir, _)) in workers.iter().enumerate() {
            let message = n.to_string();
            assert!(git(dir, &["commit", "--quiet", "--allow-empty", "-m", &message]), "it can be committed");
        }
        pushed.push(rate(together(&workers, |n, (dir, _), through| {
            let to = format!("HEAD:refs/bench/{n}");
            assert!(git(dir, &["push", "--quiet", "origin", &to]), "it can be pushed");
            through();
        })));
    }
    let goal = (count == 32).then_some(TIMES_FASTER);
    let size = if files > 0 { format!(", {files} files") } else { String::new() };
    rates(&format!("claims a second, {count} clones, different sessions{size}"), ours, other.clone(), goal);
    rates("  a bare push of one new commit by each, and no more", pushed, other, None);
    rates("  with the look that tells what there is", looked, other_looked.clone(), None);
    rates("  and until the directories show them", shown, other_looked, None);
}

/// A repository with clones and a session for each, which they have not heard of yet.
fn stage(count: usize, files: usize, name: &str) -> (Lab, Vec<(PathBuf, Work)>, Vec<Slug>) {
    let lab = Lab::new();
    if files > 0 {
        fill(&lab, files);
    }
    let workers = clones(&lab, count);
    let slugs = planned_many(&lab, name, count);
    (lab, workers, slugs)
}

/// One session that everybody is after.
fn same(count: usize) {
    let lab = Lab::new();
    let workers = clones(&lab, count);
    let (mut ours, mut other) = (Vec::new(), Vec::new());
    for slug in planned_many(&lab, &format!("same-{count}"), ROUNDS) {
        let took = together(&workers, |_, (_, work), through| match take(work, &slug) {
            Ok(_) => {
                through();
                work.claim(&slug, &bare()).expect("it goes on");
            }
            Err(error) => {
                assert_eq!(error.kind, Kind::Claimed, "{error}");
                through();
            }
        });
        ours.push(count as f64 / took.as_secs_f64());
        let took = together(&workers, |_, (dir, _), through| {
            fetch(dir);
            lock_line(dir, &slug);
            through();
        });
        other.push(count as f64 / took.as_secs_f64());
    }
    rates(&format!("answers a second, {count} clones, the same session"), ours, other, None);
}

fn rates(figure: &str, ours: Vec<f64>, other: Vec<f64>, goal: Option<f64>) {
    let (ours, other) = (median(ours), median(other));
    let ratio = ours / other;
    let goal = match goal {
        Some(goal) if ratio < goal => format!(">= {goal} x  MISSED"),
        Some(goal) => format!(">= {goal} x"),
        None => String::new(),
    };
    println!("{figure:<54} {ours:>10.1}/s {other:>10.1}/s {ratio:>7.2}   {goal}");
}

/// Claims by a line in a file of the main branch, from what was fetched; whether the line is ours.
fn lock_line(dir: &Path, slug: &Slug) -> bool {
    loop {
        assert!(git(dir, &["reset", "--quiet", "--hard", "FETCH_HEAD"]), "it can be reset");
        let path = dir.join("bench.lock");
        let known = fs::read_to_string(&path).unwrap_or_default();
        if known.lines().any(|line| line.split(':').next() == Some(slug.as_str())) {
            return false;
        }
        let mut file = fs::OpenOptions::new().create(true).append(true).open(&path).expect("a file");
        writeln!(file, "{slug}:{}", dir.display()).expect("written");
        assert!(git(dir, &["add", "bench.lock"]), "it can be added");
        assert!(git(dir, &["commit", "--quiet", "-m", "Claim session"]), "it can be committed");
        if git(dir, &["push", "--quiet", "origin", "HEAD:main"]) {
            return true;
        }
        fetch(dir);
    }
}

fn fetch(dir: &Path) {
    assert!(git(dir, &["fetch", "--quiet", "origin", "main"]), "it can be fetched");
}

fn git(dir: &Path, args: &[&str]) -> bool {
    let mut command = Command::new("git");
    command.args(args).current_dir(dir);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().expect("git runs").success()
}

/// The list, beside the commands of git that read the same.
fn list() {
    #[expect(clippy::cast_sign_loss, clippy::cast_possible_truncation, reason = "a rough number of sessions")]
    let count = (LISTED * scale()).max(10.0) as usize;
    let lab = Lab::new();
    planned_many(&lab, "listed", count);
    let (dir, work): (PathBuf, Work) = clones(&lab, 1).pop().expect("one");
    let (mut ours, mut own) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let rows = work.list(&work.see().expect("seen")).expect("listed");
        ours.push(begun.elapsed().as_secs_f64() * 1e3);
        assert_eq!(rows.len(), count);
        let begun = Instant::now();
        fetch(&dir);
        let read =
            "git ls-tree -r FETCH_HEAD _AGENTS/sessions | cut -d' ' -f3 | cut -f1 | git cat-file --batch";
        let ended = Command::new("sh").args(["-c", read]).current_dir(&dir).output().expect("it runs");
        own.push(begun.elapsed().as_secs_f64() * 1e3);
        assert!(ended.status.success() && ended.stdout.len() > count, "it read them");
    }
    let (ours, own) = (median(ours), median(own));
    let ratio = ours / own;
    let figure = format!("list of {count} work sessions, beside git reading them");
    println!("{figure:<54} {ours:>9.1} ms {own:>9.1} ms {ratio:>7.2}   ");
}
