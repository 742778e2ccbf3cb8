//! Snapshots: what sessions of other agents said, kept for when their agent has deleted them.
//!
//! A session has one manifest, `<dir>/<source>/<native id>.json`, that names its chunks in their
//! order. A chunk, `<dir>/chunks/<SHA-256 of its content>.zst`, is some entries, one JSON object
//! a line; sessions that say the same share it. Here snapshots are read; who writes them makes a
//! manifest only after all of its chunks.

use std::{
    io::Read,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sess_core::{SessionId, Source, Timestamp, digest::sha256, message::Body};

use crate::{Entry, Error, Foreign, Listing, Place, Result, Take, Told, files};

/// The version of the format. Fields are only ever added under one number.
pub const VERSION: u32 = 1;
/// The directory of chunks, among those of the sources.
pub const CHUNKS: &str = "chunks";
/// How large the content of a chunk may be: a message is never cut in two.
pub const CHUNK_SIZE_BYTES_MAX: u64 = 256 << 20;

/// What is known of a session, and which chunks have what was said in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    pub version: u32,
    pub source: Source,
    pub id: SessionId,
    pub title: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cwd: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub branch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub created_at: Option<Timestamp>,
    pub updated_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub parent: Option<SessionId>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub name: Option<String>,
    #[serde(default)]
    pub is_archived: bool,
    /// Its messages, without system messages and what was taken back.
    pub num_messages: u64,
    /// What the original was like when it was read.
    pub stamp: String,
    pub taken_at: Timestamp,
    /// How many of its entries the original had no more, or not in these words.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub lost: u64,
    pub chunks: Vec<Chunk>,
}

/// A piece of one or several sessions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Chunk {
    /// Of its content, in hexadecimal: also its name.
    pub sha256: String,
    pub num_entries: u64,
    /// The size of its content.
    pub size_bytes: u64,
}

impl Chunk {
    /// Returns what tells this content from any other.
    pub fn of(content: &[u8], num_entries: u64) -> Self {
        Self { sha256: sha256(content), num_entries, size_bytes: content.len() as u64 }
    }

    /// Returns where it is in a directory of snapshots.
    pub fn path(&self, dir: &Path) -> PathBuf {
        dir.join(CHUNKS).join(format!("{}.zst", self.sha256))
    }

    /// Returns its content, or why it is not what was written.
    pub fn content(&self, dir: &Path) -> Result<Vec<u8>> {
        let path = self.path(dir);
        let (file, _) = files::open(&path)?;
        let io = |source| Error::Io { path: path.clone(), source };
        let mut content = Vec::new();
        let limit = self.size_bytes.min(CHUNK_SIZE_BYTES_MAX) + 1;
        files::decompressed(&path, file)?.take(limit).read_to_end(&mut content).map_err(io)?;
        if content.len() as u64 != self.size_bytes || sha256(&content) != self.sha256 {
            return Err(Error::Format { path, what: "it is not what was written".to_owned() });
        }
        Ok(content)
    }
}

impl Manifest {
    /// Returns where a session's manifest is in a directory of snapshots.
    pub fn path(dir: &Path, source: Source, id: &SessionId) -> PathBuf {
        dir.join(source.as_str()).join(format!("{id}.json"))
    }

    /// Reads a manifest. What it says of other files is checked: it names chunks and nothing else.
    pub fn load(path: &Path) -> Result<Self> {
        let format = |what: String| Error::Format { path: path.to_owned(), what };
        let bytes = files::document(path)?;
        let version: Version = serde_json::from_slice(&bytes).map_err(|error| format(error.to_string()))?;
        if version.version > VERSION {
            let what = format!("it is version {}, and this program knows {VERSION}", version.version);
            return Err(format(what));
        }
        let manifest: Self = serde_json::from_slice(&bytes).map_err(|error| format(error.to_string()))?;
        let is_hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if !manifest.chunks.iter().all(|chunk| chunk.sha256.len() == 64 && is_hex(&chunk.sha256)) {
            return Err(format("it names something that is no chunk".to_owned()));
        }
        let dir = path.ancestors().nth(2).unwrap_or(path);
        if Self::path(dir, manifest.source, &manifest.id) != path {
            return Err(format(format!("it is the one of {}:{}", manifest.source, manifest.id)));
        }
        Ok(manifest)
    }

