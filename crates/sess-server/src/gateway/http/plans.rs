//! Plans: read, written, and reviewed by the person.

use axum::response::Response;
use sess_app::{Access, PlanAnswer, ReviewPlan, WritePlan};
use sess_core::{plan::Verdict, policy::Verb};
use sess_protocol::plans::{Decision, PlanBody, PlanState, ReviewBody};

use super::{Call, Problem, json, json_body, unseen};

pub(in crate::gateway) async fn get(call: Call, access: Access) -> Result<Response, Problem> {
    let revision = call.query.number("revision", 1..=u64::MAX)?;
    let given = call.session();
    let view = call.state.app.plan_view(&call.caller(&access), given, revision).await;
    Ok(json(&view.map_err(|error| unseen(error, given))?))
}

pub(in crate::gateway) async fn put(call: Call, access: Access) -> Result<Response, Problem> {
    let (app, caller, given) = (call.state.app.clone(), call.caller(&access), call.session().to_owned());
    app.in_sight(&caller, &given, Verb::Send).await.map_err(|error| unseen(error, &given))?;
    let body: PlanBody = json_body(call).await?;
    let write = WritePlan {
        content: body.content,
        expect_revision: body.expected_revision,
        idempotency_key: body.idempotency_key,
    };
    Ok(json(&state(app.write_plan_of(&caller, &given, write).await?)))
}

pub(in crate::gateway) async fn review(call: Call, access: Access) -> Result<Response, Problem> {
    let (app, caller, given) = (call.state.app.clone(), call.caller(&access), call.session().to_owned());
    app.in_sight(&caller, &given, Verb::Send).await.map_err(|error| unseen(error, &given))?;
    let body: ReviewBody = json_body(call).await?;
    let review =
        ReviewPlan { verdict: verdict(body.decision), revision: Some(body.revision), note: body.note };
    Ok(json(&state(app.review_plan_of(&caller, &given, review).await?)))
}

pub(in crate::gateway) fn verdict(decision: Decision) -> Verdict {
    match decision {
        Decision::Approve => Verdict::Approve,
        Decision::RequestChanges => Verdict::RequestChanges,
        Decision::Done => Verdict::Done,
    }
}

pub(in crate::gateway) fn state(answer: PlanAnswer) -> PlanState {
    PlanState { session_id: answer.session_id, revision: answer.revision, state: answer.state }
}
