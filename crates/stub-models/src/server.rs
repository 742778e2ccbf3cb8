//! The server: HTTP/1.1 on a local port, one task for each connection.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::script::{FaultKind, Reply, Script};
use crate::{anthropic, openai_chat, openai_responses};

/// The most bytes of one request.
const REQUEST_BYTES_MAX: usize = 64 << 20;

/// The most requests that are remembered; older ones are forgotten.
const RECORDED_MAX: usize = 10_000;

/// A running server. It ends when this is dropped.
#[derive(Debug)]
pub struct Stub {
    /// `http://127.0.0.1:…`, without a path.
    pub url: String,
    state: Arc<State>,
    task: JoinHandle<()>,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Recorded {
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Value,
    /// The status of the answer.
    pub status: u16,
}

#[derive(Debug)]
struct State {
    script: Script,
    recorded: Mutex<Vec<Recorded>>,
    /// How often each request met the fault of its reply.
    met: Mutex<HashMap<(usize, u64), u32>>,
    connections: AtomicUsize,
}

/// One event of a stream.
#[derive(Clone, Debug)]
pub(crate) struct Frame(String);

impl Frame {
    pub(crate) fn new(text: String) -> Self {
        Self(text)
    }
}

impl Stub {
    /// Starts a server on a port of its own.
    pub async fn start(script: Script) -> Result<Self> {
        Self::start_at(script, 0).await
    }

    pub async fn start_at(script: Script, port: u16) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.context("no port to listen on")?;
        let url = format!("http://{}", listener.local_addr()?);
        let state = Arc::new(State {
            script,
            recorded: Mutex::default(),
            met: Mutex::default(),
            connections: AtomicUsize::new(0),
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&state)));
        Ok(Self { url, state, task })
    }

    /// Returns the requests so far, oldest first.
    pub fn requests(&self) -> Vec<Recorded> {
        locked(&self.state.recorded).clone()
    }

    /// Returns how many connections were made so far.
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::Relaxed)
    }

    /// Serves until the process ends.
    pub async fn serve(mut self) {
        let _ = (&mut self.task).await;
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    // Owned by this task, so that they end with it.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let state = Arc::clone(&state);
                state.connections.fetch_add(1, Ordering::Relaxed);
                // A caller that goes away in the middle is part of many a test.
                connections.spawn(async move { drop(connection(stream, &state).await) });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: TcpStream, state: &State) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    while let Some(request) = read_request(&mut stream).await? {
        let answer = state.answer(request);
        pause(answer.delay_ms).await;
        let mut wire = Wire { stream: stream.get_mut(), left: answer.stop_after };
        if wire.send(&answer).await.is_err() {
            if answer.hangs {
                // Until the caller gives up and closes.
                let mut rest = [0];
                let _ = stream.read(&mut rest).await;
            }
            return Ok(());
        }
        stream.get_mut().flush().await?;
    }
    Ok(())
}

struct Request {
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

async fn read_request(stream: &mut BufReader<TcpStream>) -> Result<Option<Request>> {
    let mut line = String::new();
    if stream.read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    let path = line.split(' ').nth(1).context("no request line")?.to_owned();
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_lowercase(), value.trim().to_owned()));
    }
    let header = |name: &str| headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    if header("expect").is_some() {
        stream.get_mut().write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
    }
    let length = header("content-length").unwrap_or("0").parse().context("no length of the body")?;
    if length > REQUEST_BYTES_MAX {
        bail!("the request is too large");
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(Some(Request { path, headers, body }))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Api {
    Anthropic,
    Chat,
    Responses,
}

#[derive(Default)]
struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    delay_ms: u64,
    frame_delay_ms: u64,
    frames: Vec<Frame>,
    /// Sent again and again after the frames.
    forever: Option<Frame>,
    /// After so many bytes the connection ends, or nothing more comes.
    stop_after: Option<usize>,
    hangs: bool,
}

