//! Setting a repository up, its hooks, and leaving it as it was.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use sess_work::{ClaimOptions, InitOptions, Kind, Slug, State, Work};

use crate::lab::{Lab, bare, planned, work, work_with};

const ALL: InitOptions = InitOptions { hooks: true, scripts: true };

fn write(path: &Path, text: &str, mode: u32) {
    fs::create_dir_all(path.parent().expect("a directory")).expect("made");
    fs::write(path, text).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
}

fn refuses_in_hub(lab: &Lab, pattern: &str) {
    let hook = format!(
        "#!/bin/sh\nwhile read old new ref; do case $ref in {pattern}) echo 'not here' >&2; exit 1;; esac; done\n"
    );
    write(&lab.hub().join("hooks/pre-receive"), &hook, 0o755);
}

/// Commits in a checkout as a person does, with a `sess` of this text on the path.
fn commit(dir: &Path, bin: &Path, message: &str) -> Output {
    Command::new("git")
        .args(["commit", "--quiet", "--allow-empty", "-m", message])
        .current_dir(dir)
        .env("PATH", format!("{}:/usr/bin:/bin", bin.display()))
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .expect("git runs")
}

fn claimed(lab: &Lab, work: &Work, title: &str) -> (Slug, PathBuf) {
    let slug = planned(work, title);
    let workspace =
        work.claim(&slug, &ClaimOptions::default()).expect("claimed").workspace.expect("a workspace");
    lab.git(&workspace, &["status"]);
    (slug, workspace)
}

#[test]
fn init_lays_the_tree_once_and_touches_no_checkout() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let before = (lab.git(&dir, &["rev-parse", "HEAD"]), lab.git(&dir, &["status", "--porcelain"]));
    let own = work(&dir);
    let report = own.init(&ALL).expect("set up");
    assert_eq!(report.notices, Vec::<String>::new());
    let files = lab.git(&lab.hub(), &["ls-tree", "-r", "main", "--", "_AGENTS"]);
    for line in [
        "_AGENTS/knowledge/README.md",
        "_AGENTS/sessions/SESSIONS-README.md",
        "_AGENTS/sessions/SESSIONS-REFERENCE.md",
        "_AGENTS/sessions/abandoned/.gitkeep",
        "_AGENTS/sessions/planned/.gitkeep",
        "_AGENTS/sessions/sessions.lock",
    ] {
        assert!(files.contains(line), "{line} in {files}");
    }
    assert!(
        files.lines().any(|line| line.starts_with("100755") && line.ends_with("_bin/claim-session")),
        "{files}"
    );
    assert_eq!(lab.git(&lab.hub(), &["rev-list", "--count", "main"]), "2");
    assert_eq!(lab.git(&lab.hub(), &["for-each-ref", "refs/intersession"]), "");
    assert_eq!((lab.git(&dir, &["rev-parse", "HEAD"]), lab.git(&dir, &["status", "--porcelain"])), before);
    assert_eq!(lab.git(&dir, &["config", "intersession.base"]), "main");
    assert_eq!(lab.git(&dir, &["config", "intersession.remote"]), "origin");

    let again = work(&dir).init(&ALL).expect("again");
    assert_eq!((again.changed, again.notices), (vec![], vec![]));
    assert_eq!(lab.git(&lab.hub(), &["rev-list", "--count", "main"]), "2");
    // Nobody is told of sessions that are none.
    assert_eq!(own.see().expect("seen").tree.odd, Vec::<String>::new());
    assert_eq!(own.doctor(false).expect("well").findings, Vec::<String>::new());
}

#[test]
fn a_host_that_takes_only_branches_gets_claims_as_branches() {
    let lab = Lab::new();
    refuses_in_hub(&lab, "refs/intersession/*");
    let (ann, bob) = (lab.clone_named("ann"), lab.clone_named("bob"));
    let slug = planned(&work(&ann), "Only branches");
    let refused = work(&ann).claim(&slug, &ClaimOptions::default()).expect_err("no such refs");
    assert_eq!(refused.kind, Kind::Rejected);
    assert!(refused.to_string().contains("not here"), "{refused}");
    assert!(refused.to_string().ends_with("run `sess work init`"), "{refused}");
    let report = work(&ann).init(&ALL).expect("set up");
    assert!(
        report.notices.iter().any(|notice| notice.contains("refs/heads/intersession-claims")),
        "{report:?}"
    );
    assert_eq!(lab.git(&ann, &["config", "intersession.claims"]), "refs/heads/intersession-claims");
    work(&bob).init(&ALL).expect("set up");
    work(&ann).claim(&slug, &ClaimOptions::default()).expect("claimed");
    let taken = work(&bob).claim(&slug, &ClaimOptions::default()).expect_err("it is Ann's");
    assert_eq!(taken.kind, Kind::Claimed);
    work(&ann).complete(&slug, None).expect("completed");
    // An abandoned attempt is set aside on such a host, too.
    let (other, _) = claimed(&lab, &work(&ann), "Another");
    work(&ann).abandon(&other, "no").expect("abandoned");
    assert_eq!(work(&bob).retry(&other).expect("planned anew"), 2);
}

