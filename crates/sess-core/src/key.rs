//! Session keys: the lasting addresses of sessions.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::SessionId;

/// Which agent a session belongs to: `[a-z0-9][a-z0-9_-]{0,63}`, stored in lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AgentId(String);

/// A name that is no agent id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid agent id \"{0}\": agent ids match [a-z0-9][a-z0-9_-]{{0,63}}")]
pub struct InvalidAgentId(pub String);

impl AgentId {
    /// The agent of sessions that nobody named one for.
    pub fn main() -> Self {
        Self("main".to_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for AgentId {
    type Err = InvalidAgentId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let id = text.to_ascii_lowercase();
        let mut bytes = id.bytes();
        let first_allowed = bytes.next().is_some_and(|b| b.is_ascii_alphanumeric());
        let rest_allowed = bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
        if first_allowed && rest_allowed && id.len() <= 64 {
            Ok(Self(id))
        } else {
            Err(InvalidAgentId(text.to_owned()))
        }
    }
}

impl TryFrom<String> for AgentId {
    type Error = InvalidAgentId;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<AgentId> for String {
    fn from(id: AgentId) -> Self {
        id.0
    }
}

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The address of a session, which lasts while transcripts behind it come and go.
///
/// One of `agent:<agentId>:<rest>`, `cron:<id>`, `hook:<id>`, `node-<id>`; at
/// most 512 bytes, no control characters. The agent id inside is lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionKey(String);

/// A text that is no session key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed session key \"{0}\"")]
pub struct MalformedKey(pub String);

impl SessionKey {
    /// The most bytes a key has.
    pub const SIZE_BYTES_MAX: usize = 512;

    /// Returns the key of a conversation that has no more particular address.
    pub fn chat(agent: &AgentId, id: &SessionId) -> Self {
        Self(format!("agent:{agent}:chat:{id}"))
    }

    /// Returns the key of a session that another one gave a task.
    pub fn sub_agent(agent: &AgentId, id: &SessionId) -> Self {
        Self(format!("agent:{agent}:subagent:{id}"))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the agent named in the key; cron jobs, hooks and nodes have none.
    pub fn agent(&self) -> Option<AgentId> {
        let rest = self.0.strip_prefix("agent:")?;
        rest.split(':').next()?.parse().ok()
    }
}

impl FromStr for SessionKey {
    type Err = MalformedKey;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let malformed = || MalformedKey(text.to_owned());
        let key = text.trim();
        if key.len() > Self::SIZE_BYTES_MAX || key.chars().any(char::is_control) {
            return Err(malformed());
        }
        if let Some(rest) = key.strip_prefix("agent:") {
            let (agent, address) = rest.split_once(':').ok_or_else(malformed)?;
            let agent: AgentId = agent.parse().map_err(|_| malformed())?;
            if address.split(':').any(str::is_empty) {
                return Err(malformed());
            }
            return Ok(Self(format!("agent:{agent}:{address}")));
        }
        let named = ["cron:", "hook:", "node-"]
            .iter()
            .any(|prefix| key.strip_prefix(prefix).is_some_and(|name| !name.is_empty()));
        if named { Ok(Self(key.to_owned())) } else { Err(malformed()) }
    }
}

impl TryFrom<String> for SessionKey {
    type Error = MalformedKey;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<SessionKey> for String {
    fn from(key: SessionKey) -> Self {
        key.0
    }
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_canonical_or_malformed() {
        let check = |text: &str, key: &str| {
            assert_eq!(text.parse::<SessionKey>().expect(text).as_str(), key);
        };
        check("agent:main:main", "agent:main:main");
        check(" agent:Main:chat:aB ", "agent:main:chat:aB");
        check("agent:a:discord:group:42:thread:7", "agent:a:discord:group:42:thread:7");
        check("cron:nightly", "cron:nightly");
        check("hook:x", "hook:x");
        check("node-7", "node-7");

        let too_long = format!("cron:{}", "x".repeat(512));
        for text in [
            "",
            "main",
            "global",
            "agent:",
            "agent:a",
            "agent:a:",
            "agent:-a:main",
            "agent:a::b",
            "cron:",
            "a\u{7}b",
            "agent:a:chat:x\ny",
            &too_long,
        ] {
            let error = text.parse::<SessionKey>().expect_err(text);
            assert_eq!(error.to_string(), format!("malformed session key \"{text}\""));
        }
    }

    #[test]
    fn the_agent_of_a_key_is_the_one_it_names() {
        let agent = |key: &str| key.parse::<SessionKey>().expect(key).agent().map(String::from);
        assert_eq!(agent("agent:Claude:chat:1"), Some("claude".to_owned()));
        assert_eq!(agent("cron:1"), None);
    }
}
