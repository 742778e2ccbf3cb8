//! What is done while the work goes on: notes, and meeting the base branch.

use serde_json::json;
use sess_work::{Note, State};

use super::{Here, text_of};
use crate::cli::work::{Note as Args, One};

fn words(note: Note, text: String) -> anyhow::Result<String> {
    if text != "-" {
        return Ok(text);
    }
    let otherwise = format!("sess work {} \"<text>\"", note.verb());
    Ok(text_of("-".as_ref(), &otherwise, str::to_owned)?)
}

pub(super) fn note(here: &Here<'_>, note: Note, args: Args) -> anyhow::Result<()> {
    let slug = here.meant_by(args.slug)?;
    let notices = here.work.note(&slug, note, &words(note, args.text)?)?;
    let place = note.file();
    let told = format!("written down in {place} of {slug}");
    here.tell(&slug, State::Active, json!({ "file": place }), &notices, &told)
}

pub(super) fn sub(here: &Here<'_>, args: Args, is_new: bool) -> anyhow::Result<()> {
    let slug = here.meant_by(args.slug)?;
    let (drafted, notices) = here.work.sub(&slug, &words(Note::Sub, args.text)?, is_new)?;
    let place = Note::Sub.file();
    let told = match &drafted {
        Some(new) => format!("written down in {place} of {slug}, and drafted as {new}"),
        None => format!("written down in {place} of {slug}"),
    };
    let more = json!({ "file": place, "drafted": drafted });
    here.tell(&slug, State::Active, more, &notices, &told)
}

pub(super) fn sync(here: &Here<'_>, one: One) -> anyhow::Result<()> {
    let slug = here.meant(one)?;
    let commit = here.work.sync(&slug)?;
    let told = format!("{} has all of {}", slug.branch(), here.work.repo().base());
    here.tell(&slug, State::Active, json!({ "commit": commit.as_str() }), &[], &told)
}

pub(super) fn land(here: &Here<'_>, one: One) -> anyhow::Result<()> {
    let slug = here.meant(one)?;
    let commit = here.work.land(&slug)?;
    let base = here.work.repo().base();
    let told = format!("the work of {slug} so far is on {base}, as {}", commit.short());
    here.tell(&slug, State::Active, json!({ "commit": commit.as_str(), "base": base }), &[], &told)
}
