//! Plans that agents keep in files beside their sessions.

use std::{
    fs,
    path::{Path, PathBuf},
};

use sess_core::Source;

use crate::{Foreign, Homes};

/// A file that is larger is no plan.
const SIZE_BYTES_MAX: u64 = 1 << 20;

/// Returns the plan that a session's agent keeps in a file of its own: the one that was written last.
pub fn kept_plan(homes: &Homes, session: &Foreign) -> Option<String> {
    let files = match session.source {
        Source::DockerAgent => {
            vec![homes.home().join(".cagent/session_plans").join(format!("{}.md", session.id))]
        }
        Source::Gemini => {
            let chats = session.place.path.parent().filter(|dir| dir.ends_with("chats"))?;
            texts_in(&chats.with_file_name(session.id.as_str()).join("plans"))
        }
        _ => return None,
    };
    // No link inside an agent's directory is followed.
    let plans = files.into_iter().filter_map(|path| {
        let found = fs::symlink_metadata(&path).ok()?;
        (found.is_file() && found.len() <= SIZE_BYTES_MAX).then_some((found.modified().ok(), path))
    });
    fs::read_to_string(plans.max()?.1).ok()
}

fn texts_in(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|it| it == "md")).collect()
}
