//! From what is written to [`SessionRules`]: every number in its range, every name one that can match.

use std::ops::RangeInclusive;

use sess_core::{
    AgentId,
    key::ChatType,
    rules::{
        AgentToAgent, DirectScope, SendPolicy, SendRule, SessionLimits, SessionRules, ToolFilter, Visibility,
    },
    session::{Channel, Sending},
};

use super::{
    de::short,
    file,
    problem::{Problem, Trail},
    yaml::Document,
};

/// The longest that a sub-agent may be given: a week.
const RUN_TIMEOUT_SECONDS_MAX: u64 = 7 * 24 * 60 * 60;
/// A year.
const ARCHIVE_AFTER_MINUTES_MAX: u64 = 365 * 24 * 60;

/// Makes the rules for sessions among themselves.
pub fn build(document: &Document, file: &file::File) -> Result<SessionRules, Vec<Problem>> {
    let mut building = Building { document, found: Vec::new() };
    let rules = building.rules(file);
    if building.found.is_empty() { Ok(rules) } else { Err(building.found) }
}

/// Returns the names of agents that may be spawned, in their canonical form, and what is wrong with the others.
pub fn agent_names(names: &[String], trail: &Trail) -> (Vec<String>, Vec<(Trail, String)>) {
    let mut known: Vec<String> = Vec::new();
    let mut wrong = Vec::new();
    for (n, name) in names.iter().enumerate() {
        let parsed = match name.trim() {
            "*" => Ok("*".to_owned()),
            name => name.parse::<AgentId>().map(String::from),
        };
        match parsed {
            Ok(name) if known.contains(&name) => {}
            Ok(name) => known.push(name),
            Err(_) => {
                let text = format!("\"{}\" is no agent's name: expected one, or \"*\" for any", short(name));
                wrong.push((trail.index(n), text));
            }
        }
    }
    (known, wrong)
}

struct Building<'a> {
    document: &'a Document,
    found: Vec<Problem>,
}

