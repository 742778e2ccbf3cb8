//! The user's `git`, run so that nothing of a repository runs by the way.

use std::{
    ffi::OsStr,
    fmt, fs,
    io::{self, Write as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    str::FromStr,
    sync::{Arc, mpsc},
    time::Duration,
};

use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

use crate::{Error, Kind, Result};

/// How long a command that talks to a remote may take.
const NETWORK_TIME_MAX: Duration = Duration::from_secs(120);
/// How often a worktree that is being made is waited for.
const TRIES_MAX: u32 = 8;
/// What git has to be at least: it merges in memory since then.
const VERSION_MIN: (u32, u32) = (2, 39);

/// What would make git listen to something else than where it is run.
const MISLEADING: [&str; 18] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
    "GIT_CONFIG_PARAMETERS",
    "GIT_CONFIG_COUNT",
    "GIT_EXTERNAL_DIFF",
    "GIT_DIFF_OPTS",
    "GIT_QUARANTINE_PATH",
    "GIT_DEFAULT_HASH",
    "GIT_LITERAL_PATHSPECS",
    "GIT_GLOB_PATHSPECS",
    "GIT_NOGLOB_PATHSPECS",
    "GIT_ICASE_PATHSPECS",
];

/// Settings of a repository that would run something, or do more than was asked.
const SAFE: [&str; 15] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "protocol.ext.allow=never",
    "commit.gpgSign=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "core.quotePath=false",
    "submodule.recurse=false",
    "push.gpgSign=false",
    "push.recurseSubmodules=no",
    "log.showSignature=false",
    "merge.verifySignatures=false",
    "merge.autoStash=false",
    // Records are written and read as they are.
    "i18n.commitEncoding=UTF-8",
    "i18n.logOutputEncoding=UTF-8",
];

/// The name of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Oid(String);

impl Oid {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns as much of it as people need.
    pub fn short(&self) -> &str {
        &self.0[..12]
    }
}

impl FromStr for Oid {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let is_hex = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if is_hex && matches!(text.len(), 40 | 64) {
            Ok(Self(text.to_owned()))
        } else {
            Err(format!("{text:?} is no object of git"))
        }
    }
}

impl TryFrom<String> for Oid {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, String> {
        text.parse()
    }
}

