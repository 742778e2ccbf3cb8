//! Tool calls, for people: in one line, and in full before they are allowed.

use console::Style;
use serde_json::{Map, Value};
use similar::TextDiff;

use crate::{
    commands::plan,
    output::{one_line, visible},
};

/// The tool that gives a task to another agent.
pub const TASK: &str = "transfer_task";
/// The most rows of a call that the person is asked about.
const ROWS_MAX: usize = 40;
/// The most bytes of an argument in a call's one line.
const VALUE_BYTES_MAX: usize = 200;

/// Returns what a call does, on one line.
pub fn summary(name: &str, arguments: &Map<String, Value>) -> String {
    let text = |key: &str| arguments.get(key).and_then(Value::as_str).unwrap_or_default();
    let summary = match name {
        "shell" => text("cmd").to_owned(),
        "write_file" | "edit_file" | "read_file" | "list_directory" => text("path").to_owned(),
        "search_files" => format!("{} {}", text("pattern"), text("path")),
        "handoff" => text("agent").to_owned(),
        TASK => format!("{}: {}", text("agent"), text("task")),
        "user_prompt" => text("message").to_owned(),
        "sessions_send" => format!("{}: {}", text("sessionKey"), text("message")),
        "sessions_history" => text("sessionKey").to_owned(),
        "sessions_spawn" => format!("{} {}", text("agentId"), text("task")),
        "write_session_plan" => {
            let title = text("content").lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
            title.trim_start_matches(['#', ' ']).to_owned()
        }
        _ => {
            let pair = |(key, value): (&String, &Value)| format!("{key}: {}", short(value));
            arguments.iter().map(pair).collect::<Vec<_>>().join(", ")
        }
    };
    let summary: String = summary.chars().take(2 * VALUE_BYTES_MAX).collect();
    one_line(&summary).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Tells whether a result adds nothing to the line that says that the call went well.
pub fn is_told_by_its_line(name: &str) -> bool {
    matches!(name, "write_session_plan" | "exit_plan_mode" | "handoff" | "user_prompt" | TASK)
}

/// Returns a call in full, for the person who decides about it.
pub fn full(name: &str, arguments: &Map<String, Value>) -> Vec<String> {
    let text = |key: &str| arguments.get(key).and_then(Value::as_str);
    let mut rest = arguments.clone();
    let mut rows: Vec<String> = Vec::new();
    let lines =
        |text: &str| visible(text).replace('\t', "    ").lines().map(str::to_owned).collect::<Vec<_>>();
    match (name, text("cmd"), text("path"), text("content")) {
        ("shell", Some(command), _, _) => {
            rest.remove("cmd");
            let prompt = Style::new().cyan().apply_to("$").to_string();
            let command = lines(command);
            rows.extend(command.iter().enumerate().map(|(n, line)| match n {
                0 => format!("{prompt} {}", Style::new().bold().apply_to(line)),
                _ => format!("  {}", Style::new().bold().apply_to(line)),
            }));
        }
        ("write_file", _, Some(path), Some(content)) => {
            rest.retain(|key, _| !["path", "content"].contains(&key.as_str()));
            let count = content.lines().count();
            rows.push(format!("{} ({count} {})", one_line(path), if count == 1 { "line" } else { "lines" }));
            let added = Style::new().green();
            rows.extend(lines(content).iter().map(|line| added.apply_to(format!("+{line}")).to_string()));
        }
        ("edit_file", _, Some(path), _) => {
            rows.push(one_line(path));
            for edit in edits(arguments) {
                rows.extend(diff(edit.0, edit.1));
            }
            rest.retain(|key, _| !["path", "edits", "old_text", "new_text"].contains(&key.as_str()));
        }
        _ => {}
    }
    for (key, value) in &rest {
        let label = Style::new().dim().apply_to(format!("{}:", one_line(key)));
        let shown = match value {
            Value::String(text) => text.clone(),
            value => serde_json::to_string_pretty(value).unwrap_or_default(),
        };
        let shown = lines(&shown);
        match shown.as_slice() {
            [] => rows.push(format!("{label} \"\"")),
            [only] => rows.push(format!("{label} {only}")),
            several => {
                rows.push(label.to_string());
                rows.extend(several.iter().map(|line| format!("  {line}")));
            }
        }
    }
    if rows.len() > ROWS_MAX {
        // The end of a long script matters as much as its beginning.
        let left_out = rows.len() - ROWS_MAX;
        let note = Style::new().yellow().apply_to(format!("… {left_out} more rows …")).to_string();
        rows.splice(ROWS_MAX / 2..ROWS_MAX / 2 + left_out, [note]);
    }
    rows
}

fn edits(arguments: &Map<String, Value>) -> Vec<(&str, &str)> {
    fn read(edit: &Map<String, Value>) -> Option<(&str, &str)> {
        Some((edit.get("old_text")?.as_str()?, edit.get("new_text")?.as_str()?))
    }
    let several = arguments.get("edits").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    several.iter().filter_map(Value::as_object).chain([arguments]).filter_map(read).collect()
}

/// Returns the difference between two texts, all of it, coloured.
fn diff(old: &str, new: &str) -> Vec<String> {
    let diff = TextDiff::from_lines(old, new);
    let text = diff.unified_diff().context_radius(3).missing_newline_hint(false).to_string();
    text.lines().filter(|line| !line.starts_with("@@")).map(plan::coloured).collect()
}

fn short(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    if text.len() <= VALUE_BYTES_MAX {
        text
    } else {
        format!("{}…", text.chars().take(60).collect::<String>())
    }
}
