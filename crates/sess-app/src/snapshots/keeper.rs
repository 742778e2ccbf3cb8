//! Writing snapshots, so that a crash at any point leaves the old one or the new one.
//!
//! A session's chunks are written and flushed first; then its manifest takes the place of the
//! one before by a rename. What nobody names any more is swept at the end.

use std::{
    cell::Cell,
    collections::HashSet,
    fs::{self, DirBuilder, File, Permissions, TryLockError},
    io::{self, Write as _},
    ops::ControlFlow,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use sess_core::{Timestamp, message::Role};
use sess_readers::{
    Entry, Foreign,
    snapshot::{self, CHUNKS, Chunk, Manifest, VERSION},
};

use super::{
    Named, SnapshotsLeft,
    merge::{Key, Merge, Pick},
    unreadable,
};
use crate::{Error, Result};

/// A chunk is cut after an entry that says so by its bytes, within these sizes: what is inserted
/// or lost in a session changes the chunks around it and no others.
const CHUNK_SIZE_BYTES_MIN: usize = 128 << 10;
const CHUNK_SIZE_BYTES_USUAL_MAX: usize = 1 << 20;
const CUT_MASK: u32 = 0x3f;
/// How much is spent on making chunks small; more hardly helps with text.
const COMPRESSION_LEVEL: i32 = 6;
/// What is being written is called so.
const UNFINISHED: &str = ".new-";

/// What came of one session.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    New,
    Grown,
    Unchanged,
    Empty,
    /// The snapshot has what the original has no more, or says in other words.
    Fuller {
        lost: u64,
        changed: u64,
    },
    Failed(String),
}

/// Whoever may write to a directory of snapshots: one at a time.
pub(super) struct Keeper {
    dir: PathBuf,
    now: Timestamp,
    written: Cell<u64>,
    _lock: File,
}

impl Keeper {
    pub(super) fn open(dir: &Path, now: Timestamp) -> Result<Self> {
        let failed = |error: io::Error| cannot_write(dir, &error);
        make_dir(&dir.join(CHUNKS)).map_err(failed)?;
        let lock =
            File::options().create(true).write(true).truncate(false).mode(0o600).open(dir.join(".lock"));
        let lock = lock.map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let what = "another `sess snapshot` is at work; try again when it is done".to_owned();
                return Err(Error::Unavailable(what));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        Ok(Self { dir: dir.to_owned(), now, written: Cell::new(0), _lock: lock })
    }

    /// Returns how many bytes were written so far.
    pub(super) fn written_bytes(&self) -> u64 {
        self.written.get()
    }

