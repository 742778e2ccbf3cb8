//! What somebody did in a workspace is there afterwards, whatever the verbs did meanwhile.

use std::{
    fs,
    path::{Path, PathBuf},
};

use sess_work::{ClaimOptions, Draft, Kind, Land, Note, Repo, Settings, Slug, Work, Workspace};

use crate::lab::{Lab, planned, work, work_with};

fn claimed(work: &Work, slug: &Slug) -> PathBuf {
    work.claim(slug, &ClaimOptions::default()).expect("claimed").workspace.expect("a workspace")
}

fn commit(lab: &Lab, workspace: &Path, file: &str, slug: &Slug) -> String {
    fs::write(workspace.join(file), "done\n").expect("written");
    lab.git(workspace, &["add", file]);
    lab.git(workspace, &["commit", "--quiet", "-m", &format!("[{slug}] feat: {file}")]);
    lab.git(workspace, &["rev-parse", "HEAD"])
}

#[test]
fn notes_at_the_same_time_are_all_kept_and_so_is_what_somebody_types_meanwhile() {
    let lab = Lab::new();
    let ann = work(&lab.clone_named("ann"));
    let slug = planned(&ann, "Notes");
    let workspace = claimed(&ann, &slug);
    let file = workspace.join(format!("_AGENTS/sessions/active/{slug}/worklog.md"));
    let typed = fs::read_to_string(&file).expect("a worklog") + "- typed by hand\n";
    fs::write(&file, typed).expect("written");
    std::thread::scope(|scope| {
        for n in 0..4 {
            let (ann, slug) = (&ann, &slug);
            // One may be told that another one of the same owner is at it; what it wrote is there all the same.
            scope.spawn(move || drop(ann.note(slug, Note::Log, &format!("note {n}"))));
        }
    });
    let log = fs::read_to_string(&file).expect("a worklog");
    for words in ["typed by hand", "note 0", "note 1", "note 2", "note 3"] {
        assert!(log.contains(words), "{words}: {log}");
    }
    assert_eq!(lab.git(&workspace, &["status", "--porcelain"]), "");
}

#[test]
fn commits_beside_the_branch_keep_the_workspace() {
    let lab = Lab::new();
    let ann = work(&lab.clone_named("ann"));
    let slug = planned(&ann, "Detached");
    let workspace = claimed(&ann, &slug);
    lab.git(&workspace, &["checkout", "--quiet", "--detach"]);
    commit(&lab, &workspace, "a.rs", &slug);
    let refused = ann.complete(&slug, None).expect_err("what is not on the branch would be lost");
    assert_eq!(refused.kind, Kind::WouldLoseWork, "{refused}");
    assert!(workspace.join("a.rs").is_file());
}

#[test]
fn a_branch_that_somebody_else_pushed_to_is_not_deleted() {
    let lab = Lab::new();
    let (ann, bob) = (work(&lab.clone_named("ann")), lab.clone_named("bob"));
    let slug = planned(&ann, "Shared");
    let workspace = claimed(&ann, &slug);
    commit(&lab, &workspace, "a.rs", &slug);
    ann.heartbeat(&slug).expect("shared");
    lab.git(&bob, &["fetch", "--quiet"]);
    lab.git(&bob, &["checkout", "--quiet", &slug.branch()]);
    let theirs = commit(&lab, &bob, "review.rs", &slug);
    lab.git(&bob, &["push", "--quiet", "origin", &slug.branch()]);
    for refused in [ann.complete(&slug, None).map(drop), ann.land(&slug).map(drop)] {
        let refused = refused.expect_err("what Bob pushed would stay behind");
        assert_eq!(refused.kind, Kind::WouldLoseWork, "{refused}");
        assert!(refused.next_command().ends_with(&format!("pull --no-rebase origin {}", slug.branch())));
    }
    assert_eq!(lab.git(&lab.hub(), &["rev-parse", &slug.branch()]), theirs);
    lab.git(&workspace, &["pull", "--quiet", "--no-rebase", "--no-edit", "origin", &slug.branch()]);
    ann.complete(&slug, None).expect("completed");
    assert_eq!(lab.files("main", "review.rs"), ["review.rs"]);
}

