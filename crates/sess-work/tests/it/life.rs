//! The life of a session: drafted, planned, claimed, worked on, landed.

use std::{fs, path::Path};

use sess_work::{ClaimOptions, Kind, Note, Phase, State};

use crate::lab::{Lab, planned, work};

fn commit(lab: &Lab, workspace: &Path, file: &str, content: &[u8], message: &str) {
    let path = workspace.join(file);
    fs::create_dir_all(path.parent().expect("a directory")).expect("made");
    fs::write(&path, content).expect("written");
    lab.git(workspace, &["add", file]);
    lab.git(workspace, &["commit", "--quiet", "-m", message]);
}

#[test]
fn a_session_is_drafted_claimed_worked_on_and_landed() {
    let lab = Lab::new();
    let (ann, bob) = (work(&lab.clone_named("ann")), work(&lab.clone_named("bob")));
    let slug = planned(&ann, "Add user login");
    assert_eq!(
        lab.files("main", "_AGENTS/sessions/planned"),
        [format!("_AGENTS/sessions/planned/{slug}/SESSION.md")]
    );

    let claimed = ann.claim(&slug, &ClaimOptions::default()).expect("claimed");
    assert_eq!(claimed.notices, Vec::<String>::new());
    let workspace = claimed.workspace.expect("a workspace");
    assert!(workspace.join(format!("_AGENTS/sessions/active/{slug}/.session-env")).is_file());
    let refused = bob.claim(&slug, &ClaimOptions::default()).expect_err("it is Ann's");
    assert_eq!(refused.kind, Kind::Claimed);
    assert!(refused.to_string().contains("User ann"), "{refused}");
    let active = lab.files("main", "_AGENTS/sessions");
    assert!(active.contains(&format!("_AGENTS/sessions/active/{slug}/worklog.md")), "{active:?}");
    assert!(active.contains(&"_AGENTS/sessions/sessions.lock".to_owned()), "{active:?}");

    commit(&lab, &workspace, "src/login.rs", b"fn login() {}\n", &format!("[{slug}] feat: log in"));
    commit(&lab, &workspace, "logo.bin", &[0, 159, 146, 150, 255], &format!("[{slug}] feat: a logo"));
    ann.note(&slug, Note::Log, "wrote the form").expect("logged");
    ann.note(&slug, Note::Learning, "forms are hard").expect("learned");
    let done = ann.complete(&slug, Some("It went well.")).expect("completed");
    assert_eq!(done.notices, Vec::<String>::new());
    assert_eq!(done.record.claim.phase, Phase::Completed);
    let kb = done.kb.expect("something was learned");

    let landed = done.record.claim.landed.expect("it landed");
    let files = lab.files("main", "_AGENTS/sessions");
    assert!(files.contains(&format!("_AGENTS/sessions/completed/{slug}/{slug}.patch")), "{files:?}");
    assert!(files.contains(&format!("_AGENTS/sessions/planned/{kb}/SESSION.md")), "{files:?}");
    assert!(!files.iter().any(|file| file.contains("/active/")), "{files:?}");
    assert_eq!(lab.files("main", "src"), ["src/login.rs"]);
    assert!(!workspace.exists());
    assert_eq!(lab.git(&lab.hub(), &["for-each-ref", "refs/heads/session"]), "");
    assert_eq!(lab.git(&lab.hub(), &["for-each-ref", "refs/intersession/claims"]), "");

    // The patch applies on its base to what landed, but for itself.
    let check = lab.clone_named("check");
    let patch = format!("_AGENTS/sessions/completed/{slug}/{slug}.patch");
    fs::copy(check.join(&patch), lab.path().join("landed.patch")).expect("copied");
    lab.git(&check, &["checkout", "--quiet", landed.base.as_str()]);
    lab.git(&check, &["apply", "--index", "../landed.patch"]);
    let differ = lab.git(&check, &["diff", "--cached", "--name-only", "origin/main"]);
    assert_eq!(differ, patch);

    let rows = bob.list(&bob.see().expect("seen")).expect("rows");
    let states: Vec<State> = rows.iter().map(|row| row.state).collect();
    assert_eq!(states, [State::Planned, State::Completed]);
}

