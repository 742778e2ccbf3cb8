//! Repositories that want to have something run: whatever is done with them, a canary must stay silent.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use sess_work::{ClaimOptions, InitOptions, Kind, Note, Repo, Work, Workspace};

use crate::lab::{Lab, planned, work};

/// A command that tells that it was run.
struct Canary {
    command: PathBuf,
    ran: PathBuf,
}

impl Canary {
    fn new(lab: &Lab) -> Self {
        let (command, ran) = (lab.path().join("canary"), lab.path().join("ran"));
        let text = format!("#!/bin/sh\necho \"$0 $*\" >> '{}'\nexit 1\n", ran.display());
        fs::write(&command, text).expect("written");
        fs::set_permissions(&command, fs::Permissions::from_mode(0o755)).expect("set");
        Self { command, ran }
    }

    fn path(&self) -> String {
        self.command.display().to_string()
    }

    #[track_caller]
    fn check_silent(&self, after: &str) {
        let ran = fs::read_to_string(&self.ran).unwrap_or_default();
        assert_eq!(ran, "", "after {after}");
    }
}

/// Everything in a configuration that git would run at some time.
fn settings(canary: &Canary) -> Vec<(&'static str, String)> {
    let run = canary.path();
    let shell = format!("!{run}");
    let mut settings: Vec<(&str, String)> = [
        "core.fsmonitor",
        "core.sshCommand",
        "core.askPass",
        "core.editor",
        "core.pager",
        "core.alternateRefsCommand",
        "core.gitProxy",
        "sequence.editor",
        "credential.helper",
        "diff.external",
        "diff.evil.command",
        "diff.evil.textconv",
        "filter.evil.clean",
        "filter.evil.smudge",
        "filter.evil.process",
        "merge.evil.driver",
        "gpg.program",
        "gpg.ssh.program",
        "uploadpack.packObjectsHook",
        "hook.evil.command",
    ]
    .map(|name| (name, run.clone()))
    .to_vec();
    for name in
        ["alias.status", "alias.fetch", "alias.rev-parse", "alias.commit-tree", "submodule.sub.update"]
    {
        settings.push((name, shell.clone()));
    }
    for name in [
        "filter.evil.required",
        "commit.gpgSign",
        "push.gpgSign",
        "log.showSignature",
        "submodule.recurse",
        "merge.autoStash",
        "fetch.recurseSubmodules",
    ] {
        settings.push((name, "true".to_owned()));
    }
    settings.push(("hook.evil.event", "pre-commit".to_owned()));
    settings.push(("core.hooksPath", "evil-hooks".to_owned()));
    settings
}

fn write_hooks(dir: &Path, canary: &Canary) {
    fs::create_dir_all(dir).expect("made");
    for name in [
        "post-checkout",
        "pre-commit",
        "commit-msg",
        "pre-push",
        "post-merge",
        "reference-transaction",
        "post-index-change",
        "fsmonitor-watchman",
        "pre-auto-gc",
        "prepare-commit-msg",
    ] {
        fs::copy(&canary.command, dir.join(name)).expect("copied");
    }
}

/// A clone whose configuration, attributes and hooks all lead to the canary.
fn hostile(lab: &Lab, canary: &Canary) -> PathBuf {
    let dir = lab.clone_named("hostile");
    fs::write(dir.join(".gitattributes"), "* diff=evil merge=evil\n").expect("written");
    fs::write(dir.join("--output=x"), "a name\n").expect("written");
    fs::write(dir.join("list.txt"), "1\n2\n3\n4\n5\n6\n7\n8\n9\n").expect("written");
    lab.git(&dir, &["add", "."]);
    lab.git(&dir, &["commit", "--quiet", "-m", "attributes"]);
    lab.git(&dir, &["push", "--quiet", "origin", "HEAD:main"]);
    let head = lab.git(&dir, &["rev-parse", "HEAD"]);
    for name in [
        "refs/heads/--upload-pack=x",
        "refs/heads/session/--help",
        "refs/intersession/claims/--exec=x",
        "refs/tags/-c",
    ] {
        lab.git(&lab.hub(), &["update-ref", name, &head]);
    }
    for (name, value) in settings(canary) {
        lab.git(&dir, &["config", name, &value]);
    }
    write_hooks(&dir.join(".git/hooks"), canary);
    write_hooks(&dir.join("evil-hooks"), canary);
    // Reading the attributes back may run something: that was us, not the program.
    fs::remove_file(&canary.ran).ok();
    dir
}

