//! Half-done states, what they are said to mean, and what puts them right; and cleaning up.

use std::{fs, os::unix::fs::PermissionsExt as _};

use sess_work::{
    CheckRow, Checkup, ClaimOptions, Draft, Kind, Land, Note, Phase, Settings, Slug, State, Work,
};

use crate::lab::{Lab, bare, planned, work, work_with};

#[track_caller]
fn row(checkup: &Checkup, slug: &Slug) -> CheckRow {
    checkup
        .rows
        .iter()
        .find(|row| row.slug == *slug)
        .unwrap_or_else(|| panic!("{slug} in {checkup:?}"))
        .clone()
}

fn claim_ref(slug: &Slug) -> String {
    format!("refs/intersession/claims/{slug}")
}

/// Changes the base by hand, as somebody without the program does.
fn by_hand(lab: &Lab, name: &str, change: impl FnOnce(&std::path::Path)) {
    let dir = lab.clone_named(name);
    change(&dir);
    lab.git(&dir, &["add", "--all"]);
    lab.git(&dir, &["commit", "--quiet", "-m", "by hand"]);
    lab.git(&dir, &["push", "--quiet", "origin", "HEAD:main"]);
}

fn state(work: &Work, slug: &Slug) -> Option<State> {
    work.see().expect("seen").tree.state(slug)
}

#[test]
fn a_repository_in_order_has_a_row_a_session_and_nothing_to_do() {
    let lab = Lab::new();
    let own = work(&lab.clone_named("ann"));
    let (one, two) = (planned(&own, "One"), planned(&own, "Two"));
    own.claim(&two, &ClaimOptions::default()).expect("claimed");
    let checkup = own.doctor(false).expect("checked");
    assert_eq!(checkup.findings, Vec::<String>::new());
    assert_eq!(row(&checkup, &one).meaning, "nobody has it; it is planned");
    let held = row(&checkup, &two);
    assert_eq!((held.directory, held.next), (Some(State::Active), None));
    assert!(held.claim.expect("a claim").starts_with("active, fence 1, User ann"));
}

#[test]
fn an_orphan_is_planned_again_and_a_claim_without_its_directory_gets_it_back() {
    let lab = Lab::new();
    let (ann, bob) = (work(&lab.clone_named("ann")), work(&lab.clone_named("bob")));
    let (orphan, lost) = (planned(&ann, "Orphan"), planned(&ann, "Lost"));
    for slug in [&orphan, &lost] {
        ann.claim(slug, &ClaimOptions::default()).expect("claimed");
    }
    lab.git(&lab.hub(), &["update-ref", "-d", &claim_ref(&orphan)]);
    by_hand(&lab, "hand", |dir| {
        fs::remove_dir_all(dir.join(State::Active.dir_of(&lost))).expect("removed");
        fs::write(dir.join("_AGENTS/sessions/sessions.lock"), "nonsense\n").expect("written");
    });
    for slug in [&orphan, &lost] {
        let refused = ann.status(slug).expect("told").refused.join("\n");
        assert!(refused.contains("`sess work doctor --repair`"), "{slug}: {refused}");
    }
    // Other verbs say what to run.
    for (slug, error) in [(&orphan, ann.heartbeat(&orphan)), (&lost, ann.heartbeat(&lost))] {
        let error = error.expect_err("half done");
        assert_eq!(error.kind, Kind::WrongState, "{slug}");
        assert!(error.to_string().ends_with("run `sess work doctor --repair`"), "{error}");
    }
    let checkup = bob.doctor(false).expect("checked");
    assert!(row(&checkup, &orphan).meaning.contains("nobody has it"));
    assert!(row(&checkup, &lost).meaning.contains("its directory is gone"));
    assert!(checkup.findings.iter().any(|finding| finding.contains("sessions.lock")), "{checkup:?}");
    assert_eq!(state(&bob, &orphan), Some(State::Active));
    for row in bob.list(&bob.see().expect("seen")).expect("listed") {
        let note = row.note.expect("something is wrong with both");
        assert!(note.ends_with("`sess work doctor --repair` repairs that"), "{note}");
    }

    let repaired = bob.doctor(true).expect("repaired");
    assert!(row(&repaired, &orphan).repaired && row(&repaired, &lost).repaired, "{repaired:?}");
    assert_eq!(state(&bob, &orphan), Some(State::Planned));
    assert_eq!(state(&bob, &lost), Some(State::Active));
    let lock = lab.git(&lab.hub(), &["show", "main:_AGENTS/sessions/sessions.lock"]);
    assert!(lock.starts_with(&format!("{lost}:")) && lock.lines().count() == 1, "{lock}");
    ann.heartbeat(&lost).expect("it is Ann's as before");
    bob.claim(&orphan, &ClaimOptions::default()).expect("it can be taken");
    assert_eq!(bob.doctor(true).expect("again").findings, Vec::<String>::new());
}

