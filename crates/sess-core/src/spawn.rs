//! May this task be spawned? The checks have an order, and the first that fails answers.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::{
    AgentId, SessionKey,
    agent::{Agent, Team},
    rules::{MESSAGE_BYTES_MAX, SessionRules},
    session::{Channel, Cleanup, ThinkingLevel},
};

/// How many files a task comes with at most.
pub const FILES_MAX: usize = 50;
/// The largest file that a task comes with, in bytes.
pub const FILE_BYTES_MAX: usize = 1024 * 1024;
/// How many bytes all files of a task have together at most.
pub const FILES_BYTES_MAX: usize = 5 * 1024 * 1024;
/// The longest label.
pub const LABEL_CHARS_MAX: usize = 200;
/// The longest name that a file can have, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// What is asked for, as it came.
#[derive(Clone, Debug, Default)]
pub struct Asked<'a> {
    pub task: &'a str,
    pub label: Option<&'a str>,
    pub agent: Option<&'a str>,
    pub model: Option<&'a str>,
    pub thinking: Option<&'a str>,
    pub timeout_seconds: Option<u64>,
    pub is_thread: bool,
    pub mode: Option<&'a str>,
    pub cleanup: Option<&'a str>,
    pub sandbox: Option<&'a str>,
    pub files: Vec<AskedFile<'a>>,
}

#[derive(Clone, Debug)]
pub struct AskedFile<'a> {
    pub name: &'a str,
    pub content: &'a str,
    pub encoding: Option<&'a str>,
}

/// Who asks, and what there is.
#[derive(Clone, Debug)]
pub struct Spawner<'a> {
    /// The key of the asking session; `None` is the owner at a terminal, who may spawn any agent.
    pub key: Option<&'a SessionKey>,
    pub channel: Channel,
    pub is_sandboxed: bool,
    /// How many of its children have a run that has not ended.
    pub live_children: u32,
    pub team: Option<&'a Team>,
    pub rules: &'a SessionRules,
}

/// Why a task was not spawned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is not allowed.
    #[error("{0}")]
    Forbidden(String),
    /// It makes no sense as it was asked.
    #[error("{0}")]
    Invalid(String),
}

/// A task that may be spawned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approved {
    pub agent: AgentId,
    pub label: Option<String>,
    pub model: Option<String>,
    pub thinking: Option<ThinkingLevel>,
    pub timeout_seconds: Option<u64>,
    pub cleanup: Cleanup,
    pub files: Vec<File>,
}

/// A file that a task comes with, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub name: String,
    pub content: Vec<u8>,
}

/// Whom a session may spawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// The agent that asks, which may always spawn itself.
    pub requester: AgentId,
    pub is_any: bool,
    /// The others that the configuration names, sorted.
    pub names: Vec<String>,
}

impl Allowed {
    fn admits(&self, agent: &AgentId) -> bool {
        self.is_any || *agent == self.requester || self.names.iter().any(|name| name == agent.as_str())
    }
}

/// Returns whom this session may spawn.
pub fn allowed(spawner: &Spawner<'_>) -> Allowed {
    let Some(key) = spawner.key else {
        let requester = spawner.team.map_or_else(AgentId::main, |team| team.entry().name.clone());
        return Allowed { requester, is_any: true, names: Vec::new() };
    };
    let requester = key.agent().unwrap_or_else(AgentId::main);
    let own = spawner.team.and_then(|team| team.agent(&requester)).map(|agent| &agent.allow_agents);
    let listed = own.unwrap_or(&spawner.rules.default_allow_agents);
    let mut names: Vec<String> = listed.iter().map(|name| name.trim().to_ascii_lowercase()).collect();
    let is_any = names.iter().any(|name| name == "*");
    names.retain(|name| !name.is_empty() && name != "*");
    names.sort();
    names.dedup();
    Allowed { requester, is_any, names }
}

/// Refuses a session that has as many live children as it may have.
pub fn check_children(live: u32, most: u32) -> Result<(), Refusal> {
    if live < most {
        return Ok(());
    }
    let reached = "sessions_spawn has reached max active children for this session";
    Err(Refusal::Forbidden(format!("{reached} ({live}/{most})")))
}

