//! Opening and reading files that somebody else may be writing.

use std::{
    fs::{self, File, Metadata},
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom},
    ops::{ControlFlow, Range},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use memchr::{memchr, memchr_iter, memrchr};
use rustix::fs::OFlags;
use serde_json::value::RawValue;
use sess_core::Timestamp;

use crate::{Error, Result, Told};

/// How much of a file's beginning and end is looked at to list it.
const HEAD_SIZE_BYTES: u64 = 16 << 10;
const TAIL_SIZE_BYTES: u64 = 64 << 10;
/// The end may be one long line, or many that say no time; from here on it is given up.
const TAIL_SIZE_BYTES_MAX: u64 = 8 << 20;
/// A first line may be longer than the head; from here on it is given up.
const FIRST_LINE_SIZE_BYTES_MAX: u64 = 2 << 20;
/// How many lines are looked at for what the beginning should tell.
const OPENING_LINES_MAX: usize = 210;
/// A longer line is passed over, and counted as bad.
const LINE_SIZE_BYTES_MAX: usize = 64 << 20;
/// A document that must be read whole may be this large.
const DOCUMENT_SIZE_BYTES_MAX: u64 = 256 << 20;
/// Nobody writes more settings than this.
const SETTINGS_SIZE_BYTES_MAX: u64 = 4 << 20;

/// Opens a regular file for reading. A link at its place is not followed.
pub(crate) fn open(path: &Path) -> Result<(File, Metadata)> {
    open_with(path, OFlags::NOFOLLOW)
}

fn open_with(path: &Path, flags: OFlags) -> Result<(File, Metadata)> {
    let io = |source| Error::Io { path: path.to_owned(), source };
    // A pipe at its place would wait for a writer for ever.
    let flags = i32::try_from((flags | OFlags::NONBLOCK).bits()).expect("open flags fit");
    let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = file.map_err(|error| match rustix::io::Errno::from_io_error(&error) {
        Some(rustix::io::Errno::LOOP) => linked(path),
        _ => io(error),
    })?;
    let metadata = file.metadata().map_err(io)?;
    if !metadata.is_file() {
        return Err(io(io::Error::other("it is no regular file")));
    }
    Ok((file, metadata))
}

/// Returns the error of a path that is a link.
pub(crate) fn linked(path: &Path) -> Error {
    let source = io::Error::other("it is a link, and links are not followed");
    Error::Io { path: path.to_owned(), source }
}

/// Returns when a file was last changed.
pub(crate) fn modified(metadata: &Metadata) -> Timestamp {
    let since = metadata.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let ms = since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
    Timestamp::from_millis_clamped(ms)
}

/// Returns what is in a directory, by name; nothing when it is not there.
pub(crate) fn entries(dir: &Path) -> Result<Vec<Item>> {
    let io = |source| Error::Io { path: dir.to_owned(), source };
    let listed = match fs::read_dir(dir) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        listed => listed.map_err(io)?,
    };
    let mut items = Vec::new();
    for entry in listed {
        let entry = entry.map_err(io)?;
        let kind = entry.file_type().map_err(io)?;
        // Names that are no text are nobody's sessions.
        let Ok(name) = entry.file_name().into_string() else { continue };
        let (path, is_link) = (entry.path(), kind.is_symlink());
        items.push(Item { name, is_dir: kind.is_dir() || is_link && path.is_dir(), is_link, path });
    }
    items.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(items)
}

/// Returns what is in a directory inside an agent's own, which may not be a link: it could lead anywhere.
pub(crate) fn entries_below(dir: &Path) -> Result<Vec<Item>> {
    if dir.is_symlink() { Err(linked(dir)) } else { entries(dir) }
}

/// What stands in a directory: a file, a directory, or something else in the place of one.
pub(crate) struct Item {
    pub path: PathBuf,
    pub name: String,
    /// It is a directory, or leads to one.
    pub is_dir: bool,
    pub is_link: bool,
}

/// Reads a whole document, which may not be larger than what fits into memory.
pub(crate) fn document(path: &Path) -> Result<Vec<u8>> {
    let (file, _) = open(path)?;
    read_bounded(path, file)
}

/// Reads a file of the user's own settings; nothing when it is not there. Unlike what agents write, it may be a link:
/// people keep their settings elsewhere, and agents follow that.
pub(crate) fn settings(path: &Path) -> Result<Option<Vec<u8>>> {
    match open_with(path, OFlags::empty()) {
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => read_up_to(SETTINGS_SIZE_BYTES_MAX, path, opened?.0).map(Some),
    }
}

