//! What a person said about a plan, on its way to whoever works next in its session.

use sess_core::{
    AgentId,
    agent::Team,
    message::{Body, Provenance, Role},
    plan::State,
    session::{NewSession, Runner, Session},
};
use sess_store::{Happening, NewRun, Span};

use crate::{App, Result};

/// Where a note keeps which revision was approved.
const APPROVED_REVISION: &str = "approvedRevision";
/// Where a note keeps which request for changes it tells of: its place in the order of everything.
const CHANGES_REQUESTED: &str = "changesRequested";
/// How far back the agent before the planner, and a note, are looked for.
const LOOKED_BACK_LEN: usize = 500;

/// A review that nobody was told of yet.
#[derive(Clone, Debug)]
pub struct Review {
    /// Who is to be told: whoever executes the plan, or the planner.
    pub agent: AgentId,
    /// What begins its next turn.
    pub note: Body,
    pub is_approval: bool,
}

impl App {
    /// Returns the review that the next turn in a session begins with, if it was not told yet.
    pub(crate) async fn untold_review(&self, team: &Team, session: &Session) -> Result<Option<Review>> {
        let store = self.store()?;
        let Some(plan) = store.plan(&session.id).await? else { return Ok(None) };
        let is_approval = match plan.state {
            State::Approved => true,
            State::ChangesRequested => false,
            State::Draft | State::Ready | State::Done => return Ok(None),
        };
        let Some(change) = store.plan_change(&session.id).await? else { return Ok(None) };
        let (field, mark) = match is_approval {
            true => (APPROVED_REVISION, plan.revision),
            false => (CHANGES_REQUESTED, change.position.0),
        };
        let page = store.messages(&session.id, Span::Last, LOOKED_BACK_LEN).await?;
        for message in &page.messages {
            if message.parse()?.extra.get(field).and_then(serde_json::Value::as_u64) == Some(mark) {
                return Ok(None);
            }
        }
        let said = match change.what {
            Happening::PlanState { note, .. } => note.filter(|note| !note.trim().is_empty()),
            _ => None,
        };
        let said = said.map(|note| format!(": {}", note.trim()));
        let revision = plan.revision;
        let (text, provenance, agent) = if is_approval {
            let said = said.map(|said| format!(" The person says{said}")).unwrap_or_default();
            let text = format!(
                "The plan has been approved: revision {revision}. Read it with read_session_plan and carry it \
                 out.{said}"
            );
            (text, Provenance::InternalSystem, self.executor(team, session).await?)
        } else {
            let said = said.unwrap_or_else(|| ".".to_owned());
            let text = format!("The person asks for changes to plan revision {revision}{said}");
            let planner = self.planner(team, session).await?;
            // The words are the person's.
            (text, Provenance::ExternalUser, planner.unwrap_or_else(|| session.agent.clone()))
        };
        let mut note = Body::text(Role::User, text, self.now());
        note.provenance = Some(provenance);
        note.extra.insert(field.to_owned(), mark.into());
        Ok(Some(Review { agent, note, is_approval }))
    }

    /// Lets a run of a session begin with the review that it was not told of, and go to whom that is for.
    pub(crate) async fn tell_review(
        &self,
        team: Option<&Team>,
        target: &NewSession,
        run: &mut NewRun,
    ) -> Result<()> {
        // A session that another program runs is told by that program.
        let Some(team) = team.filter(|_| target.facts.runner == Runner::Here) else { return Ok(()) };
        let Some(session) = self.stored_session(&target.id).await? else { return Ok(()) };
        if let Some(review) = self.untold_review(team, &session).await? {
            run.agent = review.agent;
            run.messages.insert(0, self.new_message(&run.id, review.note));
        }
        Ok(())
    }

    /// Tells whether a run of a session was told that its plan is approved, as it stands now.
    pub(crate) async fn is_executing(&self, session: &Session, run: &sess_core::RunId) -> Result<bool> {
        let store = self.store()?;
        let plan = store.plan(&session.id).await?;
        let Some(plan) = plan.filter(|plan| plan.state == State::Approved) else { return Ok(false) };
        let page = store.messages(&session.id, Span::Last, LOOKED_BACK_LEN).await?;
        for message in &page.messages {
            let body = message.parse()?;
            let told = body.extra.get(APPROVED_REVISION).and_then(serde_json::Value::as_u64);
            if told == Some(plan.revision) && body.run_id.as_deref() == Some(run.as_str()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns who executes an approved plan.
    ///
    /// `plans.on_approve`, else the agent that was active before the planner,
    /// else the one the session was begun with, else the first.
    async fn executor(&self, team: &Team, session: &Session) -> Result<AgentId> {
        if let Some(agent) = &team.on_approve {
            return Ok(agent.clone());
        }
        let planner = &self.planner(team, session).await?.unwrap_or_else(|| session.agent.clone());
        let page = self.store()?.messages(&session.id, Span::Last, LOOKED_BACK_LEN).await?;
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
    async fn planner(&self, team: &Team, session: &Session) -> Result<Option<AgentId>> {
        let log = self.store()?.plan_log(&session.id, LOOKED_BACK_LEN).await?;
        let mut agents = log.iter().rev().filter_map(|written| written.agent.parse().ok());
        Ok(agents.find(|agent| team.agent(agent).is_some()))
    }
}
