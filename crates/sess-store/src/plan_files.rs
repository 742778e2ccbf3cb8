//! Plan files: `<dir>/<session id>.md`, written whole or not at all.
//!
//! All work goes through a handle on the directory, never through a path that
//! somebody could swap in between; links are not followed. Which revision a file
//! *is* gets decided above.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    os::{fd::OwnedFd, unix::fs::DirBuilderExt as _},
    path::{Path, PathBuf},
};

use rustix::fs::{AtFlags, Mode, OFlags};
use sess_core::{SessionId, Timestamp, plan};

const LOCK_NAME: &str = ".lock";
const TEMPORARY_SUFFIX: &str = ".tmp";

/// One clear sentence: which path, what failed, why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot {action} {}: {cause}", path.display())]
pub struct FileError {
    pub path: PathBuf,
    pub action: &'static str,
    pub cause: String,
}

/// The directory of plan files.
#[derive(Clone, Debug)]
pub struct PlanFiles {
    dir: PathBuf,
}

/// Why a staged plan did not get its place for good.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// What stood there still stands there.
    #[error(transparent)]
    Untouched(FileError),
    /// The new plan stands there, but may not survive a power cut.
    #[error(transparent)]
    NotFlushed(FileError),
}

impl From<PlaceError> for FileError {
    fn from(error: PlaceError) -> Self {
        match error {
            PlaceError::Untouched(error) | PlaceError::NotFlushed(error) => error,
        }
    }
}

/// A plan under a temporary name, waiting to be flushed and to get its place.
#[derive(Debug)]
pub struct StagedPlan {
    name: String,
    target: String,
    file: File,
}

/// The directory, opened, with the right to change it.
///
/// One writer at a time in all processes: row and file change together.
#[derive(Debug)]
pub struct LockedDir {
    files: PlanFiles,
    handle: OwnedFd,
    _lock: File,
}

impl PlanFiles {
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    pub fn path(&self, session: &SessionId) -> PathBuf {
        self.dir.join(file_name(session))
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Reads a plan; `None` when there is none.
    ///
    /// Refuses what is not a regular file, and a link wherever it leads.
    pub fn read(&self, session: &SessionId) -> Result<Option<String>, FileError> {
        let handle = match self.open_dir() {
            Ok(handle) => handle,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.dir_error("open", &error)),
        };
        read_at(&handle, &file_name(session)).map_err(|error| FileError {
            path: self.path(session),
            action: "read the plan",
            cause: cause(&error),
        })
    }

    /// Makes the directory when it is missing, and waits for the right to change it,
    /// however long that takes: on a thread that may block.
    pub fn lock(&self) -> Result<LockedDir, FileError> {
        let (handle, lock) = self.open_lock()?;
        // In the kernel's queue: looking again and again would lose to whoever comes back at once.
        lock.lock().map_err(|error| self.dir_error("lock", &error))?;
        Ok(LockedDir { files: self.clone(), handle, _lock: lock })
    }

    /// Like `lock`, but returns `None` rather than waiting for somebody else.
    pub fn try_lock(&self) -> Result<Option<LockedDir>, FileError> {
        let (handle, lock) = self.open_lock()?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(LockedDir { files: self.clone(), handle, _lock: lock })),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(self.dir_error("lock", &error)),
        }
    }

    fn open_lock(&self) -> Result<(OwnedFd, File), FileError> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir);
        made.map_err(|error| self.dir_error("create", &error))?;
        let handle = self.open_dir().map_err(|error| self.dir_error("open", &error))?;
        protect(&handle).map_err(|error| self.dir_error("protect", &error.into()))?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = rustix::fs::openat(&handle, LOCK_NAME, flags, Mode::from(0o600))
            .map_err(|error| self.dir_error("lock", &error.into()))?;
        Ok((handle, File::from(lock)))
    }

    fn open_dir(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
        rustix::fs::open(&self.dir, flags, Mode::empty()).map_err(|error| {
            if matches!(error, rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) {
                io::Error::new(
                    io::ErrorKind::NotADirectory,
                    "it is a link or not a directory; plans stay where they were put",
                )
            } else {
                error.into()
            }
        })
    }

    fn dir_error(&self, verb: &'static str, error: &io::Error) -> FileError {
        let action = match verb {
            "create" => "create the plan directory",
            "open" => "open the plan directory",
            "protect" => "protect the plan directory",
            _ => "lock the plan directory",
        };
        FileError { path: self.dir.clone(), action, cause: cause(error) }
    }
}

impl LockedDir {
    /// Writes the content under a temporary name; `nonce` keeps names apart.
    ///
    /// It has its space on the disk then, but must be flushed before it gets its place.
    pub fn stage(&self, session: &SessionId, content: &str, nonce: u64) -> Result<StagedPlan, FileError> {
        let (name, target) = (temporary_name(session, nonce), file_name(session));
        let write = || -> io::Result<File> {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::openat(&self.handle, &name, flags, Mode::from(0o600))?;
            rustix::fs::fchmod(&file, Mode::from(0o600))?;
            let mut file = File::from(file);
            file.write_all(content.as_bytes())?;
            Ok(file)
        };
        match write() {
            Ok(file) => Ok(StagedPlan { name, target, file }),
            Err(error) => {
                self.remove_temporary(&name);
                Err(self.error(session, "write the plan", &error))
            }
        }
    }

    /// Waits until a staged plan is on the disk.
    pub fn flush(&self, session: &SessionId, staged: &StagedPlan) -> Result<(), FileError> {
        staged.file.sync_all().map_err(|error| self.error(session, "write the plan", &error))
    }