    /// Returns the session as a list shows it.
    fn foreign(self, path: &Path) -> Foreign {
        let place = Place { path: path.to_owned(), size_bytes: None };
        Foreign {
            title: self.title,
            cwd: self.cwd,
            branch: self.branch,
            created_at: self.created_at,
            parent: self.parent,
            name: self.name,
            is_archived: self.is_archived,
            num_messages: Some(self.num_messages),
            is_snapshot: true,
            ..Foreign::new(self.source, self.id, place, self.updated_at)
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// An entry as a line of a chunk.
#[derive(Serialize, Deserialize)]
struct Line<B> {
    #[serde(skip_serializing_if = "Option::is_none", default)]
    id: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    rewound: bool,
    body: B,
}

/// Writes an entry as a line of a chunk, with its end.
pub fn line(entry: &Entry) -> String {
    let line = Line { id: entry.id.clone(), rewound: entry.is_taken_back, body: &entry.body };
    serde_json::to_string(&line).expect("a message body has string keys only") + "\n"
}

/// Returns the entries of a chunk; what is none is left out.
pub fn entries(content: &[u8]) -> impl Iterator<Item = Entry> {
    let lines = content.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.filter_map(|line| {
        let Line { id, rewound, body } = serde_json::from_slice::<Line<Body>>(line).ok()?;
        Some(Entry { id, body, is_taken_back: rewound })
    })
}

/// Hands over what a snapshot has, oldest first. A damaged chunk costs its entries, which are counted.
pub(crate) fn read(path: &Path, take: &mut Take<'_>) -> Result<Told> {
    let dir = path.ancestors().nth(2).unwrap_or(path);
    let mut manifest = Manifest::load(path)?;
    let mut told = Told::default();
    // How many entries are behind us, damaged ones too.
    let mut passed = 0;
    'manifest: loop {
        let mut start = 0;
        for chunk in &manifest.chunks {
            let first = start;
            start += chunk.num_entries;
            if start <= passed {
                continue;
            }
            let Ok(content) = chunk.content(dir) else {
                // Another one may have been taken meanwhile, and its last chunk is longer.
                let newer = Manifest::load(path)?;
                if newer.chunks != manifest.chunks {
                    manifest = newer;
                    continue 'manifest;
                }
                told.bad += start - passed;
                passed = start;
                continue;
            };
            let mut found = 0;
            for entry in entries(&content) {
                found += 1;
                if first + found > passed && take(entry).is_break() {
                    return Ok(told);
                }
            }
            told.bad += chunk.num_entries.saturating_sub(found);
            passed = start;
        }
        return Ok(told);
    }
}

/// Names the sessions that are only here any more.
pub(crate) fn list(dir: &Path, listing: &mut Listing<'_>) {
    let live = listing.ids();
    for item in listing.entries(&dir.join(listing.source().as_str())) {
        let id = item.name.strip_suffix(".json").and_then(|id| id.parse::<SessionId>().ok());
        if item.is_dir || item.is_link || id.is_none_or(|id| live.contains(&id)) {
            continue;
        }
        listing.visit(&item.path, || Ok(vec![Manifest::load(&item.path)?.foreign(&item.path)]));
    }
}

/// Returns the session that a snapshot was taken of, to be read from there.
pub fn session(dir: &Path, source: Source, id: &SessionId) -> Result<Foreign> {
    let path = Manifest::path(dir, source, id);
    Ok(Manifest::load(&path)?.foreign(&path))
}

/// Returns where the manifests of a directory of snapshots are, by source and id.
pub fn manifests(dir: &Path) -> Result<Vec<(Source, SessionId, PathBuf)>> {
    let mut found = Vec::new();
    for source in Source::ALL {
        for item in files::entries(&dir.join(source.as_str()))? {
            let id = item.name.strip_suffix(".json").and_then(|id| id.parse().ok());
            found.extend(id.filter(|_| !item.is_dir && !item.is_link).map(|id| (source, id, item.path)));
        }
    }
    Ok(found)
}
