//! MCP over Streamable HTTP, at `/mcp` and at `/mcp/<session token>`.
//!
//! `rmcp` knows the protocol, of the newest revision, which has no connections, and of the older ones,
//! which have. Who calls is told by each request's own token, never by the connection alone.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::Body,
    extract::Request,
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header},
    response::Response,
};
use bytes::Bytes;
use http_body::Frame;
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
};
use serde::Deserialize;
use sess_app::{Access, App};
use sess_core::identity::MCP_SESSION_ID;
use sess_protocol::{
    errors::{ErrorBody, ErrorDetail, ErrorType},
    tokens::Scope,
};
use tokio_util::{
    sync::{CancellationToken, WaitForCancellationFutureOwned},
    task::task_tracker::TaskTrackerToken,
};

use super::{errors::Problem, http, limits::Limits, routes::Call, state::State};
use crate::mcp::{Door, wire};

/// How many connections of older revisions there may be.
const CONNECTIONS_MAX: usize = 1_000;
/// How long one of them stays that nobody uses: its agent is known by it, and people take breaks.
const CONNECTION_IDLE_FOR: Duration = Duration::from_secs(12 * 60 * 60);
/// The most bytes of a refusal that are looked at.
const REFUSAL_BYTES_MAX: usize = 4_096;

/// The MCP door of one gateway.
pub(super) struct McpHttp {
    service: StreamableHttpService<Door, LocalSessionManager>,
    connections: Arc<LocalSessionManager>,
    /// The token with which each connection began; none is the owner's.
    holders: Mutex<HashMap<String, Option<String>>>,
}

impl McpHttp {
    pub(super) fn new(app: App, limits: &Limits, stop: &CancellationToken) -> Self {
        let mut connections = LocalSessionManager::default();
        connections.session_config.keep_alive = Some(CONNECTION_IDLE_FOR);
        // Both of them: Gemini dies of the empty event that begins a stream otherwise.
        connections.session_config.sse_retry = None;
        let connections = Arc::new(connections);
        let config = StreamableHttpServerConfig::default()
            .with_sse_retry(None)
            .with_sse_keep_alive(Some(limits.keepalive))
            .with_max_request_body_bytes(limits.upload_bytes)
            .with_cancellation_token(stop.child_token())
            // Host and origin were looked at before the request came here.
            .disable_allowed_hosts()
            .disable_allowed_origins();
        let door = Door::over_http(app);
        let make = move || Ok(door.clone());
        let service = StreamableHttpService::new(make, Arc::clone(&connections), config);
        Self { service, connections, holders: Mutex::default() }
    }

