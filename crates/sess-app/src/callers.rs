//! Who calls a use case, and as which session.

use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;
use sess_core::{
    AgentId, SessionId, SessionKey, Source,
    identity::{
        Claim, Evidence, Identity, MCP_SESSION_ID, Signals, THREAD_ID, identify, is_agent, marked_host,
        noting_host,
    },
    policy::{Confinement, Scope, Standing, Viewer, context_scope},
    run::Run,
    sandbox::SessionTools,
    session::{NewSession, Runner, Session},
};
use sess_readers::opencode_caller;
use tokio_util::sync::CancellationToken;

use crate::{App, Error, Result, context::blocking};

/// How long a host may take to note a call that it makes.
const NOTED_WITHIN: Duration = Duration::from_millis(500);
const NOTED_STEP: Duration = Duration::from_millis(25);

/// A caller of use cases: the owner at a terminal, or an agent in a session.
#[derive(Clone, Debug)]
pub struct Caller {
    pub identity: Identity,
    pub standing: Standing,
    pub confinement: Confinement,
    /// The agent that speaks, when no session's key says it.
    pub agent: AgentId,
    /// Whether it is confined at all, whatever its session tools may show.
    pub is_sandboxed: bool,
    /// Only sessions of this agent are there for it: a program that was given no more.
    pub only: Option<AgentId>,
    /// The run in which it calls, when a node of ours executes it.
    pub run: Option<Box<Run>>,
    /// The name the client gave itself.
    pub client: Option<String>,
    /// The kind of agent that calls, where nothing says which of its sessions does.
    pub host: Option<Source>,
    /// The topmost session above the calling one, where the call names it.
    pub root: Option<(Source, SessionId)>,
    /// Cancelled when nobody waits for the answer any longer.
    pub gone: CancellationToken,
}

/// Who is calling, and how we know.
#[derive(Clone, Debug, Serialize)]
pub struct Whoami {
    pub session_id: Option<String>,
    pub key: Option<String>,
    pub source: Option<Source>,
    pub agent: String,
    /// `owner` or `agent`.
    pub standing: &'static str,
    pub how: String,
    /// Whether the session is stored yet: it is made at its first write.
    pub stored: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How a caller is confined.
#[derive(Clone, Copy)]
pub(crate) struct Confined {
    /// As its session tools see it: `sessionToolsVisibility: all` lets them out.
    pub(crate) tools: Confinement,
    pub(crate) is_sandboxed: bool,
}

impl App {
    /// Works out who is calling: an agent, whatever session it turns out to be.
    pub fn caller(&self, signals: &Signals) -> Caller {
        let mut identity = identify(signals);
        if signals.explicit.as_deref().map(str::trim) == Some("main")
            && let Ok(configured) = self.configured()
        {
            identity.session = Claim::Key(SessionKey::main(&configured.entry()));
        }
        let told = vendor(signals.client_name.as_deref().unwrap_or_default());
        let is_thread = identity.evidence == Evidence::CallMeta(THREAD_ID);
        let root = signals.root_id.as_deref().filter(|_| is_thread).and_then(|id| id.parse().ok());
        // A connection's id says nothing about whose it is; the client's name may.
        let is_connection = identity.evidence == Evidence::CallMeta(MCP_SESSION_ID);
        let agent = match &identity.session {
            Claim::Id(_, source) if !is_connection => source.agent(),
            Claim::Id(..) | Claim::Key(_) | Claim::Own | Claim::Invalid(_) => {
                told.map_or_else(AgentId::main, Source::agent)
            }
        };
        let is_named = identity.evidence.names_caller();
        Caller {
            identity,
            standing: Standing::Agent,
            confinement: Confinement::Free,
            agent,
            is_sandboxed: false,
            only: None,
            run: None,
            client: signals.client_name.clone(),
            host: told.or_else(|| marked_host(signals)).filter(|_| !is_named),
            root: root.map(|id| (Source::Codex, id)),
            gone: CancellationToken::new(),
        }
    }

