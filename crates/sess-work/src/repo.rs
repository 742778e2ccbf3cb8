//! The repository that somebody works in, and what this clone of it keeps for itself.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
};

use crate::{
    Error, Git, Kind, Oid, Result, Slug,
    guard::{self, Setting},
    writing::write_whole,
};

/// Settings of a clone, as git keeps them.
pub(crate) const BASE_SETTING: &str = "intersession.base";
pub(crate) const REMOTE_SETTING: &str = "intersession.remote";
pub(crate) const CLAIMS_SETTING: &str = "intersession.claims";

/// Where claims are, and where they are on a host that takes no refs but branches.
pub(crate) const CLAIMS: &str = "refs/intersession/claims";
pub(crate) const CLAIMS_AS_BRANCHES: &str = "refs/heads/intersession-claims";

/// Where a clone keeps what is its own, from the top of its main checkout.
pub const OWN_DIR: &str = ".git/intersession";

/// Says which checkout a clone was made from that is a session's workspace, beside what the clone keeps.
pub(crate) const MADE_FROM_FILE: &str = "made-from";
/// Says which checkout is the main one, where what git keeps is not in it, beside what the clone keeps.
const MAIN_FILE: &str = "main-checkout";

/// A clone of a repository.
#[derive(Clone, Debug)]
pub struct Repo {
    /// Runs where the caller is.
    pub(crate) here: Git,
    /// Runs at the top of the main checkout, whichever worktree the caller is in.
    pub(crate) git: Git,
    /// The top of the worktree that the caller is in.
    pub(crate) top: PathBuf,
    /// What all worktrees share.
    pub(crate) common: PathBuf,
    /// The branch that work lands on.
    pub(crate) base: String,
    /// Where everybody meets; without one, here.
    pub(crate) remote: Option<String>,
    /// Claims are branches: the remote takes no other refs, from everybody at least.
    pub(crate) as_branches: Arc<AtomicBool>,
    pub(crate) is_shallow: bool,
}

impl Repo {
    /// Finds the repository around a directory. A workspace that is a clone of its own belongs to the one that it was
    /// made from, as worktrees do.
    pub fn find(dir: &Path) -> Result<Self> {
        let found = Self::find_here(dir)?;
        let Some(main) = found.made_from() else { return Ok(found) };
        let Ok(made_from) = Self::find_here(&main) else { return Ok(found) };
        let id = found.known_id();
        let is_same = id.is_some() && id == made_from.known_id();
        Ok(if is_same { Self { here: found.here, top: found.top, ..made_from } } else { found })
    }

    /// Finds the repository around a directory, whatever that was made from.
    pub(crate) fn find_here(dir: &Path) -> Result<Self> {
        let here = Git::new(dir);
        here.check_version()?;
        let asked = [
            "rev-parse",
            "--path-format=absolute",
            "--is-bare-repository",
            "--is-shallow-repository",
            "--git-common-dir",
            "--absolute-git-dir",
        ];
        let found = here.run(asked)?;
        if !found.is_ok() {
            let words = crate::git::words_of(&found.stderr);
            return Err(Error::wrong_state(format!("{} is in no git repository: {words}", dir.display()))
                .next("git init"));
        }
        let told = found.text();
        let mut lines = told.lines();
        let (is_bare, is_shallow) = (lines.next() == Some("true"), lines.next() == Some("true"));
        let mut path = || PathBuf::from(lines.next().unwrap_or_default());
        let (common, git_dir) = (path(), path());
        if is_bare {
            return Err(Error::wrong_state("this repository is bare: nobody can work in it")
                .next(format!("git clone {}", crate::quoted(common.display()))));
        }
        let top = here.run(["rev-parse", "--path-format=absolute", "--show-toplevel"])?;
        if !top.is_ok() {
            return Err(
                Error::wrong_state("this is the inside of a repository, not a checkout of it").next("cd ..")
            );
        }
        let top = PathBuf::from(top.text().trim_end_matches('\n'));
        let is_main = git_dir == common;
        let main = main_of(&common).filter(|_| !is_main).unwrap_or_else(|| top.clone());
        let git = Git::new(if main.is_dir() { &main } else { &top });
        let settings = guard::settings(&git)?;
        guard::check_remotes(&settings, git.dir())?;
        let guards = guard::guards(&settings);
        let (here, git) = (here.guarded(&guards), git.guarded(&guards));
        let setting = |name: &str| {
            settings.iter().rev().find(|known| known.name == name).map(|known| known.value.clone())
        };
        let remote = match setting(REMOTE_SETTING) {
            Some(name) if name.is_empty() || name == "." => None,
            Some(name) => Some(name),
            None => default_remote(&settings),
        };
        let base = match setting(BASE_SETTING) {
            Some(base) => base,
            None => default_base(&git, remote.as_deref())?,
        };
        check_branch(&base)?;
        let claims = setting(CLAIMS_SETTING).unwrap_or_else(|| CLAIMS.to_owned());
        if claims != CLAIMS && claims != CLAIMS_AS_BRANCHES {
            return Err(Error::usage(format!(
                "{CLAIMS_SETTING} is {claims:?}: expected {CLAIMS} or {CLAIMS_AS_BRANCHES}"
            ))
            .next(format!("git config --unset-all {CLAIMS_SETTING}")));
        }
        let as_branches = Arc::new(AtomicBool::new(claims == CLAIMS_AS_BRANCHES && remote.is_some()));
        Ok(Self { here, git, top, common, base, remote, as_branches, is_shallow })
    }

