//! The sandbox: what a confined agent starts can reach its workspace, and nothing that was not allowed.
//!
//! Whatever touches the world under a sandbox runs in a child: our own program, started again as
//! `confined <policy> …`, takes every right away from itself that the [`Policy`] does not name, and only
//! then becomes the program that was asked for. Where bubblewrap works, all of that happens in namespaces
//! in which the store, other workspaces and other processes do not exist. What cannot be confined does not
//! run.
//!
//! Without namespaces two things remain that Landlock has no rule for: whether a path exists can be seen, and
//! the times of the same user's files outside can be changed. Modes, owners and attributes cannot, by any path.

mod apply;
mod bubblewrap;
#[cfg(target_os = "linux")]
mod system_calls;

use std::{
    ffi::OsString,
    fs, io,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use sess_core::sandbox::{Network, Sandbox};
use tokio::io::AsyncWriteExt as _;
use tokio_util::sync::CancellationToken;

pub use self::{
    apply::{LANDLOCK_ABI_MIN, landlock_abi},
    bubblewrap::{Bubblewrap, find_bubblewrap},
};
use crate::{
    files::{FileAnswer, FileCall},
    process::{self, End, Kept, Launch},
    tool::ToolOutput,
};

/// The hidden command of our own program that confines itself.
pub const COMMAND: &str = "confined";
/// How long one call of a tool on files may take in its own process.
const FILE_TOOL_TIMEOUT: Duration = Duration::from_secs(60);
/// The most bytes of an answer of a tool on files; texts grow when they are written as JSON.
const FILE_ANSWER_BYTES_MAX: usize = 2_000_000;
/// Where a confined process finds its programs when the person's own are out of reach.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Directories in which no path can be allowed: they lead to other processes and to devices.
const NEVER: [&str; 4] = ["/proc", "/sys", "/dev", "/run"];

/// What a confined process may reach. All paths are real ones, without links.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    pub read: Vec<PathBuf>,
    pub write: Vec<PathBuf>,
    pub network: bool,
    /// Whether it runs in namespaces of its own, where `/proc`, `/dev` and `/tmp` are its own too.
    pub namespaces: bool,
}

/// Why something cannot be confined.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the sandbox cannot be enforced: {0}")]
    Unable(String),
    #[error("the sandbox cannot allow {path}: {reason}", path = path.display())]
    Path { path: PathBuf, reason: String },
    #[error("the sandbox has no directory for temporary files: {0}")]
    Scratch(io::Error),
}

/// What a [`Confinement`] is made from.
#[derive(Debug)]
pub struct Options<'a> {
    pub sandbox: &'a Sandbox,
    pub workspace: &'a Path,
    /// What a confined process must never reach: the data directory, with store and token.
    pub store: Option<&'a Path>,
    /// Our own program, which understands [`COMMAND`].
    pub exe: &'a Path,
    /// Where a directory for temporary files is made.
    pub scratch: &'a Path,
    pub abilities: &'a Abilities,
}

/// One agent's sandbox on this machine.
#[derive(Debug)]
pub struct Confinement {
    policy: Policy,
    exe: PathBuf,
    bubblewrap: Option<PathBuf>,
    /// `/tmp` and home inside; gone with this value.
    scratch: tempfile::TempDir,
}

