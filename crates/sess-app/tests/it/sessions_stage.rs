//! Sessions that list, read and send to each other, under rules that a test may change.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use sess_app::{Caller, ConfigSource, Configured};
use sess_core::{
    MessageId,
    agent::Agent,
    message::{Body, Role, Usage},
    run::{Outcome, Run, RunState},
    session::{Runner, Session},
};
use sess_store::{Lease, NewMessage};

use crate::{
    teams,
    world::{World, new_session, now, random},
};

pub(crate) struct Stage {
    pub(crate) world: World,
    configured: Arc<Mutex<Configured>>,
}

impl Stage {
    /// Sets up a world in which these agents are configured.
    pub(crate) fn new(agents: &[&str]) -> Self {
        let agents: Vec<Agent> = agents.iter().map(|name| teams::agent(name, "echo")).collect();
        let team = (!agents.is_empty()).then(|| teams::team_of(agents, &["echo"]));
        let configured = Arc::new(Mutex::new(Configured { team, ..Configured::default() }));
        let read = Arc::clone(&configured);
        let source = ConfigSource::new(move || Ok(Arc::new(read.lock().expect("whole").clone())));
        Self { world: World::with(|settings| settings.configured = source), configured }
    }

    /// Changes the configuration, for the calls that follow.
    pub(crate) fn configure(&self, change: impl FnOnce(&mut Configured)) {
        change(&mut self.configured.lock().expect("whole"));
    }

    /// Makes a session that another program runs.
    pub(crate) async fn hosted(&self, line: &str) -> Session {
        let mut new = new_session(line);
        new.facts.runner = Runner::Host;
        self.world.store().ensure_session(new).await.expect(line)
    }

    pub(crate) async fn answer(&self, session: &str, tool: &str, arguments: Value) -> Value {
        self.answer_to(&self.world.agent(session), tool, arguments).await
    }

    /// Calls a tool, and checks what every answer promises: text and data are the same.
    pub(crate) async fn answer_to(&self, caller: &Caller, tool: &str, arguments: Value) -> Value {
        let answer = self.world.answer(caller, tool, arguments).await;
        let structured = answer.structured.expect("data");
        assert_eq!(serde_json::from_str::<Value>(&answer.text).expect("JSON"), structured);
        let status = structured["status"].as_str().unwrap_or_default();
        assert_eq!(answer.is_error, matches!(status, "error" | "forbidden"), "{structured}");
        structured
    }

    /// Takes the next run of a session as a node would, and ends it.
    pub(crate) async fn end_next(&self, session: &Session, state: RunState, result: Option<&str>) -> Run {
        let (run, lease) = self.take_next(session).await;
        let outcome = Outcome {
            state,
            result: result.map(str::to_owned),
            error: (state == RunState::Failed).then(|| "the model is gone".to_owned()),
            usage: Usage::default(),
        };
        let mut body = Body::text(Role::Assistant, result.unwrap_or_default(), now());
        body.model = Some("echo-1".to_owned());
        body.usage = Some(Usage { input: 5, output: 2, cache_read: 7, ..Usage::default() });
        let message = NewMessage { id: MessageId::new(now(), random()), body };
        let store = self.world.store();
        store.end_run(&run.id, &lease, vec![message], outcome, now()).await.expect("ended");
        run
    }

    /// Takes the next run of a session, once it is there.
    pub(crate) async fn take_next(&self, session: &Session) -> (Run, Lease) {
        let store = self.world.store();
        let mut changes = store.changes();
        loop {
            changes.mark_unchanged();
            let until = sess_store::boot_time().expect("a clock").plus(60_000);
            let lease = Lease { token: format!("{:x}", random()), node: "node".to_owned(), until };
            let agents = [session.agent.clone()];
            let taken = store.lease_run(&session.id, &agents, lease.clone(), now()).await.expect("a store");
            match taken {
                Some(run) => return (run, lease),
                None => changes.changed().await.expect("a store"),
            }
        }
    }

    pub(crate) async fn history(&self, caller: &Caller, session: &str) -> Value {
        self.answer_to(caller, "sessions_history", json!({ "sessionKey": session, "includeTools": true }))
            .await
    }
}

pub(crate) fn error(text: &str) -> Value {
    json!({ "status": "error", "error": text })
}

pub(crate) fn forbidden(text: &str) -> Value {
    json!({ "status": "forbidden", "error": text })
}
