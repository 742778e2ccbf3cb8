//! `GET /search`: messages in the sessions of all agents.

use axum::response::Response;
use sess_app::{Access, App, Found, Redaction, SearchHit, SearchMessages};
use sess_core::message::Role;
use sess_protocol::{
    messages,
    search::{self, SearchPage},
};

use super::{Call, Problem, json, sessions::scope};

const HITS_MAX: u64 = 100;
/// The longest text that is searched for.
const TEXT_BYTES_MAX: usize = 1_000;

pub(in crate::gateway) async fn search(call: Call, access: Access) -> Result<Response, Problem> {
    let (query, state) = (&call.query, &call.state);
    let text = query.text("q").unwrap_or_default();
    if text.len() > TEXT_BYTES_MAX {
        return Err(Problem::invalid(format!("q must be at most {TEXT_BYTES_MAX} bytes")));
    }
    let before = query.text("cursor").map(|text| state.cursors.open_search(text)).transpose();
    let ask = SearchMessages {
        text: text.to_owned(),
        is_expression: query.flag("regex")?.unwrap_or(false),
        scope: scope(query)?,
        sources: sess_app::sources(&query.list("source"))?,
        limit: query.number("limit", 1..=HITS_MAX)?.map(|limit| i64::try_from(limit).unwrap_or(i64::MAX)),
        before: before.map_err(|error| Problem::invalid(error.to_string()))?,
        redaction: Redaction::Masked,
    };
    let turn = state.searches.acquire().await.expect("it is never closed");
    let Found { hits, cursor } = state.app.search(&call.caller(&access), &ask, |_, _| {}).await?;
    drop(turn);
    let next_cursor = cursor.map(|place| state.cursors.seal_search(&place));
    let hits: Result<_, sess_app::Error> = hits.into_iter().map(|found| hit(&state.app, found)).collect();
    Ok(json(&SearchPage { hits: hits?, next_cursor }))
}

fn hit(app: &App, found: SearchHit) -> Result<search::SearchHit, sess_app::Error> {
    let SearchHit { session, message, seq, spot, role, snippet, .. } = found;
    // Another agent's session is listed with its source before its id.
    let id = session.id.strip_prefix(&format!("{}:", session.source)).unwrap_or(&session.id).to_owned();
    Ok(search::SearchHit {
        session_key: app.shown_key(&spot.key)?,
        session_id: id,
        source: session.source,
        title: session.title,
        message_id: message,
        seq,
        role: match role {
            Role::User => messages::Role::User,
            Role::Assistant => messages::Role::Assistant,
            Role::ToolResult => messages::Role::ToolResult,
            Role::System => messages::Role::System,
        },
        timestamp: spot.at.as_millis(),
        snippet,
    })
}
