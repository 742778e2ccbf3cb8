//! The files that threads are kept in, and what their names say.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::files::{self, Item};

/// One file of a thread. A thread that was reverted has several.
pub(super) struct Rollout {
    pub path: PathBuf,
    pub thread: String,
    /// Tells the rollouts of a thread apart, and rises with time; the first has the thread's.
    pub id: String,
    pub is_compressed: bool,
}

impl Rollout {
    /// Reads a name such as `rollout-2026-11-10T12-00-00-<thread>[_<id>].jsonl[.zst]`.
    pub(super) fn at(path: &Path) -> Option<Self> {
        const TIME_LEN: usize = "2026-11-10T12-00-00-".len();
        let name = path.file_name()?.to_str()?;
        let plain = name.strip_suffix(".zst");
        let ids = plain.unwrap_or(name).strip_suffix(".jsonl")?.strip_prefix("rollout-")?.get(TIME_LEN..)?;
        let (thread, id) = ids.split_once('_').unwrap_or((ids, ids));
        let is_compressed = plain.is_some();
        (!thread.is_empty()).then(|| Self {
            path: path.to_owned(),
            thread: thread.to_owned(),
            id: id.to_owned(),
            is_compressed,
        })
    }

    /// Tells whether it can be read: a link or a directory may stand at its place.
    pub(super) fn is_file(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|found| found.is_file())
    }

    /// Tells whether this is the file of that name, compressed or not.
    pub(super) fn is_called(&self, name: &str) -> bool {
        let own = self.path.file_name().and_then(|own| own.to_str()).unwrap_or_default();
        own.trim_end_matches(".zst") == name.trim_end_matches(".zst")
    }
}

/// Hands over what is named as a rollout below a directory. `entries` is asked for what is in it, and in those inside.
pub(super) fn each(entries: &mut dyn FnMut(&Path) -> Vec<Item>, dir: &Path, give: &mut dyn FnMut(Rollout)) {
    // Years, months and days: deeper there is nothing of Codex.
    fn below(
        entries: &mut dyn FnMut(&Path) -> Vec<Item>,
        dir: &Path,
        depth: u32,
        give: &mut dyn FnMut(Rollout),
    ) {
        for item in entries(dir) {
            // Other links than those at the place of a day or the like lead to nothing of Codex.
            let is_date = !item.is_link || item.name.bytes().all(|byte| byte.is_ascii_digit());
            if let Some(rollout) = Rollout::at(&item.path) {
                give(rollout);
            } else if item.is_dir && is_date && depth > 0 {
                below(entries, &item.path, depth - 1, give);
            }
        }
    }
    below(entries, dir, 3, give);
}

/// Finds the rollout with this id in the home that `beside` is in.
pub(super) fn find(beside: &Path, id: &str) -> Option<Rollout> {
    let is_store = |dir: &&Path| dir.ends_with("sessions") || dir.ends_with("archived_sessions");
    let root = beside.ancestors().find(is_store)?.parent()?;
    let mut found: Option<Rollout> = None;
    for dir in ["sessions", "archived_sessions"] {
        let top = root.join(dir);
        let mut entries = |dir: &Path| {
            let found = if dir == top { files::entries(dir) } else { files::entries_below(dir) };
            found.unwrap_or_default()
        };
        each(&mut entries, &top, &mut |rollout| {
            let is_better = found.as_ref().is_none_or(|found| found.is_compressed && !rollout.is_compressed);
            if rollout.id == id && is_better && rollout.is_file() {
                found = Some(rollout);
            }
        });
    }
    found
}
