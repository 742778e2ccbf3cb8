//! What is known: the knowledge base, what an agent needs to begin, where a line of code comes from.

use serde_json::json;
use sess_work::{Error, State};

use super::{Here, listing::describe, size_of};
use crate::cli::work::{Kb, One};

pub(super) fn kb(here: &Here<'_>, args: Kb) -> anyhow::Result<()> {
    match args {
        Kb::List => {
            let pages = here.work.kb_list()?;
            if here.output.json {
                return here.output.data(&json!({ "pages": pages }));
            }
            if pages.is_empty() {
                here.output
                    .say("the knowledge base is empty; `sess work learn` writes down what was learned");
                return Ok(());
            }
            let rows: Vec<Vec<String>> = pages
                .iter()
                .map(|page| vec![page.path.clone(), size_of(page.bytes), page.title.clone()])
                .collect();
            here.output.table(&["PAGE", "SIZE", "TITLE"], 2, &rows)
        }
        Kb::Show { path } => {
            let text = here.work.kb_show(&path)?;
            if here.output.json {
                return here.output.data(&json!({ "path": path, "text": text }));
            }
            here.output.foreign(&text)
        }
        Kb::Merge { topic } => {
            let slug = here.work.kb_merge(&topic)?;
            let state = here.state(&slug)?.unwrap_or(State::Planned);
            here.tell(&slug, state, json!({}), &[], slug.as_str())
        }
    }
}

pub(super) fn context(here: &Here<'_>, one: One, bytes: usize) -> anyhow::Result<()> {
    let slug = here.meant(one)?;
    let text = here.work.context(&slug, bytes)?;
    if here.output.json {
        let state = here.state(&slug)?.unwrap_or(State::Active);
        return here.tell(&slug, state, json!({ "context": text }), &[], "");
    }
    here.output.foreign(&text)
}

pub(super) fn blame(here: &Here<'_>, place: &str) -> anyhow::Result<()> {
    let parsed = place.rsplit_once(':').and_then(|(file, line)| Some((file, line.parse::<u64>().ok()?)));
    let Some((file, line)) = parsed.filter(|(file, line)| !file.is_empty() && *line > 0) else {
        let what = format!("{place:?} names no line: expected a file and a number, such as src/main.rs:42");
        return Err(Error::usage(what).next("sess work blame <file>:<line>").into());
    };
    let blame = here.work.blame(file, line)?;
    if here.output.json {
        return here.output.data(&blame);
    }
    describe(here, &serde_json::to_value(&blame)?)
}
