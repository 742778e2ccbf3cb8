//! Many clones after the same session, and after different ones.
//!
//! `SESS_WORK_ROUNDS` says how many rounds there are.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Read as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Barrier,
    thread,
};

use sess_work::{ClaimOptions, Kind, Note, Slug, Work, Workspace};

use crate::{
    lab::{Lab, planned, work},
    many::{clones, number, planned_many},
};

const CLONES: usize = 32;
const ROUNDS: usize = 10;
/// What one of them is told, and how it ends when somebody else has the session.
const DIR: &str = "SESS_WORK_RACE_DIR";
const SLUG: &str = "SESS_WORK_RACE_SLUG";
const LOST: i32 = 4;

fn bare() -> ClaimOptions {
    ClaimOptions { workspace: Workspace::None, ..ClaimOptions::default() }
}

/// One who is after a session, in a process of its own: how it ends tells what came of it.
#[test]
#[expect(clippy::disallowed_methods, reason = "this is how the other process is told what to do")]
fn child() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let slug: Slug = std::env::var(SLUG).expect("it is told").parse().expect("a slug");
    let own = work(Path::new(&dir));
    // All begin when whoever started them lets go of them.
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

/// Has `main` at the remote become another commit as soon as a claim is there, as if that had been before.
fn overtaken_by(lab: &Lab, commit: &str) {
    let once = "grep -q refs/intersession/claims || exit 0\nrm hooks/post-receive";
    hook(lab, "post-receive", &format!("{once}\ngit update-ref refs/heads/main {commit}"));
}

/// Has the remote take only those changes of refs that `condition` is true for.
fn guarded(lab: &Lab, condition: &str) -> PathBuf {
    hook(lab, "update", condition)
}

fn hook(lab: &Lab, name: &str, script: &str) -> PathBuf {
    let path = lab.hub().join("hooks").join(name);
    fs::create_dir_all(lab.hub().join("hooks")).expect("made");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
    path
}

#[test]
fn a_claim_that_comes_after_others_finished_the_session_is_ended() {
    let lab = Lab::new();
    let ann = work(&lab.clone_named("ann"));
    let slug = planned(&ann, "Late");
    let bob = lab.clone_named("bob");
    let dir = |state: &str| format!("_AGENTS/sessions/{state}/{slug}");
    fs::create_dir_all(bob.join("_AGENTS/sessions/completed")).expect("made");
    lab.git(&bob, &["mv", &dir("planned"), &dir("completed")]);
    lab.git(&bob, &["commit", "--quiet", "-m", "done by others"]);
    lab.git(&bob, &["push", "--quiet", "origin", "HEAD:refs/heads/done"]);
    overtaken_by(&lab, "refs/heads/done");
    let error = ann.claim(&slug, &ClaimOptions::default()).expect_err("it is over");
    assert_eq!(
        (error.kind, error.message()),
        (Kind::WrongState, format!("{slug} is completed, and has to be planned for that").as_str())
    );
    let seen = ann.see().expect("seen");
    assert_eq!(seen.standing(&slug), sess_work::Standing::Rests(sess_work::State::Completed));
    assert_eq!(seen.record(&slug), None, "nothing followed the claim, and it is gone");
    ann.roll_forward().expect("nothing is pending");
    assert_eq!(lab.files("main", &dir("completed")).len(), 1, "it stays completed");
}

#[test]
fn a_plan_that_was_edited_right_before_the_claim_is_the_one_that_is_worked_by() {
    let lab = Lab::new();
    let ann = work(&lab.clone_named("ann"));
    let slug = planned(&ann, "Edited");
    let bob = lab.clone_named("bob");
    let path = format!("_AGENTS/sessions/planned/{slug}/SESSION.md");
    let text = fs::read_to_string(bob.join(&path)).expect("read").replace("It works", "It works, and fast");
    fs::write(bob.join(&path), &text).expect("written");
    lab.git(&bob, &["commit", "--quiet", "--all", "-m", "edited"]);
    lab.git(&bob, &["push", "--quiet", "origin", "HEAD:refs/heads/edited"]);
    overtaken_by(&lab, "refs/heads/edited");
    let claimed = ann.claim(&slug, &ClaimOptions::default()).expect("claimed");
    let place = claimed.workspace.expect("a workspace");
    let here = place.join(format!("_AGENTS/sessions/active/{slug}/SESSION.md"));
    assert_eq!(fs::read_to_string(here).expect("read"), text);
    fs::write(place.join("work.txt"), "work\n").expect("written");
    lab.git(&place, &["add", "work.txt"]);
    lab.git(&place, &["commit", "--quiet", "-m", &format!("[{slug}] feat: work")]);
    ann.complete(&slug, None).expect("the plan is not changed");
}

