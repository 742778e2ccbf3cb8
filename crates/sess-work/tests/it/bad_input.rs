//! Repositories, remotes and files that are not as one would like them: each says what it is and what to run, and
//! nothing is lost.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use sess_core::Timestamp;
use sess_work::{
    ClaimOptions, Draft, Error, InitOptions, Kind, Note, Repo, Settings, Slug, State, Who, Work,
};

use crate::lab::{Lab, now, planned, work, work_with};

#[track_caller]
fn check<T: std::fmt::Debug>(ended: Result<T, Error>, kind: Kind, next: &str) -> String {
    let error = ended.expect_err("it is refused");
    let text = error.to_string();
    assert_eq!(error.kind, kind, "{text}");
    let command =
        text.rsplit_once("; run `").map(|(_, command)| command.trim_end_matches('`')).unwrap_or_default();
    assert!(command.starts_with(next), "{text}: expected {next}");
    text
}

fn claimed(work: &Work, title: &str) -> (Slug, PathBuf) {
    let slug = planned(work, title);
    let workspace =
        work.claim(&slug, &ClaimOptions::default()).expect("claimed").workspace.expect("a workspace");
    (slug, workspace)
}

fn commit(lab: &Lab, dir: &Path, file: &str, text: &str) {
    let path = dir.join(file);
    fs::create_dir_all(path.parent().expect("a directory")).expect("made");
    fs::write(path, text).expect("written");
    lab.git(dir, &["add", file]);
    lab.git(dir, &["commit", "--quiet", "-m", "by hand"]);
}

/// Takes a session through its life.
fn live(lab: &Lab, own: &Work) -> Slug {
    let (slug, workspace) = claimed(own, "Live");
    commit(lab, &workspace, "work.txt", "done\n");
    own.note(&slug, Note::Log, "done").expect("logged");
    let done = own.complete(&slug, None).expect("completed");
    assert_eq!(done.notices, Vec::<String>::new());
    slug
}

#[test]
fn a_dirty_checkout_stays_as_it_is_and_a_dirty_workspace_is_not_landed() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    fs::write(dir.join("readme.md"), "being changed\n").expect("written");
    fs::write(dir.join("staged.txt"), "staged\n").expect("written");
    fs::write(dir.join("untracked.txt"), "untracked\n").expect("written");
    lab.git(&dir, &["add", "staged.txt"]);
    let status = lab.git(&dir, &["status", "--porcelain"]);
    let own = work(&dir);
    let (slug, workspace) = claimed(&own, "Dirty");
    fs::write(workspace.join("readme.md"), "half done\n").expect("written");
    for refused in
        [own.complete(&slug, None).map(drop), own.release(&slug, None).map(drop), own.land(&slug).map(drop)]
    {
        check(refused, Kind::WouldLoseWork, "git -C ");
    }
    assert_eq!(fs::read_to_string(workspace.join("readme.md")).expect("read"), "half done\n");
    lab.git(&workspace, &["commit", "--quiet", "-am", "done"]);
    own.complete(&slug, None).expect("completed");
    assert_eq!(lab.git(&dir, &["status", "--porcelain"]), status);
}

#[test]
fn a_detached_head_matters_only_when_nothing_else_names_the_base() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    lab.git(&dir, &["checkout", "--quiet", "--detach"]);
    live(&lab, &work(&dir));
    lab.git(&dir, &["remote", "remove", "origin"]);
    lab.git(&dir, &["branch", "-M", "main", "trunk"]);
    check(Repo::find(&dir), Kind::WrongState, "git config intersession.base <branch>");
}

#[test]
fn a_bare_repository_and_none_at_all_are_told() {
    let lab = Lab::new();
    check(Repo::find(&lab.hub()), Kind::WrongState, "git clone ");
    check(Repo::find(lab.path()), Kind::WrongState, "git init");
    check(Repo::find(&lab.path().join("first/.git")), Kind::WrongState, "cd ..");
}

#[test]
fn a_repository_without_commits_says_so() {
    let lab = Lab::new();
    let dir = lab.path().join("new");
    lab.git(lab.path(), &["init", "--quiet", "--initial-branch=main", "new"]);
    lab.git(&dir, &["config", "user.name", "New"]);
    lab.git(&dir, &["config", "user.email", "new@example.com"]);
    check(work(&dir).see(), Kind::WrongState, "git commit --allow-empty");
    lab.git(lab.path(), &["init", "--quiet", "--bare", "--initial-branch=main", "empty.git"]);
    lab.git(&dir, &["remote", "add", "origin", "../empty.git"]);
    lab.git(&dir, &["commit", "--quiet", "--allow-empty", "-m", "first"]);
    check(
        work(&dir).init(&InitOptions { hooks: true, scripts: false }),
        Kind::WrongState,
        "git push origin HEAD:refs/heads/main",
    );
    // In a clone of nothing, what is told helps as it stands.
    lab.git(lab.path(), &["clone", "--quiet", "empty.git", "nothing"]);
    let dir = lab.path().join("nothing");
    lab.git(&dir, &["config", "user.name", "New"]);
    lab.git(&dir, &["config", "user.email", "new@example.com"]);
    let options = InitOptions { hooks: true, scripts: false };
    let told = check(work(&dir).init(&options), Kind::WrongState, "git commit --allow-empty");
    let command = told.rsplit_once("; run `").expect("a command").1.trim_end_matches('`');
    let ended = Command::new("sh").args(["-c", command]).current_dir(&dir).output().expect("run");
    assert!(ended.status.success(), "{command}: {}", String::from_utf8_lossy(&ended.stderr));
    work(&dir).init(&options).expect("set up");
}

