//! `sess index`: which sessions of other agents a search need not read.

use std::{process::ExitCode, sync::Arc};

use indicatif::HumanBytes;
use serde_json::json;
use sess_app::{IndexSize, IndexState, Indexing};

use super::{Context, progress::Progress};
use crate::{cli, output::Output};

/// How many sessions that could not be read are named.
const NAMED_MAX: usize = 5;
/// The exit code of what Ctrl-C ended.
const INTERRUPTED: u8 = 130;

pub async fn run(context: &Context, output: &Output, args: cli::Index) -> anyhow::Result<ExitCode> {
    if args.status {
        let progress = Progress::new("looking for sessions");
        let state = context.app.index_state(&context.caller).await?;
        drop(progress);
        if output.json {
            output.data(&state)?;
        } else {
            say_state(output, &state)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if args.forget {
        let forgotten = context.app.forget_index(&context.caller).await?;
        if output.json {
            output.data(&json!({ "forgotten": forgotten }))?;
        } else {
            output.line(if forgotten { "deleted the index" } else { "there was no index" })?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let progress = Arc::new(Progress::new("indexing"));
    let bar = Arc::clone(&progress);
    let told = move |done, all| bar.set(done, all);
    let indexed = tokio::select! {
        indexed = context.app.index_sessions(&context.caller, args.source, told) => indexed?,
        _ = tokio::signal::ctrl_c() => {
            progress.clear();
            output.notice("stopped; what is indexed stays, and `sess index` goes on from there");
            return Ok(ExitCode::from(INTERRUPTED));
        }
    };
    progress.clear();
    if output.json {
        output.data(&indexed)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(problem) = &indexed.made_anew {
        output.notice(&format!("the index was made anew: {problem}"));
    }
    for failed in indexed.failed.iter().take(NAMED_MAX) {
        output.notice(&format!("{} was not indexed: {}", failed.id, failed.reason));
    }
    if indexed.failed.len() > NAMED_MAX {
        output
            .notice(&format!("{} more were not indexed; --json names all", indexed.failed.len() - NAMED_MAX));
    }
    output.line(&summary(&indexed))?;
    Ok(ExitCode::SUCCESS)
}

fn summary(indexed: &Indexing) -> String {
    if indexed.looked_at == 0 && indexed.index.indexed == 0 {
        return "no sessions of other agents were found; nothing was indexed".to_owned();
    }
    let Indexing { new, changed, unchanged, left_out, .. } = indexed;
    let left_out = if *left_out == 0 { String::new() } else { format!(", {left_out} always read") };
    format!("{new} new, {changed} changed, {unchanged} unchanged{left_out}; {}", size(&indexed.index))
}

fn say_state(output: &Output, state: &IndexState) -> anyhow::Result<()> {
    if let Some(problem) = &state.problem {
        output.notice(problem);
    }
    if state.index == IndexSize::default() {
        return output.line("there is no index; `sess index` makes one");
    }
    output.line(&format!(
        "{} of {} sessions are indexed as they are; {}",
        state.current,
        state.sessions,
        size(&state.index)
    ))?;
    let lagging = state.sessions.saturating_sub(state.current + state.left_out);
    let it = |count: u64, one: &'static str, more: &'static str| if count == 1 { one } else { more };
    if state.left_out > 0 {
        output.line(&format!(
            "{} of the others {} always read: no one file tells when {}",
            state.left_out,
            it(state.left_out, "is", "are"),
            it(state.left_out, "it changes", "they change")
        ))?;
    }
    if lagging > 0 {
        output.line(&format!(
            "{lagging} of the others {} new, changed or unreadable: searches read {}, and `sess index` takes in \
             what it can",
            it(lagging, "is", "are"),
            it(lagging, "it", "them")
        ))?;
    }
    Ok(())
}

fn size(index: &IndexSize) -> String {
    let sessions = if index.indexed == 1 { "session" } else { "sessions" };
    format!(
        "the index has {} {sessions} of {} in {}",
        index.indexed,
        HumanBytes(index.covered_bytes),
        HumanBytes(index.size_bytes)
    )
}
