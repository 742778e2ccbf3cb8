//! Agents as they are configured: who they are, what they may use, how far they may go.
//!
//! A [`Team`] is one whole configuration, checked: every name in it leads somewhere.

use std::collections::HashSet;

use crate::{AgentId, permission::Permissions, sandbox::Sandbox};

/// The agents of one configuration. Never empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Team {
    agents: Vec<Agent>,
    models: Vec<ModelSpec>,
    pub permissions: Permissions,
    /// `plans.on_approve`: who executes an approved plan. It routes, it never approves.
    pub on_approve: Option<AgentId>,
}

/// One agent: a model, what it is told, and what it may use.
#[derive(Clone, Debug, PartialEq)]
pub struct Agent {
    pub name: AgentId,
    pub description: String,
    pub instruction: String,
    /// The name of a [`ModelSpec`] of the team.
    pub model: String,
    pub toolsets: Vec<ToolsetSpec>,
    pub commands: Vec<Command>,
    /// Whom it may hand this session to.
    pub handoffs: Vec<AgentId>,
    /// Whom it may give a task, in a session of their own.
    pub sub_agents: Vec<AgentId>,
    /// `None` is not confined.
    pub sandbox: Option<Sandbox>,
    /// `subagents.allowAgents`: whom it may spawn besides itself; `*` is anybody.
    pub allow_agents: Vec<String>,
    pub limits: Limits,
}

/// A group of tools that an agent is given.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolsetSpec {
    pub kind: ToolsetKind,
    /// Only these of its tools; all when not given.
    pub tools: Option<Vec<String>>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ToolsetKind {
    SessionPlan,
    SessionContext,
    Sessions,
    Work,
    Filesystem { access: FileAccess },
    Shell { timeout_seconds: Option<u32> },
    UserPrompt,
    Mcp(McpServer),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAccess {
    ReadWrite,
    ReadOnly,
}

/// An outside MCP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum McpServer {
    Command { command: String, args: Vec<String>, env: Vec<(String, String)> },
    Url { url: String, headers: Vec<(String, String)> },
}

/// A word that begins a message with a slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    pub name: String,
    pub description: String,
    /// What the agent is told; `${args}` stands for the rest of the line.
    pub instruction: Option<String>,
    /// Whom the session is switched to.
    pub agent: Option<AgentId>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    /// How the configuration calls it; `provider/model` when it was given inline.
    pub name: String,
    pub provider: Provider,
    /// How the provider calls it; for `scripted`, the path of the script.
    pub model: String,
    pub base_url: Option<String>,
    /// The environment variable that holds the key.
    pub token_key: Option<String>,
    pub max_tokens: Option<u32>,
    pub temperature: Option<f64>,
    pub thinking: Thinking,
    /// How many tokens the model takes in; compaction begins before it is full.
    pub context_window: Option<u32>,
    pub price: Option<Price>,
}

