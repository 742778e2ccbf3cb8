//! Agents that run here: a request becomes a durable run, and this node executes it.
//!
//! Whoever accepts a run makes it durable first. A node executes a run while it
//! holds its lease and renews it; when the node dies, the lease ends and another
//! node settles the run. Everything a run records is fenced by its lease.

mod executing;
mod host;
mod node;
mod person;
mod posting;
mod routing;
mod seats;
mod task;
mod toolboxes;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use sess_agent::{
    model::{Model, ModelError},
    tool::Toolbox,
};
use sess_core::{
    AgentId, MessageId, RunId, SessionId, SessionKey, Source,
    agent::{Agent, Effort, ModelSpec, Team, Thinking, ToolsetKind},
    identity::Claim,
    key::SessionKind,
    message::{Body, Provenance, Role},
    permission::Trust,
    policy::{Standing, Verb},
    redact::redact,
    rules::DirectScope,
    run::{BootTime, Errand, Lineage, Run, RunState},
    sandbox::{self, Sandbox},
    session::{NewSession, Runner, Session, ThinkingLevel},
};
use sess_store::{Lease, NewMessage, NewRun, QueuedHere, Store};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{App, Caller, Error, Kind, Result, requests::request_key};

use executing::{Attendance, Leaving};
use seats::{Attended, TakenSeat};

pub use node::Work;
pub use person::{Answer, Nobody, Permission, Person, Place, Question};
pub use posting::Channels;
pub use routing::{Line, split_command};
pub use sess_agent::turn::News;

/// How long a lease lasts when nobody says.
pub const LEASE: Duration = Duration::from_secs(15);
/// How long a waiting node looks away at most.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How many runs of a session are looked through for the one that is next.
const QUEUE_LOOKED_AT: usize = 1_000;
/// How many characters of a first message become a session's title.
const TITLE_CHARS: usize = 80;

/// Opens a model; the binary knows addresses and keys.
pub type OpenModel = dyn Fn(&ModelSpec) -> Result<Arc<dyn Model>, ModelError> + Send + Sync;
/// Opens tools that touch the world; the binary knows directories and programs.
pub type OpenTools = dyn Fn(&WorldTools<'_>) -> Result<Arc<dyn Toolbox>, String> + Send + Sync;

/// Which tools to open, for whom, and how they are confined.
pub struct WorldTools<'a> {
    pub kind: &'a ToolsetKind,
    pub session: &'a SessionId,
    /// Where the session works; a directory that may be gone.
    pub workspace: Option<&'a str>,
    pub sandbox: Option<&'a Sandbox>,
}

/// What it takes to run agents.
pub struct AgentsSetup {
    pub team: Team,
    pub open_model: Box<OpenModel>,
    pub open_tools: Box<OpenTools>,
    pub person: Arc<dyn Person>,
    pub trust: Trust,
    pub lease: Duration,
}

/// The agents of one configuration, on this node. Cheap to clone.
#[derive(Clone)]
pub struct Agents {
    inner: Arc<Inner>,
}

struct Inner {
    app: App,
    setup: AgentsSetup,
    /// This node, as leases and seats name it.
    node: String,
    models: Mutex<HashMap<String, Arc<dyn Model>>>,
    /// Toolboxes that keep something running, which acts for one session.
    toolboxes: Mutex<HashMap<ToolboxPlace, Arc<dyn Toolbox>>>,
    /// Tools that the person allowed until this process ends.
    allowed: Mutex<Vec<String>>,
    /// Sessions that this process executes by itself, and how often it does; its node leaves them alone.
    attended: Attended,
    /// Sessions that a person has open here, and how often.
    seated: Attended,
    /// Where posts go.
    channels: Mutex<Vec<Arc<dyn Channels>>>,
    /// Who is told of runs that nobody here has open.
    onlooker: Mutex<Option<Arc<dyn Person>>>,
}

/// Whose toolbox: in which session, of which agent, and where in its list.
type ToolboxPlace = (SessionId, AgentId, usize);

/// What somebody wants an agent to do.
#[derive(Clone, Debug)]
pub struct Request {
    pub session: NewSession,
    pub agent: AgentId,
    /// What is said; may be empty when there is a note.
    pub text: String,
    /// The session whose words they are; `None` for the person's own.
    pub from: Option<SessionKey>,
    /// What the program tells the agent before that.
    pub note: Option<Body>,
    pub idempotency_key: Option<String>,
}

