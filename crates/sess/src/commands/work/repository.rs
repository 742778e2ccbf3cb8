//! What concerns the repository as a whole: init, doctor, gc, uninstall.

use serde_json::{Value, json};
use sess_work::InitOptions;

use super::{Here, size_of};

pub(super) fn init(here: &Here<'_>, hooks: bool, scripts: bool) -> anyhow::Result<()> {
    let report = here.work.init(&InitOptions { hooks, scripts })?;
    if here.output.json {
        return here.output.data(&report);
    }
    if report.changed.is_empty() {
        here.output.line("everything is set up already")?;
    }
    for changed in &report.changed {
        here.output.line(&crate::output::one_line(changed))?;
    }
    here.notice(&report.notices);
    here.next("next: sess work new \"<what is to be done>\"");
    Ok(())
}

pub(super) fn doctor(here: &Here<'_>, repair: bool) -> anyhow::Result<()> {
    let checkup = here.work.doctor(repair)?;
    if here.output.json {
        return here.output.data(&checkup);
    }
    let data = serde_json::to_value(&checkup)?;
    let rows: Vec<Vec<String>> = list(&data["rows"])
        .map(|row| {
            let repaired = if row["repaired"] == json!(true) { "repaired" } else { "" };
            let meaning = [repaired, &text(&row["meaning"])].join(" ").trim().to_owned();
            vec![
                text(&row["slug"]),
                text(&row["directory"]),
                text(&row["claim"]),
                meaning,
                text(&row["next"]),
            ]
        })
        .collect();
    if rows.is_empty() {
        here.output.say("there are no work sessions");
    } else {
        here.output.table(&["WORK SESSION", "DIRECTORY", "CLAIM", "MEANS", "NEXT"], 3, &rows)?;
    }
    for finding in list(&data["findings"]) {
        here.output.notice(&text(finding));
    }
    Ok(())
}

pub(super) fn gc(here: &Here<'_>, dry_run: bool) -> anyhow::Result<()> {
    let gc = here.work.gc(dry_run)?;
    if here.output.json {
        return here.output.data(&gc);
    }
    let data = serde_json::to_value(&gc)?;
    let rows: Vec<Vec<String>> = list(&data["workspaces"])
        .map(|item| {
            let fate = match (item["removed"] == json!(true), dry_run) {
                (true, true) => "would go",
                (true, false) => "removed",
                (false, _) => "stays",
            };
            let size = size_of(item["bytes"].as_u64().unwrap_or_default());
            vec![text(&item["path"]), size, fate.to_owned(), text(&item["reason"])]
        })
        .collect();
    if !rows.is_empty() {
        here.output.table(&["WORKSPACE", "SIZE", "", "WHY"], 3, &rows)?;
    }
    let (archived, refs) = (text(&data["archived"]), text(&data["refs"]));
    let would = if dry_run { "would be " } else { "" };
    here.output.line(&format!("{archived} ended claims {would}archived, {refs} refs {would}cleaned up"))
}

pub(super) fn uninstall(here: &Here<'_>) -> anyhow::Result<()> {
    let changed = here.work.uninstall()?;
    if here.output.json {
        return here.output.data(&json!({ "changed": changed }));
    }
    if changed.is_empty() {
        here.output.line("nothing of ours is in this clone")?;
    }
    for line in &changed {
        here.output.line(&crate::output::one_line(line))?;
    }
    Ok(())
}

/// Returns the items of a list; none when it is none.
pub(super) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Returns a value as a cell of a table has it.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(", "),
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, value)| !value.is_null());
            fields
                .map(|(name, value)| format!("{} {}", words(name), text(value)))
                .collect::<Vec<_>>()
                .join(" · ")
        }
    }
}

/// Returns the name of a field as people write it: `openCriteria` is "open criteria".
pub(super) fn words(name: &str) -> String {
    name.chars().fold(String::new(), |mut words, c| {
        if c.is_ascii_uppercase() {
            words.push(' ');
        }
        words.push(c.to_ascii_lowercase());
        words
    })
}
