//! Many clones after the same session, and after different ones.
//!
//! `SESS_WORK_ROUNDS` says how many rounds there are.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Read as _, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Barrier,
    thread,
};

use sess_work::{ClaimOptions, Kind, Note, Slug, Work};

use crate::{
    lab::{Lab, bare, planned, work},
    many::{clones, number, planned_many},
};

const CLONES: usize = 32;
const ROUNDS: usize = 10;
/// What one of them is told, and how it ends when somebody else has the session.
const DIR: &str = "SESS_WORK_RACE_DIR";
const SLUG: &str = "SESS_WORK_RACE_SLUG";
const LOST: i32 = 4;

/// One who is after a session, in a process of its own: how it ends tells what came of it.
#[test]
#[expect(clippy::disallowed_methods, reason = "this is how the other process is told what to do")]
fn child() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let slug: Slug = std::env::var(SLUG).expect("it is told").parse().expect("a slug");
    let own = work(Path::new(&dir));
    // All begin when whoever started them lets go of them, which waits until all are here.
    io::stderr().write_all(b"ready\n").expect("told");
    io::stdin().read_to_end(&mut Vec::new()).expect("read");
    match own.claim(&slug, &bare()) {
        Ok(claimed) => assert!(!claimed.is_resumed, "{slug}"),
        Err(error) => {
            assert_eq!(error.kind, Kind::Claimed, "{slug}: {error}");
            std::process::exit(LOST);
        }
    }
}

/// Has everybody claim a session at once, each in a process; returns who has it now.
fn raced(workers: &[(PathBuf, Work)], slug: &Slug) -> Vec<usize> {
    let start = |(dir, _): &(PathBuf, Work)| {
        Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "races::child", "--nocapture"])
            .env(DIR, dir)
            .env(SLUG, slug.as_str())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts")
    };
    let mut racers: Vec<_> = workers.iter().map(start).collect();
    for racer in &mut racers {
        let told = racer.stderr.as_mut().expect("a pipe");
        told.read_exact(&mut [0; "ready\n".len()]).expect("it says so");
    }
    racers.iter_mut().for_each(|racer| drop(racer.stdin.take()));
    let has_won = |(n, racer): (usize, Child)| {
        let ended = racer.wait_with_output().expect("it ends");
        let said =
            || String::from_utf8_lossy(&[ended.stdout.as_slice(), &ended.stderr].concat()).into_owned();
        match ended.status.code() {
            Some(0) => Some(n),
            Some(LOST) => None,
            _ => panic!("{slug}: {}", said()),
        }
    };
    racers.into_iter().enumerate().filter_map(has_won).collect()
}

#[test]
fn of_32_after_the_same_session_exactly_one_has_it() {
    let lab = Lab::new();
    let workers = clones(&lab, CLONES);
    for slug in planned_many(&lab, "same", number("SESS_WORK_ROUNDS", ROUNDS)) {
        let winners = raced(&workers, &slug);
        let [winner] = winners[..] else { panic!("{slug}: {winners:?}") };
        let seen = workers[0].1.see().expect("seen");
        let holder = seen.standing(&slug).holder().cloned().expect("somebody has it");
        assert_eq!((&holder.user.email, holder.fence), (&workers[winner].1.user().email, 1), "{slug}");
    }
}

#[test]
fn of_32_after_different_sessions_everybody_has_one() {
    let lab = Lab::new();
    let workers = clones(&lab, CLONES);
    // Rounds are shorter here: nobody waits for one another but at the base.
    let rounds = number("SESS_WORK_ROUNDS", ROUNDS).div_ceil(10);
    let slugs = planned_many(&lab, "each", rounds * CLONES);
    for slugs in slugs.chunks(CLONES) {
        let start = Barrier::new(workers.len());
        thread::scope(|scope| {
            for ((_, work), slug) in workers.iter().zip(slugs) {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    let claimed = work.claim(slug, &bare()).expect("nobody else wants it");
                    assert_eq!(claimed.record.claim.fence, 1);
                });
            }
        });
        // Whoever comes next shows what is not shown yet.
        let seen = workers[0].1.roll_forward().expect("rolled forward");
        for ((_, work), slug) in workers.iter().zip(slugs) {
            let holder = seen.standing(slug).holder().cloned().expect("somebody has it");
            assert_eq!(holder.user.email, work.user().email, "{slug}");
            assert_eq!(seen.tree.state(slug), Some(sess_work::State::Active), "{slug}");
        }
    }
}