#[test]
fn a_claim_that_was_written_by_hand_is_told_and_taken_away_but_kept() {
    let lab = Lab::new();
    let (ann, bob) = (work(&lab.clone_named("ann")), work(&lab.clone_named("bob")));
    let slug = planned(&ann, "Damage");
    let main = lab.git(&lab.hub(), &["rev-parse", "main"]);
    lab.git(&lab.hub(), &["update-ref", &claim_ref(&slug), &main]);
    let row = bob.list(&bob.see().expect("seen")).expect("listed").remove(0);
    assert!(!row.ready && row.note.is_some_and(|note| note.contains("damaged") && note.contains("--repair")));
    assert!(bob.claim_next(None, &ClaimOptions::default()).expect("looked for").is_none());
    let refused = bob.claim(&slug, &ClaimOptions::default()).expect_err("damaged");
    assert_eq!(refused.kind, Kind::WrongState);
    assert!(refused.to_string().ends_with("run `sess work doctor --repair`"), "{refused}");
    let checkup = bob.doctor(false).expect("checked");
    assert!(checkup.findings.iter().any(|finding| finding.contains("is damaged")), "{checkup:?}");
    let rows = checkup.rows.iter().filter(|row| row.meaning == "its claim is damaged");
    assert!(rows.clone().count() > 0 && rows.clone().all(|row| row.next.is_some()), "{checkup:?}");
    bob.doctor(true).expect("repaired");
    bob.claim(&slug, &ClaimOptions::default()).expect("claimed");
    let kept = lab.git(
        &lab.path().join("bob"),
        &["for-each-ref", "--format=%(objectname)", "refs/intersession/rescue/damaged"],
    );
    assert_eq!(kept, main);
    let bob_of = bob.see().expect("seen");
    assert_eq!(bob_of.view.damaged, Vec::new());
}

#[test]
fn odd_directories_and_worktrees_that_are_gone_are_named() {
    let lab = Lab::new();
    let own = work(&lab.clone_named("ann"));
    let slug = planned(&own, "Odd");
    let workspace =
        own.claim(&slug, &ClaimOptions::default()).expect("claimed").workspace.expect("a workspace");
    by_hand(&lab, "hand", |dir| {
        let odd = dir.join("_AGENTS/sessions/planned/Not A Slug");
        fs::create_dir_all(&odd).expect("made");
        fs::write(odd.join("SESSION.md"), "# X\n").expect("written");
    });
    fs::remove_dir_all(&workspace).expect("removed");
    let findings = own.doctor(true).expect("checked").findings;
    assert!(
        findings.iter().any(|finding| finding.contains("Not A Slug") && finding.contains("git rm")),
        "{findings:?}"
    );
    assert!(findings.iter().any(|finding| finding.contains("git worktree prune")), "{findings:?}");
    // The workspace comes back with its owner's claim.
    own.claim(&slug, &ClaimOptions::default()).expect("resumed");
    assert!(workspace.join("readme.md").is_file());
}

#[test]
fn work_that_somebody_merged_ends_its_claim_with_anybodys_next_verb() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let ann = work_with(&dir, Settings { land: Land::Pr, ..Settings::default() });
    let bob = work(&lab.clone_named("bob"));
    let slug = planned(&ann, "By a pull request");
    let workspace =
        ann.claim(&slug, &ClaimOptions::default()).expect("claimed").workspace.expect("a workspace");
    fs::write(workspace.join("a.txt"), "a\n").expect("written");
    lab.git(&workspace, &["add", "a.txt"]);
    lab.git(&workspace, &["commit", "--quiet", "-m", &format!("[{slug}] feat: a")]);
    ann.complete(&slug, None).expect("handed over");
    assert_eq!(
        row(&bob.doctor(false).expect("checked"), &slug).meaning,
        "its work waits to be merged by others"
    );
    // The pull request is merged.
    let merge = lab.clone_named("merge");
    lab.git(&merge, &["merge", "--quiet", "--squash", &format!("origin/session/{slug}")]);
    lab.git(&merge, &["commit", "--quiet", "-m", "merged"]);
    lab.git(&merge, &["push", "--quiet", "origin", "HEAD:main"]);
    assert!(row(&bob.doctor(false).expect("checked"), &slug).meaning.contains("its work is merged"));
    planned(&bob, "Something else");
    let seen = bob.see().expect("seen");
    assert_eq!(seen.record(&slug).expect("a claim").claim.phase, Phase::Completed);
    assert_eq!(lab.git(&lab.hub(), &["show", "main:_AGENTS/sessions/sessions.lock"]), "");

    // Whoever cleans up removes what is safe: Bob the branch, Ann her workspace.
    let gc = ann.gc(true).expect("looked");
    assert!(gc.workspaces.len() == 1 && gc.workspaces[0].removed && gc.workspaces[0].bytes > 0, "{gc:?}");
    assert!(workspace.exists());
    let gc = ann.gc(false).expect("cleaned up");
    assert!(gc.workspaces[0].removed && gc.archived == 1, "{gc:?}");
    assert!(!workspace.exists());
    assert_eq!(lab.git(&lab.hub(), &["for-each-ref", "refs/heads/session", "refs/intersession/claims"]), "");
    assert_eq!(ann.doctor(false).expect("checked").findings, Vec::<String>::new());
}