#[test]
fn a_session_that_was_never_shown_as_active_can_be_abandoned() {
    let lab = Lab::new();
    let ann = work(&lab.clone_named("ann"));
    let slug = planned(&ann, "Taken");
    ann.take(&slug, &bare()).expect("taken, and killed before others see it in the repository");
    ann.abandon(&slug, "it leads nowhere").expect("abandoned");
    let seen = ann.see().expect("seen");
    assert_eq!(seen.standing(&slug).state(), Some(sess_work::State::Abandoned));
}

/// Plans a session; returns its name, and a branch of the remote on which somebody did something to it.
fn changed_by(lab: &Lab, ann: &Work, title: &str, change: impl Fn(&Path, &Slug)) -> (Slug, String) {
    let slug = planned(ann, title);
    let bob = lab.clone_named(&format!("bob-{slug}"));
    change(&bob, &slug);
    lab.git(&bob, &["commit", "--quiet", "--all", "-m", "changed"]);
    let name = format!("refs/heads/changed-{slug}");
    lab.git(&bob, &["push", "--quiet", "origin", &format!("HEAD:{name}")]);
    (slug, name)
}

fn edited(from: &'static str, to: &'static str) -> impl Fn(&Path, &Slug) {
    move |dir, slug| {
        let path = dir.join(format!("_AGENTS/sessions/planned/{slug}/SESSION.md"));
        let text = fs::read_to_string(&path).expect("read");
        fs::write(&path, text.replace(from, to)).expect("written");
    }
}

fn moved_to(lab: &Lab, state: &str) -> impl Fn(&Path, &Slug) {
    move |dir, slug| {
        let place = |state: &str| format!("_AGENTS/sessions/{state}/{slug}");
        fs::create_dir_all(dir.join(format!("_AGENTS/sessions/{state}"))).expect("made");
        lab.git(dir, &["mv", &place("planned"), &place(state)]);
    }
}

#[test]
fn a_claim_that_came_too_late_and_was_killed_is_ended_by_whoever_comes_next() {
    for state in ["drafting", "completed", "abandoned"] {
        let lab = Lab::new();
        let ann = work(&lab.clone_named("ann"));
        let (slug, name) = changed_by(&lab, &ann, "Late", moved_to(&lab, state));
        overtaken_by(&lab, &name);
        ann.take(&slug, &bare()).expect("taken, and killed before anybody sees it in the repository");
        let seen = work(&lab.clone_named("carl")).roll_forward().expect("nothing is in the way");
        assert_eq!(seen.tree.state(&slug).map(|state| state.to_string()).as_deref(), Some(state));
        assert_eq!(seen.record(&slug), None, "its claim is gone as if it had not been");
        let error = ann.claim(&slug, &bare()).expect_err("it is not planned");
        assert_eq!(error.kind, Kind::WrongState, "{error}");
    }
}

#[test]
fn a_claim_that_came_too_late_and_was_killed_is_ended_by_its_owner() {
    let lab = Lab::new();
    let ann = work(&lab.clone_named("ann"));
    let (slug, name) = changed_by(&lab, &ann, "Late", moved_to(&lab, "drafting"));
    overtaken_by(&lab, &name);
    ann.take(&slug, &bare()).expect("taken");
    let error = ann.claim(&slug, &bare()).expect_err("it is a draft again");
    assert_eq!(error.kind, Kind::WrongState, "{error}");
    assert_eq!(
        ann.see().expect("seen").standing(&slug),
        sess_work::Standing::Rests(sess_work::State::Drafting)
    );
}

#[test]
fn a_claim_that_came_too_late_is_released_where_refs_cannot_be_deleted() {
    let lab = Lab::new();
    let ann = work(&lab.clone_named("ann"));
    let (slug, name) = changed_by(&lab, &ann, "Late", moved_to(&lab, "drafting"));
    guarded(&lab, "! expr $3 : '0*$' > /dev/null");
    overtaken_by(&lab, &name);
    ann.take(&slug, &bare()).expect("taken, and killed");
    let carl = work(&lab.clone_named("carl"));
    let seen = carl.roll_forward().expect("nothing is in the way");
    assert_eq!(seen.standing(&slug), sess_work::Standing::Rests(sess_work::State::Drafting));
    carl.ready(&slug).expect("planned again");
    assert_eq!(carl.claim(&slug, &bare()).expect("nobody has it").record.claim.fence, 2);
}

