//! Claims that came after somebody else had changed what is claimed, and claims that only look so.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use sess_core::Timestamp;
use sess_work::{ClaimOptions, Kind, Note, Repo, Settings, Slug, Standing, State, Who, Work};

use crate::lab::{Lab, bare, planned, take, work};

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
fn a_claim_that_comes_after_others_finished_the_session_is_ended() {
    let lab = Lab::new();
    let ann = work(&lab.clone_named("ann"));
    let (slug, name) = changed_by(&lab, &ann, "Late", moved_to(&lab, "completed"));
    overtaken_by(&lab, &name);
    let error = ann.claim(&slug, &ClaimOptions::default()).expect_err("it is over");
    assert_eq!(
        (error.kind, error.message()),
        (Kind::WrongState, format!("{slug} is completed, and has to be planned for that").as_str())
    );
    let seen = ann.see().expect("seen");
    assert_eq!(seen.standing(&slug), Standing::Rests(State::Completed));
    assert_eq!(seen.record(&slug), None, "nothing followed the claim, and it is gone");
    ann.roll_forward().expect("nothing is pending");
    assert_eq!(
        lab.files("main", &format!("_AGENTS/sessions/completed/{slug}")).len(),
        1,
        "it stays completed"
    );
}

#[test]
fn a_plan_that_was_edited_right_before_the_claim_is_the_one_that_is_worked_by() {
    let lab = Lab::new();
    let ann = work(&lab.clone_named("ann"));
    let (slug, name) = changed_by(&lab, &ann, "Edited", edited("It works", "It works, and fast"));
    let text = lab.git(&lab.hub(), &["show", &format!("{name}:_AGENTS/sessions/planned/{slug}/SESSION.md")]);
    overtaken_by(&lab, &name);
    let claimed = ann.claim(&slug, &ClaimOptions::default()).expect("claimed");
    let place = claimed.workspace.expect("a workspace");
    let here = place.join(format!("_AGENTS/sessions/active/{slug}/SESSION.md"));
    assert_eq!(fs::read_to_string(here).expect("read").trim_end(), text);
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
    take(&ann, &slug).expect("taken, and killed before others see it in the repository");
    ann.abandon(&slug, "it leads nowhere").expect("abandoned");
    let seen = ann.see().expect("seen");
    assert_eq!(seen.standing(&slug).state(), Some(State::Abandoned));
}