impl Building<'_> {
    fn wrong(&mut self, trail: &Trail, text: &str) {
        self.found.push(Problem { at: self.document.spot(trail), text: format!("{trail}: {text}") });
    }

    fn within<N: Copy + PartialOrd + std::fmt::Display>(
        &mut self,
        trail: &Trail,
        given: Option<N>,
        range: RangeInclusive<N>,
        default: N,
    ) -> N {
        let Some(given) = given else { return default };
        if !range.contains(&given) {
            let text = format!("expected a number from {} to {}, found {given}", range.start(), range.end());
            self.wrong(trail, &text);
        }
        given
    }

    fn rules(&mut self, file: &file::File) -> SessionRules {
        let root = Trail::default();
        let session = root.key("session");
        let exchanges = session.key("agentToAgent");
        let defaults = root.key("agents").key("defaults");
        let sub_agents_trail = defaults.key("subagents");
        let nothing = file::Agent::default();
        let of_all = file.agents.defaults.as_ref().unwrap_or(&nothing);
        let no_sub_agents = file::SubAgents::default();
        let sub_agents = of_all.subagents.as_ref().unwrap_or(&no_sub_agents);
        let usual = SessionLimits::default();
        let limits = SessionLimits {
            children: self.within(
                &sub_agents_trail.key("maxChildren"),
                sub_agents.max_children,
                1..=100,
                usual.children,
            ),
            depth: self.within(&sub_agents_trail.key("maxDepth"), sub_agents.max_depth, 1..=20, usual.depth),
            concurrent: self.within(
                &defaults.key("maxConcurrent"),
                of_all.max_concurrent,
                1..=100,
                usual.concurrent,
            ),
            queue: self.within(&session.key("maxQueue"), file.session.max_queue, 1..=10_000, usual.queue),
            hops: self.within(
                &exchanges.key("maxHops"),
                file.session.agent_to_agent.max_hops,
                1..=100,
                usual.hops,
            ),
            tree_runs: self.within(
                &exchanges.key("maxRuns"),
                file.session.agent_to_agent.max_runs,
                1..=10_000,
                usual.tree_runs,
            ),
        };
        let rounds_max = self.within(
            &exchanges.key("maxPingPongTurns"),
            file.session.agent_to_agent.max_ping_pong_turns,
            0..=u32::from(SessionRules::ROUNDS_MAX),
            u32::from(SessionRules::ROUNDS_MAX),
        );
        let timeout = self.within(
            &sub_agents_trail.key("runTimeoutSeconds"),
            sub_agents.run_timeout_seconds,
            0..=RUN_TIMEOUT_SECONDS_MAX,
            0,
        );
        let archive_after_minutes = self.within(
            &sub_agents_trail.key("archiveAfterMinutes"),
            sub_agents.archive_after_minutes,
            1..=ARCHIVE_AFTER_MINUTES_MAX,
            SessionRules::ARCHIVE_AFTER_MINUTES,
        );
        let names = sub_agents.allow_agents.as_deref().unwrap_or_default();
        let (default_allow_agents, wrong) = agent_names(names, &sub_agents_trail.key("allowAgents"));
        for (trail, text) in wrong {
            self.wrong(&trail, &text);
        }
        SessionRules {
            visibility: match file.tools.sessions.visibility {
                Some(file::SessionsVisibility::Own) => Visibility::Own,
                None | Some(file::SessionsVisibility::Tree) => Visibility::Tree,
                Some(file::SessionsVisibility::Agent) => Visibility::Agent,
                Some(file::SessionsVisibility::All) => Visibility::All,
            },
            agent_to_agent: self.agent_to_agent(&file.tools.agent_to_agent),
            send_policy: self.send_policy(&file.session.send_policy),
            scope: match file.session.scope {
                None | Some(file::DirectScope::PerAgent | file::DirectScope::PerSender) => {
                    DirectScope::PerAgent
                }
                Some(file::DirectScope::Global) => DirectScope::Global,
            },
            rounds_max: u8::try_from(rounds_max).unwrap_or(SessionRules::ROUNDS_MAX),
            limits,
            sub_agent_tools: self.tool_filter(&file.tools.subagents.tools),
            sub_agent_timeout_seconds: (timeout > 0).then_some(timeout),
            archive_after_minutes,
            default_allow_agents,
        }
    }

    fn agent_to_agent(&mut self, written: &file::AgentToAgent) -> AgentToAgent {
        let trail = Trail::default().key("tools").key("agentToAgent").key("allow");
        for (n, pattern) in written.allow.iter().flatten().enumerate() {
            let is_pattern = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '*');
            let pattern = pattern.trim();
            if pattern.is_empty() || !pattern.chars().all(is_pattern) {
                let text =
                    format!("\"{}\" matches no agent: expected a name, with * for any text", short(pattern));
                self.wrong(&trail.index(n), &text);
            }
        }
        AgentToAgent {
            is_enabled: written.enabled.unwrap_or(false),
            allow: written.allow.clone().unwrap_or_default(),
        }
    }

    fn send_policy(&mut self, written: &file::SendPolicy) -> SendPolicy {
        let sending = |word: file::Sending| match word {
            file::Sending::Allow => Sending::Allow,
            file::Sending::Deny => Sending::Deny,
        };
        let rules = Trail::default().key("session").key("sendPolicy").key("rules");
        let mut made = Vec::new();
        for (n, rule) in written.rules.iter().enumerate() {
            let key_prefix = rule.matching.key_prefix.as_deref().map(str::trim);
            if key_prefix.is_some_and(str::is_empty) {
                let trail = rules.index(n).key("match").key("keyPrefix");
                self.wrong(&trail, "expected how keys begin: leave it out for all of them");
            }
            made.push(SendRule {
                action: sending(rule.action),
                channel: rule.matching.channel.map(channel),
                chat_type: rule.matching.chat_type.map(|chat_type| match chat_type {
                    file::ChatType::Direct => ChatType::Direct,
                    file::ChatType::Group => ChatType::Group,
                    file::ChatType::Channel => ChatType::Channel,
                }),
                key_prefix: key_prefix.map(str::to_owned),
            });
        }
        SendPolicy { default: written.default.map(sending), rules: made }
    }

    /// A name that can never match would deny nothing in silence; outside servers have tools of any name.
    fn tool_filter(&mut self, written: &file::ToolFilter) -> ToolFilter {
        let trail = Trail::default().key("tools").key("subagents").key("tools");
        let mut names = |key: &str, names: &Option<Vec<String>>| {
            let mut trimmed = Vec::new();
            for (n, name) in names.iter().flatten().enumerate() {
                if name.trim().is_empty() {
                    self.wrong(&trail.key(key).index(n), "expected a tool's name, with * for any text");
                }
                trimmed.push(name.trim().to_owned());
            }
            trimmed
        };
        ToolFilter { allow: names("allow", &written.allow), deny: names("deny", &written.deny) }
    }
}

fn channel(channel: file::Channel) -> Channel {
    match channel {
        file::Channel::Whatsapp => Channel::Whatsapp,
        file::Channel::Telegram => Channel::Telegram,
        file::Channel::Discord => Channel::Discord,
        file::Channel::Signal => Channel::Signal,
        file::Channel::Imessage => Channel::Imessage,
        file::Channel::Webchat => Channel::Webchat,
        file::Channel::Internal => Channel::Internal,
        file::Channel::Unknown => Channel::Unknown,
    }
}
