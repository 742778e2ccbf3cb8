//! Messages between sessions: send, wait, and the inbox of sessions that we do not run.

use std::{fmt::Display, time::Duration};

use schemars::JsonSchema;
use serde::Serialize;
use sess_core::{
    MessageId, RunId, SessionKey,
    exchange::words,
    message::{Body, Provenance, Role},
    policy::Verb,
    rules::{MESSAGE_BYTES_MAX, SessionLimits},
    run::{Delivery, Errand, InvalidRunId, Lineage, Run, RunState, Send},
    session::{NewSession, Runner, Sending, Session},
};
use sess_protocol::{
    runs::{WaitStatus, Waited},
    sessions::SendAnswer,
};
use sess_store::{Cap, Full, NewMessage, NewRun, Process, SessionPatch, Store};
use tokio::time::Instant;

use crate::{
    App, Caller, Error, Redaction, Result,
    context::{allowed, plain},
    reach::Outlook,
    requests::request_key,
    runs::{no_run, shown},
    sessions::may_manage,
};

/// How many messages of an inbox are handed over when nobody says, and at most.
const INBOX_LEN: i64 = 50;
const INBOX_LEN_MAX: i64 = 200;
/// How long a waiting caller looks away at most.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Clients that give up on a call after a few seconds, and how long they wait when they do not say.
const IMPATIENT_CLIENT: &str = "opencode";
const IMPATIENT_WAIT_SECONDS: u64 = 4;

/// How long a sender waits for a reply when it does not say.
pub const WAIT_SECONDS: u64 = 30;
/// The longest that a sender waits.
pub const WAIT_SECONDS_MAX: u64 = 600;

