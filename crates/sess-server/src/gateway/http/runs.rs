//! Runs: the list, one of them, waiting for it and stopping it.

use std::time::Duration;

use axum::response::Response;
use sess_app::{Access, ListRuns, Redaction};
use sess_protocol::runs::{RunRow, Runs, WaitBody};

use super::{Call, Problem, json, json_body_or_default, unseen, waited};

pub(in crate::gateway) const RUNS_MAX: u64 = 1_000;
/// How long a run is waited for when nobody says, and at most.
pub(in crate::gateway) const WAIT_MS: u64 = 30_000;
pub(in crate::gateway) const WAIT_MS_MAX: u64 = 600_000;

pub(in crate::gateway) async fn list(call: Call, access: Access) -> Result<Response, Problem> {
    let limit = call.query.number("limit", 1..=RUNS_MAX)?;
    let session = call.query.text("session").map(str::to_owned);
    let ask = ListRuns {
        limit: limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX)),
        as_tree: call.query.flag("tree")?.unwrap_or(false),
        redaction: Redaction::Masked,
        session: session.clone(),
    };
    let runs = call.state.app.runs(&call.caller(&access), &ask).await;
    let runs = runs.map_err(|error| unseen(error, session.as_deref().unwrap_or_default()))?;
    Ok(json(&Runs { runs: runs.into_iter().map(RunRow::from).collect() }))
}

pub(in crate::gateway) async fn get(call: Call, access: Access) -> Result<Response, Problem> {
    let (app, caller) = (&call.state.app, call.caller(&access));
    let run = app.find_run(&caller, call.param("runId"), Redaction::Masked).await?;
    let row = app.run_row(&caller, &run, Redaction::Masked).await?;
    Ok(json(&RunRow::from(row)))
}

pub(in crate::gateway) async fn wait(call: Call, access: Access) -> Result<Response, Problem> {
    let (app, caller) = (call.state.app.clone(), call.caller(&access));
    let run = app.find_run(&caller, call.param("runId"), Redaction::Masked).await?;
    let body: WaitBody = json_body_or_default(call).await?;
    let timeout_ms = body.timeout_ms.unwrap_or(WAIT_MS);
    if timeout_ms > WAIT_MS_MAX {
        return Err(Problem::invalid(format!("timeoutMs must be at most {WAIT_MS_MAX}, not {timeout_ms}")));
    }
    let waiting = caller.clone();
    let wait = async move { app.outcome(&waiting, &run.id, Duration::from_millis(timeout_ms)).await };
    Ok(json(&waited(&caller, wait).await?))
}

pub(in crate::gateway) async fn cancel(call: Call, access: Access) -> Result<Response, Problem> {
    let (app, caller) = (&call.state.app, call.caller(&access));
    let run = app.find_run(&caller, call.param("runId"), Redaction::Masked).await?;
    let run = app.cancel(&caller, &run.id, Redaction::Masked).await?;
    let row = app.run_row(&caller, &run, Redaction::Masked).await?;
    Ok(json(&RunRow::from(row)))
}