#[test]
fn a_new_attempt_does_not_begin_with_the_branch_of_the_one_before() {
    let lab = Lab::new();
    let (ann, bob) = (work(&lab.clone_named("ann")), work(&lab.clone_named("bob")));
    let slug = planned(&ann, "Try it");
    let workspace =
        ann.claim(&slug, &ClaimOptions::default()).expect("claimed").workspace.expect("a workspace");
    commit(&lab, &workspace, "wrong.rs", b"wrong\n", &format!("[{slug}] feat: a wrong way"));
    ann.abandon(&slug, "it leads nowhere").expect("abandoned");
    assert_eq!(lab.files("main", "_AGENTS/sessions/abandoned").len(), 2);
    assert_eq!(bob.retry(&slug).expect("planned anew"), 2);
    for work in [&bob, &ann] {
        let claimed = work.claim(&slug, &ClaimOptions::default()).expect("claimed");
        assert_eq!(claimed.record.claim.attempt, 2);
        let workspace = claimed.workspace.expect("a workspace");
        assert!(!workspace.join("wrong.rs").exists());
        assert!(workspace.join(format!("_AGENTS/sessions/active/{slug}/attempts/1/worklog.md")).is_file());
        work.release(&slug, None).expect("given back");
    }
    let kept = lab.git(&lab.hub(), &["for-each-ref", "--format=%(refname)", "refs/intersession/rescue"]);
    assert!(kept.contains(slug.as_str()), "{kept}");
}

#[test]
fn what_an_attempt_before_landed_is_not_done_in_this_one() {
    for is_alone in [false, true] {
        let lab = Lab::new();
        let dir = lab.clone_named("ann");
        if is_alone {
            lab.git(&dir, &["remote", "remove", "origin"]);
        }
        let ann = work(&dir);
        let slug = planned(&ann, "Again");
        let claimed = || {
            let claimed = ann.claim(&slug, &ClaimOptions::default()).expect("claimed");
            claimed.workspace.expect("a workspace")
        };
        let changed = || ann.drift(&slug).expect("compared").files.changed;
        commit(&lab, &claimed(), "first.txt", b"1\n", &format!("[{slug}] feat: first"));
        ann.land(&slug).expect("landed");
        assert_eq!(changed(), ["first.txt"]);
        ann.abandon(&slug, "not like this").expect("abandoned");
        ann.retry(&slug).expect("planned anew");
        assert_eq!(changed(), [""; 0], "nobody has begun it");
        // What it is compared with is the plan that whoever takes it now begins with.
        let (before, text) = ann.editable(&slug).expect("a plan");
        ann.edit(&slug, before.as_ref(), &format!("{text}- [ ] It is fast\n")).expect("edited");
        let workspace = claimed();
        let drift = ann.drift(&slug).expect("compared");
        assert_eq!(drift.files.changed, [""; 0]);
        assert!(drift.criteria.iter().all(|criterion| criterion.change.is_none()), "{:?}", drift.criteria);
        assert!(!ann.has_work(&slug).expect("looked"), "nobody did anything");
        commit(&lab, &workspace, "second.txt", b"2\n", &format!("[{slug}] feat: second"));
        ann.land(&slug).expect("landed");
        // Giving it back ends no attempt.
        ann.release(&slug, None).expect("given back");
        let workspace = claimed();
        commit(&lab, &workspace, "third.txt", b"3\n", &format!("[{slug}] feat: third"));
        assert_eq!(changed(), ["second.txt", "third.txt"]);
        assert!(ann.has_work(&slug).expect("looked"));
        ann.complete(&slug, None).expect("completed");
        assert_eq!(changed(), ["second.txt", "third.txt"]);
    }
}

#[test]
fn without_a_remote_everything_is_here_and_the_checkout_follows() {
    let lab = Lab::new();
    let dir = lab.clone_named("alone");
    lab.git(&dir, &["remote", "remove", "origin"]);
    let own = work(&dir);
    fs::write(dir.join("readme.md"), "# Being changed\n").expect("written");
    let slug = planned(&own, "Alone");
    assert!(dir.join(format!("_AGENTS/sessions/planned/{slug}/SESSION.md")).is_file());
    let workspace =
        own.claim(&slug, &ClaimOptions::default()).expect("claimed").workspace.expect("a workspace");
    commit(&lab, &workspace, "a.txt", b"a\n", &format!("[{slug}] feat: a"));
    own.complete(&slug, None).expect("completed");
    assert!(dir.join("a.txt").is_file());
    assert!(dir.join(format!("_AGENTS/sessions/completed/{slug}/SESSION.md")).is_file());
    assert_eq!(lab.git(&dir, &["status", "--porcelain"]), " M readme.md");

    // What somebody changes there stays as it is, and says so.
    let next = planned(&own, "Another");
    fs::write(dir.join(format!("_AGENTS/sessions/planned/{next}/SESSION.md")), "mine\n").expect("written");
    let refused = own.unready(&next).expect_err("it would be lost");
    assert_eq!(refused.kind, Kind::WouldLoseWork, "{refused}");
}

