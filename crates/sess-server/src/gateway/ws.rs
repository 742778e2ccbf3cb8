//! The WebSocket at `/ws`: one task a connection, which reads requests and writes answers and events.
//!
//! What is asked runs beside it, and so does each subscription; both hand what they have to a short queue.
//! Whoever reads slowly fills that queue and then hears no more of what is live: its subscriptions fall
//! behind, are told so, and go on from the store.

mod connection;
mod deltas;
mod events;
mod metered;
mod methods;
mod single;
mod subscriptions;

use std::{net::IpAddr, sync::Arc, time::Duration};

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use futures_util::{SinkExt as _, StreamExt as _};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use sess_app::Access;
use sess_protocol::{
    errors::ErrorType,
    frames::{ClientInfo, ConnectParams, FrameError, PROTOCOL, RequestFrame, ResponseFrame, ResponseType},
};
use tokio::io::AsyncReadExt as _;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        self, Message,
        handshake::derive_accept_key,
        protocol::{CloseFrame, Role, WebSocketConfig, frame::coding::CloseCode},
    },
};

use super::{
    admission,
    errors::Problem,
    reading,
    routes::{Answering, Call},
    state::State,
};
use connection::Connection;
use metered::{Meter, Metered};

pub(super) use deltas::Deltas;
pub(super) use events::Event;
pub use single::SingleFrames;

/// How much is read from a connection at a time: most requests are smaller.
const READ_BYTES: usize = 1024;
/// How long a client that was refused may take to go.
const LEAVE_WITHIN: Duration = Duration::from_secs(1);
/// How much of what it still sends is thrown away, so that it gets to read why.
const LEAVING_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The most bytes of a reason that a close frame has room for.
const REASON_BYTES_MAX: usize = 120;

type Socket = WebSocketStream<Metered<TokioIo<Upgraded>>>;

/// Answers the request that opens a WebSocket.
pub(super) fn open(mut call: Call) -> Answering {
    Box::pin(async move {
        let accept = accept_key(call.request.headers())?;
        let state = Arc::clone(&call.state);
        if state.metrics.connections.get() > state.limits.connections as u64 {
            return Err(Problem::new(ErrorType::Unavailable, "too many connections are open; come again"));
        }
        // The page has its cookie; whoever can send headers may say it there.
        let token = admission::token(call.request.headers())?;
        let peer = call.peer;
        let upgrade = hyper::upgrade::on(&mut call.request);
        let present = state.metrics.connections.enter();
        state.sockets.spawn({
            let state = Arc::clone(&state);
            async move {
                let _present = present;
                match upgrade.await {
                    Ok(upgraded) => Box::pin(serve(&state, upgraded, peer, token)).await,
                    Err(error) => tracing::debug!(%error, "a WebSocket did not come about"),
                }
            }
        });
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
        Ok(response)
    })
}

/// Checks that a request wants a WebSocket, and returns what proves that it was understood.
fn accept_key(headers: &HeaderMap) -> Result<HeaderValue, Problem> {
    let has = |name: header::HeaderName, word: &str| {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|value| value.trim().eq_ignore_ascii_case(word))
    };
    let key = headers.get(header::SEC_WEBSOCKET_KEY).filter(|_| {
        has(header::CONNECTION, "upgrade")
            && has(header::UPGRADE, "websocket")
            && has(header::SEC_WEBSOCKET_VERSION, "13")
    });
    let key =
        key.ok_or_else(|| Problem::invalid("this address speaks WebSocket, version 13, and nothing else"))?;
    HeaderValue::try_from(derive_accept_key(key.as_bytes()))
        .map_err(|_| Problem::invalid("Sec-WebSocket-Key is no key"))
}

/// Serves one connection until either side ends it.
async fn serve(state: &Arc<State>, upgraded: Upgraded, peer: IpAddr, token: Option<String>) {
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BYTES)
        .write_buffer_size(0)
        .max_message_size(Some(state.limits.frame_bytes))
        .max_frame_size(Some(state.limits.frame_bytes));
    let meter = Meter::new(state.limits.before_connect_bytes);
    let stream = Metered::new(TokioIo::new(upgraded), Arc::clone(&meter));
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
    let connected = tokio::select! {
        connected = connect(state, &mut socket, peer, token) => connected,
        () = meter.exceeded() => {
            let most = state.limits.before_connect_bytes;
            let text = format!("more than {most} bytes came before `connect` was answered");
            Err(Refusal::to("", Problem::new(ErrorType::PayloadTooLarge, text)))
        }
        () = tokio::time::sleep(state.limits.connect_within) => {
            let seconds = state.limits.connect_within.as_secs_f64();
            let text = format!("no `connect` came within {seconds} s: it must be the first request");
            Err(Refusal::to("", Problem::unauthorized(text)))
        }
        () = state.stop.cancelled() => Err(Refusal::Gone),
    };
    meter.open();
    match connected {
        Ok(connected) => {
            let connection = Connection::new(Arc::clone(state), socket, connected);
            connection.run().await;
        }
        Err(refusal) => refuse(socket, refusal).await,
    }
}

/// Why a connection ends.
#[derive(Debug)]
enum Refusal {
    /// The client has gone, or the gateway goes.
    Gone,
    /// The client says that it goes.
    Leaves,
    /// It did something that ends it. The id is that of its request, when it has one.
    Refused { id: String, problem: Problem },
    /// Its token counts no longer.
    Cut,
}

impl Refusal {
    fn to(id: &str, problem: Problem) -> Self {
        Self::Refused { id: id.to_owned(), problem }
    }