    /// Refuses a connection that began with another token: to its holder there is none.
    fn check_holder(&self, headers: &HeaderMap, access: &Access) -> Result<(), Problem> {
        let Some(id) = headers.get(MCP_SESSION_ID).and_then(|id| id.to_str().ok()) else { return Ok(()) };
        let holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        match holders.get(id) {
            Some(holder) if *holder != access.token => {
                Err(Problem::not_found("there is no such MCP session: begin with initialize"))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a new connection when there are too many.
    async fn check_room(&self, body: &[u8]) -> Result<(), Problem> {
        #[derive(Deserialize)]
        struct Envelope<'a> {
            #[serde(borrow)]
            method: Option<std::borrow::Cow<'a, str>>,
        }
        let begins = serde_json::from_slice::<Envelope<'_>>(body)
            .is_ok_and(|envelope| envelope.method.as_deref() == Some("initialize"));
        if begins && self.connections.sessions.read().await.len() >= CONNECTIONS_MAX {
            let sentence = "too many MCP sessions are open: close some, or use the revision 2026-07-28";
            return Err(Problem::new(ErrorType::Unavailable, sentence));
        }
        Ok(())
    }

    /// Remembers with which token a connection began.
    async fn began(&self, answer: &HeaderMap, access: &Access) {
        let Some(id) = answer.get(MCP_SESSION_ID).and_then(|id| id.to_str().ok()) else { return };
        let open = self.connections.sessions.read().await;
        let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        if holders.len() >= 2 * CONNECTIONS_MAX {
            holders.retain(|id, _| open.contains_key(id.as_str()));
        }
        holders.insert(id.to_owned(), access.token.clone());
    }
}

/// `/mcp`: whoever has a token.
pub(super) async fn with_header(call: Call, access: Access) -> Result<Response, Problem> {
    if access.agent.is_some() && access.session.is_none() {
        // It would act as any session that it names, not only as that agent's.
        return Err(Problem::forbidden(
            "a token for the sessions of one agent is none for MCP: `sess token create --session` makes one",
        ));
    }
    answer(call, access).await
}

/// `/mcp/<session token>`: for hosts that can be given nothing but an address.
pub(super) async fn with_address(call: Call) -> Result<Response, Problem> {
    let access = call.state.admit_token(call.param("mcpToken"), call.peer).await?;
    if access.session.is_none() {
        // In an address a token is seen by more eyes than in a header.
        return Err(Problem::forbidden(
            "only a token that stands for a session may be part of an address: `sess token create --session` \
             makes one",
        ));
    }
    State::check_scope(&access, Scope::Read)?;
    answer(call, access).await
}

async fn answer(call: Call, access: Access) -> Result<Response, Problem> {
    let state = Arc::clone(&call.state);
    let mcp = &state.mcp;
    let method = call.request.method().clone();
    let (is_end, is_call) = (method == Method::DELETE, method == Method::POST);
    let mut headers = call.request.headers().clone();
    mcp.check_holder(&headers, &access)?;
    // What lets somebody in goes no further: not to a handler, not to a log.
    headers.remove(header::AUTHORIZATION);
    headers.remove(header::COOKIE);
    let body = if method == Method::POST { http::body(call).await? } else { Bytes::new() };
    if wire::values(&body) > wire::VALUES_MAX {
        let sentence = format!("the body holds too many JSON values: the most is {}", wire::VALUES_MAX);
        return Err(Problem::invalid(sentence));
    }
    mcp.check_room(&body).await?;

    let mut request = Request::new(Body::from(body));
    *request.method_mut() = method;
    *request.uri_mut() = Uri::from_static("/mcp");
    *request.headers_mut() = headers;
    let cut = state.while_counts(&access);
    request.extensions_mut().insert(access.clone());
    let mut response = mcp.service.handle(request).await;
    if is_end && response.status().is_success() {
        // Nothing follows; the Python SDK takes "accepted" for a failure.
        *response.status_mut() = StatusCode::NO_CONTENT;
    }
    mcp.began(response.headers(), &access).await;
    if response.status().is_client_error() || response.status().is_server_error() {
        return Ok(refusal(response.map(Body::new)).await);
    }
    // Who asked something waits for the answer in it; a stream of its own goes on for ever.
    let busy = is_call.then(|| state.busy.token());
    let cut = Box::pin(cut.cancelled_owned());
    Ok(response.map(|body| Body::new(Cut { body: Body::new(body), cut, _busy: busy })))
}

/// Says what rmcp refuses in plain text in the shape that all our errors have.
async fn refusal(response: Response) -> Response {
    let kind = response.headers().get(header::CONTENT_TYPE);
    if kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/json")) {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let text = axum::body::to_bytes(body, REFUSAL_BYTES_MAX).await.unwrap_or_default();
    let kind = match head.status.as_u16() {
        404 => ErrorType::NotFound,
        405 => ErrorType::MethodNotAllowed,
        413 => ErrorType::PayloadTooLarge,
        400..500 => ErrorType::InvalidRequest,
        _ => ErrorType::Internal,
    };
    let message = String::from_utf8_lossy(&text).into_owned();
    let body = ErrorBody { error: ErrorDetail { r#type: kind, message } };
    head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    head.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(head, Body::from(serde_json::to_vec(&body).expect("texts are JSON")))
}

/// A body that ends when the token counts no longer.
struct Cut {
    body: Body,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    _busy: Option<TaskTrackerToken>,
}

impl http_body::Body for Cut {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.cut.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}
