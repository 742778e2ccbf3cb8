//! The agents that run on this machine, each with the session that it is in.

use std::{
    collections::{HashMap, HashSet},
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::PoisonError,
};

use serde::Serialize;
use sess_core::{
    SessionId, Source, Timestamp,
    message::{Body, Role},
    plan::State,
    policy,
};
use sess_readers::{Foreign, Live, Status};
use sess_store::SessionFilter;

use crate::{App, Caller, Error, Result, Waiting, context};

/// Where the system tells of its processes.
const SYSTEM: &str = "/proc";
/// An agent whose transcript changed this short a time ago is busy.
const BUSY_FOR_MS: i64 = 5_000;
/// Up to this size a transcript is read for its last line.
const READ_SIZE_BYTES_MAX: u64 = 64 << 20;
/// How many of our own sessions are looked at for the one that a process has open.
const SEATS_LOOKED_AT: usize = 50;
/// How much of a last line is told, in characters.
const LAST_LINE_CHARS_MAX: usize = 300;

/// An agent that runs here, or did until it died.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LiveAgent {
    /// Whose agent it is: `claude`, `codex` and so on, `native` for our own.
    pub source: Source,
    pub pid: u32,
    pub state: LiveState,
    /// What it was started as.
    pub command: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The session that it is in, as far as that is known. Give it to `sess read`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// The last line of what was said last.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_line: String,
    /// Messages in its inbox that it has not fetched.
    pub unread: u64,
    /// The review state of its plan, when it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<&'static str>,
}

/// What an agent does right now. The order is the one of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LiveState {
    NeedsInput,
    Busy,
    Idle,
    /// Its registry still has it, and its process is gone.
    Dead,
}

/// What was said last in sessions that were looked at, with what their files were like then.
pub(crate) type LastLines = HashMap<(PathBuf, SessionId), (String, String)>;

impl LiveAgent {
    fn waits(&mut self, waiting: &Waiting) {
        self.unread = waiting.unread as u64;
        self.plan = waiting.plan.map(State::as_str);
    }
}

impl App {
    /// Lists the agents that this user runs on this machine; who needs input comes first.
    ///
    /// What is said in sessions that the caller may not see is left out.
    pub async fn live_agents(&self, caller: &Caller) -> Result<Vec<LiveAgent>> {
        self.home()?;
        let Some(homes) = self.settings().homes.clone() else { return Ok(Vec::new()) };
        let now = self.now();
        let found = context::blocking(move || sess_readers::live(&homes, Path::new(SYSTEM), now)).await?;
        let (found, mut problems) = found.map_err(|error| {
            Error::Unavailable(format!("the processes of this machine cannot be listed: {error}"))
        })?;
        let found = without_resumed(found);
        let scope = self.visible(caller).await?;
        let look = self.look_at_agents(None).await?;
        problems.extend(look.problems);
        self.warn_of(&problems);
        let sessions = look.sessions;
        let mut taken: HashSet<(Source, SessionId)> =
            found.iter().filter_map(|live| Some((live.source, live.session.clone()?))).collect();
        let mut agents = Vec::with_capacity(found.len());
        for live in found {
            let agent = match live.source {
                Source::Native => self.live_native(&live, &scope).await?,
                _ => {
                    let foreign = session_of(&live, &sessions, &taken);
                    let foreign = foreign.filter(|foreign| context::is_visible(&scope, foreign));
                    taken.extend(foreign.map(|foreign| (foreign.source, foreign.id.clone())));
                    self.live_foreign(&live, foreign, &sessions).await?
                }
            };
            agents.push(agent);
        }
        agents.sort_by(|a, b| (a.state, &a.cwd, a.pid).cmp(&(b.state, &b.cwd, b.pid)));
        Ok(agents)
    }

