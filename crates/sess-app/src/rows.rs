//! Sessions as rows: those that a caller reaches, and at the doors other agents' among them.

use std::path::Path;

use sess_core::{
    AgentId, SessionId, Source, Timestamp,
    key::{SessionKind, UnknownKind},
    policy::{self, Verb},
    run::RunState,
    session::{Runner, Sending, Session, ThinkingLevel, UnknownSource, VerboseLevel},
};
use sess_protocol::sessions::{AgentInfo, Agents, DeliveryContext, Row, Rows, SubSession};
use sess_readers::Foreign;
use sess_store::{Glance, LastReply, Reach, Store};

use crate::{
    App, Caller, Error, ListSessions, Redaction, Result, Scope,
    context::{Children, Found, is_archived, join, plain},
    handoff::resume_of,
    history::{Newest, Tools},
    others::{Asked, Kept, as_stored},
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
    /// Only sessions whose title, name, label, key or directory contains this, in any case.
    pub search: Option<String>,
    /// Only sessions of this agent.
    pub agent: Option<String>,
    /// Whether archived ones are listed as well.
    pub with_archived: bool,
    /// Only sessions that come from these; from all when empty.
    pub sources: Vec<String>,
    pub scope: Scope,
    pub others: Others,
}

/// Whether a list has the sessions that other agents keep, for callers who may see them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Others {
    #[default]
    LeftOut,
    Included,
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
        let mut reach = Reach {
            circle: self.circle(&outlook).await?,
            kinds,
            active_since,
            agent,
            search: search.map(str::to_owned),
            sources: sources(&ask.sources)?,
            dirs: self.dirs(ask.scope)?,
            with_archived: ask.with_archived,
            without_bare: false,
            except: Vec::new(),
        };
        let theirs = match ask.others {
            Others::Included if outlook.sees_others() => {
                self.others_that_fit(caller, &mut reach, ask.scope).await?
            }
            Others::Included | Others::LeftOut => Vec::new(),
        };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let skipped = skipped(&*store, &reach, &theirs, ask.offset).await?;
        let ours = store.list_within(&reach, ask.offset - skipped as u64, limit).await?;
        let counted = store.count_within(&reach, TOTAL_MAX + 1).await? + theirs.len() as u64;
        let ours = ours.into_iter().map(|session| Found::Stored(Box::new(session)));
        let mut listed: Vec<Found> = ours.chain(theirs.into_iter().skip(skipped).take(limit)).collect();
        listed.sort_by_key(|found| std::cmp::Reverse(found.updated_at()));
        listed.truncate(limit);

        let render = self.render(&outlook, &*store, message_limit, ask.others)?;
        let stored: Vec<SessionId> =
            listed.iter().filter_map(Found::stored).map(|session| session.id.clone()).collect();
        let mut glances = store.glances(&stored).await?.into_iter();
        let mut sessions = Vec::with_capacity(listed.len());
        for found in &listed {
            let glance = found.stored().and_then(|_| glances.next()).unwrap_or_default();
            sessions.push(match found {
                Found::Stored(session) => render.row(session, glance).await?,
                Found::Foreign(foreign, stored) => render.theirs(foreign, stored.as_deref(), glance).await?,
            });
        }
        Ok(Rows {
            count: sessions.len(),
            total: counted.min(TOTAL_MAX),
            total_is_minimum: counted > TOTAL_MAX,
            sessions,
        })
    }

    /// Returns the sessions of other agents that fit, in the order of the list. What the store knows of
    /// them is left out of `reach`, so that each is listed once.
    async fn others_that_fit(&self, caller: &Caller, reach: &mut Reach, scope: Scope) -> Result<Vec<Found>> {
        let source = match reach.sources[..] {
            [only] => Some(only),
            _ => None,
        };
        let query = reach.search.clone();
        let list = ListSessions { scope, source, query, include_archived: true, ..ListSessions::default() };
        let all = &policy::Scope::All;
        let found = self.foreign_that_fit(caller, &list, all, Children::LeftOut).await?;
        let found = found
            .into_iter()
            .filter(|foreign| reach.sources.is_empty() || reach.sources.contains(&foreign.source));
        let mut found: Vec<Found> = found.map(|foreign| Found::Foreign(Box::new(foreign), None)).collect();
        reach.except = join(&*self.store()?, &mut found).await?;
        // What is left is not where its agent kept it.
        reach.without_bare = self.settings().homes.is_some();
        let search = reach.search.as_deref().map(str::to_lowercase);
        found.retain(|found| {
            let Found::Foreign(foreign, stored) = found else { return false };
            let key = foreign.key();
            let facts = stored.as_ref().map(|stored| &stored.facts);
            let names = [
                Some(found.title()),
                Some(key.as_str()),
                foreign.cwd.as_deref(),
                facts.and_then(|facts| facts.display_name.as_deref()),
                facts.and_then(|facts| facts.label.as_deref()),
            ];
            let has = |search: &str| names.iter().flatten().any(|name| name.to_lowercase().contains(search));
            (reach.with_archived || !found.is_archived())
                && (reach.kinds.is_empty() || reach.kinds.contains(&key.kind()))
                && reach.active_since.is_none_or(|since| found.updated_at() >= since)
                && reach.agent.as_ref().is_none_or(|agent| *agent == foreign.source.agent())
                && search.as_deref().is_none_or(has)
        });
        found.sort_by(|a, b| b.updated_at().cmp(&a.updated_at()).then_with(|| a.id().cmp(b.id())));
        Ok(found)
    }

    /// Returns the row of one session that the caller reaches, with that many of its last messages.
    pub async fn session_row(&self, caller: &Caller, given: &str, message_limit: u64) -> Result<Row> {
        let outlook = self.outlook(caller).await?;
        let kept = self.find_kept(&outlook, given, Verb::Status).await?;
        let store = self.store()?;
        let message_limit = message_limit.min(MESSAGE_LIMIT_MAX.unsigned_abs());
        let render = self.render(&outlook, &*store, message_limit, Others::Included)?;
        let (foreign, stored) = match kept {
            Kept::Ours(reached) => {
                let session = self.looked_at(*reached)?;
                let glance = store.glances(std::slice::from_ref(&session.id)).await?.into_iter().next();
                let none = || sess_store::Error::NoSession(session.id.clone());
                return render.row(&session, glance.ok_or_else(none)?).await;
            }
            Kept::Theirs(foreign, stored) => (foreign, stored),
        };
        let glance = match &stored {
            Some(stored) => store.glances(std::slice::from_ref(&stored.id)).await?.pop().unwrap_or_default(),
            None => Glance::default(),
        };
        let mut row = render.theirs(&foreign, stored.as_deref(), glance).await?;
        let mut below = self.look_at_agents(Some(foreign.source)).await?.sessions;
        below.retain(|session| session.parent.as_ref() == Some(&foreign.id));
        below.sort_by_key(|session| session.created_at);
        if !below.is_empty() {
            row.sub_sessions = Some(below.iter().map(sub_session).collect());
        }
        if message_limit > 0 {
            let limit = usize::try_from(message_limit).unwrap_or(usize::MAX);
            let page = self
                .their_page(
                    &foreign,
                    Asked { before: None, limit, with_tools: false, redaction: Redaction::Masked },
                )
                .await?;
            let read = page.messages.iter().map(|message| serde_json::from_str(message.json.get()));
            row.messages = Some(read.filter_map(std::result::Result::ok).collect());
        }
        Ok(row)
    }

    fn render<'a>(
        &'a self,
        outlook: &'a Outlook,
        store: &'a dyn Store,
        message_limit: u64,
        others: Others,
    ) -> Result<Render<'a>> {
        let home = if outlook.is_sandboxed { None } else { Some(self.home()?) };
        Ok(Render { store, outlook, message_limit, home, others })
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
    /// Whether a row says where its session comes from: not to an agent that lists its own.
    others: Others,
}