/// Says what is spawned, or why it is not.
pub fn check(asked: &Asked<'_>, spawner: &Spawner<'_>) -> Result<Approved, Refusal> {
    check_task(asked)?;
    let agent = asked.agent.map(parse_agent).transpose()?;
    check_mode(asked)?;
    if spawner.key.is_some_and(SessionKey::is_sub_agent) {
        return forbidden("sessions_spawn is not allowed from a sub-agent session");
    }
    if spawner.key.is_some() {
        check_children(spawner.live_children, spawner.rules.limits.children)?;
    }
    let target = check_agent(agent, spawner)?;
    check_sandbox(asked, target, spawner)?;
    let thinking = asked.thinking.map(parse_thinking).transpose()?;
    let model = asked.model.map(|name| known_model(name, spawner.team)).transpose()?;
    let cleanup = match asked.cleanup {
        None | Some("keep") => Cleanup::Keep,
        Some("delete") => Cleanup::Delete,
        Some(other) => return invalid(format!("unknown cleanup \"{other}\": one of keep, delete")),
    };
    // No channel that this program posts in has threads yet.
    if asked.is_thread {
        let channel = spawner.channel;
        return invalid(format!(
            "thread=true is unavailable: channel \"{channel}\" does not support threads"
        ));
    }
    let files = check_files(&asked.files)?;
    Ok(Approved {
        agent: target.name.clone(),
        label: asked.label.map(str::trim).filter(|label| !label.is_empty()).map(str::to_owned),
        model,
        thinking,
        timeout_seconds: match asked.timeout_seconds {
            Some(seconds) => Some(seconds),
            None => spawner.rules.sub_agent_timeout_seconds,
        }
        .filter(|seconds| *seconds > 0),
        cleanup,
        files,
    })
}

fn forbidden<T>(reason: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Forbidden(reason.into()))
}

fn invalid<T>(reason: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Invalid(reason.into()))
}

fn check_task(asked: &Asked<'_>) -> Result<(), Refusal> {
    if asked.task.trim().is_empty() {
        return invalid("the task is empty");
    }
    if asked.task.len() > MESSAGE_BYTES_MAX {
        return invalid(format!("the task has {} bytes, of at most {MESSAGE_BYTES_MAX}", asked.task.len()));
    }
    let label_chars = asked.label.map_or(0, |label| label.chars().count());
    if label_chars > LABEL_CHARS_MAX {
        return invalid(format!("the label has {label_chars} characters, of at most {LABEL_CHARS_MAX}"));
    }
    Ok(())
}

fn parse_agent(given: &str) -> Result<AgentId, Refusal> {
    given.trim().parse().map_err(|_| {
        Refusal::Invalid(format!(
            "Invalid agentId \"{given}\". Agent IDs must match [a-z0-9][a-z0-9_-]{{0,63}}. Use agents_list to \
             discover valid targets."
        ))
    })
}

fn check_mode(asked: &Asked<'_>) -> Result<(), Refusal> {
    match asked.mode {
        None | Some("run") => Ok(()),
        Some("session") if asked.is_thread => Ok(()),
        Some("session") => {
            invalid("mode=\"session\" requires thread=true so the subagent can stay bound to a thread.")
        }
        Some(other) => invalid(format!("unknown mode \"{other}\": one of run, session")),
    }
}

fn check_agent<'a>(asked: Option<AgentId>, spawner: &Spawner<'a>) -> Result<&'a Agent, Refusal> {
    let allowed = allowed(spawner);
    let agent = asked.unwrap_or_else(|| allowed.requester.clone());
    if !allowed.admits(&agent) {
        let names = if allowed.names.is_empty() { "none".to_owned() } else { allowed.names.join(", ") };
        return forbidden(format!("agentId is not allowed for sessions_spawn (allowed: {names})"));
    }
    let configured = spawner.team.and_then(|team| team.agent(&agent));
    configured.ok_or_else(|| Refusal::Invalid(format!("unknown agent \"{agent}\"")))
}

