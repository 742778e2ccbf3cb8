//! Which repositories' `sess.yaml` the person has looked at: path and hash, in the data directory.
//!
//! A file that changed since is as unknown as one that was never seen.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use sess_core::digest::sha256;

use crate::private;

pub(super) const FILE: &str = "trusted.json";
/// The version of the file. Fields are only ever added under one number.
const VERSION: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    version: u32,
    trusted: Vec<Trusted>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Trusted {
    path: PathBuf,
    sha256: String,
}

/// What is known about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    Trusted,
    /// It was trusted with other contents.
    Changed,
    Unknown,
}

/// Says whether these bytes at this path are what the person has looked at.
pub fn seen(home: &Path, path: &Path, bytes: &[u8]) -> anyhow::Result<Seen> {
    let hash = sha256(bytes);
    let record = read(home)?;
    Ok(match record.trusted.iter().find(|trusted| trusted.path == path) {
        Some(trusted) if trusted.sha256 == hash => Seen::Trusted,
        Some(_) => Seen::Changed,
        None => Seen::Unknown,
    })
}

/// Returns the main checkout of a git worktree, if a directory is the top of one.
///
/// Both have to name each other: anybody can write a file that names a repository.
pub(super) fn main_checkout(dir: &Path) -> Option<PathBuf> {
    let link = dir.join(".git");
    let told = |path: &Path| std::fs::read_to_string(path).ok();
    let own = dir.join(told(&link)?.trim_end().strip_prefix("gitdir: ")?);
    let back = own.join(told(&own.join("gitdir"))?.trim_end());
    if back.canonicalize().ok()? != link.canonicalize().ok()? {
        return None;
    }
    // Two levels above a worktree's own directory is what all of them share.
    let common = own.canonicalize().ok()?.parent()?.parent()?.to_owned();
    (common.file_name()? == ".git").then(|| common.parent().map(Path::to_owned))?
}

/// Records that the person trusts these bytes at this path.
pub fn add(home: &Path, path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let mut record = read(home)?;
    record.trusted.retain(|trusted| trusted.path != path);
    record.trusted.push(Trusted { path: path.to_owned(), sha256: sha256(bytes) });
    write(home, &record)
}

/// Forgets a path; returns whether it was known.
pub fn remove(home: &Path, path: &Path) -> anyhow::Result<bool> {
    let mut record = read(home)?;
    let before = record.trusted.len();
    record.trusted.retain(|trusted| trusted.path != path);
    let was_known = record.trusted.len() < before;
    if was_known {
        write(home, &record)?;
    }
    Ok(was_known)
}

fn read(home: &Path) -> anyhow::Result<Record> {
    let path = home.join(FILE);
    match std::fs::read(&path) {
        Ok(bytes) => {
            serde_json::from_slice(&bytes).with_context(|| format!("cannot read {}", path.display()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Ok(Record { version: VERSION, trusted: Vec::new() })
        }
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

fn write(home: &Path, record: &Record) -> anyhow::Result<()> {
    let path = home.join(FILE);
    let text = serde_json::to_string_pretty(record)? + "\n";
    private::write(&path, text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn trust_is_of_one_path_with_one_content() {
        let dir = tempfile::tempdir().expect("a directory");
        let home = dir.path().join("data");
        let (here, there) = (Path::new("/repo/sess.yaml"), Path::new("/other/sess.yaml"));
        let seen = |path, bytes: &[u8]| seen(&home, path, bytes).expect("readable");
        assert_eq!(seen(here, b"a"), Seen::Unknown);
        add(&home, here, b"a").expect("recorded");
        assert_eq!(seen(here, b"a"), Seen::Trusted);
        assert_eq!(seen(here, b"b"), Seen::Changed);
        assert_eq!(seen(there, b"a"), Seen::Unknown);
        add(&home, here, b"b").expect("recorded");
        assert_eq!(seen(here, b"a"), Seen::Changed);
        let mode = |path: &Path| path.metadata().expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(&home), mode(&home.join(FILE))), (0o700, 0o600));
        assert!(remove(&home, here).expect("written"));
        assert!(!remove(&home, here).expect("read"));
        assert_eq!(seen(here, b"b"), Seen::Unknown);
    }
}
