//! Who may see what. One function, asked by every tool and every door.

use std::fmt;

use crate::{
    AgentId, SessionKey,
    plan::Verdict,
    rules::{SessionRules, Visibility},
    session::Session,
};

/// Who asks.
#[derive(Clone, Debug)]
pub struct Viewer<'a> {
    pub standing: Standing,
    /// Only sessions of this agent are there for it.
    pub only: Option<&'a AgentId>,
    /// The key of the asking session, when it has one.
    pub key: Option<&'a SessionKey>,
    pub confinement: Confinement,
}

/// Whether a person or an agent is asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The person whose store this is.
    Owner,
    /// An agent, acting as a session.
    Agent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confinement {
    Free,
    Sandboxed,
}

/// `tools.context.visibility`: which sessions the context tools may show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContextVisibility {
    /// Only sessions of the caller's own agent.
    Agent,
    /// Every session of this store's owner.
    #[default]
    All,
}

/// What a viewer may see, once and for all sessions of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    All,
    /// Sessions whose key names this agent.
    Agent(AgentId),
    /// The viewer's own session and what it spawned, at any depth.
    Tree(SessionKey),
    Nothing,
}

/// Returns what the context tools may show this viewer.
pub fn context_scope(viewer: &Viewer<'_>, visibility: ContextVisibility) -> Scope {
    if viewer.standing == Standing::Owner {
        return viewer.only.map_or(Scope::All, |agent| Scope::Agent(agent.clone()));
    }
    match (viewer.confinement, visibility, viewer.key) {
        (Confinement::Sandboxed, _, Some(key)) => Scope::Tree(key.clone()),
        (Confinement::Free, ContextVisibility::All, _) => Scope::All,
        (Confinement::Free, ContextVisibility::Agent, Some(key)) => {
            key.agent().map_or(Scope::Nothing, Scope::Agent)
        }
        (_, _, None) => Scope::Nothing,
    }
}

impl Scope {
    /// Tells whether `session` is inside; `ancestors` are the keys above it.
    pub fn admits(&self, session: &Session, ancestors: &[SessionKey]) -> bool {
        match self {
            Self::All => true,
            Self::Agent(agent) => session.key.agent().as_ref() == Some(agent),
            Self::Tree(root) => session.key == *root || ancestors.contains(root),
            Self::Nothing => false,
        }
    }
}

/// What is done to another session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Status,
    History,
    Send,
}

/// Why a session is out of reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutOfReach {
    /// Only the own session is in reach.
    Own(Verb),
    /// Only the own session and what it spawned.
    Tree(Verb),
    /// Only sessions of the same agent.
    Agent(Verb),
    /// Other agents' sessions would be, if agents were allowed to reach each other.
    Disabled(Verb),
    /// They are, but not these two agents.
    Denied,
    /// The program was given the sessions of one agent only.
    Fenced,
}

impl std::error::Error for OutOfReach {}

impl fmt::Display for OutOfReach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = |verb: &Verb| match verb {
            Verb::Status => "Session status",
            Verb::History => "Session history",
            Verb::Send => "Session send",
        };
        match self {
            Self::Own(of) => write!(
                f,
                "{} visibility is restricted to the current session (tools.sessions.visibility=self).",
                verb(of)
            ),
            Self::Tree(of) => write!(
                f,
                "{} visibility is restricted to the current session tree (tools.sessions.visibility=tree).",
                verb(of)
            ),
            Self::Agent(of) => write!(
                f,
                "{} visibility is restricted. Set tools.sessions.visibility=all to allow cross-agent access.",
                verb(of)
            ),
            Self::Disabled(Verb::Send) => f.write_str(
                "Agent-to-agent messaging is disabled. Set tools.agentToAgent.enabled=true to allow cross-agent \
                 sends.",
            ),
            Self::Disabled(Verb::History | Verb::Status) => f.write_str(
                "Agent-to-agent history is disabled. Set tools.agentToAgent.enabled=true to allow cross-agent \
                 access.",
            ),
            Self::Denied => f.write_str("Agent-to-agent messaging denied by tools.agentToAgent.allow."),
            Self::Fenced => f.write_str("this token is for the sessions of one agent, and this is none of them"),
        }
    }
}

/// May `viewer` do this to the session that `target` leads to?
///
/// `is_below` tells whether the viewer's session spawned it, at any depth. Nothing but
/// keys is asked for, so a session that does not exist is answered for as one that does.
pub fn reach(
    viewer: &Viewer<'_>,
    target: &SessionKey,
    is_below: bool,
    verb: Verb,
    rules: &SessionRules,
) -> Result<(), OutOfReach> {
    if viewer.standing == Standing::Owner {
        let is_there = viewer.only.is_none_or(|only| target.agent().as_ref() == Some(only));
        return if is_there { Ok(()) } else { Err(OutOfReach::Fenced) };
    }
    let visibility = rules.visibility_of(viewer.confinement);
    let Some(own) = viewer.key else { return Err(OutOfReach::Own(verb)) };
    if own == target || (is_below && visibility >= Visibility::Tree) {
        return Ok(());
    }
    let (own, other) = (own.agent(), target.agent());
    let is_same_agent = own.is_some() && own == other;
    let agents = &rules.agent_to_agent;
    match visibility {
        // What would help is another setting than for the agent's own sessions; in a sandbox, none would.
        Visibility::Own | Visibility::Tree | Visibility::Agent
            if !is_same_agent && viewer.confinement == Confinement::Free =>
        {
            Err(OutOfReach::Agent(verb))
        }
        Visibility::Own => Err(OutOfReach::Own(verb)),
        Visibility::Tree => Err(OutOfReach::Tree(verb)),
        Visibility::Agent | Visibility::All if is_same_agent => Ok(()),
        Visibility::Agent | Visibility::All if !agents.is_enabled => Err(OutOfReach::Disabled(verb)),
        Visibility::Agent | Visibility::All if agents.admits(own.as_ref(), other.as_ref()) => Ok(()),
        Visibility::Agent | Visibility::All => Err(OutOfReach::Denied),
    }
}

/// May this caller say this about a plan?
///
/// Approval and changes are a person's: a peer's words are not the person's
/// consent. That a plan was carried out may be told by the agent that did it.
pub fn may_review(standing: Standing, verdict: Verdict) -> bool {
    match (standing, verdict) {
        (Standing::Owner, _) | (Standing::Agent, Verdict::Done) => true,
        (Standing::Agent, Verdict::Approve | Verdict::RequestChanges) => false,
    }
}

/// May this caller change sessions that are not its own turn: star, rename,
/// archive them, bring them in from files, or take them out unmasked?
pub fn may_manage_sessions(standing: Standing) -> bool {
    standing == Standing::Owner
}

#[cfg(test)]
mod tests;