    /// Returns the checkout that this clone was made from, when it is a session's workspace.
    fn made_from(&self) -> Option<PathBuf> {
        let text = fs::read_to_string(self.common.join("intersession").join(MADE_FROM_FILE)).ok()?;
        Some(PathBuf::from(text.trim_end_matches('\n')))
    }

    fn known_id(&self) -> Option<String> {
        read_id(&self.common.join("intersession/clone-id"))
    }

    pub fn top(&self) -> &Path {
        &self.top
    }

    /// Returns the checkout of the clone itself, which stays when workspaces go.
    pub fn main(&self) -> &Path {
        self.git.dir()
    }

    pub fn base(&self) -> &str {
        &self.base
    }

    pub fn remote(&self) -> Option<&str> {
        self.remote.as_deref()
    }

    /// Returns the session whose workspace the caller is in.
    pub fn slug_here(&self) -> Result<Option<Slug>> {
        let head = self.here.run(["symbolic-ref", "--quiet", "HEAD"])?;
        let told = head.text();
        let branch = told.trim().strip_prefix("refs/heads/session/").filter(|_| head.is_ok());
        Ok(branch.and_then(|name| name.parse().ok()))
    }

    /// Returns a directory of this clone's own, beside what git keeps.
    pub(crate) fn own_dir(&self) -> Result<PathBuf> {
        let dir = self.common.join("intersession");
        fs::create_dir_all(&dir).map_err(|error| {
            Error::failed(format!("cannot make {}: {error}", dir.display())).next(look_at(&self.common))
        })?;
        Ok(dir)
    }

    /// Keeps which checkout is the main one, where git does not tell: the first that somebody works in. Workspaces are
    /// made below it from wherever.
    pub(crate) fn keep_main(&self) -> Result<()> {
        if main_of(&self.common).is_some() {
            return Ok(());
        }
        let path = self.own_dir()?.join(MAIN_FILE);
        write_whole(&path, format!("{}\n", self.main().display()).as_bytes(), 0o600)
            .map_err(|error| Error::failed(format!("cannot write {}: {error}", path.display())))
    }

    /// Returns what tells this clone from every other.
    pub(crate) fn clone_id(&self) -> Result<String> {
        let dir = self.own_dir()?;
        let path = dir.join("clone-id");
        if let Some(id) = read_id(&path) {
            return Ok(id);
        }
        // Written whole under a name of its own: of two at once the first one counts.
        let written = tempfile::NamedTempFile::new_in(&dir).and_then(|mut file| {
            file.write_all(format!("{}\n", random_hex()).as_bytes())?;
            file.as_file().sync_all()?;
            match file.persist_noclobber(&path) {
                Err(error) if error.error.kind() != std::io::ErrorKind::AlreadyExists => Err(error.error),
                _ => Ok(()),
            }
        });
        written.map_err(|error| {
            Error::failed(format!("cannot write {}: {error}", path.display())).next(look_at(&dir))
        })?;
        read_id(&path).ok_or_else(|| Error::failed(format!("{} holds no id", path.display())))
    }

