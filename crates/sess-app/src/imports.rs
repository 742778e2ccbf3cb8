//! Sessions from files, and back into them.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use serde::Serialize;
use sess_core::session::Session;
use sess_readers::Foreign;
use sess_store::{ImportedSession, Span};
use tokio::sync::mpsc;

use crate::{
    App, Caller, Error, Kind, Result,
    context::Found,
    others::as_stored,
    sessions::may_manage,
    transfer::{docker_agent, jsonl},
};

/// How many messages of an export are in memory at a time.
const PAGE_LEN: usize = 500;

/// What became of one session that was brought in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Import {
    pub id: String,
    /// How many messages were new.
    pub added: u64,
    pub total: u64,
    /// Whether the session was here before.
    pub existed: bool,
}

/// What became of one file.
#[derive(Clone, Debug, Default)]
pub struct ImportedFile {
    pub sessions: Vec<Import>,
    /// What was left out, each as a sentence.
    pub warnings: Vec<String>,
    /// Sessions that were refused, because other messages of theirs are here already.
    pub refused: Vec<Error>,
}

impl App {
    /// Brings in the sessions of one file: JSON Lines, or a docker-agent database.
    ///
    /// Each session is brought in whole or not at all.
    pub async fn import_file(&self, caller: &Caller, path: PathBuf) -> Result<ImportedFile> {
        may_manage(caller, "import sessions")?;
        let read = tokio::task::spawn_blocking(move || read_file(&path)).await;
        let read = read.map_err(|error| Error::Unavailable(format!("the file was not read: {error}")))?;
        let (sessions, warnings) = read?;
        let mut imported = ImportedFile { warnings, ..ImportedFile::default() };
        for session in sessions {
            match self.import_session(session).await {
                Ok(done) => imported.sessions.push(done),
                // One session of a database that changed must not keep the others out.
                Err(error) if error.kind() == Kind::Conflict => imported.refused.push(error),
                Err(error) => return Err(error),
            }
        }
        Ok(imported)
    }

    /// Brings in one session of JSON Lines.
    pub async fn import_lines(&self, caller: &Caller, input: impl BufRead) -> Result<Import> {
        may_manage(caller, "import sessions")?;
        let session = jsonl::parse(input).map_err(|error| Error::Invalid(with_cause(&error)))?;
        self.import_session(session).await
    }

    async fn import_session(&self, session: ImportedSession) -> Result<Import> {
        let id = session.session.id.to_string();
        let done = self.store()?.import(session).await?;
        Ok(Import { id, added: done.added, total: done.total, existed: done.existed })
    }

    /// Writes a session in the format that import reads; `write` gets it piece by piece.
    ///
    /// Unmasked: an export is a copy. A damaged message ends it with an error
    /// that names the message, because a copy with a hole would pass for whole.
    pub async fn export(
        &self,
        caller: &Caller,
        reference: &str,
        write: &mut (dyn FnMut(&str) -> io::Result<()> + Send),
    ) -> Result<()> {
        may_manage(caller, "export a session")?;
        let mut put = |text: &str| {
            write(text)
                .map_err(|error| Error::Unavailable(format!("the export could not be written: {error}")))
        };
        match self.find(caller, reference).await? {
            Found::Stored(session) => self.export_stored(&session, &mut put).await,
            Found::Foreign(foreign, stored) => {
                put(&(jsonl::header(&as_stored(&foreign, stored.as_deref())) + "\n"))?;
                export_foreign(*foreign, &mut put).await
            }
        }
    }

    async fn export_stored(
        &self,
        session: &Session,
        put: &mut (dyn FnMut(&str) -> Result<()> + Send),
    ) -> Result<()> {
        let store = self.store()?;
        put(&(jsonl::header(session) + "\n"))?;
        let mut seq = 0;
        loop {
            let page = store.messages(&session.id, Span::After(seq), PAGE_LEN).await?;
            if let Some(damaged) = page.damaged.first() {
                let text = format!(
                    "message {} of session {} is damaged: {}",
                    damaged.seq, session.id, damaged.reason
                );
                return Err(sess_store::Error::Damaged(text).into());
            }
            let Some(last) = page.messages.last() else { break };
            seq = last.seq;
            let lines: String = page.messages.iter().map(|message| message.to_json() + "\n").collect();
            put(&lines)?;
        }
        if seq != session.last_seq {
            let text =
                format!("session {} has {} messages, but only {seq} are there", session.id, session.last_seq);
            return Err(sess_store::Error::Damaged(text).into());
        }
        Ok(())
    }
}

/// Writes what stands in another agent's file, a message at a time: it may be larger than memory.
async fn export_foreign(foreign: Foreign, put: &mut (dyn FnMut(&str) -> Result<()> + Send)) -> Result<()> {
    let reference = foreign.reference();
    let (sender, mut lines) = mpsc::channel::<String>(PAGE_LEN);
    let reading = tokio::task::spawn_blocking(move || {
        sess_readers::read(&foreign, &mut |entry| {
            if entry.is_taken_back {
                return ControlFlow::Continue(());
            }
            let line = serde_json::to_string(&entry.body).expect("a message body has string keys only");
            // Whoever waited for it has gone.
            if sender.blocking_send(line + "\n").is_err() {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })
    });
    while let Some(line) = lines.recv().await {
        put(&line)?;
    }
    let read =
        reading.await.map_err(|error| Error::Unavailable(format!("{reference} was not read: {error}")))?;
    let told = read.map_err(|error| Error::Unavailable(error.to_string()))?;
    if told.bad > 0 {
        return Err(Error::Unavailable(format!(
            "session {reference} has {} records that cannot be read, and the copy lacks them",
            told.bad
        )));
    }
    Ok(())
}

fn read_file(path: &Path) -> Result<(Vec<ImportedSession>, Vec<String>)> {
    let shown = path.display();
    if docker_agent::is_sqlite(path) {
        let read = docker_agent::read(path).map_err(|error| Error::Invalid(with_cause(&error)))?;
        return Ok((read.sessions, read.warnings));
    }
    let file = File::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::NotFound(format!("there is no file {shown}")),
        _ => Error::Unavailable(format!("cannot open {shown}: {error}")),
    })?;
    let session = jsonl::parse(BufReader::new(file))
        .map_err(|error| Error::Invalid(format!("{shown}: {}", with_cause(&error))))?;
    Ok((vec![session], Vec::new()))
}

/// Writes an error with what caused it, all the way down.
fn with_cause(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
