//! A model with a stub behind it, and its replies as text.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use sess_agent::model::{Endpoint, Model, ModelError, Patience, Piece, Reply, Request, Secret, open_with};
use sess_agent::tool::ToolDef;
use sess_core::Timestamp;
use sess_core::agent::{ModelSpec, OpenAiApi, Provider, Thinking};
use sess_core::message::{Block, Body, Role};
use sess_core::permission::Reach;
use stub_models::{Script, Stub};
use tokio_util::sync::CancellationToken;

pub const APIS: [Provider; 3] =
    [Provider::Anthropic, Provider::OpenAi(OpenAiApi::Chat), Provider::OpenAi(OpenAiApi::Responses)];

pub fn spec(provider: Provider) -> ModelSpec {
    ModelSpec {
        name: "test".to_owned(),
        provider,
        model: "stub-1".to_owned(),
        base_url: None,
        token_key: None,
        max_tokens: None,
        temperature: None,
        thinking: Thinking::Unset,
        context_window: None,
        price: None,
    }
}

/// Waits little between tries, and long for answers: a slow machine is no fault.
pub fn quick() -> Patience {
    Patience {
        first_wait: Duration::from_millis(1),
        first_byte: Duration::from_secs(60),
        idle: Duration::from_secs(60),
        ..Patience::default()
    }
}

pub fn endpoint(stub: &Stub, provider: Provider) -> Endpoint {
    let base_url = match provider {
        Provider::OpenAi(_) => format!("{}/v1", stub.url),
        Provider::Anthropic | Provider::Scripted => stub.url.clone(),
    };
    Endpoint { base_url: Some(base_url), token: Some(Secret::new("sk-very-secret")) }
}

pub fn model_with(stub: &Stub, spec: &ModelSpec, patience: Patience) -> Arc<dyn Model> {
    open_with(spec, endpoint(stub, spec.provider), patience).expect("a model")
}

pub fn model(stub: &Stub, provider: Provider) -> Arc<dyn Model> {
    model_with(stub, &spec(provider), quick())
}

pub async fn stub(yaml: &str) -> Stub {
    Stub::start(Script::parse(yaml).expect(yaml)).await.expect("a port")
}

pub fn body(role: Role, content: &Value) -> Body {
    let json = json!({"role": role, "content": content, "timestamp": 7});
    serde_json::from_value(json).expect("a message")
}

pub fn user(text: &str) -> Body {
    Body::text(Role::User, text, Timestamp::default())
}

pub fn result(id: &str, text: &str) -> Body {
    let mut body = Body::text(Role::ToolResult, text, Timestamp::default());
    body.tool_call_id = Some(id.to_owned());
    body.tool_name = Some("list".to_owned());
    body
}

/// Returns the reply as the host would record it.
pub fn assistant(reply: &Reply) -> Body {
    let mut body = Body::text(Role::Assistant, "", Timestamp::default());
    body.content = reply.content.clone();
    body.model = Some(reply.model.clone());
    body
}

pub fn request(messages: Vec<Body>) -> Request {
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    let tool = ToolDef {
        name: "list".to_owned(),
        description: "Lists a directory.".to_owned(),
        input_schema: schema.as_object().cloned().unwrap_or_else(Map::new),
        reach: Reach::Harmless,
    };
    Request { system: "Be brief.".to_owned(), messages, tools: vec![tool], agent: None }
}

pub async fn ask(model: &Arc<dyn Model>, messages: Vec<Body>) -> (Result<Reply, ModelError>, Vec<Piece>) {
    let mut pieces = Vec::new();
    let cancel = CancellationToken::new();
    let reply = model.reply(&request(messages), &mut |piece| pieces.push(piece), &cancel).await;
    (reply, pieces)
}

/// Asks one question and returns what came of it as text.
pub async fn told(stub: &Stub, provider: Provider) -> String {
    outcome(&ask(&model(stub, provider), vec![user("go")]).await.0)
}

pub fn outcome(result: &Result<Reply, ModelError>) -> String {
    match result {
        Ok(reply) => format!("{} [{}]", shown(reply), reply.stop.as_str()),
        Err(ModelError::Refused(why)) => format!("refused: {why}"),
        Err(ModelError::TooLong(why)) => format!("too long: {why}"),
        Err(ModelError::Unavailable { reason, partial }) => {
            format!("unavailable: {reason} ({})", shown(partial))
        }
        Err(ModelError::Cancelled { partial }) => format!("cancelled ({})", shown(partial)),
    }
}

pub fn shown(reply: &Reply) -> String {
    let parts = reply.content.iter().map(|block| match block {
        Block::Text { text } => format!("“{text}”"),
        Block::Thinking { text, signature } => {
            format!("({text}{})", if signature.is_some() { ", signed" } else { "" })
        }
        Block::ToolCall { name, arguments, .. } => format!("{name}{}", Value::Object(arguments.clone())),
        Block::Other(block) => format!("<{}>", block["type"].as_str().unwrap_or("?")),
        Block::Image { .. } | Block::SubSession { .. } | Block::Compaction { .. } => "?".to_owned(),
    });
    parts.collect::<Vec<_>>().join(" ")
}

/// Returns the text that the pieces after the last retry add up to.
pub fn heard(pieces: &[Piece]) -> String {
    let mut text = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(part) => text.push_str(part),
            Piece::Retry { .. } => text.clear(),
            Piece::Thinking(_) | Piece::ToolCall { .. } => {}
        }
    }
    text
}

pub fn retries(pieces: &[Piece]) -> usize {
    pieces.iter().filter(|piece| matches!(piece, Piece::Retry { .. })).count()
}
