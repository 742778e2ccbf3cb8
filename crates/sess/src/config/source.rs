//! The configuration while a process runs: read again when a file it came from has changed.

use std::{
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use sess_app::Configured;

use super::{Choice, Places, REPOSITORY_FILE, Reading, trust};

/// A file that was written so short a time before it was read may change again without its times telling.
const TOO_FRESH: Duration = Duration::from_millis(50);

/// Where the configuration comes from, and what it came to when it was read last.
pub struct Source {
    env: Vec<(String, String)>,
    places: Places,
    named: Option<PathBuf>,
    read: Mutex<Read>,
}

struct Read {
    looked: Looked,
    configured: Result<Arc<Configured>, String>,
}

impl Source {
    pub fn new(
        env: Vec<(String, String)>,
        places: Places,
        named: Option<PathBuf>,
        looked: Looked,
        configured: Result<Arc<Configured>, String>,
    ) -> Self {
        Self { env, places, named, read: Mutex::new(Read { looked, configured }) }
    }

    /// Returns what the configuration says now; a broken one is an error.
    pub fn current(&self) -> Result<Arc<Configured>, String> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let looked = Looked::at(watched(&self.places, self.named.as_deref()));
        if looked.files != read.looked.files || read.looked.is_fresh {
            let mut reading = Reading::new(&self.env, &self.places);
            let meaning = reading
                .files(Choice::Usual(self.named.as_deref()))
                .and_then(|()| reading.meaning())
                .map(|meaning| {
                    Arc::new(Configured { team: meaning.team, rules: meaning.rules, work: meaning.work })
                })
                .map_err(|error| told(&error));
            *read = Read { looked, configured: meaning };
        }
        read.configured.clone()
    }
}

/// Says what is wrong with the configuration, and what to do.
pub fn told(error: &anyhow::Error) -> String {
    format!("the configuration is not valid: {error:#}; `sess config check` says more")
}

/// Returns the files that the configuration depends on, whether they are there or not.
pub fn watched(places: &Places, named: Option<&Path>) -> Vec<PathBuf> {
    if let Some(named) = named {
        return vec![named.to_owned()];
    }
    let repository = places.repository_file();
    let main = places.cwd.as_ref().and_then(|cwd| trust::main_checkout(cwd));
    let main = main.map(|main| main.join(REPOSITORY_FILE));
    let trusted = places.home.as_ref().map(|home| home.join(trust::FILE));
    [places.config.clone(), repository, main, trusted].into_iter().flatten().collect()
}

/// How files looked at one moment.
#[derive(Debug)]
pub struct Looked {
    files: Vec<Option<Stamp>>,
    /// One of them was written a moment ago.
    is_fresh: bool,
}

/// What changes when a file is written or replaced.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Looked {
    #[expect(
        clippy::disallowed_methods,
        reason = "compared with the times of files, which are the wall clock's"
    )]
    pub fn at(paths: Vec<PathBuf>) -> Self {
        let now = SystemTime::now();
        let mut is_fresh = false;
        let mut stamp = |path: PathBuf| {
            // A file that cannot be looked at is missing until it can; reading it says why.
            let found = path.metadata().ok()?;
            let written = found.modified().ok();
            is_fresh |= written.is_some_and(|at| now.duration_since(at).is_ok_and(|age| age < TOO_FRESH));
            Some(Stamp {
                device: found.dev(),
                inode: found.ino(),
                size: found.size(),
                modified: (found.mtime(), found.mtime_nsec()),
                changed: (found.ctime(), found.ctime_nsec()),
            })
        };
        let files = paths.into_iter().map(&mut stamp).collect();
        Self { files, is_fresh }
    }
}
