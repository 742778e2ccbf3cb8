//! Agents that run on this machine right now, as the system and their own registries tell it.

use std::{
    collections::{HashMap, HashSet},
    fs,
    os::unix::fs::MetadataExt as _,
    path::Path,
};

use serde_json::Value;
use sess_core::{SessionId, Source, Timestamp};

use crate::{Error, Homes, Problem, Result, files, json};

/// The ticks of a second in which the system counts when a process started.
const TICKS_PER_SECOND: u64 = 100;
/// An entry of a registry whose process is gone is told of for this long.
const DEAD_FOR_MS: i64 = 86_400_000;

/// Programs by the name that they are started with.
const PROGRAMS: [(&str, Source); 13] = [
    ("claude", Source::Claude),
    ("codex", Source::Codex),
    ("gemini", Source::Gemini),
    ("opencode", Source::Opencode),
    ("goose", Source::Goose),
    ("goosed", Source::Goose),
    ("docker-agent", Source::DockerAgent),
    ("cagent", Source::DockerAgent),
    ("openclaw", Source::Openclaw),
    ("openclaw-gateway", Source::Openclaw),
    ("cursor-agent", Source::Cursor),
    ("crush", Source::Crush),
    ("amp", Source::Amp),
];

/// Scripts by where they lie, for those whose name says nothing.
const PACKAGES: [(&str, Source); 7] = [
    ("/@anthropic-ai/claude-code/", Source::Claude),
    ("/@openai/codex/", Source::Codex),
    ("/@google/gemini-cli/", Source::Gemini),
    ("/opencode-ai/", Source::Opencode),
    ("/node_modules/openclaw/", Source::Openclaw),
    ("/cursor-agent/", Source::Cursor),
    ("/@sourcegraph/amp/", Source::Amp),
];

/// What runs scripts, and is told by them.
const INTERPRETERS: [&str; 6] = ["node", "nodejs", "bun", "deno", "python", "python3"];

/// An agent's process, or what a registry says of one that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Live {
    pub source: Source,
    pub pid: u32,
    pub is_alive: bool,
    /// In the system's clock ticks since it booted: tells it from a later one with the same number.
    pub started_ticks: u64,
    pub started_at: Option<Timestamp>,
    /// What it was started as: a program, or one of our commands.
    pub command: String,
    pub arguments: Vec<String>,
    pub cwd: Option<String>,
    /// The session that its registry names.
    pub session: Option<SessionId>,
    /// What its registry says of it.
    pub status: Option<Status>,
}

/// What an agent says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Busy,
    Idle,
    NeedsInput,
}

/// Names the agents that this user runs, and what of their registries cannot be read. `system` is where the system
/// tells of its processes: `/proc`.
pub fn live(homes: &Homes, system: &Path, now: Timestamp) -> Result<(Vec<Live>, Vec<Problem>)> {
    let processes = processes(system)?;
    let booted_at = booted_at(system);
    let mut problems = Vec::new();
    let mut found = registry(homes, &processes, now).unwrap_or_else(|error| {
        let what = format!("{error}; what its agents are doing, and in which sessions, is guessed");
        problems.push(Problem { source: Source::Claude, what });
        Vec::new()
    });
    let known: HashSet<u32> = found.iter().filter(|live| live.is_alive).map(|live| live.pid).collect();
    let recognised: Vec<(&Process, Source, String)> = processes
        .values()
        .filter(|process| !known.contains(&process.pid))
        .filter_map(|process| recognise(process).map(|(source, command)| (process, source, command)))
        .collect();
    for (process, source, command) in &recognised {
        // What only starts the program proper is told by its child.
        let starts_it = |child: &Process, its: Source| its == *source && child.parent == process.pid;
        let is_starter = *source != Source::Native
            && (recognised.iter().any(|(child, its, _)| starts_it(child, *its))
                || found
                    .iter()
                    .any(|live| processes.get(&live.pid).is_some_and(|it| starts_it(it, live.source))));
        if !is_starter {
            found.push(Live {
                source: *source,
                pid: process.pid,
                is_alive: true,
                started_ticks: process.started_ticks,
                started_at: None,
                command: command.clone(),
                arguments: process.arguments.clone(),
                cwd: process.cwd.clone(),
                session: None,
                status: None,
            });
        }
    }
    for live in found.iter_mut().filter(|live| live.is_alive) {
        let ms = i64::try_from(live.started_ticks * 1_000 / TICKS_PER_SECOND).unwrap_or(i64::MAX);
        live.started_at = booted_at.map(|at| Timestamp::from_millis_clamped(at.saturating_add(ms)));
    }
    found.sort_by_key(|live| live.pid);
    Ok((found, problems))
}

