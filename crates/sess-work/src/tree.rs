//! Work sessions as a commit shows them, and commits that change that without any checkout.

use std::collections::BTreeMap;

use tempfile::TempDir;

use crate::{Error, Git, Oid, Repo, Result, Slug, State, state::SESSIONS_DIR};

/// A file of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub mode: String,
    pub oid: Oid,
}

/// A work session in a commit: the directory it is in, and its files by their names.
#[derive(Clone, Debug)]
pub struct Entry {
    pub state: State,
    pub files: BTreeMap<String, File>,
}

/// All work sessions of a commit.
#[derive(Clone, Debug)]
pub struct Tree {
    pub commit: Oid,
    pub entries: BTreeMap<Slug, Entry>,
    /// Every file below the directory of sessions, from the top of the repository.
    pub(crate) files: BTreeMap<String, File>,
    /// What is in a second place as well, or has a name that no session may have.
    pub odd: Vec<String>,
}

/// A change of one file, from the top of the repository.
#[derive(Clone, Debug)]
pub(crate) enum Edit {
    Put(String, File),
    /// Puts a plain file there that is not in the repository yet.
    Write(String, String),
    Remove(String),
}

pub(crate) const PLAIN: &str = "100644";

/// Returns the mode that a file of a checkout has by the one that git keeps.
pub(crate) fn mode_here(mode: &str) -> u32 {
    if mode == PLAIN { 0o644 } else { 0o755 }
}

impl Tree {
    pub fn state(&self, slug: &Slug) -> Option<State> {
        self.entries.get(slug).map(|entry| entry.state)
    }

    /// Returns the edits that move a session to another state.
    pub(crate) fn moved(&self, slug: &Slug, to: State) -> Vec<Edit> {
        let Some(entry) = self.entries.get(slug).filter(|entry| entry.state != to) else { return Vec::new() };
        let (old, new) = (entry.state.dir_of(slug), to.dir_of(slug));
        let files = entry.files.iter();
        files
            .flat_map(|(name, file)| {
                [Edit::Remove(format!("{old}/{name}")), Edit::Put(format!("{new}/{name}"), file.clone())]
            })
            .collect()
    }

    /// Returns the edits that put these files of a session, by their names, into the place of those that it has here.
    pub(crate) fn replaced(
        &self,
        slug: &Slug,
        to: State,
        files: impl IntoIterator<Item = (String, File)>,
    ) -> Vec<Edit> {
        let mut edits = Vec::new();
        if let Some(entry) = self.entries.get(slug) {
            let dir = entry.state.dir_of(slug);
            edits.extend(entry.files.keys().map(|name| Edit::Remove(format!("{dir}/{name}"))));
        }
        let dir = to.dir_of(slug);
        edits.extend(files.into_iter().map(|(name, file)| Edit::Put(format!("{dir}/{name}"), file)));
        edits
    }
}

impl Repo {
    /// Lists the work sessions of a commit.
    pub fn tree(&self, commit: &Oid) -> Result<Tree> {
        let files = self.files_of(commit.as_str(), SESSIONS_DIR)?;
        let mut tree = Tree { commit: commit.clone(), entries: BTreeMap::new(), files, odd: Vec::new() };
        // The state that work has come to counts, if somebody put a session into two.
        let by_progress =
            [State::Drafting, State::Planned, State::Abandoned, State::Active, State::Completed];
        for state in by_progress {
            let prefix = format!("{SESSIONS_DIR}/{state}/");
            for (path, file) in
                tree.files.range(prefix.clone()..).take_while(|(path, _)| path.starts_with(&prefix))
            {
                let Some((name, rest)) = path[prefix.len()..].split_once('/') else { continue };
                let Ok(slug) = name.parse::<Slug>() else {
                    tree.odd.push(format!("{prefix}{name}"));
                    continue;
                };
                let entry = tree
                    .entries
                    .entry(slug.clone())
                    .or_insert_with(|| Entry { state, files: BTreeMap::new() });
                if entry.state != state {
                    tree.odd.push(entry.state.dir_of(&slug));
                    *entry = Entry { state, files: BTreeMap::new() };
                }
                entry.files.insert(rest.to_owned(), file.clone());
            }
        }
        tree.odd.dedup();
        Ok(tree)
    }

    /// Returns the files below a directory of a commit, by their paths from the top.
    pub(crate) fn files_of(&self, commit: &str, dir: &str) -> Result<BTreeMap<String, File>> {
        let asked = ["ls-tree", "-r", "-z", "--full-tree", "--end-of-options", commit, "--", dir];
        let told = self.git.run(asked)?;
        if !told.is_ok() {
            return Err(crate::git::failed(&asked, &told));
        }
        let text = told.text();
        let lines = text.split('\0').filter_map(|line| line.split_once('\t'));
        let file = |head: &str| {
            let mut words = head.split(' ');
            let (mode, oid) = (words.next()?.to_owned(), words.nth(1)?.parse().ok()?);
            Some(File { mode, oid })
        };
        Ok(lines.filter_map(|(head, path)| Some((path.to_owned(), file(head)?))).collect())
    }

