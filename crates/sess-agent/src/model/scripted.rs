//! Prepared replies from a file, in place of a model: for demonstrations and tests.
//!
//! A script is a list of replies in YAML, or one reply a line in a file whose name
//! ends in `.jsonl`:
//!
//! ```yaml
//! - when: hello            # only if the last words to the agent contain this
//!   agent: planner         # only if this agent is asked
//!   thinking: …
//!   text: …
//!   tool_calls: [{name: write_session_plan, arguments: {content: …}}]
//!   delay_ms: 100          # before it begins
//! ```
//!
//! Each reply is given once, and the first that fits is given. Which ones were
//! given is worked out from the conversation alone: every earlier reply of a script
//! in it used up the first one that fitted at its place. So a session that is resumed by another
//! process goes on where it was, and a call that was cancelled before it said
//! anything has used nothing. What a compaction took out of view counts as not
//! given; scripts for such a session say `when`.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Map, Value};
use sess_core::agent::ModelSpec;
use sess_core::message::{Body, Role, Usage};
use tokio_util::sync::CancellationToken;

use super::draft::{Draft, Told};
use super::{Model, ModelError, Reply, Request};

/// What a script calls itself in transcripts.
const NAME: &str = "scripted";

/// The most bytes of a script.
const SCRIPT_BYTES_MAX: u64 = 4 << 20;

pub(super) struct Scripted {
    replies: Vec<Prepared>,
    spec: ModelSpec,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Prepared {
    when: Option<String>,
    agent: Option<String>,
    thinking: Option<String>,
    text: Option<String>,
    #[serde(default)]
    tool_calls: Vec<PreparedCall>,
    #[serde(default)]
    delay_ms: u64,
    #[serde(default)]
    usage: Usage,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PreparedCall {
    name: String,
    #[serde(default)]
    arguments: Map<String, Value>,
}

impl Scripted {
    pub(super) fn open(spec: &ModelSpec) -> Result<Self, ModelError> {
        let refused = |reason: String| {
            let path = &spec.model;
            ModelError::Refused(format!("the script {path} cannot be used: {reason}"))
        };
        let path = Path::new(&spec.model);
        let size = std::fs::metadata(path).map_err(|error| refused(error.to_string()))?.len();
        if size > SCRIPT_BYTES_MAX {
            return Err(refused(format!("it is over {} MiB", SCRIPT_BYTES_MAX >> 20)));
        }
        let text = std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
        let is_lines = path.extension().is_some_and(|extension| extension == "jsonl");
        let replies = parse(&text, is_lines).map_err(refused)?;
        let spec = ModelSpec { model: NAME.to_owned(), ..spec.clone() };
        Ok(Self { replies, spec })
    }

    /// Returns the reply for the end of this conversation.
    fn next(&self, request: &Request) -> Option<&Prepared> {
        let mut left: Vec<&Prepared> = self.replies.iter().collect();
        let mut heard = String::new();
        for body in &request.messages {
            match body.role {
                Role::User | Role::ToolResult => {
                    heard.push_str(&body.plain_text());
                    heard.push('\n');
                }
                Role::System => {}
                Role::Assistant => {
                    if is_own(body) {
                        let agent = body.agent_id.as_ref().map(sess_core::AgentId::as_str);
                        take(&mut left, &heard, agent);
                    }
                    heard.clear();
                }
            }
        }
        let agent = request.agent.as_ref().map(sess_core::AgentId::as_str);
        take(&mut left, &heard, agent)
    }
}

fn parse(text: &str, is_lines: bool) -> Result<Vec<Prepared>, String> {
    if !is_lines {
        return serde_saphyr::from_str(text).map_err(|error| error.to_string());
    }
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(n, line)| serde_json::from_str(line).map_err(|error| format!("line {}: {error}", n + 1)))
        .collect()
}

/// Says whether a script may have made this message. Another model's used up nothing.
fn is_own(body: &Body) -> bool {
    body.model.as_deref().is_none_or(|model| model == NAME)
}

fn take<'a>(left: &mut Vec<&'a Prepared>, heard: &str, agent: Option<&str>) -> Option<&'a Prepared> {
    let fits = |reply: &&Prepared| {
        reply.when.as_ref().is_none_or(|when| heard.contains(when.as_str()))
            && reply.agent.as_ref().is_none_or(|name| agent.is_none_or(|agent| agent == name))
    };
    let n = left.iter().position(fits)?;
    Some(left.remove(n))
}

#[async_trait]
impl Model for Scripted {
    async fn reply(
        &self,
        request: &Request,
        told: Told<'_>,
        cancel: &CancellationToken,
    ) -> Result<Reply, ModelError> {
        let next = self.next(request);
        let delay = Duration::from_millis(next.map_or(0, |prepared| prepared.delay_ms));
        let mut draft = Draft::default();
        let cancelled = tokio::select! {
            biased;
            () = cancel.cancelled() => true,
            () = tokio::time::sleep(delay) => false,
        };
        if cancelled {
            return Err(ModelError::Cancelled { partial: Box::new(draft.partial(request, &self.spec)) });
        }
        match next {
            Some(prepared) => play(prepared, &mut draft, told),
            None => draft.text("The script has no reply left for this.", told),
        }
        Ok(draft.finish(request, &self.spec))
    }
}

fn play(prepared: &Prepared, draft: &mut Draft, told: Told<'_>) {
    if let Some(thinking) = &prepared.thinking {
        draft.thinking(thinking, told);
    }
    // Word by word, as a model would.
    for word in prepared.text.iter().flat_map(|text| text.split_inclusive(' ')) {
        draft.text(word, told);
    }
    for call in &prepared.tool_calls {
        let place = draft.begin_call("", &call.name, told);
        draft.arguments(place, &Value::Object(call.arguments.clone()).to_string());
    }
    draft.usage = prepared.usage.clone();
}
