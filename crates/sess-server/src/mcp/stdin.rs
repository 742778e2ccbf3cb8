//! Standard input as an asynchronous stream.
//!
//! Tokio's own standard input reads in the runtime's pool, and a runtime waits
//! for its pool when it ends: a client that stopped listening but keeps our
//! input open would keep the process alive. Here a plain thread reads; it holds
//! up nobody and ends with the process.

use std::io::{self, Read};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::mpsc;

const CHUNK_BYTES: usize = 64 * 1024;

/// Chunks that are read ahead.
const CHUNKS_MAX: usize = 2;

/// Standard input of this process. Open it once.
pub(super) struct Stdin {
    chunks: mpsc::Receiver<io::Result<Vec<u8>>>,
    /// What is left of the chunk in hand.
    chunk: io::Cursor<Vec<u8>>,
}

/// Starts to read standard input.
pub(super) fn open() -> Stdin {
    let (sender, chunks) = mpsc::channel(CHUNKS_MAX);
    std::thread::spawn(move || copy_stdin(&sender));
    Stdin { chunks, chunk: io::Cursor::default() }
}

fn copy_stdin(chunks: &mpsc::Sender<io::Result<Vec<u8>>>) {
    let mut stdin = io::stdin().lock();
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let chunk = match stdin.read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => Ok(buffer[..length].to_vec()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
        let failed = chunk.is_err();
        if chunks.blocking_send(chunk).is_err() || failed {
            return;
        }
    }
}

impl AsyncRead for Stdin {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.chunk.position() == this.chunk.get_ref().len() as u64 {
            match ready!(this.chunks.poll_recv(context)) {
                Some(chunk) => this.chunk = io::Cursor::new(chunk?),
                None => return Poll::Ready(Ok(())),
            }
        }
        Pin::new(&mut this.chunk).poll_read(context, buffer)
    }
}
