//! Pull requests that a reviewer has committed to, and whoever goes on with the work after that.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use sess_core::Timestamp;
use sess_work::{ClaimOptions, Draft, Kind, Land, Note, Settings, Slug, State, Work};

use crate::{
    lab::{Lab, now, planned, work, work_at},
    requests::{branch_at_hub, by_request, check_offered, commit, merge, refuses, review, worked_on},
};

/// Hands over a session with all that is written down in one, and has a reviewer change its file.
fn reviewed(lab: &Lab, own: &Work, title: &str) -> (Slug, PathBuf) {
    let slug = planned(own, title);
    let place = worked_on(lab, own, &slug);
    own.note(&slug, Note::Log, "wrote it").expect("logged");
    own.note(&slug, Note::Plan, "test it, too").expect("planned");
    own.note(&slug, Note::Learning, "reviews help").expect("learned");
    own.complete(&slug, None).expect("handed over");
    review(lab, &slug, "a.rs", "fn b() {}\n");
    (slug, place)
}

/// Checks that a workspace has what the reviewer changed, and what was written down before.
#[track_caller]
fn check_goes_on(place: &Path, slug: &Slug) {
    let read = |path: &str| fs::read_to_string(place.join(path)).unwrap_or_else(|_| format!("no {path}"));
    assert_eq!(read("a.rs"), "fn b() {}\n");
    let own = State::Active.dir_of(slug);
    for (file, words) in [("worklog.md", "wrote it"), ("active-plan.md", "test it, too")] {
        let text = read(&format!("{own}/{file}"));
        assert!(text.contains(words), "{file}: {text}");
    }
}

/// Checks that what waits to be merged has what was written down.
#[track_caller]
fn check_written_down(lab: &Lab, slug: &Slug) {
    for (file, words) in [("worklog.md", "wrote it"), ("active-plan.md", "test it, too")] {
        let at = format!("{}:{}/{file}", slug.branch(), State::Completed.dir_of(slug));
        let text = lab.git(&lab.hub(), &["show", &at]);
        assert!(text.contains(words), "{file}: {text}");
    }
}

#[test]
fn whoever_takes_over_what_was_reviewed_has_all_that_was_written_down() {
    let lab = Lab::new();
    let (ann, bob) = (by_request(&lab, "ann"), by_request(&lab, "bob"));
    let (slug, _) = reviewed(&lab, &ann, "Taken over");
    let taken = bob.takeover(&slug, true, Some("Ann left"), &ClaimOptions::default()).expect("taken");
    let place = taken.workspace.expect("a workspace");
    check_goes_on(&place, &slug);
    let done = bob.complete(&slug, None).expect("handed over");
    assert!(!done.notices.iter().any(|notice| notice.contains("do not land")), "{:?}", done.notices);
    check_offered(&lab, &place, &slug, &[("a.rs", "fn b() {}")]);
    check_written_down(&lab, &slug);
}

#[test]
fn resuming_what_was_reviewed_leaves_the_workspace_as_it_was() {
    let lab = Lab::new();
    let (ann, bob) = (by_request(&lab, "ann"), by_request(&lab, "bob"));
    let resume = |slug: &Slug, place: &Path| {
        let before = lab.git(place, &["rev-parse", "HEAD"]);
        let resumed = ann.claim(slug, &ClaimOptions::default()).expect("resumed");
        assert!(resumed.is_resumed && resumed.notices.is_empty(), "{:?}", resumed.notices);
        assert_eq!(lab.git(place, &["rev-parse", "HEAD"]), before);
    };
    let (slug, place) = reviewed(&lab, &ann, "Completed again");
    resume(&slug, &place);
    ann.complete(&slug, None).expect("handed over again");
    check_offered(&lab, &place, &slug, &[("a.rs", "fn b() {}")]);
    check_written_down(&lab, &slug);

    let (slug, place) = reviewed(&lab, &ann, "Given back");
    resume(&slug, &place);
    ann.release(&slug, None).expect("given back");
    let claimed = bob.claim(&slug, &ClaimOptions::default()).expect("claimed");
    check_goes_on(&claimed.workspace.expect("a workspace"), &slug);

    let (slug, place) = reviewed(&lab, &ann, "Merged as it was");
    resume(&slug, &place);
    merge(&lab, &branch_at_hub(&lab, &slug));
    planned(&bob, "Something else");
    ann.gc(false).expect("cleaned up");
    assert!(!place.exists(), "everything has landed");
}