fn check_sandbox(asked: &Asked<'_>, target: &Agent, spawner: &Spawner<'_>) -> Result<(), Refusal> {
    if spawner.is_sandboxed && target.sandbox.is_none() {
        return forbidden("Sandboxed sessions cannot spawn unsandboxed subagents.");
    }
    match asked.sandbox {
        None | Some("inherit") => Ok(()),
        Some("require") if target.sandbox.is_some() => Ok(()),
        Some("require") => forbidden("sessions_spawn sandbox=\"require\" needs a sandboxed target runtime."),
        Some(other) => invalid(format!("unknown sandbox \"{other}\": one of inherit, require")),
    }
}

fn parse_thinking(given: &str) -> Result<ThinkingLevel, Refusal> {
    let level = ThinkingLevel::ALL.into_iter().find(|level| level.as_str() == given.trim());
    level.ok_or_else(|| {
        Refusal::Invalid(format!(
            "unknown thinking level \"{given}\": one of off, minimal, low, medium, high"
        ))
    })
}

fn known_model(given: &str, team: Option<&Team>) -> Result<String, Refusal> {
    let models = team.map_or(&[][..], Team::models);
    let known = models.iter().find(|model| model.name == given.trim());
    known.map(|model| model.name.clone()).ok_or_else(|| {
        let names: Vec<&str> = models.iter().map(|model| model.name.as_str()).collect();
        Refusal::Invalid(format!("unknown model \"{given}\": one of {}", names.join(", ")))
    })
}

/// All of them, decoded, or why none.
fn check_files(asked: &[AskedFile<'_>]) -> Result<Vec<File>, Refusal> {
    if asked.len() > FILES_MAX {
        return invalid(format!("attachments_file_count_exceeded (maxFiles={FILES_MAX})"));
    }
    let mut files: Vec<File> = Vec::new();
    let mut bytes_total = 0;
    for file in asked {
        let name = file.name;
        let is_plain = !matches!(name, "" | "." | ".." | ".manifest.json")
            && name.len() <= NAME_BYTES_MAX
            && !name.chars().any(|c| matches!(c, '/' | '\\') || c.is_control());
        if !is_plain {
            return invalid(format!("attachments_invalid_name ({name})"));
        }
        if files.iter().any(|other| other.name == name) {
            return invalid(format!("attachments_duplicate_name ({name})"));
        }
        let not_base64 = || Refusal::Invalid(format!("attachments_invalid_base64 ({name})"));
        // The size is known before anything is decoded.
        let bytes = match file.encoding {
            None | Some("utf8") => file.content.len(),
            Some("base64") => base64_len(file.content).ok_or_else(not_base64)?,
            Some(other) => {
                return invalid(format!(
                    "attachments_invalid_encoding ({name}: \"{other}\", one of utf8, base64)"
                ));
            }
        };
        if bytes > FILE_BYTES_MAX {
            return invalid(format!(
                "attachments_file_bytes_exceeded (name={name} bytes={bytes} maxFileBytes={FILE_BYTES_MAX})"
            ));
        }
        bytes_total += bytes;
        if bytes_total > FILES_BYTES_MAX {
            return invalid(format!(
                "attachments_total_bytes_exceeded (totalBytes={bytes_total} maxTotalBytes={FILES_BYTES_MAX})"
            ));
        }
        let content = match file.encoding {
            Some("base64") => STANDARD.decode(file.content).map_err(|_| not_base64())?,
            _ => file.content.as_bytes().to_vec(),
        };
        files.push(File { name: name.to_owned(), content });
    }
    Ok(files)
}

/// Returns how many bytes a base 64 text of whole, padded groups stands for.
fn base64_len(text: &str) -> Option<usize> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let padding = text.bytes().rev().take_while(|byte| *byte == b'=').count();
    (padding <= 2).then(|| text.len() / 4 * 3 - padding)
}

#[cfg(test)]
mod tests;
