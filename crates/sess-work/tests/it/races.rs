//! Many clones after the same session, and after different ones.
//!
//! `SESS_WORK_ROUNDS` says how many rounds there are.

use std::{collections::BTreeSet, fs, os::unix::fs::PermissionsExt as _, sync::Barrier, thread};

use sess_work::{ClaimOptions, Kind, Note, Workspace};

use crate::{
    lab::{Lab, planned, work},
    many::{clones, number, planned_many},
};

const CLONES: usize = 32;
const ROUNDS: usize = 10;

fn bare() -> ClaimOptions {
    ClaimOptions { workspace: Workspace::None, ..ClaimOptions::default() }
}

#[test]
fn of_32_after_the_same_session_exactly_one_has_it() {
    let lab = Lab::new();
    let workers = clones(&lab, CLONES);
    for slug in planned_many(&lab, "same", number("SESS_WORK_ROUNDS", ROUNDS)) {
        let start = Barrier::new(workers.len());
        let ended: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = workers
                .iter()
                .map(|(_, work)| {
                    let (start, slug) = (&start, &slug);
                    scope.spawn(move || {
                        start.wait();
                        work.claim(slug, &bare())
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("it ends")).collect()
        });
        let mut winners = Vec::new();
        for ended in ended {
            match ended {
                Ok(claimed) => {
                    assert!(!claimed.is_resumed, "{slug}");
                    winners.push(claimed.record);
                }
                Err(error) => assert_eq!(error.kind, Kind::Claimed, "{slug}: {error}"),
            }
        }
        assert_eq!(winners.len(), 1, "{slug}: {winners:?}");
        let seen = workers[0].1.see().expect("seen");
        assert_eq!(seen.record(&slug).map(|record| &record.claim.owner), Some(&winners[0].claim.owner));
        assert_eq!(seen.standing(&slug).holder().map(|claim| claim.fence), Some(1));
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
    let text = format!(
        "#!/bin/sh\ngrep -q refs/intersession/claims || exit 0\nrm hooks/post-receive\n\
         git update-ref refs/heads/main {commit}\n"
    );
    let hook = lab.hub().join("hooks/post-receive");
    fs::create_dir_all(lab.hub().join("hooks")).expect("made");
    fs::write(&hook, text).expect("written");
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).expect("executable");
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
    assert!(seen.record(&slug).is_some_and(|record| record.claim.phase == sess_work::Phase::Released));
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