#[test]
fn who_asks_for_the_next_one_in_one_clone_gets_one_of_their_own() {
    const WORKERS: usize = 4;
    for has_remote in [true, false] {
        let lab = Lab::new();
        let dir = lab.clone_named("ann");
        if !has_remote {
            lab.git(&dir, &["remote", "remove", "origin"]);
        }
        let ann = work(&dir);
        let slugs: Vec<_> = (0..WORKERS).map(|n| planned(&ann, &format!("Next {n}"))).collect();
        let start = Barrier::new(WORKERS);
        let taken: BTreeSet<_> = thread::scope(|scope| {
            let claim = || {
                let own = work(&dir);
                start.wait();
                own.claim_next(None, &bare())
                    .expect("nothing is in the way")
                    .expect("one is left")
                    .record
                    .claim
                    .slug
            };
            let threads: Vec<_> = (0..WORKERS).map(|_| scope.spawn(claim)).collect();
            threads.into_iter().map(|thread| thread.join().expect("it ends")).collect()
        });
        assert_eq!(taken, slugs.into_iter().collect(), "with a remote: {has_remote}");
    }
}

#[test]
fn processes_of_one_clone_look_at_the_same_time() {
    const LOOKS: usize = 8;
    let lab = Lab::new();
    let (ann, bob) = (work(&lab.clone_named("ann")), work(&lab.clone_named("bob")));
    for n in 0..4 {
        planned(&bob, &format!("Look {n}"));
        let base = bob.see().expect("seen").view.base;
        let start = Barrier::new(LOOKS);
        thread::scope(|scope| {
            for _ in 0..LOOKS {
                scope.spawn(|| {
                    start.wait();
                    assert_eq!(ann.see().expect("nobody is in the way").view.base, base);
                });
            }
        });
    }
}

#[test]
fn an_owner_renews_and_writes_at_the_same_time() {
    const TIMES: usize = 6;
    let lab = Lab::new();
    let ann = work(&lab.clone_named("ann"));
    let slug = planned(&ann, "Busy");
    ann.claim(&slug, &ClaimOptions::default()).expect("claimed");
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..TIMES {
                assert_eq!(ann.note(&slug, Note::Log, &format!("step {n}")).expect("noted"), [""; 0]);
            }
        });
        scope.spawn(|| {
            for _ in 0..TIMES {
                ann.heartbeat(&slug).expect("renewed");
            }
        });
    });
    let shared =
        lab.git(&lab.hub(), &["show", &format!("session/{slug}:_AGENTS/sessions/active/{slug}/worklog.md")]);
    assert!(shared.contains(&format!("step {}", TIMES - 1)), "{shared}");
    ann.release(&slug, None).expect("given back");
}

/// Lets somebody else come right after each push to the remote that moves `main`, once.
fn followed_at_once(lab: &Lab, also: &str) {
    let hook = lab.hub().join("hooks/post-receive");
    let text = format!(
        "#!/bin/sh\ngrep -q refs/heads/main || exit 0\nrm hooks/post-receive\n\
         export GIT_AUTHOR_NAME=o GIT_AUTHOR_EMAIL=o@example.com GIT_COMMITTER_NAME=o GIT_COMMITTER_EMAIL=o@example.com\n\
         git update-ref refs/heads/main \"$(git commit-tree -p main -m other 'main^{{tree}}')\"\n{also}\n"
    );
    fs::create_dir_all(lab.hub().join("hooks")).expect("made");
    fs::write(&hook, text).expect("written");
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).expect("executable");
}

