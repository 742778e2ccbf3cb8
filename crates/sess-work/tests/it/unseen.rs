//! What git does not look at by itself is not lost for that: ignored files, files that it was told to pass over, what
//! only a clone of one's own has, what a sparse checkout leaves out.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use sess_work::{ClaimOptions, Kind, Note, Slug, State, Work, Workspace};

use crate::lab::{Lab, planned, work};

fn claimed(work: &Work, slug: &Slug) -> PathBuf {
    work.claim(slug, &ClaimOptions::default()).expect("claimed").workspace.expect("a workspace")
}

/// Runs a command that was printed.
#[track_caller]
fn by_hand(command: &str) {
    let ended = Command::new("sh").args(["-c", command]).output().expect("run");
    assert!(ended.status.success(), "{command}: {}", String::from_utf8_lossy(&ended.stderr));
}

#[test]
fn a_change_that_git_was_told_to_pass_over_keeps_its_workspace() {
    let lab = Lab::new();
    let ann = work(&lab.clone_named("ann"));
    for flag in ["--skip-worktree", "--assume-unchanged"] {
        let slug = planned(&ann, &format!("With {}", &flag[2..]));
        let workspace = claimed(&ann, &slug);
        lab.git(&workspace, &["update-index", flag, "readme.md"]);
        let notices = ann.release(&slug, None).expect("released");
        assert_eq!((notices, workspace.exists()), (Vec::new(), false), "{flag}: nothing is changed");

        let workspace = claimed(&ann, &slug);
        lab.git(&workspace, &["update-index", flag, "readme.md"]);
        fs::write(workspace.join("readme.md"), "local work\n").expect("written");
        fs::write(workspace.join(format!("a{flag}.rs")), "done\n").expect("written");
        lab.git(&workspace, &["add", "--", &format!("a{flag}.rs")]);
        lab.git(&workspace, &["commit", "--quiet", "-m", &format!("[{slug}] feat: a")]);
        let done = ann.complete(&slug, None).expect("completed");
        assert!(done.notices.iter().any(|notice| notice.contains("readme.md")), "{:?}", done.notices);
        assert_eq!(fs::read_to_string(workspace.join("readme.md")).expect("there"), "local work\n", "{flag}");
    }
}

#[test]
fn of_what_git_was_told_to_pass_over_only_what_is_changed_keeps_a_workspace() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let names = ["a file", "\"quoted\"", "two\nlines", "link", "dangling", "deep/link"];
    fs::create_dir(dir.join("deep")).expect("made");
    for name in &names[..3] {
        fs::write(dir.join(name), format!("{name}\n")).expect("written");
    }
    for (name, target) in [("link", "a file"), ("dangling", "nowhere"), ("deep/link", "../deep")] {
        symlink(target, dir.join(name)).expect("made");
    }
    lab.git(&dir, &["add", "."]);
    lab.git(&dir, &["commit", "--quiet", "-m", "links"]);
    lab.git(&dir, &["push", "--quiet", "origin", "HEAD:main"]);
    let ann = work(&dir);
    let slug = planned(&ann, "Links");
    let released = || {
        let workspace = claimed(&ann, &slug);
        for name in names {
            lab.git(&workspace, &["update-index", "--skip-worktree", name]);
        }
        workspace
    };
    let workspace = released();
    assert_eq!(ann.release(&slug, None).expect("released"), [""; 0], "nothing is changed");
    assert!(!workspace.exists());

    let workspace = released();
    for name in ["link", "two\nlines", "deep/link"] {
        fs::remove_file(workspace.join(name)).expect("removed");
    }
    symlink("readme.md", workspace.join("link")).expect("made");
    // The same text by another way.
    symlink("a file", workspace.join("two\nlines")).expect("made");
    fs::write(workspace.join("deep/link"), "no link\n").expect("written");
    let told = ann.release(&slug, None).expect("released").join("\n");
    for name in names {
        let is_changed = ["link", "two\nlines", "deep/link"].contains(&name);
        let named =
            told.split_once("not to look at ").expect(&told).1.split(", which").next().expect("names");
        assert_eq!(named.split(", ").any(|named| named == name), is_changed, "{name}: {told}");
    }
    assert!(workspace.exists());
}