#[test]
fn whoever_takes_a_session_over_is_shown_as_the_one_who_works() {
    let lab = Lab::new();
    let (ann, bob) = (work(&lab.clone_named("ann")), work(&lab.clone_named("bob")));
    let slug = planned(&ann, "Take it over");
    ann.claim(&slug, &ClaimOptions::default()).expect("claimed");
    let taken = bob.takeover(&slug, true, Some("she is away"), &ClaimOptions::default()).expect("taken over");
    assert_eq!(taken.notices, Vec::<String>::new());
    let path = format!("_AGENTS/sessions/active/{slug}/.session-env");
    let here = fs::read_to_string(taken.workspace.expect("a workspace").join(&path)).expect("an identity");
    let shown = lab.git(&lab.hub(), &["show", &format!("main:{path}")]);
    for text in [here, shown] {
        assert!(text.contains("User bob") && !text.contains("User ann"), "{text}");
    }
}

#[test]
fn a_session_that_somebody_moved_by_hand_is_still_its_owners() {
    let lab = Lab::new();
    let (ann, other) = (work(&lab.clone_named("ann")), lab.clone_named("other"));
    let slug = planned(&ann, "Moved");
    ann.claim(&slug, &ClaimOptions::default()).expect("claimed");
    lab.git(&other, &["pull", "--quiet", "origin", "main"]);
    let dir = other.join("_AGENTS/sessions");
    fs::create_dir_all(dir.join("completed")).expect("made");
    fs::rename(dir.join(format!("active/{slug}")), dir.join(format!("completed/{slug}"))).expect("moved");
    lab.git(&other, &["add", "--all"]);
    lab.git(&other, &["commit", "--quiet", "-m", "by hand"]);
    lab.git(&other, &["push", "--quiet", "origin", "HEAD:main"]);
    ann.note(&slug, Note::Log, "I go on").expect("it is hers");
    ann.complete(&slug, None).expect("completed");
    let files = lab.files("main", "_AGENTS/sessions/completed");
    assert!(files.contains(&format!("_AGENTS/sessions/completed/{slug}/{slug}.patch")), "{files:?}");
}

#[test]
fn the_patch_is_the_same_whatever_the_user_likes_diffs_to_be() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let lines: Vec<String> = (0..40).map(|n| format!("line {n}\n")).collect();
    commit(&lab, &dir, "list.txt", lines.concat().as_bytes(), "a list");
    lab.git(&dir, &["push", "--quiet", "origin", "HEAD:main"]);
    let order = lab.path().join("order");
    fs::write(&order, "zoo.txt\n").expect("written");
    for (name, value) in [
        ("diff.context", "0"),
        ("diff.interHunkContext", "20"),
        ("diff.algorithm", "patience"),
        ("diff.indentHeuristic", "false"),
        ("diff.mnemonicPrefix", "true"),
        ("diff.noprefix", "true"),
        ("diff.srcPrefix", "x/"),
        ("diff.relative", "true"),
        ("diff.renames", "copies"),
        ("diff.orderFile", &order.to_string_lossy()),
        ("diff.submodule", "log"),
        ("diff.suppressBlankEmpty", "true"),
        ("color.ui", "always"),
    ] {
        lab.git(&dir, &["config", name, value]);
    }
    let ann = work(&dir);
    let slug = planned(&ann, "Change lines");
    let workspace = ann.claim(&slug, &ClaimOptions::default()).expect("claimed").workspace.expect("a place");
    let mut changed = lines.clone();
    (changed[5], changed[20]) = ("five\n".to_owned(), "\ntwenty\n\n".to_owned());
    commit(&lab, &workspace, "list.txt", changed.concat().as_bytes(), &format!("[{slug}] fix: lines"));
    commit(&lab, &workspace, "zoo.txt", b"zoo\n", &format!("[{slug}] feat: a zoo"));
    let landed = ann.complete(&slug, None).expect("completed").record.claim.landed.expect("it landed");
    let patch = format!("_AGENTS/sessions/completed/{slug}/{slug}.patch");
    let kept = lab.git(&lab.hub(), &["show", &format!("main:{patch}")]);
    let (base, but) = (landed.base.to_string(), format!(":(exclude){patch}"));
    let asked = ["diff", "--binary", "--full-index", "--no-renames", &base, "main", "--", ".", &but];
    let plain = lab.git(&lab.hub(), &asked);
    assert_eq!(kept, format!("Session: {slug}\nBase: {base}\n\n{plain}"));
}

#[test]
fn what_was_noted_at_the_end_is_shown_with_the_plan() {
    let lab = Lab::new();
    let ann = work(&lab.clone_named("ann"));
    let slug = planned(&ann, "Noted");
    ann.claim(&slug, &ClaimOptions::default()).expect("claimed");
    ann.complete(&slug, Some("It took longer.")).expect("completed");
    let shown = ann.show(&slug, &ann.see().expect("seen")).expect("shown");
    assert!(
        shown.plan.contains("## Final Notes") && shown.plan.contains("It took longer."),
        "{}",
        shown.plan
    );
    assert_eq!(shown.criteria.len(), 1);
}