/// Reads the registry of Claude Code: a file for each of its processes.
fn registry(homes: &Homes, processes: &HashMap<u32, Process>, now: Timestamp) -> Result<Vec<Live>> {
    let mut found = Vec::new();
    for item in files::entries(&homes.claude().join("sessions"))? {
        let Some(pid) = item.name.strip_suffix(".json").and_then(|pid| pid.parse::<u32>().ok()) else {
            continue;
        };
        let entry: Option<Value> =
            files::document(&item.path).ok().and_then(|bytes| json::from_slice(&bytes).ok());
        let Some(entry) = entry else { continue };
        let started_ticks = match entry.get("procStart") {
            Some(Value::String(text)) => text.parse().ok(),
            Some(value) => value.as_u64(),
            None => None,
        };
        let process = processes.get(&pid).filter(|process| match started_ticks {
            Some(ticks) => process.started_ticks == ticks,
            None => recognise(process).is_some_and(|(source, _)| source == Source::Claude),
        });
        let updated_at = ["statusUpdatedAt", "updatedAt", "startedAt"];
        let updated_at = updated_at.iter().filter_map(|name| entry.get(name).and_then(json::instant)).max();
        let changed_at = files::open(&item.path).ok().map(|(_, metadata)| files::modified(&metadata));
        let seen_at = updated_at.max(changed_at).unwrap_or_default();
        if process.is_none() && now.as_millis() - seen_at.as_millis() > DEAD_FOR_MS {
            continue;
        }
        found.push(Live {
            source: Source::Claude,
            pid,
            is_alive: process.is_some(),
            started_ticks: process.map(|it| it.started_ticks).or(started_ticks).unwrap_or_default(),
            started_at: entry.get("startedAt").and_then(json::instant),
            command: "claude".to_owned(),
            arguments: Vec::new(),
            cwd: json::field(&entry, "cwd")
                .map(str::to_owned)
                .or_else(|| process.and_then(|process| process.cwd.clone())),
            session: json::field(&entry, "sessionId").and_then(|id| id.parse().ok()),
            status: match json::field(&entry, "status") {
                Some("busy" | "shell") => Some(Status::Busy),
                Some("idle") => Some(Status::Idle),
                Some("waiting") => Some(Status::NeedsInput),
                _ => None,
            },
        });
    }
    Ok(found)
}

/// A process of this user.
struct Process {
    pid: u32,
    parent: u32,
    started_ticks: u64,
    /// What the system calls it: its first 15 bytes.
    name: String,
    arguments: Vec<String>,
    cwd: Option<String>,
}

fn processes(system: &Path) -> Result<HashMap<u32, Process>> {
    let io = |source| Error::Io { path: system.to_owned(), source };
    let own = fs::metadata(system.join("self")).map_err(io)?.uid();
    let mut found = HashMap::new();
    for entry in fs::read_dir(system).map_err(io)?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // One that ends while it is looked at is none.
        let Some(process) = process(&entry.path(), pid, own) else { continue };
        found.insert(pid, process);
    }
    Ok(found)
}

fn process(dir: &Path, pid: u32, own: u32) -> Option<Process> {
    if fs::metadata(dir).ok()?.uid() != own {
        return None;
    }
    let stat = String::from_utf8_lossy(&fs::read(dir.join("stat")).ok()?).into_owned();
    // The name in brackets may hold anything; behind it come the state, the parent, and so on.
    let (head, fields) = stat.rsplit_once(')')?;
    let name = head.split_once('(')?.1.to_owned();
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let (state, parent, started) = (*fields.first()?, fields.get(1)?, fields.get(19)?);
    if matches!(state, "Z" | "X") {
        return None;
    }
    let line = fs::read(dir.join("cmdline")).unwrap_or_default();
    let arguments =
        line.split(|byte| *byte == 0).map(|argument| String::from_utf8_lossy(argument).into_owned());
    let mut arguments: Vec<String> = arguments.collect();
    while arguments.last().is_some_and(String::is_empty) {
        arguments.pop();
    }
    let cwd = fs::read_link(dir.join("cwd")).ok().and_then(|cwd| cwd.into_os_string().into_string().ok());
    Some(Process {
        pid,
        parent: parent.parse().ok()?,
        started_ticks: started.parse().ok()?,
        name,
        arguments,
        cwd,
    })
}

