//! Work that lands by pull requests, and a base branch that nobody may push to.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use sess_core::Timestamp;
use sess_work::{ClaimOptions, Draft, Error, Kind, Land, Note, Phase, Settings, Slug, State, Work};

use crate::lab::{Lab, planned, work, work_at, work_with};

pub fn by_request(lab: &Lab, name: &str) -> Work {
    work_with(&lab.clone_named(name), Settings { land: Land::Pr, ..Settings::default() })
}

/// Claims a session with a lease that lapses at once, and commits a file in it.
pub fn worked_on(lab: &Lab, own: &Work, slug: &Slug) -> std::path::PathBuf {
    let options = ClaimOptions { lease_seconds: Some(0), ..ClaimOptions::default() };
    let place = own.claim(slug, &options).expect("claimed").workspace.expect("a workspace");
    commit(lab, &place, slug, "a.rs");
    place
}

pub fn commit(lab: &Lab, place: &Path, slug: &Slug, file: &str) {
    fs::write(place.join(file), "fn a() {}\n").expect("written");
    lab.git(place, &["add", file]);
    lab.git(place, &["commit", "--quiet", "-m", &format!("[{slug}] feat: {file}")]);
}

#[track_caller]
fn check<T: std::fmt::Debug>(ended: Result<T, Error>, kind: Kind, words: &str, next: &str) {
    let error = ended.expect_err("it is refused");
    assert_eq!(error.kind, kind, "{error}");
    assert!(error.message().contains(words), "{error}: expected {words}");
    assert_eq!(error.next_command(), next, "{error}");
}

pub fn branch_at_hub(lab: &Lab, slug: &Slug) -> String {
    lab.git(&lab.hub(), &["rev-parse", &slug.branch()])
}

/// Merges a commit into the base, as whoever merges pull requests does.
pub fn merge(lab: &Lab, commit: &str) {
    let dir = lab.path().join("merge");
    if !dir.exists() {
        lab.clone_named("merge");
    }
    lab.git(&dir, &["pull", "--quiet", "origin", "main"]);
    lab.git(&dir, &["fetch", "--quiet", "origin", commit]);
    let asked = ["merge", "--quiet", "--no-ff", "-m", "merged", commit];
    if !Command::new("git").args(asked).current_dir(&dir).output().expect("git runs").status.success() {
        // What the pull request says counts, and it has the session in one place alone.
        let elsewhere = ["_AGENTS/sessions/active", "_AGENTS/sessions/planned"];
        let remove = ["rm", "-r", "-f", "--quiet", "--ignore-unmatch", "--"];
        lab.git(&dir, &[&remove[..], &elsewhere[..]].concat());
        lab.git(&dir, &["add", "--all"]);
        lab.git(&dir, &["commit", "--quiet", "-m", "merged"]);
    }
    let hook = lab.hub().join("hooks/pre-receive");
    let text = fs::read(&hook).ok();
    if text.is_some() {
        fs::remove_file(&hook).expect("removed");
    }
    lab.git(&dir, &["push", "--quiet", "origin", "HEAD:main"]);
    if let Some(text) = text {
        put_hook(&hook, &text);
    }
}

fn put_hook(path: &Path, text: &[u8]) {
    fs::write(path, text).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("set");
}

/// Has the remote refuse what the pattern of a shell matches, with these words.
pub fn refuses(lab: &Lab, pattern: &str, words: &str) {
    let text = format!(
        "#!/bin/sh\nwhile read old new ref; do case $ref in {pattern}) echo '{words}' >&2; exit 1;; esac; done\n"
    );
    put_hook(&lab.hub().join("hooks/pre-receive"), text.as_bytes());
}

