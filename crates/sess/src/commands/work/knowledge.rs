//! What is known: the knowledge base, and what an agent needs to begin.

use console::Style;
use serde_json::json;
use sess_work::State;

use super::{Here, size_of};
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
                .map(|page| vec![size_of(page.bytes), page.path.clone(), page.title.clone()])
                .collect();
            here.output.rows(&["SIZE", "PAGE", "TITLE"], 2, &rows, &[], &|_, _| Style::new())
        }
        Kb::Show { path } => {
            let text = here.work.kb_show(&path)?;
            if here.output.json {
                return here.output.data(&json!({ "path": path, "text": text }));
            }
            here.output.markdown(&text)
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
    let (text, notices) = here.work.context(&slug, bytes)?;
    if here.output.json {
        let state = here.state(&slug)?.unwrap_or(State::Active);
        return here.tell(&slug, state, json!({ "context": text }), &notices, "");
    }
    here.notice(&notices);
    here.output.markdown(&text)
}
