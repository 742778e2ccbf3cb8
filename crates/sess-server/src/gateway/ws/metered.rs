//! A connection of which only so much is read before its client is let in.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::Notify,
};

/// What there is left to read when nothing limits it.
const UNLIMITED: usize = usize::MAX;
/// How much is read at a time while it is counted.
const PIECE_BYTES: usize = 1024;

pub(super) struct Metered<S> {
    stream: S,
    meter: Arc<Meter>,
}

/// How much may still be read.
pub(super) struct Meter {
    left_bytes: AtomicUsize,
    over: Notify,
}

impl Meter {
    pub(super) fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self { left_bytes: AtomicUsize::new(bytes_max), over: Notify::new() })
    }

    /// Lets everything through from now on.
    pub(super) fn open(&self) {
        self.left_bytes.store(UNLIMITED, Ordering::Relaxed);
    }

    /// Waits until somebody wanted to read more than is allowed.
    pub(super) async fn exceeded(&self) {
        self.over.notified().await;
    }
}

impl<S> Metered<S> {
    pub(super) fn new(stream: S, meter: Arc<Meter>) -> Self {
        Self { stream, meter }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let left = self.meter.left_bytes.load(Ordering::Relaxed);
        if left == UNLIMITED {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        if left == 0 {
            // Whoever waits for that ends the connection, and so nobody is to be woken for more.
            self.meter.over.notify_one();
            return Poll::Pending;
        }
        let mut piece = [0; PIECE_BYTES];
        let mut piece = ReadBuf::new(&mut piece[..left.min(PIECE_BYTES).min(buffer.remaining())]);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut piece))?;
        buffer.put_slice(piece.filled());
        self.meter.left_bytes.store(left - piece.filled().len(), Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