#[test]
fn what_somebody_could_not_show_is_shown_by_anybodys_next_verb() {
    let lab = Lab::new();
    let (ann, bob) = (work(&lab.clone_named("ann")), work(&lab.clone_named("bob")));
    let (taken, back) = (planned(&ann, "Taken"), planned(&ann, "Back"));
    ann.claim(&back, &ClaimOptions::default()).expect("claimed");
    let hook = lab.hub().join("hooks/pre-receive");
    fs::write(&hook, "#!/bin/sh\nwhile read old new ref; do [ $ref != refs/heads/main ] || exit 1; done\n")
        .expect("written");
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).expect("set");
    assert_eq!(ann.claim(&taken, &ClaimOptions::default()).expect("claimed").notices.len(), 1);
    assert_eq!(ann.release(&back, None).expect("given back").len(), 1);
    assert_eq!((state(&bob, &taken), state(&bob, &back)), (Some(State::Planned), Some(State::Active)));
    let checkup = bob.doctor(false).expect("checked");
    assert!(row(&checkup, &taken).meaning.contains("goes to active/"), "{checkup:?}");
    assert!(row(&checkup, &back).meaning.contains("goes to planned/"), "{checkup:?}");
    // Half done or not, it is Ann's and nobody else's.
    assert_eq!(bob.claim(&taken, &ClaimOptions::default()).expect_err("it is Ann's").kind, Kind::Claimed);
    fs::remove_file(&hook).expect("removed");
    planned(&bob, "Something else");
    assert_eq!((state(&bob, &taken), state(&bob, &back)), (Some(State::Active), Some(State::Planned)));
}

#[test]
fn nothing_that_is_only_there_is_cleaned_up() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let own = work(&dir);
    let claimed = |title: &str| {
        let slug = planned(&own, title);
        let place =
            own.claim(&slug, &ClaimOptions::default()).expect("claimed").workspace.expect("a workspace");
        (slug, place)
    };
    let (held, _) = claimed("Held");
    let (untracked, place) = claimed("Untracked");
    fs::write(place.join("notes.txt"), "only here\n").expect("written");
    own.release(&untracked, None).expect("given back");
    fs::write(dir.join(".worktreeinclude"), ".env\n").expect("written");
    fs::write(dir.join(".env"), "KEY=1\n").expect("written");
    fs::write(dir.join(".git/info/exclude"), ".env\n/.sessions/\n").expect("written");
    let (copied, place) = claimed("Copied");
    assert!(place.join(".env").is_file());
    own.complete(&copied, None).expect("completed");
    assert!(!place.exists(), "an unchanged copy is nothing to keep");
    let (changed, place) = claimed("Changed");
    fs::write(place.join(".env"), "KEY=2\n").expect("written");
    own.complete(&changed, None).expect("completed");
    let (stashed, place) = claimed("Stashed");
    fs::write(place.join("readme.md"), "changed\n").expect("written");
    lab.git(&place, &["stash", "--quiet"]);
    own.complete(&stashed, None).expect("completed");
    let (late, place) = claimed("Late");
    fs::write(place.join("keep"), "\n").expect("written");
    own.complete(&late, None).expect("completed");
    fs::write(place.join("late.txt"), "late\n").expect("written");
    lab.git(&place, &["add", "late.txt", "keep"]);
    lab.git(&place, &["commit", "--quiet", "-m", "after it landed"]);

    for dry_run in [true, false] {
        let gc = own.gc(dry_run).expect("cleaned up");
        let reasons: Vec<(bool, &str)> =
            gc.workspaces.iter().map(|item| (item.removed, item.reason.as_str())).collect();
        let expected = [
            (&changed, ".env"),
            (&held, "held here"),
            (&late, "did not land"),
            (&stashed, "stashed"),
            (&untracked, "notes.txt"),
        ];
        assert_eq!(reasons.len(), expected.len(), "{reasons:?}");
        for ((removed, reason), (slug, words)) in reasons.into_iter().zip(expected) {
            assert!(!removed && reason.contains(words), "{slug}: {reason}");
        }
        assert_eq!(gc.refs, 0);
    }
    assert!(place.join("late.txt").is_file());
    let findings = own.doctor(false).expect("checked").findings;
    // None of them goes by cleaning up alone.
    assert!(!findings.iter().any(|finding| finding.contains("ended: run `sess work gc`")), "{findings:?}");
    assert!(findings.iter().any(|finding| finding.contains("notes.txt: look after that")), "{findings:?}");
    shell(&dir, command(&findings, "commits that did not land"));
    assert!(!place.exists());
    shell(&dir, command(&own.doctor(false).expect("checked").findings, "commits that did not land"));
    lab.git(&dir, &["stash", "drop", "--quiet"]);
    own.gc(false).expect("cleaned up");
    let findings = own.doctor(false).expect("checked").findings;
    assert!(
        findings.len() == 2 && !findings.iter().any(|found| found.contains(stashed.as_str())),
        "{findings:?}"
    );
}

