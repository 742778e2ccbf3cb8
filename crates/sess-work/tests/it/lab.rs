//! Repositories of their own, with a remote that is a bare one on the same disk.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use sess_core::Timestamp;
use sess_work::{ClaimOptions, Draft, Record, Repo, Settings, Slug, Who, Work, Workspace};
use tempfile::TempDir;

/// A remote and its clones.
pub struct Lab {
    dir: TempDir,
}

impl Lab {
    /// A remote whose `main` has one commit.
    pub fn new() -> Self {
        let lab = Self { dir: tempfile::tempdir().expect("a directory") };
        lab.git(lab.path(), &["init", "--quiet", "--bare", "--initial-branch=main", "hub.git"]);
        let first = lab.clone_named("first");
        std::fs::write(first.join("readme.md"), "# A project\n").expect("written");
        lab.git(&first, &["add", "."]);
        lab.git(&first, &["commit", "--quiet", "-m", "first"]);
        lab.git(&first, &["push", "--quiet", "origin", "HEAD:main"]);
        lab
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn hub(&self) -> PathBuf {
        self.path().join("hub.git")
    }

    pub fn clone_named(&self, name: &str) -> PathBuf {
        self.git(self.path(), &["clone", "--quiet", "hub.git", name]);
        let path = self.path().join(name);
        self.git(&path, &["config", "user.name", &format!("User {name}")]);
        self.git(&path, &["config", "user.email", &format!("{name}@example.com")]);
        path
    }

    /// Runs git as a person would; returns what it printed.
    #[track_caller]
    pub fn git(&self, dir: &Path, args: &[&str]) -> String {
        let ended = Command::new("git")
            .args(args)
            .current_dir(dir)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .output()
            .expect("git runs");
        assert!(ended.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&ended.stderr));
        String::from_utf8_lossy(&ended.stdout).trim_end().to_owned()
    }

    /// Returns the files of a branch of the remote below a directory.
    pub fn files(&self, branch: &str, dir: &str) -> Vec<String> {
        let told = self.git(&self.hub(), &["ls-tree", "-r", "--name-only", branch, "--", dir]);
        told.lines().map(str::to_owned).collect()
    }
}

#[expect(clippy::disallowed_methods, reason = "a test wires the clock like the binary does")]
pub fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    Timestamp::from_millis(i64::try_from(since.as_millis()).expect("fits")).expect("in range")
}

pub fn work_with(dir: &Path, settings: Settings) -> Work {
    work_at(dir, settings, now)
}

/// A caller with a clock of their own.
pub fn work_at(dir: &Path, settings: Settings, now: fn() -> Timestamp) -> Work {
    let who = Who { agent: None, session: None, host: "host".to_owned(), pid: std::process::id() };
    Work::new(Repo::find(dir).expect("a repository"), settings, who, now).expect("a caller")
}

pub fn work(dir: &Path) -> Work {
    work_with(dir, Settings::default())
}

/// Drafts a session with all that it needs, and makes it ready.
pub fn planned(work: &Work, title: &str) -> Slug {
    let draft = Draft {
        title: title.to_owned(),
        context: Some("Because.".to_owned()),
        criteria: vec!["It works".to_owned()],
        ..Draft::default()
    };
    let slug = work.draft(None, &draft, None).expect("drafted");
    work.ready(&slug).expect("ready");
    slug
}

pub fn bare() -> ClaimOptions {
    ClaimOptions { workspace: Workspace::None, ..ClaimOptions::default() }
}

/// Takes a session and does no more, as who is killed then does; again when somebody else was faster.
pub fn take(work: &Work, slug: &Slug) -> sess_work::Result<Record> {
    loop {
        if let Some((record, _)) = work.take_seen(slug, &mut work.see()?, &bare())? {
            return Ok(record);
        }
    }
}
