//! What the configuration says about sessions among themselves.

use crate::{
    AgentId, SessionKey,
    key::ChatType,
    policy::Confinement,
    session::{Channel, Sending},
};

/// The rules for sessions that list, read, send to and spawn each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRules {
    /// `tools.sessions.visibility`.
    pub visibility: Visibility,
    /// `tools.agentToAgent`.
    pub agent_to_agent: AgentToAgent,
    /// `session.sendPolicy`.
    pub send_policy: SendPolicy,
    /// `session.scope`.
    pub scope: DirectScope,
    /// `session.agentToAgent.maxPingPongTurns`.
    pub rounds_max: u8,
    pub limits: SessionLimits,
    /// `tools.subagents.tools`.
    pub sub_agent_tools: ToolFilter,
    /// `agents.defaults.subagents.runTimeoutSeconds`; `None` is no limit.
    pub sub_agent_timeout_seconds: Option<u64>,
    /// `agents.defaults.subagents.archiveAfterMinutes`.
    pub archive_after_minutes: u64,
    /// `agents.defaults.subagents.allowAgents`: whom an agent may spawn that is not configured here.
    pub default_allow_agents: Vec<String>,
}

impl SessionRules {
    pub const ROUNDS_MAX: u8 = 5;
    pub const ARCHIVE_AFTER_MINUTES: u64 = 60;

    /// Returns how far session tools reach: a sandbox narrows that, and never widens it.
    pub fn visibility_of(&self, confinement: Confinement) -> Visibility {
        match confinement {
            Confinement::Free => self.visibility,
            Confinement::Sandboxed => self.visibility.min(Visibility::Tree),
        }
    }
}

impl Default for SessionRules {
    fn default() -> Self {
        Self {
            visibility: Visibility::default(),
            agent_to_agent: AgentToAgent::default(),
            send_policy: SendPolicy::default(),
            scope: DirectScope::default(),
            rounds_max: Self::ROUNDS_MAX,
            limits: SessionLimits::default(),
            sub_agent_tools: ToolFilter::default(),
            sub_agent_timeout_seconds: None,
            archive_after_minutes: Self::ARCHIVE_AFTER_MINUTES,
            default_allow_agents: Vec::new(),
        }
    }
}

/// Which sessions an agent's session tools reach. Each is wider than the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Visibility {
    /// Its own.
    Own,
    /// And what that spawned, at any depth.
    #[default]
    Tree,
    /// And every session of the same agent.
    Agent,
    /// And those of other agents, as far as [`AgentToAgent`] allows.
    All,
}

impl Visibility {
    pub const ALL: [Self; 4] = [Self::Own, Self::Tree, Self::Agent, Self::All];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Own => "self",
            Self::Tree => "tree",
            Self::Agent => "agent",
            Self::All => "all",
        }
    }
}

/// Whether agents reach sessions of other agents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentToAgent {
    pub is_enabled: bool,
    /// Both sides must match one of these names, in which `*` is any text; empty allows all.
    pub allow: Vec<String>,
}

impl AgentToAgent {
    /// Tells whether one agent's sessions reach another's.
    pub fn admits(&self, one: Option<&AgentId>, other: Option<&AgentId>) -> bool {
        self.is_enabled && self.names(one) && self.names(other)
    }

    /// Tells whether the list names this agent; a session without one only matches `*`.
    fn names(&self, agent: Option<&AgentId>) -> bool {
        self.allow.is_empty()
            || self.allow.iter().any(|pattern| match agent {
                Some(agent) => matches(&pattern.trim().to_ascii_lowercase(), agent.as_str()),
                None => pattern.trim() == "*",
            })
    }
}

fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|text| {
            let mut ends = text.char_indices().map(|(n, _)| n).chain([text.len()]);
            ends.any(|n| matches(rest, &text[n..]))
        }),
    }
}

/// `session.scope`: whether direct chats are one for each agent, or one for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DirectScope {
    #[default]
    PerAgent,
    /// Every direct chat is one session, which every tool shows as `main`.
    Global,
}

/// Rules about sending, by what a session is and never by its id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SendPolicy {
    pub default: Option<Sending>,
    pub rules: Vec<SendRule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendRule {
    pub action: Sending,
    pub channel: Option<Channel>,
    pub chat_type: Option<ChatType>,
    pub key_prefix: Option<String>,
}

