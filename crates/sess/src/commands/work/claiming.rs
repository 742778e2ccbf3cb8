//! Taking a work session, keeping it, and ending it.

use std::{
    ffi::OsString,
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{Command, ExitCode},
};

use anyhow::Context as _;
use serde_json::{Value, json};
use sess_core::Timestamp;
use sess_work::{ClaimOptions, Claimed, Error, Kind, Phase, Record, Slug, State, Workspace, quoted};
use tokio::signal::unix::{SignalKind, signal};

use super::{Here, lease_left, text_of};
use crate::{
    cli::work::{Claim, One, Place},
    config::now,
    output::{Output, one_line},
};

pub(super) fn options(place: &Place, ignore_dependencies: bool) -> ClaimOptions {
    let workspace = match (place.clone, place.no_workspace) {
        (true, _) => Workspace::Clone,
        (_, true) => Workspace::None,
        (false, false) => Workspace::Worktree,
    };
    ClaimOptions { workspace, ignore_dependencies, lease_seconds: place.lease.map(|minutes| minutes * 60) }
}

pub(super) fn claim(here: &Here<'_>, args: Claim) -> anyhow::Result<()> {
    let options = options(&args.place, args.ignore_dependencies);
    let claimed = if args.next {
        here.work.claim_next(args.label.as_deref(), &options)?.ok_or_else(Error::none_ready)?
    } else {
        here.work.claim(&here.meant_by(args.slug)?, &options)?
    };
    let verb = if claimed.is_resumed { "is yours already" } else { "is yours" };
    tell_claimed(here, &claimed, verb)
}

pub(super) fn takeover(
    here: &Here<'_>,
    one: One,
    force: bool,
    reason: Option<&str>,
    place: &Place,
) -> anyhow::Result<()> {
    let slug = here.meant(one)?;
    let claimed = here.work.takeover(&slug, force, reason, &options(place, false))?;
    tell_claimed(here, &claimed, "is yours now")
}

pub(super) fn adopt(here: &Here<'_>, path: Option<&Path>, title: Option<&str>) -> anyhow::Result<()> {
    let claimed = here.work.adopt(path, title)?;
    tell_claimed(here, &claimed, "is a work session, and yours")
}

/// Returns what a program is told about a claim.
pub(super) fn claim_data(claimed: &Claimed) -> Value {
    let claim = &claimed.record.claim;
    json!({
        "workspace": claimed.workspace.as_ref().map(|path| path.to_string_lossy()),
        "branch": claim.branch,
        "fence": claim.fence,
        "attempt": claim.attempt,
        "resumed": claimed.is_resumed,
        "until": claim.lapses_at().to_string(),
    })
}

fn tell_claimed(here: &Here<'_>, claimed: &Claimed, verb: &str) -> anyhow::Result<()> {
    let claim = &claimed.record.claim;
    let slug = &claim.slug;
    let told = if claim.waits() {
        format!("{slug} {verb}: it is done, and waits to be merged")
    } else {
        format!("{slug} {verb} {}", until(here.output, claim.lapses_at()))
    };
    here.tell(slug, State::Active, claim_data(claimed), &claimed.notices, &told)?;
    if here.output.json {
        return Ok(());
    }
    here.output.line(&format!("  branch     {}", claim.branch))?;
    if let Some(workspace) = &claimed.workspace {
        let place = one_line(&workspace.to_string_lossy());
        here.output.line(&format!("  workspace  {place}"))?;
        here.next(&format!("next: cd {} && eval \"$(sess work env)\"", quoted(&place)));
    }
    Ok(())
}

/// Prints the identity of a work session, as a shell takes it.
pub(super) fn env(here: &Here<'_>, one: One) -> anyhow::Result<()> {
    let slug = here.meant(one)?;
    here.work.check_own(&slug)?;
    let env = here.work.env(&slug);
    if here.output.json {
        let env: serde_json::Map<String, Value> =
            env.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        return here.tell(&slug, State::Active, json!({ "env": env }), &[], "");
    }
    for (name, value) in env {
        here.output.line(&format!("export {name}={}", quoted(&value)))?;
    }
    Ok(())
}

/// Runs a command as the work session. What it prints is its own; data about it come when it has ended.
pub(super) fn exec(here: &Here<'_>, one: One, command: &[OsString]) -> anyhow::Result<ExitCode> {
    let slug = here.meant(one)?;
    let (program, args) = command.split_first().context("there is no command")?;
    let mut command = Command::new(program);
    command.args(args);
    let ended = in_workspace(here, &slug, command)?;
    let lost = ended.lost.as_ref();
    if here.output.json {
        let mut more = json!({ "exitCode": ended.code });
        let mut notices = Vec::new();
        match lost {
            // A command that failed keeps its own code, which is the one that is told.
            Some(lost) if ended.code != 0 => notices.push(lost.to_string()),
            Some(lost) => {
                let (code, next) = (ended.exit_code(), lost.next_command());
                let message = lost.message();
                more["error"] =
                    json!({ "type": "conflict", "message": message, "exitCode": code, "next": next });
            }
            None => {}
        }
        let state = here.state(&slug)?.unwrap_or(State::Active);
        here.tell(&slug, state, more, &notices, "")?;
    }
    match lost {
        Some(lost) if ended.code == 0 => here.output.failed(&lost.to_string()),
        Some(lost) => here.output.notice(&lost.to_string()),
        None => {}
    }
    Ok(ExitCode::from(ended.exit_code()))
}