    /// Returns the commit that a name leads to, if there is one.
    pub(crate) fn commit(&self, name: &str) -> Result<Option<Oid>> {
        let found = self.git.run([
            "rev-parse",
            "--verify",
            "--quiet",
            "--end-of-options",
            &format!("{name}^{{commit}}"),
        ])?;
        if found.is_ok() { found.text().trim().parse().map(Some).map_err(Error::failed) } else { Ok(None) }
    }

    /// Takes a lock that only processes of this clone know, until it is dropped.
    pub(crate) fn lock(&self, name: &str) -> Result<fs::File> {
        let path = self.own_dir()?.join(format!("{name}.lock"));
        let file =
            fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(
                |error| {
                    Error::failed(format!("cannot open {}: {error}", path.display())).next(look_at(&path))
                },
            )?;
        file.lock().map_err(|error| Error::failed(format!("cannot lock {}: {error}", path.display())))?;
        Ok(file)
    }
}

/// Returns the command that shows who may write somewhere.
fn look_at(path: &Path) -> String {
    format!("ls -ld {}", crate::quoted(path.display()))
}

/// Returns the main checkout of a repository, as far as that is known.
fn main_of(common: &Path) -> Option<PathBuf> {
    if common.file_name().is_some_and(|name| name == ".git") {
        return common.parent().map(Path::to_owned);
    }
    let text = fs::read_to_string(common.join("intersession").join(MAIN_FILE)).ok()?;
    Some(PathBuf::from(text.trim_end_matches('\n'))).filter(|main| main.join(".git").exists())
}

fn read_id(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let id = text.trim();
    let is_id = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| id.to_owned())
}

/// Returns 128 random bits.
pub(crate) fn random_hex() -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system has random bytes");
    format!("{:032x}", u128::from_ne_bytes(bytes))
}

/// Fails on a branch's name that is none: it is written into commands of git's own.
fn check_branch(base: &str) -> Result<()> {
    let is_odd = |c: char| c.is_control() || c.is_whitespace() || "~^:?*[\\".contains(c);
    let is_name = !base.is_empty()
        && !base.contains(is_odd)
        && !base.contains("..")
        && !base.contains("@{")
        && !base.starts_with(['-', '/', '.'])
        && !base.ends_with(['/', '.']);
    if is_name {
        return Ok(());
    }
    Err(Error::usage(format!("{base:?} is no name of a branch"))
        .next(format!("git config {BASE_SETTING} <branch>")))
}

/// `origin` when there is one, else the only one.
fn default_remote(settings: &[Setting]) -> Option<String> {
    let name_of = |name: &str| {
        name.strip_prefix("remote.").and_then(|rest| rest.strip_suffix(".url")).map(str::to_owned)
    };
    let names: Vec<String> = settings.iter().filter_map(|known| name_of(&known.name)).collect();
    names.iter().find(|name| *name == "origin").or(names.first().filter(|_| names.len() == 1)).cloned()
}

/// What the remote calls its own, else a branch of the usual name, else the one that is checked out.
fn default_base(git: &Git, remote: Option<&str>) -> Result<String> {
    if let Some(remote) = remote {
        let head = git.run(["symbolic-ref", "--quiet", &format!("refs/remotes/{remote}/HEAD")])?;
        let prefix = format!("refs/remotes/{remote}/");
        if let Some(base) = head.text().trim().strip_prefix(&prefix) {
            return Ok(base.to_owned());
        }
    }
    for base in ["main", "master"] {
        let places =
            [format!("refs/heads/{base}"), format!("refs/remotes/{}/{base}", remote.unwrap_or("origin"))];
        for place in places {
            if git.run(["show-ref", "--verify", "--quiet", &place])?.is_ok() {
                return Ok(base.to_owned());
            }
        }
    }
    let head = git.run(["symbolic-ref", "--quiet", "--short", "HEAD"])?;
    if head.is_ok() {
        return Ok(head.text().trim().to_owned());
    }
    Err(Error::new(Kind::WrongState, "HEAD is detached, and nothing says which branch work lands on")
        .next(format!("git config {BASE_SETTING} <branch>")))
}
