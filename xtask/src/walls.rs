//! The walls between crates: who may depend on whom, and what `sess-core` may not touch.
//!
//! The compiler keeps a crate from using what it does not depend on; this check
//! keeps a dependency from being added by the way. To move a wall, change
//! [`WALLS`] here and the page `ARCHITECTURE.md` in a commit of its own.

use std::collections::{HashMap, VecDeque};
use std::path::Path;

use anyhow::Result;

use crate::files;
use crate::metadata::{Metadata, Package};

/// One row of the table: what a crate may depend on inside the workspace.
struct Wall {
    name: &'static str,
    /// What it may use in its code.
    uses: &'static [&'static str],
    /// What its tests and benchmarks may use besides.
    tests_use: &'static [&'static str],
}

/// Who may depend on whom. A crate without a row is refused.
const WALLS: &[Wall] = &[
    Wall { name: "sess-core", uses: &[], tests_use: &[] },
    Wall { name: "sess-store", uses: &["sess-core"], tests_use: &[] },
    Wall { name: "sess-agent", uses: &["sess-core"], tests_use: &["stub-models"] },
    Wall { name: "sess-protocol", uses: &[], tests_use: &[] },
    Wall { name: "sess-work", uses: &["sess-core"], tests_use: &[] },
    Wall { name: "sess-readers", uses: &["sess-core"], tests_use: &[] },
    Wall {
        name: "sess-app",
        uses: &["sess-core", "sess-protocol", "sess-store", "sess-agent", "sess-work", "sess-readers"],
        tests_use: &["stub-models"],
    },
    // Its tests are the other process that appends while somebody follows, the models that answer, and who
    // says where other agents keep their sessions.
    Wall {
        name: "sess-server",
        uses: &["sess-core", "sess-protocol", "sess-app"],
        tests_use: &["sess-store", "sess-agent", "sess-readers"],
    },
    // The benchmarks measure the store beside a bare writer. The binary starts itself again, confined.
    Wall {
        name: "sess",
        uses: &[
            "sess-core",
            "sess-protocol",
            "sess-app",
            "sess-server",
            "sess-agent",
            "sess-work",
            "sess-readers",
        ],
        tests_use: &["sess-store", "stub-models"],
    },
    // It stands in for the world outside, so it knows nothing of ours.
    Wall { name: "stub-models", uses: &[], tests_use: &[] },
    Wall { name: "xtask", uses: &[], tests_use: &[] },
];

/// The crate that decides and does nothing else.
const PURE: &str = "sess-core";

/// Crates that do I/O or run tasks. [`PURE`] may not reach them, however far down.
const DOES_IO: &[&str] = &[
    "libsqlite3-sys",
    "mio",
    "rmcp",
    "rusqlite",
    "rustix",
    "tempfile",
    "tokio",
    "tokio-util",
    "tracing-subscriber",
];

/// Crates that make random numbers. Only a dependency of [`PURE`]'s own counts:
/// cargo adds up features over the workspace, so what another crate asks for can
/// bring one of these below a crate that [`PURE`] uses.
const MAKES_RANDOM: &[&str] = &["fastrand", "getrandom", "rand", "rand_core"];

/// What the standard library offers and [`PURE`] leaves alone, with the reason.
const IMPURE_STD: &[(&str, &str)] = &[
    ("std::fs", "does no I/O"),
    ("std::io", "does no I/O"),
    ("std::env", "does no I/O"),
    ("std::process", "does no I/O"),
    ("std::net::Tcp", "does no I/O"),
    ("std::net::Udp", "does no I/O"),
    ("std::thread", "starts no threads"),
    ("SystemTime::now", "reads no clock"),
    ("Instant::now", "reads no clock"),
    ("Timestamp::now", "reads no clock"),
    ("Zoned::now", "reads no clock"),
    ("RandomState", "makes no random numbers"),
    ("async fn", "does not await"),
    (".await", "does not await"),
];