#[test]
fn a_clone_that_has_something_to_itself_stays() {
    let lab = Lab::new();
    let ann = work(&lab.clone_named("ann"));
    let options = ClaimOptions { workspace: Workspace::Clone, ..ClaimOptions::default() };
    for what in ["a tag", "a ref", "a worktree", "nothing"] {
        let slug = planned(&ann, &format!("With {what}"));
        let workspace = ann.claim(&slug, &options).expect("claimed").workspace.expect("a workspace");
        lab.git(&workspace, &["checkout", "--quiet", "--detach"]);
        lab.git(&workspace, &["commit", "--quiet", "--allow-empty", "-m", &format!("[{slug}] try: it")]);
        match what {
            "a tag" => lab.git(&workspace, &["tag", "keep-me"]),
            "a ref" => lab.git(&workspace, &["update-ref", "refs/backup/x", "HEAD"]),
            "a worktree" => lab.git(&workspace, &["worktree", "add", "--quiet", "--detach", "../outer"]),
            _ => String::new(),
        };
        lab.git(&workspace, &["checkout", "--quiet", &slug.branch()]);
        let notices = ann.release(&slug, None).expect("released");
        assert_eq!(workspace.exists(), what != "nothing", "{what}: {notices:?}");
        assert_eq!(notices.iter().any(|notice| notice.contains("stays")), what != "nothing", "{notices:?}");
    }
}

#[test]
fn an_ignored_file_of_a_checkout_is_not_overwritten_by_what_lands() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    lab.git(&dir, &["remote", "remove", "origin"]);
    fs::write(dir.join(".gitignore"), ".env\ncache\n.sessions\n").expect("written");
    lab.git(&dir, &["add", "."]);
    lab.git(&dir, &["commit", "--quiet", "-m", "ignore"]);
    fs::write(dir.join(".env"), "SECRET=precious\n").expect("written");
    fs::write(dir.join("cache"), "a file\n").expect("written");
    let ann = work(&dir);
    // The name of a file, and a directory where a file is.
    for name in [".env", "cache/entry"] {
        let slug = planned(&ann, &format!("Brings {}", name.replace(['.', '/'], "")));
        let workspace = claimed(&ann, &slug);
        let path = workspace.join(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        fs::write(path, "of the session\n").expect("written");
        lab.git(&workspace, &["add", "--force", name]);
        lab.git(&workspace, &["commit", "--quiet", "-m", &format!("[{slug}] feat: {name}")]);
        let base = lab.git(&dir, &["rev-parse", "main"]);
        let refused = ann.complete(&slug, None).expect_err("it would be overwritten");
        assert_eq!(refused.kind, Kind::WouldLoseWork, "{refused}");
        assert!(refused.message().contains(name.split('/').next().expect("a name")), "{refused}");
        assert_eq!(lab.git(&dir, &["rev-parse", "main"]), base, "nothing moved");
    }
    assert_eq!(fs::read_to_string(dir.join(".env")).expect("there"), "SECRET=precious\n");
    assert_eq!(fs::read_to_string(dir.join("cache")).expect("there"), "a file\n");
}

#[test]
fn an_ignored_file_of_a_checkout_is_not_deleted_with_its_directory() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    lab.git(&dir, &["remote", "remove", "origin"]);
    fs::write(dir.join(".gitignore"), "*.log\nignored\n.sessions\n").expect("written");
    fs::create_dir_all(dir.join("out/deep")).expect("made");
    fs::create_dir(dir.join("ignored")).expect("made");
    fs::write(dir.join("out/tracked"), "tracked\n").expect("written");
    lab.git(&dir, &["add", "."]);
    lab.git(&dir, &["commit", "--quiet", "-m", "ignore"]);
    let ann = work(&dir);
    for (name, files) in [("out", &["out/precious.log", "out/deep/x.log"][..]), ("ignored", &["ignored/x"])] {
        for file in files {
            fs::write(dir.join(file), "precious\n").expect("written");
        }
        let slug = planned(&ann, &format!("A file {name}"));
        let workspace = claimed(&ann, &slug);
        drop(fs::remove_dir_all(workspace.join(name)));
        fs::write(workspace.join(name), "of the session\n").expect("written");
        lab.git(&workspace, &["add", "--force", "--all", name]);
        lab.git(&workspace, &["commit", "--quiet", "-m", &format!("[{slug}] feat: a file")]);
        let base = lab.git(&dir, &["rev-parse", "main"]);
        let refused = ann.complete(&slug, None).expect_err("it would be deleted");
        assert_eq!(refused.kind, Kind::WouldLoseWork, "{refused}");
        assert!(refused.message().contains(&format!("{name}/")), "{refused}");
        assert_eq!(lab.git(&dir, &["rev-parse", "main"]), base, "nothing moved");
        by_hand(refused.next_command());
        ann.complete(&slug, None).expect("completed");
        assert_eq!(fs::read_to_string(dir.join(name)).expect("there"), "of the session\n");
        for file in files {
            assert_eq!(lab.git(&dir, &["show", &format!("stash^3:{file}")]), "precious");
        }
    }
}

