//! `sess runs`: what was asked of agents, and how it stands; live, when watched.

use std::{collections::HashMap, time::Duration};

use console::{Style, Term};
use sess_app::{ListRuns, RunRow};
use sess_core::{Timestamp, id::is_uuid, run::RunState};
use sess_protocol::runs as wire;

use super::{Context, send::short, wait};
use crate::{
    cli,
    config::now,
    output::{Output, ago, one_line},
};

/// How often what is watched is drawn when nothing changes: times go on.
const REDRAW: Duration = Duration::from_secs(1);
const HEADER: [&str; 8] = ["RUN", "SESSION", "AGENT", "STATE", "TIME", "TOKENS", "COST", "ABOUT"];
/// The column that gives way, and the ones that are coloured.
const ABOUT: usize = 7;
const STATE: usize = 3;

pub async fn run(context: &Context, output: &Output, args: cli::Runs) -> anyhow::Result<()> {
    let ask = ListRuns {
        session: context.session.clone(),
        limit: Some(args.limit),
        as_tree: args.tree,
        redaction: context.redaction,
    };
    if args.watch {
        return if output.is_terminal() && !output.json {
            watch(context, output, &ask).await
        } else {
            changes(context, output, &ask).await
        };
    }
    let rows = context.app.runs(&context.caller, &ask).await?;
    if output.json {
        return output.data(&wire::Runs { runs: rows.into_iter().map(wire::RunRow::from).collect() });
    }
    if rows.is_empty() {
        output.say("no runs yet; `sess run`, `sess send` and `sess spawn` begin some");
        return Ok(());
    }
    for line in lines(output, &rows) {
        output.line(&line)?;
    }
    Ok(())
}

/// Draws the table again whenever something changes, until the person leaves.
async fn watch(context: &Context, output: &Output, ask: &ListRuns) -> anyhow::Result<()> {
    let term = Term::stdout();
    let mut changes = context.app.changes()?;
    let mut drawn = 0;
    term.hide_cursor()?;
    let outcome = async {
        loop {
            changes.mark_unchanged();
            let rows = context.app.runs(&context.caller, ask).await?;
            let mut shown = lines(output, &rows);
            let foot = format!("{} · Ctrl-C leaves", summary(&rows));
            let height = usize::from(term.size().0).saturating_sub(2).max(2);
            if shown.len() > height {
                let more = shown.len() - height;
                shown.truncate(height);
                shown.push(Style::new().dim().apply_to(format!("… {more} more")).to_string());
            }
            shown.push(Style::new().dim().apply_to(foot).to_string());
            term.clear_last_lines(drawn)?;
            drawn = shown.len();
            output.raw((shown.join("\n") + "\n").as_bytes())?;
            tokio::select! {
                _ = changes.changed() => tokio::time::sleep(Duration::from_millis(50)).await,
                () = tokio::time::sleep(REDRAW) => {}
                _ = tokio::signal::ctrl_c() => return Ok(()),
            }
        }
    }
    .await;
    term.show_cursor()?;
    outcome
}

/// Prints a line for each run whose state changes, until interrupted.
async fn changes(context: &Context, output: &Output, ask: &ListRuns) -> anyhow::Result<()> {
    let mut told: HashMap<String, RunState> = HashMap::new();
    let mut changes = context.app.changes()?;
    loop {
        changes.mark_unchanged();
        let mut rows = context.app.runs(&context.caller, ask).await?;
        if !ask.as_tree {
            rows.reverse();
        }
        for row in rows {
            if told.insert(row.run_id.to_string(), row.state) == Some(row.state) {
                continue;
            }
            if output.json {
                output.data_line(&wire::RunRow::from(row))?;
            } else {
                output.line(&one_line(&format!(
                    "{} {} {} {}",
                    short(row.run_id.as_str()),
                    row.session_key.as_ref().map_or("(deleted)", |key| key.as_str()),
                    wait::told(row.state),
                    about(&row)
                )))?;
            }
        }
        tokio::select! {
            changed = changes.changed() => changed?,
            _ = tokio::signal::ctrl_c() => return Ok(()),
        }
    }
}

