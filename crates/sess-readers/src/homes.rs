//! Where agents keep their files on this machine.

use std::{
    collections::HashMap,
    ffi::OsString,
    path::{Path, PathBuf},
};

/// The variables that say where an agent keeps its sessions: who is to find them needs all of them.
pub const MOVERS: [&str; 8] = [
    "XDG_DATA_HOME",
    "XDG_CONFIG_HOME",
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
    "GEMINI_CLI_HOME",
    "OPENCODE_DB",
    "GOOSE_PATH_ROOT",
    "OPENCLAW_STATE_DIR",
];

/// A user's home directory, and the variables that move parts of it.
#[derive(Clone, Debug, Default)]
pub struct Homes {
    home: PathBuf,
    variables: HashMap<String, OsString>,
    cwd: Option<PathBuf>,
    snapshots: Option<PathBuf>,
}

impl Homes {
    pub fn new(
        home: PathBuf,
        variables: impl IntoIterator<Item = (String, OsString)>,
        cwd: Option<PathBuf>,
    ) -> Self {
        Self { home, variables: variables.into_iter().collect(), cwd, snapshots: None }
    }

    /// Returns a home without any variable set: what a fresh login has.
    pub fn at(home: impl Into<PathBuf>) -> Self {
        Self { home: home.into(), ..Self::default() }
    }

    /// Also finds sessions of which there are only snapshots left, in this directory.
    pub fn with_snapshots(self, dir: PathBuf) -> Self {
        Self { snapshots: Some(dir), ..self }
    }

    /// Finds only what agents have themselves.
    pub fn without_snapshots(self) -> Self {
        Self { snapshots: None, ..self }
    }

    /// Returns where snapshots are kept.
    pub fn snapshots(&self) -> Option<&Path> {
        self.snapshots.as_deref()
    }

    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Returns where this process was started: some agents keep sessions in the project.
    pub fn cwd(&self) -> Option<&Path> {
        self.cwd.as_deref()
    }

    /// Returns a directory that a variable names; a relative one counts as not set.
    pub fn variable(&self, name: &str) -> Option<PathBuf> {
        self.variables.get(name).map(PathBuf::from).filter(|path| path.is_absolute())
    }

    /// Returns a file that a variable names, if need be relative to a directory.
    pub fn variable_in(&self, name: &str, dir: &Path) -> Option<PathBuf> {
        self.variables.get(name).filter(|value| !value.is_empty()).map(|value| dir.join(value))
    }

    /// Returns where Claude Code keeps everything.
    pub fn claude(&self) -> PathBuf {
        self.variable("CLAUDE_CONFIG_DIR").unwrap_or_else(|| self.home.join(".claude"))
    }

    /// Returns where Claude Code keeps its servers: beside its directory, unless that was moved.
    pub fn claude_servers(&self) -> PathBuf {
        self.variable("CLAUDE_CONFIG_DIR").unwrap_or_else(|| self.home.clone()).join(".claude.json")
    }

    /// Returns where Codex keeps everything.
    pub fn codex(&self) -> PathBuf {
        self.variable("CODEX_HOME").unwrap_or_else(|| self.home.join(".codex"))
    }

    /// Returns where Gemini CLI keeps everything.
    pub fn gemini(&self) -> PathBuf {
        self.variable("GEMINI_CLI_HOME").unwrap_or_else(|| self.home.clone()).join(".gemini")
    }

    /// Returns where OpenClaw keeps everything.
    pub(crate) fn openclaw(&self) -> PathBuf {
        self.variable("OPENCLAW_STATE_DIR").unwrap_or_else(|| self.home.join(".openclaw"))
    }

    /// Returns where goose keeps its sessions and whatever else it remembers.
    pub fn goose_data(&self) -> PathBuf {
        let moved = self.variable("GOOSE_PATH_ROOT").map(|root| root.join("data"));
        moved.unwrap_or_else(|| self.data().join("goose"))
    }

    /// Returns where goose is configured.
    pub fn goose_config(&self) -> PathBuf {
        let moved = self.variable("GOOSE_PATH_ROOT").map(|root| root.join("config"));
        moved.unwrap_or_else(|| self.config().join("goose"))
    }

    /// Returns `$XDG_DATA_HOME`, or where it is when nobody says.
    pub fn data(&self) -> PathBuf {
        self.variable("XDG_DATA_HOME").unwrap_or_else(|| self.home.join(".local/share"))
    }

    /// Returns `$XDG_CONFIG_HOME`, or where it is when nobody says.
    pub fn config(&self) -> PathBuf {
        self.variable("XDG_CONFIG_HOME").unwrap_or_else(|| self.home.join(".config"))
    }
}