/// Returns the command that a finding says to run.
#[track_caller]
fn command<'a>(findings: &'a [String], words: &str) -> &'a str {
    let finding = findings.iter().find(|finding| finding.contains(words));
    let finding = finding.unwrap_or_else(|| panic!("{words} in {findings:?}"));
    finding.rsplit_once("run `").expect("a command").1.trim_end_matches('`')
}

#[track_caller]
fn shell(dir: &std::path::Path, command: &str) {
    let ended =
        std::process::Command::new("sh").args(["-c", command]).current_dir(dir).output().expect("sh runs");
    assert!(ended.status.success(), "{command}: {}", String::from_utf8_lossy(&ended.stderr));
}

#[test]
fn adopted_work_that_landed_is_cleaned_up_as_the_doctor_says() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let own = work(&dir);
    let wild = lab.path().join("wild");
    lab.git(&dir, &["worktree", "add", "--quiet", "-b", "wild", &wild.to_string_lossy()]);
    fs::write(wild.join("a.rs"), "fn a() {}\n").expect("written");
    lab.git(&wild, &["add", "."]);
    lab.git(&wild, &["commit", "--quiet", "-m", "wild"]);
    let slug = own.adopt(Some(&wild), Some("Wild")).expect("adopted").record.claim.slug;
    own.complete(&slug, None).expect("completed");
    let gc = own.gc(true).expect("looked");
    assert!(gc.workspaces.iter().all(|item| !item.removed), "{gc:?}");
    let findings = own.doctor(false).expect("checked").findings;
    shell(&dir, command(&findings, "was there before"));
    assert!(wild.join("a.rs").is_file());
    let findings = own.doctor(false).expect("checked").findings;
    assert_eq!(command(&findings, "has ended"), "sess work gc");
    own.gc(false).expect("cleaned up");
    assert_eq!(own.doctor(false).expect("checked").findings, Vec::<String>::new());
}

#[test]
fn a_claim_that_is_damaged_or_gone_is_not_one_that_ended() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let own = work(&dir);
    let (gone, damaged) = (planned(&own, "Gone"), planned(&own, "Damaged"));
    for slug in [&gone, &damaged] {
        own.claim(slug, &ClaimOptions::default()).expect("claimed");
    }
    lab.git(&lab.hub(), &["update-ref", "-d", &claim_ref(&gone)]);
    lab.git(&lab.hub(), &["update-ref", &claim_ref(&damaged), "main"]);
    let checkup = own.doctor(false).expect("checked");
    assert!(!checkup.findings.iter().any(|finding| finding.contains("ended")), "{checkup:?}");
    assert_eq!(row(&checkup, &gone).next.as_deref(), Some("sess work doctor --repair"));
    assert_eq!(command(&checkup.findings, "is damaged"), "sess work doctor --repair");
    let findings = own.doctor(true).expect("repaired").findings;
    // They are planned again, and what is left of them can go.
    assert_eq!(command(&findings, "nobody has any more"), "sess work gc");
    own.gc(false).expect("cleaned up");
    assert_eq!(own.doctor(false).expect("checked").findings, Vec::<String>::new());
}

#[test]
fn a_plan_that_somebody_changes_on_the_base_is_told_and_never_dropped_in_silence() {
    let lab = Lab::new();
    let ann = work(&lab.clone_named("ann"));
    let (taken, left) = (planned(&ann, "Taken over"), planned(&ann, "Left"));
    for slug in [&taken, &left] {
        ann.claim(slug, &ClaimOptions::default()).expect("claimed");
    }
    assert_eq!(ann.drift(&taken).expect("told").base_plan, None);
    by_hand(&lab, "hand", |dir| {
        for slug in [&taken, &left] {
            let path = dir.join(State::Active.dir_of(slug)).join("SESSION.md");
            let text = fs::read_to_string(&path).expect("a plan").replace("Because.", "Because of Bob.");
            fs::write(&path, text).expect("written");
        }
    });
    let findings = ann.doctor(false).expect("checked").findings;
    for slug in [&taken, &left] {
        assert!(command(&findings, &format!("SESSION.md of {slug}")).contains(&format!("amend {slug}")));
        let told = ann.drift(slug).expect("told").base_plan.expect("it was changed");
        assert!(told.contains("changed on main by User hand"), "{told}");
        assert_eq!(ann.status(slug).expect("told").base_plan, Some(told));
        assert_eq!(ann.land(slug).expect_err("it would be overwritten").kind, Kind::Policy);
    }
    // As the command does it.
    let asked = command(&findings, &format!("SESSION.md of {taken}")).split(' ').nth(2).expect("a blob");
    let path = lab.path().join("hand").join(State::Active.dir_of(&taken)).join("SESSION.md");
    let text = fs::read_to_string(path).expect("a plan");
    assert_eq!(lab.git(&lab.path().join("ann"), &["show", asked]), text.trim_end());
    let shown = |slug: &Slug| ann.show(slug, &ann.see().expect("seen")).expect("shown").plan;
    assert!(!shown(&taken).contains("Bob"), "what is shown is what is worked by");
    ann.amend(&taken, Some(&text), "as Bob has it").expect("amended");
    assert_eq!(shown(&taken), text);
    assert_eq!(ann.drift(&taken).expect("told").base_plan, None);
    let done = ann.complete(&taken, None).expect("completed");
    assert_eq!(done.notices, Vec::<String>::new());
    let notices = ann.complete(&left, None).expect("completed").notices;
    let [notice] = notices.as_slice() else { panic!("{notices:?}") };
    assert!(notice.contains("was changed on main") && notice.contains("git show "), "{notice}");
}

