//! Runs of agents on a real store, with a model and tools of the test's own.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use sess_agent::{
    model::{Model, ModelError, Piece, Reply, Request as Question},
    tool::{ToolDef, ToolOutput, Toolbox},
};
use sess_app::{
    App, Kind,
    agents::{Agents, AgentsSetup, Answer, News, Permission, Person, Place, Question as Asked, Request},
};
use sess_core::{
    AgentId, RunId,
    agent::{Agent, ToolsetKind, ToolsetSpec},
    message::{Block, Role},
    permission::{Reach, Trust},
    run::{Run, RunState},
    sandbox::Sandbox,
    turn::{Asking, Call},
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{
    teams,
    world::{World, id, random},
};

/// What everybody in a test can see.
#[derive(Default)]
struct Stage {
    /// The last words that the model was asked, each time.
    asked: Mutex<Vec<String>>,
    /// What the tools did, and how they were confined.
    done: Mutex<Vec<String>>,
    /// What the person was asked.
    questions: Mutex<Vec<String>>,
    /// A tool has begun to wait.
    waits: Notify,
}

/// Does what the last words say: `call <tool> [<argument>]`, each on a line of its own; says anything else.
struct Echo(Arc<Stage>);

#[async_trait]
impl Model for Echo {
    async fn reply(
        &self,
        question: &Question,
        _: &mut (dyn FnMut(Piece) + Send),
        _: &CancellationToken,
    ) -> Result<Reply, ModelError> {
        let last = question.messages.last().expect("a message");
        let text = last.plain_text();
        self.0.asked.lock().expect("whole").push(text.clone());
        let mut reply = Reply { model: "echo".to_owned(), ..Reply::default() };
        let calls = text.lines().filter_map(|line| line.strip_prefix("call "));
        if last.role == Role::User {
            for call in calls {
                let (name, argument) = call.split_once(' ').unwrap_or((call, "{}"));
                let arguments: Map<String, Value> = serde_json::from_str(argument).expect(argument);
                reply.content.push(Block::ToolCall {
                    id: format!("c{:x}", random()),
                    name: name.to_owned(),
                    arguments,
                });
            }
        }
        if reply.content.is_empty() {
            reply.content = vec![Block::Text { text: format!("heard: {text}") }];
        }
        Ok(reply)
    }
}

/// Tools that act, break, or wait until they are stopped.
struct Tools {
    stage: Arc<Stage>,
    sandbox: Option<Sandbox>,
}

#[async_trait]
impl Toolbox for Tools {
    async fn tools(&self) -> Vec<ToolDef> {
        let tool = |name: &str| ToolDef {
            name: name.to_owned(),
            description: String::new(),
            input_schema: Map::new(),
            reach: Reach::World,
        };
        ["act", "break", "wait"].map(tool).to_vec()
    }

    async fn call(&self, name: &str, _: Map<String, Value>, cancel: &CancellationToken) -> ToolOutput {
        let how = if self.sandbox.is_some() { "confined" } else { "free" };
        self.stage.done.lock().expect("whole").push(format!("{name} {how}"));
        match name {
            "break" => panic!("this tool is broken"),
            "wait" => {
                self.stage.waits.notify_one();
                cancel.cancelled().await;
                ToolOutput::error("stopped")
            }
            _ => ToolOutput::ok("acted"),
        }
    }
}

/// Says yes for good to `act`, answers questions with their own words, and declines to say why.
struct Friend(Arc<Stage>);

#[async_trait]
impl Person for Friend {
    fn asking(&self) -> Asking {
        Asking::Possible
    }

    async fn permit(&self, _: &Place, call: &Call) -> Permission {
        self.0.questions.lock().expect("whole").push(call.name.clone());
        match call.name.as_str() {
            "act" => Permission::Always,
            "wait" => Permission::Once,
            _ => Permission::No("rather not".to_owned()),
        }
    }

    async fn answer(&self, _: &Place, asked: &Asked) -> Result<Answer, String> {
        self.0.questions.lock().expect("whole").push(asked.message.clone());
        Ok(if asked.message == "Why?" { Answer::Declined } else { Answer::Given(json!(asked.message)) })
    }

    fn tell(&self, _: &Place, _: &News) {}
}

fn agent(name: &str) -> Agent {
    let toolset = |kind| ToolsetSpec { kind, tools: None };
    let toolsets =
        vec![toolset(ToolsetKind::Shell { timeout_seconds: None }), toolset(ToolsetKind::UserPrompt)];
    Agent { toolsets, ..teams::agent(name, "echo") }
}

fn node(app: &App, stage: &Arc<Stage>, trust: Trust, agents: Vec<Agent>) -> Agents {
    let (for_model, for_tools) = (Arc::clone(stage), Arc::clone(stage));
    app.agents(AgentsSetup {
        team: teams::team_of(agents, &["echo"]),
        open_model: Box::new(move |_| Ok(Arc::new(Echo(Arc::clone(&for_model))))),
        open_tools: Box::new(move |wanted| {
            Ok(Arc::new(Tools { stage: Arc::clone(&for_tools), sandbox: wanted.sandbox.cloned() }))
        }),
        person: Arc::new(Friend(Arc::clone(stage))),
        trust,
        lease: Duration::from_millis(600),
    })
}

async fn request(world: &World, agents: &Agents, text: &str) -> Request {
    let agent: AgentId = agents.team().entry().name.clone();
    let session = agents.open_session(&world.owner(), Some("s1"), &agent).await.expect("a session");
    Request { session, agent, text: text.to_owned(), from: None, note: None, idempotency_key: None }
}

async fn say(world: &World, agents: &Agents, text: &str) -> Run {
    agents.say(request(world, agents, text).await, &CancellationToken::new()).await.expect("a run")
}

/// A world with one node, whose person allows everything.
fn trusting() -> (World, Arc<Stage>, Agents) {
    let (world, stage) = (World::new(), Arc::<Stage>::default());
    let agents = node(&world.app, &stage, Trust::All, vec![agent("root")]);
    (world, stage, agents)
}

fn results(run: &Run) -> (RunState, &str) {
    (run.state, run.result.as_deref().unwrap_or_default())
}

#[tokio::test]
async fn a_request_with_the_same_key_is_the_same_run_and_another_one_is_refused() {
    let (world, stage, agents) = trusting();
    let cancel = CancellationToken::new();
    let with_key = |mut request: Request| {
        request.idempotency_key = Some("k1".to_owned());
        request
    };
    let first = agents.say(with_key(request(&world, &agents, "hello").await), &cancel).await.expect("a run");
    let again = agents.say(with_key(request(&world, &agents, "hello").await), &cancel).await.expect("a run");
    assert_eq!((&first.id, first.state), (&again.id, RunState::Done));
    assert_eq!(*stage.asked.lock().expect("whole"), ["hello"]);
    let other = agents.queue(with_key(request(&world, &agents, "goodbye").await)).await.expect_err("refused");
    assert_eq!(other.kind(), Kind::Conflict, "{other}");
}

#[tokio::test]
async fn what_has_nothing_to_say_is_no_request() {
    let (world, _, agents) = trusting();
    let refused = agents.queue(request(&world, &agents, " \n").await).await.expect_err("refused");
    assert_eq!(refused.kind(), Kind::Invalid);
    assert!(world.store().session(&id("s1")).await.expect("readable").is_none());
}

#[tokio::test]
async fn the_session_of_another_program_is_not_gone_on_with_here() {
    let (world, _, agents) = trusting();
    world.app.inbox(&world.agent("s1"), None).await.expect("a host's session");
    let refused = agents.queue(request(&world, &agents, "hello").await).await.expect_err("refused");
    assert!(refused.to_string().contains("`sess send s1` leaves a message in its inbox"), "{refused}");
    let root = agents.team().entry().name.clone();
    for name in ["global", "unknown", "current"] {
        let none = agents.open_session(&world.owner(), Some(name), &root).await.expect_err("reserved");
        assert_eq!(none.to_string(), format!("Session not found: {name}"));
    }
}

#[tokio::test]
async fn a_tool_that_breaks_fails_the_run_and_the_session_goes_on() {
    let (world, _, agents) = trusting();
    let run = say(&world, &agents, "call break").await;
    assert_eq!(run.state, RunState::Failed);
    assert!(run.error.expect("a reason").contains("broke"));
    let next = say(&world, &agents, "and now?").await;
    assert_eq!(results(&next), (RunState::Done, "heard: and now?"));
}

#[tokio::test]
async fn a_tool_that_was_allowed_for_good_is_asked_about_once() {
    let (world, stage) = (World::new(), Arc::<Stage>::default());
    let agents = node(&world.app, &stage, Trust::Ask, vec![agent("root")]);
    say(&world, &agents, "call act\ncall act\ncall break").await;
    say(&world, &agents, "call act").await;
    assert_eq!(*stage.questions.lock().expect("whole"), ["act", "break"]);
    assert_eq!(*stage.done.lock().expect("whole"), ["act free"; 3]);
    assert!(stage.asked.lock().expect("whole").iter().any(|told| told == "rather not"));
}

#[tokio::test]
async fn questions_are_answered_or_declined() {
    let (world, stage, agents) = trusting();
    let run = say(&world, &agents, r#"call user_prompt {"message": "Which?"}"#).await;
    assert_eq!(results(&run), (RunState::Done, r#"heard: {"action":"accept","content":"Which?"}"#));
    let run = say(&world, &agents, r#"call user_prompt {"message": "Why?"}"#).await;
    assert_eq!(results(&run), (RunState::Done, r#"heard: {"action":"decline"}"#));
    let run = say(&world, &agents, r#"call user_prompt {"message": " "}"#).await;
    assert_eq!(results(&run), (RunState::Done, r#"heard: "message" must be a text that is not empty"#));
    assert_eq!(*stage.questions.lock().expect("whole"), ["Which?", "Why?"]);
}

#[tokio::test]
async fn a_run_is_executed_by_another_node_that_has_the_agent() {
    let (world, stage, agents) = trusting();
    let run = agents.queue(request(&world, &agents, "hello").await).await.expect("queued");
    let other = node(&world.other_process(), &stage, Trust::All, vec![agent("other"), agent("root")]);
    let ended = other.finish(&run, &CancellationToken::new()).await.expect("ended");
    assert_eq!(results(&ended), (RunState::Done, "heard: hello"));
    let known = agents.finish(&run, &CancellationToken::new()).await.expect("known");
    assert_eq!(known, ended);
    assert_eq!(stage.asked.lock().expect("whole").len(), 1);
}

#[tokio::test]
async fn a_node_without_the_agent_leaves_the_run_and_can_cancel_it() {
    let (world, stage, agents) = trusting();
    let run = agents.queue(request(&world, &agents, "hello").await).await.expect("queued");
    let other = node(&world.other_process(), &stage, Trust::All, vec![agent("other")]);
    let cancel = CancellationToken::new();
    cancel.cancel();
    let ended = other.finish(&run, &cancel).await.expect("ended");
    assert_eq!(ended.state, RunState::Cancelled);
    assert!(stage.asked.lock().expect("whole").is_empty());
    assert_eq!(say(&world, &agents, "again").await.state, RunState::Done);
}

#[tokio::test]
async fn a_run_that_is_cancelled_by_another_process_stops_here() {
    let (world, stage, agents) = trusting();
    let run = agents.queue(request(&world, &agents, "call wait").await).await.expect("queued");
    let never = CancellationToken::new();
    let cancelled = async {
        stage.waits.notified().await;
        world.store().cancel_run(&run.id, crate::world::now()).await.expect("cancelled");
    };
    let (ended, ()) = tokio::join!(agents.finish(&run, &never), cancelled);
    assert_eq!(ended.expect("ended").state, RunState::Cancelled);
    assert_eq!(say(&world, &agents, "again").await.state, RunState::Done);
}

#[tokio::test]
async fn requests_of_two_nodes_are_executed_one_at_a_time_in_order() {
    let (world, stage, agents) = trusting();
    let other = node(&world.other_process(), &stage, Trust::All, vec![agent("root")]);
    let mut runs: Vec<Run> = Vec::new();
    for n in 0..6 {
        let node = if n % 2 == 0 { &agents } else { &other };
        runs.push(node.queue(request(&world, node, &format!("message {n}")).await).await.expect("queued"));
    }
    let never = CancellationToken::new();
    let (one, two) = tokio::join!(agents.finish(&runs[5], &never), other.finish(&runs[4], &never));
    assert_eq!((one.expect("ended").state, two.expect("ended").state), (RunState::Done, RunState::Done));
    let asked: Vec<String> = stage.asked.lock().expect("whole").clone();
    assert_eq!(asked.len(), 6);
    let stored: Vec<RunId> = runs.iter().map(|run| run.id.clone()).collect();
    let mut known = world.store().runs(Some(&id("s1")), 10).await.expect("readable");
    known.reverse();
    assert_eq!(known.iter().map(|run| run.id.clone()).collect::<Vec<_>>(), stored);
    assert!(known.iter().all(|run| run.state == RunState::Done), "{known:?}");
}

#[tokio::test]
async fn a_task_is_confined_like_the_agent_that_gave_it_however_deep() {
    let (world, stage) = (World::new(), Arc::<Stage>::default());
    let above =
        |name: &str, below: &str| Agent { sub_agents: vec![below.parse().expect(below)], ..agent(name) };
    let root = Agent { sandbox: Some(Sandbox::default()), ..above("root", "coder") };
    let agents = node(&world.app, &stage, Trust::All, vec![root, above("coder", "tester"), agent("tester")]);
    let inner = json!({ "agent": "tester", "task": "call act" }).to_string();
    let outer = json!({ "agent": "coder", "task": format!("call transfer_task {inner}") });
    let run = say(&world, &agents, &format!("call transfer_task {outer}")).await;
    assert_eq!(results(&run), (RunState::Done, "heard: heard: heard: acted"));
    assert_eq!(*stage.done.lock().expect("whole"), ["act confined"]);
}

#[tokio::test]
async fn the_answer_to_a_task_is_masked_and_its_transcript_is_not() {
    let (world, stage) = (World::new(), Arc::<Stage>::default());
    let root = Agent { sub_agents: vec!["coder".parse().expect("a name")], ..agent("root") };
    let agents = node(&world.app, &stage, Trust::All, vec![root, agent("coder")]);
    let task = json!({ "agent": "coder", "task": "API_KEY=hunter2hunter2hunter2" });
    let run = say(&world, &agents, &format!("call transfer_task {task}")).await;
    assert_eq!(results(&run), (RunState::Done, "heard: heard: API_KEY=hunter…ter2"));
    let runs = world.store().runs(None, 10).await.expect("readable");
    let child = runs.iter().find(|other| other.id != run.id).expect("the task");
    assert_eq!(results(child), (RunState::Done, "heard: API_KEY=hunter2hunter2hunter2"));
}
