//! What `sess install` wrote, kept so that `sess uninstall` can take back exactly that.
//!
//! One file a host, `<data>/installed/<host>.json`. It is written before anything else is, so that an install that
//! was cut short can be taken back, too.

use std::{
    fs::{self, File, TryLockError},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use sess_core::digest::sha256;

use super::{
    document::{Entry, Format, Found},
    files,
};

const DIR: &str = "installed";
/// What an install locks; no host has this name.
const LOCK: &str = "lock";
/// The name under which directories are kept; no host has it.
const DIRS: &str = "directories";
/// The version of the files. Fields are only ever added under one number.
const VERSION: u32 = 1;

/// What was written for one host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    version: u32,
    pub files: Vec<Written>,
}

/// The directories that were made: for all hosts together, because several may have files in one.
#[derive(Debug, Serialize, Deserialize)]
pub struct Dirs {
    version: u32,
    made: Vec<PathBuf>,
}

/// One file that was written.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Written {
    /// The file itself, where symbolic links led when it was written.
    pub path: PathBuf,
    /// The name by which its host opens it, where that was a symbolic link: it may lead elsewhere by now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    named: Option<PathBuf>,
    /// What it said before, in base64; it was not there if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<String>,
    /// The SHA-256 of what it said then.
    after: String,
    /// How it is written; it is no document if not given, and the whole of it was put there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
    /// What was put into the document.
    pub entries: Vec<Put>,
}

/// One entry that was put into a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Put {
    path: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    value: Value,
    /// How many of its containers were made for it.
    pub made: usize,
}

impl Default for Record {
    fn default() -> Self {
        Self { version: VERSION, files: Vec::new() }
    }
}

impl Record {
    pub fn load(data: &Path, host: &str) -> anyhow::Result<Option<Self>> {
        let path = path(data, host);
        let record: Option<Self> = load(&path)?;
        match record {
            Some(record) if record.version > VERSION => {
                bail!("{} was written by a newer sess: use that one", path.display())
            }
            record => Ok(record),
        }
    }

    /// Keeps the record; one of nothing is removed.
    pub fn save(&self, data: &Path, host: &str) -> anyhow::Result<()> {
        save(data, &path(data, host), (!self.files.is_empty()).then_some(self))
    }

    /// Tells whether something was written to a file.
    pub fn has(&self, name: &Path) -> bool {
        let is_it = |known: &Path| files::is_same(known, name);
        self.files.iter().any(|file| file.names().any(is_it))
    }

    /// Returns what was written to a file that has this name, is there, and says this now.
    ///
    /// A link may be newer than what was written, may lead elsewhere since, and a home may have another place.
    pub fn file(&self, name: &Path, path: &Path, now: Option<&[u8]>) -> Option<&Written> {
        let has_path = |file: &&Written| files::is_same(&file.path, path);
        let has_name = |file: &&Written| file.named.as_deref() == Some(name);
        let has_moved = |file: &&Written| now.is_some_and(|now| file.is_gone() && file.is_in(now));
        let mut found = self.files.iter();
        found
            .clone()
            .find(has_path)
            .or_else(|| found.clone().find(has_name))
            .or_else(|| found.find(has_moved))
    }
}

impl Dirs {
    pub fn load(data: &Path) -> anyhow::Result<Self> {
        Ok(load(&path(data, DIRS))?.unwrap_or(Self { version: VERSION, made: Vec::new() }))
    }

    /// Keeps in mind that directories are about to be made.
    pub fn add(mut self, data: &Path, missing: Vec<PathBuf>) -> anyhow::Result<()> {
        self.made.extend(missing.into_iter().filter(|dir| !self.made.contains(dir)).collect::<Vec<_>>());
        save(data, &path(data, DIRS), (!self.made.is_empty()).then_some(&self))
    }

    /// Removes the directories in which nothing is, and forgets the others when nothing is installed any more.
    pub fn remove_empty(mut self, data: &Path, is_last: bool) -> anyhow::Result<()> {
        self.made.sort_by_key(|dir| std::cmp::Reverse(dir.components().count()));
        self.made.retain(|dir| fs::remove_dir(dir).is_err() && dir.exists());
        save(data, &path(data, DIRS), (!is_last && !self.made.is_empty()).then_some(&self))
    }
}

impl Written {
    pub fn new(path: PathBuf, before: Option<&[u8]>, after: &[u8]) -> Self {
        let before = before.map(|bytes| STANDARD.encode(bytes));
        Self { path, named: None, before, after: sha256(after), format: None, entries: Vec::new() }
    }

