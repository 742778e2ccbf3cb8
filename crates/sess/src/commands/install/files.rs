//! Files of other programs: read whole, written as one step, through the symbolic links that lead to them.

use std::{
    ffi::OsString,
    fs::{self, DirBuilder, Permissions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use rustix::fs::{Access, access};
use tempfile::NamedTempFile;

/// The largest configuration file that is edited.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// How much of a temporary file's name is random.
const RANDOM_CHARS: usize = 6;

/// Returns the file that a path means: where its symbolic links lead, so that these stay.
pub fn target(path: &Path) -> anyhow::Result<PathBuf> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => {
            let led = fs::canonicalize(path);
            led.with_context(|| {
                format!("{} is a symbolic link that leads nowhere: mend or remove it", path.display())
            })
        }
        _ => Ok(path.to_owned()),
    }
}

/// Tells whether two names mean one file.
pub fn is_same(one: &Path, other: &Path) -> bool {
    one == other || one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

/// Reads a file; one that is not there is `None`.
pub fn read(path: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    let failed = || format!("cannot read {}", path.display());
    let found = match fs::metadata(path) {
        Ok(found) => found,
        Err(error) if is_nothing(&error) => return Ok(None),
        Err(error) => return Err(error).with_context(failed),
    };
    if !found.is_file() {
        bail!("{} is not a file: move it away", path.display());
    }
    if found.len() > FILE_BYTES_MAX {
        bail!("{} is larger than {FILE_BYTES_MAX} bytes: nothing is added to it", path.display());
    }
    Ok(Some(fs::read(path).with_context(failed)?))
}

/// Tells whether a file has other names, which keep what it says when it is replaced.
pub fn has_hard_links(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.nlink() > 1)
}

/// Tells whether there is nothing, or a file where a directory would have to be.
fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Refuses a file that cannot be written, or whose owner made it read-only: replacing it would go around that.
pub fn check_writable(path: &Path) -> anyhow::Result<()> {
    check_dir(path)?;
    let is_read_only = fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o200 == 0);
    if is_read_only {
        bail!(
            "{} is read-only and stays as it is: `chmod u+w` it first, or edit it yourself",
            path.display()
        );
    }
    Ok(())
}

/// Refuses a file whose directory cannot be written, or cannot be made.
fn check_dir(path: &Path) -> anyhow::Result<()> {
    for dir in path.ancestors().skip(1).filter(|dir| !dir.as_os_str().is_empty()) {
        let shown = dir.display();
        match fs::metadata(dir) {
            Ok(found) if !found.is_dir() => bail!("{shown} is not a directory: move it away"),
            Ok(_) => {
                let may = access(dir, Access::WRITE_OK | Access::EXEC_OK);
                return may.with_context(|| format!("{shown} cannot be written: `chmod u+wx` it first"));
            }
            Err(_) if dir.is_symlink() => {
                bail!("{shown} is a symbolic link that leads nowhere: mend or remove it");
            }
            Err(error) if is_nothing(&error) => {}
            Err(error) => return Err(error).with_context(|| format!("cannot read {shown}")),
        }
    }
    Ok(())
}

/// Replaces what a file says if it still says `seen`, and keeps its mode and owner; a new one is 0600.
pub fn replace(path: &Path, seen: Option<&[u8]>, bytes: &[u8]) -> anyhow::Result<()> {
    let failed = || format!("cannot write {}", path.display());
    let dir = path.parent().with_context(failed)?;
    let mut file = temporary(path).with_context(failed)?;
    file.write_all(bytes).with_context(failed)?;
    if let Ok(found) = fs::metadata(path) {
        let own = file.as_file().metadata().with_context(failed)?;
        if (own.uid(), own.gid()) != (found.uid(), found.gid()) {
            let (user, group) = (found.uid(), found.gid());
            std::os::unix::fs::fchown(file.as_file(), Some(user), Some(group)).with_context(failed)?;
        }
        let mode = Permissions::from_mode(found.permissions().mode());
        file.as_file().set_permissions(mode).with_context(failed)?;
    }
    file.as_file().sync_all().with_context(failed)?;
    check_unchanged(path, seen)?;
    file.persist(path).map_err(|error| error.error).with_context(failed)?;
    sync_dir(dir).with_context(failed)
}

/// Removes what a `sess` that was killed left beside a file: a copy of it, under a name that only we give.
pub fn remove_leftovers(path: &Path) {
    let (Some(dir), Some(prefix)) = (path.parent(), temporary_prefix(path)) else { return };
    // It is no part of what was asked for, so trouble with it is none of that.
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let random = name.as_encoded_bytes().strip_prefix(prefix.as_encoded_bytes());
        let is_ours = random.is_some_and(|random| {
            random.len() == RANDOM_CHARS && random.iter().all(u8::is_ascii_alphanumeric)
        });
        if is_ours
            && entry.file_type().is_ok_and(|kind| kind.is_file())
            && fs::File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok())
        {
            let _gone = fs::remove_file(entry.path());
        }
    }
}

/// Makes a file that will be renamed to this one. It is 0600 from the start, whatever the umask.
pub fn temporary(path: &Path) -> io::Result<NamedTempFile> {
    let (Some(dir), Some(prefix)) = (path.parent(), temporary_prefix(path)) else {
        return Err(io::ErrorKind::InvalidFilename.into());
    };
    let file = tempfile::Builder::new().prefix(&prefix).rand_bytes(RANDOM_CHARS).tempfile_in(dir)?;
    // As long as it is locked it is no leftover. Where nothing can be locked, leftovers stay.
    let _unlocked = file.as_file().try_lock();
    Ok(file)
}

fn temporary_prefix(path: &Path) -> Option<OsString> {
    let mut name = OsString::from(".");
    name.push(path.file_name()?);
    name.push(".sess-");
    Some(name)
}

/// Removes a file that still says `seen`.
pub fn remove(path: &Path, seen: Option<&[u8]>) -> anyhow::Result<()> {
    let failed = || format!("cannot remove {}", path.display());
    check_unchanged(path, seen)?;
    fs::remove_file(path).with_context(failed)?;
    sync_dir(path.parent().with_context(failed)?).with_context(failed)
}

/// Hosts write their files whenever they like; what they wrote meanwhile must not be lost.
fn check_unchanged(path: &Path, seen: Option<&[u8]>) -> anyhow::Result<()> {
    if read(path)?.as_deref() != seen {
        bail!("{} was changed by another program just now: try again", path.display());
    }
    Ok(())
}

/// Returns the directories that are missing above a file, the outermost first.
pub fn missing_dirs(path: &Path) -> Vec<PathBuf> {
    let above = path.ancestors().skip(1).take_while(|dir| !dir.as_os_str().is_empty() && !dir.exists());
    let mut missing: Vec<PathBuf> = above.map(Path::to_owned).collect();
    missing.reverse();
    missing
}

/// Makes a directory and those above it, for its owner alone.
pub fn make_dir(dir: &Path) -> anyhow::Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.with_context(|| format!("cannot make the directory {}", dir.display()))
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    fs::File::open(dir)?.sync_all()
}