#[test]
fn who_lost_a_session_and_claims_it_again_goes_on_with_what_others_did() {
    let lab = Lab::new();
    let dir = lab.clone_named("bob");
    let (ann, bob) = (work(&lab.clone_named("ann")), work(&dir));
    let slug = planned(&ann, "To and fro");
    let workspace = claimed(&bob, &slug);
    let mine = commit(&lab, &workspace, "b3.txt", &slug);
    let options = ClaimOptions::default();
    let theirs = ann.takeover(&slug, true, Some("needed"), &options).expect("taken").workspace;
    commit(&lab, &theirs.expect("a workspace"), "b4.txt", &slug);
    ann.release(&slug, None).expect("released");

    // What is not committed, or would be overwritten, is in the way before anything is taken.
    fs::write(workspace.join("b3.txt"), "more\n").expect("written");
    let taken = |refused: sess_work::Result<sess_work::Claimed>| {
        let refused = refused.expect_err("it would be lost");
        assert_eq!(refused.kind, Kind::WouldLoseWork, "{refused}");
        assert!(refused.to_string().contains(&workspace.display().to_string()), "{refused}");
        assert!(refused.next_command().contains(" stash "), "{refused}");
        let seen = bob.see().expect("seen");
        assert!(seen.standing(&slug).holder().is_none(), "nothing is taken");
        refused
    };
    taken(bob.claim(&slug, &options));
    taken(bob.claim_next(None, &options).map(|claimed| claimed.expect("one is ready")));
    lab.git(&workspace, &["checkout", "--quiet", "b3.txt"]);
    fs::write(workspace.join("b4.txt"), "mine\n").expect("written");
    let refused = taken(bob.claim(&slug, &options));
    assert!(refused.next_command().ends_with(" stash push --all -- b4.txt"), "{refused}");
    fs::remove_file(workspace.join("b4.txt")).expect("removed");

    fs::write(workspace.join("notes.txt"), "mine\n").expect("written");
    let claimed = bob.claim(&slug, &options).expect("claimed");
    assert_eq!(claimed.record.claim.fence, 3);
    let told = claimed.notices.join("\n");
    let kept = told.rsplit("is kept as ").next().expect("a name");
    assert_eq!(lab.git(&dir, &["rev-parse", kept]), mine, "{told}");
    assert!(workspace.join("notes.txt").is_file());
    lab.git(&workspace, &["merge", "--quiet", "--no-edit", kept]);
    bob.complete(&slug, None).expect("completed");
    assert_eq!(lab.files("main", "b3.txt"), ["b3.txt"]);
    assert_eq!(lab.files("main", "b4.txt"), ["b4.txt"]);
}

#[test]
fn a_further_attempt_begins_anew_although_the_workspace_of_the_one_before_was_left() {
    for has_remote in [true, false] {
        let lab = Lab::new();
        let dir = lab.clone_named("ann");
        if !has_remote {
            lab.git(&dir, &["remote", "remove", "origin"]);
        }
        let ann = work(&dir);
        let slug = planned(&ann, "Again");
        let workspace = claimed(&ann, &slug);
        let old = commit(&lab, &workspace, "a1.txt", &slug);
        fs::write(workspace.join("left.txt"), "mine\n").expect("written");
        ann.abandon(&slug, "no use").expect("abandoned");
        assert_eq!(ann.retry(&slug).expect("planned anew"), 2);
        assert_eq!(claimed(&ann, &slug), workspace);
        assert!(workspace.join("left.txt").is_file() && !workspace.join("a1.txt").exists());
        commit(&lab, &workspace, "a2.txt", &slug);
        ann.note(&slug, Note::Log, "begun anew").expect("logged");
        ann.complete(&slug, None).expect("completed");
        let landed = lab.git(&dir, &["ls-tree", "-r", "--name-only", &landed_at(has_remote)]);
        assert!(landed.contains("a2.txt") && !landed.contains("a1.txt"), "{landed}");
        assert!(landed.contains(&format!("completed/{slug}/attempts/1/worklog.md")), "{landed}");
        let rescued = lab.git(&dir, &["for-each-ref", "--contains", &old, "refs/intersession/rescue"]);
        assert!(!rescued.is_empty());
    }
}

fn landed_at(has_remote: bool) -> String {
    (if has_remote { "refs/intersession/seen/base" } else { "main" }).to_owned()
}

