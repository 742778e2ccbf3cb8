//! Work sessions, for the board.

use axum::response::Response;
use sess_app::Access;

use super::{Call, Problem, json};

pub(in crate::gateway) async fn board(call: Call, access: Access) -> Result<Response, Problem> {
    Ok(json(&call.state.app.work_board(&call.caller(&access)).await?))
}

pub(in crate::gateway) async fn session(call: Call, access: Access) -> Result<Response, Problem> {
    Ok(json(&call.state.app.work_session(&call.caller(&access), call.param("slug")).await?))
}