    /// Gives a staged and flushed plan its place, durably. Whatever was there is replaced, a link too.
    pub fn place(&self, session: &SessionId, staged: &StagedPlan) -> Result<(), PlaceError> {
        let failed = |error: rustix::io::Errno| self.error(session, "write the plan", &error.into());
        if let Err(error) = rustix::fs::renameat(&self.handle, &staged.name, &self.handle, &staged.target) {
            self.discard(staged);
            return Err(PlaceError::Untouched(failed(error)));
        }
        rustix::fs::fsync(&self.handle).map_err(|error| PlaceError::NotFlushed(failed(error)))
    }

    pub fn read(&self, session: &SessionId) -> Result<Option<String>, FileError> {
        read_at(&self.handle, &file_name(session))
            .map_err(|error| self.error(session, "read the plan", &error))
    }

    /// Tells what stands at the plan's place without following it.
    pub fn is_regular(&self, session: &SessionId) -> bool {
        rustix::fs::statat(&self.handle, file_name(session), AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file())
    }

    /// Removes the plan's file, durably: no power cut brings it back.
    pub fn remove(&self, session: &SessionId) -> Result<(), FileError> {
        let removed = match rustix::fs::unlinkat(&self.handle, file_name(session), AtFlags::empty()) {
            Ok(()) => rustix::fs::fsync(&self.handle),
            Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(error),
        };
        removed.map_err(|error| self.error(session, "remove the plan", &error.into()))
    }

    /// Removes a staged plan that is not wanted.
    pub fn discard(&self, staged: &StagedPlan) {
        self.remove_temporary(&staged.name);
    }

    fn remove_temporary(&self, name: &str) {
        if let Err(error) = rustix::fs::unlinkat(&self.handle, name, AtFlags::empty())
            && error != rustix::io::Errno::NOENT
        {
            tracing::warn!(%error, name, "could not remove a temporary plan file");
        }
    }

    /// Returns the plans whose file was last changed before `limit`.
    pub fn older_than(&self, limit: Timestamp) -> Vec<SessionId> {
        let plan = |name: String| name.strip_suffix(".md")?.parse().ok();
        let plans = self.names().into_iter().filter_map(plan);
        plans.filter(|session| self.is_older_than(session, limit)).collect()
    }

    /// Tells whether the session has a plan file that was last changed before `limit`.
    pub fn is_older_than(&self, session: &SessionId, limit: Timestamp) -> bool {
        self.file_changed(&file_name(session)).is_some_and(|changed| changed < limit)
    }

    /// Removes temporary files of ours that a crash left behind before `limit`.
    pub fn remove_stale_temporaries(&self, limit: Timestamp) {
        for name in self.names() {
            if is_temporary(&name) && self.file_changed(&name).is_some_and(|changed| changed < limit) {
                self.remove_temporary(&name);
            }
        }
    }

    fn names(&self) -> Vec<String> {
        let Ok(dir) = rustix::fs::Dir::read_from(&self.handle) else { return Vec::new() };
        dir.flatten().filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned)).collect()
    }

    /// Returns when a regular file was last changed.
    fn file_changed(&self, name: &str) -> Option<Timestamp> {
        let stat = rustix::fs::statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        if !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() {
            return None;
        }
        Some(Timestamp::from_millis_clamped(stat.st_mtime.saturating_mul(1000)))
    }

    fn error(&self, session: &SessionId, action: &'static str, error: &io::Error) -> FileError {
        FileError { path: self.files.path(session), action, cause: cause(error) }
    }
}

fn file_name(session: &SessionId) -> String {
    format!("{session}.md")
}

fn temporary_name(session: &SessionId, nonce: u64) -> String {
    format!(".{session}.{nonce:016x}{TEMPORARY_SUFFIX}")
}

/// Tells a temporary file of ours from what other programs keep in a shared directory.
fn is_temporary(name: &str) -> bool {
    let parts = name.strip_prefix('.').and_then(|name| name.strip_suffix(TEMPORARY_SUFFIX)?.rsplit_once('.'));
    parts.is_some_and(|(session, nonce)| {
        let is_nonce = nonce.len() == 16 && nonce.bytes().all(|b| b.is_ascii_hexdigit());
        is_nonce && session.parse::<SessionId>().is_ok()
    })
}

/// Takes away rights that others have on the directory. Untouched when there are none:
/// even the same mode again would be a change that the next flush has to write.
fn protect(dir: &OwnedFd) -> rustix::io::Result<()> {
    let wanted = Mode::from(0o700);
    if Mode::from_raw_mode(rustix::fs::fstat(dir)?.st_mode) & Mode::from(0o777) == wanted {
        return Ok(());
    }
    rustix::fs::fchmod(dir, wanted)
}

fn read_at(dir: &OwnedFd, name: &str) -> io::Result<Option<String>> {
    // NONBLOCK: a pipe at this place must not make us wait for its writer.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = match rustix::fs::openat(dir, name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(rustix::io::Errno::LOOP) => {
            return Err(io::Error::other("it is a symbolic link, not a regular file"));
        }
        Err(error) => return Err(error.into()),
    };
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let limit = plan::SIZE_BYTES_MAX as u64 + 1;
    let mut bytes = Vec::with_capacity(usize::try_from(found.len().min(limit)).unwrap_or(0) + 1);
    file.take(limit).read_to_end(&mut bytes)?;
    if bytes.len() > plan::SIZE_BYTES_MAX {
        return Err(io::Error::other(format!("it is larger than {} bytes", plan::SIZE_BYTES_MAX)));
    }
    String::from_utf8(bytes).map(Some).map_err(|_| io::Error::other("it is not valid UTF-8"))
}

/// Says what the system said, in the words people know.
fn cause(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "no space left on the disk".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::ReadOnlyFilesystem => "the file system is read-only".to_owned(),
        _ => error.to_string(),
    }
}
