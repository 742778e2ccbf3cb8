//! Namespaces, through bubblewrap: inside, what was not bound does not exist.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::Policy;

/// Whether bubblewrap can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bubblewrap {
    Works {
        path: PathBuf,
        version: String,
    },
    /// It is there, but the system does not let it make namespaces.
    Broken {
        path: PathBuf,
        reason: String,
    },
    Missing,
}

/// What every confined process may read and run: the system's own programs.
pub(super) const PROGRAMS: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// What programs look up, and holds no secret.
pub(super) const SETTINGS: [&str; 28] = [
    "/etc/alternatives",
    "/etc/bash.bashrc",
    "/etc/ca-certificates",
    "/etc/debian_version",
    "/etc/fonts",
    "/etc/gitconfig",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/inputrc",
    "/etc/java",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/locale.alias",
    "/etc/localtime",
    "/etc/magic",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/pki",
    "/etc/profile",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/timezone",
];

/// Returns where `bwrap` is, in the directories of a `PATH`.
pub fn find_bubblewrap(path: &str) -> Option<PathBuf> {
    let dirs = path.split(':').filter(|dir| dir.starts_with('/'));
    dirs.map(|dir| Path::new(dir).join("bwrap")).find(|file| file.is_file())
}

/// Starts something in the namespaces that we use.
pub(super) fn probe(path: Option<&Path>) -> Bubblewrap {
    let Some(path) = path else { return Bubblewrap::Missing };
    let run = |args: &[OsString]| {
        let mut command = Command::new(path);
        command.args(args).env_clear().stdin(Stdio::null()).output()
    };
    let broken = |reason: String| Bubblewrap::Broken { path: path.to_owned(), reason };
    let version = match run(&["--version".into()]) {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            text.trim().trim_start_matches("bubblewrap ").to_owned()
        }
        Err(error) => return broken(error.to_string()),
    };
    let policy = Policy { read: Vec::new(), write: Vec::new(), network: false, namespaces: true };
    let mut args = arguments(&policy, Path::new("/usr"), Path::new("/"));
    args.push("/bin/true".into());
    match run(&args) {
        Ok(output) if output.status.success() => Bubblewrap::Works { path: path.to_owned(), version },
        Ok(output) => broken(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => broken(error.to_string()),
    }
}

/// Returns the arguments before the program.
pub(super) fn arguments(policy: &Policy, exe: &Path, cwd: &Path) -> Vec<OsString> {
    let mut args: Vec<OsString> = Vec::new();
    let mut add = |words: &[&dyn AsRef<std::ffi::OsStr>]| {
        args.extend(words.iter().map(|word| word.as_ref().to_owned()));
    };
    add(&[&"--unshare-user", &"--unshare-pid", &"--unshare-ipc", &"--unshare-uts", &"--unshare-cgroup-try"]);
    if !policy.network {
        add(&[&"--unshare-net"]);
    }
    add(&[&"--die-with-parent", &"--new-session", &"--cap-drop", &"ALL"]);
    for dir in PROGRAMS {
        match std::fs::read_link(dir) {
            Ok(target) => add(&[&"--symlink", &target, &dir]),
            Err(_) if Path::new(dir).is_dir() => add(&[&"--ro-bind", &dir, &dir]),
            Err(_) => {}
        }
    }
    for path in SETTINGS.iter().filter(|path| Path::new(path).exists()) {
        add(&[&"--ro-bind", path, path]);
    }
    add(&[&"--proc", &"/proc", &"--dev", &"/dev", &"--tmpfs", &"/tmp"]);
    if !exe.starts_with("/usr") {
        add(&[&"--ro-bind", &exe, &exe]);
    }
    // Shorter paths first, so that a directory does not hide one that was bound below it.
    let mut binds: Vec<(&PathBuf, &str)> = Vec::new();
    binds.extend(policy.read.iter().map(|path| (path, "--ro-bind")));
    binds.extend(policy.write.iter().map(|path| (path, "--bind")));
    binds.sort_by_key(|(path, _)| path.components().count());
    for (path, how) in binds {
        add(&[&how, path, path]);
    }
    add(&[&"--chdir", &cwd, &"--"]);
    args
}
