//! Plans before anybody works by them: new, edit, ready, unready, retry.

use std::path::Path;

use anyhow::Context as _;
use serde_json::json;
use sess_work::{Brief, Draft, Error, Kind, Slug, State, quoted};

use super::{Here, text_of};
use crate::cli::work::{New, One};

/// How a plan is drafted without a file.
const WITH_TITLE: &str = "sess work new \"<title>\"";

pub(super) fn new(here: &Here<'_>, args: New) -> anyhow::Result<()> {
    let text = args.from.as_deref().map(|file| {
        let text = text_of(file, WITH_TITLE, |command| format!("{command} | sess work new --from -"))?;
        Brief::parse(&text)
            .map_err(|error| error.next(corrected(file, "sess work new --from").unwrap_or(WITH_TITLE.into())))
            .map(|brief| (text, brief))
    });
    let (text, brief) = text.transpose()?.unzip();
    let title = args.title.or(brief.map(|brief: Brief| brief.title)).unwrap_or_default();
    let draft = Draft {
        title,
        context: args.context,
        criteria: args.criteria,
        labels: args.labels,
        depends: args.depends,
        parent: None,
    };
    let slug = here.work.draft(args.slug.as_ref(), &draft, text.as_deref())?;
    // The name alone, for `slug=$(sess work new …)`.
    here.tell(&slug, State::Drafting, json!({}), &[], slug.as_str())?;
    here.next(&format!(
        "drafted; `sess work edit {slug}` works it out, `sess work ready {slug}` publishes it"
    ));
    Ok(())
}

pub(super) fn edit(here: &Here<'_>, one: One, file: Option<&Path>) -> anyhow::Result<()> {
    let slug = here.meant(one)?;
    let (before, old) = here.work.editable(&slug)?;
    let (new, written) = match file {
        Some(file) => {
            let otherwise = format!("sess work edit {slug}");
            let piped = |command: &str| format!("{command} | sess work edit {slug} --file -");
            (text_of(file, &otherwise, piped)?, None)
        }
        None => {
            let file = edited(here, &slug, &old)?;
            match text_of(file.path(), "", str::to_owned) {
                Ok(text) => (text, Some(file)),
                Err(error) => return Err(kept(&slug, file, error).into()),
            }
        }
    };
    let is_same = new == old;
    if !is_same && let Err(error) = here.work.edit(&slug, before.as_ref(), &new) {
        return Err(match written {
            Some(file) => kept(&slug, file, error),
            None => error,
        }
        .into());
    }
    let state = here.state(&slug)?.unwrap_or(State::Drafting);
    let told = if is_same { "is as it was" } else { "is changed" };
    here.tell(&slug, state, json!({ "changed": !is_same }), &[], &format!("the plan of {slug} {told}"))
}

/// Leaves what a person wrote where they find it, and says how to go on with it.
fn kept(slug: &Slug, file: tempfile::NamedTempFile, error: Error) -> Error {
    match file.keep() {
        Ok((_, path)) => {
            let message = format!("{}; what you wrote is kept in {}", error.message(), path.display());
            let edit = format!("sess work edit {slug} --file");
            // What cannot be read has to be changed first.
            let again = corrected(&path, &edit).filter(|_| error.kind == Kind::Usage);
            let again = again.unwrap_or_else(|| format!("{edit} {}", quoted(path.display())));
            Error::new(error.kind, message).next(again)
        }
        Err(_) => error,
    }
}

/// Returns what opens a file in an editor, and gives it to a command then; nothing for standard input.
fn corrected(file: &Path, command: &str) -> Option<String> {
    let path = quoted(file.display());
    (file.as_os_str() != "-").then(|| format!("${{EDITOR:-vi}} {path} && {command} {path}"))
}

/// Lets the person change a text; the file is there until it is dropped.
fn edited(here: &Here<'_>, slug: &Slug, old: &str) -> anyhow::Result<tempfile::NamedTempFile> {
    let variable = |name: &str| {
        let set = here.context.env.iter().find(|(key, value)| key == name && !value.is_empty());
        set.map(|(_, value)| value.as_str())
    };
    let editor = variable("VISUAL").or(variable("EDITOR")).unwrap_or("vi");
    let mut file = tempfile::Builder::new().prefix("SESSION-").suffix(".md").tempfile()?;
    std::io::Write::write_all(&mut file, old.as_bytes())?;
    // The variable may hold arguments: `code --wait`.
    let status = std::process::Command::new("sh")
        .args(["-c", &format!("{editor} \"$1\""), "sh"])
        .arg(file.path())
        .status()
        .with_context(|| format!("cannot start the editor {editor}"))?;
    if !status.success() {
        let what = format!("the editor {editor} ended with {status}, and the plan is as it was");
        return Err(Error::failed(what).next(format!("sess work edit {slug} --file <file>")).into());
    }
    Ok(file)
}

pub(super) fn ready(here: &Here<'_>, one: One) -> anyhow::Result<()> {
    let slug = here.meant(one)?;
    here.work.ready(&slug)?;
    here.tell(&slug, State::Planned, json!({}), &[], &format!("{slug} is planned: anybody can claim it"))
}

pub(super) fn unready(here: &Here<'_>, one: One) -> anyhow::Result<()> {
    let slug = here.meant(one)?;
    here.work.unready(&slug)?;
    here.tell(&slug, State::Drafting, json!({}), &[], &format!("{slug} is a draft again"))
}

pub(super) fn retry(here: &Here<'_>, one: One) -> anyhow::Result<()> {
    let slug = here.meant(one)?;
    let attempt = here.work.retry(&slug)?;
    let told = format!("{slug} is planned again, for attempt {attempt}");
    here.tell(&slug, State::Planned, json!({ "attempt": attempt }), &[], &told)
}