    /// Returns what something that could not be read as a frame is refused with.
    fn unreadable(error: &tungstenite::Error, bytes_max: usize) -> Self {
        use tungstenite::error::CapacityError;
        let problem = match error {
            tungstenite::Error::Capacity(CapacityError::MessageTooLong { .. }) => {
                let text = format!("the frame is too large: the most is {bytes_max} bytes");
                Problem::new(ErrorType::PayloadTooLarge, text)
            }
            tungstenite::Error::Utf8(_) => Problem::invalid("invalid frame: it is not UTF-8"),
            tungstenite::Error::Protocol(error) => Problem::invalid(format!("invalid frame: {error}")),
            _ => return Self::Gone,
        };
        Self::to("", problem)
    }
}

/// Whoever was let in.
struct Connected {
    /// The id of the request that let it in, which is yet to be answered.
    request: String,
    access: Access,
    client: ClientInfo,
}

/// Waits for `connect`, and lets in whoever may come in.
async fn connect(
    state: &State,
    socket: &mut Socket,
    peer: IpAddr,
    token: Option<String>,
) -> Result<Connected, Refusal> {
    let text = loop {
        match socket.next().await {
            Some(Ok(Message::Text(text))) => break text,
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            Some(Ok(Message::Binary(_) | Message::Frame(_))) => {
                return Err(Refusal::to("", Problem::invalid(NO_TEXT)));
            }
            Some(Ok(Message::Close(_))) => return Err(Refusal::Leaves),
            None => return Err(Refusal::Gone),
            Some(Err(error)) => return Err(Refusal::unreadable(&error, state.limits.frame_bytes)),
        }
    };
    let RequestFrame { id, method, params, .. } = read_request(text.as_str())?;
    let refused = |problem: Problem| Refusal::to(&id, problem);
    state.check_open().map_err(refused)?;
    if method != "connect" {
        return Err(refused(Problem::unauthorized("the first request must be `connect`")));
    }
    let params: ConnectParams = methods::read("connect", params.as_deref()).map_err(refused)?;
    if !(params.min_protocol..=params.max_protocol).contains(&PROTOCOL) {
        let text = format!("invalid connect params: minProtocol: this gateway speaks protocol {PROTOCOL}");
        return Err(refused(Problem::invalid(text)));
    }
    let Some(token) = params.auth.map(|auth| auth.token).or(token) else {
        let text = "a token is needed: give auth.token; `sess token` shows it";
        return Err(refused(Problem::unauthorized(text)));
    };
    let access = state.admit_token(&token, peer).await.map_err(refused)?;
    Ok(Connected { access, client: params.client, request: id })
}

/// What a frame of bytes is told.
const NO_TEXT: &str = "invalid frame: frames are text";

/// Reads a request; what is none ends the connection.
fn read_request(text: &str) -> Result<RequestFrame, Refusal> {
    // Parameters stay text until it is known what they are to be: as values of any kind they could take
    // thirty times the room.
    reading::object(text.as_bytes()).map_err(|reading::Wrong { place, what }| {
        let named: Named = reading::object(text.as_bytes()).unwrap_or_default();
        let place = if place.is_empty() || what.starts_with("missing") { "" } else { &format!("{place}: ") };
        Refusal::to(&named.id, Problem::invalid(format!("invalid frame: {place}{what}")))
    })
}

/// What something that is no request is answered by.
#[derive(Default, Deserialize)]
struct Named {
    #[serde(default)]
    id: String,
}

/// Says why, closes, and leaves the client the time to read it.
async fn refuse(mut socket: Socket, refusal: Refusal) {
    let (code, reason) = match refusal {
        Refusal::Leaves => {
            // What answers a close frame was written when that was read, and has yet to go out.
            let _gone = tokio::time::timeout(LEAVE_WITHIN, socket.flush()).await;
            return;
        }
        Refusal::Gone => (CloseCode::Away, "the gateway ends"),
        Refusal::Cut => (CloseCode::Policy, "the token counts no longer"),
        Refusal::Refused { id, problem } => {
            let said = socket.send(Message::text(error_frame(id, &problem)));
            if !matches!(tokio::time::timeout(LEAVE_WITHIN, said).await, Ok(Ok(()))) {
                return;
            }
            let is_ours = problem.kind == ErrorType::Unavailable;
            let code = if is_ours { CloseCode::Away } else { CloseCode::Policy };
            return leave(socket, code, &problem.message).await;
        }
    };
    leave(socket, code, reason).await;
}

async fn leave(mut socket: Socket, code: CloseCode, reason: &str) {
    let end = reason.floor_char_boundary(REASON_BYTES_MAX);
    let close = CloseFrame { code, reason: reason[..end].to_owned().into() };
    let _leaving = tokio::time::timeout(LEAVE_WITHIN, async {
        if socket.send(Message::Close(Some(close))).await.is_err() {
            return;
        }
        // What is unread when a connection ends makes the system throw away what was written.
        let stream = socket.get_mut();
        let mut left = LEAVING_BYTES_MAX;
        let mut waste = [0; READ_BYTES];
        while let Ok(read @ 1..) = stream.read(&mut waste).await {
            left = left.saturating_sub(read);
            if left == 0 {
                return;
            }
        }
    })
    .await;
}

fn error_frame(id: String, problem: &Problem) -> String {
    let retry =
        problem.retry_after_seconds.map(|seconds| serde_json::json!({ "retryAfterSeconds": seconds }));
    let error = FrameError { code: problem.kind, message: problem.message.clone(), details: retry };
    let frame = ResponseFrame { r#type: ResponseType::Res, id, ok: false, payload: None, error: Some(error) };
    serde_json::to_string(&frame).expect("texts are JSON")
}
