//! Which repository a directory belongs to.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Returns the directory that all worktrees of a repository share, for a directory inside one.
///
/// Worktrees count as one repository. A directory that is gone belongs to the repository
/// around the nearest one that is left.
pub fn common_dir(dir: &Path) -> Option<PathBuf> {
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
        part.path().join(git.trim()).parent().map(Path::to_owned)
    });
    main.map(Path::to_owned).into_iter().chain(linked).collect()
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
}