#[test]
fn what_complete_asks_for_besides_the_work_is_told_before() {
    let lab = Lab::new();
    let ann = work(&lab.clone_named("ann"));
    let plan = "---\ngates: [lint]\n---\n# Asked\n\n## Context\n\nc\n\n## Acceptance Criteria\n\n- [ ] a\n";
    let slug = ann.draft(None, &Draft { title: "Asked".to_owned(), ..Draft::default() }, Some(plan));
    let slug = slug.expect("drafted");
    ann.ready(&slug).expect("ready");
    let place = ann.claim(&slug, &ClaimOptions::default()).expect("claimed").workspace.expect("a workspace");
    ann.note(&slug, Note::Learning, "Locks are left.").expect("learned");
    by_hand(&lab, "hand", |dir| {
        let template = dir.join("_AGENTS/sessions/_templates/kb-merge-SESSION.md.j2");
        fs::create_dir_all(template.parent().expect("a directory")).expect("made");
        fs::write(template, "{% if %}").expect("written");
    });
    // Somebody else pushed to its branch.
    let other = lab.clone_named("other");
    lab.git(&other, &["checkout", "--quiet", &slug.branch()]);
    fs::write(other.join("more.txt"), "more\n").expect("written");
    lab.git(&other, &["add", "."]);
    lab.git(&other, &["commit", "--quiet", "-m", &format!("[{slug}] feat: more")]);
    lab.git(&other, &["push", "--quiet", "origin", &slug.branch()]);
    let refused = ann.drift(&slug).expect("told").refused;
    for what in ["the gate \"lint\"", "kb-merge-SESSION.md.j2", "has 1 commits that are not here"] {
        assert!(refused.iter().any(|told| told.contains(what)), "{what}: {refused:?}");
    }
    assert_eq!(ann.status(&slug).expect("told").refused, refused);
    drop(place);
}

#[test]
fn files_of_other_sessions_do_not_land_and_that_is_told() {
    let lab = Lab::new();
    let ann = work(&lab.clone_named("ann"));
    let (slug, other) = (planned(&ann, "Own"), planned(&ann, "Other"));
    let place = ann.claim(&slug, &ClaimOptions::default()).expect("claimed").workspace.expect("a workspace");
    let theirs = format!("{}/SESSION.md", State::Planned.dir_of(&other));
    fs::write(place.join(&theirs), "# Mine now\n").expect("written");
    fs::write(place.join("work.txt"), "done\n").expect("written");
    lab.git(&place, &["add", "."]);
    lab.git(&place, &["commit", "--quiet", "-m", &format!("[{slug}] feat: both")]);
    let files = ann.drift(&slug).expect("told").files;
    assert_eq!(files.changed, ["work.txt", theirs.as_str()]);
    assert!(files.outside.contains(&theirs), "{files:?}");
    let notices = ann.complete(&slug, None).expect("completed").notices;
    assert!(
        notices.iter().any(|told| told.contains(&format!("do not land: {theirs}; `git show "))),
        "{notices:?}"
    );
    assert_eq!(lab.files("main", "work.txt"), ["work.txt"]);
    assert!(!lab.git(&lab.hub(), &["show", &format!("main:{theirs}")]).contains("Mine now"));
}

