//! A connection on which every error has the one shape.
//!
//! What cannot be read as a request never gets to the routes: `hyper` answers it by itself with a head
//! alone, and closes. There is no place to say anything else, so that head is recognised where it is
//! written, and an answer with a body goes out in its stead.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::http::StatusCode;
use bytes::{Buf as _, Bytes};
use sess_protocol::errors::ErrorType;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Sleep,
};

use super::{errors::Problem, state::State};

/// The largest head that `hyper` writes by itself is smaller.
const HEAD_BYTES_MAX: usize = 256;
/// How long a client that was refused may take to go.
const LEAVE_WITHIN: Duration = Duration::from_secs(1);
/// How much of what it still sends is thrown away, so that it gets to read why.
const LEAVING_BYTES_MAX: usize = 4 * 1024 * 1024;
const PIECE_BYTES: usize = 4 * 1024;

pub(super) struct OneShape<S> {
    stream: S,
    state: Arc<State>,
    /// What is left to write of the answer that stands in for a bare head.
    answer: Bytes,
    leaving: Option<Leaving>,
}

/// A client that was refused, and may still be sending.
struct Leaving {
    left_bytes: usize,
    until: Pin<Box<Sleep>>,
}

impl<S> OneShape<S> {
    pub(super) fn new(stream: S, state: Arc<State>) -> Self {
        Self { stream, state, answer: Bytes::new(), leaving: None }
    }

    fn refuse(&mut self, bare: &BareHead<'_>) {
        self.state.metrics.answered(bare.status.as_u16());
        self.answer = bare.answer().into();
        let until = Box::pin(tokio::time::sleep(LEAVE_WITHIN));
        self.leaving = Some(Leaving { left_bytes: LEAVING_BYTES_MAX, until });
    }
}

impl<S: AsyncWrite + Unpin> OneShape<S> {
    fn poll_answer(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.answer.is_empty() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(context, &self.answer))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.answer.advance(written);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> OneShape<S> {
    /// Waits until a refused client has gone.
    ///
    /// What is unread when a connection ends makes the system throw away what was written.
    fn poll_leave(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(leaving) = &mut self.leaving else { return Poll::Ready(()) };
        while leaving.left_bytes > 0 && leaving.until.as_mut().poll(context).is_pending() {
            let mut waste = [0; PIECE_BYTES];
            let mut waste = ReadBuf::new(&mut waste);
            let read = ready!(Pin::new(&mut self.stream).poll_read(context, &mut waste));
            if read.is_err() || waste.filled().is_empty() {
                break;
            }
            leaving.left_bytes = leaving.left_bytes.saturating_sub(waste.filled().len());
        }
        self.leaving = None;
        Poll::Ready(())
    }
}

/// A refusal as `hyper` writes it.
struct BareHead<'a> {
    /// Where it begins. What is in front of it answers what was asked before.
    at: usize,
    status: StatusCode,
    lines: &'a str,
}

impl<'a> BareHead<'a> {
    /// Finds it at the end of what is written: nothing comes after it.
    fn find(bytes: &'a [u8]) -> Option<Self> {
        if !bytes.ends_with(b"\r\n\r\n") {
            return None;
        }
        let from = bytes.len().saturating_sub(HEAD_BYTES_MAX);
        let at = from + bytes[from..].windows(7).rposition(|window| window == b"HTTP/1.")?;
        let lines = str::from_utf8(&bytes[at..]).ok()?.strip_suffix("\r\n\r\n")?;
        let status = StatusCode::from_bytes(lines.get(9..12)?.as_bytes()).ok()?;
        let is_automatic = matches!(
            status,
            StatusCode::BAD_REQUEST | StatusCode::URI_TOO_LONG | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
        );
        // These lines and no others: an answer of the routes has more, and so has the end of a message
        // that quotes such a head.
        let is_bare = lines.split("\r\n").skip(1).all(|line| {
            line == "content-length: 0" || line == "connection: close" || line.starts_with("date: ")
        });
        let is_empty = lines.contains("\r\ncontent-length: 0");
        (is_automatic && is_bare && is_empty).then_some(Self { at, status, lines })
    }

    fn answer(&self) -> Vec<u8> {
        let problem = match self.status {
            StatusCode::URI_TOO_LONG => {
                Problem::new(ErrorType::PayloadTooLarge, "the address is too long: shorten its query")
            }
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
                let message = "the head of the request is too large: send fewer or shorter headers";
                Problem::new(ErrorType::PayloadTooLarge, message)
            }
            _ => Problem::invalid("the request cannot be read: it must be HTTP/1.1 with well-formed headers"),
        };
        let lines = self.lines.split("\r\n");
        let kept: Vec<&str> = lines.filter(|line| !line.starts_with("content-length:")).collect();
        problem.written(&kept.join("\r\n"))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for OneShape<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for OneShape<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let bytes = match BareHead::find(bytes) {
            None => bytes,
            Some(bare) if bare.at > 0 => &bytes[..bare.at],
            Some(bare) => {
                self.refuse(&bare);
                return Poll::Ready(Ok(bytes.len()));
            }
        };
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // A head without a body is a slice of its own.
        let mut filled = slices.iter().filter(|slice| !slice.is_empty());
        match (filled.next(), filled.next()) {
            (Some(only), None) => self.poll_write(context, only),
            _ => Pin::new(&mut self.stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_answer(context))?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_answer(context))?;
        ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
        self.poll_leave(context).map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bare_head_at_the_end_is_taken_for_one() {
        let check = |bytes: &str, at: Option<usize>| {
            assert_eq!(BareHead::find(bytes.as_bytes()).map(|head| head.at), at, "{bytes}");
        };
        let bare = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\ndate: now\r\n\r\n";
        check(bare, Some(0));
        let before = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
        check(&format!("{before}{bare}"), Some(before.len()));
        check(&bare.replace("400", "431"), Some(0));
        check(&bare.replace("400", "404"), None);
        check(&bare.replace("length: 0", "length: 7"), None);
        // The last piece of an answer in pieces, about a message that quotes one.
        check("1c\r\n\"it said HTTP/1.1 400 Bad\"}]}\r\n0\r\n\r\n", None);
        check(
            "HTTP/1.1 400 Bad Request\r\nx-content-type-options: nosniff\r\ncontent-length: 0\r\n\r\n",
            None,
        );
    }
}
