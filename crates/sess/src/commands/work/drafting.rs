//! Plans before anybody works by them: new, edit, ready, unready, retry.

use std::path::Path;

use anyhow::{Context as _, bail};
use serde_json::json;
use sess_work::{Brief, Draft, State};

use super::{Here, text_of};
use crate::{
    cli::work::{New, One},
    output::Usage,
};

pub(super) fn new(here: &Here<'_>, args: New) -> anyhow::Result<()> {
    let text = args.from.as_deref().map(text_of).transpose()?;
    let title = match (args.title, &text) {
        (Some(title), _) => title,
        (None, Some(text)) => Brief::parse(text)?.title,
        (None, None) if args.slug.is_some() => String::new(),
        (None, None) => return Err(Usage("a title is missing: sess work new \"<title>\"".to_owned()).into()),
    };
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
    let (new, kept) = match file {
        Some(file) => (text_of(file)?, None),
        None => {
            let (text, file) = edited(here, &old)?;
            (text, Some(file))
        }
    };
    let is_same = new == old;
    if !is_same && let Err(error) = here.work.edit(&slug, Some(&before), &new) {
        if let Some(Ok((_, path))) = kept.map(tempfile::NamedTempFile::keep) {
            here.output.say(&format!("what you wrote is kept in {}", path.display()));
        }
        return Err(error.into());
    }
    let state = here.state(&slug)?.unwrap_or(State::Drafting);
    let told = if is_same { "is as it was" } else { "is changed" };
    here.tell(&slug, state, json!({ "changed": !is_same }), &[], &format!("the plan of {slug} {told}"))
}

/// Lets the person change a text; the file is there until it is dropped.
fn edited(here: &Here<'_>, old: &str) -> anyhow::Result<(String, tempfile::NamedTempFile)> {
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
        bail!("the editor {editor} ended with {status}; the plan is as it was");
    }
    let new = std::fs::read_to_string(file.path()).context("cannot read back what you wrote")?;
    Ok((new, file))
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
