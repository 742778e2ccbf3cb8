//! Sample homes: one a kind of agent, laid out as the agent lays out a user's.

use std::{
    fs::{self, File},
    ops::ControlFlow,
    path::{Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};

use sess_core::{
    message::Block,
    transcript::{self, Tools},
};
use sess_readers::{Catalogue, Entry, Foreign, Homes, Told, reader};

pub use crate::samples::{copy_all, sample};

/// Returns a copy of a sample that a test may damage. Where a format has no times, those of the
/// files stand in: they are always the same.
pub fn copy(agent: &str) -> tempfile::TempDir {
    let temp = tempfile::tempdir().expect("a directory");
    copy_all(&sample(agent), temp.path()).expect("copied");
    touch(temp.path());
    temp
}

/// Gives all files the same time of change.
pub fn touch(dir: &Path) {
    let at = UNIX_EPOCH + Duration::from_secs(1_794_480_000);
    for path in files(dir) {
        File::options().write(true).open(&path).and_then(|file| file.set_modified(at)).expect("touched");
    }
}

/// Returns the files below a directory, by name.
pub fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).expect("a directory") {
        let entry = entry.expect("an entry");
        match entry.file_type().expect("a kind").is_dir() {
            true => files.extend(self::files(&entry.path())),
            false => files.push(entry.path()),
        }
    }
    files.sort();
    files
}

/// Returns a home as the agent's reader sees it, with a project below it as the current directory.
pub fn homes(home: &Path) -> Homes {
    Homes::new(home.to_owned(), [], Some(home.join("acme-api")))
}

/// Returns all sessions, most recent first, and the problems met.
pub fn list(home: &Path) -> (Vec<Foreign>, Vec<String>) {
    let look = Catalogue::default().look(&homes(home), None);
    let mut sessions = look.sessions;
    sessions.sort_by(|a, b| b.updated_at.cmp(&a.updated_at).then_with(|| a.id.cmp(&b.id)));
    (sessions, look.problems.into_iter().map(|problem| problem.what).collect())
}

/// Writes out what is listed and what is read of each session.
pub fn written(home: &Path) -> String {
    let (sessions, problems) = list(home);
    let mut text = String::new();
    for session in &sessions {
        let at = |at: Option<sess_core::Timestamp>| at.map(|at| at.to_string()).unwrap_or_default();
        text += &format!("=== {}\ntitle: {}\n", session.reference(), session.title);
        text += &format!(
            "cwd: {}\nbranch: {}\n",
            session.cwd.as_deref().unwrap_or_default(),
            session.branch.as_deref().unwrap_or_default()
        );
        text += &format!("created: {}\nupdated: {}\n", at(session.created_at), session.updated_at);
        if let Some(parent) = &session.parent {
            text += &format!("parent: {parent} ({})\n", session.name.as_deref().unwrap_or_default());
        }
        if session.is_archived {
            text += "archived\n";
        }
        if let Some(count) = session.num_messages {
            text += &format!("messages: {count}\n");
        }
        text += "\n";
        text += &messages(session);
    }
    for problem in problems {
        text += &format!("problem: {problem}\n");
    }
    text.replace(&*home.to_string_lossy(), "~")
}

/// Writes out what is read of a session.
pub fn messages(session: &Foreign) -> String {
    let mut text = String::new();
    let reader = reader(session.source).expect("a reader");
    let told = reader.read(session, &mut |entry| {
        let rewound = if entry.is_taken_back { " (rewound)" } else { "" };
        let id = entry.id.as_deref().unwrap_or("-");
        let sub_session = entry.body.content.iter().find_map(|block| match block {
            sess_core::message::Block::SubSession { session_id } => Some(format!("sub-session {session_id}")),
            _ => None,
        });
        let block = transcript::block(&entry.body, Tools::Shown)
            .or(sub_session)
            .unwrap_or_else(|| format!("{:?}: nothing to show", entry.body.role));
        text += &format!("--- {id} {}{rewound}\n{block}\n", entry.body.timestamp);
        if let Some(model) = &entry.body.model {
            let usage = entry.body.usage.clone().unwrap_or_default();
            text += &format!("({model}: {} in, {} out)\n", usage.input, usage.output);
        }
        ControlFlow::Continue(())
    });
    match told {
        Ok(told) => {
            if let Some(title) = told.title.filter(|title| *title != session.title) {
                text += &format!("--- it is called {title}\n");
            }
            let (bad, unknown, is_torn) = (told.bad, told.unknown, told.is_torn);
            text + &format!("--- Told {{ bad: {bad}, unknown: {unknown}, is_torn: {is_torn} }}\n\n")
        }
        Err(error) => text + &format!("--- {error}\n\n"),
    }
}

/// Returns all that is read of a session.
pub fn told(session: &Foreign) -> (Vec<Entry>, Told) {
    let mut entries = Vec::new();
    let told = reader(session.source).expect("a reader").read(session, &mut |entry| {
        entries.push(entry);
        ControlFlow::Continue(())
    });
    (entries, told.expect("read"))
}

/// Says what is read of a session: its texts and the names of tools, those of messages that
/// were taken back in brackets.
pub fn words(session: &Foreign) -> String {
    let word = |block: &Block| match block {
        Block::Text { text } | Block::Thinking { text, .. } => text.clone(),
        Block::ToolCall { name, .. } => name.clone(),
        Block::Compaction { .. } => "|".to_owned(),
        Block::SubSession { session_id } => format!("→{session_id}"),
        Block::Image { .. } => "image".to_owned(),
        Block::Other(_) => "other".to_owned(),
    };
    let bracket = |entry: &Entry, word: String| if entry.is_taken_back { format!("({word})") } else { word };
    let words = told(session).0;
    let words =
        words.iter().flat_map(|entry| entry.body.content.iter().map(|block| bracket(entry, word(block))));
    words.collect::<Vec<_>>().join(" ")
}

/// Returns the ids of the messages whose line has something in it.
pub fn lines<'a>(written: &'a str, what: &str) -> Vec<&'a str> {
    let found = written.lines().filter(|line| line.contains(what));
    found.filter_map(|line| line.strip_prefix("--- ")?.split(' ').next()).collect()
}
