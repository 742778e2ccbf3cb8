//! What concerns the repository as a whole: init, hooks, doctor, gc, uninstall.

use std::io::{IsTerminal as _, Read as _};

use console::Style;
use sess_work::{CheckRow, InitOptions};

use super::{Here, size_of};

pub(super) fn init(here: &Here<'_>, hooks: bool, scripts: bool) -> anyhow::Result<()> {
    let report = here.work.init(&InitOptions { hooks, scripts })?;
    if here.output.json {
        return here.output.data(&report);
    }
    if report.changed.is_empty() && report.notices.is_empty() {
        here.output.line("everything is set up already")?;
    }
    for changed in &report.changed {
        here.output.line(&crate::output::one_line(changed))?;
    }
    here.notice(&report.notices);
    here.next("next: sess work new \"<what is to be done>\"");
    Ok(())
}

/// How much is read of what git says about a push.
const PUSHED_BYTES_MAX: u64 = 10_000_000;

/// Runs a hook of git with the arguments that git gave it. What a script of ours hands on besides, one of the user's
/// own need not know: it is where git has it.
pub(super) fn hook(here: &Here<'_>, name: &str, mut args: Vec<String>) -> anyhow::Result<()> {
    match name {
        // A commit of some files has an index of its own.
        "pre-commit" if args.is_empty() => {
            let index = here.context.env.iter().find(|(key, _)| key == "GIT_INDEX_FILE");
            args.extend(index.map(|(_, value)| value.clone()));
        }
        "pre-push" if args.len() == 2 && !std::io::stdin().is_terminal() => {
            let mut pushed = Vec::new();
            std::io::stdin().take(PUSHED_BYTES_MAX + 1).read_to_end(&mut pushed)?;
            // What is not read is not checked.
            if pushed.len() as u64 > PUSHED_BYTES_MAX {
                anyhow::bail!("more is pushed at once than can be checked: push the branch alone");
            }
            let pushed = String::from_utf8_lossy(&pushed);
            args.extend(pushed.lines().filter_map(|line| line.split(' ').nth(2)).map(str::to_owned));
        }
        _ => {}
    }
    Ok(here.work.hook(name, &args)?)
}

pub(super) fn doctor(here: &Here<'_>, repair: bool) -> anyhow::Result<()> {
    let checkup = here.work.doctor(repair)?;
    if here.output.json {
        return here.output.data(&checkup);
    }
    if checkup.rows.is_empty() {
        here.output.say("there are no work sessions");
    } else {
        tell_rows(here, &checkup.rows)?;
    }
    // What is not well is told in full, where a table would cut it.
    for row in &checkup.rows {
        match &row.next {
            Some(next) => here.output.notice(&format!("{}: {}: run `{next}`", row.slug, row.meaning)),
            None if row.repaired => here.output.notice(&format!("{} is repaired: {}", row.slug, row.meaning)),
            None => {}
        }
    }
    for finding in &checkup.findings {
        here.output.notice(finding);
    }
    Ok(())
}

/// Prints the table of claims and directories, and whether they go together.
fn tell_rows(here: &Here<'_>, rows: &[CheckRow]) -> anyhow::Result<()> {
    let health = |row: &CheckRow| match (&row.next, row.repaired) {
        (_, true) => "repaired",
        (Some(_), false) => "look",
        (None, false) => "well",
    };
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            vec![
                health(row).to_owned(),
                row.slug.to_string(),
                row.directory.map(|state| state.to_string()).unwrap_or_default(),
                row.claim.clone().unwrap_or_default(),
            ]
        })
        .collect();
    let header = ["", "WORK SESSION", "DIRECTORY", "CLAIM"];
    here.output.rows(&header, 3, &cells, &[], &|row, column| match (column, &rows[row].next) {
        (0, Some(_)) => Style::new().yellow(),
        (0, None) => Style::new().green(),
        _ => Style::new(),
    })
}

pub(super) fn gc(here: &Here<'_>, dry_run: bool) -> anyhow::Result<()> {
    let gc = here.work.gc(dry_run)?;
    if here.output.json {
        return here.output.data(&gc);
    }
    let rows: Vec<Vec<String>> = gc
        .workspaces
        .iter()
        .map(|item| {
            let fate = match (item.removed, dry_run) {
                (true, true) => "would go",
                (true, false) => "removed",
                (false, _) => "stays",
            };
            vec![fate.to_owned(), item.path.clone(), size_of(item.bytes), item.reason.clone()]
        })
        .collect();
    if !rows.is_empty() {
        here.output.rows(&["", "WORKSPACE", "SIZE", "WHY"], 3, &rows, &[], &|_, _| Style::new())?;
    }
    for kept in &gc.kept {
        here.output.hanging("", kept)?;
    }
    let would = if dry_run { "would be " } else { "" };
    let counted = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let (claims, refs) = (counted(gc.archived, "ended claim"), counted(gc.refs, "ref"));
    let told = format!("{claims} {would}archived, {refs} {would}cleaned up");
    here.output.hanging("", &told)
}

pub(super) fn uninstall(here: &Here<'_>) -> anyhow::Result<()> {
    let report = here.work.uninstall()?;
    if here.output.json {
        return here.output.data(&report);
    }
    for line in &report.changed {
        here.output.line(&crate::output::one_line(line))?;
    }
    here.notice(&report.notices);
    Ok(())
}
