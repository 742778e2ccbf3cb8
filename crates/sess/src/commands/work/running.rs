//! `sess work run`
use super::Here;
use crate::cli::work::One;
use std::process::ExitCode;
pub(super) async fn run(_here: &Here<'_>, _one: One, _agent: &str, _yolo: bool) -> anyhow::Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