impl From<Oid> for String {
    fn from(oid: Oid) -> Self {
        oid.0
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How a command ended.
#[derive(Clone, Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Ended {
    pub fn is_ok(&self) -> bool {
        self.code == Some(0)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

/// Runs `git` in one directory.
#[derive(Clone, Debug)]
pub struct Git {
    dir: PathBuf,
    /// An index of our own: the user's is never touched.
    index: Option<PathBuf>,
    /// What takes the place of commands that the repository's configuration names.
    guards: Arc<[(String, String)]>,
    /// What it is not told of the caller's environment.
    unheard: &'static [&'static str],
}

impl Git {
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), index: None, guards: Arc::default(), unheard: &[] }
    }

    /// Returns the same with settings that hold in spite of the repository's.
    pub(crate) fn guarded(&self, guards: &[(String, String)]) -> Self {
        Self { guards: guards.into(), ..self.clone() }
    }

    /// Returns the same in another directory of the repository.
    pub(crate) fn at(&self, dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), index: None, ..self.clone() }
    }

    pub(crate) fn guards(&self) -> &[(String, String)] {
        &self.guards
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the same with another index.
    pub fn with_index(&self, index: &Path) -> Self {
        Self { index: Some(index.to_owned()), ..self.clone() }
    }

    /// Returns the same without some variables of the caller's environment.
    pub(crate) fn without(&self, unheard: &'static [&'static str]) -> Self {
        Self { unheard, ..self.clone() }
    }

    /// Fails unless git is there and new enough.
    pub fn check_version(&self) -> Result<()> {
        let told = self.text(["version"])?;
        let mut numbers = told.trim().trim_start_matches("git version ").split(['.', '-', ' ']);
        let mut number = || numbers.next().and_then(|text| text.parse::<u32>().ok()).unwrap_or_default();
        let version = (number(), number());
        if version >= VERSION_MIN {
            return Ok(());
        }
        Err(Error::wrong_state(format!(
            "git is {}.{}, and has to be {}.{} at least: install a newer one",
            version.0, version.1, VERSION_MIN.0, VERSION_MIN.1
        ))
        .next("git --version"))
    }

    /// Runs a command, and returns however it ended.
    pub fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<Ended> {
        self.run_with(args, None, &[], None)
    }

    /// Runs a command that talks to a remote.
    pub fn talk<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<Ended> {
        self.run_with(args, None, &[], Some(NETWORK_TIME_MAX))
    }

    /// Runs a command that has to succeed, and returns what it printed.
    pub fn text<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<String> {
        let args: Vec<S> = args.into_iter().collect();
        let ended = self.run(&args)?;
        if ended.is_ok() { Ok(ended.text()) } else { Err(failed(&args, &ended)) }
    }

    /// Runs a command that has to succeed and prints one object's name.
    pub fn oid<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<Oid> {
        self.text(args)?.trim().parse().map_err(Error::failed)
    }

    /// Runs a command that has to succeed, with something to read.
    pub fn feed<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>, input: &[u8]) -> Result<Vec<u8>> {
        let args: Vec<S> = args.into_iter().collect();
        let ended = self.run_with(&args, Some(input), &[], None)?;
        if ended.is_ok() { Ok(ended.stdout) } else { Err(failed(&args, &ended)) }
    }

    /// Runs a command that has to succeed, with something to read, and prints one object's name.
    pub(crate) fn feed_oid<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
        input: &[u8],
    ) -> Result<Oid> {
        String::from_utf8_lossy(&self.feed(args, input)?).trim().parse().map_err(Error::failed)
    }

    /// Runs a command in full: with what it reads, with settings of its environment, and a limit of its time.
    pub fn run_with<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
        input: Option<&[u8]>,
        env: &[(&str, &str)],
        time_max: Option<Duration>,
    ) -> Result<Ended> {
        let args: Vec<S> = args.into_iter().collect();
        let mut ended = self.run_once(&args, input, env, time_max)?;
        // Somebody is about to make a worktree: git dies of what it finds half made, before it does anything.
        for _ in 0..TRIES_MAX {
            if ended.is_ok() || half_made_worktree(&ended.stderr).is_none() {
                break;
            }
            pause();
            ended = self.run_once(&args, input, env, time_max)?;
        }
        match self.broken_worktree(&ended) {
            Some(error) => Err(error),
            None => Ok(ended),
        }
    }

    /// Says that what git keeps of a worktree is not all there, when it died of that.
    fn broken_worktree(&self, ended: &Ended) -> Option<Error> {
        if ended.is_ok() {
            return None;
        }
        if let Some(dir) = half_made_worktree(&ended.stderr) {
            let dir = self.dir.join(dir);
            let head = fs::read_to_string(dir.join("HEAD")).ok();
            let place = crate::quoted(dir.display());
            // Else it is one of the remote's.
            return dir.is_dir().then(|| {
                match head.filter(|head| !head.trim_matches(['0', '\n']).is_empty()) {
                    None => Error::failed(format!(
                        "git was stopped while it made the worktree of {place}, or is still at it"
                    ))
                    .next(format!("rm -r {place}")),
                    Some(_) => {
                        Error::failed(format!("{place}/commondir is empty, and git cannot go on without"))
                            .next(format!("echo ../.. > {place}/commondir"))
                    }
                }
            });
        }
        let gone =
            ended.stderr.lines().find_map(|line| line.strip_prefix("fatal: not a git repository: "))?;
        let common = Path::new(gone).parent().filter(|parent| parent.ends_with("worktrees"))?.parent()?;
        let main = if common.ends_with(".git") { common.parent()? } else { common };
        // Unless it was moved, together with what is below it.
        let above = || self.dir.ancestors().skip(1).find(|dir| dir.join(".git").is_dir());
        let main = if common.is_dir() { main } else { above().unwrap_or(main) };
        let message = format!(
            "{} has lost what git keeps of a worktree, {gone}; its files are all there",
            self.dir.display()
        );
        Some(
            Error::failed(message)
                .next(format!("cd {} && sess work doctor --repair", crate::quoted(main.display()))),
        )
    }

    fn run_once<S: AsRef<OsStr>>(
        &self,
        args: &[S],
        input: Option<&[u8]>,
        env: &[(&str, &str)],
        time_max: Option<Duration>,
    ) -> Result<Ended> {
        let mut command = self.command();
        command.args(args).envs(env.iter().copied());
        command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
        if time_max.is_some() {
            apart(&mut command);
        }
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(|error| {
            Error::failed(format!("cannot run git in {}: {error}", self.dir.display())).next("git --version")
        })?;
        let writer = input.map(|input| {
            let (mut stdin, input) = (child.stdin.take().expect("it is piped"), input.to_vec());
            // A reader that stops early says so by how it ends.
            std::thread::spawn(move || drop(stdin.write_all(&input)))
        });
        let output = match time_max {
            None => child.wait_with_output(),
            Some(time_max) => output_within(child, time_max)?,
        };
        if let Some(writer) = writer {
            writer.join().expect("it does not panic");
        }
        let Output { status, stdout, stderr } =
            output.map_err(|error| Error::failed(format!("git was lost: {error}")))?;
        let stderr = String::from_utf8_lossy(&stderr).into_owned();
        Ok(Ended { code: status.code(), stdout, stderr })
    }

    fn command(&self) -> Command {
        let mut command = Command::new("git");
        command.current_dir(&self.dir);
        for name in MISLEADING.iter().chain(self.unheard) {
            command.env_remove(name);
        }
        if let Some(index) = &self.index {
            command.env("GIT_INDEX_FILE", index);
        }
        // Nobody is there to answer, words are read by people of any language, and locks are left to others.
        command.env("GIT_TERMINAL_PROMPT", "0").env("GIT_EDITOR", "true").env("LC_ALL", "C");
        command.env("GIT_OPTIONAL_LOCKS", "0").env("GIT_NO_REPLACE_OBJECTS", "1");
        // Settings cannot take back a proxy that the repository names; nobody can push over that protocol anyway.
        command.env("GIT_PROXY_COMMAND", "");
        for setting in SAFE {
            command.args(["-c", setting]);
        }
        if !self.guards.is_empty() {
            command.env("GIT_CONFIG_COUNT", self.guards.len().to_string());
            for (n, (name, value)) in self.guards.iter().enumerate() {
                command.env(format!("GIT_CONFIG_KEY_{n}"), name).env(format!("GIT_CONFIG_VALUE_{n}"), value);
            }
        }
        command
    }
}