#[test]
fn what_waits_to_be_merged_says_so_and_is_nobodys_to_take() {
    let lab = Lab::new();
    let (ann, bob) = (by_request(&lab, "ann"), work(&lab.clone_named("bob")));
    let slug = planned(&ann, "Wait");
    let place = worked_on(&lab, &ann, &slug);
    ann.note(&slug, Note::Log, "wrote it").expect("logged");
    ann.complete(&slug, None).expect("handed over");

    let waits = "waits to be merged";
    let force = format!("sess work takeover {slug} --force --reason …");
    check(bob.takeover(&slug, false, None, &ClaimOptions::default()), Kind::WrongState, waits, &force);
    check(
        bob.claim(&slug, &ClaimOptions::default()),
        Kind::Claimed,
        waits,
        &format!("sess work show {slug}"),
    );
    let again = format!("sess work complete {slug}");
    check(ann.note(&slug, Note::Log, "more"), Kind::WrongState, waits, &again);
    check(ann.sync(&slug), Kind::WrongState, waits, &again);
    check(ann.heartbeat(&slug), Kind::WrongState, waits, &again);
    check(ann.amend(&slug, Some("# X\n"), "because"), Kind::WrongState, waits, &again);
    for who in [&ann, &bob] {
        let row = who.list(&who.see().expect("seen")).expect("listed").remove(0);
        let holder = row.holder.expect("somebody has it");
        assert!(row.state == State::Active && holder.waits && !holder.stale, "{holder:?}");
        assert_eq!(row.note, None, "its holder says that it waits");
        assert!(row.last_log.is_some_and(|log| log.ends_with("wrote it")));
        assert!(who.status(&slug).expect("told").lease.expect("a holder").waits);
        let checkup = who.doctor(false).expect("checked");
        assert!(checkup.rows[0].next.is_none() && checkup.findings.is_empty(), "{checkup:?}");
    }

    // What the reviewer asked for goes into the same pull request.
    let before = branch_at_hub(&lab, &slug);
    commit(&lab, &place, &slug, "b.rs");
    ann.complete(&slug, None).expect("handed over again");
    let after = branch_at_hub(&lab, &slug);
    assert_ne!(before, after);
    assert_eq!(lab.git(&lab.hub(), &["rev-list", "--count", &format!("main..{after}")]), "1");
    merge(&lab, &after);
    planned(&bob, "Something else");
    let seen = bob.see().expect("seen");
    assert_eq!(seen.standing(&slug).state(), Some(State::Completed));
    assert_eq!(lab.files("main", "b.rs"), ["b.rs"]);
    check(ann.release(&slug, None), Kind::WrongState, "completed", &format!("sess work show {slug}"));
}

/// Has a reviewer change what waits to be merged.
pub fn review(lab: &Lab, slug: &Slug, file: &str, text: &str) {
    let dir = lab.path().join("reviewer");
    if !dir.exists() {
        lab.clone_named("reviewer");
    }
    lab.git(&dir, &["fetch", "--quiet", "origin"]);
    lab.git(&dir, &["checkout", "--quiet", "-B", "review", &format!("origin/{}", slug.branch())]);
    fs::write(dir.join(file), text).expect("written");
    lab.git(&dir, &["add", file]);
    lab.git(&dir, &["commit", "--quiet", "-m", "Apply suggestion"]);
    lab.git(&dir, &["push", "--quiet", "origin", &format!("HEAD:{}", slug.branch())]);
}

