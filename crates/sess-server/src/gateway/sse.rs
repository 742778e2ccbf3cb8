//! Server-sent events: bodies that are made piece by piece, no faster than they are read.

use std::{
    collections::VecDeque,
    convert::Infallible,
    fmt::Write as _,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use axum::{
    body::Body,
    http::{HeaderValue, header},
    response::Response,
};
use bytes::Bytes;
use http_body::Frame;
use sess_app::{Caller, ReadEvents, Redaction};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, ReusableBoxFuture};

use super::{
    follower::{Follower, Heard},
    metrics::Present,
    state::State,
};

/// How many events are looked at, at a time.
const EVENTS_LEN: usize = 100;

/// Something that is told bit by bit, until it is over.
pub(super) trait Source: Send + 'static {
    fn next(&mut self) -> impl Future<Output = Option<Bytes>> + Send;
}

/// Answers with a stream of events.
pub(super) fn answer(source: impl Source) -> Response {
    let pieces = Pieces { next: ReusableBoxFuture::new(make(source)), is_over: false };
    let mut response = Response::new(Body::new(pieces));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // A proxy that collects before it hands on would make nothing of it.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

struct Pieces<S> {
    next: ReusableBoxFuture<'static, (S, Option<Bytes>)>,
    is_over: bool,
}

async fn make<S: Source>(mut source: S) -> (S, Option<Bytes>) {
    let piece = source.next().await;
    (source, piece)
}

impl<S: Source> http_body::Body for Pieces<S> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        match ready!(self.next.poll(context)) {
            (source, Some(piece)) => {
                self.next.set(make(source));
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
            (_, None) => {
                self.is_over = true;
                Poll::Ready(None)
            }
        }
    }
}

/// One event. `data` is one line.
pub(super) fn event(name: &str, id: Option<&str>, data: &str) -> Bytes {
    let mut text = String::with_capacity(name.len() + data.len() + 128);
    let _infallible = writeln!(text, "event: {name}");
    if let Some(id) = id {
        let _infallible = writeln!(text, "id: {id}");
    }
    let _infallible = write!(text, "data: {data}\n\n");
    text.into()
}

/// A comment, so that nobody takes the silence for the end.
const KEEPALIVE: Bytes = Bytes::from_static(b": keepalive\n\n");

/// When a stream ends, and when it has been silent for too long.
struct Pace {
    state: Arc<State>,
    /// Cancelled when the token counts no longer.
    cut: CancellationToken,
    silent_until: Instant,
    is_over: bool,
    _present: Present,
}

enum Turn<T> {
    Heard(T),
    Silence,
    /// The gateway ends.
    Stop,
    Cut,
}

impl Pace {
    fn new(state: Arc<State>, cut: CancellationToken) -> Self {
        let silent_until = Instant::now() + state.limits.keepalive;
        let present = state.metrics.followers.enter();
        Self { state, cut, silent_until, is_over: false, _present: present }
    }

    async fn turn<T>(&mut self, next: impl Future<Output = T>) -> Turn<T> {
        tokio::select! {
            biased;
            () = self.cut.cancelled() => Turn::Cut,
            () = self.state.stop.cancelled() => Turn::Stop,
            // Before what is heard: much of that is not for this reader, and breaks no silence.
            () = tokio::time::sleep_until(self.silent_until) => Turn::Silence,
            heard = next => Turn::Heard(heard),
        }
    }

    /// Lets the silence begin anew, after a piece that is written now.
    fn wrote(&mut self, piece: Bytes) -> Option<Bytes> {
        self.silent_until = Instant::now() + self.state.limits.keepalive;
        Some(piece)
    }

    /// Ends the stream after a last piece: where to go on.
    fn last(&mut self, id: &str) -> Option<Bytes> {
        self.is_over = true;
        Some(format!("id: {id}\n\n").into())
    }
}

/// A transcript that goes on.
pub(super) struct Transcript {
    pace: Pace,
    follower: Follower,
    /// What comes before everything else.
    first: Option<Bytes>,
    /// The key as it is shown.
    key: String,
    with_tools: bool,
}

impl Transcript {
    pub(super) fn new(
        state: Arc<State>,
        cut: CancellationToken,
        follower: Follower,
        first: Option<Bytes>,
        key: String,
        with_tools: bool,
    ) -> Self {
        Self { pace: Pace::new(state, cut), follower, first, key, with_tools }
    }

    fn here(&self) -> String {
        self.pace.state.cursors.seal(self.follower.session(), self.follower.seq())
    }

