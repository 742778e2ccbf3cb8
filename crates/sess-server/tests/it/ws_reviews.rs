//! What a person says about a plan, told to whoever works next in its session.

use serde_json::{Value, json};
use sess_app::WritePlan;

use crate::ws_stage::{Client, Stage};

const KEY: &str = "agent:a:chat:planned";

impl Stage {
    /// Leaves a plan that waits for review, and returns its revision.
    async fn ready_plan(&self, content: &str) -> u64 {
        let access = sess_app::Access::owner();
        let caller = self.app.door_caller(&access, None);
        let write = WritePlan { content: content.to_owned(), ..WritePlan::default() };
        let plan = self.app.write_plan_of(&caller, KEY, write).await.expect("written");
        let session = self.app.resolve(&caller, &plan.session_id).await.expect("a session");
        let acting = self.app.act_in(&caller, &session).await.expect("its owner");
        self.app.exit_plan_mode(&acting).await.expect("ready");
        plan.revision
    }
}

async fn review(client: &mut Client, revision: u64, decision: &str, note: Option<&str>) {
    let mut review = json!({ "sessionKey": KEY, "revision": revision, "decision": decision });
    if let Some(note) = note {
        review["note"] = note.into();
    }
    client.ask("plans.review", review).await.expect("reviewed");
}

/// Says something, waits for the end, and returns what stands in the transcript since.
async fn say(client: &mut Client, text: &str) -> Vec<(String, String)> {
    let page = client.ask("chat.history", json!({ "sessionKey": KEY })).await.expect("a page");
    let before = page["items"].as_array().expect("messages").len();
    let said = json!({ "sessionKey": KEY, "message": text, "idempotencyKey": text });
    let run = client.ask("chat.send", said).await.expect("sent")["runId"].clone();
    let waited = client.ask("agent.wait", json!({ "runId": run })).await.expect("waited");
    assert_eq!(waited["status"], "ok", "{waited}");
    let page = client.ask("chat.history", json!({ "sessionKey": KEY })).await.expect("a page");
    let text_of = |message: &Value| message["content"][0]["text"].as_str().expect("a text").to_owned();
    let told = page["items"].as_array().expect("messages").iter().skip(before);
    told.map(|message| (message["provenance"]["kind"].as_str().unwrap_or("").to_owned(), text_of(message)))
        .collect()
}

async fn plan(client: &mut Client) -> Value {
    client.ask("plans.get", json!({ "sessionKey": KEY })).await.expect("a plan")
}

#[tokio::test]
async fn an_approval_begins_the_next_run_once_and_that_run_calls_the_plan_done() {
    let stage = Stage::new().await;
    stage.session(KEY).await;
    let mut client = stage.client().await;
    let revision = stage.ready_plan("# Plan").await;
    review(&mut client, revision, "approve", Some("carefully")).await;
    let view = plan(&mut client).await;
    assert_eq!((&view["state"], &view["note"]), (&json!("approved"), &json!("carefully")));
    let told = say(&mut client, "go").await;
    let texts: Vec<&str> = told.iter().map(|(_, text)| text.as_str()).collect();
    let note = "The plan has been approved: revision 1. Read it with read_session_plan and carry it out. \
                The person says: carefully";
    assert_eq!(texts, [note, "go", "you said: go"]);
    assert_eq!(told[0].0, "internal_system");
    // The node calls it done a moment after the run ended.
    for _ in 0..200 {
        if plan(&mut client).await["state"] == "done" {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let view = plan(&mut client).await;
    assert_eq!((&view["state"], &view["note"]), (&json!("done"), &Value::Null));
    let told = say(&mut client, "and now?").await;
    assert_eq!(told.len(), 2, "told once: {told:?}");
}

#[tokio::test]
async fn what_is_to_change_begins_the_next_run_each_time_it_is_asked_for() {
    let stage = Stage::new().await;
    stage.session(KEY).await;
    let mut client = stage.client().await;
    let revision = stage.ready_plan("# Plan").await;
    for note in [Some("add a test"), None] {
        review(&mut client, revision, "request_changes", note).await;
        let view = plan(&mut client).await;
        assert_eq!((&view["state"], view["note"].as_str()), (&json!("changes_requested"), note));
        let said = format!("after {note:?}");
        let told = say(&mut client, &said).await;
        let expected = match note {
            Some(note) => format!("The person asks for changes to plan revision 1: {note}"),
            None => "The person asks for changes to plan revision 1.".to_owned(),
        };
        assert_eq!(told[0], ("external_user".to_owned(), expected), "{told:?}");
        assert_eq!(told[1].1, said);
        assert_eq!(say(&mut client, &format!("more {said}")).await.len(), 2, "told once");
        let access = sess_app::Access::owner();
        let caller = stage.app.door_caller(&access, None);
        let session = stage.app.resolve(&caller, view["sessionId"].as_str().expect("an id")).await;
        let acting = stage.app.act_in(&caller, &session.expect("a session")).await.expect("its owner");
        stage.app.exit_plan_mode(&acting).await.expect("ready again");
        assert_eq!(plan(&mut client).await["note"], Value::Null);
    }
}
