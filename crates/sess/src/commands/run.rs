//! `sess run`: agents of the configuration, in the terminal or for a program.

pub mod exec;
mod terminal;

use std::{
    io::{IsTerminal as _, Read as _},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use serde_json::{Map, Value};
use sess_agent::{
    confine::{self, Abilities, Confinement},
    files::Files,
    mcp::{self, McpTools},
    model,
    shell::Shell,
    tool::Toolbox,
};
use sess_app::{
    App, Caller,
    agents::{Agents, AgentsSetup, LEASE, Person, WorldTools},
};
use sess_core::{
    SessionId,
    agent::{McpServer, Team, ToolsetKind},
    identity::SESS_SESSION,
    permission::Trust,
    sandbox::Sandbox,
    session::{Sending, Session},
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use self::terminal::Terminal;
pub use self::terminal::elapsed;
use super::Context;
use crate::{
    cli,
    output::{Output, Usage, one_line},
};

/// What was typed, for the arrow keys.
const HISTORY_FILE: &str = "run_history";
/// The longest message that is read from standard input.
const MESSAGE_BYTES_MAX: u64 = 10_000_000;

pub async fn run(context: &Context, output: &Output, args: cli::Run) -> anyhow::Result<ExitCode> {
    let Some(team) = context.config.team.clone() else {
        if let Some(missing) =
            args.words.first().filter(|word| is_yaml(Path::new(word)) && !Path::new(word).exists())
        {
            return Err(Usage(format!("there is no file {missing}, and no agents are configured")).into());
        }
        return Err(Usage(
            "there are no agents: name a file that has some (sess run agents.yaml), or add `agents:` to the \
             configuration; `sess demo` shows one at work"
                .to_owned(),
        )
        .into());
    };
    if output.json && !args.exec {
        return Err(Usage("--json prints the events of one message: use it with --exec".to_owned()).into());
    }
    let trust = if args.yolo { Trust::All } else { Trust::Ask };
    let lease = lease(context)?;
    let chosen = args.agent.as_deref();
    let message = message(&args)?;
    if !args.exec && std::io::stdin().is_terminal() && output.is_terminal() {
        let person = Arc::new(Terminal::new(history(context)?)?);
        let agents = agents(context, team, Arc::clone(&person) as Arc<dyn Person>, trust, lease)?;
        let session = open_session(context, &agents, chosen).await?;
        return terminal::chat(agents, person, context.caller.clone(), session, message).await;
    }
    let onlooker = Arc::new(exec::Onlooker::new(output.json, context.redaction));
    let agents = agents(context, team, Arc::clone(&onlooker) as Arc<dyn Person>, trust, lease)?;
    let session = open_session(context, &agents, chosen).await?;
    let Some(message) = message else {
        return Err(Usage(
            "there is no message: sess run --exec \"what to do\", or give it on standard input".to_owned(),
        )
        .into());
    };
    let cancel = CancellationToken::new();
    tokio::select! {
        ended = exec::run(&agents, &onlooker, &context.caller, session, chosen, &message, &cancel) => ended,
        // What was acknowledged is stored, and the lease of what was not ends by itself.
        heard = second_signal(&cancel) => heard.map(|()| ExitCode::from(130)).context("signals cannot be heard"),
    }
}

/// `/send on|off|inherit`: whether messages come into a session. Returns it, and what holds now.
async fn send_policy(
    app: &App,
    caller: &Caller,
    mut session: Session,
    wanted: &str,
) -> anyhow::Result<(Session, String)> {
    let wanted = match wanted.trim() {
        "" => None,
        "on" => Some(Some(Sending::Allow)),
        "off" => Some(Some(Sending::Deny)),
        "inherit" => Some(None),
        other => {
            return Err(Usage(format!("/send {}: expected on, off or inherit", one_line(other))).into());
        }
    };
    if let Some(policy) = wanted {
        session = app.set_send_policy(caller, &session, policy).await?;
    }
    let own = session.facts.send_policy;
    let holds = match app.configured()?.rules.send_policy.decide(own, &session.key, session.channel()) {
        Sending::Allow => "messages come into this session",
        Sending::Deny => "no messages come into this session",
    };
    let why = if own.is_some() { "your word" } else { "as configured" };
    Ok((session, format!("{holds} ({why})")))
}

/// Returns where the lines that were typed are kept, for the arrow keys.
fn history(context: &Context) -> anyhow::Result<Option<PathBuf>> {
    let home = context.home()?;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(home);
    made.with_context(|| format!("cannot create {}", home.display()))?;
    Ok(Some(home.join(HISTORY_FILE)))
}

/// Returns the file that the first word names, when it is a configuration.
pub fn named_file(args: &cli::Run) -> Option<&Path> {
    let first = Path::new(args.words.first()?);
    (is_yaml(first) && first.is_file()).then_some(first)
}

fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "yaml" || end == "yml")
}