#[test]
fn what_cannot_be_worked_on_is_neither_ready_nor_taken_again_and_again() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let ann = work(&dir);
    let broken = planned(&ann, "Aa broken");
    let good = planned(&ann, "Good");
    lab.git(&dir, &["pull", "--quiet", "origin", "main"]);
    let path = format!("_AGENTS/sessions/planned/{broken}/SESSION.md");
    fs::write(dir.join(&path), "---\ndepends: [\n---\n# X\n").expect("written");
    lab.git(&dir, &["commit", "--quiet", "-am", "break it"]);
    lab.git(&dir, &["push", "--quiet", "origin", "HEAD:main"]);
    let claimed =
        ann.claim_next(None, &ClaimOptions::default()).expect("looked for").expect("there is another one");
    assert_eq!(claimed.record.claim.slug, good);

    let alone = lab.clone_named("alone");
    lab.git(&alone, &["remote", "remove", "origin"]);
    let alone = work(&alone);
    let (one, two) = (planned(&alone, "One"), planned(&alone, "Two"));
    let options = ClaimOptions { workspace: Workspace::Clone, ..ClaimOptions::default() };
    alone.claim_next(None, &options).expect_err("a clone needs a remote");
    alone.claim(&one, &options).expect_err("a clone needs a remote");
    let rows = alone.list(&alone.see().expect("seen")).expect("rows");
    let held: Vec<&Slug> = rows.iter().filter(|row| row.holder.is_some()).map(|row| &row.slug).collect();
    assert_eq!(held, Vec::<&Slug>::new());
    for slug in [&one, &two] {
        let claimed = alone.claim_next(None, &ClaimOptions::default()).expect("looked for");
        assert_eq!(claimed.map(|claimed| claimed.record.claim.slug).as_ref(), Some(slug));
    }
    assert!(alone.claim_next(None, &ClaimOptions::default()).expect("looked for").is_none());
}

#[test]
fn a_plan_that_was_changed_between_two_owners_is_the_one_that_counts() {
    let lab = Lab::new();
    let (ann, bob) = (work(&lab.clone_named("ann")), work(&lab.clone_named("bob")));
    let slug = planned(&ann, "Changed");
    let workspace = claimed(&ann, &slug);
    commit(&lab, &workspace, "a.rs", &slug);
    ann.release(&slug, None).expect("released");
    let (before, text) = bob.editable(&slug).expect("a plan");
    bob.edit(&slug, before.as_ref(), &text.replace("Because.", "Because it is so.")).expect("edited");
    let workspace = claimed(&bob, &slug);
    let plan = workspace.join(format!("_AGENTS/sessions/active/{slug}/SESSION.md"));
    assert!(fs::read_to_string(plan).expect("a plan").contains("Because it is so."));
    assert!(workspace.join("a.rs").is_file());
    bob.complete(&slug, None).expect("completed by the new plan");
}

#[test]
fn what_waits_to_be_merged_is_still_its_owners() {
    let lab = Lab::new();
    let settings = Settings { land: Land::Pr, ..Settings::default() };
    let ann = work_with(&lab.clone_named("ann"), settings);
    let slug = planned(&ann, "By request");
    let workspace = claimed(&ann, &slug);
    commit(&lab, &workspace, "a.rs", &slug);
    ann.complete(&slug, None).expect("handed over");
    assert_eq!(claimed(&ann, &slug), workspace);
}

#[test]
fn half_a_clone_is_no_workspace() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let ann = work(&dir);
    let draft = Draft {
        title: "Cloned".to_owned(),
        context: Some("Because.".to_owned()),
        criteria: vec!["It works".to_owned()],
        ..Draft::default()
    };
    let slug = ann.draft(None, &draft, None).expect("drafted");
    ann.ready(&slug).expect("ready");
    let half = dir.join(format!(".sessions/.{slug}.new/.git"));
    fs::create_dir_all(&half).expect("made");
    let options = ClaimOptions { workspace: Workspace::Clone, ..ClaimOptions::default() };
    let workspace = ann.claim(&slug, &options).expect("claimed").workspace.expect("a workspace");
    assert!(workspace.join("readme.md").is_file() && !half.exists());
    lab.git(&workspace, &["branch", "aside"]);
    let ends = commit(&lab, &workspace, "a.rs", &slug);
    let done = ann.complete(&slug, None).expect("completed");
    assert!(done.notices.iter().any(|notice| notice.contains("aside")), "{:?}", done.notices);
    assert_eq!(lab.git(&workspace, &["rev-parse", "HEAD"]), ends);
}

#[test]
fn what_was_removed_on_the_branch_stays_removed_when_the_session_is_claimed_again() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let ann = work(&dir);
    let slug = planned(&ann, "Again");
    let add = |name: &str| {
        lab.git(&dir, &["pull", "--quiet"]);
        let path = format!("_AGENTS/sessions/planned/{slug}/{name}");
        fs::write(dir.join(&path), "for whoever does it\n").expect("written");
        lab.git(&dir, &["add", &path]);
        lab.git(&dir, &["commit", "--quiet", "-m", name]);
        lab.git(&dir, &["push", "--quiet"]);
    };
    add("sketch.md");
    let workspace = claimed(&ann, &slug);
    let of_session = |name: &str| format!("_AGENTS/sessions/active/{slug}/{name}");
    lab.git(&workspace, &["rm", "--quiet", &of_session("sketch.md")]);
    lab.git(&workspace, &["commit", "--quiet", "-m", &format!("[{slug}] feat: done with the sketch")]);
    ann.release(&slug, Some("later")).expect("released");
    add("more.md");
    let workspace = claimed(&ann, &slug);
    assert!(!workspace.join(of_session("sketch.md")).exists(), "it was removed");
    assert!(workspace.join(of_session("more.md")).is_file(), "it is new");
}

