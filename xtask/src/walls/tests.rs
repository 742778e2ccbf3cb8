//! Small workspaces, written as text, and what the walls say about them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;

/// Builds a workspace from lines such as `sess-app -> sess-store, dev tokio`.
/// Crates named on the left are members; the others come from outside, and a
/// line that starts with `outside` says what one of those depends on.
fn workspace(lines: &[&str]) -> Metadata {
    let mut names = BTreeSet::new();
    let mut members = BTreeSet::new();
    let mut edges: Vec<(&str, &str, Option<&str>)> = Vec::new();
    for line in lines {
        let (left, right) = line.split_once("->").expect("an arrow in each line");
        let left = left.trim();
        let from = left.trim_start_matches("outside ");
        names.insert(from);
        if from == left {
            members.insert(from);
        }
        for word in right.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let (kind, to) = word.split_once(' ').map_or((None, word), |(kind, to)| (Some(kind), to));
            names.insert(to);
            edges.push((from, to, kind));
        }
    }
    let edges_of = |name: &str| -> Vec<(&str, Option<&str>)> {
        edges.iter().filter(|edge| edge.0 == name).map(|edge| (edge.1, edge.2)).collect()
    };
    let packages: Vec<Value> = names
        .iter()
        .map(|name| {
            let dependencies: Vec<Value> =
                edges_of(name).iter().map(|(to, kind)| json!({"name": to, "kind": kind})).collect();
            json!({"id": name, "name": name, "manifest_path": "", "dependencies": dependencies})
        })
        .collect();
    let nodes: Vec<Value> = names
        .iter()
        .map(|name| {
            let deps: Vec<Value> = edges_of(name)
                .iter()
                .map(|(to, kind)| json!({"pkg": to, "dep_kinds": [{"kind": kind}]}))
                .collect();
            json!({"id": name, "deps": deps})
        })
        .collect();
    serde_json::from_value(
        json!({"packages": packages, "workspace_members": members, "resolve": {"nodes": nodes}}),
    )
    .expect("the shape that cargo metadata has")
}

const SMALL: &[Wall] = &[
    Wall { name: "sess-core", uses: &[], tests_use: &[] },
    Wall { name: "sess-store", uses: &["sess-core"], tests_use: &[] },
    Wall { name: "sess", uses: &["sess-core"], tests_use: &["sess-store"] },
];

#[track_caller]
fn check_walls(lines: &[&str], expected: &[&str]) {
    assert_eq!(dependencies_between(SMALL, &workspace(lines)), expected);
}

#[track_caller]
fn check_purity(lines: &[&str], expected: &[&str]) {
    assert_eq!(impure_dependencies(&workspace(lines)), expected);
}

#[test]
fn what_the_table_allows_passes() {
    check_walls(
        &["sess-core -> serde", "sess-store -> sess-core, rusqlite", "sess -> sess-core, dev sess-store"],
        &[],
    );
    check_walls(&["sess-core ->", "sess-store -> dev sess-core, build cc", "sess ->"], &[]);
}

#[test]
fn a_dependency_across_a_wall_is_named() {
    check_walls(
        &["sess-core -> sess-store", "sess-store ->", "sess -> sess-store"],
        &["sess may not depend on sess-store", "sess-core may not depend on sess-store"],
    );
    check_walls(
        &["sess-core -> build sess-store", "sess-store -> dev sess", "sess ->"],
        &["sess-core may not depend on sess-store", "sess-store's tests may not depend on sess"],
    );
}

#[test]
fn the_table_and_the_workspace_name_the_same_crates() {
    check_walls(
        &["sess-core ->", "sess-store ->", "sess ->", "sess-extra ->"],
        &["sess-extra has no row in the table of walls"],
    );
    check_walls(
        &["sess-core ->", "sess ->"],
        &["the table of walls names sess-store, which is not in the workspace"],
    );
}

#[test]
fn the_core_reaches_no_io_however_far_down() {
    check_purity(&["sess-core -> serde, dev tokio", "sess-store -> tokio"], &[]);
    check_purity(
        &["sess-core -> tokio"],
        &["sess-core does no I/O, but depends on tokio: sess-core → tokio"],
    );
    check_purity(
        &["sess-core -> a", "outside a -> b, sess-core", "outside b -> rustix", "outside rustix -> mio"],
        &["sess-core does no I/O, but depends on rustix: sess-core → a → b → rustix"],
    );
}

#[test]
fn the_core_makes_no_random_numbers_of_its_own() {
    check_purity(&["sess-core -> uuid, dev rand", "outside uuid -> getrandom"], &[]);
    check_purity(&["sess-core -> rand"], &["sess-core makes no random numbers, but depends on rand"]);
}

#[test]
fn impure_lines_are_found_outside_comments_and_tests() {
    let text = "//! Uses no std::fs.\nuse std::fs; // why\nlet t = Timestamp::now();\n\
                #[cfg(test)]\nmod tests { use std::env; }\n";
    assert_eq!(
        impure_lines(text),
        ["2 sess-core does no I/O: `std::fs`", "3 sess-core reads no clock: `Timestamp::now`"]
    );
}

#[test]
fn a_file_opens_with_what_lives_in_it() {
    assert!(opens_with_docs("\n//! Sessions.\n"));
    assert!(!opens_with_docs("use std::fs;\n//! Late.\n"));
    assert!(!opens_with_docs(""));
}