    async fn live_foreign(
        &self,
        live: &Live,
        foreign: Option<&Foreign>,
        all: &[Foreign],
    ) -> Result<LiveAgent> {
        let state = match (live.is_alive, live.status, foreign) {
            (false, _, _) => LiveState::Dead,
            (true, Some(Status::Busy), _) => LiveState::Busy,
            (true, Some(Status::NeedsInput), _) => LiveState::NeedsInput,
            (true, Some(Status::Idle), _) | (true, None, None) => LiveState::Idle,
            (true, None, Some(foreign)) => {
                let since_ms = self.now().as_millis() - changed_at(foreign, all).as_millis();
                if since_ms <= BUSY_FOR_MS { LiveState::Busy } else { LiveState::Idle }
            }
        };
        let mut agent = agent(live, state);
        let Some(foreign) = foreign else { return Ok(agent) };
        agent.session = Some(foreign.reference());
        agent.title = context::plain(&foreign.title);
        agent.last_line = self.last_line(foreign).await?;
        agent.branch = agent.branch.or_else(|| foreign.branch.as_deref().map(context::plain));
        if self.has_store() {
            let store = self.store()?;
            let stored = store.session(&foreign.id).await?;
            if let Some(stored) = stored.filter(|stored| stored.source == foreign.source) {
                agent.waits(&self.waiting_for(&foreign.id).await?);
                if !stored.title.is_empty() {
                    agent.title = context::plain(&stored.title);
                }
            }
        }
        Ok(agent)
    }

    /// A chat has a seat in its session, which names the process.
    async fn live_native(&self, live: &Live, scope: &policy::Scope) -> Result<LiveAgent> {
        let mut agent = agent(live, LiveState::Idle);
        if live.command != "sess run" || !self.has_store() {
            return Ok(agent);
        }
        let store = self.store()?;
        for session in store.list_sessions(&SessionFilter::default(), 0, SEATS_LOOKED_AT).await? {
            let seat = store.seat(&session.id).await?.map(|seat| seat.process);
            let is_its =
                |seat: sess_core::run::Process| seat.pid == live.pid && seat.started == live.started_ticks;
            if !seat.is_some_and(is_its) {
                continue;
            }
            let glance = store.glances(std::slice::from_ref(&session.id)).await?.pop().unwrap_or_default();
            if glance.is_running {
                agent.state = LiveState::Busy;
            }
            if self.is_inside(scope, &session).await? {
                agent.waits(&self.waiting_for(&session.id).await?);
                agent.title = context::plain(&session.title);
                let newest = store.messages(&session.id, sess_store::Span::Last, 1).await?;
                let body = newest.messages.last().and_then(|message| message.parse().ok());
                agent.last_line = body.and_then(last_text).map(|text| last_line(&text)).unwrap_or_default();
                agent.session = Some(session.id.to_string());
            }
            break;
        }
        Ok(agent)
    }

    /// Returns the last line of a session; what was read before is not read again until it changes.
    async fn last_line(&self, foreign: &Foreign) -> Result<String> {
        if foreign.place.size_bytes.is_some_and(|size| size > READ_SIZE_BYTES_MAX) {
            return Ok(String::new());
        }
        let (app, foreign) = (self.clone(), foreign.clone());
        context::blocking(move || {
            let key = (foreign.place.path.clone(), foreign.id.clone());
            let stamp = foreign.stamp().unwrap_or_default();
            let lines = || app.inner.last_lines.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, line)) = lines().get(&key).filter(|(seen, _)| *seen == stamp) {
                return line.clone();
            }
            let mut last = None;
            // One that cannot be read has said nothing that could be shown.
            let _told = sess_readers::read(&foreign, &mut |entry| {
                if !entry.is_taken_back {
                    last = last_text(entry.body).or(last.take());
                }
                ControlFlow::Continue(())
            });
            let last = last.map(|text| last_line(&text)).unwrap_or_default();
            lines().insert(key, (stamp, last.clone()));
            last
        })
        .await
    }
}