#[test]
fn a_shallow_clone_works() {
    let lab = Lab::new();
    let first = lab.path().join("first");
    for n in 0..3 {
        commit(&lab, &first, "n.txt", &format!("{n}\n"));
    }
    lab.git(&first, &["push", "--quiet", "origin", "HEAD:main"]);
    let url = format!("file://{}", lab.hub().display());
    lab.git(lab.path(), &["clone", "--quiet", "--depth=1", &url, "shallow"]);
    let dir = lab.path().join("shallow");
    lab.git(&dir, &["config", "user.name", "Shallow"]);
    lab.git(&dir, &["config", "user.email", "s@example.com"]);
    assert_eq!(lab.git(&dir, &["rev-parse", "--is-shallow-repository"]), "true");
    live(&lab, &work(&dir));
}

#[test]
fn worktrees_of_worktrees_share_one_place_for_workspaces() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    lab.git(&dir, &["worktree", "add", "--quiet", "-b", "side", "../side"]);
    let (one, first) = claimed(&work(&lab.path().join("side")), "From a worktree");
    let (two, second) = claimed(&work(&first), "From a workspace");
    assert_eq!(first, work(&dir).workspace_path(&one));
    assert_eq!(second.parent(), first.parent());
    assert_eq!(work(&second).meant(None).expect("its own"), two);
    // From within the workspace that goes away.
    work(&second).complete(&two, None).expect("completed");
    work(&dir).complete(&one, None).expect("completed");
    assert!(!first.exists() && !second.exists());
}

#[test]
fn an_unreachable_remote_is_told_and_what_can_wait_waits() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let own = work(&dir);
    let (slug, workspace) = claimed(&own, "Away");
    let hub = lab.hub();
    fs::rename(&hub, lab.path().join("away.git")).expect("moved");
    for refused in [
        own.see().map(drop),
        own.complete(&slug, None).map(drop),
        own.release(&slug, None).map(drop),
        own.ready(&slug),
    ] {
        check(refused, Kind::Unreachable, "git ls-remote origin");
    }
    let notices = own.note(&slug, Note::Log, "went on").expect("written down");
    assert!(notices[0].contains("cannot be reached"), "{notices:?}");
    let seen = own.see_or_recall().expect("what it said last");
    assert!(seen.view.is_old);
    assert_eq!(own.list(&seen).expect("rows").len(), 1);
    assert!(own.doctor(false).expect("checked").findings[0].contains("git ls-remote origin"));
    fs::rename(lab.path().join("away.git"), &hub).expect("back");
    own.heartbeat(&slug).expect("shared");
    let log = lab.git(&hub, &["show", &format!("session/{slug}:_AGENTS/sessions/active/{slug}/worklog.md")]);
    assert!(log.contains("went on"), "{log}");
    assert!(workspace.exists());
}

#[test]
fn a_remote_that_rejects_the_landing_loses_nothing() {
    let lab = Lab::new();
    let own = work(&lab.clone_named("ann"));
    let (slug, workspace) = claimed(&own, "Rejected");
    commit(&lab, &workspace, "work.txt", "done\n");
    let hook = lab.hub().join("hooks/pre-receive");
    let text = "#!/bin/sh\nwhile read old new ref; do [ $ref = refs/heads/main ] && { echo 'main is \u{1b}[31mprotected'; exit 1; }; done; exit 0\n";
    fs::write(&hook, text).expect("written");
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).expect("set");
    let told = check(own.complete(&slug, None), Kind::Rejected, "SESS_WORK_LAND=pr sess work complete");
    assert!(told.contains("protected") && !told.contains('\u{1b}'), "{told}");
    assert!(told.contains("land: pr"), "{told}");
    assert_eq!(own.see().expect("seen").tree.state(&slug), Some(State::Active));
    // A claim stands although the base does not show it.
    let other = Draft { title: "Other".to_owned(), ..Draft::default() };
    let told = check(own.draft(None, &other, None), Kind::Rejected, "git push origin ");
    assert!(!told.contains("land: pr") && told.contains("pull request"), "{told}");
    fs::remove_file(&hook).expect("removed");
    let planned = planned(&own, "Next");
    fs::write(&hook, text).expect("written");
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).expect("set");
    let claim = own.claim(&planned, &ClaimOptions::default()).expect("claimed");
    assert!(claim.notices[0].contains("does not show it yet"), "{:?}", claim.notices);
    let dir = claim.workspace.expect("a workspace").join(State::Active.dir_of(&planned));
    assert!(dir.join("SESSION.md").is_file());
    fs::remove_file(&hook).expect("removed");
    own.complete(&slug, None).expect("completed");
    own.complete(&planned, None).expect("completed");
}

