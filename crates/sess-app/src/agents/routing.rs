//! Host routing: commands that switch agents, and who executes an approved plan.

use sess_core::{
    AgentId,
    agent::{Agent, Command},
    message::{Body, Provenance, Role},
    plan::State,
    run::{Run, RunState},
    session::Session,
};
use sess_store::Span;

use super::{Agents, Request};
use crate::{Caller, PlanText, Result};

/// Where a note keeps which revision it tells of.
const APPROVED_REVISION: &str = "approvedRevision";
/// How far back the agent before the planner is looked for.
const LOOKED_BACK_LEN: usize = 500;

/// What a line of the person's means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A message for this agent.
    Say { agent: AgentId, text: String },
    /// Another agent is active from now on; nothing is said yet.
    Switch(AgentId),
}

impl Agents {
    /// Reads a line: a message, or one that begins with a command of the active agent's (or anybody's).
    pub fn read_line(&self, active: &Agent, line: &str) -> Line {
        let say = |agent: &AgentId, text: &str| Line::Say { agent: agent.clone(), text: text.to_owned() };
        let Some((word, rest)) = split_command(line) else { return say(&active.name, line) };
        let Some(command) = self.command(active, word) else { return say(&active.name, line) };
        let agent = command.agent.as_ref().unwrap_or(&active.name);
        match &command.instruction {
            Some(instruction) => say(agent, &with_args(instruction, rest)),
            None if rest.is_empty() => Line::Switch(agent.clone()),
            None => say(agent, rest),
        }
    }

    /// Returns the command that a word means to an agent: its own, else the first of that name.
    pub fn command(&self, active: &Agent, word: &str) -> Option<&Command> {
        let own = self.team().agent(&active.name);
        let all = own.into_iter().chain(self.team().agents());
        all.flat_map(|agent| &agent.commands).find(|command| command.name == word)
    }

    /// Returns who executes an approved plan.
    ///
    /// `plans.on_approve`, else the agent that was active before the planner,
    /// else the one the session was begun with, else the first.
    pub async fn executor(&self, session: &Session) -> Result<AgentId> {
        let team = self.team();
        if let Some(agent) = &team.on_approve {
            return Ok(agent.clone());
        }
        let planner = &self.planner(session).await?.unwrap_or_else(|| session.agent.clone());
        let page = self.app().store()?.messages(&session.id, Span::Last, LOOKED_BACK_LEN).await?;
        for message in page.messages.iter().rev() {
            let agent = message.parse()?.agent_id.filter(|agent| agent != planner);
            if let Some(agent) = agent.filter(|agent| team.agent(agent).is_some()) {
                return Ok(agent);
            }
        }
        let begun_with = session.key.agent().filter(|agent| agent != planner && team.agent(agent).is_some());
        Ok(begun_with.unwrap_or_else(|| team.entry().name.clone()))
    }

    /// Returns the agent that wrote the plan; what a person or another program added does not count.
    async fn planner(&self, session: &Session) -> Result<Option<AgentId>> {
        let log = self.app().store()?.plan_log(&session.id, LOOKED_BACK_LEN).await?;
        let mut agents = log.iter().rev().filter_map(|written| written.agent.parse().ok());
        Ok(agents.find(|agent| self.team().agent(agent).is_some()))
    }

    /// Returns the plan, when it waits for the person's review.
    pub async fn plan_to_review(&self, session: &Session) -> Result<Option<PlanText>> {
        let plan = self.app().store()?.plan(&session.id).await?;
        if plan.is_none_or(|plan| plan.state != State::Ready || plan.swept) {
            return Ok(None);
        }
        Ok(Some(self.app().plan_of(session).await?))
    }

    /// Returns the request that tells the executing agent of an approved plan, when there
    /// is one that it was not told of.
    pub async fn approved(&self, session: &Session) -> Result<Option<Request>> {
        let store = self.app().store()?;
        let Some(plan) = store.plan(&session.id).await? else { return Ok(None) };
        if plan.state != State::Approved {
            return Ok(None);
        }
        let page = store.messages(&session.id, Span::Last, LOOKED_BACK_LEN).await?;
        for message in &page.messages {
            let told = message.parse()?.extra.get(APPROVED_REVISION).and_then(serde_json::Value::as_u64);
            if told == Some(plan.revision) {
                return Ok(None);
            }
        }
        let text = format!(
            "The plan has been approved: revision {}. Read it with read_session_plan and carry it out.",
            plan.revision
        );
        let mut note = Body::text(Role::User, text, self.app().now());
        note.provenance = Some(Provenance::InternalSystem);
        note.extra.insert(APPROVED_REVISION.to_owned(), plan.revision.into());
        let agent = self.executor(session).await?;
        let session = session.clone().into();
        Ok(Some(Request {
            session,
            agent,
            text: String::new(),
            from: None,
            note: Some(note),
            idempotency_key: None,
        }))
    }

    /// Returns the request that tells the planner what the person wants changed.
    pub async fn changes_requested(&self, session: &Session, revision: u64, note: &str) -> Result<Request> {
        let planner = self.planner(session).await?.filter(|agent| self.team().agent(agent).is_some());
        let agent = planner.unwrap_or_else(|| session.agent.clone());
        let text = format!("The person asks for changes to plan revision {revision}: {note}");
        let session = session.clone().into();
        Ok(Request { session, agent, text, from: None, note: None, idempotency_key: None })
    }

    /// Calls an approved plan done, when the run that executed it ended well.
    pub async fn executed(&self, owner: &Caller, session: &Session, run: &Run) -> Result<bool> {
        let plan = self.app().store()?.plan(&session.id).await?;
        let is_approved = plan.is_some_and(|plan| plan.state == State::Approved);
        if run.state != RunState::Done || !is_approved {
            return Ok(false);
        }
        let review =
            crate::ReviewPlan { verdict: sess_core::plan::Verdict::Done, revision: None, note: None };
        self.app().review_plan(owner, session, review).await?;
        Ok(true)
    }
}

/// Splits `/word rest of the line`.
pub fn split_command(line: &str) -> Option<(&str, &str)> {
    let rest = line.trim().strip_prefix('/')?;
    let (word, rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    (!word.is_empty()).then(|| (word, rest.trim()))
}

fn with_args(instruction: &str, args: &str) -> String {
    if instruction.contains("${args}") {
        return instruction.replace("${args}", args).trim().to_owned();
    }
    format!("{}\n\n{args}", instruction.trim()).trim().to_owned()
}
