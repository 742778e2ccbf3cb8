//! `sessions_list`: the sessions that a caller reaches, as rows.

use std::path::Path;

use sess_core::{
    AgentId, SessionId, Timestamp,
    key::{SessionKind, UnknownKind},
    policy::Verb,
    run::RunState,
    session::{Runner, Sending, Session, ThinkingLevel, VerboseLevel},
};
use sess_protocol::sessions::{AgentInfo, Agents, DeliveryContext, Row, Rows};
use sess_store::{Glance, LastReply, Reach, Store};

use crate::{
    App, Caller, Error, Redaction, Result,
    context::plain,
    history::{Newest, Tools},
    reach::Outlook,
    transcript_path,
};

/// How many rows are listed when nobody says, and at most.
const LIMIT: i64 = 50;
const LIMIT_MAX: i64 = 200;
/// The most messages of one row, and their most bytes.
const MESSAGE_LIMIT_MAX: i64 = 20;
const MESSAGES_BYTES_MAX: usize = 80 * 1024;
/// The most bytes that are searched for.
const SEARCH_BYTES_MAX: usize = 200;
/// Totals are exact up to here.
const TOTAL_MAX: u64 = 1_000;

/// Which rows to list.
#[derive(Clone, Debug, Default)]
pub struct ListRows {
    pub kinds: Vec<String>,
    pub limit: Option<i64>,
    pub active_minutes: Option<f64>,
    pub message_limit: Option<i64>,
    /// How many of the most recent are left out.
    pub offset: u64,
    /// Only sessions whose title, name, label or key contains this, in any case.
    pub search: Option<String>,
    /// Only sessions of this agent.
    pub agent: Option<String>,
    /// Whether archived ones are listed as well.
    pub with_archived: bool,
}

impl App {
    /// Lists the sessions that this caller reaches, most recent activity first.
    pub async fn session_rows(&self, caller: &Caller, ask: &ListRows) -> Result<Rows> {
        let kinds: Result<Vec<SessionKind>, UnknownKind> =
            ask.kinds.iter().map(|kind| kind.trim().parse()).collect();
        let kinds = kinds.map_err(|error| Error::Invalid(format!("kinds: {error}")))?;
        let active_since = ask.active_minutes.map(|minutes| self.minutes_ago(minutes)).transpose()?;
        let limit = ask.limit.unwrap_or(LIMIT).clamp(1, LIMIT_MAX);
        let message_limit = ask.message_limit.unwrap_or(0).clamp(0, MESSAGE_LIMIT_MAX).unsigned_abs();

        let outlook = self.outlook(caller).await?;
        let store = self.store()?;
        let search = ask.search.as_deref().map(str::trim).filter(|search| !search.is_empty());
        if search.is_some_and(|search| search.len() > SEARCH_BYTES_MAX) {
            return Err(Error::Invalid(format!("search must be at most {SEARCH_BYTES_MAX} bytes")));
        }
        // The database would take what is before it for all of the text.
        if search.is_some_and(|search| search.contains('\0')) {
            return Err(Error::Invalid("search must have no NUL character".to_owned()));
        }
        let agent: Option<AgentId> = match &ask.agent {
            None => None,
            Some(name) => Some(
                name.parse().map_err(|_| Error::Invalid(format!("agent: {name:?} is no agent's name")))?,
            ),
        };
        let reach = Reach {
            circle: self.circle(&outlook).await?,
            kinds,
            active_since,
            agent,
            search: search.map(str::to_owned),
            with_archived: ask.with_archived,
        };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let listed = store.list_within(&reach, ask.offset, limit).await?;
        let counted = store.count_within(&reach, TOTAL_MAX + 1).await?;
        let home = if outlook.is_sandboxed { None } else { Some(self.home()?) };
        let render = Render { store: &*store, outlook: &outlook, message_limit, home };
        let ids: Vec<SessionId> = listed.iter().map(|session| session.id.clone()).collect();
        let glances = store.glances(&ids).await?;
        let mut sessions = Vec::with_capacity(listed.len());
        for (session, glance) in listed.iter().zip(glances) {
            sessions.push(render.row(session, glance).await?);
        }
        Ok(Rows {
            count: sessions.len(),
            total: counted.min(TOTAL_MAX),
            total_is_minimum: counted > TOTAL_MAX,
            sessions,
        })
    }

    /// Returns the row of one session that the caller reaches, with that many of its last messages.
    pub async fn session_row(&self, caller: &Caller, given: &str, message_limit: u64) -> Result<Row> {
        let outlook = self.outlook(caller).await?;
        let reached = self.reach_from(&outlook, given, Verb::Status).await?;
        let session = self.looked_at(reached)?;
        let store = self.store()?;
        let home = if outlook.is_sandboxed { None } else { Some(self.home()?) };
        let message_limit = message_limit.min(MESSAGE_LIMIT_MAX.unsigned_abs());
        let render = Render { store: &*store, outlook: &outlook, message_limit, home };
        let glances = store.glances(std::slice::from_ref(&session.id)).await?;
        let glance = glances.into_iter().next();
        render.row(&session, glance.ok_or_else(|| sess_store::Error::NoSession(session.id.clone()))?).await
    }