/// Lets a person work in the clone as if its configuration were a good one.
fn in_peace(lab: &Lab, dir: &Path, work: impl FnOnce(&Lab)) {
    let path = dir.join(".git/config");
    let evil = fs::read(&path).expect("read");
    let tame = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\thooksPath = /dev/null\n[user]\n\tname = A\n\temail = a@example.com\n";
    fs::write(&path, tame).expect("written");
    work(lab);
    fs::write(&path, evil).expect("written");
}

#[test]
fn nothing_of_a_repository_runs_through_any_verb() {
    let lab = Lab::new();
    let canary = Canary::new(&lab);
    let dir = hostile(&lab, &canary);
    let own = work(&dir);
    own.init(&InitOptions { hooks: false, scripts: true }).expect("set up");
    canary.check_silent("init");
    let slug = planned(&own, "Stay silent");
    canary.check_silent("new, ready");
    let workspace =
        own.claim(&slug, &ClaimOptions::default()).expect("claimed").workspace.expect("a workspace");
    canary.check_silent("claim");
    assert_eq!(fs::read_to_string(workspace.join("list.txt")).expect("read").lines().count(), 9);
    let commit = |text: &str| {
        in_peace(&lab, &dir, |lab| {
            fs::write(workspace.join("list.txt"), text).expect("written");
            lab.git(&workspace, &["add", "list.txt"]);
            lab.git(&workspace, &["commit", "--quiet", "-m", &format!("[{slug}] feat: a")]);
        });
    };
    commit("1\n2\n3\n4\n5\n6\n7\n8\nnine\n");
    for note in [Note::Log, Note::Plan, Note::Sub, Note::Learning] {
        own.note(&slug, note, "$(touch x) `touch x`").expect("written down");
    }
    canary.check_silent("log, plan, sub, learn");
    // Another change of the same file has to be merged.
    let other = lab.clone_named("other");
    fs::write(other.join("list.txt"), "one\n2\n3\n4\n5\n6\n7\n8\n9\n").expect("written");
    lab.git(&other, &["commit", "--quiet", "-am", "one"]);
    lab.git(&other, &["push", "--quiet", "origin", "HEAD:main"]);
    own.sync(&slug).expect("merged");
    canary.check_silent("sync");
    assert_eq!(
        fs::read_to_string(workspace.join("list.txt")).expect("read"),
        "one\n2\n3\n4\n5\n6\n7\n8\nnine\n"
    );
    own.land(&slug).expect("landed");
    canary.check_silent("land");
    let seen = own.see().expect("seen");
    own.list(&seen).expect("listed");
    own.show(&slug, &seen).expect("shown");
    own.heartbeat(&slug).expect("kept");
    own.amend(&slug, Some("# X\n## Context\nc\n## Acceptance Criteria\n- [ ] a\n"), "why not")
        .expect("amended");
    canary.check_silent("list, show, heartbeat, amend");
    own.drift(&slug).expect("compared");
    own.status(&slug).expect("told");
    own.context(&slug, 4_000).expect("told");
    work(&workspace).blame("list.txt", 9).expect("told");
    own.kb_list().expect("listed");
    canary.check_silent("drift, status, context, blame, kb");
    let here = work(&workspace);
    here.hook("pre-commit", &[]).expect("nothing is staged");
    here.hook("pre-push", &["origin".to_owned(), "url".to_owned(), format!("refs/heads/session/{slug}")])
        .expect("its own");
    canary.check_silent("hook");
    let done = own.complete(&slug, Some("Done.")).expect("completed");
    canary.check_silent("complete");
    assert_eq!(done.notices, Vec::<String>::new());
    let second = planned(&own, "Once more");
    let clone = ClaimOptions { workspace: Workspace::Clone, ..ClaimOptions::default() };
    own.claim(&second, &clone).expect("claimed");
    canary.check_silent("claim --clone");
    own.takeover(&second, true, Some("again"), &clone).expect("taken");
    own.abandon(&second, "no").expect("abandoned");
    own.retry(&second).expect("planned anew");
    own.claim(&second, &ClaimOptions::default()).expect("claimed");
    own.release(&second, None).expect("given back");
    canary.check_silent("takeover, abandon, retry, release");
    let checkup = own.doctor(true).expect("repaired");
    assert!(checkup.findings.iter().any(|finding| finding.contains("--exec=x")), "{checkup:?}");
    own.gc(false).expect("cleaned up");
    own.uninstall().expect("removed");
    canary.check_silent("doctor, gc, uninstall");
    assert!(!dir.join("x").exists() && !workspace.join("x").exists());
}

