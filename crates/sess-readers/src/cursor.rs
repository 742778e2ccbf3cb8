//! Cursor: transcripts of its command line below `~/.cursor/projects`, and its editor's store.
//!
//! The editor keeps its conversations in one SQLite table of keys and values, and may write a
//! transcript of the same one: the store knows times and results, so it counts first.

mod editor;
mod transcript;

use sess_core::Source;

use crate::{Foreign, Homes, Listing, Reader, Result, Take, Told};

pub use self::transcript::dir_of;
pub(crate) use self::transcript::{is_named_after, project};

pub(crate) struct Cursor;

impl Reader for Cursor {
    fn source(&self) -> Source {
        Source::Cursor
    }

    fn list(&self, homes: &Homes, listing: &mut Listing<'_>) {
        let places = [homes.config(), homes.home().join("Library/Application Support")];
        for place in places {
            let path = place.join("Cursor/User/globalStorage/state.vscdb");
            listing.visit_parts(&path, |problems| editor::sessions(&path, problems));
        }
        for project in listing.entries(&homes.home().join(".cursor/projects")) {
            let dir = project.path.join("agent-transcripts");
            if !project.is_link {
                transcript::list(&dir, None, listing);
            } else if dir.is_dir() {
                listing.link(&project.path);
            }
        }
    }

    fn read(&self, session: &Foreign, take: &mut Take<'_>) -> Result<Told> {
        match session.place.path.extension() {
            Some(extension) if extension == "jsonl" => transcript::read(session, take),
            _ => editor::read(session, take),
        }
    }
}
