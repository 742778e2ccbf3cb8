//! Sessions: the list, one of them, and messages into it.

use axum::response::Response;
use sess_app::{Access, ListRows, Others, Redaction, Scope, SendMessage};
use sess_core::policy::Verb;
use sess_protocol::sessions::SendBody;

use super::{Call, Problem, json, json_body, unseen, waited};
use crate::gateway::query::Query;

pub(in crate::gateway) const ROWS_MAX: u64 = 200;
const OFFSET_MAX: u64 = 1_000_000_000;
const MESSAGES_MAX: u64 = 20;

pub(in crate::gateway) async fn list(call: Call, access: Access) -> Result<Response, Problem> {
    let query = &call.query;
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let ask = ListRows {
        kinds: query.list("kinds"),
        limit: query.number("limit", 1..=ROWS_MAX)?.map(signed),
        offset: query.number("offset", 0..=OFFSET_MAX)?.unwrap_or(0),
        active_minutes: query.amount("activeMinutes")?,
        message_limit: query.number("messageLimit", 0..=MESSAGES_MAX)?.map(signed),
        search: query.text("search").map(str::to_owned),
        agent: query.text("agent").map(str::to_owned),
        with_archived: query.flag("archived")?.unwrap_or(false),
        sources: query.list("source"),
        scope: scope(query)?,
        others: Others::Included,
    };
    Ok(json(&call.state.app.session_rows(&call.caller(&access), &ask).await?))
}

/// Returns which sessions are meant, by where they ran.
pub(in crate::gateway) fn scope(query: &Query) -> Result<Scope, Problem> {
    match query.text("scope") {
        None | Some("all") => Ok(Scope::All),
        Some("repo") => Ok(Scope::Repo),
        Some(other) => Err(Problem::invalid(format!("scope must be repo or all, not {other:?}"))),
    }
}

pub(in crate::gateway) async fn get(call: Call, access: Access) -> Result<Response, Problem> {
    let messages = call.query.number("messageLimit", 0..=MESSAGES_MAX)?.unwrap_or(0);
    let given = call.session();
    let row = call.state.app.session_row(&call.caller(&access), given, messages).await;
    Ok(json(&row.map_err(|error| unseen(error, given))?))
}

pub(in crate::gateway) async fn send(call: Call, access: Access) -> Result<Response, Problem> {
    let (app, caller) = (call.state.app.clone(), call.caller(&access));
    let to = call.session().to_owned();
    // What is out of sight is not there; what is in sight may still refuse.
    app.in_sight(&caller, &to, Verb::Send).await.map_err(|error| unseen(error, &to))?;
    let body: SendBody = json_body(call).await?;
    let ask = SendMessage {
        to,
        message: body.message,
        timeout_seconds: body.timeout_seconds,
        idempotency_key: body.idempotency_key,
        redaction: Redaction::Masked,
    };
    let waiting = caller.clone();
    let answer = waited(&caller, async move { app.send(&waiting, ask).await }).await?;
    Ok(json(&answer))
}
