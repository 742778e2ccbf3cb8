//! How much of anything the gateway takes. Each limit has a name in the configuration.

use std::time::Duration;

const MIB: usize = 1024 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes of a request's body.
    pub body_bytes: usize,
    /// The same where plans and files are handed over.
    pub upload_bytes: usize,
    /// The most bytes of a frame of the WebSocket.
    pub frame_bytes: usize,
    /// How long a WebSocket may take to say who it is, and how many bytes until then.
    pub connect_within: Duration,
    pub before_connect_bytes: usize,
    /// Connections at a time.
    pub connections: usize,
    /// Sessions that one WebSocket follows.
    pub subscriptions: usize,
    /// Requests that one WebSocket waits for.
    pub in_flight: usize,
    /// Wrong tokens and codes a minute, from one address.
    pub failed_logins: u32,
    /// How long the head of a request, and its body, may take to arrive.
    pub header_within: Duration,
    pub body_within: Duration,
    /// How long a client may take to take anything of what is written to it.
    pub take_within: Duration,
    /// How long runs and requests may take to end once the gateway is stopped.
    pub drain_within: Duration,
    /// What uploaded files take in memory together, and how long they are kept.
    pub attachments_bytes: usize,
    pub attachment_for: Duration,
    /// How long a stream is silent at most.
    pub keepalive: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: MIB,
            upload_bytes: 12 * MIB,
            frame_bytes: MIB,
            connect_within: Duration::from_secs(10),
            before_connect_bytes: 64 * 1024,
            connections: 10_000,
            subscriptions: 256,
            in_flight: 64,
            failed_logins: 30,
            header_within: Duration::from_secs(10),
            body_within: Duration::from_secs(30),
            take_within: Duration::from_secs(60),
            drain_within: Duration::from_secs(10),
            attachments_bytes: 128 * MIB,
            attachment_for: Duration::from_secs(10 * 60),
            keepalive: Duration::from_secs(15),
        }
    }
}