/// Checks that one commit waits at the remote, with these files, the session completed in it and active here.
#[track_caller]
pub fn check_offered(lab: &Lab, place: &Path, slug: &Slug, files: &[(&str, &str)]) {
    let after = branch_at_hub(lab, slug);
    assert_eq!(lab.git(&lab.hub(), &["rev-list", "--count", &format!("main..{after}")]), "1");
    for (file, text) in files {
        assert_eq!(lab.git(&lab.hub(), &["show", &format!("{after}:{file}")]), *text, "{file}");
    }
    let dirs = |dir: &Path, at: &str| {
        let told = lab.git(dir, &["ls-tree", "-r", "--name-only", at, "--", "_AGENTS/sessions"]);
        let own = told.lines().filter(|path| path.contains(&format!("/{slug}/SESSION.md")));
        own.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(dirs(&lab.hub(), &after), [format!("_AGENTS/sessions/completed/{slug}/SESSION.md")]);
    assert_eq!(dirs(place, "HEAD"), [format!("_AGENTS/sessions/active/{slug}/SESSION.md")]);
    assert_eq!(lab.git(place, &["status", "--porcelain"]), "");
}

#[test]
fn what_a_reviewer_commits_is_taken_in_by_completing_again() {
    let lab = Lab::new();
    let (ann, bob) = (by_request(&lab, "ann"), work(&lab.clone_named("bob")));
    let slug = planned(&ann, "Reviewed");
    let place = worked_on(&lab, &ann, &slug);
    ann.note(&slug, Note::Log, "wrote it").expect("logged");
    ann.note(&slug, Note::Learning, "reviews help").expect("learned");
    // The base goes on before and after, and so do other sessions.
    let direct = lab.clone_named("direct");
    let on_base = |file: &str| {
        lab.git(&direct, &["pull", "--quiet", "origin", "main"]);
        fs::write(direct.join(file), "x\n").expect("written");
        lab.git(&direct, &["add", file]);
        lab.git(&direct, &["commit", "--quiet", "-m", file]);
        lab.git(&direct, &["push", "--quiet", "origin", "HEAD:main"]);
    };
    on_base("before.rs");
    planned(&bob, "Another one");
    ann.complete(&slug, None).expect("handed over");

    review(&lab, &slug, "a.rs", "fn b() {}\n");
    let drift = ann.drift(&slug).expect("a drift");
    assert_eq!(drift.refused, Vec::<String>::new(), "nothing is in the way of completing");
    let done = ann.complete(&slug, None).expect("handed over again");
    assert!(!done.notices.iter().any(|notice| notice.contains("do not land")), "{:?}", done.notices);
    check_offered(&lab, &place, &slug, &[("a.rs", "fn b() {}"), ("before.rs", "x")]);

    // Both go on, in other lines of what is there by now.
    on_base("after.rs");
    review(&lab, &slug, "readme.md", "# A project\n\nReviewed.\n");
    commit(&lab, &place, &slug, "c.rs");
    ann.complete(&slug, None).expect("handed over again");
    let files = [("a.rs", "fn b() {}"), ("c.rs", "fn a() {}"), ("readme.md", "# A project\n\nReviewed.")];
    check_offered(&lab, &place, &slug, &files);

    // The reviewer brings the base to the branch.
    let dir = lab.path().join("reviewer");
    review(&lab, &slug, "d.rs", "fn d() {}\n");
    on_base("last.rs");
    lab.git(&dir, &["fetch", "--quiet", "origin"]);
    lab.git(&dir, &["merge", "--quiet", "--no-edit", "origin/main"]);
    lab.git(&dir, &["push", "--quiet", "origin", &format!("HEAD:{}", slug.branch())]);
    commit(&lab, &place, &slug, "e.rs");
    ann.complete(&slug, None).expect("handed over again");
    check_offered(&lab, &place, &slug, &[("d.rs", "fn d() {}"), ("e.rs", "fn a() {}"), ("last.rs", "x")]);

    // What both changed is merged by hand, once.
    review(&lab, &slug, "a.rs", "fn theirs() {}\n");
    fs::write(place.join("a.rs"), "fn mine() {}\n").expect("written");
    lab.git(&place, &["commit", "--quiet", "--all", "-m", &format!("[{slug}] feat: mine")]);
    let error = ann.complete(&slug, None).expect_err("both changed it");
    assert_eq!(error.kind, Kind::Conflict, "{error}");
    assert!(error.message().ends_with("do not go together: a.rs"), "{error}");
    let ended = Command::new("sh").args(["-c", error.next_command()]).output().expect("run");
    assert!(!ended.status.success());
    assert_eq!(lab.git(&place, &["diff", "--name-only", "--diff-filter=U"]), "a.rs");
    fs::write(place.join("a.rs"), "fn both() {}\n").expect("written");
    lab.git(&place, &["add", "a.rs"]);
    lab.git(&place, &["commit", "--quiet", "--no-edit"]);
    ann.complete(&slug, None).expect("handed over again");
    check_offered(&lab, &place, &slug, &[("a.rs", "fn both() {}"), ("e.rs", "fn a() {}")]);

    merge(&lab, &branch_at_hub(&lab, &slug));
    planned(&bob, "Something else");
    assert_eq!(bob.see().expect("seen").standing(&slug).state(), Some(State::Completed));
    let files = lab.files("main", ".");
    for file in ["a.rs", "after.rs", "before.rs", "c.rs", "d.rs", "e.rs", "last.rs"] {
        assert!(files.iter().any(|found| found == file), "{file}: {files:?}");
    }
    ann.gc(false).expect("cleaned up");
    assert!(!place.exists(), "everything has landed");
}

#[test]
fn what_a_reviewer_committed_stays_with_what_is_taken_back() {
    let lab = Lab::new();
    let (ann, bob) = (by_request(&lab, "ann"), by_request(&lab, "bob"));
    let slug = planned(&ann, "Given back");
    worked_on(&lab, &ann, &slug);
    ann.note(&slug, Note::Log, "wrote it").expect("logged");
    ann.complete(&slug, None).expect("handed over");
    review(&lab, &slug, "a.rs", "fn b() {}\n");
    let notices = ann.release(&slug, None).expect("given back");
    assert!(!notices.iter().any(|notice| notice.contains("pull --no-rebase")), "{notices:?}");
    let place = bob.claim(&slug, &ClaimOptions::default()).expect("claimed").workspace.expect("a place");
    assert_eq!(fs::read_to_string(place.join("a.rs")).expect("read"), "fn b() {}\n");
    let log = bob.noted(&slug, Note::Log, &bob.see().expect("seen")).expect("read").expect("a log");
    assert!(log.contains("wrote it"), "{log}");
    bob.complete(&slug, None).expect("handed over");
    check_offered(&lab, &place, &slug, &[("a.rs", "fn b() {}")]);
}

#[test]
fn two_pull_requests_about_the_same_make_two_sessions_that_merge_what_was_learned() {
    let lab = Lab::new();
    // On one day: on two the names differ anyway.
    let noon = || Timestamp::parse_rfc3339("2025-10-16T12:00:00Z").expect("a time");
    let [ann, bob] = ["ann", "bob"].map(|name| {
        work_at(&lab.clone_named(name), Settings { land: Land::Pr, ..Settings::default() }, noon)
    });
    let slugs =
        ["2025-10-14-fix-tests", "2025-10-15-fix-tests"].map(|slug| slug.parse::<Slug>().expect("a slug"));
    let mut made = Vec::new();
    for (own, slug) in [&ann, &bob].into_iter().zip(&slugs) {
        let draft = Draft {
            title: "Fix tests".to_owned(),
            context: Some("Because.".to_owned()),
            criteria: vec!["It works".to_owned()],
            ..Draft::default()
        };
        own.draft(Some(slug), &draft, None).expect("drafted");
        own.ready(slug).expect("ready");
        let place = own.claim(slug, &ClaimOptions::default()).expect("claimed").workspace.expect("a place");
        commit(&lab, &place, slug, &format!("{slug}.rs"));
        own.note(slug, Note::Learning, "tests are slow").expect("learned");
        let first = own.complete(slug, None).expect("handed over").kb.expect("made");
        // Completing again keeps the name.
        assert_eq!(own.complete(slug, None).expect("handed over again").kb.as_ref(), Some(&first));
        made.push(first);
    }
    assert_eq!(made[1].as_str(), format!("{}-2", made[0]));
    for slug in &slugs {
        // No conflict: whoever merges has nothing to decide.
        let dir = lab.path().join("merge");
        if !dir.exists() {
            lab.clone_named("merge");
        }
        lab.git(&dir, &["fetch", "--quiet", "origin", &branch_at_hub(&lab, slug)]);
        lab.git(&dir, &["merge", "--quiet", "--no-edit", "FETCH_HEAD"]);
        lab.git(&dir, &["push", "--quiet", "origin", "HEAD:main"]);
    }
    let planned = lab.files("main", "_AGENTS/sessions/planned").concat();
    assert!(made.iter().all(|kb| planned.contains(&format!("/{kb}/SESSION.md"))), "{planned}");
}

#[test]
fn a_remote_that_lets_branches_only_go_on_is_no_dead_end() {
    for setting in ["receive.denyNonFastForwards", "receive.denyDeletes"] {
        let lab = Lab::new();
        lab.git(&lab.hub(), &["config", "receive.denyNonFastForwards", "true"]);
        lab.git(&lab.hub(), &["config", setting, "true"]);
        let ann = by_request(&lab, "ann");
        let slug = planned(&ann, "Only on");
        let place = worked_on(&lab, &ann, &slug);
        ann.note(&slug, Note::Log, "shared").expect("logged");
        let done = ann.complete(&slug, None).expect("handed over");
        assert!(done.notices.iter().any(|notice| notice.contains("only go on")), "{:?}", done.notices);
        commit(&lab, &place, &slug, "b.rs");
        ann.complete(&slug, None).expect("handed over again");
        let offered = branch_at_hub(&lab, &slug);
        let dirs = lab.files(&offered, "_AGENTS/sessions");
        assert!(dirs.contains(&format!("_AGENTS/sessions/completed/{slug}/SESSION.md")), "{dirs:?}");

        // Taken back, and begun anew.
        ann.abandon(&slug, "it was turned down").expect("abandoned");
        ann.retry(&slug).expect("planned anew");
        let place = ann.claim(&slug, &ClaimOptions::default()).expect("claimed").workspace.expect("a place");
        assert!(!place.join("a.rs").exists(), "the attempt before is not gone on with");
        commit(&lab, &place, &slug, "c.rs");
        ann.note(&slug, Note::Log, "again").expect("logged");
        ann.complete(&slug, None).expect("handed over");
        merge(&lab, &branch_at_hub(&lab, &slug));
        assert_eq!(lab.files("main", "a.rs"), Vec::<String>::new());
        assert_eq!(lab.files("main", "c.rs"), ["c.rs"]);
        planned(&ann, "Something else");
        assert_eq!(ann.see().expect("seen").standing(&slug).state(), Some(State::Completed));

        let gc = ann.gc(false).expect("cleaned up");
        let told = ann.doctor(false).expect("checked").findings.concat();
        match setting {
            "receive.denyDeletes" => {
                assert!(gc.kept[0].contains("does not let go of it") && gc.kept.len() == 1, "{gc:?}");
                assert!(told.contains("still at origin"), "{told}");
            }
            _ => assert!(gc.kept.is_empty() && told.is_empty(), "{gc:?}: {told}"),
        }
    }
}

#[test]
fn what_waits_to_be_merged_can_be_taken_back() {
    for (outcome, state) in [(Phase::Released, State::Planned), (Phase::Abandoned, State::Abandoned)] {
        let lab = Lab::new();
        let (ann, bob) = (by_request(&lab, "ann"), work(&lab.clone_named("bob")));
        let slug = planned(&ann, "Back");
        worked_on(&lab, &ann, &slug);
        ann.note(&slug, Note::Log, "wrote it").expect("logged");
        ann.complete(&slug, None).expect("handed over");
        let offered = branch_at_hub(&lab, &slug);
        let notices = match outcome {
            Phase::Released => ann.release(&slug, Some("it was turned down")),
            _ => ann.abandon(&slug, "it was turned down"),
        }
        .expect("taken back");
        assert!(notices.iter().any(|notice| notice.contains("close the pull request")), "{notices:?}");
        let seen = bob.see().expect("seen");
        assert_eq!((seen.tree.state(&slug), seen.standing(&slug).state()), (Some(state), Some(state)));
        // The branch is what was worked on again, and not what was offered.
        let tip = branch_at_hub(&lab, &slug);
        assert_ne!(tip, offered);
        let log = format!("{tip}:_AGENTS/sessions/active/{slug}/worklog.md");
        assert!(lab.git(&lab.hub(), &["show", &log]).contains("turned down"));
        if outcome == Phase::Abandoned {
            bob.retry(&slug).expect("planned anew");
        }
        let place = bob.claim(&slug, &ClaimOptions::default()).expect("claimed").workspace.expect("a place");
        assert_eq!(place.join("a.rs").is_file(), outcome == Phase::Released);
        bob.complete(&slug, None).expect("completed");
        assert_eq!(bob.see().expect("seen").tree.state(&slug), Some(State::Completed));
    }
}

#[test]
fn a_session_that_was_merged_after_it_was_given_back_stays_completed() {
    // Nobody has it then, its owner has it again, or somebody else has.
    for taker in [None, Some("ann"), Some("bob")] {
        let lab = Lab::new();
        let (ann, bob) = (by_request(&lab, "ann"), work(&lab.clone_named("bob")));
        let slug = planned(&ann, "Merged late");
        worked_on(&lab, &ann, &slug);
        ann.complete(&slug, None).expect("handed over");
        let offered = branch_at_hub(&lab, &slug);
        ann.release(&slug, None).expect("given back");
        if let Some(taker) = taker {
            let taker = if taker == "ann" { &ann } else { &bob };
            taker.claim(&slug, &ClaimOptions::default()).expect("claimed");
        }
        merge(&lab, &offered);
        for who in [&ann, &bob] {
            planned(who, "Something else");
            let seen = who.see().expect("seen");
            assert_eq!(seen.tree.state(&slug), Some(State::Completed), "{taker:?}: it has landed");
            assert_eq!(seen.standing(&slug).state(), Some(State::Completed), "{taker:?}");
            let refused = who.complete(&slug, None).expect_err("it has landed");
            assert!(
                refused.kind == Kind::WrongState && refused.message().contains("is completed"),
                "{refused}"
            );
        }
        assert_eq!(bob.gc(false).expect("cleaned up").archived, 1, "{taker:?}");
    }
}

#[test]
fn somebody_else_can_go_on_with_what_waits_when_that_is_forced() {
    for is_branch_gone in [false, true] {
        let lab = Lab::new();
        let (ann, bob) = (by_request(&lab, "ann"), work(&lab.clone_named("bob")));
        let slug = planned(&ann, "Forced");
        worked_on(&lab, &ann, &slug);
        ann.note(&slug, Note::Log, "wrote it").expect("logged");
        ann.complete(&slug, None).expect("handed over");
        if is_branch_gone {
            // As hosts do it when a pull request is closed.
            lab.git(&lab.hub(), &["branch", "--quiet", "-D", &slug.branch()]);
        }
        let taken = bob.takeover(&slug, true, Some("Ann left"), &ClaimOptions::default()).expect("taken");
        assert_eq!(taken.record.claim.phase, Phase::Active);
        let place = taken.workspace.expect("a workspace");
        assert!(place.join("a.rs").is_file());
        let log =
            fs::read_to_string(place.join(State::Active.dir_of(&slug)).join("worklog.md")).expect("a log");
        assert!(log.contains("wrote it"), "{log}");
        assert_eq!(ann.note(&slug, Note::Log, "more").expect_err("it is Bob's").kind, Kind::Claimed);
        bob.note(&slug, Note::Log, "went on").expect("logged");
        let done = bob.complete(&slug, None).expect("completed");
        assert_eq!((done.record.claim.phase, done.notices), (Phase::Completed, Vec::new()));
        let log = format!("main:_AGENTS/sessions/completed/{slug}/worklog.md");
        let log = lab.git(&lab.hub(), &["show", &log]);
        assert!(log.contains("wrote it") && log.contains("went on"), "{log}");
    }
}

#[test]
fn a_branch_that_went_another_way_is_told_in_a_sentence() {
    let lab = Lab::new();
    let ann = work(&lab.clone_named("ann"));
    let slug = planned(&ann, "Apart");
    let place = worked_on(&lab, &ann, &slug);
    ann.heartbeat(&slug).expect("shared");
    let other = lab.clone_named("other");
    lab.git(&other, &["switch", "--quiet", &slug.branch()]);
    commit(&lab, &other, &slug, "other.rs");
    lab.git(&other, &["push", "--quiet", "origin", &slug.branch()]);
    commit(&lab, &place, &slug, "own.rs");
    let notices = ann.note(&slug, Note::Log, "went on").expect("logged");
    let [notice] = notices.as_slice() else { panic!("{notices:?}") };
    assert!(notice.contains("has commits that are not here"), "{notice}");
    // What it says to run helps.
    shell(&place, notice.rsplit_once("run `").expect("a command").1.trim_end_matches('`'));
    assert_eq!(ann.note(&slug, Note::Log, "together").expect("logged"), Vec::<String>::new());
    assert_eq!(branch_at_hub(&lab, &slug), lab.git(&place, &["rev-parse", "HEAD"]));
}

/// Runs a command that somebody was told to run.
#[track_caller]
fn shell(dir: &Path, command: &str) {
    let ended = Command::new("sh")
        .args(["-c", command])
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_MERGE_AUTOEDIT", "no")
        .output()
        .expect("sh runs");
    assert!(ended.status.success(), "{command}: {}", String::from_utf8_lossy(&ended.stderr));
}

#[test]
fn a_protected_base_gets_plans_and_work_by_pull_requests() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let (own, ann) = (work(&dir), work_with(&dir, Settings { land: Land::Pr, ..Settings::default() }));
    let bob = work(&lab.clone_named("bob"));
    refuses(&lab, "refs/heads/main", "main is protected");
    let draft = Draft {
        title: "Protected".to_owned(),
        context: Some("Because.".to_owned()),
        criteria: vec!["It works".to_owned()],
        ..Draft::default()
    };
    let by_hand = |error: Error| {
        assert_eq!(error.kind, Kind::Rejected, "{error}");
        assert!(error.message().contains("main is protected"), "{error}");
        assert!(error.message().contains("pull request") && !error.message().contains("land: pr"), "{error}");
        shell(&dir, error.next_command());
        let commit = error.next_command().split([' ', ':']).nth(3).expect("a commit").to_owned();
        merge(&lab, &commit);
    };
    by_hand(ann.draft(None, &draft, None).expect_err("main is protected"));
    let slug = bob.list(&bob.see().expect("seen")).expect("listed").remove(0).slug;
    by_hand(own.ready(&slug).expect_err("main is protected"));
    assert_eq!(bob.see().expect("seen").tree.state(&slug), Some(State::Planned));

    let claimed = ann.claim(&slug, &ClaimOptions::default()).expect("claimed");
    assert!(claimed.notices[0].contains("does not show it yet"), "{:?}", claimed.notices);
    let place = claimed.workspace.expect("a workspace");
    commit(&lab, &place, &slug, "a.rs");
    check(
        own.complete(&slug, None),
        Kind::Rejected,
        "main is protected",
        &format!("SESS_WORK_LAND=pr sess work complete {slug}"),
    );
    ann.complete(&slug, None).expect("handed over");
    assert!(ann.doctor(false).expect("checked").rows.iter().all(|row| row.next.is_none()));
    merge(&lab, &branch_at_hub(&lab, &slug));
    bob.roll_forward().expect("what is merged is ended");
    let seen = bob.see().expect("seen");
    assert_eq!(seen.tree.state(&slug), Some(State::Completed));
    assert!(seen.tree.odd.is_empty() && seen.standing(&slug).holder().is_none());
    assert_eq!(lab.files("main", "a.rs"), ["a.rs"]);
}