#[test]
fn a_claim_that_somebody_works_by_stays_when_its_directory_is_moved_by_hand() {
    for owner_comes_first in [true, false] {
        let lab = Lab::new();
        let (ann, carl) = (work(&lab.clone_named("ann")), work(&lab.clone_named("carl")));
        let (slug, name) = changed_by(&lab, &ann, "Moved", moved_to(&lab, "drafting"));
        // Where nobody may push, the base does not show claims until a pull request is merged.
        let hook = guarded(&lab, "[ $1 != refs/heads/main ]");
        ann.claim(&slug, &ClaimOptions::default()).expect("claimed");
        ann.note(&slug, Note::Log, "begun").expect("logged");
        lab.git(&lab.hub(), &["update-ref", "refs/heads/main", &name]);
        fs::remove_file(&hook).expect("removed");
        let own = || ann.note(&slug, Note::Log, "gone on").expect("it is still hers");
        if owner_comes_first {
            own();
        }
        let seen = carl.roll_forward().expect("nothing is in the way");
        assert_eq!(seen.tree.state(&slug), Some(sess_work::State::Active), "the directory follows the claim");
        let error = carl.claim(&slug, &bare()).expect_err("it is Ann's");
        assert_eq!(error.kind, Kind::Claimed, "{error}");
        own();
        ann.complete(&slug, None).expect("completed");
    }
}

#[test]
fn a_plan_that_was_edited_right_before_a_claim_that_was_killed_is_the_one_that_counts() {
    for comes_first in ["ann", "carl"] {
        let lab = Lab::new();
        let ann = work(&lab.clone_named("ann"));
        let (slug, name) = changed_by(&lab, &ann, "Edited", edited("It works", "It works, and fast"));
        overtaken_by(&lab, &name);
        ann.take(&slug, &bare()).expect("taken, and killed");
        if comes_first == "carl" {
            work(&lab.clone_named("carl")).roll_forward().expect("nothing is in the way");
        }
        let claimed = ann.claim(&slug, &bare()).expect("claimed");
        let plan =
            lab.git(&lab.hub(), &["rev-parse", &format!("main:_AGENTS/sessions/active/{slug}/SESSION.md")]);
        assert_eq!(claimed.record.claim.plan.as_str(), plan);
    }
}

#[test]
fn a_plan_that_came_to_depend_on_something_right_before_is_not_claimed() {
    let lab = Lab::new();
    let ann = work(&lab.clone_named("ann"));
    let (slug, name) = changed_by(&lab, &ann, "Edited", |dir, slug| {
        let path = dir.join(format!("_AGENTS/sessions/planned/{slug}/SESSION.md"));
        let text = fs::read_to_string(&path).expect("read");
        let text = format!("---\ndepends: [2025-01-01-other]\n---\n\n{}", text.trim_start_matches("---\n"));
        fs::write(&path, text).expect("written");
    });
    overtaken_by(&lab, &name);
    let error = ann.claim(&slug, &bare()).expect_err("what it depends on is not done");
    assert!(error.message().contains("depends on 2025-01-01-other"), "{error}");
    let seen = ann.see().expect("seen");
    assert_eq!(seen.standing(&slug), sess_work::Standing::Rests(sess_work::State::Planned));
}

#[test]
fn a_claim_that_came_too_late_is_nobodys_where_the_base_cannot_be_pushed() {
    let lab = Lab::new();
    let (ann, carl) = (work(&lab.clone_named("ann")), work(&lab.clone_named("carl")));
    let other = planned(&carl, "Other");
    let (slug, name) = changed_by(&lab, &ann, "Late", moved_to(&lab, "completed"));
    carl.take(&other, &bare()).expect("taken, and not shown");
    guarded(&lab, "[ $1 != refs/heads/main ]");
    overtaken_by(&lab, &name);
    let error = ann.claim(&slug, &bare()).expect_err("it is completed");
    assert_eq!(error.kind, Kind::WrongState, "{error}");
    assert!(ann.see().expect("seen").record(&slug).is_none());
}

#[test]
fn who_asks_for_the_next_one_too_late_gets_another() {
    let lab = Lab::new();
    let ann = work(&lab.clone_named("ann"));
    let other = planned(&ann, "Second");
    let (slug, name) = changed_by(&lab, &ann, "First", moved_to(&lab, "completed"));
    assert!(slug < other, "the first one is asked for first");
    overtaken_by(&lab, &name);
    let claimed = ann.claim_next(None, &bare()).expect("nothing is in the way").expect("one is left");
    assert_eq!(claimed.record.claim.slug, other);
    assert!(ann.see().expect("seen").record(&slug).is_none(), "nothing is left of what came too late");
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
        ann.claim(&slug, &ClaimOptions::default()).expect("it is whole by then");
    });
    assert!(!whole.exists(), "git came to it");
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
    shell(&error.next_command());
    ann.see().expect("git goes on");
    assert_eq!(lab.git(&lab.path().join("theirs"), &["status", "--porcelain"]), "");

    // A git that was stopped before the worktree had a commit.
    fs::write(place.join("commondir"), "").expect("written");
    fs::write(place.join("HEAD"), format!("{}\n", "0".repeat(40))).expect("written");
    let error = ann.claim(&slug, &bare()).expect_err("git cannot go on");
    assert_eq!(error.next_command(), format!("rm -r {}", place.display()), "{error}");
    shell(&error.next_command());
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