#[test]
fn a_workspace_that_lost_what_git_keeps_of_it_is_told_of_and_repaired_where_it_is() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let ann = work(&dir);
    let slug = planned(&ann, "Lost");
    let workspace = claimed(&ann, &slug);
    let tip = commit(&lab, &workspace, "one.txt", &slug);
    fs::write(workspace.join("one.txt"), "not yet committed\n").expect("written");
    fs::remove_dir_all(dir.join(".git/worktrees")).expect("removed by hand");

    let error = Repo::find(&workspace).expect_err("git does not know it");
    assert_eq!(error.next_command(), format!("cd {} && sess work doctor --repair", dir.display()), "{error}");
    let error = ann.complete(&slug, None).expect_err("git does not know it");
    assert!(error.next_command().ends_with("sess work doctor --repair"), "{error}");
    let findings = ann.doctor(false).expect("looked").findings;
    assert!(findings.iter().any(|finding| finding.contains("has lost what git keeps of it")), "{findings:?}");

    let findings = ann.doctor(true).expect("repaired").findings;
    assert!(
        matches!(findings.as_slice(), [told] if told.contains("git knows the workspace")),
        "{findings:?}"
    );
    assert_eq!(lab.git(&workspace, &["rev-parse", "HEAD"]), tip);
    assert_eq!(lab.git(&workspace, &["status", "--porcelain"]).trim(), "M one.txt");
    assert_eq!(ann.doctor(false).expect("looked").findings, [""; 0]);
    lab.git(&workspace, &["commit", "--quiet", "--all", "-m", &format!("[{slug}] feat: the rest")]);
    ann.complete(&slug, None).expect("completed");
    assert!(!workspace.exists(), "it goes with its session");
}

#[test]
fn workspaces_that_were_moved_with_their_repository_are_repaired() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let ann = work(&dir);
    let slugs = ["One", "Two"].map(|title| planned(&ann, title));
    for slug in &slugs {
        commit(&lab, &claimed(&ann, slug), "one.txt", slug);
    }
    // Of one of them the branch is lost, too, which must not be in the way of the other.
    let kept = lab.git(&dir, &["rev-parse", &format!("session/{}", slugs[1])]);
    let moved = lab.path().join("moved");
    fs::rename(&dir, &moved).expect("moved");
    lab.git(&moved, &["update-ref", "-d", &format!("refs/heads/session/{}", slugs[1])]);
    fs::remove_dir_all(moved.join(format!(".git/worktrees/{}", slugs[1]))).expect("removed by hand");
    let workspace = moved.join(".sessions").join(slugs[0].as_str());
    let error = Repo::find(&workspace).expect_err("git looks for it where it was");
    assert_eq!(
        error.next_command(),
        format!("cd {} && sess work doctor --repair", moved.display()),
        "{error}"
    );
    let ann = work(&moved);
    let findings = ann.doctor(true).expect("repaired").findings;
    assert!(findings.iter().any(|told| told.contains("git knows the workspace")), "{findings:?}");
    let left = findings.iter().find(|told| told.contains("cannot be repaired")).expect("it says so");
    let branch = format!("session/{}", slugs[1]);
    assert!(left.contains(&format!("run `git fetch origin {branch}:{branch} && ")), "{left}");
    assert_eq!(lab.git(&workspace, &["status", "--porcelain"]), "");
    ann.complete(&slugs[0], None).expect("completed");

    // A repair that was stopped is begun anew.
    lab.git(&moved, &["update-ref", &format!("refs/heads/{branch}"), &kept]);
    let half = moved.join(".sessions").join(format!(".{}.new", slugs[1]));
    let place = half.to_string_lossy().into_owned();
    lab.git(&moved, &["worktree", "add", "--quiet", "--no-checkout", &place, &branch]);
    ann.doctor(true).expect("repaired");
    assert!(!half.exists(), "nothing is left beside it");
    let workspace = moved.join(".sessions").join(slugs[1].as_str());
    assert_eq!(lab.git(&workspace, &["status", "--porcelain"]), "");
    assert_eq!(lab.git(&workspace, &["rev-parse", "HEAD"]), kept);
    ann.complete(&slugs[1], None).expect("completed");
}