impl Confinement {
    /// Checks that this machine can confine, and that nothing allowed leads to the store.
    pub fn new(options: &Options<'_>) -> Result<Self, Error> {
        if !options.abilities.can_confine() {
            return Err(Error::Unable(options.abilities.to_string()));
        }
        let store = options.store.map(|store| fs::canonicalize(store).unwrap_or_else(|_| store.to_owned()));
        let allowed = |path: &Path| allowed(path, store.as_deref());
        let exe = fs::canonicalize(options.exe).map_err(|error| Error::Unable(error.to_string()))?;
        let scratch =
            tempfile::Builder::new().prefix("sess-").tempdir_in(options.scratch).map_err(Error::Scratch)?;
        let mut write = vec![allowed(options.workspace)?, allowed(scratch.path())?];
        for path in &options.sandbox.write {
            write.push(without_links(Path::new(path), allowed(Path::new(path))?)?);
        }
        let mut read = Vec::new();
        for path in &options.sandbox.read {
            read.push(without_links(Path::new(path), allowed(Path::new(path))?)?);
        }
        let bubblewrap = match &options.abilities.bubblewrap {
            Bubblewrap::Works { path, .. } => Some(path.clone()),
            Bubblewrap::Broken { .. } | Bubblewrap::Missing => None,
        };
        let network = match options.sandbox.network {
            Network::None => false,
            Network::Allowed => true,
        };
        let policy = Policy { read, write, network, namespaces: bubblewrap.is_some() };
        Ok(Self { policy, exe, bubblewrap, scratch })
    }

    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns how the same thing is started confined.
    pub(crate) fn launch(&self, launch: Launch) -> Launch {
        let mut args = vec![OsString::from("--"), launch.program.into_os_string()];
        args.extend(launch.args);
        self.own_program(args, launch.env, launch.cwd)
    }

    /// Calls one tool on files in a confined process of its own.
    pub(crate) async fn file_tool(&self, call: &FileCall, cancel: &CancellationToken) -> ToolOutput {
        match self.try_file_tool(call, cancel).await {
            Ok(answer) => answer,
            Err(error) => ToolOutput::error(format!("the confined tool could not run: {error}")),
        }
    }

    async fn try_file_tool(&self, call: &FileCall, cancel: &CancellationToken) -> io::Result<ToolOutput> {
        let cwd = fs::canonicalize(&call.root)?;
        let launch = self.own_program(Vec::new(), Vec::new(), cwd);
        let mut command = launch.command();
        let (answer, theirs) = process::pipe()?;
        command.stdin(Stdio::piped()).stdout(Stdio::from(theirs)).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        drop(command);
        let request = serde_json::to_vec(call)?;
        let stdin = child.stdin.take();
        let stderr = child.stderr.take();
        let mut kept = Kept::new(FILE_ANSWER_BYTES_MAX);
        let talk = async {
            if let Some(mut stdin) = stdin {
                let _refused_before_it_read = stdin.write_all(&request).await;
            }
        };
        let complaint = async {
            use tokio::io::AsyncReadExt as _;

            let mut text = String::new();
            if let Some(stderr) = stderr {
                let _no_text = stderr.take(2_000).read_to_string(&mut text).await;
            }
            text
        };
        let running = process::run(child, answer, &mut kept, FILE_TOOL_TIMEOUT, cancel);
        let (end, (), complaint) = tokio::join!(running, talk, complaint);
        Ok(match end? {
            End::Cancelled => ToolOutput::error("cancelled"),
            End::TimedOut => ToolOutput::error("the tool took too long"),
            End::Exited(_) => match serde_json::from_str::<FileAnswer>(&kept.text()) {
                Ok(FileAnswer { text, is_error }) => ToolOutput { text, is_error, ..ToolOutput::default() },
                Err(_) => {
                    ToolOutput::error(format!("the confined tool gave no answer: {}", complaint.trim()))
                }
            },
        })
    }

    fn own_program(&self, args: Vec<OsString>, env: Vec<(String, String)>, cwd: PathBuf) -> Launch {
        let policy = serde_json::to_string(&self.policy).expect("paths are text");
        let mut all = vec![OsString::from(COMMAND), OsString::from(policy)];
        all.extend(args);
        let mut env = env;
        // What these name outside is out of reach inside.
        env.retain(|(name, _)| !matches!(name.as_str(), "HOME" | "TMPDIR" | "PWD" | "OLDPWD"));
        let scratch = self.scratch.path().to_string_lossy().into_owned();
        env.extend([("HOME".to_owned(), scratch.clone()), ("TMPDIR".to_owned(), scratch)]);
        if !env.iter().any(|(name, _)| name == "PATH") {
            env.push(("PATH".to_owned(), PATH.to_owned()));
        }
        match &self.bubblewrap {
            None => Launch { program: self.exe.clone(), args: all, env, cwd },
            Some(bubblewrap) => {
                let mut args = bubblewrap::arguments(&self.policy, &self.exe, &cwd);
                args.push(self.exe.clone().into_os_string());
                args.extend(all);
                Launch { program: bubblewrap.clone(), args, env, cwd }
            }
        }
    }
}