impl Request {
    /// Returns what tells an agent of a review, and nothing else.
    pub fn review(session: NewSession, review: crate::Review) -> Self {
        let crate::Review { agent, note, .. } = review;
        Self { session, agent, text: String::new(), from: None, note: Some(note), idempotency_key: None }
    }
}

impl App {
    pub fn agents(&self, setup: AgentsSetup) -> Agents {
        let inner = Inner {
            app: self.clone(),
            setup,
            node: format!("{:032x}", self.random()),
            models: Mutex::default(),
            toolboxes: Mutex::default(),
            allowed: Mutex::default(),
            attended: Attended::default(),
            seated: Attended::default(),
            channels: Mutex::default(),
            onlooker: Mutex::default(),
        };
        Agents { inner: Arc::new(inner) }
    }
}

impl Agents {
    pub fn team(&self) -> &Team {
        &self.inner.setup.team
    }

    pub fn app(&self) -> &App {
        &self.inner.app
    }

    /// Lets somebody look on at every run of this node that nobody here has open.
    pub fn look_on(&self, onlooker: Arc<dyn Person>) {
        *self.inner.onlooker.lock().unwrap_or_else(PoisonError::into_inner) = Some(onlooker);
    }

    fn onlooker(&self) -> Option<Arc<dyn Person>> {
        self.inner.onlooker.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn person(&self) -> &Arc<dyn Person> {
        &self.inner.setup.person
    }

    /// Returns the agent that is asked for, or the one that gets first messages.
    pub fn agent(&self, name: Option<&str>) -> Result<&Agent> {
        let Some(name) = name else { return Ok(self.team().entry()) };
        let known = name.parse().ok().and_then(|id: AgentId| self.team().agent(&id));
        known.ok_or_else(|| {
            let names: Vec<&str> = self.team().agents().iter().map(|agent| agent.name.as_str()).collect();
            Error::NotFound(format!("there is no agent \"{name}\"; the agents are: {}", names.join(", ")))
        })
    }

    /// Returns the session to talk in: the one referred to, or a new one.
    ///
    /// What refers to no session but may be an id names a new one.
    pub async fn open_session(
        &self,
        caller: &Caller,
        reference: Option<&str>,
        agent: &AgentId,
    ) -> Result<NewSession> {
        let app = self.app();
        let is_global = app.configured()?.rules.scope == DirectScope::Global;
        let id = match reference {
            // Every direct chat is one.
            None if is_global => return self.open_main(caller, "main").await,
            None => sess_core::id::uuid(app.random()),
            Some("main") => return self.open_main(caller, "main").await,
            // An agent speaks in sessions that it may send to, and in new ones.
            Some(reference) if caller.standing == Standing::Agent => {
                match (app.may_send(caller, reference).await, reference.parse::<SessionId>()) {
                    (Err(error), Ok(id)) if error.kind() == Kind::NotFound => id,
                    (reached, _) => return reached,
                }
            }
            Some(reference) => match app.resolve(caller, reference).await {
                Ok(session) if session.source == Source::Native => return Ok(session.into()),
                Ok(session) => {
                    return Err(Error::Invalid(format!(
                        "session {} belongs to {}: it can be read here, and goes on only there",
                        session.id, session.source
                    )));
                }
                Err(error) if error.kind() == Kind::NotFound => match reference.parse::<SessionId>() {
                    Ok(id) => id,
                    Err(invalid) => match reference.parse::<SessionKey>() {
                        Err(_) => return Err(invalid.into()),
                        Ok(key) if key.kind() == SessionKind::Main => {
                            return self.open_main(caller, reference).await;
                        }
                        Ok(_) => return Err(error),
                    },
                },
                Err(error) => return Err(error),
            },
        };
        if id.is_reserved() {
            return Err(Error::NotFound(format!("Session not found: {id}")));
        }
        let mut new = NewSession::chat(id, Source::Native, app.now());
        new.key = SessionKey::chat(agent, &new.id);
        new.agent = agent.clone();
        new.cwd.clone_from(&app.settings().cwd);
        Ok(new)
    }

    /// Returns the main session of an agent, which is made at its first use.
    async fn open_main(&self, caller: &Caller, reference: &str) -> Result<NewSession> {
        let app = self.app();
        if caller.standing == Standing::Agent {
            return app.may_send(caller, reference).await;
        }
        let reached = app.reach(caller, reference, Verb::Send).await?;
        match reached.session {
            Some(session) => Ok(session.into()),
            None => app.first_use(reached.key),
        }
    }

    /// Returns the session whose words a caller's are; `None` for the person.
    pub async fn speaker(&self, caller: &Caller) -> Result<Option<SessionKey>> {
        Ok(self.app().present(caller).await?.map(|own| own.key))
    }

    /// Queues a request and executes it here, with whatever was queued before it; returns the run as it ended.
    pub async fn say(&self, request: Request, cancel: &CancellationToken) -> Result<Run> {
        self.say_below(request, None, cancel, |_| {}).await
    }

    /// As [`Agents::say`]; `queued` hears of the run once it is stored.
    pub async fn say_told(
        &self,
        request: Request,
        cancel: &CancellationToken,
        queued: impl FnOnce(&Run) + Send,
    ) -> Result<Run> {
        self.say_below(request, None, cancel, queued).await
    }

    /// As [`Agents::say`], for a run that another one asked for.
    async fn say_below(
        &self,
        mut request: Request,
        parent: Option<&Run>,
        cancel: &CancellationToken,
        told: impl FnOnce(&Run) + Send,
    ) -> Result<Run> {
        if request.session.title.is_empty() {
            request.session.title = title(&request.text);
        }
        let _here = self.inner.attended.enter(&request.session.id);
        // Taken with the run: no other node takes what somebody here waits for.
        let seat = TakenSeat::new(self, self.app().store()?, &request.session.id);
        let (run, lease) = (self.new_run(request, parent)?, self.new_lease()?);
        let store = self.app().store()?;
        let QueuedHere { run, is_leased } =
            store.queue_run_seated(run, self.new_seat()?, lease.clone()).await?;
        told(&run);
        let leaving = Leaving { seat: &seat, after: &run.id };
        let leased = is_leased.then_some(lease);
        tokio::select! {
            finished = self.finish_and_leave(&run, leased, cancel, Some(leaving)) => finished,
            () = seat.keep() => unreachable!("a seat is kept until it is given up"),
        }
    }

    /// Makes a request durable.
    pub async fn queue(&self, request: Request) -> Result<Run> {
        let run = self.new_run(request, None)?;
        Ok(self.app().store()?.queue_run(run).await?)
    }

    /// Writes the run that a request is.
    fn new_run(&self, request: Request, parent: Option<&Run>) -> Result<NewRun> {
        let app = self.app();
        let at = app.now();
        if request.text.trim().is_empty() && request.note.is_none() {
            return Err(Error::Invalid("there is nothing to say: the message is empty".to_owned()));
        }
        if request.session.facts.runner == Runner::Host {
            return Err(Error::Invalid(format!(
                "session {id} is run by another program, so no agent here can go on with it; `sess send {id}` \
                 leaves a message in its inbox",
                id = request.session.id
            )));
        }
        let id = RunId::new(app.random());
        let mut messages: Vec<NewMessage> = Vec::new();
        let mut add = |body: Body| messages.push(app.new_message(&id, body));
        let parts = ["run", request.session.id.as_str(), request.agent.as_str(), &request.text];
        let key = request_key(request.idempotency_key.as_deref(), &parts)?;
        let mut session = request.session;
        if session.title.is_empty() {
            session.title = title(&request.text);
        }
        if let Some(note) = request.note {
            add(note);
        }
        if !request.text.trim().is_empty() {
            let mut said = Body::text(Role::User, request.text, at);
            said.provenance = Some(match request.from {
                None => Provenance::ExternalUser,
                Some(source_session_key) => Provenance::InterSession {
                    source_session_key,
                    source_channel: None,
                    source_tool: Some("run".to_owned()),
                },
            });
            add(said);
        }
        Ok(NewRun {
            session,
            agent: request.agent,
            at,
            messages,
            key,
            errand: Errand::Message,
            lineage: parent.map_or_else(|| Lineage::first(&id), Lineage::below),
            caps: Vec::new(),
            id,
        })
    }

    /// Executes the runs of a session until this one has ended, here or elsewhere.
    pub async fn finish(&self, run: &Run, cancel: &CancellationToken) -> Result<Run> {
        self.finish_and_leave(run, None, cancel, None).await
    }

    /// As [`Agents::finish`], for a run that may be `leased` already.
    async fn finish_and_leave(
        &self,
        run: &Run,
        leased: Option<Lease>,
        cancel: &CancellationToken,
        leaving: Option<Leaving<'_>>,
    ) -> Result<Run> {
        let app = self.app();
        let store = app.store()?;
        let names = self.names();
        let _here = self.inner.attended.enter(&run.session);
        let attendance = Attendance::in_person(self, leaving);
        let mut changes = store.changes();
        let mut blocked_since: Option<Instant> = None;
        let (begun, mut was_told) = (Instant::now(), false);
        if let Some(lease) = leased {
            self.execute(&*store, run.clone(), lease, &cancel.child_token(), &attendance).await?;
        }
        loop {
            changes.mark_unchanged();
            store.settle_lapsed_runs(&sess_store::boot_time()?, app.now()).await?;
            let current = store.run(&run.id).await?;
            let current = current.ok_or_else(|| Error::NotFound(format!("run {} is gone", run.id)))?;
            if current.state.has_ended() {
                return Ok(current);
            }
            if cancel.is_cancelled() && !current.is_cancelled {
                store.cancel_run(&run.id, app.now()).await?;
                continue;
            }
            let lease = self.new_lease()?;
            if let Some(leased) = store.lease_run(&run.session, &names, lease.clone(), app.now()).await? {
                // Who gives up on their own run has no say about one that was queued before it.
                let stop = if leased.id == run.id { cancel.child_token() } else { CancellationToken::new() };
                self.execute(&*store, leased, lease, &stop, &attendance).await?;
                continue;
            }
            let until = store.running_until(&run.session).await?;
            match self.blocker(&*store, &run.session).await? {
                Some(other) if until.is_none() => {
                    let since = *blocked_since.get_or_insert_with(Instant::now);
                    if since.elapsed() > self.inner.setup.lease {
                        store.cancel_run(&run.id, app.now()).await?;
                        return Err(Error::Unavailable(format!(
                            "run {} of session {} is first, and its agent \"{}\" is not configured here: \
                             this message was cancelled",
                            other.id, other.session, other.agent
                        )));
                    }
                }
                _ => blocked_since = None,
            }
            if begun.elapsed() > LOOK_AGAIN && current.state == RunState::Queued && !was_told {
                was_told = true;
                let why = match &until {
                    Some(_) => "another run of this session goes on, or its process died a moment ago",
                    None => "another run of this session is first",
                };
                let place = Place {
                    session: run.session.clone(),
                    run: run.id.clone(),
                    agent: run.agent.clone(),
                    depth: 0,
                };
                self.person().tell(&place, &News::Waiting { why: why.to_owned() });
            }
            let patience = match until {
                Some(until) => {
                    let now = sess_store::boot_time()?;
                    Duration::from_millis(until.millis.saturating_sub(now.millis) + 1).min(LOOK_AGAIN)
                }
                None => LOOK_AGAIN,
            };
            tokio::select! {
                _ = changes.changed() => {}
                () = tokio::time::sleep(patience) => {}
                () = cancel.cancelled(), if !current.is_cancelled => {}
            }
        }
    }

    /// Returns the run that is next in a session, when its agent is none of ours.
    async fn blocker(&self, store: &dyn Store, session: &SessionId) -> Result<Option<Run>> {
        let queued = store.runs(Some(session), QUEUE_LOOKED_AT).await?;
        let oldest = queued.into_iter().rfind(|run| run.state == RunState::Queued);
        Ok(oldest.filter(|run| self.team().agent(&run.agent).is_none()))
    }

    /// Returns the agents that this node can run.
    fn names(&self) -> Vec<AgentId> {
        self.team().agents().iter().map(|agent| agent.name.clone()).collect()
    }

    fn new_lease(&self) -> Result<Lease> {
        let token = format!("{:032x}", self.app().random());
        Ok(Lease { token, node: self.inner.node.clone(), until: self.lease_end()? })
    }

    fn lease_end(&self) -> Result<BootTime, sess_store::Error> {
        let millis = u64::try_from(self.inner.setup.lease.as_millis()).unwrap_or(u64::MAX);
        Ok(sess_store::boot_time()?.plus(millis))
    }

    /// Returns what an agent's turns in a session ask: its own model, unless the session has another.
    fn model_spec(&self, session: &Session, agent: &Agent) -> Result<ModelSpec> {
        let team = self.team();
        let mut spec = match &session.facts.model {
            None => team.model_of(agent).clone(),
            Some(name) => {
                let named = team.models().iter().find(|model| model.name == *name);
                let gone = || {
                    Error::Unavailable(format!("the model \"{name}\" of this session is not configured here"))
                };
                named.ok_or_else(gone)?.clone()
            }
        };
        if let Some(level) = session.facts.thinking {
            spec.thinking = match level {
                ThinkingLevel::Off => Thinking::Off,
                ThinkingLevel::Minimal => Thinking::Effort(Effort::Minimal),
                ThinkingLevel::Low => Thinking::Effort(Effort::Low),
                ThinkingLevel::Medium => Thinking::Effort(Effort::Medium),
                ThinkingLevel::High => Thinking::Effort(Effort::High),
            };
        }
        Ok(spec)
    }

    fn model(&self, spec: &ModelSpec) -> Result<Arc<dyn Model>, ModelError> {
        // The same model may be asked to think more or less.
        let kept_as = format!("{} {:?}", spec.name, spec.thinking);
        let mut models = self.inner.models.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(model) = models.get(&kept_as) {
            return Ok(Arc::clone(model));
        }
        let model = (self.inner.setup.open_model)(spec)?;
        models.insert(kept_as, Arc::clone(&model));
        Ok(model)
    }

    /// Ends what toolboxes keep running for a session.
    fn close_toolboxes(&self, session: &SessionId) {
        let mut kept = self.inner.toolboxes.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(of, _, _), _| of != session);
    }

