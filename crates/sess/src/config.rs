//! Configuration: read once, here, and handed down as values.
//!
//! The files are laid over each other as trees (`yaml`), read into what can be written (`de`, `file`), and
//! made into a team (`team`), rules (`rules`), the gateway's settings
//! (`gateway`) and those of work sessions (`work`), again whenever one changed (`source`). What a repository brings counts only when the person has looked at it (`trust`).

mod de;
pub mod file;
pub mod gateway;
mod problem;
mod rules;
mod source;
mod team;
pub mod trust;
mod work;
mod yaml;

#[cfg(test)]
mod tests;

use std::{
    fs::File,
    io::Read as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, anyhow, bail};
use rustix::fs::OFlags;
use sess_app::{ConfigSource, Configured, Settings};
use sess_core::{Timestamp, agent::Team, policy::ContextVisibility, rules::SessionRules};
use sess_readers::Homes;

use self::{
    problem::{Origin, Problem, Spot},
    source::Source,
    trust::Seen,
};
pub use self::{
    problem::{Problems, nearest},
    yaml::{Document, Node, Value},
};

/// How many days an unused plan file stays, when nobody says.
pub const PLANS_KEEP_DAYS: u32 = 30;

/// The file of a repository. It is ignored until the person trusts it.
pub const REPOSITORY_FILE: &str = "sess.yaml";

/// What a repository can never set, trusted or not.
const PERSONAL_KEYS: [&str; 3] = ["permissions", "gateway", "store"];

/// The variables that decide where everything is: one that cannot be read must not be passed over.
const PLACES: [&str; 3] = ["HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"];

/// How the value of a variable is read.
enum Form {
    Text,
    /// A whole number, and of what.
    Number(&'static str),
    Switch,
    /// Words with commas between them.
    List,
    Words(&'static [&'static str]),
}

