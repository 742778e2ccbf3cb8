//! Handlers: each parses what it was asked, calls one use case, and renders the answer.

pub(super) mod history;
pub(super) mod plans;
pub(super) mod runs;
pub(super) mod search;
pub(super) mod sessions;
pub(super) mod tokens;
pub(super) mod work;

use std::{pin::Pin, time::Duration};

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use serde::{Serialize, de::DeserializeOwned};
use sess_app::{Access, Caller, ChatFile, ReadEvents, Redaction};
use sess_protocol::{events::EventsPage, sessions::Uploaded};

use super::{
    errors::Problem,
    reading,
    routes::{Call, Takes},
    sse,
};

/// How many events one page has when nobody says, and at most.
const EVENTS_LEN: u64 = 100;
const EVENTS_LEN_MAX: u64 = 1_000;
/// How much of a body that is too large is read, as a multiple of what it may be, and for how long.
const WASTE_FACTOR: usize = 4;
const WASTE_WITHIN: Duration = Duration::from_secs(5);
/// The longest name of an uploaded file.
const NAME_BYTES_MAX: usize = 255;

pub(super) async fn readyz(call: Call) -> Result<Response, Problem> {
    call.state.check_open()?;
    call.state.app.events_head().await?;
    Ok("ready\n".into_response())
}

pub(super) async fn agents(call: Call, access: Access) -> Result<Response, Problem> {
    Ok(json(&call.state.app.configured_agents(&call.caller(&access))?))
}

pub(super) async fn events(call: Call, access: Access) -> Result<Response, Problem> {
    let limit = call.query.number("limit", 1..=EVENTS_LEN_MAX)?;
    let resumed = last_event_id(call.request.headers())?;
    let given = resumed.as_deref().or(call.query.text("cursor"));
    let cursors = &call.state.cursors;
    let after = given.map(|text| cursors.open_position(text)).transpose();
    let after = after.map_err(|error| Problem::invalid(error.to_string()))?;
    let caller = call.caller(&access);
    let app = &call.state.app;
    if is_stream(&call)? {
        let after = match after {
            Some(after) => after,
            None => app.events_head().await?,
        };
        let cut = call.state.while_counts(&access);
        return Ok(sse::answer(sse::Everything::new(call.state.clone(), cut, caller, after)?));
    }
    let limit = usize::try_from(limit.unwrap_or(EVENTS_LEN)).unwrap_or(usize::MAX);
    let after = after.unwrap_or(0);
    let ask = ReadEvents { after, limit, only: None, redaction: Redaction::Masked };
    let page = app.events(&caller, &ask).await?;
    let events = page.events.into_iter().map(|event| event.fields).collect();
    Ok(json(&EventsPage { events, next_cursor: cursors.seal_position(page.cursor) }))
}

pub(super) async fn attach(call: Call, access: Access) -> Result<Response, Problem> {
    let name = call.query.text("name").unwrap_or("file").to_owned();
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
        return Err(Problem::invalid(format!(
            "name must be 1 to {NAME_BYTES_MAX} bytes without control characters"
        )));
    }
    let given = call.request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let mime_type = given.unwrap_or("application/octet-stream").to_owned();
    let state = call.state.clone();
    let bytes = Vec::from(body(call).await?);
    let id = state.app.new_file_id();
    let size_bytes = bytes.len() as u64;
    let file = ChatFile { name: name.clone(), mime_type: mime_type.clone(), bytes };
    state.app.check_file(&file)?;
    state.attachments.add(&access, id.clone(), file)?;
    Ok(created(&Uploaded { id, name, mime_type, size_bytes }))
}

impl Call {
    /// Returns the caller that somebody with this access is; it is gone when the gateway ends.
    fn caller(&self, access: &Access) -> Caller {
        let mut caller = self.state.app.door_caller(access, None);
        caller.gone = self.state.stop.child_token();
        caller
    }

    /// Returns the session that the path names.
    fn session(&self) -> &str {
        self.param("sessionKey")
    }
}

/// Waits for something on behalf of a client; when that goes away, it is told to whom it concerns.
///
/// What waits is a task of its own, because a request that nobody reads any longer is dropped where
/// it stands.
async fn waited<T: Send + 'static>(
    caller: &Caller,
    wait: impl Future<Output = Result<T, sess_app::Error>> + Send + 'static,
) -> Result<T, Problem> {
    let _gone = caller.gone.clone().drop_guard();
    match tokio::spawn(wait).await {
        Ok(done) => Ok(done?),
        // A panic told of itself when it happened; what it says may quote a secret, and is not repeated.
        Err(_) => Err(Problem::internal()),
    }
}

/// What this caller may not see is not there.
pub(super) fn unseen(error: sess_app::Error, given: &str) -> Problem {
    if error.kind() == sess_app::Kind::Denied {
        return Problem::not_found(format!("Session not found: {given}"));
    }
    error.into()
}

