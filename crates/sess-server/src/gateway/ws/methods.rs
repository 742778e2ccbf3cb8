//! What can be asked for: one table of names, rights and what is done.

use std::{pin::Pin, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use sess_app::{
    Access, Caller, Chat, ChatTo, Chatted, ListRows, ListRuns, Others, Redaction, ReviewPlan, Through,
};
use sess_core::{RunId, policy::Verb};
use sess_protocol::{
    frames::{ResponseFrame, ResponseType},
    methods::{
        AgentAccepted, AgentRequest, AgentWait, ChatAbort, ChatAborted, ChatHistory, ChatSend, ChatSent,
        ChatStatus, Deleted,
    },
    plans::{GetPlan, ReviewPlan as Review},
    runs::{ListRuns as RunsWanted, RunRow, Runs, WaitStatus},
    sessions::{ListSessions, OneSession, PatchSession, Resolved, SessionScope},
    tokens::Scope,
};
use tokio::sync::mpsc;

use super::{
    super::{
        errors::Problem,
        http::{
            history::{self, PAGE_LEN, PAGE_LEN_MAX},
            plans, runs,
            sessions::ROWS_MAX,
            unseen,
        },
        reading,
        state::State,
    },
    connection::Out,
    error_frame,
    events::Event,
    subscriptions::Change,
};

/// How many of a session's last messages a preview has.
const PREVIEW_LEN: u64 = 5;
/// How long an outcome is waited for before it is looked for anew.
const OUTCOME_WITHIN: Duration = Duration::from_secs(600);
/// How much of an unknown name is repeated.
const NAME_BYTES_MAX: usize = 100;

pub(super) struct Method {
    pub(super) name: &'static str,
    pub(super) scope: Scope,
    pub(super) does: Does,
}

pub(super) enum Does {
    /// Something about the connection itself, done in the order in which it is asked for.
    Subscription(Change),
    /// Anything else, done beside what comes next.
    Task(fn(Ask) -> Doing),
}

/// A payload as JSON, or why there is none.
pub(super) type Answer = Result<Box<RawValue>, Problem>;
/// An answer, and what is still to be done once it is given.
type Doing = Pin<Box<dyn Future<Output = (Answer, Option<After>)> + Send>>;
type After = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A request on its way.
pub(super) struct Ask {
    pub(super) state: Arc<State>,
    pub(super) access: Access,
    pub(super) caller: Caller,
    pub(super) method: &'static str,
    pub(super) params: Option<Box<RawValue>>,
    pub(super) out: mpsc::Sender<Out>,
}

/// No parameters.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

macro_rules! task {
    ($function:ident) => {
        Does::Task(|ask| Box::pin(async move { ($function(ask).await, None) }))
    };
}

pub(super) static METHODS: [Method; 20] = [
    read_method("sessions.list", task!(list)),
    read_method("sessions.get", task!(get)),
    read_method("sessions.resolve", task!(resolve)),
    read_method("sessions.preview", task!(preview)),
    read_method("sessions.subscribe", Does::Subscription(Change::FollowAll)),
    read_method("sessions.unsubscribe", Does::Subscription(Change::LeaveAll)),
    read_method("sessions.messages.subscribe", Does::Subscription(Change::Follow)),
    read_method("sessions.messages.unsubscribe", Does::Subscription(Change::Leave)),
    read_method("chat.history", task!(chat_history)),
    Method { name: "chat.send", scope: Scope::Write, does: task!(chat_send) },
    Method { name: "chat.abort", scope: Scope::Write, does: task!(chat_abort) },
    Method { name: "agent", scope: Scope::Write, does: Does::Task(|ask| Box::pin(agent(ask))) },
    read_method("agent.wait", task!(agent_wait)),
    Method { name: "sessions.patch", scope: Scope::Admin, does: task!(patch) },
    Method { name: "sessions.reset", scope: Scope::Admin, does: task!(reset) },
    Method { name: "sessions.delete", scope: Scope::Admin, does: task!(delete) },
    read_method("plans.get", task!(plan)),
    Method { name: "plans.review", scope: Scope::Review, does: task!(review) },
    read_method("runs.list", task!(list_runs)),
    read_method("agents.list", task!(agents)),
];

const fn read_method(name: &'static str, does: Does) -> Method {
    Method { name, scope: Scope::Read, does }
}

/// Returns the method of a name.
pub(super) fn find(name: &str) -> Result<&'static Method, Problem> {
    if name == "connect" {
        return Err(Problem::invalid("connect is the first request of a connection, and was answered"));
    }
    let unknown = || {
        let end = name.floor_char_boundary(NAME_BYTES_MAX);
        Problem::invalid(format!("unknown method: {}", &name[..end]))
    };
    METHODS.iter().find(|method| method.name == name).ok_or_else(unknown)
}

