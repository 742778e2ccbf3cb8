//! Events as programs see them, where no other contract shows them.

use sess_core::{
    RunId, Source,
    message::Usage,
    run::{BootTime, Outcome, RunState},
    session::NewSession,
};
use sess_store::{Lease, NewRun};

use crate::world::{World, id, now};

#[tokio::test]
async fn a_run_is_told_at_each_step_and_its_error_is_masked() {
    let world = World::new();
    let store = world.store();
    let (run, agent): (RunId, _) = (RunId::new(7), Source::Native.agent());
    let session = NewSession::chat(id("s"), Source::Native, now());
    let queued = NewRun::message(run.clone(), session, agent.clone(), now());
    store.queue_run(queued).await.expect("queued");
    let until = BootTime { boot_id: "b".to_owned(), millis: 1 };
    let lease = Lease { token: "t".to_owned(), node: "n".to_owned(), until };
    store.lease_run(&id("s"), &[agent], lease.clone(), now()).await.expect("leased");
    let error = Some("401 for key sk-ant-api03-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA".to_owned());
    let outcome = Outcome { state: RunState::Failed, result: None, error, usage: Usage::default() };
    store.end_run(&run, &lease, vec![], outcome, now()).await.expect("ended");
    let told: Vec<String> = world
        .events(0)
        .await
        .iter()
        .filter(|event| event.fields["type"] == "run_state")
        .map(|event| serde_json::to_string(&event.fields).expect("JSON"))
        .collect();
    let beginning = format!(r#"{{"type":"run_state","session_id":"s","run_id":"{run}","agent":"main""#);
    let expected = [
        r#","state":"queued","timestamp":"2026-11-15T12:00:00Z"}"#,
        r#","state":"running","timestamp":"2026-11-15T12:00:00Z"}"#,
        r#","state":"failed","timestamp":"2026-11-15T12:00:00Z","error":"401 for key sk-ant…AAAA"}"#,
    ];
    assert_eq!(told, expected.map(|rest| format!("{beginning}{rest}")));
}
