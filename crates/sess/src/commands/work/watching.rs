//! `sess work watch`: for agents in the background, which take what is ready.

use std::{
    process::{Command, ExitCode},
    time::Duration,
};

use serde_json::json;
use sess_work::{Claimed, Error, Kind, State};
use tokio::signal::unix::{SignalKind, signal};

use super::{Here, claiming};
use crate::{cli::work::Watch, commands::wait::INTERRUPTED};

/// How long nothing is ready before somebody looks again.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

pub(super) async fn watch(here: &Here<'_>, args: Watch) -> anyhow::Result<ExitCode> {
    // It would end at once, again and again, and leave everything claimed.
    if args.exec.as_ref().is_some_and(|command| command.trim().is_empty()) {
        return Err(Error::usage("--exec has no command to run").next("sess work watch --help").into());
    }
    let options = claiming::options(&args.place, false);
    let mut has_said = false;
    // Heard from the beginning on: one that comes while a command runs counts afterwards.
    let mut interrupts = signal(SignalKind::interrupt())?;
    loop {
        match here.work.claim_next(args.label.as_deref(), &options) {
            Ok(Some(claimed)) => {
                tell(here, &claimed)?;
                let Some(command) = &args.exec else { return Ok(ExitCode::SUCCESS) };
                let mut shell = Command::new("sh");
                shell.args(["-c", command]);
                let code = claiming::in_workspace(here, &claimed.record.claim.slug, shell)?;
                if args.once {
                    return Ok(code);
                }
                has_said = false;
            }
            Ok(None) => {
                if !std::mem::replace(&mut has_said, true) {
                    here.next("nothing is ready yet; Ctrl-C ends the watch");
                }
            }
            // The remote comes back, and others let go.
            Err(error) if matches!(error.kind, Kind::Unreachable | Kind::Claimed) => {
                here.output.notice(&error.to_string());
                has_said = true;
            }
            Err(error) => return Err(error.into()),
        }
        // After a command the next one is looked for at once.
        let pause = if has_said { LOOK_AGAIN } else { Duration::ZERO };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = interrupts.recv() => return Ok(ExitCode::from(INTERRUPTED)),
        }
    }
}

/// Says what was claimed: as a line of data, because there may be more of them.
fn tell(here: &Here<'_>, claimed: &Claimed) -> anyhow::Result<()> {
    let claim = &claimed.record.claim;
    if here.output.json {
        let mut data = claiming::claim_data(claimed);
        data["slug"] = json!(claim.slug);
        data["state"] = json!(State::Active);
        data["notices"] = json!(claimed.notices);
        return here.output.data_line(&data);
    }
    here.output.line(&format!("claimed {}", claim.slug))?;
    here.notice(&claimed.notices);
    Ok(())
}
