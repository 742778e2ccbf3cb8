//! Copies of the sample homes, for the tests of every crate that looks at other agents' sessions.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Returns where the sample of an agent is. The tests of all crates stand beside each other.
pub fn sample(agent: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../sess-readers/tests/agent-homes").join(agent)
}

/// Copies what is in a directory, with all that is below.
pub fn copy_all(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            fs::create_dir_all(&target)?;
            copy_all(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
