//! Opening paths that cannot lead out of a directory, however links are laid or swapped meanwhile.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    os::fd::OwnedFd,
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat},
    io::Errno,
};

/// How often a lookup is tried again when something was renamed under it.
const RENAMED_TRIES: usize = 16;
/// How many links a file's name may be away from the file.
const LINKS_MAX: usize = 16;
/// How deep below the root a path may go.
const DEPTH_MAX: usize = 128;
/// How many names are tried for a file that is not in place yet.
const TEMP_NAMES: u32 = 100;

/// Why a path was not opened: a sentence for the model.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Refusal(pub String);

type Result<T> = std::result::Result<T, Refusal>;

pub(super) fn refuse<T>(reason: impl Into<String>) -> Result<T> {
    Err(Refusal(reason.into()))
}

/// A directory out of which no path leads.
pub(super) struct Root {
    dir: OwnedFd,
    /// As it was given, and without links.
    names: [PathBuf; 2],
}

/// Where a file is or will be: a directory that is held, and a plain name in it.
pub(super) struct Place {
    pub dir: OwnedFd,
    pub name: OsString,
    /// What is there now; never a link.
    pub found: Option<Stat>,
}

impl Root {
    pub fn open(path: &Path) -> Result<Self> {
        let unusable = |error: std::io::Error| {
            Refusal(format!("the workspace {} cannot be opened: {error}", path.display()))
        };
        let real = fs::canonicalize(path).map_err(unusable)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(&real, flags, Mode::empty()).map_err(|error| unusable(error.into()))?;
        Ok(Self { dir, names: [path.to_owned(), real] })
    }

    /// Returns a path as one below the root; whether it stays there is seen when it is opened.
    pub fn below(&self, path: &str) -> Result<PathBuf> {
        if path.contains('\0') {
            return refuse("a path cannot hold a NUL character");
        }
        let asked = Path::new(path);
        let below = if asked.is_absolute() {
            let inside = self.names.iter().find_map(|root| asked.strip_prefix(root).ok());
            inside.ok_or_else(|| self.outside(asked))?
        } else {
            asked
        };
        if below.components().count() > DEPTH_MAX {
            return refuse(format!("{path} is more than {DEPTH_MAX} directories deep"));
        }
        Ok(if below.as_os_str().is_empty() { PathBuf::from(".") } else { below.to_owned() })
    }

    pub fn open_dir(&self, below: &Path) -> Result<OwnedFd> {
        self.dir(below).map_err(|error| self.explain(below, error))
    }

    /// Opens a regular file for reading. Anything else is refused before it could block or act.
    pub fn open_file(&self, below: &Path) -> Result<File> {
        let look = self.resolve(below, OFlags::PATH).map_err(|error| self.explain(below, error))?;
        self.regular(below, &look)?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = self.resolve(below, flags).map_err(|error| self.explain(below, error))?;
        // Once more: it may have been swapped for something else since.
        self.regular(below, &file)?;
        Ok(File::from(file))
    }

