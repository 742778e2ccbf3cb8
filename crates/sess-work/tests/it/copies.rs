//! What lies in a workspace and in the main checkout, too: a copy that goes with the workspace, or somebody's work.

use std::{collections::BTreeMap, fs, os::unix::fs::symlink, path::PathBuf};

use sess_work::{ClaimOptions, Draft, Kind, Settings, Slug, Work};

use crate::lab::{Lab, planned, work, work_with};

fn claimed(work: &Work, slug: &Slug) -> PathBuf {
    work.claim(slug, &ClaimOptions::default()).expect("claimed").workspace.expect("a workspace")
}

#[test]
fn a_file_that_the_main_checkout_links_to_is_no_copy_of_itself() {
    for include in [None, Some("notes.txt\ndata\ndata/**\n")] {
        let lab = Lab::new();
        let dir = lab.clone_named("ann");
        if let Some(include) = include {
            fs::write(dir.join(".worktreeinclude"), include).expect("written");
        }
        let ann = work(&dir);
        let slug = planned(&ann, "Linked");
        let workspace = claimed(&ann, &slug);
        fs::create_dir(workspace.join("data")).expect("made");
        for name in ["notes.txt", "data/found.txt"] {
            fs::write(workspace.join(name), "only here\n").expect("written");
        }
        for name in ["notes.txt", "data"] {
            symlink(workspace.join(name), dir.join(name)).expect("linked");
        }
        assert_eq!(ann.new_files(&slug).expect("looked"), ["data/found.txt", "notes.txt"]);
        let done = ann.complete(&slug, None).expect("completed");
        let told = done.notices.join("\n");
        assert!(told.contains("git does not know data/found.txt, notes.txt"), "{told}");
        assert!(workspace.join("notes.txt").is_file() && workspace.join("data/found.txt").is_file());
    }
}

#[test]
fn a_link_is_no_copy_of_what_it_leads_to() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    fs::write(dir.join(".worktreeinclude"), "local.env\n").expect("written");
    fs::write(dir.join("local.env"), "A=1\n").expect("written");
    let ann = work(&dir);
    let slug = planned(&ann, "Link");
    let workspace = claimed(&ann, &slug);
    fs::remove_file(workspace.join("local.env")).expect("removed");
    symlink("../../local.env", workspace.join("local.env")).expect("linked");
    assert_eq!(ann.new_files(&slug).expect("looked"), ["local.env"]);
}

#[test]
fn gates_do_not_judge_by_a_file_that_lies_in_the_main_checkout_too() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let gates = BTreeMap::from([("there".to_owned(), "test -f src/x && test -f local.env".to_owned())]);
    let ann = work_with(&dir, Settings { gates, ..Settings::default() });
    let draft = Draft {
        title: "Judged".to_owned(),
        context: Some("Because.".to_owned()),
        criteria: vec!["It is there".to_owned()],
        ..Draft::default()
    };
    let slug = ann.draft(None, &draft, None).expect("drafted");
    let (before, text) = ann.editable(&slug).expect("a plan");
    let text = format!("---\ngates: [there]\n---\n{}", text.rsplit("---\n").next().expect("a body"));
    ann.edit(&slug, before.as_ref(), &text).expect("edited");
    ann.ready(&slug).expect("ready");
    fs::write(dir.join(".worktreeinclude"), "*.env\n").expect("written");
    fs::write(dir.join("local.env"), "A=1\n").expect("written");
    let workspace = claimed(&ann, &slug);
    assert!(workspace.join("local.env").is_file(), "it was copied");
    for place in [&dir, &workspace] {
        fs::create_dir_all(place.join("src")).expect("made");
        fs::write(place.join("src/x"), "done\n").expect("written");
    }
    // What the session's branch says of copies is not where they were made from.
    fs::write(workspace.join(".worktreeinclude"), "*.env\nsrc/x\n").expect("written");
    let refused = ann.complete(&slug, None).expect_err("it does not land");
    assert_eq!(refused.kind, Kind::Policy);
    assert!(refused.message().contains("git does not know .worktreeinclude, src/x:"), "{refused}");
    fs::remove_file(workspace.join(".worktreeinclude")).expect("removed");
    ann.commit_all(&slug, "feat: x").expect("committed").expect("it is the session's work");
    ann.complete(&slug, None).expect("completed");
    assert_eq!(lab.files("main", "src"), ["src/x"]);
    assert!(!workspace.exists(), "what was copied goes");
}