#[test]
fn a_submodule_of_a_checkout_is_not_deleted_for_a_file() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    lab.git(&dir, &["remote", "remove", "origin"]);
    let hub = lab.hub().display().to_string();
    let add = |dir: &Path, name: &str| {
        let allowed = ["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "--force"];
        lab.git(dir, &[&allowed[..], &[&hub, name]].concat())
    };
    add(&dir, "sub");
    fs::write(dir.join(".gitignore"), "vendor\n.sessions\n").expect("written");
    lab.git(&dir, &["add", "."]);
    lab.git(&dir, &["commit", "--quiet", "-m", "a submodule"]);
    let ann = work(&dir);
    let slug = planned(&ann, "No submodule");
    let workspace = claimed(&ann, &slug);
    lab.git(&workspace, &["rm", "--quiet", "--cached", "sub"]);
    drop(fs::remove_dir_all(workspace.join("sub")));
    fs::write(workspace.join("sub"), "of the session\n").expect("written");
    lab.git(&workspace, &["add", "sub"]);
    lab.git(&workspace, &["commit", "--quiet", "-m", &format!("[{slug}] feat: a file")]);
    fs::write(dir.join("sub/precious"), "precious\n").expect("written");
    let refused = ann.complete(&slug, None).expect_err("it would be deleted");
    assert_eq!(refused.kind, Kind::WouldLoseWork, "{refused}");
    assert!(refused.message().contains("the submodule sub"), "{refused}");
    fs::remove_file(dir.join("sub/precious")).expect("there");
    by_hand(refused.next_command());
    ann.complete(&slug, None).expect("completed");
    assert_eq!(fs::read_to_string(dir.join("sub")).expect("there"), "of the session\n");

    // One that comes finds what is in its place.
    let slug = planned(&ann, "A submodule");
    let workspace = claimed(&ann, &slug);
    add(&workspace, "vendor");
    lab.git(&workspace, &["commit", "--quiet", "-m", &format!("[{slug}] feat: a submodule")]);
    fs::create_dir(dir.join("vendor")).expect("made");
    fs::write(dir.join("vendor/x"), "mine\n").expect("written");
    ann.complete(&slug, None).expect("completed");
    assert_eq!(fs::read_to_string(dir.join("vendor/x")).expect("there"), "mine\n");
}

#[test]
fn the_command_for_files_in_the_way_takes_away_those_and_no_others() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    lab.git(&dir, &["remote", "remove", "origin"]);
    fs::write(dir.join(".gitignore"), "*.env\nnode_modules\n.sessions\n").expect("written");
    lab.git(&dir, &["add", "."]);
    lab.git(&dir, &["commit", "--quiet", "-m", "ignore"]);
    fs::create_dir(dir.join("node_modules")).expect("made");
    let (in_the_way, others) =
        (["a b.env", "*.env", ":top.env"], ["c.env", "node_modules/x", "notes.txt", "top.env"]);
    for name in in_the_way.iter().chain(&others) {
        fs::write(dir.join(name), "mine\n").expect("written");
    }
    let ann = work(&dir);
    let slug = planned(&ann, "Brings them");
    let workspace = claimed(&ann, &slug);
    for name in in_the_way {
        fs::write(workspace.join(name), "of the session\n").expect("written");
    }
    lab.git(&workspace, &["add", "--force", "--all"]);
    lab.git(&workspace, &["commit", "--quiet", "-m", &format!("[{slug}] feat: these")]);
    let refused = ann.complete(&slug, None).expect_err("they would be overwritten");
    by_hand(refused.next_command());
    ann.complete(&slug, None).expect("completed");
    for name in in_the_way {
        assert_eq!(fs::read_to_string(dir.join(name)).expect(name), "of the session\n", "{name}");
        let kept = lab.git(&dir, &["show", &format!("stash^3:{name}")]);
        assert_eq!(kept, "mine", "{name}");
    }
    for name in others {
        assert_eq!(fs::read_to_string(dir.join(name)).expect(name), "mine\n", "{name}");
    }
}