/// How a command in a workspace ended.
pub(super) struct Ended {
    /// Its own exit code.
    code: u8,
    /// Somebody else has the work session now.
    pub lost: Option<Error>,
}

impl Ended {
    /// Returns the command's own exit code; what went well for somebody who lost the work session did not.
    pub(super) fn exit_code(&self) -> u8 {
        match &self.lost {
            Some(lost) if self.code == 0 => lost.kind.exit_code(),
            _ => self.code,
        }
    }
}

/// Runs a command in the workspace, as the work session, and keeps the lease meanwhile.
pub(super) fn in_workspace(here: &Here<'_>, slug: &Slug, mut command: Command) -> anyhow::Result<Ended> {
    let Some(workspace) = here.work.workspace(slug) else {
        // Somebody else's has none either, and that is what counts.
        here.work.check_own(slug)?;
        return Err(Error::wrong_state(format!("{slug} has no workspace in this clone"))
            .next(format!("sess work claim {slug}"))
            .into());
    };
    // The terminal sends Ctrl-C to the command, too, which decides what to do about it: we wait for its end.
    let _heard = signal(SignalKind::interrupt())?;
    command.current_dir(&workspace).envs(here.work.env(slug));
    let ended = here.work.while_renewing(slug, || command.status())?;
    let program = Path::new(command.get_program()).display();
    let status = ended.map_err(|error| {
        Error::failed(format!("cannot run {program}: {error}"))
            .next(format!("command -v {}", quoted(program)))
    })?;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    // The command may have ended the work session itself; only that somebody else has it now is a loss.
    let lost = here.work.check_own(slug).err().filter(|error| error.kind == Kind::Claimed);
    Ok(Ended { code: u8::try_from(code).unwrap_or(1), lost })
}

pub(super) fn heartbeat(here: &Here<'_>, one: One) -> anyhow::Result<()> {
    let slug = here.meant(one)?;
    let record = here.work.heartbeat(&slug)?;
    let until = record.claim.lapses_at();
    let more = json!({ "until": until.to_string(), "fence": record.claim.fence });
    let told = format!("{slug} is yours {}", self::until(here.output, until));
    here.tell(&slug, State::Active, more, &[], &told)
}

/// Says how long something lasts: to whoever looks, for how long yet; to a program, until when.
fn until(output: &Output, until: Timestamp) -> String {
    if output.is_terminal() {
        format!("for {}", lease_left(&until.to_string(), now()))
    } else {
        format!("until {until}")
    }
}

pub(super) fn release(here: &Here<'_>, one: One, reason: Option<&str>) -> anyhow::Result<()> {
    let slug = here.meant(one)?;
    let notices = here.work.release(&slug, reason)?;
    here.tell(
        &slug,
        State::Planned,
        json!({}),
        &notices,
        &format!("{slug} is given back: it is planned again"),
    )
}

pub(super) fn abandon(here: &Here<'_>, one: One, reason: &str) -> anyhow::Result<()> {
    let slug = here.meant(one)?;
    let notices = here.work.abandon(&slug, reason)?;
    here.tell(&slug, State::Abandoned, json!({}), &notices, &format!("{slug} is abandoned"))?;
    here.next(&format!("`sess work retry {slug}` plans it anew"));
    Ok(())
}

pub(super) fn amend(here: &Here<'_>, one: One, reason: &str, file: Option<&Path>) -> anyhow::Result<()> {
    let slug = here.meant(one)?;
    let otherwise = format!("sess work amend {slug} --file <file> --reason …");
    let piped =
        |command: &str| format!("{command} | sess work amend {slug} --file - --reason {}", quoted(reason));
    let text = file.map(|file| text_of(file, &otherwise, piped)).transpose()?;
    let record = here.work.amend(&slug, text.as_deref(), reason)?;
    let amendments = &record.claim.amendments;
    // One that was only gone is as it was.
    let is_amended = amendments.last().is_some_and(|last| last.reason == reason.trim());
    let told = match is_amended {
        true => format!("the plan of {slug} is amended; what it was, and why, stays on record"),
        false => format!("the plan of {slug} is on its branch again, as it was"),
    };
    here.tell(&slug, State::Active, json!({ "amendments": amendments }), &[], &told)
}

pub(super) fn complete(here: &Here<'_>, one: One, notes: Option<String>) -> anyhow::Result<()> {
    let slug = here.meant(one)?;
    let notes = match notes {
        Some(given) if Path::new(&given).is_file() => {
            let piped = |command: &str| format!("sess work complete {slug} --notes \"$({command})\"");
            Some(text_of(Path::new(&given), "", piped)?)
        }
        notes => notes,
    };
    let done = here.work.complete(&slug, notes.as_deref())?;
    tell_completed(here, &slug, &done)
}

pub(super) fn tell_completed(
    here: &Here<'_>,
    slug: &Slug,
    done: &sess_work::Completed,
) -> anyhow::Result<()> {
    let Record { claim, .. } = &done.record;
    let commit = claim.landed.as_ref().map(|landed| landed.commit.as_str());
    let base = here.work.repo().base();
    let (state, told) = match claim.phase {
        Phase::Landing => (State::Active, format!("{slug} is done, and waits to be merged")),
        _ => (State::Completed, format!("{slug} is completed: its work is on {base}")),
    };
    let more = json!({ "commit": commit, "base": base, "kb": done.kb });
    here.tell(slug, state, more, &done.notices, &told)?;
    if let Some(kb) = &done.kb {
        let when = if claim.waits() { "comes with it" } else { "is there for it" };
        here.next(&format!("what was learned is to be merged: {kb} {when}"));
    }
    Ok(())
}