    /// Returns it as the record of a file at this path, to which a name leads.
    pub fn at(self, path: &Path, name: &Path) -> Self {
        Self { path: path.to_owned(), named: (name != path).then(|| name.to_owned()), ..self }
    }

    /// Returns the names under which it may be found now.
    pub fn names(&self) -> impl Iterator<Item = &Path> {
        self.named.iter().chain([&self.path]).map(PathBuf::as_path)
    }

    /// Tells whether nothing is there under its names any more.
    fn is_gone(&self) -> bool {
        !self.names().any(|name| name.exists() || name.is_symlink())
    }

    /// Tells whether a file has something that was written.
    pub fn is_in(&self, now: &[u8]) -> bool {
        let Some(format) = self.format else { return self.is_as_left(now) };
        let is_same = |text: &str, put: &Put| format.find(text, &put.entry()) == Ok(Found::Same);
        str::from_utf8(now).is_ok_and(|text| self.entries.iter().any(|put| is_same(text, put)))
    }

    /// Returns it as the record of entries in a document.
    pub fn with_entries(self, format: Format, entries: Vec<Put>) -> Self {
        Self { format: Some(format), entries, ..self }
    }

    /// Returns what was put where an entry goes: into one list that is one entry at most.
    pub fn put_at(&self, entry: &Entry) -> Option<&Put> {
        self.entries.iter().find(|put| put.path == entry.path && put.key == entry.key)
    }

    /// Tells whether a file is as it was left.
    pub fn is_as_left(&self, bytes: &[u8]) -> bool {
        self.after == sha256(bytes)
    }

    /// Returns what the file said before it was written.
    pub fn before(&self) -> anyhow::Result<Option<Vec<u8>>> {
        let Some(text) = &self.before else { return Ok(None) };
        let bytes = STANDARD.decode(text);
        Ok(Some(bytes.with_context(|| format!("the record of {} is damaged", self.path.display()))?))
    }
}

impl Put {
    pub fn new(entry: &Entry, made: usize) -> Self {
        Self { path: entry.path.clone(), key: entry.key.clone(), value: entry.value.clone(), made }
    }

    pub fn entry(&self) -> Entry {
        Entry { path: self.path.clone(), key: self.key.clone(), value: self.value.clone() }
    }
}

/// Keeps others from the records, and from what they are about, until it is dropped. First it waits for them, and calls
/// `told` if it has to.
pub fn lock(data: &Path, told: impl FnOnce()) -> anyhow::Result<File> {
    let path = data.join(DIR).join(LOCK);
    let failed = || format!("cannot lock {}", path.display());
    files::make_dir(&data.join(DIR))?;
    let mut options = File::options();
    let file =
        options.create(true).truncate(false).write(true).mode(0o600).open(&path).with_context(failed)?;
    // Where nothing can be locked, a file that changed meanwhile is still noticed.
    if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
        told();
        file.lock().with_context(failed)?;
    }
    Ok(file)
}

/// Tells whether anything is installed for any host; what cannot be looked at may be.
pub fn has_any(data: &Path) -> bool {
    // The lock stays: whoever waits for it would hold one that nobody else sees, if it went.
    let is_record = |entry: io::Result<fs::DirEntry>| {
        entry.map_or(true, |entry| {
            let name = PathBuf::from(entry.file_name());
            let is_json = name.extension().is_some_and(|ending| ending == "json");
            is_json && name.file_stem().is_some_and(|host| host != DIRS)
        })
    };
    match fs::read_dir(data.join(DIR)) {
        Ok(mut entries) => entries.any(is_record),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// Tells whether anything was installed for a host.
pub fn has(data: &Path, host: &str) -> bool {
    path(data, host).exists()
}

fn load<T: DeserializeOwned>(path: &Path) -> anyhow::Result<Option<T>> {
    let failed = || format!("cannot read {}", path.display());
    let Some(bytes) = files::read(path)? else { return Ok(None) };
    Ok(Some(serde_json::from_slice(&bytes).with_context(failed)?))
}

fn save(data: &Path, path: &Path, value: Option<&impl Serialize>) -> anyhow::Result<()> {
    files::remove_leftovers(path);
    let seen = files::read(path)?;
    let Some(value) = value else {
        return if seen.is_some() { files::remove(path, seen.as_deref()) } else { Ok(()) };
    };
    files::make_dir(&data.join(DIR))?;
    let text =
        serde_json::to_string_pretty(value).context("a path is not UTF-8 text and cannot be recorded")?;
    files::replace(path, seen.as_deref(), (text + "\n").as_bytes())
}

fn path(data: &Path, host: &str) -> PathBuf {
    data.join(DIR).join(format!("{host}.json"))
}