#[test]
fn whatever_lies_beside_a_plan_comes_to_the_next_claim_as_it_is() {
    use std::os::unix::fs::PermissionsExt as _;
    let picture = [0x89, b'P', b'N', b'G', 0xff, 0x00, b'\n'];
    let lab = Lab::new();
    let ann = work(&lab.clone_named("ann"));
    let slug = planned(&ann, "Pictures");
    claimed(&ann, &slug);
    ann.note(&slug, Note::Log, "begun").expect("logged");
    ann.release(&slug, None).expect("released");
    let bob = lab.clone_named("bob");
    let dir = format!("_AGENTS/sessions/planned/{slug}");
    fs::write(bob.join(&dir).join("mockup.png"), picture).expect("written");
    fs::write(bob.join(&dir).join("try.sh"), "#!/bin/sh\n").expect("written");
    fs::set_permissions(bob.join(&dir).join("try.sh"), fs::Permissions::from_mode(0o755)).expect("set");
    lab.git(&bob, &["add", "."]);
    lab.git(&bob, &["commit", "--quiet", "-m", "a picture"]);
    lab.git(&bob, &["push", "--quiet", "origin", "HEAD:main"]);
    let here = claimed(&ann, &slug).join(format!("_AGENTS/sessions/active/{slug}"));
    assert_eq!(fs::read(here.join("mockup.png")).expect("read"), picture);
    assert_eq!(lab.git(&here, &["status", "--porcelain"]), "");
    ann.complete(&slug, None).expect("completed");
    let there = |name: &str| format!("main:_AGENTS/sessions/completed/{slug}/{name}");
    let ours = lab.git(&bob, &["hash-object", &format!("{dir}/mockup.png")]);
    assert_eq!(lab.git(&lab.hub(), &["rev-parse", &there("mockup.png")]), ours);
    let told = lab.git(&lab.hub(), &["ls-tree", "-r", "main", "_AGENTS/sessions/completed"]);
    assert!(told.lines().any(|line| line.starts_with("100755 ") && line.ends_with("/try.sh")), "{told}");
}

/// Claims a session from a directory of the repository; returns where its workspace is.
fn claimed_from(dir: &Path, slug: &Slug) -> PathBuf {
    claimed(&work(dir), slug)
}

#[test]
fn workspaces_are_beside_each_other_where_what_git_keeps_is_elsewhere() {
    let lab = Lab::new();
    let dir = lab.path().join("apart");
    let kept = format!("--separate-git-dir={}", lab.path().join("kept").display());
    lab.git(lab.path(), &["clone", "--quiet", &kept, "hub.git", "apart"]);
    lab.git(&dir, &["config", "user.name", "Ann"]);
    lab.git(&dir, &["config", "user.email", "ann@example.com"]);
    let slugs = ["Outer", "Inner"].map(|title| planned(&work(&dir), title));
    let outer = claimed_from(&dir, &slugs[0]);
    let inner = claimed_from(&outer, &slugs[1]);
    assert_eq!(
        inner,
        dir.join(".sessions").join(slugs[1].as_str()),
        "not in the workspace that it was claimed in"
    );
    fs::write(inner.join("precious.txt"), "not committed\n").expect("written");
    commit(&lab, &outer, "one.txt", &slugs[0]);
    let done = work(&outer).complete(&slugs[0], None).expect("completed");
    assert!(!outer.exists(), "it was made for its session: {:?}", done.notices);
    assert!(inner.join("precious.txt").is_file());
}

#[test]
fn a_workspace_with_another_worktree_in_it_stays() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let ann = work(&dir);
    let slug = planned(&ann, "Around");
    let workspace = claimed(&ann, &slug);
    commit(&lab, &workspace, "one.txt", &slug);
    fs::write(dir.join(".git/info/exclude"), ".sessions/\ninner/\n").expect("written");
    lab.git(&workspace, &["worktree", "add", "--quiet", "--detach", "inner"]);
    fs::write(workspace.join("inner/precious.txt"), "not committed\n").expect("written");
    let done = ann.complete(&slug, None).expect("completed");
    assert!(
        done.notices.iter().any(|told| told.contains("another worktree inside it")),
        "{:?}",
        done.notices
    );
    assert!(workspace.join("inner/precious.txt").is_file());
}

