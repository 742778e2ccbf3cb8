//! The store in one SQLite file, shared by any number of processes.
//!
//! One thread writes ([`writer`]); a few connections read beside it
//! ([`readers`]); what can be made again from the messages — the search index
//! and the mirror — lives apart ([`derived`]), where it cannot hurt them.

mod connection;
mod deletion;
mod derived;
mod feed;
mod follow_ups;
mod health;
mod inbox;
mod messages;
mod mirror;
mod notice;
mod outbox;
mod pages;
mod plans;
mod reach;
mod readers;
mod rows;
mod run_rows;
mod runs;
mod salvage;
mod schema;
mod scrub;
mod seats;
mod sessions;
mod tokens;
mod writer;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::sync::watch;

use crate::{Error, Result, Store, error};

pub use health::{Health, health};
pub use salvage::{Salvaged, salvage};

pub(crate) struct Sqlite {
    writer: writer::Writer,
    derived: derived::Derived,
    readers: Arc<readers::Readers>,
    notice: notice::Notice,
    path: PathBuf,
}

impl Sqlite {
    pub(crate) fn open(dir: &Path) -> Result<Self> {
        let path = connection::prepare(dir)?;
        let readers = Arc::new(readers::Readers::new(&path));
        readers.damage().recall(&path);
        let version = readers.read(|reader| schema::version(reader, &path))?;
        if version < schema::FIRST {
            // Stores are made whole: this one lost its beginning, or is somebody else's.
            return Err(Error::Damaged(format!(
                "{} is not a sess store, or is damaged; nothing was changed; \
                 `sess doctor --salvage <new dir>` copies what can be read",
                path.display()
            )));
        }
        // An older store on a read-only disk stays what it is, and can be read: all that was
        // in it then is where it is now.
        if version < schema::VERSION && !error::is_on_read_only_disk(&path) {
            let mut connection = connection::connect(&path, connection::Access::Write)?;
            schema::migrate(&mut connection, &path)?;
            // They were opened to read an older store.
            readers.close_idle();
        }
        let committed = Arc::new(watch::Sender::new(0));
        let derived = derived::Derived::start(dir, Arc::clone(&readers))?;
        Ok(Self {
            writer: writer::Writer::start(
                &path,
                Arc::clone(&committed),
                derived.poker(),
                Arc::clone(&readers),
            )?,
            derived,
            notice: notice::Notice::new(committed, Arc::clone(&readers)),
            readers,
            path,
        })
    }
}

#[cfg(test)]
impl Sqlite {
    /// Returns the steps in which SQLite would answer a question.
    fn query_plan(&self, sql: &str) -> String {
        let steps = self.readers.query(|reader| {
            let mut statement = reader.prepare(&format!("EXPLAIN QUERY PLAN {sql}"))?;
            let steps = statement.raw_query().mapped(|row| row.get::<_, String>(3));
            steps.collect::<rusqlite::Result<Vec<_>>>()
        });
        steps.expect("a plan").join("; ")
    }
}

impl Drop for Sqlite {
    /// Ends the threads in turn: derived work reads what the writer committed last, and the
    /// writer's connection goes last of all, because closing it moves the log into the file.
    fn drop(&mut self) {
        let connection = self.writer.finish();
        self.derived.finish();
        self.notice.finish();
        self.readers.close_idle();
        drop(connection);
    }
}

impl Store for Sqlite {}

/// Returns the checksum that a row is stored with.
fn crc(parts: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for part in parts {
        // The length keeps ("ab", "c") and ("a", "bc") apart.
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize()
}