    /// Brings the snapshot of a session up to date. What is wrong with the session is an outcome;
    /// what is wrong with the disk is an error.
    pub(super) fn keep(&self, session: &Foreign) -> Result<Outcome> {
        let path = Manifest::path(&self.dir, session.source, &session.id);
        let before = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            _ => match Manifest::load(&path) {
                Ok(before) => Some(before),
                Err(error) => {
                    let hint =
                        format!("`sess snapshot forget {}` makes room for another", session.reference());
                    return Ok(Outcome::Failed(format!("{error}; {hint}")));
                }
            },
        };
        // Before it is read: what is said meanwhile makes it another one.
        let stamp = match session.stamp() {
            Ok(stamp) => stamp,
            Err(error) => return Ok(Outcome::Failed(error.to_string())),
        };
        let session = &Foreign { title: title(session, before.as_ref(), &stamp), ..session.clone() };
        let Some(before) = before else {
            let cut = match self.copy(session)? {
                Ok(cut) => cut,
                Err(reason) => return Ok(Outcome::Failed(reason)),
            };
            if cut.keys.is_empty() {
                return Ok(Outcome::Empty);
            }
            self.put_manifest(&path, &self.manifest(session, stamp, cut))?;
            return Ok(Outcome::New);
        };
        if is_same(&before, session, &stamp) {
            let facts = self.manifest(session, before.stamp.clone(), Cut::of(&before));
            // A session may get another title, or be archived, where its file does not say so. One that
            // began at another time lost its beginning, and what is known of it is better.
            let (taken_at, updated_at, lost) = (before.taken_at, before.updated_at, before.lost);
            let facts = Manifest { taken_at, updated_at, lost, ..facts };
            if before.created_at == facts.created_at {
                self.replace_manifest(&path, &before, &facts)?;
            }
            return Ok(Outcome::Unchanged);
        }
        self.renew(session, &path, &before, stamp)
    }

    /// Copies a session again, and keeps whatever the original has lost since.
    fn renew(&self, session: &Foreign, path: &Path, before: &Manifest, stamp: String) -> Result<Outcome> {
        let cut = match self.copy(session)? {
            Ok(cut) => cut,
            Err(reason) => return Ok(Outcome::Failed(reason)),
        };
        let merge = match Merge::of(&self.dir, &before.chunks, &cut.chunks, &cut.keys) {
            Ok(merge) => merge,
            Err(error) => return Ok(Outcome::Failed(error.to_string())),
        };
        let (lost, changed) = (merge.lost(), merge.changed());
        if lost == 0 {
            // Where nobody wrote down when something was said, it has another time as soon as its file changes.
            let is_unchanged = !merge.says_more();
            let mut manifest = self.manifest(session, stamp, cut);
            if is_unchanged {
                manifest.taken_at = before.taken_at;
            }
            self.replace_manifest(path, before, &manifest)?;
            return Ok(if is_unchanged { Outcome::Unchanged } else { Outcome::Grown });
        }
        let merged = match self.merged(&merge, before)? {
            Ok(merged) => merged,
            Err(reason) => return Ok(Outcome::Failed(reason)),
        };
        // A file that many share changes when any of them does: what was told is not told again.
        let is_told = before.lost == lost && !merge.says_more();
        // What an original says of itself without its beginning is no better than what is known.
        let manifest = Manifest {
            num_messages: merged.num_messages,
            chunks: merged.chunks,
            updated_at: before.updated_at.max(session.updated_at),
            stamp,
            lost,
            taken_at: if is_told { before.taken_at } else { self.now },
            ..before.clone()
        };
        self.replace_manifest(path, before, &manifest)?;
        Ok(if is_told { Outcome::Unchanged } else { Outcome::Fuller { lost, changed } })
    }

    /// Cuts what a snapshot and a newer copy have together. What cannot be read just now is a sentence.
    fn merged(&self, merge: &Merge<'_>, before: &Manifest) -> Result<Result<Cut, String>> {
        let mut cutter = Cutter::new(self);
        let (mut then, mut now) = merge.shelves();
        for pick in merge.picks() {
            let entry = match pick {
                Pick::Old(place) => then.get(place),
                Pick::New(place) => now.get(place),
                Pick::Damaged(chunk) => {
                    cutter.keep(&before.chunks[chunk])?;
                    continue;
                }
            };
            match entry {
                Ok(entry) => entry.map_or(Ok(()), |entry| cutter.push(entry))?,
                Err(error) => return Ok(Err(error.to_string())),
            }
        }
        cutter.finish().map(Ok)
    }

    /// Cuts a session into chunks and writes those that are not there. What is wrong with the session is a sentence.
    fn copy(&self, session: &Foreign) -> Result<Result<Cut, String>> {
        let mut cutter = Cutter::new(self);
        let mut failure = None;
        let told = sess_readers::read(session, &mut |entry| {
            if let Err(error) = cutter.push(&entry) {
                failure = Some(error);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        if let Some(error) = failure {
            return Err(error);
        }
        match told {
            Ok(_) => cutter.finish().map(Ok),
            Err(error) => Ok(Err(error.to_string())),
        }
    }

    fn manifest(&self, session: &Foreign, stamp: String, cut: Cut) -> Manifest {
        Manifest {
            version: VERSION,
            source: session.source,
            id: session.id.clone(),
            title: session.title.clone(),
            cwd: session.cwd.clone(),
            branch: session.branch.clone(),
            created_at: session.created_at,
            updated_at: session.updated_at,
            parent: session.parent.clone(),
            name: session.name.clone(),
            is_archived: session.is_archived,
            num_messages: cut.num_messages,
            stamp,
            taken_at: self.now,
            lost: 0,
            chunks: cut.chunks,
        }
    }

    /// Puts a manifest in the place of another one, if it says something else.
    fn replace_manifest(&self, path: &Path, before: &Manifest, manifest: &Manifest) -> Result<()> {
        if before == manifest { Ok(()) } else { self.put_manifest(path, manifest) }
    }

    fn put_manifest(&self, path: &Path, manifest: &Manifest) -> Result<()> {
        let dir = path.parent().unwrap_or(&self.dir);
        let json = serde_json::to_vec(manifest).expect("a manifest has string keys only");
        make_dir(dir)
            // Chunks are named in their directory before anything refers to them.
            .and_then(|()| flush_dir(&self.dir.join(CHUNKS)))
            .and_then(|()| self.put(path, &json))
            .and_then(|()| flush_dir(dir))
            .map_err(|error| cannot_write(path, &error))
    }

    /// Writes a file that is there whole or not at all.
    fn put(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let private = Permissions::from_mode(0o600);
        let mut file = tempfile::Builder::new()
            .prefix(UNFINISHED)
            .permissions(private)
            .tempfile_in(path.parent().unwrap_or(&self.dir))?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)?;
        self.written.set(self.written.get() + bytes.len() as u64);
        Ok(())
    }

    /// Deletes manifests; their chunks go with the next sweep.
    pub(super) fn forget(&self, manifests: &[Named]) -> Result<()> {
        for (_, _, path) in manifests {
            fs::remove_file(path)
                .and_then(|()| flush_dir(path.parent().unwrap_or(&self.dir)))
                .map_err(|error| cannot_write(path, &error))?;
        }
        Ok(())
    }

    /// Deletes the chunks that no manifest names, and what a crash left half-written; says what is left.
    pub(super) fn sweep(&self) -> Result<SnapshotsLeft> {
        let mut left = SnapshotsLeft::default();
        let mut named = HashSet::new();
        for (_, _, path) in snapshot::manifests(&self.dir).map_err(|error| unreadable(&error))? {
            left.snapshots += 1;
            left.size_bytes += path.metadata().map_or(0, |found| found.len());
            match Manifest::load(&path) {
                Ok(manifest) => {
                    left.of_sub_agents += u64::from(manifest.parent.is_some());
                    named.extend(manifest.chunks.into_iter().map(|chunk| chunk.path(&self.dir)));
                }
                // Nobody knows which chunks it names, so none may go.
                Err(_) => left.unreadable += 1,
            }
        }
        let dirs = fs::read_dir(&self.dir).map_err(|error| cannot_write(&self.dir, &error))?;
        // A link could lead anywhere.
        let is_dir = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        for dir in dirs.flatten().filter(is_dir).map(|entry| entry.path()) {
            let is_chunks = dir.ends_with(CHUNKS);
            for entry in fs::read_dir(&dir).map_err(|error| cannot_write(&dir, &error))?.flatten() {
                let path = entry.path();
                let is_unfinished = entry.file_name().to_string_lossy().starts_with(UNFINISHED);
                let is_unused = is_chunks && left.unreadable == 0 && !named.contains(&path);
                if is_unfinished || is_unused {
                    fs::remove_file(&path).map_err(|error| cannot_write(&path, &error))?;
                } else if is_chunks {
                    left.size_bytes += entry.metadata().map_or(0, |found| found.len());
                }
            }
        }
        Ok(left)
    }
}

/// How a session was cut.
#[derive(Debug, Default)]
struct Cut {
    chunks: Vec<Chunk>,
    /// What tells each entry from the others.
    keys: Vec<Key>,
    num_messages: u64,
}

impl Cut {
    /// Returns a snapshot's chunks as they are.
    fn of(manifest: &Manifest) -> Self {
        Self { chunks: manifest.chunks.clone(), keys: Vec::new(), num_messages: manifest.num_messages }
    }
}

/// Cuts entries into chunks, with one chunk in memory at a time.
struct Cutter<'a> {
    keeper: &'a Keeper,
    content: Vec<u8>,
    num_entries: u64,
    cut: Cut,
}

