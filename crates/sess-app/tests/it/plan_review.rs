//! The states of a plan, and who may move it.

use serde_json::json;
use sess_app::{Kind, ReviewPlan};
use sess_core::plan::Verdict;

use crate::world::World;

impl World {
    /// Reviews as the owner; the answer is the new state or the error and its kind.
    async fn review(
        &self,
        session: &str,
        verdict: Verdict,
        revision: Option<u64>,
        note: Option<&str>,
    ) -> String {
        let review = ReviewPlan { verdict, revision, note: note.map(str::to_owned) };
        let session = self.stored(session).await;
        match self.app.review_plan(&self.owner(), &session, review).await {
            Ok(plan) => format!("{} {}", plan.revision, plan.state),
            Err(error) => format!("{:?}: {error}", error.kind()),
        }
    }

    async fn state(&self, session: &str) -> String {
        let answer = self.answer(&self.agent(session), "read_session_plan", json!({})).await;
        let plan = answer.structured.expect("a plan");
        format!("{} {}", plan["revision"], plan["state"].as_str().expect("a state"))
    }
}

#[tokio::test]
async fn a_plan_goes_from_draft_over_ready_and_approved_to_done() {
    let world = World::new();
    world.write("s", "one").await;
    assert_eq!(world.state("s").await, "1 draft");
    world.exit("s").await;
    assert_eq!(world.state("s").await, "1 ready");
    assert_eq!(world.review("s", Verdict::Approve, Some(1), Some("go")).await, "1 approved");
    assert_eq!(world.state("s").await, "1 approved");
    assert_eq!(world.review("s", Verdict::Done, None, None).await, "1 done");
    assert_eq!(world.state("s").await, "1 done");
    assert_eq!(
        world.plan_events().await,
        [
            "updated s 1 by main",
            "state s 1 ready by main",
            "state s 1 approved by owner \"go\"",
            "state s 1 done by owner",
        ]
    );
}

#[tokio::test]
async fn changes_requested_leads_back_over_a_draft_or_straight_to_ready() {
    let world = World::new();
    world.write("s", "one").await;
    world.exit("s").await;
    assert_eq!(
        world.review("s", Verdict::RequestChanges, None, Some("tests first")).await,
        "1 changes_requested"
    );
    world.exit("s").await;
    assert_eq!(world.state("s").await, "1 ready");
    world.review("s", Verdict::RequestChanges, None, None).await;
    world.write("s", "two").await;
    assert_eq!(world.state("s").await, "2 draft");
    assert_eq!(
        world.plan_events().await,
        [
            "updated s 1 by main",
            "state s 1 ready by main",
            "state s 1 changes_requested by owner \"tests first\"",
            "state s 1 ready by main",
            "state s 1 changes_requested by owner",
            "updated s 2 by main",
            "state s 2 draft by main",
        ]
    );
}

#[tokio::test]
async fn any_write_goes_to_draft() {
    let world = World::new();
    for (revision, verdicts) in
        [(1, vec![]), (2, vec![Verdict::Approve]), (3, vec![Verdict::Approve, Verdict::Done])]
    {
        world.write("s", &format!("plan {revision}")).await;
        assert_eq!(world.state("s").await, format!("{revision} draft"));
        world.exit("s").await;
        for verdict in verdicts {
            world.review("s", verdict, None, None).await;
        }
    }
    world.write("s", "last").await;
    assert_eq!(world.state("s").await, "4 draft");
    // A write over a draft changes no state.
    let before = world.plan_events().await.len();
    world.write("s", "very last").await;
    assert_eq!(world.plan_events().await[before..], ["updated s 5 by main"]);
}

#[tokio::test]
async fn exit_answers_the_same_and_changes_nothing_when_there_is_nothing_to_change() {
    let world = World::new();
    world.write("s", "one").await;
    world.exit("s").await;
    for verdict in [None, Some(Verdict::Approve), Some(Verdict::Done)] {
        if let Some(verdict) = verdict {
            world.review("s", verdict, None, None).await;
        }
        let before = (world.state("s").await, world.plan_events().await);
        assert_eq!(world.exit("s").await, "Plan ready for review.");
        assert_eq!((world.state("s").await, world.plan_events().await), before);
    }
}

