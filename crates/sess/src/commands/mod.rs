//! One file a command; here is what they share.

pub mod config;
pub mod confined;
pub mod demo;
pub mod doctor;
pub mod events;
pub mod handoff;
pub mod history;
pub mod hook;
pub mod import;
pub mod index;
pub mod install;
pub mod list;
pub mod man;
pub mod mcp;
pub mod node;
pub mod open;
pub mod overview;
pub mod plan;
pub mod progress;
pub mod ps;
pub mod read;
pub mod run;
pub mod runs;
pub mod scrub;
pub mod search;
pub mod send;
pub mod serve;
pub mod snapshot;
pub mod spawn;
pub mod token;
pub mod tool;
pub mod wait;
pub mod work;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use sess_app::{App, Caller, Redaction, Signals};
use sess_core::{
    agent::Team,
    policy::{Standing, Verb},
    session::Session,
};

use self::progress::Progress;
use crate::{
    cli::Command,
    config::{Config, ConfigFile, Document, gateway::Gateway},
    output::{Output, Usage},
};

/// What every command works with.
pub struct Context {
    pub app: App,
    pub env: Vec<(String, String)>,
    pub session: Option<String>,
    /// Who is calling, whichever session is named.
    pub caller: Caller,
    /// Whose call it would be if a tool were called from here.
    pub tool_caller: Caller,
    pub redaction: Redaction,
    pub config: Loaded,
}

/// What came of reading the configuration, beside the settings.
pub struct Loaded {
    pub team: Option<Team>,
    pub document: Document,
    pub files: Vec<ConfigFile>,
    pub notices: Vec<String>,
    /// The file that was named, and counts alone.
    pub named: Option<PathBuf>,
    pub gateway: Gateway,
    /// What is wrong with it. Then the settings are those of no configuration.
    pub problem: Option<Usage>,
}

impl Context {
    pub fn new(config: Config, problem: Option<Usage>, session: Option<String>, no_redact: bool) -> Self {
        let app = App::new(config.settings.clone());
        let (caller, tool_caller) = callers(&app, session.clone(), &config.env);
        let redaction = if no_redact { Redaction::None } else { Redaction::Masked };
        let Config { env, team, document, files, notices, named, gateway, .. } = config;
        let config = Loaded { team, document, files, notices, named, gateway, problem };
        Self { app, env, session, caller, tool_caller, redaction, config }
    }

    /// Lets `--session` name a session of another agent by the beginning of its id, for a command that acts in one.
    pub async fn complete_session(&mut self) -> anyhow::Result<()> {
        // An agent is the session that its host says, and names another one in full.
        if self.caller.standing == Standing::Agent {
            return Ok(());
        }
        let Some(named) = &self.session else { return Ok(()) };
        let Some(whole) = self.app.whole_name(named).await? else { return Ok(()) };
        (self.caller, self.tool_caller) = callers(&self.app, Some(whole.clone()), &self.env);
        self.session = Some(whole);
        Ok(())
    }

    /// Returns the data directory; without one there is nothing that a person could ask about.
    pub fn home(&self) -> anyhow::Result<&Path> {
        let none = || Usage("neither SESS_HOME nor HOME is set: set one of them".to_owned());
        Ok(self.app.settings().home.as_deref().ok_or_else(none)?)
    }

    /// Returns the owner, for what a process does on its own account.
    pub fn owner(&self) -> Caller {
        self.app.cli_caller(&Signals::default())
    }

    /// Returns whose words leave from here: those of the session that `--session` names, else the caller's.
    ///
    /// The session has to exist: a misspelt one would otherwise be a new session that nobody looks into.
    pub async fn sender(&self) -> anyhow::Result<Caller> {
        let Some(reference) = &self.session else { return Ok(self.caller.clone()) };
        if self.caller.standing == Standing::Agent {
            let text = "an agent speaks as its own session and as no other: leave out --session";
            return Err(sess_app::Error::Denied(text.to_owned()).into());
        }
        let reference = self.absolute(reference.clone()).await?;
        let named = self.app.reach(&self.caller, &reference, Verb::Status).await?;
        Ok(self.app.caller(&Signals { explicit: Some(named.key.to_string()), ..Signals::default() }))
    }

    /// Refuses `--session` for what is about a run: its id says whose it is.
    pub fn names_no_session(&self) -> anyhow::Result<()> {
        match self.session {
            Some(_) => Err(Usage("a run is named by its id: leave out --session".to_owned()).into()),
            None => Ok(()),
        }
    }

    /// Returns a reference that means the same to the session tools, which know no `-1`.
    pub async fn absolute(&self, reference: String) -> anyhow::Result<String> {
        let digits = reference.trim().strip_prefix('-').unwrap_or_default();
        let is_relative = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if is_relative { Ok(self.resolve(&reference).await?.id.to_string()) } else { Ok(reference) }
    }

