//! The person at the other end, as far as a run can see.

use async_trait::async_trait;
use serde_json::Value;
use sess_agent::turn::News;
use sess_core::{
    AgentId, RunId, SessionId,
    turn::{Asking, Call},
};

/// Whoever looks on, is asked and answers: a terminal, a program, or nobody.
///
/// Who only looks on cannot be asked: what is said then stands here.
#[async_trait]
pub trait Person: Send + Sync {
    fn asking(&self) -> Asking {
        Asking::Nobody
    }

    /// Asks whether a tool may act. Dropped when the turn is stopped.
    async fn permit(&self, _: &Place, _: &Call) -> Permission {
        Permission::No("nobody is there to be asked".to_owned())
    }

    /// Asks a question of the agent's. Dropped when the turn is stopped.
    async fn answer(&self, _: &Place, _: &Question) -> Result<Answer, String> {
        Err("nobody is there to be asked: go on without an answer, or say what you would need to know"
            .to_owned())
    }

    fn tell(&self, place: &Place, news: &News);
}

/// Where something happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub session: SessionId,
    pub run: RunId,
    pub agent: AgentId,
    /// How many tasks deep: 0 is the conversation itself.
    pub depth: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permission {
    Once,
    /// This tool, until the process ends.
    Always,
    /// Not now, with what to do instead.
    No(String),
}

/// A question with the shape of its answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    pub title: Option<String>,
    pub message: String,
    /// A JSON Schema; a free text when not given.
    pub schema: Option<Value>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Given(Value),
    /// The person does not want to say.
    Declined,
}

/// Nobody is there: nothing is asked, nothing is told.
pub struct Nobody;

impl Person for Nobody {
    fn tell(&self, _: &Place, _: &News) {}
}
