//! `sess confined`, hidden: this program starts itself again so, to run an agent's tool in its sandbox.

use std::{ffi::OsString, io::Read as _, process::ExitCode};

use anyhow::Context as _;
use sess_agent::confine::{self, Policy};

use crate::{
    cli,
    output::{Output, Usage},
};

/// The longest call of a tool on files that is read.
const REQUEST_BYTES_MAX: u64 = 64_000_000;

/// Has to run before any thread is started: a sandbox holds for the thread that makes it.
pub fn run(output: &Output, args: &cli::Confined) -> anyhow::Result<ExitCode> {
    let policy: Policy = serde_json::from_str(&args.policy)
        .map_err(|error| Usage(format!("the policy is not valid: {error}")))?;
    if let Some((program, args)) = args.program.split_first() {
        let error = confine::run_confined(&policy, program, args);
        return Err(error).with_context(|| format!("cannot run {}", OsString::from(program).display()));
    }
    confine::confine(&policy)?;
    let mut request = String::new();
    std::io::stdin().take(REQUEST_BYTES_MAX).read_to_string(&mut request).context("cannot read the call")?;
    output.raw(sess_agent::files::serve_file_tool(&request).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
