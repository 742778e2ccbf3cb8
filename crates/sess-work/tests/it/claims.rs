//! What a claim promises over its whole life: one owner, a fence that never falls, records that can be read later.

use std::{fs, io::Write as _, os::unix::fs::PermissionsExt as _, process::Command};

use sess_core::Timestamp;
use sess_work::{ClaimOptions, InitOptions, Kind, Note, Repo, Settings, Slug, State, Who, Work, Workspace};

use crate::lab::{Lab, bare, planned, take, work, work_with};

fn claim_ref(slug: &Slug) -> String {
    format!("refs/intersession/claims/{slug}")
}

fn fence(work: &Work, slug: &Slug) -> u64 {
    work.claim(slug, &ClaimOptions::default()).expect("claimed").record.claim.fence
}

#[test]
fn every_claim_that_a_commit_names_can_be_read_later() {
    let lab = Lab::new();
    let own = work(&lab.clone_named("ann"));
    let slug = planned(&own, "Named");
    own.claim(&slug, &ClaimOptions::default()).expect("claimed");
    own.note(&slug, Note::Log, "begun").expect("logged");
    own.heartbeat(&slug).expect("renewed");
    own.note(&slug, Note::Learning, "renewals are records").expect("learned");
    own.sync(&slug).expect("merged");
    let notes = lab.git(
        &lab.hub(),
        &["log", "--format=%s|%(trailers:key=Claim,valueonly,separator=%x20)", &slug.branch()],
    );
    for line in notes.lines().filter(|line| line.contains(" docs: ")) {
        assert_eq!(line.rsplit('|').next().map(str::len), Some(40), "{line}");
    }
    own.complete(&slug, None).expect("completed");
    let history = own.history(&slug, &own.see().expect("seen")).expect("a history");
    assert_eq!(history.len(), 2, "renewals are not told one by one: {history:?}");

    lab.git(&lab.hub(), &["reflog", "expire", "--expire=now", "--all"]);
    lab.git(&lab.hub(), &["gc", "--quiet", "--prune=now"]);
    let told = lab.git(&lab.hub(), &["log", "--format=%(trailers:key=Claim,valueonly)", "--all"]);
    let mut named: Vec<&str> = told.lines().filter(|line| !line.is_empty()).collect();
    named.sort_unstable();
    named.dedup();
    assert!(named.len() == 3, "{named:?}");
    for oid in named {
        lab.git(&lab.hub(), &["cat-file", "-e", &format!("{oid}:SESSION.md")]);
    }
}

#[test]
fn a_fence_never_falls_even_when_the_claim_was_lost() {
    let lab = Lab::new();
    let (ann, bob) = (work(&lab.clone_named("ann")), work(&lab.clone_named("bob")));
    let slug = planned(&ann, "Fenced");
    assert_eq!(fence(&ann, &slug), 1);
    bob.takeover(&slug, true, Some("needed"), &ClaimOptions::default()).expect("taken");
    // Somebody puts something else into its place.
    let main = lab.git(&lab.hub(), &["rev-parse", "main"]);
    lab.git(&lab.hub(), &["update-ref", &claim_ref(&slug), &main]);
    ann.doctor(true).expect("repaired");
    let carol = work(&lab.clone_named("carol"));
    assert_eq!(fence(&carol, &slug), 3);
    // Somebody removes it.
    lab.git(&lab.hub(), &["update-ref", "-d", &claim_ref(&slug)]);
    ann.doctor(true).expect("repaired");
    assert_eq!(fence(&work(&lab.clone_named("dave")), &slug), 4);
    // One that begins like it is another one.
    let other: Slug = format!("{slug}-2").parse().expect("a slug");
    let text = ann.show(&slug, &ann.see().expect("seen")).expect("shown").plan;
    ann.draft(Some(&other), &sess_work::Draft::default(), Some(&text)).expect("drafted");
    ann.ready(&other).expect("ready");
    assert_eq!(fence(&ann, &other), 1);
}

/// Has the remote refuse what the pattern of a shell matches.
fn refuses(lab: &Lab, pattern: &str) {
    let hook = lab.hub().join("hooks/pre-receive");
    let text = format!(
        "#!/bin/sh\nwhile read old new ref; do case $ref in {pattern}) echo no >&2; exit 1;; esac; done\n"
    );
    fs::write(&hook, text).expect("written");
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).expect("set");
}

fn allows_all(lab: &Lab) {
    fs::remove_file(lab.hub().join("hooks/pre-receive")).expect("removed");
}