#[test]
fn a_claim_that_no_place_takes_is_not_sent_to_init_in_a_circle() {
    let lab = Lab::new();
    refuses_in_hub(&lab, "refs/intersession/*");
    let own = work(&lab.clone_named("ann"));
    own.init(&ALL).expect("set up");
    let slug = planned(&own, "Only read");
    refuses_in_hub(&lab, "*");
    own.init(&ALL).expect("there is nothing to do");
    let refused = own.claim(&slug, &ClaimOptions::default()).expect_err("nothing is taken");
    assert_eq!(refused.kind, Kind::Rejected);
    assert!(refused.message().contains("ask whoever keeps it"), "{refused}");
    assert_eq!(refused.next_command(), "git config intersession.remote <remote>");
}

#[test]
fn a_host_that_is_closed_for_a_while_takes_claims_as_refs_of_their_own_afterwards() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let hook = lab.hub().join("hooks/pre-receive");
    write(&hook, "#!/bin/sh\necho 'closed for maintenance' >&2; exit 1\n", 0o755);
    let refused = work(&dir).init(&ALL).expect_err("nothing is taken");
    assert_eq!(refused.kind, Kind::Rejected);
    assert!(refused.message().contains("closed for maintenance"), "{refused}");
    assert!(refused.message().contains("ask whoever keeps it"), "{refused}");
    assert_eq!(refused.next_command(), "sess work init");
    write(&hook, "#!/bin/sh\necho 'Permission to write denied to ann' >&2; exit 1\n", 0o755);
    let refused = work(&dir).init(&ALL).expect_err("nothing is taken");
    assert!(refused.message().contains("does not let you write"), "{refused}");
    assert_eq!(refused.next_command(), "git config intersession.remote <remote>");
    fs::remove_file(&hook).expect("removed");
    // What somebody left who tried it by hand says nothing about the place of claims.
    lab.git(&dir, &["push", "--quiet", "origin", "HEAD:refs/heads/intersession-claims/probe"]);
    work(&dir).init(&ALL).expect("set up");
    let (slug, _) = claimed(&lab, &work(&dir), "Reopened");
    let refs =
        lab.git(&lab.hub(), &["for-each-ref", "--format=%(refname)", "refs/heads", "refs/intersession"]);
    assert!(refs.contains(&format!("refs/intersession/claims/{slug}")), "{refs}");
    assert!(!refs.contains("intersession-here"), "{refs}");
    let known = lab.git(&dir, &["config", "--get-regexp", "intersession.*"]);
    assert!(!known.contains("claims"), "{known}");
    assert_eq!(work(&dir).doctor(false).expect("well").findings, Vec::<String>::new());
}

#[test]
fn nothing_is_left_on_a_host_that_takes_what_it_shows_nobody() {
    let lab = Lab::new();
    lab.git(&lab.hub(), &["config", "uploadpack.hideRefs", "refs/intersession"]);
    let own = work(&lab.clone_named("ann"));
    let report = own.init(&ALL).expect("set up");
    assert!(report.notices[0].contains("refs/heads/intersession-claims"), "{report:?}");
    assert_eq!(lab.git(&lab.hub(), &["for-each-ref", "refs/intersession"]), "");
    claimed(&lab, &own, "Shown");
}

#[test]
fn a_host_that_takes_no_log_is_told_and_the_work_lands_all_the_same() {
    let lab = Lab::new();
    refuses_in_hub(&lab, "refs/intersession/log");
    let own = work(&lab.clone_named("ann"));
    let (slug, _) = claimed(&lab, &own, "Unlogged");
    own.complete(&slug, None).expect("completed");
    let refused = own.gc(false).expect_err("the log is not taken");
    assert_eq!(refused.kind, Kind::Rejected);
    assert!(refused.message().starts_with("origin does not take the log of ended claims: "), "{refused}");
    assert_eq!(refused.next_command(), "git remote -v", "the same again would be refused again");
}

#[test]
fn a_protected_base_is_told_with_what_to_set() {
    let lab = Lab::new();
    refuses_in_hub(&lab, "refs/heads/main");
    let dir = lab.clone_named("ann");
    let report = work(&dir).init(&InitOptions { hooks: false, scripts: false }).expect("set up");
    assert!(
        report.notices.iter().any(|notice| notice.contains("`land: pr`") && notice.contains("not here")),
        "{report:?}"
    );
    assert_eq!(lab.git(&dir, &["config", "intersession.base"]), "main");
    assert!(!dir.join(".git/hooks/commit-msg").exists());
}