#[test]
fn everything_that_will_not_land_is_told_at_once() {
    let lab = Lab::new();
    let ann = work(&lab.clone_named("ann"));
    let slug = planned(&ann, "Refused");
    let place = ann.claim(&slug, &ClaimOptions::default()).expect("claimed").workspace.expect("a workspace");
    assert_eq!(ann.drift(&slug).expect("told").refused, Vec::<String>::new());
    let plan = State::Active.dir_of(&slug) + "/SESSION.md";
    let knowledge = ["_AGENTS/knowledge/one.md", "_AGENTS/knowledge/deep/two.md"];
    fs::create_dir_all(place.join("_AGENTS/knowledge/deep")).expect("made");
    for path in knowledge {
        fs::write(place.join(path), "known\n").expect("written");
    }
    fs::set_permissions(place.join(&plan), fs::Permissions::from_mode(0o644)).expect("set");
    fs::write(place.join(&plan), "# Another\n").expect("written");
    let told = |refused: &[String], count: usize| {
        let all = refused.join("\n");
        assert!(refused.len() == count && all.contains("SESSION.md"), "{refused:?}");
        assert!(knowledge.iter().all(|path| all.contains(path)), "{refused:?}");
    };
    // Before it is committed, and after.
    for is_committed in [false, true] {
        if is_committed {
            lab.git(&place, &["add", "."]);
            lab.git(&place, &["commit", "--quiet", "-m", &format!("[{slug}] docs: all wrong")]);
        }
        // What is not committed is refused as such, too.
        let count = if is_committed { 2 } else { 3 };
        told(&ann.drift(&slug).expect("told").refused, count);
        told(&ann.status(&slug).expect("told").refused, count);
    }
    let refused = ann.complete(&slug, None).expect_err("policy");
    assert_eq!(refused.kind, Kind::Policy);
    assert!(refused.message().contains("SESSION.md"), "{refused}");
    assert!(knowledge.iter().all(|path| refused.message().contains(path)), "{refused}");
}

#[test]
fn a_workspace_that_is_a_clone_goes_also_when_its_owner_stands_in_it() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let own = work(&dir);
    let slug = planned(&own, "Cloned");
    let options = ClaimOptions { workspace: sess_work::Workspace::Clone, ..ClaimOptions::default() };
    let place = own.claim(&slug, &options).expect("claimed").workspace.expect("a workspace");
    let inside = work(&place);
    assert_eq!(inside.meant(None).expect("it is known here"), slug);
    inside.note(&slug, sess_work::Note::Log, "from inside").expect("logged");
    fs::write(place.join("a.rs"), "fn a() {}\n").expect("written");
    lab.git(&place, &["add", "."]);
    lab.git(&place, &["commit", "--quiet", "-m", &format!("[{slug}] feat: a")]);
    let done = inside.complete(&slug, None).expect("completed");
    assert_eq!(done.notices, Vec::<String>::new());
    assert!(!place.exists() && dir.join("readme.md").is_file());
    assert_eq!(lab.files("main", "a.rs"), ["a.rs"]);
    assert_eq!(lab.git(&lab.hub(), &["for-each-ref", "refs/heads/session", "refs/intersession/claims"]), "");
    assert_eq!(own.doctor(false).expect("checked").findings, Vec::<String>::new());
}

#[test]
fn a_lock_that_git_left_goes_away_where_only_we_write_and_is_named_elsewhere() {
    let lab = Lab::new();
    let (dir, hub) = (lab.clone_named("ann"), lab.hub());
    let (ann, bob) = (work(&dir), work(&lab.clone_named("bob")));
    let slug = planned(&bob, "Locked");
    let other = planned(&bob, "Other");
    let left = |path: std::path::PathBuf| {
        fs::create_dir_all(path.parent().expect("a place")).expect("made");
        fs::write(&path, "").expect("written");
        path
    };
    let seen = dir.join(".git/refs/intersession/seen");
    let locks = [left(seen.join("base.lock")), left(seen.join(format!("claims/{slug}.lock")))];
    ann.claim(&slug, &ClaimOptions::default()).expect("claimed");
    assert!(!locks.iter().any(|lock| lock.exists()), "they are stale");

    let named = |error: sess_work::Error, lock: &std::path::Path| {
        assert!(error.to_string().ends_with(&format!("run `rm {}`", lock.display())), "{error}");
        fs::remove_file(lock).expect("removed as it says");
        error.kind
    };
    let lock = left(dir.join(format!(".git/refs/heads/session/{slug}.lock")));
    let error = ann.note(&slug, sess_work::Note::Log, "first").expect_err("somebody else may hold it");
    assert_eq!(named(error, &lock), Kind::Failed);
    ann.note(&slug, sess_work::Note::Log, "second").expect("noted");

    let lock = left(hub.join(claim_ref(&other) + ".lock"));
    let error = bob.claim(&other, &ClaimOptions::default()).expect_err("it cannot be written");
    assert_eq!(named(error, &lock), Kind::Rejected);
    let lock = left(hub.join("refs/heads/main.lock"));
    let claimed = bob.claim(&other, &ClaimOptions::default()).expect("claimed, and shown later");
    assert!(claimed.notices[0].contains(&lock.display().to_string()), "{:?}", claimed.notices);
    fs::remove_file(lock).expect("removed");
    ann.roll_forward().expect("anybody shows it");
    assert_eq!(state(&bob, &other), Some(State::Active));
}

