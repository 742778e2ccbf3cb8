//! `sess work board`
use super::Here;
pub(super) async fn run(here: &Here<'_>) -> anyhow::Result<()> {
    let _ = here;
    Ok(())
}
