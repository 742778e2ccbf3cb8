//! What there is: lists, and one work session in full.

use console::Style;
use serde_json::json;
use sess_core::Timestamp;
use sess_work::{Holder, Row};

use super::{Here, holder_of, lease_of, style_of};
use crate::{
    cli::work::{List, One},
    config::now,
    output::{Output, ago, one_line},
};

pub(super) fn list(here: &Here<'_>, args: &List) -> anyhow::Result<()> {
    let seen = here.work.see_or_recall()?;
    let mut rows = here.work.list(&seen)?;
    rows.retain(|row| args.state.is_none_or(|state| row.state == state) && (!args.ready || row.ready));
    if here.output.json {
        return here.output.data(&json!({ "workSessions": rows, "isOld": seen.view.is_old }));
    }
    here.tell_old();
    if rows.is_empty() {
        here.output.say("there are none; `sess work new \"<title>\"` drafts one");
        return Ok(());
    }
    let now = now();
    // Who has what, and for how long, is worth two columns only when somebody has something.
    let is_held = rows.iter().any(|row| row.holder.is_some());
    let is_terminal = here.output.is_terminal();
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let mut cells = vec![row.state.to_string(), row.slug.to_string()];
            if is_held {
                let holder = row.holder.as_ref();
                cells.push(holder.map(holder_of).unwrap_or_default());
                cells.push(holder.map(|holder| lease_of(holder, now)).unwrap_or_default());
            }
            cells.push(if is_terminal { titled(row) } else { about(row) });
            cells
        })
        .collect();
    // A column would cut what is in its way.
    let below: Vec<Vec<String>> = rows.iter().filter(|_| is_terminal).map(in_its_way).collect();
    let header: &[&str] = if is_held {
        &["STATE", "WORK SESSION", "WHO", "LEASE", "TITLE"]
    } else {
        &["STATE", "WORK SESSION", "TITLE"]
    };
    here.output.rows(header, header.len() - 1, &cells, &below, &|row, column| match column {
        0 => style_of(rows[row].state),
        3 if rows[row].holder.as_ref().is_some_and(|holder| holder.stale) => Style::new().red(),
        _ => Style::new(),
    })
}

/// Says what a work session is about, and what is in its way.
fn about(row: &Row) -> String {
    std::iter::once(titled(row)).chain(in_its_way(row)).collect::<Vec<_>>().join(" — ")
}

fn titled(row: &Row) -> String {
    match row.labels.as_slice() {
        [] => row.title.clone(),
        labels => format!("{} [{}]", row.title, labels.join(", ")),
    }
}

fn in_its_way(row: &Row) -> Vec<String> {
    let waits = (!row.waits_for.is_empty()).then(|| format!("waits for {}", row.waits_for.join(", ")));
    waits.into_iter().chain(row.note.clone()).collect()
}

pub(super) fn show(here: &Here<'_>, one: One) -> anyhow::Result<()> {
    let slug = here.meant(one)?;
    let seen = here.work.see_or_recall()?;
    let shown = here.work.show(&slug, &seen)?;
    if here.output.json {
        return here.output.data(&shown);
    }
    let (output, row, now) = (here.output, &shown.row, now());
    let field = |name: &str, value: &str| output.field(name, &one_line(value));
    output.line(&Style::new().bold().apply_to(one_line(&row.title)).to_string())?;
    field("name", slug.as_str())?;
    let state = style_of(row.state).apply_to(row.state);
    output.field("state", &format!("{state}{}", if row.ready { ", can be claimed" } else { "" }))?;
    tell_holder(here, row.holder.as_ref())?;
    field("labels", &row.labels.join(", "))?;
    field("depends on", &row.depends.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))?;
    field("waits for", &row.waits_for.join(", "))?;
    field("parent", row.parent.as_ref().map(sess_work::Slug::as_str).unwrap_or_default())?;
    field("branch", shown.branch.as_deref().unwrap_or_default())?;
    field("workspace", shown.workspace.as_deref().unwrap_or_default())?;
    field("agents", &shown.sessions.join(", "))?;
    field("note", row.note.as_deref().unwrap_or_default())?;
    for (n, past) in shown.history.iter().enumerate() {
        let by = past
            .agent
            .as_ref()
            .map_or_else(|| past.name.clone(), |agent| format!("{agent} of {}", past.name));
        let reason = past.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        let told = format!(
            "{} by {by}, fence {}, {}{reason}",
            past.phase.as_str(),
            past.fence,
            when(output, &past.at, now)
        );
        output.field(if n == 0 { "history" } else { " " }, &one_line(&told))?;
    }
    output.line("")?;
    output.markdown(&ended(&shown.plan))?;
    if let Some(worklog) = &shown.worklog {
        output.line("")?;
        output.markdown(&ended(worklog))?;
    }
    Ok(())
}

/// Says who has a work session, since when, and for how long yet.
pub(super) fn tell_holder(here: &Here<'_>, holder: Option<&Holder>) -> anyhow::Result<()> {
    let Some(holder) = holder else { return Ok(()) };
    let since = when(here.output, &holder.since, now());
    let who = format!("{} on {}, claimed {since}", holder_of(holder), holder.host);
    here.output.field("who", &one_line(&who))?;
    let left = lease_of(holder, now());
    let left = if holder.stale {
        Style::new().red().apply_to(left)
    } else if holder.waits {
        Style::new().apply_to(left)
    } else {
        Style::new().apply_to(format!("{left} left"))
    };
    here.output.field("lease", &format!("{left}, fence {}, attempt {}", holder.fence, holder.attempt))
}

/// Says when something was: how long ago to whoever looks, and the time itself to a program.
pub(super) fn when(output: &Output, at: &str, now: Timestamp) -> String {
    match Timestamp::parse_rfc3339(at).filter(|_| output.is_terminal()) {
        Some(at) => ago(at, now),
        None => at.to_owned(),
    }
}

fn ended(text: &str) -> String {
    format!("{}\n", text.trim_end())
}