#[test]
fn a_plan_whose_lines_end_as_on_windows_in_a_checkout_is_the_same_plan() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    lab.git(&dir, &["config", "core.autocrlf", "true"]);
    let ann = work(&dir);
    let slug = planned(&ann, "Windows");
    let workspace = claimed(&ann, &slug);
    let file = workspace.join(format!("_AGENTS/sessions/active/{slug}/SESSION.md"));
    fs::remove_file(&file).expect("removed");
    lab.git(&workspace, &["checkout", "--quiet", "--", "."]);
    assert!(fs::read_to_string(&file).expect("read").contains("\r\n"), "as git checks it out there");
    assert_eq!(ann.drift(&slug).expect("a drift").refused, [""; 0]);
    let error = ann.amend(&slug, None, "nothing changed").expect_err("it is the same plan");
    assert!(error.message().contains("is as it was"), "{error}");
    let changed = fs::read_to_string(&file).expect("read").replace("It works", "It works, and fast");
    fs::remove_file(&file).expect("removed");
    fs::write(&file, changed).expect("written");
    let refused = ann.drift(&slug).expect("a drift").refused;
    assert!(refused.iter().any(|told| told.contains("was changed")), "{refused:?}");
    ann.amend(&slug, None, "slow is no use").expect("amended");
    let kept = lab.git(&workspace, &["show", &format!("HEAD:_AGENTS/sessions/active/{slug}/SESSION.md")]);
    assert!(kept.contains("and fast") && !kept.contains('\r'), "{kept:?}");
}

#[test]
fn a_plan_that_was_written_with_the_line_ends_of_windows_is_kept_without() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let ann = work(&dir);
    let plan = "# T\r\n\r\n## Context\r\n\r\nc\r\n\r\n## Acceptance Criteria\r\n\r\n- [ ] x\r\n";
    let draft = Draft { title: "Written there".to_owned(), ..Draft::default() };
    let slug = ann.draft(None, &draft, Some(plan)).expect("drafted");
    ann.edit(&slug, None, &plan.replace("x\r", "y\r")).expect("edited");
    ann.ready(&slug).expect("ready");
    let place = format!("_AGENTS/sessions/planned/{slug}");
    let kept = lab.git(&lab.hub(), &["show", &format!("main:{place}/SESSION.md")]);
    assert!(kept.contains("- [ ] y") && !kept.contains('\r'), "{kept:?}");

    // Somebody may push one by hand, and have it as it is.
    lab.git(&dir, &["pull", "--quiet", "origin", "main"]);
    fs::write(dir.join(place).join("SESSION.md"), plan).expect("written");
    lab.git(&dir, &["commit", "--quiet", "--all", "-m", "by hand"]);
    lab.git(&dir, &["push", "--quiet", "origin", "HEAD:main"]);
    let workspace = claimed(&ann, &slug);
    let file = workspace.join(format!("_AGENTS/sessions/active/{slug}/SESSION.md"));
    assert_eq!(fs::read_to_string(&file).expect("read"), plan);
    assert_eq!(ann.drift(&slug).expect("a drift").refused, [""; 0]);
    let error = ann.amend(&slug, None, "nothing changed").expect_err("it is the same plan");
    assert!(error.message().contains("is as it was"), "{error}");
    commit(&lab, &workspace, "a.rs", &slug);
    ann.complete(&slug, None).expect("completed");
}

#[test]
fn a_plan_that_the_branch_has_otherwise_or_not_at_all_is_brought_back_by_the_command_that_is_told() {
    // As an editor saves it, and as git has it where no hook runs.
    for (title, is_gone) in [("Other line ends", false), ("Gone", true)] {
        let lab = Lab::new();
        let ann = work(&lab.clone_named("ann"));
        let slug = planned(&ann, title);
        let workspace = claimed(&ann, &slug);
        let file = format!("_AGENTS/sessions/active/{slug}/SESSION.md");
        let plan = lab.git(&workspace, &["rev-parse", &format!("HEAD:{file}")]);
        let text = fs::read_to_string(workspace.join(&file)).expect("read");
        fs::remove_file(workspace.join(&file)).expect("removed");
        if !is_gone {
            fs::write(workspace.join(&file), text.replace('\n', "\r\n")).expect("written");
        }
        lab.git(&workspace, &["commit", "--quiet", "--all", "-m", "by an editor", "--no-verify"]);
        commit(&lab, &workspace, "a.rs", &slug);

        let told = ann.status(&slug).expect("told").refused;
        let words = if is_gone { "is gone" } else { "was changed" };
        assert!(told.iter().any(|told| told.contains(words)), "{told:?}");
        let refused = ann.complete(&slug, None).expect_err("it is not the plan");
        assert_eq!(refused.kind, Kind::Policy, "{refused}");
        // It hands the plan over where the workspace has none.
        let show = format!("git show {} | sess work amend {slug} --file - ", &plan[..12]);
        let handed_over = refused.next_command().starts_with(&show).then_some(text.as_str());
        assert_eq!(handed_over.is_some(), is_gone, "{refused}");
        let amend = || ann.amend(&slug, handed_over, "it was not meant");
        assert_eq!(amend().expect("brought back").claim.amendments, [], "it is the plan that was claimed");
        let error = amend().expect_err("it is there");
        assert!(error.message().contains("is as it was"), "{error}");
        assert_eq!(ann.status(&slug).expect("told").refused, [""; 0]);
        assert_eq!(lab.git(&workspace, &["status", "--porcelain"]), "");
        ann.complete(&slug, None).expect("completed");
        let landed =
            lab.git(&lab.hub(), &["rev-parse", &format!("main:{}", file.replace("active", "completed"))]);
        assert_eq!(landed, plan);
    }
}