/// Returns what was compressed as zstd, in little memory.
pub(crate) fn decompressed<R: Read>(path: &Path, from: R) -> Result<impl Read + use<R>> {
    zstd::Decoder::new(from).map_err(|source| Error::Io { path: path.to_owned(), source })
}

/// Reads all of a stream, up to the largest document.
pub(crate) fn read_bounded(path: &Path, from: impl Read) -> Result<Vec<u8>> {
    read_up_to(DOCUMENT_SIZE_BYTES_MAX, path, from)
}

fn read_up_to(size_bytes_max: u64, path: &Path, from: impl Read) -> Result<Vec<u8>> {
    let io = |source| Error::Io { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    from.take(size_bytes_max + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > size_bytes_max {
        let what = format!("it is larger than {} MB", size_bytes_max >> 20);
        return Err(Error::Format { path: path.to_owned(), what });
    }
    Ok(bytes)
}

/// The complete lines at a file's beginning and end.
pub(crate) struct Ends {
    head: Vec<u8>,
    /// Empty when the head is the whole file.
    tail: Vec<u8>,
    is_whole: bool,
    /// The end says when something was last said.
    is_dated: bool,
    /// What was compressed ends before its end: nobody goes on writing such a file.
    is_cut: bool,
}

impl Ends {
    /// As [`Self::of`], of a file that may be compressed.
    pub(crate) fn of_any(
        path: &Path,
        file: File,
        metadata: &Metadata,
        is_dated: impl Fn(&[u8]) -> bool,
    ) -> Result<Self> {
        match is_compressed(path) {
            true => Self::of_stream(path, decompressed(path, file)?),
            false => Self::of(path, &file, metadata, is_dated),
        }
    }

    /// Reads both ends of a file. The lower one is widened until it has a line that is dated: one that tells when
    /// something was said.
    pub(crate) fn of(
        path: &Path,
        file: &File,
        metadata: &Metadata,
        is_dated: impl Fn(&[u8]) -> bool,
    ) -> Result<Self> {
        let io = |source| Error::Io { path: path.to_owned(), source };
        let size = metadata.len();
        let mut file = file;
        let mut head = Vec::new();
        file.seek(SeekFrom::Start(0)).map_err(io)?;
        let whole = HEAD_SIZE_BYTES + TAIL_SIZE_BYTES;
        let first = if size <= whole { size } else { HEAD_SIZE_BYTES };
        file.take(first).read_to_end(&mut head).map_err(io)?;
        while (head.len() as u64) < size.min(FIRST_LINE_SIZE_BYTES_MAX) && memchr(b'\n', &head).is_none() {
            if file.take(HEAD_SIZE_BYTES).read_to_end(&mut head).map_err(io)? == 0 {
                break;
            }
        }
        let (mut tail, mut is_end_dated) = (Vec::new(), true);
        if (head.len() as u64) < size {
            // Half a line at its end is not part of the head.
            head.truncate(memrchr(b'\n', &head).map_or(0, |end| end + 1));
            (tail, is_end_dated) = dated_lines(file, head.len() as u64..size, is_dated).map_err(io)?;
        }
        Ok(Self { is_whole: size <= whole, head, tail, is_dated: is_end_dated, is_cut: false })
    }

    /// Reads the beginning of what can only be read in order: there is no end to look at.
    pub(crate) fn of_stream(path: &Path, mut from: impl Read) -> Result<Self> {
        let io = |source| Error::Io { path: path.to_owned(), source };
        let mut head = Vec::new();
        let mut is_cut = false;
        loop {
            let part = HEAD_SIZE_BYTES + TAIL_SIZE_BYTES;
            let read = match from.by_ref().take(part).read_to_end(&mut head) {
                // The rest was not written.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    is_cut = true;
                    0
                }
                read => read.map_err(io)? as u64,
            };
            if read < part {
                return Ok(Self { head, tail: Vec::new(), is_whole: true, is_dated: true, is_cut });
            }
            if memchr(b'\n', &head).is_some() || head.len() as u64 >= FIRST_LINE_SIZE_BYTES_MAX {
                head.truncate(memrchr(b'\n', &head).map_or(0, |end| end + 1));
                return Ok(Self { head, tail: Vec::new(), is_whole: false, is_dated: false, is_cut });
            }
        }
    }

    /// Refuses a file in which nothing that was said can be read, where that is because of damage. Its last line may be
    /// half-written; one of a header alone, or of records that are not known here, has nobody who said anything.
    /// `is_record` tells whether an object can be understood.
    pub(crate) fn check(&self, path: &Path, is_record: impl Fn(&[u8]) -> bool) -> Result<()> {
        let refuse = |what: String| Err(Error::Format { path: path.to_owned(), what });
        if self.is_cut {
            return refuse("it breaks off before anything was said".to_owned());
        }
        // Bytes that are no text are as bad as what is no JSON, also where nobody looks at them.
        let is_bad = |line: &&[u8]| match serde_json::from_slice::<&RawValue>(line) {
            Ok(value) => value.get().starts_with('{') && !is_record(line),
            Err(_) => !line.trim_ascii().is_empty(),
        };
        let count = self.head().chain(self.tail()).count();
        let bad = self.head().chain(self.tail()).filter(is_bad).count();
        let end = if self.tail.is_empty() { &self.head } else { &self.tail };
        let is_half = |line: &[u8]| serde_json::from_slice::<&RawValue>(line).is_err() && is_bad(&line);
        let is_torn = lines(end).last().is_some_and(|last| end.ends_with(last) && is_half(last));
        let is_begun = count == 1 && is_torn && self.head.starts_with(b"{");
        if bad == count && count > 0 && !is_begun {
            return refuse("no line of it is a record".to_owned());
        }
        if bad > usize::from(is_torn) {
            let what = "nothing that was said in it can be read, and some of its lines are no records";
            return refuse(what.to_owned());
        }
        Ok(())
    }

    /// Returns when something was last said, by the last line that tells it. Where the end of the file does not, it may
    /// have been as late as the file was changed.
    pub(crate) fn said_at(&self, by_lines: Option<Timestamp>, changed_at: Timestamp) -> Timestamp {
        match by_lines {
            Some(at) if self.is_dated => at,
            Some(at) => at.max(changed_at),
            None => changed_at,
        }
    }

    /// Tells whether the lines are all that there are.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Hands over the lines at the beginning, as [`Self::begin`] does, and those at the end.
    pub(crate) fn each(&self, path: &Path, mut see: impl FnMut(&[u8]) -> bool) -> Result<()> {
        self.begin(path, &mut see)?;
        for line in self.tail() {
            see(line);
        }
        Ok(())
    }

    /// Hands over the lines at the beginning. Where `see` does not say that it knows what is looked for, the first of the
    /// file come once more, and others: a line that is longer than what is looked at hides itself and those behind it.
    pub(crate) fn begin(&self, path: &Path, mut see: impl FnMut(&[u8]) -> bool) -> Result<()> {
        let is_known = self.head().fold(false, |_, line| see(line));
        if is_known || self.is_whole { Ok(()) } else { opening(Lines::of_any(path)?, see) }
    }

    pub(crate) fn head(&self) -> impl Iterator<Item = &[u8]> {
        lines(&self.head)
    }

    /// The lines at the end; none when the head has all of them.
    pub(crate) fn tail(&self) -> impl Iterator<Item = &[u8]> {
        lines(&self.tail)
    }
}

/// Returns the whole lines at the end of a part of a file, as many as it takes to find one that is dated, and whether
/// there can be no later one.
fn dated_lines(
    file: &File,
    part: Range<u64>,
    is_dated: impl Fn(&[u8]) -> bool,
) -> io::Result<(Vec<u8>, bool)> {
    let mut size = TAIL_SIZE_BYTES;
    loop {
        let tail = last_lines(file, &part, size)?;
        let is_found = lines(&tail).any(&is_dated);
        if is_found && size > TAIL_SIZE_BYTES {
            // What stands before a long line counts as what stands before a short one.
            return Ok((last_lines(file, &part, size + TAIL_SIZE_BYTES)?, true));
        }
        // When all that is behind the head was seen, the head tells the last time.
        let is_all = size >= part.end - part.start;
        if is_found || is_all || size >= TAIL_SIZE_BYTES_MAX {
            return Ok((tail, is_found || is_all));
        }
        size *= 2;
    }
}

/// Returns the whole lines among the last bytes of a part of a file, which begins with a line.
fn last_lines(mut file: &File, part: &Range<u64>, size: u64) -> io::Result<Vec<u8>> {
    let from = part.end.saturating_sub(size).max(part.start);
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(from))?;
    file.take(part.end - from).read_to_end(&mut tail)?;
    if from > part.start {
        tail.drain(..memchr(b'\n', &tail).map_or(tail.len(), |end| end + 1));
    }
    Ok(tail)
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = memchr_iter(b'\n', bytes).chain(std::iter::once(bytes.len()));
    let mut start = 0;
    ends.filter_map(move |end| {
        let line = bytes.get(start..end)?;
        start = end + 1;
        (!line.is_empty()).then_some(line)
    })
}

