//! `sess snapshot`: copies of other agents' sessions, for when their agents delete them.

use std::collections::HashSet;

use console::Style;
use indicatif::HumanBytes;
use sess_app::{SnapshotRow, Snapshots};
use sess_core::Timestamp;

use super::{Context, list::shown_ids, progress::Progress};
use crate::{
    cli::{self, SnapshotCommand},
    config::now,
    output::{Output, ago, visible},
};

/// How many sessions that could not be copied are named.
const NAMED_MAX: usize = 5;

pub async fn run(context: &Context, output: &Output, args: cli::Snapshot) -> anyhow::Result<()> {
    match args.command {
        Some(SnapshotCommand::List) => return list(context, output).await,
        Some(SnapshotCommand::Forget { reference }) => return forget(context, output, &reference).await,
        None => {}
    }
    let progress = Progress::new("copying");
    let told = move |done, all| progress.set(done, all);
    let taken = context.app.take_snapshots(&context.caller, args.source, told).await?;
    if output.json {
        return output.data(&taken);
    }
    for kept in &taken.kept {
        let entries = if kept.lost == 1 { "entry" } else { "entries" };
        let changed = match kept.changed {
            0 => String::new(),
            changed => format!(", and says {changed} of them in other words"),
        };
        output.notice(&format!(
            "{0}: its original lacks {1} {entries} that the snapshot keeps{changed}; `sess read {0} --snapshot` shows \
             them",
            kept.id, kept.lost
        ));
    }
    for failed in taken.failed.iter().take(NAMED_MAX) {
        output.notice(&format!("{} was not copied: {}", failed.id, failed.reason));
    }
    if taken.failed.len() > NAMED_MAX {
        output.notice(&format!("{} more were not copied; --json names all", taken.failed.len() - NAMED_MAX));
    }
    if taken.left.unreadable > 0 {
        output.notice("a snapshot cannot be read, so nothing was swept; `sess snapshot list` names it");
    }
    output.line(&summary(&taken))
}

fn summary(taken: &Snapshots) -> String {
    if taken.looked_at == 0 {
        return "no sessions of other agents were found; nothing was copied".to_owned();
    }
    let kept = match taken.kept.len() {
        0 => String::new(),
        kept => format!(", {kept} fuller than the original"),
    };
    let of_sub_agents = match taken.left.of_sub_agents {
        0 => String::new(),
        1 => " (1 of a sub-agent)".to_owned(),
        below => format!(" ({below} of sub-agents)"),
    };
    format!(
        "{} new, {} grown, {} unchanged{kept}; {} written, {} {}{of_sub_agents} in {}",
        taken.new,
        taken.grown,
        taken.unchanged,
        HumanBytes(taken.written_bytes),
        taken.left.snapshots,
        if taken.left.snapshots == 1 { "snapshot" } else { "snapshots" },
        HumanBytes(taken.left.size_bytes)
    )
}

async fn list(context: &Context, output: &Output) -> anyhow::Result<()> {
    let rows = context.app.snapshots(&context.caller).await?;
    if output.json {
        return output.data(&rows);
    }
    for problem in &rows.problems {
        output.notice(problem);
    }
    if rows.snapshots.is_empty() {
        output.say("no snapshots; `sess snapshot` takes some");
        return Ok(());
    }
    let now = now();
    let since = |at: &str| Timestamp::parse_rfc3339(at).map(|at| ago(at, now)).unwrap_or_default();
    // Sub-agents' are a part of their session, where there is one.
    let all: HashSet<&str> = rows.snapshots.iter().map(|row| &*row.id).collect();
    let is_part = |row: &SnapshotRow| row.parent.as_deref().is_some_and(|parent| all.contains(parent));
    let shown: Vec<_> = rows.snapshots.iter().filter(|row| !is_part(row)).collect();
    let ids = shown_ids(output, shown.iter().map(|row| &*row.id).collect());
    let cells = shown.iter().zip(ids).map(|(row, id)| {
        let title = if row.title.is_empty() { "(untitled)" } else { &row.title };
        vec![
            id.to_owned(),
            title.to_owned(),
            row.num_messages.to_string(),
            since(&row.updated_at),
            since(&row.taken_at),
            if row.is_original_gone { "gone" } else { "there" }.to_owned(),
        ]
    });
    let cells: Vec<Vec<String>> = cells.collect();
    let style = |row: usize, column: usize| match column {
        5 if shown[row].is_original_gone => Style::new().yellow(),
        _ => Style::new(),
    };
    let header = ["ID", "TITLE", "MESSAGES", "ACTIVE", "TAKEN", "ORIGINAL"];
    for line in output.lines(&header, &[1], &cells, &style) {
        output.line(&line)?;
    }
    match rows.snapshots.len() - shown.len() {
        0 => {}
        1 => output.say("1 more of a sub-agent goes with its session; --json lists it"),
        below => output.say(&format!("{below} more of sub-agents go with their sessions; --json lists them")),
    }
    Ok(())
}

async fn forget(context: &Context, output: &Output, reference: &str) -> anyhow::Result<()> {
    let gone = context.app.forget_snapshot(&context.caller, reference).await?;
    if output.json {
        return output.data(&gone);
    }
    for id in &gone.forgotten {
        output.line(&format!("forgot the snapshot of {}", visible(id)))?;
    }
    match gone.last_copies.len() {
        0 => output.say("`sess snapshot` takes another one while its agent still has the session"),
        1 => output.say(&format!(
            "that was the last copy of {}: its agent does not have it any more",
            visible(&gone.last_copies[0])
        )),
        count => {
            output.say(&format!(
                "those were the last copies of {count} sessions: their agent does not have them any more"
            ));
        }
    }
    Ok(())
}