    /// Returns what is written of something that was heard; `None` when nothing is.
    fn told(&mut self, heard: Heard) -> Option<Bytes> {
        let metrics = &self.pace.state.metrics;
        match heard {
            Heard::Message { message, .. } if message.is_tool_result && !self.with_tools => None,
            Heard::Message { session, message } => {
                metrics.deliveries.add(1);
                let cursors = &self.pace.state.cursors;
                let make =
                    || event("message", Some(&cursors.seal(&session, message.seq)), message.json.get());
                Some(message.event.get_or_init(make).clone())
            }
            Heard::Reset(session) => {
                let data = serde_json::json!({ "sessionKey": self.key, "sessionId": session });
                Some(event("reset", Some(&self.here()), &data.to_string()))
            }
            Heard::Lagged => {
                metrics.lags.add(1);
                let data = serde_json::json!({ "sessionKey": self.key });
                Some(event("lagged", None, &data.to_string()))
            }
            Heard::Deleted(session) => {
                self.pace.is_over = true;
                let data = serde_json::json!({ "sessionKey": self.key, "sessionId": session });
                Some(event("deleted", None, &data.to_string()))
            }
        }
    }
}

impl Source for Transcript {
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        while !self.pace.is_over {
            match self.pace.turn(self.follower.next()).await {
                Turn::Heard(Ok(heard)) => {
                    if let Some(piece) = self.told(heard) {
                        return self.pace.wrote(piece);
                    }
                }
                Turn::Heard(Err(error)) => {
                    tracing::warn!(%error, "a transcript cannot be followed now; its reader comes again");
                    return None;
                }
                Turn::Silence => return self.pace.wrote(KEEPALIVE),
                Turn::Stop => {
                    let here = self.here();
                    return self.pace.last(&here);
                }
                Turn::Cut => return None,
            }
        }
        None
    }
}

/// Everything that a caller may see, in the order in which it was committed.
///
/// Each stream reads for itself, because each sees something else.
pub(super) struct Everything {
    pace: Pace,
    caller: Caller,
    after: u64,
    changes: tokio::sync::watch::Receiver<u64>,
    ready: VecDeque<Bytes>,
}

impl Everything {
    pub(super) fn new(
        state: Arc<State>,
        cut: CancellationToken,
        caller: Caller,
        after: u64,
    ) -> Result<Self, sess_app::Error> {
        let changes = state.app.changes()?;
        Ok(Self { pace: Pace::new(state, cut), caller, after, changes, ready: VecDeque::new() })
    }
}

impl Source for Everything {
    async fn next(&mut self) -> Option<Bytes> {
        while !self.pace.is_over {
            if let Some(piece) = self.ready.pop_front() {
                return self.pace.wrote(piece);
            }
            let state = Arc::clone(&self.pace.state);
            let read = next_events(&state, &self.caller, self.after, &mut self.changes);
            match self.pace.turn(read).await {
                Turn::Heard(Ok((after, pieces))) => {
                    state.metrics.deliveries.add(pieces.len() as u64);
                    self.after = after;
                    self.ready.extend(pieces);
                }
                Turn::Heard(Err(error)) => {
                    tracing::warn!(%error, "events cannot be followed now; their reader comes again");
                    return None;
                }
                Turn::Silence => return self.pace.wrote(KEEPALIVE),
                Turn::Stop => {
                    let here = state.cursors.seal_position(self.after);
                    return self.pace.last(&here);
                }
                Turn::Cut => return None,
            }
        }
        None
    }
}

/// Waits until there is something after a position; none of it may be for this caller.
async fn next_events(
    state: &State,
    caller: &Caller,
    after: u64,
    changes: &mut tokio::sync::watch::Receiver<u64>,
) -> Result<(u64, Vec<Bytes>), sess_app::Error> {
    loop {
        changes.mark_unchanged();
        let ask = ReadEvents { after, limit: EVENTS_LEN, only: None, redaction: Redaction::Masked };
        let page = state.app.events(caller, &ask).await?;
        if page.cursor == after {
            // The sender lives as long as the store.
            let _changed = changes.changed().await;
            continue;
        }
        let pieces = page.events.iter().map(|told| {
            let name = told.fields.get("type").and_then(|name| name.as_str()).unwrap_or("event");
            let data = serde_json::Value::Object(told.fields.clone()).to_string();
            event(name, Some(&state.cursors.seal_position(told.cursor)), &data)
        });
        return Ok((page.cursor, pieces.collect()));
    }
}
