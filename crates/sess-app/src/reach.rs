//! Which sessions a caller reaches with the session tools.
//!
//! What was given is made canonical first; then the one policy function of the core is asked.

use std::{os::unix::fs::MetadataExt as _, sync::Arc, time::UNIX_EPOCH};

use sess_core::{
    AgentId, SessionId, SessionKey, Source,
    key::SessionKind,
    policy::{self, Confinement, Standing, Verb, Viewer},
    reference::{PREFIX_LEN_MIN, ReferenceError, native_id},
    rules::{DirectScope, Visibility},
    session::{NewSession, Session},
};
use sess_store::Circle;

use crate::{App, Caller, Configured, Error, Result, callers::Confined, transfer::fnv1a};

/// How many sessions are looked at to tell whether a prefix is unique.
const PREFIX_MATCHES_MAX: usize = 1_000;

/// A session that the caller may act on.
#[derive(Clone, Debug)]
pub struct Reached {
    pub key: SessionKey,
    /// `None` for the main session of a configured agent before its first use.
    pub session: Option<Session>,
}

/// Where a caller looks from, for the length of one call.
pub(crate) struct Outlook {
    /// The session that calls; the owner is none.
    pub(crate) own: Option<NewSession>,
    pub(crate) configured: Arc<Configured>,
    standing: Standing,
    /// Only sessions of this agent are there for it.
    pub(crate) only: Option<AgentId>,
    confinement: Confinement,
    /// Whether it is confined at all, whatever its session tools may show.
    pub(crate) is_sandboxed: bool,
    /// The agent whose main session `main` is.
    agent: AgentId,
}

/// What was given, before anything is looked up.
pub(crate) enum Given {
    Key(SessionKey),
    /// `<source>:<native id>`.
    Native(Source, SessionId),
    Id(SessionId),
}

impl App {
    /// Finds the session that `given` names to this caller, if it may do `verb` to it.
    ///
    /// A key leads to its newest transcript. An id leads to the transcript that has it.
    pub async fn reach(&self, caller: &Caller, given: &str, verb: Verb) -> Result<Reached> {
        let outlook = self.outlook(caller).await?;
        self.reach_from(&outlook, given, verb).await
    }

    /// Returns where this caller looks from; its session is stored then.
    pub(crate) async fn outlook(&self, caller: &Caller) -> Result<Outlook> {
        let own = self.present(caller).await?;
        let configured = self.configured()?;
        let only = caller.only.clone();
        let agent = match &own {
            Some(own) => own.key.agent().unwrap_or_else(|| caller.agent.clone()),
            None => only.clone().unwrap_or_else(|| configured.entry()),
        };
        let Confined { tools: confinement, is_sandboxed } = self.confined(caller, own.as_ref()).await?;
        Ok(Outlook { own, configured, standing: caller.standing, only, confinement, is_sandboxed, agent })
    }

    pub(crate) async fn reach_from(&self, outlook: &Outlook, given: &str, verb: Verb) -> Result<Reached> {
        let given = given.trim();
        if given.is_empty() {
            return Err(Error::Invalid("sessionKey must not be empty".to_owned()));
        }
        let not_found = || not_found(given);
        match outlook.canonical(given)? {
            // Judged before anybody looks whether there is one: what is out of reach and what
            // does not exist get the same answer.
            Given::Key(key) => {
                let found = self.newest(&key).await;
                self.judge(outlook, &key, found.as_ref().ok().and_then(Option::as_ref), verb).await?;
                let session = found?;
                let exists = session.is_some() || outlook.configured.has_main(&key);
                if exists { Ok(Reached { key, session }) } else { Err(not_found()) }
            }
            Given::Native(source, id) => {
                let found = self.stored_session(&id).await?.filter(|session| session.source == source);
                let session = found.ok_or_else(not_found)?;
                self.judge(outlook, &session.key, Some(&session), verb).await?;
                Ok(Reached { key: session.key.clone(), session: Some(session) })
            }
            Given::Id(id) => match self.stored_session(&id).await {
                // Whose a damaged session is cannot be told, so only the owner hears of it.
                Err(Error::Store(sess_store::Error::Damaged(_)))
                    if outlook.own.is_some() || outlook.only.is_some() =>
                {
                    Err(not_found())
                }
                Err(error) => Err(error),
                Ok(Some(session)) => {
                    let newest = self.newest(&session.key).await?;
                    self.judge(outlook, &session.key, newest.as_ref(), verb).await?;
                    Ok(Reached { key: session.key.clone(), session: Some(session) })
                }
                Ok(None) => {
                    let session = self.by_prefix_in_reach(outlook, id.as_str(), verb).await?;
                    let session = session.ok_or_else(not_found)?;
                    Ok(Reached { key: session.key.clone(), session: Some(session) })
                }
            },
        }
    }

