//! `sess import` and `sess export`: sessions from files, and back into them.

use std::{path::PathBuf, process::ExitCode, sync::Arc};

use anyhow::Context as _;
use serde_json::json;
use sess_app::{App, Caller, Import, ImportedFile};
use tokio::{sync::Semaphore, task::JoinSet};

use super::{
    Context,
    progress::{Progress, beside},
};
use crate::{
    cli,
    output::{Output, ReaderGone, exit_code, visible},
};

/// How many files are read at a time. Their commits share disk flushes.
const AT_ONCE: usize = 8;

pub async fn import(context: &Context, output: &Output, args: cli::Import) -> anyhow::Result<ExitCode> {
    let slots = Arc::new(Semaphore::new(AT_ONCE));
    let mut running = JoinSet::new();
    let all = args.files.len() as u64;
    for file in args.files {
        let (app, caller, slots) = (context.app.clone(), context.caller.clone(), Arc::clone(&slots));
        running.spawn(async move {
            let _slot = slots.acquire_owned().await;
            let outcome = import_one(&app, &caller, file.clone()).await;
            (file, outcome)
        });
    }
    let progress = Progress::new("importing");
    progress.set(0, all);
    let mut worst = 0;
    let mut done = 0;
    while let Some(finished) = running.join_next().await {
        let (file, outcome) = finished?;
        done += 1;
        progress.set(done, all);
        match outcome {
            Ok(imported) => {
                for warning in &imported.warnings {
                    let warning = format!("warning: {}: {warning}", file.display());
                    output.say(&visible(&warning));
                }
                for session in &imported.sessions {
                    match beside(|| acknowledge(output, &file, session)) {
                        // The rest is brought in all the same.
                        Err(error) if error.is::<ReaderGone>() => {}
                        told => told?,
                    }
                }
                for error in imported.refused {
                    let error = anyhow::Error::from(error);
                    worst = worst.max(exit_code(&error));
                    beside(|| output.fail(&error));
                }
            }
            Err(error) => {
                worst = worst.max(exit_code(&error));
                beside(|| output.fail(&error));
            }
        }
    }
    drop(progress);
    if worst == 0 {
        let progress = Progress::new("indexing messages");
        if let Err(error) = context.app.catch_up(&|done, all| progress.set(done, all)).await {
            // What was brought in is safe; the next search catches up.
            output.say(&visible(&format!("warning: the search index is behind: {error}")));
        }
    }
    Ok(ExitCode::from(worst))
}

async fn import_one(app: &App, caller: &Caller, file: PathBuf) -> anyhow::Result<ImportedFile> {
    if file.as_os_str() == "-" {
        let input = std::io::BufReader::new(std::io::stdin());
        let session = app.import_lines(caller, input).await.context("standard input")?;
        return Ok(ImportedFile { sessions: vec![session], ..ImportedFile::default() });
    }
    Ok(app.import_file(caller, file).await?)
}

/// Says, as soon as it is durable, what was brought in.
fn acknowledge(output: &Output, file: &std::path::Path, session: &Import) -> anyhow::Result<()> {
    if output.json {
        return output.data_line(&json!({
            "file": file, "id": session.id, "added": session.added, "total": session.total,
            "existed": session.existed,
        }));
    }
    let messages = |count: u64| if count == 1 { "1 message".to_owned() } else { format!("{count} messages") };
    let what = match (session.existed, session.added) {
        (false, added) => messages(added),
        (true, 0) => "already here".to_owned(),
        (true, added) => format!("{added} new, {} in all", messages(session.total)),
    };
    output.line(&format!("imported {}: {what}", session.id))
}

pub async fn export(context: &Context, output: &Output, reference: &str) -> anyhow::Result<()> {
    // In a terminal what is printed shows how far it is, and the two would run into each other.
    let progress = (!output.is_terminal()).then(|| Progress::new("exporting"));
    let mut outcome = Ok(());
    let mut print = |text: &str| {
        outcome = output.json_text(text);
        // The app only needs to know that it can stop.
        if outcome.is_err() { Err(std::io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    };
    let exported = context.app.export(&context.caller, reference, &mut print).await;
    drop(progress);
    outcome?;
    Ok(exported?)
}
