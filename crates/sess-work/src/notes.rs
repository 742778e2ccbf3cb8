//! What is written down while the work goes on, on the session's branch.

use crate::{
    Draft, Error, Kind, Record, Result, Seen, Slug, State, Work, branch::Content, projecting::message,
    state::learnings_dir,
};

/// Where a note goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// What was done and decided, with the time.
    Log,
    /// What is to be done next.
    Plan,
    /// What turned out to be work of its own.
    Sub,
    /// What others should know.
    Learning,
}

impl Note {
    /// Returns the verb that writes it.
    pub fn verb(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Plan => "plan",
            Self::Sub => "sub",
            Self::Learning => "learn",
        }
    }

    /// Returns the name of the file that it goes into.
    pub fn file(self) -> &'static str {
        match self {
            Self::Log => "worklog.md",
            Self::Plan => "active-plan.md",
            Self::Sub => "subsessions.md",
            Self::Learning => "learnings.md",
        }
    }

    /// Returns where that file is while the session is active, from the top of the repository.
    pub(crate) fn path(self, slug: &Slug) -> String {
        let dir = match self {
            Self::Log | Self::Plan | Self::Sub => State::Active.dir_of(slug),
            Self::Learning => learnings_dir(slug),
        };
        format!("{dir}/{}", self.file())
    }

    /// Returns what that file begins with.
    pub(crate) fn heading(self, slug: &Slug) -> String {
        match self {
            Self::Log => format!("# Worklog: {slug}\n\n"),
            Self::Plan => format!("# Active plan: {slug}\n\n"),
            Self::Sub => format!("# Subsessions: {slug}\n\n"),
            Self::Learning => format!("# Learnings: {slug}\n\n"),
        }
    }

    fn what(self) -> &'static str {
        match self {
            Self::Log => "update worklog",
            Self::Plan => "update active plan",
            Self::Sub => "update subsessions",
            Self::Learning => "capture learnings",
        }
    }
}

impl Work {
    /// Appends to one of the session's files, commits that on its branch, and renews the lease.
    ///
    /// Without the remote it is written all the same, and shared with the next verb.
    pub fn note(&self, slug: &Slug, note: Note, text: &str) -> Result<Vec<String>> {
        let text = text.trim();
        if text.is_empty() {
            return Err(Error::usage("there is nothing to write down")
                .next(format!("sess work {} \"<text>\"", note.verb())));
        }
        let seen = self.see_or_recall()?;
        let record = self.own_record(slug, &seen)?;
        self.write_note(slug, &record, note, text)?;
        if seen.view.is_old {
            return Ok(vec!["the remote cannot be reached: this is shared with the next verb".to_owned()]);
        }
        match self.shared(slug, &seen, &record) {
            Ok(_) => Ok(self.apart(slug, &seen)?.into_iter().collect()),
            Err(error) if error.kind == Kind::Unreachable => Ok(vec![error.to_string()]),
            // Whoever did it again would write it twice.
            Err(error) => Err(error.although(&written_down(note))),
        }
    }

    /// Appends to one of the session's files, and commits that on its branch.
    pub(crate) fn write_note(&self, slug: &Slug, record: &Record, note: Note, text: &str) -> Result<()> {
        let line = match note {
            Note::Log => format!("- {} {}\n", self.now(), indented(text)),
            // What is done already is said so by its box.
            Note::Plan if is_box(text) => format!("- {}\n", indented(text)),
            Note::Plan => format!("- [ ] {}\n", indented(text)),
            Note::Sub | Note::Learning => format!("- {}\n", indented(text)),
        };
        let path = note.path(slug);
        let message = message(slug, &format!("docs: {}", note.what()), &self.by(), Some(record));
        let written = self.change_on_branch(slug, &message, |now| {
            let before = now(&path)?.unwrap_or_else(|| note.heading(slug));
            let lead = if before.ends_with('\n') { "" } else { "\n" };
            Ok(vec![(path.clone(), Content::plain(format!("{before}{lead}{line}")))])
        })?;
        written.followed.map_err(|error| error.although(&written_down(note)))
    }

    /// Writes down a sub-session, and drafts it as a session of its own.
    pub fn sub(&self, slug: &Slug, text: &str, is_new: bool) -> Result<(Option<Slug>, Vec<String>)> {
        self.own_record(slug, &self.see_or_recall()?)?;
        let drafted = if is_new {
            // A draft is there for all to see, and the note that says where it comes from would be refused.
            if let Some(path) = self.workspace(slug) {
                self.check_checked_out(slug, &path)?;
            }
            let draft =
                Draft { title: text.trim().to_owned(), parent: Some(slug.clone()), ..Draft::default() };
            Some(self.draft(None, &draft, None)?)
        } else {
            None
        };
        let line =
            drafted.as_ref().map_or_else(|| text.to_owned(), |new| format!("{} (`{new}`)", text.trim()));
        let notices = self.note(slug, Note::Sub, &line)?;
        Ok((drafted, notices))
    }

    /// Reads what a session has written down, from its branch or from where it ended.
    pub fn noted(&self, slug: &Slug, note: Note, seen: &Seen) -> Result<Option<String>> {
        let path = note.path(slug);
        let state = seen.tree.state(slug).unwrap_or(State::Active);
        // A branch that is still here after the end may be older than what ended.
        let has_ended = matches!(state, State::Completed | State::Abandoned);
        if let Some(tip) = self.last_commit(slug, seen)?.filter(|_| !has_ended)
            && let Some(text) = self.repo.text_at(&tip, &path)?
        {
            return Ok(Some(text));
        }
        let path = path.replace(&State::Active.dir_of(slug), &state.dir_of(slug));
        self.repo.text_at(&seen.view.base, &path)
    }
}

fn written_down(note: Note) -> String {
    format!("this is written down in {} here", note.file())
}

fn is_box(text: &str) -> bool {
    ["[ ] ", "[x] ", "[X] "].iter().any(|mark| text.starts_with(mark))
}

/// Further lines of a note belong to its item.
fn indented(text: &str) -> String {
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n  ")
}