fn message(args: &cli::Run) -> anyhow::Result<Option<String>> {
    message_of(&args.words[usize::from(named_file(args).is_some())..])
}

/// Returns the message that words make, or standard input when there are none or they are `-`.
pub fn message_of(words: &[String]) -> anyhow::Result<Option<String>> {
    let message = words.join(" ");
    let is_input = message.trim().is_empty() || message.trim() == "-";
    if !is_input {
        return Ok(Some(message));
    }
    if std::io::stdin().is_terminal() && message.trim() != "-" {
        return Ok(None);
    }
    let mut text = Vec::new();
    std::io::stdin().take(MESSAGE_BYTES_MAX + 1).read_to_end(&mut text).context("cannot read the message")?;
    if text.len() as u64 > MESSAGE_BYTES_MAX {
        return Err(Usage(format!("the message is larger than {MESSAGE_BYTES_MAX} bytes")).into());
    }
    let text = String::from_utf8(text).map_err(|_| Usage("the message is not valid UTF-8".to_owned()))?;
    Ok((!text.trim().is_empty()).then_some(text))
}

/// `SESS_LEASE_MS`: how long a node that died keeps its runs.
pub fn lease(context: &Context) -> anyhow::Result<Duration> {
    match context.env.iter().find(|(name, _)| name == "SESS_LEASE_MS") {
        None => Ok(LEASE),
        Some((_, text)) => match text.parse() {
            Ok(ms @ 100..=3_600_000) => Ok(Duration::from_millis(ms)),
            _ => {
                Err(Usage(format!("SESS_LEASE_MS is \"{text}\": expected milliseconds, 100 to 3600000"))
                    .into())
            }
        },
    }
}

async fn open_session(
    context: &Context,
    agents: &Agents,
    agent: Option<&str>,
) -> anyhow::Result<sess_core::session::NewSession> {
    let chosen = agents.agent(agent)?.name.clone();
    let mut session = agents.open_session(&context.caller, context.session.as_deref(), &chosen).await?;
    // Somebody else's agent may have been the last one; and who is asked for by name is meant.
    if agent.is_some() || agents.team().agent(&session.agent).is_none() {
        session.agent = chosen;
    }
    Ok(session)
}

/// Wires the agents to models, tools and the person.
pub fn agents(
    context: &Context,
    team: Team,
    person: Arc<dyn Person>,
    trust: Trust,
    lease: Duration,
) -> anyhow::Result<Agents> {
    let env = context.env.clone();
    let open_model = move |spec: &sess_core::agent::ModelSpec| {
        let variable = |name: &str| {
            env.iter().find(|(key, value)| key == name && !value.is_empty()).map(|(_, value)| value.clone())
        };
        model::open(spec, model::endpoint_for(spec, &variable))
    };
    let world = World::new(context, &team)?;
    let setup = AgentsSetup {
        team,
        open_model: Box::new(open_model),
        open_tools: Box::new(move |wanted| world.open(wanted)),
        person,
        trust,
        lease,
    };
    Ok(context.app.agents(setup))
}

/// Where tools work, and with what.
struct World {
    root: PathBuf,
    env: Vec<(String, String)>,
    home: Option<PathBuf>,
    exe: PathBuf,
    /// Tried when it is first needed: that starts a process.
    abilities: OnceLock<Abilities>,
    confinements: Mutex<Vec<(SessionId, Sandbox, Arc<Confinement>)>>,
}

impl World {
    fn new(context: &Context, team: &Team) -> anyhow::Result<Self> {
        let settings = context.app.settings();
        let root = settings.cwd.as_ref().context("the working directory is gone: change to another one")?;
        let exe = std::env::current_exe().context("cannot tell which program this is")?;
        let env = without_keys(context.env.clone(), team);
        Ok(Self {
            root: PathBuf::from(root),
            env,
            home: settings.home.clone(),
            exe,
            abilities: OnceLock::new(),
            confinements: Mutex::default(),
        })
    }

