//! What a turn needs, from the store and the person.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use sess_agent::{
    tool::{ToolDef, Toolbox},
    turn::{Cast, Host, HostError, News},
};
use sess_core::{
    AgentId, RunId, Timestamp,
    agent::{Agent, ToolsetKind},
    conversation::is_compaction,
    message::Body,
    permission::Permissions,
    run::Run,
    sandbox::Sandbox,
    session::Session,
    turn::{Call, Permit, Rules},
};
use sess_store::{Lease, Span};

use super::{
    Agents, Permission, Place, WorldTools,
    task::Tasks,
    toolboxes::{AppTools, Handoff, UserPrompt},
};
use crate::{Error, Result, tools::Toolset};

/// How many messages are read at a time, back to the newest compaction.
const PAGE_LEN: usize = 500;

pub(super) struct RunHost {
    agents: Agents,
    session: Session,
    run: RunId,
    lease: Lease,
    depth: usize,
    active: Mutex<AgentId>,
}

impl RunHost {
    pub(super) async fn new(agents: Agents, session: Session, run: &Run, lease: Lease) -> Result<Self> {
        let depth = agents.app().ancestors(&session).await?.len();
        let active = Mutex::new(run.agent.clone());
        Ok(Self { agents, session, run: run.id.clone(), lease, depth, active })
    }

    /// Makes the agent that was asked the active one.
    pub(super) async fn begin(&self, agent: &AgentId) -> Result<(), HostError> {
        if self.session.agent == *agent {
            return Ok(());
        }
        self.switch(agent).await
    }

    fn place(&self) -> Place {
        let agent = self.active.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Place { session: self.session.id.clone(), run: self.run.clone(), agent, depth: self.depth }
    }

    async fn toolboxes(
        &self,
        agent: &Agent,
        sandbox: Option<&Sandbox>,
    ) -> Result<Vec<(ToolDef, Arc<dyn Toolbox>)>> {
        let mut tools: Vec<(ToolDef, Arc<dyn Toolbox>)> = Vec::new();
        let mut names = HashSet::new();
        let mut offer = |found: Vec<ToolDef>, only: Option<&Vec<String>>, toolbox: &Arc<dyn Toolbox>| {
            for tool in found {
                let is_wanted = only.is_none_or(|only| only.contains(&tool.name));
                if is_wanted && names.insert(tool.name.clone()) {
                    tools.push((tool, Arc::clone(toolbox)));
                }
            }
        };
        for (n, toolset) in agent.toolsets.iter().enumerate() {
            let toolbox = self.toolbox(agent, n, &toolset.kind, sandbox)?;
            offer(toolbox.tools().await, toolset.tools.as_ref(), &toolbox);
        }
        let team = self.agents.team();
        let known =
            |names: &[AgentId]| names.iter().filter_map(|name| team.agent(name)).cloned().collect::<Vec<_>>();
        if !agent.handoffs.is_empty() {
            let toolbox: Arc<dyn Toolbox> = Arc::new(Handoff { to: known(&agent.handoffs) });
            offer(toolbox.tools().await, None, &toolbox);
        }
        if !agent.sub_agents.is_empty() {
            let toolbox: Arc<dyn Toolbox> = Arc::new(Tasks {
                agents: self.agents.clone(),
                session: self.session.clone(),
                run: self.run.clone(),
                lease: self.lease.clone(),
                to: known(&agent.sub_agents),
            });
            offer(toolbox.tools().await, None, &toolbox);
        }
        Ok(tools)
    }

    fn toolbox(
        &self,
        agent: &Agent,
        n: usize,
        kind: &ToolsetKind,
        sandbox: Option<&Sandbox>,
    ) -> Result<Arc<dyn Toolbox>> {
        let app_tools = |toolset: Toolset| -> Arc<dyn Toolbox> {
            let caller = self.agents.caller_of(&self.session, &agent.name, sandbox);
            Arc::new(AppTools { app: self.agents.app().clone(), caller, toolset })
        };
        Ok(match kind {
            ToolsetKind::SessionPlan => app_tools(Toolset::SessionPlan),
            ToolsetKind::SessionContext => app_tools(Toolset::SessionContext),
            ToolsetKind::Sessions => app_tools(Toolset::Sessions),
            ToolsetKind::UserPrompt => {
                Arc::new(UserPrompt { person: Arc::clone(self.agents.person()), place: self.place() })
            }
            // An outside server is started once in a session, and lives on between turns.
            ToolsetKind::Mcp(_) if sandbox.is_none() => {
                let place = (self.session.id.clone(), agent.name.clone(), n);
                let mut kept = self.agents.inner.toolboxes.lock().unwrap_or_else(PoisonError::into_inner);
                match kept.get(&place) {
                    Some(toolbox) => Arc::clone(toolbox),
                    None => {
                        let opened = self.open(kind, sandbox)?;
                        kept.insert(place, Arc::clone(&opened));
                        opened
                    }
                }
            }
            ToolsetKind::Filesystem { .. } | ToolsetKind::Shell { .. } | ToolsetKind::Mcp(_) => {
                self.open(kind, sandbox)?
            }
        })
    }