impl SendRule {
    /// A rule that names nothing matches everything.
    fn matches(&self, key: &SessionKey, channel: Channel) -> bool {
        self.channel.is_none_or(|named| named == channel)
            && self.chat_type.is_none_or(|named| named == key.chat_type())
            && self.key_prefix.as_ref().is_none_or(|prefix| key.as_str().starts_with(prefix.as_str()))
    }
}

impl SendPolicy {
    /// The session's own word wins; else any rule that denies, any that allows, the default, yes.
    pub fn decide(&self, own: Option<Sending>, key: &SessionKey, channel: Channel) -> Sending {
        let says = |action: Sending| {
            let found = self.rules.iter().any(|rule| rule.action == action && rule.matches(key, channel));
            found.then_some(action)
        };
        own.or_else(|| says(Sending::Deny))
            .or_else(|| says(Sending::Allow))
            .or(self.default)
            .unwrap_or(Sending::Allow)
    }
}

/// How far sessions may go with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// Live children of one session: `agents.defaults.subagents.maxChildren`.
    pub children: u32,
    /// Sessions below each other: `agents.defaults.subagents.maxDepth`.
    pub depth: u32,
    /// Runs that one node executes beside the conversation it shows: `agents.defaults.maxConcurrent`.
    pub concurrent: u32,
    /// Runs that wait in one session: `session.maxQueue`.
    pub queue: u32,
    /// Messages between agents that lead to each other: `session.agentToAgent.maxHops`.
    pub hops: u32,
    /// Runs that one run led to, in all: `session.agentToAgent.maxRuns`.
    pub tree_runs: u32,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self { children: 5, depth: 5, concurrent: 8, queue: 100, hops: 12, tree_runs: 200 }
    }
}

/// The longest message that one session sends to another, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 256 * 1024;

/// Which tools sub-agents get. What is denied is denied; an empty `allow` allows the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolFilter {
    pub allow: Vec<String>,
    pub deny: Vec<String>,
}

impl ToolFilter {
    /// Tells whether a sub-agent gets a tool. The tools for sessions only when they are named.
    pub fn admits(&self, tool: &str, is_session_tool: bool) -> bool {
        let named = |list: &[String]| list.iter().any(|pattern| matches(pattern, tool));
        let is_allowed = if self.allow.is_empty() { !is_session_tool } else { named(&self.allow) };
        is_allowed && !named(&self.deny)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_names_with_stars() {
        let check = |pattern: &str, text: &str, is_match: bool| {
            assert_eq!(matches(pattern, text), is_match, "{pattern} {text}");
        };
        check("ops", "ops", true);
        check("ops", "ops2", false);
        check("*", "", true);
        check("ops-*", "ops-a", true);
        check("ops-*", "dev-a", false);
        check("*-a*", "ops-a", true);
        check("a*b*c", "a1b2c", true);
        check("a*b*c", "a1c2b", false);
    }

    #[test]
    fn the_whole_table_of_the_send_policy() {
        let rule = |action, channel: Option<Channel>, chat_type, prefix: Option<&str>| SendRule {
            action,
            channel,
            chat_type,
            key_prefix: prefix.map(str::to_owned),
        };
        let key: SessionKey = "agent:a:discord:group:1".parse().expect("a key");
        let check = |own, default, rules: Vec<SendRule>, decided| {
            let policy = SendPolicy { default, rules };
            assert_eq!(policy.decide(own, &key, Channel::Discord), decided, "{policy:?}");
        };
        use Sending::{Allow, Deny};
        check(None, None, vec![], Allow);
        check(None, Some(Deny), vec![], Deny);
        check(Some(Allow), Some(Deny), vec![rule(Deny, None, None, None)], Allow);
        check(Some(Deny), Some(Allow), vec![rule(Allow, None, None, None)], Deny);
        let deny = rule(Deny, Some(Channel::Discord), Some(ChatType::Group), Some("agent:a:"));
        check(None, Some(Allow), vec![rule(Allow, None, None, None), deny], Deny);
        check(None, Some(Deny), vec![rule(Allow, Some(Channel::Discord), None, None)], Allow);
        check(None, Some(Deny), vec![rule(Allow, Some(Channel::Signal), None, None)], Deny);
        check(None, None, vec![rule(Deny, None, Some(ChatType::Direct), None)], Allow);
        check(None, None, vec![rule(Deny, None, None, Some("agent:b:"))], Allow);
    }
}