#[test]
fn a_remote_that_lets_nobody_in_is_told_apart_from_one_that_is_away() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    for answer in ["403 Forbidden", "401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"x\""] {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/x.git", server.local_addr().expect("an address"));
        let thread = std::thread::spawn(move || {
            // As many requests as one fetch makes.
            let (mut stream, _) = server.accept().expect("a caller");
            let _ = stream.read(&mut [0; 4_096]).expect("a request");
            write!(stream, "HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                .expect("answered");
        });
        lab.git(&dir, &["config", "remote.origin.url", &url]);
        check(work(&dir).see(), Kind::Rejected, "git ls-remote origin");
        thread.join().expect("it answered");
    }
}

#[test]
fn a_rewritten_base_keeps_the_work_and_says_how_to_go_on() {
    let lab = Lab::new();
    let own = work(&lab.clone_named("ann"));
    let first = lab.path().join("first");
    commit(&lab, &first, "wrong.txt", "wrong\n");
    lab.git(&first, &["push", "--quiet", "origin", "HEAD:main"]);
    let (slug, workspace) = claimed(&own, "Rewritten");
    commit(&lab, &workspace, "work.txt", "done\n");
    // What others see of it has the old base for good, and the same work.
    own.heartbeat(&slug).expect("shared");
    lab.git(&first, &["reset", "--quiet", "--hard", "HEAD~1"]);
    commit(&lab, &first, "right.txt", "right\n");
    lab.git(&first, &["push", "--quiet", "--force", "origin", "HEAD:main"]);
    // The directory went with it, and is put back first.
    let told = check(own.complete(&slug, None), Kind::Conflict, "git -C ");
    let command = told.rsplit_once("; run `").expect("a command").1.trim_end_matches('`').to_owned();
    let ended = Command::new("sh").args(["-c", &command]).output().expect("run");
    assert!(ended.status.success(), "{command}: {}", String::from_utf8_lossy(&ended.stderr));
    let done = own.complete(&slug, None).expect("completed");
    assert_eq!(done.notices, Vec::<String>::new());
    let left = lab.git(&lab.hub(), &["for-each-ref", &format!("refs/heads/{}", slug.branch())]);
    assert_eq!(left, "", "what others saw of it goes, too");
    assert_eq!(lab.files("main", "right.txt"), ["right.txt"]);
    assert_eq!(lab.files("main", "work.txt"), ["work.txt"]);
    assert_eq!(lab.files("main", "wrong.txt"), Vec::<String>::new());
}

#[test]
fn the_rebase_to_a_rewritten_base_takes_everything_that_was_written_down() {
    // The new base has nothing of the session, its plan, or its claim as well.
    for keeps in [0, 1, 2] {
        let lab = Lab::new();
        let own = work(&lab.clone_named("ann"));
        let first = lab.path().join("first");
        commit(&lab, &first, "wrong.txt", "wrong\n");
        lab.git(&first, &["push", "--quiet", "origin", "HEAD:main"]);
        let wrong = lab.git(&first, &["rev-parse", "HEAD"]);
        let (slug, workspace) = claimed(&own, "Rewritten");
        lab.git(&first, &["pull", "--quiet", "origin", "main"]);
        commit(&lab, &workspace, "work.txt", "done\n");
        own.note(&slug, Note::Log, "the first line").expect("logged");
        own.note(&slug, Note::Log, "the second line").expect("logged");
        own.note(&slug, Note::Learning, "bases are rewritten").expect("learned");
        let kept = ["", "HEAD~1", "HEAD"][keeps];
        match kept {
            "" => drop(lab.git(&first, &["reset", "--quiet", "--hard", &format!("{wrong}^")])),
            _ => drop(lab.git(
                &first,
                &[
                    "rebase",
                    "--quiet",
                    "--onto",
                    &format!("{wrong}^"),
                    &wrong,
                    &lab.git(&first, &["rev-parse", kept]),
                ],
            )),
        }
        commit(&lab, &first, "right.txt", "right\n");
        lab.git(&first, &["push", "--quiet", "--force", "origin", "HEAD:main"]);
        let told = check(own.complete(&slug, None), Kind::Conflict, "git -C ");
        let command = told.rsplit_once("; run `").expect("a command").1.trim_end_matches('`').to_owned();
        let ended = Command::new("sh").args(["-c", &command]).output().expect("run");
        assert!(ended.status.success(), "{keeps}: {command}: {}", String::from_utf8_lossy(&ended.stdout));
        own.note(&slug, Note::Log, "the third line").expect("logged");
        own.complete(&slug, None).expect("completed");
        let log = format!("main:{}/worklog.md", State::Completed.dir_of(&slug));
        let log = lab.git(&lab.hub(), &["show", &log]);
        for line in ["claimed by", "the first line", "the second line", "the third line"] {
            assert_eq!(log.matches(line).count(), 1, "{keeps}: {log}");
        }
        assert_eq!(lab.files("main", "work.txt"), ["work.txt"]);
        assert_eq!(lab.files("main", "wrong.txt"), Vec::<String>::new());
    }
}

