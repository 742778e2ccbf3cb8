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
    "unknown source \"{0}\": one of native, claude, codex, gemini, opencode, goose, docker-agent, openclaw, cursor, zed, crush, amp, qwen, copilot"
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
    pub created_at: Timestamp,
}

impl NewSession {
    /// Returns a session without title, directory or parent.
    pub fn chat(id: SessionId, source: Source, created_at: Timestamp) -> Self {
        let agent = source.agent();
        let key = SessionKey::chat(&agent, &id);
        Self { id, key, agent, source, title: String::new(), cwd: None, parent: None, created_at }
    }
}

/// A session as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub id: SessionId,
    pub key: SessionKey,
    pub agent: AgentId,
    pub source: Source,
    pub title: String,
    pub cwd: Option<String>,
    pub parent: Option<SessionKey>,
    pub created_at: Timestamp,
    /// When its last message was written, its plan changed, or it was made.
    pub updated_at: Timestamp,
    /// The sequence number of its last message; 0 before the first.
    pub last_seq: u64,
    /// Its own messages without system messages.
    pub num_messages: u64,
    pub starred: bool,
    pub archived_at: Option<Timestamp>,
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
