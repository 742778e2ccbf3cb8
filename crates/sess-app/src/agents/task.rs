//! `transfer_task`: another agent does a part of the work, in a session of its own.

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use sess_agent::tool::{ToolDef, ToolOutput, Toolbox};
use sess_core::{
    SessionKey, Source,
    agent::Agent,
    message::{Block, Body, Provenance, Role},
    permission::Reach,
    run::{Run, RunState},
    session::{NewSession, Session},
};
use sess_store::Lease;
use tokio_util::sync::CancellationToken;

use super::{
    Agents, Request,
    toolboxes::{chosen, described, names, object, text},
};
use crate::{Redaction, Result, runs::shown};

pub(super) struct Tasks {
    pub(super) agents: Agents,
    pub(super) session: Session,
    pub(super) run: Run,
    /// How many sessions are above.
    pub(super) depth: usize,
    pub(super) lease: Lease,
    pub(super) to: Vec<Agent>,
}

#[async_trait]
impl Toolbox for Tasks {
    async fn tools(&self) -> Vec<ToolDef> {
        vec![ToolDef {
            name: "transfer_task".to_owned(),
            description: format!(
                "Give a task to another agent, which works on it in a session of its own and sees nothing of this \
                 conversation: tell it all it has to know. Its answer is this call's result. The agents are:\n{}",
                described(&self.to)
            ),
            input_schema: object(json!({
                "type": "object",
                "properties": {
                    "agent": { "type": "string", "enum": names(&self.to) },
                    "task": { "type": "string", "description": "What to do, and all there is to know about it." },
                    "expected_output": { "type": "string", "description": "What the answer should look like." }
                },
                "required": ["agent", "task"],
                "additionalProperties": false
            })),
            // What the other agent does is asked about when it does it.
            reach: Reach::Harmless,
        }]
    }

    async fn call(&self, _: &str, arguments: Map<String, Value>, cancel: &CancellationToken) -> ToolOutput {
        let agent = match chosen(&self.to, &arguments) {
            Ok(agent) => agent,
            Err(reason) => return ToolOutput::error(reason),
        };
        let Some(task) = text(&arguments, "task") else {
            return ToolOutput::error("\"task\" must be a text that is not empty");
        };
        let task = match text(&arguments, "expected_output") {
            Some(expected) => format!("{task}\n\nExpected output:\n{expected}"),
            None => task,
        };
        match self.transfer(agent, task, cancel).await {
            Ok(output) => output,
            Err(error) => ToolOutput::error(error.to_string()),
        }
    }
}

impl Tasks {
    async fn transfer(
        &self,
        agent: sess_core::AgentId,
        task: String,
        cancel: &CancellationToken,
    ) -> Result<ToolOutput> {
        let app = self.agents.app();
        let most = app.configured()?.rules.limits.depth;
        if self.depth + 1 > most as usize {
            return Ok(ToolOutput::error(format!(
                "this task is {} sessions deep, of at most {most}: do the work yourself",
                self.depth
            )));
        }
        let mut session = NewSession::chat(sess_core::id::uuid(app.random()), Source::Native, app.now());
        session.key = SessionKey::sub_agent(&agent, &session.id);
        session.agent = agent.clone();
        session.parent = Some(self.session.key.clone());
        session.cwd.clone_from(&self.session.cwd);
        let store = app.store()?;
        let id = session.id.clone();
        // The session first: a mark must lead somewhere.
        store.ensure_session(session.clone()).await?;
        let mut mark = Body::text(Role::System, "", app.now());
        mark.content = vec![Block::SubSession { session_id: id.clone() }];
        store.append_in_run(&self.run.id, &self.lease, vec![app.new_message(&self.run.id, mark)]).await?;
        let mut note = Body::text(Role::User, task, app.now());
        note.provenance = Some(Provenance::InterSession {
            source_session_key: self.session.key.clone(),
            source_channel: None,
            source_tool: Some("transfer_task".to_owned()),
        });
        let request = Request {
            session,
            agent: agent.clone(),
            text: String::new(),
            from: None,
            note: Some(note),
            idempotency_key: None,
        };
        // A task may hold tasks: the future would contain itself.
        let finished = Box::pin(self.agents.say_below(request, Some(&self.run), cancel, |_| {})).await;
        self.agents.close_toolboxes(&id);
        // Another session's words, and so masked as in its history.
        let run = shown(finished?, Redaction::Masked);
        let result = run.result.unwrap_or_default();
        Ok(match run.state {
            RunState::Done if result.trim().is_empty() => {
                ToolOutput::ok(format!("{agent} is done and said nothing"))
            }
            RunState::Done => ToolOutput::ok(result),
            state => {
                let error = run.error.unwrap_or_else(|| state.to_string());
                ToolOutput::error(format!("{agent} did not finish ({error}); what it said last: {result}"))
            }
        })
    }
}