impl ModelSpec {
    /// Returns how many tokens the model takes in, as far as anybody knows: what the
    /// configuration says, else what the provider's models of today have at least.
    pub fn window(&self) -> Option<u32> {
        self.context_window.or(match self.provider {
            Provider::Anthropic => Some(200_000),
            Provider::OpenAi(_) => Some(128_000),
            Provider::Scripted => None,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    OpenAi(OpenAiApi),
    Anthropic,
    /// Prepared replies from a file; always shown as such.
    Scripted,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OpenAiApi {
    #[default]
    Chat,
    Responses,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Thinking {
    /// Whatever the model does by itself.
    #[default]
    Unset,
    Off,
    Tokens(u32),
    Effort(Effort),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    Minimal,
    Low,
    Medium,
    High,
}

/// What a million tokens cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Price {
    pub input: f64,
    pub output: f64,
    pub cache_read: f64,
    pub cache_write: f64,
}

/// How far one run may go. `None` is no limit of the person's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// How often the model is asked.
    pub turns: u32,
    /// Tokens in and out, of all calls.
    pub tokens: Option<u64>,
    pub cost: Option<f64>,
    pub seconds: Option<u64>,
}

impl Limits {
    /// Enough for long work, and an end for a model that goes round in circles.
    pub const TURNS: u32 = 100;
}

impl Default for Limits {
    fn default() -> Self {
        Self { turns: Self::TURNS, tokens: None, cost: None, seconds: None }
    }
}

/// A name in the configuration that leads nowhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TeamError {
    #[error("there is no agent: `agents` is empty")]
    Empty,
    #[error("two agents are called \"{0}\"")]
    Twice(AgentId),
    #[error("{place} names the agent \"{name}\", which is not configured")]
    UnknownAgent { place: String, name: AgentId },
    #[error("agent \"{agent}\" uses the model \"{name}\", which is not configured")]
    UnknownModel { agent: AgentId, name: String },
    #[error("agent \"{agent}\" is its own sub-agent: {path}")]
    SubAgentCycle { agent: AgentId, path: String },
    #[error("{place} names \"{agent}\" itself")]
    Itself { place: String, agent: AgentId },
}

impl Team {
    pub fn new(
        agents: Vec<Agent>,
        models: Vec<ModelSpec>,
        permissions: Permissions,
        on_approve: Option<AgentId>,
    ) -> Result<Self, TeamError> {
        let team = Self { agents, models, permissions, on_approve };
        team.check()?;
        Ok(team)
    }

    /// Returns the agents in the order they were written.
    pub fn agents(&self) -> &[Agent] {
        &self.agents
    }

    pub fn agent(&self, name: &AgentId) -> Option<&Agent> {
        self.agents.iter().find(|agent| agent.name == *name)
    }

    /// Returns the agent that gets the first message: `root`, else the first.
    pub fn entry(&self) -> &Agent {
        let root = self.agents.iter().find(|agent| agent.name.as_str() == "root");
        root.unwrap_or(&self.agents[0])
    }

    pub fn model_of(&self, agent: &Agent) -> &ModelSpec {
        let model = self.models.iter().find(|model| model.name == agent.model);
        model.expect("a team is checked when it is made")
    }

    pub fn models(&self) -> &[ModelSpec] {
        &self.models
    }

    fn check(&self) -> Result<(), TeamError> {
        if self.agents.is_empty() {
            return Err(TeamError::Empty);
        }
        for (n, agent) in self.agents.iter().enumerate() {
            if self.agents[..n].iter().any(|other| other.name == agent.name) {
                return Err(TeamError::Twice(agent.name.clone()));
            }
            if !self.models.iter().any(|model| model.name == agent.model) {
                return Err(TeamError::UnknownModel { agent: agent.name.clone(), name: agent.model.clone() });
            }
            self.check_names(agent)?;
        }
        if let Some(name) = &self.on_approve {
            self.known("plans.on_approve", name)?;
        }
        let mut checked = HashSet::new();
        for agent in &self.agents {
            self.check_sub_agents(agent, &mut vec![&agent.name], &mut checked)?;
        }
        Ok(())
    }

    fn check_names(&self, agent: &Agent) -> Result<(), TeamError> {
        for (list, names) in [("handoffs", &agent.handoffs), ("sub_agents", &agent.sub_agents)] {
            let place = format!("agents.{}.{list}", agent.name);
            for name in names {
                if *name == agent.name {
                    return Err(TeamError::Itself { place, agent: name.clone() });
                }
                self.known(&place, name)?;
            }
        }
        for command in &agent.commands {
            if let Some(name) = &command.agent {
                self.known(&format!("agents.{}.commands.{}", agent.name, command.name), name)?;
            }
        }
        Ok(())
    }

    fn known(&self, place: &str, name: &AgentId) -> Result<(), TeamError> {
        match self.agent(name) {
            Some(_) => Ok(()),
            None => Err(TeamError::UnknownAgent { place: place.to_owned(), name: name.clone() }),
        }
    }

    /// Handoffs may go in circles, a conversation does; tasks within tasks must end.
    fn check_sub_agents<'a>(
        &'a self,
        agent: &'a Agent,
        above: &mut Vec<&'a AgentId>,
        checked: &mut HashSet<&'a AgentId>,
    ) -> Result<(), TeamError> {
        // Once for each agent: the ways down through a team can be many more than its agents.
        if !checked.insert(&agent.name) {
            return Ok(());
        }
        for name in &agent.sub_agents {
            if above.contains(&name) {
                let names: Vec<&str> = above.iter().copied().chain([name]).map(AgentId::as_str).collect();
                return Err(TeamError::SubAgentCycle { agent: name.clone(), path: names.join(" → ") });
            }
            if let Some(below) = self.agent(name) {
                above.push(name);
                self.check_sub_agents(below, above, checked)?;
                above.pop();
            }
        }
        Ok(())
    }
}
