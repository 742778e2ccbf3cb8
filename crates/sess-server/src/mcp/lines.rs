//! One JSON message per line: the transport under rmcp.
//!
//! rmcp's own transport stays silent about lines that it cannot read, which
//! leaves a client waiting. This one answers them, and holds a client that
//! writes faster than it reads to a fixed amount of memory.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, GetExtensions, GetMeta, JsonRpcMessage, JsonRpcRequest,
    ServerJsonRpcMessage,
};
use rmcp::transport::Transport;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;

use super::LINE_BYTES_MAX;
use super::wire::{self, Read};

/// Answers that wait for the client to read them. While there are this many,
/// nothing more is read from it.
const ANSWERS_WAITING_MAX: usize = 16;

/// How long a client that is going away has to take its last answers.
const LAST_ANSWERS_MS: u64 = 1_000;

/// Keeps a request's slot taken for as long as the request is worked on: it
/// travels in the request's extensions and is dropped with them.
#[derive(Clone)]
struct Slot {
    _permit: Arc<OwnedSemaphorePermit>,
}

/// A client at the other end of two byte streams.
pub(super) struct LineTransport<R> {
    lines: Lines<R>,
    /// The way to the writer; `None` once closed.
    answers: Option<mpsc::Sender<Vec<u8>>>,
    writer: Option<JoinHandle<()>>,
    /// A refusal that is still to be handed to the writer.
    owed: Option<Vec<u8>>,
    slots: Arc<Semaphore>,
    /// The slot of the next request.
    slot: Option<Slot>,
    /// Whether `initialize` has come: later requests need not name a revision.
    initialized: bool,
}

impl<R: AsyncRead + Send + Unpin> LineTransport<R> {
    /// Each request takes one of `slots` and gives it back when it is done.
    pub(super) fn new<W>(input: R, output: W, slots: Arc<Semaphore>) -> Self
    where
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let (answers, waiting) = mpsc::channel(ANSWERS_WAITING_MAX);
        Self {
            lines: Lines::new(input),
            answers: Some(answers),
            writer: Some(tokio::spawn(write_lines(output, waiting))),
            owed: None,
            slots,
            slot: None,
            initialized: false,
        }
    }

    /// Returns the refusal of a request that no revision allows: it does not say
    /// which one it speaks, and no handshake has said it before.
    ///
    /// Decided here, where requests are still in order; the handlers run side by
    /// side.
    fn refusal(&mut self, request: &JsonRpcRequest<ClientRequest>) -> Option<Vec<u8>> {
        match &request.request {
            ClientRequest::InitializeRequest(_) => self.initialized = true,
            // A ping may come first, and a method that is unknown, or known but
            // malformed, has an answer of its own.
            ClientRequest::PingRequest(_) | ClientRequest::CustomRequest(_) => {}
            other if self.initialized || other.get_meta().protocol_version().is_some() => {}
            _ => return Some(wire::no_revision(&request.id)),
        }
        None
    }
}

impl<R: AsyncRead + Send + Unpin> Transport<RoleServer> for LineTransport<R> {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        let answers = self.answers.clone();
        async move {
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            let answers = answers.ok_or(io::ErrorKind::NotConnected)?;
            answers.send(line).await.map_err(|_| io::ErrorKind::BrokenPipe.into())
        }
    }

    /// Returns the next message, or `None` when the client is gone: it closed
    /// its side, or no longer takes what we write.
    ///
    /// rmcp drops this future whenever something else happens first, so all that
    /// it has in hand is kept in `self` across every `await`.
    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        let answers = self.answers.clone()?;
        loop {
            // Room for one answer first: a client that does not read is not read.
            let room = answers.reserve().await.ok()?;
            if let Some(refusal) = self.owed.take() {
                room.send(refusal);
                continue;
            }
            drop(room);
            if self.slot.is_none() {
                let permit = Arc::clone(&self.slots).acquire_owned().await.ok()?;
                self.slot = Some(Slot { _permit: Arc::new(permit) });
            }
            let line = tokio::select! {
                biased;
                () = answers.closed() => return None,
                line = self.lines.next() => line,
            };
            let read = match line {
                Ok(Some(Line::Whole(line))) => wire::read(&line),
                Ok(Some(Line::TooLong)) => Read::Refused(wire::too_long()),
                Ok(None) => return None,
                Err(error) => {
                    tracing::warn!(%error, "cannot read from the MCP client");
                    return None;
                }
            };
            match read {
                Read::Message(mut message) => {
                    if let JsonRpcMessage::Request(request) = message.as_mut() {
                        self.owed = self.refusal(request);
                        if self.owed.is_some() {
                            continue;
                        }
                        let slot = self.slot.take().expect("a slot is taken before a line is read");
                        request.request.extensions_mut().insert(slot);
                    }
                    return Some(*message);
                }
                Read::Nothing => {}
                Read::Refused(refusal) => self.owed = Some(refusal),
            }
        }
    }

    /// Lets the client take what is still waiting for it, for a short while.
    async fn close(&mut self) -> Result<(), io::Error> {
        self.answers = None;
        if let Some(mut writer) = self.writer.take() {
            let patience = Duration::from_millis(LAST_ANSWERS_MS);
            if tokio::time::timeout(patience, &mut writer).await.is_err() {
                writer.abort();
            }
        }
        Ok(())
    }
}

/// Writes each line whole, in the order given, until the last sender is gone or
/// the client no longer takes them. The latter closes the channel, which is how
/// the reading side learns of it.
async fn write_lines<W: AsyncWrite + Unpin>(mut output: W, mut lines: mpsc::Receiver<Vec<u8>>) {
    while let Some(line) = lines.recv().await {
        let written = async {
            output.write_all(&line).await?;
            output.flush().await
        };
        if let Err(error) = written.await {
            tracing::info!(%error, "the MCP client no longer takes answers");
            return;
        }
    }
}

enum Line {
    Whole(Vec<u8>),
    /// Longer than [`LINE_BYTES_MAX`]. Said as soon as it is known; the rest of
    /// the line is skipped before the next one.
    TooLong,
}

/// Cuts a byte stream into lines of bounded length.
struct Lines<R> {
    input: BufReader<R>,
    line: Vec<u8>,
    skipping: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    fn new(input: R) -> Self {
        Self { input: BufReader::new(input), line: Vec::new(), skipping: false }
    }

    /// Returns the next line without its newline, or `None` at the end. What
    /// follows the last newline counts as a line: half a message is no message
    /// to the parser, and a whole one was meant.
    ///
    /// Nothing is lost when the future is dropped: bytes move from the buffer to
    /// `self.line` with no `await` between.
    async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            let bytes = self.input.fill_buf().await?;
            if bytes.is_empty() {
                let line = std::mem::take(&mut self.line);
                return Ok((!line.is_empty()).then_some(Line::Whole(line)));
            }
            let newline = bytes.iter().position(|&byte| byte == b'\n');
            let taken = newline.map_or(bytes.len(), |at| at + 1);
            let fits = self.line.len() + taken <= LINE_BYTES_MAX;
            if !self.skipping && fits {
                self.line.extend_from_slice(&bytes[..newline.unwrap_or(taken)]);
            }
            self.input.consume(taken);
            if self.skipping {
                self.skipping = newline.is_none();
            } else if !fits {
                self.skipping = newline.is_none();
                self.line = Vec::new();
                return Ok(Some(Line::TooLong));
            } else if newline.is_some() {
                return Ok(Some(Line::Whole(std::mem::take(&mut self.line))));
            }
        }
    }
}
