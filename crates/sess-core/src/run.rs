//! Runs: one turn of an agent in a session, from request to outcome.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{
    AgentId, SessionId, SessionKey, Timestamp,
    message::Usage,
    session::{Channel, Cleanup},
};

/// The id of one run: a UUID that we made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunId(String);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid run id \"{0}\": expected a UUID")]
pub struct InvalidRunId(pub String);

impl RunId {
    /// Makes the id from 128 random bits.
    pub fn new(random: u128) -> Self {
        let session = crate::id::uuid(random);
        Self(session.as_str().to_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for RunId {
    type Err = InvalidRunId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if crate::id::is_uuid(text) {
            Ok(Self(text.to_ascii_lowercase()))
        } else {
            Err(InvalidRunId(text.to_owned()))
        }
    }
}

impl TryFrom<String> for RunId {
    type Error = InvalidRunId;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<RunId> for String {
    fn from(id: RunId) -> Self {
        id.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A run as it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub id: RunId,
    pub session: SessionId,
    /// The agent that was asked; a handoff changes the session's, not this one.
    pub agent: AgentId,
    pub state: RunState,
    pub queued_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    /// What the agent said last, once the run has ended.
    pub result: Option<String>,
    /// Why it did not end well.
    pub error: Option<String>,
    pub usage: Usage,
    /// Somebody asked it to stop.
    pub is_cancelled: bool,
    pub errand: Errand,
    pub lineage: Lineage,
    /// When a session that we do not run was handed the message.
    pub handed_over_at: Option<Timestamp>,
}

impl Run {
    /// Returns how far its message has come.
    pub fn delivery(&self) -> Delivery {
        match self.state {
            RunState::Queued if self.handed_over_at.is_none() => Delivery::Queued,
            RunState::Done => Delivery::Replied,
            _ if self.started_at.is_some() || self.handed_over_at.is_some() => Delivery::Delivered,
            // It ended before anybody saw it.
            _ => Delivery::Queued,
        }
    }
}

/// How far a message to a session has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    Queued,
    Delivered,
    Replied,
}

impl Delivery {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Delivered => "delivered",
            Self::Replied => "replied",
        }
    }
}

/// Where a run comes from, for limits and for the tree that people look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lineage {
    /// The run that all of this began with; itself when it began with this one.
    pub root: RunId,
    /// The run that asked for this one.
    pub parent: Option<RunId>,
    /// How many messages between agents led here.
    pub hops: u32,
}

impl Lineage {
    /// Returns the lineage of a run that nobody's run asked for.
    pub fn first(id: &RunId) -> Self {
        Self { root: id.clone(), parent: None, hops: 0 }
    }

    /// Returns the lineage of a run that `parent` asked for.
    pub fn below(parent: &Run) -> Self {
        let Lineage { root, hops, .. } = &parent.lineage;
        Self { root: root.clone(), parent: Some(parent.id.clone()), hops: hops.saturating_add(1) }
    }
}

/// What a run is for, and so what follows when it has ended.
///
/// It is stored as JSON: variants and fields are only ever added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Errand {
    /// A message of a person's or a program's. Nothing follows.
    #[default]
    Message,
    /// A message from another session. Rounds of replies may follow, then an announce.
    Send(Send),
    /// A further round: the other's last reply.
    Round(Round),
    /// The target is asked what to post in its channel.
    Announce(Announce),
    /// A reply that came when nobody waited any longer. Nothing follows.
    LateReply { of: RunId },
    /// A task, in a session of its own. Its outcome is reported to whoever spawned it.
    Spawn(Spawn),
    /// What became of a task. A child that is to be deleted then is.
    Report { child: SessionKey, of: RunId },
}

impl Errand {
    /// Returns what it is called, also where it is stored.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::Send(_) => "send",
            Self::Round(_) => "round",
            Self::Announce(_) => "announce",
            Self::LateReply { .. } => "late_reply",
            Self::Spawn(_) => "spawn",
            Self::Report { .. } => "report",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Send {
    pub requester: SessionKey,
    pub channel: Channel,
    /// What was asked.
    pub request: String,
    pub rounds_max: u8,
    /// The process in which the sender waits; if there is none, a reply has to find it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaited_by: Option<Process>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Round {
    /// The run of the message that began it; its errand is a [`Send`].
    pub first: RunId,
    /// The reply to the first message is round 1, so this is 2 or more.
    pub number: u8,
    /// The run whose reply this one answers.
    pub answers: RunId,
    /// Whose words those are.
    pub from: SessionKey,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Announce {
    pub first: RunId,
    /// The run with the latest reply that was no control word.
    pub latest: RunId,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spawn {
    /// `None` when the owner spawned it at a terminal: then nobody is told.
    pub requester: Option<SessionKey>,
    pub label: Option<String>,
    /// The seconds after which it is stopped.
    pub timeout_seconds: Option<u64>,
    pub cleanup: Cleanup,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    Queued,
    Running,
    /// Ended well.
    Done,
    Failed,
    Cancelled,
    TimedOut,
    /// Its node died or lost the lease.
    Aborted,
}

impl RunState {
    pub const ALL: [Self; 7] = [
        Self::Queued,
        Self::Running,
        Self::Done,
        Self::Failed,
        Self::Cancelled,
        Self::TimedOut,
        Self::Aborted,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::TimedOut => "timed_out",
            Self::Aborted => "aborted",
        }
    }

    pub fn has_ended(self) -> bool {
        match self {
            Self::Queued | Self::Running => false,
            Self::Done | Self::Failed | Self::Cancelled | Self::TimedOut | Self::Aborted => true,
        }
    }
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown run state \"{0}\"")]
pub struct UnknownRunState(pub String);

impl FromStr for RunState {
    type Err = UnknownRunState;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = Self::ALL.into_iter().find(|state| state.as_str() == text);
        named.ok_or_else(|| UnknownRunState(text.to_owned()))
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// One that has ended.
    pub state: RunState,
    pub result: Option<String>,
    pub error: Option<String>,
    pub usage: Usage,
}

/// A process, told from a later one with the same number by when it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub pid: u32,
    /// In the system's clock ticks since it booted.
    pub started: u64,
}

/// Boot-time clock of one machine start: it neither jumps nor stands still in suspend.
///
/// Leases are told by it, so a wrong wall clock neither ends nor prolongs one. The
/// times of another boot mean nothing: whoever held a lease then is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootTime {
    pub boot_id: String,
    pub millis: u64,
}

impl BootTime {
    pub fn plus(&self, millis: u64) -> Self {
        Self { boot_id: self.boot_id.clone(), millis: self.millis.saturating_add(millis) }
    }

    /// Tells whether a lease that ends at `self` has ended `now`.
    pub fn has_lapsed(&self, now: &Self) -> bool {
        self.boot_id != now.boot_id || self.millis <= now.millis
    }
}