    pub async fn resolve(&self, reference: &str) -> anyhow::Result<Session> {
        let _progress = Progress::new("looking for the session");
        Ok(self.app.resolve(&self.caller, reference).await?)
    }
}

/// Returns who a command acts for, and whoever calls a tool by it.
fn callers(app: &App, session: Option<String>, env: &[(String, String)]) -> (Caller, Caller) {
    let signals = Signals { explicit: session, env: env.to_vec(), ..Signals::default() };
    (app.cli_caller(&signals), app.caller(&signals))
}

pub async fn run(context: &Context, output: &Output, command: Option<Command>) -> anyhow::Result<ExitCode> {
    let app = &context.app;
    let is_tool = matches!(command, Some(Command::Mcp(_) | Command::Tool(_)));
    if !is_tool
        && !matches!(command, Some(Command::Demo | Command::Whoami | Command::Config(_) | Command::Work(_)))
    {
        // Tools say in the words of their contract that there is no store; a person is told what to do.
        context.home()?;
    }
    match command {
        None => overview::run(context, output).await?,
        Some(Command::Demo) => demo::run(output).await?,
        Some(Command::Run(args)) => return Box::pin(run::run(context, output, args)).await,
        Some(Command::Mcp(args)) => mcp::run(context, output, args).await?,
        Some(Command::Serve(args)) => return Box::pin(serve::run(context, output, args)).await,
        Some(Command::Open(args)) => open::run(context, output, args).await?,
        Some(Command::Token { command }) => token::run(context, output, command).await?,
        Some(Command::List(args)) => list::run(context, output, args).await?,
        Some(Command::Read(args)) => read::run(context, output, args).await?,
        Some(Command::History(args)) => history::run(context, output, args).await?,
        Some(Command::Send(args)) => return send::run(context, output, args).await,
        Some(Command::Spawn(args)) => return spawn::run(context, output, args).await,
        Some(Command::Runs(args)) => runs::run(context, output, args).await?,
        Some(Command::Wait(args)) => return wait::run(context, output, args).await,
        Some(Command::Cancel(args)) => wait::cancel(context, output, args).await?,
        Some(Command::Node(args)) => return node::execute(context, args).await,
        Some(Command::Search(args)) => search::run(context, output, args).await?,
        Some(Command::Index(args)) => return index::run(context, output, args).await,
        Some(Command::Handoff(args)) => handoff::run(context, output, args).await?,
        Some(Command::Plan(args)) => plan::run(context, output, args).await?,
        Some(Command::Work(args)) => return Box::pin(work::run(context, output, args)).await,
        Some(Command::Events(args)) => events::run(context, output, args).await?,
        Some(Command::Star(one)) => {
            let session = context.resolve(&one.reference).await?;
            list::changed(output, "starred", &app.star(&context.caller, &session, true).await?)?;
        }
        Some(Command::Unstar(one)) => {
            let session = context.resolve(&one.reference).await?;
            list::changed(output, "unstarred", &app.star(&context.caller, &session, false).await?)?;
        }
        Some(Command::Rename(args)) => {
            let session = context.resolve(&args.one.reference).await?;
            list::changed(output, "renamed", &app.rename(&context.caller, &session, &args.title).await?)?;
        }
        Some(Command::Archive(one)) => {
            let session = context.resolve(&one.reference).await?;
            list::changed(output, "archived", &app.archive(&context.caller, &session, true).await?)?;
        }
        Some(Command::Unarchive(one)) => {
            let session = context.resolve(&one.reference).await?;
            list::changed(output, "unarchived", &app.archive(&context.caller, &session, false).await?)?;
        }
        Some(Command::Import(args)) => return import::import(context, output, args).await,
        Some(Command::Export(one)) => import::export(context, output, &one.reference).await?,
        Some(Command::Whoami) => overview::whoami(context, output).await?,
        Some(Command::Scrub(args)) => scrub::run(context, output, args).await?,
        Some(Command::Snapshot(args)) => snapshot::run(context, output, args).await?,
        Some(Command::Ps(args)) => ps::run(context, output, args).await?,
        Some(Command::Install(args)) => return install::install(context, output, &args),
        Some(Command::Uninstall(args)) => return install::uninstall(context, output, &args),
        Some(Command::Hook { event }) => hook::run(context, output, &event).await,
        Some(Command::Doctor(args)) => return doctor::run(context, output, args).await,
        Some(Command::Config(args)) => config::run(context, output, args)?,
        Some(Command::Tool(args)) => return tool::run(context, output, args).await,
        Some(Command::Completions { .. } | Command::Man { .. } | Command::Confined(_)) => {
            unreachable!("answered before anything is opened")
        }
    }
    Ok(ExitCode::SUCCESS)
}