/// Waits a little, and never as long as somebody else.
#[expect(
    clippy::disallowed_methods,
    reason = "nothing tells when the others are done, and no executor is here"
)]
pub(crate) fn pause() {
    let mut byte = [0];
    getrandom::fill(&mut byte).expect("the system has random bytes");
    std::thread::sleep(Duration::from_millis(5 + u64::from(byte[0])));
}

/// Says how a command that had to succeed did not.
pub(crate) fn failed<S: AsRef<OsStr>>(args: &[S], ended: &Ended) -> Error {
    let verb = args.first().map(|verb| verb.as_ref().to_string_lossy().into_owned()).unwrap_or_default();
    let words = words_of(&ended.stderr);
    let signs = ["Please tell me who you are", "empty ident name", "consists only of disallowed characters"];
    if signs.iter().any(|sign| words.contains(sign)) {
        return Error::wrong_state("git does not know who you are")
            .next("git config user.name \"Your Name\" && git config user.email you@example.com");
    }
    if is_disk_full(&words) {
        return Error::failed(format!("the disk is full: git {verb} could not write")).next("df -h .");
    }
    left_lock(&words).unwrap_or_else(|| Error::failed(format!("git {verb} failed: {words}")))
}

/// Returns where git keeps what it knows of a worktree, when it says that this is not all there.
fn half_made_worktree(words: &str) -> Option<&str> {
    let (_, rest) = words.split_once("failed to read ")?;
    rest.split_once("/commondir: ").map(|(dir, _)| dir)
}

/// Returns the lock file that git found in its way.
pub(crate) fn lock_in_the_way(words: &str) -> Option<PathBuf> {
    let (_, rest) = words.split_once("Unable to create '")?;
    let (path, _) = rest.split_once("': File exists")?;
    // Without the steps in it that lead nowhere.
    Some(Path::new(path).components().collect())
}