#[test]
fn what_was_abandoned_is_abandoned_although_the_base_never_showed_it() {
    let lab = Lab::new();
    let (ann, bob) = (work(&lab.clone_named("ann")), work(&lab.clone_named("bob")));
    let slug = planned(&ann, "Unseen");
    refuses(&lab, "refs/heads/main");
    ann.claim(&slug, &ClaimOptions::default()).expect("claimed");
    ann.abandon(&slug, "no use").expect("abandoned");
    let seen = bob.see().expect("seen");
    assert_eq!(seen.tree.state(&slug), Some(State::Planned));
    assert_eq!(seen.standing(&slug).state(), Some(State::Abandoned));
    let refused = bob.claim(&slug, &ClaimOptions::default()).expect_err("it was abandoned");
    assert_eq!(refused.kind, Kind::WrongState, "{refused}");
    allows_all(&lab);
    planned(&bob, "Something else");
    let seen = bob.see().expect("seen");
    assert_eq!(seen.tree.state(&slug), Some(State::Abandoned));
    assert_eq!(bob.retry(&slug).expect("planned anew"), 2);
    let claim = bob.claim(&slug, &ClaimOptions::default()).expect("claimed").record.claim;
    assert_eq!((claim.attempt, claim.fence), (2, 2));
}

#[test]
fn a_stranger_is_told_who_has_it_and_only_its_owner_that_it_is_lost() {
    let lab = Lab::new();
    let (ann, bob) = (work(&lab.clone_named("ann")), work(&lab.clone_named("bob")));
    let slug = planned(&ann, "Whose");
    ann.claim(&slug, &ClaimOptions::default()).expect("claimed");
    let told = bob.check_own(&slug).expect_err("it is Ann's");
    assert_eq!(told.kind, Kind::Claimed);
    assert!(told.to_string().starts_with(&format!("{slug} is claimed by User ann on host")), "{told}");
    bob.takeover(&slug, true, Some("needed"), &ClaimOptions::default()).expect("taken");
    let told = ann.check_own(&slug).expect_err("it is Bob's");
    assert_eq!(told.kind, Kind::Claimed);
    assert!(
        told.to_string().contains("not yours any more: ") && told.to_string().contains("User bob"),
        "{told}"
    );
    bob.check_own(&slug).expect("it is Bob's");
}

#[test]
fn why_it_was_given_back_is_in_its_worklog() {
    let lab = Lab::new();
    let (ann, bob) = (work(&lab.clone_named("ann")), work(&lab.clone_named("bob")));
    let slug = planned(&ann, "Given back");
    ann.claim(&slug, &ClaimOptions::default()).expect("claimed");
    ann.release(&slug, Some("out of time")).expect("released");
    let log = lab.git(&lab.hub(), &["show", &format!("main:{}/worklog.md", State::Planned.dir_of(&slug))]);
    assert!(log.ends_with(" released by User ann: out of time"), "{log}");
    bob.claim(&slug, &ClaimOptions::default()).expect("claimed");
    bob.abandon(&slug, "no use").expect("abandoned");
    let log = lab.git(&lab.hub(), &["show", &format!("main:{}/worklog.md", State::Abandoned.dir_of(&slug))]);
    assert!(log.contains("out of time\n") && log.ends_with(" abandoned by User bob: no use"), "{log}");
}

#[test]
fn an_orphan_that_nobody_could_claim_is_a_draft_again() {
    let lab = Lab::new();
    let (ann, hand) = (work(&lab.clone_named("ann")), lab.clone_named("hand"));
    let slug: Slug = "2025-10-14-bare".parse().expect("a slug");
    let dir = hand.join(State::Active.dir_of(&slug));
    fs::create_dir_all(&dir).expect("made");
    fs::write(dir.join("SESSION.md"), "# Bare\n\n## Context\n\nc\n").expect("written");
    lab.git(&hand, &["add", "."]);
    lab.git(&hand, &["commit", "--quiet", "-m", "by hand"]);
    lab.git(&hand, &["push", "--quiet", "origin", "HEAD:main"]);
    ann.doctor(true).expect("repaired");
    assert_eq!(ann.see().expect("seen").tree.state(&slug), Some(State::Drafting));
}

const NONE: InitOptions = InitOptions { hooks: false, scripts: false };

fn refs(lab: &Lab, place: &str) -> String {
    lab.git(&lab.hub(), &["for-each-ref", "--format=%(refname)", place])
}

