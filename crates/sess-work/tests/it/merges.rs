//! Merges of a session's branch and the base.

use std::{fs, path::Path, process::Command};

use sess_work::{ClaimOptions, Draft, Error, Kind, Slug, State, Work};

use crate::lab::{Lab, planned, work};

fn list(more: &str) -> String {
    let lines: String = (1..=30).map(|n| format!("line {n} of what is to be done\n")).collect();
    format!("# Session: Todo list\n\n## Context\n\n{lines}\n## Acceptance Criteria\n\n- [ ] done\n{more}")
}

#[track_caller]
fn commit(lab: &Lab, dir: &Path, what: &str) {
    lab.git(dir, &["add", "--all"]);
    lab.git(dir, &["commit", "--quiet", "-m", what]);
}

/// A session that was claimed when `TODO.md` was there, and the checkout of somebody else.
fn claimed(lab: &Lab) -> (Work, Slug, std::path::PathBuf, std::path::PathBuf) {
    let other = lab.clone_named("other");
    fs::write(other.join("TODO.md"), list("")).expect("written");
    commit(lab, &other, "what is to be done");
    lab.git(&other, &["push", "--quiet", "origin", "HEAD:main"]);
    let own = work(&lab.clone_named("ann"));
    let slug = planned(&own, "Work on the list");
    let place = own.claim(&slug, &ClaimOptions::default()).expect("claimed").workspace.expect("a workspace");
    // What is to be done becomes a plan, and the base has both.
    let draft = Draft { title: "Todo list".to_owned(), ..Draft::default() };
    own.draft(None, &draft, Some(&list(""))).expect("drafted");
    lab.git(&other, &["pull", "--quiet", "origin", "main"]);
    (own, slug, place, other)
}

#[track_caller]
fn check_conflict<T: std::fmt::Debug>(ended: Result<T, Error>) -> String {
    let error = ended.expect_err("both changed it");
    assert_eq!(error.kind, Kind::Conflict, "{error}");
    assert!(error.message().ends_with("do not go together: TODO.md"), "{error}");
    error.next_command().to_owned()
}

/// Runs the command that is printed, and says whether a merge with conflicts is under way by it.
fn merge_by_hand(lab: &Lab, place: &Path, command: &str) {
    let ended = Command::new("sh").args(["-c", command]).output().expect("run");
    assert!(!ended.status.success(), "{command}: there is a conflict");
    assert_eq!(lab.git(place, &["diff", "--name-only", "--diff-filter=U"]), "TODO.md", "{command}");
}

#[test]
fn a_plan_that_is_like_a_file_is_not_taken_for_that_file_renamed() {
    // The session removes the list, and the base adds to it; then the other way around.
    for removes_here in [true, false] {
        let lab = Lab::new();
        let (own, slug, place, other) = claimed(&lab);
        let (remover, writer) = if removes_here { (&place, &other) } else { (&other, &place) };
        lab.git(remover, &["rm", "--quiet", "TODO.md"]);
        lab.git(remover, &["commit", "--quiet", "-m", &format!("[{slug}] chore: it is a plan now")]);
        fs::write(writer.join("TODO.md"), list("one more\n")).expect("written");
        commit(&lab, writer, &format!("[{slug}] docs: one more"));
        lab.git(&other, &["push", "--quiet", "origin", "HEAD:main"]);
        let plans = lab.git(&lab.hub(), &["rev-parse", "main:_AGENTS/sessions/drafting"]);

        check_conflict(own.sync(&slug));
        check_conflict(own.land(&slug));
        let command = check_conflict(own.complete(&slug, None));
        merge_by_hand(&lab, &place, &command);
        fs::write(place.join("TODO.md"), list("both\n")).expect("written");
        lab.git(&place, &["add", "TODO.md"]);
        lab.git(&place, &["commit", "--quiet", "--no-edit"]);
        own.complete(&slug, None).expect("completed");
        assert_eq!(lab.git(&lab.hub(), &["show", "main:TODO.md"]), list("both\n").trim_end());
        assert_eq!(lab.git(&lab.hub(), &["rev-parse", "main:_AGENTS/sessions/drafting"]), plans);
        assert_eq!(own.see().expect("seen").tree.state(&slug), Some(State::Completed));
    }
}