#[test]
fn what_goes_through_a_filter_that_is_not_run_comes_into_no_workspace() {
    let lab = Lab::new();
    let canary = Canary::new(&lab);
    let dir = hostile(&lab, &canary);
    let own = work(&dir);
    let (slug, later) = (planned(&own, "Filtered"), planned(&own, "Later"));
    let new = planned(&own, "New");
    for slug in [&later, &new] {
        own.claim(slug, &ClaimOptions::default()).expect("no file goes through one yet");
    }
    let place = dir.join(".sessions").join(new.as_str());
    fs::write(place.join(".gitattributes"), "*.bin filter=evil\n").expect("written");
    fs::write(place.join("key.bin"), "secret\n").expect("written");
    let error = own.commit_all(&new, "feat: a key").expect_err("it would come unfiltered to everybody");
    assert!(error.message().contains("key.bin goes through the filter \"evil\""), "{error}");
    in_peace(&lab, &dir, |lab| {
        fs::write(dir.join(".gitattributes"), "*.txt filter=evil\n").expect("written");
        lab.git(&dir, &["commit", "--quiet", "-am", "attributes"]);
        let hub = lab.hub().display().to_string();
        lab.git(&dir, &["pull", "--quiet", "--rebase", &hub, "main"]);
        lab.git(&dir, &["push", "--quiet", &hub, "HEAD:main"]);
        let place = dir.join(".sessions").join(later.as_str());
        fs::write(place.join(".gitattributes"), "*.txt filter=evil\n").expect("written");
        lab.git(&place, &["commit", "--quiet", "-am", &format!("[{later}] feat: attributes")]);
    });
    let refused = |ended: sess_work::Result<()>| {
        let error = ended.expect_err("it would come unfiltered");
        assert_eq!(error.kind, Kind::Policy, "{error}");
        assert!(error.message().contains("list.txt goes through the filter \"evil\""), "{error}");
        assert_eq!(error.next_command(), "git config --global intersession.trustlocal true");
    };
    refused(own.claim(&slug, &ClaimOptions::default()).map(drop));
    assert_eq!(own.see().expect("seen").standing(&slug).holder(), None, "nobody waits for it");
    refused(own.commit_all(&later, "feat: more").map(drop));
    let none = ClaimOptions { workspace: Workspace::None, ..ClaimOptions::default() };
    own.claim(&slug, &none).expect("no file is needed for that");
    let error =
        own.claim(&slug, &ClaimOptions::default()).expect_err("it is theirs, and would come unfiltered");
    assert!(error.message().starts_with(&format!("{slug} is yours, but ")), "{error}");
    refused(Err(error));
    canary.check_silent("claim");
}