#[test]
fn a_lock_in_a_checkout_of_the_base_is_no_change_of_somebodys() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    lab.git(&dir, &["remote", "remove", "origin"]);
    let own = work(&dir);
    let slug = planned(&own, "Locked");
    let lock = dir.join(".git/index.lock");
    fs::write(&lock, "").expect("written");
    let draft = Draft { title: "Other".to_owned(), ..Draft::default() };
    for refused in [own.draft(None, &draft, None).map(drop), own.claim(&slug, &bare()).map(drop)] {
        let error = refused.expect_err("the checkout cannot follow");
        assert_eq!(error.kind, Kind::Failed, "{error}");
        assert!(error.message().contains("is left from a git that was ended"), "{error}");
        assert_eq!(error.next_command(), format!("rm {}", lock.display()));
    }
    fs::remove_file(&lock).expect("removed as it says");
    own.claim(&slug, &bare()).expect("claimed");
}

#[test]
fn a_note_that_the_checkout_could_not_follow_is_written_down_once() {
    let lab = Lab::new();
    let own = work(&lab.clone_named("ann"));
    let slug = planned(&own, "Written once");
    let place = own.claim(&slug, &ClaimOptions::default()).expect("claimed").workspace.expect("a workspace");
    let lock =
        std::path::PathBuf::from(lab.git(&place, &["rev-parse", "--absolute-git-dir"])).join("index.lock");
    fs::write(&lock, "").expect("written");
    let error = own.note(&slug, Note::Log, "one entry").expect_err("the index cannot be written");
    assert_eq!(error.kind, Kind::Failed, "{error}");
    assert!(error.message().starts_with("this is written down in worklog.md here, but "), "{error}");
    assert_eq!(error.next_command(), format!("rm {}", lock.display()));
    fs::remove_file(&lock).expect("removed as it says");
    own.note(&slug, Note::Log, "another").expect("noted");
    let log = fs::read_to_string(place.join(State::Active.dir_of(&slug)).join("worklog.md")).expect("read");
    assert_eq!((log.matches("one entry").count(), log.matches("another").count()), (1, 1), "{log}");
    assert_eq!(lab.git(&place, &["status", "--porcelain"]), "");
}

#[test]
fn a_locked_worktree_is_named_with_what_unlocks_it() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let own = work(&dir);
    let slug = planned(&own, "Kept");
    let place = own.claim(&slug, &ClaimOptions::default()).expect("claimed").workspace.expect("a workspace");
    lab.git(&dir, &["worktree", "lock", "--reason", "on a stick", &place.to_string_lossy()]);
    let unlock = format!("`git worktree unlock {}`", place.display());
    let told = own.release(&slug, None).expect("given back");
    assert!(told.iter().any(|told| told.contains(&unlock)), "{told:?}");
    let findings = own.doctor(false).expect("checked").findings;
    assert!(findings.iter().any(|told| told.contains(&unlock)), "{findings:?}");
    for is_dry in [true, false] {
        let item = own.gc(is_dry).expect("looked").workspaces.pop().expect("it is there");
        assert!(!item.removed && item.reason.contains(&unlock), "{item:?}");
    }
    lab.git(&dir, &["worktree", "unlock", &place.to_string_lossy()]);
    own.gc(false).expect("cleaned up");
    assert!(!place.exists());
}

#[test]
fn a_workspace_with_another_branch_in_it_is_left_alone() {
    let lab = Lab::new();
    let own = work(&lab.clone_named("ann"));
    let slug = planned(&own, "Elsewhere");
    let place = own.claim(&slug, &ClaimOptions::default()).expect("claimed").workspace.expect("a workspace");
    lab.git(&place, &["switch", "--quiet", "-c", "mine"]);
    let back = format!("git -C {} switch session/{slug}", place.display());
    let ended = [
        own.note(&slug, sess_work::Note::Log, "x").map(drop),
        own.commit_all(&slug, "feat: x").map(drop),
        own.complete(&slug, None).map(drop),
    ];
    for ended in ended {
        let error = ended.expect_err("it is not the session's branch");
        assert_eq!((error.kind, error.next_command()), (Kind::WouldLoseWork, back.as_str()), "{error}");
    }
    assert_eq!(lab.git(&place, &["status", "--porcelain"]), "", "nothing is staged there");
    let refused = own.drift(&slug).expect("compared").refused;
    assert!(refused.iter().any(|told| told.contains("something else checked out")), "{refused:?}");
    lab.git(&place, &["switch", "--quiet", &slug.branch()]);
    own.note(&slug, sess_work::Note::Log, "x").expect("noted");
}