/// Says that a lock is in the way in this clone, when that is what git says.
pub(crate) fn left_lock(words: &str) -> Option<Error> {
    let lock = lock_in_the_way(words)?;
    let lock = lock.display();
    let message = format!("{lock} is left from a git that was ended, or another one is at work");
    Some(Error::failed(message).next(format!("rm {}", crate::quoted(lock))))
}

pub(crate) fn is_disk_full(words: &str) -> bool {
    ["No space left on device", "Out of diskspace"].iter().any(|sign| words.contains(sign))
}

/// Whether somebody is not let in, or not let write.
///
/// Only git's words tell that from a remote that is not there: they choose the exit code and the advice, and never say
/// what was done.
pub(crate) fn is_denied(words: &str) -> bool {
    let signs = [
        "Permission denied",
        "Permission to ",
        "Authentication failed",
        "returned error: 403",
        "could not read Username",
        "insufficient permission",
        "unable to create temporary object directory",
        "Write access to repository not granted",
        "not allowed to push code to this project",
    ];
    signs.iter().any(|sign| words.contains(sign))
}

/// Returns what git said, on one line.
pub(crate) fn words_of(stderr: &str) -> String {
    let lines: Vec<&str> = stderr.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let mut words = lines.join(" / ");
    words.retain(|c| !c.is_control());
    if words.is_empty() { "it did not say why".to_owned() } else { words }
}

/// Has a command run with no terminal to ask at, and as one group that can be ended.
fn apart(command: &mut Command) {
    // Where there is no terminal to be kept from, it starts without a fork of this process, which would be a quarter of
    // what 32 claims at once cost.
    if fs::File::open("/dev/tty").is_err() {
        command.process_group(0);
        return;
    }
    #[expect(unsafe_code, reason = "what happens between fork and exec can only be said this way")]
    // SAFETY: the closure makes one system call, which is allowed after fork in a process with threads; it does not
    // allocate, lock or panic.
    unsafe {
        command.pre_exec(|| Ok(rustix::process::setsid().map(drop)?));
    }
}

/// Waits for a command that runs apart; one that takes too long is ended with all that it started.
fn output_within(child: Child, time_max: Duration) -> Result<io::Result<Output>> {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let (done, end) = mpsc::sync_channel(1);
    // Whoever left the group may hold its pipes open for long: nobody waits for that.
    std::thread::spawn(move || drop(done.send(child.wait_with_output())));
    end.recv_timeout(time_max).map_err(|_| {
        if let Some(group) = group {
            let _nobody_left = rustix::process::kill_process_group(group, Signal::KILL);
        }
        let limit = time_max.as_secs();
        Error::new(Kind::Unreachable, format!("the remote did not answer for {limit} s"))
            .next("git remote -v")
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Read as _, time::Instant};

    use super::*;

    #[test]
    fn what_takes_too_long_ends_with_all_that_it_started() {
        let dir = tempfile::tempdir().expect("a directory");
        let fifo = dir.path().join("fifo");
        assert!(Command::new("mkfifo").arg(&fifo).status().expect("it runs").success());
        let begun = Instant::now();
        // It ends when nobody is left who could write.
        let reader = std::thread::spawn(move || fs::File::open(fifo)?.read_to_end(&mut Vec::new()));
        // As `git fetch` starts `ssh`, which keeps what git says it to.
        let slow = ["-c", "alias.slow=!sleep 60 3>fifo; :", "slow"];
        let ended = Git::new(dir.path()).run_with(slow, None, &[], Some(Duration::from_secs(3)));
        let error = ended.expect_err("it takes too long");
        assert_eq!(error.kind, Kind::Unreachable);
        assert_eq!(error.message(), "the remote did not answer for 3 s");
        reader.join().expect("no panic").expect("read");
        assert!(begun.elapsed() < Duration::from_secs(30), "something of it was left to run");
    }

    #[test]
    fn a_number_in_what_git_says_is_no_refusal() {
        assert!(is_denied("fatal: unable to access 'https://x/': The requested URL returned error: 403"));
        assert!(!is_denied("fatal: unable to connect to localhost port 14030: Connection refused"));
        assert!(!is_denied("fatal: bad object 1403beef"));
    }
}