/// Returns when the system booted, in milliseconds since 1970.
fn booted_at(system: &Path) -> Option<i64> {
    let stat = fs::read_to_string(system.join("stat")).ok()?;
    let seconds = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    seconds.trim().parse::<i64>().ok()?.checked_mul(1_000)
}

/// Tells whose agent a process is, and what it was started as.
fn recognise(process: &Process) -> Option<(Source, String)> {
    let first = process.arguments.first()?;
    // A program that writes its own title writes it as one argument.
    let first = if first.starts_with('/') { first } else { first.split(' ').next().unwrap_or(first) };
    let program = base(first);
    let by_name = |name: &str| {
        let found = PROGRAMS.iter().find(|(program, _)| *program == name);
        found.map(|(program, source)| (*source, (*program).to_owned()))
    };
    if program == "sess" {
        return our_command(&process.arguments).map(|command| (Source::Native, format!("sess {command}")));
    }
    if INTERPRETERS.contains(&program) {
        let script = script(&process.arguments[1..])?;
        let name = base(script);
        let plain = name.rsplit_once('.').map_or(name, |(plain, _)| plain);
        let by_place = || {
            let (_, source) = PACKAGES.iter().find(|(place, _)| script.contains(place))?;
            Some((*source, source.as_str().to_owned()))
        };
        return by_name(plain).or_else(by_place);
    }
    by_name(program).or_else(|| by_name(&process.name))
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Returns the script among an interpreter's arguments.
fn script(arguments: &[String]) -> Option<&str> {
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            // Each of these is followed by a value of its own.
            "-r" | "--require" | "--import" | "--loader" | "--experimental-loader" | "-W" | "-X" => {
                rest.next();
            }
            "run" => {}
            "-c" | "-e" | "-m" | "--eval" | "-p" => return None,
            option if option.starts_with('-') => {}
            script => return Some(script),
        }
    }
    None
}

/// Returns which of our commands that stay a process runs.
fn our_command(arguments: &[String]) -> Option<&str> {
    let mut rest = arguments.iter().skip(1);
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--config" | "--session" => {
                rest.next();
            }
            option if option.starts_with('-') => {}
            command => return ["run", "serve", "mcp"].into_iter().find(|ours| *ours == command),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_told_by_their_program_or_their_script() {
        let check = |line: &str, name: &str, found: &str| {
            let process = Process {
                pid: 1,
                parent: 0,
                started_ticks: 0,
                name: name.to_owned(),
                arguments: line.split(' ').map(str::to_owned).collect(),
                cwd: None,
            };
            let told = recognise(&process).map(|(source, command)| format!("{source} {command}"));
            assert_eq!(told.unwrap_or_default(), found, "{line}");
        };
        check("/usr/local/bin/codex resume x", "codex", "codex codex");
        check("node /usr/bin/gemini -y", "node", "gemini gemini");
        check(
            "/usr/bin/node --no-warnings /opt/lib/node_modules/@openai/codex/bin/codex.js",
            "node",
            "codex codex",
        );
        check(
            "node --require x.js /lib/node_modules/@google/gemini-cli/dist/index.js",
            "node",
            "gemini gemini",
        );
        check("node /home/dev/codex/build.js codex", "node", "");
        check("bash -c codex", "bash", "");
        check("vim codex", "vim", "");
        check("MainThread", "openclaw", "openclaw openclaw");
        check("sess mcp --toolsets work", "sess", "native sess mcp");
        check("sess --session run serve --listen x", "sess", "native sess serve");
        check("sess ps --watch", "sess", "");
        check("sess", "sess", "");
        check("python3 -m goose", "python3", "");
    }
}
