//! What there is: lists, one work session in full, how it stands, and how far it went from its plan.

use console::Style;
use serde_json::{Value, json};
use sess_work::Row;

use super::{
    Here, holder_of, lease_left,
    repository::{list as items, text, words},
    style_of,
};
use crate::{
    cli::work::{List, One},
    config::now,
    output::{one_line, visible},
};

const HEADER: [&str; 5] = ["STATE", "WORK SESSION", "WHO", "LEASE", "TITLE"];
const TITLE: usize = 4;

pub(super) fn list(here: &Here<'_>, args: &List) -> anyhow::Result<()> {
    let seen = here.work.see_or_recall()?;
    let mut rows = here.work.list(&seen)?;
    rows.retain(|row| args.state.is_none_or(|state| row.state == state) && (!args.ready || row.ready));
    if here.output.json {
        return here.output.data(&json!({ "workSessions": rows, "isOld": seen.view.is_old }));
    }
    if seen.view.is_old {
        here.output.notice("the remote cannot be reached: this is what it said last");
    }
    if rows.is_empty() {
        here.output.say("there are none; `sess work new \"<title>\"` drafts one");
        return Ok(());
    }
    let now = now();
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let holder = row.holder.as_ref();
            vec![
                row.state.to_string(),
                row.slug.to_string(),
                holder.map(holder_of).unwrap_or_default(),
                holder.map(|holder| lease_left(&holder.until, now)).unwrap_or_default(),
                about(row),
            ]
        })
        .collect();
    let lines = here.output.lines(&HEADER, TITLE, &cells, &|row, column| match column {
        0 => style_of(rows[row].state),
        3 if rows[row].holder.as_ref().is_some_and(|holder| holder.stale) => Style::new().red(),
        _ => Style::new(),
    });
    for line in lines {
        here.output.line(&line)?;
    }
    Ok(())
}

/// Says what a work session is about, and what is in its way.
fn about(row: &Row) -> String {
    let mut text = row.title.clone();
    if !row.labels.is_empty() {
        text += &format!(" [{}]", row.labels.join(", "));
    }
    if !row.waits_for.is_empty() {
        text += &format!(" — waits for {}", row.waits_for.join(", "));
    }
    if let Some(note) = &row.note {
        text += &format!(" — {note}");
    }
    text
}

pub(super) fn show(here: &Here<'_>, one: One) -> anyhow::Result<()> {
    let slug = here.meant(one)?;
    let seen = here.work.see_or_recall()?;
    let shown = here.work.show(&slug, &seen)?;
    if here.output.json {
        return here.output.data(&shown);
    }
    let (row, now) = (&shown.row, now());
    let line = |name: &str, value: &str| {
        if value.is_empty() { Ok(()) } else { here.output.line(&format!("{name:<10} {}", one_line(value))) }
    };
    here.output.line(&Style::new().bold().apply_to(one_line(&row.title)).to_string())?;
    let state = style_of(row.state).apply_to(row.state);
    here.output.line(&format!("{:<10} {slug}", "name"))?;
    here.output.line(&format!(
        "{:<10} {state}{}",
        "state",
        if row.ready { ", can be claimed" } else { "" }
    ))?;
    if let Some(holder) = &row.holder {
        let lease = lease_left(&holder.until, now);
        line("who", &format!("{} on {}, since {}", holder_of(holder), holder.host, holder.since))?;
        line("lease", &format!("{lease}, fence {}, attempt {}", holder.fence, holder.attempt))?;
    }
    line("labels", &row.labels.join(", "))?;
    line("depends", &row.depends.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))?;
    line("waits for", &row.waits_for.join(", "))?;
    line("parent", row.parent.as_ref().map(sess_work::Slug::as_str).unwrap_or_default())?;
    line("branch", shown.branch.as_deref().unwrap_or_default())?;
    line("workspace", shown.workspace.as_deref().unwrap_or_default())?;
    line("sessions", &shown.sessions.join(", "))?;
    line("note", row.note.as_deref().unwrap_or_default())?;
    for past in &shown.history {
        let by = past
            .agent
            .as_ref()
            .map_or_else(|| past.name.clone(), |agent| format!("{agent} of {}", past.name));
        let reason = past.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        line(
            "history",
            &format!("{} {} by {by}, fence {}{reason}", past.at, text(&json!(past.phase)), past.fence),
        )?;
    }
    here.output.line("")?;
    here.output.foreign(&ended(&shown.plan))?;
    if let Some(worklog) = &shown.worklog {
        here.output.line("")?;
        here.output.foreign(&ended(worklog))?;
    }
    Ok(())
}