    /// Returns the caller that an agent's tools act as.
    fn caller_of(&self, session: &Session, run: &Run, agent: &AgentId, sandbox: Option<&Sandbox>) -> Caller {
        let mut caller = self.app().caller(&crate::Signals::default());
        caller.identity.session = Claim::Id(session.id.clone(), session.source);
        caller.agent = agent.clone();
        caller.run = Some(Box::new(run.clone()));
        caller.is_sandboxed = sandbox.is_some();
        if sandbox.is_some_and(|sandbox| sandbox.session_tools == sandbox::SessionTools::Spawned) {
            caller.confinement = sess_core::policy::Confinement::Sandboxed;
        }
        caller
    }
}

/// Returns what a new session is called: the beginning of what was said first.
pub(crate) fn title(text: &str) -> String {
    // Before it is cut: half a secret is not known for one.
    let (text, _) = redact(text);
    let line = text.trim().lines().next().unwrap_or_default();
    match line.char_indices().nth(TITLE_CHARS) {
        Some((end, _)) => format!("{}…", line[..end].trim_end()),
        None => line.to_owned(),
    }
}

impl App {
    /// Returns how an agent is confined in a session: never freer than anybody above it.
    pub(crate) async fn sandbox(
        &self,
        team: &Team,
        session: &Session,
        agent: &Agent,
    ) -> Result<Option<Sandbox>> {
        let of = |name: &AgentId| team.agent(name).map(|agent| agent.sandbox.clone());
        let mut sandbox = agent.sandbox.clone();
        if let Some(begun_with) = session.key.agent().and_then(|name| of(&name)) {
            sandbox = sandbox::inherited(begun_with.as_ref(), sandbox.as_ref());
        }
        for above in self.ancestors(session).await? {
            // Another program's agent is as free as that program, which answers for it.
            if above.facts.runner == Runner::Host {
                continue;
            }
            // The agent it was begun with, and the one that is active: it may have given the task.
            let names = above.key.agent().into_iter().chain([above.agent.clone()]);
            let mut known: Vec<Option<Sandbox>> = names.filter_map(|name| of(&name)).collect();
            if known.is_empty() {
                // Nobody knows how free an agent was that is not configured here.
                known.push(Some(Sandbox::default()));
            }
            for confined in known {
                sandbox = sandbox::inherited(confined.as_ref(), sandbox.as_ref());
            }
        }
        Ok(sandbox)
    }

    /// Gives a message its id, and says which run it belongs to.
    pub(crate) fn new_message(&self, run: &RunId, mut body: Body) -> NewMessage {
        body.run_id = Some(run.to_string());
        NewMessage { id: MessageId::new(body.timestamp, self.random()), body }
    }
}