    /// Returns the configured agents whose sessions this caller sees.
    pub fn configured_agents(&self, caller: &Caller) -> Result<Agents> {
        let configured = self.configured()?;
        let Some(team) = &configured.team else { return Ok(Agents { entry: None, agents: Vec::new() }) };
        let is_seen = |name: &AgentId| caller.only.as_ref().is_none_or(|only| only == name);
        let seen = team.agents().iter().filter(|agent| is_seen(&agent.name));
        let agents = seen.map(|agent| AgentInfo {
            id: agent.name.to_string(),
            description: agent.description.clone(),
            model: agent.model.clone(),
        });
        let entry = Some(&team.entry().name).filter(|name| is_seen(name)).map(ToString::to_string);
        Ok(Agents { entry, agents: agents.collect() })
    }

    fn minutes_ago(&self, minutes: f64) -> Result<Timestamp> {
        if minutes.is_nan() || minutes <= 0.0 {
            return Err(Error::Invalid(format!("activeMinutes must be greater than 0, not {minutes}")));
        }
        // The cast saturates: as long ago as anybody likes.
        let millis = (minutes * 60_000.0) as i64;
        Ok(Timestamp::from_millis_clamped(self.now().as_millis().saturating_sub(millis)))
    }
}

/// What it takes to make rows for one caller.
struct Render<'a> {
    store: &'a dyn Store,
    outlook: &'a Outlook,
    message_limit: u64,
    /// Where the store is; a sandboxed caller is not told.
    home: Option<&'a Path>,
}

impl Render<'_> {
    async fn row(&self, session: &Session, glance: Glance) -> Result<Row> {
        let configured = &self.outlook.configured;
        let facts = &session.facts;
        let status = status(session, &glance).to_owned();
        let aborted_last_run = glance.last_ended.map(was_aborted);
        let spoke = glance.last_reply.as_ref();
        let delivery = facts.delivery.as_ref();
        let messages = match self.message_limit {
            0 => None,
            limit => {
                let newest = Newest {
                    limit,
                    tools: Tools::Hidden,
                    redaction: Redaction::Masked,
                    size_bytes_max: MESSAGES_BYTES_MAX,
                };
                Some(newest.read(self.store, session).await?.messages)
            }
        };
        Ok(Row {
            key: configured.shown(&session.key),
            kind: session.key.kind().to_string(),
            channel: session.channel().to_string(),
            display_name: facts.display_name.as_deref().map(plain),
            updated_at: session.updated_at.as_millis(),
            session_id: session.id.to_string(),
            model: self.model(session, spoke),
            context_tokens: spoke.and_then(taken_in),
            total_tokens: Some(session.spent.tokens).filter(|tokens| *tokens > 0),
            total_cost: session.spent.cost,
            thinking_level: facts.thinking.map(ThinkingLevel::as_str).map(str::to_owned),
            verbose_level: facts.verbose.map(VerboseLevel::as_str).map(str::to_owned),
            system_sent: (facts.runner == Runner::Here).then_some(glance.was_started),
            aborted_last_run,
            send_policy: facts.send_policy.map(Sending::as_str).map(str::to_owned),
            last_channel: delivery.map(|address| address.channel.to_string()),
            last_to: delivery.and_then(|address| address.to.clone()),
            delivery_context: delivery.map(|address| DeliveryContext {
                channel: address.channel.to_string(),
                to: address.to.clone(),
                account_id: address.account_id.clone(),
            }),
            transcript_path: self.transcript_path(session),
            agent_id: Some(session.key.agent().unwrap_or_else(|| session.agent.clone()).to_string()),
            title: Some(plain(&session.title)).filter(|title| !title.is_empty()),
            spawned_by: session.parent.as_ref().map(|parent| configured.shown(parent)),
            label: facts.label.as_deref().map(plain),
            status: Some(status),
            created_at: session.created_at.as_millis(),
            archived: session.archived_at.is_some(),
            messages,
        })
    }

    /// Returns the model that speaks in a session. One that runs here is called what the configuration calls it,
    /// which is also what `sessions_spawn` takes: a provider's own name is known only once it has spoken.
    fn model(&self, session: &Session, spoke: Option<&LastReply>) -> Option<String> {
        let configured = || {
            let team = self.outlook.configured.team.as_ref()?;
            Some(team.agent(&session.agent)?.model.clone())
        };
        let is_ours = session.facts.runner == Runner::Here;
        let named = session.facts.model.clone().or_else(|| configured().filter(|_| is_ours));
        named.or_else(|| spoke.map(|reply| reply.model.clone()))
    }

    fn transcript_path(&self, session: &Session) -> Option<String> {
        let path = transcript_path(self.home?, &session.id);
        path.is_file().then(|| path.to_string_lossy().into_owned())
    }
}

/// Returns how many tokens a model took in before it spoke.
fn taken_in(reply: &LastReply) -> Option<u64> {
    let usage = reply.usage.as_ref()?;
    Some(usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write))
}

/// Tells whether a run that ended was stopped before its own end.
fn was_aborted((state, was_started): (RunState, bool)) -> bool {
    match state {
        RunState::Aborted | RunState::TimedOut => true,
        RunState::Cancelled => was_started,
        RunState::Queued | RunState::Running | RunState::Done | RunState::Failed => false,
    }
}

fn status(session: &Session, glance: &Glance) -> &'static str {
    match session.facts.runner {
        Runner::Host if glance.is_queued || glance.is_running => "waiting",
        Runner::Here if glance.is_running => "running",
        Runner::Here if glance.is_queued => "queued",
        Runner::Host | Runner::Here => "idle",
    }
}
