//! Files that a task comes with, put beneath its workspace without following a link.

use std::{
    fs::File,
    io::Write as _,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{AtFlags, Mode, OFlags},
    io::Errno,
};

/// The directory for attachments, one name a directory.
const ABOVE: [&str; 2] = [".sess", "attachments"];

/// Puts the files into a new directory `.sess/attachments/<name>`, all of them or none; they are
/// on the disk when this returns. Only this user can read them.
pub fn put(workspace: &Path, name: &str, files: &[(&str, &[u8])]) -> std::io::Result<()> {
    let above = open_above(workspace, true)?;
    rustix::fs::mkdirat(&above, name, Mode::RWXU)?;
    let filled = open_dir(&above, name).and_then(|dir| {
        fill(&dir, files)?;
        rustix::fs::fsync(&dir)?;
        Ok(rustix::fs::fsync(&above)?)
    });
    if filled.is_err() {
        let _best_effort = remove_from(&above, name, files.iter().map(|(file, _)| *file));
    }
    filled
}

/// Takes the directory and these files away again.
pub fn remove<'a>(workspace: &Path, name: &str, files: impl Iterator<Item = &'a str>) -> std::io::Result<()> {
    remove_from(&open_above(workspace, false)?, name, files)
}

/// Takes the directory away with the files in it, if it is there; what else was put there stays.
pub fn remove_all(workspace: &Path, name: &str) -> std::io::Result<()> {
    let above = match open_above(workspace, false) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        above => above?,
    };
    let dir = match open_dir(&above, name) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        dir => dir?,
    };
    let mut files = Vec::new();
    for entry in rustix::fs::Dir::read_from(&dir)? {
        let entry = entry?;
        if entry.file_type() == rustix::fs::FileType::RegularFile {
            files.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    remove_from(&above, name, files.iter().map(String::as_str))
}

/// Returns where attachments are, as seen from the workspace.
pub fn relative_dir(name: &str) -> String {
    format!("{}/{}/{name}", ABOVE[0], ABOVE[1])
}

fn open_above(workspace: &Path, is_made: bool) -> std::io::Result<OwnedFd> {
    // The person chose the workspace: a link there is theirs.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut dir = rustix::fs::open(workspace, flags, Mode::empty())?;
    for name in ABOVE {
        if is_made {
            match rustix::fs::mkdirat(&dir, name, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        dir = open_dir(&dir, name)?;
    }
    Ok(dir)
}

fn open_dir(above: impl AsFd, name: &str) -> std::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(above, name, flags, Mode::empty())?)
}

fn fill(dir: &OwnedFd, files: &[(&str, &[u8])]) -> std::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for (name, content) in files {
        let file = rustix::fs::openat(dir, *name, flags, Mode::RUSR | Mode::WUSR)?;
        let mut file = File::from(file);
        file.write_all(content)?;
        file.sync_all()?;
    }
    Ok(())
}

fn remove_from<'a>(above: &OwnedFd, name: &str, files: impl Iterator<Item = &'a str>) -> std::io::Result<()> {
    let dir = open_dir(above, name)?;
    for file in files {
        match rustix::fs::unlinkat(&dir, file, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(rustix::fs::unlinkat(above, name, AtFlags::REMOVEDIR)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::symlink_metadata(path).expect("there").permissions().mode() & 0o777
    }

    #[test]
    fn attachments_are_for_this_user_alone_and_go_again() {
        let workspace = tempfile::tempdir().expect("a directory");
        put(workspace.path(), "n1", &[("a.txt", b"one"), ("b", b"")]).expect("put");
        let dir = workspace.path().join(relative_dir("n1"));
        assert_eq!((mode(&dir), mode(&dir.join("a.txt"))), (0o700, 0o600));
        assert_eq!(std::fs::read(dir.join("a.txt")).expect("readable"), b"one");
        remove(workspace.path(), "n1", ["a.txt", "b"].into_iter()).expect("removed");
        assert!(!dir.exists());
    }

    #[test]
    fn all_attachments_go_with_their_task_whatever_they_are_called() {
        let workspace = tempfile::tempdir().expect("a directory");
        remove_all(workspace.path(), "n1").expect("nothing is there");
        put(workspace.path(), "n1", &[("a.txt", b"one"), ("b", b"")]).expect("put");
        put(workspace.path(), "n2", &[("a.txt", b"one")]).expect("put");
        remove_all(workspace.path(), "n1").expect("removed");
        assert!(!workspace.path().join(relative_dir("n1")).exists());
        assert!(workspace.path().join(relative_dir("n2")).join("a.txt").exists());
    }

    #[test]
    fn attachments_that_cannot_all_be_put_leave_nothing() {
        let workspace = tempfile::tempdir().expect("a directory");
        put(workspace.path(), "n1", &[("a", b"one"), ("a", b"two")]).expect_err("twice the same");
        assert!(!workspace.path().join(relative_dir("n1")).exists());
    }

    #[test]
    fn no_link_leads_attachments_elsewhere() {
        let (workspace, outside) =
            (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("another"));
        std::os::unix::fs::symlink(outside.path(), workspace.path().join(".sess")).expect("a link");
        put(workspace.path(), "n1", &[("a", b"one")]).expect_err("a link");
        std::fs::remove_file(workspace.path().join(".sess")).expect("removed");
        std::fs::create_dir(workspace.path().join(".sess")).expect("made");
        std::os::unix::fs::symlink(outside.path(), workspace.path().join(".sess/attachments"))
            .expect("a link");
        put(workspace.path(), "n1", &[("a", b"one")]).expect_err("a link");
        assert_eq!(std::fs::read_dir(outside.path()).expect("readable").count(), 0);
    }
}
