//! Session keys: the lasting addresses of sessions.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{SessionId, session::Channel};

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
/// One of the shapes that [`MalformedKey`] names; at most 512 bytes, no control
/// characters. The agent id inside is lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionKey(String);

/// A text that is no session key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "malformed session key \"{0}\": a key is agent:<agentId>: with main, main:thread:<id>, chat:<id>, subagent:<id>, \
     <channel>:group:<id> or <channel>:channel:<id> behind it, or cron:<id>, hook:<id> or node-<id>; it has at \
     most {max} bytes and no control characters",
    max = SessionKey::SIZE_BYTES_MAX
)]
pub struct MalformedKey(pub String);

impl SessionKey {
    /// The most bytes a key has.
    pub const SIZE_BYTES_MAX: usize = 512;

    /// Returns the key of an agent's main direct chat.
    pub fn main(agent: &AgentId) -> Self {
        Self(format!("agent:{agent}:main"))
    }

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

    pub fn kind(&self) -> SessionKind {
        match self.parts() {
            Parts::Cron => SessionKind::Cron,
            Parts::Hook => SessionKind::Hook,
            Parts::Node => SessionKind::Node,
            Parts::Main => SessionKind::Main,
            Parts::Room { .. } => SessionKind::Group,
            Parts::Other => SessionKind::Other,
        }
    }

    /// Returns what sort of chat it is, for rules about sending.
    pub fn chat_type(&self) -> ChatType {
        match self.parts() {
            Parts::Room { is_group: true, .. } => ChatType::Group,
            Parts::Room { is_group: false, .. } => ChatType::Channel,
            Parts::Cron | Parts::Hook | Parts::Node | Parts::Main | Parts::Other => ChatType::Direct,
        }
    }

    /// Returns the channel of a session: what its key says, else `last`, the one it used last.
    pub fn channel(&self, last: Option<Channel>) -> Channel {
        match self.parts() {
            Parts::Cron | Parts::Hook | Parts::Node => Channel::Internal,
            Parts::Room { channel, .. } => channel.parse().unwrap_or(Channel::Unknown),
            Parts::Main | Parts::Other => last.unwrap_or(Channel::Unknown),
        }
    }

    pub fn is_sub_agent(&self) -> bool {
        let address = self.0.strip_prefix("agent:").and_then(|rest| rest.split_once(':'));
        address.is_some_and(|(_, address)| address.starts_with("subagent:"))
    }

    fn parts(&self) -> Parts<'_> {
        let Some(rest) = self.0.strip_prefix("agent:") else {
            return match self.0.as_bytes() {
                [b'c', ..] => Parts::Cron,
                [b'h', ..] => Parts::Hook,
                _ => Parts::Node,
            };
        };
        let address = rest.split_once(':').map_or("", |(_, address)| address);
        let mut parts = address.splitn(3, ':');
        match (parts.next(), parts.next(), parts.next()) {
            (Some("main"), None, None) => Parts::Main,
            (Some(channel), Some("group"), Some(_)) => Parts::Room { channel, is_group: true },
            (Some(channel), Some("channel"), Some(_)) => Parts::Room { channel, is_group: false },
            _ => Parts::Other,
        }
    }
}

/// What a key is made of, as far as anybody asks.
enum Parts<'a> {
    Main,
    Room { channel: &'a str, is_group: bool },
    Cron,
    Hook,
    Node,
    Other,
}

/// What sort of session a key leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionKind {
    Main,
    Group,
    Cron,
    Hook,
    Node,
    Other,
}

impl SessionKind {
    pub const ALL: [Self; 6] = [Self::Main, Self::Group, Self::Cron, Self::Hook, Self::Node, Self::Other];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Group => "group",
            Self::Cron => "cron",
            Self::Hook => "hook",
            Self::Node => "node",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for SessionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A name that is no kind of session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown kind \"{0}\": one of main, group, cron, hook, node, other")]
pub struct UnknownKind(pub String);

impl FromStr for SessionKind {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        named.ok_or_else(|| UnknownKind(text.to_owned()))
    }
}