#[test]
fn who_may_not_write_at_all_is_not_told_to_set_something() {
    let lab = Lab::new();
    let own = work(&lab.clone_named("ann"));
    let slug = planned(&own, "Denied");
    refuses(&lab, "*", "ERROR: Permission to hub denied to ann.");
    let next = "git config intersession.remote <remote>";
    let draft = Draft { title: "Other".to_owned(), ..Draft::default() };
    for ended in
        [own.draft(None, &draft, None).map(drop), own.claim(&slug, &ClaimOptions::default()).map(drop)]
    {
        let error = ended.clone().expect_err("denied");
        assert!(!error.message().contains("land: pr") && !error.message().contains("protected"), "{error}");
        check(ended, Kind::Rejected, "does not let you write", next);
    }
}

#[test]
fn what_its_owner_lands_is_a_commit_in_this_clone_until_it_is_taken_back() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let ann = work_with(&dir, Settings { land: Land::None, ..Settings::default() });
    let slug = planned(&ann, "By hand");
    worked_on(&lab, &ann, &slug);
    let refused = ann.land(&slug).expect_err("it is not landed in parts");
    assert!(!refused.message().contains("pull request"), "{refused}");
    let done = ann.complete(&slug, None).expect("done");
    let name = format!("refs/intersession/landed/{slug}");
    let told = format!("the work is one commit in this clone, {name}: bring it to main as it is");
    assert_eq!(done.notices, [told]);
    let commit = done.record.claim.landed.expect("what lands").commit;
    assert_eq!(lab.git(&dir, &["rev-parse", &name]), commit.as_str());
    let notices = ann.release(&slug, None).expect("taken back");
    assert!(notices.iter().all(|notice| !notice.contains("pull request")), "{notices:?}");
    assert_eq!(lab.git(&dir, &["for-each-ref", "refs/intersession/landed"]), "");

    // A pull request needs no such ref.
    let dir = lab.clone_named("bob");
    let bob = work_with(&dir, Settings { land: Land::Pr, ..Settings::default() });
    bob.claim(&slug, &ClaimOptions::default()).expect("claimed");
    bob.complete(&slug, None).expect("handed over");
    assert_eq!(lab.git(&dir, &["for-each-ref", "refs/intersession/landed"]), "");
}