#[test]
fn a_workspace_says_whose_it_is_whatever_is_checked_out_in_it() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let own = work(&dir);
    let (slug, other) = (planned(&own, "Rebased"), planned(&own, "Apart"));
    let place = |slug, workspace| {
        let options = ClaimOptions { workspace, ..ClaimOptions::default() };
        own.claim(slug, &options).expect("claimed").workspace.expect("a workspace")
    };
    let (worktree, clone) =
        (place(&slug, sess_work::Workspace::Worktree), place(&other, sess_work::Workspace::Clone));
    let moved = lab.path().join("moved");
    for (slug, workspace) in [(&slug, &worktree), (&other, &clone)] {
        lab.git(workspace, &["checkout", "--quiet", "--detach"]);
        let here = work(&workspace.join("_AGENTS"));
        assert_eq!(here.meant(None).expect("its own"), *slug);
        assert!(here.status(slug).is_ok());
        let error = here.note(slug, sess_work::Note::Log, "x").expect_err("no branch is checked out");
        assert_eq!(error.kind, Kind::WouldLoseWork, "{error}");
    }
    lab.git(&dir, &["worktree", "move", &worktree.to_string_lossy(), &moved.to_string_lossy()]);
    assert_eq!(work(&moved).meant(None).expect("its own"), slug);
    // What is no workspace is no session's.
    lab.git(&dir, &["worktree", "add", "--quiet", "--detach", &format!("../{slug}")]);
    for place in [&dir, &lab.path().join(slug.as_str())] {
        assert_eq!(work(place).meant(None).expect_err("no workspace").kind, Kind::Usage);
    }
}

#[test]
fn what_was_claimed_without_a_remote_is_shared_when_there_is_one() {
    let lab = Lab::new();
    let dir = lab.clone_named("alone");
    lab.git(&dir, &["remote", "rename", "origin", "later"]);
    lab.git(&dir, &["config", "intersession.remote", "."]);
    let slug = {
        let alone = work(&dir);
        let slug = planned(&alone, "Begun alone");
        alone.claim(&slug, &ClaimOptions::default()).expect("claimed");
        slug
    };
    lab.git(&dir, &["push", "--quiet", "later", "main"]);
    lab.git(&dir, &["config", "intersession.remote", "later"]);
    let own = work(&dir);
    let report = own.init(&sess_work::InitOptions { hooks: false, scripts: false }).expect("set up");
    let told = format!("the claim of {slug}, which others see now");
    assert!(report.changed.contains(&told), "{report:?}");
    let bob = work(&lab.clone_named("bob"));
    assert_eq!(bob.claim(&slug, &ClaimOptions::default()).expect_err("it is alone's").kind, Kind::Claimed);
    own.complete(&slug, None).expect("it goes on");
    assert_eq!(state(&bob, &slug), Some(State::Completed));
    let again = own.init(&sess_work::InitOptions { hooks: false, scripts: false }).expect("set up");
    assert_eq!(again.changed, Vec::<String>::new());
}

#[test]
fn a_rewritten_base_is_told_before_what_it_took_away_seems_to_be_the_sessions() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let own = work(&dir);
    let slug = planned(&own, "Rewritten");
    let before = lab.git(&lab.hub(), &["rev-parse", "main"]);
    by_hand(&lab, "hand", |dir| {
        fs::create_dir_all(dir.join("_AGENTS/knowledge")).expect("made");
        fs::write(dir.join("_AGENTS/knowledge/k.md"), "known\n").expect("written");
    });
    let place = own.claim(&slug, &ClaimOptions::default()).expect("claimed").workspace.expect("a workspace");
    fs::write(place.join("work.txt"), "work\n").expect("written");
    lab.git(&place, &["add", "."]);
    lab.git(&place, &["commit", "--quiet", "-m", &format!("[{slug}] feat: work")]);
    lab.git(&lab.hub(), &["update-ref", "refs/heads/main", &before]);
    for ended in [own.complete(&slug, None).map(drop), own.sync(&slug).map(drop)] {
        let error = ended.expect_err("the base was rewritten");
        assert_eq!(error.kind, Kind::Conflict, "{error}");
        assert!(error.next_command().contains("rebase --onto"), "{error}");
    }
    let refused = own.drift(&slug).expect("compared").refused;
    assert!(refused.iter().any(|told| told.contains("was rewritten")), "{refused:?}");
}

#[test]
fn a_remote_that_takes_no_branches_of_sessions_is_told_as_that() {
    let lab = Lab::new();
    let ann = work(&lab.clone_named("ann"));
    let slug = planned(&ann, "Kept back");
    ann.claim(&slug, &ClaimOptions::default()).expect("claimed");
    let hook = lab.hub().join("hooks/update");
    let text = "#!/bin/sh\ncase \"$1\" in refs/heads/session/*) echo no such branches >&2; exit 1;; esac\n";
    fs::create_dir_all(lab.hub().join("hooks")).expect("made");
    fs::write(&hook, text).expect("written");
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).expect("executable");
    let error = ann.note(&slug, sess_work::Note::Log, "a line").expect_err("it is not taken");
    assert_eq!(error.kind, Kind::Rejected, "{error}");
    assert!(error.message().contains(&format!("origin does not take session/{slug} with")), "{error}");
    assert!(error.message().contains("no such branches"), "{error}");
    assert_eq!(error.next_command(), format!("git push origin session/{slug}"));
}