#[test]
fn claims_are_in_one_place_although_only_some_may_write_to_the_other() {
    let lab = Lab::new();
    let (ann_dir, bob_dir) = (lab.clone_named("ann"), lab.clone_named("bob"));
    let (ann, bob) = (work(&ann_dir), work(&bob_dir));
    ann.init(&NONE).expect("set up");
    let (slug, ended) = (planned(&ann, "One place"), planned(&ann, "Ended"));
    ann.claim(&ended, &ClaimOptions::default()).expect("claimed");
    ann.complete(&ended, None).expect("completed");
    ann.claim(&slug, &ClaimOptions::default()).expect("claimed");
    // Bob may write nothing but branches: claims are branches from now on, those of before with them.
    refuses(&lab, "refs/intersession/*");
    let report = bob.init(&NONE).expect("set up");
    assert!(report.notices.iter().any(|notice| notice.contains("intersession-claims")), "{report:?}");
    let taken = work(&bob_dir).claim(&slug, &ClaimOptions::default()).expect_err("it is Ann's");
    assert_eq!(taken.kind, Kind::Claimed, "{taken}");
    allows_all(&lab);
    assert_eq!(work(&ann_dir).heartbeat(&slug).expect("it is Ann's").claim.fence, 1);
    assert_eq!(refs(&lab, "refs/intersession/claims"), "", "whoever may removes what was carried over");
    assert_eq!(
        refs(&lab, "refs/heads/intersession-claims"),
        format!("refs/heads/intersession-claims/{slug}")
    );
    let history = bob.history(&ended, &bob.see().expect("seen")).expect("a history");
    assert!(!history.is_empty(), "what ended before is still known");
    // Somebody who never heard of it finds the same place.
    let carol = work(&lab.clone_named("carol"));
    assert_eq!(carol.claim(&slug, &ClaimOptions::default()).expect_err("it is Ann's").kind, Kind::Claimed);
    carol.takeover(&slug, true, Some("needed"), &ClaimOptions::default()).expect("taken");
    let lost = work(&ann_dir).complete(&slug, None).expect_err("it is Carol's");
    assert!(lost.kind == Kind::Claimed && lost.to_string().contains("User carol"), "{lost}");
    carol.complete(&slug, None).expect("completed");
    assert_eq!(bob.see().expect("seen").standing(&slug).state(), Some(State::Completed));
    assert_eq!(refs(&lab, "refs/intersession/claims"), "");
}

#[test]
fn a_claim_that_goes_to_the_wrong_place_at_the_last_moment_has_no_second_owner() {
    for is_taken in [false, true] {
        let lab = Lab::new();
        let (ann, bob) = (work(&lab.clone_named("ann")), work(&lab.clone_named("bob")));
        let slug = planned(&ann, "At once");
        let record = take(&bob, &slug).expect("taken");
        lab.git(&lab.hub(), &["update-ref", "-d", &claim_ref(&slug)]);
        // As if Bob had just found out that he may write branches only, while Ann's claim was on its way.
        let bobs = if is_taken {
            format!("git update-ref refs/heads/intersession-claims/{slug} {}", record.oid)
        } else {
            String::new()
        };
        let hook = lab.hub().join("hooks/post-receive");
        let text = format!(
            "#!/bin/sh\n[ -e done ] && exit\ntouch done\ngit update-ref refs/heads/intersession-here main\n{bobs}\n"
        );
        fs::write(&hook, text).expect("written");
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).expect("set");
        let claimed = ann.claim(&slug, &ClaimOptions::default());
        let owner = bob.see().expect("seen").record(&slug).expect("a claim").claim.user.name.clone();
        if is_taken {
            assert_eq!(claimed.expect_err("it is Bob's").kind, Kind::Claimed);
            assert_eq!(owner, "User bob");
        } else {
            claimed.expect("it is Ann's");
            assert_eq!(owner, "User ann");
        }
        assert_eq!(refs(&lab, "refs/intersession/claims"), "");
    }
}

fn alone(lab: &Lab) -> std::path::PathBuf {
    let dir = lab.clone_named("alone");
    lab.git(&dir, &["remote", "remove", "origin"]);
    dir
}

fn mode(file: &std::path::Path) -> u32 {
    fs::metadata(file).expect("there").permissions().mode() & 0o777
}

