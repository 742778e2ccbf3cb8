//! `sess wait` and `sess cancel`: a run's end.

use std::{process::ExitCode, time::Duration};

use sess_core::{
    exchange::is_control_word,
    run::{Run, RunState},
};
use sess_protocol::runs as wire;

use super::{
    Context, node,
    progress::Progress,
    run::exec,
    send::{TIMED_OUT, short},
};
use crate::{cli, output::Output};

/// As a shell reports Ctrl-C.
pub const INTERRUPTED: u8 = 130;

pub async fn run(context: &Context, output: &Output, args: cli::Wait) -> anyhow::Result<ExitCode> {
    context.names_no_session()?;
    let run = context.app.find_run(&context.caller, &args.one.run, context.redaction).await?;
    node::start(context, &run)?;
    let timeout = args.timeout.map(Duration::from_secs);
    let Some(run) = until_end(context, output, &run, timeout).await? else {
        return Ok(ExitCode::from(INTERRUPTED));
    };
    if output.json {
        let row = context.app.run_row(&context.caller, &run, context.redaction).await?;
        output.data(&wire::RunRow::from(row))?;
        return Ok(exit_code(&run));
    }
    show(output, &run)
}

pub async fn cancel(context: &Context, output: &Output, args: cli::OneRun) -> anyhow::Result<()> {
    context.names_no_session()?;
    let before = context.app.find_run(&context.caller, &args.run, context.redaction).await?;
    if before.state.has_ended() {
        let (id, state) = (short(before.id.as_str()), told(before.state));
        return Err(sess_app::Error::NotFound(format!("run {id} had ended already: {state}")).into());
    }
    let run = context.app.cancel(&context.caller, &before.id, context.redaction).await?;
    if output.json {
        let row = context.app.run_row(&context.caller, &run, context.redaction).await?;
        return output.data(&wire::RunRow::from(row));
    }
    let id = short(run.id.as_str());
    output.say(&match run.state {
        RunState::Cancelled => format!("run {id} is cancelled: it had not begun"),
        _ => format!("run {id} was asked to stop; `sess wait {id}` waits for that"),
    });
    Ok(())
}

/// Waits for a run's end, at most so long; returns it as it stands then. `None` when the person no longer waits.
pub async fn until_end(
    context: &Context,
    output: &Output,
    run: &Run,
    timeout: Option<Duration>,
) -> anyhow::Result<Option<Run>> {
    let progress = (!output.json).then(|| Progress::new(format!("{} works", run.agent)));
    let ended = tokio::select! {
        ended = context.app.wait_for(&context.caller, &run.id, timeout, context.redaction) => ended?,
        _ = tokio::signal::ctrl_c() => {
            drop(progress);
            let id = short(run.id.as_str());
            output.say(&format!("no longer waiting; the run goes on: `sess cancel {id}` stops it"));
            return Ok(None);
        }
    };
    Ok(Some(ended))
}

/// Prints what a run came to, and returns its exit code.
pub fn show(output: &Output, run: &Run) -> anyhow::Result<ExitCode> {
    let id = short(run.id.as_str());
    if !run.state.has_ended() {
        output.say(&format!("the run goes on ({}); `sess wait {id}` waits longer", told(run.state)));
        return Ok(ExitCode::from(TIMED_OUT));
    }
    if let Some(result) = run.result.as_deref().filter(|result| !result.trim().is_empty()) {
        if is_control_word(result) {
            output.say("(nothing to tell)");
        } else {
            output.foreign(&(result.trim_end().to_owned() + "\n"))?;
        }
    }
    match (&run.error, run.state) {
        (_, RunState::Done) => {}
        (Some(error), state) => output.failed(&format!("{}: {error}", told(state))),
        (None, state) => output.failed(told(state)),
    }
    Ok(exit_code(run))
}

/// Returns the exit code of a run that was waited for.
pub fn exit_code(run: &Run) -> ExitCode {
    if run.state.has_ended() { exec::exit_code(run) } else { ExitCode::from(TIMED_OUT) }
}

/// Says how a run stands, in words.
pub fn told(state: RunState) -> &'static str {
    match state {
        RunState::Queued => "queued",
        RunState::Running => "running",
        RunState::Done => "done",
        RunState::Failed => "failed",
        RunState::Cancelled => "cancelled",
        RunState::TimedOut => "out of time",
        RunState::Aborted => "aborted",
    }
}