/// The lines of a stream, one at a time in the same memory.
pub(crate) struct Lines<R> {
    from: BufReader<R>,
    line: Vec<u8>,
    path: PathBuf,
    used: u64,
    /// Where the line begins that was handed over last.
    pub start: u64,
    /// Lines that were too long to be read.
    pub too_long: u64,
    /// The last line had no end.
    pub is_torn: bool,
    /// What was compressed ended before its end.
    is_cut: bool,
}

impl Lines<File> {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        Ok(Self::new(path, open(path)?.0))
    }
}

impl<R: Read> Lines<R> {
    pub(crate) fn new(path: &Path, from: R) -> Self {
        let from = BufReader::with_capacity(256 << 10, from);
        let path = path.to_owned();
        Self { from, line: Vec::new(), path, used: 0, start: 0, too_long: 0, is_torn: false, is_cut: false }
    }

    /// Returns the next line, without its end; `None` at the end of the stream.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>> {
        loop {
            self.line.clear();
            self.start = self.used;
            match self.fill() {
                Err(source) => return Err(Error::Io { path: self.path.clone(), source }),
                Ok(false) => return Ok(None),
                Ok(true) if self.line.is_empty() => {}
                Ok(true) => return Ok(Some(&self.line)),
            }
        }
    }

    /// Reads one line into `self.line`; leaves it empty for one that is empty or too long.
    fn fill(&mut self) -> io::Result<bool> {
        let mut is_too_long = false;
        let mut is_begun = false;
        loop {
            let bytes = match self.from.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // A compressed stream whose end was not written.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    (self.is_torn, self.is_cut) = (true, true);
                    break;
                }
                bytes => bytes?,
            };
            if bytes.is_empty() {
                self.is_torn |= is_begun;
                break;
            }
            is_begun = true;
            let end = memchr(b'\n', bytes);
            let part = &bytes[..end.unwrap_or(bytes.len())];
            is_too_long |= self.line.len() + part.len() > LINE_SIZE_BYTES_MAX;
            if is_too_long {
                self.line.clear();
            } else {
                self.line.extend_from_slice(part);
            }
            let used = part.len() + usize::from(end.is_some());
            self.from.consume(used);
            self.used += used as u64;
            if end.is_some() {
                break;
            }
        }
        self.too_long += u64::from(is_too_long);
        Ok(is_begun)
    }
}

