//! `sess wait` and `sess cancel`: a run's end.

use std::{process::ExitCode, time::Duration};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;
use sess_app::{Redaction, RunRow};
use sess_core::{
    exchange::is_control_word,
    redact::{redact, redact_json},
    run::{Run, RunState},
};

use super::{
    Context, node,
    run::exec,
    send::{TIMED_OUT, short},
};
use crate::{cli, output::Output};

/// As a shell reports Ctrl-C.
pub const INTERRUPTED: u8 = 130;
/// How long nothing moves on the terminal before a spinner shows that somebody waits.
const SPINNER_AFTER: Duration = Duration::from_millis(500);

pub async fn run(context: &Context, output: &Output, args: cli::Wait) -> anyhow::Result<ExitCode> {
    let run = context.app.find_run(&context.caller, &args.one.run).await?;
    node::start(context, &run)?;
    let timeout = args.timeout.map(Duration::from_secs);
    let Some(run) = until_end(context, output, &run, timeout).await? else {
        return Ok(ExitCode::from(INTERRUPTED));
    };
    if output.json {
        let row = context.app.run_row(&context.caller, &run).await?;
        output.data(&masked_row(context, row)?)?;
        return Ok(exit_code(&run));
    }
    show(context, output, &run)
}

pub async fn cancel(context: &Context, output: &Output, args: cli::OneRun) -> anyhow::Result<()> {
    let before = context.app.find_run(&context.caller, &args.run).await?;
    let run = context.app.cancel(&context.caller, &before.id).await?;
    if output.json {
        let row = context.app.run_row(&context.caller, &run).await?;
        return output.data(&masked_row(context, row)?);
    }
    let id = short(run.id.as_str());
    output.say(&match (before.state.has_ended(), run.state) {
        (true, state) => format!("run {id} had ended already: {}", told(state)),
        (false, RunState::Cancelled) => format!("run {id} is cancelled: it had not begun"),
        (false, _) => format!("run {id} was asked to stop; `sess wait {id}` waits for that"),
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
    let spinner = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    let style = ProgressStyle::with_template("{spinner:.cyan} {msg} {elapsed:.dim}");
    spinner.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    spinner.set_message(format!("{} works", run.agent));
    let waiting = context.app.wait_for(&context.caller, &run.id, timeout);
    tokio::pin!(waiting);
    let mut ticks =
        tokio::time::interval_at(tokio::time::Instant::now() + SPINNER_AFTER, Duration::from_millis(100));
    let ended = loop {
        tokio::select! {
            ended = &mut waiting => break ended?,
            _ = ticks.tick(), if !output.json => {
                if spinner.is_hidden() {
                    spinner.set_draw_target(ProgressDrawTarget::stderr());
                }
                spinner.tick();
            }
            _ = tokio::signal::ctrl_c() => {
                spinner.finish_and_clear();
                let id = short(run.id.as_str());
                output.say(&format!("no longer waiting; the run goes on: `sess cancel {id}` stops it"));
                return Ok(None);
            }
        }
    };
    spinner.finish_and_clear();
    Ok(Some(ended))
}

/// Prints what a run came to, and returns its exit code.
pub fn show(context: &Context, output: &Output, run: &Run) -> anyhow::Result<ExitCode> {
    let id = short(run.id.as_str());
    if !run.state.has_ended() {
        output.say(&format!("the run goes on ({}); `sess wait {id}` waits longer", told(run.state)));
        return Ok(ExitCode::from(TIMED_OUT));
    }
    let masked = |text: &str| match context.redaction {
        Redaction::Masked => redact(text).0.into_owned(),
        Redaction::None => text.to_owned(),
    };
    if let Some(result) = run.result.as_deref().filter(|result| !result.trim().is_empty()) {
        if is_control_word(result) {
            output.say("(nothing to tell)");
        } else {
            output.foreign(&(masked(result).trim_end().to_owned() + "\n"))?;
        }
    }
    match (&run.error, run.state) {
        (_, RunState::Done) => {}
        (Some(error), state) => output.failed(&format!("{}: {}", told(state), masked(error))),
        (None, state) => output.failed(told(state)),
    }
    Ok(exit_code(run))
}

/// Returns the exit code of a run that was waited for.
pub fn exit_code(run: &Run) -> ExitCode {
    if run.state.has_ended() { exec::exit_code(run) } else { ExitCode::from(TIMED_OUT) }
}

/// Returns a row as it may be shown.
pub fn masked_row(context: &Context, row: RunRow) -> anyhow::Result<Value> {
    let mut row = serde_json::to_value(row)?;
    if context.redaction == Redaction::Masked {
        redact_json(&mut row);
    }
    Ok(row)
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
