//! Runs as they are shown: to whom, and how much of them.

use serde_json::json;
use sess_app::{ListRuns, Redaction, SendMessage};
use sess_core::{rules::Visibility, run::RunState};

use crate::{
    sessions_stage::Stage,
    world::{id, now},
};

const SECRET: &str = "sk-ant-api03-AAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// Two sessions of one agent that reach each other, and a third.
async fn stage() -> Stage {
    let stage = Stage::new(&["main"]);
    stage.configure(|configured| configured.rules.visibility = Visibility::Agent);
    for name in ["me", "you", "other"] {
        stage.world.session(name).await;
    }
    stage
}

/// Sends from `me` to `you`, and ends that with a secret; returns the run's id.
async fn answered(stage: &Stage) -> String {
    let ask = json!({"sessionKey": "you", "message": "hi", "timeoutSeconds": 0});
    let sent = stage.answer("me", "sessions_send", ask).await;
    let you = stage.world.stored("you").await;
    stage.end_next(&you, RunState::Done, Some(SECRET)).await;
    sent["runId"].as_str().expect("a run").to_owned()
}

#[tokio::test]
async fn an_agent_gets_no_run_unmasked_and_the_owner_when_asked_for() {
    let stage = stage().await;
    let app = &stage.world.app;
    let run = answered(&stage).await;
    let run_id = run.parse().expect("an id");
    let (agent, owner) = (stage.world.agent("me"), stage.world.owner());
    for (caller, redaction, is_shown) in [
        (&agent, Redaction::Masked, false),
        (&agent, Redaction::None, false),
        (&owner, Redaction::Masked, false),
        (&owner, Redaction::None, true),
    ] {
        let found = app.find_run(caller, &run, redaction).await.expect("found");
        let row = app.run_row(caller, &found, redaction).await.expect("a row");
        let ask = ListRuns { redaction, ..ListRuns::default() };
        let rows = app.runs(caller, &ask).await.expect("rows");
        let waited = app.wait_for(caller, &run_id, None, redaction).await.expect("waited");
        let cancelled = app.cancel(caller, &run_id, redaction).await.expect("ended");
        for result in [found.result, row.result, rows[0].result.clone(), waited.result, cancelled.result] {
            let result = result.expect("a result");
            assert_eq!(result == SECRET, is_shown, "{caller:?} {redaction:?} {result}");
        }
    }
    // The reply of a message that is sent, too.
    let you = stage.world.stored("you").await;
    for (caller, shown) in [(&agent, "sk-ant…AAAA"), (&owner, SECRET)] {
        let ask = SendMessage {
            to: "you".to_owned(),
            message: "hi".to_owned(),
            redaction: Redaction::None,
            ..SendMessage::default()
        };
        let (answer, _) =
            tokio::join!(app.send(caller, ask), stage.end_next(&you, RunState::Done, Some(SECRET)));
        assert_eq!(answer.expect("sent").reply.as_deref(), Some(shown));
    }
}

#[tokio::test]
async fn what_came_of_a_message_stays_readable_for_its_sender_when_the_session_is_gone() {
    let stage = stage().await;
    let (app, store) = (&stage.world.app, stage.world.store());
    let run = answered(&stage).await;
    let run_id = run.parse().expect("an id");
    store.settle_run(&run_id, Vec::new(), now()).await.expect("settled");
    store.delete_session(&id("you"), "owner", now()).await.expect("deleted");
    let me = stage.world.agent("me");
    for given in [run.as_str(), &run[..8]] {
        let found = app.find_run(&me, given, Redaction::Masked).await.expect(given);
        assert_eq!(found.result.as_deref(), Some("sk-ant…AAAA"));
        let row = app.run_row(&me, &found, Redaction::Masked).await.expect("a row");
        assert_eq!((row.session_key, row.errand), (None, "send"));
    }
    app.wait_for(&me, &run_id, None, Redaction::Masked).await.expect("waited");
    assert_eq!(app.runs(&me, &ListRuns::default()).await.expect("rows").len(), 1);
    // Others reach a session that is there, and learn nothing of one that is gone.
    let other = stage.world.agent("other");
    assert_eq!(app.runs(&other, &ListRuns::default()).await.expect("rows"), []);
    let told = app.find_run(&other, &run, Redaction::Masked).await.expect_err("gone").to_string();
    assert_eq!(told, format!("run \"{run}\" not found"));
}

#[tokio::test]
async fn a_run_out_of_reach_is_answered_for_as_one_that_does_not_exist() {
    let stage = stage().await;
    let app = &stage.world.app;
    let run = answered(&stage).await;
    stage.configure(|configured| configured.rules.visibility = Visibility::Own);
    let other = stage.world.agent("other");
    for (given, unknown) in [
        (run.as_str(), "00000000-0000-4000-8000-000000000000"),
        (&run[..8], "00000000"),
        (&run[..13], "00000000-0000"),
    ] {
        let told = app.find_run(&other, given, Redaction::Masked).await.expect_err("out of reach");
        let same = app.find_run(&other, unknown, Redaction::Masked).await.expect_err("unknown");
        assert_eq!(told.to_string().replace(given, ""), same.to_string().replace(unknown, ""));
        assert_eq!(told.kind(), same.kind());
        app.find_run(&stage.world.owner(), given, Redaction::Masked).await.expect("the owner's");
    }
}
