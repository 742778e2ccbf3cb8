//! The owner's token, in a file of its own.

use std::{
    fs::{self, File, OpenOptions},
    io::{Read as _, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

use crate::{Error, Result};

const NAME: &str = "token";
/// The most bytes that are read of it.
const SIZE_BYTES_MAX: u64 = 4_096;

/// Returns the owner's token in `dir`, or makes one with `new` when there is none yet.
///
/// Whoever is first, in any process, makes it; it is there whole or not at all.
pub fn owner_token(dir: &Path, new: impl FnOnce() -> String) -> Result<String> {
    let path = dir.join(NAME);
    if let Some(token) = read(&path)? {
        return Ok(token);
    }
    let io = |what: &'static str| {
        let path = path.clone();
        move |error: std::io::Error| Error::from_io(what, &path, &error)
    };
    let temporary = dir.join(format!(".{NAME}.{}.new", std::process::id()));
    let written = write(&temporary, &new()).and_then(|()| match fs::hard_link(&temporary, &path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    });
    let removed = fs::remove_file(&temporary);
    written.map_err(io("write"))?;
    removed.map_err(io("write"))?;
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(io("flush"))?;
    read(&path)?
        .ok_or_else(|| Error::Unavailable(format!("{} is gone as soon as it was made", path.display())))
}

/// Reads a token; refuses one that others could have read or written.
fn read(path: &Path) -> Result<Option<String>> {
    let io = |error: std::io::Error| Error::from_io("read", path, &error);
    let file = match OpenOptions::new().read(true).custom_flags(rustix_no_follow()).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error)),
    };
    let found = file.metadata().map_err(io)?;
    if !found.is_file() || found.permissions().mode() & 0o077 != 0 || found.uid() != own_uid() {
        return Err(Error::Unavailable(format!(
            "{} can be read by others: remove it and start again, and a new one is made",
            path.display()
        )));
    }
    let mut text = String::with_capacity(128);
    file.take(SIZE_BYTES_MAX).read_to_string(&mut text).map_err(io)?;
    let token = text.trim();
    if token.len() < 32 {
        return Err(Error::Unavailable(format!(
            "{} holds no token: remove it and start again, and a new one is made",
            path.display()
        )));
    }
    Ok(Some(token.to_owned()))
}

fn write(path: &Path, token: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(token.as_bytes())?;
    file.write_all(b"\n")?;
    file.sync_all()
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn rustix_no_follow() -> i32 {
    rustix::fs::OFlags::NOFOLLOW.bits().cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_made_once_and_kept_for_its_owner_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let first = owner_token(dir.path(), || "a".repeat(43)).expect("made");
        assert_eq!(first, "a".repeat(43));
        assert_eq!(owner_token(dir.path(), || "b".repeat(43)).as_ref(), Ok(&first));
        let path = dir.path().join(NAME);
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).expect("read").count(), 1, "nothing else is left");
    }

    #[test]
    fn a_token_that_others_can_read_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        owner_token(dir.path(), || "a".repeat(43)).expect("made");
        let path = dir.path().join(NAME);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("changed");
        let refused = owner_token(dir.path(), || "x".to_owned()).expect_err("it is no secret any more");
        assert!(refused.to_string().contains("can be read by others"), "{refused}");
        fs::remove_file(&path).expect("removed");
        fs::write(dir.path().join("other"), "a".repeat(43)).expect("written");
        std::os::unix::fs::symlink("other", &path).expect("linked");
        owner_token(dir.path(), || "x".to_owned()).expect_err("a link leads elsewhere");
    }
}