#[test]
fn without_a_remote_a_checkout_that_cannot_follow_refuses_the_verb() {
    let lab = Lab::new();
    let dir = alone(&lab);
    let own = work(&dir);
    own.init(&NONE).expect("set up");
    let (slug, other) = (planned(&own, "Local"), planned(&own, "Other"));
    own.claim(&slug, &ClaimOptions::default()).expect("claimed");
    let lock = dir.join("_AGENTS/sessions/sessions.lock");
    let text = fs::read_to_string(&lock).expect("read");
    fs::write(&lock, format!("{text}mine\n")).expect("written");
    let options = ClaimOptions::default();
    for refused in [
        own.claim(&other, &options).map(drop),
        own.release(&slug, Some("no")).map(drop),
        own.abandon(&slug, "no").map(drop),
        own.complete(&slug, None).map(drop),
    ] {
        let refused = refused.expect_err("the lock file is being changed");
        assert_eq!(refused.kind, Kind::WouldLoseWork, "{refused}");
        assert!(
            refused.to_string().contains("sessions.lock") && refused.to_string().contains("; run `git -C ")
        );
    }
    // Nothing happened at all.
    let seen = own.see().expect("seen");
    assert_eq!((seen.standing(&slug).state(), seen.record(&other)), (Some(State::Active), None));
    assert_eq!(fs::read_to_string(&lock).expect("read"), format!("{text}mine\n"));
    fs::write(&lock, text).expect("written");
    // What is changed elsewhere is in nobody's way.
    fs::write(dir.join("readme.md"), "being changed\n").expect("written");
    own.claim(&other, &options).expect("claimed");
    own.release(&slug, Some("no")).expect("released");
    assert_eq!(lab.git(&dir, &["status", "--porcelain"]).trim(), "M readme.md");
}

#[test]
fn plans_that_are_worked_by_or_done_with_are_marked_read_only() {
    let lab = Lab::new();
    let dir = alone(&lab);
    let own = work(&dir);
    let slug = planned(&own, "Frozen");
    let plan = |state: State| dir.join(state.dir_of(&slug)).join("SESSION.md");
    assert_eq!(mode(&plan(State::Planned)), 0o644);
    own.claim(&slug, &ClaimOptions::default()).expect("claimed");
    assert_eq!(mode(&plan(State::Active)), 0o444);
    own.release(&slug, None).expect("released");
    assert_eq!(mode(&plan(State::Planned)), 0o644);
    let workspace = own.claim(&slug, &ClaimOptions::default()).expect("claimed").workspace.expect("one");
    assert_eq!(mode(&workspace.join(State::Active.dir_of(&slug)).join("SESSION.md")), 0o444);
    own.complete(&slug, None).expect("completed");
    assert_eq!(mode(&plan(State::Completed)), 0o444);
    let next = planned(&own, "Next");
    let workspace = own.claim(&next, &ClaimOptions::default()).expect("claimed").workspace.expect("one");
    assert_eq!(mode(&workspace.join(State::Completed.dir_of(&slug)).join("SESSION.md")), 0o444);
    assert_eq!(lab.git(&dir, &["status", "--porcelain"]), "");
}

fn commit(lab: &Lab, dir: &std::path::Path, file: &str) {
    fs::write(dir.join(file), "x\n").expect("written");
    lab.git(dir, &["add", file]);
    lab.git(dir, &["commit", "--quiet", "-m", &format!("add {file}")]);
}

#[test]
fn what_the_base_took_back_does_not_come_again_with_a_session_that_merged_it() {
    let lab = Lab::new();
    let own = work(&lab.clone_named("ann"));
    let slug = planned(&own, "Synced");
    let workspace = own.claim(&slug, &ClaimOptions::default()).expect("claimed").workspace.expect("one");
    commit(&lab, &workspace, "before.txt");
    let other = lab.clone_named("other");
    commit(&lab, &other, "wrong.txt");
    lab.git(&other, &["push", "--quiet", "origin", "HEAD:main"]);
    own.sync(&slug).expect("merged");
    assert!(workspace.join("wrong.txt").is_file());
    commit(&lab, &workspace, "after.txt");
    lab.git(&other, &["reset", "--quiet", "--hard", "HEAD~1"]);
    commit(&lab, &other, "right.txt");
    lab.git(&other, &["push", "--quiet", "--force", "origin", "HEAD:main"]);
    for refused in [own.sync(&slug).map(drop), own.land(&slug).map(drop), own.complete(&slug, None).map(drop)]
    {
        let refused = refused.expect_err("the base was rewritten");
        assert_eq!(refused.kind, Kind::Conflict, "{refused}");
        assert!(refused.to_string().contains(" rebase --onto "), "{refused}");
    }
    let told = own.complete(&slug, None).expect_err("the base was rewritten").to_string();
    let command = told.rsplit_once("; run `").expect("a command").1.trim_end_matches('`').to_owned();
    let ended = std::process::Command::new("sh").args(["-c", &command]).output().expect("run");
    assert!(ended.status.success(), "{command}: {}", String::from_utf8_lossy(&ended.stderr));
    own.complete(&slug, None).expect("completed");
    let files = lab.git(&lab.hub(), &["ls-tree", "--name-only", "main"]);
    assert_eq!(files, "_AGENTS\nafter.txt\nbefore.txt\nreadme.md\nright.txt");
}