#[test]
fn a_base_that_lost_no_more_than_the_claims_own_commit_gets_that_again() {
    let lab = Lab::new();
    let own = work(&lab.clone_named("ann"));
    let slug = planned(&own, "Put back");
    let before = lab.git(&lab.hub(), &["rev-parse", "main"]);
    own.claim(&slug, &ClaimOptions::default()).expect("claimed");
    lab.git(&lab.hub(), &["update-ref", "refs/heads/main", &before]);
    own.sync(&slug).expect("nothing is missing");
    own.complete(&slug, None).expect("completed");
    let files = lab.files("main", "_AGENTS/sessions");
    assert!(files.contains(&format!("{}/SESSION.md", State::Completed.dir_of(&slug))), "{files:?}");
}

#[test]
fn what_came_to_the_base_between_a_claim_and_its_commit_is_not_brought_back_either() {
    let lab = Lab::new();
    let own = work(&lab.clone_named("ann"));
    let slug = planned(&own, "Between");
    let first = lab.path().join("first");
    lab.git(&first, &["pull", "--quiet", "origin", "main"]);
    let before = lab.git(&first, &["rev-parse", "HEAD"]);
    commit(&lab, &first, "wrong.txt", "wrong\n");
    lab.git(&first, &["push", "--quiet", "origin", "HEAD:wrong"]);
    // Somebody is faster, between the claim and what shows it.
    let hook = lab.hub().join("hooks/post-receive");
    let text = "#!/bin/sh\nread old new ref\ncase $ref in refs/intersession/*)\n  git update-ref refs/heads/main wrong; rm \"$0\";; esac\n";
    fs::write(&hook, text).expect("written");
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).expect("set");
    let workspace =
        own.claim(&slug, &ClaimOptions::default()).expect("claimed").workspace.expect("a workspace");
    assert!(workspace.join("wrong.txt").is_file(), "the commit of the claim came after it");
    commit(&lab, &workspace, "work.txt", "done\n");

    lab.git(&lab.hub(), &["update-ref", "refs/heads/main", &before]);
    own.doctor(true).expect("repaired");
    let told = check(own.complete(&slug, None), Kind::Conflict, "git -C ");
    let command = told.rsplit_once("; run `").expect("a command").1.trim_end_matches('`').to_owned();
    let ended = Command::new("sh").args(["-c", &command]).output().expect("run");
    assert!(ended.status.success(), "{command}: {}", String::from_utf8_lossy(&ended.stderr));
    own.complete(&slug, None).expect("completed");
    assert_eq!(lab.files("main", "work.txt"), ["work.txt"]);
    assert_eq!(lab.files("main", "wrong.txt"), Vec::<String>::new());
}

#[test]
fn a_renamed_base_is_told() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let own = work(&dir);
    let (slug, _) = claimed(&own, "Renamed");
    lab.git(&lab.hub(), &["branch", "-M", "main", "trunk"]);
    check(own.complete(&slug, None), Kind::Conflict, "git config intersession.base trunk");
    lab.git(&dir, &["config", "intersession.base", "trunk"]);
    let done = work(&dir).complete(&slug, None).expect("completed");
    assert_eq!(done.record.claim.base, "trunk");
}

#[test]
fn a_directory_without_a_plan_is_told_and_can_be_given_one() {
    let lab = Lab::new();
    let hand = lab.path().join("first");
    commit(&lab, &hand, "_AGENTS/sessions/planned/2026-01-31-no-plan/worklog.md", "# Worklog\n");
    lab.git(&hand, &["push", "--quiet", "origin", "HEAD:main"]);
    let own = work(&lab.clone_named("ann"));
    let slug: Slug = "2026-01-31-no-plan".parse().expect("a slug");
    let rows = own.list(&own.see().expect("seen")).expect("listed");
    let note = rows[0].note.clone().unwrap_or_default();
    assert!(!rows[0].ready && note.contains("it has no SESSION.md: `sess work edit"), "{rows:?}");
    let checkup = own.doctor(false).expect("looked");
    assert_eq!(checkup.rows[0].next.as_deref(), Some("sess work edit 2026-01-31-no-plan"), "{checkup:?}");
    check(own.claim(&slug, &ClaimOptions::default()), Kind::WrongState, "sess work edit 2026-01-31-no-plan");
    // That command has something to begin with.
    let (before, text) = own.editable(&slug).expect("a plan to begin with");
    assert!(before.is_none() && text.contains("# Session: no plan"), "{text}");
    let text = text
        .replacen("_To be written._", "Because.", 1)
        .replace("## Acceptance Criteria\n\n_To be written._", "## Acceptance Criteria\n\n- [ ] It works");
    own.edit(&slug, None, &text).expect("written");
    assert_eq!(own.doctor(false).expect("looked").rows[0].next, None);
    own.claim(&slug, &ClaimOptions::default()).expect("claimed");
}

