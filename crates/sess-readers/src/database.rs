//! Opening SQLite files of other programs so that not a byte of theirs changes.
//!
//! SQLite makes the `-wal` and `-shm` beside a database where they are missing, even for one
//! who only reads, and notes its readers in the latter. So a database that has both is read
//! through them, as one of its users that may not write; one that has neither is read as a file
//! that nobody changes, which is then checked; and one with a log alone, which a crash left
//! behind, is copied and the copy is read.

use std::{
    fmt,
    fs::{self, File, Metadata, Permissions},
    io::{self, Read},
    ops::ControlFlow,
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, config::DbConfig, types::ValueRef};
use serde_json::Value;
use sess_core::{SessionId, Timestamp};

use crate::{Error, Foreign, Result, files, json, session::session_id};

/// How often a database is read again because it changed meanwhile.
const ATTEMPTS_MAX: u32 = 5;
/// How many rows are read at a time before they are handed over.
const ROWS_PER_LOOK: usize = 32;
/// A value that is larger counts as not there.
const VALUE_SIZE_BYTES_MAX: usize = 64 << 20;

/// Runs queries on a database as it stands.
///
/// `look` runs again when the database changed under it, so what it collects
/// must be its own.
pub fn look<T>(path: &Path, look: impl FnMut(&Connection) -> rusqlite::Result<T>) -> Result<T> {
    Database::at(path).look(look)
}

/// Another program's database, which stays open, or copied, from one look to the next.
pub(crate) struct Database {
    path: PathBuf,
    opened: Option<Opened>,
    is_copy_needed: bool,
}

struct Opened {
    connection: Connection,
    stamp: Stamp,
    access: Access,
}

enum Access {
    /// As a file that nobody changes, which is checked after each look: times of change are too coarse
    /// for two writes in a row, so SQLite's count of changes is looked at, too.
    Still {
        counter: Option<[u8; 4]>,
    },
    /// As one of its users.
    Shared,
    Copy {
        _copied: Copied,
    },
}

impl Database {
    pub(crate) fn at(path: &Path) -> Self {
        Self { path: path.to_owned(), opened: None, is_copy_needed: false }
    }

