//! The tools that agents can call, each written once.
//!
//! The MCP door and `sess tool call` serve this one list. A tool is a name, a
//! description for the model, typed arguments and a typed answer; the schemas
//! come from the types.

mod agents_list;
mod exit_plan_mode;
mod list_sessions;
mod read_compacted;
mod read_session;
mod read_session_plan;
mod search_sessions;
mod sessions_history;
mod sessions_inbox;
mod sessions_list;
mod sessions_reply;
mod sessions_send;
mod sessions_spawn;
mod work_claim;
mod work_finish;
mod work_list;
mod work_note;
mod work_status;
mod write_session_plan;

use std::{fmt, str::FromStr, sync::LazyLock};

use async_trait::async_trait;
use schemars::{JsonSchema, Schema, generate::SchemaSettings};
use serde::{
    Deserialize as _, Deserializer, Serialize,
    de::{DeserializeOwned, Error as _},
};
use serde_json::{Map, Number, Value, json};

use crate::{App, Caller, Error, Kind, Result};

/// A named group of tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Toolset {
    SessionPlan,
    SessionContext,
    Sessions,
    /// Work sessions of the repository around the caller.
    Work,
}

impl Toolset {
    pub const ALL: [Self; 4] = [Self::SessionPlan, Self::SessionContext, Self::Sessions, Self::Work];
    /// What is served wherever the caller is: it needs no repository.
    pub const ANYWHERE: [Self; 3] = [Self::SessionPlan, Self::SessionContext, Self::Sessions];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::SessionPlan => "session_plan",
            Self::SessionContext => "session_context",
            Self::Sessions => "sessions",
            Self::Work => "work",
        }
    }
}

impl fmt::Display for Toolset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A name that is no toolset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown toolset \"{0}\": one of session_plan, session_context, sessions, work")]
pub struct UnknownToolset(pub String);

impl FromStr for Toolset {
    type Err = UnknownToolset;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        let named = Self::ALL.into_iter().find(|toolset| toolset.as_str() == text.trim());
        named.ok_or_else(|| UnknownToolset(text.to_owned()))
    }
}

/// What a host may assume about a tool before it calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Annotations {
    pub read_only: bool,
    pub destructive: bool,
    pub idempotent: bool,
    pub open_world: bool,
}

impl Annotations {
    const READ_ONLY: Self = Self { read_only: true, destructive: false, idempotent: true, open_world: false };
    /// Changes our own data only, and twice is the same as once.
    const RECORDS: Self = Self { read_only: false, destructive: false, idempotent: true, open_world: false };
    /// Makes something new each time.
    const ACTS: Self = Self { read_only: false, destructive: false, idempotent: false, open_world: false };
}

/// What is told about a tool.
#[derive(Clone, Debug)]
pub struct ToolInfo {
    pub name: &'static str,
    pub title: &'static str,
    pub description: &'static str,
    pub toolset: Toolset,
    pub input_schema: Map<String, Value>,
    pub output_schema: Map<String, Value>,
    pub annotations: Annotations,
}

/// One call, as it came through a door.
#[derive(Clone, Debug)]
pub struct ToolCall {
    pub name: String,
    /// Whatever JSON came; null when there was none.
    pub arguments: Value,
    /// A retry with the same key acts once and gets the first answer.
    pub idempotency_key: Option<String>,
}

/// What a tool answers: text for the model, and the same as data.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolAnswer {
    pub text: String,
    pub structured: Option<Value>,
    pub is_error: bool,
}

/// A tool, written for whoever adds one.
#[async_trait]
trait Tool {
    const NAME: &'static str;
    const TITLE: &'static str;
    const DESCRIPTION: &'static str;
    const TOOLSET: Toolset;
    const ANNOTATIONS: Annotations;
    type Args: DeserializeOwned + JsonSchema + Send;
    type Output: Serialize + JsonSchema;

    /// Does it; returns the text for the model and the data behind it.
    async fn call(
        app: &App,
        caller: &Caller,
        args: Self::Args,
        key: Option<String>,
    ) -> Result<(String, Self::Output)>;
}

/// Names every tool, in the order they are listed.
macro_rules! for_each_tool {
    ($do:ident) => {
        $do!(write_session_plan::WriteSessionPlan);
        $do!(read_session_plan::ReadSessionPlan);
        $do!(exit_plan_mode::ExitPlanMode);
        $do!(list_sessions::ListSessionsTool);
        $do!(read_session::ReadSessionTool);
        $do!(search_sessions::SearchSessionsTool);
        $do!(read_compacted::ReadCompactedTool);
        $do!(sessions_list::SessionsList);
        $do!(sessions_history::SessionsHistory);
        $do!(sessions_send::SessionsSend);
        $do!(sessions_spawn::SessionsSpawn);
        $do!(agents_list::AgentsList);
        $do!(sessions_inbox::SessionsInbox);
        $do!(sessions_reply::SessionsReply);
        $do!(work_list::WorkList);
        $do!(work_claim::WorkClaim);
        $do!(work_note::WorkNote);
        $do!(work_status::WorkStatus);
        $do!(work_finish::WorkFinish);
    };
}

/// Returns every tool there is.
pub fn all() -> &'static [ToolInfo] {
    // Made once: deriving the schemas of all of them takes as long as a turn.
    static TOOLS: LazyLock<Vec<ToolInfo>> = LazyLock::new(|| {
        let mut tools = Vec::new();
        macro_rules! describe {
            ($tool:ty) => {
                tools.push(info::<$tool>());
            };
        }
        for_each_tool!(describe);
        tools
    });
    &TOOLS
}