#[test]
fn a_plan_that_was_changed_by_hand_is_refused_until_it_is_amended() {
    let lab = Lab::new();
    let own = work(&lab.clone_named("ann"));
    let (slug, workspace) = claimed(&own, "Edited");
    let plan = format!("{}/SESSION.md", State::Active.dir_of(&slug));
    let text = fs::read_to_string(workspace.join(&plan)).expect("read");
    fs::set_permissions(workspace.join(&plan), fs::Permissions::from_mode(0o644)).expect("set");
    commit(&lab, &workspace, &plan, &format!("{text}\nIt does less.\n"));
    check(own.complete(&slug, None), Kind::Policy, &format!("sess work amend {slug}"));
    own.amend(&slug, None, "less is enough").expect("amended");
    own.complete(&slug, None).expect("completed");
    // A plan that cannot be read is no plan to claim.
    let broken = planned(&own, "Broken");
    let hand = lab.clone_named("hand");
    commit(&lab, &hand, &format!("{}/SESSION.md", State::Planned.dir_of(&broken)), "---\ndepends: [\n---\n");
    lab.git(&hand, &["push", "--quiet", "origin", "HEAD:main"]);
    check(own.claim(&broken, &ClaimOptions::default()), Kind::Usage, "sess work edit");
}

#[test]
fn clocks_an_hour_apart_cost_nobody_their_work() {
    fn ahead() -> Timestamp {
        Timestamp::from_millis_clamped(now().as_millis() + 3_600_000)
    }
    fn behind() -> Timestamp {
        Timestamp::from_millis_clamped(now().as_millis() - 3_600_000)
    }
    let lab = Lab::new();
    let with_clock = |dir: &Path, clock: fn() -> Timestamp| {
        let who = Who { agent: None, session: None, host: "host".to_owned(), pid: 1 };
        Work::new(Repo::find(dir).expect("a repository"), Settings::default(), who, clock).expect("a caller")
    };
    let ann = work(&lab.clone_named("ann"));
    let (slug, workspace) = claimed(&ann, "Clocks");
    let late = with_clock(&lab.clone_named("late"), behind);
    check(late.takeover(&slug, false, None, &ClaimOptions::default()), Kind::Claimed, "sess work takeover");
    commit(&lab, &workspace, "work.txt", "done\n");
    ann.heartbeat(&slug).expect("shared");
    let dir = lab.clone_named("early");
    let options = ClaimOptions::default();
    let early = with_clock(&dir, ahead);
    // By its clock the lease has lapsed, but it has not seen for long that nothing happens.
    let told = early.takeover(&slug, false, None, &options).expect_err("Ann is at work");
    assert!(told.to_string().contains("clocks differ"), "{told}");
    check(early.takeover(&slug, false, None, &options), Kind::Claimed, "sess work takeover");
    ann.note(&slug, Note::Log, "still here").expect("it is Ann's");
    let soon_after = with_clock(&dir, || Timestamp::from_millis_clamped(ahead().as_millis() + 900_000));
    check(soon_after.takeover(&slug, false, None, &options), Kind::Claimed, "sess work takeover");
    // Nothing happened for as long as the lease lasts, and what Ann shared is what it goes on with.
    let an_hour_later = with_clock(&dir, || Timestamp::from_millis_clamped(ahead().as_millis() + 3_800_000));
    let taken = an_hour_later.takeover(&slug, false, None, &options).expect("taken");
    assert_eq!(taken.record.claim.fence, 2);
    assert!(taken.workspace.expect("a workspace").join("work.txt").is_file());
    check(ann.note(&slug, Note::Log, "still here"), Kind::Claimed, &format!("sess work show {slug}"));
    assert!(workspace.join("work.txt").is_file());
    an_hour_later.complete(&slug, None).expect("completed");
}

#[test]
fn a_claim_that_is_dead_for_long_is_taken_at_once_by_a_clone_that_never_saw_it() {
    let lab = Lab::new();
    let ann = work(&lab.clone_named("ann"));
    let (dead, _) = claimed(&ann, "Dead");
    let with_clock = |dir: &Path, clock: fn() -> Timestamp| {
        let who = Who { agent: None, session: None, host: "host".to_owned(), pid: 1 };
        Work::new(Repo::find(dir).expect("a repository"), Settings::default(), who, clock).expect("a caller")
    };
    let bob = lab.clone_named("bob");
    work(&bob).see().expect("seen");
    let (lapsed, options): (fn() -> Timestamp, _) =
        (|| Timestamp::from_millis_clamped(now().as_millis() + 1_801_000), ClaimOptions::default());
    let carol = lab.clone_named("carol");
    check(
        with_clock(&carol, lapsed).takeover(&dead, false, None, &options),
        Kind::Claimed,
        "sess work takeover",
    );
    // Who saw it while it was alive has seen nothing of it for as long as its lease lasts.
    let taken = with_clock(&bob, lapsed).takeover(&dead, false, None, &options).expect("taken");
    assert_eq!(taken.record.claim.fence, 2);
    let (dead, _) = claimed(&ann, "Dead, too");
    let late = || Timestamp::from_millis_clamped(now().as_millis() + 5_401_000);
    let taken = with_clock(&carol, late).takeover(&dead, false, None, &options).expect("taken");
    assert_eq!(taken.record.claim.fence, 2);
}