/// The variables that win over files: the group of settings and the key that each sets.
const VARIABLES: [(&str, &str, &str, Form); 45] = [
    ("SESS_PLANS_DIR", "plans", "dir", Form::Text),
    ("SESS_PLANS_KEEP_DAYS", "plans", "keep_days", Form::Number(" of days")),
    ("SESS_PLANS_ON_APPROVE", "plans", "on_approve", Form::Text),
    ("SESS_TOOLS_CONTEXT_VISIBILITY", "tools.context", "visibility", Form::Words(&["agent", "all"])),
    (
        "SESS_TOOLS_SESSIONS_VISIBILITY",
        "tools.sessions",
        "visibility",
        Form::Words(&["self", "tree", "agent", "all"]),
    ),
    ("SESS_TOOLS_AGENT_TO_AGENT_ENABLED", "tools.agentToAgent", "enabled", Form::Switch),
    ("SESS_TOOLS_AGENT_TO_AGENT_ALLOW", "tools.agentToAgent", "allow", Form::List),
    ("SESS_TOOLS_SUBAGENTS_TOOLS_ALLOW", "tools.subagents.tools", "allow", Form::List),
    ("SESS_TOOLS_SUBAGENTS_TOOLS_DENY", "tools.subagents.tools", "deny", Form::List),
    ("SESS_SESSION_SCOPE", "session", "scope", Form::Words(&["per-agent", "per-sender", "global"])),
    ("SESS_SESSION_SEND_POLICY_DEFAULT", "session.sendPolicy", "default", Form::Words(&["allow", "deny"])),
    ("SESS_SESSION_MAX_QUEUE", "session", "maxQueue", Form::Number("")),
    (
        "SESS_SESSION_AGENT_TO_AGENT_MAX_PING_PONG_TURNS",
        "session.agentToAgent",
        "maxPingPongTurns",
        Form::Number(""),
    ),
    ("SESS_SESSION_AGENT_TO_AGENT_MAX_HOPS", "session.agentToAgent", "maxHops", Form::Number("")),
    ("SESS_SESSION_AGENT_TO_AGENT_MAX_RUNS", "session.agentToAgent", "maxRuns", Form::Number("")),
    ("SESS_AGENTS_DEFAULTS_MAX_CONCURRENT", "agents.defaults", "maxConcurrent", Form::Number("")),
    ("SESS_AGENTS_DEFAULTS_SUBAGENTS_ALLOW_AGENTS", "agents.defaults.subagents", "allowAgents", Form::List),
    (
        "SESS_AGENTS_DEFAULTS_SUBAGENTS_MAX_CHILDREN",
        "agents.defaults.subagents",
        "maxChildren",
        Form::Number(""),
    ),
    ("SESS_AGENTS_DEFAULTS_SUBAGENTS_MAX_DEPTH", "agents.defaults.subagents", "maxDepth", Form::Number("")),
    (
        "SESS_AGENTS_DEFAULTS_SUBAGENTS_RUN_TIMEOUT_SECONDS",
        "agents.defaults.subagents",
        "runTimeoutSeconds",
        Form::Number(" of seconds"),
    ),
    (
        "SESS_AGENTS_DEFAULTS_SUBAGENTS_ARCHIVE_AFTER_MINUTES",
        "agents.defaults.subagents",
        "archiveAfterMinutes",
        Form::Number(" of minutes"),
    ),
    ("SESS_GATEWAY_LISTEN", "gateway", "listen", Form::Text),
    ("SESS_GATEWAY_NAMES", "gateway", "names", Form::List),
    ("SESS_GATEWAY_TLS_CERT", "gateway.tls", "cert", Form::Text),
    ("SESS_GATEWAY_TLS_KEY", "gateway.tls", "key", Form::Text),
    ("SESS_GATEWAY_LIMITS_BODY_BYTES", "gateway.limits", "bodyBytes", Form::Number(" of bytes")),
    ("SESS_GATEWAY_LIMITS_UPLOAD_BYTES", "gateway.limits", "uploadBytes", Form::Number(" of bytes")),
    ("SESS_GATEWAY_LIMITS_FRAME_BYTES", "gateway.limits", "frameBytes", Form::Number(" of bytes")),
    ("SESS_GATEWAY_LIMITS_CONNECT_SECONDS", "gateway.limits", "connectSeconds", Form::Number(" of seconds")),
    (
        "SESS_GATEWAY_LIMITS_BEFORE_CONNECT_BYTES",
        "gateway.limits",
        "beforeConnectBytes",
        Form::Number(" of bytes"),
    ),
    ("SESS_GATEWAY_LIMITS_CONNECTIONS", "gateway.limits", "connections", Form::Number("")),
    ("SESS_GATEWAY_LIMITS_SUBSCRIPTIONS", "gateway.limits", "subscriptions", Form::Number("")),
    ("SESS_GATEWAY_LIMITS_IN_FLIGHT", "gateway.limits", "inFlight", Form::Number("")),
    ("SESS_GATEWAY_LIMITS_FAILED_LOGINS", "gateway.limits", "failedLogins", Form::Number("")),
    ("SESS_GATEWAY_LIMITS_HEADER_SECONDS", "gateway.limits", "headerSeconds", Form::Number(" of seconds")),
    ("SESS_GATEWAY_LIMITS_BODY_SECONDS", "gateway.limits", "bodySeconds", Form::Number(" of seconds")),
    ("SESS_GATEWAY_LIMITS_TAKE_SECONDS", "gateway.limits", "takeSeconds", Form::Number(" of seconds")),
    ("SESS_GATEWAY_LIMITS_DRAIN_SECONDS", "gateway.limits", "drainSeconds", Form::Number(" of seconds")),
    (
        "SESS_GATEWAY_LIMITS_ATTACHMENTS_BYTES",
        "gateway.limits",
        "attachmentsBytes",
        Form::Number(" of bytes"),
    ),
    (
        "SESS_GATEWAY_LIMITS_ATTACHMENT_MINUTES",
        "gateway.limits",
        "attachmentMinutes",
        Form::Number(" of minutes"),
    ),
    (
        "SESS_GATEWAY_LIMITS_KEEPALIVE_SECONDS",
        "gateway.limits",
        "keepaliveSeconds",
        Form::Number(" of seconds"),
    ),
    ("SESS_WORK_LEASE_MINUTES", "work", "leaseMinutes", Form::Number(" of minutes")),
    ("SESS_WORK_LAND", "work", "land", Form::Words(&["push", "pr", "none"])),
    ("SESS_WORK_WORKSPACES", "work", "workspaces", Form::Text),
    ("SESS_WORK_KB_STATE", "work.kb", "state", Form::Words(&["planned", "drafting"])),
];