impl Answer {
    fn json(status: u16, body: &Value) -> Self {
        let headers = vec![("content-type", "application/json".to_owned())];
        Self { status, headers, frames: vec![Frame(body.to_string())], ..Self::default() }
    }

    fn stream(frames: Vec<Frame>) -> Self {
        let headers = vec![("content-type", "text/event-stream".to_owned())];
        Self { status: 200, headers, frames, ..Self::default() }
    }
}

impl State {
    fn answer(&self, request: Request) -> Answer {
        let api = match request.path.trim_start_matches("/v1") {
            "/messages" => Some(Api::Anthropic),
            "/chat/completions" => Some(Api::Chat),
            "/responses" => Some(Api::Responses),
            _ => None,
        };
        let body: Value = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
        let answer = match api {
            Some(api) => self.reply(api, &body),
            None => Answer::json(404, &json!({"error": {"message": "there is no such path"}})),
        };
        let mut recorded = locked(&self.recorded);
        if recorded.len() >= RECORDED_MAX {
            recorded.remove(0);
        }
        let Request { path, headers, .. } = request;
        recorded.push(Recorded { path, headers, body, status: answer.status });
        answer
    }

    fn reply(&self, api: Api, body: &Value) -> Answer {
        let refusal = match api {
            Api::Anthropic => anthropic::refusal(body),
            Api::Chat => openai_chat::refusal(body),
            Api::Responses => openai_responses::refusal(body),
        };
        if let Some(message) = refusal {
            return Answer::json(400, &error_of(api, 400, None, &message));
        }
        let (system, heard) = match api {
            Api::Anthropic => anthropic::heard(body),
            Api::Chat => openai_chat::heard(body),
            Api::Responses => openai_responses::heard(body),
        };
        let turn = heard.iter().filter(|heard| **heard == crate::script::Heard::Reply).count();
        let reply = match self.script.next(&system, &heard) {
            Some(n) => self.with_fault(n, body),
            None => Reply::text("The script has no reply left for this."),
        };
        let model = body["model"].as_str().unwrap_or_default();
        answer_of(api, &reply, model, turn, body["stream"] == true)
    }

    /// Returns a reply, without its fault if this request has met it often enough.
    fn with_fault(&self, n: usize, body: &Value) -> Reply {
        let mut reply = self.script.replies[n].clone();
        if let Some(times) = reply.fault.as_ref().and_then(|fault| fault.times) {
            let mut hasher = DefaultHasher::new();
            body.to_string().hash(&mut hasher);
            let mut met = locked(&self.met);
            let met = met.entry((n, hasher.finish())).or_default();
            if *met >= times {
                reply.fault = None;
            } else {
                *met += 1;
            }
        }
        reply.spoiled()
    }
}