#[test]
fn a_submodule_is_not_entered() {
    let lab = Lab::new();
    let canary = Canary::new(&lab);
    let dir = lab.clone_named("with-submodule");
    lab.git(&dir, &["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "../hub.git", "sub"]);
    lab.git(&dir, &["commit", "--quiet", "-m", "a submodule"]);
    lab.git(&dir, &["push", "--quiet", "origin", "HEAD:main"]);
    let own = work(&dir);
    let slug = planned(&own, "Beside a submodule");
    let workspace =
        own.claim(&slug, &ClaimOptions::default()).expect("claimed").workspace.expect("a workspace");
    lab.git(&workspace, &["-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--init"]);
    let sub = workspace.join("sub");
    fs::write(sub.join(".gitattributes"), "* filter=evil\n").expect("written");
    fs::write(sub.join("readme.md"), "changed there\n").expect("written");
    for (name, value) in settings(&canary) {
        lab.git(&sub, &["config", name, &value]);
    }
    fs::remove_file(&canary.ran).ok();
    // What is changed in there is not landed, and not removed either.
    let done = own.complete(&slug, None).expect("completed");
    assert!(done.notices.iter().any(|notice| notice.contains("the submodule sub")), "{:?}", done.notices);
    assert_eq!(fs::read_to_string(sub.join("readme.md")).expect("read"), "changed there\n");
    own.gc(false).expect("cleaned up");
    canary.check_silent("complete and gc");
    assert!(sub.join("readme.md").is_file());
}

#[test]
fn a_remote_that_would_run_something_is_refused() {
    let lab = Lab::new();
    let canary = Canary::new(&lab);
    let dir = lab.clone_named("ann");
    lab.git(&dir, &["clone", "--quiet", "--bare", "../hub.git", "inside.git"]);
    write_hooks(&dir.join("inside.git/hooks"), &canary);
    fs::copy(&canary.command, dir.join("inside.git/hooks/pre-receive")).expect("copied");
    let refusal = |set: &[&str]| {
        lab.git(&dir, &[&["config"], set].concat());
        let refused = Repo::find(&dir).and_then(|_| work_of(&dir)?.see().map(drop)).expect_err("refused");
        lab.git(&dir, &["config", "--unset-all", set[set.len() - 2]]);
        lab.git(&dir, &["config", "remote.origin.url", "../hub.git"]);
        canary.check_silent(&set.join(" "));
        assert!(refused.to_string().contains("; run `"), "{refused}");
        refused.kind
    };
    for place in ["inside.git", "./inside", ".", &format!("file://{}", dir.join("inside.git").display())] {
        assert_eq!(refusal(&["remote.origin.url", place]), Kind::Policy, "{place}");
    }
    assert_eq!(refusal(&["intersession.remote", "inside.git"]), Kind::Policy);
    assert_eq!(refusal(&["url.inside.git.insteadOf", "../hub.git"]), Kind::Policy);
    let ext = format!("ext::{} %S", canary.path());
    assert_eq!(refusal(&["remote.origin.url", &ext]), Kind::Unreachable);
    assert_eq!(refusal(&["intersession.remote", &ext]), Kind::Unreachable);
    let option = format!("--upload-pack={}", canary.path());
    assert_eq!(refusal(&["intersession.remote", &option]), Kind::Unreachable);
    for base in ["--exec=x", "a\nupdate refs/heads/x", "a..b", ""] {
        assert_eq!(refusal(&["intersession.base", base]), Kind::Usage, "{base:?}");
    }
    assert_eq!(refusal(&["intersession.claims", "refs/heads"]), Kind::Usage);
    for name in ["remote.origin.uploadpack", "remote.origin.receivepack", "remote.origin.vcs"] {
        assert_eq!(refusal(&[name, &canary.path()]), Kind::Policy);
    }
    work(&dir).see().expect("all is well again");
}

fn work_of(dir: &Path) -> sess_work::Result<Work> {
    let who = sess_work::Who { agent: None, session: None, host: "host".to_owned(), pid: 1 };
    Work::new(Repo::find(dir)?, sess_work::Settings::default(), who, crate::lab::now)
}

#[test]
fn links_in_the_repository_lead_nowhere() {
    let lab = Lab::new();
    let (dir, outside) = (lab.clone_named("ann"), lab.path().join("outside"));
    fs::create_dir(&outside).expect("made");
    let own = work(&dir);
    let slug = planned(&own, "Through a link");
    symlink(&outside, dir.join(".sessions")).expect("linked");
    let refused = own.claim(&slug, &ClaimOptions::default()).expect_err("it leads out");
    assert_eq!(refused.kind, Kind::Policy);
    assert_eq!(fs::read_dir(&outside).expect("read").count(), 0);
    fs::remove_file(dir.join(".sessions")).expect("removed");
    let workspace =
        own.claim(&slug, &ClaimOptions::default()).expect("resumed").workspace.expect("a workspace");

    // The session's own directory is a link in its checkout: neither the branch nor the index moves.
    let active = workspace.join("_AGENTS/sessions/active");
    fs::remove_dir_all(&active).expect("removed");
    symlink(&outside, &active).expect("linked");
    let head = lab.git(&workspace, &["rev-parse", "HEAD"]);
    let refused = own.note(&slug, Note::Log, "written").expect_err("it leads out");
    assert!(refused.message().ends_with("would be written through a link"), "{refused}");
    assert_eq!(lab.git(&workspace, &["rev-parse", "HEAD"]), head);
    assert_eq!(lab.git(&workspace, &["diff", "--cached", "--name-only"]), "");

    // It is a link on its branch.
    lab.git(&workspace, &["add", "--all"]);
    lab.git(&workspace, &["commit", "--quiet", "-m", "a link"]);
    own.note(&slug, Note::Log, "written").expect_err("it leads out");
    own.complete(&slug, None).expect_err("the plan is gone");
    assert_eq!(fs::read_dir(&outside).expect("read").count(), 0);
}
