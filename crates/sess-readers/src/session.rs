//! A session as another agent keeps it.

use std::{
    fs::Metadata,
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher},
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use sess_core::{SessionId, SessionKey, Source, Timestamp, message::Body};

use crate::{Result, cursor, database::Stamp, files};

/// What a list says of a session. Title, parent and times are derived, each as its agent would.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    pub source: Source,
    /// The agent's own id of it.
    pub id: SessionId,
    /// May be empty.
    pub title: String,
    /// Whether all that says what it is called was looked at: the middle of a long file is not, for a list.
    pub is_title_sure: bool,
    pub cwd: Option<String>,
    pub branch: Option<String>,
    pub created_at: Option<Timestamp>,
    /// When something was last said in it. A reader that finds nothing out about that leaves 1970, for which the
    /// catalogue puts when the file last changed.
    pub updated_at: Timestamp,
    /// The session that it was started from, when it is a sub-agent's.
    pub parent: Option<SessionId>,
    /// What the agent calls a sub-agent.
    pub name: Option<String>,
    /// It is a sub-agent's, and the session that it was started from is gone.
    pub is_orphan: bool,
    pub is_archived: bool,
    /// How many messages it has, where that is known without reading it.
    pub num_messages: Option<u64>,
    pub place: Place,
    /// Its agent does not have it any more: it is read from the snapshot that was taken of it.
    pub is_snapshot: bool,
}

/// Where a session is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub path: PathBuf,
    /// The size of the file, for sessions that have one of their own.
    pub size_bytes: Option<u64>,
}

impl Foreign {
    /// Returns a session of which only the place is known.
    pub fn new(source: Source, id: SessionId, place: Place, updated_at: Timestamp) -> Self {
        Self {
            source,
            id,
            title: String::new(),
            is_title_sure: true,
            cwd: None,
            branch: None,
            created_at: None,
            updated_at,
            parent: None,
            name: None,
            is_orphan: false,
            is_archived: false,
            num_messages: None,
            place,
            is_snapshot: false,
        }
    }

    /// Returns a session that has a file of its own, of which only that is known.
    pub(crate) fn in_file(source: Source, id: SessionId, path: &Path, metadata: &Metadata) -> Self {
        let place = Place { path: path.to_owned(), size_bytes: Some(metadata.len()) };
        Self::new(source, id, place, files::modified(metadata))
    }

    /// Returns what is another text as soon as the file that keeps it changes.
    pub fn stamp(&self) -> Result<String> {
        Ok(Stamp::of(&self.place.path)?.to_string())
    }

    /// Returns when the file that keeps it last changed; of a database also its log.
    pub fn changed_at(&self) -> Option<Timestamp> {
        Some(Stamp::of(&self.place.path).ok()?.changed_at())
    }

    /// Tells whether a sub-agent ran in it. Not every agent keeps of whom.
    pub fn is_sub_agent(&self) -> bool {
        self.parent.is_some() || self.name.is_some()
    }

    /// Tells whether it is a part of another session, and no entry of a list.
    pub fn is_part(&self) -> bool {
        self.is_sub_agent() && !self.is_orphan
    }

    /// Tells whether it ran in a directory, as far as its agent says: by the name of its project where it keeps no more.
    pub fn ran_in(&self, dir: &str) -> bool {
        match &self.cwd {
            Some(cwd) => cwd == dir,
            None => self.project().is_some_and(|project| cursor::is_named_after(project, dir)),
        }
    }

    /// Returns the directory of its agent's that is named after the one it ran in, where nothing else says which that
    /// was. The name alone has forgotten it: all that is no letter or digit became a dash.
    pub fn project(&self) -> Option<&Path> {
        let is_named = self.cwd.is_none() && self.source == Source::Cursor;
        is_named.then(|| cursor::project(&self.place.path)).flatten()
    }

    /// Returns when it began, as far as that is known: what has no time was said then.
    pub fn began_at(&self) -> Timestamp {
        self.created_at.unwrap_or(self.updated_at)
    }

    /// Returns the id that tells it from all other sessions: `<source>:<native id>`.
    pub fn reference(&self) -> String {
        format!("{}:{}", self.source, self.id)
    }

    pub fn key(&self) -> SessionKey {
        SessionKey::chat(&self.source.agent(), &self.id)
    }
}

/// One message of another agent's session.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The agent's own id of it, where it has one.
    pub id: Option<String>,
    pub body: Body,
    /// It was taken back: still on record, no part of the conversation any more.
    pub is_taken_back: bool,
}

/// What became of the parts of a session that are no messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Records that could not be read.
    pub bad: u64,
    /// Records of a kind that is not known here.
    pub unknown: u64,
    /// The last line was only half there: somebody is writing, or a write was cut short.
    pub is_torn: bool,
    /// What it is called, where all of its file says that and not its ends alone.
    pub title: Option<String>,
    /// It goes on where another file ended, and that file is gone.
    pub lacks_beginning: bool,
}

impl Told {
    /// Counts a message that is passed over, for its role is none that is known here, or is not said.
    pub(crate) fn pass_over<T: Copy>(&mut self, role: Option<T>) -> ControlFlow<()> {
        match role {
            Some(_) => self.unknown += 1,
            None => self.bad += 1,
        }
        ControlFlow::Continue(())
    }
}

/// Names a record in little memory; two of one session are told apart but for one chance in 10^13.
pub(crate) fn name(id: &str) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(id)
}

/// Tells for each of `len` records whether it stands on the way from the leaf to the root.
pub(crate) fn on_way_to_root(
    len: usize,
    leaf: Option<u32>,
    parent: impl Fn(usize) -> Option<u32>,
) -> Vec<bool> {
    let mut is_on_way = vec![false; len];
    let mut next = leaf;
    while let Some(place) = next {
        let place = place as usize;
        // Parents may form a loop.
        if std::mem::replace(&mut is_on_way[place], true) {
            break;
        }
        next = parent(place);
    }
    is_on_way
}

/// Makes a session id of another agent's, whatever it is made of.
///
/// What may not be in an id becomes a dash; only sub-agents of one agent need that.
pub(crate) fn session_id(native: &str) -> Option<SessionId> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    native.parse().ok().or_else(|| {
        let plain: String = native.chars().map(|c| if allowed(c) { c } else { '-' }).collect();
        plain.get(..plain.len().min(SessionId::LEN_MAX))?.parse().ok()
    })
}
