//! The frames of the WebSocket at `/ws`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

use crate::object;

/// The version of this protocol.
pub const PROTOCOL: u32 = 1;

/// A frame from the client.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RequestFrame {
    pub r#type: RequestType,
    /// The client's own name for the request, which the answer repeats.
    pub id: String,
    pub method: String,
    #[serde(default)]
    #[schemars(with = "Value")]
    pub params: Option<Box<RawValue>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RequestType {
    Req,
}

/// The answer to a request: `payload` when `ok`, else `error`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ResponseFrame {
    pub r#type: ResponseType,
    pub id: String,
    pub ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Value>")]
    pub payload: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<FrameError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ResponseType {
    Res,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FrameError {
    /// One of the error types of HTTP.
    pub code: crate::errors::ErrorType,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
}

/// Something that happened. `seq` rises by one with each event of a connection.
#[derive(Debug, Serialize, JsonSchema)]
pub struct EventFrame {
    pub r#type: EventType,
    pub event: String,
    #[schemars(with = "Value")]
    pub payload: Box<RawValue>,
    pub seq: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EventType {
    Event,
}

/// `connect`: the first request of every connection.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConnectParams {
    pub min_protocol: u32,
    pub max_protocol: u32,
    #[serde(deserialize_with = "object::strictly")]
    pub client: ClientInfo,
    /// The page has its cookie instead.
    #[serde(default, deserialize_with = "object::maybe")]
    pub auth: Option<Auth>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientInfo {
    pub id: String,
    pub version: String,
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Auth {
    pub token: String,
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Auth(***)")
    }
}

/// The answer to `connect`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelloOk {
    /// Always `hello-ok`.
    pub r#type: String,
    pub protocol: u32,
    pub server: ServerInfo,
    pub methods: Vec<String>,
    pub events: Vec<String>,
    pub policy: Policy,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ServerInfo {
    pub version: String,
}

/// What this connection may do, and how much of it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    pub scopes: Vec<crate::tokens::Scope>,
    /// Only sessions of this agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    pub max_frame_bytes: u64,
    pub max_subscriptions: u32,
    pub max_in_flight: u32,
    pub tick_seconds: u32,
}