#[test]
fn a_branch_that_is_gone_here_comes_back_with_what_was_written_down() {
    let lab = Lab::new();
    let ann = by_request(&lab, "ann");
    let (slug, place) = reviewed(&lab, &ann, "Gone");
    let here = lab.path().join("ann");
    lab.git(&here, &["worktree", "remove", &place.to_string_lossy()]);
    lab.git(&here, &["branch", "--quiet", "-D", &slug.branch()]);
    let place = ann.claim(&slug, &ClaimOptions::default()).expect("resumed").workspace.expect("a place");
    check_goes_on(&place, &slug);
    ann.complete(&slug, None).expect("handed over again");
    check_offered(&lab, &place, &slug, &[("a.rs", "fn b() {}")]);
    check_written_down(&lab, &slug);
}

#[test]
fn what_a_reviewer_pushes_after_the_release_is_no_reason_to_lose_the_log() {
    let lab = Lab::new();
    let (ann, bob) = (by_request(&lab, "ann"), by_request(&lab, "bob"));
    let (slug, _) = reviewed(&lab, &ann, "Pushed late");
    let theirs = branch_at_hub(&lab, &slug);
    // The base does not show what was written down.
    refuses(&lab, "refs/heads/main", "main is protected");
    ann.release(&slug, None).expect("given back");
    // The reviewer still had the pull request open, and forced it.
    lab.git(&lab.hub(), &["update-ref", &format!("refs/heads/{}", slug.branch()), &theirs]);
    // Its owner of before goes on with the same as anybody else.
    for own in [&bob, &ann] {
        let place = own.claim(&slug, &ClaimOptions::default()).expect("claimed").workspace.expect("a place");
        check_goes_on(&place, &slug);
        own.release(&slug, None).expect("given back");
        lab.git(&lab.hub(), &["update-ref", &format!("refs/heads/{}", slug.branch()), &theirs]);
    }
}

#[test]
fn taking_back_what_does_not_go_together_with_a_review_is_refused_once_and_loses_nothing() {
    for is_given_up in [false, true] {
        let lab = Lab::new();
        let (ann, bob) = (by_request(&lab, "ann"), by_request(&lab, "bob"));
        let (slug, place) = reviewed(&lab, &ann, "Both");
        review(&lab, &slug, "b.rs", "fn theirs() {}\n");
        commit(&lab, &place, &slug, "b.rs");
        let own = lab.git(&place, &["rev-parse", "HEAD"]);
        let end = || match is_given_up {
            true => ann.abandon(&slug, "it was turned down"),
            false => ann.release(&slug, Some("it was turned down")),
        };
        let error = end().expect_err("both wrote it");
        assert_eq!((error.kind, error.kind.exit_code()), (Kind::Conflict, 7), "{error}");
        assert!(error.message().ends_with("do not go together: b.rs"), "{error}");
        assert_eq!(lab.git(&place, &["rev-parse", "HEAD"]), own, "nothing was written down yet");
        let ended = Command::new("sh").args(["-c", error.next_command()]).output().expect("run");
        assert!(!ended.status.success());
        assert_eq!(lab.git(&place, &["diff", "--name-only", "--diff-filter=U"]), "b.rs");
        fs::write(place.join("b.rs"), "fn both() {}\n").expect("written");
        lab.git(&place, &["add", "b.rs"]);
        lab.git(&place, &["commit", "--quiet", "--no-edit"]);
        end().expect("it goes now");
        let at = branch_at_hub(&lab, &slug);
        assert_eq!(lab.git(&lab.hub(), &["show", &format!("{at}:b.rs")]), "fn both() {}");
        lab.git(&lab.hub(), &["merge-base", "--is-ancestor", &own, &at]);
        let log = bob.noted(&slug, Note::Log, &bob.see().expect("seen")).expect("read").expect("a log");
        assert_eq!(log.matches("turned down").count(), 1, "{log}");
    }
}

