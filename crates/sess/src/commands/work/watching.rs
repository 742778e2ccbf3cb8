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
/// The longest that is waited after commands that failed.
const PAUSE_MAX: Duration = Duration::from_secs(600);

pub(super) async fn watch(here: &Here<'_>, args: Watch) -> anyhow::Result<ExitCode> {
    // It would end at once, again and again, and leave everything claimed.
    if args.exec.as_ref().is_some_and(|command| command.trim().is_empty()) {
        return Err(Error::usage("--exec has no command to run").next("sess work watch --help").into());
    }
    let options = claiming::options(&args.place, false);
    let (mut has_said, mut failures) = (false, 0);
    // Heard from the beginning on: one that comes while a command runs counts afterwards.
    let mut interrupts = signal(SignalKind::interrupt())?;
    loop {
        let pause = match here.work.claim_next(args.label.as_deref(), &options) {
            Ok(Some(claimed)) => {
                tell(here, &claimed)?;
                let Some(command) = &args.exec else { return Ok(ExitCode::SUCCESS) };
                let mut shell = Command::new("sh");
                shell.args(["-c", command]);
                let slug = &claimed.record.claim.slug;
                let ended = claiming::in_workspace(here, slug, shell)?;
                if let Some(lost) = &ended.lost {
                    here.output.notice(&lost.to_string());
                }
                let code = ended.exit_code();
                if args.once {
                    return Ok(ExitCode::from(code));
                }
                has_said = false;
                failures = if code == 0 { 0 } else { failures + 1 };
                let pause = pause_after(failures);
                if code != 0 {
                    here.output.notice(&format!(
                        "the command ended with {code} in {slug}: nothing is claimed for {} s",
                        pause.as_secs()
                    ));
                }
                pause
            }
            Ok(None) => {
                if !std::mem::replace(&mut has_said, true) {
                    here.next("nothing is ready yet; Ctrl-C ends the watch");
                }
                LOOK_AGAIN
            }
            // The remote comes back, and others let go.
            Err(error) if matches!(error.kind, Kind::Unreachable | Kind::Claimed) => {
                here.output.notice(&error.to_string());
                has_said = true;
                LOOK_AGAIN
            }
            Err(error) => return Err(error.into()),
        };
        tokio::select! {
            biased;
            _ = interrupts.recv() => return Ok(ExitCode::from(INTERRUPTED)),
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Returns how long nothing is claimed after so many commands in a row that failed: after one that did not, the next
/// is looked for at once.
///
/// A command that always fails would otherwise claim everything that is ready, or the same again and again, where
/// everybody sees it.
fn pause_after(failures: u32) -> Duration {
    match failures.checked_sub(1) {
        None => Duration::ZERO,
        Some(more) => LOOK_AGAIN.saturating_mul(2_u32.saturating_pow(more)).min(PAUSE_MAX),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_in_a_row_are_followed_by_longer_pauses() {
        let seconds = [0, 1, 2, 3, 8, 9, u32::MAX].map(|failures| pause_after(failures).as_secs());
        assert_eq!(seconds, [0, 5, 10, 20, 600, 600, 600]);
    }
}