    fn open(&self, wanted: &WorldTools<'_>) -> Result<Arc<dyn Toolbox>, String> {
        let root = self.root_of(wanted);
        let confinement = match wanted.sandbox {
            None => None,
            Some(sandbox) => Some(self.confinement(wanted.session, sandbox, &root)?),
        };
        Ok(match wanted.kind {
            ToolsetKind::Filesystem { access } => Arc::new(Files::new(root, *access, confinement)),
            ToolsetKind::Shell { timeout_seconds } => {
                let timeout = timeout_seconds.map(|seconds| Duration::from_secs(u64::from(seconds)));
                Arc::new(Shell::new(root, self.env_of(wanted), timeout, confinement))
            }
            ToolsetKind::Mcp(server) => {
                // Only a server that has an address is reached by HTTP.
                let url = match server {
                    McpServer::Url { url, .. } => url.as_str(),
                    McpServer::Command { .. } => "http://localhost",
                };
                let http = model::http_client(url).map_err(|error| error.to_string())?;
                let call_timeout = mcp::CALL_TIMEOUT;
                let options =
                    mcp::Options { root, env: self.env_of(wanted), confinement, http, call_timeout };
                Arc::new(McpTools::new(server.clone(), options))
            }
            ToolsetKind::SessionPlan
            | ToolsetKind::SessionContext
            | ToolsetKind::Sessions
            | ToolsetKind::Work
            | ToolsetKind::UserPrompt => {
                return Err("these tools touch nothing outside".to_owned());
            }
        })
    }

    /// Returns where the tools of a session work: where it began, or here when that is gone.
    fn root_of(&self, wanted: &WorldTools<'_>) -> PathBuf {
        let began = wanted.workspace.map(Path::new).filter(|path| path.is_absolute() && path.is_dir());
        began.unwrap_or(&self.root).to_owned()
    }

    /// Returns the one confinement of this session and sandbox, so that its tools share home and `/tmp`.
    fn confinement(
        &self,
        session: &SessionId,
        sandbox: &Sandbox,
        root: &Path,
    ) -> Result<Arc<Confinement>, String> {
        let mut kept = self.confinements.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((.., confinement)) = kept.iter().find(|(of, reach, _)| of == session && reach == sandbox)
        {
            return Ok(Arc::clone(confinement));
        }
        let abilities = self.abilities.get_or_init(|| {
            let path = self.env.iter().find(|(name, _)| name == "PATH").map_or("", |(_, path)| path.as_str());
            confine::probe(confine::find_bubblewrap(path).as_deref())
        });
        let options = confine::Options {
            sandbox,
            workspace: root,
            store: self.home.as_deref(),
            exe: &self.exe,
            scratch: &std::env::temp_dir(),
            abilities,
        };
        let confinement = Arc::new(Confinement::new(&options).map_err(|error| error.to_string())?);
        kept.push((session.clone(), sandbox.clone(), Arc::clone(&confinement)));
        Ok(confinement)
    }

    /// Whatever a tool starts is known as this session's: it never passes for the owner.
    fn env_of(&self, wanted: &WorldTools<'_>) -> Vec<(String, String)> {
        let mut env = self.env.clone();
        env.retain(|(name, _)| name != SESS_SESSION);
        env.push((SESS_SESSION.to_owned(), wanted.session.to_string()));
        env
    }
}

/// Leaves out the keys of the models, whatever their variables are called.
fn without_keys(mut env: Vec<(String, String)>, team: &Team) -> Vec<(String, String)> {
    let is_key = |name: &str| team.models().iter().any(|model| model.token_key.as_deref() == Some(name));
    env.retain(|(name, _)| !is_key(name));
    env
}

/// Asks the run to stop at the first signal; returns at the second, when nobody waits any longer.
pub async fn second_signal(cancel: &CancellationToken) -> std::io::Result<()> {
    let mut signals = Signals::new()?;
    signals.next().await;
    cancel.cancel();
    signals.next().await;
    Ok(())
}

/// The signals that ask a program to end: from the keyboard, from another program, from a terminal that went.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// Not listened to when whoever started us wants it ignored, as `nohup` does.
    hangup: Option<Signal>,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: if ignores_hangup() { None } else { Some(signal(SignalKind::hangup())?) },
        })
    }

    async fn next(&mut self) {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = hangup => {}
        }
    }
}

/// Tells whether the hangup is ignored, as far as the system says so.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // The lowest bit is for signal 1, the hangup.
    ignored.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).is_some_and(|bits| bits & 1 == 1)
}

/// Shows a call in one line.
pub fn call_line(name: &str, arguments: &Map<String, Value>, depth: usize) -> String {
    let main = ["cmd", "path", "pattern", "agent", "task", "sessionKey", "message", "session_id"];
    let shown = main.iter().find_map(|key| arguments.get(*key)?.as_str());
    format!("{}● {name} {}", "  ".repeat(depth), shown.map(one_line).unwrap_or_default())
        .trim_end()
        .to_owned()
}
