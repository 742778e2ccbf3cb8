//! The few fields of `cargo metadata` that the checks read.
//!
//! Parsed by hand rather than with a crate: the format is stable and this is
//! all of it that is needed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// A workspace and everything it depends on.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) workspace_members: Vec<String>,
    pub(crate) resolve: Resolve,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) manifest_path: PathBuf,
    pub(crate) dependencies: Vec<Dependency>,
}

/// A dependency as the manifest declares it.
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// Absent for an ordinary dependency, else `dev` or `build`.
    pub(crate) kind: Option<String>,
}

/// The graph of packages as cargo resolved it.
#[derive(Debug, Deserialize)]
pub(crate) struct Resolve {
    pub(crate) nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Node {
    pub(crate) id: String,
    pub(crate) deps: Vec<NodeDep>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct NodeDep {
    pub(crate) pkg: String,
    pub(crate) dep_kinds: Vec<DepKind>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct DepKind {
    pub(crate) kind: Option<String>,
}

impl Metadata {
    /// Asks cargo about the workspace at `root`.
    pub(crate) fn load(root: &Path) -> Result<Self> {
        // The cargo that runs us is the one whose answer counts.
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--format-version", "1"])
            .current_dir(root)
            .output()
            .context("cannot run cargo metadata")?;
        ensure!(
            output.status.success(),
            "cargo metadata failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        serde_json::from_slice(&output.stdout).context("cannot read the answer of cargo metadata")
    }

    /// Returns the workspace's own packages, by name.
    pub(crate) fn members(&self) -> Vec<&Package> {
        let mut members: Vec<&Package> =
            self.packages.iter().filter(|package| self.workspace_members.contains(&package.id)).collect();
        members.sort_by(|a, b| a.name.cmp(&b.name));
        members
    }

    /// Returns the package with this id.
    pub(crate) fn package(&self, id: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.id == id)
    }

    /// Returns the ids that `id` needs in order to be built and run, tests aside.
    pub(crate) fn ordinary_deps(&self, id: &str) -> impl Iterator<Item = &str> {
        self.resolve
            .nodes
            .iter()
            .filter(move |node| node.id == id)
            .flat_map(|node| &node.deps)
            .filter(|dep| dep.dep_kinds.iter().any(|kind| kind.kind.is_none()))
            .map(|dep| dep.pkg.as_str())
    }
}
