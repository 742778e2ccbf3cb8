//! `work_list`: the work sessions of the repository.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Annotations, Tool, Toolset};
use crate::{App, Caller, Error, Result};

pub(super) struct WorkList;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// Only this state: drafting, planned, active, completed or abandoned.
    #[serde(default)]
    state: Option<String>,
    /// Only those that can be claimed now.
    #[serde(default)]
    ready: Option<bool>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct WorkRows {
    work_sessions: Vec<WorkRow>,
    /// The remote could not be reached: this is what it said last.
    is_old: bool,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct WorkRow {
    slug: String,
    state: String,
    title: String,
    /// It can be claimed now.
    ready: bool,
    labels: Vec<String>,
    /// What it depends on and is not completed.
    waits_for: Vec<String>,
    /// Who has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    /// When its lease ends, unless it is renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
    /// Its lease has lapsed.
    stale: bool,
    /// It is yours.
    mine: bool,
    /// What else there is to know, such as that its work is done and waits to be merged.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    /// The last line of its worklog.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_log: Option<String>,
}

#[async_trait]
impl Tool for WorkList {
    const NAME: &'static str = "work_list";
    const TITLE: &'static str = "List Work Sessions";
    const DESCRIPTION: &'static str = "List the work sessions of this repository: planned pieces of work that agents claim, with their \
         state, who has them and until when. ready: true shows what you can claim with work_claim.";
    const TOOLSET: Toolset = Toolset::Work;
    const ANNOTATIONS: Annotations = Annotations::READ_ONLY;
    type Args = Args;
    type Output = WorkRows;

    async fn call(app: &App, caller: &Caller, args: Args, _: Option<String>) -> Result<(String, WorkRows)> {
        let state =
            args.state.as_deref().map(str::parse::<sess_work::State>).transpose().map_err(Error::Invalid)?;
        let is_ready = args.ready.unwrap_or(false);
        let (rows, is_old) = app
            .at_work(caller, |work| {
                let seen = work.see_or_recall()?;
                Ok((work.list(&seen)?, seen.view.is_old))
            })
            .await?;
        let rows = rows.into_iter();
        let wanted =
            rows.filter(|row| state.is_none_or(|state| row.state == state) && (!is_ready || row.ready));
        let work_sessions: Vec<WorkRow> = wanted.map(row).collect();
        let mut text: String = work_sessions.iter().map(line).collect();
        if text.is_empty() {
            "no work sessions\n".clone_into(&mut text);
        }
        Ok((text, WorkRows { work_sessions, is_old }))
    }
}

fn row(row: sess_work::Row) -> WorkRow {
    let holder = row.holder;
    let waits = holder.as_ref().is_some_and(|holder| holder.waits);
    WorkRow {
        slug: row.slug.to_string(),
        state: row.state.to_string(),
        title: row.title,
        ready: row.ready,
        labels: row.labels,
        waits_for: row.waits_for,
        stale: holder.as_ref().is_some_and(|holder| holder.stale),
        mine: holder.as_ref().is_some_and(|holder| holder.mine),
        until: holder.as_ref().map(|holder| holder.until.clone()),
        owner: holder.map(|holder| match holder.agent {
            Some(agent) => format!("{agent} of {}", holder.name),
            None => holder.name,
        }),
        note: waits.then(|| "it is done, and waits to be merged".to_owned()).or(row.note),
        last_log: row.last_log,
    }
}

fn line(row: &WorkRow) -> String {
    let who = match (&row.owner, row.mine, row.ready) {
        (Some(_), true, _) => ", yours".to_owned(),
        (Some(owner), false, _) => format!(", claimed by {owner}"),
        (None, _, true) => ", can be claimed".to_owned(),
        (None, _, false) => String::new(),
    };
    let note = row.note.as_ref().map(|note| format!("; {note}")).unwrap_or_default();
    format!("{} ({}{who}{note}): {}\n", row.slug, row.state, row.title)
}
