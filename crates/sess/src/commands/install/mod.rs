//! `sess install` and `sess uninstall`: the tools, in the configuration of other programs.
//!
//! Each host is one small file that says what it needs (`host`). An edit is text that is put into a document and can
//! be taken out again (`document`, `json`, `toml`, `yaml`). All files of a host are decided on before the first is
//! written (`change`), and what was there before is kept (`record`).

mod change;
mod claude;
mod codex;
mod cursor;
mod document;
mod files;
mod gemini;
mod goose;
mod host;
mod json;
mod opencode;
mod record;
mod toml;
mod yaml;
mod zed;

#[cfg(test)]
mod tests;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, Error};
use clap::ValueEnum as _;
use serde::Serialize;
use serde_json::json;
use sess_app::Redaction;

use self::{
    change::{Action, Change},
    host::Machine,
    record::{Dirs, Record},
};
use super::Context;
use crate::{
    cli::{self, HostName},
    output::{Output, Usage},
};

const WAITS: &str = "waiting for another install or uninstall to end";

/// What became of one file.
#[derive(Serialize)]
struct Row {
    host: &'static str,
    path: PathBuf,
    action: Action,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<String>,
}

pub fn install(context: &Context, output: &Output, args: &cli::Install) -> anyhow::Result<ExitCode> {
    let data = context.home()?;
    let none = || Usage("HOME is not set: hosts keep their configuration there".to_owned());
    let homes = context.app.settings().homes.as_ref().ok_or_else(none)?;
    let program = program(context)?;
    let machine = Machine { homes, program: &program };
    let path = variable(context, "PATH");
    let is_found = |host: &HostName| {
        let needs = host::needs(*host, &machine);
        needs.traces.iter().any(|trace| trace.exists()) || on_path(path, needs.command).is_some()
    };
    let hosts = if args.all { all(is_found) } else { named(args, "every one that is found here")? };
    if hosts.is_empty() {
        output.say("none of the hosts was found here; `sess install <host>` installs for one all the same");
    }
    let _lock = (!args.dry_run).then(|| record::lock(data, || output.say(WAITS))).transpose()?;
    each(context, output, args, &hosts, |host| {
        let record = Record::load(data, host.as_str())?.unwrap_or_default();
        let needs = host::needs(host, &machine);
        let changes = needs.files.iter().map(|need| change::install(need, &record));
        let changes = changes.collect::<anyhow::Result<Vec<Change>>>()?;
        if !args.dry_run {
            install_for(data, host, record, &changes)?;
        }
        Ok(changes)
    })
}

pub fn uninstall(context: &Context, output: &Output, args: &cli::Install) -> anyhow::Result<ExitCode> {
    let data = context.home()?;
    // What is installed from now on, while nothing is locked, is not taken out.
    let has_any = record::has_any(data);
    let is_locked = !args.dry_run && has_any;
    let _lock = is_locked.then(|| record::lock(data, || output.say(WAITS))).transpose()?;
    let is_installed = |host: &HostName| has_any && record::has(data, host.as_str());
    let hosts = if args.all { all(is_installed) } else { named(args, "every one that was installed")? };
    if hosts.is_empty() {
        output.say("nothing is installed");
    }
    // Where hosts keep their files says where those are that were moved with them.
    let homes = context.app.settings().homes.as_ref();
    let machine = homes.map(|homes| Machine { homes, program: "" });
    each(context, output, args, &hosts, |host| {
        let record = if has_any { Record::load(data, host.as_str())? } else { None };
        let Some(mut record) = record else {
            output.say(&format!("{}: nothing is installed by `sess install`", host.as_str()));
            return Ok(Vec::new());
        };
        let files = machine.as_ref().map_or_else(Vec::new, |machine| host::needs(host, machine).files);
        let changes = change::uninstall(&record, &files)?;
        if !args.dry_run {
            for change in &changes {
                change.apply()?;
            }
            record.files.clear();
            record.save(data, host.as_str())?;
            let is_last = all(is_installed).is_empty();
            Dirs::load(data)?.remove_empty(data, is_last)?;
        }
        Ok(changes)
    })
}

/// Returns the hosts that were named; without any, says which there are and what `--all` means.
fn named(args: &cli::Install, all_means: &str) -> anyhow::Result<Vec<HostName>> {
    if args.hosts.is_empty() {
        let hosts: Vec<&str> = all(|_| true).into_iter().map(HostName::as_str).collect();
        let text = format!("name a host ({}), or give --all for {all_means}", hosts.join(", "));
        return Err(Usage(text).into());
    }
    Ok(args.hosts.clone())
}

/// Records what will be there, and then makes it so: in this order, what is cut short can be taken back. When a file
/// cannot be written, those before it are as they were.
fn install_for(data: &Path, host: HostName, old: Record, changes: &[Change]) -> anyhow::Result<()> {
    let mut record = Record::default();
    let was = old.clone();
    // A file that is not needed any more, because a variable or a link moved the rest, is still ours to take back.
    let moved = old.files.into_iter().filter_map(|file| change::still_elsewhere(file, changes));
    record.files.extend(changes.iter().filter_map(|change| change.record.clone()).chain(moved));
    record.save(data, host.as_str())?;
    Dirs::load(data)?.add(data, change::missing_dirs(changes))?;
    let write = |change: &Change| {
        if change.after.is_some()
            && let Some(dir) = change.path.parent()
        {
            files::make_dir(dir)?;
        }
        change.apply()
    };
    for (index, change) in changes.iter().enumerate() {
        if let Err(failure) = write(change) {
            return Err(give_up(data, host, &was, &changes[..index], change, failure));
        }
    }
    Ok(())
}