#[test]
fn whoever_only_asks_about_a_plan_writes_nothing_into_the_repository() {
    let lab = Lab::new();
    let ann = work(&lab.clone_named("ann"));
    let slug = planned(&ann, "Asked");
    let workspace = claimed(&ann, &slug);
    let file = workspace.join(format!("_AGENTS/sessions/active/{slug}/SESSION.md"));
    fs::remove_file(&file).expect("removed");
    fs::write(&file, "# Not yet what it will be\n").expect("written");
    let refused = ann.drift(&slug).expect("a drift").refused;
    assert!(refused.iter().any(|told| told.contains("was changed")), "{refused:?}");
    let blob = lab.git(&workspace, &["hash-object", "--", &file.to_string_lossy()]);
    let known = lab.git(&workspace, &["cat-file", "--batch-all-objects", "--batch-check=%(objectname)"]);
    assert!(!known.contains(&blob), "what somebody is typing is kept");
}

#[test]
fn an_adoption_that_was_stopped_is_gone_on_with_by_the_command_that_is_told() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let ann = work(&dir);
    planned(&ann, "Another");
    let place = lab.path().join("begun");
    lab.git(
        &dir,
        &["worktree", "add", "--quiet", "-b", "session/2026-11-18-begun", &place.to_string_lossy()],
    );
    let slug: Slug = "2026-11-18-begun".parse().expect("a slug");
    commit(&lab, &place, "begun.txt", &slug);
    let own = work(&place);
    let error = own.note(&slug, Note::Log, "begun").expect_err("nobody knows of it");
    assert_eq!(error.next_command(), "sess work adopt", "{error}");
    let findings = ann.doctor(false).expect("looked").findings;
    let command = format!("run `sess work adopt {}`", place.display());
    assert!(findings.iter().any(|told| told.contains(&command)), "{findings:?}");
    assert_eq!(own.adopt(None, None).expect("adopted").record.claim.slug, slug);
    own.complete(&slug, None).expect("completed");
}

#[test]
fn what_could_not_be_shown_is_shown_with_the_next_verb() {
    use std::os::unix::fs::PermissionsExt as _;
    let lab = Lab::new();
    let ann = work(&lab.clone_named("ann"));
    let slug = planned(&ann, "Later");
    let hook = lab.hub().join("hooks/update");
    fs::create_dir_all(lab.hub().join("hooks")).expect("made");
    fs::write(&hook, "#!/bin/sh\n[ $1 != refs/heads/main ]\n").expect("written");
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).expect("set");
    claimed(&ann, &slug);
    assert_eq!(ann.see().expect("seen").tree.state(&slug), Some(sess_work::State::Planned));
    fs::remove_file(&hook).expect("removed");
    ann.note(&slug, Note::Log, "gone on").expect("logged");
    assert_eq!(ann.see().expect("seen").tree.state(&slug), Some(sess_work::State::Active));
}