#[test]
fn without_a_remote_it_says_so_and_the_checkout_follows() {
    let lab = Lab::new();
    let dir = lab.clone_named("alone");
    lab.git(&dir, &["remote", "remove", "origin"]);
    let report = work(&dir).init(&ALL).expect("set up");
    assert!(report.notices.iter().any(|notice| notice.contains("no remote")), "{report:?}");
    assert!(dir.join("_AGENTS/sessions/planned/.gitkeep").is_file());
    assert_eq!(lab.git(&dir, &["status", "--porcelain"]), "");
    assert_eq!(work(&dir).init(&ALL).expect("again").changed, Vec::<String>::new());
    // A remote that comes later is no reason to look for claims elsewhere, unless somebody says so.
    lab.git(&dir, &["remote", "add", "origin", "../hub.git"]);
    let report = work(&dir).init(&ALL).expect("again");
    assert!(report.notices[0].contains("git config intersession.remote origin"), "{report:?}");
    assert_eq!(work(&dir).repo().remote(), None);
}

#[test]
fn hooks_are_chained_and_restored_byte_for_byte() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let hooks = dir.join(".git/hooks");
    let theirs = "#!/bin/sh\n# Theirs \u{e9}\necho \"theirs $*\" >> \"$(git rev-parse --git-common-dir)/seen\"\n[ ! -e \"$(git rev-parse --git-common-dir)/no\" ]\n";
    write(&hooks.join("commit-msg"), theirs, 0o750);
    write(&dir.join(".git/info/exclude"), "# mine\n*.o\n", 0o644);
    let config = fs::read(dir.join(".git/config")).expect("read");
    let own = work(&dir);
    own.init(&ALL).expect("set up");
    assert_eq!(own.init(&ALL).expect("again").changed, Vec::<String>::new());

    let bin = lab.path().join("bin");
    write(
        &bin.join("sess"),
        "#!/bin/sh\necho \"sess $*\" >> \"$(git rev-parse --git-common-dir)/seen\"\n",
        0o755,
    );
    assert!(commit(&dir, &bin, "one").status.success());
    let seen = fs::read_to_string(dir.join(".git/seen")).expect("read");
    assert!(seen.contains("theirs .git/COMMIT_EDITMSG\n"), "{seen}");
    assert!(seen.contains("sess work hook commit-msg .git/COMMIT_EDITMSG\n"), "{seen}");
    assert!(seen.contains("sess work hook pre-commit .git/index\n"), "{seen}");
    lab.git(&dir, &["branch", "elsewhere"]);
    let pushed = Command::new("git")
        .args(["push", "--quiet", "origin", "elsewhere"])
        .current_dir(&dir)
        .env("PATH", format!("{}:/usr/bin:/bin", bin.display()))
        .status();
    assert!(pushed.expect("git runs").success());
    let seen = fs::read_to_string(dir.join(".git/seen")).expect("read");
    assert!(seen.contains("sess work hook pre-push origin "), "{seen}");
    assert!(seen.trim_end().ends_with("hub.git refs/heads/elsewhere"), "{seen}");

    // What theirs refuses is refused, and what ours refuses.
    write(&dir.join(".git/no"), "", 0o644);
    assert!(!commit(&dir, &bin, "two").status.success());
    fs::remove_file(dir.join(".git/no")).expect("removed");
    write(&bin.join("sess"), "#!/bin/sh\nexit 8\n", 0o755);
    assert!(!commit(&dir, &bin, "three").status.success());
    // Without the program the commit passes, with a warning.
    fs::remove_file(bin.join("sess")).expect("removed");
    let ended = commit(&dir, &bin, "four");
    assert!(ended.status.success());
    let words = String::from_utf8_lossy(&ended.stderr);
    assert!(words.contains("warning: sess is not on PATH"), "{words}");

    let done = own.uninstall().expect("removed").changed;
    assert!(done.iter().any(|line| line.contains("commit-msg")), "{done:?}");
    assert_eq!(fs::read_to_string(hooks.join("commit-msg")).expect("read"), theirs);
    assert_eq!(fs::metadata(hooks.join("commit-msg")).expect("there").permissions().mode() & 0o777, 0o750);
    let left: Vec<String> = fs::read_dir(&hooks)
        .expect("read")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
        .filter(|name| !name.ends_with(".sample"))
        .collect();
    assert_eq!(left, ["commit-msg"]);
    assert_eq!(fs::read_to_string(dir.join(".git/info/exclude")).expect("read"), "# mine\n*.o\n");
    assert_eq!(fs::read(dir.join(".git/config")).expect("read"), config);
    assert!(!dir.join(".git/intersession").exists());
    assert_eq!(lab.git(&dir, &["for-each-ref", "refs/intersession"]), "");
}

#[test]
fn a_directory_of_hooks_that_somebody_chose_is_respected() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    lab.git(&dir, &["config", "core.hooksPath", "own hooks"]);
    work(&dir).init(&ALL).expect("set up");
    assert!(dir.join("own hooks/pre-commit").is_file());
    assert!(!dir.join(".git/hooks/pre-commit").exists());
    work(&dir).uninstall().expect("removed");
    assert!(!dir.join("own hooks/pre-commit").exists());

    // One that is committed is everybody's.
    write(&dir.join("own hooks/pre-commit"), "#!/bin/sh\n", 0o755);
    lab.git(&dir, &["add", "."]);
    let report = work(&dir).init(&ALL).expect("set up");
    assert!(report.notices.iter().any(|notice| notice.contains("which git tracks")), "{report:?}");
    assert_eq!(fs::read_to_string(dir.join("own hooks/pre-commit")).expect("read"), "#!/bin/sh\n");
}

