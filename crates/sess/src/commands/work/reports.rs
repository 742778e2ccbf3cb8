//! How a work session stands, how far it went from its plan, and which one a line of code comes from.

use console::{Style, measure_text_width};
use sess_core::{Timestamp, mention::first_of};
use sess_work::{Blame, Drift, Error, Status};

use super::{
    Here,
    listing::{tell_holder, when},
    style_of,
};
use crate::{
    cli::work::One,
    config::now,
    output::{Output, one_line},
};

/// How many files are named where only their number counts.
const FILES_SHOWN_MAX: usize = 5;

pub(super) fn status(here: &Here<'_>, one: One) -> anyhow::Result<()> {
    let slug = here.meant(one)?;
    let status = here.work.status(&slug)?;
    if here.output.json {
        return here.output.data(&status);
    }
    here.tell_old();
    tell_status(here, &status)
}

fn tell_status(here: &Here<'_>, status: &Status) -> anyhow::Result<()> {
    let (output, counts) = (here.output, &status.drift);
    let field = |name: &str, value: &str| output.field(name, &one_line(value));
    field("name", status.slug.as_str())?;
    output.field("state", &style_of(status.state).apply_to(status.state).to_string())?;
    tell_holder(here, status.lease.as_ref())?;
    field("workspace", status.workspace.as_deref().unwrap_or_default())?;
    if let Some(branch) = &status.branch {
        let base = here.work.repo().base();
        let shared = if branch.shared { "shared" } else { "not shared yet" };
        let told =
            format!("{}: {} ahead of {base}, {} behind, {shared}", branch.name, branch.ahead, branch.behind);
        field("branch", &told)?;
    }
    if status.workspace.is_some() {
        field("not committed", &first_of(&status.uncommitted, FILES_SHOWN_MAX))?;
    }
    for gate in &status.gates {
        let told = if gate.configured { "" } else { ": your configuration does not say what it runs" };
        field("gate", &format!("{}{told}", gate.name))?;
    }
    let changed = match counts.criteria_changed {
        0 => String::new(),
        changed => format!(", {changed} changed since the plan was made"),
    };
    field("criteria", &format!("{} of {} done{changed}", counts.criteria_done, counts.criteria))?;
    let shared = match counts.files_shared {
        0 => String::new(),
        shared => format!(", {shared} also changed by others"),
    };
    let files =
        format!("{} changed, {} outside the plan{shared}", counts.files_changed, counts.files_outside);
    field("files", &files)?;
    for told in status.refused.iter().chain(&status.base_plan) {
        field("not to land", told)?;
    }
    let number = |count: usize| if count == 0 { String::new() } else { count.to_string() };
    field("sub-sessions", &number(counts.subsessions))?;
    field("amendments", &number(counts.amendments))
}

pub(super) fn drift(here: &Here<'_>, one: One) -> anyhow::Result<()> {
    let slug = here.meant(one)?;
    let drift = here.work.drift(&slug)?;
    if here.output.json {
        return here.output.data(&drift);
    }
    here.notice(&drift.notices);
    for (lead, text) in drift_lines(here.output, &drift, now()) {
        here.output.hanging(&lead, &text)?;
    }
    Ok(())
}

/// Writes the report of what became of a plan, each line with what it begins with.
fn drift_lines(output: &Output, drift: &Drift, now: Timestamp) -> Vec<(String, String)> {
    let heading = |text: String| (String::new(), Style::new().bold().apply_to(text).to_string());
    let nothing = || (String::new(), String::new());
    let state = style_of(drift.state).apply_to(drift.state);
    let mut lines = vec![(String::new(), format!("{} is {state}", drift.slug)), nothing()];
    let (criteria, done) = drift.criteria_counts();
    lines.push(heading(format!("criteria: {done} of {criteria} done")));
    for criterion in &drift.criteria {
        let mark =
            if criterion.done { Style::new().green().apply_to("[x]") } else { Style::new().apply_to("[ ]") };
        let change = match criterion.change {
            Some(sess_work::Change::Added) => " (added)",
            Some(sess_work::Change::Removed) => " (removed)",
            None => "",
        };
        lines.push((format!("  {mark} "), format!("{}{change}", one_line(&criterion.text))));
    }
    let files = &drift.files;
    let counts = format!("files: {} changed, {} outside the plan", files.changed.len(), files.outside.len());
    lines.extend([nothing(), heading(counts)]);
    for path in &files.changed {
        let mut marks = Vec::new();
        if files.outside.contains(path) {
            marks.push(Style::new().yellow().apply_to("outside the plan".to_owned()).to_string());
        }
        if let Some(shared) = files.shared.iter().find(|shared| shared.path == *path) {
            let with: Vec<&str> = shared.with.iter().map(sess_work::Slug::as_str).collect();
            let told = format!("also changed by {}", with.join(", "));
            marks.push(Style::new().red().apply_to(told).to_string());
        }
        let (path, marks) = (one_line(path), marks.join("  "));
        let columns = measure_text_width(&path) + measure_text_width(&marks) + 4;
        match output.width() {
            // Further in than the files, for which they would be taken.
            Some(width) if columns > width && !marks.is_empty() => {
                lines.extend([("  ".to_owned(), path), ("      ".to_owned(), marks)]);
            }
            _ if marks.is_empty() => lines.push(("  ".to_owned(), path)),
            _ => lines.push(("  ".to_owned(), format!("{path}  {marks}"))),
        }
    }
    if !drift.subsessions.is_empty() {
        lines.extend([nothing(), heading(format!("sub-sessions: {}", drift.subsessions.len()))]);
        lines.extend(drift.subsessions.iter().map(|text| ("  - ".to_owned(), one_line(text))));
    }
    if !drift.amendments.is_empty() {
        lines.extend([nothing(), heading(format!("amendments: {}", drift.amendments.len()))]);
        let told = drift.amendments.iter().map(|amendment| {
            let at = when(output, &amendment.at.to_string(), now);
            (format!("  - {at}: "), one_line(&amendment.reason))
        });
        lines.extend(told);
    }
    if !drift.refused.is_empty() {
        lines.extend([nothing(), heading("`complete` refuses this".to_owned())]);
        lines.extend(drift.refused.iter().map(|text| ("  - ".to_owned(), one_line(text))));
    }
    if let Some(told) = &drift.base_plan {
        lines.extend([
            nothing(),
            heading("the plan on the base".to_owned()),
            ("  - ".to_owned(), one_line(told)),
        ]);
    }
    let of = drift.time.estimate_minutes.map(|of| format!(" of {of} min")).unwrap_or_default();
    lines.extend([nothing(), heading(format!("time: {} min{of}", drift.time.spent_minutes))]);
    lines
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
    tell_blame(here.output, &blame)
}

