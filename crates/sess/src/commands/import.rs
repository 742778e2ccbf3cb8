//! `sess import` and `sess export`: sessions from files, and back into them.

use std::{io::Write as _, path::PathBuf, process::ExitCode, sync::Arc};

use serde_json::json;
use sess_app::{App, Import, ImportedFile};
use tokio::{sync::Semaphore, task::JoinSet};

use super::{Context, Progress};
use crate::{
    cli,
    output::{Output, exit_code, visible},
};

/// How many files are read at a time. Their commits share disk flushes.
const AT_ONCE: usize = 8;

pub async fn import(context: &Context, output: &Output, args: cli::Import) -> anyhow::Result<ExitCode> {
    let slots = Arc::new(Semaphore::new(AT_ONCE));
    let mut running = JoinSet::new();
    let all = args.files.len() as u64;
    for file in args.files {
        let (app, slots) = (context.app.clone(), Arc::clone(&slots));
        running.spawn(async move {
            let _slot = slots.acquire_owned().await;
            let outcome = import_one(&app, file.clone()).await;
            (file, outcome)
        });
    }
    let progress = Progress::new("importing");
    let mut worst = 0;
    let mut done = 0;
    while let Some(finished) = running.join_next().await {
        let (file, outcome) = finished?;
        done += 1;
        progress.set(done, all);
        match outcome {
            Ok(imported) => {
                for warning in &imported.warnings {
                    output.say(&format!("warning: {}: {}", file.display(), visible(warning)));
                }
                for session in &imported.sessions {
                    acknowledge(output, &file, session)?;
                }
                for error in imported.refused {
                    let error = anyhow::Error::from(error);
                    worst = worst.max(exit_code(&error));
                    output.fail(&error);
                }
            }
            Err(error) => {
                worst = worst.max(exit_code(&error));
                output.fail(&error);
            }
        }
    }
    drop(progress);
    if worst == 0 {
        let progress = Progress::new("indexing messages");
        context.app.catch_up(&|done, all| progress.set(done, all)).await?;
    }
    Ok(ExitCode::from(worst))
}

async fn import_one(app: &App, file: PathBuf) -> anyhow::Result<ImportedFile> {
    if file.as_os_str() == "-" {
        let input = std::io::BufReader::new(std::io::stdin());
        let session = app.import_lines(input).await?;
        return Ok(ImportedFile { sessions: vec![session], ..ImportedFile::default() });
    }
    Ok(app.import_file(file).await?)
}

/// Says, as soon as it is durable, what was brought in.
fn acknowledge(output: &Output, file: &std::path::Path, session: &Import) -> anyhow::Result<()> {
    if output.json {
        let line = json!({
            "schema_version": 1, "file": file, "id": session.id, "added": session.added, "total": session.total,
            "existed": session.existed,
        });
        return output.line(&line.to_string());
    }
    let what = match (session.existed, session.added) {
        (false, added) => format!("{added} messages"),
        (true, 0) => "already here".to_owned(),
        (true, added) => format!("{added} new messages, {} in all", session.total),
    };
    output.line(&format!("imported {}: {what}", session.id))
}

pub async fn export(context: &Context, output: &Output, reference: &str) -> anyhow::Result<()> {
    let session = context.resolve(reference).await?;
    if context.caller.standing != sess_core::policy::Standing::Owner {
        // An export is unmasked.
        let text = "only the owner may export a session".to_owned();
        return Err(sess_app::Error::Denied(text).into());
    }
    let _ = output;
    let mut stdout = std::io::BufWriter::new(std::io::stdout());
    context.app.export(&session, &mut |text| stdout.write_all(text.as_bytes())).await?;
    stdout.flush()?;
    Ok(())
}
