//! Many clones after the same session, and after different ones.
//!
//! `SESS_WORK_ROUNDS` says how many rounds there are.

use std::{sync::Barrier, thread};

use sess_work::{ClaimOptions, Kind, Workspace};

use crate::{
    lab::Lab,
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
