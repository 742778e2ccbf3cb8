//! `GET /sessions/{sessionKey}/history`: pages of a transcript, and the stream that goes on from them.

use std::sync::Arc;

use axum::response::Response;
use sess_app::{Access, Caller, Led, TranscriptPage};
use sess_core::policy::Verb;
use sess_protocol::messages::HistoryPage;

use super::{Call, Problem, json, unseen};
use crate::gateway::{cursor::Cursor, follower::Follower, sse, state::State};

/// How many messages one page has when nobody says, and at most.
pub(in crate::gateway) const PAGE_LEN: u64 = 200;
pub(in crate::gateway) const PAGE_LEN_MAX: u64 = 1_000;

pub(in crate::gateway) async fn history(call: Call, access: Access) -> Result<Response, Problem> {
    let limit = call.query.number("limit", 1..=PAGE_LEN_MAX)?.unwrap_or(PAGE_LEN);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let with_tools = call.query.flag("includeTools")?.unwrap_or(false);
    let is_stream = super::is_stream(&call)?;
    let caller = call.caller(&access);
    let (state, given) = (&call.state, call.session());
    if is_stream && let Some(resumed) = super::last_event_id(call.request.headers())? {
        return resume(state, &access, &caller, given, &resumed, with_tools).await;
    }
    let cursor = call.query.text("cursor");
    if is_stream && cursor.is_some() {
        return Err(Problem::invalid(
            "a cursor leads back and cannot be followed: give Last-Event-ID to go on where a stream ended",
        ));
    }
    let page = page(state, &caller, given, cursor, limit, with_tools).await?;
    if !is_stream {
        return Ok(json(&rendered(state, page)));
    }
    if page.in_place {
        return Err(no_stream());
    }
    let (key, session) = (page.session.key.clone(), page.session.id.clone());
    // Newer messages may have come while it was read, and are in it then.
    let newest = page.messages.last().map_or(page.last_seq, |message| message.seq.max(page.last_seq));
    let shown = page.key.clone();
    let data = serde_json::to_string(&rendered(state, page)).expect("texts are JSON");
    let first = sse::event("history", Some(&state.cursors.seal(&session, newest)), &data);
    let follower = Follower::new(state.app.clone(), &state.hub, key, session, newest);
    let cut = state.while_counts(&access);
    let stream = sse::Transcript::new(state.clone(), cut, follower, Some(first), shown, with_tools);
    Ok(sse::answer(stream))
}

/// Goes on where a stream ended.
async fn resume(
    state: &Arc<State>,
    access: &Access,
    caller: &Caller,
    given: &str,
    text: &str,
    with_tools: bool,
) -> Result<Response, Problem> {
    let (Led { key, in_place, .. }, cursor) = place(state, caller, given, text).await?;
    if in_place {
        return Err(no_stream());
    }
    let shown = state.app.shown_key(&key)?;
    let Cursor { session, seq } = cursor;
    let follower = Follower::new(state.app.clone(), &state.hub, key, session, seq);
    let cut = state.while_counts(access);
    Ok(sse::answer(sse::Transcript::new(state.clone(), cut, follower, None, shown, with_tools)))
}

fn no_stream() -> Problem {
    Problem::invalid(
        "this session is read from another agent's files and cannot be followed: ask for its newest page again",
    )
}

/// Returns the place that a cursor names, in a session of the key that was asked for.
async fn place(state: &State, caller: &Caller, given: &str, text: &str) -> Result<(Led, Cursor), Problem> {
    state.app.in_sight(caller, given, Verb::History).await.map_err(|error| unseen(error, given))?;
    let cursor = state.cursors.open(text).map_err(|error| Problem::invalid(error.to_string()))?;
    let led = state.app.place_in(caller, given, &cursor.session).await?;
    let other = || Problem::invalid("invalid cursor: it is another session's, or that session was deleted");
    Ok((led.ok_or_else(other)?, cursor))
}

/// Returns the newest page, or the one before the place that a cursor names.
pub(in crate::gateway) async fn page(
    state: &State,
    caller: &Caller,
    given: &str,
    cursor: Option<&str>,
    limit: usize,
    with_tools: bool,
) -> Result<TranscriptPage, Problem> {
    let (named, before) = match cursor {
        None => (given.to_owned(), None),
        Some(text) => {
            let (Led { reference, .. }, Cursor { seq, .. }) = place(state, caller, given, text).await?;
            (reference, Some(seq))
        }
    };
    let page = state.app.transcript_page(caller, &named, before, limit, with_tools).await;
    page.map_err(|error| unseen(error, given))
}

pub(in crate::gateway) fn rendered(state: &State, page: TranscriptPage) -> HistoryPage {
    let oldest = page.messages.first().map(|message| message.seq).filter(|_| page.has_more);
    HistoryPage {
        next_cursor: oldest.map(|seq| state.cursors.seal(&page.session.id, seq)),
        session_key: page.key,
        session_id: page.session.id.to_string(),
        items: page.messages.into_iter().map(|message| message.json).collect(),
        has_more: page.has_more,
    }
}