/// Hands over the first lines, until `see` says that it knows what is looked for.
pub(crate) fn opening<R: Read>(mut lines: Lines<R>, mut see: impl FnMut(&[u8]) -> bool) -> Result<()> {
    for _ in 0..OPENING_LINES_MAX {
        let Some(line) = lines.next()? else { break };
        if see(line) {
            break;
        }
    }
    Ok(())
}

/// Tells by its name whether a file is compressed.
pub(crate) fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "zst")
}

impl Lines<Box<dyn Read>> {
    /// Opens a file that may be compressed.
    pub(crate) fn of_any(path: &Path) -> Result<Self> {
        let (file, _) = open(path)?;
        let from: Box<dyn Read> =
            if is_compressed(path) { Box::new(decompressed(path, file)?) } else { Box::new(file) };
        Ok(Self::new(path, from))
    }
}

/// Hands over lines, each with where it begins, until there are enough. `take` returns nothing for a line
/// that it cannot read, which is counted; half a line at the end, which somebody may still write, is told.
/// Returns whether all were handed over.
pub(crate) fn each<R: Read>(
    mut lines: Lines<R>,
    told: &mut Told,
    mut take: impl FnMut(u64, &[u8]) -> Option<ControlFlow<()>>,
) -> Result<bool> {
    let mut flow = ControlFlow::Continue(());
    while flow.is_continue() && lines.next()?.is_some() {
        match take(lines.start, &lines.line) {
            Some(taken) => flow = taken,
            None if lines.is_torn => told.is_torn = true,
            None => told.bad += 1,
        }
    }
    told.bad += lines.too_long;
    // Nobody goes on writing a compressed file: what is missing is lost.
    told.is_torn |= lines.is_cut;
    told.bad += u64::from(lines.is_cut);
    Ok(flow.is_continue())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(content: &[u8]) -> (Vec<String>, Vec<String>) {
        ends_dated_by(content, |_| true)
    }

    fn ends_dated_by(content: &[u8], is_dated: impl Fn(&[u8]) -> bool) -> (Vec<String>, Vec<String>) {
        let temp = tempfile::NamedTempFile::new().expect("a file");
        fs::write(temp.path(), content).expect("written");
        let (file, metadata) = open(temp.path()).expect("opened");
        let ends = Ends::of(temp.path(), &file, &metadata, is_dated).expect("read");
        let text = |line: &[u8]| String::from_utf8_lossy(line).into_owned();
        (ends.head().map(text).collect(), ends.tail().map(text).collect())
    }

    #[test]
    fn the_ends_of_a_file_are_whole_lines_and_no_line_comes_twice() {
        let line = |n: usize| format!("{n:06} {}", "x".repeat(n % 977));
        for count in [0, 1, 2, 5, 100, 170, 190, 1_000] {
            let all: Vec<String> = (0..count).map(line).collect();
            for end in ["", "\n"] {
                let (head, tail) = ends((all.join("\n") + end).as_bytes());
                assert!(all.starts_with(&head) && all.ends_with(&tail), "{count}");
                if count < 1_000 {
                    assert_eq!([head, tail].concat(), all, "{count}");
                }
            }
        }
    }

    #[test]
    fn a_first_line_longer_than_the_head_is_still_read() {
        let first = "f".repeat(300_000);
        let rest = format!("{}\n", "r".repeat(90)).repeat(5_000);
        let (head, tail) = ends(format!("{first}\n{rest}").as_bytes());
        assert_eq!(head.first(), Some(&first));
        assert_eq!(tail.last().map(String::len), Some(90));
    }

    #[test]
    fn the_end_reaches_to_a_line_that_is_dated_and_to_what_stands_before_it_but_not_for_ever() {
        let check = |end: &[usize], seen: &str| {
            let rest = format!("{}\n", "r".repeat(999)).repeat(20_000);
            let end: Vec<String> = end.iter().map(|len| "e".repeat(*len)).collect();
            let content = format!("{rest}dated\ntitle\n{}\n", end.join("\n"));
            let (_, tail) = ends_dated_by(content.as_bytes(), |line| line.starts_with(b"d"));
            let tail: Vec<usize> = tail.iter().map(String::len).filter(|len| *len != 999).collect();
            assert_eq!(format!("{tail:?}"), seen);
        };
        check(&[9], "[5, 5, 9]");
        // A window of twice the size ends within the title before this one.
        check(&[(128 << 10) - 4], "[5, 5, 131068]");
        check(&[70_000, 3 << 20, 8], "[5, 5, 70000, 3145728, 8]");
        check(&[9 << 20, 8], "[8]");
    }

    #[test]
    fn lines_that_are_too_long_or_torn_are_told_and_the_rest_comes() {
        let long = vec![b'x'; LINE_SIZE_BYTES_MAX + 1];
        let content = [b"one\n\n", &long[..], b"\ntwo\nthr"].concat();
        let mut lines = Lines::new(Path::new("f"), &content[..]);
        let mut seen = Vec::new();
        while let Some(line) = lines.next().expect("read") {
            seen.push(String::from_utf8_lossy(line).into_owned());
        }
        assert_eq!(seen, ["one", "two", "thr"]);
        assert_eq!((lines.too_long, lines.is_torn), (1, true));
    }

    #[test]
    fn links_and_pipes_are_not_opened() {
        let temp = tempfile::tempdir().expect("a directory");
        let link = temp.path().join("link");
        std::os::unix::fs::symlink("/etc/hostname", &link).expect("linked");
        assert!(open(&link).is_err());
        assert!(open(temp.path()).is_err());
        std::os::unix::fs::symlink(temp.path(), temp.path().join("to dir")).expect("linked");
        let kinds = entries(temp.path()).expect("listed").into_iter().map(|it| (it.is_dir, it.is_link));
        assert_eq!(kinds.collect::<Vec<_>>(), [(false, true), (true, true)]);
        assert!(entries_below(&temp.path().join("to dir")).is_err());
        assert!(entries(&temp.path().join("gone")).expect("empty").is_empty());
    }
}
