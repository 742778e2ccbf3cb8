//! A session: one conversation with one agent.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{AgentId, SessionId, SessionKey, Timestamp};

/// Where a session comes from: our own, or another agent's files or host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    Native,
    Claude,
    Codex,
    Gemini,
    Opencode,
    Goose,
    DockerAgent,
    Openclaw,
    Cursor,
    Zed,
    Crush,
    Amp,
    Qwen,
    Copilot,
}

impl Source {
    pub const ALL: [Self; 14] = [
        Self::Native,
        Self::Claude,
        Self::Codex,
        Self::Gemini,
        Self::Opencode,
        Self::Goose,
        Self::DockerAgent,
        Self::Openclaw,
        Self::Cursor,
        Self::Zed,
        Self::Crush,
        Self::Amp,
        Self::Qwen,
        Self::Copilot,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Opencode => "opencode",
            Self::Goose => "goose",
            Self::DockerAgent => "docker-agent",
            Self::Openclaw => "openclaw",
            Self::Cursor => "cursor",
            Self::Zed => "zed",
            Self::Crush => "crush",
            Self::Amp => "amp",
            Self::Qwen => "qwen",
            Self::Copilot => "copilot",
        }
    }

    /// Returns the agent id that this source's sessions carry in their keys.
    pub fn agent(self) -> AgentId {
        match self {
            Self::Native => AgentId::main(),
            vendor => vendor.as_str().parse().expect("every source name is an agent id"),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A name that is no source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown source \"{0}\": one of native, claude, codex, gemini, opencode, goose, docker-agent, openclaw, cursor, zed, crush, amp"
)]
pub struct UnknownSource(pub String);

impl FromStr for Source {
    type Err = UnknownSource;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|source| source.as_str() == text)
            .ok_or_else(|| UnknownSource(text.to_owned()))
    }
}

/// Where a conversation is held with people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Channel {
    Whatsapp,
    Telegram,
    Discord,
    Signal,
    Imessage,
    Webchat,
    Internal,
    Unknown,
}

impl Channel {
    pub const ALL: [Self; 8] = [
        Self::Whatsapp,
        Self::Telegram,
        Self::Discord,
        Self::Signal,
        Self::Imessage,
        Self::Webchat,
        Self::Internal,
        Self::Unknown,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Whatsapp => "whatsapp",
            Self::Telegram => "telegram",
            Self::Discord => "discord",
            Self::Signal => "signal",
            Self::Imessage => "imessage",
            Self::Webchat => "webchat",
            Self::Internal => "internal",
            Self::Unknown => "unknown",
        }
    }

    /// Tells whether somebody outside could read what is posted there.
    pub fn reaches_people(self) -> bool {
        match self {
            Self::Internal | Self::Unknown => false,
            Self::Whatsapp
            | Self::Telegram
            | Self::Discord
            | Self::Signal
            | Self::Imessage
            | Self::Webchat => true,
        }
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown channel \"{0}\"")]
pub struct UnknownChannel(pub String);

impl FromStr for Channel {
    type Err = UnknownChannel;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = Self::ALL.into_iter().find(|channel| channel.as_str() == text);
        named.ok_or_else(|| UnknownChannel(text.to_owned()))
    }
}

/// Where to post to somebody: a channel, and who there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Address {
    pub channel: Channel,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account_id: Option<String>,
}

/// Who runs the turns of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Runner {
    /// A node of ours.
    #[default]
    Here,
    /// Another program: what is sent to it waits in its inbox.
    Host,
}

/// May messages be sent into a session, and its replies leave for a channel?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sending {
    Allow,
    Deny,
}

impl Sending {
    pub const ALL: [Self; 2] = [Self::Allow, Self::Deny];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

/// What becomes of a spawned session once its result was announced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cleanup {
    /// It is archived after a while.
    #[default]
    Keep,
    Delete,
}

/// How hard a model should think, as a spawn asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThinkingLevel {
    Off,
    Minimal,
    Low,
    Medium,
    High,
}

impl ThinkingLevel {
    pub const ALL: [Self; 5] = [Self::Off, Self::Minimal, Self::Low, Self::Medium, Self::High];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// How much of its work a session shows in its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerboseLevel {
    Off,
    On,
    Full,
}

impl VerboseLevel {
    pub const ALL: [Self; 3] = [Self::Off, Self::On, Self::Full];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::On => "on",
            Self::Full => "full",
        }
    }
}