#[test]
fn uninstalling_is_refused_while_a_session_is_held_with_a_workspace() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let own = work(&dir);
    own.init(&ALL).expect("set up");
    let (slug, workspace) = claimed(&lab, &own, "Hold it");
    let refused = own.uninstall().expect_err("it would lose its owner");
    assert_eq!(refused.kind, Kind::WouldLoseWork);
    assert!(refused.to_string().ends_with(&format!("run `sess work release {slug}`")), "{refused}");
    assert!(dir.join(".git/hooks/commit-msg").exists() && workspace.exists());
    own.release(&slug, None).expect("given back");
    // What stays is named, with what removes it; and that removes it.
    let stays = own.uninstall().expect("removed").notices;
    assert!(stays.iter().any(|line| line.contains("_AGENTS/ stays on main")), "{stays:?}");
    assert!(!dir.join(".sessions").exists());
    let commands: Vec<&str> = stays
        .iter()
        .filter(|line| !line.contains("_AGENTS/"))
        .filter_map(|line| line.split('`').nth(1))
        .collect();
    assert!(commands.iter().any(|command| command.starts_with("git branch -D ")), "{stays:?}");
    for command in commands {
        let ended = Command::new("sh").args(["-c", command]).current_dir(&dir).output().expect("sh starts");
        assert!(ended.status.success(), "{command}: {ended:?}");
    }
    assert_eq!(lab.git(&dir, &["for-each-ref", "refs/intersession", "refs/heads/session"]), "");
}

#[test]
fn uninstalling_is_refused_while_a_session_is_held_without_a_workspace() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let own = work(&dir);
    own.init(&ALL).expect("set up");
    let never = planned(&own, "Never had one");
    own.claim(&never, &bare()).expect("claimed");
    let (removed, workspace) = claimed(&lab, &own, "Removed");
    lab.git(&dir, &["worktree", "remove", &workspace.to_string_lossy()]);
    let handed_over = planned(&own, "Waits");
    let settings = sess_work::Settings { land: sess_work::Land::Pr, ..sess_work::Settings::default() };
    let by_request = work_with(&dir, settings);
    by_request.claim(&handed_over, &bare()).expect("claimed");
    by_request.complete(&handed_over, None).expect("handed over");
    for (first, others, next) in [
        (&never, vec![&removed, &handed_over], "release"),
        (&removed, vec![&handed_over], "release"),
        (&handed_over, vec![], "status"),
    ] {
        let refused = own.uninstall().expect_err("it would be nobody's");
        assert_eq!(refused.kind, Kind::WouldLoseWork);
        assert!(refused.message().starts_with(&format!("{first} ")), "{refused}");
        for other in others {
            assert!(refused.message().contains(other.as_str()), "{refused}");
        }
        assert_eq!(refused.next_command(), format!("sess work {next} {first}"));
        assert!(dir.join(".git/hooks/commit-msg").exists());
        own.release(first, None).expect("it is this clone's still");
    }
    own.uninstall().expect("uninstalled");
}

#[test]
fn what_stays_after_uninstalling_is_removed_in_its_order_and_named_with_what_is_lost() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let own = work(&dir);
    let (slug, workspace) = claimed(&lab, &own, "Leave it");
    fs::write(workspace.join("work.txt"), "done\n").expect("written");
    lab.git(&workspace, &["add", "."]);
    lab.git(&workspace, &["commit", "--quiet", "-m", &format!("[{slug}] feat: work")]);
    // Somebody else goes on with it: the workspace here is nobody's.
    let bob = work(&lab.clone_named("bob"));
    bob.takeover(&slug, true, Some("Ann leaves"), &ClaimOptions::default()).expect("taken");
    let apart = planned(&own, "Apart");
    let options = ClaimOptions { workspace: sess_work::Workspace::Clone, ..ClaimOptions::default() };
    let clone = own.claim(&apart, &options).expect("claimed").workspace.expect("a workspace");
    bob.takeover(&apart, true, Some("Ann leaves"), &ClaimOptions::default()).expect("taken");

    let stays = own.uninstall().expect("uninstalled").notices;
    let branch =
        stays.iter().find(|line| line.starts_with(&format!("the branch session/{slug} "))).expect("named");
    assert!(branch.contains("with a commit that is not on main"), "{branch}");
    assert!(workspace.is_dir() && clone.is_dir());
    let kept = fs::read_dir(dir.join(".git/worktrees").join(slug.as_str())).expect("git keeps it");
    let names = kept.map(|entry| entry.expect("read").file_name().into_string().expect("a name"));
    let own: Vec<String> = names.filter(|name| name.starts_with("intersession")).collect();
    assert_eq!(own, Vec::<String>::new(), "what stays is a worktree like any other");
    assert_eq!(lab.git(&dir, &["status", "--porcelain"]), "", "what stays is in nobody's way");
    for command in stays.iter().filter_map(|line| line.split('`').nth(1)) {
        if command.starts_with("sess ") || command.contains("_AGENTS") {
            continue;
        }
        let ended = Command::new("sh").args(["-c", command]).current_dir(&dir).output().expect("sh starts");
        assert!(ended.status.success(), "{command}: {ended:?}");
    }
    assert!(stays.iter().any(|line| line.contains("`sess work uninstall` removes both")), "{stays:?}");
    work(&dir).uninstall().expect("again");
    assert!(!dir.join(".sessions").exists());
    let excluded = fs::read_to_string(dir.join(".git/info/exclude")).expect("read");
    assert!(!excluded.contains(".sessions"), "{excluded}");
    assert_eq!(lab.git(&dir, &["for-each-ref", "refs/intersession", "refs/heads/session"]), "");
}

