//! What git was asked to do in a workspace and has not done to the end: it is neither cut short nor lost.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use sess_work::{ClaimOptions, Kind, Slug, Work};

use crate::lab::{Lab, planned, work};

fn commit(lab: &Lab, dir: &Path, file: &str, text: &str, slug: &Slug) -> String {
    fs::write(dir.join(file), text).expect("written");
    lab.git(dir, &["add", file]);
    lab.git(dir, &["commit", "--quiet", "-m", &format!("[{slug}] feat: {file} {}", text.trim())]);
    lab.git(dir, &["rev-parse", "HEAD"])
}

/// Runs git where it stops on the way.
#[track_caller]
fn stops(dir: &Path, args: &[&str]) {
    let ended = Command::new("git")
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_EDITOR", "true")
        .output()
        .expect("git runs");
    assert!(!ended.status.success(), "git {args:?} went through");
}

/// What every verb that ends a session, and what cleans up, answers while `begun` is under way in its workspace.
#[track_caller]
fn check(begin: impl Fn(&Lab, &Path, &Slug), told: &str, next: &str) {
    let lab = Lab::new();
    let ann = work(&lab.clone_named("ann"));
    let slug = planned(&ann, "Under way");
    let workspace = claimed(&ann, &slug);
    begin(&lab, &workspace, &slug);
    let place = workspace.display();
    for ended in [
        ann.complete(&slug, None).map(drop),
        ann.release(&slug, None).map(drop),
        ann.abandon(&slug, "no use").map(drop),
    ] {
        let error = ended.expect_err("it would be lost");
        assert_eq!(error.kind, Kind::WouldLoseWork, "{error}");
        assert_eq!(error.message(), format!("the workspace of {slug} is in the middle of {told}"));
        assert_eq!(error.next_command(), format!("git -C {place} {next}"));
    }
    assert!(workspace.is_dir());
    let refused = ann.drift(&slug).expect("compared").refused.join("\n");
    assert!(refused.contains(told), "{refused}");
}

fn claimed(work: &Work, slug: &Slug) -> PathBuf {
    work.claim(slug, &ClaimOptions::default()).expect("claimed").workspace.expect("a workspace")
}

/// Makes two commits on a branch beside the session's, the first of which does not go together with what that has.
fn two_beside(lab: &Lab, workspace: &Path, slug: &Slug) {
    commit(lab, workspace, "a.txt", "begun\n", slug);
    lab.git(workspace, &["switch", "--quiet", "-c", "beside"]);
    commit(lab, workspace, "a.txt", "beside\n", slug);
    commit(lab, workspace, "b.txt", "beside\n", slug);
    lab.git(workspace, &["switch", "--quiet", &slug.branch()]);
    commit(lab, workspace, "a.txt", "mine\n", slug);
}

#[test]
fn patches_that_are_being_applied_are_not_lost() {
    let begin = |lab: &Lab, workspace: &Path, slug: &Slug| {
        two_beside(lab, workspace, slug);
        let patches = lab.path().join("patches");
        lab.git(workspace, &["format-patch", "--quiet", "-2", "-o", &patches.to_string_lossy(), "beside"]);
        let both = ["0001", "0002"].map(|lead| {
            let found = fs::read_dir(&patches).expect("read").flatten().map(|entry| entry.path());
            let is_it = |path: &PathBuf| path.to_string_lossy().contains(lead);
            found.into_iter().find(is_it).expect("a patch").display().to_string()
        });
        stops(workspace, &["am", "--quiet", &both[0], &both[1]]);
        lab.git(workspace, &["branch", "--quiet", "-D", "beside"]);
        assert_eq!(lab.git(workspace, &["status", "--porcelain"]), "", "only git's own directory has them");
    };
    check(begin, "applying patches (git am)", "am --continue");
}

#[test]
fn a_series_of_commits_that_are_picked_or_reverted_is_not_cut_short() {
    let pick = |lab: &Lab, workspace: &Path, slug: &Slug| {
        two_beside(lab, workspace, slug);
        stops(workspace, &["cherry-pick", "beside~2..beside"]);
    };
    check(pick, "a cherry-pick", "cherry-pick --continue");
    // Committing what did not go together does not end the series.
    let committed = |lab: &Lab, workspace: &Path, slug: &Slug| {
        pick(lab, workspace, slug);
        commit(lab, workspace, "a.txt", "both\n", slug);
        assert_eq!(lab.git(workspace, &["status", "--porcelain"]), "");
    };
    check(committed, "a cherry-pick", "cherry-pick --continue");
    let revert = |lab: &Lab, workspace: &Path, slug: &Slug| {
        for text in ["one\n", "two\n", "three\n"] {
            commit(lab, workspace, "a.txt", text, slug);
        }
        stops(workspace, &["revert", "--no-edit", "HEAD~1", "HEAD~2"]);
        commit(lab, workspace, "a.txt", "both\n", slug);
    };
    check(revert, "a revert", "revert --continue");
}