/// Returns the table, ready to be printed.
pub fn lines(output: &Output, rows: &[RunRow]) -> Vec<String> {
    let now = now();
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let (tokens, cost) = match row.total_tokens {
                Some(tokens) => (tokens, row.total_cost),
                None => (row.tokens, row.cost),
            };
            vec![
                format!("{}{}", "  ".repeat(row.depth), short(row.run_id.as_str())),
                row.session_key.as_ref().map_or_else(|| "(deleted)".to_owned(), |key| brief(key.as_str())),
                row.agent.clone(),
                state(row).to_owned(),
                time(row, now),
                if tokens == 0 { String::new() } else { counted(tokens) },
                cost.map(money).unwrap_or_default(),
                about(row),
            ]
        })
        .collect();
    output.lines(&HEADER, &[ABOUT], &cells, &|row, column| match column {
        STATE => colour(&rows[row]),
        0 => Style::new().bold(),
        ABOUT if rows[row].error.is_none() => Style::new().dim(),
        _ => Style::new(),
    })
}

fn state(row: &RunRow) -> &'static str {
    match row.state {
        RunState::Running if row.is_cancelled => "stopping",
        state => wait::told(state),
    }
}

fn colour(row: &RunRow) -> Style {
    match row.state {
        RunState::Queued => Style::new().cyan(),
        RunState::Running => Style::new().yellow(),
        RunState::Done => Style::new().green(),
        RunState::Failed | RunState::TimedOut | RunState::Aborted => Style::new().red(),
        RunState::Cancelled => Style::new().dim(),
    }
}

/// Returns how long it took, has taken so far, or waits; and how long ago that was.
fn time(row: &RunRow, now: Timestamp) -> String {
    let between = |from: Timestamp, to: Timestamp| {
        let ms = to.as_millis().saturating_sub(from.as_millis()).max(0);
        super::run::elapsed(Duration::from_millis(ms.unsigned_abs()))
    };
    match (row.started_at, row.ended_at) {
        (Some(from), Some(to)) => format!("{} · {}", between(from, to), ago(to, now)),
        (None, Some(to)) => ago(to, now),
        (Some(from), None) => between(from, now),
        (None, None) => format!("waits {}", between(row.queued_at, now)),
    }
}

/// Says what a run is for, and what went wrong with it.
fn about(row: &RunRow) -> String {
    let from = row.from.as_ref().map(|key| brief(key.as_str())).unwrap_or_default();
    let errand = match row.errand {
        "send" => format!("from {from}"),
        "round" => format!("reply of {from}"),
        "announce" => "what to announce".to_owned(),
        "late_reply" => "a late reply".to_owned(),
        "report" => format!("report of {from}"),
        "spawn" => row.label.clone().unwrap_or_else(|| "a task".to_owned()),
        _ => String::new(),
    };
    let parts = [Some(errand), row.error.clone()];
    let parts: Vec<String> = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
    parts.join(": ")
}

/// Returns a key with its ids as far as people copy them.
fn brief(key: &str) -> String {
    let part = |part: &str| if is_uuid(part) { part[..8].to_owned() } else { part.to_owned() };
    key.split(':').map(part).collect::<Vec<_>>().join(":")
}

fn summary(rows: &[RunRow]) -> String {
    let count = |state: RunState| rows.iter().filter(|row| row.state == state).count();
    format!("{} running, {} queued", count(RunState::Running), count(RunState::Queued))
}

fn counted(tokens: u64) -> String {
    match tokens {
        0..10_000 => tokens.to_string(),
        10_000..1_000_000 => format!("{:.1}k", tokens as f64 / 1_000.0),
        _ => format!("{:.1}M", tokens as f64 / 1_000_000.0),
    }
}

fn money(cost: f64) -> String {
    if cost < 0.1 { format!("${cost:.4}") } else { format!("${cost:.2}") }
}