/// Leaves out those that died and whose session somebody else goes on with.
fn without_resumed(found: Vec<Live>) -> Vec<Live> {
    let alive = found.iter().filter(|live| live.is_alive);
    let going_on: HashSet<SessionId> = alive.filter_map(|live| live.session.clone()).collect();
    let is_resumed = |live: &Live| live.session.as_ref().is_some_and(|session| going_on.contains(session));
    found.into_iter().filter(|live| live.is_alive || !is_resumed(live)).collect()
}

fn agent(live: &Live, state: LiveState) -> LiveAgent {
    let branch = live.cwd.as_deref().and_then(|cwd| sess_readers::branch(Path::new(cwd)));
    LiveAgent {
        source: live.source,
        pid: live.pid,
        state,
        command: context::plain(&live.command),
        started_at: live.started_at.map(|at| at.to_string()),
        branch: branch.as_deref().map(context::plain),
        cwd: live.cwd.as_deref().map(context::plain),
        session: None,
        title: String::new(),
        last_line: String::new(),
        unread: 0,
        plan: None,
    }
}

/// Returns the session that an agent is in: the one that its registry or its arguments name, else
/// the newest of its directory that nobody else has and in which something was said since it
/// started.
fn session_of<'a>(
    live: &Live,
    sessions: &'a [Foreign],
    taken: &HashSet<(Source, SessionId)>,
) -> Option<&'a Foreign> {
    let mut its = sessions.iter().filter(|session| session.source == live.source && !session.is_snapshot);
    if let Some(id) = &live.session {
        return its.find(|session| session.id == *id);
    }
    let its: Vec<&Foreign> = its.collect();
    let named = its.iter().find(|session| live.arguments.iter().any(|it| it == session.id.as_str()));
    if let Some(named) = named {
        return Some(named);
    }
    // The system names directories without links; a session may name them as a person does.
    let is_there = |cwd: &str| {
        let plain = Path::new(cwd).canonicalize().ok();
        live.cwd.as_deref() == Some(cwd) || plain.is_some_and(|it| live.cwd.as_deref() == it.to_str())
    };
    let is_candidate = |session: &&&Foreign| {
        session.parent.is_none()
            && live.started_at.is_none_or(|started| session.updated_at >= started)
            && !taken.contains(&(session.source, session.id.clone()))
            && session.cwd.as_deref().is_some_and(is_there)
    };
    its.iter().filter(is_candidate).max_by_key(|session| session.updated_at).copied()
}

/// Returns when something last happened in a session. A database that many share tells that of
/// its newest alone.
fn changed_at(foreign: &Foreign, all: &[Foreign]) -> Timestamp {
    let is_newest = || {
        let beside = all.iter().filter(|other| other.place.path == foreign.place.path);
        beside.map(|other| other.updated_at).max() == Some(foreign.updated_at)
    };
    if foreign.place.size_bytes.is_some() || is_newest() {
        return foreign.changed_at().unwrap_or_default().max(foreign.updated_at);
    }
    foreign.updated_at
}

/// Returns the last text of a message; tools are named. None when it says nothing.
fn last_text(body: Body) -> Option<String> {
    use sess_core::message::Block;
    if !matches!(body.role, Role::User | Role::Assistant) {
        return None;
    }
    body.content.into_iter().rev().find_map(|block| match block {
        Block::Text { text } => (!text.trim().is_empty()).then_some(text),
        Block::ToolCall { name, .. } => Some(format!("({name})")),
        _ => None,
    })
}

/// Returns the last line of a text, without secrets.
fn last_line(text: &str) -> String {
    // Masked before it is cut: half a secret is not recognised, and neither is one line of it.
    let text = context::plain(text);
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    line.chars().take(LAST_LINE_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_last_line_is_masked_as_it_is_where_all_of_the_text_stands() {
        let check = |text: &str, line: &str| assert_eq!(last_line(text), line, "{text}");
        check("First.\n Shall I go on? \n\n", "Shall I go on?");
        check(
            "here is the key:\n-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n",
            "***",
        );
    }
}