/// How a session is reached and run, where that is not as usual.
///
/// It is stored as JSON: fields are only ever added, each with a default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Facts {
    #[serde(skip_serializing_if = "is_default")]
    pub runner: Runner,
    /// What whoever spawned it calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// What a group is called where it meets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// The name of the model to use instead of the agent's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<ThinkingLevel>,
    /// What the owner asked to see of its work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verbose: Option<VerboseLevel>,
    /// The owner's own word about this session; the configuration's rules when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_policy: Option<Sending>,
    /// Where it was talked to last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery: Option<Address>,
    /// It was spawned for a task, and ends with it.
    #[serde(skip_serializing_if = "is_default")]
    pub is_spawned: bool,
    /// The owner took it out of the archive, its own agent's too.
    #[serde(skip_serializing_if = "is_default")]
    pub is_unarchived: bool,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What is known of a session before its first message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSession {
    pub id: SessionId,
    pub key: SessionKey,
    pub agent: AgentId,
    pub source: Source,
    pub title: String,
    pub cwd: Option<String>,
    pub parent: Option<SessionKey>,
    pub facts: Facts,
    pub created_at: Timestamp,
}

impl NewSession {
    /// Returns a session without title, directory or parent.
    pub fn chat(id: SessionId, source: Source, created_at: Timestamp) -> Self {
        let agent = source.agent();
        let key = SessionKey::chat(&agent, &id);
        let facts = Facts {
            runner: if source == Source::Native { Runner::Here } else { Runner::Host },
            ..Facts::default()
        };
        Self { id, key, agent, source, title: String::new(), cwd: None, parent: None, facts, created_at }
    }
}

/// A session as it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    pub id: SessionId,
    pub key: SessionKey,
    pub agent: AgentId,
    pub source: Source,
    pub title: String,
    pub cwd: Option<String>,
    pub parent: Option<SessionKey>,
    pub facts: Facts,
    pub created_at: Timestamp,
    /// When its last message was written, its plan changed, or it was made.
    pub updated_at: Timestamp,
    /// The sequence number of its last message; 0 before the first.
    pub last_seq: u64,
    /// Its own messages without system messages.
    pub num_messages: u64,
    pub starred: bool,
    pub archived_at: Option<Timestamp>,
    /// What its runs and those of the sessions below it have used.
    pub spent: Spent,
}

impl Session {
    /// Returns a session as it stands before its first message.
    pub fn unused(new: NewSession) -> Self {
        Self {
            id: new.id,
            key: new.key,
            agent: new.agent,
            source: new.source,
            title: new.title,
            cwd: new.cwd,
            parent: new.parent,
            facts: new.facts,
            updated_at: new.created_at,
            created_at: new.created_at,
            last_seq: 0,
            num_messages: 0,
            starred: false,
            archived_at: None,
            spent: Spent::default(),
        }
    }

    pub fn channel(&self) -> Channel {
        self.key.channel(self.facts.delivery.as_ref().map(|address| address.channel))
    }
}

/// Tokens and money, of a session or run and all below it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    pub tokens: u64,
    /// `None` when no model that was used has a price.
    pub cost: Option<f64>,
}

impl Spent {
    pub fn plus(self, other: Self) -> Self {
        let cost = match (self.cost, other.cost) {
            (None, None) => None,
            (one, other) => Some(one.unwrap_or(0.0) + other.unwrap_or(0.0)),
        };
        Self { tokens: self.tokens.saturating_add(other.tokens), cost }
    }
}

impl From<&crate::message::Usage> for Spent {
    fn from(usage: &crate::message::Usage) -> Self {
        let tokens = [usage.input, usage.output, usage.cache_read, usage.cache_write];
        Self { tokens: tokens.into_iter().fold(0, u64::saturating_add), cost: usage.cost }
    }
}

impl From<Session> for NewSession {
    /// Returns what was known of a session before its first message.
    fn from(session: Session) -> Self {
        Self {
            id: session.id,
            key: session.key,
            agent: session.agent,
            source: session.source,
            title: session.title,
            cwd: session.cwd,
            parent: session.parent,
            facts: session.facts,
            created_at: session.created_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_reads_back_from_its_name() {
        for source in Source::ALL {
            assert_eq!(source.as_str().parse(), Ok(source));
            let json = serde_json::to_value(source).expect("a string");
            assert_eq!(json, source.as_str());
            source.agent();
        }
        assert!("Claude".parse::<Source>().is_err());
    }
}