#[test]
fn commits_that_nobody_shared_are_a_sign_of_life() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let session = |name: &str, clock: fn() -> Timestamp| {
        let (host, session) = ("host".to_owned(), Some(name.to_owned()));
        let who = Who { agent: None, session, host, pid: 1 };
        Work::new(Repo::find(&dir).expect("a repository"), Settings::default(), who, clock).expect("a caller")
    };
    // It was claimed an hour ago, and is committed to now.
    let long_ago = || Timestamp::from_millis_clamped(now().as_millis() - 3_600_000);
    let one = session("one", long_ago);
    let slug = planned(&one, "Alive");
    let options = ClaimOptions::default();
    let workspace = one.claim(&slug, &options).expect("claimed").workspace.expect("a workspace");
    commit(&lab, &workspace, "work.txt", "done\n");
    let two = session("two", now);
    let told = two.takeover(&slug, false, None, &options).expect_err("somebody is at work");
    assert_eq!(told.kind, Kind::WouldLoseWork, "{told}");
    assert!(told.to_string().contains("newer than its lease"), "{told}");
}

#[test]
fn a_full_disk_is_told_and_leaves_the_session_as_it_was() {
    let lab = Lab::new();
    let mount = lab.path().join("small");
    fs::create_dir(&mount).expect("made");
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "none"]).arg(&mount).output();
    if !mounted.is_ok_and(|ended| ended.status.success()) {
        // Only an administrator can make a disk that is full.
        return;
    }
    let _unmount = Unmount(mount.clone());
    lab.git(lab.path(), &["clone", "--quiet", "hub.git", "small/clone"]);
    let dir = mount.join("clone");
    lab.git(&dir, &["config", "user.name", "Small"]);
    lab.git(&dir, &["config", "user.email", "small@example.com"]);
    let own = work(&dir);
    let (slug, workspace) = claimed(&own, "Full");
    commit(&lab, &workspace, "work.txt", "done\n");
    let mut filler = fs::File::create(mount.join("filler")).expect("made");
    while filler.write_all(&[7; 4_096]).is_ok() {}
    drop(filler);
    let refused = own.complete(&slug, None).expect_err("nothing can be written");
    assert_eq!(refused.kind, Kind::Failed, "{refused}");
    assert!(refused.to_string().contains("disk is full"), "{refused}");
    assert!(refused.to_string().contains("; run `"), "{refused}");
    fs::remove_file(mount.join("filler")).expect("removed");
    own.complete(&slug, None).expect("completed");
    assert_eq!(lab.files("main", "work.txt"), ["work.txt"]);
}

struct Unmount(PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn line_endings_of_windows_are_no_changes() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    lab.git(&dir, &["config", "core.autocrlf", "true"]);
    let own = work(&dir);
    let draft = Draft { title: "Windows".to_owned(), ..Draft::default() };
    let plan = "---\r\nlabels: [a]\r\n---\r\n# Windows\r\n\r\n## Context\r\n\r\nc\r\n\r\n## Acceptance Criteria\r\n\r\n- [ ] a\r\n";
    let slug = own.draft(None, &draft, Some(plan)).expect("drafted");
    own.ready(&slug).expect("ready");
    let workspace =
        own.claim(&slug, &ClaimOptions::default()).expect("claimed").workspace.expect("a workspace");
    let env = workspace.join(State::Active.dir_of(&slug)).join(".session-env");
    let env = fs::read_to_string(env).expect("read");
    assert!(env.contains(slug.as_str()) && !env.contains('\r'), "a shell reads it: {env:?}");
    assert_eq!(lab.git(&workspace, &["status", "--porcelain"]), "");
    own.note(&slug, Note::Log, "one\r\ntwo").expect("logged");
    commit(&lab, &workspace, "work.txt", "one\r\ntwo\r\n");
    own.complete(&slug, Some("Done.\r\nReally.")).expect("completed");
    assert_eq!(lab.files("main", "work.txt"), ["work.txt"]);
}

#[test]
fn a_file_where_a_directory_is_needed_is_not_written_over() {
    for (file, is_link) in [("_AGENTS", false), ("_AGENTS", true), ("_AGENTS/sessions", false)] {
        let lab = Lab::new();
        let dir = lab.clone_named("ann");
        match is_link {
            true => {
                std::os::unix::fs::symlink("elsewhere", dir.join(file)).expect("linked");
                lab.git(&dir, &["add", file]);
                lab.git(&dir, &["commit", "--quiet", "-m", "a link"]);
            }
            false => commit(&lab, &dir, file, "precious\n"),
        }
        lab.git(&dir, &["push", "--quiet", "origin", "HEAD:main"]);
        let (own, before) = (work(&dir), lab.git(&lab.hub(), &["rev-parse", "main"]));
        check(
            own.init(&InitOptions { hooks: true, scripts: false }),
            Kind::WouldLoseWork,
            &format!("git mv {file} "),
        );
        let draft = Draft { title: "New".to_owned(), ..Draft::default() };
        check(own.draft(None, &draft, None), Kind::WouldLoseWork, &format!("git mv {file} "));
        assert_eq!(lab.git(&lab.hub(), &["rev-parse", "main"]), before, "{file}");
    }
}

