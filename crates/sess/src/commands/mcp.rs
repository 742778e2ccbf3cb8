//! `sess mcp`: the tools, for any agent that speaks MCP.

use std::{io::IsTerminal as _, sync::Arc};

use sess_app::{
    agents::{Nobody, Work},
    tools::Toolset,
};
use sess_core::permission::Trust;
use sess_server::mcp::{McpOptions, serve_stdio};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{
    Context,
    run::{agents, lease},
};
use crate::{
    cli,
    output::{Output, Usage},
};

pub async fn run(context: &Context, output: &Output, args: cli::Mcp) -> anyhow::Result<()> {
    let mut toolsets = Vec::new();
    for name in &args.toolsets {
        toolsets.push(name.parse::<Toolset>().map_err(|error| Usage(error.to_string()))?);
    }
    if toolsets.is_empty() {
        toolsets.extend(Toolset::ANYWHERE);
        if context.app.has_work() {
            toolsets.push(Toolset::Work);
        }
    }
    if std::io::stdin().is_terminal() {
        output.say(
            "This speaks MCP, for agents: `sess install claude` is how one gets it, and others alike. Ctrl-D ends.",
        );
    }
    let sessions_called = Arc::new(Notify::new());
    let options = McpOptions {
        toolsets,
        tools: (!args.tools.is_empty()).then_some(args.tools),
        explicit_session: context.session.clone(),
        env: context.env.clone(),
        sessions_called: Arc::clone(&sessions_called),
    };
    let stop = CancellationToken::new();
    let node = work(context, &sessions_called, &stop);
    let serving = serve_stdio(context.app.clone(), options);
    tokio::pin!(node, serving);
    let mut is_working = true;
    let served = loop {
        tokio::select! {
            served = &mut serving => break served,
            worked = &mut node, if is_working => {
                is_working = false;
                if let Err(error) = worked {
                    tracing::warn!("no runs are executed here: {error:#}");
                }
            }
        }
    };
    stop.cancel();
    if is_working && let Err(error) = node.await {
        tracing::warn!("the runs that were executed here ended badly: {error:#}");
    }
    served.map_err(|error| match error {
        sess_server::Error::UnknownTool { .. } => Usage(error.to_string()).into(),
        error => anyhow::Error::new(error),
    })
}

/// Executes the runs of the configured agents, from the first call on that deals with other sessions.
///
/// Until then nothing is opened: a host that lists tools waits for nothing.
async fn work(context: &Context, sessions_called: &Notify, stop: &CancellationToken) -> anyhow::Result<()> {
    let team = loop {
        tokio::select! {
            () = sessions_called.notified() => {}
            () = stop.cancelled() => return Ok(()),
        }
        // A configuration that has no agents, or is broken, may have some at the next call.
        if let Ok(configured) = context.app.configured()
            && let Some(team) = &configured.team
        {
            break team.clone();
        }
    };
    let agents = agents(context, team, Arc::new(Nobody), Trust::Ask, lease(context)?)?;
    Ok(agents.work(Work::All, stop).await?)
}