impl Render<'_> {
    /// Returns the row of another agent's session, without its messages: they are not read for a list.
    async fn theirs(&self, foreign: &Foreign, stored: Option<&Session>, glance: Glance) -> Result<Row> {
        let session = as_stored(foreign, stored);
        let plain = Self { message_limit: 0, ..*self };
        Ok(Row {
            archived: is_archived(foreign, stored),
            read_only: stored.is_none(),
            resume_command: resume_of(foreign),
            transcript_path: None,
            ..plain.row(&session, glance).await?
        })
    }

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
            starred: session.starred && self.others == Others::Included,
            source: (self.others == Others::Included).then(|| session.source.to_string()),
            read_only: false,
            cwd: session.cwd.as_deref().filter(|_| self.shows_places()).map(plain),
            resume_command: None,
            sub_sessions: None,
            messages,
        })
    }

    /// Where a session ran is told to who sees all of them.
    fn shows_places(&self) -> bool {
        self.others == Others::Included && self.outlook.sees_others()
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

/// Returns how many of `theirs`, which are in order, stand before a place in the list of all.
///
/// Of equally new ones ours come first: so a place in the list is theirs plus ours that are as new, and
/// the store counts instead of handing over everything before a page.
async fn skipped(store: &dyn Store, reach: &Reach, theirs: &[Found], offset: u64) -> Result<usize> {
    let mut low = 0;
    let mut high = theirs.len().min(usize::try_from(offset).unwrap_or(usize::MAX));
    while low < high {
        let middle = low + (high - low) / 2;
        let as_new = Reach { active_since: Some(theirs[middle].updated_at()), ..reach.clone() };
        let place = middle as u64 + store.count_within(&as_new, offset).await?;
        if place < offset {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

/// Reads the names of sources.
pub fn sources(names: &[String]) -> Result<Vec<Source>> {
    let read =
        |name: &String| name.trim().parse().map_err(|error: UnknownSource| Error::Invalid(error.to_string()));
    names.iter().map(read).collect()
}

fn sub_session(foreign: &Foreign) -> SubSession {
    let name = foreign.name.as_deref().filter(|name| !name.is_empty()).unwrap_or(&foreign.title);
    SubSession {
        key: foreign.key().to_string(),
        session_id: foreign.id.to_string(),
        name: plain(if name.is_empty() { foreign.id.as_str() } else { name }),
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