#[test]
fn a_branch_that_leaves_no_room_is_named_before_anything_is_taken() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let own = work(&dir);
    let slug = planned(&own, "No room");
    lab.git(&dir, &["branch", "session"]);
    let claim = || own.claim(&slug, &ClaimOptions::default());
    check(claim(), Kind::WrongState, "git branch -m session ");
    assert_eq!(own.see().expect("seen").standing(&slug).holder(), None, "nobody waits for it");
    lab.git(&dir, &["branch", "-m", "session", "other"]);
    lab.git(&dir, &["push", "--quiet", "origin", "other:refs/heads/session"]);
    claim().expect("claimed");
    check(own.note(&slug, Note::Log, "done"), Kind::Rejected, "git fetch origin session && git push origin ");
}

#[test]
fn a_path_with_spaces_and_letters_of_any_language_is_a_path() {
    let lab = Lab::new();
    let dir = lab.clone_named("Ann's \u{fc}n\u{ef}code \u{5de5}\u{4f5c} $(touch x)");
    let own = work(&dir);
    own.init(&InitOptions { hooks: true, scripts: false }).expect("set up");
    let slug = live(&lab, &own);
    let outside = lab.path().join("work spaces \u{1f642}");
    let own = work_with(&dir, Settings { workspaces: Some(outside.clone()), ..Settings::default() });
    let (other, workspace) = claimed(&own, "Outside");
    assert!(workspace.starts_with(&outside));
    own.complete(&other, None).expect("completed");
    assert_ne!(slug, other);
    assert!(!lab.path().join("x").exists());
}

#[test]
fn a_hostile_name_runs_nothing_and_breaks_no_line() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let name = "O'Brien \"; $(touch ran) `touch ran` \\ ${HOME}\nClaim: forged (x)";
    lab.git(&dir, &["config", "user.name", name]);
    lab.git(&dir, &["config", "user.email", "a'$(touch ran)@x\nSession: forged"]);
    let own = work(&dir);
    let (slug, workspace) = claimed(&own, "Named");
    let env = workspace.join(State::Active.dir_of(&slug)).join(".session-env");
    let told = Command::new("sh")
        .args(["-c", ". \"$0\"; printf '%s|%s' \"$GIT_AUTHOR_NAME\" \"$GIT_COMMITTER_EMAIL\""])
        .arg(&env)
        .current_dir(&workspace)
        .output()
        .expect("sh runs");
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.starts_with("O'Brien \"; $(touch ran) `touch ran` \\ ${HOME}"), "{told}");
    assert!(told.contains(&format!("({slug})|")), "{told}");
    assert!(!workspace.join("ran").exists() && !dir.join("ran").exists());
    own.note(&slug, Note::Log, "x\nClaim: forged").expect("logged");
    own.complete(&slug, None).expect("completed");
    let trailers = lab.git(&lab.hub(), &["log", "-1", "--format=%(trailers:key=Claim,valueonly)", "main"]);
    assert!(!trailers.contains("forged") && trailers.trim().len() == 40, "{trailers}");
}

/// Has these bytes for templates where everybody finds them, and a session that was planned before.
fn with_templates(lab: &Lab, names: &[&str], bytes: &[u8]) -> (Work, Slug) {
    let (own, hand) = (work(&lab.clone_named("ann")), lab.clone_named("hand"));
    let slug = planned(&own, "Before");
    lab.git(&hand, &["pull", "--quiet"]);
    let dir = hand.join("_AGENTS/sessions/_templates");
    fs::create_dir_all(&dir).expect("made");
    for name in names {
        fs::write(dir.join(name), bytes).expect("written");
    }
    lab.git(&hand, &["add", "."]);
    lab.git(&hand, &["commit", "--quiet", "-m", "templates"]);
    lab.git(&hand, &["push", "--quiet", "origin", "HEAD:main"]);
    (own, slug)
}

#[test]
fn a_template_that_does_not_parse_is_named_and_stops_no_claim() {
    let lab = Lab::new();
    let names = ["SESSION.md.j2", "session-env.template.j2", "kb-merge-SESSION.md.j2"];
    let (own, slug) = with_templates(&lab, &names, b"{% if %}\n{{ SESSION_SLUG");
    let draft = Draft { title: "After".to_owned(), ..Draft::default() };
    let told = check(
        own.draft(None, &draft, None),
        Kind::Failed,
        "git log -1 -- _AGENTS/sessions/_templates/SESSION.md.j2",
    );
    assert!(told.contains("in line 1"), "{told}");
    let claim = own.claim(&slug, &ClaimOptions::default()).expect("claimed");
    let [told] = &claim.notices[..] else { panic!("{:?}", claim.notices) };
    assert!(
        told.starts_with("the template session-env.template.j2 is left out, and the built-in one used"),
        "{told}"
    );
    own.note(&slug, Note::Learning, "templates break").expect("learned");
    check(
        own.complete(&slug, None),
        Kind::Failed,
        "git log -1 -- _AGENTS/sessions/_templates/kb-merge-SESSION.md.j2",
    );
    assert_eq!(own.see().expect("seen").tree.state(&slug), Some(State::Active));
}

