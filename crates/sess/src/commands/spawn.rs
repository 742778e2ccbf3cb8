//! `sess spawn`: a task for an agent, in a session of its own.

use std::{path::Path, process::ExitCode, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use sess_app::{Attachment, SpawnTask};
use sess_protocol::runs as wire;

use super::{
    Context, node,
    run::message_of,
    send::short,
    wait::{self, until_end},
};
use crate::{
    cli,
    output::{Output, Usage},
};

/// The most bytes of one attached file.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

pub async fn run(context: &Context, output: &Output, args: cli::Spawn) -> anyhow::Result<ExitCode> {
    let Some(task) = message_of(&args.words)? else {
        return Err(Usage("there is no task: sess spawn \"what to do\"".to_owned()).into());
    };
    let attachments = args.attach.iter().map(|file| attachment(file)).collect::<Result<Vec<_>, _>>()?;
    let ask = SpawnTask {
        task,
        label: args.label,
        agent_id: args.agent,
        model: args.model,
        thinking: args.thinking,
        run_timeout_seconds: args.timeout,
        cleanup: args.cleanup,
        attachments,
        idempotency_key: args.idempotency_key,
        ..SpawnTask::default()
    };
    let answer = context.app.spawn(&context.sender().await?, ask).await?;
    let Some(seconds) = args.wait.filter(|seconds| *seconds > 0) else {
        if output.json {
            output.data(&answer)?;
            return Ok(ExitCode::SUCCESS);
        }
        output.line(&format!("run      {}", answer.run_id))?;
        output.line(&format!("session  {}", answer.child_session_key))?;
        output.say(&format!(
            "queued: `sess wait {}` has it executed and shows the result; an open `sess run` executes it, too",
            short(&answer.run_id)
        ));
        return Ok(ExitCode::SUCCESS);
    };
    let run = context.app.find_run(&context.caller, &answer.run_id, context.redaction).await?;
    node::start(context, &run)?;
    if !output.json {
        let dim = console::Style::new().for_stderr().dim();
        let text = format!("{} · run {}", answer.child_session_key, short(&answer.run_id));
        output.say(&dim.apply_to(text).to_string());
    }
    let Some(run) = until_end(context, output, &run, Some(Duration::from_secs(seconds))).await? else {
        return Ok(ExitCode::from(wait::INTERRUPTED));
    };
    if output.json {
        let row = context.app.run_row(&context.caller, &run, context.redaction).await?;
        let mut data = serde_json::to_value(&answer)?;
        data["run"] = serde_json::to_value(wire::RunRow::from(row))?;
        output.data(&data)?;
        return Ok(wait::exit_code(&run));
    }
    wait::show(output, &run)
}

/// Reads a file that goes with a task. Whatever is wrong with it is a mistake in the call.
fn attachment(file: &Path) -> Result<Attachment, Usage> {
    let cannot = |why: String| Usage(format!("cannot attach {}: {why}", file.display()));
    let found = file.metadata().map_err(|error| cannot(error.to_string()))?;
    if !found.is_file() {
        return Err(cannot("it is not a regular file".to_owned()));
    }
    if found.len() > FILE_BYTES_MAX {
        return Err(cannot(format!("it has {} bytes, of at most {FILE_BYTES_MAX}", found.len())));
    }
    let name = file.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| cannot("its name is not UTF-8".to_owned()))?.to_owned();
    let bytes = std::fs::read(file).map_err(|error| cannot(error.to_string()))?;
    let (content, encoding) = match String::from_utf8(bytes) {
        Ok(text) => (text, "utf8"),
        Err(error) => (STANDARD.encode(error.into_bytes()), "base64"),
    };
    Ok(Attachment { name, content, encoding: Some(encoding.to_owned()), mime_type: None })
}