#[test]
fn a_claim_that_came_too_late_and_was_killed_is_ended_by_whoever_comes_next() {
    for state in ["drafting", "completed", "abandoned"] {
        let lab = Lab::new();
        let ann = work(&lab.clone_named("ann"));
        let (slug, name) = changed_by(&lab, &ann, "Late", moved_to(&lab, state));
        overtaken_by(&lab, &name);
        take(&ann, &slug).expect("taken, and killed before anybody sees it in the repository");
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
    take(&ann, &slug).expect("taken");
    let error = ann.claim(&slug, &bare()).expect_err("it is a draft again");
    assert_eq!(error.kind, Kind::WrongState, "{error}");
    assert_eq!(ann.see().expect("seen").standing(&slug), Standing::Rests(State::Drafting));
}

#[test]
fn a_claim_that_came_too_late_is_released_where_refs_cannot_be_deleted() {
    let lab = Lab::new();
    let ann = work(&lab.clone_named("ann"));
    let (slug, name) = changed_by(&lab, &ann, "Late", moved_to(&lab, "drafting"));
    guarded(&lab, "! expr $3 : '0*$' > /dev/null");
    overtaken_by(&lab, &name);
    take(&ann, &slug).expect("taken, and killed");
    let carl = work(&lab.clone_named("carl"));
    let seen = carl.roll_forward().expect("nothing is in the way");
    assert_eq!(seen.standing(&slug), Standing::Rests(State::Drafting));
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
        assert_eq!(seen.tree.state(&slug), Some(State::Active), "the directory follows the claim");
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
        take(&ann, &slug).expect("taken, and killed");
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
    assert_eq!(seen.standing(&slug), Standing::Rests(State::Planned));
}

#[test]
fn a_claim_that_came_too_late_is_nobodys_where_the_base_cannot_be_pushed() {
    let lab = Lab::new();
    let (ann, carl) = (work(&lab.clone_named("ann")), work(&lab.clone_named("carl")));
    let other = planned(&carl, "Other");
    let (slug, name) = changed_by(&lab, &ann, "Late", moved_to(&lab, "completed"));
    take(&carl, &other).expect("taken, and not shown");
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

/// Makes the base a branch that nobody may push to, as where work lands by pull requests.
fn protected(lab: &Lab) -> PathBuf {
    guarded(lab, "[ $1 != refs/heads/main ]")
}

#[test]
fn a_claim_that_the_base_cannot_show_stays_when_the_plan_is_edited_there_later() {
    let lab = Lab::new();
    let (ann, carl) = (work(&lab.clone_named("ann")), work(&lab.clone_named("carl")));
    let (slug, name) = changed_by(&lab, &ann, "Shown by nobody", edited("It works", "It works, and fast"));
    let hook = protected(&lab);
    ann.claim(&slug, &ClaimOptions::default()).expect("claimed, and nothing done by any verb since");
    lab.git(&lab.hub(), &["update-ref", "refs/heads/main", &name]);
    fs::remove_file(&hook).expect("removed");
    planned(&carl, "Another one");
    let error = carl.claim(&slug, &bare()).expect_err("it is Ann's");
    assert_eq!(error.kind, Kind::Claimed, "{error}");
    ann.note(&slug, Note::Log, "gone on").expect("it is still hers");
}

#[test]
fn whoever_only_looks_does_not_make_a_late_claim_count() {
    let lab = Lab::new();
    let (ann, carl) = (work(&lab.clone_named("ann")), work(&lab.clone_named("carl")));
    let (slug, name) = changed_by(&lab, &ann, "Late", moved_to(&lab, "completed"));
    overtaken_by(&lab, &name);
    let late = take(&ann, &slug).expect("taken, and killed");
    ann.status(&slug).expect("told");
    assert_eq!(ann.see().expect("seen").record(&slug), Some(&late), "nothing is renewed");
    let told = ann.doctor(false).expect("looked").rows.remove(0);
    assert!(told.meaning.contains("may have come too late"), "{told:?}");
    for error in [
        ann.heartbeat(&slug).expect_err("it is completed"),
        ann.note(&slug, Note::Log, "gone on").expect_err("it is completed"),
    ] {
        assert_eq!(error.kind, Kind::WrongState, "{error}");
        assert_eq!(error.next_command(), format!("sess work claim {slug}"), "{error}");
    }
    carl.roll_forward().expect("nothing is in the way");
    assert_eq!(carl.see().expect("seen").standing(&slug), Standing::Rests(State::Completed));
}

#[test]
fn a_takeover_of_what_the_base_does_not_show_is_not_too_late() {
    let lab = Lab::new();
    let (ann, carl) = (work(&lab.clone_named("ann")), lab.clone_named("carl"));
    let (slug, name) = changed_by(&lab, &ann, "Taken over", edited("It works", "It works, and fast"));
    let hook = protected(&lab);
    ann.claim(&slug, &ClaimOptions::default()).expect("claimed");
    lab.git(&lab.hub(), &["update-ref", "refs/heads/main", &name]);
    fs::remove_file(&hook).expect("removed");
    let later = || Timestamp::from_millis_clamped(crate::lab::now().as_millis() + 24 * 3_600_000);
    let who = Who { agent: None, session: None, host: "host".to_owned(), pid: 1 };
    let repo = Repo::find(&carl).expect("a repository");
    let carl = Work::new(repo, Settings::default(), who, later).expect("a caller");
    let taken = carl.takeover(&slug, false, None, &ClaimOptions::default()).expect("its lease has lapsed");
    assert_eq!(taken.record.claim.fence, 2);
    assert!(matches!(carl.see().expect("seen").standing(&slug), Standing::Held(_)));
}

#[test]
fn a_plan_that_was_removed_right_before_the_claim_is_not_claimed() {
    let lab = Lab::new();
    let ann = work(&lab.clone_named("ann"));
    let (slug, name) = changed_by(&lab, &ann, "Removed", |dir, slug| {
        lab.git(dir, &["rm", "--quiet", "-r", &format!("_AGENTS/sessions/planned/{slug}")]);
    });
    overtaken_by(&lab, &name);
    let error = ann.claim(&slug, &ClaimOptions::default()).expect_err("it is gone");
    assert_eq!(
        (error.kind, error.message()),
        (Kind::WrongState, format!("there is no work session {slug}").as_str())
    );
    assert_eq!(ann.see().expect("seen").record(&slug), None, "nothing is left of the claim");
}

#[test]
fn what_came_too_late_is_told_as_that_and_what_was_changed_by_hand_is_not() {
    // The directory is elsewhere, or gone.
    for is_gone in [false, true] {
        let change = |lab: &Lab, dir: &Path, place: &str, slug: &Slug| match is_gone {
            true => drop(lab.git(dir, &["rm", "--quiet", "-r", place])),
            false => {
                fs::create_dir_all(dir.join("_AGENTS/sessions/abandoned")).expect("made");
                lab.git(dir, &["mv", place, &format!("_AGENTS/sessions/abandoned/{slug}")]);
            }
        };
        let told = |work: &Work, slug: &Slug| {
            let rows = work.list(&work.see().expect("seen")).expect("listed");
            let row = rows.into_iter().find(|row| row.slug == *slug).expect("it is listed");
            let checks = work.doctor(false).expect("looked").rows;
            let check = checks.into_iter().find(|row| row.slug == *slug).expect("it is known");
            (row.note.expect("something is wrong"), check.meaning)
        };
        let lab = Lab::new();
        let ann = work(&lab.clone_named("ann"));
        let (slug, name) = changed_by(&lab, &ann, "Late", |dir, slug| {
            change(&lab, dir, &format!("_AGENTS/sessions/planned/{slug}"), slug);
        });
        overtaken_by(&lab, &name);
        take(&ann, &slug).expect("taken, and killed");
        let late = "its claim may have come too late: the next verb ends it then".to_owned();
        assert_eq!(told(&ann, &slug), (late.clone(), late), "{is_gone}");
        ann.doctor(true).expect("repaired");
        assert_eq!(ann.see().expect("seen").record(&slug), None, "{is_gone}: it has ended");

        let shown = planned(&ann, "Shown");
        ann.claim(&shown, &bare()).expect("claimed, and nothing done since");
        let hand = lab.clone_named("hand");
        change(&lab, &hand, &format!("_AGENTS/sessions/active/{shown}"), &shown);
        lab.git(&hand, &["commit", "--quiet", "-m", "by hand"]);
        lab.git(&hand, &["push", "--quiet", "origin", "HEAD:main"]);
        let (note, meaning) = told(&ann, &shown);
        let words = if is_gone { "directory is gone" } else { "directory" };
        assert!(note.contains(words) && !note.contains("too late"), "{is_gone}: {note}");
        assert!(meaning.contains(words) && !meaning.contains("too late"), "{is_gone}: {meaning}");
    }
}

#[test]
fn what_was_shown_and_then_moved_by_hand_is_not_too_late() {
    let lab = Lab::new();
    let (ann, carl) = (work(&lab.clone_named("ann")), lab.clone_named("carl"));
    let slug = planned(&ann, "Moved by hand");
    let claimed = ann.claim(&slug, &bare()).expect("claimed, and nothing done since");
    lab.git(&carl, &["pull", "--quiet", "origin", "main"]);
    let place = |state: &str| format!("_AGENTS/sessions/{state}/{slug}");
    fs::create_dir_all(carl.join("_AGENTS/sessions/abandoned")).expect("made");
    lab.git(&carl, &["mv", &place("active"), &place("abandoned")]);
    lab.git(&carl, &["commit", "--quiet", "-m", "by hand"]);
    lab.git(&carl, &["push", "--quiet", "origin", "HEAD:main"]);
    let seen = work(&carl).roll_forward().expect("nothing is in the way");
    assert_eq!(seen.record(&slug), Some(&claimed.record), "it is still Ann's");
    assert_eq!(seen.tree.state(&slug), Some(State::Active), "the directory follows its claim");
}

#[test]
fn an_amended_plan_stays_the_plan_when_the_base_does_not_show_it() {
    let lab = Lab::new();
    let (ann, bob) = (work(&lab.clone_named("ann")), work(&lab.clone_named("bob")));
    let slug = planned(&ann, "Amended");
    protected(&lab);
    let place = ann.claim(&slug, &ClaimOptions::default()).expect("claimed").workspace.expect("a workspace");
    let path = format!("_AGENTS/sessions/active/{slug}/SESSION.md");
    let plan = fs::read_to_string(place.join(&path)).expect("read").replace("It works", "It works, and fast");
    ann.amend(&slug, Some(&plan), "slow is no use").expect("amended");
    ann.release(&slug, Some("lunch")).expect("released");
    let claimed = bob.claim(&slug, &ClaimOptions::default()).expect("claimed");
    let here = claimed.workspace.expect("a workspace").join(&path);
    assert_eq!(fs::read_to_string(here).expect("read"), plan, "Bob works by it, too");
    assert_eq!(bob.drift(&slug).expect("a drift").amendments.len(), 1);
}