/// Reads parameters, and says where they are wrong.
pub(super) fn read<T: DeserializeOwned>(method: &str, params: Option<&RawValue>) -> Result<T, Problem> {
    // Nothing at all is no parameters.
    let text = params.map_or("{}", RawValue::get);
    reading::object(text.as_bytes()).map_err(|reading::Wrong { place, what }| {
        let place = if place.is_empty() { "params" } else { place.as_str() };
        Problem::invalid(format!("invalid {method} params: {place}: {what}"))
    })
}

pub(super) fn json(payload: &impl Serialize) -> Box<RawValue> {
    serde_json::value::to_raw_value(payload).expect("texts are JSON")
}

pub(super) fn answer_frame(id: String, answer: Answer) -> String {
    match answer {
        Ok(payload) => {
            let (r#type, payload) = (ResponseType::Res, Some(payload));
            let frame = ResponseFrame { r#type, id, ok: true, payload, error: None };
            serde_json::to_string(&frame).expect("texts are JSON")
        }
        Err(problem) => error_frame(id, &problem),
    }
}

impl Ask {
    fn read<T: DeserializeOwned>(&mut self) -> Result<T, Problem> {
        // Not kept for as long as the answer takes.
        let params = self.params.take();
        read(self.method, params.as_deref())
    }

    /// Refuses one parameter.
    fn invalid(&self, place: &str, what: &str) -> Problem {
        Problem::invalid(format!("invalid {} params: {place}: {what}", self.method))
    }

    /// Reads a number, or says what it must be.
    fn number(&self, place: &str, given: Option<u64>, least: u64, most: u64) -> Result<Option<u64>, Problem> {
        match given {
            Some(number) if !(least..=most).contains(&number) => {
                Err(self.invalid(place, &format!("must be from {least} to {most}, not {number}")))
            }
            given => Ok(given),
        }
    }

    /// Refuses what the caller may not see as what is not there.
    async fn reach(&self, given: &str, verb: Verb) -> Result<(), Problem> {
        let seen = self.state.app.in_sight(&self.caller, given, verb).await;
        seen.map_err(|error| unseen(error, given))
    }
}

async fn list(mut ask: Ask) -> Answer {
    let wanted: ListSessions = ask.read()?;
    let is_allowed = |limit: i64| u64::try_from(limit).is_ok_and(|limit| (1..=ROWS_MAX).contains(&limit));
    if let Some(limit) = wanted.limit.filter(|limit| !is_allowed(*limit)) {
        return Err(ask.invalid("limit", &format!("must be from 1 to {ROWS_MAX}, not {limit}")));
    }
    let rows = ListRows {
        kinds: wanted.kinds.unwrap_or_default(),
        limit: wanted.limit,
        active_minutes: wanted.active_minutes,
        message_limit: wanted.message_limit,
        offset: wanted.offset.unwrap_or(0),
        search: wanted.search,
        agent: wanted.agent,
        with_archived: wanted.archived.unwrap_or(false),
        sources: wanted.source.unwrap_or_default(),
        scope: match wanted.scope.unwrap_or_default() {
            SessionScope::Repo => sess_app::Scope::Repo,
            SessionScope::All => sess_app::Scope::All,
        },
        others: Others::Included,
    };
    Ok(json(&ask.state.app.session_rows(&ask.caller, &rows).await?))
}

async fn row(ask: &Ask, given: &str, messages: u64) -> Answer {
    let row = ask.state.app.session_row(&ask.caller, given, messages).await;
    Ok(json(&row.map_err(|error| unseen(error, given))?))
}

async fn get(mut ask: Ask) -> Answer {
    let OneSession { key } = ask.read()?;
    row(&ask, &key, 0).await
}

async fn preview(mut ask: Ask) -> Answer {
    let OneSession { key } = ask.read()?;
    row(&ask, &key, PREVIEW_LEN).await
}

async fn resolve(mut ask: Ask) -> Answer {
    let OneSession { key } = ask.read()?;
    let row = ask.state.app.session_row(&ask.caller, &key, 0).await;
    let row = row.map_err(|error| unseen(error, &key))?;
    Ok(json(&Resolved { key: row.key, session_id: row.session_id }))
}

async fn chat_history(mut ask: Ask) -> Answer {
    let wanted: ChatHistory = ask.read()?;
    let limit = ask.number("limit", wanted.limit.map(u64::from), 1, PAGE_LEN_MAX)?.unwrap_or(PAGE_LEN);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let with_tools = wanted.include_tools.unwrap_or(false);
    let (state, caller, given) = (&ask.state, &ask.caller, wanted.session_key.as_str());
    let page = history::page(state, caller, given, wanted.cursor.as_deref(), limit, with_tools).await?;
    Ok(json(&history::rendered(state, page)))
}

async fn chat_send(mut ask: Ask) -> Answer {
    let wanted: ChatSend = ask.read()?;
    ask.reach(&wanted.session_key, Verb::Send).await?;
    let named = wanted.attachments.unwrap_or_default();
    let files = named.iter().map(|id| ask.state.attachments.get(&ask.access, id));
    let files = files.collect::<Result<_, _>>()?;
    let chat = Chat {
        to: ChatTo::Session(wanted.session_key),
        message: wanted.message,
        files,
        idempotency_key: Some(wanted.idempotency_key),
        through: Through::Webchat,
    };
    let Chatted { run, is_new, has_ended, .. } = ask.state.app.chat(&ask.caller, chat).await?;
    let status = match (is_new, has_ended) {
        (true, _) => ChatStatus::Started,
        (false, false) => ChatStatus::InFlight,
        (false, true) => ChatStatus::Ok,
    };
    Ok(json(&ChatSent { run_id: run.to_string(), status }))
}

async fn chat_abort(mut ask: Ask) -> Answer {
    let wanted: ChatAbort = ask.read()?;
    let stopped = ask.state.app.abort(&ask.caller, &wanted.session_key, wanted.run_id.as_deref()).await;
    let stopped = stopped.map_err(|error| unseen(error, &wanted.session_key))?;
    Ok(json(&ChatAborted { run_ids: stopped.iter().map(ToString::to_string).collect() }))
}

/// Starts a run, answers at once, and tells the outcome when there is one.
async fn agent(mut ask: Ask) -> (Answer, Option<After>) {
    match accept(&mut ask).await {
        Err(problem) => (Err(problem), None),
        Ok(chatted) => {
            let accepted = AgentAccepted {
                run_id: chatted.run.to_string(),
                status: "accepted".to_owned(),
                session_key: chatted.key,
            };
            (Ok(json(&accepted)), Some(Box::pin(tell_outcome(ask, chatted.run))))
        }
    }
}

async fn accept(ask: &mut Ask) -> Result<Chatted, Problem> {
    let wanted: AgentRequest = ask.read()?;
    let to = match (wanted.session_key, wanted.agent_id) {
        (Some(key), None) => {
            ask.reach(&key, Verb::Send).await?;
            ChatTo::Session(key)
        }
        (None, Some(agent)) => {
            let name = agent
                .parse()
                .map_err(|_| ask.invalid("agentId", &format!("{agent:?} is no agent's name")))?;
            ChatTo::Agent(name)
        }
        (None, None) => return Err(ask.invalid("sessionKey", "give a session or an agentId")),
        (Some(_), Some(_)) => return Err(ask.invalid("agentId", "give it or a sessionKey, not both")),
    };
    let (message, idempotency_key) = (wanted.message, Some(wanted.idempotency_key));
    let chat = Chat { to, message, files: Vec::new(), idempotency_key, through: Through::Program };
    Ok(ask.state.app.chat(&ask.caller, chat).await?)
}

async fn tell_outcome(ask: Ask, run: RunId) {
    loop {
        let outcome = match ask.state.app.outcome(&ask.caller, &run, OUTCOME_WITHIN).await {
            Ok(outcome) => outcome,
            Err(error) => {
                tracing::warn!(%error, %run, "the outcome of a run cannot be told");
                return;
            }
        };
        if ask.caller.gone.is_cancelled() {
            return;
        }
        if outcome.status != WaitStatus::Timeout {
            // Nobody reads it when the connection has ended.
            let _sent = ask.out.send(Out::Event(Event::new("agent", &outcome))).await;
            return;
        }
    }
}

async fn agent_wait(mut ask: Ask) -> Answer {
    let wanted: AgentWait = ask.read()?;
    let timeout = ask.number("timeoutMs", wanted.timeout_ms, 0, runs::WAIT_MS_MAX)?.unwrap_or(runs::WAIT_MS);
    let app = &ask.state.app;
    let run = app.find_run(&ask.caller, &wanted.run_id, Redaction::Masked).await?;
    Ok(json(&app.outcome(&ask.caller, &run.id, Duration::from_millis(timeout)).await?))
}

async fn patch(mut ask: Ask) -> Answer {
    let wanted: PatchSession = ask.read()?;
    let patch = sess_app::PatchSession {
        send_policy: wanted.send_policy,
        model: wanted.model,
        thinking_level: wanted.thinking_level,
        verbose_level: wanted.verbose_level,
        display_name: wanted.display_name,
        label: wanted.label,
        archived: wanted.archived,
        starred: wanted.starred,
    };
    ask.reach(&wanted.key, Verb::Status).await?;
    let session = ask.state.app.patch_session(&ask.caller, &wanted.key, patch).await?;
    row(&ask, session.id.as_str(), 0).await
}

async fn reset(mut ask: Ask) -> Answer {
    let OneSession { key } = ask.read()?;
    ask.reach(&key, Verb::Status).await?;
    let session = ask.state.app.reset_session(&ask.caller, &key).await?;
    row(&ask, session.id.as_str(), 0).await
}

async fn delete(mut ask: Ask) -> Answer {
    let OneSession { key } = ask.read()?;
    ask.reach(&key, Verb::Status).await?;
    ask.state.app.delete_session(&ask.caller, &key).await?;
    Ok(json(&Deleted { deleted: true, key }))
}

async fn plan(mut ask: Ask) -> Answer {
    let GetPlan { session_key, revision } = ask.read()?;
    let view = ask.state.app.plan_view(&ask.caller, &session_key, revision).await;
    Ok(json(&view.map_err(|error| unseen(error, &session_key))?))
}

async fn review(mut ask: Ask) -> Answer {
    let Review { session_key, revision, decision, note } = ask.read()?;
    ask.reach(&session_key, Verb::Send).await?;
    let review = ReviewPlan { verdict: plans::verdict(decision), revision: Some(revision), note };
    let answer = ask.state.app.review_plan_of(&ask.caller, &session_key, review).await?;
    Ok(json(&plans::state(answer)))
}

async fn list_runs(mut ask: Ask) -> Answer {
    let wanted: RunsWanted = ask.read()?;
    ask.number("limit", wanted.limit.map(|limit| limit as u64), 1, runs::RUNS_MAX)?;
    let session = wanted.session.clone().unwrap_or_default();
    let as_tree = wanted.tree.unwrap_or(false);
    let list =
        ListRuns { session: wanted.session, limit: wanted.limit, as_tree, redaction: Redaction::Masked };
    let rows = ask.state.app.runs(&ask.caller, &list).await.map_err(|error| unseen(error, &session))?;
    Ok(json(&Runs { runs: rows.into_iter().map(RunRow::from).collect() }))
}

async fn agents(mut ask: Ask) -> Answer {
    let Nothing {} = ask.read()?;
    Ok(json(&ask.state.app.configured_agents(&ask.caller)?))
}