#[test]
fn what_comes_while_gates_run_does_not_land_unjudged() {
    let lab = Lab::new();
    let commits = "git commit --quiet --allow-empty -m \"[$SESSION_SLUG] feat: more\"".to_owned();
    let gates = [("busy".to_owned(), commits)].into();
    let own = work_with(&lab.clone_named("ann"), Settings { gates, ..Settings::default() });
    let plan = "---\ngates: [busy]\n---\n# X\n\n## Context\n\nc\n\n## Acceptance Criteria\n\n- [ ] a\n";
    let slug: Slug = "2025-10-14-busy".parse().expect("a slug");
    own.draft(Some(&slug), &sess_work::Draft::default(), Some(plan)).expect("drafted");
    own.ready(&slug).expect("ready");
    own.claim(&slug, &ClaimOptions::default()).expect("claimed");
    for landed in [own.land(&slug).map(drop), own.complete(&slug, None).map(drop)] {
        let error = landed.expect_err("nobody judged that");
        assert_eq!(error.kind, Kind::Policy, "{error}");
        assert!(error.message().contains("while its gates ran"), "{error}");
    }
    assert_eq!(own.see().expect("seen").standing(&slug).state(), Some(State::Active));
}

#[test]
fn what_landed_has_landed_although_it_cannot_be_cleaned_up() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let own = work(&dir);
    let slug = planned(&own, "Kept");
    own.claim(&slug, &ClaimOptions::default()).expect("claimed");
    // A ref in the place of the directory of those that keep its commits.
    lab.git(&dir, &["update-ref", &format!("refs/intersession/rescue/{slug}"), "HEAD"]);
    let completed = own.complete(&slug, None).expect("it has landed");
    assert!(
        completed.notices.iter().any(|notice| notice.contains("sess work gc")),
        "{:?}",
        completed.notices
    );
    assert_eq!(own.see().expect("seen").tree.state(&slug), Some(State::Completed));
}

#[test]
fn what_a_gate_leaves_running_is_not_waited_for() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    // It runs until somebody lets go of the pipe, with everything that the gate had open.
    let end = lab.path().join("end");
    assert!(Command::new("mkfifo").arg(&end).status().expect("it runs").success());
    let gate = format!("(read line < {0}; echo late) & echo said; test -f work.txt", end.display());
    let own =
        work_with(&dir, Settings { gates: [("serves".to_owned(), gate)].into(), ..Settings::default() });
    let plan = "---\ngates: [serves]\n---\n# X\n\n## Context\n\nc\n\n## Acceptance Criteria\n\n- [ ] a\n";
    let slug: Slug = "2025-10-14-gated".parse().expect("a slug");
    own.draft(Some(&slug), &sess_work::Draft::default(), Some(plan)).expect("drafted");
    own.ready(&slug).expect("ready");
    let workspace = own.claim(&slug, &ClaimOptions::default()).expect("claimed").workspace.expect("one");
    // Opened for both, so that nobody waits for the other end.
    let letting_go = fs::File::options().read(true).write(true).open(&end).expect("opened");
    let failed = own.complete(&slug, None).expect_err("there is no work.txt");
    assert!(failed.message().ends_with("failed (exit status: 1): said"), "{failed}");
    commit(&lab, &workspace, "work.txt");
    own.complete(&slug, None).expect("completed");
    (&letting_go).write_all(b"\n\n").expect("they end");
}

#[test]
fn gates_judge_what_lands() {
    let lab = Lab::new();
    let gates = [("there".to_owned(), "test -f work.txt".to_owned())].into();
    let own = work_with(&lab.clone_named("ann"), Settings { gates, ..Settings::default() });
    let plan = "---\ngates: [there]\n---\n# X\n\n## Context\n\nc\n\n## Acceptance Criteria\n\n- [ ] a\n";
    let slug: Slug = "2025-10-14-gated".parse().expect("a slug");
    own.draft(Some(&slug), &sess_work::Draft::default(), Some(plan)).expect("drafted");
    own.ready(&slug).expect("ready");
    let workspace = own.claim(&slug, &ClaimOptions::default()).expect("claimed").workspace.expect("one");
    // One that says nothing is told without a gap.
    let failed = own.complete(&slug, None).expect_err("there is no work.txt");
    assert!(failed.message().ends_with("failed (exit status: 1), and said nothing"), "{failed}");
    fs::write(workspace.join("work.txt"), "x\n").expect("written");
    for refused in [own.complete(&slug, None).map(drop), own.land(&slug).map(drop)] {
        let refused = refused.expect_err("it is not committed");
        assert_eq!(refused.kind, Kind::Policy, "{refused}");
        assert!(refused.to_string().contains("work.txt"), "{refused}");
    }
    assert!(workspace.join("work.txt").is_file());
    commit(&lab, &workspace, "work.txt");
    own.complete(&slug, None).expect("completed");
}