#[test]
fn what_could_not_be_shown_is_shown_upon_what_others_did_since_it_was_seen() {
    use std::os::unix::fs::PermissionsExt as _;
    let lab = Lab::new();
    let (ann, bob) = (work(&lab.clone_named("ann")), work(&lab.clone_named("bob")));
    let (slug, other) = (planned(&ann, "Later"), planned(&bob, "Theirs"));
    fs::create_dir_all(lab.hub().join("hooks")).expect("made");
    let hook = |name: &str, script: &str| {
        let path = lab.hub().join("hooks").join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("set");
        path
    };
    let closed = hook("update", "[ $1 != refs/heads/main ]");
    claimed(&ann, &slug);
    bob.claim(&other, &ClaimOptions::default()).expect("claimed, and not shown either");
    // As soon as Ann's claim is renewed, somebody has pushed, and Bob has given his session back.
    let hand = lab.clone_named("hand");
    fs::write(hand.join("hand.txt"), "by hand\n").expect("written");
    lab.git(&hand, &["add", "."]);
    lab.git(&hand, &["commit", "--quiet", "-m", "by hand"]);
    lab.git(&hand, &["push", "--quiet", "origin", "HEAD:hand"]);
    let claim = format!("refs/intersession/claims/{other}");
    let held = lab.git(&lab.hub(), &["rev-parse", &claim]);
    bob.release(&other, None).expect("given back");
    let released = lab.git(&lab.hub(), &["rev-parse", &claim]);
    lab.git(&lab.hub(), &["update-ref", &claim, &held]);
    fs::remove_file(closed).expect("removed");
    let main = lab.git(&lab.hub(), &["rev-parse", "main"]);
    hook(
        "post-receive",
        &format!(
            "grep -q claims/{slug} || exit 0\nrm hooks/post-receive\n\
             git update-ref refs/heads/main hand {main} && git update-ref {claim} {released} {held}"
        ),
    );
    ann.note(&slug, Note::Log, "gone on").expect("logged");
    let seen = ann.see().expect("seen");
    assert_eq!(seen.tree.state(&slug), Some(sess_work::State::Active));
    assert_eq!(seen.tree.state(&other), Some(sess_work::State::Planned), "it follows the claim as it is now");
    assert_eq!(lab.git(&lab.hub(), &["show", "main:hand.txt"]), "by hand");
}

#[test]
fn a_workspace_that_was_moved_goes_with_its_session_all_the_same() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let ann = work(&dir);
    let slug = planned(&ann, "Elsewhere");
    let place = Settings { workspaces: Some(lab.path().join("places")), ..Settings::default() };
    let workspace = claimed(&work_with(&dir, place), &slug);
    commit(&lab, &workspace, "one.txt", &slug);
    let moved = lab.path().join("moved");
    lab.git(&dir, &["worktree", "move", &workspace.to_string_lossy(), &moved.to_string_lossy()]);
    let done = ann.complete(&slug, None).expect("completed");
    assert!(!moved.exists(), "{:?}", done.notices);
}

/// Takes a file of a workspace back to where the commit before has it, as a verb leaves it that was killed right after
/// it committed.
fn left_behind(lab: &Lab, workspace: &Path, file: &str) {
    lab.git(workspace, &["reset", "--quiet", "HEAD^", "--", file]);
    match lab.git(workspace, &["ls-files", "--", file]).is_empty() {
        true => fs::remove_file(workspace.join(file)).expect("removed"),
        false => drop(lab.git(workspace, &["checkout", "--quiet", "--", file])),
    }
}

#[test]
fn a_file_that_git_cannot_read_is_not_emptied_when_a_workspace_catches_up() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let ann = work(&dir);
    let slug = planned(&ann, "Missing");
    let workspace = claimed(&ann, &slug);
    ann.note(&slug, Note::Log, "it was written down").expect("logged");
    let file = format!("_AGENTS/sessions/active/{slug}/worklog.md");
    left_behind(&lab, &workspace, &file);
    let before = fs::read_to_string(workspace.join(&file)).expect("a worklog");
    let blob = lab.git(&workspace, &["rev-parse", &format!("HEAD:{file}")]);
    fs::remove_file(dir.join(".git/objects").join(&blob[..2]).join(&blob[2..])).expect("it was a loose one");

    let error = ann.note(&slug, Note::Log, "more").expect_err("what was committed is damaged");
    assert!(error.message().contains(&blob), "{error}");
    assert_eq!(fs::read_to_string(workspace.join(&file)).expect("a worklog"), before);
}

#[test]
fn a_script_is_executable_after_a_workspace_caught_up() {
    use std::os::unix::fs::PermissionsExt as _;
    let lab = Lab::new();
    let ann = work(&lab.clone_named("ann"));
    let slug = planned(&ann, "Script");
    let workspace = claimed(&ann, &slug);
    let file = format!("_AGENTS/sessions/active/{slug}/check");
    fs::write(workspace.join(&file), "#!/bin/sh\n").expect("written");
    fs::set_permissions(workspace.join(&file), fs::Permissions::from_mode(0o755)).expect("set");
    lab.git(&workspace, &["add", "."]);
    let message = format!("[{slug}] feat: a check\n\nSession: {slug}");
    lab.git(&workspace, &["commit", "--quiet", "-m", &message]);
    left_behind(&lab, &workspace, &file);

    ann.note(&slug, Note::Log, "gone on").expect("logged");
    let mode = fs::metadata(workspace.join(&file)).expect("it is there again").permissions().mode();
    assert_ne!(mode & 0o100, 0, "{mode:o}");
    assert_eq!(lab.git(&workspace, &["status", "--porcelain"]), "");
    assert!(lab.git(&workspace, &["ls-files", "--stage", "--", &file]).starts_with("100755 "));
}