#[test]
fn a_commit_on_a_sessions_branch_is_checked() {
    let lab = Lab::new();
    let own = work(&lab.clone_named("ann"));
    let (slug, workspace) = claimed(&lab, &own, "Check it");
    let here = work(&workspace);
    let message = lab.path().join("message");
    let told = |text: &str| {
        fs::write(&message, text).expect("written");
        here.hook("commit-msg", &[message.display().to_string()])
    };
    told(&format!("[{slug}] feat: a\n")).expect("it names its session");
    let refused = told("feat: a\n").expect_err("it names none");
    assert_eq!(refused.kind, Kind::Policy);
    assert!(refused.to_string().contains(&format!("[{slug}] <type>: <description>")), "{refused}");
    // Elsewhere everybody commits as they like.
    own.hook("commit-msg", &[message.display().to_string()]).expect("no session's branch");

    let staged = |path: &str, text: &str| {
        let file = workspace.join(path);
        fs::create_dir_all(file.parent().expect("a directory")).expect("made");
        fs::remove_file(&file).ok();
        fs::write(&file, text).expect("written");
        lab.git(&workspace, &["add", "--force", path]);
        let ended = here.hook("pre-commit", &[]);
        lab.git(&workspace, &["reset", "--quiet", "--hard"]);
        ended
    };
    staged("src/a.rs", "fn a() {}\n").expect("work");
    staged(&format!("_AGENTS/knowledge/sessions/{slug}/learnings.md"), "- a\n").expect("its own learnings");
    let plan = format!("_AGENTS/sessions/active/{slug}/SESSION.md");
    let refused = staged(&plan, "# Another\n").expect_err("the plan is frozen");
    assert_eq!(refused.kind, Kind::Policy);
    assert!(refused.to_string().contains("sess work amend"), "{refused}");
    let refused = staged("_AGENTS/knowledge/a.md", "a\n").expect_err("it is no kb-merge session");
    assert_eq!(refused.kind, Kind::Policy);
    assert!(refused.to_string().contains("_AGENTS/knowledge/a.md"), "{refused}");

    // A commit of some files has another index.
    fs::create_dir_all(workspace.join("_AGENTS/knowledge")).expect("made");
    fs::write(workspace.join("_AGENTS/knowledge/b.md"), "b\n").expect("written");
    let index = lab.path().join("other-index");
    let added = Command::new("git")
        .args(["add", "_AGENTS/knowledge/b.md"])
        .current_dir(&workspace)
        .env("GIT_INDEX_FILE", &index)
        .status();
    assert!(added.expect("git runs").success());
    here.hook("pre-commit", &[]).expect("nothing is staged in the usual one");
    here.hook("pre-commit", &[index.display().to_string()]).expect_err("it is in the other");

    // A plan that was amended is the plan.
    let text = own.show(&slug, &own.see().expect("seen")).expect("shown").plan;
    own.amend(&slug, Some(&format!("{text}\nMore.\n")), "more is needed").expect("amended");
    here.hook("pre-commit", &[]).expect("amended");
    assert_eq!(here.hook("post-commit", &[]).expect_err("none of ours").kind, Kind::Usage);
}

#[test]
fn a_merge_of_the_base_may_bring_knowledge() {
    let lab = Lab::new();
    let own = work(&lab.clone_named("ann"));
    let (_, workspace) = claimed(&lab, &own, "Merge it");
    let other = lab.clone_named("other");
    write(&other.join("_AGENTS/knowledge/a.md"), "a\n", 0o644);
    lab.git(&other, &["add", "."]);
    lab.git(&other, &["commit", "--quiet", "-m", "know"]);
    lab.git(&other, &["push", "--quiet", "origin", "HEAD:main"]);
    lab.git(&workspace, &["fetch", "--quiet", "origin"]);
    lab.git(&workspace, &["merge", "--quiet", "--no-commit", "--no-ff", "origin/main"]);
    work(&workspace).hook("pre-commit", &[]).expect("it is the base's");
    fs::write(workspace.join("_AGENTS/knowledge/a.md"), "mine\n").expect("written");
    lab.git(&workspace, &["add", "."]);
    assert_eq!(work(&workspace).hook("pre-commit", &[]).expect_err("it is neither's").kind, Kind::Policy);
}