#[test]
fn repositories_that_share_a_place_for_workspaces_keep_apart() {
    for kind in [Workspace::Worktree, Workspace::Clone] {
        let (one, two) = (Lab::new(), Lab::new());
        let place = one.path().join("all of them");
        let settings = Settings { workspaces: Some(place.clone()), ..Settings::default() };
        let options = ClaimOptions { workspace: kind, ..ClaimOptions::default() };
        let caller = |lab: &Lab| work_with(&lab.clone_named("ann"), settings.clone());
        let (first, second) = (caller(&one), caller(&two));
        let slug = planned(&first, "Same name");
        assert_eq!(planned(&second, "Same name"), slug);
        let claimed = |work: &Work| work.claim(&slug, &options).expect("claimed").workspace.expect("one");
        let (mine, theirs) = (claimed(&first), claimed(&second));
        assert_eq!(mine, place.join(slug.as_str()));
        assert!(theirs != mine && theirs.starts_with(&place), "{}", theirs.display());
        assert_eq!(claimed(&second), theirs, "it is found again");
        commit(&one, &mine, "one.txt");
        commit(&two, &theirs, "two.txt");
        first.complete(&slug, None).expect("completed");
        assert!(!mine.exists() && theirs.exists());
        assert_eq!(second.workspace(&slug), Some(theirs.clone()));
        second.complete(&slug, None).expect("completed");
        assert_eq!(two.files("main", "two.txt"), ["two.txt"]);
        assert!(!theirs.exists());
    }
}

#[test]
fn drift_tells_of_what_is_not_committed_yet() {
    let lab = Lab::new();
    let (ann, bob) = (work(&lab.clone_named("ann")), work(&lab.clone_named("bob")));
    let plan =
        "---\ntouches: [\"src/**\"]\n---\n# X\n\n## Context\n\nc\n\n## Acceptance Criteria\n\n- [ ] a\n";
    let slug: Slug = "2025-10-14-drifting".parse().expect("a slug");
    ann.draft(Some(&slug), &sess_work::Draft::default(), Some(plan)).expect("drafted");
    ann.ready(&slug).expect("ready");
    let workspace = ann.claim(&slug, &ClaimOptions::default()).expect("claimed").workspace.expect("one");
    fs::create_dir(workspace.join("src")).expect("made");
    for file in ["src/new.rs", "readme.md", "other.txt"] {
        fs::write(workspace.join(file), "changed\n").expect("written");
    }
    let files = ann.drift(&slug).expect("a drift").files;
    assert_eq!(files.changed, ["other.txt", "readme.md", "src/new.rs"]);
    assert_eq!(files.outside, ["other.txt", "readme.md"]);
    assert_eq!(bob.drift(&slug).expect("a drift").files.changed, Vec::<String>::new());
}

#[test]
fn every_verb_of_its_owner_renews_the_lease_and_nobody_elses_does() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let (ann, bob) = (work(&dir), work(&lab.clone_named("bob")));
    let slug = planned(&ann, "Kept");
    ann.claim(&slug, &ClaimOptions::default()).expect("claimed");
    let nonce = || bob.see().expect("seen").record(&slug).expect("a claim").claim.nonce.clone();
    type Asked<'a> = &'a dyn Fn(&Work) -> Result<(), sess_work::Error>;
    let verbs: [(&str, Asked<'_>); 5] = [
        ("status", &|who| who.status(&slug).map(drop)),
        ("drift", &|who| who.drift(&slug).map(drop)),
        ("context", &|who| who.context(&slug, 1_000).map(drop)),
        ("env", &|who| who.check_own(&slug)),
        ("exec", &|who| who.while_renewing(&slug, || ())),
    ];
    for (name, verb) in verbs {
        let before = nonce();
        // Whether somebody else may is not the matter here.
        drop(verb(&bob));
        assert_eq!(nonce(), before, "{name} of somebody else");
        verb(&ann).expect(name);
        assert_ne!(nonce(), before, "{name}");
    }
    // Whoever cannot reach the remote is told what was seen last.
    lab.git(&dir, &["remote", "set-url", "origin", "../nowhere.git"]);
    assert!(work(&dir).status(&slug).expect("told").is_old);
}