#[test]
fn without_a_workspace_a_conflict_with_a_review_leads_to_one() {
    let lab = Lab::new();
    let ann = by_request(&lab, "ann");
    let (slug, place) = reviewed(&lab, &ann, "No workspace");
    review(&lab, &slug, "b.rs", "fn theirs() {}\n");
    commit(&lab, &place, &slug, "b.rs");
    lab.git(&lab.path().join("ann"), &["worktree", "remove", &place.to_string_lossy()]);
    let error = ann.release(&slug, None).expect_err("both wrote it");
    assert_eq!((error.kind, error.next_command()), (Kind::Conflict, &*format!("sess work claim {slug}")));
    ann.claim(&slug, &ClaimOptions::default()).expect("resumed");
    let error = ann.release(&slug, None).expect_err("both wrote it");
    assert!(error.next_command().starts_with(&format!("git -C {}", place.display())), "{error}");
}

#[test]
fn whoever_looks_at_what_was_reviewed_is_told_what_was_written_down() {
    let lab = Lab::new();
    let (ann, bob) = (by_request(&lab, "ann"), by_request(&lab, "bob"));
    let (slug, _) = reviewed(&lab, &ann, "Looked at");
    for own in [&bob, &ann] {
        let seen = own.see().expect("seen");
        let row = own.list(&seen).expect("listed").remove(0);
        assert!(row.last_log.as_ref().is_some_and(|log| log.ends_with("wrote it")), "{row:?}");
        for (note, words) in [(Note::Log, "wrote it"), (Note::Plan, "test it, too")] {
            let text = own.noted(&slug, note, &seen).expect("read").expect("it was written");
            assert!(text.contains(words), "{text}");
        }
        let drift = own.drift(&slug).expect("a drift");
        assert_eq!((drift.refused, drift.files.outside), (Vec::new(), vec!["a.rs".to_owned()]));
    }
}

#[test]
fn final_notes_stay_with_what_is_completed_again() {
    let lab = Lab::new();
    let ann = by_request(&lab, "ann");
    let slug = planned(&ann, "Noted");
    let place = worked_on(&lab, &ann, &slug);
    let plan = |slug: &Slug| {
        let at = format!("{}:{}/SESSION.md", slug.branch(), State::Completed.dir_of(slug));
        lab.git(&lab.hub(), &["show", &at])
    };
    ann.complete(&slug, Some("It was harder.")).expect("handed over");
    commit(&lab, &place, &slug, "b.rs");
    let done = ann.complete(&slug, None).expect("handed over again");
    assert!(plan(&slug).ends_with("## Final Notes\n\nIt was harder."), "{}", plan(&slug));
    let landed = done.record.claim.landed.expect("what waits");
    assert_ne!(landed.plan, landed.plan_completed);
    // Others take the place of these.
    ann.complete(&slug, Some("It was easy.")).expect("handed over again");
    let text = plan(&slug);
    assert!(text.ends_with("## Final Notes\n\nIt was easy.") && !text.contains("harder"), "{text}");
    // They are about a plan that may be another one by then.
    ann.release(&slug, None).expect("given back");
    ann.claim(&slug, &ClaimOptions::default()).expect("claimed");
    ann.amend(&slug, Some(&text.replace("It works", "It works well").replace("It was easy.", "")), "more")
        .expect("amended");
    ann.complete(&slug, None).expect("handed over");
    assert!(!plan(&slug).contains("It was easy."), "{}", plan(&slug));
}

