//! Committing for whoever cannot run git.

use std::fs;

use sess_work::{ClaimOptions, Kind};

use crate::lab::{Lab, planned, work};

#[test]
fn everything_that_changed_is_committed_but_what_was_copied_in() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    fs::write(dir.join(".worktreeinclude"), "secret.env\nnotes.env\n").expect("written");
    fs::write(dir.join("secret.env"), "KEY=1\n").expect("written");
    let ann = work(&dir);
    let slug = planned(&ann, "Add a form");
    let workspace = ann.claim(&slug, &ClaimOptions::default()).expect("claimed").workspace.expect("a place");
    assert!(workspace.join("secret.env").is_file(), "it was copied");
    assert_eq!(ann.commit_all(&slug, "feat: nothing").expect("looked"), None);

    fs::write(workspace.join("readme.md"), "changed\n").expect("written");
    assert_eq!(ann.new_files(&slug).expect("looked"), Vec::<String>::new());
    fs::write(workspace.join("a*b.txt"), "new\n").expect("written");
    fs::write(workspace.join("notes.env"), "new\n").expect("written");
    assert_eq!(ann.new_files(&slug).expect("looked"), ["a*b.txt", "notes.env"]);
    fs::remove_file(workspace.join("notes.env")).expect("removed");
    let commit = ann.commit_all(&slug, "feat: a form").expect("committed").expect("something changed");
    let names = lab.git(&workspace, &["show", "--name-only", "--format=%s|%an", commit.as_str()]);
    assert_eq!(names, format!("[{slug}] feat: a form|User ann ({slug})\n\na*b.txt\nreadme.md"));
    assert_eq!(lab.git(&workspace, &["status", "--porcelain"]), "?? secret.env");

    let bob = work(&lab.clone_named("bob"));
    let refused = bob.commit_all(&slug, "feat: mine").expect_err("it is Ann's");
    assert_eq!(refused.kind, Kind::Claimed);
}