#[test]
fn a_plan_is_not_amended_to_one_that_nobody_could_claim() {
    let lab = Lab::new();
    let ann = work(&lab.clone_named("ann"));
    let slug = planned(&ann, "Amended");
    let plan = ann.claim(&slug, &ClaimOptions::default()).expect("claimed").record.claim.plan;
    let refused =
        ann.amend(&slug, Some("# Amended\n\n## Context\n\nc\n"), "shorter").expect_err("no criteria");
    assert!(refused.message().contains("## Acceptance Criteria"), "{refused}");
    assert_eq!(refused.next_command(), format!("sess work amend {slug} --file <file> --reason …"));
    assert_eq!(ann.see().expect("seen").record(&slug).expect("a claim").claim.plan, plan);
}

#[test]
fn what_was_copied_into_a_workspace_is_not_what_somebody_changes() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    fs::write(dir.join(".worktreeinclude"), "local.env\n").expect("written");
    fs::write(dir.join("local.env"), "A=1\n").expect("written");
    let ann = work(&dir);
    let slug = planned(&ann, "Copied");
    let place = ann.claim(&slug, &ClaimOptions::default()).expect("claimed").workspace.expect("a workspace");
    assert!(place.join("local.env").is_file());
    fs::write(place.join("new.rs"), "x\n").expect("written");
    assert_eq!(ann.status(&slug).expect("told").uncommitted, ["new.rs"]);
    assert_eq!(ann.drift(&slug).expect("told").files.changed, ["new.rs"]);
}

#[test]
fn the_first_agent_of_a_clone_has_what_its_person_claimed_and_no_other_one() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let agent = |name: Option<&str>| {
        let session = name.map(str::to_owned);
        let who = Who { agent: session.clone(), session, host: "host".to_owned(), pid: 1 };
        let repo = Repo::find(&dir).expect("a repository");
        Work::new(repo, Settings::default(), who, crate::lab::now).expect("a caller")
    };
    let (person, one, two) = (agent(None), agent(Some("native:s2")), agent(Some("native:s3")));
    let options = ClaimOptions::default();
    let by_claim = planned(&person, "By claim");
    person.claim(&by_claim, &options).expect("claimed");
    let record = one.claim(&by_claim, &options).expect("it acts for the person").record;
    assert_eq!(record.claim.owner.session.as_deref(), Some("native:s2"));
    assert_eq!(record.claim.agent.as_deref(), Some("native:s2"));
    let by_note = planned(&person, "By note");
    person.claim(&by_note, &options).expect("claimed");
    one.note(&by_note, Note::Log, "begun").expect("it acts for the person");
    for slug in [by_claim, by_note] {
        assert_eq!(two.claim(&slug, &options).expect_err("another agent has it").kind, Kind::Claimed);
        assert_eq!(two.note(&slug, Note::Log, "no").expect_err("it is the first one's").kind, Kind::Claimed);
        person.note(&slug, Note::Log, "looked at").expect("it is the person's clone");
        one.note(&slug, Note::Log, "gone on").expect("the person took nothing from it");
    }
}

#[test]
fn an_agent_that_only_looks_takes_nothing_from_a_person() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let caller = |session: Option<&str>| {
        let session = session.map(str::to_owned);
        let who = Who { agent: session.clone(), session, host: "host".to_owned(), pid: 1 };
        let repo = Repo::find(&dir).expect("a repository");
        Work::new(repo, Settings::default(), who, crate::lab::now).expect("a caller")
    };
    let (person, agent) = (caller(None), caller(Some("native:s2")));
    let slug = planned(&person, "Looked at");
    let options = ClaimOptions::default();
    let claimed = person.claim(&slug, &options).expect("claimed").record;
    agent.status_and_drift(&slug).expect("told");
    agent.drift(&slug).expect("told");
    agent.context(&slug, 10_000).expect("told");
    let record = |work: &Work| work.see().expect("seen").record(&slug).expect("a claim").clone();
    assert_eq!(record(&agent), claimed, "looking changes nothing");
    // Whoever has it keeps it by looking.
    agent.claim(&slug, &options).expect("it acts for the person");
    let before = record(&agent).oid;
    agent.status(&slug).expect("told");
    let after = record(&agent);
    assert_ne!(after.oid, before, "the lease is renewed");
    assert_eq!(after.claim.owner.session.as_deref(), Some("native:s2"));
}