#[test]
fn knowledge_that_was_changed_all_the_same_can_be_put_back() {
    let lab = Lab::new();
    let first = lab.path().join("first");
    write(&first.join("_AGENTS/knowledge/known.md"), "known\n", 0o644);
    lab.git(&first, &["add", "."]);
    lab.git(&first, &["commit", "--quiet", "-m", "know"]);
    lab.git(&first, &["push", "--quiet", "origin", "HEAD:main"]);
    let own = work(&lab.clone_named("ann"));
    let (slug, workspace) = claimed(&lab, &own, "Put back");
    write(&workspace.join("_AGENTS/knowledge/known.md"), "mine\n", 0o644);
    write(&workspace.join("_AGENTS/knowledge/new one.md"), "mine\n", 0o644);
    lab.git(&workspace, &["add", "."]);
    let message = format!("[{slug}] feat: knowledge");
    lab.git(&workspace, &["commit", "--quiet", "--no-verify", "-m", &message]);
    let refused = own.complete(&slug, None).expect_err("it is no kb-merge session");
    assert_eq!(refused.kind, Kind::Policy, "{refused}");
    let here = work(&workspace);
    // Halfway is not back.
    write(&workspace.join("_AGENTS/knowledge/known.md"), "other\n", 0o644);
    lab.git(&workspace, &["add", "."]);
    here.hook("pre-commit", &[]).expect_err("it is neither's");
    lab.git(&workspace, &["reset", "--quiet", "--hard"]);
    let (restore, _) = refused.next_command().split_once(" && ").expect("two commands");
    let ended = Command::new("sh").args(["-c", restore]).status().expect("sh runs");
    assert!(ended.success(), "{restore}");
    here.hook("pre-commit", &[]).expect("it is the base's again");
    lab.git(&workspace, &["reset", "--quiet", "--hard"]);
    let ended = Command::new("sh").args(["-c", refused.next_command()]).status().expect("sh runs");
    assert!(ended.success(), "{refused}");
    own.complete(&slug, None).expect("completed");
}

#[test]
fn a_worker_who_lost_the_session_neither_commits_nor_pushes() {
    let lab = Lab::new();
    let (ann, bob) = (work(&lab.clone_named("ann")), work(&lab.clone_named("bob")));
    let (slug, workspace) = claimed(&lab, &ann, "Lose it");
    let here = work(&workspace);
    let push = ["origin".to_owned(), "url".to_owned(), format!("refs/heads/session/{slug}")];
    here.hook("pre-commit", &[]).expect("it is Ann's");
    here.hook("pre-push", &push).expect("it is Ann's");
    bob.takeover(&slug, true, Some("Ann is away"), &ClaimOptions::default()).expect("taken");
    // No network is asked: it is known with the next look.
    here.hook("pre-commit", &[]).expect("nobody told Ann's clone yet");
    ann.see().expect("seen");
    for refused in [here.hook("pre-commit", &[]), here.hook("pre-push", &push)] {
        let refused = refused.expect_err("it is Bob's");
        assert_eq!(refused.kind, Kind::Claimed);
        assert!(refused.to_string().contains("User bob"), "{refused}");
    }
    // What was done can be brought to safety.
    here.hook("pre-push", &["origin".to_owned(), "url".to_owned(), "refs/heads/rescued".to_owned()])
        .expect("elsewhere");
    let theirs = work(&bob.workspace(&slug).expect("a workspace"));
    theirs.hook("pre-commit", &[]).expect("it is Bob's");
    theirs.hook("pre-push", &push).expect("it is Bob's");
}