#[tokio::test]
async fn a_review_of_anything_but_the_newest_ready_revision_is_a_conflict() {
    let world = World::new();
    world.write("s", "one").await;
    let draft = "Conflict: the plan is draft, not ready for review";
    assert_eq!(world.review("s", Verdict::Approve, None, None).await, draft);
    assert_eq!(world.review("s", Verdict::RequestChanges, Some(1), None).await, draft);
    world.exit("s").await;
    world.write("s", "two").await;
    world.exit("s").await;
    let other = "Conflict: the plan is now at revision 2, not 1; look at it again";
    assert_eq!(world.review("s", Verdict::Approve, Some(1), None).await, other);
    assert_eq!(
        world.review("s", Verdict::Approve, Some(3), None).await,
        "Conflict: the plan is now at revision 2, not 3; look at it again"
    );
    assert_eq!(
        world.review("s", Verdict::Done, None, None).await,
        "Conflict: the plan is ready, not approved"
    );
    assert_eq!(world.review("s", Verdict::Approve, Some(2), None).await, "2 approved");
    let approved = "Conflict: the plan is approved, not ready for review";
    assert_eq!(world.review("s", Verdict::Approve, Some(2), None).await, approved, "not a silent success");
    assert_eq!(world.review("s", Verdict::RequestChanges, Some(2), None).await, approved);
    // An edit by hand is a revision that nobody has reviewed.
    world.write("s", "three").await;
    world.exit("s").await;
    std::fs::write(world.plan_path("s"), "by hand").expect("edited");
    assert_eq!(
        world.review("s", Verdict::Approve, Some(3), None).await,
        "Conflict: the plan is now at revision 4, not 3; look at it again"
    );
}

#[tokio::test]
async fn review_is_refused_to_agents() {
    let world = World::new();
    world.write("s", "one").await;
    world.exit("s").await;
    let session = world.stored("s").await;
    let before = world.plan_events().await;
    for caller in [world.agent("s"), world.agent("other"), world.sandboxed("s")] {
        for verdict in [Verdict::Approve, Verdict::RequestChanges] {
            let review = ReviewPlan { verdict, revision: Some(1), note: None };
            let error = world.app.review_plan(&caller, &session, review).await.expect_err("an agent");
            assert_eq!(error.kind(), Kind::Denied);
            assert_eq!(
                error.to_string(),
                "a plan is reviewed by a person: an agent cannot approve it or request changes"
            );
        }
    }
    assert_eq!(world.state("s").await, "1 ready");
    assert_eq!(world.plan_events().await, before);
}

#[tokio::test]
async fn an_agent_may_call_its_own_approved_plan_done_and_no_other() {
    let world = World::new();
    world.write("s", "one").await;
    world.exit("s").await;
    assert_eq!(world.review("s", Verdict::Approve, None, None).await, "1 approved");
    let session = world.stored("s").await;
    let done = || ReviewPlan { verdict: Verdict::Done, revision: None, note: None };
    let error = world.app.review_plan(&world.agent("other"), &session, done()).await.expect_err("another's");
    assert_eq!(error.to_string(), "an agent may only change its own session's plan");
    assert_eq!(world.state("s").await, "1 approved");
    world.app.review_plan(&world.agent("s"), &session, done()).await.expect("its own");
    assert_eq!(world.state("s").await, "1 done");
}

#[tokio::test]
async fn there_is_nothing_to_review_without_a_plan() {
    let world = World::new();
    world.session("s").await;
    assert_eq!(world.review("s", Verdict::Approve, None, None).await, "NotFound: session s has no plan");
}

#[tokio::test]
async fn a_change_of_state_is_told_with_all_its_fields() {
    let world = World::new();
    world.write("s", "one").await;
    world.exit("s").await;
    world.review("s", Verdict::Approve, None, Some("fine")).await;
    let events = world.events(0).await;
    let state: Vec<String> = events
        .iter()
        .filter(|event| event.fields["type"] == "session_plan_state")
        .map(|event| json!(event.fields).to_string())
        .collect();
    assert_eq!(
        state,
        [
            r#"{"type":"session_plan_state","session_id":"s","revision":1,"state":"ready","by":"main","timestamp":"2026-11-15T12:00:00Z"}"#,
            r#"{"type":"session_plan_state","session_id":"s","revision":1,"state":"approved","by":"owner","timestamp":"2026-11-15T12:00:00Z","note":"fine"}"#,
        ]
    );
}