/// Refuses a path that leads elsewhere: what a child may reach was decided by the paths as they are written.
fn without_links(path: &Path, real: PathBuf) -> Result<PathBuf, Error> {
    if real == path {
        return Ok(real);
    }
    let reason = format!("it leads through a link; write the real path, {}", real.display());
    Err(Error::Path { path: path.to_owned(), reason })
}

fn allowed(path: &Path, store: Option<&Path>) -> Result<PathBuf, Error> {
    let refuse = |reason: String| Err(Error::Path { path: path.to_owned(), reason });
    if !path.is_absolute() {
        return refuse("it is not an absolute path".to_owned());
    }
    let real = match fs::canonicalize(path) {
        Ok(real) => real,
        Err(error) => return refuse(error.to_string()),
    };
    if real.to_str().is_none() {
        return refuse("its name is not valid UTF-8".to_owned());
    }
    if real == Path::new("/") {
        return refuse("that is everything".to_owned());
    }
    if let Some(never) = NEVER.iter().find(|never| real.starts_with(never)) {
        return refuse(format!("{never} leads to other processes and devices"));
    }
    match store {
        Some(store) if store.starts_with(&real) => {
            refuse(format!("it holds the store {}, which no confined agent may reach", store.display()))
        }
        Some(store) if real.starts_with(store) => {
            refuse(format!("it is inside the store {}, which no confined agent may reach", store.display()))
        }
        _ => Ok(real),
    }
}

/// Takes from this process, for good, what the policy does not allow.
///
/// It holds for the calling thread and whatever that starts, so it has to be called while there is no other.
pub fn confine(policy: &Policy) -> Result<(), Error> {
    apply::apply(policy)
}

/// Confines this process and becomes `program`; returns only why that failed.
pub fn run_confined(policy: &Policy, program: &OsString, args: &[OsString]) -> io::Error {
    if let Err(error) = confine(policy) {
        return io::Error::other(error);
    }
    process::inherit_nothing();
    std::process::Command::new(program).args(args).exec()
}

/// What this machine can do to confine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// `None` without Landlock.
    pub landlock_abi: Option<i32>,
    pub bubblewrap: Bubblewrap,
}

impl Abilities {
    pub fn can_confine(&self) -> bool {
        self.landlock_abi.is_some_and(|abi| abi >= LANDLOCK_ABI_MIN)
    }
}

/// Says in one sentence what agents can expect.
impl std::fmt::Display for Abilities {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.landlock_abi {
            None => f.write_str("no Landlock")?,
            Some(abi) => write!(f, "Landlock ABI {abi}")?,
        }
        match &self.bubblewrap {
            Bubblewrap::Works { version, .. } => write!(f, ", bubblewrap {version}")?,
            Bubblewrap::Broken { reason, .. } => write!(f, ", bubblewrap does not work here ({reason})")?,
            Bubblewrap::Missing => f.write_str(", no bubblewrap")?,
        }
        match (self.can_confine(), &self.bubblewrap) {
            (true, Bubblewrap::Works { .. }) => f.write_str(": agents can be confined"),
            (true, Bubblewrap::Broken { .. } | Bubblewrap::Missing) => {
                f.write_str(": agents can be confined, without namespaces")
            }
            (false, _) => {
                write!(
                    f,
                    ": agents cannot be confined, which takes Landlock ABI {LANDLOCK_ABI_MIN} (Linux 6.7)"
                )
            }
        }
    }
}

/// Tries what this machine can do; `bubblewrap` is where [`find_bubblewrap`] found it.
pub fn probe(bubblewrap: Option<&Path>) -> Abilities {
    Abilities { landlock_abi: landlock_abi(), bubblewrap: bubblewrap::probe(bubblewrap) }
}