#[test]
fn a_checkout_that_one_session_after_another_is_worked_on_in_knows_whose_fence_it_has() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let own = work(&dir);
    let in_main = |slug: &Slug| {
        own.claim(slug, &bare()).expect("claimed");
        lab.git(&dir, &["fetch", "--quiet"]);
        lab.git(&dir, &["switch", "--quiet", &slug.branch()]);
    };
    let (first, second) = (planned(&own, "First"), planned(&own, "Second"));
    in_main(&first);
    let claimed = own.claim(&first, &ClaimOptions::default()).expect("it goes on");
    assert_eq!(claimed.workspace.as_deref(), Some(&*dir));
    own.complete(&first, None).expect("completed");
    lab.git(&dir, &["switch", "--quiet", "main"]);
    for _ in 0..2 {
        own.claim(&second, &bare()).expect("claimed");
        own.release(&second, None).expect("given back");
    }
    in_main(&second);
    let push = ["origin".to_owned(), "url".to_owned(), format!("refs/heads/session/{second}")];
    own.hook("pre-commit", &[]).expect("the fence that is there is the first one's");
    own.hook("pre-push", &push).expect("the fence that is there is the first one's");

    // One of its own, of a time before, is not that of now either.
    own.claim(&second, &ClaimOptions::default()).expect("it goes on");
    lab.git(&dir, &["switch", "--quiet", "main"]);
    own.release(&second, None).expect("given back");
    in_main(&second);
    own.hook("pre-commit", &[]).expect("it is the owner's again");
    lab.git(&dir, &["switch", "--quiet", "main"]);
    own.release(&second, None).expect("given back");
    let workspace = own.claim(&second, &ClaimOptions::default()).expect("claimed").workspace.expect("one");
    assert_ne!(workspace, dir);
    lab.git(&dir, &["worktree", "remove", &workspace.to_string_lossy()]);
    lab.git(&dir, &["switch", "--quiet", &second.branch()]);
    own.hook("pre-commit", &[]).expect("it is the owner's still");

    // And of one that counts, whoever has lost it is told.
    own.claim(&second, &ClaimOptions::default()).expect("it goes on");
    let bob = work(&lab.clone_named("bob"));
    bob.takeover(&second, true, Some("needed"), &bare()).expect("taken");
    own.see().expect("seen");
    assert_eq!(own.hook("pre-commit", &[]).expect_err("it is Bob's").kind, Kind::Claimed);
}

#[test]
fn a_fence_that_an_older_version_wrote_counts_where_it_can_only_be_one_sessions() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let (own, bob) = (work(&dir), work(&lab.clone_named("bob")));
    let (slug, workspace) = claimed(&lab, &own, "Made for it");
    let mark = dir.join(format!(".git/worktrees/{slug}/intersession-fence"));
    assert_eq!(fs::read_to_string(&mark).expect("a mark"), format!("1 {slug}\n"));
    fs::write(&mark, "1\n").expect("written");
    let here = work(&workspace);
    here.hook("pre-commit", &[]).expect("it is Ann's");
    bob.takeover(&slug, true, Some("needed"), &bare()).expect("taken");
    own.see().expect("seen");
    assert_eq!(here.hook("pre-commit", &[]).expect_err("it is Bob's").kind, Kind::Claimed);
    // In the main checkout it could be anybody's.
    let other = planned(&own, "Other");
    for _ in 0..2 {
        own.claim(&other, &bare()).expect("claimed");
        own.release(&other, None).expect("given back");
    }
    own.claim(&other, &bare()).expect("claimed");
    fs::write(dir.join(".git/intersession-fence"), "1\n").expect("written");
    lab.git(&dir, &["switch", "--quiet", &other.branch()]);
    own.hook("pre-commit", &[]).expect("it is Ann's");
}

#[test]
fn no_mark_of_a_session_is_left_by_uninstalling() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let own = work(&dir);
    let here = planned(&own, "Here");
    own.claim(&here, &bare()).expect("claimed");
    lab.git(&dir, &["switch", "--quiet", &here.branch()]);
    own.claim(&here, &ClaimOptions::default()).expect("it goes on");
    assert!(dir.join(".git/intersession-fence").is_file());
    own.complete(&here, None).expect("completed");
    lab.git(&dir, &["switch", "--quiet", "main"]);
    let apart = planned(&own, "Apart");
    let options = ClaimOptions { workspace: sess_work::Workspace::Clone, ..ClaimOptions::default() };
    let clone = own.claim(&apart, &options).expect("claimed").workspace.expect("a workspace");
    fs::write(clone.join("notes.txt"), "only here\n").expect("written");
    own.release(&apart, None).expect("given back");
    own.uninstall().expect("uninstalled");
    assert!(clone.join("notes.txt").is_file());
    for place in [&dir, &clone] {
        assert!(!place.join(".git/intersession-fence").exists(), "{}", place.display());
    }
}

#[test]
fn what_git_is_set_to_for_a_sessions_branch_goes_with_the_branch() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let before = fs::read(dir.join(".git/config")).expect("read");
    let own = work(&dir);
    let settings = |name: &str| {
        let told = lab.git(&dir, &["config", "--local", "--list", "--name-only"]);
        told.lines().filter(|line| line.starts_with(&format!("branch.{name}."))).count()
    };
    // One that stays where it was adopted, and one that has a workspace of its own.
    lab.git(&dir, &["switch", "--quiet", "-c", "mine", "--track", "origin/main"]);
    lab.git(&dir, &["commit", "--quiet", "--allow-empty", "-m", "begun"]);
    let adopted = own.adopt(None, None).expect("adopted").record.claim.slug;
    own.complete(&adopted, None).expect("completed");
    lab.git(&dir, &["switch", "--quiet", "main"]);
    assert_eq!(settings(&adopted.branch()), 2);
    own.gc(false).expect("cleaned up");
    assert_eq!(settings(&adopted.branch()), 0);
    let (slug, workspace) = claimed(&lab, &own, "Pushed");
    lab.git(&workspace, &["push", "--quiet", "--set-upstream", "origin", &slug.branch()]);
    own.complete(&slug, None).expect("completed");
    assert_eq!(settings(&slug.branch()), 0);
    own.uninstall().expect("uninstalled");
    assert_eq!(fs::read(dir.join(".git/config")).expect("read"), before);

    // What an older version left, and nothing of a branch that is there or that is nobody's session.
    let (slug, _) = claimed(&lab, &own, "Stays");
    own.release(&slug, None).expect("given back");
    let names = [slug.branch(), "session/2025-10-14-gone".to_owned(), "session/my own".to_owned()];
    for name in &names {
        lab.git(&dir, &["config", &format!("branch.{name}.remote"), "origin"]);
    }
    own.uninstall().expect("uninstalled");
    assert_eq!(names.map(|name| settings(&name)), [1, 0, 1]);
}