/// What this process was started with.
pub struct Config {
    pub settings: Settings,
    /// The environment, in which hosts say who is calling.
    pub env: Vec<(String, String)>,
    /// The configured agents, if there are any.
    pub team: Option<Team>,
    /// What the person should know about how the configuration was found.
    pub notices: Vec<String>,
    /// What was read, with the spot of everything.
    pub document: Document,
    /// Where configuration was looked for.
    pub files: Vec<ConfigFile>,
    /// The file that counts alone, when one was named.
    pub named: Option<PathBuf>,
    pub gateway: gateway::Gateway,
}

/// A place where configuration was looked for.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ConfigFile {
    pub path: PathBuf,
    /// `used`, `absent`, `ignored` or `not valid`.
    pub state: &'static str,
}

/// Which files count.
#[derive(Clone, Copy, Debug)]
pub enum Choice<'a> {
    /// `--config`, else `SESS_CONFIG`, else the person's own and then the repository's.
    Usual(Option<&'a Path>),
    /// The person's own and this file of a repository, as if it were trusted.
    Trying(&'a Path),
}

impl Config {
    /// Reads the environment and the configuration; `SESS_*` variables win over files.
    ///
    /// What is wrong with the latter is returned beside what holds without it, for commands that help with a
    /// broken one.
    #[expect(clippy::disallowed_methods, reason = "the one place where the environment is read")]
    pub fn load(choice: Choice<'_>) -> anyhow::Result<(Self, Option<anyhow::Error>)> {
        let mut env: Vec<(String, String)> = Vec::new();
        for (name, value) in std::env::vars_os() {
            let Ok(name) = name.into_string() else { continue };
            match value.into_string() {
                Ok(value) => env.push((name, value)),
                Err(_) if name.starts_with("SESS_") || PLACES.contains(&name.as_str()) => {
                    bail!("the environment variable {name} is not UTF-8 text")
                }
                Err(_) => {}
            }
        }
        let cwd = std::env::current_dir().ok();
        let places = Places::new(&env, cwd)?;
        let named = choice.named(&env);
        // Looked at before it is read: what changes meanwhile is seen as changed.
        let looked = source::Looked::at(source::watched(&places, named.as_deref()));
        let mut reading = Reading::new(&env, &places);
        let read = match reading.files(choice) {
            Ok(()) => reading.meaning(),
            Err(error) => Err(error),
        };
        let (meaning, problem) = match read {
            Ok(meaning) => (meaning, None),
            Err(error) => (Meaning::default(), Some(error)),
        };
        let Meaning { file, team, rules, gateway, work } = meaning;
        let mut settings = reading.settings(&file);
        let Reading { document, files, notices, .. } = reading;
        let configured = match &problem {
            None => Ok(Arc::new(Configured { team: team.clone(), rules, work })),
            Some(error) => Err(source::told(error)),
        };
        let source = Source::new(env.clone(), places, named.clone(), looked, configured);
        settings.configured = ConfigSource::new(move || source.current());
        Ok((Self { settings, env, team, notices, document, files, named, gateway }, problem))
    }
}

/// What the files and variables come to.
#[derive(Default)]
struct Meaning {
    file: file::File,
    team: Option<Team>,
    rules: SessionRules,
    gateway: gateway::Gateway,
    work: sess_work::Settings,
}

impl Choice<'_> {
    /// Returns the file that counts alone.
    fn named(self, env: &[(String, String)]) -> Option<PathBuf> {
        match self {
            Self::Usual(named) => {
                named.map(Path::to_owned).or_else(|| get(env, "SESS_CONFIG").map(PathBuf::from))
            }
            Self::Trying(_) => None,
        }
    }
}

/// The directories that the environment names.
struct Places {
    user_home: Option<PathBuf>,
    home: Option<PathBuf>,
    config: Option<PathBuf>,
    cwd: Option<PathBuf>,
}

impl Places {
    /// Returns where the repository's own file would be.
    fn repository_file(&self) -> Option<PathBuf> {
        Some(self.cwd.as_ref()?.join(REPOSITORY_FILE))
    }

    /// Returns the file of the main checkout, with what it holds, when this is a worktree of it.
    fn main_file(&self) -> Option<(PathBuf, Vec<u8>)> {
        let path = trust::main_checkout(self.cwd.as_ref()?)?.join(REPOSITORY_FILE);
        let bytes = read_file(&path).ok()?;
        Some((path, bytes))
    }