/// Tells whether an answer is to go on as a stream of events.
fn is_stream(call: &Call) -> Result<bool, Problem> {
    let accepted = call.request.headers().get_all(header::ACCEPT).iter();
    let asks = accepted.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    let mut kinds = asks.map(|kind| kind.split(';').next().unwrap_or_default().trim());
    let is_accepted = kinds.any(|kind| kind.eq_ignore_ascii_case("text/event-stream"));
    Ok(call.query.flag("follow")?.unwrap_or(is_accepted))
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let text = value.to_str().map_err(|_| Problem::invalid("Last-Event-ID is no cursor of this gateway"))?;
    Ok(Some(text.to_owned()).filter(|text| !text.is_empty()))
}

pub(super) fn json(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => {
            let mut response = Response::new(Body::from(body));
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        Err(error) => {
            tracing::error!(%error, "an answer cannot be written");
            Problem::internal().into_response()
        }
    }
}

fn created(value: &impl Serialize) -> Response {
    let mut response = json(value);
    if response.status() == StatusCode::OK {
        *response.status_mut() = StatusCode::CREATED;
    }
    response
}

/// Refuses a body by what its head says of it.
pub(super) fn check_body(call: &Call, takes: &Takes) -> Result<(), Problem> {
    let headers = call.request.headers();
    if let Some(length) = headers.get(header::CONTENT_LENGTH) {
        let length = length.to_str().ok().and_then(|length| length.parse::<usize>().ok());
        if length.is_none_or(|length| length > call.body_bytes_max) {
            return Err(Problem::too_large(call.body_bytes_max));
        }
    }
    let kind = headers.get(header::CONTENT_TYPE).map(|value| value.to_str().unwrap_or_default());
    let is_json = |kind: &str| {
        let essence = kind.split(';').next().unwrap_or_default().trim();
        essence.eq_ignore_ascii_case("application/json")
    };
    let has_body = !call.request.body().is_end_stream();
    let is_right = match takes {
        Takes::Json(_) => kind.is_some_and(is_json),
        Takes::Maybe(_) => kind.is_some_and(is_json) || kind.is_none() && !has_body,
        Takes::Nothing | Takes::File | Takes::Frames => true,
    };
    if is_right {
        Ok(())
    } else {
        Err(Problem::invalid("the body must be JSON: Content-Type: application/json"))
    }
}

/// Throws a body away that is refused, so that a client that writes first gets to read why.
///
/// Not one that is said to be far too large, and not when the client asked whether it may send.
pub(super) async fn waste(call: Call) {
    let (headers, most) = (call.request.headers(), call.body_bytes_max.saturating_mul(WASTE_FACTOR));
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if headers.contains_key(header::EXPECT) || length.is_some_and(|length: usize| length > most) {
        return;
    }
    waste_body(&mut call.request.into_body(), most).await;
}

async fn waste_body(body: &mut Body, bytes_max: usize) {
    let read = async {
        let mut left = bytes_max;
        while let Some(Ok(frame)) =
            std::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await
        {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                return;
            }
        }
    };
    let _read = tokio::time::timeout(WASTE_WITHIN, read).await;
}

/// Reads a body as JSON, of at most the depth that the parser allows.
async fn json_body<T: DeserializeOwned>(call: Call) -> Result<T, Problem> {
    let body = body(call).await?;
    reading::object(&body).map_err(|reading::Wrong { place, what }| {
        let place = if place.is_empty() { place } else { format!("{place}: ") };
        Problem::invalid(format!("the body is not as expected: {place}{what}"))
    })
}

/// As [`json_body`]; nothing at all is the default.
async fn json_body_or_default<T: DeserializeOwned + Default>(call: Call) -> Result<T, Problem> {
    if call.request.body().is_end_stream() { Ok(T::default()) } else { json_body(call).await }
}

/// Reads a body, as long as it may be and within the time that it has.
pub(super) async fn body(call: Call) -> Result<Bytes, Problem> {
    let within = call.state.limits.body_within;
    let bytes_max = call.body_bytes_max;
    let mut body = call.request.into_body();
    let read = async {
        let mut bytes = BytesMut::new();
        while let Some(frame) = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await
        {
            let frame = frame.map_err(|_| Problem::invalid("the body ended before it was whole"))?;
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len() + data.len() > bytes_max {
                drop(bytes);
                waste_body(&mut body, bytes_max.saturating_mul(WASTE_FACTOR)).await;
                return Err(Problem::too_large(bytes_max));
            }
            bytes.extend_from_slice(&data);
        }
        Ok(bytes.freeze())
    };
    let late = || Problem::invalid(format!("the body did not arrive within {} s", within.as_secs()));
    tokio::time::timeout(within, read).await.map_err(|_| late())?
}