#[test]
fn a_clone_of_its_own_has_the_hooks_too() {
    let lab = Lab::new();
    let own = work(&lab.clone_named("ann"));
    own.init(&ALL).expect("set up");
    let slug = planned(&own, "Apart");
    let options = ClaimOptions { workspace: sess_work::Workspace::Clone, ..ClaimOptions::default() };
    let workspace = own.claim(&slug, &options).expect("claimed").workspace.expect("a workspace");
    assert!(workspace.join(".git/hooks/commit-msg").is_file());
    work(&workspace).hook("pre-commit", &[]).expect("it is its own");
}

#[test]
fn a_directory_of_hooks_that_is_named_from_the_top_works_in_workspaces_too() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    lab.git(&dir, &["config", "core.hooksPath", "own hooks"]);
    let theirs = "#!/bin/sh\necho theirs >> \"$(git rev-parse --git-common-dir)/seen\"\n";
    write(&dir.join("own hooks/pre-commit"), theirs, 0o755);
    let config = fs::read(dir.join(".git/config")).expect("read");
    let own = work(&dir);
    own.init(&ALL).expect("set up");
    assert_eq!(own.init(&ALL).expect("again").changed, Vec::<String>::new());
    let bin = lab.path().join("bin");
    write(&bin.join("sess"), "#!/bin/sh\necho \"$3\" >> \"$(git rev-parse --git-common-dir)/seen\"\n", 0o755);
    let (slug, workspace) = claimed(&lab, &own, "Hooked");
    for place in [&dir, &workspace] {
        fs::remove_file(dir.join(".git/seen")).ok();
        assert!(commit(place, &bin, "one").status.success());
        let seen = fs::read_to_string(dir.join(".git/seen")).expect("read");
        assert_eq!(seen, "theirs\npre-commit\ncommit-msg\n", "{}", place.display());
    }
    own.release(&slug, None).expect("given back");
    own.uninstall().expect("removed");
    assert_eq!(fs::read(dir.join(".git/config")).expect("read"), config);
    assert_eq!(fs::read_to_string(dir.join("own hooks/pre-commit")).expect("read"), theirs);
}

#[test]
fn what_lands_while_claims_move_to_another_place_has_landed() {
    for is_taken_meanwhile in [false, true] {
        let lab = Lab::new();
        let (ann, bob) = (lab.clone_named("ann"), lab.clone_named("bob"));
        let own = work(&ann);
        let (slug, workspace) = claimed(&lab, &own, "In flight");
        fs::write(workspace.join("a.rs"), "fn a() {}\n").expect("written");
        lab.git(&workspace, &["add", "a.rs"]);
        lab.git(&workspace, &["commit", "--quiet", "-m", &format!("[{slug}] feat: a")]);
        // Somebody else carries the claim over, as it was, when the landing is on its way; in the one case it is
        // changed in its new place right after.
        let claim = lab.git(&lab.hub(), &["rev-parse", &format!("refs/intersession/claims/{slug}")]);
        let renewed = lab.git(
            &lab.hub(),
            &[
                "-c",
                "user.name=x",
                "-c",
                "user.email=x@example.com",
                "commit-tree",
                &format!("{claim}^{{tree}}"),
                "-p",
                &claim,
                "-m",
                "renewed",
            ],
        );
        let carried = if is_taken_meanwhile { &renewed } else { &claim };
        let hook = format!(
            "#!/bin/sh\nunset GIT_QUARANTINE_PATH\ngrep -q refs/heads/main || exit 0\n\
             git update-ref refs/heads/intersession-here main\n\
             git update-ref refs/heads/intersession-claims/{slug} {carried}\nrm \"$0\"\n"
        );
        write(&lab.hub().join("hooks/pre-receive"), &hook, 0o755);
        own.complete(&slug, None).expect("completed");
        for who in [work(&bob), work(&ann)] {
            who.roll_forward().expect("nothing is left to do");
            let seen = who.see().expect("seen");
            assert_eq!(seen.tree.state(&slug), Some(State::Completed), "it has landed");
            assert_eq!(seen.standing(&slug).state(), Some(State::Completed));
        }
        let old = lab.git(&lab.hub(), &["for-each-ref", "refs/intersession/claims"]);
        assert_eq!(old, "", "what was carried over is done with");
    }
}