    /// Works out who makes a call of a tool. A host that does not say is asked for its notes, for a moment: it may
    /// still be writing them down.
    pub async fn caller_of(&self, signals: Signals, tool: &str, arguments: &Value) -> Caller {
        let signals = self.with_thread(signals).await;
        let Some(source) = noting_host(&signals) else { return self.caller(&signals) };
        let Some(homes) = self.settings().homes.clone() else { return self.caller(&signals) };
        let until = Instant::now() + NOTED_WITHIN;
        loop {
            let (homes, tool, arguments) = (homes.clone(), tool.to_owned(), arguments.clone());
            let found = blocking(move || opencode_caller(&homes, &tool, &arguments)).await;
            if let Ok(Some(id)) = found {
                return self.caller(&Signals { noted: Some((id, source)), ..signals });
            }
            if Instant::now() > until {
                return self.caller(&signals);
            }
            tokio::time::sleep(NOTED_STEP).await;
        }
    }

    /// Adds the thread that makes a call of which only the topmost one above it is told, if that one is kept here:
    /// Codex says both, and who says the other one alone is that thread itself.
    pub async fn with_thread(&self, signals: Signals) -> Signals {
        let is_told = signals.thread_id.as_deref().is_some_and(|id| !id.is_empty());
        let Some(root) = signals.root_id.clone().filter(|_| !is_told) else { return signals };
        let Ok(look) = self.look_at_agents(Some(Source::Codex)).await else { return signals };
        let is_kept = look.sessions.iter().any(|foreign| foreign.id.as_str() == root);
        Signals { thread_id: is_kept.then_some(root), ..signals }
    }

    /// Works out who uses the command line: the owner, unless a host or a parent
    /// session left a sign that an agent does.
    pub fn cli_caller(&self, signals: &Signals) -> Caller {
        // An agent stays who it is, whichever session it names: that is only what it asks about.
        let unnamed = Signals { explicit: None, ..signals.clone() };
        let mut caller = self.caller(if is_agent(signals) { &unnamed } else { signals });
        if !is_agent(signals) {
            caller.standing = Standing::Owner;
        }
        caller
    }

    pub async fn whoami(&self, caller: &Caller) -> Whoami {
        let standing = match caller.standing {
            Standing::Owner => "owner",
            Standing::Agent => "agent",
        };
        let how = caller.identity.evidence.to_string();
        let unknown = Whoami {
            session_id: None,
            key: None,
            source: None,
            agent: caller.agent.to_string(),
            standing,
            how,
            stored: false,
            error: None,
        };
        let named = match self.named_session(caller).await {
            Ok(named) => named,
            Err(error) => return Whoami { error: Some(error.to_string()), ..unknown },
        };
        let stored = self.stored_session(&named.id).await.ok().flatten().is_some();
        Whoami {
            session_id: Some(named.id.to_string()),
            key: Some(named.key.to_string()),
            source: Some(named.source),
            agent: named.agent.to_string(),
            stored,
            ..unknown
        }
    }

    /// Returns the caller's session as it is stored, or as it will be at its first write.
    pub(crate) async fn named_session(&self, caller: &Caller) -> Result<NewSession> {
        let (id, source) = match &caller.identity.session {
            Claim::Invalid(error) => return Err(error.clone().into()),
            Claim::Key(key) => {
                let key = &self.configured()?.shared(key.clone());
                let found = if self.has_store() { self.store()?.session_by_key(key).await? } else { None };
                return match found {
                    Some(found) => Ok(found.into()),
                    // The main session of a configured agent is made at its first use.
                    None if self.configured()?.has_main(key) => self.first_use(key.clone()),
                    None => Err(Error::NotFound(format!("session \"{key}\" not found"))),
                };
            }
            Claim::Id(id, source) => (id.clone(), *source),
            Claim::Own => (self.inner.own.clone(), Source::Native),
        };
        if let Some(found) = self.stored_session(&id).await? {
            return Ok(found.into());
        }
        let mut new = NewSession::chat(id, source, self.now());
        if source == Source::Native {
            new.agent = caller.agent.clone();
            new.key = SessionKey::chat(&new.agent, &new.id);
        }
        if caller.standing == Standing::Agent {
            // An agent that runs here has its session before it can call anything.
            new.facts.runner = Runner::Host;
        }
        new.cwd.clone_from(&self.settings().cwd);
        Ok(new)
    }

    /// Returns the session that calls, and makes it when it is not stored yet, so that others find
    /// it. The owner is no session.
    pub(crate) async fn present(&self, caller: &Caller) -> Result<Option<NewSession>> {
        self.home()?;
        if caller.standing == Standing::Owner {
            return Ok(None);
        }
        let named = self.named_session(caller).await?;
        if self.stored_session(&named.id).await?.is_none()
            && let Err(error) = self.store()?.ensure_session(named.clone()).await
        {
            // A store that takes no writes can still be read.
            tracing::warn!(%error, session = %named.id, "the calling session was not stored");
        }
        Ok(Some(named))
    }

