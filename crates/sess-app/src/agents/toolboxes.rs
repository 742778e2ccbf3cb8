//! Tools of our own, as an agent's toolboxes.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use sess_agent::tool::{ToolDef, ToolOutput, Toolbox};
use sess_core::{AgentId, agent::Agent, permission::Reach};
use tokio_util::sync::CancellationToken;

use super::{Person, Place, Question, person::Answer};
use crate::{
    App, Caller,
    tools::{self, ToolCall, Toolset},
};

/// The tools that every door serves, called as the agent's session.
pub(super) struct AppTools {
    pub(super) app: App,
    pub(super) caller: Caller,
    pub(super) toolset: Toolset,
    /// How many of the node's runs wait for other runs.
    pub(super) waiting: Arc<AtomicUsize>,
}

/// The tool that waits for another session's run.
const WAITS: &str = "sessions_send";

/// Counts a run that waits for another one.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[async_trait]
impl Toolbox for AppTools {
    async fn tools(&self) -> Vec<ToolDef> {
        let ours = tools::all().iter().filter(|tool| tool.toolset == self.toolset);
        let def = |tool: &tools::ToolInfo| ToolDef {
            name: tool.name.to_owned(),
            description: tool.description.to_owned(),
            input_schema: tool.input_schema.clone(),
            reach: match (tool.annotations.read_only, tool.toolset) {
                (true, _) => Reach::Harmless,
                // Others see what becomes of work sessions: they are in a repository that is shared.
                (false, Toolset::Work) => Reach::World,
                // These touch this store alone.
                (false, Toolset::SessionPlan | Toolset::SessionContext | Toolset::Sessions) => Reach::Own,
            },
        };
        ours.map(def).collect()
    }

    async fn call(
        &self,
        name: &str,
        arguments: Map<String, Value>,
        cancel: &CancellationToken,
    ) -> ToolOutput {
        let call =
            ToolCall { name: name.to_owned(), arguments: Value::Object(arguments), idempotency_key: None };
        let _waiting = (name == WAITS).then(|| Waiting::new(&self.waiting));
        // When the turn is stopped nobody waits any longer. That has to be recorded: what was sent goes
        // on, and its reply is to find this session.
        let caller = Caller { gone: cancel.clone(), ..self.caller.clone() };
        match self.app.call_tool(&caller, call).await {
            Some(answer) if answer.is_error => ToolOutput::error(answer.text),
            Some(answer) => ToolOutput::ok(answer.text),
            None => ToolOutput::error(format!("unknown tool \"{name}\"")),
        }
    }
}

/// `user_prompt`: a question to the person.
pub(super) struct UserPrompt {
    pub(super) person: Arc<dyn Person>,
    pub(super) place: Place,
}

#[async_trait]
impl Toolbox for UserPrompt {
    async fn tools(&self) -> Vec<ToolDef> {
        let schema = json!({
            "type": "object",
            "properties": {
                "message": { "type": "string", "description": "The question, as the person reads it." },
                "title": { "type": "string", "description": "A few words above it." },
                "schema": {
                    "type": "object",
                    "description": "A JSON Schema of the answer: an object with properties of type string, number, \
                        integer or boolean (an enum makes a choice), or one such type. Free text without it."
                }
            },
            "required": ["message"],
            "additionalProperties": false
        });
        vec![ToolDef {
            name: "user_prompt".to_owned(),
            description:
                "Ask the person a question and wait for the answer. Use it when you cannot go on without \
                knowing what they want. The answer is {\"action\": \"accept\", \"content\": …}, or \
                {\"action\": \"decline\"} when they do not want to say."
                    .to_owned(),
            input_schema: object(schema),
            reach: Reach::Own,
        }]
    }

    async fn call(&self, _: &str, arguments: Map<String, Value>, cancel: &CancellationToken) -> ToolOutput {
        let Some(message) = text(&arguments, "message") else {
            return ToolOutput::error("\"message\" must be a text that is not empty");
        };
        let schema = match arguments.get("schema") {
            None | Some(Value::Null) => None,
            Some(schema @ Value::Object(_)) => Some(schema.clone()),
            Some(_) => return ToolOutput::error("\"schema\" must be a JSON Schema, an object"),
        };
        let question = Question { title: text(&arguments, "title"), message, schema };
        let answered = tokio::select! {
            answered = self.person.answer(&self.place, &question) => answered,
            () = cancel.cancelled() => Err("the person stopped the turn".to_owned()),
        };
        match answered {
            Ok(Answer::Given(content)) => {
                ToolOutput::ok(json!({ "action": "accept", "content": content }).to_string())
            }
            Ok(Answer::Declined) => ToolOutput::ok(json!({ "action": "decline" }).to_string()),
            Err(reason) => ToolOutput::error(reason),
        }
    }
}

/// `handoff`: the session goes on with another agent, which sees all of it.
pub(super) struct Handoff {
    pub(super) to: Vec<Agent>,
}

#[async_trait]
impl Toolbox for Handoff {
    async fn tools(&self) -> Vec<ToolDef> {
        vec![ToolDef {
            name: "handoff".to_owned(),
            description: format!(
                "Hand this conversation over to another agent, which sees all of it and goes on in your place. \
                 The agents are:\n{}",
                described(&self.to)
            ),
            input_schema: object(json!({
                "type": "object",
                "properties": { "agent": { "type": "string", "enum": names(&self.to) } },
                "required": ["agent"],
                "additionalProperties": false
            })),
            reach: Reach::Own,
        }]
    }

    async fn call(&self, _: &str, arguments: Map<String, Value>, _: &CancellationToken) -> ToolOutput {
        match chosen(&self.to, &arguments) {
            Ok(agent) => {
                let mut output = ToolOutput::ok(format!("handed over to {agent}"));
                output.hand_off = Some(agent);
                output
            }
            Err(reason) => ToolOutput::error(reason),
        }
    }
}

pub(super) fn described(agents: &[Agent]) -> String {
    let line = |agent: &Agent| format!("- {}: {}", agent.name, agent.description.trim());
    agents.iter().map(line).collect::<Vec<_>>().join("\n")
}

pub(super) fn names(agents: &[Agent]) -> Vec<&str> {
    agents.iter().map(|agent| agent.name.as_str()).collect()
}

/// Returns the agent that a call names.
pub(super) fn chosen(agents: &[Agent], arguments: &Map<String, Value>) -> Result<AgentId, String> {
    let named = text(arguments, "agent").unwrap_or_default();
    let found = agents.iter().find(|agent| agent.name.as_str() == named);
    found.map(|agent| agent.name.clone()).ok_or_else(|| {
        format!("there is no agent \"{named}\" to give this to; the agents are: {}", names(agents).join(", "))
    })
}

pub(super) fn text(arguments: &Map<String, Value>, name: &str) -> Option<String> {
    let text = arguments.get(name)?.as_str()?;
    (!text.trim().is_empty()).then(|| text.to_owned())
}

pub(super) fn object(schema: Value) -> Map<String, Value> {
    match schema {
        Value::Object(schema) => schema,
        _ => unreachable!("a schema is written as an object"),
    }
}