#[test]
fn since_when_it_waits_and_when_it_was_merged_stay_known() {
    let lab = Lab::new();
    let (ann, bob) = (by_request(&lab, "ann"), work(&lab.clone_named("bob")));
    let slug = planned(&ann, "Since");
    worked_on(&lab, &ann, &slug);
    let since = ann.complete(&slug, None).expect("handed over").record.claim.renewed_at;
    let again = ann.claim(&slug, &ClaimOptions::default()).expect("resumed").record.claim;
    assert_eq!(again.renewed_at, since);
    let refused = ann.uninstall().expect_err("it is held here");
    assert!(refused.message().contains("waits to be merged"), "{refused}");
    assert_eq!(refused.next_command(), format!("sess work status {slug}"));
    merge(&lab, &branch_at_hub(&lab, &slug));
    let before = crate::lab::now();
    let seen = bob.roll_forward().expect("ended");
    let ended = seen.record(&slug).expect("a claim");
    assert_eq!(ended.claim.phase, Phase::Completed);
    assert!(ended.claim.renewed_at >= before, "{:?}", ended.claim);
}

#[test]
fn nobody_is_sent_to_push_the_file_of_claims_where_nobody_may_push() {
    let lab = Lab::new();
    let own = by_request(&lab, "ann");
    let slug = planned(&own, "Locked");
    worked_on(&lab, &own, &slug);
    own.complete(&slug, None).expect("handed over");
    merge(&lab, &branch_at_hub(&lab, &slug));
    refuses(&lab, "refs/heads/main", "protected");
    own.doctor(true).expect("there is nothing to push");
    let found = own.doctor(false).expect("looked at").findings;
    assert!(!found.iter().any(|finding| finding.contains("sessions.lock")), "{found:?}");
}

#[test]
fn a_line_of_a_squashed_pull_request_leads_to_the_session_that_it_completed() {
    let lab = Lab::new();
    let ann = by_request(&lab, "ann");
    let slug = planned(&ann, "Squash it");
    worked_on(&lab, &ann, &slug);
    ann.complete(&slug, None).expect("handed over");
    let hand = lab.clone_named("hand");
    lab.git(&hand, &["merge", "--quiet", "--squash", &format!("origin/{}", slug.branch())]);
    lab.git(&hand, &["commit", "--quiet", "-m", "Add a thing (#1)"]);
    lab.git(&hand, &["push", "--quiet", "origin", "HEAD:main"]);
    let blame = work(&hand).blame("a.rs", 1).expect("found");
    assert_eq!((blame.summary.as_str(), blame.slug), ("Add a thing (#1)", Some(slug)));
    assert_eq!(blame.state, Some(State::Completed));
    assert_eq!(work(&hand).blame("readme.md", 1).expect("found").slug, None);
}