fn tell_blame(output: &Output, blame: &Blame) -> anyhow::Result<()> {
    let field = |name: &str, value: &str| output.field(name, &one_line(value));
    output.line(&output.fit(&one_line(&format!("{}:{}  {}", blame.file, blame.line, blame.text.trim()))))?;
    match &blame.commit {
        Some(commit) => field("commit", &format!("{} {}", commit.short(), blame.summary))?,
        None => field("commit", &blame.summary)?,
    }
    field("author", &blame.author)?;
    match (&blame.slug, blame.state) {
        (None, _) if blame.commit.is_none() => return field("work session", "none: this is no workspace"),
        (None, _) => return field("work session", "none: it was committed without one"),
        (Some(slug), None) => field("work session", &format!("{slug}, which is not here"))?,
        (Some(slug), Some(state)) => {
            output.field("work session", &format!("{slug}, {}", style_of(state).apply_to(state)))?;
        }
    }
    field("title", blame.title.as_deref().unwrap_or_default())?;
    field("plan", blame.plan.as_deref().unwrap_or_default())?;
    field("agents", &blame.agents.join(", "))?;
    field("sessions", &blame.sessions.join(", "))
}

#[cfg(test)]
mod tests {
    use sess_work::{Amendment, Change, DriftCriterion, DriftFiles, DriftTime, SharedFile, State};

    use super::*;

    #[test]
    fn the_report_names_what_differs_from_the_plan() {
        let at = Timestamp::from_millis(1_800_000_000_000).expect("in range");
        let oid: sess_work::Oid = "0".repeat(40).parse().expect("an object");
        let criterion = |text: &str, done, change| DriftCriterion { text: text.to_owned(), done, change };
        let drift = Drift {
            slug: "2025-10-14-x".parse().expect("a slug"),
            state: State::Active,
            criteria: vec![criterion("A", true, None), criterion("B\u{1b}", false, Some(Change::Added))],
            files: DriftFiles {
                changed: vec!["a.rs".to_owned(), "b.rs".to_owned()],
                outside: vec!["b.rs".to_owned()],
                shared: vec![SharedFile {
                    path: "a.rs".to_owned(),
                    with: vec!["2025-10-14-y".parse().expect("a slug")],
                }],
            },
            subsessions: vec!["another form".to_owned()],
            amendments: vec![Amendment { at, from: oid.clone(), to: oid, reason: "it was wrong".to_owned() }],
            refused: vec!["SESSION.md was changed".to_owned()],
            base_plan: Some("somebody changed it".to_owned()),
            time: DriftTime { spent_minutes: 30, estimate_minutes: Some(240) },
            notices: Vec::new(),
        };
        let lines = drift_lines(&Output::new(false), &drift, at);
        let told: Vec<String> = lines.into_iter().map(|(lead, text)| lead + &text).collect();
        let told = console::strip_ansi_codes(&told.join("\n")).into_owned();
        let expected = "2025-10-14-x is active\n\ncriteria: 1 of 2 done\n  [x] A\n  [ ] B␛ (added)\n\n\
             files: 2 changed, 1 outside the plan\n  a.rs  also changed by 2025-10-14-y\n  b.rs  outside the plan\n\n\
             sub-sessions: 1\n  - another form\n\namendments: 1\n  - 2027-01-15T08:00:00Z: it was wrong\n\n\
             `complete` refuses this\n  - SESSION.md was changed\n\nthe plan on the base\n  - somebody changed it\n\n\
             time: 30 min of 240 min";
        assert_eq!(told, expected);
    }
}