#[test]
fn a_rebase_is_told_as_one_however_it_is_done() {
    for how in ["--merge", "--apply"] {
        let rebase = |lab: &Lab, workspace: &Path, slug: &Slug| {
            two_beside(lab, workspace, slug);
            stops(workspace, &["rebase", how, "beside"]);
        };
        check(rebase, "a rebase", "rebase --continue");
    }
}

#[test]
fn a_merge_and_a_bisection_are_told_too() {
    let merge = |lab: &Lab, workspace: &Path, slug: &Slug| {
        two_beside(lab, workspace, slug);
        stops(workspace, &["merge", "--quiet", "beside"]);
    };
    check(merge, "a merge (MERGE_HEAD)", "status");
    let bisect = |lab: &Lab, workspace: &Path, slug: &Slug| {
        two_beside(lab, workspace, slug);
        lab.git(workspace, &["bisect", "start", "HEAD", "HEAD~2"]);
    };
    check(bisect, "a bisection", "bisect reset");
}

#[test]
fn a_workspace_that_was_left_with_something_under_way_is_not_taken_elsewhere() {
    let lab = Lab::new();
    let (ann, bob) = (work(&lab.clone_named("ann")), work(&lab.clone_named("bob")));
    let slug = planned(&ann, "Left");
    let workspace = claimed(&ann, &slug);
    two_beside(&lab, &workspace, &slug);
    stops(&workspace, &["cherry-pick", "beside~2..beside"]);
    commit(&lab, &workspace, "a.txt", "both\n", &slug);
    let options = ClaimOptions::default();
    bob.takeover(&slug, true, Some("needed"), &options).expect("taken");
    bob.release(&slug, None).expect("released");
    let error = ann.claim(&slug, &options).expect_err("it would be lost");
    assert_eq!(error.kind, Kind::WouldLoseWork, "{error}");
    assert_eq!(error.next_command(), format!("git -C {} cherry-pick --continue", workspace.display()));
}

#[test]
fn work_that_was_adopted_where_it_is_is_found_while_git_has_taken_its_branch_away() {
    for (begin, told, next) in [
        (["rebase", "--merge", "beside"], "a rebase", "rebase --continue"),
        (["rebase", "--apply", "beside"], "a rebase", "rebase --continue"),
        (["bisect", "start", "HEAD"], "a bisection", "bisect reset"),
    ] {
        let lab = Lab::new();
        let dir = lab.clone_named("ann");
        let place = lab.path().join("mine");
        lab.git(&dir, &["worktree", "add", "--quiet", "-b", "mine", &place.to_string_lossy()]);
        let ann = work(&dir);
        let slug = ann.adopt(Some(&place), None).expect("adopted").record.claim.slug;
        two_beside(&lab, &place, &slug);
        if begin[0] == "bisect" {
            lab.git(&place, &begin);
            lab.git(&place, &["bisect", "good", "HEAD~2"]);
        } else {
            stops(&place, &begin);
        }
        for ended in [ann.complete(&slug, None).map(drop), ann.release(&slug, None).map(drop)] {
            let error = ended.expect_err("it would be cut short");
            assert_eq!(error.message(), format!("the workspace of {slug} is in the middle of {told}"));
            assert_eq!(error.next_command(), format!("git -C {} {next}", place.display()));
        }
    }
}

#[test]
fn patches_that_are_being_applied_are_not_adopted_as_a_rebase() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let ann = work(&dir);
    lab.git(&dir, &["switch", "--quiet", "-c", "mine"]);
    fs::write(lab.path().join("patch"), "From: A <a@example.com>\nSubject: x\n\n---\ndiff --git a/no b/no\n--- a/no\n+++ b/no\n@@ -1 +1 @@\n-a\n+b\n")
        .expect("written");
    stops(&dir, &["am", "--quiet", "../patch"]);
    let error = ann.adopt(None, None).expect_err("it is not done");
    assert_eq!(error.message(), format!("{} is in the middle of applying patches (git am)", dir.display()));
    assert_eq!(error.next_command(), format!("git -C {} am --continue", dir.display()));
}