#[test]
fn a_plan_that_was_edited_back_is_the_plan() {
    let lab = Lab::new();
    let (ann, bob) = (work(&lab.clone_named("ann")), work(&lab.clone_named("bob")));
    let slug = planned(&ann, "Back");
    let path = format!("_AGENTS/sessions/active/{slug}/SESSION.md");
    let plan = fs::read_to_string(claimed(&ann, &slug).join(&path)).expect("read");
    ann.amend(&slug, Some(&plan.replace("It works", "It works, and fast")), "slow is no use")
        .expect("amended");
    ann.release(&slug, None).expect("released");
    ann.edit(&slug, None, &plan).expect("edited");
    assert_eq!(fs::read_to_string(claimed(&bob, &slug).join(&path)).expect("read"), plan);
}

#[test]
fn a_sub_session_whose_note_is_refused_is_not_drafted() {
    let lab = Lab::new();
    let ann = work(&lab.clone_named("ann"));
    let slug = planned(&ann, "Parent");
    let workspace = claimed(&ann, &slug);
    lab.git(&workspace, &["checkout", "--quiet", "--detach"]);
    let before = ann.see().expect("seen").slugs();
    let refused = ann.sub(&slug, "child", true).expect_err("something else is checked out");
    assert_eq!(refused.kind, Kind::WouldLoseWork, "{refused}");
    assert_eq!(ann.see().expect("seen").slugs(), before);
}

#[test]
fn a_note_that_the_remote_refuses_is_said_to_be_written() {
    let lab = Lab::new();
    let ann = work(&lab.clone_named("ann"));
    let slug = planned(&ann, "Noted");
    let workspace = claimed(&ann, &slug);
    let hook = lab.hub().join("hooks/pre-receive");
    fs::write(&hook, "#!/bin/sh\nexit 1\n").expect("written");
    fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("executable");
    let refused = ann.note(&slug, Note::Log, "once").expect_err("the remote takes nothing");
    assert!(refused.message().contains("written down in worklog.md here"), "{refused}");
    let log = workspace.join(format!("_AGENTS/sessions/active/{slug}/worklog.md"));
    assert!(fs::read_to_string(log).expect("read").contains("once"));
}

#[test]
fn a_workspace_of_a_sparse_clone_has_its_session() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    for name in ["one/a", "two/b"] {
        fs::create_dir_all(dir.join(name).parent().expect("a directory")).expect("made");
        fs::write(dir.join(name), "a\n").expect("written");
    }
    lab.git(&dir, &["add", "."]);
    lab.git(&dir, &["commit", "--quiet", "-m", "two directories"]);
    lab.git(&dir, &["push", "--quiet", "origin", "HEAD:main"]);
    lab.git(&dir, &["sparse-checkout", "set", "one"]);
    let ann = work(&dir);
    let slug = planned(&ann, "Sparse");
    let workspace = claimed(&ann, &slug);
    assert!(workspace.join(format!("_AGENTS/sessions/active/{slug}/SESSION.md")).is_file());
    assert!(workspace.join("one/a").is_file() && !workspace.join("two/b").exists(), "it is as sparse");
    assert!(!dir.join("_AGENTS").exists(), "and so is the checkout, as before");
    fs::write(workspace.join("one/a"), "done\n").expect("written");
    lab.git(&workspace, &["commit", "--quiet", "--all", "-m", &format!("[{slug}] feat: done")]);
    assert_eq!(ann.status(&slug).expect("told").refused, [""; 0]);
    ann.complete(&slug, None).expect("completed");
    assert!(!workspace.exists());
    assert_eq!(ann.see().expect("seen").tree.state(&slug), Some(State::Completed));
}
