//! Which repository a directory belongs to.

use std::{
    fs,
    path::{Component, Path, PathBuf},
};

/// A repository with all its worktrees, also those whose directories are gone.
pub struct Repository {
    common: PathBuf,
    gone: Vec<PathBuf>,
}

impl Repository {
    /// Returns the repository around a directory.
    pub fn around(dir: &Path) -> Option<Self> {
        let common = common_dir(dir)?;
        let gone = worktrees(dir).into_iter().filter(|tree| !tree.join(".git").exists()).collect();
        Some(Self { common, gone })
    }

    /// Tells whether a directory is of it, or was.
    pub fn has(&self, dir: &Path) -> bool {
        let now = common_dir(dir);
        // Where a worktree was there may be another repository by now; one around it never was its own.
        let is_other = |tree: &Path| now.as_ref().is_some_and(|now| now.starts_with(tree));
        let was_tree = |tree: &PathBuf| dir.starts_with(tree) && !is_other(tree);
        now.as_ref() == Some(&self.common) || self.gone.iter().any(was_tree)
    }
}

/// Returns the directory that all worktrees of a repository share, for a directory inside one.
///
/// Worktrees count as one repository. A directory that is gone belongs to the repository
/// around the nearest one that is left.
fn common_dir(dir: &Path) -> Option<PathBuf> {
    dir.ancestors().find_map(|dir| {
        let git = dir.join(".git");
        let kind = fs::symlink_metadata(&git).ok()?;
        if kind.is_dir() {
            return git.canonicalize().ok();
        }
        // A worktree or a submodule: one line names where its own part lies.
        let pointer = fs::read_to_string(&git).ok()?;
        let own = dir.join(pointer.strip_prefix("gitdir:")?.trim());
        match fs::read_to_string(own.join("commondir")) {
            Ok(common) => own.join(common.trim()).canonicalize().ok(),
            Err(_) => own.canonicalize().ok(),
        }
    })
}

/// Returns the work trees of the repository around a directory.
pub fn worktrees(dir: &Path) -> Vec<PathBuf> {
    let Some(common) = common_dir(dir) else { return Vec::new() };
    let main = common.file_name().filter(|name| *name == ".git").and_then(|_| common.parent());
    let own_parts = fs::read_dir(common.join("worktrees")).into_iter().flatten().flatten();
    let linked = own_parts.filter_map(|part| {
        // It names the worktree's `.git`.
        let git = fs::read_to_string(part.path().join("gitdir")).ok()?;
        plain(&part.path().join(git.trim())).parent().map(Path::to_owned)
    });
    main.map(Path::to_owned).into_iter().chain(linked).collect()
}

/// Returns a path without `..`, which a worktree's may have; what is gone cannot be asked for its own.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => plain.push(part),
        }
    }
    plain
}

/// Returns the branch that is checked out in the repository around a directory.
pub fn branch(dir: &Path) -> Option<String> {
    let git = dir.ancestors().map(|dir| dir.join(".git")).find(|git| git.exists())?;
    let own = match fs::read_to_string(&git) {
        Ok(pointer) => git.parent()?.join(pointer.strip_prefix("gitdir:")?.trim()),
        Err(_) => git,
    };
    let head = fs::read_to_string(own.join("HEAD")).ok()?;
    head.trim().strip_prefix("ref: refs/heads/").map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worktrees_share_one_directory_and_a_lost_one_belongs_to_what_is_around() {
        let temp = tempfile::tempdir().expect("a directory");
        let root = temp.path().canonicalize().expect("there");
        let main = root.join("main/.git");
        fs::create_dir_all(main.join("worktrees/w")).expect("made");
        fs::write(main.join("worktrees/w/commondir"), "../..\n").expect("written");
        fs::create_dir_all(root.join("w/src")).expect("made");
        fs::write(root.join("w/.git"), format!("gitdir: {}\n", main.join("worktrees/w").display()))
            .expect("written");
        assert_eq!(common_dir(&root.join("main")), Some(main.clone()));
        assert_eq!(common_dir(&root.join("w/src")), Some(main.clone()));
        assert_eq!(common_dir(&root.join("main/gone/deeper")), Some(main.clone()));
        assert_eq!(common_dir(&root.join("elsewhere")), None);
        fs::write(main.join("HEAD"), "ref: refs/heads/main\n").expect("written");
        fs::write(main.join("worktrees/w/HEAD"), "ref: refs/heads/fix/it\n").expect("written");
        assert_eq!(branch(&root.join("main")).as_deref(), Some("main"));
        assert_eq!(branch(&root.join("w/src")).as_deref(), Some("fix/it"));
        fs::write(main.join("HEAD"), "0123abcd\n").expect("written");
        assert_eq!(branch(&root.join("main")), None, "no branch is checked out");
    }

    #[test]
    fn a_worktree_that_is_gone_is_still_of_its_repository() {
        let temp = tempfile::tempdir().expect("a directory");
        let root = temp.path().canonicalize().expect("there");
        let part = root.join("outer/main/.git/worktrees/w");
        fs::create_dir_all(&part).expect("made");
        fs::create_dir_all(root.join("outer/.git")).expect("made");
        fs::write(part.join("gitdir"), format!("{}\n", root.join("outer/w/.git").display()))
            .expect("written");
        let main = Repository::around(&root.join("outer/main")).expect("a repository");
        assert!(main.has(&root.join("outer/w")) && main.has(&root.join("outer/w/src")));
        assert!(!main.has(&root.join("outer/w2")) && !main.has(&root.join("outer")));
        fs::write(part.join("gitdir"), "../../../../w/.git\n").expect("written");
        assert!(
            Repository::around(&root.join("outer/main")).is_some_and(|main| main.has(&root.join("outer/w")))
        );
        fs::create_dir_all(root.join("outer/w/new/.git")).expect("made");
        assert!(!main.has(&root.join("outer/w/new/src")), "it has become another one");
        assert!(main.has(&root.join("outer/w/src")));
    }
}