impl App {
    /// Calls a tool; `None` when there is no such tool.
    pub async fn call_tool(&self, caller: &Caller, call: ToolCall) -> Option<ToolAnswer> {
        macro_rules! dispatch {
            ($tool:ty) => {
                if call.name == <$tool as Tool>::NAME {
                    return Some(run::<$tool>(self, caller, call).await);
                }
            };
        }
        for_each_tool!(dispatch);
        None
    }
}

async fn run<T: Tool>(app: &App, caller: &Caller, call: ToolCall) -> ToolAnswer {
    let outcome = match arguments::<T::Args>(call.arguments) {
        Ok(args) => T::call(app, caller, args, call.idempotency_key).await,
        Err(error) => Err(error),
    };
    let answer = match outcome {
        Ok((text, output)) => {
            let structured = serde_json::to_value(output).expect("an answer has string keys only");
            ToolAnswer { text, structured: Some(structured), is_error: false }
        }
        Err(error) if T::TOOLSET == Toolset::Sessions => {
            let refusal = json!({ "status": status(&error), "error": error.to_string() });
            ToolAnswer { text: String::new(), structured: Some(refusal), is_error: true }
        }
        Err(error) => ToolAnswer { text: error.to_string(), structured: None, is_error: true },
    };
    if T::TOOLSET == Toolset::Sessions { same_as_text(answer) } else { answer }
}

/// Returns the answer with its data as its text; one that tells of a failure is an error.
fn same_as_text(answer: ToolAnswer) -> ToolAnswer {
    let structured = answer.structured.unwrap_or_default();
    let has_failed = structured.get("status").and_then(Value::as_str) == Some("error");
    ToolAnswer {
        text: structured.to_string(),
        is_error: answer.is_error || has_failed,
        structured: Some(structured),
    }
}

/// Returns what the session tools call a refusal: by policy, or for what was asked.
fn status(error: &Error) -> &'static str {
    match error.kind() {
        Kind::Denied => "forbidden",
        Kind::Invalid | Kind::NotFound | Kind::Conflict | Kind::Unavailable | Kind::Damaged => "error",
    }
}

/// Reads arguments; a missing object counts as an empty one.
fn arguments<A: DeserializeOwned>(arguments: Value) -> Result<A> {
    let object = match arguments {
        Value::Null => Map::new(),
        Value::Object(object) => object,
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Err(Error::Invalid("arguments must be a JSON object".to_owned()));
        }
    };
    let error = match serde_json::from_value(Value::Object(object.clone())) {
        Ok(arguments) => return Ok(arguments),
        Err(error) => error,
    };
    // Named by hand: serde's own message says what was wrong, but not where.
    for (name, value) in object {
        let alone = Map::from_iter([(name.clone(), value)]);
        match serde_json::from_value::<A>(Value::Object(alone)) {
            // What it lacks alone are the others.
            Err(error) if !error.to_string().starts_with("missing field") => {
                return Err(Error::Invalid(format!("invalid argument \"{name}\": {error}")));
            }
            Ok(_) | Err(_) => {}
        }
    }
    Err(Error::Invalid(format!("invalid arguments: {error}")))
}

/// Reads a whole number of any size: limits are clamped, so a huge one is not an error.
fn whole_number<'de, D: Deserializer<'de>>(input: D) -> std::result::Result<Option<i64>, D::Error> {
    let Some(number) = Option::<Number>::deserialize(input)? else { return Ok(None) };
    if let Some(whole) = number.as_i64() {
        return Ok(Some(whole));
    }
    match number.as_f64() {
        // The cast saturates.
        Some(float) if float.fract() == 0.0 => Ok(Some(float as i64)),
        _ => Err(D::Error::custom(format!("expected a whole number, not {number}"))),
    }
}

fn info<T: Tool>() -> ToolInfo {
    ToolInfo {
        name: T::NAME,
        title: T::TITLE,
        description: T::DESCRIPTION,
        toolset: T::TOOLSET,
        input_schema: schema::<T::Args>(),
        output_schema: match T::TOOLSET {
            Toolset::Sessions => with_refusals(schema::<T::Output>()),
            Toolset::SessionPlan | Toolset::SessionContext | Toolset::Work => schema::<T::Output>(),
        },
        annotations: T::ANNOTATIONS,
    }
}

/// Adds what is left to do to what a model reads: it does not get the data.
fn with_notices(told: String, notices: &[String]) -> String {
    notices.iter().fold(told, |told, notice| format!("{told}\nNote: {notice}"))
}

/// Derives a schema without references, which some hosts cannot follow.
fn schema<T: JsonSchema>() -> Map<String, Value> {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    let schema: Schema = settings.into_generator().into_root_schema_for::<T>();
    let Value::Object(mut schema) = schema.to_value() else { unreachable!("these types are objects") };
    schema.remove("title");
    forget_null_defaults(&mut schema);
    // A tool without arguments has no properties, and clients want to see that.
    schema.entry("properties").or_insert_with(|| Value::Object(Map::new()));
    schema
}

/// Refusals are data too, and some clients hold them against the schema.
fn with_refusals(mut schema: Map<String, Value>) -> Map<String, Value> {
    schema.remove("required");
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        for (name, means) in [
            ("status", "`forbidden` for a refusal by policy, `error` for a bad request or a failure"),
            ("error", "Why it was refused or did not work."),
        ] {
            let described = json!({ "type": "string", "description": means });
            properties.entry(name).or_insert(described);
        }
    }
    schema
}

/// An absent argument needs no default, and strict clients stumble over one that is null.
fn forget_null_defaults(schema: &mut Map<String, Value>) {
    let Some(Value::Object(properties)) = schema.get_mut("properties") else { return };
    for property in properties.values_mut() {
        if let Value::Object(property) = property
            && property.get("default") == Some(&Value::Null)
        {
            property.remove("default");
        }
    }
}