    fn new(env: &[(String, String)], cwd: Option<PathBuf>) -> anyhow::Result<Self> {
        let user_home = get(env, "HOME").map(PathBuf::from);
        let below_home = |rest: &str| user_home.as_ref().map(|home| home.join(rest));
        let home = match (get(env, "SESS_HOME"), get(env, "XDG_DATA_HOME")) {
            (Some(home), _) => Some(PathBuf::from(home)),
            (None, Some(data)) => Some(Path::new(data).join("intersession")),
            (None, None) => below_home(".local/share/intersession"),
        };
        let home = match home {
            Some(home) => {
                Some(std::path::absolute(&home).with_context(|| format!("cannot use {}", home.display()))?)
            }
            None => None,
        };
        let config = get(env, "XDG_CONFIG_HOME").map(PathBuf::from).or_else(|| below_home(".config"));
        let config = config.map(|dir| dir.join("intersession/config.yaml"));
        Ok(Self { user_home, home, config, cwd })
    }

    /// Returns where other agents keep their sessions.
    fn homes(&self, env: &[(String, String)]) -> Option<Homes> {
        let variables = env.iter().map(|(name, value)| (name.clone(), value.into()));
        Some(Homes::new(self.user_home.clone()?, variables, self.cwd.clone()))
    }
}

/// Returns a variable that is set to something.
fn get<'a>(env: &'a [(String, String)], name: &str) -> Option<&'a str> {
    env.iter().find(|(key, value)| key == name && !value.is_empty()).map(|(_, value)| value.as_str())
}

struct Reading<'a> {
    env: &'a [(String, String)],
    places: &'a Places,
    document: Document,
    files: Vec<ConfigFile>,
    notices: Vec<String>,
    found: Vec<Problem>,
}

impl<'a> Reading<'a> {
    fn new(env: &'a [(String, String)], places: &'a Places) -> Self {
        let document = Document::default();
        Self { env, places, document, files: Vec::new(), notices: Vec::new(), found: Vec::new() }
    }

    fn files(&mut self, choice: Choice<'_>) -> anyhow::Result<()> {
        let tried = match choice {
            Choice::Trying(path) => Some(path),
            Choice::Usual(_) => {
                if let Some(path) = choice.named(self.env) {
                    let bytes = read_file(&path)?;
                    self.lay(&path, &path, &bytes, Owner::Person);
                    return Ok(());
                }
                None
            }
        };
        if let Some(path) = &self.places.config {
            if path.exists() {
                let bytes = read_file(path)?;
                self.lay(path, path, &bytes, Owner::Person);
            } else {
                self.files.push(ConfigFile { path: path.clone(), state: "absent" });
            }
        }
        match tried {
            Some(path) => {
                let bytes = read_file(path)?;
                self.lay(path, path, &bytes, Owner::Repository);
            }
            None => self.repository_file(),
        }
        Ok(())
    }

    /// Reads `./sess.yaml`, if the person trusts it; in a worktree, else the one of the main checkout. Whatever is odd
    /// about one that is not trusted is only worth a notice: it came with a repository.
    fn repository_file(&mut self) {
        let Some(path) = self.places.repository_file() else { return };
        if let Some((main, bytes)) = self.places.main_file()
            && let Some(home) = &self.places.home
            && !is_trusted(home, &path, None)
            && is_trusted(home, &main, Some(&bytes))
        {
            self.lay(&main, &main, &bytes, Owner::Repository);
            return;
        }
        if path.symlink_metadata().is_err() {
            self.files.push(ConfigFile { path, state: "absent" });
            return;
        }
        // Read once: what is compared is what is used.
        let looked = read_file(&path).and_then(|bytes| {
            let Some(home) = &self.places.home else { return Ok((bytes, Seen::Unknown)) };
            let seen = trust::seen(home, &path, &bytes)?;
            Ok((bytes, seen))
        });
        let reason = match looked {
            Ok((bytes, Seen::Trusted)) => {
                self.lay(Path::new(REPOSITORY_FILE), &path, &bytes, Owner::Repository);
                return;
            }
            Ok((_, Seen::Unknown)) => "`sess config trust` makes it count, once you have read it".to_owned(),
            Ok((_, Seen::Changed)) => {
                "it has changed since you trusted it; `sess config trust` makes it count again".to_owned()
            }
            Err(error) => format!("{error:#}"),
        };
        self.notices.push(format!("./{REPOSITORY_FILE} is ignored: {reason}"));
        self.files.push(ConfigFile { path, state: "ignored" });
    }