/// Who takes part in a chat, as rules about sending name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChatType {
    Direct,
    Group,
    Channel,
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
            if !is_address(address) {
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

/// Tells whether this can stand behind `agent:<agentId>:`. An id may have colons of its own.
fn is_address(address: &str) -> bool {
    let parts: Vec<&str> = address.split(':').collect();
    let is_known = matches!(
        parts.as_slice(),
        ["main"] | ["main", "thread", _, ..] | ["chat" | "subagent", _, ..] | [_, "group" | "channel", _, ..]
    );
    is_known && !parts.contains(&"")
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
        check("agent:a:main:thread:7", "agent:a:main:thread:7");
        check("agent:a:discord:group:42:thread:7", "agent:a:discord:group:42:thread:7");
        check("agent:a:telegram:channel:X", "agent:a:telegram:channel:X");
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
            "agent::main",
            "agent:a:other",
            "agent:a:main:x",
            "agent:a:main:thread",
            "agent:a:chat",
            "agent:a:subagent:",
            "agent:a:discord:group",
            "agent:a:discord:room:1",
            "cron:",
            "a\u{7}b",
            "agent:a:chat:x\ny",
            &too_long,
        ] {
            let error = text.parse::<SessionKey>().expect_err(text);
            let told = format!("malformed session key \"{text}\": a key is agent:<agentId>: with main, ");
            assert!(error.to_string().starts_with(&told), "{error}");
        }
    }

    #[test]
    fn kind_and_channel_come_from_the_key_alone() {
        let check = |key: &str, kind: &str, channel: Channel| {
            let key: SessionKey = key.parse().expect(key);
            assert_eq!(key.kind().as_str(), kind, "{key}");
            assert_eq!(key.channel(Some(Channel::Webchat)), channel, "{key}");
        };
        check("agent:a:main", "main", Channel::Webchat);
        check("agent:a:chat:1", "other", Channel::Webchat);
        check("agent:a:subagent:1", "other", Channel::Webchat);
        check("agent:a:main:thread:1", "other", Channel::Webchat);
        check("agent:a:discord:group:42", "group", Channel::Discord);
        check("agent:a:telegram:channel:X:thread:7", "group", Channel::Telegram);
        check("agent:a:irc:group:42", "group", Channel::Unknown);
        check("cron:main", "cron", Channel::Internal);
        check("hook:1", "hook", Channel::Internal);
        check("node-1", "node", Channel::Internal);
        let sub_agent = |key: &str| key.parse::<SessionKey>().expect(key).is_sub_agent();
        assert!(sub_agent("agent:a:subagent:1"));
        assert!(!sub_agent("agent:a:chat:subagent:1"));
        assert!(!sub_agent("agent:subagent:main"));
        assert!(!sub_agent("cron:subagent:1"));
    }

    #[test]
    fn the_agent_of_a_key_is_the_one_it_names() {
        let agent = |key: &str| key.parse::<SessionKey>().expect(key).agent().map(String::from);
        assert_eq!(agent("agent:Claude:chat:1"), Some("claude".to_owned()));
        assert_eq!(agent("cron:1"), None);
    }

    proptest::proptest! {
        /// Whatever is given: it is refused by name, or canonical for good.
        #[test]
        fn a_canonical_key_stays_as_it_is(text in "(agent:|agent:a:(main|chat:|d:group:)|cron:|hook:|node-|)[ -~:éA\n]{0,40}") {
            match text.parse::<SessionKey>() {
                Ok(key) => {
                    assert_eq!(key.as_str().parse::<SessionKey>().as_ref(), Ok(&key));
                    assert!(!matches!(key.as_str(), "global" | "unknown" | "main" | "current"));
                    assert!(!key.as_str().chars().any(char::is_control) && key.as_str().len() <= 512);
                    if let Some(agent) = key.agent() {
                        assert!(key.as_str().starts_with(&format!("agent:{agent}:")));
                    }
                    assert_eq!(key.kind().as_str().parse(), Ok(key.kind()));
                }
                Err(error) => assert_eq!(error, MalformedKey(text)),
            }
        }
    }
}