fn answer_of(api: Api, reply: &Reply, model: &str, turn: usize, stream: bool) -> Answer {
    let fault = reply.fault.clone().unwrap_or_default();
    let kind = reply.fault.as_ref().map(|fault| fault.kind);
    let message = |or: &str| fault.message.clone().unwrap_or_else(|| or.to_owned());
    let mut answer = match kind {
        Some(FaultKind::Status) => {
            let said = message("the stub was told to fail");
            let mut answer = Answer::json(fault.status, &error_of(api, fault.status, None, &said));
            if let Some(after) = &fault.retry_after {
                answer.headers.push(("retry-after", after.clone()));
                answer.headers.push(("date", "Wed, 21 Oct 2015 07:28:00 GMT".to_owned()));
            }
            answer
        }
        Some(FaultKind::TooLong) => {
            let (code, said) = match api {
                Api::Anthropic => (None, "prompt is too long: 210000 tokens > 200000 maximum"),
                Api::Chat | Api::Responses => {
                    (Some("context_length_exceeded"), "Your input exceeds the context window of this model.")
                }
            };
            Answer::json(400, &error_of(api, 400, code, said))
        }
        _ if stream => Answer::stream(match api {
            Api::Anthropic => anthropic::frames(reply, model, turn),
            Api::Chat => openai_chat::frames(reply, model, turn),
            Api::Responses => openai_responses::frames(reply, model, turn),
        }),
        _ => Answer::json(
            200,
            &match api {
                Api::Anthropic => anthropic::document(reply, model, turn),
                Api::Chat => openai_chat::document(reply, model, turn),
                Api::Responses => openai_responses::document(reply, model, turn),
            },
        ),
    };
    answer.delay_ms = reply.delay_ms;
    answer.frame_delay_ms = reply.chunk_delay_ms;
    let middle = answer.frames.len() / 2;
    match kind {
        Some(FaultKind::Cut) => answer.stop_after = Some(fault.bytes.unwrap_or(0)),
        Some(FaultKind::Hang) => {
            answer.stop_after = Some(fault.bytes.unwrap_or(0));
            answer.hangs = true;
        }
        Some(FaultKind::MalformedChunk) => {
            answer.frames.insert(middle, Frame("data: {\"type\": \"conten\n\n".to_owned()));
        }
        Some(FaultKind::ErrorEvent) => {
            let said = message("Overloaded");
            let event = match api {
                Api::Anthropic => anthropic::error("overloaded_error", &said),
                Api::Chat => openai_chat::error("server_error", Some("overloaded_error"), &said),
                Api::Responses => json!({"type": "error", "code": "overloaded_error", "message": said}),
            };
            answer.frames.truncate(middle);
            answer.frames.push(Frame(format!("event: error\ndata: {event}\n\n")));
        }
        Some(FaultKind::Endless) => {
            let deltas = answer.frames.iter().position(|frame| frame.0.contains("It goes on"));
            let at = deltas.unwrap_or(0);
            answer.frames.truncate(at + 1);
            // Large, so that a limit on bytes is met soon.
            let frame = answer.frames[at].0.replace("It goes on", &"It goes on. ".repeat(1000));
            answer.forever = Some(Frame(frame));
        }
        Some(FaultKind::EndlessPings) => {
            answer.frames.truncate(1);
            answer.forever = Some(Frame(format!(": {}\n\n", "still here ".repeat(1000))));
        }
        _ => {}
    }
    answer
}

fn error_of(api: Api, status: u16, code: Option<&str>, message: &str) -> Value {
    match api {
        Api::Anthropic => anthropic::error(anthropic::error_kind(status), message),
        Api::Chat | Api::Responses => {
            let kind = if status < 500 { "invalid_request_error" } else { "server_error" };
            openai_chat::error(kind, code, message)
        }
    }
}

/// A sleep of no time takes a millisecond, which a stream of many events would feel.
async fn pause(ms: u64) {
    if ms > 0 {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
}

/// Writes, up to the byte where it is told to stop.
struct Wire<'a> {
    stream: &'a mut TcpStream,
    left: Option<usize>,
}

/// The answer stopped where it was told to, or the caller went away.
struct Stopped;

impl Wire<'_> {
    async fn send(&mut self, answer: &Answer) -> Result<(), Stopped> {
        let mut head = format!("HTTP/1.1 {} Stub\r\ntransfer-encoding: chunked\r\n", answer.status);
        for (name, value) in &answer.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        self.write(head.as_bytes()).await?;
        for frame in &answer.frames {
            pause(answer.frame_delay_ms).await;
            self.frame(frame).await?;
        }
        while let Some(frame) = &answer.forever {
            pause(answer.frame_delay_ms).await;
            self.frame(frame).await?;
        }
        self.write(b"0\r\n\r\n").await
    }

    async fn frame(&mut self, frame: &Frame) -> Result<(), Stopped> {
        let text = &frame.0;
        self.write(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes()).await
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Stopped> {
        let allowed = self.left.map_or(bytes.len(), |left| left.min(bytes.len()));
        self.stream.write_all(&bytes[..allowed]).await.map_err(|_| Stopped)?;
        if let Some(left) = &mut self.left {
            *left -= allowed;
            if allowed < bytes.len() || *left == 0 {
                return Err(Stopped);
            }
        }
        Ok(())
    }
}
