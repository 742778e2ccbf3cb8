//! What a turn needs, from the store and the person.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use sess_agent::{
    tool::{ToolDef, Toolbox},
    turn::{Cast, Host, HostError, News},
};
use sess_core::{
    AgentId, Timestamp,
    agent::{Agent, Limits, ToolsetKind},
    conversation::is_compaction,
    exchange::{Briefing, briefing},
    message::Body,
    permission::Permissions,
    redact::redact,
    run::{Errand, Run, Send as SendErrand},
    sandbox::Sandbox,
    session::Session,
    turn::{Call, Permit, Rules},
};
use sess_store::{Lease, Span};

use super::{
    Agents, Permission, Person, Place, WorldTools,
    executing::Attendance,
    task::Tasks,
    toolboxes::{AppTools, Handoff, UserPrompt},
};
use crate::{
    Error, Result,
    tools::{self, Toolset},
};

/// How many messages are read at a time, back to the newest compaction.
const PAGE_LEN: usize = 500;

pub(super) struct RunHost {
    agents: Agents,
    session: Session,
    run: Run,
    lease: Lease,
    depth: usize,
    active: Mutex<AgentId>,
    person: Arc<dyn Person>,
    waiting: Arc<AtomicUsize>,
    has_begun: AtomicBool,
}

impl RunHost {
    pub(super) async fn new(
        agents: Agents,
        session: Session,
        run: &Run,
        lease: Lease,
        attendance: &Attendance<'_>,
    ) -> Result<Self> {
        let depth = agents.app().ancestors(&session).await?.len();
        Ok(Self {
            agents,
            session,
            run: run.clone(),
            lease,
            depth,
            active: Mutex::new(run.agent.clone()),
            person: Arc::clone(&attendance.person),
            waiting: Arc::clone(&attendance.waiting),
            has_begun: AtomicBool::new(false),
        })
    }

    /// Makes the agent that was asked the active one.
    pub(super) async fn activate(&self, agent: &AgentId) -> Result<(), HostError> {
        if self.session.agent == *agent {
            return Ok(());
        }
        self.switch(agent).await
    }

    /// Tells whether the model was asked, or something recorded.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }

    fn place(&self) -> Place {
        let agent = self.active.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Place { session: self.session.id.clone(), run: self.run.id.clone(), agent, depth: self.depth }
    }

