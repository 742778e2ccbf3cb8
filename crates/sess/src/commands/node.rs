//! Executing runs for somebody who waits: in a process of its own, so that it goes on when they stop waiting.

use std::{
    os::unix::process::CommandExt as _,
    process::{Command, ExitCode, Stdio},
    sync::Arc,
};

use anyhow::Context as _;
use sess_app::{Redaction, agents::Nobody};
use sess_core::{permission::Trust, run::Run};
use tokio_util::sync::CancellationToken;

use super::{Context, run};
use crate::cli;

/// Starts a process that executes a run and what it leads to, when its agent is configured here.
///
/// Nothing waits for that process: it ends with the last run of the tree.
pub fn start(context: &Context, run: &Run) -> anyhow::Result<()> {
    let is_ours = context.config.team.as_ref().is_some_and(|team| team.agent(&run.agent).is_some());
    if run.state.has_ended() || !is_ours {
        return Ok(());
    }
    let exe = std::env::current_exe().context("cannot tell which program this is")?;
    let mut command = Command::new(exe);
    if let Some(file) = &context.config.named {
        command.arg("--config").arg(file);
    }
    command.args(["node", run.lineage.root.as_str()]);
    // A group of its own: Ctrl-C ends the waiting, not the work.
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().context("cannot start a process that executes the run")?;
    Ok(())
}

/// `sess node`: what [`start`] starts.
pub async fn execute(context: &Context, args: cli::OneRun) -> anyhow::Result<ExitCode> {
    let Some(team) = context.config.team.clone() else { return Ok(ExitCode::SUCCESS) };
    let root = context.app.find_run(&context.owner(), &args.run, Redaction::Masked).await?.lineage.root;
    let agents = run::agents(context, team, Arc::new(Nobody), Trust::Ask, run::lease(context)?)?;
    let stop = CancellationToken::new();
    tokio::select! {
        finished = agents.finish_tree(&root, &stop) => finished?,
        heard = run::second_signal(&stop) => heard.context("signals cannot be heard")?,
    }
    Ok(ExitCode::SUCCESS)
}
