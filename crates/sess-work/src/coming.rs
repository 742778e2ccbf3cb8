//! Verbs whose modules are written elsewhere: the shapes of their answers, and nothing behind them.

use std::path::Path;

use serde::Serialize;

use crate::{Amendment, Claimed, Error, Result, Slug, State, Work};

#[derive(Clone, Copy, Debug, Default)]
pub struct InitOptions {
    pub hooks: bool,
    pub scripts: bool,
}

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InitReport {
    pub changed: Vec<String>,
    pub notices: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Checkup {
    pub rows: Vec<CheckRow>,
    pub findings: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckRow {
    pub slug: String,
    pub directory: Option<State>,
    pub claim: Option<String>,
    pub meaning: String,
    pub next: Option<String>,
    pub repaired: bool,
}

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Gc {
    pub archived: usize,
    pub workspaces: Vec<GcItem>,
    pub refs: usize,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GcItem {
    pub path: String,
    pub bytes: u64,
    pub removed: bool,
    pub reason: String,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Drift {
    pub slug: Slug,
    pub state: State,
    pub criteria: Vec<DriftCriterion>,
    pub files: DriftFiles,
    pub subsessions: Vec<String>,
    pub amendments: Vec<Amendment>,
    pub time: DriftTime,
}

#[derive(Clone, Debug, Serialize)]
pub struct DriftCriterion {
    pub text: String,
    pub done: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct DriftFiles {
    pub changed: Vec<String>,
    pub outside: Vec<String>,
    pub shared: Vec<SharedFile>,
}

#[derive(Clone, Debug, Serialize)]
pub struct SharedFile {
    pub path: String,
    pub with: Vec<Slug>,
}

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DriftTime {
    pub spent_minutes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate_minutes: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    pub slug: Slug,
    pub state: State,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Blame {
    pub commit: String,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KbEntry {
    pub path: String,
    pub title: String,
    pub bytes: u64,
}

fn not_here<T>() -> Result<T> {
    Err(Error::failed("this verb is not built into this program").next("sess work list"))
}

impl Work {
    pub fn init(&self, _options: &InitOptions) -> Result<InitReport> {
        self.roll_forward()?;
        Ok(InitReport::default())
    }

    pub fn hook(&self, _name: &str, _args: &[String]) -> Result<()> {
        Ok(())
    }

    pub fn doctor(&self, repair: bool) -> Result<Checkup> {
        let seen = if repair { self.roll_forward()? } else { self.see()? };
        let rows = self.list(&seen)?.into_iter().map(|row| CheckRow {
            slug: row.slug.to_string(),
            directory: seen.tree.state(&row.slug),
            claim: row.holder.map(|holder| holder.name),
            meaning: row.note.unwrap_or_else(|| row.state.to_string()),
            next: None,
            repaired: false,
        });
        Ok(Checkup { rows: rows.collect(), findings: Vec::new() })
    }

    pub fn gc(&self, _dry_run: bool) -> Result<Gc> {
        Ok(Gc { archived: self.archive()?, ..Gc::default() })
    }

    pub fn uninstall(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    pub fn drift(&self, slug: &Slug) -> Result<Drift> {
        let shown = self.show(slug, &self.see_or_recall()?)?;
        let criteria = shown.criteria.into_iter();
        Ok(Drift {
            slug: slug.clone(),
            state: shown.row.state,
            criteria: criteria
                .map(|criterion| DriftCriterion { text: criterion.text, done: criterion.done, change: None })
                .collect(),
            files: DriftFiles::default(),
            subsessions: Vec::new(),
            amendments: Vec::new(),
            time: DriftTime::default(),
        })
    }

    pub fn status(&self, slug: &Slug) -> Result<Status> {
        let shown = self.show(slug, &self.see_or_recall()?)?;
        Ok(Status { slug: slug.clone(), state: shown.row.state })
    }

    pub fn context(&self, slug: &Slug, bytes_max: usize) -> Result<String> {
        let mut plan = self.show(slug, &self.see_or_recall()?)?.plan;
        while plan.len() > bytes_max {
            plan.pop();
        }
        Ok(plan)
    }

    pub fn blame(&self, _file: &str, _line: u64) -> Result<Blame> {
        not_here()
    }

    pub fn adopt(&self, _path: Option<&Path>, _title: Option<&str>) -> Result<Claimed> {
        not_here()
    }

    pub fn kb_list(&self) -> Result<Vec<KbEntry>> {
        Ok(Vec::new())
    }

    pub fn kb_show(&self, _path: &str) -> Result<String> {
        not_here()
    }

    pub fn kb_merge(&self, _topic: &str) -> Result<Slug> {
        not_here()
    }
}