#[test]
fn what_goes_together_is_merged_by_a_commit_of_both() {
    let lab = Lab::new();
    let (own, slug, place, other) = claimed(&lab);
    lab.git(&other, &["mv", "TODO.md", "todo.txt"]);
    lab.git(&other, &["commit", "--quiet", "-m", "another name"]);
    lab.git(&other, &["push", "--quiet", "origin", "HEAD:main"]);
    fs::write(place.join("TODO.md"), list("one more\n")).expect("written");
    commit(&lab, &place, &format!("[{slug}] docs: one more"));
    let tip = lab.git(&place, &["rev-parse", "HEAD"]);
    own.sync(&slug).expect("a file of the user's is followed");
    let base = lab.git(&lab.hub(), &["rev-parse", "main"]);
    assert_eq!(lab.git(&place, &["show", "--no-patch", "--format=%P", "HEAD"]), format!("{tip} {base}"));
    assert_eq!(fs::read_to_string(place.join("todo.txt")).expect("read"), list("one more\n"));
    let sessions = |at: &str| {
        let told = lab.git(&place, &["ls-tree", "-r", at, "--", "_AGENTS/sessions/drafting"]);
        assert!(told.contains("SESSION.md"), "{told}");
        told
    };
    assert_eq!(sessions("HEAD"), sessions(&base));
}

#[test]
fn branches_that_were_merged_into_each_other_go_together() {
    let lab = Lab::new();
    let (own, slug, place, other) = claimed(&lab);
    let write = |dir: &Path, file: &str| {
        fs::write(dir.join(file), "x\n").expect("written");
        commit(&lab, dir, &format!("[{slug}] feat: {file}"));
    };
    write(&place, "mine.txt");
    write(&other, "theirs.txt");
    // Each takes what the other had: the two have two last commits in common.
    let (mine, theirs) = (lab.git(&place, &["rev-parse", "HEAD"]), lab.git(&other, &["rev-parse", "HEAD"]));
    lab.git(&other, &["fetch", "--quiet", &place.to_string_lossy(), &mine]);
    lab.git(&place, &["fetch", "--quiet", &other.to_string_lossy(), &theirs]);
    for (dir, commit) in [(&other, &mine), (&place, &theirs)] {
        lab.git(dir, &["merge", "--quiet", "--no-edit", commit]);
    }
    write(&place, "mine2.txt");
    write(&other, "theirs2.txt");
    lab.git(&other, &["push", "--quiet", "origin", "HEAD:main"]);
    own.complete(&slug, None).expect("completed");
    let files = lab.files("main", ".");
    for file in ["mine.txt", "theirs.txt", "mine2.txt", "theirs2.txt"] {
        assert!(files.iter().any(|found| found == file), "{files:?}");
    }
}

#[test]
fn whoever_looks_again_leaves_nothing_more() {
    let lab = Lab::new();
    let (own, slug, place, other) = claimed(&lab);
    fs::write(place.join("mine.txt"), "mine\n").expect("written");
    commit(&lab, &place, &format!("[{slug}] feat: mine"));
    fs::write(other.join("theirs.txt"), "theirs\n").expect("written");
    commit(&lab, &other, "theirs");
    lab.git(&other, &["push", "--quiet", "origin", "HEAD:main"]);
    let sides = || {
        own.status(&slug).expect("told");
        let format = "--batch-check=%(objecttype) %(objectname)";
        let all = lab.git(&place, &["cat-file", "--batch-all-objects", format]);
        let commits = all.lines().filter_map(|line| line.strip_prefix("commit "));
        let told = |commit: &str| lab.git(&place, &["show", "--no-patch", "--format=%at %ct %s", commit]);
        commits.map(told).filter(|told| told.ends_with(" side")).collect::<Vec<_>>()
    };
    let first = sides();
    assert!(!first.is_empty(), "the base has moved on");
    assert!(first.iter().all(|told| told == "0 0 side"), "made at any time they are the same: {first:?}");
    assert_eq!(sides(), first);
}
