//! Merges in memory, in which the directory of sessions has no part: it is the base's.
//!
//! Git would take a plan that came there for a file of the user's that was renamed, when the two are alike, and put
//! into it what the other side made of that file.

use sess_core::mention::first_of;

use crate::{
    Error, Kind, Oid, Repo, Result, Seen, Slug, Work, git::words_of, landing::PATHS_SHOWN_MAX,
    state::SESSIONS_DIR,
};

/// Whose commits are that are only there to be merged in memory.
const NOBODY: [(&str, &str); 6] = [
    ("GIT_AUTHOR_NAME", "nobody"),
    ("GIT_AUTHOR_EMAIL", "nobody"),
    ("GIT_AUTHOR_DATE", "@0 +0000"),
    ("GIT_COMMITTER_NAME", "nobody"),
    ("GIT_COMMITTER_EMAIL", "nobody"),
    ("GIT_COMMITTER_DATE", "@0 +0000"),
];

/// What became of a merge.
pub(crate) enum Merge {
    /// The tree that has both sides.
    Clean(Oid),
    /// What does not go together.
    Conflicts(Vec<String>),
}

impl Work {
    /// Merges a session's branch with the base in memory.
    pub(crate) fn merged(&self, slug: &Slug, seen: &Seen, tip: &Oid) -> Result<Oid> {
        let base = &seen.view.base;
        let paths = match self.repo.merged_apart(base, tip)? {
            Merge::Clean(tree) => {
                return self.repo.with_sessions(&tree, self.repo.sessions_of(base)?.as_ref());
            }
            Merge::Conflicts(paths) => paths,
        };
        let shown = first_of(&paths, PATHS_SHOWN_MAX);
        let place = crate::quoted(self.workspace_path(slug).display());
        let how = self.repo.how_to_merge(tip, base, &paths)?;
        Err(Error::new(Kind::Conflict, format!("{slug} and {} do not go together: {shown}", self.repo.base))
            .next(format!("git -C {place} merge {how}{}", base.short())))
    }
}

impl Repo {
    /// Merges two commits without their directories of sessions; returns a tree that has none.
    pub(crate) fn merged_apart(&self, one: &Oid, other: &Oid) -> Result<Merge> {
        let bases = self.merge_bases(["--all"], &[one, other])?;
        // More than one are merged in turn, by what they have in common.
        let root = match bases.as_slice() {
            [_, _, ..] => self.merge_bases(["--octopus"], &bases.iter().collect::<Vec<_>>())?,
            _ => Vec::new(),
        };
        let root = root.first().map(|root| self.apart_from_sessions(root, &[])).transpose()?;
        let bases: Vec<Oid> = bases
            .iter()
            .map(|base| self.apart_from_sessions(base, &root.iter().collect::<Vec<_>>()))
            .collect::<Result<_>>()?;
        let bases: Vec<&Oid> = bases.iter().collect();
        let [one, other] = [self.apart_from_sessions(one, &bases)?, self.apart_from_sessions(other, &bases)?];
        self.merge_trees(&one, &other)
    }

