//! `sess run`: agents of the configuration, at work.

pub mod terminal;

use std::{io::IsTerminal as _, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use anyhow::bail;
use sess_agent::{files::Files, model, shell::Shell, tool::Toolbox};
use sess_app::agents::{AgentsSetup, LEASE};
use sess_core::{
    agent::{ModelSpec, ToolsetKind},
    permission::Trust,
    sandbox::Sandbox,
};

use self::terminal::Terminal;
use super::Context;
use crate::{cli, output::Usage};

/// What was typed, for the arrow keys.
const HISTORY_FILE: &str = "run_history";

pub async fn run(context: &Context, args: cli::Run) -> anyhow::Result<ExitCode> {
    let Some(team) = context.config.team.clone() else {
        return Err(Usage("the configuration has no agents".to_owned()).into());
    };
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        bail!("a chat needs a terminal");
    }
    let home = context.home()?;
    std::fs::create_dir_all(home)?;
    let env = context.env.clone();
    let open_model = move |spec: &ModelSpec| {
        let variable = |name: &str| env.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
        model::open(spec, model::endpoint_for(spec, &variable))
    };
    let root = PathBuf::from(context.app.settings().cwd.clone().unwrap_or_else(|| ".".to_owned()));
    let env = context.env.clone();
    let open_tools =
        move |kind: &ToolsetKind, sandbox: Option<&Sandbox>| -> Result<Arc<dyn Toolbox>, String> {
            if sandbox.is_some() {
                return Err("sandboxes are not wired here".to_owned());
            }
            match kind {
                ToolsetKind::Filesystem { access } => Ok(Arc::new(Files::new(root.clone(), *access, None))),
                ToolsetKind::Shell { timeout_seconds } => {
                    let timeout = timeout_seconds.map(|seconds| Duration::from_secs(seconds.into()));
                    Ok(Arc::new(Shell::new(root.clone(), env.clone(), timeout, None)))
                }
                other => Err(format!("{other:?} is not wired here")),
            }
        };
    let person = Arc::new(Terminal::new(Some(home.join(HISTORY_FILE)))?);
    let agents = context.app.agents(AgentsSetup {
        team,
        open_model: Box::new(open_model),
        open_tools: Box::new(open_tools),
        person: Arc::clone(&person) as _,
        trust: if args.yolo { Trust::All } else { Trust::Ask },
        lease: LEASE,
    });
    let agent = agents.agent(args.agent.as_deref())?.name.clone();
    let session = agents.open_session(&context.caller, context.session.as_deref(), &agent).await?;
    let message = args.message.join(" ");
    let first = (!message.trim().is_empty()).then_some(message);
    terminal::chat(agents, person, context.caller.clone(), session, first).await
}