impl<'a> Cutter<'a> {
    fn new(keeper: &'a Keeper) -> Self {
        Self { keeper, content: Vec::new(), num_entries: 0, cut: Cut::default() }
    }

    fn push(&mut self, entry: &Entry) -> Result<()> {
        let line = snapshot::line(entry);
        self.content.extend_from_slice(line.as_bytes());
        self.num_entries += 1;
        self.cut.keys.push(Key::of(entry, &line));
        self.cut.num_messages += u64::from(!entry.is_taken_back && entry.body.role != Role::System);
        let is_end = crc32fast::hash(line.as_bytes()) & CUT_MASK == 0;
        let size = self.content.len();
        if is_end && size >= CHUNK_SIZE_BYTES_MIN || size >= CHUNK_SIZE_BYTES_USUAL_MAX {
            self.write()?;
        }
        Ok(())
    }

    /// Puts a chunk behind the entries as it is, whatever it says.
    fn keep(&mut self, chunk: &Chunk) -> Result<()> {
        self.write()?;
        self.cut.chunks.push(chunk.clone());
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        if self.num_entries == 0 {
            return Ok(());
        }
        let chunk = Chunk::of(&self.content, self.num_entries);
        // One that is there and damaged is written again.
        if chunk.content(&self.keeper.dir).is_err() {
            let path = chunk.path(&self.keeper.dir);
            zstd::encode_all(&self.content[..], COMPRESSION_LEVEL)
                .and_then(|packed| self.keeper.put(&path, &packed))
                .map_err(|error| cannot_write(&path, &error))?;
        }
        self.cut.chunks.push(chunk);
        self.content.clear();
        self.num_entries = 0;
        Ok(())
    }

    fn finish(mut self) -> Result<Cut> {
        self.write()?;
        Ok(self.cut)
    }
}

/// Returns what a session is called. Its file is looked through for that once, and again when it changed.
fn title(session: &Foreign, before: Option<&Manifest>, stamp: &str) -> String {
    match before.filter(|before| !session.is_title_sure && is_same(before, session, stamp)) {
        Some(before) => before.title.clone(),
        None => sess_readers::title(session),
    }
}

/// Tells whether nothing was said in a session since its snapshot was taken: what keeps it did not change. As in the
/// index, one that is spread over several files is always read.
pub(crate) fn is_same(before: &Manifest, session: &Foreign, stamp: &str) -> bool {
    before.stamp == stamp && sess_readers::is_in_one_file(session)
}

fn make_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

fn flush_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

fn cannot_write(path: &Path, error: &io::Error) -> Error {
    let what = format!("{} cannot be written: {error}; the snapshots before it are whole", path.display());
    Error::Unavailable(what)
}
