//! `sess handoff`: going on with a session elsewhere.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Serialize;
use sess_app::{Handoff, handoff::begin_command};
use sess_work::quoted;

use super::{Context, progress::Progress};
use crate::{cli, output::Output, private};

/// What `--json` prints.
#[derive(Serialize)]
struct Printed {
    #[serde(flatten)]
    handoff: Handoff,
    /// Where the bundle is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<PathBuf>,
    /// What goes on elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<String>,
    /// What to say in an agent that no command begins a session of.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<String>,
    /// What goes on in the session's own agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    resume: Option<String>,
}

pub async fn run(context: &Context, output: &Output, args: cli::Handoff) -> anyhow::Result<()> {
    let progress = Progress::new("reading");
    let handoff = context.app.handoff(&context.caller, &args.one.reference, context.redaction).await?;
    drop(progress);
    let is_dir_masked = handoff.dir.is_none() && handoff.session.cwd.is_some();
    let dir = handoff.dir.clone().filter(can_be_named);
    let is_dir_odd = handoff.dir.is_some() && dir.is_none();
    let id = handoff.session.id.split_once(':').map_or(&*handoff.session.id, |(_, id)| id).to_owned();
    let resume = handoff.resume.as_ref().map(|words| line(dir.as_deref(), words));
    let mut printed = Printed { handoff, path: None, command: None, prompt: None, resume };
    if let Some(to) = args.to {
        let path = keep(&context.home()?.join("handoffs"), &id, &printed.handoff.bundle)?;
        let prompt = format!("Read {} and go on from there.", path.display());
        match begin_command(to, &prompt) {
            Some(words) => printed.command = Some(line(dir.as_deref(), &words)),
            None => {
                output.say(&format!("{to} is not started with a prompt: open it, and say what follows"));
                printed.prompt = Some(prompt);
            }
        }
        printed.path = Some(path);
    }
    let why = match (is_dir_masked, is_dir_odd) {
        (true, _) => Some("has a secret, so the command does not change there; --no-redact shows it"),
        (_, true) => Some("cannot be written in a line, so the command does not change there"),
        (false, false) => None,
    };
    if let Some(why) = why
        && (printed.command.is_some() || printed.resume.is_some())
    {
        output.notice(&format!("the name of its directory {why}"));
    }
    if output.json {
        return output.data(&printed);
    }
    match printed.command.as_ref().or(printed.prompt.as_ref()) {
        Some(line) => output.line(line)?,
        None => {
            output.foreign(&printed.handoff.bundle)?;
            if let Some(resume) = &printed.resume {
                output.say(&format!("in its own agent: {resume}"));
            }
            output.say("with --to <agent>, the command that goes on there");
        }
    }
    if printed.handoff.redacted > 0 {
        output.say(&format!("{} secret(s) masked; --no-redact shows them", printed.handoff.redacted));
    }
    Ok(())
}

/// Whether a shell that is told in a line to change to a directory finds it, from wherever it is.
fn can_be_named(dir: &String) -> bool {
    Path::new(dir).is_absolute() && !dir.contains(char::is_control)
}

/// Writes a command as a line for the shell.
fn line(dir: Option<&str>, words: &[String]) -> String {
    let command = words.iter().map(quoted).collect::<Vec<_>>().join(" ");
    match dir {
        Some(dir) => format!("cd {} && {command}", quoted(dir)),
        None => command,
    }
}

/// Keeps a bundle where only its owner reads it. The last one of a session counts.
fn keep(dir: &Path, id: &str, bundle: &str) -> anyhow::Result<PathBuf> {
    let path = dir.join(format!("{id}.md"));
    private::write(&path, bundle.as_bytes())
        .with_context(|| format!("the bundle cannot be kept in {}", dir.display()))?;
    Ok(path)
}