#[derive(Clone, Debug, Default)]
pub struct SendMessage {
    /// A key or an id.
    pub to: String,
    pub message: String,
    /// 0 waits for nothing; [`WAIT_SECONDS`], or less for an impatient host, when not given.
    pub timeout_seconds: Option<u64>,
    pub idempotency_key: Option<String>,
    /// Of the reply.
    pub redaction: Redaction,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Inbox {
    pub messages: Vec<InboxMessage>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InboxMessage {
    pub run_id: String,
    /// The key of the session that sent it; `owner` for the person.
    pub from: String,
    pub message: String,
    /// Milliseconds.
    pub received_at: i64,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Replied {
    pub run_id: String,
    pub status: &'static str,
    #[schemars(with = "String")]
    pub delivery: Delivery,
}

impl App {
    /// Sends a message into another session, and waits for its reply as long as is asked for.
    pub async fn send(&self, caller: &Caller, ask: SendMessage) -> Result<SendAnswer> {
        self.send_told(caller, ask, |_| {}).await
    }

    /// As [`Self::send`]; `queued` hears of the run once it is stored.
    pub async fn send_told(
        &self,
        caller: &Caller,
        ask: SendMessage,
        queued: impl FnOnce(&Run),
    ) -> Result<SendAnswer> {
        check_message(&ask.message)?;
        let seconds = ask.timeout_seconds.unwrap_or_else(|| patience(caller));
        if seconds > WAIT_SECONDS_MAX {
            return Err(no_wait(seconds));
        }
        let outlook = self.outlook(caller).await?;
        let target = self.target(&outlook, &ask.to).await?;
        let session_key = outlook.configured.shown(&target.key);
        let awaited_by = if seconds > 0 { Some(sess_store::this_process()?) } else { None };
        let run = self.new_send(caller, &outlook, target, &ask, awaited_by).await?;
        let store = self.store()?;
        let answer = |run: &Run, status, error| {
            let run = shown(run.clone(), allowed(caller, ask.redaction));
            answer(&run, session_key.clone(), status, error)
        };
        let run = store.queue_run(run).await.map_err(|error| refused("sessions_send", error))?;
        queued(&run);
        let run = match seconds {
            0 => return Ok(answer(&run, Some("accepted"), None)),
            _ => {
                let until = Instant::now() + Duration::from_secs(seconds);
                self.watch(&*store, &run.id, Some(until), caller).await?
            }
        };
        // What was committed in the very last moment is the answer; otherwise the reply will have to
        // find its way to the sender.
        let run = if run.state.has_ended() { run } else { store.stop_waiting(&run.id).await? };
        if run.state.has_ended() {
            return Ok(answer(&run, None, None));
        }
        let why = match caller.gone.is_cancelled() {
            true => "nobody waits for the reply any longer".to_owned(),
            false => format!("no reply within {seconds} s"),
        };
        let late = format!("{why}; the run continues, read it with sessions_history");
        Ok(answer(&run, Some("timeout"), Some(late)))
    }

    /// Waits until a run has ended, at most `timeout`; returns it as it stands then.
    ///
    /// Whoever sees the run may wait for it.
    pub async fn wait_for(
        &self,
        caller: &Caller,
        run: &RunId,
        timeout: Option<Duration>,
        redaction: Redaction,
    ) -> Result<Run> {
        let run = self.find_run(caller, run.as_str(), redaction).await?;
        if run.state.has_ended() {
            return Ok(run);
        }
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let ended = self.watch(&*self.store()?, &run.id, until, caller).await?;
        Ok(shown(ended, allowed(caller, redaction)))
    }

    /// Waits until a run has ended, at most `timeout`, and says how it stands then.
    pub async fn outcome(&self, caller: &Caller, run: &RunId, timeout: Duration) -> Result<Waited> {
        let run = self.wait_for(caller, run, Some(timeout), Redaction::Masked).await?;
        Ok(waited(&run))
    }

    /// Asks a run to stop.
    pub async fn cancel(&self, caller: &Caller, run: &RunId, redaction: Redaction) -> Result<Run> {
        let run = self.find_run(caller, run.as_str(), redaction).await?;
        let run = self.store()?.cancel_run(&run.id, self.now()).await?;
        Ok(shown(run, allowed(caller, redaction)))
    }

    /// Returns what was sent to the calling session and is not answered yet.
    pub async fn inbox(&self, caller: &Caller, limit: Option<i64>) -> Result<Inbox> {
        let limit = limit.unwrap_or(INBOX_LEN).clamp(1, INBOX_LEN_MAX);
        let outlook = self.outlook(caller).await?;
        let own = own_inbox(&outlook)?;
        // What is sent to a session that runs here becomes a turn of it.
        if own.facts.runner == Runner::Here {
            return Ok(Inbox { messages: Vec::new() });
        }
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let store = self.store()?;
        // No node may be there to do it: late replies are on their way here.
        self.settle_ended(&*store).await?;
        let items = store.open_inbox(&own.id, limit, self.now()).await?;
        let messages = items.into_iter().map(|item| InboxMessage {
            run_id: item.run.id.to_string(),
            from: match &item.provenance {
                Some(Provenance::InterSession { source_session_key, .. }) => {
                    outlook.configured.shown(source_session_key)
                }
                Some(Provenance::ExternalUser) | None => "owner".to_owned(),
                Some(Provenance::InternalSystem) => "system".to_owned(),
            },
            message: plain(&item.message),
            received_at: item.run.queued_at.as_millis(),
        });
        Ok(Inbox { messages: messages.collect() })
    }

    /// Answers a message of the inbox, once.
    pub async fn reply(&self, caller: &Caller, run: &str, message: &str) -> Result<Replied> {
        check_message(message)?;
        let outlook = self.outlook(caller).await?;
        let own = own_inbox(&outlook)?;
        let id: RunId = run.trim().parse().map_err(|InvalidRunId(given)| no_run(&given))?;
        let store = self.store()?;
        let found = store.run(&id).await?;
        let is_own = |run: &Run| run.session == own.id && own.facts.runner == Runner::Host;
        let found = found.filter(is_own).ok_or_else(|| no_run(id.as_str()))?;
        if found.state.has_ended() {
            return Err(answered(&found));
        }
        let at = self.now();
        let mut body = Body::text(Role::Assistant, message, at);
        body.agent_id = Some(own.agent.clone());
        let reply = self.new_message(&id, body);
        match store.reply_to(&id, &own.id, reply, at).await {
            Ok(run) => {
                self.settle_one(&*store, &run.id).await;
                Ok(Replied { run_id: run.id.to_string(), status: "ok", delivery: run.delivery() })
            }
            // Somebody else was first, between our look and our reply.
            Err(sess_store::Error::Conflict(reason)) => match store.run(&id).await? {
                Some(run) if run.state.has_ended() => Err(answered(&run)),
                _ => Err(sess_store::Error::Conflict(reason).into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// `/send on|off|inherit`: the owner's own word about sending in a session.
    pub async fn set_send_policy(
        &self,
        caller: &Caller,
        session: &Session,
        policy: Option<Sending>,
    ) -> Result<Session> {
        may_manage(caller, "change whether messages are sent into a session")?;
        let patch = SessionPatch::SendPolicy(policy);
        Ok(self.store()?.patch_session(&session.id, patch, self.now()).await?)
    }

    /// Finds the session that `to` names, if this caller may send to it now.
    pub(crate) async fn may_send(&self, caller: &Caller, to: &str) -> Result<NewSession> {
        self.target(&self.outlook(caller).await?, to).await
    }

    /// Finds the session that a message may go to now.
    pub(crate) async fn target(&self, outlook: &Outlook, to: &str) -> Result<NewSession> {
        let reached = self.stored_one(outlook, to, Verb::Send).await?;
        if outlook.own.as_ref().is_some_and(|own| own.key == reached.key) {
            return Err(Error::Invalid("sessions_send cannot target the calling session".to_owned()));
        }
        let store = self.store()?;
        let shown = outlook.configured.shown(&reached.key);
        // A message goes to an address, and so to the newest transcript behind it.
        let newest = store.session_by_key(&reached.key).await?;
        if let Some(archived) = newest.as_ref().filter(|session| session.archived_at.is_some()) {
            return Err(Error::NotFound(format!(
                "Session is archived: {shown}. The owner can bring it back with `sess unarchive {}`; until \
                 then it can only be read.",
                archived.id
            )));
        }
        let target = match newest {
            Some(session) => NewSession::from(session),
            None => self.first_use(reached.key)?,
        };
        let is_configured = || {
            let team = outlook.configured.team.as_ref();
            team.is_some_and(|team| team.agent(&target.agent).is_some())
        };
        if target.facts.runner == Runner::Here && !is_configured() && store.seat(&target.id).await?.is_none()
        {
            return Err(Error::NotFound(format!(
                "nobody would answer: the agent \"{}\" of session {shown} is not configured, and nobody has \
                 that session open",
                target.agent
            )));
        }
        let policy = &outlook.configured.rules.send_policy;
        match policy.decide(target.facts.send_policy, &target.key, channel(&target)) {
            Sending::Allow => Ok(target),
            Sending::Deny => Err(Error::Denied("send blocked by session policy".to_owned())),
        }
    }

    /// Writes the run that a message is in its target. Who sent it is ours to say.
    pub(crate) async fn new_send(
        &self,
        caller: &Caller,
        outlook: &Outlook,
        target: NewSession,
        ask: &SendMessage,
        awaited_by: Option<Process>,
    ) -> Result<NewRun> {
        let (at, rules) = (self.now(), &outlook.configured.rules);
        let id = RunId::new(self.random());
        let lineage = lineage_for("sessions_send", caller, &id, &rules.limits)?;
        let mut body = Body::text(Role::User, ask.message.as_str(), at);
        let (errand, from) = match &outlook.own {
            Some(own) => {
                let channel = channel(own);
                body.provenance = Some(Provenance::InterSession {
                    source_session_key: own.key.clone(),
                    source_channel: Some(channel.to_string()),
                    source_tool: Some("sessions_send".to_owned()),
                });
                let send = Send {
                    requester: own.key.clone(),
                    channel,
                    request: ask.message.clone(),
                    rounds_max: rules.rounds_max,
                    awaited_by,
                };
                (Errand::Send(send), own.key.as_str())
            }
            None => {
                body.provenance = Some(match &outlook.only {
                    None => Provenance::ExternalUser,
                    // A program that acts for an agent: these are not the person's words.
                    Some(agent) => Provenance::InterSession {
                        source_session_key: SessionKey::main(agent),
                        source_channel: None,
                        source_tool: Some("gateway".to_owned()),
                    },
                });
                (Errand::Message, outlook.only.as_ref().map_or("owner", |agent| agent.as_str()))
            }
        };
        body.run_id = Some(id.to_string());
        let parts = ["send", from, target.key.as_str(), &ask.message];
        let key = request_key(ask.idempotency_key.as_deref(), &parts)?;
        let limits = &rules.limits;
        let mut run = NewRun {
            agent: target.agent.clone(),
            session: target.clone(),
            at,
            messages: vec![NewMessage { id: MessageId::new(at, self.random()), body }],
            key,
            errand,
            lineage,
            caps: vec![Cap::Queue { most: limits.queue }, Cap::Tree { most: limits.tree_runs }],
            id,
        };
        self.tell_review(outlook.configured.team.as_ref(), &target, &mut run).await?;
        Ok(run)
    }

    /// Returns a run once it has ended, or as it stands `until` then or when the caller is gone.
    async fn watch(
        &self,
        store: &dyn Store,
        run: &RunId,
        until: Option<Instant>,
        caller: &Caller,
    ) -> Result<Run> {
        let mut changes = store.changes();
        loop {
            changes.mark_unchanged();
            let now = store.run(run).await?.ok_or_else(|| no_run(run.as_str()))?;
            let is_over = until.is_some_and(|until| Instant::now() >= until) || caller.gone.is_cancelled();
            if now.state.has_ended() || is_over {
                return Ok(now);
            }
            let next = Instant::now() + LOOK_AGAIN;
            tokio::select! {
                _ = changes.changed() => {}
                () = caller.gone.cancelled() => {}
                () = tokio::time::sleep_until(until.map_or(next, |until| until.min(next))) => {
                    // The node that executes it may have died, and nobody else may look.
                    store.settle_lapsed_runs(&sess_store::boot_time()?, self.now()).await?;
                }
            }
        }
    }
}

pub(crate) fn check_message(message: &str) -> Result<()> {
    if message.trim().is_empty() {
        return Err(Error::Invalid("message must not be blank".to_owned()));
    }
    if message.len() > MESSAGE_BYTES_MAX {
        return Err(Error::Invalid(format!(
            "message is too large: {} bytes, of at most {MESSAGE_BYTES_MAX}",
            message.len()
        )));
    }
    Ok(())
}

/// Returns how long a caller waits that does not say.
fn patience(caller: &Caller) -> u64 {
    let client = caller.client.as_deref().unwrap_or_default().to_ascii_lowercase();
    if client.contains(IMPATIENT_CLIENT) { IMPATIENT_WAIT_SECONDS } else { WAIT_SECONDS }
}

fn channel(own: &NewSession) -> sess_core::session::Channel {
    own.key.channel(own.facts.delivery.as_ref().map(|address| address.channel))
}

/// Writes the answer about a run: `status` of one that goes on, else what came of it.
fn answer(run: &Run, session_key: String, status: Option<&'static str>, error: Option<String>) -> SendAnswer {
    let mut answer = SendAnswer {
        run_id: run.id.to_string(),
        status: "ok".to_owned(),
        reply: None,
        error,
        session_key,
        delivery: Some(run.delivery().as_str().to_owned()),
    };
    if let Some(status) = status {
        return SendAnswer { status: status.to_owned(), ..answer };
    }
    let why = match run.state {
        RunState::Done => {
            // A word for the program is for nobody to read.
            answer.reply = Some(words(run).unwrap_or_default().to_owned());
            return answer;
        }
        RunState::Cancelled => "the run was cancelled",
        RunState::TimedOut => "the run took longer than it may",
        RunState::Aborted => "the run was aborted: the process that executed it is gone",
        RunState::Failed | RunState::Queued | RunState::Running => "the run failed",
    };
    let error = run.error.as_deref().unwrap_or(why).to_owned();
    SendAnswer { status: "error".to_owned(), error: Some(error), delivery: None, ..answer }
}

/// Says how a run stands, for somebody who waited for it.
fn waited(run: &Run) -> Waited {
    let status = match run.state {
        RunState::Queued | RunState::Running => WaitStatus::Timeout,
        RunState::Done => WaitStatus::Ok,
        RunState::Cancelled | RunState::Aborted => WaitStatus::Aborted,
        RunState::Failed | RunState::TimedOut => WaitStatus::Error,
    };
    let SendAnswer { run_id, reply, error, .. } = match status {
        WaitStatus::Timeout => answer(run, String::new(), Some("timeout"), None),
        WaitStatus::Ok | WaitStatus::Error | WaitStatus::Aborted => answer(run, String::new(), None, None),
    };
    Waited { run_id, status, reply, error }
}

/// Returns where a run that a caller asks for comes from, unless too many messages led to it.
pub(crate) fn lineage_for(
    tool: &str,
    caller: &Caller,
    id: &RunId,
    limits: &SessionLimits,
) -> Result<Lineage> {
    let lineage = caller.run.as_deref().map_or_else(|| Lineage::first(id), Lineage::below);
    if lineage.hops > limits.hops {
        return Err(Error::Denied(format!(
            "{tool} stops here: {} messages between agents led to this one, of at most {} \
             (session.agentToAgent.maxHops)",
            lineage.hops - 1,
            limits.hops
        )));
    }
    Ok(lineage)
}

/// A limit is a refusal that whoever asked sees.
pub(crate) fn refused(tool: &str, error: sess_store::Error) -> Error {
    match error {
        sess_store::Error::Full(full @ Full::Tree { .. }) => {
            Error::Denied(format!("{tool} stops here: {full} (session.agentToAgent.maxRuns)"))
        }
        error => error.into(),
    }
}

fn own_inbox(outlook: &Outlook) -> Result<&NewSession> {
    outlook.own.as_ref().ok_or_else(|| {
        Error::Invalid("an inbox belongs to a session, and nobody's session is calling".to_owned())
    })
}

fn answered(run: &Run) -> Error {
    let text = match run.state {
        RunState::Done => format!("run \"{}\" has its reply already: a message is answered once", run.id),
        _ => format!("run \"{}\" is over ({}): nobody waits for a reply", run.id, run.state),
    };
    sess_store::Error::Conflict(text).into()
}

/// Refuses a time that nobody waits for a reply.
pub(crate) fn no_wait(seconds: impl Display) -> Error {
    Error::Invalid(format!(
        "timeoutSeconds must be a whole number from 0 to {WAIT_SECONDS_MAX}, not {seconds}"
    ))
}
