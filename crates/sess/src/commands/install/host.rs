//! What a host needs: which files, how they are written, what is put into them.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sess_readers::Homes;
use sess_work::quoted;

use super::{
    claude, codex, cursor,
    document::{Entry, Format},
    gemini, goose, opencode, zed,
};
use crate::cli::HostName;

/// The name under which hosts list the tools.
pub const NAME: &str = "sess";

/// What every command line of a hook has between this program and the host.
pub const HOOK: &str = " hook session-start ";

/// When to use the tools, for a model. The plugin has the same text.
pub const SKILL: &str = include_str!("../../../../../plugin/skills/intersession/SKILL.md");

/// What is told once to each host: where its files are, and where this program is.
pub struct Machine<'a> {
    pub homes: &'a Homes,
    /// This program, as hosts are to start it.
    pub program: &'a str,
}

/// What a host needs to have the tools.
pub struct Needs {
    /// Its command, by which it is found.
    pub command: &'static str,
    /// Directories or files that are there when it was ever used.
    pub traces: Vec<PathBuf>,
    pub files: Vec<Need>,
}

pub struct Need {
    pub path: PathBuf,
    /// Other files that its host reads for the same, if they are there.
    pub besides: Vec<PathBuf>,
    pub what: What,
}

pub enum What {
    /// Entries in a document that is the host's.
    Entries(Format, Vec<Entry>),
    /// A file of our own.
    Whole(&'static str),
}

impl Need {
    pub fn entries(path: PathBuf, format: Format, entries: Vec<Entry>) -> Self {
        Self { path, besides: Vec::new(), what: What::Entries(format, entries) }
    }

    pub fn besides(self, besides: Vec<PathBuf>) -> Self {
        Self { besides, ..self }
    }

    /// Returns every file that may have it.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        [&self.path].into_iter().chain(&self.besides).map(PathBuf::as_path)
    }

    /// Returns the skill, in a host's directory of skills.
    pub fn skill(skills: &Path) -> Self {
        let path = skills.join("intersession/SKILL.md");
        Self { path, besides: Vec::new(), what: What::Whole(SKILL) }
    }
}

impl Machine<'_> {
    /// Returns the entry that most hosts read.
    pub fn server(&self) -> Value {
        json!({ "command": self.program, "args": ["mcp"] })
    }

    /// Returns the command line that tells a starting session of a host what waits for it.
    pub fn hook(&self, host: HostName) -> String {
        format!("{}{HOOK}{}", quoted(self.program), host.as_str())
    }
}

pub fn needs(host: HostName, machine: &Machine<'_>) -> Needs {
    match host {
        HostName::Claude => claude::needs(machine),
        HostName::Codex => codex::needs(machine),
        HostName::Opencode => opencode::needs(machine),
        HostName::Gemini => gemini::needs(machine),
        HostName::Goose => goose::needs(machine),
        HostName::Zed => zed::needs(machine),
        HostName::Cursor => cursor::needs(machine),
    }
}