#[test]
fn what_went_through_is_done_although_others_came_right_after_it() {
    let lab = Lab::new();
    let ann = work(&lab.clone_named("ann"));
    let draft = sess_work::Draft {
        title: "Once".to_owned(),
        context: Some("c".to_owned()),
        criteria: vec!["It works".to_owned()],
        ..sess_work::Draft::default()
    };
    let others = || lab.git(&lab.hub(), &["rev-list", "--count", "--grep=^other$", "main"]);
    followed_at_once(&lab, "");
    let slug = ann.draft(None, &draft, None).expect("drafted");
    assert_eq!(others(), "1");
    let drafts = lab.files("main", "_AGENTS/sessions/drafting");
    assert_eq!(drafts, [format!("_AGENTS/sessions/drafting/{slug}/SESSION.md")]);
    followed_at_once(&lab, "");
    ann.ready(&slug).expect("ready");
    assert_eq!(others(), "2");

    ann.claim(&slug, &ClaimOptions::default()).expect("claimed");
    // Another clone takes the ended claim off the list at once.
    followed_at_once(&lab, &format!("git update-ref -d refs/intersession/claims/{slug}"));
    ann.complete(&slug, None).expect("completed");
    assert_eq!(others(), "3");
    assert_eq!(ann.see().expect("seen").tree.state(&slug), Some(sess_work::State::Completed));
}

#[test]
fn many_clones_that_ask_for_the_next_one_get_one_each_as_long_as_there_are_some() {
    const ASKING: usize = 8;
    const READY: usize = 5;
    let lab = Lab::new();
    let workers = clones(&lab, ASKING);
    let slugs = planned_many(&lab, "next", READY);
    let start = Barrier::new(ASKING);
    let taken: Vec<Option<Slug>> = thread::scope(|scope| {
        let start = &start;
        let ask = move |own: &Work| {
            start.wait();
            let claimed = own.claim_next(None, &bare()).expect("nothing is in the way");
            claimed.map(|claimed| claimed.record.claim.slug)
        };
        let threads: Vec<_> = workers.iter().map(|(_, own)| scope.spawn(move || ask(own))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it ends")).collect()
    });
    let got: Vec<Slug> = taken.into_iter().flatten().collect();
    assert_eq!(got.len(), READY, "{got:?}");
    assert_eq!(got.into_iter().collect::<BTreeSet<_>>(), slugs.into_iter().collect());
}

fn shell(command: &str) {
    let status = Command::new("sh").args(["-c", command]).status().expect("it runs");
    assert!(status.success(), "{command}");
}

#[test]
fn a_worktree_that_git_is_making_is_waited_for() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let ann = work(&dir);
    let slug = planned(&ann, "Waits");
    lab.git(&dir, &["worktree", "add", "--quiet", "--detach", "../theirs"]);
    let part = dir.join(".git/worktrees/theirs/commondir");
    let whole = part.with_extension("whole");
    fs::rename(&part, &whole).expect("git keeps it");
    shell(&format!("mkfifo {}", part.display()));
    thread::scope(|scope| {
        scope.spawn(|| {
            // Opened as soon as git reads it, who finds nothing in it: so it is for a moment.
            let empty = fs::OpenOptions::new().write(true).open(&part).expect("a pipe");
            fs::rename(&whole, &part).expect("as git has it then");
            drop(empty);
        });
        let claimed = ann.claim(&slug, &ClaimOptions::default());
        let has_come = !whole.exists();
        if !has_come {
            // Whoever waits for somebody to read it shall not wait for ever.
            fs::read(&part).expect("read");
        }
        assert!(has_come, "git came to it");
        claimed.expect("it is whole by then");
    });
}

#[test]
fn a_worktree_that_git_cannot_read_is_named_with_what_repairs_it() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let ann = work(&dir);
    let slug = planned(&ann, "Stopped");
    lab.git(&dir, &["worktree", "add", "--quiet", "--detach", "../theirs"]);
    let place = dir.join(".git/worktrees/theirs");
    fs::write(place.join("commondir"), "").expect("as after a loss of power");
    let error = ann.claim(&slug, &bare()).expect_err("git cannot go on");
    assert_eq!(error.kind, Kind::Failed, "the remote is well: {error}");
    assert_eq!(error.next_command(), format!("echo ../.. > {}/commondir", place.display()), "{error}");
    shell(error.next_command());
    ann.see().expect("git goes on");
    assert_eq!(lab.git(&lab.path().join("theirs"), &["status", "--porcelain"]), "");

    // A git that was stopped before the worktree had a commit.
    fs::write(place.join("commondir"), "").expect("written");
    fs::write(place.join("HEAD"), format!("{}\n", "0".repeat(40))).expect("written");
    let error = ann.claim(&slug, &bare()).expect_err("git cannot go on");
    assert_eq!(error.next_command(), format!("rm -r {}", place.display()), "{error}");
    shell(error.next_command());
    ann.claim(&slug, &bare()).expect("claimed");
}