#[test]
fn who_takes_up_what_somebody_else_gave_back_commits_in_their_own_name() {
    for has_remote in [true, false] {
        let lab = Lab::new();
        let ann_dir = lab.clone_named("ann");
        let bob_dir = if has_remote { lab.clone_named("bob") } else { ann_dir.clone() };
        if !has_remote {
            lab.git(&ann_dir, &["remote", "remove", "origin"]);
        }
        let slug = planned(&work(&ann_dir), "Handed on");
        let ann = work(&ann_dir);
        ann.claim(&slug, &ClaimOptions::default()).expect("claimed");
        ann.note(&slug, Note::Log, "begun").expect("noted");
        ann.release(&slug, None).expect("given back");
        lab.git(&bob_dir, &["config", "user.name", "Bob"]);
        lab.git(&bob_dir, &["config", "user.email", "bob@example.com"]);
        let claimed = work(&bob_dir).claim(&slug, &ClaimOptions::default()).expect("claimed");
        let env = format!("_AGENTS/sessions/active/{slug}/.session-env");
        let text = fs::read_to_string(claimed.workspace.expect("a workspace").join(env)).expect("read");
        assert!(text.contains(&format!("Bob ({slug})")) && text.contains("bob@example.com"), "{text}");
    }
}

#[test]
fn what_leads_to_no_commit_is_no_claim() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let ann = work(&dir);
    let slug = planned(&ann, "Blob");
    let record = take(&ann, &slug).expect("taken");
    let text = lab.git(&lab.hub(), &["cat-file", "commit", record.oid.as_str()]);
    let path = dir.join("blob");
    fs::write(&path, text).expect("written");
    let blob = lab.git(&dir, &["hash-object", "-w", "blob"]);
    lab.git(
        &dir,
        &["push", "--quiet", "--force", "origin", &format!("{blob}:refs/intersession/claims/{slug}")],
    );
    let seen = ann.see().expect("seen");
    assert_eq!(seen.record(&slug), None);
    assert_eq!(seen.view.damaged, [(slug.to_string(), "it leads to no claim".to_owned())]);
}

#[test]
fn a_claim_whose_bytes_are_no_text_is_damaged() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let ann = work(&dir);
    let slug = planned(&ann, "Bytes");
    let record = take(&ann, &slug).expect("taken");
    let text = lab.git(&lab.hub(), &["cat-file", "commit", record.oid.as_str()]) + "\n";
    let at = text.rfind("User ann").expect("who has it is in the record");
    let mut bytes = text.into_bytes();
    bytes[at] = 0xff;
    fs::write(dir.join("commit"), bytes).expect("written");
    let damaged = lab.git(&dir, &["hash-object", "-t", "commit", "-w", "commit"]);
    lab.git(
        &dir,
        &["push", "--quiet", "--force", "origin", &format!("{damaged}:refs/intersession/claims/{slug}")],
    );
    let seen = ann.see().expect("seen");
    assert_eq!(seen.record(&slug), None);
    let [(name, reason)] = seen.view.damaged.as_slice() else { panic!("{:?}", seen.view.damaged) };
    assert_eq!(name, slug.as_str());
    assert!(reason.starts_with("its claim cannot be read: "), "{reason}");
    let checkup = ann.doctor(true).expect("repaired");
    assert!(checkup.findings.iter().any(|told| told.contains("is removed")), "{checkup:?}");
    ann.claim(&slug, &bare()).expect("it can be taken again");
}

#[test]
fn a_takeover_by_the_same_person_shows_since_when_they_have_it() {
    let lab = Lab::new();
    let (first, second) = (lab.clone_named("first-clone"), lab.clone_named("second-clone"));
    for dir in [&first, &second] {
        lab.git(dir, &["config", "user.name", "Ann"]);
        lab.git(dir, &["config", "user.email", "ann@example.com"]);
    }
    let slug = planned(&work(&first), "Mine");
    work(&first).claim(&slug, &ClaimOptions::default()).expect("claimed");
    let later = || Timestamp::from_millis_clamped(crate::lab::now().as_millis() + 3_600_000);
    let who = Who { agent: None, session: None, host: "host".to_owned(), pid: 1 };
    let repo = Repo::find(&second).expect("a repository");
    let own = Work::new(repo, Settings::default(), who, later).expect("a caller");
    let taken = own.takeover(&slug, true, Some("it is mine"), &ClaimOptions::default()).expect("taken");
    let since = taken.record.claim.claimed_at.as_millis() / 1_000;
    assert_eq!(
        lab.git(&lab.hub(), &["show", "main:_AGENTS/sessions/sessions.lock"]),
        format!("{slug}:{since}")
    );
}