#[test]
fn a_template_that_is_no_text_is_named_like_one_that_does_not_parse() {
    for (le, mark) in [(true, true), (false, true), (true, false)] {
        let lab = Lab::new();
        let text = "# Session: {{ TITLE }}\n\n## Context\n\n{{ CONTEXT }}\n";
        let units = mark.then_some(0xfeff).into_iter().chain(text.encode_utf16());
        let bytes = |unit: u16| if le { unit.to_le_bytes() } else { unit.to_be_bytes() };
        let bytes: Vec<u8> = units.flat_map(bytes).collect();
        let names = ["SESSION.md.j2", "session-env.template.j2"];
        let (own, slug) = with_templates(&lab, &names, &bytes);
        let draft = Draft { title: "After".to_owned(), ..Draft::default() };
        let told = check(
            own.draft(None, &draft, None),
            Kind::Failed,
            "git log -1 -- _AGENTS/sessions/_templates/SESSION.md.j2",
        );
        assert!(told.contains("SESSION.md.j2 cannot be used: it is not UTF-8 text"), "{told}");
        let claim = own.claim(&slug, &ClaimOptions::default()).expect("claimed");
        let [told] = &claim.notices[..] else { panic!("{:?}", claim.notices) };
        assert!(told.contains("session-env.template.j2 is left out") && told.contains("UTF-8"), "{told}");
    }
}

#[test]
fn whoever_git_does_not_know_may_look_and_is_asked_for_a_name_to_do_more() {
    for name in ["", " ", "<>"] {
        let lab = Lab::new();
        let dir = lab.clone_named("ann");
        let (slug, workspace) = claimed(&work(&dir), "Nameless");
        let ready = planned(&work(&dir), "Ready");
        lab.git(&dir, &["config", "user.name", name]);
        let own = work(&workspace);
        let seen = own.see().expect("seen");
        assert_eq!(own.list(&seen).expect("listed").len(), 2);
        assert!(own.status(&slug).is_ok() && own.drift(&slug).is_ok());
        assert_eq!(own.doctor(false).expect("checked").findings, Vec::<String>::new());
        let before = lab.git(&lab.hub(), &["for-each-ref"]);
        let draft = Draft { title: "New".to_owned(), ..Draft::default() };
        for refused in [
            own.draft(None, &draft, None).map(drop),
            own.claim(&ready, &ClaimOptions::default()).map(drop),
            own.note(&slug, Note::Log, "done").map(drop),
            own.heartbeat(&slug).map(drop),
            own.check_own(&slug),
            own.unready(&ready),
            own.release(&slug, None).map(drop),
            own.complete(&slug, None).map(drop),
            own.init(&InitOptions { hooks: false, scripts: true }).map(drop),
        ] {
            check(refused, Kind::WrongState, "git config user.name ");
        }
        assert_eq!(lab.git(&lab.hub(), &["for-each-ref"]), before, "{name:?}");
        assert_eq!(lab.git(&dir, &["log", "-1", "--format=%an", &slug.branch()]), "User ann");
    }
}

#[test]
fn where_no_workspace_can_be_made_nothing_is_claimed() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let own = work(&dir);
    let (slug, options) = (planned(&own, "No place"), ClaimOptions::default());
    let place = dir.join(".sessions");
    let refused = |next: &str| {
        let told = check(own.claim(&slug, &options), Kind::WouldLoseWork, next);
        assert!(told.contains(&place.display().to_string()), "{told}");
        check(own.claim_next(None, &options), Kind::WouldLoseWork, next);
        let findings = own.doctor(false).expect("checked").findings;
        assert!(findings.iter().any(|finding| finding.contains(&format!("run `{next}"))), "{findings:?}");
        assert_eq!(own.see().expect("seen").standing(&slug).holder(), None, "nobody waits for it");
    };
    fs::write(&place, "mine\n").expect("written");
    refused(&format!("mv {} ", place.display()));
    fs::remove_file(&place).expect("removed");
    fs::create_dir(&place).expect("made");
    fs::set_permissions(&place, fs::Permissions::from_mode(0o500)).expect("set");
    // An administrator may write everywhere.
    if fs::write(place.join("probe"), "").is_err() {
        refused(&format!("chmod u+wx {}", place.display()));
    }
    fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).expect("set");
    own.claim(&slug, &options).expect("claimed");
}

#[test]
fn a_remote_that_was_renamed_here_is_named_with_what_helps() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let slug = planned(&work(&dir), "Renamed");
    lab.git(&dir, &["config", "intersession.remote", "origin"]);
    lab.git(&dir, &["remote", "rename", "origin", "upstream"]);
    let error = work(&dir).claim(&slug, &ClaimOptions::default()).expect_err("nobody is called that");
    assert_eq!(error.kind, Kind::Unreachable, "{error}");
    assert_eq!(error.message(), "this clone has no remote called origin any more");
    assert_eq!(error.next_command(), "git config intersession.remote upstream");
    lab.git(&dir, &["config", "intersession.remote", "upstream"]);
    work(&dir).claim(&slug, &ClaimOptions::default()).expect("claimed");
}