#[test]
fn verbs_in_one_checkout_without_a_remote_wait_for_each_other() {
    const WORKERS: usize = 6;
    const READY: usize = 4;
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    lab.git(&dir, &["remote", "remove", "origin"]);
    let ann = work(&dir);
    let slugs: BTreeSet<_> = (0..READY).map(|n| planned(&ann, &format!("Local {n}"))).collect();
    let start = Barrier::new(WORKERS);
    let taken: Vec<_> = thread::scope(|scope| {
        let ask = || {
            let own = work(&dir);
            start.wait();
            own.claim_next(None, &ClaimOptions::default()).expect("nothing is in the way")
        };
        let threads: Vec<_> = (0..WORKERS).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().expect("it ends")).collect()
    });
    let taken: Vec<_> = taken.into_iter().flatten().collect();
    assert!(taken.iter().all(|claimed| claimed.notices.is_empty()), "{taken:?}");
    assert_eq!(taken.iter().map(|claimed| claimed.record.claim.slug.clone()).collect::<BTreeSet<_>>(), slugs);
    for claimed in &taken {
        let (place, slug) = (claimed.workspace.as_ref().expect("a workspace"), &claimed.record.claim.slug);
        fs::write(place.join(format!("{slug}.txt")), "work\n").expect("written");
        lab.git(place, &["add", &format!("{slug}.txt")]);
        lab.git(place, &["commit", "--quiet", "-m", &format!("[{slug}] feat: work")]);
    }
    let start = Barrier::new(READY);
    thread::scope(|scope| {
        for slug in &slugs {
            scope.spawn(|| {
                let own = work(&dir);
                start.wait();
                own.complete(slug, None).expect("nobody is in the way");
            });
        }
    });
    let seen = ann.see().expect("seen");
    for slug in &slugs {
        assert_eq!(seen.tree.state(slug), Some(sess_work::State::Completed));
        assert!(dir.join(format!("{slug}.txt")).is_file(), "the checkout follows");
    }
    assert_eq!(lab.git(&dir, &["status", "--porcelain"]), "");
}

#[test]
fn what_another_process_of_its_owner_has_cleaned_up_is_no_notice() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let own = work(&dir);
    for n in 0..number("SESS_WORK_ROUNDS", 3) {
        let slug = planned(&own, &format!("At once {n}"));
        let claimed = own.claim(&slug, &ClaimOptions::default()).expect("claimed");
        let place = claimed.workspace.expect("a workspace");
        fs::write(place.join(format!("{n}.txt")), "done\n").expect("written");
        lab.git(&place, &["add", "."]);
        lab.git(&place, &["commit", "--quiet", "-m", &format!("[{slug}] feat: work")]);
        let begin = Barrier::new(3);
        let complete = || {
            let own = work(&dir);
            begin.wait();
            own.complete(&slug, None)
        };
        let done: Vec<_> = thread::scope(|scope| {
            let all = [0; 3].map(|_| scope.spawn(complete));
            all.into_iter().map(|one| one.join().expect("no panic")).collect()
        });
        // Whoever looks when it is over already is told so.
        let (done, late): (Vec<_>, Vec<_>) = done.into_iter().partition(Result::is_ok);
        let done: Vec<_> = done.into_iter().flatten().collect();
        assert!(!done.is_empty(), "{slug} is completed by nobody");
        for error in late.into_iter().filter_map(Result::err) {
            assert_eq!(error.kind, Kind::WrongState, "{slug}: {error}");
        }
        for done in done {
            assert_eq!(done.notices, Vec::<String>::new(), "{slug}");
        }
        assert!(!place.exists());
    }
}
