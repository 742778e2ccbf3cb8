//! Taking secrets out of what is stored.

use std::{fs, path::Path};

use sess_app::{Scrubbing, WritePlan};
use sess_core::{
    RunId,
    run::{Errand, Outcome, RunState},
    session::NewSession,
};
use sess_store::{Lease, NewRun};

use crate::world::{World, now, text};

const SECRET: &str = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";
const MASKED: &str = "ghp_ab…6789";

/// Returns the files below `dir` that hold the text, in whatever form.
fn holding(dir: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(holding(&path, text));
        } else {
            let bytes = fs::read(&path).expect("a file").to_ascii_lowercase();
            if bytes.windows(text.len()).any(|window| window == text.to_ascii_lowercase().as_bytes()) {
                found.push(path.file_name().expect("a name").to_string_lossy().into_owned());
            }
        }
    }
    found
}

#[tokio::test]
async fn after_a_scrub_no_file_holds_the_secret() {
    let world = World::new();
    let session = world.session("s").await;
    let said = text("user", &format!("the key is {SECRET}, keep it"));
    world.messages(&session, &[&said, &text("assistant", "I will")]).await;
    let caller = world.agent("s");
    let plan = WritePlan { content: format!("# Use {SECRET}"), expect_revision: None, idempotency_key: None };
    world.app.write_plan(&caller, plan).await.expect("it is written");
    let store = sess_store::open(world.home()).expect("a store");
    let run = RunId::new(7);
    let new = NewRun::message(run.clone(), NewSession::from(session.clone()), session.agent.clone(), now());
    store.queue_run(NewRun { errand: Errand::LateReply { of: run.clone() }, ..new }).await.expect("queued");
    let until = sess_store::boot_time().expect("a clock").plus(60_000);
    let lease = Lease { token: "t".to_owned(), node: "n".to_owned(), until };
    let leased =
        store.lease_run(&session.id, std::slice::from_ref(&session.agent), lease.clone(), now()).await;
    leased.expect("an answer").expect("it is due");
    let outcome = Outcome {
        state: RunState::Failed,
        result: Some(format!("token={SECRET}")),
        error: Some(format!("refused {SECRET}")),
        usage: Default::default(),
    };
    store.end_run(&run, &lease, vec![], outcome, now()).await.expect("it ends");
    world.app.catch_up(&|_, _| {}).await.expect("an index");
    assert!(!holding(world.home(), SECRET).is_empty(), "the test looks in the right place");

    let found = world.app.scrub(&world.owner(), None, Scrubbing::Count).await.expect("counted");
    assert_eq!(found.sessions.len(), 1);
    assert!(!holding(world.home(), SECRET).is_empty(), "counting changes nothing");
    let refused = world.app.scrub(&caller, None, Scrubbing::Rewrite).await.expect_err("an agent");
    assert_eq!(refused.to_string(), "only the owner may take secrets out of the store");

    let scrubbed = world.app.scrub(&world.owner(), None, Scrubbing::Rewrite).await.expect("scrubbed");
    assert_eq!(scrubbed.sessions[0].texts, found.sessions[0].texts);
    world.app.catch_up(&|_, _| {}).await.expect("an index");
    assert_eq!(holding(world.home(), SECRET), [""; 0]);

    // What remains is whole and says the same, masked.
    let health = world.app.health().expect("a report");
    assert_eq!(health.damage, [""; 0]);
    assert_eq!(world.app.read_plan(&caller).await.expect("a plan").content, format!("# Use {MASKED}"));
    assert_eq!(
        store.run(&run).await.expect("an answer").expect("a run").result,
        Some(format!("token={MASKED}"))
    );
    assert_eq!(
        world.app.scrub(&world.owner(), None, Scrubbing::Count).await.expect("counted").sessions.len(),
        0
    );
}