/// Makes it as it was before, and returns why; what is written all the same stays on record.
fn give_up(
    data: &Path,
    host: HostName,
    was: &Record,
    done: &[Change],
    failed: &Change,
    failure: Error,
) -> Error {
    // The one that failed says what was meant if that came late; or somebody else wrote the same, and it is theirs.
    let left = done.iter().rev().filter(|change| change.undo().is_err());
    let left = left.chain(Some(failed).filter(|failed| failed.is_there()));
    let left: Vec<String> = left.map(|change| change.path.display().to_string()).collect();
    if !left.is_empty() {
        let (left, host) = (left.join(" and "), host.as_str());
        return failure
            .context(format!("{left} was written all the same; `sess uninstall {host}` takes it back"));
    }
    let forget = || {
        was.save(data, host.as_str())?;
        let is_last = all(|host| record::has(data, host.as_str())).is_empty();
        Dirs::load(data)?.remove_empty(data, is_last)
    };
    match forget() {
        Ok(()) => failure,
        Err(error) => failure.context(format!("{error:#}")),
    }
}

/// Does it for each host, and says what came of it; the trouble of one is not that of the others.
fn each(
    context: &Context,
    output: &Output,
    args: &cli::Install,
    hosts: &[HostName],
    act: impl Fn(HostName) -> anyhow::Result<Vec<Change>>,
) -> anyhow::Result<ExitCode> {
    let (mut rows, mut errors) = (Vec::new(), Vec::new());
    for &host in hosts {
        match act(host) {
            Ok(changes) => rows.extend(changes.iter().map(|change| row(context, args, host, change))),
            Err(error) => {
                let text = format!("{}: {error:#}", host.as_str());
                output.failed(&text);
                errors.push(text);
            }
        }
    }
    for note in rows.iter().filter_map(|row| row.note.as_deref()) {
        output.notice(note);
    }
    if output.json {
        output.data(&json!({ "dry_run": args.dry_run, "files": rows, "errors": errors }))?;
    } else {
        for row in &rows {
            match &row.diff {
                Some(diff) => output.foreign(diff)?,
                None if args.dry_run => {}
                None => {
                    let (said, path) = (said(row.action), row.path.display());
                    output.line(&format!("{:<9} {said} {path}", row.host))?;
                }
            }
        }
    }
    Ok(if errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn row(context: &Context, args: &cli::Install, host: HostName, change: &Change) -> Row {
    let diff = (args.dry_run && change.before != change.after).then(|| diff(context, change));
    Row {
        host: host.as_str(),
        path: change.path.clone(),
        action: change.action,
        note: change.note.clone(),
        diff,
    }
}

/// Returns what would change, as patches are written. Around it there may be somebody's keys.
fn diff(context: &Context, change: &Change) -> String {
    let shown =
        |bytes: &Option<Vec<u8>>| String::from_utf8_lossy(bytes.as_deref().unwrap_or_default()).into_owned();
    let name = |bytes: &Option<Vec<u8>>| match bytes {
        Some(_) => change.path.display().to_string(),
        None => "/dev/null".to_owned(),
    };
    let (before, after) = (shown(&change.before), shown(&change.after));
    let lines = similar::TextDiff::from_lines(&before, &after);
    let text = lines.unified_diff().header(&name(&change.before), &name(&change.after)).to_string();
    match context.redaction {
        Redaction::Masked => sess_core::redact::redact(&text).0.into_owned(),
        Redaction::None => text,
    }
}

fn said(action: Action) -> &'static str {
    match action {
        Action::Created => "made      ",
        Action::Changed => "added to  ",
        Action::Unchanged => "as it was ",
        Action::LeftAlone => "left alone",
        Action::Restored => "restored  ",
        Action::TakenOut => "taken out ",
        Action::Removed => "removed   ",
    }
}

fn all(is_meant: impl Fn(&HostName) -> bool) -> Vec<HostName> {
    HostName::value_variants().iter().copied().filter(is_meant).collect()
}

/// Returns how hosts start this program: by the path it was called by, which stays the same when what it leads to
/// is replaced by a newer version.
fn program(context: &Context) -> anyhow::Result<String> {
    let own = std::env::current_exe().context("cannot tell where this program is")?;
    let called = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    let named = if called.components().count() > 1 {
        std::path::absolute(&called).ok()
    } else {
        on_path(variable(context, "PATH"), &called.to_string_lossy())
    };
    let is_own = |path: &PathBuf| path.canonicalize().is_ok_and(|path| Some(path) == own.canonicalize().ok());
    let path = named.filter(is_own).unwrap_or(own);
    let text = path.to_str().map(str::to_owned);
    text.with_context(|| format!("{} is not UTF-8 text: install this program elsewhere", path.display()))
}

fn on_path(path: &str, command: &str) -> Option<PathBuf> {
    let dirs = path.split(':').filter(|dir| dir.starts_with('/'));
    dirs.map(|dir| Path::new(dir).join(command)).find(|file| !command.is_empty() && file.is_file())
}

fn variable<'a>(context: &'a Context, name: &str) -> &'a str {
    context.env.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value.as_str())
}