    fn open(&self, kind: &ToolsetKind, sandbox: Option<&Sandbox>) -> Result<Arc<dyn Toolbox>> {
        let wanted = WorldTools { kind, session: &self.session.id, sandbox };
        (self.agents.inner.setup.open_tools)(&wanted).map_err(Error::Unavailable)
    }

    fn system(&self, agent: &Agent) -> String {
        let mut system = agent.instruction.trim().to_owned();
        if let Some(cwd) = &self.session.cwd {
            system.push_str(&format!("\n\nThe working directory is {cwd}."));
        }
        system.trim().to_owned()
    }

    fn permissions(&self) -> Permissions {
        let mut permissions = self.agents.team().permissions.clone();
        let allowed = self.agents.inner.allowed.lock().unwrap_or_else(PoisonError::into_inner);
        permissions.always.extend(allowed.iter().cloned());
        permissions
    }
}

fn failed(error: impl std::fmt::Display) -> HostError {
    HostError(error.to_string())
}

#[async_trait]
impl Host for RunHost {
    async fn cast(&self, agent: &AgentId) -> Result<Cast, HostError> {
        let Some(agent) = self.agents.team().agent(agent) else {
            return Err(HostError(format!("there is no agent \"{agent}\" in this configuration")));
        };
        *self.active.lock().unwrap_or_else(PoisonError::into_inner) = agent.name.clone();
        let sandbox = self.agents.sandbox(&self.session, agent).await.map_err(failed)?;
        let tools = self.toolboxes(agent, sandbox.as_ref()).await.map_err(failed)?;
        let rules = Rules {
            permissions: self.permissions(),
            trust: self.agents.inner.setup.trust,
            asking: self.agents.person().asking(),
            limits: agent.limits,
            context_window: self.agents.team().model_of(agent).window(),
            tools: tools.iter().map(|(tool, _)| (tool.name.clone(), tool.reach)).collect(),
        };
        let model = self.agents.model(agent).map_err(failed)?;
        Ok(Cast { system: self.system(agent), model, tools, rules })
    }

    async fn transcript(&self) -> Result<Vec<Body>, HostError> {
        let store = self.agents.app().store().map_err(failed)?;
        let mut newest_first: Vec<Body> = Vec::new();
        let mut span = Span::Last;
        loop {
            let page = store.messages(&self.session.id, span, PAGE_LEN).await.map_err(failed)?;
            let Some(oldest) = page.messages.first().map(|message| message.seq) else { break };
            for message in page.messages.iter().rev() {
                let body = message.parse().map_err(failed)?;
                newest_first.push(body);
                if newest_first.last().is_some_and(is_compaction) {
                    newest_first.reverse();
                    return Ok(newest_first);
                }
            }
            span = Span::Before(oldest);
        }
        newest_first.reverse();
        Ok(newest_first)
    }

    async fn record(&self, messages: Vec<Body>) -> Result<(), HostError> {
        let app = self.agents.app();
        let messages = messages.into_iter().map(|body| app.new_message(&self.run, body)).collect();
        let store = app.store().map_err(failed)?;
        store.append_in_run(&self.run, &self.lease, messages).await.map_err(failed)?;
        Ok(())
    }

    async fn switch(&self, agent: &AgentId) -> Result<(), HostError> {
        let store = self.agents.app().store().map_err(failed)?;
        let switched = store.hand_off_in_run(&self.run, &self.lease, agent.clone(), self.now()).await;
        switched.map_err(failed)
    }

    async fn permit(&self, call: &Call) -> Permit {
        match self.agents.person().permit(&self.place(), call).await {
            Permission::Once => Permit::Granted,
            Permission::Always => {
                let mut allowed = self.agents.inner.allowed.lock().unwrap_or_else(PoisonError::into_inner);
                allowed.push(call.name.clone());
                Permit::Always
            }
            Permission::No(reason) => Permit::Refused(reason),
        }
    }

    fn tell(&self, news: News) {
        self.agents.person().tell(&self.place(), &news);
    }

    fn now(&self) -> Timestamp {
        self.agents.app().now()
    }
}
