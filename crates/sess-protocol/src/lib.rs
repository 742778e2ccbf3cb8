//! What the gateway looks like on the wire: types without logic.
//!
//! JSON Schema comes from these types, OpenAPI and TypeScript from that. Whoever writes a door
//! or a client reads this crate and nothing else.

pub mod errors;
pub mod events;
pub mod frames;
pub mod messages;
pub mod methods;
pub mod object;
pub mod plans;
pub mod runs;
pub mod search;
pub mod sessions;
pub mod tokens;
pub mod work;

use serde_json::{Value, json};

/// Returns the JSON Schema of every type, each under its name.
pub fn schema() -> Value {
    let mut generator = schemars::generate::SchemaSettings::draft2020_12().into_generator();
    macro_rules! add {
        ($($type:ty),* $(,)?) => { $( generator.subschema_for::<$type>(); )* };
    }
    add!(
        errors::ErrorBody,
        events::EventsPage,
        events::EventsQuery,
        events::Lagged,
        events::PlanEvent,
        events::RunDelta,
        events::SessionMessage,
        events::SessionsChanged,
        events::Tick,
        frames::ConnectParams,
        frames::EventFrame,
        frames::HelloOk,
        frames::RequestFrame,
        frames::ResponseFrame,
        messages::HistoryPage,
        messages::HistoryQuery,
        methods::AgentAccepted,
        methods::AgentRequest,
        methods::AgentWait,
        methods::ChatAbort,
        methods::ChatAborted,
        methods::ChatHistory,
        methods::ChatSend,
        methods::ChatSent,
        methods::Deleted,
        methods::Subscribed,
        methods::SubscribeMessages,
        plans::GetPlan,
        plans::PlanBody,
        plans::PlanQuery,
        plans::PlanState,
        plans::PlanView,
        plans::ReviewBody,
        plans::ReviewPlan,
        runs::ListRuns,
        runs::Runs,
        runs::WaitBody,
        runs::Waited,
        search::SearchPage,
        search::SearchQuery,
        sessions::Agents,
        sessions::ListSessions,
        sessions::OneSession,
        sessions::PatchSession,
        sessions::Resolved,
        sessions::Rows,
        sessions::SendAnswer,
        sessions::SendBody,
        sessions::SessionQuery,
        sessions::UploadQuery,
        sessions::Uploaded,
        tokens::CreateToken,
        tokens::CreatedToken,
        tokens::LoggedIn,
        tokens::Login,
        tokens::Tokens,
        work::WorkBoard,
        work::WorkSession,
    );
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Gateway",
        "$defs": generator.take_definitions(true),
    })
}
