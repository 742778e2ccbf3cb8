//! Counters, as Prometheus reads them. Nothing in them says who did what.

use std::{
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

#[derive(Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How many there are now; each is counted while its [`Present`] lives.
#[derive(Clone, Default)]
pub(super) struct Level(Arc<AtomicU64>);

pub(super) struct Present(Arc<AtomicU64>);

impl Level {
    pub(super) fn enter(&self) -> Present {
        self.0.fetch_add(1, Ordering::Relaxed);
        Present(Arc::clone(&self.0))
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Default)]
pub(super) struct Metrics {
    /// Answers by the first digit of their status.
    answers: [Count; 6],
    pub(super) connections: Level,
    pub(super) refused_connections: Count,
    pub(super) refused_logins: Count,
    pub(super) refused_origins: Count,
    /// Streams and subscriptions.
    pub(super) followers: Level,
    /// Messages and events that were handed to followers.
    pub(super) deliveries: Count,
    /// How often somebody could not keep up.
    pub(super) lags: Count,
}

impl Metrics {
    pub(super) fn answered(&self, status: u16) {
        if let Some(count) = self.answers.get(usize::from(status / 100)) {
            count.add(1);
        }
    }

    pub(super) fn render(&self) -> String {
        let mut text = String::new();
        let mut family = |name: &str, kind: &str, about: &str, lines: &[(String, u64)]| {
            let _infallible = writeln!(text, "# HELP sess_{name} {about}\n# TYPE sess_{name} {kind}");
            for (labels, value) in lines {
                let _infallible = writeln!(text, "sess_{name}{labels} {value}");
            }
        };
        let one = |value: u64| [(String::new(), value)];
        let classes: Vec<(String, u64)> =
            (1..6).map(|digit| (format!("{{status=\"{digit}xx\"}}"), self.answers[digit].get())).collect();
        family("http_requests_total", "counter", "Answered requests.", &classes);
        family("connections", "gauge", "Open connections.", &one(self.connections.get()));
        let refused = self.refused_connections.get();
        family("refused_connections_total", "counter", "Connections over the limit.", &one(refused));
        family("refused_logins_total", "counter", "Wrong tokens and codes.", &one(self.refused_logins.get()));
        let foreign = self.refused_origins.get();
        family("refused_origins_total", "counter", "Requests with a foreign Host or Origin.", &one(foreign));
        family("followers", "gauge", "Streams and subscriptions.", &one(self.followers.get()));
        let delivered = self.deliveries.get();
        family("deliveries_total", "counter", "Messages and events handed to followers.", &one(delivered));
        family("lags_total", "counter", "Followers that could not keep up.", &one(self.lags.get()));
        text
    }
}
