//! Host routing: commands that switch agents, and what becomes of a plan that was reviewed.

use sess_core::{
    AgentId, RunId,
    agent::{Agent, Command},
    plan::State,
    run::{Run, RunState},
    session::Session,
};
use sess_store::Store;

use super::Agents;
use crate::{Caller, PlanText, Result, Review};

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

    /// Returns the plan, when it waits for the person's review.
    pub async fn plan_to_review(&self, session: &Session) -> Result<Option<PlanText>> {
        let plan = self.app().store()?.plan(&session.id).await?;
        if plan.is_none_or(|plan| plan.state != State::Ready || plan.swept) {
            return Ok(None);
        }
        Ok(Some(self.app().plan_of(session).await?))
    }

    /// Returns what a person said about the plan, when nobody was told of it yet: the next turn begins with it.
    pub async fn reviewed(&self, session: &Session) -> Result<Option<Review>> {
        self.app().untold_review(self.team(), session).await
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

    /// As [`Agents::executed`], for a run that nobody here has asked for.
    pub(super) async fn executed_alone(&self, store: &dyn Store, run: &RunId) -> Result<()> {
        let Some(run) = store.run(run).await?.filter(|run| run.state == RunState::Done) else {
            return Ok(());
        };
        let Some(session) = store.session(&run.session).await? else { return Ok(()) };
        if self.app().is_executing(&session, &run.id).await? {
            let caller = self.caller_of(&session, &run, &run.agent, None);
            self.executed(&caller, &session, &run).await?;
        }
        Ok(())
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