    /// Runs queries that all see the same moment. They run again when the database changed
    /// under them, so what they collect must be their own.
    pub(crate) fn look<T>(&mut self, mut look: impl FnMut(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        for _ in 0..ATTEMPTS_MAX {
            let opened = match self.opened.take() {
                Some(opened) => opened,
                None => match self.open()? {
                    Some(opened) => opened,
                    None => continue,
                },
            };
            let seen = match opened.access {
                Access::Shared => {
                    opened.connection.unchecked_transaction().and_then(|_moment| look(&opened.connection))
                }
                Access::Still { .. } | Access::Copy { .. } => look(&opened.connection),
            };
            match opened.access {
                Access::Still { counter }
                    if Stamp::of(&self.path)? != opened.stamp || change_counter(&self.path) != counter =>
                {
                    continue;
                }
                Access::Shared if seen.as_ref().is_err_and(needs_writing) => {
                    self.is_copy_needed = true;
                    continue;
                }
                Access::Still { .. } | Access::Shared | Access::Copy { .. } => {}
            }
            self.opened = Some(opened);
            return seen.map_err(|source| Error::Database { path: self.path.clone(), source });
        }
        Err(Error::Busy(self.path.clone()))
    }

    /// Reads the rows that `keys` name, a few at a time, and hands each over once. One that is
    /// gone meanwhile is passed over.
    pub(crate) fn step<T>(
        &mut self,
        keys: &[i64],
        mut row: impl FnMut(&Connection, i64) -> rusqlite::Result<T>,
        mut give: impl FnMut(T) -> ControlFlow<()>,
    ) -> Result<()> {
        for keys in keys.chunks(ROWS_PER_LOOK) {
            let rows = self.look(|connection| {
                let rows = keys.iter().map(|key| row(connection, *key).optional());
                rows.collect::<rusqlite::Result<Vec<_>>>()
            })?;
            if rows.into_iter().flatten().try_for_each(&mut give).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Opens it in the way that changes nothing; nothing comes when it changed meanwhile.
    fn open(&self) -> Result<Option<Opened>> {
        let stamp = Stamp::of(&self.path)?;
        let database = |source| Error::Database { path: self.path.clone(), source };
        let (connection, access) = if stamp.log.is_none() {
            let counter = change_counter(&self.path);
            (open(&address(&self.path, "?immutable=1"), READ_ONLY), Access::Still { counter })
        } else if stamp.is_shared && !self.is_copy_needed {
            // Without the second option SQLite would write to the `-shm`.
            (open(&address(&self.path, "?mode=ro&readonly_shm=1"), READ_ONLY), Access::Shared)
        } else {
            let Some(copied) = Copied::of(&self.path, &stamp)? else { return Ok(None) };
            (open(&copied.path, OpenFlags::SQLITE_OPEN_READ_WRITE), Access::Copy { _copied: copied })
        };
        let connection = connection.map_err(database)?;
        Ok(Some(Opened { connection, stamp, access }))
    }
}

/// A table, as far as this version of its database has it.
pub(crate) struct Table {
    name: &'static str,
    columns: Vec<String>,
}

impl Table {
    pub(crate) fn of(connection: &Connection, name: &'static str) -> rusqlite::Result<Self> {
        let mut statement = connection.prepare("SELECT name FROM pragma_table_info(?1)")?;
        let columns = statement.query_map([name], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
        Ok(Self { name, columns })
    }

    pub(crate) fn has(&self, column: &str) -> bool {
        self.columns.iter().any(|there| there == column)
    }

    pub(crate) fn has_all(&self, columns: &[&str]) -> bool {
        columns.iter().all(|column| self.has(column))
    }

    /// Returns the beginning of a query for these columns, with NULL for those that are not there.
    pub(crate) fn select(&self, wanted: &[&str]) -> String {
        let wanted = wanted.iter().map(|column| if self.has(column) { *column } else { "NULL" });
        format!("SELECT {} FROM {}", wanted.collect::<Vec<_>>().join(", "), self.name)
    }

    /// Returns the id that a session has in the column `id`: the agent's own, of which ours is made.
    pub(crate) fn native_id(
        &self,
        connection: &Connection,
        id: &SessionId,
    ) -> rusqlite::Result<Option<String>> {
        let exact = format!("{} WHERE id = ?1", self.select(&["id"]));
        if connection.query_row(&exact, [id.as_str()], |_| Ok(())).optional()?.is_some() {
            return Ok(Some(id.as_str().to_owned()));
        }
        let mut statement = connection.prepare(&self.select(&["id"]))?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let native = text(row, 0).filter(|native| session_id(native).as_ref() == Some(id));
            if native.is_some() {
                return Ok(native);
            }
        }
        Ok(None)
    }
}

/// Returns the first of the tables that is not there with all of its columns.
pub(crate) fn lacking(
    connection: &Connection,
    wanted: &[(&'static str, &[&str])],
) -> rusqlite::Result<Option<&'static str>> {
    for (name, columns) in wanted {
        if !Table::of(connection, name)?.has_all(columns) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Returns the error of a database that has not what its agent's sessions are made of.
pub(crate) fn unknown_schema(path: &Path, table: &str) -> Error {
    Error::Format {
        path: path.to_owned(),
        what: format!("it has no table `{table}` with the columns that sessions are read from"),
    }
}

/// Returns the sessions that are in a database, and says how many there are besides.
///
/// `add` adds them, or returns a table that lacks what sessions are read from. As in [`look`], it runs again when the
/// database changed under it.
pub(crate) fn sessions(
    path: &Path,
    problems: &mut Vec<String>,
    mut add: impl FnMut(&Connection, &mut Named) -> rusqlite::Result<Option<&'static str>>,
) -> Result<Vec<Foreign>> {
    let (named, lacking) = look(path, |connection| {
        let mut named = Named::default();
        let lacking = add(connection, &mut named)?;
        Ok((named, lacking))
    })?;
    match lacking {
        Some(table) => Err(unknown_schema(path, table)),
        None => Ok(named.told(path, problems)),
    }
}

/// What the rows of a database name.
#[derive(Default)]
pub(crate) struct Named {
    pub sessions: Vec<Foreign>,
    /// Rows without an id: damage leaves such.
    pub lost: u64,
}

impl Named {
    /// Adds the sessions that a query finds, by the id in its first column. `session` is asked for each, and returns
    /// nothing for what is not to be listed.
    pub(crate) fn add(
        &mut self,
        connection: &Connection,
        sql: &str,
        mut session: impl FnMut(&Row<'_>, &str, SessionId) -> rusqlite::Result<Option<Foreign>>,
    ) -> rusqlite::Result<()> {
        let mut statement = connection.prepare(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let native = text(row, 0).unwrap_or_default();
            match session_id(&native) {
                Some(id) => self.sessions.extend(session(row, &native, id)?),
                None => self.lost += 1,
            }
        }
        Ok(())
    }

    /// Returns the sessions, and says how many there were besides.
    fn told(self, path: &Path, problems: &mut Vec<String>) -> Vec<Foreign> {
        if self.lost > 0 {
            let (count, path) = (self.lost, path.display());
            problems.push(format!("{count} session(s) in {path} cannot be read and are left out"));
        } else {
            problems.extend(shifted(path));
        }
        self.sessions
    }
}

/// Says that a database is no whole number of pages: bytes that came in between, or were lost, move all behind them, and
/// an index may then lead to nothing without an error. What a log has may still be written.
pub(crate) fn shifted(path: &Path) -> Option<String> {
    const PLACE: u64 = 16;
    let (file, metadata) = files::open(path).ok()?;
    let mut size = [0; 2];
    file.read_exact_at(&mut size, PLACE).ok()?;
    // The largest size does not fit, and is written as one.
    let size = match u16::from_be_bytes(size) {
        1 => 1 << 16,
        size => u64::from(size),
    };
    let is_whole = size == 0 || metadata.len() % size == 0 || Stamp::of(path).ok()?.log.is_some();
    (!is_whole).then(|| {
        format!(
            "{} is damaged: it is no whole number of pages; sessions in it may be left out",
            path.display()
        )
    })
}

/// Returns the numbers in the first column of a query for one session: keys for [`Database::step`].
pub(crate) fn keys(connection: &Connection, sql: &str, session: &str) -> rusqlite::Result<Vec<i64>> {
    let mut statement = connection.prepare(sql)?;
    statement.query_map([session], |row| row.get(0))?.collect()
}

/// Returns a value as text, whatever its type: SQLite's columns hold anything.
pub(crate) fn text(row: &Row<'_>, column: usize) -> Option<String> {
    match row.get_ref(column).ok()? {
        ValueRef::Null => None,
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(number.to_string()),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) if bytes.len() > VALUE_SIZE_BYTES_MAX => None,
        // Damaged bytes inside a text cost these bytes only.
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
    }
}

/// Tells whether there is no value, which is not so of one that is too large.
pub(crate) fn is_null(row: &Row<'_>, column: usize) -> bool {
    row.get_ref(column).is_ok_and(|value| value == ValueRef::Null)
}

/// Returns the bytes of a text or of a blob.
pub(crate) fn bytes(row: &Row<'_>, column: usize) -> Option<Vec<u8>> {
    let bytes = row.get_ref(column).ok()?.as_bytes_or_null().ok()??;
    (bytes.len() <= VALUE_SIZE_BYTES_MAX).then(|| bytes.to_owned())
}

/// Returns a text that is not empty.
pub(crate) fn filled(row: &Row<'_>, column: usize) -> Option<String> {
    text(row, column).filter(|text| !text.is_empty())
}

/// Tells whether a value is there and neither zero nor false.
pub(crate) fn truthy(row: &Row<'_>, column: usize) -> bool {
    !matches!(text(row, column).as_deref(), None | Some("" | "0" | "false" | "FALSE"))
}

/// Returns an instant: a number, or a text as SQLite and Go write it too.
pub(crate) fn instant(row: &Row<'_>, column: usize) -> Option<Timestamp> {
    let text = text(row, column)?;
    if let Ok(number) = text.trim().parse() {
        return json::instant(&Value::Number(number));
    }
    json::rfc3339(&text).or_else(|| {
        // `2026-11-09 18:00:00.123 +0200 CEST m=+0.01`, where all from the offset on may lack.
        let mut words = text.split([' ', 'T']).filter(|word| !word.is_empty());
        let (date, time) = (words.next()?, words.next()?);
        let offset = words.next().filter(|word| word.len() == 5 && word.starts_with(['+', '-']));
        json::rfc3339(&format!("{date}T{time}{}", offset.unwrap_or("Z")))
    })
}

/// Returns the instant that a query for one session finds, where the session itself has none. A query that this version
/// of the database has no columns for finds nothing.
pub(crate) fn instant_of(connection: &Connection, sql: &str, session: &str) -> Option<Timestamp> {
    let mut statement = connection.prepare_cached(sql).ok()?;
    statement.query_row([session], |row| Ok(instant(row, 0))).ok()?
}

/// Tells whether an error comes of not being allowed to write what SQLite keeps beside a database.
fn needs_writing(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{CannotOpen, ReadOnly};
    matches!(error.sqlite_error_code(), Some(CannotOpen | ReadOnly))
}

/// What tells whether a database changed: it and its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    database: FileStamp,
    /// A log with something in it.
    log: Option<FileStamp>,
    /// Somebody has it open, or had when it crashed.
    is_shared: bool,
}

const READ_ONLY: OpenFlags = OpenFlags::SQLITE_OPEN_READ_ONLY;
/// How long a lock of the database's owner is waited for.
const BUSY_WITHIN: Duration = Duration::from_millis(250);

type FileStamp = (u64, u64, i64, i64);

impl Stamp {
    pub(crate) fn of(path: &Path) -> Result<Self> {
        let (_, database) = files::open(path)?;
        let beside = |suffix: &str| {
            let found = fs::symlink_metadata(beside(path, suffix)).ok();
            found.filter(|found| found.is_file() && found.len() > 0)
        };
        // A journal that was left behind is rolled back in the copy.
        let log = beside("-wal").or_else(|| beside("-journal"));
        let is_shared = beside("-wal").is_some() && beside("-shm").is_some();
        Ok(Self { database: file_stamp(&database), log: log.as_ref().map(file_stamp), is_shared })
    }

    /// Returns when something was last written.
    pub(crate) fn changed_at(&self) -> Timestamp {
        let ms = |(_, _, seconds, nanos): FileStamp| {
            seconds.saturating_mul(1_000).saturating_add(nanos / 1_000_000)
        };
        let log = self.log.map_or(i64::MIN, ms);
        Timestamp::from_millis_clamped(ms(self.database).max(log))
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (inode, size, seconds, nanos) = self.database;
        write!(f, "{inode}.{size}.{seconds}.{nanos}")?;
        match self.log {
            Some((inode, size, seconds, nanos)) => write!(f, "+{inode}.{size}.{seconds}.{nanos}"),
            None => Ok(()),
        }
    }
}

pub(crate) fn file_stamp(metadata: &Metadata) -> FileStamp {
    (metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec())
}

/// A private copy of a database and its log, gone when this is dropped.
struct Copied {
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Copied {
    /// Copies both, or nothing when they changed meanwhile.
    ///
    /// The log may grow: half a transaction at its end does not count. When it is folded
    /// in the database changes, and when it starts anew its beginning does.
    fn of(path: &Path, before: &Stamp) -> Result<Option<Self>> {
        let io = |source| Error::Io { path: path.to_owned(), source };
        let dir = tempfile::Builder::new()
            .prefix("sess-read-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir()
            .map_err(io)?;
        let copy = dir.path().join("copy.db");
        let start = log_start(path).map_err(io)?;
        for suffix in ["", "-journal", "-wal"] {
            let from = beside(path, suffix);
            let opened = match files::open(&from) {
                Err(Error::Io { source, .. })
                    if !suffix.is_empty() && source.kind() == io::ErrorKind::NotFound =>
                {
                    continue;
                }
                opened => opened?,
            };
            let mut target = File::create(beside(&copy, suffix)).map_err(io)?;
            io::copy(&mut { opened.0 }, &mut target).map_err(io)?;
        }
        let is_same = Stamp::of(path)?.database == before.database && log_start(path).map_err(io)? == start;
        Ok(is_same.then_some(Self { path: copy, _dir: dir }))
    }
}

/// Returns what every transaction that is written to the file itself raises.
fn change_counter(path: &Path) -> Option<[u8; 4]> {
    const PLACE: u64 = 24;
    let mut counter = [0; 4];
    files::open(path).ok()?.0.read_exact_at(&mut counter, PLACE).ok()?;
    Some(counter)
}

/// Returns the header of the log, which is another one each time it starts anew.
fn log_start(path: &Path) -> io::Result<Vec<u8>> {
    const HEADER_SIZE_BYTES: u64 = 32;
    let mut start = Vec::new();
    match File::open(beside(path, "-wal")) {
        Ok(log) => log.take(HEADER_SIZE_BYTES).read_to_end(&mut start).map(|_| start),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(start),
        Err(error) => Err(error),
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Writes a path as the address that SQLite takes options with.
fn address(path: &Path, options: &str) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    let mut address = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => {
                address.push(char::from(*byte));
            }
            byte => address.push_str(&format!("%{byte:02X}")),
        }
    }
    (address + options).into()
}

fn open(path: &Path, access: OpenFlags) -> rusqlite::Result<Connection> {
    let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_WITHIN)?;
    // Somebody else's file: nothing that its schema says may run.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.pragma_update(None, "query_only", true)?;
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_is_handed_over_once_while_somebody_writes() {
        let temp = tempfile::tempdir().expect("a directory");
        let path = temp.path().join("rows.db");
        let writer = Connection::open(&path).expect("made");
        writer.execute_batch("CREATE TABLE rows (n INTEGER PRIMARY KEY, text TEXT)").expect("a table");
        for n in 0..100 {
            writer.execute("INSERT INTO rows VALUES (?1, 'before')", [n]).expect("inserted");
        }
        let mut database = Database::at(&path);
        let keys =
            database.look(|it| keys(it, "SELECT n FROM rows WHERE text = ?1", "before")).expect("keys");
        let mut seen = Vec::new();
        let row = |it: &Connection, key| {
            it.query_row("SELECT n, text FROM rows WHERE n = ?1", [key], |row| {
                Ok((row.get::<_, i64>(0)?, text(row, 1)))
            })
        };
        let give = |(n, text): (i64, Option<String>)| {
            // What is read later is what was written meanwhile; row 90 is gone by then.
            if n == 10 {
                writer
                    .execute_batch("UPDATE rows SET text = 'after'; DELETE FROM rows WHERE n = 90")
                    .expect("written");
            }
            seen.push((n, text.expect("a text")));
            ControlFlow::Continue(())
        };
        database.step(&keys, row, give).expect("read");
        let expected = (0..100).filter(|n| *n != 90);
        let at = |n: i64| if n < 32 { "before" } else { "after" };
        assert_eq!(seen, expected.map(|n| (n, at(n).to_owned())).collect::<Vec<_>>());
    }

    #[test]
    fn queries_run_again_when_the_database_changed_under_them() {
        let temp = tempfile::tempdir().expect("a directory");
        let path = temp.path().join("rows.db");
        let writer = Connection::open(&path).expect("made");
        writer.execute_batch("CREATE TABLE rows (n INTEGER); INSERT INTO rows VALUES (0)").expect("a table");
        let mut runs = 0;
        let seen = look(&path, |it| {
            runs += 1;
            let n: i64 = it.query_row("SELECT n FROM rows", [], |row| row.get(0))?;
            if runs < 3 {
                writer.execute("UPDATE rows SET n = ?1", [runs])?;
            }
            Ok(n)
        });
        assert_eq!((seen.expect("read"), runs), (2, 3));
        let always = look(&path, |_| writer.execute("INSERT INTO rows VALUES (randomblob(9000))", []));
        assert!(matches!(always, Err(Error::Busy(_))));
    }

    #[test]
    fn a_copy_is_private_and_does_not_stay() {
        let temp = tempfile::tempdir().expect("a directory");
        let path = temp.path().join("rows.db");
        Connection::open(&path)
            .and_then(|it| it.execute_batch("CREATE TABLE rows (n INTEGER)"))
            .expect("made");
        let stamp = Stamp::of(&path).expect("there");
        let copied = Copied::of(&path, &stamp).expect("read").expect("nobody writes");
        let dir = copied.path.parent().expect("a directory").to_owned();
        assert_eq!(dir.metadata().expect("there").permissions().mode() & 0o777, 0o700);
        drop(copied);
        assert!(!dir.exists());
    }

    #[test]
    fn instants_are_numbers_or_texts_of_several_kinds() {
        let check = |value: &str, at: &str| {
            let connection = Connection::open_in_memory().expect("opened");
            let told = connection.query_row(&format!("SELECT {value}"), [], |row| Ok(instant(row, 0)));
            let told = told.expect("asked").map(|at| at.to_string()).unwrap_or_default();
            assert_eq!(told, at, "{value}");
        };
        check("1794301200", "2026-11-10T09:00:00Z");
        check("1794301200000", "2026-11-10T09:00:00Z");
        check("'1794301200000'", "2026-11-10T09:00:00Z");
        check("1794301200.5", "2026-11-10T09:00:00Z");
        check("'2026-11-10T09:00:00+00:00'", "2026-11-10T09:00:00Z");
        check("'2026-11-10 09:00:00'", "2026-11-10T09:00:00Z");
        check("'2026-11-10T09:00:00'", "2026-11-10T09:00:00Z");
        check("'2026-11-10 11:00:00.25 +0200 CEST m=+0.01'", "2026-11-10T09:00:00.250Z");
        check("'soon'", "");
        check("''", "");
        check("NULL", "");
        check("9e99", "");
        check("0", "");
        check("-1794301200", "");
        check("'0'", "");
        check("'0001-01-01 00:00:00 +0000 UTC'", "");
    }
}