/// Returns one sentence per broken rule.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let metadata = Metadata::load(root)?;
    let mut problems = dependencies_between(WALLS, &metadata);
    problems.extend(impure_dependencies(&metadata));
    for member in metadata.members() {
        let dir = member.manifest_path.parent().unwrap_or(root);
        for path in files::below(dir, "rs")? {
            let place = files::shown(root, &path);
            let text = files::read(&path)?;
            if !opens_with_docs(&text) {
                problems.push(format!("{place} does not open with `//!`: say what lives here"));
            }
            if member.name == PURE && !is_test_file(dir, &path) {
                problems.extend(impure_lines(&text).into_iter().map(|found| format!("{place}:{found}")));
            }
        }
    }
    Ok(problems)
}

fn dependencies_between(walls: &[Wall], metadata: &Metadata) -> Vec<String> {
    let members = metadata.members();
    let is_member = |name: &str| members.iter().any(|member| member.name == name);
    let mut problems = Vec::new();
    for member in &members {
        let Some(wall) = walls.iter().find(|wall| wall.name == member.name) else {
            problems.push(format!("{} has no row in the table of walls", member.name));
            continue;
        };
        for dependency in &member.dependencies {
            let name = dependency.name.as_str();
            if !is_member(name) || wall.uses.contains(&name) {
                continue;
            }
            match dependency.kind.as_deref() {
                Some("dev") if wall.tests_use.contains(&name) => {}
                Some("dev") => {
                    problems.push(format!("{}'s tests may not depend on {name}", member.name));
                }
                Some(_) | None => {
                    problems.push(format!("{} may not depend on {name}", member.name));
                }
            }
        }
    }
    for wall in walls.iter().filter(|wall| !is_member(wall.name)) {
        problems.push(format!("the table of walls names {}, which is not in the workspace", wall.name));
    }
    problems
}

/// Says by which way [`PURE`] reaches a crate that it may not know.
fn impure_dependencies(metadata: &Metadata) -> Vec<String> {
    let Some(start) = metadata.members().into_iter().find(|member| member.name == PURE) else {
        return Vec::new();
    };
    let mut problems = Vec::new();
    let direct = start.dependencies.iter().filter(|dependency| dependency.kind.is_none());
    for dependency in direct.filter(|dependency| MAKES_RANDOM.contains(&dependency.name.as_str())) {
        problems.push(format!("{PURE} makes no random numbers, but depends on {}", dependency.name));
    }

    // Breadth first, so that the way shown is a shortest one.
    let mut reached_from: HashMap<&str, &str> = HashMap::new();
    let mut pending = VecDeque::from([start.id.as_str()]);
    while let Some(id) = pending.pop_front() {
        for dep in metadata.ordinary_deps(id) {
            let Some(package) = metadata.package(dep) else {
                continue;
            };
            if dep == start.id || reached_from.contains_key(dep) {
                continue;
            }
            reached_from.insert(dep, id);
            if DOES_IO.contains(&package.name.as_str()) {
                let way = way_to(metadata, &reached_from, package);
                problems.push(format!("{PURE} does no I/O, but depends on {}: {way}", package.name));
                // What lies behind it is its business, not a problem of its own.
                continue;
            }
            pending.push_back(dep);
        }
    }
    problems
}

fn way_to(metadata: &Metadata, reached_from: &HashMap<&str, &str>, end: &Package) -> String {
    let mut names = vec![end.name.as_str()];
    let mut id = end.id.as_str();
    while let Some(before) = reached_from.get(id) {
        id = before;
        names.extend(metadata.package(id).map(|package| package.name.as_str()));
    }
    names.reverse();
    names.join(" → ")
}

fn opens_with_docs(text: &str) -> bool {
    text.lines().find(|line| !line.trim().is_empty()).is_some_and(|line| line.starts_with("//!"))
}

fn is_test_file(crate_dir: &Path, path: &Path) -> bool {
    !path.starts_with(crate_dir.join("src")) || path.ends_with("tests.rs")
}

/// Returns `line: reason` for each line that uses what [`PURE`] leaves alone.
/// Comments and inline tests may say and do what they like.
fn impure_lines(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim() == "#[cfg(test)]" {
            break;
        }
        let code = line.split("//").next().unwrap_or_default();
        for (word, reason) in IMPURE_STD.iter().filter(|(word, _)| code.contains(word)) {
            found.push(format!("{} {PURE} {reason}: `{word}`", index + 1));
        }
    }
    found
}

#[cfg(test)]
mod tests;