    /// Lays a file over what was read before.
    fn lay(&mut self, shown: &Path, path: &Path, bytes: &[u8], owner: Owner) {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let dir = absolute.parent().map(Path::to_owned).unwrap_or_default();
        let origin = self.document.origins.len();
        self.document.origins.push(Origin { name: shown.display().to_string(), dir });
        let found = self.found.len();
        match yaml::parse(bytes, origin) {
            Err(problem) => self.found.push(problem),
            Ok(node) => {
                if !matches!(node.value, Value::Map(_) | Value::Null) {
                    let text = "expected a map of keys such as agents, models and plans".to_owned();
                    self.found.push(Problem { at: node.at, text });
                }
                let node = match owner {
                    Owner::Person => node,
                    Owner::Repository => self.without_personal(node),
                };
                self.document.lay_over(node);
            }
        }
        let state = if self.found.len() == found { "used" } else { "not valid" };
        self.files.push(ConfigFile { path: absolute, state });
    }

    /// Takes out of a repository's file what only the person may set, and notes it.
    fn without_personal(&mut self, mut node: Node) -> Node {
        let Value::Map(entries) = &mut node.value else { return node };
        let found = &mut self.found;
        let mut refused = |at: Spot, what: &str| {
            let text = format!("{what} cannot be set by a repository: set it in your own configuration");
            found.push(Problem { at, text });
        };
        entries.retain_mut(|entry| match (entry.key.as_str(), &mut entry.node.value) {
            (key, _) if PERSONAL_KEYS.contains(&key) => {
                refused(entry.at, key);
                false
            }
            ("session", Value::Map(settings)) => {
                settings.retain(|setting| {
                    let is_personal = setting.key == "sendPolicy";
                    if is_personal {
                        refused(setting.at, "session.sendPolicy");
                    }
                    !is_personal
                });
                true
            }
            ("tools", Value::Map(groups)) => {
                groups.retain(|group| {
                    let is_personal = group.key == "agentToAgent";
                    if is_personal {
                        refused(group.at, "tools.agentToAgent");
                    }
                    !is_personal
                });
                for group in groups {
                    let Value::Map(settings) = &mut group.node.value else { continue };
                    settings.retain(|setting| {
                        let is_personal = setting.key == "visibility";
                        if is_personal {
                            refused(setting.at, &format!("tools.{}.visibility", group.key));
                        }
                        !is_personal
                    });
                }
                true
            }
            ("models", Value::Map(models)) => {
                for model in models {
                    for setting in model.node.entries().iter().filter(|setting| setting.key == "base_url") {
                        // Whoever chooses the address gets the key.
                        refused(setting.at, &format!("models.{}.base_url", model.key));
                    }
                }
                true
            }
            _ => true,
        });
        node
    }

    /// Lays the `SESS_*` variables over the files, and reads what it all means.
    fn meaning(&mut self) -> anyhow::Result<Meaning> {
        self.variables()?;
        if !self.found.is_empty() {
            return Err(self.problems());
        }
        let read: Result<file::File, _> = de::read(&self.document);
        let read = read.and_then(|file| {
            let user_home = self.places.user_home.as_deref();
            let team = team::build(&self.document, &file, user_home);
            let gateway = gateway::build(&self.document, &file, user_home);
            let work = work::build(&self.document, &file, user_home);
            match (team, rules::build(&self.document, &file), gateway, work) {
                (Ok(team), Ok(rules), Ok(gateway), Ok(work)) => {
                    Ok(Meaning { file, team, rules, gateway, work })
                }
                (team, rules, gateway, work) => {
                    let found = [team.err(), rules.err(), gateway.err(), work.err()];
                    Err(found.into_iter().flatten().flatten().collect())
                }
            }
        });
        read.map_err(|found| {
            self.found = found;
            self.problems()
        })
    }

    fn problems(&mut self) -> anyhow::Error {
        let found = std::mem::take(&mut self.found);
        let origins = &self.document.origins;
        for file in &mut self.files {
            let is_bad = |problem: &Problem| {
                let name = origins.get(problem.at.origin).map(|origin| origin.name.as_str());
                name.is_some_and(|name| std::path::absolute(name).is_ok_and(|path| path == file.path))
            };
            if found.iter().any(is_bad) {
                file.state = "not valid";
            }
        }
        Problems { origins: origins.clone(), found }.into()
    }