    /// Returns the files of a session that is worked on, as a commit of its branch has them, by their names.
    pub(crate) fn own_files(&self, slug: &Slug, commit: &Oid) -> Result<BTreeMap<String, File>> {
        let dir = State::Active.dir_of(slug);
        let files = self.files_of(commit.as_str(), &dir)?.into_iter();
        let name = |path: &str| Some(path.strip_prefix(&dir)?.strip_prefix('/')?.to_owned());
        Ok(files.filter_map(|(path, file)| Some((name(&path)?, file))).collect())
    }

    /// Reads a file of a commit as text; `None` when it is not there.
    pub(crate) fn text_at(&self, commit: &Oid, path: &str) -> Result<Option<String>> {
        let mut read = crate::refs::read_all(&self.git, &[format!("{commit}:{path}")])?;
        Ok(read.pop().flatten().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    pub(crate) fn text_of(&self, blob: &Oid) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.bytes_of(blob)?).into_owned())
    }

    pub(crate) fn bytes_of(&self, blob: &Oid) -> Result<Vec<u8>> {
        let mut read = crate::refs::read_all(&self.git, &[blob.to_string()])?;
        read.pop().flatten().ok_or_else(|| Error::failed(format!("the object {blob} is missing")))
    }

    /// Writes a text into the repository, to be put into a tree.
    pub(crate) fn file(&self, text: &str) -> Result<File> {
        Ok(File { mode: PLAIN.to_owned(), oid: self.write_blob(text.as_bytes())? })
    }

    /// Returns git with an index of our own that has a commit or tree, as long as the directory of it is kept.
    pub(crate) fn index_of(&self, from: &Oid) -> Result<(TempDir, Git)> {
        let scratch = tempfile::Builder::new()
            .prefix("index-")
            .tempdir_in(self.own_dir()?)
            .map_err(|error| Error::failed(format!("cannot write beside the repository: {error}")))?;
        let git = self.git.with_index(&scratch.path().join("index"));
        git.text(["read-tree", from.as_str()])?;
        Ok((scratch, git))
    }

    /// Returns the tree of a commit or tree after some edits. No checkout and no index of the user's has a part in it.
    pub(crate) fn edited(&self, from: &Oid, edits: &[Edit]) -> Result<Oid> {
        let (_scratch, git) = self.index_of(from)?;
        let mut input = Vec::new();
        // What is removed goes first: a file may take the place of a directory.
        for edit in edits {
            if let Edit::Remove(path) = edit {
                input.extend(format!("0 {}\t{path}\0", "0".repeat(from.as_str().len())).into_bytes());
            }
        }
        for edit in edits {
            let (path, File { mode, oid }) = match edit {
                Edit::Put(path, file) => (path, file.clone()),
                Edit::Write(path, text) => (path, self.file(text)?),
                Edit::Remove(_) => continue,
            };
            input.extend(format!("{mode} {oid}\t{path}\0").into_bytes());
        }
        git.feed(["update-index", "-z", "--index-info"], &input)?;
        git.oid(["write-tree"])
    }

    /// Commits a tree, in the name of whoever git says.
    pub(crate) fn commit_tree(
        &self,
        tree: impl std::fmt::Display,
        parents: &[&Oid],
        message: &str,
    ) -> Result<Oid> {
        let mut args = vec!["commit-tree".to_owned(), tree.to_string()];
        for parent in parents {
            args.extend(["-p".to_owned(), parent.to_string()]);
        }
        args.extend(["-F".to_owned(), "-".to_owned()]);
        self.git.feed_oid(&args, message.as_bytes())
    }

    /// Returns the last commit that two share; `None` when they share none, or this clone does not have them.
    pub(crate) fn merge_base(&self, one: &Oid, other: &Oid) -> Result<Option<Oid>> {
        let told = self.git.run(["merge-base", one.as_str(), other.as_str()])?;
        Ok(told.text().lines().next().and_then(|oid| oid.parse().ok()))
    }

    /// As [`Self::is_ancestor`], of any of several.
    pub(crate) fn is_before_any(&self, older: &Oid, newer: &[Oid]) -> Result<bool> {
        for newer in newer {
            if self.is_ancestor(older, newer)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether one commit is among those before another, or is that one.
    pub(crate) fn is_ancestor(&self, older: &Oid, newer: &Oid) -> Result<bool> {
        let asked = ["merge-base", "--is-ancestor", older.as_str(), newer.as_str()];
        // It fails for an object that this clone does not have: of a rewritten base, or in a shallow clone.
        Ok(self.git.run(asked)?.is_ok())
    }
}