fn ended(text: &str) -> String {
    format!("{}\n", text.trim_end())
}

pub(super) fn status(here: &Here<'_>, one: One) -> anyhow::Result<()> {
    let slug = here.meant(one)?;
    let status = here.work.status(&slug)?;
    if here.output.json {
        return here.output.data(&status);
    }
    describe(here, &serde_json::to_value(&status)?)
}

/// Prints an answer as its fields say it, a line each.
pub(super) fn describe(here: &Here<'_>, data: &Value) -> anyhow::Result<()> {
    for (name, value) in data.as_object().into_iter().flatten() {
        let is_empty = value.as_array().is_some_and(Vec::is_empty);
        if value.is_null() || is_empty {
            continue;
        }
        here.output.line(&format!("{:<12} {}", one_line(&words(name)), one_line(&text(value))))?;
    }
    Ok(())
}

pub(super) fn drift(here: &Here<'_>, one: One) -> anyhow::Result<()> {
    let slug = here.meant(one)?;
    let drift = here.work.drift(&slug)?;
    if here.output.json {
        return here.output.data(&drift);
    }
    for line in drift_lines(&serde_json::to_value(&drift)?) {
        here.output.line(&visible(&line))?;
    }
    Ok(())
}

/// Writes the report of what became of a plan.
fn drift_lines(drift: &Value) -> Vec<String> {
    let mut lines = vec![format!("{} is {}", text(&drift["slug"]), text(&drift["state"]))];
    let criteria: Vec<&Value> = items(&drift["criteria"]).collect();
    let done = criteria.iter().filter(|criterion| criterion["done"] == json!(true)).count();
    lines.push(format!("\ncriteria: {done} of {} done", criteria.len()));
    for criterion in criteria {
        let mark = if criterion["done"] == json!(true) { 'x' } else { ' ' };
        let change = criterion["change"].as_str().map(|change| format!(" ({change})")).unwrap_or_default();
        lines.push(format!("  [{mark}] {}{change}", one_line(&text(&criterion["text"]))));
    }
    let files = &drift["files"];
    let count = |name: &str| items(&files[name]).count();
    lines.push(format!("\nfiles: {} changed, {} outside the plan", count("changed"), count("outside")));
    let outside: Vec<&Value> = items(&files["outside"]).collect();
    for path in items(&files["changed"]) {
        let shared = items(&files["shared"]).find(|shared| shared["path"] == *path);
        let mut note = String::new();
        if outside.contains(&path) {
            note += "  outside the plan";
        }
        if let Some(shared) = shared {
            note += &format!("  also changed by {}", text(&shared["with"]));
        }
        lines.push(format!("  {}{note}", one_line(&text(path))));
    }
    for (name, title) in [("subsessions", "sub-sessions"), ("amendments", "amendments")] {
        let found: Vec<&Value> = items(&drift[name]).collect();
        if found.is_empty() {
            continue;
        }
        lines.push(format!("\n{title}: {}", found.len()));
        for item in found {
            let told = match item.get("reason") {
                Some(reason) => format!("{} {}", text(&item["at"]), text(reason)),
                None => text(item),
            };
            lines.push(format!("  {}", one_line(&told)));
        }
    }
    let time = &drift["time"];
    if let Some(spent) = time["spentMinutes"].as_u64() {
        let of = time["estimateMinutes"].as_u64().map(|of| format!(" of {of} min")).unwrap_or_default();
        lines.push(format!("\ntime: {spent} min{of}"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_names_what_differs_from_the_plan() {
        let drift = json!({
            "slug": "2025-10-14-x", "state": "active",
            "criteria": [
                { "text": "A", "done": true }, { "text": "B\u{1b}", "done": false, "change": "added" },
            ],
            "files": {
                "changed": ["a.rs", "b.rs"], "outside": ["b.rs"],
                "shared": [{ "path": "a.rs", "with": ["2025-10-14-y"] }],
            },
            "subsessions": ["another form"],
            "amendments": [{ "at": "2025-10-14T00:00:00Z", "reason": "it was wrong" }],
            "time": { "spentMinutes": 30, "estimateMinutes": 240 },
        });
        let told = drift_lines(&drift).join("\n");
        let expected = "2025-10-14-x is active\n\ncriteria: 1 of 2 done\n  [x] A\n  [ ] B␛ (added)\n\n\
             files: 2 changed, 1 outside the plan\n  a.rs  also changed by 2025-10-14-y\n  b.rs  outside the plan\n\n\
             sub-sessions: 1\n  another form\n\namendments: 1\n  2025-10-14T00:00:00Z it was wrong\n\n\
             time: 30 min of 240 min";
        assert_eq!(told, expected);
    }
}
