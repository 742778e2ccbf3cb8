//! Many sessions and many clones at once.

use std::{
    fs,
    path::{Path, PathBuf},
};

use sess_work::{Slug, Work};

use crate::lab::{Lab, work};

/// Plans sessions in one commit.
pub fn planned_many(lab: &Lab, name: &str, count: usize) -> Vec<Slug> {
    let dir = lab.clone_named(&format!("planner-{name}"));
    let slugs = plan_in(lab, &dir, name, count);
    lab.git(&dir, &["push", "--quiet", "origin", "HEAD:main"]);
    fs::remove_dir_all(dir).expect("removed");
    slugs
}

/// Plans sessions in one commit of a checkout.
pub fn plan_in(lab: &Lab, dir: &Path, name: &str, count: usize) -> Vec<Slug> {
    let slugs: Vec<Slug> =
        (0..count).map(|n| format!("2025-10-14-{name}-{n}").parse().expect("a slug")).collect();
    for slug in &slugs {
        let place = dir.join(format!("_AGENTS/sessions/planned/{slug}"));
        fs::create_dir_all(&place).expect("made");
        let plan = format!("# {slug}\n\n## Context\n\nc\n\n## Acceptance Criteria\n\n- [ ] It works\n");
        fs::write(place.join("SESSION.md"), plan).expect("written");
    }
    lab.git(dir, &["add", "."]);
    lab.git(dir, &["commit", "--quiet", "-m", "plan"]);
    slugs
}

/// Makes clones, each with its caller.
pub fn clones(lab: &Lab, count: usize) -> Vec<(PathBuf, Work)> {
    (0..count)
        .map(|n| {
            let dir = lab.clone_named(&format!("clone-{n}"));
            let work = work(&dir);
            (dir, work)
        })
        .collect()
}

/// Reads a number that somebody set to have more of a test.
#[expect(clippy::disallowed_methods, reason = "a test reads how long it may take where it runs")]
pub fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