    /// Follows a file's name to where it is, and makes the directories above.
    pub fn place(&self, below: &Path) -> Result<Place> {
        let mut below = below.to_owned();
        for _ in 0..LINKS_MAX {
            let Some(Component::Normal(name)) = below.components().next_back() else {
                return refuse(format!("{} is no name of a file", below.display()));
            };
            let (name, above) = (name.to_owned(), below.parent().unwrap_or(Path::new("")).to_owned());
            let dir = self.make_dirs(&above)?;
            match rustix::fs::statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => return Ok(Place { dir, name, found: None }),
                Err(error) => return Err(self.explain(&below, error)),
                Ok(found) => match FileType::from_raw_mode(found.st_mode) {
                    FileType::RegularFile => return Ok(Place { dir, name, found: Some(found) }),
                    FileType::Symlink => {
                        let target = rustix::fs::readlinkat(&dir, &name, Vec::new())
                            .map_err(|error| self.explain(&below, error))?;
                        let target = target.to_string_lossy().into_owned();
                        let leads_to = self.below(&target)?;
                        below = if target.starts_with('/') { leads_to } else { above.join(leads_to) };
                    }
                    other => return refuse(not_regular(&below, other)),
                },
            }
        }
        refuse(format!("{} is behind too many links", below.display()))
    }

    fn make_dirs(&self, below: &Path) -> Result<OwnedFd> {
        match self.dir(below) {
            Err(Errno::NOENT) => {}
            other => return other.map_err(|error| self.explain(below, error)),
        }
        let Some(Component::Normal(name)) = below.components().next_back() else {
            return Err(self.explain(below, Errno::NOENT));
        };
        let above = self.make_dirs(below.parent().unwrap_or(Path::new("")))?;
        match rustix::fs::mkdirat(&above, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => self.open_dir(below),
            Err(error) => Err(self.explain(below, error)),
        }
    }

    fn dir(&self, below: &Path) -> rustix::io::Result<OwnedFd> {
        self.resolve(below, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    fn resolve(&self, below: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        match self.resolve_plain(below, flags) {
            // A link with an absolute target counts as leading out, also when it leads back in.
            Err(Errno::XDEV) => {
                let real = fs::canonicalize(self.names[1].join(below)).map_err(|_| Errno::XDEV)?;
                let inside = real.strip_prefix(&self.names[1]).map_err(|_| Errno::XDEV)?;
                self.resolve_plain(inside, flags)
            }
            other => other,
        }
    }

    fn resolve_plain(&self, below: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let below = if below.as_os_str().is_empty() { OsStr::new(".") } else { below.as_os_str() };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let open = || rustix::fs::openat2(&self.dir, below, flags | OFlags::CLOEXEC, Mode::empty(), resolve);
        let mut outcome = open();
        for _ in 1..RENAMED_TRIES {
            if !matches!(outcome, Err(Errno::AGAIN)) {
                break;
            }
            outcome = open();
        }
        outcome
    }

    fn regular(&self, below: &Path, file: &OwnedFd) -> Result<()> {
        let found = rustix::fs::fstat(file).map_err(|error| self.explain(below, error))?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile => Ok(()),
            other => refuse(not_regular(below, other)),
        }
    }

    fn outside(&self, path: &Path) -> Refusal {
        Refusal(format!("{} leads outside the workspace {}", path.display(), self.names[0].display()))
    }

    fn explain(&self, below: &Path, error: Errno) -> Refusal {
        let shown = below.display();
        Refusal(match error {
            Errno::XDEV => return self.outside(below),
            Errno::LOOP => format!("{shown} is behind a link that is not followed"),
            Errno::NOENT => format!("there is no {shown}"),
            Errno::NOTDIR => format!("{shown} is not a directory, or goes through something that is none"),
            Errno::NOSYS => "this system cannot keep paths inside the workspace (no openat2)".to_owned(),
            other => format!("{shown}: {}", std::io::Error::from(other)),
        })
    }
}

impl Place {
    /// Puts a file with this content here, whole or not at all.
    ///
    /// The name gets a new file: what a hard link of the same name held elsewhere stays as it was.
    pub fn put(&self, content: &[u8]) -> std::io::Result<()> {
        let (temp, file) = self.temp()?;
        let outcome = self
            .fill(file, content)
            .and_then(|()| Ok(rustix::fs::renameat(&self.dir, &temp, &self.dir, &self.name)?));
        if outcome.is_err() {
            let _already_gone = rustix::fs::unlinkat(&self.dir, &temp, AtFlags::empty());
        }
        outcome
    }

    fn temp(&self) -> std::io::Result<(String, OwnedFd)> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for n in 0..TEMP_NAMES {
            let name = format!(".sess-{}-{n}.tmp", std::process::id());
            match rustix::fs::openat(&self.dir, &name, flags, Mode::from_raw_mode(0o666)) {
                Err(Errno::EXIST) => {}
                other => return Ok((name, other?)),
            }
        }
        Err(std::io::Error::other("too many unfinished files are beside it"))
    }

    fn fill(&self, file: OwnedFd, content: &[u8]) -> std::io::Result<()> {
        use std::io::Write as _;

        let mut file = File::from(file);
        file.write_all(content)?;
        if let Some(before) = &self.found {
            use std::os::unix::fs::PermissionsExt as _;

            // Only root can give a file away; for others it is theirs already, or becomes theirs.
            let owner = (rustix::fs::Uid::from_raw(before.st_uid), rustix::fs::Gid::from_raw(before.st_gid));
            let _kept_if_possible = rustix::fs::fchown(&file, Some(owner.0), Some(owner.1));
            file.set_permissions(fs::Permissions::from_mode(before.st_mode & 0o777))?;
        }
        file.sync_all()
    }
}

fn not_regular(below: &Path, kind: FileType) -> String {
    let kind = match kind {
        FileType::Directory => "a directory",
        FileType::Symlink => "a link",
        FileType::Fifo => "a named pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::RegularFile | FileType::Unknown => "something else",
    };
    format!("{} is {kind}, not a file", below.display())
}
