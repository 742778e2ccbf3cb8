//! Reading other agents' sessions where they lie, without changing anything.
//!
//! One reader a format, behind one small trait: name the sessions cheaply, and
//! hand over the messages of one. Formats change monthly, so a reader goes on past
//! what it does not know, and what cannot be read costs itself alone.

mod amp;
mod catalogue;
mod claude;
mod codex;
mod crush;
mod cursor;
pub mod database;
mod docker_agent;
mod document;
mod error;
mod files;
mod gemini;
mod goose;
mod homes;
mod json;
mod kin;
mod lenient;
mod live;
mod mending;
mod openclaw;
mod opencode;
mod plan;
mod repository;
mod retention;
mod search;
mod session;
mod settings;
pub mod snapshot;
mod titles;
mod zed;

use std::ops::ControlFlow;

use sess_core::Source;

pub use catalogue::{Catalogue, Listing, Look, Problem};
pub use cursor::dir_of as dir_of_project;
pub use error::{Error, Result};
pub use homes::{Homes, MOVERS};
pub use kin::{Kin, Stands};
pub use live::{Live, Status, live};
pub use opencode::opencode_caller;
pub use plan::kept_plan;
pub use repository::{Repository, branch, worktrees};
pub use retention::{Age, Archiving, Keeping, Pause, Reach, Sweep, keeping};
pub use search::{BadPattern, Before, Gathered, Hit, Hits, Matcher, Term, Terms, search};
pub use session::{Entry, Foreign, Place, Told};
pub use titles::{make_sure, title};

/// Receives messages, oldest first, and says when it has enough.
pub type Take<'a> = dyn FnMut(Entry) -> ControlFlow<()> + 'a;

/// One agent's way to keep sessions.
///
/// Readers promise: nothing is written, not even beside the files; no link inside the directory
/// that all sessions are in is followed, and one that hides sessions is told of; memory does not
/// grow with the length of a session.
pub trait Reader: Send + Sync {
    fn source(&self) -> Source;

    /// Names every session that there is, sub-agents' too, without reading whole transcripts.
    fn list(&self, homes: &Homes, listing: &mut Listing<'_>);

    /// Hands over a session's messages, oldest first, with what was compacted or taken back.
    fn read(&self, session: &Foreign, take: &mut Take<'_>) -> Result<Told>;

    /// Returns what a session is called by all of its file; none when nothing in it says that. Asked only where the
    /// title is not sure.
    fn title(&self, _session: &Foreign) -> Result<Option<String>> {
        Ok(None)
    }

    /// Tells whether all that a session says is in the file that its place names, or in the
    /// database and its log.
    fn is_in_one_file(&self, _session: &Foreign) -> bool {
        true
    }
}

/// Every format that can be read.
pub fn readers() -> [&'static dyn Reader; 11] {
    [
        &claude::Claude,
        &codex::Codex,
        &gemini::Gemini,
        &opencode::Opencode,
        &goose::Goose,
        &docker_agent::DockerAgent,
        &openclaw::Openclaw,
        &cursor::Cursor,
        &zed::Zed,
        &crush::Crush,
        &amp::Amp,
    ]
}

/// Hands over a session's messages from where they are: its agent's files, or the snapshot of it.
pub fn read(session: &Foreign, take: &mut Take<'_>) -> Result<Told> {
    if session.is_snapshot {
        return snapshot::read(&session.place.path, take);
    }
    let reader = reader(session.source).ok_or_else(|| Error::Gone(session.place.path.clone()))?;
    reader.read(session, take)
}

/// Tells whether all that a session says is in the file whose stamp is known.
pub fn is_in_one_file(session: &Foreign) -> bool {
    session.is_snapshot || reader(session.source).is_some_and(|reader| reader.is_in_one_file(session))
}

/// Returns the reader of a source's sessions; none for our own.
pub fn reader(source: Source) -> Option<&'static dyn Reader> {
    readers().into_iter().find(|reader| reader.source() == source)
}