    /// Returns what a person has to tell `git merge` so that it finds the same conflicts: it sees the directory of
    /// sessions, and what it takes for renamed there would swallow some.
    pub(crate) fn how_to_merge(&self, ours: &Oid, theirs: &Oid, paths: &[String]) -> Result<&'static str> {
        let is_same = match self.merge_trees(ours, theirs)? {
            Merge::Clean(_) => false,
            Merge::Conflicts(found) => paths.iter().all(|path| found.contains(path)),
        };
        // The usual strategy heeds `no-renames` from git 2.50 on, where the two are one.
        Ok(if is_same { "" } else { "-s recursive -X no-renames " })
    }

    fn merge_trees(&self, one: &Oid, other: &Oid) -> Result<Merge> {
        let asked = ["merge-tree", "--write-tree", "--name-only", "--no-messages", "-z"];
        let ended = self.git.run(asked.into_iter().chain([one.as_str(), other.as_str()]))?;
        let text = ended.text();
        let mut parts = text.split('\0').filter(|part| !part.is_empty());
        match ended.code {
            Some(0) => {
                parts.next().unwrap_or_default().trim().parse().map(Merge::Clean).map_err(Error::failed)
            }
            Some(1) => {
                let mut paths: Vec<String> = parts.skip(1).map(str::to_owned).collect();
                paths.dedup();
                Ok(Merge::Conflicts(paths))
            }
            _ => Err(Error::failed(format!("git merge-tree failed: {}", words_of(&ended.stderr)))
                .next(if self.is_shallow { "git fetch --unshallow" } else { "sess work doctor" })),
        }
    }

    fn merge_bases<const N: usize>(&self, how: [&str; N], commits: &[&Oid]) -> Result<Vec<Oid>> {
        let asked = ["merge-base"].into_iter().chain(how);
        // It fails when they have nothing in common.
        let told = self.git.run(asked.chain(commits.iter().map(|commit| commit.as_str())))?;
        Ok(told.text().lines().filter_map(|oid| oid.parse().ok()).collect())
    }

    /// Makes a commit of what another one has outside of the directory of sessions. Nobody made it at any time: whoever
    /// looks again finds it there.
    fn apart_from_sessions(&self, commit: &Oid, parents: &[&Oid]) -> Result<Oid> {
        let tree = self.with_sessions(commit, None)?;
        let parents = parents.iter().flat_map(|parent| ["-p", parent.as_str()]);
        let asked = ["commit-tree", tree.as_str(), "-m", "side"].into_iter().chain(parents);
        let asked: Vec<&str> = asked.collect();
        let ended = self.git.run_with(&asked, None, &NOBODY, None)?;
        match ended.is_ok() {
            true => ended.text().trim().parse().map_err(Error::failed),
            false => Err(crate::git::failed(&asked, &ended)),
        }
    }

    /// Returns the directory of sessions of a commit or tree.
    pub(crate) fn sessions_of(&self, from: &Oid) -> Result<Option<Oid>> {
        let asked = ["ls-tree", "-z", "--full-tree", "--end-of-options", from.as_str(), "--", SESSIONS_DIR];
        let told = self.git.text(asked)?;
        Ok(told.split_once('\t').and_then(|(head, _)| head.strip_prefix("040000 tree ")?.parse().ok()))
    }

    /// Returns the tree of a commit or tree with another directory of sessions, or with none.
    pub(crate) fn with_sessions(&self, from: &Oid, sessions: Option<&Oid>) -> Result<Oid> {
        let (outer, inner) = SESSIONS_DIR.split_once('/').expect("it is in a directory");
        let asked = ["ls-tree", "-z", "--full-tree", "--end-of-options", from.as_str(), "--", outer];
        let told = self.git.text(asked)?;
        let dir = told.split_once('\t').and_then(|(head, _)| head.strip_prefix("040000 tree ")?.parse().ok());
        let dir: Option<Oid> = dir;
        let dir = match (&dir, sessions) {
            // Whatever is there by that name is no directory of ours.
            (None, None) => return self.git.oid(["rev-parse", &format!("{from}^{{tree}}")]),
            _ => self.with_entry(dir.as_ref(), inner, sessions)?,
        };
        match self.with_entry(Some(from), outer, dir.as_ref())? {
            Some(tree) => Ok(tree),
            None => self.git.feed_oid(["mktree"], b""),
        }
    }

    /// Returns a directory with another one in it by a name, or with nothing by that name; `None` when it is empty.
    fn with_entry(&self, dir: Option<&Oid>, name: &str, new: Option<&Oid>) -> Result<Option<Oid>> {
        let mut input = Vec::new();
        if let Some(dir) = dir {
            let asked = ["ls-tree", "-z", "--full-tree", "--end-of-options", dir.as_str()];
            let told = self.git.run(asked)?;
            if !told.is_ok() {
                return Err(crate::git::failed(&asked, &told));
            }
            let is_other = |line: &&[u8]| {
                let path = line.iter().position(|byte| *byte == b'\t').map(|tab| &line[tab + 1..]);
                path.is_some_and(|path| path != name.as_bytes())
            };
            for line in told.stdout.split(|byte| *byte == 0).filter(is_other) {
                input.extend_from_slice(line);
                input.push(0);
            }
        }
        if let Some(new) = new {
            input.extend(format!("040000 tree {new}\t{name}\0").into_bytes());
        }
        // What a partial clone does not have is in no way of it.
        let asked = ["mktree", "-z", "--missing"];
        if input.is_empty() { Ok(None) } else { self.git.feed_oid(asked, &input).map(Some) }
    }
}