#[test]
fn what_a_reviewer_wrote_into_the_sessions_own_files_is_told() {
    for is_given_back in [false, true] {
        let lab = Lab::new();
        let (ann, bob) = (by_request(&lab, "ann"), work(&lab.clone_named("bob")));
        let (slug, _) = reviewed(&lab, &ann, "Told");
        // That of others comes to the branch with the base, and is no change of the reviewer's.
        planned(&bob, "Another one");
        let dir = lab.path().join("reviewer");
        lab.git(&dir, &["fetch", "--quiet", "origin"]);
        lab.git(&dir, &["merge", "--quiet", "--no-edit", "origin/main"]);
        lab.git(&dir, &["push", "--quiet", "origin", &format!("HEAD:{}", slug.branch())]);
        let log = format!("{}/worklog.md", State::Completed.dir_of(&slug));
        review(&lab, &slug, &log, "# Nothing\n");
        let theirs = branch_at_hub(&lab, &slug);
        let notices = match is_given_back {
            true => ann.release(&slug, None).expect("given back"),
            false => ann.complete(&slug, None).expect("handed over again").notices,
        };
        let told: Vec<&String> = notices.iter().filter(|notice| notice.contains("is not taken")).collect();
        let [told] = told.as_slice() else { panic!("{notices:?}") };
        assert!(told.contains(&format!(": {log};")) && told.contains(&theirs[..12]), "{told}");
        let command = told.rsplit_once(" `").expect("a command").1.split('`').next().expect("its end");
        let shown = Command::new("sh").args(["-c", command]).current_dir(&dir).output().expect("run");
        assert!(String::from_utf8_lossy(&shown.stdout).contains("# Nothing"), "{command}");
        if !is_given_back {
            check_written_down(&lab, &slug);
            let again = ann.complete(&slug, None).expect("handed over again").notices;
            assert!(!again.iter().any(|notice| notice.contains("is not taken")), "{again:?}");
        }
    }
}

#[test]
fn a_branch_with_a_reviewers_commit_has_landed_when_it_is_merged() {
    let lab = Lab::new();
    let (ann, bob) = (by_request(&lab, "ann"), by_request(&lab, "bob"));
    let (slug, place) = reviewed(&lab, &ann, "Merged");
    merge(&lab, &branch_at_hub(&lab, &slug));
    planned(&bob, "Something else");
    let told = bob.doctor(false).expect("checked").findings.concat();
    assert!(!told.contains("did not land") && told.contains("run `sess work gc`"), "{told}");
    let gc = ann.gc(false).expect("cleaned up");
    assert!(!place.exists() && gc.kept.is_empty(), "{gc:?}");
    assert_eq!(lab.git(&lab.hub(), &["for-each-ref", "refs/heads/session"]), "");
    let told = bob.doctor(false).expect("checked").findings;
    assert!(told.is_empty(), "{told:?}");
}

#[test]
fn completing_again_on_another_day_keeps_the_name_of_the_session_that_merges_what_was_learned() {
    fn later() -> Timestamp {
        Timestamp::from_millis_clamped(now().as_millis() + 3 * 24 * 60 * 60 * 1_000)
    }
    let lab = Lab::new();
    let ann = by_request(&lab, "ann");
    let slug = planned(&ann, "Learned");
    worked_on(&lab, &ann, &slug);
    ann.note(&slug, Note::Learning, "days are short").expect("learned");
    let first = ann.complete(&slug, None).expect("handed over").kb.expect("made");
    let settings = Settings { land: Land::Pr, ..Settings::default() };
    let ann = work_at(&lab.path().join("ann"), settings, later);
    let again = ann.complete(&slug, None).expect("handed over again");
    assert_eq!(again.kb.as_ref(), Some(&first));
    let planned = lab.files(&slug.branch(), "_AGENTS/sessions/planned").concat();
    assert!(planned.contains(&format!("/{first}/SESSION.md")), "{planned}");
    // Somebody has taken that name meanwhile.
    let bob = work(&lab.clone_named("bob"));
    let draft = Draft { title: "Mine".to_owned(), ..Draft::default() };
    bob.draft(Some(&first), &draft, None).expect("drafted");
    assert_ne!(ann.complete(&slug, None).expect("handed over again").kb, Some(first));
}