    fn variables(&mut self) -> anyhow::Result<()> {
        for (variable, group, key, form) in VARIABLES {
            let Some(text) = get(self.env, variable) else { continue };
            let origin = self.document.origins.len();
            let spot = Spot { origin, line: 0, column: 0 };
            let value = match form {
                Form::Text => Value::Text(text.to_owned()),
                Form::Number(what) => {
                    let number: Result<u64, _> = text.parse();
                    let expected = || anyhow!("{variable} is \"{text}\": expected a number{what}");
                    Value::Int(number.map_err(|_| expected())?.into())
                }
                Form::Switch => match text {
                    "true" | "1" => Value::Bool(true),
                    "false" | "0" => Value::Bool(false),
                    _ => bail!("{variable} is \"{text}\": expected true or false"),
                },
                Form::List => {
                    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
                    let items = items.map(|item| Node { at: spot, value: Value::Text(item.to_owned()) });
                    Value::List(items.collect())
                }
                Form::Words(words) if words.contains(&text) => Value::Text(text.to_owned()),
                Form::Words(words) => {
                    bail!("{variable} is \"{text}\": expected {}", problem::one_of(words))
                }
            };
            let dir = self.places.cwd.clone().unwrap_or_default();
            self.document.origins.push(Origin { name: variable.to_owned(), dir });
            self.document.set(group, key, spot, value);
        }
        Ok(())
    }

    fn settings(&self, file: &file::File) -> Settings {
        let places = self.places;
        let repo = places.cwd.as_deref().and_then(repository);
        let text = |path: &Path| path.to_string_lossy().into_owned();
        Settings {
            home: places.home.clone(),
            plans_dir: file.plans.dir.as_ref().map(|dir| {
                let dir = PathBuf::from(dir);
                let expanded = match (dir.strip_prefix("~"), &places.user_home) {
                    (Ok(rest), Some(home)) => home.join(rest),
                    _ => dir,
                };
                std::path::absolute(&expanded).unwrap_or(expanded)
            }),
            plans_keep_days: file.plans.keep_days.unwrap_or(PLANS_KEEP_DAYS),
            context_visibility: match file.tools.context.visibility {
                None | Some(file::Visibility::All) => ContextVisibility::All,
                Some(file::Visibility::Agent) => ContextVisibility::Agent,
            },
            configured: ConfigSource::fixed(Configured::default()),
            cwd: places.cwd.as_deref().map(text),
            repo: repo.as_deref().map(text),
            homes: places.homes(self.env),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            now,
            random,
        }
    }
}

/// Whose word a file is.
#[derive(Clone, Copy)]
enum Owner {
    /// The person wrote it, or named it.
    Person,
    Repository,
}

/// Whether the person trusts a file; without `bytes`, as it is now.
fn is_trusted(home: &Path, path: &Path, bytes: Option<&[u8]>) -> bool {
    let read = bytes.map_or_else(|| read_file(path), |bytes| Ok(bytes.to_vec()));
    read.and_then(|bytes| trust::seen(home, path, &bytes)).is_ok_and(|seen| seen == Seen::Trusted)
}

/// Reads a configuration file; `path` stands in what is said about it.
pub fn read_file(path: &Path) -> anyhow::Result<Vec<u8>> {
    let cannot = || format!("cannot read the configuration {}", path.display());
    // A pipe would be waited for, and a device has no end.
    let no_wait = OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(no_wait).open(path).with_context(cannot)?;
    if !file.metadata().with_context(cannot)?.is_file() {
        bail!("{}: it is not a regular file", cannot());
    }
    let mut bytes = Vec::new();
    // One byte more tells a file that is too large from one that just fits.
    file.take(yaml::FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).with_context(cannot)?;
    Ok(bytes)
}

/// Returns the nearest directory above that is a git repository.
fn repository(dir: &Path) -> Option<PathBuf> {
    dir.ancestors().find(|dir| dir.join(".git").exists()).map(Path::to_owned)
}

#[expect(clippy::disallowed_methods, reason = "the one clock; everything below gets the time as an argument")]
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis_clamped(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

pub fn random() -> u128 {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system has random bytes");
    u128::from_ne_bytes(bytes)
}
