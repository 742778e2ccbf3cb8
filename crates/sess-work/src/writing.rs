//! Writing files of this clone's own.

use std::{fs, io::Write as _, os::unix::fs::PermissionsExt as _, path::Path};

/// Writes a file with this mode, whole or not at all: whoever reads it meanwhile, or after a crash, finds the old one or
/// the new one.
pub(crate) fn write_whole(path: &Path, bytes: &[u8], mode: u32) -> std::io::Result<()> {
    let dir = path.parent().ok_or(std::io::ErrorKind::InvalidInput)?;
    let mut file = tempfile::Builder::new().permissions(fs::Permissions::from_mode(mode)).tempfile_in(dir)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_with_its_mode_and_nothing_is_left_beside_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        for (text, mode) in [("one", 0o600), ("two", 0o755)] {
            write_whole(&path, text.as_bytes(), mode).expect("written");
            assert_eq!(fs::read_to_string(&path).expect("read"), text);
            // Others may be let do less than was asked for.
            assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o700, mode & 0o700);
        }
        write_whole(&dir.path().join("none/file"), b"", 0o600).expect_err("there is no such directory");
        assert_eq!(fs::read_dir(dir.path()).expect("read").count(), 1);
    }
}