    pub(crate) async fn stored_session(&self, id: &SessionId) -> Result<Option<Session>> {
        if !self.has_store() {
            return Ok(None);
        }
        Ok(self.store()?.session(id).await?)
    }

    /// Returns the caller's own session and the ones above it, nearest first.
    ///
    /// The owner is no session: nothing is "current" at a terminal.
    pub(crate) async fn lineage(&self, caller: &Caller) -> Result<Vec<Session>> {
        if caller.standing == Standing::Owner {
            return Ok(Vec::new());
        }
        let own = match &caller.identity.session {
            Claim::Invalid(error) => return Err(error.clone().into()),
            Claim::Key(key) if self.has_store() => {
                let key = self.configured()?.shared(key.clone());
                self.store()?.session_by_key(&key).await.map_err(Error::from)
            }
            Claim::Key(_) => Ok(None),
            Claim::Id(id, _) => self.stored_session(id).await,
            Claim::Own => self.stored_session(&self.inner.own).await,
        };
        let Some(own) = readable(own)? else { return Ok(Vec::new()) };
        let mut lineage = vec![own];
        lineage.extend(self.ancestors(&lineage[0]).await?);
        Ok(lineage)
    }

    /// Returns the sessions above `session`, nearest first; a loop ends where it closes.
    pub(crate) async fn ancestors(&self, session: &Session) -> Result<Vec<Session>> {
        let store = self.store()?;
        let mut above: Vec<Session> = Vec::new();
        let mut next = session.parent.clone();
        while let Some(key) = next.take() {
            if key == session.key || above.iter().any(|seen| seen.key == key) {
                break;
            }
            let parent = store.session_by_key(&key).await.map_err(Error::from);
            let Some(parent) = readable(parent)? else { break };
            next.clone_from(&parent.parent);
            above.push(parent);
        }
        Ok(above)
    }

    /// Returns what the context tools may show this caller.
    pub(crate) async fn visible(&self, caller: &Caller) -> Result<Scope> {
        let own = match caller.standing {
            Standing::Owner => None,
            Standing::Agent => readable(self.named_session(caller).await.map(Some))?,
        };
        let confinement = self.confined(caller, own.as_ref()).await?.tools;
        let key = own.as_ref().map(|own| &own.key);
        let only = caller.only.as_ref();
        let viewer = Viewer { standing: caller.standing, only, key, confinement };
        Ok(context_scope(&viewer, self.settings().context_visibility))
    }

    /// Returns how the caller is confined, whichever door it came through: what runs it says so, and so does
    /// the configuration of the agent whose session it is.
    pub(crate) async fn confined(&self, caller: &Caller, own: Option<&NewSession>) -> Result<Confined> {
        let told = Confined { tools: caller.confinement, is_sandboxed: caller.is_sandboxed };
        let Some(own) = own.filter(|own| {
            caller.standing == Standing::Agent && caller.run.is_none() && own.facts.runner == Runner::Here
        }) else {
            return Ok(told);
        };
        let configured = self.configured()?;
        let Some(team) = &configured.team else { return Ok(told) };
        let Some(agent) = team.agent(&own.agent) else { return Ok(told) };
        let Some(session) = self.stored_session(&own.id).await? else { return Ok(told) };
        Ok(match self.sandbox(team, &session, agent).await? {
            None => told,
            Some(sandbox) => Confined {
                is_sandboxed: true,
                tools: match sandbox.session_tools {
                    SessionTools::Spawned => Confinement::Sandboxed,
                    SessionTools::All => caller.confinement,
                },
            },
        })
    }
}

/// Takes what is damaged for missing: a damaged session costs itself only.
fn readable<T>(found: Result<Option<T>>) -> Result<Option<T>> {
    match found {
        Err(Error::Store(sess_store::Error::Damaged(reason))) => {
            tracing::warn!("{reason}");
            Ok(None)
        }
        found => found,
    }
}

/// Returns the agent that a client's name has as one of its words: "an example" is not Amp.
fn vendor(client: &str) -> Option<Source> {
    let word_by_word = |name: &str| {
        let letters = name.chars().map(|c| if c.is_alphanumeric() { c.to_ascii_lowercase() } else { '-' });
        format!("-{}-", letters.collect::<String>())
    };
    let client = word_by_word(client);
    Source::ALL.into_iter().find(|source| client.contains(&word_by_word(source.as_str())))
}