    async fn toolboxes(
        &self,
        agent: &Agent,
        sandbox: Option<&Sandbox>,
    ) -> Result<Vec<(ToolDef, Arc<dyn Toolbox>)>> {
        let mut tools: Vec<(ToolDef, Arc<dyn Toolbox>)> = Vec::new();
        let mut names = HashSet::new();
        let filter = match self.session.key.is_sub_agent() {
            true => Some(self.agents.app().configured()?.rules.sub_agent_tools.clone()),
            false => None,
        };
        let session_tools: Vec<&str> = match filter {
            Some(_) => {
                let all = tools::all().iter();
                all.filter(|tool| tool.toolset == Toolset::Sessions).map(|tool| tool.name).collect()
            }
            None => Vec::new(),
        };
        let mut offer = |found: Vec<ToolDef>, only: Option<&Vec<String>>, toolbox: &Arc<dyn Toolbox>| {
            for tool in found {
                let is_session_tool = session_tools.contains(&tool.name.as_str());
                let is_wanted = only.is_none_or(|only| only.contains(&tool.name))
                    && filter.as_ref().is_none_or(|filter| filter.admits(&tool.name, is_session_tool));
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
                depth: self.depth,
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
            let caller = self.agents.caller_of(&self.session, &self.run, &agent.name, sandbox);
            let waiting = Arc::clone(&self.waiting);
            Arc::new(AppTools { app: self.agents.app().clone(), caller, toolset, waiting })
        };
        Ok(match kind {
            ToolsetKind::SessionPlan => app_tools(Toolset::SessionPlan),
            ToolsetKind::SessionContext => app_tools(Toolset::SessionContext),
            ToolsetKind::Sessions => app_tools(Toolset::Sessions),
            ToolsetKind::Work => app_tools(Toolset::Work),
            ToolsetKind::UserPrompt => {
                Arc::new(UserPrompt { person: Arc::clone(&self.person), place: self.place() })
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
        let workspace = self.session.cwd.as_deref();
        let wanted = WorldTools { kind, session: &self.session.id, workspace, sandbox };
        (self.agents.inner.setup.open_tools)(&wanted).map_err(Error::Unavailable)
    }

    async fn system(&self, agent: &Agent) -> Result<String> {
        let mut system = agent.instruction.trim().to_owned();
        if let Some(cwd) = &self.session.cwd {
            system.push_str(&format!("\n\nThe working directory is {cwd}."));
        }
        let briefing = self.briefing().await?;
        if !briefing.is_empty() {
            system.push_str(&format!("\n\n{briefing}"));
        }
        Ok(system.trim().to_owned())
    }

    /// Returns what the agent is told about the message of this run.
    async fn briefing(&self) -> Result<String> {
        Ok(match &self.run.errand {
            Errand::Message => briefing(&Briefing::None),
            Errand::Send(send) => briefing(&Briefing::Sent { from: &send.requester, channel: send.channel }),
            Errand::Round(round) => {
                let first = self.exchange(&round.first).await?;
                let rounds_max = first.map_or(round.number, |(_, send)| send.rounds_max);
                briefing(&Briefing::Round { from: &round.from, number: round.number, rounds_max })
            }
            Errand::Announce(announce) => {
                let store = self.agents.app().store()?;
                let first = self.exchange(&announce.first).await?;
                let latest = store.run(&announce.latest).await?.and_then(|run| run.result);
                let (request, first_reply) = match first {
                    Some((run, send)) => (send.request, run.result.unwrap_or_default()),
                    None => Default::default(),
                };
                briefing(&Briefing::Announce {
                    channel: self.session.channel(),
                    request: &redact(&request).0,
                    first_reply: &redact(&first_reply).0,
                    latest_reply: &redact(&latest.unwrap_or_default()).0,
                })
            }
            Errand::LateReply { of } => {
                let store = self.agents.app().store()?;
                let from = match store.run(of).await? {
                    Some(run) => store.session(&run.session).await?,
                    None => None,
                };
                from.map_or_else(String::new, |from| briefing(&Briefing::LateReply { from: &from.key }))
            }
            Errand::Spawn(spawn) => briefing(&Briefing::Task {
                requester: spawn.requester.as_ref(),
                label: spawn.label.as_deref(),
            }),
            Errand::Report { child, .. } => briefing(&Briefing::Report { child }),
        })
    }

    /// Returns the run that began an exchange, and what was sent.
    async fn exchange(&self, first: &sess_core::RunId) -> Result<Option<(Run, SendErrand)>> {
        let first = self.agents.app().store()?.run(first).await?;
        Ok(first.and_then(|run| match run.errand.clone() {
            Errand::Send(send) => Some((run, send)),
            _ => None,
        }))
    }

    /// Returns how far the run may go: as far as its agent, and no longer than its task.
    fn limits(&self, agent: &Agent) -> Limits {
        let mut limits = agent.limits;
        if let Errand::Spawn(spawn) = &self.run.errand {
            limits.seconds = [limits.seconds, spawn.timeout_seconds].into_iter().flatten().min();
        }
        limits
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
        let sandbox =
            self.agents.app().sandbox(self.agents.team(), &self.session, agent).await.map_err(failed)?;
        let tools = self.toolboxes(agent, sandbox.as_ref()).await.map_err(failed)?;
        let spec = self.agents.model_spec(&self.session, agent).map_err(failed)?;
        let rules = Rules {
            permissions: self.permissions(),
            trust: self.agents.inner.setup.trust,
            asking: self.person.asking(),
            limits: self.limits(agent),
            context_window: spec.window(),
            tools: tools.iter().map(|(tool, _)| (tool.name.clone(), tool.reach)).collect(),
        };
        let model = self.agents.model(&spec).map_err(failed)?;
        let system = self.system(agent).await.map_err(failed)?;
        Ok(Cast { system, model, tools, rules })
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

    async fn begin(&self) -> Result<(), HostError> {
        self.has_begun.store(true, Ordering::Relaxed);
        let store = self.agents.app().store().map_err(failed)?;
        store.begin_run(&self.run.id, &self.lease).await.map_err(failed)
    }

    async fn record(&self, messages: Vec<Body>) -> Result<(), HostError> {
        self.has_begun.store(true, Ordering::Relaxed);
        let app = self.agents.app();
        let messages = messages.into_iter().map(|body| app.new_message(&self.run.id, body)).collect();
        let store = app.store().map_err(failed)?;
        store.append_in_run(&self.run.id, &self.lease, messages).await.map_err(failed)?;
        Ok(())
    }

    async fn switch(&self, agent: &AgentId) -> Result<(), HostError> {
        let store = self.agents.app().store().map_err(failed)?;
        let switched = store.hand_off_in_run(&self.run.id, &self.lease, agent.clone(), self.now()).await;
        switched.map_err(failed)
    }

    async fn permit(&self, call: &Call) -> Permit {
        match self.person.permit(&self.place(), call).await {
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
        self.person.tell(&self.place(), &news);
    }

    fn now(&self) -> Timestamp {
        self.agents.app().now()
    }
}