    /// Asks the policy about a key; `newest` is what it leads to.
    async fn judge(
        &self,
        outlook: &Outlook,
        key: &SessionKey,
        newest: Option<&Session>,
        verb: Verb,
    ) -> Result<()> {
        let is_below = match (newest, &outlook.own) {
            (Some(session), Some(own)) => {
                self.ancestors(session).await?.iter().any(|above| above.key == own.key)
            }
            (None, _) | (_, None) => false,
        };
        let rules = &outlook.configured.rules;
        policy::reach(&outlook.viewer(), key, is_below, verb, rules)
            .map_err(|refusal| Error::Denied(refusal.to_string()))
    }

    /// Tells whether a session that exists is in reach.
    pub(crate) async fn is_in_reach(&self, outlook: &Outlook, session: &Session, verb: Verb) -> Result<bool> {
        let newest = self.newest(&session.key).await?;
        match self.judge(outlook, &session.key, newest.as_ref(), verb).await {
            Ok(()) => Ok(true),
            Err(Error::Denied(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn newest(&self, key: &SessionKey) -> Result<Option<Session>> {
        if !self.has_store() {
            return Ok(None);
        }
        Ok(self.store()?.session_by_key(key).await?)
    }

    /// A prefix is looked up among sessions in reach: others neither match nor make it ambiguous.
    async fn by_prefix_in_reach(
        &self,
        outlook: &Outlook,
        prefix: &str,
        verb: Verb,
    ) -> Result<Option<Session>> {
        if prefix.len() < PREFIX_LEN_MIN || !self.has_store() {
            return Ok(None);
        }
        let mut matches = Vec::new();
        for session in self.store()?.sessions_by_prefix(prefix, PREFIX_MATCHES_MAX).await? {
            if self.is_in_reach(outlook, &session, verb).await? {
                matches.push(session);
            }
        }
        if matches.len() > 1 {
            let (reference, matches) = (prefix.to_owned(), matches.len() as u64);
            return Err(ReferenceError::Ambiguous { reference, matches }.into());
        }
        Ok(matches.pop())
    }

    /// Returns what a list may show: exactly the sessions that [`policy::reach`] admits.
    pub(crate) async fn circle(&self, outlook: &Outlook) -> Result<Circle> {
        let own = match (&outlook.own, &outlook.only) {
            (Some(own), _) => own.key.clone(),
            (None, None) => return Ok(Circle::Everything),
            (None, Some(only)) => {
                let (own, agents) = (SessionKey::main(only), vec![only.clone()]);
                return Ok(Circle::Agents { own, agents, agentless: false });
            }
        };
        let rules = &outlook.configured.rules;
        let agent = own.agent();
        Ok(match rules.visibility_of(outlook.confinement) {
            Visibility::Own => Circle::Own(own),
            Visibility::Tree => Circle::Tree(own),
            Visibility::Agent => {
                Circle::Agents { own, agents: agent.into_iter().collect(), agentless: false }
            }
            Visibility::All => {
                let admits = |other: Option<&AgentId>| rules.agent_to_agent.admits(agent.as_ref(), other);
                let mut agents = self.store()?.agents().await?;
                agents.retain(|other| agent.as_ref() == Some(other) || admits(Some(other)));
                Circle::Agents { own, agents, agentless: admits(None) }
            }
        })
    }

    /// Returns the session behind a key that exists, and makes the main one of an agent at its first use.
    pub(crate) async fn opened(&self, reached: Reached) -> Result<Session> {
        match reached.session {
            Some(session) => Ok(session),
            None => Ok(self.store()?.ensure_session(self.first_use(reached.key)?).await?),
        }
    }

    /// As [`Self::opened`], for somebody who only reads: what was not used yet is shown, and not made.
    pub(crate) fn looked_at(&self, reached: Reached) -> Result<Session> {
        match reached.session {
            Some(session) => Ok(session),
            None => Ok(Session::unused(self.first_use(reached.key)?)),
        }
    }

    /// Returns the id that the main session of an agent will have, before its first use.
    pub fn first_id(&self, key: &SessionKey) -> Result<SessionId> {
        Ok(self.first_use(key.clone())?.id)
    }

    /// Returns the main session of an agent as it is made at its first use.
    ///
    /// Whoever is first, in any process, makes the same one: its id comes from its key and from the
    /// file that the store is in, and so is another one in every other store.
    pub(crate) fn first_use(&self, key: SessionKey) -> Result<NewSession> {
        self.store()?;
        let file = self.home()?.join("sess.db");
        let file = file.metadata().map_err(|error| {
            Error::Unavailable(format!("cannot look at the store {}: {error}", file.display()))
        })?;
        let born = file.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let name = format!("{key} {} {} {:?}", file.dev(), file.ino(), born);
        let mut new = NewSession::chat(sess_core::id::uuid(fnv1a(name.bytes())), Source::Native, self.now());
        new.agent = key.agent().unwrap_or(new.agent);
        new.key = key;
        new.cwd.clone_from(&self.settings().cwd);
        Ok(new)
    }
}

impl Outlook {
    fn viewer(&self) -> Viewer<'_> {
        let key = self.own.as_ref().map(|own| &own.key);
        Viewer { standing: self.standing, only: self.only.as_ref(), key, confinement: self.confinement }
    }

    /// Tells whether the sessions that other agents keep are there for this caller: for the owner, and
    /// for whom the owner gave all sessions.
    pub(crate) fn sees_others(&self) -> bool {
        self.standing == Standing::Owner && self.only.is_none()
    }

    /// Reads what was given: `main` and `current` are names, the rest is a key or an id.
    pub(crate) fn canonical(&self, given: &str) -> Result<Given> {
        if given == "main" {
            return Ok(Given::Key(self.configured.shared(SessionKey::main(&self.agent))));
        }
        if given == "current"
            && let Some(own) = &self.own
        {
            return Ok(Given::Key(own.key.clone()));
        }
        if matches!(given, "current" | "global" | "unknown") {
            return Err(not_found(given));
        }
        if let Some((source, id)) = given.split_once(':')
            && let (Ok(source), Some(id)) = (source.parse::<Source>(), native_id(id))
            && source != Source::Native
        {
            return Ok(Given::Native(source, id));
        }
        let is_meant_as_key = given.contains(':') || given.starts_with("node-");
        let is_never_id = given.len() > SessionKey::SIZE_BYTES_MAX || given.chars().any(char::is_control);
        if is_meant_as_key || is_never_id {
            let key = given.parse::<SessionKey>().map_err(|error| Error::Invalid(error.to_string()))?;
            return Ok(Given::Key(self.configured.shared(key)));
        }
        native_id(given).map(Given::Id).ok_or_else(|| not_found(given))
    }
}

impl Configured {
    /// With one direct chat for all agents, every main key is that one.
    pub(crate) fn shared(&self, key: SessionKey) -> SessionKey {
        match (self.rules.scope, key.kind()) {
            (DirectScope::Global, SessionKind::Main) => SessionKey::main(&self.entry()),
            _ => key,
        }
    }

    /// Tells whether a session exists before its first use: the main one of a configured agent.
    pub(crate) fn has_main(&self, key: &SessionKey) -> bool {
        let team = self.team.as_ref();
        key.kind() == SessionKind::Main
            && key.agent().is_some_and(|agent| team.is_some_and(|team| team.agent(&agent).is_some()))
    }

    /// Returns the agent that gets first messages.
    pub(crate) fn entry(&self) -> AgentId {
        self.team.as_ref().map_or_else(AgentId::main, |team| team.entry().name.clone())
    }

    /// Returns a key as tools show it: the one direct chat of all agents is called `main`.
    pub(crate) fn shown(&self, key: &SessionKey) -> String {
        let is_shared = self.rules.scope == DirectScope::Global && *key == SessionKey::main(&self.entry());
        if is_shared { "main".to_owned() } else { key.to_string() }
    }
}

fn not_found(given: &str) -> Error {
    Error::NotFound(format!("Session not found: {given}"))
}
