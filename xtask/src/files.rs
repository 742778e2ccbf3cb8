//! Finding the repository's own files: no build output, no hidden directories.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Directories that hold what tools made or downloaded.
const FOREIGN: &[&str] = &["target", "node_modules", "installed", "corpus", "artifacts", "venv"];

/// Returns the files below `dir` whose name ends in `.extension`, sorted.
pub(crate) fn below(dir: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut pending = vec![dir.to_owned()];
    while let Some(dir) = pending.pop() {
        let entries = fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))?;
        for entry in entries {
            let entry = entry?;
            let path = entry.path();
            // Symlinks are neither: a link to a directory could lead back up.
            let kind = entry.file_type()?;
            if kind.is_dir() && !is_foreign(&path) {
                pending.push(path);
            } else if kind.is_file() && path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Reads a text file, naming it when that fails.
pub(crate) fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Shows `path` as people write it: relative to the repository root.
pub(crate) fn shown(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}

fn is_foreign(dir: &Path) -> bool {
    let name = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.starts_with('.') || FOREIGN.contains(&name)
}
